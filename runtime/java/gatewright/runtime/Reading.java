package gatewright.runtime;

import gatewright.runtime.Incoming.Passing;
import gatewright.runtime.Incoming.Purpose;
import gatewright.runtime.Incoming.Requester;

/** Octets of a TCP connection become messages, and messages wake handlers. */
final class Reading {
    /** Requests of one connection that are handled at once where answers come in any order. */
    static final int PIPELINED_MAX = 16;
    /** Messages of one connection that are begun before the others have their turn. */
    private static final int TURN_MESSAGES = 8;

    private final Machine m;

    Reading(Machine m) {
        this.m = m;
    }

    Incoming add(Message message) {
        return m.incomings.add(id -> new Incoming(id, message.view()));
    }

    void free(Incoming incoming) {
        m.incomings.take(incoming.id);
        Letter.free(incoming.reply);
        incoming.reply = null;
    }

    void forgetIfUnused(long id) {
        Incoming incoming = m.incomings.get(id);
        if (incoming != null && incoming.conn == 0 && incoming.task == 0 && incoming.reply == null
                && !incoming.answered)
            free(incoming);
    }

    /** Throws away what is before the end of the line, and the line's end. */
    private static void skipLine(Conn conn) {
        Text unread = conn.unread.text();
        int end = unread.find('\n');
        conn.unread.use(end < 0 ? unread.length : end + 1);
        conn.skipping = end < 0;
    }

    private Incoming begin(Conn conn, Message message, Purpose purpose) {
        Incoming incoming = add(message);
        conn.moved = m.now;
        conn.begun++;
        incoming.conn = conn.id;
        incoming.role = conn.role;
        incoming.purpose = purpose;
        incoming.reader.goal = Goal.TO_BEGIN;
        if (purpose == Purpose.REQUEST) {
            conn.requests += conn.about.client ? 0 : 1;
            incoming.requester = Requester.BY_CONN;
            incoming.answerTo = conn.id;
        }
        conn.current = incoming.id;
        return incoming;
    }

    private int pipelined(Conn conn) {
        SessionKind session = m.program.session();
        boolean one = session != null && session.role() == conn.role && session.byConnection();
        return !conn.about.async || one ? 1 : PIPELINED_MAX;
    }

    private Incoming beginRequest(Conn conn) {
        if (conn.about.requests.length == 0 || conn.requests >= pipelined(conn)
                || conn.unsent.length() >= Machine.BUFFER_OCTETS)
            return null;
        RequestKind kind = conn.about.requests[0];
        Incoming incoming = begin(conn, kind.view(), Purpose.REQUEST);
        incoming.reader.until(kind.waits());
        return incoming;
    }

    private Incoming beginResponse(Conn conn) {
        if (conn.opening != 0 && conn.exchanges.count() == 0)
            return null;
        if (conn.about.async) {
            Incoming incoming = begin(conn, conn.about.response, Purpose.UNMATCHED);
            incoming.reader.until(conn.about.flowWaits);
            return incoming;
        }
        if (conn.exchanges.count() == 0) {
            m.count(Count.UNSOLICITED);
            m.connections.lose(conn.id);
            return null;
        }
        Incoming incoming = begin(conn, conn.about.response, Purpose.RESPONSE);
        incoming.exchange = conn.exchanges.get(0);
        return incoming;
    }

    /**
     * Whether a connection has begun as many messages as it may in a turn; it then waits for its next
     * one behind the others.
     */
    private boolean isTurnOver(Conn conn) {
        boolean over = conn.waiting || conn.begun >= TURN_MESSAGES;
        if (over && !conn.waiting) {
            conn.waiting = true;
            m.turns.add(conn.id);
        }
        return over;
    }

    /** The next turn of a connection that waited for it. */
    void takeTurn(long id) {
        Conn conn = m.conns.get(id);
        if (conn == null)
            return;
        conn.waiting = false;
        conn.begun = 0;
        readOn(id);
    }

    /** Begins the next message if there is an octet of it and somebody to read it. */
    private Incoming beginMessage(Conn conn) {
        if (conn.unread.length() == 0 || conn.skipping || isTurnOver(conn))
            return null;
        if (conn.receiver != 0) {
            Task task = m.tasks.get(conn.receiver);
            if (task == null)
                return null;
            Incoming incoming = begin(conn, task.receives, Purpose.RECEIVED);
            incoming.task = conn.receiver;
            return incoming;
        }
        return conn.about.client ? beginResponse(conn) : beginRequest(conn);
    }

