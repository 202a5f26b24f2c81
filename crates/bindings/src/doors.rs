//! Listeners that are opened and closed while the others stay.
//!
//! New listeners are opened before old ones are closed, so that an address that cannot be bound
//! changes nothing. A new listener may need the address of an old one (`0.0.0.0:80` after
//! `127.0.0.1:80`); then the old one is closed first, and opened again if the new one fails.

use core::fmt;
use core::sync::atomic::{AtomicU8, Ordering};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::{TcpListener, TcpSocket, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Backlog of a listener: thousands of devices may connect at once, as after a power failure. A
/// refused one retries after one, three, seven, fifteen seconds (RFC 6298), together with all the
/// others. The system's own limit (`net.core.somaxconn`) also applies.
const COMING_MAX: u32 = 16_384;

/// Protocol of a listener.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Kind {
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
    /// Devices over TLS with client certificates.
    DevicesTls,
}

impl Kind {
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
            Self::DevicesTls => "tls ",
        }
    }

    const fn takes_datagrams(self) -> bool {
        matches!(self, Self::Coap | Self::DevicesUdp)
    }
}

/// Protocol and address of a listener.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Place {
    /// Protocol.
    pub kind: Kind,
    /// Address.
    pub address: SocketAddr,
}

/// Shown as `https://127.0.0.1:8443`.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.kind.prefix(), self.address)
    }
}

impl Place {
    /// Whether the system can bind only one of the two.
    fn meets(&self, other: &Self) -> bool {
        let any = |place: &Self| place.address.ip().is_unspecified();
        self.kind.takes_datagrams() == other.kind.takes_datagrams()
            && self.address.port() == other.address.port()
            && self.address.port() != 0
            && (any(self) || any(other) || self.address.ip() == other.address.ip())
    }
}

/// An address that cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot listen on {}: {source}", place.kind.key(), place.address)]
pub struct Refused {
    /// The listener.
    pub place: Place,
    /// The cause.
    pub source: io::Error,
}

/// A bound listener that is not served yet.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) place: Place,
    /// Its address, with the port that the system chose.
    pub(crate) at: SocketAddr,
    pub(crate) socket: Socket,
}

#[derive(Debug)]
pub(crate) enum Socket {
    Stream(TcpListener),
    Datagrams(UdpSocket),
}

impl Bound {
    /// Binds a listener on the current runtime.
    pub(crate) fn take(place: Place) -> Result<Self, Refused> {
        let refuse = |source| Refused { place, source };
        let bind = if place.kind.takes_datagrams() { datagrams } else { stream };
        let (socket, at) = bind(place.address).map_err(refuse)?;
        Ok(Self { place, at, socket })
    }

    /// Its URL, as shown by [`Place`], with the bound port.
    pub(crate) fn url(&self) -> String {
        Place { address: self.at, ..self.place }.to_string()
    }
}

fn stream(at: SocketAddr) -> io::Result<(Socket, SocketAddr)> {
    let socket = if at.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A gateway that starts again finds its address free.
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    let listener = socket.listen(COMING_MAX)?;
    let at = listener.local_addr()?;
    Ok((Socket::Stream(listener), at))
}

fn datagrams(at: SocketAddr) -> io::Result<(Socket, SocketAddr)> {
    let socket = std::net::UdpSocket::bind(at)?;
    socket.set_nonblocking(true)?;
    let at = socket.local_addr()?;
    Ok((Socket::Datagrams(UdpSocket::from_std(socket)?), at))
}

/// Whether a closing listener is kept open for its remaining devices.
#[derive(Debug, Default)]
pub(crate) struct Latch(AtomicU8);

const OPEN: u8 = 0;
const LEAVING: u8 = 1;
const ENDED: u8 = 2;

impl Latch {
    /// Called when the last device has gone: whether the listener closes now.
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
pub(crate) struct Door {
    place: Place,
    at: SocketAddr,
    /// Whether it is closed once the exchange is settled.
    is_going: bool,
    latch: Arc<Latch>,
    leaves: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Door {
    /// Serves a listener with `serve` until it stops accepting.
    pub(crate) fn open<F>(
        (place, at): (Place, SocketAddr),
        serve: impl FnOnce(watch::Receiver<bool>, Arc<Latch>) -> F,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let latch = Arc::<Latch>::default();
        let (leaves, left) = watch::channel(false);
        let task = tokio::spawn(serve(left, Arc::clone(&latch)));
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
        matches!(self.place.kind, Kind::DevicesUdp)
    }
}

/// All listeners of one part.
#[derive(Debug, Default)]
pub(crate) struct Doors {
    open: Vec<Door>,
    /// Closing listeners that are kept open.
    leaving: Vec<Door>,
}

/// An exchange of listeners, to be [settled](Doors::settle) or [undone](Doors::undo).
#[derive(Debug, Default)]
pub(crate) struct Exchanged {
    opened: Vec<Place>,
    /// To be closed.
    going: Vec<Place>,
    /// Closed already.
    gone: Vec<Place>,
}

impl Doors {
    pub(crate) fn new(open: Vec<Door>) -> Mutex<Self> {
        Mutex::new(Self { open, leaving: Vec::new() })
    }

