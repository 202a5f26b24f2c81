//! Readings stored while the outbox had no room for their messages: the messages are made from the
//! tree when their queue has room.
//!
//! A backlog begins with the first such instance of a container, and later instances of that
//! container join it, so that their order is kept. Its row has the number of the first instance that
//! has not arrived. Messages made from it have no rows: after a restart they are made again.

use super::record::Kept;
use super::{DEVICE_QUEUE, OutboxMessage};
use crate::address::Address;
use crate::cse::Cse;
use crate::cse::ledger::Undo;
use crate::cse::target::Target;
use crate::primitive::{Operation, Request};
use crate::release::Release;
use crate::resource::Resource;
use crate::resource_type::ResourceType;
use crate::tree::{Instance, RowChange};
use core::time::Duration;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Messages of one queue that are made from the tree at a time.
const MADE_MAX: usize = 64;
/// The same while the outbox is full.
const MADE_WHEN_FULL: usize = 4;
/// Queues that stand in a target's line and containers that are read for it: at so many, no more messages
/// are made from the tree for that target. Each message that is sent makes room for the next.
const MADE_AHEAD: usize = 512;
/// Attributes that a creator gives a contentInstance.
const GIVEN: [&str; 8] = ["rn", "con", "cnf", "lbl", "or", "conr", "dgt", "loc"];

/// A container with instances whose messages are made from the tree.
#[derive(Debug)]
struct Backlog {
    /// Its row.
    row: u64,
    queue: Arc<str>,
    target: Arc<str>,
    /// The container at the CSE above.
    to: String,
    from: String,
    release: Release,
    keep: Option<Duration>,
    /// The number that the first instance without a message has at least.
    next: u64,
    /// Instances whose messages have not arrived.
    waiting: BTreeSet<u64>,
    /// The stored row.
    stored: Arc<str>,
}

impl Backlog {
    /// Prefix of a backlog's row.
    const MARK: &'static str = "{\"_b\":";

    fn to_record(&self, container: u64) -> Arc<str> {
        let body = json!({
            "queue": &*self.queue,
            "target": &*self.target,
            "to": self.to,
            "from": self.from,
            "release": self.release.text(),
            "keep": self.keep.map(|keep| keep.as_micros()),
            "container": container,
            "first": self.waiting.first().copied().unwrap_or(self.next),
        });
        format!("{}{body}}}", Self::MARK).into()
    }

    /// The message that creates an instance at the CSE above.
    fn message(&self, instance: &Resource) -> Option<OutboxMessage> {
        let content = creation(&instance.to_text())?;
        let id = format!("{}-{}", self.from.trim_start_matches('/'), instance.id);
        let request = Request::new(Operation::Create, &*self.to, &*self.from, id);
        let request = Request { release: self.release, ..request };
        Some(OutboxMessage {
            queue: Arc::clone(&self.queue),
            target: Arc::clone(&self.target),
            request: request.creating(ResourceType::ContentInstance, content).into(),
            keep: self.keep,
            batch: None,
        })
    }

    /// Parses a stored row, if it is a backlog's; with the number of its container.
    fn from_record(row: u64, stored: &Arc<str>) -> Option<(u64, Self)> {
        let body = stored.strip_prefix(Self::MARK)?.strip_suffix('}')?;
        let body: Value = serde_json::from_str(body).ok()?;
        let text = |name: &str| body.get(name).and_then(Value::as_str);
        let number = |name: &str| body.get(name).and_then(Value::as_u64);
        let backlog = Self {
            row,
            queue: text("queue")?.into(),
            target: text("target")?.into(),
            to: text("to")?.to_owned(),
            from: text("from")?.to_owned(),
            release: Release::parse(text("release")?).ok()?,
            keep: number("keep").map(Duration::from_micros),
            next: number("first")?,
            waiting: BTreeSet::new(),
            stored: Arc::clone(stored),
        };
        Some((number("container")?, backlog))
    }
}

/// Every backlog.
#[derive(Debug, Default)]
pub(super) struct Backlogs {
    /// By the number of the container.
    all: BTreeMap<u64, Backlog>,
    /// The containers of a queue.
    of_queue: HashMap<Arc<str>, BTreeSet<u64>>,
    /// Backlogs whose row is to be written again.
    changed: BTreeSet<u64>,
    /// What is still to be made, by target; none for a target that lacks nothing.
    ahead: HashMap<Arc<str>, Ahead>,
}

