//! Implementation of each op.

use super::run::{Reader, length};
use super::state::Region;
use super::{Arm, Empty, NumberTarget, OpIndex, SetId, SideRange, SlotTest, Store, Then, index};
use crate::checksum::PartialChecksum;
use crate::malformed::MalformedReason;
use crate::stream::StreamReader;
use crate::view::{Held, column_within, find, fits, within};
use gatewright_lang::ir::{
    Checksum, Class, ExtendCase, Fold, Length, Order, Slot, SlotId, SlotType, StreamFraming,
};
use std::ops::Range;

/// Why no further op runs. It is as small as a [`MalformedReason`], so that an op's result is small too.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Halt {
    Malformed(MalformedReason),
    /// More octets are needed.
    Wait,
    /// The message is complete.
    Accept,
    /// The stream begins, and has no reader yet.
    There,
}

impl From<MalformedReason> for Halt {
    fn from(reason: MalformedReason) -> Self {
        Self::Malformed(reason)
    }
}

/// Result of an op. After success the next op follows, unless the op set another.
pub(super) type Took = Result<(), Halt>;

/// A complete line.
pub(super) struct CompleteLine<'l> {
    /// Its text without the line's end.
    pub(super) text: &'l [u8],
    /// Its length in octets, with the line's end.
    pub(super) whole: usize,
}

/// Ops on octets.
impl<'r> Reader<'r> {
    pub(super) fn literal(&mut self, wanted: &[u8], fold: bool) -> Took {
        let window = self.window();
        if window.starts_with(wanted) {
            self.at += wanted.len();
            return Ok(());
        }
        let same =
            |(one, other): (&u8, &u8)| one == other || (fold && one.eq_ignore_ascii_case(other));
        if !window.iter().zip(wanted).all(same) {
            return Err(MalformedReason::Unexpected.into());
        }
        let taken = self.take(wanted.len())?;
        self.at += taken.len();
        Ok(())
    }

    pub(super) fn until(&mut self, delimiter: &[u8], max: u32, store: Store) -> Took {
        let window = self.window();
        let longest = index(max).saturating_add(delimiter.len());
        let near = window.get(..longest).unwrap_or(window);
        let Some(at) = find(near, delimiter) else {
            return match () {
                () if near.len() == longest => Err(too_long(max).into()),
                () if self.whole => Err(MalformedReason::Beyond.into()),
                () => Err(Halt::Wait),
            };
        };
        self.store(near.get(..at).unwrap_or_default(), store)?;
        self.at += at + delimiter.len();
        Ok(())
    }

    /// The longest run of octets, as far as it is certain; one octet above `max` is enough.
    pub(super) fn run_of(&mut self, set: Set, min: u32, max: u32, store: Store) -> Took {
        let window = self.window();
        let near = window.get(..index(max).saturating_add(1)).unwrap_or(window);
        let length = set.run_length(near);
        let over = !fits(length, max);
        if length == near.len() && !self.whole && !over {
            return Err(Halt::Wait);
        }
        if over {
            return Err(too_long(max).into());
        }
        if length < index(min) {
            return Err(MalformedReason::TooShort { min }.into());
        }
        self.store(near.get(..length).unwrap_or(near), store)?;
        self.at += length;
        Ok(())
    }

    pub(super) fn take_field(&mut self, length: Length, max: u32, store: Store) -> Took {
        let octets = match length {
            Length::Fixed(octets) => u64::from(octets),
            Length::Slot(slot) => self.measure(slot, 0, max)?,
            Length::Rest => match self.state.region.end {
                Some(end) => end.saturating_sub(self.position()),
                None if !fits(self.input.len().saturating_sub(self.at), max) => {
                    return Err(too_long(max).into());
                }
                None => return Err(Halt::Wait),
            },
        };
        if octets > u64::from(max) {
            return Err(too_long(max).into());
        }
        let octets = usize::try_from(octets).unwrap_or(usize::MAX);
        let taken = self.take(octets)?;
        self.store(taken, store)?;
        self.at += taken.len();
        Ok(())
    }

