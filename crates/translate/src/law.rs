//! The law of views: parsing what was written gives the same fields back.
//!
//! Messages are generated as their serializer would produce them: fields within their types, whole
//! lists, optional fields present and absent, guards that hold and that do not. A message that
//! cannot be built is skipped. A built message is read back, and every field is compared. The same
//! program always gives the same messages.

use crate::flat::Layouts;
use crate::parser::Parser;
use crate::transcript::octets_shown;
use crate::view::{Value, View};
use gatewright_diagnostic::{Code, Diagnostic, Span};
use gatewright_lang::ir::{
    Check, Class, Emit, Fold, Guard, Message, MessageId, ParseOp, Pattern, Program, SlotId,
    SlotType, Source, StreamFraming, TableKey,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Number of messages generated per view.
const SAMPLES: u32 = 64;

/// Maximum length of a generated text, in octets; one text in 16 may be as long as its field
/// allows.
const TEXT_MAX: u32 = 24;

/// Maximum length of those long texts, in octets.
const LONG_MAX: u32 = 2_048;

/// Maximum number of elements of a list: tables bound them together, too.
const ROWS_MAX: u32 = 3;

/// All diagnostic codes of the law.
pub const CODES: &[&Code] = &[&NOT_READ_BACK];

const NOT_READ_BACK: Code = Code {
    number: 296,
    title: "a view does not read back what it writes",
    explanation: "`gw test` makes up messages of every view, writes them and reads them back. Here \
                  a field came back as something else, or the reader took the message for \
                  malformed, for longer or for shorter. The notes show the fields, the octets and \
                  what was read. What only one side means must not be in a layout: give such a \
                  field an end of its own.",
};

/// Result for one view.
#[derive(Clone, Debug)]
pub struct Law {
    /// Its name.
    pub view: String,
    /// Number of messages built and read back.
    pub messages: u32,
    /// The failure, if the law does not hold.
    pub broken: Option<Box<Diagnostic>>,
}

/// Checks every view of a program.
pub fn laws(program: &Arc<Program>) -> Vec<Law> {
    let layouts = Arc::new(Layouts::of(program));
    let views = program.messages.iter().enumerate().filter(|(_, of)| !of.parser.is_empty());
    views.map(|(at, message)| law(&layouts, MessageId::new(at), message)).collect()
}

fn law(layouts: &Arc<Layouts>, id: MessageId, message: &Message) -> Law {
    let program = layouts.program();
    let mut law = Law { view: message.name.clone(), messages: 0, broken: None };
    let hints = Hints::of(message);
    let mut random = LawRandom::of(&message.name);
    for _ in 0..SAMPLES {
        let mut sample = Sample {
            program,
            message,
            hints: &hints,
            random: &mut random,
            view: View::of(message),
            absent: BTreeSet::new(),
            until_close: false,
        };
        sample.fill(&message.emit);
        if sample.goes_on() {
            continue;
        }
        let (view, until_close) = (sample.view, sample.until_close);
        let mut wire = Vec::new();
        if !matches!(crate::emit(program, id, &view, &mut wire), Ok(None)) {
            continue;
        }
        law.messages += 1;
        if let Err(why) = read_back(layouts, id, message, &view, (&wire, until_close)) {
            law.broken = Some(Box::new(broken(message, &view, &wire, &why)));
            break;
        }
    }
    law
}

fn broken(message: &Message, view: &View, wire: &[u8], why: &Differs) -> Diagnostic {
    let said = format!("`{}` does not read back what it writes: {}", message.name, why.text);
    let fields = message.slots.iter().enumerate().filter(|(_, slot)| !slot.scratch);
    let fields = fields.filter_map(|(at, slot)| {
        let value = view.get(SlotId::new(at))?;
        Some(format!("{}: {}", slot.name, crate::machine::shown(&value)))
    });
    let fields: Vec<String> = fields.collect();
    Diagnostic::error(&NOT_READ_BACK, why.span.unwrap_or(message.span), said)
        .note(format!("filled  {}", fields.join(", ")))
        .note(format!("written {}", octets_shown(wire)))
}

/// Difference between a message and what was read back.
struct Differs {
    text: String,
    span: Option<Span>,
}

fn differs(text: impl Into<String>, span: Option<Span>) -> Differs {
    Differs { text: text.into(), span }
}

fn read_back(
    layouts: &Arc<Layouts>,
    id: MessageId,
    message: &Message,
    written: &View,
    (wire, until_close): (&[u8], bool),
) -> Result<(), Differs> {
    let mut parser =
        Parser::new(Arc::clone(layouts), id).map_err(|of| differs(of.to_string(), None))?;
    let (mut at, mut stream) = (0, Vec::new());
    loop {
        let rest = wire.get(at..).unwrap_or_default();
        let last = message.datagram || until_close;
        let progress = parser
            .read(rest, last, &mut stream)
            .map_err(|of| differs(of.to_string(), Some(of.span)))?;
        at = at.saturating_add(progress.consumed);
        if progress.complete {
            break;
        }
        if progress.consumed == 0 {
            return Err(differs("the reader waits for more", None));
        }
    }
    if at != wire.len() {
        let text = format!("the reader takes {at} of {} octets", wire.len());
        return Err(differs(text, None));
    }
    let read = parser.view();
    for (at, slot) in message.slots.iter().enumerate().filter(|(_, slot)| !slot.scratch) {
        let of = |view: &View| view.get(SlotId::new(at)).filter(|value| !is_nothing(value));
        let (one, mut other) = (of(written), of(read));
        if other == Some(Value::Stream) {
            other = Some(Value::Octets(stream.clone())).filter(|value| !is_nothing(value));
        }
        if one != other {
            let shown = |value: &Option<Value>| {
                value.as_ref().map_or_else(|| "absent".to_owned(), crate::machine::shown)
            };
            let text = format!("`{}` comes back as {}", slot.name, shown(&other));
            return Err(differs(text, Some(slot.span)));
        }
    }
    Ok(())
}

/// Whether a value has no octet and no element: an optional field with it comes back absent.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Octets(octets) => octets.is_empty(),
        Value::List(rows) => rows.is_empty(),
        _ => false,
    }
}

