//! Every example gateway compiles without a finding.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_diagnostic::{SourceId, Sources};
use gatewright_lang::{Compiled, compile};
use std::path::{Path, PathBuf};

/// The folder of the example gateways.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gateways")
}

fn compiled(path: &Path) -> (Sources, Compiled) {
    let text = std::fs::read_to_string(path).unwrap();
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let mut sources = Sources::of(name, text);
    let compiled = compile(&mut sources, SourceId::default(), |_, import| {
        let text = std::fs::read_to_string(folder().join(import)).ok()?;
        Some((import.to_owned(), text))
    });
    (sources, compiled)
}

#[test]
fn every_example_compiles_without_a_finding() {
    let mut gateways = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "gate") {
            continue;
        }
        let (sources, compiled) = compiled(&path);
        let report: String =
            compiled.diagnostics.iter().map(|found| found.render(&sources, false) + "\n").collect();
        assert_eq!(report, "", "{}", path.display());
        gateways += usize::from(compiled.program.is_some());
    }
    assert!(gateways >= 4, "only {gateways} gateways");
}
