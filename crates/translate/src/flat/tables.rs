//! Tables: entries by name or number, and attempts that read several entries at once.
//!
//! Texts and option lists mostly consist of entries that no field uses; their cost dominates the
//! cost of a message.

use super::compile::Compiler;
use super::ops::{Set, number, solid};
use super::run::Reader;
use super::straight::{Pass, Rest};
use super::{ValueTarget, index, narrow};
use crate::malformed::MalformedReason;
use crate::view::{Held, View, fits};
use gatewright_lang::ir::{
    Class, ColumnType, Convert, ExtendCase, Fold, Length, Message, Order, ParseOp, ParseStep,
    Program, SlotId, SlotType, TableKey, TableRow,
};
use std::ops::Range;

/// The known keys of a table. Names are found by a hash of their length, first and last letter, in
/// a hash table that is at least three quarters empty. An unknown name is skipped after one lookup.
#[derive(Clone, Debug)]
pub(super) struct NameTable {
    /// Names in lower case.
    names: Vec<(Vec<u8>, ValueTarget)>,
    /// Index into `names` plus one; 0 is an empty slot. The length is a power of two.
    slots: Vec<u32>,
    numbers: Vec<(i64, ValueTarget)>,
}

impl NameTable {
    pub(super) fn of(program: &Program, message: &Message, entries: &[TableRow]) -> Self {
        let size = entries.len().saturating_mul(4).max(4).next_power_of_two();
        let mut table = Self { names: Vec::new(), slots: vec![0; size], numbers: Vec::new() };
        for entry in entries {
            let target = target(message, entry);
            match entry.key {
                TableKey::Int(number) => table.numbers.push((number, target)),
                TableKey::Octets(name) => table.insert(program.literal(name), target),
            }
        }
        table
    }

    /// Adds a name; the first of two entries with one name counts.
    fn insert(&mut self, name: &[u8], target: ValueTarget) {
        let wanted = narrow(self.names.len()).saturating_add(1);
        let mut at = self.hash(name);
        while let Some(slot) = self.slots.get_mut(at) {
            if *slot == 0 {
                *slot = wanted;
                self.names.push((name.to_ascii_lowercase(), target));
                return;
            }
            let known = self.names.get(index(*slot).wrapping_sub(1));
            if known.is_some_and(|(known, _)| is_name(name, known)) {
                return;
            }
            at = at.wrapping_add(1) & self.slots.len().wrapping_sub(1);
        }
    }

    fn hash(&self, name: &[u8]) -> usize {
        let letter = |octet: Option<&u8>| octet.map_or(0, |octet| usize::from(octet | 0x20));
        let hash = name.len() ^ letter(name.first()) << 3 ^ letter(name.last());
        hash & self.slots.len().wrapping_sub(1)
    }

    fn named(&self, name: &[u8]) -> Option<&ValueTarget> {
        let mut at = self.hash(name);
        loop {
            let slot = self.slots.get(at).copied().filter(|slot| *slot > 0)?;
            let (known, target) = self.names.get(index(slot).wrapping_sub(1))?;
            if is_name(name, known) {
                return Some(target);
            }
            at = at.wrapping_add(1) & self.slots.len().wrapping_sub(1);
        }
    }

    fn numbered(&self, number: i64) -> Option<&ValueTarget> {
        self.numbers.iter().find(|(known, _)| *known == number).map(|(_, target)| target)
    }

    /// Whether an entry's value goes to a slot.
    fn fills(&self, slot: SlotId) -> bool {
        let (named, numbered) = (self.names.iter(), self.numbers.iter());
        let mut targets = named.map(|(_, of)| of).chain(numbered.map(|(_, of)| of));
        targets.any(|target| target.into == slot)
    }

    /// Stores the value of one slot under the key in another.
    pub(super) fn file(
        &self,
        view: &mut View,
        key: SlotId,
        value: SlotId,
    ) -> Result<(), MalformedReason> {
        let (target, text) = match view.held(key).ok_or(MalformedReason::Missing)? {
            Held::Octets(name) => (self.named(name), true),
            Held::Int(number) => (self.numbered(number), false),
            _ => (None, false),
        };
        let Some(target) = target else { return Ok(()) };
        let octets = view.octets(value).ok_or(MalformedReason::Missing)?;
        let part = if text { solid(octets) } else { 0..octets.len() };
        let octets = octets.get(part.clone()).unwrap_or_default();
        match folding(target.convert) {
            Some(fold) => {
                target.check(view, length(octets))?;
                view.put_part(target.into, value, part, fold, target.rows.is_some());
            }
            None => target.put_number(view, target.number(octets)?)?,
        }
        Ok(())
    }
}

