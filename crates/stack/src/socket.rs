//! UDP sockets of this stack, shaped like `std::net::UdpSocket`, for applications on their own
//! threads.
//!
//! A socket and the UDP layer share two bounded queues. Received datagrams travel as parcels, so
//! their octets are not copied until the application reads them. All datagrams of a batch travel
//! together: a waiting reader is woken once a batch, and a busy one is not. Datagrams to send
//! travel in buffers that come back for the next one. The worker only ever tries: a full queue
//! drops the datagram and counts it, and nobody waits for an application.
//!
//! An event loop reads many sockets without waiting at one ([`UdpSocket::set_notifier`]): a read
//! that finds nothing arms the socket, and the next batch notifies the loop, once.

use crate::{
    Counter, PacketOctets, SocketApplication,
    remote::{FoundApplication, OrderOutcome, OrderReply, RemoteEnd},
};
use gatewright_edge::{Notifier, Wake};
use gatewright_packet::LinkIndex;
use std::{
    collections::{HashMap, VecDeque},
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicIsize, AtomicU8, Ordering},
        mpsc::{
            Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, TrySendError, channel,
            sync_channel,
        },
    },
    time::Duration,
};

/// Maximum datagrams queued in each direction of a socket.
pub const SOCKET_QUEUE_MAX: usize = 512;

/// Maximum sockets of a stack.
pub const SOCKETS_MAX: usize = 4096;

/// First of the ports assigned when an application requests any port (RFC 6335 §6).
const EPHEMERAL_FIRST: u16 = 49_152;

/// Maximum octets of a UDP datagram's payload: its 16-bit length less 8 octets of header.
const PAYLOAD_MAX: usize = 65_527;

/// Routers that a datagram to a group may pass, unless the socket says more, counting this host
/// (RFC 1112 §6.1, RFC 3493 §5.2).
const MULTICAST_HOPS: u8 = 1;

/// A received datagram on its way to the application, or an error about one of its own.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// Its source, or the unreachable peer.
    pub(crate) from: SocketAddr,
    pub(crate) content: Result<PacketOctets, io::ErrorKind>,
}

/// A datagram on its way to the UDP layer.
#[derive(Debug)]
pub(crate) struct Departure {
    pub(crate) to: SocketAddr,
    pub(crate) octets: Vec<u8>,
    /// Hop limit and link of a datagram to a group.
    pub(crate) multicast: Option<(u8, Option<LinkIndex>)>,
}

/// The UDP layer's half of a socket.
#[derive(Debug)]
pub(crate) struct SocketEnd {
    pub(crate) id: u32,
    pub(crate) local: SocketAddr,
    /// Datagrams of this batch.
    collected: VecDeque<Delivery>,
    deliveries: SyncSender<VecDeque<Delivery>>,
    /// Buffers emptied by the application, for the next batch.
    spare: Receiver<VecDeque<Delivery>>,
    departures: Receiver<Departure>,
    pub(crate) used: SyncSender<Vec<u8>>,
    shared: Arc<SocketState>,
}

impl SocketEnd {
    /// Collects a datagram for the application; returns it if too many wait.
    pub(crate) fn deliver(&mut self, delivery: Delivery) -> Result<(), Delivery> {
        if self.shared.waiting() + self.collected.len() >= SOCKET_QUEUE_MAX {
            self.shared.overflow.add(1);
            return Err(delivery);
        }
        self.collected.push_back(delivery);
        Ok(())
    }

    /// Passes collected datagrams to the application, and wakes it if it waits.
    pub(crate) fn hand_over(&mut self) {
        let spare = self.spare.try_recv().unwrap_or_default();
        let batch = std::mem::replace(&mut self.collected, spare);
        let datagrams = isize::try_from(batch.len()).unwrap_or(0);
        // Counted after they are there: whoever reads as many as were counted never waits. There
        // are fewer batches than datagrams, so the ring has room; who has closed it reads no more.
        if self.deliveries.try_send(batch).is_ok() {
            self.shared.waiting.fetch_add(datagrams, Ordering::Release);
            self.shared.notify();
        }
    }

    /// The next datagram to send.
    pub(crate) fn depart(&self) -> Option<Departure> {
        self.departures.try_recv().ok()
    }
}

/// The common state of both halves of a socket.
#[derive(Debug, Default)]
pub(crate) struct SocketState {
    /// Datagrams that wait to be read; below zero between a fast read and its count.
    waiting: AtomicIsize,
    /// Datagrams dropped because the application did not read.
    overflow: Counter,
    /// Notifies the loop that reads the socket.
    notifier: OnceLock<Notifier>,
    /// Whether a read has found nothing since the last notification.
    armed: AtomicBool,
}

