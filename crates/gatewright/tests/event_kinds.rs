//! docs/events.md has each kind of event that the sources can log, and no other.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What stands before a kind: a level, or the name of a function or field that takes one.
const BEFORE: [&str; 7] =
    ["LogLevel::", "LogEvent::new(", "kind: ", "about(", "event(", "self.log(", "log_change("];

/// Characters between what stands before a kind and the kind.
const DISTANCE_MAX: usize = 160;

/// Files in which each word with a hyphen is a kind.
const OF_KINDS: [&str; 2] = ["bindings/src/alarms.rs", "planes/src/control/events.rs"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// All source files below a folder, without those of tests.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// A file without its unit tests and comments.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]").next().unwrap();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

fn is_kind(word: &str) -> bool {
    let parts = word.split('-');
    let is_word = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_lowercase());
    parts.clone().count() <= 4 && parts.clone().all(is_word)
}

/// String literals of a text, in order.
fn literals(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').skip(1).step_by(2)
}

/// The kinds in a file, where it logs events.
fn kinds(path: &Path, parts: &BTreeSet<String>) -> BTreeSet<String> {
    let code = code(path);
    let mut found = BTreeSet::new();
    if OF_KINDS.iter().any(|file| path.ends_with(file)) {
        let with_hyphen = literals(&code).filter(|word| word.contains('-') && is_kind(word));
        found.extend(with_hyphen.map(str::to_owned));
    }
    if !code.contains("LogLevel") && !code.contains("log_change") {
        return found;
    }
    for before in BEFORE {
        for (at, _) in code.match_indices(before) {
            let rest: String = code[at + before.len()..].chars().take(DISTANCE_MAX).collect();
            let ends = [";", "{", "}", "=>", ".with("];
            let end = ends.iter().filter_map(|end| rest.find(end)).min().unwrap_or(rest.len());
            let mut words = literals(&rest[..end]).filter(|word| is_kind(word));
            found.extend(words.find(|word| !parts.contains(*word)).map(str::to_owned));
        }
    }
    found
}

/// Words in a cell of the table, of those in `…`.
fn marked(cell: &str) -> BTreeSet<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_page_has_each_kind_of_the_sources_and_no_other() {
    let page = fs::read_to_string(root().join("docs/events.md")).unwrap();
    let (_, table) = page.split_once("## Kinds").unwrap();
    let (mut parts, mut told) = (BTreeSet::new(), BTreeSet::new());
    for row in table.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.split('|').collect();
        parts.extend(marked(cells[1]));
        told.extend(marked(cells[2]));
    }
    let mut files = Vec::new();
    for folder in fs::read_dir(root().join("crates")).unwrap() {
        let folder = folder.unwrap().path().join("src");
        if folder.is_dir() {
            sources(&folder, &mut files);
        }
    }
    let mut logged: BTreeMap<String, PathBuf> = BTreeMap::new();
    for file in files {
        for kind in kinds(&file, &parts) {
            logged.insert(kind, file.clone());
        }
    }
    let untold: Vec<_> = logged.iter().filter(|(kind, _)| !told.contains(*kind)).collect();
    assert!(untold.is_empty(), "not in docs/events.md: {untold:?}");
    let unknown: Vec<_> = told.iter().filter(|kind| !logged.contains_key(*kind)).collect();
    assert!(unknown.is_empty(), "docs/events.md has what no source logs: {unknown:?}");
}
