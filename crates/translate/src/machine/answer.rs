//! Arriving requests: their dispatch and their answers.

use super::slab::{ConnId, IncomingId};
use super::state::{Goal, MessagePurpose, Origin, Passing, Reply, Requester, Written};
use super::{Count, Machine, Work};
use gatewright_lang::ir::{Action, Answer, Build, Message, RoleId, Side, TooLong};
use std::sync::Arc;

impl Machine {
    /// Takes the first matching case for a request.
    pub(crate) fn dispatch(&mut self, id: IncomingId) {
        let program = Arc::clone(&self.program);
        let Some(incoming) = self.incomings.get_mut(id) else { return };
        let (view, requester) = (incoming.message, incoming.requester);
        incoming.purpose = MessagePurpose::Handled;
        let role = match requester {
            Some(Requester::Conn(conn)) => self.conns.get(conn).map(|of| of.role),
            Some(Requester::Peer(role, _)) => Some(role),
            None => None,
        };
        let Some(role) = role else { return };
        let Some(incoming) = self.incomings.get(id) else { return };
        let kinds = program.role(role).map(|role| role.requests.as_slice()).unwrap_or_default();
        let cases = kinds.iter().flat_map(|kind| kind.cases.iter().map(move |of| (kind.view, of)));
        let slots = incoming.parser.view();
        let case = cases
            .enumerate()
            .find(|(_, (kind, case))| *kind == view && slots.holds(&program, &case.guard));
        if let Some((index, _)) = case
            && let Some(count) = self.cases.get_mut(role.index()).and_then(|of| of.get_mut(index))
        {
            *count = count.saturating_add(1);
        }
        if let Some((_, (_, case))) = case {
            let span = case.span;
            self.note(|| super::MachineStep::Case { span });
        }
        match case.map(|(_, (_, case))| &case.action) {
            Some(Action::Handle(handler)) => {
                if self.posts.is_some() && self.is_refused(*handler, id, role) {
                    return;
                }
                self.start(*handler, Origin::Request { role, request: id });
            }
            Some(Action::Answer(answer)) => self.answer_request(id, role, answer),
            None => self.answer_request(id, role, &Answer::default()),
        }
    }

    /// Answers a request without a handler.
    pub(crate) fn answer_request(&mut self, id: IncomingId, role: RoleId, answer: &Answer) {
        let built = self.build_answer(answer, Some(id), role);
        self.reply(id, Reply { octets: built, stream: None, close: answer.close });
    }