    /// A poisoned lock is safe here: the listeners stay consistent.
    fn lock(this: &Mutex<Self>) -> MutexGuard<'_, Self> {
        this.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Addresses of the listeners of these kinds, in the order of the kinds.
    pub(crate) fn at(this: &Mutex<Self>, kinds: &[Kind]) -> Vec<SocketAddr> {
        let doors = Self::lock(this);
        let of = |kind| doors.staying().filter(move |door| door.place.kind == kind);
        kinds.iter().flat_map(|kind| of(*kind)).map(|door| door.at).collect()
    }

    /// Addresses of all listeners, as URLs where such exist.
    pub(crate) fn urls(this: &Mutex<Self>) -> Vec<String> {
        let doors = Self::lock(this);
        let url = |door: &Door| Place { address: door.at, ..door.place }.to_string();
        doors.staying().map(url).collect()
    }

    fn staying(&self) -> impl Iterator<Item = &Door> {
        self.open.iter().filter(|door| !door.is_going)
    }

    /// Closing listeners that are kept open.
    pub(crate) fn held(this: &Mutex<Self>) -> Vec<String> {
        let mut doors = Self::lock(this);
        doors.leaving.retain(|door| !door.task.is_finished());
        doors.leaving.iter().filter(|door| door.is_held()).map(|it| it.place.to_string()).collect()
    }

    /// Opens the wanted listeners that are missing; unwanted ones close when the exchange is
    /// settled.
    ///
    /// # Errors
    ///
    /// The address that cannot be bound; nothing has changed then.
    pub(crate) async fn exchange(
        this: &Mutex<Self>,
        wanted: &[Place],
        serve: &impl Fn(Bound) -> Door,
    ) -> Result<Exchanged, Refused> {
        let mut exchanged = Exchanged::default();
        let come = {
            let mut doors = Self::lock(this);
            for door in &mut doors.open {
                door.is_going = !wanted.contains(&door.place);
            }
            let going = doors.open.iter().filter(|door| door.is_going);
            exchanged.going = going.map(|door| door.place).collect();
            let known = |place: &Place| doors.open.iter().any(|door| door.place == *place);
            wanted.iter().copied().filter(|place| !known(place)).collect::<Vec<_>>()
        };
        let meets = |place: &Place| exchanged.going.iter().any(|going| going.meets(place));
        let (later, first): (Vec<_>, Vec<_>) = come.into_iter().partition(meets);
        for place in first.into_iter().chain(later) {
            if let Err(refused) = Self::come(this, place, serve, &mut exchanged).await {
                Self::undo(this, exchanged, serve).await;
                return Err(refused);
            }
        }
        // As they are told.
        let order = |door: &Door| wanted.iter().position(|place| *place == door.place);
        Self::lock(this).open.sort_by_key(|door| order(door).unwrap_or(usize::MAX));
        Ok(exchanged)
    }

