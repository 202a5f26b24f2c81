//! Round trips while streams fill the path both ways, by STAMP and by ping at the same time.
//!
//! The method is that of flent's test RRUL (realtime response under load): four TCP streams up, four
//! down, and a ping beside them. It is repeated here with the kernel's TCP and iputils' ping, as
//! flent's own RRUL runs netperf, which Debian's main archive does not have. Where flent is installed,
//! its test `ping` (ICMP, and UDP by irtt) runs beside these streams, too.

mod flent;

pub use flent::FlentRoundTrips;

use crate::analysis::{quantile, sorted};
use crate::bed::{Bed, BedEnd};
use crate::stamp::{StampReflectorMode, StampSettings, measure, reflect};
use gatewright_config::{Experiment, LinkShape, RelayKind};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

/// What both tools saw of one path, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadedRoundTrips {
    /// Median by STAMP.
    pub stamp_us: f64,
    /// Median by ping.
    pub ping_us: f64,
    /// What flent saw afterwards, and STAMP at the same time; `None` without the program.
    pub flent: Option<FlentRoundTrips>,
    /// Octets of the streams up, and down.
    pub octets: [u64; 2],
}

/// Streams in each direction, as RRUL has.
const STREAMS: usize = 4;
/// Packets of each tool, and packets a second.
const PACKETS: u32 = 200;
const RATE: u32 = 50;
/// Time for the streams to fill the path before the first packet.
const FILLS_WITHIN: Duration = Duration::from_secs(1);
/// How long a call waits before it looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);
/// Time for the reflector to listen.
const LISTENS_WITHIN: Duration = Duration::from_secs(10);

/// Measures over a kernel that routes between two links of this shape. It needs namespaces and ping.
///
/// # Errors
///
/// In words, what failed.
pub fn round_trips_under_load(
    experiment: &Experiment,
    link: LinkShape,
) -> Result<LoadedRoundTrips, String> {
    let mut bed = Bed::build(&Experiment { link: Some(link), ..experiment.clone() }, true)?;
    bed.prepare(RelayKind::Kernel)?;
    let at = bed.target(RelayKind::Kernel);
    let sink = SocketAddrV4::new(*at.ip(), at.port() + 1);
    let listener = bed.at_end(BedEnd::Receiver, || TcpListener::bind(sink))?;
    let listener = listener.map_err(|error| format!("streams: {error}"))?;
    let _irtt = flent::irtt_server(&bed, *at.ip())?;
    let (bed, stop) = (&bed, &AtomicBool::new(false));
    let (up, down) = (&AtomicU64::new(0), &AtomicU64::new(0));
    let (tell, told) = channel();
    std::thread::scope(|scope| {
        let reflector = scope.spawn(move || {
            let mut ready = |at: SocketAddr| {
                let _gone = tell.send(at);
            };
            let mut is_stop_requested = || stop.load(Ordering::Relaxed);
            let mode = (StampReflectorMode::Stateless, None);
            bed.at_end(BedEnd::Receiver, || {
                reflect(at.into(), mode, &mut ready, &mut is_stop_requested)
            })
        });
        let streams = (0..STREAMS).try_for_each(|_| {
            let (near, far) = stream(bed, &listener, sink)?;
            scope.spawn(move || fill(near, stop));
            scope.spawn(move || drain(far, stop, up));
            let (near, far) = stream(bed, &listener, sink)?;
            scope.spawn(move || fill(far, stop));
            scope.spawn(move || drain(near, stop, down));
            Ok(())
        });
        let stamp = told.recv_timeout(LISTENS_WITHIN);
        let stamp = stamp.map_err(|_| "the reflector does not start".to_owned());
        let medians = streams.and(stamp).and_then(|stamp| {
            let by_ping = medians(bed, stamp, *at.ip())?;
            Ok((by_ping, flent::beside_stamp(bed, stamp, *at.ip())?))
        });
        stop.store(true, Ordering::Relaxed);
        let _counters = reflector.join();
        let ((stamp_us, ping_us), flent) = medians?;
        let octets = [up, down].map(|count| count.load(Ordering::Relaxed));
        Ok(LoadedRoundTrips { stamp_us, ping_us, flent, octets })
    })
}