    /// The octets of an answer that the protocol itself gives; none if it cannot be built.
    pub(crate) fn build_answer(
        &mut self,
        answer: &Answer,
        request: Option<IncomingId>,
        role: RoleId,
    ) -> Vec<u8> {
        let build = |build: &Build| self.build_for(build, None, request, role);
        match answer.message.as_ref().map(build) {
            Some(Ok(built)) => built.octets,
            Some(Err(_)) => {
                self.count(Count::Unbuildable);
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    /// Answers a connection outside any request.
    pub(crate) fn answer_conn(
        &mut self,
        conn: ConnId,
        request: Option<IncomingId>,
        answer: &Answer,
    ) {
        let Some(role) = self.conns.get(conn).map(|of| of.role) else { return };
        let octets = self.build_answer(answer, request, role);
        self.put(conn, octets, None, Written::Nothing);
    }

    /// Answers a request once it, and what its handler received after it, is read to its end. It
    /// answers at once if the connection closes after the answer, or if the answer's stream is the
    /// request's own.
    pub(crate) fn reply(&mut self, id: IncomingId, reply: Reply) {
        let before = match self.incomings.get(id) {
            Some(incoming) if incoming.is_complete() => self.received_behind(id),
            Some(_) => Some(id),
            None => return,
        };
        let from = reply.stream.as_ref().map(|stream| stream.1);
        let Some(before) = before.filter(|before| !reply.close && from != Some(*before)) else {
            return self.reply_now(id, reply);
        };
        let Some(incoming) = self.incomings.get_mut(before) else { return };
        incoming.reply = Some((reply, id));
        incoming.goal = Goal::End;
        // What is passed on is passed on to its end.
        if incoming.passing == Passing::Held {
            self.discard(before);
        }
        if let Some(request) = self.incomings.get_mut(id) {
            request.answered = true;
        }
    }

    /// The unfinished message that a handler receives after its request.
    fn received_behind(&self, request: IncomingId) -> Option<IncomingId> {
        let Requester::Conn(conn) = self.incomings.get(request)?.requester? else { return None };
        let current = self.conns.get(conn)?.current?;
        let received = self.incomings.get(current)?.purpose == MessagePurpose::Received;
        received.then_some(current)
    }

    fn reply_now(&mut self, id: IncomingId, reply: Reply) {
        let watcher = self.watcher(id);
        let Some(incoming) = self.incomings.get_mut(id) else { return };
        incoming.task = None;
        incoming.answered = false;
        let requester = incoming.requester.take();
        if !incoming.is_complete() {
            incoming.goal = Goal::End;
        }
        let repeat = incoming.repeat.take();
        match requester {
            Some(Requester::Conn(conn)) => {
                self.put(conn, reply.octets, reply.stream, Written::Answer(watcher));
                if reply.close {
                    self.close_after_sending(conn);
                }
            }
            Some(Requester::Peer(role, to)) => {
                self.answer_peer((role, to), repeat, reply.octets, watcher);
            }
            None => {}
        }
        self.forget_if_unused(id);
    }

    /// Sends what waited for a request to be read to its end.
    pub(crate) fn settle_request(&mut self, id: IncomingId) {
        let reply = self.incomings.get_mut(id).and_then(|incoming| incoming.reply.take());
        if let Some((reply, request)) = reply {
            self.reply_now(request, reply);
        }
    }

    /// Finishes a request: the next one may begin.
    pub(crate) fn finish_request(&mut self, conn: ConnId) {
        if let Some(of) = self.conns.get_mut(conn) {
            of.requests = of.requests.saturating_sub(u32::from(of.side == Side::Server));
            of.moved = self.now;
            self.work.push_back(Work::Read(conn));
        }
    }

    /// Refuses an unreadable request: its handler ends, and the protocol answers.
    pub(crate) fn refuse_request(&mut self, conn: ConnId, id: IncomingId, in_line: bool) {
        let task = self.incomings.get(id).and_then(|incoming| incoming.task);
        if let Some(task) = task {
            self.end_task(task, false);
        }
        let answered = self.incomings.get(id).is_none_or(|of| of.requester.is_none());
        if answered {
            return self.lose_conn(conn);
        }
        self.refuse(conn, id, in_line);
        self.finish_request(conn);
    }

    /// Refuses an unreadable message that a handler waits for: the handler ends.
    pub(crate) fn refuse_received(&mut self, conn: ConnId, id: IncomingId, in_line: bool) {
        let begun = self.conns.get(conn).is_some_and(|of| of.receiver.is_none());
        let Some(task) = self.incomings.get(id).and_then(|incoming| incoming.task) else {
            return self.lose_conn(conn);
        };
        if begun {
            let request = self.tasks.get(task).and_then(|task| task.origin.request());
            self.end_task(task, false);
            self.refuse(conn, id, in_line);
            if let Some(request) = request {
                self.forget(request);
            }
            return self.finish_request(conn);
        }
        // It has not begun for the handler yet, which can still say what happens.
        let lines = self.is_lines(id);
        if let Some(of) = self.conns.get_mut(conn) {
            of.current = None;
            of.receiver = None;
            of.skipping = in_line && lines;
        }
        self.forget(id);
        self.receive_failed(task);
        if !lines {
            self.close_after_sending(conn);
        }
    }

    /// Answers a malformed message, and reads on after it where its end can be found.
    fn refuse(&mut self, conn: ConnId, id: IncomingId, in_line: bool) {
        let program = Arc::clone(&self.program);
        let lines = self.is_lines(id);
        let Some(of) = self.conns.get_mut(conn) else { return };
        of.current = None;
        of.skipping = in_line && lines;
        let Some(role) = program.role(of.role) else { return };
        let answer = role.malformed(self.too_long(id));
        self.answer_conn(conn, Some(id), answer);
        self.forget(id);
        if answer.close || !lines {
            self.close_after_sending(conn);
        }
    }

    /// The item of a message that was too long.
    pub(crate) fn too_long(&self, id: IncomingId) -> Option<TooLong> {
        self.incomings.get(id)?.parser.too_long()
    }

    fn is_lines(&self, id: IncomingId) -> bool {
        let message = self.incomings.get(id).and_then(|of| self.program.message(of.message));
        message.is_some_and(Message::is_lines)
    }
}
