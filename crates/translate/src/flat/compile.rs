//! Compiles the typed program to the flat form, op by op.

use super::ops::Set;
use super::straight::Straight;
use super::tables::NameTable;
use super::{
    Arm, BitTarget, Code, Empty, NumberTarget, Op, OpIndex, SetId, SideRange, SlotTest, Store,
    Then, UNBOUNDED, appended, fuse, index, narrow,
};
use crate::view::SlotSet;
use gatewright_diagnostic::Span;
use gatewright_lang::ir::{
    BitField, Class, Fold, Guard, LiteralId, Message, ParseOp, Pattern, Program, Select, Slot,
    SlotId, SlotType, TooLong,
};

/// Compiles one message's layout; a message that is only written gives an empty code.
pub(super) fn code(program: &Program, message: &Message) -> Code {
    let steps = narrow(message.parser.len());
    let mut compiler = Compiler {
        program,
        message,
        code: Code { datagram: message.datagram, ..Code::default() },
        labels: vec![OpIndex(0); index(steps).saturating_add(1)],
        span: message.span,
        too_long: None,
        entry: None,
        folded: Vec::new(),
    };
    compiler.code.sets.push(SlotSet::default());
    for (at, slot) in message.slots.iter().enumerate() {
        compiler.code.all.insert(SlotId::new(at));
        if !slot.scratch {
            compiler.code.open.insert(SlotId::new(at));
        }
    }
    for ((at, step), too_long) in message.parser.iter().enumerate().zip(message.too_long()) {
        (compiler.span, compiler.too_long) = (step.span, too_long);
        compiler.here(OpLabel(narrow(at)));
        compiler.attempt(at);
        compiler.step(narrow(at), &step.op);
    }
    compiler.here(OpLabel(steps));
    let Compiler { mut code, labels, .. } = compiler;
    for op in &mut code.ops {
        op.places(|place| {
            *place = labels.get(index(place.0)).copied().unwrap_or(OpIndex(u32::MAX));
        });
    }
    for arm in &mut code.arms {
        arm.then = labels.get(index(arm.then.0)).copied().unwrap_or(OpIndex(u32::MAX));
    }
    fuse::jumps(&mut code);
    fuse::chains(&mut code);
    code.straight = Straight::of(&code);
    code
}

/// A jump target that is not known yet: while code is made, a [`OpIndex`] is the index of its label.
/// Labels of the steps come first.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpLabel(u32);

impl OpLabel {
    pub(super) fn of(step: usize) -> Self {
        Self(narrow(step))
    }

    pub(super) const fn place(self) -> OpIndex {
        OpIndex(self.0)
    }
}

pub(super) struct Compiler<'p> {
    pub(super) program: &'p Program,
    pub(super) message: &'p Message,
    pub(super) code: Code,
    labels: Vec<OpIndex>,
    span: Span,
    too_long: Option<TooLong>,
    /// The attempt at one entry of the most recent loop, and where the entry begins.
    pub(super) entry: Option<(usize, Op)>,
    /// Whether each region around a step is a line that may be folded.
    folded: Vec<bool>,
}

