package gatewright.runtime;

/** Times are microseconds since any epoch. */
public final class Time {
    private Time() { }

    public static long milliseconds(long count) {
        return count * 1000;
    }

    static long now() {
        return System.nanoTime() / 1000 - EPOCH;
    }

    private static final long EPOCH = System.nanoTime() / 1000;
}
