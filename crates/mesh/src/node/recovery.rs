//! Links that come back: the node before such a link tells the origins of the paths that it has ended,
//! and they search for a path over it at once. How often a link is lost decides how long it must be up
//! before that, so a link that flaps causes no floods.

use super::MeshNode;
use super::establish::{Awaited, RecordPlace};
use crate::edge::Adjacency;
use crate::identity::{NodeId, PathId};
use crate::message::{LinkBack, Message};
use crate::neighbour::Neighbour;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

/// Lost links that are remembered.
const LOST_LINKS_MAX: usize = 64;

/// Paths lost with one link that are remembered.
const LOST_PATHS_MAX: usize = 64;

/// How long they are remembered.
const LOST_LIFE: Duration = Duration::from_mins(10);

/// How long a neighbour must be up before its link counts as back; each loss doubles it this often.
const HOLD: Duration = Duration::from_millis(500);
const LOSSES_MAX: u32 = 6;

/// Time between two losses that makes one loss forgotten.
const LOSS_LIFE: Duration = Duration::from_secs(10);

/// LINK BACKs that are passed on in a second.
const PASSED_PER_SECOND: u32 = 100;

/// Between the searches of this node for different destinations: no more than what relays pass on of
/// one origin.
const SEEK_INTERVAL: Duration = Duration::from_millis(100);

/// A path that this node has ended, and the relays from its origin to this node.
#[derive(Clone, Debug)]
struct LostPath {
    path: PathId,
    record: Vec<NodeId>,
}

/// A link to a neighbour that was lost.
#[derive(Clone, Debug)]
struct LostLink {
    paths: VecDeque<LostPath>,
    lost_at: Duration,
    /// How often the hold time doubles.
    losses: u32,
    /// When the link counts as back, if its neighbour is up.
    back_at: Option<Duration>,
}

impl LostLink {
    /// Counts a loss.
    fn lose(&mut self, now: Duration) {
        let rest = now.saturating_sub(self.lost_at).as_millis() / LOSS_LIFE.as_millis();
        let forgotten = u32::try_from(rest).unwrap_or(u32::MAX);
        self.losses = LOSSES_MAX.min(self.losses.saturating_sub(forgotten) + 1);
        self.lost_at = now;
        self.back_at = None;
    }

    fn hold(&self) -> Duration {
        HOLD * 2_u32.pow(self.losses)
    }
}

/// Links that were lost and may come back.
#[derive(Clone, Debug, Default)]
pub(super) struct Recovery {
    links: BTreeMap<Adjacency, LostLink>,
    /// A second, and the messages passed on in it.
    passed: (Duration, u32),
    /// When the next search because of a link may be made.
    seek_at: Duration,
}

impl Recovery {
    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        self.links.values().filter_map(|link| link.back_at).min()
    }

    /// A neighbour is up: its link is back when the hold time is over.
    pub(super) fn neighbour_up(&mut self, now: Duration, adjacency: Adjacency) {
        let Some(link) = self.links.get_mut(&adjacency) else { return };
        if now.saturating_sub(link.lost_at) >= LOST_LIFE {
            self.links.remove(&adjacency);
        } else if !link.paths.is_empty() {
            link.back_at = Some(now + link.hold());
        }
    }

    /// The link's entry; `true` if another one had to give way.
    fn entry(&mut self, now: Duration, adjacency: Adjacency) -> (&mut LostLink, bool) {
        let full = self.links.len() >= LOST_LINKS_MAX && !self.links.contains_key(&adjacency);
        if full {
            let oldest = self.links.iter().min_by_key(|(_, link)| link.lost_at);
            if let Some(oldest) = oldest.map(|(&at, _)| at) {
                self.links.remove(&oldest);
            }
        }
        let new = LostLink { paths: VecDeque::new(), lost_at: now, losses: 0, back_at: None };
        (self.links.entry(adjacency).or_insert(new), full)
    }

    /// The links whose hold time is over.
    fn due(&mut self, now: Duration) -> Vec<Adjacency> {
        let due = self.links.iter_mut().filter_map(|(&at, link)| {
            link.back_at.filter(|&back| back <= now)?;
            link.back_at = None;
            Some(at)
        });
        due.collect()
    }

    /// The time of the next search because of a link.
    pub(super) fn seek_at(&mut self, now: Duration) -> Duration {
        let at = self.seek_at.max(now);
        self.seek_at = at + SEEK_INTERVAL;
        at
    }

    fn may_pass(&mut self, now: Duration) -> bool {
        let (since, count) = &mut self.passed;
        if now.saturating_sub(*since) >= Duration::from_secs(1) {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        *count <= PASSED_PER_SECOND
    }
}

