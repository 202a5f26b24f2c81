//! What becomes of a packet does not depend on those that it shares a batch with.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

mod common;

use common::{A, B, Frame, Gateway, LAN, LAN_IP, LAN_MAC, WAN, ether, from_a, ipv4};
use gatewright_wire::{
    EtherType, IpProtocol, MacAddress, ipv4::Ipv4Fields, ipv6::Ipv6Fields, udp::UdpFields,
};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A host of the WAN that no one knows.
const STRANGER: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 77);

/// Kinds of frames.
const KINDS: u8 = 9;

/// The frame `number` of a kind: the first kind goes on to B, the others fare otherwise each.
fn frame(kind: u8, number: u8) -> Vec<u8> {
    let payload = |len: usize| {
        let udp = UdpFields {
            source_port: 1024,
            destination_port: 9,
            length: u16::try_from(8 + len).unwrap(),
            checksum: 0,
        };
        [&udp.emit()[..], &vec![number; len]].concat()
    };
    let plain = |from: Ipv4Addr, to: Ipv4Addr, change: fn(&mut Ipv4Fields)| {
        from_a(&ipv4(from, to, IpProtocol::UDP, &payload(20), change))
    };
    match kind {
        1 => plain(A.1, B.1, |fields| fields.time_to_live = 1),
        2 => plain(A.1, LAN_IP, |_| {}),
        3 => plain(A.1, STRANGER, |_| {}),
        4 => plain(A.1, Ipv4Addr::new(192, 0, 2, 1), |_| {}),
        5 => plain(Ipv4Addr::LOCALHOST, B.1, |_| {}),
        6 => {
            let fields = Ipv6Fields::new(
                IpProtocol::UDP,
                Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2),
                Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, 2),
                28,
            );
            let packet = [&fields.emit()[..], &payload(20)].concat();
            ether(LAN_MAC, A.0, EtherType::IPV6, &packet)
        }
        7 => ether(LAN_MAC, A.0, EtherType(0x88b5), &payload(46)),
        8 => {
            let packet = ipv4(A.1, B.1, IpProtocol::UDP, &payload(20), |_| {});
            ether(MacAddress([2, 0, 0, 0, 0, 0x99]), A.0, EtherType::IPV4, &packet)
        }
        _ => plain(A.1, B.1, |_| {}),
    }
}

/// What left by `link`, in order, without what the gateway says itself.
fn forwarded(sent: &[Frame]) -> Vec<&Frame> {
    sent.iter().filter(|(link, frame)| *link == WAN && frame.get(23) == Some(&17)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn a_packet_fares_as_it_would_alone(
        kinds in prop::collection::vec(prop_oneof![3 => Just(0), 1 => 0..KINDS], 1..=64_usize),
    ) {
        let frames: Vec<Vec<u8>> =
            (0_u8..).zip(&kinds).map(|(number, &kind)| frame(kind, number)).collect();
        let (mut whole, mut single) = (Gateway::new(), Gateway::new());
        let together = whole.receive(LAN, &frames);
        let alone: Vec<Frame> =
            frames.iter().flat_map(|frame| single.receive(LAN, std::slice::from_ref(frame))).collect();
        prop_assert_eq!(forwarded(&together), forwarded(&alone));
        let plain: Vec<&u8> = kinds.iter().filter(|&&kind| kind == 0).collect();
        prop_assert_eq!(forwarded(&together).len(), plain.len());
        prop_assert_eq!(together.len(), alone.len());
        prop_assert_eq!(whole.drops(), single.drops());
        drop((together, alone));
        whole.tick(10);
        prop_assert!(whole.is_clean(), "what waited for its neighbour has come home");
    }
}
