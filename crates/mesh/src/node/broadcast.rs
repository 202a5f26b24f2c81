//! BROADCAST: a packet for every node.
//!
//! In `classic` every node relays it once (flooding). Otherwise relays are elected from two-hop
//! information: E-CDS (RFC 6621, appendix A). Where links lose frames, a node sends it again to neighbours
//! from which it does not hear it.

use super::MeshNode;
use crate::bridge::BridgePort;
use crate::edge::{Adjacency, MeshOutput};
use crate::identity::NodeId;
use crate::message::{Broadcast, Message};
use crate::neighbour::Neighbour;
use core::time::Duration;
use gatewright_packet::LinkIndex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Origins whose broadcasts are remembered.
const ORIGINS_MAX: usize = 1_024;

/// Numbers of an origin that are remembered: a word.
const WINDOW: u32 = 64;

/// Messages that a packet is sent in at the most: four bits.
pub(super) const PARTS_MAX: usize = 15;

/// Packets that are not whole yet, of all origins and of one.
const PARTIALS_MAX: usize = 32;
const ORIGIN_PARTIALS_MAX: usize = 4;

/// Broadcasts that are to be sent again at the same time.
const RESENDS_MAX: usize = 64;

/// From the first sending of a broadcast to the second one; it doubles.
const RESEND_FIRST: Duration = Duration::from_millis(20);

/// Relays that a broadcast passes at the most.
const HOPS_MAX: u8 = 64;

/// A broadcast by its origin, the origin's start, and its number.
pub(super) type BroadcastId = (NodeId, u32, u32);

/// The numbers of one origin that were seen: the newest, and a bit for each of those before it.
#[derive(Clone, Copy, Debug)]
struct Window {
    epoch: u32,
    newest: u32,
    seen: u64,
}

/// A packet of which parts have arrived.
#[derive(Clone, Debug)]
struct Partial {
    /// The packet by the number of its first part.
    id: BroadcastId,
    parts: Vec<Option<Vec<u8>>>,
}

/// A broadcast that is sent again to neighbours beyond links that lose frames.
#[derive(Clone, Debug)]
struct Resend {
    id: BroadcastId,
    octets: Vec<u8>,
    /// Neighbours from which it was not heard, each with the number of times that it is sent to it again.
    neighbours: Vec<(Adjacency, u32)>,
    at: Duration,
    wait: Duration,
}

/// Broadcasts that have passed, and whether this node relays.
#[derive(Clone, Debug, Default)]
pub(super) struct Broadcasts {
    origins: BTreeMap<NodeId, Window>,
    order: VecDeque<NodeId>,
    /// Packets that are not whole yet, the oldest first.
    partials: VecDeque<Partial>,
    /// Those that are sent again, the oldest first.
    resends: VecDeque<Resend>,
    elected: Option<bool>,
}

impl Broadcasts {
    /// The neighbourhood has changed: relays are elected anew.
    pub(super) const fn forget_election(&mut self) {
        self.elected = None;
    }

    /// When a broadcast is sent again.
    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        self.resends.iter().map(|resend| resend.at).min()
    }

    /// A neighbour has sent a broadcast: it needs it no more.
    fn heard(&mut self, id: BroadcastId, from: Adjacency) {
        if let Some(resend) = self.resends.iter_mut().find(|resend| resend.id == id) {
            resend.neighbours.retain(|&(at, _)| at != from);
            if resend.neighbours.is_empty() {
                self.resends.retain(|resend| resend.id != id);
            }
        }
    }

    /// Takes those that are due out of the list.
    fn due(&mut self, now: Duration) -> Vec<Resend> {
        let (due, later) = self.resends.drain(..).partition(|resend| resend.at <= now);
        self.resends = later;
        due.into()
    }

    /// Whether a broadcast is new; then it is remembered.
    fn is_new(&mut self, (origin, epoch, number): BroadcastId) -> bool {
        let known = self.origins.get_mut(&origin).filter(|window| window.epoch == epoch);
        if let Some(window) = known {
            return window.take(number);
        }
        self.insert(origin, Window { epoch, newest: number, seen: 1 });
        true
    }

    /// Adds a part: the packet if it is whole, and the number of packets that gave way.
    fn add_part(
        &mut self,
        id: BroadcastId,
        (parts, part): (u8, u8),
        payload: &[u8],
    ) -> (Option<Vec<u8>>, u64) {
        let mut dropped = 0;
        let known = self.partials.iter().position(|partial| partial.id == id);
        let at = known.unwrap_or_else(|| {
            dropped = self.make_room(id.0);
            self.partials.push_back(Partial { id, parts: vec![None; usize::from(parts)] });
            self.partials.len().saturating_sub(1)
        });
        let Some(partial) = self.partials.get_mut(at) else { return (None, dropped) };
        if let Some(place) = partial.parts.get_mut(usize::from(part)) {
            *place = Some(payload.to_vec());
        }
        if partial.parts.iter().any(Option::is_none) {
            return (None, dropped);
        }
        let whole = self.partials.remove(at);
        (whole.map(|whole| whole.parts.into_iter().flatten().flatten().collect()), dropped)
    }

    /// Drops the oldest packet that is not whole, of an origin or of all, where there are too many.
    fn make_room(&mut self, origin: NodeId) -> u64 {
        let of_origin = |partial: &Partial| partial.id.0 == origin;
        let oldest =
            if self.partials.iter().filter(|it| of_origin(it)).count() >= ORIGIN_PARTIALS_MAX {
                self.partials.iter().position(of_origin)
            } else if self.partials.len() >= PARTIALS_MAX {
                Some(0)
            } else {
                None
            };
        u64::from(oldest.and_then(|oldest| self.partials.remove(oldest)).is_some())
    }

    fn insert(&mut self, origin: NodeId, window: Window) {
        if self.origins.insert(origin, window).is_none() {
            if self.order.len() >= ORIGINS_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.origins.remove(&oldest);
            }
            self.order.push_back(origin);
        }
    }
}

