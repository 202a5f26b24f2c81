package gatewright.runtime;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** Octets that lie elsewhere, and are valid as long as what they lie in does not change. */
public final class Text {
    /** No octets. */
    public static final Text NONE = new Text(new byte[0], 0, 0);

    final byte[] in;
    final int from;
    final int length;

    Text(byte[] in, int from, int length) {
        this.in = in;
        this.from = from;
        this.length = length;
    }

    /** A constant's octets, each a character of ISO 8859-1. */
    public static Text of(String octets) {
        return of(octets.getBytes(StandardCharsets.ISO_8859_1));
    }

    static Text of(byte[] octets) {
        return new Text(octets, 0, octets.length);
    }

    /** How many octets there are. */
    public long size() {
        return length;
    }

    /** So many octets from the beginning, or all if there are fewer. */
    public Text first(long octets) {
        return octets < length ? new Text(in, from, (int) octets) : this;
    }

    /** Whether the octets are the same. */
    public boolean same(Text other) {
        return Arrays.equals(in, from, from + length, other.in, other.from,
            other.from + other.length);
    }

    /** Whether they are the same but for the case of ASCII letters. */
    boolean sameKey(Text other) {
        if (length != other.length)
            return false;
        for (int index = 0; index < length; index++)
            if (small(at(index)) != small(other.at(index)))
                return false;
        return true;
    }

    int at(int index) {
        return in[from + index] & 0xff;
    }

    /** From one index up to before another. */
    Text part(int begin, int end) {
        return new Text(in, from + begin, end - begin);
    }

    Text behind(int begin) {
        return part(begin, length);
    }

    boolean begins(Text with) {
        return length >= with.length && Arrays.equals(in, from, from + with.length, with.in,
            with.from, with.from + with.length);
    }

    /** The index of an octet; -1 if it is not there. */
    int find(int octet) {
        for (int index = 0; index < length; index++)
            if (in[from + index] == (byte) octet)
                return index;
        return -1;
    }

    /** Where a sequence of octets first occurs; -1 if nowhere. */
    int find(Text wanted) {
        if (wanted.length == 0)
            return 0;
        byte first = wanted.in[wanted.from];
        for (int at = from; at + wanted.length <= from + length; at++)
            if (in[at] == first && Arrays.equals(in, at, at + wanted.length, wanted.in,
                    wanted.from, wanted.from + wanted.length))
                return at - from;
        return -1;
    }

    /** Without spaces and tabs at both ends. */
    Text withoutBlanks() {
        int begin = 0;
        int end = length;
        while (begin < end && isBlank(at(begin)))
            begin++;
        while (begin < end && isBlank(at(end - 1)))
            end--;
        return part(begin, end);
    }

    byte[] copy() {
        return Arrays.copyOfRange(in, from, from + length);
    }

    private static boolean isBlank(int octet) {
        return octet == ' ' || octet == '\t';
    }

    static int small(int octet) {
        return octet >= 'A' && octet <= 'Z' ? octet + ('a' - 'A') : octet;
    }

    @Override
    public String toString() {
        return new String(in, from, length, StandardCharsets.ISO_8859_1);
    }
}