impl SocketState {
    fn waiting(&self) -> usize {
        usize::try_from(self.waiting.load(Ordering::Acquire)).unwrap_or(0)
    }

    /// Arms the notification; `false` without a notifier.
    ///
    /// The order of the two exchanges decides: either [`Self::notify`] sees that the reader found
    /// nothing, or the reader, which looks once more after this, sees the batch.
    fn arm(&self) -> bool {
        self.notifier.get().is_some() && {
            self.armed.swap(true, Ordering::AcqRel);
            true
        }
    }

    /// Notifies the loop after a batch, if a read has found nothing since the last time.
    fn notify(&self) {
        if let Some(notifier) = self.notifier.get()
            && self.armed.swap(false, Ordering::AcqRel)
        {
            notifier.notify();
        }
    }
}

/// A command to the UDP layer.
pub(crate) enum Command {
    Open(Box<SocketEnd>),
    Close(u32),
    /// Run an application at these addresses; whether the first is that of a socket, too.
    Start(u32, Box<dyn SocketApplication>, (Vec<SocketAddr>, bool)),
    Stop(u32),
    Join(u32, IpAddr, LinkIndex),
    Leave(u32, IpAddr, LinkIndex),
    /// Tell that all before it are executed.
    Executed(Sender<()>),
}

/// A command, and who is told what became of it if the UDP layer is in another process.
pub(crate) type Told = (Command, Option<OrderReply>);

/// The registry of sockets on the application side.
#[derive(Debug, Default)]
struct Registry {
    next_id: u32,
    next_ephemeral: u16,
    bound: HashMap<u32, SocketAddr>,
}

impl Registry {
    /// Reserves an address; returns the socket's number, and the address with its port.
    fn bind(&mut self, local: SocketAddr) -> io::Result<(u32, SocketAddr)> {
        if self.bound.len() >= SOCKETS_MAX {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let local = match local.port() {
            0 => self.any_port(local.ip()).ok_or(io::ErrorKind::AddrInUse)?,
            _ if self.clashes(local) => return Err(io::ErrorKind::AddrInUse.into()),
            _ => local,
        };
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        self.bound.insert(id, local);
        Ok((id, local))
    }

    /// Reserves all addresses, or none.
    fn bind_all(&mut self, locals: &[SocketAddr]) -> io::Result<Vec<(u32, SocketAddr)>> {
        let mut bound = Vec::with_capacity(locals.len());
        for &local in locals {
            match self.bind(local) {
                Ok(one) => bound.push(one),
                Err(error) => {
                    for (id, _) in bound {
                        self.bound.remove(&id);
                    }
                    return Err(error);
                }
            }
        }
        Ok(bound)
    }

    /// Whether a socket on `address` would conflict with an existing one.
    fn clashes(&self, address: SocketAddr) -> bool {
        self.bound.values().any(|other| {
            other.port() == address.port()
                && (other.ip() == address.ip()
                    || (other.is_ipv4() == address.is_ipv4()
                        && (other.ip().is_unspecified() || address.ip().is_unspecified())))
        })
    }

    /// Reserves addresses that are in use in another process.
    fn reserve(&mut self, locals: &[SocketAddr]) {
        for local in locals {
            let id = self.next_id;
            self.next_id = id.wrapping_add(1);
            self.bound.insert(id, *local);
        }
    }

    /// The numbers of the sockets at these addresses.
    fn bound_at(&self, locals: &[SocketAddr]) -> Vec<u32> {
        let at = |local| self.bound.iter().find(|(_, bound)| *bound == local).map(|(id, _)| *id);
        locals.iter().filter_map(at).collect()
    }

    /// Gives addresses back.
    fn release(&mut self, locals: &[SocketAddr]) {
        for id in self.bound_at(locals) {
            self.bound.remove(&id);
        }
    }

    fn any_port(&mut self, ip: IpAddr) -> Option<SocketAddr> {
        for _ in EPHEMERAL_FIRST..=u16::MAX {
            let port = self.next_ephemeral.max(EPHEMERAL_FIRST);
            self.next_ephemeral = port.checked_add(1).unwrap_or(EPHEMERAL_FIRST);
            let address = SocketAddr::new(ip, port);
            if !self.clashes(address) {
                return Some(address);
            }
        }
        None
    }
}

/// Opens sockets of one stack; clones open sockets of the same stack.
#[derive(Clone)]
pub struct Sockets {
    registry: Arc<Mutex<Registry>>,
    commands: Sender<Told>,
    /// Set when there is work for the UDP layer.
    work: Arc<AtomicBool>,
    wake: Arc<dyn Wake>,
    /// What is known of the UDP layer, if it is in another process.
    remote: Option<Arc<RemoteEnd>>,
}

impl fmt::Debug for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sockets({} bound)", self.registry().bound.len())
    }
}

