//! IGMP as a host: what routers are told, octet by octet (RFC 3376, RFC 2236, RFC 1112).
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

mod common;

use common::{Frame, Gateway, LAN, LAN_IP, ether, hex, ipv4};
use gatewright_stack::UdpSocket;
use gatewright_wire::{EtherType, IpProtocol, MacAddress, checksum, ipv4::Ipv4};
use proptest::prelude::*;
use std::net::Ipv4Addr;

const ROUTER: (MacAddress, Ipv4Addr) =
    (MacAddress([2, 0, 0, 0, 0, 0xfe]), Ipv4Addr::new(10, 0, 0, 254));
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const OTHER: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 4);

fn member(groups: &[Ipv4Addr]) -> (Gateway, UdpSocket) {
    let gateway = Gateway::cold();
    let socket = gateway.sockets.bind("0.0.0.0:5000".parse().unwrap()).unwrap();
    for &group in groups {
        socket.join_multicast(group.into(), LAN).unwrap();
    }
    (gateway, socket)
}

/// The messages among what was sent: destination and octets. Each is sent as RFC 3376 §4 demands:
/// with one hop, a router alert, and to the group's own station address.
fn told(frames: &[Frame]) -> Vec<(Ipv4Addr, Vec<u8>)> {
    let igmp = frames.iter().filter(|(_, frame)| frame[12..14] == [8, 0] && frame[23] == 2);
    igmp.map(|(link, frame)| {
        let (ip, rest) = Ipv4::split(&frame[14..]).unwrap();
        let (options, message) = ip.options(rest).unwrap();
        assert_eq!((*link, options), (LAN, &hex("94040000")[..]));
        assert_eq!((ip.time_to_live(), ip.source_address()), (1, LAN_IP));
        assert!(ip.is_checksum_valid(options));
        let to = ip.destination_address();
        assert_eq!(frame[..6], MacAddress::of_ipv4_multicast(to).octets());
        assert_eq!(checksum::of(message), 0);
        (to, message.to_vec())
    })
    .collect()
}

/// A message of the router, its checksum filled in.
fn query(to: Ipv4Addr, message: &str) -> Vec<u8> {
    query_of(to, hex(message))
}

fn query_of(to: Ipv4Addr, mut message: Vec<u8>) -> Vec<u8> {
    let sum = checksum::of(&message).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    let packet = ipv4(ROUTER.1, to, IpProtocol::IGMP, &message, |ip| ip.time_to_live = 1);
    ether(MacAddress::of_ipv4_multicast(to), ROUTER.0, EtherType::IPV4, &packet)
}

fn v3(records: &str) -> (Ipv4Addr, Vec<u8>) {
    (Ipv4Addr::new(224, 0, 0, 22), hex(records))
}

/// RFC 3376 §5.1: a change is told at once, and once more within a second. The first report is the
/// one that Linux sends when 239.1.2.3 is joined.
#[test]
fn joining_and_leaving_is_told_twice() {
    let (mut gateway, socket) = member(&[GROUP]);
    let join = v3("2200 e8f9 0000 0001 04 00 0000 ef010203");
    assert_eq!(told(&gateway.tick(0)), std::slice::from_ref(&join));
    assert_eq!(told(&gateway.tick(5)), [join]);
    socket.leave_multicast(GROUP.into(), LAN).unwrap();
    let leave = v3("2200 e9f9 0000 0001 03 00 0000 ef010203");
    assert_eq!(told(&gateway.tick(5)), [leave.clone(), leave]);
    drop(socket);
    assert!(told(&gateway.tick(100)).is_empty());
}

#[test]
fn a_group_that_two_sockets_share_is_left_with_the_second() {
    let (mut gateway, first) = member(&[GROUP]);
    let second = gateway.sockets.bind("0.0.0.0:5001".parse().unwrap()).unwrap();
    second.join_multicast(GROUP.into(), LAN).unwrap();
    assert_eq!(told(&gateway.tick(5)).len(), 2);
    drop(first);
    assert!(told(&gateway.tick(5)).is_empty());
    drop(second);
    assert_eq!(told(&gateway.tick(5)).len(), 2);
}

