//! The way of most packets through a router, kept short.

use crate::{
    Out,
    destination::{Destinations, Key},
};
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
/// The caller knows that the link it came by forwards. Everything else is left untouched for
/// [`Ipv4Layer::accept`](super::Ipv4Layer), which asks the same questions again and knows what each
/// answer means. Here they cost one branch each, and nothing larger than a register is carried from
/// one to the next.
#[inline]
pub(super) fn pass(
    packet: &mut Packet,
    known: &mut Destinations<Ipv4Addr>,
    out: &Out<'_>,
) -> Option<LinkIndex> {
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
        && packet.is_of(out.frames());
    if !sane {
        return None;
    }
    let way = known.find_or_ask(view.destination_address(), out.host())?;
    // Back where it came from: its sender may have to be told.
    if total_length > way.mtu || way.link == packet.meta().ingress {
        return None;
    }
    packet.truncate(total_length.into());
    Ipv4Mut::of(packet.octets_mut().first_chunk_mut()?).spend_hop();
    let meta = packet.meta_mut();
    meta.egress = way.link;
    meta.next_hop = NextHop::Neighbour(IpAddr::V4(way.next_hop));
    meta.ether_type = EtherType::IPV4.0;
    Some(way.link)
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
