//! Lowers statements to blocks.

use super::body::Body;
use super::build::Exchange;
use super::scope::{Flow, Local, SessionState, Ty, Value};
use super::trail;
use crate::codes;
use crate::ir::{Arithmetic, BlockId, Instruction, Operand, RegisterType, Terminator, Test};
use crate::syntax::ast::{
    Answers, AssignTarget, Bound, Call, Definition, Expression, ExpressionKind, Name, Number,
    Octets, Statement, StatementKind, Time,
};
use gatewright_diagnostic::{Diagnostic, Span};

/// A loop around the current statement.
pub(super) struct EnclosingLoop {
    /// The terminator that starts the next iteration.
    pub(super) again: Terminator,
    /// The block after the last iteration; `None` if responses are visited to the last.
    done: Option<BlockId>,
    /// Facts known on all exits of an iteration so far, except its end.
    left: Option<Flow>,
}

impl<'a> Body<'_, 'a> {
    /// Statements in order; their names end with them.
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

    /// One statement. Errors are reported, and the rest is lowered nevertheless.
    pub(super) fn statement(&mut self, statement: &Statement) {
        let span = statement.span;
        let lowered = match &statement.kind {
            StatementKind::Let { name, value, otherwise } => {
                self.bound(name, value, otherwise.as_deref(), span)
            }
            StatementKind::Variable { variable, value } => self.variable(variable, value.as_ref()),
            StatementKind::Set { name, value } => self.set_variable(name, value, span),
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
            StatementKind::Repeat { times, body } => self.repeat(*times, body, span),
            StatementKind::Next => {
                self.next_turn(span);
                Some(())
            }
            StatementKind::Leave => self.leave_loop(span),
            StatementKind::Release(role) => {
                self.with_client(role, span, |role| Instruction::Release { role })
            }
            StatementKind::Append { value, list, otherwise } => {
                self.append(value, list, otherwise.as_deref(), span)
            }
            StatementKind::Assign { variable, value } => self.assign_session(variable, value, span),
            StatementKind::ForEachPart { name, of, separator, body } => {
                self.for_each_part(name, of, separator, body, span)
            }
            StatementKind::Tell { message, to } => self.tell(message, to, span),
            StatementKind::Part(name) => self.part(name, span),
            StatementKind::ForgetRequester => self.forget_requester(span),
            StatementKind::Clear(place) => self.clear(place, span),
            StatementKind::StartSession { key, otherwise } => {
                self.open_session(true, key.as_ref(), otherwise.as_deref(), span)
            }
            StatementKind::ResumeSession { key, otherwise } => {
                self.open_session(false, key.as_ref(), otherwise.as_deref(), span)
            }
            StatementKind::EndSession => self.end_session(span),
            StatementKind::Wait(time) => {
                self.wait(*time, span);
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

    fn wait(&mut self, time: Time, span: Span) {
        let then = self.new_block(span);
        self.end(Terminator::Sleep { period: time.value, then }, span);
        self.go_on_in(then);
        self.suspended(span, trail::WAITS);
    }

    /// Defines a name after an error nevertheless, so that one error gives one finding.
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

    /// A value that later changes of the session and of variables do not affect.
    pub(super) fn own(&mut self, value: Value) -> Value {
        let changes = match value.operand {
            Operand::Session(_) | Operand::Peers(_) => true,
            Operand::Register(register) => self.variables.contains(&register),
            _ => false,
        };
        if !changes {
            return value;
        }
        let Some(into) = self.register_for("", &value.ty, value.span) else { return value };
        self.push(Instruction::Set { into, value: value.operand }, value.span);
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
        let mut value = self.set_value(list)?;
        // What is gone through is the list as it was before the first turn.
        if body.iter().any(|statement| statement.forgets() || statement.changes()) {
            value = self.own(value);
        }
        let Ty::List { columns, .. } = &value.ty else {
            let message = format!("this is {}, not a list", value.ty.name());
            self.wrong_type(&value.ty, list.span, message);
            return None;
        };
        let columns = columns.clone();
        let high = i64::from(u32::MAX);
        let cursor = self.register("", span, RegisterType::Int { low: 0, high });
        self.push(Instruction::Set { into: cursor, value: Operand::Int(0) }, span);
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
        self.another_turn(body, name.span);
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
        self.turns(body, (Terminator::Jump(head), Some(done)), span);
        self.forget(mark);
        self.after_loop(before);
        self.go_on_in(done);
        Some(())
    }

    /// `for each NAME in OCTETS split by TEXT { … }`
    fn for_each_part(
        &mut self,
        name: &Name,
        of: &Expression,
        separator: &Octets,
        body: &[Statement],
        span: Span,
    ) -> Option<()> {
        let value = self.set_value(of)?;
        let Ty::Octets { max } = value.ty else {
            let message = format!("this is {}, and only octets are split", value.ty.name());
            self.wrong_type(&value.ty, of.span, message);
            return None;
        };
        if separator.value.is_empty() {
            let message = "nothing separates nothing";
            self.context.error(&codes::WRONG_TYPE, separator.span, message);
            return None;
        }
        let separator = self.context.literal(&separator.value);
        let of = self.own(value).operand;
        let high = i64::from(u32::MAX);
        let cursor = self.register("", span, RegisterType::Int { low: 0, high });
        self.push(Instruction::Set { into: cursor, value: Operand::Int(0) }, span);
        let into = self.register(&name.text, name.span, RegisterType::Octets { max });
        let (head, each, done) = (self.new_block(span), self.new_block(span), self.new_block(span));
        self.end(Terminator::Jump(head), span);
        self.go_on_in(head);
        let next = Terminator::NextPart { of, separator, cursor, into, body: each, done };
        self.end(next, span);
        self.another_turn(body, name.span);
        let before = self.flow.clone();
        self.go_on_in(each);
        let mark = self.scope.len();
        let (operand, ty) = (Operand::Register(into), Ty::Octets { max });
        self.bind(name, Value { operand, ty, optional: false, span: name.span });
        self.turns(body, (Terminator::Jump(head), Some(done)), span);
        self.forget(mark);
        self.after_loop(before);
        self.go_on_in(done);
        Some(())
    }

    /// `repeat at most N times { … }`
    fn repeat(&mut self, times: Option<Number>, body: &[Statement], span: Span) -> Option<()> {
        let Some(times) = times else {
            let diagnostic =
                Diagnostic::error(&codes::NO_LIMIT, span, "a repetition needs a limit")
                    .help("write `repeat at most N times { … }`");
            self.context.report(diagnostic);
            return None;
        };
        if times.value > TURNS_MAX {
            let message = format!("more than {TURNS_MAX} turns");
            self.context.error(&codes::LIMIT_TOO_BIG, times.span, message);
            return None;
        }
        let counter = self.register("", span, RegisterType::Int { low: 0, high: TURNS_MAX });
        self.push(Instruction::Set { into: counter, value: Operand::Int(0) }, span);
        let (head, each, done) = (self.new_block(span), self.new_block(span), self.new_block(span));
        self.end(Terminator::Jump(head), span);
        self.go_on_in(head);
        let left = Operand::Register(counter);
        let test = Test::Less(left, Operand::Int(times.value));
        self.end(Terminator::Branch { test, then: each, otherwise: done }, span);
        self.another_turn(body, times.span);
        let before = self.flow.clone();
        self.go_on_in(each);
        let (operator, right) = (Arithmetic::Add, Operand::Int(1));
        self.push(Instruction::Compute { into: counter, operator, left, right }, span);
        self.turns(body, (Terminator::Jump(head), Some(done)), span);
        self.after_loop(before);
        self.go_on_in(done);
        Some(())
    }

    fn clear(&mut self, place: &AssignTarget, span: Span) -> Option<()> {
        let name = &place.name;
        if !place.in_session {
            let (into, _) = self.variable_list(name)?;
            self.push(Instruction::Empty { into }, span);
            return Some(());
        }
        if let Some(peers) = self.peers_named(name) {
            if self.session_is_here(name) {
                self.push(Instruction::ClearPeers { peers }, span);
            }
            return Some(());
        }
        let (slot, _) = self.session_slot(name)?;
        self.flow.facts.retain(|fact| *fact != Operand::Session(slot));
        self.trail.forget(slot, span, trail::CLEARED);
        self.push(Instruction::ClearSession { slot }, span);
        Some(())
    }

    /// The body of a loop, with the step to its next iteration.
    pub(super) fn turns(
        &mut self,
        body: &[Statement],
        (again, done): (Terminator, Option<BlockId>),
        span: Span,
    ) {
        self.loops.push(EnclosingLoop { again: again.clone(), done, left: None });
        self.statements(body);
        let left = self.loops.pop().and_then(|of| of.left);
        let end = self.reachable.then(|| self.flow.clone());
        if self.reachable {
            self.end(again, span);
        }
        if let Some(flow) = Flow::meet(end, left) {
            self.flow = flow;
            self.reachable = true;
        }
    }

    /// Facts known at the beginning of every iteration. Nothing is known of the session's variables
    /// if the previous iteration may have waited, or ended the session.
    fn another_turn(&mut self, body: &[Statement], span: Span) {
        if body.iter().any(Statement::forgets) {
            self.suspended(span, trail::TURNS);
        }
    }

    /// `next`
    fn next_turn(&mut self, span: Span) {
        let flow = self.flow.clone();
        let Some(of) = self.loops.last_mut() else {
            self.context.error(&codes::WRONG_PLACE, span, "there is no loop around this");
            return self.leave(Terminator::Fail, span);
        };
        of.left = Flow::meet(of.left.take(), Some(flow));
        let again = of.again.clone();
        self.leave(again, span);
    }

    /// `leave`
    fn leave_loop(&mut self, span: Span) -> Option<()> {
        let flow = self.flow.clone();
        let Some(of) = self.loops.last_mut() else {
            self.context.error(&codes::WRONG_PLACE, span, "there is no loop around this");
            self.leave(Terminator::Fail, span);
            return None;
        };
        let Some(done) = of.done else {
            let message = "responses are gone through until their time is over";
            self.context.error(&codes::WRONG_PLACE, span, message);
            self.leave(Terminator::Fail, span);
            return None;
        };
        of.left = Flow::meet(of.left.take(), Some(flow));
        self.leave(Terminator::Jump(done), span);
        Some(())
    }

    /// After a loop, only facts remain that held before and were not invalidated in it.
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
            if self.purpose.answers == Answers::Always {
                let message = "this handler owes an answer";
                let wanted = self.wanted_answer();
                self.wrong_return(
                    span,
                    message.to_owned(),
                    &format!("write {wanted}, `close` or `fail`"),
                );
            }
            self.leave(Terminator::Return { message: None, close: self.closing }, span);
            return;
        };
        if self.purpose.answers == Answers::Never {
            let message = "there is no request to answer here";
            let help = "write `return` alone; a message goes out by `send … to ROLE`";
            self.wrong_return(span, message.to_owned(), help);
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
        let wanted = self.wanted_answer();
        self.wrong_return(value.span, message, &format!("write {wanted}"));
        None
    }

    fn wrong_return(&mut self, span: Span, message: String, help: &str) {
        self.context.report(Diagnostic::error(&codes::WRONG_RETURN, span, message).help(help));
    }

    /// A `return` of the answer that the request of this handler wants, as it is written.
    fn wanted_answer(&self) -> String {
        let role = self.purpose.server.and_then(|role| self.env.roles.get(role.index()));
        let wanted = role.and_then(|role| role.response);
        let message = wanted.and_then(|wanted| self.context.message(wanted));
        message
            .map_or_else(|| "`return VIEW(…)`".to_owned(), |it| format!("`return {}(…)`", it.name))
    }

    fn definition(&self, call: &Call) -> Option<&'a Definition> {
        let name = call.path.name.text.as_str();
        let none = call.path.module.is_none();
        self.env.definitions().find(|definition| none && definition.name.text == name)
    }

    /// Inlines the statements of a definition.
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
            let help = format!("the answer is written {}", self.wanted_answer());
            self.wrong_return(call.span, message, &help);
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
        let loops = std::mem::take(&mut self.loops);
        self.statements(&definition.body);
        self.loops = loops;
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
        if self.purpose.answers == Answers::Never {
            let message = "there is no request to answer here";
            self.context.error(&codes::WRONG_PLACE, span, message);
            return None;
        }
        let build = self.answer(value)?;
        self.push(Instruction::Provisional(build), span);
        Some(())
    }

    fn close(&mut self, role: Option<&Name>, span: Span) -> Option<()> {
        let Some(role) = role else {
            let terminator =
                if self.purpose.opening.is_some() { Terminator::Fail } else { Terminator::Close };
            self.leave(terminator, span);
            return Some(());
        };
        self.with_client(role, span, |role| Instruction::Hangup { role })
    }

    fn with_client(
        &mut self,
        name: &Name,
        span: Span,
        operation: impl FnOnce(crate::ir::RoleId) -> Instruction,
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
        place: &AssignTarget,
        otherwise: Option<&Statement>,
        span: Span,
    ) -> Option<()> {
        let list = &place.name;
        if let Some(peers) = self.peers_named(list).filter(|_| place.in_session) {
            return self.append_requester(peers, (value, list), otherwise, span);
        }
        let value = self.set_value(value)?;
        let (operand, ty) = if place.in_session {
            let (slot, ty) = self.session_slot(list)?;
            (Operand::Session(slot), ty)
        } else {
            let (register, ty) = self.variable_list(list)?;
            (Operand::Register(register), ty)
        };
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
        self.end(Terminator::Append { list: operand, value: value.operand, done, full }, span);
        self.otherwise(full, otherwise, span, "the list may be full", true);
        self.go_on_in(done);
        Some(())
    }

    fn assign_session(&mut self, variable: &Name, value: &Expression, span: Span) -> Option<()> {
        if let Some(peers) = self.peers_named(variable) {
            return self.assign_requester(peers, (value, variable), span);
        }
        let value = self.set_value(value)?;
        let (slot, ty) = self.session_slot(variable)?;
        if !self.fits(&value, &ty, &variable.text) {
            return None;
        }
        self.push(Instruction::SetSession { slot, value: value.operand }, span);
        self.flow.facts.push(Operand::Session(slot));
        self.trail.assign(slot, span);
        Some(())
    }
}

