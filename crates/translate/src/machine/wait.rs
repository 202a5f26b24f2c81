//! Waits of handlers, and how handlers resume.

use super::reach::PeerLoss;
use super::slab::{IncomingId, TaskId};
use super::state::{Origin, Wait};
use super::timers::Timer;
use super::{Count, Machine, Work};
use core::time::Duration;
use gatewright_lang::ir::{BlockId, MessageId, RegisterId, Terminator};

/// The point at which a waiting handler can resume.
#[derive(Clone, Copy, Debug)]
struct Edges {
    /// Next block on success.
    then: BlockId,
    /// Next block on failure.
    failed: BlockId,
    /// The register for the awaited message.
    into: Option<RegisterId>,
    /// Whether it waits for the responses of a `Gather`.
    gathers: bool,
}

impl Machine {
    fn terminator(&self, id: TaskId) -> Option<&Terminator> {
        let task = self.tasks.get(id)?;
        Some(&self.program.handler(task.handler)?.block(task.block)?.terminator)
    }

    fn edges(&self, id: TaskId) -> Option<Edges> {
        Some(match self.terminator(id)? {
            Terminator::Send { response, then, failed, .. } => Edges {
                then: *then,
                failed: *failed,
                into: response.map(|of| of.1),
                gathers: false,
            },
            Terminator::Receive { into, then, failed, .. } => {
                Edges { then: *then, failed: *failed, into: Some(*into), gathers: false }
            }
            Terminator::Gather { response, body, done, .. } => {
                Edges { then: *body, failed: *done, into: Some(response.1), gathers: true }
            }
            Terminator::Await { then, .. } | Terminator::Sleep { then, .. } => {
                Edges { then: *then, failed: *then, into: None, gathers: false }
            }
            _ => return None,
        })
    }

    /// Resumes a handler by one of the edges of its wait.
    pub(crate) fn go_on(&mut self, id: TaskId, came: bool) {
        let Some(edges) = self.edges(id) else { return };
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.block = if came { edges.then } else { edges.failed };
        let before = core::mem::replace(&mut task.wait, Wait::Ready);
        let alarm = task.alarm.take();
        // What fails within the turns of a `Gather` does not end them.
        let gather = if came || !edges.gathers { None } else { task.gather.take() };
        self.timers.cancel(alarm);
        if let Wait::Connection(pending) = before
            && let Some(conn) = pending.conn.and_then(|conn| self.conns.get_mut(conn))
        {
            conn.waiters.retain(|other| *other != id);
        }
        if let Some(exchange) = gather.and_then(|gather| gather.exchange) {
            self.end_exchange(exchange);
        }
        self.work.push_back(Work::Run(id));
    }

    /// Resumes a handler with a message.
    fn go_on_with(&mut self, id: TaskId, message: IncomingId) {
        let into = self.edges(id).and_then(|edges| edges.into);
        if let (Some(into), Some(mut task)) = (into, self.tasks.take(id)) {
            self.set_view(&mut task, into, message);
            self.tasks.restore(id, task);
        }
        self.go_on(id, true);
    }

    /// Resumes a handler whose response has begun.
    pub(crate) fn responded(&mut self, id: TaskId, message: IncomingId) {
        if self.tasks.get(id).is_some_and(|task| matches!(task.wait, Wait::Response(_))) {
            self.go_on_with(id, message);
        } else {
            self.let_view_go(message);
        }
    }

    /// Handles one more response of a `Gather`.
    pub(crate) fn gathered(&mut self, id: TaskId, message: IncomingId) {
        let Some(gather) = self.tasks.get_mut(id).and_then(|task| task.gather.as_mut()) else {
            return self.let_view_go(message);
        };
        gather.waiting.push_back(message);
        gather.left = gather.left.saturating_sub(1);
        let last = if gather.left == 0 { gather.exchange.take() } else { None };
        if let Some(last) = last {
            self.end_exchange(last);
        }
        if self.tasks.get(id).is_some_and(|task| matches!(task.wait, Wait::Gather)) {
            self.next_gathered(id);
        }
    }

