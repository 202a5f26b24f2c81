//! What the generated code reads and writes is what the native reader and writer read and write:
//! at every split point, on machines of both byte orders and word sizes, under the sanitizers.
//!
//! A compiler or emulator that is not installed is a skipped test, by name.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub,
    reason = "a test may fail loudly"
)]

mod build;
mod cases;

use build::{TARGETS, Target, place};
use cases::{Case, cases, compare, program};
use gatewright_diagnostic::Sources;
use gatewright_emit::c;
use gatewright_lang::ir::Program;
use libtest_mimic::{Arguments, Failed, Trial};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

static PROGRAM: LazyLock<(Arc<Program>, Sources)> = LazyLock::new(program);

static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| cases(&PROGRAM.0));

fn main() {
    let trial = |target: Target| {
        let missing = !target.is_installed();
        Trial::test(target.name, move || run(&target)).with_ignored_flag(missing)
    };
    let mut trials: Vec<Trial> = TARGETS.into_iter().map(trial).collect();
    trials.push(Trial::test("command_as_text", command_as_text));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn run(target: &Target) -> Result<(), Failed> {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("messages/all");
    let (program, sources) = &*PROGRAM;
    let driver = include_str!("driver/driver.c");
    compare(&mut target.build(&directory, (program, sources), driver)?, &CASES)
}

/// What becomes of SMTP's command, as a person reads it; set `UPDATE_EXPECTED` to write anew.
fn command_as_text() -> Result<(), Failed> {
    let (program, sources) = &*PROGRAM;
    let files = c(program, &|span| Some(place(sources, span)))?;
    let text = files.into_iter().find(|file| file.name == "messages.c").unwrap().text;
    let from = text.find("static const struct gw_field smtp_command_fields").unwrap();
    let to = text.find("static const struct gw_field smtp_reply_fields").unwrap();
    // Where the text itself goes on depends on what stands before it.
    let own = |line: &&str| !line.ends_with("\"messages.c\"");
    let text: String = text[from..to].lines().filter(own).map(|of| of.to_owned() + "\n").collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/smtp_command.expected");
    if env::var_os("UPDATE_EXPECTED").is_some() {
        fs::write(&path, &text)?;
    }
    if fs::read_to_string(&path)? == text { Ok(()) } else { Err(text.into()) }
}
