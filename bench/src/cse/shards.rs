//! Creations in two processes, each with a store of its own, beside one process with the same load:
//! what a division of the writes into two shards would bring on this machine.

use super::load::What;
use super::systems::System;
use super::{CONNECTIONS, DURATION};
use bench::Bench;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Shares of the load, each from a thread of its own.
const SHARES: usize = 2;

/// Creations in a second of all shares together, each at its CSE.
fn together(systems: &[&System], duration: Duration) -> Result<f64, String> {
    let connections = CONNECTIONS / SHARES;
    thread::scope(|scope| {
        let shares: Vec<_> = systems
            .iter()
            .map(|system| scope.spawn(move || system.load(What::Create, connections, duration)))
            .collect();
        let mut sum = 0.0;
        for share in shares {
            sum += share.join().map_err(|_| "a load has panicked".to_owned())??.per_second();
        }
        Ok(sum)
    })
}

/// Measures both in each round.
pub(super) fn run(bench: &mut Bench, binary: &Path, folder: &Path) -> Result<(), String> {
    let duration = bench.options().pick(DURATION, DURATION / 2);
    let folders = ["shard-0", "shard-1"].map(|name| folder.join(name));
    for folder in &folders {
        fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    }
    let [first, second] = &folders;
    for _round in 0..bench.options().rounds() {
        let one = System::fresh(binary, first)?;
        let alone = together(&[&one, &one], duration)?;
        bench.sample("creates_one_process_per_s", "/s", alone);
        let two = System::fresh(binary, second)?;
        let both = together(&[&one, &two], duration)?;
        bench.sample("creates_two_processes_per_s", "/s", both);
    }
    bench.ratio(
        "creates_two_processes_vs_one",
        "creates_two_processes_per_s",
        "creates_one_process_per_s",
    );
    Ok(())
}
