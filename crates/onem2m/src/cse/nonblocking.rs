//! Non-blocking requests (TS-0001 §8.2.2), accepted first and answered later: the answer is stored
//! in a request resource, notified, or dropped.

use super::access::{Originator, Right};
use super::create::Draft;
use super::outbox::OutboxMessage;
use super::room::peer_of;
use super::{Cse, Done, Recipient, Refusal, RequestContext, Target};
use crate::address::node_of;
use crate::limits::share;
use crate::primitive::{Deadline, Operation, Release, Request, Response, ResponseType};
use crate::resource::{PLACE_OCTETS, Resource, push_json_text};
use crate::resource_type::ResourceType;
use crate::status::Status;
use crate::time::Timestamp;
use crate::tree::Slot;
use core::fmt::Write;
use core::time::Duration;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::sync::Arc;

/// Time that a result is kept without a given rp.
const KEPT_FOR: Duration = Duration::from_mins(10);
/// m2m:requestStatus.
const COMPLETED: u8 = 1;
/// m2m:requestStatus.
const FAILED: u8 = 2;
/// m2m:requestStatus.
pub(super) const PENDING: u8 = 3;

impl Cse {
    /// Accepts a non-blocking request and executes it.
    pub(super) fn accept(&mut self, asker: &RequestContext, request: &Request) {
        if let Err(refusal) = self.check(request) {
            self.answer(asker, Err(refusal));
            return;
        }
        let mut blocking = request.clone();
        blocking.response_type = ResponseType::Blocking;
        // It holds a place among the requests to others: not after there is anybody to be told.
        let longest = match request.response_type {
            ResponseType::None => self.begins(request).plus(self.config.limits.unattended_within),
            _ => self.kept_until(request),
        };
        if let Some(wanted) = &mut blocking.request_expires {
            *wanted = Deadline::At(wanted.resolve(self.now).min(longest));
        }
        if request.response_type == ResponseType::None {
            self.answer(asker, Ok(Done::new(Status::Accepted)));
            self.serve(&RequestContext { whom: Recipient::Nobody, ..asker.clone() }, &blocking);
            return;
        }
        let from = self.own_form(&request.from).to_owned();
        let targets = match request.response_type {
            ResponseType::NonBlockingAsynchronous if request.notify.is_empty() => {
                vec![from.clone()]
            }
            ResponseType::NonBlockingAsynchronous => request.notify.clone(),
            _ => Vec::new(),
        };
        let status = if targets.is_empty() {
            Status::AcceptedSynchronously
        } else {
            Status::AcceptedAsynchronously
        };
        let allowed = self.check_targets(&Originator::of(request, &from, asker), &targets);
        match allowed.and_then(|()| self.note(asker, request, &from, status)) {
            Err(refusal) => self.answer(asker, Err(refusal)),
            Ok((seq, path)) => {
                let address = self.address_for(&request.from, path);
                let content = json!({ "m2m:uri": address }).to_string();
                self.answer(asker, Ok(Done::with(status, content)));
                let whom = Recipient::Kept(seq, targets.into());
                self.serve(&RequestContext { whom, ..asker.clone() }, &blocking);
            }
        }
    }

    /// Refuses notification targets that the originator may not notify: in the name of this CSE an
    /// answer would reach entities that the originator could not reach itself.
    ///
    /// # Errors
    ///
    /// 4103 unless each target is the originator itself, one of its points of access, or an AE here
    /// that it may notify.
    pub(super) fn check_targets(
        &self,
        from: &Originator<'_>,
        targets: &[String],
    ) -> Result<(), Refusal> {
        if self.is_almighty(from) {
            return Ok(());
        }
        let own = match from.strip_prefix('/') {
            Some(_) => self.remote_cse(from),
            None => self.tree.by_id(from),
        };
        let urls = own.and_then(|slot| self.tree.get(slot));
        let is_own_url =
            |target: &str| urls.is_some_and(|it| it.texts("poa").any(|url| url == target));
        for target in targets {
            if self.own_form(target) == &**from || is_own_url(target) {
                continue;
            }
            match self.resolve_local(target) {
                Some(Target::Resource(slot)) if Some(slot) == own => {}
                Some(Target::Resource(slot)) => self.demand(from, Right::Notify, slot, None)?,
                _ => return Err(super::denied()),
            }
        }
        Ok(())
    }

