//! Creations as an AE under an access control policy, with a subscription that they do not trigger,
//! in a tree of a million; and what follows from the time under each lock for more cores.

use super::kept::Answered;
use super::load::{self, GUARDED, What};
use super::systems::System;
use super::{CONNECTIONS, DURATION};
use crate::process::{histograms, processor, status, text};
use bench::{Bench, Yardstick};
use gatewright_onem2m::{
    Cse, CseConfig, CseType, Input, Now, Operation, Output, Request, ResourceType, Token,
};
use gatewright_store::{BatchWriter, Database, DatabaseOptions, WriteReport};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime};

/// Instances in the tree; in a hurry fewer.
const INSTANCES: (u32, u32) = (1_000_000, 100_000);
/// Instances of each container.
const FAMILY: u32 = 1_000;
/// Resources that are allowed, in all and in a branch.
const RESOURCES_MAX: usize = 2_000_000;
/// Creations whose time under the locks is measured.
const MEASURED: u32 = 50_000;
/// A request that is not answered by then is not answered.
const ANSWER_WITHIN: Duration = Duration::from_mins(1);
/// Requests under way at a time, as over that many connections.
const WINDOW: u64 = CONNECTIONS as u64;

/// The machine and its store, without a network.
struct Machine {
    cse: Cse,
    writer: BatchWriter,
    reports: Receiver<WriteReport>,
    began: Instant,
    asked: u64,
    answered: u64,
    refused: Option<String>,
}

impl Machine {
    fn open(path: &Path) -> Result<Self, String> {
        let (database, restored) =
            Database::open(path, &DatabaseOptions::default()).map_err(text)?;
        let mut config = CseConfig::new(CseType::Infrastructure, "/id-in", "cse-in");
        config.admin = Some("CAdmin".to_owned());
        config.limits.resources = RESOURCES_MAX;
        config.limits.branch_resources = RESOURCES_MAX;
        // One that has no address makes them all here.
        config.limits.peer_resources = RESOURCES_MAX;
        let began = Instant::now();
        let (cse, _) =
            Cse::open(config, now(began), restored.rows, restored.next_seq).map_err(text)?;
        let (sender, reports): (Sender<WriteReport>, _) = channel();
        let report = move |report| {
            // Whoever has stopped listening has ended with an error.
            let _ = sender.send(report);
        };
        let writer = database.start(report).map_err(text)?;
        Ok(Self { cse, writer, reports, began, asked: 0, answered: 0, refused: None })
    }

    /// Carries out what the machine wants done.
    fn drain(&mut self) -> Result<(), String> {
        while let Some(output) = self.cse.poll_output() {
            match output {
                Output::Store(batch) => {
                    self.writer.push(batch).map_err(|_| "the store is full".to_owned())?;
                }
                Output::Respond { response, .. } => {
                    self.answered += 1;
                    if !response.status.is_success() {
                        let why = || format!("refused: {:?}", response.content);
                        // What comes after a refusal may be its consequence.
                        self.refused.get_or_insert_with(why);
                    }
                }
                // All instances are in memory here; reading some would be another measurement.
                Output::Read { .. } | Output::Unreadable(_) => {
                    self.refused = Some("instances are read from the store".to_owned());
                }
                Output::Call(_) | Output::AskDevice(_) | Output::Lost { .. } => {}
            }
        }
        self.refused.take().map_or(Ok(()), Err)
    }

    /// One step as the engine takes it under its lock; the time that it took.
    fn step(&mut self, input: Input) -> Result<Duration, String> {
        let began = Instant::now();
        self.cse.handle(now(self.began), input);
        self.drain()?;
        let _due = self.cse.poll_timeout();
        Ok(began.elapsed())
    }

    /// Asks; beyond the window it waits for answers. The time under the lock.
    fn ask(
        &mut self,
        (from, to): (&str, &str),
        kind: ResourceType,
        content: &str,
    ) -> Result<Duration, String> {
        self.asked += 1;
        let id = format!("fill{}", self.asked);
        let mut request = Request::new(Operation::Create, to, from, id).creating(kind, content);
        request.result_content = Some(0);
        let mut held = self.step(Input::Request { token: Token(self.asked), request })?;
        // In step, as connections that ask again when they are answered.
        if self.asked.is_multiple_of(WINDOW) {
            held += self.settle()?;
        }
        Ok(held)
    }

    /// Waits until everything is answered. The time under the lock.
    fn settle(&mut self) -> Result<Duration, String> {
        let mut held = Duration::ZERO;
        while self.answered < self.asked {
            match self.reports.recv_timeout(ANSWER_WITHIN).map_err(text)? {
                WriteReport::Committed(number) => held += self.step(Input::Committed(number))?,
                WriteReport::Failed { cause, .. } => return Err(cause),
                WriteReport::Short(_) => {}
            }
        }
        Ok(held)
    }
}

/// Both clocks.
fn now(began: Instant) -> Now {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Now { wall, elapsed: began.elapsed() }
}

