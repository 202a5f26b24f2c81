//! Handlers: the processing of a request, as a graph of basic blocks.

use super::{
    BlockId, ColumnType, Fold, LiteralId, MessageId, ParameterId, Pattern, PeersId, RegisterId,
    RoleId, SlotId,
};
use core::time::Duration;
use gatewright_diagnostic::Span;

/// One handler, from block 0 to a `Return`, `Close`, `Done` or `Fail`.
///
/// On every path, every register is set before it is used. A continuation consists of the next
/// block and the registers; only these survive a suspension.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Handler {
    /// Its name, unique in the program.
    pub name: String,
    /// Its declaration.
    pub span: Span,
    /// The event that starts it.
    pub kind: HandlerKind,
    /// Its values.
    pub registers: Vec<Register>,
    /// Its code.
    pub blocks: Vec<Block>,
}

impl Handler {
    /// A block; `None` only for an id of another handler.
    pub fn block(&self, id: BlockId) -> Option<&Block> {
        self.blocks.get(id.index())
    }
}

/// Event that starts a handler.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HandlerKind {
    /// A request; the view is in register 0.
    Request {
        /// The role.
        role: RoleId,
        /// The view.
        view: MessageId,
    },
    /// A new client connection, before its first request. The handler ends by `Done` (ready for
    /// use) or `Fail` (the send that needed it takes its `failed` edge).
    Opening {
        /// The role.
        role: RoleId,
    },
    /// A timer: starts once after each period, unless the last run is not over.
    Every {
        /// The period.
        period: Duration,
    },
}

/// A typed value of a handler.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Register {
    /// The name in the text; empty if it has none.
    pub name: String,
    /// Source position of the name.
    pub span: Span,
    /// Its type.
    pub ty: RegisterType,
}

/// Type of a register.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RegisterType {
    /// A number in these bounds.
    Int {
        /// The minimum.
        low: i64,
        /// The maximum.
        high: i64,
    },
    /// At most this many octets.
    Octets {
        /// The maximum length.
        max: u32,
    },
    /// A message, which may still be arriving.
    View(MessageId),
    /// A list owned by the handler; absent and empty are the same.
    List {
        /// Type of an element.
        column: ColumnType,
        /// The maximum number of elements.
        max: u32,
    },
}

/// A sequence of statements without a jump.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Block {
    /// The statements.
    pub statements: Vec<Statement>,
    /// The terminator.
    pub terminator: Terminator,
    /// Source position of the terminator.
    pub span: Span,
}

/// One operation with its source position.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Statement {
    /// The operation.
    pub operation: Instruction,
    /// Its source position.
    pub span: Span,
}

/// An operation that never waits and never fails.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Instruction {
    /// Sets a register.
    Set {
        /// The destination register.
        into: RegisterId,
        /// The value.
        value: Operand,
    },
    /// Sets a register to a result; saturates.
    Compute {
        /// The destination register.
        into: RegisterId,
        /// The operator.
        operator: Arithmetic,
        /// The left side.
        left: Operand,
        /// The right side; for `Divide` and `Modulo` a constant that is not 0.
        right: Operand,
    },
    /// Concatenates octets.
    Format {
        /// The destination register.
        into: RegisterId,
        /// The pieces, in order.
        pieces: Vec<TextPiece>,
    },
    /// The first octets of a value; all of them if there are fewer.
    First {
        /// The destination register.
        into: RegisterId,
        /// The operand.
        of: Operand,
        /// The maximum number.
        octets: u32,
    },
    /// Octets as lower-case hexadecimal digits, two per octet.
    Hex {
        /// The destination register.
        into: RegisterId,
        /// The operand.
        of: Operand,
    },
    /// Octets with their ASCII letters folded.
    Fold {
        /// The destination register.
        into: RegisterId,
        /// The operand.
        of: Operand,
        /// The case folding.
        fold: Fold,
    },
    /// Number of octets or elements.
    Size {
        /// The destination register.
        into: RegisterId,
        /// The operand.
        of: Operand,
    },
    /// Sets a session variable.
    SetSession {
        /// The slot.
        slot: SlotId,
        /// The value.
        value: Operand,
    },
    /// Makes the list in a register empty.
    Empty {
        /// The destination register.
        into: RegisterId,
    },
    /// Makes a session variable absent, or a list empty.
    ClearSession {
        /// The slot.
        slot: SlotId,
    },
    /// Ends the keyed session: its variables and connections are freed.
    EndSession,
    /// Sends a provisional answer; the request stays open.
    Provisional(Build),
    /// Removes the requester from a variable that stores peers.
    Part {
        /// The variable.
        peers: PeersId,
    },
    /// Removes the requester from every variable of every session. If the request carries the
    /// `fresh` number of the last message to it ([`Peers::mark`](super::Peers::mark)), only the
    /// variables through which that message was sent are changed.
    ForgetRequester,
    /// Removes every peer from a variable.
    ClearPeers {
        /// The variable.
        peers: PeersId,
    },
    /// Sends a message to a stored peer without waiting. A message for which the peer has no room
    /// is dropped and counted.
    Tell {
        /// The variable.
        peers: PeersId,
        /// The peer: the register in which [`Terminator::EachPeer`] counts.
        cursor: RegisterId,
        /// The message.
        message: Build,
    },
    /// Releases the session's connection of this role for others, once a response in flight has
    /// been read to its end.
    Release {
        /// The role.
        role: RoleId,
    },
    /// Closes the session's connection of this role, once the response that the handler still reads
    /// has been read to its end, or the handler has ended.
    Hangup {
        /// The role.
        role: RoleId,
    },
}