    /// Expiry of a request's answer, counted from its completion.
    fn kept_until(&self, request: &Request) -> Timestamp {
        let begins = self.begins(request);
        let kept = request.result_kept.map(|time| time.resolve(begins));
        let kept = kept.filter(|&until| until > begins || request.executes.is_none());
        let latest = begins.plus(self.config.limits.answers_kept_within);
        kept.map_or_else(|| begins.plus(KEPT_FOR), |until| until.min(latest))
    }

    /// Creates the request resource.
    fn note(
        &mut self,
        asker: &RequestContext,
        request: &Request,
        from: &str,
        accepted: Status,
    ) -> Result<(u64, String), Refusal> {
        // Strangers may ask, but not fill the tree: what they may not do, they are told at once.
        let known = self.is_registered(from) || self.config.admin.as_deref() == Some(from);
        if !known {
            return Err(super::denied());
        }
        let content = request.content.as_ref().map_or(0, |content| content.len());
        self.check_answers_kept(from, 1 + content / PLACE_OCTETS)?;
        let parent = self.tree.root().ok_or_else(|| super::not_found("there is no base"))?;
        let made_by = peer_of(asker, request);
        let until = self.kept_until(request);
        let attributes = json!({
            "op": request.operation.number(),
            "tg": request.to,
            "org": request.from,
            "rid": request.id,
            "mi": meta_information(request),
            "rs": PENDING,
            // "Initially indicates acknowledgement" (TS-0001 §10.2.5.3).
            "ors": { "rsc": accepted.number(), "rqi": request.id },
            "et": until.to_string(),
        });
        let Value::Object(mut attributes) = attributes else {
            return Err(Refusal::new(Status::InternalServerError, "no attributes"));
        };
        if let Some(content) = &request.content {
            attributes.insert("pc".into(), serde_json::from_str(content).unwrap_or_default());
        }
        let slot = self.found(Draft {
            resource_type: ResourceType::Request,
            tag: Cow::Borrowed(ResourceType::Request.tag()),
            parent,
            attributes,
            id: None,
            owner: from.to_owned(),
            sponsor: None,
            made_by,
        })?;
        Ok((self.resource(slot)?.seq, self.tree.path(slot)))
    }

    /// Checks that the answers kept for `from` and for all may take up so many further places: each is a
    /// branch of its own below the CSEBase, so no branch bounds them.
    ///
    /// # Errors
    ///
    /// 5000 if the limit is reached, of all or of the originator.
    fn check_answers_kept(&mut self, from: &str, further: usize) -> Result<(), Refusal> {
        let limits = &self.config.limits;
        let most = limits.answers_kept.min(share(limits.resources));
        let (all, own) = self.tree.answer_places(node_of(from));
        if all + further <= most && own + further <= share(most) {
            return Ok(());
        }
        self.counters.answers_kept_full += 1;
        let why = format!(
            "the CSE keeps answers to non-blocking requests in {} resources of 2 KiB for one \
             originator, {most} in all: fetch and delete earlier ones, or wait until they expire",
            share(most)
        );
        Err(Refusal::new(Status::InternalServerError, why))
    }

    /// Checks that the answer fits into the request resource.
    fn check_answer(&mut self, slot: Slot, result: &Value) -> Result<(), Refusal> {
        let mut given = Map::new();
        given.insert("ors".into(), result.clone());
        let (further, owner) = {
            let kept = self.resource(slot)?;
            (kept.further_places(&given), Arc::clone(&kept.owner))
        };
        if further == 0 {
            return Ok(());
        }
        self.check_answers_kept(&owner, further)?;
        self.check_growth(slot, &given)
    }

