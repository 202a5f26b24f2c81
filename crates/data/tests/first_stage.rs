//! The forwarding program beside the graph: what it forwards, the graph sends octet for octet; what
//! it passes up is as it came; its rules count and drop as handlers do.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::panic,
    reason = "a test may fail loudly"
)]

#[path = "../../stack/tests/common/mod.rs"]
mod common;

use common::ipv6::{self, A6, B6, LAN6, WAN6};
use common::{A, B, Gateway, LAN, LAN_IP, LAN_MAC, WAN, WAN_IP, WAN_MAC, address, interface};
use gatewright_packet::LinkIndex;
use gatewright_stack::{
    At, Attachment, AttachmentId, Bucket, Counter, DriverBucket, HOP_PACKETS, Handler, Interface,
    Place, Route, RouteFollower, SuiteLink, Swap, WeightedHop,
    builtin::{Count, Filter, Match, RateLimit},
};
use gatewright_tables::{CounterOwner, GroupMember, HopGroupIndex, HopIndex, Prefix, RoutesWriter};
use gatewright_wire::{Checksum, EtherType, IpProtocol, MacAddress};
use gatewright_xdp::program::BpfProgram;
use gatewright_xdp::{
    Forwarding, ForwardingReason, ForwardingRule, Hop, HopNeighbour, LimitIndex, LinkPort,
    RuleAction, RuleMatch, TableSizes, program_clock,
};
use libtest_mimic::{Arguments, Failed, Trial};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

