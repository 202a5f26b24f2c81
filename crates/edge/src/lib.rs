//! The traits between machines and networks: streams, datagrams, readiness and timers.
//!
//! A machine takes octets, datagrams and time, and gives octets, datagrams and times. An event
//! loop joins it to a [`Network`]: the kernel's sockets, those of our own stack, or a simulated
//! network in virtual time. The loop is written once, over these traits; this crate opens no
//! socket, reads no clock and starts no thread.
//!
//! A [`Network`] makes sockets, before a loop runs, and a [`Poller`] for each loop. The poller
//! watches sockets of the loop, waits, and tells which of them are ready.
//!
//! # The contract
//!
//! *Nothing blocks* but [`Poller::wait`] and [`Network::resolve`]. Every other call that cannot
//! proceed returns [`WouldBlock`](std::io::ErrorKind::WouldBlock).
//!
//! *Readiness is edge-triggered.* A poller reports a socket when something has changed since its
//! user last learnt that there was nothing. The user learns this from:
//!
//! - `WouldBlock` from [`Listener::accept`], [`Datagrams::receive`], [`Stream::read`] or
//!   [`Stream::write`];
//! - a read of a stream that left room in the buffer, as long as its end was not reported;
//! - a write to a stream that took fewer octets than were offered.
//!
//! The implementation re-arms the socket at that moment: there is no call for it. Until then a user
//! counts the socket as ready, and may not be told again. A listener and a datagram socket count as
//! ready from when they are watched: their user tries them before it waits. A stream is reported as
//! it is when it is watched. A report may be false, because another loop was
//! faster or the cause is gone: the user then gets `WouldBlock`.
//!
//! *Datagram sockets are not reported as writable.* A datagram that cannot leave now is lost, as on
//! any network: [`Datagrams::send`] says so, and its user counts it.
//!
//! *Everything that waits is bounded.* Each implementation states how many connections, octets and
//! datagrams wait. Beyond that, connections are refused and datagrams dropped, with a counter.
//!
//! *Errors.* An error of `accept` or `receive` concerns one connection or an earlier datagram; the
//! socket stays usable. Any other error of a stream than `WouldBlock` and `Interrupted` is its end.
//!
//! *Timers* are the `pause` of [`Poller::wait`] and the time of [`Poller::now`]: the loop asks its
//! machines when they are due, and waits no longer than that.
//!
//! [`conformance`] checks an implementation against this contract.
#![forbid(unsafe_code)]

pub mod conformance;
mod ready;

pub use ready::{Notifier, ReadySet};

use std::fmt::Debug;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Number of sockets that one wait reports, about; the others are reported by the next one.
pub const READY_MAX: usize = 512;

/// Networks that a datagram to a group may cross (UPnP Device Architecture 2.0 §1.3.2).
pub const GROUP_HOPS: u8 = 2;

/// A number that identifies a watched socket in reports of the poller.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Token(pub usize);

/// A report of a poller: what has changed at one socket.
#[expect(clippy::struct_excessive_bools, reason = "a poller reports any of them together")]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Readiness {
    /// The socket.
    pub token: Token,
    /// There are octets, datagrams or connections.
    pub readable: bool,
    /// A stream takes octets, or its connection is established.
    pub writable: bool,
    /// The peer of a stream sends nothing more; octets sent before it may be unread.
    pub ended: bool,
    /// The socket has failed: [`Stream::take_error`] says why.
    pub failed: bool,
}

/// Wakes a loop from another thread.
pub trait Wake: Send + Sync {
    /// Wakes the loop if it waits, and ends its next wait otherwise. Several calls before that wait
    /// count as one; each is cheap if the loop does not wait.
    fn wake(&self);
}

/// The address of a datagram socket, and what it is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bind {
    /// Receives what is sent to this address; port 0 asks for any free one.
    Server(SocketAddr),
    /// Receives what is sent to this group, on every interface that supports groups.
    Group(SocketAddr),
    /// Sends to peers of the family of this address, from a port that the network chooses.
    Client(SocketAddr),
}

/// The order of sockets of several loops at one address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sharing {
    /// The first socket: an address that anyone else has is refused.
    First,
    /// The socket of a further loop, beside those of the others.
    Further,
}

/// The kind of a network's sockets, where it has several.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Domain(pub u8);

/// A network that machines are reached by, and reach others by.
pub trait Network: Clone + Debug + Send + Sync + 'static {
    /// The poller of one loop, with the sockets that it watches.
    type Poller: Poller;

    /// The time since the network's own epoch, as all its pollers tell it.
    fn now(&self) -> Duration;

    /// Makes the poller of one loop.
    ///
    /// # Errors
    ///
    /// As the system: there are no descriptors left.
    fn poller(&self) -> io::Result<Self::Poller>;

    /// Makes a listener for streams, for the role of this name.
    ///
    /// # Errors
    ///
    /// `AddrInUse` for an address that someone else has; `Unsupported` if this network has no
    /// streams; otherwise as the system.
    fn listen(
        &self,
        role: &str,
        address: SocketAddr,
        sharing: Sharing,
    ) -> io::Result<<Self::Poller as Poller>::Listener>;

    /// Makes a datagram socket, for the role of this name.
    ///
    /// # Errors
    ///
    /// `AddrInUse` for an address that someone else has; `AddrNotAvailable` if no interface
    /// supports the group; otherwise as the system.
    fn datagrams(
        &self,
        role: &str,
        bind: Bind,
        sharing: Sharing,
    ) -> io::Result<<Self::Poller as Poller>::Datagrams>;

    /// The domain of the sockets of this role. A socket is handed over from one program to the next
    /// only within a domain; a network of one kind of sockets has one.
    fn domain(&self, _role: &str) -> Domain {
        Domain::default()
    }

    /// The first address of a name. This may block, and is called on a thread of its own.
    fn resolve(&self, host: &str, port: u16) -> Option<SocketAddr>;
}

