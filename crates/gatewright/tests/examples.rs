//! Descriptions of the examples: each is checked as it is, and starts.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod common;

use common::{folder, gatewright};
use gatewright_testbed::free_port;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Folders of the examples that are a description.
fn described() -> Vec<PathBuf> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let folders = fs::read_dir(examples).unwrap().map(|entry| entry.unwrap().path());
    folders.filter(|folder| folder.join("gateway.toml").is_file()).collect()
}

/// A text with another port, that nobody has, for each of this machine's.
fn at_free_ports(text: &str) -> String {
    const HERE: &str = "\"127.0.0.1:";
    let mut parts = text.split(HERE);
    let begin = parts.next().unwrap_or_default().to_owned();
    let moved = parts.map(|part| {
        let (_, rest) = part.split_once('"').unwrap();
        format!("{HERE}{}\"{rest}", free_port())
    });
    std::iter::once(begin).chain(moved).collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &to);
        } else if path.extension().is_some_and(|it| it == "toml") {
            fs::write(to, at_free_ports(&fs::read_to_string(path).unwrap())).unwrap();
        }
    }
}

#[test]
fn descriptions_of_the_examples_are_right_and_start() {
    let all = described();
    assert!(!all.is_empty());
    for example in all {
        let said = gatewright(&["check", example.to_str().unwrap()]);
        assert_eq!(said.code, 0, "{}", said.err);
        assert!(!said.err.contains("warning"), "{}", said.err);
        let place = folder("examples").join(example.file_name().unwrap());
        copy(&example, &place);
        let at = place.to_str().unwrap();
        let added = gatewright(&["web", "token", "add", at, "--name", "ops", "--role", "operator"]);
        assert!(added.code == 0 && added.out.starts_with("gwt_"), "{}", added.err);
        let socket = place.join("socket");
        let socket = socket.to_str().unwrap();
        let said = gatewright(&["run", at, "--stop-after", "1", "--socket", socket]);
        assert_eq!(said.code, 0, "{}", said.err);
        assert!(said.err.contains("web: http://127.0.0.1:"), "{}", said.err);
    }
}
