//! Each metric that a ward shows, and that the alert rules and the dashboard name, is in the manual
//! with its type and its sentence.
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
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

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

/// The rows of the manual's page of metrics: type and sentence, by name.
fn metrics(page: &str) -> BTreeMap<String, (String, String)> {
    let rows = page.lines().filter(|line| line.starts_with("| `gatewright_"));
    let row = |line: &str| {
        let cells: Vec<_> = line.trim_matches('|').splitn(4, " | ").map(str::trim).collect();
        let [name, kind, _, help] = cells[..] else { panic!("{line}") };
        (name.trim_matches('`').to_owned(), (kind.to_owned(), help.to_owned()))
    };
    rows.map(row).collect()
}

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap()
}

#[test]
fn each_metric_that_rules_and_pages_name_is_in_the_manual() {
    let known = metrics(&read("docs/reference/metrics.md"));
    assert!(known.len() > 400, "{}", known.len());
    let files = ["packaging/prometheus/gatewright.rules.yml", "packaging/grafana/gatewright.json"];
    for (file, least) in [(files[0], 6), (files[1], 6), ("examples/ward/ward.rules.yml", 3)] {
        let names = named(&read(file));
        assert!(names.len() >= least, "{file}: {names:?}");
        let unknown: Vec<_> = names.iter().filter(|name| !known.contains_key(*name)).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
    serde_json::from_str::<serde_json::Value>(&read(files[1])).unwrap();
}

/// Whoever reads a name on the page of a ward finds it in the manual, and its sentence on the page.
#[test]
fn each_metric_of_a_running_ward_is_in_the_manual() {
    let known = metrics(&read("docs/reference/metrics.md"));
    let [http, devices, above, web, proxy] = [(); 5].map(|()| free_port());
    let text = format!(
        "[cse]\nbase = \"cse-gw\"\nid = \"/gw\"\nhttp = \"127.0.0.1:{http}\"\n\
         [cse.registrar]\nid = \"/in\"\nbase = \"in\"\nurl = \"http://127.0.0.1:{above}\"\n\
         [devices]\nlisten = \"127.0.0.1:{devices}\"\n[web]\nlisten = \"127.0.0.1:{web}\"\n\
         [tcp_proxy.one]\nlisten = \"127.0.0.1:{proxy}\"\n\
         forward = {{ address = \"127.0.0.1\", port = {http} }}\n"
    );
    let daemon = Daemon::start(folder("alerts"), &text);
    let page = daemon.ask(&["status", "--metrics"]).out;
    let mut met = BTreeSet::new();
    for line in page.lines() {
        let Some((what, rest)) = line.strip_prefix("# ").and_then(|line| line.split_once(' '))
        else {
            continue;
        };
        let (name, told) = rest.split_once(' ').unwrap();
        let (kind, help) =
            known.get(name).unwrap_or_else(|| panic!("the manual has no {name}: {line}"));
        match what {
            "TYPE" => assert_eq!(told, kind, "{name}"),
            "HELP" => assert_eq!(told, help, "{name}"),
            _ => {}
        }
        met.insert(name);
    }
    assert!(met.contains("gatewright_cse_registered") && met.len() > 150, "{met:?}");
}
