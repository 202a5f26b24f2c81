//! Who may keep a bridge port from forwarding: in an open mesh whoever stands at its segment, in an
//! authenticated one only other nodes of the mesh.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail loudly"
)]

use gatewright_mesh::message::{Message, PortHello, Sender};
use gatewright_mesh::simulate::MeshWorld;
use gatewright_mesh::{
    BridgePort, MeshCounters, MeshInput, MeshKeys, MeshMembers, MeshNode, MeshNodeKey, MeshOutput,
    MeshSettings, MeshTrust, NodeId, Profile,
};
use gatewright_packet::LinkAddress;
use gatewright_sim::Topology;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const PORT: BridgePort = BridgePort(0);

/// From the start of a port to its forwarding, if nobody else does.
const LISTENS: Duration = Duration::from_millis(1_200);

fn key(index: u8) -> MeshNodeKey {
    MeshNodeKey::of_seed([index + 1; 32]).unwrap()
}

fn psk(_: u8) -> MeshTrust {
    MeshTrust::Psk(MeshKeys::parse(&"5a".repeat(32)).unwrap())
}

fn pki(index: u8) -> MeshTrust {
    let listed = (0..3).map(|index| key(index).public()).collect();
    let members = MeshMembers { listed, ..MeshMembers::default() };
    MeshTrust::Pki(Box::new((key(index), members)))
}

fn open(_: u8) -> MeshTrust {
    MeshTrust::Open
}

/// The trust of a node by its number.
type TrustOf = fn(u8) -> MeshTrust;

/// Each trust model, and whether it authenticates.
const TRUSTS: [(TrustOf, bool); 3] = [(psk, true), (pki, true), (open, false)];

fn address(index: u8) -> LinkAddress {
    LinkAddress::ethernet([2, 1, 0, 0, 0, index])
}

fn node(index: u8, epoch: u32, trust: MeshTrust) -> MeshNode {
    let id = NodeId(0x0200_0000_0010 + u64::from(index));
    let mut settings = MeshSettings::new(id, epoch, Profile::Default);
    settings.trust = trust;
    MeshNode::new(settings)
}

/// Nodes with one port each on the same segment.
struct Segment {
    nodes: Vec<(u8, MeshNode)>,
    now: Duration,
    /// What was sent to all, and by whom.
    recorded: Vec<(u8, Vec<u8>)>,
}

impl Segment {
    fn new(nodes: Vec<(u8, MeshNode)>) -> Self {
        let mut this = Self { nodes: Vec::new(), now: Duration::ZERO, recorded: Vec::new() };
        for (index, node) in nodes {
            this.start(index, node);
        }
        this
    }

    fn start(&mut self, index: u8, mut node: MeshNode) {
        node.handle(self.now, MeshInput::PortUp { port: PORT, address: address(index) });
        self.nodes.push((index, node));
    }

    fn stop(&mut self, index: u8) -> MeshNode {
        let at = self.nodes.iter().position(|(known, _)| *known == index).unwrap();
        self.nodes.remove(at).1
    }

    fn settle(&mut self) {
        loop {
            let mut sent = Vec::new();
            for (index, node) in &mut self.nodes {
                while let Some(output) = node.poll_output() {
                    if let MeshOutput::SendHello { to, octets, .. } = output {
                        sent.push((*index, to, octets));
                    }
                }
            }
            if sent.is_empty() {
                return;
            }
            for (from, to, octets) in sent {
                for (index, node) in &mut self.nodes {
                    if *index != from && to.is_none_or(|to| to == address(*index)) {
                        let (port, from, octets) = (PORT, address(from), &octets[..]);
                        node.handle(self.now, MeshInput::PortHello { port, from, octets });
                    }
                }
                if to.is_none() {
                    self.recorded.push((from, octets));
                }
            }
        }
    }

    /// A frame of a stranger, with whatever source.
    fn inject(&mut self, from: LinkAddress, octets: &[u8]) {
        for (_, node) in &mut self.nodes {
            node.handle(self.now, MeshInput::PortHello { port: PORT, from, octets });
        }
        self.settle();
    }

    /// Runs for a time; each 100 ms `each` sends what it likes.
    fn run_for(&mut self, time: Duration, mut each: impl FnMut(&mut Self)) {
        let (start, until) = (self.now, self.now + time);
        while self.now < until {
            self.now += 10 * MS;
            for (_, node) in &mut self.nodes {
                node.handle(self.now, MeshInput::Tick);
            }
            self.settle();
            if self.now.saturating_sub(start).as_millis().is_multiple_of(100) {
                each(self);
            }
        }
    }

