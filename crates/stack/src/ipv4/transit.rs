//! The fast path of plain transit packets through a router.

use crate::{
    Out,
    destination::{Destination, DestinationKey, Destinations},
    wiring::EdgeIndex,
};
use gatewright_packet::{Arrival, NextHop, Packet};
use gatewright_wire::{
    EtherType,
    ipv4::{Ipv4, Ipv4Mut},
};
use std::net::{IpAddr, Ipv4Addr};

/// Version 4 and five words of header: no options.
const PLAIN: u8 = 0x45;

/// Readies a packet for its next link, if it is whole and sane, has no options, and is forwarded
/// to a neighbour over a link that takes it as it is; gives the way down to that.
///
/// The caller knows that the link it came by forwards. Everything else is left untouched for
/// [`Ipv4Layer::accept`](super::Ipv4Layer), which asks the same questions again and knows what each
/// answer means. Here they cost one branch each, and nothing larger than a register is carried from
/// one to the next.
#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "a part of the loop over the batch: 33 instructions a packet"
)]
pub(super) fn pass(
    packet: &mut Packet,
    known: &mut Destinations<Ipv4Addr>,
    own: Ipv4Addr,
    out: &mut Out<'_>,
) -> Option<EdgeIndex> {
    let octets = packet.octets();
    let header: &[u8; Ipv4::LEN] = octets.first_chunk()?;
    let view = Ipv4::of(header);
    let total_length = view.total_length();
    let whole = Ipv4::LEN..=octets.len();
    let sane = header.first() == Some(&PLAIN)
        && whole.contains(&usize::from(total_length))
        && sums_up(header)
        && view.time_to_live() > 1
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
        None if to == own => return None,
        None => known.ask(to, out.host())?,
    };
    if way.is_group() {
        return pass_by_group(packet, total_length, *way, out);
    }
    send(packet, total_length, way, out)
}

/// As [`pass`], of a packet whose destination has several next hops.
#[inline(never)]
fn pass_by_group(
    packet: &mut Packet,
    total_length: u16,
    group: Destination<Ipv4Addr>,
    out: &mut Out<'_>,
) -> Option<EdgeIndex> {
    let (way, hop) = group.for_packet(packet.octets(), out.host())?;
    let down = send(packet, total_length, &way, out)?;
    out.count_hop(Some(hop));
    Some(down)
}

/// Readies a packet for its way, if that takes it.
#[inline(always)]
#[expect(clippy::inline_always, reason = "as `pass`")]
fn send(
    packet: &mut Packet,
    total_length: u16,
    way: &Destination<Ipv4Addr>,
    out: &mut Out<'_>,
) -> Option<EdgeIndex> {
    // Back where it came from: its sender may have to be told.
    if total_length > way.mtu || way.link == packet.meta().ingress {
        return None;
    }
    let down = out.way_down(way.link)?;
    packet.truncate(total_length.into());
    Ipv4Mut::of(packet.octets_mut().first_chunk_mut()?).spend_hop();
    let meta = packet.meta_mut();
    meta.egress = way.link;
    meta.next_hop = NextHop::Neighbour(IpAddr::V4(way.next_hop));
    meta.ether_type = EtherType::IPV4.0;
    Some(down)
}

/// Whether the checksum of a header without options is right (RFC 1071), without a loop.
#[inline]
fn sums_up(header: &[u8; Ipv4::LEN]) -> bool {
    let (words, _) = header.as_chunks::<4>();
    let sum: u64 = words.iter().map(|&word| u64::from(u32::from_ne_bytes(word))).sum();
    // Adding carries to the front is arithmetic modulo 0xffff; the first octet keeps the sum from 0.
    sum.is_multiple_of(0xffff)
}
