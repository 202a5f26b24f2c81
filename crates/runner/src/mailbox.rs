//! Messages from other threads to a loop.

use crate::captured::PieceSink;
use crate::plan::Planned;
use crate::report::RunReport;
use gatewright_edge::{Poller, Wake};
use gatewright_lang::ir::RoleId;
use gatewright_translate::machine::{Conversation, Post, QueryId};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

/// A message from another thread to a loop.
#[derive(Debug)]
pub(crate) enum LoopMessage<P: Poller> {
    /// Replaces the program; running sessions may end within this time. `done` receives whether it
    /// succeeded.
    Replace { planned: Box<Planned<P>>, within: Duration, done: SyncSender<io::Result<()>> },
    /// Drains the current program as well; the loop ends when that is done.
    Stop { within: Duration },
    /// Attaches a post to handlers; then `done` is notified.
    Attach { post: Box<Post>, sink: Option<PieceSink>, done: SyncSender<()> },
    /// Detaches the post with this id; then `done` is notified.
    Detach { id: u32, done: SyncSender<()> },
    /// A datagram that another loop received, for a session of this loop.
    Datagram { serial: u64, role: RoleId, from: SocketAddr, octets: Vec<u8> },
    /// Records the next conversation that reaches a handler of this name; then `done` is notified.
    Record { handler: String, to: SyncSender<Conversation>, done: SyncSender<()> },
    /// Ends a recording; what it has so far goes to its receiver.
    StopRecording,
    /// Requests a report.
    RunReport(SyncSender<RunReport>),
    /// The resolver's answer.
    Resolved { serial: u64, query: QueryId, address: Option<SocketAddr> },
}

/// Sends messages to a loop from another thread.
pub(crate) struct Mailbox<P: Poller> {
    pub(crate) messages: SyncSender<LoopMessage<P>>,
    pub(crate) waker: Arc<dyn Wake>,
}

impl<P: Poller> Clone for Mailbox<P> {
    fn clone(&self) -> Self {
        Self { messages: self.messages.clone(), waker: Arc::clone(&self.waker) }
    }
}

impl<P: Poller> fmt::Debug for Mailbox<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").finish_non_exhaustive()
    }
}

impl<P: Poller> Mailbox<P> {
    /// Sends; `false` if the loop has ended.
    pub(crate) fn send(&self, message: LoopMessage<P>) -> bool {
        let sent = self.messages.send(message).is_ok();
        self.waker.wake();
        sent
    }

    /// Sends if there is room; never blocks.
    pub(crate) fn try_send(&self, message: LoopMessage<P>) -> bool {
        let sent = self.messages.try_send(message).is_ok();
        self.waker.wake();
        sent
    }
}
