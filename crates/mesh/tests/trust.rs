//! What strangers can do in an authenticated mesh: nothing; each test shows that the same frames do
//! harm in an open one.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail loudly"
)]

use gatewright_mesh::message::{Alive, Message, RouteReply, RouteRequest, Sender};
use gatewright_mesh::{
    LinkProperties, MeshCounters, MeshEvent, MeshInput, MeshKeys, MeshNode, MeshOutput,
    MeshSettings, MeshTrust, NodeId, PathClass, PathId, Profile, Reason,
};
use gatewright_packet::{LinkAddress, LinkIndex};
use gatewright_wire::mpls::Label;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const LINK: LinkIndex = LinkIndex(0);
/// Who has no key.
const STRANGER: u8 = 9;

fn psk(octet: &str) -> MeshTrust {
    MeshTrust::Psk(MeshKeys::parse(&octet.repeat(32)).unwrap())
}

fn id(index: usize) -> NodeId {
    NodeId(u64::try_from(index).unwrap() + 1)
}

fn address(last: u8) -> LinkAddress {
    LinkAddress::ethernet([2, 0, 0, 0, 0, last])
}

fn own_address(index: usize) -> LinkAddress {
    address(u8::try_from(index).unwrap() + 1)
}

/// A frame on the segment: who sent it, to whom, and its message.
type Frame = (usize, Option<LinkAddress>, Vec<u8>);

/// Nodes on one segment, without delays.
struct Segment {
    nodes: Vec<MeshNode>,
    now: Duration,
    /// Every frame that was sent.
    recorded: Vec<Frame>,
    events: Vec<(usize, MeshEvent)>,
    paths: Vec<(usize, PathId)>,
}

impl Segment {
    fn new(count: usize, trust: &MeshTrust) -> Self {
        let nodes = (0..count).map(|index| node(index, 1, trust)).collect();
        let (recorded, events, paths) = (Vec::new(), Vec::new(), Vec::new());
        let mut this = Self { nodes, now: Duration::ZERO, recorded, events, paths };
        this.run_for(5_000 * MS);
        this
    }

    /// Delivers what the nodes have sent until nobody sends any more.
    fn settle(&mut self) {
        loop {
            let mut frames = Vec::new();
            for (index, node) in self.nodes.iter_mut().enumerate() {
                while let Some(output) = node.poll_output() {
                    match output {
                        MeshOutput::Send { to, octets, .. } => frames.push((index, to, octets)),
                        MeshOutput::Event(event) => self.events.push((index, event)),
                        MeshOutput::InstallPath { path, .. } => self.paths.push((index, path)),
                        _ => {}
                    }
                }
            }
            if frames.is_empty() {
                return;
            }
            for (from, to, octets) in frames {
                for other in 0..self.nodes.len() {
                    if other != from && to.is_none_or(|to| to == own_address(other)) {
                        self.receive(other, own_address(from), &octets);
                    }
                }
                self.recorded.push((from, to, octets));
            }
        }
    }

    fn receive(&mut self, node: usize, from: LinkAddress, octets: &[u8]) {
        let input = MeshInput::Received { link: LINK, from, octets };
        self.nodes[node].handle(self.now, input);
    }

    /// A frame of a stranger, with whatever address.
    fn inject(&mut self, node: usize, from: LinkAddress, octets: &[u8]) {
        self.receive(node, from, octets);
        self.settle();
    }

    fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.now += MS;
            for node in &mut self.nodes {
                if node.poll_timeout().is_some_and(|at| at <= self.now) {
                    node.handle(self.now, MeshInput::Tick);
                }
            }
            self.settle();
        }
    }

    fn counters(&self, node: usize) -> MeshCounters {
        self.nodes[node].counters()
    }

    fn send(&mut self, from: usize, to: usize) {
        let destination = id(to);
        let packet: &[u8] = b"packet";
        let input = MeshInput::Packet { destination, class: PathClass::BULK, packet };
        self.nodes[from].handle(self.now, input);
        self.settle();
    }
}

fn node(index: usize, epoch: u32, trust: &MeshTrust) -> MeshNode {
    let mut settings = MeshSettings::new(id(index), epoch, Profile::Default);
    settings.trust = trust.clone();
    let mut node = MeshNode::new(settings);
    let address = own_address(index);
    let properties = LinkProperties { shared: true, address, ..LinkProperties::default() };
    node.handle(Duration::ZERO, MeshInput::LinkUp { link: LINK, properties });
    node
}

fn written(message: &Message<'_>, node: NodeId, epoch: u32, sequence: u32) -> Vec<u8> {
    message.encode(Sender { node, epoch, sequence }, Profile::Default)
}

