//! ARP over Ethernet: resolution, and claims of addresses (RFC 826, RFC 5227).
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

mod common;

use common::{
    A, B, Gateway, LAN, LAN_IP, LAN_MAC, WAN, WAN_IP, WAN_MAC, address, ether, from_a, hex,
    interface, ipv4,
};
use gatewright_packet::LinkAddress;
use gatewright_stack::{Address, AddressState, At, Event, Side, SuiteLink, WAITING_MAX};
use gatewright_wire::{EtherType, IpProtocol, MacAddress, arp::ArpFields};
use std::{net::Ipv4Addr, time::Duration};

const ALL: MacAddress = MacAddress::BROADCAST;

fn arp(to: MacAddress, message: ArpFields) -> Vec<u8> {
    ether(to, message.sender_hardware, EtherType::ARP, &message.emit())
}

/// Request and reply as RFC 826 lays them out, with the addresses of this test.
#[test]
fn a_request_is_answered_octet_by_octet() {
    let mut gateway = Gateway::cold();
    let request = hex(
        "ffffffffffff 02000000000a 0806 0001 0800 06 04 0001 02000000000a 0a000002 000000000000 0a000001",
    );
    let reply = hex(
        "02000000000a 020000000010 0806 0001 0800 06 04 0002 020000000010 0a000001 02000000000a 0a000002",
    );
    assert_eq!(gateway.receive(LAN, &[request]), [(LAN, reply)]);
}

#[test]
fn only_requests_for_us_are_answered() {
    let mut gateway = Gateway::cold();
    let to_other = ArpFields::request(A.0, A.1, Ipv4Addr::new(10, 0, 0, 77));
    let of_other_link = ArpFields::request(A.0, A.1, WAN_IP);
    assert!(gateway.receive(LAN, &[arp(ALL, to_other), arp(ALL, of_other_link)]).is_empty());
    let mut bad = arp(ALL, ArpFields::request(A.0, A.1, LAN_IP));
    // RFC 826, "Packet Reception": "?Do I have the hardware type in ar$hrd?" and the length in
    // ar$hln; 27 is EUI-64 (IANA), of eight octets.
    let (mut eui64, mut long) = (bad.clone(), bad.clone());
    (eui64[15], eui64[18]) = (27, 8);
    long[18] = 8;
    bad[14] = 9;
    let short = ether(ALL, A.0, EtherType::ARP, &[0; 27]);
    assert!(gateway.receive(LAN, &[bad, eui64, long, short]).is_empty());
    assert_eq!(gateway.drops(), [("arp", "bad-arp", 3), ("arp", "truncated", 1)]);
    // RFC 5227 §2.1.1: a probe for our address is answered, to the station that probes.
    let probe = ArpFields::request(A.0, Ipv4Addr::UNSPECIFIED, LAN_IP);
    assert_eq!(gateway.receive(LAN, &[arp(ALL, probe)]), [(LAN, arp(A.0, probe.reply(LAN_MAC)))]);
}

/// RFC 1812 §3.3.2: a group's address is no station's, whatever ARP says; nor are zeros and our own
/// address. Who says so is not answered, and neither changes a neighbour nor becomes one.
#[test]
fn stations_that_cannot_be_are_no_neighbours() {
    let mut gateway = Gateway::new();
    let stranger = Ipv4Addr::new(10, 0, 0, 9);
    let stations = [
        ("bad-station", MacAddress::ZERO),
        ("bad-station", MacAddress::BROADCAST),
        ("bad-station", MacAddress([1, 0, 0x5e, 0, 0, 1])),
        ("own-arp", LAN_MAC),
    ];
    for (reason, station) in stations {
        for ip in [A.1, stranger] {
            let request = ArpFields::request(station, ip, LAN_IP);
            let reply = ArpFields::request(LAN_MAC, LAN_IP, ip).reply(station);
            let before = dropped(&gateway, reason);
            for (to, message) in [(ALL, request), (LAN_MAC, reply), (ALL, reply)] {
                let frame = ether(to, B.0, EtherType::ARP, &message.emit());
                assert!(gateway.receive(LAN, &[frame]).is_empty(), "{station} {message:?}");
            }
            assert_eq!(dropped(&gateway, reason) - before, 3, "{station}");
        }
    }
    let to =
        |ip| ether(WAN_MAC, B.0, EtherType::IPV4, &ipv4(B.1, ip, IpProtocol::UDP, b"1", |_| {}));
    let sent = gateway.receive(WAN, &[to(A.1)]);
    assert_eq!(sent[0].1[..6], A.0.0, "A is where it was");
    let sent = gateway.receive(WAN, &[to(stranger)]);
    assert_eq!(sent, [(LAN, arp(ALL, ArpFields::request(LAN_MAC, LAN_IP, stranger)))]);
}