    /// The next `octets` octets, without using them.
    fn take(&self, octets: usize) -> Result<&'r [u8], Halt> {
        match self.window().get(..octets) {
            Some(taken) => Ok(taken),
            None if self.whole || self.beyond(octets) => Err(MalformedReason::Beyond.into()),
            None => Err(Halt::Wait),
        }
    }

    /// Whether this many octets would exceed the region's end, arrived or not.
    fn beyond(&self, octets: usize) -> bool {
        let end = self.position().saturating_add(length(octets));
        self.state.region.end.is_some_and(|of| end > of)
    }

    fn store(&mut self, octets: &[u8], store: Store) -> Took {
        let Some(into) = store.into else { return Ok(()) };
        if octets.is_empty() && store.empty != Empty::Value {
            return self.leave_absent(into, store.empty);
        }
        if !fits(octets.len(), store.max) {
            return Err(MalformedReason::Bounds.into());
        }
        self.state.view.put_octets(into, octets, store.fold);
        self.state.view.settle(into);
        Ok(())
    }

    fn leave_absent(&mut self, slot: SlotId, empty: Empty) -> Took {
        if empty == Empty::Missing && self.state.view.held(slot).is_none() {
            return Err(MalformedReason::Missing.into());
        }
        self.state.view.settle(slot);
        Ok(())
    }

    pub(super) fn one_of(&mut self, set: &[u8], store: Store, optional: bool) -> Took {
        let found = match self.window().get(..1) {
            None if !self.whole => return Err(Halt::Wait),
            found => found.filter(|found| found.iter().all(|octet| set.contains(octet))),
        };
        match (found, store.into) {
            (Some(octet), _) => {
                self.store(octet, store)?;
                self.at += 1;
            }
            (None, Some(into)) if optional => self.leave_absent(into, store.empty)?,
            (None, _) => return Err(MalformedReason::Unexpected.into()),
        }
        Ok(())
    }
}

