package gatewright.runtime;

/** What became of the runs of one handler, and how long they took. */
public final class Handled {
    /** Steps of powers of two of a latency: the last is above an hour. */
    private static final int STEPS = 33;

    private final String name;
    private long started;
    private long finished;
    private long failed;
    /** From start to end; `n` counts those below 2^n microseconds. */
    private final long[] latency = new long[STEPS];

    Handled(String name) {
        this.name = name;
    }

    void started() {
        started++;
    }

    void ended(boolean well, long took) {
        latency[Math.min(Long.SIZE - Long.numberOfLeadingZeros(took), STEPS - 1)]++;
        if (well)
            finished++;
        else
            failed++;
    }

    /** How often it was started. */
    public long count() {
        return started;
    }

    /** The time in microseconds that so many per cent of its runs were below, to a power of two. */
    private long percentile(int percent) {
        long below = 0;
        for (int step = 0; step < STEPS; step++) {
            below += latency[step];
            if (below * 100 >= (finished + failed) * percent)
                return 1L << step;
        }
        return 0;
    }

    @Override
    public String toString() {
        return "handler " + name + ": " + started + " started, " + finished + " finished, " + failed
            + " failed, half below " + percentile(50) + " us, 99 % below " + percentile(99) + " us";
    }
}
