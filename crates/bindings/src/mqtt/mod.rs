//! MQTT binding (TS-0010): a connection to a broker that is renewed whenever it ends, with requests
//! and responses in both directions.

mod send;
mod url;

pub(crate) use send::{MqttIdentity, MqttSender};
pub(crate) use url::Url;
pub use url::UrlError;

use crate::answers::{Answers, refuse};
use crate::tasks::spawn;
use crate::tls::Identity;
use core::time::Duration;
use gatewright_onem2m::mqtt::{
    Input, MqttSession, MqttSettings, Output, Purpose, Topic, filters, is_publication, level,
};
use gatewright_onem2m::{
    Operation, Request, Reservation, ResourceType, Response, ResponseType, Serialisation,
    Unreachable,
};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore, oneshot, watch};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{CertificateError, ClientConfig, Error as TlsError};

/// MQTT keep-alive interval.
const KEEP_ALIVE: Duration = Duration::from_mins(1);
/// Time limit for connecting, and for the broker to accept octets.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Pause after the first failed connection, doubled with each further one.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// Longest pause.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);
/// Octets of a packet beyond the limit on content.
const PACKET_SLACK: usize = 64 * 1024;
/// Octets read at once.
const READ_MAX: usize = 64 * 1024;
/// Requests in progress; further ones are dropped and counted, and the originator asks again.
const ANSWERED_AT_ONCE: usize = 1_024;

/// A broker and this entity's session there.
#[derive(Debug)]
pub(crate) struct Broker {
    url: Url,
    settings: MqttSettings,
    /// This entity's identifier in topics.
    own: String,
    /// Its oneM2M identifier and its service provider.
    identity: (String, String),
    tls: Option<Arc<ClientConfig>>,
    inner: Mutex<Inner>,
    started: Instant,
    /// Wakes the loop: there is something to send.
    wake: Notify,
    ready: watch::Sender<bool>,
    answering: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Inner {
    session: Option<MqttSession>,
    /// Callers that wait for responses, by receiver (as in topics) and request identifier.
    waiting: HashMap<(String, String), oneshot::Sender<Response>>,
    /// Octets of published messages that are not sent yet, in their order.
    unsent: VecDeque<Reservation>,
    counters: Counters,
    /// Why there is no connection.
    failure: Option<String>,
}

/// Counters of a broker's connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    connections: u64,
    received: u64,
    published: u64,
    /// Not published because there was no connection, or too many messages were in progress.
    unpublished: u64,
    /// Neither a request nor an expected response.
    strays: u64,
    /// Requests dropped because too many were unanswered.
    dropped: u64,
    /// Messages passed over because they are too long.
    oversized: u64,
}

