//! Finds fields that are neither read nor filled.

use crate::codes;
use crate::ir::{
    Action, Answer, Build, Expect, Guard, Handler, Instruction, MessageId, Operand, ParseOp,
    Partial, Program, RegisterType, SessionKey, SlotId, SlotType, StepAction, StreamFraming,
    Terminator, Test, TextPiece,
};
use gatewright_diagnostic::{Diagnostic, SourceId};
use std::collections::BTreeSet;

/// Warns of fields in the views of `source` that the program does not use. Views of imported files
/// serve other programs, too.
pub(super) fn dead(program: &Program, source: SourceId, found: &mut Vec<Diagnostic>) {
    let mut uses = Uses { program, used: BTreeSet::new() };
    uses.everything();
    for (index, message) in program.messages.iter().enumerate() {
        if message.span.source != source || message.parser.is_empty() {
            continue;
        }
        for (number, slot) in message.slots.iter().enumerate() {
            let used = uses.used.contains(&(MessageId::new(index), SlotId::new(number)));
            let own = !slot.scratch && !slot.private && !slot.name.starts_with('_');
            if own && !used && slot.ty != SlotType::Stream {
                let message = format!("the field `{}` is neither read nor filled", slot.name);
                let name = format!("_{}", slot.name);
                let help = format!("write `{name}` if it only has to be there");
                found.push(
                    Diagnostic::warning(&codes::UNUSED, slot.span, message)
                        .fix(slot.span, name, &help),
                );
            }
        }
    }
}

struct Uses<'p> {
    program: &'p Program,
    used: BTreeSet<(MessageId, SlotId)>,
}

impl Uses<'_> {
    fn everything(&mut self) {
        let program = self.program;
        for (index, message) in program.messages.iter().enumerate() {
            for step in &message.parser {
                self.parser(MessageId::new(index), &step.op);
            }
        }
        for role in &program.roles {
            for request in &role.requests {
                for case in &request.cases {
                    self.guard(request.view, &case.guard);
                    if let Action::Answer(answer) = &case.action {
                        self.answer(answer, Some(request.view));
                    }
                }
            }
            for key in &role.flow {
                self.used.insert((key.view, key.request));
                self.used.insert((role.response, key.response));
            }
            self.used.extend(role.duplicates.iter().flat_map(|of| of.keys.iter().copied()));
            let view = role.requests.first().map(|request| request.view);
            let too_long = role.too_long.iter().map(|(_, answer)| answer);
            for answer in [&role.malformed, &role.failed, &role.full].into_iter().chain(too_long) {
                self.answer(answer, view);
            }
            if let Some(build) = &role.greeting {
                self.build(build, None, None);
            }
        }
        for peers in program.session.iter().flat_map(|session| &session.peers) {
            self.used.extend(peers.kept.iter().chain(&peers.mark).copied());
        }
        if let Some(SessionKey::Slots(keys)) = program.session.as_ref().map(|of| &of.key) {
            self.used.extend(keys.iter().copied());
        }
        for handler in &program.handlers {
            self.handler(handler);
        }
        for step in program.tests.iter().flat_map(|test| &test.steps) {
            if let StepAction::Sees { expect: Expect::Message { view, values }, .. } = &step.action
            {
                self.used.extend(values.iter().map(|(slot, _)| (*view, *slot)));
            }
        }
    }

    fn parser(&mut self, message: MessageId, op: &ParseOp) {
        match op {
            ParseOp::Branch { guard, .. } => self.guard(message, guard),
            ParseOp::Stream { select, .. } => {
                for select in select {
                    self.guard(message, &select.guard);
                    if let StreamFraming::Counted(slot) = select.framing {
                        self.used.insert((message, slot));
                    }
                }
            }
            _ => {}
        }
    }

    fn guard(&mut self, message: MessageId, guard: &Guard) {
        let mut slots = Vec::new();
        super::guard::looked_at(guard, &mut slots);
        // A repeated line's guard looks at the scratch slot; the field is the one it is copied to.
        for slot in slots {
            self.used.insert((message, slot));
            let copied = self.program.message(message).into_iter().flat_map(|of| &of.parser);
            for step in copied {
                if let ParseOp::Copy { from, into } = step.op
                    && from == slot
                {
                    self.used.insert((message, into));
                }
            }
        }
    }

    fn answer(&mut self, answer: &Answer, request: Option<MessageId>) {
        if let Some(build) = &answer.message {
            self.build(build, None, request);
        }
    }

    fn build(&mut self, build: &Build, handler: Option<&Handler>, request: Option<MessageId>) {
        for hole in &build.holes {
            self.used.insert((build.message, hole.slot));
            self.operand(hole.value, handler, request);
        }
    }

    fn operand(&mut self, of: Operand, handler: Option<&Handler>, request: Option<MessageId>) {
        match of {
            Operand::Slot { view, slot } => {
                let register = handler.and_then(|of| of.registers.get(view.index()));
                if let Some(RegisterType::View(message)) = register.map(|register| register.ty) {
                    self.used.insert((message, slot));
                }
            }
            Operand::Request(slot) => {
                self.used.extend(request.map(|message| (message, slot)));
            }
            _ => {}
        }
    }

    fn handler(&mut self, handler: &Handler) {
        let request = match handler.kind {
            crate::ir::HandlerKind::Request { view, .. } => Some(view),
            _ => None,
        };
        for block in &handler.blocks {
            for statement in &block.statements {
                if let Instruction::Provisional(build) | Instruction::Tell { message: build, .. } =
                    &statement.operation
                {
                    self.build(build, Some(handler), request);
                }
                for operand in operands(&statement.operation) {
                    self.operand(operand, Some(handler), request);
                }
            }
            if let Terminator::Send { message, .. }
            | Terminator::Gather { message, .. }
            | Terminator::Return { message: Some(message), .. } = &block.terminator
            {
                self.build(message, Some(handler), request);
            }
            for operand in asked(&block.terminator) {
                self.operand(operand, Some(handler), request);
            }
        }
    }
}

