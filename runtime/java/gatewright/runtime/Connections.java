package gatewright.runtime;

import gatewright.runtime.Conn.State;
import gatewright.runtime.Incoming.Passing;
import gatewright.runtime.Incoming.Purpose;
import java.nio.ByteBuffer;

/** TCP connections: what their owner tells about them, and how they end. */
final class Connections {
    /** How long a connection that we ended is read from (RFC 9112 §9.6). */
    private static final long LINGER = Time.milliseconds(2000);

    private final Machine m;

    Connections(Machine m) {
        this.m = m;
    }

    Conn add(int role, State state) {
        Conn conn = m.conns.add(id -> new Conn(m, id, role, state));
        m.roles[role].connections++;
        return conn;
    }

    long accepted(int role) {
        m.count(Count.ACCEPTED);
        Conn conn = add(role, State.OPEN);
        arm(conn);
        if (m.roles[role].connections > conn.about.connectionsMax) {
            m.count(Count.FULL);
            m.answers.answerConn(conn.id, null, conn.about.full);
            closeAfterSending(conn.id);
        } else if (conn.about.greeting != null) {
            m.answers.answerConn(conn.id, null, conn.about.greeting);
        }
        return conn.id;
    }

    void connected(long id) {
        Conn conn = m.conns.get(id);
        if (conn != null && conn.state == State.CONNECTING) {
            conn.state = State.OPEN;
            conn.moved = m.now;
            m.count(Count.CONNECTED);
            arm(conn);
            m.air.beginOpening(id);
        }
    }

    void connectFailed(long id) {
        Conn conn = m.conns.get(id);
        if (conn != null && conn.state == State.CONNECTING) {
            m.count(Count.CONNECT_FAILED);
            m.reach.isLost(id, PeerSeen.Seen.UNREACHABLE);
            lose(id);
        }
    }

    void received(long id, ByteBuffer octets) {
        Conn conn = m.conns.get(id);
        if (conn == null || conn.state != State.OPEN)
            return;
        conn.kept = false;
        if (!conn.unread.add(octets)) {
            m.count(Count.NO_MEMORY);
            lose(id);
        }
        m.toRead(id);
    }

    void ended(long id) {
        Conn conn = m.conns.get(id);
        if (conn == null)
            return;
        conn.ended = true;
        if (conn.state == State.LINGERING)
            drop(id, false);
        else
            m.toRead(id);
    }

    void broken(long id) {
        if (m.conns.get(id) != null) {
            m.count(Count.BROKEN);
            m.reach.ends(id);
            lose(id);
        }
    }

    void sent(long id, int octets) {
        Conn conn = m.conns.get(id);
        if (conn == null)
            return;
        int there = conn.unsent.length();
        conn.unsent.use(Math.min(octets, there));
        conn.moved = m.now;
        if (there - octets < Machine.BUFFER_OCTETS) {
            Incoming source =
                conn.streaming == null ? null : m.incomings.get(conn.streaming.from);
            if (source != null)
                m.toRead(source.conn);
            // A request may have waited for its predecessor's answer to leave.
            m.toRead(id);
            if (conn.about.shared)
                m.air.serveWaiters(id);
        }
        checkClosing(id);
    }

    void arm(Conn conn) {
        long idle = conn.state == State.LINGERING ? LINGER : conn.about.idle;
        m.timers.cancel(conn.timer);
        if (idle > 0)
            m.timers.set(conn.timer, conn.moved + idle);
    }

    /** Whether it is silent because of us: we owe the answer, or wait with our own time. */
    private boolean isOurs(Conn conn) {
        Incoming current = m.incomings.get(conn.current);
        if (current != null && current.passing == Passing.HELD && current.reader.streaming)
            return true;
        if (!conn.about.client)
            return current == null && conn.requests > 0 && conn.unsent.length() == 0;
        return current == null && conn.exchanges.count() > 0 || conn.opening != 0
            || conn.state != State.OPEN;
    }

