//! Routers of OLSR in virtual time, judged by shortest paths in the graph (breadth-first search of
//! `gatewright_sim::distances`) and by the rules of RFC 3626.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test may fail loudly"
)]

use gatewright_mesh::olsr::message::{
    OlsrContent, OlsrHead, OlsrLinkCode, OlsrLinkType, OlsrMessage, OlsrNeighbourType, OlsrNetwork,
    OlsrPacket, OlsrTime,
};
use gatewright_mesh::olsr::{OlsrInput, OlsrNode, OlsrOutput, OlsrSettings};
use gatewright_packet::LinkIndex;
use gatewright_sim::{Chance, Random, Topology, distances};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::net::Ipv4Addr;
use std::time::Duration;

const RADIO: LinkIndex = LinkIndex(0);
const FLIGHT: Duration = Duration::from_millis(1);

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn address(node: usize) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0001 + node as u32)
}

/// A packet on its way: time of arrival, number, sender, receiver, octets.
type Flying = (Duration, u64, usize, usize, Vec<u8>);

/// Routers with one interface each, on which their neighbours in the topology hear them.
struct Routers {
    nodes: Vec<OlsrNode>,
    near: Vec<Vec<usize>>,
    now: Duration,
    flying: BinaryHeap<Reverse<Flying>>,
    number: u64,
    loss: Chance,
    random: Random,
    /// Nodes that are switched off.
    off: BTreeSet<usize>,
    sent: Vec<(Duration, usize, Vec<u8>)>,
}

impl Routers {
    fn new(topology: &Topology, seed: u64, change: impl Fn(usize, &mut OlsrSettings)) -> Self {
        let node = |at| {
            let mut settings = OlsrSettings::new(address(at), seed * 10_000 + at as u64);
            change(at, &mut settings);
            let mut node = OlsrNode::new(settings);
            let up = OlsrInput::InterfaceUp { link: RADIO, address: address(at) };
            node.handle(Duration::ZERO, up);
            node
        };
        Self {
            nodes: (0..topology.nodes).map(node).collect(),
            near: topology.neighbours(|_| true),
            now: Duration::ZERO,
            flying: BinaryHeap::new(),
            number: 0,
            loss: Chance::NEVER,
            random: Random::new(seed),
            off: BTreeSet::new(),
            sent: Vec::new(),
        }
    }

    fn run_until(&mut self, end: Duration) {
        loop {
            let on = |(at, node): (usize, &OlsrNode)| {
                (!self.off.contains(&at)).then(|| node.poll_timeout().map(|time| (time, at)))?
            };
            let tick = self.nodes.iter().enumerate().filter_map(on).min();
            let arrival = self.flying.peek().map(|Reverse(flying)| flying.0);
            let next = tick.map(|(time, _)| time).into_iter().chain(arrival).min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            if arrival.is_some_and(|arrival| arrival <= next) {
                let Reverse((_, _, from, to, packet)) = self.flying.pop().unwrap();
                if !self.off.contains(&to) {
                    let from = address(from);
                    let input = OlsrInput::Received { link: RADIO, from, octets: &packet };
                    self.nodes[to].handle(self.now, input);
                    self.collect(to);
                }
            } else if let Some((_, at)) = tick {
                self.nodes[at].handle(self.now, OlsrInput::Tick);
                self.collect(at);
            }
        }
        self.now = end;
    }

    fn collect(&mut self, from: usize) {
        while let Some(output) = self.nodes[from].poll_output() {
            let OlsrOutput::Send { octets, .. } = output else { continue };
            self.sent.push((self.now, from, octets.clone()));
            for to in self.near[from].clone() {
                if !self.random.happens(self.loss) {
                    self.number += 1;
                    let flying = (self.now + FLIGHT, self.number, from, to, octets.clone());
                    self.flying.push(Reverse(flying));
                }
            }
        }
    }

    fn cut(&mut self, a: usize, b: usize) {
        self.near[a].retain(|at| *at != b);
        self.near[b].retain(|at| *at != a);
    }

