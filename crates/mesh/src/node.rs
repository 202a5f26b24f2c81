//! A node of the mesh.
//!
//! [`handle`](MeshNode::handle) takes an input; then call [`poll_output`](MeshNode::poll_output)
//! until it returns `None`, and send [`MeshInput::Tick`] at [`poll_timeout`](MeshNode::poll_timeout).

mod alive;
mod background;
mod bridge;
mod broadcast;
mod bypass;
mod connections;
mod discovery;
mod due;
mod echo;
mod ends;
mod establish;
mod failure;
mod recovery;
mod spread;
mod trust;

use crate::bridge::Bridge;
use crate::edge::{
    Adjacency, LabelledHop, LinkProperties, MeshCounters, MeshEvent, MeshInput, MeshOutput,
    MeshSettings, PathClass,
};
use crate::identity::{NodeId, PathId, Reason};
use crate::labels::{LabelDirection, Labels};
use crate::message::{Message, MessageError, Profile, Sender};
use crate::neighbour::{MeshLink, Neighbour, NeighbourAdmission, Neighbourhood};
use crate::routing::{LinkNews, RouteFinding};
use crate::segment::Segment;
use crate::timed::Timed;
use crate::trust::{Authentication, MeshTrust};
use broadcast::Broadcasts;
use bypass::BypassEntry;
use core::time::Duration;
use discovery::Requests;
use echo::Echoes;
use ends::Destination;
use establish::Unacknowledged;
use gatewright_packet::{LinkAddress, LinkIndex};
use gatewright_sim::Random;
use gatewright_wire::mpls::Label;
use recovery::Recovery;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Links of a node at the most.
pub const LINKS_MAX: usize = 64;

/// Interval of the sweep over paths and destinations.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Labels rest for this many times the idle time before they are given again.
const LABEL_REST: u32 = 9;

/// A node of the mesh: the protocol without I/O.
#[derive(Debug)]
pub struct MeshNode {
    settings: MeshSettings,
    routing: Box<dyn RouteFinding>,
    authentication: Option<Authentication>,
    /// What the origin of the message in process has said, with its signature.
    passing: Option<(Vec<u8>, Vec<u8>)>,
    random: Random,
    sequence: u32,
    number: u32,
    near: Neighbourhood,
    labels: Labels,
    segments: BTreeMap<PathId, Segment>,
    unacknowledged: Timed<BTreeMap<u32, Unacknowledged>>,
    /// What is forwarded around links of neighbours, by the label that was given for it.
    bypasses: BTreeMap<Label, BypassEntry>,
    requests: Timed<Requests>,
    destinations: Timed<BTreeMap<NodeId, Destination>>,
    /// Destinations with connections, known or not.
    connected: BTreeSet<NodeId>,
    broadcasts: Timed<Broadcasts>,
    bridge: Timed<Bridge>,
    echoes: Timed<Echoes>,
    recovery: Timed<Recovery>,
    /// Interval of LIVENESS in force, and since when.
    liveness: (Duration, Duration),
    sweep_at: Option<Duration>,
    outputs: VecDeque<MeshOutput>,
    counters: MeshCounters,
}

impl MeshNode {
    /// A node without links; with a key of its own, its identity is the key's.
    pub fn new(mut settings: MeshSettings) -> Self {
        let mut random = Random::new(settings.seed);
        let labels = Labels::new(&mut random, settings.path_idle * LABEL_REST);
        let number = u32::try_from(random.below(1 << 32)).unwrap_or(0);
        let authentication = match &settings.trust {
            MeshTrust::Open => None,
            trust => Authentication::new(trust, random.bits()),
        };
        settings.id = authentication.as_ref().and_then(Authentication::node).unwrap_or(settings.id);
        let routing = settings.routing.start(settings.id, || random.bits());
        Self {
            routing,
            authentication,
            passing: None,
            random,
            labels,
            number,
            liveness: (settings.liveness_interval, Duration::ZERO),
            settings,
            sequence: 0,
            near: Neighbourhood::default(),
            segments: BTreeMap::new(),
            unacknowledged: Timed::default(),
            bypasses: BTreeMap::new(),
            requests: Timed::default(),
            destinations: Timed::default(),
            connected: BTreeSet::new(),
            broadcasts: Timed::default(),
            bridge: Timed::default(),
            echoes: Timed::default(),
            recovery: Timed::default(),
            sweep_at: None,
            outputs: VecDeque::new(),
            counters: MeshCounters::default(),
        }
    }

