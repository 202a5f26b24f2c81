//! Origins of neighbour resolutions and their numbers, so that a scan of a network neither floods
//! its link nor keeps others from their neighbours (RFC 6583 §7).
//!
//! Packets count by origin: the link, and the network of their source. Each origin has a share of
//! the total. A neighbour that answers returns its place, so only unanswered resolutions are
//! rationed.

use super::{NeighbourLimits, entries::folded};
use crate::Bucket;
use gatewright_packet::Packet;
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

/// Number of distinguished origins; those with the same hash share an entry.
const ORIGINS_BITS: u32 = 6;

/// The part of all that one origin may have.
const SHARE: u32 = 4;

/// Bits of a source that are its network's: a subnet of most sites.
const NETWORK_BITS_V4: u32 = 24;
const NETWORK_BITS_V6: u32 = 64;

/// The resolutions of each origin.
#[derive(Debug)]
pub(super) struct Origins {
    all: Quota,
    each: Vec<Quota>,
    /// An odd, secret multiplier, so that no sender can choose the origin that it shares with.
    key: u64,
}

#[derive(Clone, Copy, Debug)]
struct Quota {
    bucket: Bucket,
    pending: u32,
    pending_max: u32,
}

impl Quota {
    const fn new(per_second: u32, pending_max: u32) -> Self {
        Self { bucket: Bucket::new(per_second, pending_max), pending: 0, pending_max }
    }

    fn take(&mut self, now: Duration) -> bool {
        let has_room = self.pending < self.pending_max && self.bucket.take(now);
        self.pending += u32::from(has_room);
        has_room
    }

    fn give_back(&mut self, answered: bool) {
        self.pending = self.pending.saturating_sub(1);
        if answered {
            self.bucket.give_back();
        }
    }
}

impl Origins {
    /// The number of an origin that has no limit: this host itself, which asks for few.
    pub(super) const OWN: u8 = u8::MAX;

    pub(super) fn new(limits: &NeighbourLimits, key: u64) -> Self {
        let (rate, pending) = (limits.resolutions_per_second, limits.pending);
        let share = Quota::new((rate / SHARE).max(1), (pending / SHARE).max(1));
        Self { all: Quota::new(rate, pending), each: vec![share; 1 << ORIGINS_BITS], key: key | 1 }
    }

    /// Takes a place for the neighbour of `packet`; returns the number of its origin if there is
    /// one.
    pub(super) fn take(&mut self, packet: &Packet, family: IpAddr, now: Duration) -> Option<u8> {
        let number = self.number(packet, family);
        let each = self.each.get_mut(usize::from(number))?;
        if !each.take(now) {
            return None;
        }
        if !self.all.take(now) {
            each.give_back(true);
            return None;
        }
        Some(number)
    }

    /// A neighbour is no longer asked for: it has answered, or it has not.
    pub(super) fn give_back(&mut self, number: u8, answered: bool) {
        if let Some(each) = self.each.get_mut(usize::from(number)) {
            each.give_back(answered);
            self.all.give_back(answered);
        }
    }

    fn number(&self, packet: &Packet, family: IpAddr) -> u8 {
        let network = folded(network(packet.octets(), family));
        let from = network ^ u64::from(packet.meta().ingress.0) << (u64::BITS - u16::BITS);
        let hash = from.wrapping_mul(self.key) >> (u64::BITS - ORIGINS_BITS);
        u8::try_from(hash).unwrap_or_default()
    }
}

/// The network that a packet of the family of `family` comes from.
fn network(octets: &[u8], family: IpAddr) -> IpAddr {
    /// Position of the source in the header of each family (RFC 791 §3.1, RFC 8200 §3).
    const SOURCE_AT_V4: usize = 12;
    const SOURCE_AT_V6: usize = 8;
    if family.is_ipv4() {
        let source = octets.get(SOURCE_AT_V4..).and_then(|rest| rest.first_chunk());
        let bits = u32::from_be_bytes(source.copied().unwrap_or_default());
        Ipv4Addr::from_bits(bits >> (u32::BITS - NETWORK_BITS_V4)).into()
    } else {
        let source = octets.get(SOURCE_AT_V6..).and_then(|rest| rest.first_chunk());
        let bits = u128::from_be_bytes(source.copied().unwrap_or_default());
        Ipv6Addr::from_bits(bits >> (u128::BITS - NETWORK_BITS_V6)).into()
    }
}
