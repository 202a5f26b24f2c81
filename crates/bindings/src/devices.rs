//! Personal health devices on TCP: their reports become contentInstances of a CSE.
//!
//! [`start`] listens; each connection has a manager of its own, and all share what is remembered
//! of configurations and which device talks through which connection. A device that associates
//! becomes an AE with its containers; each observation of its reports becomes an instance with a
//! name of its own. A confirmed report is answered when all its instances are stored, and rejected
//! if one could not be: the device keeps it then.
//!
//! Nothing is stored twice: a creation that is tried again has the same name, and *conflict* counts
//! as stored. A device that lost the connection after its report was stored and before it was
//! answered reports it again in its next association; it is known by the time that the device puts
//! on it, and where it bears none by what is known of the answer
//! ([`Repeats`](gatewright_interwork::Repeats)).

mod ask;
mod connection;
mod datagrams;
mod deliver;
mod entities;
mod places;
mod stages;
pub(crate) mod transport;

use crate::engine::{CALLS_MAX, Engine, now};
use crate::keyring::{Keyring, Keys};
use crate::lanes::Lanes;
use crate::tls::Tls;
use ask::Desk;
use connection::Connection;
use core::time::Duration;
use entities::Entities;
use gatewright_descriptors::{Claim, Shortage};
use gatewright_health::code::SystemId;
use gatewright_health::configuration::Library;
use gatewright_health::frame::Framer;
use gatewright_health::manager::{self, Manager, RequestId};
use gatewright_health::operation::Operation;
use gatewright_health::roster::{Joined, Roster, SessionId};
use gatewright_interwork::{Mapping, Repeats};
use gatewright_tables::Map;
use gatewright_tables::records::{Entity, Sender};
pub use stages::Stages;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::net::{TcpListener, TcpSocket, UdpSocket};
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use transport::Transport;

/// The port that managers listen on unless told otherwise.
pub const PORT: u16 = 6_024;
/// Pause after the system gave no connection (out of descriptors), so as not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Connections that wait to be taken; the system's own bound (`net.core.somaxconn`) holds beside it.
const COMING_MAX: u32 = 16_384;
/// How long a device may take to show its certificate.
const SHAKE_WITHIN: Duration = Duration::from_secs(10);
/// Requests on their way to one connection; a manager keeps as many.
const ASKS_MAX: usize = manager::ASKED_MAX;

/// Which devices are let in, and what becomes of them.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where devices connect; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where devices send datagrams, each one APDU; port 0 takes a free one.
    pub datagrams: Option<SocketAddr>,
    /// Where devices connect that show a certificate, and whose are taken (TLS 1.3).
    pub tls: Option<(SocketAddr, Tls)>,
    /// Name of the CSEBase that the devices appear below.
    pub base: String,
    /// What becomes what.
    pub mapping: Mapping,
    /// Who the manager is, and its patience.
    pub manager: manager::Settings,
    /// The devices that may associate; all, if `None`.
    pub admitted: Option<BTreeSet<SystemId>>,
    /// Connections at the same time; more are closed at once.
    pub connections_max: usize,
    /// The CSE that the readings are sent on to; they stay here, if `None`.
    pub above: Option<Above>,
    /// Who may read what devices report and ask them something, beside the administrator: AE-IDs
    /// (`CNurse`, `/id-in/CNurse`).
    pub operators: Vec<String>,
}

/// The CSE that readings are sent on to: each device becomes an AE there as it does here.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Above {
    /// Where it answers, by any binding that the CSE speaks; without a path.
    pub url: String,
    /// Address of its CSEBase: `/id-in/cse-in`.
    pub base: String,
    /// How readings get there.
    pub delivery: Delivery,
    /// Kinds of devices (by name, [`Device::kind`](gatewright_interwork::Device::kind)) whose
    /// readings get there otherwise.
    pub kinds: BTreeMap<String, Delivery>,
}

impl Above {
    /// How readings of this kind of device get there.
    fn delivery(&self, kind: &str) -> Delivery {
        self.kinds.get(kind).copied().unwrap_or(self.delivery)
    }
}

/// How readings get to the CSE above.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Delivery {
    /// Each is stored here with a letter to the CSE above, in one commit, and the device is
    /// answered; the letter is sent until it has arrived, or is older than this.
    Durable(Duration),
    /// Each is sent at once and not stored here; the device is answered when it has arrived.
    Direct,
}

