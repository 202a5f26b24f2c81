//! Links whose addresses are not Ethernet's: extended ones of eight octets and short ones of two, as
//! on IEEE 802.15.4. Resolution, routes from Ethernet and back, permanent neighbours.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

mod common;

use common::{
    Frame, Gateway, LAN, LAN_MAC, WAN, WAN_MAC, address, ether, hex, interface, ipv4,
    ipv6::{
        A_MAC, A6, LAN6, WAN6, echo_request, frame, icmp, link_local, packets, solicitation,
        solicited, with,
    },
};
use gatewright_packet::{Arrival, Batch, LinkAddress, LinkIndex, NextHop};
use gatewright_stack::{
    At, Interface, Layer, LinkNeighbours, Out, Reason, Route, Suite, SuiteLink, UNCLAIMED,
};
use gatewright_wire::{EtherType, IpProtocol, arp::ArpFields, ipv6::Ipv6Fields};
use std::{
    collections::VecDeque,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// The link with such addresses, on every host here.
const RADIO: LinkIndex = WAN;

/// All devices (IEEE 802.15.4 §7.2.2).
const ALL: LinkAddress = LinkAddress::short([0xff, 0xff]);

/// Two devices by their extended addresses, assigned by their maker: the universal bit is clear in
/// them and set in their interface identifiers (RFC 4291 appendix A).
const ONE: LinkAddress = LinkAddress::extended([0x00, 0x12, 0x4b, 0, 0x14, 0xb5, 0xd9, 0x01]);
const ONE_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0x0212, 0x4b00, 0x14b5, 0xd901);
const TWO: LinkAddress = LinkAddress::extended([0x00, 0x12, 0x4b, 0, 0x14, 0xb5, 0xd9, 0x02]);
const TWO_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0x0212, 0x4b00, 0x14b5, 0xd902);

/// The frame is cut short or to another device, the packet has no place to go, or its chunk no
/// room.
const UNFIT: Reason = Reason("unfit");

/// A minimal link layer: each address is preceded by its width, as the addressing mode of IEEE
/// 802.15.4 tells it; then comes the EtherType.
struct RadioLayer(LinkNeighbours);

impl RadioLayer {
    /// Where the packet's next hop listens; `Err` where that has to be resolved.
    fn station(&self, next_hop: NextHop, out: &Out<'_>) -> Result<Option<LinkAddress>, EtherType> {
        let (cache, family) = match next_hop {
            NextHop::Unknown => return Ok(None),
            NextHop::Broadcast => return Ok(Some(ALL)),
            NextHop::Station(station) => return Ok(Some(station)),
            NextHop::Neighbour(ip) if ip.is_multicast() => return Ok(Some(ALL)),
            NextHop::Neighbour(IpAddr::V4(_)) => (&self.0.v4, EtherType::IPV4),
            NextHop::Neighbour(IpAddr::V6(_)) => (&self.0.v6, EtherType::IPV6),
        };
        let NextHop::Neighbour(ip) = next_hop else { return Ok(None) };
        cache.borrow_mut().resolve(ip, out.now()).map(Some).ok_or(family)
    }
}

impl Layer for RadioLayer {
    fn name(&self) -> &'static str {
        "radio"
    }

    fn receive(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        let own = out.host().interface(self.0.link).unwrap().link_address;
        for mut packet in batch.drain() {
            let Some((to, _, ether_type, payload)) = read(packet.octets()) else {
                out.drop(UNFIT, packet);
                continue;
            };
            let arrival = match to {
                ALL => Arrival::Broadcast,
                _ if to == own => Arrival::Unicast,
                _ => {
                    out.drop(UNFIT, packet);
                    continue;
                }
            };
            packet.strip(packet.len() - payload.len());
            let meta = packet.meta_mut();
            (meta.ingress, meta.arrival, meta.ether_type) = (self.0.link, arrival, ether_type.0);
            out.push_or_drop(At::EtherType(ether_type), packet);
        }
    }

    fn transmit(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        let own = out.host().interface(self.0.link).unwrap().link_address;
        for mut packet in batch.drain() {
            let to = match self.station(packet.meta().next_hop, out) {
                Ok(Some(to)) => to,
                Ok(None) => {
                    out.drop(UNFIT, packet);
                    continue;
                }
                Err(family) => {
                    out.push_or_drop(At::Unresolved(family), packet);
                    continue;
                }
            };
            let header = radio(to, own, EtherType(packet.meta().ether_type), &[]);
            if packet.prepend(&header).is_err() {
                out.drop(UNFIT, packet);
            } else if let Err(packet) = out.push_down(self.0.link, packet) {
                out.drop(UNCLAIMED, packet);
            }
        }
    }
}