/// The UDP layer's end of [`Sockets`].
#[derive(Debug)]
pub(crate) struct SocketsEnd {
    pub(crate) commands: Receiver<Told>,
    pub(crate) work: Arc<AtomicBool>,
}

impl Sockets {
    /// Creates sockets whose worker is woken by `wake`, and the end for the UDP layer.
    pub(crate) fn new(wake: Arc<dyn Wake>) -> (Self, SocketsEnd) {
        let (commands, end) = channel();
        let work = Arc::new(AtomicBool::new(false));
        let (registry, remote) = (Arc::default(), None);
        let sockets = Self { registry, commands, work: work.clone(), wake, remote };
        (sockets, SocketsEnd { commands: end, work })
    }

    /// As [`Self::new`], with a UDP layer in another process.
    pub(crate) fn new_remote(wake: Arc<dyn Wake>, remote: RemoteEnd) -> (Self, SocketsEnd) {
        let (sockets, end) = Self::new(wake);
        for found in remote.found() {
            let mut registry = sockets.registry();
            registry.next_id = registry.next_id.max(found.id.saturating_add(1));
            registry.reserve(found.own_locals());
        }
        (Self { remote: Some(Arc::new(remote)), ..sockets }, end)
    }

    /// Ends the applications that ran before and that nobody has run again.
    pub fn end_found(&self) {
        let Some(remote) = &self.remote else { return };
        for found in remote.take_found(|_| true) {
            self.end(&found);
        }
    }

    /// Ends applications that ran before, at whose addresses something else is to be.
    fn end_found_at(&self, locals: &[SocketAddr]) {
        let Some(remote) = &self.remote else { return };
        let is_there = |found: &FoundApplication| {
            found.own_locals().iter().any(|local| local.port() != 0 && locals.contains(local))
        };
        for found in remote.take_found(is_there) {
            self.end(&found);
        }
    }

    fn end(&self, found: &FoundApplication) {
        // With the stack gone there is nobody left to tell.
        let _gone = self.tell(Command::Stop(found.id));
        self.registry().release(found.own_locals());
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        lock(&self.registry)
    }

    /// Opens a socket on `local`; port 0 requests any free one, an unspecified address all of the
    /// host's addresses of that family.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if another socket has the port; `OutOfMemory` beyond [`SOCKETS_MAX`];
    /// `NotConnected` if the stack has ended. With the UDP layer in another process, the socket is
    /// there when this returns; `TimedOut` if that process has not answered, any other error is its
    /// answer.
    pub fn bind(&self, local: SocketAddr) -> io::Result<UdpSocket> {
        self.end_found_at(&[local]);
        let (id, local) = self.registry().bind(local)?;
        let (deliveries, batches) = sync_channel(SOCKET_QUEUE_MAX);
        let (emptied, spare) = sync_channel(SPARE_BATCHES_MAX);
        let (departing, departures) = sync_channel(SOCKET_QUEUE_MAX);
        let (used, buffers) = sync_channel(SOCKET_QUEUE_MAX);
        let shared = Arc::new(SocketState::default());
        let collected = VecDeque::new();
        let end = SocketEnd {
            id,
            local,
            collected,
            deliveries,
            spare,
            departures,
            used,
            shared: shared.clone(),
        };
        let socket = UdpSocket {
            id,
            local,
            sockets: self.clone(),
            inbox: Mutex::new(Inbox { current: VecDeque::new(), batches, emptied }),
            buffers: Mutex::new(buffers),
            patience: Mutex::new(Patience::Forever),
            departing,
            peer: Mutex::new(None),
            multicast_hops: AtomicU8::new(MULTICAST_HOPS),
            multicast_link: Mutex::new(None),
            shared,
        };
        self.tell(Command::Open(Box::new(end)))?;
        Ok(socket)
    }