impl Config {
    /// Devices at `listen` below the CSEBase `base`, mapped as `docs/devices.md` shows.
    pub fn new(listen: SocketAddr, base: impl Into<String>) -> Self {
        Self {
            listen,
            datagrams: None,
            tls: None,
            base: base.into(),
            mapping: Mapping::default().without_views(),
            manager: manager::Settings::new(SystemId(*b"\x02GATEWAY")),
            admitted: None,
            connections_max: 16_384,
            above: None,
            operators: Vec::new(),
        }
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// How often what has happened.
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl Counters {
            /// Every counter with its name, for a metrics page.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)+].into_iter()
            }
        }
    };
}

counters! {
    /// Connections taken.
    connections,
    /// Connections closed because there were too many.
    connections_refused,
    /// Connections closed because the device did not take what was sent.
    connections_stuck,
    /// Connections closed because their address had too many octets of unfinished APDUs.
    octets_full,
    /// Connections closed because the device showed no certificate that is trusted.
    handshakes_failed,
    /// Associations made.
    associations,
    /// Associations ended because the device's resources could not be made.
    registrations_failed,
    /// Associations ended because the same system-id associated elsewhere.
    displaced,
    /// Reports taken.
    reports,
    /// Reports of which something could not be stored: rejected if confirmed, else lost.
    reports_not_stored,
    /// Reports recognised as sent once more, though no time told it: stored once.
    reports_repeated,
    /// Devices whose last reports were forgotten because too many were remembered: what they send
    /// once more is not recognised.
    repeats_forgotten,
    /// Readings stored.
    readings,
    /// Readings whose creation was tried again.
    readings_again,
    /// Readings that the CSE does not want.
    readings_refused,
    /// Readings with a letter to the CSE above.
    posted,
    /// Readings refused because too many waited for the CSE above.
    outbox_full,
    /// Readings sent to the CSE above at once, and arrived.
    direct,
    /// Devices whose places were made again at a CSE above that did not know them any more.
    places_again,
    /// Lanes that were not noted for that because too many were: their next letter has them noted.
    places_full,
    /// Requests for devices.
    asked,
    /// Of these, those that waited for a device that was away.
    asked_waited,
    /// Requests that a device answered, refusing included.
    asked_answered,
    /// Observations of handles never configured, skipped.
    unknown_handles,
    /// Observations with octets behind the mapped ones.
    trailing,
    /// Datagrams that belong to no association, dropped.
    strangers,
    /// Datagrams dropped because their device's connection had enough to do.
    datagrams_full,
    /// APDUs that were none, or badly built.
    malformed,
}

/// What all connections of a listener share.
#[derive(Debug)]
struct Shared {
    engine: Arc<Engine>,
    base: String,
    mapping: Mapping,
    manager: manager::Settings,
    /// Where the machines' time begins.
    started: Instant,
    state: Mutex<State>,
}

/// How a connection is reached from elsewhere.
#[derive(Clone, Debug)]
struct Line {
    /// Ends it.
    hang_up: Arc<Notify>,
    /// Asks its device something.
    asks: mpsc::Sender<(RequestId, Operation)>,
}

#[derive(Debug)]
struct State {
    library: Library,
    above: Option<Arc<Above>>,
    /// Address of the policy that lets operators in.
    policy: Option<String>,
    roster: Roster,
    entities: Entities,
    /// How each connection is reached.
    lines: HashMap<SessionId, Line>,
    desk: Desk,
    sessions: u64,
    epoch: u64,
    /// The devices whose places at the CSE above have been asked for in this run, with what was
    /// asked.
    announced: HashMap<SystemId, u64>,
    /// Reports without a time that may come again.
    repeats: Repeats,
    /// The devices that did not answer when they were asked what they are.
    silent: BTreeSet<SystemId>,
    counters: Counters,
    stages: Stages,
}

/// A listener that runs.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    /// Whose places are to be made again.
    lost: Arc<Lanes>,
    address: SocketAddr,
    datagrams: Option<SocketAddr>,
    tls: Option<SocketAddr>,
    keyring: Option<Arc<Keyring>>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    descriptors: Claim,
}

