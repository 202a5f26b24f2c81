//! State of a machine: connections, messages, requests in flight and running handlers.

use super::address::RoleTarget;
use super::buffers::{Unread, Unsent};
use super::slab::{ConnId, ExchangeId, IncomingId, QueryId, SessionId, TaskId};
use super::timers::Alarm;
use crate::parser::Parser;
use crate::stream::{StreamLengthError, StreamWriter};
use crate::view::{Held, Rows, Value, View};
use core::net::SocketAddr;
use core::time::Duration;
use gatewright_lang::ir::{BlockId, HandlerId, MessageId, RegisterId, RoleId, Side, SlotId};
use std::collections::VecDeque;

/// Recipient of the notice that a message was written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Written {
    Nothing,
    /// An answer to a request of this connection, by a handler whose answers are watched.
    Answer(Option<HandlerId>),
    /// A part of such an answer.
    Part(HandlerId),
    /// A handler that waits for no response.
    Sent(TaskId),
}

/// State of a request that may be repeated.
#[derive(Clone, Debug)]
pub(crate) enum Repeat {
    /// It is being handled.
    Running,
    /// It is finished, with its answer, which may be empty.
    Answered(Vec<u8>),
}

/// The next repetition of a request.
#[derive(Debug)]
pub(crate) struct Repetition {
    pub(crate) pause: Duration,
    pub(crate) left: u32,
    pub(crate) alarm: Alarm,
}

/// A request that waits for its response, or for the end of it.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) role: RoleId,
    pub(crate) task: TaskId,
    /// The connection, over TCP.
    pub(crate) conn: Option<ConnId>,
    /// The peer's address, for datagrams.
    pub(crate) to: Option<SocketAddr>,
    pub(crate) target: RoleTarget,
    /// The key that its response shares with it.
    pub(crate) flow: Vec<u8>,
    /// Whether its response has begun.
    pub(crate) begun: bool,
    /// Whether more than one response is wanted.
    pub(crate) gather: bool,
    /// The request's octets, if it may have to be sent again.
    pub(crate) octets: Vec<u8>,
    pub(crate) repetition: Option<Repetition>,
    pub(crate) deadline: Duration,
    pub(crate) alarm: Option<Alarm>,
}

/// A stream being written to a connection.
#[derive(Debug)]
pub(crate) struct Streaming {
    pub(crate) writer: StreamWriter,
    /// The message that it comes from.
    pub(crate) from: IncomingId,
    /// The notice to give when it is written.
    pub(crate) done: Written,
}

/// Writer of a stream, and its state, while the stream is read.
pub(crate) struct Writing {
    pub(crate) streaming: Option<Box<Streaming>>,
    pub(crate) unsent: Unsent,
    /// Number of octets that were already waiting.
    pub(crate) before: usize,
    /// Whether the stream agrees with the length that its message announced.
    pub(crate) framed: Result<(), StreamLengthError>,
}

/// A stream's source and its framing.
pub(crate) type Source = (StreamWriter, IncomingId);

/// A message that waits for the stream before it.
#[derive(Debug)]
pub(crate) struct Behind {
    pub(crate) octets: Vec<u8>,
    pub(crate) stream: Option<Box<Source>>,
    pub(crate) done: Written,
}

/// Purpose of a message in the machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum MessagePurpose {
    /// A request to be dispatched.
    Request,
    /// A dispatched request.
    Handled,
    /// A message of a server that answers in any order, whose flow is not known yet.
    Unmatched,
    /// The response to a request.
    Response(ExchangeId),
    /// A message that a handler waits for by `receive`, or waited for.
    Received,
    /// An ignored message.
    Ignored,
}

/// Destination of a message's stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Passing {
    /// It waits.
    Held,
    /// It is discarded.
    Discarded,
    /// It is written to this connection.
    To(ConnId),
}

/// How far a message is read before its user is notified.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Goal {
    End,
    Begun,
    Settled(Vec<SlotId>),
}

/// A message that is being read, or was.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) parser: Box<Parser>,
    pub(crate) message: MessageId,
    /// Its connection; `None` when it is complete.
    pub(crate) conn: Option<ConnId>,
    /// The requester, while an answer is due.
    pub(crate) requester: Option<Requester>,
    /// The key that its repetitions share with it.
    pub(crate) repeat: Option<Vec<u8>>,
    pub(crate) purpose: MessagePurpose,
    /// The handler that uses it.
    pub(crate) task: Option<TaskId>,
    pub(crate) goal: Goal,
    pub(crate) passing: Passing,
    /// The answer to send when it is complete, and the request answered by it.
    pub(crate) reply: Option<(Reply, IncomingId)>,
    /// Whether its own answer waits for a later message.
    pub(crate) answered: bool,
    /// State for the posts that watch it.
    pub(crate) watched: Option<Box<Watched>>,
}

