//! Lowers layouts to parsers: the slots of a view, and the steps that fill them.

use super::{Context, twice};
use crate::codes;
use crate::ir::{
    ColumnType, Emit, Fold, Guard, LocalId, Message, MessageId, ParseOp, ParseStep, Slot, SlotId,
    SlotType, StepId,
};
use crate::syntax::ast::{
    Condition, Field, FieldType, Frame, Item, Layout, LineFrame, MessageModule, Name, Number,
};
use gatewright_diagnostic::{Diagnostic, Span};

/// Prefix of the slots of a repeated line's repetition; the last repetition's values are copied
/// out.
pub(super) const REPEATED: &str = "~";

/// One layout while it is lowered to a message.
pub(super) struct Lowering<'c, 'a> {
    pub(super) context: &'c mut Context<'a>,
    pub(super) module: &'a MessageModule,
    pub(super) slots: Vec<Slot>,
    pub(super) steps: Vec<ParseStep>,
    pub(super) defaults: Vec<(SlotId, super::Constant)>,
    /// Fields that are mandatory where the guard of their `when` holds.
    pub(super) needed: Vec<(Guard, SlotId)>,
    pub(super) counters: u8,
    pub(super) locals: u32,
    pub(super) window: u32,
    /// Source position of a stream, if there was one.
    pub(super) stream: Option<Span>,
    /// The fields of the view or part that only measure other fields, at any depth.
    pub(super) measured: Vec<&'a str>,
    /// The parts around the current place.
    pub(super) parts: Vec<&'a str>,
}

/// Surroundings of an item.
#[derive(Clone, Debug)]
pub(super) struct ItemContext {
    /// Prefix of the names in this scope.
    pub(super) prefix: String,
    /// Whether its slots are internal to the parser.
    pub(super) scratch: bool,
    /// Whether a well-formed message may lack it.
    pub(super) optional: bool,
    /// Whether the end of the octets is known: a line, a counted block, a datagram.
    pub(super) bounded: bool,
    /// Maximum octets left for one field; `None` without a bound.
    pub(super) room: Option<u32>,
}

