//! The way of most packets through a router, kept short.

use crate::{Out, Route};
use gatewright_packet::{Arrival, LinkIndex, NextHop, Packet};
use gatewright_wire::{
    EtherType,
    ipv4::{Ipv4, Ipv4Mut},
};
use std::net::{IpAddr, Ipv4Addr};

/// Version 4 and five words of header: no options.
const PLAIN: u8 = 0x45;

/// Readies a packet for its next link, if it is whole and sane, has no options, and is forwarded
/// to a neighbour over a link that takes it as it is; gives the link to push it down to.
///
/// Everything else is left untouched for [`Ipv4Layer::accept`](super::Ipv4Layer), which asks the
/// same questions again and knows what each answer means. Here they cost one branch each, and
/// nothing larger than a register is carried from one to the next.
#[inline]
pub(super) fn pass(packet: &mut Packet, out: &Out<'_>) -> Option<LinkIndex> {
    let meta = packet.meta();
    let (ingress, arrival) = (meta.ingress, meta.arrival);
    let octets = packet.octets();
    let header: &[u8; Ipv4::LEN] = octets.first_chunk()?;
    let view = Ipv4::of(header);
    let total_length = usize::from(view.total_length());
    let (source, destination) = (view.source_address(), view.destination_address());
    let sane = header.first() == Some(&PLAIN)
        && (Ipv4::LEN..=octets.len()).contains(&total_length)
        && sums_up(header)
        && view.time_to_live() > 1
        && arrival == Arrival::Unicast
        && is_routable(source)
        && is_routable(destination)
        && packet.is_of(out.frames());
    if !sane {
        return None;
    }
    let host = out.host();
    let (link, gateway) = match *host.route4_in_place(destination) {
        Route::Connected(link) => (link, destination),
        Route::Via { link, gateway: IpAddr::V4(gateway) } => (link, gateway),
        _ => return None,
    };
    let egress = host.interface(link)?;
    let takes = egress.up && usize::try_from(egress.mtu).is_ok_and(|mtu| total_length <= mtu);
    if !takes || !host.interface(ingress)?.forwarding {
        return None;
    }
    packet.truncate(total_length);
    Ipv4Mut::of(packet.octets_mut().first_chunk_mut()?).spend_hop();
    let meta = packet.meta_mut();
    meta.egress = link;
    meta.next_hop = NextHop::Neighbour(IpAddr::V4(gateway));
    meta.ether_type = EtherType::IPV4.0;
    Some(link)
}

/// Whether the checksum of a header without options is right (RFC 1071), without a loop.
#[inline]
fn sums_up(header: &[u8; Ipv4::LEN]) -> bool {
    let (words, _) = header.as_chunks::<4>();
    let sum: u64 = words.iter().map(|&word| u64::from(u32::from_ne_bytes(word))).sum();
    let sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

/// Whether it is the address of one host, which may be anywhere: neither of this network, loopback,
/// a link, a group, nor reserved.
#[inline]
fn is_routable(address: Ipv4Addr) -> bool {
    let bits = address.to_bits();
    let first = bits >> 24;
    first.wrapping_sub(1) < 223 && first != 127 && bits >> 16 != 0xa9fe
}