    /// The node's identity.
    pub const fn id(&self) -> NodeId {
        self.settings.id
    }

    /// Counters since the start.
    pub const fn counters(&self) -> MeshCounters {
        self.counters
    }

    /// Neighbours that packets may be sent to.
    pub fn neighbours(&self) -> Vec<NodeId> {
        self.near.usable()
    }

    /// Labels that belong to a path.
    pub fn labels(&self) -> impl Iterator<Item = Label> {
        self.labels.iter()
    }

    /// Paths through or from this node.
    pub fn paths(&self) -> impl Iterator<Item = PathId> {
        self.segments.keys().copied()
    }

    /// The relays of a path, from its origin's side; `None` if the node does not know the path.
    pub fn relays(&self, path: PathId) -> Option<&[NodeId]> {
        self.segments.get(&path).map(|segment| segment.relays.as_slice())
    }

    /// Interval of LIVENESS in force: the settings' one, or a longer one that the lateness of this
    /// node's timers asks for.
    pub const fn liveness_interval(&self) -> Duration {
        self.liveness.0
    }

    /// The next output.
    pub fn poll_output(&mut self) -> Option<MeshOutput> {
        self.outputs.pop_front()
    }

    /// Processes an input at `now`.
    pub fn handle(&mut self, now: Duration, input: MeshInput<'_>) {
        match input {
            MeshInput::Tick => self.tick(now),
            MeshInput::LinkUp { link, properties } => self.link_up(now, link, properties),
            MeshInput::LinkDown { link } => self.link_down(now, link),
            MeshInput::Received { link, from, octets } => {
                self.received(now, link, from, octets);
                self.passing = None;
            }
            MeshInput::UnknownLabel { link, from, label } => {
                self.unknown_label(now, link, from, label);
            }
            MeshInput::LabelRefused { label } => self.label_refused(now, label),
            MeshInput::Packet { destination, class, packet } => {
                self.packet(now, destination, class, packet);
            }
            MeshInput::Broadcast { from, packet } => self.broadcast_sent(now, from, packet),
            MeshInput::PortUp { port, address } => self.port_up(now, port, address),
            MeshInput::PortDown { port } => self.port_down(now, port),
            MeshInput::PortHello { port, from, octets } => {
                self.port_hello(now, port, from, octets);
            }
            MeshInput::Channel { label, ttl, octets } => self.channel(now, label, ttl, octets),
            MeshInput::Echo { token, destination, class, ttl } => {
                self.echo(now, token, destination, (class, ttl));
            }
            MeshInput::Counters { label, packets, octets } => {
                self.count(now, label, packets, octets);
            }
            MeshInput::RelayDelay { delay } => self.settings.relay_delay = delay,
            MeshInput::TimerLateness { p999 } => self.adapt_liveness(now, p999),
            MeshInput::Traffic { destination, octets } => self.traffic(now, destination, octets),
            MeshInput::Connections { destination, any } => self.connections(destination, any),
        }
        self.send_routing();
    }

    /// Sends what route finding says to neighbours.
    fn send_routing(&mut self) {
        while let Some((link, packet)) = self.routing.poll_output() {
            self.counters.olsr_sent += 1;
            self.send(link, None, &Message::Olsr(&packet));
        }
    }

