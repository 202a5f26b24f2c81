//! Statements to blocks.

use super::body::Body;
use super::build::Exchange;
use super::scope::{Flow, Local, SessionState, Ty, Value};
use crate::codes;
use crate::ir::{Operand, Operation, RegisterType, Terminator};
use crate::syntax::ast::{
    Bound, Call, Definition, Expression, ExpressionKind, Name, Statement, StatementKind,
};
use gatewright_diagnostic::{Diagnostic, Span};

impl<'a> Body<'_, 'a> {
    /// Statements in order; names end with them.
    pub(super) fn statements(&mut self, statements: &[Statement]) {
        let mark = self.scope.len();
        for statement in statements {
            if !self.reachable {
                let message = "control never comes here";
                let diagnostic = Diagnostic::warning(&codes::UNREACHABLE, statement.span, message);
                self.context.report(diagnostic);
                break;
            }
            self.statement(statement);
        }
        self.forget(mark);
    }

    /// One statement. What is wrong was reported, and the rest is lowered all the same.
    pub(super) fn statement(&mut self, statement: &Statement) {
        let span = statement.span;
        let lowered = match &statement.kind {
            StatementKind::Let { name, value, otherwise } => {
                self.bound(name, value, otherwise.as_deref(), span)
            }
            StatementKind::Send { send, otherwise } => self.send(None, send, otherwise.as_deref()),
            StatementKind::If { condition, then, otherwise } => {
                self.if_statement(condition, then, otherwise.as_deref(), span);
                Some(())
            }
            StatementKind::ForEach { name, list, body } => self.for_each(name, list, body, span),
            StatementKind::Gather { name, send, max, body } => self.gather(name, send, *max, body),
            StatementKind::Return { value, close } => {
                let before = self.closing;
                self.closing |= *close;
                self.return_statement(value.as_ref(), span);
                self.closing = before;
                Some(())
            }
            StatementKind::Provisional(value) => self.provisional(value, span),
            StatementKind::Close(role) => self.close(role.as_ref(), span),
            StatementKind::Fail => {
                self.leave(Terminator::Fail, span);
                Some(())
            }
            StatementKind::Release(role) => {
                self.with_client(role, span, |role| Operation::Release { role })
            }
            StatementKind::Append { value, list, otherwise } => {
                self.append(value, list, otherwise.as_deref(), span)
            }
            StatementKind::Assign { variable, value } => self.assign_session(variable, value, span),
            StatementKind::Clear(name) => self.session_slot(name).map(|(slot, _)| {
                self.flow.facts.retain(|fact| *fact != Operand::Session(slot));
                self.push(Operation::ClearSession { slot }, span);
            }),
            StatementKind::StartSession(otherwise) => {
                self.open_session(true, otherwise.as_deref(), span)
            }
            StatementKind::ResumeSession(otherwise) => {
                self.open_session(false, otherwise.as_deref(), span)
            }
            StatementKind::EndSession => self.end_session(span),
            StatementKind::Wait(time) => {
                let then = self.new_block(span);
                self.end(Terminator::Sleep { period: time.value, then }, span);
                self.go_on_in(then);
                self.suspended();
                Some(())
            }
            StatementKind::Block(statements) => {
                self.statements(statements);
                Some(())
            }
        };
        if lowered.is_none() {
            self.stand_in(&statement.kind);
        }
    }

    /// After an error a name is known all the same, so that one error stays one.
    fn stand_in(&mut self, kind: &StatementKind) {
        let StatementKind::Let { name, value, .. } = kind else { return };
        let view = match value {
            Bound::Send(send) => send
                .to
                .as_ref()
                .and_then(|to| self.env.roles.iter().find(|role| role.name == to.text)?.response),
            _ => None,
        };
        let ty = view.map_or(Ty::Unknown, Ty::View);
        let Some(register) = self.register_for(&name.text, &ty, name.span) else { return };
        let operand = Operand::Register(register);
        let value = Value { operand, ty, optional: false, span: name.span };
        self.scope.push(Local { name: name.clone(), value, used: true });
    }

    // -- Names.

    fn bound(
        &mut self,
        name: &Name,
        bound: &Bound,
        otherwise: Option<&Statement>,
        span: Span,
    ) -> Option<()> {
        match bound {
            Bound::Send(send) => self.send(Some(name), send, otherwise),
            Bound::Receive { view, within, span } => {
                self.receive(name, (view, *within, *span), otherwise)
            }
            Bound::Value(expression) => {
                if otherwise.is_some() {
                    self.open_edge();
                }
                let value = self.set_value(expression);
                let edge = if otherwise.is_some() { self.take_edge() } else { None };
                match (otherwise, edge) {
                    (Some(statement), Some(block)) => {
                        self.otherwise(block, Some(statement), span, "", true);
                    }
                    (Some(statement), None) if value.is_some() => {
                        let message = "nothing here can be absent";
                        let diagnostic = Diagnostic::error(&codes::NEEDLESS_ELSE, span, message)
                            .also(statement.span, "never taken");
                        self.context.report(diagnostic);
                    }
                    _ => {}
                }
                let value = self.own(value?);
                self.bind(name, value);
                Some(())
            }
        }
    }

    /// A value that later changes of the session do not touch.
    fn own(&mut self, value: Value) -> Value {
        if !matches!(value.operand, Operand::Session(_)) {
            return value;
        }
        let Some(into) = self.register_for("", &value.ty, value.span) else { return value };
        self.push(Operation::Set { into, value: value.operand }, value.span);
        Value { operand: Operand::Register(into), ..value }
    }

    // -- Ways.

    fn if_statement(
        &mut self,
        condition: &crate::syntax::ast::Condition,
        then: &[Statement],
        otherwise: Option<&[Statement]>,
        span: Span,
    ) {
        let (yes, no) = (self.new_block(span), self.new_block(span));
        let before = self.flow.clone();
        self.branch(condition, yes, no);
        let (holds, fails) = self.facts(condition);
        let join = self.new_block(span);
        let mut ways: [Option<Flow>; 2] = [None, None];
        let sides = [(yes, Some(then), holds), (no, otherwise, fails)];
        for ((block, statements, facts), way) in sides.into_iter().zip(&mut ways) {
            self.flow = before.clone();
            self.flow.facts.extend(facts);
            self.reachable = true;
            self.go_on_in(block);
            self.statements(statements.unwrap_or_default());
            if self.reachable {
                self.end(Terminator::Jump(join), span);
                *way = Some(self.flow.clone());
            }
        }
        let [one, other] = ways;
        match Flow::meet(one, other) {
            Some(flow) => {
                self.flow = flow;
                self.reachable = true;
            }
            None => self.reachable = false,
        }
        self.go_on_in(join);
    }

    fn for_each(
        &mut self,
        name: &Name,
        list: &Expression,
        body: &[Statement],
        span: Span,
    ) -> Option<()> {
        let value = self.set_value(list)?;
        let Ty::List { columns, .. } = &value.ty else {
            let message = format!("this is {}, not a list", value.ty.name());
            self.wrong_type(&value.ty, list.span, message);
            return None;
        };
        let columns = columns.clone();
        let high = i64::from(u32::MAX);
        let cursor = self.register("", span, RegisterType::Int { low: 0, high });
        self.push(Operation::Set { into: cursor, value: Operand::Int(0) }, span);
        let mut into = Vec::new();
        for (field, column) in &columns {
            let full = if field.is_empty() { &name.text } else { field };
            into.push(self.register_for(full, &Ty::column(*column), name.span)?);
        }
        let (head, each, done) = (self.new_block(span), self.new_block(span), self.new_block(span));
        self.end(Terminator::Jump(head), span);
        self.go_on_in(head);
        let list = value.operand;
        self.end(Terminator::Next { list, cursor, into: into.clone(), body: each, done }, span);
        let before = self.flow.clone();
        self.go_on_in(each);
        let mark = self.scope.len();
        let operand = Operand::Register(*into.first()?);
        let ty = if let [(_, column)] = columns.as_slice() {
            Ty::column(*column)
        } else {
            let fields = columns.into_iter().zip(into);
            Ty::Element(fields.map(|((name, column), of)| (name, of, column)).collect())
        };
        self.bind(name, Value { operand, ty, optional: false, span: name.span });
        self.statements(body);
        self.forget(mark);
        if self.reachable {
            self.end(Terminator::Jump(head), span);
        }
        self.after_loop(before);
        self.go_on_in(done);
        Some(())
    }

    /// Behind a loop only that is known which was known before and was not undone in it.
    pub(super) fn after_loop(&mut self, before: Flow) {
        let inner = self.reachable.then(|| self.flow.clone());
        if before.session == SessionState::Open
            && inner.as_ref().is_some_and(|flow| flow.session != SessionState::Open)
        {
            self.flow.session = SessionState::NotOpen;
        }
        if let Some(flow) = Flow::meet(Some(before), inner) {
            self.flow = flow;
        }
        self.reachable = true;
    }

    // -- Ends.

    fn return_statement(&mut self, value: Option<&Expression>, span: Span) {
        if self.purpose.opening.is_some() {
            let message = "an opening ends by itself, or by `fail`";
            self.context.error(&codes::WRONG_PLACE, span, message);
            self.leave(Terminator::Fail, span);
            return;
        }
        let Some(value) = value else {
            if self.purpose.answers {
                let message = "this handler owes an answer";
                self.context.error(&codes::WRONG_RETURN, span, message);
            }
            self.leave(Terminator::Return { message: None, close: self.closing }, span);
            return;
        };
        if !self.purpose.answers {
            let message = "nobody waits for an answer here";
            self.context.error(&codes::WRONG_RETURN, span, message);
            self.leave(Terminator::Return { message: None, close: self.closing }, span);
            return;
        }
        self.return_value(value);
    }

    fn return_value(&mut self, value: &Expression) {
        match &value.kind {
            ExpressionKind::When { on, arms } => {
                let all = self.arms(on, arms, value.span, |body, arm| {
                    body.return_value(&arm.value);
                    Some(())
                });
                if all.is_none() {
                    self.leave(Terminator::Fail, value.span);
                }
                self.reachable = false;
            }
            ExpressionKind::Call(call) if self.definition(call).is_some() => self.inline(call),
            _ => {
                let message = self.answer(value);
                let terminator = match message {
                    Some(message) => {
                        Terminator::Return { message: Some(message), close: self.closing }
                    }
                    None => Terminator::Fail,
                };
                self.leave(terminator, value.span);
            }
        }
    }

    /// A message that answers the request of this handler.
    fn answer(&mut self, value: &Expression) -> Option<crate::ir::Build> {
        let role = self.purpose.server?;
        let build = self.message_of(value, Exchange::Answer(role))?;
        let wanted = self.env.roles.get(role.index())?.response?;
        let written = self.context.views.get(build.message.index()).copied();
        if written == Some(wanted) {
            return Some(build);
        }
        let name = |id| self.context.message(id).map_or("", |message| message.name.as_str());
        let message =
            format!("this is `{}`; the answer is `{}`", written.map_or("", name), name(wanted));
        self.context.error(&codes::WRONG_RETURN, value.span, message);
        None
    }

    fn definition(&self, call: &Call) -> Option<&'a Definition> {
        let name = call.path.name.text.as_str();
        let none = call.path.module.is_none();
        self.env.definitions().find(|definition| none && definition.name.text == name)
    }

    /// A definition stands for its statements.
    fn inline(&mut self, call: &Call) {
        let Some(definition) = self.definition(call) else { return };
        let returns = self.view_of(&definition.returns);
        let wanted = self
            .purpose
            .server
            .and_then(|role| self.env.roles.get(role.index()))
            .and_then(|role| role.response);
        if returns.is_some() && returns != wanted {
            let message = format!("`{}` returns another view", definition.name.text);
            self.context.error(&codes::WRONG_RETURN, call.span, message);
        }
        let Some(scope) = self.parameters(&definition.parameters, call) else {
            self.leave(Terminator::Fail, call.span);
            return;
        };
        if self.inlining.contains(&definition.name.text.as_str()) {
            let message = format!("`{}` uses itself", definition.name.text);
            self.context.error(&codes::RECURSION, call.span, message);
            self.leave(Terminator::Fail, call.span);
            return;
        }
        self.env.use_definition(&definition.name.text);
        self.inlining.push(&definition.name.text);
        let before = self.context.found.len();
        let outer = std::mem::replace(&mut self.scope, scope);
        self.statements(&definition.body);
        if self.reachable {
            let message = format!("`{}` may end without an answer", definition.name.text);
            self.context.error(&codes::NO_RETURN, definition.end, message);
            self.leave(Terminator::Fail, definition.end);
        }
        self.forget(0);
        self.scope = outer;
        self.once_per_place(before);
        self.inlining.pop();
    }

    fn provisional(&mut self, value: &Expression, span: Span) -> Option<()> {
        if !self.purpose.answers {
            let message = "nobody waits for an answer here";
            self.context.error(&codes::WRONG_PLACE, span, message);
            return None;
        }
        let build = self.answer(value)?;
        self.push(Operation::Provisional(build), span);
        Some(())
    }

    fn close(&mut self, role: Option<&Name>, span: Span) -> Option<()> {
        let Some(role) = role else {
            let terminator =
                if self.purpose.opening.is_some() { Terminator::Fail } else { Terminator::Close };
            self.leave(terminator, span);
            return Some(());
        };
        self.with_client(role, span, |role| Operation::Hangup { role })
    }

    fn with_client(
        &mut self,
        name: &Name,
        span: Span,
        operation: impl FnOnce(crate::ir::RoleId) -> Operation,
    ) -> Option<()> {
        let Some(index) = self.env.roles.iter().position(|role| role.name == name.text) else {
            let known = self.env.roles.iter().map(|role| role.name.as_str());
            self.context.unknown("role", name, known);
            return None;
        };
        if self.env.roles.get(index).is_some_and(|role| !role.client) {
            let message =
                format!("`{}` is a server; plain `close` closes its connection", name.text);
            self.context.error(&codes::WRONG_PLACE, name.span, message);
            return None;
        }
        self.push(operation(crate::ir::RoleId::new(index)), span);
        Some(())
    }

    // -- Sessions.

    fn append(
        &mut self,
        value: &Expression,
        list: &Name,
        otherwise: Option<&Statement>,
        span: Span,
    ) -> Option<()> {
        let value = self.set_value(value)?;
        let (slot, ty) = self.session_slot(list)?;
        let Ty::List { columns, .. } = &ty else {
            let message = format!("`{}` is {}, not a list", list.text, ty.name());
            self.context.error(&codes::WRONG_TYPE, list.span, message);
            return None;
        };
        let (_, column) = columns.first()?;
        if !self.fits(&value, &Ty::column(*column), &list.text) {
            return None;
        }
        let (done, full) = (self.new_block(span), self.new_block(span));
        self.end(Terminator::Append { slot, value: value.operand, done, full }, span);
        self.otherwise(full, otherwise, span, "the list may be full", true);
        self.go_on_in(done);
        Some(())
    }

    fn assign_session(&mut self, variable: &Name, value: &Expression, span: Span) -> Option<()> {
        let value = self.set_value(value)?;
        let (slot, ty) = self.session_slot(variable)?;
        if !self.fits(&value, &ty, &variable.text) {
            return None;
        }
        self.push(Operation::SetSession { slot, value: value.operand }, span);
        self.flow.facts.push(Operand::Session(slot));
        Some(())
    }

    fn open_session(
        &mut self,
        start: bool,
        otherwise: Option<&Statement>,
        span: Span,
    ) -> Option<()> {
        if !self.has_keyed_session(span) {
            return None;
        }
        let (then, without) = (self.new_block(span), self.new_block(span));
        let (terminator, why) = if start {
            (Terminator::StartSession { then, full: without }, "every session may be taken")
        } else {
            (Terminator::ResumeSession { then, none: without }, "there may be no such session")
        };
        self.end(terminator, span);
        self.otherwise(without, otherwise, span, why, true);
        self.go_on_in(then);
        self.flow.session = SessionState::Open;
        Some(())
    }

    fn has_keyed_session(&mut self, span: Span) -> bool {
        let keyed = (self.env.session.as_ref())
            .is_some_and(|session| session.keyed && self.purpose.server == Some(session.role));
        if !keyed {
            let message =
                "only a session `by` a field of this role's requests is started and ended";
            self.context.error(&codes::NO_SESSION, span, message);
        }
        keyed
    }

    fn end_session(&mut self, span: Span) -> Option<()> {
        if !self.has_keyed_session(span) {
            return None;
        }
        if self.flow.session != SessionState::Open {
            let message = "no session is open on every path that comes here";
            self.context.error(&codes::OUTSIDE_SESSION, span, message);
        }
        self.push(Operation::EndSession, span);
        self.flow.session = SessionState::NotOpen;
        self.flow.facts.retain(|fact| !matches!(fact, Operand::Session(_)));
        Some(())
    }
}
