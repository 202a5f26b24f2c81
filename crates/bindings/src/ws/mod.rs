//! The WebSocket binding (TS-0020): primitives as messages, requests and answers of both sides over
//! one connection.

mod send;

pub(crate) use send::Sender;

use crate::answers::{Answers, refuse};
use core::time::Duration;
use futures_util::{SinkExt, StreamExt};
use gatewright_onem2m::{Request, Response, Serialisation};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{
    ErrorResponse, Request as Ask, Response as Accept,
};
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

/// How a connection says what is spoken over it (TS-0020 §6.2).
const PROTOCOL: &str = "sec-websocket-protocol";
/// The protocols that are spoken, in the order that is preferred.
const PROTOCOLS: [(&str, Serialisation); 2] =
    [("oneM2M.json", Serialisation::Json), ("oneM2M.cbor", Serialisation::Cbor)];
/// How long a peer may take to upgrade its connection, and to take a message.
const WITHIN: Duration = Duration::from_secs(10);
/// Pause after the system gave no connection, so as not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Requests of one connection that are answered at the same time; beyond, it is not read.
const ANSWERED_AT_ONCE: usize = 64;
/// Octets of a message beyond the content that the machine takes.
const MESSAGE_SLACK: usize = 64 * 1024;

fn protocol(serialisation: Serialisation) -> &'static str {
    PROTOCOLS.iter().find(|(_, it)| *it == serialisation).map_or("", |(name, _)| name)
}

fn limits(content_octets_max: usize) -> WebSocketConfig {
    let most = content_octets_max.saturating_add(MESSAGE_SLACK);
    WebSocketConfig::default().max_message_size(Some(most)).max_frame_size(Some(most))
}

/// What the server did and refused.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    connections: AtomicU64,
    connections_refused: AtomicU64,
    handshakes_failed: AtomicU64,
}

impl Counters {
    pub(crate) fn each(&self) -> [(&'static str, u64); 3] {
        [
            ("ws_connections", &self.connections),
            ("ws_connections_refused", &self.connections_refused),
            ("ws_handshakes_failed", &self.handshakes_failed),
        ]
        .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
    }
}

/// What every connection of a server shares.
#[derive(Debug)]
pub(crate) struct Server<A> {
    pub(crate) answers: Arc<A>,
    pub(crate) content_octets_max: usize,
    pub(crate) connections: Arc<Semaphore>,
    pub(crate) counters: Arc<Counters>,
}

impl<A: Answers> Server<A> {
    /// Serves until `stop` says so.
    pub(crate) async fn run(
        self: Arc<Self>,
        listener: TcpListener,
        mut stop: watch::Receiver<bool>,
    ) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stop.changed() => return,
            };
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let Ok(permit) = Arc::clone(&self.connections).try_acquire_owned() else {
                self.counters.connections_refused.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            let (server, stop) = (Arc::clone(&self), stop.clone());
            tokio::spawn(async move {
                server.welcome(stream, stop).await;
                drop(permit);
            });
        }
    }

    async fn welcome(&self, stream: TcpStream, stop: watch::Receiver<bool>) {
        // Answers are small and go out whole.
        let _ = stream.set_nodelay(true);
        let mut serialisation = Serialisation::Json;
        #[expect(clippy::result_large_err, reason = "the handshake wants its refusal whole")]
        let choose = |ask: &Ask, accept: Accept| choose(ask, accept, &mut serialisation);
        let config = Some(limits(self.content_octets_max));
        let upgrade = tokio_tungstenite::accept_hdr_async_with_config(stream, choose, config);
        let Ok(Ok(socket)) = tokio::time::timeout(WITHIN, upgrade).await else {
            self.counters.handshakes_failed.fetch_add(1, Ordering::Relaxed);
            return;
        };
        self.counters.connections.fetch_add(1, Ordering::Relaxed);
        // The server asks nothing over connections of others, and they go on without it.
        let (_asks, asked) = mpsc::channel(1);
        converse(socket, serialisation, &self.answers, asked, stop).await;
    }
}

