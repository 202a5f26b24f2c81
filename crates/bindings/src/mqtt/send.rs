//! MQTT client: sends requests to MQTT URLs, over one connection per broker.

use super::{Broker, Url};
use crate::answers::Nobody;
use crate::tasks::spawn;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use gatewright_onem2m::{Request, Response, Serialisation, Unreachable};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;
use tokio::sync::watch;
use tokio_rustls::rustls::ClientConfig;

/// Brokers connected at a time.
const BROKERS_MAX: usize = 64;
/// Time that an unused connection is kept or retried.
const UNUSED_KEPT: Duration = Duration::from_mins(5);
/// Octets of a response at most.
const ANSWER_OCTETS_MAX: usize = 16 * 1024 * 1024;

/// Identity of this entity at brokers.
#[derive(Clone, Debug)]
pub(crate) struct MqttIdentity {
    /// Identifier in topics: a CSE-ID or an AE-ID.
    pub(crate) id: String,
    /// Service provider of a CSE, the prefix of absolute identifiers.
    pub(crate) provider: String,
    /// MQTT client identifier, unique among connections.
    pub(crate) client: String,
    /// Whether it also takes requests, which the broker keeps while it is disconnected.
    pub(crate) serves: bool,
}

/// Sends requests over MQTT, if it has an identity.
#[derive(Clone, Debug, Default)]
pub(crate) struct MqttSender(Option<Arc<Brokers>>);

#[derive(Debug)]
struct Brokers {
    identity: MqttIdentity,
    tls: Option<Arc<ClientConfig>>,
    known: Mutex<HashMap<String, RunningBroker>>,
    /// Whether a task closes unused connections.
    watched: AtomicBool,
}

/// A broker with its loop, which ends with it unless the broker is shared.
#[derive(Debug)]
struct RunningBroker {
    broker: Arc<Broker>,
    since: Instant,
    used: Instant,
    stop: Option<watch::Sender<bool>>,
}

impl RunningBroker {
    fn new(broker: &Arc<Broker>, stop: Option<watch::Sender<bool>>) -> Self {
        let now = Instant::now();
        Self { broker: Arc::clone(broker), since: now, used: now, stop }
    }

    /// Whether it has been unused for long; the CSE's own broker is kept.
    fn is_unused(&self, now: Instant) -> bool {
        let unused = now.saturating_duration_since(self.used) >= UNUSED_KEPT;
        self.stop.is_some() && unused && !self.broker.is_asked()
    }
}

impl MqttSender {
    /// A sender that speaks as `identity`.
    pub(crate) fn new(identity: MqttIdentity, tls: Option<ClientConfig>) -> Self {
        let tls = tls.map(Arc::new);
        let (known, watched) = (Mutex::default(), AtomicBool::default());
        Self(Some(Arc::new(Brokers { identity, tls, known, watched })))
    }

    pub(crate) fn can_use(&self, url: &str) -> bool {
        let plain = url.starts_with("mqtt://");
        self.0
            .as_ref()
            .is_some_and(|brokers| plain || (brokers.tls.is_some() && url.starts_with("mqtts://")))
    }

    /// Uses this existing connection for its broker.
    pub(crate) fn share(&self, broker: &Arc<Broker>) {
        if let Some(brokers) = &self.0 {
            brokers.lock().insert(broker.url().authority(), RunningBroker::new(broker, None));
        }
    }

    /// Brokers that are not connected, by authority, and why.
    pub(crate) fn failures(&self) -> Vec<(String, String)> {
        let Some(brokers) = &self.0 else { return Vec::new() };
        let known: Vec<_> = brokers.lock().values().map(|it| Arc::clone(&it.broker)).collect();
        let failure = |broker: &Arc<Broker>| Some((broker.url().authority(), broker.failure()?));
        known.iter().filter_map(failure).collect()
    }

    /// Sends a request to `url` and waits for the response.
    pub(crate) async fn send(
        &self,
        url: &str,
        request: &Request,
        serialisation: Serialisation,
    ) -> Result<Response, Unreachable> {
        let brokers =
            self.0.as_ref().ok_or_else(|| Unreachable("MQTT is not available here".to_owned()))?;
        let direct = request.to.contains("://");
        let url = Url::parse(if direct { &request.to } else { url })
            .map_err(|error| Unreachable(error.to_string()))?;
        let receiver = if url.receiver.is_empty() {
            receiver_of(&request.to).to_owned()
        } else {
            url.receiver.clone()
        };
        if receiver.is_empty() {
            return Err(Unreachable("it is not said whom to ask at the broker".to_owned()));
        }
        let broker = brokers.broker(url)?;
        if direct {
            let mut request = request.clone();
            request.to.clone_from(&receiver);
            return broker.ask(&receiver, &request, serialisation).await;
        }
        broker.ask(&receiver, request, serialisation).await
    }
}

