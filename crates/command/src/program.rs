//! A program of the project: its name, its components, and what only it can check.

use crate::exit::{self, Exit, Failure, lacks_resource};
use crate::{face::Face, lines, signals, verbs::version::Version};
use anyhow::Result;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, error::ErrorKind};
use gatewright_config::{Config, Program};
use gatewright_diagnostic::{Code, Diagnostic, Source, Sources};
use gatewright_gateway::{Assembly, ServedPart, doctor::SystemCheck};
use std::{ffi::OsString, fmt, process::ExitCode, sync::Arc};

/// Compiles the gateway programs that the description at a path names, whose texts it adds to the
/// sources, and returns the findings; of a description that is refused, those about their texts.
pub type CheckPrograms = fn(&str, Option<&Config>, &[Program], &mut Sources) -> Vec<Diagnostic>;

/// A program that runs gateways, as its command line has it.
#[derive(Clone, Copy)]
pub struct CommandLine {
    /// The command's name.
    pub name: &'static str,
    /// The command line, with help texts.
    pub command: fn() -> clap::Command,
    /// The components of its gateways.
    pub assembly: Assembly,
    /// Makes the web interface of a gateway, if the program has one.
    pub web: Option<fn() -> Arc<dyn ServedPart>>,
    /// Checks gateway programs, if the program has a compiler.
    pub programs: Option<CheckPrograms>,
    /// Findings about the files that a description names and components of its gateway cannot load.
    pub files: fn(&Config, &Source) -> Vec<Diagnostic>,
    /// Further checks of the machine for a description.
    pub checks: fn(&Config) -> Vec<SystemCheck>,
    /// Codes of findings, beside those of descriptions.
    pub codes: &'static [&'static [&'static Code]],
}

impl fmt::Debug for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandLine").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The verbs of a program, by `verbs!`.
pub trait Verbs: Subcommand {
    /// Runs the verb.
    ///
    /// # Errors
    ///
    /// What kept the verb from its work; a [`Failure`] among the causes has the exit code.
    fn run(self, face: Face) -> Result<Exit>;

    /// The shape of a verb's answer with `--json`.
    fn shape(verb: &str) -> &'static str;
}

#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, disable_help_subcommand = true)]
struct Line<V: Subcommand> {
    /// Answer in JSON on standard output, in a stable format (`gatewright man`).
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: V,
}

/// The command line of the program `name` with its help texts; `about` says in a line what it is, and
/// `more` the rest.
pub fn command<V: Verbs>(
    name: &'static str,
    about: &'static str,
    more: &'static str,
) -> clap::Command {
    let line = Line::<V>::command()
        .name(name)
        .about(about.trim_end_matches('.'))
        .long_about(format!("{about}\n\n{more}"));
    line.after_help(exit::table()).mut_subcommands(|verb| {
        let shape = V::shape(verb.get_name());
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

/// Runs what this process is asked for: a verb, or the data plane of a gateway.
pub fn main<V: Verbs>(program: &'static CommandLine) -> ExitCode {
    if crate::data_plane::is_meant() {
        return ExitCode::from(crate::data_plane::run(program).code());
    }
    let line = (program.command)()
        .try_get_matches()
        .and_then(|mut matches| Line::<V>::from_arg_matches_mut(&mut matches));
    match line {
        Ok(Line { json, verb }) => {
            let face = Face::of_process(json, program);
            let run = signals::survive_file_size().and_then(|()| verb.run(face));
            let exit = run.unwrap_or_else(|error| tell(face, &error));
            lines::settle();
            ExitCode::from(exit.code())
        }
        Err(error) if error.use_stderr() && asks_for_json(std::env::args_os()) => {
            Face::of_process(true, program).failure(Exit::Usage, &in_words(&error));
            lines::settle();
            ExitCode::from(Exit::Usage.code())
        }
        Err(error)
            if error.kind() == ErrorKind::DisplayVersion && asks_for_json(std::env::args_os()) =>
        {
            let face = Face::of_process(true, program);
            let exit = (Version {}).run(face).unwrap_or_else(|error| tell(face, &error));
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

/// Whether a command line that is wrong asks for JSON all the same.
fn asks_for_json(arguments: impl Iterator<Item = OsString>) -> bool {
    arguments.skip(1).take_while(|it| it != "--").any(|it| it == "--json")
}

/// What is wrong with a command line, in one line and without its usage.
fn in_words(error: &clap::Error) -> String {
    let told = error.render().to_string();
    let told = told.strip_prefix("error: ").unwrap_or(&told);
    let told = told.split("\n\nUsage:").next().unwrap_or_default();
    told.split_whitespace().collect::<Vec<_>>().join(" ")
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
    let is_full = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<std::io::Error>().is_some_and(lacks_resource)
    };
    let exit = match error.downcast_ref::<Failure>() {
        Some(failure) => failure.exit,
        None if error.chain().any(is_full) => Exit::Unavailable,
        None => Exit::Negative,
    };
    face.failure(exit, &format!("{error:#}"));
    exit
}

/// The verbs of a program as one `Verb`, which is its [`Verbs`]: a line each with the name, the word,
/// and the module that has the type of that name, with its `run`, and `JSON`, the shape of its answer.
#[macro_export]
macro_rules! verbs {
    ($($name:ident = $word:literal in $($module:ident)::+,)*) => {
        /// The verb.
        #[derive(Debug, clap::Subcommand)]
        pub(crate) enum Verb {
            $(#[command(name = $word)] $name($($module)::+::$name),)*
        }

        impl $crate::Verbs for Verb {
            fn run(self, face: $crate::face::Face) -> anyhow::Result<$crate::exit::Exit> {
                match self { $(Self::$name(verb) => verb.run(face),)* }
            }

            fn shape(verb: &str) -> &'static str {
                match verb { $($word => $($module)::+::JSON,)* _ => "" }
            }
        }
    };
}
