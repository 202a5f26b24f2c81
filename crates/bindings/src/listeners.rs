//! Listeners that are opened and closed while the others stay.
//!
//! New listeners are opened before old ones are closed, so that an address that cannot be bound
//! changes nothing. A new listener may need the address of an old one (`0.0.0.0:80` after
//! `127.0.0.1:80`); then the old one is closed first, and opened again if the new one fails.

use crate::datagram_socket::{DatagramSocket, StackSocket};
use crate::points_of_access::told;
use crate::tasks::spawn;
use core::fmt;
use core::sync::atomic::{AtomicU8, Ordering};
use gatewright_stack::Sockets;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::{TcpListener, TcpSocket, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Backlog of a listener: thousands of devices may connect at once, as after a power failure. A
/// refused one retries after one, three, seven, fifteen seconds (RFC 6298), together with all the
/// others. The system's own limit (`net.core.somaxconn`) also applies.
const BACKLOG: u32 = 16_384;

/// Protocol of a listener.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ListenerKind {
    /// oneM2M over HTTP.
    Http,
    /// oneM2M over HTTP with TLS.
    Https,
    /// oneM2M over CoAP.
    Coap,
    /// oneM2M over WebSocket.
    Ws,
    /// oneM2M over WebSocket with TLS.
    Wss,
    /// Devices over TCP.
    Devices,
    /// Devices that send datagrams.
    DevicesUdp,
    /// Devices that send datagrams to the gateway's own stack.
    DevicesStack,
    /// Devices over TLS with client certificates.
    DevicesTls,
}

impl ListenerKind {
    /// Configuration key of the address.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Http => "[cse] http",
            Self::Https => "[cse.tls] https",
            Self::Coap => "[cse] coap",
            Self::Ws => "[cse] ws",
            Self::Wss => "[cse.tls] wss",
            Self::Devices => "[devices] listen",
            Self::DevicesUdp => "[devices] udp",
            Self::DevicesStack => "[devices] stack",
            Self::DevicesTls => "[devices.tls] listen",
        }
    }

    /// Prefix of the address when shown.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Http => "http://",
            Self::Https => "https://",
            Self::Coap => "coap://",
            Self::Ws => "ws://",
            Self::Wss => "wss://",
            Self::Devices => "",
            Self::DevicesUdp => "udp ",
            Self::DevicesStack => "own stack, udp ",
            Self::DevicesTls => "tls ",
        }
    }

    const fn takes_datagrams(self) -> bool {
        matches!(self, Self::Coap | Self::DevicesUdp)
    }

    const fn is_of_own_stack(self) -> bool {
        matches!(self, Self::DevicesStack)
    }
}

/// Protocol and address of a listener.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ListenerAddress {
    /// Protocol.
    pub kind: ListenerKind,
    /// Address.
    pub address: SocketAddr,
}

/// Shown as `https://127.0.0.1:8443`.
impl fmt::Display for ListenerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.kind.prefix(), self.address)
    }
}

impl ListenerAddress {
    /// Whether the system can bind only one of the two.
    fn meets(&self, other: &Self) -> bool {
        let any = |place: &Self| place.address.ip().is_unspecified();
        self.kind.takes_datagrams() == other.kind.takes_datagrams()
            && self.kind.is_of_own_stack() == other.kind.is_of_own_stack()
            && self.address.port() == other.address.port()
            && self.address.port() != 0
            && (any(self) || any(other) || self.address.ip() == other.address.ip())
    }
}

/// An address that cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot listen on {}: {source}", place.kind.key(), place.address)]
pub struct CannotListen {
    /// The listener.
    pub place: ListenerAddress,
    /// The cause.
    pub source: io::Error,
}

/// A bound listener that is not served yet.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) place: ListenerAddress,
    /// Its address, with the port that the system chose.
    pub(crate) at: SocketAddr,
    pub(crate) socket: BoundSocket,
}

#[derive(Debug)]
pub(crate) enum BoundSocket {
    Stream(TcpListener),
    Datagrams(DatagramSocket),
}

