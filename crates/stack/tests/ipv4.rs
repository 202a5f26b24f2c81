//! IPv4 over Ethernet between two links, as host and as router.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

mod common;

use common::{A, B, Gateway, LAN, LAN_IP, LAN_MAC, WAN, WAN_MAC, ether, from_a, ipv4};
use gatewright_wire::{
    EtherType, IpProtocol, checksum,
    icmpv4::{EchoFields, Icmpv4Type},
    ipv4::Ipv4,
};

const UDP: IpProtocol = IpProtocol::UDP;

fn echo(kind: Icmpv4Type, data: &[u8]) -> Vec<u8> {
    let fields = EchoFields { kind, code: 0, checksum: 0, identifier: 7, sequence_number: 1 };
    let mut message = [&fields.emit()[..], data].concat();
    let sum = checksum::of(&message).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    message
}

#[test]
fn a_ping_is_answered() {
    let mut gateway = Gateway::new();
    let request =
        ipv4(A.1, LAN_IP, IpProtocol::ICMPV4, &echo(Icmpv4Type::ECHO_REQUEST, b"data"), |_| {});
    let sent = gateway.receive(LAN, &[from_a(&request)]);
    assert_eq!(sent.len(), 1, "{:?}", gateway.drops());
    let (ip, message) = Ipv4::split(&sent[0].1[14..]).unwrap();
    assert_eq!(sent[0].1[..14], ether(A.0, LAN_MAC, EtherType::IPV4, b""));
    assert_eq!((ip.source_address(), ip.destination_address()), (LAN_IP, A.1));
    assert!(ip.is_checksum_valid(&[]));
    assert_eq!(message, echo(Icmpv4Type::ECHO_REPLY, b"data"));
    assert!(gateway.is_clean());
}

#[test]
fn a_packet_is_forwarded_with_one_hop_less() {
    let mut gateway = Gateway::new();
    let packet = ipv4(A.1, B.1, UDP, b"payload", |_| {});
    let sent = gateway.receive(LAN, &[from_a(&packet)]);
    let expected = ipv4(A.1, B.1, UDP, b"payload", |ip| ip.time_to_live = 63);
    assert_eq!(sent, [(WAN, ether(B.0, WAN_MAC, EtherType::IPV4, &expected))]);
}
