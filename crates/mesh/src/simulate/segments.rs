//! Ethernet segments behind bridge ports, each a switch that learns, with stations that know nothing of the mesh.

use super::world::{Event, MeshWorld, REPLY, REQUEST, parse, payload};
use crate::bridge::{BridgePort, PortVerdict};
use crate::edge::{MeshInput, PathClass};
use crate::identity::NodeId;
use gatewright_packet::LinkAddress;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Time of a frame on a segment.
const SEGMENT_TIME: Duration = Duration::from_micros(10);

/// The destination of a frame for all.
const ALL: u64 = u64::MAX;

/// Octets of destination and source, and of the station that has sent the payload.
const WORD: usize = 8;

/// The sender of a frame on a segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SegmentSender {
    /// A node, by its port.
    Port(usize, BridgePort),
    /// A station.
    Station(usize),
}

/// A frame on a segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum FrameKind {
    /// One of a station, or for one.
    Ether,
    /// A message of a port to another one, or to all.
    Message(Option<LinkAddress>),
}

/// A ping between stations, and when its answer arrived.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StationPing {
    /// Sender.
    pub from: usize,
    /// Receiver.
    pub to: usize,
    /// When it was sent.
    pub sent_at: Duration,
    /// Round trip time, if it was answered.
    pub rtt: Option<Duration>,
    /// Copies of the request that the receiver got.
    pub copies: u32,
}

#[derive(Debug, Default)]
struct Segment {
    members: Vec<(usize, BridgePort)>,
    /// Where the switch has seen addresses.
    learnt: BTreeMap<u64, SegmentSender>,
    /// Frames that were sent on it, without hellos.
    frames: u64,
}

#[derive(Debug)]
struct SimulatedStation {
    id: NodeId,
    segment: usize,
    /// Frames for all that it has heard, by number.
    heard: Vec<usize>,
}

/// The segments of a world.
#[derive(Debug, Default)]
pub(super) struct Segments {
    all: Vec<Segment>,
    stations: Vec<SimulatedStation>,
    pings: Vec<StationPing>,
    broadcasts: usize,
}

fn port_address(node: usize, port: BridgePort) -> LinkAddress {
    let [.., b, c, d] = node.to_be_bytes();
    let [_, number] = port.0.to_be_bytes();
    LinkAddress::ethernet([2, 1, number, b, c, d])
}

fn station_id(number: usize) -> NodeId {
    let [.., b, c, d] = number.to_be_bytes();
    NodeId::of_address(LinkAddress::ethernet([2, 2, 0, b, c, d])).unwrap_or_default()
}

fn frame(destination: u64, source: NodeId, payload: &[u8]) -> Vec<u8> {
    let words = [destination, source.0, source.0].map(u64::to_be_bytes);
    [words.as_flattened(), payload].concat()
}

fn word(frame: &[u8], number: usize) -> u64 {
    let octets = frame.get(number * WORD..).and_then(|rest| rest.first_chunk());
    octets.map_or(0, |octets| u64::from_be_bytes(*octets))
}

impl MeshWorld {
    /// Adds a segment with a bridge port of each of these nodes; its number.
    pub fn add_segment(&mut self, nodes: &[usize]) -> usize {
        let mut members = Vec::new();
        for &node in nodes {
            let ports = self.segments.all.iter().flat_map(|segment| &segment.members);
            let own = ports.chain(&members).filter(|(of, _)| *of == node).count();
            members.push((node, BridgePort(u16::try_from(own).unwrap_or(u16::MAX))));
        }
        let number = self.segments.all.len();
        self.segments.all.push(Segment { members: members.clone(), ..Segment::default() });
        for (node, port) in members {
            self.port_up(node, port);
        }
        number
    }

    /// Joins two segments, as a cable between them does: the ports of the second are on the first now.
    pub fn join_segments(&mut self, first: usize, second: usize) {
        let moved = self.segments.all.get_mut(second).map(|it| core::mem::take(&mut it.members));
        if let Some(segment) = self.segments.all.get_mut(first) {
            segment.members.extend(moved.unwrap_or_default());
        }
        for station in &mut self.segments.stations {
            if station.segment == second {
                station.segment = first;
            }
        }
    }

