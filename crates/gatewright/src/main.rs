//! `gatewright`: builds, runs and measures IoT gateways.
//!
//! Each verb is a file: those of every gateway in the crate `command`, the others in `verbs`.
#![forbid(unsafe_code)]

mod verbs;

use gatewright_bindings::services;
use gatewright_command::CommandLine;
use gatewright_config::Config;
use gatewright_diagnostic::{Code, Diagnostic, Source};
use gatewright_gateway::{Assembly, unusable_file_at};
use gatewright_web::WebPart;
use std::{process::ExitCode, sync::Arc};
use verbs::Verb;

const NAME: &str = "gatewright";

static PROGRAM: CommandLine = CommandLine {
    name: NAME,
    command,
    assembly: Assembly {
        services: Some(services::component),
        programs: Some(gatewright_programs::component),
        web: true,
    },
    web: Some(|| Arc::new(WebPart::default())),
    programs: Some(gatewright_programs::findings),
    files: unusable_files,
    checks: verbs::web::checks,
    codes: CODES,
};

/// Findings about the files that the components of this program load.
fn unusable_files(config: &Config, source: &Source) -> Vec<Diagnostic> {
    let keys = services::unusable_files(config).into_iter();
    let keys = keys.chain(gatewright_web::unusable_files(config));
    let found = keys.map(|(key, why)| unusable_file_at(source, &key, &why));
    found.chain(gatewright_programs::unusable_files(config, source)).collect()
}

/// Codes of findings in diagrams and gateway programs.
static CODES: &[&[&Code]] = &[
    gatewright_diagram::codes::ALL,
    gatewright_lang::CODES,
    gatewright_translate::transcript::CODES,
    gatewright_translate::law::CODES,
];

/// The command line with its help texts.
fn command() -> clap::Command {
    gatewright_command::command::<Verb>(
        NAME,
        "Builds, runs and measures IoT gateways.",
        "Frames, packets and messages come in on one side and leave on the other: forwarded, \
         switched, relayed or translated, at any layer, on one small Linux machine.",
    )
}

fn main() -> ExitCode {
    gatewright_command::main::<Verb>(&PROGRAM)
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

    #[test]
    fn no_code_is_given_twice() {
        let mut codes = [&[gatewright_config::CODES], CODES].concat().concat();
        codes.sort_by_key(|code| code.number);
        for pair in codes.windows(2) {
            assert!(pair[0].number < pair[1].number, "{} twice", pair[0]);
        }
        assert!(codes.len() > 100, "{} codes", codes.len());
    }
}
