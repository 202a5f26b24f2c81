//! A disk that takes up to two seconds to make anything durable, or never ends: nothing is answered
//! before it is on the disk, what only reads goes on, an operator is told, and a loss of power takes
//! nothing that was answered.
//!
//! The gateway is `gatewright run`. Its `fsync` and `fdatasync` are those of `slow_disk.c`, which also
//! says how much of the write-ahead log was durable at any moment.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test may fail loudly"
)]

mod common;
mod trials;

use common::{Daemon, WITHIN, folder};
use gatewright_bindings::agents::{self, Run};
use gatewright_bindings::client::Client;
use gatewright_health::code::{SystemId, attribute};
use gatewright_health::simulate::SimulationPlan;
use gatewright_health::specialisation::{ALL, Metric, Specialisation};
use gatewright_onem2m::{ResourceType, Status};
use gatewright_testbed::{Needs, free_port, wait_until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// How long anything may take that waits for such a disk.
const PATIENCE: Duration = Duration::from_mins(2);
/// How long what stores runs before the loss of power, and after it.
const STORES_FOR: Duration = Duration::from_secs(3);
/// Originators that store at a time.
const WRITERS: u32 = 8;
/// Devices that report at a time.
const DEVICES: usize = 4;
/// Milliseconds that each synchronisation takes.
const SLOW: &str = "200 2000";

fn main() {
    let tests: [(&str, fn()); 2] = [
        ("answers_wait_for_the_disk_and_reads_do_not", held),
        ("a_loss_of_power_beside_a_slow_disk_takes_nothing_that_was_answered", slow),
    ];
    trials::run(&Needs::new().program("gcc"), tests)
}

/// The disk of one gateway.
struct SlowDisk {
    /// What it is told, and by what.
    told: PathBuf,
    library: PathBuf,
}

impl SlowDisk {
    fn new(folder: &Path) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slow_disk/slow_disk.c");
        let library = folder.join("slow_disk.so");
        let mut compile = Command::new("gcc");
        compile.args(["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-O1", "-o"]);
        let compiled = compile.arg(&library).arg(source).arg("-ldl").output().unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        let this = Self { told: folder.join("disk"), library };
        this.takes("0");
        this
    }

    /// How long each synchronisation takes from now on.
    fn takes(&self, how_long: &str) {
        let new = self.told.with_extension("new");
        fs::write(&new, how_long).unwrap();
        fs::rename(new, &self.told).unwrap();
    }

    /// Sizes of the write-ahead log at the begin, or the end, of each synchronisation.
    fn sizes(&self, word: &str) -> Vec<u64> {
        let log = fs::read_to_string(self.told.with_extension("log")).unwrap_or_default();
        let sizes = log.lines().filter_map(|line| line.strip_prefix(word)?.trim().parse().ok());
        sizes.collect()
    }

    /// Whether something waits for it.
    fn is_waited_for(&self) -> bool {
        self.sizes("began").len() > self.sizes("ended").len()
    }
}

/// A gateway with such a disk.
struct SlowGateway {
    disk: SlowDisk,
    folder: PathBuf,
    http: u16,
    devices: u16,
    daemon: Option<Daemon>,
}

impl SlowGateway {
    fn start(name: &str) -> Self {
        let folder = folder(name);
        let disk = SlowDisk::new(&folder);
        let (http, devices) = (free_port(), free_port());
        let mut this = Self { disk, folder, http, devices, daemon: None };
        this.run();
        this
    }

    fn run(&mut self) {
        let (http, devices) = (self.http, self.devices);
        let text = format!(
            "[devices]\nlisten = \"127.0.0.1:{devices}\"\n[cse]\nbase = \"cse-gw\"\nid = \"/gw\"\n\
             admin = \"CAdmin\"\nhttp = \"127.0.0.1:{http}\"\nstore = \"slow.db\"\n"
        );
        let environment =
            [("LD_PRELOAD", self.disk.library.as_path()), ("SLOW_DISK", self.disk.told.as_path())];
        self.daemon = Some(Daemon::start_with(self.folder.clone(), &text, &environment));
    }

    fn client(&self, prefix: &str) -> Client {
        Client::new(format!("http://127.0.0.1:{}", self.http), "CAdmin", format!("{prefix}-"))
    }

