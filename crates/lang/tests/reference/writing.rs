//! The plainest writing of a layout: into memory, all at once.

use super::{Slots, Value, checksum, find, holds};
use gatewright_lang::ir::{
    Check, Emit, EmitField, ExtendCase, LocalId, Message, Order, Program, Select, SlotId, Source,
    StreamFraming,
};
use std::collections::BTreeMap;

/// Writes a message; `None` if it cannot be built.
pub fn emit(program: &Program, message: &Message, slots: &Slots) -> Option<Vec<u8>> {
    let mut writer =
        Writer { program, message, slots, locals: BTreeMap::new(), element: Vec::new() };
    let mut out = Vec::new();
    writer.all(&message.emit, &mut out)?;
    Some(out)
}

struct Writer<'p> {
    program: &'p Program,
    message: &'p Message,
    slots: &'p Slots,
    locals: BTreeMap<LocalId, Value>,
    element: Vec<Value>,
}

/// Writes how many octets follow; a count of no octets is a varint.
fn length(inner: usize, (octets, order, more): (u8, Order, u32), out: &mut Vec<u8>) -> Option<()> {
    if octets == 0 {
        varint(i64::try_from(inner).ok()?, out);
        return Some(());
    }
    let counted = inner + more as usize;
    (counted.checked_shr(8 * u32::from(octets)).unwrap_or(0) == 0).then_some(())?;
    let mut length = counted.to_be_bytes()[8 - usize::from(octets)..].to_vec();
    if order == Order::Little {
        length.reverse();
    }
    out.extend(length);
    Some(())
}

