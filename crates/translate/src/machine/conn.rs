//! TCP connections: events that the caller reports.

use super::reach::PeerLoss;
use super::record::PeerEvent;
use super::slab::{ConnId, QueryId};
use super::state::{Conn, ConnectionState, Written};
use super::timers::Timer;
use super::{BUFFER_OCTETS, Count, Machine, Output, PIPELINED_MAX, QueryOwner, Work};
use core::net::SocketAddr;
use core::time::Duration;
use gatewright_lang::ir::{Mode, Role, RoleId, SessionKey, Side};

/// How long a connection that we ended is still read. So the peer gets our last octets before the
/// system resets the connection for octets that it sent in vain (RFC 9112 §9.6).
const LINGER: Duration = Duration::from_secs(2);

impl Machine {
    /// Reports a peer's connection to a server role. The id is valid even above the role's limit:
    /// the machine then answers as the protocol says and closes.
    pub fn accepted(&mut self, now: Duration, role: RoleId, peer: SocketAddr) -> ConnId {
        self.now = now;
        self.count(Count::Accepted);
        let mut of = Conn::new(role, Side::Server, ConnectionState::Open, now);
        of.peer = Some(peer);
        let conn = self.conns.insert(of);
        self.record_accepted(conn);
        let program = self.program.clone();
        let Some(about) = program.role(role) else {
            self.drop_conn(conn, true);
            return conn;
        };
        let state = self.roles.get_mut(role.index());
        let full = state.is_some_and(|state| {
            state.connections += 1;
            state.connections > about.connections_max
        });
        self.arm(conn);
        if full {
            self.count(Count::Full);
            self.answer_conn(conn, None, &about.full);
            self.close_after_sending(conn);
        } else if let Some(greeting) = &about.greeting {
            match self.build(greeting, None, role) {
                Ok(built) => self.put(conn, built.octets, None, Written::Nothing),
                Err(_) => self.count(Count::Unbuildable),
            }
        }
        self.settle();
        conn
    }

    /// Reports that a connection requested by [`Output::Connect`] is established.
    pub fn connected(&mut self, now: Duration, conn: ConnId) {
        self.now = now;
        if let Some(of) = self.conns.get_mut(conn)
            && of.state == ConnectionState::Connecting
        {
            of.state = ConnectionState::Open;
            of.moved = now;
            self.count(Count::Connected);
            self.arm(conn);
            self.begin_opening(conn);
        }
        self.settle();
    }

    /// Reports that a connection requested by [`Output::Connect`] failed; the id is over.
    pub fn connect_failed(&mut self, now: Duration, conn: ConnId) {
        self.now = now;
        if self.conns.get(conn).is_some_and(|of| of.state == ConnectionState::Connecting) {
            self.record_unreached(conn);
            self.count(Count::ConnectFailed);
            self.peer_is_lost(conn, PeerLoss::Unreachable);
            self.lose_conn(conn);
        }
        self.settle();
    }

    /// Reports arrived octets, at most as many as there is [`room`](Self::room) for.
    pub fn received(&mut self, now: Duration, conn: ConnId, octets: &[u8]) {
        let room = self.room(conn);
        if octets.len() > room {
            let over = octets.len() - room;
            self.counters.add(Count::Overrun, u64::try_from(over).unwrap_or(u64::MAX));
        }
        let Self { conns, pool, .. } = self;
        if let Some(of) = conns.get_mut(conn) {
            of.unread.append(pool, octets);
        }
        self.arrived(now, conn, octets.len());
    }

    /// A buffer to read octets of a connection into: as long as [`room`](Self::room), or shorter;
    /// empty if there is no room. Then call [`filled`](Self::filled).
    pub fn window(&mut self, conn: ConnId) -> &mut [u8] {
        let room = self.room(conn);
        let Self { conns, pool, .. } = self;
        conns.get_mut(conn).map_or(&mut [], |of| of.unread.window(pool, room))
    }

    /// Reports how many octets arrived at the beginning of the [`window`](Self::window); 0 if none.
    pub fn filled(&mut self, now: Duration, conn: ConnId, octets: usize) {
        if let Some(of) = self.conns.get_mut(conn) {
            of.unread.arrived(octets);
        }
        self.arrived(now, conn, octets);
    }

