package gatewright.runtime;

import java.util.ArrayDeque;

/** A TCP connection. */
final class Conn {
    enum State { RESOLVING, CONNECTING, OPEN, CLOSING, LINGERING }

    final long id;
    final int role;
    final Role about;
    final Octets unread;
    final Octets unsent;
    final Timer timer;
    final Ids tasks = new Ids();
    final Ids exchanges = new Ids();
    final Ids waiters = new Ids();
    /** A client's server. */
    Target target;
    State state;
    long query;
    boolean ended;
    boolean blocked;
    boolean skipping;
    /** It was kept from another session and gave no octet since. */
    boolean kept;
    /** It is let go of when its response is read. */
    boolean releasing;
    /** It ends when its response is read. */
    boolean hanging;
    Letter streaming;
    /** Letters behind the one that streams; null for none. */
    ArrayDeque<Letter> behind;
    /** The message that is being read. */
    long current;
    int requests;
    /** Messages begun since its turn began, or since nothing of it was unread. */
    int begun;
    /** It waits for its next turn, behind the others. */
    boolean waiting;
    long receiver;
    long opening;
    long session;
    long moved;

    Conn(Machine m, long id, int role, State state) {
        this.id = id;
        this.role = role;
        this.state = state;
        about = m.program.roles()[role];
        unread = new Octets(m.pool);
        unsent = new Octets(m.pool);
        timer = new Timer(Timer.Kind.CONN, id);
        moved = m.now;
    }

    boolean hasBehind() {
        return behind != null && !behind.isEmpty();
    }

    boolean isClean() {
        return current == 0 && exchanges.count() == 0 && streaming == null && !hasBehind()
            && opening == 0 && receiver == 0;
    }

    /** Whether a stream of a message goes out by it. */
    boolean streamsFrom(long incoming) {
        if (streaming != null && streaming.from == incoming)
            return true;
        if (behind != null)
            for (Letter letter : behind)
                if (letter.streams && letter.from == incoming)
                    return true;
        return false;
    }
}
