//! Runs handlers from one suspension to the next.

use super::evaluate::{Borrowed, computed};
use super::slab::TaskId;
use super::state::{Origin, QueuedRequest, Reg, Reply, Requester, Task, Wait, Written};
use super::{Count, Machine, RoleTarget};
use crate::view::View;
use core::time::Duration;
use gatewright_lang::ir::{
    BlockId, Build, Fold, Instruction, Operand, Program, RegisterType, RoleId, SessionKey, SlotId,
    SlotType, Terminator,
};
use std::sync::Arc;

/// Why a handler stopped running.
enum Stop {
    /// It waits; the wait is set up.
    Waits,
    /// It sends a request.
    Sends(Box<QueuedRequest>),
    /// It waits for the next message.
    Receives(Duration),
    /// It waits for time to pass.
    Sleeps(Duration),
    /// It waits for the next response of its `Gather`.
    Gathers,
    /// It ends with an answer.
    Returns(Box<Reply>),
    /// It ends, and its requester's connection is closed.
    Closes,
    /// An opening is done.
    Done,
    /// It failed.
    Fails,
}

impl Machine {
    /// Runs a handler until it waits or ends.
    pub(crate) fn run(&mut self, id: TaskId) {
        let Some(mut task) = self.tasks.take(id) else { return };
        if !matches!(task.wait, Wait::Ready) {
            return self.tasks.restore(id, task);
        }
        let program = Arc::clone(&self.program);
        let stop = self.steps(&program, &mut task);
        self.tasks.restore(id, task);
        match stop {
            Stop::Waits => {}
            Stop::Sends(pending) => self.begin_send(id, pending),
            Stop::Receives(within) => self.begin_receive(id, within),
            Stop::Sleeps(period) => self.begin_sleep(id, period),
            Stop::Gathers => self.next_gathered(id),
            Stop::Returns(reply) => self.finish(id, *reply),
            Stop::Closes => {
                self.finish(id, Reply { octets: Vec::new(), stream: None, close: true });
            }
            Stop::Done => self.opening_done(id),
            Stop::Fails => self.fail_task(id),
        }
    }

    fn finish(&mut self, id: TaskId, reply: Reply) {
        let Some(task) = self.tasks.get(id) else { return };
        if let Some(conn) = task.conn.and_then(|conn| self.conns.get_mut(conn)) {
            conn.tasks.retain(|other| *other != id);
        }
        if let Some(request) = task.origin.request() {
            self.reply(request, reply);
        }
        self.end_task(id, true);
    }

    fn steps(&mut self, program: &Program, task: &mut Task) -> Stop {
        loop {
            let Some(handler) = program.handler(task.handler) else { return Stop::Fails };
            let Some(block) = handler.block(task.block) else { return Stop::Fails };
            for statement in &block.statements {
                if self.operate(task, &statement.operation).is_err() {
                    return Stop::Fails;
                }
                self.note_did(task, &statement.operation, statement.span);
            }
            let next = self.leave_block(program, task, &block.terminator);
            self.note_left(task, &block.terminator, block.span);
            match next {
                Ok(next) => task.block = next,
                Err(stop) => return stop,
            }
        }
    }

    /// The octets of an operand; empty if it has none.
    fn octets_seen<'t>(&'t self, task: &'t Task, of: Operand) -> &'t [u8] {
        match self.seen(Some(task), of) {
            Some(Borrowed::Octets(of)) => of,
            _ => &[],
        }
    }

