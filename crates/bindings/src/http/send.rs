//! The client: requests out, answers in, over connections that are kept.

use super::message::{read_response, write_request};
use core::time::Duration;
use gatewright_onem2m::{Request, Response, Serialisation, Unreachable};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio_rustls::rustls::ClientConfig;

/// Octets of an answer that are read.
const ANSWER_OCTETS_MAX: usize = 16 * 1024 * 1024;
/// How long a connection without requests is kept.
const IDLE_KEPT: Duration = Duration::from_secs(30);
/// How long a connection may take to come about.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// Sends requests over HTTP.
#[derive(Clone, Debug)]
pub(crate) enum Sender {
    /// In the clear only.
    Plain(Client<HttpConnector, Full<Bytes>>),
    /// Over TLS too.
    Tls(Client<HttpsConnector<HttpConnector>, Full<Bytes>>),
}

impl Sender {
    /// A sender over TCP, and over TLS if it is given who it is and whom to trust.
    pub(crate) fn new(tls: Option<ClientConfig>) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_WITHIN));
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE_KEPT);
        let Some(tls) = tls else {
            return Self::Plain(builder.build(connector));
        };
        connector.enforce_http(false);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        Self::Tls(builder.build(connector))
    }

    pub(crate) fn can_use(&self, url: &str) -> bool {
        url.starts_with("http://") || (matches!(self, Self::Tls(_)) && url.starts_with("https://"))
    }

    /// Sends a request to `url` and waits for the answer.
    pub(crate) async fn send(
        &self,
        url: &str,
        request: &Request,
        serialisation: Serialisation,
    ) -> Result<Response, Unreachable> {
        let message = write_request(url, request, serialisation)
            .map_err(|refusal| Unreachable(refusal.to_string()))?;
        let answer = match self {
            Self::Plain(client) => client.request(message).await,
            Self::Tls(client) => client.request(message).await,
        };
        let answer = answer.map_err(|error| Unreachable(describe(&error)))?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_OCTETS_MAX).collect().await;
        let body = body.map_err(|error| Unreachable(error.to_string()))?.to_bytes();
        read_response(&head, &body).map_err(|refusal| Unreachable(refusal.debug.into_owned()))
    }
}

/// An error with its causes: hyper's own text names only the outermost.
fn describe(error: &dyn core::error::Error) -> String {
    let mut text = error.to_string();
    let mut at = error.source();
    while let Some(cause) = at {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        at = cause.source();
    }
    text
}
