//! A CSE on the network: its configuration, start and stop.

use crate::accept::{Admission, Peers};
use crate::calls::{SENT_AT_ONCE, send_calls};
use crate::coap::CoapSocket;
use crate::engine::{CALLS_MAX, Engine, now};
use crate::http::server::{HttpServer, ServerCounters};
use crate::keyring::{Keyring, Keys};
use crate::listeners::{
    self, Bound, CannotListen, ExchangedListeners, ListenerAddress, ListenerKind, Listeners,
    ServedListener,
};
pub use crate::mqtt::UrlError;
use crate::mqtt::{Broker, MqttIdentity, Url};
use crate::outgoing::Sender;
pub use crate::quota::Quota;
use crate::quota::Quotas;
use crate::reach::{Reach, ReachRules, is_loopback};
use crate::tasks::spawn;
use crate::tls::{ListenerSecurity, Tls, TlsError};
use crate::ws;
use core::sync::atomic::Ordering;
use core::time::Duration;
use gatewright_config::Prefix;
use gatewright_descriptors::{Claim, Shortage, clock_is_set};
use gatewright_onem2m::{Cse, CseIdentity, Damage, NoBase, Unreadable};
use gatewright_store::{
    Database, DatabaseOptions, ReadReport, RestoredMarks, StoreError, StoredRows, WriteReport,
};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;
use tokio::sync::{mpsc, watch};
use tokio_rustls::rustls::ClientConfig;

/// Reads whose rows wait to be taken: the CSE has one under way at a time.
const READS_MAX: usize = 4;
/// Committed transactions whose answers wait to be sent; beyond, the writer waits.
const REPORTS_MAX: usize = 1_024;
/// How long a report of the writer waits at most before answers count as late: half of what the
/// slowest of a hundred devices' answers may take (`ack_p99_ms_10k` in SPECIFICATION.md).
const LATE_AFTER: Duration = Duration::from_millis(25);

/// A report of the writer, and when it was made.
type TimedReport = (Instant, WriteReport);
/// Interval of that check while the wall clock is in doubt.
const CONFIRMED_EVERY: Duration = Duration::from_secs(10);
/// Pause between two slices of a tree walk.
const SLICE_PAUSE: Duration = Duration::from_millis(1);
/// Interval at which the CSE reads the clocks, so that it notices a clock step while idle.
const CLOCKS_EVERY: Duration = Duration::from_mins(1);
/// Octets of an HTTP body beyond the CSE's own limit, so that the CSE sends the refusal itself.
const BODY_SLACK: usize = 1_024;

/// Configuration of a running CSE.
#[derive(Clone, Debug)]
pub struct CseServerConfig {
    /// Its identity, originators and limits.
    pub cse: gatewright_onem2m::CseConfig,
    /// HTTP listeners; port 0 takes a free one.
    pub listen: Vec<SocketAddr>,
    /// HTTP listeners over TLS, used if it has a certificate.
    pub listen_tls: Vec<SocketAddr>,
    /// CoAP listeners over UDP without encryption; port 0 takes a free one.
    pub listen_coap: Vec<SocketAddr>,
    /// WebSocket listeners without encryption; port 0 takes a free one.
    pub listen_ws: Vec<SocketAddr>,
    /// WebSocket listeners over TLS, used if it has a certificate.
    pub listen_wss: Vec<SocketAddr>,
    /// MQTT broker for requests: `mqtt://[USER:PASSWORD@]HOST[:PORT]`, or `mqtts://` with a
    /// certificate.
    pub mqtt: Option<String>,
    /// Its certificate and the authorities it trusts.
    pub tls: Option<Tls>,
    /// Its database; without one it stores nothing.
    pub store: Option<PathBuf>,
    /// Options of the database.
    pub options: DatabaseOptions,
    /// Connections at a time.
    pub connections_max: usize,
    /// Connections of one address at a time.
    pub connections_per_peer_max: usize,
    /// Request limits of one peer.
    pub quota: Quota,
    /// Whether peers may have requests sent to this machine's own addresses although the CSE
    /// listens beyond loopback.
    pub reach_own: bool,
    /// The only networks that peers may have asked; all if there is none.
    pub reach_only: Vec<Prefix>,
    /// Networks that peers may not have asked.
    pub reach_not: Vec<Prefix>,
}

