//! Generated gateways do what the `test` blocks beside them say, however the octets are cut, in
//! virtual time and without sockets.
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
mod gateways;
mod happenings;
mod peers;

use build::{TARGETS, Target};
use gateways::{GATEWAYS, Poverty, agree, program, strangers, transcripts, turns, without_memory};
use libtest_mimic::{Arguments, Failed, Trial};
use peers::Gateway;
use std::path::PathBuf;

fn main() {
    let trials = TARGETS.into_iter().flat_map(|target| {
        GATEWAYS.map(|name| {
            let missing = !target.is_installed();
            let title = format!("{}::{name}", target.name);
            Trial::test(title, move || run(name, &target)).with_ignored_flag(missing)
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}

/// The `test` blocks; with sanitizers also whatever may happen, beside the native machine.
fn run(name: &str, target: &Target) -> Result<(), Failed> {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("machine").join(name);
    let (program, sources) = program(name);
    let driver = include_str!("driver/machine.c");
    let mut gateway = Gateway::start(target.build(&directory, (&program, &sources), driver)?)?;
    // Under an emulator fewer cuts do: its byte order and word size are what is tried.
    transcripts(&mut gateway, &program, target.emulator.is_empty())?;
    if target.name == TARGETS[1].name {
        agree(&mut gateway, name, &program)?;
        without_memory(&mut gateway, &program, Poverty::Comes)?;
    }
    if name == "smtp_relay" {
        turns(&mut gateway)?;
    }
    if name == "finder" {
        strangers(&mut gateway, &program)?;
    }
    if name == "board" {
        a_list_that_is_filled_anew_takes_no_more(&mut gateway)?;
    }
    gateway.finish()
}

/// A path is taken apart again and again, each time in a list of the same session.
fn a_list_that_is_filled_anew_takes_no_more(gateway: &mut Gateway) -> Result<(), Failed> {
    const POST: usize = 1;
    gateway.tell("new 0")?;
    let mut lent = [0; 2];
    for (turns, lent) in [200, 2_000].into_iter().zip(&mut lent) {
        for turn in 0..turns {
            let (one, other) = ("61".repeat(turn % 20), "62".repeat(turn % 7));
            gateway.tell(&format!("datagram {POST} 0701aa{one}2f{other}"))?;
        }
        *lent = gateway.tell("lent 0")?.concat().parse()?;
    }
    gateway.tell("free 0")?;
    let [before, after]: [usize; 2] = lent;
    if before == 0 || after > before {
        return Err(format!("{before} octets were lent, {after} are now").into());
    }
    Ok(())
}
