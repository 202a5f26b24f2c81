//! The DHCP client against a server that the test plays (RFC 2131).
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

mod common;

use common::{Frame, Gateway, LAN, LAN_MAC, address, ether, hex, interface, ipv4};
use gatewright_stack::{AddressState, Event, Interface, Lease, SuiteLink};
use gatewright_tables::Prefix;
use gatewright_wire::{
    Checksum, EtherType, IpProtocol, MacAddress,
    dhcpv4::{DhcpOption, DhcpType, Dhcpv4Fields, FLAG_BROADCAST, Operation, read, write},
    ipv4::Ipv4,
    udp::{Udp, UdpFields},
};
use proptest::prelude::*;
use std::{net::Ipv4Addr, time::Duration};

const SERVER_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 0x53]);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 53);
const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 99);
const ANY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

fn client() -> Gateway {
    let mut gateway = Gateway::of(&[SuiteLink::Ethernet(LAN)], |_| {});
    let lan = Interface { dhcp: true, ..interface(LAN, LAN_MAC, Vec::new()) };
    gateway.host.add_interface(lan).unwrap();
    gateway
}

/// A message of the client as the server reads it.
#[derive(Debug)]
struct Asked {
    kind: DhcpType,
    from: Ipv4Addr,
    to: (MacAddress, Ipv4Addr),
    xid: u32,
    broadcast: bool,
    ciaddr: Ipv4Addr,
    requested: Option<Ipv4Addr>,
    server: Option<Ipv4Addr>,
}

/// The client's messages among what was sent, each checked to be a right UDP datagram.
fn asked(frames: &[Frame]) -> Vec<Asked> {
    let of = |(_, frame): &Frame| {
        let destination = MacAddress(frame[..6].try_into().unwrap());
        let (ip, datagram) = Ipv4::split(frame.get(14..)?).ok()?;
        if frame[12..14] != [8, 0] || ip.protocol() != IpProtocol::UDP {
            return None;
        }
        let (udp, message) = Udp::split(datagram).unwrap();
        assert_eq!((udp.source_port(), udp.destination_port()), (68, 67));
        let mut sum = ip.pseudo_header(udp.length());
        sum.add(datagram);
        assert!(sum.is_valid() && ip.is_checksum_valid(&[]));
        let (header, options) = read(message).unwrap();
        assert_eq!((header.op(), header.htype(), header.hlen()), (Operation::BOOT_REQUEST, 1, 6));
        assert!(header.chaddr().starts_with(&LAN_MAC.octets()));
        let mut asked = Asked {
            kind: options.message_type().unwrap(),
            from: ip.source_address(),
            to: (destination, ip.destination_address()),
            xid: header.xid(),
            broadcast: header.flags() == FLAG_BROADCAST,
            ciaddr: header.ciaddr(),
            requested: None,
            server: None,
        };
        for option in options {
            match option.unwrap() {
                DhcpOption::RequestedAddress(ip) => asked.requested = Some(ip),
                DhcpOption::ServerIdentifier(ip) => asked.server = Some(ip),
                _ => {}
            }
        }
        Some(asked)
    };
    frames.iter().filter_map(of).collect()
}

/// The server's answer as a frame.
fn answer(xid: u32, kind: DhcpType, change: impl FnOnce(&mut Dhcpv4Fields)) -> Vec<u8> {
    let mut chaddr = [0; 16];
    chaddr[..6].copy_from_slice(&LAN_MAC.octets());
    let mut fields = Dhcpv4Fields {
        op: Operation::BOOT_REPLY,
        htype: 1,
        hlen: 6,
        hops: 0,
        xid,
        secs: 0,
        flags: FLAG_BROADCAST,
        ciaddr: ANY,
        yiaddr: OURS,
        siaddr: SERVER,
        giaddr: ANY,
        chaddr,
        sname: [0; 64],
        file: [0; 128],
    };
    change(&mut fields);
    let options = [
        DhcpOption::MessageType(kind),
        DhcpOption::ServerIdentifier(SERVER),
        DhcpOption::LeaseTime(3600),
        DhcpOption::SubnetMask(Ipv4Addr::new(255, 255, 255, 0)),
        DhcpOption::Routers(&[[10, 0, 0, 1]]),
        DhcpOption::DomainNameServers(&[[9, 9, 9, 9], [1, 1, 1, 1]]),
    ];
    let mut octets = [0; 600];
    carried(write(&mut octets, fields, &options).unwrap())
}

