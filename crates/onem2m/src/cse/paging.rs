//! Paging of contentInstances: which leave memory, so that their text is in the store only, and how
//! they come back.
//!
//! Memory holds the tree, the instances that came into it last, and a record of each other one
//! ([`InstanceRecord`](crate::paged::InstanceRecord)). A request that meets an instance without its
//! text has changed nothing yet. It waits until the rows that it needs are read, and is executed
//! anew in the step that brings them; a walk over the tree continues where it was. Reads are
//! gathered: one is under way, and everything that waits meanwhile goes with the next.

use super::ledger::Undo;
use super::notify::NotificationEventType;
use super::search::UnfinishedSearch;
use super::subscription::events;
use super::{Cse, Output, Recipient, Refusal, RequestContext, Token, not_found};
use crate::clock::Moment;
use crate::limits::share;
use crate::primitive::{Request, Response};
use crate::record_block::stays_in_memory;
use crate::resource::Resource;
use crate::resource_type::ResourceType;
use crate::status::Status;
use crate::stored::{Damage, Unreadable};
use crate::tree::{Instance, RowChange, Slot};
use core::cell::RefCell;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Number of a read; the rows come with the same.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ReadId(pub u64);

/// The store could not be read.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the store cannot be read: {0}")]
pub struct ReadError(pub String);

/// A row that was read, or what is wrong with it.
pub type ReadRow = (u64, Result<Arc<str>, Damage>);

/// Rows from which a read has no more of those that wait.
pub(super) const READ_ROWS: usize = 1_024;
/// Expired instances read at a time, for the notifications about them.
const EXPIRED_AT_ONCE: usize = 256;
/// Pause after a read that failed.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Instances that are examined in each step, beside two for each that has come into memory.
const EXAMINED: usize = 64;
/// Instances of a container that leave memory together at most: to find the container and its indices
/// takes longer than all else of it.
const LEAVE_TOGETHER: usize = 8;
/// So large a part of the memory for instances is made free by those that leave together.
const FREE_PART: usize = 64;
/// Numbers of resident instances that are kept beside twice their count.
const RECENT_SPARE: usize = 1_024;

/// An instance whose row is needed.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct NeededRow {
    pub(super) seq: u64,
    /// The number of its container, if that is known: nothing else tells in which container the
    /// record of a row is that is damaged or was deleted, but a walk over all of them.
    container: Option<u64>,
}

/// An operation that waits for rows.
#[derive(Debug)]
enum Waiter {
    Request(Box<WaitingRequest>),
    Search(Box<UnfinishedSearch>),
    /// A repeated request, whose answer has the resource of a row as its content.
    Repeated(Box<RepeatedRequest>),
    /// An observer, whose answer may have changed.
    Observer(Token),
    /// The queue of a subscription that lags behind.
    Lagging(Arc<str>),
    /// The container of a backlog, by number.
    Backlog(u64),
    /// A subscription to be notified of earlier events, by number.
    Earlier(u64),
    /// Expired instances.
    Expired,
}

impl Waiter {
    /// Whether the texts of the rows are enough: the instances need not become resident.
    fn wants_texts(&self) -> bool {
        matches!(self, Self::Search(search) if search.wants_texts())
    }

    /// By what it is found among those that wait.
    fn key(&self) -> Option<WaiterKey> {
        match self {
            Self::Request(waiting) => match waiting.asker.whom {
                Recipient::Outside(token, _) => Some(WaiterKey::Request(token)),
                _ => None,
            },
            Self::Observer(token) => Some(WaiterKey::Observer(*token)),
            Self::Lagging(queue) => Some(WaiterKey::Lagging(Arc::clone(queue))),
            Self::Backlog(container) => Some(WaiterKey::Backlog(*container)),
            Self::Expired => Some(WaiterKey::Expired),
            Self::Search(_) | Self::Repeated(_) | Self::Earlier(_) => None,
        }
    }
}

/// What waits for rows once at a time.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum WaiterKey {
    Request(Token),
    Observer(Token),
    Lagging(Arc<str>),
    Backlog(u64),
    Expired,
}

/// A request that is executed anew when rows are read.
#[derive(Debug)]
struct WaitingRequest {
    asker: RequestContext,
    request: Request,
    attempt: Attempt,
}

