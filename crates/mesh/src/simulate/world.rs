//! The world: an event queue between the machines.

use super::datapath::{DataPath, SlowRelay};
use super::queue::WorldQueue;
use super::record::SentMessage;
use super::segments::{FrameKind, SegmentSender, Segments};
use crate::edge::{
    EchoOutcome, EchoToken, LabelAction, LabelledHop, LinkProperties, MeshCounters, MeshEvent,
    MeshInput, MeshOutput, MeshSettings, PathClass,
};
use crate::identity::NodeId;
use crate::message::{Profile, is_broadcast};
use crate::node::MeshNode;
use gatewright_packet::{LinkAddress, LinkIndex};
use gatewright_sim::{Random, Topology};
use gatewright_wire::mpls::Label;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// Octets of an Ethernet header, and of the shortest frame without its check sequence.
const ETHERNET_LEN: usize = 14;
const FRAME_LEN_MIN: usize = 60;

/// Time that a relay takes for a packet or a message.
const RELAY_TIME: Duration = Duration::from_micros(20);

/// Interval of the counters that a data path reports to its machine.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Hops of a labelled packet at the most (its TTL).
const TTL: u8 = 64;

/// Events that are kept.
const LOG_MAX: usize = 10_000;

/// Violations that are kept.
pub(super) const VIOLATIONS_MAX: usize = 16;

/// How a link is cut.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LinkCut {
    /// Both ends lose the carrier.
    Carrier,
    /// Frames are lost in both directions, and nobody is told.
    Silent,
    /// Frames from the first end to the second are lost.
    OneWay,
    /// The first end leaves the link, and only it knows; what it says last arrives.
    OneEnd,
}

/// A ping and when its answer arrived.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ping {
    /// Sender.
    pub from: usize,
    /// Receiver.
    pub to: usize,
    /// When it was sent.
    pub sent_at: Duration,
    /// Round trip time, if it was answered.
    pub rtt: Option<Duration>,
}

/// What the world counted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct WorldFigures {
    /// Events processed.
    pub events: u64,
    /// Control messages sent, on each link.
    pub messages: u64,
    /// Their octets with Ethernet headers; short frames are padded.
    pub octets: u64,
    /// Labelled packets that a node had no entry for.
    pub unknown_labels: u64,
    /// Labelled packets whose TTL ended.
    pub expired: u64,
    /// Frames lost on links.
    pub lost: u64,
    /// BROADCASTs sent, on each link.
    pub broadcasts: u64,
    /// Broadcasts delivered.
    pub delivered: u64,
}

#[derive(Debug)]
pub(super) enum Event {
    Message { to: usize, port: usize, octets: Vec<u8> },
    Packet { to: usize, port: usize, labelled: Labelled },
    Tick { node: usize },
    Report { node: usize },
    Frame { segment: usize, from: SegmentSender, kind: FrameKind, octets: Rc<[u8]> },
}

/// A labelled packet on a link.
#[derive(Clone, Debug)]
pub(super) struct Labelled {
    label: Label,
    ttl: u8,
    /// Whether it is a message in the associated channel.
    is_channel: bool,
    packet: Rc<[u8]>,
}

/// A node's end of a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostPort {
    /// The link in the topology, and which of its ends this is.
    pub(super) link: usize,
    side: usize,
    /// The node at the other end, and its link index there.
    pub(super) peer: usize,
    peer_port: usize,
}

/// A simulated node.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) node: MeshNode,
    pub(super) data: DataPath,
    epoch: u32,
    /// Ends of links, by link index.
    pub(super) ports: Vec<HostPort>,
    tick_at: Option<Duration>,
    reports: bool,
    is_dead: bool,
    relay: Option<Box<SlowRelay>>,
}

/// State of a link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Line {
    down: bool,
    /// Directions in which all is lost.
    pub(super) silent: [bool; 2],
}

/// A mesh in virtual time.
#[derive(Debug)]
pub struct MeshWorld {
    topology: Topology,
    /// Whether each node has one interface, by which it reaches all its neighbours.
    pub(super) on_air: bool,
    pub(super) hosts: Vec<Host>,
    pub(super) indices: BTreeMap<NodeId, usize>,
    pub(super) lines: Vec<Line>,
    queue: WorldQueue<Event>,
    now: Duration,
    random: Random,
    profile: Profile,
    change: fn(&mut MeshSettings),
    pub(super) changed: BTreeSet<usize>,
    checks: bool,
    pings: Vec<Ping>,
    echoes: Vec<(EchoToken, EchoOutcome)>,
    log: Vec<(Duration, usize, MeshEvent)>,
    pub(super) violations: Vec<String>,
    figures: WorldFigures,
    pub(super) record: Option<Vec<SentMessage>>,
    pub(super) segments: Segments,
}

