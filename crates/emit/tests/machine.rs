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
mod happenings;
mod peers;

use build::{TARGETS, Target};
use gatewright_diagnostic::{SourceId, Sources};
use gatewright_lang::compile;
use gatewright_lang::ir::{Program, StepAction};
use happenings::Happenings;
use libtest_mimic::{Arguments, Failed, Trial};
use peers::native::{Counted, Native};
use peers::{Gateway, play};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Random runs of each gateway, and how much happens in each.
const RUNS: u64 = 100;
const EVENTS: usize = 60;

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
    let sanitized = TARGETS[1];
    let events = GATEWAYS.into_iter().map(|name| {
        let missing = !sanitized.is_installed();
        Trial::test(format!("events::{name}"), move || agreed(name, &sanitized))
            .with_ignored_flag(missing)
    });
    libtest_mimic::run(&Arguments::from_args(), all.map(trial).chain(events).collect()).exit();
}

/// Whatever happens, in whatever order: the generated gateway does what the native one does.
fn agreed(name: &str, target: &Target) -> Result<(), Failed> {
    let directory =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("machine").join(format!("{name}_events"));
    let (program, sources) = program(name);
    let driver = include_str!("driver/machine.c");
    let mut gateway = Gateway::start(target.build(&directory, (&program, &sources), driver)?)?;
    for seed in 0..RUNS {
        let mut native = Native::new(&program);
        let mut generated = Counted::new(&mut gateway)?;
        let mut happenings = Happenings::new(&program, seed);
        let mut history = String::new();
        for _ in 0..EVENTS {
            let event = happenings.next();
            let _ = writeln!(history, "  {event:?}");
            let wanted = native.tell(&event);
            let found = generated.tell(&event)?;
            if in_order(&wanted) != in_order(&found) {
                let why = format!("seed {seed}\n{history}wanted {wanted:#?}\nfound {found:#?}");
                return Err(why.into());
            }
            happenings.learn(&wanted);
        }
    }
    gateway.finish()
}

/// Lines of one connection in their order; which connection comes first does not matter.
fn in_order(told: &[String]) -> Vec<String> {
    let key = |line: &&String| line.split(' ').nth(1).map(str::to_owned);
    let mut told: Vec<&String> = told.iter().collect();
    told.sort_by_key(key);
    // That a connection is over is no other thing if it is said twice.
    told.dedup_by(|one, other| one == other && one.starts_with("close"));
    told.into_iter().cloned().collect()
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
