//! The fast path of plain transit packets through a router; as for IPv4.

use crate::{
    Out,
    destination::{Destination, DestinationKey, Destinations},
    wiring::EdgeIndex,
};
use gatewright_packet::{Arrival, NextHop, Packet};
use gatewright_wire::{
    EtherType,
    ipv6::{Ipv6, Ipv6Mut},
};
use std::net::{IpAddr, Ipv6Addr};

/// Readies a packet for its next link, if it is whole and sane and is forwarded to a neighbour over
/// a link that takes it; gives the way down to that.
///
/// The caller knows that the link it came by forwards. Everything else is left untouched for
/// [`Ipv6Layer::accept`](super::Ipv6Layer), which asks the same questions again and knows what each
/// answer means.
#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "a part of the loop over the batch: 33 instructions a packet"
)]
pub(super) fn pass(
    packet: &mut Packet,
    known: &mut Destinations<Ipv6Addr>,
    out: &mut Out<'_>,
) -> Option<EdgeIndex> {
    let octets = packet.octets();
    let header: &[u8; Ipv6::LEN] = octets.first_chunk()?;
    let view = Ipv6::of(header);
    let len = Ipv6::LEN + usize::from(view.payload_length());
    let hops = view.hop_limit();
    let sane = view.version() == Ipv6::VERSION
        && len <= octets.len()
        && hops > 1
        && packet.meta().arrival == Arrival::Unicast
        && view.source_address().is_routable()
        && !out.host().is_martian(view.source_address())
        && (packet.is_of(out.frames()) || packet.is_abroad());
    if !sane {
        return None;
    }
    let to = view.destination_address();
    let way = match known.find(to) {
        Some(way) => way,
        None => known.ask(to, out.host())?,
    };
    if way.is_group() {
        return pass_by_group(packet, (len, hops), *way, out);
    }
    send(packet, (len, hops), way, out)
}

/// As [`pass`], of a packet whose destination has several next hops.
#[inline(never)]
fn pass_by_group(
    packet: &mut Packet,
    size: (usize, u8),
    group: Destination<Ipv6Addr>,
    out: &mut Out<'_>,
) -> Option<EdgeIndex> {
    let (way, hop) = group.for_packet(packet.octets(), out.host())?;
    let down = send(packet, size, &way, out)?;
    out.count_hop(Some(hop));
    Some(down)
}

/// Readies a packet of `len` octets, with `hops` left, for its way, if that takes it.
#[inline(always)]
#[expect(clippy::inline_always, reason = "as `pass`")]
fn send(
    packet: &mut Packet,
    (len, hops): (usize, u8),
    way: &Destination<Ipv6Addr>,
    out: &mut Out<'_>,
) -> Option<EdgeIndex> {
    // Back where it came from: its sender may have to be told.
    if len > way.mtu.into() || way.link == packet.meta().ingress {
        return None;
    }
    let down = out.way_down(way.link)?;
    packet.truncate(len);
    Ipv6Mut::of(packet.octets_mut().first_chunk_mut()?).set_hop_limit(hops.saturating_sub(1));
    let meta = packet.meta_mut();
    meta.egress = way.link;
    meta.next_hop = NextHop::Neighbour(IpAddr::V6(way.next_hop));
    meta.ether_type = EtherType::IPV6.0;
    Some(down)
}
