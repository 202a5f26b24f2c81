//! The maps of forwarding, and what was published to them.

use super::{DriverLink, DriverState, IPV4, IPV6};
use gatewright_link::KernelPort;
use gatewright_packet::LinkIndex;
use gatewright_stack::{Route, RouteFollower};
use gatewright_tables::{
    HopIndex, Map, Prefix, RoutesWriter,
    records::{Neighbour, NeighbourKey, NeighbourState},
};
use gatewright_xdp::{Forwarding, Hop, HopNeighbour, PacketCount};
use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Time after which a packet for a neighbour that is still stale goes to the graph again.
const ASK_EVERY: Duration = Duration::from_secs(5);

/// The maps of forwarding, and what was published to them.
#[derive(Debug)]
pub(super) struct DriverTables {
    pub(super) forwarding: Forwarding,
    hops_max: u32,
    /// The next hops by index, and the records made of them.
    hops: Vec<(Route, Option<Hop>)>,
    /// Indices of next hops, by link and router.
    by_router: HashMap<NeighbourKey, Vec<HopIndex>>,
    neighbours: HashMap<NeighbourKey, DriverNeighbour>,
    links: Vec<DriverLink>,
    /// Whether routes of IPv4 and IPv6 did not fit, so that their packets go to the graph.
    pub(super) full: [bool; 2],
}

/// A neighbour as published.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct DriverNeighbour {
    mac: [u8; 6],
    /// When it was found stale, or a packet for it was last sent to the graph.
    stale_since: Option<Instant>,
}

impl DriverTables {
    pub(super) fn new(forwarding: Forwarding, hops_max: u32) -> Self {
        Self {
            forwarding,
            hops_max,
            hops: Vec::new(),
            by_router: HashMap::new(),
            neighbours: HashMap::new(),
            links: Vec::new(),
            full: [false; 2],
        }
    }

    /// Publishes what differs between two states; `before` are the links of the first one.
    pub(super) fn publish(&mut self, before: &[DriverLink], state: &DriverState) {
        let none = DriverLink { received: [true; 2], ..DriverLink::default() };
        let count = before.len().max(state.links.len());
        for number in 0..count {
            let now = state.links.get(number).unwrap_or(&none);
            let Ok(link) = u32::try_from(number) else { break };
            // A link beyond the maps has no program, and next hops by it go to the graph.
            let _beyond = self.forwarding.look_at(link, now.received, now.sent);
            let _beyond = self.forwarding.set_mac(link, now.mac.unwrap_or_default());
        }
        self.forwarding.set_own(state.own.iter().copied());
        self.links.clone_from(&state.links);
        for number in 0..self.hops.len() {
            self.settle_hop(number);
        }
    }

    /// Leaves a family to the graph: a table that lacks a route would misroute packets.
    fn withdraw(&mut self, family: usize) {
        if let Some(full) = self.full.get_mut(family) {
            *full = true;
        }
        for (number, link) in (0..).zip(&mut self.links) {
            if let Some(up) = link.received.get_mut(family) {
                *up = true;
            }
            let _beyond = self.forwarding.look_at(number, link.received, link.sent);
        }
    }

    /// Publishes the interfaces of links.
    pub(super) fn set_ports(&self, before: &[Option<KernelPort>], now: &[Option<KernelPort>]) {
        for number in 0..before.len().max(now.len()) {
            let index = |ports: &[Option<KernelPort>]| {
                let port = ports.get(number).copied().flatten();
                port.filter(|port| port.takes_redirected == Some(true)).map(|port| port.index)
            };
            let Ok(link) = u32::try_from(number) else { break };
            let _refused = match (index(before), index(now)) {
                (before, now) if before == now => Ok(()),
                // An interface that has gone since is found to be gone the next time.
                (_, Some(index)) => self.forwarding.set_port(link, index),
                (_, None) => self.forwarding.remove_port(link),
            };
        }
    }

    /// Frees parts of tables that no program reads any more.
    pub(super) fn settle(&mut self) {
        if let Some(direct) = self.forwarding.direct() {
            direct.settle();
        }
    }

