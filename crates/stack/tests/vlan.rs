//! VLANs: links of their own on the cable of another (IEEE 802.1Q).
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

mod common;

use common::{
    A, B, Gateway, LAN, LAN_IP, LAN_MAC, WAN, WAN_IP, address, ether, from_a, hex, interface, ipv4,
};
use gatewright_packet::LinkIndex;
use gatewright_stack::{
    Attachment, AttachmentId, Counter, Handler, Place, Side, SuiteLink, Swap, VirtualLink,
    WiringError,
    builtin::{Count, Filter, Match, Mirror},
};
use gatewright_wire::{EtherType, IpProtocol, MacAddress, arp::ArpFields};

const ALL: MacAddress = MacAddress::BROADCAST;
const CABLE: LinkIndex = LinkIndex(2);

/// VLAN 10 is the LAN, VLAN 20 the WAN, both of priority 3, on one cable that is a link, too.
fn gateway() -> Gateway {
    let vlan = |link, id| SuiteLink::Virtual(VirtualLink::vlan(link, CABLE, id, 3));
    let links = [SuiteLink::Ethernet(CABLE), vlan(LAN, 10), vlan(WAN, 20)];
    let mut gateway = Gateway::of(&links, |_| {});
    for (link, ip) in [(LAN, LAN_IP), (WAN, WAN_IP)] {
        gateway.host.add_interface(interface(link, LAN_MAC, vec![address(ip, 24)])).unwrap();
    }
    gateway.host.add_interface(interface(CABLE, LAN_MAC, Vec::new())).unwrap();
    gateway.tick(10);
    gateway
}

/// A frame with the tag `tci`.
fn tagged(to: MacAddress, from: MacAddress, tci: &str, kind: EtherType, payload: &[u8]) -> Vec<u8> {
    let kind = kind.0.to_be_bytes().to_vec();
    ether(to, from, EtherType::VLAN, &[hex(tci), kind, payload.to_vec()].concat())
}

/// A packet from A to B.
fn packet(time_to_live: u8) -> Vec<u8> {
    ipv4(A.1, B.1, IpProtocol::UDP, b"data", |ip| ip.time_to_live = time_to_live)
}

/// Has the gateway know B.
fn introduce(gateway: &mut Gateway) {
    let request = ArpFields::request(B.0, B.1, WAN_IP);
    let asked = tagged(ALL, B.0, "0014", EtherType::ARP, &request.emit());
    // Priority 3 is 0x6000 of the tag.
    let reply = tagged(B.0, LAN_MAC, "6014", EtherType::ARP, &request.reply(LAN_MAC).emit());
    assert_eq!(gateway.receive(CABLE, &[asked]), [(CABLE, reply)]);
}

#[test]
fn vlans_are_links_of_their_own() {
    let mut gateway = gateway();
    introduce(&mut gateway);
    let come = tagged(LAN_MAC, A.0, "000a", EtherType::IPV4, &packet(64));
    let gone = tagged(B.0, LAN_MAC, "6014", EtherType::IPV4, &packet(63));
    assert_eq!(gateway.receive(CABLE, &[come]), [(CABLE, gone)]);
    let foreign = tagged(ALL, A.0, "001e", EtherType::ARP, &[]);
    assert!(gateway.receive(CABLE, &[foreign]).is_empty());
    assert_eq!(gateway.drops(), [("vlan", "unknown-vlan", 1)]);
    assert!(gateway.is_clean());
}

/// IEEE 802.1Q table 9-2: identifier 0 is no VLAN, the tag carries only a priority.
#[test]
fn a_tag_of_no_vlan_is_a_priority_only() {
    let mut gateway = gateway();
    gateway.host.add_address(CABLE, address([10, 0, 2, 1].into(), 24)).unwrap();
    gateway.tick(10);
    let request = ArpFields::request(A.0, [10, 0, 2, 2].into(), [10, 0, 2, 1].into());
    let asked = tagged(ALL, A.0, "e000", EtherType::ARP, &request.emit());
    let reply = ether(A.0, LAN_MAC, EtherType::ARP, &request.reply(LAN_MAC).emit());
    assert_eq!(gateway.receive(CABLE, &[asked]), [(CABLE, reply)]);
}

