//! File descriptors that a description needs to run at all, before any connection of a peer.

use gatewright_config::{Config, PlaneMode};
use gatewright_descriptors::{Shortage, require};

/// Standard streams, control socket with its clients, log, signals, and files read at the start.
const PROCESS: u64 = 24;
/// The CSE: its runtime, its database with log and index, the threads that read and move rows.
const CSE: u64 = 24;
/// A listener of the CSE or of the devices, and its broker's connection.
const LISTENER: u64 = 1;
/// A link: its sockets or rings, its maps and programs in the kernel, its readiness.
const LINK: u64 = 8;
/// A worker: its readiness and its waker.
const WORKER: u64 = 2;
/// A TCP proxy or a UDP gateway: listener, readiness, waker, name resolution.
const PROXY: u64 = 6;
/// A program on one loop; each further loop has readiness, waker and listeners of its own.
const PROGRAM: u64 = 8;
/// The data plane's process: its control connection, its regions of memory, its wakers.
const DATA_PROCESS: u64 = 12;
/// The web interface: its listener, its loop.
const WEB: u64 = 6;
/// Connections of peers without which listeners serve nobody.
const PEERS: u64 = 8;

/// File descriptors that `config` needs to run at all. Connections of peers need more, up to the
/// maximum of each part, which a lower limit only restricts.
pub(crate) fn needed(config: &Config) -> u64 {
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    let links = count(config.links.len());
    let workers = if links == 0 { 0 } else { u64::from(config.workers) };
    let proxies = count(config.tcp_proxies.len() + config.udp_gateways.len());
    let programs = count(config.programs.len());
    let cse = config.cse.as_ref().map_or(0, |cse| {
        let places = [&cse.http, &cse.coap, &cse.ws].into_iter().flatten().count();
        let broker = usize::from(cse.mqtt.is_some());
        CSE + count(places + broker) * LISTENER
    });
    let devices = config.devices.as_ref().map_or(0, |devices| {
        2 + count(1 + usize::from(devices.udp.is_some()) + usize::from(devices.tls.is_some()))
            * LISTENER
    });
    let process = match config.plane_mode {
        PlaneMode::Process if links > 0 => DATA_PROCESS,
        PlaneMode::Process | PlaneMode::Threads => 0,
    };
    let own = PROCESS
        + cse
        + devices
        + links * LINK
        + workers * WORKER
        + proxies * PROXY
        + programs * PROGRAM
        + process
        + if config.web.is_some() { WEB } else { 0 };
    // The last quarter is for no connection of a peer.
    (own + PEERS).saturating_mul(4) / 3
}

/// Raises the soft limit to what `config` needs to run at all.
///
/// # Errors
///
/// [`Shortage`] if the hard limit is lower.
pub(crate) fn allow(config: &Config) -> Result<(), Shortage> {
    require(needed(config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_diagnostic::SourceId;

    fn of(text: &str) -> u64 {
        let parsed = gatewright_config::parse(SourceId::default(), text);
        needed(&parsed.config.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics)))
    }

    /// More parts need more; what runs within the usual soft limit of 1,024 is not refused.
    #[test]
    fn each_part_adds_its_need() {
        let cse = "[cse]\nbase = \"gw\"\nid = \"/gw\"\nhttp = \"127.0.0.1:8080\"\n";
        let devices = format!("{cse}[devices]\nlisten = \"127.0.0.1:9464\"\n");
        let link = |name: &str| {
            format!("[link.{name}]\ndevice = \"{name}\"\naddresses = [\"192.0.2.1/24\"]\n")
        };
        let mut last = 0;
        for text in [cse.to_owned(), devices.clone(), format!("{devices}{}", link("a"))] {
            let need = of(&text);
            assert!(need > last && need < 1024, "{need}");
            last = need;
        }
        let workers = format!("[planes]\ndata_cores = 4\n{}", link("a"));
        assert!(of(&workers) > of(&link("a")));
        let process = format!("[planes]\nmode = \"process\"\n{}", link("a"));
        assert!(of(&process) > of(&link("a")));
    }
}
