//! Registrations of CSEs that were refused, here or at the registrar: told once for each answer.

use super::Cse;
use crate::audit::cut;
use crate::clock::Moment;
use crate::primitive::{Operation, Request, Response};
use crate::resource_type::ResourceType;
use crate::status::Status;
use core::net::IpAddr;
use core::time::Duration;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};

/// A CSE's registration that its registrar refused.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RefusedRegistration {
    /// The originator: the CSE-ID of the registree.
    pub cse_id: String,
    /// The CSE-ID of the registrar.
    pub registrar: String,
    /// The address that the request came from, if this CSE is the registrar and knows it.
    pub address: Option<IpAddr>,
    /// The response status code.
    pub status: Status,
    /// The registrar's reason (`m2m:dbg`); may be empty.
    pub reason: String,
}

/// Refusals not yet told, and the last answer to each registree.
#[derive(Debug, Default)]
pub(super) struct RefusedRegistrations {
    /// The last refusal of each originator, here.
    last: BTreeMap<Box<str>, Status>,
    /// The last refusal of this CSE, at its registrar.
    above: Option<RefusedRegistration>,
    untold: VecDeque<RefusedRegistration>,
    /// Start of the interval in which refusals are limited, and how many it has.
    interval: (Moment, usize),
}

/// Originators whose last answer is remembered; refusals of further ones are counted only.
const ORIGINATORS_MAX: usize = 64;
/// Refusals told in one interval, and kept until they are.
const TOLD_MAX: usize = 16;
/// Interval in which refusals are limited: an unknown peer must not fill the log.
const INTERVAL: Duration = Duration::from_mins(1);
/// Octets kept of a name or a reason that another entity chose.
const OCTETS_MAX: usize = 200;

impl RefusedRegistrations {
    /// Takes the answer to a registree here; returns whether it is to be told.
    fn is_news(&mut self, now: Moment, from: &str, status: Status) -> bool {
        if status.is_success() {
            self.last.remove(from);
            return false;
        }
        let is_known = self.last.get(from);
        if is_known == Some(&status) || (is_known.is_none() && self.last.len() >= ORIGINATORS_MAX) {
            return false;
        }
        if !self.may_tell(now) {
            return false;
        }
        self.last.insert(from.into(), status);
        true
    }

    fn may_tell(&mut self, now: Moment) -> bool {
        if now >= self.interval.0.plus(INTERVAL) {
            self.interval = (now, 0);
        }
        let may = self.interval.1 < TOLD_MAX && self.untold.len() < TOLD_MAX;
        self.interval.1 += usize::from(may);
        may
    }
}

impl Cse {
    /// Takes the refused registrations since the last call: each originator's refusal once, and
    /// again when its answer has become another.
    pub fn take_refused_registrations(&mut self) -> Vec<RefusedRegistration> {
        self.refused_registrations.untold.drain(..).collect()
    }

    /// The registrar's refusal of this CSE, as long as it is not registered.
    pub const fn refused_by_registrar(&self) -> Option<&RefusedRegistration> {
        self.refused_registrations.above.as_ref()
    }

    /// Notes how this CSE answered a request that registers a CSE.
    pub(super) fn note_registration(&mut self, request: &Request, response: &Response) {
        let status = response.status;
        let stands = matches!(status, Status::Conflict | Status::OriginatorHasAlreadyRegistered);
        // A CSE that restarts registers again; an overloaded one here has not judged it.
        if stands || response.retry_after.is_some() {
            return;
        }
        if !status.is_success() {
            self.counters.registrations_refused += 1;
        }
        let cse_id = printable(&request.from);
        let refused = &mut self.refused_registrations;
        if refused.is_news(self.moment, &cse_id, status) {
            refused.untold.push_back(RefusedRegistration {
                cse_id,
                registrar: self.config.cse_id.clone(),
                address: request.source,
                status,
                reason: reason(response),
            });
        }
    }

    /// Notes how the registrar answered this CSE's registration.
    pub(super) fn note_registration_above(&mut self, response: &Response) {
        let Some(registrar) = &self.config.registrar else { return };
        let refusal = RefusedRegistration {
            cse_id: self.config.cse_id.clone(),
            registrar: registrar.cse_id.clone(),
            address: None,
            status: response.status,
            reason: reason(response),
        };
        let refused = &mut self.refused_registrations;
        let is_same = refused.above.as_ref().is_some_and(|last| last.status == refusal.status);
        // One that is not told now is news at the next attempt.
        if !is_same && refused.may_tell(self.moment) {
            refused.untold.push_back(refusal.clone());
            refused.above = Some(refusal);
        }
    }

    /// Forgets the registrar's refusal: this CSE is registered, or has another registrar.
    pub(super) fn forget_refusal_above(&mut self) {
        self.refused_registrations.above = None;
    }
}

/// Whether a request registers a CSE.
pub(super) fn is_registration(request: &Request) -> bool {
    request.operation == Operation::Create && request.resource_type == Some(ResourceType::RemoteCse)
}

/// The reason that an answer gives.
fn reason(response: &Response) -> String {
    let content = response.content.as_deref();
    let content = content.and_then(|text| serde_json::from_str::<Value>(text).ok());
    let reason = content.as_ref().and_then(|it| it.get("m2m:dbg")).and_then(Value::as_str);
    printable(reason.unwrap_or_default())
}

/// A text from another entity, short enough for a log and without control characters.
fn printable(text: &str) -> String {
    cut(text, OCTETS_MAX).replace(char::is_control, " ")
}
