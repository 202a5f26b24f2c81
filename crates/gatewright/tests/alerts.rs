//! Each metric that the alert rules and the dashboard name is one of ours.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod common;

use common::{Daemon, folder};
use gatewright_testbed::free_port;
use std::{collections::BTreeSet, fs, path::Path};

/// What follows a family's name in its samples.
const SUFFIXES: [&str; 4] = ["_total", "_bucket", "_sum", "_count"];

/// The families that a text names.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let ours = words.filter(|word| word.starts_with("gatewright_"));
    let family = |word: &str| {
        let family = SUFFIXES.iter().find_map(|suffix| word.strip_suffix(suffix));
        family.unwrap_or(word).to_owned()
    };
    ours.map(family).collect()
}

#[test]
fn each_metric_that_is_named_is_one_of_ours() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    // Families of what this gateway does not have are in the sources.
    let folders = ["crates/gateway/src/metrics.rs", "crates/gateway/src/metrics/handled.rs"];
    let mut known: BTreeSet<String> = folders.iter().flat_map(|path| named(&read(path))).collect();
    known.extend(named(&read("crates/gateway/src/metrics/attached.rs")));
    let [http, devices] = [free_port(), free_port()];
    let text = format!(
        "[cse]\nbase = \"cse-gw\"\nid = \"/gw\"\nhttp = \"127.0.0.1:{http}\"\n\
         [devices]\nlisten = \"127.0.0.1:{devices}\"\n"
    );
    let daemon = Daemon::start(folder("alerts"), &text);
    known.extend(named(&daemon.ask(&["status", "--metrics"]).out));
    let files = ["packaging/prometheus/gatewright.rules.yml", "packaging/grafana/gatewright.json"];
    for (file, least) in [(files[0], 6), (files[1], 6), ("examples/ward/ward.rules.yml", 3)] {
        let names = named(&read(file));
        assert!(names.len() >= least, "{file}: {names:?}");
        let unknown: Vec<_> = names.difference(&known).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
    serde_json::from_str::<serde_json::Value>(&read(files[1])).unwrap();
}
