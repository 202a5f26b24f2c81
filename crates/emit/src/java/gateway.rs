//! Prints roles and handlers as Java: `Gateway.java`.

use super::print::{Printer, milliseconds};
use super::text::{Texts, camel, class, comment, constant, number};
use super::{begin, bounds, description, escapes, field, slots};
use crate::code::{
    AnswerCode, DispatchCode, Expr, HandlerCode, Machine, Places, RecordType, RoleCode, mentions,
};
use gatewright_lang::ir::{
    Cast, Handler, HandlerKind, MessageId, Mode, ParameterBounds, ParameterValue, Program,
    RegisterType, ReuseWhen, Role, Session, SessionKey, Side, SlotId, Transport,
};

pub(super) fn source(
    program: &Program,
    (records, machine): (&[RecordType], &Machine),
    places: Places<'_>,
    texts: &mut Texts,
) -> String {
    let mut out = Printer::new(program, records, places, texts);
    begin(&mut out, program, "What is done by");
    out.line("import gatewright.runtime.*;");
    out.line("");
    out.line(&format!("/** Gateway {}. */", comment(&program.name)));
    out.open("public final class Gateway {");
    for (at, list) in machine.indices.iter().enumerate() {
        let list: Vec<String> = list.iter().map(ToString::to_string).collect();
        out.line(&format!("private static final int[] SLOTS_{at} = {{{}}};", list.join(", ")));
    }
    machine.answers.iter().for_each(|answer| self::answer(&mut out, answer));
    for (of, code) in program.handlers.iter().zip(&machine.handlers) {
        values(&mut out, of, code);
        handler(&mut out, of, code);
    }
    for code in &machine.roles {
        code.dispatch.iter().for_each(|dispatch| self::dispatch(&mut out, dispatch));
    }
    roles(&mut out, program, machine);
    if let Some(session) = &program.session {
        self::session(&mut out, program, session, machine);
    }
    escapes(&mut out);
    whole(&mut out, program, machine);
    out.close("}");
    out.finish()
}

fn answer(out: &mut Printer<'_>, answer: &AnswerCode) {
    let AnswerCode { name, build, close } = answer;
    out.line("");
    let built = if let Some(body) = build {
        let method = camel(&format!("{name}_build"));
        out.open(&format!("private static boolean {method}(Build b) {{"));
        out.statements(body, false);
        out.home();
        out.close("}");
        out.line("");
        format!("Gateway::{method}")
    } else {
        "null".to_owned()
    };
    let name = constant(name);
    out.line(&format!("private static final Answer {name} = new Answer({built}, {close});"));
}

fn values(out: &mut Printer<'_>, handler: &Handler, code: &HandlerCode) {
    let name = class(&format!("{}_values", code.name));
    out.line("");
    out.line(&format!("/** The values of handler {}. */", comment(&handler.name)));
    out.open(&format!("private static final class {name} extends View {{"));
    let fields: Vec<String> = handler
        .registers
        .iter()
        .zip(&code.values)
        .map(|(register, value)| match register.ty {
            RegisterType::Int { low, high } => {
                format!("Field.number({value:?}, {}, {})", number(low), number(high))
            }
            RegisterType::Octets { max } => {
                format!("Field.octets({value:?}, {})", number(max.into()))
            }
            RegisterType::View(_) => format!("Field.message({value:?})"),
            RegisterType::List { column, max } => {
                format!("Field.list({value:?}, {}, {})", number(max.into()), bounds(&column))
            }
        })
        .collect();
    description(out, &handler.name, &name, (&fields, ""));
    slots(out, &name, &code.values);
    out.close("}");
}

fn handler(out: &mut Printer<'_>, handler: &Handler, code: &HandlerCode) {
    let uses =
        |test: &dyn Fn(&Expr) -> bool| code.blocks.iter().any(|block| mentions(&block.body, test));
    let (name, values) = (camel(&code.name), class(&format!("{}_values", code.name)));
    out.line("");
    out.open(&format!("private static Stop {name}(Task t) {{"));
    if uses(&|expr| matches!(expr, Expr::Slot(..) | Expr::Inside(..))) {
        out.line(&format!("{values} v = ({values}) t.values;"));
    }
    if uses(&|expr| matches!(expr, Expr::Local(name) if name == "b")) {
        out.line("Build b = t.build;");
    }
    out.open("for (;;) {");
    out.line("switch (t.block) {");
    for (index, block) in code.blocks.iter().enumerate() {
        out.at(block.span);
        out.open(&format!("case {index}:"));
        out.statements(&block.body, false);
        out.indent_less();
    }
    out.home();
    out.line("default:");
    out.line("    return Stop.FAILS;");
    out.line("}");
    out.close("}");
    out.close("}");
    out.line("");
    let period = match handler.kind {
        HandlerKind::Every { period } => format!(", {}", milliseconds(period)),
        _ => String::new(),
    };
    out.line(&format!(
        "private static final Handler {} = new Handler({:?}, {values}.MESSAGE, \
         Gateway::{name}{period});",
        constant(&format!("{}_handler", code.name)),
        handler.name,
    ));
}