fn carried(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len() + Udp::LEN).unwrap();
    let mut fields = UdpFields { source_port: 67, destination_port: 68, length, checksum: 0 };
    let all = Ipv4Addr::BROADCAST;
    let mut sum = Checksum::pseudo_ipv4(SERVER, all, IpProtocol::UDP, length);
    sum.add(&fields.emit());
    sum.add(message);
    fields.checksum = sum.finish_udp();
    let datagram = [&fields.emit()[..], message].concat();
    let packet = ipv4(SERVER, all, IpProtocol::UDP, &datagram, |_| {});
    ether(MacAddress::BROADCAST, SERVER_MAC, EtherType::IPV4, &packet)
}

fn lease() -> Event {
    let lease = Lease {
        address: OURS,
        prefix_len: 24,
        routers: vec![Ipv4Addr::new(10, 0, 0, 1)],
        name_servers: vec![Ipv4Addr::new(9, 9, 9, 9), Ipv4Addr::new(1, 1, 1, 1)],
        routes: Vec::new(),
        duration: Duration::from_hours(1),
    };
    Event::Lease { link: LAN, lease: Some(lease) }
}

const OVER: Event = Event::Lease { link: LAN, lease: None };
const ALL: (MacAddress, Ipv4Addr) = (MacAddress::BROADCAST, Ipv4Addr::BROADCAST);

/// Takes a client to a lease, checking each message on the way (RFC 2131 §3.1, §4.3.6, table 4).
fn leased() -> Gateway {
    let mut gateway = client();
    let discover = asked(&gateway.tick(1)).pop().unwrap();
    assert_eq!((discover.kind, discover.from, discover.to), (DhcpType::DISCOVER, ANY, ALL));
    assert!(discover.broadcast && discover.server.is_none());
    let offer = answer(discover.xid, DhcpType::OFFER, |_| {});
    let request = asked(&gateway.receive(LAN, &[offer])).pop().unwrap();
    assert_eq!((request.kind, request.from, request.to), (DhcpType::REQUEST, ANY, ALL));
    assert_eq!((request.requested, request.server), (Some(OURS), Some(SERVER)));
    assert_eq!((request.ciaddr, request.xid), (ANY, discover.xid));
    assert!(gateway.events().is_empty(), "not before it is acknowledged");
    gateway.receive(LAN, &[answer(request.xid, DhcpType::ACK, |_| {})]);
    assert_eq!(gateway.events(), [lease()]);
    gateway.host.add_address(LAN, address(OURS, 24)).unwrap();
    gateway.tick(5);
    gateway
}

#[test]
fn an_address_is_leased_and_renewed_at_half_its_time() {
    let mut gateway = leased();
    assert!(asked(&gateway.tick(1790)).is_empty());
    let mut sent = (0..20).map(|_| gateway.tick(1)).find(|sent| !sent.is_empty()).unwrap();
    // The server's station is asked for first.
    let reply = gatewright_wire::arp::ArpFields::request(LAN_MAC, OURS, SERVER).reply(SERVER_MAC);
    sent.extend(gateway.receive(LAN, &[ether(LAN_MAC, SERVER_MAC, EtherType::ARP, &reply.emit())]));
    let request = asked(&sent).pop().unwrap();
    assert_eq!(
        (request.kind, request.from, request.to),
        (DhcpType::REQUEST, OURS, (SERVER_MAC, SERVER))
    );
    assert_eq!((request.ciaddr, request.requested, request.server), (OURS, None, None));
    assert!(!request.broadcast);
    gateway.receive(LAN, &[answer(request.xid, DhcpType::ACK, |_| {})]);
    assert_eq!(gateway.events(), [lease()], "prolonged");
    assert!(asked(&gateway.tick(1790)).is_empty());
}

