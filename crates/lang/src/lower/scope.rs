//! Values while a handler is lowered: their types, their names, and known facts about them.

use crate::ir::{ColumnType, MessageId, Operand, RegisterId, SlotId, SlotType};
use crate::syntax::ast;
use gatewright_diagnostic::Span;

/// The type of a value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Ty {
    Int {
        low: i64,
        high: i64,
    },
    Octets {
        max: u32,
    },
    List {
        columns: Vec<(String, ColumnType)>,
        max: u32,
    },
    Stream,
    /// A session variable that stores peers, with a maximum number.
    Peers {
        max: u32,
    },
    View(MessageId),
    /// An element of several fields, each in a register.
    Element(Vec<(String, RegisterId, ColumnType)>),
    /// Unknown because of an earlier error; fits everywhere, so that one error gives one finding.
    Unknown,
}

impl Ty {
    /// The type of a slot's value.
    pub(super) fn of(slot: &SlotType) -> Self {
        match slot {
            SlotType::Int { low, high } => Self::Int { low: *low, high: *high },
            SlotType::Octets { max } => Self::Octets { max: *max },
            SlotType::List { columns, max } => Self::List { columns: columns.clone(), max: *max },
            SlotType::Stream => Self::Stream,
        }
    }

    pub(super) fn column(column: ColumnType) -> Self {
        match column {
            ColumnType::Int { low, high } => Self::Int { low, high },
            ColumnType::Octets { max } => Self::Octets { max },
        }
    }

    /// The type as a slot's type; `None` for a view.
    pub(super) fn slot(&self) -> Option<SlotType> {
        match self {
            Self::Int { low, high } => Some(SlotType::Int { low: *low, high: *high }),
            Self::Octets { max } => Some(SlotType::Octets { max: *max }),
            Self::List { columns, max } => {
                Some(SlotType::List { columns: columns.clone(), max: *max })
            }
            Self::Stream => Some(SlotType::Stream),
            Self::Peers { .. } | Self::View(_) | Self::Element(_) | Self::Unknown => None,
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Int { .. } => "a number",
            Self::Octets { .. } => "octets",
            Self::List { .. } => "a list",
            Self::Stream => "a stream",
            Self::Peers { .. } => "stored peers",
            Self::View(_) => "a message",
            Self::Element(_) => "an element of several fields",
            Self::Unknown => "unknown",
        }
    }
}

/// An available value.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub(super) operand: Operand,
    pub(super) ty: Ty,
    pub(super) optional: bool,
    pub(super) span: Span,
}

/// A name for a value.
#[derive(Clone, Debug)]
pub(super) struct Local {
    pub(super) name: ast::Name,
    pub(super) value: Value,
    pub(super) used: bool,
}

/// Facts known at the current position.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Flow {
    /// Optional values that are known to be set.
    pub(super) facts: Vec<Operand>,
    /// Slots that are known to be settled.
    pub(super) awaited: Vec<(RegisterId, SlotId)>,
    /// Whether the keyed session is open.
    pub(super) session: SessionState,
}

/// Whether a keyed session is open.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SessionState {
    /// On every path.
    Open,
    /// On no path, or not on every one.
    NotOpen,
}

impl Flow {
    /// Facts known where two paths meet.
    pub(super) fn meet(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        let (one, other) = match (one, other) {
            (Some(one), Some(other)) => (one, other),
            (one, other) => return one.or(other),
        };
        let both = one.session == SessionState::Open && other.session == SessionState::Open;
        Some(Self {
            facts: one.facts.into_iter().filter(|fact| other.facts.contains(fact)).collect(),
            awaited: one.awaited.into_iter().filter(|slot| other.awaited.contains(slot)).collect(),
            session: if both { SessionState::Open } else { SessionState::NotOpen },
        })
    }
}
