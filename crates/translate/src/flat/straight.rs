//! Reads a message that has arrived whole in one pass, without the means to wait.
//!
//! Most messages of binary layouts are in the buffer when their first octet is read. For them, a
//! layout has a second form ([`Straight`]): the same ops without those that only record what is
//! settled, one block for each kind of message, so that the number of a kind is tested once. The
//! pass checks each op's octets once, and copies the message once: the slots are ranges of the
//! copy.
//!
//! It is an attempt for the whole message. If anything is missing or wrong, it clears the view, and
//! the ops begin anew (`run`); they find the error, or wait. So it has no failure of its own, and a
//! message is read alike however it was cut.

use super::ops::{number, word_of};
use super::state::COUNTERS;
use super::{
    BitTarget, Code, Empty, NumberTarget, Op, OpIndex, SideRange, SlotTest, Store, Then, appended,
    index, narrow,
};
use crate::view::View;
use gatewright_lang::ir::{ExtendCase, Fold, Length, Message, Order, SlotId, SlotType};
use std::collections::BTreeMap;

/// Maximum nesting of regions that the pass reads: MQTT has two, Modbus one.
const REGIONS: usize = 4;

/// Unused octets of a message that a view may hold, if the used ones are fewer.
const UNUSED_MAX: usize = 512;

/// Maximum steps of a layout; one with more has no second form.
const STEPS_MAX: usize = 256;

/// Maximum number that a switch tests: kinds are octets at the most.
const NUMBER_MAX: i64 = 255;

/// The second form of a layout.
#[derive(Clone, Debug, Default)]
pub(crate) struct Straight {
    /// The first one begins.
    steps: Vec<Step>,
    /// Where switches lead, number by number from 0 on.
    places: Vec<u32>,
}

/// One step, and the index of the next one.
#[derive(Clone, Copy, Debug)]
struct Step {
    act: Act,
    next: u32,
}

/// The action of a step.
#[derive(Clone, Copy, Debug)]
enum Act {
    Word {
        octets: u8,
        order: Order,
        fields: SideRange,
    },
    PostCounters {
        octets: u8,
        less: u32,
        max: u32,
        counts: SlotId,
        into: SlotId,
    },
    Varint {
        octets_max: u8,
        into: NumberTarget,
    },
    Take {
        length: Length,
        max: u32,
        store: Store,
    },
    Enter {
        length: SlotId,
        less: u32,
        max: u32,
    },
    Leave,
    Options(u32),
    AtEnd {
        then: u32,
    },
    Peek {
        text: SideRange,
        then: u32,
    },
    /// Goes to the place listed for a number; to the next step if none is.
    Switch {
        slot: SlotId,
        places: SideRange,
    },
    Decide {
        slot: SlotId,
        test: SlotTest,
        then: u32,
    },
    /// Another op, which always leads to the next step.
    Other(Op),
    Accept,
}

/// A slot whose number is known to be within a range where a step stands.
type Known = Option<(SlotId, i64, i64)>;

/// Makes the second form, in the order in which a message is read.
struct Builder<'b> {
    code: &'b Code,
    straight: Straight,
    /// The step of each op visited, for what was known there.
    placed: BTreeMap<(usize, Known), u32>,
}

impl Straight {
    /// The second form of a layout; `None` if it has an op that is not for it. Texts have: they
    /// mostly consist of lines that no slot uses, and are read line by line.
    pub(super) fn of(code: &Code) -> Option<Self> {
        let straight = Self::default();
        let mut builder = Builder { code, straight, placed: BTreeMap::new() };
        builder.place(0, None)?;
        Some(builder.straight)
    }
}

