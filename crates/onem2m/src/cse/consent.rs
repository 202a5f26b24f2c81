//! Updates that wait for consent (TS-0001 §9.6.8, TS-0004 §7.5.1.2.19): the target of a blocking
//! subscription is asked before an update is done. Other changes of the resource wait behind it.

use super::calls::{Purpose, Unreachable};
use super::notify::VisiblePart;
use super::{Cse, Done, Refusal, RequestContext, not_found};
use crate::fate::Fate;
use crate::primitive::{Deadline, Operation, Request, Response};
use crate::status::Status;
use crate::tree::Slot;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// An update without the target's answer yet.
#[derive(Debug)]
struct Blocked {
    asker: RequestContext,
    request: Request,
    given: Map<String, Value>,
    /// Updates and deletions of the same resource, in their order.
    behind: VecDeque<(RequestContext, Request)>,
}

/// Waiting updates, by the number of the resource.
#[derive(Debug, Default)]
pub(super) struct Consents(BTreeMap<u64, Blocked>);

impl Cse {
    /// Queues a change of a resource behind an update that waits for consent. Returns whether it
    /// did.
    pub(super) fn wait_behind(
        &mut self,
        asker: &RequestContext,
        request: &Request,
        slot: Slot,
    ) -> Result<bool, Refusal> {
        if !matches!(request.operation, Operation::Update | Operation::Delete) {
            return Ok(false);
        }
        let seq = self.resource(slot)?.seq;
        let Some(behind) = self.consents.0.get(&seq).map(|blocked| blocked.behind.len()) else {
            return Ok(false);
        };
        if behind >= self.config.limits.blocked {
            self.counters.deferred_full += 1;
            let why = "too many changes of this resource wait for one of its updates";
            return Err(Refusal::new(Status::InternalServerError, why));
        }
        let request = request.received_at(self.now);
        self.defer(&request)?;
        if let Some(blocked) = self.consents.0.get_mut(&seq) {
            blocked.behind.push_back((asker.clone(), request));
        }
        Ok(true)
    }

    /// Asks for consent to a checked update, if the resource has a blocking subscription. Returns
    /// whether the update waits.
    pub(super) fn ask_consent(
        &mut self,
        asker: &RequestContext,
        request: &Request,
        slot: Slot,
        given: &Map<String, Value>,
    ) -> Result<bool, Refusal> {
        let Some(keeper) = self.blocking_subscription(slot) else {
            return Ok(false);
        };
        let subscription = self.resource(keeper)?;
        let criteria = subscription.attribute("enc");
        let attributes = criteria.and_then(|it| it.get("atr")).and_then(Value::as_array);
        let is_meant = attributes.is_none_or(|names| {
            names.iter().filter_map(Value::as_str).any(|name| given.contains_key(name))
        });
        let (true, Some(target)) = (is_meant, subscription.texts("nu").next()) else {
            return Ok(false);
        };
        let (target, owner) = (target.to_owned(), Arc::clone(&subscription.owner));
        let seen = self.seen_by(&owner, slot);
        let representation = match seen {
            // What the update says, digit for digit.
            Some(VisiblePart::Whole) => request.content.as_deref().unwrap_or("{}").to_owned(),
            Some(VisiblePart::Address) => self.address_alone(slot),
            // Who may see nothing of it keeps it no more.
            None => {
                self.counters.notifications_withheld += 1;
                return Ok(false);
            }
        };
        let event = blocking_event(&representation);
        let event = self.event_content(self.resource(keeper)?, &target, &event);
        let request = request.received_at(self.now);
        self.defer(&request)?;
        let seq = self.resource(slot)?.seq;
        if let Err(refusal) = self.ask_keeper(seq, &request, &target, event) {
            self.undefer(&request);
            return Err(keeper_away(&refusal.debug));
        }
        self.counters.blocked += 1;
        let (asker, given) = (asker.clone(), given.clone());
        let blocked = Blocked { asker, request, given, behind: VecDeque::new() };
        self.consents.0.insert(seq, blocked);
        Ok(true)
    }

    fn ask_keeper(
        &mut self,
        seq: u64,
        request: &Request,
        target: &str,
        content: String,
    ) -> Result<(), Refusal> {
        let mut question = self.own_request(Operation::Notify, target.to_owned());
        question.content = Some(content.into());
        // Others wait, too: however long the originator would, this CSE does not.
        let longest = self.now.plus(self.config.limits.answer_within);
        let until = request.request_expires.map_or(longest, |time| time.resolve(self.now));
        question.request_expires = Some(Deadline::At(until.min(longest)));
        let mut question = Arc::new(question);
        let route = self.reach(target, &mut question)?;
        self.send(route, question, Purpose::Consent(seq), &request.from)
    }

    /// Handles the target's answer or failure: the update is done or refused, and the changes
    /// behind it follow.
    pub(super) fn consent_answered(&mut self, seq: u64, answer: Result<Response, Unreachable>) {
        let Some(blocked) = self.consents.0.remove(&seq) else {
            return;
        };
        self.undefer(&blocked.request);
        if !self.is_called_off(&blocked.asker) {
            let outcome = verdict(answer).and_then(|()| self.do_blocked(seq, &blocked));
            self.answer(&blocked.asker, outcome);
        }
        let mut behind = blocked.behind;
        while let Some((asker, request)) = behind.pop_front() {
            self.undefer(&request);
            if self.is_called_off(&asker) {
                continue;
            }
            self.serve(&asker, &request);
            if let Some(next) = self.consents.0.get_mut(&seq) {
                // It waits itself now, and the others behind it.
                next.behind.append(&mut behind);
            }
        }
    }

    fn do_blocked(&mut self, seq: u64, blocked: &Blocked) -> Result<Done, Refusal> {
        self.check(&blocked.request)?;
        let slot = self.tree.by_seq(seq).ok_or_else(|| not_found("the resource is gone"))?;
        self.apply_update(&blocked.asker, &blocked.request, slot, blocked.given.clone())
    }
}

/// Effect of the target's answer on the update (TS-0004 §7.3.2.9).
fn verdict(answer: Result<Response, Unreachable>) -> Result<(), Refusal> {
    let answer = answer.map_err(|unreachable| keeper_away(&unreachable.0))?;
    let number = answer.status.number();
    match answer.fate() {
        Fate::Done => Ok(()),
        // It has not judged the update.
        Fate::Again(_) => Err(keeper_away(&format!("it answered {number}"))),
        // Other refusals have no code there: they are refusals all the same.
        _ => Err(Refusal::new(
            Status::OperationDeniedByRemoteEntity,
            format!("the consenting target did not agree ({number})"),
        )),
    }
}

/// m2m:notificationEvent of a waiting update.
fn blocking_event(representation: &str) -> String {
    format!("{{\"net\":7,\"rep\":{representation}}}")
}

fn keeper_away(why: &str) -> Refusal {
    Refusal::new(
        Status::RemoteEntityNotReachable,
        format!("the consenting target cannot be reached: {why}"),
    )
}