const MTU: u32 = 1300;
const ROUTED: &str = "198.51.100.0/24";
const ROUTED6: &str = "2001:db8:1::/48";
const FRAMES: usize = 30_000;
const FLOWS: usize = 8_000;
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;
const SHAPE: TableSizes = TableSizes {
    hops: 64,
    hop_groups: 2,
    neighbours: 8,
    routes4: 0,
    groups: 1,
    routes6: 100,
    devices: 0,
};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let missing = Forwarding::new(SHAPE).err();
    let trial = |name: &str, test: fn() -> Result<(), Failed>| match &missing {
        None => Trial::test(name, test),
        Some(missing) => {
            let name = format!("{name} (needs BPF: {missing})");
            Trial::test(name, || Ok(())).with_ignored_flag(true)
        }
    };
    let trials = vec![
        trial("the_driver_forwards_as_the_graph_does", the_driver_forwards_as_the_graph_does),
        trial("neither_forwards_addresses_of_no_packet", neither_forwards),
        trial("the_driver_counts_and_drops_as_the_graph_does", rules_are_as_handlers),
        trial("the_driver_limits_with_the_graph_as_the_graph_alone", limits_are_as_handlers),
        trial("flows_of_a_group_go_by_the_same_router_in_both", groups_are_alike),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Two links with both families; A and B are known, and the routed prefixes are behind B.
fn graph() -> Result<Gateway, Failed> {
    let mut gateway = Gateway::of(&[SuiteLink::Ethernet(LAN), SuiteLink::Ethernet(WAN)], |_| {});
    let ends = [(LAN, LAN_MAC, LAN_IP, LAN6, 0x10, 1500), (WAN, WAN_MAC, WAN_IP, WAN6, 0x20, MTU)];
    for (link, mac, ip, ip6, local, mtu) in ends {
        let own = vec![address(ip, 24), ipv6::with(ip6), ipv6::with(ipv6::link_local(local))];
        gateway.host.add_interface(Interface { mtu, ..interface(link, mac, own) })?;
    }
    gateway.host.add_route(ROUTED.parse()?, Route::Via { link: WAN, gateway: B.1.into() })?;
    gateway.host.add_route6(ROUTED6.parse()?, Route::Via { link: WAN, gateway: B6.into() })?;
    gateway.tick(10);
    gateway.introduce(LAN, LAN_MAC, LAN_IP, A);
    gateway.introduce(WAN, WAN_MAC, WAN_IP, B);
    gateway.receive(LAN, &[ipv6::solicitation(A.0, A6, LAN6)]);
    gateway.receive(WAN, &[ipv6::solicitation(B.0, B6, WAN6)]);
    Ok(gateway)
}

/// The same for the driver of the LAN's link.
fn driver() -> Result<(Forwarding, BpfProgram), Failed> {
    let mut forwarding = Forwarding::new(SHAPE)?;
    let mut routes = RoutesWriter::in_memory(100)?;
    let hop =
        |port, source: MacAddress, neighbour| Hop { port, mtu: MTU, source: source.0, neighbour };
    let [lan, wan, behind] = [HopIndex(0), HopIndex(1), HopIndex(2)];
    forwarding.set_hop(lan, Some(&hop(0, LAN_MAC, HopNeighbour::Destination)))?;
    forwarding.set_hop(wan, Some(&hop(1, WAN_MAC, HopNeighbour::Destination)))?;
    forwarding.set_hop(behind, Some(&hop(1, WAN_MAC, HopNeighbour::Router(B.0.0))))?;
    for (prefix, hop) in [("10.0.0.0/24", lan), ("10.0.1.0/24", wan), (ROUTED, behind)] {
        routes.insert(prefix.parse()?, hop)?;
        forwarding.insert4(prefix.parse()?, hop, &routes)?;
    }
    for (prefix, hop) in [("fd00:1::/64", lan), ("fd00:2::/64", wan), (ROUTED6, behind)] {
        forwarding.routes6().insert(prefix.parse()?, hop)?;
    }
    for (port, ip, mac) in [
        (0, IpAddr::from(A.1), A.0),
        (1, B.1.into(), B.0),
        (0, A6.into(), A.0),
        (1, B6.into(), B.0),
    ] {
        forwarding.set_neighbour(port, ip, Some(mac.0))?;
    }
    let broadcast = [Ipv4Addr::new(10, 0, 0, 255), Ipv4Addr::new(10, 0, 1, 255)];
    let own = [LAN_IP, WAN_IP].into_iter().chain(broadcast).map(IpAddr::from);
    forwarding.set_own(own.chain([LAN6.into(), WAN6.into()]));
    // Nothing is sent: the loopback stands for any interface.
    forwarding.set_port(1, 1)?;
    let program = forwarding.program(&LinkPort { index: 0, mac: LAN_MAC.0 })?;
    Ok((forwarding, program))
}

/// A seeded generator: the same frames in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    /// Mostly the first, now and then another.
    fn mostly<T: Clone>(&mut self, usual: T, others: &[T]) -> T {
        if self.below(6) == 0 { self.one(others) } else { usual }
    }

    fn frame(&mut self) -> Vec<u8> {
        let is_6 = self.below(2) == 0;
        let payload = vec![7_u8; self.one(&[0, 1, 20, 100, 1240, 1261, 1280, 1281, 1400])];
        let mut packet = if is_6 { self.packet6(&payload) } else { self.packet4(&payload) };
        if self.below(20) == 0 {
            let at = self.below(packet.len());
            packet[at] ^= 1 << self.below(8);
        }
        if self.below(30) == 0 {
            packet.truncate(self.below(packet.len()));
        }
        packet.resize(packet.len() + self.mostly(0, &[1, 6, 40]), 0);
        let to = self.mostly(LAN_MAC, &[WAN_MAC, MacAddress::BROADCAST]);
        let usual: u16 = if is_6 { 0x86dd } else { 0x0800 };
        let kind =
            if self.below(40) == 0 { self.one(&[0x0806, 0x0800, 0x86dd, 0x8100]) } else { usual };
        // No station has the address of a group (IEEE 802.3 §3.2.3).
        let groups = [MacAddress([0x01, 0, 0x5e, 0, 0, 1]), MacAddress::BROADCAST];
        let from = if self.below(30) == 0 { self.one(&groups) } else { A.0 };
        [&to.0[..], &from.0, &kind.to_be_bytes(), &packet].concat()
    }

    fn packet4(&mut self, payload: &[u8]) -> Vec<u8> {
        let sources = [
            "10.0.0.1",
            "10.0.0.255",
            "127.0.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "10.0.1.2",
            "8.8.8.8",
        ];
        let places = [
            "198.51.100.7",
            "10.0.1.2",
            "10.0.1.9",
            "10.0.1.255",
            "10.0.0.1",
            "10.0.0.2",
            "8.8.8.8",
            "224.0.0.5",
            "127.0.0.1",
            "240.1.1.1",
            "169.254.1.1",
            "255.255.255.255",
            "0.1.2.3",
        ];
        let source: Ipv4Addr = self.mostly("10.0.0.2", &sources).parse().unwrap();
        let place: Ipv4Addr = self.mostly("198.51.100.9", &places).parse().unwrap();
        let options = self.mostly(0, &[4, 8, 40]);
        let length = (20 + options + payload.len()) as u16;
        let mut header = vec![0x45 + (options / 4) as u8, self.one(&[0, 0xb8, 3])];
        header.extend(length.to_be_bytes());
        header.extend([1, 2]);
        header.extend(self.mostly([0x40, 0], &[[0, 0], [0x20, 0], [0x20, 9], [0, 9], [0x80, 0]]));
        header.extend([self.mostly(64, &[0, 1, 2, 255]), self.one(&[17, 6, 1, 47]), 0, 0]);
        header.extend(source.octets());
        header.extend(place.octets());
        header.resize(20 + options, 1);
        let mut sum = Checksum::new();
        sum.add(&header);
        let sum = sum.finish();
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        [header, payload.to_vec()].concat()
    }

    fn packet6(&mut self, payload: &[u8]) -> Vec<u8> {
        let sources = [
            "fd00:1::1",
            "::",
            "::1",
            "fe80::5",
            "ff02::1",
            "fd00:2::b",
            "2001:db8:9::1",
            "::ffff:1.2.3.4",
        ];
        let places = [
            "2001:db8:1::5",
            "fd00:2::b",
            "fd00:2::c",
            "fd00:1::1",
            "fd00:1::a",
            "2001:db8:2::1",
            "ff02::1",
            "ff0e::1",
            "fe80::99",
            "::",
            "::1",
        ];
        let source: Ipv6Addr = self.mostly("fd00:1::a", &sources).parse().unwrap();
        let place: Ipv6Addr = self.mostly("2001:db8:1:2::3", &places).parse().unwrap();
        let mut header = vec![self.mostly(0x60, &[0x61, 0x50]), self.one(&[0, 0x20]), 0, 5];
        header.extend((payload.len() as u16).to_be_bytes());
        header
            .extend([self.mostly(17, &[0, 43, 44, 58, 59, 60]), self.mostly(64, &[0, 1, 2, 255])]);
        header.extend(source.octets());
        header.extend(place.octets());
        [header, payload.to_vec()].concat()
    }
}

