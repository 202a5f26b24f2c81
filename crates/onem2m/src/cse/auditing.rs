//! Audit log entries of requests: each request with its result, in the batch of its changes. A
//! request without changes has a batch for its entry, and its answer waits for it.

use super::calls::{Purpose, device_address};
use super::outbox::OutboxMessage;
use super::polling::EntityRoute;
use super::{Cse, Recipient, RequestContext, Token};
use crate::audit::{Audit, AuditContent, AuditEntry, AuditedRequest, End, RequestRelation, cut};
use crate::clock::Moment;
use crate::primitive::{Operation, Request, Response};
use crate::status::Status;
use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Interval in which refusals are limited.
const COUNTED_EACH: Duration = Duration::from_mins(1);
/// Refusals per address, or per originator without one, that are logged individually in that time;
/// further ones are counted. An unknown peer must not displace other entries from the log.
const REFUSALS_OF_ONE: u64 = 20;
/// Refusals of all peers that are logged individually in that time.
const REFUSALS_OF_ALL: u64 = 120;
/// Peers counted separately in that time; all others are counted together.
const REFUSED_MAX: usize = 16;
/// Octets of an originator that identify it.
const NAME_OCTETS_MAX: usize = 64;
/// Name of all other peers.
const OTHERS: &str = "others";

/// Refusals of one minute.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// Since the first.
    since: Option<Moment>,
    /// By peer: the number of refusals, and of those not logged.
    by: BTreeMap<Box<str>, (u64, u64)>,
    noted: u64,
}

impl Refusals {
    /// Time at which the count is to be logged.
    pub(super) fn due(&self) -> Option<Moment> {
        self.since.map(|since| since.plus(COUNTED_EACH))
    }

    /// Counts a refusal; returns whether it is to be logged individually, if `may` allows that.
    fn count(&mut self, now: Moment, from: &str, address: Option<IpAddr>, may: bool) -> bool {
        self.since.get_or_insert(now);
        let mut by: Box<str> = address
            .map_or_else(|| cut(from, NAME_OCTETS_MAX), |address| address.to_string().into());
        if !self.by.contains_key(&by) && self.by.len() >= REFUSED_MAX {
            by = OTHERS.into();
        }
        let (all, counted) = self.by.entry(by).or_default();
        *all += 1;
        let is_noted = may && *all <= REFUSALS_OF_ONE && self.noted < REFUSALS_OF_ALL;
        *counted += u64::from(!is_noted);
        self.noted += u64::from(is_noted);
        is_noted
    }
}

impl Cse {
    /// The sender of an outside request, with audit data if requests are logged.
    pub(super) fn asker(&self, token: Token, request: &Request) -> RequestContext {
        let asked =
            (self.config.audit != Audit::Off).then(|| Arc::new(AuditedRequest::new(request)));
        RequestContext::outside(token, None, request).noted(asked, self.ledger.number())
    }

    /// Audit data of a part of another request or of a subscription, if requests are logged.
    pub(super) fn asked_part(
        &self,
        request: &Request,
        to: &str,
        part: RequestRelation,
        of: &str,
    ) -> Option<Arc<AuditedRequest>> {
        (self.config.audit != Audit::Off)
            .then(|| Arc::new(AuditedRequest::part(request, to, part, of)))
    }

    /// Logs a request in progress.
    pub(super) fn note_waiting(&mut self, asked: Option<Arc<AuditedRequest>>) {
        self.enter(asked, End::Waits, false, None);
    }

    /// Logs an outbox message of a subscription or of a later answer, with its result.
    pub(super) fn note_message(&mut self, message: &OutboxMessage, end: End) {
        if message.request.operation == Operation::Notify {
            // Its queue is named after the subscription, and after the target.
            let of = message.queue.split_once(' ').map_or(&*message.queue, |(of, _)| of);
            let asked = self.asked_part(
                &message.request,
                &message.target,
                RequestRelation::Notification,
                of,
            );
            self.enter(asked, end, false, None);
        }
    }

    /// Logs an answer. Refusals are logged individually up to a limit.
    pub(super) fn note_answer(&mut self, asker: &RequestContext, response: &Response) {
        let Some(asked) = &asker.asked else { return };
        let (token, later) = match &asker.whom {
            Recipient::Outside(token, _) => (Some(*token), false),
            Recipient::Member(..) => (None, false),
            Recipient::Kept(..) | Recipient::Nobody => (None, true),
        };
        let is_new = asker.since == self.ledger.number();
        if !response.status.is_success() && is_new && token.is_some() {
            let is_noted = self.refusals.count(self.moment, &asked.from, asked.address, true);
            if !is_noted {
                return;
            }
        }
        if let Some(token) = token {
            self.ledger.noted(token, Arc::clone(asked));
        }
        let end = End::Answered(response.status);
        self.enter(Some(Arc::clone(asked)), end, later, response.location.clone());
    }

    /// Logs that a request was refused because its batch could not be stored.
    pub(super) fn note_unstored(&mut self, asked: Option<Arc<AuditedRequest>>) {
        self.enter(asked, End::Answered(Status::InternalServerError), false, None);
    }

    fn enter(
        &mut self,
        asked: Option<Arc<AuditedRequest>>,
        end: End,
        later: bool,
        made: Option<Arc<str>>,
    ) {
        let Some(asked) = asked.filter(|_| self.config.audit != Audit::Off) else { return };
        let said = AuditContent::Ended { asked, end, later, made };
        self.ledger.note(AuditEntry { at_micros: self.now.micros(), said });
    }

    /// Logs the receiver of a forwarded request.
    pub(super) fn note_passed_on(
        &mut self,
        route: &EntityRoute,
        request: &Request,
        purpose: &Purpose,
    ) {
        let Purpose::Forward(RequestContext { asked: Some(asked), .. }) = purpose else { return };
        let to = match route {
            EntityRoute::Urls(urls, _) => urls.first().cloned().unwrap_or_default(),
            EntityRoute::Device(device) => device_address(device),
            EntityRoute::Channel(_) => "its polling channel".to_owned(),
        };
        let passed_on = AuditedRequest::part(request, &to, RequestRelation::PassedOn, &asked.to);
        self.note_waiting(Some(Arc::new(passed_on)));
    }

    /// Counts a request that was refused before it reached the CSE.
    pub(super) fn take_refused(&mut self, from: &str, address: Option<IpAddr>) {
        if self.config.audit != Audit::Off {
            self.refusals.count(self.moment, from, address, false);
        }
    }

    /// Logs the number of refusals that were only counted, once a minute.
    pub(super) fn note_refusals(&mut self) {
        if self.refusals.due().is_none_or(|due| due > self.moment) {
            return;
        }
        let at_micros = self.now.micros();
        for (from, (_, count)) in core::mem::take(&mut self.refusals).by {
            if count > 0 && self.config.audit != Audit::Off {
                self.ledger
                    .note(AuditEntry { at_micros, said: AuditContent::Refused { from, count } });
            }
        }
    }
}
