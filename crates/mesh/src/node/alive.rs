//! I'M ALIVE and LIVENESS: which neighbours are there.

use super::MeshNode;
use crate::edge::{Adjacency, LabelAction, MeshOutput};
use crate::identity::{PathId, Reason};
use crate::layout::{LabelRecord, LivenessHeaderFields};
use crate::liveness::{LivenessSession, SessionChange};
use crate::message::{Alive, LABELS_LISTED_MAX, Message, PARTS_MAX, label_list, node_list};
use crate::neighbour::Neighbour;
use crate::trust::AUTHENTICATION_LEN;
use core::time::Duration;
use gatewright_packet::LinkIndex;
use gatewright_wire::mpls::Label;
use std::collections::BTreeSet;

/// I'M ALIVEs after which the neighbour list is sent though it has not changed.
const LIST_EVERY: u8 = 10;

/// A neighbour that was lost is forgotten after this many intervals.
const FORGET_INTERVALS: u32 = 10;

/// LIVENESS is no faster than this many times the lateness that 99.9 % of this node's timers do not
/// exceed. The peer waits for three intervals: so one packet may be lost and the next one be twice as
/// late. A node that is late in receiving finds nobody silent, as it takes first what has arrived.
const LATENESS_FACTOR: u32 = 2;

/// The longest interval of LIVENESS, however late the timers are.
const LIVENESS_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// From a change of the interval to a shorter one.
const SHORTEN_AFTER: Duration = Duration::from_secs(30);

impl MeshNode {
    /// Sends the I'M ALIVEs that are due, with each of them forgets neighbours on its link that were lost
    /// long ago, and loses silent neighbours.
    pub(super) fn tick_alive(&mut self, now: Duration) {
        let missed = self.settings.alive_missed_max;
        if self.near.alive_due().is_some_and(|at| at <= now) {
            // Links that are due soon send now, too: from the next time on a node has one timer for them.
            let interval = self.settings.alive_interval;
            let soon = now + interval / 10;
            let links = self.near.links.iter().filter(|(_, link)| link.alive_at <= soon);
            let due: Vec<LinkIndex> = links.map(|(&link, _)| link).collect();
            // 95 to 105 % of the interval, so that nodes do not fall into step.
            let next = now + interval * 19 / 20 + self.random.time_below(interval / 10);
            for link in due {
                self.send_alive(next, link);
                let is_old = |known: &Neighbour| known.deadline(missed + FORGET_INTERVALS) <= now;
                let old = self.near.on(link).filter(|(_, known)| is_old(known));
                let old: Vec<Adjacency> = old.map(|(&at, _)| at).collect();
                for adjacency in old {
                    self.lose(now, adjacency, Reason::SILENT);
                    self.near.all.remove(&adjacency);
                    self.broadcasts.forget_election();
                }
            }
        }
        if self.near.neighbours_due(missed).is_none_or(|at| at > now) {
            return;
        }
        let is_silent = |known: &Neighbour| known.up && known.deadline(missed) <= now;
        let silent = self.near.all.iter().filter(|(_, known)| is_silent(known));
        let silent: Vec<Adjacency> = silent.map(|(&at, _)| at).collect();
        for adjacency in silent {
            self.lose(now, adjacency, Reason::SILENT);
        }
        self.tick_sessions(now);
    }

    /// Sends an I'M ALIVE on a link; the next one is due at `next`.
    fn send_alive(&mut self, next: Duration, at: LinkIndex) {
        let interval = self.settings.alive_interval;
        let Some(link) = self.near.links.get_mut(&at) else { return };
        link.alive_at = next;
        link.since_list = link.since_list.saturating_add(1);
        let full = link.full_lists > 0 || link.since_list >= LIST_EVERY;
        if full {
            link.full_lists = link.full_lists.saturating_sub(1);
            link.since_list = 0;
        }
        // A list that lacked this node may have been overtaken by one that was lost.
        let wants_list = self.near.on(at).any(|(_, known)| known.up && known.is_doubted());
        let list = full.then(|| node_list(self.near.heard(at).into_iter()));
        // The list says more than the interval, so it is sent by the profiles that use it.
        let labels = if self.is_classic() { self.received_by_label(at) } else { Vec::new() };
        // What authenticates takes the room of labels beyond that of the shortest trailer.
        let taken = self.authentication_len().saturating_sub(AUTHENTICATION_LEN);
        let labels_max = LABELS_LISTED_MAX - taken.div_ceil(LabelRecord::LEN);
        let mut parts = labels.chunks(labels_max).take(PARTS_MAX).peekable();
        let mut part = 0;
        loop {
            let labels = label_list(parts.next().unwrap_or_default());
            let more = parts.peek().is_some();
            let alive = Alive {
                interval_ms: u16::try_from(interval.as_millis()).unwrap_or(u16::MAX),
                more,
                part,
                wants_list,
                delay: self.settings.relay_delay,
                neighbours: if part == 0 { list.as_deref() } else { None },
                labels: &labels,
            };
            self.send(at, None, &Message::Alive(alive));
            if !more {
                return;
            }
            part += 1;
        }
    }

