//! The WebSocket binding (TS-0020): primitives as messages, requests and answers of both sides over
//! one connection.

mod metered;
mod send;

use metered::{Meter, Metered};
pub(crate) use send::Sender;

use crate::accept::Gate;
use crate::answers::{Answers, At, Vouched, refuse};
use crate::quota::Quotas;
use crate::tls::{Entry, meet};
use core::time::Duration;
use futures_util::stream::FuturesUnordered;
use futures_util::{SinkExt, StreamExt};
use gatewright_onem2m::{Refusal, Request, Response, Serialisation};
use serde_json::Value;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{
    ErrorResponse, Request as Ask, Response as Accept,
};
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};

/// How a connection says what is spoken over it (TS-0020 §6.2).
const PROTOCOL: &str = "sec-websocket-protocol";
/// The protocols that are spoken, in the order that is preferred.
const PROTOCOLS: [(&str, Serialisation); 2] =
    [("oneM2M.json", Serialisation::Json), ("oneM2M.cbor", Serialisation::Cbor)];
/// How long a peer may take to upgrade its connection, and to take a message.
const WITHIN: Duration = Duration::from_secs(10);
/// Requests of one connection that are answered at the same time; beyond, it is not read.
const ANSWERED_AT_ONCE: usize = 64;
/// Octets of a message beyond the content that the machine takes.
const MESSAGE_SLACK: usize = 64 * 1024;
/// Octets that are read from a connection at once.
const READ_MAX: usize = 8 * 1024;

fn protocol(serialisation: Serialisation) -> &'static str {
    PROTOCOLS.iter().find(|(_, it)| *it == serialisation).map_or("", |(name, _)| name)
}

fn limits(content_octets_max: usize) -> WebSocketConfig {
    let most = content_octets_max.saturating_add(MESSAGE_SLACK);
    WebSocketConfig::default()
        .max_message_size(Some(most))
        .max_frame_size(Some(most))
        .read_buffer_size(READ_MAX)
}

/// What the server did and refused.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    connections: AtomicU64,
    handshakes_failed: AtomicU64,
}

impl Counters {
    pub(crate) fn each(&self) -> [(&'static str, u64); 2] {
        [("ws_connections", &self.connections), ("ws_handshakes_failed", &self.handshakes_failed)]
            .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
    }
}

/// What every connection of a server shares.
#[derive(Debug)]
pub(crate) struct Server<A> {
    pub(crate) answers: Arc<A>,
    pub(crate) content_octets_max: usize,
    pub(crate) gate: Gate,
    pub(crate) counters: Arc<Counters>,
    /// What its peers may send.
    pub(crate) quotas: Arc<Quotas>,
    /// CSE-ID and provider, to know an originator by.
    pub(crate) own: Arc<(String, String)>,
}

impl<A: Answers> Server<A> {
    /// Serves until `stop` says so.
    pub(crate) async fn run(
        self: Arc<Self>,
        listener: TcpListener,
        entry: Entry,
        stop: watch::Receiver<bool>,
    ) {
        let stopped = stop.clone();
        let serve = |stream, peer: SocketAddr| {
            let (server, entry, stop) = (Arc::clone(&self), entry.clone(), stop.clone());
            async move { server.welcome(stream, entry, peer.ip(), stop).await }
        };
        self.gate.clone().run(listener, stopped, serve).await;
    }

