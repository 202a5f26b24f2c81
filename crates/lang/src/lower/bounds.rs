//! The worst case of memory, and the worst case of what a forged request can cause.

use super::gateway::Env;
use super::layout::held;
use crate::codes;
use crate::ir::{
    Action, Bounds, BoundsLine, Build, Cast, Emit, Handler, HandlerKind, MessageId, Operand,
    Operation, Program, RegisterType, Role, Side, SlotType, Source, Terminator, Transport,
};
use gatewright_diagnostic::{Diagnostic, Span};

/// Two pages a connection while octets are pending (paper 001 §2.2).
const CONNECTION_BUFFER_OCTETS: u64 = 8_192;

/// What one value costs beside its octets: where it is, how long it is, whether it is there.
const VALUE_OCTETS: u64 = 16;

/// What a suspended handler costs beside its registers: where it goes on, its timer.
const CONTINUATION_OCTETS: u64 = 64;

/// Headers of IPv4 and UDP, in octets (RFC 791 §3.1, RFC 768).
const HEADERS_OCTETS: u64 = 28;

/// How much larger a reply may be than its request (RFC 9000 §8.1).
const AMPLIFICATION_MAX: u64 = 3;

/// The worst case of one session.
pub(super) fn bounds(program: &Program) -> Bounds {
    let mut lines = Vec::new();
    let mut line = |what: String, octets: u64| lines.push(BoundsLine { what, octets });
    for role in &program.roles {
        let octets = match role.transport {
            Transport::Tcp => CONNECTION_BUFFER_OCTETS,
            Transport::Udp => program
                .messages
                .iter()
                .filter(|message| message.datagram)
                .map(|message| u64::from(message.window_max))
                .max()
                .unwrap_or_default(),
        };
        line(format!("buffer of `{}`", role.name), octets);
    }
    let handlers = program.handlers.iter();
    let requests = handlers.clone().filter(|of| !matches!(of.kind, HandlerKind::Opening { .. }));
    if let Some((name, octets)) = largest(program, requests) {
        line(format!("values of `{name}`"), octets);
    }
    let openings = handlers.filter(|of| matches!(of.kind, HandlerKind::Opening { .. }));
    if let Some((name, octets)) = largest(program, openings) {
        line(format!("values of `{name}`"), octets);
    }
    if let Some(session) = &program.session {
        let octets = session.slots.iter().map(|slot| slot_octets(&slot.ty)).sum();
        line("session variables".to_owned(), octets);
    }
    let servers = program.roles.iter().filter(|role| role.side == Side::Server);
    let connections: u64 = servers.map(|role| u64::from(role.connections_max)).sum();
    let keyed = program.session.as_ref().map_or(0, |session| u64::from(session.sessions_max));
    let session_octets = lines.iter().map(|line| line.octets).sum();
    Bounds { lines, session_octets, sessions_max: connections.max(keyed) }
}

fn largest<'p>(
    program: &'p Program,
    handlers: impl Iterator<Item = &'p Handler>,
) -> Option<(String, u64)> {
    handlers
        .map(|handler| (handler.name.clone(), handler_octets(program, handler)))
        .max_by_key(|(_, octets)| *octets)
}

/// A slot with its values' own cost.
fn slot_octets(ty: &SlotType) -> u64 {
    let values = match ty {
        SlotType::List { columns, max } => {
            let columns = u64::try_from(columns.len()).unwrap_or(u64::MAX);
            columns.saturating_mul(u64::from(*max)).saturating_add(1)
        }
        _ => 1,
    };
    held(ty).saturating_add(values.saturating_mul(VALUE_OCTETS))
}

fn handler_octets(program: &Program, handler: &Handler) -> u64 {
    let register = |ty: RegisterType| match ty {
        RegisterType::Int { .. } => VALUE_OCTETS,
        RegisterType::Octets { max } => u64::from(max).saturating_add(VALUE_OCTETS),
        RegisterType::View(id) => program
            .message(id)
            .map_or(0, |message| message.slots.iter().map(|slot| slot_octets(&slot.ty)).sum()),
    };
    let registers: u64 = handler.registers.iter().map(|of| register(of.ty)).sum();
    registers.saturating_add(CONTINUATION_OCTETS)
}

// -- Amplification.

/// Warns of UDP servers whose answer is much larger than the request, or goes to a group.
pub(super) fn amplification(program: &Program, env: &Env<'_>, found: &mut Vec<Diagnostic>) {
    let open = program.roles.iter().enumerate().filter(|(index, role)| {
        let allowed = env.roles.get(*index).is_some_and(|of| of.protocol.allow_amplification);
        role.side == Side::Server && role.transport == Transport::Udp && !allowed
    });
    for (index, role) in open {
        for request in &role.requests {
            let least = least_octets(program, request.view).saturating_add(HEADERS_OCTETS);
            for case in &request.cases {
                let builds = match &case.action {
                    Action::Answer(answer) => answer.message.iter().map(|of| (of, None)).collect(),
                    Action::Handle(id) => program.handler(*id).map(answers).unwrap_or_default(),
                };
                report_larger(program, role, least, builds, found);
            }
        }
        for handler in &program.handlers {
            let of_role =
                matches!(handler.kind, HandlerKind::Request { role, .. } if role.index() == index);
            if of_role {
                report_groups(program, role, handler, found);
            }
        }
    }
}

