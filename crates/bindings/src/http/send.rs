//! HTTP client: sends requests over pooled connections.

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

/// Octets of a response at most.
const ANSWER_OCTETS_MAX: usize = 16 * 1024 * 1024;
/// Time that an idle connection is kept.
const IDLE_KEPT: Duration = Duration::from_secs(30);
/// Time limit for connecting.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// Sends requests over HTTP.
#[derive(Clone, Debug)]
pub(crate) enum HttpSender {
    /// Without TLS.
    Plain(Client<HttpConnector, Full<Bytes>>),
    /// With and without TLS.
    Tls(Client<HttpsConnector<HttpConnector>, Full<Bytes>>),
}

impl HttpSender {
    /// Creates a sender over TCP, and over TLS if `tls` is given.
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

    /// Sends a request to `url` and waits for the response.
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