/// Whether a name equals one that is kept in lower case.
fn is_name(name: &[u8], known: &[u8]) -> bool {
    let same = |(one, other): (&u8, &u8)| one.to_ascii_lowercase() == *other;
    name.len() == known.len() && name.iter().zip(known).all(same)
}

impl ValueTarget {
    /// Stores an entry's value in its target.
    fn put(&self, view: &mut View, octets: &[u8]) -> Result<(), MalformedReason> {
        let Some(fold) = folding(self.convert) else {
            return self.put_number(view, self.number(octets)?);
        };
        self.check(view, length(octets))?;
        match self.rows {
            Some(_) => view.push_octets(self.into, octets, fold),
            None => view.put_octets(self.into, octets, fold),
        }
        Ok(())
    }

    /// Stores an entry's value, which is a range of the message, in its target.
    fn put_range(
        &self,
        view: &mut View,
        octets: &[u8],
        range: &Range<usize>,
    ) -> Result<(), MalformedReason> {
        match folding(self.convert) {
            Some(Fold::Keep) => self.check(view, length(octets))?,
            Some(_) => return Err(MalformedReason::NoCase),
            None => return self.put_number(view, self.number(octets)?),
        }
        match self.rows {
            Some(_) => view.push_range(self.into, range),
            None => view.assign_range(self.into, range),
        }
        Ok(())
    }

    /// The number that octets are.
    fn number(&self, octets: &[u8]) -> Result<i64, MalformedReason> {
        let only_digits = !octets.is_empty() && octets.iter().all(u8::is_ascii_digit);
        match converted(octets, self.convert) {
            // RFC 9110 §8.6: "a recipient MUST anticipate potentially large decimal numerals".
            Err(_) if self.is_length && only_digits => Err(MalformedReason::TooLarge),
            number => number,
        }
    }

    fn put_number(&self, view: &mut View, value: i64) -> Result<(), MalformedReason> {
        self.check(view, value)?;
        match self.rows {
            Some(_) => view.push_int(self.into, value),
            None => view.put_int(self.into, value),
        }
        Ok(())
    }

    /// Whether the target accepts a number, or octets of that length.
    fn check(&self, view: &View, value: i64) -> Result<(), MalformedReason> {
        if self.rows.is_none() && view.is_set(self.into) {
            return Err(MalformedReason::Twice);
        }
        if value < self.low || value > self.high {
            let is_octets = folding(self.convert).is_some();
            return Err(match u32::try_from(self.high) {
                Ok(max) if is_octets => MalformedReason::TooLong { max },
                _ if self.is_length && value > self.high => MalformedReason::TooLarge,
                _ => MalformedReason::Bounds,
            });
        }
        match self.rows {
            Some(max) if view.rows(self.into).len() >= index(max) => {
                Err(MalformedReason::TooLong { max })
            }
            _ => Ok(()),
        }
    }
}

fn length(octets: &[u8]) -> i64 {
    i64::try_from(octets.len()).unwrap_or(i64::MAX)
}

fn target(message: &Message, entry: &TableRow) -> ValueTarget {
    let number = folding(entry.convert).is_none();
    let of = |ty: &ColumnType| match ty {
        ColumnType::Int { low, high } if number => (*low, *high),
        ColumnType::Octets { max } if !number => (0, i64::from(*max)),
        _ => NOTHING,
    };
    let about = message.slot(entry.into).map(|slot| &slot.ty);
    let ((low, high), rows) = match about {
        Some(SlotType::Int { low, high }) => {
            (of(&ColumnType::Int { low: *low, high: *high }), None)
        }
        Some(SlotType::Octets { max }) => (of(&ColumnType::Octets { max: *max }), None),
        Some(SlotType::List { columns, max }) => match columns.as_slice() {
            [(_, column)] => (of(column), Some(*max)),
            _ => (NOTHING, Some(*max)),
        },
        _ => (NOTHING, None),
    };
    let is_length = entry.convert == Convert::Decimal && message.is_length(entry.into);
    ValueTarget { into: entry.into, convert: entry.convert, low, high, rows, is_length }
}

/// Bounds that contain no value.
const NOTHING: (i64, i64) = (1, 0);

/// Case folding of octets that a table converts; `None` if they become a number.
const fn folding(convert: Convert) -> Option<Fold> {
    match convert {
        Convert::Keep => Some(Fold::Keep),
        Convert::Lower => Some(Fold::Lower),
        Convert::Upper => Some(Fold::Upper),
        Convert::Decimal | Convert::Uint => None,
    }
}