impl Incoming {
    pub(crate) const fn is_complete(&self) -> bool {
        self.conn.is_none()
    }

    /// Whether its stream waits for a reader.
    pub(crate) fn is_held(&self) -> bool {
        self.passing == Passing::Held && self.parser.in_stream()
    }
}

/// The answer to a request, sent when the request is read to its end.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) octets: Vec<u8>,
    pub(crate) stream: Option<Source>,
    pub(crate) close: bool,
}

/// A watched message.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    pub(crate) octets: usize,
    pub(crate) head: Vec<u8>,
    /// Its handler, as soon as it is known.
    pub(crate) handler: Option<HandlerId>,
    /// Whether it was shown to the posts there.
    pub(crate) shown: bool,
}

/// State of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ConnectionState {
    /// Its server's name is being resolved.
    Resolving(QueryId),
    /// It is being established.
    Connecting,
    /// It is established.
    Open,
    /// Pending octets are sent, then it ends.
    Closing,
    /// We ended; further octets from the peer are discarded.
    Lingering,
}

/// A TCP connection.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Conn {
    pub(crate) role: RoleId,
    pub(crate) side: Side,
    /// The peer's address, as soon as it is known.
    pub(crate) peer: Option<SocketAddr>,
    /// Its server, if it is a client's connection.
    pub(crate) target: Option<RoleTarget>,
    pub(crate) state: ConnectionState,
    /// Octets that wait to be read.
    pub(crate) unread: Unread,
    /// Whether the peer will send no more.
    pub(crate) ended: bool,
    /// Whether the caller was told that there is no room.
    pub(crate) blocked: bool,
    /// Messages begun since its turn began, or since no octets of it were unread.
    pub(crate) begun: u32,
    /// Whether it waits for its next turn.
    pub(crate) waiting: bool,
    /// Whether octets up to the end of a line are being discarded.
    pub(crate) skipping: bool,
    pub(crate) unsent: Unsent,
    /// The stream being written, after the unsent octets.
    pub(crate) streaming: Option<Box<Streaming>>,
    /// Messages that follow it.
    pub(crate) behind: VecDeque<Behind>,
    /// The message being read.
    pub(crate) current: Option<IncomingId>,
    /// Number of unfinished requests.
    pub(crate) requests: u32,
    /// The handlers of its requests.
    pub(crate) tasks: Vec<TaskId>,
    /// The handler that waits for the next message.
    pub(crate) receiver: Option<TaskId>,
    /// The session: of a server's connection, the one that began with it; of a client's, its owner.
    pub(crate) session: Option<SessionId>,
    /// A client's requests in flight, oldest first.
    pub(crate) exchanges: VecDeque<ExchangeId>,
    /// Handlers that wait to send over it.
    pub(crate) waiters: VecDeque<TaskId>,
    /// The handler that prepares it for its first request.
    pub(crate) opening: Option<TaskId>,
    /// Whether it was kept from another session and has delivered no octet since.
    pub(crate) kept: bool,
    /// Whether it is released when its response is read.
    pub(crate) releasing: bool,
    /// Whether it is closed when its response is read.
    pub(crate) hanging: bool,
    pub(crate) alarm: Option<Alarm>,
    /// Time of its last activity.
    pub(crate) moved: Duration,
}

impl Conn {
    pub(crate) fn new(role: RoleId, side: Side, state: ConnectionState, now: Duration) -> Self {
        Self {
            role,
            side,
            peer: None,
            target: None,
            state,
            unread: Unread::default(),
            ended: false,
            blocked: false,
            begun: 0,
            waiting: false,
            skipping: false,
            unsent: Unsent::default(),
            streaming: None,
            behind: VecDeque::new(),
            current: None,
            requests: 0,
            tasks: Vec::new(),
            receiver: None,
            session: None,
            exchanges: VecDeque::new(),
            waiters: VecDeque::new(),
            opening: None,
            kept: false,
            releasing: false,
            hanging: false,
            alarm: None,
            moved: now,
        }
    }

    /// Whether nothing is in flight in either direction.
    pub(crate) fn is_clean(&self) -> bool {
        self.current.is_none()
            && self.exchanges.is_empty()
            && self.streaming.is_none()
            && self.behind.is_empty()
            && self.opening.is_none()
            && self.receiver.is_none()
    }
}

