//! Listener for personal health devices: their reports become contentInstances of a CSE.
//!
//! [`start`] opens the listeners. Each connection has its own manager; all share the known
//! configurations and the table of associated devices. A device that associates becomes an AE with
//! its containers; each observation of its reports becomes an instance with a unique name. A
//! confirmed report is answered when all its instances are stored. It is rejected if one could not
//! be stored, and the device keeps it.
//!
//! Nothing is stored twice: a retried creation has the same name, and *conflict* counts as stored.
//! A device may lose the connection after its report was stored and before it was answered; it then
//! reports again in its next association. The repeated report is recognised by the device's time
//! stamp, or without one by what is known of the answer
//! ([`Repeats`](gatewright_interwork::Repeats)).

mod ask;
mod associating;
mod certificate;
mod connection;
mod datagrams;
mod deliver;
mod entities;
mod forwarded;
mod home_assistant;
mod latest;
mod now;
mod places;
mod refusals;
mod shards;
mod silence;
mod stages;
mod start;
mod state;
pub(crate) mod transport;
mod unassociated;

use crate::accept::Admission;
use crate::engine::Engine;
use crate::keyring::{Keyring, Keys};
use crate::listeners::{
    Bound, BoundSocket, CannotListen, ExchangedListeners, ListenerKind, Listeners, ServedListener,
};
use crate::queue_set::QueueSet;
use crate::tls::Tls;
use associating::{Associating, AssociationTurns};
pub use certificate::SystemIdField;
use connection::DeviceConnection;
use core::time::Duration;
use gatewright_descriptors::{Claim, Shortage};
use gatewright_health::code::SystemId;
use gatewright_health::configuration::Library;
use gatewright_health::frame::Framer;
use gatewright_health::manager::{self, Manager, RequestId};
use gatewright_health::operation::Operation;
use gatewright_interwork::{Device, Mapping};
use gatewright_onem2m::Serialisation;
use gatewright_part::LogEvent;
use gatewright_stack::Sockets;
use gatewright_tables::records::{Entity, Sender};
use gatewright_tables::{EntityWriters, Map};
use home_assistant::HomeAssistant;
pub use home_assistant::HomeAssistantConfig;
use latest::LatestReadings;
use refusals::Refusals;
use shards::Shards;
pub use silence::SilentAfter;
pub use stages::Stages;
pub use start::{StartError, start, start_over};
use state::State;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Instant;
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use transport::{Transport, listener_addresses};
use unassociated::{Unassociated, UnassociatedGuard};

/// Default port of managers.
pub const PORT: u16 = 6_024;
/// Time limit for a device's TLS handshake.
const SHAKE_WITHIN: Duration = Duration::from_secs(10);
/// Connections that have given way and are not closed yet.
const CLOSING_MAX: usize = 64;
/// Pending requests for one connection; a manager keeps as many.
const ASKS_MAX: usize = manager::ASKED_MAX;

/// Configuration of the device listeners.
#[derive(Clone, Debug)]
pub struct DevicesConfig {
    /// TCP listener; port 0 takes a free one.
    pub listen: SocketAddr,
    /// UDP listener, one APDU per datagram; port 0 takes a free one.
    pub datagrams: Option<SocketAddr>,
    /// The same at the gateway's own stack.
    pub stack: Option<SocketAddr>,
    /// TLS 1.3 listener with client certificates, and the authorities it trusts.
    pub tls: Option<(SocketAddr, Tls)>,
    /// Name of the CSEBase above the devices' AEs.
    pub base: String,
    /// Field of a device's certificate that holds its system-id; not compared if `None`.
    pub system_id: Option<SystemIdField>,
    /// Mapping from device data to resources.
    pub mapping: Mapping,
    /// The manager's identity and timeouts.
    pub manager: manager::ManagerSettings,
    /// Devices that may associate; all if `None`.
    pub admitted: Option<BTreeSet<SystemId>>,
    /// Associated devices at a time, and as many connections without an association again: if more
    /// of these come, the oldest of the address with the most gives way.
    pub connections_max: usize,
    /// Connections of one address at a time, associated or not. A hub has one for all its devices.
    pub connections_per_peer_max: usize,
    /// CSE to which readings are forwarded; none if `None`.
    pub above: Option<Above>,
    /// AE-IDs that may read devices' data and send devices requests, beside the administrator
    /// (`CNurse`, `/id-in/CNurse`).
    pub operators: Vec<String>,
    /// When a device counts as silent; never if empty.
    pub silent: Vec<SilentAfter>,
    /// Where devices are announced to Home Assistant; nowhere if `None`.
    pub home_assistant: Option<HomeAssistantConfig>,
}

