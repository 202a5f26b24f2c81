//! The plainest reading of a layout: the whole message at hand, no resumption, no speed.
//!
//! It exists to show that what is lowered means what `gatewright_lang::ir` says, on octets that
//! come from RFCs.

use gatewright_lang::ir::{
    BitField, Checksum, Class, Convert, Fold, Guard, Length, LiteralId, Message, Order, ParseOp,
    Pattern, Program, Select, SlotId, SlotType, StreamFraming, TableKey, TableRow,
};
use std::collections::BTreeMap;

mod writing;

pub use writing::emit;

/// What a slot holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Int(i64),
    Octets(Vec<u8>),
    List(Vec<Vec<Self>>),
}

/// The slots of one message, those that are absent left out.
pub type Slots = BTreeMap<String, Value>;

/// Reads one message; `None` if it is malformed or cut.
pub fn parse(program: &Program, message: &Message, octets: &[u8]) -> Option<(Slots, usize)> {
    let mut machine = Parser {
        program,
        message,
        octets,
        at: 0,
        ends: vec![octets.len()],
        slots: BTreeMap::new(),
        counts: [0; 8],
        check: 0,
        folds: 0,
    };
    let mut step = 0;
    loop {
        let op = &message.parser[step].op;
        if *op == ParseOp::Accept {
            break;
        }
        step = machine.step(op, step)?;
    }
    if message.datagram && machine.at != octets.len() {
        return None;
    }
    let named = machine.slots.iter().filter_map(|(id, value)| {
        let slot = message.slot(*id)?;
        (!slot.scratch).then(|| (slot.name.clone(), value.clone()))
    });
    Some((named.collect(), machine.at))
}

struct Parser<'p> {
    program: &'p Program,
    message: &'p Message,
    octets: &'p [u8],
    at: usize,
    ends: Vec<usize>,
    slots: BTreeMap<SlotId, Value>,
    counts: [u32; 8],
    check: usize,
    /// How deep the line is that may be folded.
    folds: usize,
}

