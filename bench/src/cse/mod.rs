//! `bench cse`: a oneM2M CSE over HTTP beside acmecse, the open one that most people meet first.
//!
//! Contents of 300 octets; each creation of ours is on disk before it is answered. What it has
//! answered is compared with what it holds when it was killed and started again.

mod kept;
mod large;
mod load;
mod notifications;
mod shards;
mod synchronised;
mod systems;

use crate::binary;
use crate::process::{processor, resident_kib, text};
use bench::{Bench, Options, Relation, Yardstick};
use kept::Answered;
use load::What;
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;
use systems::{OURS, SETUPS, System, acme_program};

/// Connections that are kept, with one request outstanding on each.
const CONNECTIONS: usize = 32;
/// How long each contestant is loaded in a round. The peer's threads take turns in one
/// interpreter, so it is offered few connections too.
const DURATION: Duration = Duration::from_secs(3);
const CONNECTIONS_FEW: usize = 4;
/// How long a CSE is left alone before its memory is read: at the end of its start all pages of the
/// program are unmapped, and those in use come back.
const SETTLE: Duration = Duration::from_secs(10);

const PROMISES: [(&str, Relation, f64); 9] = [
    ("creates_per_s", Relation::AtLeast, 20_000.0),
    ("retrieves_per_s", Relation::AtLeast, 50_000.0),
    ("create_cpu_ms", Relation::AtMost, 0.03),
    ("idle_rss_mib", Relation::AtMost, 20.0),
    ("notifications_per_s", Relation::AtLeast, 20_000.0),
    ("notifications_missed", Relation::AtMost, 0.0),
    ("dead_targets_cost_pct", Relation::AtMost, 5.0),
    ("creates_vs_acmecse", Relation::AtLeast, 100.0),
    ("retrieves_vs_acmecse", Relation::AtLeast, 100.0),
];

const WORK: [(What, &str); 2] = [(What::Create, "create"), (What::Retrieve, "retrieve")];

/// One contestant's turn. Ours is killed after its creations and started again.
fn turn(bench: &mut Bench, system: &mut System, connections: usize) -> Result<(), String> {
    // In a hurry the peer, which has six turns a round, gets the shorter ones.
    let hurried = if system.name == OURS { DURATION / 2 } else { DURATION / 6 };
    let duration = bench.options().pick(DURATION, hurried);
    let few = if connections == CONNECTIONS { "" } else { "_few" };
    for (what, name) in WORK {
        let had = load::container(system.address)?;
        let before = processor(system.id())?;
        let outcome = system.load(what, connections, duration)?;
        let spent = processor(system.id())?.saturating_sub(before);
        if system.name == OURS && what == What::Create {
            let numbers = &outcome.numbers;
            system.check(Answered { container: "load", before: had, numbers })?;
        }
        let of = |figure: String| system.key(&(figure + few));
        bench.sample(&of(format!("{name}s_per_s")), "/s", outcome.per_second());
        let each = |spent: Duration| spent.as_secs_f64() * 1e3 / outcome.answered;
        bench.sample(&of(format!("{name}_cpu_ms")), "ms", each(spent));
        if system.name != OURS {
            let refused = 100.0 * outcome.refused / (outcome.answered + outcome.refused);
            bench.sample(&of(format!("{name}s_failed_pct")), "%", refused);
        }
        if system.name == OURS {
            bench.sample(&format!("{name}_load_cpu_ms"), "ms", each(outcome.spent));
        }
    }
    Ok(())
}

/// Ours on a fresh database; what it takes before anything is asked.
fn begin(bench: &mut Bench, binary: &Path, folder: &Path) -> Result<System, String> {
    let mut last = None;
    for _round in 0..bench.options().rounds() {
        drop(last.take());
        let ours = System::fresh(binary, folder)?;
        sleep(SETTLE);
        bench.sample("idle_rss_mib", "MiB", resident_kib(ours.id())? / 1024.0);
        last = Some(ours);
    }
    last.ok_or_else(|| "no rounds".to_owned())
}

/// The best of the peer in each round, over all its set-ups.
fn best(bench: &mut Bench, acme: &[System]) {
    for (_, name) in WORK {
        let ways: Vec<_> = acme
            .iter()
            .flat_map(|system| ["", "_few"].map(|few| system.key(&format!("{name}s_per_s{few}"))))
            .collect();
        let best = format!("acmecse_best_{name}s_per_s");
        bench.best(&best, &ways);
        bench.ratio(&format!("{name}s_vs_acmecse"), &format!("{name}s_per_s"), &best);
        let usual = format!("acmecse_usual_{name}s_per_s");
        bench.ratio(&format!("{name}s_vs_acmecse_usual"), &format!("{name}s_per_s"), &usual);
    }
}