    /// Starts an application on the worker, with a socket on each of `locals`, bound as by
    /// [`Self::bind`]. The application identifies them by their place in that order.
    ///
    /// # Errors
    ///
    /// As [`Self::bind`]; then none of the addresses is reserved. `Unsupported` if the UDP layer is
    /// in another process, which cannot build the application.
    pub fn run(
        &self,
        locals: &[SocketAddr],
        application: Box<dyn SocketApplication>,
    ) -> io::Result<RunningApplication> {
        self.start(None, locals, application)
    }

    /// As [`Self::run`], with the datagrams of the socket at `shared`, too. The application receives
    /// them first, as its socket 0; what it passes on ([`ApplicationSockets::pass_on`]) goes to the
    /// socket. That may be opened before and closed after the application, or the other way round.
    ///
    /// # Errors
    ///
    /// As [`Self::run`].
    ///
    /// [`ApplicationSockets::pass_on`]: crate::ApplicationSockets::pass_on
    pub fn run_before(
        &self,
        shared: SocketAddr,
        locals: &[SocketAddr],
        application: Box<dyn SocketApplication>,
    ) -> io::Result<RunningApplication> {
        self.start(Some(shared), locals, application)
    }

    fn start(
        &self,
        shared: Option<SocketAddr>,
        locals: &[SocketAddr],
        application: Box<dyn SocketApplication>,
    ) -> io::Result<RunningApplication> {
        if let Some(remote) = &self.remote {
            let parameters = application.parameters().ok_or(io::ErrorKind::Unsupported)?;
            if let Some(found) = remote.take_found(|it| it.parameters == parameters).pop() {
                let bound = self.registry().bound_at(found.own_locals());
                let FoundApplication { id, locals, .. } = found;
                return Ok(RunningApplication { id, bound, locals, sockets: self.clone() });
            }
            self.end_found_at(locals);
        }
        let mut registry = self.registry();
        let bound = registry.bind_all(locals)?;
        let id = registry.next_id;
        registry.next_id = id.wrapping_add(1);
        drop(registry);
        let own = bound.iter().map(|&(_, local)| local);
        let locals: Vec<_> = shared.into_iter().chain(own).collect();
        let bound = bound.into_iter().map(|(id, _)| id).collect();
        let running = RunningApplication { id, bound, locals, sockets: self.clone() };
        let addresses = (running.locals.clone(), shared.is_some());
        self.tell(Command::Start(id, application, addresses))?;
        Ok(running)
    }

    /// Gives a command to the UDP layer; awaits what becomes of it there if that is in another
    /// process.
    fn tell(&self, command: Command) -> io::Result<()> {
        let (reply, outcome) = self.remote.as_ref().map(|_| OrderReply::new()).unzip();
        self.commands.send((command, reply)).map_err(|_| io::ErrorKind::NotConnected)?;
        self.poke();
        outcome.map_or(Ok(()), OrderOutcome::wait)
    }

    /// Receives `()` when the UDP layer has executed all commands until now.
    ///
    /// # Errors
    ///
    /// `NotConnected` if the stack has ended.
    pub fn executed(&self) -> io::Result<Receiver<()>> {
        let (told, executed) = channel();
        let command = (Command::Executed(told), None);
        self.commands.send(command).map_err(|_| io::ErrorKind::NotConnected)?;
        self.poke();
        Ok(executed)
    }

    fn poke(&self) {
        // One wake-up covers everything until the layer has looked.
        if !self.work.swap(true, Ordering::AcqRel) {
            self.wake.wake();
        }
    }
}

/// Maximum emptied batches on their way back; the worker creates new ones if there is none.
const SPARE_BATCHES_MAX: usize = 4;

/// An application that runs on the worker; dropping it ends it, and frees its ports.
#[derive(Debug)]
pub struct RunningApplication {
    id: u32,
    bound: Vec<u32>,
    locals: Vec<SocketAddr>,
    sockets: Sockets,
}

impl RunningApplication {
    /// What it has counted under the name `item`, if it runs in another process.
    pub fn count(&self, item: &str) -> Option<u64> {
        let remote = self.sockets.remote.as_ref()?;
        Some(remote.counted(self.id, item))
    }

    /// The addresses of its sockets, in the order of the request.
    pub fn locals(&self) -> &[SocketAddr] {
        &self.locals
    }
}

impl Drop for RunningApplication {
    fn drop(&mut self) {
        // With the stack gone there is nobody left to tell.
        let _gone = self.sockets.tell(Command::Stop(self.id));
        let mut registry = self.sockets.registry();
        for id in &self.bound {
            registry.bound.remove(id);
        }
    }
}

