//! The traits of `gatewright-edge` over a simulated world.

use crate::world::{PollerState, SocketId, SocketKind, StreamEnd, WorldState};
use crate::{WorldConfig, WorldCounters};
use gatewright_edge::{
    Bind, Datagrams, Listener, Network, Poller, READY_MAX, Readiness, Sharing, Stream, Token, Wake,
};
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time by which the clock advances when nothing is in transit and no timer is set.
const NOTHING_DUE: Duration = Duration::from_hours(1);

/// A peer in a simulated world: a host's program that the world runs.
pub trait SimPeer: Send {
    /// Reads what has arrived at its sockets, and sends; `now` is the world's time. It is run when
    /// something arrives at its host, and at the time that it returns.
    fn run(&mut self, now: Duration) -> Option<Duration>;
}

/// Hosts in virtual time, joined by a network that loses, delays, repeats and reorders by a seed.
///
/// [`Self::network`] is what one host sees. One event loop drives the world: its wait lets time
/// pass up to the next arrival or timer, and runs the peers ([`Self::add_peer`]) meanwhile. So
/// everything happens on one thread, in an order that the seed decides.
#[derive(Clone)]
pub struct World {
    state: Arc<Mutex<WorldState>>,
    peers: Arc<Mutex<Vec<HostPeer>>>,
}

struct HostPeer {
    host: IpAddr,
    due: Option<Duration>,
    peer: Box<dyn SimPeer>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "World({:?})", self.lock().now)
    }
}

impl World {
    /// A world without hosts, at time zero.
    #[must_use]
    pub fn new(config: WorldConfig) -> Self {
        Self { state: Arc::new(Mutex::new(WorldState::new(config))), peers: Arc::default() }
    }

    /// The network as the host of this address sees it.
    #[must_use]
    pub fn network(&self, host: IpAddr) -> SimNetwork {
        SimNetwork { world: self.clone(), host }
    }

    /// Adds a peer at a host; it is first run when time passes.
    pub fn add_peer(&self, host: IpAddr, peer: Box<dyn SimPeer>) {
        lock(&self.peers).push(HostPeer { host, due: Some(Duration::ZERO), peer });
    }

    /// Gives a name an address.
    pub fn add_name(&self, name: &str, address: IpAddr) {
        self.lock().names.insert(name.to_owned(), address);
    }

    /// The time.
    pub fn now(&self) -> Duration {
        self.lock().now
    }

    /// The counters so far.
    pub fn counters(&self) -> WorldCounters {
        self.lock().counters
    }

    /// Lets time pass up to the next arrival or timer, at most until `end`, and runs peers.
    pub fn step(&self, end: Duration) {
        if self.run_peers() {
            return;
        }
        let timers = lock(&self.peers).iter().filter_map(|it| it.due).min();
        let mut state = self.lock();
        let next = state.next_arrival().into_iter().chain(timers).min();
        let next = next.map_or(end, |next| next.min(end));
        state.advance(next);
        drop(state);
        self.run_peers();
    }

    /// Runs the peers that are due, each once; returns whether there were any.
    fn run_peers(&self) -> bool {
        let mut peers = lock(&self.peers);
        let (now, touched) = {
            let mut state = self.lock();
            (state.now, std::mem::take(&mut state.touched))
        };
        let is_due =
            |it: &&mut HostPeer| touched.contains(&it.host) || it.due.is_some_and(|due| due <= now);
        let mut any = false;
        for it in peers.iter_mut().filter(|it| is_due(it)) {
            any = true;
            it.due = it.peer.run(now);
        }
        any
    }

    fn lock(&self) -> MutexGuard<'_, WorldState> {
        lock(&self.state)
    }
}

/// Locks a mutex. A poisoned lock is safe here: a test that failed looks at it at most.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A simulated world's network, as one of its hosts sees it.
#[derive(Clone, Debug)]
pub struct SimNetwork {
    world: World,
    host: IpAddr,
}

impl SimNetwork {
    /// The world that it is of.
    pub const fn world(&self) -> &World {
        &self.world
    }