    /// Executes an operation that never waits; fails if a message cannot be built.
    fn operate(&mut self, task: &mut Task, operation: &Instruction) -> Result<(), ()> {
        match operation {
            Instruction::Set { into, value } => {
                let value = self.seen(Some(task), *value).map(Borrowed::to_register);
                task.set(*into, value.unwrap_or(Reg::Unset));
            }
            Instruction::Compute { into, operator, left, right } => {
                let value = computed(*operator, self.int(task, *left), self.int(task, *right));
                let ty = self.program.handler(task.handler).and_then(|handler| {
                    handler.registers.get(into.index()).map(|register| register.ty)
                });
                let value = match ty {
                    Some(RegisterType::Int { low, high }) => value.clamp(low, high.max(low)),
                    _ => value,
                };
                task.set(*into, Reg::Int(value));
            }
            Instruction::Format { into, pieces } => {
                let octets = self.formatted(task, pieces);
                task.set(*into, Reg::Octets(octets));
            }
            Instruction::First { into, of, octets } => {
                let most = usize::try_from(*octets).unwrap_or(usize::MAX);
                let of = self.octets_seen(task, *of);
                let value = of.get(..most).unwrap_or(of).to_vec();
                task.set(*into, Reg::Octets(value));
            }
            Instruction::Hex { into, of } => {
                let digits = hex(self.octets_seen(task, *of));
                task.set(*into, Reg::Octets(digits));
            }
            Instruction::Fold { into, of, fold } => {
                let octets = folded(self.octets_seen(task, *of), *fold);
                task.set(*into, Reg::Octets(octets));
            }
            Instruction::Size { into, of } => {
                let size = self.size(task, *of);
                task.set(*into, Reg::Int(size));
            }
            Instruction::SetSession { slot, value } => {
                let value = self.seen(Some(task), *value).map(Borrowed::to_value);
                self.with_variables(task, |view| match value {
                    Some(value) => view.set(*slot, value),
                    None => view.clear(*slot),
                });
            }
            Instruction::Empty { into } => {
                task.set(*into, Reg::list(None));
            }
            Instruction::ClearSession { slot } => {
                self.with_variables(task, |view| view.clear(*slot));
            }
            Instruction::EndSession => {
                if let Some(session) = task.keyed.take() {
                    self.end_session(session);
                }
            }
            Instruction::Part { peers } => self.part_requester(task, *peers),
            Instruction::ForgetRequester => self.forget_requester(task),
            Instruction::ClearPeers { peers } => self.clear_peers(task, *peers),
            Instruction::Tell { peers, cursor, message } => {
                return self.tell(task, (*peers, *cursor), message);
            }
            Instruction::Provisional(build) => return self.provisional(task, build),
            Instruction::Release { role } => self.release(task, *role),
            Instruction::Hangup { role } => self.hang_up_role(task, *role),
        }
        Ok(())
    }

    /// Changes the variables of a handler's session; a session of a connection begins here.
    fn with_variables(&mut self, task: &mut Task, change: impl FnOnce(&mut View)) {
        let connection = (self.program.session.as_ref())
            .is_some_and(|session| session.key == SessionKey::Connection);
        let session = if connection { Some(self.session_of(task)) } else { task.keyed };
        if let Some(session) = session.and_then(|session| self.sessions.get_mut(session)) {
            change(&mut session.view);
        }
    }

    fn provisional(&mut self, task: &Task, build: &Build) -> Result<(), ()> {
        let Origin::Request { role, request } = task.origin else { return Err(()) };
        let Ok(built) = self.build_for(build, Some(task), Some(request), role) else {
            self.count(Count::Unbuildable);
            return Err(());
        };
        let watcher = self.watcher(request);
        match self.requester_of(task) {
            Some(Requester::Conn(conn)) => {
                let written = watcher.map_or(Written::Nothing, Written::Part);
                self.put(conn, built.octets, built.stream, written);
            }
            Some(Requester::Peer(role, to)) => {
                let repeat = self.incomings.get(request).and_then(|of| of.repeat.clone());
                self.answer_peer((role, to), repeat, built.octets, watcher);
            }
            None => {}
        }
        Ok(())
    }

    /// The connection of a handler's session to a role.
    fn conn_of(&mut self, task: &mut Task, role: RoleId) -> Option<super::ConnId> {
        let session = self.session_of(task);
        let session = self.sessions.get(session)?;
        session.conns.iter().find(|(of, _)| *of == role).map(|(_, conn)| *conn)
    }

    fn release(&mut self, task: &mut Task, role: RoleId) {
        if let Some(conn) = self.conn_of(task, role) {
            self.let_go_when_free(conn);
        }
    }

