//! Neighbour discovery and its addresses: whom to believe, what to defend (RFC 4861, RFC 4862).
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

mod common;

use common::{
    Gateway, LAN, LAN_MAC, WAN, WAN_MAC, interface,
    ipv6::{
        A_MAC, A6, B_MAC, B6, LAN6, ROUTER, cold, frame, gateway, icmp, link_local, packets,
        solicitation, solicited, with,
    },
};
use gatewright_packet::LinkAddress;
use gatewright_stack::{
    Address, AddressState, Advertise, Event, Interface, Route, RouterPreference, SuiteLink,
};
use gatewright_tables::Prefix;
use gatewright_wire::{
    IpProtocol, MacAddress,
    icmpv6::Icmpv6Type,
    ndp::{NeighborAdvertisementFields, NeighborSolicitationFields, RouterAdvertisementFields},
};
use std::{net::Ipv6Addr, time::Duration};

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// An unsolicited advertisement to all nodes: the station `mac` has `target`.
fn claim(mac: MacAddress, from: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let head = NeighborAdvertisementFields {
        kind: Icmpv6Type::NEIGHBOR_ADVERTISEMENT,
        code: 0,
        checksum: 0,
        router: false,
        solicited: false,
        override_flag: true,
        target_address: target,
    };
    let message = icmp((from, ALL_NODES), [&head.emit()[..], &[2, 1], &mac.0].concat());
    let all = MacAddress::of_ipv6_multicast(ALL_NODES);
    frame(all, mac, IpProtocol::ICMPV6, (from, ALL_NODES), 255, &message)
}

/// The neighbour advertisements among what was sent: to whom, about whom, flags.
fn advertised(sent: &[common::Frame]) -> Vec<(Ipv6Addr, Ipv6Addr, u8)> {
    let sent = packets(sent).into_iter().filter(|(_, _, message)| message[0] == 136);
    let of = |message: &[u8]| Ipv6Addr::from_octets(*message[8..].first_chunk().unwrap());
    sent.map(|(_, ip, message)| (ip.destination_address, of(&message), message[4])).collect()
}

/// One link whose two addresses have just been given.
fn fresh() -> Gateway {
    let mut gateway = Gateway::of(&[SuiteLink::Ethernet(LAN)], |_| {});
    let lan = interface(LAN, LAN_MAC, vec![with(LAN6), with(link_local(0x10))]);
    gateway.host.add_interface(lan).unwrap();
    gateway.tick(0);
    gateway
}

const OVERRIDE: u8 = 0x20;
const SOLICITED: u8 = 0x40;
const ROUTER_FLAG: u8 = 0x80;

/// RFC 4862 §5.4.4: what an advertisement for an assigned address means is outside of duplicate
/// address detection. The address stays, and is advertised once in ten seconds at the most.
#[test]
fn an_address_in_use_is_defended_and_never_given_up() {
    let mut gateway = gateway();
    gateway.tick(3600);
    gateway.events();
    let told =
        Event::Conflict { link: LAN, address: LAN6.into(), by: LinkAddress::ethernet(B_MAC.0) };
    let forged = claim(B_MAC, A6, LAN6);
    for _ in 0..3 {
        let sent = gateway.receive(LAN, std::slice::from_ref(&forged));
        assert_eq!(advertised(&sent), [(ALL_NODES, LAN6, ROUTER_FLAG | OVERRIDE)]);
        assert!(advertised(&gateway.receive(LAN, std::slice::from_ref(&forged))).is_empty());
        assert_eq!(gateway.events(), std::slice::from_ref(&told));
        gateway.tick(11);
    }
    assert!(gateway.drops().contains(&("ndp", "conflict", 6)));
    assert_eq!(advertised(&gateway.receive(LAN, &[solicitation(A_MAC, A6, LAN6)])).len(), 1);
}

/// RFC 4862 §5.4: a duplicate found while the address is checked is not used; once the other
/// station is gone, within a minute, it is.
#[test]
fn a_duplicate_that_has_gone_is_found_to_be_unique() {
    let mut gateway = fresh();
    gateway.tick(1);
    // Whoever has the address answers from it.
    gateway.receive(LAN, &[claim(B_MAC, LAN6, LAN6)]);
    let duplicate =
        Event::Duplicate { link: LAN, address: LAN6.into(), by: LinkAddress::ethernet(B_MAC.0) };
    assert!(gateway.events().contains(&duplicate));
    let taken = Address { state: AddressState::Duplicate, ..with(LAN6) };
    gateway.host.add_address(LAN, taken).unwrap();
    assert!(advertised(&gateway.receive(LAN, &[solicitation(A_MAC, A6, LAN6)])).is_empty());
    gateway.tick(58);
    gateway.events();
    assert_eq!(probed(&gateway.tick(4)), [LAN6]);
    assert_eq!(gateway.events(), [Event::Unique { link: LAN, address: LAN6.into() }]);
}

