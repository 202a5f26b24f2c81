//! Closes connections, and frees what depends on them.

use super::record::PeerEvent;
use super::slab::{ConnId, ExchangeId, IncomingId};
use super::state::{Conn, ConnectionState, Incoming, MessagePurpose, Passing, Written};
use super::{Machine, Output, Work};
use gatewright_lang::ir::{ReuseWhen, Side};

impl Conn {
    /// Whether the stream of this message is being written to this connection, or waits to be.
    pub(crate) fn streams_from(&self, id: IncomingId) -> bool {
        self.streaming.as_ref().is_some_and(|of| of.from == id)
            || self.behind.iter().any(|of| of.stream.as_ref().is_some_and(|of| of.1 == id))
    }
}

impl Machine {
    /// Closes a connection by our own decision.
    pub(crate) fn drop_conn(&mut self, conn: ConnId, reset: bool) {
        if self.conns.get(conn).is_some() {
            self.record_end(conn, PeerEvent::SeesClose);
            self.outputs.push_back(Output::Close { conn, reset });
            self.unravel(conn);
        }
    }

    /// Gives up a connection that is of no further use.
    pub(crate) fn lose_conn(&mut self, conn: ConnId) {
        let Some(of) = self.conns.get(conn) else { return };
        // Whoever got a part of a stream must not take it for the whole.
        let reset = of.streaming.is_some();
        self.drop_conn(conn, reset);
    }

    /// Frees what depends on a connection that is over. The connection is removed first, so nothing
    /// that follows can end it again.
    fn unravel(&mut self, id: ConnId) {
        let Some(mut of) = self.conns.remove(id) else { return };
        self.peer_is_gone(id);
        self.timers.cancel(of.alarm.take());
        if let ConnectionState::Resolving(query) = of.state {
            self.queries.remove(query);
        }
        if let Some(role) = self.roles.get_mut(of.role.index()) {
            role.connections = role.connections.saturating_sub(1);
            role.kept.retain(|kept| *kept != id);
            role.shared.retain(|shared| *shared != id);
        }
        // Its handlers first: what is freed for them must not make them begin anew.
        for task in core::mem::take(&mut of.tasks) {
            self.end_task(task, false);
        }
        self.mark_lost(&of);
        if let Some(session) = of.session.take() {
            self.part(id, of.side, session);
        }
        let streaming = of.streaming.take().map(|of| (Some(of.from), of.done));
        let behind = core::mem::take(&mut of.behind);
        let behind = behind.into_iter().map(|of| (of.stream.map(|stream| stream.1), of.done));
        for (from, done) in streaming.into_iter().chain(behind) {
            if let Some(from) = from {
                self.sink_lost(from);
            }
            if let Written::Sent(task) = done {
                self.send_failed(task);
            }
        }
        if let Some(opening) = of.opening.take() {
            self.end_task(opening, false);
        }
        if let Some(current) = of.current.take() {
            self.source_lost(current);
        }
        for exchange in core::mem::take(&mut of.exchanges) {
            self.exchange_lost(exchange, of.kept);
        }
        for waiter in core::mem::take(&mut of.waiters) {
            self.send_failed(waiter);
        }
    }

    /// Discards the rest of a stream that can no longer be written.
    fn sink_lost(&mut self, from: IncomingId) {
        if let Some(incoming) = self.incomings.get_mut(from) {
            incoming.passing = Passing::Discarded;
            self.work.extend(incoming.conn.map(Work::Read));
        }
    }

    /// Handles a message that will never be read to its end.
    fn source_lost(&mut self, id: IncomingId) {
        let Some(incoming) = self.incomings.remove(id) else { return };
        if let Some((_, request)) = incoming.reply {
            self.forget(request);
        }
        if let Passing::To(sink) = incoming.passing
            && self.conns.get(sink).is_some_and(|of| of.streams_from(id))
        {
            self.lose_conn(sink);
        }
        let Incoming { purpose, task, .. } = incoming;
        match (purpose, task) {
            (MessagePurpose::Request | MessagePurpose::Handled, Some(task)) => {
                self.end_task(task, false);
            }
            (MessagePurpose::Response(_) | MessagePurpose::Received, Some(task)) => {
                self.view_lost(task, id);
            }
            _ => {}
        }
    }

