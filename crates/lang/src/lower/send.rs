//! Lowers statements that wait: `send`, `receive`, and the collection of many responses.

use super::body::Body;
use super::build::Exchange;
use super::scope::{Ty, Value};
use super::trail;
use crate::codes;
use crate::ir::{MessageId, Operand, RegisterType, RoleId, Terminator};
use crate::syntax::ast::{self, Name, Path, Send, Statement, Time};
use core::time::Duration;
use gatewright_diagnostic::{Diagnostic, Span};

/// Maximum length of `host:port`: a name of 253 octets (RFC 1035 §2.3.4), a colon, five digits.
const ADDRESS_OCTETS_MAX: u32 = 259;

/// Message and destination of a `send`.
struct OutgoingMessage {
    role: RoleId,
    address: Option<Operand>,
    message: crate::ir::Build,
    within: Duration,
}

#[expect(clippy::option_option, reason = "wrong, none given, and given are three things")]
impl Body<'_, '_> {
    /// The client role that a `send` is for.
    fn client(&mut self, to: Option<&Name>, span: Span) -> Option<RoleId> {
        if let Some(name) = to {
            let found = self.env.roles.iter().position(|role| role.name == name.text);
            let Some(index) = found else {
                let known = self.env.roles.iter().map(|role| role.name.as_str());
                self.context.unknown("role", name, known);
                return None;
            };
            if self.env.roles.get(index).is_some_and(|role| !role.client) {
                let message = format!("`{}` is a server: it is asked, it does not ask", name.text);
                self.context.error(&codes::WRONG_PLACE, name.span, message);
                return None;
            }
            return Some(RoleId::new(index));
        }
        if let Some(role) = self.purpose.opening {
            return Some(role);
        }
        let clients: Vec<usize> = (self.env.roles.iter().enumerate())
            .filter(|(_, role)| role.client)
            .map(|(index, _)| index)
            .collect();
        if let [only] = clients.as_slice() {
            return Some(RoleId::new(*only));
        }
        let message = format!("the gateway has {} clients: to which one?", clients.len());
        let diagnostic =
            Diagnostic::error(&codes::NEED_ROLE, span, message).help("write `to ROLE`");
        self.context.report(diagnostic);
        None
    }

    fn within(&mut self, within: Option<Time>, span: Span) -> Option<Duration> {
        if within.is_none() {
            let diagnostic = Diagnostic::error(&codes::NO_LIMIT, span, "this may wait for ever")
                .help("write `within TIME`");
            self.context.report(diagnostic);
        }
        within.map(|time| time.value)
    }

    fn outgoing(&mut self, send: &Send) -> Option<OutgoingMessage> {
        let within = self.within(send.within, send.span);
        let role = self.client(send.to.as_ref(), send.span)?;
        self.forbid_edge();
        let message = self.message_of(&send.message, Exchange::Request(role));
        let address = self.address(send.at.as_ref());
        self.take_edge();
        let message = message?;
        self.speaks(role, &message, send.message.span)?;
        Some(OutgoingMessage { role, address: address?, message, within: within? })
    }

    /// Whether a role's protocol has a message; if not, reports it.
    pub(super) fn speaks(
        &mut self,
        role: RoleId,
        message: &crate::ir::Build,
        span: Span,
    ) -> Option<()> {
        let module = self.env.roles.get(role.index()).map(|role| role.module.name.text.clone());
        let of = self.context.message(message.message).map(|message| message.name.clone());
        let own = of
            .zip(module.as_ref())
            .is_some_and(|(of, module)| of.split('.').next() == Some(module.as_str()));
        if !own {
            let text = format!("this role speaks `{}`", module.unwrap_or_default());
            self.context.error(&codes::WRONG_TYPE, span, text);
        }
        own.then_some(())
    }

    /// `at VALUE`: the destination, if it is not the role's own address.
    fn address(&mut self, at: Option<&ast::Expression>) -> Option<Option<Operand>> {
        let Some(at) = at else { return Some(None) };
        let value = self.set_value(at)?;
        let fits = self.fits(&value, &Ty::Octets { max: ADDRESS_OCTETS_MAX }, "the address");
        fits.then_some(Some(value.operand))
    }

    fn response_of(&mut self, role: RoleId) -> Option<MessageId> {
        self.env.roles.get(role.index())?.response
    }

