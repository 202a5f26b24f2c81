//! The syntax tree: the text before names are resolved.

pub(crate) use super::bits::Bits;
use crate::ir::{Checksum, TooLong};
use core::time::Duration;
use gatewright_diagnostic::Span;

/// A word with its position.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) span: Span,
}

/// A number with its position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number {
    pub(crate) value: i64,
    pub(crate) span: Span,
}

/// A duration with its position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time {
    pub(crate) value: Duration,
    pub(crate) span: Span,
}

/// A constant octet string with its position.
#[derive(Clone, Debug)]
pub(crate) struct Octets {
    pub(crate) value: Vec<u8>,
    pub(crate) span: Span,
}

/// A constant.
#[derive(Clone, Debug)]
pub(crate) enum Literal {
    Number(Number),
    Octets(Octets),
    /// A declared constant.
    Name(Name),
}

impl Literal {
    pub(crate) fn span(&self) -> Span {
        match self {
            Self::Number(number) => number.span,
            Self::Octets(octets) => octets.span,
            Self::Name(name) => name.span,
        }
    }
}

/// One file.
#[derive(Debug, Default)]
pub(crate) struct File {
    pub(crate) uses: Vec<Octets>,
    pub(crate) messages: Vec<MessageModule>,
    pub(crate) protocols: Vec<Protocol>,
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) tests: Vec<Test>,
}

// -- Message modules.

#[derive(Debug)]
pub(crate) struct MessageModule {
    pub(crate) name: Name,
    pub(crate) constants: Vec<(Name, Literal)>,
    pub(crate) parts: Vec<Layout>,
    pub(crate) views: Vec<Layout>,
    pub(crate) templates: Vec<Template>,
}

#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) name: Name,
    pub(crate) frame: Frame,
    pub(crate) items: Vec<Item>,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a program has a few dozen of them")]
pub(crate) enum Frame {
    Plain,
    Datagram(Option<Number>),
    Line(LineFrame),
}

#[derive(Debug)]
pub(crate) struct LineFrame {
    pub(crate) span: Span,
    pub(crate) max: Option<Number>,
    /// Whether it continues where the next line begins with a blank.
    pub(crate) folded: bool,
    pub(crate) repeat: Option<(Condition, Option<Number>)>,
}

#[derive(Debug)]
pub(crate) enum Item {
    Literal(Octets),
    Skip {
        blanks: bool,
        /// Whether none is written.
        stray: bool,
        span: Span,
    },
    Field(Box<Field>),
    Line {
        frame: LineFrame,
        items: Vec<Self>,
    },
    /// Repeated items; the last ones count.
    Repeated {
        guard: Condition,
        times: Option<Number>,
        items: Vec<Self>,
        span: Span,
    },
    Counted {
        by: Measure,
        max: Option<Number>,
        items: Vec<Self>,
        span: Span,
    },
    When {
        guard: Condition,
        items: Vec<Self>,
        span: Span,
    },
    Table(Table),
    Extend {
        field: Name,
        cases: Vec<Extension>,
        span: Span,
    },
    /// Items, followed by a check over their octets.
    Checked {
        by: Checksum,
        items: Vec<Self>,
        span: Span,
    },
    /// The fields of a packet diagram.
    Diagram(Vec<Self>),
}

/// Encoding of a counted block's length.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Measure {
    /// `less`: how many of the counted octets precede the block.
    Word {
        octets: u8,
        little: bool,
        less: u32,
    },
    Varint,
}

#[derive(Debug)]
pub(crate) struct Extension {
    pub(crate) value: Number,
    pub(crate) octets: u8,
    pub(crate) add: Number,
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: Name,
    pub(crate) private: bool,
    pub(crate) optional: bool,
    pub(crate) ty: FieldType,
    pub(crate) ty_span: Span,
    pub(crate) max: Option<Number>,
    /// Written as 0 and ignored when read.
    pub(crate) reserved: bool,
    pub(crate) fixed: Option<Literal>,
    pub(crate) default: Option<Literal>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Case {
    Keep,
    Upper,
    Lower,
}

#[derive(Debug)]
pub(crate) enum FieldType {
    Bits(Bits),
    Varint,
    Digits { radix: u32, min: u32, max: u32 },
    Token(Case),
    Word(Case),
    Until(Case, Octets),
    Rest(Case),
    Taken(Literal),
    OneOf(Octets),
    SumOf(Name),
    List(ListOf),
    Stream(Vec<(Option<Condition>, Framing)>),
}

#[derive(Debug)]
pub(crate) enum ListOf {
    Bits(Bits),
    Part(Name),
}

#[derive(Debug)]
pub(crate) enum Framing {
    Lines { until: Octets, stuffed: Option<Octets> },
    Chunked,
    Counted(Name),
    UntilClose,
    Nothing,
}

#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) span: Span,
    pub(crate) part: Name,
    pub(crate) key: Name,
    pub(crate) ends: Vec<TableEnd>,
    pub(crate) max: Option<Number>,
    pub(crate) entries: Vec<TableEntry>,
}