/// The number to which a table converts octets.
fn converted(octets: &[u8], convert: Convert) -> Result<i64, MalformedReason> {
    match convert {
        Convert::Decimal => super::ops::in_digits(octets, 10).ok_or(MalformedReason::NoNumber),
        Convert::Uint if octets.len() < 8 => {
            i64::try_from(number(octets, Order::Big)).map_err(|_| MalformedReason::NoNumber)
        }
        _ => Err(MalformedReason::NoNumber),
    }
}

/// Work between two entries, if it only checks that another may follow, counts it, and clears slots
/// that attempts do not set.
#[derive(Clone, Debug, Default)]
struct Between {
    /// First octets that no further entry begins with.
    ends: OctetSet,
    counts: Vec<(u8, u32)>,
    clears: Vec<SlotId>,
}

impl Between {
    /// Number of further entries that the counters allow.
    fn most(&self, counts: &[u32]) -> u32 {
        let left = |(counter, max): &(u8, u32)| {
            counts.get(usize::from(*counter)).map_or(0, |count| max.saturating_sub(*count))
        };
        self.counts.iter().map(left).min().unwrap_or(u32::MAX)
    }

    /// Counts entries.
    fn count(&self, counts: &mut [u32], turns: u32) {
        for (counter, _) in &self.counts {
            if let Some(count) = counts.get_mut(usize::from(*counter)) {
                *count = count.saturating_add(turns);
            }
        }
    }

    fn of(program: &Program, steps: &[ParseStep], sets: impl Fn(SlotId) -> bool) -> Option<Self> {
        let mut between = Self::default();
        for step in steps {
            match &step.op {
                ParseOp::Peek { literal, .. } => {
                    between.ends.insert(*program.literal(*literal).first()?);
                }
                ParseOp::Count { counter, max } => between.counts.push((*counter, *max)),
                ParseOp::Clear { slots } if slots.iter().any(|slot| sets(*slot)) => return None,
                ParseOp::Clear { slots } => between.clears.extend_from_slice(slots),
                _ => {}
            }
        }
        Some(between)
    }
}

/// The parts of the loop that begins here: the work between two entries, and an entry.
fn parts(steps: &[ParseStep]) -> Option<(&[ParseStep], &[ParseStep])> {
    let between = |step: &ParseStep| {
        let op = &step.op;
        matches!(
            op,
            ParseOp::Peek { .. }
                | ParseOp::AtEnd { .. }
                | ParseOp::Count { .. }
                | ParseOp::Clear { .. }
        )
    };
    steps.split_at_checked(steps.iter().position(|step| !between(step))?)
}

/// A set of octets, one bit each.
#[derive(Clone, Copy, Debug, Default)]
struct OctetSet([u64; 4]);

impl OctetSet {
    const fn at(octet: u8) -> (usize, u64) {
        ((octet >> 6) as usize, 1 << (octet & 63))
    }

    fn insert(&mut self, octet: u8) {
        let (word, bit) = Self::at(octet);
        self.0.get_mut(word).into_iter().for_each(|word| *word |= bit);
    }

    #[inline]
    fn contains(&self, octet: u8) -> bool {
        let (word, bit) = Self::at(octet);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }
}

impl Reader<'_> {
    /// Reads entries as long as the next one can be read by the attempt.
    ///
    /// The work between two entries is done once for all of them: no attempt has set the slots that
    /// it clears ([`Between::of`]), and nothing reads the count meanwhile.
    #[inline]
    fn entries(&mut self, between: &Between, mut entry: impl FnMut(&mut Self) -> Option<()>) {
        let most = between.most(&self.state.counts);
        let mut turns = 0;
        while turns < most
            && self.window().first().is_some_and(|first| !between.ends.contains(*first))
            && entry(self).is_some()
        {
            turns += 1;
        }
        if turns > 0 {
            between.count(&mut self.state.counts, turns);
            for slot in &between.clears {
                self.state.view.clear(*slot);
            }
        }
    }
}

/// Entries that are lines with a name, a mark, blanks and a value: `Host: example.com`.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    line_max: u32,
    set: Set,
    name_max: usize,
    mark: u8,
    blanks_max: usize,
    value_max: usize,
    table: NameTable,
    between: Between,
}