/// How long a read waits.
#[derive(Clone, Copy, Debug)]
enum Patience {
    Forever,
    For(Duration),
    Never,
}

/// A UDP socket of this stack.
#[derive(Debug)]
pub struct UdpSocket {
    id: u32,
    local: SocketAddr,
    sockets: Sockets,
    inbox: Mutex<Inbox>,
    buffers: Mutex<Receiver<Vec<u8>>>,
    patience: Mutex<Patience>,
    departing: SyncSender<Departure>,
    peer: Mutex<Option<SocketAddr>>,
    multicast_hops: AtomicU8,
    multicast_link: Mutex<Option<LinkIndex>>,
    shared: Arc<SocketState>,
}

impl UdpSocket {
    /// Opens a socket on `local`, as [`Sockets::bind`].
    ///
    /// # Errors
    ///
    /// As [`Sockets::bind`].
    pub fn bind(sockets: &Sockets, local: SocketAddr) -> io::Result<Self> {
        sockets.bind(local)
    }

    /// The address it is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Sets the only peer: [`Self::send`] goes there, datagrams of others are not seen.
    pub fn connect(&self, peer: SocketAddr) {
        *lock(&self.peer) = Some(peer);
    }

    /// Sets how long a read waits; forever if `None`.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) {
        *lock(&self.patience) = timeout.map_or(Patience::Forever, Patience::For);
    }

    /// Sets whether a read without a datagram returns `WouldBlock` at once, or waits forever.
    pub fn set_nonblocking(&self, nonblocking: bool) {
        *lock(&self.patience) = if nonblocking { Patience::Never } else { Patience::Forever };
    }

    /// Sets the notifier for waiting datagrams; once, for all of its life. From then on
    /// a read that returns `WouldBlock` arms the socket, and the next batch notifies. So a reader
    /// reads until `WouldBlock` before it waits.
    ///
    /// # Errors
    ///
    /// The notifier, if the socket has one already.
    pub fn set_notifier(&self, notifier: Notifier) -> Result<(), Notifier> {
        self.shared.notifier.set(notifier)
    }

    /// The notifier, if there is one.
    pub fn notifier(&self) -> Option<&Notifier> {
        self.shared.notifier.get()
    }

    /// Sets the hop limit of datagrams to groups, 1 by default: they stay on their link. `link` is
    /// where they leave if the socket is not a member of the group there; otherwise a route
    /// decides.
    pub fn set_multicast(&self, hops: u8, link: Option<LinkIndex>) {
        self.multicast_hops.store(hops, Ordering::Relaxed);
        *lock(&self.multicast_link) = link;
    }

    /// The number of datagrams that wait to be read: as many reads will not block. A cross-layer
    /// gateway reads this counter before it merges.
    pub fn waiting(&self) -> usize {
        self.shared.waiting()
    }

    /// The number of datagrams dropped because they were not read in time.
    pub fn overflow(&self) -> u64 {
        self.shared.overflow.get()
    }

    /// Receives the datagrams of `group` on `link`.
    ///
    /// # Errors
    ///
    /// `NotConnected` if the stack has ended.
    pub fn join_multicast(&self, group: IpAddr, link: LinkIndex) -> io::Result<()> {
        self.sockets.tell(Command::Join(self.id, group, link))
    }

    /// Stops receiving the datagrams of `group` on `link`.
    ///
    /// # Errors
    ///
    /// `NotConnected` if the stack has ended.
    pub fn leave_multicast(&self, group: IpAddr, link: LinkIndex) -> io::Result<()> {
        self.sockets.tell(Command::Leave(self.id, group, link))
    }

    /// Reads a datagram into `buffer`, truncated to its length; returns its octets and its sender.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if none came in time; `ConnectionRefused`, `HostUnreachable` or
    /// `NetworkUnreachable` if an ICMP error says that the peer of [`Self::connect`] was not
    /// reached; `NotConnected` if the stack has ended.
    pub fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        loop {
            let delivery = self.next()?;
            self.shared.waiting.fetch_sub(1, Ordering::AcqRel);
            if lock(&self.peer).is_some_and(|peer| peer != delivery.from) {
                continue;
            }
            let octets = match delivery.content {
                Ok(octets) => octets,
                // Who talks to many is not told, as it could not be told about whom.
                Err(_) if lock(&self.peer).is_none() => continue,
                Err(why) => return Err(why.into()),
            };
            let len = octets.read(|octets| {
                let len = octets.len().min(buffer.len());
                if let (Some(to), Some(octets)) = (buffer.get_mut(..len), octets.get(..len)) {
                    to.copy_from_slice(octets);
                }
                len
            });
            return Ok((len, delivery.from));
        }
    }

    /// Reads a datagram, as [`Self::recv_from`].
    ///
    /// # Errors
    ///
    /// As [`Self::recv_from`].
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.recv_from(buffer).map(|(len, _)| len)
    }

    /// The next datagram, or the next error about one of its own, with the peer.
    ///
    /// # Errors
    ///
    /// As [`Self::recv_from`].
    pub fn receive(&self) -> io::Result<(SocketAddr, Result<PacketOctets, io::ErrorKind>)> {
        let Delivery { from, content } = self.next()?;
        self.shared.waiting.fetch_sub(1, Ordering::AcqRel);
        Ok((from, content))
    }

    fn next(&self) -> io::Result<Delivery> {
        let patience = *lock(&self.patience);
        let mut inbox = lock(&self.inbox);
        match inbox.next(patience) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.shared.arm() => {
                inbox.next(Patience::Never)
            }
            other => other,
        }
    }

    /// Sends `octets` to `to`.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for more octets than a datagram holds; `WouldBlock` if the worker does not
    /// keep up; `NotConnected` if the stack has ended.
    pub fn send_to(&self, octets: &[u8], to: SocketAddr) -> io::Result<usize> {
        if octets.len() > PAYLOAD_MAX || to.is_ipv4() != self.local.is_ipv4() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut buffer = lock(&self.buffers).try_recv().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(octets);
        let hops = || self.multicast_hops.load(Ordering::Relaxed);
        let multicast = to.ip().is_multicast().then(|| (hops(), *lock(&self.multicast_link)));
        self.depart(Departure { to, octets: buffer, multicast })
    }

    pub(crate) fn depart(&self, departure: Departure) -> io::Result<usize> {
        let len = departure.octets.len();
        match self.departing.try_send(departure) {
            Ok(()) => {
                self.sockets.poke();
                Ok(len)
            }
            Err(TrySendError::Full(_)) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TrySendError::Disconnected(_)) => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Sends `octets` to the peer of [`Self::connect`].
    ///
    /// # Errors
    ///
    /// `NotConnected` without a peer, else as [`Self::send_to`].
    pub fn send(&self, octets: &[u8]) -> io::Result<usize> {
        let peer = *lock(&self.peer);
        self.send_to(octets, peer.ok_or(io::ErrorKind::NotConnected)?)
    }
}

