//! The ends of paths: destinations, the packets that wait for them, and which path carries what.

use super::background::Consideration;
use super::connections::Connections;
use super::discovery::{PATHS_OFFERED, RouteQuery};
use super::{MeshNode, WaitingPacket};
use crate::edge::{CLASSES, LabelledHop, MeshEvent, MeshOutput, PathClass, PathRole};
use crate::identity::{NodeId, PathId, Reason};
use crate::message::RequestRelays;
use crate::segment::Segment;
use core::time::Duration;
use std::collections::VecDeque;

/// Destinations at the most.
const DESTINATIONS_MAX: usize = 1_024;

/// Packets that wait for one destination, and octets that wait for all.
const WAITING_MAX: usize = 16;
const WAITING_OCTETS_MAX: usize = 512 << 10;

/// Paths to one destination that are kept, and those of which one is long: each link of a path is monitored.
const PATHS_MAX: usize = 4;
const LONG_PATHS_MAX: usize = 2;

/// A ring of a search.
#[derive(Clone, Copy, Debug)]
struct SearchRing {
    /// Relays that the request may pass.
    hops: u8,
    /// Time until the next ring.
    wait: Duration,
    /// Paths that it asks for, and so copies that a relay passes on.
    paths: u8,
    relays: RequestRelays,
}

impl SearchRing {
    const fn new(hops: u8, wait_ms: u64, paths: u8, relays: RequestRelays) -> Self {
        Self { hops, wait: Duration::from_millis(wait_ms), paths, relays }
    }
}

/// Relays that the first ring of a search may pass.
pub(super) const FIRST_RING: u8 = 4;

/// The expanding ring (RFC 3561 §6.4). The first ring holds the paper's networks, so that their first packet
/// waits for one round trip only, and finds the backups, too. The larger ones find one path, as every further
/// copy costs as much as the mesh has links; backups are searched near it then. The last one reaches nodes
/// that an election among changed neighbours has left out.
const RINGS: [SearchRing; 4] = [
    SearchRing::new(FIRST_RING, 80, PATHS_OFFERED, RequestRelays::All),
    SearchRing::new(10, 200, 1, RequestRelays::All),
    SearchRing::new(32, 500, 1, RequestRelays::Elected),
    SearchRing::new(32, 1_000, 1, RequestRelays::All),
];

/// How long a target waits for the labels of a path that it has offered.
const EXPECT: Duration = Duration::from_millis(400);

/// From the loss of a path to the search for a new backup.
const REPAIR: Duration = Duration::from_millis(500);

/// A path that was used this lately is searched anew when it is lost.
const IN_USE: Duration = Duration::from_secs(5);

/// Lost paths to one destination whose links may come back.
const LOST_MAX: usize = 8;

/// From a link's return to the search: a random time below this, as other origins search, too.
const SEEK_JITTER: Duration = Duration::from_millis(100);

/// Between two such searches for one destination; it doubles this often, and is forgotten after a
/// while without any.
const SEEK_GAP: Duration = Duration::from_secs(1);
const SEEK_DOUBLED_MAX: u32 = 5;
const SEEK_REST: Duration = Duration::from_mins(1);

/// A search for paths.
#[derive(Clone, Copy, Debug)]
struct Search {
    ring: usize,
    /// Paths that the request has asked for.
    paths: u8,
    retry_at: Duration,
}

/// The link at which a path was lost: between two nodes that follow each other on it.
#[derive(Clone, Copy, Debug)]
struct LostHop {
    path: PathId,
    before: NodeId,
    beyond: NodeId,
}

/// The node behind another one on a path.
fn beyond(path: PathId, relays: &[NodeId], before: NodeId) -> Option<NodeId> {
    let mut nodes = [path.origin].into_iter().chain(relays.iter().copied()).chain([path.target]);
    nodes.find(|&node| node == before)?;
    nodes.next()
}

/// The paths of one class.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Chosen {
    pub(super) primary: Option<(PathId, LabelledHop)>,
    pub(super) backup: Option<(PathId, LabelledHop)>,
    /// Whether flows are spread over both.
    spreads: bool,
}