    /// Each node has a route to exactly the nodes that it can reach, as long as the shortest path,
    /// and following next hops arrives in so many hops: no loop.
    fn judge(&self, name: &str) {
        for from in 0..self.nodes.len() {
            let hops = distances(&self.near, from);
            let routes = self.nodes[from].routes();
            let reachable = hops.iter().flatten().count() - 1;
            assert_eq!(routes.len(), reachable, "{name}: routes of {from}: {routes:?}");
            for (to, hops) in hops.iter().enumerate().filter(|(to, _)| *to != from) {
                let Some(hops) = hops else { continue };
                let route = routes.get(&OlsrNetwork::host(address(to)));
                assert_eq!(route.map(|its| its.hops as usize), Some(*hops), "{name}: {from}-{to}");
                let mut at = from;
                for _ in 0..*hops {
                    at = self.next(at, to);
                }
                assert_eq!(at, to, "{name}: packets from {from} to {to}");
            }
        }
    }

    fn next(&self, at: usize, to: usize) -> usize {
        let route = self.nodes[at].routes()[&OlsrNetwork::host(address(to))];
        (u32::from(route.next_hop) - 0x0a00_0001) as usize
    }
}

#[test]
fn routes_are_the_shortest_on_lines_rings_grids_and_random_graphs() {
    let mut topologies = vec![
        ("line", Topology::line(12)),
        ("ring", Topology::ring(9)),
        ("grid", Topology::grid(6, 6)),
        ("three paths", Topology::three_paths()),
    ];
    for seed in 1..=5 {
        topologies.push(("random", Topology::random_geometric(40, 8, seed)));
    }
    for (seed, (name, topology)) in topologies.iter().enumerate() {
        let mut routers = Routers::new(topology, seed as u64 + 1, |_, _| {});
        // Links and two-hop neighbours take three HELLOs, the first TCs 5 s more, and each hop of
        // a flood up to half a second of jitter.
        routers.run_until(seconds(30));
        routers.judge(&format!("{name} {seed}"));
    }
}

#[test]
fn a_cut_heals_and_routes_to_a_part_that_is_gone_end() {
    let mut routers = Routers::new(&Topology::ring(8), 3, |_, _| {});
    routers.run_until(seconds(30));
    routers.cut(0, 1);
    // The neighbour is held for 6 s; what it had announced for 15 s; then TCs bring the rest.
    routers.run_until(seconds(60));
    routers.judge("one cut");
    routers.cut(4, 5);
    routers.run_until(seconds(90));
    routers.judge("two halves");
}

#[test]
fn tables_are_empty_after_silence() {
    let mut routers = Routers::new(&Topology::grid(4, 4), 5, |_, _| {});
    routers.run_until(seconds(30));
    routers.near.iter_mut().for_each(Vec::clear);
    // Links are held for 6 s of HELLO validity and 6 s more, messages seen for 30 s.
    routers.run_until(seconds(62));
    assert!(routers.nodes.iter().all(OlsrNode::is_empty));
}

#[test]
fn a_lossy_grid_still_finds_all_routes() {
    let mut routers = Routers::new(&Topology::grid(4, 4), 6, |_, _| {});
    routers.loss = Chance::percent(10);
    routers.run_until(seconds(120));
    for (from, node) in routers.nodes.iter().enumerate() {
        assert!(node.routes().len() >= 14, "{from}: {} of 15", node.routes().len());
    }
}

