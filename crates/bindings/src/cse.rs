//! A CSE on the network: what it is given, how it is started and stopped.

use crate::accept::{Gate, Peers};
use crate::calls::{SENT_AT_ONCE, send_calls};
use crate::coap::Socket;
use crate::engine::{CALLS_MAX, Engine, now};
use crate::http::server::{Server, ServerCounters};
use crate::keyring::{Keyring, Keys};
pub use crate::mqtt::UrlError;
use crate::mqtt::{Broker, Speaker, Url};
use crate::outgoing::Sender;
pub use crate::quota::Quota;
use crate::quota::Quotas;
use crate::tls::{Entry, Tls, TlsError};
use crate::ws;
use core::sync::atomic::Ordering;
use core::time::Duration;
use gatewright_descriptors::{Claim, Shortage};
use gatewright_onem2m::Cse;
use gatewright_store::{Database, Options, Report, StoreError};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_rustls::rustls::ClientConfig;

/// Transactions whose answers wait to be let out; beyond, the writer waits with its next one.
const REPORTS_MAX: usize = 1_024;
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
    /// Whether each request is noted in the audit log.
    pub audit: bool,
    /// Connections at the same time.
    pub connections_max: usize,
    /// Connections of one address at the same time.
    pub connections_per_peer_max: usize,
    /// What one peer may ask.
    pub quota: Quota,
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
            audit: false,
            connections_max: 4_096,
            connections_per_peer_max: 1_024,
            quota: Quota::default(),
        }
    }
}