impl Window {
    fn take(&mut self, number: u32) -> bool {
        let ahead = number.wrapping_sub(self.newest);
        if ahead != 0 && ahead < u32::MAX / 2 {
            self.seen = if ahead < WINDOW { self.seen << ahead } else { 0 } | 1;
            self.newest = number;
            return true;
        }
        let behind = self.newest.wrapping_sub(number);
        if behind >= WINDOW {
            return false;
        }
        let new = self.seen >> behind & 1 == 0;
        self.seen |= 1 << behind;
        new
    }
}

impl MeshNode {
    /// Sends a packet of this node's host or of a station to all.
    pub(super) fn broadcast_sent(
        &mut self,
        now: Duration,
        from: Option<BridgePort>,
        packet: &[u8],
    ) {
        self.broadcast(now, packet);
        if from.is_some() {
            let origin = self.settings.id;
            self.output(MeshOutput::Deliver { origin, packet: packet.to_vec() });
        }
        self.send_on_ports(now, from, packet);
    }

    /// Sends a packet to all nodes; a long one in parts of about the same length.
    fn broadcast(&mut self, now: Duration, packet: &[u8]) {
        let (origin, origin_epoch) = (self.settings.id, self.settings.epoch);
        let count = packet.len().div_ceil(self.broadcast_part_max()).max(1);
        if count > PARTS_MAX {
            self.counters.broadcasts_too_long += 1;
            return;
        }
        let parts = if count == 1 { 0 } else { u8::try_from(count).unwrap_or(0) };
        let len = packet.len().div_ceil(count).max(1);
        let pieces = if packet.is_empty() { vec![packet] } else { packet.chunks(len).collect() };
        for (part, payload) in (0..).zip(pieces) {
            let number = self.next_number();
            self.broadcasts.is_new((origin, origin_epoch, number));
            let message = Broadcast {
                origin,
                origin_epoch,
                number,
                hops_left: HOPS_MAX,
                parts,
                part,
                stations: false,
                payload,
            };
            self.send_broadcast(now, message, None);
        }
    }

    /// Announces stations behind this node to all nodes.
    pub(super) fn announce(&mut self, now: Duration, payload: &[u8]) {
        let (origin, origin_epoch) = (self.settings.id, self.settings.epoch);
        let number = self.next_number();
        self.broadcasts.is_new((origin, origin_epoch, number));
        let message = Broadcast {
            origin,
            origin_epoch,
            number,
            hops_left: HOPS_MAX,
            parts: 0,
            part: 0,
            stations: true,
            payload,
        };
        self.send_broadcast(now, message, None);
    }

    /// Delivers a broadcast once, and passes it on.
    pub(super) fn broadcast_arrived(
        &mut self,
        now: Duration,
        from: Adjacency,
        message: Broadcast<'_>,
    ) {
        let Broadcast { origin, origin_epoch, number, parts, part, payload, .. } = message;
        let (own, id) = (origin == self.settings.id, (origin, origin_epoch, number));
        if own || !self.broadcasts.is_new(id) {
            self.broadcasts.heard(id, from);
            self.counters.broadcasts_repeated += 1;
            return;
        }
        self.bridge.hear_remote(now, origin);
        if message.stations {
            self.announced(now, origin, payload);
        }
        let whole = if message.stations {
            None
        } else if parts == 0 {
            Some(payload.to_vec())
        } else {
            let first = (origin, origin_epoch, number.wrapping_sub(part.into()));
            let (whole, dropped) = self.broadcasts.add_part(first, (parts, part), payload);
            self.counters.broadcasts_incomplete += dropped;
            whole
        };
        if let Some(packet) = whole {
            self.counters.broadcasts += 1;
            self.send_on_ports(now, None, &packet);
            self.output(MeshOutput::Deliver { origin, packet });
        }
        let Some(hops_left) = message.hops_left.checked_sub(1) else { return };
        if !self.relays_broadcasts() {
            return;
        }
        self.counters.broadcasts_relayed += 1;
        self.send_broadcast(now, Broadcast { hops_left, ..message }, Some(from));
    }

