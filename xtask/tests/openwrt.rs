//! The recipe for OpenWrt, as far as it can be judged without OpenWrt's build system.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a test may fail loudly"
)]

use std::{fs, process::Command};
use xtask::root;

/// What the recipe installs of its own files is there, and a shell understands the script.
#[test]
fn the_recipe_has_what_it_installs() {
    let folder = root().join("packaging/openwrt");
    let recipe = fs::read_to_string(folder.join("Makefile")).unwrap();
    let files: Vec<&str> =
        recipe.split_whitespace().filter(|word| word.starts_with("./files/")).collect();
    assert_eq!(files, ["./files/gatewright.init"]);
    for file in files {
        let syntax = Command::new("sh").arg("-n").arg(folder.join(file)).status().unwrap();
        assert!(syntax.success(), "{file}");
    }
    let script = fs::read_to_string(folder.join("files/gatewright.init")).unwrap();
    for line in recipe.lines().filter(|line| line.contains("$(INSTALL_BIN) $(PKG_INSTALL_DIR)")) {
        let program = line.split_whitespace().nth(1).unwrap().rsplit('/').next().unwrap();
        assert!(script.contains(&format!("PROGRAM=/usr/bin/{program}\n")), "{program}");
    }
}
