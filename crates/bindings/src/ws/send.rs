//! WebSocket client: sends requests to WebSocket URLs, over one kept connection per peer.

use super::metered::{Meter, Metered};
use super::{OutgoingCall, PATIENCE, WITHIN, converse, limits, protocol};
use crate::answers::{Answers, Authenticated};
use crate::engine::Engine;
use crate::party::Party;
use crate::tasks::spawn;
use crate::tls::Identity;
use core::fmt;
use gatewright_onem2m::{Request, Response, Serialisation, Unreachable};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_tungstenite::tungstenite::ClientRequestBuilder;

/// Peers connected at a time.
const PEERS_MAX: usize = 256;
/// Requests queued for one peer.
const WAITING_MAX: usize = 64;
/// Octets of a response at most.
const ANSWER_OCTETS_MAX: usize = 16 * 1024 * 1024;
/// Ports of `ws` and `wss` URLs (RFC 6455 §3).
const PORTS: [u16; 2] = [80, 443];

/// Sends requests over WebSocket, if it has an identity.
#[derive(Clone, Default)]
pub(crate) struct WsSender(Option<Arc<Peers>>);

/// Keys and peers are not printed.
impl fmt::Debug for WsSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

struct Peers {
    /// Identifier of this side of the connections.
    own: String,
    /// Entity that answers requests arriving over outgoing connections.
    party: Arc<Party>,
    known: Mutex<HashMap<String, PeerConnection>>,
    /// TLS connector for `wss`, if certificates are configured.
    tls: Option<TlsConnector>,
}

/// A connection, which ends when it is forgotten.
#[derive(Clone, Debug)]
struct PeerConnection {
    asks: mpsc::Sender<OutgoingCall>,
    _stop: Arc<watch::Sender<bool>>,
}

impl WsSender {
    pub(crate) fn new(own: &str, party: Party, tls: Option<ClientConfig>) -> Self {
        let (own, party, known) = (own.to_owned(), Arc::new(party), Mutex::default());
        let tls = tls.map(|tls| TlsConnector::from(Arc::new(tls)));
        Self(Some(Arc::new(Peers { own, party, known, tls })))
    }

    pub(crate) fn can_use(&self, url: &str) -> bool {
        let tls = |peers: &Arc<Peers>| url.starts_with("wss://") && peers.tls.is_some();
        self.0.as_ref().is_some_and(|peers| url.starts_with("ws://") || tls(peers))
    }

    /// Sends a request to `url` and waits for the response.
    pub(crate) async fn send(
        &self,
        url: &str,
        request: &Request,
        serialisation: Serialisation,
    ) -> Result<Response, Unreachable> {
        let peers = self.0.as_ref();
        let peers =
            peers.ok_or_else(|| Unreachable("WebSocket is not available here".to_owned()))?;
        let url = if request.to.contains("://") { &request.to } else { url };
        let peer = peers.peer(url, serialisation).await?;
        let broken = || Unreachable(format!("{url}: the connection broke before the answer"));
        let (waiting, answer) = oneshot::channel();
        let asked = OutgoingCall { id: request.id.clone(), text: request.to_json(), waiting };
        peer.asks.send(asked).await.map_err(|_| broken())?;
        answer.await.map_err(|_| broken())
    }
}

impl Peers {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, PeerConnection>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection to a peer, opened if there is none.
    async fn peer(
        &self,
        url: &str,
        serialisation: Serialisation,
    ) -> Result<PeerConnection, Unreachable> {
        let key = format!("{} {url}", protocol(serialisation));
        if let Some(known) = self.lock().get(&key).filter(|known| !known.asks.is_closed()) {
            return Ok(known.clone());
        }
        let away = |why: String| Unreachable(format!("{url}: {why}"));
        let connecting = tokio::time::timeout(WITHIN, self.connect(url, serialisation)).await;
        let peer = connecting.map_err(|_| away("no connection in time".to_owned()))?;
        let peer = peer.map_err(away)?;
        let mut known = self.lock();
        known.retain(|_, peer| !peer.asks.is_closed());
        if known.len() >= PEERS_MAX {
            return Err(Unreachable("too many peers are connected to".to_owned()));
        }
        known.insert(key, peer.clone());
        Ok(peer)
    }

    async fn connect(
        &self,
        url: &str,
        serialisation: Serialisation,
    ) -> Result<PeerConnection, String> {
        let uri: hyper::Uri = url.parse().map_err(|_| "no URL".to_owned())?;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let secure = uri.scheme_str() == Some("wss");
        let [plain, over_tls] = PORTS;
        let port = uri.port_u16().unwrap_or(if secure { over_tls } else { plain });
        let request = ClientRequestBuilder::new(uri)
            .with_header("X-M2M-Origin", self.own.as_str())
            .with_sub_protocol(protocol(serialisation));
        let stream =
            TcpStream::connect((host.as_str(), port)).await.map_err(|it| it.to_string())?;
        let _ = stream.set_nodelay(true);
        if !secure {
            return upgrade(stream, request, serialisation, Arc::clone(&self.party)).await;
        }
        let tls = self.tls.as_ref().ok_or("TLS is not available here")?;
        let name = ServerName::try_from(host).map_err(|error| error.to_string())?;
        let stream = tls.connect(name, stream).await.map_err(|error| error.to_string())?;
        let Some(engine) = self.party.engine() else {
            return upgrade(stream, request, serialisation, Arc::clone(&self.party)).await;
        };
        let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let party = Arc::new(self.party_for(&engine, certificate, url));
        drop(engine);
        upgrade(stream, request, serialisation, party).await
    }

    /// The party for the peer with this certificate at this URL, limited to its authorised
    /// originators.
    fn party_for(
        &self,
        engine: &Engine,
        certificate: Option<&CertificateDer<'_>>,
        url: &str,
    ) -> Authenticated<Party> {
        let own = Arc::new(engine.own());
        let identity = certificate.and_then(|it| Identity::of(it, &own.1).ok()).unwrap_or_default();
        // The certificate says that it is the URL's host, and the operator who is there.
        let identity = identity.and(engine.registrar_at(url));
        Authenticated { answers: Arc::clone(&self.party), identity, own }
    }
}

/// Upgrades a connection to WebSocket and runs it from then on.
async fn upgrade<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    request: ClientRequestBuilder,
    serialisation: Serialisation,
    party: Arc<impl Answers>,
) -> Result<PeerConnection, String> {
    let config = Some(limits(ANSWER_OCTETS_MAX));
    let meter = Meter::default();
    let stream = Metered::new(stream, meter.clone());
    let upgraded = tokio_tungstenite::client_async_with_config(request, stream, config).await;
    let (socket, _) = upgraded.map_err(|error| error.to_string())?;
    let (asks, asked) = mpsc::channel(WAITING_MAX);
    let (stop, stopped) = watch::channel(false);
    spawn(async move {
        converse((socket, &meter), serialisation, &party, (asked, PATIENCE), stopped).await;
    });
    Ok(PeerConnection { asks, _stop: Arc::new(stop) })
}
