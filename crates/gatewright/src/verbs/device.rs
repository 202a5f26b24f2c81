//! `gatewright device`: personal health devices.

mod ask;
mod export;
mod source;

use anyhow::Result;
use core::{fmt::Write, future::pending};
use gatewright_bindings::tasks::{block_on, spawn};
use gatewright_bindings::tls::{Tls, TlsError};
use gatewright_bindings::{
    agents::{self, AgentTransport},
    devices,
};
use gatewright_command::{
    exit::{Exit, Failure},
    face::Face,
};
use gatewright_descriptors::Claim;
use gatewright_health::code::SystemId;
use gatewright_health::simulate::{Faults, SimulationPlan};
use gatewright_health::specialisation::{self, Specialisation};
use serde::Serialize;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::watch;

pub(super) const JSON: &str = "simulate: {kind, to, seconds, devices, unanswered, connections, refused, \
     associations, measured, answered, values, repeated, forgotten, left_out, interrupted, control: [sent, asked, answered], delay_ms: [median, p99, longest], late_ms: [median, p99, longest], \
     delay_from_due_ms: [median, p99, longest], noted, noted_seconds, passed}; ask: \
     {entity, command, status, result}; export --to: {devices, \
     observations, bundles, skipped, nobody, unknown: [system-id]}";

/// Devices started per second: a listener queues at most a few thousand connections, and refused
/// ones return in bursts.
const SWITCHED_ON_PER_SECOND: u32 = 1_000;

/// Devices in one process; each has a socket.
const DEVICES_MAX: u32 = 10_000;

/// Simulates personal health devices (IEEE 11073-20601), sends them requests, and exports their
/// readings.
#[derive(Debug, clap::Args)]
pub(crate) struct Device {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Simulate(Simulate),
    Ask(ask::Ask),
    Export(export::Export),
}

/// Simulates devices that report to a manager, and checks that every report is answered.
///
/// Each device has its own TCP connection, measures at its rate, keeps unanswered reports, and
/// releases its association when all are answered. Ends with 0 only if every report of every device
/// was answered, and every control message (--control-rate); a report that requests no answer
/// counts when it is sent. Interrupted (Ctrl-C, SIGTERM) it tells what there was until then, and
/// ends with 1.
#[derive(Debug, clap::Args)]
struct Simulate {
    /// Kind of device.
    #[arg(long, value_parser = kinds())]
    kind: String,
    /// Number of devices; 1,000 of them start per second.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(DEVICES_MAX)))]
    count: u32,
    /// Reports per second of each device.
    #[arg(long, value_name = "R", default_value_t = 1.0, value_parser = rate)]
    rate: f64,
    /// Control messages per second of each device, among its reports: configurations, releases,
    /// associations, and answers to requests for its attributes.
    #[arg(long, value_name = "C", value_parser = rate)]
    control_rate: Option<f64>,
    /// Duration of measuring.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    seconds: u32,
    /// Time after the start during which delays of answers are not recorded.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    settle: u32,
    /// Additional time to get outstanding reports answered.
    #[arg(long, value_name = "SECONDS", default_value_t = 15)]
    patience: u32,
    /// Seed of readings and system-ids: the same seed gives the same devices.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u16,
    /// Faults of the devices, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = faults())]
    faults: Vec<String>,
    /// Use datagrams (UDP) instead of TCP.
    #[arg(long)]
    udp: bool,
    /// Use TLS; the manager's certificate must be for its IP address.
    #[arg(long, conflicts_with = "udp", requires_all = ["certificate", "key", "authorities"])]
    tls: bool,
    /// The certificate of all devices, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls")]
    certificate: Option<PathBuf>,
    /// Its key.
    #[arg(long, value_name = "FILE", requires = "tls")]
    key: Option<PathBuf>,
    /// The certificate authorities that are trusted for the manager.
    #[arg(long, value_name = "FILE", requires = "tls")]
    authorities: Option<PathBuf>,
    /// Address of the manager.
    #[arg(long, value_name = "HOST:PORT", default_value_t = format!("127.0.0.1:{}", devices::PORT))]
    to: String,
}

