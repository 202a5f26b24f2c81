//! Translates writers of messages: each part of a layout to calls of the runtime.

use super::SlotNames;
use super::read::{checksum, class_of, order_of};
use crate::code::{Expr, Stmt, Type};
use crate::names::Names;
use gatewright_lang::ir::{Check, Emit, Guard, Select, SlotId, Source, StreamFraming};
use std::collections::BTreeMap;

pub(crate) fn write(given: &mut Names, names: &SlotNames<'_>, parts: &[Emit]) -> Vec<Stmt> {
    let mut walk = WriteWalk { given, names, locals: BTreeMap::new(), row: None };
    let body = walk.all(parts);
    let begin = |name: &String| Stmt::Let(Type::Number, name.clone(), Expr::Int(0));
    walk.locals.values().map(begin).chain(body).collect()
}

struct WriteWalk<'w> {
    given: &'w mut Names,
    names: &'w SlotNames<'w>,
    /// The variables of [`Emit::Let`].
    locals: BTreeMap<usize, String>,
    /// The list of the current loop, and the variable with the row number.
    row: Option<(SlotId, String)>,
}

fn writer(function: &'static str, arguments: Vec<Expr>) -> Expr {
    let arguments = std::iter::once(Expr::local("w")).chain(arguments).collect();
    Expr::Call(function, arguments)
}

fn put(function: &'static str, arguments: Vec<Expr>) -> Stmt {
    Stmt::Do(writer(function, arguments))
}

fn int(value: impl Into<i64>) -> Expr {
    Expr::number(value)
}

