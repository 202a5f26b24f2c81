//! Computes worst cases: of memory, and of the traffic that a forged request can cause.

use super::env::Env;
use super::layout::held;
use crate::codes;
use crate::ir::{
    Action, Bounds, BoundsLine, Build, Cast, ColumnType, Emit, Handler, HandlerKind, Instruction,
    Message, MessageId, Operand, Peers, Program, RegisterType, Role, SessionKey, Side, SlotId,
    SlotType, Source, Terminator, Transport,
};
use gatewright_diagnostic::{Diagnostic, Span};

/// Two pages in each direction of a connection, while octets are pending (paper 001 §2.2).
const BUFFER_OCTETS: u64 = 8_192;

/// Cost of a value beside its octets: its position, its length and whether it is present.
const VALUE_OCTETS: u64 = 16;

/// Octets of a stored peer beside the values kept of its request: an address or a connection, here
/// and in the index by connection.
const PEER_OCTETS: u64 = 512;

/// Cost of a suspended handler beside its registers: its next block and its timer.
const CONTINUATION_OCTETS: u64 = 64;

/// Headers of IPv4 and UDP, in octets (RFC 791 §3.1, RFC 768).
const HEADERS_OCTETS: u64 = 28;

/// Maximum ratio of a reply's length to its request's (RFC 9000 §8.1).
const AMPLIFICATION_MAX: u64 = 3;

/// The worst case of one session.
pub(super) fn bounds(program: &Program) -> Bounds {
    let mut lines = Vec::new();
    let mut line = |what: String, octets: u64| lines.push(BoundsLine { what, octets });
    for role in &program.roles {
        match role.transport {
            Transport::Tcp => {
                line(format!("to be read from `{}`", role.name), unread(program));
                line(format!("to be sent to `{}`", role.name), unsent(program, role));
            }
            Transport::Udp => {
                let datagrams = program.messages.iter().filter(|message| message.datagram);
                let longest = datagrams.map(|message| u64::from(message.window_max)).max();
                line(format!("a datagram of `{}`", role.name), longest.unwrap_or_default());
            }
        }
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
        let key = match session.key {
            SessionKey::Value { max } => u64::from(max).saturating_add(VALUE_OCTETS),
            SessionKey::Slots(_) | SessionKey::Connection => 0,
        };
        line("session variables".to_owned(), key.saturating_add(octets));
        for peers in &session.peers {
            let octets = peer_octets(program, peers).saturating_mul(u64::from(peers.max));
            line(format!("peers in `{}`", peers.name), octets);
        }
    }
    let servers = program.roles.iter().filter(|role| role.side == Side::Server);
    let connections: u64 = servers.map(|role| u64::from(role.connections_max)).sum();
    let keyed = program.session.as_ref().map_or(0, |session| u64::from(session.sessions_max));
    let session_octets = lines.iter().map(|line| line.octets).sum();
    Bounds { lines, session_octets, sessions_max: connections.max(keyed) }
}

/// Unread octets: two pages, or the longest stretch that any parser must see at once.
fn unread(program: &Program) -> u64 {
    let streams = program.messages.iter().filter(|message| !message.datagram);
    streams.map(|message| u64::from(message.window())).max().unwrap_or_default().max(BUFFER_OCTETS)
}

/// Unsent octets: two pages, followed by a message, or two pages of a stream.
fn unsent(program: &Program, role: &Role) -> u64 {
    let module = |id: MessageId| {
        program.message(id).and_then(|of| of.name.split('.').next()).unwrap_or_default()
    };
    let own = module(role.response);
    let messages = (0..program.messages.len()).map(MessageId::new).filter(|id| module(*id) == own);
    let written =
        |id: MessageId| program.message(id).map(|of| written(program, of, &of.emit, None));
    let longest = messages.filter_map(written).max().unwrap_or_default();
    BUFFER_OCTETS.saturating_add(longest.max(BUFFER_OCTETS))
}

