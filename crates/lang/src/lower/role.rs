//! Lowers protocols to roles: dispatch, correlation, timers, limits.

use super::Context;
use super::body::{Body, BodyPurpose};
use super::build::Exchange;
use super::env::{Env, RoleInfo};
use super::gateway::Handlers;
use super::guard::{Fields, covered, looked_at};
use crate::codes;
use crate::ir::{
    Action, Answer, Build, Case, Cast, Duplicates, FlowKey, Guard, MessageId, Mode, RequestKind,
    Retransmit, Reuse, ReuseWhen, Role, RoleId, Side, SlotId, Transport,
};
use crate::syntax::ast::{
    self, Answers, Call, DispatchAction, Expression, ExpressionKind, Name, Send, StatementKind,
    TextPiece,
};
use gatewright_diagnostic::{Diagnostic, Span};

impl<'a> Context<'a> {
    /// Lowers one role; `None` if its basis is missing.
    pub(super) fn role(
        &mut self,
        env: &Env<'a>,
        id: RoleId,
        handlers: &mut Handlers,
    ) -> Option<Role> {
        let info = env.roles.get(id.index())?;
        let protocol = info.protocol;
        self.missing_settings(info);
        let views: Vec<(MessageId, &'a ast::Request)> = (protocol.requests.iter())
            .filter_map(|request| Some((self.view_named(info, &request.view)?, request)))
            .collect();
        self.one_request_view(info);
        let response = match &protocol.response {
            Some(name) => self.view_named(info, name),
            None => None,
        };
        let flow = self.flow(info, &views, response);
        let mut requests = Vec::new();
        if !info.client || (protocol.asynchronous && env.is_asked(info)) {
            for (view, request) in &views {
                requests.push(self.request(env, id, *view, request, handlers));
            }
        }
        let opening = if info.client { self.opening(env, id, handlers) } else { None };
        let first = views.first().map(|(view, _)| *view);
        let greeting = match &protocol.greeting {
            Some(call) if !info.client => self.constant_build(env, id, None, call),
            _ => None,
        };
        let mut outcome = |answer: Option<&'a ast::Answer>| match answer {
            Some(answer) if !info.client => self.answer(env, id, first, answer),
            _ => Answer::default(),
        };
        let malformed = outcome(protocol.malformed.as_ref());
        let too_long = protocol.too_long.iter();
        let too_long = too_long.map(|(what, answer)| (*what, outcome(Some(answer)))).collect();
        let failed = outcome(protocol.failed.as_ref());
        let full = outcome(protocol.full.as_ref());
        self.address(info.address);
        Some(Role {
            name: info.name.clone(),
            protocol: protocol.name.text.clone(),
            span: info.span,
            side: if info.client { Side::Client } else { Side::Server },
            transport: if protocol.udp { Transport::Udp } else { Transport::Tcp },
            mode: if protocol.asynchronous { Mode::Async } else { Mode::Sync },
            cast: if protocol.multicast { Cast::Multicast } else { Cast::Unicast },
            address: String::from_utf8_lossy(&info.address.value).into_owned(),
            requests,
            response: response?,
            flow,
            greeting,
            opening,
            malformed,
            too_long,
            failed,
            full,
            idle: protocol.idle.map(|idle| idle.value),
            connections_max: self.limit(protocol.connections).unwrap_or(1),
            reuse: self.reuse(info),
            shared: self.shared(info),
            retransmit: self.retransmit(info),
            duplicates: self.duplicates(info, &views),
        })
    }

    /// Reports several request views over TCP, where nothing identifies the view of the next
    /// octets.
    fn one_request_view(&mut self, info: &RoleInfo<'a>) {
        let (Some(first), Some(second)) =
            (info.protocol.requests.first(), info.protocol.requests.get(1))
        else {
            return;
        };
        let known = self.found.iter().any(|found| found.primary.span == second.view.span);
        if !info.protocol.udp && !known {
            let message = "over TCP one view is what can be asked";
            let diagnostic = Diagnostic::error(&codes::WRONG_PLACE, second.view.span, message)
                .also(first.view.span, "the one that is read")
                .help("describe both in one view, and tell them apart by `when` in it");
            self.report(diagnostic);
        }
    }

