package gatewright.runtime;

import gatewright.runtime.Incoming.Passing;
import gatewright.runtime.Task.Origin;
import gatewright.runtime.Task.Wait;
import java.util.ArrayDeque;

/** Handlers that run: what they wait for, how they go on, how they end. */
final class Tasks {
    private final Machine m;

    Tasks(Machine m) {
        this.m = m;
    }

    /** Starts a handler for a request, a connection that opens, or by a clock. */
    Task start(Handler handler, Origin origin, long of, int clock) {
        Task task = m.tasks.add(id -> new Task(m, id, handler, origin, clock));
        task.started = m.now;
        m.handled(handler).started();
        Incoming request = origin == Origin.BY_REQUEST ? m.incomings.get(of) : null;
        Conn conn = origin == Origin.BY_OPENING ? m.conns.get(of) : null;
        if (request != null) {
            task.request = of;
            task.by = request.role;
            request.task = task.id;
            setMessage(task.values.slots[0], request);
            if (request.requester == Incoming.Requester.BY_CONN) {
                task.conn = request.answerTo;
                Conn from = m.conns.get(task.conn);
                if (from != null)
                    from.tasks.add(task.id);
            }
        } else if (conn != null) {
            task.conn = of;
            task.by = conn.role;
            conn.opening = task.id;
        }
        m.toRun(task.id);
        return task;
    }

    private void finish(Task task, boolean answers, boolean close) {
        Letter letter = task.letter;
        Conn conn = m.conns.get(task.conn);
        task.finished = true;
        task.letter = null;
        if (conn != null && task.origin == Origin.BY_REQUEST)
            conn.tasks.remove(task.id);
        if (task.origin == Origin.BY_REQUEST) {
            if (letter == null && !answers)
                letter = new Letter(m.pool);
            if (letter != null)
                m.answers.reply(task.request, letter, close);
        } else {
            Letter.free(letter);
        }
        end(task.id);
    }

    private void openingDone(Task task) {
        long conn = task.origin == Origin.BY_OPENING ? task.conn : 0;
        task.finished = true;
        end(task.id);
        m.reach.isConnected(conn);
        m.air.serveWaiters(conn);
        m.connections.letGoIfFree(conn);
    }

    private void beginReceive(Task task) {
        Conn conn = m.conns.get(task.conn);
        if (conn == null) {
            // A datagram has nothing that follows it.
            goOn(task, false);
            return;
        }
        task.wait = Wait.RECEIVE;
        task.waitsFor = conn.id;
        m.timers.set(task.timer, m.now + task.within);
        conn.receiver = task.id;
        m.toRead(conn.id);
    }

    /** Goes on with the next response that was collected, or waits for it, or behind it. */
    private void nextGathered(Task task) {
        task.wait = Wait.GATHER;
        task.block = task.gatherBody;
        task.otherwise = task.gatherDone;
        if (!task.gathering) {
            goOn(task, false);
            return;
        }
        boolean some = task.gathered != null && !task.gathered.isEmpty();
        Incoming next = some ? m.incomings.get(task.gathered.removeFirst()) : null;
        if (next != null) {
            setMessage(task.gatherInto, next);
            goOn(task, true);
        } else if (m.exchanges.get(task.gatherExchange) == null) {
            goOn(task, false);
        }
    }

    void run(long id) {
        Task task = m.tasks.get(id);
        if (task == null || task.wait != Wait.READY || task.runs)
            return;
        task.build.request = m.incomings.get(task.request);
        task.runs = true;
        Stop stop = task.handler.run().apply(task);
        task.runs = false;
        if (task.ends)
            end(id);
        else
            stopped(task, task.fails ? Stop.FAILS : stop);
    }