fn the_driver_forwards_as_the_graph_does() -> Result<(), Failed> {
    let mut graph = graph()?;
    let (forwarding, program) = driver()?;
    let mut random = Random(0x5eed_0014);
    let [mut forwarded, mut slow] = [0, 0];
    for _ in 0..FRAMES {
        let frame = random.frame();
        let run = program.run(&frame, 1)?;
        let sent = graph.receive(LAN, std::slice::from_ref(&frame));
        if run.verdict == XDP_REDIRECT {
            assert_eq!(sent, [(WAN, run.frame)], "{frame:02x?}");
            forwarded += 1;
        } else {
            assert_eq!((run.verdict, &run.frame), (XDP_PASS, &frame), "{frame:02x?}");
            slow += usize::from(sent.iter().any(|(link, _)| *link == WAN));
        }
    }
    // Most of what the graph forwards, the driver forwards; the rest has options or is cut.
    assert!(forwarded > FRAMES / 5 && slow < forwarded / 4, "{forwarded} {slow}");
    let counts = forwarding.counts(0)?;
    let packets: u64 = counts.iter().map(|(_, count)| count.packets).sum();
    assert_eq!(packets, FRAMES as u64);
    let silent: Vec<_> = counts.iter().filter(|(_, count)| count.packets == 0).collect();
    // Each reason was met but those that need a change while a frame is on its way, and those of
    // neighbours, programs and checksums that these frames do not have.
    let rare = [
        ForwardingReason::LookedAt,
        ForwardingReason::Unsettled,
        ForwardingReason::NoPort,
        ForwardingReason::Elsewhere,
        ForwardingReason::Partial,
        ForwardingReason::Dropped,
    ];
    assert!(silent.iter().all(|(reason, _)| rare.contains(reason)), "{silent:?}");
    Ok(())
}

/// Routers behind the WAN beside B.
const OTHERS: [(MacAddress, Ipv4Addr, &str); 3] = [
    (MacAddress([2, 0, 0, 0, 0, 0xc]), Ipv4Addr::new(10, 0, 1, 3), "fd00:2::c"),
    (MacAddress([2, 0, 0, 0, 0, 0xd]), Ipv4Addr::new(10, 0, 1, 4), "fd00:2::d"),
    (MacAddress([2, 0, 0, 0, 0, 0xe]), Ipv4Addr::new(10, 0, 1, 5), "fd00:2::e"),
];