    /// `let NAME = send …`, or a `send` whose response is not used.
    pub(super) fn send(
        &mut self,
        name: Option<&Name>,
        send: &Send,
        otherwise: Option<&Statement>,
    ) -> Option<()> {
        let OutgoingMessage { role, address, message, within } = self.outgoing(send)?;
        let mut response = None;
        match name {
            Some(name) => {
                let view = self.response_of(role)?;
                let ty = RegisterType::View(view);
                response = Some((view, self.register(&name.text, name.span, ty)));
            }
            None if self.env.roles.get(role.index()).is_some_and(|role| role.sync) => {
                let text = "a synchronous protocol answers; say what is done with the answer";
                let diagnostic = Diagnostic::error(&codes::WRONG_PLACE, send.span, text)
                    .help("write `let answer = send …`");
                self.context.report(diagnostic);
            }
            None => {}
        }
        let (then, failed) = (self.new_block(send.span), self.new_block(send.span));
        let terminator =
            Terminator::Send { role, address, message, response, within, then, failed };
        self.end(terminator, send.span);
        self.suspended(send.span, trail::WAITS);
        self.otherwise(failed, otherwise, send.span, "the exchange may fail", name.is_some());
        self.go_on_in(then);
        if let (Some(name), Some((view, register))) = (name, response) {
            let (operand, ty) = (Operand::Register(register), Ty::View(view));
            self.bind(name, Value { operand, ty, optional: false, span: name.span });
        }
        Some(())
    }

    /// `let NAME = receive VIEW within TIME else …`
    pub(super) fn receive(
        &mut self,
        name: &Name,
        (view, within, span): (&Path, Option<Time>, Span),
        otherwise: Option<&Statement>,
    ) -> Option<()> {
        let within = self.within(within, span);
        let view = self.view_of(view)?;
        let within = within?;
        let into = self.register(&name.text, name.span, RegisterType::View(view));
        let (then, failed) = (self.new_block(span), self.new_block(span));
        self.end(Terminator::Receive { view, into, within, then, failed }, span);
        self.suspended(span, trail::WAITS);
        self.otherwise(failed, otherwise, span, "nothing may come", true);
        self.go_on_in(then);
        let (operand, ty) = (Operand::Register(into), Ty::View(view));
        self.bind(name, Value { operand, ty, optional: false, span: name.span });
        Some(())
    }

    /// Lowers the `else` of a statement that may fail; it must leave if the statement binds a name.
    pub(super) fn otherwise(
        &mut self,
        block: crate::ir::BlockId,
        statement: Option<&Statement>,
        span: Span,
        why: &str,
        must_leave: bool,
    ) {
        let Some(statement) = statement else {
            let diagnostic = Diagnostic::error(&codes::MAY_BE_ABSENT, span, why)
                .help("say what happens then: `else return …`, `else close` or `else { … }`");
            self.context.report(diagnostic);
            self.go_on_in(block);
            self.end(Terminator::Fail, span);
            return;
        };
        let before = self.flow.clone();
        let back = self.current();
        self.go_on_in(block);
        let mark = self.scope.len();
        self.statement(statement);
        self.forget(mark);
        if self.reachable {
            if must_leave {
                let message = "this `else` goes on, but then there is no value";
                self.context.error(&codes::ELSE_FALLS_THROUGH, statement.span, message);
            }
            self.end(Terminator::Fail, statement.span);
        }
        self.reachable = true;
        self.flow = before;
        self.go_on_in(back);
    }

    /// `for each NAME in send … within TIME, at most N { … }`
    pub(super) fn gather(
        &mut self,
        name: &Name,
        send: &Send,
        max: Option<ast::Number>,
        body: &[Statement],
    ) -> Option<()> {
        let Some(max) = self.context.limit(max) else {
            let diagnostic = Diagnostic::error(&codes::NO_LIMIT, send.span, "how many responses?")
                .help("write `, at most N` behind the time");
            self.context.report(diagnostic);
            return None;
        };
        if self.loops.iter().any(|of| matches!(of.again, Terminator::NextResponse { .. })) {
            let message = "responses are gathered already";
            self.context.error(&codes::WRONG_PLACE, send.span, message);
            return None;
        }
        let OutgoingMessage { role, address, message, within } = self.outgoing(send)?;
        let view = self.response_of(role)?;
        let register = self.register(&name.text, name.span, RegisterType::View(view));
        let (each, done) = (self.new_block(name.span), self.new_block(send.span));
        let gather = self.current();
        let response = (view, register);
        let terminator =
            Terminator::Gather { role, address, message, response, within, max, body: each, done };
        self.end(terminator, send.span);
        self.suspended(send.span, trail::WAITS);
        let before = self.flow.clone();
        self.go_on_in(each);
        let mark = self.scope.len();
        let (operand, ty) = (Operand::Register(register), Ty::View(view));
        self.bind(name, Value { operand, ty, optional: false, span: name.span });
        self.turns(body, (Terminator::NextResponse { gather }, None), send.span);
        self.forget(mark);
        self.after_loop(before);
        self.go_on_in(done);
        Some(())
    }
}
