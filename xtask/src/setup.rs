//! `cargo xtask setup`: the Debian packages and Rust components that everything else uses.

use crate::packages::{self, Package};
use crate::step::CommandStep;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Installs what is missing and says whether everything is there now.
///
/// Without root, or where there is no apt, it prints the command instead and answers `false`;
/// tests that need what is missing are then skipped by name.
pub fn setup() -> bool {
    let components = components();
    match packages::parse(packages::LIST) {
        Ok(packages) => install_missing(&packages) && components,
        Err(problem) => {
            eprintln!("setup: packages.txt: {problem}");
            false
        }
    }
}

/// Installs what the demo needs, as [`setup`] does for everything.
pub fn setup_demo() -> bool {
    match packages::of_demo() {
        Ok(packages) => install_missing(&packages),
        Err(problem) => {
            eprintln!("setup: packages.txt: {problem}");
            false
        }
    }
}

/// Installs those of `packages` that are missing; as [`setup`], which has all but what one verb needs.
pub fn install_missing(packages: &[Package<'_>]) -> bool {
    let installed = installed();
    let missing: Vec<&Package<'_>> =
        packages.iter().filter(|package| !installed.contains(package.name)).collect();
    if missing.is_empty() {
        println!("== setup: all {} packages are installed", packages.len());
        return true;
    }
    println!("== setup: {} of {} packages are missing:", missing.len(), packages.len());
    for package in &missing {
        println!("   {:<24} {}", package.name, package.reason);
    }
    let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
    if !is_root() || !CommandStep::program("apt", "apt-get", &["--version"]).works() {
        println!("== setup: installing needs root and apt. Tests that need them are skipped. Run:");
        println!("   apt-get install --no-install-recommends {}", names.join(" "));
        return false;
    }
    install(&missing, &names)
}

fn install(missing: &[&Package<'_>], names: &[&str]) -> bool {
    // The lists of a fresh machine are empty; an update that fails leaves those that are there.
    CommandStep::program("setup", "apt-get", &["update", "-qq"]).run();
    let script = include_str!("install.sh");
    let mut arguments = vec!["-c", script, "setup"];
    arguments.extend(names);
    println!("== setup: apt-get install --no-install-recommends {}", names.join(" "));
    let mut shell = Command::new("sh");
    let shell = shell.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    let passed = shell.status().is_ok_and(|status| status.success());
    println!("== setup: {}", if passed { "installed" } else { "FAILED: see apt's words above" });
    for service in missing.iter().filter_map(|package| package.service) {
        disable(service);
    }
    passed
}

/// Keeps a daemon that we brought in from starting at the next boot.
fn disable(service: &str) {
    if Path::new("/run/systemd/system").exists() {
        CommandStep::program("setup", "systemctl", &["disable", "--quiet", service]).run();
    }
}

/// The names of the installed Debian packages; none where there is no dpkg.
fn installed() -> BTreeSet<String> {
    let format = "--showformat=${db:Status-Status} ${Package}\\n";
    let output = Command::new("dpkg-query").args(["--show", format]).output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines().filter_map(|line| line.strip_prefix("installed ")).map(str::to_owned).collect()
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    uids.and_then(|uids| uids.split_whitespace().nth(1)) == Some("0")
}

/// Sees that rustfmt and clippy are there: a minimal Rust comes without them.
fn components() -> bool {
    [("rustfmt", "fmt"), ("clippy", "clippy")].into_iter().fold(true, |all, (name, verb)| {
        let there = || CommandStep::cargo("setup", &[verb, "--version"]).works();
        all & (there()
            || (CommandStep::program("setup", "rustup", &["component", "add", name]).run()
                && there()))
    })
}
