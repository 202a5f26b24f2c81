//! Handlers: what is done with a request, as a graph of basic blocks.

use super::{
    BlockId, ColumnType, Fold, LiteralId, MessageId, ParameterId, Pattern, PeersId, RegisterId,
    RoleId, SlotId,
};
use core::time::Duration;
use gatewright_diagnostic::Span;

/// One handler, from block 0 to a `Return`, `Close`, `Done` or `Fail`.
///
/// Every register is set before it is used on every path. What must survive a suspension is the
/// block to go on with and the registers: a continuation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Handler {
    /// Its name, unique in the program.
    pub name: String,
    /// Its declaration.
    pub span: Span,
    /// What starts it.
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

/// What starts a handler.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HandlerKind {
    /// A request; the view is in register 0.
    Request {
        /// Whose.
        role: RoleId,
        /// The view.
        view: MessageId,
    },
    /// A client connection that was just made, before its first request. Ends by `Done` (fit for
    /// use) or `Fail` (the send that wanted it takes its `failed` edge).
    Opening {
        /// Whose.
        role: RoleId,
    },
    /// Time: starts once after each period, unless the last turn is still running.
    Every {
        /// The period.
        period: Duration,
    },
}

/// A typed value of a handler.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Register {
    /// The name in the text; empty for one that has none.
    pub name: String,
    /// Where it was named.
    pub span: Span,
    /// What it holds.
    pub ty: RegisterType,
}

/// What a register holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RegisterType {
    /// A number in these bounds.
    Int {
        /// The least.
        low: i64,
        /// The greatest.
        high: i64,
    },
    /// At most this many octets.
    Octets {
        /// The bound.
        max: u32,
    },
    /// A message, perhaps still on its way.
    View(MessageId),
    /// A list of its own; absent and empty are one.
    List {
        /// What an element is.
        column: ColumnType,
        /// The most elements.
        max: u32,
    },
}

/// A stretch of code without a jump.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Block {
    /// What is done.
    pub statements: Vec<Statement>,
    /// What comes then.
    pub terminator: Terminator,
    /// Where the terminator is in the text.
    pub span: Span,
}

/// One operation with its place in the text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Statement {
    /// What is done.
    pub operation: Operation,
    /// Where.
    pub span: Span,
}

/// What never waits and never fails.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Operation {
    /// Sets a register.
    Set {
        /// Which.
        into: RegisterId,
        /// To what.
        value: Operand,
    },
    /// Sets a register to a result; saturates.
    Compute {
        /// Which.
        into: RegisterId,
        /// How.
        operator: Arithmetic,
        /// The left side.
        left: Operand,
        /// The right side; for `Divide` and `Modulo` a constant that is not 0.
        right: Operand,
    },
    /// Puts octets together.
    Format {
        /// Where.
        into: RegisterId,
        /// The pieces, in order.
        pieces: Vec<Piece>,
    },
    /// The first octets of a value, all if there are not as many.
    First {
        /// Where.
        into: RegisterId,
        /// Of what.
        of: Operand,
        /// How many at most.
        octets: u32,
    },
    /// Octets as small hexadecimal digits, two for each.
    Hex {
        /// Where.
        into: RegisterId,
        /// Of what.
        of: Operand,
    },
    /// Octets with their ASCII letters folded.
    Fold {
        /// Where.
        into: RegisterId,
        /// Of what.
        of: Operand,
        /// How.
        fold: Fold,
    },
    /// How many octets or elements.
    Size {
        /// Where.
        into: RegisterId,
        /// Of what.
        of: Operand,
    },
    /// Sets a session variable.
    SetSession {
        /// Which.
        slot: SlotId,
        /// To what.
        value: Operand,
    },
    /// Makes the list in a register empty.
    Empty {
        /// Which.
        into: RegisterId,
    },
    /// Makes a session variable absent, or a list empty.
    ClearSession {
        /// Which.
        slot: SlotId,
    },
    /// Ends the keyed session: its variables and connections are freed.
    EndSession,
    /// Answers for now; the request stays open.
    Provisional(Build),
    /// Takes the requester out of a variable that stores peers.
    Part {
        /// Which.
        peers: PeersId,
    },
    /// Takes the requester out of every variable of every session; where the request carries the
    /// `fresh` number of what was sent to it last ([`Peers::mark`](super::Peers::mark)), only out
    /// of those through which that was sent.
    ForgetRequester,
    /// Takes every peer out of a variable.
    ClearPeers {
        /// Which.
        peers: PeersId,
    },
    /// Sends a message to a stored peer, and waits for nothing: what the peer has no room for is
    /// dropped and counted.
    Tell {
        /// The variable.
        peers: PeersId,
        /// Which of its peers: the register that [`Terminator::EachPeer`] counts in.
        cursor: RegisterId,
        /// What.
        message: Build,
    },
    /// The session's connection of this role may serve others, as soon as a response that is still
    /// on its way has been read to its end.
    Release {
        /// Which.
        role: RoleId,
    },
    /// The session's connection of this role is closed, as soon as a response that the handler
    /// still reads there has been read to its end, or the handler is over.
    Hangup {
        /// Which.
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
    /// Rest of the division, with the sign of the left side.
    Modulo,
}

