//! BROADCAST: a packet for every node.
//!
//! In `classic` every node relays it once (flooding). Otherwise relays are elected from two-hop
//! information: E-CDS (RFC 6621, appendix A).

use super::MeshNode;
use crate::edge::{Adjacency, MeshOutput};
use crate::identity::NodeId;
use crate::message::Message;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Origins whose broadcasts are remembered.
const ORIGINS_MAX: usize = 1_024;

/// Numbers of an origin that are remembered: a word.
const WINDOW: u32 = 64;

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

/// Broadcasts that have passed, and whether this node relays.
#[derive(Clone, Debug, Default)]
pub(super) struct Broadcasts {
    origins: BTreeMap<NodeId, Window>,
    order: VecDeque<NodeId>,
    elected: Option<bool>,
}

impl Broadcasts {
    /// The neighbourhood has changed: relays are elected anew.
    pub(super) const fn forget_election(&mut self) {
        self.elected = None;
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
    /// Sends a packet to all nodes.
    pub(super) fn broadcast(&mut self, packet: &[u8]) {
        let (origin, origin_epoch) = (self.settings.id, self.settings.epoch);
        let number = self.next_number();
        self.broadcasts.is_new((origin, origin_epoch, number));
        let message = Message::Broadcast {
            origin,
            origin_epoch,
            number,
            hops_left: HOPS_MAX,
            payload: packet,
        };
        self.flood(&message, None);
    }

    /// Delivers a broadcast once, and passes it on.
    pub(super) fn broadcast_arrived(
        &mut self,
        from: Adjacency,
        (origin, origin_epoch, number): BroadcastId,
        hops_left: u8,
        payload: &[u8],
    ) {
        let own = origin == self.settings.id;
        if own || !self.broadcasts.is_new((origin, origin_epoch, number)) {
            self.counters.broadcasts_repeated += 1;
            return;
        }
        self.counters.broadcasts += 1;
        self.output(MeshOutput::Deliver { origin, packet: payload.to_vec() });
        let Some(hops_left) = hops_left.checked_sub(1) else { return };
        if self.settings.broadcast_relays && !self.is_relay() {
            return;
        }
        self.counters.broadcasts_relayed += 1;
        let message = Message::Broadcast { origin, origin_epoch, number, hops_left, payload };
        self.flood(&message, Some(from.link));
    }

    /// Whether this node relays broadcasts.
    fn is_relay(&mut self) -> bool {
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
        for (at, known) in self.near.all.iter().filter(|(_, known)| known.is_usable()) {
            // Without its list, what lies behind a neighbour is not known: relay.
            if known.list.is_empty() {
                return true;
            }
            lists.insert(at.node, &known.list);
        }
        if lists.len() < 2 {
            return false;
        }
        let near = lists.keys().copied();
        let beyond = lists.values().flat_map(|list| list.iter().copied());
        let highest = near.chain(beyond).filter(|&node| node != own).map(priority).max();
        if highest.is_some_and(|highest| priority(own) > highest) {
            return true;
        }
        let Some(first) = lists.keys().copied().max_by_key(|&node| priority(node)) else {
            return false;
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
        lists.keys().any(|node| !visited.contains(node))
    }
}
