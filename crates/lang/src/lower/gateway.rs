//! Lowers a gateway: combines its roles, its session and its handlers into a program.

use super::body::{Body, BodyPurpose};
use super::env::{Env, RoleInfo};
use super::scope::Ty;
use super::{Context, twice};
use crate::codes;
use crate::ir::{
    Handler, HandlerId, HandlerKind, MessageId, Operand, Program, RegisterType, RoleId, Terminator,
};
use crate::syntax::ast::{self, Answers, Gateway, Protocol, Start};
use gatewright_diagnostic::{Diagnostic, Severity, nearest};
use std::collections::{BTreeMap, BTreeSet};

/// The handlers lowered so far.
#[derive(Default)]
pub(super) struct Handlers {
    pub(super) made: Vec<Handler>,
    by_request: BTreeMap<(usize, RoleId, MessageId, Answers), HandlerId>,
    called: BTreeSet<(usize, String)>,
    /// Names taken for misspellings.
    misspelt: BTreeSet<(usize, String)>,
}

impl<'a> Context<'a> {
    /// The program of the first file's gateway. A file of tests alone has the gateway of a file that
    /// it imports.
    pub(super) fn gateway(&mut self) -> Option<Program> {
        for protocol in self.world.protocols.values().copied() {
            self.protocol_module(protocol);
        }
        let file = self.world.files.first()?;
        let imported = || self.world.files.iter().skip(1).find(|of| !of.gateways.is_empty());
        let only_tests = file.gateways.is_empty() && !file.tests.is_empty();
        let home = if only_tests { imported()? } else { file };
        let gateway = home.gateways.first()?;
        for other in home.gateways.iter().skip(1) {
            let message = "one file holds one gateway";
            let diagnostic = Diagnostic::error(&codes::SAID_TWICE, other.name.span, message)
                .also(gateway.name.span, "the first one");
            self.report(diagnostic);
        }
        let (roles, parameters) = (self.roles(gateway), self.parameters(gateway));
        let roles_found = self.found.len();
        let mut env = Env::of_gateway(gateway, roles, parameters);
        env.session = self.session_info(gateway, &env);
        let mut handlers = Handlers::default();
        let roles = (0..env.roles.len())
            .filter_map(|index| self.role(&env, RoleId::new(index), &mut handlers))
            .collect();
        self.timers(&env, &mut handlers);
        self.unused(&env, &handlers);
        self.unused_parameters(&env);
        let session = self.session(gateway, &env);
        let tests = file.tests.iter().map(|test| self.test(test, &env)).collect();
        let mut program = Program {
            name: gateway.name.text.clone(),
            span: gateway.name.span,
            literals: Vec::new(),
            messages: std::mem::take(&mut self.messages),
            roles,
            parameters: env.parameters.clone(),
            session,
            handlers: handlers.made,
            tests,
            bounds: crate::ir::Bounds::default(),
        };
        if env.roles.len() < gateway.roles.len() {
            // A role without its protocol has no messages and no dispatch: what is missing for
            // that was reported once.
            let later = self.found.split_off(roles_found.min(self.found.len()));
            self.found.extend(later.into_iter().filter(|of| !crate::dangling(of)));
        }
        program.literals = std::mem::take(&mut self.literals);
        program.bounds = super::bounds::bounds(&program);
        super::bounds::amplification(&program, &env, &mut self.found);
        let wrong = self.found.iter().any(|found| found.severity == Severity::Error);
        if !wrong && !program.roles.is_empty() {
            super::dead::dead(&program, gateway.name.span.source, &mut self.found);
        }
        (!wrong).then_some(program)
    }

    /// The message module of a protocol; its absence is reported once, here.
    fn protocol_module(&mut self, protocol: &'a Protocol) {
        let Some(name) = &protocol.message else {
            let message = format!("`{}` names no message module", protocol.name.text);
            let diagnostic =
                Diagnostic::error(&codes::MISSING_SETTING, protocol.name.span, message)
                    .help("write `message NAME`");
            self.report(diagnostic);
            return;
        };
        if !self.world.modules.contains_key(name.text.as_str()) {
            let known: Vec<&str> = self.world.modules.keys().copied().collect();
            self.unknown("message module", name, known);
        }
    }