/// A repeated request that is answered as before when a row is read.
#[derive(Debug)]
struct RepeatedRequest {
    asker: RequestContext,
    response: Response,
    row: u64,
}

/// The effects of earlier attempts to execute a request.
#[derive(Clone, Debug, Default)]
struct Attempt {
    /// Rows that it has waited for.
    rows: BTreeSet<NeededRow>,
    /// Whether the monitors of its target were notified of it.
    has_told: bool,
}

#[derive(Debug)]
struct Waiting {
    rows: Vec<NeededRow>,
    waiter: Waiter,
}

/// Everything that waits for rows, in turn. Thousands of containers may: whether one does must not
/// take longer the more do.
#[derive(Debug, Default)]
struct WaitingLine {
    line: VecDeque<Waiting>,
    keys: HashSet<WaiterKey>,
}

impl WaitingLine {
    fn push(&mut self, waiting: Waiting) {
        self.keys.extend(waiting.waiter.key());
        self.line.push_back(waiting);
    }

    /// Takes the first ones out.
    fn take(&mut self, count: usize) -> Vec<Waiting> {
        let taken: Vec<Waiting> = self.line.drain(..count).collect();
        for key in taken.iter().filter_map(|it| it.waiter.key()) {
            self.keys.remove(&key);
        }
        taken
    }

    fn has(&self, key: &WaiterKey) -> bool {
        self.keys.contains(key)
    }

    fn iter(&self) -> impl Iterator<Item = &Waiting> + Clone {
        self.line.iter()
    }
}

/// State of paging.
#[derive(Debug, Default)]
pub(super) struct Paging {
    /// Numbers of resident instances, in the order in which they came into memory or were followed by
    /// a later one of their container.
    recent: VecDeque<u64>,
    /// How many came since instances left last.
    came: usize,
    /// Rows that the request being executed lacks.
    missing: RefCell<BTreeSet<NeededRow>>,
    attempt: Attempt,
    waiting: WaitingLine,
    /// The read under way, and how many of the waiting it is for.
    reading: Option<(ReadId, usize)>,
    reads: u64,
    not_before: Moment,
    /// Instances that must not leave memory, with the number of searches that need them.
    pinned: HashMap<u64, usize>,
}

/// Whether an instance may leave memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Leaving {
    Now,
    /// The reason why it is kept may change.
    Later,
    Never,
}

impl Paging {
    /// Time of the next read, if one failed.
    pub(super) fn due(&self) -> Option<Moment> {
        (self.reading.is_none() && !self.waiting.line.is_empty()).then_some(self.not_before)
    }

    /// Requests and searches that wait, and those of one originator.
    fn counts(&self, from: &str) -> (usize, usize) {
        let askers = self.waiting.iter().filter_map(|it| match &it.waiter {
            Waiter::Request(waiting) => Some(&waiting.asker),
            Waiter::Search(search) => Some(search.asker()),
            Waiter::Repeated(repeated) => Some(&repeated.asker),
            _ => None,
        });
        let askers = askers.filter(|it| !matches!(it.whom, Recipient::Member(..)));
        askers.fold((0, 0), |(all, own), it| (all + 1, own + usize::from(*it.from == *from)))
    }

    /// Searches that wait.
    pub(super) fn searches(&self) -> impl Iterator<Item = &RequestContext> + Clone {
        self.waiting.iter().filter_map(|it| match &it.waiter {
            Waiter::Search(search) => Some(search.asker()),
            _ => None,
        })
    }

    /// Whether the request with this token waits for rows.
    pub(super) fn has_waiting(&self, token: Token) -> bool {
        self.waiting.has(&WaiterKey::Request(token))
    }

    /// Keeps instances in memory as long as a search needs them.
    pub(super) fn pin(&mut self, rows: &[u64]) {
        for &row in rows {
            *self.pinned.entry(row).or_default() += 1;
        }
    }

    /// Ends [`Self::pin`].
    pub(super) fn unpin(&mut self, rows: &[u64]) {
        for row in rows {
            if let Some(count) = self.pinned.get_mut(row) {
                *count -= 1;
                if *count == 0 {
                    self.pinned.remove(row);
                }
            }
        }
    }
}

/// Requests that lack rows.
impl Cse {
    /// Executes a request; the answer is given now or, if other entities must be asked or rows read
    /// first, later.
    pub(super) fn serve(&mut self, asker: &RequestContext, request: &Request) {
        self.attempt(asker, request, Attempt::default());
    }

