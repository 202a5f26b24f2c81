//! Ethernet II: the link layer of most links.

use crate::{
    At, Layer, LinkNeighbours, Out, Reason, UNCLAIMED,
    station::{Station, Stations},
};
use gatewright_packet::{Arrival, Batch, LinkIndex, Packet};
use gatewright_wire::{
    EtherType, MacAddress,
    ethernet::{Ethernet, EthernetMut},
};

/// The frame is shorter than its header.
pub(crate) const TRUNCATED: Reason = Reason("truncated");

/// The type field is a length: an 802.2 frame, which no layer here takes.
pub(crate) const NOT_ETHERNET_II: Reason = Reason("not-ethernet-ii");

/// The source address is that of a group (IEEE 802.3 §3.2.3 forbids it).
pub(crate) const BAD_STATION: Reason = Reason("bad-station");

/// The frame is to another station, and the link is not promiscuous.
pub(crate) const OTHER_STATION: Reason = Reason("other-station");

/// The host has no interface for the link.
pub(crate) const NO_INTERFACE: Reason = Reason("no-interface");

/// A packet came down without a next hop.
pub(crate) const NO_NEXT_HOP: Reason = Reason("no-next-hop");

/// The packet's chunk has no room for another header.
pub(crate) const NO_HEADROOM: Reason = Reason("no-headroom");

/// The link layer of one Ethernet link (RFC 894, RFC 2464).
///
/// Receives frames; strips the header, marks how the frame was addressed, and pushes the payload to
/// `ether:TYPE`. Transmits packets whose `next_hop` and `ether_type` the layer above has set: looks
/// the station up in the neighbour caches, writes the header and pushes the frame down to the
/// device. A packet whose neighbour is not known yet goes to `unresolved:TYPE`, where ARP or
/// neighbour discovery stands. Drops `truncated`, `not-ethernet-ii`, `bad-station`, `other-station`,
/// `no-interface`, `no-next-hop`, `no-headroom`.
#[derive(Debug)]
pub struct EthernetLayer {
    link: LinkIndex,
    stations: Stations,
}

impl EthernetLayer {
    /// The link layer of the link that `neighbours` are of.
    pub fn new(neighbours: LinkNeighbours) -> Self {
        Self { link: neighbours.link, stations: Stations::new(neighbours) }
    }

    /// Our own address, and whether frames to others are wanted.
    fn own(&self, out: &Out<'_>) -> Option<(MacAddress, bool)> {
        out.host().interface(self.link).map(|interface| (interface.mac, interface.promiscuous))
    }
}

impl Layer for EthernetLayer {
    fn name(&self) -> &'static str {
        "ethernet"
    }

    fn receive(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        let own = self.own(out);
        let mut last = None;
        for mut packet in batch.drain() {
            let Some((mac, promiscuous)) = own else {
                out.drop(NO_INTERFACE, packet);
                continue;
            };
            match accept(&packet, mac, promiscuous) {
                Ok((arrival, ether_type)) => {
                    packet.strip(Ethernet::LEN);
                    let meta = packet.meta_mut();
                    meta.ingress = self.link;
                    meta.arrival = arrival;
                    meta.ether_type = ether_type.0;
                    // Most frames of a batch carry the same.
                    let way = match last {
                        Some((of, way)) if of == ether_type => way,
                        _ => out.way(At::EtherType(ether_type)),
                    };
                    last = Some((ether_type, way));
                    match way {
                        Some(way) => out.push_on(way, packet),
                        None => out.drop(UNCLAIMED, packet),
                    }
                }
                Err(reason) => out.drop(reason, packet),
            }
        }
    }

    fn transmit(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        let own = self.own(out);
        self.stations.refresh();
        let (now, device) = (out.now(), out.way_down(self.link));
        for mut packet in batch.drain() {
            let Some((mac, _)) = own else {
                out.drop(NO_INTERFACE, packet);
                continue;
            };
            let destination = match self.stations.find(&packet.meta().next_hop, now) {
                Station::At(station) => station,
                Station::Unknown(family) => {
                    out.push_or_drop(At::Unresolved(family), packet);
                    continue;
                }
                Station::Nowhere => {
                    out.drop(NO_NEXT_HOP, packet);
                    continue;
                }
            };
            let ether_type = EtherType(packet.meta().ether_type);
            let header = packet.extend_front(Ethernet::LEN).ok();
            let Some(header) = header.and_then(<[u8]>::first_chunk_mut) else {
                out.drop(NO_HEADROOM, packet);
                continue;
            };
            // In place: made beside and copied, it would be read before it is all written.
            let mut header = EthernetMut::of(header);
            header.set_destination(destination);
            header.set_source(mac);
            header.set_ether_type(ether_type);
            match device {
                Some(device) => out.push_on(device, packet),
                None => out.drop(UNCLAIMED, packet),
            }
        }
    }
}

/// How the frame is addressed and what it carries, if we take it.
fn accept(
    packet: &Packet,
    mac: MacAddress,
    promiscuous: bool,
) -> Result<(Arrival, EtherType), Reason> {
    let (header, _) = Ethernet::split(packet.octets()).map_err(|_| TRUNCATED)?;
    if header.source().is_multicast() {
        return Err(BAD_STATION);
    }
    let destination = header.destination();
    let arrival = if destination == mac {
        Arrival::Unicast
    } else if destination.is_broadcast() {
        Arrival::Broadcast
    } else if destination.is_multicast() {
        Arrival::Multicast
    } else if promiscuous {
        Arrival::Other
    } else {
        return Err(OTHER_STATION);
    };
    if header.is_llc() {
        return Err(NOT_ETHERNET_II);
    }
    Ok((arrival, header.ether_type()))
}
