//! IPv6, ICMPv6 and neighbour discovery: frames in, frames out.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail loudly"
)]

mod common;

use common::{
    LAN, LAN_MAC, WAN, WAN_MAC, ether,
    ipv6::{
        A_MAC, A6, B_MAC, B6, LAN6, ROUTER, WAN6, cold, echo_request, fragments, frame, gateway,
        icmp, link_local, packets, solicitation, solicited, with,
    },
};
use gatewright_stack::{Address, AddressState, Event, Reason, RouterPreference};
use gatewright_tables::Prefix;
use gatewright_wire::{
    Checksum, EtherType, IpProtocol, MacAddress,
    icmpv6::Icmpv6Type,
    ndp::{NeighborAdvertisementFields, PrefixInformationFields, RouterAdvertisementFields},
};
use proptest::prelude::*;
use std::{net::Ipv6Addr, time::Duration};

#[test]
fn a_packet_for_another_link_loses_one_hop_and_nothing_else() {
    let mut gateway = gateway();
    let sent = gateway.receive(LAN, &[frame(LAN_MAC, A_MAC, IpProtocol(253), (A6, B6), 64, b"x")]);
    let expected = frame(B_MAC, WAN_MAC, IpProtocol(253), (A6, B6), 63, b"x");
    assert_eq!(sent, [(WAN, expected)]);
}

/// Each error with the type, code and parameter of RFC 4443, and the invoking packet behind it.
#[test]
fn errors_are_sent_with_their_cause() {
    type Case<'a> = (&'a str, Ipv6Addr, u8, IpProtocol, &'a [u8], [u8; 2], u32);
    let nowhere = Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, 1);
    let large = vec![0; 1400];
    let cases: [Case<'_>; 5] = [
        ("hop limit", B6, 1, IpProtocol(253), b"x", [3, 0], 0),
        ("no route", nowhere, 64, IpProtocol(253), b"x", [1, 0], 0),
        ("too big", B6, 64, IpProtocol(253), &large, [2, 0], 1300),
        ("unknown protocol", LAN6, 64, IpProtocol(253), b"x", [4, 1], 6),
        ("closed port", LAN6, 64, IpProtocol::UDP, b"\x00\x07\x00\x09\x00\x08", [1, 4], 0),
    ];
    for (name, to, hops, protocol, payload, kind, parameter) in cases {
        let mut gateway = gateway();
        let mut payload = payload.to_vec();
        if protocol == IpProtocol::UDP {
            let mut sum = Checksum::pseudo_ipv6(A6, to, protocol, 8);
            payload.extend([0, 0]);
            sum.add(&payload);
            payload[6..8].copy_from_slice(&sum.finish().to_be_bytes());
        }
        let invoking = frame(LAN_MAC, A_MAC, protocol, (A6, to), hops, &payload);
        let sent = packets(&gateway.receive(LAN, std::slice::from_ref(&invoking)));
        let [(link, ip, message)] = &sent[..] else { panic!("{name}: {sent:?}") };
        assert_eq!((*link, ip.destination_address, &message[..2]), (LAN, A6, &kind[..]), "{name}");
        assert_eq!(message[4..8], parameter.to_be_bytes(), "{name}");
        let told = &message[8..];
        assert_eq!(told, &invoking[14..14 + told.len()], "{name}: the invoking packet");
        assert!(
            message.len() + 40 <= 1280
                && icmp((ip.source_address, A6), message.clone()) == *message
        );
    }
}

#[test]
fn no_error_answers_an_error_or_a_group() {
    let mut gateway = gateway();
    let error = icmp((A6, B6), vec![1, 0, 0, 0, 0, 0, 0, 0]);
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let all = MacAddress::of_ipv6_multicast(group);
    let frames = [
        frame(LAN_MAC, A_MAC, IpProtocol::ICMPV6, (A6, B6), 1, &error),
        frame(all, A_MAC, IpProtocol(253), (A6, group), 64, b"x"),
    ];
    assert_eq!(packets(&gateway.receive(LAN, &frames)), []);
}

