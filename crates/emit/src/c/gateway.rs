//! Prints roles and handlers as C: `gateway.c`.

use super::print::{Printer, milliseconds};
use super::text::number;
use super::{column_bounds, int_bounds, slot_fields};
use crate::code::{
    AnswerCode, DispatchCode, Expr, HandlerCode, Machine, Places, RoleCode, mentions,
};
use core::fmt::Write as _;
use core::time::Duration;
use gatewright_lang::ir::{
    Cast, Handler, HandlerKind, MessageId, Mode, ParameterBounds, ParameterValue, Program,
    RegisterType, ReuseWhen, Role, Session, SessionKey, Side, Slot, SlotId, Transport,
};

pub(super) fn source(program: &Program, machine: &Machine, places: Places<'_>) -> String {
    let mut out = Printer::new(program, "gateway.c", places);
    out.line(&format!("/* What gateway {} does; written by gatewright. */", program.name));
    out.line("#include \"gw_machine.h\"");
    out.line("#include \"messages.h\"");
    out.line("");
    for (at, list) in machine.indices.iter().enumerate() {
        let list: Vec<String> = list.iter().map(ToString::to_string).collect();
        let list = if list.is_empty() { "0".to_owned() } else { list.join(", ") };
        out.line(&format!("static const uint16_t slots_{at}[] = {{{list}}};"));
    }
    out.line("");
    parameters(&mut out, program);
    machine.answers.iter().for_each(|answer| self::answer(&mut out, answer));
    for (of, code) in program.handlers.iter().zip(&machine.handlers) {
        values(&mut out, of, code);
        handler(&mut out, of, code);
    }
    for (role, code) in program.roles.iter().zip(&machine.roles) {
        code.dispatch.iter().for_each(|dispatch| self::dispatch(&mut out, dispatch));
        keys(&mut out, role, code);
    }
    roles(&mut out, program, machine);
    if let Some(session) = &program.session {
        self::session(&mut out, program, session, machine);
    }
    whole(&mut out, program, machine);
    out.finish()
}

/// The program's parameters: slots, whose octets have room for any value.
fn parameters(out: &mut Printer<'_>, program: &Program) {
    if program.parameters.is_empty() {
        return;
    }
    for (at, parameter) in program.parameters.iter().enumerate() {
        let ParameterBounds::Octets { max } = parameter.bounds else { continue };
        let octets = match &parameter.value {
            Some(ParameterValue::Octets(octets)) if !octets.is_empty() => {
                octets.iter().map(|octet| format!("{octet:#04x}")).collect::<Vec<_>>().join(", ")
            }
            _ => "0".to_owned(),
        };
        out.line(&format!("static uint8_t parameter_{at}[{}] = {{{octets}}};", max.max(1)));
    }
    out.open("static const struct gw_field parameter_fields[] = {");
    for parameter in &program.parameters {
        let bounds = match parameter.bounds {
            ParameterBounds::Int { low, high } => int_bounds(low, high),
            ParameterBounds::Octets { max } => format!("{{.kind = GW_OCTETS, .max = {max}}}"),
        };
        out.line(&format!("{{.name = {:?}, .bounds = {bounds}}},", parameter.name));
    }
    out.close("};");
    out.open("static struct gw_slot parameters[] = {");
    for (at, parameter) in program.parameters.iter().enumerate() {
        let set = parameter.value.is_some();
        let value = match (&parameter.value, parameter.bounds) {
            (Some(ParameterValue::Int(value)), _) => format!(".number = {}", number(*value)),
            (_, ParameterBounds::Int { .. }) => ".number = 0".to_owned(),
            (value, ParameterBounds::Octets { max }) => {
                let length = match value {
                    Some(ParameterValue::Octets(octets)) => octets.len(),
                    _ => 0,
                };
                format!(".length = {length}, .room = {max}, .octets = parameter_{at}")
            }
        };
        out.line(&format!(
            "{{.field = &parameter_fields[{at}], .set = {set}, .settled = true, {value}}},"
        ));
    }
    out.close("};");
    out.line("");
}

fn answer(out: &mut Printer<'_>, answer: &AnswerCode) {
    let AnswerCode { name, build, close } = answer;
    if let Some(body) = build {
        out.line(&format!("static bool {name}_build(struct gw_build *b)"));
        out.open("{");
        out.statements(body, false);
        out.home();
        out.close("}");
    }
    let build = build.as_ref().map_or("NULL".to_owned(), |_| format!("{name}_build"));
    out.line(&format!("static const struct gw_answer {name} = {{{build}, {close}}};"));
    out.line("");
}

