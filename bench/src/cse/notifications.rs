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
}

impl Sliced {
    /// Ours on a new database in a folder of its own, with the container.
    fn new(binary: &Path, folder: &Path) -> Result<Self, String> {
        fs::create_dir_all(folder).map_err(text)?;
        let system = System::fresh(binary, folder)?;
        load::container(system.address)?;
        Ok(Self { system, answered: 0.0, elapsed: Duration::ZERO })
    }

    fn load(&mut self, duration: Duration) -> Result<(), String> {
        let made = load::run(self.system.address, What::Create, CONNECTIONS, duration)?;
        self.answered += made.answered;
        self.elapsed += made.elapsed;
        Ok(())
    }

    /// Processor time of a creation since it was `before`, and creations in a second.
    fn cost(&self, before: Duration) -> Result<(f64, f64), String> {
        let spent = processor(self.system.id())?.saturating_sub(before);
        Ok((spent.as_secs_f64() / self.answered, self.answered / self.elapsed.as_secs_f64()))
    }
}

/// What creations cost more while the targets of 200 subscriptions to their container are away: at
/// two CSEs that differ in nothing else, by turns.
fn dead(bench: &mut Bench, binary: &Path, folder: &Path, duration: Duration) -> Result<(), String> {
    let mut alone = Sliced::new(binary, &folder.join("alone"))?;
    let mut beside = Sliced::new(binary, &folder.join("beside"))?;
    let sink = Sink::start()?;
    for number in 0..DEAD {
        let target = format!("http://{}/n{number}", sink.address);
        subscribe(beside.system.address, "/cse-in/load", &target)?;
    }
    drop(sink);
    // The notifications that find room come first.
    for sliced in [&mut alone, &mut beside] {
        sliced.load(duration / 2)?;
        (sliced.answered, sliced.elapsed) = (0.0, Duration::ZERO);
    }
    let before = [processor(alone.system.id())?, processor(beside.system.id())?];
    for _slice in 0..SLICES {
        alone.load(duration / SLICES)?;
        beside.load(duration / SLICES)?;
    }
    let [before_alone, before_beside] = before;
    let (alone, rate_alone) = alone.cost(before_alone)?;
    let (beside, rate_beside) = beside.cost(before_beside)?;
    bench.sample("dead_targets_cost_pct", "%", 100.0 * (beside / alone - 1.0));
    bench.sample("dead_targets_fewer_creates_pct", "%", 100.0 * (1.0 - rate_beside / rate_alone));
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
