package gatewright.runtime;

import gatewright.runtime.Incoming.Passing;

/** A message that is being built. */
public final class Build {
    private final Machine m;
    private int role;
    /** What it answers; null for nothing. */
    Incoming request;
    private View view;
    /** The message whose stream it passes on. */
    private long stream;
    /** The fresh number, the same in every hole of a message; negative before the first. */
    private long number = -1;

    Build(Machine m, int role, Incoming request) {
        this.m = m;
        this.role = role;
        this.request = request;
    }

    /** A message with no hole filled, that goes out by a role. */
    public boolean begin(int by, Message message) {
        role = by;
        view = message.view();
        stream = 0;
        number = -1;
        return true;
    }

    /** What was built so far. */
    public View view() {
        return view;
    }

    /** Fills a hole; an absent value leaves it absent. */
    public void fill(Slot hole, Slot value) {
        if (value.kind() == Kind.LIST)
            hole.set = hole.settled = true;
        hole.copy(value);
    }

    public void fillNumber(Slot hole, long value) {
        hole.setNumber(value);
    }

    public void fillText(Slot hole, Text value) {
        hole.setOctets(value);
    }

    /** A number that no exchange in the air of this role uses; as octets, four of them. */
    public void fillFresh(Slot hole) {
        if (number < 0)
            number = Integer.toUnsignedLong(++m.roles[role].fresh);
        Bounds bounds = hole.field.bounds();
        if (hole.kind() == Kind.INT) {
            long range = bounds.high() - bounds.low();
            range = range < 0 || range == Long.MAX_VALUE ? Long.MAX_VALUE : range + 1;
            hole.setNumber(bounds.low() + Math.floorMod(number - bounds.low(), range));
        } else {
            hole.setOctets(Text.of(Numbers.octets(number, 4, Order.BIG)));
        }
    }

    /** The stream of a message that a handler has passes on. */
    public void fillStream(Slot hole, Slot message) {
        hole.setPassing();
        stream = message.from;
    }

    /** A slot of the request that is answered; an absent one if there is none. */
    public Slot asked(int index) {
        boolean there = request != null && index < request.view.slots.length;
        return there ? request.view.slots[index] : Slot.ABSENT;
    }

    /** Writes what was built; false if it cannot be. */
    boolean finish(Letter letter) {
        Incoming from = m.incomings.get(stream);
        boolean there = from != null && from.passing == Passing.HELD && from.reader.streaming;
        Writer writer = new Writer(letter.octets);
        // A stream whose octets went by already cannot be passed on.
        boolean sound = (stream == 0 || there) && writer.write(view);
        if (sound && writer.stream() != null) {
            letter.streams = true;
            letter.writer = writer.stream();
            letter.from = stream;
        }
        view = null;
        return sound;
    }
}