impl Builder<'_> {
    /// The step for an op, with those behind it.
    fn place(&mut self, op: usize, known: Known) -> Option<u32> {
        let op = self.skip(op)?;
        if let Some(step) = self.placed.get(&(op, known)) {
            return Some(*step);
        }
        if let (Op::Switch { slot, arms, otherwise, .. }, Some((of, low, high))) =
            (*self.code.ops.get(op)?, known)
            && slot == of
            && let Some(then) = self.same(arms, otherwise, low, high)
        {
            return self.place(then, known);
        }
        let at = self.straight.steps.len();
        if at == STEPS_MAX {
            return None;
        }
        self.straight.steps.push(Step { act: Act::Accept, next: 0 });
        self.placed.insert((op, known), narrow(at));
        let step = self.step(op, known)?;
        *self.straight.steps.get_mut(at)? = step;
        Some(narrow(at))
    }

    /// The first op from here on that does something in the pass.
    fn skip(&self, mut op: usize) -> Option<usize> {
        for _turn in 0..=self.code.ops.len() {
            match self.code.ops.get(op)? {
                Op::Settle(_) | Op::OneOption { .. } => op = op.saturating_add(1),
                Op::Jump(then) => op = index(then.0),
                _ => return Some(op),
            }
        }
        None
    }

    /// The target of a switch for every number of a range, if that is one target.
    fn same(&self, arms: SideRange, otherwise: OpIndex, low: i64, high: i64) -> Option<usize> {
        let first = self.then(arms, otherwise, low);
        let same = (low..=high).all(|number| self.then(arms, otherwise, number) == first);
        same.then(|| index(first.0))
    }

    fn then(&self, arms: SideRange, otherwise: OpIndex, number: i64) -> OpIndex {
        let mut arms = arms.of(&self.code.arms).iter();
        let arm = arms.find(|arm| arm.low <= number && number <= arm.high);
        arm.map_or(otherwise, |arm| arm.then)
    }

    fn step(&mut self, op: usize, known: Known) -> Option<Step> {
        let (of, mut next) = (*self.code.ops.get(op)?, op.saturating_add(1));
        let act = match of {
            Op::Words { octets, fields, next: then, .. } => {
                next = index(then.0);
                Act::Word { octets, order: Order::Big, fields }
            }
            Op::Word { octets, order, fields, .. } => Act::Word { octets, order, fields },
            Op::PostCounters { octets, less, max, length, into, next: then } => {
                next = index(then.0);
                Act::PostCounters { octets, less, max, counts: length.into, into }
            }
            Op::Varint { octets_max, into } => Act::Varint { octets_max, into },
            Op::Take { length, max, store } if store.fold == Fold::Keep => {
                Act::Take { length, max, store }
            }
            Op::EnterCounted { length, less, max } => Act::Enter { length, less, max },
            Op::Leave => Act::Leave,
            Op::Options(options) => Act::Options(options),
            Op::Accept => return Some(Step { act: Act::Accept, next: 0 }),
            Op::AtEnd(then) => Act::AtEnd { then: self.place(index(then.0), known)? },
            Op::Peek { text, then } => Act::Peek { text, then: self.place(index(then.0), known)? },
            Op::Decide { slot, test, then, otherwise } => {
                next = index(otherwise.0);
                Act::Decide { slot, test, then: self.place(index(then.0), known)? }
            }
            Op::Switch { slot, arms, otherwise, .. } => {
                next = index(otherwise.0);
                Act::Switch { slot, places: self.switch(slot, arms, otherwise, known)? }
            }
            Op::Literal { fold: false, .. }
            | Op::Extend { .. }
            | Op::Sum { .. }
            | Op::Count { .. }
            | Op::Clear(_)
            | Op::Append { .. }
            | Op::Require(_)
            // The pass ends here, and the ops read.
            | Op::Lookup { .. }
            | Op::Refuse => Act::Other(of),
            _ => return None,
        };
        let known = known.filter(|(slot, ..)| !self.sets(&act, *slot));
        Some(Step { act, next: self.place(next, known)? })
    }

    /// Whether a slot may have another number after a step.
    fn sets(&self, act: &Act, slot: SlotId) -> bool {
        match *act {
            Act::Word { fields, .. } => fields.of(&self.code.fields).iter().any(|field| {
                matches!(field.then, Then::Store(of) | Then::StoreWithin(of, ..) if of == slot)
            }),
            Act::Varint { into, .. } => into.into == slot,
            Act::PostCounters { counts, .. } => counts == slot,
            Act::Options(_) | Act::Other(_) => true,
            _ => false,
        }
    }

    /// Lists the targets of a switch: one block for each arm.
    fn switch(
        &mut self,
        slot: SlotId,
        arms: SideRange,
        otherwise: OpIndex,
        known: Known,
    ) -> Option<SideRange> {
        let arms = arms.of(&self.code.arms);
        let last = arms.iter().map(|arm| arm.high).max().unwrap_or(0);
        // Numbers below zero are in no list.
        if last > NUMBER_MAX || arms.iter().any(|arm| arm.low < 0 && arm.low <= arm.high) {
            return None;
        }
        let mut places = Vec::new();
        for number in 0..=last {
            let arm = arms.iter().find(|arm| arm.low <= number && number <= arm.high);
            places.push(match arm {
                Some(arm) => {
                    let here = (slot, arm.low, arm.high);
                    self.place(index(arm.then.0), known.or(Some(here)))?
                }
                None => self.place(index(otherwise.0), known)?,
            });
        }
        Some(appended(&mut self.straight.places, places))
    }
}

