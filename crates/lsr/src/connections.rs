//! TCP connections as they are seen at the ingress of this node: the machine keeps the paths to destinations
//! with a connection while nothing is sent.
//!
//! A connection is one whose server is at this node, or behind it: it exists from the server's SYN with ACK
//! to the first FIN or RST of either side. The node at the client's end learns of it by the machine's probes.
//! Only such segments are looked at, so a connection that was there before the node is not seen.

use crate::forwarding::node_of;
use crate::frames::{HEADER_LEN, IPV4, IPV6, destination, ether_type, is_group};
use gatewright_mesh::NodeId;
use gatewright_wire::{IpProtocol, ipv4::Ipv4, ipv6::Ipv6, tcp::Tcp};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Connections at the most.
pub(crate) const CONNECTIONS_MAX: usize = 4_096;

/// A connection is forgotten when nothing has been sent to its destination for so long: a peer that has gone
/// without a FIN is found by Linux's keepalive within 2 h 11 min (`tcp_keepalive_time`, and nine probes of 75 s).
const SILENCE_MAX: Duration = Duration::from_mins(135);

/// The same where nothing was sent at all, not even the segment by which the connection was seen: there is
/// nobody.
const UNSENT_MAX: Duration = Duration::from_mins(1);

/// Whose ends a segment connects: the server's address, then the client's.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct ConnectionEnds(SocketAddr, SocketAddr);

/// The connections with a destination.
#[derive(Clone, Copy, Debug)]
struct DestinationConnections {
    count: usize,
    since: Duration,
    has_sent: bool,
}

/// A destination that has connections now, or none any more.
pub(crate) type ConnectionChange = (NodeId, bool);

/// The connections of this node.
#[derive(Debug, Default)]
pub(crate) struct TcpConnections {
    all: BTreeMap<ConnectionEnds, NodeId>,
    destinations: BTreeMap<NodeId, DestinationConnections>,
    refused: u64,
}

impl TcpConnections {
    /// A segment with SYN, FIN or RST has entered the mesh here.
    pub(crate) fn sent(&mut self, now: Duration, frame: &[u8]) -> Option<ConnectionChange> {
        let (from, to, tcp) = segment(frame)?;
        if tcp.fin() || tcp.rst() {
            return self.end(from, to);
        }
        if !(tcp.syn() && tcp.ack()) {
            return None;
        }
        let ends = ConnectionEnds(from, to);
        if self.all.contains_key(&ends) {
            return None;
        }
        if self.all.len() >= CONNECTIONS_MAX {
            self.refused += 1;
            return None;
        }
        let destination = destination(frame).filter(|to| !is_group(*to)).map(node_of)?;
        self.all.insert(ends, destination);
        let none = DestinationConnections { count: 0, since: now, has_sent: false };
        let known = self.destinations.entry(destination).or_insert(none);
        known.count += 1;
        (known.count == 1).then_some((destination, true))
    }

    /// A segment with SYN, FIN or RST has left the mesh here.
    pub(crate) fn received(&mut self, frame: &[u8]) -> Option<ConnectionChange> {
        let (from, to, tcp) = segment(frame)?;
        if tcp.fin() || tcp.rst() { self.end(from, to) } else { None }
    }

    /// The connection between two ends has ended.
    fn end(&mut self, a: SocketAddr, b: SocketAddr) -> Option<ConnectionChange> {
        let removed = self.all.remove(&ConnectionEnds(a, b));
        let destination = removed.or_else(|| self.all.remove(&ConnectionEnds(b, a)))?;
        let known = self.destinations.get_mut(&destination)?;
        known.count -= 1;
        if known.count > 0 {
            return None;
        }
        self.destinations.remove(&destination);
        Some((destination, false))
    }

    /// Octets were sent to a destination.
    pub(crate) fn traffic(&mut self, now: Duration, destination: NodeId) {
        if let Some(known) = self.destinations.get_mut(&destination) {
            (known.since, known.has_sent) = (now, true);
        }
    }

