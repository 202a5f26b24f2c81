//! HTTP server: passes requests to the engine and sends the answers.

use super::connection::{Endings, Patience};
use super::direct::{self, WholeAsked};
use super::message::{accepted, read_request, request_id, write_response};
use crate::accept::{Admission, OF_A_PAGE, UNAVAILABLE};
use crate::answers::Answers;
use crate::engine::Engine;
use crate::quota::QuotaRefusal;
use crate::tasks::spawn;
use crate::tls::{Identity, ListenerSecurity, meet};
use core::convert::Infallible;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use gatewright_onem2m::{Refusal, Release, Request, Response, Status};
use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::ORIGIN;
use hyper::http::request;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Time limit for the body of a request.
const BODY_WITHIN: Duration = Duration::from_secs(20);
/// Octets that a request takes beside those of its head while it waits for its content.
const REQUEST_OCTETS: usize = 1_024;
/// Octets of a refused body that are still read and discarded.
const DRAINED_MAX: usize = 1 << 20;

/// Requests that the server refused.
#[derive(Debug, Default)]
pub(crate) struct ServerCounters {
    pub(crate) connections: AtomicU64,
    pub(crate) bodies_refused: AtomicU64,
    pub(crate) handshakes_failed: AtomicU64,
    pub(crate) endings: Arc<Endings>,
}

/// State shared by all connections.
#[derive(Clone, Debug)]
pub(crate) struct HttpServer {
    pub(crate) engine: Arc<Engine>,
    pub(crate) body_octets_max: usize,
    pub(crate) admission: Admission,
    pub(crate) counters: Arc<ServerCounters>,
    /// CSE-ID and service provider, to check originators.
    pub(crate) own: Arc<(String, String)>,
}

/// Reads and discards the rest of a refused body while the refusal is sent: closing a connection
/// with unread octets resets it, and the peer might lose the refusal (RFC 9112 §9.6).
async fn drain(mut body: Incoming) {
    let mut left = DRAINED_MAX;
    let drained = async {
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(BODY_WITHIN, drained).await;
}

/// Octets that a head takes in memory: names, values and their places.
fn head_octets(head: &request::Parts) -> usize {
    let fields = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 64);
    let target = head.uri.path().len() + head.uri.query().map_or(0, str::len);
    fields.fold(target.saturating_add(REQUEST_OCTETS), usize::saturating_add)
}

/// Why a body was not read to its end.
enum Unread {
    Broken,
    Late,
    TooLarge,
    Refused(QuotaRefusal),
}

/// A peer's authenticated identity and its address.
type Peer = (Option<Identity>, Option<IpAddr>);

impl HttpServer {
    /// Accepts connections until `stop` is set; each connection then ends once its pending requests
    /// are answered.
    pub(crate) async fn run(
        self,
        listener: TcpListener,
        entry: ListenerSecurity,
        stop: watch::Receiver<bool>,
    ) {
        let admission = self.admission.clone();
        let stopped = stop.clone();
        let serve = |stream, _| {
            self.counters.connections.fetch_add(1, Ordering::Relaxed);
            self.clone().welcome(stream, entry.clone(), stop.clone())
        };
        // Before the handshake nothing can be said over TLS.
        let refusal = if matches!(entry, ListenerSecurity::Plain) { UNAVAILABLE } else { b"" };
        admission.run((listener, refusal), stopped, serve).await;
    }