/// Ops on numbers.
impl Reader<'_> {
    pub(super) fn words(
        &mut self,
        octets: u8,
        fields: SideRange,
        (before, settles): (SetId, SetId),
        next: OpIndex,
    ) {
        let octets = usize::from(octets);
        let Some(word) = self.window().get(..octets).map(word_of) else { return };
        if self.would_be_there(before) || self.bit_fields(word, fields).is_err() {
            return;
        }
        self.settle(settles);
        self.at += octets;
        self.go(next);
    }

    pub(super) fn word(
        &mut self,
        octets: u8,
        order: Order,
        fields: SideRange,
        settles: SetId,
    ) -> Took {
        let taken = self.take(usize::from(octets))?;
        self.bit_fields(number(taken, order), fields)?;
        self.settle(settles);
        self.at += taken.len();
        Ok(())
    }

    fn bit_fields(&mut self, word: u64, fields: SideRange) -> Took {
        for field in fields.of(&self.code.fields) {
            let value = field.number_in(word);
            match field.then {
                Then::Store(into) => self.state.view.put_int(into, value),
                Then::StoreWithin(into, low, high) if low <= value && value <= high => {
                    self.state.view.put_int(into, value);
                }
                Then::StoreWithin(..) => return Err(MalformedReason::Bounds.into()),
                Then::Expect(expect) if expect == value => {}
                Then::Expect(_) => return Err(MalformedReason::Unexpected.into()),
            }
        }
        Ok(())
    }

    pub(super) fn counted(
        &mut self,
        (octets, less): (u8, u32),
        max: u32,
        counts: SlotId,
        into: SlotId,
        next: OpIndex,
    ) {
        let Some((head, rest)) = self.window().split_at_checked(usize::from(octets)) else {
            return;
        };
        let count = number(head, Order::Big);
        let wanted = count.checked_sub(u64::from(less)).filter(|of| *of <= u64::from(max));
        let wanted = wanted.and_then(|of| usize::try_from(of).ok());
        let (Some(field), Ok(count)) =
            (wanted.and_then(|wanted| rest.get(..wanted)), i64::try_from(count))
        else {
            return;
        };
        let view = &mut self.state.view;
        view.put_int(counts, count);
        view.settle(counts);
        view.put_octets(into, field, Fold::Keep);
        view.settle(into);
        self.at += head.len() + field.len();
        self.go(next);
    }

    pub(super) fn put_number(&mut self, number: NumberTarget, value: i64) -> Took {
        let bounds = self.code.bounds.get(index(number.bounds));
        if bounds.is_some_and(|(low, high)| value < *low || value > *high) {
            return Err(MalformedReason::Bounds.into());
        }
        self.state.view.put_int(number.into, value);
        self.state.view.settle(number.into);
        Ok(())
    }

    /// A length given by another field, less the octets that it already counts; an absent one is 0.
    fn measure(&self, slot: SlotId, less: u32, max: u32) -> Result<u64, Halt> {
        let length = self.state.view.int(slot).unwrap_or(i64::from(less));
        let length = length.saturating_sub(i64::from(less));
        let length = u64::try_from(length).map_err(|_| MalformedReason::Bounds)?;
        if length > u64::from(max) { Err(too_long(max).into()) } else { Ok(length) }
    }

    pub(super) fn digits(
        &mut self,
        radix: u8,
        (min, max): (u32, u32),
        into: NumberTarget,
        empty: Empty,
    ) -> Took {
        let window = self.window();
        let near = window.get(..index(max)).unwrap_or(window);
        let is_digit = |octet: &&u8| digit(**octet, radix).is_some();
        let count = near.iter().take_while(is_digit).count();
        if count == near.len() && near.len() < index(max) && !self.whole {
            return Err(Halt::Wait);
        }
        if count < index(min) {
            return Err(MalformedReason::TooShort { min }.into());
        }
        let digits = near.get(..count).unwrap_or_default();
        if count > 0 {
            self.put_number(into, in_digits(digits, radix).ok_or(MalformedReason::NoNumber)?)?;
        } else {
            self.leave_absent(into.into, empty)?;
        }
        self.at += count;
        Ok(())
    }

    pub(super) fn varint(&mut self, max: u8, into: NumberTarget) -> Took {
        let window = self.window();
        let near = window.get(..usize::from(max)).unwrap_or(window);
        let Some(last) = near.iter().position(|octet| octet & 0x80 == 0) else {
            return match () {
                () if near.len() == usize::from(max) => Err(too_long(u32::from(max)).into()),
                () if self.whole => Err(MalformedReason::Beyond.into()),
                () => Err(Halt::Wait),
            };
        };
        let taken = near.get(..=last).unwrap_or(near);
        let value = taken.iter().rev().try_fold(0_i64, |value, octet| {
            value.checked_mul(128)?.checked_add(i64::from(octet & 0x7f))
        });
        self.put_number(into, value.ok_or(MalformedReason::Bounds)?)?;
        self.at += taken.len();
        Ok(())
    }

    pub(super) fn extend(&mut self, into: NumberTarget, cases: &[ExtendCase]) -> Took {
        let value = self.state.view.int(into.into).ok_or(MalformedReason::Missing)?;
        let Some(case) = cases.iter().find(|case| case.value == value) else {
            let reserved = cases.last().is_some_and(|case| value > case.value);
            return if reserved { Err(MalformedReason::Bounds.into()) } else { Ok(()) };
        };
        let taken = self.take(usize::from(case.octets))?;
        let more = i64::try_from(number(taken, Order::Big)).map_err(|_| MalformedReason::Bounds)?;
        self.put_number(into, more.saturating_add(case.add))?;
        self.at += taken.len();
        Ok(())
    }

    pub(super) fn sum(&mut self, into: NumberTarget, add: SlotId) -> Took {
        let add = self.state.view.int(add).unwrap_or(0);
        let sum = self.state.view.int(into.into).unwrap_or(0).saturating_add(add);
        self.put_number(into, sum)?;
        Ok(())
    }
}