    /// Adds a station to a segment; its number.
    pub fn add_station(&mut self, segment: usize) -> usize {
        let number = self.segments.stations.len();
        let id = station_id(number);
        self.segments.stations.push(SimulatedStation { id, segment, heard: Vec::new() });
        number
    }

    /// Moves a station to another segment.
    pub fn move_station(&mut self, station: usize, segment: usize) {
        if let Some(station) = self.segments.stations.get_mut(station) {
            station.segment = segment;
        }
    }

    /// Sends a ping from one station to another; its number.
    pub fn station_ping(&mut self, from: usize, to: usize) -> usize {
        let number = self.segments.pings.len();
        let ping = StationPing { from, to, sent_at: self.now(), rtt: None, copies: 0 };
        self.segments.pings.push(ping);
        self.station_sends(from, station_id(to).0, &payload(REQUEST, number));
        number
    }

    /// Sends a frame from a station to all; its number.
    pub fn station_broadcast(&mut self, from: usize) -> usize {
        let number = self.segments.broadcasts;
        self.segments.broadcasts += 1;
        self.station_sends(from, ALL, &payload(REPLY, number));
        number
    }

    /// The pings of stations so far.
    pub fn station_pings(&self) -> &[StationPing] {
        &self.segments.pings
    }

    /// How often a station has heard a frame for all.
    pub fn heard(&self, station: usize, broadcast: usize) -> usize {
        let heard = self.segments.stations.get(station).map(|station| station.heard.as_slice());
        heard.unwrap_or_default().iter().filter(|&&number| number == broadcast).count()
    }

    /// Frames sent on a segment, without hellos.
    pub fn frames_on(&self, segment: usize) -> u64 {
        self.segments.all.get(segment).map_or(0, |segment| segment.frames)
    }

    /// The nodes whose ports on a segment forward.
    pub fn forwarders(&self, segment: usize) -> Vec<usize> {
        let members = self.segments.all.get(segment).map(|it| it.members.as_slice());
        let forwards = |&&(node, port): &&(usize, BridgePort)| {
            self.is_alive(node) && self.node(node).is_some_and(|node| node.forwards(port))
        };
        members.unwrap_or_default().iter().filter(forwards).map(|&(node, _)| node).collect()
    }

    fn port_up(&mut self, node: usize, port: BridgePort) {
        let address = port_address(node, port);
        self.give(node, MeshInput::PortUp { port, address });
    }

    /// The ports of a node that starts.
    pub(super) fn start_ports(&mut self, node: usize) {
        let members = self.segments.all.iter().flat_map(|segment| segment.members.iter().copied());
        let own: Vec<BridgePort> =
            members.filter(|(of, _)| *of == node).map(|(_, port)| port).collect();
        for port in own {
            self.port_up(node, port);
        }
    }

    fn station_sends(&mut self, station: usize, destination: u64, payload: &[u8]) {
        let Some(known) = self.segments.stations.get(station) else { return };
        let (segment, octets) = (known.segment, frame(destination, known.id, payload));
        self.put(segment, SegmentSender::Station(station), FrameKind::Ether, octets.into());
    }

    /// Puts a frame of a node on the segment of its port.
    pub(super) fn put_on_port(
        &mut self,
        (node, port): (usize, BridgePort),
        kind: FrameKind,
        octets: Rc<[u8]>,
    ) {
        let mut all = self.segments.all.iter();
        let on = all.position(|segment| segment.members.contains(&(node, port)));
        if let Some(segment) = on {
            self.put(segment, SegmentSender::Port(node, port), kind, octets);
        }
    }

    /// A frame from each address tells the switch of a port's segment where it is.
    pub(super) fn teach(&mut self, (node, port): (usize, BridgePort), addresses: &[NodeId]) {
        let mut all = self.segments.all.iter_mut();
        let on = all.find(|segment| segment.members.contains(&(node, port)));
        if let Some(segment) = on {
            let at = SegmentSender::Port(node, port);
            segment.learnt.extend(addresses.iter().map(|address| (address.0, at)));
        }
    }

