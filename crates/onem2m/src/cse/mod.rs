//! CSE state machine: inputs, outputs, and outputs that wait for the store.

mod access;
mod aggregate;
mod announce;
mod answer;
mod auditing;
mod base;
mod calls;
mod clocks;
mod config;
mod consent;
mod create;
mod deferred;
mod delete;
mod discover;
mod flex;
mod forward;
mod grant;
mod group;
mod instance;
mod lagging;
mod later;
mod ledger;
mod monitor;
mod node;
mod nonblocking;
mod notify;
mod observe;
mod open;
mod outbox;
mod paging;
mod polling;
mod port;
mod privileges;
mod refused_registration;
mod registrar;
mod repeats;
mod retrieve;
mod room;
mod rows;
mod scheduled;
mod search;
mod sponsor;
mod statistics;
mod subscription;
mod target;
mod update;
mod watch;

use crate::address::Address;
use crate::answer_octets::AnswerOctets;
use crate::audit::{Audit, AuditEntry, AuditedRequest, RequestRelation};
use crate::clock::{Clock, Moment, Now};
use crate::limits::Counters;
use crate::primitive::{Operation, Request, Response, ResponseType};
use crate::resource::Resource;
use crate::resource_type::ResourceType;
use crate::status::{Refusal, Status};
use crate::stored::{NESTING_MAX, is_nested_deeper};
use crate::time::Timestamp;
use crate::tree::{Slot, Tree};
use crate::unique::check_names;
use access::{Originator, source_of};
use aggregate::ForwardingTargets;
use answer::{Done, Recipient, RequestContext};
use auditing::Refusals;
use calls::Calls;
pub use calls::{Call, DeviceCall, Unreachable, device_address};
pub use config::{CseConfig, CseType};
use consent::Consents;
use deferred::Deferred;
pub use grant::{AccessGrant, AccessGround};
use group::Fans;
use lagging::Lagging;
use later::Later;
use ledger::Ledger;
use notify::Verifications;
use observe::Observers;
pub use open::StoredItem;
use outbox::Outbox;
pub use outbox::{DEVICE_QUEUE, Gather, OutboxMessage, RefusedMessage};
use paging::Paging;
pub use paging::{ReadError, ReadId, ReadRow};
use polling::Channels;
pub use port::{Batch, CallId, Input, Output, Token};
pub use refused_registration::RefusedRegistration;
use refused_registration::{RefusedRegistrations, is_registration};
pub use registrar::Registrar;
use registrar::Registration;
use repeats::Repeats;
use search::Searches;
use statistics::Statistics;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use target::Target;
use watch::Watches;

/// A common services entity (CSE).
#[derive(Debug)]
pub struct Cse {
    config: CseConfig,
    tree: Tree,
    ledger: Ledger,
    repeats: Repeats,
    calls: Calls,
    answers: AnswerOctets,
    outbox: Outbox,
    verifications: Verifications,
    consents: Consents,
    deferred: Deferred,
    lagging: Lagging,
    later: Later,
    fans: Fans,
    /// Fan-outs with members that were not asked yet, in turn.
    spreading: VecDeque<u64>,
    forwarding: ForwardingTargets,
    channels: Channels,
    observers: Observers,
    refusals: Refusals,
    refused_registrations: RefusedRegistrations,
    watches: Watches,
    searches: Searches,
    paging: Paging,
    statistics: Statistics,
    /// Time of the next retry of changes that could not be stored and have no originator; failures
    /// so far.
    unstored: (Moment, u32),
    /// The last batch that rights depend on: of policies, groups and registrations.
    rights_stored_by: u64,
    /// Whether the store has room for deletions only.
    stores_deletions_only: bool,
    registration: Registration,
    counters: Counters,
    clock: Clock,
    /// The wall clock in this step, only for time stamps.
    now: Timestamp,
    /// The monotonic clock in this step.
    moment: Moment,
    started: Timestamp,
    requests_made: u64,
    /// A buffer that is used again, in which texts are written before they are kept.
    scratch: String,
}

/// Octets that this buffer keeps.
const SCRATCH_OCTETS: usize = 16 * 1024;

