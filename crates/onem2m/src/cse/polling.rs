//! Polling channels (TS-0001 §9.6.21, §10.2.5): an unreachable entity fetches its requests and
//! returns the answers.

use super::calls::{DeviceCall, Purpose, Unreachable};
use super::{CallId, Cse, Done, Output, Recipient, Refusal, RequestContext, Token, denied};
use crate::clock::Moment;
use crate::primitive::{Request, Response, Serialisation};
use crate::resource_type::ResourceType;
use crate::status::Status;
use crate::tree::Slot;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Route to an entity.
#[derive(Clone, Debug)]
pub(super) enum EntityRoute {
    /// One of these URLs, in this serialisation; the sender's choice if `None`.
    Urls(Vec<String>, Option<Serialisation>),
    /// The device with this name, connected to the surrounding process.
    Device(String),
    /// The polling channel with this number.
    Channel(u64),
}

/// Requests and pollers of one channel.
#[derive(Debug, Default)]
struct Channel {
    /// Requests not fetched yet.
    requests: VecDeque<(CallId, Request)>,
    /// Fetched and unanswered requests, by request identifier.
    fetched: BTreeMap<String, CallId>,
    /// Of those, requests given to pollers, by the token of their answer.
    given: BTreeMap<Token, Vec<(CallId, Request)>>,
    /// Waiting pollers: by deadline, then in order of arrival. The next request goes to the poller
    /// with the earliest deadline.
    pollers: BTreeMap<(Moment, u64), RequestContext>,
    /// Number of polls so far.
    polled: u64,
}

/// Every channel in use.
#[derive(Debug, Default)]
pub(super) struct Channels(BTreeMap<u64, Channel>);

impl Channels {
    /// Deadline of the next poller.
    pub(super) fn next_deadline(&self) -> Option<Moment> {
        let pollers = self.0.values().filter_map(|channel| channel.pollers.first_key_value());
        pollers.map(|((time, _), _)| *time).min()
    }
}

impl Cse {
    /// Checks a new polling channel: created by its parent's entity, and the only one.
    pub(super) fn check_channel(&self, parent: Slot, from: &str) -> Result<(), Refusal> {
        let entity = self.resource(parent)?;
        let own = *entity.id == *from || entity.text("csi") == Some(from);
        if !own {
            return Err(denied());
        }
        if self.channel_of(parent).is_some() {
            return Err(Refusal::new(Status::Conflict, "there is a polling channel"));
        }
        Ok(())
    }

    /// The polling channel of an entity.
    pub(super) fn channel_of(&self, entity: Slot) -> Option<u64> {
        let child = self.tree.children(entity).find_map(|child| {
            self.tree.get(child).filter(|child| child.resource_type == ResourceType::PollingChannel)
        })?;
        Some(child.seq)
    }

    /// Puts a request into a channel; a waiting poller gets it at once.
    pub(super) fn put_in_channel(
        &mut self,
        channel: u64,
        call: CallId,
        request: Request,
    ) -> Result<(), Refusal> {
        let limit = self.config.limits.polled;
        let queue = self.channels.0.entry(channel).or_default();
        if queue.requests.len() >= limit {
            self.counters.polling_full += 1;
            return Err(Refusal::new(Status::TargetNotReachable, "the polling channel is full"));
        }
        let mut others = queue.requests.iter().map(|(call, waits)| (&waits.id, call));
        let fetched = queue.fetched.get_key_value(&request.id);
        if others
            .by_ref()
            .chain(fetched)
            .any(|(id, &it)| *id == request.id && self.calls.is_open(it))
        {
            let why = "a request with this identifier waits in the polling channel";
            return Err(Refusal::new(Status::TargetNotReachable, why));
        }
        queue.requests.push_back((call, request));
        self.serve_poller(channel);
        Ok(())
    }

    /// Gives the next request to a poller of the channel.
    fn serve_poller(&mut self, channel: u64) {
        let Some(queue) = self.channels.0.get_mut(&channel) else { return };
        if let Some((_, poller)) = queue.pollers.pop_first()
            && let Some(done) = self.fetch(channel, &poller)
        {
            self.answer(&poller, Ok(done));
        }
    }

