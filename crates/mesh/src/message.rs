//! Messages as values: decoding is total and bounded, encoding its inverse.
//!
//! The layouts are in `docs/mesh-protocol.md`.

mod request;

use crate::identity::{NodeId, PathId, Reason};
use crate::layout::{
    AcknowledgementHeader, AcknowledgementHeaderFields, AliveHeader, AliveHeaderFields,
    BroadcastHeader, BroadcastHeaderFields, BypassRequestHeader, BypassRequestHeaderFields,
    ChallengeHeader, ChallengeHeaderFields, CommonHeader, CommonHeaderFields, LabelRecord,
    LabelRecordFields, LinkBackHeader, LinkBackHeaderFields, LivenessHeader, LivenessHeaderFields,
    NodeRecord, NodeRecordFields, OlsrHeader, PathEndHeader, PathEndHeaderFields, PortHelloHeader,
    PortHelloHeaderFields, ReplyHeader, ReplyHeaderFields, UnknownHeader, UnknownHeaderFields,
};
use crate::relay_delay::RelayDelay;
use crate::trust::MessageRole;
use gatewright_wire::{Truncated, mpls::Label};
pub use request::{LISTED_MAX, RecordedHop, RequestRelays, RouteRequest};
use request::{request, write_request};

/// EtherType of control messages: local experimental (IEEE 802-2014 §9.2.4).
pub const ETHER_TYPE: u16 = 0x88b5;

/// Ethernet group address of messages to all neighbours of a link.
pub const GROUP_ADDRESS: [u8; 6] = [0x33, 0x33, 0, 0, 0x6d, 0x68];

/// Relays of a path, and entries of a request's record, at the most.
pub const HOPS_MAX: usize = 32;

/// Neighbours in one I'M ALIVE at the most.
pub const NEIGHBOURS_LISTED_MAX: usize = 48;

/// Labels in one I'M ALIVE at the most: with the neighbours it fits into 1,500 octets.
pub const LABELS_LISTED_MAX: usize = 128;

/// Stations in one announcement and in one PORT HELLO at the most.
pub const STATIONS_LISTED_MAX: usize = 64;

/// Octets for which an encoded message has room at first.
const ROOM: usize = 128;

/// Messages that an I'M ALIVE can be divided into.
pub const PARTS_MAX: usize = 64;

/// Protocol profile of a whole mesh.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Profile {
    /// The paper's protocol, message by message.
    Classic,
    /// Paths of both directions in one round trip, acknowledged, monitored and repaired.
    #[default]
    Default,
}

impl Profile {
    /// Its number on the wire.
    const fn number(self) -> u8 {
        match self {
            Self::Classic => 0,
            Self::Default => 1,
        }
    }
}

/// Why octets are not a message for this node.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The peer's message ends too early.
    #[error("{0}")]
    Truncated(Truncated),
    /// The peer's counts or numbers contradict the page.
    #[error("a field has a value that it cannot have")]
    Malformed,
    /// The peer has another version of the protocol.
    #[error("version {0} of the mesh protocol; this is 1")]
    Version(u8),
    /// The mesh has another profile.
    #[error("profile {0}, not this mesh's")]
    Profile(u8),
    /// No message of this version has the type.
    #[error("message type {0}")]
    Type(u8),
}

impl From<Truncated> for MessageError {
    fn from(truncated: Truncated) -> Self {
        Self::Truncated(truncated)
    }
}

/// What the common header says about the sender of a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sender {
    /// The neighbour.
    pub node: NodeId,
    /// Its start.
    pub epoch: u32,
    /// Number of the message since that start.
    pub sequence: u32,
}

/// I'M ALIVE, with its lists as octets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Alive<'p> {
    /// Interval in milliseconds.
    pub interval_ms: u16,
    /// Whether another part follows.
    pub more: bool,
    /// Number of the part.
    pub part: u8,
    /// Whether the sender asks for the list of its neighbours.
    pub wants_list: bool,
    /// The delay model of the sender.
    pub delay: RelayDelay,
    /// Octets of the neighbour list, if the message has one.
    pub neighbours: Option<&'p [u8]>,
    /// Octets of the label list.
    pub labels: &'p [u8],
}

