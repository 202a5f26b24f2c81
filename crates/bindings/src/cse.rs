//! A CSE on the network: what it is given, how it is started and stopped.

use crate::accept::{Gate, Peers};
use crate::calls::{SENT_AT_ONCE, send_calls};
use crate::coap::Socket;
use crate::doors::{self, Bound, Door, Doors, Exchanged, Kind, Place, Refused};
use crate::engine::{CALLS_MAX, Engine, now};
use crate::http::server::{Server, ServerCounters};
use crate::keyring::{Keyring, Keys};
pub use crate::mqtt::UrlError;
use crate::mqtt::{Broker, Speaker, Url};
use crate::outgoing::Sender;
pub use crate::quota::Quota;
use crate::quota::Quotas;
use crate::reach::{Reach, is_loopback};
use crate::tls::{Entry, Tls, TlsError};
use crate::ws;
use core::sync::atomic::Ordering;
use core::time::Duration;
use gatewright_descriptors::{Claim, Shortage};
use gatewright_onem2m::{Cse, NoBase, Unreadable};
use gatewright_store::{Database, Options, Report, StoreError};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::{mpsc, watch};
use tokio_rustls::rustls::ClientConfig;

/// Transactions whose answers wait to be let out; beyond, the writer waits with its next one.
const REPORTS_MAX: usize = 1_024;
/// Where the system's service of time says that it has set the clock since boot.
const TIME_SYNCHRONISED: &str = "/run/systemd/timesync/synchronized";
/// Its longest time between two looks at its server is 2048 s (timesyncd.conf(5)).
const SYNCHRONISED_WITHIN: Duration = Duration::from_secs(2 * 2_048);
/// How often that is looked at while the wall clock is not believed.
const CONFIRMED_EVERY: Duration = Duration::from_secs(10);
/// Between two slices of walks over the tree.
const SLICE_PAUSE: Duration = Duration::from_millis(1);
/// How often the machine hears of the clocks, so that a leap is known though nothing happens.
const CLOCKS_EVERY: Duration = Duration::from_mins(1);
/// Octets of an HTTP body beyond the content that the machine takes: it refuses in its own words.
const BODY_SLACK: usize = 1_024;

/// What a running CSE is made of.
#[derive(Clone, Debug)]
pub struct Config {
    /// Who it is and whom it admits.
    pub cse: gatewright_onem2m::Config,
    /// Where it listens for HTTP; port 0 takes a free one.
    pub listen: Vec<SocketAddr>,
    /// Where it listens for HTTP over TLS, if it has a certificate.
    pub listen_tls: Vec<SocketAddr>,
    /// Where it listens for CoAP, over UDP in the clear; port 0 takes a free one.
    pub listen_coap: Vec<SocketAddr>,
    /// Where it listens for WebSocket, in the clear; port 0 takes a free one.
    pub listen_ws: Vec<SocketAddr>,
    /// Where it listens for WebSocket over TLS, if it has a certificate.
    pub listen_wss: Vec<SocketAddr>,
    /// The broker that it takes MQTT requests from: `mqtt://[USER:PASSWORD@]HOST[:PORT]`, or
    /// `mqtts://` with a certificate.
    pub mqtt: Option<String>,
    /// Its certificate and whom it trusts.
    pub tls: Option<Tls>,
    /// Its database; without one it remembers nothing.
    pub store: Option<PathBuf>,
    /// How the database is kept.
    pub options: Options,
    /// Connections at the same time.
    pub connections_max: usize,
    /// Connections of one address at the same time.
    pub connections_per_peer_max: usize,
    /// What one peer may ask.
    pub quota: Quota,
    /// Whether peers may have this machine's own addresses asked, though the CSE listens elsewhere
    /// than on loopback.
    pub reach_own: bool,
}