    /// Takes back the requests of a poller that has disconnected, for the next one.
    pub(super) fn take_back(&mut self, token: Token) {
        let given = self.channels.0.iter_mut().find_map(|(channel, queue)| {
            queue.given.remove(&token).map(|given| (*channel, queue, given))
        });
        let Some((channel, queue, given)) = given else { return };
        let before = queue.requests.len();
        for (call, request) in given.into_iter().rev() {
            // Not if it was answered, or given up.
            if queue.fetched.remove(&request.id).is_some() && self.calls.is_open(call) {
                queue.requests.push_front((call, request));
            }
        }
        if queue.requests.len() > before {
            self.serve_poller(channel);
        }
    }

    fn fetch(&mut self, channel: u64, poller: &RequestContext) -> Option<Done> {
        let slot = self.tree.by_seq(channel);
        let aggregates =
            slot.and_then(|slot| self.tree.get(slot)).is_some_and(|it| it.flag("rqag"));
        let queue = self.channels.0.get_mut(&channel)?;
        // What nobody waits for any more is not worth fetching.
        queue.requests.retain(|(call, _)| self.calls.is_open(*call));
        let number = if aggregates { queue.requests.len() } else { 1 };
        let mut room = self.config.limits.content_octets;
        let mut fetched: Vec<(CallId, Request)> = Vec::new();
        let mut texts: Vec<String> = Vec::new();
        while let Some((call, request)) = queue.requests.pop_front_if(|_| fetched.len() < number) {
            let text = request.to_json();
            if text.len() > room && !fetched.is_empty() {
                queue.requests.push_front((call, request));
                break;
            }
            room = room.saturating_sub(text.len());
            texts.push(text);
            fetched.push((call, request));
        }
        if fetched.is_empty() {
            return None;
        }
        queue.fetched.retain(|_, call| self.calls.is_open(*call));
        queue.given.retain(|_, given| given.iter().any(|(call, _)| self.calls.is_open(*call)));
        queue.fetched.extend(fetched.iter().map(|(call, request)| (request.id.clone(), *call)));
        if let Recipient::Outside(token, _) = poller.whom {
            queue.given.insert(token, fetched);
        }
        let text = if aggregates {
            // As acmecse 2026.5 has it: a list of primitives.
            format!("{{\"m2m:agrp\":[{}]}}", texts.join(","))
        } else {
            format!("{{\"m2m:rqp\":{}}}", texts.join(","))
        };
        Some(Done::with(Status::Ok, text))
    }

    /// Retrieves `pcu`: the next request, now or when there is one.
    pub(super) fn poll(
        &mut self,
        asker: &RequestContext,
        request: &Request,
        from: &str,
        slot: Slot,
    ) -> Result<Option<Done>, Refusal> {
        let channel = self.demand_channel(from, slot)?;
        if let Some(done) = self.fetch(channel, asker) {
            return Ok(Some(done));
        }
        let longest = self.now.plus(self.config.limits.answer_within);
        let wanted = request.request_expires.map(|time| time.resolve(self.now));
        let until = self.moment_of(wanted.map_or(longest, |time| time.min(longest)));
        let limit = self.config.limits.polled;
        let queue = self.channels.0.entry(channel).or_default();
        if queue.pollers.len() >= limit {
            self.counters.polling_full += 1;
            return Err(Refusal::new(Status::RequestTimeout, "too many poll this channel"));
        }
        queue.polled += 1;
        queue.pollers.insert((until, queue.polled), asker.clone());
        Ok(None)
    }

    /// Notifies `pcu`: the answer to a fetched request.
    pub(super) fn take_polled_answer(
        &mut self,
        request: &Request,
        from: &str,
        slot: Slot,
    ) -> Result<Done, Refusal> {
        let channel = self.demand_channel(from, slot)?;
        let content = request.content.as_deref().unwrap_or("null");
        let response = Response::from_json(content.as_bytes())?;
        let queue = self.channels.0.get_mut(&channel);
        let call = queue.and_then(|queue| queue.fetched.remove(&*response.id));
        let call = call.ok_or_else(|| Refusal::bad("no such request was fetched"))?;
        self.take_answer(call, Ok(response));
        Ok(Done::new(Status::Ok))
    }

