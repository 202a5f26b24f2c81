//! Translates readers of messages: each parser step to calls of the runtime.

use super::SlotNames;
use crate::code::{Expr, ReadStep, Stmt};
use gatewright_lang::ir::{
    Checksum, Class, Convert, Fold, Length, Order, ParseOp, ParseStep, Select, SlotId,
    StreamFraming, TableKey, TableRow,
};

pub(crate) fn steps(names: &SlotNames<'_>, parser: &[ParseStep]) -> Vec<ReadStep> {
    let step =
        |step: &ParseStep| ReadStep { span: step.span, body: ReadWalk(names).step(&step.op) };
    parser.iter().map(step).collect()
}

struct ReadWalk<'w>(&'w SlotNames<'w>);

fn reader(function: &'static str, arguments: Vec<Expr>) -> Expr {
    let arguments = std::iter::once(Expr::local("r")).chain(arguments).collect();
    Expr::Call(function, arguments)
}

fn turn(function: &'static str, arguments: Vec<Expr>) -> Vec<Stmt> {
    vec![Stmt::Turn(reader(function, arguments))]
}

impl ReadWalk<'_> {
    fn slot(&self, slot: SlotId) -> Expr {
        self.0.slot(slot)
    }

    fn step(&self, op: &ParseOp) -> Vec<Stmt> {
        match op {
            ParseOp::Literal { literal, fold } => {
                let function = if *fold { "literal_folded" } else { "literal" };
                turn(function, vec![Expr::Text(*literal)])
            }
            ParseOp::Until { delimiter, into, fold, max } => {
                let into = self.0.slot_or_none(*into);
                turn("until", vec![Expr::Text(*delimiter), int(*max), folded(*fold), into])
            }
            ParseOp::Run { class, into, empty_is_absent, fold, min, max } => {
                let absent = Expr::Bool(*empty_is_absent);
                let into = self.0.slot_or_none(*into);
                let (min, max) = (int(*min), int(*max));
                turn("run", vec![class_of(*class), min, max, folded(*fold), absent, into])
            }
            ParseOp::Take { length, into, empty_is_absent, fold, max } => {
                let absent = Expr::Bool(*empty_is_absent);
                let into = self.0.slot_or_none(*into);
                let rest = [int(*max), folded(*fold), absent, into];
                let (function, length) = match length {
                    Length::Fixed(octets) => ("take", Some(int(*octets))),
                    Length::Slot(slot) => ("take_counted", Some(self.slot(*slot))),
                    Length::Rest => ("take_rest", None),
                };
                turn(function, length.into_iter().chain(rest).collect())
            }
            ParseOp::Digits { radix, min, max, into } => {
                turn("digits", vec![int(*radix), int(*min), int(*max), self.slot(*into)])
            }
            ParseOp::OneOf { set, into, optional } => {
                let optional = Expr::Bool(*optional);
                turn("one_of", vec![Expr::Text(*set), optional, self.slot(*into)])
            }
            ParseOp::Word { .. } => self.word(op),
            ParseOp::Varint { octets_max, into } => {
                turn("varint", vec![int(*octets_max), self.slot(*into)])
            }
            ParseOp::Extend { slot, cases } => {
                turn("extend", vec![self.slot(*slot), Expr::Escapes(cases.clone())])
            }
            ParseOp::Sum { into, add } => turn("sum", vec![self.slot(*into), self.slot(*add)]),
            ParseOp::Stream { into, select, max } => self.stream(*into, select, *max),
            _ => self.region(op),
        }
    }

    fn region(&self, op: &ParseOp) -> Vec<Stmt> {
        match op {
            ParseOp::EnterLine { max, folded: false } => turn("enter_line", vec![int(*max)]),
            ParseOp::EnterLine { max, folded: true } => turn("enter_folded_line", vec![int(*max)]),
            ParseOp::EnterCounted { length, less, max } => {
                turn("enter_counted", vec![self.slot(*length), int(*less), int(*max)])
            }
            ParseOp::Leave => turn("leave", vec![]),
            ParseOp::BeginCheck { by } => turn("begin_check", vec![checksum(*by)]),
            ParseOp::EndCheck { by } => turn("end_check", vec![checksum(*by)]),
            ParseOp::AtEnd { then } => {
                let go = vec![Stmt::Go(then.index())];
                vec![Stmt::If(reader("at_end", vec![]), go, vec![])]
            }
            ParseOp::Peek { literal, then } => {
                let peek = reader("peek", vec![Expr::Text(*literal)]);
                vec![Stmt::TurnOrGo(peek, then.index())]
            }
            ParseOp::Branch { guard, otherwise } => {
                let test = Expr::negated(self.0.guard(guard));
                vec![Stmt::If(test, vec![Stmt::Go(otherwise.index())], vec![])]
            }
            ParseOp::Jump(to) => vec![Stmt::Go(to.index())],
            ParseOp::Accept => turn("accept", vec![]),
            ParseOp::Refuse => turn("fail", vec![Expr::Constant("NO_CASE")]),
            _ => self.slots(op),
        }
    }

    fn slots(&self, op: &ParseOp) -> Vec<Stmt> {
        match op {
            ParseOp::Count { counter, max } => turn("count", vec![int(*counter), int(*max)]),
            ParseOp::Clear { slots } => {
                let clear = |slot: &SlotId| Stmt::Do(Expr::Call("clear", vec![self.slot(*slot)]));
                slots.iter().map(clear).collect()
            }
            ParseOp::Lookup { key, value, entries } => self.lookup(*key, *value, entries),
            ParseOp::Copy { from, into } => turn("copy", vec![self.slot(*from), self.slot(*into)]),
            ParseOp::Append { list, columns } => {
                let columns = Expr::Slots(columns.iter().map(|slot| self.slot(*slot)).collect());
                turn("append", vec![self.slot(*list), columns])
            }
            ParseOp::Settle { slots } => {
                let settle = |slot: &SlotId| Stmt::Turn(reader("settle", vec![self.slot(*slot)]));
                slots.iter().map(settle).collect()
            }
            _ => turn("fail", vec![Expr::Constant("NO_CASE")]),
        }
    }

    fn word(&self, op: &ParseOp) -> Vec<Stmt> {
        let ParseOp::Word { octets, order, fields } = op else { return vec![] };
        let mut body = turn("word", vec![int(*octets), order_of(*order)]);
        for field in fields {
            let (shift, width) = (int(field.shift), int(field.width));
            let (are, bits) = if field.signed {
                ("signed_bits_are", "signed_bits")
            } else {
                ("bits_are", "bits")
            };
            if let Some(expect) = field.expect {
                let arguments = vec![shift.clone(), width.clone(), Expr::Int(expect)];
                body.extend(turn(are, arguments));
            }
            if let Some(into) = field.into {
                body.extend(turn(bits, vec![shift, width, self.slot(into)]));
            }
        }
        body.extend(turn("word_end", vec![int(*octets)]));
        body
    }

    fn lookup(&self, key: SlotId, value: SlotId, entries: &[TableRow]) -> Vec<Stmt> {
        let file = |entry: &TableRow| {
            let text = matches!(entry.key, TableKey::Octets(_));
            let convert = match entry.convert {
                Convert::Decimal if self.0.message.is_length(entry.into) => {
                    Expr::Constant("AS_LENGTH")
                }
                convert => converted(convert),
            };
            let (value, into) = (self.slot(value), self.slot(entry.into));
            turn("file", vec![value, convert, Expr::Bool(text), into])
        };
        let is = |entry: &TableRow| match entry.key {
            TableKey::Octets(wanted) => {
                Expr::Call("is_key", vec![self.slot(key), Expr::Text(wanted)])
            }
            TableKey::Int(wanted) => {
                Expr::Call("is_within", vec![self.slot(key), Expr::Int(wanted), Expr::Int(wanted)])
            }
        };
        let mut chain = Vec::new();
        for entry in entries.iter().rev() {
            chain = vec![Stmt::If(is(entry), file(entry), chain)];
        }
        let mut body = turn("given", vec![self.slot(key)]);
        body.append(&mut chain);
        body
    }

    /// Begins under the first framing whose guard holds, then passes octets on.
    fn stream(&self, into: SlotId, select: &[Select], max: Option<u32>) -> Vec<Stmt> {
        let mut chain = turn("fail", vec![Expr::Constant("NO_CASE")]);
        for of in select.iter().rev() {
            let into = self.slot(into);
            let begin = match of.framing {
                StreamFraming::Lines { terminator, stuffing } => {
                    turn("stream_lines", vec![Expr::Text(terminator), Expr::Text(stuffing), into])
                }
                StreamFraming::Chunked => turn("stream_chunked", vec![into]),
                StreamFraming::Counted(length) => {
                    turn("stream_counted", vec![self.slot(length), into])
                }
                StreamFraming::UntilClose => turn("stream_until_close", vec![into]),
                StreamFraming::Nothing => turn("stream_nothing", vec![into]),
            };
            chain = match self.0.guard(&of.guard) {
                Expr::Bool(true) => begin,
                guard => vec![Stmt::If(guard, begin, chain)],
            };
        }
        let begun = Expr::negated(reader("streaming", vec![]));
        chain.extend(max.into_iter().flat_map(|max| turn("stream_at_most", vec![int(max)])));
        let mut body = vec![Stmt::If(begun, chain, vec![])];
        body.extend(turn("stream", vec![]));
        body
    }
}

