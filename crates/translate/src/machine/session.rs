//! Sessions: what is remembered between requests, and the connections that belong to it.

use super::request::{Origin, Requester};
use super::slab::{ConnId, SessionId};
use super::task::Task;
use super::timers::{Alarm, Timer};
use super::{Count, Machine};
use crate::view::View;
use core::time::Duration;
use gatewright_lang::ir::{Mode, ReuseWhen, RoleId, SessionKey, Side, Slot};
use std::sync::Arc;

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    /// Its variables.
    pub(crate) view: View,
    /// Its connections, one a role.
    pub(crate) conns: Vec<(RoleId, ConnId)>,
    /// Roles whose connection was lost with what its server had been told.
    pub(crate) lost: Vec<RoleId>,
    /// What finds it, if it is found by fields.
    key: Option<Vec<u8>>,
    /// Handlers that use it.
    users: u32,
    used: Duration,
    alarm: Option<Alarm>,
}

impl Machine {
    fn new_session(&mut self, key: Option<Vec<u8>>) -> SessionId {
        let slots: &[Slot] =
            self.program.session.as_ref().map_or(&[], |session| session.slots.as_slice());
        self.sessions.insert(Session {
            view: View::with_slots(slots.len()),
            conns: Vec::new(),
            lost: Vec::new(),
            key,
            users: 0,
            used: self.now,
            alarm: None,
        })
    }

    /// The session of a handler; it begins here if there is none.
    pub(crate) fn session_of(&mut self, task: &mut Task) -> SessionId {
        if let Some(keyed) = task.keyed.filter(|keyed| self.sessions.get(*keyed).is_some()) {
            return keyed;
        }
        let found = match (task.origin, task.conn) {
            (_, Some(conn)) => self.conns.get(conn).and_then(|conn| conn.session),
            (Origin::Every { clock }, None) => self.every.get(clock).and_then(|of| of.session),
            (_, None) => task.own,
        };
        if let Some(session) = found.filter(|session| self.sessions.get(*session).is_some()) {
            return session;
        }
        let session = self.new_session(None);
        let place = match (task.origin, task.conn) {
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

    /// The session whose variables a handler sees now, if it began.
    pub(crate) fn session_seen(&self, task: &Task) -> Option<SessionId> {
        let about = self.program.session.as_ref()?;
        match about.key {
            SessionKey::Slots(_) => task.keyed,
            SessionKey::Connection => self.conns.get(task.conn?)?.session,
        }
    }

    /// What finds the session of a handler's request.
    fn session_key(&self, task: &Task) -> Option<Vec<u8>> {
        let SessionKey::Slots(slots) = &self.program.session.as_ref()?.key else { return None };
        let request = task.origin.request()?;
        let incoming = self.incomings.get(request)?;
        let view = incoming.message;
        let slots: Vec<_> = slots.iter().filter(|of| of.0 == view).map(|of| of.1).collect();
        // The same key in two kinds of requests is the same session.
        let any = gatewright_lang::ir::MessageId::new(0);
        Some(super::build::key_of(any, incoming.parser.view(), &slots))
    }

    /// `start session` and `resume session`: whether there is one now.
    pub(crate) fn enter_session(&mut self, task: &mut Task, begin: bool) -> bool {
        let Some(key) = self.session_key(task) else { return false };
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

    /// A handler does not use a keyed session any more.
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

    /// A keyed session may have been unused for too long.
    pub(crate) fn session_is_unused(&mut self, session: SessionId) {
        let Some(idle) = self.program.session.as_ref().map(|about| about.idle) else { return };
        let now = self.now;
        let Some(of) = self.sessions.get_mut(session) else { return };
        of.alarm = None;
        if of.users > 0 {
            of.used = now;
        }
        if of.used.saturating_add(idle) > now {
            return self.arm_session(session);
        }
        self.end_session(session);
    }

    /// A session is over: its variables and its connections are freed.
    pub(crate) fn end_session(&mut self, session: SessionId) {
        let Some(mut of) = self.sessions.remove(session) else { return };
        self.timers.cancel(of.alarm.take());
        if let Some(key) = &of.key {
            self.keyed.remove(key);
        }
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

    /// A connection and its session part.
    pub(crate) fn leave(&mut self, conn: ConnId) {
        let Some(of) = self.conns.get_mut(conn) else { return };
        let Some(session) = of.session.take() else { return };
        match of.side {
            Side::Server => self.end_session(session),
            Side::Client => {
                if let Some(of) = self.sessions.get_mut(session) {
                    of.conns.retain(|(_, other)| *other != conn);
                }
            }
        }
    }

    /// A session's connection is lost: what its server was told on it is lost with it, and a new
    /// connection must not be taken for the old one.
    pub(crate) fn mark_lost(&mut self, conn: ConnId) {
        let program = Arc::clone(&self.program);
        let Some(of) = self.conns.get(conn) else { return };
        let Some(role) = program.role(of.role) else { return };
        let each = role.reuse.is_some_and(|reuse| reuse.when == ReuseWhen::EachResponse);
        let told = of.side == Side::Client && !of.kept && of.is_clean() && of.waiters.is_empty();
        if !told || each || of.releasing || role.mode == Mode::Async {
            return;
        }
        if let Some(session) = of.session.and_then(|session| self.sessions.get_mut(session)) {
            session.lost.push(of.role);
        }
    }

    /// The connection that a message of this handler's requester came over.
    pub(crate) fn requester_of(&self, task: &Task) -> Option<Requester> {
        self.incomings.get(task.origin.request()?)?.requester
    }
}
