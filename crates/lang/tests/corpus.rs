//! Replays what fuzzing kept: whatever the text, it is compiled or told what is wrong.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

use gatewright_diagnostic::{SourceId, Sources};
use gatewright_lang::compile;

#[test]
fn the_fuzz_corpus_is_compiled_or_told() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/lang");
    let files: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|f| f.unwrap().path()).collect();
    assert!(files.len() >= 5, "{files:?}");
    for file in files {
        let octets = std::fs::read(&file).unwrap();
        let mut sources = Sources::of("x.gate", String::from_utf8_lossy(&octets));
        let compiled = compile(&mut sources, SourceId::default(), |_, _| None);
        for finding in &compiled.diagnostics {
            let picture = finding.render(&sources, false);
            let first = finding.message.lines().next().unwrap_or_default();
            assert!(picture.contains(first), "{}: {picture}", file.display());
        }
    }
}