    private void stopped(Task task, Stop stop) {
        switch (stop) {
        case WAITS:
            break;
        case SENDS:
            m.air.beginSend(task);
            break;
        case RECEIVES:
            beginReceive(task);
            break;
        case SLEEPS:
            task.wait = Wait.SLEEP;
            m.timers.set(task.timer, m.now + task.within);
            break;
        case GATHERS:
            nextGathered(task);
            break;
        case RETURNS:
            finish(task, task.answers, task.close);
            break;
        case CLOSES:
            finish(task, false, true);
            break;
        case OPENED:
            openingDone(task);
            break;
        case FAILS:
            fail(task.id);
            break;
        }
    }

    /* ---- Going on ---- */

    void goOn(Task task, boolean well) {
        if (!well) {
            task.block = task.otherwise;
            if (task.gathering && task.wait == Wait.GATHER) {
                task.gathering = false;
                m.air.end(task.gatherExchange);
            }
        }
        if (task.wait == Wait.CONNECTION) {
            Conn conn = m.conns.get(task.waitsFor);
            if (conn != null)
                conn.waiters.remove(task.id);
            m.names.end(task.query);
            Letter.free(task.letter);
            task.letter = null;
            task.flow = null;
        }
        task.wait = Wait.READY;
        task.query = 0;
        m.timers.cancel(task.timer);
        m.toRun(task.id);
    }

    void setMessage(Slot slot, Incoming incoming) {
        long before = slot.set ? slot.from : 0;
        slot.message = incoming.view;
        slot.from = incoming.id;
        slot.set = slot.settled = true;
        if (before != 0 && before != incoming.id)
            letMessageGo(before);
    }

    void letMessageGo(long id) {
        Incoming incoming = m.incomings.get(id);
        if (incoming == null)
            return;
        incoming.task = 0;
        if (incoming.conn == 0) {
            m.reading.forgetIfUnused(id);
            return;
        }
        long connId = incoming.conn;
        incoming.reader.goal = Goal.TO_END;
        if (incoming.passing == Passing.HELD) {
            Conn conn = m.conns.get(connId);
            incoming.passing = Passing.DISCARDED;
            if (conn != null && conn.hanging) {
                m.connections.lose(connId);
                return;
            }
        }
        m.toRead(connId);
    }

    void messageMoved(long id, long incoming) {
        Task task = m.tasks.get(id);
        Incoming message = m.incomings.get(incoming);
        if (task == null || message == null)
            return;
        if (task.wait == Wait.SLOTS) {
            goOn(task, true);
        } else if (task.wait == Wait.RECEIVE) {
            Conn conn = m.conns.get(task.waitsFor);
            if (conn != null)
                conn.receiver = 0;
            setMessage(task.into, message);
            goOn(task, true);
        }
    }

    void messageLost(long id, long incoming) {
        Task task = m.tasks.get(id);
        // One that hung up by itself has what it read, and goes on.
        if (task == null || task.runs)
            return;
        for (Slot slot : task.values.slots) {
            if (slot.set && slot.kind() == Kind.MESSAGE && slot.from == incoming) {
                fail(id);
                return;
            }
        }
    }

    void responded(long id, long incoming) {
        Task task = m.tasks.get(id);
        Incoming message = m.incomings.get(incoming);
        if (task == null || task.wait != Wait.RESPONSE || message == null) {
            letMessageGo(incoming);
            return;
        }
        setMessage(task.into, message);
        goOn(task, true);
    }

    void gathered(long id, long incoming) {
        Task task = m.tasks.get(id);
        if (task == null || !task.gathering) {
            letMessageGo(incoming);
            return;
        }
        if (task.gathered == null)
            task.gathered = new ArrayDeque<>();
        task.gathered.addLast(incoming);
        if (task.gatherLeft > 0) {
            task.gatherLeft--;
            if (task.gatherLeft == 0) {
                long last = task.gatherExchange;
                task.gatherExchange = 0;
                m.air.end(last);
            }
        }
        if (task.wait == Wait.GATHER)
            nextGathered(task);
    }

    void gatherIsOver(long id) {
        Task task = m.tasks.get(id);
        if (task == null)
            return;
        task.gatherExchange = 0;
        if (task.wait == Wait.GATHER)
            nextGathered(task);
    }