    /// Opens one listener, after closing an unwanted one at the same address if necessary.
    async fn come(
        this: &Mutex<Self>,
        place: Place,
        serve: &impl Fn(Bound) -> Door,
        exchanged: &mut Exchanged,
    ) -> Result<(), Refused> {
        if Self::come_back(this, place).await {
            exchanged.opened.push(place);
            return Ok(());
        }
        let (in_its_way, going): (Vec<Place>, Vec<Place>) =
            exchanged.going.iter().partition(|going| going.meets(&place));
        if in_its_way.iter().any(|it| it.kind == Kind::DevicesUdp) {
            let why = "devices are associated by a socket that is in its way; take another port, \
                       or restart";
            let source = io::Error::new(io::ErrorKind::AddrInUse, why);
            return Err(Refused { place, source });
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
    async fn come_back(this: &Mutex<Self>, place: Place) -> bool {
        let door = {
            let mut doors = Self::lock(this);
            let at = doors.leaving.iter().position(|door| door.place == place);
            at.map(|at| doors.leaving.swap_remove(at))
        };
        let Some(door) = door else { return false };
        if door.come_back() {
            Self::lock(this).open.push(door);
            return true;
        }
        // It is closing, and its place is free then.
        let _ = door.task.await;
        false
    }

    /// Stops accepting at an address. On return the address is free, unless the listener is kept
    /// open.
    async fn give_up(this: &Mutex<Self>, place: Place) {
        let door = {
            let mut doors = Self::lock(this);
            let at = doors.open.iter().position(|door| door.place == place);
            at.map(|at| doors.open.remove(at))
        };
        let Some(door) = door else { return };
        door.leave();
        if door.is_held() {
            Self::lock(this).leaving.push(door);
        } else {
            let _ = door.task.await;
        }
    }

    /// Closes the unwanted listeners. Connections go on.
    pub(crate) fn settle(this: &Mutex<Self>, exchanged: &Exchanged) {
        let mut doors = Self::lock(this);
        let Self { open, leaving } = &mut *doors;
        leaving.retain(|door| !door.task.is_finished());
        let going = |door: &mut Door| exchanged.going.contains(&door.place);
        let mut gone: Vec<_> = open.extract_if(.., going).collect();
        for door in &mut gone {
            door.is_going = false;
        }
        gone.iter().for_each(Door::leave);
        leaving.extend(gone);
    }

    /// Restores the state before the exchange.
    pub(crate) async fn undo(
        this: &Mutex<Self>,
        exchanged: Exchanged,
        serve: &impl Fn(Bound) -> Door,
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
        for door in &mut Self::lock(this).open {
            door.is_going = false;
        }
    }

    /// Stops accepting everywhere and returns when the listeners' tasks have ended.
    pub(crate) async fn close(this: &Mutex<Self>) {
        let doors = core::mem::take(&mut *Self::lock(this));
        doors.open.iter().for_each(Door::leave);
        for door in doors.open.into_iter().chain(doors.leaving) {
            let _ = door.task.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes connections and drops them.
    fn serve(bound: Bound) -> Door {
        let Socket::Stream(listener) = bound.socket else { panic!("a listener") };
        Door::open((bound.place, bound.at), |mut leaves, _| async move {
            loop {
                tokio::select! {
                    _ = listener.accept() => {}
                    _ = leaves.changed() => return,
                }
            }
        })
    }

    fn place(address: &str, port: u16) -> Place {
        Place { kind: Kind::Http, address: SocketAddr::new(address.parse().unwrap(), port) }
    }

    async fn doors(place: Place) -> (Mutex<Doors>, u16) {
        let doors = Doors::new(Vec::new());
        let _ = Doors::exchange(&doors, &[place], &serve).await.unwrap();
        let port = Doors::at(&doors, &[Kind::Http])[0].port();
        (doors, port)
    }

    async fn answers(address: &str, port: u16) -> bool {
        tokio::net::TcpStream::connect((address, port)).await.is_ok()
    }

    #[tokio::test]
    async fn what_comes_is_there_before_what_goes_is_given_up() {
        let (doors, old) = doors(place("127.0.0.1", 0)).await;
        let (_, new) = self::doors(place("127.0.0.1", 0)).await;
        let wanted = [place("127.89.0.1", new)];
        let exchanged = Doors::exchange(&doors, &wanted, &serve).await.unwrap();
        assert!(answers("127.0.0.1", old).await && answers("127.89.0.1", new).await);
        Doors::settle(&doors, &exchanged);
        assert_eq!(Doors::urls(&doors), [format!("http://127.89.0.1:{new}")]);
        Doors::close(&doors).await;
        assert!(!answers("127.0.0.1", old).await && !answers("127.89.0.1", new).await);
    }

    /// One that needs the place of one that goes, and one that somebody else has: all is undone.
    #[tokio::test]
    async fn a_place_that_cannot_be_had_changes_nothing() {
        let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = held.local_addr().unwrap().port();
        let (doors, port) = doors(place("127.0.0.1", 0)).await;
        let fixed = place("127.0.0.1", port);
        Doors::close(&doors).await;
        let _ = Doors::exchange(&doors, &[fixed], &serve).await.unwrap();
        for wanted in [
            vec![place("127.89.0.2", port), place("127.0.0.1", taken)],
            vec![Place { kind: Kind::Ws, ..fixed }, place("127.0.0.1", taken)],
        ] {
            let refused = Doors::exchange(&doors, &wanted, &serve).await.unwrap_err();
            let said = refused.to_string();
            assert!(said.starts_with("[cse] http: cannot listen on 127.0.0.1:"), "{said}");
            assert_eq!(refused.place.address.port(), taken);
            assert_eq!(Doors::urls(&doors), [format!("http://127.0.0.1:{port}")]);
            assert!(answers("127.0.0.1", port).await && !answers("127.89.0.2", port).await);
        }
        drop(held);
        let wanted = [Place { kind: Kind::Ws, ..place("0.0.0.0", port) }];
        let exchanged = Doors::exchange(&doors, &wanted, &serve).await.unwrap();
        assert!(answers("127.89.0.2", port).await, "in the place of the one that goes");
        Doors::undo(&doors, exchanged, &serve).await;
        assert_eq!(Doors::urls(&doors), [format!("http://127.0.0.1:{port}")]);
        assert!(answers("127.0.0.1", port).await && !answers("127.89.0.2", port).await);
        Doors::close(&doors).await;
    }
}
