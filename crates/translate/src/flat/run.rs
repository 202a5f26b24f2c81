//! Runs a layout's ops over a piece of a message.

use super::ops::{Halt, Took};
use super::state::{ParserState, Until};
use super::{Code, Op, OpIndex, SetId, index};
use crate::checksum::PartialChecksum;
use crate::malformed::MalformedReason;
use crate::view::SlotSet;
use gatewright_lang::ir::{Message, Program};

/// A parser running over a piece of a message.
///
/// While it runs, positions are offsets into the piece; [`stop`](Self::stop) writes back the state
/// for the next piece.
pub(crate) struct Reader<'r> {
    pub(super) code: &'r Code,
    pub(super) program: &'r Program,
    pub(super) message: &'r Message,
    pub(super) state: &'r mut ParserState,
    pub(super) input: &'r [u8],
    /// Whether no octet will follow the input.
    pub(super) last: bool,
    /// Number of octets used.
    pub(super) at: usize,
    /// End of the innermost region, or of the part of it that has arrived.
    pub(super) edge: usize,
    /// Whether `edge` is the region's end.
    pub(super) whole: bool,
    /// Position from which octets are still to be added to the check.
    pub(super) checked: usize,
    step: usize,
    goal: Goal<'r>,
    /// Output for the octets of the message's stream; without it, reading stops where the stream
    /// begins.
    pub(super) out: Option<&'r mut Vec<u8>>,
}

/// Why a reader stops.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stop {
    /// The awaited slots are settled, or the stream begins and has no reader yet.
    There,
    /// It needs octets that have not arrived.
    Wait,
    /// The message is complete.
    Accept,
}

/// The condition on which it stops.
enum Goal<'r> {
    Never,
    Any(&'r SlotSet),
    All(SlotSet),
}

