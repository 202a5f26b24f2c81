//! Running handlers: their values, their waits and their end.

use super::counters::EndedHandlers;
use super::reach::PeerLoss;
use super::slab::{IncomingId, TaskId};
use super::state::{Goal, Origin, Passing, Reg, Task, Wait};
use super::{ENDED_MAX, Machine, Work};
use core::time::Duration;
use gatewright_lang::ir::{RegisterId, SlotId};

impl Machine {
    /// Puts a message into a handler's register, and releases the previous one.
    pub(crate) fn set_view(&mut self, task: &mut Task, register: RegisterId, id: IncomingId) {
        let before = task.set(register, Reg::View(id));
        if let Reg::View(before) = before
            && before != id
        {
            self.let_view_go(before);
        }
    }

    /// Releases a message that a handler no longer uses.
    pub(crate) fn let_view_go(&mut self, id: IncomingId) {
        let Some(incoming) = self.incomings.get_mut(id) else { return };
        incoming.task = None;
        if incoming.is_complete() {
            return self.forget_if_unused(id);
        }
        incoming.goal = Goal::End;
        let conn = incoming.conn;
        if incoming.passing == Passing::Held {
            incoming.passing = Passing::Discarded;
            if let Some(conn) =
                conn.filter(|conn| self.conns.get(*conn).is_some_and(|of| of.hanging))
            {
                return self.lose_conn(conn);
            }
        }
        self.work.extend(conn.map(Work::Read));
    }

    /// Whether handlers have ended since the last [`sent_until`](Self::sent_until).
    pub fn has_ended_handlers(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Counts the times of handlers that have ended, until `now`: the caller has sent what they
    /// sent, as far as the network took it.
    pub fn sent_until(&mut self, now: Duration) {
        for ended in self.ended.drain(..) {
            let Some(counters) = self.handlers.get_mut(ended.handler) else { continue };
            let time = now.saturating_sub(ended.started);
            (0..ended.many).for_each(|_| counters.times.add(time));
        }
    }

    /// Keeps the time of a handler that ends until what it has sent is sent.
    fn keep_time(&mut self, handler: usize, started: Duration) {
        match self.ended.last_mut() {
            Some(last) if (last.handler, last.started) == (handler, started) => last.many += 1,
            _ => {
                if self.ended.len() >= ENDED_MAX {
                    self.sent_until(self.now);
                }
                self.ended.push(EndedHandlers { handler, started, many: 1 });
            }
        }
    }

    /// Ends a handler; `finished` if it ended by itself.
    pub(crate) fn end_task(&mut self, id: TaskId, finished: bool) {
        self.note_ended(id, finished);
        self.record_ended(id);
        let Some(mut task) = self.tasks.remove(id) else { return };
        self.timers.cancel(task.alarm.take());
        if let Some(counters) = self.handlers.get_mut(task.handler.index()) {
            if finished {
                counters.finished += 1;
            } else {
                counters.failed += 1;
            }
        }
        self.keep_time(task.handler.index(), task.started);
        if let Some(conn) = task.conn.and_then(|conn| self.conns.get_mut(conn)) {
            conn.tasks.retain(|other| *other != id);
        }
        match core::mem::replace(&mut task.wait, Wait::Ready) {
            Wait::Connection(pending) => {
                if let Some(conn) = pending.conn.and_then(|conn| self.conns.get_mut(conn)) {
                    conn.waiters.retain(|other| *other != id);
                }
                if let Some(query) = pending.query {
                    self.queries.remove(query);
                }
            }
            Wait::Response(exchange) => self.abandon_exchange(exchange),
            Wait::Receive(conn) => {
                if let Some(conn) = self.conns.get_mut(conn) {
                    conn.receiver = None;
                }
            }
            Wait::Ready | Wait::Slots | Wait::Written(_) | Wait::Gather | Wait::Sleep => {}
        }
        if let Some(gather) = task.gather.take() {
            gather.exchange.map(|exchange| self.end_exchange(exchange));
            gather.waiting.into_iter().for_each(|view| self.let_view_go(view));
        }
        for register in core::mem::take(&mut task.registers) {
            if let Reg::View(view) = register {
                self.let_view_go(view);
            }
        }
        self.leave_session(task.keyed);
        if let Some(own) = task.own {
            self.end_session(own);
        }
        match task.origin {
            Origin::Request { role, .. } if task.conn.is_none() => self.peer_is_served(role),
            Origin::Request { .. } => {}
            Origin::Opening { conn, .. } => {
                if let Some(conn) = self.conns.get_mut(conn) {
                    conn.opening = None;
                }
            }
            Origin::Every { clock } => self.turn_is_over(clock),
        }
    }

    /// Ends a handler that cannot continue; its protocol answers for it.
    pub(crate) fn fail_task(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get(id) else { return };
        match task.origin {
            Origin::Request { role, request } => {
                let program = self.program.clone();
                if let Some(role) = program.role(role)
                    && let Origin::Request { role: of, .. } = task.origin
                {
                    self.answer_request(request, of, &role.failed);
                }
                self.end_task(id, false);
            }
            Origin::Opening { conn, .. } => {
                self.end_task(id, false);
                self.peer_is_lost(conn, PeerLoss::Refused);
                self.lose_conn(conn);
            }
            Origin::Every { .. } => self.end_task(id, false),
        }
    }

    /// Handles a message in use that turned out malformed, cut or late.
    pub(crate) fn view_lost(&mut self, task: TaskId, id: IncomingId) {
        let uses = self.tasks.get(task).is_some_and(|task| task.registers.contains(&Reg::View(id)));
        if uses {
            self.fail_task(task);
        }
    }

    /// Makes a handler wait for slots of a message; returns whether it has to.
    pub(crate) fn await_slots(&mut self, id: IncomingId, slots: &[SlotId]) -> Option<bool> {
        let incoming = self.incomings.get_mut(id)?;
        let Some(conn) = incoming.conn else { return Some(false) };
        if slots.iter().all(|slot| incoming.parser.view().is_settled(*slot)) {
            return Some(false);
        }
        incoming.goal = Goal::Settled(slots.to_vec());
        self.work.push_back(Work::Read(conn));
        Some(true)
    }
}