/// The AE, its policy, its subscription, and the instances of others.
fn fill(machine: &mut Machine, instances: u32) -> Result<(), String> {
    let policy = r#"{"m2m:acp":{"rn":"beds","pv":{"acr":[{"acor":["Cbed"],"acop":63}]},
        "pvs":{"acr":[{"acor":["CAdmin"],"acop":63}]}}}"#;
    let guarded =
        format!(r#"{{"m2m:cnt":{{"rn":"{GUARDED}","mni":1000,"acpi":["cse-in/beds"]}}}}"#);
    let entity = r#"{"m2m:ae":{"rn":"bed","api":"Nbench","rr":true,"srv":["4"],
        "poa":["http://127.0.0.1:1"]}}"#;
    // Of the deletion of the container; an AE that is its own target is not asked first.
    let subscription = r#"{"m2m:sub":{"nu":["cse-in/bed"],"enc":{"net":[2]}}}"#;
    machine.ask(("CAdmin", "cse-in"), ResourceType::AccessControlPolicy, policy)?;
    machine.ask(("Cbed", "cse-in"), ResourceType::ApplicationEntity, entity)?;
    machine.ask(("CAdmin", "cse-in"), ResourceType::Container, &guarded)?;
    machine.ask(
        ("Cbed", &format!("cse-in/{GUARDED}")),
        ResourceType::Subscription,
        subscription,
    )?;
    for family in 0..instances / FAMILY {
        let container = format!(r#"{{"m2m:cnt":{{"rn":"s{family}"}}}}"#);
        machine.ask(("CAdmin", "cse-in"), ResourceType::Container, &container)?;
        let path = format!("cse-in/s{family}");
        for number in 0..FAMILY {
            let content = format!(r#"{{"m2m:cin":{{"con":"{number} 97.5 72"}}}}"#);
            machine.ask(("CAdmin", &path), ResourceType::ContentInstance, &content)?;
        }
    }
    machine.settle().map(drop)
}

/// Microseconds of one creation under the lock of the machine: of a machine in this process. The
/// product does not time its lock.
fn under_lock(bench: &mut Bench, machine: &mut Machine) -> Result<(), String> {
    let (path, content) = (format!("cse-in/{GUARDED}"), load::instance(""));
    let mut held = Duration::ZERO;
    for _ in 0..MEASURED {
        held += machine.ask(("Cbed", &path), ResourceType::ContentInstance, &content)?;
    }
    held += machine.settle()?;
    bench.sample("create_machine_us", "us", held.as_secs_f64() * 1e6 / f64::from(MEASURED));
    Ok(())
}

/// Nanoseconds that the product's committing thread has taken so far, by its own histograms, and its
/// synchronisations.
fn committing(binary: &Path, folder: &Path) -> Result<(u64, u64), String> {
    let histograms = histograms(&status(binary, &System::socket(folder))?);
    let of = |name: &str| histograms.get(name).ok_or_else(|| format!("no histogram {name}"));
    let synchronised = of("store_synchronised_ns")?;
    Ok((of("store_written_ns")?.sum() + synchronised.sum(), synchronised.count()))
}

/// Creations as an AE at the product.
fn guarded(
    bench: &mut Bench,
    (binary, folder): (&Path, &Path),
    ours: &mut System,
    duration: Duration,
) -> Result<(), String> {
    let had = load::state(ours.address, GUARDED)?;
    load::foreign_is_refused(ours.address)?;
    let (busy, commits) = committing(binary, folder)?;
    let before = processor(ours.id())?;
    let made = load::run(ours.address, What::CreateGuarded, CONNECTIONS, duration)?;
    if made.refused > 0.0 {
        return Err(format!("{} creations of the AE were refused", made.refused));
    }
    let spent = processor(ours.id())?.saturating_sub(before);
    let (busy_after, commits_after) = committing(binary, folder)?;
    let (busy, commits) = (busy_after - busy, commits_after - commits);
    ours.check(Answered { container: GUARDED, before: had, numbers: &made.numbers })?;
    load::foreign_is_refused(ours.address)?;
    let all = u32::try_from(made.numbers.len()).map(f64::from).map_err(text)?;
    let commits = u32::try_from(commits).map(f64::from).map_err(text)?;
    let busy = Duration::from_nanos(busy).as_secs_f64();
    bench.sample("creates_guarded_per_s", "/s", made.per_second());
    bench.sample("create_guarded_cpu_us", "us", spent.as_secs_f64() * 1e6 / made.answered);
    bench.sample("create_store_us", "us", busy * 1e6 / all);
    bench.sample("creates_guarded_a_commit", "", all / commits);
    Ok(())
}

/// Measures creations, and how many each of what they pass one by one lets through.
pub(super) fn run(bench: &mut Bench, binary: &Path, folder: &Path) -> Result<(), String> {
    let duration = bench.options().pick(DURATION, DURATION / 2);
    System::remove(folder);
    let mut machine = Machine::open(&System::store(folder))?;
    fill(&mut machine, bench.options().pick(INSTANCES.0, INSTANCES.1))?;
    for _round in 0..bench.options().rounds() {
        under_lock(bench, &mut machine)?;
    }
    drop(machine);
    let more = format!("resources_max = {RESOURCES_MAX}\nbranch_max = {RESOURCES_MAX}\n");
    let mut ours = System::ours(binary, folder, &more)?;
    for _round in 0..bench.options().rounds() {
        guarded(bench, (binary, folder), &mut ours, duration)?;
    }
    model(bench);
    bench.normalise("creates_guarded_per_s", Yardstick::Core);
    Ok(())
}

/// Creations in a second that the machine's lock and the store's thread let through, each on its own,
/// and the processors that have time for as many as the lesser of the two.
fn model(bench: &mut Bench) {
    let keys = ["create_guarded_cpu_us", "create_machine_us", "create_store_us"];
    let [Some(spent), Some(machine), Some(store)] = keys.map(|key| bench.median(key)) else {
        return;
    };
    bench.sample("creates_lock_limit_per_s", "/s", 1e6 / machine);
    bench.sample("creates_store_limit_per_s", "/s", 1e6 / store);
    bench.sample("creates_limit_cores", "", spent / machine.max(store));
}