impl Statement {
    /// Whether it invalidates facts about the session: it waits, changes which session it is, or
    /// empties it.
    fn forgets(&self) -> bool {
        let any = |statements: &[Self]| statements.iter().any(Self::forgets);
        match &self.kind {
            StatementKind::Let { value, otherwise, .. } => {
                !matches!(value, Bound::Value(_))
                    || otherwise.as_ref().is_some_and(|of| of.forgets())
            }
            StatementKind::If { then, otherwise, .. } => {
                any(then) || otherwise.as_ref().is_some_and(|of| any(of))
            }
            StatementKind::ForEach { body, .. }
            | StatementKind::ForEachPart { body, .. }
            | StatementKind::Repeat { body, .. }
            | StatementKind::Block(body) => any(body),
            StatementKind::Append { otherwise, .. } => {
                otherwise.as_ref().is_some_and(|of| of.forgets())
            }
            StatementKind::Send { .. }
            | StatementKind::Gather { .. }
            | StatementKind::Wait(_)
            | StatementKind::Clear(_)
            | StatementKind::StartSession { .. }
            | StatementKind::ResumeSession { .. }
            | StatementKind::EndSession => true,
            _ => false,
        }
    }

    /// Whether it, or a statement in it, appends to a list or assigns a variable.
    fn changes(&self) -> bool {
        let any = |statements: &[Self]| statements.iter().any(Self::changes);
        match &self.kind {
            StatementKind::Append { .. }
            | StatementKind::Assign { .. }
            | StatementKind::Set { .. } => true,
            StatementKind::Let { otherwise, .. } => {
                otherwise.as_ref().is_some_and(|of| of.changes())
            }
            StatementKind::If { then, otherwise, .. } => {
                any(then) || otherwise.as_ref().is_some_and(|of| any(of))
            }
            StatementKind::ForEach { body, .. }
            | StatementKind::ForEachPart { body, .. }
            | StatementKind::Repeat { body, .. }
            | StatementKind::Block(body) => any(body),
            _ => false,
        }
    }
}

/// Maximum iterations of a `repeat`: a day of seconds.
const TURNS_MAX: i64 = 86_400;