/// CSE to which readings are forwarded: each device becomes an AE there as it does here.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Above {
    /// Its URL in any binding that the CSE speaks, without a path.
    pub url: String,
    /// Address of its CSEBase, such as `/id-in/cse-in`, or of the target beyond it.
    pub base: String,
    /// Whether `base` is at another CSE, to which this one forwards requests. An AE registers at no
    /// CSE but its own registrar (TS-0001 §10.2.2.2): an AE here is a container there, with the
    /// local AE as originator, `/id-mn/Cphd-…`.
    pub beyond: bool,
    /// Default delivery of readings.
    pub delivery: Delivery,
    /// Delivery for kinds of devices (by name,
    /// [`Device::kind`](gatewright_interwork::Device::kind)) that differ from the default.
    pub kinds: BTreeMap<String, Delivery>,
    /// Serialisation of readings that the data plane sends to it in direct delivery; it sends none if
    /// `None`.
    pub coap: Option<Serialisation>,
}

/// The gateway's own stack, for devices whose packets arrive by its links.
#[derive(Debug)]
pub struct OwnStack {
    /// Opens its sockets.
    pub sockets: Sockets,
    /// The data plane's AE table.
    pub entities: EntityWriters,
}

impl Above {
    /// Delivery for a device. While its kind is unknown, delivery is durable if any delivery is, so
    /// that no reading is lost that may have to be stored here.
    fn delivery(&self, device: &Device) -> Delivery {
        let of_kind = self.kinds.get(device.kind()).copied().unwrap_or(self.delivery);
        if device.is_kind_known() {
            return of_kind;
        }
        let all = [of_kind, self.delivery].into_iter().chain(self.kinds.values().copied());
        all.into_iter().find(|one| matches!(one, Delivery::Durable(_))).unwrap_or(of_kind)
    }
}

/// Delivery of readings to the CSE above.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Delivery {
    /// Each is stored here together with an outbox message to the CSE above, in one commit, and the
    /// device is answered. The message is sent until it has arrived or is older than this.
    Durable(Duration),
    /// Each is sent at once and not stored here; the device is answered when it has arrived.
    Direct,
}

impl DevicesConfig {
    /// Devices at `listen` below the CSEBase `base`, mapped as `docs/devices.md` shows.
    pub fn new(listen: SocketAddr, base: impl Into<String>) -> Self {
        Self {
            listen,
            datagrams: None,
            stack: None,
            tls: None,
            system_id: None,
            base: base.into(),
            mapping: Mapping::default().without_views(),
            manager: manager::ManagerSettings::new(SystemId(*b"\x02GATEWAY")),
            admitted: None,
            connections_max: 16_384,
            connections_per_peer_max: usize::MAX,
            above: None,
            operators: Vec::new(),
            silent: Vec::new(),
            home_assistant: None,
        }
    }
}

