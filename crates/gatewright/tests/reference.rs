//! The manual's reference (`docs/reference`) is what the sources say: keys, verbs, answers, codes,
//! metrics, counters. Set `UPDATE_EXPECTED` to write it anew, and read the difference; `cargo xtask
//! manual` does so.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod common;
#[path = "reference/keys.rs"]
mod keys;
#[path = "reference/sources.rs"]
mod sources;

use common::gatewright;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference")
}

/// Compares a page with its file, or writes it.
#[track_caller]
fn is_current(name: &str, title: &str, intro: &str, body: &str) {
    let written = "Written by `cargo xtask manual` from the sources; not to be edited by hand.";
    let page = format!("# {title}\n\n{intro}\n\n{written}\n\n{}\n", body.trim_end());
    let file = docs().join(format!("{name}.md"));
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        return fs::write(file, page).unwrap();
    }
    let is_same = fs::read_to_string(&file).is_ok_and(|there| there == page);
    assert!(is_same, "{} is not what the sources say: run `cargo xtask manual`", file.display());
}

#[test]
fn keys_are_current() {
    let schema = gatewright(&["schema"]).json();
    let body = keys::page(&schema);
    assert!(body.contains("## `[mesh]`") && body.contains("| `trust` |"), "{body}");
    let intro = "Every table and key of a description, as `gatewright schema` has them for editors. `NAME` \
                 is a name of your choice. Rules between values are checked by `gatewright check`.";
    is_current("keys", "Keys of a description", intro, &body);
}

/// What `--help` prints of a verb.
fn printed(words: &[&str]) -> String {
    gatewright(&[words, &["--help"]].concat()).out.trim_end().to_owned()
}

/// The text of a verb's help without what all verbs have.
fn help(words: &[&str]) -> (String, String) {
    let said = printed(words);
    let (said, _) = said.split_once("\nExit codes:").unwrap_or((&said, ""));
    let (text, shape) = said.split_once("\nWith --json: ").unwrap_or((said, ""));
    (text.trim_end().to_owned(), shape.trim_end().to_owned())
}