/// The driver's tables as they follow the graph's host.
#[derive(Clone, Debug)]
struct Following(Arc<Mutex<Forwarding>>);

impl Following {
    fn station(gateway: IpAddr) -> MacAddress {
        let all = OTHERS
            .iter()
            .flat_map(|(mac, v4, v6)| [(IpAddr::from(*v4), *mac), (v6.parse().unwrap(), *mac)]);
        let all = [(IpAddr::from(B.1), B.0), (B6.into(), B.0)].into_iter().chain(all);
        all.into_iter().find(|(ip, _)| *ip == gateway).unwrap().1
    }
}

impl RouteFollower for Following {
    fn add_hop(&mut self, hop: HopIndex, route: Route) {
        let mut forwarding = self.0.lock().unwrap();
        let of = |link: LinkIndex, neighbour| {
            let (port, source) = if link == LAN { (0, LAN_MAC.0) } else { (1, WAN_MAC.0) };
            Some(Hop { port, mtu: MTU, source, neighbour })
        };
        let record = match route {
            Route::Group(group) => return forwarding.set_hop_to_group(hop, group).unwrap(),
            Route::Connected(link) => of(link, HopNeighbour::Destination),
            Route::Via { link, gateway } => {
                of(link, HopNeighbour::Router(Self::station(gateway).0))
            }
            _ => None,
        };
        forwarding.set_hop(hop, record.as_ref()).unwrap();
    }

    fn set_group(&mut self, group: HopGroupIndex, members: &[GroupMember]) {
        self.0.lock().unwrap().set_group(group, members).unwrap();
    }

    fn insert4(&mut self, to: Prefix<Ipv4Addr>, hop: HopIndex, routes: &RoutesWriter<Ipv4Addr>) {
        self.0.lock().unwrap().insert4(to, hop, routes).unwrap();
    }

    fn remove4(&mut self, to: Prefix<Ipv4Addr>, routes: &RoutesWriter<Ipv4Addr>) {
        self.0.lock().unwrap().remove4(to, routes);
    }

    fn insert6(&mut self, to: Prefix<Ipv6Addr>, hop: HopIndex) {
        self.0.lock().unwrap().routes6().insert(to, hop).unwrap();
    }

    fn remove6(&mut self, to: Prefix<Ipv6Addr>) {
        self.0.lock().unwrap().routes6().remove(to);
    }
}

impl Random {
    /// A packet of one of many flows to the routed prefixes: every kind of upper layer, with ports or
    /// without, in fragments or whole, cut short or padded.
    fn flow(&mut self) -> Vec<u8> {
        let number = |random: &mut Self| (random.below(200) + 2) as u8;
        let (from, to) = (number(self), number(self));
        let protocols = [17, 6, 132, 136, 1, 47, 58, 50].map(IpProtocol);
        let protocol = self.mostly(IpProtocol::UDP, &protocols);
        let mut payload: Vec<u8> = (0..4).map(|_| self.below(3) as u8).collect();
        payload.resize(self.mostly(20, &[0, 1, 3, 4, 100]), 7);
        let mut frame = if self.below(2) == 0 {
            let source = Ipv4Addr::new(10, 0, 0, from.min(250));
            let fragment = self.mostly((0, 0), &[(1, 0), (1, 9), (0, 9)]);
            common::from_a(&common::ipv4(
                source,
                Ipv4Addr::new(198, 51, 100, to),
                protocol,
                &payload,
                |ip| (ip.flags, ip.fragment_offset) = fragment,
            ))
        } else {
            let source = Ipv6Addr::from_bits(A6.to_bits() & !0xff | u128::from(from));
            let place = Ipv6Addr::new(0x2001, 0xdb8, 1, to.into(), 0, 0, 0, 1);
            let protocol = self.mostly(protocol, &[44, 43, 60].map(IpProtocol));
            let mut frame = ipv6::frame(LAN_MAC, A.0, protocol, (source, place), 64, &payload);
            let label = self.mostly(0, &[1, 2, 0xf_ffff]);
            frame[14..18].copy_from_slice(&(0x6000_0000_u32 | label).to_be_bytes());
            frame
        };
        frame.resize(frame.len() + self.mostly(0, &[1, 4, 30]), 9);
        frame
    }
}

