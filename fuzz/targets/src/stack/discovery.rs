//! Neighbour discovery and ARP: what stations and routers of a link may say, in any order, at any
//! times.

use super::{HOST, LAN, Links, WAN, local6, own4, own6, station_of};
use gatewright_packet::LinkIndex;
use gatewright_stack::AddressState;
use gatewright_wire::{
    Checksum, EtherType, IpProtocol, MacAddress, arp::ArpFields, ethernet::EthernetFields,
    ipv4::Ipv4Fields, ipv6::Ipv6Fields,
};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

/// Octets of one event.
const EVENT: usize = 6;

/// The hop limit of neighbour discovery (RFC 4861 §6.1).
const HOPS: u8 = 255;

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// The station of another host; it has many addresses.
const OTHER: MacAddress = MacAddress([2, 0, 0, 0, 0, 0x99]);

/// Frames that a second may bring about beyond the answers to what was heard: resolutions of new
/// neighbours, and repeated ones.
const FRAMES_OF_A_SECOND: usize = 700;

/// Messages of neighbour discovery and ARP, packets that need a neighbour, and links that go and
/// come. Whatever was said, after ten quiet minutes each address of ours is ours again and answers.
pub fn discovery(octets: &[u8]) {
    let Some(mut links) = Links::new() else { return };
    let (events, _) = octets.as_chunks::<EVENT>();
    for &[kind, who, what, how, more, pause] in events {
        pass(&mut links, Duration::from_millis(u64::from(pause).pow(2)));
        let link = [LAN, WAN, HOST, LAN].get(usize::from(kind >> 6)).copied().unwrap_or(LAN);
        if kind % 16 == 15 {
            links.host.change_interface(link, |interface| interface.up = !interface.up);
            links.advance(Duration::ZERO);
            continue;
        }
        let frame = match kind % 16 {
            0..=8 => message(link, kind % 16, [who, what, how, more]),
            9..=11 => arp(link, kind, [who, what, how]),
            kind => transit(link, kind, [who, what, how]),
        };
        links.receive(link, &frame);
        links.events.clear();
    }
    for link in [LAN, WAN, HOST] {
        links.host.change_interface(link, |interface| interface.up = true);
    }
    pass(&mut links, Duration::from_mins(10));
    for link in [LAN, WAN, HOST] {
        answers(&mut links, link);
    }
    links.end();
}

/// Lets time pass, and judges how much was sent.
fn pass(links: &mut Links, time: Duration) {
    links.sent.clear();
    links.advance(time);
    let seconds = usize::try_from(time.as_secs()).unwrap_or(usize::MAX);
    let most = FRAMES_OF_A_SECOND.saturating_mul(seconds.saturating_add(1));
    assert!(links.sent.len() <= most, "{} frames in {time:?}", links.sent.len());
    links.events.clear();
}

/// Each address that is not another's answers who asks.
fn answers(links: &mut Links, link: LinkIndex) {
    let addresses: Vec<_> = (links.host.interfaces().iter().filter(|of| of.link == link))
        .flat_map(|of| of.addresses.clone())
        .collect();
    for address in addresses {
        assert_ne!(address.state, AddressState::Duplicate, "{} is lost for good", address.ip);
        links.sent.clear();
        match address.ip {
            IpAddr::V4(ip) => {
                let [a, b, c, _] = ip.octets();
                let request = ArpFields::request(OTHER, Ipv4Addr::new(a, b, c, 200), ip);
                let frame = ethernet(MacAddress::BROADCAST, EtherType::ARP, &request.emit());
                links.receive(link, &frame);
                let reply = request.reply(station_of(link)).emit();
                let answered = links.sent.iter().any(|(_, sent)| sent.get(14..42) == Some(&reply));
                assert!(answered, "{ip} does not answer");
            }
            IpAddr::V6(ip) => {
                let from = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 1, 200);
                let body = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &ip.octets(), &[1, 1], &OTHER.0];
                let frame = icmp((from, ip), station_of(link), HOPS, &body.concat());
                links.receive(link, &frame);
                let is_answer = |sent: &Vec<u8>| {
                    sent.get(54) == Some(&136) && sent.get(62..78) == Some(&ip.octets())
                };
                let answered = links.sent.iter().any(|(_, sent)| is_answer(sent));
                assert!(answered, "{ip} does not answer");
            }
        }
    }
}

/// An address that a message names: ours, another's, one of another subnet, or none.
fn address6(link: LinkIndex, which: u8) -> Ipv6Addr {
    let last = u16::from(which >> 3);
    match which % 8 {
        0 => own6(link),
        1 => local6(link),
        2 => Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x100 + last),
        3 | 4 => Ipv6Addr::new(0xfd00, link.0 + 1, 0, 0, 0, 0, 0, 0x100 + last),
        5 => Ipv6Addr::UNSPECIFIED,
        6 => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last),
        _ => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, last),
    }
}

fn address4(link: LinkIndex, which: u8) -> Ipv4Addr {
    let [a, b, c, _] = own4(link).octets();
    match which % 8 {
        0 => own4(link),
        1 => Ipv4Addr::UNSPECIFIED,
        2 => Ipv4Addr::new(a, b, c, 255),
        3 => Ipv4Addr::new(192, 0, 2, which),
        _ => Ipv4Addr::new(a, b, c, 0x20 + (which >> 3)),
    }
}

