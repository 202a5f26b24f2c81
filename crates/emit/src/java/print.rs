//! Prints expressions and statements as Java.

use super::text::{Texts, camel, class, comment, constant, number};
use crate::code::{Expr, Places, ReadStep, RecordType, SourceLine, Stmt, Type};
use crate::wrap::wrapped;
use core::time::Duration;
use gatewright_diagnostic::Span;
use gatewright_lang::ir::{ExtendCase, Program};

/// Output in progress, with the source position of its lines.
pub(crate) struct Printer<'p> {
    program: &'p Program,
    records: &'p [RecordType],
    places: Places<'p>,
    texts: &'p mut Texts,
    out: String,
    indent: usize,
    place: Option<SourceLine>,
    /// Whether the output belongs to the view that it refers to.
    own: bool,
    /// Named lists of escapes.
    escapes: Vec<Vec<ExtendCase>>,
}

impl<'p> Printer<'p> {
    pub(crate) const fn new(
        program: &'p Program,
        records: &'p [RecordType],
        places: Places<'p>,
        texts: &'p mut Texts,
    ) -> Self {
        Self {
            program,
            records,
            places,
            texts,
            out: String::new(),
            indent: 0,
            place: None,
            own: false,
            escapes: Vec::new(),
        }
    }

    pub(crate) fn finish(self) -> String {
        self.out
    }

    /// The lists of escapes in use, in the order of their names.
    pub(crate) fn escapes(&self) -> Vec<Vec<ExtendCase>> {
        self.escapes.clone()
    }

    pub(crate) fn line(&mut self, text: &str) {
        if text.is_empty() {
            self.out.push('\n');
            return;
        }
        for line in wrapped(text, self.indent * 4) {
            self.out.push_str(&line);
            self.out.push('\n');
        }
    }

    pub(crate) fn open(&mut self, text: &str) {
        self.line(text);
        self.indent += 1;
    }

    pub(crate) fn close(&mut self, text: &str) {
        self.indent = self.indent.saturating_sub(1);
        self.line(text);
    }

    pub(crate) const fn indent_more(&mut self) {
        self.indent += 1;
    }

    pub(crate) const fn indent_less(&mut self) {
        self.indent = self.indent.saturating_sub(1);
    }

    /// Sets the source position of the following lines.
    pub(crate) fn at(&mut self, span: Span) {
        let Some(place) = (self.places)(span) else { return };
        if self.place.as_ref() != Some(&place) {
            self.line(&format!("// {}:{}", comment(&place.file), place.line));
            self.place = Some(place);
        }
    }

    /// Clears the source position; a later call may set another.
    pub(crate) fn home(&mut self) {
        self.place = None;
    }

    pub(crate) fn reader(&mut self, record: &RecordType) {
        self.own = true;
        self.line("@Override");
        self.open("protected Turn read(Reader r) {");
        self.open("for (;;) {");
        self.line("Turn turn = Turn.NEXT;");
        self.line("if (r.reached())");
        self.line("    return Turn.REACHED;");
        self.line("switch (r.step) {");
        for (index, step) in record.read.iter().enumerate() {
            self.step(index, step);
        }
        self.own = false;
        self.home();
        self.open("default:");
        self.line("return r.fail(Reason.NO_CASE);");
        self.close("}");
        self.line("if (turn != Turn.NEXT)");
        self.line("    return turn;");
        self.line("r.step++;");
        self.close("}");
        self.close("}");
    }

    fn step(&mut self, index: usize, step: &ReadStep) {
        self.at(step.span);
        self.open(&format!("case {index}:"));
        self.statements(&step.body, true);
        if !matches!(step.body.last(), Some(Stmt::Go(_))) {
            self.line("break;");
        }
        self.indent_less();
    }

    pub(crate) fn writer(&mut self, record: &RecordType, span: Span) {
        self.at(span);
        self.home();
        self.line("@Override");
        self.open("protected void write(Writer w) {");
        self.own = true;
        self.statements(&record.write, true);
        self.own = false;
        self.close("}");
    }

