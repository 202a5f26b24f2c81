//! Outbox: messages stored until they are answered, sent in order on each queue, retried with
//! growing pauses, and limited by number and age.

mod answered;
mod backlog;
mod overload;
mod queue;
mod record;
mod send;
mod window;

use super::ledger::Undo;
use super::{Cse, Recipient, Refusal, RequestContext, Token};
use crate::audit::End;
use crate::limits::share;
use crate::primitive::{Operation, Request, Response};
use crate::resource::{PLACE_OCTETS, row_octets};
use crate::resource_type::ResourceType;
use crate::status::Status;
use crate::stored::{Damage, InstanceHeader};
use crate::tree::RowChange;
use core::time::Duration;
pub(super) use queue::Outbox;
use queue::{MessageBeside, Queue};
pub(super) use record::Kept;
use std::sync::Arc;

/// Prefix of the queues for readings of this CSE's own devices; the originator follows. No queue of
/// a subscription, of answers or of announcements begins so.
pub const DEVICE_QUEUE: &str = "device/";

/// Maximum messages before their rows are deleted together.
const DELETED_TOGETHER: usize = 256;
/// Time that the row of a message stays after it has arrived, at the latest.
const DELETED_WITHIN: Duration = Duration::from_millis(100);

/// An outbox message: a request that must arrive.
#[derive(Clone, Debug, PartialEq)]
pub struct OutboxMessage {
    /// Its queue; messages of one queue are sent in order.
    pub queue: Arc<str>,
    /// A URL, or the address of an entity.
    pub target: Arc<str>,
    /// The request.
    pub request: Arc<Request>,
    /// Lifetime of the message; unlimited if `None`.
    pub keep: Option<Duration>,
    /// Batching of several notifications into one.
    pub batch: Option<Gather>,
}

/// What messages take up of the room for those that wait.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct MessageRoom {
    pub(super) messages: usize,
    /// One for a message, and one more for each 2 KiB of its content.
    pub(super) places: usize,
    /// Octets of their rows, approximately.
    pub(super) octets: usize,
}

impl MessageRoom {
    /// That of one message with so many octets of content.
    pub(super) fn of(content: usize) -> Self {
        let octets = row_octets(u64::try_from(content).unwrap_or(u64::MAX));
        Self { messages: 1, places: 1 + content / PLACE_OCTETS, octets }
    }

    pub(super) const fn and(self, other: Self) -> Self {
        Self {
            messages: self.messages.saturating_add(other.messages),
            places: self.places.saturating_add(other.places),
            octets: self.octets.saturating_add(other.octets),
        }
    }

    pub(super) const fn without(self, other: Self) -> Self {
        Self {
            messages: self.messages.saturating_sub(other.messages),
            places: self.places.saturating_sub(other.places),
            octets: self.octets.saturating_sub(other.octets),
        }
    }

    /// How many of the smallest messages make room for these.
    pub(super) fn smallest(self) -> usize {
        self.places.max(self.octets.div_ceil(row_octets(0)))
    }
}

impl OutboxMessage {
    /// What it takes up of the room for waiting messages.
    pub(super) fn room(&self) -> MessageRoom {
        MessageRoom::of(self.request.content.as_ref().map_or(0, |content| content.len()))
    }

    /// Whether it is a device's reading, whose message can be made from the tree.
    fn may_be_made_later(&self) -> bool {
        self.is_reading() && self.queue.starts_with(DEVICE_QUEUE)
    }

    /// Whether it creates a contentInstance.
    fn is_reading(&self) -> bool {
        let Request { operation, resource_type, .. } = &*self.request;
        *operation == Operation::Create && *resource_type == Some(ResourceType::ContentInstance)
    }
}

/// Batching of notifications (m2m:batchNotify).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Gather {
    /// Notifications that complete a batch.
    pub number: usize,
    /// Longest wait of a notification in an incomplete batch.
    pub duration: Duration,
    /// Whether only the latest of each batch is sent (latestNotify).
    pub latest: bool,
}

/// A receiver's verdict on an outbox message that it refused.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RefusedMessage {
    /// The response status code.
    pub status: Status,
    /// The originator.
    pub from: String,
    /// The target.
    pub to: String,
    /// The type of the resource to create.
    pub resource_type: Option<ResourceType>,
}

impl RefusedMessage {
    fn new(status: Status, request: &Request) -> Self {
        let (from, to) = (request.from.clone(), request.to.clone());
        Self { status, from, to, resource_type: request.resource_type }
    }
}