fn radio(to: LinkAddress, from: LinkAddress, kind: EtherType, payload: &[u8]) -> Vec<u8> {
    let one = |address: LinkAddress| {
        [&[u8::try_from(address.width()).unwrap()][..], address.octets()].concat()
    };
    [&one(to)[..], &one(from), &kind.0.to_be_bytes(), payload].concat()
}

/// Destination, source, type and payload of a frame.
fn read(frame: &[u8]) -> Option<(LinkAddress, LinkAddress, EtherType, &[u8])> {
    fn address(octets: &[u8]) -> Option<(LinkAddress, &[u8])> {
        let (width, rest) = octets.split_first()?;
        let (address, rest) = rest.split_at_checked(usize::from(*width))?;
        Some((LinkAddress::new(address)?, rest))
    }
    let (to, rest) = address(frame)?;
    let (from, rest) = address(rest)?;
    let (kind, payload) = rest.split_first_chunk()?;
    Some((to, from, EtherType(u16::from_be_bytes(*kind)), payload))
}

/// Puts the radio's link layer in the place of Ethernet's on [`RADIO`], with permanent neighbours.
fn with_radio(suite: &mut Suite, permanent: Permanent) {
    let place = suite.plan.layers().position(|(.., link)| link == Some(RADIO)).unwrap();
    let neighbours = suite.neighbours.iter().find(|of| of.link == RADIO).unwrap();
    for (ip, station) in permanent {
        let cache = if ip.is_ipv4() { &neighbours.v4 } else { &neighbours.v6 };
        assert!(cache.borrow_mut().set_permanent(ip, station));
    }
    suite.layers[place] = Box::new(RadioLayer(neighbours.clone()));
}

/// Neighbours that were set.
type Permanent = Vec<(IpAddr, LinkAddress)>;

/// A host with Ethernet and radio, whose interfaces are `interfaces`.
fn host(interfaces: Vec<Interface>, permanent: Permanent) -> Gateway {
    let links = [SuiteLink::Ethernet(LAN), SuiteLink::Ethernet(RADIO)];
    let mut host = Gateway::of(&links, |suite| with_radio(suite, permanent));
    for interface in interfaces {
        host.host.add_interface(interface).unwrap();
    }
    host
}

/// The interface of a device at the radio.
fn device(link_address: LinkAddress, addresses: &[Ipv6Addr]) -> Interface {
    let addresses = addresses.iter().map(|ip| with(*ip)).collect();
    Interface { link_address, mtu: 1280, ..interface(RADIO, WAN_MAC, addresses) }
}

/// Hosts that hear each other by radio.
struct Air {
    hosts: Vec<Gateway>,
    /// Frames sent by radio, in order.
    sent: Vec<Vec<u8>>,
    /// Frames sent by other links.
    others: Vec<Frame>,
}

impl Air {
    /// The hosts' addresses are checked and taken.
    fn of(hosts: Vec<Gateway>) -> Self {
        let mut this = Self { hosts, sent: Vec::new(), others: Vec::new() };
        for _ in 0..10 {
            for number in 0..this.hosts.len() {
                let frames = this.hosts[number].tick(1);
                this.carry(number, frames);
            }
        }
        (this.sent, this.others) = (Vec::new(), Vec::new());
        this
    }

    /// Carries what the host `number` sends, and what follows from it, until all are silent.
    fn carry(&mut self, number: usize, frames: Vec<Frame>) {
        let mut waiting: VecDeque<_> = frames.into_iter().map(|frame| (number, frame)).collect();
        while let Some((from, (link, frame))) = waiting.pop_front() {
            if link != RADIO {
                self.others.push((link, frame));
                continue;
            }
            assert!(self.sent.len() < 1000, "they never fall silent");
            for (other, host) in self.hosts.iter_mut().enumerate() {
                if other != from {
                    let answers = host.receive(RADIO, std::slice::from_ref(&frame));
                    waiting.extend(answers.into_iter().map(|answer| (other, answer)));
                }
            }
            self.sent.push(frame);
        }
    }
}

/// An IPv6 packet with a message.
fn packet(ends: (Ipv6Addr, Ipv6Addr), hops: u8, message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap();
    let mut fields = Ipv6Fields::new(IpProtocol::ICMPV6, ends.0, ends.1, length);
    fields.hop_limit = hops;
    [&fields.emit()[..], message].concat()
}

