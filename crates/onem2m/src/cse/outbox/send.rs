//! Sending: which message of which queue is next.
//!
//! Each queue may have some requests in progress, and so may each target; the queues of a target
//! take turns. A target that does not answer is tried by one request at a time, with growing pauses,
//! whatever number of queues wait for it.

use super::queue::{Due, Sending};
use super::window::WindowRange;
use super::{DEVICE_QUEUE, gathered};
use crate::address::Address;
use crate::cse::calls::Purpose;
use crate::cse::polling::{EntityRoute, notification_target};
use crate::cse::statistics::Statistic;
use crate::cse::subscription::rate_limit;
use crate::cse::target::Target;
use crate::cse::{Cse, Refusal, not_found};
use crate::fate::pause;
use crate::primitive::{Operation, Request};
use crate::resource_type::ResourceType;
use core::time::Duration;
use std::sync::Arc;

/// The message that a queue sends next.
struct Next {
    target: Arc<str>,
    request: Arc<Request>,
    messages: Vec<u64>,
    /// The last batch that stored one of them.
    stored_by: u64,
}

/// The next action of a queue.
enum QueueAction {
    /// It has a message for this target.
    Send(Arc<str>),
    /// It waits for more notifications or for answers.
    Wait,
}

impl Cse {
    /// Checks the queues and targets that are due.
    pub(in crate::cse) fn run_outbox(&mut self) {
        self.end_overload();
        while let Some((time, due)) = self.outbox.due.first().cloned() {
            if time > self.moment {
                return;
            }
            self.outbox.due.remove(&(time, due.clone()));
            match due {
                Due::Queue(name) => {
                    if let Some(queue) = self.outbox.queues.get_mut(&name) {
                        queue.due = None;
                    }
                    self.run_queue(&name);
                }
                Due::Target(name) => {
                    if let Some(target) = self.outbox.targets.get_mut(&name) {
                        target.due = None;
                    }
                    self.run_target(&name);
                }
            }
        }
    }

    /// Sends what a queue may send.
    pub(super) fn run_queue(&mut self, name: &Arc<str>) {
        self.drop_stale(name);
        self.refill(name);
        self.catch_up(name);
        if let Some(target) = self.line_up(name) {
            self.run_target(&target);
        }
    }

    /// Puts a queue with a message to send into its target's line; returns the target.
    pub(super) fn line_up(&mut self, name: &Arc<str>) -> Option<Arc<str>> {
        if self.outbox.queues.get(name)?.is_in_line {
            return None;
        }
        let QueueAction::Send(target) = self.next_step(name) else { return None };
        self.outbox.queues.get_mut(name)?.is_in_line = true;
        let line = &mut self.outbox.targets.entry(Arc::clone(&target)).or_default().line;
        line.push_back(Arc::clone(name));
        Some(target)
    }

    fn next_step(&mut self, name: &Arc<str>) -> QueueAction {
        let window = self.window_of(name);
        let Some(queue) = self.outbox.queues.get(name) else { return QueueAction::Wait };
        let is_paused = queue.failures > 0 && queue.due.is_some();
        if is_paused || queue.requests >= window {
            return QueueAction::Wait;
        }
        let Some((_, first)) = queue.next() else { return QueueAction::Wait };
        let paced = self.outbox.paced.get(name).filter(|(end, _)| *end > self.moment);
        if let Some(&(end, sent)) = paced
            && self.rate_limit_of(name).is_some_and(|(most, _)| sent >= most)
        {
            self.outbox.wake_at(name, end);
            return QueueAction::Wait;
        }
        if let Some(later) = self.scheduled_later(name, &first.message.target) {
            self.outbox.wake_at(name, later);
            return QueueAction::Wait;
        }
        if let Some(gather) = first.message.batch {
            let full = queue.messages.len() >= gather.number;
            let ripe = first.since.plus(gather.duration);
            if !full && ripe > self.moment {
                self.outbox.wake_at(name, ripe);
                return QueueAction::Wait;
            }
        }
        QueueAction::Send(Arc::clone(&first.message.target))
    }

    /// The rate limit of the subscription that a queue belongs to (TS-0001 §9.6.8, rateLimit).
    fn rate_limit_of(&self, name: &str) -> Option<(usize, Duration)> {
        if name.starts_with(DEVICE_QUEUE) {
            return None;
        }
        let (id, _) = name.split_once(' ')?;
        let subscription = self.tree.get(self.tree.by_id(id)?)?;
        rate_limit(subscription.attribute("rl")?)
    }

