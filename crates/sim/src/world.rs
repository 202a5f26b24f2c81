//! Hosts on a simulated network, with datagrams and streams in virtual time.
//!
//! The traits of `gatewright-edge` stand in front of it, in `network.rs`. Here is what happens:
//! everything sent arrives after the latency, or later, or never, as the seed decides. Streams lose
//! nothing: what the medium loses arrives after a retransmission, in order.

use crate::{Impairment, Random};
use gatewright_edge::{Readiness, Token};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Datagrams that wait at one socket.
const DATAGRAMS_MAX: usize = 512;
/// Connections that wait at one listener.
const BACKLOG: usize = 128;
/// Octets of one direction of a stream that were written and not read.
const WINDOW: usize = 64 << 10;
/// Octets of one segment of a stream.
const SEGMENT: usize = 1_460;
/// How long a lost segment takes until it is sent again; it doubles each time (RFC 6298 §2.1, §5.5).
const RETRANSMISSION: Duration = Duration::from_secs(1);
/// How often a segment is lost at the most.
const LOSSES_MAX: u32 = 3;
/// First of the ports that the world chooses (RFC 6335 §6).
const EPHEMERAL_FIRST: u16 = 49_152;

/// Properties of a simulated world; the default is a perfect network without latency.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct WorldConfig {
    /// Seed of every impairment.
    pub seed: u64,
    /// Time from sending to arrival.
    pub latency: Duration,
    /// The impairment between every two hosts. Corruption is loss: checksums find it.
    pub impairment: Impairment,
}

/// Counters of a world since it was created.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct WorldCounters {
    /// Datagrams sent.
    pub datagrams: u64,
    /// Datagrams that an impairment lost.
    pub lost: u64,
    /// Datagrams that an impairment repeated.
    pub duplicated: u64,
    /// Datagrams dropped because no socket had their address.
    pub unreachable: u64,
    /// Datagrams dropped because too many waited at the socket.
    pub queue_full: u64,
    /// Segments of streams, each counted once.
    pub segments: u64,
    /// Segments that were lost at least once.
    pub retransmitted: u64,
    /// Connections refused: no listener, or its backlog is full.
    pub refused: u64,
}

/// The number of a socket in its world.
pub(crate) type SocketId = usize;

/// A socket, with the poller that watches it.
#[derive(Debug)]
pub(crate) struct WorldSocket {
    pub(crate) host: IpAddr,
    pub(crate) local: SocketAddr,
    watch: Option<(usize, Token)>,
    pub(crate) kind: SocketKind,
}

#[derive(Debug)]
pub(crate) enum SocketKind {
    Datagrams { queue: VecDeque<(SocketAddr, Vec<u8>)>, group: Option<IpAddr> },
    Listener { pending: VecDeque<(SocketId, SocketAddr)> },
    Stream(StreamEnd),
}

/// One end of a connection.
#[derive(Debug, Default)]
pub(crate) struct StreamEnd {
    /// The other end.
    peer: Option<SocketId>,
    pub(crate) is_connected: bool,
    /// Octets that have arrived.
    inbox: VecDeque<u8>,
    /// Octets that this end wrote and the other has not read.
    outstanding: usize,
    /// When the last segment that this end sent arrives.
    last_arrival: Duration,
    /// The peer sends nothing more.
    is_ended: bool,
    /// This end sends nothing more.
    is_shut: bool,
    pub(crate) failure: Option<ErrorKind>,
}

/// Something on its way; the earliest is the smallest.
#[derive(Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Flight {
    at: Duration,
    order: u64,
    cargo: Cargo,
}

#[derive(Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Cargo {
    Datagram { sender: SocketId, from: SocketAddr, to: SocketAddr, octets: Vec<u8> },
    Connect { client: SocketId, from: SocketAddr, to: SocketAddr },
    Connected { client: SocketId },
    Refused { client: SocketId },
    Octets { to: SocketId, octets: Vec<u8> },
    End { to: SocketId },
    Reset { to: SocketId },
}

/// Readiness that a poller has to report.
#[derive(Debug, Default)]
pub(crate) struct PollerState {
    pub(crate) ready: BTreeMap<SocketId, Readiness>,
    pub(crate) woken: bool,
}

/// All hosts and what is on its way between them.
#[derive(Debug)]
pub(crate) struct WorldState {
    config: WorldConfig,
    pub(crate) now: Duration,
    random: Random,
    order: u64,
    flights: BinaryHeap<Reverse<Flight>>,
    pub(crate) sockets: BTreeMap<SocketId, WorldSocket>,
    next_socket: SocketId,
    next_port: BTreeMap<IpAddr, u16>,
    pub(crate) pollers: Vec<PollerState>,
    /// Hosts at which something has arrived that their peers have not looked at.
    pub(crate) touched: BTreeSet<IpAddr>,
    pub(crate) names: BTreeMap<String, IpAddr>,
    pub(crate) counters: WorldCounters,
}