impl Bound {
    /// Binds a listener on the current runtime.
    pub(crate) fn take(place: ListenerAddress) -> Result<Self, CannotListen> {
        let refuse = |source| CannotListen { place, source };
        if place.kind.is_of_own_stack() {
            // Its address changes with a restart only, and at the start the stack is at hand.
            return Err(refuse(io::ErrorKind::Unsupported.into()));
        }
        let bind = if place.kind.takes_datagrams() { datagrams } else { stream };
        let (socket, at) = bind(place.address).map_err(refuse)?;
        Ok(Self { place, at, socket })
    }

    /// Binds a port of the gateway's own stack for devices.
    pub(crate) fn on_stack(sockets: &Sockets, address: SocketAddr) -> Result<Self, CannotListen> {
        let place = ListenerAddress { kind: ListenerKind::DevicesStack, address };
        let socket = StackSocket::bind(sockets, address);
        let socket = socket.map_err(|source| CannotListen { place, source })?;
        let at = socket.local_address();
        Ok(Self {
            place,
            at,
            socket: BoundSocket::Datagrams(DatagramSocket::Stack(Box::new(socket))),
        })
    }

    /// Its URL as others can use it ([`told`]).
    pub(crate) fn told(&self, registrar: Option<&str>) -> Option<String> {
        told(self.bound_place(), registrar)
    }

    /// Its address with the bound port.
    const fn bound_place(&self) -> ListenerAddress {
        ListenerAddress { address: self.at, ..self.place }
    }
}

fn stream(at: SocketAddr) -> io::Result<(BoundSocket, SocketAddr)> {
    let socket = if at.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A gateway that starts again finds its address free.
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    let listener = socket.listen(BACKLOG)?;
    let at = listener.local_addr()?;
    Ok((BoundSocket::Stream(listener), at))
}

fn datagrams(at: SocketAddr) -> io::Result<(BoundSocket, SocketAddr)> {
    let socket = std::net::UdpSocket::bind(at)?;
    socket.set_nonblocking(true)?;
    let at = socket.local_addr()?;
    let socket = DatagramSocket::Kernel(UdpSocket::from_std(socket)?);
    Ok((BoundSocket::Datagrams(socket), at))
}

/// Whether a closing listener is kept open for its remaining devices.
#[derive(Debug, Default)]
pub(crate) struct Latch(AtomicU8);

const OPEN: u8 = 0;
const LEAVING: u8 = 1;
const ENDED: u8 = 2;

