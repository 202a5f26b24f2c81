//! Redirects: a router tells a host of a better first hop (RFC 1812 §5.2.7.2, RFC 4861 §8.2).

use crate::{At, IcmpError, Out};
use gatewright_packet::{LinkIndex, NextHop, Packet};
use gatewright_wire::EtherType;
use std::net::IpAddr;

/// Maximum octets of a packet that are returned to its sender: those that fit both families'
/// messages.
const TOLD_MAX: usize = 400;

/// Requests a redirect about a packet from `source` that is forwarded to `next_hop` back over its
/// own link, if its sender is a neighbour there and could reach it directly.
pub(crate) fn ask(
    family: EtherType,
    packet: &Packet,
    source: IpAddr,
    link: LinkIndex,
    next_hop: IpAddr,
    out: &mut Out<'_>,
) {
    let near = |ip: IpAddr| {
        out.host().interface(link).is_some_and(|interface| {
            interface.usable().any(|address| address.covers(ip))
                || matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
        })
    };
    if packet.meta().ingress != link || !near(source) || !near(next_hop) || source == next_hop {
        return;
    }
    let told = packet.octets().get(..TOLD_MAX).unwrap_or(packet.octets());
    // Without a free packet the sender is told the next time.
    let Some(mut copy) = out.frames().packet_of(told) else { return };
    *copy.meta_mut() = *packet.meta();
    copy.meta_mut().next_hop = NextHop::Neighbour(next_hop);
    if let Err(unwanted) = out.push(At::Error(family, IcmpError::Redirect), copy) {
        drop(unwanted);
    }
}
