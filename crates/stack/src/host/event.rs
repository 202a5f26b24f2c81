//! Events: what layers learn from the network for the host.

use gatewright_packet::{LinkAddress, LinkIndex};
use gatewright_tables::Prefix;
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

/// An event from the network, upon which the control side acts.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A link went down, or came up again. The owner of the graph reports it.
    Link {
        /// The link.
        link: LinkIndex,
        /// Whether it carries frames.
        up: bool,
    },
    /// The device of a link has a new link-layer address or MTU. The owner of the graph reports it.
    Device {
        /// The link.
        link: LinkIndex,
        /// Its link-layer address, if it has one.
        link_address: LinkAddress,
        /// Octets of the largest packet, without the link header.
        mtu: u32,
    },
    /// Another station has an address that was to be ours (RFC 5227 §2.1.1, RFC 4862 §5.4.5): it is
    /// not used until a later check finds it [`Unique`](Self::Unique).
    Duplicate {
        /// The link.
        link: LinkIndex,
        /// The address.
        address: IpAddr,
        /// The other station; none if it did not say.
        by: LinkAddress,
    },
    /// Another station uses an address that is in use here (RFC 5227 §2.4, RFC 4862 §5.4.4): it
    /// stays ours and is defended. Reported once in ten seconds for each address.
    Conflict {
        /// The link.
        link: LinkIndex,
        /// The address.
        address: IpAddr,
        /// The other station; none if it did not say.
        by: LinkAddress,
    },
    /// A checked address has no other owner: it was tentative, or a duplicate.
    Unique {
        /// The link.
        link: LinkIndex,
        /// The address.
        address: IpAddr,
    },
    /// A router advertised itself, or that it is no longer one (`lifetime` zero).
    Router {
        /// The link.
        link: LinkIndex,
        /// Its address.
        address: IpAddr,
        /// How long it may be used.
        lifetime: Duration,
        /// Its preference among routers.
        preference: RouterPreference,
    },
    /// A prefix was advertised (RFC 4861 §4.6.2).
    Prefix {
        /// The link.
        link: LinkIndex,
        /// The prefix.
        prefix: Prefix<Ipv6Addr>,
        /// Whether its addresses are on the link.
        on_link: bool,
        /// Whether addresses may be formed from it (RFC 4862 §5.5.3).
        autonomous: bool,
        /// How long addresses may be used.
        valid: Duration,
        /// How long they may be used for new exchanges.
        preferred: Duration,
    },
    /// A router advertised the largest packet of the link (RFC 4861 §4.6.4).
    LinkMtu {
        /// The link.
        link: LinkIndex,
        /// Octets.
        mtu: u32,
    },
    /// The link-layer address of a neighbour is wanted, or its verification, where the kernel
    /// resolves for us ([`Interface::shared`](crate::Interface::shared)).
    Wanted {
        /// The link.
        link: LinkIndex,
        /// The neighbour.
        address: IpAddr,
    },
    /// A neighbour's record in the table of neighbours has changed, or is gone. The owner of the graph
    /// reports it where programs in the kernel follow neighbours; without an address, any may have
    /// changed.
    Neighbour {
        /// The link.
        link: LinkIndex,
        /// The neighbour.
        address: Option<IpAddr>,
    },
    /// A router said that `destination` has a better first hop (RFC 792, RFC 4861 §8.3).
    Redirect {
        /// The link.
        link: LinkIndex,
        /// The destination.
        destination: IpAddr,
        /// The better next hop.
        gateway: IpAddr,
    },
    /// The path to `destination` carries at most `mtu` octets (RFC 1191, RFC 8201).
    PathMtu {
        /// The destination.
        destination: IpAddr,
        /// Octets of the largest packet.
        mtu: u32,
    },
    /// A router's or server's information on the link was not kept, as there is too much of it. The
    /// control side reports it.
    LearntFull {
        /// The link.
        link: LinkIndex,
    },
    /// A DHCP server gave or renewed a lease; `None` when it is over.
    Lease {
        /// The link.
        link: LinkIndex,
        /// The lease.
        lease: Option<Lease>,
    },
}

/// The preference of a default router (RFC 4191 §2.1).
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum RouterPreference {
    /// After the others.
    Low,
    /// As most.
    #[default]
    Medium,
    /// Before the others.
    High,
}

impl RouterPreference {
    /// The preference in the two bits of a router advertisement: "01 High, 00 Medium (default), 11
    /// Low"; "If the Reserved (10) value is received, the receiver MUST treat the value as if it
    /// were (00)" (RFC 4191 §2.1, §2.2).
    pub const fn of_bits(bits: u8) -> Self {
        match bits {
            0b01 => Self::High,
            0b11 => Self::Low,
            _ => Self::Medium,
        }
    }
}

/// A lease from a DHCP server (RFC 2131).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Lease {
    /// Our address.
    pub address: Ipv4Addr,
    /// Bits of its subnet.
    pub prefix_len: u8,
    /// Routers, best first.
    pub routers: Vec<Ipv4Addr>,
    /// Name servers, best first.
    pub name_servers: Vec<Ipv4Addr>,
    /// Routes beside the default one (RFC 3442); by an unspecified router they are on the link.
    pub routes: Vec<(Prefix<Ipv4Addr>, Ipv4Addr)>,
    /// Its lifetime.
    pub duration: Duration,
}
