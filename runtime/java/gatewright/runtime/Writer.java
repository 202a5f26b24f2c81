package gatewright.runtime;

/** The writing of one message. After something was wrong its parts do nothing. */
public final class Writer {
    private final Octets out;
    private Reason reason = Reason.SOUND;
    private long word;
    /** The octets under check. */
    private Text field = Text.NONE;
    private StreamWriter stream;
    private boolean streaming;

    /** Writes behind what `out` has. */
    public Writer(Octets out) {
        this.out = out;
    }

    /** Writes a message. False if it cannot be built; `out` is then as it was. */
    public boolean write(View view) {
        int before = out.length();
        for (Slot slot : view.slots)
            if (slot.set && !slot.isSound())
                refuse(Reason.BAD_SLOT);
        if (reason == Reason.SOUND)
            view.write(this);
        if (reason != Reason.SOUND)
            out.cut(before);
        return reason == Reason.SOUND;
    }

    /** The first thing that was wrong. */
    public Reason reason() {
        return reason;
    }

    /** What writes the stream that the message ends with, if that passes; else null. */
    public StreamWriter stream() {
        return streaming ? stream : null;
    }

    public void refuse(Reason why) {
        if (reason == Reason.SOUND)
            reason = why;
    }

    public void put(Text text) {
        if (reason == Reason.SOUND && !out.add(text))
            refuse(Reason.NO_MEMORY);
    }

    /* ---- A field and what is checked of it ---- */

    public void field(Text text, long min, long max) {
        field = text;
        if (text.length < min || text.length > max)
            refuse(Reason.BAD_LENGTH);
    }

    public void fieldIs(OctetClass of) {
        for (int at = 0; at < field.length; at++)
            if (!of.has(field.at(at)))
                refuse(Reason.BAD_OCTETS);
    }

    public void fieldOneOf(Text set) {
        for (int at = 0; at < field.length; at++)
            if (set.find(field.at(at)) < 0)
                refuse(Reason.BAD_OCTETS);
    }

    public void fieldWithout(Text text) {
        if (field.find(text) >= 0)
            refuse(Reason.BAD_OCTETS);
        // The text itself follows: it must not begin with the field's end.
        for (int begun = 1; begun < text.length && begun <= field.length; begun++) {
            boolean same = true;
            for (int at = 0; same && at < text.length; at++) {
                int before = field.length - begun + at;
                int octet = at < begun ? field.at(before) : text.at(at - begun);
                same = octet == text.at(at);
            }
            if (same)
                refuse(Reason.BAD_OCTETS);
        }
    }

    public void fieldBeginsNot(OctetClass of) {
        if (field.length > 0 && of.has(field.at(0)))
            refuse(Reason.BAD_OCTETS);
    }

    public void fieldOneLine() {
        if (field.find('\r') >= 0 || field.find('\n') >= 0)
            refuse(Reason.BAD_OCTETS);
    }

    public void fieldEnd() {
        put(field);
    }

    /* ---- Numbers ---- */

    public void putDigits(long value, int radix, int width, long max) {
        String digits = Long.toString(Math.max(value, 0), radix);
        String text = "0".repeat(Math.max(0, width - digits.length())) + digits;
        if (value < 0 || text.length() > max)
            refuse(Reason.BAD_NUMBER);
        put(Text.of(text));
    }

    public void putBits(long value, int shift, int width) {
        if (value < 0 || Numbers.reaches(value, width))
            refuse(Reason.BAD_NUMBER);
        else
            word |= value << shift;
    }

    /** The same in two's complement. */
    public void putSignedBits(long value, int shift, int width) {
        long high = -1L >>> Long.SIZE + 1 - width;
        if (value > high || value < -high - 1)
            refuse(Reason.BAD_NUMBER);
        else
            word |= (value & -1L >>> Long.SIZE - width) << shift;
    }

    public void putWord(int octets, Order order) {
        put(Text.of(Numbers.octets(word, octets, order)));
        word = 0;
    }

    /** A varint's octets; null if there are more than `max`. */
    private static Text varint(long value, int max) {
        byte[] octets = new byte[10];
        long rest = value;
        for (int at = 0; at < max && at < octets.length; at++) {
            octets[at] = (byte) (rest & 0x7f);
            rest >>>= 7;
            if (rest == 0)
                return new Text(octets, 0, at + 1);
            octets[at] |= (byte) 0x80;
        }
        return null;
    }