    async fn welcome(
        &self,
        stream: TcpStream,
        entry: Entry,
        address: IpAddr,
        stop: watch::Receiver<bool>,
    ) {
        let answers = Arc::new(At { answers: Arc::clone(&self.answers), address });
        let meter = Meter::new(self.quotas.arriving(address));
        let keyring = match entry {
            Entry::Plain => return self.upgrade((stream, meter), &answers, stop).await,
            Entry::Tls(keyring) => keyring,
        };
        let Some((stream, identity)) = meet(&keyring, stream, &self.own.1).await else {
            self.counters.handshakes_failed.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let own = Arc::clone(&self.own);
        let answers = Arc::new(Vouched { answers, identity, own });
        self.upgrade((stream, meter), &answers, stop).await;
    }

    async fn upgrade<S: AsyncRead + AsyncWrite + Unpin, B: Answers>(
        &self,
        (stream, meter): (S, Meter),
        answers: &Arc<B>,
        stop: watch::Receiver<bool>,
    ) {
        let mut serialisation = Serialisation::Json;
        #[expect(clippy::result_large_err, reason = "the handshake wants its refusal whole")]
        let choose = |ask: &Ask, accept: Accept| choose(ask, accept, &mut serialisation);
        let config = Some(limits(self.content_octets_max));
        let stream = Metered::new(stream, meter.clone());
        let upgrade = tokio_tungstenite::accept_hdr_async_with_config(stream, choose, config);
        let Ok(Ok(socket)) = tokio::time::timeout(WITHIN, upgrade).await else {
            self.counters.handshakes_failed.fetch_add(1, Ordering::Relaxed);
            return;
        };
        self.counters.connections.fetch_add(1, Ordering::Relaxed);
        // The server asks nothing over connections of others, and they go on without it.
        let (_asks, asked) = mpsc::channel(1);
        meter.clear();
        converse((socket, &meter), serialisation, answers, asked, stop).await;
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

/// Whether a message is meant as an answer: it says how something ended.
fn is_answer(text: &str) -> bool {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    value.get("m2m:rsp").unwrap_or(&value).get("rsc").is_some()
}

/// Tells a peer that has too much on the way that it may come again.
async fn turn_away<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut WebSocketStream<S>) {
    let reason = "too many octets arrive or wait for their answers".into();
    let close = CloseFrame { code: CloseCode::Again, reason };
    let _ = tokio::time::timeout(WITHIN, socket.close(Some(close))).await;
}

/// Speaks over a connection until it ends: answers requests, sends our own and takes their answers.
async fn converse<S: AsyncRead + AsyncWrite + Unpin, A: Answers>(
    (mut socket, meter): (WebSocketStream<S>, &Meter),
    serialisation: Serialisation,
    answers: &Arc<A>,
    mut asked: mpsc::Receiver<Asked>,
    mut stop: watch::Receiver<bool>,
) {
    // Tasks and not futures: what a peer asked is done also if it has gone before the answer.
    let mut answering = FuturesUnordered::new();
    let mut waiting: HashMap<String, oneshot::Sender<Response>> = HashMap::new();
    loop {
        waiting.retain(|_, waiting| !waiting.is_closed());
        let text = tokio::select! {
            message = socket.next(), if answering.len() < ANSWERED_AT_ONCE => {
                let octets = match &message {
                    Some(Ok(Message::Text(text))) => text.as_bytes(),
                    Some(Ok(Message::Binary(octets))) => octets.as_ref(),
                    Some(Ok(Message::Ping(payload) | Message::Pong(payload))) => {
                        meter.forget(payload.len());
                        continue;
                    }
                    Some(Ok(Message::Frame(_))) => continue,
                    Some(Err(_)) if meter.is_full() => return turn_away(&mut socket).await,
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                };
                meter.clear();
                let text = serialisation.read(octets);
                if let Some(response) =
                    text.as_ref().ok().and_then(|it| Response::from_json(it.as_bytes()).ok())
                {
                    if let Some(waiting) = waiting.remove(&*response.id) {
                        let _ = waiting.send(response);
                    }
                    continue;
                }
                let answers = Arc::clone(answers);
                answering.push(tokio::spawn(async move { reply(text, &*answers).await }));
                continue;
            }
            Some(answer) = answering.next() => match answer {
                Ok(Some(response)) => response.to_json(),
                Ok(None) | Err(_) => continue,
            },
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

/// The answer to what a peer wrote. An answer that cannot be read is not answered: two that refuse
/// each other's refusals would never end.
async fn reply<A: Answers>(text: Result<String, Refusal>, answers: &A) -> Option<Response> {
    let request = match &text {
        Ok(text) => Request::from_json(text.as_bytes()),
        Err(refusal) => Err((None, refusal.clone())),
    };
    match request {
        Ok(request) => Some(answers.answer(request).await),
        Err(_) if text.is_ok_and(|text| is_answer(&text)) => None,
        Err((id, refusal)) => Some(refuse(&refusal, id.as_deref().unwrap_or_default())),
    }
}
