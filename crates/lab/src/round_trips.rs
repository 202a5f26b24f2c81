//! Round trips by our STAMP sender beside those by irtt and iperf3, in turn, over one path of known
//! latency.

use crate::bed::{Bed, BedEnd};
use crate::stamp::{StampReflectorMode, StampSettings, measure, reflect};
use gatewright_config::{Experiment, LinkShape, RelayKind};
use serde_json::Value;
use std::net::{SocketAddr, SocketAddrV4};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Medians of round trips over the same path, in microseconds, turn by turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoundTripMedians {
    /// By STAMP.
    pub stamp_us: Vec<f64>,
    /// By irtt.
    pub irtt_us: Vec<f64>,
    /// By iperf3: the mean that TCP itself has smoothed; none without the program.
    pub iperf3_us: Vec<f64>,
}

/// The server of a peer, until it is dropped.
pub(crate) struct PeerServer(pub(crate) Child);

impl Drop for PeerServer {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

/// Packets of a turn, and packets a second.
const PACKETS: u32 = 100;
const RATE: u32 = 50;
/// Time for irtt's server to listen.
const LISTENS_WITHIN: Duration = Duration::from_secs(10);

/// Measures over a kernel that routes between two links of this latency; each tool has `turns` turns
/// of a hundred packets. It needs namespaces and irtt.
///
/// # Errors
///
/// In words, what failed.
pub fn round_trips_beside_irtt(
    experiment: &Experiment,
    latency: Duration,
    turns: u32,
) -> Result<RoundTripMedians, String> {
    let latency_us = u32::try_from(latency.as_micros()).unwrap_or(u32::MAX);
    let link = Some(LinkShape { latency_us, capacity_mbps: 0.0, jitter_us: 0, loss_pct: 0.0 });
    let mut bed = Bed::build(&Experiment { link, ..experiment.clone() }, true)?;
    bed.prepare(RelayKind::Kernel)?;
    let at = bed.target(RelayKind::Kernel);
    let irtt = SocketAddrV4::new(*at.ip(), at.port() + 1);
    let serve = || {
        let mut command = Command::new("irtt");
        command.args(["server", "-b", &irtt.to_string()]).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    };
    let server = bed.at_end(BedEnd::Receiver, serve)?.map_err(|error| format!("irtt: {error}"))?;
    let _server = PeerServer(server);
    let iperf3 = SocketAddrV4::new(*at.ip(), at.port() + 2);
    let serve = || iperf3_server(iperf3);
    // Who has none goes without.
    let server = bed.at_end(BedEnd::Receiver, serve)?.ok().map(PeerServer);
    let iperf3 = server.as_ref().map(|_| iperf3);
    let (bed, stop) = (&bed, &AtomicBool::new(false));
    let (tell, told) = channel();
    std::thread::scope(|scope| {
        let work = move || {
            let mut ready = |at: SocketAddr| {
                let _gone = tell.send(at);
            };
            let mut is_stop_requested = || stop.load(Ordering::Relaxed);
            let mode = (StampReflectorMode::Stateless, None);
            reflect(at.into(), mode, &mut ready, &mut is_stop_requested)
        };
        let reflector = scope.spawn(move || bed.at_end(BedEnd::Receiver, work));
        let medians = told
            .recv_timeout(LISTENS_WITHIN)
            .map_err(|_| "the reflector does not start".to_owned())
            .and_then(|at| take_turns(bed, (at, irtt, iperf3), turns));
        stop.store(true, Ordering::Relaxed);
        let _counters = reflector.join();
        medians
    })
}

fn take_turns(
    bed: &Bed,
    (stamp, irtt, iperf3): (SocketAddr, SocketAddrV4, Option<SocketAddrV4>),
    turns: u32,
) -> Result<RoundTripMedians, String> {
    let wait = Duration::from_secs(1);
    let settings = StampSettings { count: PACKETS, rate: RATE, octets: 60, wait, key: None };
    let by_stamp = || {
        let report = bed.at_end(BedEnd::Sender, || measure(stamp, &settings, &mut |_| {}))?;
        let report = report.map_err(|error| format!("STAMP: {error}"))?;
        report.round_trip.map(|it| it.p50).ok_or_else(|| "no reflection came back".to_owned())
    };
    let by_irtt = || bed.at_end(BedEnd::Sender, || irtt_median(irtt))?;
    // Its server listens some time after it has begun; the first of it is for that alone.
    let begun = Instant::now();
    while let Err(why) = by_irtt() {
        if begun.elapsed() > LISTENS_WITHIN {
            return Err(why);
        }
    }
    let mut medians = RoundTripMedians::default();
    for turn in 0..turns {
        // Ours and irtt's, then irtt's and ours, so that drift falls on both alike.
        if turn % 2 == 0 {
            medians.stamp_us.push(by_stamp()?);
            medians.irtt_us.push(by_irtt()?);
        } else {
            medians.irtt_us.push(by_irtt()?);
            medians.stamp_us.push(by_stamp()?);
        }
        if let Some(to) = iperf3 {
            medians.iperf3_us.push(bed.at_end(BedEnd::Sender, || iperf3_mean(to))??);
        }
    }
    Ok(medians)
}

fn iperf3_server(at: SocketAddrV4) -> std::io::Result<Child> {
    let mut command = Command::new("iperf3");
    command.args(["-s", "-B", &at.ip().to_string(), "-p", &at.port().to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

/// The mean round trip by iperf3's client, in microseconds: of TCP at 8 Mbit/s, in blocks of ten
/// segments, so that no acknowledgement is delayed for want of a second segment.
fn iperf3_mean(to: SocketAddrV4) -> Result<f64, String> {
    let mut command = Command::new("iperf3");
    command.args(["-c", &to.ip().to_string(), "-p", &to.port().to_string(), "--json"]);
    command.args(["-b", "8M", "-l", "14480", "-t", &(PACKETS / RATE).to_string()]);
    let output =
        command.stdin(Stdio::null()).output().map_err(|error| format!("iperf3: {error}"))?;
    let answer: Value = serde_json::from_slice(&output.stdout)
        .map_err(|_| format!("iperf3: {}", String::from_utf8_lossy(&output.stderr).trim()))?;
    let mean = answer.pointer("/end/streams/0/sender/mean_rtt").and_then(Value::as_f64);
    let why = || answer.get("error").map_or("no round trip".to_owned(), ToString::to_string);
    mean.ok_or_else(|| format!("iperf3: {}", why()))
}

/// The median round trip by irtt's client, in microseconds.
fn irtt_median(to: SocketAddrV4) -> Result<f64, String> {
    let (interval, time) = (1000 / RATE, PACKETS / RATE);
    let mut command = Command::new("irtt");
    command.args(["client", "-Q", "-o", "-", "-l", "60", "-i", &format!("{interval}ms")]);
    command.args(["-d", &format!("{time}s"), "--wait=1s", &to.to_string()]);
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("irtt: {error}"))?;
    let answer: Value = serde_json::from_slice(&output.stdout)
        .map_err(|_| format!("irtt: {}", String::from_utf8_lossy(&output.stderr).trim()))?;
    let median = answer.pointer("/stats/rtt/median").and_then(Value::as_f64);
    // It tells nanoseconds.
    median.map(|it| it / 1000.0).ok_or_else(|| "irtt: no round trip".to_owned())
}
