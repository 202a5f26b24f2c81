//! Searches in the background: for better paths, and for a backup that shares no relay with the primary.
//!
//! Where a path is long, most of the mesh is far from it, and a better path or a backup is most often near:
//! such a search is passed on near the present path only (query localization, Castañeda and Das 1999). All
//! nodes pass it on where that finds no backup, once after each loss; when a link comes back; and at the
//! longest interval.

use super::MeshNode;
use super::discovery::{PATHS_OFFERED, RouteQuery};
use super::ends::{metric, shared};
use crate::edge::{MeshEvent, MeshOutput, PathClass, PathRole};
use crate::identity::NodeId;
use crate::message::RequestRelays;
use core::time::Duration;

/// From a request to the choice among the paths that it finds.
const CONSIDER: Duration = Duration::from_millis(250);

/// The interval of background searches doubles this often.
const BACKOFF_MAX: u32 = 3;

/// Relays of a path at the most around which all nodes within its length pass a search on: as far as the first
/// ring of a search reaches.
const SHORT_MAX: u8 = super::ends::FIRST_RING;

/// Paths that a search for better ones near a long path asks for: one, and one to share least with it.
const NEAR_PATHS: u8 = 2;

/// A path must cost less than this share of the present one (in tenths) to replace it.
const SIGNIFICANT: u32 = 8;

/// The same for the first choice, when few packets have taken the path yet: the path of a request that only
/// elected nodes have passed on is often one or two relays longer than need be.
const SIGNIFICANT_FIRST: u32 = 10;

/// Background searches in a row that must find it better.
const TIMES_BETTER: u8 = 2;

/// The last search for a backup that shares no relay with the primary.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum BackupSearch {
    /// None was made since the last search for paths.
    None,
    /// One near the primary.
    Near,
    /// One in the whole mesh.
    Whole,
}

/// The choice among the paths found so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Consideration {
    pub(super) at: Duration,
    background: bool,
    backup: BackupSearch,
    /// Whether this end searches for a backup; the other end only compares.
    searches: bool,
}

impl Consideration {
    /// The choice after the first path of a search, whose request asked for `paths`: at once if no others
    /// follow.
    pub(super) fn first(now: Duration, paths: u8) -> Self {
        let at = if paths > 1 { now + CONSIDER } else { now };
        Self { at, background: false, backup: BackupSearch::None, searches: true }
    }

    /// The choice at the end that has not searched, after the first path that it learns or a later one.
    pub(super) fn learnt(now: Duration, is_first: bool) -> Self {
        let (at, backup) = (now + CONSIDER, BackupSearch::None);
        Self { at, background: !is_first, backup, searches: false }
    }

    /// Whether this end has searched.
    pub(super) const fn searches(&self) -> bool {
        self.searches
    }
}

impl MeshNode {
    /// Searches for better paths in the background, less often each time.
    pub(super) fn optimise(&mut self, now: Duration, destination: NodeId) {
        let base = self.settings.optimise_interval;
        let jitter = self.random.time_below(base / 4);
        let longest = self.longest(destination);
        let primary = self.primary_relays(destination);
        let Some(known) = self.destinations.get_mut(&destination) else { return };
        let is_back = core::mem::take(&mut known.link_is_back);
        let is_idle = now.saturating_sub(known.used_at) >= self.settings.path_idle;
        if is_idle && !is_back && known.backoff >= BACKOFF_MAX {
            // Only connections hold it, and what they need has been searched.
            known.optimise_at = Some(now + base * 2_u32.pow(BACKOFF_MAX) + jitter);
            return;
        }
        let is_whole = is_back || known.backoff >= BACKOFF_MAX;
        known.may_search_whole |= is_whole;
        known.optimise_at = Some(now + base * 2_u32.pow(known.backoff) + jitter);
        known.backoff = BACKOFF_MAX.min(known.backoff + 1);
        let (at, backup) = (now + CONSIDER, BackupSearch::None);
        known.consideration = Some(Consideration { at, background: true, backup, searches: true });
        let mut query = self.in_background(destination, longest.saturating_add(3), longest);
        if is_back {
            // A path over the link need not be the first that is found.
            query.paths = PATHS_OFFERED;
        }
        let is_near = longest > SHORT_MAX && !is_whole && !self.is_classic();
        self.ask(
            now,
            match primary.filter(|_| is_near) {
                Some(listed) => {
                    let (paths, relays) = (NEAR_PATHS, RequestRelays::Near);
                    RouteQuery { paths, relays, listed, ..query }
                }
                None => query,
            },
        );
    }

    /// Makes a path the primary that is significantly better, and searches for a disjoint backup.
    pub(super) fn consider(&mut self, now: Duration, destination: NodeId) {
        let Some(known) = self.destinations.get_mut(&destination) else { return };
        let Some(consideration) = known.consideration.take() else { return };
        for class in PathClass::ALL {
            self.improve(destination, class, consideration.background);
        }
        self.choose(now, destination);
        if !consideration.searches {
            self.compare_again(now, destination);
            return;
        }
        if self.is_classic() || self.is_covered(destination) {
            return;
        }
        let Some(relays) = self.primary_relays(destination).filter(|relays| !relays.is_empty())
        else {
            return;
        };
        let longest = self.longest(destination);
        let Some(known) = self.destinations.get_mut(&destination) else { return };
        let backup = match consideration.backup {
            BackupSearch::None if longest > SHORT_MAX => BackupSearch::Near,
            BackupSearch::None => BackupSearch::Whole,
            BackupSearch::Near if core::mem::take(&mut known.may_search_whole) => {
                BackupSearch::Whole
            }
            BackupSearch::Near | BackupSearch::Whole => return,
        };
        known.consideration = Some(Consideration { at: now + CONSIDER, backup, ..consideration });
        let hops_left = longest.saturating_mul(2).saturating_add(4);
        let query = self.in_background(destination, hops_left, longest);
        let query = RouteQuery { avoids: true, listed: relays, ..query };
        let relays = match backup {
            BackupSearch::Near => RequestRelays::Near,
            _ => RequestRelays::All,
        };
        self.ask(now, RouteQuery { relays, ..query });
    }

