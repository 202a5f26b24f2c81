package gatewright.runtime;

import gatewright.runtime.Incoming.Passing;
import gatewright.runtime.Incoming.Purpose;
import gatewright.runtime.Task.Wait;
import java.net.InetSocketAddress;

/** Datagrams: requests, responses, repetitions. */
final class Datagrams {
    private static final byte[] NOTHING = {};

    /** What became of a request that may come again. */
    static final class Repeat {
        final long id;
        final Common key;
        final long until;
        /** None: it is handled, or was not answered. */
        byte[] octets = NOTHING;

        Repeat(long id, Common key, long until) {
            this.id = id;
            this.key = key;
            this.until = until;
        }
    }

    private final Machine m;

    Datagrams(Machine m) {
        this.m = m;
    }

    private void send(int role, InetSocketAddress to, byte[] octets) {
        if (octets.length > 0)
            m.output(Output.datagram(role, to, octets));
    }

    /** A datagram as a message; null if it is none, and then `wrong` has the first attempt. */
    private Incoming read(int role, Message view, Text octets, Incoming[] wrong) {
        Incoming incoming = m.reading.add(view);
        incoming.role = role;
        incoming.passing = Passing.DISCARDED;
        if (incoming.reader.read(octets, true, null) == Turn.DONE)
            return incoming;
        if (wrong[0] == null)
            wrong[0] = incoming;
        else
            m.reading.free(incoming);
        return null;
    }

    private void answer(Answer answer, Incoming request, InetSocketAddress to) {
        Letter letter = m.answers.build(answer, request, request.role);
        send(request.role, to, letter.octets.text().copy());
        Letter.free(letter);
    }

    /* ---- Repetitions ---- */

    private Repeat repeatOf(Incoming request) {
        Long id = m.roles[request.role].repeats.get(request.repeat);
        return id == null ? null : m.repeats.get(id);
    }

    private void forgetOldest(RoleState state) {
        Repeat repeat = m.repeats.take(state.forget.take());
        if (repeat != null)
            state.repeats.remove(repeat.key);
    }

    /** Remembers a request that may come again. */
    private void remember(Incoming incoming) {
        RoleState state = m.roles[incoming.role];
        Role about = m.program.roles()[incoming.role];
        // Whoever asked longest ago is the least likely to ask again.
        while (state.forget.count() > 0 && state.repeats.size() >= about.connectionsMax)
            forgetOldest(state);
        long until = m.now + about.duplicatesKeep;
        Repeat repeat = m.repeats.add(id -> new Repeat(id, incoming.repeat, until));
        state.repeats.put(repeat.key, repeat.id);
        state.forget.add(repeat.id);
        if (state.forget.count() == 1)
            m.timers.set(state.forgetting, until);
    }

    void forgetRepeats(int role) {
        RoleState state = m.roles[role];
        while (state.forget.count() > 0) {
            Repeat repeat = m.repeats.get(state.forget.first());
            if (repeat != null && repeat.until > m.now) {
                m.timers.set(state.forgetting, repeat.until);
                return;
            }
            forgetOldest(state);
        }
    }

    /* ---- What arrives ---- */

    void received(int role, InetSocketAddress from, Text octets) {
        if (m.program.roles()[role].client)
            response(role, from, octets);
        else
            request(role, from, octets);
    }

    private void requestFrom(Incoming incoming, InetSocketAddress from) {
        int role = incoming.role;
        Role about = m.program.roles()[role];
        RoleState state = m.roles[role];
        if (about.duplicates.length > 0) {
            incoming.repeat = Common.of(incoming.view, about.duplicates, from);
            Repeat before = repeatOf(incoming);
            if (before != null) {
                m.count(Count.DUPLICATES);
                m.reading.free(incoming);
                send(role, from, before.octets);
                return;
            }
        }
        if (state.connections >= about.connectionsMax) {
            m.count(Count.FULL);
            answer(about.full, incoming, from);
            m.reading.free(incoming);
            return;
        }
        if (incoming.repeat != null)
            remember(incoming);
        state.connections++;
        incoming.requester = Incoming.Requester.BY_PEER;
        incoming.peer = from;
        incoming.purpose = Purpose.REQUEST;
        m.answers.dispatch(incoming.id);
        // Where no handler runs, it is over already.
        Incoming after = m.incomings.get(incoming.id);
        if (after == null || after.task == 0)
            peerIsServed(role);
    }

