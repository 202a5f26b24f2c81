//! What a parser does in one step.

use crate::checksum::Running;
use crate::parser::{Parser, Reason};
use crate::reader::{Region, length};
use crate::stream::StreamReader;
use crate::view::{Value, find, fits, row_within, within};
use gatewright_lang::ir::{
    Checksum, Class, Convert, Entry, ExtendCase, Fold, Key, Length, Message, Order, ParseOp,
    Program, Select, SlotId, SlotType, StepId, StreamFraming,
};

/// What a step sees.
pub(crate) struct Look<'l> {
    pub(crate) program: &'l Program,
    pub(crate) message: &'l Message,
    /// The octets from here on.
    pub(crate) input: &'l [u8],
    /// Whether none will follow them.
    pub(crate) last: bool,
}

/// What comes after a step.
pub(crate) enum Turn {
    Next,
    Go(StepId),
    Wait,
    Accept,
}

type Taken<'l> = Result<Option<&'l [u8]>, Reason>;

impl Parser {
    pub(crate) fn turn(
        &mut self,
        look: &Look<'_>,
        op: &ParseOp,
        stream: &mut Vec<u8>,
    ) -> Result<Turn, Reason> {
        match op {
            ParseOp::Literal { literal, fold } => {
                self.literal(look, look.program.literal(*literal), *fold)
            }
            ParseOp::Until { delimiter, into, fold, max } => {
                self.until(look, look.program.literal(*delimiter), *into, *fold, *max)
            }
            ParseOp::Run { class, into, empty_is_absent, fold, min, max } => {
                let Some(run) = self.run(look, *max, *class) else {
                    return Ok(Turn::Wait);
                };
                if !fits(run.len(), *max) {
                    return Err(too_long(*max));
                }
                if run.len() < size(*min) {
                    return Err(Reason::TooShort { min: u64::from(*min) });
                }
                self.octets(look, run, *into, *empty_is_absent, *fold)
            }
            ParseOp::Take { length, into, empty_is_absent, fold, max } => {
                match self.take_length(look, *length, *max)? {
                    Some(taken) => self.octets(look, taken, *into, *empty_is_absent, *fold),
                    None => Ok(Turn::Wait),
                }
            }
            ParseOp::Digits { radix, min, max, into } => {
                self.digits(look, *radix, *min, *max, *into)
            }
            ParseOp::OneOf { set, into, optional } => {
                self.one_of(look, look.program.literal(*set), *into, *optional)
            }
            ParseOp::Word { octets, order, fields } => {
                let Some(taken) = self.take(look, usize::from(*octets))? else {
                    return Ok(Turn::Wait);
                };
                let word = number(taken, *order);
                for field in fields {
                    let mask = u64::MAX
                        .checked_shr(64_u32.saturating_sub(u32::from(field.width)))
                        .unwrap_or(0);
                    let value = word.checked_shr(u32::from(field.shift)).unwrap_or(0) & mask;
                    let value = i64::try_from(value).map_err(|_| Reason::Bounds)?;
                    if field.expect.is_some_and(|expect| expect != value) {
                        return Err(Reason::Unexpected);
                    }
                    self.put(look, field.into, Some(Value::Int(value)))?;
                }
                self.cursor.advance(taken);
                Ok(Turn::Next)
            }
            ParseOp::Varint { octets_max, into } => self.varint(look, *octets_max, *into),
            ParseOp::Extend { slot, cases } => self.extend(look, *slot, cases),
            ParseOp::Stream { into, select } => self.stream(look, *into, select, stream),
            _ => self.turn_region(look, op),
        }
    }

