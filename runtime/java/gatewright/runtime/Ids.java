package gatewright.runtime;

import java.util.Arrays;

/** A list of ids. */
final class Ids {
    private static final long[] NONE = {};

    private long[] at = NONE;
    private int count;

    int count() {
        return count;
    }

    long get(int index) {
        return at[index];
    }

    void add(long id) {
        if (count == at.length)
            at = Arrays.copyOf(at, Math.max(4, 2 * count));
        at[count++] = id;
    }

    boolean has(long id) {
        for (int index = 0; index < count; index++)
            if (at[index] == id)
                return true;
        return false;
    }

    void remove(long id) {
        for (int index = 0; index < count; index++) {
            if (at[index] == id) {
                drop(index);
                return;
            }
        }
    }

    /** Takes the first one; 0 if there is none. */
    long first() {
        if (count == 0)
            return 0;
        long first = at[0];
        drop(0);
        return first;
    }

    private void drop(int index) {
        count--;
        System.arraycopy(at, index + 1, at, index, count - index);
        if (count == 0)
            at = NONE;
    }
}