    /// `last`: nothing follows the body within its step.
    pub(crate) fn statements(&mut self, body: &[Stmt], last: bool) {
        for (index, statement) in body.iter().enumerate() {
            self.statement(statement, last && index + 1 == body.len());
        }
    }

    fn statement(&mut self, statement: &Stmt, last: bool) {
        match statement {
            Stmt::Do(call) => {
                let call = self.expr(call);
                self.line(&format!("{call};"));
            }
            Stmt::Let(ty, name, value) => {
                let ty = match ty {
                    Type::Number => "long",
                    Type::Mark => "int",
                };
                let (name, value) = (camel(name), self.expr(value));
                self.line(&format!("{ty} {name} = {value};"));
            }
            Stmt::Set(name, value) => {
                let (name, value) = (camel(name), self.expr(value));
                self.line(&format!("{name} = {value};"));
            }
            Stmt::If(test, then, otherwise) => self.choice("", (test, then, otherwise), last),
            Stmt::Rows { list, row, body } => {
                let (list, row) = (self.expr(list), camel(row));
                self.open(&format!("for (int {row} = 0; {row} < {list}.rows(); {row}++) {{"));
                self.statements(body, last);
                self.close("}");
            }
            Stmt::Turn(call) => {
                let call = self.expr(call);
                self.line(&format!("turn = {call};"));
                if !last {
                    self.line("if (turn != Turn.NEXT)");
                    self.line("    break;");
                }
            }
            Stmt::TurnOrGo(call, to) => {
                let call = self.expr(call);
                self.line(&format!("turn = {call};"));
                self.open("if (turn == Turn.GO) {");
                self.go(*to);
                self.close("}");
            }
            Stmt::Go(to) => self.go(*to),
            Stmt::At(span) => self.at(*span),
            _ => self.ending(statement),
        }
    }

    /// The last statement of a section of a handler.
    fn ending(&mut self, statement: &Stmt) {
        match statement {
            Stmt::Block(to) => {
                self.line(&format!("t.block = {to};"));
                self.line("continue;");
            }
            Stmt::Leave(value) => {
                let value = self.expr(value);
                self.line(&format!("return {value};"));
            }
            Stmt::Ensure(holds, value) => {
                let (holds, value) = (self.expr(holds), self.expr(value));
                self.line(&format!("if (!{holds})"));
                self.line(&format!("    return {value};"));
            }
            Stmt::Await(settled, then) => {
                let settled = self.expr(settled);
                self.line(&format!("t.block = {then};"));
                self.line(&format!("if (!{settled})"));
                self.line("    return Stop.WAITS;");
                self.line("continue;");
            }
            _ => {}
        }
    }

    fn go(&mut self, to: usize) {
        self.line(&format!("r.step = {to};"));
        self.line("continue;");
    }

    fn choice(&mut self, before: &str, parts: (&Expr, &[Stmt], &[Stmt]), last: bool) {
        let (test, then, otherwise) = parts;
        let test = self.expr(test);
        self.open(&format!("{before}if ({test}) {{"));
        self.statements(then, last);
        match otherwise {
            [] => self.close("}"),
            [Stmt::If(test, then, otherwise)] => {
                self.indent_less();
                self.choice("} else ", (test, then, otherwise), last);
            }
            _ => {
                self.close("} else {");
                self.indent += 1;
                self.statements(otherwise, last);
                self.close("}");
            }
        }
    }

