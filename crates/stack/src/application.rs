//! Socket applications: code above UDP that runs on the worker, with sockets of its own.
//!
//! An application on its own thread pays for waking that thread, and for waking the worker when it
//! answers. An application that only reads datagrams and forwards them needs neither. The worker
//! calls it once for each batch that brought datagrams to its sockets, with no channel, copy or
//! lock between. Waiting datagrams are counted below it ([`ApplicationSockets::waiting`]), so it
//! reads exactly those and never waits for one that may not come.

use crate::{
    Out, Route, SOCKET_QUEUE_MAX,
    ipv4::TIME_TO_LIVE,
    udp::{HOPS_SPENT, datagram, forward, hops_left, set_hops, source_for},
};
use gatewright_packet::Packet;
use gatewright_wire::{ipv4::Ipv4, ipv6::Ipv6, udp::Udp};
use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

/// An application whose sockets live on the worker.
///
/// It shares the worker with every packet of the gateway: it must not wait, and its work delays all
/// of them.
pub trait SocketApplication: Send {
    /// Reads what has arrived, and sends. Called once for each batch that brought datagrams to its
    /// sockets, and when [`Self::poll_timeout`] is reached.
    fn handle(&mut self, sockets: &mut ApplicationSockets<'_, '_>);

    /// Its parameters, if a data plane in another process can build it from them.
    fn parameters(&self) -> Option<Vec<u8>> {
        None
    }

    /// Learns that a datagram from one of its sockets to a peer did not arrive, by an ICMP error
    /// *destination unreachable*. Errors can be forged: it sends nothing because of one.
    fn handle_unreachable(&mut self, _socket: SocketIndex, _peer: SocketAddr, _now: Duration) {}

    /// When it is to be called if no datagram comes before.
    fn poll_timeout(&self) -> Option<Duration> {
        None
    }
}

/// The number of a socket of an application, counted from 0 in the order of the request.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SocketIndex(pub u16);

impl SocketIndex {
    fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A received datagram, still in the chunk of its frame.
#[derive(Debug)]
pub struct Datagram {
    pub(crate) packet: Packet,
    pub(crate) from: SocketAddr,
    pub(crate) to: IpAddr,
    /// The port to which it was sent.
    pub(crate) port: u16,
}

impl Datagram {
    /// Its payload.
    pub fn octets(&self) -> &[u8] {
        self.packet.octets()
    }

    /// Its source.
    pub const fn from(&self) -> SocketAddr {
        self.from
    }

    /// The address of ours to which it was sent. Answers use it as their source
    /// ([`ApplicationSockets::forward_from`]; RFC 1122 §4.1.3.5).
    pub const fn to(&self) -> IpAddr {
        self.to
    }

    /// The origin for datagrams that are sent because of this one.
    pub fn origin(&self) -> Origin {
        let hops = hops_left(&self.packet).unwrap_or_default();
        Origin { received_ns: self.packet.received_ns(), hops }
    }
}

/// The origin of a sent datagram: the arrival time and remaining hops of the datagrams that led to
/// it. Its time in this gateway counts from that arrival. The hops end a loop of relays (RFC 8656
/// §15). By default nothing led to it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Origin {
    received_ns: u64,
    hops: u8,
}

impl Default for Origin {
    fn default() -> Self {
        Self { received_ns: 0, hops: TIME_TO_LIVE }
    }
}

impl Origin {
    /// The same for a message of another kind: it begins with all hops, as any of this host's does.
    #[must_use]
    pub const fn of_own_message(self) -> Self {
        Self { hops: TIME_TO_LIVE, ..self }
    }

    /// The origin of a datagram merged with a later one: the time of the first, the fewest
    /// remaining hops of both.
    #[must_use]
    pub fn joined_by(self, later: Self) -> Self {
        Self { received_ns: self.received_ns, hops: self.hops.min(later.hops) }
    }
}

/// Why a datagram was not sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The application has no such socket, or one of the other family.
    #[error("socket {0} is not one of the application's for this family")]
    NoSocket(u16),
    /// The host has no address to send from.
    #[error("there is no source address")]
    NoSource,
    /// More octets than a datagram holds, or no free chunk.
    #[error("no packet is free for {0} octets")]
    NoPacket(usize),
    /// A datagram to be forwarded has no hops left: it goes in a loop.
    #[error("the hop limit of the datagram is exceeded")]
    HopsSpent,
}