    /// Where a path was better for the first time, compares again after the interval in which the other end
    /// searches, which may have found others by then.
    fn compare_again(&mut self, now: Duration, destination: NodeId) {
        let at = now + self.settings.optimise_interval;
        let Some(known) = self.destinations.get_mut(&destination) else { return };
        if known.better.iter().any(Option::is_some) {
            let again =
                Consideration { at, background: true, backup: BackupSearch::None, searches: false };
            known.consideration.get_or_insert(again);
        }
    }

    /// A query for other paths to a destination that has one: all nodes relay it. Where the longest path is
    /// long, one copy passes each node, and one path is found.
    fn in_background(&self, target: NodeId, hops_left: u8, longest: u8) -> RouteQuery {
        let is_one = longest > SHORT_MAX && !self.is_classic();
        RouteQuery {
            target,
            attempt: 0,
            hops_left,
            background: true,
            paths: if is_one { 1 } else { PATHS_OFFERED },
            relays: RequestRelays::All,
            avoids: false,
            listed: Vec::new(),
        }
    }

    /// Whether the primary of bulk traffic has a backup that shares no relay with it.
    fn is_covered(&self, destination: NodeId) -> bool {
        let known = self.destinations.get(&destination);
        let chosen =
            known.and_then(|known| known.chosen.get(usize::from(PathClass::BULK.number())));
        let both = chosen.and_then(|chosen| Some((chosen.primary?.0, chosen.backup?.0)));
        let both = both.and_then(|(a, b)| Some((self.segments.get(&a)?, self.segments.get(&b)?)));
        both.is_some_and(|(primary, backup)| shared(primary, backup) == 0)
    }

    /// The relays of the primary of bulk traffic, and the node behind which the destination is, if it is a
    /// station.
    fn primary_relays(&self, destination: NodeId) -> Option<Vec<NodeId>> {
        let known = self.destinations.get(&destination)?;
        let (path, _) = known.primary(PathClass::BULK)?;
        let mut relays = self.segments.get(&path)?.relays.clone();
        // A path that the destination has searched starts there.
        let end = if path.origin == self.settings.id { path.target } else { path.origin };
        relays.extend((end != destination && !relays.is_empty()).then_some(end));
        Some(relays)
    }

    /// Relays of the longest path to a destination.
    pub(super) fn longest(&self, destination: NodeId) -> u8 {
        let paths = self.destinations.get(&destination).map(|known| known.paths.as_slice());
        let relays = paths.unwrap_or_default().iter().filter_map(|path| self.relays(*path));
        u8::try_from(relays.map(<[NodeId]>::len).max().unwrap_or(0)).unwrap_or(u8::MAX)
    }

    /// Makes a path the primary of a class that costs significantly less.
    fn improve(&mut self, destination: NodeId, class: PathClass, background: bool) {
        let index = usize::from(class.number());
        let usable = self.usable(destination, class);
        let Some(known) = self.destinations.get(&destination) else { return };
        let Some((present, _)) = known.primary(class) else { return };
        let Some(now_costs) = self.segments.get(&present).map(|s| metric(s, class)) else { return };
        let is_first = !background && !self.is_classic();
        let significant = if is_first { SIGNIFICANT_FIRST } else { SIGNIFICANT };
        let candidate = usable.first().filter(|&&(metric, path)| {
            path != present && metric.saturating_mul(10) < now_costs.saturating_mul(significant)
        });
        let path = candidate.map(|&(_, path)| path);
        let hop = path.and_then(|path| self.first_hop(path));
        let Some(known) = self.destinations.get_mut(&destination) else { return };
        let Some(better) = known.better.get_mut(index) else { return };
        let (Some(path), Some(hop)) = (path, hop) else {
            *better = None;
            return;
        };
        let times = match *better {
            Some((known, times)) if known == path => times + 1,
            _ => 1,
        };
        *better = Some((path, times));
        // A better path is worth another look soon.
        known.backoff = 0;
        if background && times < TIMES_BETTER {
            return;
        }
        *better = None;
        // `choose` keeps a primary that can be used: this one from now on.
        let old = known.chosen;
        if let Some(chosen) = known.chosen.get_mut(index) {
            chosen.primary = Some((path, hop));
        }
        let new = known.chosen;
        let frame_limit = self.segments.get(&path).map_or(0, |segment| segment.frame_limit);
        if old != new {
            let role = PathRole::Primary;
            self.output(MeshOutput::InstallPath {
                destination,
                class,
                role,
                path,
                hop,
                frame_limit,
            });
            self.output(MeshOutput::Event(MeshEvent::Switched { destination, class, path }));
        }
    }
}