    fn attempt(&mut self, asker: &RequestContext, request: &Request, attempt: Attempt) {
        self.paging.missing.take();
        self.paging.attempt = attempt.clone();
        self.outbox.first_made = self.ledger.peek_seq();
        let performed = self.perform(asker, request);
        let missing = self.paging.missing.take();
        match performed {
            Ok(Some(done)) => self.answer(asker, Ok(done)),
            Ok(None) => self.note_place(asker),
            // A refusal for want of rows: nothing was changed.
            Err(refusal) => {
                if missing.is_subset(&attempt.rows) {
                    self.answer(asker, Err(refusal));
                } else {
                    self.await_rows(asker, request, attempt, missing);
                }
            }
        }
    }

    /// Answers a repeated request as before, perhaps with the resource of a row that is to be read;
    /// without it if that is not possible. `container` is that of an instance which it created.
    pub(super) fn repeat(
        &mut self,
        asker: RequestContext,
        response: Response,
        row: Option<u64>,
        container: Option<u64>,
    ) {
        match row {
            Some(row) if self.check_reads(&asker).is_ok() => {
                let repeated = Box::new(RepeatedRequest { asker, response, row });
                let needed = NeededRow { seq: row, container };
                self.read_for(vec![needed], Waiter::Repeated(repeated));
            }
            _ => self.deliver(&asker, response),
        }
    }

    /// Has a request wait for rows.
    fn await_rows(
        &mut self,
        asker: &RequestContext,
        request: &Request,
        mut attempt: Attempt,
        missing: BTreeSet<NeededRow>,
    ) {
        attempt.has_told = self.paging.attempt.has_told;
        let rows = missing.iter().copied().collect();
        attempt.rows.extend(missing);
        let may_wait = self.check_reads(asker);
        if let Err(refusal) = may_wait.and_then(|()| self.check_rows(attempt.rows.len())) {
            self.answer(asker, Err(refusal));
            return;
        }
        self.counters.requests_paged += 1;
        self.note_backlog_place(asker, request);
        let (asker, request) = (asker.clone(), request.clone());
        let waiting = Box::new(WaitingRequest { asker, request, attempt });
        self.read_for(rows, Waiter::Request(waiting));
    }

    /// Whether one more request may wait for rows. Members of groups are limited by their groups.
    pub(super) fn check_reads(&mut self, asker: &RequestContext) -> Result<(), Refusal> {
        let most = self.config.limits.reads;
        let (all, own) = self.paging.counts(&asker.from);
        if matches!(asker.whom, Recipient::Member(..)) || (all < most && own < share(most)) {
            return Ok(());
        }
        self.counters.reads_full += 1;
        let words = "too many requests wait for the store to be read: ask again";
        Err(Refusal::new(Status::NotAcceptable, words))
    }

    fn check_rows(&self, rows: usize) -> Result<(), Refusal> {
        if rows <= self.config.limits.results {
            return Ok(());
        }
        let words = "more instances would have to be read from the store than may be at once";
        Err(Refusal::new(Status::NotAcceptable, words))
    }

    /// Notes rows that the request being executed lacks; the refusal with which it ends this time.
    pub(super) fn lacks(&self, rows: impl IntoIterator<Item = NeededRow>) -> Refusal {
        self.paging.missing.borrow_mut().extend(rows);
        not_found("the instance is not in memory")
    }

    /// Notes all instances of a container that are paged out, unless they are too many.
    pub(super) fn lacks_all(&self, container: Slot) -> Refusal {
        let Some(paged) = self.tree.paged_of(container) else {
            return not_found("the resource is gone");
        };
        match self.check_rows(paged.len()) {
            Ok(()) => self.lacks(self.rows_of(container, paged.since(0).map(|record| record.seq))),
            Err(refusal) => refusal,
        }
    }

    /// The rows of instances of a container.
    pub(super) fn rows_of(
        &self,
        container: Slot,
        instances: impl Iterator<Item = u64>,
    ) -> impl Iterator<Item = NeededRow> {
        let container = self.tree.get(container).map(|it| it.seq);
        instances.map(move |seq| NeededRow { seq, container })
    }

