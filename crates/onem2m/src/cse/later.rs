//! Requests with an operation execution time (TS-0001 §8.1.2), which wait for it.
//!
//! A request whose originator waits for the answer ends with this process. An accepted one is
//! stored until it is done, and removed from the store together with its effect: so it is done
//! exactly once, even over a restart.

use super::{Cse, Recipient, Refusal, RequestContext, Token};
use crate::audit::AuditedRequest;
use crate::primitive::Request;
use crate::status::Status;
use crate::time::Timestamp;
use crate::tree::RowChange;
use core::time::Duration;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Pause before a request whose effect could not be stored is retried.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A request waiting for its time.
#[derive(Clone, Debug)]
struct Postponed {
    asker: RequestContext,
    request: Request,
    due: Timestamp,
    /// Whether it has a row.
    stored: bool,
}

/// Every request waiting for its time.
#[derive(Debug, Default)]
pub(super) struct Later {
    by_time: BTreeMap<(Timestamp, u64), Postponed>,
    time_of: BTreeMap<u64, Timestamp>,
}

impl Later {
    /// Time of the next one.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.by_time.first_key_value().map(|((time, _), _)| *time)
    }

    /// The stored ones, as rows.
    pub(super) fn rows(&self) -> impl Iterator<Item = (u64, Arc<str>)> {
        let stored = self.by_time.iter().filter(|(_, it)| it.stored);
        stored.map(|((_, seq), it)| (*seq, it.to_record()))
    }

    /// The request resources for their results.
    pub(super) fn kept(&self) -> BTreeSet<u64> {
        let resource = |it: &Postponed| match it.asker.whom {
            Recipient::Kept(seq, _) => Some(seq),
            _ => None,
        };
        self.by_time.values().filter_map(resource).collect()
    }

    fn put(&mut self, seq: u64, time: Timestamp, postponed: Postponed) {
        self.take(seq);
        self.by_time.insert((time, seq), postponed);
        self.time_of.insert(seq, time);
    }

    fn take(&mut self, seq: u64) -> Option<Postponed> {
        let time = self.time_of.remove(&seq)?;
        self.by_time.remove(&(time, seq))
    }

    /// The request whose result goes to the request resource with this number.
    fn kept_in(&self, resource: u64) -> Option<u64> {
        let is_it =
            |it: &Postponed| matches!(it.asker.whom, Recipient::Kept(seq, _) if seq == resource);
        self.by_time.iter().find(|(_, it)| is_it(it)).map(|((_, seq), _)| *seq)
    }
}

impl Postponed {
    /// Prefix of their rows, which no resource's row has.
    const MARK: &'static str = "{\"_o\":";

    fn to_record(&self) -> Arc<str> {
        let mut request = self.request.clone();
        // As text within the text: numbers must come back digit for digit.
        let content = request.content.take();
        let kept = match &self.asker.whom {
            Recipient::Kept(seq, targets) => Some(json!([seq, &**targets])),
            _ => None,
        };
        let body = json!({
            "due": self.due.micros(),
            "kept": kept,
            "request": request.to_value(),
            "content": content,
            "sponsor": request.sponsor.as_deref(),
            "source": request.source.map(|source| source.to_string()),
        });
        format!("{}{body}}}", Self::MARK).into()
    }

    fn from_record(body: &str) -> Option<Self> {
        let body = body.strip_prefix(Self::MARK)?.strip_suffix('}')?;
        let body: Value = serde_json::from_str(body).ok()?;
        let text = |name: &str| body.get(name).and_then(Value::as_str);
        let mut request = Request::from_value(body.get("request")?).ok()?;
        request.content = text("content").map(Into::into);
        request.sponsor = text("sponsor").map(Into::into);
        request.source = text("source").and_then(|source| source.parse().ok());
        let whom = match body.get("kept").and_then(Value::as_array).map(Vec::as_slice) {
            Some([seq, targets]) => {
                let targets = targets.as_array()?.iter().filter_map(Value::as_str);
                Recipient::Kept(seq.as_u64()?, targets.map(str::to_owned).collect())
            }
            _ => Recipient::Nobody,
        };
        let asked = Some(Arc::new(AuditedRequest::new(&request)));
        let asker = RequestContext { whom, ..RequestContext::outside(Token(0), None, &request) }
            .noted(asked, 0);
        let due = Timestamp::from_micros(body.get("due")?.as_u64()?);
        Some(Self { asker, request, due, stored: true })
    }
}

