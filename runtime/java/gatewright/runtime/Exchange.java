package gatewright.runtime;

import java.net.InetSocketAddress;

/** A request that waits for its response, or for the end of it. */
final class Exchange {
    final long id;
    final int role;
    final long task;
    final boolean gather;
    final Target target;
    final long deadline;
    final Timer timer;
    final Timer repetition;
    /** What may have to be sent again. */
    final Octets octets;
    /** Null where the role has no keys. */
    Common flow;
    long conn;
    InetSocketAddress to;
    boolean byDatagram;
    boolean begun;
    long pause;
    int left;

    Exchange(Machine m, long id, Task task) {
        this.id = id;
        role = task.role;
        this.task = task.id;
        gather = task.gatherMax > 0;
        target = task.target;
        deadline = task.deadline;
        flow = task.flow;
        timer = new Timer(Timer.Kind.EXCHANGE, id);
        repetition = new Timer(Timer.Kind.RETRANSMIT, id);
        octets = new Octets(m.pool);
    }
}