#[derive(Debug)]
pub(crate) enum TableEnd {
    EmptyLine,
    Marker(Octets),
    End,
}

#[derive(Debug)]
pub(crate) struct TableEntry {
    /// The key to write, and those that are read like it.
    pub(crate) key: Literal,
    pub(crate) others: Vec<Literal>,
    pub(crate) name: Name,
    pub(crate) private: bool,
    pub(crate) presence: Presence,
    pub(crate) convert: Convert,
    pub(crate) max: Option<Number>,
    pub(crate) each: Option<Number>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Presence {
    Mandatory,
    Optional,
    List,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Convert {
    Keep,
    Lower,
    Upper,
    Decimal,
    Uint,
}

#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) name: Name,
    pub(crate) holes: Vec<Parameter>,
    pub(crate) body: TemplateBody,
}

#[derive(Debug)]
pub(crate) enum TemplateBody {
    Build(Call),
    Text { view: Name, pieces: Vec<TextPiece>, span: Span },
}

#[derive(Debug)]
pub(crate) struct Parameter {
    pub(crate) name: Name,
    pub(crate) ty: ValueType,
}

/// The type of a template's hole or of a session variable.
#[derive(Debug)]
pub(crate) enum ValueType {
    Int {
        low: Number,
        high: Number,
    },
    Fragment {
        max: Option<Number>,
        span: Span,
    },
    List {
        element: ListElement,
        max: Option<Number>,
        each: Option<Number>,
        span: Span,
    },
    Stream,
    /// A peer of a role, in a session.
    Peer(Name),
    /// A view, in a definition.
    View(Path),
}

#[derive(Debug)]
pub(crate) enum ListElement {
    Int { low: Number, high: Number },
    Fragment,
    Peer(Name),
}

// -- Protocol modules.

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a word of the text")]
pub(crate) struct Protocol {
    pub(crate) name: Name,
    pub(crate) udp: bool,
    pub(crate) asynchronous: bool,
    pub(crate) multicast: bool,
    pub(crate) message: Option<Name>,
    pub(crate) idle: Option<Time>,
    pub(crate) connections: Option<Number>,
    pub(crate) requests: Vec<Request>,
    pub(crate) response: Option<Name>,
    pub(crate) flow: Vec<Name>,
    pub(crate) sending: Vec<Sending>,
    pub(crate) malformed: Option<Answer>,
    pub(crate) too_long: Vec<(TooLong, Answer)>,
    pub(crate) failed: Option<Answer>,
    pub(crate) full: Option<Answer>,
    pub(crate) retransmit: Option<Retransmit>,
    pub(crate) duplicates: Option<(Vec<Name>, Time)>,
    pub(crate) allow_amplification: bool,
    pub(crate) greeting: Option<Call>,
    pub(crate) reuse: Option<Reuse>,
    pub(crate) shared: Option<SharedClient>,
    pub(crate) opening: Option<Vec<Statement>>,
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) view: Name,
    pub(crate) cases: Vec<DispatchCase>,
    pub(crate) span: Span,
}

#[derive(Debug)]
pub(crate) struct DispatchCase {
    /// `None` for `otherwise`.
    pub(crate) guard: Option<Condition>,
    pub(crate) action: DispatchAction,
    pub(crate) span: Span,
}

/// Whether a handler answers.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Answers {
    Always,
    /// `or ignore`: it may end without an answer.
    Perhaps,
    /// `without response`
    Never,
}

#[derive(Debug)]
pub(crate) enum DispatchAction {
    Handler { name: Name, answers: Answers },
    Answer(Answer),
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) message: Option<Call>,
    pub(crate) close: bool,
}

#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) view: Name,
    pub(crate) to: Option<Name>,
    /// Whether it is sent to a stored requester, rather than as the answer.
    pub(crate) after: bool,
    pub(crate) assigns: Vec<(Name, SendingValue)>,
}