impl Cse {
    /// Earliest execution time of a request that arrived now.
    pub(super) fn begins(&self, request: &Request) -> Timestamp {
        request.executes.map_or(self.now, |time| time.resolve(self.now).max(self.now))
    }

    /// Queues a request with a later execution time. Returns whether it did.
    ///
    /// # Errors
    ///
    /// 4103 if its originator is unknown here, 4000 if it would wait longer than anything is kept,
    /// 5000 if the limit is reached.
    pub(super) fn postpone(
        &mut self,
        asker: &RequestContext,
        request: &Request,
        from: &str,
    ) -> Result<bool, Refusal> {
        let Some(time) = request.executes.map(|time| time.resolve(self.now)) else {
            return Ok(false);
        };
        if time <= self.now || asker.is_repeated {
            return Ok(false);
        }
        let known = self.is_registered(from) || self.is_almighty(from);
        if !known {
            let why = "what is asked by who is not registered is done at once or not at all";
            return Err(Refusal::new(Status::OriginatorHasNoPrivilege, why));
        }
        if time > self.now.plus(self.config.limits.lifetime) {
            return Err(Refusal::bad("oet is later than anything is kept here"));
        }
        let request = Request { executes: None, ..request.received_at(self.now) };
        self.defer(&request)?;
        self.counters.postponed += 1;
        // When it expires before, that is when it is answered.
        let ends = [request.request_expires, request.result_expires];
        let ends = ends.into_iter().flatten().map(|end| end.resolve(self.now));
        let due = ends.fold(time, Timestamp::min);
        let seq = self.ledger.next_seq();
        let stored = matches!(asker.whom, Recipient::Kept(..) | Recipient::Nobody);
        let postponed = Postponed { asker: asker.clone(), request, due, stored };
        if stored {
            let body = postponed.to_record();
            self.ledger.write(RowChange::Put { seq, body }, RowChange::Delete { seq });
        }
        self.later.put(seq, due, postponed);
        Ok(true)
    }

    /// Executes due requests.
    pub(super) fn do_postponed(&mut self) {
        while let Some((&(time, seq), _)) = self.later.by_time.first_key_value() {
            if time > self.now {
                return;
            }
            let Some(Postponed { asker, request, .. }) = self.end_waiting(seq) else {
                return;
            };
            self.serve(&asker, &request);
        }
    }

    /// Removes a waiting request; its row is deleted with its effect.
    fn end_waiting(&mut self, seq: u64) -> Option<Postponed> {
        let postponed = self.later.take(seq)?;
        self.undefer(&postponed.request);
        if postponed.stored {
            let body = postponed.to_record();
            self.ledger.write(RowChange::Delete { seq }, RowChange::Put { seq, body });
        }
        Some(postponed)
    }

    /// Cancels the request of a deleted request resource (TS-0001 §10.2.5.6).
    pub(super) fn call_off(&mut self, resource: u64) {
        if let Some(seq) = self.later.kept_in(resource) {
            self.end_waiting(seq);
        }
    }

    /// Whether the request resource for an answer was deleted.
    pub(super) fn is_called_off(&self, asker: &RequestContext) -> bool {
        matches!(asker.whom, Recipient::Kept(seq, _) if self.tree.by_seq(seq).is_none())
    }

    /// Restores a stored row; returns whether it is a waiting request.
    pub(super) fn restore_postponed(&mut self, seq: u64, body: &str) -> bool {
        let Some(postponed) = Postponed::from_record(body) else {
            return false;
        };
        self.forget_postponed(seq);
        self.defer_again(&postponed.request);
        self.later.put(seq, postponed.due, postponed);
        true
    }

    /// Restores a row whose removal could not be stored; returns whether it is a waiting request.
    pub(super) fn postpone_again(&mut self, seq: u64, body: &str) -> bool {
        let restored = self.restore_postponed(seq, body);
        if let Some(postponed) = self.later.take(seq) {
            let time = postponed.due.max(self.now.plus(AGAIN_AFTER));
            self.later.put(seq, time, postponed);
        }
        restored
    }

    /// Removes a request without an answer.
    pub(super) fn forget_postponed(&mut self, seq: u64) {
        if let Some(postponed) = self.later.take(seq) {
            self.undefer(&postponed.request);
        }
    }
}
