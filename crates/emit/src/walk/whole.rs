//! Translates readers of binary messages to one pass over a message that has arrived whole.
//!
//! The pass has the steps of the reader that need no means to wait: a field is no call, and no step
//! is looked up. It is an attempt. If anything is missing or wrong, the reader begins anew.

use super::SlotNames;
use super::read::order_of;
use crate::code::{Expr, ReadStep, Stmt};
use gatewright_lang::ir::{
    BitField, ColumnType, Convert, Fold, Length, Message, ParseOp, ParseStep, SlotId, SlotType,
    StepId, TableKey, TableRow,
};

/// Maximum nesting of regions in the runtime's pass (`GW_WHOLE_DEPTH`).
const DEPTH_MAX: usize = 4;

/// The pass of a message; `None` if its reader has a step that is not for it. Texts have: they are
/// read line by line.
pub(crate) fn steps(names: &SlotNames<'_>, parser: &[ParseStep]) -> Option<Vec<ReadStep>> {
    if parser.is_empty() {
        return None;
    }
    let depths = depths(parser)?;
    let walk = WholeWalk { names, message: names.message };
    let steps = parser.iter().zip(&depths).map(|(step, depth)| {
        // A step that is never reached has no depth, and is not printed.
        let body = depth.map_or(Some(Vec::new()), |depth| walk.step(&step.op, depth))?;
        Some(ReadStep { span: step.span, body })
    });
    steps.collect()
}

/// The number of regions that each step is in; `None` for a step that is never reached. No pass at
/// all if a step is reached in different ones.
fn depths(parser: &[ParseStep]) -> Option<Vec<Option<usize>>> {
    let mut depths = vec![None; parser.len()];
    let mut open = vec![(0_usize, 0_usize)];
    while let Some((at, depth)) = open.pop() {
        match depths.get_mut(at)? {
            Some(known) if *known == depth => continue,
            Some(_) => return None,
            unknown => *unknown = Some(depth),
        }
        let next = at + 1;
        let go = |to: StepId| to.index();
        match &parser.get(at)?.op {
            ParseOp::Accept | ParseOp::Refuse => {}
            ParseOp::Jump(to) => open.push((go(*to), depth)),
            ParseOp::AtEnd { then } | ParseOp::Peek { then, .. } => {
                open.extend([(go(*then), depth), (next, depth)]);
            }
            ParseOp::Branch { otherwise, .. } => {
                open.extend([(go(*otherwise), depth), (next, depth)]);
            }
            ParseOp::EnterCounted { .. } if depth < DEPTH_MAX => open.push((next, depth + 1)),
            ParseOp::Leave => open.push((next, depth.checked_sub(1)?)),
            ParseOp::EnterCounted { .. } => return None,
            _ => open.push((next, depth)),
        }
    }
    Some(depths)
}

struct WholeWalk<'w> {
    names: &'w SlotNames<'w>,
    message: &'w Message,
}

/// The pass goes on only if this holds.
fn ensure(function: &'static str, arguments: Vec<Expr>) -> Stmt {
    Stmt::Ensure(Expr::Call(function, arguments), Expr::Constant("NOT_WHOLE"))
}

/// The same with the pass as its first argument.
fn pass(function: &'static str, arguments: Vec<Expr>) -> Stmt {
    ensure(function, [vec![Expr::local("&p")], arguments].concat())
}

fn int(value: impl Into<i64>) -> Expr {
    Expr::number(value)
}

