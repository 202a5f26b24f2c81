//! MLD as a host: what routers are told, octet by octet (RFC 3810, RFC 2710, RFC 3590).
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail loudly"
)]

mod common;

use common::{Frame, Gateway, LAN, LAN_MAC, ether, hex, interface};
use gatewright_stack::{Address, AddressState, SuiteLink, UdpSocket};
use gatewright_wire::{
    Checksum, EtherType, IpProtocol, MacAddress,
    ipv6::{Ipv6, Ipv6Fields},
};
use proptest::prelude::*;
use std::net::Ipv6Addr;

const ROUTER: (MacAddress, Ipv6Addr) =
    (MacAddress([2, 0, 0, 0, 0, 0xfe]), Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xfe));
const OWN: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const GROUP: Ipv6Addr = Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 3);
const OTHER: Ipv6Addr = Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 4);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// The group as hexadecimal digits, and the one of the address [`OWN`].
const GROUP_HEX: &str = "ff15 0000 0000 0000 0000 0000 0000 0003";
const OTHER_HEX: &str = "ff15 0000 0000 0000 0000 0000 0000 0004";
const SOLICITED_HEX: &str = "ff02 0000 0000 0000 0000 0001 ff00 0001";
const ANY_HEX: &str = "0000 0000 0000 0000 0000 0000 0000 0000";

/// A host on one link whose link-local address is in the state `state`.
fn host(state: AddressState) -> (Gateway, UdpSocket) {
    let mut gateway = Gateway::of(&[SuiteLink::Ethernet(LAN)], |_| {});
    let own = Address { ip: OWN.into(), prefix_len: 64, state };
    let mut lan = interface(LAN, LAN_MAC, vec![own]);
    lan.forwarding = false;
    gateway.host.add_interface(lan).unwrap();
    let socket = gateway.sockets.bind("[::]:5000".parse().unwrap()).unwrap();
    (gateway, socket)
}

/// The host when it has told of its own address's group, with `groups` joined and told.
fn member(groups: &[Ipv6Addr]) -> (Gateway, UdpSocket) {
    let (mut gateway, socket) = host(AddressState::Preferred);
    for &group in groups {
        socket.join_multicast(group.into(), LAN).unwrap();
    }
    gateway.tick(10);
    (gateway, socket)
}

type Told = (Ipv6Addr, Vec<u8>);

/// The messages among what was sent: source, destination, and octets without their checksum. Each
/// is sent as RFC 3810 §5 demands: with one hop, a router alert, to the group's own station
/// address, and with a right checksum.
fn told_from(frames: &[Frame]) -> Vec<(Ipv6Addr, Told)> {
    let mld = frames.iter().filter(|(_, frame)| frame[12..14] == [0x86, 0xdd] && frame[20] == 0);
    mld.map(|(link, frame)| {
        let (ip, rest) = Ipv6::split(&frame[14..]).unwrap();
        // RFC 2711 §2.1 before next header 58; RFC 8200 §4.2 pads it with two octets.
        assert_eq!((*link, &rest[..8]), (LAN, &hex("3a00 05020000 0100")[..]));
        assert_eq!((ip.hop_limit(), usize::from(ip.payload_length())), (1, rest.len()));
        let (from, to) = (ip.source_address(), ip.destination_address());
        assert_eq!(frame[..2], [0x33, 0x33]);
        assert_eq!(frame[2..6], to.octets()[12..]);
        let mut message = rest[8..].to_vec();
        assert!(sum(from, to, &message).is_valid());
        message[2..4].fill(0);
        (from, (to, message))
    })
    .collect()
}

fn told(frames: &[Frame]) -> Vec<Told> {
    let from_own = |(from, told)| {
        assert_eq!(from, OWN);
        told
    };
    told_from(frames).into_iter().map(from_own).collect()
}

fn sum(from: Ipv6Addr, to: Ipv6Addr, message: &[u8]) -> Checksum {
    let len = u32::try_from(message.len()).unwrap();
    let mut sum = Checksum::pseudo_ipv6(from, to, IpProtocol::ICMPV6, len);
    sum.add(message);
    sum
}

/// A message of another station on the link, its checksum filled in.
fn message(to: Ipv6Addr, octets: &str) -> Vec<u8> {
    message_of(to, hex(octets), |_| {})
}

