//! Requests in flight, and their outcomes.

use super::reach::PeerLoss;
use super::slab::{ConnId, ExchangeId, IncomingId, TaskId};
use super::state::{Exchange, MessagePurpose, Passing, Repetition};
use super::timers::Timer;
use super::{Count, Machine, Output, Work};
use gatewright_lang::ir::{MessageId, Mode, RoleId, SlotId};
use std::sync::Arc;

impl Machine {
    /// Resumes the handler of a request whose response has begun.
    pub(crate) fn response_begun(&mut self, exchange: ExchangeId, id: IncomingId) {
        let Some(of) = self.exchanges.get_mut(exchange) else {
            if let Some(incoming) = self.incomings.get_mut(id) {
                incoming.passing = Passing::Discarded;
            }
            return;
        };
        of.begun = true;
        let repetition = of.repetition.take().map(|of| of.alarm);
        of.octets = Vec::new();
        let (task, gather) = (of.task, of.gather);
        self.timers.cancel(repetition);
        self.peer_answers(exchange);
        if let Some(incoming) = self.incomings.get_mut(id) {
            incoming.task = Some(task);
        }
        if gather {
            self.gathered(task, id);
        } else {
            self.responded(task, id);
        }
    }

    /// Matches a server's message whose flow is known: it answers a request in flight, or is a
    /// request.
    pub(crate) fn match_response(&mut self, conn: ConnId, id: IncomingId) {
        let program = Arc::clone(&self.program);
        let Some(incoming) = self.incomings.get(id) else { return };
        let Some(of) = self.conns.get(conn) else { return };
        let Some(role) = program.role(of.role) else { return };
        let flows = self.flows_of(id, of.role);
        let found = of.exchanges.iter().copied().find(|exchange| {
            self.exchanges.get(*exchange).is_some_and(|of| flows.contains(&of.flow))
        });
        let view = incoming.message;
        let asked = role.requests.iter().any(|kind| kind.view == view);
        let Some(incoming) = self.incomings.get_mut(id) else { return };
        match found {
            Some(exchange) => {
                incoming.purpose = MessagePurpose::Response(exchange);
                self.response_begun(exchange, id);
            }
            None if asked => self.ask(conn, id),
            None => {
                self.count(Count::Unsolicited);
                self.ignore(id);
            }
        }
    }

    /// The flow keys of this message, one for every kind of request.
    pub(crate) fn flows_of(&self, id: IncomingId, role: RoleId) -> Vec<Vec<u8>> {
        let Some(about) = self.program.role(role) else { return Vec::new() };
        let mut kinds: Vec<MessageId> = about.flow.iter().map(|key| key.view).collect();
        kinds.dedup();
        let Some(incoming) = self.incomings.get(id) else { return Vec::new() };
        let view = incoming.parser.view();
        let flow = |kind: &MessageId| {
            let keys = about.flow.iter().filter(|key| key.view == *kind);
            let slots: Vec<SlotId> = keys.map(|key| key.response).collect();
            super::build::key_of(*kind, view, &slots)
        };
        kinds.iter().map(flow).collect()
    }

    /// Reads an unwanted message to its end.
    pub(crate) fn ignore(&mut self, id: IncomingId) {
        if let Some(incoming) = self.incomings.get_mut(id) {
            incoming.purpose = MessagePurpose::Ignored;
            incoming.passing = Passing::Discarded;
        }
    }

    pub(crate) fn exchange_is_gathering(&self, exchange: ExchangeId) -> bool {
        self.exchanges.get(exchange).is_some_and(|of| of.gather)
    }

    /// Ends an exchange.
    pub(crate) fn end_exchange(&mut self, id: ExchangeId) -> Option<Exchange> {
        let mut of = self.exchanges.remove(id)?;
        self.timers.cancel(of.alarm.take());
        self.timers.cancel(of.repetition.take().map(|of| of.alarm));
        if of.conn.is_none()
            && let Some(role) = self.roles.get_mut(of.role.index())
        {
            role.air.remove(&of.flow);
        }
        if let Some(conn) = of.conn.and_then(|conn| self.conns.get_mut(conn)) {
            conn.exchanges.retain(|other| *other != id);
        }
        Some(of)
    }

    /// Handles the loss of an exchange's connection.
    pub(crate) fn exchange_lost(&mut self, id: ExchangeId, kept: bool) {
        let Some(of) = self.end_exchange(id) else { return };
        if of.begun && !of.gather {
            return;
        }
        if of.gather {
            return self.gather_is_over(of.task);
        }
        if kept && !of.octets.is_empty() {
            // It was closed before it gave an octet: a new one takes its place, once.
            self.count(Count::Replaced);
            return self.send_again(of);
        }
        self.send_failed(of.task);
    }

    /// Handles the end of an exchange's handler.
    pub(crate) fn abandon_exchange(&mut self, id: ExchangeId) {
        let Some(of) = self.end_exchange(id) else { return };
        let sync = self.program.role(of.role).is_some_and(|role| role.mode == Mode::Sync);
        if let Some(conn) = of.conn.filter(|_| sync && !of.begun) {
            // Its response would be taken for the next one's.
            self.lose_conn(conn);
        } else if let Some(conn) = of.conn.filter(|conn| self.is_shared(*conn)) {
            self.serve_waiters(conn);
        }
    }

    /// Handles an exchange that took too long.
    pub(crate) fn exchange_is_late(&mut self, id: ExchangeId) {
        let Some(of) = self.exchanges.get_mut(id) else { return };
        of.alarm = None;
        if of.gather {
            let task = of.task;
            self.end_exchange(id);
            return self.gather_is_over(task);
        }
        self.count(Count::Late);
        let Some(of) = self.end_exchange(id) else { return };
        if !of.begun {
            self.target_is_lost(of.role, of.target.clone(), PeerLoss::Silent);
            self.send_failed(of.task);
        }
        if let Some(conn) = of.conn {
            self.lose_conn(conn);
        }
    }

    /// Sends an unanswered request again.
    pub(crate) fn retransmit(&mut self, id: ExchangeId) {
        let now = self.now;
        let Some(of) = self.exchanges.get_mut(id) else { return };
        let Some(retransmit) = self.program.role(of.role).and_then(|role| role.retransmit) else {
            return;
        };
        let (Some(to), Some(repetition)) = (of.to, of.repetition.take()) else { return };
        let left = repetition.left.saturating_sub(1);
        let pause = if retransmit.doubling { repetition.pause * 2 } else { repetition.pause };
        let pause = pause.min(retransmit.pause_max);
        if left > 0 {
            let alarm = self.timers.set(now.saturating_add(pause), Timer::Retransmit(id));
            of.repetition = Some(Repetition { pause, left, alarm });
        }
        let (task, role, octets) = (of.task, of.role, of.octets.clone());
        self.record_asked(task, role, &octets);
        self.count(Count::Retransmitted);
        self.outputs.push_back(Output::Datagram { role, to, octets });
    }

    /// Resumes a handler.
    pub(crate) fn wake(&mut self, task: TaskId) {
        self.work.push_back(Work::Run(task));
    }
}
