//! WebSocket binding (TS-0020): primitives as messages, with requests and responses of both sides
//! over one connection.

mod frames;
mod metered;
mod send;

use crate::tasks::spawn;
use metered::{Excess, Meter, Metered};
pub(crate) use send::WsSender;

use crate::accept::{Admission, OF_A_PAGE, UNAVAILABLE};
use crate::answers::{Answers, At, Authenticated, refuse};
use crate::quota::Quotas;
use crate::tls::{ListenerSecurity, meet};
use core::time::Duration;
use futures_util::stream::FuturesUnordered;
use futures_util::{SinkExt, StreamExt};
use gatewright_onem2m::{Refusal, Request, Reservation, Response, ResponseType, Serialisation};
use serde_json::Value;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::server::{
    ErrorResponse, Request as Ask, Response as Accept,
};
use tokio_tungstenite::tungstenite::http::header::ORIGIN;
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Error, Message};

/// Header that names the subprotocol (TS-0020 §6.2).
const PROTOCOL: &str = "sec-websocket-protocol";
/// Supported subprotocols, in order of preference.
const PROTOCOLS: [(&str, Serialisation); 2] =
    [("oneM2M.json", Serialisation::Json), ("oneM2M.cbor", Serialisation::Cbor)];
/// Time limit for the upgrade of a connection, and for accepting a message.
const WITHIN: Duration = Duration::from_secs(10);
/// Time limits for silent peers.
const PATIENCE: Patience =
    Patience { quiet: Duration::from_mins(1), echo: Duration::from_secs(30) };
/// Requests of one connection in progress; at the limit it is not read.
const ANSWERED_AT_ONCE: usize = 64;
/// Octets of a message beyond the limit on content.
const MESSAGE_SLACK: usize = 64 * 1024;
/// Octets read from a connection at once.
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

/// Counters of the server.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    connections: AtomicU64,
    handshakes_failed: AtomicU64,
    messages_refused: AtomicU64,
}

impl Counters {
    pub(crate) fn each(&self) -> [(&'static str, u64); 3] {
        [
            ("ws_connections", &self.connections),
            ("ws_handshakes_failed", &self.handshakes_failed),
            ("ws_messages_refused", &self.messages_refused),
        ]
        .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
    }
}

/// State shared by all connections of a server.
#[derive(Debug)]
pub(crate) struct WsServer<A> {
    pub(crate) answers: Arc<A>,
    pub(crate) content_octets_max: usize,
    pub(crate) admission: Admission,
    pub(crate) counters: Arc<Counters>,
    /// Request limits of its peers.
    pub(crate) quotas: Arc<Quotas>,
    /// CSE-ID and service provider, to check originators.
    pub(crate) own: Arc<(String, String)>,
}

impl<A: Answers> WsServer<A> {
    /// Accepts connections until the listener `leaves`, and serves them until `stop` is set.
    pub(crate) async fn run(
        self: Arc<Self>,
        listener: TcpListener,
        entry: ListenerSecurity,
        leaves: watch::Receiver<bool>,
        stop: watch::Receiver<bool>,
    ) {
        let serve = |stream, peer: SocketAddr| {
            let (server, entry, stop) = (Arc::clone(&self), entry.clone(), stop.clone());
            async move { server.welcome(stream, entry, peer.ip(), stop).await }
        };
        // It begins as HTTP.
        let refusal = if matches!(entry, ListenerSecurity::Plain) { UNAVAILABLE } else { b"" };
        self.admission.clone().run((listener, refusal), leaves, serve).await;
    }

