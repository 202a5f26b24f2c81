//! One frame and more for each protocol, with the fields that a dissector has to find in it.

mod above_ip;
mod discovery;

use gatewright_wire::{
    EtherType, IpProtocol, MacAddress, Writer,
    arp::ArpFields,
    ethernet::EthernetFields,
    ieee802154::{FcsFields, FrameType, FrameVersion, MacFields, StationAddress},
    ipv4::Ipv4Fields,
    ipv6::Ipv6Fields,
    lowpan::{
        BroadcastFields, FirstFragmentFields, IphcFields, MeshFields, NextFragmentFields,
        UdpEncodingFields,
    },
    mpls::{Label, LabelEntryFields},
    vlan::VlanFields,
};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Octets, and what they hold.
pub(crate) struct Frame {
    pub(crate) name: &'static str,
    pub(crate) octets: Vec<u8>,
    pub(crate) expected: Vec<(&'static str, &'static str)>,
}

const SOURCE_MAC: MacAddress = MacAddress([0x02, 0, 0, 0, 0, 0x01]);
const DESTINATION_MAC: MacAddress = MacAddress([0x02, 0, 0, 0, 0, 0x02]);
const SOURCE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const DESTINATION: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const SOURCE6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const DESTINATION6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

fn frame(name: &'static str, octets: Vec<u8>, expected: &[(&'static str, &'static str)]) -> Frame {
    Frame { name, octets, expected: expected.to_vec() }
}

fn length(octets: usize) -> u16 {
    u16::try_from(octets).unwrap()
}

fn ethernet(ether_type: EtherType, payload: &[u8]) -> Vec<u8> {
    let header =
        EthernetFields { destination: DESTINATION_MAC, source: SOURCE_MAC, ether_type }.emit();
    [header.as_slice(), payload].concat()
}

/// An IPv4 datagram without options in a frame.
fn ipv4(protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
    let total = length(20 + payload.len());
    let header = Ipv4Fields::new(protocol, SOURCE, DESTINATION, total).emit_with_checksum();
    ethernet(EtherType::IPV4, &[header.as_slice(), payload].concat())
}

/// An IPv6 packet in a frame; `next` is what `payload` begins with.
fn ipv6(next: IpProtocol, hop_limit: u8, payload: &[u8]) -> Vec<u8> {
    let mut fields = Ipv6Fields::new(next, SOURCE6, DESTINATION6, length(payload.len()));
    fields.hop_limit = hop_limit;
    ethernet(EtherType::IPV6, &[fields.emit().as_slice(), payload].concat())
}

/// Octets that a closure writes.
fn written(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut octets = [0; 512];
    let mut writer = Writer::new(&mut octets);
    write(&mut writer);
    writer.finish().to_vec()
}

/// Frames whose link is Ethernet.
pub(crate) fn ethernet_frames() -> Vec<Frame> {
    let mut frames = vec![arp(), vlan(), options(), fragment(), mpls()];
    frames.extend(above_ip::frames());
    frames.extend(discovery::frames());
    frames
}

fn arp() -> Frame {
    let arp = ArpFields::request(SOURCE_MAC, SOURCE, DESTINATION);
    frame(
        "arp",
        ethernet(EtherType::ARP, &arp.emit()),
        &[
            ("eth.src", "02:00:00:00:00:01"),
            ("eth.dst", "02:00:00:00:00:02"),
            ("eth.type", "0x0806"),
            ("arp.hw.type", "1"),
            ("arp.proto.type", "0x0800"),
            ("arp.hw.size", "6"),
            ("arp.proto.size", "4"),
            ("arp.opcode", "1"),
            ("arp.src.hw_mac", "02:00:00:00:00:01"),
            ("arp.src.proto_ipv4", "192.0.2.1"),
            ("arp.dst.hw_mac", "00:00:00:00:00:00"),
            ("arp.dst.proto_ipv4", "198.51.100.2"),
        ],
    )
}

fn vlan() -> Frame {
    let tag =
        VlanFields { priority: 5, drop_eligible: true, vlan_id: 0xabc, ether_type: EtherType::ARP };
    let arp = ArpFields::request(SOURCE_MAC, SOURCE, DESTINATION).reply(DESTINATION_MAC);
    frame(
        "vlan",
        ethernet(EtherType::VLAN, &[tag.emit().as_slice(), &arp.emit()].concat()),
        &[
            ("vlan.priority", "5"),
            ("vlan.dei", "1"),
            ("vlan.id", "2748"),
            ("vlan.etype", "0x0806"),
            ("arp.opcode", "2"),
            ("arp.src.hw_mac", "02:00:00:00:00:02"),
            ("arp.src.proto_ipv4", "198.51.100.2"),
        ],
    )
}

