//! `gatewright olsr`: a router of OLSR on this machine.

use crate::{
    exit::{Exit, Failure},
    face::Face,
};
use anyhow::Result;
use gatewright_olsr::{OlsrNetwork, OlsrRouter, OlsrRouterError, OlsrSetup};
use serde_json::{Value, json};
use std::fmt::Write;
use std::hash::{BuildHasher, RandomState};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The shape of its answer.
pub const JSON: &str = "a line at each change: {main_address, neighbours, relays, routes: [{to, via, interface, hops}], \
     refused: [{to, errno}], counters: {NAME: number}, send_failed}";

/// How often changes are looked for, and how soon a signal ends it.
const STEP: Duration = Duration::from_millis(200);

/// Between two lines: forged packets could fill a log.
const SHOW_EVERY: Duration = Duration::from_secs(1);

/// Routes IPv4 by OLSR (RFC 3626) over interfaces of this machine, until interrupted.
///
/// `gatewright olsr wlan0 eth1` finds other routers of OLSR on these interfaces, and writes routes to
/// all nodes of the network into the kernel's main table (`ip route show proto 98`). The address of
/// the first interface names this node. It prints neighbours and routes when they change, and removes
/// its routes when it ends. The kernel forwards: `sysctl net.ipv4.ip_forward=1`. Nobody is
/// authenticated: who can send on an interface can change routes.
#[derive(Debug, clap::Args)]
pub struct Olsr {
    /// Interfaces, each with an IPv4 address.
    #[arg(required = true, value_name = "INTERFACE")]
    interfaces: Vec<String>,
    /// A network that this node is a gateway to (HNA); may be given several times. 0.0.0.0/0 is a
    /// way to the Internet.
    #[arg(long, value_name = "NETWORK", value_parser = network)]
    network: Vec<OlsrNetwork>,
    /// Readiness to forward for others, 0 (never) to 7 (always).
    #[arg(long, default_value_t = 3, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(0..=7))]
    willingness: u8,
    /// Milliseconds between two HELLOs.
    #[arg(long, default_value_t = 2_000, value_name = "MS", value_parser = clap::value_parser!(u64).range(50..=60_000))]
    hello: u64,
    /// Milliseconds between two TCs, MIDs and HNAs.
    #[arg(long, default_value_t = 5_000, value_name = "MS", value_parser = clap::value_parser!(u64).range(50..=300_000))]
    topology: u64,
    /// Use a link only after it has carried several packets (RFC 3626 §14).
    #[arg(long)]
    hysteresis: bool,
    /// Stop by itself after this many seconds.
    #[arg(long, value_name = "SECONDS")]
    stop_after: Option<u64>,
}

/// A network as ADDRESS/BITS.
fn network(text: &str) -> Result<OlsrNetwork, String> {
    let wrong = || format!("`{text}` is no IPv4 network: ADDRESS/BITS, such as 192.168.7.0/24");
    let (address, len) = text.split_once('/').ok_or_else(wrong)?;
    let address: Ipv4Addr = address.parse().map_err(|_| wrong())?;
    let len = len.parse().ok().filter(|len| *len <= 32).ok_or_else(wrong)?;
    let network = OlsrNetwork::new(address, len);
    if network.address == address {
        Ok(network)
    } else {
        Err(format!("{text} has bits beyond its prefix; the network is {network}"))
    }
}

impl Olsr {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// As [`Verbs::run`](crate::Verbs::run).
    pub fn run(self, face: Face) -> Result<Exit> {
        let stop = Arc::new(AtomicBool::new(false));
        let its = Arc::clone(&stop);
        crate::signals::on_stop(move || its.store(true, Ordering::Relaxed))?;
        let end = self.stop_after.map(|after| Instant::now() + Duration::from_secs(after));
        let mut router = OlsrRouter::open(&self.setup()).map_err(|error| failure(&error))?;
        if router.left_over() > 0 {
            face.note(&format!("removed {} routes of an earlier router", router.left_over()));
        }
        if !forwards() {
            face.note("this host does not forward: sysctl net.ipv4.ip_forward=1 lets it");
        }
        let (mut shown, mut shown_at) = (Value::Null, None::<Instant>);
        while !stop.load(Ordering::Relaxed) && end.is_none_or(|end| Instant::now() < end) {
            router.step(STEP).map_err(|error| failure(&error))?;
            if shown_at.is_some_and(|at| at.elapsed() < SHOW_EVERY) {
                continue;
            }
            let state = state(&router);
            if state != shown {
                face.line(&with_counters(&state, &router), || text(&state))?;
                (shown, shown_at) = (state, Some(Instant::now()));
            }
        }
        Ok(Exit::Success)
    }

