//! IPv4 over Ethernet between two links, as host and as router.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

mod common;

use common::{
    A, B, Frame, Gateway, LAN, LAN_IP, LAN_MAC, WAN, WAN_IP, WAN_MAC, ether, from_a, hex, ipv4,
};
use gatewright_packet::LinkIndex;
use gatewright_stack::Route;
use gatewright_wire::{
    Checksum, EtherType, IpProtocol, MacAddress, checksum,
    icmpv4::{EchoFields, Icmpv4, Icmpv4Type},
    ipv4::{Ipv4, Ipv4Fields},
};
use proptest::prelude::*;
use std::net::Ipv4Addr;

const UDP: IpProtocol = IpProtocol::UDP;
const ICMP: IpProtocol = IpProtocol::ICMPV4;

fn echo(kind: Icmpv4Type, data: &[u8]) -> Vec<u8> {
    let fields = EchoFields { kind, code: 0, checksum: 0, identifier: 7, sequence_number: 1 };
    let mut message = [&fields.emit()[..], data].concat();
    let sum = checksum::of(&message).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    message
}

/// A packet cut by the test itself, as another host would.
fn cut(packet: &[u8], piece: usize) -> Vec<Vec<u8>> {
    let (ip, payload) = Ipv4::split(packet).unwrap();
    let pieces = payload.chunks(piece);
    let count = pieces.len();
    pieces
        .enumerate()
        .map(|(index, octets)| {
            let (from, to) = (ip.source_address(), ip.destination_address());
            ipv4(from, to, ip.protocol(), octets, |fields| {
                fields.identification = 77;
                fields.flags = if index + 1 < count { Ipv4::MORE_FRAGMENTS } else { 0 };
                fields.fragment_offset = u16::try_from(index * piece / 8).unwrap();
            })
        })
        .collect()
}

/// Puts fragments together that came in order; checks each header.
fn join(frames: &[Frame], mtu: usize) -> Vec<u8> {
    let mut whole: Vec<u8> = Vec::new();
    for (index, (_, frame)) in frames.iter().enumerate() {
        assert!(frame.len() <= mtu + 14);
        let (ip, payload) = Ipv4::split(&frame[14..]).unwrap();
        let (options, payload) = ip.options(payload).unwrap();
        assert!(ip.is_checksum_valid(options));
        assert_eq!(usize::from(ip.total_length()), frame.len() - 14);
        assert_eq!(usize::from(ip.fragment_offset()) * 8, whole.len());
        assert_eq!(ip.more_fragments(), index + 1 < frames.len());
        whole.extend(payload);
    }
    whole
}

#[test]
fn a_ping_of_any_size_is_answered() {
    for len in [0, 1, 56, 1472, 1473, 9000, 65_507] {
        let mut gateway = Gateway::new();
        let data: Vec<u8> = (0..=250).cycle().take(len).collect();
        let request = ipv4(A.1, LAN_IP, ICMP, &echo(Icmpv4Type::ECHO_REQUEST, &data), |_| {});
        let frames: Vec<_> = cut(&request, 1480).iter().map(|piece| from_a(piece)).collect();
        let sent = gateway.receive(LAN, &frames);
        assert_eq!(sent.len(), frames.len(), "{len}: {:?}", gateway.drops());
        for (_, frame) in &sent {
            assert_eq!(frame[..14], ether(A.0, LAN_MAC, EtherType::IPV4, b""));
            let (ip, _) = Ipv4::split(&frame[14..]).unwrap();
            assert_eq!((ip.source_address(), ip.destination_address()), (LAN_IP, A.1));
        }
        assert_eq!(join(&sent, 1500), echo(Icmpv4Type::ECHO_REPLY, &data), "{len}");
        drop(sent);
        assert!(gateway.is_clean(), "{len}");
    }
}

#[test]
fn a_packet_is_forwarded_with_one_hop_less() {
    let mut gateway = Gateway::new();
    let packet = ipv4(A.1, B.1, UDP, b"payload", |_| {});
    // The link pads short frames: what is behind the packet's end is not the packet.
    let padded = [from_a(&packet), vec![0; 20]].concat();
    let sent = gateway.receive(LAN, &[padded]);
    let expected = ipv4(A.1, B.1, UDP, b"payload", |ip| ip.time_to_live = 63);
    assert_eq!(sent, [(WAN, ether(B.0, WAN_MAC, EtherType::IPV4, &expected))]);
    let back = ether(WAN_MAC, B.0, EtherType::IPV4, &ipv4(B.1, A.1, UDP, b"back", |_| {}));
    assert_eq!(gateway.receive(WAN, &[back])[0].0, LAN);
}

