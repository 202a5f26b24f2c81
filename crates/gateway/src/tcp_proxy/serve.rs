//! The thread of a TCP proxy: it accepts, connects, and relays octets.

use super::{
    ConnectionTarget, Counts, TcpProxySetup,
    pipe::{Carried, Pipe, Stay},
};
use crate::balance::AdmittedFlow;
use gatewright_descriptors::is_among_last;
use gatewright_histogram::{Sample, SharedHistogram};
use nix::{
    errno::Errno,
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
        eventfd::EventFd,
        socket::{
            AddressFamily, SockFlag, SockType, SockaddrStorage, connect, setsockopt, socket,
            sockopt::{Linger, TcpNoDelay},
        },
    },
};
use std::{
    io::{self, ErrorKind},
    net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::{AsFd, AsRawFd},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Maximum events taken at once.
const EVENTS_MAX: usize = 256;

/// Maximum connections accepted at once, so that open ones are not delayed.
const ACCEPTS_MAX: usize = 64;

/// Interval at which timeouts are checked while connections are open.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long no connection is accepted when the system has no descriptor left.
const PAUSE: Duration = Duration::from_millis(100);

/// Tokens of events: the listener, the order to stop, or both ends of a connection.
const LISTENER: u64 = 0;
const STOP: u64 = 1;
const FIRST: u64 = 2;

/// Why a connection ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    Ended,
    Unreachable,
    Broken,
    Idle,
}

struct ProxiedConnection {
    client: TcpStream,
    server: TcpStream,
    to_server: Pipe,
    to_client: Pipe,
    /// The server has accepted.
    connected: bool,
    /// The time of its last activity.
    moved_at: Instant,
    /// When the first octets since the server's last ones were passed to it, and how many since.
    awaits: Option<(Instant, u64)>,
    /// Its place at a relay of the balance, until it is closed.
    flow: Option<AdmittedFlow>,
}

pub(super) struct ProxyServer {
    setup: TcpProxySetup,
    listener: TcpListener,
    counts: Arc<Counts>,
    epoll: Epoll,
    connections: Vec<Option<ProxiedConnection>>,
    vacant: Vec<usize>,
    /// Whether clients wait to be accepted, for which no other event will come.
    waiting: AcceptState,
    /// Connections with more to carry, for which no other event will come.
    again: Vec<usize>,
}

/// Whether clients wait to be accepted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum AcceptState {
    None,
    Some,
    /// Accepting pauses until the system has descriptors again.
    Paused,
}