    fn hang_up_role(&mut self, task: &mut Task, role: RoleId) {
        if let Some(conn) = self.conn_of(task, role) {
            self.hang_up(conn);
        }
    }

    /// The next block, or the reason why the handler stops.
    fn leave_block(
        &mut self,
        program: &Program,
        task: &mut Task,
        terminator: &Terminator,
    ) -> Result<BlockId, Stop> {
        match terminator {
            Terminator::Jump(then) => Ok(*then),
            Terminator::Branch { test, then, otherwise } => {
                Ok(if self.holds(task, test) { *then } else { *otherwise })
            }
            Terminator::Try { partial, into, present, absent } => {
                match self.attempt(task, *partial) {
                    Some(value) => {
                        task.set(*into, value);
                        Ok(*present)
                    }
                    None => Ok(*absent),
                }
            }
            Terminator::Append { list, value, done, full } => {
                let room = self.append_to_list(program, task, *list, *value);
                Ok(if room { *done } else { *full })
            }
            Terminator::Store { peers, done, full } => {
                Ok(if self.store_requester(task, *peers) { *done } else { *full })
            }
            Terminator::Next { .. } | Terminator::NextPart { .. } | Terminator::EachPeer { .. } => {
                Ok(self.turn(task, terminator))
            }
            Terminator::Await { view, slots, then } => {
                let Some(id) = task.view(*view) else { return Err(Stop::Fails) };
                match self.await_slots(id, slots) {
                    Some(false) => Ok(*then),
                    Some(true) => {
                        task.wait = Wait::Slots;
                        Err(Stop::Waits)
                    }
                    None => Err(Stop::Fails),
                }
            }
            Terminator::StartSession { key, then, full } => {
                Ok(if self.enter_session(task, true, *key) { *then } else { *full })
            }
            Terminator::ResumeSession { key, then, none } => {
                Ok(if self.enter_session(task, false, *key) { *then } else { *none })
            }
            Terminator::Receive { within, .. } => Err(Stop::Receives(*within)),
            Terminator::Sleep { period, .. } => Err(Stop::Sleeps(*period)),
            Terminator::NextResponse { gather } => {
                task.block = *gather;
                Err(Stop::Gathers)
            }
            Terminator::Return { message, close } => self.returns(task, message.as_ref(), *close),
            Terminator::Close => Err(Stop::Closes),
            Terminator::Done => Err(Stop::Done),
            Terminator::Fail => Err(Stop::Fails),
            Terminator::Send { .. } | Terminator::Gather { .. } => self.sends(task, terminator),
        }
    }

    /// The next iteration of a loop, or the block after it.
    fn turn(&self, task: &mut Task, terminator: &Terminator) -> BlockId {
        match terminator {
            Terminator::Next { list, cursor, into, body, done } => {
                let taken = match task.register(*cursor) {
                    Reg::Int(taken) => *taken,
                    _ => 0,
                };
                let index = usize::try_from(taken).unwrap_or(usize::MAX);
                let Some(row) = self.row(task, *list, index) else { return *done };
                for (into, value) in into.iter().zip(row) {
                    task.set(*into, value);
                }
                task.set(*cursor, Reg::Int(taken.saturating_add(1)));
                *body
            }
            Terminator::NextPart { of, separator, cursor, into, body, done } => {
                let at = usize::try_from(self.int(task, Operand::Register(*cursor)));
                let part = at.ok().and_then(|at| self.piece(task, *of, *separator, at));
                let Some((part, next)) = part else { return *done };
                task.set(*into, Reg::Octets(part));
                task.set(*cursor, Reg::Int(i64::try_from(next).unwrap_or(i64::MAX)));
                *body
            }
            Terminator::EachPeer { peers, cursor, body, done } => {
                let taken = self.int(task, Operand::Register(*cursor));
                if taken >= self.peers_count(Some(task), *peers) {
                    return *done;
                }
                task.set(*cursor, Reg::Int(taken.saturating_add(1)));
                *body
            }
            _ => task.block,
        }
    }

