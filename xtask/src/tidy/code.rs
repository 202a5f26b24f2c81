//! Checks of Rust sources: unsafe code, dead files, snapshots, programs that tests start.

use super::File;
use crate::packages::{self, Package};
use std::collections::BTreeSet;

/// The crates that may open `unsafe` in single modules.
const UNSAFE: [&str; 6] = ["packet", "tables", "link", "xdp", "data", "planes"];

/// Outside the six crates that may, no crate can contain unsafe code, and nothing opens it.
pub fn unsafe_code(files: &[File]) -> Vec<String> {
    const OPENINGS: [&str; 2] =
        [concat!("allow(", "unsafe_code"), concat!("expect(", "unsafe_code")];
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.extension() == "rs") {
        let inside = file.path.strip_prefix("crates/").and_then(|path| path.split_once('/'));
        let Some((name, path)) = inside.filter(|(name, _)| !UNSAFE.contains(name)) else {
            continue;
        };
        let is_root = path == "src/lib.rs" || path == "src/main.rs";
        if is_root && !file.text.contains("#![forbid(unsafe_code)]") {
            findings.push(format!("{}: no `#![forbid(unsafe_code)]`", file.path));
        }
        for (number, line) in file.lines() {
            if OPENINGS.iter().any(|opening| line.contains(opening)) {
                findings.push(format!("{}:{number}: {name} must not open unsafe code", file.path));
            }
        }
    }
    findings
}

/// Every Rust file under a `src` folder is reached from its crate's root by `mod` or `include!`.
pub fn dead_files(files: &[File]) -> Vec<String> {
    let rust: Vec<&File> = files.iter().filter(|file| file.extension() == "rs").collect();
    let mut reached = BTreeSet::new();
    let mut queue: Vec<&File> = rust.iter().copied().filter(|file| is_root(file)).collect();
    while let Some(file) = queue.pop() {
        if reached.insert(file.path.as_str()) {
            let children = children(file);
            queue.extend(rust.iter().copied().filter(|other| children.contains(&other.path)));
        }
    }
    let dead = rust.iter().filter(|file| !reached.contains(file.path.as_str()));
    dead.map(|file| format!("{}: no `mod` leads here", file.path)).collect()
}

/// Whether a compilation, or a test's data, begins with the file.
fn is_root(file: &File) -> bool {
    let in_src = file.path.contains("/src/") && !file.path.contains("/tests/");
    let is_bin = file.folder().ends_with("/src/bin");
    let is_crate = matches!(file.path.rsplit_once("/src/"), Some((_, "lib.rs" | "main.rs")));
    !in_src || is_bin || is_crate
}

/// The paths that a file's `mod`, `#[path]` and `include!` lines may mean.
fn children(file: &File) -> BTreeSet<String> {
    let folder = file.folder();
    let stem = file.name().trim_end_matches(".rs");
    let below = format!("{folder}/{stem}");
    let mut paths = BTreeSet::new();
    for (_, line) in file.lines() {
        let line = line.trim();
        if let Some(name) = module(line) {
            let homes = if matches!(stem, "lib" | "main" | "mod") || file.path.contains("/bin/") {
                folder
            } else {
                &below
            };
            paths.insert(format!("{homes}/{name}.rs"));
            paths.insert(format!("{homes}/{name}/mod.rs"));
        } else if line.starts_with("#[path") || line.contains("include!(") {
            let quoted = line.split('"').nth(1).unwrap_or_default();
            paths.insert(normal(&format!("{folder}/{quoted}")));
        }
    }
    paths
}

fn module(line: &str) -> Option<&str> {
    let (before, name) = line.strip_suffix(';')?.rsplit_once(' ')?;
    let is_module = before == "mod" || before.starts_with("pub") && before.ends_with(" mod");
    is_module.then_some(name.strip_prefix("r#").unwrap_or(name))
}

/// The path without `.` and `..`.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Every snapshot has the test that makes it.
pub fn snapshots(files: &[File]) -> Vec<String> {
    let snapshots = files.iter().filter(|file| file.path.contains("/snapshots/"));
    let findings = snapshots.filter_map(|snapshot| {
        let finding = orphaned(files, snapshot)?;
        Some(format!("{}: {finding}", snapshot.path))
    });
    findings.collect()
}

