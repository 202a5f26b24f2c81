//! Readings whose messages have no rows: the instance that the store has is the message.
//!
//! A row for each message, written with its reading and deleted when it has arrived, costs more than
//! the reading. Instead the store has a row for each container of a device with the way of its
//! readings to the CSE above (its route), and one number for all (the mark): messages of instances
//! below it have arrived, or have rows. Those of the instances from the mark on are made again after
//! a restart, as those of a backlog are; the CSE above knows by their names the ones that it has.
//!
//! A message gets a row when its instance goes, when it has waited for a while, and when the mark
//! would stay behind it although later ones arrive.

use super::record::{Kept, MessageStore};
use super::route::ReadingRoute;
use super::{DELETED_WITHIN, OutboxMessage};
use crate::clock::Moment;
use crate::cse::Cse;
use crate::cse::ledger::Undo;
use crate::resource::Resource;
use crate::resource_type::ResourceType;
use crate::tree::RowChange;
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Time after which a message that waits gets a row: by so much the age of a message is forgotten in
/// a restart.
const WRITTEN_AFTER: Duration = Duration::from_mins(1);
/// Time for which the first message may wait while later ones arrive.
const FIRST_WAITS: Duration = Duration::from_secs(1);
/// Messages that may have arrived before an earlier one: what comes in a fifth of a second at most.
const AHEAD_MAX: usize = 4_096;
/// Messages that get rows at a time.
const WRITTEN_TOGETHER: usize = 1_024;

/// The routes, the mark, and the messages without rows.
#[derive(Debug, Default)]
pub(super) struct Rowless {
    /// By the number of the container, with their rows.
    routes: HashMap<u64, (u64, ReadingRoute)>,
    mark: Option<Mark>,
    /// Numbers of messages, ascending, and whether each waits: the first does.
    line: VecDeque<(u64, bool)>,
    /// How many wait.
    waiting: usize,
    /// Since when the first is that.
    first_since: Moment,
    /// Time at which the mark is looked at.
    due: Option<Moment>,
    /// The container and the number of the instance that was made last, until it is known whether it
    /// has a message.
    made: Option<(u64, u64)>,
}

/// The stored mark.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// Its row.
    row: u64,
    first: u64,
}

impl Mark {
    /// Prefix of its row.
    const PREFIX: &'static str = "{\"_m\":";

    fn to_record(self) -> Arc<str> {
        format!("{}{}}}", Self::PREFIX, self.first).into()
    }

    fn from_record(row: u64, body: &str) -> Option<Self> {
        let first = body.strip_prefix(Self::PREFIX)?.strip_suffix('}')?.parse().ok()?;
        Some(Self { row, first })
    }
}

/// Prefix of a route's row.
const ROUTE: &str = "{\"_w\":";

fn route_row(route: &ReadingRoute, container: u64) -> Arc<str> {
    route.to_row(ROUTE, &[("container", container)])
}

impl Rowless {
    /// Time at which the mark is looked at.
    pub(super) const fn due(&self) -> Option<Moment> {
        self.due
    }

    fn wake_at(&mut self, time: Moment) {
        self.due = Some(self.due.map_or(time, |due| due.min(time)));
    }

    /// The stored rows.
    pub(super) fn rows(&self) -> impl Iterator<Item = (u64, Arc<str>)> {
        let routes = self.routes.iter();
        let routes = routes.map(|(container, (row, route))| (*row, route_row(route, *container)));
        routes.chain(self.mark.map(|mark| (mark.row, mark.to_record())))
    }

    fn position(&self, seq: u64) -> Result<usize, usize> {
        self.line.binary_search_by_key(&seq, |(number, _)| *number)
    }

    fn is_waiting(&self, seq: u64) -> bool {
        let at = self.position(seq).ok();
        at.and_then(|at| self.line.get(at)).is_some_and(|(_, waits)| *waits)
    }

    fn add(&mut self, seq: u64, now: Moment) {
        if self.line.is_empty() {
            self.first_since = now;
        }
        match self.position(seq) {
            Ok(at) => match self.line.get_mut(at) {
                Some((_, waits)) if !*waits => *waits = true,
                _ => return,
            },
            Err(at) => self.line.insert(at, (seq, true)),
        }
        self.waiting += 1;
    }