fn values(out: &mut Printer<'_>, handler: &Handler, code: &HandlerCode) {
    let name = &code.name;
    out.line(&format!("/* The values of handler {}. */", handler.name));
    out.open(&format!("struct {name}_values {{"));
    out.line("struct gw_view view;");
    for value in &code.values {
        out.line(&format!("struct gw_slot {value};"));
    }
    out.close("};");
    let fields = if code.values.is_empty() { "NULL".to_owned() } else { format!("{name}_fields") };
    for (register, value) in handler.registers.iter().zip(&code.values) {
        if let RegisterType::List { column, .. } = register.ty {
            let bounds = column_bounds(&column);
            out.line(&format!(
                "static const struct gw_bounds {name}_{value}_columns[] = {{{bounds}}};"
            ));
        }
    }
    if !code.values.is_empty() {
        out.open(&format!("static const struct gw_field {name}_fields[] = {{"));
        for (register, value) in handler.registers.iter().zip(&code.values) {
            let bounds = match register.ty {
                RegisterType::Int { low, high } => int_bounds(low, high),
                RegisterType::Octets { max } => format!("{{.kind = GW_OCTETS, .max = {max}}}"),
                RegisterType::View(_) => "{.kind = GW_MESSAGE}".to_owned(),
                RegisterType::List { max, .. } => format!(
                    "{{.kind = GW_LIST, .max = {max}}}, .columns = 1, .column = \
                     {name}_{value}_columns"
                ),
            };
            out.line(&format!("{{.name = \"{value}\", .bounds = {bounds}}},"));
        }
        out.close("};");
    }
    out.line(&format!(
        "static const struct gw_message {name}_values = {{.name = {:?}, .size = \
         sizeof(struct {name}_values), .count = {}, .fields = {fields}}};",
        handler.name,
        code.values.len(),
    ));
    out.line("");
}

fn handler(out: &mut Printer<'_>, handler: &Handler, code: &HandlerCode) {
    let name = &code.name;
    let uses =
        |test: &dyn Fn(&Expr) -> bool| code.blocks.iter().any(|block| mentions(&block.body, test));
    out.line(&format!("static enum gw_stop {name}(struct gw_task *t)"));
    out.open("{");
    if uses(&|expr| matches!(expr, Expr::Slot(..) | Expr::Inside(..))) {
        out.line(&format!("struct {name}_values *v = (struct {name}_values *)t->values;"));
    }
    if uses(&|expr| matches!(expr, Expr::Local(name) if name == "b")) {
        out.line("struct gw_build *b = &t->build;");
    }
    out.open("for (;;) {");
    out.line("switch (t->block) {");
    for (index, block) in code.blocks.iter().enumerate() {
        out.at(block.span);
        out.open(&format!("case {index}:"));
        out.statements(&block.body, false);
        out.indent_less();
    }
    out.home();
    out.line("default:");
    out.line("    return GW_FAILS;");
    out.line("}");
    out.close("}");
    out.close("}");
    let period = match handler.kind {
        HandlerKind::Every { period } => milliseconds(period.max(Duration::from_millis(1))),
        _ => "0".to_owned(),
    };
    out.line(&format!(
        "static const struct gw_handler {name}_handler = {{.name = {:?}, .values = \
         &{name}_values, .run = {name}, .period = {period}}};",
        handler.name,
    ));
    out.line("");
}

fn dispatch(out: &mut Printer<'_>, dispatch: &DispatchCode) {
    let DispatchCode { name, record, body, .. } = dispatch;
    out.line(&format!(
        "static void {name}(struct gw_machine *m, struct gw_incoming *request, \
         const struct gw_view *base)"
    ));
    out.open("{");
    if mentions(body, &|expr| matches!(expr, Expr::Slot(..))) {
        out.line(&format!("const struct {record} *view = (const struct {record} *)base;"));
    } else {
        out.line("(void)base;");
    }
    out.statements(body, false);
    out.home();
    out.close("}");
    out.line("");
}

fn key(view: MessageId, request: SlotId, response: Option<SlotId>) -> String {
    let (view, request) = (view.index(), request.index());
    let response = response.map_or(0, SlotId::index);
    format!("{{&gw_messages[{view}], {request}, {response}}},")
}