    async fn welcome(
        &self,
        stream: TcpStream,
        entry: ListenerSecurity,
        address: IpAddr,
        stop: watch::Receiver<bool>,
    ) {
        let answers = Arc::new(At { answers: Arc::clone(&self.answers), address });
        let meter = Meter::new(self.quotas.arriving(address));
        let keyring = match entry {
            ListenerSecurity::Plain => return self.upgrade((stream, meter), &answers, stop).await,
            ListenerSecurity::Tls(keyring) => keyring,
        };
        let Some((stream, identity)) = meet(&keyring, stream, &self.own.1).await else {
            self.counters.handshakes_failed.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let own = Arc::clone(&self.own);
        let answers = Arc::new(Authenticated { answers, identity, own });
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
        converse((socket, &meter), serialisation, answers, (asked, PATIENCE), stop).await;
        // What a peer's octets exceed is counted with its other requests.
        if let Some(Excess::Frames | Excess::Length) = meter.excess() {
            self.counters.messages_refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Selects the first supported subprotocol that the peer offers. A web page is refused: its browser adds
/// the field `Origin` (RFC 6455 §10.2), and may reach what the page's site cannot.
#[expect(clippy::result_large_err, reason = "the handshake wants its refusal whole")]
fn choose(
    ask: &Ask,
    mut accept: Accept,
    chosen: &mut Serialisation,
) -> Result<Accept, ErrorResponse> {
    let refuse = |status, why: &str| {
        let mut refusal = ErrorResponse::new(Some(why.to_owned()));
        *refusal.status_mut() = status;
        Err(refusal)
    };
    if ask.headers().contains_key(ORIGIN) {
        return refuse(StatusCode::FORBIDDEN, OF_A_PAGE);
    }
    let offers = ask.headers().get_all(PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let mut offered = offers.flat_map(|value| value.split(',')).map(str::trim).peekable();
    if offered.peek().is_none() {
        // Without a word it is JSON.
        return Ok(accept);
    }
    let known =
        offered.find_map(|name| PROTOCOLS.iter().find(|(known, _)| *known == name).copied());
    let Some((name, serialisation)) = known else {
        return refuse(StatusCode::BAD_REQUEST, "oneM2M.json or oneM2M.cbor");
    };
    *chosen = serialisation;
    accept.headers_mut().insert(PROTOCOL, HeaderValue::from_static(name));
    Ok(accept)
}

/// An outgoing request and the caller that waits for its response.
struct OutgoingCall {
    id: String,
    text: String,
    waiting: oneshot::Sender<Response>,
}

/// Whether a message is a response: it has a response status code.
fn is_answer(text: &str) -> bool {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    value.get("m2m:rsp").unwrap_or(&value).get("rsc").is_some()
}

/// Passes a response to its caller; returns any other message.
fn unanswering(
    text: Result<String, Refusal>,
    waiting: &mut HashMap<String, oneshot::Sender<Response>>,
) -> Option<Result<String, Refusal>> {
    let response = text.as_ref().ok().and_then(|it| Response::from_json(it.as_bytes()).ok());
    let Some(response) = response else { return Some(text) };
    if let Some(waiting) = waiting.remove(&*response.id) {
        let _ = waiting.send(response);
    }
    None
}

/// Time limits for a silent peer.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// Until it is sent a ping (RFC 6455 §5.5.2).
    quiet: Duration,
    /// Until it has answered the ping.
    echo: Duration,
}

/// A peer's silence, which ends the connection at a time limit.
#[derive(Debug)]
struct Silence {
    patience: Patience,
    until: Instant,
    is_asked: bool,
}

impl Silence {
    fn new(patience: Patience) -> Self {
        Self { patience, until: Instant::now() + patience.quiet, is_asked: false }
    }

    fn ask(&mut self) {
        (self.until, self.is_asked) = (Instant::now() + self.patience.echo, true);
    }
}

/// Tells a peer what it exceeded (RFC 6455 §7.4.1), and whether it may retry.
async fn turn_away<S>(socket: &mut WebSocketStream<S>, excess: Excess)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (code, reason) = match excess {
        Excess::Octets => (CloseCode::Again, "too many octets arrive or wait for their answers"),
        Excess::Frames => (CloseCode::Policy, "too many frames for the length of the message"),
        Excess::Length => (CloseCode::Size, "the message is too long"),
    };
    let close = CloseFrame { code, reason: reason.into() };
    let _ = tokio::time::timeout(WITHIN, socket.close(Some(close))).await;
}

/// Ends a connection after an error, with the reason if the peer exceeded a limit.
async fn end_after<S>(socket: &mut WebSocketStream<S>, meter: &Meter, error: &Error)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    if matches!(error, Error::Capacity(_)) {
        meter.set_too_long();
    }
    if let Some(excess) = meter.excess() {
        turn_away(socket, excess).await;
    }
}

/// What a message of WebSocket is to a connection.
enum ReadMessage {
    /// A primitive, whole.
    Content(Bytes),
    /// A control frame (RFC 6455 §5.5).
    Control,
    /// The connection's end.
    End,
}

/// Takes a message, and does what a control frame wants.
async fn hear<S>(
    socket: &mut WebSocketStream<S>,
    meter: &Meter,
    message: Option<Result<Message, Error>>,
) -> ReadMessage
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match message {
        Some(Ok(Message::Text(text))) => {
            meter.clear();
            ReadMessage::Content(text.into())
        }
        Some(Ok(Message::Binary(octets))) => {
            meter.clear();
            ReadMessage::Content(octets)
        }
        Some(Ok(Message::Ping(payload))) => {
            meter.forget(payload.len());
            // Nothing more is read before its pong is accepted: pongs would queue.
            if flush(socket).await { ReadMessage::Control } else { ReadMessage::End }
        }
        Some(Ok(Message::Pong(payload))) => {
            meter.forget(payload.len());
            ReadMessage::Control
        }
        Some(Ok(Message::Frame(_))) => ReadMessage::Control,
        Some(Ok(Message::Close(_))) | None => ReadMessage::End,
        Some(Err(error)) => {
            end_after(socket, meter, &error).await;
            ReadMessage::End
        }
    }
}

/// Runs a connection until it ends: answers requests, sends requests and takes their responses.
async fn converse<S: AsyncRead + AsyncWrite + Unpin, A: Answers>(
    (mut socket, meter): (WebSocketStream<S>, &Meter),
    serialisation: Serialisation,
    answers: &Arc<A>,
    (mut asked, patience): (mpsc::Receiver<OutgoingCall>, Patience),
    mut stop: watch::Receiver<bool>,
) {
    let mut silence = Silence::new(patience);
    // Tasks and not futures: what a peer asked is done also if it has gone before the answer.
    let mut answering = FuturesUnordered::new();
    let mut waiting: HashMap<String, oneshot::Sender<Response>> = HashMap::new();
    loop {
        waiting.retain(|_, waiting| !waiting.is_closed());
        let (text, _reservation) = tokio::select! {
            // It takes what has come before it looks at the clock.
            heard = timeout_at(silence.until, socket.next()),
                if answering.len() < ANSWERED_AT_ONCE =>
            {
                let Ok(message) = heard else {
                    if silence.is_asked || !put(&mut socket, Message::Ping(Bytes::new())).await {
                        return;
                    }
                    silence.ask();
                    continue;
                };
                silence = Silence::new(patience);
                let octets = match hear(&mut socket, meter, message).await {
                    ReadMessage::Content(octets) => octets,
                    ReadMessage::Control => continue,
                    ReadMessage::End => return,
                };
                let text = serialisation.read(&octets);
                let Some(text) = unanswering(text, &mut waiting) else { continue };
                let answers = Arc::clone(answers);
                answering.push(spawn(async move { reply(text, &*answers).await }));
                continue;
            }
            Some(answer) = answering.next() => {
                // It may not have been listened to.
                silence = Silence::new(patience);
                let Ok(Some(response)) = answer else { continue };
                // Its octets are reserved until the peer has accepted them.
                (response.to_json(), response.reservation)
            }
            Some(OutgoingCall { id, text, waiting: waits }) = asked.recv() => {
                // Who waits under a name that waits already is told that nothing comes.
                match waiting.entry(id) {
                    Entry::Occupied(_) => continue,
                    Entry::Vacant(entry) => entry.insert(waits),
                };
                (text, Reservation::default())
            }
            _ = stop.changed() => {
                let _ = tokio::time::timeout(WITHIN, socket.close(None)).await;
                return;
            }
        };
        if !put(&mut socket, message(serialisation, text)).await {
            return;
        }
    }
}

/// The message of `text`, which is JSON.
fn message(serialisation: Serialisation, text: String) -> Message {
    match serialisation {
        Serialisation::Json => Message::text(text),
        // We wrote it, and CBOR can say all of it.
        Serialisation::Cbor => Message::binary(serialisation.write(&text).unwrap_or_default()),
    }
}

/// Sends a message; returns whether the peer accepted it in time.
async fn put<S>(socket: &mut WebSocketStream<S>, message: Message) -> bool
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    matches!(tokio::time::timeout(WITHIN, socket.send(message)).await, Ok(Ok(())))
}

/// Writes what waits to be sent; returns whether the peer accepted it in time.
async fn flush<S>(socket: &mut WebSocketStream<S>) -> bool
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    matches!(tokio::time::timeout(WITHIN, socket.flush()).await, Ok(Ok(())))
}

