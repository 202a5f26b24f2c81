//! What `docs/language.md` says is what the compiler does.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_diagnostic::{SourceId, Sources};
use gatewright_lang::{CODES, compile, format};
use std::path::Path;

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/language.md");
    std::fs::read_to_string(path).unwrap()
}

/// The programs of the document, in order.
fn programs(document: &str) -> Vec<String> {
    document
        .split("```gate\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap().to_owned())
        .collect()
}

/// The first three programs are the tutorial's files; what imports finds them.
#[test]
fn every_program_of_the_document_compiles() {
    let document = document();
    let programs = programs(&document);
    assert!(programs.len() >= 5, "{} programs", programs.len());
    let files = [("oracle-messages.gate", &programs[0]), ("oracle.gate", &programs[1])];
    for (number, program) in programs.iter().enumerate() {
        let mut sources = Sources::of("document.gate", program.clone());
        let compiled = compile(&mut sources, SourceId::default(), |_, import| {
            let (name, text) = files.iter().find(|(name, _)| *name == import)?;
            Some(((*name).to_owned(), (*text).clone()))
        });
        let report: String =
            compiled.diagnostics.iter().map(|found| found.render(&sources, false)).collect();
        assert_eq!(report, "", "program {number}");
        assert_eq!(compiled.program.is_some(), program.contains("gateway "), "program {number}");
        assert_eq!(format(SourceId::default(), program).as_ref(), Ok(program));
    }
}

#[test]
fn every_code_is_in_the_document() {
    let document = document();
    for code in CODES {
        let row = format!("| {code} | {} |", code.title);
        assert!(document.contains(&row), "{row}");
    }
    let rows = document.lines().filter(|line| line.starts_with("| GW")).count();
    assert_eq!(rows, CODES.len());
}

#[test]
fn codes_are_ascending_and_explained() {
    for pair in CODES.windows(2) {
        assert!(pair[0].number < pair[1].number, "{} {}", pair[0], pair[1]);
    }
    for code in CODES {
        assert!((200..600).contains(&code.number), "{code}");
        assert!(code.explanation.len() > 20 && code.explanation.ends_with('.'), "{code}");
    }
}