/// How often ARP has dropped for this reason.
fn dropped(gateway: &Gateway, reason: &str) -> u64 {
    let drops = gateway.drops();
    drops.iter().filter(|drop| (drop.0, drop.1) == ("arp", reason)).map(|drop| drop.2).sum()
}

/// A handler on a way sees what the way is named for: ARP messages on ARP's, and a packet once,
/// whether it has waited or not.
#[test]
fn packets_that_have_waited_leave_by_a_way_of_their_own() {
    let mut gateway = Gateway::cold();
    let packets = |gateway: &Gateway, at: At| -> u64 {
        let down = |way: &gatewright_stack::Binding| {
            (way.at, way.side, way.link) == (at, Side::Transmit, Some(WAN))
        };
        gateway.plan.ways().filter(|(way, _)| down(way)).map(|(_, packets)| packets).sum()
    };
    let [arps, ips] = [EtherType::ARP, EtherType::IPV4].map(At::EtherType);
    let before = packets(&gateway, arps);
    let packet = from_a(&ipv4(A.1, B.1, IpProtocol::UDP, b"1", |_| {}));
    gateway.receive(LAN, &[packet.clone(), packet.clone()]);
    let request = ArpFields::request(WAN_MAC, WAN_IP, B.1);
    assert_eq!(gateway.receive(WAN, &[arp(WAN_MAC, request.reply(B.0))]).len(), 2);
    assert_eq!(gateway.receive(LAN, &[packet]).len(), 1);
    let waited = packets(&gateway, At::Unresolved(EtherType::IPV4));
    assert_eq!((packets(&gateway, arps) - before, packets(&gateway, ips), waited), (1, 3, 2));
}

#[test]
fn packets_wait_for_their_neighbour_and_go_in_order() {
    let mut gateway = Gateway::cold();
    let packet = |data: &[u8]| ipv4(A.1, B.1, IpProtocol::UDP, data, |_| {});
    let frames = [from_a(&packet(b"1")), from_a(&packet(b"2"))];
    let request = ArpFields::request(WAN_MAC, WAN_IP, B.1);
    assert_eq!(gateway.receive(LAN, &frames), [(WAN, arp(ALL, request))]);
    let sent = gateway.receive(WAN, &[arp(WAN_MAC, request.reply(B.0))]);
    let forwarded = |data: &[u8]| {
        let packet = ipv4(A.1, B.1, IpProtocol::UDP, data, |ip| ip.time_to_live = 63);
        (WAN, ether(B.0, WAN_MAC, EtherType::IPV4, &packet))
    };
    assert_eq!(sent, [forwarded(b"1"), forwarded(b"2")]);
    assert_eq!(gateway.receive(LAN, &[from_a(&packet(b"3"))]), [forwarded(b"3")]);
    assert!(gateway.is_clean());
}

