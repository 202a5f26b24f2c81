//! Turns octets of a TCP connection into messages, and wakes handlers with them.

use super::buffers::Unread;
use super::slab::{ConnId, IncomingId, TaskId};
use super::state::{ConnectionState, Goal, Incoming, MessagePurpose, Passing, Requester};
use super::{Count, Machine, Output, TURN_MESSAGES, Work};
use crate::flat::state::Until;
use crate::malformed::MalformedReason;
use crate::parser::Malformed;
use gatewright_lang::ir::{MessageId, Mode, Side};
use std::sync::Arc;

/// Result of reading on in a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Looked {
    /// The next message may begin.
    Done,
    /// More octets or a decision are needed.
    Wait,
}

impl Machine {
    /// Reads from a connection, as far as its state permits.
    pub(crate) fn read(&mut self, conn: ConnId) {
        loop {
            let Some(of) = self.conns.get_mut(conn) else { return };
            match of.state {
                ConnectionState::Open => {}
                ConnectionState::Closing | ConnectionState::Lingering => {
                    of.unread.clear();
                    break;
                }
                ConnectionState::Resolving(_) | ConnectionState::Connecting => break,
            }
            if of.skipping {
                skip_line(&mut of.unread, &mut of.skipping);
            }
            let begun = match of.current {
                Some(incoming) => Some(incoming),
                None => self.begin_message(conn),
            };
            let Some(incoming) = begun else { break };
            if self.look(conn, incoming) == Looked::Wait {
                break;
            }
        }
        self.after_reading(conn);
    }

    /// Checks whether room was made, and whether the connection has ended.
    fn after_reading(&mut self, conn: ConnId) {
        let Self { conns, pool, .. } = self;
        let Some(of) = conns.get_mut(conn) else { return };
        pool.reclaim_window(&mut of.unread);
        if of.unread.is_empty() {
            of.begun = 0;
        }
        let room = self.room(conn) > 0;
        let Some(of) = self.conns.get_mut(conn) else { return };
        if of.blocked && room {
            self.outputs.push_back(Output::Read { conn });
        }
        of.blocked = !room;
        // Nothing more will come, and nothing is unread or half read.
        if of.ended
            && of.unread.is_empty()
            && of.current.is_none()
            && of.state == ConnectionState::Open
        {
            match of.side {
                Side::Server if of.requests == 0 && of.receiver.is_none() => {
                    self.close_after_sending(conn);
                }
                Side::Server if of.receiver.is_some() => self.lose_conn(conn),
                Side::Server => {}
                Side::Client => {
                    self.peer_ends(conn);
                    self.lose_conn(conn);
                }
            }
        }
    }

    /// Begins the next message of a connection, if an octet of it and a reader are there.
    fn begin_message(&mut self, conn: ConnId) -> Option<IncomingId> {
        let of = self.conns.get(conn)?;
        if of.unread.is_empty() || of.skipping || self.is_turn_over(conn) {
            return None;
        }
        let of = self.conns.get(conn)?;
        let program = Arc::clone(&self.program);
        let role = program.role(of.role)?;
        if let Some(task) = of.receiver {
            return self.begin_received(conn, task);
        }
        let (view, purpose) = match of.side {
            Side::Server => {
                let busy = of.requests >= self.pipelined(role, of.role)
                    || of.unsent.len() >= super::BUFFER_OCTETS;
                if busy {
                    return None;
                }
                (role.requests.first()?.view, MessagePurpose::Request)
            }
            Side::Client if of.opening.is_some() && of.exchanges.is_empty() => return None,
            Side::Client if role.mode == Mode::Async => (role.response, MessagePurpose::Unmatched),
            Side::Client => {
                let Some(exchange) = of.exchanges.front() else {
                    self.count(Count::Unsolicited);
                    self.lose_conn(conn);
                    return None;
                };
                (role.response, MessagePurpose::Response(*exchange))
            }
        };
        let goal = match purpose {
            MessagePurpose::Request => self.request_goal(role.requests.first()?),
            MessagePurpose::Unmatched => {
                let mut slots: Vec<_> = role.flow.iter().map(|key| key.response).collect();
                slots.dedup();
                Goal::Settled(slots)
            }
            _ => Goal::Begun,
        };
        self.begin(conn, view, purpose, goal)
    }

