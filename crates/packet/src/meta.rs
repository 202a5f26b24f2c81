//! What a packet carries beside its octets.

use std::{fmt, net::IpAddr};

/// Which link of a gateway, counted from 0 in the order of its description.
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

/// Whether the transport checksum is in the packet already.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Checksum {
    /// As on the wire: right or wrong, but final.
    #[default]
    Complete,
    /// The field holds only the pseudo-header's sum; the sender left the rest to its device.
    /// It must be completed before anything that it covers is changed, and before transmission.
    Partial,
}

/// How the link layer addressed a received frame.
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

/// Where the router sends a packet next, on the link [`Meta::egress`].
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
    /// The station with this 48-bit link-layer address: a layer that was asked by a station answers
    /// it, whether or not its IP address is known.
    Station([u8; 6]),
}

/// What a packet carries beside its octets; a new packet has the default.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Meta {
    /// The link it came by.
    pub ingress: LinkIndex,
    /// The link it leaves by, once routed.
    pub egress: LinkIndex,
    /// How the link layer addressed it.
    pub arrival: Arrival,
    /// The state of its transport checksum.
    pub checksum: Checksum,
    /// Whose turn it is on the egress link.
    pub next_hop: NextHop,
    /// Where in its chunk the network header begins, 0 until a layer has marked it
    /// ([`crate::Packet::mark_network`]).
    pub network: u16,
    /// The EtherType of what the packet begins with, while it is between link and network layer.
    pub ether_type: u16,
    /// What one layer tells the next about this packet: the MTU or the pointer of an ICMP error.
    pub parameter: u32,
    /// Free for handlers; the house reads it nowhere, and writes it only of the one packet that is
    /// traced.
    pub mark: u32,
}
