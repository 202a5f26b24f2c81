//! Alert rules: Prometheus' own judge takes them, and the tests beside them.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod trials;

use gatewright_testbed::Needs;
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// No machine gets Prometheus for this test (Debian's package `prometheus` has it).
const JUDGE: &str = "promtool";

fn main() {
    let tests: [(&str, fn()); 2] =
        [("the_rules_are_taken", taken), ("alerts_come_and_go_as_they_should", alerts)];
    trials::run(&Needs::new().program(JUDGE), tests)
}

fn rules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/prometheus")
}

fn promtool(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(JUDGE).args(arguments).current_dir(rules()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

fn taken() {
    let (ok, said) = promtool(&["check", "rules", "--lint-fatal", "gatewright.rules.yml"]);
    assert!(ok && said.contains("rules found"), "{said}");
    let example = "../../examples/ward/ward.rules.yml";
    let (ok, said) = promtool(&["check", "rules", "--lint-fatal", example]);
    assert!(ok && said.contains("3 rules found"), "{said}");
}

fn alerts() {
    let (ok, said) = promtool(&["test", "rules", "gatewright.test.yml"]);
    assert!(ok, "{said}");
}
