//! Builds messages: from holes to octets.

use super::evaluate::Borrowed;
use super::slab::IncomingId;
use super::state::{Incoming, Passing, Source, Task};
use super::{BUFFER_OCTETS, Machine};
use crate::emit::{Unbuildable, emit};
use crate::view::{Held, Value, View};
use gatewright_lang::ir::{
    Build, Message, MessageId, Mode, Operand, Program, RoleId, SlotId, SlotType,
};
use std::sync::Arc;

/// A message that was built.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) octets: Vec<u8>,
    pub(crate) stream: Option<Source>,
    /// The keys that its response will share with it, in the order of the role's keys.
    pub(crate) flow: Vec<u8>,
    /// The `fresh` number in it.
    pub(crate) fresh: Option<Value>,
}

/// How many octets a `fresh` hole of octets gets (`docs/language/protocols.md`, 6.4).
const FRESH_OCTETS: usize = 4;

impl Machine {
    /// Builds a message of constants, outside any request.
    pub(crate) fn build(
        &mut self,
        build: &Build,
        request: Option<IncomingId>,
        role: RoleId,
    ) -> Result<Built, Unbuildable> {
        self.build_for(build, None, request, role)
    }

    /// Builds a message that goes out by a role, for a handler or for the protocol itself.
    pub(crate) fn build_for(
        &mut self,
        build: &Build,
        task: Option<&Task>,
        request: Option<IncomingId>,
        role: RoleId,
    ) -> Result<Built, Unbuildable> {
        self.build_with(build, task, role, |machine, operand| match operand {
            Operand::Request(slot) => machine.request_value(request, slot),
            _ => None,
        })
    }

    /// Builds a message for a stored peer, from what was kept of its request.
    pub(crate) fn build_told(
        &mut self,
        build: &Build,
        task: &Task,
        role: RoleId,
        kept: &[Option<Value>],
    ) -> Result<Built, Unbuildable> {
        self.build_with(build, Some(task), role, |_, operand| match operand {
            Operand::Kept(at) => kept.get(usize::try_from(at).ok()?)?.clone(),
            _ => None,
        })
    }

    /// Builds a message with the given request values. Its holes are filled in the memory of the
    /// previous message's holes.
    fn build_with(
        &mut self,
        build: &Build,
        task: Option<&Task>,
        role: RoleId,
        asked: impl Fn(&Self, Operand) -> Option<Value>,
    ) -> Result<Built, Unbuildable> {
        let program = Arc::clone(&self.program);
        let message = program.message(build.message).ok_or(Unbuildable::NoMessage)?;
        let mut view = core::mem::take(&mut self.holes);
        view.begin(message.slots.len());
        let (from, fresh) = self.fill(&mut view, message, build, (task, role), asked);
        let built = self.write(&program, build.message, &view, role, from);
        if view.room() <= BUFFER_OCTETS {
            self.holes = view;
        }
        built.map(|(octets, stream, flow)| Built { octets, stream, flow, fresh })
    }

    /// Fills holes; returns the message whose stream is one of them, and the fresh number given.
    fn fill(
        &mut self,
        view: &mut View,
        message: &Message,
        build: &Build,
        (task, role): (Option<&Task>, RoleId),
        asked: impl Fn(&Self, Operand) -> Option<Value>,
    ) -> (Option<IncomingId>, Option<Value>) {
        let fresh = build.holes.iter().any(|hole| hole.value == Operand::Fresh);
        let number = if fresh { self.fresh(role) } else { 0 };
        if fresh {
            self.record_fresh(task, role, number);
        }
        let (mut from, mut given) = (None, None);
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
                (operand @ (Operand::Request(_) | Operand::Kept(_)), _) => asked(self, operand),
                (operand, _) => {
                    let seen = self.seen(task, operand);
                    if let Some(Borrowed::Stream(id)) = seen {
                        from = Some(id);
                    }
                    if let Some(seen) = seen {
                        view.set_held(hole.slot, seen.held());
                    }
                    continue;
                }
            };
            if hole.value == Operand::Fresh {
                given.clone_from(&value);
            }
            if let Some(value) = value {
                view.set(hole.slot, value);
            }
        }
        (from, given)
    }

    /// Writes a message whose holes are filled, and the keys that find its response.
    #[expect(clippy::type_complexity, reason = "the parts of a `Built`, but for its number")]
    fn write(
        &mut self,
        program: &Program,
        message: MessageId,
        view: &View,
        role: RoleId,
        from: Option<IncomingId>,
    ) -> Result<(Vec<u8>, Option<Source>, Vec<u8>), Unbuildable> {
        if let Some(id) = from {
            let held = self.incomings.get(id).is_some_and(Incoming::is_held);
            if !held {
                // Its octets went by already.
                return Err(Unbuildable::NoFraming);
            }
        }
        let mut octets = self.pool.lend();
        let writer = match emit(program, message, view, &mut octets) {
            Ok(writer) => writer,
            Err(wrong) => {
                self.pool.give_back(octets);
                return Err(wrong);
            }
        };
        // Responses that come in order are found by that.
        let unordered = program.role(role).filter(|role| role.mode == Mode::Async);
        let flow = unordered.map_or_else(Vec::new, |role| {
            let keys = role.flow.iter().filter(|key| key.view == message);
            key_of(message, view, &keys.map(|key| key.request).collect::<Vec<_>>())
        });
        Ok((octets, writer.zip(from), flow))
    }

    /// A slot of the request being answered.
    fn request_value(&self, request: Option<IncomingId>, slot: SlotId) -> Option<Value> {
        self.incomings.get(request?)?.parser.view().get(slot)
    }

    /// A number that no exchange in flight of a role uses. There are fewer exchanges than numbers,
    /// and each takes the next one.
    fn fresh(&mut self, role: RoleId) -> u32 {
        let Some(role) = self.roles.get_mut(role.index()) else { return 0 };
        role.fresh = role.given.pop_front().unwrap_or_else(|| role.fresh.wrapping_add(1));
        role.fresh
    }

    /// Sets the next fresh number of a role, after those set before; then it counts on from there.
    pub fn give_fresh(&mut self, role: RoleId, number: u32) {
        if let Some(role) = self.roles.get_mut(role.index()) {
            role.given.push_back(number);
        }
    }

    /// Whether a message's stream is still available.
    pub(crate) fn stream_is_there(&self, id: IncomingId) -> bool {
        self.incomings.get(id).is_some_and(|of| of.passing == Passing::Held)
    }
}

/// Encodes values as octets; equal values give equal octets.
pub(crate) fn key_of(kind: MessageId, view: &View, slots: &[SlotId]) -> Vec<u8> {
    let kind = u32::try_from(kind.index()).unwrap_or(u32::MAX);
    let mut key = kind.to_be_bytes().to_vec();
    for slot in slots {
        match view.held(*slot) {
            Some(Held::Int(value)) => {
                key.push(b'i');
                key.extend_from_slice(&value.to_be_bytes());
            }
            Some(Held::Octets(octets)) => {
                key.push(b'o');
                let length = u32::try_from(octets.len()).unwrap_or(u32::MAX);
                key.extend_from_slice(&length.to_be_bytes());
                key.extend_from_slice(octets);
            }
            Some(Held::List(_) | Held::Stream) | None => key.push(b'-'),
        }
    }
    key
}
