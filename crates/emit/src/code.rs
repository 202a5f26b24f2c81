//! The language-independent tree between the walk and the printers: small imperative functions.
//!
//! It calls functions of a runtime, which have the same names in every language. The first argument
//! is the object of the call: C passes it, Java calls the method on it.

use core::time::Duration;
use gatewright_diagnostic::Span;
use gatewright_lang::ir::{ExtendCase, LiteralId, TooLong};

/// A line of the program's text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SourceLine {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
}

/// Returns the source line of a span; `None` omits the line.
pub type Places<'p> = &'p dyn Fn(Span) -> Option<SourceLine>;

/// A value.
#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Int(i64),
    Bool(bool),
    /// Constant octets.
    Text(LiteralId),
    /// A slot of a view, by the names of both.
    Slot(String, String),
    /// No slot at all.
    NoSlot,
    /// A parameter or local variable.
    Local(String),
    /// A constant of the runtime, in capitals.
    Constant(&'static str),
    /// A function of the runtime.
    Call(&'static str, Vec<Self>),
    /// A slot of the message in a value of a handler: the record, the value, the slot.
    Inside(String, String, String),
    /// A slot of the message that is being built: the record and the slot.
    Built(String, String),
    /// A message of the program.
    Message(usize),
    /// The slot of a parameter of the program.
    Parameter(usize),
    /// An item declared in the generated program.
    Declared(String),
    Time(Duration),
    /// Indices of slots, preceded by their number where the language needs it: a list of
    /// [`Machine::indices`] and its length.
    Indices(usize, usize),
    Escapes(Vec<ExtendCase>),
    /// Several slots, preceded by their number where the language needs it.
    Slots(Vec<Self>),
    /// The same, to be written to.
    Targets(Vec<Self>),
    Not(Box<Self>),
    All(Vec<Self>),
    Any(Vec<Self>),
}

/// Type of a local variable.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Type {
    Number,
    /// A position in the output.
    Mark,
}

/// A statement.
#[derive(Clone, Debug)]
pub(crate) enum Stmt {
    Do(Expr),
    Let(Type, String, Expr),
    Set(String, Expr),
    If(Expr, Vec<Self>, Vec<Self>),
    /// Source position of the following statements.
    At(Span),
    /// A loop over the rows of a list, with the row number in the variable.
    Rows {
        list: Expr,
        row: String,
        body: Vec<Self>,
    },
    /// Result of a reader's step; the step ends with it unless it means to continue.
    Turn(Expr),
    /// A result that may tell the reader to continue at another step.
    TurnOrGo(Expr, usize),
    /// Continues the reader at another step.
    Go(usize),
    /// Continues the handler at another block.
    Block(usize),
    /// Returns this value from the function.
    Leave(Expr),
    /// Returns the second value from the function, unless the first holds.
    Ensure(Expr, Expr),
    /// Continues the handler at a block, or waits for it.
    Await(Expr, usize),
}

/// One step of a reader, at which it can resume.
#[derive(Clone, Debug)]
pub(crate) struct ReadStep {
    pub(crate) span: Span,
    pub(crate) body: Vec<Stmt>,
}

/// One message: its slots by name, its reader and its writer.
#[derive(Clone, Debug)]
pub(crate) struct RecordType {
    /// A name in lower case with `_`, unique in the program.
    pub(crate) name: String,
    /// The names of its slots, in order.
    pub(crate) slots: Vec<String>,
    /// Its reader; empty for a message that is only written.
    pub(crate) read: Vec<ReadStep>,
    /// The same as one pass over a message that has arrived whole, if it can be read so.
    pub(crate) whole: Option<Vec<ReadStep>>,
    pub(crate) write: Vec<Stmt>,
}

/// A handler: its values and its blocks.
#[derive(Clone, Debug)]
pub(crate) struct HandlerCode {
    pub(crate) name: String,
    pub(crate) values: Vec<String>,
    pub(crate) blocks: Vec<ReadStep>,
}

/// An answer that the protocol itself gives.
#[derive(Clone, Debug)]
pub(crate) struct AnswerCode {
    pub(crate) name: String,
    /// The statements that build its message, if it has one.
    pub(crate) build: Option<Vec<Stmt>>,
    pub(crate) close: bool,
}