    pub(crate) fn expr(&mut self, expr: &Expr) -> String {
        match expr {
            Expr::Int(value) => number(*value),
            Expr::Bool(value) => value.to_string(),
            Expr::Text(literal) => {
                let program = self.program;
                self.text(program.literal(*literal))
            }
            Expr::Slot(view, slot) if self.own && view == "view" => {
                format!("this.{}", camel(slot))
            }
            Expr::Slot(view, slot) => format!("{view}.{}", camel(slot)),
            Expr::NoSlot => "null".to_owned(),
            Expr::Local(name) => camel(name),
            Expr::Constant(name) => qualified(name),
            Expr::Call(name, arguments) => self.call(name, arguments),
            Expr::Inside(record, value, slot) => {
                let (record, value) = (class(record), camel(value));
                format!("Messages.{record}.in(v.{value}).{}", camel(slot))
            }
            Expr::Built(record, slot) => {
                format!("Messages.{}.in(b).{}", class(record), camel(slot))
            }
            Expr::Message(at) => self.message(*at),
            Expr::Parameter(at) => format!("PARAMETERS[{at}]"),
            Expr::Declared(name) => constant(name),
            Expr::Time(time) => milliseconds(*time),
            Expr::Indices(at, _) => format!("SLOTS_{at}"),
            Expr::Escapes(cases) => self.named_escapes(cases),
            Expr::Slots(slots) | Expr::Targets(slots) => {
                slots.iter().map(|of| self.expr(of)).collect::<Vec<_>>().join(", ")
            }
            Expr::Not(of) => match self.expr(of) {
                inner if matches!(**of, Expr::All(_) | Expr::Any(_)) => format!("!({inner})"),
                inner => format!("!{inner}"),
            },
            Expr::All(parts) => self.joined(parts, " && "),
            Expr::Any(parts) => self.joined(parts, " || "),
        }
    }

    /// Constant octets, by their name.
    pub(crate) fn text(&mut self, octets: &[u8]) -> String {
        format!("Texts.{}", self.texts.name(octets))
    }

    /// The description of a message.
    pub(crate) fn message(&self, at: usize) -> String {
        let name = self.records.get(at).map(|record| class(&record.name)).unwrap_or_default();
        format!("Messages.{name}.MESSAGE")
    }

    /// The name of a list of escapes, assigned at its first use.
    fn named_escapes(&mut self, cases: &[ExtendCase]) -> String {
        let at = self.escapes.iter().position(|known| known == cases).unwrap_or_else(|| {
            self.escapes.push(cases.to_vec());
            self.escapes.len() - 1
        });
        format!("ESCAPES_{at}")
    }

    /// A call: functions of numbers are static, all others are methods of their first argument.
    fn call(&mut self, name: &str, arguments: &[Expr]) -> String {
        let all: Vec<String> =
            arguments.iter().map(|of| self.expr(of)).filter(|of| !of.is_empty()).collect();
        let method = match name {
            "text_of" => "text".to_owned(),
            "return" => "end".to_owned(),
            "try" => "take".to_owned(),
            name => camel(name),
        };
        let alone =
            matches!(name, "add" | "subtract" | "multiply" | "divide" | "modulo" | "between");
        match (name, all.as_slice()) {
            ("less", [one, other]) => format!("({one} < {other})"),
            ("equal", [one, other]) => format!("({one} == {other})"),
            (_, [receiver, rest @ ..]) if !alone => {
                format!("{receiver}.{method}({})", rest.join(", "))
            }
            _ => format!("Numbers.{method}({})", all.join(", ")),
        }
    }

    fn joined(&mut self, parts: &[Expr], operator: &str) -> String {
        let part = |part: &Expr| match self.expr(part) {
            inner if matches!(part, Expr::All(_) | Expr::Any(_)) => format!("({inner})"),
            inner => inner,
        };
        parts.iter().map(part).collect::<Vec<_>>().join(operator)
    }
}

/// A constant of the runtime, qualified by its class.
fn qualified(name: &str) -> String {
    let class = match name {
        "NO_TEXT" => return "Text.NONE".to_owned(),
        "FAILS" | "CLOSES" | "OPENED" => "Stop",
        "NO_CASE" | "NO_FRAMING" => "Reason",
        "SPACE" | "BLANK" | "TOKEN" | "WORD" | "DIGIT" => "OctetClass",
        "KEEP" | "UPPER" | "LOWER" => "Fold",
        "BIG" | "LITTLE" => "Order",
        "CRC16_MODBUS" | "CRC16_CCITT" | "CRC32" | "LRC" => "Check",
        _ => "Convert",
    };
    format!("{class}.{name}")
}

pub(crate) fn milliseconds(time: Duration) -> String {
    format!("Time.milliseconds({})", number(i64::try_from(time.as_millis()).unwrap_or(i64::MAX)))
}