    /// Labels given to neighbours of a link, with the octets received since the last report.
    fn received_by_label(&mut self, link: LinkIndex) -> Vec<(Label, u32)> {
        let mut labels = Vec::new();
        for segment in self.segments.values_mut() {
            for side in segment.sides_mut().filter(|side| side.adjacency.link == link) {
                if let Some(label) = side.given {
                    labels.push((label, u32::try_from(side.octets).unwrap_or(u32::MAX)));
                    side.octets = 0;
                }
            }
        }
        labels
    }

    /// Sends an I'M ALIVE at once, as the labels of a link have changed (`classic`).
    pub(super) fn trigger_alive(&mut self, now: Duration, link: LinkIndex) {
        if let Some(link) = self.near.links.get_mut(&link) {
            link.alive_at = link.alive_at.min(now);
        }
    }

    /// Processes an I'M ALIVE.
    pub(super) fn alive(&mut self, now: Duration, adjacency: Adjacency, alive: &Alive<'_>) {
        let own = self.settings.id;
        let interval = Duration::from_millis(alive.interval_ms.into());
        let missed = self.settings.alive_missed_max;
        let is_longer =
            self.near.all.get(&adjacency).is_none_or(|known| interval >= known.interval);
        let neighbour = if is_longer {
            self.near.postpone(&adjacency, missed)
        } else {
            self.near.all.get_mut(&adjacency)
        };
        let Some(neighbour) = neighbour else { return };
        if alive.part == 0 {
            neighbour.count_alive(now, interval);
        }
        neighbour.delay = alive.delay;
        if alive.neighbours.is_some() && neighbour.learn_list(alive.neighbours().collect(), own) {
            self.broadcasts.forget_election();
        }
        if alive.wants_list
            && let Some(link) = self.near.links.get_mut(&adjacency.link)
        {
            link.full_lists = link.full_lists.max(1);
        }
        if self.is_classic() {
            self.check_labels(now, adjacency, alive);
        }
    }

    /// In `classic` nothing else tells that a neighbour has deleted an entry: a label that it does
    /// not list any more leads nowhere.
    fn check_labels(&mut self, now: Duration, adjacency: Adjacency, alive: &Alive<'_>) {
        let listed: BTreeSet<Label> = alive.labels().map(|(label, _)| label).collect();
        let whole = !alive.more && alive.part == 0;
        let patience = self.settings.alive_interval * self.settings.alive_missed_max;
        let mut gone: Vec<PathId> = Vec::new();
        for (&path, segment) in &mut self.segments {
            let old = now.saturating_sub(segment.made_at) > patience;
            let Some(side) = &mut segment.downstream else { continue };
            let Some(label) = side.expected.filter(|_| side.adjacency == adjacency) else {
                continue;
            };
            if listed.contains(&label) {
                side.listed = true;
            } else if whole && (side.listed || old) {
                gone.push(path);
            }
        }
        for path in gone {
            self.remove_path(now, path, Reason::LABEL_UNKNOWN, Some(adjacency));
        }
    }

    /// Takes the due steps of all sessions. When one of them is due, those send that may: so a node has one
    /// timer for all.
    pub(super) fn tick_sessions(&mut self, now: Duration) {
        let is_due = |(_, known): &(&Adjacency, &Neighbour)| {
            known.session.as_ref().is_some_and(|session| session.poll_timeout() <= now)
        };
        if !self.near.all.iter().any(|known| is_due(&known)) {
            return;
        }
        let mut steps = Vec::new();
        for (&adjacency, neighbour) in self.near.all.iter_mut() {
            let Some(session) = &mut neighbour.session else { continue };
            session.join(now);
            steps.push((adjacency, session.poll(now, &mut self.random)));
        }
        for (adjacency, (packet, change)) in steps {
            if let Some(packet) = packet {
                self.send_to(adjacency, &Message::Liveness(packet));
            }
            if change == SessionChange::Down {
                self.lose(now, adjacency, Reason::SILENT);
            }
        }
    }

    /// Processes a LIVENESS message. A neighbour that monitors the link is answered, though no path
    /// leads through it yet.
    pub(super) fn liveness(
        &mut self,
        now: Duration,
        adjacency: Adjacency,
        packet: &LivenessHeaderFields,
    ) {
        const DOWN: u8 = 1;
        let has_session = self.near.all.get(&adjacency).is_some_and(|n| n.session.is_some());
        if !has_session {
            // A packet of a session that has just ended here starts none.
            if packet.state != DOWN || packet.your_discriminator != 0 {
                return;
            }
            self.monitor(now, adjacency);
        }
        let session = self.near.all.get(&adjacency).and_then(|known| known.session.as_ref());
        if let Some(silent_at) = session.and_then(|session| session.postponed_by(packet)) {
            let neighbour = self.near.all.postpone(silent_at).get_mut(&adjacency);
            if let Some(session) = neighbour.and_then(|known| known.session.as_mut()) {
                session.receive(now, packet);
            }
            return;
        }
        let Some(neighbour) = self.near.all.get_mut(&adjacency) else { return };
        let Some(session) = &mut neighbour.session else { return };
        let change = session.receive(now, packet);
        let answer = packet.poll.then(|| session.final_packet());
        match change {
            SessionChange::Nothing => {}
            SessionChange::Up => self.session_up(now, adjacency),
            SessionChange::Down => self.lose(now, adjacency, Reason::SILENT),
            SessionChange::Ended => {
                neighbour.session = None;
                neighbour.watched = false;
                // The peer needs no session; our paths through it do.
                if neighbour.paths > 0 {
                    self.monitor(now, adjacency);
                }
            }
        }
        if let Some(answer) = answer {
            self.send_to(adjacency, &Message::Liveness(answer));
        }
        self.tick_sessions(now);
    }

