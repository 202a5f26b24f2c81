//! Setup and counts of relays that share flows: the clients of a UDP gateway, or what passes by a
//! route.

use gatewright_delay::{FlowKind, FlowRefusal, NodeModel, PathPolicy};
use std::{net::SocketAddr, time::Duration};

/// Where a UDP gateway forwards datagrams to.
#[derive(Clone, Debug, PartialEq)]
pub enum UdpTarget {
    /// One server.
    Server(SocketAddr),
    /// Relays that share the clients.
    Balance(FlowBalance),
}

impl UdpTarget {
    /// The addresses that it may send to.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let (server, relays) = match self {
            Self::Server(server) => (Some(*server), [].as_slice()),
            Self::Balance(balance) => (None, balance.relays.as_slice()),
        };
        server.into_iter().chain(relays.iter().map(|relay| relay.address))
    }
}

impl From<SocketAddr> for UdpTarget {
    fn from(server: SocketAddr) -> Self {
        Self::Server(server)
    }
}

/// Relays that share flows of one kind: the clients of a UDP gateway, or what passes by a route.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowBalance {
    /// How the relay of a client is chosen.
    pub policy: PathPolicy,
    /// What each flow is admitted for.
    pub kind: FlowKind,
    /// Maximum number of flows at once.
    pub flows_max: usize,
    /// Maximum number of flows of one client; `None` for no such bound.
    pub flows_per_client: Option<u32>,
    /// The relays, all of one address family.
    pub relays: Vec<FlowRelay>,
}

/// A relay of a [`FlowBalance`] with its delay model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowRelay {
    /// Its address; the port of a next hop has no meaning.
    pub address: SocketAddr,
    /// Its delay model.
    pub model: NodeModel,
    /// Hops to it, for [`PathPolicy::MinHop`].
    pub hops: u8,
    /// Whether the times to its answers change its service time.
    pub is_live: bool,
    /// The round trip to it without its own work, where that is known.
    pub path: Option<Duration>,
}

/// Counts of a balance at one moment.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FlowBalanceCounts {
    /// Refused flows by the kind of reason; a flow that is refused asks again with each packet.
    pub refused: Vec<(&'static str, u64)>,
    /// Those of each relay.
    pub relays: Vec<FlowRelayCounts>,
}

/// Counts of a relay of a balance at one moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FlowRelayCounts {
    /// Flows that it was given.
    pub admitted: u64,
    /// Of these, flows that have ended or have gone to another relay.
    pub ended: u64,
    /// Failures to reach it.
    pub unreachable: u64,
    /// How often it was left out.
    pub left_out: u64,
    /// How often it has come back.
    pub back: u64,
    /// Its answers whose times were measured; none unless it is live.
    pub answers: u64,
    /// By how much its service takes longer than described, in thousandths; 0 before the first
    /// answer.
    pub factor_permille: u64,
    /// How often the described and the measured service have begun to differ.
    pub drifted: u64,
    /// How often they have come together again.
    pub steady: u64,
}

impl FlowRelayCounts {
    /// Whether it is left out at this moment.
    pub const fn is_left_out(&self) -> bool {
        self.left_out > self.back
    }

    /// Whether its described and its measured service differ at this moment.
    pub const fn drifts(&self) -> bool {
        self.drifted > self.steady
    }
}

/// A count of a relay of a balance, in the order of [`FlowRelayCounts`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RelayItem {
    Admitted,
    Ended,
    Unreachable,
    LeftOut,
    Back,
    Answers,
    FactorPermille,
    Drifted,
    Steady,
}

impl RelayItem {
    const ALL: [Self; 9] = [
        Self::Admitted,
        Self::Ended,
        Self::Unreachable,
        Self::LeftOut,
        Self::Back,
        Self::Answers,
        Self::FactorPermille,
        Self::Drifted,
        Self::Steady,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Ended => "ended",
            Self::Unreachable => "unreachable",
            Self::LeftOut => "left-out",
            Self::Back => "back",
            Self::Answers => "answers",
            Self::FactorPermille => "factor-permille",
            Self::Drifted => "drifted",
            Self::Steady => "steady",
        }
    }
}

/// The place of a relay's counter among those of its balance.
pub(crate) const fn balance_place(relay: usize, item: RelayItem) -> usize {
    FlowRefusal::NAMES.len() + RelayItem::ALL.len() * relay + item as usize
}

/// The name of a counter of a balance, by its place: refusals by reason, then the items of each relay.
pub(crate) fn balance_item(place: usize) -> String {
    let of_relay = place.saturating_sub(FlowRefusal::NAMES.len());
    let (relay, item) = (of_relay / RelayItem::ALL.len(), of_relay % RelayItem::ALL.len());
    match (FlowRefusal::NAMES.get(place), RelayItem::ALL.get(item)) {
        (Some(reason), _) => format!("refused-{reason}"),
        (None, item) => format!("{}-{relay}", item.map_or("", |item| item.name())),
    }
}

/// The number of counters of a balance of so many relays.
pub(crate) const fn balance_items(relays: usize) -> usize {
    balance_place(relays, RelayItem::Admitted)
}

impl FlowBalanceCounts {
    /// The counts of so many relays by the place of each.
    pub(crate) fn of(relays: usize, count: impl Fn(usize) -> u64) -> Self {
        let relay = |relay| {
            let its = |item| count(balance_place(relay, item));
            FlowRelayCounts {
                admitted: its(RelayItem::Admitted),
                ended: its(RelayItem::Ended),
                unreachable: its(RelayItem::Unreachable),
                left_out: its(RelayItem::LeftOut),
                back: its(RelayItem::Back),
                answers: its(RelayItem::Answers),
                factor_permille: its(RelayItem::FactorPermille),
                drifted: its(RelayItem::Drifted),
                steady: its(RelayItem::Steady),
            }
        };
        Self {
            refused: (FlowRefusal::NAMES.into_iter().enumerate())
                .map(|(at, name)| (name, count(at)))
                .collect(),
            relays: (0..relays).map(relay).collect(),
        }
    }

    /// All refused flows.
    pub fn refused(&self) -> u64 {
        self.refused.iter().map(|(_, count)| count).sum()
    }

    /// All refused flows, how often relays were left out and have come back, and how often their
    /// described and measured service began to differ and came together again.
    pub fn watched(&self) -> [u64; 5] {
        let sum = |of: fn(&FlowRelayCounts) -> u64| self.relays.iter().map(of).sum();
        [
            self.refused(),
            sum(|its| its.left_out),
            sum(|its| its.back),
            sum(|its| its.drifted),
            sum(|its| its.steady),
        ]
    }
}
