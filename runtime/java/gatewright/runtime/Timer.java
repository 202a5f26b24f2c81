package gatewright.runtime;

/** A time at which something is due. */
final class Timer {
    enum Kind { TASK, CONN, RETRANSMIT, EXCHANGE, SESSION, EVERY, REPEATS }

    final Kind kind;
    /** What it is about. */
    final long of;
    long at;
    long order;
    /** In the heap, from 1; 0 is not set. */
    int place;

    Timer(Kind kind, long of) {
        this.kind = kind;
        this.of = of;
    }

    boolean isSooner(Timer other) {
        return at != other.at ? at < other.at : order < other.order;
    }
}
