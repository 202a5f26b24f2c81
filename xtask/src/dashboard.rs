//! The page that a gateway serves: `dashboard/` has its sources, `crates/web/page` what they build to.
//!
//! The built files are committed, so that a build of the gateway needs no Node.

use crate::{root, step::CommandStep, summary::Summary};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Folder of the built files, from the repository's root.
pub const PAGE: &str = "crates/web/page";

/// Maximum octets of the page's JavaScript, compressed by gzip.
pub const SCRIPT_OCTETS_MAX: usize = 60_000;

/// Builds the page from its sources.
pub fn build() -> bool {
    install() && vite("dashboard", &root().join(PAGE))
}

/// Opens the committed page in a browser, over a recorded gateway.
pub fn smoke(summary: &mut Summary) -> bool {
    match missing(&["node", "chromium"]) {
        Some(program) => skip(summary, "dashboard", &program),
        None => CommandStep::program("dashboard", "node", &["dashboard/test/smoke.js"]).run(),
    }
}

/// Checks the sources, that the committed page is what they build to, and every view in a browser.
pub fn interop(summary: &mut Summary) -> bool {
    if let Some(program) = missing(&["node", "npm", "chromium"]) {
        return skip(summary, "dashboard", &program);
    }
    let built = root().join("target/dashboard");
    install()
        && run("dashboard types", "check", &[])
        && vite("dashboard build", &built)
        && same(&built)
        && run("dashboard tests", "test", &[])
}

fn install() -> bool {
    let arguments = ["ci", "--prefix", "dashboard", "--no-audit", "--no-fund"];
    CommandStep::program("dashboard packages", "npm", &arguments)
        .environment("PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD", "1")
        .run()
}

fn vite(name: &str, to: &Path) -> bool {
    run(name, "build", &[("GATEWRIGHT_PAGE", &to.to_string_lossy())])
}

/// Runs a script of `dashboard/package.json`.
fn run(name: &str, script: &str, environment: &[(&str, &str)]) -> bool {
    let step = CommandStep::program(name, "npm", &["run", "--prefix", "dashboard", script]);
    let set = |step: CommandStep, (name, value): &(&str, &str)| step.environment(name, value);
    environment.iter().fold(step, set).run()
}

/// Whether the committed page has the files of `built`, octet by octet.
fn same(built: &Path) -> bool {
    let read = |folder: &Path| files(folder, folder);
    match (read(&root().join(PAGE)), read(built)) {
        (Ok(committed), Ok(built)) if committed == built => true,
        (Ok(_), Ok(_)) => {
            eprintln!("dashboard: {PAGE} is not what the sources build to: run `make dashboard`");
            false
        }
        (Err(error), _) | (_, Err(error)) => {
            eprintln!("dashboard: {error}");
            false
        }
    }
}

/// The files below a folder with their octets, in order; without those that are compressed, which
/// depend on the compressor's version.
fn files(top: &Path, folder: &Path) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(top, &path)?);
        } else if path.extension().is_none_or(|extension| extension != "gz") {
            let octets = fs::read(&path)?;
            found.push((path.strip_prefix(top).unwrap_or(&path).to_owned(), octets));
        }
    }
    found.sort();
    Ok(found)
}

/// The first of some programs that is not installed.
fn missing(programs: &[&str]) -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = |name: &str| std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    programs.iter().find(|name| !there(name)).map(|&name| name.to_owned())
}

fn skip(summary: &mut Summary, step: &str, program: &str) -> bool {
    summary.skip(step, &format!("needs the program {program}"));
    true
}
