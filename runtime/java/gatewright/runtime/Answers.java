package gatewright.runtime;

import gatewright.runtime.Incoming.Passing;
import gatewright.runtime.Incoming.Purpose;
import gatewright.runtime.Incoming.Requester;

/** Requests that arrive: their dispatch and their answers. */
final class Answers {
    private final Machine m;

    Answers(Machine m) {
        this.m = m;
    }

    void dispatch(long id) {
        Incoming incoming = m.incomings.get(id);
        if (incoming == null || incoming.requester == Requester.NO_ONE)
            return;
        incoming.purpose = Purpose.HANDLED;
        for (RequestKind kind : m.program.roles()[incoming.role].requests) {
            if (kind.view() == incoming.view.about) {
                kind.dispatch().dispatch(m, incoming, incoming.view);
                return;
            }
        }
        answerRequest(incoming, Answer.NOTHING);
    }

    /** An answer that the protocol gives by itself; without octets if it cannot be built. */
    Letter build(Answer answer, Incoming request, int role) {
        Letter letter = new Letter(m.pool);
        if (answer.build() == null)
            return letter;
        Build build = new Build(m, role, request);
        if (!answer.build().test(build) || !build.finish(letter))
            m.count(Count.UNBUILDABLE);
        letter.streams = false;
        return letter;
    }

    void answerRequest(Incoming request, Answer answer) {
        reply(request.id, build(answer, request, request.role), answer.close());
    }

    void answerConn(long id, Incoming request, Answer answer) {
        Conn conn = m.conns.get(id);
        if (conn != null)
            m.pump.put(id, build(answer, request, conn.role));
    }

    private void replyNow(Incoming incoming, Letter letter, boolean close) {
        Requester requester = incoming.requester;
        incoming.task = 0;
        incoming.answered = false;
        incoming.requester = Requester.NO_ONE;
        incoming.reader.goal = Goal.TO_END;
        if (requester == Requester.BY_CONN) {
            letter.told = Letter.Told.ANSWER;
            m.pump.put(incoming.answerTo, letter);
            if (close)
                m.connections.closeAfterSending(incoming.answerTo);
        } else if (requester == Requester.BY_PEER) {
            m.datagrams.answerPeer(incoming, letter);
        } else {
            Letter.free(letter);
        }
        m.reading.forgetIfUnused(incoming.id);
    }

    /** The message behind a request that is not read to its end. */
    private long receivedBehind(Incoming request) {
        Conn conn =
            request.requester == Requester.BY_CONN ? m.conns.get(request.answerTo) : null;
        Incoming current = conn == null ? null : m.incomings.get(conn.current);
        return current != null && current.purpose == Purpose.RECEIVED ? current.id : 0;
    }

    /**
     * Answers a request as soon as it, and what its handler received behind it, is read to its end;
     * at once if its connection is closed behind the answer, or if the answer's stream is the
     * request's.
     */
    void reply(long id, Letter letter, boolean close) {
        Incoming request = m.incomings.get(id);
        if (request == null) {
            Letter.free(letter);
            return;
        }
        long before = request.conn != 0 ? id : receivedBehind(request);
        boolean own = letter.streams && letter.from == before;
        if (before == 0 || close || own) {
            replyNow(request, letter, close);
            return;
        }
        Incoming incoming = m.incomings.get(before);
        Letter.free(incoming.reply);
        incoming.reply = letter;
        incoming.replyTo = id;
        incoming.reader.goal = Goal.TO_END;
        request.answered = true;
        // What is passed on is passed on to its end.
        if (incoming.passing == Passing.HELD)
            m.pump.discard(before);
    }

    void settleRequest(long id) {
        Incoming incoming = m.incomings.get(id);
        if (incoming == null || incoming.reply == null)
            return;
        Letter letter = incoming.reply;
        Incoming request = m.incomings.get(incoming.replyTo);
        incoming.reply = null;
        if (request != null)
            replyNow(request, letter, false);
        else
            Letter.free(letter);
    }

    void finishRequest(long id) {
        Conn conn = m.conns.get(id);
        if (conn == null)
            return;
        if (!conn.about.client && conn.requests > 0)
            conn.requests--;
        conn.moved = m.now;
        m.toRead(id);
    }

    /** Says that a message is malformed, and reads on behind it where its end can be found. */
    private void refuse(long connId, Incoming incoming, boolean inLine) {
        Conn conn = m.conns.get(connId);
        boolean lines = incoming.view.about.lines;
        if (conn == null)
            return;
        Answer answer = conn.about.malformed(incoming);
        conn.current = 0;
        conn.skipping = inLine && lines;
        answerConn(connId, incoming, answer);
        m.reading.free(incoming);
        if (answer.close() || !lines)
            m.connections.closeAfterSending(connId);
    }

    void refuseRequest(long conn, long id, boolean inLine) {
        Incoming request = m.incomings.get(id);
        if (request != null && request.task != 0)
            m.running.end(request.task);
        Incoming incoming = m.incomings.get(id);
        if (incoming == null || incoming.requester == Requester.NO_ONE) {
            m.connections.lose(conn);
            return;
        }
        refuse(conn, incoming, inLine);
        finishRequest(conn);
    }

    void refuseReceived(long connId, long id, boolean inLine) {
        Conn conn = m.conns.get(connId);
        Incoming incoming = m.incomings.get(id);
        if (conn == null || incoming == null || incoming.task == 0) {
            m.connections.lose(connId);
            return;
        }
        long task = incoming.task;
        boolean lines = incoming.view.about.lines;
        if (conn.receiver == 0) {
            Task running = m.tasks.get(task);
            boolean asked = running != null && running.origin == Task.Origin.BY_REQUEST;
            long request = asked ? running.request : 0;
            m.running.end(task);
            incoming = m.incomings.get(id);
            if (incoming != null)
                refuse(connId, incoming, inLine);
            Incoming answered = m.incomings.get(request);
            if (answered != null)
                m.reading.free(answered);
            finishRequest(connId);
            return;
        }
        // It has not begun for the handler yet, which can still say what happens.
        conn.current = 0;
        conn.receiver = 0;
        conn.skipping = inLine && lines;
        m.reading.free(incoming);
        m.running.receiveFailed(task);
        if (!lines)
            m.connections.closeAfterSending(connId);
    }
}
