//! Accepts connections, a bounded number at a time.

use gatewright_edge::{Listener, Poller};
use gatewright_lang::ir::RoleId;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

/// How long a listener pauses after the system had no descriptor or no memory for a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// A listener of one role.
#[derive(Debug)]
pub(crate) struct Door<P: Poller> {
    pub(crate) role: RoleId,
    pub(crate) address: SocketAddr,
    pub(crate) listener: P::Listener,
    /// Whether connections may be pending: the kernel signals it once.
    waiting: bool,
    /// Until when nothing is accepted.
    shut: Option<Duration>,
}

/// Result of one `accept` on a listener.
#[derive(Debug)]
pub(crate) enum Knock<S> {
    /// A connection.
    Come(S, SocketAddr),
    /// No connection is pending.
    Nobody,
    /// The system has no room; the listener pauses for a moment.
    NoRoom,
}

impl<P: Poller> Door<P> {
    pub(crate) const fn new(role: RoleId, address: SocketAddr, listener: P::Listener) -> Self {
        // Who came before it was registered is told of, too, but who came to the program before
        // this one may have been told of already.
        Self { role, address, listener, waiting: true, shut: None }
    }

    /// Records that the kernel signalled pending connections.
    pub(crate) const fn knocked(&mut self) {
        self.waiting = true;
    }

    /// Whether `accept` is due at `now`.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.waiting && self.shut.is_none_or(|until| until <= now)
    }

    /// When `accept` is due, if the listener pauses.
    pub(crate) fn opens_at(&self) -> Option<Duration> {
        self.shut.filter(|_| self.waiting)
    }

    pub(crate) fn look(&mut self, now: Duration) -> Knock<P::Stream> {
        self.shut = None;
        loop {
            match self.listener.accept() {
                Ok((stream, peer)) => return Knock::Come(stream, peer),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.waiting = false;
                    return Knock::Nobody;
                }
                // Gone before it was taken in, or a signal.
                Err(error) if is_passing(&error) => {}
                Err(_) => {
                    self.shut = Some(now + PAUSE);
                    return Knock::NoRoom;
                }
            }
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted)
}