    /// kill -9, and what was not on the disk is lost.
    fn lose_power(&mut self) {
        self.daemon.take();
        let log = fs::OpenOptions::new().write(true).open(self.folder.join("slow.db-wal")).unwrap();
        let durable = self.disk.sizes("ended").pop().unwrap();
        let size = log.metadata().unwrap().len();
        log.set_len(durable.min(size)).unwrap();
    }

    fn alarms(&self) -> String {
        let status = self.daemon.as_ref().unwrap().ask(&["status", "--json"]);
        let status: Value = serde_json::from_str(&status.out).unwrap();
        let part = status["parts"].as_array().unwrap().iter().find(|part| part["name"] == "cse");
        part.unwrap()["alarms"].to_string()
    }
}

/// What comes of a future in time.
fn ask<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
    runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await.expect("in time") })
}

/// The status of the answer to a creation, if there is one.
async fn create(client: &Client, to: &str, kind: ResourceType, content: &str) -> Option<Status> {
    client.create(to, kind, content).await.ok().map(|made| made.status)
}

fn instance(name: &str) -> String {
    format!(r#"{{"m2m:cin":{{"rn":"{name}","con":"97"}}}}"#)
}

/// The names of the instances below a resource.
fn names(runtime: &Runtime, client: &Client, base: &str) -> Vec<String> {
    let found = ask(runtime, client.get(&format!("{base}?fu=1&ty=4"))).unwrap();
    let found: Value = serde_json::from_str(found.content.as_deref().unwrap()).unwrap();
    let names = found["m2m:uril"].as_array().unwrap().iter();
    names.map(|uri| uri.as_str().unwrap().rsplit('/').next().unwrap().to_owned()).collect()
}

fn held() {
    let mut gateway = SlowGateway::start("slow-disk-held");
    let runtime = Runtime::new().unwrap();
    let client = Arc::new(gateway.client("held"));
    for name in ["told", "other"] {
        let container = format!(r#"{{"m2m:cnt":{{"rn":"{name}"}}}}"#);
        let made = create(&client, "cse-gw", ResourceType::Container, &container);
        assert_eq!(ask(&runtime, made), Some(Status::Created));
        let place = format!("cse-gw/{name}");
        let made = instance("before");
        let made = create(&client, &place, ResourceType::ContentInstance, &made);
        assert_eq!(ask(&runtime, made), Some(Status::Created));
    }
    gateway.disk.takes("hold");
    let begin = |name: String| {
        let client = Arc::clone(&client);
        runtime.spawn(async move {
            let content = instance(&name);
            create(&client, "cse-gw/told", ResourceType::ContentInstance, &content).await
        })
    };
    let creates: Vec<_> = (0..16).map(|number| begin(format!("n{number}"))).collect();
    assert!(wait_until(WITHIN, || gateway.disk.is_waited_for()), "nothing is stored");
    for _ in 0..50 {
        let read = ask(&runtime, client.get("cse-gw/other/la")).unwrap();
        assert_eq!(read.status, Status::Ok);
    }
    // Who is told of it must not be told of what may be lost.
    let theirs = Arc::clone(&client);
    let seen = runtime.spawn(async move { theirs.get("cse-gw/told/la").await.unwrap().status });
    let is_told = || {
        let status = gateway.daemon.as_ref().unwrap().ask(&["status"]);
        status.out.contains("disk-slow since")
    };
    assert!(wait_until(WITHIN, is_told), "{}", gateway.alarms());
    assert!(
        gateway.alarms().contains(r#"{"name":"disk-slow","raised":1,"#),
        "{}",
        gateway.alarms()
    );
    assert!(creates.iter().all(|create| !create.is_finished()) && !seen.is_finished());
    gateway.disk.takes("0");
    for create in creates {
        assert_eq!(ask(&runtime, create).unwrap(), Some(Status::Created));
    }
    assert_eq!(ask(&runtime, seen).unwrap(), Status::Ok);
    // What is not on the disk was not answered, and a loss of power takes it.
    gateway.disk.takes("hold");
    let lost = begin("lost".to_owned());
    assert!(wait_until(WITHIN, || gateway.disk.is_waited_for()), "nothing is stored");
    gateway.lose_power();
    assert_eq!(ask(&runtime, lost).unwrap(), None, "there was an answer");
    gateway.disk.takes("0");
    gateway.run();
    let found = names(&runtime, &gateway.client("after"), "cse-gw/told");
    let found: BTreeSet<_> = found.into_iter().collect();
    let expected = (0..16).map(|number| format!("n{number}")).chain(["before".to_owned()]);
    assert_eq!(found, expected.collect());
}

/// Stores instances, one after the other, until it is to stop; the names that were answered.
async fn write(client: Client, number: u32, stop: Arc<AtomicBool>) -> Vec<String> {
    let mut answered = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let name = format!("w{number}-{}", answered.len());
        let begun = Instant::now();
        loop {
            let content = instance(&name);
            let made = client.create("cse-gw/told", ResourceType::ContentInstance, &content).await;
            match made.map(|made| made.status) {
                // There: its answer was lost with the gateway.
                Ok(Status::Created | Status::Conflict) => break,
                other => assert!(begun.elapsed() < PATIENCE, "{name}: {other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        answered.push(name);
    }
    answered
}

/// Whether every observation of a device bears a time: a report that is repeated is known by it.
fn is_timed(kind: &Specialisation) -> bool {
    let has_time = |metric: &Metric| {
        metric.map.iter().any(|entry| entry.attribute == attribute::TIMESTAMP_ABSOLUTE)
    };
    kind.metrics.iter().all(has_time)
}

fn slow() {
    let mut gateway = SlowGateway::start("slow-disk");
    let runtime = Runtime::new().unwrap();
    let client = gateway.client("slow");
    let container = r#"{"m2m:cnt":{"rn":"told"}}"#;
    let made = create(&client, "cse-gw", ResourceType::Container, container);
    assert_eq!(ask(&runtime, made), Some(Status::Created));
    gateway.disk.takes(SLOW);
    let devices: Vec<_> = (1..)
        .zip(ALL.iter().filter(|kind| is_timed(kind)).take(DEVICES))
        .map(|(number, kind)| {
            let system_id = SystemId([2, b'S', b'L', b'O', b'W', 0, 0, number]);
            let plan = SimulationPlan {
                period: Duration::from_millis(100),
                ..SimulationPlan::new(kind, system_id, number.into())
            };
            let to = ([127, 0, 0, 1], gateway.devices).into();
            let run = Run { plan, to, measuring: STORES_FOR * 3, patience: PATIENCE };
            (system_id, runtime.spawn(agents::run(run)))
        })
        .collect();
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| {
            let client = gateway.client(&format!("w{number}"));
            runtime.spawn(write(client, number, Arc::clone(&stop)))
        })
        .collect();
    std::thread::sleep(STORES_FOR);
    gateway.lose_power();
    gateway.run();
    std::thread::sleep(STORES_FOR);
    stop.store(true, Ordering::Relaxed);
    let answered: Vec<String> =
        writers.into_iter().flat_map(|writer| ask(&runtime, writer).unwrap()).collect();
    gateway.disk.takes("0");
    let client = gateway.client("after");
    let found = names(&runtime, &client, "cse-gw/told");
    let set: BTreeSet<_> = found.iter().collect();
    assert_eq!(set.len(), found.len(), "each once");
    let missing: Vec<_> = answered.iter().filter(|name| !set.contains(name)).collect();
    assert!(missing.is_empty() && answered.len() >= WRITERS as usize, "{missing:?}");
    let mut values = 0;
    for (system_id, run) in devices {
        let outcome = ask(&runtime, run).unwrap();
        assert!(outcome.is_answered(), "{outcome:?}");
        let id = format!("{:016x}", u64::from_be_bytes(system_id.0));
        let stored = names(&runtime, &client, "cse-gw");
        let stored: Vec<_> =
            stored.iter().filter(|name| name.contains(&id) && !name.ends_with("-about")).collect();
        let set: BTreeSet<_> = stored.iter().collect();
        let acknowledged = outcome.counters.acknowledged_values;
        assert_eq!((stored.len() as u64, set.len()), (acknowledged, stored.len()), "{id}");
        values += acknowledged;
    }
    eprintln!("{} instances and {values} values over a loss of power", answered.len());
}