/// RFC 4861 §7.2 with the options of RFC 4944 §8: two units of eight octets for an extended address,
/// filled up with zeros.
#[test]
fn two_hosts_resolve_and_ping_each_other_by_extended_addresses() {
    let hosts = [(ONE, ONE_LOCAL), (TWO, TWO_LOCAL)];
    let hosts = hosts.map(|(station, ip)| host(vec![device(station, &[ip])], Vec::new()));
    let mut air = Air::of(hosts.into());
    let ends = (ONE_LOCAL, TWO_LOCAL);
    let request = packet(ends, 64, &echo_request(ends, b"are you there?"));
    let frames = air.hosts[0].transmit6(RADIO, &request);
    air.carry(0, frames);

    let solicitation = icmp(
        (ONE_LOCAL, solicited(TWO_LOCAL)),
        [
            &hex("87 00 0000 00000000")[..],
            &TWO_LOCAL.octets(),
            &hex("01 02 00124b0014b5d901 000000000000"),
        ]
        .concat(),
    );
    let advertisement = icmp(
        (TWO_LOCAL, ONE_LOCAL),
        [
            // Router, for this host forwards; solicited, overriding.
            &hex("88 00 0000 e0000000")[..],
            &TWO_LOCAL.octets(),
            &hex("02 02 00124b0014b5d902 000000000000"),
        ]
        .concat(),
    );
    let back = (TWO_LOCAL, ONE_LOCAL);
    let mut reply = echo_request(back, b"are you there?");
    reply[0] = 129;
    let reply = icmp(back, reply);
    let expected = [
        radio(
            ALL,
            ONE,
            EtherType::IPV6,
            &packet((ONE_LOCAL, solicited(TWO_LOCAL)), 255, &solicitation),
        ),
        radio(ONE, TWO, EtherType::IPV6, &packet(back, 255, &advertisement)),
        radio(TWO, ONE, EtherType::IPV6, &request),
        radio(ONE, TWO, EtherType::IPV6, &packet(back, 64, &reply)),
    ];
    assert_eq!(air.sent, expected);

    // Once more, and nothing is asked.
    air.sent.clear();
    let frames = air.hosts[0].transmit6(RADIO, &request);
    air.carry(0, frames);
    assert_eq!(air.sent, expected[2..]);
}

/// A packet of an Ethernet host to a device, and the answer back: each side in the form of its link.
#[test]
fn a_router_joins_ethernet_and_radio() {
    let sensor = Ipv6Addr::new(0xfd00, 2, 0, 0, 0x0212, 0x4b00, 0x14b5, 0xd902);
    let lan = interface(LAN, LAN_MAC, vec![with(LAN6), with(link_local(0x10))]);
    let router = host(vec![lan, device(ONE, &[WAN6, ONE_LOCAL])], Vec::new());
    let mut device = host(vec![device(TWO, &[sensor, TWO_LOCAL])], Vec::new());
    let by_router = Route::Via { link: RADIO, gateway: ONE_LOCAL.into() };
    device.host.add_route6("::/0".parse().unwrap(), by_router).unwrap();
    let mut air = Air::of(vec![router, device]);
    air.hosts[0].receive(LAN, &[solicitation(A_MAC, A6, LAN6)]);

    let ends = (A6, sensor);
    let request = frame(LAN_MAC, A_MAC, IpProtocol::ICMPV6, ends, 64, &echo_request(ends, b"23 C"));
    let frames = air.hosts[0].receive(LAN, &[request]);
    air.carry(0, frames);
    let forwarded = packet(ends, 63, &echo_request(ends, b"23 C"));
    assert!(air.sent.contains(&radio(TWO, ONE, EtherType::IPV6, &forwarded)), "{:02x?}", air.sent);
    let [(link, answer)] = &air.others[..] else { panic_with(&air.others) };
    assert_eq!((*link, &answer[..12]), (LAN, &[A_MAC.0, LAN_MAC.0].concat()[..]));
    let [(_, header, message)] = &packets(&air.others)[..] else { panic_with(&air.others) };
    assert_eq!((header.source_address, header.destination_address), (sensor, A6));
    assert_eq!((header.hop_limit, message[0], &message[8..]), (63, 129, &b"23 C"[..]));
}

fn panic_with(frames: &[Frame]) -> ! {
    unreachable!("{frames:02x?}")
}

