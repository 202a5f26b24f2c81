//! Sockets whose UDP layer is in another process: their commands and datagrams as plain values.
//!
//! The process that has the layer opens a socket of its own for each of these, and passes datagrams
//! in both directions. An application runs there, built from its parameters.

use crate::{
    PacketOctets, Sockets, UdpSocket,
    socket::{Command, Delivery, Departure, SocketEnd, SocketsEnd},
};
use gatewright_edge::Wake;
use gatewright_packet::LinkIndex;
use gatewright_tables::{CounterOwner, CounterTable};
use std::{
    collections::BTreeMap,
    fmt, io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    time::Duration,
};

/// A command to the UDP layer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SocketOrder {
    /// Open a socket.
    Open {
        /// Its number.
        socket: u32,
        /// The address that it is bound to.
        local: SocketAddr,
    },
    /// Close it.
    Close {
        /// Its number.
        socket: u32,
    },
    /// Run an application.
    Start(FoundApplication),
    /// End it.
    Stop {
        /// Its id.
        application: u32,
    },
    /// Receive the datagrams of a group.
    Join {
        /// The socket.
        socket: u32,
        /// The group.
        group: IpAddr,
        /// The link.
        link: LinkIndex,
    },
    /// Receive them no longer.
    Leave {
        /// The socket.
        socket: u32,
        /// The group.
        group: IpAddr,
        /// The link.
        link: LinkIndex,
    },
}

/// Maximum time for the other process to execute an order. A process that has died is started again
/// within it.
pub const ORDERED_WITHIN: Duration = Duration::from_secs(5);

/// Tells who gave an order what became of it. Without an answer, that the stack has ended.
#[derive(Debug)]
pub struct OrderReply(SyncSender<io::Result<()>>);

impl OrderReply {
    pub(crate) fn new() -> (Self, OrderOutcome) {
        let (reply, outcome) = sync_channel(1);
        (Self(reply), OrderOutcome(outcome))
    }

    /// Tells it.
    pub fn answer(self, outcome: io::Result<()>) {
        // Who has waited for too long does not wait any more.
        let _unwanted = self.0.try_send(outcome);
    }
}

/// What becomes of an order.
#[derive(Debug)]
pub(crate) struct OrderOutcome(Receiver<io::Result<()>>);

impl OrderOutcome {
    pub(crate) fn wait(self) -> io::Result<()> {
        self.0.recv_timeout(ORDERED_WITHIN).map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                let within = ORDERED_WITHIN.as_secs();
                let text = format!("the data plane's process has not answered within {within} s");
                io::Error::new(io::ErrorKind::TimedOut, text)
            }
            RecvTimeoutError::Disconnected => io::ErrorKind::NotConnected.into(),
        })?
    }
}

/// An application that runs in another process, or is to run there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FoundApplication {
    /// Its id.
    pub id: u32,
    /// Its parameters.
    pub parameters: Vec<u8>,
    /// The addresses of its sockets.
    pub locals: Vec<SocketAddr>,
    /// Whether the first of these is that of a socket whose datagrams it receives first.
    pub precedes: bool,
}

impl FoundApplication {
    /// The addresses of sockets that are its own.
    pub(crate) fn own_locals(&self) -> &[SocketAddr] {
        self.locals.get(usize::from(self.precedes)..).unwrap_or_default()
    }
}

/// A datagram of a socket, in either direction.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RemoteDatagram {
    /// The number of the socket.
    pub socket: u32,
    /// Its source if it arrives, else its destination.
    pub peer: SocketAddr,
    /// Its octets, or an error about one that was sent.
    pub content: Result<Vec<u8>, io::ErrorKind>,
    /// Hop limit and link of a datagram to a group.
    pub multicast: Option<(u8, Option<LinkIndex>)>,
}

impl RemoteDatagram {
    /// The next datagram of a socket.
    ///
    /// # Errors
    ///
    /// As [`UdpSocket::recv_from`].
    pub fn receive(socket: u32, from: &UdpSocket) -> io::Result<Self> {
        let (peer, content) = from.receive()?;
        let content = content.map(|octets| octets.read(<[u8]>::to_vec));
        Ok(Self { socket, peer, content, multicast: None })
    }

    /// Sends it by a socket.
    ///
    /// # Errors
    ///
    /// As [`UdpSocket::send_to`].
    pub fn send(self, by: &UdpSocket) -> io::Result<usize> {
        let Self { peer: to, content, multicast, .. } = self;
        by.depart(Departure { to, octets: content?, multicast })
    }
}

/// What [`Sockets`] know of a UDP layer in another process.
pub(crate) struct RemoteEnd {
    counters: CounterTable,
    /// Applications that run there still from an earlier time.
    found: Mutex<Vec<FoundApplication>>,
}

