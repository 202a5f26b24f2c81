//! Roles: how a protocol behaves on one side of the gateway.

use super::{Build, Guard, HandlerId, MessageId, PeersId, RoleId, Slot, SlotId};
use core::time::Duration;
use gatewright_diagnostic::Span;

/// A protocol, played on one side.
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
    /// What carries it.
    pub transport: Transport,
    /// Whether responses come in the order of requests.
    pub mode: Mode,
    /// Whether requests go to one or to many.
    pub cast: Cast,
    /// `host:port` where the server listens or the client connects, unless configured otherwise;
    /// a host is an address, or a name for the resolver.
    pub address: String,
    /// What a server can be asked; on the side of an asynchronous client, what its server may ask:
    /// a message that answers nothing in the air is dispatched here.
    pub requests: Vec<RequestKind>,
    /// The view that answers a request, and that a client reads.
    pub response: MessageId,
    /// What matches a response to its request; empty when the order does.
    pub flow: Vec<FlowKey>,
    /// What a server says first.
    pub greeting: Option<Build>,
    /// What a client does with a new connection.
    pub opening: Option<HandlerId>,
    /// The answer to a message that cannot be read.
    pub malformed: Answer,
    /// The answer when a handler ended without one.
    pub failed: Answer,
    /// The answer to a connection (UDP: a request) above `connections_max`.
    pub full: Answer,
    /// How long a connection may be silent in both directions; UDP has none.
    pub idle: Option<Duration>,
    /// The most connections at once; for UDP, the most exchanges in the air.
    pub connections_max: u32,
    /// Whether and when a client's connection serves another session.
    pub reuse: Option<Reuse>,
    /// Whether one connection to a server carries the requests of all sessions, and how many of
    /// them may wait for it.
    pub shared: Option<u32>,
    /// How an unanswered request is repeated (UDP).
    pub retransmit: Option<Retransmit>,
    /// How a repeated request is recognised (UDP); at most `connections_max` answers are kept.
    pub duplicates: Option<Duplicates>,
}

/// Which side of a protocol a role plays.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// Is asked.
    Server,
    /// Asks.
    Client,
}

/// What carries a protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Transport {
    /// A stream of octets.
    Tcp,
    /// Datagrams.
    Udp,
}

/// When responses come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// In the order of the requests, one request at a time on a connection.
    Sync,
    /// In any order; [`Role::flow`] matches them.
    Async,
}

/// To whom requests go.
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
    /// The slots that the guards look at: dispatch waits for them and for no other.
    pub waits: Vec<SlotId>,
    /// The cases, tried in order; the last one always holds.
    pub cases: Vec<Case>,
}

/// One case of a dispatch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Case {
    /// When.
    pub guard: Guard,
    /// What then.
    pub action: Action,
    /// Where it stands in the text.
    pub span: Span,
}

/// What is done with a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// A handler runs.
    Handle(HandlerId),
    /// It is answered here.
    Answer(Answer),
}

/// An answer without a handler: nothing, a message, the end of the connection, or both.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Answer {
    /// The message.
    pub message: Option<Build>,
    /// Whether the connection is closed behind it.
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

/// How a client keeps connections for later.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Reuse {
    /// The most connections kept.
    pub connections_max: u32,
    /// How long one is kept.
    pub idle: Duration,
    /// When a session lets go of one.
    pub when: ReuseWhen,
}

/// When a connection becomes free for others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReuseWhen {
    /// When a handler says `release`.
    Released,
    /// When a response was read to its end (and does not end with the connection).
    EachResponse,
}

/// Recognition of repeated requests: one that comes again from the same address, with the same
/// values, is answered with the same octets again (with nothing while its handler still runs, or
/// if it answered nothing), and runs no handler.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Duplicates {
    /// What repeated requests have in common.
    pub keys: Vec<(MessageId, SlotId)>,
    /// How long an answer is kept.
    pub keep: Duration,
}

/// Repetition of an unanswered request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Retransmit {
    /// The first pause.
    pub after: Duration,
    /// Whether each pause is twice the last.
    pub doubling: bool,
    /// The longest pause.
    pub pause_max: Duration,
    /// How many repetitions.
    pub times: u32,
}

/// What is remembered between requests.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Session {
    /// Its declaration.
    pub span: Span,
    /// Which server role it belongs to; without meaning for one that is found by a value.
    pub role: RoleId,
    /// What tells sessions apart.
    pub key: SessionKey,
    /// Its variables: all absent, and lists empty, when it begins.
    pub slots: Vec<Slot>,
    /// Its variables that store peers: all empty when it begins. A peer is in none of them any more
    /// when its connection is over; while a connection is in one, the session is not unused.
    pub peers: Vec<Peers>,
    /// The most sessions at once.
    pub sessions_max: u32,
    /// How long an unused one is kept.
    pub idle: Duration,
}

/// What tells sessions apart.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SessionKey {
    /// The server connection: begins and ends with it.
    Connection,
    /// Slots of the request view: begins at `StartSession`, ends at `EndSession` or when idle.
    Slots(Vec<(MessageId, SlotId)>),
    /// Octets that the program gives at `StartSession`, at most so many; such a session belongs to
    /// no role.
    Value {
        /// The most octets of a key.
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
    /// Whose peers.
    pub role: RoleId,
    /// The most at once.
    pub max: u32,
    /// Whether it is a list; otherwise it stores one, and another one takes its place.
    pub list: bool,
    /// The view of the requests that something is kept of, and what.
    pub kept: Vec<(MessageId, SlotId)>,
    /// The slot of a request that carries the `fresh` number of what was sent to the peer last,
    /// where it is about that.
    pub mark: Option<(MessageId, SlotId)>,
}

impl Session {
    /// A variable that stores peers; `None` only for an id of another program.
    pub fn peers(&self, id: PeersId) -> Option<&Peers> {
        self.peers.get(id.index())
    }
}

/// The worst case of memory of one session, in octets.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Bounds {
    /// What it is made of.
    pub lines: Vec<BoundsLine>,
    /// The sum.
    pub session_octets: u64,
    /// The most sessions at once.
    pub sessions_max: u64,
}

/// One addend of [`Bounds`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BoundsLine {
    /// What needs it.
    pub what: String,
    /// How many octets.
    pub octets: u64,
}
