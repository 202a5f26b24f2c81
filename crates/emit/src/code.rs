//! The tree between the walk and the printers: small imperative functions of no one language.
//!
//! What it calls are the functions of a runtime, which has them under the same names in every
//! language; the first argument is whom the call is about (C passes it, Java calls on it).

use core::time::Duration;
use gatewright_diagnostic::Span;
use gatewright_lang::ir::{ExtendCase, LiteralId};

/// A line of the program's text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Place {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
}

/// Says where in the program's text a span is; `None` leaves the line untold.
pub type Places<'p> = &'p dyn Fn(Span) -> Option<Place>;

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
    /// Something that the program declares by itself.
    Declared(String),
    Time(Duration),
    /// Indices of slots, with their number before them where the language needs it: a list of
    /// [`Machine::indices`] and its length.
    Indices(usize, usize),
    Escapes(Vec<ExtendCase>),
    /// Several slots, with their number before them where the language needs it.
    Slots(Vec<Self>),
    /// The same, to be written to.
    Targets(Vec<Self>),
    Not(Box<Self>),
    All(Vec<Self>),
    Any(Vec<Self>),
}

/// What a local variable holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Type {
    Number,
    /// A position in what is being written.
    Mark,
}

/// A statement.
#[derive(Clone, Debug)]
pub(crate) enum Stmt {
    Do(Expr),
    Let(Type, String, Expr),
    Set(String, Expr),
    If(Expr, Vec<Self>, Vec<Self>),
    /// What follows comes from here.
    At(Span),
    /// For each row of a list, whose number is in the variable.
    Rows {
        list: Expr,
        row: String,
        body: Vec<Self>,
    },
    /// The outcome of a reader's step; unless it says to go on, the step ends with it.
    Turn(Expr),
    /// A turn that may say that the reader goes on at another step.
    TurnOrGo(Expr, usize),
    /// The reader goes on at another step.
    Go(usize),
    /// The handler goes on at another block.
    Block(usize),
    /// The function ends with this value.
    Leave(Expr),
    /// Unless the first holds, the function ends with the second.
    Ensure(Expr, Expr),
    /// The handler goes on at a block, or waits for it.
    Await(Expr, usize),
}

/// One step of a reader, at which it can be taken up again.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) span: Span,
    pub(crate) body: Vec<Stmt>,
}

/// One message: its slots by name, what reads and what writes it.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// A name in small letters with `_`, unique in the program.
    pub(crate) name: String,
    /// The names of its slots, in their order.
    pub(crate) slots: Vec<String>,
    /// What reads it; empty for one that is only written.
    pub(crate) read: Vec<Step>,
    pub(crate) write: Vec<Stmt>,
}

/// A handler: its values and its blocks.
#[derive(Clone, Debug)]
pub(crate) struct HandlerCode {
    pub(crate) name: String,
    pub(crate) values: Vec<String>,
    pub(crate) blocks: Vec<Step>,
}

/// An answer that a protocol gives by itself.
#[derive(Clone, Debug)]
pub(crate) struct AnswerCode {
    pub(crate) name: String,
    /// What builds its message, if it has one.
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
    pub(crate) failed: String,
    pub(crate) full: String,
    /// A list of [`Machine::indices`].
    pub(crate) flow_waits: usize,
}

/// What a program does, beside reading and writing messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Machine {
    /// Lists of indices that live as long as the program.
    pub(crate) indices: Vec<Vec<usize>>,
    pub(crate) answers: Vec<AnswerCode>,
    pub(crate) handlers: Vec<HandlerCode>,
    pub(crate) roles: Vec<RoleCode>,
    /// The names of the session's variables.
    pub(crate) variables: Vec<String>,
}

impl Machine {
    /// A list of indices, each list once.
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

    /// Holds if every one does; `true` for none.
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

    /// Holds if one does; `false` for none.
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

/// Whether an expression that passes the test is in a body.
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