    void isSilent(long id) {
        Conn conn = m.conns.get(id);
        if (conn == null)
            return;
        boolean kept = conn.about.client && conn.session == 0 && conn.isClean();
        long idle = conn.state == State.LINGERING ? LINGER
            : kept && conn.about.reuse ? conn.about.reuseIdle : conn.about.idle;
        if (idle == 0)
            return;
        if (conn.state != State.LINGERING && conn.state != State.CLOSING && isOurs(conn)) {
            conn.moved = m.now;
            arm(conn);
        } else if (conn.moved + idle > m.now) {
            m.timers.set(conn.timer, conn.moved + idle);
        } else if (conn.state == State.LINGERING) {
            drop(id, false);
        } else {
            m.count(Count.IDLE);
            drop(id, conn.unsent.length() > 0);
        }
    }

    /* ---- The end ---- */

    /** A stream cannot be written any more: the rest of it is thrown away. */
    private void sinkLost(Letter letter) {
        Incoming from = letter.streams ? m.incomings.get(letter.from) : null;
        if (from != null) {
            from.passing = Passing.DISCARDED;
            m.toRead(from.conn);
        }
        if (letter.told == Letter.Told.SENT)
            m.running.sendFailed(letter.task);
    }

    /** A message will never be read to its end. */
    private void sourceLost(long id) {
        Incoming incoming = m.incomings.get(id);
        if (incoming == null)
            return;
        Conn sink = incoming.passing == Passing.PASSED ? m.conns.get(incoming.sink) : null;
        Incoming request = incoming.reply != null ? m.incomings.get(incoming.replyTo) : null;
        m.incomings.take(id);
        if (request != null && request != incoming)
            m.reading.free(request);
        if (sink != null && sink.streamsFrom(id))
            lose(incoming.sink);
        if (incoming.purpose == Purpose.REQUEST || incoming.purpose == Purpose.HANDLED)
            m.running.end(incoming.task);
        else if (incoming.purpose == Purpose.RESPONSE || incoming.purpose == Purpose.RECEIVED)
            m.running.messageLost(incoming.task, id);
        m.reading.free(incoming);
    }

    private void unravelLetters(Conn conn) {
        if (conn.streaming != null)
            sinkLost(conn.streaming);
        Letter.free(conn.streaming);
        while (conn.hasBehind()) {
            Letter letter = conn.behind.removeFirst();
            sinkLost(letter);
            Letter.free(letter);
        }
    }

    /**
     * Frees what hangs on a connection that is over. It is no connection any more from the start, so
     * whatever this sets off cannot end it again.
     */
    private void unravel(Conn conn) {
        m.conns.take(conn.id);
        m.stored.isGone(conn.id);
        m.timers.cancel(conn.timer);
        m.names.end(conn.query);
        m.roles[conn.role].connections--;
        m.roles[conn.role].kept.remove(conn.id);
        m.roles[conn.role].shared.remove(conn.id);
        // Its handlers first: what is freed for them must not make them begin anew.
        for (long other = conn.tasks.first(); other != 0; other = conn.tasks.first())
            m.running.end(other);
        m.remembered.markLost(conn);
        m.remembered.part(conn);
        unravelLetters(conn);
        if (conn.opening != 0)
            m.running.end(conn.opening);
        if (conn.current != 0)
            sourceLost(conn.current);
        for (long other = conn.exchanges.first(); other != 0; other = conn.exchanges.first())
            m.air.lost(other, conn.kept);
        for (long other = conn.waiters.first(); other != 0; other = conn.waiters.first())
            m.running.sendFailed(other);
        if (conn.receiver != 0)
            m.running.receiveFailed(conn.receiver);
        conn.unread.free();
        conn.unsent.free();
    }

    void drop(long id, boolean reset) {
        Conn conn = m.conns.get(id);
        if (conn != null) {
            m.output(Output.close(id, reset));
            unravel(conn);
        }
    }

    void lose(long id) {
        Conn conn = m.conns.get(id);
        // Whoever got a part of a stream must not take it for the whole.
        if (conn != null)
            drop(id, conn.streaming != null);
    }