/// Waits for the sockets of one loop.
pub trait Poller: Debug + Send + Sized + 'static {
    /// A connection.
    type Stream: Stream;
    /// A socket that accepts connections.
    type Listener: Listener<Stream = Self::Stream>;
    /// A socket for datagrams.
    type Datagrams: Datagrams;

    /// The time since the network's epoch; it never goes back.
    fn now(&self) -> Duration;

    /// Wakes this loop from any thread.
    fn waker(&self) -> Arc<dyn Wake>;

    /// Watches a listener under `token`. One that is watched already gets this token.
    ///
    /// # Errors
    ///
    /// As the system: there is no memory left.
    fn watch_listener(&mut self, listener: &mut Self::Listener, token: Token) -> io::Result<()>;

    /// Watches a datagram socket under `token`. One that is watched already gets this token.
    ///
    /// # Errors
    ///
    /// As the system: there is no memory left.
    fn watch_datagrams(&mut self, socket: &Self::Datagrams, token: Token) -> io::Result<()>;

    /// Watches a stream under `token` until it is dropped.
    ///
    /// # Errors
    ///
    /// As the system: there is no memory left.
    fn watch_stream(&mut self, stream: &mut Self::Stream, token: Token) -> io::Result<()>;

    /// Stops watching a datagram socket.
    fn forget_datagrams(&mut self, socket: &Self::Datagrams);

    /// Connects a stream, and watches it under `token`. It is established when it is reported as
    /// writable and [`Stream::is_connected`] agrees; [`Stream::take_error`] tells a failure.
    ///
    /// # Errors
    ///
    /// Why no attempt is made: no route, no port, no descriptor.
    fn connect(&mut self, to: SocketAddr, token: Token) -> io::Result<Self::Stream>;

    /// Waits until a socket is ready, the loop is woken, or `pause` is over (`None`: without end).
    /// It replaces the content of `ready` by a bounded number of reports, about [`READY_MAX`], and
    /// returns whether [`Wake::wake`] was called. It may return earlier than that with nothing.
    ///
    /// # Errors
    ///
    /// `Interrupted` by a signal; then `ready` is empty.
    fn wait(&mut self, ready: &mut Vec<Readiness>, pause: Option<Duration>) -> io::Result<bool>;
}

/// A socket that accepts connections.
pub trait Listener: Debug + Send + 'static {
    /// A connection.
    type Stream: Stream;

    /// The next connection, which is not yet watched, with its peer.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if none waits; `ConnectionAborted` and `Interrupted` for one that has gone; any
    /// other if the system has no room for it now.
    fn accept(&mut self) -> io::Result<(Self::Stream, SocketAddr)>;

    /// The address that it listens on, with its port.
    ///
    /// # Errors
    ///
    /// As the system.
    fn local_address(&self) -> io::Result<SocketAddr>;
}

/// A connection; dropping it closes it in both directions.
pub trait Stream: Debug + Send + 'static {
    /// Reads octets; 0 means that the peer sends nothing more.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there are none.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes octets, and returns how many were taken. If `more` follow at once, the network may
    /// hold them back until [`Self::flush`] or the next write.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room.
    fn write(&mut self, octets: &[u8], more: bool) -> io::Result<usize>;

    /// Sends what [`Self::write`] held back.
    fn flush(&mut self);

    /// Ends one direction or both.
    ///
    /// # Errors
    ///
    /// As the system, for a connection that is broken.
    fn shutdown(&mut self, how: Shutdown) -> io::Result<()>;

    /// Closes it so that the peer learns of an error, not of an end.
    fn abort(self);

    /// Whether the connection is established.
    fn is_connected(&self) -> bool;

    /// Why it has failed, or could not be established; told once.
    ///
    /// # Errors
    ///
    /// The reason; none if it has not failed.
    fn take_error(&mut self) -> io::Result<()>;

    /// The local end's address.
    ///
    /// # Errors
    ///
    /// As the system.
    fn local_address(&self) -> io::Result<SocketAddr>;
}

/// A socket for datagrams.
pub trait Datagrams: Debug + Send + Sync + 'static {
    /// Receives a datagram, truncated to `buffer`; returns its octets and its sender.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if none waits; any other concerns an earlier datagram.
    fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)>;

    /// Sends a datagram, whole or not at all.
    ///
    /// # Errors
    ///
    /// Why it did not leave.
    fn send(&self, octets: &[u8], to: SocketAddr) -> io::Result<()>;

    /// The address that it is bound to, with its port.
    ///
    /// # Errors
    ///
    /// As the system.
    fn local_address(&self) -> io::Result<SocketAddr>;
}
