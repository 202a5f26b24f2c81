//! Layers, and their operations on packets.

use crate::{
    At, Drops, Event, Groups, HandedOver, Learnt, LostNeighbours, NodeIndex, Paths, Reason, Side,
    Trace, View,
    hop_counters::NextHopTraffic,
    icmp_counters::{IcmpCounters, IcmpFate, IcmpType},
    wiring::{EdgeIndex, Wiring},
};
use gatewright_packet::{Batch, LinkIndex, NextHop, Packet, Pool};
use gatewright_tables::HopIndex;
use std::{cmp::Ordering, net::IpAddr, time::Duration};

/// A protocol layer: takes batches from below and from above, and pushes packets on.
///
/// A layer drains its batch: packets left in it are dropped and counted as `left`.
pub trait Layer {
    /// The layer's name, as the protocol's standard writes it in lower case.
    fn name(&self) -> &'static str;

    /// Handles packets from below.
    fn receive(&mut self, batch: &mut Batch, out: &mut Out<'_>);

    /// Handles packets from above.
    fn transmit(&mut self, batch: &mut Batch, out: &mut Out<'_>);

    /// Reads the host again: its interfaces, addresses or groups have changed, or the graph is new.
    fn handle_host(&mut self, _out: &mut Out<'_>) {}

    /// Sends its last messages before the graph ends; afterwards only the answers of neighbours are
    /// received.
    fn handle_end(&mut self, _out: &mut Out<'_>) {}

    /// When [`Self::handle_timeout`] is to be called, if nothing else happens.
    fn poll_timeout(&self) -> Option<Duration> {
        None
    }

    /// Does the work that is due at [`Out::now`].
    fn handle_timeout(&mut self, _out: &mut Out<'_>) {}
}

/// The exits for a layer's packets: its outgoing edges, and the drain.
///
/// It exists for one call of the layer and has the layer's edges, the time, and the slabs for the
/// layer's own packets.
pub struct Out<'a> {
    pub(crate) node: usize,
    pub(crate) at: At,
    pub(crate) now: Duration,
    pub(crate) wiring: &'a Wiring,
    pub(crate) queues: &'a mut [Vec<Packet>],
    pub(crate) ready: &'a mut Vec<EdgeIndex>,
    pub(crate) drops: &'a Drops,
    pub(crate) icmp: &'a IcmpCounters,
    pub(crate) hops: &'a NextHopTraffic,
    /// The trace that runs, if any.
    pub(crate) trace: Option<&'a mut Trace>,
    pub(crate) host: &'a View,
    pub(crate) told: &'a mut LayerEvents,
    pub(crate) groups: &'a mut Groups,
    pub(crate) paths: &'a mut Paths,
    pub(crate) lost: &'a mut LostNeighbours,
    pub(crate) frames: &'a Pool,
    pub(crate) datagrams: &'a Pool,
    /// The last edge found: packets mostly take the same one.
    pub(crate) last: &'a mut Found,
}

/// A layer's treatment of each packet of a batch ([`Out::push_each`]).
pub(crate) trait Each {
    /// Prepares a packet of the common case and returns its edge; otherwise leaves it unchanged.
    fn ready(&mut self, packet: &mut Packet, out: &mut Out<'_>) -> Option<EdgeIndex>;

    /// Takes a packet outside the common case.
    fn other(&mut self, packet: Packet, out: &mut Out<'_>);
}

/// Reports of layers to the owner of the graph.
#[derive(Debug, Default)]
pub(crate) struct LayerEvents {
    pub(crate) events: Vec<Event>,
    pub(crate) handed: Vec<HandedOver>,
}

/// A packet was refused because the queue of its edge was full.
pub const QUEUE_FULL: Reason = Reason("queue-full");

/// Drop reason: the position has no layer and no handler.
pub const UNCLAIMED: Reason = Reason("unclaimed");

impl Out<'_> {
    /// The time, since the gateway's epoch.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// The position by which the batch came to this layer.
    pub fn at(&self) -> At {
        self.at
    }

    /// The host: its interfaces and its router.
    pub fn host(&self) -> &View {
        self.host
    }

    /// Reports an event from the network to the control side.
    pub fn report(&mut self, event: Event) {
        if self.told.events.len() < EVENTS_MAX {
            self.told.events.push(event);
        } else {
            self.drops.add(EVENTS_FULL, 1);
        }
    }

    /// The multicast groups that this host has joined.
    pub fn groups(&mut self) -> &mut Groups {
        self.groups
    }

    /// The path MTUs of destinations.
    pub fn paths(&mut self) -> &mut Paths {
        self.paths
    }

    /// Remembers that the next hop of a packet did not tell its link-layer address.
    pub(crate) fn note_lost(&mut self, link: LinkIndex, packet: &Packet) {
        if let NextHop::Neighbour(address) = packet.meta().next_hop {
            self.lost.note(link, address, self.now);
        }
    }

    /// Learns a path MTU, and reports it if it is lower than the known one.
    pub(crate) fn learn_path(&mut self, destination: IpAddr, mtu: u32) {
        match self.paths.learn(destination, mtu, self.now) {
            Learnt::Known => return,
            Learnt::Lower => {}
            Learnt::LowerForAnother => self.drops.add(PATH_FORGOTTEN, 1),
        }
        self.report(Event::PathMtu { destination, mtu });
    }

    /// Joins or leaves a multicast group.
    pub fn join(&mut self, group: IpAddr, link: LinkIndex, join: bool) {
        if !join {
            self.groups.leave(link, group);
        } else if !self.groups.join(link, group) {
            self.drops.add(GROUPS_FULL, 1);
        }
    }

    /// The slab for frames.
    pub fn frames(&self) -> &Pool {
        self.frames
    }

    /// The slab for whole datagrams, larger than any frame.
    pub fn datagrams(&self) -> &Pool {
        self.datagrams
    }

    /// The edge to the layer at `at`, or at any value of its kind: for layers that push packet
    /// after packet the same way.
    #[inline]
    pub(crate) fn way(&mut self, at: At) -> Option<EdgeIndex> {
        self.edge_at(at)
    }

    /// The edge down to `link`.
    #[inline]
    pub(crate) fn way_down(&mut self, link: LinkIndex) -> Option<EdgeIndex> {
        self.edge(down_key(link))
    }

    /// Whether a handler is at the position of any label that this layer pushes to.
    pub(crate) fn has_label_handlers(&self) -> bool {
        self.wiring.has_label_handlers(self.node)
    }

    /// Pushes the packet by an edge that [`Self::way`] or [`Self::way_down`] has found.
    pub(crate) fn push_by(&mut self, way: EdgeIndex, packet: Packet) {
        self.enqueue(way, packet);
    }

    /// Whether there is a layer or a handler at `at`, or at any value of its kind.
    pub fn leads_somewhere(&mut self, at: At) -> bool {
        self.edge_at(at).is_some()
    }

    /// Pushes the packet to the layer at `at`, or at any value of its kind.
    ///
    /// # Errors
    ///
    /// Returns the packet if nothing stands there.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the kind of position is known where it is called")]
    pub fn push(&mut self, at: At, packet: Packet) -> Result<(), Packet> {
        match self.edge_at(at) {
            Some(edge) => {
                self.enqueue(edge, packet);
                Ok(())
            }
            None => Err(packet),
        }
    }

    /// Pushes the packet to the layer at `at`; counts it as [`UNCLAIMED`] if there is none.
    #[inline]
    pub fn push_or_drop(&mut self, at: At, packet: Packet) {
        if self.push(at, packet).is_err() {
            self.drops.add(UNCLAIMED, 1);
        }
    }

    /// Pushes the packet down to `link`: to its link layer, or from that to the device.
    ///
    /// # Errors
    ///
    /// Returns the packet if this layer does not stand above the link.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as `push`")]
    pub fn push_down(&mut self, link: LinkIndex, packet: Packet) -> Result<(), Packet> {
        match self.edge(down_key(link)) {
            Some(edge) => {
                self.enqueue(edge, packet);
                Ok(())
            }
            None => Err(packet),
        }
    }

    /// Pushes a packet that has waited for its neighbour down to `link`.
    ///
    /// # Errors
    ///
    /// Returns the packet if no such edge leaves this layer.
    pub(crate) fn push_released(&mut self, link: LinkIndex, packet: Packet) -> Result<(), Packet> {
        match self.edge(released_key(link)) {
            Some(edge) => {
                self.enqueue(edge, packet);
                Ok(())
            }
            None => Err(packet),
        }
    }

    /// Passes each packet of a batch on, in order.
    ///
    /// A batch with one way, the usual case, is passed on without moving a packet.
    #[inline]
    pub(crate) fn push_each(&mut self, batch: &mut Batch, each: &mut impl Each) {
        let (mut way, mut alike) = (None, 0);
        for packet in batch.iter_mut() {
            let its = each.ready(packet, self);
            if alike == 0 {
                way = its;
            }
            if its != way || its.is_none() {
                return self.push_parted(batch, each, (alike, way, its));
            }
            alike += 1;
        }
        match way.and_then(|way| self.queues.get_mut(way.index()).zip(Some(way))) {
            Some((queue, way)) if queue.is_empty() => {
                self.ready.push(way);
                batch.append_to(queue);
            }
            _ => self.push_parted(batch, each, (alike, way, None)),
        }
    }

    /// Passes the packets of a batch on one by one: the first ones are ready for one edge, the
    /// next, if there is one, for another edge or for none.
    #[inline(never)]
    fn push_parted(
        &mut self,
        batch: &mut Batch,
        each: &mut impl Each,
        (alike, way, next): (usize, Option<EdgeIndex>, Option<EdgeIndex>),
    ) {
        for (index, mut packet) in batch.drain().enumerate() {
            let way = match index.cmp(&alike) {
                Ordering::Less => way,
                Ordering::Equal => next,
                Ordering::Greater => each.ready(&mut packet, self),
            };
            match way {
                Some(way) => self.enqueue(way, packet),
                None => each.other(packet, self),
            }
        }
    }

    /// Drops the packet and counts it under `reason`.
    pub fn drop(&mut self, reason: Reason, packet: Packet) {
        drop(packet);
        self.drops.add(reason, 1);
    }

    /// Passes the packet to the same layer of the first worker.
    pub(crate) fn hand_over(&mut self, side: Side, mut packet: Packet) {
        if self.told.handed.len() >= QUEUE_MAX {
            self.overflow(packet);
            return;
        }
        Trace::forget(&mut packet);
        let to = NodeIndex(u16::try_from(self.node).unwrap_or(u16::MAX));
        self.told.handed.push(HandedOver { to, at: self.at, side, packet });
    }

    /// Counts an occurrence other than a dropped packet, such as a full table.
    pub fn count(&mut self, reason: Reason) {
        self.drops.add(reason, 1);
    }

    /// Counts an ICMP message of this host.
    pub(crate) fn count_icmp(&self, fate: IcmpFate, of: IcmpType) {
        self.icmp.add(fate, of);
    }

    /// Counts a packet that is sent by a next hop of a group.
    pub(crate) fn count_hop(&self, hop: Option<HopIndex>) {
        if let Some(hop) = hop {
            self.hops.add(hop);
        }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as `push`")]
    fn edge_at(&mut self, at: At) -> Option<EdgeIndex> {
        self.edge(at.key()).or_else(|| self.edge(at.any()?.key()))
    }

    #[inline]
    fn edge(&mut self, key: u64) -> Option<EdgeIndex> {
        if self.last.0 == key { Some(self.last.1) } else { self.find_edge(key) }
    }

    #[inline(never)]
    fn find_edge(&mut self, key: u64) -> Option<EdgeIndex> {
        let edge = self.wiring.edge_of(self.node, key)?;
        *self.last = (key, edge);
        Some(edge)
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "three a packet: 2 ns each when called")]
    fn enqueue(&mut self, edge: EdgeIndex, packet: Packet) {
        let Some(queue) = self.queues.get_mut(edge.index()) else { return };
        if queue.is_empty() {
            self.ready.push(edge);
        }
        if queue.len() >= QUEUE_MAX {
            self.overflow(packet);
            return;
        }
        queue.push(packet);
    }

    #[cold]
    fn overflow(&self, packet: Packet) {
        drop(packet);
        self.drops.add(QUEUE_FULL, 1);
    }
}

/// An event was lost because the control side had not fetched the earlier ones.
pub const EVENTS_FULL: Reason = Reason("events-full");

/// A path MTU was forgotten to make room for a new one.
const PATH_FORGOTTEN: Reason = Reason("path-forgotten");

/// A group was not joined because there are too many.
pub const GROUPS_FULL: Reason = Reason("groups-full");

/// Maximum events queued for the control side.
const EVENTS_MAX: usize = 256;

/// Maximum packets queued on one edge: a batch of datagrams of 65,535 octets in fragments of 1,280.
pub(crate) const QUEUE_MAX: usize = 4096;

/// The lookup key of the edge down to a link.
pub(crate) const fn down_key(link: LinkIndex) -> u64 {
    (10 << 32) | link.0 as u64
}

/// The lookup key of the edge to `link` for packets that have waited for their neighbour: the
/// handlers on their own edge have seen them already.
pub(crate) const fn released_key(link: LinkIndex) -> u64 {
    (13 << 32) | link.0 as u64
}

/// An edge with the key by which it was found.
pub(crate) type Found = (u64, EdgeIndex);

/// No edge: no position has this key.
pub(crate) const NOTHING_FOUND: Found = (0, EdgeIndex(0));
