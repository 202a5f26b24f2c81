//! Prints a program as readable text, and its handlers as graphs.

use crate::ir::{
    Action, Answer, BlockId, Build, Emit, Guard, Handler, HandlerKind, Instruction, LiteralId,
    Message, MessageId, Operand, ParseOp, Pattern, PeersId, Program, RegisterId, Role, RoleId,
    Select, SlotId, SlotType, Source, StreamFraming, Terminator, Test,
};
use std::fmt::Write;

/// Every message, role and handler of a program, one instruction per line.
///
/// The text is for people and for tests; no program reads it, and it may change.
pub fn listing(program: &Program) -> String {
    let mut out = String::new();
    for message in &program.messages {
        Listing { program, message: Some(message), handler: None, is_drawn: false }
            .message(&mut out, message);
    }
    for role in &program.roles {
        Listing { program, message: None, handler: None, is_drawn: false }.role(&mut out, role);
    }
    for handler in &program.handlers {
        Listing { program, message: None, handler: Some(handler), is_drawn: false }
            .handler(&mut out, handler);
    }
    for line in &program.bounds.lines {
        let _ = writeln!(out, "bound {:>8}  {}", line.octets, line.what);
    }
    let _ = writeln!(out, "bound {:>8}  a session", program.bounds.session_octets);
    out
}

/// The handlers as a graph in the dot language, with double borders for suspension points.
pub fn graph(program: &Program) -> String {
    let mut out = String::from("digraph gateway {\n  node [shape=box fontname=monospace]\n");
    for (index, handler) in program.handlers.iter().enumerate() {
        let list = Listing { program, message: None, handler: Some(handler), is_drawn: true };
        let _ = writeln!(out, "  subgraph cluster_{index} {{ label={:?}", handler.name);
        for (number, block) in handler.blocks.iter().enumerate() {
            // As the lines below name it.
            let mut text = format!("b{number}:\n");
            for statement in &block.statements {
                let _ = writeln!(text, "{}", list.operation(&statement.operation));
            }
            text += &list.terminator(&block.terminator);
            let label = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\l");
            let double = if block.terminator.suspends() { " peripheries=2" } else { "" };
            let _ = writeln!(out, "    h{index}b{number} [label=\"{label}\\l\"{double}]");
            for target in block.terminator.targets() {
                let _ = writeln!(out, "    h{index}b{number} -> h{index}b{}", target.index());
            }
        }
        out += "  }\n";
    }
    out + "}\n"
}

struct Listing<'p> {
    program: &'p Program,
    message: Option<&'p Message>,
    handler: Option<&'p Handler>,
    /// Whether it is for a graph, which has no table of registers.
    is_drawn: bool,
}