#[derive(Debug, Default, Serialize)]
struct SimulationReport {
    kind: String,
    to: String,
    seconds: f64,
    devices: u32,
    unanswered: u32,
    connections: u64,
    /// Why a device made no connection.
    refused: Option<String>,
    associations: u64,
    measured: u64,
    answered: u64,
    values: u64,
    repeated: u64,
    forgotten: u64,
    /// Control messages sent, those that want an answer, and their answers.
    control: [u64; 3],
    /// Reports left out because this process was too late.
    left_out: u64,
    /// Whether it was ended before its time.
    interrupted: bool,
    /// Delay of answers after their reports were made, in milliseconds: median, 99th percentile,
    /// maximum. What the manager held back counts from when it was due.
    delay_ms: [f64; 3],
    /// Lateness of reports, caused by this process itself.
    late_ms: [f64; 3],
    /// Sum of both: delay of answers after their reports were due.
    delay_from_due_ms: [f64; 3],
    /// Number of recorded answers, and the time span of each device.
    noted: usize,
    noted_seconds: f64,
    passed: bool,
    #[serde(skip)]
    delays: Vec<agents::Delay>,
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
            What::Export(export) => export.run(face),
        }
    }
}

impl Simulate {
    fn run(self, face: Face) -> Result<Exit> {
        let unknown = || Failure::new(Exit::Usage, format!("{} is no kind", self.kind));
        let kind = Specialisation::named(&self.kind).ok_or_else(unknown)?;
        let to = self.address()?;
        // Before other threads are there.
        let (stop, stopped) = watch::channel(false);
        gatewright_command::signals::on_stop(move || {
            let _before = stop.send_replace(true);
        })?;
        face.note(&format!("{} × {} to {to}, {} s", self.count, self.kind, self.seconds));
        let descriptors = Claim::new(self.count.into());
        if let Some(shortage) = descriptors.shortage() {
            face.note(&format!("{shortage}: devices without a socket stay unanswered"));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let tls = match (&self.certificate, &self.key, &self.authorities) {
            (Some(certificate), Some(key), Some(authorities)) => Some(Tls {
                certificate: certificate.clone(),
                key: key.clone(),
                authorities: authorities.clone(),
                crl: None,
                ocsp_response: None,
                ocsp_required: false,
            }),
            _ => None,
        };
        if let Some(tls) = &tls {
            // What is wrong with the files is told once, not by every device.
            let wrong = |error: TlsError| Failure::new(Exit::Configuration, error.to_string());
            agents::check(tls).map_err(wrong)?;
        }
        let answer = block_on(&runtime, self.measure(kind, to, (tls, stopped)));
        face.answer(&answer, || answer.text())?;
        if let Some(why) = answer.refused.as_ref().filter(|_| answer.connections == 0) {
            face.note(&format!("{to} took no connection of any device: {why}"));
            return Ok(Exit::Unavailable);
        }
        Ok(if answer.passed { Exit::Success } else { Exit::Negative })
    }

    fn address(&self) -> Result<SocketAddr, Failure> {
        let wrong = |why: String| Failure::new(Exit::Usage, format!("--to {}: {why}", self.to));
        let mut found = self.to.to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
        found.next().ok_or_else(|| wrong("has no address".to_owned()))
    }

    fn plan(&self, kind: &'static Specialisation, number: u32) -> SimulationPlan {
        let [high, low] = self.seed.to_be_bytes();
        let [a, b, c, d] = number.to_be_bytes();
        // A locally administered EUI-64 (bit 1 of the first octet), so that it is nobody's.
        let system_id = SystemId([0x02, b'G', high, low, a, b, c, d]);
        let seed = u64::from(self.seed) << 32 | u64::from(number);
        let known = self.faults.iter().filter_map(|name| Faults::named(name));
        // Its clock is right: a device never measures twice at the same time.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        SimulationPlan {
            clock: u64::try_from(now.as_millis() / 10).unwrap_or(u64::MAX),
            period: Duration::from_secs_f64(1.0 / self.rate),
            control: self.control_rate.map(|rate| Duration::from_secs_f64(1.0 / rate)),
            faults: known.fold(Faults::NONE, |all, fault| all | fault),
            ..SimulationPlan::new(kind, system_id, seed)
        }
    }

