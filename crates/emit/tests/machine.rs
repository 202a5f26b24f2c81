//! Generated gateways do what the `test` blocks beside them say, however the octets are cut, in
//! virtual time and without sockets.
//!
//! A compiler or emulator that is not installed is a skipped test, by name.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub,
    reason = "a test may fail loudly"
)]

mod build;
mod peers;

use build::{TARGETS, Target};
use gatewright_diagnostic::{SourceId, Sources};
use gatewright_lang::compile;
use gatewright_lang::ir::{Program, StepAction};
use libtest_mimic::{Arguments, Failed, Trial};
use peers::{Gateway, play};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The examples, and programs that try the machine's corners.
const GATEWAYS: [&str; 8] = [
    "smtp_relay",
    "smtp_to_http",
    "http_to_smtp",
    "coap_to_modbus",
    "modbus_to_mqtt",
    "finder",
    "lines_gateway",
    "pipes",
];

fn main() {
    let trial = |(name, target): (&'static str, Target)| {
        let missing = !target.is_installed();
        let title = format!("{}::{name}", target.name);
        Trial::test(title, move || run(name, &target)).with_ignored_flag(missing)
    };
    let all = TARGETS.into_iter().flat_map(|target| GATEWAYS.map(|name| (name, target)));
    libtest_mimic::run(&Arguments::from_args(), all.map(trial).collect()).exit();
}

/// An example with further tests behind its own.
fn program(name: &str) -> (Arc<Program>, Sources) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let corners = here.join("../translate/tests/programs");
    let examples = here.join("../../examples/gateways");
    let file = format!("{name}.gate");
    let folder = if corners.join(&file).is_file() { corners } else { examples };
    let more = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let text = read(folder.join(&file)) + &read(more.join(&file));
    let mut sources = Sources::of(file, text);
    let compiled = compile(&mut sources, SourceId::default(), |_, import| {
        Some((import.to_owned(), std::fs::read_to_string(folder.join(import)).ok()?))
    });
    let found: String =
        compiled.diagnostics.iter().map(|found| found.render(&sources, false)).collect();
    (Arc::new(compiled.program.unwrap_or_else(|| panic!("{found}"))), sources)
}

fn run(name: &str, target: &Target) -> Result<(), Failed> {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("machine").join(name);
    let (program, sources) = program(name);
    let driver = include_str!("driver/machine.c");
    let mut gateway = Gateway::start(target.build(&directory, (&program, &sources), driver)?)?;
    if program.tests.is_empty() {
        return Err("no test block".into());
    }
    // Under an emulator fewer cuts do: its byte order and word size are what is tried.
    let pieces: &[usize] = if target.emulator.is_empty() { &[0, 1, 3] } else { &[0, 1] };
    for test in &program.tests {
        let longest = test.steps.iter().map(|step| match &step.action {
            StepAction::Sends { octets, .. } => octets.len(),
            _ => 0,
        });
        let cuts = if target.emulator.is_empty() { longest.max().unwrap_or(0) } else { 0 };
        let plans = pieces.iter().map(|size| (*size, 0)).chain((1..cuts).map(|cut| (0, cut)));
        for (size, cut) in plans {
            play(&mut gateway, &program, test, (size, cut)).map_err(|why| {
                format!(
                    "{}, pieces of {size}, cut at {cut}: {}",
                    test.name,
                    why.message().unwrap_or_default()
                )
            })?;
        }
    }
    gateway.finish()
}
