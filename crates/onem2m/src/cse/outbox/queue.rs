//! The outbox's queues, their targets, and the requests in progress.

use super::backlog::Backlogs;
use super::overload::Overload;
use super::record::Kept;
use super::window::{AnswerTimes, Window};
use super::{DEVICE_QUEUE, MessageRoom, OutboxMessage, RefusedMessage};
use crate::clock::Moment;
use crate::cse::Token;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// Messages to one target in the order in which they were posted.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Each for itself in memory: a map that moves them takes longer than all else of a removal.
    pub(super) messages: BTreeMap<u64, Box<Kept>>,
    /// The messages by expiry.
    by_age: BTreeSet<(Moment, u64)>,
    /// Messages that are not in progress: which is next must not take longer the more are.
    unsent: BTreeSet<u64>,
    /// Requests in progress.
    pub(super) requests: usize,
    /// Requests that it may have in progress.
    pub(super) window: Window,
    /// Answers in sequence that refused its messages for a while.
    pub(super) failures: u32,
    /// Time of the next check of the queue.
    pub(super) due: Option<Moment>,
    /// Whether its requests go one after the other, as its route keeps no order.
    pub(super) is_serial: bool,
    /// Whether it stands in its target's line.
    pub(super) is_in_line: bool,
    /// The entity whose quota its messages use.
    pub(super) payer: Arc<str>,
}

impl Queue {
    /// The first message that is not in progress.
    pub(super) fn next(&self) -> Option<(u64, &Kept)> {
        let seq = *self.unsent.first()?;
        Some((seq, self.messages.get(&seq)?))
    }

    /// Number of messages that are not in progress.
    pub(super) fn unsent(&self) -> usize {
        self.unsent.len()
    }

    /// Notes that a message is in progress.
    pub(super) fn note_sent(&mut self, seq: u64) {
        self.unsent.remove(&seq);
    }

    /// Messages that are not in progress and have expired.
    pub(super) fn stale(&self, now: Moment) -> Vec<u64> {
        let old = self.by_age.iter().take_while(|(until, _)| *until <= now);
        old.map(|&(_, seq)| seq).filter(|seq| self.unsent.contains(seq)).collect()
    }
}

/// A receiver of messages, as messages name it.
#[derive(Debug, Default)]
pub(super) struct OutboxTarget {
    /// Requests in progress.
    pub(super) requests: usize,
    /// Requests that it may have in progress, once it has answered.
    pub(super) window: Window,
    pub(super) times: AnswerTimes,
    /// Whether it has answered since it has messages.
    pub(super) is_proven: bool,
    /// Failures in sequence to reach it.
    pub(super) failures: u32,
    /// Time of the next attempt.
    pub(super) due: Option<Moment>,
    /// Queues with messages to send, each once: they take turns.
    pub(super) line: VecDeque<Arc<str>>,
}

/// A request in progress.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) queue: Arc<str>,
    pub(super) target: Arc<str>,
    /// When it was sent.
    pub(super) since: Moment,
    /// Its messages; several in a batch of notifications.
    pub(super) messages: Vec<u64>,
}

/// The check that is due at a time.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Due {
    Queue(Arc<str>),
    Target(Arc<str>),
}

/// Every outbox queue.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(super) queues: HashMap<Arc<str>, Queue>,
    pub(super) targets: HashMap<Arc<str>, OutboxTarget>,
    queue_of: BTreeMap<u64, Arc<str>>,
    /// What waits for each payer; all queues of devices share one.
    by_payer: HashMap<Arc<str>, MessageRoom>,
    /// What all messages take up.
    room: MessageRoom,
    pub(super) due: BTreeSet<(Moment, Due)>,
    /// Whether devices' messages give way to answers.
    pub(super) overload: Overload,
    /// Queues with a rate limit: the end of the present window, and the notifications sent in it.
    pub(super) paced: HashMap<Arc<str>, (Moment, usize)>,
    /// Requests in progress by their numbers.
    pub(super) sendings: BTreeMap<u64, Sending>,
    pub(super) sendings_made: u64,
    /// Finished messages whose rows are still to be deleted.
    pub(super) done: Vec<(u64, Box<Kept>)>,
    /// Latest time of their deletion.
    pub(super) delete_by: Option<Moment>,
    /// Containers with instances that were stored without a message.
    pub(super) backlogs: Backlogs,
    /// Queues held because their first message was refused on account of its originator, with the
    /// verdict.
    pub(super) held: BTreeMap<Arc<str>, RefusedMessage>,
    /// The last final verdict on a device's reading.
    pub(super) refused: Option<RefusedMessage>,
    /// Outbox messages whose accompanying request is not answered yet.
    pub(super) beside: BTreeMap<Token, MessageBeside>,
    /// Number of the first row that the request made which was executed last, if it made any.
    pub(in crate::cse) first_made: u64,
}

/// An outbox message whose accompanying request is not answered yet.
#[derive(Clone, Debug)]
pub(in crate::cse) struct MessageBeside {
    pub(super) message: OutboxMessage,
    /// The container, by number, in whose backlog the message belongs if there is no room for it.
    pub(super) container: Option<u64>,
}

impl Outbox {
    pub(crate) fn len(&self) -> usize {
        self.queue_of.len()
    }

