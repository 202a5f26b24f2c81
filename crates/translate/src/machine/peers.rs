//! Peers stored in sessions, and unsolicited messages to them.

use super::evaluate::Borrowed;
use super::slab::{ConnId, SessionId};
use super::state::{PeerAddress, Reg, Requester, StoredPeer, Task, Written};
use super::{BUFFER_OCTETS, Count, Machine, Output, PIPELINED_MAX};
use crate::view::Value;
use gatewright_lang::ir::{Build, MessageId, Operand, Peers, PeersId, RegisterId, SlotId};
use std::sync::Arc;

impl Machine {
    fn stored_peers(&self, id: PeersId) -> Option<&Peers> {
        self.program.session.as_ref()?.peers(id)
    }

    /// Number of peers stored in a variable.
    pub(crate) fn peers_count(&self, task: Option<&Task>, id: PeersId) -> i64 {
        let session = task.and_then(|task| self.session_seen(task));
        let session = session.and_then(|session| self.sessions.get(session));
        let many = session.and_then(|session| session.peers.get(id.index())).map_or(0, Vec::len);
        i64::try_from(many).unwrap_or(i64::MAX)
    }

    /// The requester of a handler, as a peer to store.
    fn requester_as_peer(&self, task: &Task, about: &Peers) -> Option<StoredPeer> {
        let incoming = self.incomings.get(task.origin.request()?)?;
        let place = match incoming.requester? {
            Requester::Conn(conn) => PeerAddress::Conn(conn),
            Requester::Peer(role, at) => PeerAddress::At(role, at),
        };
        let kept = |(view, slot): &(MessageId, SlotId)| {
            let own = incoming.message == *view;
            own.then(|| incoming.parser.view().get(*slot)).flatten()
        };
        Some(StoredPeer { place, kept: about.kept.iter().map(kept).collect(), mark: None })
    }

    /// Stores the requester of a handler; `false` if there is no room.
    pub(crate) fn store_requester(&mut self, task: &Task, id: PeersId) -> bool {
        let program = Arc::clone(&self.program);
        let about = program.session.as_ref().and_then(|session| session.peers(id));
        let (Some(about), Some(session)) = (about, self.session_seen(task)) else { return false };
        let Some(peer) = self.requester_as_peer(task, about) else { return false };
        let place = peer.place;
        let most = usize::try_from(about.max).unwrap_or(usize::MAX);
        let Some(of) = self.sessions.get_mut(session) else { return false };
        let Some(stored) = of.peers.get_mut(id.index()) else { return false };
        let known = stored.iter().any(|of| of.place == place && of.kept == peer.kept);
        let replaced = if known || about.list { None } else { stored.pop() };
        if !known {
            if stored.len() >= most {
                return false;
            }
            stored.push(peer);
            let sessions = self.stored.entry(place).or_default();
            if !sessions.contains(&session) {
                sessions.push(session);
            }
        }
        if let Some(replaced) = replaced {
            self.unindex(session, replaced.place);
        }
        true
    }

    /// Removes the requester of a handler from a variable.
    pub(crate) fn part_requester(&mut self, task: &Task, id: PeersId) {
        let Some(about) = self.stored_peers(id) else { return };
        let Some(peer) = self.requester_as_peer(task, about) else { return };
        let Some(session) = self.session_seen(task) else { return };
        if let Some(stored) =
            self.sessions.get_mut(session).and_then(|of| of.peers.get_mut(id.index()))
        {
            stored.retain(|of| of.place != peer.place || of.kept != peer.kept);
        }
        self.unindex(session, peer.place);
    }

    /// Removes every peer from a variable.
    pub(crate) fn clear_peers(&mut self, task: &Task, id: PeersId) {
        let Some(session) = self.session_seen(task) else { return };
        let stored = self.sessions.get_mut(session).and_then(|of| of.peers.get_mut(id.index()));
        for peer in stored.map(core::mem::take).unwrap_or_default() {
            self.unindex(session, peer.place);
        }
    }

    /// Removes the requester of a handler from all variables. A variable keeps it if the request
    /// refers to another message than the last one sent through that variable.
    pub(crate) fn forget_requester(&mut self, task: &Task) {
        let program = Arc::clone(&self.program);
        let Some(about) = &program.session else { return };
        let Some(request) = task.origin.request() else { return };
        let Some(incoming) = self.incomings.get(request) else { return };
        let place = match incoming.requester {
            Some(Requester::Conn(conn)) => PeerAddress::Conn(conn),
            Some(Requester::Peer(role, at)) => PeerAddress::At(role, at),
            None => return,
        };
        let (view, said) = (incoming.message, incoming.parser.view());
        let mark = |peers: &Peers| {
            let (of, slot) = peers.mark?;
            (of == view).then(|| said.get(slot)).flatten()
        };
        let marks: Vec<Option<Value>> = about.peers.iter().map(mark).collect();
        for session in self.stored.get(&place).cloned().unwrap_or_default() {
            let Some(of) = self.sessions.get_mut(session) else { continue };
            for (stored, mark) in of.peers.iter_mut().zip(&marks) {
                stored.retain(|peer| peer.place != place || (mark.is_some() && peer.mark != *mark));
            }
            self.unindex(session, place);
        }
    }