    fn missing_settings(&mut self, info: &RoleInfo<'a>) {
        let protocol = info.protocol;
        let mut missing: Vec<(&str, String)> = Vec::new();
        let mut need = |there: bool, what: &'static str, example: &str| {
            if !there {
                missing.push((what, example.to_owned()));
            }
        };
        // Views that the module has, so that the example can be taken as it is.
        let views = &info.module.views;
        let asked = views.first().map_or("VIEW", |view| view.name.text.as_str());
        let answered = views.get(1).map_or(asked, |view| view.name.text.as_str());
        let request = format!("request {asked} {{ otherwise -> {asked} }}");
        need(!protocol.requests.is_empty(), "`request VIEW { … }`", &request);
        need(protocol.response.is_some(), "`response VIEW`", &format!("response {answered}"));
        need(
            protocol.connections.is_some(),
            "`connections at most N`",
            "connections at most 1_000",
        );
        need(protocol.udp || protocol.idle.is_some(), "`idle TIME`", "idle 5 minutes");
        need(protocol.malformed.is_some(), "`malformed -> …`", "malformed -> close");
        need(protocol.failed.is_some(), "`failed -> …`", "failed -> close");
        need(protocol.full.is_some(), "`full -> …`", "full -> close");
        let has_flow = !protocol.asynchronous || !protocol.flow.is_empty();
        need(has_flow, "`flow by FIELD`", "flow by id");
        if missing.is_empty() {
            return;
        }
        let (what, examples): (Vec<_>, Vec<_>) = missing.into_iter().unzip();
        let message = format!("`{}` does not say {}", protocol.name.text, what.join(", "));
        let span = protocol.name.span;
        if !self.found.iter().any(|found| found.primary.span == span) {
            let handler = if protocol.requests.is_empty() {
                format!("\nand in the gateway: on {asked}(message) {{ … }}")
            } else {
                String::new()
            };
            let help = format!("for example:\n    {}{handler}", examples.join("\n    "));
            self.report(Diagnostic::error(&codes::MISSING_SETTING, span, message).help(help));
        }
    }

    fn view_named(&mut self, info: &RoleInfo<'a>, name: &Name) -> Option<MessageId> {
        let module = info.module;
        let found = self.ids.get(&(module.name.text.as_str(), name.text.as_str())).copied();
        if found.is_none() && !self.found.iter().any(|found| found.primary.span == name.span) {
            let known: Vec<&str> =
                module.views.iter().map(|view| view.name.text.as_str()).collect();
            self.unknown("view", name, known);
        }
        found
    }

    /// The keys that match a response to its request: fields with one name in both views.
    fn flow(
        &mut self,
        info: &RoleInfo<'a>,
        views: &[(MessageId, &'a ast::Request)],
        response: Option<MessageId>,
    ) -> Vec<FlowKey> {
        let mut keys = Vec::new();
        for name in &info.protocol.flow {
            for (view, _) in views {
                let request = self.slot_of(*view, name);
                let response = response.and_then(|view| self.slot_of(view, name));
                if let (Some(request), Some(response)) = (request, response) {
                    keys.push(FlowKey { view: *view, request, response });
                }
            }
        }
        keys
    }

    fn slot_of(&mut self, view: MessageId, name: &Name) -> Option<SlotId> {
        let slots = &self.message(view)?.slots;
        let found = slots.iter().position(|slot| slot.name == name.text && !slot.scratch);
        if found.is_none() && !self.found.iter().any(|found| found.primary.span == name.span) {
            let known: Vec<String> = slots.iter().map(|slot| slot.name.clone()).collect();
            self.unknown("field", name, known.iter().map(String::as_str));
        }
        found.map(SlotId::new)
    }

    fn request(
        &mut self,
        env: &Env<'a>,
        role: RoleId,
        view: MessageId,
        request: &'a ast::Request,
        handlers: &mut Handlers,
    ) -> RequestKind {
        let module = env.roles.get(role.index()).map(|role| role.module);
        let client = env.roles.get(role.index()).is_some_and(|role| role.client);
        let slots = self.message(view).map(|view| view.slots.clone()).unwrap_or_default();
        let mut before: Vec<Guard> = Vec::new();
        let mut waits = Vec::new();
        let mut cases = Vec::new();
        for case in &request.cases {
            let guard = match (&case.guard, module) {
                (Some(guard), Some(module)) => {
                    self.guard(Fields { module, slots: &slots, prefix: "" }, guard)
                }
                _ => Guard::Always,
            };
            let known = self.found.iter().any(|found| found.primary.span == case.span);
            if covered(&before, &guard) && !known {
                let message = "this is caught before";
                self.error(&codes::UNREACHABLE, case.span, message);
            }
            before.push(guard.clone());
            looked_at(&guard, &mut waits);
            let action = match &case.action {
                DispatchAction::Handler { name, .. } if !env.handles(role, name) => {
                    Some(Action::Answer(Answer::default()))
                }
                DispatchAction::Handler { name, answers } => {
                    self.handler(env, role, view, (name, *answers), handlers).map(Action::Handle)
                }
                DispatchAction::Answer(_) if client => Some(Action::Answer(Answer::default())),
                DispatchAction::Answer(answer) => {
                    Some(Action::Answer(self.answer(env, role, Some(view), answer)))
                }
            };
            cases.extend(action.map(|action| Case { guard, action, span: case.span }));
        }
        if before.last() != Some(&Guard::Always) {
            let known = self.found.iter().any(|found| found.primary.span == request.span);
            if !known {
                let message = "this dispatch has no `otherwise`";
                self.error(&codes::NO_OTHERWISE, request.span, message);
            }
        }
        RequestKind { view, waits, cases }
    }

    fn answer(
        &mut self,
        env: &Env<'a>,
        role: RoleId,
        request: Option<MessageId>,
        answer: &'a ast::Answer,
    ) -> Answer {
        let call = answer.message.as_ref();
        let message = call.and_then(|call| self.constant_build(env, role, request, call));
        Answer { message, close: answer.close }
    }

    /// A message of constants (and of fields of its request).
    fn constant_build(
        &mut self,
        env: &Env<'a>,
        role: RoleId,
        request: Option<MessageId>,
        call: &Call,
    ) -> Option<Build> {
        let info = env.roles.get(role.index())?;
        let purpose =
            BodyPurpose { server: Some(role), request, opening: None, answers: Answers::Always };
        let before = self.found.len();
        let mut body = Body::new(self, env, purpose, call.span);
        body.modules = vec![info.module];
        let build = body.call(call, Exchange::Answer(role));
        let constant = body.is_constant();
        body.once_per_place(before);
        if !constant {
            let message = "here only constants fill holes";
            let mut found = Diagnostic::error(&codes::NOT_CONSTANT, call.span, message);
            if let Some(help) = self.computing_template(info, call) {
                found = found.help(help);
            }
            self.report(found);
        }
        let build = build?;
        let written = self.views.get(build.message.index()).copied();
        if written != info.response {
            let message = "this is not the protocol's response";
            if !self.found.iter().any(|found| found.primary.span == call.span) {
                let wanted = info.response.and_then(|it| self.message(it)).map(|it| &it.name);
                let help = wanted.map_or_else(
                    || "this protocol has no response".to_owned(),
                    |wanted| format!("write `greeting {wanted}(…)`"),
                );
                self.report(Diagnostic::error(&codes::WRONG_RETURN, call.span, message).help(help));
            }
        }
        Some(build)
    }

    /// Help for a call with constants only whose template computes with them.
    fn computing_template(&self, info: &RoleInfo<'a>, call: &Call) -> Option<String> {
        let name = &call.path.name.text;
        self.template(&info.module.name.text, name)?;
        let is_constant = |value: &Expression| match &value.kind {
            ExpressionKind::Number(_) | ExpressionKind::Octets(_) => true,
            ExpressionKind::Text(pieces) => {
                pieces.iter().all(|piece| matches!(piece, TextPiece::Octets(_)))
            }
            _ => false,
        };
        call.arguments.iter().all(|argument| is_constant(&argument.value)).then(|| {
            format!(
                "the template `{name}` makes a text of its own holes, which is not a constant: \
                 write its message here with the whole text, or answer in a handler"
            )
        })
    }

    fn reuse(&mut self, info: &RoleInfo<'a>) -> Option<Reuse> {
        let reuse = info.protocol.reuse.as_ref().filter(|_| info.client)?;
        Some(Reuse {
            connections_max: self.limit(Some(reuse.max))?,
            idle: reuse.idle.value,
            when: if reuse.each_response { ReuseWhen::EachResponse } else { ReuseWhen::Released },
        })
    }

    /// Whether all sessions share one connection. Warns if several connections would each log in as
    /// the same client.
    fn shared(&mut self, info: &RoleInfo<'a>) -> Option<u32> {
        let protocol = info.protocol;
        let Some(shared) = &protocol.shared else {
            self.one_name_for_all(info);
            return None;
        };
        let place = if protocol.udp {
            Some("datagrams have no connection to share")
        } else if protocol.reuse.is_some() {
            Some("a shared connection cannot be kept for others")
        } else {
            None
        };
        if let Some(message) = place
            && !self.found.iter().any(|found| found.primary.span == shared.span)
        {
            self.error(&codes::WRONG_PLACE, shared.span, message);
        }
        self.limit(Some(shared.waiting)).filter(|_| info.client)
    }

    /// Warns if several connections each tell their server the same name. Where requests wait for
    /// each other, a second connection has a purpose; otherwise it only repeats the name.
    fn one_name_for_all(&mut self, info: &RoleInfo<'a>) {
        let protocol = info.protocol;
        let several = protocol.connections.is_some_and(|most| most.value > 1);
        if !info.client || protocol.udp || !protocol.asynchronous || !several {
            return;
        }
        let opening = protocol.opening.iter().flatten();
        let mut sends = opening.filter_map(|statement| match &statement.kind {
            StatementKind::Send { send, .. } => Some(send),
            _ => None,
        });
        let Some(Send { message, .. }) = sends.next() else { return };
        let ExpressionKind::Call(call) = &message.kind else { return };
        let names = call.arguments.iter().filter_map(|argument| constant_text(&argument.value));
        let name: usize = names.map(<[u8]>::len).sum();
        let known = self.found.iter().any(|found| found.primary.span == message.span);
        if name > 0 && !known {
            let message_text = "each connection says the same name, and there may be several";
            let diagnostic = Diagnostic::warning(&codes::ONE_NAME, message.span, message_text)
                .help("write `shared, at most N waiting` in the `client { … }`");
            self.report(diagnostic);
        }
    }

    fn retransmit(&mut self, info: &RoleInfo<'a>) -> Option<Retransmit> {
        let retransmit = info.protocol.retransmit.as_ref()?;
        if !info.protocol.udp {
            let span = retransmit.after.span;
            let message = "TCP repeats by itself";
            if !self.found.iter().any(|found| found.primary.span == span) {
                self.error(&codes::WRONG_PLACE, span, message);
            }
        }
        let times = u32::try_from(retransmit.times.value).unwrap_or(u32::MAX);
        if times > RETRANSMISSIONS_MAX {
            let message = format!("more than {RETRANSMISSIONS_MAX} repetitions");
            self.error(&codes::LIMIT_TOO_BIG, retransmit.times.span, message);
        }
        let after = retransmit.after.value;
        let doubled = after.saturating_mul(1 << times.min(RETRANSMISSIONS_MAX));
        let longest = if retransmit.doubling { doubled } else { after };
        let pause_max = retransmit.to.map_or(longest, |to| to.value);
        Some(Retransmit { after, doubling: retransmit.doubling, pause_max, times })
    }

    fn duplicates(
        &mut self,
        info: &RoleInfo<'a>,
        views: &[(MessageId, &'a ast::Request)],
    ) -> Option<Duplicates> {
        let (fields, keep) = info.protocol.duplicates.as_ref().filter(|_| !info.client)?;
        if !info.protocol.udp {
            let message = "TCP repeats no request";
            self.error(&codes::WRONG_PLACE, keep.span, message);
        }
        let mut keys = Vec::new();
        for name in fields {
            for (view, _) in views {
                keys.extend(self.slot_of(*view, name).map(|slot| (*view, slot)));
            }
        }
        Some(Duplicates { keys, keep: keep.value })
    }

    fn address(&mut self, address: &ast::Octets) {
        let text = String::from_utf8_lossy(&address.value).into_owned();
        if !is_address(&text) {
            self.bad_address(address.span, &text);
        }
    }

    fn bad_address(&mut self, span: Span, text: &str) {
        let message = format!("`{text}` is no `HOST:PORT`");
        let diagnostic = Diagnostic::error(&codes::BAD_ADDRESS, span, message)
            .help("as in `\"127.0.0.1:25\"`, `\"[::1]:25\"` or `\"mail.example.com:25\"`");
        self.report(diagnostic);
    }
}

/// The octets of a constant text; `None` for anything else, or a text with holes.
fn constant_text(value: &Expression) -> Option<&[u8]> {
    match &value.kind {
        ExpressionKind::Octets(octets) => Some(octets),
        ExpressionKind::Text(pieces) => match pieces.as_slice() {
            [TextPiece::Octets(octets)] => Some(octets),
            _ => None,
        },
        _ => None,
    }
}

/// Maximum number of repetitions of a request: sixteen doublings of a second are eighteen hours.
const RETRANSMISSIONS_MAX: u32 = 16;

/// `HOST:PORT`, where HOST is an IPv4 address, an IPv6 address in brackets, or a name.
fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    if !matches!(port.parse::<u16>(), Ok(1..)) {
        return false;
    }
    if let Some(inner) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        return inner.parse::<std::net::Ipv6Addr>().is_ok();
    }
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'-')
    };
    let numeric = host.bytes().all(|octet| octet.is_ascii_digit() || octet == b'.');
    if numeric {
        return host.parse::<std::net::Ipv4Addr>().is_ok();
    }
    host.len() <= 253 && host.split('.').all(label)
}
