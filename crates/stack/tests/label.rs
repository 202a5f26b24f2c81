//! Label switching in the graph (RFC 3031, RFC 3032).
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

mod common;

use common::{
    A, B, Gateway, LAN, LAN_IP, LAN_MAC, WAN, WAN_IP, WAN_MAC, address, ether, hex, interface, ipv4,
};
use gatewright_packet::{LinkAddress, LinkIndex};
use gatewright_stack::{
    Attachment, AttachmentId, Counter, Handler, LabelCounts, LabelledLink, NeighbourLimits, Place,
    Side, SuiteLink, Swap, Wake, assemble_labelled, builtin::Count,
};
use gatewright_tables::{LabelAreas, LabelHop, LabelHops, LabelLink, LabelTableWriter, PathKey};
use gatewright_wire::{EtherType, IpProtocol, MacAddress};
use std::{net::Ipv4Addr, sync::Arc};

const MESH: LinkIndex = LinkIndex(2);
const MESH_IP: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const MESH_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 0x30]);
/// A host of the network behind the labels.
const FAR: (MacAddress, Ipv4Addr) = (MacAddress([2, 0, 0, 0, 0, 0xf]), Ipv4Addr::new(10, 9, 0, 2));

struct Asleep;

impl Wake for Asleep {
    fn wake(&self) {}
}

struct Node {
    gateway: Gateway,
    tables: LabelTableWriter,
    counts: LabelCounts,
}

impl Node {
    fn count(&self, label: u32) -> (u64, u64) {
        let place = self.tables.table().place_of_label(label).unwrap();
        self.counts.label(place)
    }

    /// Drops by reason, but for what the host itself says to groups when it starts.
    fn drops(&self) -> Vec<(&'static str, &'static str, u64)> {
        self.gateway.drops().into_iter().filter(|(_, reason, _)| *reason != "group").collect()
    }
}

fn hop(link: LinkIndex, to: MacAddress, label: Option<u32>) -> LabelHop {
    LabelHop { link: link.0.into(), address: to.0, label }
}

/// Labels over two links: 200 goes from A to B as 300, with a backup back to A; 201 ends here.
fn node() -> Node {
    let mut tables = LabelTableWriter::new(LabelAreas::private());
    for (link, mac) in [(LAN, LAN_MAC), (WAN, WAN_MAC), (MESH, MESH_MAC)] {
        let what = LabelLink { interface: 0, address: mac.0, takes_super_frames: true };
        tables.set_link(link.0.into(), Some(&what)).unwrap();
        tables.set_link_up(link.0.into(), true).unwrap();
    }
    let backup = Some(hop(LAN, A.0, Some(301)));
    let through = LabelHops { primary: hop(WAN, B.0, Some(300)), backup };
    tables.set_label(200, Some(&through)).unwrap();
    let here = LabelHops { primary: hop(MESH, MESH_MAC, None), backup: None };
    tables.set_label(201, Some(&here)).unwrap();
    let counts = LabelCounts::default();
    let own = LabelledLink { link: MESH, table: tables.table(), counts: counts.clone() };
    let links = [SuiteLink::Ethernet(LAN), SuiteLink::Ethernet(WAN)];
    let limits = NeighbourLimits::default();
    let mut gateway = Gateway::of(&links, |suite| {
        *suite = assemble_labelled(&links, Arc::new(Asleep), 42, limits, Some(own));
        let mesh = suite.neighbours.iter().find(|of| of.link == MESH).unwrap();
        mesh.v4.borrow_mut().set_permanent(FAR.1.into(), LinkAddress::ethernet(FAR.0.0));
    });
    for (link, mac, ip) in
        [(LAN, LAN_MAC, LAN_IP), (WAN, WAN_MAC, WAN_IP), (MESH, MESH_MAC, MESH_IP)]
    {
        gateway.host.add_interface(interface(link, mac, vec![address(ip, 24)])).unwrap();
    }
    gateway.tick(10);
    Node { gateway, tables, counts }
}

fn labelled(to: MacAddress, from: MacAddress, entries: &str, packet: &[u8]) -> Vec<u8> {
    ether(to, from, EtherType::MPLS, &[hex(entries), packet.to_vec()].concat())
}

fn packet() -> Vec<u8> {
    ipv4(A.1, FAR.1, IpProtocol::UDP, b"data", |_| {})
}

/// RFC 3032 §2.1: 200 is 0x000c8, 300 is 0x0012c, 301 is 0x0012d; then class, bottom of stack, TTL.
#[test]
fn a_label_is_swapped_and_its_ttl_spent() {
    let mut node = node();
    for (come, gone) in [
        ("000c8340", "0012c33f"),
        ("000c8102", "0012c101"),
        // Of a stack only the top entry is looked at, whatever it lies on.
        ("000c8240 0000d140", "0012c23f 0000d140"),
    ] {
        let come = labelled(LAN_MAC, A.0, come, &packet());
        let gone = labelled(B.0, WAN_MAC, gone, &packet());
        assert_eq!(node.gateway.receive(LAN, &[come]), [(WAN, gone)]);
    }
    assert_eq!(node.count(200), (3, 3 * (14 + 4 + 24) + 4));
    assert!(node.gateway.is_clean());
}