fn dispatch(out: &mut Printer<'_>, dispatch: &DispatchCode) {
    let DispatchCode { name, record, body, .. } = dispatch;
    out.line("");
    out.open(&format!(
        "private static void {}(Machine m, Incoming request, View base) {{",
        camel(name)
    ));
    if mentions(body, &|expr| matches!(expr, Expr::Slot(..))) {
        let record = class(record);
        out.line(&format!("Messages.{record} view = (Messages.{record}) base;"));
    }
    out.statements(body, false);
    out.home();
    out.close("}");
}

fn key(out: &Printer<'_>, view: MessageId, request: SlotId, response: Option<SlotId>) -> String {
    let view = out.message(view.index());
    let response = response.map_or(String::new(), |slot| format!(", {}", slot.index()));
    format!("new Key({view}, {}{response})", request.index())
}

fn roles(out: &mut Printer<'_>, program: &Program, machine: &Machine) {
    out.line("");
    out.open("private static final Role[] ROLES = {");
    for (role, code) in program.roles.iter().zip(&machine.roles) {
        let side = if role.side == Side::Client { "client" } else { "server" };
        let response = out.message(role.response.index());
        out.line(&format!(
            "Role.{side}({:?}, {:?}, {response}, {})",
            role.name,
            role.address,
            number(role.connections_max.into()),
        ));
        let lines = role_lines(out, machine, (role, code));
        out.indent_more();
        for (at, line) in lines.iter().enumerate() {
            out.line(&format!("{line}{}", if at + 1 == lines.len() { "," } else { "" }));
        }
        out.indent_less();
    }
    out.close("};");
}

/// Settings of a role, after its name.
fn role_lines(
    out: &Printer<'_>,
    machine: &Machine,
    (role, code): (&Role, &RoleCode),
) -> Vec<String> {
    let mut lines = Vec::new();
    let flags = [
        (role.transport == Transport::Udp, ".udp()"),
        (role.mode == Mode::Async, ".async()"),
        (role.cast == Cast::Multicast, ".multicast()"),
    ];
    let flags: String = flags.iter().filter(|(is, _)| *is).map(|(_, flag)| *flag).collect();
    if !flags.is_empty() {
        lines.push(flags);
    }
    if !code.dispatch.is_empty() {
        let kind = |dispatch: &DispatchCode| {
            let DispatchCode { name, message, waits, .. } = dispatch;
            let (view, name) = (out.message(*message), camel(name));
            format!("new RequestKind({view}, SLOTS_{waits}, Gateway::{name})")
        };
        let kinds: Vec<String> = code.dispatch.iter().map(kind).collect();
        lines.push(format!(".requests({})", kinds.join(", ")));
    }
    if !role.flow.is_empty() {
        let keys = role.flow.iter().map(|of| key(out, of.view, of.request, Some(of.response)));
        let keys: Vec<String> = keys.collect();
        lines.push(format!(".flow(SLOTS_{}, {})", code.flow_waits, keys.join(", ")));
    }
    if let Some(greeting) = &code.greeting {
        lines.push(format!(".greeting({})", constant(greeting)));
    }
    if let Some(opening) = role.opening.and_then(|id| machine.handlers.get(id.index())) {
        lines.push(format!(".opening({})", constant(&format!("{}_handler", opening.name))));
    }
    lines.extend(role.idle.map(|idle| format!(".idle({})", milliseconds(idle))));
    lines.extend(times(out, role));
    let [malformed, failed, full] =
        [&code.malformed, &code.failed, &code.full].map(|name| constant(name));
    lines.push(format!(".answers({malformed}, {failed}, {full})"));
    for (what, answer) in &code.too_long {
        let what = what.word().to_uppercase();
        lines.push(format!(".tooLong(TooLong.{what}, {})", constant(answer)));
    }
    lines
}

