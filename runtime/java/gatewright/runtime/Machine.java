package gatewright.runtime;

import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.HashMap;

/**
 * A gateway program that runs, sans-IO: what arrives goes in, what is to be done comes out.
 *
 * <p>Whoever has the sockets and the clock tells what happened (`accepted`, `received`, ...) and
 * does what `poll` says until there is nothing. An id that is over is ignored wherever it is given.
 * How much may be read from a connection is `room`; what is to be written is `unsent`. A connection
 * with nothing pending has no buffer.
 */
public final class Machine {
    /** Two pages: what waits to be sent of one connection before the other side has to slow down. */
    static final int BUFFER_OCTETS = 8192;

    /** One that runs by the clock. */
    static final class Clock {
        final Handler handler;
        final Timer timer;
        long running;
        long session;

        Clock(Handler handler, int clock) {
            this.handler = handler;
            timer = new Timer(Timer.Kind.EVERY, clock);
        }
    }

    final Program program;
    final Pool pool;
    final RoleState[] roles;
    final Clock[] clocks;
    final Slab<Conn> conns = new Slab<>();
    final Slab<Incoming> incomings = new Slab<>();
    final Slab<Task> tasks = new Slab<>();
    final Slab<Session> sessions = new Slab<>();
    final Slab<Exchange> exchanges = new Slab<>();
    final Slab<Names.Query> queries = new Slab<>();
    final Slab<Datagrams.Repeat> repeats = new Slab<>();
    final HashMap<Common, Long> keyed = new HashMap<>();
    final Timers timers = new Timers();
    final Connections connections = new Connections(this);
    final Reading reading = new Reading(this);
    final Pump pump;
    final Answers answers = new Answers(this);
    final Tasks running = new Tasks(this);
    final Exchanges air = new Exchanges(this);
    final Reach reach = new Reach(this);
    final Datagrams datagrams = new Datagrams(this);
    final Sessions remembered = new Sessions(this);
    final Peers stored = new Peers(this);
    final Names names = new Names(this);
    final int window;
    long now;
    /** Nothing new begins any more. */
    boolean draining;
    private final Handled[] handled;
    private final long[] counts = new long[Count.values().length];
    /** Tasks to be run, and, below 0, connections to be read from. */
    private final Queue work = new Queue();
    /** Connections that wait for their next turn, each once. */
    final Queue turns = new Queue();
    private final ArrayDeque<Output> outputs = new ArrayDeque<>();

    /**
     * A machine; `seed` is where fresh numbers begin.
     *
     * @throws IllegalArgumentException if an address of the program is none
     */
    public Machine(long now, Program program, Pool pool, int seed) {
        this.now = now;
        this.program = program;
        this.pool = pool;
        pump = new Pump(this);
        roles = new RoleState[program.roles().length];
        for (int role = 0; role < roles.length; role++) {
            roles[role] = new RoleState(role);
            roles[role].fresh = seed;
            roles[role].address = Target.read(program.roles()[role].address);
            if (roles[role].address == null)
                throw new IllegalArgumentException(program.roles()[role].address);
        }
        window = window(program);
        handled = new Handled[program.handlers().length];
        for (int index = 0; index < handled.length; index++)
            handled[index] = new Handled(program.handlers()[index].name());
        clocks = clocks(program);
        for (Clock clock : clocks)
            timers.set(clock.timer, now + clock.handler.period());
    }

    private static Clock[] clocks(Program program) {
        ArrayDeque<Clock> clocks = new ArrayDeque<>();
        for (Handler handler : program.handlers())
            if (handler.period() > 0)
                clocks.add(new Clock(handler, clocks.size()));
        return clocks.toArray(new Clock[0]);
    }

    /** Room for the longest stretch that some reader must see at once; no less than two pages. */
    private static int window(Program program) {
        long window = BUFFER_OCTETS;
        for (Role role : program.roles()) {
            window = Math.max(window, role.response.datagram ? 0 : role.response.windowMax);
            for (RequestKind kind : role.requests)
                window = Math.max(window, kind.view().datagram ? 0 : kind.view().windowMax);
        }
        return (int) window;
    }

    /** Another address for a role, before anything else happens; false if it is none. */
    public boolean address(int role, String address) {
        Target target = Target.read(address);
        if (target != null)
            roles[role].address = target;
        return target != null;
    }

    /** The address of a role; unresolved if it is a name. */
    public InetSocketAddress address(int role) {
        return roles[role].address.address();
    }

    /* ---- What happened ---- */

    /** A client connected; its id. */
    public long accepted(long at, int role) {
        now = at;
        long id = connections.accepted(role);
        settle();
        return id;
    }

    public void connected(long at, long conn) {
        now = at;
        connections.connected(conn);
        settle();
    }

    public void connectFailed(long at, long conn) {
        now = at;
        connections.connectFailed(conn);
        settle();
    }

    /** Octets arrived, at most `room` of them. */
    public void received(long at, long conn, ByteBuffer octets) {
        now = at;
        connections.received(conn, octets);
        settle();
    }

    /** The peer will send no more. */
    public void ended(long at, long conn) {
        now = at;
        connections.ended(conn);
        settle();
    }

    /** The connection was reset, or anything else went wrong with it. */
    public void broken(long at, long conn) {
        now = at;
        connections.broken(conn);
        settle();
    }

    /** So many octets of `unsent` are on their way. */
    public void sent(long at, long conn, int octets) {
        now = at;
        connections.sent(conn, octets);
        settle();
    }

    /** A datagram arrived. */
    public void datagram(long at, int role, InetSocketAddress from, Text octets) {
        now = at;
        datagrams.received(role, from, octets);
        settle();
    }

