//! Bypasses: a relay leads its paths around the link to the next hop, over a neighbour of both its ends.
//!
//! It is local protection of one link by one label for each direction of a path (RFC 4090's one-to-one backup,
//! without its signalling): the relay asks the neighbour for a label whose packets that sends on with the
//! label of the next hop. The data path has it as the backup of the relayed label, so the write that says that
//! the link is down moves the packets. The ends are told (PATH ERROR with reason 9), and have some seconds to
//! find another path.
//!
//! What is forwarded for a neighbour has no bypass of its own, so packets do not go around.

use super::MeshNode;
use super::establish::Awaited;
use crate::edge::{Adjacency, LabelAction, MeshOutput};
use crate::identity::{NodeId, PathId, Reason};
use crate::labels::{LabelDirection, LabelOwner};
use crate::message::{BypassRequest, Message};
use crate::segment::{AskedBypass, Bypass, Segment, Side};
use core::time::Duration;
use gatewright_wire::mpls::Label;

/// Bypasses that a node forwards for its neighbours, and those for one of them.
const GIVEN_MAX: usize = 1_024;
const GIVEN_NEIGHBOUR_MAX: usize = 256;

/// Bypasses that a node asks for in one sweep, and that it has.
const ASKED_MAX: usize = 64;
const OWN_MAX: usize = 1_024;

/// A path that carried octets this lately has bypasses.
const IN_USE: Duration = Duration::from_secs(30);

/// Interval at which a bypass is asked for again, and how long it is kept without: two requests may be lost.
const RENEW: Duration = Duration::from_secs(10);
const KEPT: Duration = Duration::from_secs(35);

/// Until another neighbour is asked, and, when a few have refused in a row, until it begins anew.
const ASK_AGAIN: Duration = Duration::from_secs(1);
const ASK_LATER: Duration = Duration::from_secs(30);
const REFUSALS_MAX: u8 = 3;

/// How long a path goes around a lost link: longer than a whole search takes.
const BYPASSED_MAX: Duration = Duration::from_secs(3);

/// The same at an end that was told, and to which the end of the path is not said.
const TOLD_MAX: Duration = Duration::from_secs(10);

/// A bypass that this node forwards for a neighbour.
#[derive(Clone, Copy, Debug)]
pub(super) struct BypassEntry {
    /// The neighbour that has asked for it.
    owner: Adjacency,
    /// The neighbour that its packets go to, and the label that this one expects.
    to: Adjacency,
    expected: Label,
    until: Duration,
}

/// What the loss of a link is to a path over it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LinkLoss {
    /// It goes on over a bypass of this node.
    Bypassed,
    /// It ends here, and what the neighbour sends around the link is still taken.
    Drained,
    /// It ends.
    Ends,
}

/// What is to be done about the bypass of a side.
#[derive(Clone, Copy, Debug)]
enum BypassStep {
    Ask,
    Tear,
}

const DIRECTIONS: [LabelDirection; 2] = [LabelDirection::ToTarget, LabelDirection::ToOrigin];

/// Whether frames of the size fit a link; 0 is no limit.
const fn fits(frame_limit: u16, link_limit: u16) -> bool {
    link_limit == 0 || (frame_limit != 0 && frame_limit <= link_limit)
}

impl MeshNode {
    /// Links of relayed paths around which there is a bypass, each direction for itself.
    pub fn bypasses(&self) -> usize {
        let sides = self.segments.values().flat_map(Segment::sides);
        sides.filter(|side| side.around().is_some()).count()
    }

    /// Bypasses that this node forwards for neighbours.
    pub fn bypasses_given(&self) -> usize {
        self.bypasses.len()
    }

    /// Whether a path goes around a lost link, as far as this node knows.
    pub fn goes_around_a_link(&self, path: PathId) -> bool {
        self.segments.get(&path).is_some_and(|segment| segment.bypassed_at.is_some())
    }