#[test]
fn a_vlan_that_is_down_takes_and_gives_nothing() {
    let mut gateway = gateway();
    introduce(&mut gateway);
    gateway.host.change_interface(LAN, |interface| interface.up = false);
    gateway.tick(0);
    let come = tagged(LAN_MAC, A.0, "000a", EtherType::IPV4, &packet(64));
    assert!(gateway.receive(CABLE, &[come]).is_empty());
    assert_eq!(gateway.drops(), [("vlan", "link-down", 1)]);
}

/// Attaches `handler`, and gives its attachment's error if nothing passes there.
fn attach(
    gateway: &mut Gateway,
    attachment: Attachment,
    handler: impl Handler + 'static,
) -> Result<(), WiringError> {
    let id = AttachmentId(1);
    let wiring = gateway.plan.wire(&[(id, attachment)])?;
    let handlers: Vec<(_, Box<dyn Handler>, _)> = vec![(id, Box::new(handler), Counter::default())];
    gateway.graph.swap(Swap { wiring, handlers });
    Ok(())
}

fn on(link: LinkIndex, at: &str, side: Side, place: Place) -> Attachment {
    Attachment { at: at.parse().unwrap(), side, place, link: Some(link) }
}

/// What each handler sees of a packet that comes by VLAN 10 and leaves by VLAN 20, and of a frame
/// without a tag.
#[test]
fn a_handler_on_a_vlan_sees_its_packets_only() {
    use Side::{Receive, Transmit};
    let (frame, ip) = ("frame", "ether:ipv4");
    for (link, at, side, seen) in [
        (LAN, frame, Receive, 1),
        (LAN, frame, Transmit, 0),
        (WAN, frame, Receive, 0),
        (WAN, frame, Transmit, 1),
        (CABLE, frame, Receive, 2),
        (CABLE, frame, Transmit, 1),
        (LAN, ip, Receive, 1),
        (WAN, ip, Receive, 0),
        (WAN, ip, Transmit, 1),
        (CABLE, ip, Receive, 1),
        (LAN, "ip:udp", Receive, 0),
        (LAN, "ether:0x88b5", Receive, 0),
    ] {
        let mut gateway = gateway();
        introduce(&mut gateway);
        let count = Count::default();
        attach(&mut gateway, on(link, at, side, Place::Tap), count.clone()).unwrap();
        let come = tagged(LAN_MAC, A.0, "000a", EtherType::IPV4, &packet(64));
        // Nobody's packet: it is dropped where it is looked at.
        let martian = ipv4(A.1, [127, 0, 0, 1].into(), IpProtocol::UDP, b"data", |_| {});
        let sent = gateway.receive(CABLE, &[come, from_a(&martian)]);
        assert_eq!(sent.len(), 1);
        assert_eq!(count.packets(), seen, "{link} {at} {side}");
    }
    let behind = on(LAN, frame, Receive, Place::After);
    let refused = attach(&mut gateway(), behind, Count::default());
    assert_eq!(refused, Err(WiringError::NoSuchPosition(behind)));
}

/// The IP header of a frame with a tag is found behind the tag.
#[test]
fn a_match_looks_behind_the_tag() {
    for (port, sent) in [(0x6461, 1), (0x7461, 0)] {
        let mut gateway = gateway();
        introduce(&mut gateway);
        // The payload is "data": what is read as the ports is "da" and "ta".
        let which = Match { port: Some(port), ..Match::default() };
        let drop = Filter::dropping(which);
        attach(&mut gateway, on(LAN, "frame", Side::Receive, Place::Before), drop).unwrap();
        let come = tagged(LAN_MAC, A.0, "000a", EtherType::IPV4, &packet(64));
        assert_eq!(gateway.receive(CABLE, &[come]).len(), sent, "{port}");
    }
}

#[test]
fn what_is_mirrored_to_a_vlan_carries_its_tag() {
    let mut gateway = gateway();
    let mirror = Mirror::new(WAN);
    attach(&mut gateway, on(CABLE, "frame", Side::Receive, Place::Tap), mirror).unwrap();
    let frame = ether(LAN_MAC, A.0, EtherType(0x88b5), b"whatever");
    let copy = tagged(LAN_MAC, A.0, "6014", EtherType(0x88b5), b"whatever");
    assert_eq!(gateway.receive(CABLE, &[frame]), [(CABLE, copy)]);
}