/// Starts to listen for devices whose readings go to `engine`.
///
/// # Errors
///
/// If an address cannot be listened on, or the certificates cannot be used.
pub async fn start(config: Config, engine: Arc<Engine>) -> io::Result<Running> {
    // Datagrams of all devices come by one socket.
    let connections = u64::try_from(config.connections_max).unwrap_or(u64::MAX);
    let descriptors = Claim::new(connections);
    let listener = listen(config.listen)?;
    let address = listener.local_addr()?;
    let datagrams = match config.datagrams {
        Some(at) => Some(UdpSocket::bind(at).await?),
        None => None,
    };
    let secure = match &config.tls {
        Some((at, tls)) => {
            let keyring = Keyring::new(Keys::read(tls).map_err(io::Error::other)?);
            Some((listen(*at)?, keyring))
        }
        None => None,
    };
    let tls = secure.as_ref().map(|(listener, _)| listener.local_addr()).transpose()?;
    let datagrams_at = datagrams.as_ref().map(UdpSocket::local_addr).transpose()?;
    let mut library = Library::standard();
    library.admit(config.admitted.clone());
    let policy = ask::make_policy(&engine, &config, false).await;
    let state = State {
        library,
        above: config.above.map(Arc::new),
        policy,
        roster: Roster::new(),
        entities: Entities::new(config.connections_max).map_err(io::Error::other)?,
        lines: HashMap::new(),
        desk: Desk::default(),
        sessions: 0,
        epoch: 0,
        announced: HashMap::new(),
        repeats: Repeats::default(),
        silent: BTreeSet::new(),
        counters: Counters::default(),
        stages: Stages::default(),
    };
    let (calls, asked) = mpsc::channel(CALLS_MAX);
    engine.send_device_calls(calls);
    let lost = Arc::new(Lanes::new(config.connections_max));
    engine.tell_lost(Arc::clone(&lost));
    let shared = Arc::new(Shared {
        engine,
        base: config.base,
        mapping: config.mapping,
        manager: config.manager,
        started: Instant::now(),
        state: Mutex::new(state),
    });
    let (stop, stopped) = watch::channel(false);
    let mut tasks = vec![tokio::spawn(ask::serve(Arc::clone(&shared), asked, stopped.clone()))];
    tasks.push(tokio::spawn(places::serve(
        Arc::clone(&shared),
        Arc::clone(&lost),
        stopped.clone(),
    )));
    if let Some(socket) = datagrams {
        let (shared, most) = (Arc::clone(&shared), config.connections_max);
        tasks.push(tokio::spawn(datagrams::serve(socket, shared, most, stopped.clone())));
    }
    let room = Arc::new(Semaphore::new(config.connections_max));
    let keyring = secure.as_ref().map(|(_, keyring)| Arc::clone(keyring));
    let secure = secure.map(|(listener, keyring)| (listener, Some(keyring)));
    for (listener, keyring) in [Some((listener, None)), secure].into_iter().flatten() {
        let (shared, room) = (Arc::clone(&shared), Arc::clone(&room));
        tasks.push(tokio::spawn(accept((listener, keyring), shared, room, stopped.clone())));
    }
    let datagrams = datagrams_at;
    Ok(Running { shared, lost, address, datagrams, tls, keyring, stop, tasks, descriptors })
}

/// Listens with room for thousands that come at once, as after a power failure: who finds none
/// tries again after one, three, seven, fifteen seconds (RFC 6298), and all of them together.
fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = if at.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A gateway that starts again finds its address free.
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    socket.listen(COMING_MAX)
}

impl Running {
    /// Where devices connect.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where devices send datagrams, if they may.
    pub const fn datagrams(&self) -> Option<SocketAddr> {
        self.datagrams
    }

    /// Where devices connect with a certificate, if they may.
    pub const fn tls(&self) -> Option<SocketAddr> {
        self.tls
    }

    /// What the system allows too little of for all devices that may connect.
    pub const fn shortage(&self) -> Option<Shortage> {
        self.descriptors.shortage()
    }

    /// Its certificates, if devices may show theirs.
    pub(crate) const fn keyring(&self) -> Option<&Arc<Keyring>> {
        self.keyring.as_ref()
    }

    /// The devices that are associated, by sender; may be read without a lock.
    pub fn entities(&self) -> Map<Sender, Entity> {
        self.shared.lock().entities.reader()
    }

    /// What has happened so far.
    pub fn counters(&self) -> Counters {
        let places_full = self.lost.turned_away();
        let state = self.shared.lock();
        Counters { places_full, repeats_forgotten: state.repeats.forgotten(), ..state.counters }
    }

    /// How long reports took, stage by stage.
    pub fn stages(&self) -> Stages {
        self.shared.lock().stages
    }

    /// How many devices are associated.
    pub fn devices(&self) -> usize {
        self.shared.lock().roster.len()
    }