/// A destination of this node's packets.
#[derive(Clone, Debug)]
pub(super) struct Destination {
    pub(super) paths: Vec<PathId>,
    pub(super) chosen: [Chosen; CLASSES],
    pub(super) better: [Option<(PathId, u8)>; CLASSES],
    waiting: VecDeque<WaitingPacket>,
    search: Option<Search>,
    expected_until: Option<Duration>,
    /// Paths whose relays do not have all labels of this direction yet.
    deferred: Vec<(Duration, PathId)>,
    pub(super) consideration: Option<Consideration>,
    pub(super) optimise_at: Option<Duration>,
    pub(super) backoff: u32,
    /// Whether a link of a lost path has come back, and no search has followed yet.
    pub(super) link_is_back: bool,
    /// Whether a backup that is not found near the primary may be searched in the whole mesh.
    pub(super) may_search_whole: bool,
    pub(super) used_at: Duration,
    pub(super) probed_at: Duration,
    pub(super) connections: Connections,
    /// Where paths were lost, the latest last.
    lost: VecDeque<LostHop>,
    /// The last search for a link that came back, and how often the time to the next one doubles.
    sought: Option<(Duration, u32)>,
}

impl Destination {
    fn new(now: Duration) -> Self {
        Self {
            paths: Vec::new(),
            chosen: [Chosen::default(); CLASSES],
            better: [None; CLASSES],
            waiting: VecDeque::new(),
            search: None,
            expected_until: None,
            deferred: Vec::new(),
            consideration: None,
            optimise_at: None,
            backoff: 0,
            link_is_back: false,
            may_search_whole: true,
            used_at: now,
            probed_at: now,
            connections: Connections::default(),
            lost: VecDeque::new(),
            sought: None,
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        let search = self.search.map(|search| search.retry_at);
        let consideration = self.consideration.map(|consideration| consideration.at);
        let times = [search, self.expected_until, consideration, self.optimise_at];
        let deferred = self.deferred.iter().map(|&(at, _)| at);
        times.into_iter().flatten().chain(deferred).min()
    }

    /// Whether paths are searched anew when they are lost.
    fn is_in_use(&self, now: Duration) -> bool {
        now.saturating_sub(self.used_at) < IN_USE || self.connections.hold(now)
    }

    /// A path was lost: a search in the background follows soon, if this end is to make one.
    fn replace_soon(&mut self, now: Duration, searches: bool) {
        self.backoff = 0;
        self.may_search_whole = true;
        if searches {
            let soon = now + REPAIR;
            self.optimise_at = Some(self.optimise_at.map_or(soon, |at| at.min(soon)));
        }
    }

    pub(super) fn primary(&self, class: PathClass) -> Option<(PathId, LabelledHop)> {
        self.chosen.get(usize::from(class.number())).and_then(|chosen| chosen.primary)
    }
}

/// What a class minimises.
pub(super) fn metric(segment: &Segment, class: PathClass) -> u32 {
    if class == PathClass::BOUNDED_DELAY {
        u32::from(segment.delay_us)
    } else {
        u32::from(segment.cost)
    }
}

/// Relays that two paths share.
pub(super) fn shared(a: &Segment, b: &Segment) -> usize {
    a.relays.iter().filter(|relay| b.relays.contains(relay)).count()
}

impl MeshNode {
    /// A packet for a destination without an installed path, or just before it was installed.
    pub(super) fn packet(
        &mut self,
        now: Duration,
        destination: NodeId,
        class: PathClass,
        packet: &[u8],
    ) {
        if destination == self.settings.id || !self.know(now, destination) {
            self.counters.buffer_full += 1;
            return;
        }
        let octets: usize = self
            .destinations
            .values()
            .flat_map(|known| &known.waiting)
            .map(|waiting| waiting.packet.len())
            .sum();
        let Some(known) = self.destinations.get_mut(&destination) else { return };
        known.used_at = now;
        if let Some((_, hop)) = known.primary(class) {
            self.outputs.push_back(MeshOutput::SendPacket { hop, packet: packet.to_vec() });
            return;
        }
        if known.waiting.len() >= WAITING_MAX || octets + packet.len() > WAITING_OCTETS_MAX {
            self.counters.buffer_full += 1;
        } else {
            known.waiting.push_back(WaitingPacket { class, packet: packet.to_vec() });
        }
        if known.search.is_none() && known.expected_until.is_none() {
            self.search(now, destination, 0);
        }
    }