impl ProxyServer {
    pub(super) fn new(
        setup: TcpProxySetup,
        listener: TcpListener,
        counts: Arc<Counts>,
        stop: &EventFd,
    ) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let edge = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
        epoll.add(&listener, EpollEvent::new(edge, LISTENER))?;
        epoll.add(stop.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, STOP))?;
        let (connections, vacant, again) = (Vec::new(), Vec::new(), Vec::new());
        let waiting = AcceptState::Some;
        Ok(Self { setup, listener, counts, epoll, connections, vacant, waiting, again })
    }

    pub(super) fn run(mut self) {
        let mut events = vec![EpollEvent::empty(); EVENTS_MAX];
        let mut looked_at = Instant::now();
        loop {
            // A signal is a reason to look again.
            let count = self.epoll.wait(&mut events, self.patience()).unwrap_or(0);
            let now = Instant::now();
            let mut ready = std::mem::take(&mut self.again);
            for event in events.iter().take(count) {
                match event.data() {
                    STOP => return,
                    LISTENER => self.waiting = AcceptState::Some,
                    token => ready.extend(usize::try_from(token - FIRST).ok()),
                }
            }
            for index in ready.drain(..) {
                self.step(index, now);
            }
            // Behind the others: a place that becomes vacant and taken here has no old event left.
            if self.waiting != AcceptState::None {
                self.accept(now);
            }
            if now.duration_since(looked_at) >= LOOK_EVERY {
                self.look_at_times(now);
                looked_at = now;
            }
        }
    }

    fn patience(&self) -> EpollTimeout {
        let patience = if !self.again.is_empty() || self.waiting == AcceptState::Some {
            Duration::ZERO
        } else if self.waiting == AcceptState::Paused {
            PAUSE
        } else if self.vacant.len() == self.connections.len() {
            return EpollTimeout::NONE;
        } else {
            LOOK_EVERY
        };
        EpollTimeout::try_from(patience).unwrap_or(EpollTimeout::ZERO)
    }

    /// Accepts waiting connections.
    fn accept(&mut self, now: Instant) {
        self.waiting = AcceptState::Some;
        for _ in 0..ACCEPTS_MAX {
            match self.listener.accept() {
                Ok((client, from)) => {
                    count(&self.counts.accepted, 1);
                    let open = self.connections.len() - self.vacant.len();
                    // The last descriptors are for what serves no peer.
                    if open >= self.setup.connections_max || is_among_last(&client) {
                        count(&self.counts.refused, 1);
                        break_off(&client);
                    } else {
                        self.serve(client, from.ip(), now);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.waiting = AcceptState::None;
                    return;
                }
                Err(error) if is_of_client(&error) => {}
                // No descriptor, no memory.
                Err(_) => {
                    self.waiting = AcceptState::Paused;
                    return;
                }
            }
        }
    }

    /// Begins to connect for a client, or breaks it off.
    fn serve(&mut self, client: TcpStream, from: IpAddr, now: Instant) {
        let (address, flow) = match &self.setup.target {
            ConnectionTarget::Server(server) => (Some(*server), None),
            ConnectionTarget::Balance(balancer, kind) => match balancer.admit(from, *kind, now) {
                Ok(flow) => (flow.server(), Some(flow)),
                Err(_refusal) => {
                    count(&self.counts.not_admitted, 1);
                    break_off(&client);
                    return;
                }
            },
        };
        if let Err(client) = self.open(client, (address, flow), now) {
            count(&self.counts.unreachable, 1);
            break_off(&client);
        }
    }

    /// Begins to connect to the server for a client; returns the client if that fails at once.
    fn open(
        &mut self,
        client: TcpStream,
        (address, mut flow): (Option<SocketAddr>, Option<AdmittedFlow>),
        now: Instant,
    ) -> Result<(), TcpStream> {
        let Some(server) = begin_somewhere(address, &mut flow, now) else { return Err(client) };
        let ready = [client.set_nonblocking(true), client.set_nodelay(true)];
        if ready.iter().any(Result::is_err) {
            return Err(client);
        }
        let index = self.vacant.pop().unwrap_or(self.connections.len());
        let watched = [self.watch(&client, index), self.watch(&server, index)];
        if watched.iter().any(Result::is_err) {
            // One that had no place yet has none now.
            if index < self.connections.len() {
                self.vacant.push(index);
            }
            return Err(client);
        }
        let connection = ProxiedConnection {
            client,
            server,
            to_server: Pipe::new(),
            to_client: Pipe::new(),
            connected: false,
            moved_at: now,
            awaits: None,
            flow,
        };
        match self.connections.get_mut(index) {
            Some(place) => *place = Some(connection),
            None => self.connections.push(Some(connection)),
        }
        count(&self.counts.open, 1);
        Ok(())
    }

    /// Reports the readiness of an end of the connection `index`.
    fn watch(&self, end: &TcpStream, index: usize) -> nix::Result<()> {
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLRDHUP;
        let token = u64::try_from(index).unwrap_or(u64::MAX - FIRST) + FIRST;
        self.epoll.add(end, EpollEvent::new(flags | EpollFlags::EPOLLET, token))
    }

    /// Serves a connection as far as possible without waiting.
    fn step(&mut self, index: usize, now: Instant) {
        let Some(Some(connection)) = self.connections.get_mut(index) else { return };
        match connection.step(now, &self.counts) {
            Ok(true) => self.again.push(index),
            Ok(false) => {}
            Err(End::Unreachable) => self.connect_elsewhere(index, now),
            Err(end) => self.close(index, end),
        }
    }

    /// Connects to another relay of the balance for a client whose relay has not accepted, or
    /// closes the connection.
    fn connect_elsewhere(&mut self, index: usize, now: Instant) {
        let server = self.connections.get_mut(index).and_then(Option::as_mut).and_then(|it| {
            let address = it.flow.as_mut()?.try_elsewhere(now);
            begin_somewhere(address, &mut it.flow, now)
        });
        let server = server.filter(|server| self.watch(server, index).is_ok());
        match (server, self.connections.get_mut(index)) {
            (Some(server), Some(Some(connection))) => {
                // The former one leaves the epoll set as it is closed.
                connection.server = server;
                connection.moved_at = now;
            }
            _ => self.close(index, End::Unreachable),
        }
    }

    fn close(&mut self, index: usize, end: End) {
        let Some(connection) = self.connections.get_mut(index).and_then(Option::take) else {
            return;
        };
        self.vacant.push(index);
        let counter = match end {
            End::Ended => &self.counts.ended,
            End::Unreachable => &self.counts.unreachable,
            End::Broken => &self.counts.broken,
            End::Idle => &self.counts.idle,
        };
        count(counter, 1);
        self.counts.open.fetch_sub(1, Ordering::Relaxed);
        if end != End::Ended {
            break_off(&connection.client);
            break_off(&connection.server);
        }
    }

    /// Closes connections that have been silent for too long.
    fn look_at_times(&mut self, now: Instant) {
        for index in 0..self.connections.len() {
            let Some(Some(connection)) = self.connections.get(index) else { continue };
            let silent = now.saturating_duration_since(connection.moved_at);
            if !connection.connected && silent >= self.setup.connect {
                self.connect_elsewhere(index, now);
            } else if connection.connected && silent >= self.setup.idle {
                self.close(index, End::Idle);
            }
        }
    }
}