    /// Whether a connection has begun as many messages as it may in a turn. It then waits for its
    /// next turn after the others.
    fn is_turn_over(&mut self, conn: ConnId) -> bool {
        let Some(of) = self.conns.get_mut(conn) else { return true };
        let over = of.waiting || of.begun >= TURN_MESSAGES;
        if over && !core::mem::replace(&mut of.waiting, true) {
            self.turns.push_back(conn);
        }
        over
    }

    /// Gives a waiting connection its next turn.
    pub(crate) fn take_turn(&mut self, conn: ConnId) {
        let Some(of) = self.conns.get_mut(conn) else { return };
        of.waiting = false;
        of.begun = 0;
        self.read(conn);
    }

    fn begin_received(&mut self, conn: ConnId, task: TaskId) -> Option<IncomingId> {
        let view = self.received_view(task)?;
        let incoming = self.begin(conn, view, MessagePurpose::Received, Goal::Begun)?;
        let watched = self.watch(self.tasks.get(task).map(|task| task.handler));
        if let Some(of) = self.incomings.get_mut(incoming) {
            of.task = Some(task);
            of.watched = watched;
        }
        Some(incoming)
    }

    fn begin(
        &mut self,
        conn: ConnId,
        message: MessageId,
        purpose: MessagePurpose,
        goal: Goal,
    ) -> Option<IncomingId> {
        let parser = self.parsers.take(&self.layouts, message)?;
        let asks = matches!(purpose, MessagePurpose::Request | MessagePurpose::Unmatched);
        let watched = if asks { self.watch(None) } else { None };
        let now = self.now;
        let of = self.conns.get_mut(conn)?;
        of.moved = now;
        of.begun = of.begun.saturating_add(1);
        let request = purpose == MessagePurpose::Request;
        of.requests += u32::from(request && of.side == Side::Server);
        let incoming = self.incomings.insert(Incoming {
            parser,
            message,
            conn: Some(conn),
            requester: request.then_some(Requester::Conn(conn)),
            repeat: None,
            purpose,
            task: None,
            goal,
            passing: Passing::Held,
            reply: None,
            answered: false,
            watched,
        });
        of.current = Some(incoming);
        Some(incoming)
    }

    /// Reads on in a message.
    fn look(&mut self, conn: ConnId, id: IncomingId) -> Looked {
        let (Some(of), Some(incoming)) = (self.conns.get_mut(conn), self.incomings.get_mut(id))
        else {
            return Looked::Wait;
        };
        if let Passing::To(sink) = incoming.passing
            && incoming.parser.in_stream()
        {
            return match self.pump(conn, id, sink) {
                Ok(true) => self.complete(conn, id),
                Ok(false) => Looked::Wait,
                Err(malformed) => self.malformed(conn, id, malformed),
            };
        }
        let mut thrown = self.pool.lend();
        let stream = (incoming.passing == Passing::Discarded).then_some(&mut thrown);
        let until = match &incoming.goal {
            Goal::End => Until::End,
            Goal::Begun => Until::Begun,
            Goal::Settled(slots) => Until::Settled(slots),
        };
        let in_stream = incoming.parser.in_stream();
        let progress = incoming.parser.advance(of.unread.octets(), of.ended, until, stream);
        let discarded = u64::try_from(thrown.len()).unwrap_or(u64::MAX);
        self.counters.add(Count::Discarded, discarded);
        self.pool.give_back(thrown);
        match progress {
            Err(malformed) => self.malformed(conn, id, malformed),
            Ok(progress) => {
                if let (Some(watched), Some(posts)) = (&mut incoming.watched, &self.posts) {
                    let octets = of.unread.octets().get(..progress.consumed).unwrap_or_default();
                    posts.read(watched, octets, (of.role, conn, of.peer), &mut self.outputs);
                }
                of.unread.consume(progress.consumed);
                // A head that dribbles is no sign of life: it has the idle time for the whole.
                if in_stream && progress.consumed > 0 {
                    of.moved = self.now;
                }
                if progress.complete {
                    return self.complete(conn, id);
                }
                self.look_at_goal(conn, id)
            }
        }
    }

