//! Findings about the programs of a description.

use crate::{ProgramSettings, import, post, stack_findings, strangers};
use gatewright_config::{AttachMessages, Config, codes};
use gatewright_diagnostic::{Diagnostic, Source, Sources};
use gatewright_gateway::{beside, read_file, unusable_file};
use gatewright_lang::ir::Program;
use std::path::Path;

/// Compiles every program of the description `config` at `path`, whose texts it adds to `sources`, and
/// returns the findings, those about handlers at their messages included.
pub fn findings(path: &str, config: &Config, sources: &mut Sources) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    let mut programs = Vec::new();
    for program in &config.programs {
        let file = beside(path, &program.file);
        match read_file(Path::new(&file)) {
            Ok(text) => {
                let id = sources.add(file.clone(), text);
                let compiled = gatewright_lang::compile_importing(sources, id, import);
                findings.extend(compiled.diagnostics);
                let strange = strangers(compiled.program.as_ref(), &program.at);
                findings.extend(strange.map(|(name, message)| {
                    let span = program.place_of(&["at"], name);
                    Diagnostic::error(&codes::NOT_A_ROLE_ADDRESS, span, message)
                }));
                let settings = ProgramSettings::of(program);
                let wrong = compiled.program.iter().flat_map(|of| settings.findings(of));
                findings.extend(wrong.map(|(name, message)| {
                    let keys = ["set", "set_env", "set_file"];
                    let span = program.place_of(&keys, name.unwrap_or_default());
                    Diagnostic::error(&codes::NOT_A_SETTING, span, message)
                }));
                if let Some(of) = &compiled.program {
                    let over = stack_findings(of, program, config).into_iter();
                    findings.extend(over.map(|(span, message)| {
                        Diagnostic::error(&codes::NOT_OVER_STACK, span, message)
                    }));
                }
                programs.extend(compiled.program);
            }
            Err(error) => {
                let message = format!("cannot read {file}: {error}");
                let span = program.file.span;
                findings.push(Diagnostic::error(&codes::NO_PROGRAM, span, message));
            }
        }
    }
    findings.extend(strays(config, &programs));
    findings
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

/// Findings about attachments to unknown programs or handlers.
fn strays(config: &Config, programs: &[Program]) -> Vec<Diagnostic> {
    // Whether one that does not compile has them cannot be said.
    if programs.len() < config.programs.len() {
        return Vec::new();
    }
    let stray = |attach: &AttachMessages| {
        let name = &attach.at.value.program;
        let found = programs.iter().find(|of| of.name == *name);
        let message = match found {
            None => {
                let known = programs.iter().map(|of| of.name.as_str());
                let known = known.collect::<Vec<_>>().join(", ");
                format!("there is no program {name}: {known}")
            }
            Some(of) => post(0, attach).check(of).err()?.to_string(),
        };
        Some(Diagnostic::error(&codes::NO_MESSAGE_POSITION, attach.at.span, message))
    };
    config.message_attachments.iter().filter_map(stray).collect()
}
