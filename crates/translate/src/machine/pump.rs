//! Writes to connections, and passes streams from one to another.

use super::record::PeerEvent;
use super::slab::{ConnId, IncomingId};
use super::state::{
    Behind, ConnectionState, Passing, Requester, Source, Streaming, Writing, Written,
};
use super::{BUFFER_OCTETS, Count, Machine, Output, Work};
use crate::flat::state::Until;
use crate::parser::{Malformed, Progress};

impl Machine {
    /// Sends a message over a connection, after those already in its queue.
    pub(crate) fn put(
        &mut self,
        conn: ConnId,
        octets: Vec<u8>,
        stream: Option<Source>,
        done: Written,
    ) {
        let Some(of) = self.conns.get_mut(conn) else { return };
        if matches!(of.state, ConnectionState::Closing | ConnectionState::Lingering) {
            // What comes behind the end is for nobody.
            self.pool.give_back(octets);
            if let Some((_, from)) = stream {
                self.discard(from);
            }
            return;
        }
        if of.streaming.is_some() {
            of.behind.push_back(Behind { octets, stream: stream.map(Box::new), done });
            return;
        }
        self.show_written(conn, done, true, &octets);
        self.append(conn, &octets);
        self.pool.give_back(octets);
        let Some((writer, from)) = stream else { return self.written(conn, done) };
        let source = self.incomings.get_mut(from).and_then(|incoming| {
            incoming.passing = Passing::To(conn);
            incoming.conn
        });
        if let Some(of) = self.conns.get_mut(conn) {
            of.streaming = Some(Box::new(Streaming { writer, from, done }));
        }
        self.work.extend(source.map(Work::Read));
    }

    /// Shows an answer to the posts at its handler.
    fn show_written(&mut self, conn: ConnId, what: Written, first: bool, octets: &[u8]) {
        if let (Written::Answer(Some(handler)) | Written::Part(handler), false) =
            (what, octets.is_empty())
            && let Some(role) = self.conns.get(conn).map(|of| of.role)
        {
            self.leaves(handler, role, Requester::Conn(conn), u64::from(first), octets);
        }
    }

    fn append(&mut self, conn: ConnId, octets: &[u8]) {
        if let Some(role) = self.conns.get(conn).map(|of| of.role).filter(|_| !octets.is_empty()) {
            self.note(|| super::MachineStep::Sent { role, octets: octets.to_vec() });
        }
        let Self { conns, pool, outputs, .. } = self;
        let Some(of) = conns.get_mut(conn) else { return };
        if of.unsent.is_empty() && !octets.is_empty() {
            outputs.push_back(Output::Write { conn });
        }
        of.unsent.append(pool, octets);
    }

    /// Passes on a message's stream, as far as the other side has room. Returns whether the message
    /// is complete.
    pub(crate) fn pump(
        &mut self,
        conn: ConnId,
        id: IncomingId,
        sink: ConnId,
    ) -> Result<bool, Malformed> {
        loop {
            let Some(of) = self.conns.get_mut(sink) else { return Ok(false) };
            if of.unsent.len() >= BUFFER_OCTETS {
                return Ok(false);
            }
            let mut writing = Writing {
                streaming: of.streaming.take(),
                before: of.unsent.len(),
                unsent: core::mem::take(&mut of.unsent),
                framed: Ok(()),
            };
            let read = self.read_stream(conn, id, &mut writing);
            let complete = matches!(read, Ok(Some(progress)) if progress.complete);
            self.write_on(sink, writing, complete);
            let Some(progress) = read? else { return Ok(false) };
            let left = self.conns.get(conn).is_some_and(|of| !of.unread.is_empty());
            if progress.complete || progress.consumed == 0 || !left {
                return Ok(progress.complete);
            }
        }
    }

    /// Reads a stream as far as its destination has room; `None` if the stream is over.
    fn read_stream(
        &mut self,
        conn: ConnId,
        id: IncomingId,
        writing: &mut Writing,
    ) -> Result<Option<Progress>, Malformed> {
        let Self { conns, incomings, pool, posts, outputs, now, .. } = self;
        let (Some(of), Some(incoming)) = (conns.get_mut(conn), incomings.get_mut(id)) else {
            return Ok(None);
        };
        let Writing { streaming, unsent, before, framed } = writing;
        let verbatim =
            streaming.as_ref().is_some_and(|of| incoming.parser.passes_verbatim(&of.writer));
        let mut passed = if verbatim { Vec::new() } else { pool.lend() };
        let out = if verbatim { unsent.end(pool) } else { &mut passed };
        let all = of.unread.octets();
        let near = all.get(..BUFFER_OCTETS.saturating_sub(*before)).unwrap_or(all);
        let last = of.ended && near.len() == all.len();
        let mut progress = incoming.parser.advance(near, last, Until::End, Some(out));
        if matches!(progress, Ok(Progress { consumed: 0, complete: false }))
            && near.len() < all.len()
        {
            // What frames the stream is longer than the room that is left for what it frames.
            progress = incoming.parser.advance(all, of.ended, Until::End, Some(out));
        }
        let Ok(Progress { consumed, .. }) = progress else {
            unsent.cut(*before);
            return progress.map(Some);
        };
        match streaming {
            Some(streaming) if verbatim => streaming.writer.passed(unsent.len() - *before),
            Some(streaming) => *framed = streaming.writer.write(&passed, unsent.end(pool)),
            None => {}
        }
        pool.give_back(passed);
        if let (Some(watched), Some(posts)) = (&mut incoming.watched, posts) {
            let octets = all.get(..consumed).unwrap_or_default();
            posts.read(watched, octets, (of.role, conn, of.peer), outputs);
        }
        of.unread.consume(consumed);
        if consumed > 0 {
            of.moved = *now;
        }
        progress.map(Some)
    }