/// Reads the message that begins with `input` into a view of which no slot is set, if it is there
/// whole and well-formed; returns its length. Otherwise no slot of the view is set again.
pub(crate) fn read(
    (straight, code, message): (&Straight, &Code, &Message),
    view: &mut View,
    (input, last): (&[u8], bool),
) -> Option<usize> {
    view.begin_ranges();
    let bounded = code.datagram && last;
    let (outer, counts) = ([0; REGIONS], [0; COUNTERS]);
    let mut pass = Pass { straight, code, message, view, input, bounded, outer, counts, kept: 0 };
    let length = pass.run();
    match length.and_then(|length| input.get(..length)) {
        Some(octets) => {
            view.hold_message(octets);
            view.settle_set(&code.all);
        }
        None => view.reset(),
    }
    length
}

/// The pass over one message.
pub(super) struct Pass<'p> {
    straight: &'p Straight,
    pub(super) code: &'p Code,
    message: &'p Message,
    pub(super) view: &'p mut View,
    input: &'p [u8],
    /// Whether the message's own end is known: it is a datagram.
    bounded: bool,
    /// Octets behind each region that the current one is in, up to the end of the one around it.
    outer: [usize; REGIONS],
    pub(super) counts: [u32; COUNTERS],
    /// Octets that slots use.
    pub(super) kept: usize,
}

/// The innermost region.
#[derive(Clone, Copy)]
pub(super) struct Rest<'p> {
    /// The octets of it that are left.
    pub(super) octets: &'p [u8],
    /// Number of octets of the input behind it.
    behind: usize,
    /// Number of regions around it.
    depth: usize,
}

impl<'p> Rest<'p> {
    #[inline]
    fn take(&mut self, octets: usize) -> Option<&'p [u8]> {
        let (taken, rest) = self.octets.split_at_checked(octets)?;
        self.octets = rest;
        Some(taken)
    }
}

impl<'p> Pass<'p> {
    /// The length of the message, if it is there whole, and if a copy of it wastes little memory.
    fn run(&mut self) -> Option<usize> {
        let (code, straight) = (self.code, self.straight);
        let mut rest = Rest { octets: self.input, behind: 0, depth: 0 };
        let mut at = 0;
        loop {
            let Step { act, next } = straight.steps.get(index(at))?;
            at = *next;
            match *act {
                Act::Word { octets, order, fields } => {
                    let word = word_in(order, rest.take(usize::from(octets))?);
                    self.bit_fields(word, fields.of(&code.fields))?;
                }
                Act::Switch { slot, places } => {
                    let number = self.view.int(slot).and_then(|of| usize::try_from(of).ok());
                    let places = places.of(&straight.places);
                    if let Some(place) = number.and_then(|number| places.get(number)) {
                        at = *place;
                    }
                }
                Act::PostCounters { octets, less, max, counts, into } => {
                    let count = word_of(rest.take(usize::from(octets))?);
                    let wanted = count.checked_sub(u64::from(less));
                    let wanted = wanted.filter(|wanted| *wanted <= u64::from(max))?;
                    let taken = rest.take(usize::try_from(wanted).ok()?)?;
                    self.view.assign_int(counts, i64::try_from(count).ok()?);
                    self.put_range(into, taken, rest);
                }
                Act::Take { length, max, store } => {
                    let octets = self.length(length, rest).filter(|of| *of <= index(max))?;
                    let taken = rest.take(octets)?;
                    self.store(taken, store, rest)?;
                }
                Act::Enter { length, less, max } => rest = self.enter(length, less, max, rest)?,
                Act::Leave => rest = self.leave(rest)?,
                Act::Varint { octets_max, into } => {
                    let value = varint(&mut rest, octets_max)?;
                    self.put_number(into, value)?;
                }
                Act::Options(options) => {
                    rest = self.options(code.options.get(index(options))?, rest)?;
                }
                Act::AtEnd { then } => {
                    if rest.octets.is_empty() && self.is_whole(rest) {
                        at = then;
                    }
                }
                Act::Peek { text, then } => {
                    let wanted = text.of(&code.octets);
                    if rest.octets.starts_with(wanted) {
                        rest.take(wanted.len())?;
                        at = then;
                    } else if !self.is_whole(rest) && wanted.starts_with(rest.octets) {
                        return None;
                    }
                }
                Act::Decide { slot, test, then } => {
                    if self.holds(slot, test) {
                        at = then;
                    }
                }
                Act::Other(op) => rest = self.other(&op, rest)?,
                Act::Accept if code.datagram && !rest.octets.is_empty() => return None,
                Act::Accept => {
                    let length = self.position(rest);
                    let unused = length.saturating_sub(self.kept);
                    return (unused <= UNUSED_MAX.max(self.kept)).then_some(length);
                }
            }
        }
    }