    fn setup(&self) -> OlsrSetup {
        // Two routers that start together must not send together.
        let seed = RandomState::new().hash_one(&self.interfaces);
        let mut setup = OlsrSetup::new(self.interfaces.clone(), seed);
        setup.networks.clone_from(&self.network);
        setup.willingness = self.willingness;
        setup.hello_interval = Duration::from_millis(self.hello);
        setup.topology_interval = Duration::from_millis(self.topology);
        setup.hysteresis = self.hysteresis;
        setup
    }
}

fn failure(error: &OlsrRouterError) -> Failure {
    let exit = match error {
        OlsrRouterError::NoAddress(_) | OlsrRouterError::Count(_) => Exit::Configuration,
        OlsrRouterError::Routes(_) => Exit::Permission,
        OlsrRouterError::Interface { source, .. }
            if source.kind() == std::io::ErrorKind::InvalidInput =>
        {
            Exit::Configuration
        }
        OlsrRouterError::Interface { source, .. }
            if source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            Exit::Permission
        }
        _ => Exit::Unavailable,
    };
    Failure::new(exit, error.to_string())
}

/// Whether the kernel forwards IPv4.
fn forwards() -> bool {
    std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").is_ok_and(|text| text.trim() == "1")
}

fn state(router: &OlsrRouter) -> Value {
    let route = |(to, route, interface): (OlsrNetwork, gatewright_olsr::OlsrRoute, &str)| {
        json!({
            "to": to.to_string(),
            "via": route.next_hop,
            "interface": interface,
            "hops": route.hops,
        })
    };
    let refused =
        router.refused().iter().map(|(to, errno)| json!({ "to": to.to_string(), "errno": errno }));
    json!({
        "main_address": router.main_address(),
        "neighbours": router.neighbours(),
        "relays": router.relays(),
        "routes": router.routes().map(route).collect::<Vec<_>>(),
        "refused": refused.collect::<Vec<_>>(),
    })
}

fn with_counters(state: &Value, router: &OlsrRouter) -> Value {
    let counters = router.counters().named().map(|(name, count)| (name.to_owned(), count.into()));
    let mut whole = state.clone();
    if let Value::Object(fields) = &mut whole {
        fields.insert("counters".to_owned(), Value::Object(counters.into_iter().collect()));
        fields.insert("send_failed".to_owned(), router.send_failed().into());
        fields.insert("restored".to_owned(), router.restored().into());
    }
    whole
}

fn text(state: &Value) -> String {
    let list = |name: &str| state.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let words = |name: &str| {
        let words: Vec<String> =
            list(name).iter().filter_map(|it| it.as_str().map(str::to_owned)).collect();
        if words.is_empty() { "none".to_owned() } else { words.join(", ") }
    };
    let mut text = format!("neighbours: {}; relays: {}\n", words("neighbours"), words("relays"));
    for route in list("routes") {
        let word = |name: &str| route.get(name).and_then(Value::as_str).unwrap_or_default();
        let hops = route.get("hops").and_then(Value::as_u64).unwrap_or(0);
        let (to, via, on) = (word("to"), word("via"), word("interface"));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {to:<18} via {via:<15} on {on}, {hops} hops");
    }
    for route in list("refused") {
        let to = route.get("to").and_then(Value::as_str).unwrap_or_default();
        let number = route.get("errno").and_then(Value::as_i64).unwrap_or(0);
        let error = std::io::Error::from_raw_os_error(i32::try_from(number).unwrap_or(0));
        let _ = writeln!(text, "  {to:<18} refused by the kernel: {error}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_and_host_bits_refused() {
        let network = |text| network(text).map(|network| network.to_string());
        assert_eq!(network("192.168.7.0/24"), Ok("192.168.7.0/24".to_owned()));
        assert_eq!(network("0.0.0.0/0"), Ok("0.0.0.0/0".to_owned()));
        for wrong in ["192.168.7.0", "192.168.7.0/33", "192.168.7.1/24", "x/8", "::/0", ""] {
            assert!(network(wrong).is_err(), "{wrong}");
        }
    }
}