/// The dispatch of one kind of request.
#[derive(Clone, Debug)]
pub(crate) struct DispatchCode {
    pub(crate) name: String,
    /// The record of its view.
    pub(crate) record: String,
    pub(crate) message: usize,
    /// A list of [`Machine::indices`].
    pub(crate) waits: usize,
    pub(crate) body: Vec<Stmt>,
}

/// A role's part of the code.
#[derive(Clone, Debug)]
pub(crate) struct RoleCode {
    pub(crate) name: String,
    pub(crate) dispatch: Vec<DispatchCode>,
    /// Names of [`Machine::answers`].
    pub(crate) greeting: Option<String>,
    pub(crate) malformed: String,
    pub(crate) too_long: Vec<(TooLong, String)>,
    pub(crate) failed: String,
    pub(crate) full: String,
    /// A list of [`Machine::indices`].
    pub(crate) flow_waits: usize,
}

/// The behaviour of a program, beside reading and writing messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Machine {
    /// Lists of indices, with the lifetime of the program.
    pub(crate) indices: Vec<Vec<usize>>,
    pub(crate) answers: Vec<AnswerCode>,
    pub(crate) handlers: Vec<HandlerCode>,
    pub(crate) roles: Vec<RoleCode>,
    /// The names of the session's variables.
    pub(crate) variables: Vec<String>,
}

impl Machine {
    /// Index of a list of indices; each list is stored once.
    pub(crate) fn list(&mut self, list: Vec<usize>) -> usize {
        if let Some(at) = self.indices.iter().position(|known| *known == list) {
            return at;
        }
        self.indices.push(list);
        self.indices.len() - 1
    }
}

impl Expr {
    pub(crate) fn local(name: &str) -> Self {
        Self::Local(name.to_owned())
    }

    pub(crate) fn number(value: impl Into<i64>) -> Self {
        Self::Int(value.into())
    }

    /// Whether all hold; `true` for none.
    pub(crate) fn all(mut parts: Vec<Self>) -> Self {
        match (parts.pop(), parts.is_empty()) {
            (None, _) => Self::Bool(true),
            (Some(only), true) => only,
            (Some(last), false) => {
                parts.push(last);
                Self::All(parts)
            }
        }
    }

    /// Whether any holds; `false` for none.
    pub(crate) fn any(mut parts: Vec<Self>) -> Self {
        match (parts.pop(), parts.is_empty()) {
            (None, _) => Self::Bool(false),
            (Some(only), true) => only,
            (Some(last), false) => {
                parts.push(last);
                Self::Any(parts)
            }
        }
    }

    pub(crate) fn negated(of: Self) -> Self {
        Self::Not(Box::new(of))
    }
}

/// Whether a body contains an expression that passes the test.
pub(crate) fn mentions(body: &[Stmt], test: &dyn Fn(&Expr) -> bool) -> bool {
    let has = |expr: &Expr| expr.mentions(test);
    body.iter().any(|statement| match statement {
        Stmt::Do(expr)
        | Stmt::Let(_, _, expr)
        | Stmt::Set(_, expr)
        | Stmt::Turn(expr)
        | Stmt::TurnOrGo(expr, _)
        | Stmt::Leave(expr)
        | Stmt::Await(expr, _) => has(expr),
        Stmt::Ensure(one, other) => has(one) || has(other),
        Stmt::If(of, then, otherwise) => {
            has(of) || mentions(then, test) || mentions(otherwise, test)
        }
        Stmt::Rows { list, body, .. } => has(list) || mentions(body, test),
        Stmt::Go(_) | Stmt::Block(_) | Stmt::At(_) => false,
    })
}

impl Expr {
    fn mentions(&self, test: &dyn Fn(&Self) -> bool) -> bool {
        let within = match self {
            Self::Call(_, parts)
            | Self::Slots(parts)
            | Self::Targets(parts)
            | Self::All(parts)
            | Self::Any(parts) => parts.iter().any(|part| part.mentions(test)),
            Self::Not(of) => of.mentions(test),
            _ => false,
        };
        within || test(self)
    }
}