    /// Notes that a message waits no more, or has a row.
    pub(super) fn done(&mut self, seq: u64, now: Moment) {
        let Ok(at) = self.position(seq) else { return };
        let Some((_, waits)) = self.line.get_mut(at) else { return };
        self.waiting -= usize::from(core::mem::replace(waits, false));
        while self.line.pop_front_if(|(_, waits)| !*waits).is_some() {
            self.first_since = now;
        }
    }

    /// Removes a message that was never there, as its instance could not be stored.
    pub(super) fn remove(&mut self, seq: u64, now: Moment) {
        self.done(seq, now);
        if let Ok(at) = self.position(seq) {
            self.line.remove(at);
        }
    }

    /// Messages that have arrived before an earlier one.
    fn ahead(&self) -> usize {
        self.line.len() - self.waiting
    }

    /// Removes the route or the mark with this row, which could not be stored.
    pub(super) fn forget(&mut self, row: u64) {
        if self.mark.is_some_and(|mark| mark.row == row) {
            self.mark = None;
        }
        let found = self.routes.iter().find(|(_, (it, _))| *it == row);
        if let Some(container) = found.map(|(&container, _)| container) {
            self.routes.remove(&container);
        }
    }

    /// Restores a stored row, if it is a route's or the mark's.
    pub(super) fn restore(&mut self, row: u64, body: &str, now: Moment) -> bool {
        if let Some(mark) = Mark::from_record(row, body) {
            self.mark = Some(mark);
            self.wake_at(now);
            return true;
        }
        let Some((route, members)) = ReadingRoute::from_row(body, ROUTE) else { return false };
        let container = members.get("container").and_then(serde_json::Value::as_u64);
        container.map(|container| self.routes.insert(container, (row, route))).is_some()
    }
}

impl Cse {
    /// Notes an instance that was added to a container.
    pub(in crate::cse) fn note_made(&mut self, container: u64, seq: u64) {
        self.settle_made();
        self.outbox.rowless.made = Some((container, seq));
    }

    /// Ends the route of a container with an instance that has no message: after a restart it would
    /// have one.
    pub(in crate::cse) fn settle_made(&mut self) {
        if let Some((container, _)) = self.outbox.rowless.made.take() {
            self.end_route(container);
        }
    }

    /// Notes that the instance that was made last is in a backlog.
    pub(super) const fn claim_made(&mut self) {
        self.outbox.rowless.made = None;
    }

    /// Queues the message of a reading that was stored in this step; returns it if its instance is
    /// not enough to make it again.
    pub(super) fn post_reading(&mut self, message: OutboxMessage) -> Result<(), OutboxMessage> {
        let first_made = self.outbox.first_made;
        let made = self.outbox.rowless.made.filter(|(_, seq)| *seq >= first_made);
        let Some((container, seq)) = made.filter(|_| message.may_be_made_later()) else {
            return Err(message);
        };
        if self.tree.by_seq(seq).is_none() || !self.fits(&message) {
            return Err(message);
        }
        self.claim_made();
        self.settle_route(container, seq, &message);
        let stored = MessageStore::Instance(container);
        let kept = Kept::new(message, self.moment, self.ledger.number(), stored);
        let queue = Arc::clone(&kept.message.queue);
        let payer = self.payer_of(&queue);
        self.outbox.rowless.add(seq, self.moment);
        self.outbox.rowless.wake_at(self.moment.plus(WRITTEN_AFTER));
        self.outbox.keep(seq, kept, payer);
        self.run_queue(&queue);
        Ok(())
    }

    /// Stores the route of a container whose first instance with such a message is `seq`.
    fn settle_route(&mut self, container: u64, seq: u64, message: &OutboxMessage) {
        let known = self.outbox.rowless.routes.get(&container);
        if known.is_some_and(|(_, route)| route.is_of(message)) {
            return;
        }
        self.end_route(container);
        let (row, route) = (self.ledger.next_seq(), ReadingRoute::of(message));
        let body = route_row(&route, container);
        self.ledger.write(RowChange::Put { seq: row, body }, RowChange::Delete { seq: row });
        self.outbox.rowless.routes.insert(container, (row, route));
        if self.outbox.rowless.mark.is_none() {
            let mark = Mark { row: self.ledger.next_seq(), first: seq };
            let (seq, body) = (mark.row, mark.to_record());
            self.ledger.write(RowChange::Put { seq, body }, RowChange::Delete { seq });
            self.outbox.rowless.mark = Some(mark);
        }
    }

