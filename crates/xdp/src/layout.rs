//! What programs and user space share: the same as `programs/tables.h`.

/// Entries of the DIR-24-8 table.
pub(crate) const DIRECT_ENTRIES: u32 = 1 << 24;
/// Bit of an entry that is the number of a group.
pub(crate) const DIRECT_GROUP: u16 = 0x8000;
/// An entry for which there is no group.
pub(crate) const DIRECT_DEEP: u16 = 0x7ffe;
/// A next hop that does not fit.
pub(crate) const DIRECT_ASK: u16 = 0x7fff;

/// The greatest number of links.
pub const LINKS_MAX: u32 = 64;
/// Bits of `own`.
pub(crate) const OWN_BITS: u32 = 8192;

/// Places of each link in `counts`.
pub(crate) const REASON_ROOM: u32 = 32;

/// Octets of `struct hop`.
pub(crate) const HOP_LEN: u32 = 32;
/// Octets of `struct neighbour_key`.
pub(crate) const NEIGHBOUR_KEY_LEN: usize = 20;
/// Octets of `struct neighbour`.
pub(crate) const NEIGHBOUR_LEN: usize = 8;
/// Octets of `struct count`.
pub(crate) const COUNT_LEN: usize = 16;
/// Octets of `struct link`.
pub(crate) const LINK_LEN: u32 = 16;

/// `HOP_NEIGHBOUR`.
pub(crate) const HOP_NEIGHBOUR: u32 = 1;
/// `HOP_ELSEWHERE`.
pub(crate) const HOP_ELSEWHERE: u32 = 2;
/// `HOP_GROUP`.
pub(crate) const HOP_GROUP: u32 = 4;

/// Rules of a family on a link.
pub const RULES_MAX: usize = 8;
/// Octets of `struct rule`.
pub(crate) const RULE_LEN: usize = 80;
/// Octets of `struct rules`.
pub(crate) const RULES_LEN: usize = 8 + RULES_MAX * RULE_LEN;
/// `RULE_DROPS`.
pub(crate) const RULE_DROPS: u32 = 1;
/// `RULE_PROTOCOL`.
pub(crate) const RULE_PROTOCOL: u32 = 2;
/// `RULE_PORT`.
pub(crate) const RULE_PORT: u32 = 4;
/// `RULE_LIMITS`.
pub(crate) const RULE_LIMITS: u32 = 8;
/// Buckets of tokens in `limits`.
pub const RULE_LIMITS_MAX: u16 = 256;
/// Octets of `struct limit`.
pub(crate) const LIMIT_LEN: u32 = 32;
/// Octets of `struct limited`.
pub(crate) const LIMITED_LEN: usize = 40;
/// Entries of `rule_counts`.
pub const RULE_COUNTS_MAX: u32 = 256;

/// `NOTE_USE`.
pub(crate) const NOTE_USE: u32 = 1;
/// `USED`.
pub(crate) const USED: u32 = 2;

/// Why a frame was forwarded, passed up or dropped by the forwarding program (`enum reason`).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum ForwardingReason {
    /// It was forwarded.
    Forwarded,
    /// Another EtherType, or shorter than its header.
    NotIp,
    /// The destination's link address is not this link's.
    NotOurs,
    /// Somebody looks at this link's packets.
    LookedAt,
    /// Lengths or checksum that the graph is to judge.
    Malformed,
    /// IPv4 options, or hop-by-hop options.
    Options,
    /// TTL or hop limit of 0 or 1.
    Expired,
    /// An address that is not forwarded, or that may be ours as a source.
    Scope,
    /// No next hop, or the packet is for this host.
    NoRoute,
    /// Routes or next hop changed during the lookup.
    Unsettled,
    /// The neighbour's link address is not known.
    NoNeighbour,
    /// Larger than the egress link's MTU.
    TooBig,
    /// It would leave by the link it came from: a redirect is due.
    SameLink,
    /// The egress link has just gone: the frame is dropped.
    NoPort,
    /// The egress link takes no frames from a driver.
    Elsewhere,
    /// The transport checksum is left to the device: the graph completes it.
    Partial,
    /// A rule dropped it, or had no token for it.
    Dropped,
    /// The source's link address is a group's.
    BadStation,
}

impl ForwardingReason {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 18] = [
        Self::Forwarded,
        Self::NotIp,
        Self::NotOurs,
        Self::LookedAt,
        Self::Malformed,
        Self::Options,
        Self::Expired,
        Self::Scope,
        Self::NoRoute,
        Self::Unsettled,
        Self::NoNeighbour,
        Self::TooBig,
        Self::SameLink,
        Self::NoPort,
        Self::Elsewhere,
        Self::Partial,
        Self::Dropped,
        Self::BadStation,
    ];

    /// Its name in `status` and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forwarded => "forwarded",
            Self::NotIp => "not-ip",
            Self::NotOurs => "not-ours",
            Self::LookedAt => "looked-at",
            Self::Malformed => "malformed",
            Self::Options => "options",
            Self::Expired => "expired",
            Self::Scope => "scope",
            Self::NoRoute => "no-route",
            Self::Unsettled => "unsettled",
            Self::NoNeighbour => "no-neighbour",
            Self::TooBig => "too-big",
            Self::SameLink => "same-link",
            Self::NoPort => "no-port",
            Self::Elsewhere => "elsewhere",
            Self::Partial => "partial",
            Self::Dropped => "dropped",
            Self::BadStation => "bad-station",
        }
    }
}

/// The bit of `own` for an address as four words, IPv4 in the first (`perhaps_own`).
pub(crate) fn own_bit([a, b, c, d]: [u32; 4]) -> u32 {
    let mixed =
        a ^ b.wrapping_mul(0x85eb_ca6b) ^ c.wrapping_mul(0xc2b2_ae35) ^ d.wrapping_mul(0x27d4_eb2f);
    mixed.wrapping_mul(0x9e37_79b1) >> 19
}
