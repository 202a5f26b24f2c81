//! kill -9 of the gateway and of the CSE above, by turns, while devices report: what was answered
//! to the devices is what is stored at the gateway and above, each once and by the same name.
//!
//! Every kind of device reports. One whose observations bear no time may have a report stored twice
//! for each kill of the gateway, which nothing can tell from another measurement (docs/devices.md);
//! it loses none.
//!
//! Both are `gatewright run`. `GATEWRIGHT_KILLS` says how often one is killed (10), and
//! `GATEWRIGHT_PERIOD_MS` how often each device measures (100): a machine that is slower than they are
//! needs a longer period.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_bindings::agents::{self, Outcome, Run};
use gatewright_bindings::client::Client;
use gatewright_health::code::{AttributeId, SystemId, attribute};
use gatewright_health::simulate::SimulationPlan;
use gatewright_health::specialisation::{ALL, Specialisation};
use gatewright_testbed::free_port;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// How long anything may take, on a machine with much else to do.
const PATIENCE: Duration = Duration::from_mins(5);
/// How often each measures, in milliseconds.
const PERIOD_MS: u64 = 100;
/// Kills after which a long run says how far it is.
const TELL_EVERY: u32 = 20;
/// Between two kills, at the most.
const PAUSE_MAX: Duration = Duration::from_millis(700);

/// `gatewright run` of one description, again and again.
struct Process {
    file: PathBuf,
    url: String,
    child: Option<Child>,
}

impl Process {
    fn new(place: &Path, name: &str, http: u16, text: &str) -> Self {
        let file = place.join(format!("{name}.toml"));
        fs::write(&file, text).unwrap();
        Self { file, url: format!("http://127.0.0.1:{http}"), child: None }
    }