fn report_larger(
    program: &Program,
    role: &Role,
    least: u64,
    builds: Vec<(&Build, Option<&Handler>)>,
    found: &mut Vec<Diagnostic>,
) {
    for (build, handler) in builds {
        let most = most_octets(program, build, handler).saturating_add(HEADERS_OCTETS);
        if most > least.saturating_mul(AMPLIFICATION_MAX) {
            let message = format!(
                "`{}` answers up to {most} octets to a request of {least}, and anybody can forge \
                 the sender",
                role.name
            );
            push_once(found, build.span, message);
        }
    }
}

fn report_groups(program: &Program, role: &Role, handler: &Handler, found: &mut Vec<Diagnostic>) {
    for block in &handler.blocks {
        if let Terminator::Send { role: to, .. } | Terminator::Gather { role: to, .. } =
            &block.terminator
            && program.role(*to).is_some_and(|to| to.cast == Cast::Multicast)
        {
            let message = format!("a forged request to `{}` is sent on to a group", role.name);
            push_once(found, block.span, message);
        }
    }
}

fn push_once(found: &mut Vec<Diagnostic>, span: Span, message: String) {
    if !found.iter().any(|other| other.primary.span == span) {
        found.push(
            Diagnostic::warning(&codes::AMPLIFICATION, span, message)
                .help("shorten the answer, or write `allow amplification` in the protocol"),
        );
    }
}

/// Every message that a handler answers with.
fn answers(handler: &Handler) -> Vec<(&Build, Option<&Handler>)> {
    let mut builds = Vec::new();
    for block in &handler.blocks {
        for statement in &block.statements {
            if let Operation::Provisional(build) = &statement.operation {
                builds.push((build, Some(handler)));
            }
        }
        if let Terminator::Return { message: Some(build), .. } = &block.terminator {
            builds.push((build, Some(handler)));
        }
    }
    builds
}

/// The fewest octets of a view: every optional part left out.
fn least_octets(program: &Program, view: MessageId) -> u64 {
    program.message(view).map_or(0, |message| sizes(program, &message.emit, &|_| None))
}

/// The most octets of a message as it is built here.
fn most_octets(program: &Program, build: &Build, handler: Option<&Handler>) -> u64 {
    let Some(message) = program.message(build.message) else { return 0 };
    let size = |source: &Source| {
        let Source::Slot(slot) = source else { return None };
        let hole = build.holes.iter().find(|hole| hole.slot == *slot)?;
        let room = message.slot(*slot).map_or(0, |slot| held(&slot.ty));
        Some(match hole.value {
            Operand::Literal(id) => u64::try_from(program.literal(id).len()).unwrap_or(u64::MAX),
            Operand::Register(register) => {
                let register = handler.and_then(|of| of.registers.get(register.index()));
                match register.map(|register| register.ty) {
                    Some(RegisterType::Octets { max }) => u64::from(max),
                    _ => room,
                }
            }
            _ => room,
        })
    };
    sizes(program, &message.emit, &size)
}

/// Octets of a serializer's parts, with the sizes of the slots that are there.
fn sizes(program: &Program, emit: &[Emit], size: &dyn Fn(&Source) -> Option<u64>) -> u64 {
    let one = |part: &Emit| match part {
        Emit::Literal(id) => u64::try_from(program.literal(*id).len()).unwrap_or(u64::MAX),
        Emit::Octets { from, check } => size(from).unwrap_or(u64::from(check.min)),
        Emit::Digits { from, width, max, .. } => {
            u64::from(if size(from).is_some() { *max } else { *width })
        }
        Emit::Word { octets, .. } => u64::from(*octets),
        Emit::Varint { .. } => 1,
        Emit::Extension { .. } | Emit::Let { .. } | Emit::Stream { .. } => 0,
        Emit::Counted { octets, body, .. } => {
            u64::from((*octets).max(1)).saturating_add(sizes(program, body, size))
        }
        Emit::Checked { by, body } => {
            u64::from(by.octets()).saturating_add(sizes(program, body, size))
        }
        Emit::IfPresent { slot, then, otherwise } => {
            let there = size(&Source::Slot(*slot)).is_some();
            sizes(program, if there { then } else { otherwise }, size)
        }
        Emit::When { then, .. } => sizes(program, then, size),
        Emit::ForEach { list, .. } => size(&Source::Slot(*list)).unwrap_or(0),
    };
    emit.iter().map(one).fold(0, u64::saturating_add)
}