impl Counters {
    pub(crate) fn each(&self) -> [(&'static str, u64); 7] {
        [
            ("mqtt_connections", self.connections),
            ("mqtt_received", self.received),
            ("mqtt_published", self.published),
            ("mqtt_unpublished", self.unpublished),
            ("mqtt_strays", self.strays),
            ("mqtt_dropped", self.dropped),
            ("mqtt_oversized", self.oversized),
        ]
    }
}

/// Octets both ways: TCP, or TLS over it.
pub(crate) trait BrokerStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> BrokerStream for S {}

/// Connects to a broker, over TLS if its URL says so.
pub(crate) async fn connect(
    url: &Url,
    tls: Option<&Arc<ClientConfig>>,
) -> io::Result<Box<dyn BrokerStream>> {
    let stream = TcpStream::connect((url.host.as_str(), url.port)).await?;
    // Requests are small and go out whole.
    stream.set_nodelay(true)?;
    if !url.secure {
        return Ok(Box::new(stream));
    }
    let Some(config) = tls else {
        return Err(io::Error::other("no certificate is configured"));
    };
    let name = ServerName::try_from(url.host.clone()).map_err(io::Error::other)?;
    Ok(Box::new(TlsConnector::from(Arc::clone(config)).connect(name, stream).await?))
}

impl Broker {
    /// Creates a session for a speaker, with a limit on content octets.
    pub(crate) fn new(
        url: Url,
        identity: &MqttIdentity,
        tls: Option<Arc<ClientConfig>>,
        content_octets_max: usize,
    ) -> Self {
        let own = level(&identity.id);
        let mut wanted = filters(&identity.id);
        if !identity.serves {
            wanted.retain(|filter| filter.starts_with("/oneM2M/resp/"));
        }
        let settings = MqttSettings {
            client: identity.client.clone(),
            clean: !identity.serves,
            keep_alive: KEEP_ALIVE,
            will: None,
            credentials: url.credentials.clone(),
            filters: wanted,
            packet_octets_max: content_octets_max.saturating_add(PACKET_SLACK),
        };
        Self {
            url,
            settings,
            own,
            identity: (identity.id.clone(), identity.provider.clone()),
            tls,
            inner: Mutex::default(),
            started: Instant::now(),
            wake: Notify::new(),
            ready: watch::Sender::new(false),
            answering: Arc::new(Semaphore::new(ANSWERED_AT_ONCE)),
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        self.lock().counters.clone()
    }

    /// Whether a caller waits for a response from this broker.
    fn is_asked(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    /// Whether there is a connection.
    fn is_connected(&self) -> bool {
        *self.ready.borrow()
    }

    /// Why there is no connection, as a text for the operator, if known.
    pub(crate) fn failure(&self) -> Option<String> {
        let failure = self.lock().failure.clone()?;
        Some(format!("{} is not connected: {failure}", self.url.shown()))
    }

    fn note(&self, error: &io::Error) {
        self.lock().failure = Some(reason(error, &self.url.host));
    }

    pub(crate) const fn url(&self) -> &Url {
        &self.url
    }

    /// Keeps a connection until `stop` is set, or for ever if its sender is gone.
    pub(crate) async fn run<A: Answers>(
        self: Arc<Self>,
        answers: Arc<A>,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut pause = RETRY_AFTER;
        loop {
            let connected = tokio::select! {
                connected = tokio::time::timeout(CONNECT_WITHIN, connect(&self.url, self.tls.as_ref())) => connected,
                _ = stop.changed() => return,
            };
            let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            let connected = connected.map_err(|error| self.note(&error));
            if let Ok(stream) = connected {
                if self.converse(stream, &answers, &mut stop).await {
                    return;
                }
                pause = if *self.ready.borrow() { RETRY_AFTER } else { pause };
                self.ready.send_replace(false);
                let mut inner = self.lock();
                inner.session = None;
                inner.unsent.clear();
                // Their answers may be lost with the connection: they ask again.
                inner.waiting.clear();
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = stop.changed() => return,
            }
            pause = pause.saturating_mul(2).min(RETRY_AFTER_MAX);
        }
    }

    /// Runs one connection until it ends; returns whether this side ended it.
    async fn converse<A: Answers>(
        self: &Arc<Self>,
        stream: Box<dyn BrokerStream>,
        answers: &Arc<A>,
        stop: &mut watch::Receiver<bool>,
    ) -> bool {
        let session = MqttSession::new(self.started.elapsed(), self.settings.clone());
        {
            let mut inner = self.lock();
            inner.session = Some(session);
            inner.counters.connections += 1;
        }
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut buffer = vec![0; READ_MAX];
        let mut leaving = false;
        loop {
            if !self.carry_out(&mut writer, answers).await {
                return leaving;
            }
            let due = self.due();
            tokio::select! {
                read = reader.read(&mut buffer) => match read {
                    Ok(length @ 1..) => {
                        self.handle(Input::Octets(buffer.get(..length).unwrap_or_default()));
                    }
                    Ok(0) => return leaving,
                    Err(error) => {
                        self.note(&error);
                        return leaving;
                    }
                },
                () = tokio::time::sleep(due) => self.handle(Input::Tick),
                () = self.wake.notified() => {}
                _ = stop.changed() => {
                    leaving = true;
                    self.handle(Input::Leave);
                }
            }
        }
    }

    /// Carries out the session's outputs; returns whether it continues.
    async fn carry_out<A: Answers>(
        self: &Arc<Self>,
        writer: &mut (impl AsyncWrite + Unpin),
        answers: &Arc<A>,
    ) -> bool {
        loop {
            let output = self.lock().session.as_mut().and_then(MqttSession::poll_output);
            match output {
                None => break,
                Some(Output::Send(octets)) => {
                    let sent = tokio::time::timeout(CONNECT_WITHIN, writer.write_all(&octets));
                    if !matches!(sent.await, Ok(Ok(()))) {
                        return false;
                    }
                    if is_publication(&octets) {
                        self.lock().unsent.pop_front();
                    }
                }
                Some(Output::Ready) => {
                    self.lock().failure = None;
                    self.ready.send_replace(true);
                }
                Some(Output::Arrived { topic, payload }) => self.arrived(&topic, payload, answers),
                Some(Output::Oversized) => self.lock().counters.oversized += 1,
                Some(Output::End(end)) => {
                    self.lock().failure = Some(end.to_string());
                    let _ = writer.flush().await;
                    return false;
                }
            }
        }
        writer.flush().await.is_ok()
    }

    fn arrived<A: Answers>(self: &Arc<Self>, topic: &str, payload: Vec<u8>, answers: &Arc<A>) {
        self.lock().counters.received += 1;
        let Some(topic) = Topic::parse(topic) else {
            self.lock().counters.strays += 1;
            return;
        };
        let serialisation = topic.serialisation;
        let Some(reply_to) = topic.clone().answering() else {
            self.take_response(&topic, &payload);
            return;
        };
        let Ok(permit) = Arc::clone(&self.answering).try_acquire_owned() else {
            self.lock().counters.dropped += 1;
            return;
        };
        let (broker, answers) = (Arc::clone(self), Arc::clone(answers));
        spawn(async move {
            let (response, wants_response) = match read_request(serialisation, &payload) {
                Ok(request) => {
                    let wants_response = request.response_type != ResponseType::None;
                    let request = broker.authenticated(&reply_to, request);
                    (answers.answer(request).await, wants_response)
                }
                Err((id, refusal)) => (refuse(&refusal, id.as_deref().unwrap_or_default()), true),
            };
            if wants_response && let Ok(payload) = serialisation.write(&response.to_json()) {
                broker.publish(&reply_to, &payload, response.reservation);
            }
            drop(permit);
        });
    }

    /// Checks a request's originator against that of its topic, which the broker's access rules
    /// cover. A registration topic bears the name of a credential and admits AEs.
    fn authenticated(&self, reply_to: &Topic, mut request: Request) -> Request {
        let registers = request.operation == Operation::Create
            && request.resource_type == Some(ResourceType::ApplicationEntity);
        if reply_to.purpose == Purpose::RegistrationResponse && registers {
            return request;
        }
        let own = (self.identity.0.as_str(), self.identity.1.as_str());
        let identity = Identity::of_topic(&reply_to.originator, &request.from, own);
        identity.authenticate(&mut request, own);
        request
    }

    fn take_response(&self, topic: &Topic, payload: &[u8]) {
        let text = topic.serialisation.read(payload).ok();
        let response = text.and_then(|text| Response::from_json(text.as_bytes()).ok());
        let mut inner = self.lock();
        // Only who was asked answers.
        let waiting = response.and_then(|it| {
            let key = (topic.receiver.clone(), it.id.to_string());
            Some((inner.waiting.remove(&key)?, it))
        });
        match waiting {
            Some((waiting, response)) => drop(waiting.send(response)),
            None => inner.counters.strays += 1,
        }
    }

    /// Publishes a message; returns whether there was a connection for it.
    fn publish(&self, topic: &Topic, payload: &[u8], octets: Reservation) -> bool {
        let mut inner = self.lock();
        let now = self.started.elapsed();
        let taken = inner.session.as_mut().is_some_and(|session| {
            let before = session.dropped();
            session
                .handle(now, Input::Publish { topic: &topic.to_string(), payload, retain: false });
            session.dropped() == before
        });
        if taken {
            inner.unsent.push_back(octets);
        }
        inner.counters.published += u64::from(taken);
        inner.counters.unpublished += u64::from(!taken);
        drop(inner);
        self.wake.notify_one();
        taken
    }

    /// Sends a request to `receiver` through this broker.
    pub(crate) async fn ask(
        &self,
        receiver: &str,
        request: &Request,
        serialisation: Serialisation,
    ) -> Result<Response, Unreachable> {
        let away = |why: &str| Unreachable(format!("broker {}: {why}", self.url.authority()));
        let mut ready = self.ready.subscribe();
        let connected = async { ready.wait_for(|ready| *ready).await.is_ok() };
        if !tokio::time::timeout(CONNECT_WITHIN, connected).await.unwrap_or(false) {
            let failure = self.failure().unwrap_or_else(|| "no connection".to_owned());
            return Err(away(&failure));
        }
        let payload = serialisation
            .write(&request.to_json())
            .map_err(|refusal| Unreachable(refusal.to_string()))?;
        let (sender, answer) = oneshot::channel();
        let key = (level(receiver), request.id.clone());
        match self.lock().waiting.entry(key.clone()) {
            Entry::Occupied(_) => return Err(away("a request of this identifier is under way")),
            Entry::Vacant(place) => place.insert(sender),
        };
        let _waiting = ResponseWaiter { broker: self, key };
        let topic = Topic {
            purpose: Purpose::Request,
            originator: self.own.clone(),
            receiver: level(receiver),
            serialisation,
        };
        if !self.publish(&topic, &payload, Reservation::default()) {
            return Err(away("too much is under way"));
        }
        answer.await.map_err(|_| away("the connection broke before the answer"))
    }

    fn handle(&self, input: Input<'_>) {
        let now = self.started.elapsed();
        if let Some(session) = self.lock().session.as_mut() {
            session.handle(now, input);
        }
    }

    fn due(&self) -> Duration {
        let due = self.lock().session.as_ref().and_then(MqttSession::poll_timeout);
        due.map_or(KEEP_ALIVE, |due| due.saturating_sub(self.started.elapsed()))
    }

    /// A panic under the lock would be a bug of the session; other callers are still served.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An error as a text for the operator.
pub(crate) fn reason(error: &io::Error, host: &str) -> String {
    use CertificateError::{NotValidForName, NotValidForNameContext, UnknownIssuer};
    let tls = error.get_ref().and_then(|it| it.downcast_ref::<TlsError>());
    match tls {
        Some(TlsError::InvalidCertificate(UnknownIssuer)) => {
            "its certificate is of an authority that is not in [cse.tls] authorities".to_owned()
        }
        Some(TlsError::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
            format!("its certificate is for another name than {host}")
        }
        Some(TlsError::AlertReceived(alert)) => {
            format!("it does not take the certificate of [cse.tls]: {alert:?}")
        }
        _ => error.to_string(),
    }
}

fn read_request(
    serialisation: Serialisation,
    payload: &[u8],
) -> Result<Request, (Option<String>, gatewright_onem2m::Refusal)> {
    match serialisation {
        Serialisation::Json => Request::from_json(payload),
        Serialisation::Cbor => Request::from_cbor(payload),
    }
}

/// A caller that waits for a response.
struct ResponseWaiter<'a> {
    broker: &'a Broker,
    key: (String, String),
}

impl Drop for ResponseWaiter<'_> {
    fn drop(&mut self) {
        self.broker.lock().waiting.remove(&self.key);
    }
}