fn operands(operation: &Instruction) -> Vec<Operand> {
    match operation {
        Instruction::Set { value, .. } | Instruction::SetSession { value, .. } => vec![*value],
        Instruction::Compute { left, right, .. } => vec![*left, *right],
        Instruction::First { of, .. }
        | Instruction::Size { of, .. }
        | Instruction::Hex { of, .. }
        | Instruction::Fold { of, .. } => vec![*of],
        Instruction::Format { pieces, .. } => (pieces.iter())
            .filter_map(|piece| match piece {
                TextPiece::Octets(operand) | TextPiece::Decimal(operand) => Some(*operand),
                TextPiece::Literal(_) => None,
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// The operands of a terminator.
fn asked(terminator: &Terminator) -> Vec<Operand> {
    match terminator {
        Terminator::Branch { test, .. } => tested(test),
        Terminator::Try { partial, .. } => match *partial {
            Partial::Value(of)
            | Partial::After { of, .. }
            | Partial::Before { of, .. }
            | Partial::Join { of, .. }
            | Partial::Past { of, .. }
            | Partial::Decimal { of, .. } => vec![of],
            Partial::Item { of, index, .. } => vec![of, index],
        },
        Terminator::Append { list, value, .. } => vec![*list, *value],
        Terminator::Next { list, .. } => vec![*list],
        Terminator::NextPart { of, .. } => vec![*of],
        Terminator::StartSession { key, .. } | Terminator::ResumeSession { key, .. } => {
            key.iter().copied().collect()
        }
        Terminator::Send { address, .. } | Terminator::Gather { address, .. } => {
            address.iter().copied().collect()
        }
        _ => Vec::new(),
    }
}

fn tested(test: &Test) -> Vec<Operand> {
    match test {
        Test::Is { value, .. } | Test::Present(value) => vec![*value],
        Test::Equal(one, other) | Test::Less(one, other) => vec![*one, *other],
        Test::All(tests) | Test::Any(tests) => tests.iter().flat_map(tested).collect(),
        Test::Not(test) => tested(test),
    }
}
