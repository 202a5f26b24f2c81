//! Generated programs compiled by C compilers, and what runs them.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    dead_code,
    reason = "a test may fail loudly, and each test takes of this what it needs"
)]

pub mod java;

use gatewright_diagnostic::{Sources, Span};
use gatewright_emit::{C_RUNTIME, SourceLine, c};
use gatewright_lang::ir::Program;
use libtest_mimic::Failed;
use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// A compiler with its flags, and what runs its programs.
#[derive(Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    pub compiler: &'static str,
    pub flags: &'static [&'static str],
    pub emulator: &'static [&'static str],
}

pub const TARGETS: [Target; 4] = [
    Target { name: "c", compiler: "gcc", flags: &["-O2"], emulator: &[] },
    Target {
        name: "c_sanitized",
        compiler: "gcc",
        flags: &["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
        emulator: &[],
    },
    Target {
        name: "c_arm",
        compiler: "arm-linux-gnueabihf-gcc",
        flags: &["-O1"],
        emulator: &["qemu-arm", "-L", "/usr/arm-linux-gnueabihf"],
    },
    Target {
        name: "c_powerpc_big_endian",
        compiler: "powerpc-linux-gnu-gcc",
        flags: &["-O1"],
        emulator: &["qemu-ppc", "-L", "/usr/powerpc-linux-gnu"],
    },
];

impl Target {
    /// Whether what it needs is there.
    pub fn is_installed(&self) -> bool {
        is_there(self.compiler) && self.emulator.first().is_none_or(|emulator| is_there(emulator))
    }

    fn compiler(&self, directory: &Path) -> Command {
        let mut compiler = Command::new(self.compiler);
        compiler.args(["-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror"]).args(self.flags);
        compiler.current_dir(directory);
        compiler
    }

    /// The runtime's objects, compiled once for all programs of a test.
    fn runtime(&self, directory: &Path) -> Result<Vec<PathBuf>, Failed> {
        static BUILT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
        let mut built = BUILT.lock().unwrap();
        let sources = || C_RUNTIME.into_iter().filter(|(name, _)| is_source(name));
        if built.insert(directory.to_owned()) {
            fs::create_dir_all(directory)?;
            for (name, text) in C_RUNTIME {
                fs::write(directory.join(name), text)?;
            }
            let names = sources().map(|(name, _)| name);
            succeed(self.compiler(directory).arg("-c").args(names))?;
        }
        Ok(sources().map(|(name, _)| directory.join(name).with_extension("o")).collect())
    }

    /// Compiles a program with a driver, strictest warnings on; what runs it.
    pub fn build(
        &self,
        directory: &Path,
        (program, sources): (&Program, &Sources),
        driver: &str,
    ) -> Result<Command, Failed> {
        let runtime = directory.parent().unwrap().join("runtime").join(self.name);
        let objects = self.runtime(&runtime)?;
        let directory = &directory.join(self.name);
        fs::create_dir_all(directory)?;
        let generated = c(program, &|span| Some(place(sources, span)))?;
        let mut compiler = self.compiler(directory);
        compiler.arg("-I").arg(&runtime);
        let texts = generated.iter().map(|file| (file.name.as_str(), file.text.as_str()));
        for (name, text) in texts.chain([("driver.c", driver)]) {
            fs::write(directory.join(name), text)?;
            if is_source(name) {
                compiler.arg(name);
            }
        }
        succeed(compiler.args(objects).args(["-o", "driver"]))?;
        let mut words = self.emulator.iter().map(PathBuf::from).chain([directory.join("driver")]);
        let mut command = Command::new(words.next().unwrap());
        command.args(words);
        Ok(command)
    }
}

fn is_source(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|of| of == "c")
}

/// Whether a program is in the search path.
pub fn is_there(tool: &str) -> bool {
    let paths = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&paths).any(|directory| directory.join(tool).is_file())
}

/// Where a span stands: what `#line` tells.
pub fn place(sources: &Sources, span: Span) -> SourceLine {
    let source = sources.get(span.source);
    SourceLine { file: source.name().to_owned(), line: source.position(span.start).line + 1 }
}

/// Runs a program; what it said is told if it fails.
pub fn succeed(command: &mut Command) -> Result<(), Failed> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let text: String = String::from_utf8_lossy(&output.stderr).chars().take(6_000).collect();
    Err(format!("{command:?}\n{text}").into())
}