    /// Fails requests accepted in an earlier run of which only the request resources are left:
    /// whether they were done is unknown.
    pub(super) fn fail_abandoned(&mut self) {
        let waiting = self.later.kept();
        let is_abandoned = |it: &Resource| {
            let pending =
                it.resource_type == ResourceType::Request && it.uint("rs") == Some(PENDING.into());
            pending && !waiting.contains(&it.seq)
        };
        let requests = self.tree.iter().filter(|(_, it)| is_abandoned(it));
        let abandoned: Vec<_> = requests.map(|(_, it)| Abandoned::of(it)).collect();
        for Abandoned { seq, targets, id, release } in abandoned {
            let refusal = Refusal::new(
                Status::InternalServerError,
                "the CSE was started again before there was an answer",
            );
            self.keep_answer(seq, &targets, &Response::refusing(&refusal, id, release));
        }
    }

    /// Stores the answer and notifies its targets.
    pub(super) fn keep_answer(&mut self, seq: u64, targets: &[String], response: &Response) {
        let text = response_text(response);
        if let Some(slot) = self.tree.by_seq(seq) {
            let mut result: Value = serde_json::from_str(&text).unwrap_or_default();
            let mut state = if response.status.is_success() { COMPLETED } else { FAILED };
            if let Err(refusal) = self.check_answer(slot, &result) {
                // The request was executed; only its answer has no room.
                let refused = Response::refusing(&refusal, response.id.clone(), response.release);
                result = serde_json::from_str(&response_text(&refused)).unwrap_or_default();
                state = FAILED;
            }
            self.change(slot, |kept| {
                kept.attributes.insert("rs".into(), json!(state));
                kept.attributes.insert("ors".into(), result);
            });
        }
        for target in targets {
            let mut request = self.own_request(Operation::Notify, target.clone());
            request.content = Some(format!("{{\"m2m:rsp\":{text}}}").into());
            let queue: Arc<str> = format!("answers {target}").into();
            let keep = Some(KEPT_FOR);
            let target = target.as_str().into();
            let request = Arc::new(request);
            let message = OutboxMessage { queue, target, request, keep, batch: None };
            if self.post(message).is_err() {
                self.counters.notifications_dropped += 1;
            }
        }
    }
}

/// A request of which only the request resource is left.
struct Abandoned {
    seq: u64,
    /// Notification targets.
    targets: Vec<String>,
    id: Arc<str>,
    release: Release,
}

impl Abandoned {
    fn of(resource: &Resource) -> Self {
        let meta = resource.attribute("mi");
        let how = meta.and_then(|meta| meta.get("rt"));
        let told = ResponseType::NonBlockingAsynchronous.number();
        let targets = match how.and_then(|how| how.get("rtv")).and_then(Value::as_u64) {
            Some(response_type) if response_type == u64::from(told) => {
                let named = how.and_then(|how| how.get("nu")).and_then(Value::as_array);
                named.map_or_else(
                    || vec![resource.owner.as_ref().to_owned()],
                    |named| named.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
                )
            }
            _ => Vec::new(),
        };
        let release = meta.and_then(|meta| meta.get("rvi")).and_then(Value::as_str);
        let release = release.and_then(|text| Release::parse(text).ok()).unwrap_or_default();
        let id = resource.text("rid").unwrap_or_default().into();
        Self { seq: resource.seq, targets, id, release }
    }
}

/// A response primitive as text, with its content unchanged.
pub(super) fn response_text(response: &Response) -> String {
    let mut text = format!("{{\"rsc\":{},\"rqi\":", response.status.number());
    push_json_text(&mut text, &response.id);
    let _ = write!(text, ",\"rvi\":\"{}\"", response.release.text());
    if let Some(content) = &response.content {
        let _ = write!(text, ",\"pc\":{content}");
    }
    text.push('}');
    text
}

/// Further parameters of a request (m2m:metaInformation): "information in any other optional
/// parameters" (TS-0001 §10.2.5.3).
fn meta_information(request: &Request) -> Value {
    let Value::Object(mut meta) = request.to_value() else {
        return Value::Null;
    };
    // They have attributes of their own.
    for name in ["op", "to", "fr", "rqi", "pc"] {
        meta.remove(name);
    }
    Value::Object(meta)
}