impl Compiler<'_> {
    pub(super) fn push(&mut self, op: Op) {
        self.code.ops.push(op);
        self.code.spans.push(self.span);
        self.code.too_long.push(self.too_long);
    }

    fn label(&mut self) -> OpLabel {
        self.labels.push(OpIndex(0));
        OpLabel(narrow(self.labels.len().saturating_sub(1)))
    }

    /// Places a label here.
    fn here(&mut self, label: OpLabel) {
        let place = OpIndex(narrow(self.code.ops.len()));
        self.labels.get_mut(index(label.0)).into_iter().for_each(|of| *of = place);
    }

    /// Adds an attempt before its ops; its parameters are in the side tables.
    fn attempt(&mut self, at: usize) {
        if let Some(op) = fuse::attempt(self, at) {
            self.push(op);
        }
    }

    fn step(&mut self, at: u32, op: &ParseOp) {
        let next = OpLabel(at.saturating_add(1));
        let to = |step: gatewright_lang::ir::StepId| OpIndex(narrow(step.index()));
        match op {
            ParseOp::EnterLine { max, folded } => {
                self.push(Op::EnterLine { max: *max, folded: *folded });
                self.folded.push(*folded);
            }
            ParseOp::EnterCounted { length, less, max } => {
                self.push(Op::EnterCounted { length: *length, less: *less, max: *max });
                self.folded.push(false);
            }
            ParseOp::Leave => {
                self.push(Op::Leave);
                self.folded.pop();
            }
            ParseOp::BeginCheck { by } => {
                self.push(Op::BeginCheck(*by));
                self.folded.push(false);
            }
            ParseOp::EndCheck { by } => {
                self.push(Op::EndCheck(*by));
                self.folded.pop();
            }
            ParseOp::AtEnd { then } => self.push(Op::AtEnd(to(*then))),
            ParseOp::Peek { literal, then } => {
                let text = self.text(*literal);
                self.push(Op::Peek { text, then: to(*then) });
            }
            ParseOp::Branch { guard, otherwise } => {
                self.decide(guard, next, OpLabel(narrow(otherwise.index())));
            }
            ParseOp::Jump(then) => self.push(Op::Jump(to(*then))),
            ParseOp::Stream { into, select, max } => self.stream(*into, (select, *max), next),
            ParseOp::Accept => self.push(Op::Accept),
            ParseOp::Refuse => self.push(Op::Refuse),
            _ => self.field(op),
        }
    }

    /// Whether a step is within a line that may be folded.
    fn is_folded(&self) -> bool {
        self.folded.last().is_some_and(|folded| *folded)
    }

    fn push_unfolded(&mut self, op: Op, into: Option<SlotId>) {
        self.push(op);
        if let Some(into) = into.filter(|_| self.is_folded()) {
            self.push(Op::Unfold(into));
        }
    }

    fn field(&mut self, op: &ParseOp) {
        match op {
            ParseOp::Literal { literal, fold } => {
                let text = self.text(*literal);
                self.push(Op::Literal { text, fold: *fold });
            }
            ParseOp::Until { delimiter, into, fold, max } => {
                let text = self.text(*delimiter);
                let store = self.store(*into, *fold, false);
                self.push_unfolded(Op::Until { text, max: *max, store }, *into);
            }
            ParseOp::Run { class, into, empty_is_absent, fold, min, max } => {
                let store = self.store(*into, *fold, *empty_is_absent);
                let set = match class {
                    Class::Blank if self.is_folded() => Set::FOLD,
                    _ => Set::of(*class),
                };
                self.push_unfolded(Op::Run { set, min: *min, max: *max, store }, *into);
            }
            ParseOp::Take { length, into, empty_is_absent, fold, max } => {
                let store = self.store(*into, *fold, *empty_is_absent);
                self.push_unfolded(Op::Take { length: *length, max: *max, store }, *into);
            }
            ParseOp::Digits { radix, min, max, into } => {
                let radix = u8::try_from(*radix).unwrap_or(10);
                let (into, empty) = (self.number(*into, None), self.absent(*into));
                self.push(Op::Digits { radix, min: *min, max: *max, into, empty });
            }
            ParseOp::OneOf { set, into, optional } => {
                let text = self.text(*set);
                let store = self.store(Some(*into), Fold::Keep, true);
                self.push(Op::OneOf { text, store, optional: *optional });
            }
            ParseOp::Word { octets, order, fields } => {
                let (fields, settles) = self.word(&[(*octets, fields)]);
                self.push(Op::Word { octets: *octets, order: *order, fields, settles });
            }
            ParseOp::Varint { octets_max, into } => {
                let into = self.number(*into, None);
                self.push(Op::Varint { octets_max: *octets_max, into });
            }
            ParseOp::Extend { slot, cases } => {
                let into = self.number(*slot, None);
                let cases = appended(&mut self.code.cases, cases.iter().copied());
                self.push(Op::Extend { into, cases });
            }
            _ => self.slots(op),
        }
    }

    fn slots(&mut self, op: &ParseOp) {
        match op {
            ParseOp::Sum { into, add } => {
                let into = self.number(*into, None);
                self.push(Op::Sum { into, add: *add });
            }
            ParseOp::Count { counter, max } => {
                self.push(Op::Count { counter: *counter, max: *max });
            }
            ParseOp::Clear { slots } => {
                let slots = appended(&mut self.code.slots, slots.iter().copied());
                self.push(Op::Clear(slots));
            }
            ParseOp::Lookup { key, value, entries } => {
                let table = NameTable::of(self.program, self.message, entries);
                let table = appended(&mut self.code.tables, [table]).from;
                self.push(Op::Lookup { key: *key, value: *value, table });
            }
            ParseOp::Copy { from, into } => self.push(Op::Copy { from: *from, into: *into }),
            ParseOp::Append { list, columns } => {
                let columns = appended(&mut self.code.slots, columns.iter().copied());
                self.push(Op::Append { list: *list, columns });
            }
            ParseOp::Settle { slots } => {
                for slot in slots {
                    if self.absent(*slot) == Empty::Missing {
                        self.push(Op::Require(*slot));
                    }
                }
                let set = self.set(slots);
                self.push(Op::Settle(set));
            }
            // Laid out above; a new one is to be laid out somewhere.
            ParseOp::EnterLine { .. }
            | ParseOp::EnterCounted { .. }
            | ParseOp::Leave
            | ParseOp::BeginCheck { .. }
            | ParseOp::EndCheck { .. }
            | ParseOp::AtEnd { .. }
            | ParseOp::Peek { .. }
            | ParseOp::Branch { .. }
            | ParseOp::Jump(_)
            | ParseOp::Stream { .. }
            | ParseOp::Accept
            | ParseOp::Refuse
            | ParseOp::Literal { .. }
            | ParseOp::Until { .. }
            | ParseOp::Run { .. }
            | ParseOp::Take { .. }
            | ParseOp::Digits { .. }
            | ParseOp::OneOf { .. }
            | ParseOp::Word { .. }
            | ParseOp::Varint { .. }
            | ParseOp::Extend { .. } => {}
        }
    }

    /// Compiles a guard to jumps: to one place if it holds, to the other if not.
    fn decide(&mut self, guard: &Guard, then: OpLabel, otherwise: OpLabel) {
        match guard {
            Guard::Always => self.push(Op::Jump(then.place())),
            Guard::Present(slot) => self.ask(*slot, SlotTest::Present, then, otherwise),
            Guard::Not(guard) => self.decide(guard, otherwise, then),
            Guard::All(guards) => {
                for guard in guards {
                    let holds = self.label();
                    self.decide(guard, holds, otherwise);
                    self.here(holds);
                }
                self.push(Op::Jump(then.place()));
            }
            Guard::Any(guards) => {
                for guard in guards {
                    let fails = self.label();
                    self.decide(guard, then, fails);
                    self.here(fails);
                }
                self.push(Op::Jump(otherwise.place()));
            }
            Guard::Is { slot, patterns } => self.patterns(*slot, patterns, then, otherwise),
        }
    }

    fn ask(&mut self, slot: SlotId, test: SlotTest, then: OpLabel, otherwise: OpLabel) {
        let (then, otherwise) = (then.place(), otherwise.place());
        self.push(Op::Decide { slot, test, then, otherwise });
    }

    fn patterns(&mut self, slot: SlotId, patterns: &[Pattern], then: OpLabel, otherwise: OpLabel) {
        let least = match self.slot(slot).map(|about| &about.ty) {
            Some(SlotType::Int { low, .. }) => *low,
            _ => i64::MIN,
        };
        let arm = |pattern: &Pattern| match pattern {
            Pattern::Int { low, high } => {
                let (low, then) = ((*low).max(least), then.place());
                Some(Arm { low, high: *high, then, settles: SetId::EMPTY })
            }
            _ => None,
        };
        let arms = appended(&mut self.code.arms, patterns.iter().filter_map(arm));
        for pattern in patterns {
            let test = match pattern {
                Pattern::Int { .. } => continue,
                Pattern::Octets(literal) => SlotTest::Octets(self.text(*literal)),
                Pattern::Empty => SlotTest::Empty,
            };
            let fails = self.label();
            self.ask(slot, test, then, fails);
            self.here(fails);
        }
        let otherwise = otherwise.place();
        self.push(Op::Switch { slot, arms, settles: SetId::EMPTY, otherwise });
    }

    /// Selects the first framing whose guard holds.
    fn stream(&mut self, into: SlotId, (select, max): (&[Select], Option<u32>), next: OpLabel) {
        for Select { guard, framing } in select {
            let (holds, fails) = (self.label(), self.label());
            self.decide(guard, holds, fails);
            self.here(holds);
            self.push(Op::Stream { into, framing: *framing, max });
            self.push(Op::Jump(next.place()));
            self.here(fails);
        }
        self.push(Op::Refuse);
    }

    /// Adds the octets of a constant.
    pub(super) fn text(&mut self, literal: LiteralId) -> SideRange {
        appended(&mut self.code.octets, self.program.literal(literal).iter().copied())
    }

    fn slot(&self, slot: SlotId) -> Option<&Slot> {
        self.message.slot(slot)
    }

    /// The meaning of a slot that stays absent: absent or missing.
    fn absent(&self, slot: SlotId) -> Empty {
        let needed = self.slot(slot).is_some_and(super::ops::is_needed);
        if needed { Empty::Missing } else { Empty::Absent }
    }

    fn store(&self, into: Option<SlotId>, fold: Fold, empty_is_absent: bool) -> Store {
        let empty = match into {
            Some(slot) if empty_is_absent => self.absent(slot),
            _ => Empty::Value,
        };
        let max = match into.and_then(|slot| self.slot(slot)).map(|about| &about.ty) {
            Some(SlotType::Octets { max }) => *max,
            _ => u32::MAX,
        };
        Store { into, max, fold, empty }
    }

    /// The target of a number of this range, both ends included; `None` allows any number.
    pub(super) fn number(&mut self, into: SlotId, range: Option<(i64, i64)>) -> NumberTarget {
        let about = self.slot(into).map(|about| &about.ty);
        let Some(SlotType::Int { low, high }) = about else {
            return NumberTarget { into, bounds: UNBOUNDED };
        };
        if range.is_some_and(|(least, most)| *low <= least && most <= *high) {
            return NumberTarget { into, bounds: UNBOUNDED };
        }
        let bounds = (*low, *high);
        NumberTarget { into, bounds: appended(&mut self.code.bounds, [bounds]).from }
    }

    /// Merges the fields of adjacent words into those of one word, with the slots that they settle.
    pub(super) fn word(&mut self, words: &[(u8, &[BitField])]) -> (SideRange, SetId) {
        let all: u32 = words.iter().map(|(octets, _)| 8 * u32::from(*octets)).sum();
        let (mut behind, mut fields, mut settles) = (all, Vec::new(), Vec::new());
        for (octets, of) in words {
            behind = behind.saturating_sub(8 * u32::from(*octets));
            for field in *of {
                let mask = u64::MAX.checked_shr(64_u32.saturating_sub(u32::from(field.width)));
                let (mask, shift) = (mask.unwrap_or(0), behind + u32::from(field.shift));
                let sign = if field.signed { mask ^ (mask >> 1) } else { 0 };
                if let Some(expect) = field.expect {
                    fields.push(BitTarget { mask, sign, shift, then: Then::Expect(expect) });
                }
                if let Some(into) = field.into {
                    settles.push(into);
                    let most = i64::try_from(mask ^ sign).ok();
                    let range = most.map(|most| (if field.signed { !most } else { 0 }, most));
                    let number = self.number(into, range);
                    let then = match self.code.bounds.get(index(number.bounds)) {
                        Some((low, high)) => Then::StoreWithin(into, *low, *high),
                        None => Then::Store(into),
                    };
                    fields.push(BitTarget { mask, sign, shift, then });
                }
            }
        }
        (appended(&mut self.code.fields, fields), self.set(&settles))
    }

    pub(super) fn set(&mut self, slots: &[SlotId]) -> SetId {
        let set: SlotSet = slots.iter().copied().collect();
        SetId(appended(&mut self.code.sets, [set]).from)
    }
}

impl Op {
    /// Visits every place to which an op may lead.
    pub(super) fn places(&mut self, mut lead: impl FnMut(&mut OpIndex)) {
        match self {
            Self::Words { next: then, .. }
            | Self::PostCounters { next: then, .. }
            | Self::OneLine { next: then, .. }
            | Self::OneOption { next: then, .. }
            | Self::AtEnd(then)
            | Self::Jump(then)
            | Self::Peek { then, .. }
            | Self::Switch { otherwise: then, .. } => lead(then),
            Self::Decide { then, otherwise, .. } => {
                lead(then);
                lead(otherwise);
            }
            _ => {}
        }
    }
}