    fn of(&self, index: u8) -> &MeshNode {
        &self.nodes.iter().find(|(known, _)| *known == index).unwrap().1
    }

    fn forwards(&self) -> Vec<u8> {
        let all = self.nodes.iter().filter(|(_, node)| node.forwards(PORT));
        all.map(|(index, _)| *index).collect()
    }

    fn counters(&self, index: u8) -> MeshCounters {
        self.of(index).counters()
    }
}

fn idle(_: &mut Segment) {}

/// A hello that nobody with a key has sent: its sender is lower than any node, and forwards.
fn invented() -> Vec<u8> {
    let stations = 0x0200_0000_0099_u64.to_be_bytes();
    let hello =
        PortHello { port: 0, interval_ms: 300, forwards: true, ready: true, stations: &stations };
    let sender = Sender { node: NodeId(1), epoch: 1, sequence: 1 };
    Message::PortHello(hello).encode(sender, Profile::Default)
}

/// Nodes with keys agree as those of an open mesh do: one forwards, and another one takes over.
#[test]
fn nodes_with_keys_agree() {
    for (trust, is_authenticated) in TRUSTS {
        let mut segment = Segment::new((0..3).map(|it| (it, node(it, 1, trust(it)))).collect());
        segment.run_for(2 * SECOND, idle);
        let [first] = segment.forwards()[..] else { panic!("{:?}", segment.forwards()) };
        segment.stop(first);
        segment.run_for(LISTENS, idle);
        let [second] = segment.forwards()[..] else { panic!("{:?}", segment.forwards()) };
        assert_ne!(first, second);
        // It comes back with another index, and interrupts nothing.
        segment.start(first, node(first, 2, trust(first)));
        segment.run_for(3 * SECOND, idle);
        assert_eq!(segment.forwards(), [second]);
        let all: Vec<MeshCounters> =
            segment.nodes.iter().map(|(_, node)| node.counters()).collect();
        assert!(all.iter().all(|it| it.forged + it.replayed == 0), "{all:?}");
        assert_eq!(all.iter().any(|it| it.challenges > 0), is_authenticated, "{all:?}");
    }
}

/// A stranger's hellos, without a trailer, with one of octets that it makes up, and with that of a
/// message of a node.
#[test]
fn a_forged_hello_is_counted_and_stops_no_port() {
    for (trust, is_authenticated) in TRUSTS {
        let mut segment = Segment::new(vec![(0, node(0, 1, trust(0)))]);
        let mut sent = 0;
        segment.run_for(3 * SECOND, |segment| {
            let trailer = segment.recorded.last().map_or(&[][..], |(_, octets)| octets);
            let trailer = trailer.get(trailer.len().saturating_sub(40)..).unwrap_or_default();
            let plain = invented();
            for octets in
                [plain.clone(), [&plain[..], &[1; 40]].concat(), [&plain, trailer].concat()]
            {
                segment.inject(address(200), &octets);
                sent += 1;
            }
        });
        assert_eq!(segment.forwards().is_empty(), !is_authenticated);
        let counters = segment.counters(0);
        assert_eq!(counters.forged, if is_authenticated { sent } else { 0 }, "{counters:?}");
        assert_eq!(segment.of(0).stations().count(), usize::from(!is_authenticated));
    }
}

/// Every octet of a hello is covered, and the address that it comes from.
#[test]
fn a_changed_hello_is_forged() {
    for trust in [psk, pki] {
        let mut segment = Segment::new((0..2).map(|it| (it, node(it, 1, trust(it)))).collect());
        segment.run_for(2 * SECOND, idle);
        let (from, octets) = segment.recorded.last().unwrap().clone();
        let other = 1 - from;
        let before = segment.counters(other);
        for at in 1..octets.len() {
            let mut changed = octets.clone();
            changed[at] ^= 1;
            segment.inject(address(from), &changed);
        }
        segment.inject(address(200), &octets);
        let after = segment.counters(other);
        let dropped = |it: MeshCounters| it.forged + it.malformed + it.signatures_limited;
        let all = u64::try_from(octets.len()).unwrap();
        // One whose type has changed is a message of links, which ports do not hear.
        assert!(dropped(after) - dropped(before) >= all - 1, "{before:?} {after:?}");
        assert_eq!(segment.forwards().len(), 1);
    }
}