/// Permanent neighbours of both widths get packets at once; one of Ethernet's width cannot be on
/// this link, nor one of eight octets on Ethernet.
#[test]
fn permanent_neighbours_have_the_widths_of_their_link() {
    let short = LinkAddress::short([0xbe, 0xef]);
    let peers = [link_local(1), link_local(2)];
    let permanent = vec![(peers[0].into(), TWO), (peers[1].into(), short)];
    let mut host = host(vec![device(ONE, &[ONE_LOCAL])], permanent);
    host.tick(10);
    for (peer, station) in peers.into_iter().zip([TWO, short]) {
        let ends = (ONE_LOCAL, peer);
        let request = packet(ends, 64, &echo_request(ends, b"x"));
        let sent = host.transmit6(RADIO, &request);
        assert_eq!(sent, [(RADIO, radio(station, ONE, EtherType::IPV6, &request))]);
    }

    let b = Ipv4Addr::new(10, 0, 1, 2);
    let mut ethernet = Gateway::of(&[SuiteLink::Ethernet(LAN)], |suite| {
        let cache = &suite.neighbours[0].v4;
        assert!(cache.borrow_mut().set_permanent(b.into(), TWO));
    });
    let own = Ipv4Addr::new(10, 0, 1, 1);
    ethernet.host.add_interface(interface(LAN, LAN_MAC, vec![address(own, 24)])).unwrap();
    ethernet.tick(10);
    assert!(ethernet.transmit(LAN, &ipv4(own, b, IpProtocol::UDP, b"x", |_| {})).is_empty());
    assert_eq!(ethernet.drops(), [("ethernet", "no-next-hop", 1)]);
}

/// RFC 4944 §8: an option of one unit gives a short address, of two an extended one; all else is no
/// address of this link, and some are no station's.
#[test]
fn the_length_of_an_option_tells_short_from_extended_addresses() {
    let asker = link_local(9);
    for (option, answered) in [
        ("01 01 beef 00000000", Ok(LinkAddress::short([0xbe, 0xef]))),
        ("01 02 00124b0014b5d902 000000000000", Ok(TWO)),
        ("01 01 ffff 00000000", Err("bad-station")),
        ("01 01 fffe 00000000", Err("bad-station")),
        ("01 02 0000000000000000 000000000000", Err("bad-station")),
        ("01 02 01124b0014b5d902 000000000000", Err("bad-station")),
        ("01 02 00124b0014b5d901 000000000000", Err("own-station")),
        ("01 03 00124b0014b5d902 000000000000 0000000000000000", Err("invalid-message")),
    ] {
        let mut host = host(vec![device(ONE, &[ONE_LOCAL])], Vec::new());
        host.tick(10);
        let ends = (asker, solicited(ONE_LOCAL));
        let head = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &ONE_LOCAL.octets()].concat();
        let message = icmp(ends, [head, hex(option)].concat());
        let asked = radio(ALL, TWO, EtherType::IPV6, &packet(ends, 255, &message));
        let sent = host.receive(RADIO, &[asked]);
        match answered {
            Ok(station) => {
                let (to, from, ..) = read(&sent[0].1).unwrap();
                assert_eq!((to, from, sent.len()), (station, ONE, 1), "{option}");
            }
            Err(reason) => {
                assert!(sent.is_empty(), "{option}");
                assert_eq!(host.drops(), [("ndp", reason, 1)], "{option}");
            }
        }
    }
}

/// ARP is for Ethernet here (RFC 826 `ar$hrd`): on other links it neither asks, nor claims, nor
/// answers, and a packet to an IPv4 neighbour is unreachable after a while.
#[test]
fn arp_says_nothing_where_addresses_are_not_ethernets() {
    let own = Ipv4Addr::new(10, 0, 1, 1);
    let addresses = vec![address(own, 24)];
    let here = Interface { addresses, ..device(ONE, &[]) };
    let mut host = host(vec![here], Vec::new());
    assert!(host.tick(10).is_empty());
    let peer = Ipv4Addr::new(10, 0, 1, 2);
    assert!(host.transmit(RADIO, &ipv4(own, peer, IpProtocol::UDP, b"x", |_| {})).is_empty());
    assert!(host.tick(10).is_empty());
    let request = ArpFields::request(A_MAC, peer, own);
    let asked = radio(ALL, TWO, EtherType::ARP, &request.emit());
    assert!(host.receive(RADIO, &[asked]).is_empty());
    assert!(host.drops().contains(&("arp", "bad-arp", 1)), "{:?}", host.drops());
    assert!(host.is_clean());
    // The same message is answered on Ethernet.
    let lan = interface(LAN, LAN_MAC, vec![address(own, 24)]);
    let mut ethernet = Gateway::of(&[SuiteLink::Ethernet(LAN)], |_| {});
    ethernet.host.add_interface(lan).unwrap();
    ethernet.tick(10);
    let asked = ether(LAN_MAC, A_MAC, EtherType::ARP, &request.emit());
    let answer = ether(A_MAC, LAN_MAC, EtherType::ARP, &request.reply(LAN_MAC).emit());
    assert_eq!(ethernet.receive(LAN, &[asked]), [(LAN, answer)]);
}