/// Ops on regions.
impl<'r> Reader<'r> {
    /// The line that begins here, if its end has arrived and it has at most `max` octets.
    pub(super) fn line(&self, max: u32) -> Option<CompleteLine<'r>> {
        let window = self.window();
        let near = window.get(..index(max)).unwrap_or(window);
        let newline = memchr::memchr(b'\n', near)?;
        let line = near.get(..newline)?;
        Some(CompleteLine { text: line.strip_suffix(b"\r").unwrap_or(line), whole: newline + 1 })
    }

    pub(super) fn enter_line(&mut self, max: u32) -> Took {
        let Some(line) = self.line(max) else {
            return match self.window().len() {
                here if here >= index(max) => Err(too_long(max).into()),
                _ if self.whole => Err(MalformedReason::Beyond.into()),
                _ => Err(Halt::Wait),
            };
        };
        self.enter_region_of(&line);
        Ok(())
    }

    fn enter_region_of(&mut self, line: &CompleteLine<'_>) {
        let tail = if line.whole > line.text.len() + 1 { 2 } else { 1 };
        let end = self.position().saturating_add(length(line.text.len()));
        self.enter(Region { end: Some(end), tail });
    }

    /// Enters a line with all following lines that begin with a blank; the octet after each line
    /// tells.
    pub(super) fn enter_folded_line(&mut self, max: u32) -> Took {
        let window = self.window();
        let near = window.get(..index(max)).unwrap_or(window);
        let mut from = 0;
        loop {
            let behind = near.get(from..).unwrap_or_default();
            let Some(newline) = memchr::memchr(b'\n', behind) else {
                return match () {
                    () if near.len() == index(max) => Err(too_long(max).into()),
                    () if self.whole => Err(MalformedReason::Beyond.into()),
                    () => Err(Halt::Wait),
                };
            };
            from += newline + 1;
            let line = near.get(..from - 1).unwrap_or_default();
            let line = CompleteLine { text: line.strip_suffix(b"\r").unwrap_or(line), whole: from };
            match window.get(from) {
                Some(b' ' | b'\t') if !line.text.is_empty() => {}
                None if !line.text.is_empty() && !self.whole && !self.last => {
                    return Err(Halt::Wait);
                }
                _ => {
                    self.enter_region_of(&line);
                    return Ok(());
                }
            }
        }
    }

    pub(super) fn enter_counted(&mut self, length: SlotId, less: u32, max: u32) -> Took {
        let length = self.measure(length, less, max)?;
        let end = self.position().saturating_add(length);
        if self.state.region.end.is_some_and(|outer| end > outer) {
            return Err(MalformedReason::Beyond.into());
        }
        self.enter(Region { end: Some(end), tail: 0 });
        Ok(())
    }

    fn enter(&mut self, region: Region) {
        self.state.outer.push(core::mem::replace(&mut self.state.region, region));
        self.look_for_edge();
    }

    fn go_out(&mut self) {
        if let Some(outer) = self.state.outer.pop() {
            self.state.region = outer;
        }
        self.look_for_edge();
    }

    pub(super) fn leave(&mut self) -> Took {
        if !self.whole || self.at != self.edge {
            return Err(MalformedReason::LeftOver.into());
        }
        let end = self.at.saturating_add(usize::from(self.state.region.tail));
        if end > self.input.len() {
            return Err(Halt::Wait);
        }
        self.go_out();
        self.at = end;
        Ok(())
    }

    pub(super) fn begin_check(&mut self, by: Checksum) -> Took {
        let outer = self.state.region.end;
        let end = outer.map(|end| end.checked_sub(u64::from(by.octets())));
        if end.is_some_and(|end| end.is_none_or(|end| end < self.position())) {
            return Err(MalformedReason::Beyond.into());
        }
        self.enter(Region { end: end.flatten(), tail: 0 });
        self.state.check = Some(PartialChecksum::new(by));
        self.checked = self.at;
        Ok(())
    }

    pub(super) fn end_check(&mut self, by: Checksum) -> Took {
        let outer = self.state.outer.last().and_then(|region| region.end);
        let octets = usize::from(by.octets());
        if outer.is_some_and(|outer| self.position().saturating_add(length(octets)) > outer) {
            return Err(MalformedReason::Beyond.into());
        }
        let end = self.at.saturating_add(octets);
        let Some(found) = self.input.get(self.at..end) else { return Err(Halt::Wait) };
        let check = self.take_check().ok_or(MalformedReason::NoCase)?.octets();
        if check.get(..octets) != Some(found) {
            let mut there = [0; 4];
            there.iter_mut().zip(found).for_each(|(to, octet)| *to = *octet);
            let (found, computed) = (u32::from_be_bytes(there), u32::from_be_bytes(check));
            return Err(MalformedReason::Check { by, found, computed }.into());
        }
        self.go_out();
        self.at = end;
        Ok(())
    }

    pub(super) fn peek(&mut self, wanted: &[u8], then: OpIndex) -> Took {
        let window = self.window();
        if window.starts_with(wanted) {
            self.at += wanted.len();
            self.go(then);
            return Ok(());
        }
        let may_come = !self.whole && wanted.starts_with(window);
        if may_come { Err(Halt::Wait) } else { Ok(()) }
    }

    pub(super) fn accept(&self) -> Took {
        let all = !self.code.datagram || (self.whole && self.at == self.edge);
        if all { Err(Halt::Accept) } else { Err(MalformedReason::LeftOver.into()) }
    }
}