    /// Searches a path to a destination, unless there is one or it is being searched; `false` if the
    /// destination is this node or there is no room for it.
    pub(super) fn want_path(
        &mut self,
        now: Duration,
        destination: NodeId,
        class: PathClass,
    ) -> bool {
        if destination == self.settings.id || !self.know(now, destination) {
            return false;
        }
        let Some(known) = self.destinations.get_mut(&destination) else { return false };
        known.used_at = now;
        let idle = known.search.is_none() && known.expected_until.is_none();
        if idle && known.primary(class).is_none() {
            self.search(now, destination, 0);
        }
        true
    }

    /// First hop of the path that carries packets of a class to a destination.
    pub(super) fn primary_hop(&self, destination: NodeId, class: PathClass) -> Option<LabelledHop> {
        self.destinations.get(&destination)?.primary(class).map(|(_, hop)| hop)
    }

    /// Adds a destination; `false` if there is no room.
    fn know(&mut self, now: Duration, destination: NodeId) -> bool {
        if !self.destinations.contains_key(&destination) {
            if self.destinations.len() >= DESTINATIONS_MAX {
                self.counters.table_full += 1;
                return false;
            }
            let mut known = Destination::new(now);
            known.connections.own = self.connected.contains(&destination);
            self.destinations.insert(destination, known);
            self.schedule_sweep(now);
        }
        true
    }

    fn search(&mut self, now: Duration, destination: NodeId, ring: usize) {
        let Some(mut request) = RINGS.get(ring).copied() else {
            return self.unreachable(now, destination);
        };
        if self.is_classic() {
            (request.paths, request.relays) = (PATHS_OFFERED, RequestRelays::All);
        }
        if let Some(known) = self.destinations.get_mut(&destination) {
            known.search =
                Some(Search { ring, paths: request.paths, retry_at: now + request.wait });
            known.expected_until = None;
        }
        let query = RouteQuery {
            target: destination,
            attempt: ring,
            hops_left: request.hops,
            background: false,
            paths: request.paths,
            relays: request.relays,
            avoids: false,
            listed: Vec::new(),
        };
        self.ask(now, query);
    }

    fn unreachable(&mut self, now: Duration, destination: NodeId) {
        let Some(known) = self.destinations.get_mut(&destination) else { return };
        known.search = None;
        if known.chosen.iter().any(|chosen| chosen.primary.is_some()) {
            // A path that goes around a lost link still carries its packets.
            return;
        }
        let dropped = u16::try_from(known.waiting.len()).unwrap_or(u16::MAX);
        known.waiting.clear();
        self.counters.unreachable += 1;
        self.bridge.not_found(now, destination);
        self.output(MeshOutput::Event(MeshEvent::Unreachable { destination, dropped }));
        self.lose_echoes(destination);
    }

    /// A path to a destination is being established from its side: packets wait for it.
    pub(super) fn expect_path(&mut self, now: Duration, destination: NodeId) {
        if self.is_classic() || !self.know(now, destination) {
            return;
        }
        if let Some(known) = self.destinations.get_mut(&destination)
            && known.paths.is_empty()
            && known.search.is_none()
        {
            known.expected_until = Some(now + EXPECT);
        }
    }

    /// Uses a path from a time on.
    pub(super) fn defer(&mut self, now: Duration, at: Duration, peer: NodeId, path: PathId) {
        if self.know(now, peer)
            && let Some(known) = self.destinations.get_mut(&peer)
            && known.deferred.len() < PATHS_MAX * 2
        {
            known.deferred.push((at, path));
        }
    }

    /// Uses the deferred paths that are due.
    fn undefer(&mut self, now: Duration, destination: NodeId) {
        let Some(known) = self.destinations.get_mut(&destination) else { return };
        let due: Vec<PathId> =
            known.deferred.extract_if(.., |(at, _)| *at <= now).map(|(_, path)| path).collect();
        for path in due {
            if self.first_hop(path).is_some() {
                self.path_ready(now, destination, path);
            }
        }
    }