/// The verbs that a help lists.
fn verbs(help: &str) -> Vec<String> {
    let Some((_, list)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    let list = list.split("\n\n").next().unwrap();
    let named = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let named = named.map(|line| line.split_whitespace().next().unwrap().to_owned());
    named.filter(|name| name != "help").collect()
}

#[test]
fn verbs_and_answers_are_current() {
    let whole = help(&[]).0;
    let (mut list, mut answers) =
        ("| verb | what it does |\n|---|---|\n".to_owned(), String::new());
    let all = verbs(&whole);
    assert!(all.len() > 25, "{all:?}");
    for verb in &all {
        let (text, shape) = help(&[verb]);
        let first = text.split("\n\n").next().unwrap().replace('\n', " ");
        writeln!(list, "| [`{verb}`](verbs/{verb}.md) | {first} |").unwrap();
        let mut body = format!("```text\n{}\n```\n\n", printed(&[verb]));
        for part in verbs(&text) {
            let text = printed(&[verb, &part]);
            write!(body, "## gatewright {verb} {part}\n\n```text\n{text}\n```\n\n").unwrap();
        }
        let intro = format!("As `gatewright {verb} --help` prints it ([all verbs](../verbs.md)).");
        is_current(&format!("verbs/{verb}"), &format!("gatewright {verb}"), &intro, &body);
        if !shape.is_empty() {
            let shape = shape.replace('\n', " ");
            write!(answers, "## gatewright {verb}\n\n```text\n{}\n```\n\n", folded(&shape))
                .unwrap();
        }
    }
    let codes = gatewright(&["--help"]).out;
    let codes = codes.split_once("\nExit codes:\n").unwrap().1.trim_end();
    write!(list, "\n## Exit codes\n\n```text\n{codes}\n```\n").unwrap();
    let intro = "Every verb, with a page of its options. `gatewright man VERB` is the same as a manual page.";
    is_current("verbs", "Verbs", intro, &list);
    let intro = "The shape of each verb's answer with `--json`: objects in braces, lists in brackets, names \
                 of members. The description's own schema is `gatewright schema`, the API's \
                 `/api/v1/openapi.json` of a [web interface](../web.md). An error of any verb, also a \
                 wrong command line, is `{error: {exit, message}}` with the [exit \
                 code](verbs.md#exit-codes).";
    is_current("answers", "Answers in JSON", intro, &answers);
}

/// A text in lines of at most 110 characters.
fn folded(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().unwrap();
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + word.chars().count() < 110 {
            write!(last, " {word}").unwrap();
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.join("\n")
}

#[test]
fn codes_are_current() {
    let answer = gatewright(&["explain", "--json"]).json();
    let mut body = "| code | finding | what it means |\n|---|---|---|\n".to_owned();
    for code in answer["codes"].as_array().unwrap() {
        let cell =
            |member: &str| code[member].as_str().unwrap().replace('|', "\\|").replace('\n', " ");
        let [number, title, explanation] = ["code", "title", "explanation"].map(cell);
        writeln!(body, "| {number} | {title} | {explanation} |").unwrap();
    }
    let intro = "What each code of a finding means: its cause and, where it helps, how to write it. \
                 `gatewright explain CODE` prints the same.";
    is_current("codes", "Codes of findings", intro, &body);
}

#[test]
fn metrics_are_current() {
    let mut body = "| metric | type | unit | what it is |\n|---|---|---|---|\n".to_owned();
    let families = sources::families();
    assert!(families.len() > 400, "{} families", families.len());
    for sources::MetricFamily { name, kind, unit, help } in families {
        writeln!(body, "| `{name}` | {kind} | {unit} | {help} |").unwrap();
    }
    let intro = "Every family of the page that `[control] metrics` and the web interface serve, in \
                 OpenMetrics, by name. The samples of a counter have `_total` behind the name, those of \
                 a histogram `_bucket`, `_sum` and `_count`: look up `gatewright_cse_requests_total` \
                 here as `gatewright_cse_requests`. A family is on the page of a gateway that runs its \
                 part: `cse`, `devices`, `handlers`, `mesh`, `programs`, `report_forwarder`, \
                 `tcp_proxy`, `udp_gateways`, `web`. The last column is the family's `HELP` there. \
                 [Counters](counters.md) has the reasons to drop that labels name.";
    is_current("metrics", "Metrics", intro, &body);
}

/// A new counter that is a metric has its sentence.
#[test]
fn each_counter_of_a_part_is_a_metric_with_a_sentence() {
    // Fields that are shown under names of their own.
    const OTHERWISE: [&str; 2] = ["tcp_proxy_open", "web_endings"];
    let (families, tables) = (sources::families(), sources::counters());
    for (file, prefix) in sources::METRICS {
        let (_, rows) = tables.iter().find(|(place, _)| place == file).expect(file);
        for [counter, _] in rows {
            let name = format!("{prefix}{counter}");
            let is_known = families.iter().any(|one| one.name == format!("gatewright_{name}"));
            let is_known = is_known || OTHERWISE.contains(&name.as_str());
            assert!(is_known, "crates/gateway/src/metrics/parts.txt has no line of {name}");
        }
    }
}

#[test]
fn counters_are_current() {
    let mut body =
        "## Reasons to drop a packet\n\n| reason | crate, file | what it means |\n|---|---|---|\n"
            .to_owned();
    let reasons = sources::reasons();
    assert!(reasons.len() > 80, "{} reasons", reasons.len());
    for [reason, place, text] in reasons {
        writeln!(body, "| `{reason}` | {place} | {text} |").unwrap();
    }
    let tables = sources::counters();
    let all: usize = tables.iter().map(|(_, rows)| rows.len()).sum();
    assert!(all > 100, "{all} counters");
    for (place, rows) in tables {
        write!(body, "\n## {place}\n\n").unwrap();
        if let Some((_, prefix)) = sources::METRICS.iter().find(|(file, _)| *file == place) {
            write!(body, "[Metrics](metrics.md): `gatewright_{prefix}` before each name.\n\n")
                .unwrap();
        }
        body.push_str("| counter | what it counts |\n|---|---|\n");
        for [name, text] in rows {
            writeln!(body, "| `{name}` | {text} |").unwrap();
        }
    }
    let intro = "Why packets are dropped, by the names that `gatewright status` shows (layers, links, \
                 workers), and what the parts of a gateway count, by the file that counts.";
    is_current("counters", "Counters", intro, &body);
}