/// An operator on numbers; all saturate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Arithmetic {
    /// Sum.
    Add,
    /// Difference.
    Subtract,
    /// Product.
    Multiply,
    /// Quotient, towards zero.
    Divide,
    /// Remainder of the division, with the sign of the left side.
    Modulo,
}

/// A piece of formatted octets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TextPiece {
    /// Constant octets.
    Literal(LiteralId),
    /// Octets as they are.
    Octets(Operand),
    /// A number in decimal digits.
    Decimal(Operand),
}

/// A value that is available without waiting.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operand {
    /// The value of a register.
    Register(RegisterId),
    /// A number.
    Int(i64),
    /// Constant octets.
    Literal(LiteralId),
    /// A settled slot of a view in a register, set or absent as it is.
    Slot {
        /// The view.
        view: RegisterId,
        /// The slot.
        slot: SlotId,
    },
    /// A slot of the request being answered; absent if it has not been read yet.
    Request(SlotId),
    /// A session variable, set or absent as it is.
    Session(SlotId),
    /// A parameter set when the program was started.
    Parameter(ParameterId),
    /// Number of peers that a variable stores; 0 outside a session.
    Peers(PeersId),
    /// In the message of an [`Instruction::Tell`]: a value kept from the request of the recipient, by
    /// its index in [`Peers::kept`](super::Peers::kept); absent if it was absent there.
    Kept(u32),
    /// A number that no exchange in flight of this role uses, in the width of the hole; for octets,
    /// four of them.
    Fresh,
}

/// A message to be written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Build {
    /// The message.
    pub message: MessageId,
    /// Its slots; those not named are absent.
    pub holes: Vec<Hole>,
    /// Its source position.
    pub span: Span,
}

/// One filled slot of a message to be written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hole {
    /// The slot.
    pub slot: SlotId,
    /// Its value; an absent value leaves the slot absent, and octets for a stream become a stream.
    pub value: Operand,
}

/// A condition. An absent value matches no pattern.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Test {
    /// The value matches one of the patterns.
    Is {
        /// The value.
        value: Operand,
        /// The patterns.
        patterns: Vec<Pattern>,
    },
    /// The value is set.
    Present(Operand),
    /// Both values are equal, octets or numbers.
    Equal(Operand, Operand),
    /// The first number is less than the second.
    Less(Operand, Operand),
    /// All hold.
    All(Vec<Self>),
    /// At least one holds.
    Any(Vec<Self>),
    /// It does not hold.
    Not(Box<Self>),
}