    async fn welcome(
        self,
        stream: TcpStream,
        entry: ListenerSecurity,
        stop: watch::Receiver<bool>,
    ) {
        let address = stream.peer_addr().ok().map(|peer| peer.ip());
        let keyring = match entry {
            ListenerSecurity::Plain => return self.serve(stream, (None, address), stop).await,
            ListenerSecurity::Tls(keyring) => keyring,
        };
        match meet(&keyring, stream, &self.own.1).await {
            Some((stream, identity)) => self.serve(stream, (Some(identity), address), stop).await,
            None => {
                self.counters.handshakes_failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    async fn serve<S>(self, stream: S, peer: Peer, stop: watch::Receiver<bool>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let endings = Arc::clone(&self.counters.endings);
        let shared = Arc::new((self, peer));
        let (octets_max, theirs) = (shared.0.body_octets_max, Arc::clone(&shared));
        let answer_whole = |asked| shared.0.answer_whole(asked, &shared.1);
        let answer = move |request| {
            let shared = Arc::clone(&theirs);
            async move { shared.0.answer(request, &shared.1).await }
        };
        let limits = (Patience::default(), endings);
        direct::serve(stream, limits, (octets_max, answer_whole), answer, stop).await;
    }

    /// Answers a request that arrived whole.
    async fn answer_whole(&self, asked: WholeAsked, (identity, address): &Peer) -> Response {
        match asked {
            Err((refusal, id)) => Response::refusing(&refusal, id, Release::default()),
            Ok(mut request) => {
                self.authenticate(&mut request, identity.as_ref());
                self.engine.answer_to(request, *address).await
            }
        }
    }

    async fn answer(
        &self,
        message: hyper::Request<Incoming>,
        (identity, address): &Peer,
    ) -> Result<hyper::Response<Bytes>, Infallible> {
        let (head, body) = message.into_parts();
        let serialisation = accepted(&head.headers);
        let refuse = |refusal: &Refusal| {
            Response::refusing(refusal, request_id(&head.headers), Release::default())
        };
        let mut is_too_large = false;
        let response = match self.collect(body, (head_octets(&head), *address)).await {
            Err(Unread::Broken) => {
                refuse(&Refusal::new(Status::BadRequest, "the content was broken off"))
            }
            Err(Unread::Late) => {
                refuse(&Refusal::new(Status::RequestTimeout, "the content did not come"))
            }
            Err(Unread::TooLarge) => {
                is_too_large = true;
                let most = self.body_octets_max;
                refuse(&Refusal::new(Status::NotAcceptable, format!("more than {most} octets")))
            }
            Err(Unread::Refused(refused)) => {
                refused.response(request_id(&head.headers), Release::default())
            }
            Ok(body) => match self.read(&head, &body, identity.as_ref()) {
                Err(refusal) => refuse(&refusal),
                Ok(request) => self.engine.answer_to(request, *address).await,
            },
        };
        let mut message = write_response(response, serialisation);
        if is_too_large {
            // RFC 9110 §15.5.14.
            *message.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
        }
        Ok(message)
    }

    /// Parses a request and checks that the peer may use its originator.
    ///
    /// A web page is refused: its browser adds the field `Origin` (RFC 6454 §7), and may reach what the
    /// page's site cannot.
    fn read(
        &self,
        head: &request::Parts,
        body: &[u8],
        identity: Option<&Identity>,
    ) -> Result<Request, Refusal> {
        if head.headers.contains_key(ORIGIN) {
            return Err(Refusal::new(Status::OriginatorHasNoPrivilege, OF_A_PAGE));
        }
        let mut request = read_request(head, body)?;
        self.authenticate(&mut request, identity);
        Ok(request)
    }

    fn authenticate(&self, request: &mut Request, identity: Option<&Identity>) {
        if let Some(identity) = identity {
            identity.authenticate(request, (&self.own.0, &self.own.1));
        }
    }

    /// Reads a body. While it arrives, it counts for its peer, and so does the head that waits for
    /// it: HTTP/2 has as many of them on a connection as streams.
    async fn collect(
        &self,
        body: Incoming,
        from: (usize, Option<IpAddr>),
    ) -> Result<Bytes, Unread> {
        if body.is_end_stream() {
            return Ok(Bytes::new());
        }
        let collected = tokio::time::timeout(BODY_WITHIN, self.gather(body, from)).await;
        let collected = collected.unwrap_or(Err(Unread::Late));
        if collected.is_err() {
            self.counters.bodies_refused.fetch_add(1, Ordering::Relaxed);
        }
        collected
    }

    async fn gather(
        &self,
        mut body: Incoming,
        from: (usize, Option<IpAddr>),
    ) -> Result<Bytes, Unread> {
        let gathered = self.pieces(&mut body, from).await;
        if gathered.is_err() {
            spawn(drain(body));
        }
        gathered
    }

    async fn pieces(
        &self,
        body: &mut Incoming,
        (head, address): (usize, Option<IpAddr>),
    ) -> Result<Bytes, Unread> {
        let most = self.body_octets_max;
        if body.size_hint().lower() > u64::try_from(most).unwrap_or(u64::MAX) {
            return Err(Unread::TooLarge);
        }
        let mut whole = Vec::new();
        let mut arriving = address.map(|address| self.engine.quotas().arriving(address));
        if let Some(arriving) = &mut arriving {
            arriving.grow(head).map_err(Unread::Refused)?;
        }
        while let Some(frame) = body.frame().await {
            let Ok(piece) = frame.map_err(|_| Unread::Broken)?.into_data() else { continue };
            if whole.len().saturating_add(piece.len()) > most {
                return Err(Unread::TooLarge);
            }
            if whole.is_empty() && body.is_end_stream() {
                return Ok(piece);
            }
            if let Some(arriving) = &mut arriving {
                arriving.grow(piece.len()).map_err(Unread::Refused)?;
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole.into())
    }
}