    /// Asks for the bypasses that paths in use lack, renews and tears others, and ends what is too old.
    pub(super) fn sweep_bypasses(&mut self, now: Duration) {
        let old = self.bypasses.iter().filter(|(_, entry)| entry.until <= now);
        for label in old.map(|(&label, _)| label).collect::<Vec<Label>>() {
            self.end_bypass(now, label);
        }
        self.end_bypassed(now);
        if self.is_classic() {
            return;
        }
        let steps: Vec<_> = (self.segments.iter())
            .flat_map(|(&path, segment)| {
                DIRECTIONS.into_iter().filter_map(move |direction| {
                    Some((path, direction, bypass_step(now, segment, direction)?))
                })
            })
            .collect();
        let mut free = OWN_MAX.saturating_sub(self.bypasses()).min(ASKED_MAX);
        for (path, direction, step) in steps {
            match step {
                BypassStep::Tear => {
                    let side = self.segments.get_mut(&path).and_then(|it| it.side_mut(direction));
                    let freed = side.and_then(|side| side.bypass.take());
                    self.install(path);
                    self.tear_bypass(now, freed);
                }
                BypassStep::Ask if free > 0 => {
                    free -= usize::from(self.ask_bypass(now, path, direction));
                }
                BypassStep::Ask => {}
            }
        }
    }

    /// Ends paths that have gone around a lost link for long enough.
    fn end_bypassed(&mut self, now: Duration) {
        let old = self.segments.iter().filter_map(|(&path, segment)| {
            let age = now.saturating_sub(segment.bypassed_at?);
            let lost = segment.sides().find_map(|side| Some((side.adjacency, side.lost?)));
            match lost {
                Some((adjacency, reason)) if age >= BYPASSED_MAX => {
                    Some((path, reason, Some(adjacency)))
                }
                None if age >= TOLD_MAX => Some((path, Reason::UNUSED, None)),
                _ => None,
            }
        });
        for (path, reason, from) in old.collect::<Vec<_>>() {
            self.remove_path(now, path, reason, from);
        }
    }

    /// Asks a neighbour for a bypass, or for the one that there is once more; `false` without a neighbour
    /// that may have one.
    fn ask_bypass(&mut self, now: Duration, path: PathId, direction: LabelDirection) -> bool {
        let Some(segment) = self.segments.get(&path) else { return false };
        let Some(side) = segment.side(direction) else { return false };
        let (to, known, Some(expected)) = (side.adjacency, side.bypass, side.expected) else {
            return false;
        };
        let Some(epoch) = self.near.all.get(&to).map(|neighbour| neighbour.epoch) else {
            return false;
        };
        let frame_limit = self.protected_limit(segment, to);
        let via = known.map(|bypass| bypass.via).or_else(|| {
            let nodes = self.bypass_nodes(path, segment, to);
            nodes.get(usize::from(side.refusals) % nodes.len().max(1)).copied()
        });
        let segment = self.segments.get_mut(&path);
        let Some(side) = segment.and_then(|it| it.side_mut(direction)) else { return false };
        let Some(via) = via else {
            side.ask_at = now + ASK_AGAIN;
            return false;
        };
        let label = known.and_then(|bypass| bypass.label);
        side.bypass = Some(Bypass { via, label, renew_at: now + RENEW });
        let request = BypassRequest { neighbour: to.node, epoch, label: expected, frame_limit };
        let asked = AskedBypass { path, direction, expected };
        let message = Message::BypassRequest(request);
        self.send_reliably(now, via, &message, Awaited::Bypass(asked));
        true
    }

    /// The largest frame of a path on its link to a neighbour; 0 without limit.
    fn protected_limit(&self, segment: &Segment, to: Adjacency) -> u16 {
        match (segment.frame_limit, self.near.properties(to.link).frame_limit) {
            (0, limit) | (limit, 0) => limit,
            (one, other) => one.min(other),
        }
    }