/// Ops on slots.
impl Reader<'_> {
    pub(super) fn switch(
        &mut self,
        slot: SlotId,
        arms: SideRange,
        settles: SetId,
        otherwise: OpIndex,
    ) {
        let arms = arms.of(&self.code.arms);
        let within = |value| arms.iter().find(|arm| arm.low <= value && value <= arm.high);
        let (settles, then) = match self.state.view.int(slot).and_then(within) {
            Some(Arm { then, settles, .. }) => (*settles, *then),
            None => (settles, otherwise),
        };
        if settles != SetId::EMPTY {
            self.settle(settles);
        }
        self.go(then);
    }

    pub(super) fn holds(&self, slot: SlotId, test: SlotTest) -> bool {
        match test {
            SlotTest::Present => self.state.view.held(slot).is_some(),
            SlotTest::Octets(text) => {
                self.state.view.octets(slot) == Some(text.of(&self.code.octets))
            }
            SlotTest::Empty => match self.state.view.held(slot) {
                Some(Held::Octets(octets)) => octets.is_empty(),
                Some(Held::List(rows)) => rows.is_empty(),
                _ => false,
            },
        }
    }

    /// Unfolds a slot's octets, as if the line had never been folded.
    pub(super) fn unfold(&mut self, slot: SlotId) {
        let octets = self.state.view.octets(slot).filter(|octets| octets.contains(&b'\n'));
        if let Some(plain) = octets.map(unfolded) {
            self.state.view.put_octets(slot, &plain, Fold::Keep);
        }
    }

    pub(super) fn count(&mut self, counter: u8, max: u32) -> Took {
        let count =
            self.state.counts.get_mut(usize::from(counter)).ok_or(MalformedReason::NoCase)?;
        *count = count.saturating_add(1);
        if *count > max { Err(too_long(max).into()) } else { Ok(()) }
    }

    pub(super) fn copy(&mut self, from: SlotId, into: SlotId) -> Took {
        let about = self.message.slot(into).ok_or(MalformedReason::NoCase)?;
        match self.state.view.held(from) {
            Some(value) if !within(about, value) => return Err(MalformedReason::Bounds.into()),
            Some(_) => self.state.view.copy(from, into),
            None if is_needed(about) => self.leave_absent(into, Empty::Missing)?,
            None => {}
        }
        self.state.view.settle(into);
        Ok(())
    }

    pub(super) fn append_row(&mut self, list: SlotId, row: &[SlotId]) -> Took {
        let view = &mut self.state.view;
        if row.iter().any(|slot| view.held(*slot).is_none()) {
            return Err(MalformedReason::Missing.into());
        }
        let about = self.message.slot(list).ok_or(MalformedReason::NoCase)?;
        let SlotType::List { columns, max } = &about.ty else {
            return Err(MalformedReason::NoCase.into());
        };
        let fit = |((_, ty), slot): (&(String, _), &SlotId)| {
            view.held(*slot).is_some_and(|value| column_within(*ty, value))
        };
        if row.len() != columns.len() || !columns.iter().zip(row).all(fit) {
            return Err(MalformedReason::Bounds.into());
        }
        if view.rows(list).len() >= index(*max) {
            return Err(too_long(*max).into());
        }
        view.push_copies(list, row);
        Ok(())
    }
}

