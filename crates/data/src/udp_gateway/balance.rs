//! Clients of a UDP gateway, and flows of a route: each goes to the relay where it and those before it
//! keep their bounds, or is refused.

use gatewright_delay::{
    FlowAdmission, FlowId, FlowKind, FlowRefusal, NodeModel, PathPolicy, relay_paths,
};
use gatewright_stack::Counter;
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
}

/// Counts of a balance at one moment.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FlowBalanceCounts {
    /// Refused flows by the kind of reason; a flow that is refused asks again with each packet.
    pub refused: Vec<(&'static str, u64)>,
    /// Flows that each relay was given.
    pub admitted: Vec<u64>,
    /// Of these, flows that have ended.
    pub ended: Vec<u64>,
}

/// The name of a counter of a balance, by its place: refusals by reason, then for each relay the
/// flows that began and those that ended.
pub(crate) fn balance_item(place: usize) -> String {
    let reasons = FlowRefusal::NAMES.len();
    match (FlowRefusal::NAMES.get(place), place.saturating_sub(reasons)) {
        (Some(reason), _) => format!("refused-{reason}"),
        (None, at) if at % 2 == 0 => format!("admitted-{}", at / 2),
        (None, at) => format!("ended-{}", at / 2),
    }
}

/// The number of counters of a balance of so many relays.
pub(crate) const fn balance_items(relays: usize) -> usize {
    FlowRefusal::NAMES.len() + 2 * relays
}

impl FlowBalanceCounts {
    /// The counts of so many relays by the place of each.
    pub(crate) fn of(relays: usize, count: impl Fn(usize) -> u64) -> Self {
        let reasons = FlowRefusal::NAMES.len();
        let relay = |at: usize, which: usize| count(reasons + 2 * at + which);
        Self {
            refused: (FlowRefusal::NAMES.into_iter().enumerate())
                .map(|(at, name)| (name, count(at)))
                .collect(),
            admitted: (0..relays).map(|at| relay(at, 0)).collect(),
            ended: (0..relays).map(|at| relay(at, 1)).collect(),
        }
    }

    /// All refused flows.
    pub fn refused(&self) -> u64 {
        self.refused.iter().map(|(_, count)| count).sum()
    }
}

/// An admitted flow.
#[derive(Debug)]
pub(crate) struct ClientFlow {
    id: FlowId,
    relay: usize,
}

/// Admits the clients of a UDP gateway, or the flows of a route, to relays.
pub(crate) struct ClientAdmission {
    balance: FlowBalance,
    candidates: Vec<Vec<usize>>,
    admission: FlowAdmission,
    counters: Vec<Counter>,
    /// The refusal of all further flows, by its place among the reasons. All are of one kind, so it
    /// holds until one ends: a refused one costs no computation.
    full: Option<usize>,
    /// No flow ends before this time.
    next_end: Duration,
}

impl ClientAdmission {
    pub(crate) fn new(balance: FlowBalance, counters: Vec<Counter>) -> Self {
        let hops: Vec<u8> = balance.relays.iter().map(|relay| relay.hops).collect();
        let models = balance.relays.iter().map(|relay| relay.model);
        Self {
            candidates: relay_paths(balance.policy, &hops),
            admission: FlowAdmission::new(models, balance.flows_max),
            balance,
            counters,
            full: None,
            next_end: Duration::MAX,
        }
    }

    /// Whether one of the relays has this address.
    pub(crate) fn is_relay(&self, address: SocketAddr) -> bool {
        self.balance.relays.iter().any(|relay| relay.address == address)
    }

    /// Whether flows may have ended by `now`.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        now >= self.next_end
    }

    /// Sets when the next flow can end.
    pub(crate) const fn set_next_end(&mut self, next_end: Duration) {
        self.next_end = next_end;
    }

    /// Admits a flow that ends at `until` if it stays silent; `None` if it is refused, which is
    /// counted.
    pub(crate) fn admit(&mut self, until: Duration) -> Option<(ClientFlow, SocketAddr)> {
        if let Some(reason) = self.full {
            self.count(reason);
            return None;
        }
        let FlowBalance { kind, policy, relays, .. } = &self.balance;
        let placed = self.admission.place(*kind, &self.candidates, *policy);
        let refusal = match placed {
            Ok(flow) => {
                let relay = flow.path.first().copied().unwrap_or_default();
                let address = relays.get(relay)?.address;
                self.next_end = self.next_end.min(until);
                self.count(FlowRefusal::NAMES.len() + 2 * relay);
                return Some((ClientFlow { id: flow.id, relay }, address));
            }
            Err(refusal) => refusal,
        };
        let reason = FlowRefusal::NAMES.iter().position(|name| *name == refusal.name());
        self.full = reason;
        self.count(reason.unwrap_or_default());
        None
    }

    /// Ends a flow.
    pub(crate) fn end(&mut self, flow: &ClientFlow) {
        if self.admission.release(flow.id).is_some() {
            self.full = None;
            self.count(FlowRefusal::NAMES.len() + 2 * flow.relay + 1);
        }
    }

    fn count(&self, place: usize) {
        if let Some(counter) = self.counters.get(place) {
            counter.add(1);
        }
    }
}