impl MeshNode {
    /// A neighbour that was up is lost.
    pub(super) fn link_lost(&mut self, now: Duration, adjacency: Adjacency) {
        if let Some(link) = self.recovery.links.get_mut(&adjacency) {
            link.lose(now);
        }
    }

    /// Remembers a path that ends because of the link to a neighbour, if that is on its target's side.
    pub(super) fn remember_lost(&mut self, now: Duration, adjacency: Adjacency, path: PathId) {
        let own = self.settings.id;
        let Some(segment) = self.segments.get(&path) else { return };
        let behind = segment.downstream.as_ref().is_some_and(|side| side.adjacency == adjacency);
        if self.is_classic() || !behind {
            return;
        }
        let record = segment.relays.iter().copied().take_while(|&relay| relay != own);
        let record = if path.origin == own { Vec::new() } else { record.collect() };
        let (link, mut full) = self.recovery.entry(now, adjacency);
        if link.paths.len() >= LOST_PATHS_MAX {
            link.paths.pop_front();
            full = true;
        }
        link.paths.push_back(LostPath { path, record });
        self.counters.table_full += u64::from(full);
    }

    /// Tells the origins of lost paths that a link is back.
    pub(super) fn tick_recovery(&mut self, now: Duration) {
        for adjacency in self.recovery.due(now) {
            let near = self.near.all.get(&adjacency);
            let Some(link) = self.recovery.links.get_mut(&adjacency) else { continue };
            if !near.is_some_and(Neighbour::is_usable) {
                // It is heard and does not hear this node. Its loss would set the time anew.
                link.losses = LOSSES_MAX.min(link.losses + 1);
                link.back_at = near.filter(|near| near.up).map(|_| now + link.hold());
                continue;
            }
            for lost in core::mem::take(&mut link.paths) {
                self.tell_back(now, lost);
            }
        }
    }

    fn tell_back(&mut self, now: Duration, lost: LostPath) {
        let LostPath { path, record } = lost;
        let reporter = self.settings.id;
        if path.origin == reporter {
            self.seek_again(now, path, reporter);
            return;
        }
        let previous = record.last().copied().unwrap_or(path.origin);
        let Some(to) = self.near.best(previous) else { return };
        let position = u8::try_from(record.len()).unwrap_or(u8::MAX);
        self.counters.links_back += 1;
        let back = LinkBack { path, reporter, position, record };
        self.send_reliably(now, to, &Message::LinkBack(back), Awaited::Nothing);
    }

    /// Processes a LINK BACK: passes it on, or searches.
    pub(super) fn link_back(&mut self, now: Duration, from: Adjacency, mut back: LinkBack) {
        let ends = (back.path.origin, back.reporter);
        match self.place(from, ends, &back.record, back.position) {
            None => self.counters.malformed += 1,
            Some(RecordPlace::Origin) => self.seek_again(now, back.path, back.reporter),
            Some(RecordPlace::Relay(_)) if !self.recovery.may_pass(now) => {
                self.counters.links_back_limited += 1;
            }
            Some(RecordPlace::Relay(to)) => {
                back.position = back.position.saturating_sub(1);
                self.send_reliably(now, to, &Message::LinkBack(back), Awaited::Nothing);
            }
        }
    }
}