impl Cse {
    /// Restores a stored row, of a message, a backlog, a waiting request or a resource.
    ///
    /// # Errors
    ///
    /// If it is none of them.
    pub(super) fn restore(&mut self, seq: u64, body: &Arc<str>) -> Result<(), Damage> {
        let Some(kept) = Kept::from_record(body, self.moment, self.now) else {
            let is_known = self.outbox.backlogs.restore(seq, body)
                || self.restore_lag(seq, body)
                || self.restore_postponed(seq, body);
            if is_known {
                return Ok(());
            }
            self.tree.restore(seq, body)?;
            if InstanceHeader::is_in(body) {
                self.note_resident(seq);
            }
            return Ok(());
        };
        let payer = self.payer_of(&kept.message.queue);
        // One that could not be changed is not to be tried again at once.
        self.outbox.restore(seq, kept, self.moment.max(self.unstored.0), payer);
        Ok(())
    }

    /// Outbox messages that wait or are in progress.
    pub fn messages_waiting(&self) -> usize {
        self.outbox.len()
    }

    /// Outbox messages of this CSE's devices that wait or are in progress, and how many may.
    pub fn readings_waiting(&self) -> (usize, usize) {
        let waiting = self.outbox.room_of(DEVICE_QUEUE).messages;
        (waiting, self.config.limits.messages_waiting_total)
    }

    /// Number of queues held because of their originator, and the first one's verdict.
    pub fn held(&self) -> (usize, Option<&RefusedMessage>) {
        (self.outbox.held.len(), self.outbox.held.values().next())
    }

    /// The last final refusal of a device's reading. The reading was not delivered and will not be;
    /// it stays stored here.
    pub const fn refused(&self) -> Option<&RefusedMessage> {
        self.outbox.refused.as_ref()
    }

    /// Whether a queue has room for this many further messages, each with at most 2 KiB of content.
    pub fn has_room(&self, queue: &str, messages: usize) -> bool {
        self.has_places(queue, MessageRoom { messages, places: messages, octets: 0 })
    }

    /// Whether a queue has room for these further messages.
    pub(super) fn has_places(&self, queue: &str, further: MessageRoom) -> bool {
        let limits = &self.config.limits;
        let there = self.outbox.queues.get(queue);
        let waiting = there.map_or(0, |queue| queue.messages.len());
        let waiting = waiting.saturating_add(further.messages);
        let of_devices = self.outbox.room_of(DEVICE_QUEUE);
        if queue.starts_with(DEVICE_QUEUE) {
            let all = of_devices.and(further);
            return waiting <= limits.messages_waiting
                && all.places <= limits.messages_waiting_total
                && all.octets <= limits.messages_octets;
        }
        let before = self.outbox.room().without(of_devices);
        let of_payer = self.outbox.room_of(&self.payer_of(queue));
        let (all, own) = (before.and(further), of_payer.and(further));
        let has_octets = all.octets <= limits.notifications_octets
            && own.octets <= share(limits.notifications_octets);
        // One may be larger than its part, but then alone.
        let is_alone = of_payer.messages == 0 && before.octets <= limits.notifications_octets;
        waiting <= limits.notifications_waiting
            && all.places <= limits.notifications_waiting_total
            && own.places <= share(limits.notifications_waiting_total)
            && (has_octets || is_alone)
    }

    /// Whether a queue has room for one further message of so many octets.
    pub(super) fn has_room_for(&self, queue: &str, octets: usize) -> bool {
        self.has_places(queue, MessageRoom::of(octets))
    }

    /// Whether devices' messages have reached one of their limits.
    fn are_devices_full(&self) -> bool {
        let (there, limits) = (self.outbox.room_of(DEVICE_QUEUE), &self.config.limits);
        there.messages >= limits.messages_waiting_total || there.octets >= limits.messages_octets
    }

    /// Whether there is room for a message. A device's resources are few and its readings need them,
    /// so they may use a quarter more than its readings.
    pub(super) fn fits(&self, message: &OutboxMessage) -> bool {
        let is_first = || self.is_queue_empty(&message.queue);
        if self.has_places(&message.queue, message.room())
            || (self.lagging.is_catching_up(&message.queue) && is_first())
        {
            return true;
        }
        let limits = &self.config.limits;
        let and_a_quarter = |most: usize| most.saturating_add(share(most));
        let there = self.outbox.queues.get(&message.queue);
        let of_devices = self.outbox.room_of(DEVICE_QUEUE);
        message.queue.starts_with(DEVICE_QUEUE)
            && !message.is_reading()
            && there.map_or(0, |queue| queue.messages.len())
                < and_a_quarter(limits.messages_waiting)
            && of_devices.places < and_a_quarter(limits.messages_waiting_total)
            && of_devices.octets < and_a_quarter(limits.messages_octets)
    }

