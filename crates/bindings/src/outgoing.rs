//! Sender of requests, by the binding that a URL names.

use crate::coap;
use crate::engine::Engine;
use crate::http::send;
use crate::mqtt;
use crate::party::Party;
use crate::ws;
use gatewright_onem2m::{Request, Response, Serialisation, Unreachable};
use std::sync::Arc;
use tokio_rustls::rustls::ClientConfig;

/// Sends requests over all bindings.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    http: send::HttpSender,
    coap: coap::CoapSender,
    mqtt: mqtt::MqttSender,
    ws: ws::WsSender,
    tls: Option<ClientConfig>,
    serialisation: Serialisation,
}

impl Sender {
    /// Creates a sender; TLS is available if `tls` is given.
    pub(crate) fn new(tls: Option<ClientConfig>) -> Self {
        Self {
            http: send::HttpSender::new(tls.clone()),
            coap: coap::CoapSender::default(),
            mqtt: mqtt::MqttSender::default(),
            ws: ws::WsSender::default(),
            tls,
            serialisation: Serialisation::default(),
        }
    }

    /// Sets the serialisation of what is sent.
    pub(crate) const fn writing(mut self, serialisation: Serialisation) -> Self {
        self.serialisation = serialisation;
        self
    }

    /// Sets the identity for MQTT and WebSocket; without it, neither is available.
    pub(crate) fn with_identity(mut self, identity: mqtt::MqttIdentity) -> Self {
        self.ws = ws::WsSender::new(&identity.id, Party::Nobody, self.tls.clone());
        self.mqtt = mqtt::MqttSender::new(identity, self.tls.clone());
        self
    }

    /// Lets peers send requests to this CSE over connections that it opened.
    pub(crate) fn serving(mut self, id: &str, engine: &Arc<Engine>) -> Self {
        self.ws = ws::WsSender::new(id, Party::Cse(Arc::downgrade(engine)), self.tls.clone());
        self
    }

    /// Uses this existing connection for its broker.
    pub(crate) fn share(&self, broker: &Arc<mqtt::Broker>) {
        self.mqtt.share(broker);
    }

    /// Brokers that are not connected, by authority, and why.
    pub(crate) fn failures(&self) -> Vec<(String, String)> {
        self.mqtt.failures()
    }

    /// The serialisation of a request: the receiver's, or else this sender's.
    pub(crate) fn serialisation_for(&self, wanted: Option<Serialisation>) -> Serialisation {
        wanted.unwrap_or(self.serialisation)
    }

    fn can_use(&self, url: &str) -> bool {
        self.http.can_use(url)
            || coap::CoapSender::can_use(url)
            || self.mqtt.can_use(url)
            || self.ws.can_use(url)
    }

    /// The first usable URL.
    pub(crate) fn choose<'url>(&self, urls: &'url [String]) -> Result<&'url str, Unreachable> {
        let url = urls.iter().find(|url| self.can_use(url)).map(String::as_str);
        url.ok_or_else(|| Unreachable("no point of access can be used".to_owned()))
    }

    /// Sends a request to the first usable URL and waits for the response.
    pub(crate) async fn send(
        &self,
        urls: &[String],
        request: &Request,
    ) -> Result<Response, Unreachable> {
        self.send_to(self.choose(urls)?, request).await
    }

    /// Sends a request to a usable URL and waits for the response.
    pub(crate) async fn send_to(
        &self,
        url: &str,
        request: &Request,
    ) -> Result<Response, Unreachable> {
        self.send_as(url, request, None).await
    }

    /// Sends a request to a usable URL in the receiver's serialisation and waits for the response.
    pub(crate) async fn send_as(
        &self,
        url: &str,
        request: &Request,
        wanted: Option<Serialisation>,
    ) -> Result<Response, Unreachable> {
        let serialisation = self.serialisation_for(wanted);
        if coap::CoapSender::can_use(url) {
            return self.coap.send(url, request, serialisation).await;
        }
        if self.ws.can_use(url) {
            // A connection that begins is large, and few do.
            return Box::pin(self.ws.send(url, request, serialisation)).await;
        }
        if self.mqtt.can_use(url) {
            return self.mqtt.send(url, request, serialisation).await;
        }
        self.http.send(url, request, serialisation).await
    }
}
