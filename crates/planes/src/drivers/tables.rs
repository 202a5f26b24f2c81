//! The maps of forwarding, and what was published to them.

use super::{
    DriverLink, DriverState, IPV4, IPV6,
    handlers::{DriverRule, Handled},
};
use gatewright_link::KernelPort;
use gatewright_packet::LinkIndex;
use gatewright_stack::{AttachmentId, Route, RouteFollower};
use gatewright_tables::{
    GroupMember, HopGroupIndex, HopIndex, Map, Prefix, RoutesWriter,
    records::{Neighbour, NeighbourKey, NeighbourState},
};
use gatewright_xdp::{Forwarding, ForwardingRule, Hop, HopNeighbour, PacketCount, RULE_COUNTS_MAX};
use std::{
    collections::{HashMap, HashSet, VecDeque},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Stale neighbours of which one look finds out whether they are used.
const LOOKED_AT_MAX: usize = 4096;

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
    /// Neighbours that are or were stale, in the order in which it is looked whether they are used,
    /// each once.
    stale: VecDeque<NeighbourKey>,
    /// Those in `stale`.
    queued: HashSet<NeighbourKey>,
    links: Vec<DriverLink>,
    /// The rules in the maps, by link and family.
    rules: HashMap<(u32, usize), Vec<ForwardingRule>>,
    /// The places of handlers' numbers, and what these were when the handler got the place.
    places: HashMap<AttachmentId, (u32, PacketCount)>,
    /// Whether routes of IPv4 and IPv6 did not fit, so that their packets go to the graph.
    pub(super) full: [bool; 2],
}

/// A neighbour as published.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct DriverNeighbour {
    mac: [u8; 6],
    is_stale: bool,
}

impl DriverTables {
    pub(super) fn new(forwarding: Forwarding, hops_max: u32) -> Self {
        Self {
            forwarding,
            hops_max,
            hops: Vec::new(),
            by_router: HashMap::new(),
            neighbours: HashMap::new(),
            stale: VecDeque::new(),
            queued: HashSet::new(),
            links: Vec::new(),
            rules: HashMap::new(),
            places: HashMap::new(),
            full: [false; 2],
        }
    }

    /// Publishes what differs between two states; `before` are the links of the first one.
    pub(super) fn publish(&mut self, before: &[DriverLink], state: &DriverState) {
        self.places.retain(|id, _| state.handlers.contains(id));
        let absent = Handled { received: [true; 2], ..Handled::default() };
        let count = before.len().max(state.links.len());
        for number in 0..count {
            let Ok(link) = u32::try_from(number) else { break };
            let now = state.links.get(number);
            let mut handled = now.map_or(&absent, |now| &now.handled).clone();
            self.set_rules(link, &mut handled);
            // A link beyond the maps has no program, and next hops by it go to the graph.
            let _beyond = self.forwarding.look_at(link, handled.received, handled.sent);
            let mac = now.and_then(|now| now.mac).unwrap_or_default();
            let _beyond = self.forwarding.set_mac(link, mac);
        }
        self.forwarding.set_own(state.own.iter().copied());
        self.links.clone_from(&state.links);
        for number in 0..self.hops.len() {
            self.settle_hop(number);
        }
    }

    /// Exchanges the rules of a link where they differ from those in the maps; meanwhile packets go to
    /// the graph. They do for ever if there is no place for a rule's numbers.
    fn set_rules(&mut self, link: u32, now: &mut Handled) {
        for (family, rules) in now.rules.iter().enumerate() {
            let placed = |rule: &DriverRule| {
                let DriverRule { id, action, header_len } = *rule;
                Some(ForwardingRule { action, place: self.place(id)?, header_len })
            };
            let placed = rules.iter().map(placed).collect::<Option<Vec<_>>>();
            if let Some(up) = now.received.get_mut(family).filter(|_| placed.is_none()) {
                *up = true;
            }
            let placed = placed.unwrap_or_default();
            let written = self.rules.entry((link, family)).or_default();
            if *written != placed {
                let _beyond = self.forwarding.look_at(link, [true; 2], now.sent);
                let _beyond = self.forwarding.set_rules(link, family == IPV6, &placed);
                *written = placed;
            }
        }
    }

    /// The place of a handler's numbers, which it keeps as long as it is attached.
    fn place(&mut self, id: AttachmentId) -> Option<u32> {
        if let Some((place, _)) = self.places.get(&id) {
            return Some(*place);
        }
        let is_free = |place: &u32| self.places.values().all(|(taken, _)| taken != place);
        let place = (0..RULE_COUNTS_MAX).find(is_free)?;
        let before = self.forwarding.rule_count(place).ok()?;
        self.places.insert(id, (place, before));
        Some(place)
    }

    /// Packets and octets that drivers have counted or dropped in place of a handler.
    pub(super) fn handled(&self, id: AttachmentId) -> PacketCount {
        let Some((place, before)) = self.places.get(&id) else { return PacketCount::default() };
        let now = self.forwarding.rule_count(*place).unwrap_or(*before);
        PacketCount {
            packets: now.packets.saturating_sub(before.packets),
            octets: now.octets.saturating_sub(before.octets),
        }
    }