/// What is still to be made from the tree for a target.
#[derive(Debug, Default)]
struct Ahead {
    /// Queues whose messages are made when the target takes more, each once: they take turns.
    line: VecDeque<Arc<str>>,
    in_line: HashSet<Arc<str>>,
    /// Containers whose instances are being read.
    reading: HashSet<u64>,
}

impl Ahead {
    fn push(&mut self, queue: &Arc<str>) {
        if self.in_line.insert(Arc::clone(queue)) {
            self.line.push_back(Arc::clone(queue));
        }
    }

    fn pop(&mut self) -> Option<Arc<str>> {
        let queue = self.line.pop_front()?;
        self.in_line.remove(&queue);
        Some(queue)
    }

    fn is_empty(&self) -> bool {
        self.line.is_empty() && self.reading.is_empty()
    }
}

impl Backlogs {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn has(&self, container: u64) -> bool {
        self.all.contains_key(&container)
    }

    pub(super) fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// The stored rows.
    pub(super) fn rows(&self) -> impl Iterator<Item = (u64, Arc<str>)> {
        self.all.values().map(|backlog| (backlog.row, Arc::clone(&backlog.stored)))
    }

    /// The queues of all.
    pub(super) fn queues(&self) -> Vec<Arc<str>> {
        self.of_queue.keys().cloned().collect()
    }

    /// The target of a queue's messages.
    fn target_of(&self, queue: &str) -> Option<&Arc<str>> {
        let container = self.of_queue.get(queue)?.first()?;
        self.all.get(container).map(|backlog| &backlog.target)
    }

    /// Targets for which messages are made later.
    pub(super) fn targets(&self) -> impl Iterator<Item = &Arc<str>> {
        self.ahead.keys()
    }

    /// Whether so many queues in line and those that are being read for are enough for a target.
    pub(super) fn are_enough(&self, target: &str, in_line: usize) -> bool {
        let reading = self.ahead.get(target).map_or(0, |ahead| ahead.reading.len());
        in_line + reading >= MADE_AHEAD
    }

    fn ahead_of(&mut self, target: &Arc<str>) -> &mut Ahead {
        self.ahead.entry(Arc::clone(target)).or_default()
    }

    /// The queue whose messages for this target are made next.
    fn next_queue(&mut self, target: &str) -> Option<Arc<str>> {
        let ahead = self.ahead.get_mut(target)?;
        let queue = ahead.pop();
        if ahead.is_empty() {
            self.ahead.remove(target);
        }
        queue
    }

    /// Notes that instances of a container were read.
    fn note_read(&mut self, container: u64) {
        self.ahead.retain(|_, ahead| {
            ahead.reading.remove(&container);
            !ahead.is_empty()
        });
    }

    fn put(&mut self, container: u64, backlog: Backlog) {
        self.of_queue.entry(Arc::clone(&backlog.queue)).or_default().insert(container);
        self.all.insert(container, backlog);
    }

    fn take(&mut self, container: u64) -> Option<Backlog> {
        let backlog = self.all.remove(&container)?;
        self.changed.remove(&container);
        if let Some(containers) = self.of_queue.get_mut(&backlog.queue) {
            containers.remove(&container);
            if containers.is_empty() {
                self.of_queue.remove(&backlog.queue);
            }
        }
        Some(backlog)
    }

    /// Restores a stored row, if it is a backlog's. One that is known knows better what has arrived.
    pub(super) fn restore(&mut self, row: u64, body: &Arc<str>) -> bool {
        let Some((container, backlog)) = Backlog::from_record(row, body) else { return false };
        match self.all.get_mut(&container) {
            Some(known) => {
                known.stored = Arc::clone(body);
                self.changed.insert(container);
            }
            None => self.put(container, backlog),
        }
        true
    }

    /// Removes the backlog with this row, which could not be stored.
    pub(super) fn forget(&mut self, row: u64) {
        let found = self.all.iter().find(|(_, backlog)| backlog.row == row);
        if let Some(container) = found.map(|(&container, _)| container) {
            self.take(container);
        }
    }

