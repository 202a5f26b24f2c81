//! Home Assistant's broker: a connection that announces devices and publishes their readings.
//!
//! What is published is the machine's of `interwork` (`home_assistant`). Readings are delivered first and
//! published afterwards; a broker that is slow or away holds up no device.

use crate::mqtt::{self, Url, UrlError};
use crate::tasks::spawn;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use gatewright_health::code::SystemId;
use gatewright_interwork::home_assistant::{Announcer, AnnouncerSettings, DeliveredReading};
use gatewright_interwork::{Device, Mapping};
use gatewright_onem2m::Request;
use gatewright_onem2m::mqtt::{Input, MqttSession, MqttSettings, MqttWill, Output};
use std::io;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio_rustls::rustls::ClientConfig;

/// Events that wait for the connection; further ones are dropped and counted.
const EVENTS_MAX: usize = 1_024;
/// MQTT keep-alive interval: after half as long again the broker publishes the last will.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Time limit for connecting, and for the broker to accept octets.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Pause after the first failed connection, doubled with each further one.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// Longest pause.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);
/// Octets of a packet that are taken: nothing is subscribed to.
const PACKET_OCTETS_MAX: usize = 4_096;

/// Where devices are announced to Home Assistant.
#[derive(Clone, Debug)]
pub struct HomeAssistantConfig {
    /// URL of the broker.
    pub broker: String,
    /// Prefix of announcements.
    pub prefix: String,
    /// First level of the topics of states.
    pub topic: String,
    /// TLS to the broker.
    pub tls: Option<Arc<ClientConfig>>,
}

impl HomeAssistantConfig {
    fn is_same_as(&self, other: &Self) -> bool {
        (&self.broker, &self.prefix, &self.topic) == (&other.broker, &other.prefix, &other.topic)
    }
}

