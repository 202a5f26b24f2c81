//! Prints the tree as C: expressions, statements, functions.

use super::text::{number, quoted};
use crate::code::{Expr, Places, ReadStep, RecordType, SourceLine, Stmt, Type, mentions};
use crate::wrap::wrapped;
use core::time::Duration;
use gatewright_diagnostic::Span;
use gatewright_lang::ir::{ExtendCase, Program};
use std::collections::BTreeSet;

/// Output in progress, with the source position of its lines.
pub(crate) struct Printer<'p> {
    program: &'p Program,
    places: Places<'p>,
    file: &'p str,
    out: String,
    indent: usize,
    lines: usize,
    place: Option<SourceLine>,
    /// Named lists of escapes.
    escapes: Vec<Vec<ExtendCase>>,
    /// Whether a reader goes to another step by a jump, within one pass.
    jumps: bool,
}

impl<'p> Printer<'p> {
    pub(crate) const fn new(program: &'p Program, file: &'p str, places: Places<'p>) -> Self {
        Self {
            program,
            places,
            file,
            out: String::new(),
            indent: 0,
            lines: 0,
            place: None,
            escapes: Vec::new(),
            jumps: false,
        }
    }

    pub(crate) fn finish(self) -> String {
        self.out
    }

    pub(crate) fn line(&mut self, text: &str) {
        if text.is_empty() {
            self.raw("");
            return;
        }
        for line in wrapped(text, self.indent * 4) {
            self.raw(&line);
        }
    }

    fn raw(&mut self, line: &str) {
        self.out.push_str(line);
        self.out.push('\n');
        self.lines += 1;
        self.place.iter_mut().for_each(|place| place.line += 1);
    }

    pub(crate) fn open(&mut self, text: &str) {
        self.line(text);
        self.indent += 1;
    }

    pub(crate) fn close(&mut self, text: &str) {
        self.indent = self.indent.saturating_sub(1);
        self.line(text);
    }

    pub(crate) const fn indent_less(&mut self) {
        self.indent = self.indent.saturating_sub(1);
    }

    /// Names a list of escapes, once.
    pub(crate) fn name_escapes(&mut self, cases: &[ExtendCase]) {
        if self.escapes.iter().any(|known| known == cases) {
            return;
        }
        let (at, list) = (self.escapes.len(), escape_list(cases));
        self.line(&format!("static const struct gw_escape escapes_{at}[] = {{{list}}};"));
        self.escapes.push(cases.to_vec());
    }

    /// Sets the source position of the next line.
    pub(crate) fn at(&mut self, span: Span) {
        let Some(place) = (self.places)(span) else { return };
        if self.place.as_ref() == Some(&place) {
            return;
        }
        self.raw(&format!("#line {} {}", place.line, quoted(place.file.as_bytes())));
        self.place = Some(place);
    }

    /// Returns the next line to the generated file's own position.
    pub(crate) fn home(&mut self) {
        if self.place.take().is_some() {
            let line = self.lines + 2;
            self.raw(&format!("#line {line} {}", quoted(self.file.as_bytes())));
        }
    }

    pub(crate) fn reader(&mut self, record: &RecordType) {
        if record.read.is_empty() {
            return;
        }
        let name = &record.name;
        self.line(&format!(
            "static enum gw_turn {name}_read(struct gw_reader *r, struct gw_view *base)"
        ));
        self.open("{");
        if record.read.iter().any(|step| mentions(&step.body, &is_slot)) {
            self.line(&format!("struct {name} *view = (struct {name} *)base;"));
        } else {
            self.line("(void)base;");
        }
        self.open("for (;;) {");
        self.line("enum gw_turn turn = GW_NEXT;");
        self.line("if (gw_reached(r))");
        self.line("    return GW_REACHED;");
        self.line("switch (r->step) {");
        for (index, step) in record.read.iter().enumerate() {
            self.step(index, step);
        }
        self.home();
        self.open("default:");
        self.line("return gw_fail(r, GW_NO_CASE);");
        self.close("}");
        self.line("if (turn != GW_NEXT)");
        self.line("    return turn;");
        self.line("r->step++;");
        self.close("}");
        self.close("}");
        self.line("");
    }

