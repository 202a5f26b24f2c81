//! Rules: handlers that count, drop and limit, run by the programs of links.
//!
//! A program decides by the rules of the link and of the packet's family before it looks for a route.
//! It counts and takes tokens when it forwards or drops the packet: one that goes up meets its handlers
//! there. These take their tokens from the same bucket.

use super::{Forwarding, ForwardingError, PacketCount, check, total};
use crate::layout::{
    LIMIT_LEN, LINKS_MAX, RULE_COUNTS_MAX, RULE_DROPS, RULE_LEN, RULE_LIMITS, RULE_LIMITS_MAX,
    RULE_PORT, RULE_PROTOCOL, RULES_LEN, RULES_MAX,
};
use std::net::IpAddr;
use std::sync::atomic::{Ordering, fence};

/// Octets of all rules: two families of each link.
#[expect(clippy::cast_possible_truncation, reason = "648 octets")]
pub(super) const LEN: u32 = 2 * LINKS_MAX * RULES_LEN as u32;

/// A handler as a program runs it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ForwardingRule {
    /// What it does.
    pub action: RuleAction,
    /// The place of its numbers, below [`RULE_COUNTS_MAX`].
    pub place: u32,
    /// Octets before the IP header that it counts.
    pub header_len: u16,
}

/// What a rule does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RuleAction {
    /// It counts packets.
    Count,
    /// It drops packets that match, and counts them.
    Drop(RuleMatch),
    /// It drops packets for which this bucket has no token, and counts them.
    Limit(LimitIndex),
}

/// The place of a bucket of tokens, below [`RULE_LIMITS_MAX`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LimitIndex(pub u16);

impl LimitIndex {
    /// The place of the bucket's time among the words of all buckets.
    pub(super) fn time_at(self) -> usize {
        usize::from(self.0) * usize::try_from(LIMIT_LEN / 4).unwrap_or(0)
    }
}

/// A condition on packets: all given fields must match.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RuleMatch {
    /// The subnet of the source: its address and prefix length.
    pub source: Option<(IpAddr, u8)>,
    /// The subnet of the destination.
    pub destination: Option<(IpAddr, u8)>,
    /// The upper-layer protocol.
    pub protocol: Option<u8>,
    /// The destination port, of TCP, UDP, UDP-Lite or SCTP.
    pub port: Option<u16>,
}

impl RuleMatch {
    /// Whether packets of a family can match.
    pub fn is_of(&self, is_ipv6: bool) -> bool {
        let is_other = |subnet: Option<(IpAddr, u8)>| {
            subnet.is_some_and(|(address, _)| address.is_ipv6() != is_ipv6)
        };
        !is_other(self.source) && !is_other(self.destination)
    }
}

impl Forwarding {
    /// Sets the rules for packets of a family that a link receives, in their order. Packets that come
    /// meanwhile go up.
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Index`] for more than [`RULES_MAX`] rules, or a link or place beyond its end.
    pub fn set_rules(
        &self,
        link: u32,
        is_ipv6: bool,
        rules: &[ForwardingRule],
    ) -> Result<(), ForwardingError> {
        check("link", link, LINKS_MAX)?;
        let number = u32::try_from(rules.len()).unwrap_or(u32::MAX);
        check("rule", number.saturating_sub(1), u32::try_from(RULES_MAX).unwrap_or(0))?;
        for rule in rules {
            check("counter of a rule", rule.place, RULE_COUNTS_MAX)?;
            if let RuleAction::Limit(LimitIndex(bucket)) = rule.action {
                check("bucket of tokens", bucket.into(), RULE_LIMITS_MAX.into())?;
            }
        }
        let words = RULES_LEN / 4;
        let start = usize::try_from(2 * link + u32::from(is_ipv6)).unwrap_or(0) * words;
        let area = self.rules.words.all().get(start..start + words).unwrap_or(&[]);
        let Some((version, rest)) = area.split_first() else { return Ok(()) };
        let values = [number].into_iter().chain(rules.iter().flat_map(words_of));
        // Odd while the rest is being written, as of a next hop.
        let next = version.load(Ordering::Relaxed).wrapping_add(1) | 1;
        version.store(next, Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, value) in rest.iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
        version.store(next.wrapping_add(1), Ordering::Release);
        Ok(())
    }

    /// Fills a bucket that no rule and no handler has: `refill` is nanoseconds for a token, `depth` for
    /// all that it holds.
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Index`] for a bucket beyond the last one.
    pub fn set_limit(
        &self,
        bucket: LimitIndex,
        [refill, depth]: [u64; 2],
    ) -> Result<(), ForwardingError> {
        check("bucket of tokens", bucket.0.into(), RULE_LIMITS_MAX.into())?;
        for (at, value) in (bucket.time_at()..).step_by(2).zip([0, refill, depth]) {
            if let Some(number) = self.limits.words.number(at) {
                number.store(value, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Packets that a rule has counted or dropped, over all processors.
    ///
    /// # Errors
    ///
    /// [`ForwardingError::Map`] if the system does not tell.
    pub fn rule_count(&self, place: u32) -> Result<PacketCount, ForwardingError> {
        total(&self.rule_counts, place)
    }
}

/// A rule as `struct rule` lays it out.
fn words_of(rule: &ForwardingRule) -> [u32; RULE_LEN / 4] {
    let mut flags = 0;
    let mut which = RuleMatch::default();
    let mut bucket = 0;
    match rule.action {
        RuleAction::Count => {}
        RuleAction::Drop(matched) => (flags, which) = (RULE_DROPS, matched),
        RuleAction::Limit(index) => (flags, bucket) = (RULE_LIMITS, index.0),
    }
    flags |= which.protocol.map_or(0, |_| RULE_PROTOCOL) | which.port.map_or(0, |_| RULE_PORT);
    let protocol = u16::from(which.protocol.unwrap_or(0)).to_ne_bytes();
    let port = which.port.unwrap_or(0).to_be_bytes();
    let upper = u32::from_ne_bytes([protocol[0], protocol[1], port[0], port[1]]);
    let mut words = [0; RULE_LEN / 4];
    let [a, b] = rule.header_len.to_ne_bytes();
    let [c, d] = bucket.to_ne_bytes();
    let front = [flags, rule.place, u32::from_ne_bytes([a, b, c, d]), upper];
    let rest = [which.source, which.destination].into_iter().flat_map(subnet_words);
    for (word, value) in words.iter_mut().zip(front.into_iter().chain(rest)) {
        *word = value;
    }
    words
}

/// The words of an address and those of its mask, as in a header; IPv4 in the first.
fn subnet_words(subnet: Option<(IpAddr, u8)>) -> [u32; 8] {
    let (octets, width, len) = match subnet {
        None => ([0; 16], 128, 0),
        Some((IpAddr::V6(address), len)) => (address.octets(), 128, len),
        Some((IpAddr::V4(address), len)) => {
            let mut octets = [0; 16];
            octets.iter_mut().zip(address.octets()).for_each(|(to, from)| *to = from);
            (octets, 32, len)
        }
    };
    let len = u32::from(len).min(width);
    let mask = if len == 0 { 0 } else { u128::MAX << (u128::BITS - len) };
    let mut words = [0; 8];
    let all = [octets, mask.to_be_bytes()];
    let values = all.iter().flat_map(|octets| octets.as_chunks::<4>().0);
    for (word, value) in words.iter_mut().zip(values) {
        *word = u32::from_ne_bytes(*value);
    }
    words
}
