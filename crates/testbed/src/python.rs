//! Peers written in Python: they run in a virtual environment of their own, so that the user's
//! files are untouched.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The executable `program` of the package `requirement` (`NAME==VERSION`) from PyPI.
///
/// It is installed into a virtual environment at `folder` the first time. `None` without Python or
/// without a registry: skip the test by name then.
pub fn python_program(folder: &Path, requirement: &str, program: &str) -> Option<PathBuf> {
    let executable = folder.join("bin").join(program);
    if executable.exists() {
        return Some(executable);
    }
    let done = |command: &mut Command| {
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        status.status().is_ok_and(|status| status.success())
    };
    let made = done(Command::new("python3").args(["-m", "venv"]).arg(folder));
    let pip = folder.join("bin/pip");
    let installed = made && done(Command::new(pip).args(["install", "--quiet", requirement]));
    (installed && executable.exists()).then_some(executable)
}