    /// The pass over a whole message: its steps in a row, with jumps between them.
    pub(crate) fn whole(&mut self, record: &RecordType) {
        let Some(steps) = &record.whole else { return };
        let name = &record.name;
        self.line(&format!(
            "static size_t {name}_whole(struct gw_view *base, struct gw_text input)"
        ));
        self.open("{");
        if steps.iter().any(|step| mentions(&step.body, &is_slot)) {
            self.line(&format!("struct {name} *view = (struct {name} *)base;"));
        } else {
            self.line("(void)base;");
        }
        self.line("struct gw_pass p = {.at = input.at, .end = input.at + input.length};");
        let mut targets = BTreeSet::new();
        for step in steps {
            gone_to(&step.body, &mut targets);
        }
        self.jumps = true;
        for (index, step) in steps.iter().enumerate() {
            self.at(step.span);
            if targets.contains(&index) {
                self.line(&format!("step_{index}:;"));
            }
            self.statements(&step.body, false);
        }
        self.jumps = false;
        self.home();
        self.line("return GW_NOT_WHOLE;");
        self.close("}");
        self.line("");
    }

    fn step(&mut self, index: usize, step: &ReadStep) {
        self.at(step.span);
        self.open(&format!("case {index}:"));
        self.statements(&step.body, true);
        if !matches!(step.body.last(), Some(Stmt::Go(_))) {
            self.line("break;");
        }
        self.indent = self.indent.saturating_sub(1);
    }