    #[inline]
    fn enter(&mut self, length: SlotId, less: u32, max: u32, rest: Rest<'p>) -> Option<Rest<'p>> {
        let length = self.view.int(length).unwrap_or(i64::from(less));
        let length = usize::try_from(length.checked_sub(i64::from(less))?).ok()?;
        let (octets, after) = rest.octets.split_at_checked(length)?;
        if length > index(max) {
            return None;
        }
        *self.outer.get_mut(rest.depth)? = after.len();
        Some(Rest { octets, behind: rest.behind + after.len(), depth: rest.depth + 1 })
    }

    #[inline]
    fn leave(&self, rest: Rest<'p>) -> Option<Rest<'p>> {
        if !rest.octets.is_empty() {
            return None;
        }
        let depth = rest.depth.checked_sub(1)?;
        let after = *self.outer.get(depth)?;
        let begin = self.position(rest);
        let octets = self.input.get(begin..begin.checked_add(after)?)?;
        Some(Rest { octets, behind: rest.behind.saturating_sub(after), depth })
    }

    fn other(&mut self, op: &Op, mut rest: Rest<'p>) -> Option<Rest<'p>> {
        let code = self.code;
        match *op {
            Op::Literal { text, fold: false } => {
                let wanted = text.of(&code.octets);
                if rest.take(wanted.len())? != wanted {
                    return None;
                }
            }
            Op::Extend { into, cases } => self.extend(into, cases.of(&code.cases), &mut rest)?,
            Op::Sum { into, add } => {
                let add = self.view.int(add).unwrap_or(0);
                let sum = self.view.int(into.into).unwrap_or(0).saturating_add(add);
                self.put_number(into, sum)?;
            }
            Op::Count { counter, max } => {
                let count = self.counts.get_mut(usize::from(counter))?;
                *count = count.saturating_add(1);
                if *count > max {
                    return None;
                }
            }
            Op::Clear(slots) => {
                slots.of(&code.slots).iter().for_each(|slot| self.view.clear(*slot));
            }
            Op::Append { list, columns } => self.append(list, columns.of(&code.slots))?,
            Op::Require(slot) => {
                self.view.held(slot)?;
            }
            _ => return None,
        }
        Some(rest)
    }

    /// Octets of the message before the rest.
    #[inline]
    pub(super) const fn position(&self, rest: Rest<'_>) -> usize {
        self.input.len().saturating_sub(rest.behind).saturating_sub(rest.octets.len())
    }

    /// Whether the end of the innermost region is known: it has then arrived.
    const fn is_whole(&self, rest: Rest<'_>) -> bool {
        rest.depth > 0 || self.bounded
    }

    fn length(&self, length: Length, rest: Rest<'_>) -> Option<usize> {
        match length {
            Length::Fixed(octets) => Some(index(octets)),
            Length::Slot(slot) => usize::try_from(self.view.int(slot).unwrap_or(0)).ok(),
            Length::Rest => self.is_whole(rest).then_some(rest.octets.len()),
        }
    }

    #[inline]
    fn bit_fields(&mut self, word: u64, fields: &[BitTarget]) -> Option<()> {
        for field in fields {
            let value = field.number_in(word);
            match field.then {
                Then::Store(into) => self.view.assign_int(into, value),
                Then::StoreWithin(into, low, high) if low <= value && value <= high => {
                    self.view.assign_int(into, value);
                }
                Then::Expect(expect) if expect == value => {}
                Then::StoreWithin(..) | Then::Expect(_) => return None,
            }
        }
        Some(())
    }

    fn put_number(&mut self, number: NumberTarget, value: i64) -> Option<()> {
        let bounds = self.code.bounds.get(index(number.bounds));
        if bounds.is_some_and(|(low, high)| value < *low || value > *high) {
            return None;
        }
        self.view.assign_int(number.into, value);
        Some(())
    }

    /// Stores octets that were just taken.
    #[inline]
    fn put_range(&mut self, into: SlotId, taken: &[u8], rest: Rest<'_>) {
        let end = self.position(rest);
        self.kept = self.kept.saturating_add(taken.len());
        self.view.assign_range(into, &(end.saturating_sub(taken.len())..end));
    }

    #[inline]
    fn store(&mut self, taken: &[u8], store: Store, rest: Rest<'_>) -> Option<()> {
        let Some(into) = store.into else { return Some(()) };
        if taken.is_empty() && store.empty != Empty::Value {
            let missing = store.empty == Empty::Missing && self.view.held(into).is_none();
            return (!missing).then_some(());
        }
        if taken.len() > index(store.max) {
            return None;
        }
        self.put_range(into, taken, rest);
        Some(())
    }

    fn extend(
        &mut self,
        into: NumberTarget,
        cases: &[ExtendCase],
        rest: &mut Rest<'_>,
    ) -> Option<()> {
        let value = self.view.int(into.into)?;
        let Some(case) = cases.iter().find(|case| case.value == value) else {
            let reserved = cases.last().is_some_and(|case| value > case.value);
            return (!reserved).then_some(());
        };
        let more = word_of(rest.take(usize::from(case.octets))?);
        self.put_number(into, i64::try_from(more).ok()?.saturating_add(case.add))
    }

    fn holds(&self, slot: SlotId, test: SlotTest) -> bool {
        let octets = || self.view.range(slot).and_then(|range| self.input.get(range));
        match test {
            SlotTest::Present => self.view.held(slot).is_some(),
            SlotTest::Octets(text) => octets() == Some(text.of(&self.code.octets)),
            // A list without an element is absent.
            SlotTest::Empty => octets().is_some_and(<[u8]>::is_empty),
        }
    }

    fn append(&mut self, list: SlotId, row: &[SlotId]) -> Option<()> {
        let SlotType::List { columns, max } = &self.message.slot(list)?.ty else { return None };
        if self.view.rows(list).len() >= index(*max) {
            return None;
        }
        self.view.push_row_of_ranges(list, columns, row)
    }
}

#[inline]
fn word_in(order: Order, octets: &[u8]) -> u64 {
    match order {
        Order::Big => word_of(octets),
        Order::Little => number(octets, order),
    }
}

fn varint(rest: &mut Rest<'_>, max: u8) -> Option<i64> {
    let (mut value, mut shift) = (0_i64, 0_u32);
    for _octet in 0..max {
        let (octet, behind) = rest.octets.split_first()?;
        rest.octets = behind;
        value |= i64::from(octet & 0x7f).checked_shl(shift).filter(|_| shift < 56)?;
        shift += 7;
        if octet & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use crate::flat::Layouts;
    use gatewright_diagnostic::{SourceId, Sources};
    use std::sync::Arc;

    /// Layouts of octets have the second form, with a block for each kind; texts have none.
    #[test]
    fn which_layouts_are_read_in_one_pass() {
        let text = "message m {
            view kinds = {
                kind: u8
                when kind is 1 { counted by u16, at most 9 octets { name: rest } }
                when kind is 2..3 { number: u32 }
                when kind is 1 { last: u8 }
            }
            view lines = line, at most 80 octets { verb: token, at most 8 octets }
        }
        gateway least { }";
        let mut sources = Sources::of("test.gate", text.to_owned());
        let compiled = gatewright_lang::compile(&mut sources, SourceId::default(), |_, _| None);
        let shown = |found: &gatewright_diagnostic::Diagnostic| found.render(&sources, false);
        let found: Vec<String> = compiled.diagnostics.iter().map(shown).collect();
        assert!(compiled.program.is_some(), "{found:?}");
        let layouts = Layouts::of(&Arc::new(compiled.program.unwrap()));
        let steps = |name: &str| {
            let at = layouts.program.messages.iter().position(|of| of.name == name)?;
            layouts.code(at)?.straight.as_ref().map(|of| of.steps.len())
        };
        // A word and a switch; for kind 1 a counted field, a word and the end; for kinds 2 and 3 a
        // word; for others the second switch, which only leads to the end or to that word again.
        let kinds = steps("m.kinds");
        assert!(kinds.is_some_and(|steps| steps <= 10), "{kinds:?}");
        assert_eq!(steps("m.lines"), None);
    }
}