impl Alive<'_> {
    /// The neighbours in the list; none without one.
    pub fn neighbours(&self) -> impl Iterator<Item = NodeId> {
        nodes(self.neighbours.unwrap_or_default())
    }

    /// The labels with the octets received by each.
    pub fn labels(&self) -> impl Iterator<Item = (Label, u32)> {
        let entries = self.labels.as_chunks().0.iter().map(LabelRecord::of);
        entries.map(|entry| (entry.label(), entry.octets_received()))
    }
}

/// ROUTE REPLY with PATH REPLY.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RouteReply {
    /// The path.
    pub path: PathId,
    /// The request that it answers.
    pub request: u32,
    /// What the sender expects on packets to the target.
    pub label: Label,
    /// Class of the path.
    pub class: u8,
    /// Largest frame that the path carries, in octets; 0 if no link has a limit.
    pub frame_limit: u16,
    /// Relays that the reply has still to pass.
    pub position: u8,
    /// Sum of the costs of the links.
    pub cost: u16,
    /// Sum of the delays, in microseconds.
    pub delay_us: u16,
    /// The station behind the target that was searched, if not the target itself.
    pub station: Option<NodeId>,
    /// The relays from the origin's side to the target's.
    pub record: Vec<NodeId>,
}

/// BYPASS REQUEST.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BypassRequest {
    /// The neighbour of both, to which the packets go.
    pub neighbour: NodeId,
    /// Its start, as the sender knows it.
    pub epoch: u32,
    /// The label that it expects.
    pub label: Label,
    /// Largest frame that must pass, in octets; 0 if there is no limit.
    pub frame_limit: u16,
}

/// PORT HELLO, with its list as octets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PortHello<'p> {
    /// The sender's number of the port.
    pub port: u16,
    /// Interval in milliseconds.
    pub interval_ms: u16,
    /// Whether the port forwards.
    pub forwards: bool,
    /// Whether the port has listened long enough to forward.
    pub ready: bool,
    /// Octets of the list of stations.
    pub stations: &'p [u8],
}

impl PortHello<'_> {
    /// Some of the stations at the port.
    pub fn stations(&self) -> impl Iterator<Item = NodeId> {
        nodes(self.stations)
    }
}

/// LINK BACK.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LinkBack {
    /// A path that the reporter has ended because of the link.
    pub path: PathId,
    /// The node before the link.
    pub reporter: NodeId,
    /// Relays that the message has still to pass.
    pub position: u8,
    /// The relays from the path's origin to the reporter.
    pub record: Vec<NodeId>,
}

/// BROADCAST: a packet to all nodes, or a part of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Broadcast<'p> {
    /// The node that sent it first.
    pub origin: NodeId,
    /// Its start.
    pub origin_epoch: u32,
    /// Its number.
    pub number: u32,
    /// Relays that it may still pass.
    pub hops_left: u8,
    /// Messages that the packet is sent in; 0 if it is this one.
    pub parts: u8,
    /// Number of this part, from 0.
    pub part: u8,
    /// Whether the payload is no packet, but a list of stations behind the origin.
    pub stations: bool,
    /// The packet, or its part.
    pub payload: &'p [u8],
}

