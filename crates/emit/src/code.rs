//! The tree between the walk and the printers: small imperative functions of no one language.
//!
//! What it calls are the functions of a runtime, which has them under the same names in every
//! language; the first argument is whom the call is about (C passes it, Java calls on it).

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
    Escapes(Vec<ExtendCase>),
    /// Several slots, with their number before them where the language needs it.
    Slots(Vec<Self>),
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
