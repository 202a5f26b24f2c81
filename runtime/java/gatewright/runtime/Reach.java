package gatewright.runtime;

import gatewright.runtime.PeerSeen.Seen;
import java.util.ArrayDeque;

/**
 * Whether the servers that the program's client roles call can be reached. A failure is told each time;
 * that a server answers is told only while the owner asks for it, as each message does so.
 */
final class Reach {
    /** What is seen and not polled yet; of more, the oldest are dropped. */
    private static final int SEEN_MAX = 64;

    private final Machine m;
    private final ArrayDeque<PeerSeen> all = new ArrayDeque<>();
    boolean tellsReached;

    Reach(Machine m) {
        this.m = m;
    }

    PeerSeen poll() {
        return all.pollFirst();
    }

    private void tell(int role, Target target, Seen seen) {
        if (target == null)
            return;
        if (all.size() == SEEN_MAX)
            all.removeFirst();
        all.addLast(new PeerSeen(role, target.toString(), seen));
    }

    /** The server of a connection is lost. */
    void isLost(long id, Seen how) {
        Conn conn = m.conns.get(id);
        if (conn != null && conn.about.client)
            tell(conn.role, conn.target, how);
    }

    /** The server that a handler was to send a datagram is lost. */
    void askedIsLost(long id, Seen how) {
        Task task = m.tasks.get(id);
        if (task != null && task.wait == Task.Wait.CONNECTION)
            tell(task.role, task.target, how);
    }

    /** An exchange that nobody began to answer is too late. */
    void wasSilent(Exchange exchange) {
        tell(exchange.role, exchange.target, Seen.SILENT);
    }

    /** A response has begun. */
    void answers(Exchange exchange) {
        if (tellsReached)
            tell(exchange.role, exchange.target, Seen.ANSWERED);
    }

    /** A connection is ready for requests. */
    void isConnected(long id) {
        Conn conn = m.conns.get(id);
        if (tellsReached && conn != null)
            tell(conn.role, conn.target, Seen.CONNECTED);
    }

    /**
     * A server has ended its connection. It is lost if the connection was shared by all sessions or
     * carries requests of the server, was not ready yet, or if a request waited on it that is not sent
     * again. It may end any other connection whenever that is unused.
     */
    void ends(long id) {
        Conn conn = m.conns.get(id);
        if (conn == null || !conn.about.client || conn.state != Conn.State.OPEN)
            return;
        boolean asked = false;
        for (int at = 0; at < conn.exchanges.count() && !conn.kept; at++) {
            Exchange exchange = m.exchanges.get(conn.exchanges.get(at));
            asked |= exchange != null && !exchange.begun && !exchange.gather;
        }
        if (conn.opening != 0 || asked || conn.about.requests.length > 0 || conn.about.shared)
            isLost(id, Seen.CLOSED);
    }
}