/// Ops on streams.
impl Reader<'_> {
    pub(super) fn stream(
        &mut self,
        into: SlotId,
        framing: StreamFraming,
        max: Option<u32>,
    ) -> Took {
        self.announce_stream(into, framing, max)?;
        let window = self.window();
        let last = self.whole || (self.state.region.end.is_none() && self.last);
        let Some(out) = self.out.as_deref_mut() else { return Err(Halt::There) };
        let Some(mut reader) = self.state.stream.take() else {
            return Err(MalformedReason::NoCase.into());
        };
        let looked = reader.read(self.program, window, last, out)?;
        self.at += looked.used.min(window.len());
        if looked.done {
            return Ok(());
        }
        self.state.stream = Some(reader);
        if self.whole { Err(MalformedReason::Beyond.into()) } else { Err(Halt::Wait) }
    }

    /// Announces a stream, of which nothing is read yet.
    fn announce_stream(&mut self, into: SlotId, framing: StreamFraming, max: Option<u32>) -> Took {
        if self.state.stream.is_some() {
            return Ok(());
        }
        let length = match framing {
            StreamFraming::Counted(slot) => {
                let length = self.state.view.int(slot).ok_or(MalformedReason::Missing)?;
                u64::try_from(length).map_err(|_| MalformedReason::Bounds)?
            }
            _ => 0,
        };
        if let Some(max) = max.filter(|max| length > u64::from(*max)) {
            return Err(too_long(max).into());
        }
        self.state.view.put_stream(into);
        self.state.view.settle(into);
        self.state.stream = Some(StreamReader::new(framing, length, max));
        Ok(())
    }
}

/// Whether a well-formed message must have a value for a slot.
pub(super) const fn is_needed(about: &Slot) -> bool {
    !about.optional && !about.scratch && !matches!(about.ty, SlotType::List { .. })
}

const fn too_long(max: u32) -> MalformedReason {
    MalformedReason::TooLong { max }
}

/// Octets as a number; at most eight count.
pub(super) fn number(octets: &[u8], order: Order) -> u64 {
    let add = |sum: u64, octet: &u8| sum << 8 | u64::from(*octet);
    match order {
        Order::Big => octets.iter().fold(0, add),
        Order::Little => octets.iter().rev().fold(0, add),
    }
}

/// Octets in network order as a number, read by whole words where possible.
#[inline]
pub(super) fn word_of(octets: &[u8]) -> u64 {
    match *octets {
        [one] => u64::from(one),
        [one, two] => u64::from(u16::from_be_bytes([one, two])),
        [one, two, three, four] => u64::from(u32::from_be_bytes([one, two, three, four])),
        _ => match <[u8; 8]>::try_from(octets) {
            Ok(eight) => u64::from_be_bytes(eight),
            Err(_) => number(octets, Order::Big),
        },
    }
}

fn digit(octet: u8, radix: u8) -> Option<u8> {
    let digit = match octet {
        b'0'..=b'9' => octet - b'0',
        b'a'..=b'z' => octet - b'a' + 10,
        b'A'..=b'Z' => octet - b'A' + 10,
        _ => return None,
    };
    (digit < radix).then_some(digit)
}

