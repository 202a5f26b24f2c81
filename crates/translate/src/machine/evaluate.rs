//! Evaluates operands, conditions and values that may have no result.

use super::Machine;
use super::slab::IncomingId;
use super::state::{Reg, Task, rows_of};
use crate::view::{Held, Rows, Value, find};
use gatewright_lang::ir::{
    Arithmetic, Class, LiteralId, Operand, ParameterValue, Partial, Pattern, SlotId, SlotType,
    Test, TextPiece,
};

/// A borrowed value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Borrowed<'s> {
    Int(i64),
    Octets(&'s [u8]),
    Rows(Rows<'s>),
    /// The stream of this message.
    Stream(IncomingId),
    /// The message itself.
    View(IncomingId),
}

impl<'s> Borrowed<'s> {
    /// The value as a slot holds it.
    pub(crate) const fn held(self) -> Held<'s> {
        match self {
            Self::Int(value) => Held::Int(value),
            Self::Octets(octets) => Held::Octets(octets),
            Self::Rows(rows) => Held::List(rows),
            Self::Stream(_) | Self::View(_) => Held::Stream,
        }
    }

    pub(crate) fn to_value(self) -> Value {
        self.held().to_value()
    }

    pub(crate) fn to_register(self) -> Reg {
        match self {
            Self::Int(value) => Reg::Int(value),
            Self::Octets(octets) => Reg::Octets(octets.to_vec()),
            Self::View(id) => Reg::View(id),
            Self::Rows(_) => Reg::list(Some(self.held())),
            Self::Stream(_) => Reg::Unset,
        }
    }
}

fn seen<'s>(
    value: Option<Held<'s>>,
    ty: Option<&SlotType>,
    of: Option<IncomingId>,
) -> Option<Borrowed<'s>> {
    match (value, ty) {
        (Some(Held::Int(value)), _) => Some(Borrowed::Int(value)),
        (Some(Held::Octets(octets)), _) => Some(Borrowed::Octets(octets)),
        (Some(Held::List(rows)), _) => Some(Borrowed::Rows(rows)),
        (Some(Held::Stream), _) => of.map(Borrowed::Stream),
        // A list without an element is empty, never absent.
        (None, Some(SlotType::List { .. })) => Some(Borrowed::Rows(Rows::default())),
        (None, _) => None,
    }
}