impl MeshWorld {
    /// A world whose nodes start at time zero with all links up. `change` adapts the settings of
    /// every node.
    pub fn new(
        topology: Topology,
        profile: Profile,
        seed: u64,
        change: fn(&mut MeshSettings),
    ) -> Self {
        Self::with_links(topology, profile, seed, change, false)
    }

    pub(super) fn with_links(
        topology: Topology,
        profile: Profile,
        seed: u64,
        change: fn(&mut MeshSettings),
        on_air: bool,
    ) -> Self {
        let ports = ports(&topology);
        let mut world = Self {
            lines: vec![Line::default(); topology.links.len()],
            topology,
            on_air,
            hosts: Vec::new(),
            indices: BTreeMap::new(),
            queue: WorldQueue::default(),
            now: Duration::ZERO,
            random: Random::new(seed),
            profile,
            change,
            changed: BTreeSet::new(),
            checks: true,
            pings: Vec::new(),
            echoes: Vec::new(),
            log: Vec::new(),
            violations: Vec::new(),
            figures: WorldFigures::default(),
            record: None,
            segments: Segments::default(),
        };
        for (index, ports) in ports.into_iter().enumerate() {
            let node = world.machine(index, 1);
            world.indices.insert(node.id(), index);
            let data = DataPath::default();
            let host = Host {
                node,
                data,
                epoch: 1,
                ports,
                tick_at: None,
                reports: false,
                is_dead: false,
                relay: None,
            };
            world.hosts.push(host);
        }
        for index in 0..world.hosts.len() {
            world.start(index);
        }
        world
    }

    /// Switches the checks after every event off, for large worlds.
    pub const fn without_checks(&mut self) {
        self.checks = false;
    }

    /// The identity of a node; without such a node that which no node has.
    pub fn id(&self, index: usize) -> NodeId {
        self.hosts.get(index).map_or(NodeId(0), |host| host.node.id())
    }

    fn machine(&mut self, index: usize, epoch: u32) -> MeshNode {
        // In a mesh of members the identity follows from the key that `change` gives the node.
        let id = NodeId::of_key(&index.to_be_bytes());
        let mut settings = MeshSettings::new(id, epoch, self.profile);
        settings.seed = self.random.bits();
        (self.change)(&mut settings);
        MeshNode::new(settings)
    }

    fn start(&mut self, index: usize) {
        let ports = self.hosts.get(index).map_or(0, |host| host.ports.len());
        for port in 0..if self.on_air { ports.min(1) } else { ports } {
            self.link_up(index, port);
        }
        self.start_ports(index);
    }

    fn link_up(&mut self, index: usize, port: usize) {
        let Some(&HostPort { link, side, .. }) =
            self.hosts.get(index).and_then(|host| host.ports.get(port))
        else {
            return;
        };
        if self.lines.get(link).is_some_and(|line| line.down) {
            return;
        }
        let direction = self.topology.links.get(link).and_then(|link| link.directions.get(side));
        let delay = direction.map_or(0, |direction| direction.delay.as_micros());
        let properties = LinkProperties {
            delay_us: u16::try_from(delay).unwrap_or(u16::MAX),
            address: address(index),
            ..LinkProperties::default()
        };
        self.give(index, MeshInput::LinkUp { link: at(port), properties });
    }

    /// The time.
    pub const fn now(&self) -> Duration {
        self.now
    }

    /// Number of nodes.
    pub const fn nodes(&self) -> usize {
        self.topology.nodes
    }

    /// The topology.
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Counters of the world.
    pub const fn figures(&self) -> WorldFigures {
        self.figures
    }

    /// Pings so far.
    pub fn pings(&self) -> &[Ping] {
        &self.pings
    }

    /// Events of the nodes so far, each with its time and node; only the first of very many.
    pub fn log(&self) -> &[(Duration, usize, MeshEvent)] {
        &self.log
    }

    /// Broken invariants.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// The machine of a node.
    pub fn node(&self, index: usize) -> Option<&MeshNode> {
        self.hosts.get(index).map(|host| &host.node)
    }