/// The response to a peer's message; none if the request wants none (noResponse). A malformed response gets none: two peers that refuse each
/// other's refusals would never end.
async fn reply<A: Answers>(text: Result<String, Refusal>, answers: &A) -> Option<Response> {
    let request = match &text {
        Ok(text) => Request::from_json(text.as_bytes()),
        Err(refusal) => Err((None, refusal.clone())),
    };
    match request {
        Ok(request) => {
            let wants_response = request.response_type != ResponseType::None;
            let response = answers.answer(request).await;
            wants_response.then_some(response)
        }
        Err(_) if text.is_ok_and(|text| is_answer(&text)) => None,
        Err((id, refusal)) => Some(refuse(&refusal, id.as_deref().unwrap_or_default())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_onem2m::{Operation, Status};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio_tungstenite::tungstenite::protocol::Role;

    const SHORT: Duration = Duration::from_millis(10);
    const LONG: Duration = Duration::from_hours(1);
    /// How long a write waits that is taken to wait for ever.
    const HELD: Duration = Duration::from_secs(2);
    /// How long anything may take to come about.
    const DEADLINE: Duration = Duration::from_mins(2);

    /// Says yes to everything.
    struct Yes;

    impl Answers for Yes {
        async fn answer_to(&self, request: Request, _: Option<IpAddr>) -> Response {
            Response::new(Status::Ok, &*request.id, request.release)
        }
    }

    /// The other end of a connection that is spoken over with such patience.
    fn peer(patience: Patience) -> DuplexStream {
        let (peer, ours) = duplex(1 << 16);
        tokio::spawn(async move {
            let socket = WebSocketStream::from_raw_socket(ours, Role::Server, None).await;
            let ((_asks, asked), (_stay, stop)) = (mpsc::channel(1), watch::channel(false));
            let (meter, answers) = (Meter::default(), Arc::new(Yes));
            let socket = (socket, &meter);
            converse(socket, Serialisation::Json, &answers, (asked, patience), stop).await;
        });
        peer
    }

    #[tokio::test]
    async fn a_peer_that_does_not_answer_is_let_go() {
        let mut told = Vec::new();
        let mut peer = peer(Patience { quiet: SHORT, echo: SHORT });
        let read = tokio::time::timeout(DEADLINE, peer.read_to_end(&mut told)).await;
        read.expect("closed in time").unwrap();
        // RFC 6455 §5.2: a whole message, a ping, of no octets.
        assert_eq!(told, [0x89, 0]);
    }

    /// RFC 6455 §5.5.2: each ping is answered; a peer that does not read the pongs is not read either.
    #[tokio::test]
    async fn pongs_that_are_not_read_do_not_queue() {
        let mut peer = peer(Patience { quiet: LONG, echo: LONG });
        // A masked ping of 100 octets (0x64).
        let ping = [&[0x89, 0xe4, 0, 0, 0, 0][..], &[b'x'; 100]].concat();
        let mut sent = 0;
        while let Ok(written) = tokio::time::timeout(HELD, peer.write_all(&ping)).await {
            written.unwrap();
            sent += ping.len();
            assert!(sent < 1 << 20, "read without an end");
        }
        let mut pong = [0; 102];
        peer.read_exact(&mut pong).await.unwrap();
        assert_eq!((&pong[..2], &pong[2..]), (&[0x8a, 100][..], &[b'x'; 100][..]));
    }

    #[tokio::test]
    async fn a_peer_that_answers_stays() {
        let peer = peer(Patience { quiet: SHORT, echo: LONG });
        let mut peer = WebSocketStream::from_raw_socket(peer, Role::Client, None).await;
        // Each is answered as it is read.
        for _ in 0..3 {
            let asked = tokio::time::timeout(DEADLINE, peer.next()).await.expect("asked in time");
            assert!(matches!(asked, Some(Ok(Message::Ping(_)))), "{asked:?}");
        }
        let request = Request::new(Operation::Retrieve, "cse-in", "CAdmin", "one");
        peer.send(Message::text(request.to_json())).await.unwrap();
        let answer = async {
            loop {
                if let Message::Text(text) = peer.next().await.unwrap().unwrap() {
                    return Response::from_json(text.as_bytes()).unwrap();
                }
            }
        };
        let answer = tokio::time::timeout(DEADLINE, answer).await.expect("answered in time");
        assert_eq!((&*answer.id, answer.status), ("one", Status::Ok));
    }
}