#[test]
fn an_echo_is_answered_whole_and_in_fragments() {
    for len in [0, 56, 1200, 9000, 65_000] {
        let mut gateway = gateway();
        let data: Vec<u8> = (0..len).map(|n: u32| n.to_le_bytes()[0]).collect();
        let request = echo_request((A6, LAN6), &data);
        let pieces: Vec<Vec<u8>> = if request.len() <= 1452 {
            vec![frame(LAN_MAC, A_MAC, IpProtocol::ICMPV6, (A6, LAN6), 64, &request)]
        } else {
            fragments(&request, 1400)
        };
        let answers = packets(&gateway.receive(LAN, &pieces));
        let mut reply: Vec<u8> = Vec::new();
        for (_, ip, payload) in answers {
            assert_eq!((ip.source_address, ip.destination_address), (LAN6, A6));
            assert!(payload.len() + 40 <= 1500);
            reply.extend(if ip.next_header == IpProtocol::FRAGMENT {
                &payload[8..]
            } else {
                &payload
            });
        }
        let mut expected = request;
        expected[0] = 129;
        assert_eq!(reply, icmp((LAN6, A6), expected), "{len} octets");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Fragments may come in any order and repeated.
    #[test]
    fn fragments_in_any_order_make_the_packet(
        order in Just((0..7_usize).collect::<Vec<_>>()).prop_shuffle(),
        again in proptest::collection::vec(0..7_usize, 0..5),
    ) {
        let mut gateway = gateway();
        let request = echo_request((A6, LAN6), &[7; 690]);
        let pieces = fragments(&request, 104);
        prop_assert_eq!(pieces.len(), 7);
        let last = order[6];
        let mut frames: Vec<Vec<u8>> = order.iter().map(|&index| pieces[index].clone()).collect();
        for index in again.into_iter().filter(|&index| index != last) {
            frames.insert(6, pieces[index].clone());
        }
        let answers = packets(&gateway.receive(LAN, &frames));
        prop_assert_eq!(answers.len(), 1);
        prop_assert_eq!(answers[0].2.len(), request.len());
    }

    /// Whatever comes, the gateway goes on.
    #[test]
    fn random_octets_are_survived(
        kind in any::<u8>(),
        octets in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut gateway = gateway();
        gateway.receive(LAN, &[
            frame(LAN_MAC, A_MAC, IpProtocol(kind), (A6, LAN6), 255, &octets),
            ether(LAN_MAC, A_MAC, EtherType::IPV6, &octets),
            frame(LAN_MAC, A_MAC, IpProtocol::ICMPV6, (A6, LAN6), 255, &icmp((A6, LAN6),
                [&[kind, 0, 0, 0][..], &octets].concat())),
        ]);
        gateway.tick(100);
        let sent = gateway.receive(LAN, &[solicitation(A_MAC, A6, LAN6)]);
        prop_assert!(!packets(&sent).is_empty());
    }
}

/// RFC 4861 §7.2: the packet waits, the neighbour is asked, the answer lets it go.
#[test]
fn a_packet_waits_for_its_neighbour() {
    let mut gateway = cold(|_| {});
    gateway.receive(LAN, &[solicitation(A_MAC, A6, LAN6)]);
    let transit = frame(LAN_MAC, A_MAC, IpProtocol(253), (A6, B6), 64, b"x");
    let asked = packets(&gateway.receive(LAN, &[transit]));
    let [(WAN, ip, message)] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!((ip.destination_address, ip.hop_limit, message[0]), (solicited(B6), 255, 135));
    let head = NeighborAdvertisementFields {
        kind: Icmpv6Type::NEIGHBOR_ADVERTISEMENT,
        code: 0,
        checksum: 0,
        router: false,
        solicited: true,
        override_flag: true,
        target_address: B6,
    };
    let ends = (B6, ip.source_address);
    let answer = icmp(ends, [&head.emit()[..], &[2, 1], &B_MAC.0].concat());
    let forged = frame(WAN_MAC, B_MAC, IpProtocol::ICMPV6, ends, 254, &answer);
    assert_eq!(packets(&gateway.receive(WAN, &[forged])), [], "it came over a router");
    let answer = frame(WAN_MAC, B_MAC, IpProtocol::ICMPV6, ends, 255, &answer);
    let sent = gateway.receive(WAN, &[answer]);
    assert_eq!(sent, [(WAN, frame(B_MAC, WAN_MAC, IpProtocol(253), (A6, B6), 63, b"x"))]);
}

/// RFC 4862 §5.4.3: a probe for an address that is ours is answered to everyone.
#[test]
fn a_probe_for_our_address_is_answered() {
    let mut gateway = cold(|_| {});
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let probe = solicitation(A_MAC, Ipv6Addr::UNSPECIFIED, WAN6);
    let answer = packets(&gateway.receive(WAN, &[probe]));
    assert_eq!((answer[0].1.destination_address, answer[0].2[0]), (group, 136));
}

/// RFC 4861 §6.3.4, RFC 4862 §5.5.3: a link that configures itself learns router and prefix, and an
/// address that is made of them is checked; another link believes nothing.
#[test]
fn a_router_advertisement_configures_who_asked_for_it() {
    let prefix = Ipv6Addr::new(0x2001, 0xdb8, 7, 0, 0, 0, 0, 0);
    let head = RouterAdvertisementFields {
        kind: Icmpv6Type::ROUTER_ADVERTISEMENT,
        code: 0,
        checksum: 0,
        cur_hop_limit: 64,
        managed: false,
        other_config: false,
        home_agent: false,
        preference: 0,
        router_lifetime: 1800,
        reachable_time: 0,
        retrans_timer: 0,
    };
    let option = PrefixInformationFields {
        prefix_length: 64,
        on_link: true,
        autonomous: true,
        valid_lifetime: 3600,
        preferred_lifetime: 1800,
        prefix,
    };
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let message = icmp((ROUTER, group), [&head.emit()[..], &option.emit()].concat());
    let all = MacAddress::of_ipv6_multicast(group);
    let advertisement = frame(all, A_MAC, IpProtocol::ICMPV6, (ROUTER, group), 255, &message);
    let mut gateway = cold(|interface| interface.autoconfigure = interface.link == LAN);
    for link in [WAN, LAN] {
        gateway.receive(link, std::slice::from_ref(&advertisement));
    }
    let formed = Ipv6Addr::new(0x2001, 0xdb8, 7, 0, 0, 0xff, 0xfe00, 0x10);
    let (link, hour) = (LAN, Duration::from_hours(1));
    let expected = [
        Event::Router {
            link,
            address: ROUTER.into(),
            lifetime: hour / 2,
            preference: RouterPreference::Medium,
        },
        Event::Prefix {
            link,
            prefix: Prefix::new(prefix, 64).unwrap(),
            on_link: true,
            autonomous: true,
            valid: hour,
            preferred: hour / 2,
        },
    ];
    assert_eq!(gateway.events(), expected);
    let tentative = Address { state: AddressState::Tentative, ..with(formed) };
    gateway.host.add_address(LAN, tentative).unwrap();
    gateway.tick(5);
    assert_eq!(gateway.events(), [Event::Unique { link, address: formed.into() }]);
}

/// A flood of solicitations from invented hosts stays inside its bounds, and A, who has answered us,
/// is still known.
#[test]
fn a_flood_of_neighbours_does_not_evict_the_living() {
    let mut gateway = gateway();
    let back = frame(WAN_MAC, B_MAC, IpProtocol(253), (B6, A6), 64, b"x");
    gateway.receive(WAN, std::slice::from_ref(&back));
    // RFC 4861 §7.3.3: sent to while stale, A is asked after five seconds whether it is there.
    let asked = packets(&gateway.tick(6));
    let (_, ip, message) = asked.iter().find(|(link, ..)| *link == LAN).unwrap();
    assert_eq!((ip.destination_address, message[0]), (A6, 135));
    let head = NeighborAdvertisementFields {
        kind: Icmpv6Type::NEIGHBOR_ADVERTISEMENT,
        code: 0,
        checksum: 0,
        router: false,
        solicited: true,
        override_flag: false,
        target_address: A6,
    };
    let ends = (A6, ip.source_address);
    let answer = icmp(ends, head.emit().to_vec());
    gateway.receive(LAN, &[frame(LAN_MAC, A_MAC, IpProtocol::ICMPV6, ends, 255, &answer)]);
    for host in 0..5000_u16 {
        let from = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 1, host);
        let [high, low] = host.to_be_bytes();
        let mac = MacAddress([2, 1, 0, 0, high, low]);
        gateway.receive(LAN, &[solicitation(mac, from, LAN6)]);
    }
    let expected = frame(A_MAC, LAN_MAC, IpProtocol(253), (B6, A6), 63, b"x");
    assert_eq!(gateway.receive(WAN, &[back]), [(LAN, expected)]);
}