    /// Handles octets that just arrived at the end of the unread ones.
    fn arrived(&mut self, now: Duration, conn: ConnId, octets: usize) {
        self.now = now;
        self.note_arrived(conn, octets);
        self.record_arrived(conn, octets);
        let Self { conns, pool, work, .. } = self;
        if let Some(of) = conns.get_mut(conn) {
            if of.state != ConnectionState::Open {
                of.unread.clear();
            } else if octets > 0 {
                of.kept = false;
                work.push_back(Work::Read(conn));
            }
            pool.reclaim_window(&mut of.unread);
        }
        self.settle();
    }

    fn note_arrived(&mut self, conn: ConnId, octets: usize) {
        if self.traced.is_some()
            && let Some(of) = self.conns.get(conn)
        {
            let all = of.unread.octets();
            let octets = all.get(all.len().saturating_sub(octets)..).unwrap_or_default().to_vec();
            let role = of.role;
            self.note(|| super::MachineStep::Arrived { role, octets });
        }
    }

    /// Reports that the peer ended its sending side: no more octets will arrive.
    pub fn ended(&mut self, now: Duration, conn: ConnId) {
        self.now = now;
        self.record_end(conn, PeerEvent::Closes);
        if let Some(of) = self.conns.get_mut(conn) {
            of.ended = true;
            match of.state {
                ConnectionState::Lingering => self.drop_conn(conn, false),
                _ => self.work.push_back(Work::Read(conn)),
            }
        }
        self.settle();
    }

    /// Reports that the connection was reset or failed otherwise; the id is over.
    pub fn broken(&mut self, now: Duration, conn: ConnId) {
        self.now = now;
        if self.conns.get(conn).is_some() {
            self.record_end(conn, PeerEvent::Closes);
            self.count(Count::Broken);
            self.peer_ends(conn);
            self.lose_conn(conn);
        }
        self.settle();
    }

    /// Reports how many of the [`unsent`](Self::unsent) octets the system has taken.
    pub fn sent(&mut self, now: Duration, conn: ConnId, octets: usize) {
        self.now = now;
        self.record_sent(conn, octets);
        let Self { conns, pool, .. } = self;
        if let Some(of) = conns.get_mut(conn) {
            of.unsent.advance(pool, octets);
            of.moved = now;
            let source = of.streaming.as_ref().map(|streaming| streaming.from);
            let space = of.unsent.len() < BUFFER_OCTETS;
            let waited_for = !of.waiters.is_empty();
            if let Some(source) = source.filter(|_| space) {
                let source = self.incomings.get(source).and_then(|of| of.conn);
                self.work.extend(source.map(Work::Read));
            }
            // A request may have waited for its predecessor's answer to leave.
            if space {
                self.work.push_back(Work::Read(conn));
                if waited_for && self.is_shared(conn) {
                    self.serve_waiters(conn);
                }
            }
            self.check_closing(conn);
        }
        self.settle();
    }

    /// Octets to be written to a connection, in order; empty for an id that is over.
    pub fn unsent(&self, conn: ConnId) -> &[u8] {
        self.conns.get(conn).map_or(&[], |of| of.unsent.octets())
    }

    /// Whether more of the stream being written waits after the [`unsent`](Self::unsent) octets. It
    /// follows as soon as those are [`sent`](Self::sent), unless it is too short to be interpreted.
    pub fn has_more(&self, conn: ConnId) -> bool {
        let streaming = self.conns.get(conn).and_then(|of| of.streaming.as_ref());
        let source = streaming.and_then(|of| self.incomings.get(of.from)?.conn);
        source.and_then(|source| self.conns.get(source)).is_some_and(|of| !of.unread.is_empty())
    }

    /// Number of octets that may be read from a connection now. Where it is 0, they stay in the
    /// system until [`Output::Read`].
    pub fn room(&self, conn: ConnId) -> usize {
        self.conns.get(conn).map_or(0, |of| match of.state {
            // What it has sent already is read first.
            ConnectionState::Open if of.waiting => 0,
            ConnectionState::Open => self.window.saturating_sub(of.unread.len()),
            ConnectionState::Closing | ConnectionState::Lingering => BUFFER_OCTETS,
            ConnectionState::Resolving(_) | ConnectionState::Connecting => 0,
        })
    }

