//! Messages of this node: HELLO, TC, MID, HNA.

use super::OlsrNode;
use crate::olsr::edge::OlsrOutput;
use crate::olsr::message::{
    OlsrContent, OlsrHead, OlsrLinkCode, OlsrLinkType, OlsrMessage, OlsrNeighbourType, OlsrPacket,
    OlsrTime,
};
use core::time::Duration;
use gatewright_packet::LinkIndex;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// Hops of a message to the whole network.
const TTL_ALL: u8 = 255;

impl OlsrNode {
    /// Sends what is due at `now`.
    pub(super) fn send_due(&mut self, now: Duration) {
        if self.interfaces.is_empty() {
            return;
        }
        if self.topology_at <= now {
            self.announced_at = now;
            self.topology_at = now + self.period(self.settings.topology_interval);
            self.send_topology(now);
        }
        if self.declare_at <= now {
            self.declare_at = now + self.period(self.settings.topology_interval);
            self.send_declarations();
        }
        let due = |at: &Duration| *at <= now;
        let due: Vec<LinkIndex> = (self.interfaces.iter())
            .filter(|(_, interface)| due(&interface.hello_at))
            .map(|(link, _)| *link)
            .collect();
        for link in due {
            let next = now + self.period(self.settings.hello_interval);
            if let Some(interface) = self.interfaces.get_mut(&link) {
                interface.hello_at = next;
            }
            self.send_hello(now, link);
        }
        self.send_forwarded(now);
    }

    /// RFC 3626 §18.2: "Actual message interval = MESSAGE_INTERVAL - jitter".
    fn period(&mut self, interval: Duration) -> Duration {
        interval.saturating_sub(self.random.time_below(self.settings.jitter_max()))
    }

    fn send_hello(&mut self, now: Duration, link: LinkIndex) {
        let hello = OlsrContent::Hello {
            interval: OlsrTime::at_least(self.settings.hello_interval),
            willingness: self.settings.willingness,
            links: self.hello_links(now, link),
        };
        let message = self.message(&hello, self.settings.neighbour_hold(), 1);
        self.send_packet(link, &message);
    }

    /// The links of an interface, and neighbours by other interfaces (RFC 3626 §6.2).
    fn hello_links(&self, now: Duration, link: LinkIndex) -> Vec<(OlsrLinkCode, Ipv4Addr)> {
        let neighbours = self.sets.neighbours(now);
        let neighbour_type =
            |main: &Ipv4Addr| match (self.relays.contains(main), neighbours.contains_key(main)) {
                (true, true) => OlsrNeighbourType::Relay,
                (false, true) => OlsrNeighbourType::Symmetric,
                (_, false) => OlsrNeighbourType::Not,
            };
        let mut links = Vec::new();
        let mut named: BTreeSet<Ipv4Addr> = BTreeSet::new();
        for ((_, address), tuple) in self.sets.links.iter().filter(|((at, _), _)| *at == link) {
            named.insert(tuple.main);
            // RFC 3626 §14.3: a link that is pending and not announced as lost is not advertised.
            let link = match () {
                () if tuple.lost_until > now => OlsrLinkType::Lost,
                () if tuple.pending && tuple.is_heard(now) => OlsrLinkType::Asymmetric,
                () if tuple.is_symmetric(now) => OlsrLinkType::Symmetric,
                () if tuple.is_heard(now) => OlsrLinkType::Asymmetric,
                () => OlsrLinkType::Lost,
            };
            links.push((OlsrLinkCode { link, neighbour: neighbour_type(&tuple.main) }, *address));
        }
        let elsewhere: BTreeSet<Ipv4Addr> = self.sets.links.values().map(|its| its.main).collect();
        for main in elsewhere.difference(&named) {
            let neighbour = neighbour_type(main);
            links.push((OlsrLinkCode { link: OlsrLinkType::Unspecified, neighbour }, *main));
        }
        links
    }

    /// A node with selectors announces them; one that has lost them says so for a while
    /// (RFC 3626 §9.3).
    fn send_topology(&mut self, now: Duration) {
        let (sequence, selectors) = &self.advertised;
        if selectors.is_empty() && self.empty_until <= now {
            return;
        }
        let neighbours = selectors.iter().copied().collect();
        let content = OlsrContent::Topology { sequence: *sequence, neighbours };
        self.send_everywhere(&content);
    }

    fn send_declarations(&mut self) {
        let main = self.settings.main_address;
        let others = self.interfaces.values().map(|interface| interface.address);
        let others: Vec<Ipv4Addr> = others.filter(|address| *address != main).collect();
        if !others.is_empty() {
            self.send_everywhere(&OlsrContent::Interfaces(others));
        }
        if !self.settings.networks.is_empty() {
            self.send_everywhere(&OlsrContent::Networks(self.settings.networks.clone()));
        }
    }

    fn send_everywhere(&mut self, content: &OlsrContent) {
        let message = self.message(content, self.settings.topology_hold(), TTL_ALL);
        let links: Vec<LinkIndex> = self.interfaces.keys().copied().collect();
        for link in links {
            self.send_packet(link, &message);
        }
    }

    fn message(&mut self, content: &OlsrContent, validity: Duration, ttl: u8) -> Vec<u8> {
        self.message = self.message.wrapping_add(1);
        let head = OlsrHead {
            kind: content.kind(),
            validity: OlsrTime::at_least(validity),
            originator: self.settings.main_address,
            ttl,
            hops: 0,
            sequence: self.message,
        };
        OlsrMessage { head, body: &content.encode() }.encode()
    }

    /// Broadcasts encoded messages on an interface.
    pub(super) fn send_packet(&mut self, link: LinkIndex, messages: &[u8]) {
        let Some(interface) = self.interfaces.get_mut(&link) else { return };
        interface.packet = interface.packet.wrapping_add(1);
        let octets = OlsrPacket::encode(interface.packet, messages);
        self.counters.sent += 1;
        self.counters.sent_octets += u64::try_from(octets.len()).unwrap_or(0);
        self.outputs.push_back(OlsrOutput::Send { link, octets });
    }
}