    /// Adds a path to its destination; `false` if it is there, or there is no room.
    pub(super) fn add_path(&mut self, now: Duration, destination: NodeId, path: PathId) -> bool {
        if !self.know(now, destination) {
            return false;
        }
        let base = self.settings.optimise_interval;
        let jitter = self.random.time_below(base / 4);
        let is_classic = self.is_classic();
        let Some(known) = self.destinations.get_mut(&destination) else { return false };
        let search = known.search.take();
        known.expected_until = None;
        if known.paths.contains(&path) {
            return false;
        }
        let is_first = known.paths.is_empty();
        known.paths.push(path);
        // Only the end that has searched optimises; the other learns the path from the reply, and compares.
        if path.origin == self.settings.id {
            let paths = search.map_or(PATHS_OFFERED, |search| search.paths);
            let searching = known.consideration.filter(Consideration::searches);
            let first = || Consideration::first(now, paths);
            known.consideration = Some(searching.unwrap_or_else(first));
            known.optimise_at.get_or_insert(now + base + jitter);
        } else if !is_classic {
            known.consideration.get_or_insert(Consideration::learnt(now, is_first));
        }
        true
    }

    /// First hop of a path for packets of this end; `None` if it cannot be used.
    pub(super) fn first_hop(&self, path: PathId) -> Option<LabelledHop> {
        let segment = self.segments.get(&path)?;
        let side = if path.origin == self.settings.id {
            segment.downstream.as_ref()?
        } else {
            segment.upstream.as_ref()?
        };
        let up = self.near.all.get(&side.adjacency).is_some_and(|neighbour| neighbour.up);
        if up && side.lost.is_none() {
            Some(self.labelled(side.adjacency, side.expected?))
        } else {
            None
        }
    }

    /// Paths of a destination that can be used, with what a class minimises, the best first. Those that go
    /// around a lost link are among them only if there are no others.
    pub(super) fn usable(&self, destination: NodeId, class: PathClass) -> Vec<(u32, PathId)> {
        let paths = self.destinations.get(&destination).map(|known| known.paths.as_slice());
        let mut usable: Vec<(u32, PathId)> = (paths.unwrap_or_default().iter())
            .filter(|&&path| self.first_hop(path).is_some())
            .filter_map(|&path| Some((metric(self.segments.get(&path)?, class), path)))
            .collect();
        if !usable.iter().all(|&(_, path)| self.goes_around_a_link(path)) {
            usable.retain(|&(_, path)| !self.goes_around_a_link(path));
        }
        usable.sort_unstable();
        usable
    }

    /// The usable path that shares least with `primary`, and then costs least.
    pub(super) fn backup(&self, primary: PathId, usable: &[(u32, PathId)]) -> Option<PathId> {
        let own = self.segments.get(&primary)?;
        let others = usable.iter().filter(|&&(_, path)| path != primary);
        let ranked = others.filter_map(|&(metric, path)| {
            let other = self.segments.get(&path)?;
            let same_hop =
                own.sides().map(|side| side.adjacency).eq(other.sides().map(|side| side.adjacency));
            Some((shared(own, other), same_hop, metric, path))
        });
        ranked.min().map(|(.., path)| path)
    }

    /// Chooses primary and backup of each class: a primary that can be used stays.
    pub(super) fn choose(&mut self, now: Duration, destination: NodeId) {
        let Some(known) = self.destinations.get(&destination) else { return };
        let before = known.chosen;
        let mut chosen = [Chosen::default(); CLASSES];
        let mut taken = Vec::new();
        for (class, (chosen, before)) in
            PathClass::ALL.into_iter().zip(chosen.iter_mut().zip(before))
        {
            let usable = self.usable(destination, class);
            let is_usable = |path: PathId| usable.iter().any(|&(_, other)| other == path);
            let present = before.primary.map(|(path, _)| path).filter(|&path| is_usable(path));
            let mut primary = present.or(usable.first().map(|&(_, path)| path));
            if class == PathClass::BACKGROUND {
                primary = self.apart(&taken, &usable).or(primary);
            }
            let backup = primary.and_then(|primary| self.backup(primary, &usable));
            let with_hop = |path: Option<PathId>| path.and_then(|p| Some((p, self.first_hop(p)?)));
            let both = primary.zip(backup);
            let spreads = both.is_some_and(|both| self.are_equal(class, both));
            *chosen = Chosen { primary: with_hop(primary), backup: with_hop(backup), spreads };
            if class == PathClass::BULK {
                taken = primary.into_iter().chain(backup.filter(|_| spreads)).collect();
            }
        }
        self.publish(now, destination, &before, &chosen);
    }

