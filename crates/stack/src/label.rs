//! Label switching (RFC 3031, RFC 3032): pushes, swaps and pops labels by the tables that the
//! programs in the kernel read, too.

use crate::{
    At, Layer, LinkNeighbours, Out, Reason, UNCLAIMED,
    flow::flow_of_packet,
    layer::Each,
    link_layer::{NO_HEADROOM, NO_NEXT_HOP, TRUNCATED},
    station::{Station, Stations},
    wiring::EdgeIndex,
};
use gatewright_packet::{Arrival, Batch, LinkAddress, LinkIndex, NextHop, Packet};
use gatewright_tables::{
    LABEL_PATHS_MAX, LABEL_TTL, LABELS_MAX, LabelHop, LabelTable, NoLabelHop, PathKey, label_class,
};
use gatewright_wire::{
    EtherType,
    ethernet::Ethernet,
    mpls::{Label, LabelEntry, LabelEntryFields},
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// The label, or the destination's path, is not in the table.
const UNKNOWN_LABEL: Reason = Reason("unknown-label");
/// There is no path to the destination in the packet's class.
const NO_PATH: Reason = Reason("no-path");
/// The links of all next hops are down.
const LINK_DOWN: Reason = Reason("link-down");
/// The entry of the label changed during the lookup.
const UNSETTLED: Reason = Reason("unsettled");
/// A TTL of 0 or 1 (RFC 3032 §2.4.2).
const EXPIRED: Reason = Reason("expired");
/// A reserved label, or further labels below one that ends here.
const RESERVED_LABEL: Reason = Reason("reserved-label");
/// The payload is neither IPv4 nor IPv6.
const NOT_IP: Reason = Reason("not-ip");
/// A packet to a group, which has no path.
const GROUP: Reason = Reason("group");

/// Numbers of packets by label and by path: one worker writes them, any thread reads them.
#[derive(Clone, Debug)]
pub struct LabelCounts(Arc<[AtomicU64]>);

impl Default for LabelCounts {
    fn default() -> Self {
        let places = LABELS_MAX.saturating_add(LABEL_PATHS_MAX);
        Self((0..places * 2).map(|_| AtomicU64::new(0)).collect())
    }
}

impl LabelCounts {
    /// Packets that were swapped or popped by the label in `place`
    /// ([`LabelTable::place_of_label`]), and the octets of their frames as they arrived.
    pub fn label(&self, place: u32) -> (u64, u64) {
        if place < LABELS_MAX { self.get(place) } else { (0, 0) }
    }

    /// Packets that were sent by the path in `place`, and the octets of their frames without label.
    pub fn path(&self, place: u32) -> (u64, u64) {
        self.get(LABELS_MAX.saturating_add(place))
    }

    fn get(&self, place: u32) -> (u64, u64) {
        let get = |at| self.at(place, at).map_or(0, |count| count.load(Ordering::Relaxed));
        (get(0), get(1))
    }

    #[inline]
    fn add(&self, place: u32, octets: usize) {
        for (at, more) in [(0, 1), (1, octets as u64)] {
            if let Some(count) = self.at(place, at) {
                // One writer: no read-modify-write is needed.
                count.store(count.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
            }
        }
    }

    #[inline]
    fn at(&self, place: u32, at: usize) -> Option<&AtomicU64> {
        self.0.get(usize::try_from(place).ok()? * 2 + at)
    }
}

/// A label-switched network as one link of the graph.
#[derive(Clone, Debug)]
pub struct LabelledLink {
    /// Its index, to which packets are routed.
    pub link: LinkIndex,
    /// Labels and paths, whose links have the numbers of the graph's.
    pub table: LabelTable,
    /// The counters that the layer writes.
    pub counts: LabelCounts,
}

/// Label switching over all Ethernet links, and the link layer of the network that it makes.
///
/// Receives labelled packets at `ether:mpls`. Swaps the label and pushes the packet down to the
/// next hop's link, or pops it and pushes the payload to `ether:TYPE` as from its own link. A packet
/// whose `label:NUMBER` has a handler goes there first, as its payload. Transmits packets of its own
/// link: looks the station up, pushes the label of the path to it, and sends the packet down to the
/// path's link. Drops `truncated`, `reserved-label`, `unknown-label`, `expired`, `link-down`,
/// `unsettled`, `not-ip`, `no-path`, `group`, `no-next-hop`, `no-headroom`.
#[derive(Debug)]
pub struct LabelLayer {
    own: LabelledLink,
    stations: Stations,
}

impl LabelLayer {
    /// The layer of `own`, whose stations `neighbours` knows.
    pub fn new(own: LabelledLink, neighbours: LinkNeighbours) -> Self {
        Self { own, stations: Stations::new(neighbours) }
    }

    /// Pushes the label of the path to the packet's station, or returns its way instead.
    fn push(&mut self, packet: &mut Packet, out: &Out<'_>) -> Result<LinkIndex, Unlabelled> {
        let station = match self.stations.find(&packet.meta().next_hop, out.now()) {
            Station::At(station) if station.is_multicast() => return Err(Unlabelled::Drop(GROUP)),
            Station::At(station) => station,
            Station::Unknown(family) => return Err(Unlabelled::Push(At::Unresolved(family))),
            Station::Nowhere => return Err(Unlabelled::Drop(NO_NEXT_HOP)),
        };
        let class = class_of(packet).ok_or(Unlabelled::Drop(NOT_IP))?;
        let key = PathKey { destination: station.octets(), class };
        let flow = flow_of_packet(packet.octets()).unwrap_or_default();
        let found = self.own.table.path_hop_of(key, flow);
        let (place, hop) = found.map_err(|error| Unlabelled::Drop(reason(error, NO_PATH)))?;
        let label = hop.label.ok_or(Unlabelled::Drop(NO_PATH))?;
        let entry = LabelEntryFields {
            label: Label(label),
            traffic_class: class,
            bottom_of_stack: true,
            time_to_live: LABEL_TTL,
        };
        let octets = Ethernet::LEN + packet.len();
        packet.prepend(&entry.emit()).map_err(|_| Unlabelled::Drop(NO_HEADROOM))?;
        self.own.counts.add(LABELS_MAX.saturating_add(place), octets);
        Ok(send_to(packet, hop))
    }
}

/// The way of a packet that gets no label.
enum Unlabelled {
    Push(At),
    Drop(Reason),
}

impl Layer for LabelLayer {
    fn name(&self) -> &'static str {
        "label"
    }

    fn receive(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        if matches!(out.at(), At::Label(_)) {
            for mut packet in batch.drain() {
                // Behind the handlers of its label the packet gets its entry back.
                let entry = packet.meta().parameter;
                match packet.prepend(&entry.to_be_bytes()) {
                    Ok(()) => self.switch(packet, out),
                    Err(_) => out.drop(NO_HEADROOM, packet),
                }
            }
        } else if out.has_label_handlers() {
            for mut packet in batch.drain() {
                let Ok((entry, _)) = LabelEntry::split(packet.octets()) else {
                    out.drop(TRUNCATED, packet);
                    continue;
                };
                let label = entry.label();
                packet.meta_mut().parameter = u32::from_be_bytes(entry.fields().emit());
                packet.strip(LabelEntry::LEN);
                out.push_or_drop(At::Label(label.0), packet);
            }
        } else {
            out.push_each(batch, &mut LabelBatch(&self.own));
        }
    }

    fn transmit(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        self.stations.refresh();
        for mut packet in batch.drain() {
            match self.push(&mut packet, out) {
                Ok(link) => {
                    if let Err(packet) = out.push_down(link, packet) {
                        out.drop(UNCLAIMED, packet);
                    }
                }
                Err(Unlabelled::Push(at)) => out.push_or_drop(at, packet),
                Err(Unlabelled::Drop(reason)) => out.drop(reason, packet),
            }
        }
    }
}

impl LabelLayer {
    /// Swaps or pops the label of one packet, and passes it on.
    fn switch(&self, mut packet: Packet, out: &mut Out<'_>) {
        let mut received = LabelBatch(&self.own);
        match received.ready(&mut packet, out) {
            Some(way) => out.push_by(way, packet),
            None => received.other(packet, out),
        }
    }
}

/// A received batch.
struct LabelBatch<'a>(&'a LabelledLink);

