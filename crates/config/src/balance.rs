//! Relays that share flows: `[balance.NAME]`, and the flows of a TCP proxy that goes to them.

use crate::codes;
use crate::model::{Config, Located};
use crate::shape::Findings;
use crate::tables::{Form, Key, Shape, Table, key, required};
use crate::view::View;
use gatewright_delay::PathPolicy;
use gatewright_diagnostic::Diagnostic;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Servers or relays that share flows, with their delay models.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Balance {
    /// NAME of `[balance.NAME]`, unique.
    pub name: Located<String>,
    /// How the relay of a flow is chosen.
    pub policy: PathPolicy,
    /// Maximum number of flows at once.
    pub flows_max: usize,
    /// The relays.
    pub relays: Vec<BalancedRelay>,
}

/// A relay with its delay model, as `gatewright lab promise --model` prints it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BalancedRelay {
    /// Its address.
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
}

/// The target of a proxy's connections.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ProxyTarget {
    /// One server.
    Server(Located<SocketAddr>),
    /// The relays of a balance.
    Balance(BalancedFlow),
}

/// The flow that each connection of a proxy is.
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

/// Maximum number of relays of a balance: each new flow is tried on every one.
const RELAYS_MAX: usize = 64;
/// Maximum number of flows of a balance: a new one may disturb each of the others, which is
/// computed.
const FLOWS_MAX: i64 = 16_384;
/// Default maximum number of flows.
const FLOWS: usize = 4096;
/// Nanoseconds of a service time at the most: ten seconds.
const FIXED_NS_MAX: i64 = 10_000_000_000;
/// Picoseconds of an octet at the most: a line of 8 kbit/s.
const OCTET_PS_MAX: i64 = 1_000_000_000;
const POLICIES: &[&str] = &["least-load", "weighted", "min-hop"];
const PORT: Shape = Shape::Number(1, 65_535);

pub(crate) static BALANCE: Table = Table {
    name: "[balance.NAME]",
    doc: "Relays that share flows: a flow goes where it and those before it keep their bounds.",
    keys: &[
        key(
            "policy",
            Shape::Choice(POLICIES),
            "How a relay is chosen: least-load where the flow adds least to the delays of all, \
             weighted by speed, min-hop by hops. least-load if not given.",
        )
        .or("least-load"),
        key(
            "flows_max",
            Shape::Number(1, FLOWS_MAX),
            "Maximum number of flows; 4096 if not given. Others are refused.",
        ),
        required("relay", Shape::Many(&RELAY, RELAYS_MAX), "The relays, with their delay models."),
    ],
};

static RELAY: Table = Table {
    name: "[[balance.NAME.relay]]",
    doc: "A relay with its delay model: service times of a + c·b for b octets.",
    keys: &[
        required("address", Shape::Text(Form::Address), "Its address."),
        required("port", PORT, "Its port."),
        required("fixed_ns", Shape::Number(1, FIXED_NS_MAX), "a, in nanoseconds."),
        key(
            "octet_ps",
            Shape::Number(0, OCTET_PS_MAX),
            "c, in picoseconds for each octet; 0 if not given.",
        ),
        key(
            "variation_pct",
            Shape::Number(0, 100_000),
            "Squared coefficient of variation of service times, in percent; 100 if not given, as of \
             exponential times.",
        ),
        key(
            "spread_pct",
            Shape::Number(100, 100_000),
            "The 95th percentile of its delay when idle relative to the mean, in percent; 100 if \
             not given.",
        ),
        key("hops", Shape::Number(1, 255), "Hops to it, for min-hop; 1 if not given."),
    ],
};

/// The key of a proxy's flow.
pub(crate) const FLOW_KEY: Key =
    key("flow", Shape::Table(&FLOW), "The flow that each connection is, for its balance.");

static FLOW: Table = Table {
    name: "flow",
    doc: "What a balance admits for each connection.",
    keys: &[
        required("rate", Shape::Number(1, 1_000_000), "Packets a second."),
        required("octets", Shape::Number(1, 65_507), "Octets of payload of a packet."),
        required(
            "within_us",
            Shape::Number(1, 3_600_000_000),
            "Microseconds in the relay that a packet may take.",
        ),
        key(
            "share_pct",
            Shape::Number(1, 99),
            "Percent of the packets that must keep it; 95 if not given.",
        ),
    ],
};

