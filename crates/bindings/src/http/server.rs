//! The server: connections in, requests to the engine, answers out.

use super::message::{accepted, read_request, request_id, write_response};
use crate::engine::Engine;
use crate::tls::Identity;
use core::convert::Infallible;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use gatewright_onem2m::{Refusal, Release, Request, Response, Status};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::http::request;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

/// How long a peer may take to send the head of a request.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// How long a peer may take to send the body of a request.
const BODY_WITHIN: Duration = Duration::from_secs(20);
/// How long a TLS handshake may take.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// Pause after the system gave no connection (out of descriptors), so as not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What the server refused.
#[derive(Debug, Default)]
pub(crate) struct ServerCounters {
    pub(crate) connections: AtomicU64,
    pub(crate) connections_refused: AtomicU64,
    pub(crate) bodies_refused: AtomicU64,
    pub(crate) handshakes_failed: AtomicU64,
}

/// What every connection shares.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) engine: Arc<Engine>,
    pub(crate) body_octets_max: usize,
    pub(crate) connections: Arc<Semaphore>,
    pub(crate) counters: Arc<ServerCounters>,
    pub(crate) peers: Arc<Peers>,
    /// CSE-ID and provider, to know an originator by.
    pub(crate) own: Arc<(String, String)>,
}

/// How many connections each address has: one peer cannot take them all.
#[derive(Debug)]
pub(crate) struct Peers {
    most: usize,
    connections: Mutex<HashMap<IpAddr, usize>>,
}

/// One connection of an address, counted until it is dropped.
#[derive(Debug)]
struct Guest {
    peers: Arc<Peers>,
    address: IpAddr,
}

impl Peers {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, connections: Mutex::default() }
    }

    fn admit(peers: &Arc<Self>, address: IpAddr) -> Option<Guest> {
        let mut connections = peers.lock();
        let count = connections.entry(address).or_default();
        if *count >= peers.most {
            return None;
        }
        *count += 1;
        drop(connections);
        Some(Guest { peers: Arc::clone(peers), address })
    }

    /// A panic elsewhere leaves the counts as they were.
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut connections = self.peers.lock();
        if let Some(count) = connections.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                connections.remove(&self.address);
            }
        }
    }
}

/// How connections of one listener begin.
#[derive(Clone)]
pub(crate) enum Entry {
    /// In the clear.
    Plain,
    /// With a handshake in which both show who they are.
    Tls(TlsAcceptor),
}

impl Server {
    /// Serves until `stop` says so.
    pub(crate) async fn run(
        self,
        listener: TcpListener,
        entry: Entry,
        mut stop: watch::Receiver<bool>,
    ) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stop.changed() => return,
            };
            let Ok((stream, peer)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let Ok(permit) = Arc::clone(&self.connections).try_acquire_owned() else {
                self.counters.connections_refused.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            let Some(guest) = Peers::admit(&self.peers, peer.ip()) else {
                self.counters.connections_refused.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            self.counters.connections.fetch_add(1, Ordering::Relaxed);
            let (server, entry, stop) = (self.clone(), entry.clone(), stop.clone());
            tokio::spawn(async move {
                server.welcome(stream, entry, stop).await;
                drop((permit, guest));
            });
        }
    }

    async fn welcome(self, stream: TcpStream, entry: Entry, stop: watch::Receiver<bool>) {
        // Answers are small and go out whole: waiting to fill a segment only delays them.
        let _ = stream.set_nodelay(true);
        let acceptor = match entry {
            Entry::Plain => return self.serve(stream, None, stop).await,
            Entry::Tls(acceptor) => acceptor,
        };
        let handshake = tokio::time::timeout(HANDSHAKE_WITHIN, acceptor.accept(stream)).await;
        let identified = handshake.ok().and_then(Result::ok).and_then(|stream| {
            let certificate = stream.get_ref().1.peer_certificates()?.first()?;
            let identity = Identity::of(certificate, &self.own.1).ok()?;
            Some((stream, identity))
        });
        match identified {
            Some((stream, identity)) => self.serve(stream, Some(identity), stop).await,
            None => {
                self.counters.handshakes_failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    async fn serve<S>(self, stream: S, identity: Option<Identity>, mut stop: watch::Receiver<bool>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN).keep_alive(true);
        let shared = Arc::new((self, identity));
        let service = service_fn(move |request| {
            let shared = Arc::clone(&shared);
            async move { shared.0.answer(request, shared.1.as_ref()).await }
        });
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        tokio::select! {
            // A peer that breaks the protocol has been answered as far as that is possible.
            _ = connection.as_mut() => return,
            _ = stop.changed() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    }

    async fn answer(
        &self,
        message: hyper::Request<Incoming>,
        identity: Option<&Identity>,
    ) -> Result<hyper::Response<Full<Bytes>>, Infallible> {
        let (head, body) = message.into_parts();
        let serialisation = accepted(&head.headers);
        let refuse = |refusal: &Refusal| {
            Response::refusing(refusal, request_id(&head.headers), Release::default())
        };
        let response = match self.collect(body).await {
            Err(refusal) => refuse(&refusal),
            Ok(body) => match self.read(&head, &body, identity) {
                Err(refusal) => refuse(&refusal),
                Ok(request) => self.engine.ask(request).await.unwrap_or_else(|| {
                    refuse(&Refusal::new(Status::InternalServerError, "this CSE is stopping"))
                }),
            },
        };
        Ok(write_response(response, serialisation))
    }

    /// Reads a request, and checks that its originator is the peer.
    fn read(
        &self,
        head: &request::Parts,
        body: &[u8],
        identity: Option<&Identity>,
    ) -> Result<Request, Refusal> {
        let mut request = read_request(head, body)?;
        if let Some(identity) = identity {
            identity.vouch(&mut request, &self.own.0, &self.own.1)?;
        }
        Ok(request)
    }

    async fn collect(&self, body: Incoming) -> Result<Bytes, Refusal> {
        if hyper::body::Body::is_end_stream(&body) {
            return Ok(Bytes::new());
        }
        let limited = Limited::new(body, self.body_octets_max).collect();
        match tokio::time::timeout(BODY_WITHIN, limited).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(_)) => {
                self.counters.bodies_refused.fetch_add(1, Ordering::Relaxed);
                Err(Refusal::new(
                    Status::NotAcceptable,
                    format!("more than {} octets, or broken off", self.body_octets_max),
                ))
            }
            Err(_) => {
                self.counters.bodies_refused.fetch_add(1, Ordering::Relaxed);
                Err(Refusal::new(Status::RequestTimeout, "the content did not come"))
            }
        }
    }
}