/// A route of four routers of different weights: driver and graph send the same flows by the same ones.
/// When one is left out only its flows change, in both, and all return with it.
fn groups_are_alike() -> Result<(), Failed> {
    let mut graph = graph()?;
    graph.count();
    for (mac, v4, v6) in OTHERS {
        graph.introduce(WAN, WAN_MAC, WAN_IP, (mac, v4));
        graph.receive(WAN, &[ipv6::solicitation(mac, v6.parse()?, WAN6)]);
    }
    let (forwarding, program) = driver()?;
    let forwarding = Arc::new(Mutex::new(forwarding));
    graph.host.follow_routes(Box::new(Following(Arc::clone(&forwarding))));
    let gateways = |v4: bool| -> Vec<WeightedHop> {
        let first = if v4 { B.1.into() } else { B6.into() };
        let others = OTHERS.iter().map(
            |(_, ip, ip6)| {
                if v4 { IpAddr::from(*ip) } else { ip6.parse().unwrap() }
            },
        );
        let all = [first].into_iter().chain(others).map(Some);
        (1..).zip(all).map(|(weight, gateway)| WeightedHop { link: WAN, gateway, weight }).collect()
    };
    let [route, route6] =
        [graph.host.route_by(&gateways(true))?, graph.host.route_by(&gateways(false))?];
    graph.host.add_route(ROUTED.parse()?, route)?;
    graph.host.add_route6(ROUTED6.parse()?, route6)?;
    let mut random = Random(0x5eed_0041);
    let frames: Vec<_> = (0..FLOWS).map(|_| random.flow()).collect();
    let mut before = Vec::new();
    // The last one has the greatest weight.
    let (gone, _, gone6) = OTHERS[2];
    for is_left_out in [false, true, false] {
        for gateway in [OTHERS[2].1.into(), gone6.parse()?] {
            graph.host.leave_out(WAN, Some(gateway), is_left_out);
        }
        let mut by = Vec::new();
        for frame in &frames {
            let run = program.run(frame, 1)?;
            let sent = graph.receive(LAN, std::slice::from_ref(frame));
            assert_eq!(run.verdict, XDP_REDIRECT, "{frame:02x?}");
            by.push(MacAddress(*run.frame.first_chunk().unwrap()));
            assert_eq!(sent, [(WAN, run.frame)], "{frame:02x?}");
        }
        assert_eq!(by.contains(&gone), !is_left_out);
        if is_left_out {
            let moved = by.iter().zip(&before).filter(|(now, before)| now != before);
            assert!(moved.clone().count() > FLOWS / 4);
            assert!(moved.into_iter().all(|(_, before)| *before == gone), "others moved");
        } else if before.is_empty() {
            let share = |mac| by.iter().filter(|its| **its == mac).count();
            let shares = [B.0, OTHERS[0].0, OTHERS[1].0, OTHERS[2].0].map(share);
            let near =
                |(weight, share): (usize, &usize)| share.abs_diff(weight * FLOWS / 10) < FLOWS / 20;
            assert!((1..).zip(&shares).all(near), "{shares:?}");
            before = by;
        } else {
            assert_eq!(by, before, "all are back");
        }
    }
    // Both count the same packets by each of them.
    let counts = graph.host.tables().counters.sums();
    let (mut hops, forwarding) = (0, forwarding.lock().unwrap());
    for (hop, route) in graph.host.hops().filter(|(_, route)| matches!(route, Route::Via { .. })) {
        let in_driver = forwarding.hop_count(hop)?.packets;
        let in_graph = counts.get(CounterOwner::NextHop(hop.0), HOP_PACKETS).unwrap_or(0);
        assert_eq!(in_driver, in_graph, "{route:?}");
        hops += u32::from(in_driver > 0);
    }
    assert_eq!(hops, 8);
    Ok(())
}

/// Addresses, and whether packets from them and to them are forwarded: the first and the last of each
/// network that is of one link, a host itself, groups or nobody, and those beside it (RFC 1812 §5.3.7,
/// RFC 3927 §7, RFC 4291 §2.5.6, RFC 6890 §2.2).
const ADDRESSES: [(&str, bool); 34] = [
    ("0.0.0.0", false),
    ("0.255.255.255", false),
    ("1.0.0.0", true),
    ("126.255.255.255", true),
    ("127.0.0.0", false),
    ("127.255.255.255", false),
    ("128.0.0.0", true),
    ("169.253.255.255", true),
    ("169.254.0.0", false),
    ("169.254.255.255", false),
    ("169.255.0.0", true),
    ("223.255.255.255", true),
    ("224.0.0.0", false),
    ("224.0.0.251", false),
    ("239.255.255.255", false),
    ("240.0.0.0", false),
    ("255.255.255.254", false),
    ("255.255.255.255", false),
    ("::", false),
    ("::1", false),
    ("::ffff:0.0.0.0", false),
    ("::ffff:8.8.8.8", false),
    ("::ffff:255.255.255.255", false),
    ("64:ff9b::1", true),
    ("2000::", true),
    ("fe7f:ffff::1", true),
    ("fe80::", false),
    ("febf:ffff::1", false),
    ("fec0::1", true),
    ("feff:ffff::1", true),
    ("ff00::", false),
    ("ff02::1", false),
    ("ff0e::1", false),
    ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", false),
];