/// A value that may have no result.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Partial {
    /// The value itself, if it is set.
    Value(Operand),
    /// The octets after a prefix, without spaces and tabs at both ends (ASCII case is ignored).
    After {
        /// The whole value.
        of: Operand,
        /// The prefix.
        prefix: LiteralId,
    },
    /// The octets before the first occurrence.
    Before {
        /// The whole value.
        of: Operand,
        /// The delimiter.
        delimiter: LiteralId,
    },
    /// The octets after the first occurrence, without spaces and tabs at both ends.
    Past {
        /// The whole value.
        of: Operand,
        /// The delimiter.
        delimiter: LiteralId,
    },
    /// An element of a list, counted from 1: its only column, or the named one.
    Item {
        /// The list.
        of: Operand,
        /// The index.
        index: Operand,
        /// The column.
        column: u32,
    },
    /// Decimal digits as a number that is not above `high`.
    Decimal {
        /// The digits.
        of: Operand,
        /// The maximum.
        high: i64,
    },
    /// The elements of a list of octets, joined by a separator, if the result is at most `max`
    /// octets.
    Join {
        /// The list.
        of: Operand,
        /// The separator.
        separator: LiteralId,
        /// The maximum number of octets.
        max: u32,
    },
}

/// The last instruction of a block.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Terminator {
    /// Continues at another block.
    Jump(BlockId),
    /// Chooses between two blocks.
    Branch {
        /// The condition.
        test: Test,
        /// The block if it holds.
        then: BlockId,
        /// The block if it does not hold.
        otherwise: BlockId,
    },
    /// Evaluates a value that may be absent; absence has its own edge.
    Try {
        /// The partial value.
        partial: Partial,
        /// The destination register.
        into: RegisterId,
        /// The block if there is a result.
        present: BlockId,
        /// The block if there is none.
        absent: BlockId,
    },
    /// Appends to a list.
    Append {
        /// The list: a register, or a variable of the session.
        list: Operand,
        /// The element.
        value: Operand,
        /// The block if there was room.
        done: BlockId,
        /// The block if it is full.
        full: BlockId,
    },
    /// The next element of a list, counted in a register that starts at 0.
    Next {
        /// The list.
        list: Operand,
        /// The number of elements taken.
        cursor: RegisterId,
        /// The register for each column.
        into: Vec<RegisterId>,
        /// The block for each element.
        body: BlockId,
        /// The block after the last.
        done: BlockId,
    },
    /// The next part of octets between two separators, before the first or after the last. Its
    /// beginning is counted in a register that starts at 0.
    NextPart {
        /// The whole value.
        of: Operand,
        /// The separator; not empty.
        separator: LiteralId,
        /// The number of octets taken, with their separators.
        cursor: RegisterId,
        /// The register for the part.
        into: RegisterId,
        /// The block for each part.
        body: BlockId,
        /// The block after the last.
        done: BlockId,
    },
    /// Stores the requester in a session's variable: its connection, or its address with the values
    /// that the role's `sending … after …` keeps of its request. A requester that is stored already
    /// is renewed.
    Store {
        /// The variable.
        peers: PeersId,
        /// The block if there was room; a variable of one peer always has room.
        done: BlockId,
        /// The block if it is full.
        full: BlockId,
    },
    /// The next stored peer, counted in a register that starts at 0.
    EachPeer {
        /// The variable.
        peers: PeersId,
        /// Number of elements taken.
        cursor: RegisterId,
        /// The block for each peer.
        body: BlockId,
        /// The block after the last.
        done: BlockId,
    },
    /// Suspends until the slots of a view are settled; continues at once if they are.
    Await {
        /// The view.
        view: RegisterId,
        /// The slots.
        slots: Vec<SlotId>,
        /// The next block.
        then: BlockId,
    },
    /// Sends a request and suspends until its response begins.
    Send {
        /// The role that sends it.
        role: RoleId,
        /// `host:port` in place of the role's own; octets.
        address: Option<Operand>,
        /// The message.
        message: Build,
        /// The response's view and its register. With `None` the handler expects no response, and
        /// continues when the request is written.
        response: Option<(MessageId, RegisterId)>,
        /// The timeout of the whole exchange, with connecting and retransmissions.
        within: Duration,
        /// The block after a response.
        then: BlockId,
        /// The block without a response: refused, broken, malformed, full or late.
        failed: BlockId,
    },
    /// Sends a request, and suspends to collect responses until the timeout or `max` responses.
    Gather {
        /// The role that sends it.
        role: RoleId,
        /// `host:port` in place of the role's own; octets.
        address: Option<Operand>,
        /// The message.
        message: Build,
        /// The responses' view, and the register for each.
        response: (MessageId, RegisterId),
        /// The timeout.
        within: Duration,
        /// Maximum number of responses.
        max: u32,
        /// The block for each response; runs to a `NextResponse`.
        body: BlockId,
        /// The block after the last.
        done: BlockId,
    },
    /// Suspends until the next response of the running `Gather`, or continues at its `done`.
    NextResponse {
        /// The block that ends with the `Gather`.
        gather: BlockId,
    },
    /// Suspends until the next message of a connection begins: the requester's in a request's
    /// handler, the new one in an opening.
    Receive {
        /// The view of the message.
        view: MessageId,
        /// The register for it.
        into: RegisterId,
        /// The timeout.
        within: Duration,
        /// The block after the message.
        then: BlockId,
        /// The block without one: broken, malformed or late.
        failed: BlockId,
    },
    /// Suspends for a time.
    Sleep {
        /// The period.
        period: Duration,
        /// The next block.
        then: BlockId,
    },
    /// Finds or begins the session of this request's key.
    StartSession {
        /// The key, if the program names its sessions ([`SessionKey::Value`]); octets.
        ///
        /// [`SessionKey::Value`]: super::SessionKey::Value
        ///
        /// [`SessionKey::Value`]: super::SessionKey::Value
        key: Option<Operand>,
        /// The block if there was room.
        then: BlockId,
        /// The block if all sessions are in use.
        full: BlockId,
    },
    /// Finds the session of this request's key.
    ResumeSession {
        /// The key, if the program names its sessions; octets.
        key: Option<Operand>,
        /// The block if the session exists.
        then: BlockId,
        /// The block if it does not.
        none: BlockId,
    },
    /// Ends the handler; answers, if there is a message.
    Return {
        /// The response.
        message: Option<Build>,
        /// Whether the requester's connection is closed afterwards.
        close: bool,
    },
    /// Ends the handler; the requester's connection is closed without an answer.
    Close,
    /// Ends an opening: the connection is ready for use.
    Done,
    /// An opening fails; any other handler ends by the role's `failed` answer.
    Fail,
}

