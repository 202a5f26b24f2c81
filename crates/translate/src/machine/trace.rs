//! Traces of a machine, step by step.

use super::Machine;
use super::slab::{IncomingId, TaskId};
use super::state::{Reg, Task, rows_of};
use crate::parser::Malformed;
use crate::view::{Held, Value};
use gatewright_diagnostic::Span;
use gatewright_lang::ir::{HandlerId, Instruction, MessageId, RoleId, SlotId, Terminator};

/// A traced step of a machine.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum MachineStep {
    /// Octets arrived.
    Arrived {
        /// The role whose peer sent them.
        role: RoleId,
        /// The octets.
        octets: Vec<u8>,
    },
    /// A message was read to its end.
    Read {
        /// The message.
        message: MessageId,
        /// Its fields, readable; absent ones are left out.
        fields: Vec<(String, String)>,
    },
    /// A message could not be read.
    Malformed {
        /// The message.
        message: MessageId,
        /// The reason.
        why: String,
        /// The item of the layout.
        span: Span,
    },
    /// A case of a dispatch was taken.
    Case {
        /// Source position of the case.
        span: Span,
    },
    /// A handler started.
    Started {
        /// The handler.
        handler: HandlerId,
    },
    /// A statement was executed, or begun if it waits.
    Did {
        /// Source position of the statement.
        span: Span,
        /// The name that it set, empty if it has none, and the value.
        set: Option<(String, String)>,
    },
    /// A handler ended.
    Ended {
        /// The handler.
        handler: HandlerId,
        /// Whether it ended by itself.
        finished: bool,
    },
    /// Octets were sent.
    Sent {
        /// The role whose peer receives them.
        role: RoleId,
        /// The octets.
        octets: Vec<u8>,
    },
}

/// Maximum number of steps kept until they are taken.
const STEPS_MAX: usize = 10_000;

impl Machine {
    /// Keeps every step from here on, at most 10,000 until [`take_trace`](Self::take_trace).
    pub fn trace(&mut self) {
        self.traced.get_or_insert_default();
    }

    /// Takes the steps recorded since the last call.
    pub fn take_trace(&mut self) -> Vec<MachineStep> {
        self.traced.as_mut().map(core::mem::take).unwrap_or_default()
    }

    pub(crate) fn note(&mut self, step: impl FnOnce() -> MachineStep) {
        if let Some(steps) = self.traced.as_mut().filter(|steps| steps.len() < STEPS_MAX) {
            steps.push(step());
        }
    }

    pub(crate) fn note_read(&mut self, id: IncomingId) {
        if self.traced.is_none() {
            return;
        }
        let Some(incoming) = self.incomings.get(id) else { return };
        let (message, view) = (incoming.message, incoming.parser.view());
        let slots = self.program.message(message).map(|of| of.slots.as_slice());
        let slots = slots.unwrap_or_default().iter().enumerate().filter(|(_, slot)| !slot.scratch);
        let fields = slots
            .filter_map(|(index, slot)| {
                let value = view.get(SlotId::new(index))?;
                Some((slot.name.clone(), shown(&value)))
            })
            .collect();
        self.note(|| MachineStep::Read { message, fields });
    }

    pub(crate) fn note_malformed(&mut self, message: MessageId, malformed: Malformed) {
        let span = malformed.span;
        self.note(|| MachineStep::Malformed { message, why: malformed.to_string(), span });
    }

    pub(crate) fn note_did(&mut self, task: &Task, operation: &Instruction, span: Span) {
        if self.traced.is_none() {
            return;
        }
        let into = match operation {
            Instruction::Set { into, .. }
            | Instruction::Empty { into }
            | Instruction::Compute { into, .. }
            | Instruction::Format { into, .. }
            | Instruction::First { into, .. }
            | Instruction::Hex { into, .. }
            | Instruction::Fold { into, .. }
            | Instruction::Size { into, .. } => Some(*into),
            _ => None,
        };
        let set = into.and_then(|into| self.register_shown(task, into));
        self.note(|| MachineStep::Did { span, set });
    }

    pub(crate) fn note_left(&mut self, task: &Task, terminator: &Terminator, span: Span) {
        let into = match terminator {
            Terminator::Jump(_) | Terminator::NextResponse { .. } | Terminator::Await { .. } => {
                return;
            }
            Terminator::Try { into, .. } => Some(*into),
            _ => None,
        };
        if self.traced.is_some() {
            let set = into.and_then(|into| self.register_shown(task, into));
            self.note(|| MachineStep::Did { span, set });
        }
    }

    fn register_shown(
        &self,
        task: &Task,
        id: gatewright_lang::ir::RegisterId,
    ) -> Option<(String, String)> {
        let handler = self.program.handler(task.handler)?;
        let name = &handler.registers.get(id.index())?.name;
        let value = match task.register(id) {
            Reg::Int(value) => shown(&Value::Int(*value)),
            Reg::Octets(octets) => shown(&Value::Octets(octets.clone())),
            Reg::List(list) => shown(&Held::List(rows_of(list)).to_value()),
            Reg::Unset | Reg::View(_) => return None,
        };
        Some((name.clone(), value))
    }

    pub(crate) fn note_ended(&mut self, id: TaskId, finished: bool) {
        if let Some(handler) = self.tasks.get(id).map(|task| task.handler) {
            self.note(|| MachineStep::Ended { handler, finished });
        }
    }
}

/// A value in readable form.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Int(value) => value.to_string(),
        Value::Octets(octets) => format!("\"{}\"", octets.escape_ascii()),
        Value::List(rows) => {
            let row = |row: &Vec<Value>| row.iter().map(shown).collect::<Vec<_>>().join(" ");
            format!("[{}]", rows.iter().map(row).collect::<Vec<_>>().join(", "))
        }
        Value::Stream => "a stream".to_owned(),
    }
}