impl Latch {
    /// Called when the last device has disconnected: whether the listener closes now.
    pub(crate) fn close(&self) -> bool {
        self.0.compare_exchange(LEAVING, ENDED, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    fn leave(&self) {
        self.0.store(LEAVING, Ordering::SeqCst);
    }

    /// Whether it is reopened; otherwise it closes.
    fn come_back(&self) -> bool {
        self.0.compare_exchange(LEAVING, OPEN, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

/// A served listener.
#[derive(Debug)]
pub(crate) struct ServedListener {
    place: ListenerAddress,
    at: SocketAddr,
    /// Whether it is closed once the exchange is settled.
    is_going: bool,
    latch: Arc<Latch>,
    leaves: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl ServedListener {
    /// Serves a listener with `serve` until it stops accepting.
    pub(crate) fn open<F>(
        (place, at): (ListenerAddress, SocketAddr),
        serve: impl FnOnce(watch::Receiver<bool>, Arc<Latch>) -> F,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let latch = Arc::<Latch>::default();
        let (leaves, left) = watch::channel(false);
        let task = spawn(serve(left, Arc::clone(&latch)));
        Self { place, at, is_going: false, latch, leaves, task }
    }

    fn leave(&self) {
        self.latch.leave();
        self.leaves.send_replace(true);
    }

    fn come_back(&self) -> bool {
        let is_back = !self.task.is_finished() && self.latch.come_back();
        if is_back {
            self.leaves.send_replace(false);
        }
        is_back
    }

    /// Whether devices keep the listener open: datagrams have no connection that could go on
    /// without it.
    const fn is_held(&self) -> bool {
        matches!(self.place.kind, ListenerKind::DevicesUdp)
    }
}

/// All listeners of one part.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    open: Vec<ServedListener>,
    /// Closing listeners that are kept open.
    leaving: Vec<ServedListener>,
}

/// An exchange of listeners, to be [settled](Listeners::settle) or [undone](Listeners::undo).
#[derive(Debug, Default)]
pub(crate) struct ExchangedListeners {
    opened: Vec<ListenerAddress>,
    /// To be closed.
    going: Vec<ListenerAddress>,
    /// Closed already.
    gone: Vec<ListenerAddress>,
}

impl Listeners {
    pub(crate) fn new(open: Vec<ServedListener>) -> Mutex<Self> {
        Mutex::new(Self { open, leaving: Vec::new() })
    }

    /// A poisoned lock is safe here: the listeners stay consistent.
    fn lock(this: &Mutex<Self>) -> MutexGuard<'_, Self> {
        this.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Addresses of the listeners of these kinds, in the order of the kinds.
    pub(crate) fn at(this: &Mutex<Self>, kinds: &[ListenerKind]) -> Vec<SocketAddr> {
        let listeners = Self::lock(this);
        let of = |kind| listeners.staying().filter(move |listener| listener.place.kind == kind);
        kinds.iter().flat_map(|kind| of(*kind)).map(|listener| listener.at).collect()
    }

    /// Addresses of all listeners, as URLs where such exist.
    pub(crate) fn urls(this: &Mutex<Self>) -> Vec<String> {
        let listeners = Self::lock(this);
        let url = |listener: &ServedListener| {
            ListenerAddress { address: listener.at, ..listener.place }.to_string()
        };
        listeners.staying().map(url).collect()
    }

    /// URLs of all as others can use them ([`told`]).
    pub(crate) fn told(this: &Mutex<Self>, registrar: Option<&str>) -> Vec<String> {
        let listeners = Self::lock(this);
        let url = |listener: &ServedListener| {
            told(ListenerAddress { address: listener.at, ..listener.place }, registrar)
        };
        listeners.staying().filter_map(url).collect()
    }

    fn staying(&self) -> impl Iterator<Item = &ServedListener> {
        self.open.iter().filter(|listener| !listener.is_going)
    }

    /// Closing listeners that are kept open.
    pub(crate) fn held(this: &Mutex<Self>) -> Vec<String> {
        let mut listeners = Self::lock(this);
        listeners.leaving.retain(|listener| !listener.task.is_finished());
        listeners
            .leaving
            .iter()
            .filter(|listener| listener.is_held())
            .map(|it| it.place.to_string())
            .collect()
    }

    /// Opens the wanted listeners that are missing; unwanted ones close when the exchange is
    /// settled.
    ///
    /// # Errors
    ///
    /// The address that cannot be bound; nothing has changed then.
    pub(crate) async fn exchange(
        this: &Mutex<Self>,
        wanted: &[ListenerAddress],
        serve: &impl Fn(Bound) -> ServedListener,
    ) -> Result<ExchangedListeners, CannotListen> {
        let mut exchanged = ExchangedListeners::default();
        let come = {
            let mut listeners = Self::lock(this);
            for listener in &mut listeners.open {
                listener.is_going = !wanted.contains(&listener.place);
            }
            let going = listeners.open.iter().filter(|listener| listener.is_going);
            exchanged.going = going.map(|listener| listener.place).collect();
            let known = |place: &ListenerAddress| {
                listeners.open.iter().any(|listener| listener.place == *place)
            };
            wanted.iter().copied().filter(|place| !known(place)).collect::<Vec<_>>()
        };
        let meets =
            |place: &ListenerAddress| exchanged.going.iter().any(|going| going.meets(place));
        let (later, first): (Vec<_>, Vec<_>) = come.into_iter().partition(meets);
        for place in first.into_iter().chain(later) {
            if let Err(refused) = Self::come(this, place, serve, &mut exchanged).await {
                Self::undo(this, exchanged, serve).await;
                return Err(refused);
            }
        }
        // As they are told.
        let order =
            |listener: &ServedListener| wanted.iter().position(|place| *place == listener.place);
        Self::lock(this).open.sort_by_key(|listener| order(listener).unwrap_or(usize::MAX));
        Ok(exchanged)
    }

    /// Opens one listener, after closing an unwanted one at the same address if necessary.
    async fn come(
        this: &Mutex<Self>,
        place: ListenerAddress,
        serve: &impl Fn(Bound) -> ServedListener,
        exchanged: &mut ExchangedListeners,
    ) -> Result<(), CannotListen> {
        if Self::come_back(this, place).await {
            exchanged.opened.push(place);
            return Ok(());
        }
        let (in_its_way, going): (Vec<ListenerAddress>, Vec<ListenerAddress>) =
            exchanged.going.iter().partition(|going| going.meets(&place));
        if in_its_way.iter().any(|it| it.kind == ListenerKind::DevicesUdp) {
            let why = "devices are associated by a socket that is in its way; take another port, \
                       or restart";
            let source = io::Error::new(io::ErrorKind::AddrInUse, why);
            return Err(CannotListen { place, source });
        }
        exchanged.going = going;
        for other in in_its_way {
            exchanged.gone.push(other);
            Self::give_up(this, other).await;
        }
        let bound = Bound::take(place)?;
        Self::lock(this).open.push(serve(bound));
        exchanged.opened.push(place);
        Ok(())
    }

    /// Reopens a closing listener; returns whether there is one.
    async fn come_back(this: &Mutex<Self>, place: ListenerAddress) -> bool {
        let listener = {
            let mut listeners = Self::lock(this);
            let at = listeners.leaving.iter().position(|listener| listener.place == place);
            at.map(|at| listeners.leaving.swap_remove(at))
        };
        let Some(listener) = listener else { return false };
        if listener.come_back() {
            Self::lock(this).open.push(listener);
            return true;
        }
        // It is closing, and its place is free then.
        let _ = listener.task.await;
        false
    }

    /// Stops accepting at an address. On return the address is free, unless the listener is kept
    /// open.
    async fn give_up(this: &Mutex<Self>, place: ListenerAddress) {
        let listener = {
            let mut listeners = Self::lock(this);
            let at = listeners.open.iter().position(|listener| listener.place == place);
            at.map(|at| listeners.open.remove(at))
        };
        let Some(listener) = listener else { return };
        listener.leave();
        if listener.is_held() {
            Self::lock(this).leaving.push(listener);
        } else {
            let _ = listener.task.await;
        }
    }

    /// Closes the unwanted listeners. Connections go on.
    pub(crate) fn settle(this: &Mutex<Self>, exchanged: &ExchangedListeners) {
        let mut listeners = Self::lock(this);
        let Self { open, leaving } = &mut *listeners;
        leaving.retain(|listener| !listener.task.is_finished());
        let going = |listener: &mut ServedListener| exchanged.going.contains(&listener.place);
        let mut gone: Vec<_> = open.extract_if(.., going).collect();
        for listener in &mut gone {
            listener.is_going = false;
        }
        gone.iter().for_each(ServedListener::leave);
        leaving.extend(gone);
    }

    /// Restores the state before the exchange.
    pub(crate) async fn undo(
        this: &Mutex<Self>,
        exchanged: ExchangedListeners,
        serve: &impl Fn(Bound) -> ServedListener,
    ) {
        for place in exchanged.opened {
            Self::give_up(this, place).await;
        }
        for place in exchanged.gone {
            // It was ours a moment ago.
            if let Ok(bound) = Bound::take(place) {
                Self::lock(this).open.push(serve(bound));
            }
        }
        for listener in &mut Self::lock(this).open {
            listener.is_going = false;
        }
    }

    /// Stops accepting everywhere and returns when the listeners' tasks have ended.
    pub(crate) async fn close(this: &Mutex<Self>) {
        let listeners = core::mem::take(&mut *Self::lock(this));
        listeners.open.iter().for_each(ServedListener::leave);
        for listener in listeners.open.into_iter().chain(listeners.leaving) {
            let _ = listener.task.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes connections and drops them.
    fn serve(bound: Bound) -> ServedListener {
        let BoundSocket::Stream(listener) = bound.socket else { panic!("a listener") };
        ServedListener::open((bound.place, bound.at), |mut leaves, _| async move {
            loop {
                tokio::select! {
                    _ = listener.accept() => {}
                    _ = leaves.changed() => return,
                }
            }
        })
    }

    fn place(address: &str, port: u16) -> ListenerAddress {
        ListenerAddress {
            kind: ListenerKind::Http,
            address: SocketAddr::new(address.parse().unwrap(), port),
        }
    }

    async fn listeners(place: ListenerAddress) -> (Mutex<Listeners>, u16) {
        let listeners = Listeners::new(Vec::new());
        let _ = Listeners::exchange(&listeners, &[place], &serve).await.unwrap();
        let port = Listeners::at(&listeners, &[ListenerKind::Http])[0].port();
        (listeners, port)
    }

    async fn answers(address: &str, port: u16) -> bool {
        tokio::net::TcpStream::connect((address, port)).await.is_ok()
    }

    #[tokio::test]
    async fn what_comes_is_there_before_what_goes_is_given_up() {
        let (listeners, old) = listeners(place("127.0.0.1", 0)).await;
        let (_, new) = self::listeners(place("127.0.0.1", 0)).await;
        let wanted = [place("127.89.0.1", new)];
        let exchanged = Listeners::exchange(&listeners, &wanted, &serve).await.unwrap();
        assert!(answers("127.0.0.1", old).await && answers("127.89.0.1", new).await);
        Listeners::settle(&listeners, &exchanged);
        assert_eq!(Listeners::urls(&listeners), [format!("http://127.89.0.1:{new}")]);
        Listeners::close(&listeners).await;
        assert!(!answers("127.0.0.1", old).await && !answers("127.89.0.1", new).await);
    }

    /// One that needs the place of one that goes, and one that somebody else has: all is undone.
    #[tokio::test]
    async fn a_place_that_cannot_be_had_changes_nothing() {
        let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = held.local_addr().unwrap().port();
        let (listeners, port) = listeners(place("127.0.0.1", 0)).await;
        let fixed = place("127.0.0.1", port);
        Listeners::close(&listeners).await;
        let _ = Listeners::exchange(&listeners, &[fixed], &serve).await.unwrap();
        for wanted in [
            vec![place("127.89.0.2", port), place("127.0.0.1", taken)],
            vec![ListenerAddress { kind: ListenerKind::Ws, ..fixed }, place("127.0.0.1", taken)],
        ] {
            let refused = Listeners::exchange(&listeners, &wanted, &serve).await.unwrap_err();
            let said = refused.to_string();
            assert!(said.starts_with("[cse] http: cannot listen on 127.0.0.1:"), "{said}");
            assert_eq!(refused.place.address.port(), taken);
            assert_eq!(Listeners::urls(&listeners), [format!("http://127.0.0.1:{port}")]);
            assert!(answers("127.0.0.1", port).await && !answers("127.89.0.2", port).await);
        }
        drop(held);
        let wanted = [ListenerAddress { kind: ListenerKind::Ws, ..place("0.0.0.0", port) }];
        let exchanged = Listeners::exchange(&listeners, &wanted, &serve).await.unwrap();
        assert!(answers("127.89.0.2", port).await, "in the place of the one that goes");
        Listeners::undo(&listeners, exchanged, &serve).await;
        assert_eq!(Listeners::urls(&listeners), [format!("http://127.0.0.1:{port}")]);
        assert!(answers("127.0.0.1", port).await && !answers("127.89.0.2", port).await);
        Listeners::close(&listeners).await;
    }
}