    /// Ends the route of a container, if it has one; its messages get rows.
    fn end_route(&mut self, container: u64) {
        let Some((seq, route)) = self.outbox.rowless.routes.remove(&container) else { return };
        let queue = self.outbox.queues.get(&route.queue);
        let messages = queue.into_iter().flat_map(|queue| &queue.messages);
        let its = messages.filter(|(_, kept)| kept.stored == MessageStore::Instance(container));
        let its: Vec<u64> = its.map(|(&seq, _)| seq).collect();
        for seq in its {
            self.write_out(seq);
        }
        let body = route_row(&route, container);
        self.ledger.write(RowChange::Delete { seq }, RowChange::Put { seq, body });
    }

    /// Gives the message of an instance that goes a row, and ends the route of a container that goes.
    pub(in crate::cse) fn part_from_outbox(&mut self, going: &Resource) {
        match going.resource_type {
            ResourceType::ContentInstance => {
                self.write_out_of_backlog(going);
                self.write_out(going.seq);
            }
            ResourceType::Container => self.end_route(going.seq),
            _ => {}
        }
    }

    /// Gives the message of an instance that is paged out and goes a row.
    pub(in crate::cse) fn part_paged_from_outbox(&mut self, seq: u64) {
        self.write_out(seq);
    }

    /// Makes the message of an instance that goes and is in a backlog, if there is room for it.
    fn write_out_of_backlog(&mut self, going: &Resource) {
        let container = going.parent.and_then(|parent| self.tree.get(parent)).map(|it| it.seq);
        let Some(container) = container.filter(|it| self.outbox.backlogs.has(*it)) else { return };
        let Some(message) = self.outbox.backlogs.unmade(container, going) else { return };
        if self.outbox.has(going.seq) || !self.fits(&message) {
            return;
        }
        let stored = MessageStore::Backlog(container);
        let kept = Kept::new(message, self.moment, going.stored_by, stored);
        let (seq, queue) = (going.seq, Arc::clone(&kept.message.queue));
        let payer = self.payer_of(&queue);
        self.outbox.keep(seq, kept, payer);
        self.write_row(seq, None);
        self.outbox.wake_at(&queue, self.moment);
    }

    /// Gives a message a row, if it has none.
    fn write_out(&mut self, seq: u64) {
        let is_waiting = self.outbox.rowless.is_waiting(seq);
        if !(is_waiting || (!self.outbox.backlogs.is_empty() && self.outbox.has(seq))) {
            return;
        }
        let Some(kept) = self.outbox.kept_mut(seq) else { return };
        let before = kept.stored;
        match before {
            MessageStore::Row(_) => return,
            MessageStore::Instance(_) => self.outbox.rowless.done(seq, self.moment),
            MessageStore::Backlog(container) => {
                self.outbox.backlogs.done(container, seq);
                self.outbox.delete_by.get_or_insert(self.moment.plus(DELETED_WITHIN));
            }
        }
        self.write_row(seq, Some(before));
    }

    /// Writes a row of a message that was stored as `before`, if it was.
    fn write_row(&mut self, seq: u64, before: Option<MessageStore>) {
        let row = self.ledger.next_seq();
        let Some(kept) = self.outbox.kept_mut(seq) else { return };
        kept.stored = MessageStore::Row(row);
        let body = kept.to_record(seq);
        self.ledger.write(RowChange::Put { seq: row, body }, Undo::WrittenOut { seq, before });
    }

    /// Takes back that a message has a row.
    pub(in crate::cse) fn take_back_row(&mut self, seq: u64, before: Option<MessageStore>) {
        let Some(before) = before else {
            self.outbox.forget(seq, self.moment);
            return;
        };
        let Some(kept) = self.outbox.kept_mut(seq) else { return };
        kept.stored = before;
        match before {
            MessageStore::Row(_) => {}
            MessageStore::Backlog(container) => self.outbox.backlogs.wait(container, seq),
            MessageStore::Instance(_) => {
                self.outbox.rowless.add(seq, self.moment);
                self.outbox.rowless.wake_at(self.unstored.0);
            }
        }
    }