gatewright_onem2m::counters! {
    /// Counters of the device listeners.
    #[derive(Copy)]
    pub struct Counters, "";

    /// Connections accepted.
    connections,
    /// Connections closed because a connection limit was reached.
    connections_refused,
    /// Connections without an association that gave way to others, as too many were open.
    connections_evicted,
    /// Connections closed because no association was begun over them in time.
    connections_idle,
    /// Connections closed because the device did not accept what was sent.
    connections_stuck,
    /// Connections closed because their address had too many octets of unfinished APDUs.
    octets_full,
    /// Connections closed because the device showed no trusted certificate.
    handshakes_failed,
    /// Associations rejected because the device's certificate names another system-id, or none.
    system_ids_foreign,
    /// Associations made.
    associations,
    /// Association requests that waited, as enough were in work.
    associations_waited,
    /// Of these, test associations: their readings bear the status *test-data*.
    test_associations,
    /// Associations ended because the device's resources could not be created.
    registrations_failed,
    /// Associations ended because the same system-id associated elsewhere.
    displaced,
    /// Reports taken.
    reports,
    /// Reports of which something could not be stored: rejected if confirmed, else lost.
    reports_not_stored,
    /// Reports with octets after their list, which were skipped.
    reports_padded,
    /// Reports without a time stamp that were recognised as repeated: stored once.
    reports_repeated,
    /// Devices whose last reports were forgotten because of the limit on remembered ones: a
    /// repeated report of theirs is not recognised.
    repeats_forgotten,
    /// Readings stored.
    readings,
    /// Readings whose creation was retried.
    readings_again,
    /// Readings that the CSE refused.
    readings_refused,
    /// Readings with an outbox message to the CSE above.
    posted,
    /// Readings that were sent at once to the CSE above and arrived.
    direct,
    /// Plans compiled, by which the data plane sends a device's reports to the CSE above.
    plans,
    /// Plans for which there was no room: those reports go on to arrive here.
    plans_full,
    /// Devices whose resources were created again at a CSE above that had lost them.
    places_again,
    /// Queues not recorded for that because of the limit; their next outbox message records them.
    places_full,
    /// Requests for devices.
    asked,
    /// Of these, those that waited for a device that was away.
    asked_waited,
    /// Requests that a device answered, refusals included.
    asked_answered,
    /// Observations of handles never configured, skipped.
    unknown_handles,
    /// Observations with octets after the mapped ones.
    trailing,
    /// Observations of which a part was missing or malformed; the valid part is stored. A confirmed
    /// report without any valid part is rejected.
    cut,
    /// Observations whose calendar time is no valid date: stored with its octets.
    invalid_times,
    /// Reports of events that 20601 does not define; rejected if confirmed.
    unknown_events,
    /// Datagrams that belong to no association, dropped.
    strangers,
    /// Datagrams dropped because their device's connection had a full queue.
    datagrams_full,
    /// Malformed APDUs.
    malformed,
}

/// State shared by all connections of a listener.
#[derive(Debug)]
struct Shared {
    engine: Arc<Engine>,
    base: String,
    mapping: Mapping,
    manager: manager::ManagerSettings,
    /// Origin of the managers' time.
    started: Instant,
    /// CSE above.
    above: RwLock<Option<Arc<Above>>>,
    /// Certificate field that holds system-ids.
    system_id: RwLock<Option<SystemIdField>>,
    library: Mutex<Library>,
    /// State that reports use.
    shards: Shards,
    refusals: Refusals,
    turns: Arc<AssociationTurns>,
    /// When a device counts as silent.
    silent_after: RwLock<Vec<SilentAfter>>,
    is_silence_watched: AtomicBool,
    home_assistant: HomeAssistant,
    /// Readings that were sent on and are not stored here.
    latest: Arc<LatestReadings>,
    /// State that associations and requests for devices use.
    state: Mutex<State>,
    /// How often state or library were locked.
    #[cfg(test)]
    locked: std::sync::atomic::AtomicU64,
}

/// Channels to a connection.
#[derive(Clone, Debug)]
struct ConnectionChannels {
    /// Ends the connection.
    hang_up: Arc<Notify>,
    /// Set when its device has associated over another connection.
    is_displaced: Arc<AtomicBool>,
    /// Sends requests to its device.
    asks: mpsc::Sender<(RequestId, Operation)>,
}

/// A running device listener.
#[derive(Debug)]
pub struct RunningDevices {
    context: ListenerContext,
    listeners: Mutex<Listeners>,
    /// Devices whose resources are to be created again.
    lost: Arc<QueueSet>,
    /// Closes when the last connection has ended.
    connections: mpsc::Receiver<()>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    descriptors: Claim,
}