fn message_of(to: Ipv6Addr, mut octets: Vec<u8>, change: impl Fn(&mut Ipv6Fields)) -> Vec<u8> {
    let len = u16::try_from(octets.len() + 8).unwrap();
    let mut ip = Ipv6Fields::new(IpProtocol::HOP_BY_HOP, ROUTER.1, to, len);
    ip.hop_limit = 1;
    change(&mut ip);
    let checksum = sum(ip.source_address, to, &octets).finish().to_be_bytes();
    octets[2..4].copy_from_slice(&checksum);
    let packet = [&ip.emit()[..], &hex("3a00 05020000 0100"), &octets].concat();
    let [.., a, b, c, d] = to.octets();
    ether(MacAddress([0x33, 0x33, a, b, c, d]), ROUTER.0, EtherType::IPV6, &packet)
}

/// A report of version 2 with `records`.
fn v2(records: &str) -> Told {
    (Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16), hex(&format!("8f00 0000 0000 {records}")))
}

/// RFC 3810 §6.1: a change is told at once, and once more within a second.
#[test]
fn joining_and_leaving_is_told_twice() {
    let (mut gateway, socket) = member(&[]);
    socket.join_multicast(GROUP.into(), LAN).unwrap();
    let join = v2(&format!("0001 04 00 0000 {GROUP_HEX}"));
    assert_eq!(told(&gateway.tick(0)), std::slice::from_ref(&join));
    assert_eq!(told(&gateway.tick(5)), [join]);
    socket.leave_multicast(GROUP.into(), LAN).unwrap();
    let leave = v2(&format!("0001 03 00 0000 {GROUP_HEX}"));
    assert_eq!(told(&gateway.tick(5)), [leave.clone(), leave]);
    drop(socket);
    assert!(told(&gateway.tick(100)).is_empty());
    assert!(gateway.is_clean());
}

/// RFC 4861 §7.2.1: the group of an own address is joined; RFC 3590 §4: from the unspecified
/// address until there is one to report from, and again then.
#[test]
fn the_group_of_an_own_address_is_told_before_and_after_it_is_checked() {
    let (mut gateway, _socket) = host(AddressState::Tentative);
    let join = v2(&format!("0001 04 00 0000 {SOLICITED_HEX}"));
    let nowhere = (Ipv6Addr::UNSPECIFIED, join.clone());
    assert_eq!(told_from(&gateway.tick(5)), [nowhere.clone(), nowhere]);
    gateway.host.change_interface(LAN, |lan| lan.addresses[0].state = AddressState::Preferred);
    assert_eq!(told(&gateway.tick(5)), [join.clone(), join]);
}

/// RFC 3810 §6: everyone listens to all nodes, and groups of the host itself stay there.
#[test]
fn some_groups_are_never_told() {
    let (mut gateway, socket) = member(&[]);
    for group in [ALL_NODES, "ff01::5".parse().unwrap(), "ff10::5".parse().unwrap()] {
        socket.join_multicast(group.into(), LAN).unwrap();
    }
    assert!(told(&gateway.tick(100)).is_empty());
}