    /// Tells the data path what has changed.
    fn publish(
        &mut self,
        now: Duration,
        destination: NodeId,
        before: &[Chosen; CLASSES],
        chosen: &[Chosen; CLASSES],
    ) {
        for ((class, old), new) in PathClass::ALL.into_iter().zip(before).zip(chosen) {
            let roles = [
                (PathRole::Primary, old.primary, new.primary),
                (PathRole::Backup, old.backup, new.backup),
            ];
            for (role, old, new) in roles {
                match (old, new) {
                    (old, new) if old == new => {}
                    (_, Some((path, hop))) => {
                        let frame_limit = self.segments.get(&path).map_or(0, |s| s.frame_limit);
                        self.output(MeshOutput::InstallPath {
                            destination,
                            class,
                            role,
                            path,
                            hop,
                            frame_limit,
                        });
                    }
                    (_, None) => self.output(MeshOutput::RemovePath { destination, class, role }),
                }
            }
            if old.spreads != new.spreads {
                let spreads = new.spreads;
                self.output(MeshOutput::SpreadPath { destination, class, spreads });
            }
            if let (Some((old, _)), Some((path, _))) = (old.primary, new.primary)
                && old != path
            {
                self.output(MeshOutput::Event(MeshEvent::Switched { destination, class, path }));
            }
        }
        if let Some(known) = self.destinations.get_mut(&destination) {
            known.chosen = *chosen;
        }
        self.schedule_sweep(now);
    }

    /// Sends the packets that waited for a path.
    pub(super) fn release(&mut self, now: Duration, destination: NodeId) {
        let Some(known) = self.destinations.get_mut(&destination) else { return };
        if !known.waiting.is_empty() {
            known.used_at = now;
        }
        let mut released = Vec::new();
        while let Some(waiting) = known.waiting.pop_front() {
            let Some((_, hop)) = known.primary(waiting.class) else {
                known.waiting.push_front(waiting);
                break;
            };
            released.push((hop, waiting.packet));
        }
        let packets = released.into_iter();
        self.outputs.extend(packets.map(|(hop, packet)| MeshOutput::SendPacket { hop, packet }));
        self.send_echoes(now, destination);
    }

    /// Paths of a destination that end at another node than `target`.
    pub(super) fn paths_elsewhere(&self, destination: NodeId, target: NodeId) -> Vec<PathId> {
        let known = self.destinations.get(&destination);
        let paths = known.map_or(&[][..], |known| known.paths.as_slice()).iter().copied();
        let leads = |path: &PathId| self.segments.get(path).is_some_and(|it| it.station.is_some());
        paths.filter(|path| path.target != target && leads(path)).collect()
    }

    /// A destination without a path has been announced: searches it if somebody wants it, also where an
    /// earlier search goes on.
    pub(super) fn seek_announced(&mut self, now: Duration, destination: NodeId) {
        let Some(known) = self.destinations.get(&destination) else { return };
        let in_use = known.is_in_use(now);
        if known.paths.is_empty() && (in_use || !known.waiting.is_empty()) {
            self.search(now, destination, 0);
        }
    }

    /// Whether an address is a node's to which there is a path.
    pub(super) fn is_a_node(&self, address: NodeId) -> bool {
        let known = self.destinations.get(&address);
        let ends = |path: &PathId| path.origin == address || path.target == address;
        known.is_some_and(|known| known.paths.iter().any(ends))
    }

    /// A path of this end was removed; it is no news that its link was lost where it went on around that.
    pub(super) fn path_lost(
        &mut self,
        now: Duration,
        destination: NodeId,
        path: PathId,
        (reason, is_news): (Reason, bool),
    ) {
        let Some(known) = self.destinations.get_mut(&destination) else { return };
        let Some(index) = known.paths.iter().position(|&other| other == path) else { return };
        known.paths.remove(index);
        let empty = known.paths.is_empty();
        let in_use = known.is_in_use(now);
        if reason != Reason::UNUSED {
            self.counters.paths_lost += 1;
            if is_news {
                known.replace_soon(now, path.origin == self.settings.id && !empty);
            }
            self.output(MeshOutput::Event(MeshEvent::PathLost { destination, path, reason }));
        }
        self.choose(now, destination);
        if empty && let Some(known) = self.destinations.get_mut(&destination) {
            known.consideration = None;
            known.optimise_at = None;
            let idle = known.search.is_none() && known.expected_until.is_none();
            let wanted = !known.waiting.is_empty() || (in_use && path.origin == self.settings.id);
            if reason != Reason::UNUSED && idle && wanted {
                self.search(now, destination, 0);
            }
        }
    }