impl LabelBatch<'_> {
    /// The label's place and next hop, with its entry.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a part of the loop over the batch")]
    fn look_up(&self, packet: &Packet) -> Result<((u32, LabelHop), LabelEntryFields), Reason> {
        let (entry, _) = LabelEntry::split(packet.octets()).map_err(|_| TRUNCATED)?;
        let entry = entry.fields();
        if entry.label.is_reserved() {
            return Err(RESERVED_LABEL);
        }
        let hop = self.0.table.label_hop(entry.label.0);
        let hop = hop.map_err(|error| reason(error, UNKNOWN_LABEL))?;
        // RFC 3032 §2.4.2: a packet whose outgoing TTL would be 0 is not forwarded.
        if entry.time_to_live <= 1 { Err(EXPIRED) } else { Ok((hop, entry)) }
    }

    /// Strips the label of a packet that ends here; returns its payload's type.
    fn pop(&self, packet: &mut Packet) -> Result<EtherType, Reason> {
        let ((place, hop), entry) = self.look_up(packet)?;
        if !entry.bottom_of_stack {
            return Err(RESERVED_LABEL);
        }
        let octets = Ethernet::LEN + packet.len();
        let version = packet.octets().get(LabelEntry::LEN).ok_or(TRUNCATED)? >> 4;
        let ether_type = match version {
            4 => EtherType::IPV4,
            6 => EtherType::IPV6,
            _ => return Err(NOT_IP),
        };
        packet.strip(LabelEntry::LEN);
        self.0.counts.add(place, octets);
        let meta = packet.meta_mut();
        meta.ingress = link_index(hop.link);
        meta.arrival = Arrival::Unicast;
        meta.ether_type = ether_type.0;
        Ok(ether_type)
    }
}

