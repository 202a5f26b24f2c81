//! A router: [`OlsrNode`].

mod forward;
mod receive;
mod send;

use super::edge::{OlsrCounters, OlsrInput, OlsrOutput, OlsrRoute, OlsrSettings};
use super::message::OlsrNetwork;
use super::sets::{INTERFACES_MAX, OlsrSets};
use super::{relays, routes};
use core::time::Duration;
use forward::ForwardQueue;
use gatewright_packet::LinkIndex;
use gatewright_sim::Random;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;

/// Networks that a node may be a gateway to: an HNA that names all of them fits into 1,500 octets.
const ATTACHED_MAX: usize = 128;

/// Between a TC and one that a failure of a link causes.
const REACTION_GAP: Duration = Duration::from_millis(500);

/// An interface of this node.
#[derive(Clone, Debug)]
struct OlsrInterface {
    address: Ipv4Addr,
    hello_at: Duration,
    packet: u16,
}

/// A router's protocol without I/O.
#[derive(Clone, Debug)]
pub struct OlsrNode {
    settings: OlsrSettings,
    random: Random,
    interfaces: BTreeMap<LinkIndex, OlsrInterface>,
    sets: OlsrSets,
    relays: BTreeSet<Ipv4Addr>,
    routes: BTreeMap<OlsrNetwork, OlsrRoute>,
    /// Number of the next message.
    message: u16,
    /// Advertised neighbour sequence number, and the neighbours that it stands for.
    advertised: (u16, BTreeSet<Ipv4Addr>),
    /// Until when TCs are sent though nothing is advertised, so that others forget (§9.3).
    empty_until: Duration,
    topology_at: Duration,
    /// When the last TC was due.
    announced_at: Duration,
    declare_at: Duration,
    expire_at: Option<Duration>,
    forward: ForwardQueue,
    outputs: VecDeque<OlsrOutput>,
    counters: OlsrCounters,
}

impl OlsrNode {
    /// A router without interfaces. Networks beyond the 128th are not announced.
    pub fn new(mut settings: OlsrSettings) -> Self {
        let mut random = Random::new(settings.seed);
        settings.networks.truncate(ATTACHED_MAX);
        settings.willingness = settings.willingness.min(7);
        let mut number = || u16::try_from(random.below(1 << 16)).unwrap_or(0);
        let (message, ansn) = (number(), number());
        Self {
            settings,
            random,
            interfaces: BTreeMap::new(),
            sets: OlsrSets::default(),
            relays: BTreeSet::new(),
            routes: BTreeMap::new(),
            message,
            advertised: (ansn, BTreeSet::new()),
            empty_until: Duration::ZERO,
            topology_at: Duration::ZERO,
            announced_at: Duration::ZERO,
            declare_at: Duration::ZERO,
            expire_at: None,
            forward: ForwardQueue::default(),
            outputs: VecDeque::new(),
            counters: OlsrCounters::default(),
        }
    }

    /// The main address.
    pub const fn main_address(&self) -> Ipv4Addr {
        self.settings.main_address
    }

    /// Symmetric neighbours, by their main addresses.
    pub fn neighbours(&self, now: Duration) -> Vec<Ipv4Addr> {
        self.sets.neighbours(now).into_keys().collect()
    }

    /// The multipoint relays that this node has chosen.
    pub fn relays(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.relays.iter().copied()
    }

    /// The neighbours that have chosen this node as their multipoint relay.
    pub fn selectors(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.sets.selectors.keys().copied()
    }

    /// The routing table.
    pub const fn routes(&self) -> &BTreeMap<OlsrNetwork, OlsrRoute> {
        &self.routes
    }

    /// The route to a host that leads through none of `avoided`; `None` if there is none, or if the
    /// host is one of these.
    pub fn route_avoiding(
        &self,
        now: Duration,
        host: Ipv4Addr,
        avoided: &[Ipv4Addr],
    ) -> Option<OlsrRoute> {
        let avoided = [&self.own_addresses(), avoided].concat();
        routes::hosts(&self.sets, now, &avoided).remove(&host)
    }