/// The tables that a role's table points to.
fn keys(out: &mut Printer<'_>, role: &Role, code: &RoleCode) {
    let name = &code.name;
    if !code.dispatch.is_empty() {
        out.open(&format!("static const struct gw_request {name}_requests[] = {{"));
        for (kind, dispatch) in role.requests.iter().zip(&code.dispatch) {
            let DispatchCode { name, message, waits, .. } = dispatch;
            let count = kind.waits.len();
            out.line(&format!("{{&gw_messages[{message}], slots_{waits}, {count}, {name}}},"));
        }
        out.close("};");
    }
    if !role.flow.is_empty() {
        out.open(&format!("static const struct gw_key {name}_flow[] = {{"));
        for of in &role.flow {
            out.line(&key(of.view, of.request, Some(of.response)));
        }
        out.close("};");
    }
    if let Some(duplicates) = &role.duplicates {
        out.open(&format!("static const struct gw_key {name}_duplicates[] = {{"));
        for (view, slot) in &duplicates.keys {
            out.line(&key(*view, *slot, None));
        }
        out.close("};");
    }
    out.line("");
}

fn roles(out: &mut Printer<'_>, program: &Program, machine: &Machine) {
    out.open("static const struct gw_role roles[] = {");
    for (role, code) in program.roles.iter().zip(&machine.roles) {
        out.open("{");
        for line in role_lines(machine, role, code) {
            out.line(&(line + ","));
        }
        out.close("},");
    }
    if program.roles.is_empty() {
        out.line("{.name = NULL},");
    }
    out.close("};");
    out.line("");
}

fn role_lines(machine: &Machine, role: &Role, code: &RoleCode) -> Vec<String> {
    let name = &code.name;
    let mut lines = vec![
        format!(".name = {:?}, .address = {:?}", role.name, role.address),
        format!(
            ".client = {}, .udp = {}",
            role.side == Side::Client,
            role.transport == Transport::Udp
        ),
        format!(
            ".async = {}, .multicast = {}",
            role.mode == Mode::Async,
            role.cast == Cast::Multicast
        ),
        format!(".response = &gw_messages[{}]", role.response.index()),
        format!(".connections_max = {}", role.connections_max),
    ];
    if !code.dispatch.is_empty() {
        let count = code.dispatch.len();
        lines.push(format!(".requests = {name}_requests, .requests_count = {count}"));
    }
    if !role.flow.is_empty() {
        let (count, waits) = (role.flow.len(), code.flow_waits);
        let slots = machine.indices.get(waits).map_or(0, Vec::len);
        lines.push(format!(".flow = {name}_flow, .flow_count = {count}"));
        lines.push(format!(".flow_waits = slots_{waits}, .flow_waits_count = {slots}"));
    }
    if let Some(greeting) = &code.greeting {
        lines.push(format!(".greeting = &{greeting}"));
    }
    if let Some(opening) = role.opening.and_then(|id| machine.handlers.get(id.index())) {
        lines.push(format!(".opening = &{}_handler", opening.name));
    }
    for (what, answer) in
        [("malformed", &code.malformed), ("failed", &code.failed), ("full", &code.full)]
    {
        lines.push(format!(".{what} = &{answer}"));
    }
    for (what, answer) in &code.too_long {
        let what = what.word().to_uppercase();
        lines.push(format!(".too_long[GW_LONG_{what}] = &{answer}"));
    }
    lines.extend(role.idle.map(|idle| format!(".idle = {}", milliseconds(idle))));
    lines.extend(times(role, name));
    lines
}

/// Settings of a role's table for reuse, retransmission and repeated requests.
fn times(role: &Role, name: &str) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(reuse) = &role.reuse {
        let each = reuse.when == ReuseWhen::EachResponse;
        lines.push(format!(".reuse = true, .reuse_each_response = {each}"));
        let idle = milliseconds(reuse.idle);
        lines.push(format!(".reuse_max = {}, .reuse_idle = {idle}", reuse.connections_max));
    }
    if let Some(waiting) = role.shared {
        lines.push(format!(".shared = true, .shared_waiting = {waiting}"));
    }
    if let Some(retransmit) = &role.retransmit {
        lines.push(format!(".retransmit_times = {}", retransmit.times));
        lines.push(format!(".retransmit_after = {}", milliseconds(retransmit.after)));
        lines.push(format!(".retransmit_pause_max = {}", milliseconds(retransmit.pause_max)));
        lines.push(format!(".retransmit_doubling = {}", retransmit.doubling));
    }
    if let Some(duplicates) = &role.duplicates {
        let count = duplicates.keys.len();
        lines.push(format!(".duplicates = {name}_duplicates, .duplicates_count = {count}"));
        lines.push(format!(".duplicates_keep = {}", milliseconds(duplicates.keep)));
    }
    lines
}

