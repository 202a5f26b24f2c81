//! What is learnt of ICMP errors about the size of packets (RFC 1191, RFC 8201), and what is not
//! believed (RFC 5927 §7).
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

mod common;

use common::{
    A, B, Gateway, LAN, LAN_IP, LAN_MAC, WAN_IP, from_a, hex, ipv4,
    ipv6::{self, A_MAC, A6, LAN6, frame, icmp, packets},
};
use gatewright_packet::LinkIndex;
use gatewright_stack::Event;
use gatewright_wire::{IpProtocol, checksum, ipv4::Ipv4};
use std::net::{Ipv4Addr, SocketAddr};

const NONE: LinkIndex = LinkIndex::NONE;

/// A datagram of ours from port 4096 to port 8192 of a host.
fn datagram(from: Ipv4Addr, to: Ipv4Addr, len: usize) -> Vec<u8> {
    let payload = [&hex("1000 2000 0000 0000")[..], &vec![7; len - 28]].concat();
    ipv4(from, to, IpProtocol::UDP, &payload, |_| {})
}

/// *Fragmentation needed* about a packet: "the internet header plus the first 64 bits of the original
/// datagram's data" (RFC 792).
fn needed(mtu: u16, original: &[u8]) -> Vec<u8> {
    let mut message = [&hex("0304 0000 0000")[..], &mtu.to_be_bytes(), &original[..28]].concat();
    let sum = checksum::of(&message).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    from_a(&ipv4(A.1, LAN_IP, IpProtocol::ICMPV4, &message, |_| {}))
}

/// Octets of the packets that leave.
fn lens(gateway: &mut Gateway, packet: &[u8]) -> Vec<usize> {
    let sent = gateway.transmit(NONE, packet);
    let packets = sent.iter().filter(|(_, frame)| frame[12..14] == [8, 0]);
    packets.map(|(_, frame)| Ipv4::split(&frame[14..]).unwrap().0.total_length().into()).collect()
}

/// RFC 1191 §3: "When a host receives a Datagram Too Big message, it MUST reduce its estimate of the
/// PMTU for the relevant path".
#[test]
fn a_path_mtu_is_learnt_from_an_error_about_what_was_sent() {
    let mut gateway = Gateway::new();
    let large = datagram(LAN_IP, A.1, 1500);
    assert_eq!(lens(&mut gateway, &large), [1500]);
    gateway.receive(LAN, &[needed(1006, &large)]);
    assert_eq!(gateway.events(), [Event::PathMtu { destination: A.1.into(), mtu: 1006 }]);
    assert_eq!(lens(&mut gateway, &large), [1004, 516]);
    // RFC 1191 §7.1: a router that does not tell what it carries is older than that.
    gateway.receive(LAN, &[needed(0, &large)]);
    assert_eq!(gateway.events(), [], "1492 is more than is held");
    gateway.tick(601);
    gateway.introduce(LAN, LAN_MAC, LAN_IP, A);
    assert_eq!(lens(&mut gateway, &large), [1500], "RFC 1191 §6.3: ten minutes");
    gateway.receive(LAN, &[needed(0, &large)]);
    assert_eq!(gateway.events(), [Event::PathMtu { destination: A.1.into(), mtu: 1492 }]);
}

/// A link that was down may be another network, by which other paths lead.
#[test]
fn a_link_that_goes_down_has_paths_forgotten() {
    let mut gateway = Gateway::new();
    let large = datagram(LAN_IP, A.1, 1500);
    assert_eq!(lens(&mut gateway, &large), [1500]);
    gateway.receive(LAN, &[needed(1006, &large)]);
    for up in [false, true] {
        gateway.host.change_interface(LAN, |interface| interface.up = up);
        gateway.tick(10);
    }
    gateway.introduce(LAN, LAN_MAC, LAN_IP, A);
    assert_eq!(lens(&mut gateway, &large), [1500]);
}

