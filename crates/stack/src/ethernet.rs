//! Ethernet II: the link layer of most links.

use crate::{
    At, Layer, LinkNeighbours, Out, Reason, UNCLAIMED,
    layer::Each,
    link_layer::{BAD_STATION, NO_HEADROOM, NO_INTERFACE, NO_NEXT_HOP, OTHER_STATION, TRUNCATED},
    station::{Station, Stations},
    wiring::EdgeIndex,
};
use gatewright_packet::{Arrival, Batch, LinkIndex, Packet};
use gatewright_wire::{
    EtherType, MacAddress,
    ethernet::{Ethernet, EthernetMut},
};
use std::time::Duration;

/// The type field is a length: an 802.2 frame, which no layer here supports.
const NOT_ETHERNET_II: Reason = Reason("not-ethernet-ii");

/// The link layer of one Ethernet link (RFC 894, RFC 2464).
///
/// Receives frames; strips the header, marks how the frame was addressed, and pushes the payload to
/// `ether:TYPE`. Transmits packets whose `next_hop` and `ether_type` the layer above has set: looks
/// the station up in the neighbour caches, writes the header and pushes the frame down to the
/// device. A packet with an unknown neighbour goes to `unresolved:TYPE`, where ARP or neighbour
/// discovery stands. Drops `truncated`, `not-ethernet-ii`, `bad-station`, `other-station`,
/// `no-interface`, `no-next-hop`, `no-headroom`.
#[derive(Debug)]
pub struct EthernetLayer {
    link: LinkIndex,
    stations: Stations,
}

impl EthernetLayer {
    /// The link layer of the link to which `neighbours` belong.
    pub fn new(neighbours: LinkNeighbours) -> Self {
        Self { link: neighbours.link, stations: Stations::new(neighbours) }
    }

    /// Our own address, and whether frames to other stations are wanted.
    fn own(&self, out: &Out<'_>) -> Option<(MacAddress, bool)> {
        let interface = out.host().interface(self.link)?;
        Some((interface.ethernet_address()?, interface.promiscuous))
    }
}

impl Layer for EthernetLayer {
    fn name(&self) -> &'static str {
        "ethernet"
    }

    fn receive(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        let Some((mac, promiscuous)) = self.own(out) else {
            for packet in batch.drain() {
                out.drop(NO_INTERFACE, packet);
            }
            return;
        };
        out.push_each(batch, &mut Received { link: self.link, mac, promiscuous });
    }

    fn transmit(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        let own = self.own(out);
        self.stations.refresh();
        let (now, device) = (out.now(), out.way_down(self.link));
        let stations = &mut self.stations;
        out.push_each(batch, &mut Sent { stations, own: own.map(|(mac, _)| mac), device, now });
    }
}

/// A received batch.
struct Received {
    link: LinkIndex,
    mac: MacAddress,
    promiscuous: bool,
}

impl Each for Received {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as if it stood in the loop over the batch")]
    fn ready(&mut self, packet: &mut Packet, out: &mut Out<'_>) -> Option<EdgeIndex> {
        let (arrival, ether_type) = accept(packet, self.mac, self.promiscuous).ok()?;
        let way = out.way(At::EtherType(ether_type))?;
        packet.strip(Ethernet::LEN);
        let meta = packet.meta_mut();
        meta.ingress = self.link;
        meta.arrival = arrival;
        meta.ether_type = ether_type.0;
        Some(way)
    }

    fn other(&mut self, packet: Packet, out: &mut Out<'_>) {
        let refused = accept(&packet, self.mac, self.promiscuous).err();
        out.drop(refused.unwrap_or(UNCLAIMED), packet);
    }
}

/// A batch to be sent.
struct Sent<'a> {
    stations: &'a mut Stations,
    own: Option<MacAddress>,
    device: Option<EdgeIndex>,
    now: Duration,
}

impl Each for Sent<'_> {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as if it stood in the loop over the batch")]
    fn ready(&mut self, packet: &mut Packet, _: &mut Out<'_>) -> Option<EdgeIndex> {
        let (own, device) = self.own.zip(self.device)?;
        let Station::At(station) = self.stations.find(&packet.meta().next_hop, self.now) else {
            return None;
        };
        let ether_type = EtherType(packet.meta().ether_type);
        let header = packet.extend_front(Ethernet::LEN).ok()?.first_chunk_mut()?;
        // In place: made beside and copied, it would be read before it is all written.
        let mut header = EthernetMut::of(header);
        header.set_destination(station);
        header.set_source(own);
        header.set_ether_type(ether_type);
        Some(device)
    }

    fn other(&mut self, packet: Packet, out: &mut Out<'_>) {
        if self.own.is_none() {
            return out.drop(NO_INTERFACE, packet);
        }
        match self.stations.find(&packet.meta().next_hop, self.now) {
            Station::At(_) if self.device.is_none() => out.drop(UNCLAIMED, packet),
            Station::At(_) => out.drop(NO_HEADROOM, packet),
            Station::Unknown(family) => out.push_or_drop(At::Unresolved(family), packet),
            Station::Nowhere => out.drop(NO_NEXT_HOP, packet),
        }
    }
}

/// The address class and payload type of the frame, if we take it.
#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "a part of the loop over the batch: 33 instructions a packet"
)]
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