#[test]
fn a_packet_goes_by_the_longest_route() {
    let mut gateway = Gateway::new();
    let to = |text: &str| text.parse::<Ipv4Addr>().unwrap();
    let prefix = |text: &str, len| gatewright_tables_prefix(to(text), len);
    let via = Route::Via { link: WAN, gateway: B.1.into() };
    gateway.host.add_route(prefix("0.0.0.0", 0), via).unwrap();
    gateway.host.add_route(prefix("172.16.0.0", 12), Route::Blackhole).unwrap();
    gateway.host.add_route(prefix("172.16.5.0", 24), via).unwrap();
    gateway.host.add_route(prefix("192.168.0.0", 16), Route::Prohibited).unwrap();
    for (destination, sent_to) in [
        ("8.8.8.8", Some((WAN, B.0))),
        ("172.17.0.1", None),
        ("172.16.5.1", Some((WAN, B.0))),
        ("192.168.7.7", Some((LAN, A.0))), // The error.
    ] {
        let packet = ipv4(A.1, to(destination), UDP, b"payload", |_| {});
        let sent = gateway.receive(LAN, &[from_a(&packet)]);
        let seen = sent.first().map(|(link, frame)| (*link, frame[..6].to_vec()));
        let expected = sent_to.map(|(link, mac)| (link, mac.octets().to_vec()));
        assert_eq!(seen, expected, "{destination}");
    }
}

fn gatewright_tables_prefix(address: Ipv4Addr, len: u8) -> gatewright_tables::Prefix<Ipv4Addr> {
    gatewright_tables::Prefix::new(address, len).unwrap()
}

type Change = fn(&mut Ipv4Fields);

/// Malformed and hostile packets, each dropped under its own name (RFC 1812 §5.2.2, §5.3.7).
#[test]
fn what_is_wrong_is_dropped_by_cause() {
    let any = Ipv4Addr::UNSPECIFIED;
    let cases: [(&str, Ipv4Addr, Ipv4Addr, Change); 14] = [
        ("bad-length", A.1, B.1, |ip| ip.ihl = 4),
        ("bad-length", A.1, B.1, |ip| ip.total_length = 19),
        ("truncated", A.1, B.1, |ip| ip.total_length = 28),
        ("martian", any, B.1, |_| {}),
        ("martian", Ipv4Addr::LOCALHOST, B.1, |_| {}),
        ("martian", Ipv4Addr::new(224, 0, 0, 5), B.1, |_| {}),
        ("martian", Ipv4Addr::BROADCAST, B.1, |_| {}),
        ("martian", A.1, Ipv4Addr::LOCALHOST, |_| {}),
        ("martian", A.1, any, |_| {}),
        ("martian", A.1, Ipv4Addr::new(250, 0, 0, 1), |_| {}),
        ("martian", Ipv4Addr::new(169, 254, 1, 1), B.1, |_| {}),
        ("directed-broadcast", A.1, Ipv4Addr::new(10, 0, 1, 255), |_| {}),
        ("not-joined", A.1, Ipv4Addr::new(239, 1, 1, 1), |_| {}),
        ("bad-checksum", A.1, B.1, |ip| ip.header_checksum = 1),
    ];
    for (reason, from, to, change) in cases {
        let mut gateway = Gateway::new();
        let mut fields = Ipv4Fields::new(UDP, from, to, 27);
        change(&mut fields);
        let header =
            if reason == "bad-checksum" { fields.emit() } else { fields.emit_with_checksum() };
        let sent = gateway.receive(LAN, &[from_a(&[&header[..], b"payload"].concat())]);
        assert!(sent.is_empty(), "{reason}");
        assert_eq!(gateway.drops(), [("ipv4", reason, 1)], "{reason} {from} {to}");
    }
    let mut gateway = Gateway::new();
    let mut version = ipv4(A.1, B.1, UDP, b"", |_| {});
    version[0] = 0x65;
    let broadcast =
        ether(MacAddress::BROADCAST, A.0, EtherType::IPV4, &ipv4(A.1, B.1, UDP, b"", |_| {}));
    let other = ether(B.0, A.0, EtherType::IPV4, &ipv4(A.1, B.1, UDP, b"", |_| {}));
    let group = ether(LAN_MAC, MacAddress([1, 0, 0, 0, 0, 1]), EtherType::IPV4, b"");
    let llc = ether(LAN_MAC, A.0, EtherType(38), b"");
    let frames = [from_a(&version), from_a(b"E"), broadcast, other, group, llc, vec![0; 13]];
    assert!(gateway.receive(LAN, &frames).is_empty());
    let expected = [
        ("ethernet", "other-station", 1),
        ("ethernet", "bad-station", 1),
        ("ethernet", "not-ethernet-ii", 1),
        ("ethernet", "truncated", 1),
        ("ipv4", "bad-version", 1),
        ("ipv4", "truncated", 1),
        ("ipv4", "link-broadcast", 1),
    ];
    assert_eq!(gateway.drops(), expected);
    assert!(gateway.is_clean());
}

