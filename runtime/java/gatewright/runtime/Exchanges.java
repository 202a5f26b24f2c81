package gatewright.runtime;

import gatewright.runtime.Incoming.Passing;
import gatewright.runtime.Incoming.Purpose;
import gatewright.runtime.Task.Wait;
import java.util.Objects;

/** Requests that are sent, the connections for them, and what becomes of them in the air. */
final class Exchanges {
    private final Machine m;

    Exchanges(Machine m) {
        this.m = m;
    }

    /** The last connection that was kept for a server; null if there is none. */
    private Conn takeKept(int role, Target target) {
        Ids kept = m.roles[role].kept;
        for (int at = kept.count() - 1; at >= 0; at--) {
            Conn conn = m.conns.get(kept.get(at));
            if (conn == null || !conn.target.equals(target))
                continue;
            kept.remove(conn.id);
            conn.kept = true;
            conn.moved = m.now;
            m.connections.arm(conn);
            m.count(Count.REUSED);
            return conn;
        }
        return null;
    }

    /** A new connection; null if there is no room for it. */
    private Conn connectTo(int role, Target target) {
        RoleState state = m.roles[role];
        if (state.connections >= m.program.roles()[role].connectionsMax) {
            // A connection that is kept for another server makes room.
            long oldest = state.kept.first();
            if (oldest == 0) {
                m.count(Count.NO_ROOM);
                return null;
            }
            m.connections.drop(oldest, false);
        }
        Conn conn = m.connections.add(role, Conn.State.CONNECTING);
        conn.target = target;
        if (!target.isName()) {
            m.output(Output.connect(conn.id, role, target.address()));
            return conn;
        }
        conn.state = Conn.State.RESOLVING;
        conn.query = m.names.ask(target, conn.id, 0);
        if (conn.query == 0) {
            m.connections.drop(conn.id, false);
            return null;
        }
        return conn;
    }

    /** Sends over a connection as soon as it is free. */
    private void waitFor(Task task, Conn conn) {
        task.waitsFor = conn.id;
        conn.waiters.add(task.id);
        conn.releasing = false;
        // The rest of the last response is in the way, and whoever sends again does not want it.
        Incoming current = m.incomings.get(conn.current);
        // Its own it does not even have to have read up to the stream; whoever else reads one over a
        // connection that all share goes on reading it.
        boolean inTheWay = current != null
            && (current.reader.streaming && !conn.about.shared || current.task == task.id);
        if (inTheWay && current.passing == Passing.HELD)
            m.pump.discard(current.id);
        serveWaiters(conn.id);
    }

    /** The session's own connection to a role; null if it has none. */
    private Conn own(Session session, int role) {
        for (int at = 0; at < session.conns.count(); at++) {
            Conn own = m.conns.get(session.conns.get(at));
            if (own != null && own.role == role)
                return own;
        }
        return null;
    }

    /** The connection to a server that all sessions share; null if none can be made. */
    private Conn shared(int role, Target target) {
        Ids shared = m.roles[role].shared;
        for (int at = 0; at < shared.count(); at++) {
            Conn conn = m.conns.get(shared.get(at));
            if (conn != null && conn.target.equals(target) && conn.state != Conn.State.CLOSING
                    && conn.state != Conn.State.LINGERING)
                return conn;
        }
        Conn conn = connectTo(role, target);
        if (conn != null)
            shared.add(conn.id);
        return conn;
    }

    /** Has a request wait for the connection that all sessions share. */
    private void acquireShared(Task task) {
        Conn conn = shared(task.role, task.target);
        boolean room = conn != null && conn.waiters.count() < conn.about.sharedWaiting;
        if (conn != null && !room)
            m.count(Count.NO_ROOM);
        if (room)
            waitFor(task, conn);
        else
            m.running.sendFailed(task.id);
    }

    /**
     * Finds a connection for a request: the one that all share, the session's, a kept one, or a new
     * one.
     */
    private void acquire(Task task) {
        int role = task.role;
        if (m.program.roles()[role].shared) {
            acquireShared(task);
            return;
        }
        Session session = m.remembered.of(task);
        long bit = 1L << (role & 63);
        if ((session.lost & bit) != 0) {
            session.lost &= ~bit;
            m.running.sendFailed(task.id);
            return;
        }
        Conn own = own(session, role);
        if (own != null && own.target.equals(task.target)) {
            waitFor(task, own);
            return;
        }
        if (own != null)
            m.connections.letGo(own.id);
        // Letting go of one may have ended whoever used it.
        if (m.tasks.get(task.id) == null)
            return;
        Conn conn = task.newOnly ? null : takeKept(role, task.target);
        if (conn == null)
            conn = connectTo(role, task.target);
        if (conn == null) {
            m.running.sendFailed(task.id);
            return;
        }
        if (m.sessions.get(session.id) != null) {
            conn.session = session.id;
            session.conns.add(conn.id);
        }
        waitFor(task, conn);
    }

