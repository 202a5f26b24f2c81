package gatewright.runtime;

/** Numbers that leave in the order in which they came; 0 is none. */
final class Queue {
    private long[] at = new long[16];
    private int first;
    private int count;

    void add(long number) {
        if (count == at.length) {
            long[] larger = new long[2 * count];
            System.arraycopy(at, first, larger, 0, count - first);
            System.arraycopy(at, 0, larger, count - first, first);
            at = larger;
            first = 0;
        }
        at[first + count & at.length - 1] = number;
        count++;
    }

    int count() {
        return count;
    }

    /** The next one, which stays; 0 if there is none. */
    long first() {
        return count > 0 ? at[first] : 0;
    }

    long take() {
        if (count == 0)
            return 0;
        long number = at[first];
        first = first + 1 & at.length - 1;
        count--;
        return number;
    }
}