    /// Sends a broadcast to all neighbours, and plans to send it again to those whose links lose frames.
    fn send_broadcast(&mut self, now: Duration, message: Broadcast<'_>, from: Option<Adjacency>) {
        let links = self.flooded_links(from);
        let id = (message.origin, message.origin_epoch, message.number);
        let octets = self.encode_unnumbered(&Message::Broadcast(message));
        self.send_on(&links, &octets);
        if self.is_classic() {
            return;
        }
        let lossy = |(&at, known): (&Adjacency, &Neighbour)| {
            let is_reached =
                known.is_to_be_reached() && links.contains(&at.link) && Some(at) != from;
            let more = known.sendings().saturating_sub(1);
            (is_reached && more > 0).then_some((at, more))
        };
        let neighbours: Vec<_> = self.near.all.iter().filter_map(lossy).collect();
        if neighbours.is_empty() {
            return;
        }
        if self.broadcasts.resends.len() >= RESENDS_MAX {
            self.counters.broadcasts_not_resent += 1;
            return;
        }
        let (at, wait) = (now + RESEND_FIRST, RESEND_FIRST);
        self.broadcasts.resends.push_back(Resend { id, octets, neighbours, at, wait });
    }

    /// Sends broadcasts again that are due.
    pub(super) fn tick_broadcasts(&mut self, now: Duration) {
        if self.broadcasts.due_at(Broadcasts::poll_timeout).is_none_or(|at| at > now) {
            return;
        }
        for mut resend in self.broadcasts.due(now) {
            let links: BTreeSet<LinkIndex> =
                resend.neighbours.iter().map(|(at, _)| at.link).collect();
            let links: Vec<LinkIndex> =
                links.into_iter().filter(|link| self.near.links.contains_key(link)).collect();
            self.send_on(&links, &resend.octets);
            self.counters.broadcasts_resent += 1;
            for (_, more) in &mut resend.neighbours {
                *more -= 1;
            }
            resend.neighbours.retain(|&(_, more)| more > 0);
            if !resend.neighbours.is_empty() {
                resend.wait *= 2;
                resend.at = now + resend.wait;
                self.broadcasts.resends.push_back(resend);
            }
        }
    }

    /// Whether this node relays broadcasts.
    pub(super) fn relays_broadcasts(&mut self) -> bool {
        if !self.settings.broadcast_relays {
            return true;
        }
        if let Some(elected) = self.broadcasts.elected {
            return elected;
        }
        let elected = self.elect();
        self.broadcasts.elected = Some(elected);
        elected
    }

    /// E-CDS (RFC 6621, appendix A.1). The priority is a hash of the identity: the degree of a
    /// two-hop neighbour is not known.
    fn elect(&self) -> bool {
        let priority = |node: NodeId| (node.0.wrapping_mul(0x9e37_79b9_7f4a_7c15), node);
        let own = self.settings.id;
        let mut lists: BTreeMap<NodeId, &[NodeId]> = BTreeMap::new();
        let mut reached = BTreeSet::new();
        for (at, known) in self.near.all.iter().filter(|(_, known)| known.is_to_be_reached()) {
            reached.insert(at.node);
            if !known.is_usable() {
                continue;
            }
            // Without its list, what lies behind a neighbour is not known: relay.
            if known.list.is_empty() {
                return true;
            }
            lists.insert(at.node, &known.list);
        }
        if reached.len() < 2 {
            return false;
        }
        let near = lists.keys().copied();
        let beyond = lists.values().flat_map(|list| list.iter().copied());
        let highest = near.chain(beyond).filter(|&node| node != own).map(priority).max();
        if highest.is_some_and(|highest| priority(own) > highest) {
            return true;
        }
        let Some(first) = lists.keys().copied().max_by_key(|&node| priority(node)) else {
            return true;
        };
        // From the neighbour of highest priority over nodes of higher priority than this one: who
        // is reached so needs no relay here.
        let mut visited = BTreeSet::from([first]);
        let mut queue = VecDeque::from([first]);
        while let Some(node) = queue.pop_front() {
            // A two-hop neighbour's list is not known; its neighbours that list it are.
            let listed = lists.get(&node).copied().unwrap_or_default().iter().copied();
            let listing = lists.iter().filter(|(_, list)| list.binary_search(&node).is_ok());
            for next in listed.chain(listing.map(|(&next, _)| next)).filter(|&next| next != own) {
                if visited.insert(next) && priority(next) > priority(own) {
                    queue.push_back(next);
                }
            }
        }
        reached.iter().any(|node| !visited.contains(node))
    }
}
