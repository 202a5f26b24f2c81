//! `gatewright device`: personal health devices.

mod ask;

use crate::{
    exit::{Exit, Failure},
    face::Face,
};
use anyhow::Result;
use core::fmt::Write;
use gatewright_bindings::{agents, devices};
use gatewright_health::code::SystemId;
use gatewright_health::simulate::{Faults, Plan};
use gatewright_health::specialisation::{self, Specialisation};
use serde::Serialize;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant, SystemTime};

pub(super) const JSON: &str = "simulate: {kind, to, seconds, devices, unanswered, connections, \
     associations, measured, answered, values, repeated, forgotten, passed}; ask: \
     {entity, command, status, result}";

/// Devices in one process: each has a socket, of which the system gives 1,024 unless told
/// otherwise; a device without one stays unanswered.
const DEVICES_MAX: u32 = 10_000;

/// Personal health devices (IEEE 11073-20601): simulates them, or asks them something.
#[derive(Debug, clap::Args)]
pub(crate) struct Device {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Simulate(Simulate),
    Ask(ask::Ask),
}

/// Runs simulated devices against a manager, and checks that every report is answered.
///
/// Each device has a TCP connection of its own, measures at its rate, keeps what is not answered,
/// and releases its association when everything is. Ends with 0 only if every report of every
/// device was answered; reports that ask for no answer count when they are sent.
#[derive(Debug, clap::Args)]
struct Simulate {
    /// Which kind of device.
    #[arg(long, value_parser = kinds())]
    kind: String,
    /// How many.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(DEVICES_MAX)))]
    count: u32,
    /// Reports of each device in a second.
    #[arg(long, value_name = "R", default_value_t = 1.0, value_parser = rate)]
    rate: f64,
    /// How long they measure.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    seconds: u32,
    /// How long, after that, they try to have everything answered.
    #[arg(long, value_name = "SECONDS", default_value_t = 15)]
    patience: u32,
    /// Where readings and system-ids come from: the same seed, the same devices.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u16,
    /// What they do wrong, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = faults())]
    faults: Vec<String>,
    /// Datagrams instead of TCP.
    #[arg(long)]
    udp: bool,
    /// Their manager.
    #[arg(long, value_name = "HOST:PORT", default_value_t = format!("127.0.0.1:{}", devices::PORT))]
    to: String,
}

#[derive(Debug, Default, Serialize)]
struct Answer {
    kind: String,
    to: String,
    seconds: f64,
    devices: u32,
    unanswered: u32,
    connections: u64,
    associations: u64,
    measured: u64,
    answered: u64,
    values: u64,
    repeated: u64,
    forgotten: u64,
    passed: bool,
}

fn kinds() -> clap::builder::PossibleValuesParser {
    specialisation::ALL.map(|kind| kind.name).into()
}

fn faults() -> clap::builder::PossibleValuesParser {
    Faults::NAMES.map(|(name, _)| name).into()
}

/// At least once an hour, at most a thousand times a second.
fn rate(text: &str) -> Result<f64, String> {
    const LEAST: f64 = 1.0 / 3_600.0;
    const MOST: f64 = 1_000.0;
    let rate: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    let is_taken = (LEAST..=MOST).contains(&rate);
    is_taken.then_some(rate).ok_or_else(|| "from once an hour to 1000 a second".to_owned())
}

impl Device {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        match self.what {
            What::Simulate(simulate) => simulate.run(face),
            What::Ask(ask) => ask.run(face),
        }
    }
}

impl Simulate {
    fn run(self, face: Face) -> Result<Exit> {
        let unknown = || Failure::new(Exit::Usage, format!("{} is no kind", self.kind));
        let kind = Specialisation::named(&self.kind).ok_or_else(unknown)?;
        let to = self.address()?;
        face.note(&format!("{} × {} to {to}, {} s", self.count, self.kind, self.seconds));
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let answer = runtime.block_on(self.measure(kind, to));
        face.answer(&answer, || answer.text())?;
        Ok(if answer.passed { Exit::Success } else { Exit::Negative })
    }

    fn address(&self) -> Result<SocketAddr, Failure> {
        let wrong = |why: String| Failure::new(Exit::Usage, format!("--to {}: {why}", self.to));
        let mut found = self.to.to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
        found.next().ok_or_else(|| wrong("has no address".to_owned()))
    }

    fn plan(&self, kind: &'static Specialisation, number: u32) -> Plan {
        let [high, low] = self.seed.to_be_bytes();
        let [a, b, c, d] = number.to_be_bytes();
        // A locally administered EUI-64 (bit 1 of the first octet), so that it is nobody's.
        let system_id = SystemId([0x02, b'G', high, low, a, b, c, d]);
        let seed = u64::from(self.seed) << 32 | u64::from(number);
        let known = self.faults.iter().filter_map(|name| Faults::named(name));
        // Its clock is right: a device never measures twice at the same time.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Plan {
            clock: u64::try_from(now.as_millis() / 10).unwrap_or(u64::MAX),
            period: Duration::from_secs_f64(1.0 / self.rate),
            faults: known.fold(Faults::NONE, |all, fault| all | fault),
            ..Plan::new(kind, system_id, seed)
        }
    }

    async fn measure(&self, kind: &'static Specialisation, to: SocketAddr) -> Answer {
        let started = Instant::now();
        let measuring = Duration::from_secs(self.seconds.into());
        let patience = Duration::from_secs(self.patience.into());
        let run = |number| {
            let plan = self.plan(kind, number);
            let run = agents::Run { plan, to, measuring, patience };
            if self.udp {
                tokio::spawn(agents::run_datagrams(run))
            } else {
                tokio::spawn(agents::run(run))
            }
        };
        let runs: Vec<_> = (1..=self.count).map(run).collect();
        let mut answer = Answer {
            kind: self.kind.clone(),
            to: to.to_string(),
            devices: self.count,
            ..Answer::default()
        };
        for run in runs {
            answer.add(&run.await.unwrap_or_default());
        }
        answer.seconds = started.elapsed().as_secs_f64();
        answer.passed = answer.unanswered == 0;
        answer
    }
}

impl Answer {
    fn add(&mut self, outcome: &agents::Outcome) {
        let counters = outcome.counters;
        self.unanswered += u32::from(!outcome.is_answered());
        self.connections += outcome.connections;
        self.associations += counters.associations;
        self.measured += counters.measured;
        self.answered += counters.acknowledged;
        self.values += counters.acknowledged_values;
        self.repeated += counters.repeated;
        self.forgotten += counters.forgotten;
    }

    fn text(&self) -> String {
        let verdict = if self.passed { "every report answered" } else { "NOT all answered" };
        let mut text = format!("{verdict}: {} of {} reports", self.answered, self.measured);
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            ", {} values, {} devices, {} associations, {} sent again, {} forgotten",
            self.values, self.devices, self.associations, self.repeated, self.forgotten
        );
        if self.unanswered > 0 {
            let _ = write!(text, "; {} devices have more to report", self.unanswered);
        }
        text
    }
}