fn options() -> Frame {
    use gatewright_wire::ipv4::{AddressList, Ipv4Option};
    let options = written(|writer| {
        Ipv4Option::RouterAlert(0).emit(writer).unwrap();
        let addresses = &[SOURCE.octets(), [0; 4]];
        Ipv4Option::RecordRoute(AddressList { pointer: 8, addresses }).emit(writer).unwrap();
        writer.pad(4).unwrap();
    });
    let mut fields =
        Ipv4Fields::new(IpProtocol(253), SOURCE, DESTINATION, length(20 + options.len()));
    fields.ihl = u8::try_from(5 + options.len() / 4).unwrap();
    fields.type_of_service = 46 << 2 | 1;
    fields.identification = 0x1234;
    fields.flags = gatewright_wire::ipv4::Ipv4::DONT_FRAGMENT;
    fields.time_to_live = 17;
    let header = fields.emit_with_options(&options);
    frame(
        "ipv4_options",
        ethernet(EtherType::IPV4, &[header.as_slice(), &options].concat()),
        &[
            ("ip.version", "4"),
            ("ip.hdr_len", "36"),
            ("ip.dsfield.dscp", "46"),
            ("ip.dsfield.ecn", "1"),
            ("ip.len", "36"),
            ("ip.id", "0x1234"),
            ("ip.flags.df", "1"),
            ("ip.flags.mf", "0"),
            ("ip.frag_offset", "0"),
            ("ip.ttl", "17"),
            ("ip.proto", "253"),
            ("ip.checksum.status", "1"),
            ("ip.src", "192.0.2.1"),
            ("ip.dst", "198.51.100.2"),
            ("ip.opt.type", "148,7,0"),
            ("ip.opt.ptr", "8"),
            ("ip.opt.ra", "0"),
        ],
    )
}

fn fragment() -> Frame {
    let mut fields = Ipv4Fields::new(IpProtocol::UDP, SOURCE, DESTINATION, 28);
    fields.flags = gatewright_wire::ipv4::Ipv4::MORE_FRAGMENTS;
    fields.fragment_offset = 185;
    let header = fields.emit_with_checksum();
    frame(
        "ipv4_fragment",
        ethernet(EtherType::IPV4, &[header.as_slice(), &[0; 8]].concat()),
        &[("ip.flags.mf", "1"), ("ip.frag_offset", "185"), ("ip.checksum.status", "1")],
    )
}

fn mpls() -> Frame {
    let outer = LabelEntryFields {
        label: Label(200),
        traffic_class: 5,
        bottom_of_stack: false,
        time_to_live: 64,
    };
    let inner = LabelEntryFields { label: Label::MAX, bottom_of_stack: true, ..outer };
    let ip = Ipv4Fields::new(IpProtocol(253), SOURCE, DESTINATION, 20).emit_with_checksum();
    frame(
        "mpls",
        ethernet(EtherType::MPLS, &[outer.emit().as_slice(), &inner.emit(), &ip].concat()),
        &[
            ("mpls.label", "200,1048575"),
            ("mpls.exp", "5,5"),
            ("mpls.bottom", "0,1"),
            ("mpls.ttl", "64,64"),
            ("ip.checksum.status", "1"),
        ],
    )
}

/// Frames whose link is 802.15.4 with its check sequence.
pub(crate) fn checked_frames() -> Vec<Frame> {
    let mut octets = wpan_frames().swap_remove(0).octets;
    octets.extend(FcsFields::of(&octets).emit());
    vec![frame("802154_check_sequence", octets, &[("wpan.fcs_ok", "1"), ("wpan.seq_no", "42")])]
}

/// Frames whose link is 802.15.4.
pub(crate) fn wpan_frames() -> Vec<Frame> {
    let mac = MacFields {
        frame_type: FrameType::DATA,
        pending: false,
        ack_request: true,
        version: FrameVersion::V2006,
        sequence_number: Some(42),
        destination_pan: Some(0xbeef),
        destination: StationAddress::Extended([2, 0, 0, 0, 0, 0, 0, 2]),
        source_pan: None,
        source: StationAddress::Short(1),
    };
    let ipv6 = Ipv6Fields::new(IpProtocol::NO_NEXT_HEADER, SOURCE6, DESTINATION6, 0);
    let ipv6_frame = [&[gatewright_wire::lowpan::Dispatch::IPV6], ipv6.emit().as_slice()].concat();
    let other_pan = MacFields {
        pending: true,
        ack_request: false,
        destination: StationAddress::Short(2),
        source_pan: Some(0xcafe),
        source: StationAddress::Extended([2, 0, 0, 0, 0, 0, 0, 1]),
        ..mac
    };
    let mut frames = lowpan_frames(mac, &ipv6_frame);
    frames.extend([
        mac_frame(
            "802154_compressed_pan",
            mac,
            &ipv6_frame,
            &[
                ("wpan.frame_type", "0x0001"),
                ("wpan.security", "0"),
                ("wpan.pending", "0"),
                ("wpan.ack_request", "1"),
                ("wpan.pan_id_compression", "1"),
                ("wpan.version", "1"),
                ("wpan.seq_no", "42"),
                ("wpan.dst_pan", "0xbeef"),
                ("wpan.dst64", "02:00:00:00:00:00:00:02"),
                ("wpan.src16", "0x0001"),
                ("ipv6.src", "fe80::1"),
                ("ipv6.nxt", "59"),
            ],
        ),
        mac_frame(
            "802154_two_pans",
            other_pan,
            &ipv6_frame,
            &[
                ("wpan.pending", "1"),
                ("wpan.ack_request", "0"),
                ("wpan.pan_id_compression", "0"),
                ("wpan.dst16", "0x0002"),
                ("wpan.src_pan", "0xcafe"),
                ("wpan.src64", "02:00:00:00:00:00:00:01"),
            ],
        ),
    ]);
    frames
}