    async fn measure(
        &self,
        kind: &'static Specialisation,
        to: SocketAddr,
        (tls, stopped): (Option<Tls>, watch::Receiver<bool>),
    ) -> SimulationReport {
        let started = Instant::now();
        let measuring = Duration::from_secs(self.seconds.into());
        let patience = Duration::from_secs(self.patience.into());
        let run = |number: u32| {
            let wait = Duration::from_secs(1) * number.saturating_sub(1) / SWITCHED_ON_PER_SECOND;
            let mut plan = self.plan(kind, number);
            // Its clock begins when it is switched on.
            plan.clock += u64::try_from(wait.as_millis() / 10).unwrap_or_default();
            let run = agents::Run { plan, to, measuring, patience };
            let (tls, udp, stopped) = (tls.clone(), self.udp, stopped.clone());
            spawn(async move {
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = until_set(stopped.clone()) => return agents::Outcome::default(),
                }
                let transport = match &tls {
                    Some(tls) => AgentTransport::Tls(tls),
                    None if udp => AgentTransport::Datagrams,
                    None => AgentTransport::Stream,
                };
                agents::run_until(run, transport, until_set(stopped)).await.unwrap_or_default()
            })
        };
        let runs: Vec<_> = (1..=self.count).map(run).collect();
        let mut answer = SimulationReport {
            kind: self.kind.clone(),
            to: to.to_string(),
            devices: self.count,
            ..SimulationReport::default()
        };
        for run in runs {
            answer.add(&run.await.unwrap_or_default(), Duration::from_secs(self.settle.into()));
        }
        answer.seconds = started.elapsed().as_secs_f64();
        answer.interrupted = *stopped.borrow();
        answer.delay_ms = spread(&answer.delays, |delay| delay.took);
        answer.late_ms = spread(&answer.delays, |delay| delay.late);
        answer.delay_from_due_ms = spread(&answer.delays, |delay| delay.took + delay.late);
        answer.noted = answer.delays.len();
        answer.noted_seconds = f64::from(self.seconds.saturating_sub(self.settle));
        let [_, asked, answered] = answer.control;
        answer.passed = !answer.interrupted && answer.unanswered == 0 && asked == answered;
        answer
    }
}

/// Waits until the value is set.
async fn until_set(mut value: watch::Receiver<bool>) {
    if value.wait_for(|is_set| *is_set).await.is_err() {
        // Nobody sets it any more.
        pending::<()>().await;
    }
}

/// The median, the 99th percentile and the longest, in milliseconds.
fn spread(delays: &[agents::Delay], of: impl Fn(&agents::Delay) -> Duration) -> [f64; 3] {
    let mut micros: Vec<u32> = (delays.iter())
        .map(|delay| u32::try_from(of(delay).as_micros()).unwrap_or(u32::MAX))
        .collect();
    micros.sort_unstable();
    [50, 99, 100].map(|part| {
        let rank = (micros.len() * part).div_ceil(100).saturating_sub(1);
        micros.get(rank).map_or(0.0, |micros| f64::from(*micros) / 1e3)
    })
}

impl SimulationReport {
    fn add(&mut self, outcome: &agents::Outcome, settling: Duration) {
        let counters = outcome.counters;
        self.unanswered += u32::from(!outcome.is_answered());
        self.connections += outcome.connections;
        self.refused = self.refused.take().or_else(|| outcome.refused.clone());
        self.associations += counters.associations;
        self.measured += counters.measured;
        self.answered += counters.acknowledged;
        self.values += counters.acknowledged_values;
        self.repeated += counters.repeated;
        self.forgotten += counters.forgotten;
        self.left_out += counters.left_out;
        self.delays.extend(outcome.delays.iter().filter(|delay| delay.at >= settling));
        let control = [counters.control_sent, counters.control_asked, counters.control_answered];
        for (sum, more) in self.control.iter_mut().zip(control) {
            *sum += more;
        }
    }

    fn text(&self) -> String {
        let verdict = match (self.interrupted, self.passed) {
            (true, _) => "interrupted",
            (false, true) => "every report answered",
            (false, false) => "NOT all answered",
        };
        let mut text = format!("{verdict}: {} of {} reports", self.answered, self.measured);
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            ", {} values, {} devices, {} associations, {} sent again, {} forgotten",
            self.values, self.devices, self.associations, self.repeated, self.forgotten
        );
        let [median, p99, longest] = self.delay_ms;
        let _ = write!(
            text,
            "; delay of answers: median {median} ms, 99 % within {p99} ms, at most {longest} ms"
        );
        let [_, late, latest] = self.late_ms;
        let _ = write!(text, "; reports made late: 99 % by up to {late} ms, at most {latest} ms");
        if self.left_out > 0 {
            let _ = write!(text, ", {} not made", self.left_out);
        }
        let [sent, asked, answered] = self.control;
        if sent > 0 {
            let _ = write!(text, "; {sent} control messages, {answered} of {asked} answered");
        }
        if self.unanswered > 0 && !self.interrupted {
            let _ = write!(text, "; {} devices have unanswered reports", self.unanswered);
        }
        text
    }
}
