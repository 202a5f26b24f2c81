//! Raw IP: links whose frames are IP packets, without a link layer's header.

use crate::{
    At, Layer, Out, Reason, UNCLAIMED,
    layer::Each,
    link_layer::{NO_INTERFACE, NO_NEXT_HOP, TRUNCATED},
    wiring::EdgeIndex,
};
use gatewright_packet::{Arrival, Batch, LinkIndex, NextHop, Packet};
use gatewright_wire::EtherType;

/// The first four bits are no version of IP.
const NOT_IP: Reason = Reason("not-ip");

/// The link layer of a link whose frames are IP packets: a TUN device, a capture of raw IP
/// (LINKTYPE_RAW).
///
/// The link has two ends and no link-layer addresses, so nothing is resolved: every packet goes to
/// the other end. Receives packets and pushes them to `ether:ipv4` or `ether:ipv6` by their version.
/// Transmits packets as they are. Drops `truncated`, `not-ip`, `no-interface`, `no-next-hop`.
#[derive(Debug)]
pub struct RawIpLayer {
    link: LinkIndex,
}

impl RawIpLayer {
    /// The link layer of `link`.
    pub const fn new(link: LinkIndex) -> Self {
        Self { link }
    }
}

impl Layer for RawIpLayer {
    fn name(&self) -> &'static str {
        "raw-ip"
    }

    fn receive(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        let has_interface = out.host().interface(self.link).is_some();
        out.push_each(batch, &mut Received { link: self.link, has_interface });
    }

    fn transmit(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        let has_interface = out.host().interface(self.link).is_some();
        let device = out.way_down(self.link).filter(|_| has_interface);
        out.push_each(batch, &mut Sent { device, has_interface });
    }
}

/// A received batch.
struct Received {
    link: LinkIndex,
    has_interface: bool,
}

impl Each for Received {
    fn ready(&mut self, packet: &mut Packet, out: &mut Out<'_>) -> Option<EdgeIndex> {
        let ether_type = family(packet).ok().filter(|_| self.has_interface)?;
        let way = out.way(At::EtherType(ether_type))?;
        let meta = packet.meta_mut();
        meta.ingress = self.link;
        // There is nobody else at this end.
        meta.arrival = Arrival::Unicast;
        meta.ether_type = ether_type.0;
        Some(way)
    }

    fn other(&mut self, packet: Packet, out: &mut Out<'_>) {
        let reason = match family(&packet) {
            _ if !self.has_interface => NO_INTERFACE,
            Err(reason) => reason,
            Ok(_) => UNCLAIMED,
        };
        out.drop(reason, packet);
    }
}

/// The type of the packet by its version, the first four bits of both headers (RFC 791 §3.1, RFC
/// 8200 §3).
fn family(packet: &Packet) -> Result<EtherType, Reason> {
    match packet.octets().first().map(|first| first >> 4) {
        Some(4) => Ok(EtherType::IPV4),
        Some(6) => Ok(EtherType::IPV6),
        Some(_) => Err(NOT_IP),
        None => Err(TRUNCATED),
    }
}

/// A batch to be sent.
struct Sent {
    device: Option<EdgeIndex>,
    has_interface: bool,
}

impl Each for Sent {
    fn ready(&mut self, packet: &mut Packet, _: &mut Out<'_>) -> Option<EdgeIndex> {
        self.device.filter(|_| packet.meta().next_hop != NextHop::Unknown)
    }

    fn other(&mut self, packet: Packet, out: &mut Out<'_>) {
        let reason = match packet.meta().next_hop {
            _ if !self.has_interface => NO_INTERFACE,
            NextHop::Unknown => NO_NEXT_HOP,
            _ => UNCLAIMED,
        };
        out.drop(reason, packet);
    }
}
