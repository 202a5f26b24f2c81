//! The client: requests to MQTT URLs, over one connection to each broker.

use super::{Broker, Url};
use crate::answers::Nobody;
use gatewright_onem2m::{Request, Response, Serialisation, Unreachable};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;
use tokio_rustls::rustls::ClientConfig;

/// Brokers that are spoken with at the same time.
const BROKERS_MAX: usize = 64;
/// Octets of an answer that are read.
const ANSWER_OCTETS_MAX: usize = 16 * 1024 * 1024;

/// Who speaks at brokers.
#[derive(Clone, Debug)]
pub(crate) struct Speaker {
    /// In topics: a CSE-ID or an AE-ID.
    pub(crate) id: String,
    /// To the broker: no two connections have the same.
    pub(crate) client: String,
    /// Whether requests are taken too, and kept by the broker while we are away.
    pub(crate) serves: bool,
}

/// Sends requests over MQTT; only if it was told as whom.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sender(Option<Arc<Brokers>>);

#[derive(Debug)]
struct Brokers {
    speaker: Speaker,
    tls: Option<Arc<ClientConfig>>,
    known: Mutex<HashMap<String, Known>>,
}

/// A broker with its loop, which ends with it unless it is somebody else's.
#[derive(Debug)]
struct Known {
    broker: Arc<Broker>,
    _stop: Option<watch::Sender<bool>>,
}

impl Sender {
    /// A sender that speaks as `speaker`.
    pub(crate) fn new(speaker: Speaker, tls: Option<ClientConfig>) -> Self {
        let tls = tls.map(Arc::new);
        Self(Some(Arc::new(Brokers { speaker, tls, known: Mutex::default() })))
    }

    pub(crate) fn can_use(&self, url: &str) -> bool {
        let plain = url.starts_with("mqtt://");
        self.0
            .as_ref()
            .is_some_and(|brokers| plain || (brokers.tls.is_some() && url.starts_with("mqtts://")))
    }

    /// Uses this connection for its broker.
    pub(crate) fn share(&self, broker: &Arc<Broker>) {
        if let Some(brokers) = &self.0 {
            let known = Known { broker: Arc::clone(broker), _stop: None };
            brokers.lock().insert(broker.url().authority(), known);
        }
    }

    /// Sends a request to `url` and waits for the answer.
    pub(crate) async fn send(
        &self,
        url: &str,
        request: &Request,
        serialisation: Serialisation,
    ) -> Result<Response, Unreachable> {
        let brokers = self
            .0
            .as_ref()
            .ok_or_else(|| Unreachable("nobody speaks over MQTT here".to_owned()))?;
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

/// The entity that an address begins with: its CSE, or an AE.
fn receiver_of(to: &str) -> &str {
    let rest = match to.strip_prefix("//") {
        // The first segment of an absolute address is the provider.
        Some(absolute) => absolute.split_once('/').map_or("", |(_, rest)| rest),
        None => to.strip_prefix('/').unwrap_or(to),
    };
    rest.split('/').next().unwrap_or_default()
}

impl Brokers {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn broker(&self, url: Url) -> Result<Arc<Broker>, Unreachable> {
        let mut known = self.lock();
        if let Some(known) = known.get(&url.authority()) {
            return Ok(Arc::clone(&known.broker));
        }
        if known.len() >= BROKERS_MAX {
            return Err(Unreachable("too many brokers are spoken with".to_owned()));
        }
        let authority = url.authority();
        // At a broker that is not our own we only ask.
        let speaker = Speaker { serves: false, ..self.speaker.clone() };
        let broker = Arc::new(Broker::new(url, &speaker, self.tls.clone(), ANSWER_OCTETS_MAX));
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(Arc::clone(&broker).run(Arc::new(Nobody), stopped));
        known.insert(authority, Known { broker: Arc::clone(&broker), _stop: Some(stop) });
        Ok(broker)
    }
}

#[cfg(test)]
mod tests {
    use super::receiver_of;

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