    /// The neighbours that may lead a path around the link to another one, the best first: both ends of the
    /// link hear them and they hear both, the path does not lead through them, and its frames fit the link
    /// to them. Another link is better than the same.
    fn bypass_nodes(&self, path: PathId, segment: &Segment, to: Adjacency) -> Vec<Adjacency> {
        let Some(beyond) = self.near.all.get(&to) else { return Vec::new() };
        let limit = self.protected_limit(segment, to);
        let is_on_path = |node: NodeId| {
            node == path.origin || node == path.target || segment.relays.contains(&node)
        };
        let all = self.near.all.iter().filter(|(at, near)| {
            let link = self.near.links.get(&at.link);
            near.is_usable()
                && link.is_some_and(|link| fits(limit, link.properties.frame_limit))
                && !is_on_path(at.node)
                && at.node != to.node
                && near.list.binary_search(&to.node).is_ok()
                && beyond.list.binary_search(&at.node).is_ok()
        });
        let mut found: Vec<Adjacency> = all.map(|(&at, _)| at).collect();
        found.sort_by_key(|at| (at.link == to.link, self.near.cost(*at), at.node, at.link));
        found
    }

    /// Processes a BYPASS REQUEST: the label of the bypass, or none.
    pub(super) fn bypass_requested(
        &mut self,
        now: Duration,
        from: Adjacency,
        request: BypassRequest,
    ) -> Option<Label> {
        let BypassRequest { neighbour, epoch, label: expected, frame_limit } = request;
        let to = self.near.best(neighbour).filter(|to| {
            let fits = fits(frame_limit, self.near.properties(to.link).frame_limit);
            let is_same = self.near.all.get(to).is_some_and(|known| known.epoch == epoch);
            fits && is_same && to.node != from.node
        });
        let Some(to) = to else {
            self.counters.bypasses_denied += 1;
            return None;
        };
        let until = now + KEPT;
        let known = self.bypasses.iter_mut().find(|(_, entry)| {
            entry.owner == from && entry.to.node == neighbour && entry.expected == expected
        });
        if let Some((&label, entry)) = known {
            entry.until = until;
            return Some(label);
        }
        let of_neighbour = self.bypasses.values().filter(|entry| entry.owner == from).count();
        let is_full = self.bypasses.len() >= GIVEN_MAX || of_neighbour >= GIVEN_NEIGHBOUR_MAX;
        let label = if is_full { None } else { self.labels.give(now, LabelOwner::Bypass) };
        let Some(label) = label else {
            self.counters.bypasses_denied += 1;
            return None;
        };
        self.counters.bypasses_given += 1;
        self.bypasses.insert(label, BypassEntry { owner: from, to, expected, until });
        let action = LabelAction::Swap(self.labelled(to, expected));
        self.output(MeshOutput::InstallLabel { label, action, backup: None });
        self.schedule_sweep(now);
        Some(label)
    }

    /// Processes the answer to a BYPASS REQUEST; no label is a refusal, or no answer.
    pub(super) fn bypass_answered(
        &mut self,
        now: Duration,
        via: Adjacency,
        asked: AskedBypass,
        label: Option<Label>,
    ) {
        let AskedBypass { path, direction, expected } = asked;
        let side = self.segments.get_mut(&path).and_then(|it| it.side_mut(direction));
        let side = side.filter(|side| side.expected == Some(expected));
        let bypass = side.and_then(|side| side.bypass.as_mut()).filter(|known| known.via == via);
        match (bypass, label) {
            (Some(bypass), Some(label)) => {
                let before = bypass.label.replace(label);
                if before != Some(label) {
                    self.counters.bypasses_made += u64::from(before.is_none());
                    self.install(path);
                }
            }
            (Some(_), None) => {
                self.counters.bypasses_refused += 1;
                self.lose_bypass(now, path, direction);
            }
            // What it was asked for has changed meanwhile.
            (None, Some(label)) => {
                let bypass = Bypass { via, label: Some(label), renew_at: now };
                self.tear_bypass(now, Some(bypass));
            }
            (None, None) => {}
        }
    }

    /// A bypass leads nowhere any more: a path that needs it ends, others ask another neighbour.
    fn lose_bypass(&mut self, now: Duration, path: PathId, direction: LabelDirection) {
        let side = self.segments.get_mut(&path).and_then(|it| it.side_mut(direction));
        let Some(side) = side else { return };
        side.bypass = None;
        side.refusals += 1;
        side.ask_at = now + ASK_AGAIN;
        if side.refusals >= REFUSALS_MAX {
            (side.refusals, side.ask_at) = (0, now + ASK_LATER);
        }
        let (adjacency, lost) = (side.adjacency, side.lost);
        match lost {
            Some(reason) => self.remove_path(now, path, reason, Some(adjacency)),
            None => self.install(path),
        }
    }