impl CseServerConfig {
    /// A CSE without listeners and without a database.
    pub fn new(cse: gatewright_onem2m::CseConfig) -> Self {
        Self {
            cse,
            listen: Vec::new(),
            listen_tls: Vec::new(),
            listen_coap: Vec::new(),
            listen_ws: Vec::new(),
            listen_wss: Vec::new(),
            mqtt: None,
            tls: None,
            store: None,
            options: DatabaseOptions::default(),
            connections_max: 4_096,
            connections_per_peer_max: 1_024,
            quota: Quota::default(),
            reach_own: false,
            reach_only: Vec::new(),
            reach_not: Vec::new(),
        }
    }

    /// Which addresses peers may have asked.
    fn reach(&self) -> ReachRules {
        let (only, not) = (self.reach_only.clone(), self.reach_not.clone());
        ReachRules { own: self.reaches_own(), only, not }
    }

    /// Whether peers may have this machine's own addresses asked; always if the CSE listens on
    /// loopback only, since no other host can send it requests.
    fn reaches_own(&self) -> bool {
        let lists =
            [&self.listen, &self.listen_tls, &self.listen_coap, &self.listen_ws, &self.listen_wss];
        let is_local_broker = |url: &String| {
            ["://127.0.0.1", "://localhost", "://[::1]", "@127.0.0.1", "@localhost"]
                .iter()
                .any(|host| url.contains(host))
        };
        self.reach_own
            || (lists.into_iter().flatten().all(is_loopback)
                && self.mqtt.iter().all(is_local_broker))
    }
}