    /// Sum of a counter over all nodes.
    pub fn sum(&self, counter: impl Fn(&MeshCounters) -> u64) -> u64 {
        self.hosts.iter().map(|host| counter(&host.node.counters())).sum()
    }

    /// Whether no node has a label, a path or a destination.
    pub fn is_silent(&self) -> bool {
        self.hosts.iter().all(|host| host.data.is_empty() && host.node.paths().next().is_none())
    }

    /// The link between two nodes.
    pub fn link(&self, a: usize, b: usize) -> Option<usize> {
        self.topology.links.iter().position(|link| link.ends == [a, b] || link.ends == [b, a])
    }

    /// Cuts a link; in a world on the air always silently, if not one way only.
    pub fn cut(&mut self, link: usize, cut: LinkCut) {
        let cut = if self.on_air && cut != LinkCut::OneWay { LinkCut::Silent } else { cut };
        if cut == LinkCut::OneEnd
            && let Some(&(node, port)) = self.ends(link).first()
        {
            self.give(node, MeshInput::LinkDown { link: at(port) });
        }
        let Some(line) = self.lines.get_mut(link) else { return };
        match cut {
            LinkCut::Carrier => line.down = true,
            LinkCut::Silent | LinkCut::OneEnd => line.silent = [true; 2],
            LinkCut::OneWay => line.silent = [true, false],
        }
        if cut == LinkCut::Carrier {
            for (node, port) in self.ends(link) {
                self.give(node, MeshInput::LinkDown { link: at(port) });
            }
        }
    }

    /// Heals a link.
    pub fn heal(&mut self, link: usize) {
        let Some(line) = self.lines.get_mut(link) else { return };
        let was_down = line.down;
        *line = Line::default();
        if was_down {
            for (node, port) in self.ends(link) {
                self.link_up(node, port);
            }
        }
    }

    /// Whether a link carries frames in both directions.
    pub fn works(&self, link: usize) -> bool {
        self.lines.get(link).is_some_and(|line| !line.down && line.silent == [false; 2])
    }

    /// Node and link index of both ends of a link.
    fn ends(&self, link: usize) -> Vec<(usize, usize)> {
        let ends = self.topology.links.get(link).map(|link| link.ends);
        let port = |node: usize| {
            let host = self.hosts.get(node)?;
            Some((node, host.ports.iter().position(|port| port.link == link)?))
        };
        ends.into_iter().flatten().filter_map(port).collect()
    }

    /// Restarts a node: its tables are empty, its epoch is new.
    pub fn reboot(&mut self, index: usize) {
        let epoch = self.hosts.get(index).map_or(1, |host| host.epoch + 1);
        let node = self.machine(index, epoch);
        if let Some(host) = self.hosts.get_mut(index) {
            host.node = node;
            host.epoch = epoch;
            host.data = DataPath::default();
            host.tick_at = None;
            host.is_dead = false;
        }
        self.changed.insert(index);
        self.start(index);
    }

    /// Stops a node as if its process were killed: it says and hears nothing any more.
    pub fn kill(&mut self, index: usize) {
        if let Some(host) = self.hosts.get_mut(index) {
            host.is_dead = true;
            host.data = DataPath::default();
        }
    }

    /// Makes a node a slow relay of labelled packets: so long for each, and for each octet. It measures
    /// itself, and tells what it has found.
    pub fn slow_down(&mut self, index: usize, base: Duration, octet: Duration) {
        if let Some(host) = self.hosts.get_mut(index) {
            host.relay = Some(Box::new(SlowRelay::new(base, octet)));
        }
    }

    /// Whether a node runs.
    pub(super) fn is_alive(&self, index: usize) -> bool {
        self.hosts.get(index).is_some_and(|host| !host.is_dead)
    }

    /// Sends a ping in a class; its number.
    pub fn ping(&mut self, from: usize, to: usize, class: PathClass) -> usize {
        let number = self.pings.len();
        self.pings.push(Ping { from, to, sent_at: self.now, rtt: None });
        self.emit(from, to, class, &payload(REQUEST, number));
        number
    }

    /// Asks the node at `ttl` links on the path of bulk traffic, or its end, for an answer.
    pub fn echo(&mut self, from: usize, to: usize, ttl: u8, token: EchoToken) {
        let (destination, class) = (self.id(to), PathClass::BULK);
        self.give(from, MeshInput::Echo { token, destination, class, ttl });
    }

    /// Tells a node whether there are TCP connections with another one.
    pub fn connections(&mut self, of: usize, with: usize, any: bool) {
        let destination = self.id(with);
        self.give(of, MeshInput::Connections { destination, any });
    }