    /// Tells the neighbour that a bypass is not needed any more.
    pub(super) fn tear_bypass(&mut self, now: Duration, bypass: Option<Bypass>) {
        let Some(Bypass { via, label: Some(label), .. }) = bypass else { return };
        self.send_reliably(now, via, &Message::BypassTear(label), Awaited::Nothing);
    }

    /// Processes a BYPASS TEAR.
    pub(super) fn bypass_torn(&mut self, now: Duration, from: Adjacency, label: Label) {
        if self.bypasses.get(&label).is_some_and(|entry| entry.owner == from) {
            self.remove_bypass(now, label);
        }
    }

    fn remove_bypass(&mut self, now: Duration, label: Label) -> Option<BypassEntry> {
        let entry = self.bypasses.remove(&label)?;
        self.labels.take_back(now, label);
        self.output(MeshOutput::RemoveLabel { label });
        Some(entry)
    }

    /// A bypass that this node forwards ends, and the neighbour that has it is told.
    pub(super) fn end_bypass(&mut self, now: Duration, label: Label) {
        if let Some(entry) = self.remove_bypass(now, label) {
            self.send_to(entry.owner, &Message::LabelUnknown(label));
        }
    }

    /// A neighbour does not know a label: bypasses with it lead nowhere, also those of other neighbours.
    pub(super) fn bypass_unknown(&mut self, now: Duration, from: Adjacency, label: Label) {
        let is = |entry: &BypassEntry| entry.to.node == from.node && entry.expected == label;
        let given = self.bypasses.iter().filter(|(_, entry)| is(entry)).map(|(&label, _)| label);
        for label in given.collect::<Vec<Label>>() {
            self.end_bypass(now, label);
        }
        self.lose_own_bypasses(now, |bypass| bypass.via == from && bypass.label == Some(label));
    }

    /// A neighbour is lost, and with it the bypasses over it, to it and for it.
    pub(super) fn lose_bypasses(&mut self, now: Duration, adjacency: Adjacency) {
        let is = |entry: &BypassEntry| entry.owner == adjacency || entry.to == adjacency;
        let given = self.bypasses.iter().filter(|(_, entry)| is(entry)).map(|(&label, _)| label);
        for label in given.collect::<Vec<Label>>() {
            match self.remove_bypass(now, label) {
                Some(entry) if entry.owner != adjacency => {
                    self.send_to(entry.owner, &Message::LabelUnknown(label));
                }
                _ => {}
            }
        }
        self.lose_own_bypasses(now, |bypass| bypass.via == adjacency);
    }

    fn lose_own_bypasses(&mut self, now: Duration, is_lost: impl Fn(&Bypass) -> bool) {
        let is = |side: &Side| side.bypass.as_ref().is_some_and(&is_lost);
        let own = self.segments.iter().flat_map(|(&path, segment)| {
            let lost = DIRECTIONS.into_iter().filter(move |&at| segment.side(at).is_some_and(is));
            lost.map(move |direction| (path, direction))
        });
        for (path, direction) in own.collect::<Vec<_>>() {
            self.lose_bypass(now, path, direction);
        }
    }

    /// Whether a path goes on without its link to a neighbour.
    pub(super) fn is_bypassed(&self, path: PathId, adjacency: Adjacency) -> bool {
        let segment = self.segments.get(&path);
        segment.is_some_and(|segment| {
            segment.sides().any(|side| side.adjacency == adjacency && side.lost.is_some())
        })
    }