    /// Whether nothing is known of any other node.
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty() && self.routes.is_empty() && self.relays.is_empty()
    }

    /// Counters since the start.
    pub const fn counters(&self) -> OlsrCounters {
        self.counters
    }

    /// The next output.
    pub fn poll_output(&mut self) -> Option<OlsrOutput> {
        self.outputs.pop_front()
    }

    /// Latest time of the next [`OlsrInput::Tick`]; `None` without interfaces.
    pub fn poll_timeout(&self) -> Option<Duration> {
        if self.interfaces.is_empty() {
            return self.expire_at;
        }
        let hellos = self.interfaces.values().map(|interface| interface.hello_at);
        let periodic = hellos.chain([self.topology_at, self.declare_at]);
        periodic.chain(self.expire_at).chain(self.forward.due()).min()
    }

    /// Processes an input at `now`.
    pub fn handle(&mut self, now: Duration, input: OlsrInput<'_>) {
        let changed = match input {
            OlsrInput::Tick => self.tick(now),
            OlsrInput::InterfaceUp { link, address } => self.interface_up(now, link, address),
            OlsrInput::InterfaceDown { link } => self.interface_down(now, link),
            OlsrInput::LinkLost { link, address } => self.link_lost(now, (link, address)),
            OlsrInput::LinkFound { link, address } => self.link_found((link, address)),
            OlsrInput::Received { link, from, octets } => self.received(now, link, from, octets),
        };
        if changed {
            self.update(now);
        }
    }

    fn interface_up(&mut self, now: Duration, link: LinkIndex, address: Ipv4Addr) -> bool {
        if self.interfaces.len() >= INTERFACES_MAX && !self.interfaces.contains_key(&link) {
            self.counters.links_full += 1;
            return false;
        }
        // Routers that start together do not send together.
        let hello_at = now + self.random.time_below(self.settings.jitter_max());
        if self.interfaces.is_empty() {
            self.topology_at = hello_at;
            self.declare_at = hello_at;
        }
        let packet = u16::try_from(self.random.below(1 << 16)).unwrap_or(0);
        self.interfaces.insert(link, OlsrInterface { address, hello_at, packet });
        false
    }

    fn interface_down(&mut self, now: Duration, link: LinkIndex) -> bool {
        self.interfaces.remove(&link);
        self.sets.links.retain(|(at, _), _| *at != link);
        self.expire(now);
        true
    }

    /// RFC 3626 §13: the link counts as lost for the time that neighbours are held.
    fn link_lost(&mut self, now: Duration, at: (LinkIndex, Ipv4Addr)) -> bool {
        let hold = self.settings.neighbour_hold();
        let selectors = self.sets.selectors.len();
        let Some(link) = self.sets.links.get_mut(&at) else { return false };
        link.lost_until = now + hold;
        self.expire(now);
        // RFC 3626 §9.3: "When a change to the MPR selector set is detected and this change can be
        // attributed to a link failure, a TC-message SHOULD be transmitted."
        if self.sets.selectors.len() < selectors {
            self.topology_at = self.topology_at.min((self.announced_at + REACTION_GAP).max(now));
        }
        true
    }

    fn link_found(&mut self, at: (LinkIndex, Ipv4Addr)) -> bool {
        let Some(link) = self.sets.links.get_mut(&at) else { return false };
        link.lost_until = Duration::ZERO;
        true
    }

    fn tick(&mut self, now: Duration) -> bool {
        let expired = self.expire_at.is_some_and(|at| at <= now);
        if expired {
            self.count_missing(now);
            self.expire(now);
            // What is sent below tells of what has just ended.
            self.update(now);
        }
        self.send_due(now);
        false
    }

    /// Hysteresis: a neighbour whose HELLO is not valid any more has missed some.
    fn count_missing(&mut self, now: Duration) {
        if !self.settings.hysteresis {
            return;
        }
        let hold = self.settings.neighbour_hold();
        for link in self.sets.links.values_mut().filter(|link| !link.is_heard(now)) {
            link.count_missing(now, hold);
        }
    }

    fn expire(&mut self, now: Duration) {
        self.expire_at = self.sets.expire(now);
    }

    /// Has entries that end at `until` removed then.
    fn ends_at(&mut self, until: Duration) {
        self.expire_at = Some(self.expire_at.map_or(until, |at| at.min(until)));
    }

    fn own_addresses(&self) -> Vec<Ipv4Addr> {
        let mut own: Vec<Ipv4Addr> =
            self.interfaces.values().map(|interface| interface.address).collect();
        own.push(self.settings.main_address);
        own
    }

    /// Draws relays, advertised neighbours and routes from the sets anew.
    fn update(&mut self, now: Duration) {
        self.relays = relays::select(&self.sets, now, self.settings.main_address);
        let selectors: BTreeSet<Ipv4Addr> = self.sets.selectors.keys().copied().collect();
        if self.advertised.1 != selectors {
            if selectors.is_empty() {
                self.empty_until = now + self.settings.topology_hold();
            }
            self.advertised = (self.advertised.0.wrapping_add(1), selectors);
        }
        let own = self.own_addresses();
        let routes = routes::calculate(&self.sets, now, &own, &self.settings.networks);
        for gone in self.routes.keys().filter(|to| !routes.contains_key(to)) {
            self.outputs.push_back(OlsrOutput::RouteGone(*gone));
        }
        for (to, route) in routes.iter().filter(|(to, route)| self.routes.get(to) != Some(route)) {
            self.outputs.push_back(OlsrOutput::RouteSet(*to, *route));
        }
        self.routes = routes;
    }
}
