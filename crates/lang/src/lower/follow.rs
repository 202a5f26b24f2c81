//! Checks that a layout reads back its output: no item may take octets of the next item.
//!
//! An item that reads as far as its octets go (a token, a number of digits, `rest`, a list) ends
//! before the first octet outside its set. So the check visits the items from the last to the
//! first, with the octets that can follow each (FIRST and FOLLOW sets of the *written* octets, by
//! one octet). Items under guards that exclude each other never follow each other.

use super::guard::disjoint;
use super::layout::{Group, Lowering, REPEATED, flat};
use super::octets::Octets;
use crate::codes;
use crate::ir::{Class, Guard};
use crate::syntax::ast::{
    self, Bits, Condition, Field, FieldType, Frame, Item, Layout, LineFrame, ListOf, Literal, Name,
    Table, TableEnd,
};
use gatewright_diagnostic::{Diagnostic, Span};

/// The items that can follow an item.
#[derive(Clone, Debug, Default)]
struct Follow {
    next: Vec<Next>,
    /// Whether nothing may follow: the end of the line, block or datagram is next.
    end: bool,
}

/// One item that can follow.
#[derive(Clone, Debug)]
struct Next {
    /// The octets that it can begin with.
    octets: Octets,
    span: Span,
    /// The guard under which it is written.
    when: Guard,
    /// Whether it is the next message.
    message: bool,
}

/// Surroundings of an item.
#[derive(Clone, Debug)]
struct Around {
    prefix: String,
    /// The guards around it.
    under: Guard,
    /// Whether it is in a line.
    line: bool,
    /// Whether the end of the octets is known.
    bounded: bool,
    /// In a table's part: the field that is the key, and the octets that a key can begin with.
    key: Option<(String, Octets)>,
}

/// An item that reads as far as its octets go.
struct Greedy<'g> {
    span: Span,
    /// Its readable name.
    name: &'g str,
    octets: Octets,
    help: &'static str,
}

const HELP_RUN: &str = "put octets between them that it cannot hold, or give it an end of its \
                        own: `until \"…\"`, `N octets`";
const HELP_REST: &str = "only the last of a line, block or datagram takes the `rest`; what stands \
                         before others has an end: `until \"…\"`, `N octets`, a `counted` block";
const HELP_DIGITS: &str = "write a fixed number of digits, as in `3 digits`, or put octets between \
                           them that are no digits";
const HELP_ABSENT: &str = "where it is absent, these octets are taken for it: make it mandatory, \
                           or let other octets come next";
const HELP_SKIP: &str = "write the space as a constant, `\" \"`, or let something else come next";
const HELP_TABLE: &str = "let the table end with octets of its own: `until x\"ff\" or end`";
const HELP_FOLDED: &str = "a folded line goes on in a line that begins with a blank";

impl Follow {
    /// Only the end.
    fn end() -> Self {
        Self { next: Vec::new(), end: true }
    }

    fn add(&mut self, next: &Next) {
        if self.next.len() < NEXT_MAX && !self.next.iter().any(|of| of.span == next.span) {
            self.next.push(next.clone());
        }
    }

    /// Either one or the other.
    fn or(mut self, other: &Self) -> Self {
        other.next.iter().for_each(|next| self.add(next));
        self.end |= other.end;
        self
    }
}

impl Around {
    fn one(&self, octets: Octets, span: Span) -> Follow {
        let next = Next { octets, span, when: self.under.clone(), message: false };
        Follow { next: vec![next], end: false }
    }
}