/// A group's address, zeros and our own are no other station's, and on Ethernet an address has six
/// octets (RFC 2464 §6: "Length 1"): a message that says otherwise is not believed. Who sends it is
/// not answered, and neither changes a neighbour nor becomes one.
#[test]
fn stations_that_cannot_be_are_no_neighbours() {
    let mut gateway = gateway();
    let stranger = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 9);
    let own = [&[1, 1][..], &LAN_MAC.0].concat();
    let options: [(&str, &[u8]); 6] = [
        ("bad-station", &[1, 1, 0, 0, 0, 0, 0, 0]),
        ("bad-station", &[1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
        ("bad-station", &[1, 1, 0x33, 0x33, 0, 0, 0, 1]),
        ("own-station", &own),
        ("invalid-message", &[1, 2, 2, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0]),
        (
            "invalid-message",
            &[1, 3, 2, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ),
    ];
    for (reason, option) in options {
        for from in [A6, stranger, link_local(9)] {
            let before = dropped(&gateway, reason);
            let messages = messages_with(from, option);
            for (to, message) in &messages {
                let ends = (from, *to);
                let payload = icmp(ends, message.clone());
                let frame = frame(LAN_MAC, B_MAC, IpProtocol::ICMPV6, ends, 255, &payload);
                assert!(gateway.receive(LAN, &[frame]).is_empty(), "{option:x?} {message:x?}");
            }
            let counted = dropped(&gateway, reason) - before;
            assert_eq!(counted, messages.len() as u64, "{option:x?} {from}");
        }
    }
    let to = |ip| frame(WAN_MAC, B_MAC, IpProtocol(253), (B6, ip), 64, b"x");
    let sent = gateway.receive(WAN, &[to(A6)]);
    assert_eq!(sent[0].1[..6], A_MAC.0, "A is where it was");
    let sent = gateway.receive(WAN, &[to(stranger)]);
    let asked = packets(&sent);
    assert_eq!((asked[0].1.destination_address, asked[0].2[0]), (solicited(stranger), 135));
}

/// The messages that give a station's address, each with its destination; those of routers only from
/// link-local addresses, of which alone they are believed.
fn messages_with(from: Ipv6Addr, option: &[u8]) -> Vec<(Ipv6Addr, Vec<u8>)> {
    let mut target = option.to_vec();
    target[0] = 2;
    let (ours, plain) = (LAN6.octets(), from.octets());
    let solicitation = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &ours, option].concat();
    // Solicited and overriding.
    let advertisement = [&[136, 0, 0, 0, 0x60, 0, 0, 0][..], &plain, &target].concat();
    let router_solicitation = [&[133, 0, 0, 0, 0, 0, 0, 0][..], option].concat();
    let mut messages =
        vec![(solicited(LAN6), solicitation), (LAN6, advertisement), (LAN6, router_solicitation)];
    if from.is_unicast_link_local() {
        let head = [134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
        messages.push((ALL_NODES, [&head[..], option].concat()));
        let redirect = [&[137, 0, 0, 0, 0, 0, 0, 0][..], &plain, &plain, &target].concat();
        messages.push((LAN6, redirect));
    }
    messages
}

/// How often neighbour discovery has dropped for this reason.
fn dropped(gateway: &Gateway, reason: &str) -> u64 {
    let drops = gateway.drops();
    drops.iter().filter(|drop| (drop.0, drop.1) == ("ndp", reason)).map(|drop| drop.2).sum()
}

/// The targets of the probes among what was sent (RFC 4862 §5.4.2): from nobody, to their group.
fn probed(sent: &[common::Frame]) -> Vec<Ipv6Addr> {
    let sent = packets(sent).into_iter().filter(|(_, _, message)| message[0] == 135);
    sent.filter(|(_, ip, _)| ip.source_address.is_unspecified())
        .map(|(_, ip, message)| {
            let target = Ipv6Addr::from_octets(*message[8..].first_chunk().unwrap());
            assert_eq!(ip.destination_address, solicited(target));
            target
        })
        .collect()
}

/// A link that was down may be another network: its addresses are checked again, duplicates too, and
/// its neighbours are forgotten.
#[test]
fn a_link_that_comes_up_begins_anew() {
    let mut gateway = gateway();
    let taken = Address { state: AddressState::Duplicate, ..with(LAN6) };
    gateway.host.add_address(LAN, taken).unwrap();
    gateway.host.change_interface(LAN, |interface| interface.up = false);
    gateway.tick(1);
    gateway.host.change_interface(LAN, |interface| interface.up = true);
    let mut again = probed(&gateway.tick(5));
    again.sort();
    assert_eq!(again, [LAN6, link_local(0x10)]);
    assert!(gateway.events().contains(&Event::Unique { link: LAN, address: LAN6.into() }));
    let back = frame(WAN_MAC, B_MAC, IpProtocol(253), (B6, A6), 64, b"x");
    let asked = packets(&gateway.receive(WAN, &[back]));
    assert_eq!((asked[0].0, asked[0].2[0]), (LAN, 135), "A is asked for");
}

/// RFC 4429 §3.3 and §3.2: an address that is being checked overrides nobody's cache, and no
/// solicitation from it tells a source link-layer address.
#[test]
fn an_address_that_is_being_checked_overrides_nothing() {
    let mut gateway = fresh();
    let sent = gateway.receive(LAN, &[solicitation(A_MAC, A6, LAN6)]);
    assert_eq!(advertised(&sent), [(A6, LAN6, ROUTER_FLAG | SOLICITED)]);
    let other = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 0xc);
    let transit = frame(LAN_MAC, A_MAC, IpProtocol(253), (A6, other), 64, b"x");
    let asks = |gateway: &mut Gateway| {
        let sent = packets(&gateway.receive(LAN, std::slice::from_ref(&transit)));
        sent.into_iter()
            .find(|(_, _, message)| message[0] == 135)
            .map(|(_, _, message)| message.len())
    };
    assert_eq!(asks(&mut gateway), Some(24), "no option");
    gateway.tick(10);
    let sent = gateway.receive(LAN, &[solicitation(A_MAC, A6, LAN6)]);
    assert_eq!(advertised(&sent), [(A6, LAN6, ROUTER_FLAG | SOLICITED | OVERRIDE)]);
    assert_eq!(asks(&mut gateway), Some(32));
}

/// RFC 4861 §7.1.1: "If the IP source address is the unspecified address, the IP destination address
/// is a solicited-node multicast address."
#[test]
fn a_probe_to_one_station_is_invalid() {
    let mut gateway = gateway();
    let head = NeighborSolicitationFields {
        kind: Icmpv6Type::NEIGHBOR_SOLICITATION,
        code: 0,
        checksum: 0,
        target_address: LAN6,
    };
    let ends = (Ipv6Addr::UNSPECIFIED, LAN6);
    let message = icmp(ends, head.emit().to_vec());
    let probe = frame(LAN_MAC, A_MAC, IpProtocol::ICMPV6, ends, 255, &message);
    assert!(packets(&gateway.receive(LAN, &[probe])).is_empty());
    assert!(gateway.drops().contains(&("ndp", "invalid-message", 1)));
}

/// RFC 4861 §7.2.6: a node whose link-layer address changes tells it to all nodes.
#[test]
fn a_new_hardware_address_is_advertised() {
    let mut gateway = gateway();
    let new = MacAddress([2, 0, 0, 0, 0, 0x11]);
    gateway.host.change_interface(LAN, |interface| {
        interface.link_address = LinkAddress::ethernet(new.0);
    });
    let sent = gateway.tick(1);
    let told = [LAN6, link_local(0x10)].map(|ip| (ALL_NODES, ip, ROUTER_FLAG | OVERRIDE));
    assert_eq!(advertised(&sent), told);
    assert!(packets(&sent).iter().all(|(_, _, message)| message[26..32] == new.0));
}

/// A promiscuous link shows what is said to other stations; they answer it, not we.
#[test]
fn messages_to_other_stations_are_not_heard() {
    let mut gateway = cold(|interface| interface.promiscuous = true);
    let mut asked = solicitation(A_MAC, A6, LAN6);
    asked[..6].copy_from_slice(&B_MAC.0);
    assert!(packets(&gateway.receive(LAN, &[asked])).is_empty());
    assert!(gateway.drops().iter().any(|(_, reason, _)| *reason == "other-station"));
}

/// A router advertisement with `options`, of preference `bits`.
fn advertisement(bits: u8, options: &[u8]) -> Vec<u8> {
    let head = RouterAdvertisementFields {
        kind: Icmpv6Type::ROUTER_ADVERTISEMENT,
        code: 0,
        checksum: 0,
        cur_hop_limit: 64,
        managed: false,
        other_config: false,
        home_agent: false,
        preference: bits,
        router_lifetime: 1800,
        reachable_time: 0,
        retrans_timer: 0,
    };
    let message = icmp((ROUTER, ALL_NODES), [&head.emit()[..], options].concat());
    let all = MacAddress::of_ipv6_multicast(ALL_NODES);
    frame(all, A_MAC, IpProtocol::ICMPV6, (ROUTER, ALL_NODES), 255, &message)
}

fn router(preference: RouterPreference) -> Event {
    let lifetime = Duration::from_mins(30);
    Event::Router { link: LAN, address: ROUTER.into(), lifetime, preference }
}

/// RFC 8106 §5.3.1 discards an option that is invalid, RFC 4861 §4.6.4 ignores an MTU below the
/// smallest; the advertisement around them counts. One with an option of length zero does not
/// (§6.1.2).
#[test]
fn a_bad_option_does_not_spoil_the_advertisement() {
    let short_resolvers = [25, 2, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0];
    let (small, good) = ([5, 1, 0, 0, 0, 0, 4, 0xff], [5, 1, 0, 0, 0, 0, 5, 0x78]);
    let mut host = cold(|interface| interface.autoconfigure = interface.link == LAN);
    let options = [&short_resolvers[..], &small, &good].concat();
    host.receive(LAN, &[advertisement(0, &options)]);
    let expected = [router(RouterPreference::Medium), Event::LinkMtu { link: LAN, mtu: 1400 }];
    assert_eq!(host.events(), expected);
    host.receive(LAN, &[advertisement(0, &[25, 0, 0, 0, 0, 0, 0, 0])]);
    assert!(host.events().is_empty());
}

/// RFC 4191 §2.2: 01 is high, 11 low, and 10 taken as 00, medium.
#[test]
fn the_preference_of_a_router_is_told() {
    use RouterPreference::{High, Low, Medium};
    for (bits, preference) in [(0b00, Medium), (0b01, High), (0b10, Medium), (0b11, Low)] {
        let mut host = cold(|interface| interface.autoconfigure = interface.link == LAN);
        host.receive(LAN, &[advertisement(bits, &[])]);
        assert_eq!(host.events(), [router(preference)]);
    }
}

/// RFC 4861 §7.3.3: a router that does not answer is none until it advertises itself; it is asked to,
/// instead of waited for.
#[test]
fn a_router_that_does_not_answer_is_asked_for_again() {
    let mut host = cold(|interface| interface.autoconfigure = interface.link == LAN);
    host.receive(LAN, &[advertisement(0, &[&[1, 1][..], &A_MAC.0].concat())]);
    let via = Route::Via { link: LAN, gateway: ROUTER.into() };
    host.host.add_route6(Prefix::all(), via).unwrap();
    host.events();
    let far = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    let transit = frame(WAN_MAC, B_MAC, IpProtocol(253), (B6, far), 64, b"x");
    assert!(!host.receive(WAN, &[transit]).is_empty());
    let asked = |sent: &[common::Frame]| {
        packets(sent).iter().filter(|(link, _, message)| (*link, message[0]) == (LAN, 133)).count()
    };
    assert_eq!(asked(&host.tick(6)), 0, "RFC 4861 §7.3.3: first the delay, then the probes");
    assert_eq!(asked(&host.tick(3)), 1);
    let lifetime = Duration::ZERO;
    let preference = RouterPreference::Medium;
    let gone = Event::Router { link: LAN, address: ROUTER.into(), lifetime, preference };
    assert_eq!(host.events(), [gone]);
    assert_eq!(asked(&host.tick(60)), 2, "three in all, as at the start");
}

/// RFC 4861 §6.2.5: a router that ceases to be one says so, with a lifetime of zero.
#[test]
fn a_router_that_ceases_to_advertise_says_so() {
    let advertise = |interface: &mut Interface| {
        interface.advertise = Some(Advertise {
            interval: Duration::from_mins(10),
            lifetime: Duration::from_mins(30),
            hop_limit: 64,
            mtu: true,
        });
    };
    let mut gateway = cold(advertise);
    let lifetimes = |sent: &[common::Frame]| -> Vec<u16> {
        let advertisements = packets(sent)
            .into_iter()
            .filter(|(link, _, message)| *link == LAN && message[0] == 134);
        advertisements.map(|(_, _, message)| u16::from_be_bytes([message[6], message[7]])).collect()
    };
    gateway.tick(20);
    gateway.host.change_interface(LAN, |interface| interface.advertise = None);
    assert_eq!(lifetimes(&gateway.tick(60)), [0]);
    assert_eq!(lifetimes(&gateway.tick(3600)), []);
    assert_eq!(lifetimes(&gateway.end()), [], "it was said");
    let mut gateway = cold(advertise);
    gateway.tick(20);
    assert_eq!(lifetimes(&gateway.end()), [0]);
}