    private void request(int role, InetSocketAddress from, Text octets) {
        Role about = m.program.roles()[role];
        Incoming[] wrong = {null};
        for (RequestKind kind : about.requests) {
            Incoming incoming = read(role, kind.view(), octets, wrong);
            if (incoming != null) {
                if (wrong[0] != null)
                    m.reading.free(wrong[0]);
                requestFrom(incoming, from);
                return;
            }
        }
        if (wrong[0] != null) {
            m.count(Count.MALFORMED);
            answer(about.malformed(wrong[0]), wrong[0], from);
            m.reading.free(wrong[0]);
        }
    }

    /** The exchange in the air that a datagram answers; null if there is none. */
    private Exchange inTheAir(Role about, int role, View view, InetSocketAddress from) {
        for (int index = 0; index < (about.async ? about.flow.length : 1); index++) {
            Common flow = about.async
                ? Common.of(about, about.flow[index].view(), view, true) : Common.of(from);
            Long id = m.roles[role].air.get(flow);
            Exchange exchange = id == null ? null : m.exchanges.get(id);
            if (exchange != null)
                return exchange;
        }
        return null;
    }

    private void response(int role, InetSocketAddress from, Text octets) {
        Role about = m.program.roles()[role];
        Incoming[] wrong = {null};
        Incoming incoming = read(role, about.response, octets, wrong);
        if (incoming == null) {
            m.reading.free(wrong[0]);
            m.count(Count.MALFORMED);
            return;
        }
        Exchange exchange = inTheAir(about, role, incoming.view, from);
        if (exchange != null && (about.multicast || exchange.to.equals(from))) {
            incoming.purpose = Purpose.RESPONSE;
            incoming.exchange = exchange.id;
            m.air.responseBegun(exchange.id, incoming.id);
            if (!exchange.gather)
                m.air.end(exchange.id);
            return;
        }
        for (RequestKind kind : about.requests) {
            if (kind.view() == about.response) {
                requestFrom(incoming, from);
                return;
            }
        }
        m.count(exchange == null ? Count.UNSOLICITED : Count.STRANGERS);
        m.reading.free(incoming);
    }

    void answerPeer(Incoming request, Letter letter) {
        byte[] octets = letter.octets.text().copy();
        Repeat repeat = request.repeat != null ? repeatOf(request) : null;
        // Where there is no answer, the last one for now stands.
        if (repeat != null && octets.length > 0)
            repeat.octets = octets;
        send(request.role, request.peer, octets);
        Letter.free(letter);
    }

    void peerIsServed(int role) {
        if (m.roles[role].connections > 0)
            m.roles[role].connections--;
    }

    /* ---- Requests of ours ---- */

    void begin(Task task) {
        if (!task.target.isName()) {
            sendTo(task.id, task.target.address());
            return;
        }
        task.query = m.names.ask(task.target, 0, task.id);
        if (task.query == 0)
            m.running.sendFailed(task.id);
    }

    void sendTo(long id, InetSocketAddress to) {
        Task task = m.tasks.get(id);
        if (task == null || task.wait != Wait.CONNECTION)
            return;
        Role about = m.program.roles()[task.role];
        RoleState state = m.roles[task.role];
        byte[] octets = task.letter.octets.text().copy();
        task.query = 0;
        if (!task.respond) {
            send(task.role, to, octets);
            m.running.goOn(task, true);
            return;
        }
        if (!about.async)
            task.flow = Common.of(to);
        if (state.air.size() >= about.connectionsMax || state.air.containsKey(task.flow)) {
            m.count(Count.NO_ROOM);
            m.running.sendFailed(id);
            return;
        }
        Exchange exchange = m.air.begin(task);
        state.air.put(exchange.flow, exchange.id);
        exchange.byDatagram = true;
        exchange.to = to;
        exchange.octets.take(task.letter.octets);
        task.letter = null;
        if (about.retransmitTimes > 0) {
            exchange.left = about.retransmitTimes;
            exchange.pause = about.retransmitAfter;
            m.timers.set(exchange.repetition, m.now + exchange.pause);
        }
        send(task.role, to, octets);
    }

    void retransmit(long id) {
        Exchange exchange = m.exchanges.get(id);
        if (exchange == null || exchange.left == 0)
            return;
        Role about = m.program.roles()[exchange.role];
        exchange.left--;
        if (about.retransmitDoubling)
            exchange.pause *= 2;
        exchange.pause = Math.min(exchange.pause, about.retransmitPauseMax);
        if (exchange.left > 0)
            m.timers.set(exchange.repetition, m.now + exchange.pause);
        m.count(Count.RETRANSMITTED);
        send(exchange.role, exchange.to, exchange.octets.text().copy());
    }
}