/// One socket of an application.
#[derive(Debug)]
pub(crate) struct OwnSocket {
    pub(crate) local: SocketAddr,
    queue: VecDeque<Datagram>,
}

/// An application on the worker.
pub(crate) struct WorkerApplication {
    pub(crate) id: u32,
    pub(crate) application: Box<dyn SocketApplication>,
    pub(crate) sockets: Vec<OwnSocket>,
    /// Sockets with waiting datagrams, each once.
    ready: VecDeque<SocketIndex>,
    /// Sockets that were returned to the application during this call.
    told: Vec<SocketIndex>,
    /// Datagrams for the sockets at the same addresses.
    pub(crate) passed: Vec<Datagram>,
}

impl std::fmt::Debug for WorkerApplication {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Running({}, {} sockets)", self.id, self.sockets.len())
    }
}

impl WorkerApplication {
    pub(crate) fn new(
        id: u32,
        application: Box<dyn SocketApplication>,
        locals: &[SocketAddr],
    ) -> Self {
        let own = |&local: &SocketAddr| OwnSocket { local, queue: VecDeque::new() };
        let sockets = locals.iter().map(own).collect();
        Self {
            id,
            application,
            sockets,
            ready: VecDeque::new(),
            told: Vec::new(),
            passed: Vec::new(),
        }
    }

    /// Queues a datagram for the application; returns it if the application does not read.
    pub(crate) fn deliver(
        &mut self,
        socket: SocketIndex,
        datagram: Datagram,
    ) -> Result<(), Datagram> {
        let Some(OwnSocket { queue, .. }) = self.sockets.get_mut(socket.index()) else {
            return Err(datagram);
        };
        if queue.len() >= SOCKET_QUEUE_MAX {
            return Err(datagram);
        }
        if queue.is_empty() {
            self.ready.push_back(socket);
        }
        queue.push_back(datagram);
        Ok(())
    }

    /// Whether there is anything to read.
    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Lets the application read and send.
    pub(crate) fn call(&mut self, out: &mut Out<'_>) {
        let Self { application, sockets, ready, told, passed, .. } = self;
        let mut view = ApplicationSockets { sockets, ready, told, passed, out, source: None };
        application.handle(&mut view);
        // What it left is told of again with the next batch.
        for socket in self.told.drain(..) {
            let left = self.sockets.get(socket.index()).is_some_and(|own| !own.queue.is_empty());
            if left && !self.ready.contains(&socket) {
                self.ready.push_back(socket);
            }
        }
    }
}

/// The sockets of an application, during one call.
pub struct ApplicationSockets<'call, 'graph> {
    sockets: &'call mut Vec<OwnSocket>,
    ready: &'call mut VecDeque<SocketIndex>,
    told: &'call mut Vec<SocketIndex>,
    passed: &'call mut Vec<Datagram>,
    out: &'call mut Out<'graph>,
    /// The last destination with its source address: most datagrams of a batch have the same
    /// destination.
    source: Option<(IpAddr, IpAddr)>,
}

impl std::fmt::Debug for ApplicationSockets<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ApplicationSockets({}, {} ready)", self.sockets.len(), self.ready.len())
    }
}

impl ApplicationSockets<'_, '_> {
    /// The time, since the gateway's epoch.
    pub fn now(&self) -> Duration {
        self.out.now()
    }

    /// The address that a socket is bound to.
    pub fn local(&self, socket: SocketIndex) -> Option<SocketAddr> {
        self.sockets.get(socket.index()).map(|own| own.local)
    }

    /// The next socket with waiting datagrams; each is returned once a call.
    pub fn next_ready(&mut self) -> Option<SocketIndex> {
        let socket = self.ready.pop_front()?;
        self.told.push(socket);
        Some(socket)
    }

    /// The number of datagrams that wait at a socket: as many reads return one each. A cross-layer
    /// gateway reads this counter before it merges.
    pub fn waiting(&self, socket: SocketIndex) -> usize {
        self.sockets.get(socket.index()).map_or(0, |own| own.queue.len())
    }

    /// The next datagram of a socket, if one waits.
    pub fn receive(&mut self, socket: SocketIndex) -> Option<Datagram> {
        self.sockets.get_mut(socket.index())?.queue.pop_front()
    }

    /// Passes a datagram of a shared address on to the socket there ([`Sockets::run_before`]). It is
    /// dropped and counted if nobody has opened that.
    ///
    /// [`Sockets::run_before`]: crate::Sockets::run_before
    pub fn pass_on(&mut self, datagram: Datagram) {
        self.passed.push(datagram);
    }