/// Why a CSE does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The database cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The database at this path cannot be read.
    #[error(
        "{}: {source}: `gatewright store verify` shows what is wrong, `store salvage` saves what is \
         whole, `store restore` puts a backup in its place",
        path.display()
    )]
    Database {
        /// The database.
        path: PathBuf,
        /// The cause.
        source: StoreError,
    },
    /// The database at this path has no readable CSEBase.
    #[error("{}: {cause}", path.display())]
    Tree {
        /// The database.
        path: PathBuf,
        /// The cause.
        cause: NoBase,
    },
    /// The database at this path belongs to another CSE, or to this one under another name.
    #[error(
        "{}: the database of the CSE {stored}, and the description says {configured}: resources, \
         rights and registrations in it go by the stored names: write them in the description to go \
         on with it, or give another path as `store` to begin with an empty one; this file stays as \
         it is",
        path.display()
    )]
    Identity {
        /// The database.
        path: PathBuf,
        /// The identity in it.
        stored: Box<CseIdentity>,
        /// The identity in the configuration.
        configured: Box<CseIdentity>,
    },
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The broker's URL is invalid.
    #[error(transparent)]
    Broker(#[from] UrlError),
    /// A listener's address cannot be bound.
    #[error(transparent)]
    Listen(#[from] CannotListen),
    /// The system gives no thread for the writer.
    #[error("no thread for the writer: {0}")]
    Thread(#[source] io::Error),
}

/// A running CSE.
#[derive(Debug)]
pub struct RunningCse {
    context: ListenerContext,
    listeners: Mutex<Listeners>,
    mqtt: Option<Arc<Broker>>,
    unreadable: Vec<Unreadable>,
    remembered_damaged: Vec<u64>,
    blocks_damaged: usize,
    stop: watch::Sender<bool>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    descriptors: Claim,
    reach: Arc<Reach>,
}

/// State shared by the listeners.
#[derive(Clone, Debug)]
struct ListenerContext {
    http: HttpServer,
    ws: Arc<ws::WsServer<Engine>>,
    coap: Arc<CoapSockets>,
    keyring: Option<Arc<Keyring>>,
    stopped: watch::Receiver<bool>,
}

/// Starts a CSE on the current runtime.
///
/// # Errors
///
/// [`StartError`]: either every listener is bound or the CSE does not start.
#[expect(clippy::unused_async, reason = "it is to be called on the runtime that serves it")]
pub async fn start(config: CseServerConfig) -> Result<RunningCse, StartError> {
    let stored = match &config.store {
        Some(path) => OpenedStore::open(path, &config.options)?,
        None => OpenedStore::in_memory(&config.options)?,
    };
    let descriptors = Claim::new(descriptors(&config));
    let reach = Arc::new(Reach::new(config.reach()));
    let body_octets_max = body_octets_max(&config);
    let keys = config.tls.as_ref().map(Keys::read).transpose()?;
    let keyring = keys.map(Keyring::new);
    let client_tls = keyring.as_ref().map(Keyring::client).transpose()?;
    let identity = identity(&config.cse);
    let bound = places(&config).into_iter().map(Bound::take).collect::<Result<Vec<_>, _>>()?;
    let mqtt = broker(&config, &identity, client_tls.as_ref())?;
    let own = Arc::new((config.cse.cse_id.clone(), config.cse.provider.clone()));
    let mut cse_config = config.cse;
    if cse_config.points_of_access.is_empty() {
        let registrar = cse_config.registrar.as_ref().map(|registrar| registrar.url.as_str());
        let urls = bound.iter().filter_map(|bound| bound.told(registrar));
        let broker = mqtt.iter().map(|broker| broker.url().shown());
        cse_config.points_of_access = urls.chain(broker).collect();
    }
    let Opened { database, cse, unreadable, remembered_damaged, blocks_damaged } =
        stored.machine(cse_config, &config.store.unwrap_or_default())?;
    let (outgoing, calls) = mpsc::channel(CALLS_MAX);
    let engine = Engine::new(cse, outgoing, Quotas::new(config.quota));
    let (reports, reads) = begin(&engine, database)?;
    let (stop, stopped) = watch::channel(false);
    let peers = Arc::new(Peers::new(config.connections_per_peer_max));
    let http = HttpServer {
        engine: Arc::clone(&engine),
        body_octets_max,
        admission: Admission::new(config.connections_max, &peers),
        counters: Arc::new(ServerCounters::default()),
        own: Arc::clone(&own),
    };
    engine.send_by(sender(client_tls, identity, &engine, mqtt.as_ref()));
    let mut tasks = vec![
        spawn(take_reports(Arc::downgrade(&engine), reports)),
        spawn(take_reads(Arc::downgrade(&engine), reads)),
        spawn(keep_time(Arc::clone(&engine), stopped.clone())),
        spawn(send_calls(Arc::downgrade(&engine), calls, Arc::clone(&reach), stopped.clone())),
    ];
    if let Some(broker) = &mqtt {
        let serving = Arc::clone(broker).run(Arc::clone(&engine), stopped.clone());
        tasks.push(spawn(serving));
    }
    let context = ListenerContext::new(http, (keyring, config.connections_max), stopped);
    let listeners = Listeners::new(bound.into_iter().map(|bound| context.serve(bound)).collect());
    Ok(RunningCse {
        context,
        listeners,
        mqtt,
        unreadable,
        remembered_damaged,
        blocks_damaged,
        stop,
        tasks,
        descriptors,
        reach,
    })
}

/// An opened database.
#[derive(Debug)]
struct OpenedStore {
    database: Database,
    /// Of a file, its rows of an earlier run, and the number of the next one.
    stored: Option<(StoredRows, u64)>,
}

/// The machine with stored rows.
#[derive(Debug)]
struct Opened {
    database: Database,
    cse: Cse,
    /// Rows that are not served, and why.
    unreadable: Vec<Unreadable>,
    remembered_damaged: Vec<u64>,
    /// Damaged blocks of records, whose rows were read instead.
    blocks_damaged: usize,
}

impl StartError {
    /// Why the database at a path is not opened: most errors name it themselves.
    fn of(path: &Path, error: StoreError) -> Self {
        match error {
            source @ StoreError::Database(_) => Self::Database { path: path.to_owned(), source },
            other => Self::Store(other),
        }
    }

    /// Why the tree in the database at a path is not opened.
    fn of_tree(path: &Path, cause: NoBase) -> Self {
        let path = path.to_owned();
        match cause {
            NoBase::Other { stored, configured } => Self::Identity { path, stored, configured },
            cause => Self::Tree { path, cause },
        }
    }
}

impl OpenedStore {
    fn open(path: &Path, options: &DatabaseOptions) -> Result<Self, StartError> {
        let opened = Database::open_reading(path, options);
        let (database, rows, next_seq) = opened.map_err(|error| StartError::of(path, error))?;
        Ok(Self { database, stored: Some((rows, next_seq)) })
    }

    fn in_memory(options: &DatabaseOptions) -> Result<Self, StoreError> {
        let (database, _) = Database::in_memory(options)?;
        Ok(Self { database, stored: None })
    }

    /// Opens the machine with the stored rows.
    fn machine(
        self,
        mut config: gatewright_onem2m::CseConfig,
        path: &Path,
    ) -> Result<Opened, StartError> {
        let Self { mut database, stored } = self;
        let tree = |cause| StartError::of_tree(path, cause);
        let Some((mut rows, next_seq)) = stored else {
            // There is no file to read instances from.
            config.limits.resident_octets = None;
            let (cse, unreadable) = Cse::open(config, now(), [], 1).map_err(tree)?;
            let (remembered_damaged, blocks_damaged) = (Vec::new(), 0);
            return Ok(Opened { database, cse, unreadable, remembered_damaged, blocks_damaged });
        };
        let opened = Cse::open_stored(config, now(), &mut rows, next_seq);
        let ended = rows.end().map_err(|error| StartError::of(path, error))?;
        let RestoredMarks { damaged, remembered_damaged, blocks_damaged, .. } = ended;
        // What a damaged row says is not known: the machine has seen an empty one.
        let explain = |found: Unreadable| {
            // Rows are read in ascending order.
            let is_changed = damaged.binary_search(&found.row).is_ok();
            if is_changed { Unreadable { damage: Damage::Checksum, ..found } } else { found }
        };
        let (cse, unreadable) = opened.map_err(|cause| {
            tree(match cause {
                NoBase::Damaged(first) => NoBase::Damaged(explain(first)),
                other => other,
            })
        })?;
        let unreadable = unreadable.into_iter().map(explain).collect();
        let count = blocks_damaged.len();
        database.make_blocks_anew(blocks_damaged);
        Ok(Opened { database, cse, unreadable, remembered_damaged, blocks_damaged: count })
    }
}

/// Octets of a request body at most.
const fn body_octets_max(config: &CseServerConfig) -> usize {
    config.cse.limits.content_octets.saturating_add(BODY_SLACK)
}

/// Addresses to listen on: TLS only with a certificate.
fn places(config: &CseServerConfig) -> Vec<ListenerAddress> {
    let over_tls = |addresses: &Vec<SocketAddr>| {
        if config.tls.is_some() { addresses.clone() } else { Vec::new() }
    };
    let all = [
        (ListenerKind::Http, config.listen.clone()),
        (ListenerKind::Https, over_tls(&config.listen_tls)),
        (ListenerKind::Coap, config.listen_coap.clone()),
        (ListenerKind::Ws, config.listen_ws.clone()),
        (ListenerKind::Wss, over_tls(&config.listen_wss)),
    ];
    let places =
        all.into_iter().map(|(kind, at)| at.into_iter().map(move |address| (kind, address)));
    places.flatten().map(|(kind, address)| ListenerAddress { kind, address }).collect()
}

/// The MQTT broker that requests come from, if configured.
fn broker(
    config: &CseServerConfig,
    identity: &MqttIdentity,
    tls: Option<&ClientConfig>,
) -> Result<Option<Arc<Broker>>, UrlError> {
    let url = config.mqtt.as_deref().map(Url::parse).transpose()?;
    Ok(url.map(|url| {
        let tls = tls.cloned().map(Arc::new);
        Arc::new(Broker::new(url, identity, tls, body_octets_max(config)))
    }))
}

impl ListenerContext {
    fn new(
        http: HttpServer,
        (keyring, connections_max): (Option<Arc<Keyring>>, usize),
        stopped: watch::Receiver<bool>,
    ) -> Self {
        let ws = Arc::new(ws::WsServer {
            answers: Arc::clone(&http.engine),
            content_octets_max: http.body_octets_max,
            admission: http.admission.beside(connections_max),
            quotas: Arc::clone(http.engine.quotas()),
            counters: Arc::default(),
            own: Arc::clone(&http.own),
        });
        Self { http, ws, coap: Arc::default(), keyring, stopped }
    }

    /// Serves a bound listener.
    fn serve(&self, bound: Bound) -> ServedListener {
        let Bound { place, at, socket } = bound;
        let entry = || match (&self.keyring, place.kind) {
            (Some(keyring), ListenerKind::Https | ListenerKind::Wss) => {
                ListenerSecurity::Tls(Arc::clone(keyring))
            }
            _ => ListenerSecurity::Plain,
        };
        match (socket, place.kind) {
            (listeners::BoundSocket::Datagrams(udp), _) => {
                let socket = Arc::new(CoapSocket::new(udp, self.http.body_octets_max));
                let (sockets, engine) = (Arc::clone(&self.coap), Arc::clone(&self.http.engine));
                ServedListener::open((place, at), |leaves, _| async move {
                    sockets.begin(&socket);
                    Arc::clone(&socket).run(engine, leaves).await;
                    sockets.end(&socket);
                })
            }
            (listeners::BoundSocket::Stream(listener), ListenerKind::Ws | ListenerKind::Wss) => {
                let (ws, stopped) = (Arc::clone(&self.ws), self.stopped.clone());
                ServedListener::open((place, at), |leaves, _| {
                    ws.run(listener, entry(), leaves, stopped)
                })
            }
            (listeners::BoundSocket::Stream(listener), _) => {
                ServedListener::open((place, at), |leaves, _| {
                    self.http.clone().run(listener, entry(), leaves)
                })
            }
        }
    }
}

/// The CoAP sockets, and the counters of closed ones.
#[derive(Debug, Default)]
struct CoapSockets(Mutex<Sockets>);

#[derive(Debug, Default)]
struct Sockets {
    open: Vec<Arc<CoapSocket>>,
    /// Sums of the closed sockets.
    past: Vec<(&'static str, u64)>,
}

impl CoapSockets {
    fn lock(&self) -> MutexGuard<'_, Sockets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, socket: &Arc<CoapSocket>) {
        self.lock().open.push(Arc::clone(socket));
    }

    fn end(&self, socket: &Arc<CoapSocket>) {
        let mut all = self.lock();
        all.open.retain(|one| !Arc::ptr_eq(one, socket));
        add(&mut all.past, socket);
    }

    /// The sums of all sockets.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        let all = self.lock();
        let mut sums = all.past.clone();
        all.open.iter().for_each(|socket| add(&mut sums, socket));
        sums
    }
}

/// Adds a socket's counters to `sums`.
fn add(sums: &mut Vec<(&'static str, u64)>, socket: &CoapSocket) {
    for (name, count) in socket.counters().each() {
        match sums.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += count,
            None => sums.push((name, count)),
        }
    }
}

/// Starts the engine's writer and its reader; their reports arrive at the returned receivers.
fn begin(
    engine: &Engine,
    database: Database,
) -> Result<(mpsc::Receiver<TimedReport>, mpsc::Receiver<ReadReport>), StartError> {
    let (reporter, reports) = mpsc::channel(REPORTS_MAX);
    let (reads_reporter, reads) = mpsc::channel(READS_MAX);
    let reader = database.reader(move |report| {
        let _nobody = reads_reporter.blocking_send(report);
    });
    let reader = reader.map_err(StartError::Thread)?;
    let writer = database.start(move |report| {
        // Without receiver the engine is gone, and nobody waits.
        let _nobody = reporter.blocking_send((Instant::now(), report));
    });
    engine.begin(writer.map_err(StartError::Thread)?, reader);
    Ok((reports, reads))
}

/// File descriptors that its connections need, outgoing ones included.
fn descriptors(config: &CseServerConfig) -> u64 {
    let http = !(config.listen.is_empty() && config.listen_tls.is_empty());
    let ws = !(config.listen_ws.is_empty() && config.listen_wss.is_empty());
    let most = u64::try_from(config.connections_max).unwrap_or(u64::MAX);
    let taken = most.saturating_mul(u64::from(http) + u64::from(ws));
    taken.saturating_add(u64::try_from(SENT_AT_ONCE).unwrap_or(u64::MAX))
}

/// MQTT identity of a CSE (TS-0010 §6.3).
fn identity(cse: &gatewright_onem2m::CseConfig) -> MqttIdentity {
    let client = format!("C::{}", cse.cse_id.trim_start_matches('/'));
    MqttIdentity { id: cse.cse_id.clone(), provider: cse.provider.clone(), client, serves: true }
}

/// The sender of a CSE's outgoing requests.
fn sender(
    tls: Option<ClientConfig>,
    identity: MqttIdentity,
    engine: &Arc<Engine>,
    broker: Option<&Arc<Broker>>,
) -> Sender {
    let id = identity.id.clone();
    let sender = Sender::new(tls).with_identity(identity).serving(&id, engine);
    if let Some(broker) = broker {
        sender.share(broker);
    }
    sender
}

/// Runs a CSE until `until` completes.
///
/// # Errors
///
/// As [`start`].
pub async fn serve(
    config: CseServerConfig,
    until: impl Future<Output = ()>,
) -> Result<(), StartError> {
    let running = start(config).await?;
    until.await;
    running.stop().await;
    Ok(())
}

impl RunningCse {
    /// HTTP listeners: plain first, then TLS, each in the order given.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        Listeners::at(&self.listeners, &[ListenerKind::Http, ListenerKind::Https])
    }

    /// CoAP listeners, in the order given.
    pub fn coap_addresses(&self) -> impl Iterator<Item = SocketAddr> + use<> {
        Listeners::at(&self.listeners, &[ListenerKind::Coap]).into_iter()
    }

    /// WebSocket listeners, in the order given.
    pub fn ws_addresses(&self) -> Vec<SocketAddr> {
        Listeners::at(&self.listeners, &[ListenerKind::Ws])
    }

    /// WebSocket listeners over TLS, in the order given.
    pub fn wss_addresses(&self) -> Vec<SocketAddr> {
        Listeners::at(&self.listeners, &[ListenerKind::Wss])
    }

    /// URLs at which it can be reached, its brokers last.
    pub fn urls(&self) -> Vec<String> {
        let mut urls = Listeners::urls(&self.listeners);
        urls.extend(self.broker());
        urls
    }

    /// URL of its MQTT broker without the password, if it has one.
    pub fn broker(&self) -> Option<String> {
        self.mqtt.as_ref().map(|broker| broker.url().shown())
    }

    /// The engine, for requests without a socket.
    pub const fn engine(&self) -> &Arc<Engine> {
        &self.context.http.engine
    }

    /// Takes from `config` the originators, the administrator, the limits, the registrar's URL, the
    /// peers' quota and whether their requests are audited. Listeners are
    /// [exchanged](Self::exchange_listeners); everything else needs a restart.
    pub fn reconfigure(&self, config: CseServerConfig) {
        self.engine().quotas().set(config.quota);
        self.reach.set(config.reach());
        self.context.http.admission.set_most_of_one(config.connections_per_peer_max);
        let mut machine = config.cse;
        if machine.points_of_access.is_empty() {
            let registrar = machine.registrar.as_ref().map(|registrar| registrar.url.as_str());
            let urls = Listeners::told(&self.listeners, registrar).into_iter();
            machine.points_of_access = urls.chain(self.broker()).collect();
        }
        self.engine().reconfigure(machine);
    }

    /// Opens the new listeners of `config`; those no longer configured close when the exchange is
    /// settled.
    pub(crate) async fn exchange_listeners(
        &self,
        config: &CseServerConfig,
    ) -> Result<ExchangedListeners, CannotListen> {
        let serve = |bound| self.context.serve(bound);
        Listeners::exchange(&self.listeners, &places(config), &serve).await
    }

    /// Closes the listeners that are no longer configured.
    pub(crate) fn settle_listeners(&self, exchanged: &ExchangedListeners) {
        Listeners::settle(&self.listeners, exchanged);
    }

    /// Restores the previous listeners.
    pub(crate) async fn undo_listeners(&self, exchanged: ExchangedListeners) {
        Listeners::undo(&self.listeners, exchanged, &|bound| self.context.serve(bound)).await;
    }

    /// Its certificates, if it has any.
    pub(crate) const fn keyring(&self) -> Option<&Arc<Keyring>> {
        self.context.keyring.as_ref()
    }

    /// Shortfall of file descriptors for all connections that may be accepted.
    pub const fn shortage(&self) -> Option<Shortage> {
        self.descriptors.shortage()
    }

    /// Stored rows that could not be parsed and were left out of the tree; they stay in the store.
    pub fn unreadable(&self) -> Vec<Unreadable> {
        let mut all = self.unreadable.clone();
        all.extend(self.engine().unreadable());
        all
    }

    /// Numbers of the stored lines of remembered requests that could not be read.
    pub fn remembered_damaged(&self) -> &[u64] {
        &self.remembered_damaged
    }

    /// Damaged blocks of records that the start has found: it has read their rows instead, and they
    /// are made anew.
    pub const fn blocks_damaged(&self) -> usize {
        self.blocks_damaged
    }

    /// Every counter of the CSE, store and sockets, with its name.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let (engine, ListenerContext { http, ws, coap, .. }) = (self.engine(), &self.context);
        let mut all: Vec<_> = engine.counters().each().collect();
        if let Some(store) = engine.store_counters() {
            all.extend([
                ("store_commits", store.commits),
                ("store_batches", store.batches),
                ("store_records", store.records),
                ("store_failures", store.failures),
                ("store_stale", store.stale),
                ("store_intrusions", store.intrusions),
                ("store_blocks", store.blocks),
                ("store_audited", store.audited),
                ("store_audit_lost", store.audit_lost),
                ("store_audit_dropped", store.audit_dropped),
            ]);
        }
        let revoked = self.keyring().map(|keyring| keyring.revoked().0);
        all.push(("certificates_revoked", revoked.unwrap_or(0)));
        all.push(("calls_full", engine.calls_full()));
        all.push(("calls_to_own_addresses", self.reach.refused()));
        all.push(("http_connections_refused", http.admission.refused()));
        all.push(("ws_connections_refused", ws.admission.refused()));
        for (name, counter) in [
            ("http_connections", &http.counters.connections),
            ("tls_handshakes_failed", &http.counters.handshakes_failed),
            ("http_bodies_refused", &http.counters.bodies_refused),
            ("http_connections_silent", &http.counters.endings.silent),
            ("http_connections_stuck", &http.counters.endings.stuck),
        ] {
            all.push((name, counter.load(Ordering::Relaxed)));
        }
        let refused = engine.quotas().counters();
        all.push(("peer_requests_too_often", refused.too_often));
        all.push(("peer_requests_too_many", refused.too_much));
        all.push(("peer_bodies_too_many", refused.arriving));
        all.extend(ws.counters.each());
        all.extend(self.mqtt.iter().flat_map(|broker| broker.counters().each()));
        all.extend(coap.counters());
        all
    }

    /// Stops accepting requests, stores pending ones, and returns when everything is on disk.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        let listeners = Listeners::close(&self.listeners);
        let engine = Arc::clone(self.engine());
        // The writer is waited for on a thread that may block.
        let end = tokio::task::spawn_blocking(move || engine.end());
        let ((), _) = tokio::join!(listeners, end);
        for task in self.tasks {
            let _ = task.await;
        }
    }
}

