//! The labels that this node gives to its neighbours.

use crate::identity::PathId;
use core::time::Duration;
use gatewright_sim::Random;
use gatewright_wire::mpls::Label;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Labels that a node gives at the most.
pub(crate) const LABELS_MAX: usize = 8_192;

/// Labels that rest at the most; beyond, the oldest may be given again.
const RESTING_MAX: usize = 4 * LABELS_MAX;

/// LabelDirection of the packets that carry a label.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LabelDirection {
    /// From the path's origin to its target.
    ToTarget,
    /// From the path's target to its origin.
    ToOrigin,
}

/// What has a label.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LabelOwner {
    /// A direction of a path.
    Path(PathId, LabelDirection),
    /// A bypass that this node forwards for a neighbour.
    Bypass,
}

/// Labels in use, and those that rest before they are given again.
#[derive(Clone, Debug)]
pub(crate) struct Labels {
    next: u32,
    hold: Duration,
    used: BTreeMap<Label, LabelOwner>,
    resting: BTreeSet<Label>,
    until: VecDeque<(Duration, Label)>,
}

impl Labels {
    /// Labels that begin at a random one and rest for `hold`.
    pub(crate) fn new(random: &mut Random, hold: Duration) -> Self {
        let span = u64::from(Label::MAX.0 - Label::FIRST_FREE.0);
        let start = u32::try_from(random.below(span)).unwrap_or(0);
        Self {
            next: Label::FIRST_FREE.0 + start,
            hold,
            used: BTreeMap::new(),
            resting: BTreeSet::new(),
            until: VecDeque::new(),
        }
    }

    /// Gives a label; `None` if all are in use.
    pub(crate) fn give(&mut self, now: Duration, owner: LabelOwner) -> Option<Label> {
        if self.used.len() >= LABELS_MAX {
            return None;
        }
        while self.until.front().is_some_and(|&(until, _)| until <= now) {
            self.wake();
        }
        // There are more labels than can be in use or at rest, so this ends.
        loop {
            let label = Label(self.next);
            self.next = if label == Label::MAX { Label::FIRST_FREE.0 } else { self.next + 1 };
            if !self.used.contains_key(&label) && !self.resting.contains(&label) {
                self.used.insert(label, owner);
                return Some(label);
            }
        }
    }

    /// Takes a label back; it rests before it is given again.
    pub(crate) fn take_back(&mut self, now: Duration, label: Label) {
        if self.used.remove(&label).is_none() {
            return;
        }
        if self.until.len() >= RESTING_MAX {
            self.wake();
        }
        self.resting.insert(label);
        self.until.push_back((now + self.hold, label));
    }

    fn wake(&mut self) {
        if let Some((_, label)) = self.until.pop_front() {
            self.resting.remove(&label);
        }
    }

    /// The path that has a label.
    pub(crate) fn owner(&self, label: Label) -> Option<(PathId, LabelDirection)> {
        match *self.used.get(&label)? {
            LabelOwner::Path(path, direction) => Some((path, direction)),
            LabelOwner::Bypass => None,
        }
    }

    /// Whether a label is in use.
    pub(crate) fn is_used(&self, label: Label) -> bool {
        self.used.contains_key(&label)
    }

    /// Labels in use.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Label> {
        self.used.keys().copied()
    }
}