    fn roles(&mut self, gateway: &'a Gateway) -> Vec<RoleInfo<'a>> {
        let mut roles: Vec<RoleInfo<'a>> = Vec::new();
        for role in &gateway.roles {
            if let Some(other) = roles.iter().find(|other| other.name == role.name.text) {
                let diagnostic = twice(&role.name, other.span);
                self.report(diagnostic);
            }
            let Some(protocol) = self.world.protocols.get(role.protocol.text.as_str()).copied()
            else {
                let known: Vec<&str> = self.world.protocols.keys().copied().collect();
                self.unknown("protocol", &role.protocol, known);
                continue;
            };
            let module = protocol.message.as_ref().map(|name| name.text.as_str());
            let Some(module) = module.and_then(|name| self.world.modules.get(name)).copied() else {
                continue;
            };
            let response = protocol.response.as_ref().and_then(|name| {
                self.ids.get(&(module.name.text.as_str(), name.text.as_str())).copied()
            });
            roles.push(RoleInfo {
                name: role.name.text.clone(),
                span: role.name.span,
                client: role.client,
                address: &role.address,
                protocol,
                module,
                response,
                sync: !protocol.asynchronous,
            });
        }
        roles
    }

    // -- Handlers.

    /// The handler that a dispatch leads to.
    pub(super) fn handler(
        &mut self,
        env: &Env<'a>,
        role: RoleId,
        view: MessageId,
        (name, answers): (&ast::Name, Answers),
        handlers: &mut Handlers,
    ) -> Option<HandlerId> {
        let role_name = env.roles.get(role.index()).map(|role| role.name.clone())?;
        let client = env.roles.get(role.index()).is_some_and(|role| role.client);
        let names = |start: &'a Start| match start {
            Start::Request { names, parameter } => Some((names, parameter)),
            Start::Every(_) => None,
        };
        let found = env.handlers().enumerate().find_map(|(index, handler)| {
            let (names, parameter) = names(&handler.starts)?;
            let hit = names.iter().any(|(of, handled)| {
                handled.text == name.text && of.as_ref().map_or(!client, |of| of.text == role_name)
            });
            hit.then_some((index, handler, parameter))
        });
        let Some((index, handler, parameter)) = found else {
            let role = env.roles.get(role.index())?;
            self.no_handler(env, role, name, handlers);
            return None;
        };
        handlers.called.insert((index, name.text.clone()));
        let key = (index, role, view, answers);
        if let Some(id) = handlers.by_request.get(&key) {
            return Some(*id);
        }
        let purpose =
            BodyPurpose { server: Some(role), request: Some(view), opening: None, answers };
        let before = self.found.len();
        let mut body = Body::new(self, env, purpose, handler.span);
        let register = body.register(&parameter.text, parameter.span, RegisterType::View(view));
        let value = super::scope::Value {
            operand: Operand::Register(register),
            ty: Ty::View(view),
            optional: false,
            span: parameter.span,
        };
        body.scope.push(super::scope::Local { name: parameter.clone(), value, used: true });
        body.statements(&handler.body);
        if body.reachable {
            if answers == Answers::Always {
                let message = "control can come here, and nothing is answered";
                body.context.error(&codes::NO_RETURN, handler.end, message);
                body.leave(Terminator::Fail, handler.end);
            } else {
                body.leave(Terminator::Return { message: None, close: false }, handler.end);
            }
        }
        body.once_per_place(before);
        let names = names(&handler.starts).map(|(names, _)| names)?;
        let joined: Vec<&str> = names.iter().map(|(_, name)| name.text.as_str()).collect();
        let full = format!("{role_name}.{}", joined.join("+"));
        let kind = HandlerKind::Request { role, view };
        let made = body.finish(full, handler.span, kind);
        let id = HandlerId::new(handlers.made.len());
        handlers.made.push(made);
        handlers.by_request.insert(key, id);
        Some(id)
    }

