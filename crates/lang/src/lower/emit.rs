//! Lowers layouts to serializers: from the same items as parsers.

use super::Constant;
use super::fields::{VARINT_OCTETS_MAX, extensions};
use super::layout::{Group, Lowering, REPEATED};
use crate::ir::{Check, Class, Emit, EmitField, LocalId, Order, SlotId, SlotType, Source};
use crate::syntax::ast::{
    self, Bits, Field, FieldType, Frame, Item, LineFrame, ListOf, Literal, Measure, Presence,
    Table, TableEnd, TableEntry,
};

/// Sources of the values of consecutive items.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    prefix: String,
    /// Fields whose value does not come from their own slot.
    sources: Vec<(String, Source)>,
    one_line: bool,
}

impl Scope {
    /// The items of a whole view.
    pub(super) fn top() -> Self {
        Self { prefix: String::new(), sources: Vec::new(), one_line: false }
    }

    fn source(&self, name: &str) -> Option<&Source> {
        self.sources.iter().rev().find(|(of, _)| of == name).map(|(_, source)| source)
    }
}

impl<'a> Lowering<'_, 'a> {
    /// A view or part that is a line: its items and its line end.
    pub(super) fn emit_line(
        &mut self,
        frame: &LineFrame,
        items: &'a [Item],
        scope: &Scope,
    ) -> Vec<Emit> {
        let emit = self.emit_scope(items, &Scope { one_line: true, ..scope.clone() });
        self.ended(frame, emit)
    }

    /// A line within a view: fields that its lengths measure may follow it, and are known already.
    fn emit_inner_line(
        &mut self,
        frame: &LineFrame,
        items: &'a [Item],
        scope: &Scope,
    ) -> Vec<Emit> {
        let emit = self.emit_items(items, &Scope { one_line: true, ..scope.clone() });
        self.ended(frame, emit)
    }

    /// The parts of a line with its end, together no longer than the limit for reading.
    fn ended(&mut self, frame: &LineFrame, mut body: Vec<Emit>) -> Vec<Emit> {
        body.push(Emit::Literal(self.context.literal(b"\r\n")));
        let max = self.context.limit(frame.max).unwrap_or(1);
        vec![Emit::Bounded { max, body }]
    }

    /// The items, once the fields that measure others are known.
    pub(super) fn emit_scope(&mut self, items: &'a [Item], scope: &Scope) -> Vec<Emit> {
        let mut scope = scope.clone();
        let mut sums = Vec::new();
        self.derive(items, &mut scope, &mut sums);
        let mut emit = self.emit_items(items, &scope);
        for (local, sum) in sums {
            emit.push(Emit::Let { local, value: sum });
        }
        emit
    }

    /// Derives lengths from the measured fields, and differences from their sum.
    fn derive(&mut self, items: &[Item], scope: &mut Scope, sums: &mut Vec<(LocalId, Source)>) {
        for item in items {
            match item {
                Item::Field(field) => {
                    let Some(own) = self.source(scope, &field.name.text) else { continue };
                    match &field.ty {
                        FieldType::Taken(Literal::Name(length)) => {
                            scope.sources.push((length.text.clone(), Source::Size(Box::new(own))));
                        }
                        FieldType::SumOf(add) => {
                            let local = self.sum_local(&scope.prefix);
                            let before = Source::Local(local);
                            let difference =
                                Source::Difference(Box::new(own.clone()), Box::new(before));
                            scope.sources.push((add.text.clone(), difference));
                            sums.push((local, own));
                        }
                        _ => {}
                    }
                }
                Item::When { items, .. }
                | Item::Counted { items, .. }
                | Item::Checked { items, .. }
                | Item::Repeated { items, .. }
                | Item::Line { items, .. } => {
                    self.derive(items, scope, sums);
                }
                _ => {}
            }
        }
    }

    /// The running sum of a scope: one for all entries of a table.
    fn sum_local(&mut self, prefix: &str) -> LocalId {
        match self.locals.checked_sub(1) {
            Some(last) if !prefix.is_empty() => {
                LocalId::new(usize::try_from(last).unwrap_or_default())
            }
            _ => self.new_local(),
        }
    }

    fn source(&self, scope: &Scope, name: &str) -> Option<Source> {
        let own = || self.lookup(&scope.prefix, name).map(Source::Slot);
        scope.source(name).cloned().or_else(own)
    }

    fn emit_items(&mut self, items: &'a [Item], scope: &Scope) -> Vec<Emit> {
        let mut emit = Vec::new();
        let groups = self.groups(items);
        let mut rest = groups.iter().peekable();
        while let Some(group) = rest.next() {
            match group {
                Group::Word(fields) => emit.extend(self.emit_word(fields, items, scope)),
                Group::Item(item) => {
                    let next = rest.peek().copied();
                    self.emit_item(item, next, items, scope, &mut emit);
                }
            }
        }
        emit
    }

    fn emit_item(
        &mut self,
        item: &'a Item,
        next: Option<&Group<'a>>,
        items: &'a [Item],
        scope: &Scope,
        emit: &mut Vec<Emit>,
    ) {
        match item {
            Item::Literal(octets) => emit.push(Emit::Literal(self.context.literal(&octets.value))),
            Item::Skip { stray: false, .. } => {
                let space = Emit::Literal(self.context.literal(b" "));
                emit.extend(self.if_next_present(space, next, scope));
            }
            Item::Field(field) => self.emit_field(field, items, scope, emit),
            Item::Line { frame, items } => emit.extend(self.emit_inner_line(frame, items, scope)),
            Item::Repeated { items, .. } => emit.extend(self.emit_items(items, scope)),
            Item::Counted { by, max, items, .. } => {
                let body = self.emit_items(items, scope);
                let max = self.context.limit(*max).unwrap_or(1);
                let (octets, order, more) = match by {
                    Measure::Varint => (0, Order::Big, 0),
                    Measure::Word { octets, little: false, less } => (*octets, Order::Big, *less),
                    Measure::Word { octets, little: true, less } => (*octets, Order::Little, *less),
                };
                emit.push(Emit::Counted { octets, order, more, max, body });
            }
            Item::When { guard, items, .. } => {
                let guard = self.guard(&scope.prefix, guard);
                let then = self.emit_items(items, scope);
                emit.push(Emit::When { guard, then });
            }
            Item::Table(table) => self.emit_table(table, next, scope, emit),
            Item::Checked { by, items, .. } => {
                let body = self.emit_items(items, scope);
                emit.push(Emit::Checked { by: *by, body });
            }
            // What is stray is not written; a diagram's fields stand in its place already.
            Item::Skip { stray: true, .. } | Item::Diagram(_) => {}
            Item::Extend { field, cases, .. } => {
                if let Some(of) = self.source(scope, &field.text) {
                    emit.push(Emit::Extension { of, cases: extensions(cases) });
                }
            }
        }
    }

    /// Writes a separator only if the item after it is present.
    fn if_next_present(&self, part: Emit, next: Option<&Group<'a>>, scope: &Scope) -> Option<Emit> {
        let Group::Item(Item::Field(field)) = next? else { return Some(part) };
        if !field.optional || scope.source(&field.name.text).is_some() {
            return Some(part);
        }
        let slot = self.lookup(&scope.prefix, &field.name.text)?;
        Some(Emit::IfPresent { slot, then: vec![part], otherwise: Vec::new() })
    }

    fn emit_word(
        &mut self,
        fields: &[&'a Field],
        items: &'a [Item],
        scope: &Scope,
    ) -> Option<Emit> {
        let mut shift: u8 = 0;
        let mut parts = Vec::new();
        let mut little = false;
        for field in fields.iter().rev() {
            let FieldType::Bits(bits) = field.ty else { continue };
            let Bits { width, signed, .. } = bits;
            little |= bits.little;
            let from = match &field.fixed {
                Some(fixed) => match self.context.constant(self.module, fixed)? {
                    Constant::Int(value) => Source::Int(value),
                    Constant::Octets(_) => return None,
                },
                None => self.escaped(field, items, scope)?,
            };
            parts.push(EmitField { shift, width, signed, from });
            shift = shift.saturating_add(width);
        }
        parts.reverse();
        let order = if little { Order::Little } else { Order::Big };
        Some(Emit::Word { octets: shift / 8, order, fields: parts })
    }

    /// A field's value, or the escape for it.
    fn escaped(&self, field: &Field, items: &[Item], scope: &Scope) -> Option<Source> {
        let from = self.source(scope, &field.name.text)?;
        let from = match from {
            Source::Slot(slot) => match self.optional_default(slot) {
                Some(Constant::Int(default)) => Source::SlotOr(slot, default),
                _ => Source::Slot(slot),
            },
            other => other,
        };
        let escape = items.iter().find_map(|item| match item {
            Item::Extend { field: of, cases, .. } if of.text == field.name.text => Some(cases),
            _ => None,
        });
        Some(match escape {
            Some(cases) => Source::Escape { of: Box::new(from), cases: extensions(cases) },
            None => from,
        })
    }

    fn emit_field(
        &mut self,
        field: &'a Field,
        items: &'a [Item],
        scope: &Scope,
        emit: &mut Vec<Emit>,
    ) {
        let name = &field.name.text;
        let Some(from) = self.source(scope, name) else { return };
        let slot = self.lookup(&scope.prefix, name);
        let part = match &field.ty {
            FieldType::Bits(_) | FieldType::SumOf(_) => return,
            FieldType::Varint => Emit::Varint { from, octets_max: VARINT_OCTETS_MAX },
            FieldType::Digits { radix, min, max } => {
                Emit::Digits { from, radix: *radix, width: *min, max: *max }
            }
            FieldType::List(of) => {
                let Some(list) = slot else { return };
                let body = self.element(of, field, scope);
                emit.push(Emit::ForEach { list, body });
                return;
            }
            FieldType::Stream(cases) => {
                let Some(slot) = slot else { return };
                let select = self.framings(cases, &scope.prefix);
                emit.push(Emit::Stream { slot, select });
                return;
            }
            _ => Emit::Octets { from, check: self.check(field, items, scope) },
        };
        let mut parts = vec![part];
        if let FieldType::Until(_, delimiter) = &field.ty {
            parts.push(Emit::Literal(self.context.literal(&delimiter.value)));
        }
        self.push_field(field, slot, parts, scope, emit);
    }

    /// The default of a slot that may be absent; other slots are filled before.
    fn optional_default(&self, slot: SlotId) -> Option<Constant> {
        self.slot(slot).filter(|slot| slot.optional)?;
        self.defaults.iter().find(|(of, _)| *of == slot).map(|(_, value)| *value)
    }

    /// The parts if the field is present; otherwise its default.
    fn push_field(
        &mut self,
        field: &Field,
        slot: Option<SlotId>,
        parts: Vec<Emit>,
        scope: &Scope,
        emit: &mut Vec<Emit>,
    ) {
        let own = scope.source(&field.name.text).is_none();
        let default = slot.and_then(|slot| self.optional_default(slot));
        let Some(slot) = slot.filter(|_| own && (field.optional || default.is_some())) else {
            emit.extend(parts);
            return;
        };
        let default = default.map(|value| match value {
            Constant::Octets(literal) => Emit::Literal(literal),
            Constant::Int(value) => {
                Emit::Digits { from: Source::Int(value), radix: 10, width: 1, max: 18 }
            }
        });
        let otherwise = default.into_iter().collect();
        emit.push(Emit::IfPresent { slot, then: parts, otherwise });
    }

    fn check(&mut self, field: &Field, items: &[Item], scope: &Scope) -> Check {
        // The fields of a table in a repetition are known as those that are read again and again.
        let own = self.lookup(&scope.prefix, &field.name.text);
        let again = || self.lookup(&format!("{REPEATED}{}", scope.prefix), &field.name.text);
        let max = match own.or_else(again).and_then(|id| self.slot(id)) {
            Some(slot) => match slot.ty {
                SlotType::Octets { max } => max,
                _ => 0,
            },
            None => 0,
        };
        let skipped = items.windows(2).find_map(|pair| match pair {
            [Item::Skip { blanks, .. }, Item::Field(next)] if next.name.text == field.name.text => {
                Some(if *blanks { Class::Blank } else { Class::Space })
            }
            _ => None,
        });
        let mut check = Check {
            class: None,
            one_of: None,
            without: None,
            one_line: scope.one_line,
            not_first: skipped,
            min: 0,
            max,
        };
        match &field.ty {
            FieldType::Token(_) => {
                check.class = Some(Class::Token);
                check.min = 1;
            }
            FieldType::Word(_) => {
                check.class = Some(Class::Word);
                check.min = 1;
            }
            FieldType::Until(_, delimiter) => {
                check.without = Some(self.context.literal(&delimiter.value));
            }
            FieldType::OneOf(set) => {
                check.one_of = Some(self.context.literal(&set.value));
                check.min = 1;
            }
            FieldType::Taken(Literal::Number(_)) => check.min = max,
            _ => {}
        }
        check
    }

    fn element(&mut self, of: &'a ListOf, field: &Field, scope: &Scope) -> Vec<Emit> {
        match of {
            ListOf::Bits(Bits { width, signed, little }) => {
                let order = if *little { Order::Little } else { Order::Big };
                let (width, signed) = (*width, *signed);
                let fields = vec![EmitField { shift: 0, width, signed, from: Source::Element(0) }];
                vec![Emit::Word { octets: width / 8, order, fields }]
            }
            ListOf::Part(name) => {
                let module = self.module;
                let Some(part) = module.parts.iter().find(|part| part.name.text == name.text)
                else {
                    return Vec::new();
                };
                let prefix = format!("{}{}.", scope.prefix, field.name.text);
                let columns = match self
                    .lookup(&scope.prefix, &field.name.text)
                    .and_then(|id| self.slot(id))
                    .map(|slot| slot.ty.clone())
                {
                    Some(SlotType::List { columns, .. }) => columns,
                    _ => Vec::new(),
                };
                let sources = (0..).map(Source::Element).zip(columns);
                let sources = sources.map(|(source, (name, _))| (name, source)).collect();
                self.emit_part(part, &Scope { prefix, sources, one_line: false })
            }
        }
    }

    fn emit_part(&mut self, part: &'a ast::Layout, scope: &Scope) -> Vec<Emit> {
        match &part.frame {
            Frame::Line(frame) => self.emit_line(frame, &part.items, scope),
            _ => self.emit_scope(&part.items, scope),
        }
    }

    fn emit_table(
        &mut self,
        table: &'a Table,
        next: Option<&Group<'a>>,
        scope: &Scope,
        emit: &mut Vec<Emit>,
    ) {
        let module = self.module;
        let Some(part) = module.parts.iter().find(|part| part.name.text == table.part.text) else {
            return;
        };
        // Every entry continues the running sum of the one before.
        let sums = part.items.iter().any(
            |item| matches!(item, Item::Field(field) if matches!(field.ty, FieldType::SumOf(_))),
        );
        if sums {
            self.new_local();
        }
        for entry in &table.entries {
            self.emit_entry(table, part, entry, scope, emit);
        }
        let end = table.ends.iter().find_map(|end| match end {
            TableEnd::EmptyLine => Some((&b"\r\n"[..], false)),
            TableEnd::Marker(octets) => Some((&octets.value[..], true)),
            TableEnd::End => None,
        });
        let Some((octets, is_marker)) = end else { return };
        let literal = Emit::Literal(self.context.literal(octets));
        if is_marker && table.ends.len() > 1 {
            emit.extend(self.if_next_present(literal, next, scope));
        } else {
            emit.push(literal);
        }
    }

    fn emit_entry(
        &mut self,
        table: &'a Table,
        part: &'a ast::Layout,
        entry: &'a TableEntry,
        scope: &Scope,
        emit: &mut Vec<Emit>,
    ) {
        let Some(slot) = self.lookup(&scope.prefix, &entry.name.text) else { return };
        let key = match self.context.constant(self.module, &entry.key) {
            Some(Constant::Int(value)) => Source::Int(value),
            Some(Constant::Octets(literal)) => Source::Literal(literal),
            None => return,
        };
        let list = entry.presence == Presence::List;
        let length = scope.source(&entry.name.text).cloned();
        let written = length.is_some();
        let own = if list { Source::Element(0) } else { length.unwrap_or(Source::Slot(slot)) };
        let value = match entry.convert {
            ast::Convert::Decimal => Source::Decimal(Box::new(own)),
            ast::Convert::Uint => Source::Uint(Box::new(own)),
            _ => own,
        };
        let inner = Scope {
            prefix: format!("{}{}!", scope.prefix, table.part.text),
            sources: vec![(table.key.text.clone(), key), ("value".to_owned(), value)],
            one_line: false,
        };
        let body = self.emit_part(part, &inner);
        if list {
            emit.push(Emit::ForEach { list: slot, body });
        } else if entry.presence == Presence::Optional && !written {
            emit.push(Emit::IfPresent { slot, then: body, otherwise: Vec::new() });
        } else {
            emit.extend(body);
        }
    }
}
