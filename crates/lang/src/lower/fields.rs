//! Lowers the items of a layout to parser steps, one kind at a time.

use super::Constant;
use super::layout::{ItemContext, Lowering, measured as measured_of};
use crate::codes;
use crate::ir::{
    BitField, Class, ColumnType, Convert, ExtendCase, Fold, Guard, Length, Order, ParseOp, Select,
    Slot, SlotId, SlotType, StepId, StreamFraming, TableKey, TableRow,
};
use crate::syntax::ast::{
    self, Bits, Case, Condition, Extension, Field, FieldType, Framing, Item, ListOf, Literal,
    Measure, Name, Number, Presence, Table, TableEnd,
};
use gatewright_diagnostic::{Diagnostic, Span};

/// Maximum octets of a skipped run of spaces without another bound.
const SKIP_MAX: u32 = 512;

/// Maximum nesting of parts.
const PARTS_MAX: usize = 8;

/// Maximum octets of a varint: four groups of seven bits (MQTT 3.1.1 §2.2.3).
pub(super) const VARINT_OCTETS_MAX: u8 = 4;

impl<'a> Lowering<'_, 'a> {
    pub(super) fn skip(&mut self, blanks: bool, span: Span, place: &ItemContext) {
        let class = if blanks { Class::Blank } else { Class::Space };
        let max = place.room.unwrap_or(SKIP_MAX);
        self.step(
            ParseOp::Run {
                class,
                into: None,
                empty_is_absent: false,
                fold: Fold::Keep,
                min: 0,
                max,
            },
            span,
        );
    }

    pub(super) fn word(&mut self, fields: &[&'a Field], place: &ItemContext, measured: &[&str]) {
        let bits: u32 = fields.iter().map(|field| u32::from(width(field))).sum();
        let Some(span) = fields.first().map(|field| field.name.span) else { return };
        let Some(octets) = u8::try_from(bits / 8).ok().filter(|octets| *octets <= 8) else {
            self.context.error(&codes::BITS_UNALIGNED, span, "more than eight octets of bits");
            return;
        };
        let little =
            fields.iter().any(|field| matches!(field.ty, FieldType::Bits(bits) if bits.little));
        if little && fields.len() > 1 {
            let message = "a little-endian field fills whole octets alone";
            self.context.error(&codes::BITS_UNALIGNED, span, message);
        }
        let mut shift = bits;
        let mut parts = Vec::new();
        for field in fields {
            let FieldType::Bits(bits) = field.ty else { continue };
            let Bits { width, signed, .. } = bits;
            shift -= u32::from(width);
            let (low, high) = bits.bounds();
            let ty = SlotType::Int { low, high };
            let (into, expect) = match &field.fixed {
                Some(_) if field.reserved => (None, None),
                Some(fixed) => (None, self.fixed(fixed, (low, high))),
                None => (Some(self.field_slot(field, ty, place, measured)), None),
            };
            let shift = u8::try_from(shift).unwrap_or(0);
            parts.push(BitField { shift, width, signed, into, expect });
        }
        let order = if little { Order::Little } else { Order::Big };
        self.window = self.window.max(u32::from(octets));
        self.step(ParseOp::Word { octets, order, fields: parts }, span);
    }

    /// The only value of a field.
    fn fixed(&mut self, literal: &Literal, (low, high): (i64, i64)) -> Option<i64> {
        match self.context.constant(self.module, literal)? {
            Constant::Int(value) if (low..=high).contains(&value) => Some(value),
            _ => {
                let message = format!("this is no number in {low}..{high}");
                self.context.error(&codes::OUT_OF_RANGE, literal.span(), message);
                None
            }
        }
    }

    fn field_slot(
        &mut self,
        field: &'a Field,
        ty: SlotType,
        place: &ItemContext,
        measured: &[&str],
    ) -> SlotId {
        let default = field.default.as_ref().and_then(|default| {
            self.context.constant(self.module, default).map(|value| (value, default.span()))
        });
        let id = self.declare(Slot {
            name: format!("{}{}", place.prefix, field.name.text),
            span: field.name.span,
            ty,
            fold: match field.ty {
                FieldType::Token(case)
                | FieldType::Word(case)
                | FieldType::Until(case, _)
                | FieldType::Rest(case) => fold(case),
                _ => Fold::Keep,
            },
            optional: field.optional || place.optional,
            private: field.private,
            scratch: place.scratch || measured.contains(&field.name.text.as_str()),
        });
        if let Some((value, span)) = default {
            let fits = match self.slot(id).map(|slot| &slot.ty) {
                // A field without a sign may be extended later on.
                Some(SlotType::Int { low, high }) => matches!(value, Constant::Int(value)
                    if value >= *low && (*low == 0 || value <= *high)),
                Some(SlotType::Octets { .. } | SlotType::Stream) => {
                    matches!(value, Constant::Octets(_))
                }
                _ => false,
            };
            if !fits {
                let message = "the default is not of the field's type";
                self.context.error(&codes::WRONG_TYPE, span, message);
            }
            self.defaults.push((id, value));
        }
        id
    }

    pub(super) fn field(&mut self, field: &'a Field, place: &ItemContext, measured: &[&str]) {
        if let Some(fixed) = &field.fixed {
            let message = "only a field of bits has one fixed value; write octets as a text";
            self.context.error(&codes::BAD_FIELD, fixed.span(), message);
        }
        let optional = field.optional;
        let span = field.name.span;
        match &field.ty {
            FieldType::Bits(_) => {}
            FieldType::Varint => {
                let ty = SlotType::Int { low: 0, high: (1 << 28) - 1 };
                let into = self.field_slot(field, ty, place, measured);
                self.step(ParseOp::Varint { octets_max: VARINT_OCTETS_MAX, into }, span);
            }
            FieldType::Digits { radix, min, max } => {
                let high = i64::from(*radix).saturating_pow(*max) - 1;
                let into = self.field_slot(field, SlotType::Int { low: 0, high }, place, measured);
                let (radix, min, max) = (*radix, if optional { 0 } else { *min }, *max);
                self.step(ParseOp::Digits { radix, min, max, into }, span);
            }
            FieldType::Token(case) | FieldType::Word(case) => {
                let (into, max) = self.octets_slot(field, place, measured, None);
                let min = u32::from(!optional);
                let word = matches!(field.ty, FieldType::Word(_));
                let class = if word { Class::Word } else { Class::Token };
                let fold = fold(*case);
                let op = ParseOp::Run {
                    class,
                    into: Some(into),
                    empty_is_absent: optional,
                    fold,
                    min,
                    max,
                };
                self.step(op, span);
            }
            FieldType::Until(case, delimiter) => {
                let (into, max) = self.octets_slot(field, place, measured, None);
                self.until(delimiter, into, fold(*case), max, span);
            }
            FieldType::Rest(case) => {
                self.needs_end(place, field.ty_span, "`rest`");
                let (into, max) = self.octets_slot(field, place, measured, None);
                let (length, fold) = (Length::Rest, fold(*case));
                let op = ParseOp::Take {
                    length,
                    into: Some(into),
                    empty_is_absent: optional,
                    fold,
                    max,
                };
                self.step(op, span);
            }
            FieldType::Taken(length) => self.taken(field, length, place, measured),
            FieldType::OneOf(set) => {
                let set = self.context.literal(&set.value);
                let (into, _) = self.octets_slot(field, place, measured, Some(1));
                self.step(ParseOp::OneOf { set, into, optional }, span);
            }
            FieldType::SumOf(add) => self.sum(field, add, place, measured),
            FieldType::List(of) => self.list(field, of, place, measured),
            FieldType::Stream(cases) => self.stream(field, cases, place, measured),
        }
    }

    fn until(&mut self, delimiter: &ast::Octets, into: SlotId, fold: Fold, max: u32, span: Span) {
        if delimiter.value.is_empty() {
            self.context.error(&codes::BAD_FIELD, delimiter.span, "the delimiter is empty");
        }
        let delimiter = self.context.literal(&delimiter.value);
        self.step(ParseOp::Until { delimiter, into: Some(into), fold, max }, span);
    }

    /// A slot of octets with its limit: its own, or the octets left at its place.
    fn octets_slot(
        &mut self,
        field: &'a Field,
        place: &ItemContext,
        measured: &[&str],
        known: Option<u32>,
    ) -> (SlotId, u32) {
        let own = self.context.limit(field.max);
        let max = own.or(known).or(place.room).unwrap_or_else(|| {
            let message = format!("`{}` needs a limit", field.name.text);
            self.context.report(
                Diagnostic::error(&codes::NO_LIMIT, field.name.span, message)
                    .help("write `, at most N octets` behind its type"),
            );
            1
        });
        self.window = self.window.max(max);
        (self.field_slot(field, SlotType::Octets { max }, place, measured), max)
    }

    fn needs_end(&mut self, place: &ItemContext, span: Span, what: &str) {
        if !place.bounded {
            let message = format!("{what} has no end here");
            self.context.report(
                Diagnostic::error(&codes::BAD_FIELD, span, message)
                    .help("it belongs in a `line`, a `counted` block or a `datagram`"),
            );
        }
    }

    fn taken(
        &mut self,
        field: &'a Field,
        length: &Literal,
        place: &ItemContext,
        measured: &[&str],
    ) {
        let (length, known) = match length {
            Literal::Name(name) => {
                let Some(slot) = self.lookup(&place.prefix, &name.text) else {
                    let message = format!("no field `{}` comes before", name.text);
                    self.context.error(&codes::NOT_MEASURED, name.span, message);
                    return;
                };
                let Some(&SlotType::Int { high, .. }) = self.slot(slot).map(|slot| &slot.ty) else {
                    let message = format!("`{}` is no number", name.text);
                    self.context.error(&codes::NOT_MEASURED, name.span, message);
                    return;
                };
                self.has_no_sign(slot, name, "a length");
                let known = u32::try_from(high).ok().filter(|high| *high <= 0xffff);
                (Length::Slot(slot), known)
            }
            literal => match self.context.constant(self.module, literal) {
                Some(Constant::Int(value)) => {
                    let fixed = self.context.limit(Some(Number { value, span: literal.span() }));
                    (Length::Fixed(fixed.unwrap_or(1)), fixed)
                }
                _ => return,
            },
        };
        let (into, max) = self.octets_slot(field, place, measured, known);
        let empty_is_absent = field.optional;
        let op = ParseOp::Take { length, into: Some(into), empty_is_absent, fold: Fold::Keep, max };
        self.step(op, field.name.span);
    }

    fn sum(&mut self, field: &'a Field, add: &Name, place: &ItemContext, measured: &[&str]) {
        let Some(added) = self.lookup(&place.prefix, &add.text) else {
            let message = format!("no field `{}` comes before", add.text);
            self.context.error(&codes::NOT_MEASURED, add.span, message);
            return;
        };
        self.has_no_sign(added, add, "what is added up");
        let ty = SlotType::Int { low: 0, high: i64::from(u32::MAX) };
        let into = self.field_slot(field, ty, place, measured);
        let add = added;
        self.step(ParseOp::Sum { into, add }, field.name.span);
    }

    /// Elements up to the end of the region.
    fn list(&mut self, field: &'a Field, of: &'a ListOf, place: &ItemContext, measured: &[&str]) {
        let span = field.name.span;
        self.needs_end(place, field.ty_span, "a list");
        let max = self.list_limit(field.max, span, &field.name.text);
        let first = self.slots.len();
        let at_end = self.step(ParseOp::AtEnd { then: StepId::new(0) }, span);
        let start = self.count(max, span);
        let inner = ItemContext {
            prefix: format!("{}{}.", place.prefix, field.name.text),
            scratch: true,
            ..place.clone()
        };
        match of {
            ListOf::Bits(bits) => {
                let (low, high) = bits.bounds();
                let Bits { width, signed, little } = *bits;
                if width % 8 != 0 {
                    let message = "an element fills whole octets";
                    self.context.error(&codes::BITS_UNALIGNED, field.ty_span, message);
                }
                let into = self.scratch("element", SlotType::Int { low, high }, span);
                let order = if little { Order::Little } else { Order::Big };
                let into = Some(into);
                let fields = vec![BitField { shift: 0, width, signed, into, expect: None }];
                self.step(ParseOp::Word { octets: width / 8, order, fields }, span);
            }
            ListOf::Part(part) => self.part(part, &inner),
        }
        let hidden = match of {
            ListOf::Part(name) => self.find_part(name).map(|part| measured_of(&part.items)),
            ListOf::Bits(_) => None,
        };
        let columns: Vec<SlotId> = (first..self.slots.len())
            .map(SlotId::new)
            .filter(|id| self.is_column(*id, &inner.prefix, hidden.as_deref().unwrap_or(&[])))
            .collect();
        let types = columns.iter().filter_map(|id| self.column(*id, &inner.prefix)).collect();
        let list = self.field_slot(field, SlotType::List { columns: types, max }, place, measured);
        self.step(ParseOp::Append { list, columns }, span);
        let again = self.step(ParseOp::AtEnd { then: StepId::new(0) }, span);
        self.step(ParseOp::Jump(start), span);
        let end = self.here();
        self.lead(at_end, end);
        self.lead(again, end);
        self.step(ParseOp::Settle { slots: vec![list] }, span);
    }

    /// Whether a slot belongs to an element itself, and does not measure it.
    fn is_column(&self, id: SlotId, prefix: &str, hidden: &[&str]) -> bool {
        let Some(slot) = self.slot(id) else { return false };
        slot.name.starts_with("element#")
            || (slot.name.strip_prefix(prefix))
                .is_some_and(|name| !name.contains(['#', '.', '!']) && !hidden.contains(&name))
    }

    fn column(&self, id: SlotId, prefix: &str) -> Option<(String, ColumnType)> {
        let slot = self.slot(id)?;
        let name = slot.name.strip_prefix(prefix).unwrap_or_default().to_owned();
        match slot.ty {
            SlotType::Int { low, high } => Some((name, ColumnType::Int { low, high })),
            SlotType::Octets { max } => Some((name, ColumnType::Octets { max })),
            _ => None,
        }
    }

    pub(super) fn list_limit(&mut self, max: Option<Number>, span: Span, name: &str) -> u32 {
        if let Some(max) = self.context.limit(max) {
            return max;
        }
        let message = format!("the list `{name}` needs a limit");
        self.context
            .report(Diagnostic::error(&codes::NO_LIMIT, span, message).help("write `, at most N`"));
        1
    }

    pub(super) fn find_part(&mut self, name: &Name) -> Option<&'a ast::Layout> {
        let module = self.module;
        let part = module.parts.iter().find(|part| part.name.text == name.text);
        if part.is_none() {
            let known = module.parts.iter().map(|part| part.name.text.as_str());
            self.context.unknown("part", name, known);
        }
        part
    }

    fn part(&mut self, name: &Name, place: &ItemContext) {
        let Some(part) = self.find_part(name) else { return };
        if self.parts.contains(&part.name.text.as_str()) || self.parts.len() >= PARTS_MAX {
            let message = format!("`{}` holds itself, or parts nest too deep", name.text);
            self.context.error(&codes::RECURSION, name.span, message);
            return;
        }
        self.parts.push(&part.name.text);
        let outer = std::mem::replace(&mut self.measured, measured_of(&part.items));
        match &part.frame {
            ast::Frame::Line(frame) => {
                let item_place = ItemContext { bounded: true, ..place.clone() };
                self.part_line(frame, &part.items, &item_place);
            }
            _ => self.items(&part.items, place),
        }
        self.measured = outer;
        self.parts.pop();
    }

    fn part_line(&mut self, frame: &'a ast::LineFrame, items: &'a [Item], place: &ItemContext) {
        let max = self.limited(frame.max, frame.span, "a line");
        // Whether it is folded only the octet behind it tells.
        self.window = self.window.max(max.saturating_add(u32::from(frame.folded)));
        self.step(ParseOp::EnterLine { max, folded: frame.folded }, frame.span);
        self.items(items, &ItemContext { room: Some(max.saturating_sub(2)), ..place.clone() });
        self.step(ParseOp::Leave, frame.span);
    }

    fn stream(
        &mut self,
        field: &'a Field,
        cases: &'a [(Option<Condition>, Framing)],
        place: &ItemContext,
        measured: &[&str],
    ) {
        if place.bounded || place.scratch {
            let message =
                "a stream is not possible in a line, a counted block, a datagram or a part";
            self.context.error(&codes::BAD_FIELD, field.ty_span, message);
        }
        let select = self.framings(cases, &place.prefix);
        let into = self.field_slot(field, SlotType::Stream, place, measured);
        let max = self.stream_limit(field.max);
        self.step(ParseOp::Stream { into, select, max }, field.name.span);
        self.stream = Some(field.name.span);
    }

    /// The limit of a stream: nothing of it is held, so it may be larger than those of fields.
    fn stream_limit(&mut self, max: Option<Number>) -> Option<u32> {
        let Number { value, span } = max?;
        let limit = u32::try_from(value).ok().filter(|limit| *limit > 0);
        if limit.is_none() {
            let message = format!("{value} is not between 1 and {}", u32::MAX);
            self.context.error(&codes::LIMIT_TOO_BIG, span, message);
        }
        limit
    }

    pub(super) fn framings(
        &mut self,
        cases: &'a [(Option<Condition>, Framing)],
        prefix: &str,
    ) -> Vec<Select> {
        let mut select = Vec::new();
        for (guard, framing) in cases {
            let guard = guard.as_ref().map_or(Guard::Always, |guard| self.guard(prefix, guard));
            let framing = match framing {
                Framing::Lines { until, stuffed } => StreamFraming::Lines {
                    terminator: self.context.literal(&until.value),
                    stuffing: {
                        let stuffed = stuffed.as_ref().map_or(&[][..], |octets| &octets.value);
                        self.context.literal(stuffed)
                    },
                },
                Framing::Chunked => StreamFraming::Chunked,
                Framing::UntilClose => StreamFraming::UntilClose,
                Framing::Nothing => StreamFraming::Nothing,
                Framing::Counted(name) => {
                    let Some(slot) = self.lookup(prefix, &name.text) else {
                        let message = format!("no field `{}` comes before", name.text);
                        self.context.error(&codes::NOT_MEASURED, name.span, message);
                        continue;
                    };
                    self.has_no_sign(slot, name, "a length");
                    StreamFraming::Counted(slot)
                }
            };
            select.push(Select { guard, framing });
        }
        select
    }

    pub(super) fn counted(
        &mut self,
        by: Measure,
        max: Option<Number>,
        items: &'a [Item],
        place: &ItemContext,
        span: Span,
    ) {
        let max = self.limited(max, span, "a counted block");
        let high = i64::from(u32::MAX);
        let length = self.scratch("length", SlotType::Int { low: 0, high }, span);
        let mut before = 0;
        match by {
            Measure::Varint => {
                let op = ParseOp::Varint { octets_max: VARINT_OCTETS_MAX, into: length };
                self.step(op, span);
            }
            Measure::Word { octets, little, less } => {
                before = less;
                let order = if little { Order::Little } else { Order::Big };
                let width = octets * 8;
                let (signed, into) = (false, Some(length));
                let fields = vec![BitField { shift: 0, width, signed, into, expect: None }];
                self.step(ParseOp::Word { octets, order, fields }, span);
            }
        }
        self.step(ParseOp::EnterCounted { length, less: before, max }, span);
        self.items(items, &ItemContext { bounded: true, room: Some(max), ..place.clone() });
        self.step(ParseOp::Leave, span);
    }

    pub(super) fn when(
        &mut self,
        guard: &'a Condition,
        items: &'a [Item],
        place: &ItemContext,
        span: Span,
    ) {
        let guard = self.guard(&place.prefix, guard);
        let holds = guard.clone();
        let branch = self.step(ParseOp::Branch { guard, otherwise: StepId::new(0) }, span);
        let first = self.slots.len();
        let inner = self.needed.len();
        self.items(items, &ItemContext { optional: true, ..place.clone() });
        for (guard, _) in self.needed.iter_mut().skip(inner) {
            *guard = Guard::All(vec![holds.clone(), guard.clone()]);
        }
        for name in mandatory(items) {
            let slot = self.lookup(&place.prefix, name);
            self.needed.extend(slot.map(|slot| (holds.clone(), slot)));
        }
        let end = self.here();
        self.lead(branch, end);
        let own = |id: &SlotId| self.slot(*id).is_some_and(|slot| !slot.scratch);
        let slots = (first..self.slots.len()).map(SlotId::new).filter(own).collect();
        self.step(ParseOp::Settle { slots }, span);
    }

    pub(super) fn extend(
        &mut self,
        field: &Name,
        cases: &[Extension],
        place: &ItemContext,
        span: Span,
    ) {
        let Some(slot) = self.lookup(&place.prefix, &field.text) else {
            let message = format!("no field `{}` comes before", field.text);
            self.context.error(&codes::NOT_MEASURED, field.span, message);
            return;
        };
        self.has_no_sign(slot, field, "what is extended");
        let cases = extensions(cases);
        let highest = cases
            .iter()
            .map(|case| case.add.saturating_add(1 << (8 * u32::from(case.octets).min(7))))
            .max();
        if let Some(Slot { ty: SlotType::Int { high, .. }, .. }) = self.slots.get_mut(slot.index())
        {
            *high = (*high).max(highest.unwrap_or(0) - 1);
        }
        self.step(ParseOp::Extend { slot, cases }, span);
    }

    pub(super) fn table(&mut self, table: &'a Table, place: &ItemContext, measured: &[&str]) {
        let prefix = format!("{}{}!", place.prefix, table.part.text);
        let max = self.context.limit(table.max).unwrap_or_else(|| {
            self.context.report(
                Diagnostic::error(&codes::NO_LIMIT, table.span, "a table needs a limit")
                    .help("write `, at most N entries`"),
            );
            1
        });
        let leave = self.table_start(table, place);
        let start = leave.first().copied().unwrap_or(self.here());
        self.count(max, table.span);
        let first = self.slots.len();
        let clear = self.step(ParseOp::Clear { slots: Vec::new() }, table.span);
        let inner = ItemContext { prefix: prefix.clone(), scratch: true, ..place.clone() };
        self.part(&table.part, &inner);
        // A running sum goes on from entry to entry.
        let summed = |id: &SlotId| {
            let sum = |op: &ParseOp| matches!(op, ParseOp::Sum { into, .. } if into == id);
            !self.steps.iter().any(|step| sum(&step.op))
        };
        let slots = (first..self.slots.len()).map(SlotId::new).filter(summed).collect();
        if let Some(step) = self.steps.get_mut(clear.index()) {
            step.op = ParseOp::Clear { slots };
        }
        let Some((key, value)) = self.key_and_value(table, &prefix) else { return };
        let entries = self.entries(table, place, (key, value), measured);
        let mut filled: Vec<SlotId> = entries.iter().map(|entry| entry.into).collect();
        filled.dedup();
        self.step(ParseOp::Lookup { key, value, entries }, table.span);
        self.step(ParseOp::Jump(start), table.span);
        let end = self.here();
        for step in leave {
            self.lead(step, end);
        }
        self.step(ParseOp::Settle { slots: filled }, table.span);
    }

    /// The steps that leave the table.
    fn table_start(&mut self, table: &'a Table, place: &ItemContext) -> Vec<StepId> {
        let then = StepId::new(0);
        let mut leave = Vec::new();
        for end in &table.ends {
            match end {
                TableEnd::EmptyLine => {
                    for ending in [&b"\r\n"[..], b"\n"] {
                        let literal = self.context.literal(ending);
                        leave.push(self.step(ParseOp::Peek { literal, then }, table.span));
                    }
                }
                TableEnd::Marker(octets) => {
                    let literal = self.context.literal(&octets.value);
                    leave.push(self.step(ParseOp::Peek { literal, then }, table.span));
                }
                TableEnd::End if place.bounded => {
                    leave.push(self.step(ParseOp::AtEnd { then }, table.span));
                }
                TableEnd::End => {
                    let message = "the table never ends";
                    self.context.error(&codes::TABLE_END, table.span, message);
                }
            }
        }
        leave
    }

    fn key_and_value(&mut self, table: &'a Table, prefix: &str) -> Option<(SlotId, SlotId)> {
        let key = self.lookup(prefix, &table.key.text);
        if key.is_none() {
            let message = format!("`{}` has no field `{}`", table.part.text, table.key.text);
            self.context.error(&codes::TABLE_KEY, table.key.span, message);
        }
        let value = self.lookup(prefix, "value");
        if value.is_none() {
            let message = format!("`{}` has no field `value`", table.part.text);
            self.context.error(&codes::TABLE_KEY, table.part.span, message);
        }
        Some((key?, value?))
    }

    fn entries(
        &mut self,
        table: &'a Table,
        place: &ItemContext,
        (key, value): (SlotId, SlotId),
        measured: &[&str],
    ) -> Vec<TableRow> {
        let numeric = self.slot(key).is_some_and(|slot| matches!(slot.ty, SlotType::Int { .. }));
        let room = match self.slot(value).map(|slot| &slot.ty) {
            Some(SlotType::Octets { max }) => *max,
            _ => 1,
        };
        let mut entries: Vec<TableRow> = Vec::new();
        for entry in &table.entries {
            let Some(constant) = self.context.constant(self.module, &entry.key) else { continue };
            let entry_key = match constant {
                Constant::Int(value) if numeric => TableKey::Int(value),
                Constant::Octets(literal) if !numeric => TableKey::Octets(literal),
                _ => {
                    let wanted = if numeric { "a number" } else { "a text" };
                    let message = format!("the key is not {wanted}, as `{}` is", table.key.text);
                    self.context.error(&codes::TABLE_KEY, entry.key.span(), message);
                    continue;
                }
            };
            let descends = match (entries.last().map(|last| last.key), entry_key) {
                (Some(TableKey::Int(last)), TableKey::Int(next)) => next <= last,
                _ => entries.iter().any(|other| other.key == entry_key),
            };
            if descends {
                let message = "the keys do not ascend, or one is given twice";
                self.context.error(&codes::TABLE_KEY, entry.key.span(), message);
            }
            let into = self.entry_slot(entry, place, room, (!numeric, measured));
            let convert = match entry.convert {
                ast::Convert::Keep => Convert::Keep,
                ast::Convert::Lower => Convert::Lower,
                ast::Convert::Upper => Convert::Upper,
                ast::Convert::Decimal => Convert::Decimal,
                ast::Convert::Uint => Convert::Uint,
            };
            entries.push(TableRow { key: entry_key, into, convert });
            self.other_keys(entry, numeric, &mut entries);
        }
        entries
    }

    /// Further keys of an entry: their values are read like the first key's, and written under the
    /// first.
    fn other_keys(
        &mut self,
        entry: &'a ast::TableEntry,
        numeric: bool,
        entries: &mut Vec<TableRow>,
    ) {
        for other in &entry.others {
            let key = match self.context.constant(self.module, other) {
                Some(Constant::Octets(literal)) if !numeric => TableKey::Octets(literal),
                Some(_) => {
                    let message = "only a text can be an alias of another key";
                    self.context.error(&codes::TABLE_KEY, other.span(), message);
                    continue;
                }
                None => continue,
            };
            if entries.iter().any(|entry| entry.key == key) {
                self.context.error(&codes::TABLE_KEY, other.span(), "a key is given twice");
            }
            if let Some(first) = entries.last().cloned() {
                entries.push(TableRow { key, ..first });
            }
        }
    }

    fn entry_slot(
        &mut self,
        entry: &'a ast::TableEntry,
        place: &ItemContext,
        room: u32,
        (text, measured): (bool, &[&str]),
    ) -> SlotId {
        let list = entry.presence == Presence::List;
        let size = self.context.limit(if list { entry.each } else { entry.max });
        let column = match entry.convert {
            ast::Convert::Decimal => ColumnType::Int { low: 0, high: 10_i64.pow(18) - 1 },
            ast::Convert::Uint => {
                let octets = size.unwrap_or(7).min(7);
                ColumnType::Int { low: 0, high: (1 << (8 * octets)) - 1 }
            }
            _ => ColumnType::Octets { max: size.unwrap_or(room).min(room) },
        };
        if entry.convert == ast::Convert::Uint && text {
            let message = "`uint` is for binary values; a text has `decimal`";
            self.context.error(&codes::WRONG_TYPE, entry.name.span, message);
        }
        let ty = if list {
            let max = self.list_limit(entry.max, entry.name.span, &entry.name.text);
            SlotType::List { columns: vec![(String::new(), column)], max }
        } else {
            match column {
                ColumnType::Int { low, high } => SlotType::Int { low, high },
                ColumnType::Octets { max } => SlotType::Octets { max },
            }
        };
        self.declare(Slot {
            name: format!("{}{}", place.prefix, entry.name.text),
            span: entry.name.span,
            ty,
            fold: match entry.convert {
                ast::Convert::Lower => Fold::Lower,
                ast::Convert::Upper => Fold::Upper,
                _ => Fold::Keep,
            },
            optional: place.optional || entry.presence == Presence::Optional,
            private: entry.private,
            scratch: place.scratch || measured.contains(&entry.name.text.as_str()),
        })
    }
}