impl Listing<'_> {
    fn literal(&self, id: LiteralId) -> String {
        format!("\"{}\"", self.program.literal(id).escape_ascii())
    }

    fn slot(&self, id: SlotId) -> String {
        slot_name(self.message, id)
    }

    fn slots(&self, ids: &[SlotId]) -> String {
        ids.iter().map(|id| self.slot(*id)).collect::<Vec<_>>().join(" ")
    }

    fn name(&self, id: MessageId) -> &str {
        self.program.message(id).map_or("?", |message| &message.name)
    }

    // -- Messages.

    fn message(&self, out: &mut String, message: &Message) {
        let kind = if message.datagram { " datagram" } else { "" };
        let _ = writeln!(
            out,
            "message {}{kind}, window {}, holds {}",
            message.name, message.window_max, message.octets_max
        );
        for slot in &message.slots {
            let marks = [
                (slot.optional, " optional"),
                (slot.private, " private"),
                (slot.scratch, " scratch"),
            ];
            let marks: String = marks.iter().filter(|(is, _)| *is).map(|(_, mark)| *mark).collect();
            let _ = writeln!(out, "  slot {}: {}{marks}", slot.name, slot_type(&slot.ty));
        }
        for (number, step) in message.parser.iter().enumerate() {
            let _ = writeln!(out, "  {number:>3} {}", self.parse_op(&step.op));
        }
        for part in &message.emit {
            self.emit(out, part, 2);
        }
    }

    fn parse_op(&self, op: &ParseOp) -> String {
        let into = |slot: &Option<SlotId>| match slot {
            Some(slot) => format!(" -> {}", self.slot(*slot)),
            None => String::new(),
        };
        match op {
            ParseOp::Literal { literal, .. } => format!("literal {}", self.literal(*literal)),
            ParseOp::Until { delimiter, into: to, fold, max } => {
                format!("until {} {fold:?} at most {max}{}", self.literal(*delimiter), into(to))
            }
            ParseOp::Run { class, into: to, fold, min, max, .. } => {
                format!("run of {class:?} {fold:?} {min}..{max}{}", into(to))
            }
            ParseOp::Take { length, into: to, fold, max, .. } => {
                format!("take {length:?} {fold:?} at most {max}{}", into(to))
            }
            ParseOp::Digits { radix, min, max, into } => {
                format!("digits base {radix} {min}..{max} -> {}", self.slot(*into))
            }
            ParseOp::OneOf { set, into, .. } => {
                format!("one of {} -> {}", self.literal(*set), self.slot(*into))
            }
            ParseOp::Word { octets, order, fields } => {
                let mut text = format!("word {octets} {order:?}");
                for field in fields {
                    let sign = if field.signed { "i" } else { "" };
                    let _ = write!(text, " [{sign}{}>>{}", field.width, field.shift);
                    match field.expect {
                        Some(value) => drop(write!(text, " = {value}]")),
                        None => drop(write!(text, "{}]", into(&field.into))),
                    }
                }
                text
            }
            ParseOp::Varint { octets_max, into } => {
                format!("varint at most {octets_max} -> {}", self.slot(*into))
            }
            ParseOp::Extend { slot, cases } => format!("extend {} {cases:?}", self.slot(*slot)),
            ParseOp::Sum { into, add } => format!("{} += {}", self.slot(*into), self.slot(*add)),
            ParseOp::EnterLine { max, folded } => {
                let folded = if *folded { " folded" } else { "" };
                format!("enter{folded} line at most {max}")
            }
            ParseOp::EnterCounted { length, less, max } => {
                let less = if *less == 0 { String::new() } else { format!(" - {less}") };
                format!("enter {}{less} octets at most {max}", self.slot(*length))
            }
            _ => self.parse_control(op),
        }
    }

    fn parse_control(&self, op: &ParseOp) -> String {
        match op {
            ParseOp::Leave => "leave".to_owned(),
            ParseOp::BeginCheck { by } => format!("begin {by:?}"),
            ParseOp::EndCheck { by } => format!("end {by:?}"),
            ParseOp::AtEnd { then } => format!("at end -> {}", then.index()),
            ParseOp::Peek { literal, then } => {
                format!("peek {} -> {}", self.literal(*literal), then.index())
            }
            ParseOp::Branch { guard, otherwise } => {
                format!("unless {} -> {}", self.guard(guard), otherwise.index())
            }
            ParseOp::Jump(to) => format!("jump {}", to.index()),
            ParseOp::Count { counter, max } => format!("count {counter} at most {max}"),
            ParseOp::Clear { slots } => format!("clear {}", self.slots(slots)),
            ParseOp::Lookup { key, value, entries } => {
                let mut text = format!("lookup {} of {}:", self.slot(*value), self.slot(*key));
                for entry in entries {
                    let key = match entry.key {
                        crate::ir::TableKey::Octets(literal) => self.literal(literal),
                        crate::ir::TableKey::Int(value) => value.to_string(),
                    };
                    let _ = write!(text, " {key}->{} {:?}", self.slot(entry.into), entry.convert);
                }
                text
            }
            ParseOp::Copy { from, into } => {
                format!("copy {} -> {}", self.slot(*from), self.slot(*into))
            }
            ParseOp::Append { list, columns } => {
                format!("append {} to {}", self.slots(columns), self.slot(*list))
            }
            ParseOp::Settle { slots } => format!("settle {}", self.slots(slots)),
            ParseOp::Stream { into, select, max } => {
                let max = max.map(|max| format!(" at most {max}")).unwrap_or_default();
                format!("stream {} {}{max}", self.slot(*into), self.select(select))
            }
            ParseOp::Accept => "accept".to_owned(),
            _ => "refuse".to_owned(),
        }
    }

    fn guard(&self, guard: &Guard) -> String {
        match guard {
            Guard::Always => "always".to_owned(),
            Guard::Is { slot, patterns } => {
                format!("{} is {}", self.slot(*slot), self.patterns(patterns))
            }
            Guard::Present(slot) => format!("{} is present", self.slot(*slot)),
            Guard::All(guards) => format!("({})", self.guards(guards, " and ")),
            Guard::Any(guards) => format!("({})", self.guards(guards, " or ")),
            Guard::Not(guard) => format!("not {}", self.guard(guard)),
        }
    }

    fn guards(&self, guards: &[Guard], between: &str) -> String {
        guards.iter().map(|guard| self.guard(guard)).collect::<Vec<_>>().join(between)
    }

    fn patterns(&self, patterns: &[Pattern]) -> String {
        let text = |pattern: &Pattern| match pattern {
            Pattern::Int { low, high } if low == high => low.to_string(),
            Pattern::Int { low, high } => format!("{low}..{high}"),
            Pattern::Octets(literal) => self.literal(*literal),
            Pattern::Empty => "empty".to_owned(),
        };
        patterns.iter().map(text).collect::<Vec<_>>().join(" or ")
    }

    fn select(&self, select: &[Select]) -> String {
        let one = |select: &Select| {
            let framing = match select.framing {
                StreamFraming::Lines { terminator, stuffing } => {
                    format!("lines until {} {}", self.literal(terminator), self.literal(stuffing))
                }
                StreamFraming::Counted(slot) => format!("{} octets", self.slot(slot)),
                other => format!("{other:?}"),
            };
            format!("[{}: {framing}]", self.guard(&select.guard))
        };
        select.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    fn emit(&self, out: &mut String, part: &Emit, indent: usize) {
        let _ = write!(out, "{:indent$}emit ", "");
        let (head, inner): (String, Vec<&[Emit]>) = match part {
            Emit::Literal(literal) => (self.literal(*literal), Vec::new()),
            Emit::Octets { from, check } => {
                let mut text = format!("octets {} {}..{}", self.source(from), check.min, check.max);
                if let Some(class) = check.class {
                    let _ = write!(text, " {class:?}");
                }
                if let Some(without) = check.without {
                    let _ = write!(text, " without {}", self.literal(without));
                }
                text += if check.one_line { " one line" } else { "" };
                (text, Vec::new())
            }
            Emit::Digits { from, radix, width, max } => {
                (format!("digits {} base {radix} {width}..{max}", self.source(from)), Vec::new())
            }
            Emit::Word { octets, order, fields } => {
                let mut text = format!("word {octets} {order:?}");
                for field in fields {
                    let from = self.source(&field.from);
                    let sign = if field.signed { "i" } else { "" };
                    let _ = write!(text, " [{sign}{}<<{} {from}]", field.width, field.shift);
                }
                (text, Vec::new())
            }
            Emit::Varint { from, .. } => (format!("varint {}", self.source(from)), Vec::new()),
            Emit::Extension { of, .. } => (format!("extension of {}", self.source(of)), Vec::new()),
            Emit::Counted { octets, order, more, max, body } => {
                let more = if *more == 0 { String::new() } else { format!(" + {more}") };
                (format!("counted {octets} {order:?}{more} at most {max}"), vec![body])
            }
            Emit::Checked { by, body } => (format!("checked by {by:?}"), vec![body]),
            Emit::Bounded { max, body } => (format!("at most {max} octets"), vec![body]),
            Emit::Let { local, value } => {
                (format!("let %{} = {}", local.index(), self.source(value)), Vec::new())
            }
            Emit::IfPresent { slot, then, otherwise } => {
                (format!("if {} then / else", self.slot(*slot)), vec![then, otherwise])
            }
            Emit::When { guard, then } => (format!("when {}", self.guard(guard)), vec![then]),
            Emit::ForEach { list, body } => (format!("for each {}", self.slot(*list)), vec![body]),
            Emit::Stream { slot, select } => {
                (format!("stream {} {}", self.slot(*slot), self.select(select)), Vec::new())
            }
        };
        let _ = writeln!(out, "{head}");
        for (number, parts) in inner.into_iter().enumerate() {
            if number > 0 && !parts.is_empty() {
                let _ = writeln!(out, "{:indent$}else", "");
            }
            for part in parts {
                self.emit(out, part, indent + 2);
            }
        }
    }

    fn source(&self, source: &Source) -> String {
        match source {
            Source::Slot(slot) => self.slot(*slot),
            Source::SlotOr(slot, default) => format!("({} or {default})", self.slot(*slot)),
            Source::Element(column) => format!("element.{column}"),
            Source::Local(local) => format!("%{}", local.index()),
            Source::Int(value) => value.to_string(),
            Source::Literal(literal) => self.literal(*literal),
            Source::Size(of) => format!("size({})", self.source(of)),
            Source::Count(slot) => format!("count({})", self.slot(*slot)),
            Source::Difference(one, other) => {
                format!("({} - {})", self.source(one), self.source(other))
            }
            Source::Escape { of, .. } => format!("escape({})", self.source(of)),
            Source::Decimal(of) => format!("decimal({})", self.source(of)),
            Source::Uint(of) => format!("uint({})", self.source(of)),
        }
    }

    // -- Roles.

    fn role(&self, out: &mut String, role: &Role) {
        let _ = writeln!(
            out,
            "role {} = {} {:?} {:?} {:?} {:?} at {}, at most {}, idle {:?}",
            role.name,
            role.protocol,
            role.side,
            role.transport,
            role.mode,
            role.cast,
            role.address,
            role.connections_max,
            role.idle
        );
        for request in &role.requests {
            let view = self.program.message(request.view);
            let list = Listing { message: view, ..*self };
            let waits = list.slots(&request.waits);
            let _ = writeln!(out, "  request {} waits {waits}", self.name(request.view));
            for case in &request.cases {
                let action = match &case.action {
                    Action::Handle(id) => {
                        self.program.handler(*id).map_or("?", |handler| &handler.name).to_owned()
                    }
                    Action::Answer(answer) => self.answer(answer),
                };
                let _ = writeln!(out, "    {} -> {action}", list.guard(&case.guard));
            }
        }
        let _ = writeln!(out, "  response {}", self.name(role.response));
        for key in &role.flow {
            let request = slot_name(self.program.message(key.view), key.request);
            let _ = writeln!(out, "  flow {}.{request}", self.name(key.view));
        }
        if let Some(greeting) = &role.greeting {
            let _ = writeln!(out, "  greeting {}", self.build(greeting));
        }
        for (what, answer) in
            [("malformed", &role.malformed), ("failed", &role.failed), ("full", &role.full)]
        {
            let _ = writeln!(out, "  {what} -> {}", self.answer(answer));
        }
        for (what, answer) in &role.too_long {
            let _ = writeln!(out, "  too long {} -> {}", what.word(), self.answer(answer));
        }
        if let Some(reuse) = &role.reuse {
            let _ = writeln!(out, "  {reuse:?}");
        }
        if let Some(shared) = role.shared {
            let _ = writeln!(out, "  shared, at most {shared} waiting");
        }
        if let Some(retransmit) = &role.retransmit {
            let _ = writeln!(out, "  {retransmit:?}");
        }
        if let Some(duplicates) = &role.duplicates {
            let _ = writeln!(out, "  {duplicates:?}");
        }
    }

    fn answer(&self, answer: &Answer) -> String {
        let message = answer.message.as_ref().map(|build| self.build(build));
        let close = if answer.close { " close" } else { "" };
        format!("{}{close}", message.unwrap_or_else(|| "nothing".to_owned()))
    }

    fn build(&self, build: &Build) -> String {
        let message = self.program.message(build.message);
        let hole = |hole: &crate::ir::Hole| {
            format!("{}: {}", slot_name(message, hole.slot), self.operand(hole.value))
        };
        let holes: Vec<String> = build.holes.iter().map(hole).collect();
        format!("{}({})", self.name(build.message), holes.join(", "))
    }

    // -- Handlers.

    fn handler(&self, out: &mut String, handler: &Handler) {
        let _ = writeln!(out, "handler {} {:?}", handler.name, handler.kind);
        for (number, register) in handler.registers.iter().enumerate() {
            let _ = writeln!(out, "  r{number} {:?} {:?}", register.name, register.ty);
        }
        for number in 0..handler.blocks.len() {
            let id = BlockId::new(number);
            let Some(block) = handler.block(id) else { continue };
            let _ = writeln!(out, "  b{number}:");
            for statement in &block.statements {
                let _ = writeln!(out, "    {}", self.operation(&statement.operation));
            }
            let _ = writeln!(out, "    {}", self.terminator(&block.terminator));
        }
    }

    /// A register: in a graph by its name in the text, with its number where several have that name.
    fn register(&self, id: RegisterId) -> String {
        let registers = self.handler.map_or(&[][..], |handler| &handler.registers);
        let number = id.index();
        let name = registers.get(number).map_or("", |register| &register.name);
        if !self.is_drawn || name.is_empty() {
            return format!("r{number}");
        }
        let is_one = registers.iter().filter(|register| register.name == name).count() == 1;
        if is_one { name.to_owned() } else { format!("{name}_{number}") }
    }

    fn operand(&self, operand: Operand) -> String {
        match operand {
            Operand::Register(register) => self.register(register),
            Operand::Int(value) => value.to_string(),
            Operand::Literal(literal) => self.literal(literal),
            Operand::Slot { view, slot } => {
                format!("{}.{}", self.register(view), slot_name(self.view(view), slot))
            }
            Operand::Request(slot) => {
                let message = match self.handler.map(|handler| handler.kind) {
                    Some(HandlerKind::Request { view, .. }) => self.program.message(view),
                    _ => None,
                };
                format!("request.{}", slot_name(message, slot))
            }
            Operand::Session(slot) => {
                let session = self.program.session.as_ref();
                let slot = session.and_then(|session| session.slots.get(slot.index()));
                format!("session.{}", slot.map_or("?", |slot| &slot.name))
            }
            Operand::Parameter(id) => {
                let parameter = self.program.parameter(id);
                format!("parameter {}", parameter.map_or("?", |of| &of.name))
            }
            Operand::Peers(id) => format!("session.{}", self.peers(id)),
            Operand::Kept(at) => format!("kept.{at}"),
            Operand::Fresh => "fresh".to_owned(),
        }
    }

    fn peers(&self, id: PeersId) -> &str {
        let session = self.program.session.as_ref();
        session.and_then(|session| session.peers(id)).map_or("?", |peers| &peers.name)
    }

    /// The message in a register.
    fn view(&self, register: RegisterId) -> Option<&Message> {
        let register = self.handler?.registers.get(register.index())?;
        match register.ty {
            crate::ir::RegisterType::View(id) => self.program.message(id),
            _ => None,
        }
    }

    fn to(&self, role: RoleId, address: Option<Operand>) -> String {
        let at = address.map_or(String::new(), |of| format!(" at {}", self.operand(of)));
        format!("{}{at}", self.role_name(role))
    }

    fn role_name(&self, id: RoleId) -> &str {
        self.program.role(id).map_or("?", |role| &role.name)
    }

    fn operation(&self, operation: &Instruction) -> String {
        let session = |slot: &SlotId| self.operand(Operand::Session(*slot));
        match operation {
            Instruction::Set { into, value } => {
                format!("{} = {}", self.register(*into), self.operand(*value))
            }
            Instruction::Compute { into, operator, left, right } => {
                let (left, right) = (self.operand(*left), self.operand(*right));
                format!("{} = {left} {operator:?} {right}", self.register(*into))
            }
            Instruction::Format { into, pieces } => {
                let piece = |piece: &crate::ir::TextPiece| match piece {
                    crate::ir::TextPiece::Literal(literal) => self.literal(*literal),
                    crate::ir::TextPiece::Octets(operand) => self.operand(*operand),
                    crate::ir::TextPiece::Decimal(operand) => {
                        format!("decimal({})", self.operand(*operand))
                    }
                };
                let pieces: Vec<String> = pieces.iter().map(piece).collect();
                format!("{} = {}", self.register(*into), pieces.join(" & "))
            }
            Instruction::First { into, of, octets } => {
                format!("{} = first {octets} of {}", self.register(*into), self.operand(*of))
            }
            Instruction::Hex { into, of } => {
                format!("{} = hex of {}", self.register(*into), self.operand(*of))
            }
            Instruction::Fold { into, of, fold } => {
                format!("{} = {fold:?} of {}", self.register(*into), self.operand(*of))
            }
            Instruction::Size { into, of } => {
                format!("{} = size of {}", self.register(*into), self.operand(*of))
            }
            Instruction::SetSession { slot, value } => {
                format!("{} = {}", session(slot), self.operand(*value))
            }
            Instruction::Empty { into } => format!("clear {}", self.register(*into)),
            Instruction::ClearSession { slot } => format!("clear {}", session(slot)),
            Instruction::EndSession => "end session".to_owned(),
            Instruction::Provisional(build) => format!("provisional {}", self.build(build)),
            Instruction::Part { peers } => format!("remove requester from {}", self.peers(*peers)),
            Instruction::ForgetRequester => "forget requester".to_owned(),
            Instruction::ClearPeers { peers } => format!("clear {}", self.peers(*peers)),
            Instruction::Tell { peers, cursor, message } => format!(
                "send {} to {} by {}",
                self.build(message),
                self.peers(*peers),
                self.register(*cursor)
            ),
            Instruction::Release { role } => format!("release {}", self.role_name(*role)),
            Instruction::Hangup { role } => format!("close {}", self.role_name(*role)),
        }
    }

    fn terminator(&self, terminator: &Terminator) -> String {
        let to = |block: &BlockId| format!("b{}", block.index());
        match terminator {
            Terminator::Jump(then) => format!("jump {}", to(then)),
            Terminator::Branch { test, then, otherwise } => {
                format!("if {} -> {} else {}", self.test(test), to(then), to(otherwise))
            }
            Terminator::Try { partial, into, present, absent } => format!(
                "{} = try {partial:?} -> {} absent {}",
                self.register(*into),
                to(present),
                to(absent)
            ),
            Terminator::Append { list, value, done, full } => format!(
                "append {} to {} -> {} full {}",
                self.operand(*value),
                self.operand(*list),
                to(done),
                to(full)
            ),
            Terminator::Next { list, cursor, into, body, done } => {
                let into: Vec<String> = into.iter().map(|of| self.register(*of)).collect();
                let (list, cursor) = (self.operand(*list), self.register(*cursor));
                let (into, body, done) = (into.join(" "), to(body), to(done));
                format!("{into} = next of {list} by {cursor} -> {body} done {done}")
            }
            Terminator::StartSession { key, then, full } => {
                format!("start session{} -> {} full {}", self.key(*key), to(then), to(full))
            }
            Terminator::ResumeSession { key, then, none } => {
                format!("resume session{} -> {} none {}", self.key(*key), to(then), to(none))
            }
            Terminator::NextPart { of, separator, cursor, into, body, done } => {
                let (of, separator) = (self.operand(*of), self.literal(*separator));
                let (into, cursor) = (self.register(*into), self.register(*cursor));
                let (body, done) = (to(body), to(done));
                format!("{into} = next of {of} by {separator} {cursor} -> {body} done {done}")
            }
            Terminator::Store { peers, done, full } => {
                format!(
                    "store requester in {} -> {} full {}",
                    self.peers(*peers),
                    to(done),
                    to(full)
                )
            }
            Terminator::EachPeer { peers, cursor, body, done } => format!(
                "next peer of {} by {} -> {} done {}",
                self.peers(*peers),
                self.register(*cursor),
                to(body),
                to(done)
            ),
            Terminator::Return { message, close } => {
                let message = message.as_ref().map(|build| self.build(build));
                let close = if *close { " and close" } else { "" };
                format!("return {}{close}", message.unwrap_or_default())
            }
            Terminator::Close => "close".to_owned(),
            Terminator::Done => "done".to_owned(),
            Terminator::Fail => "fail".to_owned(),
            _ => self.suspension(terminator),
        }
    }

    fn key(&self, key: Option<Operand>) -> String {
        key.map_or(String::new(), |key| format!(" as {}", self.operand(key)))
    }

    fn suspension(&self, terminator: &Terminator) -> String {
        let to = |block: &BlockId| format!("b{}", block.index());
        match terminator {
            Terminator::Await { view, slots, then } => {
                let name = |slot: &SlotId| slot_name(self.view(*view), *slot);
                let slots: Vec<String> = slots.iter().map(name).collect();
                format!("await {} {} -> {}", self.register(*view), slots.join(" "), to(then))
            }
            Terminator::Send { role, address, message, response, within, then, failed } => {
                let into =
                    response.map_or(String::new(), |(_, of)| format!("{} = ", self.register(of)));
                let (role, message) = (self.to(*role, *address), self.build(message));
                let (then, failed) = (to(then), to(failed));
                format!(
                    "{into}send {message} to {role} within {within:?} -> {then} failed {failed}"
                )
            }
            Terminator::Gather { role, address, message, response, within, max, body, done } => {
                let (role, message) = (self.to(*role, *address), self.build(message));
                let (into, body, done) = (self.register(response.1), to(body), to(done));
                format!(
                    "{into} = each of send {message} to {role} within {within:?} at most {max} \
                     -> {body} done {done}"
                )
            }
            Terminator::NextResponse { gather } => format!("next response of {}", to(gather)),
            Terminator::Receive { view, into, within, then, failed } => format!(
                "{} = receive {} within {within:?} -> {} failed {}",
                self.register(*into),
                self.name(*view),
                to(then),
                to(failed)
            ),
            Terminator::Sleep { period, then } => format!("sleep {period:?} -> {}", to(then)),
            _ => String::new(),
        }
    }

    fn test(&self, test: &Test) -> String {
        let all = |tests: &[Test], between: &str| {
            tests.iter().map(|test| self.test(test)).collect::<Vec<_>>().join(between)
        };
        match test {
            Test::Is { value, patterns } => {
                format!("{} is {}", self.operand(*value), self.patterns(patterns))
            }
            Test::Present(value) => format!("{} is present", self.operand(*value)),
            Test::Equal(one, other) => {
                format!("{} = {}", self.operand(*one), self.operand(*other))
            }
            Test::Less(one, other) => format!("{} < {}", self.operand(*one), self.operand(*other)),
            Test::All(tests) => format!("({})", all(tests, " and ")),
            Test::Any(tests) => format!("({})", all(tests, " or ")),
            Test::Not(test) => format!("not {}", self.test(test)),
        }
    }
}

fn slot_name(message: Option<&Message>, id: SlotId) -> String {
    message
        .and_then(|message| message.slot(id))
        .map_or_else(|| format!("?{}", id.index()), |slot| slot.name.clone())
}

fn slot_type(ty: &SlotType) -> String {
    match ty {
        SlotType::Int { low, high } => format!("{low}..{high}"),
        SlotType::Octets { max } => format!("octets at most {max}"),
        SlotType::List { columns, max } => format!("list of {columns:?} at most {max}"),
        SlotType::Stream => "stream".to_owned(),
    }
}
