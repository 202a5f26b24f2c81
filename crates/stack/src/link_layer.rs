//! Reasons to drop a packet that link layers share, some with the layers above them.

use crate::Reason;

/// The frame is shorter than its header.
pub(crate) const TRUNCATED: Reason = Reason("truncated");

/// The source address is that of a group (IEEE 802.3 §3.2.3 forbids it), or a message of ARP or
/// neighbour discovery gives an address as a neighbour's that no station has.
pub(crate) const BAD_STATION: Reason = Reason("bad-station");

/// The frame is to another station, and the link is not promiscuous.
pub(crate) const OTHER_STATION: Reason = Reason("other-station");

/// The host has no interface for the link, or one without an address of its link layer.
pub(crate) const NO_INTERFACE: Reason = Reason("no-interface");

/// A packet came down without a next hop.
pub(crate) const NO_NEXT_HOP: Reason = Reason("no-next-hop");

/// The packet's chunk has no room for another header.
pub(crate) const NO_HEADROOM: Reason = Reason("no-headroom");