/// Bit fields that fill whole octets, or one other item.
pub(super) enum Group<'a> {
    Word(Vec<&'a Field>),
    Item(&'a Item),
}

impl<'a> Context<'a> {
    /// Lowers every view and text template of every module.
    pub(super) fn layouts(&mut self) {
        for module in self.world.modules.values().copied() {
            let mut names: Vec<&Name> = Vec::new();
            let all = (module.parts.iter().chain(&module.views).map(|layout| &layout.name))
                .chain(module.templates.iter().map(|template| &template.name));
            for name in all {
                match names.iter().find(|other| other.text == name.text) {
                    Some(other) => self.report(twice(name, other.span)),
                    None => names.push(name),
                }
            }
            for view in &module.views {
                self.view(module, view);
            }
        }
        self.text_templates();
        self.templates();
    }

    fn view(&mut self, module: &'a MessageModule, layout: &'a Layout) {
        let mut lowering = Lowering {
            context: self,
            module,
            slots: Vec::new(),
            steps: Vec::new(),
            defaults: Vec::new(),
            needed: Vec::new(),
            counters: 0,
            locals: 0,
            window: 0,
            stream: None,
            measured: measured(&layout.items),
            parts: Vec::new(),
        };
        let emit = lowering.whole(layout);
        let Lowering { slots, steps, defaults, needed, locals, window, .. } = lowering;
        let message = Message {
            name: format!("{}.{}", module.name.text, layout.name.text),
            span: layout.name.span,
            octets_max: slots.iter().map(|slot| held(&slot.ty)).sum(),
            slots,
            parser: steps,
            emit,
            locals,
            datagram: matches!(layout.frame, Frame::Datagram(_)),
            window_max: window,
        };
        self.add_message(&module.name.text, &layout.name.text, message, defaults, None);
        if let Some(last) = self.needed.last_mut() {
            *last = needed;
        }
    }

    pub(super) fn add_message(
        &mut self,
        module: &'a str,
        name: &'a str,
        message: Message,
        defaults: Vec<(SlotId, super::Constant)>,
        view: Option<MessageId>,
    ) {
        let id = MessageId::new(self.messages.len());
        self.ids.insert((module, name), id);
        self.messages.push(message);
        self.defaults.push(defaults);
        self.views.push(view.unwrap_or(id));
        self.needed.push(Vec::new());
    }
}

/// Maximum octets of a slot of this type.
pub(super) fn held(ty: &SlotType) -> u64 {
    match ty {
        SlotType::Int { .. } => 8,
        SlotType::Octets { max } => u64::from(*max),
        SlotType::List { columns, max } => {
            let element: u64 = (columns.iter())
                .map(|(_, column)| match column {
                    ColumnType::Int { .. } => 8,
                    ColumnType::Octets { max } => u64::from(*max),
                })
                .sum();
            element.saturating_mul(u64::from(*max))
        }
        SlotType::Stream => 0,
    }
}

impl<'a> Lowering<'_, 'a> {
    fn whole(&mut self, layout: &'a Layout) -> Vec<Emit> {
        let found = self.context.found.len();
        let mut place = ItemContext {
            prefix: String::new(),
            scratch: false,
            optional: false,
            bounded: false,
            room: None,
        };
        let emit = match &layout.frame {
            Frame::Plain => {
                self.items(&layout.items, &place);
                self.emit_scope(&layout.items, &super::emit::Scope::top())
            }
            Frame::Datagram(max) => {
                place.bounded = true;
                place.room = Some(self.limited(*max, layout.name.span, "a datagram"));
                self.window = place.room.unwrap_or_default();
                self.items(&layout.items, &place);
                let body = self.emit_scope(&layout.items, &super::emit::Scope::top());
                vec![Emit::Bounded { max: place.room.unwrap_or(1), body }]
            }
            Frame::Line(frame) => {
                self.line(frame, &layout.items, &place);
                self.emit_line(frame, &layout.items, &super::emit::Scope::top())
            }
        };
        self.step(ParseOp::Accept, layout.name.span);
        // In a layout that is wrong otherwise, what would be found here may follow from that.
        if self.context.found.len() == found {
            self.ends_are_told(layout);
        }
        emit
    }

    pub(super) fn limited(&mut self, max: Option<Number>, span: Span, what: &str) -> u32 {
        if let Some(max) = self.context.limit(max) {
            return max;
        }
        self.context.report(
            Diagnostic::error(&codes::NO_LIMIT, span, format!("{what} needs a limit"))
                .help("write `, at most N octets`"),
        );
        1
    }

    // -- Steps and slots.

    pub(super) fn step(&mut self, op: ParseOp, span: Span) -> StepId {
        self.steps.push(ParseStep { op, span });
        StepId::new(self.steps.len() - 1)
    }

    pub(super) fn here(&self) -> StepId {
        StepId::new(self.steps.len())
    }

    /// Sets the target of a step, once it is known.
    pub(super) fn lead(&mut self, step: StepId, to: StepId) {
        let op = self.steps.get_mut(step.index()).map(|step| &mut step.op);
        if let Some(
            ParseOp::AtEnd { then }
            | ParseOp::Peek { then, .. }
            | ParseOp::Branch { otherwise: then, .. }
            | ParseOp::Jump(then),
        ) = op
        {
            *then = to;
        }
    }

    pub(super) fn lookup(&self, prefix: &str, name: &str) -> Option<SlotId> {
        let full = format!("{prefix}{name}");
        self.slots.iter().position(|slot| slot.name == full).map(SlotId::new)
    }

    pub(super) fn slot(&self, id: SlotId) -> Option<&Slot> {
        self.slots.get(id.index())
    }

    pub(super) fn declare(&mut self, slot: Slot) -> SlotId {
        if self.slots.len() >= SLOTS_MAX {
            let message = format!("more than {SLOTS_MAX} fields in one layout");
            let span = self.slots.first().map_or(slot.span, |first| first.span);
            self.context.error(&codes::BAD_FIELD, span, message);
            return SlotId::new(0);
        }
        if let Some(other) = self.slots.iter().find(|other| other.name == slot.name) {
            let message = format!("`{}` is declared twice", slot.name);
            let before = other.span;
            self.context.report(
                Diagnostic::error(&codes::DECLARED_TWICE, slot.span, message)
                    .also(before, "first here"),
            );
        }
        self.slots.push(slot);
        SlotId::new(self.slots.len() - 1)
    }

    /// A slot that is internal to the parser.
    pub(super) fn scratch(&mut self, name: &str, ty: SlotType, span: Span) -> SlotId {
        let name = format!("{name}#{}", self.slots.len());
        let fold = Fold::Keep;
        self.declare(Slot { name, span, ty, fold, optional: true, private: false, scratch: true })
    }

    // -- Items.

    pub(super) fn items(&mut self, items: &'a [Item], place: &ItemContext) {
        let measured = self.measured.clone();
        let total = min_bits(items);
        for group in self.groups(items) {
            self.nothing_behind_a_stream();
            match group {
                Group::Word(fields) => self.word(&fields, place, &measured),
                Group::Item(item) => {
                    let others = total.saturating_sub(min_bits(std::slice::from_ref(item))) / 8;
                    let mut place = place.clone();
                    place.room = place.room.map(|room| room.saturating_sub(others));
                    self.item(item, &place, &measured);
                }
            }
        }
    }

    /// Reports a stream that another item follows: the item would never be read.
    fn nothing_behind_a_stream(&mut self) {
        let Some(before) = self.stream.take() else { return };
        let message = "the stream is not the last of its message";
        self.context.report(
            Diagnostic::error(&codes::STREAM_NOT_LAST, before, message)
                .label("something comes behind it"),
        );
    }

    /// Reports a field with a sign where it would be meaningless.
    pub(super) fn has_no_sign(&mut self, slot: SlotId, name: &Name, what: &str) {
        if matches!(self.slot(slot), Some(Slot { ty: SlotType::Int { low: ..0, .. }, .. })) {
            let message = format!("`{}` has a sign; {what} has none", name.text);
            self.context.report(
                Diagnostic::error(&codes::NOT_MEASURED, name.span, message)
                    .help("read it as `u…` of the same width"),
            );
        }
    }

    /// Groups bit fields until they fill octets.
    pub(super) fn groups(&mut self, items: &'a [Item]) -> Vec<Group<'a>> {
        let mut groups = Vec::new();
        let mut word: Vec<&Field> = Vec::new();
        let mut bits = 0_u32;
        for item in flat(items) {
            if let Item::Field(field) = item
                && let FieldType::Bits(of) = field.ty
            {
                bits += u32::from(of.width);
                word.push(field);
                if bits.is_multiple_of(8) {
                    groups.push(Group::Word(std::mem::take(&mut word)));
                    bits = 0;
                }
                continue;
            }
            self.unaligned(&mut word, &mut bits);
            groups.push(Group::Item(item));
        }
        self.unaligned(&mut word, &mut bits);
        groups
    }

    fn unaligned(&mut self, word: &mut Vec<&Field>, bits: &mut u32) {
        if let (Some(first), Some(last)) = (word.first(), word.last()) {
            let span = first.name.span.to(last.ty_span);
            let rest = 8 - *bits % 8;
            let already = self.context.found.iter().any(|found| found.primary.span == span);
            if !already {
                let message = format!("these fields have {bits} bits, {rest} too few for octets");
                self.context.error(&codes::BITS_UNALIGNED, span, message);
            }
        }
        word.clear();
        *bits = 0;
    }

    fn item(&mut self, item: &'a Item, place: &ItemContext, measured: &[&str]) {
        match item {
            Item::Literal(octets) => {
                let literal = self.context.literal(&octets.value);
                self.step(ParseOp::Literal { literal, fold: false }, octets.span);
            }
            Item::Skip { blanks, span, .. } => self.skip(*blanks, *span, place),
            Item::Field(field) => self.field(field, place, measured),
            Item::Line { frame, items } => self.line(frame, items, place),
            Item::Repeated { guard, times, items, span } => {
                if !place.prefix.is_empty() {
                    let message = "a repetition belongs in a view, not in a part";
                    self.context.error(&codes::BAD_FIELD, *span, message);
                }
                let what = "a repetition needs a limit";
                self.repeated((guard, *times), *span, what, place, |this, inner| {
                    this.items(items, inner);
                });
            }
            Item::Counted { by, max, items, span } => {
                self.counted(*by, *max, items, place, *span);
            }
            Item::When { guard, items, span } => self.when(guard, items, place, *span),
            Item::Table(table) => self.table(table, place, measured),
            Item::Extend { field, cases, span } => self.extend(field, cases, place, *span),
            Item::Checked { by, items, span } => {
                self.step(ParseOp::BeginCheck { by: *by }, *span);
                self.items(items, place);
                self.step(ParseOp::EndCheck { by: *by }, *span);
            }
            // Its fields stand in its place already.
            Item::Diagram(_) => {}
        }
    }

    /// A line, perhaps repeated; then the values of the last one count.
    fn line(&mut self, frame: &'a LineFrame, items: &'a [Item], place: &ItemContext) {
        if frame.folded {
            let message = "only the line of a part is folded: behind it there is always another";
            self.context.error(&codes::WRONG_PLACE, frame.span, message);
        }
        let max = self.limited(frame.max, frame.span, "a line");
        self.window = self.window.max(max);
        let room = max.saturating_sub(2);
        let inner = ItemContext { bounded: true, room: Some(room), ..place.clone() };
        let read = |this: &mut Self, inner: &ItemContext| {
            this.step(ParseOp::EnterLine { max, folded: false }, frame.span);
            this.items(items, inner);
            this.step(ParseOp::Leave, frame.span);
        };
        let Some((guard, times)) = &frame.repeat else { return read(self, &inner) };
        let what = "a repeated line needs a limit";
        let room = inner.room;
        self.repeated((guard, *times), frame.span, what, place, |this, inner| {
            read(this, &ItemContext { bounded: true, room, ..inner.clone() });
        });
    }

    /// Items that are read repeatedly while the guard holds; the last values count.
    fn repeated(
        &mut self,
        (guard, times): (&'a Condition, Option<Number>),
        span: Span,
        limit: &str,
        place: &ItemContext,
        read: impl FnOnce(&mut Self, &ItemContext),
    ) {
        let times = self.context.limit(times).unwrap_or_else(|| {
            self.context.report(
                Diagnostic::error(&codes::NO_LIMIT, span, limit).help("write `, at most N times`"),
            );
            1
        });
        let inner = ItemContext {
            prefix: format!("{}{REPEATED}", place.prefix),
            scratch: true,
            ..place.clone()
        };
        let first = self.slots.len();
        let start = self.count(times, span);
        let clear = self.step(ParseOp::Clear { slots: Vec::new() }, span);
        read(self, &inner);
        let repeated: Vec<SlotId> = (first..self.slots.len()).map(SlotId::new).collect();
        if let Some(step) = self.steps.get_mut(clear.index()) {
            step.op = ParseOp::Clear { slots: repeated.clone() };
        }
        let guard = self.guard(&inner.prefix, guard);
        let leave = self.step(ParseOp::Branch { guard, otherwise: start }, span);
        self.step(ParseOp::Jump(start), span);
        let end = self.here();
        self.lead(leave, end);
        for from in repeated {
            self.copy_out(from, &inner.prefix, place, span);
        }
    }

    fn copy_out(&mut self, from: SlotId, prefix: &str, place: &ItemContext, span: Span) {
        let Some(slot) = self.slot(from) else { return };
        let Some(name) = slot.name.strip_prefix(prefix).filter(|name| !name.contains(['#', '!']))
        else {
            return;
        };
        let real = Slot {
            name: format!("{}{name}", place.prefix),
            scratch: place.scratch || self.measured.contains(&name),
            optional: slot.optional || place.optional,
            ..slot.clone()
        };
        let into = self.declare(real);
        let default = self.defaults.iter().find(|(of, _)| *of == from).map(|(_, value)| *value);
        self.defaults.extend(default.map(|value| (into, value)));
        self.step(ParseOp::Copy { from, into }, span);
    }

    /// Begins a loop.
    pub(super) fn count(&mut self, max: u32, span: Span) -> StepId {
        let counter = self.counters;
        self.counters += 1;
        if counter >= COUNTERS_MAX {
            let message = format!("more than {COUNTERS_MAX} repetitions in one layout");
            self.context.error(&codes::BAD_FIELD, span, message);
        }
        self.step(ParseOp::Count { counter, max }, span)
    }

    pub(super) fn new_local(&mut self) -> LocalId {
        self.locals += 1;
        LocalId::new(usize::try_from(self.locals - 1).unwrap_or_default())
    }
}

/// The items, with a diagram replaced by its fields.
pub(super) fn flat(items: &[Item]) -> Vec<&Item> {
    let mut flat = Vec::new();
    for item in items {
        match item {
            Item::Diagram(fields) => flat.extend(fields),
            other => flat.push(other),
        }
    }
    flat
}

/// Maximum number of fields of one layout, with those internal to the parser.
const SLOTS_MAX: usize = 1_024;

/// Maximum number of loops of one layout.
const COUNTERS_MAX: u8 = 7;

/// The fields that only measure others, and so are computed by the serializer.
pub(super) fn measured(items: &[Item]) -> Vec<&str> {
    let mut names = Vec::new();
    for item in items {
        match item {
            Item::Field(field) => match &field.ty {
                FieldType::Taken(crate::syntax::ast::Literal::Name(name))
                | FieldType::SumOf(name) => names.push(name.text.as_str()),
                _ => {}
            },
            Item::When { items, .. }
            | Item::Line { items, .. }
            | Item::Repeated { items, .. }
            | Item::Counted { items, .. }
            | Item::Checked { items, .. } => names.extend(measured(items)),
            _ => {}
        }
    }
    names
}

/// Minimum number of bits of the items.
pub(super) fn min_bits(items: &[Item]) -> u32 {
    let size = |octets: usize| u32::try_from(octets).unwrap_or(u32::MAX).saturating_mul(8);
    let bits = |item: &Item| match item {
        Item::Literal(octets) => size(octets.value.len()),
        Item::Field(field) => match &field.ty {
            FieldType::Bits(bits) => u32::from(bits.width),
            _ if field.optional => 0,
            FieldType::Digits { min, .. } => min.saturating_mul(8),
            FieldType::Token(_) | FieldType::Word(_) | FieldType::OneOf(_) | FieldType::Varint => 8,
            FieldType::Until(_, delimiter) => size(delimiter.value.len()),
            FieldType::Taken(crate::syntax::ast::Literal::Number(number)) => {
                size(usize::try_from(number.value).unwrap_or_default())
            }
            _ => 0,
        },
        Item::Line { items, .. } => min_bits(items).saturating_add(16),
        Item::Repeated { items, .. } => min_bits(items),
        Item::Counted { items, .. } => min_bits(items).saturating_add(8),
        Item::Checked { by, items, .. } => {
            min_bits(items).saturating_add(u32::from(by.octets()) * 8)
        }
        Item::Diagram(fields) => min_bits(fields),
        _ => 0,
    };
    items.iter().map(bits).fold(0, u32::saturating_add)
}
