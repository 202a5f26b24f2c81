//! Reports of ICMP errors to the application that sent the datagram (RFC 1122 §4.1.3.3).

use crate::udp::Ends;
use gatewright_packet::Packet;
use gatewright_wire::{
    IpProtocol,
    icmpv4::{self, Icmpv4},
    icmpv6::{self, Icmpv6},
    ipv4::Ipv4,
    ipv6::{Ipv6, UpperLayer},
    udp::Udp,
};
use std::{
    io::ErrorKind,
    net::{IpAddr, SocketAddr},
};

/// A datagram of ours that did not arrive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Refused {
    /// Its source.
    pub(crate) local: SocketAddr,
    /// Its destination.
    pub(crate) peer: SocketAddr,
    /// The error for the application.
    pub(crate) why: ErrorKind,
}

impl Refused {
    /// Parses a *destination unreachable* of either family, whose network header is marked; none if
    /// it is not about a UDP datagram, or is too short to identify it.
    pub(crate) fn of(packet: &Packet) -> Option<Self> {
        let octets = packet.octets();
        let (why, (from, to, datagram)) = match Ends::of(packet)?.to {
            IpAddr::V4(_) => {
                let (icmp, original) = Icmpv4::split(octets).ok()?;
                (why4(icmp.code()), original4(original)?)
            }
            IpAddr::V6(_) => {
                let (icmp, rest) = Icmpv6::split(octets).ok()?;
                (why6(icmp.code()), original6(rest.get(UNUSED_LEN..)?)?)
            }
        };
        let (udp, _) = Udp::split(datagram).ok()?;
        Some(Self {
            local: SocketAddr::new(from, udp.source_port()),
            peer: SocketAddr::new(to, udp.destination_port()),
            why,
        })
    }
}

/// Octets between the header of the message and the quoted packet (RFC 4443 §3.1).
const UNUSED_LEN: usize = 4;

const fn why4(code: u8) -> ErrorKind {
    use icmpv4::unreachable::{NETWORK, PORT, PROTOCOL};
    match code {
        PORT | PROTOCOL => ErrorKind::ConnectionRefused,
        NETWORK => ErrorKind::NetworkUnreachable,
        _ => ErrorKind::HostUnreachable,
    }
}

const fn why6(code: u8) -> ErrorKind {
    use icmpv6::unreachable::{NO_ROUTE, PORT};
    match code {
        PORT => ErrorKind::ConnectionRefused,
        NO_ROUTE => ErrorKind::NetworkUnreachable,
        _ => ErrorKind::HostUnreachable,
    }
}

fn original4(octets: &[u8]) -> Option<(IpAddr, IpAddr, &[u8])> {
    let (ip, _) = Ipv4::split(octets).ok()?;
    let is_ours = ip.protocol() == IpProtocol::UDP && ip.fragment_offset() == 0;
    let datagram = octets.get(ip.header_len()..).filter(|_| is_ours)?;
    Some((ip.source_address().into(), ip.destination_address().into(), datagram))
}

/// Finds the quoted datagram, which may have been sent in fragments.
fn original6(octets: &[u8]) -> Option<(IpAddr, IpAddr, &[u8])> {
    let (ip, _) = Ipv6::split(octets).ok()?;
    let upper = UpperLayer::find(octets).ok()?;
    let is_ours = upper.protocol == IpProtocol::UDP && !upper.is_later_fragment();
    let datagram = octets.get(upper.offset..).filter(|_| is_ours)?;
    Some((ip.source_address().into(), ip.destination_address().into(), datagram))
}