impl WholeWalk<'_> {
    fn slot(&self, slot: SlotId) -> Expr {
        self.names.slot(slot)
    }

    fn step(&self, op: &ParseOp, depth: usize) -> Option<Vec<Stmt>> {
        // The end of a stream's message is not known before it is read.
        let bounded = depth > 0 || self.message.datagram;
        Some(match op {
            ParseOp::Literal { literal, fold: false } => {
                vec![pass("whole_literal", vec![Expr::Text(*literal)])]
            }
            ParseOp::Take { length, into, empty_is_absent, fold, max } if *fold == Fold::Keep => {
                let length = match length {
                    Length::Fixed(octets) => int(*octets),
                    Length::Slot(slot) => Expr::Call("number", vec![self.slot(*slot)]),
                    Length::Rest if bounded => Expr::Call("whole_rest", vec![Expr::local("&p")]),
                    Length::Rest => return None,
                };
                self.take(length, (*max, *empty_is_absent), *into)?
            }
            ParseOp::Word { octets, order, fields } => {
                let mut body = vec![pass("whole_word", vec![int(*octets), order_of(*order)])];
                for field in fields {
                    self.bits(field, &mut body)?;
                }
                body
            }
            ParseOp::Varint { octets_max, into } => {
                let (low, high) = self.bounds(*into)?;
                vec![pass("whole_varint", vec![int(*octets_max), low, high, self.slot(*into)])]
            }
            ParseOp::EnterCounted { length, less, max } => {
                let arguments = vec![depth_of(depth), self.slot(*length), int(*less), int(*max)];
                vec![pass("whole_enter", arguments)]
            }
            ParseOp::Leave => vec![pass("whole_leave", vec![depth_of(depth.checked_sub(1)?)])],
            ParseOp::AtEnd { then } if bounded => {
                let at_end = Expr::Call("whole_at_end", vec![Expr::local("&p")]);
                vec![Stmt::If(at_end, vec![Stmt::Go(then.index())], vec![])]
            }
            // Where the end is not known, it is not there.
            ParseOp::AtEnd { .. } => vec![],
            ParseOp::Peek { literal, then } if bounded => {
                let arguments = vec![Expr::local("&p"), Expr::Text(*literal)];
                let peek = Expr::Call("whole_peek", arguments);
                vec![Stmt::If(peek, vec![Stmt::Go(then.index())], vec![])]
            }
            ParseOp::Branch { guard, otherwise } => {
                let test = Expr::negated(self.names.guard(guard));
                vec![Stmt::If(test, vec![Stmt::Go(otherwise.index())], vec![])]
            }
            ParseOp::Jump(to) => vec![Stmt::Go(to.index())],
            ParseOp::Accept => self.accept(),
            ParseOp::Refuse => vec![Stmt::Leave(Expr::Constant("NOT_WHOLE"))],
            _ => self.slots(op)?,
        })
    }

    fn slots(&self, op: &ParseOp) -> Option<Vec<Stmt>> {
        Some(match op {
            // The runtime relies on their order.
            ParseOp::Extend { slot, cases } if cases.is_sorted_by_key(|case| case.value) => {
                let (low, high) = self.bounds(*slot)?;
                let arguments = vec![low, high, self.slot(*slot), Expr::Escapes(cases.clone())];
                vec![pass("whole_extend", arguments)]
            }
            ParseOp::Sum { into, add } => {
                let (low, high) = self.bounds(*into)?;
                vec![ensure("whole_sum", vec![low, high, self.slot(*into), self.slot(*add)])]
            }
            ParseOp::Count { counter, max } => {
                vec![pass("whole_count", vec![int(*counter), int(*max)])]
            }
            ParseOp::Clear { slots } => {
                let clear = |slot: &SlotId| Stmt::Do(Expr::Call("clear", vec![self.slot(*slot)]));
                slots.iter().map(clear).collect()
            }
            ParseOp::Settle { slots } => {
                let needed = slots.iter().filter(|slot| self.is_mandatory(**slot));
                needed.map(|slot| ensure("is_set", vec![self.slot(*slot)])).collect()
            }
            ParseOp::Append { list, columns } => {
                let columns = Expr::Slots(columns.iter().map(|slot| self.slot(*slot)).collect());
                let view = Expr::local("base");
                vec![ensure("whole_append", vec![view, self.slot(*list), columns])]
            }
            ParseOp::Lookup { key, value, entries } => self.lookup(*key, *value, entries)?,
            _ => return None,
        })
    }

    fn take(
        &self,
        length: Expr,
        (max, empty_is_absent): (u32, bool),
        into: Option<SlotId>,
    ) -> Option<Vec<Stmt>> {
        let Some(into) = into else {
            return Some(vec![pass("whole_skip", vec![length, int(max)])]);
        };
        let held = int(self.octets_max(into)?);
        let absent = Expr::Bool(empty_is_absent);
        if self.is_scratch(into) {
            let arguments = vec![length, int(max), held, absent, self.slot(into)];
            return Some(vec![pass("whole_look", arguments)]);
        }
        let (view, mandatory) = (Expr::local("base"), Expr::Bool(self.is_mandatory(into)));
        let arguments = vec![view, length, int(max), held, absent, mandatory, self.slot(into)];
        Some(vec![pass("whole_take", arguments)])
    }

    fn bits(&self, field: &BitField, body: &mut Vec<Stmt>) -> Option<()> {
        let (shift, width) = (int(field.shift), int(field.width));
        if let Some(expect) = field.expect {
            let arguments = vec![shift.clone(), width.clone(), Expr::Int(expect)];
            let name = if field.signed { "whole_signed_bits_are" } else { "whole_bits_are" };
            body.push(pass(name, arguments));
        }
        if let Some(into) = field.into {
            let (low, high) = self.bounds(into)?;
            let name = if field.signed { "whole_signed_bits" } else { "whole_bits" };
            body.push(pass(name, vec![shift, width, low, high, self.slot(into)]));
        }
        Some(())
    }

    /// A table by number: each value as it is, or as a number of octets.
    fn lookup(&self, key: SlotId, value: SlotId, entries: &[TableRow]) -> Option<Vec<Stmt>> {
        let mut chain = Vec::new();
        for entry in entries.iter().rev() {
            let TableKey::Int(wanted) = entry.key else { return None };
            let arguments = vec![self.slot(key), Expr::Int(wanted), Expr::Int(wanted)];
            let is = Expr::Call("is_within", arguments);
            chain = vec![Stmt::If(is, vec![self.file(value, entry)?], chain)];
        }
        let mut body = vec![ensure("is_set", vec![self.slot(key)])];
        body.append(&mut chain);
        Some(body)
    }

    fn file(&self, value: SlotId, entry: &TableRow) -> Option<Stmt> {
        let (into, view, value) = (self.slot(entry.into), Expr::local("base"), self.slot(value));
        match (entry.convert, &self.message.slot(entry.into)?.ty) {
            (Convert::Uint, SlotType::Int { low, high }) => {
                let arguments = vec![value, Expr::Int(*low), Expr::Int(*high), into];
                Some(ensure("whole_file_uint", arguments))
            }
            (Convert::Keep, SlotType::Octets { max }) => {
                Some(ensure("whole_file", vec![view, value, int(*max), into]))
            }
            (Convert::Keep, SlotType::List { columns, max }) => match columns.as_slice() {
                [(_, ColumnType::Octets { max: each })] => {
                    let arguments = vec![view, value, int(*max), int(*each), into];
                    Some(ensure("whole_file_row", arguments))
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// The end: a datagram has nothing behind its message. What the pass only looked at is forgotten.
    fn accept(&self) -> Vec<Stmt> {
        let mut body = Vec::new();
        if self.message.datagram {
            body.push(ensure("whole_at_end", vec![Expr::local("&p")]));
        }
        let slots = self.message.slots.iter().enumerate();
        let seen =
            slots.filter(|(_, slot)| slot.scratch && matches!(slot.ty, SlotType::Octets { .. }));
        body.extend(
            seen.map(|(at, _)| {
                Stmt::Do(Expr::Call("whole_forget", vec![self.slot(SlotId::new(at))]))
            }),
        );
        // What a whole message does not have, it has no more.
        body.extend(
            (0..self.message.slots.len())
                .map(|at| Stmt::Do(Expr::Call("whole_settle", vec![self.slot(SlotId::new(at))]))),
        );
        body.push(Stmt::Leave(Expr::local("(size_t)(p.at - input.at)")));
        body
    }

    fn bounds(&self, slot: SlotId) -> Option<(Expr, Expr)> {
        match self.message.slot(slot)?.ty {
            SlotType::Int { low, high } => Some((Expr::Int(low), Expr::Int(high))),
            _ => None,
        }
    }

    fn octets_max(&self, slot: SlotId) -> Option<u32> {
        match self.message.slot(slot)?.ty {
            SlotType::Octets { max } => Some(max),
            _ => None,
        }
    }

    fn is_scratch(&self, slot: SlotId) -> bool {
        self.message.slot(slot).is_some_and(|slot| slot.scratch)
    }

    /// Whether a well-formed message has it; as the field's description in the generated code says.
    fn is_mandatory(&self, slot: SlotId) -> bool {
        self.message.slot(slot).is_some_and(|slot| {
            !slot.optional && !slot.scratch && !matches!(slot.ty, SlotType::List { .. })
        })
    }
}

fn depth_of(depth: usize) -> Expr {
    Expr::Int(i64::try_from(depth).unwrap_or(i64::MAX))
}