/// A datagram from one address to another as the LAN's host sends it.
fn datagram(from: IpAddr, to: IpAddr) -> Vec<u8> {
    let payload = common::hex("0007 0007 0008 0000");
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            common::from_a(&common::ipv4(from, to, IpProtocol::UDP, &payload, |_| {}))
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            ipv6::frame(LAN_MAC, A.0, IpProtocol::UDP, (from, to), 64, &payload)
        }
        _ => panic!("{from} and {to} are of two families"),
    }
}

/// With routes to everywhere, driver and graph forward the same packets from and to these addresses,
/// and drop the same: the driver hands them to the graph, which says why.
fn neither_forwards() -> Result<(), Failed> {
    let mut graph = graph()?;
    graph.host.add_route("0.0.0.0/0".parse()?, Route::Via { link: WAN, gateway: B.1.into() })?;
    graph.host.add_route6("::/0".parse()?, Route::Via { link: WAN, gateway: B6.into() })?;
    let (mut forwarding, program) = driver()?;
    let (behind, mut routes) = (HopIndex(2), RoutesWriter::in_memory(100)?);
    routes.insert("0.0.0.0/0".parse()?, behind)?;
    forwarding.insert4("0.0.0.0/0".parse()?, behind, &routes)?;
    forwarding.routes6().insert("::/0".parse()?, behind)?;
    let causes = ["martian", "bad-source", "beyond-scope"];
    let dropped = |graph: &Gateway| -> u64 {
        let drops = graph.drops().into_iter();
        drops.filter(|(_, cause, _)| causes.contains(cause)).map(|(_, _, count)| count).sum()
    };
    let mut passed = 0;
    for (text, is_forwarded) in ADDRESSES {
        let address: IpAddr = text.parse()?;
        let [from, to]: [IpAddr; 2] = if address.is_ipv4() {
            [A.1.into(), "198.51.100.9".parse()?]
        } else {
            [A6.into(), "2001:db8:1:2::3".parse()?]
        };
        for (from, to) in [(address, to), (from, address)] {
            let (frame, before) = (datagram(from, to), dropped(&graph));
            let run = program.run(&frame, 1)?;
            let sent = graph.receive(LAN, std::slice::from_ref(&frame));
            if is_forwarded {
                assert_eq!(run.verdict, XDP_REDIRECT, "{from} to {to}");
                assert_eq!(sent, [(WAN, run.frame)], "{from} to {to}");
                continue;
            }
            assert_eq!((run.verdict, run.frame), (XDP_PASS, frame), "{from} to {to}");
            assert_eq!(sent, [], "{from} to {to}");
            // Groups and broadcasts as destinations have causes of their own, or go up.
            assert!(from != address || dropped(&graph) == before + 1, "{from} to {to}");
            passed += 1;
        }
    }
    let counts = forwarding.counts(0)?;
    let scope = counts.into_iter().find(|(of, _)| *of == ForwardingReason::Scope);
    assert_eq!(scope.unwrap().1.packets, passed);
    Ok(())
}

/// A handler in the graph, and in the driver for packets of one family or both.
struct Both {
    at: At,
    /// What it drops; none if it counts.
    drops: Option<Match>,
    families: &'static [bool],
    counted: Counted,
}

/// Packets and octets that a handler has counted in the graph, or packets that it has dropped there.
type Counted = Box<dyn Fn() -> (u64, u64)>;

