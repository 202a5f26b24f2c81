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
            let text = text.split("#[cfg(test)]").next().unwrap().to_owned();
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

/// The families of metrics: name, unit, help; sorted.
pub(crate) fn families() -> Vec<[String; 3]> {
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
            families.insert(name, [unit, help]);
        }
    }
    families.into_iter().map(|(name, [unit, help])| [name, unit, help]).collect()
}

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
