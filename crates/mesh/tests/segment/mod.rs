//! Nodes on one segment, without delays, and strangers beside them.
#![allow(dead_code, reason = "each test uses a part")]

use gatewright_mesh::message::{Alive, Message, Sender};
use gatewright_mesh::{
    LinkProperties, MeshCounters, MeshEvent, MeshInput, MeshNode, MeshOutput, MeshSettings,
    MeshTrust, NodeId, PathClass, PathId, Profile, RelayDelay,
};
use gatewright_packet::{LinkAddress, LinkIndex};
use gatewright_sim::Random;
use std::time::Duration;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const LINK: LinkIndex = LinkIndex(0);
/// Who has no key.
pub(crate) const STRANGER: u8 = 9;

pub(crate) fn id(index: usize) -> NodeId {
    NodeId(u64::try_from(index).unwrap() + 1)
}

pub(crate) fn address(last: u8) -> LinkAddress {
    LinkAddress::ethernet([2, 0, 0, 0, 0, last])
}

pub(crate) fn own_address(index: usize) -> LinkAddress {
    address(u8::try_from(index).unwrap() + 1)
}

/// A frame on the segment: who sent it, to whom, and its message.
pub(crate) type Frame = (usize, Option<LinkAddress>, Vec<u8>);

/// Nodes on one segment, without delays.
pub(crate) struct Segment {
    pub(crate) nodes: Vec<MeshNode>,
    pub(crate) now: Duration,
    /// Every frame that was sent.
    pub(crate) recorded: Vec<Frame>,
    pub(crate) events: Vec<(usize, MeshEvent)>,
    pub(crate) paths: Vec<(usize, PathId)>,
}

impl Segment {
    pub(crate) fn new(count: usize, trust: &MeshTrust) -> Self {
        Self::of((0..count).map(|index| node(index, 1, trust)).collect())
    }

    /// A segment of these nodes, which have heard each other.
    pub(crate) fn of(nodes: Vec<MeshNode>) -> Self {
        let (recorded, events, paths) = (Vec::new(), Vec::new(), Vec::new());
        let mut this = Self { nodes, now: Duration::ZERO, recorded, events, paths };
        this.run_for(5_000 * MS);
        this
    }