/// An event of a device's connection.
#[derive(Debug)]
enum DeviceEvent {
    Associated(SystemId, &'static str, bool),
    /// Kind, target and content of a reading.
    Reading(SystemId, &'static str, String, Box<str>),
}

/// Announces devices, if it is wanted.
#[derive(Debug, Default)]
pub(super) struct HomeAssistant {
    running: RwLock<Option<Running>>,
    counters: Arc<AnnouncementCounters>,
}

/// A connection; dropping it ends it, after the gateway's `offline` is published.
#[derive(Debug)]
struct Running {
    config: HomeAssistantConfig,
    events: mpsc::Sender<DeviceEvent>,
    failure: Arc<Mutex<Option<String>>>,
    _stop: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct AnnouncementCounters {
    connections: AtomicU64,
    published: AtomicU64,
    /// Beyond the bounds of queues, or while there was no connection.
    dropped: AtomicU64,
    /// Devices and quantities beyond the limits.
    full: AtomicU64,
    /// Readings without a value that a state can be.
    unstated: AtomicU64,
}

/// Target and content of a reading, to be published once it is delivered.
pub(super) type ReadingContent = (String, Box<str>);

impl HomeAssistant {
    /// Announces by `config` from now on, or nothing; a connection that stays as it is is kept.
    pub(super) fn set(
        &self,
        config: Option<HomeAssistantConfig>,
        mapping: &Mapping,
    ) -> Result<(), UrlError> {
        let mut running = self.running.write().unwrap_or_else(PoisonError::into_inner);
        let Some(config) = config else {
            *running = None;
            return Ok(());
        };
        if running.as_ref().is_some_and(|it| it.config.is_same_as(&config)) {
            return Ok(());
        }
        let url = Url::parse(&config.broker)?;
        let settings = AnnouncerSettings {
            prefix: config.prefix.clone(),
            topic: config.topic.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let (stop, stopped) = watch::channel(());
        let failure = Arc::default();
        let connection = BrokerConnection {
            url,
            tls: config.tls.clone(),
            client: format!("gatewright-{}", config.topic),
            announcer: Announcer::new(settings, mapping),
            events,
            stopped,
            failure: Arc::clone(&failure),
            counters: Arc::clone(&self.counters),
            started: Instant::now(),
        };
        spawn(connection.run());
        *running = Some(Running { config, events: sender, failure, _stop: stop });
        Ok(())
    }

    /// The readings of these requests, if they are to be published.
    pub(super) fn readings(&self, requests: &[Request]) -> Vec<ReadingContent> {
        if self.running.read().unwrap_or_else(PoisonError::into_inner).is_none() {
            return Vec::new();
        }
        let reading = |request: &Request| Some((request.to.clone(), request.content.clone()?));
        requests.iter().filter_map(reading).collect()
    }

    /// A device's readings were delivered.
    pub(super) fn delivered(&self, device: &Device, readings: Vec<ReadingContent>) {
        for (to, content) in readings {
            self.send(DeviceEvent::Reading(device.system_id(), device.kind(), to, content));
        }
    }

    /// A device has associated, or is gone.
    pub(super) fn associated(&self, device: &Device, is_associated: bool) {
        self.send(DeviceEvent::Associated(device.system_id(), device.kind(), is_associated));
    }

    fn send(&self, event: DeviceEvent) {
        let running = self.running.read().unwrap_or_else(PoisonError::into_inner);
        let Some(running) = &*running else { return };
        if running.events.try_send(event).is_err() {
            self.counters.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Why there is no connection, if there is to be one.
    pub(super) fn failure(&self) -> Option<String> {
        let running = self.running.read().unwrap_or_else(PoisonError::into_inner);
        running.as_ref()?.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Each counter with its name.
    pub(super) fn each(&self) -> [(&'static str, u64); 5] {
        let counters = &self.counters;
        [
            ("home_assistant_connections", &counters.connections),
            ("home_assistant_published", &counters.published),
            ("home_assistant_dropped", &counters.dropped),
            ("home_assistant_full", &counters.full),
            ("home_assistant_unstated", &counters.unstated),
        ]
        .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
    }
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ConnectionEnd {
    /// It is not wanted any more.
    Stopped,
    /// It was ready, and is lost.
    Lost,
    /// It never was ready.
    Refused,
}

/// The task of a connection.
struct BrokerConnection {
    url: Url,
    tls: Option<Arc<ClientConfig>>,
    client: String,
    announcer: Announcer,
    events: mpsc::Receiver<DeviceEvent>,
    /// Closed when the connection is not wanted any more.
    stopped: watch::Receiver<()>,
    failure: Arc<Mutex<Option<String>>>,
    counters: Arc<AnnouncementCounters>,
    started: Instant,
}

impl BrokerConnection {
    async fn run(mut self) {
        let mut pause = RETRY_AFTER;
        loop {
            let (url, tls) = (self.url.clone(), self.tls.clone());
            let connecting =
                tokio::time::timeout(CONNECT_WITHIN, mqtt::connect(&url, tls.as_ref()));
            let Some(connected) = self.meanwhile(connecting).await else { return };
            match connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Err(error) => self.note(Some(mqtt::reason(&error, &self.url.host))),
                Ok(stream) => {
                    self.counters.connections.fetch_add(1, Ordering::Relaxed);
                    let end = self.converse(stream).await;
                    self.announcer.disconnected();
                    self.count();
                    match end {
                        ConnectionEnd::Stopped => return,
                        ConnectionEnd::Lost => pause = RETRY_AFTER,
                        ConnectionEnd::Refused => {}
                    }
                }
            }
            if self.meanwhile(tokio::time::sleep(pause)).await.is_none() {
                return;
            }
            pause = pause.saturating_mul(2).min(RETRY_AFTER_MAX);
        }
    }

    /// Waits for `future`; meanwhile devices and quantities are kept, but states are lost. `None` if
    /// the connection is not wanted any more.
    async fn meanwhile<F: Future>(&mut self, future: F) -> Option<F::Output> {
        let mut future = core::pin::pin!(future);
        loop {
            tokio::select! {
                output = &mut future => return Some(output),
                event = self.events.recv() => {
                    self.take(event?);
                    self.announcer.disconnected();
                    self.count();
                }
                _ = self.stopped.changed() => return None,
            }
        }
    }

    fn take(&mut self, event: DeviceEvent) {
        match event {
            DeviceEvent::Associated(system_id, kind, is_associated) => {
                self.announcer.associated(system_id, kind, is_associated);
            }
            DeviceEvent::Reading(system_id, kind, to, content) => {
                if let Some(reading) =
                    DeliveredReading::of_request((system_id, kind), &to, &content)
                {
                    self.announcer.heard(&reading);
                }
            }
        }
    }

    fn note(&self, failure: Option<String>) {
        let failure = failure.map(|why| format!("{} is not connected: {why}", self.url.shown()));
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }

    /// Adds the machine's counters to the shared ones.
    fn count(&mut self) {
        let counters = core::mem::take(&mut self.announcer.counters);
        self.counters.dropped.fetch_add(counters.dropped, Ordering::Relaxed);
        self.counters.full.fetch_add(counters.full, Ordering::Relaxed);
        self.counters.unstated.fetch_add(counters.unstated, Ordering::Relaxed);
    }

    fn session(&self) -> MqttSession {
        let will = self.announcer.status(false);
        let settings = MqttSettings {
            client: self.client.clone(),
            clean: true,
            keep_alive: KEEP_ALIVE,
            will: Some(MqttWill { topic: will.topic, payload: will.payload.into_bytes() }),
            credentials: self.url.credentials.clone(),
            filters: Vec::new(),
            packet_octets_max: PACKET_OCTETS_MAX,
        };
        MqttSession::new(self.started.elapsed(), settings)
    }

    /// Sends the session's packets; whether the connection is still open.
    async fn send_outputs(
        &mut self,
        session: &mut MqttSession,
        writer: &mut (impl AsyncWrite + Unpin),
        is_ready: &mut bool,
    ) -> bool {
        while let Some(output) = session.poll_output() {
            match output {
                Output::Send(octets) => {
                    let sent = tokio::time::timeout(CONNECT_WITHIN, writer.write_all(&octets));
                    if !matches!(sent.await, Ok(Ok(()))) {
                        self.note(Some("the broker takes nothing".to_owned()));
                        return false;
                    }
                }
                Output::Ready => {
                    *is_ready = true;
                    self.note(None);
                    self.announcer.connected();
                }
                // Nothing is subscribed to.
                Output::Arrived { .. } | Output::Oversized => {}
                Output::End(end) => {
                    self.note(Some(end.to_string()));
                    let _flushed = writer.flush().await;
                    return false;
                }
            }
        }
        true
    }

    /// Runs one connection until it ends.
    async fn converse(&mut self, stream: Box<dyn mqtt::BrokerStream>) -> ConnectionEnd {
        let mut session = self.session();
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut buffer = vec![0; PACKET_OCTETS_MAX];
        let (mut is_ready, mut is_leaving) = (false, false);
        loop {
            let is_open = self.send_outputs(&mut session, &mut writer, &mut is_ready).await;
            let end = match (is_leaving, is_ready) {
                (true, _) => ConnectionEnd::Stopped,
                (false, true) => ConnectionEnd::Lost,
                (false, false) => ConnectionEnd::Refused,
            };
            if !is_open {
                return end;
            }
            self.count();
            let now = self.started.elapsed();
            if session.can_publish()
                && let Some(publication) = self.announcer.poll_output()
            {
                session.handle(now, publish(&publication));
                self.counters.published.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            if is_leaving {
                if self.announcer.poll_output().is_some() {
                    // The broker takes no publication: the last will says so, and DISCONNECT would cancel it.
                    return ConnectionEnd::Stopped;
                }
                session.handle(now, Input::Leave);
                continue;
            }
            if writer.flush().await.is_err() {
                return end;
            }
            let due = session.poll_timeout().unwrap_or(now).saturating_sub(now);
            tokio::select! {
                read = reader.read(&mut buffer) => match read {
                    Ok(length @ 1..) => {
                        let octets = buffer.get(..length).unwrap_or_default();
                        session.handle(self.started.elapsed(), Input::Octets(octets));
                    }
                    Ok(0) => {
                        self.note(Some("the broker has closed the connection".to_owned()));
                        return end;
                    }
                    Err(error) => {
                        self.note(Some(error.to_string()));
                        return end;
                    }
                },
                () = tokio::time::sleep(due) => {
                    session.handle(self.started.elapsed(), Input::Tick);
                }
                event = self.events.recv(), if is_ready => match event {
                    Some(event) => self.take(event),
                    None => is_leaving = true,
                },
                _ = self.stopped.changed() => is_leaving = true,
            }
            if is_leaving {
                // Who leaves in order has no last will.
                self.announcer.leaving();
            }
        }
    }
}

fn publish(publication: &gatewright_interwork::home_assistant::Publication) -> Input<'_> {
    Input::Publish {
        topic: &publication.topic,
        payload: publication.payload.as_bytes(),
        retain: publication.retain,
    }
}
