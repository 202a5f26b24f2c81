//! Packets whose source no host can have: RFC 1122 §3.2.1.3, RFC 1812 §5.3.7. None is taken,
//! answered or forwarded.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

mod common;

use common::{
    A, B, Gateway, LAN, LAN_IP, LAN_MAC, WAN, WAN_IP, WAN_MAC, address, from_a, hex, interface,
    ipv4,
    ipv6::{self, A_MAC, A6, B6, LAN6, WAN6, frame, icmp, link_local, packets},
};
use gatewright_stack::{Address, ApplicationSockets, SocketApplication, SuiteLink};
use gatewright_wire::IpProtocol;
use std::net::{Ipv4Addr, Ipv6Addr};

/// An echo request, and a datagram to the echo port from the echo port.
fn payloads() -> [(IpProtocol, Vec<u8>); 2] {
    [
        (IpProtocol::ICMPV4, hex("0800 f7ff 0000 0000")),
        (IpProtocol::UDP, hex("0007 0007 0008 0000")),
    ]
}

/// RFC 1812 §5.3.7: "A router SHOULD NOT forward any packet that has an invalid IP source address".
/// RFC 1122 §3.2.1.3: "A host MUST silently discard an incoming datagram containing an IP source
/// address that is invalid by the rules of this section".
#[test]
fn our_own_addresses_and_those_of_whole_subnets_are_no_sources() {
    let sources = [LAN_IP, WAN_IP, Ipv4Addr::new(10, 0, 0, 255), Ipv4Addr::new(10, 0, 1, 255)];
    let destinations = [LAN_IP, WAN_IP, B.1, Ipv4Addr::new(203, 0, 113, 1)];
    for (from, to) in sources.into_iter().flat_map(|from| destinations.map(|to| (from, to))) {
        for (protocol, payload) in payloads() {
            let mut gateway = Gateway::new();
            let packet = ipv4(from, to, protocol, &payload, |_| {});
            assert_eq!(gateway.receive(LAN, &[from_a(&packet)]), [], "{from} to {to}");
            assert_eq!(gateway.drops(), [("ipv4", "martian", 1)], "{from} to {to}");
            assert!(gateway.is_clean());
        }
    }
}

#[test]
fn an_address_that_is_given_up_may_be_anothers() {
    let mut gateway = Gateway::new();
    let own = Ipv4Addr::new(10, 0, 0, 9);
    let packet = ipv4(own, B.1, IpProtocol::UDP, b"", |_| {});
    let forwards = |gateway: &mut Gateway| {
        gateway.tick(10);
        gateway.receive(LAN, &[from_a(&packet)]).len()
    };
    assert_eq!(forwards(&mut gateway), 1);
    gateway.host.add_address(LAN, address(own, 24)).unwrap();
    assert_eq!(forwards(&mut gateway), 0);
    gateway.host.remove_address(LAN, own.into());
    assert_eq!(forwards(&mut gateway), 1);
}

#[test]
fn our_own_addresses_are_no_sources_over_ipv6_either() {
    let nowhere = Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, 1);
    for (from, to) in
        [LAN6, WAN6].into_iter().flat_map(|from| [LAN6, B6, nowhere].map(|to| (from, to)))
    {
        let mut gateway = ipv6::gateway();
        let request = icmp((from, to), vec![128, 0, 0, 0, 0, 1, 0, 1]);
        let request = frame(LAN_MAC, A_MAC, IpProtocol::ICMPV6, (from, to), 64, &request);
        assert_eq!(gateway.receive(LAN, &[request]), [], "{from} to {to}");
        assert_eq!(gateway.drops(), [("ipv6", "bad-source", 1)], "{from} to {to}");
    }
}