/// The port that forwards is gone, and a stranger sends again what it has said: at once, and to a node
/// that has been restarted and knows no counters.
#[test]
fn a_recorded_hello_keeps_no_port_from_forwarding() {
    for (trust, is_authenticated) in TRUSTS {
        let mut segment = Segment::new((0..2).map(|it| (it, node(it, 1, trust(it)))).collect());
        segment.run_for(3 * SECOND, idle);
        let [first] = segment.forwards()[..] else { panic!("{:?}", segment.forwards()) };
        let other = 1 - first;
        segment.stop(first);
        let last = segment.recorded.iter().rev().find(|(from, _)| *from == first).unwrap();
        let recorded = last.1.clone();
        let again = |segment: &mut Segment| segment.inject(address(first), &recorded);
        segment.run_for(LISTENS, again);
        let taken_over = if is_authenticated { vec![other] } else { vec![] };
        assert_eq!(segment.forwards(), taken_over);
        assert_eq!(segment.counters(other).replayed > 5, is_authenticated);

        segment.stop(other);
        segment.start(other, node(other, 2, trust(other)));
        segment.run_for(LISTENS + 100 * MS, again);
        assert_eq!(segment.forwards(), taken_over);
        let counters = segment.counters(other);
        assert_eq!(counters.unknown_index > 5, is_authenticated, "{counters:?}");
        // At most one challenge each 300 ms, and no answer.
        assert!(counters.challenges <= 5, "{counters:?}");
    }
}

/// Two ports of one node on one segment challenge each other as those of two nodes do.
#[test]
fn two_ports_of_one_node_are_two() {
    for trust in [psk, pki] {
        let mut node = node(0, 1, trust(0));
        let ports = [0, 1].map(|port| (BridgePort(port), address(u8::try_from(port).unwrap())));
        for (port, address) in ports {
            node.handle(Duration::ZERO, MeshInput::PortUp { port, address });
        }
        let mut now = Duration::ZERO;
        for _ in 0..300 {
            now += 10 * MS;
            node.handle(now, MeshInput::Tick);
            while let Some(output) = node.poll_output() {
                let MeshOutput::SendHello { port: said_at, to, octets } = output else { continue };
                let (_, from) = ports[usize::from(said_at.0)];
                for (port, address) in ports.into_iter().filter(|(port, _)| *port != said_at) {
                    if to.is_none_or(|to| to == address) {
                        node.handle(now, MeshInput::PortHello { port, from, octets: &octets });
                    }
                }
            }
        }
        let forwarding = ports.iter().filter(|(port, _)| node.forwards(*port)).count();
        assert_eq!(forwarding, 1, "of two ports on one segment");
        assert_eq!(node.counters().forged + node.counters().replayed, 0);
    }
}

fn with_a_key(settings: &mut MeshSettings) {
    settings.trust = psk(0);
}

/// In a world: two nodes on one segment, from the start and when one is killed and comes back.
#[test]
fn segments_of_an_authenticated_mesh_have_one_forwarder() {
    for seed in 0..10 {
        let mut world = MeshWorld::new(Topology::ring(4), Profile::Default, seed, with_a_key);
        let (shared, far) = (world.add_segment(&[0, 1]), world.add_segment(&[2]));
        let (a, b) = (world.add_station(shared), world.add_station(far));
        for _ in 0..300 {
            world.run_for(10 * MS);
            assert!(world.forwarders(shared).len() <= 1, "seed {seed}");
        }
        let [first] = world.forwarders(shared)[..] else { panic!("seed {seed}: one forwards") };
        for station in [a, b] {
            world.station_broadcast(station);
        }
        world.run_for(SECOND);
        world.kill(first);
        world.run_for(LISTENS);
        assert_eq!(world.forwarders(shared), [1 - first], "seed {seed}");
        world.reboot(first);
        world.run_for(3 * SECOND);
        assert_eq!(world.forwarders(shared), [1 - first], "seed {seed}");
        let number = world.station_ping(b, a);
        world.run_for(SECOND);
        assert!(world.station_pings()[number].rtt.is_some(), "seed {seed}");
        assert_eq!(world.sum(|counters| counters.forged + counters.replayed), 0);
        assert!(world.violations().is_empty(), "{:?}", world.violations());
    }
}