/// RFC 3376 §5.2: within the time that the query gives.
#[test]
fn a_query_is_answered() {
    let (mut gateway, _socket) = member(&[GROUP, OTHER]);
    gateway.tick(5);
    let all = Ipv4Addr::new(224, 0, 0, 1);
    let both = v3("2200 f7f2 0000 0002 02000000 ef010203 02000000 ef010204");
    let one = v3("2200 eaf8 0000 0001 02000000 ef010204");
    for (to, message, expected) in [
        (all, "1164 0000 00000000 02 7d 0000", both),
        (OTHER, "1164 0000 ef010204 02 7d 0000", one.clone()),
        // About one source of the group.
        (OTHER, "1164 0000 ef010204 02 7d 0001 0a000007", one),
    ] {
        assert!(gateway.receive(LAN, &[query(to, message)]).is_empty(), "not at once");
        assert_eq!(told(&gateway.tick(10)), [expected], "{message}");
        assert!(told(&gateway.tick(100)).is_empty());
    }
    let unknown = query(all, "1164 0000 ef050505 02 7d 0000");
    gateway.receive(LAN, &[unknown]);
    assert!(told(&gateway.tick(100)).is_empty(), "a group that is not joined");
}

/// RFC 2236 §3 and RFC 3376 §7: with an older router its version is spoken.
#[test]
fn older_routers_are_told_in_their_version() {
    let all = Ipv4Addr::new(224, 0, 0, 1);
    let (mut gateway, socket) = member(&[GROUP]);
    gateway.tick(5);
    gateway.receive(LAN, &[query(all, "1164 0000 00000000")]);
    let report = (GROUP, hex("1600 f8fa ef010203"));
    assert_eq!(told(&gateway.tick(11)), std::slice::from_ref(&report));
    // What another member tells need not be told again.
    gateway.receive(LAN, &[query(all, "1164 0000 00000000"), query(GROUP, "1600 0000 ef010203")]);
    assert!(told(&gateway.tick(11)).is_empty());
    socket.leave_multicast(GROUP.into(), LAN).unwrap();
    let leave = (Ipv4Addr::new(224, 0, 0, 2), hex("1700 f7fa ef010203"));
    assert_eq!(told(&gateway.tick(30)), [leave.clone(), leave]);
    // RFC 1112, appendix I: version 1 knows no leaving.
    gateway.receive(LAN, &[query(all, "1100 0000 00000000")]);
    socket.join_multicast(GROUP.into(), LAN).unwrap();
    let report = (GROUP, hex("1200 fcfa ef010203"));
    assert_eq!(told(&gateway.tick(30)), [report.clone(), report]);
    socket.leave_multicast(GROUP.into(), LAN).unwrap();
    assert!(told(&gateway.tick(30)).is_empty());
    gateway.tick(300);
    socket.join_multicast(GROUP.into(), LAN).unwrap();
    assert_eq!(told(&gateway.tick(5))[0].0, Ipv4Addr::new(224, 0, 0, 22), "the old router is gone");
}

#[test]
fn a_datagram_to_a_group_arrives_only_where_it_is_joined() {
    let (mut gateway, socket) = member(&[GROUP]);
    gateway.tick(5);
    socket.set_nonblocking(true);
    let udp = |to: Ipv4Addr| {
        let packet = ipv4(ROUTER.1, to, IpProtocol::UDP, &hex("1000 1388 000a 0000 6869"), |_| {});
        ether(MacAddress::of_ipv4_multicast(to), ROUTER.0, EtherType::IPV4, &packet)
    };
    gateway.receive(LAN, &[udp(GROUP), udp(OTHER)]);
    let mut buffer = [0; 10];
    assert_eq!(socket.recv(&mut buffer).unwrap(), 2);
    assert!(socket.recv(&mut buffer).is_err());
    assert!(gateway.drops().contains(&("ipv4", "not-joined", 1)));
}

#[test]
fn what_is_wrong_is_dropped_by_cause() {
    let (mut gateway, _socket) = member(&[GROUP]);
    gateway.tick(5);
    let all = Ipv4Addr::new(224, 0, 0, 1);
    let mut bad = query(all, "1164 0000 00000000");
    bad[36] ^= 1;
    let frames = [bad, query(all, "1164 0000"), query(all, "1300 0000 00000000")];
    assert!(gateway.receive(LAN, &frames).is_empty());
    let expected =
        [("igmp", "bad-checksum", 1), ("igmp", "truncated", 1), ("igmp", "unhandled", 1)];
    assert_eq!(gateway.drops(), expected);
}