/// Type, code, the word behind the checksum, and the source of an error.
type Told = (u8, u8, [u8; 4], Ipv4Addr);

/// What an ICMP error is about: type, code, the word behind the checksum, its source.
fn error_in(frame: &Frame) -> (u8, u8, [u8; 4], Ipv4Addr, Vec<u8>) {
    let (ip, message) = Ipv4::split(&frame.1[14..]).unwrap();
    assert!(ip.is_checksum_valid(&[]));
    assert_eq!(ip.destination_address(), A.1);
    assert_eq!(checksum::of(message), 0, "the message's own checksum");
    let (icmp, original) = Icmpv4::split(message).unwrap();
    let [a, b, c, d] = icmp.rest_of_header();
    (icmp.kind().0, icmp.code(), [a, b, c, d], ip.source_address(), original.to_vec())
}

#[test]
fn errors_are_told_to_the_source() {
    let nowhere = Ipv4Addr::new(203, 0, 113, 1);
    let small = LinkIndex(1);
    let big = vec![7; 1000];
    let cases: [(&str, Vec<u8>, Told); 6] = [
        (
            "hop limit",
            ipv4(A.1, B.1, UDP, b"12345678", |ip| ip.time_to_live = 1),
            (11, 0, [0; 4], LAN_IP),
        ),
        ("no route", ipv4(A.1, nowhere, UDP, b"12345678", |_| {}), (3, 0, [0; 4], LAN_IP)),
        ("protocol", ipv4(A.1, WAN_IP, IpProtocol(253), b"1", |_| {}), (3, 2, [0; 4], WAN_IP)),
        (
            "port",
            ipv4(A.1, LAN_IP, UDP, &hex("0001 2345 0008 0000"), |_| {}),
            (3, 3, [0; 4], LAN_IP),
        ),
        (
            "too big",
            ipv4(A.1, B.1, UDP, &big, |ip| ip.flags = Ipv4::DONT_FRAGMENT),
            (3, 4, [0, 0, 2, 0x40], LAN_IP),
        ),
        (
            "bad option",
            {
                let options = hex("07 09 04 00");
                let mut fields = Ipv4Fields::new(UDP, A.1, B.1, 24);
                fields.ihl = 6;
                [&fields.emit_with_options(&options)[..], &options].concat()
            },
            (12, 0, [21, 0, 0, 0], LAN_IP),
        ),
    ];
    for (name, packet, expected) in cases {
        let mut gateway = Gateway::new();
        gateway.host.change_interface(small, |interface| interface.mtu = 576);
        let sent = gateway.receive(LAN, &[from_a(&packet)]);
        assert_eq!(sent.len(), 1, "{name}: {:?}", gateway.drops());
        let (kind, code, word, source, original) = error_in(&sent[0]);
        assert_eq!((kind, code, word, source), expected, "{name}");
        assert!(sent[0].1.len() <= 14 + 576, "{name}: RFC 1812 §4.3.2.3");
        assert_eq!(original, packet[..packet.len().min(548)], "{name}: the packet as it was sent");
    }
}