    /// The entity whose quota a queue's messages use: the devices of this CSE together, the
    /// subscription's creator, or the receiver of answers or announcements.
    fn payer_of(&self, queue: &str) -> Arc<str> {
        if let Some(queue) = self.outbox.queues.get(queue) {
            return Arc::clone(&queue.payer);
        }
        if queue.starts_with(DEVICE_QUEUE) {
            return DEVICE_QUEUE.into();
        }
        let (first, rest) = queue.split_once(' ').unwrap_or((queue, ""));
        let maker = self.tree.by_id(first).and_then(|slot| self.tree.get(slot));
        maker.map_or(rest, |maker| maker.owner.as_ref()).into()
    }

    /// Messages of a queue that wait or are in progress.
    pub(super) fn queue_len(&self, queue: &str) -> usize {
        self.outbox.queues.get(queue).map_or(0, |queue| queue.messages.len())
    }

    /// Whether a queue is empty.
    pub(super) fn is_queue_empty(&self, queue: &str) -> bool {
        !self.outbox.queues.contains_key(queue)
    }

    /// Queues and stores an outbox message, to be sent in its turn.
    ///
    /// # Errors
    ///
    /// 5103 if the queue is full.
    pub(super) fn post(&mut self, message: OutboxMessage) -> Result<(), Refusal> {
        if !self.fits(&message) {
            return Err(no_room());
        }
        let seq = self.ledger.next_seq();
        let kept = Kept::new(message, self.moment, self.ledger.number());
        self.ledger
            .write(RowChange::Put { seq, body: kept.to_record() }, RowChange::Delete { seq });
        self.note_message(&kept.message, End::Waits);
        let queue = Arc::clone(&kept.message.queue);
        let payer = self.payer_of(&queue);
        self.outbox.keep(seq, kept, payer);
        self.run_queue(&queue);
        Ok(())
    }

    /// Executes a request with an outbox message that is queued if the request succeeds. A device's
    /// request is executed whether the outbox has room or not: the message of a reading is made from
    /// the tree later, and resources that the CSE above lacks are created there when it says so.
    pub(super) fn take_both(&mut self, token: Token, request: &Request, message: OutboxMessage) {
        let container = self.backlog_of(request, &message);
        if container.is_some() || self.fits(&message) {
            self.outbox.beside.insert(token, MessageBeside { message, container });
        } else if message.queue.starts_with(DEVICE_QUEUE) {
            self.counters.messages_left_out += 1;
        } else {
            let asker = self.asker(token, request);
            self.answer(&asker, Err(no_room()));
            return;
        }
        self.take_request(token, request, true);
    }

    /// Notes the container of a reading that waits: when it is stored, there may be no room for its
    /// message any more.
    pub(super) fn note_backlog_place(&mut self, asker: &RequestContext, request: &Request) {
        let Recipient::Outside(token, _) = asker.whom else { return };
        let Some(beside) = self.outbox.beside.get(&token) else { return };
        if beside.container.is_none() && beside.message.may_be_made_later() {
            let container = self.container_of(request);
            if let Some(beside) = self.outbox.beside.get_mut(&token) {
                beside.container = container;
            }
        }
    }

    /// Queues the outbox message of an answered request if that succeeded, or puts its reading into
    /// the backlog of its container; returns the answer to both.
    pub(super) fn post_beside(&mut self, token: Token, response: Response) -> Response {
        let Some(MessageBeside { message, container }) = self.outbox.take_beside(token) else {
            return response;
        };
        if !response.fate().is_stored() {
            return response;
        }
        if let Some(container) = container
            && (self.outbox.backlogs.has(container)
                || !self.has_places(&message.queue, message.room()))
        {
            let queue = Arc::clone(&message.queue);
            self.note_octets_full(&message);
            self.put_in_backlog(container, message);
            self.run_queue(&queue);
            return response;
        }
        match self.post(message) {
            Ok(()) => response,
            // Who asked waited for others, and the room is gone.
            Err(refusal) => Response::refusing(&refusal, response.id, response.release),
        }
    }

    /// Counts a device's message for which there is a place, but not the octets.
    fn note_octets_full(&mut self, message: &OutboxMessage) {
        let all = self.outbox.room_of(DEVICE_QUEUE).and(message.room());
        let limits = &self.config.limits;
        let is_number = all.places > limits.messages_waiting_total;
        if !is_number && all.octets > limits.messages_octets {
            self.counters.outbox_octets_full += 1;
        }
    }

    /// Drops the oldest message of a queue that is not in progress, to make room.
    pub(super) fn drop_oldest(&mut self, queue: &str) {
        let oldest = self.outbox.queues.get(queue).and_then(|queue| queue.next());
        if let Some((seq, _)) = oldest {
            self.counters.notifications_dropped += 1;
            self.discard(seq, End::GivenUp);
        }
    }