impl Lines {
    /// The line entries of the loop that begins at a step, and the step at which one begins.
    pub(super) fn of(compiler: &Compiler<'_>, at: usize) -> Option<(Self, usize)> {
        let (program, message) = (compiler.program, compiler.message);
        let (between, entry) = parts(message.parser.get(at..)?)?;
        let [enter, name, mark, blanks, value, leave, lookup, jump, ..] = entry else {
            return None;
        };
        let ParseOp::EnterLine { max: line_max, folded: false } = enter.op else { return None };
        let ParseOp::Run { class, into: Some(named), min: 1, max: name_max, .. } = name.op else {
            return None;
        };
        let ParseOp::Literal { literal: mark, .. } = mark.op else { return None };
        let [mark] = program.literal(mark) else { return None };
        let ParseOp::Run { class: Class::Blank, into: None, min: 0, max: blanks_max, .. } =
            blanks.op
        else {
            return None;
        };
        let ParseOp::Take {
            length: Length::Rest,
            into: Some(valued),
            max: value_max,
            empty_is_absent: false,
            fold: Fold::Keep,
        } = value.op
        else {
            return None;
        };
        let (ParseOp::Leave, ParseOp::Lookup { key, value, entries }) = (&leave.op, &lookup.op)
        else {
            return None;
        };
        let ParseOp::Jump(next) = jump.op else { return None };
        if next.index() != at || *key != named || *value != valued {
            return None;
        }
        let table = NameTable::of(program, message, entries);
        let entry = at.saturating_add(between.len());
        let read = Self {
            line_max,
            set: Set::of(class),
            name_max: index(name_max),
            mark: *mark,
            blanks_max: index(blanks_max),
            value_max: index(value_max),
            between: Between::of(program, between, |slot| table.fills(slot))?,
            table,
        };
        Some((read, entry))
    }
}

impl Reader<'_> {
    /// Reads line entries, as many as have arrived, up to one that only its ops can judge.
    pub(super) fn lines(&mut self, lines: &Lines) {
        self.entries(&lines.between, |reader| reader.named_line(lines));
    }

    #[inline]
    pub(super) fn named_line(&mut self, lines: &Lines) -> Option<()> {
        let line = self.line(lines.line_max)?;
        let name_length = lines.set.run_length(line.text);
        let (name, behind) = line.text.split_at_checked(name_length)?;
        let (mark, behind) = behind.split_first()?;
        let blanks = Set::BLANK.run_length(behind);
        let value = behind.get(blanks..)?;
        let fit = blanks <= lines.blanks_max && value.len() <= lines.value_max;
        if !fit || *mark != lines.mark || name_length == 0 || name_length > lines.name_max {
            return None;
        }
        if let Some(target) = lines.table.named(name) {
            let value = value.get(solid(value)).unwrap_or_default();
            target.put(&mut self.state.view, value).ok()?;
        }
        self.at += line.whole;
        Some(())
    }
}

/// Entries whose number is given as a difference to the previous one, with an announced length: the
/// options of CoAP (RFC 7252 §3.1).
#[derive(Clone, Debug)]
pub(super) struct DeltaOptions {
    delta: Escapes,
    size: Escapes,
    /// The slot of the running sum, and the maximum of that sum.
    number: SlotId,
    number_max: i64,
    value_max: u32,
    table: NameTable,
    between: Between,
}

impl DeltaOptions {
    /// The numbered entries of the loop that begins at a step, and the step at which one begins.
    pub(super) fn of(compiler: &Compiler<'_>, at: usize) -> Option<(Self, usize)> {
        let (program, message) = (compiler.program, compiler.message);
        let (between, entry) = parts(message.parser.get(at..)?)?;
        let [word, first, second, sum, take, lookup, jump, ..] = entry else {
            return None;
        };
        let ParseOp::Word { octets: 1, fields, .. } = &word.op else { return None };
        let [four, rest] = fields.as_slice() else { return None };
        let nibbles = ((four.shift, four.width), (rest.shift, rest.width)) == ((4, 4), (0, 4))
            && !four.signed
            && !rest.signed;
        let (Some(one), Some(two), None, None) = (four.into, rest.into, four.expect, rest.expect)
        else {
            return None;
        };
        let (
            ParseOp::Extend { slot: delta_of, cases },
            ParseOp::Extend { slot: size_of, cases: more },
        ) = (&first.op, &second.op)
        else {
            return None;
        };
        let ParseOp::Sum { into: number, add } = sum.op else { return None };
        let ParseOp::Take { length: Length::Slot(of), into: Some(taken), max: value_max, .. } =
            take.op
        else {
            return None;
        };
        let ParseOp::Lookup { key, value, entries } = &lookup.op else { return None };
        let ParseOp::Jump(next) = jump.op else { return None };
        let same = (*delta_of, *size_of, add, of) == (one, two, one, two);
        let SlotType::Int { low: ..=0, high: number_max } = message.slot(number)?.ty else {
            return None;
        };
        if next.index() != at || !nibbles || !same || (*key, *value) != (number, taken) {
            return None;
        }
        let table = NameTable::of(program, message, entries);
        let entry = at.saturating_add(between.len());
        let read = Self {
            delta: Escapes::of(cases),
            size: Escapes::of(more),
            number,
            number_max,
            value_max,
            between: Between::of(program, between, |slot| slot == number || table.fills(slot))?,
            table,
        };
        Some((read, entry))
    }