    /// The record of a next hop; `None` if its packets go to the graph.
    fn hop_of(&self, route: Route) -> Option<Hop> {
        let (link, router) = match route {
            Route::Connected(link) => (link, None),
            Route::Via { link, gateway } => (link, Some(gateway)),
            _ => return None,
        };
        let own = self.links.get(link.index()).filter(|own| own.up)?;
        let neighbour = match (own.mac.filter(|_| own.is_port), router) {
            (None, _) => HopNeighbour::Elsewhere,
            (Some(_), None) => HopNeighbour::Destination,
            (Some(_), Some(address)) => {
                let known = self.neighbours.get(&NeighbourKey { link: link.0, address });
                known.map_or(HopNeighbour::Unknown, |known| HopNeighbour::Router(known.mac))
            }
        };
        let source = own.mac.unwrap_or_default();
        Some(Hop { port: link.0.into(), mtu: own.mtu, source, neighbour })
    }

    /// Writes the record of a next hop, if it differs.
    fn settle_hop(&mut self, number: usize) {
        let Some(&(route, before)) = self.hops.get(number) else { return };
        let now = self.hop_of(route);
        let Ok(index) = u32::try_from(number) else { return };
        if now != before && index < self.hops_max {
            // It is below the end of the table.
            let _fits = self.forwarding.set_hop(HopIndex(index), now.as_ref());
            if let Some((_, record)) = self.hops.get_mut(number) {
                *record = now;
            }
        }
    }

    /// Publishes all of the worker's neighbours.
    pub(super) fn follow_neighbours(
        &mut self,
        neighbours: &Map<NeighbourKey, Neighbour>,
        now: Instant,
    ) {
        let before: Vec<_> = self.neighbours.keys().copied().collect();
        // A record that is being written changes once more, and is reported.
        let known: HashMap<_, _> = if neighbours.is_empty() {
            HashMap::new()
        } else {
            neighbours.iter().filter_map(Result::ok).collect()
        };
        for key in before.into_iter().filter(|key| !known.contains_key(key)) {
            self.follow_neighbour(key, None, now);
        }
        for (key, record) in known {
            self.follow_neighbour(key, Some(record), now);
        }
    }

    /// Publishes a neighbour's record; none if it is gone.
    pub(super) fn follow_neighbour(
        &mut self,
        key: NeighbourKey,
        record: Option<Neighbour>,
        now: Instant,
    ) {
        let known = record.and_then(|record| Some((record.address.to_ethernet()?, record.state)));
        if let Some((mac, state)) = known {
            self.set_neighbour(key, mac, (state == NeighbourState::Stale).then_some(now));
        } else if self.neighbours.remove(&key).is_some() {
            // One that is not there is gone.
            let _gone = self.forwarding.set_neighbour(key.link.into(), key.address, None);
            self.settle_router(&key);
        }
    }

    fn set_neighbour(&mut self, key: NeighbourKey, mac: [u8; 6], stale_since: Option<Instant>) {
        let before = self.neighbours.get(&key).copied();
        let is_same = |before: DriverNeighbour| {
            before.mac == mac && before.stale_since.is_some() == stale_since.is_some()
        };
        if before.is_some_and(is_same) {
            return;
        }
        self.neighbours.insert(key, DriverNeighbour { mac, stale_since });
        // Packets for one that does not fit go to the graph.
        let _full = match stale_since {
            Some(_) => self.forwarding.ask_neighbour(key.link.into(), key.address, mac),
            None => self.forwarding.set_neighbour(key.link.into(), key.address, Some(mac)),
        };
        self.settle_router(&key);
        if stale_since.is_some() {
            self.ask_router(&key);
        }
    }

    /// Writes the next hops by a router whose link address is known, new, or no longer known.
    fn settle_router(&mut self, key: &NeighbourKey) {
        for HopIndex(index) in self.by_router.get(key).cloned().unwrap_or_default() {
            self.settle_hop(usize::try_from(index).unwrap_or(usize::MAX));
        }
    }

    fn ask_router(&self, key: &NeighbourKey) {
        for hop in self.by_router.get(key).into_iter().flatten() {
            self.forwarding.ask_router(*hop);
        }
    }