    /// Refuses unless all instances of a container are resident.
    pub(super) fn demand_all_resident(&self, container: Slot) -> Result<(), Refusal> {
        match self.tree.paged_of(container) {
            Some(_) => Err(self.lacks_all(container)),
            None => Ok(()),
        }
    }

    /// Notes an instance that a request names by its identifier, if it may be paged out: it has no
    /// slot.
    pub(super) fn lacks_by_id(&self, id: &str) -> Option<Slot> {
        let digits = id.strip_prefix(ResourceType::ContentInstance.prefix());
        let seq = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        if self.tree.paged() > 0
            && let Some(seq) = seq.filter(|&seq| seq < self.ledger.peek_seq())
        {
            self.paging.missing.borrow_mut().insert(NeededRow { seq, container: None });
        }
        None
    }

    /// The child of this name. If it may be one that is paged out, this is noted.
    pub(super) fn child(&self, parent: Slot, name: &str) -> Option<Slot> {
        let resident = self.tree.child(parent, name);
        if resident.is_none() && self.tree.paged() > 0 {
            let may_be = self.tree.paged_named(parent, name);
            let may_be = self.rows_of(parent, may_be.into_iter());
            self.paging.missing.borrow_mut().extend(may_be);
        }
        resident
    }

    /// Whether the request being executed lacks rows.
    pub(super) fn lacks_rows(&self) -> bool {
        !self.paging.missing.borrow().is_empty()
    }

    /// Whether the monitors of the target were notified of the request being executed; marks them
    /// as notified.
    pub(super) fn has_told_monitors(&mut self) -> bool {
        core::mem::replace(&mut self.paging.attempt.has_told, true)
    }

    /// The rows that a walk lacked.
    pub(super) fn missing(&self) -> Vec<NeededRow> {
        self.paging.missing.take().into_iter().collect()
    }

    /// The slot of an instance of a container; if it is paged out, this is noted.
    pub(super) fn resident(&self, container: Slot, instance: Instance) -> Result<Slot, Refusal> {
        match instance {
            Instance::Resident(slot) => Ok(slot),
            Instance::PagedOut(record) => {
                Err(self.lacks(self.rows_of(container, core::iter::once(record.seq))))
            }
        }
    }

    /// Has a search wait for rows.
    pub(super) fn read_for_search(&mut self, rows: Vec<NeededRow>, search: UnfinishedSearch) {
        self.counters.requests_paged += 1;
        self.read_for(rows, Waiter::Search(Box::new(search)));
    }

    /// Has an observer wait for rows.
    pub(super) fn read_for_observer(&mut self, rows: Vec<NeededRow>, token: Token) {
        if !self.paging.waiting.has(&WaiterKey::Observer(token)) {
            self.read_for(rows, Waiter::Observer(token));
        }
    }

    /// Reads instances for a subscription that lags behind; returns whether any are paged out.
    pub(super) fn read_for_lagging(
        &mut self,
        queue: &Arc<str>,
        parent: Slot,
        children: &[(u64, Instance)],
    ) -> bool {
        let rows: Vec<NeededRow> = self.rows_of(parent, paged_out(children)).collect();
        let is_lacking = !rows.is_empty();
        if is_lacking && !self.paging.waiting.has(&WaiterKey::Lagging(Arc::clone(queue))) {
            self.read_for(rows, Waiter::Lagging(Arc::clone(queue)));
        }
        is_lacking
    }

    /// Reads instances for a backlog; returns whether any are paged out.
    pub(super) fn read_for_backlog(
        &mut self,
        container: u64,
        instances: &[(u64, Instance)],
    ) -> bool {
        let needed = |seq| NeededRow { seq, container: Some(container) };
        let rows: Vec<NeededRow> = paged_out(instances).map(needed).collect();
        let is_lacking = !rows.is_empty();
        if is_lacking && !self.paging.waiting.has(&WaiterKey::Backlog(container)) {
            self.read_for(rows, Waiter::Backlog(container));
        }
        is_lacking
    }

    /// Reads instances for a subscription that is to be notified of them; returns whether any are
    /// paged out.
    pub(super) fn read_for_earlier(
        &mut self,
        subscription: u64,
        parent: Slot,
        instances: &[(u64, Instance)],
    ) -> bool {
        let rows: Vec<NeededRow> = self.rows_of(parent, paged_out(instances)).collect();
        let is_lacking = !rows.is_empty();
        if is_lacking {
            self.read_for(rows, Waiter::Earlier(subscription));
        }
        is_lacking
    }