    /// Sends `octets` to `to` from a socket.
    ///
    /// `origin` is that of the datagrams that led to it ([`Datagram::origin`]), or the default if
    /// none did.
    ///
    /// # Errors
    ///
    /// [`SendError`] gives the reason; nothing is sent then.
    pub fn send(
        &mut self,
        socket: SocketIndex,
        octets: &[u8],
        to: SocketAddr,
        origin: Origin,
    ) -> Result<(), SendError> {
        let from = self.from(socket, to)?;
        self.put(from, octets, to, origin)
    }

    /// As [`Self::send`], from our address `source`, as an answer requires.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub fn send_from(
        &mut self,
        socket: SocketIndex,
        source: IpAddr,
        octets: &[u8],
        to: SocketAddr,
        origin: Origin,
    ) -> Result<(), SendError> {
        let port = self.bound(socket, to)?.port();
        self.put(SocketAddr::new(source, port), octets, to, origin)
    }

    fn put(
        &mut self,
        from: SocketAddr,
        octets: &[u8],
        to: SocketAddr,
        origin: Origin,
    ) -> Result<(), SendError> {
        if origin.hops == 0 {
            self.out.count(HOPS_SPENT);
            return Err(SendError::HopsSpent);
        }
        let made = datagram(from, to, None, octets, self.out);
        let mut packet = made.ok_or(SendError::NoPacket(octets.len()))?;
        set_hops(&mut packet, origin.hops).ok_or(SendError::NoPacket(octets.len()))?;
        packet.set_received_ns(origin.received_ns);
        crate::udp::send_down(packet, to, self.out);
        Ok(())
    }

    /// Forwards a received datagram to `to` from a socket, in its own chunk.
    ///
    /// # Errors
    ///
    /// [`SendError`] gives the reason; the datagram is dropped then.
    pub fn forward(
        &mut self,
        socket: SocketIndex,
        datagram: Datagram,
        to: SocketAddr,
    ) -> Result<(), SendError> {
        let from = self.from(socket, to)?;
        forward(datagram.packet, from, to, self.out)
    }

    /// As [`Self::forward`], from our address `source`, as an answer requires.
    ///
    /// # Errors
    ///
    /// As [`Self::forward`].
    pub fn forward_from(
        &mut self,
        socket: SocketIndex,
        source: IpAddr,
        datagram: Datagram,
        to: SocketAddr,
    ) -> Result<(), SendError> {
        let port = self.bound(socket, to)?.port();
        forward(datagram.packet, SocketAddr::new(source, port), to, self.out)
    }

    /// Maximum octets of a datagram to `to` without fragments. They are limited by the link of its
    /// route and the known path MTU, less the headers. `None` without a route.
    pub fn payload_max(&mut self, to: IpAddr) -> Option<usize> {
        let host = self.out.host();
        let (route, headers) = match to {
            IpAddr::V4(ip) => (host.route4(ip), Ipv4::LEN + Udp::LEN),
            IpAddr::V6(ip) => (host.route6(ip), Ipv6::LEN + Udp::LEN),
        };
        let (Route::Connected(link) | Route::Broadcast(link) | Route::Via { link, .. }) = route
        else {
            return None;
        };
        let (mtu, now) = (host.interface(link)?.mtu, self.out.now());
        let mtu = usize::try_from(self.out.paths().mtu(to, mtu, now)).ok()?;
        mtu.checked_sub(headers)
    }

    /// The address to which a socket is bound, if it can send to `to`.
    fn bound(&self, socket: SocketIndex, to: SocketAddr) -> Result<SocketAddr, SendError> {
        let local = self.local(socket).filter(|local| local.is_ipv4() == to.is_ipv4());
        local.ok_or(SendError::NoSocket(socket.0))
    }

    /// The source address and port of a datagram to `to`.
    fn from(&mut self, socket: SocketIndex, to: SocketAddr) -> Result<SocketAddr, SendError> {
        let local = self.bound(socket, to)?;
        if !local.ip().is_unspecified() {
            return Ok(local);
        }
        let source = match self.source {
            Some((known, source)) if known == to.ip() => source,
            _ => {
                let found = source_for(to.ip(), None, self.out).ok_or(SendError::NoSource)?;
                self.source = Some((to.ip(), found));
                found
            }
        };
        Ok(SocketAddr::new(source, local.port()))
    }
}