/// Settings of reuse, retransmission and repeated requests.
fn times(out: &Printer<'_>, role: &Role) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(reuse) = &role.reuse {
        let each = reuse.when == ReuseWhen::EachResponse;
        let (max, idle) = (reuse.connections_max, milliseconds(reuse.idle));
        lines.push(format!(".reuse({each}, {max}, {idle})"));
    }
    if let Some(waiting) = role.shared {
        lines.push(format!(".shared({waiting})"));
    }
    if let Some(retransmit) = &role.retransmit {
        let (after, most) = (milliseconds(retransmit.after), milliseconds(retransmit.pause_max));
        let (times, doubling) = (retransmit.times, retransmit.doubling);
        lines.push(format!(".retransmit({times}, {after}, {most}, {doubling})"));
    }
    if let Some(duplicates) = &role.duplicates {
        let keys = duplicates.keys.iter().map(|(view, slot)| key(out, *view, *slot, None));
        let keys: Vec<String> = keys.collect();
        let keep = milliseconds(duplicates.keep);
        lines.push(format!(".duplicates({keep}, {})", keys.join(", ")));
    }
    lines
}

/// The variables that store peers, with the values kept of their requests.
fn peers(out: &mut Printer<'_>, program: &Program, session: &Session) {
    out.line("");
    out.open("private static final PeersKind[] PEERS = {");
    for peers in &session.peers {
        let kept: Vec<String> = peers
            .kept
            .iter()
            .filter_map(|(view, slot)| Some(field(program.message(*view)?.slot(*slot)?)))
            .collect();
        let keys = peers.kept.iter().map(|(view, slot)| key(out, *view, *slot, None));
        let keys: Vec<String> = keys.collect();
        let mark = peers.mark.map(|(view, slot)| key(out, view, slot, None));
        out.line(&format!(
            "new PeersKind({:?}, {}, {}, {}, new Field[] {{{}}}, new Key[] {{{}}}, {}),",
            peers.name,
            peers.role.index(),
            number(peers.max.into()),
            peers.list,
            kept.join(", "),
            keys.join(", "),
            mark.unwrap_or_else(|| "null".to_owned()),
        ));
    }
    out.close("};");
}

fn session(out: &mut Printer<'_>, program: &Program, session: &Session, machine: &Machine) {
    out.line("");
    out.line("/** The session's variables. */");
    out.open("private static final class SessionVariables extends View {");
    let fields: Vec<String> = session.slots.iter().map(field).collect();
    description(out, "session", "SessionVariables", (&fields, ""));
    slots(out, "SessionVariables", &machine.variables);
    out.close("}");
    let keys = match &session.key {
        SessionKey::Slots(slots) => {
            let keys = slots.iter().map(|(view, slot)| key(out, *view, *slot, None));
            let keys: Vec<String> = keys.collect();
            format!("new Key[] {{{}}}", keys.join(", "))
        }
        SessionKey::Connection | SessionKey::Value { .. } => "null".to_owned(),
    };
    let by_value = matches!(session.key, SessionKey::Value { .. });
    peers(out, program, session);
    out.line("");
    out.line(&format!(
        "private static final SessionKind SESSION = new SessionKind({}, {keys}, {by_value}, PEERS, \
         SessionVariables.MESSAGE, {}, {});",
        session.role.index(),
        session.sessions_max,
        milliseconds(session.idle),
    ));
}

/// The program's parameters: slots with their defaults.
fn parameters(out: &mut Printer<'_>, program: &Program) {
    out.line("");
    out.open("private static final Slot[] PARAMETERS = {");
    for parameter in &program.parameters {
        let name = format!("{:?}", parameter.name);
        let field = match parameter.bounds {
            ParameterBounds::Int { low, high } => {
                format!("Field.number({name}, {}, {})", number(low), number(high))
            }
            ParameterBounds::Octets { max } => {
                format!("Field.octets({name}, {})", number(max.into()))
            }
        };
        let value = match &parameter.value {
            Some(ParameterValue::Int(value)) => format!(".to({})", number(*value)),
            Some(ParameterValue::Octets(octets)) => format!(".to({})", out.text(octets)),
            None => String::new(),
        };
        out.line(&format!("Slot.parameter({field}){value},"));
    }
    out.close("};");
}

fn whole(out: &mut Printer<'_>, program: &Program, machine: &Machine) {
    let handlers = machine.handlers.iter();
    let handlers: Vec<String> =
        handlers.map(|handler| constant(&format!("{}_handler", handler.name))).collect();
    out.line("");
    out.line(&format!("private static final Handler[] HANDLERS = {{{}}};", handlers.join(", ")));
    parameters(out, program);
    let session = if program.session.is_some() { "SESSION" } else { "null" };
    out.line("");
    out.line("/** The program. */");
    out.line(&format!(
        "public static final Program PROGRAM = new Program({:?}, ROLES, HANDLERS, {session}, PARAMETERS);",
        program.name,
    ));
    out.line("");
    out.line("private Gateway() { }");
    out.line("");
    out.line("/** Runs it over sockets. */");
    out.open("public static void main(String[] arguments) {");
    out.line("Main.run(PROGRAM, arguments);");
    out.close("}");
}