    /// Sends one packet for each neighbour to the graph: nobody knows any more whether they are there.
    pub(super) fn ask_all(&mut self, now: Instant) {
        for (key, known) in &mut self.neighbours {
            known.stale_since = Some(now);
            let _full = self.forwarding.ask_neighbour(key.link.into(), key.address, known.mac);
            for hop in self.by_router.get(key).into_iter().flatten() {
                self.forwarding.ask_router(*hop);
            }
        }
    }

    /// Sends no packet for a neighbour to the graph: there is none.
    pub(super) fn ask_none(&mut self) {
        for (key, known) in &self.neighbours {
            if known.stale_since.is_some() {
                let mac = Some(known.mac);
                let _full = self.forwarding.set_neighbour(key.link.into(), key.address, mac);
                for hop in self.by_router.get(key).into_iter().flatten() {
                    self.forwarding.ask_no_router(*hop);
                }
            }
        }
    }

    /// Sends another packet for each neighbour that has been stale for long to the graph.
    pub(super) fn ask_stale(&mut self, now: Instant) {
        let is_due = |known: &DriverNeighbour| {
            known.stale_since.is_some_and(|since| now.saturating_duration_since(since) > ASK_EVERY)
        };
        let due: Vec<_> = self
            .neighbours
            .iter()
            .filter(|(_, known)| is_due(known))
            .map(|(key, _)| *key)
            .collect();
        for key in due {
            let Some(known) = self.neighbours.get_mut(&key) else { continue };
            known.stale_since = Some(now);
            let mac = known.mac;
            let _full = self.forwarding.ask_neighbour(key.link.into(), key.address, mac);
            self.ask_router(&key);
        }
    }

    /// The next hops by which packets were forwarded, with their counts.
    pub(super) fn used_hops(&self) -> Vec<(LinkIndex, Option<IpAddr>, PacketCount)> {
        let hop = |(index, (route, _)): (u32, &(Route, Option<Hop>))| {
            let (link, via) = match *route {
                Route::Connected(link) => (link, None),
                Route::Via { link, gateway } => (link, Some(gateway)),
                _ => return None,
            };
            let count = self.forwarding.hop_count(HopIndex(index)).ok()?;
            (count.packets > 0).then_some((link, via, count))
        };
        (0..self.hops_max).zip(&self.hops).filter_map(hop).collect()
    }
}

/// Follows the host's routes, on the control side's threads.
#[derive(Debug)]
pub(super) struct Follower(pub(super) Arc<Mutex<DriverTables>>);

impl Follower {
    fn tables(&self) -> MutexGuard<'_, DriverTables> {
        // A poisoned lock is safe here: each record in the maps is whole by itself.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RouteFollower for Follower {
    fn add_hop(&mut self, HopIndex(index): HopIndex, route: Route) {
        let mut tables = self.tables();
        let number = usize::try_from(index).unwrap_or(usize::MAX);
        // Indices come in order.
        tables.hops.truncate(number);
        tables.hops.push((route, None));
        if let Route::Via { link, gateway } = route {
            let key = NeighbourKey { link: link.0, address: gateway };
            tables.by_router.entry(key).or_default().push(HopIndex(index));
        }
        tables.settle_hop(number);
    }

    fn insert4(&mut self, to: Prefix<Ipv4Addr>, hop: HopIndex, routes: &RoutesWriter<Ipv4Addr>) {
        let mut tables = self.tables();
        if tables.forwarding.insert4(to, hop, routes).is_err() {
            tables.withdraw(IPV4);
        }
    }

    fn remove4(&mut self, to: Prefix<Ipv4Addr>, routes: &RoutesWriter<Ipv4Addr>) {
        self.tables().forwarding.remove4(to, routes);
    }

    fn insert6(&mut self, to: Prefix<Ipv6Addr>, hop: HopIndex) {
        let mut tables = self.tables();
        if tables.forwarding.routes6().insert(to, hop).is_err() {
            tables.withdraw(IPV6);
        }
    }

    fn remove6(&mut self, to: Prefix<Ipv6Addr>) {
        // A route that did not fit is not there.
        let _there = self.tables().forwarding.routes6().remove(to);
    }
}