impl Parser<'_> {
    fn rest(&self) -> &[u8] {
        &self.octets[self.at..*self.ends.last().unwrap()]
    }

    fn take(&mut self, length: usize) -> Option<Vec<u8>> {
        let taken = self.rest().get(..length)?.to_vec();
        self.at += length;
        Some(taken)
    }

    /// Whether this is within a line that may be folded.
    fn folded(&self) -> bool {
        self.folds > 0 && self.folds == self.ends.len()
    }

    /// In such a line: a line's end and the blanks around it are one space.
    fn unfolded(&self, octets: Vec<u8>) -> Vec<u8> {
        if !self.folded() || !octets.contains(&b'\n') {
            return octets;
        }
        let text: String = octets.iter().map(|octet| char::from(*octet)).collect();
        let blank = |of: char| of == ' ' || of == '\t';
        let lines: Vec<&str> = text.split('\n').collect();
        let last = lines.len() - 1;
        let lines = lines.iter().enumerate().map(|(at, line)| {
            let line = if at > 0 { line.trim_start_matches(blank) } else { line };
            let line = if at < last { line.strip_suffix('\r').unwrap_or(line) } else { line };
            if at < last { line.trim_end_matches(blank) } else { line }
        });
        let lines =
            lines.enumerate().filter(|(at, line)| *at == 0 || *at == last || !line.is_empty());
        let joined = lines.map(|(_, line)| line).collect::<Vec<_>>().join(" ");
        joined.chars().map(|of| u8::try_from(of).unwrap()).collect()
    }

    fn set(&mut self, slot: Option<SlotId>, value: Value) -> Option<()> {
        let Some(slot) = slot else { return Some(()) };
        if let (Some(SlotType::Int { low, high }), Value::Int(value)) =
            (self.message.slot(slot).map(|slot| &slot.ty), &value)
            && !(*low..=*high).contains(value)
        {
            return None;
        }
        self.slots.insert(slot, value);
        Some(())
    }

    fn int(&self, slot: SlotId) -> Option<i64> {
        match self.slots.get(&slot)? {
            Value::Int(value) => Some(*value),
            _ => None,
        }
    }

    fn step(&mut self, op: &ParseOp, step: usize) -> Option<usize> {
        let next = step + 1;
        match op {
            ParseOp::Literal { literal, fold } => {
                let wanted = self.program.literal(*literal).to_vec();
                let found = self.take(wanted.len())?;
                let same = found == wanted || (*fold && found.eq_ignore_ascii_case(&wanted));
                same.then_some(next)
            }
            ParseOp::Until { delimiter, into, fold, max } => {
                let delimiter = self.program.literal(*delimiter).to_vec();
                let at = find(self.rest(), &delimiter).filter(|at| *at <= *max as usize)?;
                let taken = self.text(at, *fold)?;
                self.take(delimiter.len())?;
                self.set(*into, Value::Octets(taken))?;
                Some(next)
            }
            ParseOp::Run { class, into, empty_is_absent, fold, min, max } => {
                let blank = self.folded() && *class == Class::Blank;
                let is_in = |octet: &&u8| {
                    class.contains(**octet) || (blank && matches!(**octet, b'\r' | b'\n'))
                };
                let run = self.rest().iter().take_while(is_in).count();
                if run < *min as usize || run > *max as usize {
                    return None;
                }
                let taken = self.text(run, *fold)?;
                if run > 0 || !empty_is_absent {
                    self.set(*into, Value::Octets(taken))?;
                }
                Some(next)
            }
            ParseOp::Take { length, into, empty_is_absent, fold, max } => {
                let length = match length {
                    Length::Fixed(length) => *length as usize,
                    Length::Slot(slot) => usize::try_from(self.int(*slot).unwrap_or(0)).ok()?,
                    Length::Rest => self.rest().len(),
                };
                if length > *max as usize {
                    return None;
                }
                let taken = self.text(length, *fold)?;
                if length > 0 || !empty_is_absent {
                    self.set(*into, Value::Octets(taken))?;
                }
                Some(next)
            }
            ParseOp::Digits { radix, min, max, into } => {
                let is_digit = |octet: &&u8| char::from(**octet).is_digit(*radix);
                let run = self.rest().iter().take(*max as usize).take_while(is_digit).count();
                if run < *min as usize {
                    return None;
                }
                let digits = String::from_utf8(self.take(run)?).ok()?;
                if !digits.is_empty() {
                    self.set(Some(*into), Value::Int(i64::from_str_radix(&digits, *radix).ok()?))?;
                }
                Some(next)
            }
            ParseOp::OneOf { set, into, optional } => {
                self.one_of(*set, *into, *optional)?;
                Some(next)
            }
            ParseOp::Word { octets, order, fields } => {
                self.word(*octets, *order, fields)?;
                Some(next)
            }
            _ => self.step_counted(op, step),
        }
    }

    /// What is next, taken out of its folds and in its case.
    fn text(&mut self, length: usize, fold: Fold) -> Option<Vec<u8>> {
        let taken = self.take(length)?;
        Some(folded(self.unfolded(taken), fold))
    }

    fn varint(&mut self, octets_max: u8) -> Option<i64> {
        let mut value = 0;
        for index in 0..octets_max {
            let octet = self.take(1)?[0];
            value |= i64::from(octet & 0x7f) << (7 * index);
            if octet & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn one_of(&mut self, set: LiteralId, into: SlotId, optional: bool) -> Option<()> {
        let set = self.program.literal(set).to_vec();
        match self.rest().first() {
            Some(octet) if set.contains(octet) => {
                let octet = self.take(1)?;
                self.set(Some(into), Value::Octets(octet))
            }
            _ => optional.then_some(()),
        }
    }

    fn word(&mut self, octets: u8, order: Order, fields: &[BitField]) -> Option<()> {
        let mut taken = self.take(usize::from(octets))?;
        if order == Order::Little {
            taken.reverse();
        }
        let word = taken.iter().fold(0_u64, |word, octet| word << 8 | u64::from(*octet));
        for field in fields {
            let value = i128::from(word >> field.shift) & ((1 << field.width) - 1);
            let negative = field.signed && value >> (field.width - 1) == 1;
            let value = if negative { value - (1 << field.width) } else { value };
            let value = i64::try_from(value).ok()?;
            if field.expect.is_some_and(|expect| expect != value) {
                return None;
            }
            self.set(field.into, Value::Int(value))?;
        }
        Some(())
    }

    fn enter_folded(&mut self, max: u32) -> Option<()> {
        // Lines up to one that no blank follows; the first may be empty.
        let mut lines = 0;
        loop {
            lines += find(&self.rest()[lines..], b"\n")? + 1;
            if lines > max as usize {
                return None;
            }
            let empty = matches!(&self.rest()[..lines], b"\n" | b"\r\n");
            let behind = self.rest().get(lines);
            if empty || !behind.is_some_and(|octet| Class::Blank.contains(*octet)) {
                break;
            }
        }
        let text = &self.rest()[..lines - 1];
        let text = text.len() - usize::from(text.ends_with(b"\r"));
        self.ends.push(self.at + text);
        self.folds = self.ends.len();
        Some(())
    }

    fn leave(&mut self, step: usize) -> Option<()> {
        if self.folds == self.ends.len() {
            self.folds = 0;
        }
        let end = self.ends.pop()?;
        if self.at != end {
            return None;
        }
        // Of a line, its end follows.
        let entered = self.message.parser[..step].iter().rev();
        let mut depth = 0;
        let opener = entered.map(|step| &step.op).find(|op| match op {
            ParseOp::Leave => {
                depth += 1;
                false
            }
            ParseOp::EnterLine { .. } | ParseOp::EnterCounted { .. } if depth > 0 => {
                depth -= 1;
                false
            }
            ParseOp::EnterLine { .. } | ParseOp::EnterCounted { .. } => true,
            _ => false,
        });
        if matches!(opener, Some(ParseOp::EnterLine { .. })) {
            self.at += if self.rest().starts_with(b"\r\n") { 2 } else { 1 };
        }
        Some(())
    }

    /// Converts a value by its key; one that no entry knows is passed over.
    fn lookup(&mut self, key: SlotId, value: SlotId, entries: &[TableRow]) -> Option<()> {
        let key = self.slots.get(&key)?.clone();
        let Value::Octets(octets) = self.slots.get(&value)?.clone() else { return None };
        let entry = entries.iter().find(|entry| match (entry.key, &key) {
            (TableKey::Octets(literal), Value::Octets(found)) => {
                self.program.literal(literal).eq_ignore_ascii_case(found)
            }
            (TableKey::Int(wanted), Value::Int(found)) => wanted == *found,
            _ => false,
        });
        let Some(entry) = entry else { return Some(()) };
        let text = matches!(entry.key, TableKey::Octets(_));
        let value = converted(&octets, entry.convert, text)?;
        let ty = self.message.slot(entry.into).map(|slot| slot.ty.clone());
        if let Some(SlotType::List { max, .. }) = ty {
            let list = self.slots.entry(entry.into).or_insert(Value::List(Vec::new()));
            let Value::List(list) = list else { return None };
            list.push(vec![value]);
            return (list.len() <= max as usize).then_some(());
        }
        if self.slots.contains_key(&entry.into) {
            return None;
        }
        self.set(Some(entry.into), value)?;
        Some(())
    }

    fn step_counted(&mut self, op: &ParseOp, step: usize) -> Option<usize> {
        let next = step + 1;
        match op {
            ParseOp::Varint { octets_max, into } => {
                let value = self.varint(*octets_max)?;
                self.set(Some(*into), Value::Int(value))?;
                Some(next)
            }
            ParseOp::Extend { slot, cases } => {
                let value = self.int(*slot)?;
                if let Some(case) = cases.iter().find(|case| case.value == value) {
                    let more = self.take(usize::from(case.octets))?;
                    let more = more.iter().fold(0, |sum, octet| sum << 8 | i64::from(*octet));
                    self.set(Some(*slot), Value::Int(more + case.add))?;
                } else if cases.last().is_some_and(|case| value > case.value) {
                    return None;
                }
                Some(next)
            }
            ParseOp::Sum { into, add } => {
                let sum = self.int(*into).unwrap_or(0) + self.int(*add)?;
                self.slots.insert(*into, Value::Int(sum));
                Some(next)
            }
            ParseOp::EnterLine { max, folded: true } => {
                self.enter_folded(*max)?;
                Some(next)
            }
            ParseOp::EnterLine { max, .. } => {
                let newline = find(self.rest(), b"\n")?;
                if newline + 1 > *max as usize {
                    return None;
                }
                let line = self.at + newline;
                let cr = newline > 0 && self.octets[line - 1] == b'\r';
                self.ends.push(line - usize::from(cr));
                Some(next)
            }
            ParseOp::EnterCounted { length, less, max } => {
                let length = usize::try_from(self.int(*length)? - i64::from(*less)).ok()?;
                if length > *max as usize || length > self.rest().len() {
                    return None;
                }
                self.ends.push(self.at + length);
                Some(next)
            }
            ParseOp::Leave => {
                self.leave(step)?;
                Some(next)
            }
            ParseOp::BeginCheck { by } => {
                self.check = self.at;
                let end = *self.ends.last()?;
                self.ends.push(end.checked_sub(usize::from(by.octets()))?);
                Some(next)
            }
            ParseOp::EndCheck { by } => {
                self.ends.pop()?;
                let wanted = checksum(*by, &self.octets[self.check..self.at]);
                (self.take(wanted.len())? == wanted).then_some(next)
            }
            _ => self.step_control(op, next),
        }
    }

    fn step_control(&mut self, op: &ParseOp, next: usize) -> Option<usize> {
        match op {
            ParseOp::AtEnd { then } => {
                Some(if self.rest().is_empty() { then.index() } else { next })
            }
            ParseOp::Peek { literal, then } => {
                let wanted = self.program.literal(*literal).to_vec();
                if !self.rest().starts_with(&wanted) {
                    return Some(next);
                }
                self.at += wanted.len();
                Some(then.index())
            }
            ParseOp::Branch { guard, otherwise } => {
                let holds = holds(self.program, guard, &|slot| self.slots.get(&slot).cloned());
                Some(if holds { next } else { otherwise.index() })
            }
            ParseOp::Jump(to) => Some(to.index()),
            ParseOp::Count { counter, max } => {
                let count = &mut self.counts[usize::from(*counter)];
                *count += 1;
                (*count <= *max).then_some(next)
            }
            ParseOp::Clear { slots } => {
                self.slots.retain(|slot, _| !slots.contains(slot));
                Some(next)
            }
            ParseOp::Lookup { key, value, entries } => {
                self.lookup(*key, *value, entries)?;
                Some(next)
            }
            ParseOp::Copy { from, into } => {
                if let Some(value) = self.slots.get(from).cloned() {
                    self.slots.insert(*into, value);
                }
                Some(next)
            }
            ParseOp::Append { list, columns } => {
                let row = columns.iter().map(|slot| self.slots.get(slot).cloned());
                let row = row.collect::<Option<Vec<Value>>>()?;
                let entry = self.slots.entry(*list).or_insert(Value::List(Vec::new()));
                let Value::List(list) = entry else { return None };
                list.push(row);
                Some(next)
            }
            ParseOp::Settle { slots } => {
                for slot in slots {
                    let missing = !self.slots.contains_key(slot);
                    let slot = self.message.slot(*slot)?;
                    let list = matches!(slot.ty, SlotType::List { .. });
                    if missing && !slot.optional && !list {
                        return None;
                    }
                }
                Some(next)
            }
            ParseOp::Stream { into, select, max } => {
                let framing = self.framing(select)?;
                let octets = self.stream(framing)?;
                if max.is_some_and(|max| octets.len() > max as usize) {
                    return None;
                }
                self.set(Some(*into), Value::Octets(octets))?;
                Some(next)
            }
            _ => None,
        }
    }

    fn framing(&self, select: &[Select]) -> Option<StreamFraming> {
        let slots = |slot| self.slots.get(&slot).cloned();
        Some(select.iter().find(|of| holds(self.program, &of.guard, &slots))?.framing)
    }

    fn stream(&mut self, framing: StreamFraming) -> Option<Vec<u8>> {
        match framing {
            StreamFraming::Nothing => Some(Vec::new()),
            StreamFraming::UntilClose => self.take(self.rest().len()),
            StreamFraming::Counted(slot) => self.take(usize::try_from(self.int(slot)?).ok()?),
            StreamFraming::Lines { terminator, stuffing } => {
                let terminator = self.program.literal(terminator).to_vec();
                let stuffing = self.program.literal(stuffing).to_vec();
                let last = [&terminator[..], b"\r\n"].concat();
                let (mut whole, mut torn) = (Vec::new(), false);
                loop {
                    let length = find(self.rest(), b"\n")? + 1;
                    let line = self.take(length)?;
                    if line == last && !torn {
                        return Some(whole);
                    }
                    whole.extend_from_slice(line.strip_prefix(&stuffing[..]).unwrap_or(&line));
                    torn = !whole.ends_with(b"\r\n");
                }
            }
            StreamFraming::Chunked => {
                let mut whole = Vec::new();
                loop {
                    let length = find(self.rest(), b"\r\n")?;
                    let line = String::from_utf8(self.take(length)?).ok()?;
                    self.take(2)?;
                    let size = usize::from_str_radix(&line, 16).ok()?;
                    whole.extend(self.take(size)?);
                    (self.take(2)? == b"\r\n").then_some(())?;
                    if size == 0 {
                        return Some(whole);
                    }
                }
            }
        }
    }
}

fn find(octets: &[u8], wanted: &[u8]) -> Option<usize> {
    octets.windows(wanted.len()).position(|window| window == wanted)
}

fn folded(octets: Vec<u8>, fold: Fold) -> Vec<u8> {
    match fold {
        Fold::Keep => octets,
        Fold::Upper => octets.to_ascii_uppercase(),
        Fold::Lower => octets.to_ascii_lowercase(),
    }
}

fn converted(octets: &[u8], convert: Convert, text: bool) -> Option<Value> {
    let octets = if text { octets.trim_ascii() } else { octets };
    match convert {
        Convert::Keep => Some(Value::Octets(octets.to_vec())),
        Convert::Lower => Some(Value::Octets(octets.to_ascii_lowercase())),
        Convert::Upper => Some(Value::Octets(octets.to_ascii_uppercase())),
        Convert::Decimal => {
            let digits = octets.iter().all(u8::is_ascii_digit);
            let text = std::str::from_utf8(octets).ok().filter(|_| digits)?;
            text.parse().ok().map(Value::Int)
        }
        Convert::Uint => {
            let sum = |sum: i64, octet: &u8| sum << 8 | i64::from(*octet);
            (octets.len() < 8).then(|| Value::Int(octets.iter().fold(0, sum)))
        }
    }
}

fn holds(program: &Program, guard: &Guard, slots: &dyn Fn(SlotId) -> Option<Value>) -> bool {
    let all = |guard: &Guard| holds(program, guard, slots);
    match guard {
        Guard::Always => true,
        Guard::Present(slot) => slots(*slot).is_some(),
        Guard::All(guards) => guards.iter().all(all),
        Guard::Any(guards) => guards.iter().any(all),
        Guard::Not(guard) => !holds(program, guard, slots),
        Guard::Is { slot, patterns } => {
            patterns.iter().any(|pattern| match (pattern, slots(*slot)) {
                (Pattern::Int { low, high }, Some(Value::Int(value))) => {
                    (*low..=*high).contains(&value)
                }
                (Pattern::Octets(literal), Some(Value::Octets(octets))) => {
                    program.literal(*literal) == octets
                }
                (Pattern::Empty, Some(Value::Octets(octets))) => octets.is_empty(),
                _ => false,
            })
        }
    }
}

/// CRC and LRC, one bit at a time.
fn checksum(by: Checksum, octets: &[u8]) -> Vec<u8> {
    let reflected = |start: u32, polynomial: u32| {
        octets.iter().fold(start, |mut sum, octet| {
            sum ^= u32::from(*octet);
            for _ in 0..8 {
                sum = if sum & 1 == 1 { sum >> 1 ^ polynomial } else { sum >> 1 };
            }
            sum
        })
    };
    match by {
        Checksum::Crc16Modbus => reflected(0xffff, 0xa001).to_le_bytes()[..2].to_vec(),
        Checksum::Crc32 => (!reflected(!0, 0xedb8_8320)).to_le_bytes().to_vec(),
        Checksum::Crc16Ccitt => {
            let sum = octets.iter().fold(0xffff_u32, |mut sum, octet| {
                sum ^= u32::from(*octet) << 8;
                for _ in 0..8 {
                    sum = if sum & 0x8000 == 0 { sum << 1 } else { sum << 1 ^ 0x1021 };
                }
                sum & 0xffff
            });
            sum.to_be_bytes()[2..].to_vec()
        }
        Checksum::Lrc => {
            let sum = octets.iter().fold(0_u8, |sum, octet| sum.wrapping_add(*octet));
            vec![sum.wrapping_neg()]
        }
    }
}