fn measure(bench: &mut Bench, binary: &Path, folder: &Path) -> Result<(), String> {
    let mut ours = begin(bench, binary, folder)?;
    let program = acme_program();
    let acme = program.iter().flat_map(|program| {
        SETUPS.map(|(name, words)| System::acme(program, folder, (name, words)))
    });
    let mut acme = acme.collect::<Result<Vec<_>, String>>()?;
    for system in &acme {
        bench.sample(&system.key("idle_rss_mib"), "MiB", resident_kib(system.id())? / 1024.0);
    }
    for _round in 0..bench.options().rounds() {
        turn(bench, &mut ours, CONNECTIONS)?;
        for system in &mut acme {
            turn(bench, system, CONNECTIONS)?;
            turn(bench, system, CONNECTIONS_FEW)?;
        }
    }
    drop(ours);
    kept::run(bench, binary, folder).map_err(|it| format!("killed under load: {it}"))?;
    // A system may forbid tracing: its promise is then skipped, and says why.
    let untraced = synchronised::run(bench, binary, folder);
    let untraced = untraced.map_err(|it| format!("synchronised: {it}"))?;
    notifications::run(bench, binary, folder)?;
    large::run(bench, binary, folder).map_err(|it| format!("a large tree: {it}"))?;
    shards::run(bench, binary, folder).map_err(|it| format!("two processes: {it}"))?;
    best(bench, &acme);
    bench.normalise("create_cpu_ms", Yardstick::Core);
    match untraced {
        Some(why) => bench.skip(synchronised::KEY, Relation::AtMost, 0.0, &why),
        None => bench.promise(synchronised::KEY, Relation::AtMost, 0.0),
    }
    let guarded = ("creates_guarded_per_s", Relation::AtLeast, 30_000.0);
    bench.promise_in_full(guarded, ("1,000,000 resources", "100,000"));
    for (key, relation, bound) in PROMISES {
        if acme.is_empty() && key.ends_with("_vs_acmecse") {
            bench.skip(key, relation, bound, "acmecse cannot be installed (Python, PyPI)");
        } else {
            bench.promise(key, relation, bound);
        }
    }
    Ok(())
}

/// A folder of our own on a file system that keeps what is synchronised.
fn folder() -> Result<PathBuf, String> {
    let bench = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/bench"));
    let folder = bench.join(format!("cse-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(text)?;
    if statfs(&folder).map_err(text)?.filesystem_type() == TMPFS_MAGIC {
        return Err(format!("{} keeps nothing: it is a tmpfs", folder.display()));
    }
    Ok(folder)
}

pub(crate) fn run(options: Options) -> Result<Bench, String> {
    let mut bench = Bench::new("cse", options);
    let binary = binary()?;
    let folder = folder()?;
    let measured = measure(&mut bench, &binary, &folder);
    fs::remove_dir_all(&folder).map_err(text)?;
    measured?;
    bench.note(
        "HTTP/1.1 with kept connections, 32 of them, one request outstanding on each; contents of \
         300 octets; ours is `gatewright run` with a database in a file, FULL, no audit log",
    );
    bench.note(
        "after its creations ours is killed with SIGKILL in each round and started again: it must \
         hold as many as it has answered (stateTag), and the latest 1,000 with their contents; \
         killed_answered_and_held: it is killed while it is loaded, and each instance that it had \
         answered is retrieved. SIGKILL does not lose what the kernel has and the disk has not: \
         answered_unsynchronised are those of 200 creations, one after the other and traced, that were \
         answered before a file of the store had been synchronised (fdatasync or fsync); what the \
         disk makes of that call is not checked",
    );
    bench.note(
        "load and CSE share the machine's processors; load_cpu is the load's own processor time, \
         which is in no other figure",
    );
    bench.note(
        "creates_guarded: as an AE under an access control policy, below a subscription that is not \
         triggered, in a tree of 1,000,000 (--quick: 100,000); an originator that no policy names is \
         refused with 4103 before and after. create_store_us: time on the thread that commits, in the \
         product under this load, by its own histograms: waits for the disk and for a processor are in \
         it. create_machine_us is not the product's: it is the time under the lock of a machine in the \
         process of this benchmark, without a network and without a load beside it. \
         creates_lock_limit_per_s, creates_store_limit_per_s: what each of the two lets through; \
         creates_limit_cores: processors that have time for the lesser of them, more do not help",
    );
    bench.note(
        "two processes: each with a store of its own and half the connections, beside one process \
         with the same two loads: what two shards would bring on this machine, the loads' own \
         processor time included",
    );
    bench.note(
        "acmecse: usual is as it comes (TinyDB in files, Flask's server); memory keeps nothing; \
         wsgi is its server for many connections; few: 4 connections instead of 32; the ratios \
         are to the best of all of them in each round; failed: what it answered with an error, \
         which it does when it is asked by many at once, and which is in no rate",
    );
    Ok(bench)
}
