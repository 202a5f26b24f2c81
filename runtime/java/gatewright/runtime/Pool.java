package gatewright.runtime;

import java.util.ArrayDeque;

/**
 * Blocks of octets that are lent and come back, so that a message asks the heap for none of them.
 * Sizes are powers of two. Each loop has a pool of its own.
 */
public final class Pool {
    private static final int CLASS_MIN = 6;
    private static final int CLASS_MAX = 24;

    private final ArrayDeque<byte[]>[] free = lists();
    private final long limit;
    private long held;
    private long lent;

    /** A pool that may hold so many octets. */
    public Pool(long limit) {
        this.limit = limit;
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static ArrayDeque<byte[]>[] lists() {
        ArrayDeque<byte[]>[] lists = new ArrayDeque[CLASS_MAX + 1];
        for (int size = CLASS_MIN; size <= CLASS_MAX; size++)
            lists[size] = new ArrayDeque<>();
        return lists;
    }

    private static int sizeClass(int size) {
        return Math.max(CLASS_MIN, Integer.SIZE - Integer.numberOfLeadingZeros(size - 1));
    }

    /** A block of at least so many octets; null if the limit is reached. */
    byte[] take(int size) {
        if (size > 1 << CLASS_MAX)
            return null;
        int octets = 1 << sizeClass(size);
        byte[] block = free[sizeClass(size)].pollLast();
        if (block == null) {
            if (octets > limit - held)
                trim();
            if (octets > limit - held)
                return null;
            block = new byte[octets];
            held += octets;
        }
        lent += octets;
        return block;
    }

    void give(byte[] block) {
        if (block != null) {
            lent -= block.length;
            free[sizeClass(block.length)].addLast(block);
        }
    }

    private void trim() {
        for (int size = CLASS_MIN; size <= CLASS_MAX; size++) {
            held -= (long) free[size].size() << size;
            free[size].clear();
        }
    }

    /** How many octets it holds, lent or not. */
    public long held() {
        return held;
    }

    /** How many octets are lent. */
    public long lent() {
        return lent;
    }
}