/// Recipient of an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Requester {
    /// The peer of a connection.
    Conn(ConnId),
    /// A peer reached by a datagram of this role.
    Peer(RoleId, SocketAddr),
}

/// Cause of a handler's start.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin {
    Request { role: RoleId, request: IncomingId },
    Opening { role: RoleId, conn: ConnId },
    Every { clock: usize },
}

impl Origin {
    pub(crate) const fn request(self) -> Option<IncomingId> {
        match self {
            Self::Request { request, .. } => Some(request),
            _ => None,
        }
    }
}

/// A request that waits to be sent.
#[derive(Debug)]
pub(crate) struct QueuedRequest {
    pub(crate) role: RoleId,
    pub(crate) octets: Vec<u8>,
    pub(crate) stream: Option<Source>,
    pub(crate) flow: Vec<u8>,
    /// Whether a response is expected.
    pub(crate) respond: bool,
    /// Maximum number of responses, if not one.
    pub(crate) gather: Option<u32>,
    pub(crate) target: RoleTarget,
    /// The connection that it waits for.
    pub(crate) conn: Option<ConnId>,
    /// The name that it waits for.
    pub(crate) query: Option<QueryId>,
    /// Whether only a new connection will do: a kept one has just failed.
    pub(crate) new_only: bool,
    pub(crate) deadline: Duration,
}

/// Value of a register.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Reg {
    Unset,
    Int(i64),
    Octets(Vec<u8>),
    View(IncomingId),
    /// A list, in a view of one slot.
    List(Box<View>),
}

impl Reg {
    /// A list with these rows, if there are any.
    pub(crate) fn list(rows: Option<Held<'_>>) -> Self {
        let mut view = View::with_slots(1);
        if let Some(rows) = rows {
            view.set_held(SlotId::new(0), rows);
        }
        Self::List(Box::new(view))
    }
}

/// The rows of a list in a register.
pub(crate) fn rows_of(list: &View) -> Rows<'_> {
    list.rows(SlotId::new(0))
}

/// The event that a handler waits for.
#[derive(Debug)]
pub(crate) enum Wait {
    /// It is about to run.
    Ready,
    /// Slots of a message are settled.
    Slots,
    /// A connection, or an address.
    Connection(Box<QueuedRequest>),
    /// The response to its request.
    Response(ExchangeId),
    /// The end of a stream that it sends over this connection.
    Written(ConnId),
    /// The next response of its `Gather`.
    Gather,
    /// The next message of a connection.
    Receive(ConnId),
    /// Time.
    Sleep,
}

/// Responses being collected.
#[derive(Debug)]
pub(crate) struct Gather {
    /// The block that began it.
    pub(crate) block: BlockId,
    pub(crate) exchange: Option<ExchangeId>,
    pub(crate) waiting: VecDeque<IncomingId>,
    /// Number of responses that may still come.
    pub(crate) left: u32,
}

/// A running handler.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) handler: HandlerId,
    pub(crate) origin: Origin,
    /// The connection that its request came from.
    pub(crate) conn: Option<ConnId>,
    pub(crate) registers: Vec<Reg>,
    /// The block to begin with, or at whose end it waits.
    pub(crate) block: BlockId,
    pub(crate) wait: Wait,
    pub(crate) alarm: Option<Alarm>,
    /// The session of a request that has none of its own.
    pub(crate) own: Option<SessionId>,
    pub(crate) keyed: Option<SessionId>,
    pub(crate) gather: Option<Gather>,
    pub(crate) started: Duration,
}

impl Task {
    pub(crate) fn register(&self, id: RegisterId) -> &Reg {
        self.registers.get(id.index()).unwrap_or(&Reg::Unset)
    }

    pub(crate) fn set(&mut self, id: RegisterId, value: Reg) -> Reg {
        match self.registers.get_mut(id.index()) {
            Some(register) => core::mem::replace(register, value),
            None => Reg::Unset,
        }
    }

    /// The message in a register.
    pub(crate) fn view(&self, id: RegisterId) -> Option<IncomingId> {
        match self.register(id) {
            Reg::View(incoming) => Some(*incoming),
            _ => None,
        }
    }
}

/// Location of a peer.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum PeerAddress {
    /// The other end of a connection.
    Conn(ConnId),
    /// An address, for this role.
    At(RoleId, SocketAddr),
}

/// A peer stored in a session.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct StoredPeer {
    pub(crate) place: PeerAddress,
    /// Values kept of its request.
    pub(crate) kept: Vec<Option<Value>>,
    /// The `fresh` number of the last message to it.
    pub(crate) mark: Option<Value>,
}