    /// Reports that a name was resolved, or could not be.
    pub fn resolved(&mut self, now: Duration, query: QueryId, address: Option<SocketAddr>) {
        self.now = now;
        match (self.queries.remove(query), address) {
            (Some(QueryOwner::Conn(conn)), Some(to)) => {
                if let Some(of) = self.conns.get_mut(conn) {
                    of.state = ConnectionState::Connecting;
                    of.peer = Some(to);
                    let role = of.role;
                    self.outputs.push_back(Output::Connect { conn, role, to });
                }
            }
            (Some(QueryOwner::Conn(conn)), None) => {
                self.record_unreached(conn);
                self.count(Count::Unresolved);
                self.peer_is_lost(conn, PeerLoss::Unresolved);
                self.lose_conn(conn);
            }
            (Some(QueryOwner::Task(task)), Some(to)) => self.send_datagram_to(task, to),
            (Some(QueryOwner::Task(task)), None) => {
                self.count(Count::Unresolved);
                self.asked_target_is_lost(task, PeerLoss::Unresolved);
                self.send_failed(task);
            }
            (None, _) => {}
        }
        self.settle();
    }

    /// Maximum number of requests of a connection that may be handled at once.
    pub(crate) fn pipelined(&self, role: &Role, id: RoleId) -> u32 {
        let session = self.program.session.as_ref();
        let one_session = session
            .is_some_and(|session| session.role == id && session.key == SessionKey::Connection);
        if role.mode == Mode::Sync || one_session { 1 } else { PIPELINED_MAX }
    }

    /// Sets the timer that detects a silent connection.
    pub(crate) fn arm(&mut self, conn: ConnId) {
        let Some(of) = self.conns.get_mut(conn) else { return };
        let role = self.program.role(of.role);
        let idle = match of.state {
            ConnectionState::Lingering => Some(LINGER),
            _ => role.and_then(|role| role.idle),
        };
        self.timers.cancel(of.alarm.take());
        if let Some(idle) = idle {
            let at = of.moved.saturating_add(idle);
            of.alarm = Some(self.timers.set(at, Timer::Conn(conn)));
        }
    }

    /// Handles the timer of [`arm`](Self::arm).
    pub(crate) fn conn_is_silent(&mut self, conn: ConnId) {
        let Some(of) = self.conns.get_mut(conn) else { return };
        of.alarm = None;
        let role = self.program.role(of.role);
        let kept = of.side == Side::Client && of.session.is_none() && of.is_clean();
        let reuse = role.and_then(|role| role.reuse).filter(|_| kept);
        let idle = match (of.state, reuse) {
            (ConnectionState::Lingering, _) => Some(LINGER),
            (_, Some(reuse)) => Some(reuse.idle),
            (_, None) => role.and_then(|role| role.idle),
        };
        let Some(idle) = idle else { return };
        // While we owe the answer, or wait for one with a time of its own, the silence is ours.
        let ours = match of.side {
            Side::Server => of.current.is_none() && of.requests > 0 && of.unsent.is_empty(),
            Side::Client => {
                let asked = of.current.is_none() && !of.exchanges.is_empty();
                asked || of.opening.is_some() || of.state != ConnectionState::Open
            }
        };
        let held = of
            .current
            .is_some_and(|id| self.incomings.get(id).is_some_and(super::state::Incoming::is_held));
        if (ours || held)
            && of.state != ConnectionState::Lingering
            && of.state != ConnectionState::Closing
        {
            of.moved = self.now;
            return self.arm(conn);
        }
        let at = of.moved.saturating_add(idle);
        if at > self.now {
            of.alarm = Some(self.timers.set(at, Timer::Conn(conn)));
            return;
        }
        let reset = !of.unsent.is_empty();
        if of.state != ConnectionState::Lingering {
            self.count(Count::Idle);
        }
        self.drop_conn(conn, reset);
    }
}