/// Constraints of the layout on its slots' values.
struct Hints {
    checks: BTreeMap<SlotId, Check>,
    columns: BTreeMap<(SlotId, u32), Check>,
    /// Values for which guards test.
    asked: BTreeMap<SlotId, Vec<Pattern>>,
    /// Slots whose blanks at both ends are removed.
    trimmed: BTreeSet<SlotId>,
    /// Case folding of a list's columns.
    folded: BTreeMap<SlotId, Vec<Fold>>,
    /// Slots that hold the length of a stream.
    lengths: BTreeSet<SlotId>,
    /// Maximum octets of streams.
    streams: BTreeMap<SlotId, u32>,
}

impl Hints {
    fn of(message: &Message) -> Self {
        let mut hints = Self {
            checks: BTreeMap::new(),
            columns: BTreeMap::new(),
            asked: BTreeMap::new(),
            trimmed: BTreeSet::new(),
            folded: BTreeMap::new(),
            lengths: BTreeSet::new(),
            streams: BTreeMap::new(),
        };
        hints.parts(&message.emit, None);
        for step in &message.parser {
            match &step.op {
                ParseOp::Lookup { entries, .. } => {
                    let texts = entries.iter().filter(|of| matches!(of.key, TableKey::Octets(_)));
                    hints.trimmed.extend(texts.map(|of| real(message, of.into)));
                }
                ParseOp::Stream { into, max: Some(max), .. } => {
                    hints.streams.insert(real(message, *into), *max);
                }
                ParseOp::Append { list, columns } => {
                    let fold = |slot: &SlotId| message.slot(*slot).map_or(Fold::Keep, |of| of.fold);
                    let folds = columns.iter().map(fold).collect();
                    hints.folded.insert(real(message, *list), folds);
                }
                _ => {}
            }
        }
        hints
    }