    /// Notifies the waiting user if the message is read far enough; reading continues afterwards.
    fn look_at_goal(&mut self, conn: ConnId, id: IncomingId) -> Looked {
        let Some(incoming) = self.incomings.get_mut(id) else { return Looked::Wait };
        let until = match &incoming.goal {
            Goal::End => Until::End,
            Goal::Begun => Until::Begun,
            Goal::Settled(slots) => Until::Settled(slots),
        };
        // What is behind a stream is not waited for on behalf of what is attached.
        let watched = self.posts.is_some() && incoming.purpose == MessagePurpose::Request;
        let enough = watched && incoming.parser.in_stream();
        if enough || incoming.parser.has_reached(until) {
            incoming.goal = Goal::End;
            self.reached(conn, id);
            self.work.push_back(Work::Read(conn));
        }
        Looked::Wait
    }

    /// Handles a message that is read as far as its user waited for.
    fn reached(&mut self, conn: ConnId, id: IncomingId) {
        let Some(incoming) = self.incomings.get(id) else { return };
        match (incoming.purpose, incoming.task) {
            (MessagePurpose::Request, _) => self.dispatch(id),
            (MessagePurpose::Unmatched, _) => self.match_response(conn, id),
            (MessagePurpose::Response(exchange), None) => self.response_begun(exchange, id),
            (_, Some(task)) => self.message_moved(task, id),
            (_, None) => {}
        }
    }

    /// Handles a complete message.
    fn complete(&mut self, conn: ConnId, id: IncomingId) -> Looked {
        let now = self.now;
        self.note_read(id);
        if let Some(of) = self.conns.get_mut(conn) {
            of.current = None;
            of.moved = now;
        }
        let Some(incoming) = self.incomings.get_mut(id) else { return Looked::Done };
        let told = core::mem::replace(&mut incoming.goal, Goal::End) == Goal::End;
        incoming.conn = None;
        if !told {
            self.reached(conn, id);
        }
        self.settle_request(id);
        self.finish_response(conn, id);
        self.forget_if_unused(id);
        if told {
            return Looked::Done;
        }
        self.work.push_back(Work::Read(conn));
        Looked::Wait
    }

    /// Handles a message that cannot be read, or is cut.
    pub(crate) fn malformed(&mut self, conn: ConnId, id: IncomingId, why: Malformed) -> Looked {
        let cut = why.reason == MalformedReason::Cut;
        if let Some(message) = self.incomings.get(id).map(|of| of.message) {
            self.note_malformed(message, why);
        }
        self.count(if cut { Count::Broken } else { Count::Malformed });
        let Some(incoming) = self.incomings.get(id) else { return Looked::Wait };
        let side = self.conns.get(conn).map(|of| of.side);
        let lines = incoming.parser.is_in_a_line();
        match (side, incoming.purpose) {
            (Some(Side::Server), MessagePurpose::Request | MessagePurpose::Handled) if !cut => {
                self.refuse_request(conn, id, lines);
            }
            (Some(Side::Server), MessagePurpose::Received) if !cut => {
                self.refuse_received(conn, id, lines);
            }
            _ => self.lose_conn(conn),
        }
        Looked::Wait
    }

    /// Frees a message; its parser reads the next one of its kind.
    pub(crate) fn forget(&mut self, id: IncomingId) {
        if let Some(incoming) = self.incomings.remove(id) {
            self.parsers.keep(incoming.parser);
        }
    }

    /// Frees a complete message that no handler uses.
    pub(crate) fn forget_if_unused(&mut self, id: IncomingId) {
        let unused = self.incomings.get(id).is_some_and(|incoming| {
            incoming.is_complete()
                && incoming.task.is_none()
                && incoming.reply.is_none()
                && !incoming.answered
        });
        if unused {
            self.forget(id);
        }
    }
}

/// Discards octets up to the end of the line, and the line's end.
fn skip_line(unread: &mut Unread, skipping: &mut bool) {
    match memchr::memchr(b'\n', unread.octets()) {
        Some(end) => {
            unread.consume(end + 1);
            *skipping = false;
        }
        None => unread.clear(),
    }
}