    fn turn_region(&mut self, look: &Look<'_>, op: &ParseOp) -> Result<Turn, Reason> {
        match op {
            ParseOp::EnterLine { max } => self.enter_line(look, *max),
            ParseOp::EnterCounted { length, max } => {
                let length = self.measure(*length, *max)?;
                let end = self.cursor.at.saturating_add(length);
                if self.cursor.end().is_some_and(|outer| end > outer) {
                    return Err(Reason::Beyond);
                }
                self.cursor.regions.push(Region { end: Some(end), tail: 0 });
                Ok(Turn::Next)
            }
            ParseOp::Leave => self.leave(look),
            ParseOp::BeginCheck { by } => self.begin_check(*by),
            ParseOp::EndCheck { by } => self.end_check(look, *by),
            ParseOp::AtEnd { then } => {
                let (window, whole) = self.cursor.window(look.input);
                let ended = window.is_empty() && whole;
                Ok(if ended { Turn::Go(*then) } else { Turn::Next })
            }
            ParseOp::Peek { literal, then } => {
                let wanted = look.program.literal(*literal);
                let (window, whole) = self.cursor.window(look.input);
                if let Some(found) = window.get(..wanted.len()).filter(|found| *found == wanted) {
                    self.cursor.advance(found);
                    return Ok(Turn::Go(*then));
                }
                let may_come = !whole && wanted.starts_with(window);
                Ok(if may_come { Turn::Wait } else { Turn::Next })
            }
            ParseOp::Branch { guard, otherwise } => {
                let holds = self.view.holds(look.program, guard);
                Ok(if holds { Turn::Next } else { Turn::Go(*otherwise) })
            }
            ParseOp::Jump(to) => Ok(Turn::Go(*to)),
            ParseOp::Accept if look.message.datagram => match self.cursor.window(look.input) {
                ([], true) => Ok(Turn::Accept),
                _ => Err(Reason::LeftOver),
            },
            ParseOp::Accept => Ok(Turn::Accept),
            ParseOp::Refuse => Err(Reason::NoCase),
            _ => self.turn_slots(look, op).map(|()| Turn::Next),
        }
    }

    fn turn_slots(&mut self, look: &Look<'_>, op: &ParseOp) -> Result<(), Reason> {
        match op {
            ParseOp::Sum { into, add } => {
                let add = self.view.int(*add).unwrap_or(0);
                let sum = self.view.int(*into).unwrap_or(0).saturating_add(add);
                self.put(look, Some(*into), Some(Value::Int(sum)))
            }
            ParseOp::Count { counter, max } => {
                let count = self.counts.get_mut(usize::from(*counter)).ok_or(Reason::NoCase)?;
                *count = count.saturating_add(1);
                if *count > *max { Err(too_long(*max)) } else { Ok(()) }
            }
            ParseOp::Clear { slots } => {
                for slot in slots {
                    self.view.clear(*slot);
                }
                Ok(())
            }
            ParseOp::Lookup { key, value, entries } => self.lookup(look, *key, *value, entries),
            ParseOp::Copy { from, into } => {
                let value = self.view.get(*from).cloned();
                self.put(look, Some(*into), value)
            }
            ParseOp::Append { list, columns } => {
                let row = columns.iter().map(|slot| self.view.get(*slot).cloned());
                let row = row.collect::<Option<Vec<_>>>().ok_or(Reason::Missing)?;
                self.append(look, *list, row)
            }
            ParseOp::Settle { slots } => {
                for slot in slots {
                    self.settle_absent(look, *slot)?;
                }
                Ok(())
            }
            _ => Err(Reason::NoCase),
        }
    }

    /// Fills a slot, or leaves it absent for good.
    fn put(
        &mut self,
        look: &Look<'_>,
        slot: Option<SlotId>,
        value: Option<Value>,
    ) -> Result<(), Reason> {
        let Some(slot) = slot else { return Ok(()) };
        let Some(value) = value else { return self.settle_absent(look, slot) };
        let ty = look.message.slot(slot).map(|slot| &slot.ty).ok_or(Reason::NoCase)?;
        if !within(ty, &value) {
            return Err(Reason::Bounds);
        }
        self.view.set(slot, value);
        Ok(())
    }

    fn settle_absent(&mut self, look: &Look<'_>, slot: SlotId) -> Result<(), Reason> {
        let Some(about) = look.message.slot(slot) else { return Err(Reason::NoCase) };
        let list = matches!(about.ty, SlotType::List { .. });
        if self.view.get(slot).is_none() && !about.optional && !about.scratch && !list {
            return Err(Reason::Missing);
        }
        self.view.settle(slot);
        Ok(())
    }

