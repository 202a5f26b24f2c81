//! `gatewright lab stamp`.

use anyhow::Result;
use gatewright_command::{
    description::read_octets,
    exit::{Exit, Failure},
    face::Face,
};
use gatewright_lab::stamp::{
    STAMP_PORT, StampKey, StampReflectorMode, StampReport, StampSettings, measure_until, reflect,
};
use serde_json::json;
use std::fmt::Write;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Measures delays and losses to any host that reflects test packets of STAMP (RFC 8762).
///
/// Many routers have a reflector, under the name STAMP or TWAMP Light; `reflect` is one.
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true)]
pub(super) struct Stamp {
    #[command(subcommand)]
    verb: StampVerb,
}

#[derive(Debug, clap::Subcommand)]
enum StampVerb {
    Reflect(StampReflect),
    Send(StampSend),
}

/// Reflects test packets, until interrupted.
#[derive(Debug, clap::Args)]
struct StampReflect {
    /// Address and port. Whoever reaches it is answered, unless there is a key.
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), STAMP_PORT))]
    listen: SocketAddr,
    /// Number reflected packets in each session, so that senders can tell losses on both ways apart.
    #[arg(long)]
    stateful: bool,
    #[command(flatten)]
    key: StampKeyFile,
    /// Stop by itself after this long.
    #[arg(long, value_name = "SECONDS")]
    stop_after: Option<u64>,
}

/// Sends test packets to a reflector, and tells delays, losses and the clocks' difference.
///
/// Losses there and on the way back are told apart between the first and the last packet that came back,
/// if the reflector numbers what it reflects. Interrupted, it tells what it has measured and ends with 1.
#[derive(Debug, clap::Args)]
struct StampSend {
    /// The reflector; port 862 unless it is given.
    #[arg(value_name = "HOST[:PORT]")]
    to: String,
    /// Packets.
    #[arg(long, default_value_t = 100, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,
    /// Packets a second.
    #[arg(long, default_value_t = 20, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Octets of a packet without headers: 44, with a key 112, or by padding four more than that, or above.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(44..=8972))]
    octets: Option<u16>,
    /// How long the last reflection is waited for.
    #[arg(long, default_value_t = 1000, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u16).range(1..))]
    wait_ms: u16,
    #[command(flatten)]
    key: StampKeyFile,
}

/// The key of authenticated sessions.
#[derive(Debug, clap::Args)]
pub(super) struct StampKeyFile {
    /// File with the key of authenticated sessions: all its octets, 16 at the least, without a line feed
    /// at the end.
    #[arg(long, value_name = "FILE")]
    pub(super) key_file: Option<PathBuf>,
}

impl StampKeyFile {
    pub(super) fn read(&self) -> Result<Option<StampKey>, Failure> {
        let Some(path) = &self.key_file else { return Ok(None) };
        let shown = path.to_string_lossy();
        let octets = read_octets(&shown, KEY_FILE_MAX)?;
        let key = octets.strip_suffix(b"\n").unwrap_or(&octets);
        if key.len() < KEY_OCTETS_MIN {
            let message = format!(
                "{shown}: a key of {} octets can be guessed: {KEY_OCTETS_MIN} at the least, as by \
                 `head -c 32 /dev/urandom > {shown}`",
                key.len()
            );
            return Err(Failure::new(Exit::Configuration, message));
        }
        Ok(Some(StampKey::new(key)))
    }
}

/// Octets of a key at the least: as many as the truncated HMAC of a packet has (RFC 8762 §4.4).
const KEY_OCTETS_MIN: usize = 16;

/// Octets of a key file at the most; HMAC-SHA-256 makes 32 of any that are more than 64.
const KEY_FILE_MAX: u64 = 64 << 10;

/// How often progress is told.
const TOLD_EVERY: Duration = Duration::from_secs(2);

/// Octets of packets without padding (RFC 8762 §4.2).
const UNAUTHENTICATED_OCTETS: u16 = 44;
const AUTHENTICATED_OCTETS: u16 = 112;

impl Stamp {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        match self.verb {
            StampVerb::Reflect(verb) => verb.run(face),
            StampVerb::Send(verb) => verb.run(face),
        }
    }
}

impl StampReflect {
    fn run(self, face: Face) -> Result<Exit> {
        let stop = Arc::new(AtomicBool::new(false));
        let its = Arc::clone(&stop);
        gatewright_command::signals::on_stop(move || its.store(true, Ordering::Relaxed))?;
        let end = self.stop_after.map(|after| Instant::now() + Duration::from_secs(after));
        let (key, stateful) = (self.key.read()?, self.stateful);
        let mode =
            if stateful { StampReflectorMode::Stateful } else { StampReflectorMode::Stateless };
        let mut said = Ok(());
        let mut ready = |at: SocketAddr| {
            said = face.line(&json!({ "listens": at, "mode": mode }), || {
                let mode = if stateful { "stateful" } else { "stateless" };
                format!("reflects at {at}, {mode}")
            });
        };
        let mut is_stop_requested =
            || stop.load(Ordering::Relaxed) || end.is_some_and(|end| Instant::now() >= end);
        let counters = reflect(self.listen, (mode, key), &mut ready, &mut is_stop_requested);
        let counters = counters.map_err(|error| {
            let exit = match error.kind() {
                ErrorKind::PermissionDenied => Exit::Permission,
                _ => Exit::Unavailable,
            };
            Failure::new(exit, format!("cannot reflect at {}: {error}", self.listen))
        })?;
        said?;
        face.line(&counters, || {
            format!(
                "{} reflected; {} malformed, {} not authentic, {} reflections, {} sessions displaced, \
                 {} not sent",
                counters.reflected,
                counters.malformed,
                counters.not_authentic,
                counters.reflections,
                counters.sessions_displaced,
                counters.not_sent
            )
        })?;
        Ok(Exit::Success)
    }
}

