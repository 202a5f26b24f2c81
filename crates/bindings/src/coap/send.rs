//! CoAP client: sends requests to CoAP URLs from one socket per address family, opened on first
//! use.

use super::CoapSocket;
use crate::answers::Nobody;
use crate::tasks::spawn;
use gatewright_onem2m::coap::primitive::{read_response, write_request};
use gatewright_onem2m::{Request, Response, Serialisation, Unreachable};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use tokio::sync::{OnceCell, watch};

/// Default port of CoAP (RFC 7252 §6.1).
const PORT: u16 = 5_683;
/// Octets of a response at most.
const ANSWER_OCTETS_MAX: usize = 16 * 1024 * 1024;

/// Sends requests over CoAP.
#[derive(Clone, Debug, Default)]
pub(crate) struct CoapSender(Arc<Sockets>);

#[derive(Debug, Default)]
struct Sockets {
    four: OnceCell<SocketLoop>,
    six: OnceCell<SocketLoop>,
}

/// A socket whose loop ends with it.
#[derive(Debug)]
struct SocketLoop {
    socket: Arc<CoapSocket>,
    _stop: watch::Sender<bool>,
}

impl CoapSender {
    pub(crate) fn can_use(url: &str) -> bool {
        url.starts_with("coap://")
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
        let direct = request.to.contains("://");
        let to = resolve(if direct { &request.to } else { url }).await?;
        let socket = self.socket(to).await?;
        let answer = socket.ask(to, message).await;
        let answer = answer.map_err(|failure| Unreachable(format!("{to}: {failure}")))?;
        read_response(&answer).map_err(|refusal| Unreachable(refusal.debug.into_owned()))
    }

    async fn socket(&self, to: SocketAddr) -> Result<&Arc<CoapSocket>, Unreachable> {
        let (cell, any) = match to {
            SocketAddr::V4(_) => (&self.0.four, SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))),
            SocketAddr::V6(_) => (&self.0.six, SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))),
        };
        let made = cell.get_or_try_init(|| async {
            let socket = Arc::new(CoapSocket::bind(any, ANSWER_OCTETS_MAX).await?);
            let (stop, stopped) = watch::channel(false);
            spawn(Arc::clone(&socket).run(Arc::new(Nobody), stopped));
            Ok::<_, std::io::Error>(SocketLoop { socket, _stop: stop })
        });
        let made = made.await.map_err(|error| Unreachable(format!("no socket: {error}")))?;
        Ok(&made.socket)
    }
}

/// The address of a URL's host.
async fn resolve(url: &str) -> Result<SocketAddr, Unreachable> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| {
        !port.is_empty() && port.bytes().all(|octet| octet.is_ascii_digit())
    });
    // A bare IPv6 address ends with a colon and digits too, but is written in brackets.
    let authority = if has_port { authority.to_owned() } else { format!("{authority}:{PORT}") };
    let mut found = tokio::net::lookup_host(&authority)
        .await
        .map_err(|error| Unreachable(format!("{authority}: {error}")))?;
    found.next().ok_or_else(|| Unreachable(format!("{authority} has no address")))
}
