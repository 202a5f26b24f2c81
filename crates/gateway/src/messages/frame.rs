//! Messages as packets: as a capture of the link would show them, built from the addresses of both
//! ends.
//!
//! A message over TCP becomes one segment, or several if it is too long. Sequence numbers continue
//! from the last captured message of the connection, so that a reader joins them. Octets that were
//! not kept leave a gap. There is no handshake and no end.

use super::MessageRecord;
use gatewright_wire::{
    Checksum, IpProtocol, ipv4::Ipv4Fields, ipv6::Ipv6Fields, tcp::TcpFields, udp::UdpFields,
};
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// Maximum octets of a message in one packet: 65,535 of an IPv6 payload without a TCP header, which
/// is less than an IPv4 packet holds after both headers.
const SEGMENT_MAX: usize = 65_495;

/// Maximum connections with known sequence numbers.
const CONNECTIONS_MAX: usize = 4096;

/// Octets of a header without options.
const TCP_LEN: u16 = 20;
const UDP_LEN: u16 = 8;
const IPV4_LEN: u16 = 20;

/// The progress of a connection: octets sent and received by the peer.
#[derive(Clone, Copy, Debug)]
struct Reached {
    inbound: u32,
    outbound: u32,
}

/// Converts messages to packets.
#[derive(Debug, Default)]
pub(super) struct Framer {
    connections: HashMap<(SocketAddr, SocketAddr), Reached>,
    /// Connections, oldest first.
    order: VecDeque<(SocketAddr, SocketAddr)>,
}

impl Framer {
    /// The packets of one piece of a message.
    pub(super) fn packets(&mut self, record: &MessageRecord) -> Vec<Vec<u8>> {
        if !record.tcp {
            return vec![udp(record)];
        }
        let key = (record.peer, record.local);
        let reached = *self.connections.entry(key).or_insert_with(|| {
            self.order.push_back(key);
            Reached { inbound: 1, outbound: 1 }
        });
        let mut now = reached;
        let mut packets = Vec::new();
        for segment in record.octets.chunks(SEGMENT_MAX) {
            packets.push(tcp(record, now, segment));
            now.advance(record.inbound, segment.len());
        }
        now.advance(record.inbound, usize::try_from(record.missing).unwrap_or(usize::MAX));
        self.connections.insert(key, now);
        if self.order.len() > CONNECTIONS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.connections.remove(&oldest);
        }
        packets
    }
}

impl Reached {
    /// Sequence numbers are counted modulo 2^32 (RFC 9293 §3.4).
    fn advance(&mut self, inbound: bool, octets: usize) {
        let octets = u64::try_from(octets).unwrap_or(u64::MAX) & u64::from(u32::MAX);
        let octets = u32::try_from(octets).unwrap_or_default();
        let side = if inbound { &mut self.inbound } else { &mut self.outbound };
        *side = side.wrapping_add(octets);
    }
}

fn length(octets: usize) -> u16 {
    u16::try_from(octets).unwrap_or(u16::MAX)
}

fn ends(record: &MessageRecord) -> (SocketAddr, SocketAddr) {
    if record.inbound { (record.peer, record.local) } else { (record.local, record.peer) }
}

fn tcp(record: &MessageRecord, reached: Reached, octets: &[u8]) -> Vec<u8> {
    let (from, to) = ends(record);
    let Reached { inbound, outbound } = reached;
    let (sequence, acknowledged) =
        if record.inbound { (inbound, outbound) } else { (outbound, inbound) };
    let mut fields = TcpFields {
        source_port: from.port(),
        destination_port: to.port(),
        sequence_number: sequence,
        acknowledgment_number: acknowledged,
        data_offset: 5,
        ack: true,
        psh: true,
        window: u16::MAX,
        ..TcpFields::default()
    };
    let whole = length(octets.len()).saturating_add(TCP_LEN);
    let mut sum = pseudo(from.ip(), to.ip(), IpProtocol::TCP, whole);
    sum.add(&fields.emit());
    sum.add(octets);
    fields.checksum = sum.finish();
    packet(from.ip(), to.ip(), IpProtocol::TCP, &[&fields.emit(), octets])
}