impl<'r> Reader<'r> {
    pub(crate) fn new(
        (program, message, code): (&'r Program, &'r Message, &'r Code),
        state: &'r mut ParserState,
        (input, last): (&'r [u8], bool),
        until: Until<'_>,
        out: Option<&'r mut Vec<u8>>,
    ) -> Self {
        let goal = match until {
            Until::End => Goal::Never,
            Until::Begun => Goal::Any(&code.open),
            Until::Settled(slots) => Goal::All(slots.iter().copied().collect()),
        };
        let step = state.step;
        let (at, edge, whole, checked) = (0, 0, false, 0);
        let mut reader = Self {
            code,
            program,
            message,
            state,
            input,
            last,
            at,
            edge,
            whole,
            checked,
            step,
            goal,
            out,
        };
        reader.look_for_edge();
        reader
    }

    /// Reads on.
    pub(crate) fn run(&mut self) -> Result<Stop, MalformedReason> {
        let waited_for = !matches!(self.goal, Goal::Never);
        loop {
            if waited_for && self.is_there() {
                return Ok(Stop::There);
            }
            let Some(op) = self.code.ops.get(self.step) else {
                return Err(MalformedReason::NoCase);
            };
            self.step += 1;
            if let Err(halt) = self.turn(op) {
                self.step -= 1;
                return match halt {
                    Halt::Malformed(reason) => Err(reason),
                    Halt::Wait if self.last => Err(MalformedReason::Cut),
                    Halt::Wait => Ok(Stop::Wait),
                    Halt::Accept => Ok(Stop::Accept),
                    Halt::There => Ok(Stop::There),
                };
            }
        }
    }

    /// Continues at another op.
    #[inline]
    pub(super) fn go(&mut self, place: OpIndex) {
        self.step = index(place.0);
    }

    #[expect(clippy::inline_always, reason = "a call is as dear as what most ops do")]
    #[inline(always)]
    fn turn(&mut self, op: &Op) -> Took {
        match *op {
            Op::Words { octets, fields, settles, before, next } => {
                self.words(octets, fields, (before, settles), next);
            }
            Op::PostCounters { octets, less, max, length, into, next } => {
                self.counted((octets, less), max, length.into, into, next);
            }
            Op::Lines(lines) => {
                if let Some(lines) = self.code.lines.get(index(lines)) {
                    self.lines(lines);
                }
            }
            Op::Options(options) => {
                if let Some(options) = self.code.options.get(index(options)) {
                    self.options(options);
                }
            }
            Op::Word { octets, order, fields, settles } => {
                return self.word(octets, order, fields, settles);
            }
            Op::Switch { slot, arms, settles, otherwise } => {
                self.switch(slot, arms, settles, otherwise);
            }
            Op::Decide { slot, test, then, otherwise } => {
                self.go(if self.holds(slot, test) { then } else { otherwise });
            }
            Op::Jump(then) => self.go(then),
            Op::Settle(set) => self.settle(set),
            Op::Take { length, max, store } => return self.take_field(length, max, store),
            Op::Run { set, min, max, store } => return self.run_of(set, min, max, store),
            Op::Literal { text, fold } => return self.literal(text.of(&self.code.octets), fold),
            Op::Peek { text, then } => return self.peek(text.of(&self.code.octets), then),
            Op::EnterLine { max, folded: false } => return self.enter_line(max),
            Op::EnterCounted { length, less, max } => {
                return self.enter_counted(length, less, max);
            }
            Op::Leave => return self.leave(),
            Op::OneLine { lines, next } => {
                let lines = self.code.lines.get(index(lines));
                if lines.is_some_and(|lines| self.named_line(lines).is_some()) {
                    self.go(next);
                }
            }
            Op::OneOption { options, next } => {
                let options = self.code.options.get(index(options));
                if options.is_some_and(|options| self.option(options).is_some()) {
                    self.go(next);
                }
            }
            Op::AtEnd(then) => {
                if self.at == self.edge && self.whole {
                    self.go(then);
                }
            }
            Op::Varint { octets_max, into } => return self.varint(octets_max, into),
            Op::Accept => return self.accept(),
            _ => return self.rare(op),
        }
        Ok(())
    }

    fn rare(&mut self, op: &Op) -> Took {
        match *op {
            Op::Stream { into, framing, max } => return self.stream(into, framing, max),
            Op::Digits { radix, min, max, into, empty } => {
                return self.digits(radix, (min, max), into, empty);
            }
            Op::Until { text, max, store } => {
                return self.until(text.of(&self.code.octets), max, store);
            }
            Op::OneOf { text, store, optional } => {
                return self.one_of(text.of(&self.code.octets), store, optional);
            }
            Op::Extend { into, cases } => return self.extend(into, cases.of(&self.code.cases)),
            Op::EnterLine { max, folded: true } => return self.enter_folded_line(max),
            Op::Sum { into, add } => return self.sum(into, add),
            Op::BeginCheck(by) => return self.begin_check(by),
            Op::EndCheck(by) => return self.end_check(by),
            Op::Count { counter, max } => return self.count(counter, max),
            Op::Clear(slots) => {
                for slot in slots.of(&self.code.slots) {
                    self.state.view.clear(*slot);
                }
            }
            Op::Lookup { key, value, table } => {
                let table = self.code.tables.get(index(table)).ok_or(MalformedReason::NoCase)?;
                table.file(&mut self.state.view, key, value)?;
            }
            Op::Copy { from, into } => return self.copy(from, into),
            Op::Unfold(slot) => self.unfold(slot),
            Op::Append { list, columns } => {
                return self.append_row(list, columns.of(&self.code.slots));
            }
            Op::Require(slot) if self.state.view.held(slot).is_some() => {}
            Op::Require(_) => return Err(MalformedReason::Missing.into()),
            _ => return Err(MalformedReason::NoCase.into()),
        }
        Ok(())
    }

    /// Writes back the state for the next piece; returns the number of octets used.
    pub(crate) fn stop(self) -> usize {
        let Self { code, state, input, at, checked, mut step, .. } = self;
        // Who waits behind an attempt begins with it again.
        while step.checked_sub(1).and_then(|at| code.ops.get(at)).is_some_and(Op::is_attempt) {
            step -= 1;
        }
        state.step = step;
        state.at = state.at.saturating_add(length(at));
        if let (Some(check), Some(more)) = (&mut state.check, input.get(checked..at)) {
            check.add(more);
        }
        at
    }

    /// Index of the current step.
    pub(crate) const fn step(&self) -> usize {
        self.step
    }

    fn is_there(&self) -> bool {
        match &self.goal {
            Goal::Never => false,
            Goal::Any(open) => self.state.view.settled().meets(open),
            Goal::All(wanted) => self.state.view.settled().holds_all(wanted),
        }
    }

    /// Whether the goal would be reached with these slots settled, too.
    pub(super) fn would_be_there(&self, set: SetId) -> bool {
        if matches!(self.goal, Goal::Never) {
            return false;
        }
        let Some(set) = self.code.sets.get(index(set.0)) else { return false };
        match &self.goal {
            Goal::Never => false,
            Goal::Any(open) => set.meets(open),
            Goal::All(wanted) => {
                let mut settled = self.state.view.settled().clone();
                settled.add(set);
                settled.holds_all(wanted)
            }
        }
    }

    /// Settles a set of slots.
    pub(super) fn settle(&mut self, set: SetId) {
        if let Some(set) = self.code.sets.get(index(set.0)) {
            self.state.view.settle_set(set);
        }
    }

    /// The octets from here to the end of the innermost region.
    pub(super) fn window(&self) -> &'r [u8] {
        self.input.get(self.at..self.edge).unwrap_or_default()
    }

    /// Finds the end of the region, or of the input.
    pub(super) fn look_for_edge(&mut self) {
        (self.edge, self.whole) = (self.input.len(), false);
        if let Some(end) = self.state.region.end {
            let end = usize::try_from(end.saturating_sub(self.state.at)).unwrap_or(usize::MAX);
            if end <= self.input.len() {
                (self.edge, self.whole) = (end, true);
            }
        }
    }

    /// Number of octets of the message before this position.
    pub(super) fn position(&self) -> u64 {
        self.state.at.saturating_add(length(self.at))
    }

    /// The check over the octets from its beginning to here.
    pub(super) fn take_check(&mut self) -> Option<PartialChecksum> {
        let mut check = self.state.check.take()?;
        check.add(self.input.get(self.checked..self.at).unwrap_or_default());
        Some(check)
    }
}

/// A length in octets.
pub(crate) fn length(octets: usize) -> u64 {
    u64::try_from(octets).unwrap_or(u64::MAX)
}
