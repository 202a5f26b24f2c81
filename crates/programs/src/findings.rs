//! Findings about the programs of a description.

use crate::programs::both_named;
use crate::{ProgramSettings, import, post, stack_findings, strangers};
use gatewright_config::{self as config, AttachMessages, Config, codes};
use gatewright_diagnostic::{Diagnostic, Source, Sources};
use gatewright_gateway::{beside, read_file, unusable_file};
use gatewright_lang::ir::Program;
use std::path::Path;

/// Compiles `programs`, which the description at `path` names, adds their texts to `sources`, and
/// returns the findings, those about equal names and about handlers at their messages included. Where
/// the description is refused, and is no `config`, nothing is said of how it uses its programs.
pub fn findings(
    path: &str,
    config: Option<&Config>,
    programs: &[config::Program],
    sources: &mut Sources,
) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    let mut compiled_programs = Vec::new();
    // Of one without a file the description's own findings tell.
    for program in programs.iter().filter(|program| !program.file.value.is_empty()) {
        let file = beside(path, &program.file);
        match read_file(Path::new(&file)) {
            Ok(text) => {
                let id = sources.add(file.clone(), text);
                let compiled = gatewright_lang::compile_importing(sources, id, import);
                findings.extend(compiled.diagnostics);
                if let Some(config) = config {
                    findings.extend(uses(program, compiled.program.as_ref(), config));
                }
                if let Some(of) = compiled.program {
                    findings.extend(namesake(&compiled_programs, (program, &of)));
                    compiled_programs.push((program, of));
                }
            }
            Err(error) => {
                let message = format!("cannot read {file}: {error}");
                let span = program.file.span;
                let finding = Diagnostic::error(&codes::NO_PROGRAM, span, message);
                let help = "name a file that this user may read; its path begins at the folder of \
                            the description";
                findings.push(finding.help(help));
            }
        }
    }
    findings.extend(config.map(|config| strays(config, &compiled_programs)).unwrap_or_default());
    findings
}

/// Findings about how a description uses a program: addresses, parameters, sockets of the stack.
fn uses(program: &config::Program, compiled: Option<&Program>, config: &Config) -> Vec<Diagnostic> {
    let strange = strangers(compiled, &program.at).map(|(name, message)| {
        let span = program.place_of(&["at"], name);
        let help = "`gatewright gw graph FILE` names the roles of a program";
        Diagnostic::error(&codes::NOT_A_ROLE_ADDRESS, span, message).help(help)
    });
    let settings = ProgramSettings::of(program);
    let wrong = compiled.into_iter().flat_map(|of| settings.findings(of));
    let wrong = wrong.map(|(name, message)| {
        let keys = ["set", "set_env", "set_file"];
        let span = program.place_of(&keys, name.unwrap_or_default());
        let help =
            "set = [\"NAME=VALUE\"], with a parameter of the program and a value of its type";
        Diagnostic::error(&codes::NOT_A_SETTING, span, message).help(help)
    });
    let over = compiled.into_iter().flat_map(|of| stack_findings(of, program, config));
    let over = over.map(|(span, message)| {
        let help = "leave the role out of `stack`, and it has the kernel's sockets";
        Diagnostic::error(&codes::NOT_OVER_STACK, span, message).help(help)
    });
    strange.chain(wrong).chain(over).collect()
}

/// Findings about the files of parameters that the programs of `config` name in `source` and that a
/// start cannot read.
pub fn unusable_files(config: &Config, source: &Source) -> Vec<Diagnostic> {
    let of_program = |program: &gatewright_config::Program| {
        let settings = ProgramSettings::of(program);
        let unreadable = settings.unreadable().into_iter();
        let found = unreadable.map(|(name, why)| {
            let span = program.place_of(&["set_file"], name);
            unusable_file(source, span, &format!("[[program]] set_file {name}"), &why)
        });
        found.collect::<Vec<_>>()
    };
    config.programs.iter().flat_map(of_program).collect()
}

/// A finding about a program whose gateway has the name of an earlier one in another file.
fn namesake(
    earlier: &[(&config::Program, Program)],
    (second, of): (&config::Program, &Program),
) -> Option<Diagnostic> {
    let is_namesake = |(first, its): &&(&config::Program, Program)| {
        // One file twice is a finding of its own.
        its.name == of.name && first.file.value != second.file.value
    };
    let (first, its) = earlier.iter().find(is_namesake)?;
    let message = both_named((&first.file.value, &second.file.value), &of.name);
    let finding = Diagnostic::error(&codes::PROGRAM_NAME_TWICE, second.file.span, message);
    let finding = finding.label("the second").also(first.file.span, "the first");
    let finding = finding.also(of.span, "the name of the second").also(its.span, "of the first");
    Some(finding.help(format!("give one of them another name: `gateway {}_2`", of.name)))
}

/// Findings about attachments to unknown programs or handlers.
fn strays(config: &Config, programs: &[(&config::Program, Program)]) -> Vec<Diagnostic> {
    // Whether one that does not compile has them cannot be said.
    if programs.len() < config.programs.len() {
        return Vec::new();
    }
    let stray = |attach: &AttachMessages| {
        let name = &attach.at.value.program;
        let programs = || programs.iter().map(|(_, of)| of);
        let found = programs().find(|of| of.name == *name);
        let message = match found {
            None => {
                let known = programs().map(|of| of.name.as_str());
                let known = known.collect::<Vec<_>>().join(", ");
                format!("there is no program {name}: {known}")
            }
            Some(of) => post(0, attach).check(of).err()?.to_string(),
        };
        let help = "`gatewright gw graph FILE` shows the handlers of a program";
        let finding = Diagnostic::error(&codes::NO_MESSAGE_POSITION, attach.at.span, message);
        Some(finding.help(help))
    };
    config.message_attachments.iter().filter_map(stray).collect()
}
