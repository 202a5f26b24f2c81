//! Peers written in Python: they run in a virtual environment of their own, so that the user's
//! files are untouched.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The executable `program` of the package `requirement` (`NAME==VERSION`) from PyPI.
///
/// It is installed into a virtual environment at `folder` the first time. `None` without Python or
/// without a registry: skip the test by name then.
pub fn python_program(folder: &Path, requirement: &str, program: &str) -> Option<PathBuf> {
    let python = python_with(folder, requirement)?;
    Some(python.with_file_name(program)).filter(|program| program.exists())
}

/// A Python that has the package `requirement` (`NAME==VERSION`) from PyPI.
///
/// It is installed into a virtual environment at `folder` the first time; other processes that ask
/// for the same wait meanwhile. `None` without Python or without a registry: skip the test by name
/// then.
pub fn python_with(folder: &Path, requirement: &str) -> Option<PathBuf> {
    fs::create_dir_all(folder.parent()?).ok()?;
    let lock = File::create(folder.with_extension("lock")).ok()?;
    lock.lock().ok()?;
    let (python, ready) = (folder.join("bin/python3"), folder.join("ready"));
    if ready.exists() {
        return Some(python);
    }
    let done = |command: &mut Command| {
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        status.status().is_ok_and(|status| status.success())
    };
    let made = done(Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder));
    let pip = ["-m", "pip", "install", "--quiet", requirement];
    let installed = made && done(Command::new(&python).args(pip));
    (installed && fs::write(ready, "").is_ok()).then_some(python)
}