    /// Notes that the message of an instance has arrived, or will not.
    pub(super) fn done(&mut self, container: u64, seq: u64) {
        if let Some(backlog) = self.all.get_mut(&container)
            && backlog.waiting.remove(&seq)
        {
            self.changed.insert(container);
        }
    }
}

impl Cse {
    /// Containers with readings whose messages to the CSE above are made from the tree, as the
    /// outbox was full.
    pub fn backlogs(&self) -> usize {
        self.outbox.backlogs.len()
    }

    /// The container in whose backlog a reading's message belongs, if there is one or the queue has
    /// no room.
    pub(super) fn backlog_of(&self, request: &Request, message: &OutboxMessage) -> Option<u64> {
        let has_room = self.has_places(&message.queue, message.room());
        if !message.may_be_made_later() || (has_room && self.outbox.backlogs.is_empty()) {
            return None;
        }
        let container = self.container_of(request)?;
        (self.outbox.backlogs.has(container) || !has_room).then_some(container)
    }

    /// The number of the resource below which a request creates.
    pub(in crate::cse) fn container_of(&self, request: &Request) -> Option<u64> {
        let to = Address::parse(&request.to, &self.config.cse_id, &self.config.provider);
        let Address::Here(path) = to else { return None };
        let Some(Target::Resource(slot)) = self.resolve(path) else { return None };
        self.tree.get(slot).map(|container| container.seq)
    }

    /// Puts the instance of a container that was created last into its backlog.
    pub(super) fn put_in_backlog(&mut self, container: u64, message: OutboxMessage) {
        self.counters.readings_backlogged += 1;
        if self.outbox.backlogs.has(container) {
            return;
        }
        let row = self.ledger.next_seq();
        let OutboxMessage { queue, target, request, keep, .. } = message;
        let Request { to, from, release, .. } = Arc::unwrap_or_clone(request);
        let (next, waiting, stored) = (self.outbox.first_made, BTreeSet::new(), "".into());
        let mut backlog =
            Backlog { row, queue, target, to, from, release, keep, next, waiting, stored };
        backlog.stored = backlog.to_record(container);
        let body = Arc::clone(&backlog.stored);
        self.ledger.write(RowChange::Put { seq: row, body }, RowChange::Delete { seq: row });
        self.outbox.backlogs.put(container, backlog);
    }

    /// Makes messages of a queue's backlogs as far as there is room, and ends those of which nothing
    /// is left; later, if the target takes nothing for now or has enough to take. What is made ahead
    /// of that costs reads and memory, and holds up devices' answers, for nothing.
    pub(super) fn refill(&mut self, queue: &Arc<str>) {
        if self.outbox.backlogs.is_empty() {
            return;
        }
        let Some(target) = self.outbox.backlogs.target_of(queue).cloned() else { return };
        if self.outbox.takes_more(&target) {
            self.refill_now(queue);
        } else {
            self.outbox.backlogs.ahead_of(&target).push(queue);
        }
    }

    fn refill_now(&mut self, queue: &Arc<str>) {
        let most = if self.are_devices_full() { MADE_WHEN_FULL } else { MADE_MAX };
        let there = self.outbox.queues.get(queue).map_or(0, |queue| queue.messages.len());
        if there > most / 2 {
            return;
        }
        let Some(containers) = self.outbox.backlogs.of_queue.get(queue).cloned() else { return };
        let each = (most / containers.len()).max(1);
        for container in containers {
            self.refill_from(container, each);
        }
    }

    /// Makes messages for a target from backlogs that waited until it takes more.
    pub(super) fn make_later(&mut self, target: &Arc<str>) {
        while self.outbox.takes_more(target)
            && let Some(queue) = self.outbox.backlogs.next_queue(target)
        {
            self.refill_now(&queue);
            if let Some(other) = self.line_up(&queue).filter(|other| other != target) {
                self.run_target(&other);
            }
        }
    }

    /// Makes messages of a container's backlog that were read for it.
    pub(in crate::cse) fn refill_container(&mut self, container: u64) {
        self.outbox.backlogs.note_read(container);
        let backlog = self.outbox.backlogs.all.get(&container);
        let ends = backlog.map(|it| (Arc::clone(&it.queue), Arc::clone(&it.target)));
        if let Some((queue, target)) = ends {
            self.refill_now(&queue);
            self.run_queue(&queue);
            // The others wait for what this one may not have.
            self.run_target(&target);
        }
    }