/// RFC 3626 §3.4.1 and §8.3: only multipoint relays send a TC on, and all nodes have it.
#[test]
fn a_topology_message_is_sent_on_by_relays_alone() {
    let topology = Topology::random_geometric(60, 14, 2);
    let mut routers = Routers::new(&topology, 2, |_, _| {});
    // Relays change while links are found; afterwards they stay.
    routers.run_until(seconds(30));
    let before: Vec<u64> = routers.nodes.iter().map(|node| node.counters().forwarded).collect();
    routers.run_until(seconds(60));
    let (mut sent, mut forwarded) = (0, 0);
    for (_, from, packet) in routers.sent.iter().filter(|(at, _, _)| *at > seconds(30)) {
        for message in OlsrPacket::decode(packet).unwrap().messages {
            if message.head.kind == 2 {
                sent += 1;
                forwarded += usize::from(message.head.originator != address(*from));
            }
            // HELLOs are never sent on.
            assert!(message.head.kind != 1 || message.head.originator == address(*from));
        }
    }
    let originated = sent - forwarded;
    // Flooding would send each message on by every other node.
    assert!(forwarded > 0 && forwarded < originated * 59 * 7 / 10, "{forwarded} of {originated}");
    let selected: BTreeSet<Ipv4Addr> =
        routers.nodes.iter().flat_map(|node| node.relays().collect::<Vec<_>>()).collect();
    for (node, before) in routers.nodes.iter().zip(before) {
        let more = node.counters().forwarded - before;
        assert!(more == 0 || selected.contains(&node.main_address()), "{}", node.main_address());
    }
}

#[test]
fn a_node_that_never_forwards_is_no_relay_and_on_no_path() {
    // 0 - 1 - 2 and 0 - 3 - 2, where 1 never forwards.
    let topology = Topology::of(4, [(0, 1), (1, 2), (0, 3), (3, 2)]);
    let mut routers = Routers::new(&topology, 4, |at, settings| {
        if at == 1 {
            settings.willingness = 0;
        }
    });
    routers.run_until(seconds(30));
    assert_eq!(routers.next(0, 2), 3);
    assert_eq!(routers.next(2, 0), 3);
    assert_eq!(routers.nodes[0].relays().collect::<Vec<_>>(), [address(3)]);
    assert_eq!(routers.nodes[1].selectors().count(), 0);
}

#[test]
fn networks_are_announced_with_their_nearest_gateway() {
    let network = OlsrNetwork::new([192, 168, 7, 0].into(), 24);
    let mut routers = Routers::new(&Topology::line(5), 7, |at, settings| {
        if at == 0 || at == 4 {
            settings.networks = vec![network];
        }
    });
    routers.run_until(seconds(40));
    let of = |at: usize| routers.nodes[at].routes().get(&network).map(|route| route.hops);
    assert_eq!([1, 3].map(of), [Some(1), Some(1)]);
    assert_eq!(of(2), Some(2));
    // A gateway has no route to its own network.
    assert_eq!(of(0), None);
}

/// With hysteresis a link is used after some packets (RFC 3626 §14), and still is in the end.
#[test]
fn hysteresis_delays_links_and_keeps_good_ones() {
    let line = Topology::line(3);
    let mut plain = Routers::new(&line, 8, |_, _| {});
    let mut careful = Routers::new(&line, 8, |_, settings| settings.hysteresis = true);
    let first = |routers: &mut Routers| {
        for tenths in 0..600 {
            routers.run_until(Duration::from_millis(100 * tenths));
            if !routers.nodes[0].neighbours(routers.now).is_empty() {
                return routers.now;
            }
        }
        Duration::MAX
    };
    let (early, late) = (first(&mut plain), first(&mut careful));
    assert!(early < late && late < seconds(10), "{early:?} {late:?}");
    careful.run_until(seconds(40));
    careful.judge("hysteresis");
}

/// A node whose address is `at`, which one interface of the router under test hears.
struct Peer {
    at: Ipv4Addr,
    number: u16,
}

impl Peer {
    fn new(last: u8) -> Self {
        Self { at: [10, 0, 0, last].into(), number: 0 }
    }

    fn packet(&mut self, originator: Ipv4Addr, ttl: u8, content: &OlsrContent) -> Vec<u8> {
        self.number += 1;
        let head = OlsrHead {
            kind: content.kind(),
            validity: OlsrTime::at_least(seconds(6)),
            originator,
            ttl,
            hops: 0,
            sequence: self.number,
        };
        OlsrPacket::encode(self.number, &OlsrMessage { head, body: &content.encode() }.encode())
    }

    fn hello(&mut self, links: Vec<(OlsrLinkCode, Ipv4Addr)>) -> Vec<u8> {
        let interval = OlsrTime::at_least(seconds(2));
        self.packet(self.at, 1, &OlsrContent::Hello { interval, willingness: 3, links })
    }