    fn parts(&mut self, parts: &[Emit], list: Option<SlotId>) {
        for part in parts {
            match part {
                Emit::Octets { from: Source::Slot(slot), check } => {
                    self.checks.insert(*slot, *check);
                }
                Emit::Octets { from: Source::Element(column), check } => {
                    if let Some(list) = list {
                        self.columns.insert((list, *column), *check);
                    }
                }
                Emit::Counted { body, .. }
                | Emit::Checked { body, .. }
                | Emit::Bounded { body, .. } => self.parts(body, list),
                Emit::IfPresent { then, otherwise, .. } => {
                    self.parts(then, list);
                    self.parts(otherwise, list);
                }
                Emit::When { guard, then } => {
                    self.guard(guard);
                    self.parts(then, list);
                }
                Emit::ForEach { list, body } => self.parts(body, Some(*list)),
                Emit::Stream { select, .. } => {
                    for of in select {
                        self.guard(&of.guard);
                        if let StreamFraming::Counted(length) = of.framing {
                            self.lengths.insert(length);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn guard(&mut self, guard: &Guard) {
        match guard {
            Guard::Is { slot, patterns } => {
                self.asked.entry(*slot).or_default().extend(patterns.iter().copied());
            }
            Guard::All(guards) | Guard::Any(guards) => guards.iter().for_each(|of| self.guard(of)),
            Guard::Not(inner) => self.guard(inner),
            Guard::Always | Guard::Present(_) => {}
        }
    }
}

/// The slot to which a repetition's slot is copied; otherwise the slot itself.
fn real(message: &Message, slot: SlotId) -> SlotId {
    let copies = message.parser.iter().find_map(|step| match step.op {
        ParseOp::Copy { from, into } if from == slot => Some(into),
        _ => None,
    });
    copies.unwrap_or(slot)
}

/// A generated message.
struct Sample<'s> {
    program: &'s Program,
    message: &'s Message,
    hints: &'s Hints,
    random: &'s mut LawRandom,
    view: View,
    absent: BTreeSet<SlotId>,
    until_close: bool,
}

impl Sample<'_> {
    /// Fills the slots that these parts write.
    fn fill(&mut self, parts: &[Emit]) {
        for part in parts {
            match part {
                Emit::Octets { from, .. }
                | Emit::Digits { from, .. }
                | Emit::Varint { from, .. }
                | Emit::Extension { of: from, .. } => self.need(from),
                Emit::Word { fields, .. } => fields.iter().for_each(|of| self.need(&of.from)),
                Emit::Counted { body, .. }
                | Emit::Checked { body, .. }
                | Emit::Bounded { body, .. } => self.fill(body),
                Emit::IfPresent { slot, then, otherwise } => {
                    // What has a default comes back as that.
                    if self.is_there(*slot, !otherwise.is_empty()) {
                        self.fill(then);
                    }
                }
                Emit::When { guard, then } => {
                    if self.view.holds(self.program, guard) {
                        self.fill(then);
                    }
                }
                Emit::ForEach { list, .. } => self.list(*list),
                Emit::Stream { slot, select } => {
                    let held = select.iter().find(|of| self.view.holds(self.program, &of.guard));
                    let Some(framing) = held.map(|of| of.framing) else { continue };
                    let max = self.hints.streams.get(slot).copied().unwrap_or(LONG_MAX);
                    self.stream(*slot, framing, max.min(LONG_MAX));
                }
                Emit::Literal(_) | Emit::Let { .. } => {}
            }
        }
    }

    fn need(&mut self, source: &Source) {
        match source {
            Source::Slot(slot) | Source::SlotOr(slot, _) => {
                self.is_there(*slot, true);
            }
            Source::Escape { of, .. } | Source::Decimal(of) | Source::Uint(of) => self.need(of),
            Source::Difference(one, other) => {
                self.need(one);
                self.need(other);
            }
            _ => {}
        }
    }

    /// Whether a slot is filled; the first call decides it and fills the slot.
    fn is_there(&mut self, slot: SlotId, must: bool) -> bool {
        if self.view.get(slot).is_some() {
            return true;
        }
        if !must && (self.absent.contains(&slot) || self.random.below(2) == 0) {
            self.absent.insert(slot);
            return false;
        }
        let Some(about) = self.message.slot(slot) else { return false };
        let value = match about.ty {
            SlotType::Int { low, high } => Value::Int(self.number(slot, low, high)),
            SlotType::Octets { max } => Value::Octets(self.text(slot, about.fold, max)),
            SlotType::List { .. } | SlotType::Stream => return false,
        };
        self.view.set(slot, value);
        true
    }

    fn number(&mut self, slot: SlotId, low: i64, high: i64) -> i64 {
        let asked = self.hints.asked.get(&slot).map_or(&[][..], Vec::as_slice);
        if !asked.is_empty()
            && self.random.below(4) > 0
            && let Some(Pattern::Int { low: from, high: to }) =
                asked.get(self.random.index(asked.len()))
        {
            let (from, to) = ((*from).max(low), (*to).min(high));
            return from.saturating_add(self.random.up_to(to.saturating_sub(from)));
        }
        if self.hints.lengths.contains(&slot) {
            return low.max(self.random.up_to(40));
        }
        let span = high.saturating_sub(low);
        match self.random.below(4) {
            0 => low,
            1 => high,
            2 => low.saturating_add(self.random.up_to(span.min(300))),
            _ => low.saturating_add(self.random.up_to(span)),
        }
    }

    fn text(&mut self, slot: SlotId, fold: Fold, max: u32) -> Vec<u8> {
        let asked = self.hints.asked.get(&slot).map_or(&[][..], Vec::as_slice);
        if !asked.is_empty()
            && self.random.below(3) > 0
            && let Some(Pattern::Octets(literal)) = asked.get(self.random.index(asked.len()))
        {
            return self.program.literal(*literal).to_vec();
        }
        let check = self.hints.checks.get(&slot).copied();
        let trimmed = self.hints.trimmed.contains(&slot);
        self.octets(check.as_ref(), (fold, trimmed), max)
    }

    /// Octets that a field accepts.
    fn octets(&mut self, check: Option<&Check>, (fold, trim): (Fold, bool), max: u32) -> Vec<u8> {
        let (least, most) = check.map_or((0, max), |of| (of.min, of.max.min(max)));
        let long = if self.random.below(16) == 0 { LONG_MAX } else { TEXT_MAX };
        let most = most.min(long.max(least));
        let length = i64::from(least)
            .saturating_add(self.random.up_to(i64::from(most.saturating_sub(least))));
        let mut octets: Vec<u8> = (0..length).map(|_| self.octet(check)).collect();
        match fold {
            Fold::Keep => {}
            Fold::Upper => octets.make_ascii_uppercase(),
            Fold::Lower => octets.make_ascii_lowercase(),
        }
        if trim {
            let blank = |octet: &u8| matches!(octet, b' ' | b'\t');
            let begin = octets.iter().position(|of| !blank(of)).unwrap_or(octets.len());
            octets.drain(..begin);
            let end = octets.iter().rposition(|of| !blank(of)).map_or(0, |last| last + 1);
            octets.truncate(end);
        }
        octets
    }

    fn octet(&mut self, check: Option<&Check>) -> u8 {
        if let Some(set) = check.and_then(|of| of.one_of) {
            let set = self.program.literal(set);
            return set.get(self.random.index(set.len())).copied().unwrap_or(b' ');
        }
        let class = check.and_then(|of| of.class);
        let one_line = check.is_some_and(|of| of.one_line);
        // Marks are what layouts are about: they come more often than their share.
        for _ in 0..TRIES {
            let octet = match self.random.below(4) {
                0 => b" :;,=\"<>.-/0".get(self.random.index(12)).copied().unwrap_or(b' '),
                1 if !one_line => u8::try_from(self.random.below(256)).unwrap_or_default(),
                _ => u8::try_from(self.random.below(95)).unwrap_or_default().saturating_add(b' '),
            };
            if class.is_none_or(|of| of.contains(octet)) {
                return octet;
            }
        }
        if class == Some(Class::Digit) { b'0' } else { b'a' }
    }

    fn list(&mut self, list: SlotId) {
        let Some(SlotType::List { columns, max }) = self.message.slot(list).map(|of| &of.ty) else {
            return;
        };
        let fold_of = self.message.slot(list).map_or(Fold::Keep, |of| of.fold);
        let folds = self.hints.folded.get(&list);
        let trim = self.hints.trimmed.contains(&list);
        let rows = self.random.below(u64::from((*max).min(ROWS_MAX)).saturating_add(1));
        let mut made = Vec::new();
        for _ in 0..rows {
            let mut row = Vec::new();
            for (at, (_, column)) in columns.iter().enumerate() {
                let fold = folds.and_then(|of| of.get(at)).copied().unwrap_or(fold_of);
                row.push(match column {
                    gatewright_lang::ir::ColumnType::Int { low, high } => {
                        Value::Int(self.number(list, *low, *high))
                    }
                    gatewright_lang::ir::ColumnType::Octets { max } => {
                        let key = (list, u32::try_from(at).unwrap_or(u32::MAX));
                        let check = self.hints.columns.get(&key).copied();
                        Value::Octets(self.octets(check.as_ref(), (fold, trim), *max))
                    }
                });
            }
            made.push(row);
        }
        if !made.is_empty() {
            self.view.set(list, Value::List(made));
        }
    }

    fn stream(&mut self, slot: SlotId, framing: StreamFraming, max: u32) {
        let body = match framing {
            StreamFraming::Nothing => Vec::new(),
            StreamFraming::Counted(counts) => {
                let length = self.view.int(counts).unwrap_or(0).clamp(0, i64::from(max));
                self.view.set(counts, Value::Int(length));
                (0..length).map(|_| self.octet(None)).collect()
            }
            StreamFraming::Lines { .. } => {
                let lines = self.random.below(4);
                let mut body = Vec::new();
                for _ in 0..lines {
                    let line = self.octets(None, (Fold::Keep, false), TEXT_MAX);
                    body.extend(line.iter().filter(|octet| !matches!(octet, b'\r' | b'\n')));
                    body.extend_from_slice(b"\r\n");
                }
                if u32::try_from(body.len()).is_ok_and(|length| length > max) {
                    body.clear();
                }
                body
            }
            StreamFraming::Chunked | StreamFraming::UntilClose => {
                self.until_close = framing == StreamFraming::UntilClose;
                self.octets(None, (Fold::Keep, false), max)
            }
        };
        self.view.set(slot, Value::Octets(body));
    }

    /// Whether a repetition continues after it: it is not the last.
    fn goes_on(&self) -> bool {
        let mut view = self.view.clone();
        for step in &self.message.parser {
            if let ParseOp::Copy { from, into } = step.op
                && let Some(value) = self.view.get(into)
            {
                view.set(from, value);
            }
        }
        let pairs = self.message.parser.iter().zip(self.message.parser.iter().skip(1));
        pairs.enumerate().any(|(at, (step, next))| match (&step.op, &next.op) {
            (ParseOp::Branch { guard, .. }, ParseOp::Jump(to)) if to.index() <= at => {
                view.holds(self.program, guard)
            }
            _ => false,
        })
    }
}

/// Number of attempts to find an octet of a class.
const TRIES: u32 = 16;

/// Random numbers that are the same for the same name: splitmix64.
struct LawRandom(u64);

impl LawRandom {
    /// Seeds the generator with FNV-1a of the name.
    fn of(name: &str) -> Self {
        let mix = |hash: u64, octet: u8| (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3);
        Self(name.bytes().fold(0xcbf2_9ce4_8422_2325, mix))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 if that is 0.
    fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }

    fn index(&mut self, length: usize) -> usize {
        let bound = u64::try_from(length).unwrap_or(u64::MAX);
        usize::try_from(self.below(bound)).unwrap_or_default()
    }

    /// A number from 0 to `most`.
    fn up_to(&mut self, most: i64) -> i64 {
        let bound = u64::try_from(most).unwrap_or_default().saturating_add(1);
        i64::try_from(self.below(bound)).unwrap_or_default()
    }
}