    /// Continues a stream that has more octets, or is at its end.
    fn write_on(&mut self, sink: ConnId, writing: Writing, complete: bool) {
        let Writing { mut streaming, mut unsent, before, framed: mut outcome } = writing;
        let told = streaming.as_ref().map_or(Written::Nothing, |of| of.done);
        self.show_written(sink, told, false, unsent.behind(before));
        let mut done = None;
        if complete
            && outcome.is_ok()
            && let Some(Streaming { writer, .. }) = streaming.take().map(|of| *of)
        {
            let end = unsent.len();
            outcome = writer.finish(unsent.end(&mut self.pool));
            self.show_written(sink, told, false, unsent.behind(end));
            done = Some(told);
        }
        let more = unsent.len() > before;
        if more && let Some(role) = self.conns.get(sink).map(|of| of.role) {
            self.note(|| super::MachineStep::Sent { role, octets: unsent.behind(before).to_vec() });
        }
        let Self { conns, pool, outputs, .. } = self;
        if let Some(of) = conns.get_mut(sink) {
            if before == 0 && more {
                outputs.push_back(Output::Write { conn: sink });
            }
            unsent.settle(pool);
            (of.unsent, of.streaming) = (unsent, streaming);
        }
        if outcome.is_err() {
            self.count(Count::Unbuildable);
            return self.lose_conn(sink);
        }
        if let Some(done) = done {
            self.written(sink, done);
            self.put_next(sink);
        }
    }

    /// Sends the messages that waited for a stream.
    fn put_next(&mut self, conn: ConnId) {
        while let Some(of) = self.conns.get_mut(conn)
            && of.streaming.is_none()
            && let Some(next) = of.behind.pop_front()
        {
            self.put(conn, next.octets, next.stream.map(|stream| *stream), next.done);
        }
    }

    /// Handles the end of writing a message.
    pub(crate) fn written(&mut self, conn: ConnId, done: Written) {
        match done {
            Written::Nothing | Written::Part(_) => {}
            Written::Answer(_) => self.finish_request(conn),
            Written::Sent(task) => self.sent_whole(task),
        }
        self.check_closing(conn);
        self.let_go_if_free(conn);
    }

    /// Discards the rest of a message's stream. A recipient of a part must not take it for the
    /// whole.
    pub(crate) fn discard(&mut self, id: IncomingId) {
        let Some(incoming) = self.incomings.get_mut(id) else { return };
        let before = core::mem::replace(&mut incoming.passing, Passing::Discarded);
        self.work.extend(incoming.conn.map(Work::Read));
        if let Passing::To(sink) = before
            && self.conns.get(sink).is_some_and(|of| of.streams_from(id))
        {
            self.lose_conn(sink);
        }
    }

    /// Ends our side of a connection once everything is sent.
    pub(crate) fn close_after_sending(&mut self, conn: ConnId) {
        if let Some(of) = self.conns.get_mut(conn)
            && of.state == ConnectionState::Open
        {
            of.state = ConnectionState::Closing;
            of.moved = self.now;
            self.arm(conn);
            self.work.push_back(Work::Read(conn));
        }
        self.check_closing(conn);
    }

    /// Advances a connection that is closing.
    pub(crate) fn check_closing(&mut self, conn: ConnId) {
        let Some(of) = self.conns.get_mut(conn) else { return };
        let sent = of.unsent.is_empty() && of.streaming.is_none() && of.behind.is_empty();
        if of.state != ConnectionState::Closing || !sent {
            return;
        }
        if of.ended {
            return self.drop_conn(conn, false);
        }
        of.state = ConnectionState::Lingering;
        of.moved = self.now;
        let tasks = core::mem::take(&mut of.tasks);
        self.record_end(conn, PeerEvent::SeesClose);
        self.outputs.push_back(Output::Shutdown { conn });
        self.arm(conn);
        for task in tasks {
            self.end_task(task, false);
        }
        self.leave(conn);
    }
}