/// The fields that are always written with the items, without those of nested choices.
fn mandatory(items: &[Item]) -> Vec<&str> {
    let mut names = Vec::new();
    for item in items {
        match item {
            Item::Field(field) => {
                let filled = field.optional || field.fixed.is_some() || field.default.is_some();
                if !filled && !matches!(field.ty, FieldType::List(_) | FieldType::SumOf(_)) {
                    names.push(field.name.text.as_str());
                }
            }
            Item::Line { items, .. }
            | Item::Repeated { items, .. }
            | Item::Counted { items, .. }
            | Item::Checked { items, .. }
            | Item::Diagram(items) => names.extend(mandatory(items)),
            _ => {}
        }
    }
    names
}

fn width(field: &Field) -> u8 {
    match field.ty {
        FieldType::Bits(bits) => bits.width,
        _ => 0,
    }
}

fn fold(case: Case) -> Fold {
    match case {
        Case::Keep => Fold::Keep,
        Case::Upper => Fold::Upper,
        Case::Lower => Fold::Lower,
    }
}

pub(super) fn extensions(cases: &[Extension]) -> Vec<ExtendCase> {
    let case = |case: &Extension| ExtendCase {
        value: case.value.value,
        octets: case.octets,
        add: case.add.value,
    };
    cases.iter().map(case).collect()
}
