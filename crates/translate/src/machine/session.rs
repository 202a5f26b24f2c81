//! Sessions: variables kept between requests, and the connections that belong to them.

use super::slab::{ConnId, SessionId};
use super::state::{Conn, Origin, Requester, StoredPeer, Task};
use super::timers::{Alarm, Timer};
use super::{Count, Machine};
use crate::flat::state::Until;
use crate::view::View;
use core::time::Duration;
use gatewright_lang::ir::{
    Cast, MessageId, Mode, Operand, ReuseWhen, RoleId, SessionKey, Side, Slot,
};
use std::sync::Arc;

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    /// Its variables.
    pub(crate) view: View,
    /// Its connections, one per role.
    pub(crate) conns: Vec<(RoleId, ConnId)>,
    /// Roles whose connection was lost, together with the state that its server held.
    pub(crate) lost: Vec<RoleId>,
    /// Its key, if it is found by fields.
    key: Option<Vec<u8>>,
    /// Number of handlers that use it.
    users: u32,
    used: Duration,
    alarm: Option<Alarm>,
    /// The peers that it stores, by variable.
    pub(crate) peers: Vec<Vec<StoredPeer>>,
}

impl Machine {
    fn new_session(&mut self, key: Option<Vec<u8>>) -> SessionId {
        let slots: &[Slot] =
            self.program.session.as_ref().map_or(&[], |session| session.slots.as_slice());
        let variables = self.program.session.as_ref().map_or(0, |session| session.peers.len());
        self.sessions.insert(Session {
            view: View::with_slots(slots.len()),
            conns: Vec::new(),
            lost: Vec::new(),
            key,
            users: 0,
            used: self.now,
            alarm: None,
            peers: vec![Vec::new(); variables],
        })
    }

    /// The session of a handler; begins one if there is none.
    pub(crate) fn session_of(&mut self, task: &mut Task) -> SessionId {
        if let Some(keyed) = task.keyed.filter(|keyed| self.sessions.get(*keyed).is_some()) {
            return keyed;
        }
        // What all share is no session's, whatever its server asks over it.
        let conn = task.conn.filter(|conn| !self.is_shared(*conn));
        let found = match (task.origin, conn) {
            (_, Some(conn)) => self.conns.get(conn).and_then(|conn| conn.session),
            (Origin::Every { clock }, None) => self.every.get(clock).and_then(|of| of.session),
            (_, None) => task.own,
        };
        if let Some(session) = found.filter(|session| self.sessions.get(*session).is_some()) {
            return session;
        }
        let session = self.new_session(None);
        let place = match (task.origin, conn) {
            (_, Some(conn)) => self.conns.get_mut(conn).map(|conn| &mut conn.session),
            (Origin::Every { clock }, None) => {
                self.every.get_mut(clock).map(|every| &mut every.session)
            }
            (_, None) => Some(&mut task.own),
        };
        if let Some(place) = place {
            *place = Some(session);
        }
        session
    }

    /// The session whose variables a handler sees now, if one has begun.
    pub(crate) fn session_seen(&self, task: &Task) -> Option<SessionId> {
        let about = self.program.session.as_ref()?;
        match about.key {
            SessionKey::Slots(_) | SessionKey::Value { .. } => task.keyed,
            SessionKey::Connection => self.conns.get(task.conn?)?.session,
        }
    }

    /// Number of the session that a request belongs to, the same in every machine of this program.
    /// `None` if no field of the request is a session's key, or it cannot be read. If several
    /// machines receive at one address, `number mod machines` is the one that should get the
    /// datagram.
    pub fn session_of_datagram(&mut self, role: RoleId, octets: &[u8]) -> Option<u64> {
        let program = Arc::clone(&self.program);
        let session = program.session.as_ref().filter(|session| session.role == role)?;
        let SessionKey::Slots(slots) = &session.key else { return None };
        let about = program.role(role).filter(|role| role.cast == Cast::Unicast)?;
        about.requests.iter().find_map(|kind| {
            let mut parser = self.parsers.take(&self.layouts, kind.view)?;
            let mut thrown = self.pool.lend();
            let read = parser.advance(octets, true, Until::End, Some(&mut thrown));
            self.pool.give_back(thrown);
            let slots: Vec<_> =
                slots.iter().filter(|of| of.0 == kind.view).map(|of| of.1).collect();
            let key = super::build::key_of(MessageId::new(0), parser.view(), &slots);
            self.parsers.keep(parser);
            read.is_ok().then(|| spread(&key))
        })
    }

    /// The session key of a handler's request.
    fn session_key(&self, task: &Task) -> Option<Vec<u8>> {
        let SessionKey::Slots(slots) = &self.program.session.as_ref()?.key else { return None };
        let request = task.origin.request()?;
        let incoming = self.incomings.get(request)?;
        let view = incoming.message;
        let slots: Vec<_> = slots.iter().filter(|of| of.0 == view).map(|of| of.1).collect();
        // The same key in two kinds of requests is the same session.
        let any = MessageId::new(0);
        Some(super::build::key_of(any, incoming.parser.view(), &slots))
    }