/// Maximum octets that a serializer's parts write, without those of a stream.
fn written(program: &Program, message: &Message, parts: &[Emit], list: Option<SlotId>) -> u64 {
    let all = |parts: &[Emit]| written(program, message, parts, list);
    let one = |part: &Emit| match part {
        Emit::Literal(id) => u64::try_from(program.literal(*id).len()).unwrap_or(u64::MAX),
        Emit::Octets { from, check } => {
            u64::from(check.max).min(source_octets(program, message, from, list))
        }
        Emit::Digits { max, .. } => u64::from(*max),
        Emit::Word { octets, .. } => u64::from(*octets),
        Emit::Varint { octets_max, .. } => u64::from(*octets_max),
        Emit::Extension { cases, .. } => {
            cases.iter().map(|case| u64::from(case.octets)).max().unwrap_or_default()
        }
        Emit::Counted { octets, max, body, .. } => {
            let length = if *octets == 0 { 4 } else { u64::from(*octets) };
            all(body).min(u64::from(*max)).saturating_add(length)
        }
        Emit::Checked { by, body } => all(body).saturating_add(u64::from(by.octets())),
        Emit::Bounded { max, body } => all(body).min(u64::from(*max)),
        Emit::Let { .. } | Emit::Stream { .. } => 0,
        Emit::IfPresent { then, otherwise, .. } => all(then).max(all(otherwise)),
        Emit::When { then, .. } => all(then),
        Emit::ForEach { list, body } => match message.slot(*list).map(|slot| &slot.ty) {
            Some(SlotType::List { max, .. }) => {
                written(program, message, body, Some(*list)).saturating_mul(u64::from(*max))
            }
            _ => 0,
        },
    };
    parts.iter().map(one).fold(0, u64::saturating_add)
}

/// Maximum octets of a source, as far as its slot bounds them.
fn source_octets(
    program: &Program,
    message: &Message,
    source: &Source,
    list: Option<SlotId>,
) -> u64 {
    match source {
        Source::Slot(slot) => match message.slot(*slot).map(|slot| &slot.ty) {
            Some(SlotType::Octets { max }) => u64::from(*max),
            _ => u64::MAX,
        },
        Source::Element(column) => {
            match list.and_then(|list| message.slot(list)).map(|of| &of.ty) {
                Some(SlotType::List { columns, .. }) => {
                    let column = usize::try_from(*column).ok().and_then(|at| columns.get(at));
                    match column.map(|(_, ty)| ty) {
                        Some(ColumnType::Octets { max }) => u64::from(*max),
                        _ => u64::MAX,
                    }
                }
                _ => u64::MAX,
            }
        }
        Source::Literal(id) => u64::try_from(program.literal(*id).len()).unwrap_or(u64::MAX),
        // A number has at most 20 digits, or eight octets.
        Source::Decimal(_) => 20,
        Source::Uint(_) => 8,
        _ => u64::MAX,
    }
}

fn largest<'p>(
    program: &'p Program,
    handlers: impl Iterator<Item = &'p Handler>,
) -> Option<(String, u64)> {
    handlers
        .map(|handler| (handler.name.clone(), handler_octets(program, handler)))
        .max_by_key(|(_, octets)| *octets)
}

/// Octets of a slot with the cost of its values.
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

/// Octets of a stored peer: its address, the values kept of its request, and its index entry.
fn peer_octets(program: &Program, peers: &Peers) -> u64 {
    let kept = peers.kept.iter().chain(&peers.mark).map(|(view, slot)| {
        let slot = program.message(*view).and_then(|view| view.slot(*slot));
        slot.map_or(0, |slot| slot_octets(&slot.ty))
    });
    kept.sum::<u64>().saturating_add(PEER_OCTETS)
}

fn handler_octets(program: &Program, handler: &Handler) -> u64 {
    let register = |ty: RegisterType| match ty {
        RegisterType::Int { .. } => VALUE_OCTETS,
        RegisterType::Octets { max } => u64::from(max).saturating_add(VALUE_OCTETS),
        RegisterType::View(id) => program
            .message(id)
            .map_or(0, |message| message.slots.iter().map(|slot| slot_octets(&slot.ty)).sum()),
        RegisterType::List { column, max } => {
            slot_octets(&SlotType::List { columns: vec![(String::new(), column)], max })
        }
    };
    let registers: u64 = handler.registers.iter().map(|of| register(of.ty)).sum();
    registers.saturating_add(CONTINUATION_OCTETS)
}