fn orphaned(files: &[File], snapshot: &File) -> Option<String> {
    if snapshot.extension() != "snap" {
        return Some("not an accepted snapshot".to_owned());
    }
    let header = |key: &str| {
        let mut lines = snapshot.lines().take(10).filter_map(|(_, line)| line.strip_prefix(key));
        lines.next().map(|value| value.trim().trim_matches('"'))
    };
    let path = header("source:").unwrap_or_default();
    let Some(source) = files.iter().find(|file| file.path == path) else {
        return Some(format!("its source `{path}` is gone"));
    };
    if let Some(input) = header("input_file:") {
        let gone = !files.iter().any(|file| file.path == input);
        return gone.then(|| format!("its input `{input}` is gone"));
    }
    (!is_named(files, source, snapshot)).then(|| format!("no test in {path} names it"))
}

/// Whether the source has the snapshot's name, or its package an input file of that name.
fn is_named(files: &[File], source: &File, snapshot: &File) -> bool {
    let stem = snapshot.name().trim_end_matches(".snap");
    let name = stem.rsplit("__").next().unwrap_or(stem);
    let (plain, number) = name.rsplit_once('-').unwrap_or((name, ""));
    let name = if number.parse::<u32>().is_ok() { plain } else { name };
    let case = name.rsplit('@').next().unwrap_or(name);
    let package = source.path.split(['/']).take(2).collect::<Vec<_>>().join("/");
    let is_input = |file: &File| {
        let same = file.name() == case || file.name().split('.').next() == Some(case);
        same && file.extension() != "snap" && file.path.starts_with(&package)
    };
    source.text.contains(name) || files.iter().any(is_input)
}

/// Every program that a test or benchmark starts by name is on set-up's list.
pub fn test_programs(files: &[File], packages: &[Package<'_>]) -> Vec<String> {
    let is_test = |path: &str| path.contains("/tests/") || path.starts_with("bench/");
    programs(files, is_test, packages)
}

/// Every program that the verb `demo` starts by name is on the list of the demo's packages.
pub fn demo_programs(files: &[File], packages: &[Package<'_>]) -> Vec<String> {
    programs(files, |path| path.starts_with("crates/gatewright/src/verbs/demo"), packages)
}

/// Findings about programs that Rust files start by name and that no package of `packages` has.
fn programs(
    files: &[File],
    is_meant: impl Fn(&str) -> bool,
    packages: &[Package<'_>],
) -> Vec<String> {
    const STARTS: [&str; 3] = [".program(\"", "Command::new(\"", ".command(\""];
    let is_meant = |file: &&File| file.extension() == "rs" && is_meant(&file.path);
    let mut findings = Vec::new();
    for file in files.iter().filter(is_meant) {
        for (number, line) in file.lines() {
            let parts = STARTS.iter().flat_map(|start| line.split(start).skip(1));
            let programs = parts.filter_map(|part| part.split('"').next());
            // `no-such-program` is asked for because it is not there.
            let meant = programs.filter(|program| !program.starts_with("no-such-"));
            for program in meant.filter(|program| !packages::provides(packages, program)) {
                let path = &file.path;
                findings.push(format!("{path}:{number}: `{program}` is not set up"));
            }
        }
    }
    findings
}

/// Every fuzz target is declared and has a corpus, which a plain test replays.
pub fn fuzz_targets(files: &[File]) -> Vec<String> {
    let manifest = files.iter().find(|file| file.path == "fuzz/Cargo.toml");
    let targets = files.iter().filter(|file| file.folder() == "fuzz/fuzz_targets");
    let mut findings = Vec::new();
    for target in targets {
        let name = target.name().trim_end_matches(".rs");
        let corpus = format!("fuzz/corpus/{name}");
        // A crate replays the corpus of its own target; those of `fuzz/targets` are replayed as
        // their list says.
        let replays = |file: &File| {
            let own = file.path.contains("/tests/") && file.text.contains(&format!("{corpus}\""));
            let listed = file.path == "fuzz/targets/src/lib.rs"
                && file.text.contains(&format!("(\"{name}\", "));
            own || listed
        };
        let declared = |manifest: &File| manifest.text.contains(&format!("fuzz_targets/{name}.rs"));
        for (holds, what) in [
            (manifest.is_some_and(declared), "not in fuzz/Cargo.toml"),
            (files.iter().any(|file| file.folder() == corpus), "no corpus"),
            (files.iter().any(replays), "no test replays its corpus"),
        ] {
            if !holds {
                findings.push(format!("{}: {what}", target.path));
            }
        }
    }
    findings
}
