package gatewright.runtime;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.function.LongFunction;

/** Things with ids: an index and a generation; 0 is none, and an id that is over finds nothing. */
final class Slab<T> {
    private static final int GENERATION_MAX = Integer.MAX_VALUE;

    private final ArrayList<T> things = new ArrayList<>();
    private int[] generations = new int[16];
    private int[] unused = new int[16];
    private int unusedCount;
    private int used;

    int used() {
        return used;
    }

    /** How many indices were ever used. */
    int size() {
        return things.size();
    }

    T at(int index) {
        return things.get(index);
    }

    /** A new thing, made with its id. */
    T add(LongFunction<T> maker) {
        int index;
        if (unusedCount > 0) {
            index = unused[--unusedCount];
        } else {
            index = things.size();
            things.add(null);
            if (index == generations.length)
                generations = Arrays.copyOf(generations, 2 * index);
        }
        generations[index] = generations[index] == GENERATION_MAX ? 1 : generations[index] + 1;
        T thing = maker.apply((long) generations[index] << 32 | index);
        things.set(index, thing);
        used++;
        return thing;
    }

    T get(long id) {
        int index = (int) id;
        if (id == 0 || index >= things.size() || generations[index] != id >>> 32)
            return null;
        return things.get(index);
    }

    T take(long id) {
        T thing = get(id);
        if (thing != null) {
            int index = (int) id;
            things.set(index, null);
            if (unusedCount == unused.length)
                unused = Arrays.copyOf(unused, 2 * unusedCount);
            unused[unusedCount++] = index;
            used--;
        }
        return thing;
    }
}