    fn returns(
        &mut self,
        task: &Task,
        message: Option<&Build>,
        close: bool,
    ) -> Result<BlockId, Stop> {
        let mut reply = Reply { octets: Vec::new(), stream: None, close };
        if let (Some(build), Origin::Request { role, request }) = (message, task.origin) {
            let Ok(built) = self.build_for(build, Some(task), Some(request), role) else {
                self.count(Count::Unbuildable);
                return Err(Stop::Fails);
            };
            (reply.octets, reply.stream) = (built.octets, built.stream);
        }
        Err(Stop::Returns(Box::new(reply)))
    }

    /// Appends to a list; returns whether there was room.
    fn append_to_list(
        &mut self,
        program: &Program,
        task: &mut Task,
        list: Operand,
        value: Operand,
    ) -> bool {
        let Some(value) = self.seen(Some(task), value).map(Borrowed::to_value) else {
            return false;
        };
        let push = |view: &mut View, slot, most: u32| {
            let room = u32::try_from(view.rows(slot).len()).is_ok_and(|rows| rows < most);
            if room {
                view.push(slot, &[value]);
            }
            room
        };
        match list {
            Operand::Register(register) => {
                let handler = program.handler(task.handler);
                let about = handler.and_then(|of| of.registers.get(register.index()));
                match (about.map(|of| of.ty), task.registers.get_mut(register.index())) {
                    (Some(RegisterType::List { max, .. }), Some(Reg::List(view))) => {
                        push(view, SlotId::new(0), max)
                    }
                    _ => false,
                }
            }
            Operand::Session(slot) => {
                let slots = program.session.as_ref().map(|session| session.slots.as_slice());
                let about = slots.and_then(|slots| slots.get(slot.index()));
                let Some(SlotType::List { max, .. }) = about.map(|of| &of.ty) else { return false };
                let mut room = false;
                self.with_variables(task, |view| room = push(view, slot, *max));
                room
            }
            _ => false,
        }
    }

    /// Prepares the message that a handler sends.
    fn sends(&mut self, task: &mut Task, terminator: &Terminator) -> Result<BlockId, Stop> {
        let (role, address, message, within, failed) = match terminator {
            Terminator::Send { role, address, message, within, failed, .. } => {
                (*role, *address, message, *within, *failed)
            }
            Terminator::Gather { role, address, message, within, done, .. } => {
                (*role, *address, message, *within, *done)
            }
            _ => return Err(Stop::Fails),
        };
        let Ok(built) = self.build_for(message, Some(task), task.origin.request(), role) else {
            self.count(Count::Unbuildable);
            return Err(Stop::Fails);
        };
        let given = match address {
            None => self.roles.get(role.index()).map(|role| role.address.clone()),
            Some(address) => match self.seen(Some(task), address) {
                Some(Borrowed::Octets(octets)) => core::str::from_utf8(octets)
                    .ok()
                    .and_then(|text| text.parse::<RoleTarget>().ok()),
                _ => None,
            },
        };
        let Some(target) = given else { return Ok(failed) };
        let (respond, gather) = match terminator {
            Terminator::Send { response, .. } => (response.is_some(), None),
            Terminator::Gather { max, .. } => (true, Some(*max)),
            _ => (false, None),
        };
        Err(Stop::Sends(Box::new(QueuedRequest {
            role,
            octets: built.octets,
            stream: built.stream,
            flow: built.flow,
            respond,
            gather,
            target,
            conn: None,
            query: None,
            new_only: false,
            deadline: self.now.saturating_add(within),
        })))
    }
}

fn folded(octets: &[u8], fold: Fold) -> Vec<u8> {
    match fold {
        Fold::Keep => octets.to_vec(),
        Fold::Lower => octets.to_ascii_lowercase(),
        Fold::Upper => octets.to_ascii_uppercase(),
    }
}

/// Octets as lower-case hexadecimal digits.
fn hex(octets: &[u8]) -> Vec<u8> {
    let digit = |value: u8| if value < 10 { b'0' + value } else { b'a' - 10 + value };
    octets.iter().flat_map(|octet| [digit(octet >> 4), digit(octet & 15)]).collect()
}