/// RFC 3810 §6.2: within the time that the query gives, here 10 s and by its code 32,768 ms.
#[test]
fn a_query_is_answered() {
    let (mut gateway, _socket) = member(&[GROUP, OTHER]);
    let one = v2(&format!("0001 02 00 0000 {OTHER_HEX}"));
    for (to, octets) in [
        (OTHER, format!("8200 0000 2710 0000 {OTHER_HEX} 02 7d 0000")),
        (ALL_NODES, format!("8200 0000 8000 0000 {OTHER_HEX} 02 7d 0000")),
        // About one source of the group.
        (OTHER, format!("8200 0000 2710 0000 {OTHER_HEX} 02 7d 0001 fe80 {:028}", 7)),
    ] {
        assert!(gateway.receive(LAN, &[message(to, &octets)]).is_empty(), "not at once");
        assert_eq!(told(&gateway.tick(33)), std::slice::from_ref(&one), "{octets}");
        assert!(told(&gateway.tick(100)).is_empty());
    }
    gateway
        .receive(LAN, &[message(ALL_NODES, &format!("8200 0000 2710 0000 {ANY_HEX} 02 7d 0000"))]);
    let answers = told(&gateway.tick(10));
    let [(to, answer)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!((*to, &answer[..8]), (v2("").0, &hex("8f00 0000 0000 0003")[..]));
    let mut records: Vec<&[u8]> = answer[8..].chunks(20).collect();
    records.sort_unstable();
    let expected =
        [SOLICITED_HEX, GROUP_HEX, OTHER_HEX].map(|group| hex(&format!("02000000 {group}")));
    assert_eq!(records, expected);
    let unknown = format!("8200 0000 2710 0000 ff15 {:028} 02 7d 0000", 9);
    gateway.receive(LAN, &[message(ALL_NODES, &unknown)]);
    assert!(told(&gateway.tick(100)).is_empty(), "a group that is not joined");
}

/// RFC 3810 §8.2.1: with a router of version 1 its messages are spoken (RFC 2710 §3, §4).
#[test]
fn older_routers_are_told_in_their_version() {
    let (mut gateway, socket) = member(&[GROUP]);
    let query = message(ALL_NODES, &format!("8200 0000 2710 0000 {ANY_HEX}"));
    let report = (GROUP, hex(&format!("8300 0000 0000 0000 {GROUP_HEX}")));
    let of_group =
        |all: Vec<Told>| all.into_iter().filter(|(to, _)| *to == GROUP).collect::<Vec<_>>();
    gateway.receive(LAN, std::slice::from_ref(&query));
    let answers = told(&gateway.tick(11));
    assert_eq!(answers.len(), 2, "the group, and the own address's");
    assert_eq!(of_group(answers), std::slice::from_ref(&report));
    // What another member tells need not be told again.
    let others = message(GROUP, &format!("8300 0000 0000 0000 {GROUP_HEX}"));
    gateway.receive(LAN, &[query, others]);
    assert!(of_group(told(&gateway.tick(11))).is_empty());
    socket.leave_multicast(GROUP.into(), LAN).unwrap();
    let done = (ALL_ROUTERS, hex(&format!("8400 0000 0000 0000 {GROUP_HEX}")));
    assert_eq!(told(&gateway.tick(30)), [done.clone(), done]);
    socket.join_multicast(GROUP.into(), LAN).unwrap();
    assert_eq!(told(&gateway.tick(30)), [report.clone(), report]);
    gateway.tick(300);
    socket.join_multicast(OTHER.into(), LAN).unwrap();
    assert_eq!(told(&gateway.tick(5))[0].0, v2("").0, "the old router is gone");
}

/// The frame with its router alert made six octets of padding.
fn without_alert(frame: &[u8]) -> Vec<u8> {
    let at = 14 + Ipv6::LEN + 2;
    [&frame[..at], &hex("0104 00000000"), &frame[at + 6..]].concat()
}

#[test]
fn what_is_wrong_is_dropped_by_cause() {
    let (mut gateway, _socket) = member(&[]);
    let query = hex(&format!("8200 0000 2710 0000 {ANY_HEX} 02 7d 0000"));
    let frames = [
        message_of(ALL_NODES, query.clone(), |ip| ip.hop_limit = 64),
        message_of(ALL_NODES, query.clone(), |ip| {
            ip.source_address = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
        }),
        message_of(ALL_NODES, query[..23].to_vec(), |_| {}),
        message_of(ALL_NODES, query[..26].to_vec(), |_| {}),
        message(ALL_NODES, &format!("8400 0000 0000 0000 {GROUP_HEX}")),
        // A hop-by-hop header with padding in the alert's place (RFC 3810 §6.2).
        without_alert(&message_of(ALL_NODES, query, |_| {})),
    ];
    assert!(gateway.receive(LAN, &frames).is_empty());
    let mut drops = gateway.drops();
    drops.retain(|(layer, ..)| *layer == "mld");
    drops.sort_unstable();
    let expected =
        [("mld", "invalid-message", 3), ("mld", "truncated", 2), ("mld", "unhandled", 1)];
    assert_eq!(drops, expected);
    assert!(told(&gateway.tick(100)).is_empty());
}

proptest! {
    /// Whatever routers say, nothing panics and every change is told in the end.
    #[test]
    fn any_message_is_survived(
        messages in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 4..60), any::<bool>(), 0_u64..20), 0..30),
    ) {
        let (mut gateway, socket) = member(&[GROUP]);
        for (mut octets, join, wait) in messages {
            octets[0] = [130, 131, 132, 143][usize::from(octets[0]) % 4];
            octets[2..4].fill(0);
            gateway.receive(LAN, &[message_of(ALL_NODES, octets, |_| {})]);
            if join {
                socket.join_multicast(OTHER.into(), LAN).unwrap();
            } else {
                socket.leave_multicast(OTHER.into(), LAN).unwrap();
            }
            gateway.tick(wait);
        }
        gateway.tick(300);
        socket.join_multicast("ff15::9".parse::<Ipv6Addr>().unwrap().into(), LAN).unwrap();
        prop_assert_eq!(told(&gateway.tick(5)).len(), 2);
        prop_assert!(gateway.is_clean());
    }
}