    /// Removes a peer whose connection has ended.
    pub(crate) fn peer_is_gone(&mut self, conn: ConnId) {
        let place = PeerAddress::Conn(conn);
        for session in self.stored.remove(&place).unwrap_or_default() {
            let peers = self.sessions.get_mut(session).map(|of| of.peers.as_mut_slice());
            for stored in peers.unwrap_or_default() {
                stored.retain(|peer| peer.place != place);
            }
        }
    }

    /// Removes the peers of a session that ended.
    pub(crate) fn peers_are_left(&mut self, session: SessionId, peers: &[Vec<StoredPeer>]) {
        for peer in peers.iter().flatten() {
            self.unindex(session, peer.place);
        }
    }

    /// Removes a peer from the index, unless another variable of the session has it.
    fn unindex(&mut self, session: SessionId, place: PeerAddress) {
        let of = self.sessions.get(session);
        let there = of.is_some_and(|of| of.peers.iter().flatten().any(|peer| peer.place == place));
        if there {
            return;
        }
        if let Some(sessions) = self.stored.get_mut(&place) {
            sessions.retain(|other| *other != session);
            if sessions.is_empty() {
                self.stored.remove(&place);
            }
        }
    }

    /// Sends a message to a stored peer; fails if the message cannot be built.
    pub(crate) fn tell(
        &mut self,
        task: &Task,
        (id, cursor): (PeersId, RegisterId),
        message: &Build,
    ) -> Result<(), ()> {
        let Reg::Int(taken) = task.register(cursor) else { return Ok(()) };
        let Some(at) = taken.checked_sub(1).and_then(|at| usize::try_from(at).ok()) else {
            return Ok(());
        };
        let program = Arc::clone(&self.program);
        let Some(about) = program.session.as_ref().and_then(|session| session.peers(id)) else {
            return Ok(());
        };
        let Some(session) = self.session_seen(task) else { return Ok(()) };
        let peer =
            |machine: &Self| machine.sessions.get(session)?.peers.get(id.index())?.get(at).cloned();
        let Some(peer) = peer(self) else { return Ok(()) };
        let Ok(built) = self.build_told(message, task, about.role, &peer.kept) else {
            self.count(Count::Unbuildable);
            return Err(());
        };
        let marked = |hole: &gatewright_lang::ir::Hole| {
            let name = program.message(message.message)?.slot(hole.slot)?.name.as_str();
            let (view, slot) = about.mark?;
            (program.message(view)?.slot(slot)?.name == name).then_some(())
        };
        let fresh =
            message.holes.iter().any(|of| of.value == Operand::Fresh && marked(of).is_some());
        let stored = self.sessions.get_mut(session).and_then(|of| of.peers.get_mut(id.index()));
        if let Some(of) = stored.and_then(|stored| stored.get_mut(at)).filter(|_| fresh) {
            of.mark.clone_from(&built.fresh);
        }
        self.record_told(task, peer.place);
        match peer.place {
            PeerAddress::Conn(conn) => {
                let room = self.conns.get(conn).is_some_and(|of| {
                    let behind = u32::try_from(of.behind.len()).unwrap_or(u32::MAX);
                    of.unsent.len() < BUFFER_OCTETS && behind < PIPELINED_MAX
                });
                if room {
                    self.put(conn, built.octets, None, Written::Nothing);
                } else {
                    self.count(Count::Untold);
                    self.pool.give_back(built.octets);
                }
            }
            PeerAddress::At(role, to) => {
                self.record_answer(role, to, &built.octets);
                self.outputs.push_back(Output::Datagram { role, to, octets: built.octets });
            }
        }
        Ok(())
    }

    /// The key under which a session is found by a value.
    pub(crate) fn named_session(&self, task: &Task, key: Operand) -> Option<Vec<u8>> {
        match self.seen(Some(task), key) {
            Some(Borrowed::Octets(octets)) => Some(octets.to_vec()),
            _ => None,
        }
    }

    /// Whether a session stores a peer whose connection is open.
    pub(crate) fn stores_connections(&self, session: SessionId) -> bool {
        let of = self.sessions.get(session);
        let conn = |peer: &StoredPeer| matches!(peer.place, PeerAddress::Conn(_));
        of.is_some_and(|of| of.peers.iter().flatten().any(conn))
    }
}