    /// Stores the mark if that is due, or at the end.
    pub(in crate::cse) fn store_mark(&mut self, is_end: bool) {
        let is_due = self.outbox.rowless.due.is_some_and(|due| due <= self.moment);
        if !(is_due || is_end) {
            return;
        }
        if self.moment < self.unstored.0 && !is_end {
            self.outbox.rowless.due = Some(self.unstored.0);
            return;
        }
        self.outbox.rowless.due = None;
        if !self.stores_deletions_only {
            self.write_stragglers();
        }
        let first = self.outbox.rowless.line.front().map(|(seq, _)| *seq);
        self.move_mark(first.unwrap_or(self.ledger.peek_seq()));
        if let Some(since) = first.and_then(|seq| self.outbox.kept_mut(seq)).map(|it| it.since) {
            // On a full disk none gets a row.
            let by = since.plus(WRITTEN_AFTER).max(self.moment.plus(FIRST_WAITS));
            let rowless = &mut self.outbox.rowless;
            rowless.wake_at(by);
            if rowless.ahead() > 0 {
                rowless.wake_at(self.moment.plus(FIRST_WAITS));
            }
        }
    }

    fn move_mark(&mut self, first: u64) {
        let Some(mark) = self.outbox.rowless.mark.filter(|mark| mark.first != first) else {
            return;
        };
        let moved = Mark { first, ..mark };
        let (seq, body, before) = (mark.row, moved.to_record(), mark.to_record());
        self.ledger.write(RowChange::Put { seq, body }, RowChange::Put { seq, body: before });
        self.outbox.rowless.mark = Some(moved);
    }

    /// Gives rows to messages that have waited for long, and to those that hold the mark up.
    fn write_stragglers(&mut self) {
        for _ in 0..WRITTEN_TOGETHER {
            let rowless = &self.outbox.rowless;
            let Some(&(seq, _)) = rowless.line.front() else { return };
            let ahead = rowless.ahead();
            let is_stuck = ahead > 0 && rowless.first_since.plus(FIRST_WAITS) <= self.moment;
            let is_far = ahead > AHEAD_MAX;
            let kept = self.outbox.kept_mut(seq);
            let Some((queue, since)) =
                kept.map(|kept| (Arc::clone(&kept.message.queue), kept.since))
            else {
                self.outbox.rowless.done(seq, self.moment);
                continue;
            };
            if is_stuck {
                self.write_queue(&queue);
            } else if is_far || since.plus(WRITTEN_AFTER) <= self.moment {
                self.write_out(seq);
            } else {
                return;
            }
        }
        self.outbox.rowless.wake_at(self.moment);
    }

    /// Gives all messages of a queue rows.
    fn write_queue(&mut self, queue: &str) {
        let messages = self.outbox.queues.get(queue).into_iter().flat_map(|it| it.messages.keys());
        let messages: Vec<u64> = messages.copied().collect();
        for seq in messages {
            self.write_out(seq);
        }
    }

    /// Changes the target of routes.
    pub(super) fn readdress_routes(&mut self, from: &str, to: &Arc<str>) {
        for (&container, (row, route)) in &mut self.outbox.rowless.routes {
            if *route.target != *from {
                continue;
            }
            let before = route_row(route, container);
            route.target = Arc::clone(to);
            let (seq, body) = (*row, route_row(route, container));
            self.ledger.write(RowChange::Put { seq, body }, RowChange::Put { seq, body: before });
        }
    }

    /// Has the messages of an earlier run that have no rows made again.
    pub(in crate::cse) fn resume_rowless(&mut self) {
        let Some(mark) = self.outbox.rowless.mark else { return };
        let mut begun = Vec::new();
        for (&container, (_, route)) in &self.outbox.rowless.routes {
            let Some(slot) = self.tree.by_seq(container) else { continue };
            // Instances alone, from the mark on.
            let (after, range) = (Some((true, 0)), (mark.first, u64::MAX));
            let first = self.tree.children_after(slot, after, range).next();
            begun.extend(first.map(|((_, seq), _)| (container, seq, route.clone())));
        }
        begun.sort_unstable_by_key(|(container, ..)| *container);
        for (container, first, route) in begun {
            self.resume_backlog(container, route, first);
        }
        self.move_mark(self.ledger.peek_seq());
    }

    /// Notes that a message without a row has arrived, or will not.
    pub(super) fn note_rowless_done(&mut self) {
        self.outbox.rowless.wake_at(self.moment.plus(DELETED_WITHIN));
    }
}
