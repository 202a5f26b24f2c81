//! Messages that are written: holes to octets.

use super::Machine;
use super::evaluate::Seen;
use super::pump::Source;
use super::read::{Incoming, Passing};
use super::slab::IncomingId;
use super::task::Task;
use crate::emit::{Unbuildable, emit};
use crate::view::{Value, View};
use gatewright_lang::ir::{Build, MessageId, Operand, RoleId, SlotId, SlotType};
use std::sync::Arc;

/// A message that was built.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) octets: Vec<u8>,
    pub(crate) stream: Option<Source>,
    /// What its response will have in common with it, in the order of the role's keys.
    pub(crate) flow: Vec<u8>,
}

/// How many octets a `fresh` hole of octets gets (docs/language.md §6.4).
const FRESH_OCTETS: usize = 4;

impl Machine {
    /// Builds a message of constants, outside of any request.
    pub(crate) fn build(
        &mut self,
        build: &Build,
        request: Option<IncomingId>,
        role: RoleId,
    ) -> Result<Built, Unbuildable> {
        self.build_for(build, None, request, role)
    }

    /// Builds a message, for a handler or for the protocol itself, that goes out by a role.
    pub(crate) fn build_for(
        &mut self,
        build: &Build,
        task: Option<&Task>,
        request: Option<IncomingId>,
        role: RoleId,
    ) -> Result<Built, Unbuildable> {
        let program = Arc::clone(&self.program);
        let message = program.message(build.message).ok_or(Unbuildable::NoMessage)?;
        let fresh = build.holes.iter().any(|hole| hole.value == Operand::Fresh);
        let number = if fresh { self.fresh(role) } else { 0 };
        let mut view = View::of(message);
        let mut from = None;
        for hole in &build.holes {
            let ty = message.slot(hole.slot).map(|slot| &slot.ty);
            let value = match (hole.value, ty) {
                (Operand::Fresh, Some(SlotType::Int { low, high })) => {
                    let range = high.saturating_sub(*low).saturating_add(1).max(1);
                    let number = i64::from(number).saturating_sub(*low).rem_euclid(range);
                    Some(Value::Int(low.saturating_add(number)))
                }
                (Operand::Fresh, _) => {
                    let octets = number.to_be_bytes();
                    Some(Value::Octets(octets.get(..FRESH_OCTETS).unwrap_or(&octets).to_vec()))
                }
                (Operand::Request(slot), _) => self.request_value(request, slot),
                (operand, _) => match self.seen(task, operand) {
                    Some(Seen::Stream(id)) => {
                        from = Some(id);
                        Some(Value::Stream)
                    }
                    Some(seen) => Some(seen.to_value()),
                    None => None,
                },
            };
            if let Some(value) = value {
                view.set(hole.slot, value);
            }
        }
        if let Some(id) = from {
            let held = self.incomings.get(id).is_some_and(Incoming::is_held);
            if !held {
                // Its octets went by already.
                return Err(Unbuildable::NoFraming);
            }
        }
        let mut octets = self.pool.lend();
        let writer = match emit(&program, build.message, &view, &mut octets) {
            Ok(writer) => writer,
            Err(wrong) => {
                self.pool.give_back(octets);
                return Err(wrong);
            }
        };
        let slots = self.flow_slots(role, build.message);
        Ok(Built { octets, stream: writer.zip(from), flow: key_of(build.message, &view, &slots) })
    }

    fn flow_slots(&self, role: RoleId, message: MessageId) -> Vec<SlotId> {
        let flow = self.program.role(role).map(|role| role.flow.as_slice()).unwrap_or_default();
        flow.iter().filter(|key| key.view == message).map(|key| key.request).collect()
    }

    /// A slot of the request that is answered.
    fn request_value(&self, request: Option<IncomingId>, slot: SlotId) -> Option<Value> {
        self.incomings.get(request?)?.parser.view().get(slot).cloned()
    }

    /// A number that the exchanges in the air of a role do not use: they are fewer than there are
    /// numbers, and each takes the next one.
    fn fresh(&mut self, role: RoleId) -> u32 {
        let Some(role) = self.roles.get_mut(role.index()) else { return 0 };
        role.fresh = role.fresh.wrapping_add(1);
        role.fresh
    }

    /// Whether a message's stream is still to be had.
    pub(crate) fn stream_is_there(&self, id: IncomingId) -> bool {
        self.incomings.get(id).is_some_and(|of| of.passing == Passing::Held)
    }
}

/// Values as octets that are equal if the values are.
pub(crate) fn key_of(kind: MessageId, view: &View, slots: &[SlotId]) -> Vec<u8> {
    let kind = u32::try_from(kind.index()).unwrap_or(u32::MAX);
    let mut key = kind.to_be_bytes().to_vec();
    for slot in slots {
        match view.get(*slot) {
            Some(Value::Int(value)) => {
                key.push(b'i');
                key.extend_from_slice(&value.to_be_bytes());
            }
            Some(Value::Octets(octets)) => {
                key.push(b'o');
                let length = u32::try_from(octets.len()).unwrap_or(u32::MAX);
                key.extend_from_slice(&length.to_be_bytes());
                key.extend_from_slice(octets);
            }
            Some(Value::List(_) | Value::Stream) | None => key.push(b'-'),
        }
    }
    key
}