/// A piece of formatted octets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Piece {
    /// Constant octets.
    Literal(LiteralId),
    /// Octets as they are.
    Octets(Operand),
    /// A number in decimal digits.
    Decimal(Operand),
}

/// A value at hand.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operand {
    /// What a register holds.
    Register(RegisterId),
    /// A number.
    Int(i64),
    /// Constant octets.
    Literal(LiteralId),
    /// A settled slot of a view in a register, set or absent as it is.
    Slot {
        /// The view.
        view: RegisterId,
        /// Which slot.
        slot: SlotId,
    },
    /// A slot of the request that is being answered; absent if it was not read so far.
    Request(SlotId),
    /// A session variable, set or absent as it is.
    Session(SlotId),
    /// What was said when the program was started.
    Parameter(ParameterId),
    /// How many peers a variable stores; 0 outside of a session.
    Peers(PeersId),
    /// In the message of a [`Operation::Tell`]: what was kept of the request of the peer that is
    /// told, by its place in [`Peers::kept`](super::Peers::kept); absent if it was absent there.
    Kept(u32),
    /// A number that no exchange in the air of this role uses, in the width of the hole; for
    /// octets, four of them.
    Fresh,
}

/// A message to be written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Build {
    /// Which.
    pub message: MessageId,
    /// Its slots; those not named are absent.
    pub holes: Vec<Hole>,
    /// Where it stands in the text.
    pub span: Span,
}

/// One filled slot of a message to be written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hole {
    /// Which.
    pub slot: SlotId,
    /// With what; an absent value leaves it absent, octets for a stream are a stream of them.
    pub value: Operand,
}

/// A condition. An absent value is not any pattern.
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
    /// Every one holds.
    All(Vec<Self>),
    /// At least one holds.
    Any(Vec<Self>),
    /// It does not hold.
    Not(Box<Self>),
}

/// What may have no result.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Partial {
    /// The value itself, if it is set.
    Value(Operand),
    /// What follows a prefix, spaces and tabs at both ends taken off (ASCII case does not matter).
    After {
        /// The whole.
        of: Operand,
        /// The prefix.
        prefix: LiteralId,
    },
    /// What stands before the first occurrence.
    Before {
        /// The whole.
        of: Operand,
        /// The delimiter.
        delimiter: LiteralId,
    },
    /// What follows the first occurrence, spaces and tabs at both ends taken off.
    Past {
        /// The whole.
        of: Operand,
        /// The delimiter.
        delimiter: LiteralId,
    },
    /// An element of a list, counted from 1; of its only column, or of the one named.
    Item {
        /// The list.
        of: Operand,
        /// Which.
        index: Operand,
        /// Which column.
        column: u32,
    },
    /// Decimal digits as a number that is not above `high`.
    Decimal {
        /// The digits.
        of: Operand,
        /// The greatest.
        high: i64,
    },
    /// The elements of a list of octets with a text between them, if that is not above `max`.
    Join {
        /// The list.
        of: Operand,
        /// What stands between.
        separator: LiteralId,
        /// The most octets.
        max: u32,
    },
}