    /// Takes from `config` who may associate, who may ask devices something, and how readings get
    /// above; everything else was decided at the start.
    pub async fn reconfigure(&self, config: Config) {
        let had = self.shared.lock().policy.is_some();
        let policy = ask::make_policy(&self.shared.engine, &config, had).await;
        let mut state = self.shared.lock();
        state.library.admit(config.admitted);
        if policy.is_some() != had {
            // Their places get the policy with their next association.
            state.announced.clear();
        }
        state.policy = policy;
        state.above = config.above.map(Arc::new);
    }

    /// Aborts every association and returns when all connections are closed. Reports not answered
    /// are the devices' again.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        for task in self.tasks {
            let _ = task.await;
        }
    }
}

async fn accept(
    (listener, keyring): (TcpListener, Option<Arc<Keyring>>),
    shared: Arc<Shared>,
    room: Arc<Semaphore>,
    mut stop: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            _ = stop.changed() => break,
        };
        let Ok((stream, peer)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
            shared.count(|counters| counters.connections_refused += 1);
            continue;
        };
        let (shared, stop, keyring) = (Arc::clone(&shared), stop.clone(), keyring.clone());
        connections.spawn(async move {
            // An answer is small, and a device waits for it.
            let _ = stream.set_nodelay(true);
            let transport = match keyring {
                None => Some(Transport::Stream(Box::new(stream))),
                Some(keyring) => {
                    let accepted = keyring.acceptor().accept(stream);
                    let shaken = tokio::time::timeout(SHAKE_WITHIN, accepted).await;
                    let shaken = shaken.ok().and_then(Result::ok);
                    shaken.map(|stream| Transport::Stream(Box::new(stream)))
                }
            };
            match transport {
                Some(transport) => shared.welcome(transport, peer, stop).await,
                None => shared.count(|counters| counters.handshakes_failed += 1),
            }
            drop(permit);
        });
    }
    while connections.join_next().await.is_some() {}
}

impl Shared {
    /// Serves one connection to its end.
    async fn welcome(
        self: Arc<Self>,
        transport: Transport,
        peer: SocketAddr,
        stop: watch::Receiver<bool>,
    ) {
        let datagrams = matches!(transport, Transport::Datagrams(_));
        let hang_up = Arc::new(Notify::new());
        let (asks, asked) = mpsc::channel(ASKS_MAX);
        let id = self.lock().open(Line { hang_up: Arc::clone(&hang_up), asks });
        let mut connection = Connection {
            shared: Arc::clone(&self),
            id,
            manager: Manager::new(manager::Settings { datagrams, ..self.manager }),
            framer: Framer::default(),
            transport,
            sender: Sender { address: peer.ip(), port: peer.port() },
            device: None,
            session: None,
            asked,
            described: None,
            is_closing: false,
            counted: manager::Counters::default(),
            arrived: Instant::now(),
            passage: None,
            answering: None,
            stored: Vec::new(),
            arriving: self.engine.quotas().arriving(peer.ip()),
        };
        // How a connection ends is the device's affair; its reports not answered are its own.
        let _ = connection.serve(&hang_up, stop).await;
        connection.end();
        let mut state = self.lock();
        state.close(id, connection.device);
        state.entities.leave(&connection.sender);
    }

    /// The machines' time.
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn count(&self, how: impl FnOnce(&mut Counters)) {
        how(&mut self.lock().counters);
    }

    /// A panic elsewhere leaves names and counts as they were.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn open(&mut self, line: Line) -> SessionId {
        self.sessions += 1;
        let id = SessionId(self.sessions);
        self.lines.insert(id, line);
        self.counters.connections += 1;
        id
    }

    fn close(&mut self, id: SessionId, device: Option<SystemId>) {
        self.lines.remove(&id);
        if let Some(device) = device {
            self.roster.leave(device, id);
        }
    }

    /// The device `system` has associated: whether it may stay.
    fn join(&mut self, system: SystemId, id: SessionId) -> bool {
        self.counters.associations += 1;
        match self.roster.join(system, id) {
            Joined::Alone => true,
            Joined::Displaced(other) => {
                self.counters.displaced += 1;
                if let Some(other) = self.lines.get(&other) {
                    other.hang_up.notify_one();
                }
                true
            }
            Joined::Full => false,
        }
    }

    /// A number for an association that no other has: the time in microseconds since 1970, so
    /// that it grows over restarts too, or the next if two associate at once.
    fn next_epoch(&mut self) -> u64 {
        let micros = u64::try_from(now().as_micros()).unwrap_or(u64::MAX);
        self.epoch = micros.max(self.epoch.saturating_add(1));
        self.epoch
    }
}