    /// A relay leads a path of this end around a lost link: another one carries its packets from here on,
    /// or is searched while this one does.
    pub(super) fn replace_path(
        &mut self,
        now: Duration,
        (destination, path): (NodeId, PathId),
        relay: NodeId,
    ) {
        let own = self.settings.id;
        let known = self.destinations.get_mut(&destination);
        let Some(known) = known.filter(|known| known.paths.contains(&path)) else { return };
        let in_use = known.is_in_use(now);
        known.replace_soon(now, path.origin == own);
        self.output(MeshOutput::Event(MeshEvent::PathBypassed { destination, path, relay }));
        self.choose(now, destination);
        let Some(known) = self.destinations.get(&destination) else { return };
        let has_others = known.paths.iter().any(|&path| !self.goes_around_a_link(path));
        let idle = known.search.is_none() && known.expected_until.is_none();
        if path.origin == own && in_use && idle && !has_others {
            self.search(now, destination, 0);
        }
    }

    /// Remembers the link at which a path of this origin was lost.
    pub(super) fn remember_hop(
        &mut self,
        (destination, path): (NodeId, PathId),
        reporter: NodeId,
        relays: &[NodeId],
    ) {
        let own = self.settings.id;
        let Some(known) = self.destinations.get_mut(&destination) else { return };
        if path.origin != own || !known.paths.contains(&path) {
            return;
        }
        let Some(beyond) = beyond(path, relays, reporter) else { return };
        if known.lost.len() >= LOST_MAX {
            known.lost.pop_front();
        }
        known.lost.push_back(LostHop { path, before: reporter, beyond });
    }

    /// The link at which a path was lost works again: searches for paths that use it, unless one does.
    pub(super) fn seek_again(&mut self, now: Duration, path: PathId, reporter: NodeId) {
        let jitter = self.random.time_below(SEEK_JITTER);
        let is = |hop: &&LostHop| hop.path == path && hop.before == reporter;
        // The path's target, or a station behind it.
        let found = self.destinations.iter_mut().find_map(|(&destination, known)| {
            let hop = known.lost.iter().find(is).copied()?;
            Some((destination, known, hop))
        });
        let Some((destination, known, hop)) = found else {
            self.counters.links_back_ignored += 1;
            return;
        };
        // What else was lost there says the same.
        known.lost.retain(|lost| (lost.before, lost.beyond) != (hop.before, hop.beyond));
        let uses = |&path: &PathId| {
            let segment = self.segments.get(&path).filter(|it| it.bypassed_at.is_none());
            let relays = segment.map(|segment| segment.relays.as_slice());
            relays.and_then(|relays| beyond(path, relays, hop.before)) == Some(hop.beyond)
        };
        if known.paths.iter().any(uses) {
            self.counters.links_back_ignored += 1;
            return;
        }
        self.counters.links_back_followed += 1;
        if known.paths.is_empty() {
            let in_use = known.is_in_use(now);
            let idle = known.search.is_none() && known.expected_until.is_none();
            if idle && (in_use || !known.waiting.is_empty()) {
                self.search(now, destination, 0);
            }
            return;
        }
        let (gap, doubled) = match known.sought {
            Some((last, doubled)) if now.saturating_sub(last) < SEEK_REST => {
                let gap = SEEK_GAP * 2_u32.pow(doubled);
                ((last + gap).saturating_sub(now), SEEK_DOUBLED_MAX.min(doubled + 1))
            }
            _ => (Duration::ZERO, 0),
        };
        let at = self.recovery.seek_at(now).max(now + gap) + jitter;
        known.sought = Some((at, doubled));
        // The link may be far from the paths that there are.
        known.link_is_back = true;
        known.optimise_at = Some(known.optimise_at.map_or(at, |due| due.min(at)));
    }

