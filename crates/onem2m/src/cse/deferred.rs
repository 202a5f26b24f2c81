//! Requests that wait inside this CSE: how many there may be, and what becomes of their deadlines.

use super::Refusal;
use crate::limits::Limits;
use crate::primitive::{Deadline, Request};
use crate::status::Status;
use crate::time::Timestamp;

/// What requests that wait inside this CSE hold: those that are accepted already are nobody else's
/// to count.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    requests: usize,
    octets: usize,
}

impl Deferred {
    /// Takes note of one more.
    ///
    /// # Errors
    ///
    /// 5000 if as many wait as may.
    pub(super) fn add(&mut self, request: &Request, limits: &Limits) -> Result<(), Refusal> {
        let octets = self.octets.saturating_add(octets_of(request));
        if self.requests >= limits.deferred || octets > limits.deferred_octets {
            let why = "as many requests wait here as may";
            return Err(Refusal::new(Status::InternalServerError, why));
        }
        (self.requests, self.octets) = (self.requests + 1, octets);
        Ok(())
    }

    /// One waits no more.
    pub(super) fn remove(&mut self, request: &Request) {
        self.requests = self.requests.saturating_sub(1);
        self.octets = self.octets.saturating_sub(octets_of(request));
    }
}

/// What a request holds, roughly: its content, and its other texts.
fn octets_of(request: &Request) -> usize {
    let content = request.content.as_ref().map_or(0, |content| content.len());
    let texts = [&request.to, &request.from, &request.id].into_iter().chain(&request.notify);
    texts.map(String::len).sum::<usize>().saturating_add(content)
}

impl Request {
    /// This request with its deadlines as points in time: it is looked at again later.
    pub(super) fn received_at(&self, now: Timestamp) -> Self {
        let absolute = |deadline: Deadline| Deadline::At(deadline.resolve(now));
        Self {
            request_expires: self.request_expires.map(absolute),
            result_expires: self.result_expires.map(absolute),
            ..self.clone()
        }
    }
}