    /// Outcomes of the echo requests so far.
    pub fn echoes(&self) -> &[(EchoToken, EchoOutcome)] {
        &self.echoes
    }

    /// Sends a broadcast.
    pub fn broadcast(&mut self, from: usize) {
        self.give(from, MeshInput::Broadcast { from: None, packet: b"to all" });
    }

    /// A packet of a node's own.
    fn emit(&mut self, from: usize, to: usize, class: PathClass, packet: &[u8]) {
        self.emit_to(from, self.id(to), class, packet);
    }

    /// A packet to a node or a station.
    pub(super) fn emit_to(
        &mut self,
        from: usize,
        destination: NodeId,
        class: PathClass,
        packet: &[u8],
    ) {
        let hop = self.hosts.get(from).and_then(|host| host.data.first_hop(destination, class));
        match hop {
            Some(hop) => {
                if let Some(host) = self.hosts.get_mut(from) {
                    let octets = u64::try_from(packet.len()).unwrap_or(0);
                    *host.data.sent.entry(destination).or_default() += octets;
                }
                self.report_soon(from);
                self.transmit(from, hop, (TTL, false), &packet.into());
            }
            None => self.give(from, MeshInput::Packet { destination, class, packet }),
        }
    }

    /// Puts a labelled packet on a link.
    fn transmit(
        &mut self,
        from: usize,
        hop: LabelledHop,
        (ttl, is_channel): (u8, bool),
        packet: &Rc<[u8]>,
    ) {
        self.transmit_later(Duration::ZERO, (from, hop), (ttl, is_channel), packet);
    }

    fn transmit_later(
        &mut self,
        later: Duration,
        (from, hop): (usize, LabelledHop),
        (ttl, is_channel): (u8, bool),
        packet: &Rc<[u8]>,
    ) {
        let Some(port) = self.port_to(from, hop.adjacency) else { return };
        let Some(crossing) = self.cross(from, port) else { return };
        for at in crossing.arrivals() {
            let packet = Rc::clone(packet);
            let labelled = Labelled { label: hop.label, ttl, is_channel, packet };
            let (to, port) = crossing.to;
            self.schedule(at + later, Event::Packet { to, port, labelled });
        }
    }

    /// When and where a frame arrives that a node sends on a link, once or twice; `None` if it is lost.
    pub(super) fn cross(&mut self, from: usize, port: usize) -> Option<Crossing> {
        let place = self.hosts.get(from).and_then(|host| host.ports.get(port)).copied()?;
        let (line, known) = (self.lines.get(place.link)?, self.topology.links.get(place.link)?);
        let silent = line.silent.get(place.side).copied().unwrap_or(true);
        let direction = known.directions.get(place.side)?;
        if line.down || silent || self.random.happens(direction.loss) {
            self.figures.lost += 1;
            return None;
        }
        let at = self.now + RELAY_TIME + direction.delay;
        let again = self.random.happens(direction.duplicate).then_some(at + direction.delay);
        Some(Crossing { to: (place.peer, place.peer_port), at, again })
    }

    pub(super) fn schedule(&mut self, at: Duration, event: Event) {
        self.queue.push(at, event);
    }

    /// Runs until a time.
    pub fn run_until(&mut self, until: Duration) {
        while let Some((at, event)) = self.queue.pop_until(until) {
            self.now = at;
            self.figures.events += 1;
            self.process(event);
            self.check();
        }
        self.now = self.now.max(until);
    }

    /// Runs for a time.
    pub fn run_for(&mut self, time: Duration) {
        self.run_until(self.now + time);
    }

    fn check(&mut self) {
        if self.checks && !self.changed.is_empty() {
            self.check_invariants();
        }
        self.changed.clear();
    }

    fn process(&mut self, event: Event) {
        match event {
            Event::Message { to, port, octets } => {
                let (link, from) = (self.link_at(port), self.address_beyond(to, port));
                self.give(to, MeshInput::Received { link, from, octets: &octets });
            }
            Event::Packet { to, port, labelled } => self.packet_arrived(to, port, &labelled),
            Event::Tick { node } => {
                let due = self.hosts.get_mut(node).is_some_and(|host| {
                    let due = host.tick_at.is_some_and(|at| at <= self.now);
                    if due {
                        host.tick_at = None;
                    }
                    due
                });
                if due {
                    self.give(node, MeshInput::Tick);
                }
            }
            Event::Report { node } => self.report(node),
            Event::Frame { segment, from, kind, octets } => {
                self.frame_on(segment, from, kind, &octets);
            }
        }
    }