    /// Leaves a family to the graph: a table that lacks a route would misroute packets.
    fn withdraw(&mut self, family: usize) {
        if let Some(full) = self.full.get_mut(family) {
            *full = true;
        }
        for (number, link) in (0..).zip(&mut self.links) {
            let Handled { received, sent, .. } = &mut link.handled;
            if let Some(up) = received.get_mut(family) {
                *up = true;
            }
            let _beyond = self.forwarding.look_at(number, *received, *sent);
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
    pub(super) fn follow_neighbours(&mut self, neighbours: &Map<NeighbourKey, Neighbour>) {
        let before: Vec<_> = self.neighbours.keys().copied().collect();
        // A record that is being written changes once more, and is reported.
        let known: HashMap<_, _> = if neighbours.is_empty() {
            HashMap::new()
        } else {
            neighbours.iter().filter_map(Result::ok).collect()
        };
        for key in before.into_iter().filter(|key| !known.contains_key(key)) {
            self.follow_neighbour(key, None);
        }
        for (key, record) in known {
            self.follow_neighbour(key, Some(record));
        }
    }

    /// Publishes a neighbour's record; none if it is gone.
    pub(super) fn follow_neighbour(&mut self, key: NeighbourKey, record: Option<Neighbour>) {
        let known = record.and_then(|record| Some((record.address.to_ethernet()?, record.state)));
        if let Some((mac, state)) = known {
            let is_stale = state == NeighbourState::Stale;
            self.set_neighbour(key, DriverNeighbour { mac, is_stale });
        } else if self.neighbours.remove(&key).is_some() {
            // One that is not there is gone.
            let _gone = self.forwarding.set_neighbour(key.link.into(), key.address, None);
            self.settle_router(&key);
        }
    }

    fn set_neighbour(&mut self, key: NeighbourKey, neighbour: DriverNeighbour) {
        let DriverNeighbour { mac, is_stale } = neighbour;
        if self.neighbours.insert(key, neighbour) == Some(neighbour) {
            return;
        }
        // Packets for one that does not fit go to the graph.
        let _full = if is_stale {
            self.forwarding.note_neighbour_use(key.link.into(), key.address, mac)
        } else {
            self.forwarding.set_neighbour(key.link.into(), key.address, Some(mac))
        };
        self.settle_router(&key);
        self.note_router_use(&key, is_stale);
        if is_stale && self.queued.insert(key) {
            self.stale.push_back(key);
        }
    }

    /// Writes the next hops by a router whose link address is known, new, or no longer known.
    fn settle_router(&mut self, key: &NeighbourKey) {
        for HopIndex(index) in self.by_router.get(key).cloned().unwrap_or_default() {
            self.settle_hop(usize::try_from(index).unwrap_or(usize::MAX));
        }
    }

    /// Notes from now on whether a new next hop is used, if its router is stale.
    fn note_use_of_hop(&self, number: usize) {
        let Some(&(Route::Via { link, gateway }, _)) = self.hops.get(number) else { return };
        let known = self.neighbours.get(&NeighbourKey { link: link.0, address: gateway });
        let index = u32::try_from(number).unwrap_or(u32::MAX);
        let is_stale = known.is_some_and(|known| known.is_stale);
        self.forwarding.note_router_use(HopIndex(index), is_stale);
    }

    /// Notes from now on whether a neighbour is used, or no longer.
    fn note_router_use(&self, key: &NeighbourKey, notes: bool) {
        for hop in self.by_router.get(key).into_iter().flatten() {
            self.forwarding.note_router_use(*hop, notes);
        }
    }

    /// The stale neighbours to which drivers have forwarded packets since the last time, of so many
    /// as one look is for.
    pub(super) fn take_used(&mut self) -> Vec<(LinkIndex, IpAddr)> {
        let mut used = Vec::new();
        for _ in 0..self.stale.len().min(LOOKED_AT_MAX) {
            let Some(key) = self.stale.pop_front() else { break };
            if !self.neighbours.get(&key).is_some_and(|known| known.is_stale) {
                self.queued.remove(&key);
                continue;
            }
            // All are looked at, so that none is told twice.
            let hops = self.by_router.get(&key).into_iter().flatten();
            let by_hop = hops.filter(|hop| self.forwarding.take_router_use(**hop)).count() > 0;
            let direct = self.forwarding.take_neighbour_use(key.link.into(), key.address);
            if by_hop || direct {
                used.push((LinkIndex(key.link), key.address));
            }
            self.stale.push_back(key);
        }
        used
    }

    /// The packets that were forwarded by next hops, where there were any.
    pub(super) fn hop_counts(&self) -> HashMap<HopIndex, PacketCount> {
        let leads = |route: &Route| matches!(route, Route::Connected(_) | Route::Via { .. });
        let count = |(index, (route, _)): (u32, &(Route, Option<Hop>))| {
            let index = HopIndex(index);
            let count = leads(route).then(|| self.forwarding.hop_count(index).ok())??;
            (count.packets > 0).then_some((index, count))
        };
        (0..self.hops_max).zip(&self.hops).filter_map(count).collect()
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
        if let Route::Group(group) = route {
            // Packets by one that does not fit go to the graph.
            let _beyond = tables.forwarding.set_hop_to_group(HopIndex(index), group);
        }
        tables.settle_hop(number);
        tables.note_use_of_hop(number);
    }

    fn set_group(&mut self, group: HopGroupIndex, members: &[GroupMember]) {
        // As above.
        let _beyond = self.tables().forwarding.set_group(group, members);
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