/// State shared by the listeners.
#[derive(Clone, Debug)]
struct ListenerContext {
    shared: Arc<Shared>,
    admission: Admission,
    unassociated: Arc<Unassociated>,
    /// Limit on devices that send datagrams.
    connections_max: usize,
    keyring: Arc<OnceLock<Arc<Keyring>>>,
    stopped: watch::Receiver<bool>,
    /// Held by each connection.
    connection_guard: mpsc::Sender<()>,
}

/// Ends a connection from outside; counts it as long as it has no association.
#[derive(Debug)]
struct ConnectionHandle {
    peer: SocketAddr,
    hang_up: Arc<Notify>,
    /// `None` for datagrams: their connection begins with the association.
    unassociated: Option<Arc<Unassociated>>,
    guard: Option<UnassociatedGuard>,
}

impl ConnectionHandle {
    fn new(unassociated: Arc<Unassociated>, peer: SocketAddr) -> Self {
        let hang_up = Arc::new(Notify::new());
        let unassociated = Some(unassociated);
        let mut handle = Self { peer, hang_up, unassociated, guard: None };
        handle.set_associated(false);
        handle
    }

    fn of_datagrams(peer: SocketAddr) -> Self {
        Self { peer, hang_up: Arc::new(Notify::new()), unassociated: None, guard: None }
    }

    fn set_associated(&mut self, is_associated: bool) {
        if is_associated {
            self.guard = None;
        } else if self.guard.is_none() {
            let of = self.unassociated.as_ref();
            self.guard = of.map(|of| of.enter(self.peer.ip(), &self.hang_up));
        }
    }
}

impl ListenerContext {
    /// Serves a bound listener.
    fn serve(&self, bound: Bound) -> ServedListener {
        let context = self.clone();
        let Bound { place, at, socket } = bound;
        let keyring =
            self.keyring.get().filter(|_| place.kind == ListenerKind::DevicesTls).cloned();
        match socket {
            BoundSocket::Stream(listener) => {
                ServedListener::open((place, at), |leaves, _| async move {
                    let admission = context.admission.clone();
                    let serve =
                        |stream, peer| context.clone().welcome(stream, peer, keyring.clone());
                    // The standard has no word for it: who is turned away comes again.
                    admission.run((listener, b""), leaves, serve).await;
                })
            }
            BoundSocket::Datagrams(socket) => ServedListener::open((place, at), |leaves, latch| {
                let Self { shared, connections_max, stopped, .. } = context;
                datagrams::serve(socket, (shared, connections_max), (leaves, latch), stopped)
            }),
        }
    }

    /// Serves one connection, with or without TLS, to its end.
    async fn welcome(self, stream: TcpStream, peer: SocketAddr, keyring: Option<Arc<Keyring>>) {
        let Self { shared, unassociated, stopped, connection_guard, .. } = self;
        let handle = ConnectionHandle::new(unassociated, peer);
        let mut named = None;
        let transport = match keyring {
            None => Some(Transport::Stream(Box::new(stream))),
            Some(keyring) => {
                let accepted = keyring.acceptor().accept(stream);
                let shaken = tokio::select! {
                    shaken = tokio::time::timeout(SHAKE_WITHIN, accepted) => shaken.ok(),
                    () = handle.hang_up.notified() => None,
                };
                let shaken = shaken.and_then(Result::ok);
                shaken.map(|stream| {
                    let certificate = stream.get_ref().1.peer_certificates();
                    let field = *shared.system_id.read().unwrap_or_else(PoisonError::into_inner);
                    named = field.map(|field| {
                        let first = certificate.and_then(<[_]>::first);
                        first.map(|one| field.system_ids(one)).unwrap_or_default()
                    });
                    Transport::Stream(Box::new(stream))
                })
            }
        };
        match transport {
            Some(transport) => shared.welcome(transport, handle, named, stopped).await,
            None => shared.count(|counters| counters.handshakes_failed += 1),
        }
        drop(connection_guard);
    }
}

impl RunningDevices {
    /// TCP listener.
    pub fn address(&self) -> SocketAddr {
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        self.at(ListenerKind::Devices).unwrap_or(nowhere)
    }