    /** A message is read as far as somebody waited for. */
    private void reached(long conn, long id) {
        Incoming incoming = m.incomings.get(id);
        if (incoming == null)
            return;
        if (incoming.purpose == Purpose.REQUEST)
            m.answers.dispatch(id);
        else if (incoming.purpose == Purpose.UNMATCHED)
            m.air.matchResponse(conn, id);
        else if (incoming.purpose == Purpose.RESPONSE && incoming.task == 0)
            m.air.responseBegun(incoming.exchange, id);
        else if (incoming.task != 0)
            m.running.messageMoved(incoming.task, id);
    }

    /** A message is complete. Whether the next one may begin. */
    private boolean complete(long connId, long id) {
        Conn conn = m.conns.get(connId);
        if (conn != null) {
            conn.current = 0;
            conn.moved = m.now;
        }
        Incoming incoming = m.incomings.get(id);
        if (incoming == null)
            return true;
        boolean told = incoming.reader.goal == Goal.TO_END;
        incoming.reader.goal = Goal.TO_END;
        incoming.conn = 0;
        if (!told)
            reached(connId, id);
        m.answers.settleRequest(id);
        m.connections.finishResponse(connId, id);
        // Whoever was told may not want it: an answer that comes late, read at once.
        forgetIfUnused(id);
        if (!told)
            m.toRead(connId);
        return told;
    }

    private void malformed(Conn conn, Incoming incoming) {
        boolean cut = incoming.reader.reason == Reason.CUT;
        boolean inLine = incoming.reader.depth > 0 || incoming.reader.entering;
        Purpose purpose = incoming.purpose;
        m.count(cut ? Count.BROKEN : Count.MALFORMED);
        boolean asked = purpose == Purpose.REQUEST || purpose == Purpose.HANDLED;
        if (!conn.about.client && !cut && asked)
            m.answers.refuseRequest(conn.id, incoming.id, inLine);
        else if (!conn.about.client && !cut && purpose == Purpose.RECEIVED)
            m.answers.refuseReceived(conn.id, incoming.id, inLine);
        else
            m.connections.lose(conn.id);
    }

    private Turn readSome(Conn conn, Incoming incoming) {
        Reader reader = incoming.reader;
        if (incoming.passing == Passing.PASSED && reader.streaming)
            return m.pump.pump(conn.id, incoming.id);
        boolean inStream = reader.streaming;
        reader.hold = incoming.passing == Passing.HELD;
        Turn turn = reader.read(conn.unread.text(), conn.ended, null);
        conn.unread.use(reader.used);
        // A head that dribbles is no sign of life: it has the idle time for the whole.
        if (inStream && reader.used > 0)
            conn.moved = m.now;
        return turn;
    }

    /** Reads on in a message. Whether the next one may begin. */
    private boolean look(long connId, long id) {
        Turn turn = readSome(m.conns.get(connId), m.incomings.get(id));
        Conn conn = m.conns.get(connId);
        Incoming incoming = m.incomings.get(id);
        if (conn == null || incoming == null)
            return false;
        if (turn == Turn.FAIL)
            malformed(conn, incoming);
        if (turn == Turn.DONE)
            return complete(connId, id);
        if (turn != Turn.FAIL && incoming.reader.reached()) {
            // Whoever waited is told; reading goes on behind them.
            incoming.reader.goal = Goal.TO_END;
            reached(connId, id);
            m.toRead(connId);
        }
        return false;
    }

    /** Looks whether room was made, whether the connection is at its end. */
    private void afterReading(long id) {
        Conn conn = m.conns.get(id);
        if (conn == null)
            return;
        if (conn.unread.length() == 0)
            conn.begun = 0;
        boolean room = m.room(id) > 0;
        if (conn.blocked && room)
            m.output(Output.of(Output.Kind.READ, id));
        conn.blocked = !room;
        if (!conn.ended || conn.unread.length() > 0 || conn.current != 0
                || conn.state != Conn.State.OPEN)
            return;
        // Nothing more will come, and nothing is unread or half read.
        m.reach.ends(id);
        if (conn.about.client || conn.receiver != 0)
            m.connections.lose(id);
        else if (conn.requests == 0)
            m.connections.closeAfterSending(id);
    }

    void readOn(long id) {
        for (Conn conn = m.conns.get(id); conn != null; conn = m.conns.get(id)) {
            if (conn.state == Conn.State.CLOSING || conn.state == Conn.State.LINGERING)
                conn.unread.free();
            if (conn.state != Conn.State.OPEN)
                break;
            if (conn.skipping)
                skipLine(conn);
            Incoming incoming = m.incomings.get(conn.current);
            if (incoming == null)
                incoming = beginMessage(conn);
            if (incoming == null || m.conns.get(id) == null || !look(id, incoming.id))
                break;
        }
        afterReading(id);
    }
}