    fn start(&mut self) {
        let child = Command::new(env!("CARGO_BIN_EXE_gatewright"))
            .args(["run", "--socket"])
            .args([&self.file.with_extension("sock"), &self.file])
            .current_dir(self.file.parent().unwrap())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.child = Some(child);
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// The content of an answer, asked for until there is one.
    fn get(&self, runtime: &Runtime, to: &str) -> Value {
        let id = Instant::now();
        let client = Client::new(self.url.as_str(), "CAdmin", format!("{to}-{id:?}-"));
        loop {
            let answer = runtime.block_on(client.get(to));
            match answer {
                Ok(answer) if answer.status.is_success() => {
                    let content = answer.content.unwrap_or_default();
                    return serde_json::from_str(&content).unwrap();
                }
                other => assert!(id.elapsed() < PATIENCE, "{to}: {other:?}"),
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The addresses of resources below `base`, the last part of each.
    fn found(&self, runtime: &Runtime, base: &str, kind: u8) -> Vec<String> {
        let found = self.get(runtime, &format!("{base}?fu=1&ty={kind}"));
        let list = found["m2m:uril"].as_array().unwrap();
        list.iter().map(|uri| uri.as_str().unwrap().to_owned()).collect()
    }

    /// The names of all instances; no two containers are asked about at once, as answers have
    /// their bounds.
    fn names(&self, runtime: &Runtime, base: &str) -> Vec<String> {
        let containers = self.found(runtime, base, 3);
        // Alarms are this CSE's own: the other one has none of them.
        let containers = containers.iter().filter(|place| !place.ends_with("/alarms"));
        let instances = containers.flat_map(|place| self.found(runtime, place, 4));
        let names = instances.map(|uri| uri.rsplit('/').next().unwrap().to_owned());
        // What a device says of itself is no reading.
        names.filter(|name| !name.ends_with("-about")).collect()
    }

    /// Letters that wait for the CSE above.
    fn waiting(&self) -> u64 {
        let output = Command::new(env!("CARGO_BIN_EXE_gatewright"))
            .args(["status", "--json", "--socket"])
            .arg(self.file.with_extension("sock"))
            .output()
            .unwrap();
        let status: Value = serde_json::from_slice(&output.stdout).unwrap();
        let parts = status["parts"].as_array().unwrap();
        let cse = parts.iter().find(|part| part["name"] == "cse").unwrap();
        let gauges = cse["gauges"].as_array().unwrap();
        let waiting = gauges.iter().find(|gauge| gauge[0] == "messages_waiting").unwrap();
        waiting[1].as_u64().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Whether every observation of a device bears a time: what it reports again is known by that.
fn is_timed(kind: &Specialisation) -> bool {
    const TIMES: [AttributeId; 1] = [attribute::TIMESTAMP_ABSOLUTE];
    kind.metrics.iter().all(|it| it.map.iter().any(|entry| TIMES.contains(&entry.attribute)))
}

/// Compares what the devices were answered with what is stored of them; returns the number of
/// answered values.
fn check(answered: Vec<Answered>, stored: &BTreeSet<String>, gateway_kills: u32) -> u64 {
    let mut values = 0;
    for (kind, system_id, acknowledged) in answered {
        let (name, id) = (kind.name, format!("{:016x}", u64::from_be_bytes(system_id.0)));
        let stored = stored.iter().filter(|name| name.contains(&id)).count() as u64;
        // The values of one report a kill.
        let twice = u64::from(gateway_kills) * kind.metrics.len() as u64;
        let most = if is_timed(kind) { acknowledged } else { acknowledged + twice };
        assert!(
            (acknowledged..=most).contains(&stored),
            "{name}: {stored} stored, {acknowledged} answered, {gateway_kills} kills"
        );
        values += acknowledged;
    }
    values
}

/// A device with the number of its values that were answered.
type Answered = (&'static Specialisation, SystemId, u64);

/// What each device was answered, once it has ended.
fn answered(
    runtime: &Runtime,
    runs: Vec<(&'static Specialisation, SystemId, JoinHandle<Outcome>)>,
) -> Vec<Answered> {
    let one = |(kind, system_id, run): (&'static Specialisation, SystemId, JoinHandle<Outcome>)| {
        let outcome = runtime.block_on(run).unwrap();
        assert!(outcome.is_answered(), "{}: {outcome:?}", kind.name);
        (kind, system_id, outcome.counters.acknowledged_values)
    };
    runs.into_iter().map(one).collect()
}

fn set(names: &[String], whose: &str) -> BTreeSet<String> {
    let set: BTreeSet<_> = names.iter().cloned().collect();
    assert_eq!(set.len(), names.len(), "each once {whose}");
    set
}

/// Waits until no message waits. However slow the machine is: as long as messages arrive, they are
/// waited for.
fn wait_for_messages(gateway: &Process) {
    let (mut least, mut since) = (u64::MAX, Instant::now());
    loop {
        match gateway.waiting() {
            0 => return,
            waiting if waiting < least => (least, since) = (waiting, Instant::now()),
            waiting => assert!(since.elapsed() < PATIENCE, "{waiting} messages wait"),
        }
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn what_was_answered_is_what_is_stored_over_kill_9_of_either() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    let kills = number("GATEWRIGHT_KILLS").unwrap_or(10);
    let period = number("GATEWRIGHT_PERIOD_MS").map_or(PERIOD_MS, u64::from);
    let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("kill");
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).unwrap();
    let [devices, here, there] = [free_port(), free_port(), free_port()];
    let mut upper = Process::new(
        &place,
        "in",
        there,
        &format!(
            "[cse]\ntype = \"infrastructure\"\nbase = \"cse-in\"\nid = \"/in\"\nadmin = \"CAdmin\"\n\
             http = \"127.0.0.1:{there}\"\nstore = \"in.db\"\nadmit = [\"/mn\"]\n"
        ),
    );
    let mut gateway = Process::new(
        &place,
        "mn",
        here,
        &format!(
            "[devices]\nlisten = \"127.0.0.1:{devices}\"\n[cse]\nbase = \"cse-mn\"\nid = \"/mn\"\n\
             admin = \"CAdmin\"\nhttp = \"127.0.0.1:{here}\"\nstore = \"mn.db\"\n[cse.registrar]\n\
             url = \"http://127.0.0.1:{there}\"\nid = \"/in\"\nbase = \"cse-in\"\n"
        ),
    );
    upper.start();
    gateway.start();
    let runtime = Runtime::new().unwrap();
    gateway.get(&runtime, "cse-mn");
    let measuring = PAUSE_MAX * (kills + 2);
    let to = ([127, 0, 0, 1], devices).into();
    let runs: Vec<_> = (1..)
        .zip(ALL)
        .map(|(number, kind)| {
            let system_id = SystemId([2, b'K', b'I', b'L', b'L', 0, 0, number]);
            let plan = SimulationPlan {
                period: Duration::from_millis(period),
                ..SimulationPlan::new(kind, system_id, number.into())
            };
            let run = Run { plan, to, measuring, patience: PATIENCE };
            (kind, system_id, runtime.spawn(agents::run(run)))
        })
        .collect();
    for kill in 0..kills {
        // A different point each time: in associations, in commits, in between.
        thread::sleep(PAUSE_MAX / 3 + PAUSE_MAX * (kill * 7 % 11) / 22);
        let victim = if kill % 2 == 0 { &mut gateway } else { &mut upper };
        victim.kill();
        thread::sleep(Duration::from_millis(u64::from(kill % 5) * 40));
        victim.start();
        if (kill + 1) % TELL_EVERY == 0 {
            eprintln!("{} of {kills} kills", kill + 1);
        }
    }
    let answered = answered(&runtime, runs);
    wait_for_messages(&gateway);
    let here = set(&gateway.names(&runtime, "cse-mn"), "at the gateway");
    let there = set(&upper.names(&runtime, "cse-in"), "above");
    assert_eq!(there, here);
    let values = check(answered, &there, kills.div_ceil(2));
    // Some hundreds where the machine has time.
    assert!(values > u64::from(kills), "{values} values under {kills} kills");
    let twice = there.len() as u64 - values;
    eprintln!("{values} values under {kills} kills, {twice} without a time stored twice");
}
