package gatewright.runtime;

import java.nio.ByteBuffer;

/** Octets that grow at their end and are used up at their beginning; without any, no memory. */
public final class Octets {
    private final Pool pool;
    byte[] block;
    int begin;
    int end;

    /** None yet; their memory comes from a pool. */
    public Octets(Pool pool) {
        this.pool = pool;
    }

    int length() {
        return end - begin;
    }

    /** What is there. */
    public Text text() {
        return block == null ? Text.NONE : new Text(block, begin, end - begin);
    }

    boolean add(Text text) {
        return add(text.in, text.from, text.length);
    }

    boolean add(byte[] in, int from, int length) {
        if (length == 0)
            return true;
        int at = grow(length);
        if (at >= 0)
            System.arraycopy(in, from, block, at, length);
        return at >= 0;
    }

    boolean add(ByteBuffer octets) {
        int length = octets.remaining();
        int at = length == 0 ? 0 : grow(length);
        if (at >= 0 && length > 0)
            octets.get(block, at, length);
        return at >= 0;
    }

    boolean add(int octet) {
        int at = grow(1);
        if (at >= 0)
            block[at] = (byte) octet;
        return at >= 0;
    }

    /** Makes room for so many more and says where; -1 if there is no memory. */
    int grow(int length) {
        int room = block == null ? 0 : block.length;
        if (room - end < length) {
            int there = end - begin;
            if (begin > 0 && room - there >= length) {
                System.arraycopy(block, begin, block, 0, there);
            } else {
                byte[] larger = pool.take(there + length);
                if (larger == null)
                    return -1;
                if (there > 0)
                    System.arraycopy(block, begin, larger, 0, there);
                pool.give(block);
                block = larger;
            }
            begin = 0;
            end = there;
        }
        int at = end;
        end += length;
        return at;
    }

    /** Uses up octets at the beginning. */
    void use(int length) {
        begin += length;
        if (begin == end)
            free();
    }

    /** Forgets what is behind so many octets. */
    void cut(int length) {
        end = begin + length;
    }

    /** Becomes what the others are, which then are none. */
    void take(Octets others) {
        free();
        block = others.block;
        begin = others.begin;
        end = others.end;
        others.block = null;
        others.begin = others.end = 0;
    }

    /** Gives the memory back. */
    public void free() {
        pool.give(block);
        block = null;
        begin = end = 0;
    }
}
