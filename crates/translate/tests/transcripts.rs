//! The `test` blocks of every example gateway, with every cut of what their peers send.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_diagnostic::{SourceId, Sources};
use gatewright_lang::compile;
use gatewright_lang::ir::{Program, RoleId, StepAction, Transport};
use gatewright_translate::transcript::{Cut, reset, run};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where programs with tests are: the examples, and what tries the machine's corners.
fn folders() -> [PathBuf; 2] {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    [here.join("../../examples/gateways"), here.join("tests/programs")]
}

/// Every gateway of them.
fn programs() -> Vec<(String, Arc<Program>)> {
    let mut programs = Vec::new();
    for folder in folders() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "gate") {
                programs.extend(program(&folder, &path));
            }
        }
    }
    programs.sort_by(|one, other| one.0.cmp(&other.0));
    programs
}

/// A gateway with its name; `None` for what is only imported.
fn program(folder: &Path, path: &Path) -> Option<(String, Arc<Program>)> {
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let mut sources = Sources::of(name.clone(), std::fs::read_to_string(path).unwrap());
    let compiled = compile(&mut sources, SourceId::default(), |_, import| {
        Some((import.to_owned(), std::fs::read_to_string(folder.join(import)).ok()?))
    });
    let found: String =
        compiled.diagnostics.iter().map(|found| found.render(&sources, false) + "\n").collect();
    assert_eq!(found, "", "{name}");
    compiled.program.map(|program| (name, Arc::new(program)))
}

#[test]
fn every_test_of_every_example_passes() {
    let mut tests = 0;
    for (name, program) in programs() {
        for test in &program.tests {
            let outcome = run(&program, test, Cut::Whole);
            let failed = outcome.failed.map(|failed| format!("{failed:#?}")).unwrap_or_default();
            assert_eq!(failed, "", "{name}: {}", test.name);
            tests += 1;
        }
    }
    assert!(tests >= 40, "only {tests} tests");
}

#[test]
fn every_split_of_what_peers_send_gives_the_same() {
    for (name, program) in programs() {
        for test in &program.tests {
            let outcome = run(&program, test, Cut::Octets);
            assert_eq!(outcome.failed, None, "{name}: {}, octet by octet", test.name);
            for (step, about) in test.steps.iter().enumerate() {
                let StepAction::Sends { role, octets } = &about.action else { continue };
                // A datagram is never cut.
                if program.role(*role).unwrap().transport == Transport::Udp {
                    continue;
                }
                for octets in 1..octets.len() {
                    let outcome = run(&program, test, Cut::At { step, octets });
                    assert_eq!(outcome.failed, None, "{name}: {}, {step} at {octets}", test.name);
                }
            }
        }
    }
}

#[test]
fn a_reset_in_any_state_leaves_nothing_behind() {
    for (name, program) in programs() {
        for test in &program.tests {
            for steps in 0..=test.steps.len() {
                for role in 0..program.roles.len() {
                    let left = reset(&program, test, steps, RoleId::new(role));
                    assert_eq!(left, [], "{name}: {}, role {role} at {steps}", test.name);
                }
            }
        }
    }
}

/// A meter whose frames have a CRC.
const METER: &str = r#"
message frame {
    view reading = { checked by crc16_ccitt { value: u16 } }
}
protocol frames = udp, sync unicast {
    message frame
    connections at most 4
    request reading { otherwise -> echo }
    response reading
    malformed -> ignore
    failed    -> ignore
    full      -> ignore
}
gateway meter {
    role house = frames server at "127.0.0.1:7000"
    on echo(request) { return frame.reading(value: request.value) }
}
"#;

/// The finding of a test of the meter.
fn finding(steps: &str) -> String {
    let text = format!("{METER}\ntest \"it\" {{\n{steps}\n}}\n");
    let mut sources = Sources::of("meter.gate", text);
    let compiled = compile(&mut sources, SourceId::default(), |_, _| None);
    let program = Arc::new(compiled.program.unwrap());
    let failed = run(&program, &program.tests[0], Cut::Whole).failed.unwrap();
    failed.diagnostic("it").render(&sources, false)
}

/// The CRC of `12 34` is `0e c9` (CRC-16/IBM-3740).
#[test]
fn a_finding_says_which_check_is_wrong_and_what_it_should_be() {
    let sent_wrong =
        finding("    house sends x\"12 34 0e c8\"\n    house sees reading(value: 4660)");
    let wanted = "the octets of its crc16_ccitt are 0e c8, where 0e c9 is computed";
    assert!(sent_wrong.contains(wanted), "{sent_wrong}");
    assert!(sent_wrong.contains("checked by crc16_ccitt"), "{sent_wrong}");
    assert!(
        sent_wrong.contains("should see one `frame.reading`, but sees nothing"),
        "{sent_wrong}"
    );
    let value = finding("    house sends x\"12 34 0e c9\"\n    house sees reading(value: 4661)");
    assert!(value.contains("with value: 4661, but sees value: 4660"), "{value}");
}
