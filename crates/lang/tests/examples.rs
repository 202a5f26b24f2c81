//! Every example gateway compiles without a finding.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_diagnostic::{SourceId, Sources};
use gatewright_lang::ir::Terminator;
use gatewright_lang::{Compiled, compile, graph, listing};
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

/// The relay's program and its graph, as a person reads them; set `UPDATE_EXPECTED` to write anew.
#[test]
fn the_relay_as_a_listing_and_as_a_graph() {
    let (_, compiled) = compiled(&folder().join("smtp_relay.gate"));
    let program = compiled.program.unwrap();
    let texts = [("listing", listing(&program)), ("dot", graph(&program))];
    for (kind, text) in texts {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/relay").with_extension(kind);
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "{kind}");
    }
}

/// Every wait is drawn double; of the relay's `data` handler two are exchanges, one is the body.
#[test]
fn a_graph_draws_each_suspension_double() {
    let (_, compiled) = compiled(&folder().join("smtp_relay.gate"));
    let program = compiled.program.unwrap();
    let suspensions = (program.handlers.iter().flat_map(|handler| &handler.blocks))
        .filter(|block| block.terminator.suspends())
        .count();
    assert_eq!(graph(&program).matches("peripheries=2").count(), suspensions);
    let data = program.handlers.iter().find(|handler| handler.name == "inside.data").unwrap();
    let kind = |wanted: fn(&Terminator) -> bool| {
        data.blocks.iter().filter(|block| wanted(&block.terminator)).count()
    };
    assert_eq!(kind(|of| matches!(of, Terminator::Send { .. })), 2);
    assert_eq!(kind(|of| matches!(of, Terminator::Receive { .. })), 1);
}

/// What a session of the relay may hold is what its parts hold.
#[test]
fn the_bound_of_a_session_is_the_sum_of_its_parts() {
    for name in ["smtp_relay", "smtp_to_http", "http_to_smtp", "coap_to_modbus"] {
        let (_, compiled) = compiled(&folder().join(name).with_extension("gate"));
        let bounds = compiled.program.unwrap().bounds;
        let sum: u64 = bounds.lines.iter().map(|line| line.octets).sum();
        assert_eq!(bounds.session_octets, sum, "{name}");
        assert!(sum < 256 * 1_024, "{name}: {sum}");
    }
}