impl<'a> Lowering<'_, 'a> {
    /// Checks that every item of a view ends where the next one begins.
    pub(super) fn ends_are_told(&mut self, layout: &'a Layout) {
        let span = layout.name.span;
        let mut around = Around {
            prefix: String::new(),
            under: Guard::Always,
            line: false,
            bounded: true,
            key: None,
        };
        match &layout.frame {
            Frame::Datagram(_) => {
                self.before(&layout.items, Follow::end(), &around);
            }
            Frame::Line(frame) => {
                self.line_before(frame, &layout.items, &around);
            }
            Frame::Plain => {
                around.bounded = false;
                let next = Next { octets: Octets::all(), span, when: Guard::Always, message: true };
                self.before(&layout.items, Follow { next: vec![next], end: false }, &around);
            }
        }
    }

    /// The items that can come first, if `follow` is written after all items.
    fn before(&mut self, items: &'a [Item], follow: Follow, around: &Around) -> Follow {
        let groups = self.groups(items);
        let (mut behind, mut further) = (follow, Follow::end());
        for (at, group) in groups.iter().enumerate().rev() {
            let here = match group {
                Group::Word(fields) => self.word_before(fields, items, around),
                Group::Item(Item::Skip { blanks, stray, span }) => {
                    let skip = (*blanks, *stray, *span);
                    self.skip_before(skip, groups.get(at + 1), (&behind, &further), around)
                }
                Group::Item(Item::Field(field)) => {
                    let skipped = at.checked_sub(1).and_then(|at| groups.get(at));
                    self.field_before(field, skipped_class(skipped), &behind, around)
                }
                Group::Item(Item::Table(table)) => {
                    self.table_before(table, groups.get(at + 1), (&behind, &further), around)
                }
                Group::Item(item) => self.item_before(item, &behind, around),
            };
            further = std::mem::replace(&mut behind, here);
        }
        behind
    }

    fn item_before(&mut self, item: &'a Item, behind: &Follow, around: &Around) -> Follow {
        match item {
            Item::Literal(octets) => {
                if around.line && octets.value.iter().any(|octet| b"\r\n".contains(octet)) {
                    self.not_in_a_line(octets.span, "these octets hold a line's end");
                }
                let Some(first) = octets.value.first() else { return behind.clone() };
                around.one(Octets::of([*first]), octets.span)
            }
            Item::Line { frame, items } => self.line_before(frame, items, around),
            Item::Repeated { items, .. } => {
                let prefix = format!("{}{REPEATED}", around.prefix);
                self.before(items, behind.clone(), &Around { prefix, ..around.clone() })
            }
            Item::Counted { items, span, .. } => {
                if around.line {
                    self.not_in_a_line(*span, "a length in bits can hold a line's end");
                }
                let inner = Around { line: false, bounded: true, ..around.clone() };
                self.before(items, Follow::end(), &inner);
                around.one(Octets::all(), *span)
            }
            Item::When { guard, items, .. } => {
                let under = self.both(&around.under, &around.prefix, guard);
                let inner = Around { under, ..around.clone() };
                self.before(items, behind.clone(), &inner).or(behind)
            }
            Item::Extend { span, .. } => around.one(Octets::all(), *span).or(behind),
            Item::Checked { items, span, .. } => {
                // The check stands at the end of the region: only there is it told from the items.
                let last = around.bounded && behind.next.is_empty();
                let check = around.one(Octets::all(), *span);
                let mut here =
                    self.before(items, if last { Follow::end() } else { check.clone() }, around);
                if here.end {
                    here.end = false;
                    here = here.or(&check);
                }
                here
            }
            // The others have functions of their own; a diagram's fields stand in its place.
            Item::Skip { .. } | Item::Field(_) | Item::Table(_) | Item::Diagram(_) => {
                behind.clone()
            }
        }
    }

    fn both(&mut self, under: &Guard, prefix: &str, guard: &Condition) -> Guard {
        match under {
            Guard::Always => self.guard(prefix, guard),
            under => Guard::All(vec![under.clone(), self.guard(prefix, guard)]),
        }
    }

    fn line_before(&mut self, frame: &LineFrame, items: &'a [Item], around: &Around) -> Follow {
        if around.line {
            self.not_in_a_line(frame.span, "a line is inside a line");
        }
        let prefix = match frame.repeat {
            Some(_) => format!("{}{REPEATED}", around.prefix),
            None => around.prefix.clone(),
        };
        let inner = Around { prefix, line: true, bounded: true, ..around.clone() };
        let here = self.before(items, Follow::end(), &inner);
        if here.end {
            return Follow { end: false, ..here }.or(&around.one(Octets::of(*b"\r"), frame.span));
        }
        here
    }

    // -- Items with an end of their own.

    fn word_before(&mut self, fields: &[&'a Field], items: &'a [Item], around: &Around) -> Follow {
        let Some(first) = fields.first() else { return Follow::end() };
        let span = first.name.span;
        let free = fields.iter().find(|field| field.fixed.is_none());
        if let Some(free) = free.filter(|_| around.line) {
            self.not_in_a_line(free.name.span, "a number in bits can hold a line's end");
        }
        for field in fields {
            self.absence_is_told(field, "a number in bits always has its bits");
        }
        let keyed = around.key.as_ref().filter(|(name, _)| *name == first.name.text);
        let octets = keyed.map_or_else(|| self.first_of_word(fields, items), |(_, octets)| *octets);
        around.one(octets, span)
    }

    /// The values that the first octet of a word can have.
    fn first_of_word(&mut self, fields: &[&'a Field], items: &'a [Item]) -> Octets {
        let mut octets = Octets::all();
        let mut above = 0_u32;
        for field in fields {
            let FieldType::Bits(bits) = field.ty else { break };
            let Bits { width, little, .. } = bits;
            let end = above + u32::from(width);
            if little || end > 8 {
                break;
            }
            let fixed = field.fixed.as_ref().and_then(|fixed| {
                match self.context.constant(self.module, fixed) {
                    Some(super::Constant::Int(value)) => Some(bits.bits_of(value)),
                    _ => None,
                }
            });
            let most = escape_max(field, items);
            octets.keep(|octet| {
                let value = (u64::from(octet) >> (8 - end)) & ((1 << width) - 1);
                fixed.is_none_or(|fixed| value == fixed) && most.is_none_or(|most| value <= most)
            });
            above = end;
        }
        octets
    }

    fn field_before(
        &mut self,
        field: &'a Field,
        skipped: Option<Class>,
        behind: &Follow,
        around: &Around,
    ) -> Follow {
        let (name, span) = (&field.name, field.name.span);
        let absent = may_be_unwritten(field);
        let is_read = |octet| skipped.is_none_or(|class| !class.contains(octet));
        let value = Octets::where_(is_read);
        let begins = |octets: Octets| match &around.key {
            Some((key, keys)) if *key == name.text => *keys,
            _ => octets,
        };
        let greedy = |octets, help| Greedy { span, name: &name.text, octets, help };
        let (first, nothing) = match &field.ty {
            FieldType::Bits(_) | FieldType::SumOf(_) => return behind.clone(),
            FieldType::Varint => {
                if around.line {
                    self.not_in_a_line(span, "a number in bits can hold a line's end");
                }
                self.absence_is_told(field, "a varint always has an octet");
                (Octets::all(), false)
            }
            FieldType::Digits { radix, min, max } => {
                let digits = Octets::where_(|octet| char::from(octet).is_digit(*radix));
                if min < max || field.optional {
                    self.ends(&greedy(digits, HELP_DIGITS), behind, around);
                }
                (digits, absent)
            }
            FieldType::Token(_) | FieldType::Word(_) => {
                let word = matches!(field.ty, FieldType::Word(_));
                let class = if word { Class::Word } else { Class::Token };
                let octets = Octets::where_(|octet| class.contains(octet));
                self.ends(&greedy(octets, HELP_RUN), behind, around);
                (octets, absent)
            }
            FieldType::Until(_, delimiter) => {
                self.absence_is_told(field, "its delimiter is there in any case");
                let first = delimiter.value.first().copied();
                (value.or(Octets::of(first)), false)
            }
            FieldType::Rest(_) => {
                self.ends(&greedy(Octets::all(), HELP_REST), behind, around);
                (value, true)
            }
            FieldType::Taken(Literal::Name(_)) => (value, true),
            FieldType::Taken(_) => {
                self.absence_is_told(field, "its octets are there in any case");
                (value, false)
            }
            FieldType::OneOf(set) => {
                let set = Octets::of(set.value.iter().copied());
                if absent {
                    self.ends(&greedy(set, HELP_ABSENT), behind, around);
                }
                (set, absent)
            }
            FieldType::List(of) => {
                self.ends(&greedy(Octets::all(), HELP_REST), behind, around);
                return self.list_before(field, of, around).or(behind);
            }
            FieldType::Stream(_) => (Octets::all(), true),
        };
        let here = around.one(begins(first), span);
        if nothing { here.or(behind) } else { here }
    }

    /// Reports an optional field whose absence a reader cannot detect.
    fn absence_is_told(&mut self, field: &Field, why: &str) {
        if may_be_unwritten(field) {
            let message = format!("nothing tells that `{}` is absent", field.name.text);
            self.context.report(
                Diagnostic::error(&codes::RUNS_TOGETHER, field.name.span, message)
                    .label(why)
                    .help("make it mandatory, give it a `default`, or let `when GUARD { … }` say"),
            );
        }
    }

    // -- Items around others.

    fn skip_before(
        &mut self,
        (blanks, stray, span): (bool, bool, Span),
        next: Option<&Group<'a>>,
        (behind, further): (&Follow, &Follow),
        around: &Around,
    ) -> Follow {
        let (class, name) =
            if blanks { (Class::Blank, "skip blanks") } else { (Class::Space, "skip spaces") };
        let octets = Octets::where_(|octet| class.contains(octet));
        self.ends(&Greedy { span, name, octets, help: HELP_SKIP }, behind, around);
        if stray || next.is_none() {
            return behind.clone();
        }
        let space = around.one(Octets::of(*b" "), span);
        if is_unwritten(next) { space.or(further) } else { space }
    }

    fn list_before(&mut self, field: &Field, of: &ListOf, around: &Around) -> Follow {
        match of {
            ListOf::Bits(_) => {
                if around.line {
                    self.not_in_a_line(field.name.span, "a number in bits can hold a line's end");
                }
                around.one(Octets::all(), field.name.span)
            }
            ListOf::Part(name) => {
                let prefix = format!("{}{}.", around.prefix, field.name.text);
                let inner = Around { prefix, key: None, ..around.clone() };
                let first = self.part_before(name, &Follow::end(), &inner);
                if first.end {
                    let message = format!("an element of `{}` may have no octet", field.name.text);
                    self.context.report(
                        Diagnostic::error(&codes::RUNS_TOGETHER, name.span, message)
                            .label("nothing tells that there is such an element"),
                    );
                    return first;
                }
                self.part_before(name, &Follow { end: true, ..first.clone() }, &inner);
                first
            }
        }
    }

    fn part_before(&mut self, name: &Name, behind: &Follow, around: &Around) -> Follow {
        let module = self.module;
        let part = module.parts.iter().find(|part| part.name.text == name.text);
        // A part that holds itself was reported when its steps were made.
        let Some(part) = part.filter(|part| !self.parts.contains(&part.name.text.as_str())) else {
            return behind.clone();
        };
        self.parts.push(&part.name.text);
        let here = match &part.frame {
            Frame::Line(frame) => {
                if frame.folded {
                    let octets = Octets::of(*b" \t");
                    let name = &part.name.text;
                    let help = HELP_FOLDED;
                    self.ends(&Greedy { span: frame.span, name, octets, help }, behind, around);
                }
                self.line_before(frame, &part.items, around)
            }
            _ => self.before(&part.items, behind.clone(), around),
        };
        self.parts.pop();
        here
    }

    fn table_before(
        &mut self,
        table: &'a Table,
        next: Option<&Group<'a>>,
        (behind, further): (&Follow, &Follow),
        around: &Around,
    ) -> Follow {
        let whole =
            Greedy { span: table.span, name: "the table", octets: Octets::all(), help: HELP_TABLE };
        let written = table.ends.iter().find_map(|end| match end {
            TableEnd::EmptyLine => Some((b'\r', false)),
            TableEnd::Marker(octets) => octets.value.first().map(|octet| (*octet, true)),
            TableEnd::End => None,
        });
        let end = match written {
            None => {
                self.ends(&whole, behind, around);
                behind.clone()
            }
            Some((octet, marker)) => {
                let end = around.one(Octets::of([octet]), table.span);
                if marker && table.ends.len() > 1 && is_unwritten(next) {
                    self.ends(&whole, further, around);
                    end.or(further)
                } else {
                    end
                }
            }
        };
        let prefix = format!("{}{}!", around.prefix, table.part.text);
        let key = Some((table.key.text.clone(), self.keys(table)));
        let inner = Around { prefix, key, ..around.clone() };
        let entry = self.part_before(&table.part, &Follow::end(), &inner);
        self.entry_is_no_end(table, &entry);
        let again = entry.clone().or(&end);
        self.part_before(&table.part, &again, &inner);
        entry.or(&end)
    }

    /// Reports an entry that can begin like the end of its table.
    fn entry_is_no_end(&mut self, table: &Table, entry: &Follow) {
        let ends = table.ends.iter().filter_map(|end| match end {
            TableEnd::EmptyLine => Some(b'\r'),
            TableEnd::Marker(octets) => octets.value.first().copied(),
            TableEnd::End => None,
        });
        let ends = Octets::of(ends);
        let Some(begins) = entry.next.iter().find(|next| next.octets.meets(ends)) else { return };
        let shown = begins.octets.and(ends).shown();
        let message = "nothing tells an entry from the end of the table";
        self.context.report(
            Diagnostic::error(&codes::RUNS_TOGETHER, table.span, message)
                .label(format!("the table ends with {shown}"))
                .also(begins.span, format!("an entry can begin with {shown}"))
                .help("end the table with octets that begin no entry"),
        );
    }

    /// The octets with which a key of the table is written.
    fn keys(&mut self, table: &'a Table) -> Octets {
        let part = self.module.parts.iter().find(|part| part.name.text == table.part.text);
        let field = part.and_then(|part| {
            flat(&part.items).into_iter().find_map(|item| match item {
                Item::Field(field) if field.name.text == table.key.text => Some(field),
                _ => None,
            })
        });
        let mut octets = Octets::default();
        for entry in &table.entries {
            let first = match self.context.constant(self.module, &entry.key) {
                Some(super::Constant::Octets(id)) => self.context.octets(id).first().copied(),
                Some(super::Constant::Int(value)) => match field.map(|field| &field.ty) {
                    Some(FieldType::Bits(bits))
                        if bits.width == 8
                            || matches!(bits.width, 16 | 24 | 32) && !bits.little =>
                    {
                        u8::try_from(bits.bits_of(value) >> (bits.width - 8)).ok()
                    }
                    _ => return Octets::all(),
                },
                None => None,
            };
            octets = octets.or(Octets::of(first));
        }
        octets
    }

    // -- Findings.

    /// Reports items after a greedy item whose octets it would take.
    fn ends(&mut self, greedy: &Greedy<'_>, behind: &Follow, around: &Around) {
        let taken = behind
            .next
            .iter()
            .find(|next| next.octets.meets(greedy.octets) && !disjoint(&around.under, &next.when));
        let Some(next) = taken else { return };
        let shown = next.octets.and(greedy.octets).shown();
        let quoted = if greedy.name.contains(' ') { "" } else { "`" };
        let message = format!("nothing tells where {quoted}{}{quoted} ends", greedy.name);
        let diagnostic = Diagnostic::error(&codes::RUNS_TOGETHER, greedy.span, message);
        let diagnostic = if next.span == greedy.span {
            let label = format!("this goes on over {shown}, with which the next one can begin");
            diagnostic.label(label)
        } else {
            let other = if next.message {
                "behind this message comes the next one".to_owned()
            } else {
                format!("this can begin with {shown}")
            };
            diagnostic.label(format!("this goes on over {shown}")).also(next.span, other)
        };
        self.context.report(diagnostic.help(greedy.help));
    }

    fn not_in_a_line(&mut self, span: Span, message: &str) {
        self.context.report(
            Diagnostic::error(&codes::BAD_FIELD, span, message)
                .help("a line ends with the first LF: move this before or after the line"),
        );
    }
}

/// Whether a field is omitted if it is not filled.
fn may_be_unwritten(field: &Field) -> bool {
    field.optional && field.default.is_none() && field.fixed.is_none()
}

/// Whether the next item may be omitted, together with its separator.
fn is_unwritten(next: Option<&Group<'_>>) -> bool {
    matches!(next, Some(Group::Item(Item::Field(field))) if field.optional)
}

/// The octets that are skipped before a field, and that therefore cannot begin it.
fn skipped_class(before: Option<&Group<'_>>) -> Option<Class> {
    match before {
        Some(Group::Item(Item::Skip { blanks: true, .. })) => Some(Class::Blank),
        Some(Group::Item(Item::Skip { blanks: false, .. })) => Some(Class::Space),
        _ => None,
    }
}

/// The greatest value of a field that has escapes: the last of them.
fn escape_max(field: &Field, items: &[Item]) -> Option<u64> {
    items.iter().find_map(|item| match item {
        Item::Extend { field: of, cases, .. } if of.text == field.name.text => {
            let most = cases.iter().map(|case: &ast::Extension| case.value.value).max();
            most.and_then(|most| u64::try_from(most).ok())
        }
        _ => None,
    })
}

/// Maximum number of following items that are checked: a layout with more has been reported enough.
const NEXT_MAX: usize = 64;
