//! Starts handlers: for requests, new connections and periods.

use super::slab::{ConnId, IncomingId, SessionId, TaskId};
use super::state::{Goal, MessagePurpose, Origin, Reg, Requester, Task, Wait};
use super::timers::Timer;
use super::{Count, Machine, clocks};
use core::time::Duration;
use gatewright_lang::ir::{BlockId, HandlerId, RequestKind};
use std::sync::Arc;

/// A periodic handler.
#[derive(Debug)]
pub(crate) struct Every {
    handler: HandlerId,
    period: Duration,
    running: Option<TaskId>,
    /// The session that keeps its connections from run to run.
    pub(crate) session: Option<SessionId>,
}

impl Machine {
    /// Starts the periodic handlers' timers.
    pub(crate) fn start_clocks(&mut self) {
        let program = Arc::clone(&self.program);
        for (clock, (handler, period)) in clocks(&program).enumerate() {
            let handler = HandlerId::new(handler);
            self.every.push(Every { handler, period, running: None, session: None });
            self.timers.set(self.now.saturating_add(period), Timer::Every(clock));
        }
    }

    /// Handles the end of a period.
    pub(crate) fn clock_strikes(&mut self, clock: usize) {
        if self.draining {
            return;
        }
        let Some(every) = self.every.get(clock) else { return };
        // The least period keeps a program that says 0 from stopping the clock for all.
        let period = every.period.max(Duration::from_millis(1));
        let handler = every.handler;
        self.timers.set(self.now.saturating_add(period), Timer::Every(clock));
        if every.running.is_some() {
            return self.count(Count::Skipped);
        }
        let task = self.start(handler, Origin::Every { clock });
        if let Some(every) = self.every.get_mut(clock) {
            every.running = task;
        }
    }

    /// Handles the end of one run of a periodic handler.
    pub(crate) fn turn_is_over(&mut self, clock: usize) {
        if let Some(every) = self.every.get_mut(clock) {
            every.running = None;
            if self.draining
                && let Some(session) = every.session.take()
            {
                self.end_session(session);
            }
        }
    }

    /// Stops everything that would begin new work.
    pub(crate) fn drain_roles(&mut self) {
        for role in 0..self.roles.len() {
            let kept = self.roles.get_mut(role).map(|role| core::mem::take(&mut role.kept));
            for conn in kept.into_iter().flatten() {
                self.drop_conn(conn, false);
            }
        }
        for clock in 0..self.every.len() {
            if self.every.get(clock).is_some_and(|every| every.running.is_none()) {
                self.turn_is_over(clock);
            }
        }
    }

    /// Starts a handler.
    pub(crate) fn start(&mut self, handler: HandlerId, origin: Origin) -> Option<TaskId> {
        let about = self.program.handler(handler)?;
        let mut registers = vec![Reg::Unset; about.registers.len()];
        let mut conn = None;
        if let Origin::Request { request, .. } = origin {
            if let Some(first) = registers.first_mut() {
                *first = Reg::View(request);
            }
            conn = match self.incomings.get(request).and_then(|of| of.requester) {
                Some(Requester::Conn(conn)) => Some(conn),
                _ => None,
            };
        }
        self.note(|| super::MachineStep::Started { handler });
        if let Some(counters) = self.handlers.get_mut(handler.index()) {
            counters.started += 1;
        }
        let task = self.tasks.insert(Box::new(Task {
            handler,
            origin,
            conn,
            registers,
            block: BlockId::new(0),
            wait: Wait::Ready,
            alarm: None,
            own: None,
            keyed: None,
            gather: None,
            started: self.now,
        }));
        match origin {
            Origin::Request { request, .. } => {
                if let Some(incoming) = self.incomings.get_mut(request) {
                    incoming.task = Some(task);
                }
                if let Some(conn) = conn.and_then(|conn| self.conns.get_mut(conn)) {
                    conn.tasks.push(task);
                }
            }
            Origin::Opening { conn, .. } => {
                if let Some(conn) = self.conns.get_mut(conn) {
                    conn.opening = Some(task);
                }
            }
            Origin::Every { .. } => {}
        }
        self.record_started(task, handler, origin);
        self.wake(task);
        Some(task)
    }

    /// Handles a request from an asynchronous client's server.
    pub(crate) fn ask(&mut self, conn: ConnId, id: IncomingId) {
        let program = Arc::clone(&self.program);
        let Some(role) = self.conns.get(conn).and_then(|of| program.role(of.role)) else { return };
        let Some(incoming) = self.incomings.get_mut(id) else { return };
        incoming.purpose = MessagePurpose::Request;
        incoming.requester = Some(Requester::Conn(conn));
        let kind = role.requests.iter().find(|kind| kind.view == incoming.message);
        if incoming.is_complete() {
            return self.dispatch(id);
        }
        let goal = kind.map(|kind| self.request_goal(kind));
        if let Some(incoming) = self.incomings.get_mut(id) {
            incoming.goal = goal.unwrap_or_else(|| Goal::Settled(Vec::new()));
        }
    }

    /// How far a request is read before it is dispatched.
    pub(crate) fn request_goal(&self, kind: &RequestKind) -> Goal {
        let mut slots = kind.waits.clone();
        if let Some(posts) = &self.posts {
            slots.extend(posts.fields(kind.view));
        }
        Goal::Settled(slots)
    }
}