/// RFC 5927 §7: what somebody says of packets that were never sent, or are not larger than what he
/// says, changes nothing; nor does a value below what every host takes.
#[test]
fn an_error_about_what_was_never_sent_is_not_believed() {
    let large = datagram(LAN_IP, A.1, 1400);
    let mut other_port = large.clone();
    other_port[21] = 1;
    let mut later = large.clone();
    later[7] = 1;
    let cases = [
        ("never sent", needed(576, &datagram(WAN_IP, B.1, 1400))),
        ("from another host", needed(576, &datagram(B.1, A.1, 1400))),
        ("of another port", needed(576, &other_port)),
        ("a later fragment", needed(576, &later)),
        ("not larger", needed(1400, &large)),
    ];
    for (name, error) in cases {
        let mut gateway = Gateway::new();
        gateway.transmit(NONE, &large);
        gateway.receive(LAN, &[error]);
        assert_eq!(gateway.drops(), [("icmpv4", "untrusted", 1)], "{name}");
        assert_eq!(lens(&mut gateway, &datagram(WAN_IP, B.1, 1400)), [1400], "{name}");
        assert_eq!(lens(&mut gateway, &large), [1400], "{name}");
        assert_eq!(gateway.events(), [], "{name}");
    }
    let mut gateway = Gateway::new();
    gateway.transmit(NONE, &large);
    gateway.tick(11);
    gateway.introduce(LAN, LAN_MAC, LAN_IP, A);
    gateway.receive(LAN, &[needed(576, &large)]);
    assert_eq!(lens(&mut gateway, &large), [1400], "too late");
    gateway.receive(LAN, &[needed(68, &large)]);
    assert_eq!(lens(&mut gateway, &large), [572, 572, 296], "no less than 576");
}

/// A datagram from a socket of ours over IPv6, as it left.
fn sent_by(gateway: &mut ipv6::Socketed, len: usize) -> Vec<Vec<u8>> {
    gateway.socket.send_to(&vec![7; len], SocketAddr::new(A6.into(), 8000)).unwrap();
    let sent = gateway.gateway.tick(0);
    sent.into_iter().map(|(_, frame)| frame).collect()
}

fn too_big(mtu: u32, original: &[u8]) -> Vec<u8> {
    let quoted = &original[14..original.len().min(14 + 1232)];
    let message = icmp((A6, LAN6), [&[2, 0, 0, 0][..], &mtu.to_be_bytes(), quoted].concat());
    frame(LAN_MAC, A_MAC, IpProtocol::ICMPV6, (A6, LAN6), 64, &message)
}

/// RFC 8201 §4: "a node MUST reduce its estimate"; the error may be about a fragment.
#[test]
fn a_path_mtu_is_learnt_over_ipv6_of_packets_and_of_first_fragments() {
    for (len, pieces) in [(1400, 1), (3000, 3)] {
        let mut own = ipv6::Socketed::new();
        let sent = sent_by(&mut own, len);
        assert_eq!(sent.len(), pieces);
        own.gateway.receive(LAN, &[too_big(1300, &sent[0])]);
        let told = Event::PathMtu { destination: A6.into(), mtu: 1300 };
        assert_eq!(own.gateway.events(), [told], "{:?}", own.gateway.drops());
        let sent = sent_by(&mut own, len);
        assert!(sent.len() > 1 && sent.iter().all(|frame| frame.len() <= 14 + 1300));
    }
}

/// RFC 8201 §4: "If a node receives a Packet Too Big message reporting a next-hop MTU that is less
/// than the IPv6 minimum link MTU, it must discard it."
#[test]
fn a_packet_too_big_is_not_believed_of_less_than_1280_or_of_what_was_never_sent() {
    let mut own = ipv6::Socketed::new();
    let sent = sent_by(&mut own, 1400);
    own.gateway.receive(LAN, &[too_big(1279, &sent[0])]);
    let mut forged = sent[0].clone();
    forged[14 + 40] ^= 1;
    own.gateway.receive(LAN, &[too_big(1300, &forged)]);
    assert_eq!(own.gateway.drops(), [("icmpv6", "untrusted", 2)]);
    assert_eq!(sent_by(&mut own, 1400).len(), 1);

    let mut gateway = ipv6::gateway();
    let never = frame(A_MAC, LAN_MAC, IpProtocol::UDP, (LAN6, A6), 64, &[0; 1400]);
    gateway.receive(LAN, &[too_big(1280, &never)]);
    let request = ipv6::echo_request((A6, LAN6), &[1; 1400]);
    let request = frame(LAN_MAC, A_MAC, IpProtocol::ICMPV6, (A6, LAN6), 64, &request);
    assert_eq!(packets(&gateway.receive(LAN, &[request])).len(), 1, "whole");
}