/// RFC 1812 §5.2.7.1: a host that does not answer is told as unreachable.
#[test]
fn a_neighbour_that_does_not_answer_is_unreachable() {
    let mut gateway = Gateway::new();
    let silent = Ipv4Addr::new(10, 0, 1, 99);
    gateway.receive(LAN, &[from_a(&ipv4(A.1, silent, IpProtocol::UDP, b"12345678", |_| {}))]);
    let sent = gateway.tick(5);
    let request = arp(ALL, ArpFields::request(WAN_MAC, WAN_IP, silent));
    assert_eq!(sent[..2], [(WAN, request.clone()), (WAN, request)], "three in all");
    let (link, error) = &sent[2];
    assert_eq!((*link, &error[34..36], sent.len()), (LAN, &[3, 1][..], 3));
}

/// RFC 4861 §7.3.3 for ARP: a stale neighbour gets packets at once and is asked by unicast.
#[test]
fn transit_does_not_wait_while_a_neighbour_is_probed() {
    let mut gateway = Gateway::new();
    gateway.tick(100);
    let packet = from_a(&ipv4(A.1, B.1, IpProtocol::UDP, b"", |_| {}));
    assert_eq!(gateway.receive(LAN, std::slice::from_ref(&packet)).len(), 1);
    let probes = gateway.tick(5);
    let request = ArpFields::request(WAN_MAC, WAN_IP, B.1);
    assert_eq!(probes, [(WAN, arp(B.0, request))]);
    assert_eq!(gateway.receive(LAN, &[packet]).len(), 1);
    assert!(gateway.receive(WAN, &[arp(WAN_MAC, request.reply(B.0))]).is_empty());
    assert!(gateway.tick(20).is_empty(), "confirmed");
}

/// A reply that nobody asked for corrects an address (RFC 826), which is then probed (RFC 1122
/// §2.3.2.1): a false one is gone within seconds, and the neighbour is asked for again.
#[test]
fn a_reply_that_nobody_asked_for_is_probed() {
    let mut gateway = Gateway::new();
    let packet = from_a(&ipv4(A.1, B.1, IpProtocol::UDP, b"", |_| {}));
    let request = ArpFields::request(WAN_MAC, WAN_IP, B.1);
    // B has answered a request: it is reachable, and the same said again changes nothing.
    gateway.tick(100);
    gateway.receive(LAN, std::slice::from_ref(&packet));
    assert_eq!(gateway.tick(5), [(WAN, arp(B.0, request))]);
    gateway.receive(WAN, &[arp(WAN_MAC, request.reply(B.0))]);
    gateway.receive(WAN, &[arp(WAN_MAC, request.reply(B.0))]);
    gateway.receive(LAN, std::slice::from_ref(&packet));
    assert!(gateway.tick(10).is_empty(), "still reachable");
    let liar = MacAddress([2, 0, 0, 0, 0, 0x66]);
    gateway.receive(WAN, &[arp(WAN_MAC, request.reply(liar))]);
    let sent = gateway.receive(LAN, std::slice::from_ref(&packet));
    assert_eq!(sent[0].1[..6], liar.0, "as RFC 826 has it");
    let probe = (WAN, arp(liar, request));
    assert_eq!(gateway.tick(9), [probe.clone(), probe.clone(), probe], "not answered");
    assert_eq!(gateway.receive(LAN, &[packet]), [(WAN, arp(ALL, request))], "asked for again");
    let sent = gateway.receive(WAN, &[arp(WAN_MAC, request.reply(B.0))]);
    assert_eq!(sent[0].1[..6], B.0.0);
}

fn tentative() -> Gateway {
    let mut gateway = Gateway::of(&[SuiteLink::Ethernet(LAN)], |_| {});
    let claimed = Address { state: AddressState::Tentative, ..address(LAN_IP, 24) };
    gateway.host.add_interface(interface(LAN, LAN_MAC, vec![claimed])).unwrap();
    gateway
}

const UNIQUE: Event = Event::Unique { link: LAN, address: std::net::IpAddr::V4(LAN_IP) };

