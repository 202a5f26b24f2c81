//! Replays what fuzzing kept: whatever the text, it is read or told what is wrong.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

use gatewright_diagnostic::Sources;
use gatewright_diagram::{c, draw, java, read, rust};

#[test]
fn the_fuzz_corpus_is_read_or_told() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/diagram");
    let files: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|f| f.unwrap().path()).collect();
    assert!(files.len() >= 4, "{files:?}");
    for file in files {
        let octets = std::fs::read(&file).unwrap();
        let text = String::from_utf8_lossy(&octets).into_owned();
        let document = read("Header", &text, None);
        let known = !document.layouts.is_empty() || !document.findings.is_empty();
        assert!(known, "{}: nothing is read and nothing told", file.display());
        let sources = Sources::of("header.txt", text);
        for finding in &document.findings {
            assert!(finding.render(&sources, false).contains(&finding.message));
        }
        for layout in &document.layouts {
            assert!(rust(layout, "support").contains(&layout.name));
            assert!(java(layout).contains(&layout.name));
            assert!(!draw(layout).is_empty());
        }
        assert!(c(&document.layouts).ends_with("#endif\n"));
    }
}
