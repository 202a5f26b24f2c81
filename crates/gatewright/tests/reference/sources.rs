//! What the sources say of metrics, of reasons to drop, and of counters.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Source files below a folder with their texts, tests left out, in order.
fn sources(folder: &Path, into: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            sources(&path, into);
        } else if path.extension().is_some_and(|it| it == "rs") && name != "tests.rs" {
            let text = fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned();
            let place = path.strip_prefix(crates()).unwrap().to_string_lossy().replace("src/", "");
            into.insert(place.replacen('/', ", ", 1), text);
        }
    }
}

/// The source files of all crates, by crate and file.
fn all() -> BTreeMap<String, String> {
    let mut into = BTreeMap::new();
    for entry in fs::read_dir(crates()).unwrap() {
        sources(&entry.unwrap().path().join("src"), &mut into);
    }
    into
}

/// The literal that a text begins with, behind white space and a comma, and what follows.
fn literal(text: &str) -> Option<(String, &str)> {
    let text = text.trim_start_matches([' ', '\n', ',']).strip_prefix('"')?;
    let (value, rest) = text.split_once('"')?;
    // A literal goes on in the next line, without its indentation.
    let lines: Vec<&str> = value.split("\\\n").collect();
    let joined =
        lines.iter().enumerate().map(|(n, line)| if n == 0 { line } else { line.trim_start() });
    Some((joined.collect(), rest))
}

/// A family of metrics, without the suffix of its samples.
pub(crate) struct MetricFamily {
    pub(crate) name: String,
    pub(crate) kind: &'static str,
    pub(crate) unit: String,
    pub(crate) help: String,
}

/// The families of metrics, in the order of their names: those of the page's own constants, and
/// those of the parts (`parts.txt`).
pub(crate) fn families() -> Vec<MetricFamily> {
    let mut into = BTreeMap::new();
    sources(&crates().join("gateway/src/metrics"), &mut into);
    let top = crates().join("gateway/src/metrics.rs");
    into.insert("metrics".to_owned(), fs::read_to_string(top).unwrap());
    let mut families = BTreeMap::new();
    for text in into.values() {
        for (at, _) in text.match_indices("\"gatewright_") {
            let Some((name, rest)) = literal(&text[at..]) else { continue };
            let Some((unit, rest)) = literal(rest) else { continue };
            let Some((help, _)) = literal(rest) else { continue };
            let constant = text[..at].rsplit_once("const ").unwrap().1.split(':').next().unwrap();
            let is_gauge = text.contains(&format!("gauge({constant},"))
                || text.contains("gauge(family,") && text.contains(&format!("({constant}, Some("))
                || text.contains("gauge(family,")
                    && text.contains(&format!("({constant}, reading"));
            let kind = match constant {
                "SOJOURN" => "histogram",
                _ if is_gauge => "gauge",
                _ => "counter",
            };
            families.insert(name.clone(), MetricFamily { name, kind, unit, help });
        }
    }
    let parts = fs::read_to_string(crates().join("gateway/src/metrics/parts.txt")).unwrap();
    assert!(parts.lines().is_sorted(), "parts.txt is not in the order of its names");
    for line in parts.lines() {
        let [name, kind, help] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let kind = ["counter", "gauge", "histogram"].into_iter().find(|one| *one == kind).unwrap();
        assert!(help.ends_with('.') && !help.starts_with("Of "), "no sentence of its own: {line}");
        let (name, help) = (format!("gatewright_{name}"), help.to_owned());
        let unit = if name.ends_with("_seconds") { "seconds" } else { "" }.to_owned();
        let twice = families.insert(name.clone(), MetricFamily { name, kind, unit, help });
        assert!(twice.is_none(), "twice: {line}");
    }
    families.into_values().collect()
}

/// Where a file's counters are metrics: the beginning of their names, without `gatewright_`.
pub(crate) const METRICS: [(&str, &str); 9] = [
    ("bindings, devices.rs", "devices_"),
    ("gateway, tcp_proxy/mod.rs", "tcp_proxy_"),
    ("mesh, edge.rs", "mesh_"),
    ("onem2m, limits.rs", "cse_"),
    ("onem2m, coap/mod.rs", "cse_"),
    ("store, writer.rs", "cse_store_"),
    ("web, counters.rs", "web_"),
    ("web, session.rs", "web_"),
    ("web, stream.rs", "web_"),
];

/// The text of the comment lines that end before `lines[at]`, attributes between them left out.
fn comment(lines: &[&str], at: usize) -> String {
    let above = lines[..at].iter().rev().map(|line| line.trim());
    let above = above.skip_while(|line| line.starts_with("#["));
    let mut text: Vec<&str> = above.map_while(|line| line.strip_prefix("///")).collect();
    text.reverse();
    // Links of Rust's documentation lead nowhere here.
    let text = text.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
    let mut plain = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("[`") {
        let Some((name, after)) = after.split_once("`]") else { break };
        plain.extend([before, "`", name, "`"]);
        rest = match after.strip_prefix('(').and_then(|target| target.split_once(')')) {
            Some((_, after)) => after,
            None => after,
        };
    }
    plain.push_str(rest);
    plain.replace('|', "\\|")
}

/// Reasons to drop a packet: name, place, meaning; sorted.
pub(crate) fn reasons() -> Vec<[String; 3]> {
    let mut reasons = Vec::new();
    for (place, text) in all() {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.contains("const ")) {
            let Some((_, name)) = line.split_once("Reason = Reason(\"") else { continue };
            let name = name.split('"').next().unwrap().to_owned();
            reasons.push([name, place.clone(), comment(&lines, at)]);
        }
    }
    reasons.sort();
    reasons
}

/// Crates whose counters no gateway shows.
const NOT_SHOWN: [&str; 3] = ["sim", "lab", "tables"];

/// The prefix of the counters that a declaration of a type begins: `struct Counters {`, or the first
/// line of `counters!`, `struct Counters, "prefix_";`.
fn begins(line: &str) -> Option<&str> {
    let (_, name) = line.split_once("struct ")?;
    if name.ends_with("Counters {") || name.contains("Counters<") && name.ends_with('{') {
        return Some("");
    }
    name.split_once("Counters, \"")?.1.strip_suffix("\";")
}

/// Fields of types whose names end in `Counters`, with their comments, by place.
pub(crate) fn counters() -> Vec<(String, Vec<[String; 2]>)> {
    let mut tables = Vec::new();
    for (place, text) in all() {
        if NOT_SHOWN.iter().any(|name| place.starts_with(&format!("{name},"))) {
            continue;
        }
        let lines: Vec<&str> = text.lines().collect();
        let mut rows = Vec::new();
        let mut inside = None;
        for (at, line) in lines.iter().enumerate() {
            let line = line.trim();
            if line.starts_with("//") || line.starts_with('#') {
                continue;
            }
            if let Some(prefix) = begins(line) {
                inside = Some(prefix);
            } else if line == "}" {
                inside = None;
            } else if let Some(prefix) = inside {
                let name = line.trim_start_matches("pub(crate) ").trim_start_matches("pub(super) ");
                let name = name.trim_start_matches("pub ").split([':', ',']).next().unwrap();
                let text = comment(&lines, at);
                let is_field = name.chars().all(|it| it.is_ascii_lowercase() || it == '_');
                if is_field && !name.is_empty() && !text.is_empty() {
                    rows.push([format!("{prefix}{name}"), text]);
                }
            }
        }
        if !rows.is_empty() {
            tables.push((place, rows));
        }
    }
    tables
}
