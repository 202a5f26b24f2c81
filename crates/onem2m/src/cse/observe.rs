//! Observed retrievals, which are answered again after each change: for CoAP's Observe (RFC 7641;
//! TS-0008 leaves the option to its bindings).
//!
//! An observation is no subscription: nothing is stored, and it ends with its observer.

use super::{Cse, Recipient, RequestContext, RequestRelation, Slot, Target, Token};
use crate::address::Address;
use crate::answer_octets::SMALL_OCTETS;
use crate::primitive::{Operation, Request};
use crate::status::Status;
use core::hash::{Hash, Hasher};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Observers and their retrievals.
#[derive(Debug, Default)]
pub(super) struct Observers {
    by_token: BTreeMap<Token, Observer>,
    by_slot: BTreeMap<Slot, BTreeSet<Token>>,
    /// Retrievals that are to be observed when the rows are read that they wait for.
    awaiting: BTreeMap<Token, Request>,
    /// Observed resources changed in the current step.
    touched: BTreeSet<Slot>,
}

#[derive(Debug)]
struct Observer {
    request: Request,
    /// The resource whose changes affect the answer; for the latest instance, its container.
    slot: Slot,
    /// The last answer.
    last: Option<LastAnswer>,
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

    /// Records a change.
    pub(super) fn touch(&mut self, slot: Slot) {
        if self.has(slot) {
            self.touched.insert(slot);
        }
    }

    pub(super) fn forget(&mut self, token: Token) {
        self.awaiting.remove(&token);
        let Some(observer) = self.by_token.remove(&token) else { return };
        if let Some(tokens) = self.by_slot.get_mut(&observer.slot) {
            tokens.remove(&token);
            if tokens.is_empty() {
                self.by_slot.remove(&observer.slot);
            }
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
        let full = self.observers.by_token.len() >= self.config.limits.observers;
        self.counters.observers_full += u64::from(full && slot.is_some());
        let answered = self.ledger.has_succeeded(token);
        let (Some(slot), true, false) = (slot, answered, full) else { return };
        let last = self.observed_now(&request);
        self.observers.by_token.insert(token, Observer { request, slot, last });
        self.observers.by_slot.entry(slot).or_default().insert(token);
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

    /// Answers observers whose answer has changed. A refusal is the last answer.
    pub(super) fn tell_observers(&mut self) {
        for slot in core::mem::take(&mut self.observers.touched) {
            let tokens = self.observers.by_slot.get(&slot).cloned().unwrap_or_default();
            for token in tokens {
                self.tell_observer(token);
            }
        }
    }

    /// Answers an observer if its answer has changed.
    pub(super) fn tell_observer(&mut self, token: Token) {
        let Some(observer) = self.observers.by_token.get(&token) else { return };
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
            Ok(None) => return,
            Err(_) if !missing.is_empty() => return self.read_for_observer(missing, token),
            Err(refusal) => Err(refusal),
        };
        match &outcome {
            Ok(done) => {
                let salt = self.clock.salt();
                let now = done.content.as_ref().map(|content| LastAnswer::new(content, salt));
                let Some(observer) = self.observers.by_token.get_mut(&token) else { return };
                if observer.last == now {
                    return;
                }
                observer.last = now;
            }
            // A container whose last instance is gone may have another.
            Err(refusal) if refusal.status == Status::NotFound && self.is_there(&request) => return,
            Err(_) => self.observers.forget(token),
        }
        self.counters.observed += 1;
        self.answer(&asker, outcome);
    }

    /// Whether the target of a request exists, though it has no content.
    fn is_there(&self, request: &Request) -> bool {
        self.observable(request).is_some()
    }
}
