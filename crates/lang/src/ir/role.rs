//! Roles: how a protocol behaves on one side of the gateway.

use super::{Build, Guard, HandlerId, MessageId, PeersId, RoleId, Slot, SlotId, TooLong};
use core::time::Duration;
use gatewright_diagnostic::Span;

/// A protocol on one side of the gateway.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Role {
    /// The name in the gateway.
    pub name: String,
    /// The protocol's name.
    pub protocol: String,
    /// Its declaration.
    pub span: Span,
    /// Server or client.
    pub side: Side,
    /// Transport protocol.
    pub transport: Transport,
    /// Whether responses come in the order of requests.
    pub mode: Mode,
    /// Whether requests are unicast or multicast.
    pub cast: Cast,
    /// `host:port` where the server listens or to which the client connects, unless configured
    /// otherwise. A host is an address, or a name for the resolver.
    pub address: String,
    /// Requests to a server. For an asynchronous client, requests from its server: a message that
    /// answers no exchange in flight is dispatched here.
    pub requests: Vec<RequestKind>,
    /// The view of a response, which a client reads.
    pub response: MessageId,
    /// The keys that match a response to its request; empty if the order does.
    pub flow: Vec<FlowKey>,
    /// The message that a server sends first.
    pub greeting: Option<Build>,
    /// The handler of a client's new connection.
    pub opening: Option<HandlerId>,
    /// The answer to a message that cannot be read.
    pub malformed: Answer,
    /// The answers in place of it to a message that is too long, by what is.
    pub too_long: Vec<(TooLong, Answer)>,
    /// The answer when a handler ended without one.
    pub failed: Answer,
    /// The answer to a connection (UDP: a request) above `connections_max`.
    pub full: Answer,
    /// Maximum time without traffic in both directions; none for UDP.
    pub idle: Option<Duration>,
    /// Maximum number of concurrent connections; for UDP, of exchanges in flight.
    pub connections_max: u32,
    /// Whether and when a client's connection is reused by another session.
    pub reuse: Option<Reuse>,
    /// Whether all sessions share one connection to a server, and how many requests may wait for
    /// it.
    pub shared: Option<u32>,
    /// How an unanswered request is repeated (UDP).
    pub retransmit: Option<Retransmit>,
    /// How a repeated request is recognised (UDP); at most `connections_max` answers are kept.
    pub duplicates: Option<Duplicates>,
}

/// Side of a protocol that a role plays.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// Receives requests.
    Server,
    /// Sends requests.
    Client,
}

/// Transport of a protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Transport {
    /// A stream of octets.
    Tcp,
    /// Datagrams.
    Udp,
}

/// Order of responses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// In the order of the requests, one request at a time on a connection.
    Sync,
    /// In any order; [`Role::flow`] matches them.
    Async,
}

/// Recipients of requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cast {
    /// To one peer.
    Unicast,
    /// To a group.
    Multicast,
}

/// One kind of request and its dispatch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RequestKind {
    /// Its view.
    pub view: MessageId,
    /// The slots that the guards test: dispatch waits for these only.
    pub waits: Vec<SlotId>,
    /// The cases, tried in order; the last one always holds.
    pub cases: Vec<Case>,
}

/// One case of a dispatch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Case {
    /// The guard.
    pub guard: Guard,
    /// The action.
    pub action: Action,
    /// Its source position.
    pub span: Span,
}

/// Action for a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// Runs a handler.
    Handle(HandlerId),
    /// Answers without a handler.
    Answer(Answer),
}

/// An answer without a handler: nothing, a message, the end of the connection, or both.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Answer {
    /// The message.
    pub message: Option<Build>,
    /// Whether the connection is closed afterwards.
    pub close: bool,
}

/// One pair of slots that must be equal in a request and its response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FlowKey {
    /// The request's view.
    pub view: MessageId,
    /// In the request.
    pub request: SlotId,
    /// In the response.
    pub response: SlotId,
}

/// Rules by which a client keeps connections for reuse.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Reuse {
    /// Maximum number of kept connections.
    pub connections_max: u32,
    /// How long a connection is kept.
    pub idle: Duration,
    /// When a session releases a connection.
    pub when: ReuseWhen,
}

/// The moment at which a connection becomes free for other requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReuseWhen {
    /// When a handler executes `release`.
    Released,
    /// When a response was read to its end (and does not end with the connection).
    EachResponse,
}

/// Recognition of repeated requests. A request from the same address with the same values runs no
/// handler, and gets the same octets as an answer. It gets no answer while its handler still runs,
/// or if there was none.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Duplicates {
    /// The slots that a request and its repetitions share.
    pub keys: Vec<(MessageId, SlotId)>,
    /// How long an answer is kept.
    pub keep: Duration,
}

/// Repetition of an unanswered request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Retransmit {
    /// The first pause.
    pub after: Duration,
    /// Whether each pause is twice the previous one.
    pub doubling: bool,
    /// The longest pause.
    pub pause_max: Duration,
    /// Maximum number of repetitions.
    pub times: u32,
}

/// State kept between requests.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Session {
    /// Its declaration.
    pub span: Span,
    /// The server role that it belongs to; without meaning for a session found by a value.
    pub role: RoleId,
    /// The key that distinguishes sessions.
    pub key: SessionKey,
    /// Its variables; initially all absent, and lists empty.
    pub slots: Vec<Slot>,
    /// Its variables that store peers, initially all empty. A peer is removed from all of them when
    /// its connection ends. While a variable stores a connection, the session counts as used.
    pub peers: Vec<Peers>,
    /// Maximum number of concurrent sessions.
    pub sessions_max: u32,
    /// How long an unused session is kept.
    pub idle: Duration,
}

/// The key that distinguishes sessions.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SessionKey {
    /// The server connection: the session begins and ends with it.
    Connection,
    /// Slots of the request view: the session begins at `StartSession`, and ends at `EndSession` or
    /// when idle.
    Slots(Vec<(MessageId, SlotId)>),
    /// Octets that the program gives at `StartSession`, with a maximum length; such a session
    /// belongs to no role.
    Value {
        /// The maximum octets of a key.
        max: u32,
    },
}

/// A session variable that stores peers of a server role.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Peers {
    /// Its name.
    pub name: String,
    /// Its declaration.
    pub span: Span,
    /// The role of the peers.
    pub role: RoleId,
    /// The maximum number.
    pub max: u32,
    /// Whether it is a list; otherwise it stores one peer, and a new one replaces it.
    pub list: bool,
    /// The slots of requests whose values are kept, each with its view.
    pub kept: Vec<(MessageId, SlotId)>,
    /// The slot of a request that carries the `fresh` number of the last message to the peer, if
    /// the request refers to it.
    pub mark: Option<(MessageId, SlotId)>,
}

impl Session {
    /// A variable that stores peers; `None` only for an id of another program.
    pub fn peers(&self, id: PeersId) -> Option<&Peers> {
        self.peers.get(id.index())
    }
}

/// The worst-case memory of one session, in octets.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Bounds {
    /// Its components.
    pub lines: Vec<BoundsLine>,
    /// The sum.
    pub session_octets: u64,
    /// Maximum number of concurrent sessions.
    pub sessions_max: u64,
}

/// One addend of [`Bounds`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BoundsLine {
    /// The component.
    pub what: String,
    /// Number of octets.
    pub octets: u64,
}