/// RFC 5227 §2.1.1 and §2.3: three probes, a wait, then two announcements.
#[test]
fn a_tentative_address_is_probed_then_announced() {
    let mut gateway = tentative();
    let probe = (LAN, arp(ALL, ArpFields::request(LAN_MAC, Ipv4Addr::UNSPECIFIED, LAN_IP)));
    assert_eq!(gateway.tick(10), [probe.clone(), probe.clone(), probe]);
    let request = arp(ALL, ArpFields::request(A.0, A.1, LAN_IP));
    assert!(gateway.receive(LAN, std::slice::from_ref(&request)).is_empty(), "not ours yet");
    assert_eq!(gateway.events(), [UNIQUE]);
    gateway.host.add_address(LAN, address(LAN_IP, 24)).unwrap();
    let announcement = (LAN, arp(ALL, ArpFields::request(LAN_MAC, LAN_IP, LAN_IP)));
    assert_eq!(gateway.tick(10), [announcement.clone(), announcement]);
    assert_eq!(gateway.receive(LAN, &[request]).len(), 1);
}

/// RFC 5227 §2.1.1: somebody has the address, or wants it at the same time.
#[test]
fn a_duplicate_found_while_probing_is_told() {
    for (sender, target) in [(LAN_IP, LAN_IP), (Ipv4Addr::UNSPECIFIED, LAN_IP), (LAN_IP, A.1)] {
        let mut gateway = tentative();
        gateway.tick(1);
        gateway.receive(LAN, &[arp(ALL, ArpFields::request(A.0, sender, target))]);
        let duplicate = Event::Duplicate {
            link: LAN,
            address: LAN_IP.into(),
            by: LinkAddress::ethernet(A.0.0),
        };
        assert_eq!(gateway.events(), [duplicate], "{sender} {target}");
        assert!(gateway.tick(10).is_empty(), "no more probes");
    }
}

/// An address that is in use from the start is probed meanwhile; whoever answers had it before.
#[test]
fn an_address_in_use_at_once_is_checked_meanwhile() {
    let mut gateway = Gateway::of(&[SuiteLink::Ethernet(LAN)], |_| {});
    let lan = interface(LAN, LAN_MAC, vec![address(LAN_IP, 24)]);
    gateway.host.add_interface(lan).unwrap();
    let probe = ArpFields::request(LAN_MAC, Ipv4Addr::UNSPECIFIED, LAN_IP);
    assert_eq!(gateway.tick(0), [(LAN, arp(ALL, probe))]);
    let request = ArpFields::request(A.0, A.1, LAN_IP);
    assert_eq!(gateway.receive(LAN, &[arp(ALL, request)]).len(), 1, "it is used meanwhile");
    assert!(gateway.receive(LAN, &[arp(LAN_MAC, probe.reply(B.0))]).is_empty());
    let duplicate =
        Event::Duplicate { link: LAN, address: LAN_IP.into(), by: LinkAddress::ethernet(B.0.0) };
    assert_eq!(gateway.events(), [duplicate]);
}

/// RFC 5227 §2.4 (c): a router defends its address indefinitely, with one announcement in ten
/// seconds at the most; no number of forged messages takes it away.
#[test]
fn an_address_in_use_is_defended_and_never_given_up() {
    let mut gateway = Gateway::cold();
    let conflict = arp(ALL, ArpFields::request(A.0, LAN_IP, A.1));
    let announcement = (LAN, arp(ALL, ArpFields::request(LAN_MAC, LAN_IP, LAN_IP)));
    let told =
        Event::Conflict { link: LAN, address: LAN_IP.into(), by: LinkAddress::ethernet(A.0.0) };
    for _ in 0..3 {
        let sent = gateway.receive(LAN, std::slice::from_ref(&conflict));
        assert_eq!(sent, std::slice::from_ref(&announcement));
        gateway.tick(9);
        assert!(gateway.receive(LAN, std::slice::from_ref(&conflict)).is_empty());
        assert_eq!(gateway.events(), std::slice::from_ref(&told));
        gateway.tick(2);
    }
    assert_eq!(gateway.drops(), [("arp", "conflict", 6)]);
    let request = ArpFields::request(B.0, Ipv4Addr::new(10, 0, 0, 3), LAN_IP);
    assert_eq!(gateway.receive(LAN, &[arp(ALL, request)]).len(), 1, "it is still answered");
}