/// A message's content.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Message<'p> {
    /// I'M ALIVE.
    Alive(Alive<'p>),
    /// ROUTE REQUEST with PATH REQUEST.
    Request(RouteRequest),
    /// ROUTE REPLY with PATH REPLY.
    Reply(RouteReply),
    /// BROADCAST.
    Broadcast(Broadcast<'p>),
    /// PATH ACKNOWLEDGEMENT.
    Acknowledgement {
        /// Sequence of the acknowledged message.
        acknowledged: u32,
        /// What the sender expects on packets to the origin, if a reply is acknowledged.
        label: Option<Label>,
    },
    /// PATH ERROR or, with [`Reason::UNUSED`], PATH TEAR.
    PathEnd {
        /// The path.
        path: PathId,
        /// The node that found the fault.
        reporter: NodeId,
        /// The fault.
        reason: Reason,
    },
    /// LINK BACK.
    LinkBack(LinkBack),
    /// BYPASS REQUEST.
    BypassRequest(BypassRequest),
    /// BYPASS TEAR with the label that the receiver has given.
    BypassTear(Label),
    /// PORT HELLO.
    PortHello(PortHello<'p>),
    /// OLSR: a packet (RFC 3626 §3.3).
    Olsr(&'p [u8]),
    /// LABEL UNKNOWN.
    LabelUnknown(Label),
    /// LIVENESS.
    Liveness(LivenessHeaderFields),
    /// CHALLENGE with its nonce.
    Challenge(u64),
    /// CHALLENGE REPLY with the nonce that it repeats.
    ChallengeReply(u64),
}

/// What an encoded message is to authentication at its sender.
pub(crate) fn role(octets: &[u8]) -> MessageRole {
    match octets.get(1) {
        Some(&CHALLENGE) => MessageRole::Challenge,
        // The nonce does not matter to its sender.
        Some(&CHALLENGE_REPLY) => MessageRole::Reply(0),
        _ => MessageRole::Ordinary,
    }
}

/// Whether an encoded message is a BROADCAST.
pub(crate) fn is_broadcast(octets: &[u8]) -> bool {
    octets.get(1) == Some(&BROADCAST)
}

/// Gives an encoded message another sequence.
pub(crate) fn set_sequence(octets: &mut [u8], sequence: u32) {
    if let Some(place) = octets.first_chunk_mut() {
        let head = CommonHeader::of(place).fields();
        *place = CommonHeaderFields { sequence, ..head }.emit();
    }
}

const ALIVE: u8 = 1;
const REQUEST: u8 = 2;
const REPLY: u8 = 3;
const BROADCAST: u8 = 4;
const ACKNOWLEDGEMENT: u8 = 5;
const PATH_ERROR: u8 = 6;
const PATH_TEAR: u8 = 7;
const LABEL_UNKNOWN: u8 = 8;
const LIVENESS: u8 = 9;
const CHALLENGE: u8 = 10;
const CHALLENGE_REPLY: u8 = 11;
const LINK_BACK: u8 = 12;
const PORT_HELLO: u8 = 13;
const OLSR: u8 = 14;
const BYPASS_REQUEST: u8 = 15;
const BYPASS_TEAR: u8 = 16;

/// Nodes of a list of them.
pub(crate) fn nodes(octets: &[u8]) -> impl Iterator<Item = NodeId> {
    octets.as_chunks().0.iter().map(|octets| NodeRecord::of(octets).node())
}

impl<'p> Message<'p> {
    /// Decodes a message of `profile`.
    ///
    /// # Errors
    ///
    /// [`MessageError`] if it is malformed, or of another version or profile.
    pub fn decode(octets: &'p [u8], profile: Profile) -> Result<(Sender, Self), MessageError> {
        let (head, rest) = CommonHeader::split(octets)?;
        if !head.has_constants() {
            return Err(MessageError::Version(octets.first().map_or(0, |first| first >> 4)));
        }
        if head.profile() != profile.number() {
            return Err(MessageError::Profile(head.profile()));
        }
        // The paper's nodes do not know them.
        let is_newer = matches!(head.kind(), LINK_BACK | BYPASS_REQUEST | BYPASS_TEAR);
        if is_newer && profile == Profile::Classic {
            return Err(MessageError::Type(head.kind()));
        }
        let needed = usize::from(head.length());
        let body = rest.get(..needed).ok_or(Truncated { needed, found: rest.len() })?;
        let sender = Sender { node: head.sender(), epoch: head.epoch(), sequence: head.sequence() };
        Ok((sender, Self::body(head.kind(), body)?))
    }

    fn body(kind: u8, body: &'p [u8]) -> Result<Self, MessageError> {
        Ok(match kind {
            ALIVE => Self::Alive(alive(body)?),
            REQUEST => Self::Request(request(body)?),
            REPLY => Self::Reply(reply(body)?),
            BROADCAST => {
                let (head, payload) = BroadcastHeader::split(body)?;
                let divided = head.parts() != 0;
                if head.part() >= head.parts().max(1)
                    || head.parts() == 1
                    || (head.stations() && divided)
                {
                    return Err(MessageError::Malformed);
                }
                Self::Broadcast(Broadcast {
                    origin: head.origin(),
                    origin_epoch: head.origin_epoch(),
                    number: head.number(),
                    hops_left: head.hops_left(),
                    parts: head.parts(),
                    part: head.part(),
                    stations: head.stations(),
                    payload,
                })
            }
            ACKNOWLEDGEMENT => {
                let (head, _) = AcknowledgementHeader::split(body)?;
                let label = Some(head.label()).filter(|label| !label.is_reserved());
                Self::Acknowledgement { acknowledged: head.acknowledged(), label }
            }
            PATH_ERROR | PATH_TEAR => path_end(kind, body)?,
            LINK_BACK => Self::LinkBack(link_back(body)?),
            BYPASS_REQUEST => Self::BypassRequest(bypass_request(body)?),
            BYPASS_TEAR => Self::BypassTear(given_label(UnknownHeader::split(body)?.0.label())?),
            PORT_HELLO => Self::PortHello(port_hello(body)?),
            OLSR => Self::Olsr(olsr(body)?),
            LABEL_UNKNOWN => Self::LabelUnknown(UnknownHeader::split(body)?.0.label()),
            LIVENESS => Self::Liveness(liveness(body)?),
            CHALLENGE => Self::Challenge(ChallengeHeader::split(body)?.0.nonce()),
            CHALLENGE_REPLY => Self::ChallengeReply(ChallengeHeader::split(body)?.0.nonce()),
            other => return Err(MessageError::Type(other)),
        })
    }

    /// Encodes the message behind the common header of `sender`.
    ///
    /// Lists beyond their bounds are cut: the machine never makes them.
    pub fn encode(&self, sender: Sender, profile: Profile) -> Vec<u8> {
        // Most messages fit, so that they do not move as they grow.
        let mut octets = Vec::with_capacity(ROOM);
        octets.resize(CommonHeader::LEN, 0);
        let kind = self.write(&mut octets);
        let length = octets.len().saturating_sub(CommonHeader::LEN);
        let head = CommonHeaderFields {
            profile: profile.number(),
            kind,
            length: u16::try_from(length).unwrap_or(u16::MAX),
            sender: sender.node,
            epoch: sender.epoch,
            sequence: sender.sequence,
        };
        if let Some(place) = octets.first_chunk_mut() {
            *place = head.emit();
        }
        octets
    }

    /// What the origin of a message says and others pass on, with the origin: the type and the body
    /// without what is changed on the way. `None` for what a node says to its neighbours.
    pub(crate) fn said(&self) -> Option<(NodeId, Vec<u8>)> {
        let (origin, unchanged) = match self {
            Self::Request(request) => {
                let RouteRequest { origin, .. } = *request;
                let request = RouteRequest {
                    frame_limit: 0,
                    hops_left: 0,
                    record: Vec::new(),
                    ..request.clone()
                };
                (origin, Self::Request(request))
            }
            Self::Reply(reply) => {
                let label = Label::IPV4_EXPLICIT_NULL;
                let fixed = RouteReply { label, position: 0, ..reply.clone() };
                (reply.path.target, Self::Reply(fixed))
            }
            &Self::Broadcast(broadcast) => {
                (broadcast.origin, Self::Broadcast(Broadcast { hops_left: 0, ..broadcast }))
            }
            &Self::PathEnd { path, reporter, reason } => {
                (reporter, Self::PathEnd { path, reporter, reason })
            }
            Self::LinkBack(back) => {
                (back.reporter, Self::LinkBack(LinkBack { position: 0, ..back.clone() }))
            }
            _ => return None,
        };
        let mut body = Vec::new();
        let kind = unchanged.write(&mut body);
        body.insert(0, kind);
        Some((origin, body))
    }

    /// Appends the body, and gives its type.
    fn write(&self, octets: &mut Vec<u8>) -> u8 {
        match self {
            Self::Alive(alive) => {
                write_alive(alive, octets);
                ALIVE
            }
            Self::Request(request) => {
                write_request(request, octets);
                REQUEST
            }
            Self::Reply(reply) => {
                write_reply(reply, octets);
                REPLY
            }
            Self::Broadcast(broadcast) => {
                write_broadcast(broadcast, octets);
                BROADCAST
            }
            &Self::Acknowledgement { acknowledged, label } => {
                let label = label.unwrap_or(Label::IPV4_EXPLICIT_NULL);
                octets.extend(AcknowledgementHeaderFields { acknowledged, label }.emit());
                ACKNOWLEDGEMENT
            }
            &Self::PathEnd { path, reporter, reason } => {
                let PathId { origin, target, number } = path;
                let head = PathEndHeaderFields { origin, target, path: number, reporter, reason };
                octets.extend(head.emit());
                if reason == Reason::UNUSED { PATH_TEAR } else { PATH_ERROR }
            }
            Self::LinkBack(back) => {
                write_link_back(back, octets);
                LINK_BACK
            }
            &Self::BypassRequest(BypassRequest { neighbour, epoch, label, frame_limit }) => {
                let neighbour_epoch = epoch;
                let head =
                    BypassRequestHeaderFields { neighbour, neighbour_epoch, label, frame_limit };
                octets.extend(head.emit());
                BYPASS_REQUEST
            }
            &Self::BypassTear(label) => {
                octets.extend(UnknownHeaderFields { label }.emit());
                BYPASS_TEAR
            }
            Self::PortHello(hello) => {
                write_port_hello(hello, octets);
                PORT_HELLO
            }
            Self::Olsr(packet) => {
                octets.extend(*packet);
                OLSR
            }
            &Self::LabelUnknown(label) => {
                octets.extend(UnknownHeaderFields { label }.emit());
                LABEL_UNKNOWN
            }
            Self::Liveness(fields) => {
                octets.extend(fields.emit());
                LIVENESS
            }
            &Self::Challenge(nonce) | &Self::ChallengeReply(nonce) => {
                octets.extend(ChallengeHeaderFields { nonce }.emit());
                let is_reply = matches!(self, Self::ChallengeReply(_));
                if is_reply { CHALLENGE_REPLY } else { CHALLENGE }
            }
        }
    }
}

fn alive(body: &[u8]) -> Result<Alive<'_>, MessageError> {
    let (head, rest) = AliveHeader::split(body)?;
    let (neighbours, rest) = head.neighbour_list(rest)?;
    let (labels, _) = head.label_list(rest)?;
    if (!head.full() && !neighbours.is_empty()) || head.interval() == 0 {
        return Err(MessageError::Malformed);
    }
    Ok(Alive {
        interval_ms: head.interval(),
        more: head.more(),
        part: head.part(),
        wants_list: head.wants_list(),
        delay: RelayDelay {
            base_us: head.delay_base(),
            octet_ns: head.octet_delay(),
            p99_us: head.delay_p99(),
            load_permille: head.load(),
        },
        neighbours: head.full().then_some(neighbours),
        labels,
    })
}

fn write_alive(alive: &Alive<'_>, octets: &mut Vec<u8>) {
    let neighbours = alive.neighbours.unwrap_or_default();
    let count = |octets: &[u8]| u8::try_from(octets.len() / NodeRecord::LEN).unwrap_or(u8::MAX);
    let head = AliveHeaderFields {
        interval: alive.interval_ms,
        full: alive.neighbours.is_some(),
        more: alive.more,
        part: alive.part,
        wants_list: alive.wants_list,
        delay_base: alive.delay.base_us,
        octet_delay: alive.delay.octet_ns,
        delay_p99: alive.delay.p99_us,
        load: alive.delay.load_permille,
        neighbours: count(neighbours),
        labels: count(alive.labels),
    };
    octets.extend(head.emit());
    octets.extend(neighbours);
    octets.extend(alive.labels);
}

/// The octets of a neighbour list with at most [`NEIGHBOURS_LISTED_MAX`] entries.
pub(crate) fn node_list(nodes: impl Iterator<Item = NodeId>) -> Vec<u8> {
    nodes.take(NEIGHBOURS_LISTED_MAX).flat_map(|node| NodeRecordFields { node }.emit()).collect()
}

/// The octets of a label list with at most [`LABELS_LISTED_MAX`] entries.
pub(crate) fn label_list(labels: &[(Label, u32)]) -> Vec<u8> {
    let entry = |&(label, octets_received)| LabelRecordFields { label, octets_received }.emit();
    labels.iter().take(LABELS_LISTED_MAX).flat_map(entry).collect()
}

fn reply(body: &[u8]) -> Result<RouteReply, MessageError> {
    let (head, rest) = ReplyHeader::split(body)?;
    let (record, _) = head.record(rest)?;
    let path = PathId { origin: head.origin(), target: head.target(), number: head.path() };
    let fits = usize::from(head.hops()) <= HOPS_MAX && head.position() <= head.hops();
    let astray = path.origin == path.target || head.station() == path.origin;
    if !fits || head.label().is_reserved() || astray {
        return Err(MessageError::Malformed);
    }
    Ok(RouteReply {
        path,
        request: head.request(),
        label: head.label(),
        class: head.class(),
        frame_limit: head.frame_limit(),
        position: head.position(),
        cost: head.cost(),
        delay_us: head.delay(),
        station: Some(head.station()).filter(|&station| station != NodeId(0)),
        record: nodes(record).collect(),
    })
}

fn write_reply(reply: &RouteReply, octets: &mut Vec<u8>) {
    let hops = reply.record.len().min(HOPS_MAX);
    let head = ReplyHeaderFields {
        origin: reply.path.origin,
        target: reply.path.target,
        request: reply.request,
        path: reply.path.number,
        label: reply.label,
        class: reply.class,
        frame_limit: reply.frame_limit,
        hops: u8::try_from(hops).unwrap_or(0),
        position: reply.position,
        cost: reply.cost,
        delay: reply.delay_us,
        station: reply.station.unwrap_or_default(),
    };
    octets.extend(head.emit());
    for &node in reply.record.iter().take(hops) {
        octets.extend(NodeRecordFields { node }.emit());
    }
}

fn path_end(kind: u8, body: &[u8]) -> Result<Message<'_>, MessageError> {
    let (head, _) = PathEndHeader::split(body)?;
    let path = PathId { origin: head.origin(), target: head.target(), number: head.path() };
    // The type and the reason say the same.
    if (kind == PATH_TEAR) != (head.reason() == Reason::UNUSED) || path.origin == path.target {
        return Err(MessageError::Malformed);
    }
    Ok(Message::PathEnd { path, reporter: head.reporter(), reason: head.reason() })
}

fn link_back(body: &[u8]) -> Result<LinkBack, MessageError> {
    let (head, rest) = LinkBackHeader::split(body)?;
    let (record, _) = head.record(rest)?;
    let path = PathId { origin: head.origin(), target: head.target(), number: head.path() };
    let fits = usize::from(head.hops()) <= HOPS_MAX && head.position() <= head.hops();
    if !fits || path.origin == path.target {
        return Err(MessageError::Malformed);
    }
    Ok(LinkBack {
        path,
        reporter: head.reporter(),
        position: head.position(),
        record: nodes(record).collect(),
    })
}

fn bypass_request(body: &[u8]) -> Result<BypassRequest, MessageError> {
    let (head, _) = BypassRequestHeader::split(body)?;
    Ok(BypassRequest {
        neighbour: head.neighbour(),
        epoch: head.neighbour_epoch(),
        label: given_label(head.label())?,
        frame_limit: head.frame_limit(),
    })
}

/// A label that a node gives.
const fn given_label(label: Label) -> Result<Label, MessageError> {
    if label.is_reserved() { Err(MessageError::Malformed) } else { Ok(label) }
}

fn write_broadcast(broadcast: &Broadcast<'_>, octets: &mut Vec<u8>) {
    let &Broadcast { origin, origin_epoch, number, hops_left, parts, part, stations, payload } =
        broadcast;
    let head =
        BroadcastHeaderFields { origin, origin_epoch, number, hops_left, parts, part, stations };
    octets.extend(head.emit());
    octets.extend(payload);
}

fn write_link_back(back: &LinkBack, octets: &mut Vec<u8>) {
    let PathId { origin, target, number: path } = back.path;
    let hops = back.record.len().min(HOPS_MAX);
    let head = LinkBackHeaderFields {
        origin,
        target,
        path,
        reporter: back.reporter,
        hops: u8::try_from(hops).unwrap_or(0),
        position: back.position,
    };
    octets.extend(head.emit());
    for &node in back.record.iter().take(hops) {
        octets.extend(NodeRecordFields { node }.emit());
    }
}

fn port_hello(body: &[u8]) -> Result<PortHello<'_>, MessageError> {
    let (head, rest) = PortHelloHeader::split(body)?;
    let (stations, _) = head.station_list(rest)?;
    if head.interval() == 0 || (head.forwards() && !head.ready()) {
        return Err(MessageError::Malformed);
    }
    Ok(PortHello {
        port: head.port(),
        interval_ms: head.interval(),
        forwards: head.forwards(),
        ready: head.ready(),
        stations,
    })
}