fn alive() -> Message<'static> {
    Message::Alive(Alive {
        interval_ms: 2_000,
        more: false,
        part: 0,
        wants_list: false,
        relay_delay_us: 50,
        neighbours: None,
        labels: &[],
    })
}

/// Neighbours of a mesh with one key know each other after the first challenge.
#[test]
fn nodes_with_a_key_hear_each_other() {
    let mesh = Segment::new(3, &psk("5a"));
    for node in 0..3 {
        let counters = mesh.counters(node);
        assert_eq!(mesh.nodes[node].neighbours().len(), 2);
        assert_eq!((counters.forged, counters.replayed), (0, 0), "{counters:?}");
        assert!(counters.challenges <= 2, "one for each neighbour: {counters:?}");
    }
}

/// A node without the key, with another one, and messages without any.
#[test]
fn nodes_without_the_key_are_not_heard() {
    let mut mesh = Segment::new(2, &psk("5a"));
    mesh.nodes.push(node(2, 1, &psk("5b")));
    mesh.nodes.push(node(3, 1, &MeshTrust::Open));
    mesh.run_for(5_000 * MS);
    assert!(mesh.counters(0).forged >= 4, "{:?}", mesh.counters(0));
    assert_eq!(mesh.nodes[0].neighbours(), [id(1)]);
    let forged = mesh.counters(0).forged;
    for number in 100..2_100 {
        let octets = written(&alive(), NodeId(number), 1, 1);
        mesh.inject(0, address(STRANGER), &octets);
    }
    assert_eq!(mesh.counters(0).forged, forged + 2_000);
    assert_eq!(mesh.counters(0).neighbours_evicted, 0);
    assert_eq!(mesh.nodes[0].neighbours(), [id(1)]);
}

/// All that was sent is sent again: at once, and after the sender's restart.
#[test]
fn what_was_recorded_is_not_accepted_again() {
    let mut mesh = Segment::new(2, &psk("5a"));
    mesh.send(0, 1);
    mesh.run_for(1_000 * MS);
    let of_first: Vec<Vec<u8>> =
        mesh.recorded.iter().filter(|frame| frame.0 == 0).map(|frame| frame.2.clone()).collect();
    assert!(of_first.len() > 10);
    let received = mesh.counters(1);
    mesh.recorded.clear();
    for octets in &of_first {
        mesh.inject(1, own_address(0), octets);
    }
    let counters = mesh.counters(1);
    let count = u64::try_from(of_first.len()).unwrap();
    assert_eq!(counters.replayed, received.replayed + count, "{counters:?}");
    assert!(mesh.recorded.is_empty(), "{:?}", mesh.recorded);

    mesh.nodes[0] = node(0, 2, &psk("5a"));
    mesh.run_for(5_000 * MS);
    assert_eq!(mesh.nodes[1].neighbours(), [id(0)]);
    mesh.events.clear();
    for octets in &of_first {
        mesh.inject(1, own_address(0), octets);
    }
    let restarts = mesh.events.iter().filter(|(_, event)| {
        matches!(event, MeshEvent::NeighbourDown(..) | MeshEvent::NeighbourUp(_))
    });
    assert_eq!(restarts.count(), 0, "{:?}", mesh.events);
    assert_eq!(mesh.counters(1).challenges, received.challenges + 2, "one each 300 ms");
    // All of them, and the first of the new start.
    let dropped = |counters: MeshCounters| counters.unknown_index + counters.replayed;
    assert_eq!(dropped(mesh.counters(1)), dropped(counters) + count + 1);
}

/// The same in an open mesh: the old start's messages end what the new one has built.
#[test]
fn an_open_mesh_believes_what_was_recorded() {
    let mut mesh = Segment::new(2, &MeshTrust::Open);
    let old = mesh.recorded.iter().find(|frame| frame.0 == 0).unwrap().2.clone();
    mesh.nodes[0] = node(0, 2, &MeshTrust::Open);
    mesh.run_for(5_000 * MS);
    mesh.events.clear();
    mesh.inject(1, own_address(0), &old);
    let restarted = |(_, event): &(usize, MeshEvent)| matches!(event, MeshEvent::NeighbourDown(_, reason) if *reason == Reason::RESTARTED);
    assert!(mesh.events.iter().any(restarted));
}

/// A message for one node is none for another, nor from another address.
#[test]
fn a_message_is_for_whom_it_was_sent() {
    let mut mesh = Segment::new(3, &psk("5a"));
    mesh.send(0, 1);
    let is_for_second = |frame: &&Frame| frame.0 == 0 && frame.1 == Some(own_address(1));
    let octets = mesh.recorded.iter().rev().find(is_for_second).unwrap().2.clone();
    let before = [mesh.counters(1), mesh.counters(2)].map(|counters| counters.forged);
    mesh.inject(2, own_address(0), &octets);
    mesh.inject(1, address(STRANGER), &octets);
    let after = [mesh.counters(1), mesh.counters(2)].map(|counters| counters.forged);
    assert_eq!(after, before.map(|forged| forged + 1));
}