    fn topology(&mut self, of: Ipv4Addr, ansn: u16, to: &[u8]) -> Vec<u8> {
        let neighbours = to.iter().map(|last| [10, 0, 0, *last].into()).collect();
        self.packet(of, 255, &OlsrContent::Topology { sequence: ansn, neighbours })
    }
}

const SYMMETRIC: OlsrLinkCode =
    OlsrLinkCode { link: OlsrLinkType::Symmetric, neighbour: OlsrNeighbourType::Symmetric };
const RELAY: OlsrLinkCode =
    OlsrLinkCode { link: OlsrLinkType::Symmetric, neighbour: OlsrNeighbourType::Relay };
const LOST: OlsrLinkCode =
    OlsrLinkCode { link: OlsrLinkType::Lost, neighbour: OlsrNeighbourType::Not };

fn router() -> OlsrNode {
    let mut node = OlsrNode::new(OlsrSettings::new(address(0), 1));
    node.handle(Duration::ZERO, OlsrInput::InterfaceUp { link: RADIO, address: address(0) });
    node
}

fn tell(node: &mut OlsrNode, now: Duration, peer: &Peer, octets: &[u8]) {
    node.handle(now, OlsrInput::Received { link: RADIO, from: peer.at, octets });
}

fn hosts(node: &OlsrNode) -> Vec<u8> {
    node.routes().keys().map(|to| to.address.octets()[3]).collect()
}

/// Nobody forges a route to what no node is: RFC 1812 §5.3.7.
#[test]
fn martians_are_dropped_and_counted() {
    let (mut node, mut peer) = (router(), Peer::new(2));
    for number in 1..3 {
        let hello = peer.hello(vec![(SYMMETRIC, address(0))]);
        tell(&mut node, seconds(number), &peer, &hello);
    }
    assert_eq!(hosts(&node), [2]);
    let martians: [[u8; 4]; 5] =
        [[127, 0, 0, 1], [0, 1, 2, 3], [224, 0, 0, 5], [240, 0, 0, 1], [255, 255, 255, 255]];
    for (at, martian) in martians.into_iter().map(Ipv4Addr::from).enumerate() {
        let network = OlsrNetwork::new(martian, 24);
        for (of, content) in [
            (martian, OlsrContent::Topology { sequence: 1, neighbours: vec![address(5)] }),
            (peer.at, OlsrContent::Topology { sequence: 1, neighbours: vec![martian] }),
            (peer.at, OlsrContent::Interfaces(vec![martian])),
            (peer.at, OlsrContent::Networks(vec![network])),
        ] {
            let packet = peer.packet(of, 255, &content);
            tell(&mut node, seconds(3), &peer, &packet);
        }
        let hello = peer.hello(vec![(SYMMETRIC, address(0)), (SYMMETRIC, martian)]);
        tell(&mut node, seconds(3), &peer, &hello);
        assert_eq!((hosts(&node), node.counters().martian), (vec![2], 5 * (at as u64 + 1)));
    }
    // The way to the Internet names no host.
    let everywhere = OlsrContent::Networks(vec![OlsrNetwork::new([0, 0, 0, 0].into(), 0)]);
    let packet = peer.packet(peer.at, 255, &everywhere);
    tell(&mut node, seconds(3), &peer, &packet);
    assert_eq!(node.routes().len(), 2);
}

/// RFC 3626 §7.1.1: asymmetric, then symmetric when the neighbour names us, then lost.
#[test]
fn a_link_is_symmetric_once_the_neighbour_names_us() {
    let (mut node, mut peer) = (router(), Peer::new(2));
    let hello = peer.hello(vec![]);
    tell(&mut node, seconds(1), &peer, &hello);
    assert!(node.neighbours(seconds(1)).is_empty());
    let hello = peer.hello(vec![(SYMMETRIC, address(0))]);
    tell(&mut node, seconds(2), &peer, &hello);
    assert_eq!(node.neighbours(seconds(2)), [peer.at]);
    assert_eq!(hosts(&node), [2]);
    let hello = peer.hello(vec![(LOST, address(0))]);
    tell(&mut node, seconds(3), &peer, &hello);
    assert!(node.neighbours(seconds(3)).is_empty() && hosts(&node).is_empty());
}