    /// Adapts the interval of LIVENESS to how late this node's timers are, at once to a longer one and
    /// after a while to a shorter one: a node that is late itself finds its neighbours silent.
    pub(super) fn adapt_liveness(&mut self, now: Duration, p999: Duration) {
        let least = self.settings.liveness_interval;
        let needed =
            p999.saturating_mul(LATENESS_FACTOR).clamp(least, LIVENESS_INTERVAL_MAX.max(least));
        let (interval, since) = self.liveness;
        let shorter = needed * 4 <= interval * 3 || needed == least;
        let rested = now.saturating_sub(since) >= SHORTEN_AFTER;
        if needed == interval || (needed < interval && !(shorter && rested)) {
            return;
        }
        self.liveness = (needed, now);
        for neighbour in self.near.all.values_mut() {
            if let Some(session) = &mut neighbour.session {
                session.set_interval(needed);
            }
        }
    }

    /// Starts a session with a neighbour, if there is none.
    fn monitor(&mut self, now: Duration, adjacency: Adjacency) {
        let (interval, multiplier) = (self.liveness.0, self.settings.liveness_multiplier);
        let discriminator = self.next_number().max(1);
        if let Some(neighbour) = self.near.all.get_mut(&adjacency)
            && neighbour.session.is_none()
        {
            neighbour.session =
                Some(LivenessSession::new(now, discriminator, interval, multiplier));
            neighbour.watched = false;
        }
    }

    /// A path leads through a neighbour, or does not any more: its link is monitored as long as one
    /// does.
    pub(super) fn count_path(&mut self, now: Duration, adjacency: Adjacency, more: bool) {
        let classic = self.is_classic();
        let Some(neighbour) = self.near.all.get_mut(&adjacency) else { return };
        if more {
            neighbour.paths += 1;
            if !classic && neighbour.session.is_none() {
                self.monitor(now, adjacency);
                self.tick_sessions(now);
            }
            return;
        }
        neighbour.paths = neighbour.paths.saturating_sub(1);
        // A session that has gone down goes on: it tells when the neighbour is heard again.
        if neighbour.paths == 0 && !neighbour.is_session_down() {
            self.end_session(adjacency);
        }
    }

    fn end_session(&mut self, adjacency: Adjacency) {
        let Some(neighbour) = self.near.all.get_mut(&adjacency) else { return };
        neighbour.watched = false;
        if let Some(session) = neighbour.session.take() {
            self.send_to(adjacency, &Message::Liveness(session.farewell()));
        }
    }

    fn session_up(&mut self, now: Duration, adjacency: Adjacency) {
        let Some(neighbour) = self.near.all.get_mut(&adjacency) else { return };
        let returns = neighbour.watched && neighbour.paths == 0;
        neighbour.watched = true;
        neighbour.confirmed = true;
        let was_up = core::mem::replace(&mut neighbour.up, true);
        if !was_up {
            self.appeared(now, adjacency);
        }
        if returns {
            // The packet that completes the peer's handshake first.
            self.tick_sessions(now);
            self.end_session(adjacency);
        }
    }

    /// Installs what a label of a path does, once that is known.
    pub(super) fn install(&mut self, path: PathId) {
        let Some(segment) = self.segments.get(&path) else { return };
        let sides =
            [(&segment.upstream, &segment.downstream), (&segment.downstream, &segment.upstream)];
        // At the target of a path to a station, the station's port.
        let station = segment.station.filter(|_| path.target == self.settings.id);
        let mut outputs = Vec::new();
        for (arrive, leave) in sides {
            let Some(label) = arrive.as_ref().and_then(|side| side.given) else { continue };
            let hop = |(adjacency, label)| self.labelled(adjacency, label);
            let action = match station {
                Some(station) => {
                    let port = self.bridge.port_of(station);
                    port.map(|port| (LabelAction::Station { port, station }, None))
                }
                None => crate::segment::action(leave.as_ref(), hop),
            };
            outputs.extend(action.map(|(action, backup)| MeshOutput::InstallLabel {
                label,
                action,
                backup,
            }));
        }
        self.outputs.extend(outputs);
    }
}
