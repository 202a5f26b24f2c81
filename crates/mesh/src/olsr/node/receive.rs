//! Packets of neighbours: link sensing, neighbours, selectors, topology, interfaces, networks.

use super::OlsrNode;
use crate::olsr::message::{
    OlsrContent, OlsrLinkCode, OlsrLinkType, OlsrMessage, OlsrNeighbourType, OlsrNetwork,
    OlsrPacket, is_host_address,
};
use crate::olsr::sets::{
    ALIASES_MAX, LINKS_MAX, LinkTuple, NETWORKS_MAX, TOPOLOGY_MAX, TWO_HOP_MAX,
};
use core::time::Duration;
use gatewright_packet::LinkIndex;
use std::net::Ipv4Addr;

/// What a HELLO says, beside its links.
#[derive(Clone, Copy, Debug)]
struct HelloFrom {
    link: LinkIndex,
    from: Ipv4Addr,
    originator: Ipv4Addr,
    willingness: u8,
    until: Duration,
}

/// Whether `a` is newer than `b`, with wrap-around (RFC 3626 §19).
pub(super) const fn is_newer(a: u16, b: u16) -> bool {
    const HALF: u16 = u16::MAX / 2;
    (a > b && a - b <= HALF) || (b > a && b - a > HALF)
}

impl OlsrNode {
    /// Processes a packet; `true` if something may have changed.
    pub(super) fn received(
        &mut self,
        now: Duration,
        link: LinkIndex,
        from: Ipv4Addr,
        octets: &[u8],
    ) -> bool {
        self.counters.received += 1;
        if !self.interfaces.contains_key(&link) || self.own_addresses().contains(&from) {
            self.counters.own += 1;
            return false;
        }
        let Ok(packet) = OlsrPacket::decode(octets) else {
            self.counters.malformed += 1;
            return false;
        };
        let hold = self.settings.neighbour_hold();
        let mut changed = false;
        if self.settings.hysteresis
            && let Some(tuple) = self.sets.links.get_mut(&(link, from))
        {
            let before = tuple.is_symmetric(now);
            tuple.count_packet(now, packet.sequence, hold);
            changed = tuple.is_symmetric(now) != before;
        }
        for message in &packet.messages {
            changed |= self.message_arrived(now, link, from, message);
        }
        changed
    }

    /// RFC 3626 §3.4: processing and forwarding of one message.
    fn message_arrived(
        &mut self,
        now: Duration,
        link: LinkIndex,
        from: Ipv4Addr,
        message: &OlsrMessage<'_>,
    ) -> bool {
        let head = message.head;
        if head.ttl == 0 || head.originator == self.settings.main_address {
            self.counters.own += 1;
            return false;
        }
        let Ok(content) = message.content() else {
            self.counters.malformed += 1;
            return false;
        };
        if !is_host_address(head.originator) || !content.names_hosts() {
            self.counters.martian += 1;
            return false;
        }
        if let OlsrContent::Hello { willingness, links, .. } = content {
            let until = now + head.validity.duration();
            let originator = head.originator;
            let hello = HelloFrom { link, from, originator, willingness, until };
            return self.hello(now, hello, &links);
        }
        // "if there exists a tuple in the duplicate set, ... the message has already been completely
        // processed and MUST not be processed again"
        let repeated = self.sets.seen.contains_key(&(head.originator, head.sequence));
        let changed = if repeated {
            self.counters.repeated += 1;
            false
        } else if self.sets.is_symmetric(now, from) {
            self.declared(now, message, content)
        } else {
            false
        };
        self.forward(now, link, from, message);
        changed
    }

    /// What a TC, MID or HNA of a node declares.
    fn declared(&mut self, now: Duration, message: &OlsrMessage<'_>, content: OlsrContent) -> bool {
        let (originator, until) = (message.head.originator, now + message.head.validity.duration());
        match content {
            OlsrContent::Topology { sequence, neighbours } => {
                self.topology(originator, sequence, &neighbours, until)
            }
            OlsrContent::Interfaces(addresses) => self.aliases(originator, &addresses, until),
            OlsrContent::Networks(networks) => self.networks(originator, &networks, until),
            OlsrContent::Hello { .. } | OlsrContent::Unknown => false,
        }
    }