/// The values kept of the requests of stored peers, and the table of the variables that store
/// peers.
fn peers(out: &mut Printer<'_>, program: &Program, session: &Session) {
    for (at, peers) in session.peers.iter().enumerate() {
        let slots: Vec<Slot> = peers
            .kept
            .iter()
            .filter_map(|(view, slot)| program.message(*view)?.slot(*slot).cloned())
            .collect();
        let names: Vec<String> = (0..slots.len()).map(|at| format!("kept_{at}")).collect();
        if !slots.is_empty() {
            slot_fields(out, &format!("peers_{at}"), &slots, &names);
            let count = slots.len();
            out.line(&format!(
                "static const struct gw_message peers_{at}_kept = {{.name = {:?}, .size = \
                 sizeof(struct gw_view) + {count} * sizeof(struct gw_slot), .count = {count}, \
                 .fields = peers_{at}_fields}};",
                peers.name,
            ));
            out.open(&format!("static const struct gw_key peers_{at}_keys[] = {{"));
            for (view, slot) in &peers.kept {
                out.line(&key(*view, *slot, None));
            }
            out.close("};");
        }
        if let Some((view, slot)) = peers.mark {
            let mark = key(view, slot, None);
            let mark = mark.trim_end_matches(',');
            out.line(&format!("static const struct gw_key peers_{at}_mark = {mark};"));
        }
    }
    out.open("static const struct gw_peers session_peers[] = {");
    for (at, peers) in session.peers.iter().enumerate() {
        let mut line = format!(
            "{{.name = {:?}, .role = {}, .max = {}, .list = {}",
            peers.name,
            peers.role.index(),
            peers.max,
            peers.list
        );
        if !peers.kept.is_empty() {
            let _ = write!(line, ", .kept = &peers_{at}_kept, .keys = peers_{at}_keys");
        }
        if peers.mark.is_some() {
            let _ = write!(line, ", .mark = &peers_{at}_mark");
        }
        out.line(&(line + "},"));
    }
    out.close("};");
}

fn session(out: &mut Printer<'_>, program: &Program, session: &Session, machine: &Machine) {
    out.line("/* The session's variables. */");
    out.open("struct session_variables {");
    out.line("struct gw_view view;");
    for name in &machine.variables {
        out.line(&format!("struct gw_slot {name};"));
    }
    out.close("};");
    slot_fields(out, "session", &session.slots, &machine.variables);
    let fields = if session.slots.is_empty() { "NULL" } else { "session_fields" };
    out.line(&format!(
        "static const struct gw_message session_variables = {{.name = \"session\", .size = \
         sizeof(struct session_variables), .count = {}, .fields = {fields}}};",
        session.slots.len(),
    ));
    let mut keys = "NULL, .keys_count = 0".to_owned();
    if let SessionKey::Slots(slots) = &session.key {
        out.open("static const struct gw_key session_keys[] = {");
        for (view, slot) in slots {
            out.line(&key(*view, *slot, None));
        }
        out.close("};");
        keys = format!("session_keys, .keys_count = {}", slots.len());
    }
    if matches!(session.key, SessionKey::Value { .. }) {
        keys.push_str(", .by_value = true");
    }
    if !session.peers.is_empty() {
        peers(out, program, session);
        let _ = write!(keys, ", .peers = session_peers, .peers_count = {}", session.peers.len());
    }
    out.line(&format!(
        "static const struct gw_session_kind session = {{.role = {}, .keys = {keys}, .variables = \
         &session_variables, .sessions_max = {}, .idle = {}}};",
        session.role.index(),
        session.sessions_max,
        milliseconds(session.idle),
    ));
    out.line("");
}

fn whole(out: &mut Printer<'_>, program: &Program, machine: &Machine) {
    out.open("static const struct gw_handler *const handlers[] = {");
    for handler in &machine.handlers {
        out.line(&format!("&{}_handler,", handler.name));
    }
    if machine.handlers.is_empty() {
        out.line("NULL,");
    }
    out.close("};");
    out.line("");
    let session = if program.session.is_some() { "&session" } else { "NULL" };
    let parameters = match program.parameters.len() {
        0 => String::new(),
        count => format!(", .parameters = parameters, .parameters_count = {count}"),
    };
    out.line(&format!(
        "const struct gw_program gw_program = {{.name = {:?}, .roles = roles, .roles_count = {}, \
         .handlers = handlers, .handlers_count = {}, .session = {session}{parameters}}};",
        program.name,
        program.roles.len(),
        machine.handlers.len(),
    ));
}
