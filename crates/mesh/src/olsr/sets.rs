//! What a router knows (RFC 3626 §4): links, two-hop neighbours, selectors, topology, interfaces,
//! networks, and messages that it has seen. Each entry has the time until which it is valid.

use super::message::OlsrNetwork;
use core::time::Duration;
use gatewright_packet::LinkIndex;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// Interfaces of a router at the most: a MID names all of them.
pub(super) const INTERFACES_MAX: usize = 64;
/// Links to neighbours at the most: a HELLO, and a TC, that names all of them fits into 1,500
/// octets.
pub(super) const LINKS_MAX: usize = 256;
/// Pairs of a neighbour and its neighbour at the most.
pub(super) const TWO_HOP_MAX: usize = 16_384;
/// Pairs of a destination and its last hop at the most.
pub(super) const TOPOLOGY_MAX: usize = 65_536;
/// Messages that are remembered at the most.
pub(super) const DUPLICATES_MAX: usize = 16_384;
/// Interface addresses of other nodes at the most.
pub(super) const ALIASES_MAX: usize = 16_384;
/// Networks behind other nodes at the most.
pub(super) const NETWORKS_MAX: usize = 16_384;

// Hysteresis of links (RFC 3626 §14.3, values of §18.7), in units of 1/1,000,000.
const QUALITY_ONE: u32 = 1_000_000;
const QUALITY_HIGH: u32 = 800_000;
const QUALITY_LOW: u32 = 300_000;

/// Missing packets that one gap counts as at the most: after so many no quality is left.
const GAP_MAX: u16 = 16;

/// A link: an interface of this node, and one of a neighbour.
#[derive(Clone, Debug)]
pub(super) struct LinkTuple {
    /// The neighbour's main address.
    pub(super) main: Ipv4Addr,
    pub(super) willingness: u8,
    pub(super) symmetric_until: Duration,
    pub(super) heard_until: Duration,
    pub(super) until: Duration,
    /// Whether hysteresis does not yet trust the link.
    pub(super) pending: bool,
    /// Until when hysteresis has it announced as lost.
    pub(super) lost_until: Duration,
    quality: u32,
    packet: Option<u16>,
}

impl LinkTuple {
    /// A link that a first HELLO has come by, as "upon receiving a HELLO message" of RFC 3626
    /// §7.1.1 has it.
    pub(super) fn new(main: Ipv4Addr, hysteresis: bool) -> Self {
        Self {
            main,
            willingness: 0,
            symmetric_until: Duration::ZERO,
            heard_until: Duration::ZERO,
            until: Duration::ZERO,
            pending: hysteresis,
            lost_until: Duration::ZERO,
            quality: 0,
            packet: None,
        }
    }

    /// Whether both directions work.
    pub(super) fn is_symmetric(&self, now: Duration) -> bool {
        self.symmetric_until > now && !self.pending && self.lost_until <= now
    }

    /// Whether the neighbour is heard.
    pub(super) fn is_heard(&self, now: Duration) -> bool {
        self.heard_until > now
    }

    /// Learns from the number of a packet how many were lost before it (RFC 3626 §14.3: the
    /// exponentially smoothed moving average, with a scaling of one half). `hold` is the time that
    /// a lost link is announced.
    pub(super) fn count_packet(&mut self, now: Duration, sequence: u16, hold: Duration) {
        let gap = self.packet.map_or(1, |last| sequence.wrapping_sub(last));
        // A repeated packet, or a restarted neighbour, says nothing of losses.
        let lost = if gap > GAP_MAX { 0 } else { gap.saturating_sub(1) };
        for _ in 0..lost {
            self.quality /= 2;
        }
        self.packet = Some(sequence);
        self.quality = self.quality / 2 + QUALITY_ONE / 2;
        if self.quality > QUALITY_HIGH {
            self.pending = false;
            self.lost_until = Duration::ZERO;
        } else if self.quality < QUALITY_LOW {
            self.lose(now, hold);
        }
    }

    /// Counts a HELLO that has not come when it was due.
    pub(super) fn count_missing(&mut self, now: Duration, hold: Duration) {
        self.quality /= 2;
        if self.quality < QUALITY_LOW {
            self.lose(now, hold);
        }
    }

