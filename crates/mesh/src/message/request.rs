//! ROUTE REQUEST as a value.

use super::{HOPS_MAX, MessageError, nodes};
use crate::identity::NodeId;
use crate::layout::{
    HopRecord, HopRecordFields, NodeRecord, NodeRecordFields, RequestHeader, RequestHeaderFields,
};

/// Entries of a request's list of nodes, at the most.
pub const LISTED_MAX: usize = HOPS_MAX;

/// A relay in a request's record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RecordedHop {
    /// The relay.
    pub node: NodeId,
    /// Cost of the link to it.
    pub cost: u16,
    /// Delay of that link and of the relay, in microseconds.
    pub delay_us: u16,
}

/// The nodes that relay a ROUTE REQUEST which is flooded.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum RequestRelays {
    /// All.
    #[default]
    All,
    /// Those that relay broadcasts.
    Elected,
    /// Those near the listed nodes, the origin or the target.
    Near,
}

impl RequestRelays {
    /// Its number on the wire.
    const fn number(self) -> u8 {
        match self {
            Self::All => 0,
            Self::Elected => 1,
            Self::Near => 2,
        }
    }

    const fn of(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::All),
            1 => Some(Self::Elected),
            2 => Some(Self::Near),
            _ => None,
        }
    }
}

/// ROUTE REQUEST with PATH REQUEST.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RouteRequest {
    /// The node that searches.
    pub origin: NodeId,
    /// Its start.
    pub origin_epoch: u32,
    /// Number of the request.
    pub request: u32,
    /// The node that is searched.
    pub target: NodeId,
    /// Class of the paths.
    pub class: u8,
    /// Whether the search is one in the background.
    pub background: bool,
    /// Whether it follows a route, and is not flooded.
    pub routed: bool,
    /// The nodes that relay it, if it is flooded.
    pub relays: RequestRelays,
    /// Whether the listed nodes do not relay it.
    pub avoids: bool,
    /// Largest frame that the links so far carry, in octets; 0 if no link has a limit.
    pub frame_limit: u16,
    /// Paths that the origin wants; so many copies are relayed at the most.
    pub paths: u8,
    /// Relays that it may still pass.
    pub hops_left: u8,
    /// Nodes that do not relay it, or near which the relays are.
    pub listed: Vec<NodeId>,
    /// The relays so far.
    pub record: Vec<RecordedHop>,
}

pub(super) fn request(body: &[u8]) -> Result<RouteRequest, MessageError> {
    let (head, rest) = RequestHeader::split(body)?;
    let (listed, rest) = head.listed_nodes(rest)?;
    let (record, _) = head.record(rest)?;
    let hops = usize::from(head.hops());
    let fits = hops <= HOPS_MAX && usize::from(head.listed()) <= LISTED_MAX;
    if !fits || head.origin() == head.target() {
        return Err(MessageError::Malformed);
    }
    let entry = |octets| {
        let entry = HopRecord::of(octets);
        RecordedHop { node: entry.relay(), cost: entry.cost(), delay_us: entry.delay() }
    };
    Ok(RouteRequest {
        origin: head.origin(),
        origin_epoch: head.origin_epoch(),
        request: head.request(),
        target: head.target(),
        class: head.class(),
        background: head.background(),
        routed: head.routed(),
        relays: RequestRelays::of(head.relays()).ok_or(MessageError::Malformed)?,
        avoids: head.avoids(),
        frame_limit: head.frame_limit(),
        paths: head.paths(),
        hops_left: head.hops_left(),
        listed: nodes(listed).collect(),
        record: record.as_chunks().0.iter().map(entry).collect(),
    })
}

pub(super) fn write_request(request: &RouteRequest, octets: &mut Vec<u8>) {
    let (listed, hops) = (request.listed.len().min(LISTED_MAX), request.record.len().min(HOPS_MAX));
    let head = RequestHeaderFields {
        origin: request.origin,
        target: request.target,
        origin_epoch: request.origin_epoch,
        request: request.request,
        frame_limit: request.frame_limit,
        background: request.background,
        routed: request.routed,
        relays: request.relays.number(),
        avoids: request.avoids,
        class: request.class,
        paths: request.paths,
        hops_left: request.hops_left,
        listed: u8::try_from(listed).unwrap_or(0),
        hops: u8::try_from(hops).unwrap_or(0),
    };
    octets.reserve(RequestHeader::LEN + listed * NodeRecord::LEN + hops * HopRecord::LEN);
    octets.extend(head.emit());
    for &node in request.listed.iter().take(listed) {
        octets.extend(NodeRecordFields { node }.emit());
    }
    for hop in request.record.iter().take(hops) {
        let entry = HopRecordFields { relay: hop.node, cost: hop.cost, delay: hop.delay_us };
        octets.extend(entry.emit());
    }
}