    public void putVarint(long value, int max) {
        Text text = value < 0 ? null : varint(value, max);
        if (text == null)
            refuse(Reason.BAD_NUMBER);
        else
            put(text);
    }

    /** The escape that a value needs; null if none. */
    private Escape needed(long value, Escape[] escapes) {
        if (escapes.length == 0 || value < escapes[0].value())
            return null;
        for (Escape escape : escapes)
            if (value >= escape.add()
                    && !Numbers.reaches(value - escape.add(), 8 * escape.octets()))
                return escape;
        refuse(Reason.BAD_NUMBER);
        return null;
    }

    public void putExtension(long value, Escape[] escapes) {
        Escape needed = needed(value, escapes);
        if (needed != null)
            put(Text.of(Numbers.octets(value - needed.add(), needed.octets(), Order.BIG)));
    }

    public long escape(long value, Escape[] escapes) {
        Escape needed = needed(value, escapes);
        return needed != null ? needed.value() : value;
    }

    public long difference(long one, long other) {
        if (one < other) {
            refuse(Reason.BAD_NUMBER);
            return 0;
        }
        return Numbers.subtract(one, other);
    }

    public Text decimal(long value) {
        return Text.of(Long.toString(value));
    }

    public Text uint(long value) {
        int octets = (Long.SIZE - Long.numberOfLeadingZeros(value) + 7) / 8;
        return Text.of(Numbers.octets(value, octets, Order.BIG));
    }

    /* ---- What depends on what was written ---- */

    public int mark() {
        return out.length();
    }

    /** Refuses more octets than these since the mark. */
    public void putBound(int mark, long max) {
        if (reason == Reason.SOUND && out.length() - mark > max)
            refuse(Reason.BAD_LENGTH);
    }

    /** Puts a length before what was written since the mark; 0 octets are a varint. */
    public void putLength(int mark, int octets, Order order, long more, long max) {
        if (reason != Reason.SOUND)
            return;
        int length = out.length() - mark;
        if (length > max) {
            refuse(Reason.BAD_LENGTH);
            return;
        }
        long told = length + more;
        if (octets > 0 && Numbers.reaches(told, 8 * octets)) {
            refuse(Reason.BAD_NUMBER);
            return;
        }
        Text head = octets > 0 ? Text.of(Numbers.octets(told, octets, order)) : varint(told, 4);
        if (head == null || out.grow(head.length) < 0) {
            refuse(head == null ? Reason.BAD_NUMBER : Reason.NO_MEMORY);
            return;
        }
        int at = out.begin + mark;
        System.arraycopy(out.block, at, out.block, at + head.length, length);
        System.arraycopy(head.in, head.from, out.block, at, head.length);
    }

    public void putCheck(int mark, Check by) {
        if (reason == Reason.SOUND) {
            Text body = out.text().behind(mark);
            put(Text.of(by.wire(by.add(by.begin, body.in, body.from, body.length))));
        }
    }

    /* ---- Streams ---- */

    private void putStream(Slot slot, StreamWriter writer) {
        if (reason != Reason.SOUND)
            return;
        stream = writer;
        streaming = slot.set && slot.passing;
        if (streaming)
            return;
        refuse(writer.write(slot.text(), out));
        if (reason == Reason.SOUND)
            refuse(writer.finish(out));
    }

    public void putLines(Slot slot, Text terminator, Text stuffing) {
        putStream(slot, new StreamWriter(Framing.LINES, 0, terminator, stuffing));
    }

    public void putChunked(Slot slot) {
        putStream(slot, new StreamWriter(Framing.CHUNKED, 0, Text.NONE, Text.NONE));
    }

    public void putCounted(Slot slot, Slot length) {
        if (!length.set || length.number < 0)
            refuse(Reason.NO_LENGTH);
        else
            putStream(slot,
                new StreamWriter(Framing.COUNTED, length.number, Text.NONE, Text.NONE));
    }

    public void putUntilClose(Slot slot) {
        putStream(slot, new StreamWriter(Framing.UNTIL_CLOSE, 0, Text.NONE, Text.NONE));
    }

    public void putNothing(Slot slot) {
        putStream(slot, new StreamWriter(Framing.NOTHING, 0, Text.NONE, Text.NONE));
    }
}