    void beginSend(Task task) {
        task.wait = Wait.CONNECTION;
        task.waitsFor = 0;
        m.timers.set(task.timer, task.deadline);
        if (m.program.roles()[task.role].udp)
            m.datagrams.begin(task);
        else if (task.origin == Task.Origin.BY_OPENING && task.by == task.role)
            connIsReady(task.id, task.conn);
        else
            acquire(task);
    }

    /**
     * Whether those who wait for a shared connection go on waiting: until it has taken what was sent
     * before, and until the first of them can be told apart from who is in the air.
     */
    private boolean isChoked(Conn conn) {
        if (!conn.about.shared || conn.waiters.count() == 0)
            return false;
        Task first = m.tasks.get(conn.waiters.get(0));
        return conn.unsent.length() >= Machine.BUFFER_OCTETS
            || first != null && first.wait == Wait.CONNECTION && first.respond
                && conn.about.async && isTaken(conn, first.flow);
    }

    void serveWaiters(long id) {
        for (Conn conn = m.conns.get(id); conn != null; conn = m.conns.get(id)) {
            boolean busy =
                !conn.about.async && (conn.exchanges.count() > 0 || conn.streaming != null)
                || isChoked(conn);
            if (conn.state != Conn.State.OPEN || conn.opening != 0 || busy)
                return;
            long waiter = conn.waiters.first();
            if (waiter == 0)
                return;
            connIsReady(waiter, id);
        }
    }

    void beginOpening(long id) {
        Conn conn = m.conns.get(id);
        if (conn != null && conn.about.opening != null) {
            m.running.start(conn.about.opening, Task.Origin.BY_OPENING, id, 0);
        } else {
            m.reach.isConnected(id);
            serveWaiters(id);
        }
    }

    Exchange begin(Task task) {
        Exchange exchange = m.exchanges.add(id -> new Exchange(m, id, task));
        task.flow = null;
        m.timers.set(exchange.timer, exchange.deadline);
        m.timers.cancel(task.timer);
        task.wait = exchange.gather ? Wait.GATHER : Wait.RESPONSE;
        task.waitsFor = exchange.id;
        if (exchange.gather) {
            task.gathering = true;
            task.gatherExchange = exchange.id;
            task.gatherLeft = task.gatherMax;
        }
        return exchange;
    }

    /** Whether another request in the air could not be told apart. */
    private boolean isTaken(Conn conn, Common flow) {
        for (int at = 0; at < conn.exchanges.count(); at++) {
            Exchange other = m.exchanges.get(conn.exchanges.get(at));
            if (other != null && Objects.equals(other.flow, flow))
                return true;
        }
        return false;
    }

    private void connIsReady(long id, long connId) {
        Task task = m.tasks.get(id);
        Conn conn = m.conns.get(connId);
        if (task == null || task.wait != Wait.CONNECTION)
            return;
        Letter letter = task.letter;
        Incoming from = letter.streams ? m.incomings.get(letter.from) : null;
        boolean gone = letter.streams && !(from != null && from.passing == Passing.HELD);
        if (conn != null && task.respond && conn.about.async && isTaken(conn, task.flow)) {
            m.count(Count.NO_ROOM);
            conn = null;
        }
        if (conn == null || gone) {
            m.running.sendFailed(id);
            return;
        }
        if (task.respond) {
            Exchange exchange = begin(task);
            exchange.conn = connId;
            if (conn.kept && !letter.streams)
                exchange.octets.add(letter.octets.text());
            conn.exchanges.add(exchange.id);
        } else {
            letter.told = Letter.Told.SENT;
            letter.task = id;
            task.wait = Wait.WRITTEN;
            task.waitsFor = connId;
            if (!letter.streams)
                m.timers.cancel(task.timer);
            task.flow = null;
        }
        task.letter = null;
        m.pump.put(connId, letter);
    }

    void sentWhole(long id) {
        Task task = m.tasks.get(id);
        if (task != null && task.wait == Wait.WRITTEN)
            m.running.goOn(task, true);
    }

    /* ---- In the air ---- */