/// Why a CSE does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The database cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The broker cannot be found by its URL.
    #[error(transparent)]
    Broker(#[from] UrlError),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The system gives no thread for the writer.
    #[error("no thread for the writer: {0}")]
    Thread(#[source] io::Error),
}

/// A CSE that runs.
#[derive(Debug)]
pub struct Running {
    engine: Arc<Engine>,
    addresses: Vec<SocketAddr>,
    coap: Vec<(Arc<Socket>, SocketAddr)>,
    mqtt: Option<Arc<Broker>>,
    ws: Ws,
    unreadable_rows: usize,
    http: Server,
    keyring: Option<Arc<Keyring>>,
    stop: watch::Sender<bool>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    descriptors: Claim,
}

/// Where WebSocket is listened for, and what was counted there.
#[derive(Debug)]
struct Ws {
    plain: Vec<SocketAddr>,
    tls: Vec<SocketAddr>,
    counters: Arc<ws::Counters>,
    gate: Gate,
}

/// Starts a CSE on the runtime that this is called on.
///
/// # Errors
///
/// [`StartError`]: it listens everywhere it is told, or does not start.
pub async fn start(config: Config) -> Result<Running, StartError> {
    let (database, restored) = match &config.store {
        Some(path) => Database::open(path, &config.options)?,
        None => Database::in_memory(&config.options)?,
    };
    let descriptors = Claim::new(descriptors(&config));
    let body_octets_max = config.cse.limits.content_octets.saturating_add(BODY_SLACK);
    let keys = config.tls.as_ref().map(Keys::read).transpose()?;
    let keyring = keys.map(Keyring::new);
    let client_tls = keyring.as_ref().map(Keyring::client).transpose()?;
    let speaker = speaker(&config.cse);
    let doors =
        Doors::open(&config, &speaker, (keyring.as_ref(), client_tls.as_ref()), body_octets_max)
            .await?;
    let own = Arc::new((config.cse.cse_id.clone(), config.cse.provider.clone()));
    let mut cse_config = config.cse;
    cse_config.outcomes = config.audit;
    if cse_config.points_of_access.is_empty() {
        cse_config.points_of_access = doors.urls();
    }
    let (cse, unreadable_rows) = Cse::open(cse_config, now(), restored.rows, restored.next_seq);
    let (outgoing, calls) = mpsc::channel(CALLS_MAX);
    let engine = Engine::new(cse, outgoing, config.audit, Quotas::new(config.quota));
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
    engine.send_by(sender(client_tls, speaker, &engine, doors.mqtt.as_ref()));
    let mut tasks = vec![
        tokio::spawn(take_reports(Arc::downgrade(&engine), reports)),
        tokio::spawn(keep_time(Arc::clone(&engine), stopped.clone())),
        tokio::spawn(send_calls(Arc::downgrade(&engine), calls, stopped.clone())),
    ];
    let Doors { listeners, coap, mqtt, ws } = doors;
    let addresses = listeners.iter().map(|((_, address), _)| *address).collect();
    for ((listener, _), entry) in listeners {
        tasks.push(tokio::spawn(http.clone().run(listener, entry, stopped.clone())));
    }
    for (socket, _) in &coap {
        let serving = Arc::clone(socket).run(Arc::clone(&engine), stopped.clone());
        tasks.push(tokio::spawn(serving));
    }
    if let Some(broker) = &mqtt {
        let serving = Arc::clone(broker).run(Arc::clone(&engine), stopped.clone());
        tasks.push(tokio::spawn(serving));
    }
    let ws = run_ws(ws, (&http, config.connections_max), &stopped, &mut tasks);
    Ok(Running {
        engine,
        addresses,
        coap,
        mqtt,
        ws,
        unreadable_rows,
        http,
        keyring,
        stop,
        tasks,
        descriptors,
    })
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

/// Starts serving WebSocket at each listener.
fn run_ws(
    listeners: Vec<((TcpListener, SocketAddr), Entry)>,
    (http, connections_max): (&Server, usize),
    stopped: &watch::Receiver<bool>,
    tasks: &mut Vec<tokio::task::JoinHandle<()>>,
) -> Ws {
    let server = Arc::new(ws::Server {
        answers: Arc::clone(&http.engine),
        content_octets_max: http.body_octets_max,
        gate: http.gate.beside(connections_max),
        quotas: Arc::clone(http.engine.quotas()),
        counters: Arc::default(),
        own: Arc::clone(&http.own),
    });
    let (mut plain, mut tls) = (Vec::new(), Vec::new());
    for ((listener, address), entry) in listeners {
        let addresses = if matches!(entry, Entry::Plain) { &mut plain } else { &mut tls };
        addresses.push(address);
        tasks.push(tokio::spawn(Arc::clone(&server).run(listener, entry, stopped.clone())));
    }
    Ws { plain, tls, counters: Arc::clone(&server.counters), gate: server.gate.clone() }
}

/// How a CSE is known at brokers (TS-0010 §6.3).
fn speaker(cse: &gatewright_onem2m::Config) -> Speaker {
    let client = format!("C::{}", cse.cse_id.trim_start_matches('/'));
    Speaker { id: cse.cse_id.clone(), client, serves: true }
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

/// Everything that a CSE listens at.
struct Doors {
    listeners: Vec<((TcpListener, SocketAddr), Entry)>,
    coap: Vec<(Arc<Socket>, SocketAddr)>,
    mqtt: Option<Arc<Broker>>,
    ws: Vec<((TcpListener, SocketAddr), Entry)>,
}

impl Doors {
    async fn open(
        config: &Config,
        speaker: &Speaker,
        (keyring, client_tls): (Option<&Arc<Keyring>>, Option<&ClientConfig>),
        body_octets_max: usize,
    ) -> Result<Self, StartError> {
        let listeners = entries(&config.listen, &config.listen_tls, keyring).await?;
        let ws = entries(&config.listen_ws, &config.listen_wss, keyring).await?;
        let coap = listen_coap(&config.listen_coap, body_octets_max).await?;
        let url = config.mqtt.as_deref().map(Url::parse).transpose()?;
        let mqtt = url.map(|url| {
            let tls = client_tls.cloned().map(Arc::new);
            Arc::new(Broker::new(url, speaker, tls, body_octets_max))
        });
        Ok(Self { listeners, coap, mqtt, ws })
    }

    /// Where it can be reached.
    fn urls(&self) -> Vec<String> {
        let http = self.listeners.iter().map(|((_, address), entry)| match entry {
            Entry::Plain => format!("http://{address}"),
            Entry::Tls(_) => format!("https://{address}"),
        });
        let coap = self.coap.iter().map(|(_, address)| format!("coap://{address}"));
        let mqtt = self.mqtt.iter().map(|broker| broker.url().shown());
        let ws = self.ws.iter().map(|((_, address), entry)| match entry {
            Entry::Plain => format!("ws://{address}"),
            Entry::Tls(_) => format!("wss://{address}"),
        });
        http.chain(coap).chain(ws).chain(mqtt).collect()
    }
}

/// Listens at these addresses, in the clear first, then over TLS if there is a certificate.
async fn entries(
    plain: &[SocketAddr],
    over_tls: &[SocketAddr],
    keyring: Option<&Arc<Keyring>>,
) -> Result<Vec<((TcpListener, SocketAddr), Entry)>, StartError> {
    let mut listeners = Vec::new();
    for &address in plain {
        listeners.push((listen(address).await?, Entry::Plain));
    }
    for &address in over_tls.iter().filter(|_| keyring.is_some()) {
        let entry = keyring.map_or(Entry::Plain, |keyring| Entry::Tls(Arc::clone(keyring)));
        listeners.push((listen(address).await?, entry));
    }
    Ok(listeners)
}

async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let refuse = |source| StartError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(refuse)?;
    let bound = listener.local_addr().map_err(refuse)?;
    Ok((listener, bound))
}

async fn listen_coap(
    addresses: &[SocketAddr],
    body_octets_max: usize,
) -> Result<Vec<(Arc<Socket>, SocketAddr)>, StartError> {
    let mut sockets = Vec::new();
    for &address in addresses {
        let refuse = |source| StartError::Listen { address, source };
        let socket = Socket::bind(address, body_octets_max).await.map_err(refuse)?;
        let bound = socket.address().map_err(refuse)?;
        sockets.push((Arc::new(socket), bound));
    }
    Ok(sockets)
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
    /// Where it listens: in the clear first, then over TLS, each in the order given.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where it listens for CoAP, in the order given.
    pub fn coap_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.coap.iter().map(|(_, address)| *address)
    }

    /// Where it listens for WebSocket, in the order given.
    pub fn ws_addresses(&self) -> &[SocketAddr] {
        &self.ws.plain
    }

    /// Where it listens for WebSocket over TLS, in the order given.
    pub fn wss_addresses(&self) -> &[SocketAddr] {
        &self.ws.tls
    }

    /// The broker that it takes MQTT requests from, if there is one: its URL without a password.
    pub fn broker(&self) -> Option<String> {
        self.mqtt.as_ref().map(|broker| broker.url().shown())
    }

    /// The CSE itself: to ask it without a socket.
    pub const fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Takes from `config` whom it admits, its administrator and bounds, where its registrar is,
    /// what one peer may ask and whether that is noted; everything else was decided at the start.
    pub fn reconfigure(&self, config: Config) {
        self.engine.quotas().set(config.quota);
        self.http.gate.set_most_of_one(config.connections_per_peer_max);
        let machine = gatewright_onem2m::Config { outcomes: config.audit, ..config.cse };
        self.engine.reconfigure(machine, config.audit);
    }

    /// Its certificates, if it has any.
    pub(crate) const fn keyring(&self) -> Option<&Arc<Keyring>> {
        self.keyring.as_ref()
    }

    /// What the system allows too little of for all connections that may be taken.
    pub const fn shortage(&self) -> Option<Shortage> {
        self.descriptors.shortage()
    }

    /// Stored rows that were none and were left out.
    pub const fn unreadable_rows(&self) -> usize {
        self.unreadable_rows
    }

    /// Every counter of machine, store and sockets with its name.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all: Vec<_> = self.engine.counters().each().collect();
        if let Some(store) = self.engine.store_counters() {
            all.extend([
                ("store_commits", store.commits),
                ("store_batches", store.batches),
                ("store_records", store.records),
                ("store_failures", store.failures),
                ("store_stale", store.stale),
                ("store_audited", store.audited),
                ("store_audit_lost", store.audit_lost),
            ]);
        }
        all.push(("calls_full", self.engine.calls_full()));
        all.push(("http_connections_refused", self.http.gate.refused()));
        all.push(("ws_connections_refused", self.ws.gate.refused()));
        for (name, counter) in [
            ("http_connections", &self.http.counters.connections),
            ("tls_handshakes_failed", &self.http.counters.handshakes_failed),
            ("http_bodies_refused", &self.http.counters.bodies_refused),
        ] {
            all.push((name, counter.load(Ordering::Relaxed)));
        }
        let refused = self.engine.quotas().counters();
        all.push(("peer_requests_too_often", refused.too_often));
        all.push(("peer_requests_too_many", refused.too_much));
        all.push(("peer_bodies_too_many", refused.arriving));
        all.extend(self.ws.counters.each());
        all.extend(self.mqtt.iter().flat_map(|broker| broker.counters().each()));
        // Of several sockets the sums.
        for (at, (socket, _)) in self.coap.iter().enumerate() {
            for (name, count) in socket.counters().each() {
                match all.iter_mut().find(|(known, _)| at > 0 && *known == name) {
                    Some((_, sum)) => *sum += count,
                    None => all.push((name, count)),
                }
            }
        }
        all
    }

    /// Takes no more requests, stores what was taken, and returns when all of it is on disk.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        let engine = Arc::clone(&self.engine);
        // The writer is waited for on a thread that may block.
        let _ = tokio::task::spawn_blocking(move || engine.end()).await;
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

/// Lets the machine's time pass.
async fn keep_time(engine: Arc<Engine>, mut stop: watch::Receiver<bool>) {
    loop {
        let due = engine.tick();
        let sleep = due.map_or(Duration::from_hours(1), |due| due.saturating_sub(now()));
        tokio::select! {
            () = tokio::time::sleep(sleep) => {}
            () = engine.earlier.notified() => {}
            _ = stop.changed() => return,
        }
    }
}