    /// Executes `start session` and `resume session`; returns whether there is a session now.
    pub(crate) fn enter_session(
        &mut self,
        task: &mut Task,
        begin: bool,
        named: Option<Operand>,
    ) -> bool {
        let key = match named {
            Some(named) => self.named_session(task, named),
            None => self.session_key(task),
        };
        let Some(key) = key else { return false };
        let found = self.keyed.get(&key).copied();
        let session = match found {
            Some(session) => session,
            None if begin => {
                let most = self.program.session.as_ref().map_or(0, |about| about.sessions_max);
                if self.keyed.len() >= usize::try_from(most).unwrap_or(usize::MAX) {
                    self.count(Count::SessionsFull);
                    return false;
                }
                let session = self.new_session(Some(key.clone()));
                self.keyed.insert(key, session);
                self.arm_session(session);
                session
            }
            None => return false,
        };
        self.record_session(task, session, found.is_none());
        let before = task.keyed.replace(session);
        if before != Some(session) {
            self.leave_session(before);
            if let Some(of) = self.sessions.get_mut(session) {
                of.users += 1;
                of.used = self.now;
            }
        }
        true
    }

    /// Records that a handler no longer uses a keyed session.
    pub(crate) fn leave_session(&mut self, session: Option<SessionId>) {
        let now = self.now;
        if let Some(of) = session.and_then(|session| self.sessions.get_mut(session)) {
            of.users = of.users.saturating_sub(1);
            of.used = now;
        }
    }

    fn arm_session(&mut self, session: SessionId) {
        let Some(idle) = self.program.session.as_ref().map(|about| about.idle) else { return };
        if let Some(of) = self.sessions.get_mut(session) {
            let at = of.used.saturating_add(idle);
            of.alarm = Some(self.timers.set(at, Timer::Session(session)));
        }
    }

    /// Ends a keyed session if it has been unused for too long.
    pub(crate) fn session_is_unused(&mut self, session: SessionId) {
        let Some(idle) = self.program.session.as_ref().map(|about| about.idle) else { return };
        let now = self.now;
        // Who is connected and stored wants to be told, however long there is nothing to tell.
        let wanted = self.stores_connections(session);
        let Some(of) = self.sessions.get_mut(session) else { return };
        of.alarm = None;
        if of.users > 0 || wanted {
            of.used = now;
        }
        if of.used.saturating_add(idle) > now {
            return self.arm_session(session);
        }
        self.end_session(session);
    }

    /// Ends a session: its variables and its connections are freed.
    pub(crate) fn end_session(&mut self, session: SessionId) {
        let Some(mut of) = self.sessions.remove(session) else { return };
        self.timers.cancel(of.alarm.take());
        if let Some(key) = &of.key {
            self.keyed.remove(key);
        }
        self.peers_are_left(session, &of.peers);
        for (_, conn) in of.conns {
            let Some(about) = self.conns.get_mut(conn) else { continue };
            about.session = None;
            let role = self.program.role(about.role);
            let reuse = role.and_then(|role| role.reuse).map(|reuse| reuse.when);
            let releasing = about.releasing || reuse == Some(ReuseWhen::EachResponse);
            if releasing && about.current.is_some() {
                self.let_go_when_free(conn);
            } else if releasing && about.is_clean() {
                self.let_go(conn);
            } else {
                self.hang_up(conn);
            }
        }
    }

    /// Separates a connection from its session.
    pub(crate) fn leave(&mut self, conn: ConnId) {
        let Some(of) = self.conns.get_mut(conn) else { return };
        let side = of.side;
        if let Some(session) = of.session.take() {
            self.part(conn, side, session);
        }
    }

    /// Separates them by side: a server's connection ends its session, a client's does not.
    pub(crate) fn part(&mut self, conn: ConnId, side: Side, session: SessionId) {
        match side {
            Side::Server => self.end_session(session),
            Side::Client => {
                if let Some(of) = self.sessions.get_mut(session) {
                    of.conns.retain(|(_, other)| *other != conn);
                }
            }
        }
    }

    /// Records a session's lost connection. The state that its server held is lost too, and a new
    /// connection must not be taken for the old one.
    pub(crate) fn mark_lost(&mut self, of: &Conn) {
        let Some(role) = self.program.role(of.role) else { return };
        let each = role.reuse.is_some_and(|reuse| reuse.when == ReuseWhen::EachResponse);
        let told = of.side == Side::Client && !of.kept && of.is_clean() && of.waiters.is_empty();
        if !told || each || of.releasing || role.mode == Mode::Async {
            return;
        }
        if let Some(session) = of.session.and_then(|session| self.sessions.get_mut(session)) {
            session.lost.push(of.role);
        }
    }

    /// The connection or peer from which this handler's request came.
    pub(crate) fn requester_of(&self, task: &Task) -> Option<Requester> {
        self.incomings.get(task.origin.request()?)?.requester
    }
}

/// A hash of octets by FNV-1a, with its low bits mixed once more because they select the machine.
fn spread(octets: &[u8]) -> u64 {
    let hash = octets.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, octet| {
        (hash ^ u64::from(*octet)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash ^ (hash >> 32)
}
