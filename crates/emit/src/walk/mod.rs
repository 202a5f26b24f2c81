//! Walks a typed program, and builds the tree that the printers print.

mod build;
mod handler;
mod read;
mod role;
mod whole;
mod write;

use crate::Unwritable;
use crate::code::{Expr, Machine, RecordType};
use crate::names::Names;
use gatewright_lang::ir::{
    Guard, Message, ParseOp, Pattern, Program, RoleId, SlotId, SlotType, TooLong,
};

/// Maximum nesting of lines, counted blocks and checks in the runtimes, below the whole message.
const DEPTH_MAX: usize = 15;

/// Maximum columns of a list in the runtimes.
const COLUMNS_MAX: usize = 32;

/// The messages of a program, in their order.
pub(crate) fn records(program: &Program) -> Result<Vec<RecordType>, Unwritable> {
    let mut names = Names::default();
    program.messages.iter().map(|message| record(message, names.give(&message.name))).collect()
}

fn record(message: &Message, name: String) -> Result<RecordType, Unwritable> {
    bounded(message)?;
    let mut given = Names::default();
    let slots: Vec<String> = message.slots.iter().map(|slot| given.give(&slot.name)).collect();
    let mut names = SlotNames { message, slots };
    let read = read::steps(&names, &message.parser);
    let whole = whole::steps(&names, &message.parser);
    let write = write::write(&mut given, &names, &message.emit);
    let slots = std::mem::take(&mut names.slots);
    Ok(RecordType { name, slots, read, whole, write })
}

fn bounded(message: &Message) -> Result<(), Unwritable> {
    let (mut depth, mut deepest) = (0_usize, 0);
    for step in &message.parser {
        match step.op {
            ParseOp::EnterLine { .. }
            | ParseOp::EnterCounted { .. }
            | ParseOp::BeginCheck { .. } => {
                depth += 1;
            }
            ParseOp::Leave | ParseOp::EndCheck { .. } => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    let message_name = || message.name.clone();
    if deepest > DEPTH_MAX {
        return Err(Unwritable::TooDeep {
            message: message_name(),
            depth: deepest,
            max: DEPTH_MAX,
        });
    }
    for slot in &message.slots {
        if let SlotType::List { columns, .. } = &slot.ty
            && columns.len() > COLUMNS_MAX
        {
            let (columns, max) = (columns.len(), COLUMNS_MAX);
            return Err(Unwritable::TooWide { message: message_name(), columns, max });
        }
    }
    Ok(())
}

/// For each step of a message's reader, the number of what is too long if it finds more than it
/// may: 0 for nothing, or the place in [`TooLong::ALL`] from 1. `None` if no role has an answer to
/// it.
pub(crate) fn too_long(program: &Program, message: &Message) -> Option<Vec<u8>> {
    program.roles.iter().find(|role| !role.too_long.is_empty())?;
    let number = |of: Option<TooLong>| {
        let of = of.and_then(|of| TooLong::ALL.iter().position(|other| *other == of));
        of.and_then(|at| u8::try_from(at + 1).ok()).unwrap_or_default()
    };
    let steps: Vec<u8> = message.too_long().into_iter().map(number).collect();
    steps.iter().any(|of| *of > 0).then_some(steps)
}

/// The program's processing of messages.
pub(crate) fn machine(program: &Program, records: &[RecordType]) -> Machine {
    let mut names = Names::default();
    for record in records {
        names.give(&record.name);
    }
    let mut machine = Machine::default();
    let handlers: Vec<String> =
        program.handlers.iter().map(|handler| names.give(&handler.name)).collect();
    let mut given = Names::default();
    let variables = program.session.iter().flat_map(|session| &session.slots);
    machine.variables = variables.map(|slot| given.give(&slot.name)).collect();
    for (handler, name) in program.handlers.iter().zip(&handlers) {
        let code = handler::code(program, records, &mut machine, handler, name);
        machine.handlers.push(code);
    }
    for (index, of) in program.roles.iter().enumerate() {
        let id = RoleId::new(index);
        let code = role::code(program, records, (&mut machine, &mut names), of, (id, &handlers));
        machine.roles.push(code);
    }
    machine
}

/// The names of one message's slots.
pub(crate) struct SlotNames<'m> {
    pub(crate) message: &'m Message,
    pub(crate) slots: Vec<String>,
}

impl SlotNames<'_> {
    pub(crate) fn slot(&self, id: SlotId) -> Expr {
        let name = self.slots.get(id.index()).cloned().unwrap_or_default();
        Expr::Slot("view".to_owned(), name)
    }

    fn slot_or_none(&self, id: Option<SlotId>) -> Expr {
        id.map_or(Expr::NoSlot, |id| self.slot(id))
    }

    fn is_number(&self, id: SlotId) -> bool {
        self.message.slot(id).is_some_and(|slot| matches!(slot.ty, SlotType::Int { .. }))
    }

    pub(crate) fn guard(&self, guard: &Guard) -> Expr {
        match guard {
            Guard::Always => Expr::Bool(true),
            Guard::Present(slot) => Expr::Call("is_set", vec![self.slot(*slot)]),
            Guard::All(guards) => Expr::all(guards.iter().map(|of| self.guard(of)).collect()),
            Guard::Any(guards) => Expr::any(guards.iter().map(|of| self.guard(of)).collect()),
            Guard::Not(guard) => Expr::negated(self.guard(guard)),
            Guard::Is { slot, patterns } => {
                let one = |pattern: &Pattern| self.pattern(*slot, *pattern);
                Expr::any(patterns.iter().map(one).collect())
            }
        }
    }

    fn pattern(&self, slot: SlotId, pattern: Pattern) -> Expr {
        let number = self.is_number(slot);
        match pattern {
            Pattern::Int { low, high } if number => {
                Expr::Call("is_within", vec![self.slot(slot), Expr::Int(low), Expr::Int(high)])
            }
            Pattern::Octets(literal) if !number => {
                Expr::Call("is", vec![self.slot(slot), Expr::Text(literal)])
            }
            Pattern::Empty if !number => Expr::Call("is_empty", vec![self.slot(slot)]),
            _ => Expr::Bool(false),
        }
    }
}
