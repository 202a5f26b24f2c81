//! The first header of a link's frames.

use crate::{ethernet::Ethernet, partial::network_start, vlan::Vlan};

/// The first header of a frame, which its link layer reads.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Framing {
    /// An Ethernet header, perhaps with tags.
    #[default]
    Ethernet,
    /// An IP header: there is no link layer.
    Ip,
}

/// Maximum tags of an Ethernet frame: a service tag and a customer tag (IEEE 802.1ad).
pub(crate) const TAGS_MAX: usize = 2;

impl Framing {
    /// Octets before the packet in a frame without tags.
    pub const fn header_len(self) -> usize {
        match self {
            Self::Ethernet => Ethernet::LEN,
            Self::Ip => 0,
        }
    }

    /// As [`Self::header_len`], with as many tags as a frame can have.
    pub const fn header_len_max(self) -> usize {
        match self {
            Self::Ethernet => Ethernet::LEN + TAGS_MAX * Vlan::LEN,
            Self::Ip => 0,
        }
    }

    /// The IP packet of a frame, behind its tags; `None` if it carries none.
    pub fn ip_packet(self, frame: &[u8]) -> Option<&[u8]> {
        match self {
            Self::Ethernet => frame.get(network_start(frame)?..),
            Self::Ip => Some(frame),
        }
    }
}