impl Cse {
    /// Processes an input at `now`.
    pub fn handle(&mut self, now: impl Into<Now>, input: Input) {
        self.set_clocks(now.into());
        self.do_postponed();
        self.searches.begin_step(self.config.limits.slice_steps);
        self.missing();
        let is_own_step = matches!(input, Input::Tick);
        self.take(input);
        self.expire();
        self.pursue_watches();
        self.give_up();
        self.release_pollers();
        self.notify_observers(is_own_step);
        self.note_refusals();
        self.pursue_registration();
        self.run_outbox();
        self.store_statistics(false);
        self.settle();
        self.delete_done(false);
        self.settle();
        self.page_out(false);
        self.ask_for_rows();
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Request { token, request } => self.take_foreign(token, &request),
            Input::Own { token, request } => self.take_request(token, &request, true),
            Input::Observe { token, request } => self.take_observation(token, request),
            Input::Unobserve(token) => self.observers.forget(token),
            Input::ObserveNext(token) => self.observers.next(token),
            Input::Post { token, message } => self.take_message(token, message),
            Input::AskAndPost { token, request, message } => {
                self.take_both(token, &request, *message);
            }
            Input::Answer { call, answer } => self.take_answer(call, answer),
            Input::Unsent { call, why } => self.take_unsent(call, why),
            Input::Committed(number) => {
                self.unstored.1 = 0;
                self.ledger.committed(number);
            }
            Input::Failed(number) => self.roll_back(number),
            Input::Overloaded => self.take_overload(),
            Input::Short(is_short) => {
                self.stores_deletions_only = is_short;
                // What failed before need not wait until it is tried again.
                self.unstored = (self.moment, 0);
            }
            Input::Together(inputs) => inputs.into_iter().for_each(|input| self.take(input)),
            Input::Rows { read, rows } => self.take_rows(read, rows),
            Input::Refused { from, address } => self.take_refused(&from, address),
            Input::Unheard(token) => self.take_back(token),
            Input::ClockConfirmed => self.believe_clock(),
            Input::Tick => {
                self.pursue_searches();
                self.pursue_fans();
            }
        }
    }

    /// Emits unstored changes and the clocks, before the process ends.
    pub fn end(&mut self, now: impl Into<Now>) {
        self.set_clocks(now.into());
        self.clock.note_at_end();
        self.store_statistics(true);
        self.delete_done(true);
        self.settle();
    }

    /// The next output, if there is one.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.ledger.poll()
    }

    /// Latest time of the next [`Input::Tick`], by the monotonic clock.
    pub fn poll_timeout(&self) -> Option<core::time::Duration> {
        let expiry = self.tree.next_expiry().map(|(time, _)| self.moment_of_expiry(time));
        let expiry = expiry.map(|due| due.max(self.unstored.0));
        let by_wall = [self.watches.next_due(), self.later.next_due()];
        let by_wall = by_wall.into_iter().flatten().map(|time| self.moment_of(time));
        let moments = [
            expiry,
            Some(self.clock.due()),
            self.calls.next_deadline(),
            self.registration_due(),
            self.outbox.next_due(),
            self.channels.next_deadline(),
            self.refusals.due(),
            self.statistics.due(),
            self.paging.due(),
            (self.is_searching() || !self.spreading.is_empty() || self.observers.are_due())
                .then_some(self.moment),
        ];
        let first = moments.into_iter().flatten().chain(by_wall).min();
        first.map(|moment| self.clock.elapsed_at(moment))
    }

    /// Counters so far.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Resources in the tree.
    pub fn resources(&self) -> usize {
        self.tree.len()
    }

    /// Octets of the store that the tree may still take up; `None` if they are not limited.
    pub fn stored_octets_left(&self) -> Option<usize> {
        let most = self.config.limits.stored_octets;
        (most < usize::MAX).then(|| most.saturating_sub(self.tree.stored_octets()))
    }

    /// Configuration of this CSE.
    pub const fn config(&self) -> &CseConfig {
        &self.config
    }

    /// Every row as it would be restored, except those of instances that are paged out: resources before outbox messages, for comparison and
    /// export.
    pub fn rows(&self) -> impl Iterator<Item = (u64, Arc<str>)> {
        let resources = self.tree.iter().map(|(_, it)| (it.seq, it.to_record()));
        let resources = resources.chain(self.outbox.rows());
        resources.chain(self.lagging.rows()).chain(self.later.rows())
    }

    /// Takes a request from outside.
    pub(super) fn take_foreign(&mut self, token: Token, request: &Request) {
        // Before it can be taken for another's request that came before.
        match self.check_identity(request) {
            Ok(()) => self.take_request(token, request, false),
            Err(refusal) => {
                self.counters.requests += 1;
                let asker = self.asker(token, request);
                self.answer(&asker, Err(refusal));
            }
        }
        if is_registration(request)
            && let Some(response) = self.ledger.response_to(token)
        {
            self.note_registration(request, &response);
        }
    }

    fn take_request(&mut self, token: Token, request: &Request, is_own: bool) {
        let asker = RequestContext { is_own, ..self.asker(token, request) };
        let asked = asker.asked.clone();
        self.recognise(token, request, asker);
        if !self.ledger.has_answered(token) {
            self.note_waiting(asked);
        }
    }

    /// Answers a repeated request as before, and executes a new one.
    fn recognise(&mut self, token: Token, request: &Request, whoever: RequestContext) {
        self.counters.requests += 1;
        let source = source_of(request, self.own_form(&request.from));
        let limits = &self.config.limits;
        let key = match self.repeats.recognise(request, source, token, self.moment, limits) {
            repeats::Recognition::New(key) => key,
            repeats::Recognition::Answered(response, row) => {
                self.counters.repeated += 1;
                self.ledger.see_all();
                // The first one's message was posted, or is not to be.
                self.outbox.take_beside(token);
                let container = row.and_then(|_| self.container_of(request));
                self.repeat(whoever, response, row, container);
                return;
            }
            repeats::Recognition::InProgress => {
                self.counters.repeated += 1;
                return;
            }
            repeats::Recognition::TooOften => {
                self.counters.repeated_too_often += 1;
                let words = "the same request waits here already, as often as it may";
                let refusal = Refusal::new(Status::InternalServerError, words);
                let (id, release) = (Arc::clone(&whoever.id), whoever.release);
                self.deliver(&whoever, Response::refusing(&refusal, id, release));
                return;
            }
        };
        let asker = RequestContext { whom: Recipient::Outside(token, key), ..whoever };
        match request.response_type {
            ResponseType::Blocking | ResponseType::Flexible => self.serve(&asker, request),
            _ => self.accept(&asker, request),
        }
    }

    fn take_message(&mut self, token: Token, message: OutboxMessage) {
        let asker = RequestContext::outside(token, None, &message.request);
        let outcome = self.post(message).map(|()| Done::new(Status::Accepted));
        self.answer(&asker, outcome);
    }

    fn perform(
        &mut self,
        asker: &RequestContext,
        request: &Request,
    ) -> Result<Option<Done>, Refusal> {
        self.check(request)?;
        let from = Originator::of(request, self.own_form(&request.from), asker);
        self.carry_out(asker, request, &from)
    }

    fn carry_out(
        &mut self,
        asker: &RequestContext,
        request: &Request,
        from: &Originator<'_>,
    ) -> Result<Option<Done>, Refusal> {
        let path = match Address::parse(&request.to, &self.config.cse_id, &self.config.provider) {
            Address::Here(path) => path,
            Address::There { cse, path } => {
                // It is sent on before any of its times (TS-0004 §7.3.2.6).
                if request.executes.is_some_and(|time| time.resolve(self.now) < self.now) {
                    let why = "the time is over at which it was to be done";
                    return Err(Refusal::new(Status::RequestTimeout, why));
                }
                self.forward(asker, request, from, (cse, path))?;
                return Ok(None);
            }
            Address::Elsewhere => return Err(not_found("no such service provider")),
        };
        let target = self.resolve(path).ok_or_else(|| not_found("no such resource"))?;
        if self.postpone(asker, request, from)? {
            return Ok(None);
        }
        if let Target::FanOut(group, rest) = target {
            return self.fan_out(asker, request, from, (group, rest));
        }
        if let (Target::Polling(slot), Operation::Retrieve) = (target, request.operation) {
            return self.poll(asker, request, from, slot);
        }
        if let Target::Resource(slot) = target {
            if self.wait_behind(asker, request, slot)? {
                return Ok(None);
            }
            if !self.has_told_monitors() {
                self.tell_monitors(asker, request, from, slot);
            }
        }
        match request.operation {
            Operation::Create => self.create(asker, request, from, target),
            Operation::Retrieve => {
                if let Target::Resource(slot) = target
                    && self.retrieve_original(asker, request, from, slot)?
                {
                    return Ok(None);
                }
                self.retrieve(asker, request, from, target)
            }
            Operation::Update => self.update(asker, request, from, target),
            Operation::Delete => self.delete(request, from, target).map(Some),
            Operation::Notify => {
                if let Target::Polling(slot) = target {
                    return self.take_polled_answer(request, from, slot).map(Some);
                }
                let slot = self.settle_target(target)?;
                self.notify_entity(asker, request, from, slot)
            }
        }
    }

    /// Checks common to all operations.
    fn check(&mut self, request: &Request) -> Result<(), Refusal> {
        if request.id.is_empty() {
            return Err(Refusal::bad("a request has an identifier"));
        }
        if request.to.is_empty() {
            return Err(Refusal::bad("a request has a target"));
        }
        let registers = request.operation == Operation::Create
            && request.resource_type == Some(ResourceType::ApplicationEntity);
        if request.from.is_empty() && !registers {
            return Err(Refusal::bad("a request has an originator"));
        }
        if request.resource_type.is_some() != (request.operation == Operation::Create) {
            return Err(Refusal::bad("the resource type goes with a creation, and only there"));
        }
        let expired = |time: Option<crate::primitive::Deadline>| {
            time.is_some_and(|time| time.resolve(self.now) <= self.now)
        };
        if expired(request.request_expires) || expired(request.result_expires) {
            return Err(Refusal::new(Status::RequestTimeout, "the request has expired"));
        }
        let time = |time: Option<crate::primitive::Deadline>| time.map(|it| it.resolve(self.now));
        let (request_ends, result_ends) =
            (time(request.request_expires), time(request.result_expires));
        let is_late = |end: Option<Timestamp>| {
            time(request.executes).zip(end).is_some_and(|(begins, end)| begins >= end)
        };
        let is_crossed = request_ends.zip(result_ends).is_some_and(|(first, last)| last < first);
        if is_crossed || is_late(request_ends) || is_late(result_ends) {
            let why =
                "a request is done (oet) before it expires (rqet), and that before its result";
            return Err(Refusal::bad(why));
        }
        if let Some(filter) = &request.filter {
            filter.check()?;
        }
        Self::check_addresses(request.notify.iter().map(String::as_str))?;
        let stores = matches!(request.operation, Operation::Create | Operation::Update);
        let content = request.content.as_deref().filter(|_| stores);
        if content.is_some_and(|content| is_nested_deeper(content, NESTING_MAX)) {
            return Err(Refusal::bad(format!(
                "the content is nested deeper than {NESTING_MAX} levels"
            )));
        }
        let octets = request.content.as_ref().map_or(0, |content| content.len());
        if octets > self.config.limits.content_octets {
            self.counters.content_too_large += 1;
            return Err(Refusal::new(
                Status::NotAcceptable,
                format!("{octets} octets of content are too many"),
            ));
        }
        // Also where it is sent on: another reader may take another of them.
        request.content.as_deref().map_or(Ok(()), check_names)
    }

    /// The text that `write` writes: one allocation, of its size.
    fn written(&mut self, write: impl FnOnce(&Self, &mut String)) -> Arc<str> {
        let mut text = core::mem::take(&mut self.scratch);
        write(self, &mut text);
        let written = Arc::from(text.as_str());
        text.clear();
        text.shrink_to(SCRATCH_OCTETS);
        self.scratch = text;
        written
    }

    fn resource(&self, slot: Slot) -> Result<&Resource, Refusal> {
        self.tree.get(slot).ok_or_else(|| not_found("the resource is gone"))
    }

    /// Closes the step: changes become a batch, and outputs wait for it.
    fn settle(&mut self) {
        if self.ledger.has_written() {
            // They cost no batch of their own.
            self.delete_done(true);
        }
        let beside = if self.ledger.has_written() {
            (self.clock.note(), self.remembered())
        } else if self.stores_deletions_only {
            (None, None)
        } else {
            (self.clock.note_alone(), None)
        };
        self.counters.batches += u64::from(self.ledger.settle(beside));
    }
}

fn not_found(debug: impl Into<Cow<'static, str>>) -> Refusal {
    Refusal::new(Status::NotFound, debug)
}

fn not_allowed(debug: impl Into<Cow<'static, str>>) -> Refusal {
    Refusal::new(Status::OperationNotAllowed, debug)
}

fn denied() -> Refusal {
    Refusal::new(Status::OriginatorHasNoPrivilege, "access control does not allow this")
}