/// RFC 5227 §2.1.1: no more than one attempt a minute (RATE_LIMIT_INTERVAL); as soon as the other
/// station is gone the address is ours.
#[test]
fn a_duplicate_that_has_gone_is_found_to_be_unique() {
    let mut gateway = tentative();
    gateway.tick(1);
    let holder = arp(ALL, ArpFields::request(A.0, LAN_IP, A.1));
    gateway.receive(LAN, std::slice::from_ref(&holder));
    let duplicate =
        Event::Duplicate { link: LAN, address: LAN_IP.into(), by: LinkAddress::ethernet(A.0.0) };
    assert_eq!(gateway.events(), [duplicate]);
    let state = |state| Address { state, ..address(LAN_IP, 24) };
    gateway.host.add_address(LAN, state(AddressState::Duplicate)).unwrap();
    let probe = (LAN, arp(ALL, ArpFields::request(LAN_MAC, Ipv4Addr::UNSPECIFIED, LAN_IP)));
    assert!(gateway.tick(58).is_empty());
    assert_eq!(gateway.tick(3), std::slice::from_ref(&probe));
    assert!(gateway.receive(LAN, &[holder]).is_empty());
    assert!(gateway.events().is_empty(), "still there, as told");
    assert!(gateway.tick(59).is_empty());
    assert_eq!(gateway.tick(10), [probe.clone(), probe.clone(), probe]);
    assert_eq!(gateway.events(), [UNIQUE]);
    gateway.host.add_address(LAN, state(AddressState::Preferred)).unwrap();
    let announcement = (LAN, arp(ALL, ArpFields::request(LAN_MAC, LAN_IP, LAN_IP)));
    assert_eq!(gateway.tick(10), [announcement.clone(), announcement]);
}

/// A link that was down may be another network: a duplicate is probed anew at once.
#[test]
fn a_duplicate_is_claimed_again_when_the_link_comes_up() {
    let mut gateway = tentative();
    gateway.tick(1);
    gateway.receive(LAN, &[arp(ALL, ArpFields::request(A.0, LAN_IP, A.1))]);
    let duplicate = Address { state: AddressState::Duplicate, ..address(LAN_IP, 24) };
    gateway.host.add_address(LAN, duplicate).unwrap();
    gateway.tick(1);
    gateway.events();
    gateway.host.change_interface(LAN, |interface| interface.up = false);
    gateway.tick(1);
    gateway.host.change_interface(LAN, |interface| interface.up = true);
    gateway.tick(10);
    assert_eq!(gateway.events(), [UNIQUE]);
}

/// RFC 5227 §2.3: neighbours whose caches know another station for the address are told of ours.
#[test]
fn a_new_hardware_address_is_announced() {
    let mut gateway = Gateway::cold();
    let new = MacAddress([2, 0, 0, 0, 0, 0x11]);
    gateway.host.change_interface(LAN, |interface| {
        interface.link_address = LinkAddress::ethernet(new.0);
    });
    let announcement = (LAN, arp(ALL, ArpFields::request(new, LAN_IP, LAN_IP)));
    assert_eq!(gateway.tick(10), [announcement.clone(), announcement]);
}

/// A promiscuous link shows what is said to other stations; they answer it, not we.
#[test]
fn messages_to_other_stations_are_not_heard() {
    let mut gateway = Gateway::cold();
    gateway.host.change_interface(LAN, |interface| interface.promiscuous = true);
    let request = ArpFields::request(A.0, A.1, LAN_IP);
    assert!(gateway.receive(LAN, &[arp(B.0, request)]).is_empty());
    assert_eq!(gateway.drops(), [("arp", "other-station", 1)]);
    assert_eq!(gateway.receive(LAN, &[arp(LAN_MAC, request)]).len(), 1);
}