/// RFC 1812 §4.3.2.7: about what no error is sent.
#[test]
fn no_error_about_what_must_not_have_one() {
    let error = [3, 0, 0xfc, 0xff, 0, 0, 0, 0];
    let nowhere = Ipv4Addr::new(203, 0, 113, 1);
    let cases: [(&str, Vec<u8>); 3] = [
        ("an error", ipv4(A.1, nowhere, ICMP, &error, |_| {})),
        ("a later fragment", ipv4(A.1, nowhere, UDP, b"12345678", |ip| ip.fragment_offset = 1)),
        ("an empty ICMP message", ipv4(A.1, nowhere, ICMP, b"", |_| {})),
    ];
    for (name, packet) in cases {
        let mut gateway = Gateway::new();
        assert!(gateway.receive(LAN, &[from_a(&packet)]).is_empty(), "{name}");
        assert_eq!(gateway.drops(), [("icmpv4", "no-error-about", 1)], "{name}");
    }
    let mut gateway = Gateway::new();
    let to_all = ipv4(A.1, Ipv4Addr::new(10, 0, 0, 255), IpProtocol(253), b"", |_| {});
    let frame = ether(MacAddress::BROADCAST, A.0, EtherType::IPV4, &to_all);
    assert!(gateway.receive(LAN, &[frame]).is_empty(), "a broadcast");
}

#[test]
fn errors_are_rate_limited() {
    let mut gateway = Gateway::new();
    let packet = ipv4(A.1, B.1, UDP, b"12345678", |ip| ip.time_to_live = 1);
    let sent = gateway.receive(LAN, &vec![from_a(&packet); 1000]);
    assert_eq!(sent.len(), 50);
    assert_eq!(gateway.drops(), [("icmpv4", "rate-limited", 950)]);
    gateway.tick(1);
    assert_eq!(gateway.receive(LAN, &[from_a(&packet)]).len(), 1);
}

#[test]
fn a_broadcast_or_group_echo_is_not_answered() {
    let mut gateway = Gateway::new();
    let request = echo(Icmpv4Type::ECHO_REQUEST, b"smurf");
    for to in [Ipv4Addr::new(10, 0, 0, 255), Ipv4Addr::BROADCAST, Ipv4Addr::new(224, 0, 0, 1)] {
        let frame = ether(
            MacAddress::BROADCAST,
            A.0,
            EtherType::IPV4,
            &ipv4(A.1, to, ICMP, &request, |_| {}),
        );
        assert!(gateway.receive(LAN, &[frame]).is_empty(), "{to}");
    }
    assert_eq!(gateway.drops(), [("icmpv4", "broadcast-echo", 3)]);
}

#[test]
fn a_host_does_not_forward() {
    let mut gateway = Gateway::new();
    gateway.host.change_interface(LAN, |interface| interface.forwarding = false);
    assert!(gateway.receive(LAN, &[from_a(&ipv4(A.1, B.1, UDP, b"", |_| {}))]).is_empty());
    assert_eq!(gateway.drops(), [("ipv4", "not-forwarding", 1)]);
}

#[test]
fn source_routes_are_refused_and_routes_recorded() {
    let with = |options: &[u8]| {
        let mut fields = Ipv4Fields::new(UDP, A.1, B.1, u16::try_from(20 + options.len()).unwrap());
        fields.ihl = u8::try_from(5 + options.len() / 4).unwrap();
        from_a(&[&fields.emit_with_options(options)[..], options].concat())
    };
    let mut gateway = Gateway::new();
    let refused = [with(&hex("83 07 04 0a000102 00")), with(&hex("89 07 04 0a000102 00"))];
    assert!(gateway.receive(LAN, &refused).is_empty());
    assert_eq!(gateway.drops(), [("ipv4", "source-route", 2)]);
    // RFC 791 §3.1: the pointer stands on the next free place, and a full list is let be.
    for (before, after) in [
        ("07 0b 04 00000000 00000000 00", "07 0b 08 0a000101 00000000 00"),
        ("01 07 07 08 01020304", "01 07 07 08 01020304"),
        ("94 04 0000", "94 04 0000"),
    ] {
        let sent = gateway.receive(LAN, &[with(&hex(before))]);
        let (ip, rest) = Ipv4::split(&sent[0].1[14..]).unwrap();
        let (options, _) = ip.options(rest).unwrap();
        assert_eq!(options, hex(after), "{before}");
        assert!(ip.is_checksum_valid(options), "{before}");
    }
}

