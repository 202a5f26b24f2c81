//! Datagrams: requests, responses and repetitions.

use super::build::key_of;
use super::slab::{IncomingId, TaskId};
use super::state::{
    Exchange, Goal, Incoming, MessagePurpose, Passing, Repeat, Repetition, Requester, Wait,
};
use super::timers::Timer;
use super::{Count, Machine, Output, QueryOwner, RoleTarget};
use crate::flat::state::Until;
use core::net::SocketAddr;
use core::time::Duration;
use gatewright_lang::ir::{Cast, HandlerId, MessageId, Mode, RoleId, Side, SlotId};
use std::sync::Arc;

impl Machine {
    /// Handles a datagram that arrived on a role's socket.
    pub fn datagram(&mut self, now: Duration, role: RoleId, from: SocketAddr, octets: &[u8]) {
        self.now = now;
        self.note(|| super::MachineStep::Arrived { role, octets: octets.to_vec() });
        match self.program.role(role).map(|role| role.side) {
            Some(Side::Server) => self.request_datagram(role, from, octets),
            Some(Side::Client) => self.response_datagram(role, from, octets),
            None => {}
        }
        self.settle();
    }

    /// Reads a datagram as a message; returns whether it is one.
    fn read_datagram(&mut self, view: MessageId, octets: &[u8]) -> Option<(IncomingId, bool)> {
        let mut parser = self.parsers.take(&self.layouts, view)?;
        let mut thrown = self.pool.lend();
        let read = parser.advance(octets, true, Until::End, Some(&mut thrown));
        self.pool.give_back(thrown);
        let id = self.incomings.insert(Incoming {
            parser,
            message: view,
            conn: None,
            requester: None,
            repeat: None,
            purpose: MessagePurpose::Request,
            task: None,
            goal: Goal::End,
            passing: Passing::Discarded,
            reply: None,
            answered: false,
            watched: self.watch_datagram(octets),
        });
        match read {
            Ok(_) => self.note_read(id),
            Err(malformed) => self.note_malformed(view, malformed),
        }
        Some((id, read.is_ok()))
    }

    fn request_datagram(&mut self, role: RoleId, from: SocketAddr, octets: &[u8]) {
        self.record_request(role, from, octets);
        let program = Arc::clone(&self.program);
        let Some(about) = program.role(role) else { return };
        let mut wrong = None;
        for kind in &about.requests {
            match self.read_datagram(kind.view, octets) {
                Some((id, true)) => {
                    if let Some(wrong) = wrong {
                        self.forget(wrong);
                    }
                    return self.request_from(role, from, id);
                }
                Some((id, false)) if wrong.is_none() => wrong = Some(id),
                Some((id, false)) => {
                    self.forget(id);
                }
                None => {}
            }
        }
        if let Some(id) = wrong {
            self.count(Count::Malformed);
            let octets = self.build_answer(about.malformed(self.too_long(id)), Some(id), role);
            self.forget(id);
            self.send_octets(role, from, octets);
        }
    }

    fn request_from(&mut self, role: RoleId, from: SocketAddr, id: IncomingId) {
        let program = Arc::clone(&self.program);
        let Some(about) = program.role(role) else { return };
        let repeat = self.repeat_key(role, from, id);
        let before = repeat.as_ref().and_then(|key| self.roles.get(role.index())?.repeats.get(key));
        if let Some(before) = before.cloned() {
            self.count(Count::Duplicates);
            self.forget(id);
            if let Repeat::Answered(octets) = before {
                self.send_octets(role, from, octets);
            }
            return;
        }
        let Some(state) = self.roles.get_mut(role.index()) else { return };
        let most = usize::try_from(about.connections_max).unwrap_or(usize::MAX);
        let full = state.connections >= about.connections_max;
        if full {
            self.count(Count::Full);
            let octets = self.build_answer(&about.full, Some(id), role);
            self.forget(id);
            return self.send_octets(role, from, octets);
        }
        if let (Some(key), Some(duplicates)) = (&repeat, &about.duplicates) {
            let at = self.now.saturating_add(duplicates.keep);
            // Whoever asked longest ago is the least likely to ask again.
            while state.repeats.len() >= most.max(1)
                && let Some((_, oldest)) = state.forget.pop_front()
            {
                state.repeats.remove(&oldest);
            }
            state.repeats.insert(key.clone(), Repeat::Running);
            state.forget.push_back((at, key.clone()));
            if state.forget.len() == 1 {
                self.timers.set(at, Timer::Repeats(role.index()));
            }
        }
        state.connections += 1;
        if let Some(incoming) = self.incomings.get_mut(id) {
            incoming.requester = Some(Requester::Peer(role, from));
            incoming.repeat = repeat;
        }
        self.dispatch(id);
        // Where no handler runs, it is over already.
        let running = self.incomings.get(id).is_some_and(|of| of.task.is_some());
        if !running {
            self.peer_is_served(role);
        }
    }

    /// The key that a request shares with its repetitions.
    fn repeat_key(&self, role: RoleId, from: SocketAddr, id: IncomingId) -> Option<Vec<u8>> {
        let duplicates = self.program.role(role)?.duplicates.as_ref()?;
        let incoming = self.incomings.get(id)?;
        let keys = duplicates.keys.iter().filter(|key| key.0 == incoming.message);
        let slots: Vec<SlotId> = keys.map(|key| key.1).collect();
        let mut key = key_of(incoming.message, incoming.parser.view(), &slots);
        key.extend_from_slice(from.to_string().as_bytes());
        Some(key)
    }