    pub(crate) fn next_due(&self) -> Option<Moment> {
        let due = self.due.first().map(|(time, _)| *time);
        due.into_iter().chain(self.delete_by).chain(self.overload.due()).min()
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = (u64, Arc<str>)> {
        let waiting = self.queues.values().flat_map(|queue| &queue.messages);
        let done = self.done.iter().map(|(seq, kept)| (seq, kept));
        let stored = waiting.chain(done).filter(|(_, kept)| kept.backlog.is_none());
        stored.map(|(&seq, kept)| (seq, kept.to_record())).chain(self.backlogs.rows())
    }

    /// Removes the outbox message of a request, if there is one.
    pub(in crate::cse) fn take_beside(&mut self, token: Token) -> Option<MessageBeside> {
        if self.beside.is_empty() { None } else { self.beside.remove(&token) }
    }

    pub(super) fn keep(&mut self, seq: u64, kept: Kept, payer: Arc<str>) {
        let name = Arc::clone(&kept.message.queue);
        self.queue_of.insert(seq, Arc::clone(&name));
        let queue = self.queues.entry(name).or_insert_with(|| Queue { payer, ..Queue::default() });
        queue.by_age.insert((kept.until, seq));
        queue.unsent.insert(seq);
        let room = kept.message.room();
        queue.messages.insert(seq, Box::new(kept));
        let waiting = self.by_payer.entry(Arc::clone(&queue.payer)).or_default();
        *waiting = waiting.and(room);
        self.room = self.room.and(room);
    }

    /// What this payer's messages take up.
    pub(super) fn room_of(&self, payer: &str) -> MessageRoom {
        self.by_payer.get(payer).copied().unwrap_or_default()
    }

    /// What all messages take up.
    pub(super) const fn room(&self) -> MessageRoom {
        self.room
    }

    /// Restores a stored message.
    pub(super) fn restore(&mut self, seq: u64, kept: Kept, now: Moment, payer: Arc<str>) {
        let queue = Arc::clone(&kept.message.queue);
        self.keep(seq, kept, payer);
        self.wake_at(&queue, now);
    }

    /// Deletes the row of a message later, since it could not be deleted now.
    pub(crate) fn delete_again(&mut self, seq: u64, kept: Box<Kept>, at: Moment) {
        self.done.push((seq, kept));
        self.delete_by = Some(self.delete_by.map_or(at, |by| by.max(at)));
    }

    /// Removes the backlog with this row, which could not be stored.
    pub(crate) fn forget_backlog(&mut self, row: u64) {
        if !self.backlogs.is_empty() {
            self.backlogs.forget(row);
        }
    }

    /// Removes a message without an answer.
    pub(crate) fn forget(&mut self, seq: u64) -> Option<Box<Kept>> {
        let name = self.queue_of.remove(&seq)?;
        let queue = self.queues.get_mut(&name)?;
        queue.unsent.remove(&seq);
        let kept = queue.messages.remove(&seq);
        if let Some(kept) = &kept {
            queue.by_age.remove(&(kept.until, seq));
        }
        let room = kept.as_ref().map(|kept| kept.message.room()).unwrap_or_default();
        self.room = self.room.without(room);
        if let Some(waiting) = self.by_payer.get_mut(&queue.payer) {
            *waiting = waiting.without(room);
            if waiting.messages == 0 {
                self.by_payer.remove(&queue.payer);
            }
        }
        if queue.messages.is_empty() {
            if let Some(due) = queue.due {
                self.due.remove(&(due, Due::Queue(Arc::clone(&name))));
            }
            self.queues.remove(&name);
            self.held.remove(&name);
        }
        kept
    }

    pub(super) fn wake_at(&mut self, name: &Arc<str>, time: Moment) {
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        if let Some(due) = queue.due.replace(time) {
            self.due.remove(&(due, Due::Queue(Arc::clone(name))));
        }
        self.due.insert((time, Due::Queue(Arc::clone(name))));
    }

    /// Has a target looked at, at this time.
    pub(super) fn wake_target_at(&mut self, name: &Arc<str>, time: Moment) {
        self.due.insert((time, Due::Target(Arc::clone(name))));
    }

    /// Whether messages of backlogs are of use to a target: it is sent what there is, and that is
    /// little.
    pub(super) fn takes_more(&self, name: &str) -> bool {
        let target = self.targets.get(name);
        let is_resting = target.is_some_and(|target| target.due.is_some());
        let in_line = target.map_or(0, |target| target.line.len());
        let gives_way = self.overload.holds(DEVICE_QUEUE);
        !is_resting && !gives_way && !self.backlogs.are_enough(name, in_line)
    }

    /// Ends a request; those of its messages that are not done with wait again.
    pub(super) fn end(&mut self, number: u64) {
        let Some(sending) = self.sendings.remove(&number) else { return };
        if let Some(target) = self.targets.get_mut(&sending.target) {
            target.requests = target.requests.saturating_sub(1);
        }
        if let Some(queue) = self.queues.get_mut(&sending.queue) {
            queue.requests = queue.requests.saturating_sub(1);
            // Most are done with.
            let left = sending.messages.into_iter().filter(|seq| queue.messages.contains_key(seq));
            queue.unsent.extend(left);
        }
    }

    /// Forgets a target for which nothing waits.
    pub(super) fn tidy(&mut self, name: &Arc<str>) {
        let is_idle = |target: &OutboxTarget| {
            target.requests == 0 && target.line.is_empty() && target.due.is_none()
        };
        if self.targets.get(name).is_some_and(is_idle) {
            self.targets.remove(name);
        }
    }
}