    fn tick(&mut self, now: Duration) {
        self.tick_alive(now);
        self.tick_repeats(now);
        self.tick_broadcasts(now);
        self.tick_answers(now);
        self.tick_destinations(now);
        self.tick_echoes(now);
        self.tick_recovery(now);
        self.tick_bridge(now);
        self.routing.tick(now);
        if self.sweep_at.is_some_and(|at| at <= now) {
            self.sweep(now);
        }
    }

    fn link_up(&mut self, now: Duration, link: LinkIndex, properties: LinkProperties) {
        if self.near.links.len() >= LINKS_MAX && !self.near.links.contains_key(&link) {
            self.counters.table_full += 1;
            return;
        }
        // Nodes of a mesh that start together do not send together.
        let jitter = self.random.time_below(self.settings.alive_interval / 20);
        let alive_at = now + jitter;
        let entry = MeshLink { properties, alive_at, full_lists: 2, since_list: 0 };
        self.near.links.insert(link, entry);
        self.routing.learn(now, LinkNews::LinkUp(link));
    }

    fn link_down(&mut self, now: Duration, link: LinkIndex) {
        self.near.links.remove(&link);
        self.routing.learn(now, LinkNews::LinkDown(link));
        let gone: Vec<Adjacency> =
            self.near.all.keys().filter(|at| at.link == link).copied().collect();
        for adjacency in gone {
            // No farewell: a neighbour that still hears us would stop to watch a link that is gone.
            if let Some(neighbour) = self.near.all.get_mut(&adjacency) {
                neighbour.session = None;
            }
            self.lose(now, adjacency, Reason::LINK_DOWN);
            self.near.all.remove(&adjacency);
        }
        self.broadcasts.forget_election();
    }

    fn received(&mut self, now: Duration, link: LinkIndex, from: LinkAddress, octets: &[u8]) {
        self.counters.received += 1;
        let (sender, message) = match Message::decode(octets, self.settings.profile) {
            Ok(read) => read,
            Err(MessageError::Profile(_)) => {
                self.counters.other_profile += 1;
                return;
            }
            Err(_) => {
                self.counters.malformed += 1;
                return;
            }
        };
        if sender.node == self.settings.id || !self.near.links.contains_key(&link) {
            self.counters.own += 1;
            return;
        }
        let adjacency = Adjacency { link, node: sender.node };
        if !self.is_authentic(now, (adjacency.into(), from), octets, &message) {
            return;
        }
        if !self.hear(now, adjacency, from, sender) {
            return;
        }
        match message {
            Message::Alive(alive) => self.alive(now, adjacency, &alive),
            Message::Request(request) => self.request(now, adjacency, request),
            Message::Reply(reply) => self.reply(now, adjacency, sender.sequence, &reply),
            Message::Broadcast(broadcast) => self.broadcast_arrived(now, adjacency, broadcast),
            Message::Acknowledgement { acknowledged, label } => {
                self.acknowledged(now, adjacency, acknowledged, label);
            }
            Message::PathEnd { path, reporter, reason } => {
                self.acknowledge(adjacency, sender.sequence, None);
                self.path_end(now, adjacency, path, reporter, reason);
            }
            Message::LinkBack(back) => {
                self.acknowledge(adjacency, sender.sequence, None);
                self.link_back(now, adjacency, back);
            }
            Message::BypassRequest(request) => {
                let label = self.bypass_requested(now, adjacency, request);
                self.acknowledge(adjacency, sender.sequence, label);
            }
            Message::BypassTear(label) => {
                self.acknowledge(adjacency, sender.sequence, None);
                self.bypass_torn(now, adjacency, label);
            }
            Message::Olsr(packet) => self.routing_packet(now, adjacency, packet),
            Message::LabelUnknown(label) => self.label_unknown(now, adjacency, label),
            Message::Liveness(packet) => self.liveness(now, adjacency, &packet),
            // They have done their work when they were authenticated.
            Message::Challenge(_) | Message::ChallengeReply(_) => {}
            // It is for a segment of stations: the other end has this link as a port.
            Message::PortHello(_) => self.counters.malformed += 1,
        }
    }