    /// Forgets kept answers whose time is over.
    pub(crate) fn forget_repeats(&mut self, role: usize) {
        let now = self.now;
        let Some(state) = self.roles.get_mut(role) else { return };
        while let Some((_, key)) = state.forget.pop_front_if(|(at, _)| *at <= now) {
            state.repeats.remove(&key);
        }
        if let Some((at, _)) = state.forget.front() {
            self.timers.set(*at, Timer::Repeats(role));
        }
    }

    /// Answers a request that came in a datagram.
    pub(crate) fn answer_peer(
        &mut self,
        (role, to): (RoleId, SocketAddr),
        repeat: Option<Vec<u8>>,
        octets: Vec<u8>,
        watcher: Option<HandlerId>,
    ) {
        if let Some(handler) = watcher.filter(|_| !octets.is_empty()) {
            self.leaves(handler, role, Requester::Peer(role, to), 1, &octets);
        }
        let kept = repeat.and_then(|key| self.roles.get_mut(role.index())?.repeats.get_mut(&key));
        // Where there is no answer, the last one for now stands (RFC 3261 §17.2.1).
        if let Some(kept) = kept.filter(|_| !octets.is_empty()) {
            *kept = Repeat::Answered(octets.clone());
        }
        self.send_octets(role, to, octets);
    }

    fn send_octets(&mut self, role: RoleId, to: SocketAddr, octets: Vec<u8>) {
        if !octets.is_empty() {
            self.record_answer(role, to, &octets);
            self.outputs.push_back(Output::Datagram { role, to, octets });
        }
    }

    /// Records that a datagram request has been served.
    pub(crate) fn peer_is_served(&mut self, role: RoleId) {
        if let Some(state) = self.roles.get_mut(role.index()) {
            state.connections = state.connections.saturating_sub(1);
        }
    }

    fn response_datagram(&mut self, role: RoleId, from: SocketAddr, octets: &[u8]) {
        let program = Arc::clone(&self.program);
        let Some(about) = program.role(role) else { return };
        let Some((id, good)) = self.read_datagram(about.response, octets) else { return };
        if !good {
            self.forget(id);
            return self.count(Count::Malformed);
        }
        let flows = match about.mode {
            Mode::Async => self.flows_of(id, role),
            Mode::Sync => vec![from.to_string().into_bytes()],
        };
        let air = self.roles.get(role.index()).map(|state| &state.air);
        let found = flows.iter().find_map(|flow| air?.get(flow).copied());
        let ours = found.filter(|exchange| {
            self.exchanges
                .get(*exchange)
                .is_some_and(|of| of.to == Some(from) || about.cast == Cast::Multicast)
        });
        if let Some(exchange) = ours {
            self.record_response(exchange, octets);
            if let Some(incoming) = self.incomings.get_mut(id) {
                incoming.purpose = MessagePurpose::Response(exchange);
            }
            self.response_begun(exchange, id);
            if !self.exchange_is_gathering(exchange) {
                self.end_exchange(exchange);
            }
            return;
        }
        if about.requests.iter().any(|kind| kind.view == about.response) {
            return self.request_from(role, from, id);
        }
        self.count(if found.is_some() { Count::Strangers } else { Count::Unsolicited });
        self.forget(id);
    }

    /// Sends a request in a datagram.
    pub(crate) fn begin_datagram(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get(id) else { return };
        let Wait::Connection(pending) = &task.wait else { return };
        match pending.target.clone() {
            RoleTarget::Address(to) => self.send_datagram_to(id, to),
            RoleTarget::Name(host, port) => {
                let Some(query) = self.ask_name(host, port, QueryOwner::Task(id)) else {
                    return self.send_failed(id);
                };
                if let Some(task) = self.tasks.get_mut(id)
                    && let Wait::Connection(pending) = &mut task.wait
                {
                    pending.query = Some(query);
                }
            }
        }
    }

    /// Sends a datagram whose address is now known.
    pub(crate) fn send_datagram_to(&mut self, id: TaskId, to: SocketAddr) {
        let program = Arc::clone(&self.program);
        let Some(task) = self.tasks.get(id) else { return };
        let Wait::Connection(pending) = &task.wait else { return };
        let role = pending.role;
        let (octets, respond) = (pending.octets.clone(), pending.respond);
        let (gather, deadline, target) = (pending.gather, pending.deadline, pending.target.clone());
        let Some(about) = program.role(role) else { return };
        let flow = match about.mode {
            Mode::Async => pending.flow.clone(),
            Mode::Sync => to.to_string().into_bytes(),
        };
        self.record_asked(id, role, &octets);
        if !respond {
            self.outputs.push_back(Output::Datagram { role, to, octets });
            return self.go_on(id, true);
        }
        let Some(state) = self.roles.get_mut(role.index()) else { return };
        let most = usize::try_from(about.connections_max).unwrap_or(usize::MAX);
        if state.air.len() >= most || state.air.contains_key(&flow) {
            self.count(Count::NoRoom);
            return self.send_failed(id);
        }
        let exchange = self.exchanges.insert(Exchange {
            role,
            task: id,
            conn: None,
            to: Some(to),
            target,
            flow: flow.clone(),
            begun: false,
            gather: gather.is_some(),
            octets: octets.clone(),
            repetition: None,
            deadline,
            alarm: None,
        });
        state.air.insert(flow, exchange);
        if let Some(retransmit) = about.retransmit.filter(|retransmit| retransmit.times > 0) {
            let pause = retransmit.after;
            let at = self.now.saturating_add(pause);
            let alarm = self.timers.set(at, Timer::Retransmit(exchange));
            if let Some(of) = self.exchanges.get_mut(exchange) {
                of.repetition = Some(Repetition { pause, left: retransmit.times, alarm });
            }
        }
        self.await_response(id, exchange, gather);
        self.outputs.push_back(Output::Datagram { role, to, octets });
    }
}