#[derive(Debug)]
pub(crate) enum SendingValue {
    Fresh,
    Request(Name),
    Literal(Literal),
}

#[derive(Debug)]
pub(crate) struct Retransmit {
    pub(crate) after: Time,
    pub(crate) doubling: bool,
    pub(crate) to: Option<Time>,
    pub(crate) times: Number,
}

/// One connection shared by all sessions.
#[derive(Debug)]
pub(crate) struct SharedClient {
    pub(crate) span: Span,
    pub(crate) waiting: Number,
}

#[derive(Debug)]
pub(crate) struct Reuse {
    pub(crate) max: Number,
    pub(crate) idle: Time,
    pub(crate) each_response: bool,
}

// -- Gateways.

#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) name: Name,
    pub(crate) roles: Vec<Role>,
    /// Parameters set when the program is started, with their defaults.
    pub(crate) parameters: Vec<(Parameter, Option<Literal>)>,
    pub(crate) session: Option<Session>,
    pub(crate) handlers: Vec<Handler>,
    pub(crate) definitions: Vec<Definition>,
}

#[derive(Debug)]
pub(crate) struct Role {
    pub(crate) name: Name,
    pub(crate) protocol: Name,
    pub(crate) client: bool,
    pub(crate) address: Octets,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) span: Span,
    pub(crate) key: SessionBy,
    pub(crate) max: Option<Number>,
    pub(crate) idle: Option<Time>,
    pub(crate) variables: Vec<Parameter>,
}

/// The key that distinguishes sessions.
#[derive(Debug)]
pub(crate) enum SessionBy {
    /// One session per connection of the role.
    Connection(Name),
    /// Fields of the role's requests.
    Fields(Vec<Name>, Name),
    /// Octets that the program gives, with a maximum length.
    Value(Option<Number>),
}

#[derive(Debug)]
pub(crate) struct Handler {
    pub(crate) span: Span,
    pub(crate) starts: Start,
    pub(crate) body: Vec<Statement>,
    /// Position of the body's end.
    pub(crate) end: Span,
}

#[derive(Debug)]
pub(crate) enum Start {
    Request { names: Vec<(Option<Name>, Name)>, parameter: Name },
    Every(Time),
}

#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) name: Name,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) returns: Path,
    pub(crate) body: Vec<Statement>,
    pub(crate) end: Span,
}

/// `name` or `module.name`.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) module: Option<Name>,
    pub(crate) name: Name,
}

impl Path {
    pub(crate) fn span(&self) -> Span {
        self.module.as_ref().map_or(self.name.span, |module| module.span.to(self.name.span))
    }
}

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) path: Path,
    pub(crate) arguments: Vec<Argument>,
    pub(crate) span: Span,
}

#[derive(Debug)]
pub(crate) struct Argument {
    pub(crate) name: Option<Name>,
    pub(crate) value: Expression,
}

#[derive(Debug)]
pub(crate) enum TextPiece {
    Octets(Vec<u8>),
    Hole(Expression),
}

#[derive(Debug)]
pub(crate) struct Expression {
    pub(crate) kind: ExpressionKind,
    pub(crate) span: Span,
}

#[derive(Debug)]
pub(crate) enum ExpressionKind {
    Number(i64),
    Octets(Vec<u8>),
    Text(Vec<TextPiece>),
    /// `a` or `a.b`.
    Path(Path),
    Call(Call),
    After {
        of: Box<Expression>,
        prefix: Octets,
    },
    Before {
        of: Box<Expression>,
        delimiter: Octets,
    },
    Past {
        of: Box<Expression>,
        delimiter: Octets,
    },
    Item {
        index: Box<Expression>,
        of: Box<Expression>,
    },
    Decimal {
        of: Box<Expression>,
        high: Option<Number>,
    },
    First {
        octets: Number,
        of: Box<Expression>,
    },
    Size(Box<Expression>),
    /// `hex of OCTETS`
    Hex(Box<Expression>),
    /// In lower case or in upper case.
    Case {
        of: Box<Expression>,
        upper: bool,
    },
    Join {
        of: Box<Expression>,
        separator: Octets,
        max: Option<Number>,
    },
    Binary {
        operator: char,
        left: Box<Expression>,
        right: Box<Expression>,
    },
    Else {
        value: Box<Expression>,
        otherwise: Box<Expression>,
    },
    When {
        on: Box<Expression>,
        arms: Vec<Arm>,
    },
}

