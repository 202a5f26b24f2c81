//! Generated programs compiled by the Java compiler, all in one run, and what runs them.

use super::{place, succeed};
use gatewright_diagnostic::Sources;
use gatewright_emit::{JAVA_RUNTIME, java};
use gatewright_lang::ir::Program;
use libtest_mimic::Failed;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Flags of a process that lives for seconds.
pub const SHORT_LIVED: [&str; 3] = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"];

/// Compiles every program with the runtime and the driver, strictest warnings on; the folder of the
/// classes.
pub fn classes(folder: &Path, programs: &[(Arc<Program>, Sources)]) -> Result<PathBuf, Failed> {
    let _ = fs::remove_dir_all(folder);
    let mut files = Vec::new();
    for (name, text) in JAVA_RUNTIME {
        files.push(written(folder, name, text)?);
    }
    let driver = include_str!("../driver/Driver.java");
    files.push(written(folder, "gatewright/runtime/Driver.java", driver)?);
    for (program, sources) in programs {
        for file in java(program, &|span| Some(place(sources, span)))? {
            if Path::new(&file.name).extension().is_some_and(|of| of == "java") {
                files.push(written(folder, &file.name, &file.text)?);
            }
        }
    }
    let classes = folder.join("classes");
    let mut compiler = Command::new("javac");
    compiler.args(SHORT_LIVED.map(|flag| format!("-J{flag}")));
    compiler.args(["--release", "17", "-Xlint:all", "-Werror", "-d"]).arg(&classes).args(files);
    succeed(&mut compiler)?;
    Ok(classes)
}

fn written(folder: &Path, name: &str, text: &str) -> Result<PathBuf, Failed> {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap())?;
    fs::write(&path, text)?;
    Ok(path)
}

/// What runs the driver.
pub fn driver(classes: &Path) -> Command {
    let mut command = Command::new("java");
    command.args(SHORT_LIVED).arg("-cp").arg(classes).arg("gatewright.runtime.Driver");
    command
}