    fn lose(&mut self, now: Duration, hold: Duration) {
        if !self.pending {
            self.pending = true;
            self.lost_until = (now + hold).min(self.until);
        }
    }
}

/// A message that has been seen.
#[derive(Clone, Debug)]
pub(super) struct SeenMessage {
    pub(super) until: Duration,
    pub(super) retransmitted: bool,
    pub(super) links: BTreeSet<LinkIndex>,
}

/// All sets of a router.
#[derive(Clone, Debug, Default)]
pub(super) struct OlsrSets {
    /// By interface of this node and address of the neighbour's.
    pub(super) links: BTreeMap<(LinkIndex, Ipv4Addr), LinkTuple>,
    /// By neighbour and its neighbour, both main addresses.
    pub(super) two_hop: BTreeMap<(Ipv4Addr, Ipv4Addr), Duration>,
    /// Neighbours that have chosen this node as their relay.
    pub(super) selectors: BTreeMap<Ipv4Addr, Duration>,
    /// By last hop and destination: the ANSN, and the validity.
    pub(super) topology: BTreeMap<(Ipv4Addr, Ipv4Addr), (u16, Duration)>,
    /// Main address by interface address.
    pub(super) aliases: BTreeMap<Ipv4Addr, (Ipv4Addr, Duration)>,
    /// By gateway and network.
    pub(super) networks: BTreeMap<(Ipv4Addr, OlsrNetwork), Duration>,
    /// By originator and number.
    pub(super) seen: BTreeMap<(Ipv4Addr, u16), SeenMessage>,
}

impl OlsrSets {
    /// The main address of a node that has the interface address.
    pub(super) fn main_of(&self, address: Ipv4Addr) -> Ipv4Addr {
        self.aliases.get(&address).map_or(address, |(main, _)| *main)
    }

    /// Symmetric neighbours with their willingness.
    pub(super) fn neighbours(&self, now: Duration) -> BTreeMap<Ipv4Addr, u8> {
        let symmetric = self.links.values().filter(|link| link.is_symmetric(now));
        symmetric.map(|link| (link.main, link.willingness)).collect()
    }

    /// Whether an interface belongs to a symmetric neighbour.
    pub(super) fn is_symmetric(&self, now: Duration, address: Ipv4Addr) -> bool {
        let mut links = self.links.iter().filter(|((_, at), _)| *at == address);
        links.any(|(_, link)| link.is_symmetric(now))
    }

    /// Removes what is not valid any more, and returns when the next entry ends.
    ///
    /// A neighbour that is lost takes its two-hop neighbours and its choice of relay along
    /// (RFC 3626 §8.5).
    pub(super) fn expire(&mut self, now: Duration) -> Option<Duration> {
        self.links.retain(|_, link| link.until > now);
        let neighbours = self.neighbours(now);
        self.two_hop.retain(|(near, _), until| *until > now && neighbours.contains_key(near));
        self.selectors.retain(|main, until| *until > now && neighbours.contains_key(main));
        self.topology.retain(|_, (_, until)| *until > now);
        self.aliases.retain(|_, (_, until)| *until > now);
        self.networks.retain(|_, until| *until > now);
        self.seen.retain(|_, seen| seen.until > now);
        self.next_end(now)
    }

    fn next_end(&self, now: Duration) -> Option<Duration> {
        let links = self
            .links
            .values()
            .flat_map(|link| [link.until, link.symmetric_until, link.heard_until, link.lost_until]);
        links
            .chain(self.two_hop.values().copied())
            .chain(self.selectors.values().copied())
            .chain(self.topology.values().map(|(_, until)| *until))
            .chain(self.aliases.values().map(|(_, until)| *until))
            .chain(self.networks.values().copied())
            .chain(self.seen.values().map(|seen| seen.until))
            .filter(|end| *end > now)
            .min()
    }

    /// Whether nothing is known of any other node.
    pub(super) fn is_empty(&self) -> bool {
        self.links.is_empty()
            && self.two_hop.is_empty()
            && self.selectors.is_empty()
            && self.topology.is_empty()
            && self.aliases.is_empty()
            && self.networks.is_empty()
            && self.seen.is_empty()
    }
}
