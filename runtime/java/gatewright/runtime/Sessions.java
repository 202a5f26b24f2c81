package gatewright.runtime;

import java.util.ArrayList;

/** Sessions: which one a handler sees, how they begin and end. */
final class Sessions {
    /** The variables of a program that declares none. */
    private static final Message NOTHING = new Message("session");

    private final Machine m;

    Sessions(Machine m) {
        this.m = m;
    }

    private Session add() {
        SessionKind kind = m.program.session();
        Message variables = kind == null ? NOTHING : kind.variables();
        Session session = m.sessions.add(id -> new Session(id, variables.view(), m.now));
        for (int which = 0; kind != null && which < kind.peers().length; which++)
            session.peers.add(new ArrayList<>());
        return session;
    }

    /** The session that a handler's connections belong to; it begins if need be. */
    Session of(Task task) {
        Session keyed = m.sessions.get(task.keyed);
        if (keyed != null)
            return keyed;
        Conn conn = task.origin == Task.Origin.BY_REQUEST ? m.conns.get(task.conn) : null;
        // What all share is no session's, whatever its server asks over it.
        if (conn != null && conn.about.shared)
            conn = null;
        boolean clocked = task.origin == Task.Origin.BY_CLOCK;
        long id = conn != null ? conn.session
            : clocked ? m.clocks[task.clock].session : task.own;
        Session session = m.sessions.get(id);
        if (session != null)
            return session;
        session = add();
        if (conn != null)
            conn.session = session.id;
        else if (clocked)
            m.clocks[task.clock].session = session.id;
        else
            task.own = session.id;
        return session;
    }

    /** The session whose variables a handler sees now, if it began. */
    Session seen(Task task) {
        SessionKind kind = m.program.session();
        if (kind == null)
            return null;
        if (!kind.byConnection())
            return m.sessions.get(task.keyed);
        Conn conn = m.conns.get(task.conn);
        return conn == null ? null : m.sessions.get(conn.session);
    }

    /** The session whose variables a handler changes now. */
    Session changed(Task task) {
        SessionKind kind = m.program.session();
        return kind != null && kind.byConnection() ? of(task) : seen(task);
    }

    /** A connection of the session to a role; 0 if there is none. */
    long connTo(Task task, int role) {
        Session session = of(task);
        for (int at = 0; at < session.conns.count(); at++) {
            Conn conn = m.conns.get(session.conns.get(at));
            if (conn != null && conn.role == role)
                return conn.id;
        }
        return 0;
    }

    /* ---- Sessions that are found by fields ---- */

    private void arm(Session session) {
        m.timers.set(session.timer, session.used + m.program.session().idle());
    }

    private Session begin(Common key) {
        if (m.keyed.size() >= m.program.session().sessionsMax()) {
            m.count(Count.SESSIONS_FULL);
            return null;
        }
        Session session = add();
        session.key = key;
        m.keyed.put(key, session.id);
        arm(session);
        return session;
    }

    /** The handler enters the session that its request belongs to; false if there is none. */
    boolean enter(Task task, boolean mayBegin) {
        SessionKind kind = m.program.session();
        Incoming request = m.incomings.get(task.request);
        if (kind == null || kind.keys() == null || request == null)
            return false;
        return enter(task, Common.of(request.view, kind.keys(), null), mayBegin);
    }

    /** The handler enters the session of a key; false if there is none. */
    boolean enter(Task task, Common key, boolean mayBegin) {
        Long id = m.keyed.get(key);
        Session session = id == null ? null : m.sessions.get(id);
        if (session == null && mayBegin)
            session = begin(key);
        if (session == null)
            return false;
        if (task.keyed != session.id) {
            leaveSession(task.keyed);
            task.keyed = session.id;
            session.users++;
            session.used = m.now;
        }
        return true;
    }

    void leaveSession(long id) {
        Session session = m.sessions.get(id);
        if (session != null) {
            session.users -= session.users > 0 ? 1 : 0;
            session.used = m.now;
        }
    }

    void isUnused(long id) {
        Session session = m.sessions.get(id);
        if (session == null)
            return;
        // Who is connected and stored wants to be told, however long there is nothing to tell.
        if (session.users > 0 || m.stored.areConnected(session))
            session.used = m.now;
        if (session.used + m.program.session().idle() > m.now)
            arm(session);
        else
            end(id);
    }

    /* ---- The end ---- */

    /** A session's connection when the session ends. */
    private void releaseConn(long id) {
        Conn conn = m.conns.get(id);
        if (conn == null)
            return;
        conn.session = 0;
        Incoming current = m.incomings.get(conn.current);
        boolean releasing =
            conn.releasing || conn.about.reuse && conn.about.reuseEachResponse;
        if (current != null && releasing)
            m.connections.letGoWhenFree(id);
        else if (releasing && conn.isClean())
            m.connections.letGo(id);
        else
            m.connections.hangUp(id);
    }

    void end(long id) {
        Session session = m.sessions.take(id);
        if (session == null)
            return;
        m.timers.cancel(session.timer);
        if (session.key != null)
            m.keyed.remove(session.key);
        m.stored.free(session);
        for (long conn = session.conns.first(); conn != 0; conn = session.conns.first())
            releaseConn(conn);
    }

    void part(Conn conn) {
        long id = conn.session;
        conn.session = 0;
        Session session = m.sessions.get(id);
        // A session began with a server's connection and ends with it; it goes on without a client's.
        if (!conn.about.client)
            end(id);
        else if (session != null)
            session.conns.remove(conn.id);
    }

    void leave(long id) {
        Conn conn = m.conns.get(id);
        if (conn != null)
            part(conn);
    }

    void markLost(Conn conn) {
        Session session = m.sessions.get(conn.session);
        if (session == null || !conn.about.client || conn.kept || !conn.isClean()
                || conn.waiters.count() > 0)
            return;
        boolean each = conn.about.reuse && conn.about.reuseEachResponse;
        // What its server was told on it is lost; a new one must not be taken for the old one.
        if (!each && !conn.releasing && !conn.about.async)
            session.lost |= 1L << (conn.role & 63);
    }
}
