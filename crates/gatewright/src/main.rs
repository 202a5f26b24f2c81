//! `gatewright`: builds, runs and measures IoT gateways.
//!
//! Each verb is a file in `verbs`; what they share is the [`Face`](face::Face) towards the user
//! and the [`Exit`](exit::Exit) codes.
#![forbid(unsafe_code)]

mod data_plane;
mod description;
mod exit;
mod face;
mod lines;
mod notify;
mod signals;
mod socket;
mod verbs;

use clap::{CommandFactory, FromArgMatches, Parser};
use exit::{Exit, Failure};
use face::Face;
use std::process::ExitCode;
use verbs::Verb;

/// Builds, runs and measures IoT gateways.
///
/// Frames, packets and messages come in on one side and leave on the other: forwarded, switched,
/// relayed or translated, at any layer, on one small Linux machine.
#[derive(Debug, Parser)]
#[command(name = "gatewright", version, max_term_width = 100, disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// Answer in JSON on standard output, in a stable format (`gatewright man`).
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

/// The command line with its help texts.
pub(crate) fn command() -> clap::Command {
    Cli::command().after_help(exit::table()).mut_subcommands(|verb| {
        let shape = verbs::shape(verb.get_name());
        let told = |shape: &str| format!("With --json: {shape}\n\n{}", exit::table());
        verb.after_help(told(shape)).mut_subcommands(|part| {
            let shape = shape_of_part(shape, part.get_name());
            part.after_help(told(shape))
        })
    })
}

/// The shape for the subcommand `name` in the shapes of a verb, `get, create: {…}; tree: {…}`; all
/// of them if `name` is not there.
fn shape_of_part<'a>(shapes: &'a str, name: &str) -> &'a str {
    let is_about = |shape: &&str| {
        let (names, _) = shape.split_once(": ").unwrap_or_default();
        names.split(", ").any(|it| it.split(' ').next() == Some(name))
    };
    shapes.split("; ").find(is_about).unwrap_or(shapes)
}

fn main() -> ExitCode {
    if data_plane::is_meant() {
        return ExitCode::from(data_plane::run().code());
    }
    let cli =
        command().try_get_matches().and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches));
    match cli {
        Ok(Cli { json, verb }) => {
            let face = Face::of_process(json);
            let run = signals::survive_file_size().and_then(|()| verb.run(face));
            let exit = run.unwrap_or_else(|error| tell(face, &error));
            lines::settle();
            ExitCode::from(exit.code())
        }
        Err(error) => {
            // Help and version are asked for and go to standard output; only a broken pipe can
            // keep them from it, and then nobody is there to be told.
            let _ = error.print();
            ExitCode::from(if error.use_stderr() { Exit::Usage } else { Exit::Success }.code())
        }
    }
}

/// Prints why a verb failed, and returns its exit code.
fn tell(face: Face, error: &anyhow::Error) -> Exit {
    let broken_pipe = |cause: &(dyn std::error::Error + 'static)| {
        let error = cause.downcast_ref::<std::io::Error>();
        error.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    };
    if error.chain().any(broken_pipe) {
        return Exit::Success;
    }
    let exit = error.downcast_ref::<Failure>().map_or(Exit::Negative, |failure| failure.exit);
    face.failure(exit, &format!("{error:#}"));
    exit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_of_a_verb_means_the_same_before_and_behind_its_part() {
        command().debug_assert();
        let mut command = command();
        let mut met = 0;
        for verb in command.get_subcommands_mut() {
            for part in verb.get_subcommands() {
                for (long, argument) in
                    verb.get_arguments().filter_map(|it| Some((it.get_long()?, it)))
                {
                    let twice = part.get_arguments().any(|it| it.get_long() == Some(long));
                    let place = format!("{} {} --{long}", verb.get_name(), part.get_name());
                    assert!(argument.is_global_set() && !twice, "{place}");
                    met += 1;
                }
            }
        }
        assert!(met > 0, "no verb with parts has an option");
    }
}