impl Writer<'_> {
    fn slot(&self, id: SlotId) -> Option<Value> {
        self.slots.get(&self.message.slot(id)?.name).cloned()
    }

    fn all(&mut self, parts: &[Emit], out: &mut Vec<u8>) -> Option<()> {
        parts.iter().try_for_each(|part| self.one(part, out))
    }

    fn word(
        &self,
        octets: u8,
        order: Order,
        fields: &[EmitField],
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let mut word = 0_u64;
        for field in fields {
            let value = i128::from(self.int(&field.from)?);
            let half = if field.signed { 1_i128 << (field.width - 1) } else { 0 };
            let range = -half..(1 << field.width) - half;
            range.contains(&value).then_some(())?;
            let bits = value.rem_euclid(1 << field.width);
            word |= u64::try_from(bits).ok()? << field.shift;
        }
        let mut bytes = word.to_be_bytes()[8 - usize::from(octets)..].to_vec();
        if order == Order::Little {
            bytes.reverse();
        }
        out.extend(bytes);
        Some(())
    }

    fn one(&mut self, part: &Emit, out: &mut Vec<u8>) -> Option<()> {
        match part {
            Emit::Literal(literal) => out.extend_from_slice(self.program.literal(*literal)),
            Emit::Octets { from, check } => {
                let octets = self.octets(from)?;
                self.fits(&octets, check).then_some(())?;
                out.extend(octets);
            }
            Emit::Digits { from, radix, width, max } => {
                let value = self.int(from)?;
                let width = *width as usize;
                let text = if *radix == 16 {
                    format!("{value:0width$x}")
                } else {
                    format!("{value:0width$}")
                };
                (text.len() <= *max as usize).then_some(())?;
                out.extend(text.into_bytes());
            }
            Emit::Word { octets, order, fields } => self.word(*octets, *order, fields, out)?,
            Emit::Varint { from, .. } => varint(self.int(from)?, out),
            Emit::Extension { of, cases } => extension(self.int(of)?, cases, out),
            Emit::Counted { octets, order, more, max, body } => {
                let mut inner = Vec::new();
                self.all(body, &mut inner)?;
                (inner.len() <= *max as usize).then_some(())?;
                length(inner.len(), (*octets, *order, *more), out)?;
                out.extend(inner);
            }
            Emit::Checked { by, body } => {
                let mut inner = Vec::new();
                self.all(body, &mut inner)?;
                out.extend(&inner);
                out.extend(checksum(*by, &inner));
            }
            Emit::Bounded { max, body } => {
                let from = out.len();
                self.all(body, out)?;
                (out.len() - from <= *max as usize).then_some(())?;
            }
            Emit::Let { local, value } => {
                let value = Value::Int(self.int(value)?);
                self.locals.insert(*local, value);
            }
            Emit::IfPresent { slot, then, otherwise } => {
                let there = self.slot(*slot).is_some();
                self.all(if there { then } else { otherwise }, out)?;
            }
            Emit::When { guard, then } => {
                let slots = |slot| self.slot(slot);
                if holds(self.program, guard, &slots) {
                    self.all(then, out)?;
                }
            }
            Emit::ForEach { list, body } => {
                if let Some(Value::List(rows)) = self.slot(*list) {
                    for row in rows {
                        self.element = row;
                        self.all(body, out)?;
                    }
                }
            }
            Emit::Stream { slot, select } => self.stream(*slot, select, out)?,
        }
        Some(())
    }

    fn stream(&self, slot: SlotId, select: &[Select], out: &mut Vec<u8>) -> Option<()> {
        let octets = match self.slot(slot) {
            Some(Value::Octets(octets)) => octets,
            _ => Vec::new(),
        };
        let slots = |slot| self.slot(slot);
        let select = select.iter().find(|of| holds(self.program, &of.guard, &slots))?;
        match select.framing {
            StreamFraming::Lines { terminator, stuffing } => {
                let stuffing = self.program.literal(stuffing);
                for line in octets.split_inclusive(|octet| *octet == b'\n') {
                    if line.starts_with(stuffing) {
                        out.extend_from_slice(stuffing);
                    }
                    out.extend_from_slice(line);
                }
                if !octets.is_empty() && !octets.ends_with(b"\r\n") {
                    out.extend_from_slice(b"\r\n");
                }
                out.extend_from_slice(self.program.literal(terminator));
                out.extend_from_slice(b"\r\n");
            }
            StreamFraming::Chunked => {
                if !octets.is_empty() {
                    out.extend(format!("{:x}\r\n", octets.len()).into_bytes());
                    out.extend_from_slice(&octets);
                    out.extend_from_slice(b"\r\n");
                }
                out.extend_from_slice(b"0\r\n\r\n");
            }
            StreamFraming::Nothing => return octets.is_empty().then_some(()),
            _ => out.extend_from_slice(&octets),
        }
        Some(())
    }

    fn fits(&self, octets: &[u8], check: &Check) -> bool {
        let literal = |id| self.program.literal(id);
        (check.min as usize..=check.max as usize).contains(&octets.len())
            && check.class.is_none_or(|of| octets.iter().all(|octet| of.contains(*octet)))
            && check.one_of.is_none_or(|set| octets.iter().all(|of| literal(set).contains(of)))
            && check.without.is_none_or(|of| {
                let whole = [octets, literal(of)].concat();
                find(&whole, literal(of)) == Some(octets.len())
            })
            && check.not_first.is_none_or(|of| octets.first().is_none_or(|o| !of.contains(*o)))
            && !(check.one_line && octets.iter().any(|octet| matches!(octet, b'\r' | b'\n')))
    }

    fn int(&self, source: &Source) -> Option<i64> {
        match source {
            Source::Slot(slot) => match self.slot(*slot) {
                Some(Value::Int(value)) => Some(value),
                _ => Some(0),
            },
            Source::SlotOr(slot, default) => match self.slot(*slot) {
                Some(Value::Int(value)) => Some(value),
                _ => Some(*default),
            },
            Source::Element(column) => match self.element.get(*column as usize)? {
                Value::Int(value) => Some(*value),
                _ => None,
            },
            Source::Local(local) => match self.locals.get(local) {
                Some(Value::Int(value)) => Some(*value),
                _ => Some(0),
            },
            Source::Int(value) => Some(*value),
            Source::Size(of) => i64::try_from(self.octets(of)?.len()).ok(),
            Source::Count(slot) => match self.slot(*slot) {
                Some(Value::List(rows)) => i64::try_from(rows.len()).ok(),
                _ => Some(0),
            },
            Source::Difference(one, other) => {
                Some(self.int(one)? - self.int(other)?).filter(|difference| *difference >= 0)
            }
            Source::Escape { of, cases } => {
                let value = self.int(of)?;
                Some(escape(value, cases).map_or(value, |case| case.value))
            }
            _ => None,
        }
    }

    fn octets(&self, source: &Source) -> Option<Vec<u8>> {
        match source {
            Source::Slot(slot) => match self.slot(*slot) {
                Some(Value::Octets(octets)) => Some(octets),
                _ => Some(Vec::new()),
            },
            Source::Element(column) => match self.element.get(*column as usize)? {
                Value::Octets(octets) => Some(octets.clone()),
                Value::Int(_) | Value::List(_) => None,
            },
            Source::Literal(literal) => Some(self.program.literal(*literal).to_vec()),
            Source::Decimal(of) => Some(self.int(of)?.to_string().into_bytes()),
            Source::Uint(of) => {
                let octets = self.int(of)?.to_be_bytes();
                let zeros = octets.iter().take_while(|octet| **octet == 0).count();
                Some(octets[zeros..].to_vec())
            }
            _ => None,
        }
    }
}

/// The escape that a value needs, if any.
fn escape(value: i64, cases: &[ExtendCase]) -> Option<&ExtendCase> {
    let fits = |case: &&ExtendCase| {
        value >= case.add && value - case.add < 1 << (8 * u32::from(case.octets))
    };
    let first = cases.first()?;
    (value >= first.value).then(|| cases.iter().find(fits)).flatten()
}

/// Writes the octets of the escape that a value needs, if any.
fn extension(value: i64, cases: &[ExtendCase], out: &mut Vec<u8>) {
    if let Some(case) = escape(value, cases) {
        let more = (value - case.add).to_be_bytes();
        out.extend_from_slice(&more[8 - usize::from(case.octets)..]);
    }
}

fn varint(mut value: i64, out: &mut Vec<u8>) {
    loop {
        let low = u8::try_from(value & 0x7f).unwrap();
        value >>= 7;
        out.push(if value > 0 { low | 0x80 } else { low });
        if value == 0 {
            return;
        }
    }
}