impl Config {
    /// A CSE that listens nowhere and remembers nothing.
    pub fn new(cse: gatewright_onem2m::Config) -> Self {
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
            options: Options::default(),
            connections_max: 4_096,
            connections_per_peer_max: 1_024,
            quota: Quota::default(),
            reach_own: false,
        }
    }

    /// Whether peers may have this machine's own addresses asked: nobody else's requests get in where
    /// it listens on loopback only.
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
    /// The database at this path has no readable CSEBase.
    #[error("{}: {cause}", path.display())]
    Tree {
        /// The database.
        path: PathBuf,
        /// What it lacks.
        cause: NoBase,
    },
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The broker cannot be found by its URL.
    #[error(transparent)]
    Broker(#[from] UrlError),
    /// An address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] Refused),
    /// The system gives no thread for the writer.
    #[error("no thread for the writer: {0}")]
    Thread(#[source] io::Error),
}

/// A CSE that runs.
#[derive(Debug)]
pub struct Running {
    rooms: Rooms,
    doors: Mutex<Doors>,
    mqtt: Option<Arc<Broker>>,
    /// Where it is said to be reached, if that was given.
    points_of_access: Vec<String>,
    unreadable: Vec<Unreadable>,
    stop: watch::Sender<bool>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    descriptors: Claim,
    reach: Arc<Reach>,
}

/// What is behind the doors.
#[derive(Clone, Debug)]
struct Rooms {
    http: Server,
    ws: Arc<ws::Server<Engine>>,
    coap: Arc<CoapSockets>,
    keyring: Option<Arc<Keyring>>,
    stopped: watch::Receiver<bool>,
}

/// Starts a CSE on the runtime that this is called on.
///
/// # Errors
///
/// [`StartError`]: it listens everywhere it is told, or does not start.
#[expect(clippy::unused_async, reason = "it is to be called on the runtime that serves it")]
pub async fn start(config: Config) -> Result<Running, StartError> {
    let (database, restored) = match &config.store {
        Some(path) => Database::open(path, &config.options)?,
        None => Database::in_memory(&config.options)?,
    };
    let descriptors = Claim::new(descriptors(&config));
    let reach = Arc::new(Reach::new(config.reaches_own()));
    let body_octets_max = body_octets_max(&config);
    let keys = config.tls.as_ref().map(Keys::read).transpose()?;
    let keyring = keys.map(Keyring::new);
    let client_tls = keyring.as_ref().map(Keyring::client).transpose()?;
    let speaker = speaker(&config.cse);
    let bound = places(&config).into_iter().map(Bound::take).collect::<Result<Vec<_>, _>>()?;
    let mqtt = broker(&config, &speaker, client_tls.as_ref())?;
    let own = Arc::new((config.cse.cse_id.clone(), config.cse.provider.clone()));
    let points_of_access = config.cse.points_of_access.clone();
    let mut cse_config = config.cse;
    if cse_config.points_of_access.is_empty() {
        let urls = bound.iter().map(Bound::url);
        let broker = mqtt.iter().map(|broker| broker.url().shown());
        cse_config.points_of_access = urls.chain(broker).collect();
    }
    let (cse, unreadable) = Cse::open(cse_config, now(), restored.rows, restored.next_seq)
        .map_err(|cause| StartError::Tree { path: config.store.unwrap_or_default(), cause })?;
    let (outgoing, calls) = mpsc::channel(CALLS_MAX);
    let engine = Engine::new(cse, outgoing, Quotas::new(config.quota));
    let reports = begin(&engine, database)?;
    let (stop, stopped) = watch::channel(false);
    let peers = Arc::new(Peers::new(config.connections_per_peer_max));
    let http = Server {
        engine: Arc::clone(&engine),
        body_octets_max,
        gate: Gate::new(config.connections_max, &peers),
        counters: Arc::new(ServerCounters::default()),
        own: Arc::clone(&own),
    };
    engine.send_by(sender(client_tls, speaker, &engine, mqtt.as_ref()));
    let mut tasks = vec![
        tokio::spawn(take_reports(Arc::downgrade(&engine), reports)),
        tokio::spawn(keep_time(Arc::clone(&engine), stopped.clone())),
        tokio::spawn(send_calls(
            Arc::downgrade(&engine),
            calls,
            Arc::clone(&reach),
            stopped.clone(),
        )),
    ];
    if let Some(broker) = &mqtt {
        let serving = Arc::clone(broker).run(Arc::clone(&engine), stopped.clone());
        tasks.push(tokio::spawn(serving));
    }
    let rooms = Rooms::new(http, (keyring, config.connections_max), stopped);
    let doors = Doors::new(bound.into_iter().map(|bound| rooms.serve(bound)).collect());
    Ok(Running {
        rooms,
        doors,
        mqtt,
        points_of_access,
        unreadable,
        stop,
        tasks,
        descriptors,
        reach,
    })
}

/// Octets of a request that are read.
const fn body_octets_max(config: &Config) -> usize {
    config.cse.limits.content_octets.saturating_add(BODY_SLACK)
}

/// Where a CSE is to listen: over TLS only if it has a certificate.
fn places(config: &Config) -> Vec<Place> {
    let over_tls = |addresses: &Vec<SocketAddr>| {
        if config.tls.is_some() { addresses.clone() } else { Vec::new() }
    };
    let all = [
        (Kind::Http, config.listen.clone()),
        (Kind::Https, over_tls(&config.listen_tls)),
        (Kind::Coap, config.listen_coap.clone()),
        (Kind::Ws, config.listen_ws.clone()),
        (Kind::Wss, over_tls(&config.listen_wss)),
    ];
    let places =
        all.into_iter().map(|(kind, at)| at.into_iter().map(move |address| (kind, address)));
    places.flatten().map(|(kind, address)| Place { kind, address }).collect()
}

/// The broker that requests are taken from, if there is one.
fn broker(
    config: &Config,
    speaker: &Speaker,
    tls: Option<&ClientConfig>,
) -> Result<Option<Arc<Broker>>, UrlError> {
    let url = config.mqtt.as_deref().map(Url::parse).transpose()?;
    Ok(url.map(|url| {
        let tls = tls.cloned().map(Arc::new);
        Arc::new(Broker::new(url, speaker, tls, body_octets_max(config)))
    }))
}

impl Rooms {
    fn new(
        http: Server,
        (keyring, connections_max): (Option<Arc<Keyring>>, usize),
        stopped: watch::Receiver<bool>,
    ) -> Self {
        let ws = Arc::new(ws::Server {
            answers: Arc::clone(&http.engine),
            content_octets_max: http.body_octets_max,
            gate: http.gate.beside(connections_max),
            quotas: Arc::clone(http.engine.quotas()),
            counters: Arc::default(),
            own: Arc::clone(&http.own),
        });
        Self { http, ws, coap: Arc::default(), keyring, stopped }
    }

    /// Serves a place.
    fn serve(&self, bound: Bound) -> Door {
        let Bound { place, at, socket } = bound;
        let entry = || match (&self.keyring, place.kind) {
            (Some(keyring), Kind::Https | Kind::Wss) => Entry::Tls(Arc::clone(keyring)),
            _ => Entry::Plain,
        };
        match (socket, place.kind) {
            (doors::Socket::Datagrams(udp), _) => {
                let socket = Arc::new(Socket::new(udp, self.http.body_octets_max));
                let (sockets, engine) = (Arc::clone(&self.coap), Arc::clone(&self.http.engine));
                Door::open((place, at), |leaves, _| async move {
                    sockets.begin(&socket);
                    Arc::clone(&socket).run(engine, leaves).await;
                    sockets.end(&socket);
                })
            }
            (doors::Socket::Stream(listener), Kind::Ws | Kind::Wss) => {
                let (ws, stopped) = (Arc::clone(&self.ws), self.stopped.clone());
                Door::open((place, at), |leaves, _| ws.run(listener, entry(), leaves, stopped))
            }
            (doors::Socket::Stream(listener), _) => Door::open((place, at), |leaves, _| {
                self.http.clone().run(listener, entry(), leaves)
            }),
        }
    }
}

/// The sockets of CoAP, and what was counted at those that have gone.
#[derive(Debug, Default)]
struct CoapSockets(Mutex<Sockets>);

#[derive(Debug, Default)]
struct Sockets {
    open: Vec<Arc<Socket>>,
    /// The sums of those that have gone.
    past: Vec<(&'static str, u64)>,
}

impl CoapSockets {
    fn lock(&self) -> MutexGuard<'_, Sockets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, socket: &Arc<Socket>) {
        self.lock().open.push(Arc::clone(socket));
    }

    fn end(&self, socket: &Arc<Socket>) {
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

/// Adds what a socket has counted.
fn add(sums: &mut Vec<(&'static str, u64)>, socket: &Socket) {
    for (name, count) in socket.counters().each() {
        match sums.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += count,
            None => sums.push((name, count)),
        }
    }
}

/// Gives the engine its writer; what that says comes by what is returned.
fn begin(engine: &Engine, database: Database) -> Result<mpsc::Receiver<Report>, StartError> {
    let (reporter, reports) = mpsc::channel(REPORTS_MAX);
    let writer = database.start(move |report| {
        // Without receiver the engine is gone, and nobody waits.
        let _nobody = reporter.blocking_send(report);
    });
    engine.begin(writer.map_err(StartError::Thread)?);
    Ok(reports)
}

/// Descriptors that its connections need, those to other entities included.
fn descriptors(config: &Config) -> u64 {
    let http = !(config.listen.is_empty() && config.listen_tls.is_empty());
    let ws = !(config.listen_ws.is_empty() && config.listen_wss.is_empty());
    let most = u64::try_from(config.connections_max).unwrap_or(u64::MAX);
    let taken = most.saturating_mul(u64::from(http) + u64::from(ws));
    taken.saturating_add(u64::try_from(SENT_AT_ONCE).unwrap_or(u64::MAX))
}

/// How a CSE is known at brokers (TS-0010 §6.3).
fn speaker(cse: &gatewright_onem2m::Config) -> Speaker {
    let client = format!("C::{}", cse.cse_id.trim_start_matches('/'));
    Speaker { id: cse.cse_id.clone(), provider: cse.provider.clone(), client, serves: true }
}

/// By what a CSE asks others.
fn sender(
    tls: Option<ClientConfig>,
    speaker: Speaker,
    engine: &Arc<Engine>,
    broker: Option<&Arc<Broker>>,
) -> Sender {
    let id = speaker.id.clone();
    let sender = Sender::new(tls).speaking(speaker).serving(&id, engine);
    if let Some(broker) = broker {
        sender.share(broker);
    }
    sender
}

/// Runs a CSE until `until` is over.
///
/// # Errors
///
/// As [`start`].
pub async fn serve(config: Config, until: impl Future<Output = ()>) -> Result<(), StartError> {
    let running = start(config).await?;
    until.await;
    running.stop().await;
    Ok(())
}

impl Running {
    /// Where it listens for HTTP: in the clear first, then over TLS, each in the order given.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        Doors::at(&self.doors, &[Kind::Http, Kind::Https])
    }

    /// Where it listens for CoAP, in the order given.
    pub fn coap_addresses(&self) -> impl Iterator<Item = SocketAddr> + use<> {
        Doors::at(&self.doors, &[Kind::Coap]).into_iter()
    }

    /// Where it listens for WebSocket, in the order given.
    pub fn ws_addresses(&self) -> Vec<SocketAddr> {
        Doors::at(&self.doors, &[Kind::Ws])
    }

    /// Where it listens for WebSocket over TLS, in the order given.
    pub fn wss_addresses(&self) -> Vec<SocketAddr> {
        Doors::at(&self.doors, &[Kind::Wss])
    }

    /// Where it can be reached, as URLs: its brokers last.
    pub fn urls(&self) -> Vec<String> {
        let mut urls = Doors::urls(&self.doors);
        urls.extend(self.broker());
        urls
    }

    /// The broker that it takes MQTT requests from, if there is one: its URL without a password.
    pub fn broker(&self) -> Option<String> {
        self.mqtt.as_ref().map(|broker| broker.url().shown())
    }

    /// The CSE itself: to ask it without a socket.
    pub const fn engine(&self) -> &Arc<Engine> {
        &self.rooms.http.engine
    }

    /// Takes from `config` whom it admits, its administrator and bounds, where its registrar is,
    /// what one peer may ask and whether that is noted; everything else was decided at the start, or
    /// is [exchanged](Self::exchange_doors).
    pub fn reconfigure(&self, config: Config) {
        self.engine().quotas().set(config.quota);
        self.reach.set(config.reaches_own());
        self.rooms.http.gate.set_most_of_one(config.connections_per_peer_max);
        let mut machine = config.cse;
        if self.points_of_access.is_empty() {
            machine.points_of_access = self.urls();
        }
        self.engine().reconfigure(machine);
    }

    /// Opens the doors that `config` asks for and are not there; those that go are given up when
    /// that is settled.
    pub(crate) async fn exchange_doors(&self, config: &Config) -> Result<Exchanged, Refused> {
        let serve = |bound| self.rooms.serve(bound);
        Doors::exchange(&self.doors, &places(config), &serve).await
    }

    /// Gives up the doors that go.
    pub(crate) fn settle_doors(&self, exchanged: &Exchanged) {
        Doors::settle(&self.doors, exchanged);
    }

    /// Makes the doors what they were.
    pub(crate) async fn undo_doors(&self, exchanged: Exchanged) {
        Doors::undo(&self.doors, exchanged, &|bound| self.rooms.serve(bound)).await;
    }

    /// Its certificates, if it has any.
    pub(crate) const fn keyring(&self) -> Option<&Arc<Keyring>> {
        self.rooms.keyring.as_ref()
    }

    /// What the system allows too little of for all connections that may be taken.
    pub const fn shortage(&self) -> Option<Shortage> {
        self.descriptors.shortage()
    }

    /// Stored rows that could not be read and were left out; they stay in the store.
    pub fn unreadable(&self) -> &[Unreadable] {
        &self.unreadable
    }

    /// Every counter of machine, store and sockets with its name.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let (engine, Rooms { http, ws, coap, .. }) = (self.engine(), &self.rooms);
        let mut all: Vec<_> = engine.counters().each().collect();
        if let Some(store) = engine.store_counters() {
            all.extend([
                ("store_commits", store.commits),
                ("store_batches", store.batches),
                ("store_records", store.records),
                ("store_failures", store.failures),
                ("store_stale", store.stale),
                ("store_audited", store.audited),
                ("store_audit_lost", store.audit_lost),
                ("store_audit_dropped", store.audit_dropped),
            ]);
        }
        all.push(("calls_full", engine.calls_full()));
        all.push(("calls_to_own_addresses", self.reach.refused()));
        all.push(("http_connections_refused", http.gate.refused()));
        all.push(("ws_connections_refused", ws.gate.refused()));
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

    /// Takes no more requests, stores what was taken, and returns when all of it is on disk.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        let doors = Doors::close(&self.doors);
        let engine = Arc::clone(self.engine());
        // The writer is waited for on a thread that may block.
        let end = tokio::task::spawn_blocking(move || engine.end());
        let ((), _) = tokio::join!(doors, end);
        for task in self.tasks {
            let _ = task.await;
        }
    }
}

/// Takes what the writer says until it has ended. The answers are let out here and not on the
/// writer's thread: to wake each who waits from outside of the runtime takes a system call.
async fn take_reports(engine: Weak<Engine>, mut reports: mpsc::Receiver<Report>) {
    while let Some(report) = reports.recv().await {
        let Some(engine) = engine.upgrade() else { return };
        engine.report(&report);
    }
}

/// Whether the system's service of time has set the wall clock lately: it touches this file whenever
/// it has (systemd-timesyncd.service(8)), and a clock that has been set by hand since shows another
/// time.
fn clock_is_set() -> bool {
    let touched = std::fs::metadata(TIME_SYNCHRONISED).and_then(|file| file.modified());
    touched.is_ok_and(|touched| {
        let now = std::time::SystemTime::now();
        let apart = now.duration_since(touched).unwrap_or_else(|error| error.duration());
        apart <= SYNCHRONISED_WITHIN
    })
}

/// Lets the machine's time pass.
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
