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
pub(crate) struct RoleListener<P: Poller> {
    pub(crate) role: RoleId,
    pub(crate) address: SocketAddr,
    pub(crate) socket: P::Listener,
    /// Whether connections may be pending: the kernel signals it once.
    waiting: bool,
    /// Until when nothing is accepted.
    shut: Option<Duration>,
}

/// Result of one `accept` on a listener.
#[derive(Debug)]
pub(crate) enum Accepted<S> {
    /// A connection.
    Connection(S, SocketAddr),
    /// No connection is pending.
    NonePending,
    /// The system has no room; the listener pauses for a moment.
    NoResources,
}

impl<P: Poller> RoleListener<P> {
    pub(crate) const fn new(role: RoleId, address: SocketAddr, socket: P::Listener) -> Self {
        // Who came before it was registered is told of, too, but who came to the program before
        // this one may have been told of already.
        Self { role, address, socket, waiting: true, shut: None }
    }

    /// Records that the kernel signalled pending connections.
    pub(crate) const fn set_ready(&mut self) {
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

    pub(crate) fn accept(&mut self, now: Duration) -> Accepted<P::Stream> {
        self.shut = None;
        loop {
            match self.socket.accept() {
                Ok((stream, peer)) => return Accepted::Connection(stream, peer),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.waiting = false;
                    return Accepted::NonePending;
                }
                // Gone before it was taken in, or a signal.
                Err(error) if is_passing(&error) => {}
                Err(_) => {
                    self.shut = Some(now + PAUSE);
                    return Accepted::NoResources;
                }
            }
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted)
}