impl Each for LabelBatch<'_> {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as if it stood in the loop over the batch")]
    fn ready(&mut self, packet: &mut Packet, out: &mut Out<'_>) -> Option<EdgeIndex> {
        let ((place, hop), entry) = self.look_up(packet).ok()?;
        let label = Label(hop.label?);
        let way = out.way_down(link_index(hop.link))?;
        let octets = Ethernet::LEN + packet.len();
        let time_to_live = entry.time_to_live.saturating_sub(1);
        *packet.octets_mut().first_chunk_mut()? =
            LabelEntryFields { label, time_to_live, ..entry }.emit();
        self.0.counts.add(place, octets);
        send_to(packet, hop);
        Some(way)
    }

    /// A packet whose label is popped, or one that is dropped.
    fn other(&mut self, mut packet: Packet, out: &mut Out<'_>) {
        match self.look_up(&packet) {
            Ok(((_, LabelHop { label: Some(_), .. }), _)) => out.drop(UNCLAIMED, packet),
            Ok(_) => match self.pop(&mut packet) {
                Ok(ether_type) => out.push_or_drop(At::EtherType(ether_type), packet),
                Err(reason) => out.drop(reason, packet),
            },
            Err(reason) => out.drop(reason, packet),
        }
    }
}

/// Addresses a labelled packet to its next hop; returns the link.
#[inline]
fn send_to(packet: &mut Packet, hop: LabelHop) -> LinkIndex {
    let link = link_index(hop.link);
    let meta = packet.meta_mut();
    meta.egress = link;
    meta.ether_type = EtherType::MPLS.0;
    meta.next_hop = NextHop::Station(LinkAddress::ethernet(hop.address));
    link
}

/// The link with a number of the table.
#[inline]
fn link_index(number: u32) -> LinkIndex {
    u16::try_from(number).map_or(LinkIndex::NONE, LinkIndex)
}

/// The traffic class of an IP packet.
fn class_of(packet: &Packet) -> Option<u8> {
    let [first, second, ..] = *packet.octets() else { return None };
    let precedence = match EtherType(packet.meta().ether_type) {
        EtherType::IPV4 => second >> 5,
        EtherType::IPV6 => first << 4 >> 5,
        _ => return None,
    };
    Some(label_class(precedence))
}

/// The reason to drop a packet without a next hop.
const fn reason(error: NoLabelHop, unknown: Reason) -> Reason {
    match error {
        NoLabelHop::LinkDown => LINK_DOWN,
        NoLabelHop::Unsettled => UNSETTLED,
        _ => unknown,
    }
}