impl Drop for ProxyServer {
    fn drop(&mut self) {
        let open = self.connections.iter().flatten().count();
        self.counts.open.fetch_sub(u64::try_from(open).unwrap_or_default(), Ordering::Relaxed);
        // Nobody is to take half of a document for the whole.
        for connection in self.connections.iter().flatten() {
            break_off(&connection.client);
            break_off(&connection.server);
        }
    }
}

impl ProxiedConnection {
    /// Carries in both directions; returns whether there is more to do at once.
    fn step(&mut self, now: Instant, counts: &Counts) -> Result<bool, End> {
        if !self.connected {
            match self.server.take_error() {
                Ok(None) if self.server.peer_addr().is_ok() => {
                    if let Some(flow) = &mut self.flow {
                        flow.accepted(now, now.saturating_duration_since(self.moved_at));
                    }
                    (self.connected, self.moved_at) = (true, now);
                }
                Ok(None) => return Ok(false),
                Ok(Some(_)) | Err(_) => return Err(End::Unreachable),
            }
        }
        let (client, server) = (&self.client, &self.server);
        let times = &counts.times;
        let there = pass(&mut self.to_server, (client, server), &counts.octets_to_server, times)?;
        let back = pass(&mut self.to_client, (server, client), &counts.octets_to_clients, times)?;
        if there.moved || back.moved {
            self.moved_at = now;
        }
        self.measure(now, u64::try_from(there.octets).unwrap_or_default(), back.octets > 0);
        if self.to_server.is_finished() && self.to_client.is_finished() {
            return Err(End::Ended);
        }
        Ok(there.more || back.more)
    }

    /// Measures the time from a request to its answer, for a live relay. Octets that are passed on
    /// together with an answer belong to the next request.
    fn measure(&mut self, now: Instant, octets: u64, is_answered: bool) {
        let Some(flow) = &self.flow else { return };
        if is_answered && let Some((since, sum)) = self.awaits.take() {
            flow.answered(now, now.saturating_duration_since(since), sum);
        }
        if octets > 0 {
            let (_, sum) = self.awaits.get_or_insert((now, 0));
            *sum += octets;
        }
    }
}

/// Carries in one direction, and passes its end on.
fn pass(
    pipe: &mut Pipe,
    (mut from, mut to): (&TcpStream, &TcpStream),
    octets: &AtomicU64,
    times: &SharedHistogram,
) -> Result<Carried, End> {
    let passed = |stay: Stay| times.add(Sample::from(stay.time).of_octets(stay.octets));
    let carried = pipe.carry(&mut from, &mut to, Instant::now, passed);
    let carried = carried.map_err(|_| End::Broken)?;
    count(octets, u64::try_from(carried.octets).unwrap_or_default());
    if carried.finish {
        to.shutdown(Shutdown::Write).map_err(|_| End::Broken)?;
    }
    Ok(carried)
}

/// Begins to connect to the server at `address`, or where that fails at once to another relay that
/// the flow may go to; `None` if no connection begins. Tries each relay once at most.
fn begin_somewhere(
    mut address: Option<SocketAddr>,
    flow: &mut Option<AdmittedFlow>,
    now: Instant,
) -> Option<TcpStream> {
    loop {
        match begin(address?) {
            // The last descriptors are for what serves no peer.
            Ok(server) => return Some(server).filter(|server| !is_among_last(server)),
            Err(errno) if is_own(errno) => return None,
            Err(_) => address = flow.as_mut()?.try_elsewhere(now),
        }
    }
}

/// Begins to connect, without waiting.
fn begin(to: SocketAddr) -> nix::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(family, SockType::Stream, flags, None)?;
    setsockopt(&socket, TcpNoDelay, &true)?;
    match connect(socket.as_raw_fd(), &SockaddrStorage::from(to)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(TcpStream::from(socket)),
        Err(errno) => Err(errno),
    }
}

/// Whether a connection failed for want of something on this host, which says nothing of the
/// server: descriptors, memory, local ports (socket(2), connect(2)).
const fn is_own(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::EMFILE
            | Errno::ENFILE
            | Errno::ENOMEM
            | Errno::ENOBUFS
            | Errno::EADDRNOTAVAIL
            | Errno::EAGAIN
    )
}

/// Makes the close of the connection a reset, so that the other end does not take it as a normal
/// end.
fn break_off(stream: &TcpStream) {
    let at_once = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    // One that is closed already knows.
    let _closed = setsockopt(stream, Linger, &at_once);
}

/// Whether accepting failed for a reason of that connection itself (accept(2)).
fn is_of_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionReset
            | ErrorKind::Interrupted
            | ErrorKind::PermissionDenied
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::NetworkDown
    )
}

fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}