    fn refill_from(&mut self, container: u64, most: usize) {
        let Some(backlog) = self.outbox.backlogs.all.get_mut(&container) else { return };
        // Instances alone, from that number on.
        let (after, range) = (Some((true, 0)), (backlog.next, u64::MAX));
        let parent = self.tree.by_seq(container);
        let found =
            parent.into_iter().flat_map(|parent| self.tree.children_after(parent, after, range));
        let found: Vec<(u64, Instance)> =
            found.take(most).map(|((_, seq), instance)| (seq, instance)).collect();
        let Some(&(last, _)) = found.last() else {
            if backlog.waiting.is_empty()
                && let Some(ended) = self.outbox.backlogs.take(container)
            {
                let Backlog { row: seq, stored: body, .. } = ended;
                self.ledger.write(RowChange::Delete { seq }, RowChange::Put { seq, body });
            }
            return;
        };
        if self.read_for_backlog(container, &found) {
            let backlogs = &mut self.outbox.backlogs;
            if let Some(target) = backlogs.all.get(&container).map(|it| Arc::clone(&it.target)) {
                backlogs.ahead_of(&target).reading.insert(container);
            }
            return;
        }
        let Some(backlog) = self.outbox.backlogs.all.get_mut(&container) else { return };
        backlog.next = last.saturating_add(1);
        let mut made = Vec::new();
        for (seq, instance) in found {
            let Instance::Resident(slot) = instance else { continue };
            let Some(instance) = self.tree.get(slot) else { continue };
            let Some(message) = backlog.message(instance) else { continue };
            backlog.waiting.insert(seq);
            let mut kept = Kept::new(message, self.moment, instance.stored_by);
            kept.backlog = Some(container);
            made.push((seq, kept));
        }
        let payer = Arc::from(DEVICE_QUEUE);
        for (seq, kept) in made {
            self.outbox.keep(seq, kept, Arc::clone(&payer));
        }
    }

    /// Sends what backlogs of an earlier run have left.
    pub(in crate::cse) fn pursue_backlogs(&mut self) {
        for queue in self.outbox.backlogs.queues() {
            self.run_queue(&queue);
        }
    }

    /// Changes the target of backlogs; returns their queues.
    pub(super) fn readdress_backlogs(&mut self, from: &str, to: &Arc<str>) -> Vec<Arc<str>> {
        let mut queues = Vec::new();
        for backlog in self.outbox.backlogs.all.values_mut() {
            if *backlog.target == *from {
                backlog.target = Arc::clone(to);
                queues.push(Arc::clone(&backlog.queue));
            }
        }
        self.outbox.backlogs.ahead.remove(from);
        for queue in &queues {
            self.outbox.backlogs.ahead_of(to).push(queue);
        }
        if !queues.is_empty() {
            self.outbox.wake_target_at(to, self.moment);
        }
        let all = self.outbox.backlogs.all.keys().copied();
        self.outbox.backlogs.changed.extend(all);
        self.outbox.delete_by.get_or_insert(self.moment);
        queues
    }

    /// Writes which instances have arrived.
    pub(super) fn store_backlogs(&mut self) {
        let backlogs = &mut self.outbox.backlogs;
        for container in core::mem::take(&mut backlogs.changed) {
            let Some(backlog) = backlogs.all.get_mut(&container) else { continue };
            let seq = backlog.row;
            let body = backlog.to_record(container);
            let before = core::mem::replace(&mut backlog.stored, Arc::clone(&body));
            self.ledger.write(
                RowChange::Put { seq, body },
                Undo::Row(RowChange::Put { seq, body: before }),
            );
        }
    }
}

/// The content that creates an instance like the one with this representation; numbers digit for
/// digit.
fn creation(text: &str) -> Option<String> {
    let tag = ResourceType::ContentInstance.tag();
    let outer: BTreeMap<&str, BTreeMap<&str, &RawValue>> = serde_json::from_str(text).ok()?;
    let mut attributes = outer.get(tag)?.clone();
    attributes.retain(|name, _| GIVEN.contains(name));
    let attributes = serde_json::to_string(&attributes).ok()?;
    Some(format!("{{\"{tag}\":{attributes}}}"))
}
