//! Creations in two processes, each with a store of its own, beside one process with the same load:
//! what a division of the writes into two shards would bring on this machine.

use super::kept::Answered;
use super::load::{self, LoadResult, What};
use super::systems::System;
use super::{CONNECTIONS, DURATION};
use bench::Bench;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Shares of the load, each from a thread of its own.
const SHARES: usize = 2;

/// Creations in a second of all shares together, dealt to these CSEs in turn. Each CSE must
/// hold what it has answered.
fn together(systems: &mut [System], duration: Duration) -> Result<f64, String> {
    let connections = CONNECTIONS / SHARES;
    let befores = systems.iter().map(|system| load::container(system.address));
    let befores = befores.collect::<Result<Vec<_>, String>>()?;
    let results = thread::scope(|scope| {
        let load = |system: &System| system.load(What::Create, connections, duration);
        let shares: Vec<_> = (0..SHARES)
            .filter_map(|share| systems.get(share % systems.len()))
            .map(|system| scope.spawn(move || load(system)))
            .collect();
        let joined =
            shares.into_iter().map(|it| it.join().map_err(|_| "a load has panicked".to_owned())?);
        joined.collect::<Result<Vec<_>, String>>()
    })?;
    let count = systems.len();
    for (at, (system, before)) in systems.iter_mut().zip(befores).enumerate() {
        let of_it = results.iter().skip(at).step_by(count);
        let numbers: Vec<_> = of_it.flat_map(|result| &result.numbers).copied().collect();
        system.check(Answered { container: "load", before, numbers: &numbers })?;
    }
    Ok(results.iter().map(LoadResult::per_second).sum())
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
        let mut systems = vec![System::fresh(binary, first)?];
        let alone = together(&mut systems, duration)?;
        bench.sample("creates_one_process_per_s", "/s", alone);
        systems.push(System::fresh(binary, second)?);
        let both = together(&mut systems, duration)?;
        bench.sample("creates_two_processes_per_s", "/s", both);
    }
    bench.ratio(
        "creates_two_processes_vs_one",
        "creates_two_processes_per_s",
        "creates_one_process_per_s",
    );
    Ok(())
}