/// Takes the first protocol that the peer offers and that is spoken here.
#[expect(clippy::result_large_err, reason = "the handshake wants its refusal whole")]
fn choose(
    ask: &Ask,
    mut accept: Accept,
    chosen: &mut Serialisation,
) -> Result<Accept, ErrorResponse> {
    let offers = ask.headers().get_all(PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let mut offered = offers.flat_map(|value| value.split(',')).map(str::trim).peekable();
    if offered.peek().is_none() {
        // Without a word it is JSON.
        return Ok(accept);
    }
    let known =
        offered.find_map(|name| PROTOCOLS.iter().find(|(known, _)| *known == name).copied());
    let Some((name, serialisation)) = known else {
        let mut refusal = ErrorResponse::new(Some("oneM2M.json or oneM2M.cbor".to_owned()));
        *refusal.status_mut() = StatusCode::BAD_REQUEST;
        return Err(refusal);
    };
    *chosen = serialisation;
    accept.headers_mut().insert(PROTOCOL, HeaderValue::from_static(name));
    Ok(accept)
}

/// A request of ours, and who waits for its answer.
struct Asked {
    id: String,
    text: String,
    waiting: oneshot::Sender<Response>,
}

/// Speaks over a connection until it ends: answers requests, sends our own and takes their answers.
async fn converse<S: AsyncRead + AsyncWrite + Unpin, A: Answers>(
    mut socket: WebSocketStream<S>,
    serialisation: Serialisation,
    answers: &Arc<A>,
    mut asked: mpsc::Receiver<Asked>,
    mut stop: watch::Receiver<bool>,
) {
    let (answered, mut responses) = mpsc::channel::<String>(ANSWERED_AT_ONCE);
    let at_once = Arc::new(Semaphore::new(ANSWERED_AT_ONCE));
    let mut waiting: HashMap<String, oneshot::Sender<Response>> = HashMap::new();
    loop {
        waiting.retain(|_, waiting| !waiting.is_closed());
        let text = tokio::select! {
            message = socket.next() => {
                let octets = match &message {
                    Some(Ok(Message::Text(text))) => text.as_bytes(),
                    Some(Ok(Message::Binary(octets))) => octets.as_ref(),
                    Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                };
                let text = serialisation.read(octets);
                if let Some(response) =
                    text.as_ref().ok().and_then(|it| Response::from_json(it.as_bytes()).ok())
                {
                    if let Some(waiting) = waiting.remove(&*response.id) {
                        let _ = waiting.send(response);
                    }
                    continue;
                }
                let Ok(permit) = Arc::clone(&at_once).acquire_owned().await else { return };
                let (answers, answered) = (Arc::clone(answers), answered.clone());
                tokio::spawn(async move {
                    let request = text
                        .map_err(|refusal| (None, refusal))
                        .and_then(|text| Request::from_json(text.as_bytes()));
                    let response = match request {
                        Ok(request) => answers.answer(request).await,
                        Err((id, refusal)) => refuse(&refusal, id.as_deref().unwrap_or_default()),
                    };
                    let _ = answered.send(response.to_json()).await;
                    drop(permit);
                });
                continue;
            }
            Some(text) = responses.recv() => text,
            Some(Asked { id, text, waiting: waits }) = asked.recv() => {
                waiting.insert(id, waits);
                text
            }
            _ = stop.changed() => {
                let _ = tokio::time::timeout(WITHIN, socket.close(None)).await;
                return;
            }
        };
        let message = match serialisation {
            Serialisation::Json => Message::text(text),
            // What we wrote is JSON; CBOR can say all of it.
            Serialisation::Cbor => Message::binary(serialisation.write(&text).unwrap_or_default()),
        };
        if !matches!(tokio::time::timeout(WITHIN, socket.send(message)).await, Ok(Ok(()))) {
            return;
        }
    }
}