    /// So many octets; `None` if they are not here yet. They are not consumed.
    fn take<'l>(&self, look: &Look<'l>, octets: usize) -> Taken<'l> {
        let (window, whole) = self.cursor.window(look.input);
        match window.get(..octets) {
            Some(taken) => Ok(Some(taken)),
            None if whole || self.beyond(octets) => Err(Reason::Beyond),
            None => Ok(None),
        }
    }

    /// Whether so many octets from here go beyond the region's end, arrived or not.
    fn beyond(&self, octets: usize) -> bool {
        let end = self.cursor.at.saturating_add(u64::try_from(octets).unwrap_or(u64::MAX));
        self.cursor.end().is_some_and(|of| end > of)
    }

    fn literal(&mut self, look: &Look<'_>, wanted: &[u8], fold: bool) -> Result<Turn, Reason> {
        let (window, _) = self.cursor.window(look.input);
        let same =
            |(one, other): (&u8, &u8)| one == other || (fold && one.eq_ignore_ascii_case(other));
        if !window.iter().zip(wanted).all(same) {
            return Err(Reason::Unexpected);
        }
        let Some(taken) = self.take(look, wanted.len())? else { return Ok(Turn::Wait) };
        self.cursor.advance(taken);
        Ok(Turn::Next)
    }

    fn until(
        &mut self,
        look: &Look<'_>,
        delimiter: &[u8],
        into: Option<SlotId>,
        fold: Fold,
        max: u32,
    ) -> Result<Turn, Reason> {
        let (window, whole) = self.cursor.window(look.input);
        let longest = size(max).saturating_add(delimiter.len());
        let near = window.get(..longest).unwrap_or(window);
        let Some(at) = find(near, delimiter) else {
            return match () {
                () if near.len() == longest => Err(too_long(max)),
                () if whole => Err(Reason::Beyond),
                () => Ok(Turn::Wait),
            };
        };
        let field = near.get(..at).unwrap_or_default();
        self.put(look, into, Some(Value::Octets(folded(field, fold))))?;
        self.cursor.advance(near.get(..at + delimiter.len()).unwrap_or(near));
        Ok(Turn::Next)
    }

    /// The longest run of octets, as far as it is certain; one octet above `max` is enough.
    fn run<'l>(&self, look: &Look<'l>, max: u32, class: Class) -> Option<&'l [u8]> {
        let (window, whole) = self.cursor.window(look.input);
        let near = window.get(..size(max).saturating_add(1)).unwrap_or(window);
        let length = near.iter().take_while(|octet| class.contains(**octet)).count();
        let certain = length < near.len() || whole || !fits(length, max);
        near.get(..length).filter(|_| certain)
    }

    fn octets(
        &mut self,
        look: &Look<'_>,
        taken: &[u8],
        into: Option<SlotId>,
        empty_is_absent: bool,
        fold: Fold,
    ) -> Result<Turn, Reason> {
        let there = !taken.is_empty() || !empty_is_absent;
        if into.is_some() {
            self.put(look, into, there.then(|| Value::Octets(folded(taken, fold))))?;
        }
        self.cursor.advance(taken);
        Ok(Turn::Next)
    }

    fn take_length<'l>(&self, look: &Look<'l>, length: Length, max: u32) -> Taken<'l> {
        let octets = match length {
            Length::Fixed(octets) => u64::from(octets),
            Length::Slot(slot) => self.measure(slot, max)?,
            Length::Rest => match self.cursor.end() {
                Some(end) => end.saturating_sub(self.cursor.at),
                None if !fits(look.input.len(), max) => return Err(too_long(max)),
                None => return Ok(None),
            },
        };
        if octets > u64::from(max) {
            return Err(too_long(max));
        }
        self.take(look, usize::try_from(octets).unwrap_or(usize::MAX))
    }

    /// A length that another field gives.
    fn measure(&self, slot: SlotId, max: u32) -> Result<u64, Reason> {
        let length = self.view.int(slot).ok_or(Reason::Missing)?;
        let length = u64::try_from(length).map_err(|_| Reason::Bounds)?;
        if length > u64::from(max) { Err(too_long(max)) } else { Ok(length) }
    }

    fn digits(
        &mut self,
        look: &Look<'_>,
        radix: u32,
        min: u32,
        max: u32,
        into: SlotId,
    ) -> Result<Turn, Reason> {
        let (window, whole) = self.cursor.window(look.input);
        let near = window.get(..size(max)).unwrap_or(window);
        let is_digit = |octet: &&u8| char::from(**octet).is_digit(radix);
        let count = near.iter().take_while(is_digit).count();
        if count == near.len() && near.len() < size(max) && !whole {
            return Ok(Turn::Wait);
        }
        if count < size(min) {
            return Err(Reason::TooShort { min: u64::from(min) });
        }
        let digits = near.get(..count).unwrap_or_default();
        let value = (count > 0).then(|| in_digits(digits, radix)).transpose()?;
        self.put(look, Some(into), value.map(Value::Int))?;
        self.cursor.advance(digits);
        Ok(Turn::Next)
    }

    fn one_of(
        &mut self,
        look: &Look<'_>,
        set: &[u8],
        into: SlotId,
        optional: bool,
    ) -> Result<Turn, Reason> {
        let (window, whole) = self.cursor.window(look.input);
        let found = match window.get(..1) {
            None if !whole => return Ok(Turn::Wait),
            found => found.filter(|found| found.iter().all(|octet| set.contains(octet))),
        };
        match found {
            Some(octet) => {
                self.put(look, Some(into), Some(Value::Octets(octet.to_vec())))?;
                self.cursor.advance(octet);
            }
            None if optional => self.put(look, Some(into), None)?,
            None => return Err(Reason::Unexpected),
        }
        Ok(Turn::Next)
    }

    fn varint(&mut self, look: &Look<'_>, max: u8, into: SlotId) -> Result<Turn, Reason> {
        let (window, whole) = self.cursor.window(look.input);
        let near = window.get(..usize::from(max)).unwrap_or(window);
        let Some(last) = near.iter().position(|octet| octet & 0x80 == 0) else {
            return match () {
                () if near.len() == usize::from(max) => Err(too_long(u32::from(max))),
                () if whole => Err(Reason::Beyond),
                () => Ok(Turn::Wait),
            };
        };
        let taken = near.get(..=last).unwrap_or(near);
        let value = taken.iter().rev().try_fold(0_i64, |value, octet| {
            value.checked_mul(128)?.checked_add(i64::from(octet & 0x7f))
        });
        self.put(look, Some(into), Some(Value::Int(value.ok_or(Reason::Bounds)?)))?;
        self.cursor.advance(taken);
        Ok(Turn::Next)
    }

    fn extend(
        &mut self,
        look: &Look<'_>,
        slot: SlotId,
        cases: &[ExtendCase],
    ) -> Result<Turn, Reason> {
        let value = self.view.int(slot).ok_or(Reason::Missing)?;
        let Some(case) = cases.iter().find(|case| case.value == value) else {
            let reserved = cases.last().is_some_and(|case| value > case.value);
            return if reserved { Err(Reason::Bounds) } else { Ok(Turn::Next) };
        };
        let Some(taken) = self.take(look, usize::from(case.octets))? else {
            return Ok(Turn::Wait);
        };
        let more = i64::try_from(number(taken, Order::Big)).map_err(|_| Reason::Bounds)?;
        self.put(look, Some(slot), Some(Value::Int(more.saturating_add(case.add))))?;
        self.cursor.advance(taken);
        Ok(Turn::Next)
    }

    fn enter_line(&mut self, look: &Look<'_>, max: u32) -> Result<Turn, Reason> {
        let (window, whole) = self.cursor.window(look.input);
        let near = window.get(..size(max)).unwrap_or(window);
        let Some(newline) = near.iter().position(|octet| *octet == b'\n') else {
            return match () {
                () if near.len() == size(max) => Err(too_long(max)),
                () if whole => Err(Reason::Beyond),
                () => Ok(Turn::Wait),
            };
        };
        let line = near.get(..newline).unwrap_or_default();
        let text = line.strip_suffix(b"\r").unwrap_or(line);
        let tail = if text.len() < line.len() { 2 } else { 1 };
        let end = Some(self.cursor.at.saturating_add(length(text)));
        self.cursor.regions.push(Region { end, tail });
        Ok(Turn::Next)
    }

    fn leave(&mut self, look: &Look<'_>) -> Result<Turn, Reason> {
        let Some(region) = self.cursor.regions.last().copied() else { return Err(Reason::NoCase) };
        if region.end != Some(self.cursor.at) {
            return Err(Reason::LeftOver);
        }
        let tail = look.input.get(..usize::from(region.tail));
        let Some(tail) = tail else { return Ok(Turn::Wait) };
        self.cursor.regions.pop();
        self.cursor.advance(tail);
        Ok(Turn::Next)
    }

    fn begin_check(&mut self, by: Checksum) -> Result<Turn, Reason> {
        let outer = self.cursor.end();
        let end = outer.map(|end| end.checked_sub(u64::from(by.octets())));
        if end.is_some_and(|end| end.is_none_or(|end| end < self.cursor.at)) {
            return Err(Reason::Beyond);
        }
        self.cursor.regions.push(Region { end: end.flatten(), tail: 0 });
        self.cursor.check = Some(Running::new(by));
        Ok(Turn::Next)
    }

    fn end_check(&mut self, look: &Look<'_>, by: Checksum) -> Result<Turn, Reason> {
        let outer = self.cursor.regions.iter().rev().nth(1).and_then(|region| region.end);
        let octets = usize::from(by.octets());
        let end = self.cursor.at.saturating_add(u64::from(by.octets()));
        if outer.is_some_and(|outer| end > outer) {
            return Err(Reason::Beyond);
        }
        let Some(found) = look.input.get(..octets) else { return Ok(Turn::Wait) };
        let check = self.cursor.check.take().ok_or(Reason::NoCase)?.octets();
        if check.get(..octets) != Some(found) {
            return Err(Reason::Check);
        }
        self.cursor.regions.pop();
        self.cursor.advance(found);
        Ok(Turn::Next)
    }

    fn lookup(
        &mut self,
        look: &Look<'_>,
        key: SlotId,
        value: SlotId,
        entries: &[Entry],
    ) -> Result<(), Reason> {
        let key = self.view.get(key).ok_or(Reason::Missing)?;
        let entry = entries.iter().find(|entry| match (entry.key, key) {
            (Key::Octets(wanted), Value::Octets(found)) => {
                look.program.literal(wanted).eq_ignore_ascii_case(found)
            }
            (Key::Int(wanted), Value::Int(found)) => wanted == *found,
            _ => false,
        });
        let Some(entry) = entry else { return Ok(()) };
        let octets = self.view.octets(value).ok_or(Reason::Missing)?;
        let text = matches!(entry.key, Key::Octets(_));
        let octets = if text { without_blanks(octets) } else { octets };
        let value = converted(octets, entry.convert)?;
        let ty = look.message.slot(entry.into).map(|slot| &slot.ty).ok_or(Reason::NoCase)?;
        if matches!(ty, SlotType::List { .. }) {
            return self.append(look, entry.into, vec![value]);
        }
        if self.view.get(entry.into).is_some() {
            return Err(Reason::Twice);
        }
        if !within(ty, &value) {
            return Err(Reason::Bounds);
        }
        self.view.put(entry.into, value);
        Ok(())
    }

    fn append(&mut self, look: &Look<'_>, list: SlotId, row: Vec<Value>) -> Result<(), Reason> {
        let ty = look.message.slot(list).map(|slot| &slot.ty);
        let Some(SlotType::List { columns, max }) = ty else { return Err(Reason::NoCase) };
        if !row_within(columns, &row) {
            return Err(Reason::Bounds);
        }
        if self.view.rows(list).len() >= size(*max) {
            return Err(too_long(*max));
        }
        self.view.push(list, row);
        Ok(())
    }

    fn stream(
        &mut self,
        look: &Look<'_>,
        into: SlotId,
        select: &[Select],
        out: &mut Vec<u8>,
    ) -> Result<Turn, Reason> {
        let begun = self.stream.take();
        let mut reader = begun.map_or_else(|| self.begin_stream(look, into, select), Ok)?;
        let (window, whole) = self.cursor.window(look.input);
        let never_ends = self.cursor.end().is_none();
        let last = whole || (never_ends && look.last);
        let looked = reader.read(look.program, window, last, out)?;
        self.cursor.advance(window.get(..looked.used).unwrap_or(window));
        if looked.done {
            return Ok(Turn::Next);
        }
        self.stream = Some(reader);
        if whole { Err(Reason::Beyond) } else { Ok(Turn::Wait) }
    }

    /// The stream begins, and nothing of it is read yet.
    pub(crate) fn announce_stream(
        &mut self,
        look: &Look<'_>,
        into: SlotId,
        select: &[Select],
    ) -> Result<(), Reason> {
        if self.stream.is_none() {
            self.stream = Some(self.begin_stream(look, into, select)?);
        }
        Ok(())
    }

    fn begin_stream(
        &mut self,
        look: &Look<'_>,
        into: SlotId,
        select: &[Select],
    ) -> Result<StreamReader, Reason> {
        let framing = select.iter().find(|of| self.view.holds(look.program, &of.guard));
        let framing = framing.ok_or(Reason::NoCase)?.framing;
        let length = match framing {
            StreamFraming::Counted(slot) => {
                let length = self.view.int(slot).ok_or(Reason::Missing)?;
                u64::try_from(length).map_err(|_| Reason::Bounds)?
            }
            _ => 0,
        };
        self.put(look, Some(into), Some(Value::Stream))?;
        Ok(StreamReader::new(framing, length))
    }
}

