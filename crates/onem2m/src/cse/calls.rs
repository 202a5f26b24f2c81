//! Outgoing requests of this CSE, and the purpose of their responses.

use super::{CallId, Cse, DEVICE_QUEUE, Done, Output, Recipient, Refusal, RequestContext};
use crate::address::node_of;
use crate::clock::Moment;
use crate::limits::share;
use crate::primitive::{Request, Response, Serialisation};
use crate::status::Status;
use core::time::Duration;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// A request to be sent to another entity.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Returned with the response.
    pub id: CallId,
    /// URLs of the entity, best first; the sender takes the first usable one.
    pub urls: Vec<String>,
    /// Serialisation that the entity prefers, if it has one.
    pub serialisation: Option<Serialisation>,
    /// The request.
    pub request: Arc<Request>,
    /// Time at which the CSE abandons it.
    ///
    /// By the monotonic clock ([`Now::elapsed`](crate::Now)).
    pub deadline: Duration,
    /// Whether it is the CSE's own: its registration, or its devices' readings. Other requests must
    /// not delay it.
    pub own: bool,
    /// The outbox queue of its message: messages of one queue are sent in order.
    pub queue: Option<Arc<str>>,
}

/// A request for a device connected to the surrounding process.
///
/// That process gave the device's AE its address, `device://SYSTEM-ID`; no other originator can set
/// one.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceCall {
    /// Returned with the response.
    pub id: CallId,
    /// The device, as its address names it: `0022090000000001`.
    pub device: String,
    /// The request.
    pub request: Request,
}

/// Prefix of device addresses.
const DEVICE: &str = "device://";

/// The point of access of a device's AE: the address of the device.
pub fn device_address(device: impl core::fmt::Display) -> String {
    format!("{DEVICE}{device}")
}

/// The device of an address.
pub(super) fn device_of(address: &str) -> Option<&str> {
    address.strip_prefix(DEVICE)
}

/// Whether a URL parser would take a text for the address of a device.
pub(super) fn is_device_like(address: &str) -> bool {
    let scheme = address.trim_start().split(':').next().unwrap_or_default();
    address.contains(':') && scheme.eq_ignore_ascii_case("device")
}

/// The request was not delivered: no listener, a broken connection, or no response in time.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not reachable: {0}")]
pub struct Unreachable(pub String);

/// Purpose of a response.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    /// It answers another entity's request: forward it.
    Forward(RequestContext),
    /// This CSE's own registration.
    Registration,
    /// An outbox message of this queue, with the number of its request.
    Message { queue: Arc<str>, number: u64 },
    /// Verification of a notification target.
    Verification(u64),
    /// Consent to an update of the resource with this number.
    Consent(u64),
    /// None: its effect is visible in other ways.
    Nothing,
}

impl Purpose {
    /// Whether the request is this CSE's own, without an originator waiting.
    fn is_own(&self) -> bool {
        match self {
            Self::Registration => true,
            Self::Message { queue, .. } => queue.starts_with(DEVICE_QUEUE),
            Self::Forward(_) | Self::Verification(_) | Self::Consent(_) | Self::Nothing => false,
        }
    }
}

/// Unanswered outgoing requests.
#[derive(Debug, Default)]
pub(super) struct Calls {
    next: u64,
    open: BTreeMap<CallId, Open>,
    deadlines: BTreeSet<(Moment, CallId)>,
    /// Requests by payer; the CSE's own have none.
    by_payer: HashMap<Arc<str>, usize>,
    /// Requests with a payer.
    others: usize,
    /// Whether the last request to the registrar that has ended had no answer.
    registrar_is_silent: bool,
}

/// An unanswered request.
#[derive(Debug)]
struct Open {
    deadline: Moment,
    purpose: Purpose,
    /// The entity whose quota it uses, unless it is the CSE's own.
    payer: Option<Arc<str>>,
    /// Whether it goes to the registrar.
    is_above: bool,
}

impl Calls {
    /// Time at which the next one expires.
    pub(super) fn next_deadline(&self) -> Option<Moment> {
        self.deadlines.first().map(|&(time, _)| time)
    }

    fn add(&mut self, open: Open) -> CallId {
        self.next += 1;
        let id = CallId(self.next);
        if let Some(payer) = &open.payer {
            *self.by_payer.entry(Arc::clone(payer)).or_default() += 1;
            self.others += 1;
        }
        self.deadlines.insert((open.deadline, id));
        self.open.insert(id, open);
        id
    }

    /// Whether a response is still expected.
    pub(super) fn is_open(&self, id: CallId) -> bool {
        self.open.contains_key(&id)
    }

    /// Notes whether the registrar has answered, if the request is one to it.
    fn note_registrar(&mut self, id: CallId, is_answered: bool) {
        if self.open.get(&id).is_some_and(|open| open.is_above) {
            self.registrar_is_silent = !is_answered;
        }
    }

    fn take(&mut self, id: CallId) -> Option<Purpose> {
        let Open { deadline, purpose, payer, is_above: _ } = self.open.remove(&id)?;
        if let Some(payer) = payer {
            self.others = self.others.saturating_sub(1);
            if let Entry::Occupied(mut entry) = self.by_payer.entry(payer) {
                *entry.get_mut() -= 1;
                if *entry.get() == 0 {
                    entry.remove();
                }
            }
        }
        self.deadlines.remove(&(deadline, id));
        Some(purpose)
    }
}