/// RFC 2131 §4.4.5: the server that gave it, then any, then none.
#[test]
fn a_lease_without_answers_is_rebound_and_then_over() {
    let mut gateway = leased();
    gateway.tick(3140);
    let rebinding = asked(&gateway.tick(10)).pop().unwrap();
    assert_eq!((rebinding.from, rebinding.to, rebinding.ciaddr), (OURS, ALL, OURS));
    assert!(gateway.events().is_empty());
    gateway.tick(450);
    assert_eq!(gateway.events(), [OVER]);
    let again = asked(&gateway.tick(10)).pop().unwrap();
    assert_eq!((again.kind, again.from), (DhcpType::DISCOVER, ANY));
}

/// RFC 2131 §4.1: 4, 8, 16, 32, 64 seconds, each a second more or less.
#[test]
fn unanswered_messages_are_repeated_more_and_more_rarely() {
    let mut gateway = client();
    let mut times = Vec::new();
    for second in 0..200 {
        times.extend(asked(&gateway.tick(1)).iter().map(|_| second));
    }
    let gaps: Vec<i32> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps.len(), 6);
    for (gap, expected) in gaps.iter().zip([4, 8, 16, 32, 64, 64]) {
        assert!((gap - expected).abs() <= 2, "{gaps:?}");
    }
}

#[test]
fn a_refused_request_starts_anew() {
    let mut gateway = client();
    let discover = asked(&gateway.tick(1)).pop().unwrap();
    let request = gateway.receive(LAN, &[answer(discover.xid, DhcpType::OFFER, |_| {})]);
    assert_eq!(asked(&request)[0].kind, DhcpType::REQUEST);
    gateway.receive(LAN, &[answer(discover.xid, DhcpType::NAK, |_| {})]);
    let again = asked(&gateway.tick(1)).pop().unwrap();
    assert_eq!(again.kind, DhcpType::DISCOVER);
    assert!(gateway.events().is_empty(), "nothing was held");
}

/// RFC 2131 §3.1, step 5: an address that another host has is declined.
#[test]
fn a_duplicate_address_is_declined() {
    let mut gateway = leased();
    let taken = gatewright_stack::Address { state: AddressState::Duplicate, ..address(OURS, 24) };
    gateway.host.add_address(LAN, taken).unwrap();
    let decline = asked(&gateway.tick(0)).pop().unwrap();
    assert_eq!((decline.kind, decline.from, decline.ciaddr), (DhcpType::DECLINE, ANY, ANY));
    assert_eq!((decline.requested, decline.server), (Some(OURS), Some(SERVER)));
    assert_eq!(gateway.events(), [OVER]);
    assert!(asked(&gateway.tick(9)).is_empty());
    assert_eq!(asked(&gateway.tick(2))[0].kind, DhcpType::DISCOVER);
}

#[test]
fn messages_that_are_not_for_us_are_dropped_by_cause() {
    type Change = fn(&mut Dhcpv4Fields);
    let cases: [(&str, Change); 3] = [
        ("not-ours", |fields| fields.xid ^= 1),
        ("not-ours", |fields| fields.chaddr[5] ^= 1),
        ("not-ours", |fields| fields.op = Operation::BOOT_REQUEST),
    ];
    for (reason, change) in cases {
        let mut gateway = client();
        let discover = asked(&gateway.tick(1)).pop().unwrap();
        let sent = gateway.receive(LAN, &[answer(discover.xid, DhcpType::OFFER, change)]);
        assert!(sent.is_empty());
        assert_eq!(gateway.drops(), [("dhcp", reason, 1)]);
    }
    let mut gateway = client();
    let discover = asked(&gateway.tick(1)).pop().unwrap();
    gateway.receive(LAN, &[answer(discover.xid, DhcpType::ACK, |_| {}), carried(b"short")]);
    assert_eq!(gateway.drops(), [("dhcp", "unexpected", 1), ("dhcp", "truncated", 1)]);
    gateway.host.change_interface(LAN, |interface| interface.dhcp = false);
    gateway.receive(LAN, &[answer(discover.xid, DhcpType::OFFER, |_| {})]);
    assert!(gateway.drops().contains(&("dhcp", "no-client", 1)));
    assert!(asked(&gateway.tick(100)).is_empty(), "switched off");
}