/// The handlers of the LAN's link, in the order in which its packets meet them.
fn handlers() -> Vec<(Both, Box<dyn Handler>)> {
    let both = |at, families, drops: Option<Match>| {
        let (counted, handler): (Counted, Box<dyn Handler>) = match drops {
            None => {
                let count = Count::default();
                let own = count.clone();
                (Box::new(move || (count.packets(), count.octets())), Box::new(own))
            }
            Some(which) => {
                let filter = Filter::dropping(which);
                let counters = filter.counters();
                (Box::new(move || (counters.rules[0].get(), 0)), Box::new(filter))
            }
        };
        (Both { at, drops, families, counted }, handler)
    };
    let to = |text: &str, bits| Some((text.parse().unwrap(), bits));
    let any = Match::default();
    let udp = Match { destination: to("198.51.100.8", 29), protocol: Some(IpProtocol::UDP), ..any };
    let port = Match { source: to("10.0.0.2", 32), port: Some(0x0707), ..any };
    let icmp = Match { source: to("fd00:1::a", 128), protocol: Some(IpProtocol::ICMPV6), ..any };
    let nowhere = Match { destination: to("2001:db8:1:2::", 126), port: Some(7), ..any };
    let [v4, v6] = [EtherType::IPV4, EtherType::IPV6].map(At::EtherType);
    vec![
        both(At::Frame, &[false, true], None),
        both(At::Frame, &[false], Some(udp)),
        both(v4, &[false], None),
        both(v4, &[false], Some(port)),
        both(v6, &[true], Some(icmp)),
        both(v6, &[true], Some(nowhere)),
        both(v6, &[true], None),
    ]
}

/// The same of handlers at a link's packets: what they count and drop in graph and driver together is
/// what they do in the graph alone.
fn rules_are_as_handlers() -> Result<(), Failed> {
    let mut graph = graph()?;
    let (forwarding, program) = driver()?;
    let (handlers, own): (Vec<_>, Vec<_>) = handlers().into_iter().unzip();
    let place = |at| Attachment { link: Some(LAN), ..Attachment::new(at, Place::Before) };
    let ids: Vec<_> =
        (1..).map(AttachmentId).zip(handlers.iter().map(|one| place(one.at))).collect();
    let own = ids.iter().zip(own).map(|((id, _), own)| (*id, own, Counter::default())).collect();
    graph.graph.swap(Swap { wiring: graph.plan.wire(&ids)?, handlers: own });
    for is_ipv6 in [false, true] {
        let of = (0..).zip(&handlers).filter(|(_, one)| one.families.contains(&is_ipv6));
        let rule = |(place, one): (u32, &Both)| ForwardingRule {
            action: one.drops.map_or(RuleAction::Count, |which| {
                RuleAction::Drop(RuleMatch {
                    source: which.source,
                    destination: which.destination,
                    protocol: which.protocol.map(|protocol| protocol.0),
                    port: which.port,
                })
            }),
            place,
            header_len: if one.at == At::Frame { 14 } else { 0 },
        };
        forwarding.set_rules(0, is_ipv6, &of.map(rule).collect::<Vec<_>>())?;
    }
    let mut random = Random(0x5eed_0015);
    let counted = || handlers.iter().map(|one| (one.counted)()).collect::<Vec<_>>();
    let mut in_graph = vec![(0, 0); handlers.len()];
    let [mut forwarded, mut dropped] = [0; 2];
    for _ in 0..FRAMES {
        let frame = random.frame();
        let run = program.run(&frame, 1)?;
        let before = counted();
        let sent = graph.receive(LAN, std::slice::from_ref(&frame));
        match run.verdict {
            XDP_REDIRECT => {
                assert_eq!(sent, [(WAN, run.frame)], "{frame:02x?}");
                forwarded += 1;
            }
            XDP_DROP => {
                assert_eq!(sent, [], "{frame:02x?}");
                dropped += 1;
            }
            _ => {
                assert_eq!((run.verdict, &run.frame), (XDP_PASS, &frame), "{frame:02x?}");
                for ((sum, after), before) in in_graph.iter_mut().zip(counted()).zip(before) {
                    *sum = (sum.0 + after.0 - before.0, sum.1 + after.1 - before.1);
                }
            }
        }
    }
    assert!(forwarded > FRAMES / 10 && dropped > FRAMES / 20, "{forwarded} {dropped}");
    let of_dropped = forwarding.counts(0)?;
    let of_dropped = of_dropped.iter().find(|(reason, _)| *reason == ForwardingReason::Dropped);
    assert_eq!(of_dropped.map(|(_, count)| count.packets), Some(dropped as u64));
    for (place, ((one, alone), up)) in (0..).zip(handlers.iter().zip(counted()).zip(in_graph)) {
        let here = forwarding.rule_count(place)?;
        let octets = if one.drops.is_some() { 0 } else { here.octets };
        assert_eq!((here.packets + up.0, octets + up.1), alone, "handler {place}");
    }
    Ok(())
}