#[test]
fn one_store_takes_a_backup_and_one_takes_it_back() {
    let mut node = node();
    let come = labelled(LAN_MAC, A.0, "000c8140", &packet());
    let spare = labelled(A.0, LAN_MAC, "0012d13f", &packet());
    let usual = labelled(B.0, WAN_MAC, "0012c13f", &packet());
    node.tables.set_link_up(WAN.0.into(), false).unwrap();
    assert_eq!(node.gateway.receive(LAN, std::slice::from_ref(&come)), [(LAN, spare)]);
    node.tables.set_link_up(WAN.0.into(), true).unwrap();
    assert_eq!(node.gateway.receive(LAN, std::slice::from_ref(&come)), [(WAN, usual)]);
    for link in [LAN, WAN] {
        node.tables.set_link_up(link.0.into(), false).unwrap();
    }
    assert!(node.gateway.receive(LAN, &[come]).is_empty());
    assert_eq!(node.drops(), [("label", "link-down", 1)]);
}

#[test]
fn what_cannot_be_forwarded_is_dropped_by_reason() {
    let ip = packet();
    for (entries, packet, reason) in [
        ("000c8101", &ip[..], "expired"),
        ("000c8100", &ip, "expired"),
        ("00010140", &ip, "unknown-label"),
        ("0000d140", &ip, "reserved-label"),
        ("00002140", &ip, "reserved-label"),
        // Two labels, of which the first ends here.
        ("000c9040 000c8140", &ip, "reserved-label"),
        ("000c9140", b"\x10\0\0\0", "not-ip"),
        ("000c9140", b"", "truncated"),
        ("000c81", b"", "truncated"),
    ] {
        let mut node = node();
        let come = labelled(LAN_MAC, A.0, entries, packet);
        assert!(node.gateway.receive(LAN, &[come]).is_empty());
        assert_eq!(node.drops(), [("label", reason, 1)], "{entries}");
        assert_eq!(node.count(200), (0, 0));
    }
}

/// A packet to FAR leaves with the label of its class; one from FAR arrives as the host's.
#[test]
fn a_host_sends_and_receives_by_labels() {
    let mut node = node();
    for (class, label) in [(0, 100), (1, 101), (2, 102), (3, 103)] {
        let key = PathKey { destination: FAR.0.0, class };
        let hops = LabelHops { primary: hop(WAN, B.0, Some(label)), backup: None };
        node.tables.set_path(key, Some(&hops)).unwrap();
    }
    // RFC 2474 §4.2.2: precedence 0, 1, 5 and 6 in the upper bits of the second octet.
    for (service, entry) in
        [(0x00, "00066540"), (0x20, "00067740"), (0xb8, "00065340"), (0xc0, "00064140")]
    {
        let sent = ipv4(MESH_IP, FAR.1, IpProtocol::UDP, b"data", |ip| {
            ip.type_of_service = service;
        });
        let gone = node.gateway.transmit(MESH, &sent);
        let head = labelled(B.0, WAN_MAC, entry, &sent[..4]);
        assert_eq!(gone.len(), 1, "{service:#x}");
        assert_eq!((gone[0].0, &gone[0].1[..22]), (WAN, &head[..]), "{service:#x}");
    }
    let echo = ipv4(FAR.1, MESH_IP, IpProtocol::ICMPV4, &hex("0800f7ff 0000 0000"), |_| {});
    let sent = node.gateway.receive(LAN, &[labelled(LAN_MAC, A.0, "000c9140", &echo)]);
    assert_eq!(sent.len(), 1, "{:?}", node.drops());
    let (link, reply) = &sent[0];
    assert_eq!((*link, &reply[..18]), (WAN, &labelled(B.0, WAN_MAC, "00066540", &[])[..]));
    assert_eq!(node.count(201).0, 1);
    let key = PathKey { destination: FAR.0.0, class: 2 };
    let place = node.tables.table().place_of_path(key).unwrap();
    assert_eq!(node.counts.path(place).0, 2);
    assert!(node.gateway.is_clean());
}

#[test]
fn a_host_without_a_path_drops_by_reason() {
    let mut node = node();
    let sent = ipv4(MESH_IP, FAR.1, IpProtocol::UDP, b"data", |_| {});
    assert!(node.gateway.transmit(MESH, &sent).is_empty());
    assert_eq!(node.drops(), [("label", "no-path", 1)]);
}

/// A handler at `label:200` sees payloads with that label, and nothing else changes.
#[test]
fn a_handler_at_a_label_sees_its_payloads() {
    let mut node = node();
    let id = AttachmentId(1);
    let at = "label:200".parse().unwrap();
    let attachment = Attachment { at, side: Side::Receive, place: Place::Tap, link: None };
    let count = Count::default();
    let wiring = node.gateway.plan.wire(&[(id, attachment)]).unwrap();
    let handlers: Vec<(_, Box<dyn Handler>, _)> =
        vec![(id, Box::new(count.clone()), Counter::default())];
    node.gateway.graph.swap(Swap { wiring, handlers });
    let come = labelled(LAN_MAC, A.0, "000c8340", &packet());
    let gone = labelled(B.0, WAN_MAC, "0012c33f", &packet());
    assert_eq!(node.gateway.receive(LAN, &[come]), [(WAN, gone)]);
    assert_eq!((count.packets(), count.octets()), (1, 24));
    // Another label passes beside the handler.
    let other = labelled(LAN_MAC, A.0, "000c9140", b"\x10\0\0\0");
    assert!(node.gateway.receive(LAN, &[other]).is_empty());
    assert_eq!(node.drops(), [("label", "not-ip", 1)]);
    assert_eq!(count.packets(), 1);
}