    pub(crate) fn writer(&mut self, record: &RecordType, span: Span) {
        let name = &record.name;
        self.at(span);
        self.line(&format!(
            "static void {name}_write(struct gw_writer *w, const struct gw_view *base)"
        ));
        self.open("{");
        if mentions(&record.write, &is_slot) {
            self.line(&format!("const struct {name} *view = (const struct {name} *)base;"));
        } else {
            self.line("(void)base;");
        }
        if record.write.is_empty() {
            self.line("(void)w;");
        }
        self.statements(&record.write, true);
        self.home();
        self.close("}");
        self.line("");
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
                    Type::Number => "int64_t",
                    Type::Mark => "size_t",
                };
                let value = self.expr(value);
                self.line(&format!("{ty} {name} = {value};"));
            }
            Stmt::Set(name, value) => {
                let value = self.expr(value);
                self.line(&format!("{name} = {value};"));
            }
            Stmt::If(test, then, otherwise) => self.choice("", (test, then, otherwise), last),
            Stmt::Rows { list, row, body } => {
                let list = self.expr(list);
                self.open(&format!("for (int64_t {row} = 0; {row} < gw_rows({list}); {row}++) {{"));
                self.statements(body, last);
                self.close("}");
            }
            Stmt::Turn(call) => {
                let call = self.expr(call);
                self.line(&format!("turn = {call};"));
                if !last {
                    self.line("if (turn != GW_NEXT)");
                    self.line("    break;");
                }
            }
            Stmt::TurnOrGo(call, to) => {
                let call = self.expr(call);
                self.line(&format!("turn = {call};"));
                self.open("if (turn == GW_GO) {");
                self.go(*to);
                self.close("}");
            }
            Stmt::Go(to) => self.go(*to),
            Stmt::At(span) => self.at(*span),
            Stmt::Block(to) => self.block(*to),
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
                self.line(&format!("t->block = {then};"));
                self.line(&format!("if (!{settled})"));
                self.line("    return GW_WAITS;");
                self.line("continue;");
            }
        }
    }

    fn block(&mut self, to: usize) {
        self.line(&format!("t->block = {to};"));
        self.line("continue;");
    }

    fn go(&mut self, to: usize) {
        if self.jumps {
            self.line(&format!("goto step_{to};"));
            return;
        }
        self.line(&format!("r->step = {to};"));
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
                self.indent = self.indent.saturating_sub(1);
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

    fn expr(&self, expr: &Expr) -> String {
        match expr {
            Expr::Int(value) => number(*value),
            Expr::Bool(value) => value.to_string(),
            Expr::Text(literal) => format!("GW_TEXT({})", quoted(self.program.literal(*literal))),
            Expr::Slot(view, slot) => format!("&{view}->{slot}"),
            Expr::NoSlot => "NULL".to_owned(),
            Expr::Local(name) => name.clone(),
            Expr::Constant("NO_TEXT") => "GW_TEXT(\"\")".to_owned(),
            Expr::Constant(name) => format!("GW_{name}"),
            Expr::Call(name, arguments) => {
                let arguments: Vec<String> = arguments.iter().map(|of| self.expr(of)).collect();
                format!("gw_{name}({})", arguments.join(", "))
            }
            Expr::Inside(record, value, slot) => format!("&GW_IN({record}, v->{value})->{slot}"),
            Expr::Built(record, slot) => format!("&GW_BUILT({record})->{slot}"),
            Expr::Message(at) => format!("&gw_messages[{at}]"),
            Expr::Parameter(at) => format!("&parameters[{at}]"),
            Expr::Declared(name) => format!("&{name}"),
            Expr::Time(time) => milliseconds(*time),
            Expr::Indices(at, count) => format!("{count}, slots_{at}"),
            Expr::Escapes(cases) => {
                let known = self.escapes.iter().position(|known| known == cases);
                let (count, list) = (cases.len(), escape_list(cases));
                match known {
                    Some(at) => format!("{count}, escapes_{at}"),
                    None => format!("{count}, (const struct gw_escape[]){{{list}}}"),
                }
            }
            Expr::Slots(slots) => self.slots("const struct gw_slot", slots),
            Expr::Targets(slots) => self.slots("struct gw_slot", slots),
            Expr::Not(of) => match self.expr(of) {
                inner if matches!(**of, Expr::All(_) | Expr::Any(_)) => format!("!({inner})"),
                inner => format!("!{inner}"),
            },
            Expr::All(parts) => self.joined(parts, " && "),
            Expr::Any(parts) => self.joined(parts, " || "),
        }
    }

    fn slots(&self, ty: &str, slots: &[Expr]) -> String {
        let list: Vec<String> = slots.iter().map(|of| self.expr(of)).collect();
        let (count, list) = (list.len(), list.join(", "));
        format!("{count}, ({ty} *const[]){{{list}}}")
    }

    fn joined(&self, parts: &[Expr], operator: &str) -> String {
        let part = |part: &Expr| match self.expr(part) {
            inner if matches!(part, Expr::All(_) | Expr::Any(_)) => format!("({inner})"),
            inner => inner,
        };
        parts.iter().map(part).collect::<Vec<_>>().join(operator)
    }
}

pub(crate) fn milliseconds(time: Duration) -> String {
    format!("GW_MILLISECONDS({})", number(i64::try_from(time.as_millis()).unwrap_or(i64::MAX)))
}

/// The steps that statements continue at.
fn gone_to(body: &[Stmt], targets: &mut BTreeSet<usize>) {
    for statement in body {
        match statement {
            Stmt::Go(to) | Stmt::TurnOrGo(_, to) => {
                targets.insert(*to);
            }
            Stmt::If(_, then, otherwise) => {
                gone_to(then, targets);
                gone_to(otherwise, targets);
            }
            _ => {}
        }
    }
}

const fn is_slot(expr: &Expr) -> bool {
    matches!(expr, Expr::Slot(..))
}

fn escape_list(cases: &[ExtendCase]) -> String {
    let case = |case: &ExtendCase| {
        format!("{{{}, {}, {}}}", number(case.value), case.octets, number(case.add))
    };
    cases.iter().map(case).collect::<Vec<_>>().join(", ")
}