    /// The link of a path to a neighbour is lost. A relay leads the path around it where there is a bypass,
    /// and tells the ends; an end takes what its neighbour may send around it.
    pub(super) fn lead_around(
        &mut self,
        now: Duration,
        path: PathId,
        lost: Adjacency,
        reason: Reason,
    ) -> LinkLoss {
        let own = self.settings.id;
        let Some(segment) = self.segments.get(&path).filter(|_| !self.is_classic()) else {
            return LinkLoss::Ends;
        };
        let destination = segment.destination(path, own);
        let Some(side) = segment.sides().find(|side| side.adjacency == lost) else {
            return LinkLoss::Ends;
        };
        let stands = match side.around() {
            Some((via, _)) => self.near.links.contains_key(&via.link),
            None => destination.is_some() && !self.bypass_nodes(path, segment, lost).is_empty(),
        };
        if !stands {
            return LinkLoss::Ends;
        }
        let (beyond, relays) = (segment.beyond(lost).cloned(), segment.relays.clone());
        if let Some(segment) = self.segments.get_mut(&path) {
            let known = segment.bypassed_at.is_some();
            segment.bypassed_at.get_or_insert(now);
            for side in segment.sides_mut().filter(|side| side.adjacency == lost) {
                side.lost = Some(reason);
            }
            self.count_path(now, lost, false);
            if let Some(destination) = destination {
                if !known {
                    self.remember_hop((destination, path), own, &relays);
                }
                self.path_lost(now, destination, path, (reason, !known));
                return LinkLoss::Drained;
            }
        }
        self.counters.paths_bypassed += 1;
        self.install(path);
        if let Some(beyond) = beyond.filter(|side| side.lost.is_none()) {
            let end = Message::PathEnd { path, reporter: own, reason: Reason::BYPASSED };
            self.send_reliably(now, beyond.adjacency, &end, Awaited::Nothing);
        }
        LinkLoss::Bypassed
    }

    /// Processes a PATH ERROR of a relay that leads the path around a lost link.
    pub(super) fn path_bypassed(
        &mut self,
        now: Duration,
        from: Adjacency,
        path: PathId,
        relay: NodeId,
    ) {
        let own = self.settings.id;
        let Some(segment) = self.segments.get_mut(&path) else { return };
        let Some(destination) = segment.destination(path, own) else {
            let beyond = segment.beyond(from).filter(|side| side.lost.is_none());
            if let Some(to) = beyond.map(|side| side.adjacency) {
                let end = Message::PathEnd { path, reporter: relay, reason: Reason::BYPASSED };
                self.send_reliably(now, to, &end, Awaited::Nothing);
            }
            return;
        };
        if segment.bypassed_at.is_some() {
            return;
        }
        segment.bypassed_at = Some(now);
        let relays = segment.relays.clone();
        self.remember_hop((destination, path), relay, &relays);
        self.replace_path(now, (destination, path), relay);
    }

    /// A path is established anew over a side of this node: it leads over its links again.
    pub(super) fn restore(&mut self, now: Duration, path: PathId, direction: LabelDirection) {
        let near = &self.near;
        let is_up = |side: &Side| near.all.get(&side.adjacency).is_some_and(|near| near.up);
        let Some(segment) = self.segments.get_mut(&path) else { return };
        let Some(side) = segment.side_mut(direction).filter(|side| is_up(side)) else { return };
        let (adjacency, lost) = (side.adjacency, side.lost.take());
        if !segment.has_lost_side() {
            segment.bypassed_at = None;
        }
        if lost.is_some() {
            self.count_path(now, adjacency, true);
        }
    }
}

/// What is to be done about the bypass around the link by which packets of a direction leave a relay.
fn bypass_step(now: Duration, segment: &Segment, direction: LabelDirection) -> Option<BypassStep> {
    let is_relay = segment.upstream.is_some() && segment.downstream.is_some();
    let side = segment.side(direction).filter(|_| is_relay && !segment.has_lost_side())?;
    let carried = |at: Duration| now.saturating_sub(at) < IN_USE;
    let is_wanted = segment.carried_at.is_some_and(carried);
    match side.bypass {
        Some(_) if !is_wanted => Some(BypassStep::Tear),
        Some(bypass) if bypass.renew_at <= now => Some(BypassStep::Ask),
        None if is_wanted && side.expected.is_some() && side.ask_at <= now => Some(BypassStep::Ask),
        _ => None,
    }
}