    /// Releases a client's connection: it is kept for others, or closed.
    pub(crate) fn let_go(&mut self, conn: ConnId) {
        self.leave(conn);
        let Some(of) = self.conns.get_mut(conn) else { return };
        let Some(reuse) = self.program.role(of.role).and_then(|role| role.reuse) else {
            return self.end_when_sent(conn);
        };
        let fit = of.is_clean()
            && of.waiters.is_empty()
            && of.state == ConnectionState::Open
            && !of.ended
            && of.unread.is_empty()
            && !self.draining;
        if !fit {
            return self.lose_conn(conn);
        }
        of.releasing = false;
        of.moved = self.now;
        let (role, alarm) = (of.role, of.alarm.take());
        self.timers.cancel(alarm);
        let at = self.now.saturating_add(reuse.idle);
        of.alarm = Some(self.timers.set(at, super::Timer::Conn(conn)));
        let Some(state) = self.roles.get_mut(role.index()) else { return };
        state.kept.push(conn);
        let most = usize::try_from(reuse.connections_max).unwrap_or(usize::MAX);
        if state.kept.len() > most {
            let oldest = state.kept.remove(0);
            self.drop_conn(oldest, false);
        }
    }

    /// Releases a client's connection as soon as nothing is in flight over it.
    pub(crate) fn let_go_when_free(&mut self, conn: ConnId) {
        if let Some(of) = self.conns.get_mut(conn) {
            of.releasing = true;
            if let Some(current) = of.current
                && self.incomings.get(current).is_some_and(|of| of.task.is_none())
            {
                self.discard(current);
            }
            self.let_go_if_free(conn);
        }
    }

    /// Closes a client's connection once the response that a handler still reads is read to its
    /// end, or the handler has ended. Requests from its server are no longer answered, however much
    /// of them has arrived.
    pub(crate) fn hang_up(&mut self, conn: ConnId) {
        self.leave(conn);
        let Some(of) = self.conns.get_mut(conn) else { return };
        let current = of.current.and_then(|current| self.incomings.get(current));
        let used = current.is_some_and(|of| {
            matches!(of.purpose, MessagePurpose::Response(_))
                && (of.task.is_some() || matches!(of.passing, Passing::To(_)))
        });
        if used {
            of.hanging = true;
        } else {
            self.end_when_sent(conn);
        }
    }

    /// Closes unused shared connections: those without a request, while no handler runs.
    pub(crate) fn drop_resting(&mut self) {
        if !self.tasks.is_empty() {
            return;
        }
        let Self { roles, conns, .. } = self;
        let rests = |conn: &ConnId| {
            conns.get(*conn).is_some_and(|of| of.is_clean() && of.unsent.is_empty())
        };
        let shared = roles.iter().flat_map(|role| role.shared.iter().rev()).copied();
        for conn in shared.filter(rests).collect::<Vec<_>>() {
            self.drop_conn(conn, false);
        }
    }

    /// Ends a connection that is no longer needed, after sending messages that expect no answer.
    fn end_when_sent(&mut self, conn: ConnId) {
        let Some(of) = self.conns.get(conn) else { return };
        let last_words = of.state == ConnectionState::Open
            && !of.unsent.is_empty()
            && of.is_clean()
            && of.waiters.is_empty();
        if last_words {
            self.close_after_sending(conn);
        } else {
            self.lose_conn(conn);
        }
    }

    pub(crate) fn let_go_if_free(&mut self, conn: ConnId) {
        let free = self.conns.get(conn).is_some_and(|of| {
            of.side == Side::Client && of.releasing && of.is_clean() && of.waiters.is_empty()
        });
        if free {
            self.let_go(conn);
        }
    }

    /// Finishes a response that was read to its end.
    pub(crate) fn finish_response(&mut self, conn: ConnId, id: IncomingId) {
        let Some(MessagePurpose::Response(exchange)) = self.incomings.get(id).map(|of| of.purpose)
        else {
            return;
        };
        if self.exchange_is_gathering(exchange) {
            return;
        }
        self.end_exchange(exchange);
        self.next_in_line(conn, exchange);
    }

    fn next_in_line(&mut self, conn: ConnId, exchange: ExchangeId) {
        let Some(of) = self.conns.get_mut(conn) else { return };
        of.exchanges.retain(|other| *other != exchange);
        if of.hanging {
            return self.drop_conn(conn, false);
        }
        let reuse = self.program.role(of.role).and_then(|role| role.reuse);
        let each = reuse.is_some_and(|reuse| reuse.when == ReuseWhen::EachResponse);
        if !of.waiters.is_empty() {
            self.serve_waiters(conn);
        } else if each || of.releasing {
            self.let_go_when_free(conn);
        }
    }
}