impl WorldState {
    pub(crate) fn new(config: WorldConfig) -> Self {
        Self {
            config,
            now: Duration::ZERO,
            random: Random::new(config.seed),
            order: 0,
            flights: BinaryHeap::new(),
            sockets: BTreeMap::new(),
            next_socket: 0,
            next_port: BTreeMap::new(),
            pollers: Vec::new(),
            touched: BTreeSet::new(),
            names: BTreeMap::new(),
            counters: WorldCounters::default(),
        }
    }

    /// Time of the next arrival.
    pub(crate) fn next_arrival(&self) -> Option<Duration> {
        self.flights.peek().map(|Reverse(flight)| flight.at)
    }

    /// Lets time pass, and everything arrive that is due.
    pub(crate) fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now);
        while self.next_arrival().is_some_and(|at| at <= self.now)
            && let Some(Reverse(flight)) = self.flights.pop()
        {
            self.arrive(flight.cargo);
        }
    }

    /// Makes a socket of a host; port 0 asks for any free one.
    pub(crate) fn open(
        &mut self,
        host: IpAddr,
        local: SocketAddr,
        kind: SocketKind,
    ) -> io::Result<SocketId> {
        if !(local.ip() == host || local.ip().is_unspecified()) {
            return Err(ErrorKind::AddrNotAvailable.into());
        }
        let is_stream = |kind: &SocketKind| !matches!(kind, SocketKind::Datagrams { .. });
        let taken = |sockets: &BTreeMap<SocketId, WorldSocket>, port| {
            let same = |it: &WorldSocket| is_stream(&it.kind) == is_stream(&kind);
            sockets.values().any(|it| it.host == host && it.local.port() == port && same(it))
        };
        let port = match local.port() {
            0 => {
                let next = self.next_port.entry(host).or_insert(EPHEMERAL_FIRST);
                let free = (*next..=u16::MAX).find(|port| !taken(&self.sockets, *port));
                let port = free.ok_or(ErrorKind::AddrInUse)?;
                *next = port.checked_add(1).unwrap_or(EPHEMERAL_FIRST);
                port
            }
            port if taken(&self.sockets, port) => return Err(ErrorKind::AddrInUse.into()),
            port => port,
        };
        let local = SocketAddr::new(local.ip(), port);
        Ok(self.insert(WorldSocket { host, local, watch: None, kind }))
    }

    fn insert(&mut self, socket: WorldSocket) -> SocketId {
        let id = self.next_socket;
        self.next_socket += 1;
        self.sockets.insert(id, socket);
        id
    }

    /// Watches a socket, and reports a stream as it is.
    pub(crate) fn watch(&mut self, id: SocketId, poller: usize, token: Token) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        if let Some((before, _)) = socket.watch.replace((poller, token))
            && let Some(state) = self.pollers.get_mut(before)
        {
            state.ready.remove(&id);
        }
        let Some(end) = self.stream(id).filter(|end| end.is_connected) else { return };
        let readable = !end.inbox.is_empty() || end.is_ended;
        let writable = end.outstanding < WINDOW;
        let ended = end.is_ended;
        self.report(id, Readiness { readable, writable, ended, ..Readiness::default() });
    }

    pub(crate) fn forget(&mut self, id: SocketId) {
        let watch = self.sockets.get_mut(&id).and_then(|socket| socket.watch.take());
        if let Some(state) = watch.and_then(|(poller, _)| self.pollers.get_mut(poller)) {
            state.ready.remove(&id);
        }
    }

    /// Adds a report for the poller of a socket, and tells the peers of its host.
    fn report(&mut self, id: SocketId, change: Readiness) {
        let Some(socket) = self.sockets.get(&id) else { return };
        self.touched.insert(socket.host);
        let Some((poller, token)) = socket.watch else { return };
        let Some(state) = self.pollers.get_mut(poller) else { return };
        let ready = state.ready.entry(id).or_default();
        *ready = Readiness {
            token,
            readable: ready.readable || change.readable,
            writable: ready.writable || change.writable,
            ended: ready.ended || change.ended,
            failed: ready.failed || change.failed,
        };
    }

    fn readable(&mut self, id: SocketId) {
        self.report(id, Readiness { readable: true, ..Readiness::default() });
    }

    pub(crate) fn stream(&self, id: SocketId) -> Option<&StreamEnd> {
        match &self.sockets.get(&id)?.kind {
            SocketKind::Stream(end) => Some(end),
            _ => None,
        }
    }

    pub(crate) fn stream_mut(&mut self, id: SocketId) -> Option<&mut StreamEnd> {
        match &mut self.sockets.get_mut(&id)?.kind {
            SocketKind::Stream(end) => Some(end),
            _ => None,
        }
    }

    fn fly(&mut self, at: Duration, cargo: Cargo) {
        self.order += 1;
        self.flights.push(Reverse(Flight { at, order: self.order, cargo }));
    }

    /// When something sent now arrives that nothing loses.
    fn arrival(&mut self) -> Duration {
        let jitter = self.random.time_below(self.config.impairment.jitter);
        self.now + self.config.latency + jitter
    }

    fn is_lost(&mut self) -> bool {
        let Impairment { loss, corrupt, .. } = self.config.impairment;
        self.random.happens(loss) | self.random.happens(corrupt)
    }

    /// Sends a datagram from a socket.
    pub(crate) fn send(&mut self, id: SocketId, octets: &[u8], to: SocketAddr) {
        let Some(socket) = self.sockets.get(&id) else { return };
        let from = SocketAddr::new(socket.host, socket.local.port());
        self.counters.datagrams += 1;
        if self.is_lost() {
            self.counters.lost += 1;
            return;
        }
        let Impairment { duplicate, reorder, reorder_by, .. } = self.config.impairment;
        let copies = if self.random.happens(duplicate) { 2 } else { 1 };
        self.counters.duplicated += copies - 1;
        for _copy in 0..copies {
            let held = if self.random.happens(reorder) { reorder_by } else { Duration::ZERO };
            let at = self.arrival() + held;
            self.fly(at, Cargo::Datagram { sender: id, from, to, octets: octets.to_vec() });
        }
    }

    /// Sends something along a stream, in order, from one of its ends.
    fn send_along(&mut self, from: SocketId, cargo: Cargo) {
        self.counters.segments += 1;
        let mut at = self.arrival();
        let mut losses = 0;
        while losses < LOSSES_MAX && self.is_lost() {
            at += RETRANSMISSION * 2_u32.pow(losses);
            losses += 1;
        }
        self.counters.retransmitted += u64::from(losses > 0);
        if let Some(end) = self.stream_mut(from) {
            at = at.max(end.last_arrival);
            end.last_arrival = at;
        }
        self.fly(at, cargo);
    }

    /// Begins a connection from `host`.
    pub(crate) fn connect(&mut self, host: IpAddr, to: SocketAddr) -> io::Result<SocketId> {
        let local = SocketAddr::new(host, 0);
        let client = self.open(host, local, SocketKind::Stream(StreamEnd::default()))?;
        let from = self.sockets.get(&client).map_or(local, |socket| socket.local);
        self.send_along(client, Cargo::Connect { client, from, to });
        Ok(client)
    }

    fn arrive(&mut self, cargo: Cargo) {
        match cargo {
            Cargo::Datagram { sender, from, to, octets } => self.deliver(sender, from, to, &octets),
            Cargo::Connect { client, from, to } => self.called(client, from, to),
            Cargo::Connected { client } => {
                if let Some(end) = self.stream_mut(client) {
                    end.is_connected = true;
                    self.report(client, Readiness { writable: true, ..Readiness::default() });
                }
            }
            Cargo::Refused { client } => self.fail(client, ErrorKind::ConnectionRefused),
            Cargo::Octets { to, octets } => {
                if let Some(end) = self.stream_mut(to) {
                    end.inbox.extend(octets);
                    self.readable(to);
                }
            }
            Cargo::End { to } => {
                if let Some(end) = self.stream_mut(to) {
                    end.is_ended = true;
                    let (readable, ended) = (true, true);
                    self.report(to, Readiness { readable, ended, ..Readiness::default() });
                }
            }
            Cargo::Reset { to } => self.fail(to, ErrorKind::ConnectionReset),
        }
    }

    fn fail(&mut self, id: SocketId, why: ErrorKind) {
        if let Some(end) = self.stream_mut(id) {
            end.failure = Some(why);
            end.is_connected = false;
            end.inbox.clear();
            let (readable, writable, ended, failed) = (true, true, true, true);
            self.report(id, Readiness { readable, writable, ended, failed, ..Default::default() });
        }
    }

    /// Delivers a datagram to its socket, or to each member of the group.
    fn deliver(&mut self, sender: SocketId, from: SocketAddr, to: SocketAddr, octets: &[u8]) {
        let takes = |id: SocketId, socket: &WorldSocket| match &socket.kind {
            SocketKind::Datagrams { group, .. } if to.ip().is_multicast() => {
                id != sender && *group == Some(to.ip())
            }
            SocketKind::Datagrams { .. } => socket.host == to.ip(),
            _ => false,
        };
        let found = self
            .sockets
            .iter()
            .filter(|(id, socket)| socket.local.port() == to.port() && takes(**id, socket));
        let found: Vec<SocketId> = found.map(|(id, _)| *id).collect();
        self.counters.unreachable += u64::from(found.is_empty());
        for id in found {
            let Some(WorldSocket { kind: SocketKind::Datagrams { queue, .. }, .. }) =
                self.sockets.get_mut(&id)
            else {
                continue;
            };
            if queue.len() >= DATAGRAMS_MAX {
                self.counters.queue_full += 1;
                continue;
            }
            queue.push_back((from, octets.to_vec()));
            self.readable(id);
        }
    }

    /// A connection reaches the host it is for.
    fn called(&mut self, client: SocketId, from: SocketAddr, to: SocketAddr) {
        let listens = |socket: &WorldSocket| {
            matches!(&socket.kind, SocketKind::Listener { pending } if pending.len() < BACKLOG)
                && socket.host == to.ip()
                && socket.local.port() == to.port()
        };
        let listener = self.sockets.iter().find(|(_, it)| listens(it)).map(|(id, _)| *id);
        let at = self.arrival();
        let (Some(listener), Some(_)) = (listener, self.stream(client)) else {
            self.counters.refused += 1;
            self.fly(at, Cargo::Refused { client });
            return;
        };
        let end = StreamEnd { peer: Some(client), is_connected: true, ..StreamEnd::default() };
        let kind = SocketKind::Stream(end);
        let server = self.insert(WorldSocket { host: to.ip(), local: to, watch: None, kind });
        if let Some(end) = self.stream_mut(client) {
            end.peer = Some(server);
        }
        if let Some(WorldSocket { kind: SocketKind::Listener { pending }, .. }) =
            self.sockets.get_mut(&listener)
        {
            pending.push_back((server, from));
        }
        // What the server sends comes after it.
        if let Some(end) = self.stream_mut(server) {
            end.last_arrival = at;
        }
        self.fly(at, Cargo::Connected { client });
        self.readable(listener);
    }

    pub(crate) fn read(&mut self, id: SocketId, buffer: &mut [u8]) -> io::Result<usize> {
        let end = self.stream_mut(id).ok_or(ErrorKind::NotConnected)?;
        if let Some(why) = end.failure.take() {
            return Err(why.into());
        }
        if end.inbox.is_empty() {
            return if end.is_ended { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
        }
        let length = end.inbox.len().min(buffer.len());
        for (to, octet) in buffer.iter_mut().zip(end.inbox.drain(..length)) {
            *to = octet;
        }
        let peer = end.peer;
        if let Some(other) = peer
            && let Some(writer) = self.stream_mut(other)
        {
            let was_full = writer.outstanding >= WINDOW;
            writer.outstanding = writer.outstanding.saturating_sub(length);
            if was_full && length > 0 {
                self.report(other, Readiness { writable: true, ..Readiness::default() });
            }
        }
        Ok(length)
    }

    pub(crate) fn write(&mut self, id: SocketId, octets: &[u8]) -> io::Result<usize> {
        let end = self.stream_mut(id).ok_or(ErrorKind::NotConnected)?;
        if let Some(why) = end.failure.take() {
            return Err(why.into());
        }
        let peer = end.peer.filter(|_| end.is_connected).ok_or(ErrorKind::WouldBlock)?;
        if end.is_shut {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let length = octets.len().min(WINDOW.saturating_sub(end.outstanding));
        if length == 0 && !octets.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        end.outstanding += length;
        if self.stream(peer).is_none() {
            // The peer has closed: it answers with a reset (RFC 9293 §3.10.7.1).
            let at = self.arrival();
            self.fly(at, Cargo::Reset { to: id });
            return Ok(length);
        }
        for segment in octets.get(..length).unwrap_or_default().chunks(SEGMENT) {
            self.send_along(id, Cargo::Octets { to: peer, octets: segment.to_vec() });
        }
        Ok(length)
    }

    /// Ends what this end sends.
    pub(crate) fn shut(&mut self, id: SocketId) {
        let Some(end) = self.stream_mut(id) else { return };
        if !std::mem::replace(&mut end.is_shut, true)
            && let Some(to) = end.peer
        {
            self.send_along(id, Cargo::End { to });
        }
    }

    /// Removes a socket. A stream ends; one that aborts or leaves octets unread is reset.
    pub(crate) fn close(&mut self, id: SocketId, abort: bool) {
        self.forget(id);
        if let Some(end) = self.stream(id) {
            let (peer, reset) = (end.peer, abort || !end.inbox.is_empty());
            match peer {
                Some(to) if reset => self.send_along(id, Cargo::Reset { to }),
                _ => self.shut(id),
            }
        }
        if let Some(WorldSocket { kind: SocketKind::Listener { pending }, .. }) =
            self.sockets.remove(&id)
        {
            for (waiting, _) in pending {
                self.close(waiting, true);
            }
        }
    }
}
