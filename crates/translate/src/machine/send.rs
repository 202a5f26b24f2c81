//! Sends requests, and finds the connections for them.

use super::slab::{ConnId, QueryId, TaskId};
use super::state::{
    Conn, ConnectionState, Exchange, Gather, Origin, Passing, QueuedRequest, Wait, Written,
};
use super::timers::Timer;
use super::{BUFFER_OCTETS, Count, Machine, Output, QUERIES_MAX, QueryOwner, RoleTarget};
use gatewright_lang::ir::{HandlerKind, Mode, RoleId, Side, Transport};
use std::sync::Arc;

impl Machine {
    pub(crate) fn begin_send(&mut self, id: TaskId, pending: Box<QueuedRequest>) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        let (role, deadline) = (pending.role, pending.deadline);
        let before = task.alarm.take();
        task.wait = Wait::Connection(pending);
        let origin = task.origin;
        self.timers.cancel(before);
        let udp = self.program.role(role).is_some_and(|role| role.transport == Transport::Udp);
        match origin {
            _ if udp => self.begin_datagram(id),
            Origin::Opening { role: own, conn } if own == role => self.conn_is_ready(id, conn),
            _ => self.acquire(id),
        }
        // Most requests leave at once: only one that waits for its connection needs a time for that.
        if let Some(task) = self.tasks.get_mut(id)
            && matches!(task.wait, Wait::Connection(_))
            && task.alarm.is_none()
        {
            task.alarm = Some(self.timers.set(deadline, Timer::Task(id)));
        }
    }

    /// Finds a connection for a request: the shared one, the session's, a kept one, or a new one.
    fn acquire(&mut self, id: TaskId) {
        if self.acquire_shared(id) {
            return;
        }
        let Some(mut task) = self.tasks.take(id) else { return };
        let session = self.session_of(&mut task);
        let Wait::Connection(pending) = &task.wait else { return self.tasks.restore(id, task) };
        let (role, target, new_only) = (pending.role, pending.target.clone(), pending.new_only);
        self.tasks.restore(id, task);
        let Some(of) = self.sessions.get_mut(session) else { return };
        let lost = of.lost.len();
        of.lost.retain(|lost| *lost != role);
        if of.lost.len() < lost {
            return self.send_failed(id);
        }
        let own = of.conns.iter().find(|(of, _)| *of == role).map(|(_, conn)| *conn);
        if let Some(conn) = own {
            if self.conns.get(conn).is_some_and(|of| of.target.as_ref() == Some(&target)) {
                self.record_used(id, role, conn);
                return self.wait_for(id, conn);
            }
            self.let_go(conn);
            // What was read there may have been this handler's own: then nobody sends any more.
            if self.tasks.get(id).is_none() {
                return;
            }
        }
        // What opened a kept connection is in no recording.
        let new_only = new_only || self.is_recorded(id);
        let kept = if new_only { None } else { self.take_kept(role, &target) };
        let conn = match kept {
            Some(conn) => conn,
            None => match self.connect(role, target) {
                Some(conn) => {
                    self.record_opened(id, conn);
                    conn
                }
                None => return self.send_failed(id),
            },
        };
        if let Some(of) = self.conns.get_mut(conn) {
            of.session = Some(session);
        }
        if let Some(of) = self.sessions.get_mut(session) {
            of.conns.push((role, conn));
        }
        self.wait_for(id, conn);
    }

    /// Makes a request wait for the connection shared by all sessions; returns whether its role has
    /// one.
    fn acquire_shared(&mut self, id: TaskId) -> bool {
        let Some(Wait::Connection(pending)) = self.tasks.get(id).map(|task| &task.wait) else {
            return false;
        };
        let (role, target) = (pending.role, pending.target.clone());
        let Some(most) = self.program.role(role).and_then(|role| role.shared) else { return false };
        let fits = |conn: &ConnId| {
            self.conns.get(*conn).is_some_and(|of| {
                of.target.as_ref() == Some(&target)
                    && !matches!(of.state, ConnectionState::Closing | ConnectionState::Lingering)
            })
        };
        let shared = self.roles.get(role.index()).map_or(&[][..], |role| &role.shared);
        let mut shared = shared.iter().copied().filter(fits);
        let any = shared.clone().next();
        // What opened the others' connection is in no recording: a recorded handler opens its own.
        let is_recorded = self.is_recorded(id);
        let found = shared.find(|conn| !is_recorded || self.is_recorded_with(id, *conn));
        let Some(conn) = found.or_else(|| self.connect_shared(id, role, target)).or(any) else {
            self.send_failed(id);
            return true;
        };
        self.record_used(id, role, conn);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        if self.conns.get(conn).is_some_and(|of| of.waiters.len() >= most) {
            self.count(Count::NoRoom);
            self.send_failed(id);
        } else {
            self.wait_for(id, conn);
        }
        true
    }

    fn connect_shared(&mut self, id: TaskId, role: RoleId, target: RoleTarget) -> Option<ConnId> {
        let conn = self.connect(role, target)?;
        self.record_opened(id, conn);
        self.roles.get_mut(role.index())?.shared.push(conn);
        Some(conn)
    }

    /// Whether a connection is shared by all sessions.
    pub(crate) fn is_shared(&self, conn: ConnId) -> bool {
        self.conns.get(conn).is_some_and(|of| {
            of.side == Side::Client
                && self.program.role(of.role).is_some_and(|role| role.shared.is_some())
        })
    }

    /// Sends over a connection as soon as it is free.
    fn wait_for(&mut self, id: TaskId, conn: ConnId) {
        if let Some(task) = self.tasks.get_mut(id)
            && let Wait::Connection(pending) = &mut task.wait
        {
            pending.conn = Some(conn);
        }
        // Whoever else reads a response there goes on reading it.
        let shared = self.is_shared(conn);
        let Some(of) = self.conns.get_mut(conn) else { return self.send_failed(id) };
        of.waiters.push_back(id);
        of.releasing = false;
        // The rest of the last response is in the way, and whoever sends again does not want it.
        if let Some(current) = of.current
            && self.incomings.get(current).is_some_and(|of| {
                // Its own it does not even have to have read up to the stream.
                (!shared && of.is_held()) || (of.passing == Passing::Held && of.task == Some(id))
            })
        {
            self.discard(current);
        }
        self.serve_waiters(conn);
    }

    /// Lets waiting handlers send over a connection, as far as it is free. Over a shared connection
    /// they also wait until earlier octets are sent, and until the first waiting request can be
    /// told apart from those in flight.
    pub(crate) fn serve_waiters(&mut self, conn: ConnId) {
        let shared = self.is_shared(conn);
        while let Some(of) = self.conns.get(conn) {
            let sync = self.program.role(of.role).is_some_and(|role| role.mode == Mode::Sync);
            let busy = (sync && (!of.exchanges.is_empty() || of.streaming.is_some()))
                || (shared && (of.unsent.len() >= BUFFER_OCTETS || self.is_first_alike(of)));
            let Some(of) = self.conns.get_mut(conn) else { return };
            if of.state != ConnectionState::Open || of.opening.is_some() || busy {
                return;
            }
            let Some(task) = of.waiters.pop_front() else { return };
            self.conn_is_ready(task, conn);
        }
    }

    /// Whether the first waiting request could be confused with one in flight.
    fn is_first_alike(&self, of: &Conn) -> bool {
        let first = of.waiters.front().and_then(|first| self.tasks.get(*first));
        let Some(Wait::Connection(first)) = first.map(|task| &task.wait) else { return false };
        let alike = |other: &super::ExchangeId| {
            self.exchanges.get(*other).is_some_and(|other| other.flow == first.flow)
        };
        let asynchronous = self.program.role(of.role).is_some_and(|of| of.mode == Mode::Async);
        first.respond && asynchronous && of.exchanges.iter().any(alike)
    }

    /// The connection to a server that was kept last.
    fn take_kept(&mut self, role: RoleId, target: &RoleTarget) -> Option<ConnId> {
        let Self { roles, conns, .. } = self;
        let kept = &mut roles.get_mut(role.index())?.kept;
        let fits =
            |conn: &ConnId| conns.get(*conn).is_some_and(|of| of.target.as_ref() == Some(target));
        let at = kept.iter().rposition(fits)?;
        let conn = kept.remove(at);
        if let Some(of) = self.conns.get_mut(conn) {
            of.kept = true;
            of.moved = self.now;
            self.arm(conn);
        }
        self.count(Count::Reused);
        Some(conn)
    }

    fn connect(&mut self, role: RoleId, target: RoleTarget) -> Option<ConnId> {
        let most = self.program.role(role)?.connections_max;
        let state = self.roles.get_mut(role.index())?;
        if state.connections >= most {
            if state.kept.is_empty() {
                self.count(Count::NoRoom);
                return None;
            }
            // A connection that is kept for another server makes room.
            let oldest = state.kept.remove(0);
            self.drop_conn(oldest, false);
        }
        let mut conn = Conn::new(role, Side::Client, ConnectionState::Connecting, self.now);
        conn.target = Some(target.clone());
        if let RoleTarget::Address(to) = target {
            conn.peer = Some(to);
        }
        let conn = self.conns.insert(conn);
        self.roles.get_mut(role.index())?.connections += 1;
        match target {
            RoleTarget::Address(to) => self.outputs.push_back(Output::Connect { conn, role, to }),
            RoleTarget::Name(host, port) => {
                let Some(query) = self.ask_name(host, port, QueryOwner::Conn(conn)) else {
                    self.drop_conn(conn, false);
                    return None;
                };
                self.conns.get_mut(conn)?.state = ConnectionState::Resolving(query);
            }
        }
        Some(conn)
    }

    pub(crate) fn ask_name(
        &mut self,
        host: String,
        port: u16,
        asker: QueryOwner,
    ) -> Option<QueryId> {
        if self.queries.len() >= QUERIES_MAX {
            self.count(Count::Unresolved);
            return None;
        }
        let query = self.queries.insert(asker);
        self.outputs.push_back(Output::Resolve { query, host, port });
        Some(query)
    }

    /// Prepares a new connection for its first request.
    pub(crate) fn begin_opening(&mut self, conn: ConnId) {
        let program = Arc::clone(&self.program);
        let Some(role) = self.conns.get(conn).map(|of| of.role) else { return };
        match program.role(role).and_then(|role| role.opening) {
            Some(handler)
                if program
                    .handler(handler)
                    .is_some_and(|of| matches!(of.kind, HandlerKind::Opening { .. })) =>
            {
                self.start(handler, Origin::Opening { role, conn });
            }
            _ => {
                self.peer_is_connected(conn);
                self.serve_waiters(conn);
            }
        }
    }

    /// Finishes an opening: its connection is ready for use.
    pub(crate) fn opening_done(&mut self, id: TaskId) {
        let origin = self.tasks.get(id).map(|task| task.origin);
        self.end_task(id, true);
        if let Some(Origin::Opening { conn, .. }) = origin {
            self.peer_is_connected(conn);
            self.serve_waiters(conn);
            self.let_go_if_free(conn);
        }
    }

    /// Sends over a free connection.
    fn conn_is_ready(&mut self, id: TaskId, conn: ConnId) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        if !matches!(task.wait, Wait::Connection(_)) {
            return;
        }
        let sending = Wait::Written(conn);
        let Wait::Connection(pending) = core::mem::replace(&mut task.wait, sending) else {
            return;
        };
        self.timers.cancel(task.alarm.take());
        let QueuedRequest { role, octets, stream, flow, respond, gather, target, deadline, .. } =
            *pending;
        let gone = stream.as_ref().is_some_and(|stream| !self.stream_is_there(stream.1));
        let Some(of) = self.conns.get(conn).filter(|_| !gone) else {
            return self.send_failed(id);
        };
        let sync = self.program.role(role).is_some_and(|role| role.mode == Mode::Sync);
        let taken = |other: &super::ExchangeId| {
            self.exchanges.get(*other).is_some_and(|other| other.flow == flow)
        };
        if respond && !sync && of.exchanges.iter().any(taken) {
            // Nothing could tell the two responses apart.
            self.count(Count::NoRoom);
            return self.send_failed(id);
        }
        let mut done = Written::Nothing;
        if respond {
            let again = if of.kept && stream.is_none() { octets.clone() } else { Vec::new() };
            let exchange = self.exchanges.insert(Exchange {
                role,
                task: id,
                conn: Some(conn),
                to: None,
                target,
                flow,
                begun: false,
                gather: gather.is_some(),
                octets: again,
                repetition: None,
                deadline,
                alarm: None,
            });
            self.await_response(id, exchange, gather);
            if let Some(of) = self.conns.get_mut(conn) {
                of.exchanges.push_back(exchange);
            }
        } else {
            done = Written::Sent(id);
            if let Some(task) = self.tasks.get_mut(id) {
                task.alarm = Some(self.timers.set(deadline, Timer::Task(id)));
            }
        }
        self.put(conn, octets, stream, done);
    }

    /// Makes a handler wait for the response to a request that was sent.
    pub(crate) fn await_response(
        &mut self,
        id: TaskId,
        exchange: super::ExchangeId,
        gather: Option<u32>,
    ) {
        if let Some(of) = self.exchanges.get_mut(exchange) {
            of.alarm = Some(self.timers.set(of.deadline, Timer::Exchange(exchange)));
        }
        let Some(task) = self.tasks.get_mut(id) else { return };
        self.timers.cancel(task.alarm.take());
        match gather {
            None => task.wait = Wait::Response(exchange),
            Some(left) => {
                task.wait = Wait::Gather;
                task.gather = Some(Gather {
                    block: task.block,
                    exchange: Some(exchange),
                    waiting: std::collections::VecDeque::new(),
                    left,
                });
            }
        }
    }

    /// Sends a request again over a new connection, because its kept connection had closed.
    pub(crate) fn send_again(&mut self, of: Exchange) {
        let Exchange { role, task: id, target, flow, octets, deadline, .. } = of;
        let pending = Box::new(QueuedRequest {
            role,
            octets,
            stream: None,
            flow,
            respond: true,
            gather: None,
            target,
            conn: None,
            query: None,
            new_only: true,
            deadline,
        });
        self.begin_send(id, pending);
    }

    /// Handles the end of writing a message that expects no answer.
    pub(crate) fn sent_whole(&mut self, id: TaskId) {
        if self.tasks.get(id).is_some_and(|task| matches!(task.wait, Wait::Written(_))) {
            self.go_on(id, true);
        }
    }

    /// Handles a request that could not be sent, or is not answered.
    pub(crate) fn send_failed(&mut self, id: TaskId) {
        let waits = self.tasks.get(id).is_some_and(|task| {
            let wait = &task.wait;
            matches!(
                wait,
                Wait::Connection(_) | Wait::Response(_) | Wait::Written(_) | Wait::Gather
            )
        });
        if waits {
            self.go_on(id, false);
        }
    }
}
