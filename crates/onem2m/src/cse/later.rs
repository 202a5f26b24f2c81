//! Requests that are to be done at a time (operation execution time; TS-0001 §8.1.2).
//!
//! One whose originator waits for the answer goes with this process. One that was accepted is
//! stored until it is done, and goes out of the store together with what it brings about: it is
//! done once, whenever the process ends.

use super::{Asker, Cse, Refusal, Whom};
use crate::audit::Asked;
use crate::primitive::Request;
use crate::status::Status;
use crate::time::Timestamp;
use crate::tree::Record;
use core::time::Duration;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How long a request rests whose effect could not be stored.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A request that waits for its time.
#[derive(Clone, Debug)]
struct Postponed {
    asker: Asker,
    request: Request,
    due: Timestamp,
    /// Whether a row stands for it.
    stored: bool,
}

/// Every request that waits for its time.
#[derive(Debug, Default)]
pub(super) struct Later {
    by_time: BTreeMap<(Timestamp, u64), Postponed>,
    time_of: BTreeMap<u64, Timestamp>,
}

impl Later {
    /// When the next one is to be done.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.by_time.first_key_value().map(|((time, _), _)| *time)
    }

    /// Those that are stored, as rows.
    pub(super) fn rows(&self) -> impl Iterator<Item = (u64, Arc<str>)> {
        let stored = self.by_time.iter().filter(|(_, it)| it.stored);
        stored.map(|((_, seq), it)| (*seq, it.to_record()))
    }

    /// The request resources in which results of those that wait are to stand.
    pub(super) fn kept(&self) -> BTreeSet<u64> {
        let resource = |it: &Postponed| match it.asker.whom {
            Whom::Kept(seq, _) => Some(seq),
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

    /// The one whose result is to stand in the request resource of this number.
    fn kept_in(&self, resource: u64) -> Option<u64> {
        let is_it = |it: &Postponed| matches!(it.asker.whom, Whom::Kept(seq, _) if seq == resource);
        self.by_time.iter().find(|(_, it)| is_it(it)).map(|((_, seq), _)| *seq)
    }
}

impl Postponed {
    /// These and resources share the store; a row of these begins like no resource's.
    const MARK: &'static str = "{\"_o\":";

    fn to_record(&self) -> Arc<str> {
        let mut request = self.request.clone();
        // As text within the text: numbers must come back digit for digit.
        let content = request.content.take();
        let kept = match &self.asker.whom {
            Whom::Kept(seq, targets) => Some(json!([seq, &**targets])),
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
                Whom::Kept(seq.as_u64()?, targets.map(str::to_owned).collect())
            }
            _ => Whom::Nobody,
        };
        let (id, release) = (request.id.as_str().into(), request.release);
        let asked = Some(Arc::new(Asked::new(&request)));
        let from = request.from.as_str().into();
        let asker = Asker { whom, id, release, is_own: false, from, asked, since: 0 };
        let due = Timestamp::from_micros(body.get("due")?.as_u64()?);
        Some(Self { asker, request, due, stored: true })
    }
}

impl Cse {
    /// When a request that came now is done at the earliest.
    pub(super) fn begins(&self, request: &Request) -> Timestamp {
        request.executes.map_or(self.now, |time| time.resolve(self.now).max(self.now))
    }

    /// Has a request wait that is to be done at a later time. Whether it does.
    ///
    /// # Errors
    ///
    /// 4103 if its originator is not known here, 4000 if it is to wait longer than anything is kept,
    /// 5000 if as many wait as may.
    pub(super) fn postpone(
        &mut self,
        asker: &Asker,
        request: &Request,
        from: &str,
    ) -> Result<bool, Refusal> {
        let Some(time) = request.executes.map(|time| time.resolve(self.now)) else {
            return Ok(false);
        };
        if time <= self.now || self.observers.are_told() {
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
        let stored = matches!(asker.whom, Whom::Kept(..) | Whom::Nobody);
        let postponed = Postponed { asker: asker.clone(), request, due, stored };
        if stored {
            let body = postponed.to_record();
            self.ledger.write(Record::Put { seq, body }, Record::Delete { seq });
        }
        self.later.put(seq, due, postponed);
        Ok(true)
    }

    /// Does what is due.
    pub(super) fn do_postponed(&mut self) {
        while let Some((&(time, seq), _)) = self.later.by_time.first_key_value() {
            if time > self.now {
                return;
            }
            let Some(Postponed { asker, request, .. }) = self.end_waiting(seq) else {
                return;
            };
            // Each is a step of its own.
            self.fanned = 0;
            self.serve(&asker, &request);
        }
    }

    /// Takes out a request that waits; its row goes with what comes of it.
    fn end_waiting(&mut self, seq: u64) -> Option<Postponed> {
        let postponed = self.later.take(seq)?;
        self.undefer(&postponed.request);
        if postponed.stored {
            let body = postponed.to_record();
            self.ledger.write(Record::Delete { seq }, Record::Put { seq, body });
        }
        Some(postponed)
    }

    /// A request resource is gone: so is what was to be done for it (TS-0001 §10.2.5.6).
    pub(super) fn call_off(&mut self, resource: u64) {
        if let Some(seq) = self.later.kept_in(resource) {
            self.end_waiting(seq);
        }
    }

    /// Whether what is asked was to end in a request resource that is gone.
    pub(super) fn is_called_off(&self, asker: &Asker) -> bool {
        matches!(asker.whom, Whom::Kept(seq, _) if self.tree.by_seq(seq).is_none())
    }

    /// Takes over a stored row; whether it is a request that waits.
    pub(super) fn restore_postponed(&mut self, seq: u64, body: &str) -> bool {
        let Some(postponed) = Postponed::from_record(body) else {
            return false;
        };
        self.forget_postponed(seq);
        self.defer_again(&postponed.request);
        self.later.put(seq, postponed.due, postponed);
        true
    }

    /// Takes back a row whose end could not be stored; whether it is a request that waits.
    pub(super) fn postpone_again(&mut self, seq: u64, body: &str) -> bool {
        let restored = self.restore_postponed(seq, body);
        if let Some(postponed) = self.later.take(seq) {
            let time = postponed.due.max(self.now.plus(AGAIN_AFTER));
            self.later.put(seq, time, postponed);
        }
        restored
    }

    /// Forgets a request without a word.
    pub(super) fn forget_postponed(&mut self, seq: u64) {
        if let Some(postponed) = self.later.take(seq) {
            self.undefer(&postponed.request);
        }
    }
}
