//! Paths as one node of them knows them.

use crate::edge::{Adjacency, LabelAction, LabelledHop, PathClass};
use crate::identity::{NodeId, PathId, Reason};
use crate::labels::LabelDirection;
use core::time::Duration;
use gatewright_wire::mpls::Label;

/// Paths through or from one node at the most.
pub(crate) const SEGMENTS_MAX: usize = 4_096;

/// A way around the link of a side: over a neighbour that both its ends have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bypass {
    /// The neighbour that forwards around the link.
    pub(crate) via: Adjacency,
    /// The label that it expects; `None` until it has answered.
    pub(crate) label: Option<Label>,
    /// When it is asked again.
    pub(crate) renew_at: Duration,
}

/// A bypass as it was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedBypass {
    pub(crate) path: PathId,
    /// That of the packets that leave by the link.
    pub(crate) direction: LabelDirection,
    /// The label that the neighbour beyond the link expected.
    pub(crate) expected: Label,
}

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
    /// The way around its link, where one stands or has been asked for.
    pub(crate) bypass: Option<Bypass>,
    /// Neighbours that have refused a bypass in a row, and when the next one is asked.
    pub(crate) refusals: u8,
    pub(crate) ask_at: Duration,
    /// Why its link was lost, if the path goes on without it.
    pub(crate) lost: Option<Reason>,
}

impl Side {
    pub(crate) fn new(adjacency: Adjacency) -> Self {
        Self {
            adjacency,
            given: None,
            expected: None,
            listed: false,
            octets: 0,
            bypass: None,
            refusals: 0,
            ask_at: Duration::ZERO,
            lost: None,
        }
    }

    /// Learns the label that the neighbour expects. A bypass to another label is of no use any more, and
    /// is returned.
    pub(crate) fn expect(&mut self, label: Label) -> Option<Bypass> {
        let is_new = self.expected.replace(label) != Some(label);
        if is_new { self.bypass.take() } else { None }
    }

    /// The neighbour with its label that a packet for this side goes to.
    pub(crate) fn leave(&self) -> Option<(Adjacency, Label)> {
        if self.lost.is_some() { self.around() } else { Some((self.adjacency, self.expected?)) }
    }

    /// The neighbour with its label by which a packet goes around the link.
    pub(crate) fn around(&self) -> Option<(Adjacency, Label)> {
        self.bypass.and_then(|bypass| Some((bypass.via, bypass.label?)))
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
    /// When it carried octets last that were no probe.
    pub(crate) carried_at: Option<Duration>,
    /// Since when it goes around a lost link, as far as this node knows.
    pub(crate) bypassed_at: Option<Duration>,
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

    /// The side by which packets of a direction leave.
    pub(crate) fn side(&self, direction: LabelDirection) -> Option<&Side> {
        match direction {
            LabelDirection::ToTarget => self.downstream.as_ref(),
            LabelDirection::ToOrigin => self.upstream.as_ref(),
        }
    }

    /// The same, to change it.
    pub(crate) fn side_mut(&mut self, direction: LabelDirection) -> Option<&mut Side> {
        match direction {
            LabelDirection::ToTarget => self.downstream.as_mut(),
            LabelDirection::ToOrigin => self.upstream.as_mut(),
        }
    }

    /// Whether the path goes on though a link of it to a neighbour of this node is lost.
    pub(crate) fn has_lost_side(&self) -> bool {
        self.sides().any(|side| side.lost.is_some())
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

/// What a label does whose packets leave by a side, and the next hop while that is down; `None` while the
/// side expects no label.
pub(crate) fn action(
    leave: Option<&Side>,
    hop: impl Fn((Adjacency, Label)) -> LabelledHop,
) -> Option<(LabelAction, Option<LabelledHop>)> {
    let Some(side) = leave else { return Some((LabelAction::Pop, None)) };
    let backup = side.around().filter(|_| side.lost.is_none());
    Some((LabelAction::Swap(hop(side.leave()?)), backup.map(hop)))
}