    /// The link-layer address of the node at the other end of a link.
    pub(super) fn address_beyond(&self, node: usize, port: usize) -> LinkAddress {
        let place = self.hosts.get(node).and_then(|host| host.ports.get(port));
        address(place.map_or(0, |port| port.peer))
    }

    fn packet_arrived(&mut self, to: usize, port: usize, labelled: &Labelled) {
        let &Labelled { label, ttl, is_channel, ref packet } = labelled;
        let Some(host) = self.hosts.get_mut(to).filter(|host| !host.is_dead) else { return };
        let action = host.data.action(label);
        if action.is_some() {
            let (packets, octets) = host.data.received.entry(label).or_default();
            *packets += 1;
            *octets += if is_channel { 0 } else { u64::try_from(packet.len()).unwrap_or(0) };
            self.report_soon(to);
        }
        match action {
            None => {
                self.figures.unknown_labels += 1;
                let (link, from) = (self.link_at(port), self.address_beyond(to, port));
                self.give(to, MeshInput::UnknownLabel { link, from, label });
            }
            Some(LabelAction::Swap(hop)) if ttl > 1 => {
                let (now, octets) = (self.now, packet.len());
                let host = self.hosts.get_mut(to).and_then(|host| host.relay.as_mut());
                let sojourn = host.map_or(Duration::ZERO, |relay| relay.pass(now, octets));
                self.transmit_later(sojourn, (to, hop), (ttl - 1, is_channel), packet);
            }
            Some(_) if is_channel => {
                self.give(to, MeshInput::Channel { label, ttl, octets: packet });
            }
            Some(LabelAction::Swap(_)) => self.figures.expired += 1,
            Some(LabelAction::Pop) => self.deliver(to, packet),
            Some(LabelAction::Station { port, station }) => {
                self.deliver_station(to, (port, station), packet);
            }
        }
    }

    /// A packet has reached the end of its path.
    fn deliver(&mut self, node: usize, packet: &[u8]) {
        let Some((kind, number)) = parse(packet) else { return };
        let Some(ping) = self.pings.get_mut(number) else { return };
        let (from, to, now) = (ping.from, ping.to, self.now);
        let expected = if kind == REQUEST { to } else { from };
        if node != expected {
            let what = format!("ping {number} from {from} to {to} was delivered to {node}");
            self.violate(&what);
        } else if kind == REQUEST {
            self.emit(to, from, PathClass::BULK, &payload(REPLY, number));
        } else {
            ping.rtt = ping.rtt.or(Some(now.saturating_sub(ping.sent_at)));
        }
    }