fn udp(record: &MessageRecord) -> Vec<u8> {
    let (from, to) = ends(record);
    let octets = record.octets.get(..SEGMENT_MAX).unwrap_or(&record.octets);
    let mut fields = UdpFields {
        source_port: from.port(),
        destination_port: to.port(),
        length: length(octets.len()).saturating_add(UDP_LEN),
        checksum: 0,
    };
    let mut sum = pseudo(from.ip(), to.ip(), IpProtocol::UDP, fields.length);
    sum.add(&fields.emit());
    sum.add(octets);
    fields.checksum = sum.finish_udp();
    packet(from.ip(), to.ip(), IpProtocol::UDP, &[&fields.emit(), octets])
}

fn pseudo(from: IpAddr, to: IpAddr, protocol: IpProtocol, length: u16) -> Checksum {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Checksum::pseudo_ipv4(from, to, protocol, length),
        (from, to) => Checksum::pseudo_ipv6(v6(from), v6(to), protocol, length.into()),
    }
}

fn v6(address: IpAddr) -> std::net::Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

fn packet(from: IpAddr, to: IpAddr, protocol: IpProtocol, parts: &[&[u8]]) -> Vec<u8> {
    let whole = length(parts.iter().map(|part| part.len()).sum());
    let mut packet = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let length = whole.saturating_add(IPV4_LEN);
            Ipv4Fields::new(protocol, from, to, length).emit_with_checksum().to_vec()
        }
        (from, to) => Ipv6Fields::new(protocol, v6(from), v6(to), whole).emit().to_vec(),
    };
    for part in parts {
        packet.extend_from_slice(part);
    }
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(inbound: bool, octets: usize, missing: u64) -> MessageRecord {
        MessageRecord {
            peer: "192.0.2.1:4000".parse().unwrap(),
            local: "192.0.2.9:25".parse().unwrap(),
            tcp: true,
            inbound,
            octets: vec![7; octets],
            missing,
        }
    }

    fn sequence(packet: &[u8]) -> (u32, u32) {
        let number = |at: usize| u32::from_be_bytes(*packet[at..].first_chunk().unwrap());
        (number(24), number(28))
    }

    #[test]
    fn the_sequence_goes_on_from_message_to_message_both_ways() {
        let mut framer = Framer::default();
        let mut next = |inbound, octets, missing| {
            let packets = framer.packets(&record(inbound, octets, missing));
            packets.iter().map(|packet| sequence(packet)).collect::<Vec<_>>()
        };
        assert_eq!(next(true, 10, 0), [(1, 1)]);
        assert_eq!(next(false, 5, 0), [(1, 11)]);
        assert_eq!(next(true, SEGMENT_MAX + 1, 3), [(11, 6), (11 + 65_495, 6)]);
        assert_eq!(next(true, 1, 0), [(11 + 65_496 + 3, 6)]);
    }

    #[test]
    fn the_longest_packet_fits_and_its_sums_are_right() {
        for [peer, local] in
            [["192.0.2.1:1", "192.0.2.2:2"], ["[2001:db8::1]:1", "[2001:db8::2]:2"]]
        {
            for tcp in [true, false] {
                let (peer, local) = (peer.parse().unwrap(), local.parse().unwrap());
                let long = MessageRecord { peer, local, tcp, ..record(true, SEGMENT_MAX, 0) };
                let packet = Framer::default().packets(&long).remove(0);
                let header = if long.peer.is_ipv4() { 20 } else { 40 };
                let protocol = if tcp { IpProtocol::TCP } else { IpProtocol::UDP };
                let whole = u16::try_from(packet.len() - header).unwrap();
                let mut sum = pseudo(long.peer.ip(), long.local.ip(), protocol, whole);
                sum.add(&packet[header..]);
                assert!(sum.is_valid(), "{peer} {tcp}");
            }
        }
    }

    #[test]
    fn more_connections_than_are_known_begin_anew() {
        let mut framer = Framer::default();
        for port in 0..=u16::try_from(CONNECTIONS_MAX).unwrap() {
            let peer = SocketAddr::from(([192, 0, 2, 1], port));
            framer.packets(&MessageRecord { peer, ..record(true, 4, 0) });
        }
        assert_eq!(framer.connections.len(), CONNECTIONS_MAX);
        let peer = SocketAddr::from(([192, 0, 2, 1], 0));
        let again = framer.packets(&MessageRecord { peer, ..record(true, 4, 0) });
        assert_eq!(sequence(&again[0]), (1, 1));
    }
}