impl Terminator {
    /// Whether a handler may wait here; it then resumes by one of the block's edges.
    pub const fn suspends(&self) -> bool {
        matches!(
            self,
            Self::Await { .. }
                | Self::Send { .. }
                | Self::Gather { .. }
                | Self::NextResponse { .. }
                | Self::Receive { .. }
                | Self::Sleep { .. }
        )
    }

    /// The blocks that may follow.
    pub fn targets(&self) -> Vec<BlockId> {
        let mut targets = Vec::new();
        self.clone().retarget(|block| {
            targets.push(block);
            block
        });
        targets
    }

    /// Changes the target of every edge.
    pub(crate) fn retarget(&mut self, mut to: impl FnMut(BlockId) -> BlockId) {
        let mut lead = |block: &mut BlockId| *block = to(*block);
        match self {
            Self::Jump(then) | Self::Await { then, .. } | Self::Sleep { then, .. } => lead(then),
            Self::Branch { then: one, otherwise: other, .. }
            | Self::Try { present: one, absent: other, .. }
            | Self::Append { done: one, full: other, .. }
            | Self::Next { body: one, done: other, .. }
            | Self::NextPart { body: one, done: other, .. }
            | Self::EachPeer { body: one, done: other, .. }
            | Self::Store { done: one, full: other, .. }
            | Self::Gather { body: one, done: other, .. }
            | Self::Send { then: one, failed: other, .. }
            | Self::Receive { then: one, failed: other, .. }
            | Self::StartSession { then: one, full: other, .. }
            | Self::ResumeSession { then: one, none: other, .. } => {
                lead(one);
                lead(other);
            }
            Self::NextResponse { gather } => lead(gather),
            Self::Return { .. } | Self::Close | Self::Done | Self::Fail => {}
        }
    }
}
