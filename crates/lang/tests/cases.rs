//! The corpus: one file a case.
//!
//! In `cases/reject`, `//~ GW0246` stands on the line where that finding must be (`//~v`: on the
//! next line, `//~^`: on the line before), and nowhere else may one be. Files in `cases/accept`
//! have no finding at all. Beside each stands what is rendered, or the program that comes of it
//! (`.expected`): set `UPDATE_EXPECTED` to write those anew, and read the difference.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_diagnostic::{SourceId, Sources};
use gatewright_lang::{Compiled, Import, compile_importing, listing};
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(name)
}

fn cases(name: &str) -> Vec<(String, String)> {
    let mut cases: Vec<(String, String)> = std::fs::read_dir(folder(name))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "gate"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect();
    cases.sort();
    cases
}

fn compiled(name: &str, text: &str) -> (Sources, Compiled) {
    let mut sources = Sources::of(format!("{name}.gate"), text);
    let compiled = compile_importing(&mut sources, SourceId::default(), |_, import| {
        match std::fs::read_to_string(folder("import").join(import)) {
            Ok(text) => Import::Found(import.to_owned(), text),
            Err(error) => Import::Missing {
                why: format!("looked for /programs/{import}: {error}"),
                others: ["ask.gate", "news.gate", "ping.gate"].map(str::to_owned).to_vec(),
            },
        }
    });
    (sources, compiled)
}

fn compiled_alone(name: &str, text: &str) -> Option<gatewright_lang::ir::Program> {
    compiled(name, text).1.program
}

/// The findings of a case, as a person sees them.
fn rendered(sources: &Sources, compiled: &Compiled) -> String {
    compiled.diagnostics.iter().map(|found| found.render(sources, false) + "\n\n").collect()
}

/// (line, code) of every `//~` in a text.
fn annotated(text: &str) -> Vec<(usize, String)> {
    let mut wanted = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some((_, note)) = line.split_once("//~") else { continue };
        let (line, code) = match note.trim_start().split_at_checked(1) {
            Some(("^", code)) => (index, code),
            Some(("v", code)) => (index + 2, code),
            _ => (index + 1, note),
        };
        wanted.push((line, code.trim().to_owned()));
    }
    wanted.sort();
    wanted
}

/// Compares with the file beside the case, or writes it.
fn beside(kind: &str, name: &str, actual: &str, failures: &mut Vec<String>) {
    let path = folder(kind).join(format!("{name}.expected"));
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::write(&path, actual).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    if expected != actual {
        failures.push(format!("{kind}/{name}: differs from its .expected\n{actual}"));
    }
}

#[test]
fn what_must_be_refused_is_refused_on_its_line_by_its_code() {
    let mut failures = Vec::new();
    let cases = cases("reject");
    assert!(cases.len() >= 50, "{} cases", cases.len());
    for (name, text) in cases {
        let (sources, compiled) = compiled(&name, &text);
        let mut found: Vec<(usize, String)> = (compiled.diagnostics.iter())
            .map(|found| {
                let source = sources.get(found.primary.span.source);
                (source.position(found.primary.span.start).line, found.code.to_string())
            })
            .collect();
        found.sort();
        let wanted = annotated(&text);
        assert!(!wanted.is_empty(), "{name} expects nothing");
        let report = rendered(&sources, &compiled);
        if found != wanted {
            failures.push(format!("reject/{name}: wanted {wanted:?}, found {found:?}\n{report}"));
        }
        beside("reject", &name, &report, &mut failures);
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn what_must_be_accepted_has_no_finding() {
    let mut failures = Vec::new();
    for (name, text) in cases("accept") {
        let (sources, compiled) = compiled(&name, &text);
        let report = rendered(&sources, &compiled);
        if !report.is_empty() {
            failures.push(format!("accept/{name}\n{report}"));
        }
        // What can only be imported becomes a program by the least of gateways.
        let program = compiled
            .program
            .or_else(|| compiled_alone(&name, &format!("{text}\ngateway least {{ }}\n")));
        let listing = program.map(|program| listing(&program)).unwrap_or_default();
        beside("accept", &name, &listing, &mut failures);
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}