    /** Lets go of a connection: it is kept for others if it is fit and the program says so. */
    void letGo(long id) {
        m.remembered.leave(id);
        Conn conn = m.conns.get(id);
        if (conn == null)
            return;
        if (!conn.about.reuse) {
            endWhenSent(conn);
            return;
        }
        boolean fit = conn.isClean() && conn.waiters.count() == 0 && conn.state == State.OPEN
            && !conn.ended && conn.unread.length() == 0 && !m.draining;
        if (!fit) {
            lose(id);
            return;
        }
        conn.releasing = false;
        conn.moved = m.now;
        m.timers.set(conn.timer, m.now + conn.about.reuseIdle);
        Ids kept = m.roles[conn.role].kept;
        kept.add(id);
        if (kept.count() > conn.about.reuseMax)
            drop(kept.first(), false);
    }


    void letGoWhenFree(long id) {
        Conn conn = m.conns.get(id);
        if (conn == null)
            return;
        conn.releasing = true;
        Incoming current = m.incomings.get(conn.current);
        if (current != null && current.task == 0)
            m.pump.discard(current.id);
        letGoIfFree(id);
    }

    void letGoIfFree(long id) {
        Conn conn = m.conns.get(id);
        if (conn != null && conn.about.client && conn.releasing && conn.isClean()
                && conn.waiters.count() == 0)
            letGo(id);
    }

    void finishResponse(long id, long response) {
        Incoming incoming = m.incomings.get(response);
        if (incoming == null || incoming.purpose != Purpose.RESPONSE)
            return;
        Exchange of = m.exchanges.get(incoming.exchange);
        if (of != null && of.gather)
            return;
        m.air.end(incoming.exchange);
        Conn conn = m.conns.get(id);
        if (conn == null)
            return;
        conn.exchanges.remove(incoming.exchange);
        if (conn.hanging)
            drop(id, false);
        else if (conn.waiters.count() > 0)
            m.air.serveWaiters(id);
        else if (conn.about.reuse && conn.about.reuseEachResponse || conn.releasing)
            letGoWhenFree(id);
    }

    /**
     * Ends a connection; a response that somebody uses is read to its end first. Nobody answers any
     * more what its server asked, however much of that has arrived.
     */
    void hangUp(long id) {
        m.remembered.leave(id);
        Conn conn = m.conns.get(id);
        Incoming current = conn == null ? null : m.incomings.get(conn.current);
        if (current != null && current.purpose == Purpose.RESPONSE
                && (current.task != 0 || current.passing == Passing.PASSED))
            conn.hanging = true;
        else if (conn != null)
            endWhenSent(conn);
    }

    /**
     * Ends shared connections that nobody will use any more: those without a request, while no
     * handler runs.
     */
    void dropResting() {
        for (RoleState role : m.roles) {
            for (int at = role.shared.count() - 1; at >= 0 && m.tasks.used() == 0; at--) {
                Conn conn = m.conns.get(role.shared.get(at));
                if (conn != null && conn.isClean() && conn.unsent.length() == 0)
                    drop(conn.id, false);
            }
        }
    }

    /** Nobody needs a connection any more; what was sent without waiting for an answer still goes. */
    private void endWhenSent(Conn conn) {
        boolean lastWords = conn.state == State.OPEN && conn.unsent.length() > 0
            && conn.isClean() && conn.waiters.count() == 0;
        if (lastWords)
            closeAfterSending(conn.id);
        else
            lose(conn.id);
    }

    void closeAfterSending(long id) {
        Conn conn = m.conns.get(id);
        if (conn != null && conn.state == State.OPEN) {
            conn.state = State.CLOSING;
            conn.moved = m.now;
            arm(conn);
            m.toRead(id);
        }
        checkClosing(id);
    }

    void checkClosing(long id) {
        Conn conn = m.conns.get(id);
        if (conn == null || conn.state != State.CLOSING || conn.unsent.length() > 0
                || conn.streaming != null || conn.hasBehind())
            return;
        if (conn.ended) {
            drop(id, false);
            return;
        }
        conn.state = State.LINGERING;
        conn.moved = m.now;
        m.output(Output.of(Output.Kind.SHUTDOWN, id));
        arm(conn);
        while (m.conns.get(id) != null) {
            long task = conn.tasks.first();
            if (task == 0)
                break;
            m.running.end(task);
        }
        m.remembered.leave(id);
    }
}