/// Reads a `[balance.NAME]`.
pub(crate) fn balance(name: Located<String>, table: View<'_>) -> Option<Balance> {
    let policy = match table.text("policy").map(|policy| policy.value) {
        Some("weighted") => PathPolicy::Weighted,
        Some("min-hop") => PathPolicy::MinHop,
        _ => PathPolicy::LeastLoad,
    };
    let relays: Vec<_> = table.tables("relay").into_iter().filter_map(relay).collect();
    let flows_max = table.number("flows_max").unwrap_or(FLOWS);
    (!relays.is_empty()).then_some(Balance { name, policy, flows_max, relays })
}

fn relay(table: View<'_>) -> Option<BalancedRelay> {
    let address = table.parsed("address", |text| text.parse::<IpAddr>().ok())?;
    let socket = SocketAddr::new(address.value, table.number("port")?);
    Some(BalancedRelay {
        address: Located { value: socket, span: address.span },
        fixed: Duration::from_nanos(table.number("fixed_ns")?),
        octet_ps: table.number("octet_ps").unwrap_or(0),
        variation_pct: table.number("variation_pct").unwrap_or(100),
        spread_pct: table.number("spread_pct").unwrap_or(100),
        hops: table.number("hops").unwrap_or(1),
    })
}

/// Reads the target of a proxy: `forward`, or `balance` with `flow`.
pub(crate) fn target(table: View<'_>) -> Option<ProxyTarget> {
    if let Some(forward) = table.table("forward") {
        let to = forward.parsed("address", |text| text.parse::<IpAddr>().ok())?;
        let value = SocketAddr::new(to.value, forward.number("port")?);
        return Some(ProxyTarget::Server(Located { value, span: to.span }));
    }
    let flow = table.table("flow")?;
    Some(ProxyTarget::Balance(BalancedFlow {
        balance: table.name("balance")?,
        rate: flow.number("rate")?,
        octets: flow.number("octets")?,
        within: Duration::from_micros(flow.number("within_us")?),
        share_pct: flow.number("share_pct").unwrap_or(95),
    }))
}

/// Checks that each proxy has one target, and a balance that exists.
pub(crate) fn check(config: &Config, root: View<'_>, findings: &mut Findings) {
    let known: Vec<_> = root.named("balance").into_iter().map(|(name, _)| name.value).collect();
    for (name, table) in root.named("tcp_proxy") {
        let [forward, balance, flow] = ["forward", "balance", "flow"].map(|key| table.key(key));
        let (span, message) = match (forward, balance, flow) {
            (Some(_), None, None) => continue,
            (None, Some(span), Some(_)) => {
                let named = table.name("balance");
                let Some(named) = named.filter(|named| !known.contains(&named.value)) else {
                    continue;
                };
                let message = format!("there is no balance `{}`", named.value);
                let finding = Diagnostic::error(&codes::UNKNOWN_BALANCE, span, message);
                findings.add(finding.help(format!("describe it: [balance.{}]", named.value)));
                continue;
            }
            (Some(_), Some(span), _) => (span, "has a server and a balance"),
            (Some(_), None, Some(span)) => (span, "has a flow and no balance"),
            (None, Some(span), None) => (span, "has a balance, and does not say of what flows"),
            (None, None, _) => (table.header, "has neither a server nor a balance"),
        };
        let message = format!("`{}` {message}", name.value);
        let finding = Diagnostic::error(&codes::PROXY_TARGET, span, message);
        findings.add(finding.help("give it `forward`, or `balance` with `flow`"));
    }
    for balance in &config.balances {
        let relays = &balance.relays;
        for (count, second) in relays.iter().enumerate() {
            let address = second.address.value;
            let span = second.address.span;
            if address.ip().is_unspecified() || address.ip().is_multicast() {
                let message = format!("{} is no relay", address.ip());
                findings.add(Diagnostic::error(&codes::UNUSABLE_ADDRESS, span, message));
            }
            let first = relays.iter().take(count).find(|first| first.address.value == address);
            if let Some(first) = first {
                let message = format!("{address} is a relay of `{}` twice", balance.name.value);
                let finding = Diagnostic::error(&codes::PROXY_TARGET, span, message);
                findings.add(finding.also(first.address.span, "it is one already"));
            }
        }
    }
}