/// A datagram forwarded to a link of a smaller MTU, with options of which one is copied.
#[test]
fn a_router_fragments_what_may_be_fragmented() {
    let mut gateway = Gateway::new();
    gateway.host.change_interface(WAN, |interface| interface.mtu = 576);
    let payload: Vec<u8> = (0..=255).cycle().take(1400).collect();
    let options = hex("94 04 0000 44 04 05 00");
    let mut fields = Ipv4Fields::new(UDP, A.1, B.1, 1428);
    fields.ihl = 7;
    fields.identification = 0x1234;
    let header = fields.emit_with_options(&options);
    let sent = gateway.receive(LAN, &[from_a(&[&header[..], &options, &payload].concat())]);
    assert_eq!(join(&sent, 576), payload);
    let lens: Vec<_> =
        sent.iter().map(|(_, frame)| Ipv4::split(&frame[14..]).unwrap().0.ihl()).collect();
    assert_eq!(lens, [7, 6, 6], "only the router alert is copied");
    assert!(sent.iter().all(|(_, frame)| frame[18..20] == [0x12, 0x34] && frame[22] == 63));
    assert!(gateway.is_clean());
}

/// A fragment can be cut again, and the pieces still fit (RFC 791 §3.2).
#[test]
fn fragments_are_cut_again() {
    let mut gateway = Gateway::new();
    gateway.host.change_interface(WAN, |interface| interface.mtu = 296);
    let payload: Vec<u8> = (0..=255).cycle().take(2500).collect();
    let pieces: Vec<_> =
        cut(&ipv4(A.1, B.1, UDP, &payload, |_| {}), 1200).iter().map(|p| from_a(p)).collect();
    let sent = gateway.receive(LAN, &pieces);
    assert_eq!(join(&sent, 296), payload);
}

/// A UDP datagram whose sender left the checksum to its device, cut on the way.
#[test]
fn a_partial_checksum_is_completed_before_the_cut() {
    let mut gateway = Gateway::new();
    gateway.host.change_interface(WAN, |interface| interface.mtu = 576);
    let data = vec![0x5a; 1000];
    let pseudo = Checksum::pseudo_ipv4(A.1, B.1, UDP, 1008);
    let udp = |sum: u16| [&hex("1000 2000 03f0")[..], &sum.to_be_bytes(), &data].concat();
    let mut whole = pseudo;
    whole.add(&udp(0));
    let expected = udp(whole.finish_udp());
    let frame = from_a(&ipv4(A.1, B.1, UDP, &udp(pseudo.sum()), |_| {}));
    let mut sent = Vec::new();
    let mut batch = gatewright_packet::Batch::default();
    let mut packet = gateway.graph.frames().packet_of(&frame).unwrap();
    packet.meta_mut().checksum = gatewright_packet::Checksum::Partial;
    batch.push(packet).unwrap();
    let mut exit = |link: LinkIndex, batch: &mut gatewright_packet::Batch| {
        sent.extend(batch.drain().map(|packet| (link, packet.octets().to_vec())));
    };
    gateway.graph.receive(LAN, &mut batch, gateway.now, &mut exit);
    assert_eq!(join(&sent, 576), expected);
}

#[test]
fn a_datagram_of_ours_gets_source_and_checksum_and_is_cut() {
    let mut gateway = Gateway::new();
    let any = Ipv4Addr::UNSPECIFIED;
    for (to, link, station, source) in [
        (A.1, LAN, A.0, LAN_IP),
        (B.1, WAN, B.0, WAN_IP),
        (Ipv4Addr::new(10, 0, 1, 255), WAN, MacAddress::BROADCAST, WAN_IP),
        (Ipv4Addr::new(239, 129, 2, 3), LAN, MacAddress([1, 0, 0x5e, 1, 2, 3]), LAN_IP),
    ] {
        let bound = if to.is_multicast() { LAN } else { LinkIndex::NONE };
        let sent = gateway.transmit(bound, &Ipv4Fields::new(UDP, any, to, 0).emit());
        let (ip, _) = Ipv4::split(&sent[0].1[14..]).unwrap();
        assert_eq!((sent[0].0, &sent[0].1[..6]), (link, &station.octets()[..]), "{to}");
        assert_eq!((ip.source_address(), ip.total_length()), (source, 20), "{to}");
        assert!(ip.is_checksum_valid(&[]));
    }
    let large = [&Ipv4Fields::new(UDP, any, A.1, 0).emit()[..], &[7; 1700]].concat();
    assert_eq!(join(&gateway.transmit(LinkIndex::NONE, &large), 1500), [7; 1700]);
    let loose = gateway.transmit(
        LinkIndex::NONE,
        &ipv4(LAN_IP, LAN_IP, ICMP, &echo(Icmpv4Type::ECHO_REQUEST, b""), |_| {}),
    );
    assert!(loose.is_empty(), "to ourselves it stays here");
}