/// Malformed packets are dropped by cause.
#[test]
fn malformed_packets_are_counted_by_cause() {
    let good = frame(LAN_MAC, A_MAC, IpProtocol(253), (A6, B6), 64, b"xyz");
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x77);
    let mut version = good.clone();
    version[14] = 0x45;
    let cases: [(&str, Vec<u8>); 6] = [
        ("truncated", good[..14 + 39].to_vec()),
        ("truncated", good[..14 + 42].to_vec()),
        ("bad-version", version),
        ("bad-source", frame(LAN_MAC, A_MAC, IpProtocol(253), (group, B6), 64, b"x")),
        (
            "bad-destination",
            frame(LAN_MAC, A_MAC, IpProtocol(253), (A6, Ipv6Addr::UNSPECIFIED), 64, b"x"),
        ),
        ("beyond-scope", frame(LAN_MAC, A_MAC, IpProtocol(253), (link_local(9), B6), 64, b"x")),
    ];
    for (reason, octets) in cases {
        let mut gateway = gateway();
        let reason = Reason(match reason {
            "truncated" => "truncated",
            "bad-version" => "bad-version",
            "bad-source" => "bad-source",
            "bad-destination" => "bad-destination",
            _ => "beyond-scope",
        });
        assert_eq!(gateway.receive(LAN, &[octets]), [], "{reason:?}");
        let node = gateway.plan.layers().find(|&(_, name, _)| name == "ipv6").unwrap().0;
        assert_eq!(gateway.graph.drops_of(node).unwrap().get(reason), 1, "{reason:?}");
    }
}
