//! Writing to connections, and streams that pass from one to another.

use super::conn::State;
use super::exchange::Written;
use super::read::Passing;
use super::slab::{ConnId, IncomingId};
use super::{BUFFER_OCTETS, Count, Machine, Output, Work};
use crate::parser::{Malformed, Until};
use crate::stream::StreamWriter;

/// A stream that is being written to a connection.
#[derive(Debug)]
pub(crate) struct Streaming {
    writer: StreamWriter,
    /// The message that it comes from.
    pub(crate) from: IncomingId,
    /// Who is told when it is written.
    pub(crate) done: Written,
}

/// A stream's source and its framing.
pub(crate) type Source = (StreamWriter, IncomingId);

/// A message that waits for the stream before it.
#[derive(Debug)]
pub(crate) struct Behind {
    octets: Vec<u8>,
    pub(crate) stream: Option<Box<Source>>,
    pub(crate) done: Written,
}

impl Machine {
    /// Sends a message over a connection, behind what is on its way there.
    pub(crate) fn put(
        &mut self,
        conn: ConnId,
        octets: Vec<u8>,
        stream: Option<Source>,
        done: Written,
    ) {
        let Some(of) = self.conns.get_mut(conn) else { return };
        if matches!(of.state, State::Closing | State::Lingering) {
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

    fn append(&mut self, conn: ConnId, octets: &[u8]) {
        if let Some(role) = self.conns.get(conn).map(|of| of.role).filter(|_| !octets.is_empty()) {
            self.note(|| super::Trace::Sent { role, octets: octets.to_vec() });
        }
        let Self { conns, pool, outputs, .. } = self;
        let Some(of) = conns.get_mut(conn) else { return };
        if of.unsent.is_empty() && !octets.is_empty() {
            outputs.push_back(Output::Write { conn });
        }
        of.unsent.append(pool, octets);
    }

    /// Passes on what there is of a message's stream, as far as the other side has room. Says
    /// whether the message is complete.
    pub(crate) fn pump(
        &mut self,
        conn: ConnId,
        id: IncomingId,
        sink: ConnId,
    ) -> Result<bool, Malformed> {
        loop {
            let room = self
                .conns
                .get(sink)
                .map_or(0, |sink| BUFFER_OCTETS.saturating_sub(sink.unsent.len()));
            let (Some(of), Some(incoming)) = (self.conns.get_mut(conn), self.incomings.get_mut(id))
            else {
                return Ok(false);
            };
            if room == 0 {
                return Ok(false);
            }
            let mut passed = self.pool.lend();
            let near = of.unread.get(..room).unwrap_or(&of.unread);
            let last = of.ended && near.len() == of.unread.len();
            let mut progress =
                incoming.parser.advance(near, last, Until::End, Some(&mut passed))?;
            if progress.consumed == 0 && !progress.complete && near.len() < of.unread.len() {
                // What frames the stream is longer than the room that is left for what it frames.
                let last = of.ended;
                progress =
                    incoming.parser.advance(&of.unread, last, Until::End, Some(&mut passed))?;
            }
            of.unread.drain(..progress.consumed.min(of.unread.len()));
            if progress.consumed > 0 {
                of.moved = self.now;
            }
            let left = !of.unread.is_empty();
            self.pass(sink, &passed, progress.complete);
            self.pool.give_back(passed);
            if progress.complete || progress.consumed == 0 || !left {
                return Ok(progress.complete);
            }
        }
    }

    /// Writes octets of a stream, and its end.
    fn pass(&mut self, sink: ConnId, octets: &[u8], complete: bool) {
        let Some(of) = self.conns.get_mut(sink) else { return };
        let Some(mut streaming) = of.streaming.take() else { return };
        let mut framed = self.pool.lend();
        let mut outcome = streaming.writer.write(octets, &mut framed);
        let mut done = None;
        if outcome.is_ok() && complete {
            let Streaming { writer, done: told, .. } = *streaming;
            outcome = writer.finish(&mut framed);
            done = Some(told);
        } else if let Some(of) = self.conns.get_mut(sink) {
            of.streaming = Some(streaming);
        }
        self.append(sink, &framed);
        self.pool.give_back(framed);
        if outcome.is_err() {
            self.count(Count::Unbuildable);
            return self.lose_conn(sink);
        }
        if let Some(done) = done {
            self.written(sink, done);
            self.put_next(sink);
        }
    }

    /// Sends what waited for a stream.
    fn put_next(&mut self, conn: ConnId) {
        while let Some(of) = self.conns.get_mut(conn)
            && of.streaming.is_none()
            && let Some(next) = of.behind.pop_front()
        {
            self.put(conn, next.octets, next.stream.map(|stream| *stream), next.done);
        }
    }

    /// A message was written whole.
    pub(crate) fn written(&mut self, conn: ConnId, done: Written) {
        match done {
            Written::Nothing => {}
            Written::Answer => self.finish_request(conn),
            Written::Sent(task) => self.sent_whole(task),
        }
        self.check_closing(conn);
        self.let_go_if_free(conn);
    }

    /// Nobody wants a message's stream any more: the rest is thrown away; who got a part of it must
    /// not take that for the whole.
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
            && of.state == State::Open
        {
            of.state = State::Closing;
            of.moved = self.now;
            self.arm(conn);
            self.work.push_back(Work::Read(conn));
        }
        self.check_closing(conn);
    }

    /// Goes on with a connection that is to end.
    pub(crate) fn check_closing(&mut self, conn: ConnId) {
        let Some(of) = self.conns.get_mut(conn) else { return };
        let sent = of.unsent.is_empty() && of.streaming.is_none() && of.behind.is_empty();
        if of.state != State::Closing || !sent {
            return;
        }
        if of.ended {
            return self.drop_conn(conn, false);
        }
        of.state = State::Lingering;
        of.moved = self.now;
        let tasks = core::mem::take(&mut of.tasks);
        self.outputs.push_back(Output::Shutdown { conn });
        self.arm(conn);
        for task in tasks {
            self.end_task(task, false);
        }
        self.leave(conn);
    }
}