    /// A packet of a neighbour's route finding; one of which liveness has not heard again is not used.
    fn routing_packet(&mut self, now: Duration, from: Adjacency, packet: &[u8]) {
        let is_up = self.near.all.get(&from).is_some_and(|neighbour| neighbour.up);
        if is_up && !self.routing.receive(now, from, packet) {
            self.counters.olsr_ignored += 1;
        }
    }

    /// Learns that a neighbour is there; `false` if there is no room for it.
    fn hear(
        &mut self,
        now: Duration,
        adjacency: Adjacency,
        from: LinkAddress,
        sender: Sender,
    ) -> bool {
        let known = self.near.all.get(&adjacency).map(|neighbour| neighbour.epoch);
        match known {
            Some(epoch) if epoch == sender.epoch => {}
            Some(_) => {
                // The neighbour has been restarted: what was learnt from it is void.
                self.lose(now, adjacency, Reason::RESTARTED);
                self.near.all.remove(&adjacency);
                self.met(now, adjacency, from, sender.epoch);
            }
            None if !self.admit(now, adjacency, from) => return false,
            None => self.met(now, adjacency, from, sender.epoch),
        }
        let missed = self.settings.alive_missed_max;
        let Some(neighbour) = self.near.postpone(&adjacency, missed) else { return false };
        neighbour.heard_at = neighbour.heard_at.max(now);
        neighbour.address = from;
        if neighbour.up {
            return true;
        }
        let Some(neighbour) = self.near.all.get_mut(&adjacency) else { return false };
        if !neighbour.is_session_down() {
            neighbour.up = true;
            self.appeared(now, adjacency);
        }
        true
    }

    /// Makes room for a new neighbour; `false` if there is none.
    fn admit(&mut self, now: Duration, new: Adjacency, address: LinkAddress) -> bool {
        match self.near.admit(new, address) {
            NeighbourAdmission::Free => {}
            NeighbourAdmission::Instead(other) => {
                self.counters.neighbours_evicted += 1;
                self.lose(now, other, Reason::EXHAUSTED);
                self.near.all.remove(&other);
            }
            NeighbourAdmission::Refused => {
                self.counters.neighbours_refused += 1;
                return false;
            }
        }
        true
    }

    fn met(&mut self, now: Duration, adjacency: Adjacency, from: LinkAddress, epoch: u32) {
        let interval = self.settings.alive_interval;
        self.near.all.insert(adjacency, Neighbour::new(now, from, epoch, interval));
        self.appeared(now, adjacency);
    }

    fn appeared(&mut self, now: Duration, adjacency: Adjacency) {
        self.output(MeshOutput::LinkState { adjacency, up: true });
        self.output(MeshOutput::Event(MeshEvent::NeighbourUp(adjacency)));
        self.list_changed();
        self.recovery.neighbour_up(now, adjacency);
        self.routing.learn(now, LinkNews::NeighbourUp(adjacency));
    }

    /// The next two I'M ALIVE on each link bring the whole list.
    fn list_changed(&mut self) {
        self.broadcasts.forget_election();
        for link in self.near.links.values_mut() {
            link.full_lists = 2;
        }
    }

    fn output(&mut self, output: MeshOutput) {
        self.outputs.push_back(output);
    }

    /// Encodes a message with the next sequence.
    fn encode(&mut self, message: &Message<'_>) -> (u32, Vec<u8>) {
        let octets = self.encode_unnumbered(message);
        self.with_sequence(octets)
    }

    /// Encodes a message that is sent once or on several links, each time with a sequence of its own.
    fn encode_unnumbered(&mut self, message: &Message<'_>) -> Vec<u8> {
        let (node, epoch) = (self.settings.id, self.settings.epoch);
        let sender = Sender { node, epoch, sequence: 0 };
        let mut octets = message.encode(sender, self.settings.profile);
        octets.extend(self.origin_signature(message));
        octets
    }

