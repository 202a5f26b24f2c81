//! Observed retrievals, which are answered again after each change: for CoAP's Observe (RFC 7641;
//! TS-0008 leaves the option to its bindings).
//!
//! An observation is no subscription: nothing is stored, and it ends with its observer.
//!
//! Whoever writes does not wait for observers: a change only marks them. Their answers are looked up
//! a few in each step, the rest in steps of their own, and none for an observer that has not yet
//! asked for the next ([`Input::ObserveNext`](super::Input::ObserveNext)).

use super::{Cse, Recipient, RequestContext, RequestRelation, Slot, Target, Token};
use crate::address::Address;
use crate::answer_octets::SMALL_OCTETS;
use crate::primitive::{Operation, Request};
use crate::status::Status;
use core::hash::{Hash, Hasher};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Units of work for observers in a step that serves somebody else: one for each answer, and one for
/// each [`UNIT_OCTETS`] of it. A unit takes some 20 µs.
const UNITS_BESIDE: usize = 4;

/// The same in a step of their own.
const UNITS_ALONE: usize = 32;

/// Octets of an answer that count as much as looking it up.
const UNIT_OCTETS: usize = 16 * 1024;

/// Observers and their retrievals.
#[derive(Debug, Default)]
pub(super) struct Observers {
    by_token: BTreeMap<Token, Observer>,
    by_slot: BTreeMap<Slot, ObservedSlot>,
    /// Retrievals that are to be observed when the rows are read that they wait for.
    awaiting: BTreeMap<Token, Request>,
    /// Observers whose answer may have changed, the first to be looked up first. Some of them may
    /// have been forgotten.
    due: VecDeque<Token>,
}

/// A resource that is observed.
#[derive(Debug, Default)]
struct ObservedSlot {
    /// Its observers.
    count: usize,
    /// Those that wait for the next change. The others are due, or have not asked for it yet.
    ready: BTreeSet<Token>,
    /// Its changes since it has been observed.
    changes: u64,
}

#[derive(Debug)]
struct Observer {
    request: Request,
    /// The resource whose changes affect the answer; for the latest instance, its container.
    slot: Slot,
    /// The last answer.
    last: Option<LastAnswer>,
    /// The changes that the last answer includes, until its observer has taken it.
    unacknowledged: Option<u64>,
}

/// An answer to compare the next one with.
#[derive(Debug, Eq, PartialEq)]
enum LastAnswer {
    /// A small one.
    Text(Arc<str>),
    /// Length and hash of a larger answer, which is not kept.
    Digest(usize, u64),
}

impl LastAnswer {
    fn new(content: &Arc<str>, salt: u64) -> Self {
        if content.len() <= SMALL_OCTETS {
            return Self::Text(Arc::clone(content));
        }
        let mut hasher = DefaultHasher::new();
        (salt, content).hash(&mut hasher);
        Self::Digest(content.len(), hasher.finish())
    }
}

impl Observers {
    /// Whether someone observes this resource.
    pub(super) fn has(&self, slot: Slot) -> bool {
        self.by_slot.contains_key(&slot)
    }

    /// Records a change: its observers are looked up when there is time.
    pub(super) fn touch(&mut self, slot: Slot) {
        if let Some(observed) = self.by_slot.get_mut(&slot) {
            observed.changes += 1;
            self.due.extend(core::mem::take(&mut observed.ready));
        }
    }

    /// Whether answers are to be looked up.
    pub(super) fn are_due(&self) -> bool {
        !self.due.is_empty()
    }

    fn add(&mut self, token: Token, observer: Observer) {
        let observed = self.by_slot.entry(observer.slot).or_default();
        observed.count += 1;
        observed.ready.insert(token);
        self.by_token.insert(token, observer);
    }

    pub(super) fn forget(&mut self, token: Token) {
        self.awaiting.remove(&token);
        let Some(observer) = self.by_token.remove(&token) else { return };
        if let Some(observed) = self.by_slot.get_mut(&observer.slot) {
            observed.ready.remove(&token);
            observed.count -= 1;
            if observed.count == 0 {
                self.by_slot.remove(&observer.slot);
            }
        }
    }

    /// Has an observer wait for the next change.
    fn await_change(&mut self, token: Token) {
        let slot = self.by_token.get(&token).map(|observer| observer.slot);
        if let Some(observed) = slot.and_then(|slot| self.by_slot.get_mut(&slot)) {
            observed.ready.insert(token);
        }
    }

    /// Records an observer's answer; returns whether it differs from the last one.
    fn record(&mut self, token: Token, now: Option<LastAnswer>) -> bool {
        let Some(observer) = self.by_token.get_mut(&token) else { return false };
        if observer.last == now {
            return false;
        }
        observer.last = now;
        observer.unacknowledged = Some(self.by_slot.get(&observer.slot).map_or(0, |it| it.changes));
        true
    }

    /// An observer has taken its last answer: the next one is looked up if there was a change
    /// meanwhile.
    pub(super) fn next(&mut self, token: Token) {
        let Some(observer) = self.by_token.get_mut(&token) else { return };
        let Some(included) = observer.unacknowledged.take() else { return };
        let Some(observed) = self.by_slot.get_mut(&observer.slot) else { return };
        if observed.changes == included {
            observed.ready.insert(token);
        } else {
            self.due.push_back(token);
        }
    }
}

