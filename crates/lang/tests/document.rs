//! What `docs/language.md` and its chapters say is what the compiler does.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_diagnostic::{SourceId, Sources};
use gatewright_lang::{CODES, compile, format};
use std::fs;
use std::path::{Path, PathBuf};

/// The index of the chapters.
fn index() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/language.md")
}

/// Where the links of a page lead that lead to files: file and heading.
fn links(page: &Path) -> Vec<(PathBuf, Option<String>)> {
    let text = fs::read_to_string(page).unwrap();
    let targets = text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap());
    let targets = targets.filter(|target| !target.contains("://"));
    let path = |file: &str| match file {
        "" => page.to_owned(),
        file => page.parent().unwrap().join(file),
    };
    targets
        .map(|target| match target.split_once('#') {
            Some((file, heading)) => (path(file), Some(heading.to_owned())),
            None => (path(target), None),
        })
        .collect()
}

/// The chapters, in the order of the index.
fn chapters() -> Vec<PathBuf> {
    links(&index()).into_iter().map(|(file, _)| file).collect()
}

/// All chapters as one text.
fn document() -> String {
    chapters().iter().map(|chapter| fs::read_to_string(chapter).unwrap()).collect()
}

/// A heading as links name it: small letters, hyphens for spaces, nothing else but digits.
fn anchor(heading: &str) -> String {
    let title = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = title.chars().filter(|of| of.is_alphanumeric() || *of == ' ' || *of == '-');
    kept.map(|of| if of == ' ' { '-' } else { of }).collect()
}

#[test]
fn the_index_has_every_chapter_and_no_link_is_dead() {
    let chapters = chapters();
    let folder = chapters[0].parent().unwrap();
    for file in fs::read_dir(folder).unwrap() {
        let file = file.unwrap().path();
        assert!(chapters.contains(&file), "{} is in no index", file.display());
    }
    for (number, chapter) in chapters.iter().enumerate() {
        let text = fs::read_to_string(chapter).unwrap();
        assert!(text.starts_with(&format!("# {}. ", number + 1)), "{}", chapter.display());
        for (file, heading) in links(chapter) {
            let there = fs::read_to_string(&file).unwrap_or_default();
            let has = |heading: &str| {
                there.lines().any(|line| line.starts_with('#') && anchor(line) == heading)
            };
            let found = heading.as_deref().map_or(!there.is_empty(), has);
            assert!(found, "{} leads to {} {heading:?}", chapter.display(), file.display());
        }
    }
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
