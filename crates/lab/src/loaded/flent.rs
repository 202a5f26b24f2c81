//! flent's test `ping` beside STAMP: round trips by ICMP, and by UDP where irtt is installed.

use crate::analysis::{quantile, sorted};
use crate::bed::{Bed, BedEnd};
use crate::round_trips::PeerServer;
use crate::stamp::{StampSettings, measure};
use gatewright_testbed::Needs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::process::{Command, Stdio};
use std::time::Duration;

/// What flent and STAMP saw of one path at the same time: medians in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlentRoundTrips {
    /// By STAMP.
    pub stamp_us: f64,
    /// By flent's ping.
    pub icmp_us: f64,
    /// By irtt, which flent runs for UDP; `None` without it.
    pub udp_us: Option<f64>,
}

/// Seconds of flent's test.
const SECONDS: u32 = 10;
/// Seconds that flent takes before and after it.
const AROUND: u32 = 4;
const RATE: u32 = 50;
/// The port of irtt where flent asks for it; the namespace of the bed has no other server there.
const IRTT_PORT: u16 = 2112;

/// irtt's server at the receiver, for flent; `None` without irtt or flent.
pub(super) fn irtt_server(bed: &Bed, at: Ipv4Addr) -> Result<Option<PeerServer>, String> {
    if Needs::new().program("flent").program("irtt").missing().is_some() {
        return Ok(None);
    }
    let at = SocketAddrV4::new(at, IRTT_PORT);
    let serve = || {
        let mut command = Command::new("irtt");
        command.args(["server", "-b", &at.to_string()]).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    };
    let server = bed.at_end(BedEnd::Receiver, serve)?.map_err(|error| format!("irtt: {error}"))?;
    Ok(Some(PeerServer(server)))
}

/// Both at the same time; `None` without flent.
pub(super) fn beside_stamp(
    bed: &Bed,
    stamp: SocketAddr,
    to: Ipv4Addr,
) -> Result<Option<FlentRoundTrips>, String> {
    if Needs::new().program("flent").missing().is_some() {
        return Ok(None);
    }
    let (count, wait) = ((SECONDS + AROUND) * RATE, Duration::from_secs(2));
    let settings = StampSettings { count, rate: RATE, octets: 60, wait, key: None };
    std::thread::scope(|scope| {
        let flent = scope.spawn(|| bed.at_end(BedEnd::Sender, || flent_ping(to))?);
        let report = bed.at_end(BedEnd::Sender, || measure(stamp, &settings, &mut |_| {}))?;
        let said = flent.join().map_err(|_| "flent has ended".to_owned())??;
        let report = report.map_err(|error| format!("STAMP: {error}"))?;
        let trips = report.round_trip.ok_or_else(|| "no reflection came back".to_owned())?;
        let median = |column| median_us(&said, column);
        let icmp_us = median("ICMP").ok_or_else(|| format!("flent: no round trip: {said}"))?;
        Ok(Some(FlentRoundTrips { stamp_us: trips.p50, icmp_us, udp_us: median("UDP") }))
    })
}

/// What flent's test `ping` says, as CSV.
fn flent_ping(to: Ipv4Addr) -> Result<String, String> {
    // Its file of results goes where nobody looks for it, and is removed.
    let folder = std::env::temp_dir().join(format!("gatewright-flent-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let step = (1.0 / f64::from(RATE)).to_string();
    let mut command = Command::new("flent");
    command.args(["ping", "-H", &to.to_string(), "-l", &SECONDS.to_string(), "-s", &step]);
    command.args(["-f", "csv", "-o", "-", "-D"]).arg(&folder).stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("flent: {error}"));
    let _removed = std::fs::remove_dir_all(&folder);
    Ok(String::from_utf8_lossy(&output?.stdout).into_owned())
}

/// The median of a column of flent's CSV, whose name ends so, in microseconds.
fn median_us(said: &str, column: &str) -> Option<f64> {
    let mut lines = said.lines().skip_while(|line| !line.starts_with("ping,"));
    let at = lines.next()?.split(',').position(|name| name.ends_with(column))?;
    let times: Vec<f64> = lines.filter_map(|line| line.split(',').nth(at)?.parse().ok()).collect();
    quantile(&sorted(&times), 0.5).map(|ms| ms * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_read_of_what_flent_says() {
        // flent 2.1.1.
        let said = "ping,Ping (ms) UDP,Ping (ms) ICMP\n0.0,,0.074\n0.05,,0.06\n\
                    0.1,12.5,0.061\n0.15000000000000002,10.5,\n0.2,11.5,0.055\n";
        assert_eq!(median_us(said, "UDP"), Some(11_500.0));
        assert!(median_us(said, "ICMP").is_some_and(|us| (60.0..=61.0).contains(&us)));
        assert_eq!(median_us("No data to aggregate.\n", "ICMP"), None);
    }
}