fn int(value: impl Into<i64>) -> Expr {
    Expr::number(value)
}

pub(crate) const fn class_of(class: Class) -> Expr {
    Expr::Constant(match class {
        Class::Space => "SPACE",
        Class::Blank => "BLANK",
        Class::Token => "TOKEN",
        Class::Word => "WORD",
        Class::Digit => "DIGIT",
    })
}

pub(crate) const fn folded(fold: Fold) -> Expr {
    Expr::Constant(match fold {
        Fold::Keep => "KEEP",
        Fold::Upper => "UPPER",
        Fold::Lower => "LOWER",
    })
}

pub(crate) const fn order_of(order: Order) -> Expr {
    Expr::Constant(match order {
        Order::Big => "BIG",
        Order::Little => "LITTLE",
    })
}

pub(crate) const fn checksum(by: Checksum) -> Expr {
    Expr::Constant(match by {
        Checksum::Crc16Modbus => "CRC16_MODBUS",
        Checksum::Crc16Ccitt => "CRC16_CCITT",
        Checksum::Crc32 => "CRC32",
        Checksum::Lrc => "LRC",
    })
}

const fn converted(convert: Convert) -> Expr {
    Expr::Constant(match convert {
        Convert::Keep => "AS_IS",
        Convert::Lower => "AS_LOWER",
        Convert::Upper => "AS_UPPER",
        Convert::Decimal => "AS_DECIMAL",
        Convert::Uint => "AS_UINT",
    })
}