    fn put(&mut self, segment: usize, from: SegmentSender, kind: FrameKind, octets: Rc<[u8]>) {
        if let Some(known) = self.segments.all.get_mut(segment) {
            known.frames += u64::from(kind == FrameKind::Ether);
        }
        let at = self.now() + SEGMENT_TIME;
        self.schedule(at, Event::Frame { segment, from, kind, octets });
    }

    /// A frame arrives where the switch knows its destination, or at all others of the segment.
    pub(super) fn frame_on(
        &mut self,
        segment: usize,
        from: SegmentSender,
        kind: FrameKind,
        octets: &[u8],
    ) {
        let Some(known) = self.segments.all.get_mut(segment) else { return };
        let mut to = None;
        if kind == FrameKind::Ether {
            known.learnt.insert(word(octets, 1), from);
            to = known.learnt.get(&word(octets, 0)).copied();
        }
        let is_for = |end: SegmentSender| end != from && to.is_none_or(|to| to == end);
        let members = known.members.clone();
        for (node, port) in members {
            if !is_for(SegmentSender::Port(node, port)) || !self.is_alive(node) {
                continue;
            }
            match (kind, from) {
                (FrameKind::Message(to), SegmentSender::Port(node_from, port_from)) => {
                    let from = port_address(node_from, port_from);
                    if to.is_none_or(|to| to == port_address(node, port)) {
                        self.give(node, MeshInput::PortHello { port, from, octets });
                    }
                }
                _ => self.frame_at_port(node, port, octets),
            }
        }
        for station in 0..self.segments.stations.len() {
            if kind == FrameKind::Ether && is_for(SegmentSender::Station(station)) {
                self.frame_at_station(station, segment, octets);
            }
        }
    }

    fn frame_at_port(&mut self, node: usize, port: BridgePort, octets: &[u8]) {
        let destination = Some(word(octets, 0)).filter(|&to| to != ALL).map(NodeId);
        let (source, now) = (NodeId(word(octets, 1)), self.now());
        let Some(host) = self.hosts.get_mut(node) else { return };
        let verdict = host.node.port_frame(now, port, (source, destination), octets);
        self.settle(node);
        match (verdict, destination) {
            (PortVerdict::Port(port), _) => {
                self.put_on_port((node, port), FrameKind::Ether, octets.into());
            }
            (PortVerdict::Mesh, Some(to)) => self.emit_to(node, to, PathClass::BULK, octets),
            (PortVerdict::All, _) => {
                self.give(node, MeshInput::Broadcast { from: Some(port), packet: octets });
            }
            _ => {}
        }
    }

    /// A labelled packet has reached the node before a station; as in the kernel, it leaves with the
    /// address of the port as its source.
    pub(super) fn deliver_station(
        &mut self,
        node: usize,
        (port, station): (BridgePort, NodeId),
        packet: &[u8],
    ) {
        let to = word(packet, 0);
        if to != station.0 {
            self.violate(&format!("a frame to {to:x} was sent to station {station}"));
            return;
        }
        let mut octets = packet.to_vec();
        let source = NodeId::of_address(port_address(node, port)).unwrap_or_default();
        for (place, octet) in octets.iter_mut().skip(WORD).zip(source.0.to_be_bytes()) {
            *place = octet;
        }
        self.put_on_port((node, port), FrameKind::Ether, octets.into());
    }

    fn frame_at_station(&mut self, station: usize, segment: usize, octets: &[u8]) {
        let now = self.now();
        let (destination, sender) = (word(octets, 0), word(octets, 2));
        let Some(known) = self.segments.stations.get_mut(station) else { return };
        if known.segment != segment {
            return;
        }
        let Some((kind, number)) = parse(octets.get(WORD * 3..).unwrap_or_default()) else {
            return;
        };
        if destination == ALL {
            known.heard.push(number);
        } else if destination == known.id.0 {
            let Some(ping) = self.segments.pings.get_mut(number) else { return };
            if kind == REPLY {
                ping.rtt = ping.rtt.or(Some(now.saturating_sub(ping.sent_at)));
                return;
            }
            ping.copies += 1;
            self.station_sends(station, sender, &payload(REPLY, number));
        }
    }
}
