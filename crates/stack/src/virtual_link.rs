//! Virtual links: links without a device, whose frames are those of a link below that carry a tag.

use crate::{
    Counter,
    vlan::{self, VlanTag},
};
use gatewright_packet::{LinkIndex, NoRoom, Packet};
use std::fmt;

/// A link without a device of its own: the frames of the link below that carry its tag.
///
/// It is a link to all layers above, with addresses, neighbours and routes. What passes is what its
/// tag marks, both ways.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct VirtualLink {
    /// The link itself.
    pub link: LinkIndex,
    /// The link whose frames carry the tag.
    pub below: LinkIndex,
    /// The tag of its frames.
    pub tag: LinkTag,
}

/// The tag of a virtual link's frames among those of the link below.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum LinkTag {
    /// The tag of a VLAN (IEEE 802.1Q).
    Vlan(VlanTag),
}

impl VirtualLink {
    /// The VLAN `id` of the link `below`, whose frames are sent with `priority`.
    pub const fn vlan(link: LinkIndex, below: LinkIndex, id: u16, priority: u8) -> Self {
        Self { link, below, tag: LinkTag::Vlan(VlanTag { id, priority }) }
    }

    /// Whether a whole frame of the link below belongs to it.
    pub(crate) fn carries(self, frame: &[u8]) -> bool {
        match self.tag {
            LinkTag::Vlan(tag) => vlan::id_of(frame) == Some(tag.id),
        }
    }

    /// Puts its tag into a whole frame that does not have it yet: then it is one of the link below.
    ///
    /// # Errors
    ///
    /// [`NoRoom`] if the frame's chunk has no room in front.
    pub fn insert(self, frame: &mut Packet) -> Result<(), NoRoom> {
        if self.carries(frame.octets()) {
            return Ok(());
        }
        match self.tag {
            LinkTag::Vlan(tag) => tag.insert(frame),
        }
    }
}

impl fmt::Display for LinkTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vlan(tag) => write!(f, "VLAN tag {}", tag.id),
        }
    }
}

/// Counters of a virtual link; octets count whole frames, with their tag.
#[derive(Clone, Debug, Default)]
pub struct VirtualLinkCounters {
    /// Frames received.
    pub received: Counter,
    /// Their octets.
    pub received_octets: Counter,
    /// Frames sent.
    pub sent: Counter,
    /// Their octets.
    pub sent_octets: Counter,
}