    fn open(&self, local: SocketAddr, kind: SocketKind) -> io::Result<SocketHandle> {
        let id = self.world.lock().open(self.host, local, kind)?;
        Ok(SocketHandle { world: self.world.clone(), id, aborts: false })
    }

    /// Connects without a poller, for a peer.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if no port is free.
    pub fn connect(&self, to: SocketAddr) -> io::Result<SimStream> {
        let id = self.world.lock().connect(self.host, to)?;
        Ok(SimStream(SocketHandle { world: self.world.clone(), id, aborts: false }))
    }
}

impl Network for SimNetwork {
    type Poller = SimPoller;

    fn now(&self) -> Duration {
        self.world.now()
    }

    fn poller(&self) -> io::Result<SimPoller> {
        let mut state = self.world.lock();
        let index = state.pollers.len();
        state.pollers.push(PollerState::default());
        drop(state);
        Ok(SimPoller { network: self.clone(), index })
    }

    fn listen(&self, _: &str, address: SocketAddr, _: Sharing) -> io::Result<SimListener> {
        let kind = SocketKind::Listener { pending: VecDeque::new() };
        self.open(address, kind).map(SimListener)
    }

    fn datagrams(&self, _: &str, bind: Bind, _: Sharing) -> io::Result<SimDatagrams> {
        let any = |port| match self.host {
            IpAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
            IpAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
        };
        let (local, group) = match bind {
            Bind::Server(address) => (address, None),
            Bind::Group(group) => (any(group.port()), Some(group.ip())),
            Bind::Client(_) => (any(0), None),
        };
        self.open(local, SocketKind::Datagrams { queue: VecDeque::new(), group }).map(SimDatagrams)
    }

    fn resolve(&self, host: &str, port: u16) -> Option<SocketAddr> {
        self.world.lock().names.get(host).map(|ip| SocketAddr::new(*ip, port))
    }
}

/// Drives a world, and waits for the sockets of one of its hosts.
#[derive(Debug)]
pub struct SimPoller {
    network: SimNetwork,
    index: usize,
}

impl SimPoller {
    fn watch(&self, socket: &SocketHandle, token: Token) {
        self.network.world.lock().watch(socket.id, self.index, token);
    }

    /// Moves what is ready to `ready`; returns whether the loop was woken.
    fn collect(&self, ready: &mut Vec<Readiness>) -> bool {
        let mut state = self.network.world.lock();
        let Some(own) = state.pollers.get_mut(self.index) else { return false };
        while ready.len() < READY_MAX
            && let Some((_, one)) = own.ready.pop_first()
        {
            ready.push(one);
        }
        std::mem::take(&mut own.woken)
    }
}

impl Poller for SimPoller {
    type Stream = SimStream;
    type Listener = SimListener;
    type Datagrams = SimDatagrams;

    fn now(&self) -> Duration {
        self.network.now()
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::new(SimWaker { world: self.network.world.clone(), index: self.index })
    }

    fn watch_listener(&mut self, listener: &mut SimListener, token: Token) -> io::Result<()> {
        self.watch(&listener.0, token);
        Ok(())
    }

    fn watch_datagrams(&mut self, socket: &SimDatagrams, token: Token) -> io::Result<()> {
        self.watch(&socket.0, token);
        Ok(())
    }

    fn watch_stream(&mut self, stream: &mut SimStream, token: Token) -> io::Result<()> {
        self.watch(&stream.0, token);
        Ok(())
    }

    fn forget_datagrams(&mut self, socket: &SimDatagrams) {
        self.network.world.lock().forget(socket.0.id);
    }

    fn connect(&mut self, to: SocketAddr, token: Token) -> io::Result<SimStream> {
        let stream = self.network.connect(to)?;
        self.watch(&stream.0, token);
        Ok(stream)
    }

    fn wait(&mut self, ready: &mut Vec<Readiness>, pause: Option<Duration>) -> io::Result<bool> {
        ready.clear();
        let world = &self.network.world;
        let end = world.now() + pause.unwrap_or(NOTHING_DUE);
        loop {
            let woken = self.collect(ready);
            if woken || !ready.is_empty() || world.now() >= end {
                return Ok(woken);
            }
            world.step(end);
        }
    }
}