    /// Reports that nothing handles the request `name` of a role, with the name that may be meant.
    fn no_handler(
        &mut self,
        env: &Env<'a>,
        role: &RoleInfo<'a>,
        name: &ast::Name,
        handlers: &mut Handlers,
    ) {
        let message = format!("`{}` has no handler for `{}`", role.name, name.text);
        let diagnostic = Diagnostic::error(&codes::NO_HANDLER, role.span, message)
            .also(name.span, "the protocol dispatches here");
        self.report(match nearly(env, &name.text, handlers) {
            Some((index, near)) => {
                handlers.misspelt.insert((index, near.text.clone()));
                let fix = format!("write `on {}`", name.text);
                diagnostic.also(near.span, "is this one meant?").fix(near.span, &name.text, &fix)
            }
            None => diagnostic.help(format!("write `on {}(request) {{ … }}`", name.text)),
        });
    }

    /// The handler of a client's new connections.
    pub(super) fn opening(
        &mut self,
        env: &Env<'a>,
        role: RoleId,
        handlers: &mut Handlers,
    ) -> Option<HandlerId> {
        let info = env.roles.get(role.index())?;
        let statements = info.protocol.opening.as_ref()?;
        let span = info.protocol.name.span;
        let purpose = BodyPurpose {
            server: None,
            request: None,
            opening: Some(role),
            answers: Answers::Never,
        };
        let before = self.found.len();
        let mut body = Body::new(self, env, purpose, span);
        body.modules = vec![info.module];
        body.statements(statements);
        if body.reachable {
            body.leave(Terminator::Done, span);
        }
        body.once_per_place(before);
        let name = format!("{}.opening", info.name);
        let made = body.finish(name, span, HandlerKind::Opening { role });
        handlers.made.push(made);
        Some(HandlerId::new(handlers.made.len() - 1))
    }

    fn timers(&mut self, env: &Env<'a>, handlers: &mut Handlers) {
        for (index, handler) in env.handlers().enumerate() {
            let Start::Every(period) = &handler.starts else { continue };
            if period.value.is_zero() {
                self.error(&codes::BAD_NUMBER, period.span, "a period is longer than nothing");
            }
            let purpose =
                BodyPurpose { server: None, request: None, opening: None, answers: Answers::Never };
            let mut body = Body::new(self, env, purpose, handler.span);
            body.statements(&handler.body);
            if body.reachable {
                body.leave(Terminator::Return { message: None, close: false }, handler.end);
            }
            let kind = HandlerKind::Every { period: period.value };
            handlers.made.push(body.finish(format!("every.{index}"), handler.span, kind));
        }
    }

    /// Reports unused handlers and definitions.
    fn unused(&mut self, env: &Env<'a>, handlers: &Handlers) {
        for (index, handler) in env.handlers().enumerate() {
            let Start::Request { names, .. } = &handler.starts else { continue };
            for (_, name) in names {
                let key = (index, name.text.clone());
                if !handlers.called.contains(&key) && !handlers.misspelt.contains(&key) {
                    let message = format!("no server dispatches to `{}`", name.text);
                    self.error(&codes::UNKNOWN_HANDLER, name.span, message);
                }
            }
        }
        for definition in env.definitions() {
            if !env.uses(&definition.name.text) {
                let message = format!("`{}` is never used", definition.name.text);
                let diagnostic = Diagnostic::warning(&codes::UNUSED, definition.name.span, message);
                self.report(diagnostic);
            }
        }
    }
}

/// A handler that no dispatch has led to yet, with a name similar to this one.
fn nearly<'a>(env: &Env<'a>, name: &str, handlers: &Handlers) -> Option<(usize, &'a ast::Name)> {
    let all = env.handlers().enumerate().flat_map(|(index, handler)| {
        let names = match &handler.starts {
            Start::Request { names, .. } => names.as_slice(),
            Start::Every(_) => &[],
        };
        names.iter().map(move |(_, name)| (index, name))
    });
    let free: Vec<_> = all
        .filter(|(index, name)| !handlers.called.contains(&(*index, name.text.clone())))
        .collect();
    let near = nearest(name, free.iter().map(|(_, name)| name.text.as_str()))?;
    free.iter().find(|(_, name)| name.text == near).copied()
}