    /// Counts notifications about to be sent in the window of their queue's rate limit: the first
    /// one behind a window begins the next.
    fn pace(&mut self, name: &Arc<str>, notifications: usize) {
        let Some((_, window)) = self.rate_limit_of(name) else { return };
        let (now, paced) = (self.moment, &mut self.outbox.paced);
        if paced.get(name).is_none_or(|(end, _)| *end <= now) {
            paced.retain(|_, (end, _)| *end > now);
            paced.insert(Arc::clone(name), (now.plus(window), 0));
        }
        if let Some((_, sent)) = paced.get_mut(name) {
            *sent += notifications;
        }
    }

    /// Requests that a queue may have in progress. What depends on the result of the one before goes
    /// alone, and so does a batch.
    fn window_of(&self, name: &str) -> usize {
        let Some(queue) = self.outbox.queues.get(name) else { return 0 };
        let Some((_, first)) = queue.next() else { return 0 };
        let message = &first.message;
        let is_independent =
            name.starts_with(DEVICE_QUEUE) || message.request.operation == Operation::Notify;
        if queue.failures > 0 || queue.is_serial || message.batch.is_some() || !is_independent {
            return 1;
        }
        queue.window.size(WindowRange::of_queue(&self.config.limits))
    }

    /// Sends messages of a target's queues in turn, as many as it may have in progress.
    pub(super) fn run_target(&mut self, name: &Arc<str>) {
        loop {
            self.make_later(name);
            let range = WindowRange::of_target(&self.config.limits);
            let Some(target) = self.outbox.targets.get_mut(name) else { return };
            let is_there = target.is_proven && target.failures == 0;
            let most = if is_there { target.window.size(range) } else { 1 };
            if target.due.is_some() || target.requests >= most {
                return;
            }
            if target.line.front().is_some_and(|queue| self.outbox.overload.holds(queue)) {
                return;
            }
            let Some(queue) = target.line.pop_front() else { break };
            self.send_next(&queue);
            if let Some(other) = self.line_up(&queue).filter(|other| other != name) {
                self.run_target(&other);
            }
        }
        self.outbox.tidy(name);
    }

    /// Sends the next message of a queue that was in line.
    fn send_next(&mut self, name: &Arc<str>) {
        let Some(queue) = self.outbox.queues.get_mut(name).filter(|queue| queue.is_in_line) else {
            return;
        };
        queue.is_in_line = false;
        self.drop_stale(name);
        if let QueueAction::Wait = self.next_step(name) {
            return;
        }
        let Some(mut next) = self.next_of(name) else { return };
        let route = self.reach(&next.target, &mut next.request);
        let Some(queue) = self.outbox.queues.get_mut(name) else { return };
        // It would stand in line again and again otherwise.
        queue.is_serial = !route.as_ref().is_ok_and(keeps_order);
        if queue.is_serial && queue.requests > 0 {
            return;
        }
        let number = self.begin_sending(name, &next);
        self.count_queue_statistic(name, Statistic::Request);
        self.pace(name, next.messages.len());
        self.ledger.see(next.stored_by);
        let payer = self.payer_of(name);
        let purpose = Purpose::Message { queue: Arc::clone(name), number };
        let sent = route.and_then(|route| self.send(route, next.request, purpose, &payer));
        if sent.is_err() {
            self.outbox.end(number);
            self.delivery_failed(name, None);
        }
    }

    /// Notes a request in progress; returns its number.
    fn begin_sending(&mut self, name: &Arc<str>, next: &Next) -> u64 {
        let (outbox, since) = (&mut self.outbox, self.moment);
        outbox.sendings_made += 1;
        outbox.overload.note_sent(name);
        if let Some(queue) = outbox.queues.get_mut(name) {
            queue.requests += 1;
            next.messages.iter().for_each(|&seq| queue.note_sent(seq));
        }
        outbox.targets.entry(Arc::clone(&next.target)).or_default().requests += 1;
        let (queue, target) = (Arc::clone(name), Arc::clone(&next.target));
        let sending = Sending { queue, target, since, messages: next.messages.clone() };
        outbox.sendings.insert(outbox.sendings_made, sending);
        outbox.sendings_made
    }

    /// The next message of a queue, or its next batch as one request.
    fn next_of(&self, name: &str) -> Option<Next> {
        let queue = self.outbox.queues.get(name)?;
        let (seq, first) = queue.next()?;
        let mut request = Arc::clone(&first.message.request);
        let (mut messages, mut stored_by) = (vec![seq], first.stored_by);
        if let Some(gather) = first.message.batch {
            let number = gather.number.min(queue.messages.len());
            let superseded = if gather.latest { number.saturating_sub(1) } else { 0 };
            messages = queue.messages.keys().copied().take(number).collect();
            let all = queue.messages.values().take(number);
            stored_by = all.clone().map(|kept| kept.stored_by).max().unwrap_or_default();
            let contents = all.skip(superseded);
            let contents = contents.filter_map(|kept| kept.message.request.content.as_deref());
            let content = gathered(contents).into();
            Arc::make_mut(&mut request).content = Some(content);
        }
        Some(Next { target: Arc::clone(&first.message.target), request, messages, stored_by })
    }

