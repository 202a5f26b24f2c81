//! The committed page is small, complete, and loads nothing from elsewhere.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may fail loudly"
)]

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use xtask::dashboard::{PAGE, SCRIPT_OCTETS_MAX};
use xtask::root;

fn assets(extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(PAGE).join("assets")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|own| own == extension)).collect()
}

#[test]
fn the_script_is_small() {
    let scripts = assets("js");
    assert!(!scripts.is_empty(), "there is no script");
    let output = Command::new("gzip").arg("-9c").args(&scripts).output().expect("gzip runs");
    assert!(output.status.success());
    let octets = output.stdout.len();
    assert!(octets <= SCRIPT_OCTETS_MAX, "{octets} octets; at most {SCRIPT_OCTETS_MAX}");
}

/// Browsers take the compressed ones.
#[test]
fn compressed_files_are_those_beside_them() {
    let mut compressed = assets("gz");
    compressed.push(root().join(PAGE).join("index.html.gz"));
    assert!(compressed.len() >= 3, "{compressed:?}");
    for path in compressed {
        let output = Command::new("gzip").arg("-dc").arg(&path).output().expect("gzip runs");
        assert_eq!(output.stdout, fs::read(path.with_extension("")).unwrap(), "{path:?}");
    }
}

/// The page works without the Internet and under a policy of `default-src 'self'`.
#[test]
fn the_page_names_its_own_files_only() {
    let page = fs::read_to_string(root().join(PAGE).join("index.html")).unwrap();
    let named: Vec<&str> = ["src=\"", "href=\""]
        .iter()
        .flat_map(|attribute| page.split(attribute).skip(1))
        .filter_map(|rest| rest.split('"').next())
        .collect();
    assert!(named.len() >= 3, "{named:?}");
    for name in named {
        let file = name.strip_prefix("/assets/").unwrap_or_else(|| panic!("{name} is elsewhere"));
        assert!(root().join(PAGE).join("assets").join(file).is_file(), "{name} is missing");
    }
    for inline in ["style=\"", "<style", "onclick", "javascript:"] {
        assert!(!page.contains(inline), "{inline} in the page");
    }
    assert_eq!(page.matches("<script").count(), page.matches("<script type=\"module\"").count());
}

/// The lock of the packages names no registry: each machine takes its own.
#[test]
fn the_lock_names_no_registry() {
    let lock = fs::read_to_string(root().join("dashboard/package-lock.json")).unwrap();
    let elsewhere = |line: &&str| {
        line.trim_start().starts_with("\"resolved\"")
            && !line.contains("\"https://registry.npmjs.org/")
    };
    let found: Vec<&str> = lock.lines().filter(elsewhere).collect();
    assert!(found.is_empty(), "{found:?}");
    assert!(lock.matches("\"integrity\"").count() > 40, "the lock has no hashes");
}