    /// Delivers what the nodes have sent until nobody sends any more.
    pub(crate) fn settle(&mut self) {
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

    pub(crate) fn receive(&mut self, node: usize, from: LinkAddress, octets: &[u8]) {
        let input = MeshInput::Received { link: LINK, from, octets };
        self.nodes[node].handle(self.now, input);
    }

    /// A frame of a stranger, with whatever address.
    pub(crate) fn inject(&mut self, node: usize, from: LinkAddress, octets: &[u8]) {
        self.receive(node, from, octets);
        self.settle();
    }

    pub(crate) fn run_for(&mut self, time: Duration) {
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

    pub(crate) fn counters(&self, node: usize) -> MeshCounters {
        self.nodes[node].counters()
    }

    pub(crate) fn send(&mut self, from: usize, to: usize) {
        let destination = self.nodes[to].id();
        let packet: &[u8] = b"packet";
        let input = MeshInput::Packet { destination, class: PathClass::BULK, packet };
        self.nodes[from].handle(self.now, input);
        self.settle();
    }
}

pub(crate) fn node(index: usize, epoch: u32, trust: &MeshTrust) -> MeshNode {
    let mut settings = MeshSettings::new(id(index), epoch, Profile::Default);
    settings.trust = trust.clone();
    let mut node = MeshNode::new(settings);
    let address = own_address(index);
    let properties = LinkProperties { address, ..LinkProperties::default() };
    node.handle(Duration::ZERO, MeshInput::LinkUp { link: LINK, properties });
    node
}

pub(crate) fn written(message: &Message<'_>, node: NodeId, epoch: u32, sequence: u32) -> Vec<u8> {
    message.encode(Sender { node, epoch, sequence }, Profile::Default)
}

pub(crate) fn alive() -> Message<'static> {
    Message::Alive(Alive {
        interval_ms: 2_000,
        more: false,
        part: 0,
        wants_list: false,
        delay: RelayDelay::unmeasured(50),
        neighbours: None,
        labels: &[],
    })
}

/// A message of the first node for the second is none for the third, nor from another address.
pub(crate) fn judge_receivers(mut mesh: Segment) {
    mesh.send(0, 1);
    let is_for_second = |frame: &&Frame| frame.0 == 0 && frame.1 == Some(own_address(1));
    let octets = mesh.recorded.iter().rev().find(is_for_second).unwrap().2.clone();
    let before = [mesh.counters(1), mesh.counters(2)].map(|counters| counters.forged);
    mesh.inject(2, own_address(0), &octets);
    mesh.inject(1, address(STRANGER), &octets);
    let after = [mesh.counters(1), mesh.counters(2)].map(|counters| counters.forged);
    assert_eq!(after, before.map(|forged| forged + 1));
}

/// Type of a CHALLENGE (the protocol's page).
const CHALLENGE: u8 = 10;

/// Time until two nodes have heard each other and the first one has a path to the second, which has just been
/// started; each ms a stranger sends some of what was recorded.
fn time_to_a_path(
    mesh: &mut Segment,
    started: MeshNode,
    replayed: &[Frame],
    random: &mut Random,
) -> Duration {
    mesh.nodes[1] = started;
    mesh.events.clear();
    let start = mesh.now;
    let mut is_sent = false;
    while mesh.now < start + 20_000 * MS {
        for _ in 0..if replayed.is_empty() { 0 } else { 5 } {
            let at = random.below(replayed.len().try_into().unwrap());
            let (from, to, octets) = &replayed[usize::try_from(at).unwrap()];
            let to = (0..2).find(|&node| *to == Some(own_address(node))).unwrap();
            mesh.inject(to, own_address(*from), octets);
        }
        mesh.run_for(MS);
        let has = |at: usize, is: fn(&MeshEvent) -> bool| {
            mesh.events.iter().any(|(node, event)| *node == at && is(event))
        };
        let is_up = |event: &MeshEvent| matches!(event, MeshEvent::NeighbourUp(_));
        let is_found = |event: &MeshEvent| matches!(event, MeshEvent::PathFound { .. });
        if has(0, is_found) {
            break;
        }
        if !is_sent && has(0, is_up) && has(1, is_up) {
            mesh.send(0, 1);
            is_sent = true;
        }
    }
    mesh.now.checked_sub(start).unwrap()
}

/// A stranger sends 5,000 recorded challenges a second, of several starts of two nodes, while one of them starts
/// again: it takes part as soon as without the stranger.
pub(crate) fn replay_challenges(mut mesh: Segment, start: impl Fn(usize, u32) -> MeshNode) {
    let mut random = Random::new(1);
    for epoch in 2..6 {
        for index in 0..2 {
            mesh.nodes[index] = start(index, epoch);
            mesh.run_for(2_000 * MS);
        }
    }
    let is_challenge = |frame: &&Frame| frame.2.get(1) == Some(&CHALLENGE);
    let replayed: Vec<Frame> = mesh.recorded.iter().filter(is_challenge).cloned().collect();
    assert!(replayed.len() >= 10, "{}", replayed.len());
    for epoch in 6..10 {
        let alone = time_to_a_path(&mut mesh, start(1, epoch), &[], &mut random);
        let attacked = time_to_a_path(&mut mesh, start(1, epoch + 10), &replayed, &mut random);
        assert!(attacked <= alone + 1_000 * MS, "{attacked:?}, without the stranger {alone:?}");
        let before = [0, 1].map(|node| mesh.counters(node));
        for (from, to, octets) in &replayed {
            let to = (0..2).find(|&node| *to == Some(own_address(node))).unwrap();
            mesh.inject(to, own_address(*from), octets);
        }
        let replays = |node: usize| mesh.counters(node).replayed - before[node].replayed;
        assert_eq!(replays(0) + replays(1), replayed.len().try_into().unwrap(), "none is answered");
    }
}