/// A server that refuses whatever it has offered is not asked as fast as it answers: at once, and
/// then after 4, 8, 16, 32 and 64 seconds, each a second more or less (RFC 2131 §4.1).
#[test]
fn a_server_that_always_refuses_is_asked_more_and_more_rarely() {
    let mut gateway = client();
    let mut times = Vec::new();
    for second in 0..200 {
        for discover in asked(&gateway.tick(1)) {
            times.push(second);
            gateway.receive(LAN, &[answer(discover.xid, DhcpType::OFFER, |_| {})]);
            gateway.receive(LAN, &[answer(discover.xid, DhcpType::NAK, |_| {})]);
        }
    }
    let gaps: Vec<i32> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps.len(), 7, "{gaps:?}");
    for (gap, expected) in gaps.iter().zip([0, 4, 8, 16, 32, 64, 64]) {
        assert!((gap - expected).abs() <= 2, "{gaps:?}");
    }
}

/// RFC 2131 §4.4.6: a client that no longer wants its address tells the server, to which alone it is
/// sent, from that address and with it in *ciaddr* (table 5).
#[test]
fn a_lease_that_is_no_longer_wanted_is_released() {
    let mut gateway = leased();
    gateway.host.change_interface(LAN, |interface| interface.dhcp = false);
    let mut sent = gateway.tick(1);
    let reply = gatewright_wire::arp::ArpFields::request(LAN_MAC, OURS, SERVER).reply(SERVER_MAC);
    sent.extend(gateway.receive(LAN, &[ether(LAN_MAC, SERVER_MAC, EtherType::ARP, &reply.emit())]));
    let release = asked(&sent).pop().unwrap();
    assert_eq!(
        (release.kind, release.from, release.to),
        (DhcpType::RELEASE, OURS, (SERVER_MAC, SERVER))
    );
    assert_eq!((release.ciaddr, release.requested, release.server), (OURS, None, Some(SERVER)));
    assert_eq!(gateway.events(), [OVER]);
}

/// The same when the gateway ends.
#[test]
fn a_lease_is_released_at_the_end() {
    let mut gateway = leased();
    let mut sent = gateway.end();
    let reply = gatewright_wire::arp::ArpFields::request(LAN_MAC, OURS, SERVER).reply(SERVER_MAC);
    sent.extend(gateway.receive(LAN, &[ether(LAN_MAC, SERVER_MAC, EtherType::ARP, &reply.emit())]));
    assert_eq!(asked(&sent).pop().unwrap().kind, DhcpType::RELEASE);
    assert!(asked(&client().end()).is_empty(), "nothing was held");
}

/// A lease whose link was down for so many seconds; what the client says when it is up again.
fn reconnected(seconds: u64) -> (Gateway, Asked) {
    let mut gateway = leased();
    gateway.host.change_interface(LAN, |interface| interface.up = false);
    gateway.host.remove_address(LAN, OURS.into());
    assert!(asked(&gateway.tick(seconds)).is_empty(), "nobody is there");
    gateway.host.change_interface(LAN, |interface| interface.up = true);
    let first = asked(&gateway.tick(2)).pop().unwrap();
    (gateway, first)
}

/// RFC 2131 §3.7, §4.3.2, §4.4.2: after a disconnection the lease is verified, by a broadcast that
/// names the address and no server.
#[test]
fn a_lease_is_verified_when_its_link_is_up_again() {
    let (mut gateway, request) = reconnected(60);
    assert_eq!((request.kind, request.from, request.to), (DhcpType::REQUEST, ANY, ALL));
    assert_eq!((request.requested, request.server), (Some(OURS), None));
    assert!(request.ciaddr.is_unspecified() && request.broadcast);
    gateway.receive(LAN, &[answer(request.xid, DhcpType::ACK, |_| {})]);
    assert_eq!(gateway.events(), [lease()]);
    gateway.host.add_address(LAN, address(OURS, 24)).unwrap();
    assert!(asked(&gateway.tick(1790)).is_empty(), "it runs from the acknowledgement");

    let (mut gateway, request) = reconnected(60);
    gateway.receive(LAN, &[answer(request.xid, DhcpType::NAK, |_| {})]);
    let again = asked(&gateway.tick(1)).pop().unwrap();
    assert_eq!((again.kind, again.requested), (DhcpType::DISCOVER, None), "another network");
    assert!(gateway.events().is_empty());
}

