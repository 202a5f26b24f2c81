//! Two links with IPv6, and what comes by them.

use super::{Frame, Gateway, LAN, LAN_MAC, WAN, WAN_MAC, ether, interface};
use gatewright_packet::LinkIndex;
use gatewright_stack::{Address, AddressState, Interface, SuiteLink, UdpSocket};
use gatewright_wire::{
    Checksum, EtherType, IpProtocol, MacAddress,
    icmpv6::Icmpv6Type,
    ipv6::{FragmentFields, Ipv6, Ipv6Fields},
    ndp::NeighborSolicitationFields,
};
use std::net::Ipv6Addr;

pub const LAN6: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 1);
pub const WAN6: Ipv6Addr = Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, 1);
pub const A6: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 0xa);
pub const B6: Ipv6Addr = Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, 0xb);
pub const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x99);
pub const A_MAC: MacAddress = super::A.0;
pub const B_MAC: MacAddress = super::B.0;

pub fn link_local(last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last)
}

pub fn with(ip: Ipv6Addr) -> Address {
    Address { ip: ip.into(), prefix_len: 64, state: AddressState::Preferred }
}

/// Two links whose hosts A and B are known; the WAN carries 1300 octets.
pub fn gateway() -> Gateway {
    let mut gateway = cold(|_| {});
    for (link, mac, ours, who, from) in
        [(LAN, A_MAC, LAN6, A6, LAN_MAC), (WAN, B_MAC, WAN6, B6, WAN_MAC)]
    {
        let sent = gateway.receive(link, &[solicitation(mac, who, ours)]);
        let (_, answer) = sent.iter().find(|(to, _)| *to == link).unwrap();
        assert_eq!(answer[..12], [mac.0, from.0].concat(), "the answer goes to who asked");
    }
    gateway
}

pub fn cold(change: impl Fn(&mut Interface)) -> Gateway {
    let links = [SuiteLink::Ethernet(LAN), SuiteLink::Ethernet(WAN)];
    let mut gateway = Gateway::of(&links, |_| {});
    for (link, mac, ip, local, mtu) in
        [(LAN, LAN_MAC, LAN6, 0x10, 1500), (WAN, WAN_MAC, WAN6, 0x20, 1300)]
    {
        let addresses = vec![with(ip), with(link_local(local))];
        let mut interface = Interface { mtu, ..interface(link, mac, addresses) };
        change(&mut interface);
        gateway.host.add_interface(interface).unwrap();
    }
    gateway.tick(10);
    gateway.events();
    gateway
}

/// A frame with an IPv6 packet.
pub fn frame(
    to: MacAddress,
    from: MacAddress,
    protocol: IpProtocol,
    ends: (Ipv6Addr, Ipv6Addr),
    hops: u8,
    payload: &[u8],
) -> Vec<u8> {
    let len = u16::try_from(payload.len()).unwrap();
    let mut fields = Ipv6Fields::new(protocol, ends.0, ends.1, len);
    fields.hop_limit = hops;
    ether(to, from, EtherType::IPV6, &[&fields.emit()[..], payload].concat())
}

/// An ICMPv6 message with its checksum.
pub fn icmp(ends: (Ipv6Addr, Ipv6Addr), mut message: Vec<u8>) -> Vec<u8> {
    let len = u32::try_from(message.len()).unwrap();
    let mut sum = Checksum::pseudo_ipv6(ends.0, ends.1, IpProtocol::ICMPV6, len);
    message[2..4].fill(0);
    sum.add(&message);
    message[2..4].copy_from_slice(&sum.finish().to_be_bytes());
    message
}

pub fn solicited(target: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = target.octets();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]))
}

pub fn solicitation(mac: MacAddress, from: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let head = NeighborSolicitationFields {
        kind: Icmpv6Type::NEIGHBOR_SOLICITATION,
        code: 0,
        checksum: 0,
        target_address: target,
    };
    let option = [&[1, 1][..], &mac.0].concat();
    let option = if from.is_unspecified() { Vec::new() } else { option };
    let ends = (from, solicited(target));
    let message = icmp(ends, [&head.emit()[..], &option].concat());
    frame(MacAddress::of_ipv6_multicast(ends.1), mac, IpProtocol::ICMPV6, ends, 255, &message)
}

/// The IPv6 packets among frames: link, header fields, payload.
pub fn packets(sent: &[Frame]) -> Vec<(LinkIndex, Ipv6Fields, Vec<u8>)> {
    let read = |(link, octets): &Frame| {
        let (ip, payload) = Ipv6::split(&octets[14..]).ok()?;
        (octets[12..14] == [0x86, 0xdd]).then(|| (*link, ip.fields(), payload.to_vec()))
    };
    sent.iter().filter_map(read).collect()
}

pub fn echo_request(ends: (Ipv6Addr, Ipv6Addr), data: &[u8]) -> Vec<u8> {
    icmp(ends, [&[128, 0, 0, 0, 0, 7, 0, 1][..], data].concat())
}

/// A message to the gateway in fragments of `piece` octets.
pub fn fragments(message: &[u8], piece: usize) -> Vec<Vec<u8>> {
    let count = message.chunks(piece).count();
    let fragment = |(index, octets): (usize, &[u8])| {
        let head = FragmentFields {
            next_header: IpProtocol::ICMPV6,
            fragment_offset: u16::try_from(index * piece / 8).unwrap(),
            more_fragments: index + 1 < count,
            identification: 77,
        };
        let payload = [&head.emit()[..], octets].concat();
        frame(LAN_MAC, A_MAC, IpProtocol::FRAGMENT, (A6, LAN6), 64, &payload)
    };
    message.chunks(piece).enumerate().map(fragment).collect()
}

/// The gateway with a UDP socket of its own.
pub struct Socketed {
    pub gateway: Gateway,
    pub socket: UdpSocket,
}

impl Socketed {
    pub fn new() -> Self {
        let mut gateway = gateway();
        let socket = gateway.sockets.bind((LAN6, 4096).into()).unwrap();
        gateway.tick(0);
        Self { gateway, socket }
    }
}