    /// UDP listener, if configured.
    pub fn datagrams(&self) -> Option<SocketAddr> {
        self.at(ListenerKind::DevicesUdp)
    }

    /// TLS listener, if configured.
    pub fn tls(&self) -> Option<SocketAddr> {
        self.at(ListenerKind::DevicesTls)
    }

    fn at(&self, kind: ListenerKind) -> Option<SocketAddr> {
        Listeners::at(&self.listeners, &[kind]).first().copied()
    }

    /// All listeners: `127.0.0.1:6024`, `udp 127.0.0.1:6024`.
    pub(crate) fn places(&self) -> Vec<String> {
        Listeners::urls(&self.listeners)
    }

    /// Listeners that stay open only while devices are associated there.
    pub(crate) fn held_places(&self) -> Vec<String> {
        Listeners::held(&self.listeners)
    }

    /// Opens the new listeners of `config`; those no longer configured close when the exchange is
    /// settled.
    pub(crate) async fn exchange_listeners(
        &self,
        config: &DevicesConfig,
    ) -> Result<ExchangedListeners, CannotListen> {
        let serve = |bound| self.context.serve(bound);
        Listeners::exchange(&self.listeners, &listener_addresses(config), &serve).await
    }

    /// Closes the listeners that are no longer configured; associated devices stay.
    pub(crate) fn settle_listeners(&self, exchanged: &ExchangedListeners) {
        Listeners::settle(&self.listeners, exchanged);
    }

    /// Restores the previous listeners.
    pub(crate) async fn undo_listeners(&self, exchanged: ExchangedListeners) {
        Listeners::undo(&self.listeners, exchanged, &|bound| self.context.serve(bound)).await;
    }

    /// Shortfall of file descriptors for all devices that may connect.
    pub const fn shortage(&self) -> Option<Shortage> {
        self.descriptors.shortage()
    }

    /// Whether devices show certificates that are not compared with their system-ids.
    pub fn is_unbound(&self) -> bool {
        let field = *self.context.shared.system_id.read().unwrap_or_else(PoisonError::into_inner);
        field.is_none() && self.tls().is_some()
    }

    /// Its certificates, if it has a TLS listener.
    pub(crate) fn keyring(&self) -> Option<&Arc<Keyring>> {
        self.context.keyring.get()
    }

    /// Its certificates, created from `keys` if there are none.
    pub(crate) fn keyring_or(&self, keys: &Arc<Keys>) -> &Arc<Keyring> {
        self.context.keyring.get_or_init(|| Keyring::new(Arc::clone(keys)))
    }

    /// Associated devices by sender; readers take no lock.
    pub fn entities(&self) -> Map<Sender, Entity> {
        self.context.shared.lock().entities.reader()
    }

    /// Counters so far.
    pub fn counters(&self) -> Counters {
        let places_full = self.lost.turned_away();
        let mut counted = self.context.shared.shards.counters();
        counted.add(&self.context.shared.lock().counters);
        let connections_refused = counted.connections_refused + self.context.admission.refused();
        let connections_evicted = self.context.unassociated.evicted();
        counted.associations_waited = self.context.shared.turns.waited();
        Counters { connections_refused, connections_evicted, places_full, ..counted }
    }

    /// Refusals of devices' requests since the last call.
    pub fn refusals(&self) -> Vec<LogEvent> {
        self.context.shared.refusals.take()
    }

    /// Duration of reports, by stage.
    pub fn stages(&self) -> Stages {
        self.context.shared.shards.stages()
    }

    /// Number of associated devices.
    pub fn devices(&self) -> usize {
        self.context.shared.lock().roster.len()
    }

