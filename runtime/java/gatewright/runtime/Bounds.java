package gatewright.runtime;

/** What a slot, or a column of a list, may hold: `max` counts octets or rows. */
public record Bounds(Kind kind, long low, long high, long max) {
    /** A number. */
    public static Bounds number(long low, long high) {
        return new Bounds(Kind.INT, low, high, 0);
    }

    /** At most so many octets. */
    public static Bounds octets(long max) {
        return new Bounds(Kind.OCTETS, 0, 0, max);
    }

    boolean allow(long number, long length) {
        if (kind == Kind.INT)
            return low <= number && number <= high;
        return kind == Kind.STREAM || length <= max;
    }
}
