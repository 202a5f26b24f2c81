//! The law of views over the examples, and over layouts that break it.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_diagnostic::{SourceId, Sources};
use gatewright_lang::compile;
use gatewright_translate::law::laws;
use std::fs;
use std::path::Path;
use std::sync::Arc;

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gateways")
}

#[test]
fn every_view_of_the_examples_reads_back_what_it_writes() {
    let mut tried = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|of| of != "gate") {
            continue;
        }
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap();
        let gateway = text.contains("\ngateway ");
        let text = if gateway { text } else { text + "\ngateway least { }\n" };
        let mut sources = Sources::of(&name, text);
        let compiled = compile(&mut sources, SourceId::default(), |_, import| {
            Some((import.to_owned(), fs::read_to_string(folder().join(import)).ok()?))
        });
        for law in laws(&Arc::new(compiled.program.unwrap())) {
            let broken = law.broken.map(|of| of.render(&sources, false)).unwrap_or_default();
            assert_eq!(broken, "", "{name}");
            assert!(law.messages > 0, "{name}: nothing of {} can be built", law.view);
            tried += law.messages;
        }
    }
    assert!(tried > 1_000, "{tried}");
}

#[test]
fn a_view_that_does_not_read_back_is_told_with_what_was_written() {
    // What the compiler cannot see: a table whose entries are more than it takes.
    let text = "
message m {
    part header = line, at most 80 octets { name: lower word; \":\"; skip blanks; value: rest }
    view v = {
        table of header by name, until empty line, at most 1 entries {
            \"A\" -> a: mandatory, at most 9 octets
            \"B\" -> b: mandatory, at most 9 octets
        }
    }
}
gateway g { }
";
    let mut sources = Sources::of("broken.gate", text);
    let compiled = compile(&mut sources, SourceId::default(), |_, _| None);
    let laws = laws(&Arc::new(compiled.program.unwrap()));
    let broken = laws[0].broken.as_ref().unwrap().render(&sources, false);
    assert!(broken.contains("GW0296") && broken.contains("longer than 1"), "{broken}");
}