    /// Takes from `config` the admitted devices, the operators and the delivery of readings;
    /// everything else needs a restart.
    pub async fn reconfigure(&self, config: DevicesConfig) {
        self.context.admission.set_most_of_one(config.connections_per_peer_max);
        let had = self.context.shared.lock().policy.is_some();
        let policy = ask::make_policy(&self.context.shared.engine, &config, had).await;
        let shared = &self.context.shared;
        *shared.system_id.write().unwrap_or_else(PoisonError::into_inner) = config.system_id;
        shared.library.lock().unwrap_or_else(PoisonError::into_inner).admit(config.admitted);
        shared.watch_silence(config.silent).await;
        // A description has no URL that is none.
        let _wrong = shared.home_assistant.set(config.home_assistant, &shared.mapping);
        let mut state = shared.lock();
        if policy.is_some() != had {
            // Their places get the policy with their next association.
            state.announced.clear();
        }
        state.policy = policy;
        // They are for the delivery of before.
        if let Some(forwarded) = state.entities.forwarded() {
            forwarded.drop_plans();
        }
        drop(state);
        *shared.above.write().unwrap_or_else(PoisonError::into_inner) = config.above.map(Arc::new);
        // Later readings may be stored here.
        shared.latest.forget_all();
    }

    /// Why Home Assistant's broker is not connected, if it is to be.
    pub(crate) fn home_assistant_failure(&self) -> Option<String> {
        self.context.shared.home_assistant.failure()
    }

    /// Counters of announcements to Home Assistant.
    pub(crate) fn home_assistant_counters(&self) -> [(&'static str, u64); 5] {
        self.context.shared.home_assistant.each()
    }

    /// Address of the policy that authorises operators, if there is one.
    pub(crate) fn policy(&self) -> Option<String> {
        self.context.shared.lock().policy.clone()
    }

    /// Aborts every association and returns when all connections are closed. Devices keep their
    /// unanswered reports.
    pub async fn stop(self) {
        let Self { context, listeners, mut connections, stop, tasks, .. } = self;
        let _ = stop.send(true);
        drop(context);
        Listeners::close(&listeners).await;
        for task in tasks {
            let _ = task.await;
        }
        let _nobody = connections.recv().await;
    }
}

impl Shared {
    /// Serves one connection to its end.
    async fn welcome(
        self: Arc<Self>,
        transport: Transport,
        handle: ConnectionHandle,
        named: Option<Vec<SystemId>>,
        stop: watch::Receiver<bool>,
    ) {
        let datagrams = matches!(transport, Transport::Datagrams(_));
        let (peer, hang_up) = (handle.peer, Arc::clone(&handle.hang_up));
        let (asks, asked) = mpsc::channel(ASKS_MAX);
        let is_displaced = Arc::new(AtomicBool::new(false));
        let line = ConnectionChannels { hang_up: Arc::clone(&hang_up), is_displaced, asks };
        let is_displaced = Arc::clone(&line.is_displaced);
        let id = self.lock().open(line);
        let mut connection = DeviceConnection {
            shared: Arc::clone(&self),
            id,
            manager: Manager::new(manager::ManagerSettings { datagrams, ..self.manager }),
            framer: Framer::default(),
            transport,
            handle,
            associating: Associating::new(&self.turns, peer.ip()),
            sender: Sender { address: peer.ip(), port: peer.port() },
            named,
            device: None,
            is_displaced,
            session: None,
            is_test: false,
            asked,
            described: None,
            is_closing: false,
            counted: manager::Counters::default(),
            arrived: Instant::now(),
            passage: None,
            answering: None,
            stored: Vec::new(),
            arriving: self.engine.quotas().arriving(peer.ip()),
            reports_here: 0,
        };
        // How a connection ends is the device's affair; its reports not answered are its own.
        let _ = connection.serve(&hang_up, stop).await;
        connection.end();
        let mut state = self.lock();
        state.close(id, connection.device);
        state.entities.leave(&connection.sender);
    }

    /// Time since the managers' origin.
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Counts an event that belongs to no device.
    fn count(&self, how: impl FnOnce(&mut Counters)) {
        how(&mut self.shards.of(None).counters);
    }

    /// CSE above, if there is one.
    fn above(&self) -> Option<Arc<Above>> {
        self.above.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A poisoned lock is safe here: names and counts stay consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.note_lock();
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a lock shared by all devices, for the test that reports take none.
    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "it counts in tests only"))]
    fn note_lock(&self) {
        #[cfg(test)]
        self.locked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