struct SimWaker {
    world: World,
    index: usize,
}

impl Wake for SimWaker {
    fn wake(&self) {
        if let Some(own) = self.world.lock().pollers.get_mut(self.index) {
            own.woken = true;
        }
    }
}

/// A socket of the world; it is closed when this is dropped.
#[derive(Debug)]
struct SocketHandle {
    world: World,
    id: SocketId,
    /// Whether its peer learns of an error when it closes.
    aborts: bool,
}

impl SocketHandle {
    fn local(&self) -> io::Result<SocketAddr> {
        let state = self.world.lock();
        state.sockets.get(&self.id).map(|it| it.local).ok_or(ErrorKind::NotConnected.into())
    }

    /// One end of a stream.
    fn stream<T>(&self, of: impl FnOnce(&StreamEnd) -> T) -> Option<T> {
        self.world.lock().stream(self.id).map(of)
    }
}

impl Drop for SocketHandle {
    fn drop(&mut self) {
        self.world.lock().close(self.id, self.aborts);
    }
}

/// A listener in a simulated world.
#[derive(Debug)]
pub struct SimListener(SocketHandle);

impl Listener for SimListener {
    type Stream = SimStream;

    fn accept(&mut self) -> io::Result<(SimStream, SocketAddr)> {
        let mut state = self.0.world.lock();
        let kind = state.sockets.get_mut(&self.0.id).map(|it| &mut it.kind);
        let Some(SocketKind::Listener { pending }) = kind else {
            return Err(ErrorKind::InvalidInput.into());
        };
        let (id, peer) = pending.pop_front().ok_or(ErrorKind::WouldBlock)?;
        drop(state);
        let world = self.0.world.clone();
        Ok((SimStream(SocketHandle { world, id, aborts: false }), peer))
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        self.0.local()
    }
}

/// A connection in a simulated world. It keeps 64 KiB that the other end has not read.
#[derive(Debug)]
pub struct SimStream(SocketHandle);

impl Stream for SimStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.world.lock().read(self.0.id, buffer)
    }

    /// Nothing is held back.
    fn write(&mut self, octets: &[u8], _more: bool) -> io::Result<usize> {
        self.0.world.lock().write(self.0.id, octets)
    }

    fn flush(&mut self) {}

    fn shutdown(&mut self, how: Shutdown) -> io::Result<()> {
        if how != Shutdown::Read {
            self.0.world.lock().shut(self.0.id);
        }
        Ok(())
    }

    fn abort(mut self) {
        self.0.aborts = true;
    }

    fn is_connected(&self) -> bool {
        self.0.stream(|end| end.is_connected).unwrap_or_default()
    }

    fn take_error(&mut self) -> io::Result<()> {
        let mut state = self.0.world.lock();
        let failure = state.stream_mut(self.0.id).and_then(|end| end.failure.take());
        failure.map_or(Ok(()), |why| Err(why.into()))
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        self.0.local()
    }
}

/// A datagram socket in a simulated world.
#[derive(Debug)]
pub struct SimDatagrams(SocketHandle);

impl Datagrams for SimDatagrams {
    fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let mut state = self.0.world.lock();
        let kind = state.sockets.get_mut(&self.0.id).map(|it| &mut it.kind);
        let Some(SocketKind::Datagrams { queue, .. }) = kind else {
            return Err(ErrorKind::WouldBlock.into());
        };
        let (from, octets) = queue.pop_front().ok_or(ErrorKind::WouldBlock)?;
        let length = octets.len().min(buffer.len());
        for (to, octet) in buffer.iter_mut().zip(octets) {
            *to = octet;
        }
        Ok((length, from))
    }

    fn send(&self, octets: &[u8], to: SocketAddr) -> io::Result<()> {
        self.0.world.lock().send(self.0.id, octets, to);
        Ok(())
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        self.0.local()
    }
}