fn lowpan_frames(mac: MacFields, ipv6_frame: &[u8]) -> Vec<Frame> {
    let first = FirstFragmentFields { datagram_size: 1280, datagram_tag: 0x1234 };
    let next =
        NextFragmentFields { datagram_size: 1280, datagram_tag: 0x1234, datagram_offset: 12 };
    vec![
        mac_frame(
            "lowpan_first_fragment",
            mac,
            &[first.emit().as_slice(), ipv6_frame].concat(),
            &[
                ("6lowpan.pattern", "0x18,0x41"),
                ("6lowpan.frag.size", "1280"),
                ("6lowpan.frag.tag", "0x1234"),
            ],
        ),
        mac_frame(
            "lowpan_next_fragment",
            mac,
            &[next.emit().as_slice(), &[0; 8]].concat(),
            &[
                ("6lowpan.pattern", "0x1c"),
                ("6lowpan.frag.size", "1280"),
                ("6lowpan.frag.tag", "0x1234"),
                ("6lowpan.frag.offset", "96"),
            ],
        ),
        mac_frame(
            "lowpan_mesh",
            mac,
            &mesh(ipv6_frame),
            &[
                ("6lowpan.pattern", "0x02,0x50,0x41"),
                ("6lowpan.mesh.v", "1"),
                ("6lowpan.mesh.f", "0"),
                ("6lowpan.mesh.hops", "5"),
                ("6lowpan.mesh.orig16", "0x0007"),
                ("6lowpan.bcast.seqnum", "77"),
            ],
        ),
        mac_frame(
            "lowpan_iphc",
            mac,
            &iphc(),
            &[
                ("6lowpan.pattern", "0x03"),
                ("6lowpan.iphc.tf", "0x0003"),
                ("6lowpan.iphc.nh", "1"),
                ("6lowpan.iphc.hlim", "0x0002"),
                ("6lowpan.iphc.cid", "0"),
                ("6lowpan.iphc.sac", "0"),
                ("6lowpan.iphc.sam", "0x0003"),
                ("6lowpan.iphc.m", "1"),
                ("6lowpan.iphc.dac", "0"),
                ("6lowpan.iphc.dam", "0x0003"),
                ("6lowpan.nhc.udp.ports", "0"),
                ("6lowpan.nhc.udp.checksum", "0"),
                ("udp.srcport", "5683"),
            ],
        ),
    ]
}

fn mac_frame(
    name: &'static str,
    mac: MacFields,
    payload: &[u8],
    expected: &[(&'static str, &'static str)],
) -> Frame {
    let header = written(|writer| mac.emit(writer).unwrap());
    frame(name, [header.as_slice(), payload].concat(), expected)
}

/// A broadcast from short address 7 to an extended one, over five more hops.
fn mesh(payload: &[u8]) -> Vec<u8> {
    let mesh = MeshFields { short_originator: true, short_final: false, hops_left: 5 };
    let broadcast = BroadcastFields { sequence_number: 77 };
    [
        mesh.emit().as_slice(),
        &7_u16.to_be_bytes(),
        &[2, 0, 0, 0, 0, 0, 0, 2],
        &broadcast.emit(),
        payload,
    ]
    .concat()
}

/// UDP to `ff02::1`, everything elided but ports and checksum.
fn iphc() -> Vec<u8> {
    let iphc = IphcFields {
        traffic_flow: 3,
        next_header_compressed: true,
        hop_limit: 2,
        context_identifiers: false,
        source_by_context: false,
        source_mode: 3,
        multicast: true,
        destination_by_context: false,
        destination_mode: 3,
    };
    let udp = UdpEncodingFields { checksum_elided: false, ports: 0 };
    let inline = [0x16, 0x33, 0x16, 0x33, 0x12, 0x34];
    [iphc.emit().as_slice(), &[0x01], &udp.emit(), &inline].concat()
}