impl Machine {
    /// The value of an operand; `None` if it is absent.
    pub(crate) fn seen<'s>(
        &'s self,
        task: Option<&'s Task>,
        operand: Operand,
    ) -> Option<Borrowed<'s>> {
        match operand {
            Operand::Int(value) => Some(Borrowed::Int(value)),
            Operand::Literal(literal) => Some(Borrowed::Octets(self.program.literal(literal))),
            Operand::Register(register) => match task?.register(register) {
                Reg::Unset => None,
                Reg::Int(value) => Some(Borrowed::Int(*value)),
                Reg::Octets(octets) => Some(Borrowed::Octets(octets)),
                Reg::View(id) => Some(Borrowed::View(*id)),
                Reg::List(list) => Some(Borrowed::Rows(rows_of(list))),
            },
            Operand::Slot { view, slot } => self.slot_seen(task?.view(view)?, slot),
            Operand::Request(slot) => self.slot_seen(task?.origin.request()?, slot),
            Operand::Session(slot) => {
                let about = self.program.session.as_ref()?.slots.get(slot.index());
                let ty = about.map(|slot| &slot.ty);
                let session = self.session_seen(task?).and_then(|id| self.sessions.get(id));
                seen(session.and_then(|session| session.view.held(slot)), ty, None)
            }
            Operand::Parameter(id) => match self.program.parameter(id)?.value.as_ref()? {
                ParameterValue::Int(value) => Some(Borrowed::Int(*value)),
                ParameterValue::Octets(octets) => Some(Borrowed::Octets(octets)),
            },
            Operand::Peers(peers) => Some(Borrowed::Int(self.peers_count(task, peers))),
            Operand::Kept(_) | Operand::Fresh => None,
        }
    }

    fn slot_seen(&self, id: IncomingId, slot: SlotId) -> Option<Borrowed<'_>> {
        let incoming = self.incomings.get(id)?;
        let ty = self.program.message(incoming.message)?.slot(slot).map(|slot| &slot.ty);
        seen(incoming.parser.view().held(slot), ty, Some(id))
    }

    pub(crate) fn int(&self, task: &Task, operand: Operand) -> i64 {
        match self.seen(Some(task), operand) {
            Some(Borrowed::Int(value)) => value,
            _ => 0,
        }
    }

    /// Whether a condition holds.
    pub(crate) fn holds(&self, task: &Task, test: &Test) -> bool {
        match test {
            Test::Is { value, patterns } => self
                .seen(Some(task), *value)
                .is_some_and(|value| patterns.iter().any(|pattern| self.matches(value, *pattern))),
            Test::Present(value) => self.seen(Some(task), *value).is_some(),
            Test::Equal(one, other) => {
                match (self.seen(Some(task), *one), self.seen(Some(task), *other)) {
                    (Some(Borrowed::Int(one)), Some(Borrowed::Int(other))) => one == other,
                    (Some(Borrowed::Octets(one)), Some(Borrowed::Octets(other))) => one == other,
                    _ => false,
                }
            }
            Test::Less(one, other) => {
                match (self.seen(Some(task), *one), self.seen(Some(task), *other)) {
                    (Some(Borrowed::Int(one)), Some(Borrowed::Int(other))) => one < other,
                    _ => false,
                }
            }
            Test::All(tests) => tests.iter().all(|test| self.holds(task, test)),
            Test::Any(tests) => tests.iter().any(|test| self.holds(task, test)),
            Test::Not(test) => !self.holds(task, test),
        }
    }

    fn matches(&self, value: Borrowed<'_>, pattern: Pattern) -> bool {
        match (pattern, value) {
            (Pattern::Int { low, high }, Borrowed::Int(value)) => (low..=high).contains(&value),
            (Pattern::Octets(literal), Borrowed::Octets(octets)) => {
                self.program.literal(literal) == octets
            }
            (Pattern::Empty, Borrowed::Octets(octets)) => octets.is_empty(),
            (Pattern::Empty, Borrowed::Rows(rows)) => rows.is_empty(),
            _ => false,
        }
    }

    /// Evaluates a value that may have no result.
    pub(crate) fn attempt(&self, task: &Task, partial: Partial) -> Option<Reg> {
        let octets = |of| match self.seen(Some(task), of) {
            Some(Borrowed::Octets(octets)) => Some(octets),
            _ => None,
        };
        match partial {
            Partial::Value(of) => self.seen(Some(task), of).map(Borrowed::to_register),
            Partial::After { of, prefix } => {
                let (prefix, octets) = (self.program.literal(prefix), octets(of)?);
                let (head, tail) = octets.split_at_checked(prefix.len())?;
                let begins = head.eq_ignore_ascii_case(prefix);
                begins.then(|| Reg::Octets(without_blanks(tail).to_vec()))
            }
            Partial::Before { of, delimiter } => {
                let octets = octets(of)?;
                let at = find(octets, self.literal(delimiter))?;
                octets.get(..at).map(|head| Reg::Octets(head.to_vec()))
            }
            Partial::Past { of, delimiter } => {
                let (octets, delimiter) = (octets(of)?, self.literal(delimiter));
                let at = find(octets, delimiter)?.checked_add(delimiter.len())?;
                octets.get(at..).map(|tail| Reg::Octets(without_blanks(tail).to_vec()))
            }
            Partial::Item { of, index, column } => {
                let Some(Borrowed::Rows(rows)) = self.seen(Some(task), of) else { return None };
                let index = usize::try_from(self.int(task, index)).ok()?.checked_sub(1)?;
                let column = usize::try_from(column).ok()?;
                rows.get(index)?.get(column).map(register)
            }
            Partial::Join { of, separator, max } => {
                let Some(Borrowed::Rows(rows)) = self.seen(Some(task), of) else { return None };
                let parts = rows.iter().map(|row| match row.get(0) {
                    Some(Held::Octets(octets)) => octets,
                    _ => &[],
                });
                let joined = parts.collect::<Vec<_>>().join(self.literal(separator));
                (joined.len() <= usize::try_from(max).ok()?).then_some(Reg::Octets(joined))
            }
            Partial::Decimal { of, high } => {
                let octets = octets(of)?;
                let digits = !octets.is_empty() && octets.iter().all(u8::is_ascii_digit);
                let text = core::str::from_utf8(octets).ok().filter(|_| digits)?;
                let value: i64 = text.parse().ok()?;
                (value <= high).then_some(Reg::Int(value))
            }
        }
    }

    fn literal(&self, literal: LiteralId) -> &[u8] {
        self.program.literal(literal)
    }

    /// The piece of octets that begins at a position, and the position of the next.
    pub(crate) fn piece(
        &self,
        task: &Task,
        of: Operand,
        separator: LiteralId,
        at: usize,
    ) -> Option<(Vec<u8>, usize)> {
        let Some(Borrowed::Octets(whole)) = self.seen(Some(task), of) else { return None };
        let rest = whole.get(at..)?;
        let separator = self.literal(separator);
        let end = find(rest, separator).unwrap_or(rest.len());
        // Behind the last part there is no separator, and the next place is beyond the end.
        Some((rest.get(..end)?.to_vec(), at.saturating_add(end).saturating_add(separator.len())))
    }

    /// The columns of an element of a list.
    pub(crate) fn row(&self, task: &Task, list: Operand, index: usize) -> Option<Vec<Reg>> {
        let Some(Borrowed::Rows(rows)) = self.seen(Some(task), list) else { return None };
        Some(rows.get(index)?.iter().map(register).collect())
    }

    /// Length of a value, in octets or elements.
    pub(crate) fn size(&self, task: &Task, of: Operand) -> i64 {
        let size = match self.seen(Some(task), of) {
            Some(Borrowed::Octets(octets)) => octets.len(),
            Some(Borrowed::Rows(rows)) => rows.len(),
            _ => 0,
        };
        i64::try_from(size).unwrap_or(i64::MAX)
    }

    /// Octets concatenated from pieces.
    pub(crate) fn formatted(&self, task: &Task, pieces: &[TextPiece]) -> Vec<u8> {
        let mut octets = Vec::new();
        for piece in pieces {
            match piece {
                TextPiece::Literal(literal) => octets.extend_from_slice(self.literal(*literal)),
                TextPiece::Octets(of) => {
                    if let Some(Borrowed::Octets(piece)) = self.seen(Some(task), *of) {
                        octets.extend_from_slice(piece);
                    }
                }
                TextPiece::Decimal(of) => {
                    octets.extend_from_slice(self.int(task, *of).to_string().as_bytes());
                }
            }
        }
        octets
    }
}

fn register(value: Held<'_>) -> Reg {
    match value {
        Held::Int(value) => Reg::Int(value),
        Held::Octets(octets) => Reg::Octets(octets.to_vec()),
        Held::List(_) | Held::Stream => Reg::Unset,
    }
}

/// Computes with saturation.
pub(crate) fn computed(operator: Arithmetic, left: i64, right: i64) -> i64 {
    match operator {
        Arithmetic::Add => left.saturating_add(right),
        Arithmetic::Subtract => left.saturating_sub(right),
        Arithmetic::Multiply => left.saturating_mul(right),
        // The compiler lets through no divisor but a constant that is not 0.
        Arithmetic::Divide => left.checked_div(right).unwrap_or(i64::MAX),
        Arithmetic::Modulo => left.checked_rem(right).unwrap_or(0),
    }
}

/// Octets without the spaces and tabs at both ends.
fn without_blanks(octets: &[u8]) -> &[u8] {
    let solid = |octet: &u8| !Class::Blank.contains(*octet);
    let Some(first) = octets.iter().position(solid) else { return &[] };
    let last = octets.iter().rposition(solid).unwrap_or(first);
    octets.get(first..=last).unwrap_or_default()
}
