//! `gatewright mesh key`: a node's key, an authority's, and what admits the node.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::{env, fs};

fn key(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatewright"));
    command.current_dir(folder).args(["mesh", "key"]).args(arguments).output().unwrap()
}

fn json(folder: &Path, arguments: &[&str]) -> Value {
    let output = key(folder, &[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// New keys differ, only their owner reads them, and none is replaced; a certificate is read back from
/// the node's file.
#[test]
fn an_authority_admits_a_node() {
    let folder = env::temp_dir().join(format!("gatewright-mesh-key-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let [node, authority] = ["node.key", "authority.key"].map(|file| json(&folder, &["new", file]));
    assert_ne!(node["key"], authority["key"]);
    assert!(node["certificate"].is_null());
    let file = folder.join("node.key");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let again = key(&folder, &["new", "node.key"]);
    assert_eq!(again.status.code(), Some(1), "{again:?}");

    let public = node["key"].as_str().unwrap();
    let admitted = key(&folder, &["admit", "authority.key", public]);
    let line = String::from_utf8(admitted.stdout).unwrap();
    let digits = line.trim().strip_prefix("certificate ").unwrap();
    fs::write(&file, fs::read_to_string(&file).unwrap() + &line).unwrap();
    let shown = json(&folder, &["show", "node.key"]);
    assert_eq!((&shown["key"], shown["certificate"].as_str()), (&node["key"], Some(digits)));
    assert_eq!(shown["node"], node["node"], "the address follows from the key alone");

    assert_eq!(key(&folder, &["admit", "authority.key", "me"]).status.code(), Some(2));
    fs::write(folder.join("broken"), "secret").unwrap();
    let broken = key(&folder, &["show", "broken"]);
    let told = String::from_utf8(broken.stderr).unwrap();
    assert!(broken.status.code() == Some(78) && told.contains("line 1"), "{told}");
    assert!(!told.contains("secret"), "{told}");
    fs::remove_dir_all(&folder).unwrap();
}
