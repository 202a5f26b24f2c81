//! The plainest reading of a layout: the whole message at hand, no resumption, no speed.
//!
//! It exists to show that what is lowered means what `gatewright_lang::ir` says, on octets that
//! come from RFCs.

use gatewright_lang::ir::{
    Check, Checksum, Class, Convert, Emit, ExtendCase, Fold, Guard, Key, Length, LocalId, Message,
    Order, ParseOp, Pattern, Program, Select, SlotId, SlotType, Source, StreamFraming,
};
use std::collections::BTreeMap;

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
                let taken = {
                    let taken = self.take(at)?;
                    folded(self.unfolded(taken), *fold)
                };
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
                let taken = {
                    let taken = self.take(run)?;
                    folded(self.unfolded(taken), *fold)
                };
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
                let taken = {
                    let taken = self.take(length)?;
                    folded(self.unfolded(taken), *fold)
                };
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
                let set = self.program.literal(*set).to_vec();
                match self.rest().first() {
                    Some(octet) if set.contains(octet) => {
                        let octet = self.take(1)?;
                        self.set(Some(*into), Value::Octets(octet))?;
                    }
                    _ if *optional => {}
                    _ => return None,
                }
                Some(next)
            }
            ParseOp::Word { octets, order, fields } => {
                let mut taken = self.take(usize::from(*octets))?;
                if *order == Order::Little {
                    taken.reverse();
                }
                let word = taken.iter().fold(0_u64, |word, octet| word << 8 | u64::from(*octet));
                for field in fields {
                    let value = word >> field.shift & ((1 << field.width) - 1);
                    let value = i64::try_from(value).ok()?;
                    if field.expect.is_some_and(|expect| expect != value) {
                        return None;
                    }
                    self.set(field.into, Value::Int(value))?;
                }
                Some(next)
            }
            _ => self.step_counted(op, step),
        }
    }

    fn step_counted(&mut self, op: &ParseOp, step: usize) -> Option<usize> {
        let next = step + 1;
        match op {
            ParseOp::Varint { octets_max, into } => {
                let mut value = 0;
                for index in 0..*octets_max {
                    let octet = self.take(1)?[0];
                    value |= i64::from(octet & 0x7f) << (7 * index);
                    if octet & 0x80 == 0 {
                        self.set(Some(*into), Value::Int(value))?;
                        return Some(next);
                    }
                }
                None
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
                // Lines up to one that no blank follows; the first may be empty.
                let mut lines = 0;
                loop {
                    lines += find(&self.rest()[lines..], b"\n")? + 1;
                    if lines > *max as usize {
                        return None;
                    }
                    let empty = matches!(&self.rest()[..lines], b"\n" | b"\r\n");
                    let next = self.rest().get(lines);
                    if empty || !next.is_some_and(|octet| Class::Blank.contains(*octet)) {
                        break;
                    }
                }
                let text = &self.rest()[..lines - 1];
                let text = text.len() - usize::from(text.ends_with(b"\r"));
                self.ends.push(self.at + text);
                self.folds = self.ends.len();
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
                let key = self.slots.get(key)?.clone();
                let Value::Octets(octets) = self.slots.get(value)?.clone() else { return None };
                let entry = entries.iter().find(|entry| match (entry.key, &key) {
                    (Key::Octets(literal), Value::Octets(found)) => {
                        self.program.literal(literal).eq_ignore_ascii_case(found)
                    }
                    (Key::Int(wanted), Value::Int(found)) => wanted == *found,
                    _ => false,
                });
                let Some(entry) = entry else { return Some(next) };
                let text = matches!(entry.key, Key::Octets(_));
                let value = converted(&octets, entry.convert, text)?;
                let ty = self.message.slot(entry.into).map(|slot| slot.ty.clone());
                if let Some(SlotType::List { max, .. }) = ty {
                    let list = self.slots.entry(entry.into).or_insert(Value::List(Vec::new()));
                    let Value::List(list) = list else { return None };
                    list.push(vec![value]);
                    return (list.len() <= max as usize).then_some(next);
                }
                if self.slots.contains_key(&entry.into) {
                    return None;
                }
                self.set(Some(entry.into), value)?;
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
            ParseOp::Stream { into, select } => {
                let framing = self.framing(select)?;
                let octets = self.stream(framing)?;
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

impl Writer<'_> {
    fn slot(&self, id: SlotId) -> Option<Value> {
        self.slots.get(&self.message.slot(id)?.name).cloned()
    }

    fn all(&mut self, parts: &[Emit], out: &mut Vec<u8>) -> Option<()> {
        parts.iter().try_for_each(|part| self.one(part, out))
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
            Emit::Word { octets, order, fields } => {
                let mut word = 0_u64;
                for field in fields {
                    let value = u64::try_from(self.int(&field.from)?).ok()?;
                    (value >> field.width == 0).then_some(())?;
                    word |= value << field.shift;
                }
                let mut bytes = word.to_be_bytes()[8 - usize::from(*octets)..].to_vec();
                if *order == Order::Little {
                    bytes.reverse();
                }
                out.extend(bytes);
            }
            Emit::Varint { from, .. } => varint(self.int(from)?, out),
            Emit::Extension { of, cases } => {
                let value = self.int(of)?;
                if let Some(case) = escape(value, cases) {
                    let more = (value - case.add).to_be_bytes();
                    out.extend_from_slice(&more[8 - usize::from(case.octets)..]);
                }
            }
            Emit::Counted { octets, order, more, max, body } => {
                let mut inner = Vec::new();
                self.all(body, &mut inner)?;
                (inner.len() <= *max as usize).then_some(())?;
                if *octets == 0 {
                    varint(i64::try_from(inner.len()).ok()?, out);
                } else {
                    let counted = inner.len() + *more as usize;
                    (counted.checked_shr(8 * u32::from(*octets)).unwrap_or(0) == 0).then_some(())?;
                    let mut length = counted.to_be_bytes()[8 - usize::from(*octets)..].to_vec();
                    if *order == Order::Little {
                        length.reverse();
                    }
                    out.extend(length);
                }
                out.extend(inner);
            }
            Emit::Checked { by, body } => {
                let mut inner = Vec::new();
                self.all(body, &mut inner)?;
                out.extend(&inner);
                out.extend(checksum(*by, &inner));
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
            && check.without.is_none_or(|of| find(octets, literal(of)).is_none())
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
