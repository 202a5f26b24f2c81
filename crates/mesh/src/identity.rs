//! Identities: nodes, their starts, paths.

use core::fmt;
use gatewright_packet::LinkAddress;
use sha2::{Digest, Sha256};

/// Identity of a node: 64 bits, unique in its mesh.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The identity of a public key: the first 64 bits of its SHA-256.
    ///
    /// The machine does not verify that a sender owns the key.
    pub fn of_key(public_key: &[u8]) -> Self {
        let digest = Sha256::digest(public_key);
        Self(digest.iter().take(8).fold(0, |id, &octet| id << 8 | u64::from(octet)))
    }

    /// The identity of the station with an Ethernet address, and of the node whose mesh interface has
    /// it: its 48 bits. `None` for an address of another kind.
    pub fn of_address(address: LinkAddress) -> Option<Self> {
        let octets = address.to_ethernet()?;
        Some(Self(octets.iter().fold(0, |id, &octet| id << 8 | u64::from(octet))))
    }

    /// Whether it is an Ethernet address of one station, not of a group (IEEE 802, I/G bit).
    pub(crate) const fn is_station_address(self) -> bool {
        const GROUP: u64 = 1 << 40;
        self.0 >> 48 == 0 && self.0 & GROUP == 0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Identity of a path: its two ends, and the number that its target has given.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PathId {
    /// The end that requested it.
    pub origin: NodeId,
    /// The end that answered.
    pub target: NodeId,
    /// Number, unique for the target since its start.
    pub number: u32,
}

impl fmt::Display for PathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}#{:08x}", self.origin, self.target, self.number)
    }
}

/// Why a path ended.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Reason(pub u8);

impl Reason {
    /// The link to the next hop is down.
    pub const LINK_DOWN: Self = Self(1);
    /// The next hop is silent.
    pub const SILENT: Self = Self(2);
    /// The next hop has been restarted.
    pub const RESTARTED: Self = Self(3);
    /// The next hop does not know the label.
    pub const LABEL_UNKNOWN: Self = Self(4);
    /// The next hop does not acknowledge.
    pub const UNACKNOWLEDGED: Self = Self(5);
    /// A node has no room for the path.
    pub const EXHAUSTED: Self = Self(6);
    /// The path is not used any more.
    pub const UNUSED: Self = Self(7);
    /// The station that the path leads to is not behind its target any more.
    pub const STATION_GONE: Self = Self(8);
    /// The link to the next hop is lost, and the path goes around it for a while: it has not ended.
    pub const BYPASSED: Self = Self(9);

    /// Whether the path ended because a link of it does not work, which may come back.
    pub(crate) const fn is_of_a_link(self) -> bool {
        matches!(self, Self::LINK_DOWN | Self::SILENT)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::LINK_DOWN => f.write_str("link down"),
            Self::SILENT => f.write_str("neighbour silent"),
            Self::RESTARTED => f.write_str("neighbour restarted"),
            Self::LABEL_UNKNOWN => f.write_str("label unknown"),
            Self::UNACKNOWLEDGED => f.write_str("not acknowledged"),
            Self::EXHAUSTED => f.write_str("no room"),
            Self::UNUSED => f.write_str("unused"),
            Self::STATION_GONE => f.write_str("station moved or gone"),
            Self::BYPASSED => f.write_str("bypassed"),
            Self(other) => write!(f, "reason {other}"),
        }
    }
}