// -- Amplification.

/// Warns of UDP servers whose answer is much longer than the request, or goes to a group.
pub(super) fn amplification(program: &Program, env: &Env<'_>, found: &mut Vec<Diagnostic>) {
    let open = program.roles.iter().enumerate().filter(|(index, role)| {
        let allowed = env.roles.get(*index).is_some_and(|of| of.protocol.allow_amplification);
        role.side == Side::Server && role.transport == Transport::Udp && !allowed
    });
    for (index, role) in open {
        let mut larger = Vec::new();
        for request in &role.requests {
            let least = least_octets(program, request.view).saturating_add(HEADERS_OCTETS);
            for case in &request.cases {
                let builds = match &case.action {
                    Action::Answer(answer) => answer.message.iter().map(|of| (of, None)).collect(),
                    Action::Handle(id) => program.handler(*id).map(answers).unwrap_or_default(),
                };
                find_larger(program, least, builds, &mut larger);
            }
        }
        report_larger(role, &larger, found);
        for handler in &program.handlers {
            let of_role =
                matches!(handler.kind, HandlerKind::Request { role, .. } if role.index() == index);
            if of_role {
                report_groups(program, role, handler, found);
            }
        }
    }
}

/// An answer that is much longer than its request.
struct LargerAnswer {
    request_least: u64,
    most: u64,
    span: Span,
}

fn find_larger(
    program: &Program,
    least: u64,
    builds: Vec<(&Build, Option<&Handler>)>,
    larger: &mut Vec<LargerAnswer>,
) {
    for (build, handler) in builds {
        let most = most_octets(program, build, handler).saturating_add(HEADERS_OCTETS);
        let is_known = larger.iter().any(|other| other.span == build.span);
        if most > least.saturating_mul(AMPLIFICATION_MAX) && !is_known {
            larger.push(LargerAnswer { request_least: least, most, span: build.span });
        }
    }
}

/// Warns once of a role, at its longest answer: one word in its protocol allows all.
fn report_larger(role: &Role, larger: &[LargerAnswer], found: &mut Vec<Diagnostic>) {
    let longest =
        larger.iter().reduce(|one, other| if other.most > one.most { other } else { one });
    let Some(LargerAnswer { request_least, most, span }) = longest else { return };
    let others = match larger.len() - 1 {
        0 => String::new(),
        1 => "; another answer is too long, too".to_owned(),
        others => format!("; {others} other answers are too long, too"),
    };
    let message = format!(
        "`{}` answers up to {most} octets to a request of {request_least}, and anybody can forge \
         the sender{others}",
        role.name
    );
    push_once(found, *span, message);
}

fn report_groups(program: &Program, role: &Role, handler: &Handler, found: &mut Vec<Diagnostic>) {
    for block in &handler.blocks {
        if matches!(block.terminator, Terminator::Store { .. }) {
            let message = format!(
                "whoever forges a sender has it stored here, and `{}` sends to it from then on",
                role.name
            );
            push_once(found, block.span, message);
        }
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
            if let Instruction::Provisional(build) = &statement.operation {
                builds.push((build, Some(handler)));
            }
        }
        if let Terminator::Return { message: Some(build), .. } = &block.terminator {
            builds.push((build, Some(handler)));
        }
    }
    builds
}

/// Minimum octets of a view: without every optional part.
fn least_octets(program: &Program, view: MessageId) -> u64 {
    program.message(view).map_or(0, |message| sizes(program, &message.emit, &|_| None))
}

/// Maximum octets of a message as it is built here.
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
        Emit::Bounded { max, body } => sizes(program, body, size).min(u64::from(*max)),
        Emit::IfPresent { slot, then, otherwise } => {
            let there = size(&Source::Slot(*slot)).is_some();
            sizes(program, if there { then } else { otherwise }, size)
        }
        Emit::When { then, .. } => sizes(program, then, size),
        Emit::ForEach { list, .. } => size(&Source::Slot(*list)).unwrap_or(0),
    };
    emit.iter().map(one).fold(0, u64::saturating_add)
}
