package gatewright.runtime;

import java.net.InetSocketAddress;

/** Names that are asked for. */
final class Names {
    /** Names that may be asked for at once. */
    private static final int QUERIES_MAX = 64;

    /** Who asked. */
    static final class Query {
        final long id;
        long conn;
        long task;

        Query(long id) {
            this.id = id;
        }
    }

    private final Machine m;

    Names(Machine m) {
        this.m = m;
    }

    /** Asks for a connection or a task; 0 if too many are asked for. */
    long ask(Target target, long conn, long task) {
        if (m.queries.used() >= QUERIES_MAX) {
            m.count(Count.UNRESOLVED);
            return 0;
        }
        Query query = m.queries.add(Query::new);
        query.conn = conn;
        query.task = task;
        m.output(Output.resolve(query.id, target));
        return query.id;
    }

    /** Whoever asked does not wait any more; the answer still has to come. */
    void end(long id) {
        Query query = m.queries.get(id);
        if (query != null)
            query.conn = query.task = 0;
    }

    void resolved(long id, InetSocketAddress address) {
        Query query = m.queries.take(id);
        if (query == null)
            return;
        Conn conn = m.conns.get(query.conn);
        if (address == null && (conn != null || query.task != 0))
            m.count(Count.UNRESOLVED);
        if (conn != null && address != null) {
            conn.state = Conn.State.CONNECTING;
            conn.query = 0;
            m.output(Output.connect(conn.id, conn.role, address));
        } else if (conn != null) {
            m.reach.isLost(query.conn, PeerSeen.Seen.UNRESOLVED);
            m.connections.lose(query.conn);
        } else if (query.task != 0 && address != null) {
            m.datagrams.sendTo(query.task, address);
        } else if (query.task != 0) {
            m.reach.askedIsLost(query.task, PeerSeen.Seen.UNRESOLVED);
            m.running.sendFailed(query.task);
        }
    }
}