    /// Forgets the connections with destinations that have been silent for too long; returns these.
    pub(crate) fn expire(&mut self, now: Duration) -> Vec<NodeId> {
        let is_silent = |known: &mut DestinationConnections| {
            let patience = if known.has_sent { SILENCE_MAX } else { UNSENT_MAX };
            now.saturating_sub(known.since) >= patience
        };
        let gone: Vec<NodeId> = (self.destinations)
            .extract_if(.., |_, known| is_silent(known))
            .map(|(destination, _)| destination)
            .collect();
        if !gone.is_empty() {
            let destinations = &self.destinations;
            self.all.retain(|_, destination| destinations.contains_key(destination));
        }
        gone
    }

    /// Their number.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Connections that are not known, as there are too many.
    pub(crate) const fn refused(&self) -> u64 {
        self.refused
    }
}

/// Source, destination and header of the TCP segment in a frame.
fn segment(frame: &[u8]) -> Option<(SocketAddr, SocketAddr, Tcp<'_>)> {
    let packet = frame.get(HEADER_LEN..)?;
    let (from, to, octets): (IpAddr, IpAddr, _) = match ether_type(frame)? {
        IPV4 => {
            let (ip, _) = Ipv4::split(packet).ok()?;
            let is_whole = ip.protocol() == IpProtocol::TCP && ip.fragment_offset() == 0;
            let octets = packet.get(ip.header_len()..).filter(|_| is_whole)?;
            (ip.source_address().into(), ip.destination_address().into(), octets)
        }
        IPV6 => {
            let (ip, octets) = Ipv6::split(packet).ok()?;
            let octets = Some(octets).filter(|_| ip.next_header() == IpProtocol::TCP)?;
            (ip.source_address().into(), ip.destination_address().into(), octets)
        }
        _ => return None,
    };
    let (tcp, _) = Tcp::split(octets).ok()?;
    let end = |address, port| SocketAddr::new(address, port);
    Some((end(from, tcp.source_port()), end(to, tcp.destination_port()), tcp))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: [u8; 6] = [0x52, 0, 0, 0, 0, 1];
    const CLIENT: [u8; 6] = [0x52, 0, 0, 0, 0, 2];
    /// The last octet of flags (RFC 9293 §3.1).
    const FIN: u8 = 1;
    const SYN: u8 = 2;
    const RST: u8 = 4;
    const ACK: u8 = 16;

    /// A segment of IPv4 (RFC 791 §3.1) from 10.0.0.1:22 to 10.0.0.2:PORT, or back.
    fn segment(from_server: bool, port: u16, flags: u8) -> Vec<u8> {
        let mut frame = if from_server { [CLIENT, SERVER] } else { [SERVER, CLIENT] }.concat();
        frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]);
        let (hosts, ports) = ([[10, 0, 0, 1], [10, 0, 0, 2]], [22_u16, port]);
        let order = if from_server { [0, 1] } else { [1, 0] };
        frame.extend(order.map(|end: usize| hosts[end]).concat());
        frame.extend(order.map(|end: usize| ports[end].to_be_bytes()).concat());
        frame.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 0, 0, 0, 0, 0, 0]);
        frame
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn opened(ports: std::ops::Range<u16>) -> TcpConnections {
        let mut connections = TcpConnections::default();
        for port in ports {
            connections.sent(Duration::ZERO, &segment(true, port, SYN | ACK));
        }
        connections
    }

    #[test]
    fn a_connection_is_there_from_the_servers_syn_to_the_first_end() {
        let client = node_of(CLIENT);
        for (from_server, end) in [(true, FIN | ACK), (true, RST), (false, FIN | ACK), (false, RST)]
        {
            let mut connections = TcpConnections::default();
            let mut sent = |port, flags| connections.sent(seconds(1), &segment(true, port, flags));
            assert_eq!(sent(1, SYN | ACK), Some((client, true)));
            // It is sent again, and there is another one.
            assert_eq!(sent(1, SYN | ACK), None);
            assert_eq!(sent(2, SYN | ACK), None);
            assert_eq!(connections.len(), 2);
            let mut ends = |port| match segment(from_server, port, end) {
                frame if from_server => connections.sent(seconds(2), &frame),
                frame => connections.received(&frame),
            };
            assert_eq!(ends(3), None);
            assert_eq!(ends(1), None);
            assert_eq!(ends(2), Some((client, false)));
            assert_eq!(ends(2), None);
            assert_eq!(connections.len(), 0);
        }
    }

    /// A client's SYN may be refused, and a server that answers here is another node's.
    #[test]
    fn a_syn_and_what_arrives_open_nothing() {
        let mut connections = TcpConnections::default();
        assert_eq!(connections.sent(seconds(1), &segment(false, 1, SYN)), None);
        assert_eq!(connections.received(&segment(true, 1, SYN | ACK)), None);
        assert_eq!(connections.received(&segment(false, 1, SYN)), None);
        assert_eq!(connections.len(), 0);
    }

    #[test]
    fn a_destination_that_is_silent_for_longer_than_keepalive_is_forgotten() {
        let mut connections = opened(1..3);
        assert_eq!(connections.expire(seconds(59)), []);
        connections.traffic(seconds(59), node_of(CLIENT));
        assert_eq!(connections.expire(seconds(8_000)), []);
        connections.traffic(seconds(8_000), node_of(CLIENT));
        assert_eq!(connections.expire(seconds(8_000 + 135 * 60 - 1)), []);
        assert_eq!(connections.expire(seconds(8_000 + 135 * 60)), [node_of(CLIENT)]);
        assert_eq!((connections.len(), connections.destinations.len()), (0, 0));
    }

    /// A station can send segments to nobody.
    #[test]
    fn a_destination_to_which_nothing_goes_is_forgotten_in_a_minute() {
        let mut connections = opened(1..3);
        assert_eq!(connections.expire(seconds(60)), [node_of(CLIENT)]);
        assert_eq!(connections.len(), 0);
    }

    #[test]
    fn connections_are_bounded() {
        let mut connections = opened(0..5_000);
        assert_eq!((connections.len(), connections.refused()), (CONNECTIONS_MAX, 904));
        assert_eq!(connections.sent(seconds(1), &segment(true, 7, FIN)), None);
        connections.sent(seconds(1), &segment(true, 5_001, SYN | ACK));
        assert_eq!((connections.len(), connections.refused()), (CONNECTIONS_MAX, 904));
    }

    #[test]
    fn frames_that_are_cut_or_of_something_else_are_none() {
        let whole = segment(true, 1, SYN | ACK);
        for len in 0..whole.len() {
            let mut connections = TcpConnections::default();
            assert_eq!(connections.sent(seconds(1), &whole[..len]), None, "{len}");
        }
        // UDP, a later fragment, ARP, IPv6 that is too short.
        for (at, octet) in [(23, 17), (21, 1), (13, 6), (12, 0x86)] {
            let mut other = whole.clone();
            other[at] = octet;
            assert_eq!(TcpConnections::default().sent(seconds(1), &other), None, "{at}");
        }
    }

    /// RFC 8200 §3: 40 octets, the next header in the seventh.
    #[test]
    fn a_segment_of_ipv6_is_one() {
        let mut frame = [CLIENT, SERVER].concat();
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64]);
        frame.extend([0xfd; 15].into_iter().chain([1]).chain([0xfd; 15]).chain([2]));
        frame.extend(&segment(true, 1, SYN | ACK)[34..]);
        let mut connections = TcpConnections::default();
        assert_eq!(connections.sent(seconds(1), &frame), Some((node_of(CLIENT), true)));
        frame[20] = 17;
        assert_eq!(TcpConnections::default().sent(seconds(1), &frame), None);
    }
}
