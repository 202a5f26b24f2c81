package gatewright.runtime;

import gatewright.runtime.Incoming.Passing;
import java.util.ArrayDeque;

/** Writing to connections, and streams that pass from one to another. */
final class Pump {
    private final Machine m;
    /** What is on its way from one connection to another. */
    private final Octets passed;

    Pump(Machine m) {
        this.m = m;
        passed = new Octets(m.pool);
    }

    /** False if there is no memory; what is unsent is then as it was. */
    private boolean append(Conn conn, Octets octets) {
        boolean room = true;
        if (conn.unsent.length() == 0 && octets.length() > 0) {
            m.output(Output.of(Output.Kind.WRITE, conn.id));
            conn.unsent.take(octets);
        } else if (!conn.unsent.add(octets.text())) {
            m.count(Count.NO_MEMORY);
            room = false;
        }
        octets.free();
        return room;
    }

    /** A message was written whole. */
    private void written(long conn, Letter.Told told, long task) {
        if (told == Letter.Told.ANSWER)
            m.answers.finishRequest(conn);
        if (told == Letter.Told.SENT)
            m.air.sentWhole(task);
        m.connections.checkClosing(conn);
        m.connections.letGoIfFree(conn);
    }

    void put(long id, Letter letter) {
        Conn conn = m.conns.get(id);
        if (conn == null || letter == null) {
            Letter.free(letter);
            return;
        }
        if (conn.state == Conn.State.CLOSING || conn.state == Conn.State.LINGERING) {
            // What comes behind the end is for nobody.
            if (letter.streams)
                discard(letter.from);
            Letter.free(letter);
            return;
        }
        if (conn.streaming != null) {
            if (conn.behind == null)
                conn.behind = new ArrayDeque<>();
            conn.behind.addLast(letter);
            return;
        }
        if (!append(conn, letter.octets)) {
            // A part of it must not be taken for the whole: whoever waits for it is told with the end.
            conn.streaming = letter;
            m.connections.lose(id);
            return;
        }
        if (!letter.streams) {
            written(id, letter.told, letter.task);
            return;
        }
        conn.streaming = letter;
        Incoming from = m.incomings.get(letter.from);
        if (from != null) {
            from.passing = Passing.PASSED;
            from.sink = id;
            m.toRead(from.conn);
        }
    }

    private void putNext(long id) {
        for (Conn conn = m.conns.get(id); conn != null && conn.streaming == null
                && conn.hasBehind(); conn = m.conns.get(id))
            put(id, conn.behind.removeFirst());
    }

    /** Writes octets of a stream, and its end. */
    private void pass(long sink, boolean complete) {
        Conn conn = m.conns.get(sink);
        Letter letter = conn == null ? null : conn.streaming;
        if (letter == null)
            return;
        boolean quiet = conn.unsent.length() == 0;
        Reason reason = letter.writer.write(passed.text(), conn.unsent);
        if (reason == Reason.SOUND && complete)
            reason = letter.writer.finish(conn.unsent);
        if (quiet && conn.unsent.length() > 0)
            m.output(Output.of(Output.Kind.WRITE, sink));
        if (reason != Reason.SOUND) {
            m.count(reason == Reason.NO_MEMORY ? Count.NO_MEMORY : Count.UNBUILDABLE);
            m.connections.lose(sink);
        } else if (complete) {
            conn.streaming = null;
            Letter.free(letter);
            written(sink, letter.told, letter.task);
            putNext(sink);
        }
    }

    /** Passes a stream on as long as there is something of it, and room for it. */
    Turn pump(long connId, long id) {
        for (;;) {
            Conn conn = m.conns.get(connId);
            Incoming incoming = m.incomings.get(id);
            Conn sink = incoming == null ? null : m.conns.get(incoming.sink);
            if (conn == null || sink == null || incoming.passing != Passing.PASSED
                    || sink.unsent.length() >= Machine.BUFFER_OCTETS)
                return Turn.WAIT;
            Text all = conn.unread.text();
            Text near = all.first(Machine.BUFFER_OCTETS - sink.unsent.length());
            Reader reader = incoming.reader;
            reader.hold = false;
            Turn turn = reader.read(near, conn.ended && near.length == all.length, passed);
            // What frames the stream may be longer than the room for what it frames.
            if (turn == Turn.WAIT && reader.used == 0 && near.length < all.length)
                turn = reader.read(all, conn.ended, passed);
            if (turn == Turn.FAIL) {
                passed.free();
                return turn;
            }
            int used = reader.used;
            conn.unread.use(used);
            if (used > 0)
                conn.moved = m.now;
            boolean left = conn.unread.length() > 0;
            pass(incoming.sink, turn == Turn.DONE);
            passed.free();
            if (turn == Turn.DONE || used == 0 || !left)
                return turn;
        }
    }

    void discard(long id) {
        Incoming incoming = m.incomings.get(id);
        if (incoming == null)
            return;
        Conn sink = incoming.passing == Passing.PASSED ? m.conns.get(incoming.sink) : null;
        incoming.passing = Passing.DISCARDED;
        m.toRead(incoming.conn);
        if (sink != null && sink.streamsFrom(id))
            m.connections.lose(incoming.sink);
    }
}
