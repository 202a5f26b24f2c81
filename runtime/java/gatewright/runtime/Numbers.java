package gatewright.runtime;

/** Arithmetic that stops at the largest and the smallest number instead of going around. */
public final class Numbers {
    private Numbers() { }

    public static long add(long one, long other) {
        long sum = one + other;
        boolean over = ((one ^ sum) & (other ^ sum)) < 0;
        return over ? one < 0 ? Long.MIN_VALUE : Long.MAX_VALUE : sum;
    }

    public static long subtract(long one, long other) {
        long difference = one - other;
        boolean over = ((one ^ other) & (one ^ difference)) < 0;
        return over ? one < 0 ? Long.MIN_VALUE : Long.MAX_VALUE : difference;
    }

    public static long multiply(long one, long other) {
        long high = Math.multiplyHigh(one, other);
        long low = one * other;
        if (high == low >> 63)
            return low;
        return (one ^ other) < 0 ? Long.MIN_VALUE : Long.MAX_VALUE;
    }

    public static long divide(long one, long other) {
        boolean over = other == 0 || one == Long.MIN_VALUE && other == -1;
        return over ? Long.MAX_VALUE : one / other;
    }

    public static long modulo(long one, long other) {
        return other == 0 || other == -1 ? 0 : one % other;
    }

    public static boolean between(long value, long low, long high) {
        return low <= value && value <= high;
    }

    public static boolean less(long one, long other) {
        return one < other;
    }

    public static boolean equal(long one, long other) {
        return one == other;
    }

    static long inOrder(byte[] in, int from, int length, Order order) {
        long value = 0;
        for (int at = 0; at < length; at++)
            value = value << 8 | in[from + (order == Order.BIG ? at : length - 1 - at)] & 0xff;
        return value;
    }

    static byte[] octets(long value, int octets, Order order) {
        byte[] all = new byte[octets];
        for (int at = 0; at < octets; at++)
            all[order == Order.BIG ? octets - 1 - at : at] = (byte) (value >>> 8 * at);
        return all;
    }

    /** Whether a number has a bit at or above a place; every bit of 64 is below the 64th. */
    static boolean reaches(long value, int bits) {
        return bits < Long.SIZE && value >>> bits != 0;
    }

    /** The value of a digit; -1 for no digit. */
    static int digit(int octet, int radix) {
        return octet < 0x80 ? Character.digit(octet, radix) : -1;
    }

    /** Whether a text is decimal digits, and at least one. */
    static boolean onlyDigits(Text text) {
        for (int at = text.from; at < text.from + text.length; at++)
            if (digit(text.in[at] & 0xff, 10) < 0)
                return false;
        return text.length > 0;
    }

    /** Digits as a number; -1 above 63 bits or without a digit. */
    static long inDigits(byte[] in, int from, int length, int radix) {
        long value = length > 0 ? 0 : -1;
        for (int at = from; at < from + length; at++) {
            int next = digit(in[at] & 0xff, radix);
            if (next < 0 || value > (Long.MAX_VALUE - next) / radix)
                return -1;
            value = value * radix + next;
        }
        return value;
    }
}