    /// Reads expired instances of a container.
    pub(super) fn read_expired(&mut self, container: Slot) {
        if self.paging.waiting.has(&WaiterKey::Expired) {
            return;
        }
        let Some(paged) = self.tree.paged_of(container) else { return };
        let now = self.clock.expiring();
        let expired = paged.since(0).filter(|record| record.expires <= now);
        let expired = expired.take(EXPIRED_AT_ONCE).map(|record| record.seq);
        let rows = self.rows_of(container, expired).collect();
        self.read_for(rows, Waiter::Expired);
    }

    fn read_for(&mut self, rows: Vec<NeededRow>, waiter: Waiter) {
        self.paging.waiting.push(Waiting { rows, waiter });
    }

    /// Asks for the rows of those that wait longest, unless a read is under way.
    pub(super) fn ask_for_rows(&mut self) {
        if self.paging.reading.is_some() || self.moment < self.paging.not_before {
            return;
        }
        let (mut rows, mut count) = (BTreeSet::new(), 0);
        for waiting in self.paging.waiting.iter() {
            if count > 0 && rows.len() + waiting.rows.len() > READ_ROWS {
                break;
            }
            rows.extend(waiting.rows.iter().map(|it| it.seq));
            count += 1;
        }
        if count == 0 {
            return;
        }
        self.paging.reads += 1;
        let read = ReadId(self.paging.reads);
        self.paging.reading = Some((read, count));
        self.counters.rows_read += u64::try_from(rows.len()).unwrap_or(u64::MAX);
        self.ledger.say_now(Output::Read { read, rows: rows.into_iter().collect() });
    }

    /// Takes rows, and continues what waited for them.
    pub(super) fn take_rows(&mut self, read: ReadId, rows: Result<Vec<ReadRow>, ReadError>) {
        let Some((_, count)) = self.paging.reading.take_if(|(it, _)| *it == read) else {
            return;
        };
        let waiting = self.paging.waiting.take(count);
        match rows {
            Ok(rows) => {
                let waiting = self.hand_out(waiting, rows);
                for Waiting { waiter, .. } in waiting {
                    self.resume_after_read(waiter);
                }
            }
            Err(error) => {
                self.counters.reads_failed += 1;
                self.paging.not_before = self.moment.plus(READ_AGAIN_AFTER);
                for waiting in waiting {
                    self.fail_after_read(waiting, &error);
                }
            }
        }
    }

    /// Gives walks the texts that they only judge, and makes all other instances resident.
    fn hand_out(&mut self, mut waiting: Vec<Waiting>, mut rows: Vec<ReadRow>) -> Vec<Waiting> {
        rows.sort_unstable_by_key(|(seq, _)| *seq);
        // The container of each row, and whether its instance is to be resident.
        let mut needed: BTreeMap<u64, (Option<u64>, bool)> = BTreeMap::new();
        for Waiting { rows, waiter } in &waiting {
            for &NeededRow { seq, container } in rows {
                let known = needed.entry(seq).or_default();
                *known = (known.0.or(container), known.1 || !waiter.wants_texts());
            }
        }
        for Waiting { rows: wanted, waiter } in &mut waiting {
            let Waiter::Search(search) = waiter else { continue };
            if !search.wants_texts() {
                continue;
            }
            let text_of = |NeededRow { seq, .. }: &NeededRow| {
                let at = rows.binary_search_by_key(seq, |(number, _)| *number).ok()?;
                let (_, row) = rows.get(at)?;
                row.as_ref().ok().map(|text| (*seq, Arc::clone(text)))
            };
            search.take_texts(wanted.iter().filter_map(text_of).collect());
        }
        for (seq, row) in rows {
            let (container, is_needed) = needed.get(&seq).copied().unwrap_or_default();
            // What is damaged is reported, whoever asked for it.
            if row.is_err() || is_needed {
                self.page_in((seq, container), row);
            }
        }
        waiting
    }