/// A PATH ERROR that no node has sent.
#[test]
fn a_forged_error_ends_no_path() {
    for (trust, survives) in [(psk("5a"), true), (MeshTrust::Open, false)] {
        let mut mesh = Segment::new(2, &trust);
        mesh.send(0, 1);
        let path = mesh.paths.iter().find(|(node, _)| *node == 0).unwrap().1;
        let error = Message::PathEnd { path, reporter: id(1), reason: Reason::SILENT };
        mesh.inject(0, own_address(1), &written(&error, id(1), 1, 1_000_000));
        // In an open mesh it is found again, as the other end has not lost it.
        let lost = mesh.events.iter().any(|(node, event)| {
            *node == 0 && matches!(event, MeshEvent::PathLost { path: lost, .. } if *lost == path)
        });
        assert_eq!(!lost, survives, "{trust:?}");
        let unknown = Message::LabelUnknown(Label(100));
        mesh.inject(0, own_address(1), &written(&unknown, id(1), 1, 1_000_001));
        assert_eq!(mesh.counters(0).forged, if survives { 2 } else { 0 });
    }
}

/// A stranger answers for a target that is not there: its traffic would go to the stranger.
#[test]
fn a_strangers_answer_draws_no_traffic() {
    let target = NodeId(77);
    for (trust, is_drawn) in [(psk("5a"), false), (MeshTrust::Open, true)] {
        let mut mesh = Segment::new(2, &trust);
        mesh.inject(0, address(STRANGER), &written(&alive(), target, 1, 1));
        let packet: &[u8] = b"secret";
        let input = MeshInput::Packet { destination: target, class: PathClass::BULK, packet };
        mesh.nodes[0].handle(mesh.now, input);
        mesh.settle();
        let asked = mesh.recorded.iter().rev().find_map(|(_, _, octets)| {
            match Message::decode(octets, Profile::Default).unwrap().1 {
                Message::Request(request) => Some(request.request),
                _ => None,
            }
        });
        let path = PathId { origin: id(0), target, number: 1 };
        let reply = Message::Reply(RouteReply {
            path,
            request: asked.unwrap(),
            label: Label(100),
            class: 2,
            frame_limit: 1_500,
            position: 0,
            cost: 1,
            delay_us: 1,
            record: Vec::new(),
        });
        mesh.inject(0, address(STRANGER), &written(&reply, target, 1, 2));
        let drawn = mesh.paths.iter().any(|(node, known)| *node == 0 && *known == path);
        assert_eq!(drawn, is_drawn, "{trust:?}");
    }
}

/// 2,000 ROUTE REQUESTs of a stranger; in an open mesh each origin has an allowance, but the stranger
/// has any number of names.
#[test]
fn a_strangers_flood_is_not_relayed() {
    for (trust, relayed) in [(psk("5a"), 0), (MeshTrust::Open, 2_000)] {
        let mut mesh = Segment::new(2, &trust);
        mesh.inject(0, address(STRANGER), &written(&alive(), NodeId(77), 1, 1));
        for number in 0..2_000_u32 {
            let request = Message::Request(RouteRequest {
                origin: NodeId(77),
                // A stranger that is one origin is limited to 20 at once and 10 in a second.
                origin_epoch: 1,
                request: number,
                target: NodeId(78),
                class: 2,
                background: false,
                frame_limit: 0,
                paths: 3,
                hops_left: 8,
                avoid: Vec::new(),
                record: Vec::new(),
            });
            mesh.inject(0, address(STRANGER), &written(&request, NodeId(77), 1, number + 2));
        }
        let counters = mesh.counters(0);
        let limited = counters.requests_relayed + counters.requests_limited;
        assert_eq!(limited, relayed, "{trust:?} {counters:?}");
        assert!(counters.requests_relayed <= 20, "{counters:?}");
    }
}

/// The mesh finds its way over neighbours that were authenticated.
#[test]
fn paths_are_found_in_an_authenticated_mesh() {
    let mut mesh = Segment::new(3, &psk("5a"));
    mesh.send(0, 2);
    mesh.run_for(100 * MS);
    let found = |(node, event): &(usize, MeshEvent)| {
        *node == 0
            && matches!(event, MeshEvent::PathFound { destination, .. } if *destination == id(2))
    };
    assert!(mesh.events.iter().any(found), "{:?}", mesh.events);
    mesh.run_for(10_000 * MS);
    let lost = mesh.events.iter().filter(|(_, event)| matches!(event, MeshEvent::PathLost { .. }));
    assert_eq!(lost.count(), 0);
}