/// A stream from the sender to the receiver, by its ends there.
fn stream(
    bed: &Bed,
    listener: &TcpListener,
    sink: SocketAddrV4,
) -> Result<(TcpStream, TcpStream), String> {
    let near = bed.at_end(BedEnd::Sender, || TcpStream::connect(sink))?;
    let near = near.map_err(|error| format!("streams: {error}"))?;
    let (far, _) = listener.accept().map_err(|error| format!("streams: {error}"))?;
    Ok((near, far))
}

/// The medians by STAMP and by ping at the same time, once the path is full.
fn medians(bed: &Bed, stamp: SocketAddr, to: Ipv4Addr) -> Result<(f64, f64), String> {
    std::thread::sleep(FILLS_WITHIN);
    let wait = Duration::from_secs(2);
    let settings = StampSettings { count: PACKETS, rate: RATE, octets: 60, wait, key: None };
    std::thread::scope(|scope| {
        let ping = scope.spawn(|| bed.at_end(BedEnd::Sender, || ping_median(to))?);
        let report = bed.at_end(BedEnd::Sender, || measure(stamp, &settings, &mut |_| {}))?;
        let ping = ping.join().map_err(|_| "ping has ended".to_owned())?;
        let report = report.map_err(|error| format!("STAMP: {error}"))?;
        let trips = report.round_trip.ok_or_else(|| "no reflection came back".to_owned())?;
        Ok((trips.p50, ping?))
    })
}

/// Writes until it is to stop, or the stream ends.
fn fill(mut stream: TcpStream, stop: &AtomicBool) {
    let _bounded = stream.set_write_timeout(Some(LOOK));
    let octets = [0; 16 << 10];
    while !stop.load(Ordering::Relaxed) {
        match stream.write(&octets) {
            Err(error) if !is_idle(error.kind()) => return,
            _ => {}
        }
    }
}

/// Reads and counts until it is to stop, or the stream ends.
fn drain(mut stream: TcpStream, stop: &AtomicBool, count: &AtomicU64) {
    let _bounded = stream.set_read_timeout(Some(LOOK));
    let mut octets = [0; 16 << 10];
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut octets) {
            Ok(0) => return,
            Ok(len) => {
                count.fetch_add(u64::try_from(len).unwrap_or(0), Ordering::Relaxed);
            }
            Err(error) if !is_idle(error.kind()) => return,
            Err(_) => {}
        }
    }
}

fn is_idle(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// The median round trip by ping, in microseconds.
fn ping_median(to: Ipv4Addr) -> Result<f64, String> {
    let interval = Duration::from_secs(1) / RATE;
    let mut command = Command::new("ping");
    command.args(["-n", "-c", &PACKETS.to_string(), "-W", "2"]);
    command.args(["-i", &interval.as_secs_f64().to_string(), &to.to_string()]);
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("ping: {error}"))?;
    let times = sorted(&ping_times(&String::from_utf8_lossy(&output.stdout)));
    quantile(&times, 0.5).map(|ms| ms * 1000.0).ok_or_else(|| "ping: no answer came".to_owned())
}

/// The round trips in what ping has said, in milliseconds.
fn ping_times(said: &str) -> Vec<f64> {
    let time = |line: &str| line.split_once(" time=")?.1.split_once(' ')?.0.parse().ok();
    said.lines().filter_map(time).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_are_read_of_what_ping_says() {
        // iputils 20221126.
        let said = "PING 127.0.0.1 (127.0.0.1) 56(84) bytes of data.\n\
                    64 bytes from 127.0.0.1: icmp_seq=1 ttl=64 time=0.024 ms\n\
                    64 bytes from 127.0.0.1: icmp_seq=2 ttl=64 time=12.3 ms (DUP!)\n\n\
                    --- 127.0.0.1 ping statistics ---\n\
                    2 packets transmitted, 2 received, 0% packet loss, time 1001ms\n\
                    rtt min/avg/max/mdev = 0.024/0.033/0.043/0.009 ms\n";
        assert_eq!(ping_times(said), [0.024, 12.3]);
        assert_eq!(ping_times(""), Vec::<f64>::new());
    }
}
