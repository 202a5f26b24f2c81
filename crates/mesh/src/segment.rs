//! Paths as one node of them knows them.

use crate::edge::{Adjacency, LabelAction, LabelledHop, PathClass};
use crate::identity::{NodeId, PathId};
use core::time::Duration;
use gatewright_wire::mpls::Label;

/// Paths through or from one node at the most.
pub(crate) const SEGMENTS_MAX: usize = 4_096;

/// One side of a path at a node.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    /// The neighbour.
    pub(crate) adjacency: Adjacency,
    /// The label on packets that it sends.
    pub(crate) given: Option<Label>,
    /// The label on packets that it expects.
    pub(crate) expected: Option<Label>,
    /// Whether its I'M ALIVE has listed the expected label (`classic`).
    pub(crate) listed: bool,
    /// Octets received from it by the given label since the last I'M ALIVE.
    pub(crate) octets: u64,
}

impl Side {
    pub(crate) fn new(adjacency: Adjacency) -> Self {
        Self { adjacency, given: None, expected: None, listed: false, octets: 0 }
    }
}

/// A path at one node: an end has one side, a relay has two.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// Towards the origin; `None` at the origin.
    pub(crate) upstream: Option<Side>,
    /// Towards the target; `None` at the target.
    pub(crate) downstream: Option<Side>,
    /// The station behind the target that the path leads to, if not to the target itself.
    pub(crate) station: Option<NodeId>,
    pub(crate) class: PathClass,
    /// Relays from the origin's side.
    pub(crate) relays: Vec<NodeId>,
    pub(crate) cost: u16,
    pub(crate) delay_us: u16,
    pub(crate) frame_limit: u16,
    pub(crate) made_at: Duration,
    pub(crate) used_at: Duration,
}

impl Segment {
    /// The sides that there are.
    pub(crate) fn sides(&self) -> impl Iterator<Item = &Side> {
        self.upstream.iter().chain(&self.downstream)
    }

    /// The sides that there are, to change them.
    pub(crate) fn sides_mut(&mut self) -> impl Iterator<Item = &mut Side> {
        self.upstream.iter_mut().chain(&mut self.downstream)
    }

    /// The side that leads away from a neighbour; `None` at an end or if it is no neighbour of this
    /// path.
    pub(crate) fn beyond(&self, adjacency: Adjacency) -> Option<&Side> {
        let is = |side: &Option<Side>| side.as_ref().is_some_and(|s| s.adjacency == adjacency);
        if is(&self.upstream) {
            self.downstream.as_ref()
        } else if is(&self.downstream) {
            self.upstream.as_ref()
        } else {
            None
        }
    }

    /// The destination of this end's packets by the path; `None` at a relay.
    pub(crate) fn destination(&self, path: PathId, own: NodeId) -> Option<NodeId> {
        match self.station {
            Some(station) if path.origin == own => Some(station),
            _ => peer(path, own),
        }
    }

    /// Whether the path leads through a neighbour.
    pub(crate) fn uses(&self, adjacency: Adjacency) -> bool {
        self.sides().any(|side| side.adjacency == adjacency)
    }
}

/// The other end of a path, seen from `own`; `None` at a relay.
pub(crate) fn peer(path: PathId, own: NodeId) -> Option<NodeId> {
    if path.origin == own {
        Some(path.target)
    } else if path.target == own {
        Some(path.origin)
    } else {
        None
    }
}

/// What a label does whose packets leave by a side; `None` while that side expects no label.
pub(crate) fn action(
    leave: Option<&Side>,
    hop: impl Fn(Adjacency, Label) -> LabelledHop,
) -> Option<LabelAction> {
    match leave {
        None => Some(LabelAction::Pop),
        Some(side) => Some(LabelAction::Swap(hop(side.adjacency, side.expected?))),
    }
}