    /// Takes what is due at all destinations.
    pub(super) fn tick_destinations(&mut self, now: Duration) {
        let due: Vec<NodeId> = (self.destinations.iter())
            .filter(|(_, known)| known.poll_timeout().is_some_and(|at| at <= now))
            .map(|(&destination, _)| destination)
            .collect();
        for destination in due {
            self.tick_destination(now, destination);
        }
    }

    fn tick_destination(&mut self, now: Duration, destination: NodeId) {
        self.undefer(now, destination);
        let Some(known) = self.destinations.get_mut(&destination) else { return };
        if known.expected_until.is_some_and(|at| at <= now) {
            known.expected_until = None;
            if !known.waiting.is_empty() && known.search.is_none() {
                self.search(now, destination, 0);
            }
        }
        let Some(known) = self.destinations.get_mut(&destination) else { return };
        if let Some(search) = known.search.filter(|search| search.retry_at <= now) {
            self.search(now, destination, search.ring + 1);
        }
        let Some(known) = self.destinations.get_mut(&destination) else { return };
        if known.consideration.is_some_and(|consideration| consideration.at <= now) {
            self.consider(now, destination);
        }
        let Some(known) = self.destinations.get(&destination) else { return };
        if known.optimise_at.is_some_and(|at| at <= now) {
            self.optimise(now, destination);
        }
    }

    /// Octets were sent over installed paths.
    pub(super) fn traffic(&mut self, now: Duration, destination: NodeId, octets: u64) {
        if let Some(known) = self.destinations.get_mut(&destination).filter(|_| octets > 0) {
            known.used_at = now;
        }
    }

    /// Octets arrived from a destination.
    pub(super) fn received_from(&mut self, now: Duration, peer: NodeId) {
        if let Some(known) = self.destinations.get_mut(&peer) {
            known.used_at = now;
        }
    }

    /// Removes idle destinations, keeps the paths of the others by probes, and tears superfluous
    /// paths.
    pub(super) fn sweep_destinations(&mut self, now: Duration) {
        let idle = self.settings.path_idle;
        let all: Vec<(NodeId, bool, bool)> = (self.destinations.iter())
            .map(|(&destination, known)| {
                let is_idle = now.saturating_sub(known.used_at) >= idle;
                // Without a path, or one whose link may come back, there is nothing to keep.
                let has_any = !(known.paths.is_empty() && known.lost.is_empty());
                let gone = is_idle && !(has_any && known.connections.hold(now));
                let probe = now.saturating_sub(known.probed_at) >= idle / 4;
                (destination, gone, probe)
            })
            .collect();
        for (destination, gone, probe) in all {
            if gone {
                self.forget(now, destination);
            } else {
                self.prune(now, destination);
                if probe {
                    self.probe(now, destination);
                }
            }
        }
    }

    /// Removes a destination with its paths and the packets that wait for it.
    pub(super) fn forget(&mut self, now: Duration, destination: NodeId) {
        let paths = self.destinations.get(&destination).map(|known| known.paths.clone());
        for path in paths.unwrap_or_default() {
            self.remove_path(now, path, Reason::UNUSED, None);
        }
        let dropped = self.destinations.remove(&destination).map_or(0, |known| known.waiting.len());
        self.counters.waiting_dropped += u64::try_from(dropped).unwrap_or(u64::MAX);
    }

    /// Tears the most expensive of superfluous paths; one a sweep, so that it is drained.
    fn prune(&mut self, now: Duration, destination: NodeId) {
        let Some(known) = self.destinations.get(&destination) else { return };
        let is_long = self.longest(destination) > FIRST_RING && !self.is_classic();
        let paths_max = if is_long { LONG_PATHS_MAX } else { PATHS_MAX };
        if known.paths.len() <= paths_max || known.consideration.is_some() {
            return;
        }
        let chosen = known.chosen.iter().flat_map(|chosen| [chosen.primary, chosen.backup]);
        let kept: Vec<PathId> = chosen.flatten().map(|(path, _)| path).collect();
        let spare = known.paths.iter().filter(|path| !kept.contains(path));
        let worst = spare.filter_map(|&path| Some((self.segments.get(&path)?.cost, path))).max();
        if let Some((_, path)) = worst {
            self.remove_path(now, path, Reason::UNUSED, None);
        }
    }
}
