//! The metadata of a packet.

use crate::LinkAddress;
use std::{fmt, net::IpAddr};

/// The index of a link in its gateway, counted from 0 in the order of its description.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LinkIndex(pub u16);

impl LinkIndex {
    /// No link: a packet made here and not yet routed.
    pub const NONE: Self = Self(u16::MAX);

    /// The index for tables; [`Self::NONE`] is far outside of any.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for LinkIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE { f.write_str("-") } else { self.0.fmt(f) }
    }
}

/// The state of the transport checksum.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Checksum {
    /// As on the wire: right or wrong, but final.
    #[default]
    Complete,
    /// The field holds only the pseudo-header's sum; the sender left the rest to its device.
    /// Complete it before any covered octet changes, and before transmission.
    Partial,
}

/// Link-layer destination of a received frame.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Arrival {
    /// To this host, or made here.
    #[default]
    Unicast,
    /// To a group.
    Multicast,
    /// To everyone on the link.
    Broadcast,
    /// To another host: seen because the link is promiscuous.
    Other,
}

/// The next hop of a packet, on the link [`Meta::egress`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum NextHop {
    /// Not routed yet.
    #[default]
    Unknown,
    /// The neighbour with this address: a gateway, or the destination itself; for a multicast
    /// packet its group.
    Neighbour(IpAddr),
    /// Everyone on the link.
    Broadcast,
    /// The station with this link-layer address: a layer answers a station's request directly,
    /// whether or not its IP address is known.
    Station(LinkAddress),
}

/// The metadata of a packet; a new packet has the default.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Meta {
    /// The link that received it.
    pub ingress: LinkIndex,
    /// The outgoing link, once routed.
    pub egress: LinkIndex,
    /// How the link layer addressed the packet.
    pub arrival: Arrival,
    /// The state of its transport checksum.
    pub checksum: Checksum,
    /// The next hop on the egress link.
    pub next_hop: NextHop,
    /// The position of the network header in its chunk, 0 until a layer has marked it
    /// ([`crate::Packet::mark_network`]).
    pub network: u16,
    /// The EtherType of its payload, while it is between link and network layer.
    pub ether_type: u16,
    /// A value from one layer to the next about this packet: the MTU or the pointer of an ICMP
    /// error.
    pub parameter: u32,
    /// Free for handlers; the gateway reads it nowhere, and writes it only in a traced packet.
    pub mark: u32,
}