    void responseBegun(long id, long incoming) {
        Exchange exchange = m.exchanges.get(id);
        Incoming message = m.incomings.get(incoming);
        if (message == null)
            return;
        if (exchange == null) {
            message.passing = Passing.DISCARDED;
            return;
        }
        exchange.begun = true;
        m.timers.cancel(exchange.repetition);
        exchange.octets.free();
        m.reach.answers(exchange);
        message.task = exchange.task;
        if (exchange.gather)
            m.running.gathered(exchange.task, incoming);
        else
            m.running.responded(exchange.task, incoming);
    }

    /** The exchange of a connection that a message answers; 0 if there is none. */
    private long answered(Conn conn, View view) {
        for (int at = 0; at < conn.exchanges.count(); at++) {
            Exchange exchange = m.exchanges.get(conn.exchanges.get(at));
            if (exchange == null || exchange.flow == null)
                continue;
            Message request = conn.about.flow[exchange.flow.first()].view();
            if (exchange.flow.equals(Common.of(conn.about, request, view, true)))
                return exchange.id;
        }
        return 0;
    }

    /** A message from a server that answers nothing in the air: it asks, or nobody wants it. */
    private void ask(Conn conn, Incoming incoming) {
        for (RequestKind kind : conn.about.requests) {
            if (kind.view() != incoming.view.about)
                continue;
            incoming.purpose = Purpose.REQUEST;
            incoming.requester = Incoming.Requester.BY_CONN;
            incoming.answerTo = conn.id;
            if (incoming.conn == 0)
                m.answers.dispatch(incoming.id);
            else
                incoming.reader.until(kind.waits());
            return;
        }
        m.count(Count.UNSOLICITED);
        incoming.purpose = Purpose.IGNORED;
        incoming.passing = Passing.DISCARDED;
    }

    void matchResponse(long connId, long id) {
        Conn conn = m.conns.get(connId);
        Incoming incoming = m.incomings.get(id);
        if (conn == null || incoming == null)
            return;
        long exchange = answered(conn, incoming.view);
        if (exchange == 0) {
            ask(conn, incoming);
            return;
        }
        incoming.purpose = Purpose.RESPONSE;
        incoming.exchange = exchange;
        responseBegun(exchange, id);
    }

    void end(long id) {
        Exchange exchange = m.exchanges.take(id);
        if (exchange == null)
            return;
        m.timers.cancel(exchange.timer);
        m.timers.cancel(exchange.repetition);
        if (exchange.byDatagram)
            m.roles[exchange.role].air.remove(exchange.flow);
        Conn conn = m.conns.get(exchange.conn);
        if (conn != null)
            conn.exchanges.remove(id);
        exchange.octets.free();
    }

    /** A request whose kept connection had gone is sent over a new one. */
    private boolean sendAgain(Exchange exchange) {
        Task task = m.tasks.get(exchange.task);
        if (task == null)
            return false;
        Letter letter = new Letter(m.pool);
        letter.octets.take(exchange.octets);
        task.letter = letter;
        task.flow = exchange.flow;
        task.target = exchange.target;
        task.newOnly = true;
        m.count(Count.REPLACED);
        end(exchange.id);
        beginSend(task);
        return true;
    }

    void lost(long id, boolean kept) {
        Exchange exchange = m.exchanges.get(id);
        if (exchange == null)
            return;
        // It was closed before it gave an octet: a new one takes its place, once.
        boolean again =
            kept && !exchange.begun && !exchange.gather && exchange.octets.length() > 0;
        if (again && sendAgain(exchange))
            return;
        end(id);
        if (exchange.gather)
            m.running.gatherIsOver(exchange.task);
        else if (!exchange.begun)
            m.running.sendFailed(exchange.task);
    }

    void abandon(long id) {
        Exchange exchange = m.exchanges.get(id);
        if (exchange == null)
            return;
        Role role = m.program.roles()[exchange.role];
        boolean sync = !role.async && !exchange.begun;
        end(id);
        // Its response would be taken for the next one's.
        if (sync)
            m.connections.lose(exchange.conn);
        else if (role.shared)
            serveWaiters(exchange.conn);
    }

    void isLate(long id) {
        Exchange exchange = m.exchanges.get(id);
        if (exchange == null)
            return;
        end(id);
        if (exchange.gather) {
            m.running.gatherIsOver(exchange.task);
            return;
        }
        m.count(Count.LATE);
        if (!exchange.begun) {
            m.reach.wasSilent(exchange);
            m.running.sendFailed(exchange.task);
        }
        m.connections.lose(exchange.conn);
    }
}