    fn demand_channel(&self, from: &str, slot: Slot) -> Result<u64, Refusal> {
        let channel = self.resource(slot)?;
        if *channel.owner == *from { Ok(channel.seq) } else { Err(denied()) }
    }

    /// Answers pollers at their deadline that there is no request.
    pub(super) fn release_pollers(&mut self) {
        let now = self.moment;
        let mut released = Vec::new();
        for queue in self.channels.0.values_mut() {
            while let Some(first) = queue.pollers.first_entry()
                && first.key().0 <= now
            {
                released.push(first.remove());
            }
        }
        for asker in released {
            let nothing = Refusal::new(Status::RequestTimeout, "there is no request");
            self.answer(&asker, Err(nothing));
        }
        // A channel that is gone takes what it held with it.
        let tree = &self.tree;
        let gone: Vec<u64> =
            self.channels.0.keys().copied().filter(|&seq| tree.by_seq(seq).is_none()).collect();
        for channel in gone {
            let Some(queue) = self.channels.0.remove(&channel) else {
                continue;
            };
            for (call, _) in queue.requests {
                self.take_answer(call, Err(Unreachable("the polling channel is gone".into())));
            }
            for asker in queue.pollers.into_values() {
                self.answer(&asker, Err(super::not_found("the polling channel is gone")));
            }
        }
    }

    /// Sends a request on its route; its answer is handled by its purpose. `payer` is the entity
    /// whose quota it uses.
    ///
    /// # Errors
    ///
    /// 5103 if too many are unanswered, or the channel is full.
    pub(super) fn send(
        &mut self,
        route: EntityRoute,
        request: impl Into<Arc<Request>>,
        purpose: Purpose,
        payer: &str,
    ) -> Result<(), Refusal> {
        let request = request.into();
        self.note_passed_on(&route, &request, &purpose);
        match route {
            EntityRoute::Urls(urls, how) => self.call((urls, how), request, purpose, payer),
            EntityRoute::Device(device) => {
                let (id, _) = self.open_call(&request, purpose, (payer, false))?;
                let request = Arc::unwrap_or_clone(request);
                self.ledger.say(Output::AskDevice(Box::new(DeviceCall { id, device, request })));
                Ok(())
            }
            EntityRoute::Channel(channel) => {
                let (id, _) = self.open_call(&request, purpose, (payer, false))?;
                let request = Arc::unwrap_or_clone(request);
                self.put_in_channel(channel, id, request).inspect_err(|_| self.close_call(id))
            }
        }
    }
}

/// Splits a notification target from its "notification serialization indication, in form of
/// key-value pair, e.g. \"ct=json\", after the delimiter \"?\"" (TS-0004 §7.5.1.2.2).
pub(super) fn notification_target(target: &str) -> (String, Option<Serialisation>) {
    let whole = || (target.to_owned(), None);
    let Some((before, query)) = target.split_once('?') else { return whole() };
    let (mut rest, mut indicated) = (Vec::new(), None);
    for pair in query.split('&') {
        match pair {
            "ct=json" => indicated = Some(Serialisation::Json),
            "ct=cbor" => indicated = Some(Serialisation::Cbor),
            other => rest.push(other),
        }
    }
    match (indicated, rest.is_empty()) {
        (None, _) => whole(),
        (some, true) => (before.to_owned(), some),
        (some, false) => (format!("{before}?{}", rest.join("&")), some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_says_how_it_wants_to_be_told() {
        let (json, cbor) = (Some(Serialisation::Json), Some(Serialisation::Cbor));
        for (target, expected) in [
            ("http://a:1/n", ("http://a:1/n", None)),
            ("http://a:1/n?ct=cbor", ("http://a:1/n", cbor)),
            ("http://a:1/n?x=1&ct=json&y", ("http://a:1/n?x=1&y", json)),
            ("http://a:1/n?x=ct=cbor", ("http://a:1/n?x=ct=cbor", None)),
            ("/id-mn/Ca?ct=cbor", ("/id-mn/Ca", cbor)),
        ] {
            let (to, how) = notification_target(target);
            assert_eq!((&*to, how), expected, "{target}");
        }
    }
}