    /// Link sensing (RFC 3626 §7.1.1), neighbours (§8.1), two-hop neighbours (§8.2.1), selectors
    /// (§8.4.1).
    fn hello(
        &mut self,
        now: Duration,
        hello: HelloFrom,
        links: &[(OlsrLinkCode, Ipv4Addr)],
    ) -> bool {
        let HelloFrom { link, from, originator, willingness, until } = hello;
        let key = (link, from);
        if !self.sets.links.contains_key(&key) && self.sets.links.len() >= LINKS_MAX {
            self.counters.links_full += 1;
            return false;
        }
        let hysteresis = self.settings.hysteresis;
        let hold = self.settings.neighbour_hold();
        let own = self.own_addresses();
        let here = self.interfaces.get(&link).map(|interface| interface.address);
        let tuple =
            self.sets.links.entry(key).or_insert_with(|| LinkTuple::new(originator, hysteresis));
        let before = (tuple.main, tuple.willingness, tuple.is_symmetric(now));
        (tuple.main, tuple.willingness) = (originator, willingness.min(7));
        tuple.heard_until = until;
        let told = links.iter().find(|(_, address)| Some(*address) == here);
        match told.map(|(code, _)| code.link) {
            Some(OlsrLinkType::Lost) => tuple.symmetric_until = Duration::ZERO,
            Some(OlsrLinkType::Symmetric | OlsrLinkType::Asymmetric) => {
                tuple.symmetric_until = until;
                tuple.until = until + hold;
            }
            Some(OlsrLinkType::Unspecified) | None => {}
        }
        tuple.until = tuple.until.max(tuple.heard_until);
        let symmetric = tuple.is_symmetric(now);
        let mut changed = before != (tuple.main, tuple.willingness, symmetric);
        let chosen = |(code, address): &(OlsrLinkCode, Ipv4Addr)| {
            code.neighbour == OlsrNeighbourType::Relay && own.contains(address)
        };
        if symmetric {
            changed |= self.two_hops(originator, links, until);
            if links.iter().any(chosen) {
                changed |= self.sets.selectors.insert(originator, until).is_none();
            }
        }
        self.ends_at(until);
        // A neighbour that has just been lost takes along what it said.
        if told.is_some() && !symmetric {
            self.expire(now);
        }
        changed
    }

    fn two_hops(
        &mut self,
        near: Ipv4Addr,
        links: &[(OlsrLinkCode, Ipv4Addr)],
        until: Duration,
    ) -> bool {
        let mut changed = false;
        for (code, address) in links {
            let far = self.sets.main_of(*address);
            if far == self.settings.main_address || self.own_addresses().contains(&far) {
                continue;
            }
            if code.neighbour == OlsrNeighbourType::Not {
                changed |= self.sets.two_hop.remove(&(near, far)).is_some();
            } else if self.sets.two_hop.len() < TWO_HOP_MAX
                || self.sets.two_hop.contains_key(&(near, far))
            {
                changed |= self.sets.two_hop.insert((near, far), until).is_none();
            } else {
                self.counters.two_hop_full += 1;
            }
        }
        changed
    }

    /// RFC 3626 §9.5.
    fn topology(
        &mut self,
        last: Ipv4Addr,
        sequence: u16,
        neighbours: &[Ipv4Addr],
        until: Duration,
    ) -> bool {
        let all = (last, Ipv4Addr::UNSPECIFIED)..=(last, Ipv4Addr::BROADCAST);
        let known: Vec<((Ipv4Addr, Ipv4Addr), u16)> =
            self.sets.topology.range(all).map(|(key, (its, _))| (*key, *its)).collect();
        if known.iter().any(|(_, its)| is_newer(*its, sequence)) {
            self.counters.old += 1;
            return false;
        }
        let mut changed = false;
        for (key, _) in known.into_iter().filter(|(_, its)| is_newer(sequence, *its)) {
            self.sets.topology.remove(&key);
            changed = true;
        }
        for destination in neighbours {
            let key = (last, *destination);
            if self.sets.topology.len() < TOPOLOGY_MAX || self.sets.topology.contains_key(&key) {
                changed |= self.sets.topology.insert(key, (sequence, until)).is_none();
            } else {
                self.counters.topology_full += 1;
            }
        }
        self.ends_at(until);
        changed
    }

    /// RFC 3626 §5.4.
    fn aliases(&mut self, main: Ipv4Addr, addresses: &[Ipv4Addr], until: Duration) -> bool {
        let mut changed = false;
        for address in addresses {
            if self.sets.aliases.len() < ALIASES_MAX || self.sets.aliases.contains_key(address) {
                let known = self.sets.aliases.insert(*address, (main, until));
                changed |= known.is_none_or(|(its, _)| its != main);
            } else {
                self.counters.interfaces_full += 1;
            }
        }
        self.ends_at(until);
        changed
    }

    /// RFC 3626 §12.5.
    fn networks(&mut self, gateway: Ipv4Addr, networks: &[OlsrNetwork], until: Duration) -> bool {
        let mut changed = false;
        for network in networks {
            let key = (gateway, *network);
            if self.sets.networks.len() < NETWORKS_MAX || self.sets.networks.contains_key(&key) {
                changed |= self.sets.networks.insert(key, until).is_none();
            } else {
                self.counters.networks_full += 1;
            }
        }
        self.ends_at(until);
        changed
    }
}