/// RFC 4007 §6: what is ours on one link may be another host's on another.
#[test]
fn a_link_local_address_is_ours_on_its_link_only() {
    let mut gateway = ipv6::gateway();
    let ping = |from, to, station| {
        let request = icmp((from, to), vec![128, 0, 0, 0, 0, 1, 0, 1]);
        frame(station, A_MAC, IpProtocol::ICMPV6, (from, to), 64, &request)
    };
    let [ours, other] = [link_local(0x10), link_local(0x20)];
    assert!(packets(&gateway.receive(LAN, &[ping(ours, ours, LAN_MAC)])).is_empty());
    assert_eq!(gateway.drops(), [("ipv6", "bad-source", 1)]);
    assert!(!packets(&gateway.receive(WAN, &[ping(ours, other, WAN_MAC)])).is_empty());
}

/// A frame that a promiscuous link saw is another station's: nothing of it is answered or forwarded.
#[test]
fn nothing_is_answered_for_another_station() {
    let mut gateway = ipv6::cold(|own| own.promiscuous = true);
    let elsewhere = gatewright_wire::MacAddress([2, 0, 0, 0, 0, 0x77]);
    for to in [LAN6, B6] {
        let request = icmp((A6, to), vec![128, 0, 0, 0, 0, 1, 0, 1]);
        let seen = frame(elsewhere, A_MAC, IpProtocol::ICMPV6, (A6, to), 64, &request);
        assert_eq!(gateway.receive(LAN, &[seen]), []);
    }
    assert_eq!(gateway.drops(), [("ipv6", "other-station", 2)]);

    let mut gateway = Gateway::of(&[SuiteLink::Ethernet(LAN), SuiteLink::Ethernet(WAN)], |_| {});
    for (link, mac, ip) in [(LAN, LAN_MAC, LAN_IP), (WAN, WAN_MAC, WAN_IP)] {
        let addresses: Vec<Address> = vec![address(ip, 24)];
        let mut own = interface(link, mac, addresses);
        own.promiscuous = true;
        gateway.host.add_interface(own).unwrap();
    }
    gateway.tick(10);
    for to in [LAN_IP, B.1] {
        let packet = ipv4(A.1, to, IpProtocol::UDP, &hex("0007 0007 0008 0000"), |_| {});
        let seen = common::ether(elsewhere, A.0, gatewright_wire::EtherType::IPV4, &packet);
        assert_eq!(gateway.receive(LAN, &[seen]), []);
    }
    assert_eq!(gateway.drops(), [("ipv4", "other-station", 2)]);
}

/// Sends everything back to where it came from.
struct Echo;

impl SocketApplication for Echo {
    fn handle(&mut self, sockets: &mut ApplicationSockets<'_, '_>) {
        while let Some(socket) = sockets.next_ready() {
            while let Some(datagram) = sockets.receive(socket) {
                let to = datagram.from();
                sockets.forward(socket, datagram, to).unwrap();
            }
        }
    }
}

/// Two applications that answer whatever they get: a datagram in the name of one to the other would
/// go to and fro between them for ever.
#[test]
fn no_forged_datagram_circles_between_two_applications() {
    let mut gateway = Gateway::new();
    let locals = [(LAN_IP, 7).into(), (WAN_IP, 9).into()];
    let _first = gateway.sockets.run(&locals[..1], Box::new(Echo)).unwrap();
    let _second = gateway.sockets.run(&locals[1..], Box::new(Echo)).unwrap();
    gateway.tick(0);
    for (from, to, ports) in [
        (WAN_IP, LAN_IP, "0009 0007"),
        (LAN_IP, WAN_IP, "0007 0009"),
        (LAN_IP, LAN_IP, "0007 0007"),
    ] {
        let datagram = hex(&format!("{ports} 0008 0000"));
        let forged = ipv4(from, to, IpProtocol::UDP, &datagram, |_| {});
        assert_eq!(gateway.receive(LAN, &[from_a(&forged)]), []);
    }
    assert_eq!(gateway.drops(), [("ipv4", "martian", 3)], "none went in a loop");
}