    fn resume_after_read(&mut self, waiter: Waiter) {
        match waiter {
            Waiter::Request(waiting) => {
                let WaitingRequest { asker, request, attempt } = *waiting;
                self.attempt(&asker, &request, attempt);
                if let Recipient::Outside(token, _) = asker.whom {
                    self.observe_after_read(token);
                }
            }
            Waiter::Search(search) => self.continue_search(*search),
            Waiter::Repeated(repeated) => {
                let RepeatedRequest { asker, mut response, row } = *repeated;
                let resource = self.tree.by_seq(row).and_then(|slot| self.tree.get(slot));
                response.content = resource.map(Resource::to_text);
                self.deliver(&asker, response);
            }
            Waiter::Observer(token) => {
                self.notify_observer(token);
            }
            Waiter::Lagging(queue) => self.catch_up(&queue),
            Waiter::Backlog(container) => self.refill_container(container),
            Waiter::Earlier(seq) => {
                if let Some(slot) = self.tree.by_seq(seq) {
                    self.tell_earlier(slot);
                }
            }
            // They are resident, and expire in this step.
            Waiter::Expired => {}
        }
    }

    fn fail_after_read(&mut self, waiting: Waiting, error: &ReadError) {
        let refusal = || Refusal::new(Status::InternalServerError, error.to_string());
        match waiting.waiter {
            Waiter::Request(waiting) => {
                if let Recipient::Outside(token, _) = waiting.asker.whom {
                    self.observers.forget(token);
                }
                self.answer(&waiting.asker, Err(refusal()));
            }
            Waiter::Search(search) => self.fail_search(&search, refusal()),
            Waiter::Repeated(repeated) => self.deliver(&repeated.asker, repeated.response),
            // Nobody waits for their answer: they are read for again.
            _ => self.paging.waiting.push(waiting),
        }
    }

    /// Makes the instance with this row resident, unless it is so or was deleted meanwhile.
    fn page_in(&mut self, (seq, container): (u64, Option<u64>), row: Result<Arc<str>, Damage>) {
        let instance = row.and_then(|body| Resource::from_record(seq, &body));
        let container = match &instance {
            Ok(instance) => self.tree.by_id(&instance.parent_id),
            Err(damage) => match container {
                Some(container) => self.tree.by_seq(container),
                // It was deleted meanwhile, or never was: nothing is sought for that.
                None if *damage == Damage::Missing => None,
                None => self.tree.container_of_paged(seq),
            },
        };
        let paged = container.and_then(|container| self.tree.paged_of(container));
        let (Some(container), Some(record)) = (container, paged.and_then(|it| it.get(seq))) else {
            return;
        };
        match instance {
            Ok(instance) => {
                let moved = instance.expires != record.expires;
                if let Some(slot) = self.tree.page_in(container, instance) {
                    if moved {
                        self.tree.change(slot, Resource::write_expiry);
                    }
                    self.counters.instances_paged_in += 1;
                    self.note_resident(seq);
                }
            }
            // Its row stays, as that of one that is unreadable at the start.
            Err(damage) => {
                self.tree.remove_paged(container, seq);
                self.counters.rows_found_unreadable += 1;
                self.ledger.say_now(Output::Unreadable(Unreadable { row: seq, damage }));
            }
        }
    }
}

/// Instances that leave memory, and are deleted without their text.
impl Cse {
    /// Notes an instance that may leave memory from now on.
    pub(super) fn note_resident(&mut self, seq: u64) {
        if self.config.limits.resident_octets.is_some() {
            self.paging.recent.push_back(seq);
            self.paging.came += 1;
        }
    }

    /// Has instances leave memory that came into it longest ago, until the rest has room: a bounded
    /// number in each step, or all at once.
    pub(super) fn page_out(&mut self, at_once: bool) {
        let Some(most) = self.config.limits.resident_octets else { return };
        let came = core::mem::take(&mut self.paging.came);
        let mut left = if at_once { self.paging.recent.len() } else { EXAMINED + 2 * came };
        while left > 0 && self.tree.resident_octets() > most {
            left -= 1;
            let Some(seq) = self.paging.recent.pop_front() else { return };
            let Some(slot) = self.tree.by_seq(seq) else { continue };
            match self.may_leave(slot, at_once) {
                Leaving::Now => self.page_out_together((seq, slot), most - most / FREE_PART),
                Leaving::Later => self.paging.recent.push_back(seq),
                Leaving::Never => {}
            }
        }
        if self.paging.recent.len() > 2 * self.tree.resident() + RECENT_SPARE {
            let tree = &self.tree;
            self.paging.recent.retain(|&seq| tree.by_seq(seq).is_some());
        }
    }