/// The received datagrams of the application.
#[derive(Debug)]
struct Inbox {
    /// The rest of the current batch.
    current: VecDeque<Delivery>,
    batches: Receiver<VecDeque<Delivery>>,
    /// Returns an emptied batch for reuse.
    emptied: SyncSender<VecDeque<Delivery>>,
}

impl Inbox {
    fn next(&mut self, patience: Patience) -> io::Result<Delivery> {
        loop {
            if let Some(delivery) = self.current.pop_front() {
                return Ok(delivery);
            }
            let batch = self.batch(patience)?;
            let empty = std::mem::replace(&mut self.current, batch);
            if empty.capacity() > 0 {
                // The worker has enough of them.
                let _enough = self.emptied.try_send(empty);
            }
        }
    }

    fn batch(&self, patience: Patience) -> io::Result<VecDeque<Delivery>> {
        let nothing = io::Error::from(io::ErrorKind::WouldBlock);
        let ended = io::Error::from(io::ErrorKind::NotConnected);
        match patience {
            Patience::Forever => self.batches.recv().map_err(|_| ended),
            Patience::For(timeout) => {
                self.batches.recv_timeout(timeout).map_err(|error| match error {
                    RecvTimeoutError::Timeout => nothing,
                    RecvTimeoutError::Disconnected => ended,
                })
            }
            Patience::Never => self.batches.try_recv().map_err(|error| match error {
                TryRecvError::Empty => nothing,
                TryRecvError::Disconnected => ended,
            }),
        }
    }
}

impl Drop for UdpSocket {
    fn drop(&mut self) {
        self.sockets.registry().bound.remove(&self.id);
        // With the stack gone there is nobody left to tell.
        let _gone = self.sockets.tell(Command::Close(self.id));
    }
}

/// Locks a mutex. A poisoned lock is safe here: it guards plain values.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The unspecified address of the family of `ip`.
pub(crate) const fn unspecified(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}