/// Handlers of the LAN's link, in the order in which its packets meet them: the first limits frames, the
/// third IPv4, and two count what they leave.
const LIMITED: [At; 4] =
    [At::Frame, At::Frame, At::EtherType(EtherType::IPV4), At::EtherType(EtherType::IPV4)];

/// Packets that the limits at the first and the third place let pass, of those that come.
const BURSTS: [(usize, u32); 2] = [(0, FRAMES as u32 / 2), (2, FRAMES as u32 / 9)];

/// Puts such handlers into a graph, with `limit` for a burst; returns what each has taken out.
fn put_limits(
    graph: &mut Gateway,
    limit: impl Fn(u16, u32) -> RateLimit,
) -> Result<Vec<Counter>, Failed> {
    let place = |at| Attachment { link: Some(LAN), ..Attachment::new(at, Place::Before) };
    let ids: Vec<_> = (1..).map(AttachmentId).zip(LIMITED.map(place)).collect();
    let taken: Vec<_> = ids.iter().map(|_| Counter::default()).collect();
    let handler = |number: usize| -> Box<dyn Handler> {
        match BURSTS.iter().find(|(at, _)| *at == number) {
            Some((at, burst)) => Box::new(limit(*at as u16, *burst)),
            None => Box::new(Count::default()),
        }
    };
    let handlers = ids.iter().zip(&taken).enumerate();
    let handlers =
        handlers.map(|(number, ((id, _), taken))| (*id, handler(number), taken.clone())).collect();
    graph.graph.swap(Swap { wiring: graph.plan.wire(&ids)?, handlers });
    Ok(taken)
}

/// What a driver limits together with its graph, by buckets that they share, is what a graph alone does,
/// packet by packet. Without a rate: no clock decides.
fn limits_are_as_handlers() -> Result<(), Failed> {
    let (mut alone, mut beside) = (graph()?, graph()?);
    let (forwarding, program) = driver()?;
    let maps = forwarding.maps()?;
    let in_alone = put_limits(&mut alone, |_, burst| RateLimit::new(0, burst))?;
    let in_beside = put_limits(&mut beside, |number, burst| {
        forwarding.set_limit(LimitIndex(number), Bucket::new(0, burst).times()).unwrap();
        let (words, at) = maps.bucket(number).unwrap();
        RateLimit::with_drivers(0, burst, DriverBucket { words, at, now: program_clock })
    })?;
    for is_ipv6 in [false, true] {
        let of = (0..).zip(LIMITED).filter(|(_, at)| *at == At::Frame || !is_ipv6);
        let rule = |(place, at): (u32, At)| ForwardingRule {
            action: if BURSTS.iter().any(|(limit, _)| *limit == place as usize) {
                RuleAction::Limit(LimitIndex(place as u16))
            } else {
                RuleAction::Count
            },
            place,
            header_len: if at == At::Frame { 14 } else { 0 },
        };
        forwarding.set_rules(0, is_ipv6, &of.map(rule).collect::<Vec<_>>())?;
    }
    let mut random = Random(0x5eed_0114);
    let mut verdicts = [0; 5];
    for _ in 0..FRAMES {
        let frame = random.frame();
        let run = program.run(&frame, 1)?;
        let expected = alone.receive(LAN, std::slice::from_ref(&frame));
        verdicts[run.verdict as usize] += 1;
        let sent = match run.verdict {
            XDP_REDIRECT => vec![(WAN, run.frame)],
            XDP_DROP => Vec::new(),
            _ => beside.receive(LAN, std::slice::from_ref(&frame)),
        };
        assert_eq!(sent, expected, "{frame:02x?}");
    }
    // All of each kind, and each limit has refused packets in both.
    assert!([1, 2, 4].iter().all(|kind| verdicts[*kind] > FRAMES / 20), "{verdicts:?}");
    for (place, _) in BURSTS {
        let here = forwarding.rule_count(place as u32)?.packets;
        let [alone, up] = [&in_alone, &in_beside].map(|taken| taken[place].get());
        assert!(here > 0 && up > 0, "limit {place}: {here} {up}");
        assert_eq!(here + up, alone, "limit {place}");
    }
    Ok(())
}