    /** A name's address; null if there is none. */
    public void resolved(long at, long query, InetSocketAddress address) {
        now = at;
        names.resolved(query, address);
        settle();
    }

    /** It is `timeout`, or later; one of the connections that wait for their turn has it. */
    public void handleTimeout(long at) {
        now = at;
        for (Timer timer = timers.first(); timer != null && timer.at <= at;
                timer = timers.first()) {
            timers.cancel(timer);
            due(timer);
            settle();
        }
        if (turns.count() > 0) {
            reading.takeTurn(turns.take());
            settle();
        }
    }

    private void due(Timer timer) {
        switch (timer.kind) {
        case TASK:
            running.waitIsOver(timer.of);
            break;
        case CONN:
            connections.isSilent(timer.of);
            break;
        case RETRANSMIT:
            datagrams.retransmit(timer.of);
            break;
        case EXCHANGE:
            air.isLate(timer.of);
            break;
        case SESSION:
            remembered.isUnused(timer.of);
            break;
        case EVERY:
            strike((int) timer.of);
            break;
        case REPEATS:
            datagrams.forgetRepeats((int) timer.of);
            break;
        }
    }

    private void strike(int index) {
        Clock clock = clocks[index];
        if (draining)
            return;
        timers.set(clock.timer, now + clock.handler.period());
        if (clock.running != 0)
            count(Count.SKIPPED);
        else
            clock.running = running.start(clock.handler, Task.Origin.BY_CLOCK, 0, index).id;
    }

    /** A handler that the clock started is over. */
    void turnIsOver(int index) {
        clocks[index].running = 0;
        if (draining)
            remembered.end(clocks[index].session);
    }

    /**
     * Nothing new begins: kept connections close, handlers by the clock start no more. What runs goes
     * on to its end; whoever has the sockets listens no more.
     */
    public void drain(long at) {
        now = at;
        draining = true;
        for (RoleState role : roles)
            for (long kept = role.kept.first(); kept != 0; kept = role.kept.first())
                connections.drop(kept, false);
        for (int index = 0; index < clocks.length; index++)
            if (clocks[index].running == 0)
                turnIsOver(index);
        settle();
    }

    /** Whether nothing runs: no connection, no handler, no request on its way. */
    public boolean isIdle() {
        return conns.used() == 0 && tasks.used() == 0 && exchanges.used() == 0;
    }

    /** Frees everything: connections are reset, handlers end. */
    public void free() {
        for (int index = 0; index < conns.size(); index++)
            if (conns.at(index) != null)
                connections.drop(conns.at(index).id, true);
        settle();
        for (int index = 0; index < tasks.size(); index++)
            if (tasks.at(index) != null)
                running.end(tasks.at(index).id);
        settle();
        for (int index = 0; index < sessions.size(); index++)
            if (sessions.at(index) != null)
                remembered.end(sessions.at(index).id);
        outputs.clear();
    }

    /** Things that are still there; after `free` none should be. */
    public int things() {
        return conns.used() + incomings.used() + tasks.used() + sessions.used() + exchanges.used();
    }

    /* ---- What is to be done ---- */

    /** The next thing to be done; null if there is none. */
    public Output poll() {
        return outputs.pollFirst();
    }

    /**
     * When `handleTimeout` is due: at once if a connection waits for its turn; the largest number if
     * never.
     */
    public long timeout() {
        if (turns.count() > 0)
            return now;
        Timer first = timers.first();
        return first == null ? Long.MAX_VALUE : first.at;
    }

    /** What is to be written of a connection. */
    public Text unsent(long id) {
        Conn conn = conns.get(id);
        return conn == null ? Text.NONE : conn.unsent.text();
    }

    /** How many octets may be read from a connection. */
    public int room(long id) {
        Conn conn = conns.get(id);
        if (conn == null || conn.state == Conn.State.RESOLVING
                || conn.state == Conn.State.CONNECTING)
            return 0;
        if (conn.state != Conn.State.OPEN)
            return BUFFER_OCTETS;
        // What it has sent already is read first.
        return conn.waiting ? 0 : Math.max(0, window - conn.unread.length());
    }

    /** How often something was counted. */
    public long counted(Count what) {
        return counts[what.ordinal()];
    }

    /** What was seen of a server, the oldest first; null if there is nothing. */
    public PeerSeen pollPeer() {
        return reach.poll();
    }

    /** Whether connections and answers of servers are told, too, and not only losses. */
    public void tellReached(boolean whether) {
        reach.tellsReached = whether;
    }

    /** What became of the runs of each handler, in the program's order. */
    public Handled[] handled() {
        return handled;
    }

    /* ---- Inside ---- */

    /** What is counted of a handler. */
    Handled handled(Handler handler) {
        int index = 0;
        while (program.handlers()[index] != handler)
            index++;
        return handled[index];
    }

    void count(Count what) {
        counts[what.ordinal()]++;
    }

    void toRun(long task) {
        work.add(task);
    }

    void toRead(long conn) {
        if (conn != 0)
            work.add(-conn);
    }

    void output(Output output) {
        outputs.addLast(output);
    }

    private void settle() {
        for (long of = work.take(); of != 0; of = work.take()) {
            if (of > 0)
                running.run(of);
            else
                reading.readOn(-of);
        }
        if (draining)
            connections.dropResting();
    }

    /** A handler's answer to a request begins. */
    public void handle(Incoming request, Handler handler) {
        running.start(handler, Task.Origin.BY_REQUEST, request.id, 0);
    }

    /** A request is answered without a handler. */
    public void reply(Incoming request, Answer answer) {
        answers.answerRequest(request, answer);
    }
}
