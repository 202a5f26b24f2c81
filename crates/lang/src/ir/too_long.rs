//! What of a message is too long, and the answer to it.

use super::{Answer, Length, Message, ParseOp, ParseStep, Role, Select, SlotId, StreamFraming};
use core::ops::RangeInclusive;

/// The part of a message that exceeds its bound. A protocol may have an answer of its own to each.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TooLong {
    /// A line outside of tables.
    Line,
    /// A table: its entries, or one of its lines or fields.
    Table,
    /// Octets that a field counts, or their number where a table has it; a stream.
    Content,
}

impl TooLong {
    /// All of them, in the order of their numbers in generated code.
    pub const ALL: [Self; 3] = [Self::Line, Self::Table, Self::Content];

    /// The word in a program.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Line => "line",
            Self::Table => "table",
            Self::Content => "content",
        }
    }
}

impl Role {
    /// The answer to a message that cannot be read, by what of it is too long.
    pub fn malformed(&self, too_long: Option<TooLong>) -> &Answer {
        let own = self.too_long.iter().find(|(what, _)| Some(*what) == too_long);
        own.map_or(&self.malformed, |(_, answer)| answer)
    }
}

impl Message {
    /// For each step, the part of the message that is too long if the step exceeds its limit.
    pub fn too_long(&self) -> Vec<Option<TooLong>> {
        let tables = self.tables();
        let of = |(at, step): (usize, &ParseStep)| {
            if tables.iter().any(|table| table.contains(&at)) {
                return Some(TooLong::Table);
            }
            match &step.op {
                ParseOp::EnterLine { .. } => Some(TooLong::Line),
                ParseOp::EnterCounted { .. }
                | ParseOp::Take { length: Length::Slot(_), .. }
                | ParseOp::Stream { .. } => Some(TooLong::Content),
                _ => None,
            }
        };
        self.parser.iter().enumerate().map(of).collect()
    }

    /// The steps of each table: the innermost loop around a lookup.
    fn tables(&self) -> Vec<RangeInclusive<usize>> {
        let steps = || self.parser.iter().enumerate();
        let lookups = steps().filter(|(_, step)| matches!(step.op, ParseOp::Lookup { .. }));
        let around = |(lookup, _): (usize, &ParseStep)| {
            let loops = steps().filter_map(|(end, step)| match step.op {
                ParseOp::Jump(start) => Some(start.index()..=end),
                _ => None,
            });
            let around = loops.filter(|of| of.contains(&lookup));
            around.min_by_key(|of| of.end() - of.start())
        };
        lookups.filter_map(around).collect()
    }

    /// Whether a slot has the number of octets of another part.
    pub fn is_length(&self, slot: SlotId) -> bool {
        let counts = |select: &Select| select.framing == StreamFraming::Counted(slot);
        self.parser.iter().any(|step| match &step.op {
            ParseOp::Take { length: Length::Slot(length), .. }
            | ParseOp::EnterCounted { length, .. } => *length == slot,
            ParseOp::Stream { select, .. } => select.iter().any(counts),
            _ => false,
        })
    }
}
