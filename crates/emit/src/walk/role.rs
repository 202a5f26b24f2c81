//! Translates roles: dispatch of requests, and answers of the protocol itself.

use super::SlotNames;
use super::build::Scope;
use crate::code::{AnswerCode, DispatchCode, Expr, Machine, RecordType, RoleCode, Stmt};
use crate::names::Names;
use gatewright_lang::ir::{Action, Answer, Program, RequestKind, Role, RoleId, TooLong};

pub(crate) fn code(
    program: &Program,
    records: &[RecordType],
    (machine, names): (&mut Machine, &mut Names),
    role: &Role,
    (id, handlers): (RoleId, &[String]),
) -> RoleCode {
    let name = names.give(&role.name);
    let scope = Scope { program, records, handler: None };
    let mut walk = RoleWalk { scope, machine, names, id, name: &name, handlers };
    let greeting = role
        .greeting
        .clone()
        .map(|message| walk.answer("greeting", &Answer { message: Some(message), close: false }));
    let malformed = walk.answer("malformed", &role.malformed);
    let own = |(what, answer): &(TooLong, Answer)| {
        (*what, walk.answer(&format!("long_{}", what.word()), answer))
    };
    let too_long = role.too_long.iter().map(own).collect();
    let failed = walk.answer("failed", &role.failed);
    let full = walk.answer("full", &role.full);
    let dispatch = role.requests.iter().filter_map(|kind| walk.dispatch(kind)).collect();
    let mut waits: Vec<usize> = role.flow.iter().map(|key| key.response.index()).collect();
    waits.dedup();
    let flow_waits = if waits.is_empty() { 0 } else { machine.list(waits) };
    RoleCode { name, dispatch, greeting, malformed, too_long, failed, full, flow_waits }
}

struct RoleWalk<'w> {
    scope: Scope<'w>,
    machine: &'w mut Machine,
    names: &'w mut Names,
    id: RoleId,
    name: &'w str,
    handlers: &'w [String],
}

impl RoleWalk<'_> {
    /// An answer with its own name.
    fn answer(&mut self, what: &str, answer: &Answer) -> String {
        let name = self.names.give(&format!("{}_{what}", self.name));
        let build = answer.message.as_ref().map(|message| {
            let mut body = self.scope.build(message, self.id, Expr::Bool(false));
            body.push(Stmt::Leave(Expr::Bool(true)));
            body
        });
        let code = AnswerCode { name: name.clone(), build, close: answer.close };
        self.machine.answers.push(code);
        name
    }

    fn dispatch(&mut self, kind: &RequestKind) -> Option<DispatchCode> {
        let message = self.scope.program.message(kind.view)?;
        let record = self.scope.records.get(kind.view.index())?;
        let slots = SlotNames { message, slots: record.slots.clone() };
        let mut chain = Vec::new();
        for case in kind.cases.iter().rev() {
            let action = match &case.action {
                Action::Handle(handler) => {
                    let name = self.handlers.get(handler.index()).cloned().unwrap_or_default();
                    dispatched("handle", format!("{name}_handler"))
                }
                Action::Answer(answer) => dispatched("reply", self.answer("answer", answer)),
            };
            let action = vec![Stmt::At(case.span), action];
            chain = match slots.guard(&case.guard) {
                Expr::Bool(true) => action,
                guard => vec![Stmt::If(guard, action, chain)],
            };
        }
        let waits = self.machine.list(kind.waits.iter().map(|slot| slot.index()).collect());
        Some(DispatchCode {
            name: self.names.give(&format!("{}_dispatch", self.name)),
            record: record.name.clone(),
            message: kind.view.index(),
            waits,
            body: chain,
        })
    }
}

fn dispatched(function: &'static str, name: String) -> Stmt {
    let arguments = vec![Expr::local("m"), Expr::local("request"), Expr::Declared(name)];
    Stmt::Do(Expr::Call(function, arguments))
}