    void receiveFailed(long id) {
        Task task = m.tasks.get(id);
        if (task != null && task.wait == Wait.RECEIVE) {
            Conn conn = m.conns.get(task.waitsFor);
            if (conn != null)
                conn.receiver = 0;
            goOn(task, false);
        }
    }

    void sendFailed(long id) {
        Task task = m.tasks.get(id);
        if (task != null && task.wait != Wait.SLOTS && task.wait != Wait.RECEIVE
                && task.wait != Wait.SLEEP && task.wait != Wait.READY)
            goOn(task, false);
    }

    private void connectionIsLate(Task task) {
        m.count(Count.LATE);
        goOn(task, false);
        Conn conn = m.conns.get(task.waitsFor);
        // Nobody knows whether it will ever be there.
        if (conn != null && conn.waiters.count() == 0
                && (conn.state != Conn.State.OPEN || conn.opening != 0)) {
            m.reach.isLost(conn.id, PeerSeen.Seen.SILENT);
            m.remembered.leave(conn.id);
            m.connections.lose(conn.id);
        }
    }

    void waitIsOver(long id) {
        Task task = m.tasks.get(id);
        if (task == null)
            return;
        switch (task.wait) {
        case SLEEP:
            goOn(task, true);
            break;
        case RECEIVE:
            m.count(Count.LATE);
            receiveFailed(id);
            break;
        case CONNECTION:
            connectionIsLate(task);
            break;
        case WRITTEN:
            m.count(Count.LATE);
            m.reach.isLost(task.waitsFor, PeerSeen.Seen.SILENT);
            m.connections.lose(task.waitsFor);
            sendFailed(id);
            break;
        default:
            break;
        }
    }

    /* ---- The end ---- */

    private void stopWaiting(Task task) {
        Conn conn = m.conns.get(task.waitsFor);
        if (task.wait == Wait.CONNECTION) {
            if (conn != null)
                conn.waiters.remove(task.id);
            m.names.end(task.query);
        } else if (task.wait == Wait.RESPONSE) {
            m.air.abandon(task.waitsFor);
        } else if (task.wait == Wait.RECEIVE && conn != null) {
            conn.receiver = 0;
        }
    }

    private void freeValues(View values) {
        for (Slot slot : values.slots) {
            if (slot.set && slot.kind() == Kind.MESSAGE) {
                slot.set = false;
                letMessageGo(slot.from);
            }
        }
    }

    void end(long id) {
        Task task = m.tasks.get(id);
        if (task == null)
            return;
        if (task.runs) {
            task.ends = true;
            return;
        }
        m.tasks.take(id);
        m.timers.cancel(task.timer);
        Conn conn = m.conns.get(task.conn);
        if (conn != null)
            conn.tasks.remove(id);
        stopWaiting(task);
        if (task.gathering) {
            m.air.end(task.gatherExchange);
            while (task.gathered != null && !task.gathered.isEmpty())
                letMessageGo(task.gathered.removeFirst());
        }
        freeValues(task.values);
        m.remembered.leaveSession(task.keyed);
        m.remembered.end(task.own);
        task.free();
        if (task.origin == Origin.BY_REQUEST && task.conn == 0)
            m.datagrams.peerIsServed(task.by);
        conn = m.conns.get(task.conn);
        if (task.origin == Origin.BY_OPENING && conn != null)
            conn.opening = 0;
        if (task.origin == Origin.BY_CLOCK)
            m.turnIsOver(task.clock);
        m.handled(task.handler).ended(task.finished, m.now - task.started);
    }

    void fail(long id) {
        Task task = m.tasks.get(id);
        if (task == null)
            return;
        long conn = task.origin == Origin.BY_OPENING ? task.conn : 0;
        Incoming request =
            task.origin == Origin.BY_REQUEST ? m.incomings.get(task.request) : null;
        if (request != null)
            m.answers.answerRequest(request, m.program.roles()[task.by].failed);
        end(id);
        m.reach.isLost(conn, PeerSeen.Seen.REFUSED);
        m.connections.lose(conn);
    }
}