/// The number that the digits express; `None` if there is no digit, another octet, or too many
/// digits.
pub(super) fn in_digits(digits: &[u8], radix: u8) -> Option<i64> {
    let add = |sum: i64, octet: &u8| {
        sum.checked_mul(i64::from(radix))?.checked_add(i64::from(digit(*octet, radix)?))
    };
    digits.iter().try_fold(0, add).filter(|_| !digits.is_empty())
}

/// The octets with one space in place of each line's end and the blanks around it (RFC 3261
/// §7.3.1).
fn unfolded(octets: &[u8]) -> Vec<u8> {
    let blank = |octet: &u8| Class::Blank.contains(*octet);
    let mut plain: Vec<u8> = Vec::with_capacity(octets.len());
    let mut rest = octets;
    while let Some((line, behind)) =
        memchr::memchr(b'\n', rest).and_then(|at| Some((rest.get(..at)?, rest.get(at + 1..)?)))
    {
        plain.extend(line.strip_suffix(b"\r").unwrap_or(line));
        plain.truncate(plain.iter().rposition(|octet| !blank(octet)).map_or(0, |last| last + 1));
        plain.push(b' ');
        let skipped = behind.iter().position(|octet| !blank(octet)).unwrap_or(behind.len());
        rest = behind.get(skipped..).unwrap_or_default();
    }
    plain.extend(rest);
    plain
}

/// The range of a value without the spaces and tabs at both ends (RFC 9110 §5.5).
pub(super) fn solid(octets: &[u8]) -> Range<usize> {
    let solid = |octet: &u8| !Class::Blank.contains(*octet);
    let first = octets.iter().position(solid).unwrap_or(octets.len());
    first..octets.iter().rposition(solid).map_or(first, |last| last + 1)
}

/// For each octet, the sets that contain it.
static SETS: [u8; 256] = sets();

#[expect(clippy::indexing_slicing, reason = "computed when this is compiled")]
const fn sets() -> [u8; 256] {
    let mut sets = [0; 256];
    let mut octet = 0_u8;
    loop {
        let mut at = 0;
        while at < CLASSES.len() {
            if CLASSES[at].contains(octet) {
                sets[octet as usize] |= Set::of(CLASSES[at]).0;
            }
            at += 1;
        }
        if matches!(octet, b' ' | b'\t' | b'\r' | b'\n') {
            sets[octet as usize] |= Set::FOLD.0;
        }
        if octet == u8::MAX {
            return sets;
        }
        octet += 1;
    }
}

const CLASSES: [Class; 5] = [Class::Space, Class::Blank, Class::Token, Class::Word, Class::Digit];

/// A set of octets: its bit in [`SETS`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Set(u8);

impl Set {
    pub(super) const BLANK: Self = Self::of(Class::Blank);
    /// The octets that separate words where a line is folded.
    pub(super) const FOLD: Self = Self(32);

    pub(super) const fn of(class: Class) -> Self {
        Self(match class {
            Class::Space => 1,
            Class::Blank => 2,
            Class::Token => 4,
            Class::Word => 8,
            Class::Digit => 16,
        })
    }

    #[inline]
    fn has(self, octet: u8) -> bool {
        SETS.get(usize::from(octet)).is_some_and(|sets| sets & self.0 != 0)
    }

    /// Number of leading octets in the set.
    #[inline]
    pub(super) fn run_length(self, octets: &[u8]) -> usize {
        let mut rest = octets;
        // Four at once take little more than one.
        while let Some(([one, two, three, four], behind)) = rest.split_first_chunk()
            && self.has(*one) & self.has(*two) & self.has(*three) & self.has(*four)
        {
            rest = behind;
        }
        while let Some((one, behind)) = rest.split_first()
            && self.has(*one)
        {
            rest = behind;
        }
        octets.len() - rest.len()
    }
}