    /// Resumes with the next response of a `Gather`, waits for it, or continues after the last.
    pub(crate) fn next_gathered(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.wait = Wait::Gather;
        let Some(gather) = &mut task.gather else { return self.go_on(id, false) };
        let block = gather.block;
        let exchange = gather.exchange;
        let next = gather.waiting.pop_front();
        task.block = block;
        let open = exchange.is_some_and(|exchange| self.exchanges.get(exchange).is_some());
        match next {
            Some(message) => self.go_on_with(id, message),
            None if open => {}
            None => self.go_on(id, false),
        }
    }

    /// Ends a `Gather`: no more responses will come.
    pub(crate) fn gather_is_over(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        if let Some(gather) = &mut task.gather {
            gather.exchange = None;
        }
        if matches!(task.wait, Wait::Gather) {
            self.next_gathered(id);
        }
    }

    pub(crate) fn begin_receive(&mut self, id: TaskId, within: Duration) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        let conn = match task.origin {
            Origin::Opening { conn, .. } => Some(conn),
            _ => task.conn,
        };
        let Some(conn) = conn.filter(|conn| self.conns.get(*conn).is_some()) else {
            // A datagram has nothing that follows it.
            return self.go_on(id, false);
        };
        task.wait = Wait::Receive(conn);
        let at = self.now.saturating_add(within);
        task.alarm = Some(self.timers.set(at, Timer::Task(id)));
        if let Some(of) = self.conns.get_mut(conn) {
            of.receiver = Some(id);
        }
        self.work.push_back(Work::Read(conn));
    }

    /// The view of the message that a handler waits for.
    pub(crate) fn received_view(&self, id: TaskId) -> Option<MessageId> {
        match self.terminator(id)? {
            Terminator::Receive { view, .. } => Some(*view),
            _ => None,
        }
    }

    /// Handles a `receive` that failed.
    pub(crate) fn receive_failed(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get(id) else { return };
        if let Wait::Receive(conn) = task.wait {
            if let Some(of) = self.conns.get_mut(conn) {
                of.receiver = None;
            }
            self.go_on(id, false);
        }
    }

    /// Handles progress of a message that a handler uses: it is read as far as the handler wanted.
    pub(crate) fn message_moved(&mut self, id: TaskId, message: IncomingId) {
        let Some(task) = self.tasks.get(id) else { return };
        match task.wait {
            Wait::Slots => self.go_on(id, true),
            Wait::Receive(conn) => {
                if let Some(of) = self.conns.get_mut(conn) {
                    of.receiver = None;
                }
                self.go_on_with(id, message);
            }
            _ => {}
        }
    }

    pub(crate) fn begin_sleep(&mut self, id: TaskId, period: Duration) {
        let at = self.now.saturating_add(period);
        if let Some(task) = self.tasks.get_mut(id) {
            task.wait = Wait::Sleep;
            task.alarm = Some(self.timers.set(at, Timer::Task(id)));
        }
    }

    /// Handles the end of a handler's wait.
    pub(crate) fn wait_is_over(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.alarm = None;
        match &task.wait {
            Wait::Sleep => self.go_on(id, true),
            Wait::Receive(_) => {
                self.count(Count::Late);
                self.receive_failed(id);
            }
            Wait::Connection(pending) => {
                let conn = pending.conn;
                self.count(Count::Late);
                self.go_on(id, false);
                // Nobody knows whether it will ever be there.
                let unfit = |of: &super::Conn| {
                    of.waiters.is_empty()
                        && (of.state != super::state::ConnectionState::Open || of.opening.is_some())
                };
                if let Some(conn) = conn.filter(|conn| self.conns.get(*conn).is_some_and(unfit)) {
                    self.peer_is_lost(conn, PeerLoss::Silent);
                    self.leave(conn);
                    self.lose_conn(conn);
                }
            }
            Wait::Written(conn) => {
                let conn = *conn;
                self.count(Count::Late);
                self.peer_is_lost(conn, PeerLoss::Silent);
                self.lose_conn(conn);
                self.send_failed(id);
            }
            Wait::Ready | Wait::Slots | Wait::Response(_) | Wait::Gather => {}
        }
    }
}
