//! The typed program: a gateway's meaning, independent of its notation.
//!
//! One [`Program`] is one gateway. Three parts refer to one another by ids:
//!
//! - [`Message`]s convert octets to typed slots ([`Message::parser`], a small resumable machine)
//!   and slots to octets ([`Message::emit`]);
//! - [`Role`]s describe a protocol on one side of the gateway: transport, dispatch of requests,
//!   correlation of responses, timers, limits, reuse of connections;
//! - [`Handler`]s process requests: basic blocks over typed registers, with a separate edge for
//!   every suspension and every absent value.
//!
//! # What every reader of the program may rely on
//!
//! - Ids index the vector that their type names, and are always valid.
//! - Every size is bounded: [`SlotType`], [`Register`] and [`Bounds`] give the maximum octets, so
//!   that nothing has to grow while a gateway runs.
//! - Only a parser out of octets, and the terminators that [`Terminator::suspends`] names, suspend.
//! - Integers are 64-bit and signed; arithmetic saturates, and so never fails.
//! - Nothing depends on one host language; every node with a place in the text has a span.
//!
//! # How a request runs
//!
//! Octets enter the role's request parser. As soon as the slots in [`RequestKind::waits`] are
//! settled (set, or known to be absent), the first [`Case`] whose guard holds is taken. A handler
//! starts at block 0 with the view in its first register, while the rest of the message may still
//! be arriving. [`Terminator::Await`] suspends it until its slots are settled. If the message turns
//! out malformed, or its sender breaks off, the handler ends and [`Role::malformed`] is answered.
//! If a message cannot be built ([`Check`]), or a wait runs out without an edge of its own, the
//! handler ends and [`Role::failed`] is answered.
//!
//! A client connection used by a handler belongs to the handler's *session* (the server connection,
//! or the keyed session) until it is released or closed, or the session ends. The next send to the
//! same role uses it again. A response returned while a stream of its request is unread waits until
//! that stream has been read to its end and discarded. If a kept connection turns out to be closed
//! before the first octet of a response, a new one replaces it, once, unless octets of a stream
//! were already sent on it.

mod handler;
mod message;
mod parameter;
mod role;
mod test;
mod too_long;

pub use handler::{
    Arithmetic, Block, Build, Handler, HandlerKind, Hole, Instruction, Operand, Partial, Register,
    RegisterType, Statement, Terminator, Test, TextPiece,
};
pub use message::{
    BitField, Check, Checksum, Class, ColumnType, Convert, Emit, EmitField, ExtendCase, Fold,
    Guard, Length, Message, Order, ParseOp, ParseStep, Pattern, Select, Slot, SlotType, Source,
    StreamFraming, TableKey, TableRow,
};
pub use parameter::{Parameter, ParameterBounds, ParameterError, ParameterValue};
pub use role::{
    Action, Answer, Bounds, BoundsLine, Case, Cast, Duplicates, FlowKey, Mode, Peers, RequestKind,
    Retransmit, Reuse, ReuseWhen, Role, Session, SessionKey, Side, Transport,
};
pub use test::{Expect, Step, StepAction, TestCase};
pub use too_long::TooLong;

use gatewright_diagnostic::Span;

/// One gateway, ready to run or to be emitted as C or Java.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Program {
    /// The gateway's name.
    pub name: String,
    /// Its declaration.
    pub span: Span,
    /// Every constant octet string, each once.
    pub literals: Vec<Vec<u8>>,
    /// The layouts that its roles read and write.
    pub messages: Vec<Message>,
    /// Its protocols, each on one side.
    pub roles: Vec<Role>,
    /// Parameters set at its start.
    pub parameters: Vec<Parameter>,
    /// The state kept between requests, if any.
    pub session: Option<Session>,
    /// The handlers of requests.
    pub handlers: Vec<Handler>,
    /// The gateway's `test` blocks.
    pub tests: Vec<TestCase>,
    /// The worst-case memory.
    pub bounds: Bounds,
}

impl Program {
    /// The octets of a literal.
    pub fn literal(&self, id: LiteralId) -> &[u8] {
        self.literals.get(id.index()).map_or(&[], Vec::as_slice)
    }

    /// Whether one event loop must run the whole program. It must if handlers share sessions by a
    /// value, if several connections share sessions by a field, or if only timers start handlers.
    ///
    /// Datagrams can be passed to the loop of their session, connections cannot.
    pub fn is_of_one_loop(&self) -> bool {
        let tcp =
            |role: RoleId| self.role(role).is_some_and(|role| role.transport == Transport::Tcp);
        let shared = |session: &Session| match session.key {
            SessionKey::Value { .. } => true,
            SessionKey::Slots(_) => tcp(session.role),
            SessionKey::Connection => false,
        };
        let served = self.roles.iter().any(|role| role.side == Side::Server);
        self.session.as_ref().is_some_and(shared) || !served
    }

    /// A message; `None` only for an id of another program.
    pub fn message(&self, id: MessageId) -> Option<&Message> {
        self.messages.get(id.index())
    }

    /// A role; `None` only for an id of another program.
    pub fn role(&self, id: RoleId) -> Option<&Role> {
        self.roles.get(id.index())
    }

    /// A parameter; `None` only for an id of another program.
    pub fn parameter(&self, id: ParameterId) -> Option<&Parameter> {
        self.parameters.get(id.index())
    }

    /// A handler; `None` only for an id of another program.
    pub fn handler(&self, id: HandlerId) -> Option<&Handler> {
        self.handlers.get(id.index())
    }
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub struct $name(u32);

        impl $name {
            /// The id of the element at `index`.
            pub fn new(index: usize) -> Self {
                Self(u32::try_from(index).unwrap_or(u32::MAX))
            }

            /// Index of the element in its vector.
            pub fn index(self) -> usize {
                usize::try_from(self.0).unwrap_or(usize::MAX)
            }
        }
    )*};
}

ids! {
    /// Index into [`Program::literals`].
    LiteralId;
    /// Index into [`Program::messages`].
    MessageId;
    /// Index into [`Message::slots`], or into [`Session::slots`] for a session variable.
    SlotId;
    /// Index into [`Program::roles`].
    RoleId;
    /// Index into [`Session::peers`].
    PeersId;
    /// Index into [`Program::parameters`].
    ParameterId;
    /// Index into [`Program::handlers`].
    HandlerId;
    /// Index into [`Handler::blocks`].
    BlockId;
    /// Index into [`Handler::registers`].
    RegisterId;
    /// Index into [`Message::parser`]: the next step of a parser.
    StepId;
    /// A value kept while one message is emitted ([`Emit::Let`]); below [`Message::locals`].
    LocalId;
}