    /// Gives an encoded message the next sequence.
    fn with_sequence(&mut self, mut octets: Vec<u8>) -> (u32, Vec<u8>) {
        self.sequence = self.sequence.wrapping_add(1);
        crate::message::set_sequence(&mut octets, self.sequence);
        (self.sequence, octets)
    }

    /// Sends a message to a neighbour, or to all neighbours of a link.
    fn send(&mut self, link: LinkIndex, to: Option<(LinkAddress, NodeId)>, message: &Message<'_>) {
        let (_, octets) = self.encode(message);
        self.counters.sent += 1;
        self.transmit(link, to, octets);
    }

    fn send_to(&mut self, adjacency: Adjacency, message: &Message<'_>) {
        if let Some(address) = self.near.all.get(&adjacency).map(|neighbour| neighbour.address) {
            self.send(adjacency.link, Some((address, adjacency.node)), message);
        }
    }

    /// The next hop with its address as the data path needs it.
    fn labelled(&self, adjacency: Adjacency, label: Label) -> LabelledHop {
        let address = self.near.all.get(&adjacency).map(|neighbour| neighbour.address);
        LabelledHop { adjacency, address: address.unwrap_or_default(), label }
    }

    /// Octets arrived by a label: its path is used.
    fn count(&mut self, now: Duration, label: Label, packets: u64, octets: u64) {
        if packets == 0 {
            return;
        }
        let Some((path, direction)) = self.labels.owner(label) else { return };
        let Some(segment) = self.segments.get_mut(&path) else { return };
        segment.used_at = now;
        if octets > 0 {
            segment.carried_at = Some(now);
        }
        if let Some(station) =
            segment.station.filter(|_| octets > 0 && direction == LabelDirection::ToTarget)
        {
            self.bridge.refresh(now, station);
        }
        let side = match direction {
            LabelDirection::ToTarget => segment.upstream.as_mut(),
            LabelDirection::ToOrigin => segment.downstream.as_mut(),
        };
        if let Some(side) = side {
            side.octets = side.octets.saturating_add(octets);
        }
        let peer = match direction {
            LabelDirection::ToTarget => path.origin,
            LabelDirection::ToOrigin => path.target,
        };
        if octets > 0 && crate::segment::peer(path, self.settings.id) == Some(peer) {
            self.received_from(now, peer);
        }
    }

    fn is_classic(&self) -> bool {
        self.settings.profile == Profile::Classic
    }

    fn schedule_sweep(&mut self, now: Duration) {
        self.sweep_at = self.sweep_at.or(Some(now + SWEEP_INTERVAL));
    }

    /// Removes paths that nobody uses, and keeps those that somebody does.
    fn sweep(&mut self, now: Duration) {
        self.sweep_at = None;
        self.sweep_destinations(now);
        let idle = self.settings.path_idle;
        let unused = |segment: &Segment| now.saturating_sub(segment.used_at) >= idle;
        let gone: Vec<PathId> = (self.segments.iter())
            .filter(|(_, segment)| unused(segment))
            .map(|(&path, _)| path)
            .collect();
        for path in gone {
            self.remove_path(now, path, Reason::UNUSED, None);
        }
        self.sweep_bypasses(now);
        if !(self.segments.is_empty() && self.destinations.is_empty() && self.bypasses.is_empty()) {
            self.schedule_sweep(now);
        }
    }

    /// The number of the node's next path or request.
    fn next_number(&mut self) -> u32 {
        self.number = self.number.wrapping_add(1);
        self.number
    }
}

/// A packet that waits for a path.
#[derive(Clone, Debug)]
struct WaitingPacket {
    class: PathClass,
    packet: Vec<u8>,
}