/// The CSE or AE that an address begins with.
fn receiver_of(to: &str) -> &str {
    let rest = match to.strip_prefix("//") {
        // The first segment of an absolute address is the provider.
        Some(absolute) => absolute.split_once('/').map_or("", |(_, rest)| rest),
        None => to.strip_prefix('/').unwrap_or(to),
    };
    rest.split('/').next().unwrap_or_default()
}

impl Brokers {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, RunningBroker>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn broker(self: &Arc<Self>, url: Url) -> Result<Arc<Broker>, Unreachable> {
        let mut known = self.lock();
        let authority = url.authority();
        if let Some(known) = known.get_mut(&authority) {
            known.used = Instant::now();
            return Ok(Arc::clone(&known.broker));
        }
        if known.len() >= BROKERS_MAX && !make_room(&mut known) {
            return Err(Unreachable("too many brokers are spoken with".to_owned()));
        }
        // At a broker that is not our own we only ask.
        let identity = MqttIdentity { serves: false, ..self.identity.clone() };
        let broker = Arc::new(Broker::new(url, &identity, self.tls.clone(), ANSWER_OCTETS_MAX));
        let (stop, stopped) = watch::channel(false);
        spawn(Arc::clone(&broker).run(Arc::new(Nobody), stopped));
        known.insert(authority, RunningBroker::new(&broker, Some(stop)));
        if !self.watched.swap(true, Ordering::Relaxed) {
            spawn(forget_unused(Arc::downgrade(self)));
        }
        Ok(broker)
    }

    /// Ends connections that have been unused for long.
    fn forget(&self, now: Instant) {
        self.lock().retain(|_, known| !known.is_unused(now));
    }
}

/// Ends unused connections, as long as there are any besides the CSE's own.
async fn forget_unused(brokers: Weak<Brokers>) {
    loop {
        tokio::time::sleep(UNUSED_KEPT).await;
        let Some(brokers) = brokers.upgrade() else { return };
        brokers.forget(Instant::now());
        let known = brokers.lock();
        if known.values().all(|known| known.stop.is_none()) {
            // Under the lock: whoever adds one afterwards has it watched again.
            brokers.watched.store(false, Ordering::Relaxed);
            return;
        }
    }
}

/// Drops the broker that has been away for longest, so that URLs of unreachable brokers block no
/// other. Returns whether there is room.
fn make_room(known: &mut HashMap<String, RunningBroker>) -> bool {
    let away = known.iter().filter(|(_, it)| it.stop.is_some() && !it.broker.is_connected());
    let oldest = away.min_by_key(|(_, it)| it.since).map(|(name, _)| name.clone());
    oldest.is_some_and(|name| known.remove(&name).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    fn url(port: u16) -> Url {
        Url::parse(&format!("mqtt://127.0.0.1:{port}/there")).unwrap()
    }

    /// Dead addresses as brokers, as many as there may be and more: whoever names them keeps nobody
    /// from a living one, and what nobody uses ends.
    #[tokio::test]
    async fn brokers_that_are_none_keep_nobody_from_his_own() {
        let identity = MqttIdentity {
            id: "/id-mn".to_owned(),
            provider: String::new(),
            client: "x".to_owned(),
            serves: false,
        };
        let own = Arc::new(Broker::new(url(9), &identity, None, 1_000));
        let sender = MqttSender::new(identity, None);
        sender.share(&own);
        let brokers = sender.0.unwrap();
        // Nothing listens at these.
        for port in 10..1_000 {
            brokers.broker(url(port)).unwrap();
            assert!(brokers.lock().len() <= BROKERS_MAX);
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let living = url(listener.local_addr().unwrap().port());
        brokers.broker(living.clone()).unwrap();
        listener.accept().await.unwrap();
        let later = Instant::now() + UNUSED_KEPT / 2;
        brokers.forget(later);
        assert_eq!(brokers.lock().len(), BROKERS_MAX, "they were used lately");
        brokers.forget(later + UNUSED_KEPT);
        let left: Vec<String> = brokers.lock().keys().cloned().collect();
        assert_eq!(left, [url(9).authority()], "our own is kept");
        brokers.broker(living).unwrap();
        listener.accept().await.unwrap();
    }

    #[test]
    fn an_address_names_its_entity_first() {
        for (to, receiver) in [
            ("/id-in/cse-in/c", "id-in"),
            ("//sp.example/id-in/cse-in", "id-in"),
            ("Cx", "Cx"),
            ("//sp.example", ""),
            ("", ""),
        ] {
            assert_eq!(receiver_of(to), receiver);
        }
    }
}
