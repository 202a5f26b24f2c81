//! Answers to outbox messages, and what they mean for the queue and its target.

use super::{DEVICE_QUEUE, RefusedMessage};
use crate::audit::End;
use crate::cse::announce::announcement;
use crate::cse::calls::Unreachable;
use crate::cse::statistics::Statistic;
use crate::cse::{Cse, Output};
use crate::fate::Fate;
use crate::primitive::{Operation, Response};
use crate::resource_type::ResourceType;
use crate::status::Status;
use std::sync::Arc;

impl Cse {
    /// Takes the answer to the request of this number, which carried messages of a queue.
    pub(in crate::cse) fn message_answered(
        &mut self,
        name: &Arc<str>,
        number: u64,
        answer: Result<Response, Unreachable>,
    ) {
        let Some(sending) = self.outbox.sendings.get(&number) else { return };
        let (target, messages) = (Arc::clone(&sending.target), sending.messages.clone());
        self.outbox.held.remove(name);
        match answer {
            Err(_) => self.target_failed(name, &target, None),
            Ok(answer) => {
                self.count_queue_statistic(name, Statistic::Response);
                match answer.fate() {
                    Fate::Again(Some(told)) => self.target_failed(name, &target, Some(told)),
                    fate => {
                        self.target_answered(&target, number);
                        // Its messages count as sent meanwhile: what this posts stays behind them.
                        self.conclude_messages(name, &messages, answer.status, fate);
                    }
                }
            }
        }
        self.outbox.end(number);
        if self.unsent_in(name) > 0 && !name.starts_with(DEVICE_QUEUE) {
            self.drop_unaddressed(name);
        }
        self.run_queue(name);
        self.run_target(&target);
    }

    /// Finishes messages, or schedules their retry, as the receiver has answered.
    fn conclude_messages(&mut self, name: &Arc<str>, messages: &[u64], status: Status, fate: Fate) {
        let Some(queue) = self.outbox.queues.get(name) else { return };
        let failures = queue.failures;
        let first = messages.first().and_then(|seq| queue.messages.get(seq));
        let request = first.map(|kept| &kept.message.request);
        let creates = request.is_some_and(|request| request.operation == Operation::Create);
        let verdict = request.map(|request| RefusedMessage::new(status, request));
        let announcement = request.and_then(|request| announcement(name, request));
        match (fate, announcement) {
            (Fate::Done, _) => self.done_with(name, messages, status, true),
            // It was there already: an earlier delivery whose answer was lost.
            (Fate::There, _) if creates => self.done_with(name, messages, status, true),
            (Fate::Again(told), _) => self.delivery_failed(name, told),
            (Fate::Nowhere, Some(told)) => {
                if self.announcement_lost(&told, failures) {
                    let is_delete = told.operation == Operation::Delete;
                    self.done_with(name, messages, status, is_delete);
                } else {
                    self.delivery_failed(name, None);
                }
            }
            // A receiver that is just starting may not have its resources yet, or never again.
            (Fate::Nowhere, None) => {
                if creates {
                    self.ledger.say(Output::Lost { queue: Arc::clone(name) });
                }
                self.delivery_failed(name, None);
            }
            // It does not know this CSE, or not yet what it may do: nothing is wrong with the
            // message.
            (Fate::Barred, _) if creates => self.hold(name, verdict),
            (Fate::There | Fate::Barred | Fate::Refused, announcement) => {
                if let Some(told) = announcement {
                    self.announcement_refused(&told);
                }
                self.note_refusal(name, verdict);
                self.done_with(name, messages, status, false);
            }
        }
    }

    /// Holds a message that its receiver refuses on account of its originator.
    fn hold(&mut self, name: &Arc<str>, verdict: Option<RefusedMessage>) {
        self.counters.messages_unauthorised += 1;
        let status = verdict.as_ref().map(|verdict| verdict.status);
        if let Some(verdict) = verdict {
            self.outbox.held.insert(Arc::clone(name), verdict);
        }
        if status == Some(Status::OriginatorHasNotRegistered) {
            // It knows this CSE not, or not any more, or not the AE that asks.
            self.registration_lost();
            self.ledger.say(Output::Lost { queue: Arc::clone(name) });
        }
        self.delivery_failed(name, None);
    }

    /// Counts devices' readings that are refused for good, and keeps the verdict.
    fn note_refusal(&mut self, name: &str, verdict: Option<RefusedMessage>) {
        if !name.starts_with(DEVICE_QUEUE) {
            return;
        }
        if verdict
            .as_ref()
            .is_some_and(|it| it.resource_type == Some(ResourceType::ContentInstance))
        {
            self.counters.readings_refused_above += 1;
        }
        self.outbox.refused = verdict;
    }

    /// Finishes messages, delivered or not.
    fn done_with(&mut self, name: &Arc<str>, messages: &[u64], status: Status, arrived: bool) {
        if let Some(queue) = self.outbox.queues.get_mut(name) {
            queue.failures = 0;
        }
        for &seq in messages {
            // Refused for good: to send it again would only be refused again.
            self.counters.delivered += u64::from(arrived);
            self.counters.messages_refused += u64::from(!arrived);
            self.discard(seq, End::Answered(status));
        }
    }
}