impl StampSend {
    /// Octets of a packet; what no packet can have is refused, and not sent as fewer or more.
    fn packet_octets(&self) -> Result<u16, Failure> {
        /// Padding begins with four octets.
        const PADDING_MIN: u16 = 4;
        let (least, whose) = if self.key.key_file.is_some() {
            (AUTHENTICATED_OCTETS, "an authenticated packet")
        } else {
            (UNAUTHENTICATED_OCTETS, "a packet")
        };
        let octets = self.octets.unwrap_or(least);
        if octets == least || octets >= least + PADDING_MIN {
            return Ok(octets);
        }
        let more = least + PADDING_MIN;
        let message = format!(
            "--octets {octets}: {whose} has {least} octets, or with padding {more} or more"
        );
        Err(Failure::new(Exit::Usage, message))
    }

    fn run(self, face: Face) -> Result<Exit> {
        let octets = self.packet_octets()?;
        let to = address(&self.to)?;
        let settings = StampSettings {
            count: self.count,
            rate: self.rate,
            octets,
            wait: Duration::from_millis(self.wait_ms.into()),
            key: self.key.read()?,
        };
        let stop = Arc::new(AtomicBool::new(false));
        let its = Arc::clone(&stop);
        gatewright_command::signals::on_stop(move || its.store(true, Ordering::Relaxed))?;
        let is_stop_requested = || stop.load(Ordering::Relaxed);
        let mut told = Instant::now();
        let mut progress = |sent| {
            if told.elapsed() >= TOLD_EVERY {
                told = Instant::now();
                face.note(&format!("{sent} of {} packets sent", self.count));
            }
        };
        let report = measure_until(to, &settings, &mut progress, &is_stop_requested);
        let report = report.map_err(|error| {
            Failure::new(Exit::Unavailable, format!("cannot send to {to}: {error}"))
        })?;
        let is_interrupted = is_stop_requested();
        if is_interrupted {
            face.note(&format!("interrupted: {} of {} packets sent", report.sent, self.count));
        }
        if report.reflected == 0 {
            let message = format!(
                "{to} has reflected none of {} packets{}: is a reflector there, with the same key, \
                 and does no filter stand between?",
                report.sent,
                if report.foreign > 0 {
                    format!(", and sent {} that are no reflections of them", report.foreign)
                } else {
                    String::new()
                }
            );
            return Err(Failure::new(Exit::Negative, message).into());
        }
        face.answer(&report, || text(to, &report))?;
        Ok(if is_interrupted { Exit::Negative } else { Exit::Success })
    }
}

/// The first address of a host, with the protocol's port unless there is one.
fn address(text: &str) -> Result<SocketAddr, Failure> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, STAMP_PORT));
    }
    let has_port = text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let with_port = if has_port { text.to_owned() } else { format!("{text}:{STAMP_PORT}") };
    let found = with_port.to_socket_addrs().map(|mut all| all.next());
    match found {
        Ok(Some(address)) => Ok(address),
        Ok(None) => Err(Failure::new(Exit::Unavailable, format!("{text} has no address"))),
        Err(error) => Err(Failure::new(Exit::Unavailable, format!("{text}: {error}"))),
    }
}

fn text(to: SocketAddr, report: &StampReport) -> String {
    let StampReport { sent, reflected, repeated, foreign, lost_either: either, .. } = report;
    let mut text = format!("{to}: {sent} sent, {reflected} reflected");
    // Writing to a string cannot fail.
    let _ = match (report.lost_there, report.lost_back) {
        (Some(there), Some(back)) => write!(text, "; lost there {there}, on the way back {back}"),
        _ => write!(text, "; {either} lost on either way"),
    };
    let _ = match report.lost_unknown {
        Some(why) => writeln!(text, ", not told apart: {why}"),
        None if *either > 0 => {
            writeln!(text, ", and {either} before the first or after the last that came back")
        }
        None => writeln!(text),
    };
    if repeated + foreign > 0 {
        let _ = writeln!(text, "{repeated} reflected again, {foreign} datagrams of others");
    }
    for (name, delay) in [("round trip", &report.round_trip), ("in the reflector", &report.inside)]
    {
        if let Some(it) = delay {
            let _ = writeln!(
                text,
                "{name}: median {:.1} µs, 99 % within {:.1}, {:.1} to {:.1} ({} packets)",
                it.p50, it.p99, it.min, it.max, it.count
            );
        }
    }
    if let Some(jitter) = &report.jitter {
        let _ = writeln!(text, "jitter: mean {:.1} µs, at most {:.1}", jitter.mean, jitter.max);
    }
    if let (Some(offset), Some(error)) = (report.offset_us, report.offset_error_us) {
        let _ = writeln!(
            text,
            "the reflector's clock is {:.1} µs {}, to within {error:.1}",
            offset.abs(),
            if offset < 0.0 { "behind" } else { "ahead" }
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reflector_without_a_port_is_at_862() {
        for (text, wanted) in [
            ("192.0.2.1", "192.0.2.1:862"),
            ("192.0.2.1:5000", "192.0.2.1:5000"),
            ("2001:db8::1", "[2001:db8::1]:862"),
            ("[2001:db8::1]:5000", "[2001:db8::1]:5000"),
        ] {
            assert_eq!(address(text).unwrap(), wanted.parse().unwrap(), "{text}");
        }
        assert!(address("").is_err());
    }
}
