//! Lost neighbours and paths: ends switch, relays lead paths around a lost link where they can, and pass the
//! news on.

use super::MeshNode;
use super::bypass::LinkLoss;
use super::establish::Awaited;
use crate::edge::{Adjacency, MeshEvent, MeshOutput};
use crate::identity::{NodeId, PathId, Reason};
use crate::message::Message;
use crate::routing::LinkNews;
use crate::segment::{Segment, Side};
use core::time::Duration;
use gatewright_packet::{LinkAddress, LinkIndex};
use gatewright_wire::mpls::Label;

impl MeshNode {
    /// Loses a neighbour: the data path switches at once, then the paths through it end.
    pub(super) fn lose(&mut self, now: Duration, adjacency: Adjacency, reason: Reason) {
        let Some(neighbour) = self.near.all.get_mut(&adjacency) else { return };
        let was_up = core::mem::replace(&mut neighbour.up, false);
        if was_up {
            self.output(MeshOutput::LinkState { adjacency, up: false });
            self.output(MeshOutput::Event(MeshEvent::NeighbourDown(adjacency, reason)));
            self.list_changed();
            self.link_lost(now, adjacency);
            self.routing.learn(now, LinkNews::NeighbourDown(adjacency));
        }
        self.forget_messages(adjacency);
        self.lose_bypasses(now, adjacency);
        let through: Vec<PathId> = (self.segments.iter())
            .filter(|(_, segment)| segment.uses(adjacency))
            .map(|(&path, _)| path)
            .collect();
        let mut led_around = 0_u16;
        for path in through {
            if reason.is_of_a_link() {
                if self.is_bypassed(path, adjacency) {
                    continue;
                }
                self.remember_lost(now, adjacency, path);
                match self.lead_around(now, path, adjacency, reason) {
                    LinkLoss::Bypassed => {
                        led_around = led_around.saturating_add(1);
                        continue;
                    }
                    LinkLoss::Drained => continue,
                    LinkLoss::Ends => {}
                }
            }
            self.remove_path(now, path, reason, Some(adjacency));
        }
        if led_around > 0 {
            let paths = led_around;
            self.output(MeshOutput::Event(MeshEvent::LinkBypassed { adjacency, paths }));
        }
    }

    /// Removes a path. The ends learn it from the sides beyond `from`, or from both without it.
    pub(super) fn remove_path(
        &mut self,
        now: Duration,
        path: PathId,
        reason: Reason,
        from: Option<Adjacency>,
    ) {
        let own = self.settings.id;
        self.remove_reported(now, path, (own, reason), from);
    }

    fn remove_reported(
        &mut self,
        now: Duration,
        path: PathId,
        (reporter, reason): (NodeId, Reason),
        from: Option<Adjacency>,
    ) {
        let Some(segment) = self.segments.remove(&path) else { return };
        for side in segment.sides() {
            if let Some(label) = side.given {
                self.labels.take_back(now, label);
                self.outputs.push_back(MeshOutput::RemoveLabel { label });
            }
        }
        let told: Vec<&Side> = match from {
            Some(from) => segment.beyond(from).into_iter().collect(),
            None => segment.sides().collect(),
        };
        let told = told.into_iter().filter(|side| side.lost.is_none());
        let told: Vec<Adjacency> = told.map(|side| side.adjacency).collect();
        if self.is_classic() {
            self.tell_by_alive(now, &segment);
        } else {
            for adjacency in told {
                let end = Message::PathEnd { path, reporter, reason };
                self.send_reliably(now, adjacency, &end, Awaited::Nothing);
            }
        }
        for side in segment.sides() {
            self.tear_bypass(now, side.bypass);
            if side.lost.is_none() {
                self.count_path(now, side.adjacency, false);
            }
        }
        if let Some(destination) = segment.destination(path, self.settings.id) {
            // What was led around a link was remembered, and is replaced since then.
            let is_news = segment.bypassed_at.is_none();
            if reason.is_of_a_link() && is_news {
                self.remember_hop((destination, path), reporter, &segment.relays);
            }
            self.path_lost(now, destination, path, (reason, is_news));
        }
    }

    /// `classic` has no message for a lost path: the next I'M ALIVE does not list its label.
    fn tell_by_alive(&mut self, now: Duration, segment: &Segment) {
        if let Some(side) = &segment.upstream {
            self.trigger_alive(now, side.adjacency.link);
        }
    }

    /// Tells a neighbour that a path is not accepted here.
    pub(super) fn end_path(&mut self, now: Duration, to: Adjacency, path: PathId, reason: Reason) {
        let reporter = self.settings.id;
        self.send_reliably(now, to, &Message::PathEnd { path, reporter, reason }, Awaited::Nothing);
    }

    /// Processes a PATH ERROR or PATH TEAR.
    pub(super) fn path_end(
        &mut self,
        now: Duration,
        from: Adjacency,
        path: PathId,
        reporter: NodeId,
        reason: Reason,
    ) {
        // Only a neighbour that the path leads through may end it.
        if !self.segments.get(&path).is_some_and(|segment| segment.uses(from)) {
            return;
        }
        if reason == Reason::BYPASSED {
            self.path_bypassed(now, from, path, reporter);
        } else {
            self.remove_reported(now, path, (reporter, reason), Some(from));
        }
    }

    /// Whether a label is one that this node has given out: if the data path does not know it, its
    /// entry comes.
    pub fn is_own_label(&self, label: Label) -> bool {
        self.labels.is_used(label)
    }

    /// A packet arrived with a label that the data path does not know.
    pub(super) fn unknown_label(
        &mut self,
        now: Duration,
        link: LinkIndex,
        from: LinkAddress,
        label: Label,
    ) {
        if self.is_classic() || self.is_own_label(label) {
            return;
        }
        let mut near = self.near.all.iter_mut();
        let found = near.find(|(at, known)| at.link == link && known.address == from);
        let Some((&adjacency, neighbour)) = found else { return };
        if !neighbour.may_complain(now) {
            self.counters.unknown_limited += 1;
            return;
        }
        self.counters.labels_unknown += 1;
        self.send_to(adjacency, &Message::LabelUnknown(label));
    }

    /// The data path has no room for a label: its path ends, and another one has other labels.
    pub(super) fn label_refused(&mut self, now: Duration, label: Label) {
        self.counters.table_full += 1;
        if let Some((path, _)) = self.labels.owner(label) {
            self.remove_path(now, path, Reason::EXHAUSTED, None);
        } else {
            self.end_bypass(now, label);
        }
    }

    /// Processes a LABEL UNKNOWN: paths and bypasses that expect this label of the neighbour lead nowhere.
    pub(super) fn label_unknown(&mut self, now: Duration, from: Adjacency, label: Label) {
        self.bypass_unknown(now, from, label);
        let expects = |segment: &Segment| {
            segment.sides().any(|side| side.adjacency == from && side.expected == Some(label))
        };
        let gone: Vec<PathId> = (self.segments.iter())
            .filter(|(_, segment)| expects(segment))
            .map(|(&path, _)| path)
            .collect();
        for path in gone {
            self.remove_path(now, path, Reason::LABEL_UNKNOWN, Some(from));
        }
    }
}
