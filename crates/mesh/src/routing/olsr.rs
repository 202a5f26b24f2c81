//! OLSR among the nodes of a mesh: a ROUTE REQUEST follows the shortest route that is known.
//!
//! What OLSR calls an interface address is the node's main address on each of its links. The mesh's
//! own liveness is the link-layer notification of RFC 3626 §13.

use super::{LinkNews, RequestWay, RouteFinding};
use crate::edge::Adjacency;
use crate::identity::NodeId;
use crate::message::RouteRequest;
use crate::neighbour::Neighbourhood;
use crate::olsr::message::OlsrNetwork;
use crate::olsr::{OlsrInput, OlsrNode, OlsrOutput, OlsrSettings};
use core::time::Duration;
use gatewright_packet::LinkIndex;
use sha2::{Digest, Sha256};
use std::net::Ipv4Addr;

/// Requests of a search that follow routes; the next one is flooded. Nodes that do not have the
/// same topology yet may send a request where it does not arrive.
const FOLLOWING: usize = 2;

/// Octets of OLSR's messages in one message of the mesh: with a signature it fits into 1,500.
const PACKET_OCTETS_MAX: usize = 1_200;

/// Routes calculated for requests in a second at the most: whoever can send on a link can send any number
/// of them, each of which costs a look through the topology.
const ROUTES_PER_SECOND: u32 = 500;

/// The main address of a node: a hash of its identity, as OLSR is for IPv4. It is that of a host:
/// the first octet is 1 to 126.
pub fn olsr_address(node: NodeId) -> Ipv4Addr {
    let digest = Sha256::digest(node.0.to_be_bytes());
    let [first, second, third, fourth] = digest.first_chunk().copied().unwrap_or_default();
    [1 + first % 126, second, third, fourth].into()
}

/// Route finding by OLSR.
#[derive(Debug)]
pub(super) struct OlsrRouting {
    olsr: OlsrNode,
    /// The present second, and the routes that were calculated in it.
    second: (Duration, u32),
}

impl OlsrRouting {
    /// The OLSR router of a node.
    pub(super) fn new(own: NodeId, seed: u64) -> Self {
        let olsr = OlsrNode::new(OlsrSettings {
            packet_octets_max: PACKET_OCTETS_MAX,
            ..OlsrSettings::new(olsr_address(own), seed)
        });
        Self { olsr, second: (Duration::ZERO, 0) }
    }

    /// Whether one more route may be calculated.
    fn may_calculate(&mut self, now: Duration) -> bool {
        let (since, count) = &mut self.second;
        if now.saturating_sub(*since) >= Duration::from_secs(1) {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        *count <= ROUTES_PER_SECOND
    }
}

impl RouteFinding for OlsrRouting {
    fn begin(
        &mut self,
        now: Duration,
        near: &Neighbourhood,
        request: &RouteRequest,
        attempt: usize,
    ) -> RequestWay {
        // A station has no address, and a node that has just come is not known everywhere.
        let target = OlsrNetwork::host(olsr_address(request.target));
        if attempt >= FOLLOWING || !self.olsr.routes().contains_key(&target) {
            return RequestWay::Flood;
        }
        self.follow(now, near, request)
    }

    fn follow(
        &mut self,
        now: Duration,
        near: &Neighbourhood,
        request: &RouteRequest,
    ) -> RequestWay {
        if !self.may_calculate(now) {
            return RequestWay::Nowhere;
        }
        // No node twice, so a request goes around no loop that two topologies make.
        let passed = request.record.iter().map(|hop| hop.node).chain([request.origin]);
        let listed = request.listed.iter().copied().filter(|_| request.avoids);
        let avoided = passed.chain(listed);
        let avoided = avoided.filter(|&node| node != request.target);
        let avoided: Vec<Ipv4Addr> = avoided.map(olsr_address).collect();
        let target = olsr_address(request.target);
        let Some(route) = self.olsr.route_avoiding(now, target, &avoided) else {
            return RequestWay::Nowhere;
        };
        let mut on_link = near.all.keys().filter(|at| at.link == route.link);
        let next = on_link.find(|at| olsr_address(at.node) == route.next_hop);
        // Another link to the same neighbour may be cheaper.
        next.and_then(|at| near.best(at.node)).map_or(RequestWay::Nowhere, RequestWay::Next)
    }

    fn learn(&mut self, now: Duration, news: LinkNews) {
        let own = self.olsr.main_address();
        self.olsr.handle(
            now,
            match news {
                LinkNews::LinkUp(link) => OlsrInput::InterfaceUp { link, address: own },
                LinkNews::LinkDown(link) => OlsrInput::InterfaceDown { link },
                LinkNews::NeighbourUp(Adjacency { link, node }) => {
                    OlsrInput::LinkFound { link, address: olsr_address(node) }
                }
                LinkNews::NeighbourDown(Adjacency { link, node }) => {
                    OlsrInput::LinkLost { link, address: olsr_address(node) }
                }
            },
        );
    }

    fn receive(&mut self, now: Duration, from: Adjacency, packet: &[u8]) -> bool {
        let Adjacency { link, node } = from;
        let input = OlsrInput::Received { link, from: olsr_address(node), octets: packet };
        self.olsr.handle(now, input);
        true
    }

    fn poll_output(&mut self) -> Option<(LinkIndex, Vec<u8>)> {
        loop {
            if let OlsrOutput::Send { link, octets } = self.olsr.poll_output()? {
                return Some((link, octets));
            }
        }
    }

    fn poll_timeout(&self) -> Option<Duration> {
        self.olsr.poll_timeout()
    }

    fn tick(&mut self, now: Duration) {
        self.olsr.handle(now, OlsrInput::Tick);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SHA-256 of eight octets by `printf '\0\0\0\0\0\0\0\1' | sha256sum`: cd 26 62 15 …
    #[test]
    fn a_main_address_is_a_hosts() {
        assert_eq!(olsr_address(NodeId(1)), Ipv4Addr::new(1 + 0xcd % 126, 0x26, 0x62, 0x15));
        for node in 0..2_000 {
            let [first, ..] = olsr_address(NodeId(node)).octets();
            assert!((1..=126).contains(&first));
        }
    }

    #[test]
    fn routes_for_requests_are_limited() {
        let mut routing = OlsrRouting::new(NodeId(1), 1);
        let mut in_a_second = |at_ms| {
            let now = Duration::from_millis(at_ms);
            (0..2_000).filter(|_| routing.may_calculate(now)).count()
        };
        assert_eq!([5_000, 5_999, 6_000].map(&mut in_a_second), [500, 0, 500]);
    }
}
