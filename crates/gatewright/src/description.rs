//! Reading a description with everything that it names.

use crate::exit::{Exit, Failure};
use gatewright_config::{Config, codes, parse};
use gatewright_diagnostic::{Diagnostic, SourceId, Sources, has_errors};
use gatewright_lang::ir::Program;
use gatewright_planes::not_in_this_version;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// A description that was read, and what is wrong with it and its programs.
#[derive(Debug)]
pub(crate) struct Description {
    /// The description's text and those of its programs.
    pub(crate) sources: Sources,
    /// What it says, if nothing refuses it.
    pub(crate) config: Option<Config>,
    /// The programs that it names, compiled, in its order; those that are refused are missing.
    pub(crate) programs: Vec<NamedProgram>,
    /// All findings.
    pub(crate) findings: Vec<Diagnostic>,
}

/// A program of a description.
#[derive(Debug)]
pub(crate) struct NamedProgram {
    /// Its file, as the description's own folder makes it.
    pub(crate) file: String,
    /// Where its roles are, instead of what it says.
    pub(crate) at: Vec<(String, String)>,
    /// What it means.
    pub(crate) program: Arc<Program>,
}

impl Description {
    /// Reads `path` (`-` is standard input) and compiles every program that it names.
    ///
    /// # Errors
    ///
    /// A [`Failure`] if the file itself cannot be read; everything else is a finding.
    pub(crate) fn load(path: &str) -> Result<Self, Failure> {
        let text = read(path)?;
        let mut sources = Sources::of(path, text);
        let parsed = parse(SourceId::default(), sources.get(SourceId::default()).text());
        let mut findings = parsed.diagnostics;
        let mut programs = Vec::new();
        for program in parsed.config.iter().flat_map(|config| &config.programs) {
            let file = beside(path, &program.file);
            match fs::read_to_string(&file) {
                Ok(text) => {
                    let id = sources.add(file.clone(), text);
                    let compiled = gatewright_lang::compile(&mut sources, id, import);
                    findings.extend(compiled.diagnostics);
                    let at = program.at.clone();
                    let strange = strangers(compiled.program.as_ref(), &at);
                    findings.extend(strange.map(|message| {
                        Diagnostic::error(&codes::NOT_A_ROLE_ADDRESS, program.file.span, message)
                    }));
                    programs.extend(compiled.program.map(|program| NamedProgram {
                        file,
                        at,
                        program: Arc::new(program),
                    }));
                }
                Err(error) => {
                    let message = format!("cannot read {file}: {error}");
                    let span = program.file.span;
                    findings.push(Diagnostic::error(&codes::NO_PROGRAM, span, message));
                }
            }
        }
        findings.extend(parsed.config.iter().flat_map(not_in_this_version));
        let config = parsed.config.filter(|_| !has_errors(&findings));
        Ok(Self { sources, config, programs, findings })
    }
}

/// What is said of addresses for roles that the program does not have.
fn strangers(program: Option<&Program>, at: &[(String, String)]) -> impl Iterator<Item = String> {
    let roles = program.map(|program| &program.roles);
    let strange = at.iter().filter(move |(name, _)| {
        roles.is_some_and(|roles| roles.iter().all(|role| role.name != *name))
    });
    strange.map(|(name, _)| format!("the program has no role `{name}`"))
}

/// The text of a file, or of standard input for `-`.
///
/// # Errors
///
/// A [`Failure`] that names the file.
pub(crate) fn read(path: &str) -> Result<String, Failure> {
    let octets = if path == "-" {
        let mut octets = Vec::new();
        std::io::stdin().read_to_end(&mut octets).map(|_| octets)
    } else {
        fs::read(path)
    };
    let octets = octets.map_err(|error| Failure::file(path, &error))?;
    String::from_utf8(octets).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::new(Exit::Configuration, format!("{path}: not UTF-8 from octet {at} on"))
    })
}

/// What the program `from` means by `use "path"`.
pub(crate) fn import(from: &str, path: &str) -> Option<(String, String)> {
    let file = beside(from, path);
    let text = fs::read_to_string(&file).ok()?;
    Some((file, text))
}

/// `path` as the text `from` means it: relative to its own folder.
fn beside(from: &str, path: &str) -> String {
    let folder = Path::new(from).parent().unwrap_or(Path::new(""));
    folder.join(path).to_string_lossy().into_owned()
}
