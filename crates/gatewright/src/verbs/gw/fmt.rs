//! `gatewright gw fmt`: programs in their one layout.

use anyhow::Result;
use gatewright_command::description::read;
use gatewright_command::{
    exit::{Exit, Failure},
    face::Face,
};
use gatewright_diagnostic::{Finding, SourceId, Sources};
use serde::Serialize;
use std::fs;

/// Formats programs in the language's one layout.
///
/// Rewrites the named files, not those that they import, and prints the names of those that
/// changed. Standard input is written to standard output. A file with syntax errors stays
/// unchanged, with findings and exit code 78.
#[derive(Debug, clap::Args)]
pub(super) struct Fmt {
    /// Rewrite nothing: print the names of files that would change, and end with 1 if there are
    /// any.
    #[arg(long)]
    check: bool,
    /// Programs; `-`, alone, is standard input.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
}

#[derive(Serialize)]
struct FormatReport {
    ok: bool,
    check: bool,
    files: Vec<Laid>,
}

/// A file and what became of it, or would with `check`.
#[derive(Serialize)]
struct Laid {
    file: String,
    /// Whether it follows the grammar.
    ok: bool,
    changed: bool,
    text: Option<String>,
    findings: Vec<Finding>,
}

impl Fmt {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        let input = |file: &String| file == STANDARD_INPUT;
        if self.files.len() > 1 && self.files.iter().any(input) {
            let message = "standard input is laid out alone: `-` beside other files";
            return Err(Failure::new(Exit::Usage, message).into());
        }
        let check = self.check;
        let files: Result<Vec<_>, _> =
            self.files.into_iter().map(|file| lay(face, file, check)).collect();
        let files = files?;
        let readable = files.iter().all(|file| file.ok);
        let changes = files.iter().any(|file| file.changed);
        let answer = FormatReport { ok: readable && !(check && changes), check, files };
        face.answer(&answer, || match &*answer.files {
            [Laid { text: Some(text), .. }] if !check => text.clone(),
            files => {
                let changed = files.iter().filter(|file| file.changed);
                changed.map(|file| file.file.as_str()).collect::<Vec<_>>().join("\n")
            }
        })?;
        Ok(match (readable, answer.ok) {
            (false, _) => Exit::Configuration,
            (true, false) => Exit::Negative,
            (true, true) => Exit::Success,
        })
    }
}

/// Formats one file, and rewrites it if the text changed and `--check` is not given.
fn lay(face: Face, file: String, check: bool) -> Result<Laid, Failure> {
    let before = read(&file)?;
    match gatewright_lang::format(SourceId::default(), &before) {
        Ok(text) => {
            let changed = text != before;
            let input = file == STANDARD_INPUT;
            if changed && !check && !input {
                fs::write(&file, &text).map_err(|error| Failure::file(&file, &error))?;
            }
            Ok(Laid { file, ok: true, changed, text: input.then_some(text), findings: Vec::new() })
        }
        Err(found) => {
            let sources = Sources::of(file.as_str(), before);
            face.findings(&found, &sources);
            let findings = Face::data(&found, &sources);
            Ok(Laid { file, ok: false, changed: false, text: None, findings })
        }
    }
}

/// The file name for standard input.
const STANDARD_INPUT: &str = "-";