/// A message of neighbour discovery (RFC 4861 §4).
fn message(link: LinkIndex, kind: u8, [who, what, how, more]: [u8; 4]) -> Vec<u8> {
    let (from, target) = (address6(link, who), address6(link, what));
    let option = |kind: u8| link_address(link, kind, more);
    let with = |kind: u8| if how & 1 == 0 { option(kind) } else { Vec::new() };
    let body = match kind {
        // Router solicitation.
        0 => [&[133, 0, 0, 0, 0, 0, 0, 0][..], &with(1)].concat(),
        // Router advertisement: hop limit, flags, lifetime, reachable time, retransmission time.
        1 | 2 => {
            let head = [134, 0, 0, 0, 64, how, how, more, 0, 0, more, how, 0, 0, how, more];
            let prefix =
                [3, 4, 64 + (how >> 6), how, 0, 0, more, more, 0, 0, how, more, 0, 0, 0, 0];
            let mtu = [5, 1, 0, 0, 0, 0, 4 + (more >> 6), how];
            let names = [25, 3, 0, 0, 0, 0, how, more];
            let [mut list, plain] = [target.octets(), target.octets()];
            list.reverse();
            [&head[..], &with(1), &prefix, &plain, &mtu, &names, &list].concat()
        }
        // Neighbour solicitation.
        3..=5 => [&[135, 0, 0, 0, 0, 0, 0, 0][..], &target.octets(), &with(1)].concat(),
        // Neighbour advertisement: router, solicited, override.
        6 | 7 => [&[136, 0, 0, 0, how & 0xe0, 0, 0, 0][..], &target.octets(), &with(2)].concat(),
        // Redirect: a better first hop for a destination.
        _ => {
            let destination = address6(link, more).octets();
            [&[137, 0, 0, 0, 0, 0, 0, 0][..], &target.octets(), &destination, &with(2)].concat()
        }
    };
    let [.., a, b, c] = target.octets();
    let solicited =
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]));
    let (to, station) = match how >> 1 & 3 {
        0 => (own6(link), station_of(link)),
        1 => (solicited, MacAddress::of_ipv6_multicast(solicited)),
        2 => (ALL_NODES, MacAddress::of_ipv6_multicast(ALL_NODES)),
        _ => (local6(link), station_of(link)),
    };
    icmp((from, to), station, if how == 0xff { 64 } else { HOPS }, &body)
}

/// An option with a link-layer address: a station's, one that no station has, ours, or one of
/// another width.
fn link_address(link: LinkIndex, kind: u8, which: u8) -> Vec<u8> {
    let (units, address) = match which >> 4 {
        0xf => (2, vec![2, 0, 0, 0, 0, 0, 0, which, 0, 0, 0, 0, 0, 0]),
        0xe => (1, vec![0; 6]),
        0xd => (1, MacAddress::BROADCAST.0.to_vec()),
        0xc => (1, station_of(link).0.to_vec()),
        _ => (1, vec![2, 0, 0, 0, 0, which]),
    };
    [&[kind, units][..], &address].concat()
}

fn arp(link: LinkIndex, kind: u8, [who, what, how]: [u8; 3]) -> Vec<u8> {
    let station = match how >> 4 {
        0xf => MacAddress::ZERO,
        0xe => MacAddress::BROADCAST,
        0xd => station_of(link),
        _ => MacAddress([2, 0, 0, 0, 0, how]),
    };
    let mut fields = ArpFields::request(station, address4(link, who), address4(link, what));
    if kind & 1 == 0 {
        fields = ArpFields::request(station_of(link), address4(link, what), address4(link, who))
            .reply(station);
    }
    let to = if how & 1 == 0 { MacAddress::BROADCAST } else { station_of(link) };
    ethernet(to, EtherType::ARP, &fields.emit())
}

/// A packet that makes us look for a neighbour, or for a better first hop to tell of.
fn transit(link: LinkIndex, kind: u8, [who, what, how]: [u8; 3]) -> Vec<u8> {
    let other = if how & 1 == 0 { LAN } else { WAN };
    if kind == 12 {
        let [a, b, c, _] = own4(other).octets();
        let (from, to) = (address4(link, who | 4), Ipv4Addr::new(a, b, c, what));
        let header = Ipv4Fields::new(IpProtocol(253), from, to, 28).emit_with_checksum();
        let packet = [&header[..], &[0; 8]].concat();
        return ethernet(station_of(link), EtherType::IPV4, &packet);
    }
    let from = address6(link, 3 | who << 3);
    let to = Ipv6Addr::new(0xfd00, other.0 + 1, 0, 0, 0, 0, u16::from(how), what.into());
    let header = Ipv6Fields::new(IpProtocol(253), from, to, 8).emit();
    ethernet(station_of(link), EtherType::IPV6, &[&header[..], &[0; 8]].concat())
}

fn ethernet(destination: MacAddress, ether_type: EtherType, payload: &[u8]) -> Vec<u8> {
    let header = EthernetFields { destination, source: OTHER, ether_type }.emit();
    [&header[..], payload].concat()
}

fn icmp(ends: (Ipv6Addr, Ipv6Addr), station: MacAddress, hops: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap_or_default();
    let mut sum = Checksum::pseudo_ipv6(ends.0, ends.1, IpProtocol::ICMPV6, length.into());
    sum.add(body);
    let mut body = body.to_vec();
    if let Some(field) = body.get_mut(2..4) {
        field.copy_from_slice(&sum.finish().to_be_bytes());
    }
    let fields = Ipv6Fields {
        hop_limit: hops,
        ..Ipv6Fields::new(IpProtocol::ICMPV6, ends.0, ends.1, length)
    };
    ethernet(station, EtherType::IPV6, &[&fields.emit()[..], &body].concat())
}
