//! Notifications: how fast they reach one subscriber, and what creations cost while targets of
//! subscriptions are away.

use super::kept::{self, Answered};
use super::load::{self, What};
use super::systems::System;
use super::{CONNECTIONS, DURATION};
use crate::devices::sink::Sink;
use crate::process::{processor, text};
use bench::Bench;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Subscriptions whose targets are away.
const DEAD: u32 = 200;
/// Turns of the CSE with such subscriptions and of the one without.
const SLICES: u32 = 6;
/// How long the last notifications may take.
const WITHIN: Duration = Duration::from_mins(2);
/// Room for every instance of a round: what a container drops is not told.
const WATCHED: &str = r#"{"m2m:cnt":{"rn":"watched","mni":1000000}}"#;

fn subscribe(address: SocketAddr, to: &str, target: &str) -> Result<(), String> {
    let content = format!(r#"{{"m2m:sub":{{"nu":["{target}"],"enc":{{"net":[3]}}}}}}"#);
    load::make(address, to, 23, &content)
}

/// Notifications to one subscriber that is there, while instances are created as fast as they are.
fn live(bench: &mut Bench, binary: &Path, folder: &Path, duration: Duration) -> Result<(), String> {
    let sink = Sink::start()?;
    let mut ours = System::fresh(binary, folder)?;
    load::make(ours.address, "/cse-in", 3, WATCHED)?;
    subscribe(ours.address, "/cse-in/watched", &format!("http://{}/n", sink.address))?;
    let verified = sink.answered().0;
    let had = load::state(ours.address, "watched")?;
    let before = processor(ours.id())?;
    let begin = Instant::now();
    let made = load::run(ours.address, What::CreateWatched, CONNECTIONS, duration)?;
    // Those that the load did not wait for are created, too.
    let expected = u32::try_from(made.numbers.len()).map(f64::from).map_err(text)?;
    let told = || f64::from(u32::try_from(sink.answered().0 - verified).unwrap_or(u32::MAX));
    while told() < expected && begin.elapsed() < WITHIN {
        sleep(Duration::from_millis(2));
    }
    let elapsed = begin.elapsed();
    let spent = processor(ours.id())?.saturating_sub(before);
    ours.kill()?;
    ours.start_again()?;
    let answered = Answered { container: "watched", before: had, numbers: &made.numbers };
    kept::check_count(ours.address, answered)?;
    bench.sample("notifications_per_s", "/s", told() / elapsed.as_secs_f64());
    bench.sample("notifications_missed", "", (expected - told()).max(0.0));
    bench.sample("creates_notified_per_s", "/s", made.per_second());
    bench.sample("create_and_notification_cpu_ms", "ms", spent.as_secs_f64() * 1e3 / expected);
    Ok(())
}

/// A CSE under load in slices of time, and what came of them.
struct Sliced {
    system: System,
    answered: f64,
    elapsed: Duration,
    /// Processor time that it had had when the slices began.
    before: Duration,
    /// Instances that its container had had before the first load.
    had: u64,
    /// The requests of all slices, and of the load before them.
    numbers: Vec<u64>,
}

impl Sliced {
    /// Ours on a new database in a folder of its own, with the container.
    fn new(binary: &Path, folder: &Path) -> Result<Self, String> {
        fs::create_dir_all(folder).map_err(text)?;
        let system = System::fresh(binary, folder)?;
        load::container(system.address)?;
        let (elapsed, before) = (Duration::ZERO, Duration::ZERO);
        Ok(Self { system, answered: 0.0, elapsed, before, had: 0, numbers: Vec::new() })
    }

    fn load(&mut self, duration: Duration) -> Result<(), String> {
        let made = load::run(self.system.address, What::Create, CONNECTIONS, duration)?;
        if made.refused > 0.0 {
            return Err(format!("{} requests refused", made.refused));
        }
        self.answered += made.answered;
        self.elapsed += made.elapsed;
        self.numbers.extend(made.numbers);
        Ok(())
    }

    /// Loads it before what is measured: the notifications that find room come first.
    fn begin(&mut self, duration: Duration) -> Result<(), String> {
        self.had = load::state(self.system.address, "load")?;
        self.load(duration)?;
        (self.answered, self.elapsed) = (0.0, Duration::ZERO);
        self.before = processor(self.system.id())?;
        Ok(())
    }

    /// Processor time of a creation, and creations in a second. It must hold all of them.
    fn end(mut self) -> Result<(f64, f64), String> {
        let spent = processor(self.system.id())?.saturating_sub(self.before);
        let (before, numbers) = (self.had, &self.numbers);
        self.system.check(Answered { container: "load", before, numbers })?;
        Ok((spent.as_secs_f64() / self.answered, self.answered / self.elapsed.as_secs_f64()))
    }
}

/// What creations cost more while the targets of 200 subscriptions to their container are away: at
/// CSEs that differ in nothing else, by turns. Two are without them: what those differ by is noise.
fn dead(bench: &mut Bench, binary: &Path, folder: &Path, duration: Duration) -> Result<(), String> {
    let new = |name| Sliced::new(binary, &folder.join(name));
    let mut all = [new("alone")?, new("again")?, new("beside")?];
    let sink = Sink::start()?;
    for number in 0..DEAD {
        let target = format!("http://{}/n{number}", sink.address);
        let [.., beside] = &all;
        subscribe(beside.system.address, "/cse-in/load", &target)?;
    }
    drop(sink);
    for sliced in &mut all {
        sliced.begin(duration / 2)?;
    }
    for _slice in 0..SLICES {
        for sliced in &mut all {
            sliced.load(duration / SLICES)?;
        }
    }
    let [alone, again, beside] = all;
    let ((alone, rate_alone), (again, rate_again)) = (alone.end()?, again.end()?);
    let (beside, rate_beside) = beside.end()?;
    let more = |of: f64, to: f64| 100.0 * (of / to - 1.0);
    bench.sample("dead_targets_cost_pct", "%", more(beside, f64::midpoint(alone, again)));
    bench.sample("dead_targets_cost_noise_pct", "%", more(again, alone));
    let rate = f64::midpoint(rate_alone, rate_again);
    bench.sample("dead_targets_fewer_creates_pct", "%", -more(rate_beside, rate));
    bench.sample("dead_targets_fewer_creates_noise_pct", "%", -more(rate_again, rate_alone));
    Ok(())
}

/// Measures both, in each round.
pub(super) fn run(bench: &mut Bench, binary: &Path, folder: &Path) -> Result<(), String> {
    let duration = bench.options().pick(DURATION, DURATION / 2);
    for _round in 0..bench.options().rounds() {
        live(bench, binary, folder, duration).map_err(|it| format!("notifications: {it}"))?;
        dead(bench, binary, folder, duration).map_err(|it| format!("dead targets: {it}"))?;
    }
    Ok(())
}