    pub(super) fn violate(&mut self, what: &str) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(format!("{:?}: {what}", self.now));
        }
    }

    fn report_soon(&mut self, node: usize) {
        let at = self.now + REPORT_INTERVAL;
        let first = self
            .hosts
            .get_mut(node)
            .is_some_and(|host| !core::mem::replace(&mut host.reports, true));
        if first {
            self.schedule(at, Event::Report { node });
        }
    }

    /// Gives a machine the counters of its data path.
    fn report(&mut self, node: usize) {
        let Some(host) = self.hosts.get_mut(node) else { return };
        host.reports = false;
        let received = core::mem::take(&mut host.data.received);
        let sent = core::mem::take(&mut host.data.sent);
        let (now, relay) = (self.now, host.relay.as_mut());
        let reading = relay.and_then(|relay| relay.read(now));
        if let Some(delay) = reading {
            self.give(node, MeshInput::RelayDelay { delay });
        }
        for (label, (packets, octets)) in received {
            self.give(node, MeshInput::Counters { label, packets, octets });
        }
        for (destination, octets) in sent {
            self.give(node, MeshInput::Traffic { destination, octets });
        }
    }

    /// Gives an input to a machine, if it lives.
    pub(super) fn give(&mut self, index: usize, input: MeshInput<'_>) {
        let now = self.now;
        let Some(host) = self.hosts.get_mut(index).filter(|host| !host.is_dead) else { return };
        host.node.handle(now, input);
        self.settle(index);
    }

    /// Does what a machine outputs, and sets its timer.
    pub(super) fn settle(&mut self, index: usize) {
        let now = self.now;
        loop {
            let Some(host) = self.hosts.get_mut(index) else { return };
            let Some(output) = host.node.poll_output() else { break };
            if host.data.install(&output) {
                self.changed.insert(index);
            } else {
                self.output(index, output);
            }
        }
        let Some(host) = self.hosts.get_mut(index) else { return };
        let next = host.node.poll_timeout();
        if let Some(next) = next
            && host.tick_at.is_none_or(|at| next < at)
        {
            let at = next.max(now);
            host.tick_at = Some(at);
            self.schedule(at, Event::Tick { node: index });
        }
    }

    fn output(&mut self, index: usize, output: MeshOutput) {
        match output {
            MeshOutput::Send { link, to, octets } => {
                self.figures.messages += 1;
                let length = (ETHERNET_LEN + octets.len()).max(FRAME_LEN_MIN);
                self.figures.octets += u64::try_from(length).unwrap_or(0);
                self.figures.broadcasts += u64::from(is_broadcast(&octets));
                if self.on_air {
                    return self.send_on_air(index, to, &octets);
                }
                self.record_message((index, link.index()), &octets);
                let Some(crossing) = self.cross(index, link.index()) else { return };
                let (to, port) = crossing.to;
                let again = crossing.again.map(|at| (at, octets.clone()));
                self.schedule(crossing.at, Event::Message { to, port, octets });
                if let Some((at, octets)) = again {
                    self.schedule(at, Event::Message { to, port, octets });
                }
            }
            MeshOutput::SendPacket { hop, packet } => {
                self.transmit(index, hop, (TTL, false), &packet.into());
            }
            MeshOutput::Channel { hop, ttl, octets } => {
                self.transmit(index, hop, (ttl, true), &octets.into());
            }
            MeshOutput::Echoed { token, outcome } => self.echoes.push((token, outcome)),
            MeshOutput::Deliver { .. } => self.figures.delivered += 1,
            MeshOutput::SendHello { port, to, octets } => {
                self.put_on_port((index, port), FrameKind::Message(to), octets.into());
            }
            MeshOutput::Teach { port, addresses } => self.teach((index, port), &addresses),
            MeshOutput::SendPort { port, packet } => {
                self.put_on_port((index, port), FrameKind::Ether, packet.into());
            }
            MeshOutput::Event(event) if self.log.len() < LOG_MAX => {
                self.log.push((self.now, index, event));
            }
            _ => {}
        }
    }
}

/// A frame on its way over a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crossing {
    /// The node that it goes to, and its port there.
    pub(super) to: (usize, usize),
    at: Duration,
    /// When it arrives once more.
    again: Option<Duration>,
}

impl Crossing {
    pub(super) fn arrivals(self) -> impl Iterator<Item = Duration> {
        [self.at].into_iter().chain(self.again)
    }
}

/// The ends of links of each node.
fn ports(topology: &Topology) -> Vec<Vec<HostPort>> {
    let mut ports: Vec<Vec<HostPort>> = vec![Vec::new(); topology.nodes];
    for (link, known) in topology.links.iter().enumerate() {
        let [(a, a_port), (b, b_port)] =
            known.ends.map(|end| (end, ports.get(end).map_or(0, Vec::len)));
        for (side, (end, peer, peer_port)) in
            [(a, b, b_port), (b, a, a_port)].into_iter().enumerate()
        {
            if let Some(list) = ports.get_mut(end) {
                list.push(HostPort { link, side, peer, peer_port });
            }
        }
    }
    ports
}

/// The link index of a port where each link has an interface of its own.
pub(super) fn at(port: usize) -> LinkIndex {
    LinkIndex(u16::try_from(port).unwrap_or(u16::MAX))
}

/// The link-layer address of a node, the same on all its links.
pub(super) fn address(index: usize) -> LinkAddress {
    let [.., a, b, c, d] = index.to_be_bytes();
    LinkAddress::ethernet([2, 0, a, b, c, d])
}

pub(super) const REQUEST: u8 = 8;
pub(super) const REPLY: u8 = 0;

/// A ping's packet: its kind, its number, and 55 octets more, as ping sends.
pub(super) fn payload(kind: u8, number: usize) -> Vec<u8> {
    let mut packet = vec![kind];
    packet.extend(number.to_be_bytes());
    packet.resize(64, 0);
    packet
}

pub(super) fn parse(packet: &[u8]) -> Option<(u8, usize)> {
    let (&kind, rest) = packet.split_first()?;
    Some((kind, usize::from_be_bytes(*rest.first_chunk()?)))
}