/// RFC 3376 §7.1: a query of 9 to 11 octets is of no version. §4 and RFC 2236 §10: what comes over a
/// router, or from none of the link's hosts, was not said on this link.
#[test]
fn queries_of_no_version_and_from_elsewhere_are_ignored() {
    let (mut gateway, _socket) = member(&[GROUP]);
    gateway.tick(5);
    let all = Ipv4Addr::new(224, 0, 0, 1);
    let odd = ["1164 0000 00000000 00", "1164 0000 00000000 0000", "1164 0000 00000000 000000"];
    gateway.receive(LAN, &odd.map(|message| query(all, message)));
    let from = |source, hops| from(source, all, IpProtocol::IGMP, hops, GENERAL_QUERY);
    gateway.receive(LAN, &[from(ROUTER.1, 2), from(Ipv4Addr::new(192, 0, 2, 1), 1)]);
    assert!(told(&gateway.tick(100)).is_empty());
    assert_eq!(gateway.drops(), [("igmp", "truncated", 3), ("igmp", "invalid-message", 2)]);
}

/// A general query of version 3, as RFC 3376 §4.1 draws it.
const GENERAL_QUERY: &str = "1164 0000 00000000 02 7d 0000";

/// A message with its checksum, from any source, with any number of hops.
fn from(source: Ipv4Addr, to: Ipv4Addr, protocol: IpProtocol, hops: u8, message: &str) -> Vec<u8> {
    let mut message = hex(message);
    let sum = checksum::of(&message).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    let packet = ipv4(source, to, protocol, &message, |ip| ip.time_to_live = hops);
    ether(MacAddress::of_ipv4_multicast(to), ROUTER.0, EtherType::IPV4, &packet)
}

/// RFC 4541 §2.1.1: snooping switches query from 0.0.0.0. Linux accepts such messages, too
/// (`ip_mc_validate_source`). Nothing else without a source is sent to a group.
#[test]
fn a_query_of_a_switch_without_an_address_is_answered() {
    let none = Ipv4Addr::UNSPECIFIED;
    let all = Ipv4Addr::new(224, 0, 0, 1);
    let (mut gateway, _socket) = member(&[GROUP]);
    gateway.tick(5);
    let specific = "1164 0000 ef010203 02 7d 0000";
    for (to, message) in [(all, GENERAL_QUERY), (GROUP, specific)] {
        gateway.receive(LAN, &[from(none, to, IpProtocol::IGMP, 1, message)]);
        let report = v3("2200 eaf9 0000 0001 02000000 ef010203");
        assert_eq!(told(&gateway.tick(100)), [report], "to {to}");
    }
    assert_eq!(gateway.drops(), []);
    let report = "1600 0000 ef010203";
    let refused = [
        from(none, all, IpProtocol::IGMP, 2, GENERAL_QUERY),
        from(none, GROUP, IpProtocol::IGMP, 1, report),
        from(none, LAN_IP, IpProtocol::IGMP, 1, GENERAL_QUERY),
        from(none, all, IpProtocol::ICMPV4, 1, "0800 0000 0007 0001"),
    ];
    gateway.receive(LAN, &refused);
    assert!(told(&gateway.tick(100)).is_empty());
    assert_eq!(gateway.drops(), [("ipv4", "martian", 2), ("igmp", "invalid-message", 2)]);
}

proptest! {
    /// Whatever routers say, nothing panics and every change is told in the end.
    #[test]
    fn any_query_is_survived(
        queries in prop::collection::vec((prop::collection::vec(any::<u8>(), 4..40), any::<bool>(), 0_u64..20), 0..30),
    ) {
        let (mut gateway, socket) = member(&[GROUP]);
        for (mut message, join, wait) in queries {
            message[0] = [0x11, 0x12, 0x16, 0x17, 0x22][usize::from(message[0]) % 5];
            message[2..4].fill(0);
            gateway.receive(LAN, &[query_of(Ipv4Addr::new(224, 0, 0, 1), message)]);
            if join {
                socket.join_multicast(OTHER.into(), LAN).unwrap();
            } else {
                socket.leave_multicast(OTHER.into(), LAN).unwrap();
            }
            gateway.tick(wait);
        }
        gateway.tick(300);
        socket.join_multicast(Ipv4Addr::new(239, 9, 9, 9).into(), LAN).unwrap();
        prop_assert_eq!(told(&gateway.tick(5)).len(), 2);
        prop_assert!(gateway.is_clean());
    }
}