fn write_port_hello(hello: &PortHello<'_>, octets: &mut Vec<u8>) {
    let stations = hello.stations.len() / NodeRecord::LEN;
    let head = PortHelloHeaderFields {
        port: hello.port,
        interval: hello.interval_ms,
        forwards: hello.forwards,
        ready: hello.ready,
        stations: u8::try_from(stations).unwrap_or(u8::MAX),
    };
    octets.extend(head.emit());
    octets.extend(hello.stations);
}

/// The octets of a list of at most [`STATIONS_LISTED_MAX`] stations.
pub(crate) fn station_list(stations: &[NodeId]) -> Vec<u8> {
    let stations = stations.iter().take(STATIONS_LISTED_MAX);
    stations.flat_map(|&node| NodeRecordFields { node }.emit()).collect()
}

/// A packet fills its message; its messages are read by the machine of OLSR.
fn olsr(body: &[u8]) -> Result<&[u8], MessageError> {
    let (head, _) = OlsrHeader::split(body)?;
    let is_whole = usize::from(head.packet_length()) == body.len();
    if is_whole { Ok(body) } else { Err(MessageError::Malformed) }
}

/// RFC 5880 §6.8.6: the checks that need no session.
fn liveness(body: &[u8]) -> Result<LivenessHeaderFields, MessageError> {
    let (head, _) = LivenessHeader::split(body)?;
    let whole = usize::from(head.length()) == LivenessHeader::LEN;
    let valid = head.has_constants()
        && whole
        && head.detect_mult() != 0
        && head.my_discriminator() != 0
        && !head.multipoint()
        && !head.authentication();
    if valid { Ok(head.fields()) } else { Err(MessageError::Malformed) }
}