/// Where nobody knows the lease, or it has ended, a server is looked for.
#[test]
fn a_lease_that_nobody_verifies_is_forgotten() {
    let (mut gateway, _) = reconnected(60);
    let kinds: Vec<_> = asked(&gateway.tick(60)).iter().map(|asked| asked.kind).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == DhcpType::REQUEST).count(), 1, "once more");
    assert_eq!(kinds.last(), Some(&DhcpType::DISCOVER));
    let (_, first) = reconnected(3600);
    assert_eq!((first.kind, first.requested), (DhcpType::DISCOVER, None));
}

/// What the client learns of an acknowledgement with these octets of options at its end.
fn acknowledged(options: &[u8]) -> Lease {
    let mut gateway = client();
    let discover = asked(&gateway.tick(1)).pop().unwrap();
    gateway.receive(LAN, &[answer(discover.xid, DhcpType::OFFER, |_| {})]);
    let plain = answer(discover.xid, DhcpType::ACK, |_| {});
    let (_, datagram) = Ipv4::split(&plain[14..]).unwrap();
    let (_, message) = Udp::split(datagram).unwrap();
    let end = message.iter().rposition(|&octet| octet == 255).unwrap();
    gateway.receive(LAN, &[carried(&[&message[..end], options, &[255]].concat())]);
    match gateway.events().pop() {
        Some(Event::Lease { lease: Some(lease), .. }) => lease,
        other => unreachable!("{other:?} {:?}", gateway.drops()),
    }
}

/// RFC 3442: with classless routes, the list of routers does not count.
#[test]
fn classless_routes_replace_the_routers() {
    let lease = acknowledged(&hex("79 0d 18 c0a801 0a000007 00 0a000009"));
    assert_eq!(lease.routers, [Ipv4Addr::new(10, 0, 0, 9)]);
    let to = Prefix::new(Ipv4Addr::new(192, 168, 1, 0), 24).unwrap();
    assert_eq!(lease.routes, [(to, Ipv4Addr::new(10, 0, 0, 7))]);
}

/// RFC 3396 §7: an option in several pieces is put together before it is read, wherever it was cut.
#[test]
fn an_option_in_pieces_is_put_together() {
    let data = hex("18 c0a801 0a000007 00 0a000009");
    let whole = acknowledged(&[&hex("79 0d")[..], &data].concat());
    for cut in 0..=data.len() {
        let (first, second) = data.split_at(cut);
        let piece = |data: &[u8]| [&[121, u8::try_from(data.len()).unwrap()], data].concat();
        assert_eq!(acknowledged(&[piece(first), piece(second)].concat()), whole, "cut at {cut}");
    }
}

proptest! {
    /// Whatever a server says, in whatever state: no panic, and the client goes on.
    #[test]
    fn any_answer_is_survived(
        answers in prop::collection::vec((0_u8..9, prop::collection::vec(any::<u8>(), 0..80), any::<u32>(), 0_u64..4000), 0..20),
    ) {
        let mut gateway = client();
        let mut xid = 0;
        for (kind, octets, time, wait) in answers {
            xid = asked(&gateway.tick(wait)).last().map_or(xid, |asked| asked.xid);
            let mut chaddr = [0; 16];
            chaddr[..6].copy_from_slice(&LAN_MAC.octets());
            let fields = Dhcpv4Fields {
                op: Operation::BOOT_REPLY, htype: 1, hlen: 6, hops: 0, xid, secs: 0, flags: 0,
                ciaddr: ANY, yiaddr: OURS, siaddr: ANY, giaddr: ANY, chaddr, sname: [7; 64], file: [8; 128],
            };
            let options = [
                DhcpOption::MessageType(DhcpType(kind)),
                DhcpOption::ServerIdentifier(SERVER),
                DhcpOption::LeaseTime(time),
                DhcpOption::RenewalTime(time.rotate_left(7)),
                DhcpOption::RebindingTime(time.rotate_left(13)),
            ];
            let mut buffer = [0; 600];
            let mut message = write(&mut buffer, fields, &options).unwrap().to_vec();
            let end = message.len() - 20;
            message.splice(end.., octets);
            gateway.receive(LAN, &[carried(&message)]);
        }
        prop_assert!(!asked(&gateway.tick(100)).is_empty() || !gateway.events().is_empty());
    }
}