impl Cse {
    /// Sends a request to one of these URLs; its response or failure is handled by its purpose.
    /// `payer` is the entity whose quota it uses.
    ///
    /// # Errors
    ///
    /// 5103 if too many are unanswered.
    pub(super) fn call(
        &mut self,
        (urls, serialisation): (Vec<String>, Option<Serialisation>),
        request: impl Into<Arc<Request>>,
        purpose: Purpose,
        payer: &str,
    ) -> Result<(), Refusal> {
        let request = request.into();
        let own = purpose.is_own();
        let queue = match &purpose {
            Purpose::Message { queue, .. } => Some(Arc::clone(queue)),
            _ => None,
        };
        let is_above = self.config.registrar.as_ref().is_some_and(|it| urls.contains(&it.url));
        let (id, deadline) = self.open_call(&request, purpose, (payer, is_above))?;
        let deadline = self.clock.elapsed_at(deadline);
        let call = Call { id, urls, serialisation, request, deadline, own, queue };
        self.ledger.say(Output::Call(Box::new(call)));
        Ok(())
    }

    /// Registers a request about to be sent, with its deadline; `is_above` if it goes to the
    /// registrar.
    pub(super) fn open_call(
        &mut self,
        request: &Request,
        purpose: Purpose,
        (payer, is_above): (&str, bool),
    ) -> Result<(CallId, Moment), Refusal> {
        let payer = (!purpose.is_own()).then(|| node_of(self.own_form(payer)).into());
        self.check_calls(payer.as_deref())?;
        let limits = &self.config.limits;
        let longest = self.now.plus(limits.answer_within_max);
        // What is to be done later is answered later, if there is anybody to be told.
        let told =
            !matches!(&purpose, Purpose::Forward(asker) if matches!(asker.whom, Recipient::Nobody));
        let begins = if told { self.begins(request) } else { self.now };
        let wanted = request.request_expires.map(|time| time.resolve(self.now));
        let deadline = wanted.unwrap_or_else(|| begins.plus(limits.answer_within)).min(longest);
        let deadline = self.moment_of(deadline);
        Ok((self.calls.add(Open { deadline, purpose, payer, is_above }), deadline))
    }

    /// Whether one more request is allowed: peers' requests leave a quarter to this CSE's own, and
    /// one peer has a quarter.
    fn check_calls(&mut self, payer: Option<&str>) -> Result<(), Refusal> {
        let most = self.config.limits.outstanding;
        let share = share(most);
        let refuse = |words| Err(Refusal::new(Status::TargetNotReachable, words));
        if let Some(payer) = payer
            && self.calls.by_payer.get(payer).is_some_and(|&count| count >= share)
        {
            self.counters.outstanding_of_one_full += 1;
            return refuse("too many requests of one originator to others are unanswered");
        }
        let is_full = self.calls.open.len() >= most;
        if is_full || (payer.is_some() && self.calls.others >= most.saturating_sub(share).max(1)) {
            self.counters.outstanding_full += 1;
            return refuse("too many requests to others are unanswered");
        }
        Ok(())
    }

    /// Removes a request that was not sent after all.
    pub(super) fn close_call(&mut self, id: CallId) {
        self.calls.take(id);
    }

    /// Takes the outcome of a request that was sent.
    pub(super) fn take_answer(&mut self, id: CallId, answer: Result<Response, Unreachable>) {
        self.calls.note_registrar(id, answer.is_ok());
        self.end_call(id, answer);
    }

    /// Ends a request that was not sent, which tells nothing of its target.
    pub(super) fn take_unsent(&mut self, id: CallId, why: String) {
        self.end_call(id, Err(Unreachable(why)));
    }

    fn end_call(&mut self, id: CallId, answer: Result<Response, Unreachable>) {
        let Some(purpose) = self.calls.take(id) else {
            self.counters.stray_answers += 1;
            return;
        };
        match purpose {
            Purpose::Forward(asker) => self.pass_on(&asker, answer),
            Purpose::Registration => self.registration_answered(answer),
            Purpose::Message { queue, number } => {
                self.message_answered(&queue, number, answer);
            }
            Purpose::Verification(number) => self.verification_answered(number, answer),
            Purpose::Consent(seq) => self.consent_answered(seq, answer),
            Purpose::Nothing => {}
        }
    }

    /// Whether the last request to the registrar that has ended, of whatever purpose, had no answer.
    pub const fn is_registrar_silent(&self) -> bool {
        self.calls.registrar_is_silent
    }

    /// Nothing is known of a registrar at another address.
    pub(super) const fn forget_silence_above(&mut self) {
        self.calls.registrar_is_silent = false;
    }

    /// Expires unanswered requests.
    pub(super) fn give_up(&mut self) {
        while let Some(&(deadline, id)) = self.calls.deadlines.first() {
            if deadline > self.moment {
                return;
            }
            self.counters.unanswered += 1;
            self.take_answer(id, Err(Unreachable("no answer in time".to_owned())));
        }
    }

    fn pass_on(&mut self, asker: &RequestContext, answer: Result<Response, Unreachable>) {
        let outcome = match answer {
            Ok(answer) if answer.status.is_success() => Ok(Done {
                status: answer.status,
                content: answer.content,
                location: answer.location,
                partial: answer.partial,
                reservation: answer.reservation,
            }),
            Ok(answer) => {
                self.answer_remote_refusal(asker, answer);
                return;
            }
            Err(unreachable) => {
                Err(Refusal::new(Status::TargetNotReachable, unreachable.to_string()))
            }
        };
        self.answer(asker, outcome);
    }

    /// Passes on another CSE's refusal verbatim.
    fn answer_remote_refusal(&mut self, asker: &RequestContext, answer: Response) {
        self.counters.refused += 1;
        let mut response = Response::new(answer.status, &*asker.id, asker.release);
        response.content = answer.content;
        response.retry_after = answer.retry_after;
        response.is_unavailable = answer.is_unavailable;
        self.deliver(asker, response);
    }
}