/// RFC 3626 §9.5 and §19: an older ANSN is ignored, a newer one replaces, across the wrap-around.
#[test]
fn advertised_sequence_numbers_wrap_around() {
    let (mut node, mut peer) = (router(), Peer::new(2));
    let hello = peer.hello(vec![(SYMMETRIC, address(0)), (SYMMETRIC, [10, 0, 0, 3].into())]);
    tell(&mut node, seconds(1), &peer, &hello);
    let far: Ipv4Addr = [10, 0, 0, 3].into();
    for (ansn, announced, expected) in [
        (0xfffe, 4, [2, 3, 4]),
        (0xfffd, 5, [2, 3, 4]), // old
        (0xffff, 6, [2, 3, 6]),
        (0x0001, 7, [2, 3, 7]), // newer, past the wrap-around
        (0xffff, 8, [2, 3, 7]), // old again
    ] {
        let packet = peer.topology(far, ansn, &[announced]);
        tell(&mut node, seconds(2), &peer, &packet);
        assert_eq!(hosts(&node), expected, "ANSN {ansn:#x}");
    }
    assert_eq!(node.counters().old, 2);
}

/// RFC 3626 §3.4.1: strangers' messages and those of neighbours that have not chosen us stay here;
/// one of a selector is sent on once, with TTL and hop count changed.
#[test]
fn messages_are_sent_on_for_selectors_once() {
    let (mut node, mut peer, mut other) = (router(), Peer::new(2), Peer::new(3));
    let far: Ipv4Addr = [10, 0, 0, 9].into();
    let packet = peer.topology(far, 1, &[8]);
    tell(&mut node, seconds(1), &peer, &packet);
    assert_eq!((node.counters().stranger, node.counters().forwarded), (1, 0));
    assert!(hosts(&node).is_empty());
    for (peer, code) in [(&mut peer, RELAY), (&mut other, SYMMETRIC)] {
        let hello = peer.hello(vec![(code, address(0))]);
        tell(&mut node, seconds(2), peer, &hello);
    }
    assert_eq!(node.selectors().collect::<Vec<_>>(), [peer.at]);
    let packet = other.topology(far, 2, &[8]);
    tell(&mut node, seconds(2), &other, &packet);
    assert_eq!(node.counters().forwarded, 0, "not for a neighbour that has not chosen us");
    peer.number = 50;
    let packet = peer.topology(far, 3, &[8]);
    tell(&mut node, seconds(2), &peer, &packet);
    tell(&mut node, seconds(2), &peer, &packet);
    assert_eq!((node.counters().forwarded, node.counters().repeated), (1, 1));
    while node.poll_output().is_some() {}
    let mut heads = Vec::new();
    node.handle(seconds(3), OlsrInput::Tick);
    while let Some(output) = node.poll_output() {
        let OlsrOutput::Send { octets, .. } = output else { continue };
        let packet = OlsrPacket::decode(&octets).unwrap();
        heads.extend(packet.messages.iter().map(|message| message.head));
    }
    let sent: Vec<_> = heads.iter().filter(|head| head.originator == far).collect();
    assert_eq!(sent.iter().map(|head| (head.ttl, head.hops)).collect::<Vec<_>>(), [(254, 1)]);
    // A message with one hop to go ends here.
    let last = peer.packet(far, 1, &OlsrContent::Topology { sequence: 4, neighbours: vec![] });
    tell(&mut node, seconds(3), &peer, &last);
    assert_eq!(node.counters().forwarded, 1);
}