/// Takes the writer's reports until it has ended. Answers are sent from here and not from the
/// writer's thread: waking each caller from outside the runtime costs a system call.
///
/// A report waits here behind everything that the runtime has to do, as the octets of a device do:
/// how long it has waited is by how much answers are late, whatever time the disk takes.
async fn take_reports(engine: Weak<Engine>, mut reports: mpsc::Receiver<TimedReport>) {
    while let Some((made, report)) = reports.recv().await {
        let Some(engine) = engine.upgrade() else { return };
        engine.report(&report, made.elapsed() > LATE_AFTER);
    }
}

/// Takes the reader's reports until it has ended.
async fn take_reads(engine: Weak<Engine>, mut reads: mpsc::Receiver<ReadReport>) {
    while let Some(report) = reads.recv().await {
        let Some(engine) = engine.upgrade() else { return };
        engine.report_read(report);
    }
}

/// Drives the CSE's timers.
async fn keep_time(engine: Arc<Engine>, mut stop: watch::Receiver<bool>) {
    loop {
        let due = engine.tick();
        let due = due.map_or(CLOCKS_EVERY, |due| due.saturating_sub(now().elapsed));
        let mut sleep = due.min(CLOCKS_EVERY);
        if sleep.is_zero() {
            // A walk over the tree goes on: others have their turn as long as it has had its.
            sleep = SLICE_PAUSE;
        }
        if engine.doubted_clock().is_some() {
            if clock_is_set() {
                engine.confirm_clock();
                continue;
            }
            sleep = sleep.min(CONFIRMED_EVERY);
        }
        tokio::select! {
            () = tokio::time::sleep(sleep) => {}
            () = engine.earlier.notified() => {}
            _ = stop.changed() => return,
        }
    }
}
