//! Requests that wait inside this CSE: their limits and their deadlines.

use super::{Cse, Refusal};
use crate::address::node_of;
use crate::limits::share;
use crate::primitive::{Deadline, Request};
use crate::status::Status;
use crate::time::Timestamp;
use std::collections::HashMap;

/// Space held by requests that wait inside this CSE; requests already accepted are counted only
/// here.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    all: Held,
    /// Space by payer.
    by_payer: HashMap<Box<str>, Held>,
}

/// Requests and their octets.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    requests: usize,
    octets: usize,
}

impl Held {
    fn and(self, request: &Request) -> Self {
        let octets = self.octets.saturating_add(octets_of(request));
        Self { requests: self.requests.saturating_add(1), octets }
    }

    fn without(self, request: &Request) -> Self {
        let octets = self.octets.saturating_sub(octets_of(request));
        Self { requests: self.requests.saturating_sub(1), octets }
    }

    const fn exceeds(self, requests: usize, octets: usize) -> bool {
        self.requests > requests || self.octets > octets
    }
}

impl Deferred {
    fn of(&self, payer: &str) -> Held {
        self.by_payer.get(payer).copied().unwrap_or_default()
    }

    /// Counts a request that has waited before.
    fn keep(&mut self, request: &Request, payer: &str) {
        let held = self.of(payer).and(request);
        self.all = self.all.and(request);
        self.by_payer.insert(payer.into(), held);
    }

    fn remove(&mut self, request: &Request, payer: &str) {
        self.all = self.all.without(request);
        let held = self.of(payer).without(request);
        if held.requests == 0 {
            self.by_payer.remove(payer);
        } else {
            self.by_payer.insert(payer.into(), held);
        }
    }
}

impl Cse {
    /// Counts a request that is to wait here.
    ///
    /// # Errors
    ///
    /// 5000 if the limit is reached, of all or of the originator.
    pub(super) fn defer(&mut self, request: &Request) -> Result<(), Refusal> {
        let payer = node_of(self.own_form(&request.from));
        let limits = &self.config.limits;
        let (requests, octets) = (limits.deferred, limits.deferred_octets);
        let refuse = |words| Err(Refusal::new(Status::InternalServerError, words));
        if self.deferred.of(payer).and(request).exceeds(share(requests), share(octets)) {
            self.counters.deferred_of_one_full += 1;
            return refuse("as many requests of one originator wait here as may");
        }
        if self.deferred.all.and(request).exceeds(requests, octets) {
            self.counters.deferred_full += 1;
            return refuse("as many requests wait here as may");
        }
        self.deferred.keep(request, payer);
        Ok(())
    }

    /// Counts a request that has waited before.
    pub(super) fn defer_again(&mut self, request: &Request) {
        let payer = node_of(self.own_form(&request.from));
        self.deferred.keep(request, payer);
    }

    /// Ends the wait of a request.
    pub(super) fn undefer(&mut self, request: &Request) {
        let payer = node_of(self.own_form(&request.from));
        self.deferred.remove(request, payer);
    }
}

/// Approximate size of a request: its content and its other texts.
fn octets_of(request: &Request) -> usize {
    let content = request.content.as_ref().map_or(0, |content| content.len());
    let texts = [&request.to, &request.from, &request.id].into_iter().chain(&request.notify);
    texts.map(String::len).sum::<usize>().saturating_add(content)
}

impl Request {
    /// This request with absolute deadlines, since it is examined again later.
    pub(super) fn received_at(&self, now: Timestamp) -> Self {
        let absolute = |deadline: Deadline| Deadline::At(deadline.resolve(now));
        Self {
            request_expires: self.request_expires.map(absolute),
            result_expires: self.result_expires.map(absolute),
            ..self.clone()
        }
    }
}