#[derive(Debug)]
pub(crate) struct Arm {
    /// Empty for `otherwise`.
    pub(crate) patterns: Vec<Pattern>,
    pub(crate) value: Expression,
    pub(crate) span: Span,
}

#[derive(Debug)]
pub(crate) struct Condition {
    pub(crate) kind: ConditionKind,
    pub(crate) span: Span,
}

#[derive(Debug)]
pub(crate) enum ConditionKind {
    Is {
        value: Expression,
        patterns: Vec<Pattern>,
        not: bool,
    },
    /// Operator: `=`, `<`, `>`, `l` for at most, `g` for at least.
    Compare {
        operator: Comparison,
        left: Expression,
        right: Expression,
    },
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
    Not(Box<Condition>),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Comparison {
    Equal,
    Less,
    Greater,
    AtMost,
    AtLeast,
}

#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) kind: PatternKind,
    pub(crate) span: Span,
}

#[derive(Debug)]
pub(crate) enum PatternKind {
    Range(i64, i64),
    Octets(Vec<u8>),
    Name(Name),
    Present,
    Absent,
    Empty,
}

/// Target of an assignment: `session.NAME`, or a variable of the handler.
#[derive(Debug)]
pub(crate) struct AssignTarget {
    pub(crate) in_session: bool,
    pub(crate) name: Name,
}

#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) kind: StatementKind,
    pub(crate) span: Span,
}

#[derive(Debug)]
pub(crate) enum StatementKind {
    Let {
        name: Name,
        value: Bound,
        otherwise: Option<Box<Statement>>,
    },
    /// `variable NAME: TYPE = VALUE`; a list begins empty without a value.
    Variable {
        variable: Parameter,
        value: Option<Expression>,
    },
    /// `NAME = VALUE`
    Set {
        name: Name,
        value: Expression,
    },
    Send {
        send: Send,
        otherwise: Option<Box<Statement>>,
    },
    If {
        condition: Condition,
        then: Vec<Statement>,
        otherwise: Option<Vec<Statement>>,
    },
    ForEach {
        name: Name,
        list: Expression,
        body: Vec<Statement>,
    },
    ForEachPart {
        name: Name,
        of: Expression,
        separator: Octets,
        body: Vec<Statement>,
    },
    /// A repeated body, with a maximum count.
    Repeat {
        times: Option<Number>,
        body: Vec<Statement>,
    },
    Gather {
        name: Name,
        send: Send,
        max: Option<Number>,
        body: Vec<Statement>,
    },
    /// Continues with the next iteration of the innermost loop.
    Next,
    /// Continues after the innermost loop.
    Leave,
    Return {
        value: Option<Expression>,
        close: bool,
    },
    Provisional(Expression),
    Close(Option<Name>),
    Fail,
    Release(Name),
    Append {
        value: Expression,
        list: AssignTarget,
        otherwise: Option<Box<Statement>>,
    },
    Assign {
        variable: Name,
        value: Expression,
    },
    Clear(AssignTarget),
    /// `remove requester from session.NAME`
    Part(Name),
    /// `forget requester`
    ForgetRequester,
    /// `send MESSAGE to session.NAME`
    Tell {
        message: Expression,
        to: Name,
    },
    StartSession {
        key: Option<Expression>,
        otherwise: Option<Box<Statement>>,
    },
    ResumeSession {
        key: Option<Expression>,
        otherwise: Option<Box<Statement>>,
    },
    EndSession,
    Wait(Time),
    Block(Vec<Statement>),
}

/// Result bound by a `let`.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a program has a few dozen of them")]
pub(crate) enum Bound {
    Value(Expression),
    Send(Send),
    Receive { view: Path, within: Option<Time>, span: Span },
}

#[derive(Debug)]
pub(crate) struct Send {
    pub(crate) message: Expression,
    pub(crate) to: Option<Name>,
    pub(crate) at: Option<Expression>,
    pub(crate) within: Option<Time>,
    pub(crate) span: Span,
}

// -- Tests.

#[derive(Debug)]
pub(crate) struct Test {
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) steps: Vec<Step>,
}

#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) kind: StepKind,
    pub(crate) span: Span,
}

#[derive(Debug)]
pub(crate) enum StepKind {
    Sends(Name, Octets),
    SeesOctets(Name, Octets),
    SeesMessage(Name, Call),
    SeesClose(Name),
    Closes(Name),
    Pass(Time),
    /// The next fresh number of a role.
    Fresh(Name, Number),
    /// The value of a parameter.
    Parameter(Name, Literal),
}