/// Outcomes of lists of fragments of one datagram: start and length in octets, and whether more
/// follow. RFC 5722 §4: with an overlap the whole datagram is dropped, and what still comes of it.
#[test]
fn fragments_that_contradict_each_other_make_no_datagram() {
    type Piece = (usize, usize, bool);
    let whole = ipv4(A.1, LAN_IP, ICMP, &echo(Icmpv4Type::ECHO_REQUEST, &[7; 24]), |_| {});
    let payload = &whole[20..];
    let cases: [(&str, &[Piece], Option<&str>); 10] = [
        ("in order", &[(0, 8, true), (8, 8, true), (16, 16, false)], None),
        ("reversed", &[(16, 16, false), (8, 8, true), (0, 8, true)], None),
        ("repeated", &[(0, 8, true), (0, 8, true), (8, 24, false)], Some("fragment-repeated")),
        ("a hole", &[(0, 8, true), (16, 16, false)], Some("")),
        ("inside", &[(0, 16, true), (8, 8, true), (16, 16, false)], Some("fragment-overlap")),
        (
            "across",
            &[(8, 8, true), (0, 16, true), (0, 8, true), (16, 16, false)],
            Some("fragment-overlap"),
        ),
        ("behind the end", &[(0, 8, true), (8, 8, false), (16, 16, true)], Some("")),
        ("two ends", &[(8, 8, false), (8, 24, false), (0, 8, true)], Some("fragment-beyond-end")),
        ("odd length", &[(0, 9, true), (8, 24, false)], Some("bad-fragment")),
        ("beyond 65,535", &[(0, 8, true), (65_528, 24, false)], Some("fragment-beyond-end")),
    ];
    for (name, pieces, counted) in cases {
        let mut gateway = Gateway::new();
        let mut sent = Vec::new();
        for &(start, len, more) in pieces {
            let octets = if start > 100 { &payload[..len] } else { &payload[start..start + len] };
            let fragment = ipv4(A.1, LAN_IP, ICMP, octets, |ip| {
                ip.identification = 5;
                ip.fragment_offset = u16::try_from(start / 8).unwrap();
                ip.flags = u8::from(more);
            });
            sent.extend(gateway.receive(LAN, &[from_a(&fragment)]));
        }
        let answered = counted.is_none_or(|reason| reason == "fragment-repeated");
        assert_eq!(!sent.is_empty(), answered, "{name}: {:?}", gateway.drops());
        if let Some(reason) = counted.filter(|reason| !reason.is_empty()) {
            assert!(
                gateway.drops().iter().any(|drop| drop.1 == reason),
                "{name}: {:?}",
                gateway.drops()
            );
        }
        drop(sent);
        gateway.tick(120);
        assert!(gateway.is_clean(), "{name}");
    }
}

/// RFC 792: when fragments are missing, the source of the first is told.
#[test]
fn a_datagram_that_stays_incomplete_is_told() {
    let mut gateway = Gateway::new();
    let request = ipv4(A.1, LAN_IP, ICMP, &echo(Icmpv4Type::ECHO_REQUEST, &[7; 100]), |_| {});
    let pieces = cut(&request, 40);
    gateway.receive(LAN, &[from_a(&pieces[0]), from_a(&pieces[2])]);
    assert!(gateway.tick(59).iter().all(|(_, frame)| frame[23] != 1));
    let sent = gateway.tick(2);
    let (kind, code, _, source, original) = error_in(sent.last().unwrap());
    assert_eq!((kind, code, source), (11, 1, LAN_IP));
    assert_eq!(original, pieces[0]);
}