impl WriteWalk<'_> {
    fn all(&mut self, parts: &[Emit]) -> Vec<Stmt> {
        parts.iter().flat_map(|part| self.one(part)).collect()
    }

    fn one(&mut self, part: &Emit) -> Vec<Stmt> {
        match part {
            Emit::Literal(literal) => vec![put("put", vec![Expr::Text(*literal)])],
            Emit::Octets { from, check } => self.field(from, check),
            Emit::Digits { from, radix, width, max } => {
                let value = self.number(from);
                vec![put("put_digits", vec![value, int(*radix), int(*width), int(*max)])]
            }
            Emit::Word { octets, order, fields } => {
                let bits = fields.iter().map(|field| {
                    let value = self.number(&field.from);
                    let name = if field.signed { "put_signed_bits" } else { "put_bits" };
                    put(name, vec![value, int(field.shift), int(field.width)])
                });
                let mut body: Vec<Stmt> = bits.collect();
                body.push(put("put_word", vec![int(*octets), order_of(*order)]));
                body
            }
            Emit::Varint { from, octets_max } => {
                vec![put("put_varint", vec![self.number(from), int(*octets_max)])]
            }
            Emit::Extension { of, cases } => {
                let escapes = Expr::Escapes(cases.clone());
                vec![put("put_extension", vec![self.number(of), escapes])]
            }
            Emit::Counted { octets, order, more, max, body } => {
                let (mark, mut code) = self.marked(body);
                let arguments = vec![mark, int(*octets), order_of(*order), int(*more), int(*max)];
                code.push(put("put_length", arguments));
                code
            }
            Emit::Bounded { max, body } => {
                let (mark, mut code) = self.marked(body);
                code.push(put("put_bound", vec![mark, int(*max)]));
                code
            }
            Emit::Checked { by, body } => {
                let (mark, mut code) = self.marked(body);
                code.push(put("put_check", vec![mark, checksum(*by)]));
                code
            }
            _ => self.choice(part),
        }
    }

    fn choice(&mut self, part: &Emit) -> Vec<Stmt> {
        match part {
            Emit::Let { local, value } => {
                let value = self.number(value);
                vec![Stmt::Set(self.local(local.index()), value)]
            }
            Emit::IfPresent { slot, then, otherwise } => {
                let test = Expr::Call("is_set", vec![self.names.slot(*slot)]);
                let (then, otherwise) = (self.all(then), self.all(otherwise));
                if then.is_empty() {
                    return vec![Stmt::If(Expr::negated(test), otherwise, then)];
                }
                vec![Stmt::If(test, then, otherwise)]
            }
            Emit::When { guard, then } => {
                let then = self.all(then);
                match guard {
                    Guard::Always => then,
                    guard => vec![Stmt::If(self.names.guard(guard), then, vec![])],
                }
            }
            Emit::ForEach { list, body } => {
                let row = self.given.give("row");
                let outer = self.row.replace((*list, row.clone()));
                let body = self.all(body);
                self.row = outer;
                vec![Stmt::Rows { list: self.names.slot(*list), row, body }]
            }
            Emit::Stream { slot, select } => self.stream(*slot, select),
            _ => vec![],
        }
    }

    fn local(&mut self, index: usize) -> String {
        let given = &mut *self.given;
        self.locals.entry(index).or_insert_with(|| given.give("kept")).clone()
    }

    /// The parts, and the position where they begin.
    fn marked(&mut self, body: &[Emit]) -> (Expr, Vec<Stmt>) {
        let mark = self.given.give("mark");
        let mut code = vec![Stmt::Let(Type::Mark, mark.clone(), writer("mark", vec![]))];
        code.extend(self.all(body));
        (Expr::Local(mark), code)
    }

    fn field(&mut self, from: &Source, check: &Check) -> Vec<Stmt> {
        let octets = self.octets(from);
        let mut body = vec![put("field", vec![octets, int(check.min), int(check.max)])];
        if let Some(class) = check.class {
            body.push(put("field_is", vec![class_of(class)]));
        }
        if let Some(set) = check.one_of {
            body.push(put("field_one_of", vec![Expr::Text(set)]));
        }
        if let Some(text) = check.without {
            body.push(put("field_without", vec![Expr::Text(text)]));
        }
        if let Some(class) = check.not_first {
            body.push(put("field_begins_not", vec![class_of(class)]));
        }
        if check.one_line {
            body.push(put("field_one_line", vec![]));
        }
        body.push(put("field_end", vec![]));
        body
    }

    fn number(&mut self, source: &Source) -> Expr {
        match source {
            Source::Slot(slot) => Expr::Call("number", vec![self.names.slot(*slot)]),
            Source::SlotOr(slot, otherwise) => {
                Expr::Call("number_or", vec![self.names.slot(*slot), Expr::Int(*otherwise)])
            }
            Source::Element(column) => self.cell("cell_number", *column).unwrap_or(Expr::Int(0)),
            Source::Local(local) => Expr::Local(self.local(local.index())),
            Source::Int(value) => Expr::Int(*value),
            Source::Count(slot) => Expr::Call("rows", vec![self.names.slot(*slot)]),
            Source::Difference(one, other) => {
                let (one, other) = (self.number(one), self.number(other));
                writer("difference", vec![one, other])
            }
            Source::Escape { of, cases } => {
                writer("escape", vec![self.number(of), Expr::Escapes(cases.clone())])
            }
            Source::Size(of) => Expr::Call("size", vec![self.octets(of)]),
            Source::Literal(_) | Source::Decimal(_) | Source::Uint(_) => Expr::Int(0),
        }
    }

    fn octets(&mut self, source: &Source) -> Expr {
        match source {
            Source::Slot(slot) => Expr::Call("text_of", vec![self.names.slot(*slot)]),
            Source::Element(column) => {
                self.cell("cell_text", *column).unwrap_or(Expr::Constant("NO_TEXT"))
            }
            Source::Literal(literal) => Expr::Text(*literal),
            Source::Decimal(of) => writer("decimal", vec![self.number(of)]),
            Source::Uint(of) => writer("uint", vec![self.number(of)]),
            _ => Expr::Constant("NO_TEXT"),
        }
    }

    fn cell(&self, function: &'static str, column: u32) -> Option<Expr> {
        let (list, row) = self.row.as_ref()?;
        let row = Expr::Local(row.clone());
        Some(Expr::Call(function, vec![self.names.slot(*list), row, int(column)]))
    }

    fn stream(&self, slot: SlotId, select: &[Select]) -> Vec<Stmt> {
        let mut chain = vec![put("refuse", vec![Expr::Constant("NO_FRAMING")])];
        for of in select.iter().rev() {
            let slot = self.names.slot(slot);
            let stream = match of.framing {
                StreamFraming::Lines { terminator, stuffing } => {
                    put("put_lines", vec![slot, Expr::Text(terminator), Expr::Text(stuffing)])
                }
                StreamFraming::Chunked => put("put_chunked", vec![slot]),
                StreamFraming::Counted(length) => {
                    put("put_counted", vec![slot, self.names.slot(length)])
                }
                StreamFraming::UntilClose => put("put_until_close", vec![slot]),
                StreamFraming::Nothing => put("put_nothing", vec![slot]),
            };
            chain = match self.names.guard(&of.guard) {
                Expr::Bool(true) => vec![stream],
                guard => vec![Stmt::If(guard, vec![stream], chain)],
            };
        }
        chain
    }
}