/// RFC 3626 §5: a node is reached at its further interfaces once a MID has named them.
#[test]
fn further_interfaces_have_routes() {
    let (mut node, mut peer) = (router(), Peer::new(2));
    let hello = peer.hello(vec![(SYMMETRIC, address(0))]);
    tell(&mut node, seconds(1), &peer, &hello);
    let mid = OlsrContent::Interfaces(vec![[10, 0, 0, 77].into()]);
    let packet = peer.packet(peer.at, 255, &mid);
    tell(&mut node, seconds(1), &peer, &packet);
    assert_eq!(hosts(&node), [2, 77]);
    let OlsrNetwork { address, .. } = OlsrNetwork::host([10, 0, 0, 77].into());
    assert_eq!(node.routes()[&OlsrNetwork::host(address)].next_hop, peer.at);
}

/// A flood of HELLOs from invented neighbours fills a table and is counted; nothing grows beyond.
#[test]
fn tables_have_bounds() {
    let mut node = router();
    for last in 0..1_000_u32 {
        let mut peer = Peer { at: Ipv4Addr::from(0x0a01_0000 + last), number: 0 };
        let far = (0..100_u32).map(|far| (SYMMETRIC, Ipv4Addr::from(0x0b00_0000 + far)));
        let links = far.chain([(SYMMETRIC, address(0))]).collect();
        let hello = peer.hello(links);
        tell(&mut node, seconds(1), &peer, &hello);
    }
    assert_eq!(node.neighbours(seconds(1)).len(), 256);
    assert_eq!(node.counters().links_full, 1_000 - 256);
    assert_eq!(node.counters().two_hop_full, 256 * 100 - 16_384);
}

/// RFC 3626 §13: a link that the link layer has lost is not used though its HELLOs are still valid, both
/// ends announce it, and it is used again when the link layer has found it.
#[test]
fn a_link_that_the_link_layer_loses_is_left_at_once() {
    let mut mesh = Routers::new(&Topology::ring(6), 1, |_, _| {});
    mesh.run_until(seconds(40));
    mesh.judge("ring");
    for (at, other) in [(0, 1), (1, 0)] {
        let lost = OlsrInput::LinkLost { link: RADIO, address: address(other) };
        mesh.nodes[at].handle(mesh.now, lost);
        let route = mesh.nodes[at].routes().get(&OlsrNetwork::host(address(other))).copied();
        assert_ne!(route.map(|route| route.next_hop), Some(address(other)));
    }
    let (from, sent) = (mesh.now, mesh.sent.len());
    mesh.run_until(from + Duration::from_millis(1_100));
    let is_topology = |(_, node, octets): &&(Duration, usize, Vec<u8>)| *node < 2 && octets[4] == 2;
    let announced = mesh.sent[sent..].iter().filter(is_topology).map(|(_, node, _)| *node);
    assert_eq!(announced.collect::<BTreeSet<_>>(), BTreeSet::from([0, 1]), "TCs of both ends");
    mesh.run_until(from + seconds(3));
    let mut near = mesh.near.clone();
    mesh.cut(0, 1);
    mesh.judge("a ring without a link");
    std::mem::swap(&mut mesh.near, &mut near);
    for (at, other) in [(0, 1), (1, 0)] {
        let found = OlsrInput::LinkFound { link: RADIO, address: address(other) };
        mesh.nodes[at].handle(mesh.now, found);
    }
    mesh.run_until(from + seconds(30));
    mesh.judge("the ring again");
}

/// A route that avoids nodes leads through none of them, and to none of them.
#[test]
fn a_route_avoids_nodes() {
    let mut mesh = Routers::new(&Topology::three_paths(), 2, |_, _| {});
    mesh.run_until(seconds(40));
    let via = |avoided: &[usize]| {
        let avoided: Vec<Ipv4Addr> = avoided.iter().copied().map(address).collect();
        let route = mesh.nodes[0].route_avoiding(mesh.now, address(6), &avoided);
        route.map(|route| (route.next_hop, route.hops))
    };
    assert_eq!(via(&[]), Some((address(1), 2)));
    let others = [address(2), address(4)].map(|next_hop| Some((next_hop, 3)));
    assert!(others.contains(&via(&[1])), "{:?}", via(&[1]));
    assert_eq!(via(&[1, 2]), Some((address(4), 3)));
    assert_eq!(via(&[1, 3]), Some((address(4), 3)));
    assert_eq!((via(&[1, 2, 4]), via(&[6])), (None, None));
}
