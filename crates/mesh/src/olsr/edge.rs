//! Settings, inputs, outputs and counters of a router.

use super::message::OlsrNetwork;
use core::time::Duration;
use gatewright_packet::LinkIndex;
use std::net::Ipv4Addr;

/// Octets of messages in a packet: with the headers of IPv4 and UDP it fits into 1,500 octets.
const PACKET_OCTETS_MAX: usize = 1_400;

/// Settings of a router.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OlsrSettings {
    /// Main address: that of one of its interfaces, and the same for its whole life.
    pub main_address: Ipv4Addr,
    /// Between two HELLOs on an interface; information in them is valid three times as long.
    pub hello_interval: Duration,
    /// Between two TCs, two MIDs and two HNAs; information in them is valid three times as long.
    pub topology_interval: Duration,
    /// Readiness to forward for others, 0 (never) to 7 (always); 3 is the standard's default.
    pub willingness: u8,
    /// Whether a link must have carried several packets before it is used, and is dropped when it
    /// loses too many (RFC 3626 §14).
    pub hysteresis: bool,
    /// Networks that this node is a gateway to.
    pub networks: Vec<OlsrNetwork>,
    /// Octets of messages in a packet of several at the most.
    pub packet_octets_max: usize,
    /// Seed of the jitter and of the first sequence numbers.
    pub seed: u64,
}

impl OlsrSettings {
    /// The standard's proposed values (RFC 3626 §18).
    pub fn new(main_address: Ipv4Addr, seed: u64) -> Self {
        Self {
            main_address,
            hello_interval: Duration::from_secs(2),
            topology_interval: Duration::from_secs(5),
            willingness: 3,
            hysteresis: false,
            networks: Vec::new(),
            packet_octets_max: PACKET_OCTETS_MAX,
            seed,
        }
    }

    /// How long neighbours are held (`NEIGHB_HOLD_TIME`).
    pub(super) fn neighbour_hold(&self) -> Duration {
        self.hello_interval * 3
    }

    /// How long topology, interfaces and networks are held.
    pub(super) fn topology_hold(&self) -> Duration {
        self.topology_interval * 3
    }

    /// Largest jitter of periodic messages and of forwarding (`MAXJITTER`).
    pub(super) fn jitter_max(&self) -> Duration {
        self.hello_interval / 4
    }
}

/// What a router is told.
#[derive(Clone, Copy, Debug)]
pub enum OlsrInput<'p> {
    /// Time has passed.
    Tick,
    /// An interface is there, with its address.
    InterfaceUp {
        /// The interface.
        link: LinkIndex,
        /// Its address.
        address: Ipv4Addr,
    },
    /// An interface is gone.
    InterfaceDown {
        /// The interface.
        link: LinkIndex,
    },
    /// The link layer has lost a neighbour's interface (RFC 3626 §13).
    LinkLost {
        /// The interface by which it was heard.
        link: LinkIndex,
        /// Its address.
        address: Ipv4Addr,
    },
    /// The link layer has found a neighbour's interface that it had lost.
    LinkFound {
        /// The interface by which it is heard.
        link: LinkIndex,
        /// Its address.
        address: Ipv4Addr,
    },
    /// A packet has arrived.
    Received {
        /// The interface that received it.
        link: LinkIndex,
        /// Source address of its datagram.
        from: Ipv4Addr,
        /// The packet.
        octets: &'p [u8],
    },
}

/// A route.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OlsrRoute {
    /// The interface that leads there.
    pub link: LinkIndex,
    /// The neighbour's interface; the destination itself if it is a neighbour.
    pub next_hop: Ipv4Addr,
    /// Hops to the destination; for a network, to its gateway.
    pub hops: u32,
}

/// What is to be done.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum OlsrOutput {
    /// A packet is to be broadcast on an interface, from its address and to port 698.
    Send {
        /// The interface.
        link: LinkIndex,
        /// The packet.
        octets: Vec<u8>,
    },
    /// A route is new or different.
    RouteSet(OlsrNetwork, OlsrRoute),
    /// A route is gone.
    RouteGone(OlsrNetwork),
}

/// Counters of a router since its start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct OlsrCounters {
    /// Packets received.
    pub received: u64,
    /// Packets sent.
    pub sent: u64,
    /// Octets of packets sent, without headers below OLSR.
    pub sent_octets: u64,
    /// Messages of others sent on.
    pub forwarded: u64,
    /// Packets or messages dropped because they are malformed.
    pub malformed: u64,
    /// Messages dropped because they name addresses that no node has.
    pub martian: u64,
    /// Messages dropped because they are this node's own.
    pub own: u64,
    /// Messages that had been processed before.
    pub repeated: u64,
    /// Messages dropped because their sender is no symmetric neighbour.
    pub stranger: u64,
    /// TCs dropped because a newer one is known.
    pub old: u64,
    /// Interfaces or links to neighbours refused because their table is full.
    pub links_full: u64,
    /// Two-hop neighbours refused because their table is full.
    pub two_hop_full: u64,
    /// Entries of TCs refused because the topology table is full.
    pub topology_full: u64,
    /// Messages that could not be remembered, and so were neither processed nor sent on.
    pub duplicates_full: u64,
    /// Entries of MIDs refused because their table is full.
    pub interfaces_full: u64,
    /// Entries of HNAs refused because their table is full.
    pub networks_full: u64,
    /// Messages of others dropped because too many waited to be sent on.
    pub forward_full: u64,
}

impl OlsrCounters {
    /// The counters by name.
    pub const fn named(self) -> [(&'static str, u64); 17] {
        [
            ("received", self.received),
            ("sent", self.sent),
            ("sent_octets", self.sent_octets),
            ("forwarded", self.forwarded),
            ("malformed", self.malformed),
            ("martian", self.martian),
            ("own", self.own),
            ("repeated", self.repeated),
            ("stranger", self.stranger),
            ("old", self.old),
            ("links_full", self.links_full),
            ("two_hop_full", self.two_hop_full),
            ("topology_full", self.topology_full),
            ("duplicates_full", self.duplicates_full),
            ("interfaces_full", self.interfaces_full),
            ("networks_full", self.networks_full),
            ("forward_full", self.forward_full),
        ]
    }
}