    /// Has an instance leave memory, and those that follow it in its container, until the rest has
    /// `most` octets.
    fn page_out_together(&mut self, (mut seq, mut slot): (u64, Slot), most: usize) {
        let Some(container) = self.tree.get(slot).and_then(|it| it.parent) else { return };
        for _ in 0..LEAVE_TOGETHER {
            self.counters.instances_paged_out += u64::from(self.tree.page_out(slot));
            let next = self.tree.resident_after(container, seq);
            let next = next.filter(|_| self.tree.resident_octets() > most);
            let next = next.filter(|(_, slot)| self.may_leave(*slot, false) == Leaving::Now);
            let Some(next) = next else { return };
            (seq, slot) = next;
        }
    }

    /// Whether an instance may leave memory: it is stored, not its container's latest, and nothing
    /// but its name, its number and its times leads to it.
    ///
    /// This is asked for each instance: what takes long is asked last. The latest is noted again when
    /// another follows, so thousands of latest ones are not looked at in each step; at a start those
    /// that follow are not told of.
    fn may_leave(&self, slot: Slot, is_start: bool) -> Leaving {
        let Some(instance) = self.tree.get(slot) else { return Leaving::Never };
        let (Some(text), Some(container)) = (&instance.representation, instance.parent) else {
            return Leaving::Never;
        };
        if instance.resource_type != ResourceType::ContentInstance
            || instance.family.is_some()
            || u32::try_from(instance.state.max(instance.size)).is_err()
        {
            return Leaving::Never;
        }
        if self.tree.latest(container) == Some(Instance::Resident(slot)) {
            return if is_start { Leaving::Later } else { Leaving::Never };
        }
        if !self.ledger.is_stored(instance.stored_by)
            || self.observers.has(slot)
            || self.hides_instances(container)
            || self.paging.pinned.contains_key(&instance.seq)
        {
            return Leaving::Later;
        }
        if stays_in_memory(instance, text) { Leaving::Never } else { Leaving::Now }
    }

    /// Removes an instance that is paged out, and stores the removal.
    pub(super) fn take_out_paged(&mut self, container: Slot, seq: u64) {
        let Some(holder) = self.tree.get(container).map(|it| it.seq) else { return };
        let Some(record) = self.tree.remove_paged(container, seq) else { return };
        let undo = Undo::PagedOut { holder, record };
        self.ledger.write(RowChange::Delete { seq }, undo);
        // What is left there shows that this is gone.
        let number = self.ledger.number();
        if let Some(container) = self.tree.get_mut(container) {
            container.stored_by = number;
        }
    }

    /// Removes all instances of a container that are paged out, and stores the removal.
    pub(super) fn take_out_all_paged(&mut self, container: Slot) {
        let first = |cse: &Self| cse.tree.paged_of(container)?.first();
        while let Some(record) = first(self) {
            self.take_out_paged(container, record.seq);
        }
    }

    /// Takes the removal of an instance back that is paged out.
    pub(super) fn take_back_paged(&mut self, holder: u64, record: &crate::paged::InstanceRecord) {
        if let Some(container) = self.tree.by_seq(holder) {
            self.tree.restore_paged(container, record);
        }
    }

    /// Whether subscribers of a container are notified of deleted children.
    pub(super) fn tells_of_deletions(&self, container: Slot) -> bool {
        let deleted = NotificationEventType::ChildDeleted.number();
        let family = self.tree.get(container).and_then(|it| it.family.as_ref());
        family.is_some_and(|family| {
            family.subscriptions.iter().chain(&family.lagging).any(|&subscription| {
                let subscription = self.tree.get(subscription);
                subscription.is_some_and(|it| events(&it.attributes).contains(&deleted))
            })
        })
    }

    /// Instances whose text is in the store only.
    pub const fn instances_paged_out(&self) -> usize {
        self.tree.paged()
    }
}

/// Numbers of those that are paged out.
fn paged_out(instances: &[(u64, Instance)]) -> impl Iterator<Item = u64> {
    let paged = instances.iter().filter(|(_, it)| matches!(it, Instance::PagedOut(_)));
    paged.map(|(seq, _)| *seq)
}