    /// Messages of a queue that are not in progress.
    pub(super) fn unsent_in(&self, queue: &str) -> usize {
        self.outbox.queues.get(queue).map_or(0, Queue::unsent)
    }

    /// Drops every message of a queue except the last and those in progress.
    pub(super) fn keep_latest(&mut self, queue: &str) {
        for _ in 1..self.unsent_in(queue) {
            self.drop_oldest(queue);
        }
    }

    /// Sends a queue's incomplete batch at once, since no further notification follows.
    pub(super) fn flush(&mut self, name: &Arc<str>) {
        let Some(queue) = self.outbox.queues.get_mut(name) else { return };
        for (&seq, kept) in &mut queue.messages {
            if kept.message.batch.is_none() {
                continue;
            }
            let before = kept.to_record();
            if let Some(gather) = &mut kept.message.batch {
                gather.duration = Duration::ZERO;
            }
            let body = kept.to_record();
            self.ledger.write(RowChange::Put { seq, body }, RowChange::Put { seq, body: before });
        }
        self.run_queue(name);
    }

    /// Removes a message that is done with. Its row is deleted with others.
    fn discard(&mut self, seq: u64, end: End) {
        let Some(kept) = self.outbox.forget(seq) else { return };
        self.note_message(&kept.message, end);
        if let Some(container) = kept.backlog {
            self.outbox.backlogs.done(container, seq);
        } else {
            self.outbox.done.push((seq, kept));
        }
        let by = self.moment.plus(DELETED_WITHIN);
        self.outbox.delete_by.get_or_insert(by);
    }

    /// Deletes the rows of messages that are done with, in one batch: at once, or when there are
    /// many, or after a while.
    pub(super) fn delete_done(&mut self, at_once: bool) {
        let outbox = &self.outbox;
        let is_time = outbox.delete_by.is_some_and(|by| by <= self.moment);
        let are_many = outbox.done.len() >= DELETED_TOGETHER && self.unstored.0 <= self.moment;
        if outbox.delete_by.is_none() || !(at_once || is_time || are_many) {
            return;
        }
        self.outbox.delete_by = None;
        let mut done = core::mem::take(&mut self.outbox.done);
        // Consecutive rows are deleted by one statement.
        done.sort_unstable_by_key(|(seq, _)| *seq);
        for (seq, kept) in done {
            let undo = Undo::Message { seq, kept };
            self.ledger.write(RowChange::Delete { seq }, undo);
        }
        if self.outbox.backlogs.has_changed() {
            self.store_backlogs();
        }
    }

    /// Changes the target of messages, and sends them at once.
    pub(super) fn readdress(&mut self, from: &str, to: &str) {
        let target: Arc<str> = to.into();
        let mut queues = self.readdress_backlogs(from, &target);
        for (name, queue) in &mut self.outbox.queues {
            let mut moved = false;
            for (&seq, kept) in &mut queue.messages {
                if *kept.message.target != *from {
                    continue;
                }
                moved = true;
                let before = kept.backlog.is_none().then(|| kept.to_record());
                kept.message.target = Arc::clone(&target);
                if let Some(before) = before {
                    let body = kept.to_record();
                    self.ledger
                        .write(RowChange::Put { seq, body }, RowChange::Put { seq, body: before });
                }
            }
            if moved {
                (queue.failures, queue.is_in_line) = (0, false);
                queues.push(Arc::clone(name));
            }
        }
        for queue in queues {
            self.outbox.wake_at(&queue, self.moment);
        }
    }

    fn drop_stale(&mut self, name: &str) {
        let queue = self.outbox.queues.get(name);
        let stale = queue.map_or_else(Vec::new, |queue| queue.stale(self.moment));
        for seq in stale {
            self.counters.messages_aged += 1;
            self.discard(seq, End::GivenUp);
        }
    }
}

fn no_room() -> Refusal {
    Refusal::new(Status::TargetNotReachable, "too much waits to be sent")
}

/// Combines notifications into one `m2m:agn` (TS-0004, m2m:aggregatedNotification).
fn gathered<'text>(contents: impl Iterator<Item = &'text str>) -> String {
    let mut text = String::from("{\"m2m:agn\":{\"m2m:sgn\":[");
    for (at, content) in contents.enumerate() {
        if at > 0 {
            text.push(',');
        }
        let inner = content.strip_prefix("{\"m2m:sgn\":").and_then(|rest| rest.strip_suffix('}'));
        text.push_str(inner.unwrap_or("{}"));
    }
    text.push_str("]}}");
    text
}