/// How a block ends.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Terminator {
    /// Goes on elsewhere.
    Jump(BlockId),
    /// One way or the other.
    Branch {
        /// The condition.
        test: Test,
        /// If it holds.
        then: BlockId,
        /// If not.
        otherwise: BlockId,
    },
    /// Tries; an absent value has its own edge.
    Try {
        /// What.
        partial: Partial,
        /// Where the result goes.
        into: RegisterId,
        /// If there is one.
        present: BlockId,
        /// If there is none.
        absent: BlockId,
    },
    /// Appends to a list.
    Append {
        /// The list: a register, or a variable of the session.
        list: Operand,
        /// The element.
        value: Operand,
        /// If it had room.
        done: BlockId,
        /// If it is full.
        full: BlockId,
    },
    /// The next element of a list, counted in a register that starts at 0.
    Next {
        /// The list.
        list: Operand,
        /// How many were taken.
        cursor: RegisterId,
        /// Where each column goes.
        into: Vec<RegisterId>,
        /// For each element.
        body: BlockId,
        /// After the last.
        done: BlockId,
    },
    /// The next part of octets between two separators, or before the first, or behind the last.
    /// Where it begins is counted in a register that starts at 0.
    NextPart {
        /// The whole.
        of: Operand,
        /// What separates; not empty.
        separator: LiteralId,
        /// How many octets were taken, with their separators.
        cursor: RegisterId,
        /// Where the part goes.
        into: RegisterId,
        /// For each part.
        body: BlockId,
        /// After the last.
        done: BlockId,
    },
    /// Stores the requester in a session's variable: its connection, or its address with what the
    /// role's `sending … after …` keeps of its request. One that is there already is renewed.
    Store {
        /// The variable.
        peers: PeersId,
        /// If there was room; a variable of one peer always has.
        done: BlockId,
        /// If it is full.
        full: BlockId,
    },
    /// The next of the stored peers, counted in a register that starts at 0.
    EachPeer {
        /// The variable.
        peers: PeersId,
        /// How many were taken.
        cursor: RegisterId,
        /// For each peer.
        body: BlockId,
        /// After the last.
        done: BlockId,
    },
    /// Suspends until the slots of a view are settled; goes on at once if they are.
    Await {
        /// The view.
        view: RegisterId,
        /// The slots.
        slots: Vec<SlotId>,
        /// Then.
        then: BlockId,
    },
    /// Sends a request and suspends until its response begins.
    Send {
        /// To whom.
        role: RoleId,
        /// `host:port` instead of the role's own; octets.
        address: Option<Operand>,
        /// What.
        message: Build,
        /// Which view the response has, and where it goes; `None` does not wait for one and goes
        /// on when the request is written.
        response: Option<(MessageId, RegisterId)>,
        /// How long the whole exchange may take, connecting and retransmissions counted.
        within: Duration,
        /// With the response.
        then: BlockId,
        /// Without: refused, broken, malformed, full or late.
        failed: BlockId,
    },
    /// Sends a request, collects responses until time is up or `max` are there, and suspends.
    Gather {
        /// To whom.
        role: RoleId,
        /// `host:port` instead of the role's own; octets.
        address: Option<Operand>,
        /// What.
        message: Build,
        /// The responses' view, and the register of each.
        response: (MessageId, RegisterId),
        /// How long.
        within: Duration,
        /// The most responses.
        max: u32,
        /// For each; runs to a `NextResponse`.
        body: BlockId,
        /// After the last.
        done: BlockId,
    },
    /// Suspends until the next response of the running `Gather`, or goes to its `done`.
    NextResponse {
        /// The block that ends with the `Gather`.
        gather: BlockId,
    },
    /// Suspends until the next message of the connection begins: of the requester in a request's
    /// handler, of the new connection in an opening.
    Receive {
        /// Which view.
        view: MessageId,
        /// Where it goes.
        into: RegisterId,
        /// How long.
        within: Duration,
        /// With it.
        then: BlockId,
        /// Without: broken, malformed or late.
        failed: BlockId,
    },
    /// Suspends for a time.
    Sleep {
        /// How long.
        period: Duration,
        /// Then.
        then: BlockId,
    },
    /// Begins the session of this request's key, or finds it.
    StartSession {
        /// The key, where the program names its sessions ([`SessionKey::Value`]); octets.
        ///
        /// [`SessionKey::Value`]: super::SessionKey::Value
        key: Option<Operand>,
        /// If there was room.
        then: BlockId,
        /// If every session is taken.
        full: BlockId,
    },
    /// Finds the session of this request's key.
    ResumeSession {
        /// The key, where the program names its sessions; octets.
        key: Option<Operand>,
        /// If it is there.
        then: BlockId,
        /// If it is not.
        none: BlockId,
    },
    /// Ends; answers, if there is a message.
    Return {
        /// The response.
        message: Option<Build>,
        /// Whether the requester's connection is closed behind it.
        close: bool,
    },
    /// Ends; the requester's connection is closed without an answer.
    Close,
    /// An opening is done: the connection is fit for use.
    Done,
    /// An opening failed; elsewhere: ends by the role's `failed` answer.
    Fail,
}

impl Terminator {
    /// Whether a handler may wait here; it then goes on with one of the block's edges.
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

    /// The blocks that may come next.
    pub fn targets(&self) -> Vec<BlockId> {
        let mut targets = Vec::new();
        self.clone().retarget(|block| {
            targets.push(block);
            block
        });
        targets
    }

    /// Sends every edge elsewhere.
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