impl RemoteEnd {
    /// A poisoned lock is safe here: it guards plain values.
    fn lock(&self) -> MutexGuard<'_, Vec<FoundApplication>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn found(&self) -> Vec<FoundApplication> {
        self.lock().clone()
    }

    /// Takes the applications that are meant.
    pub(crate) fn take_found(
        &self,
        is_meant: impl Fn(&FoundApplication) -> bool,
    ) -> Vec<FoundApplication> {
        self.lock().extract_if(.., |found| is_meant(found)).collect()
    }

    pub(crate) fn counted(&self, application: u32, item: &str) -> u64 {
        self.counters.sums().get(CounterOwner::Application(application), item).unwrap_or(0)
    }
}

/// The end of [`Sockets`] whose UDP layer is in another process.
pub struct RemoteSockets {
    end: SocketsEnd,
    open: BTreeMap<u32, SocketEnd>,
    /// What stands there: told again to a process that comes after it.
    groups: Vec<(u32, IpAddr, LinkIndex)>,
    applications: Vec<FoundApplication>,
}

impl fmt::Debug for RemoteSockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteSockets({} open)", self.open.len())
    }
}

impl RemoteSockets {
    /// Sockets whose UDP layer is in another process, and their end. `wake` is called when there
    /// are orders or datagrams. `counters` has what applications count there, and `found` are those
    /// that run there.
    pub fn new(
        wake: Arc<dyn Wake>,
        counters: CounterTable,
        found: Vec<FoundApplication>,
    ) -> (Sockets, Self) {
        let remote = RemoteEnd { counters, found: Mutex::new(found.clone()) };
        let (sockets, end) = Sockets::new_remote(wake, remote);
        let (open, groups) = (BTreeMap::new(), Vec::new());
        (sockets, Self { end, open, groups, applications: found })
    }

    /// Whether there are orders or datagrams.
    pub fn has_work(&self) -> bool {
        self.end.work.load(Ordering::Acquire)
    }

    /// Calls `order` with new orders and who is told what becomes of each, and then `send` with
    /// datagrams to be sent.
    pub fn take(
        &mut self,
        mut order: impl FnMut(SocketOrder, Option<OrderReply>),
        mut send: impl FnMut(RemoteDatagram),
    ) {
        // Cleared before looking: whoever comes after this sets it again.
        if !self.end.work.swap(false, Ordering::AcqRel) {
            return;
        }
        while let Ok((command, reply)) = self.end.commands.try_recv() {
            if let Some(new) = self.note(command) {
                order(new, reply);
            }
        }
        for (&socket, end) in &self.open {
            while let Some(Departure { to, octets, multicast }) = end.depart() {
                let content = Ok(octets);
                send(RemoteDatagram { socket, peer: to, content, multicast });
            }
        }
    }

    /// The order for a command, which is kept for a process that comes later.
    fn note(&mut self, command: Command) -> Option<SocketOrder> {
        Some(match command {
            Command::Open(end) => {
                let (socket, local) = (end.id, end.local);
                self.open.insert(socket, *end);
                SocketOrder::Open { socket, local }
            }
            Command::Close(socket) => {
                self.open.remove(&socket);
                self.groups.retain(|(of, ..)| *of != socket);
                SocketOrder::Close { socket }
            }
            Command::Start(id, application, (locals, precedes)) => {
                // Those without parameters were refused.
                let parameters = application.parameters()?;
                let new = FoundApplication { id, parameters, locals, precedes };
                self.applications.push(new.clone());
                SocketOrder::Start(new)
            }
            Command::Stop(application) => {
                self.applications.retain(|known| known.id != application);
                SocketOrder::Stop { application }
            }
            Command::Join(socket, group, link) => {
                self.groups.push((socket, group, link));
                SocketOrder::Join { socket, group, link }
            }
            Command::Leave(socket, group, link) => {
                self.groups.retain(|known| *known != (socket, group, link));
                SocketOrder::Leave { socket, group, link }
            }
            // Only the process that has the layer asks for it.
            Command::Executed(_) => return None,
        })
    }

    /// The orders that bring a new process to where the last one was.
    pub fn standing(&self) -> Vec<SocketOrder> {
        let open = self.open.values().map(|end| (end.id, end.local));
        let open = open.map(|(socket, local)| SocketOrder::Open { socket, local });
        let groups = self.groups.iter();
        let groups = groups.map(|&(socket, group, link)| SocketOrder::Join { socket, group, link });
        let applications = self.applications.iter().cloned().map(SocketOrder::Start);
        open.chain(groups).chain(applications).collect()
    }

    /// Gives a datagram to its socket; one that has no room drops it and counts it.
    pub fn deliver(&mut self, datagram: RemoteDatagram) {
        let RemoteDatagram { socket, peer: from, content, .. } = datagram;
        // It may have been closed since.
        let Some(end) = self.open.get_mut(&socket) else { return };
        let content = content.map(PacketOctets::Copied);
        if end.deliver(Delivery { from, content }).is_ok() {
            end.hand_over();
        }
    }
}