const fn too_long(max: u32) -> Reason {
    Reason::TooLong { max: max as u64 }
}

/// A bound of the program as a length of octets in memory.
fn size(bound: u32) -> usize {
    usize::try_from(bound).unwrap_or(usize::MAX)
}

fn number(octets: &[u8], order: Order) -> u64 {
    let add = |sum: u64, octet: &u8| sum << 8 | u64::from(*octet);
    match order {
        Order::Big => octets.iter().fold(0, add),
        Order::Little => octets.iter().rev().fold(0, add),
    }
}

fn in_digits(digits: &[u8], radix: u32) -> Result<i64, Reason> {
    let text = std::str::from_utf8(digits).map_err(|_| Reason::NoNumber)?;
    i64::from_str_radix(text, radix).map_err(|_| Reason::NoNumber)
}

fn folded(octets: &[u8], fold: Fold) -> Vec<u8> {
    match fold {
        Fold::Keep => octets.to_vec(),
        Fold::Upper => octets.to_ascii_uppercase(),
        Fold::Lower => octets.to_ascii_lowercase(),
    }
}

/// A value without the spaces and tabs at both ends (RFC 9110 §5.5).
fn without_blanks(octets: &[u8]) -> &[u8] {
    let solid = |octet: &u8| !Class::Blank.contains(*octet);
    let Some(first) = octets.iter().position(solid) else { return &[] };
    let last = octets.iter().rposition(solid).unwrap_or(first);
    octets.get(first..=last).unwrap_or_default()
}

fn converted(octets: &[u8], convert: Convert) -> Result<Value, Reason> {
    match convert {
        Convert::Keep => Ok(Value::Octets(octets.to_vec())),
        Convert::Lower => Ok(Value::Octets(octets.to_ascii_lowercase())),
        Convert::Upper => Ok(Value::Octets(octets.to_ascii_uppercase())),
        Convert::Decimal if octets.iter().all(u8::is_ascii_digit) => {
            in_digits(octets, 10).map(Value::Int)
        }
        Convert::Decimal => Err(Reason::NoNumber),
        Convert::Uint => {
            let value = (octets.len() < 8).then(|| number(octets, Order::Big));
            let value = value.and_then(|value| i64::try_from(value).ok());
            value.map(Value::Int).ok_or(Reason::NoNumber)
        }
    }
}