impl Cse {
    /// Whether the retrieval by [`Input::Observe`](super::Input::Observe) with this token is
    /// answered again when it changes.
    pub fn is_observed(&self, token: Token) -> bool {
        self.observers.by_token.contains_key(&token)
    }

    /// Answers a retrieval and registers its observer.
    pub(super) fn take_observation(&mut self, token: Token, request: Request) {
        self.take_foreign(token, &request);
        if self.paging.has_waiting(token) {
            self.observers.awaiting.insert(token, request);
        } else {
            self.observe_answered(token, request);
        }
    }

    /// Registers the observer of a retrieval that has waited for rows, if it is answered now.
    pub(super) fn observe_after_read(&mut self, token: Token) {
        if self.paging.has_waiting(token) {
            return;
        }
        if let Some(request) = self.observers.awaiting.remove(&token) {
            self.observe_answered(token, request);
        }
    }

    /// Registers the observer of a retrieval that was answered in this step.
    fn observe_answered(&mut self, token: Token, request: Request) {
        let slot = self.observable(&request);
        let limits = &self.config.limits;
        let of_resource = slot.and_then(|slot| self.observers.by_slot.get(&slot));
        let full = self.observers.by_token.len() >= limits.observers
            || of_resource.is_some_and(|it| it.count >= limits.observers_per_resource);
        self.counters.observers_full += u64::from(full && slot.is_some());
        let answered = self.ledger.has_succeeded(token);
        let (Some(slot), true, false) = (slot, answered, full) else { return };
        let last = self.observed_now(&request);
        self.observers.add(token, Observer { request, slot, last, unacknowledged: None });
    }

    /// The resource to watch, if changes of the target are detectable.
    fn observable(&self, request: &Request) -> Option<Slot> {
        if request.operation != Operation::Retrieve {
            return None;
        }
        let Address::Here(path) =
            Address::parse(&request.to, &self.config.cse_id, &self.config.provider)
        else {
            return None;
        };
        match self.resolve(path)? {
            Target::Resource(slot) | Target::Latest(slot) | Target::Oldest(slot) => Some(slot),
            Target::FanOut(..) | Target::Polling(_) => None,
        }
    }

    fn observed_now(&mut self, request: &Request) -> Option<LastAnswer> {
        let nobody = RequestContext {
            whom: Recipient::Nobody,
            ..RequestContext::outside(Token(0), None, request)
        };
        let nobody = RequestContext { is_repeated: true, ..nobody };
        let content = self.perform(&nobody, request).ok().flatten()?.content?;
        Some(LastAnswer::new(&content, self.clock.salt()))
    }

    /// Notifies observers whose answer has changed, as many as one step has time for. A refusal is the
    /// last answer.
    pub(super) fn notify_observers(&mut self, is_own_step: bool) {
        let mut units = if is_own_step { UNITS_ALONE } else { UNITS_BESIDE };
        while units > 0
            && let Some(token) = self.observers.due.pop_front()
        {
            let octets = self.notify_observer(token);
            units = units.saturating_sub(1 + octets / UNIT_OCTETS);
        }
    }

    /// Notifies an observer if its answer has changed; returns the octets of its answer.
    pub(super) fn notify_observer(&mut self, token: Token) -> usize {
        let Some(observer) = self.observers.by_token.get(&token) else { return 0 };
        let request = observer.request.clone();
        let asked = self.asked_part(&request, &request.to, RequestRelation::Again, "");
        let asker =
            RequestContext::outside(token, None, &request).noted(asked, self.ledger.number());
        let asker = RequestContext { is_repeated: true, ..asker };
        let performed = self.perform(&asker, &request);
        let missing = self.missing();
        let outcome = match performed {
            Ok(Some(done)) => Ok(done),
            // Nobody else is to be asked, or it would not be observed.
            Ok(None) => {
                self.observers.await_change(token);
                return 0;
            }
            Err(_) if !missing.is_empty() => {
                self.read_for_observer(missing, token);
                return 0;
            }
            Err(refusal) => Err(refusal),
        };
        let content = outcome.as_ref().ok().and_then(|done| done.content.as_ref());
        let octets = content.map_or(0, |content| content.len());
        match &outcome {
            Ok(_) => {
                let salt = self.clock.salt();
                let now = content.map(|content| LastAnswer::new(content, salt));
                if !self.observers.record(token, now) {
                    self.observers.await_change(token);
                    return octets;
                }
            }
            // A container whose last instance is gone may have another.
            Err(refusal) if refusal.status == Status::NotFound && self.is_there(&request) => {
                self.observers.await_change(token);
                return 0;
            }
            Err(_) => self.observers.forget(token),
        }
        self.counters.observed += 1;
        self.answer(&asker, outcome);
        octets
    }

    /// Whether the target of a request exists, though it has no content.
    fn is_there(&self, request: &Request) -> bool {
        self.observable(request).is_some()
    }
}