/// RFC 6583 §7: who scans a network through us, and who claims all its addresses, neither floods the
/// link nor drives out those in use.
#[test]
fn floods_stay_inside_their_bounds_and_spare_the_living() {
    let mut gateway = Gateway::new();
    // B has answered us.
    gateway.receive(LAN, &[from_a(&ipv4(A.1, B.1, IpProtocol::UDP, b"", |_| {}))]);
    gateway.tick(6);
    let reply = ArpFields::request(WAN_MAC, WAN_IP, B.1).reply(B.0);
    gateway.receive(WAN, &[arp(WAN_MAC, reply)]);
    gateway.host.add_address(WAN, address(Ipv4Addr::new(172, 16, 0, 1), 12)).unwrap();
    gateway.tick(5);
    let mut asked = 0;
    for host in 2..20_000_u32 {
        let other = Ipv4Addr::from_bits(0xac10_0000 + host);
        let liar = ArpFields::request(B.0, other, WAN_IP);
        gateway.receive(WAN, &[arp(ALL, liar)]);
        let unknown = Ipv4Addr::from_bits(0xac18_0000 + host);
        let scan = from_a(&ipv4(A.1, unknown, IpProtocol::UDP, b"", |_| {}));
        asked += gateway.receive(LAN, &[scan]).len();
    }
    // One source has a quarter of the 4,096 that may be asked for at once.
    assert_eq!(asked, 1024);
    let held = gateway.graph.frames().capacity() - gateway.graph.frames().available();
    assert!(held <= WAITING_MAX, "{held} packets wait");
    let dropped = |gateway: &Gateway, reason| {
        gateway.drops().iter().find(|drop| drop.1 == reason).map_or(0, |drop| drop.2)
    };
    assert_eq!(dropped(&gateway, "resolution-limited"), 19_998 - 1024);
    assert_eq!(dropped(&gateway, "neighbour-evicted"), 0, "there is room");
    let sent = gateway.receive(LAN, &[from_a(&ipv4(A.1, B.1, IpProtocol::UDP, b"", |_| {}))]);
    assert_eq!((sent.len(), &sent[0].1[..6]), (1, &B.0.octets()[..]), "B is still known");
    // Another host's packets find their neighbour meanwhile.
    let other = ipv4(
        Ipv4Addr::new(192, 0, 2, 1),
        Ipv4Addr::new(10, 0, 1, 77),
        IpProtocol::UDP,
        b"",
        |_| {},
    );
    assert_eq!(gateway.receive(LAN, &[from_a(&other)]).len(), 1, "it is asked for");
    gateway.now += Duration::from_mins(1);
    gateway.tick(10);
    assert!(gateway.is_clean());
}

#[test]
fn a_link_that_goes_down_forgets_its_neighbours_and_announces_itself_again() {
    let mut gateway = Gateway::new();
    gateway.host.change_interface(WAN, |interface| interface.up = false);
    let packet = from_a(&ipv4(A.1, B.1, IpProtocol::UDP, b"", |_| {}));
    assert!(gateway.receive(LAN, std::slice::from_ref(&packet)).is_empty());
    assert_eq!(gateway.drops(), [("ipv4", "link-down", 1)]);
    gateway.host.change_interface(WAN, |interface| interface.up = true);
    let probe = (WAN, arp(ALL, ArpFields::request(WAN_MAC, Ipv4Addr::UNSPECIFIED, WAN_IP)));
    let announcement = (WAN, arp(ALL, ArpFields::request(WAN_MAC, WAN_IP, WAN_IP)));
    let told = [probe.clone(), probe.clone(), probe, announcement.clone(), announcement];
    assert_eq!(gateway.tick(10), told);
    let request = arp(ALL, ArpFields::request(WAN_MAC, WAN_IP, B.1));
    assert_eq!(gateway.receive(LAN, &[packet]), [(WAN, request)]);
}
