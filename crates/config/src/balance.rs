//! Relays that share flows: `[balance.NAME]`, and the TCP proxies, UDP gateways and routes whose flows
//! go to them.

use crate::located::Located;
use crate::view::View;
use gatewright_delay::PathPolicy;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A relay of TCP connections over the kernel's sockets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TcpProxy {
    /// NAME of `[tcp_proxy.NAME]`, unique.
    pub name: Located<String>,
    /// The address that it listens at.
    pub listen: Located<SocketAddr>,
    /// The server, or relays that share flows.
    pub target: ProxyTarget,
    /// Maximum number of concurrent connections.
    pub connections_max: usize,
    /// How long a connection may be idle.
    pub idle: Duration,
    /// How long the server may take to accept a connection.
    pub connect: Duration,
}

/// Servers or relays that share flows, with their delay models.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Balance {
    /// NAME of `[balance.NAME]`, unique.
    pub name: Located<String>,
    /// How the relay of a flow is chosen.
    pub policy: PathPolicy,
    /// Maximum number of flows at once.
    pub flows_max: usize,
    /// Maximum number of flows of one client; `None` for no such bound.
    pub flows_per_client: Option<u32>,
    /// The relays.
    pub relays: Vec<BalancedRelay>,
}

/// A relay with its delay model, as `gatewright lab promise --model` prints it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BalancedRelay {
    /// Its address; the port of a next hop is 0.
    pub address: Located<SocketAddr>,
    /// a of its service time a + c·b.
    pub fixed: Duration,
    /// c, in picoseconds for each octet.
    pub octet_ps: u64,
    /// Squared coefficient of variation of service times, in percent.
    pub variation_pct: u32,
    /// The 95th percentile of an idle relay's delay relative to its mean, in percent.
    pub spread_pct: u32,
    /// Hops to it, for `min-hop`.
    pub hops: u8,
    /// Whether the times to its answers change its service time.
    pub is_live: bool,
    /// The round trip to it without its own work, where that is known.
    pub path: Option<Duration>,
}

/// The target of a proxy's connections.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ProxyTarget {
    /// One server.
    Server(Located<SocketAddr>),
    /// The relays of a balance.
    Balance(BalancedFlow),
}

/// The flow that each connection of a proxy is, each client of a UDP gateway, or each flow of a route.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BalancedFlow {
    /// NAME of `[balance.NAME]`.
    pub balance: Located<String>,
    /// Packets a second.
    pub rate: u32,
    /// Octets of payload of a packet.
    pub octets: u32,
    /// Delay that a packet may have.
    pub within: Duration,
    /// Percent of the packets that must keep it.
    pub share_pct: u8,
}

/// Default maximum number of flows.
const FLOWS: usize = 4096;

/// Reads a `[balance.NAME]`.
pub(crate) fn balance(name: Located<String>, table: View<'_>) -> Option<Balance> {
    let policy = match table.text("policy").map(|policy| policy.value) {
        Some("weighted") => PathPolicy::Weighted,
        Some("min-hop") => PathPolicy::MinHop,
        _ => PathPolicy::LeastLoad,
    };
    let relays: Vec<_> = table.tables("relay").into_iter().filter_map(relay).collect();
    let flows_max = table.number("flows_max").unwrap_or(FLOWS);
    let flows_per_client = table.number("flows_per_client");
    let balance = Balance { name, policy, flows_max, flows_per_client, relays };
    (!balance.relays.is_empty()).then_some(balance)
}

fn relay(table: View<'_>) -> Option<BalancedRelay> {
    let address = table.parsed("address", |text| text.parse::<IpAddr>().ok())?;
    let socket = SocketAddr::new(address.value, table.number("port").unwrap_or(0));
    Some(BalancedRelay {
        address: Located { value: socket, span: address.span },
        fixed: Duration::from_nanos(table.number("fixed_ns")?),
        octet_ps: table.number("octet_ps").unwrap_or(0),
        variation_pct: table.number("variation_pct").unwrap_or(100),
        spread_pct: table.number("spread_pct").unwrap_or(100),
        hops: table.number("hops").unwrap_or(1),
        is_live: table.text("model").is_some_and(|model| model.value == "live"),
        path: table.number("path_us").map(Duration::from_micros),
    })
}

/// Reads the target of a proxy: `forward`, or `balance` with `flow`.
pub(crate) fn target(table: View<'_>) -> Option<ProxyTarget> {
    if let Some(forward) = table.table("forward") {
        let to = forward.parsed("address", |text| text.parse::<IpAddr>().ok())?;
        let value = SocketAddr::new(to.value, forward.number("port")?);
        return Some(ProxyTarget::Server(Located { value, span: to.span }));
    }
    flow(table).map(ProxyTarget::Balance)
}

/// Reads `balance` with `flow`.
pub(crate) fn flow(table: View<'_>) -> Option<BalancedFlow> {
    let flow = table.table("flow")?;
    Some(BalancedFlow {
        balance: table.name("balance")?,
        rate: flow.number("rate")?,
        octets: flow.number("octets")?,
        within: Duration::from_micros(flow.number("within_us")?),
        share_pct: flow.number("share_pct").unwrap_or(95),
    })
}