    /// Schedules a retry of a queue's messages after a pause, or after a longer one from the
    /// receiver.
    pub(super) fn delivery_failed(&mut self, name: &Arc<str>, told: Option<Duration>) {
        let Some(queue) = self.outbox.queues.get_mut(name) else {
            return;
        };
        self.counters.delivery_retries += 1;
        // Of several requests that fail together only the first one counts.
        if queue.failures > 0 && queue.due.is_some() {
            return;
        }
        let wait = pause(queue.failures, told);
        queue.failures += 1;
        queue.window.shut();
        self.outbox.wake_at(name, self.moment.plus(wait));
    }

    /// Schedules the next attempt at a target that was away or busy.
    pub(super) fn target_failed(
        &mut self,
        queue: &Arc<str>,
        name: &Arc<str>,
        told: Option<Duration>,
    ) {
        self.counters.delivery_retries += 1;
        if let Some(queue) = self.outbox.queues.get_mut(queue) {
            queue.window.shut();
        }
        let (sent, range) =
            (self.outbox.sendings_made, WindowRange::of_target(&self.config.limits));
        let Some(target) = self.outbox.targets.get_mut(name) else { return };
        if target.due.is_some() {
            return;
        }
        // One that fails alone says nothing about how many the target can take.
        if target.requests > 1 {
            target.window.halve(sent, range);
        }
        let due = self.moment.plus(pause(target.failures, told));
        target.failures += 1;
        target.due = Some(due);
        self.outbox.due.insert((due, Due::Target(Arc::clone(name))));
    }

    /// Notes that a target has answered the request of this number.
    pub(super) fn target_answered(&mut self, name: &Arc<str>, number: u64) {
        let limits = &self.config.limits;
        let (of_target, of_queue) = (WindowRange::of_target(limits), WindowRange::of_queue(limits));
        let outbox = &mut self.outbox;
        let Some(target) = outbox.targets.get_mut(name) else { return };
        (target.is_proven, target.failures) = (true, 0);
        let Some(sending) = outbox.sendings.get(&number) else { return };
        let is_late = target.times.note(self.moment.since(sending.since));
        let numbers = (number, outbox.sendings_made);
        target.window.note(is_late, numbers, of_target);
        if let Some(queue) = outbox.queues.get_mut(&sending.queue) {
            queue.window.note(is_late, numbers, of_queue);
        }
    }

    /// Current route to an entity; a request for an application goes to its URL.
    pub(in crate::cse) fn reach(
        &self,
        target: &str,
        request: &mut Arc<Request>,
    ) -> Result<EntityRoute, Refusal> {
        let is_for_target = request.to == target;
        let (target, serialisation) = notification_target(target);
        if target.contains("://") {
            // What is for the CSE at this URL keeps its own address: a reading's container there.
            if is_for_target {
                Arc::make_mut(request).to.clone_from(&target);
            }
            return Ok(EntityRoute::Urls(vec![target], serialisation));
        }
        let chosen = |route| match (route, serialisation) {
            (EntityRoute::Urls(urls, _), Some(chosen)) => EntityRoute::Urls(urls, Some(chosen)),
            (route, _) => route,
        };
        match Address::parse(&target, &self.config.cse_id, &self.config.provider) {
            Address::Here(path) => {
                let Some(Target::Resource(slot)) = self.resolve(path) else {
                    return Err(not_found("no such entity"));
                };
                let route = chosen(self.route_to(slot)?);
                if let (ResourceType::ApplicationEntity, EntityRoute::Urls(urls, _)) =
                    (self.resource(slot)?.resource_type, &route)
                    && let Some(url) = urls.first()
                {
                    Arc::make_mut(request).to.clone_from(url);
                }
                Ok(route)
            }
            Address::There { cse, .. } => {
                let hop = self.next_hop(cse, &self.config.cse_id);
                let hop = hop.ok_or_else(|| not_found("no such CSE"))?;
                Arc::make_mut(request).to.clone_from(&target);
                self.route_to(hop).map(chosen)
            }
            Address::Elsewhere => Err(not_found("no such service provider")),
        }
    }
}

/// Whether the sender keeps the order of one queue's requests on this route: it has one connection
/// for them. A poller and a device take one request after the other.
fn keeps_order(route: &EntityRoute) -> bool {
    match route {
        EntityRoute::Urls(urls, _) => urls.iter().all(|url| url.starts_with("http")),
        EntityRoute::Device(_) | EntityRoute::Channel(_) => false,
    }
}