#[test]
fn a_flood_of_fragments_stays_inside_its_bounds() {
    let mut gateway = Gateway::new();
    let frames = gateway.graph.frames().capacity();
    for identification in 0..20_000_u16 {
        let fragment = ipv4(
            Ipv4Addr::from_bits(0x0a00_0003 + u32::from(identification) % 200),
            LAN_IP,
            UDP,
            &[0; 64],
            |ip| {
                ip.identification = identification;
                ip.flags = Ipv4::MORE_FRAGMENTS;
            },
        );
        gateway.receive(LAN, &[from_a(&fragment)]);
    }
    let left = gateway.graph.frames().available();
    assert!(left >= frames / 8 * 7, "frames are left for the living");
    let request = ipv4(A.1, LAN_IP, ICMP, &echo(Icmpv4Type::ECHO_REQUEST, &[1; 3000]), |_| {});
    let pieces: Vec<_> = cut(&request, 1480).iter().map(|p| from_a(p)).collect();
    assert_eq!(gateway.receive(LAN, &pieces).len(), 3, "an honest datagram still gets through");
    gateway.tick(120);
    assert!(gateway.is_clean());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Fragments in any order, repeated, and sent back in fragments by a link of any MTU.
    #[test]
    fn fragments_in_any_order_come_back_whole(
        data in prop::collection::vec(any::<u8>(), 0..8000),
        piece in 1_usize..185,
        mtu in 68_u32..1500,
        swaps in prop::collection::vec(any::<(usize, usize)>(), 0..50),
        repeated in any::<prop::sample::Index>(),
    ) {
        let mut gateway = Gateway::new();
        gateway.host.change_interface(LAN, |interface| interface.mtu = mtu);
        let request = ipv4(A.1, LAN_IP, ICMP, &echo(Icmpv4Type::ECHO_REQUEST, &data), |_| {});
        // Not more pieces than are kept of one datagram.
        let piece = (piece * 8).max((data.len() / 100).next_multiple_of(8));
        let mut frames: Vec<_> = cut(&request, piece).iter().map(|piece| from_a(piece)).collect();
        for (one, other) in swaps {
            let len = frames.len();
            frames.swap(one % len, other % len);
        }
        if frames.len() > 1 {
            let index = repeated.index(frames.len() - 1);
            frames.insert(index, frames[index].clone());
        }
        let sent = gateway.receive(LAN, &frames);
        let mtu = usize::try_from(mtu).unwrap();
        prop_assert_eq!(join(&sent, mtu), echo(Icmpv4Type::ECHO_REPLY, &data));
        prop_assert!(gateway.is_clean());
    }

    /// Whatever comes in, nothing panics and every chunk comes home.
    #[test]
    fn any_octets_are_survived(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 1..40),
        kinds in prop::collection::vec((0_usize..5, any::<u8>(), any::<u8>()), 1..40),
    ) {
        let mut gateway = Gateway::new();
        let frames: Vec<_> = frames.into_iter().zip(kinds.into_iter().cycle()).map(|(octets, (kind, a, b))| {
            match kind {
                0 => octets,
                1 => from_a(&octets),
                2 => ether(LAN_MAC, A.0, EtherType::ARP, &[&hex("0001 0800 0604 0001")[..], &octets].concat()),
                3 => from_a(&ipv4(A.1, LAN_IP, ICMP, &octets, |ip| { ip.fragment_offset = u16::from(a) % 4; ip.flags = b & 1; })),
                _ => {
                    let options: Vec<u8> = octets.iter().copied().chain([0; 4]).take(octets.len().min(40) / 4 * 4).collect();
                    let mut fields = Ipv4Fields::new(IpProtocol(a), A.1, if b < 128 { B.1 } else { LAN_IP }, 20 + u16::try_from(options.len()).unwrap());
                    fields.ihl = 5 + u8::try_from(options.len() / 4).unwrap();
                    from_a(&[&fields.emit_with_options(&options)[..], &options].concat())
                }
            }
        }).collect();
        gateway.receive(LAN, &frames);
        gateway.tick(200);
        prop_assert!(gateway.is_clean());
    }
}
