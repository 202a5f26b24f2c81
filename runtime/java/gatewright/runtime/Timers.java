package gatewright.runtime;

import java.util.Arrays;

/** A heap; of two that are due at once the one that was set first comes first. */
final class Timers {
    private Timer[] heap = new Timer[64];
    private int count;
    private long order;

    /** The next one; null if none is set. */
    Timer first() {
        return count > 0 ? heap[1] : null;
    }

    void set(Timer timer, long at) {
        cancel(timer);
        timer.at = at;
        timer.order = ++order;
        count++;
        if (count == heap.length)
            heap = Arrays.copyOf(heap, 2 * count);
        up(count, timer);
    }

    void cancel(Timer timer) {
        if (timer == null || timer.place == 0)
            return;
        int place = timer.place;
        timer.place = 0;
        Timer last = heap[count];
        heap[count] = null;
        count--;
        if (last == timer)
            return;
        if (place > 1 && last.isSooner(heap[place / 2]))
            up(place, last);
        else
            down(place, last);
    }

    private void put(int place, Timer timer) {
        heap[place] = timer;
        timer.place = place;
    }

    private void up(int from, Timer timer) {
        int place = from;
        for (; place > 1 && timer.isSooner(heap[place / 2]); place /= 2)
            put(place, heap[place / 2]);
        put(place, timer);
    }

    private void down(int from, Timer timer) {
        int place = from;
        while (2 * place <= count) {
            int child = 2 * place;
            if (child < count && heap[child + 1].isSooner(heap[child]))
                child++;
            if (!heap[child].isSooner(timer))
                break;
            put(place, heap[child]);
            place = child;
        }
        put(place, timer);
    }
}