    /// The first entry of `window`: its number, its value, and its length.
    #[inline]
    fn entry<'o>(&self, window: &'o [u8], before: i64) -> Option<(i64, &'o [u8], usize)> {
        let (head, rest) = window.split_first()?;
        let (delta, rest) = self.delta.number(head >> 4, rest)?;
        let (octets, rest) = self.size.number(head & 15, rest)?;
        let (value, rest) = rest.split_at_checked(usize::try_from(octets).ok()?)?;
        let number = before.saturating_add(delta);
        let fit = fits(value.len(), self.value_max) && number <= self.number_max;
        fit.then_some((number, value, window.len().saturating_sub(rest.len())))
    }
}

impl Pass<'_> {
    /// Reads numbered entries, up to one that only the ops can judge.
    pub(super) fn options<'p>(
        &mut self,
        options: &DeltaOptions,
        mut rest: Rest<'p>,
    ) -> Option<Rest<'p>> {
        let between = &options.between;
        let most = between.most(&self.counts);
        let mut number = self.view.int(options.number).unwrap_or(0);
        let mut turns = 0;
        while turns < most
            && rest.octets.first().is_some_and(|first| !between.ends.contains(*first))
            && let Some((next, value, used)) = options.entry(rest.octets, number)
            && let Some(behind) = rest.octets.get(used..)
        {
            rest.octets = behind;
            if let Some(target) = options.table.numbered(next) {
                let end = self.position(rest);
                let range = end.saturating_sub(value.len())..end;
                target.put_range(self.view, value, &range).ok()?;
                self.kept = self.kept.saturating_add(value.len());
            }
            number = next;
            turns += 1;
        }
        if turns > 0 {
            self.view.assign_int(options.number, number);
            between.count(&mut self.counts, turns);
            between.clears.iter().for_each(|slot| self.view.clear(*slot));
        }
        Some(rest)
    }
}

impl Reader<'_> {
    /// Reads numbered entries, as many as have arrived, up to one that only its ops can judge.
    pub(super) fn options(&mut self, options: &DeltaOptions) {
        self.entries(&options.between, |reader| reader.option(options));
    }

    #[inline]
    pub(super) fn option(&mut self, options: &DeltaOptions) -> Option<()> {
        let before = self.state.view.int(options.number).unwrap_or(0);
        let (number, value, used) = options.entry(self.window(), before)?;
        if let Some(target) = options.table.numbered(number) {
            target.put(&mut self.state.view, value).ok()?;
        }
        self.state.view.put_int(options.number, number);
        self.state.view.settle(options.number);
        self.at += used;
        Some(())
    }
}

/// Small numbers, and escapes that announce longer ones.
#[derive(Clone, Debug)]
struct Escapes {
    /// The least escape.
    least: i64,
    cases: Vec<ExtendCase>,
}

impl Escapes {
    fn of(cases: &[ExtendCase]) -> Self {
        let least = cases.iter().map(|case| case.value).min().unwrap_or(i64::MAX);
        Self { least, cases: cases.to_vec() }
    }

    /// The number that a nibble holds or announces; `None` if it has not arrived or is reserved.
    fn number<'o>(&self, nibble: u8, rest: &'o [u8]) -> Option<(i64, &'o [u8])> {
        let value = i64::from(nibble);
        if value < self.least {
            return Some((value, rest));
        }
        let Some(case) = self.cases.iter().find(|case| case.value == value) else {
            let reserved = self.cases.last().is_some_and(|case| value > case.value);
            return (!reserved).then_some((value, rest));
        };
        let (more, rest) = rest.split_at_checked(usize::from(case.octets))?;
        let more = i64::try_from(number(more, Order::Big)).ok()?;
        Some((more.saturating_add(case.add), rest))
    }
}
