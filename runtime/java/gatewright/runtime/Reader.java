package gatewright.runtime;

import java.util.Arrays;

/** Where the reading of one message is: octets, in whatever pieces they arrive, to slots. */
public final class Reader {
    /** The deepest nesting of lines, counted blocks and checks. */
    private static final int REGIONS_MAX = 16;
    /** Loops of one message. */
    private static final int COUNTERS_MAX = 8;
    private static final long UNKNOWN = -1;

    /** Where the message's reader goes on. */
    public int step;

    /** Octets used of the message. */
    long at;
    /** Regions above the whole message. */
    int depth;
    boolean streaming;
    /** The stream is left where it begins. */
    boolean hold;
    /** The octets that failed were to be a line. */
    boolean entering;
    Goal goal = Goal.TO_END;
    int[] goalSlots;
    Reason reason = Reason.SOUND;
    /** Octets of the input that the last call used. */
    int used;

    private final View view;
    /** Nothing follows the input. */
    private boolean last;
    private boolean datagram;
    private boolean checking;
    private Check check;
    private int sum;
    private long word;
    private int[] counts;
    /** Where each region ends, and how many octets of a line's end are behind it. */
    private long[] ends = {UNKNOWN, UNKNOWN, UNKNOWN};
    private byte[] tails = new byte[3];
    /** How deep the region is whose line's ends are blanks; 0 for none. */
    private int folded;
    private StreamReader stream;
    private Octets streamInto;
    /** The input from here on. */
    private byte[] in;
    private int from;
    private int left;
    /** A length that another field gave. */
    private long measured;
    /** Whether the window reaches up to the end of the innermost region. */
    private boolean whole;

    /** Before the first octet of a message. */
    public Reader(View view) {
        this.view = view;
    }

    /**
     * Reads on. The input begins with what was not used last time; `last` says that nothing will
     * follow: the datagram is whole, or the connection ended. Octets of the message's stream are
     * appended to `stream`, or thrown away where that is null.
     */
    public Turn read(Text input, boolean last, Octets stream) {
        long before = at;
        used = 0;
        if (view.about.datagram) {
            if (!last)
                return Turn.WAIT;
            datagram = true;
            ends[0] = at + input.length;
        }
        in = input.in;
        from = input.from;
        left = input.length;
        this.last = last;
        streamInto = stream;
        Turn turn = view.read(this);
        if (turn == Turn.WAIT && last)
            turn = fail(Reason.CUT);
        if (turn == Turn.DONE)
            for (Slot slot : view.slots)
                slot.settled = true;
        used = (int) (at - before);
        in = null;
        streamInto = null;
        return turn;
    }

    /** Octets that the last call used. */
    public int used() {
        return used;
    }

    /** Octets used of the message. */
    public long position() {
        return at;
    }

    /** What of the message was too long, where its reading failed. */
    TooLong tooLong() {
        String ofSteps = view.about.tooLong;
        if (reason == Reason.TOO_LARGE)
            return TooLong.CONTENT;
        boolean told = reason == Reason.TOO_LONG && step < ofSteps.length();
        return told ? TooLong.values()[ofSteps.charAt(step) - '0'] : TooLong.NOTHING;
    }

    /** What is wrong with the message. */
    public Reason reason() {
        return reason;
    }

    void until(int[] slots) {
        goal = Goal.TO_SETTLED;
        goalSlots = slots;
    }

    /** Whether the message is read as far as its goal says. */
    public boolean reached() {
        switch (goal) {
        case TO_BEGIN:
            for (Slot slot : view.slots)
                if (slot.settled && !slot.field.scratch())
                    return true;
            return false;
        case TO_SETTLED:
            for (int slot : goalSlots)
                if (!view.slots[slot].settled)
                    return false;
            return true;
        default:
            return false;
        }
    }

    /* ---- Regions ---- */

    /** How many octets of the input belong to the innermost region. */
    private int window() {
        long end = ends[depth];
        whole = end != UNKNOWN && end - at <= left;
        return whole ? (int) (end - at) : left;
    }

    private int near(long longest) {
        return (int) Math.min(window(), longest);
    }

    private void advance(int length) {
        if (checking)
            sum = check.add(sum, in, from, length);
        at += length;
        from += length;
        left -= length;
    }

    /** Whether so many octets are here; if not, whether they may still come. */
    private Turn need(long octets) {
        if (octets <= window())
            return Turn.NEXT;
        boolean beyond = ends[depth] != UNKNOWN && octets > ends[depth] - at;
        return whole || beyond ? fail(Reason.BEYOND) : Turn.WAIT;
    }

    private Turn enter(long end, int tail) {
        if (depth + 1 >= REGIONS_MAX)
            return fail(Reason.NO_CASE);
        depth++;
        if (depth == ends.length) {
            ends = Arrays.copyOf(ends, REGIONS_MAX);
            tails = Arrays.copyOf(tails, REGIONS_MAX);
        }
        ends[depth] = end;
        tails[depth] = (byte) tail;
        return Turn.NEXT;
    }

    /* ---- Steps. Each completes, uses nothing and waits, or fails. ---- */

    public Turn fail(Reason why) {
        reason = why;
        return Turn.FAIL;
    }

    private boolean inFolded() {
        return folded > 0 && folded == depth;
    }

    private static boolean isBlank(int octet) {
        return octet == ' ' || octet == '\t';
    }

    /** One space for each line's end and the blanks around it (RFC 3261 7.3.1). */
    private static int unfold(byte[] octets, int length) {
        int plain = 0;
        int index = 0;
        while (index < length) {
            byte octet = octets[index++];
            if (octet != '\n') {
                octets[plain++] = octet;
                continue;
            }
            if (plain > 0 && octets[plain - 1] == '\r')
                plain--;
            while (plain > 0 && isBlank(octets[plain - 1]))
                plain--;
            octets[plain++] = ' ';
            while (index < length && isBlank(octets[index]))
                index++;
        }
        return plain;
    }

    /** Octets that a step found: into their slot, and used up with `more` behind them. */
    private Turn found(int length, int more, Fold fold, Slot into) {
        if (into != null) {
            if (length > into.field.bounds().max())
                return fail(Reason.OUT_OF_BOUNDS);
            into.setOctets(new Text(in, from, length));
            if (inFolded())
                into.length = unfold(into.octets, length);
            fold.apply(into.octets, into.length);
        }
        advance(length + more);
        return Turn.NEXT;
    }

    private Turn foundOrAbsent(int length, Fold fold, boolean emptyIsAbsent, Slot into) {
        if (into != null && emptyIsAbsent && length == 0)
            return settle(into);
        return found(length, 0, fold, into);
    }

    private Turn number(long value, Slot into) {
        if (!into.field.bounds().allow(value, 0))
            return fail(Reason.OUT_OF_BOUNDS);
        into.setNumber(value);
        return Turn.NEXT;
    }

    private Turn literal(Text wanted, boolean folded) {
        int here = near(wanted.length);
        for (int index = 0; index < here; index++) {
            int one = in[from + index] & 0xff;
            int other = wanted.at(index);
            if (one != other && !(folded && Text.small(one) == Text.small(other)))
                return fail(Reason.UNEXPECTED);
        }
        Turn turn = need(wanted.length);
        if (turn == Turn.NEXT)
            advance(wanted.length);
        return turn;
    }

    public Turn literal(Text wanted) {
        return literal(wanted, false);
    }

    public Turn literalFolded(Text wanted) {
        return literal(wanted, true);
    }

    public Turn until(Text delimiter, long max, Fold fold, Slot into) {
        long longest = max + delimiter.length;
        int near = near(longest);
        int found = new Text(in, from, near).find(delimiter);
        if (found < 0) {
            if (near == longest)
                return fail(Reason.TOO_LONG);
            return whole ? fail(Reason.BEYOND) : Turn.WAIT;
        }
        return found(found, delimiter.length, fold, into);
    }

    public Turn run(OctetClass of, long min, long max, Fold fold, boolean emptyIsAbsent,
            Slot into) {
        int near = near(max + 1);
        int length = 0;
        boolean folds = of == OctetClass.BLANK && inFolded();
        while (length < near && (of.has(in[from + length] & 0xff)
                || folds && (in[from + length] == '\r' || in[from + length] == '\n')))
            length++;
        if (length > max)
            return fail(Reason.TOO_LONG);
        if (length == near && !whole)
            return Turn.WAIT;
        if (length < min)
            return fail(Reason.TOO_SHORT);
        return foundOrAbsent(length, fold, emptyIsAbsent, into);
    }

    public Turn take(long length, long max, Fold fold, boolean emptyIsAbsent, Slot into) {
        if (length > max)
            return fail(Reason.TOO_LONG);
        Turn turn = need(length);
        return turn == Turn.NEXT ? foundOrAbsent((int) length, fold, emptyIsAbsent, into) : turn;
    }

    /** A length that another field gives, less what it counts before; one that is absent is 0. */
    private Turn measure(Slot length, long less, long max) {
        measured = length.set ? length.number - less : 0;
        if (measured < 0)
            return fail(Reason.OUT_OF_BOUNDS);
        return measured > max ? fail(Reason.TOO_LONG) : Turn.NEXT;
    }

    public Turn takeCounted(Slot length, long max, Fold fold, boolean emptyIsAbsent, Slot into) {
        Turn turn = measure(length, 0, max);
        return turn == Turn.NEXT ? take(measured, max, fold, emptyIsAbsent, into) : turn;
    }

    public Turn takeRest(long max, Fold fold, boolean emptyIsAbsent, Slot into) {
        if (ends[depth] == UNKNOWN)
            return left > max ? fail(Reason.TOO_LONG) : Turn.WAIT;
        return take(ends[depth] - at, max, fold, emptyIsAbsent, into);
    }

    public Turn digits(int radix, long min, long max, Slot into) {
        int near = near(max);
        int count = 0;
        while (count < near && Numbers.digit(in[from + count] & 0xff, radix) >= 0)
            count++;
        if (count == near && near < max && !whole)
            return Turn.WAIT;
        if (count < min)
            return fail(Reason.TOO_SHORT);
        long value = count > 0 ? Numbers.inDigits(in, from, count, radix) : 0;
        if (value < 0)
            return fail(Reason.NO_NUMBER);
        Turn turn = count > 0 ? number(value, into) : settle(into);
        if (turn == Turn.NEXT)
            advance(count);
        return turn;
    }

    public Turn oneOf(Text set, boolean optional, Slot into) {
        int here = window();
        if (here == 0 && !whole)
            return Turn.WAIT;
        if (here > 0 && set.find(in[from]) >= 0)
            return found(1, 0, Fold.KEEP, into);
        return optional ? settle(into) : fail(Reason.UNEXPECTED);
    }

    public Turn word(int octets, Order order) {
        Turn turn = need(octets);
        if (turn == Turn.NEXT)
            word = Numbers.inOrder(in, from, octets, order);
        return turn;
    }

    /** Bits of the word; negative if they are no number of 63 bits. */
    private long bits(int shift, int width) {
        long mask = width > 0 ? -1L >>> 64 - width : 0;
        return word >>> shift & mask;
    }

    public Turn bits(int shift, int width, Slot into) {
        long value = bits(shift, width);
        return value < 0 ? fail(Reason.OUT_OF_BOUNDS) : number(value, into);
    }

    public Turn bitsAre(int shift, int width, long expected) {
        long value = bits(shift, width);
        if (value < 0)
            return fail(Reason.OUT_OF_BOUNDS);
        return value == expected ? Turn.NEXT : fail(Reason.UNEXPECTED);
    }

    /** The number of a field in two's complement: the bit of its sign counts negative. */
    private long signed(int shift, int width) {
        int above = Long.SIZE - width;
        return word >>> shift << above >> above;
    }

    public Turn signedBits(int shift, int width, Slot into) {
        return number(signed(shift, width), into);
    }

    public Turn signedBitsAre(int shift, int width, long expected) {
        return signed(shift, width) == expected ? Turn.NEXT : fail(Reason.UNEXPECTED);
    }

    public Turn wordEnd(int octets) {
        advance(octets);
        return Turn.NEXT;
    }

    public Turn varint(int max, Slot into) {
        int near = near(max);
        long value = 0;
        for (int index = 0; index < near; index++) {
            int octet = in[from + index];
            value |= (long) (octet & 0x7f) << 7 * index;
            if (octet < 0)
                continue;
            Turn turn = number(value, into);
            if (turn == Turn.NEXT)
                advance(index + 1);
            return turn;
        }
        if (near == max)
            return fail(Reason.TOO_LONG);
        return whole ? fail(Reason.BEYOND) : Turn.WAIT;
    }

    public Turn extend(Slot slot, Escape[] escapes) {
        if (!slot.set)
            return fail(Reason.MISSING);
        for (Escape escape : escapes) {
            if (slot.number != escape.value())
                continue;
            Turn turn = need(escape.octets());
            if (turn != Turn.NEXT)
                return turn;
            long more = Numbers.inOrder(in, from, escape.octets(), Order.BIG);
            turn = number(Numbers.add(more, escape.add()), slot);
            if (turn == Turn.NEXT)
                advance(escape.octets());
            return turn;
        }
        int count = escapes.length;
        boolean reserved = count > 0 && slot.number > escapes[count - 1].value();
        return reserved ? fail(Reason.OUT_OF_BOUNDS) : Turn.NEXT;
    }

    public Turn sum(Slot into, Slot add) {
        return number(Numbers.add(into.number(), add.number()), into);
    }

    public Turn enterLine(long max) {
        int near = near(max);
        entering = true;
        int newline = new Text(in, from, near).find('\n');
        if (newline < 0) {
            if (near == max)
                return fail(Reason.TOO_LONG);
            return whole ? fail(Reason.BEYOND) : Turn.WAIT;
        }
        entering = false;
        boolean crlf = newline > 0 && in[from + newline - 1] == '\r';
        return enter(at + newline - (crlf ? 1 : 0), crlf ? 2 : 1);
    }

    public Turn enterFoldedLine(long max) {
        int here = window();
        int near = near(max);
        int used = 0;
        entering = true;
        while (true) {
            int newline = new Text(in, from + used, near - used).find('\n');
            if (newline < 0) {
                if (near == max)
                    return fail(Reason.TOO_LONG);
                return whole ? fail(Reason.BEYOND) : Turn.WAIT;
            }
            used += newline + 1;
            boolean crlf = used > 1 && in[from + used - 2] == '\r';
            int length = used - (crlf ? 2 : 1);
            if (length > 0 && used == here && !whole && !last)
                return Turn.WAIT;
            if (length > 0 && used < here && isBlank(in[from + used]))
                continue;
            entering = false;
            Turn turn = enter(at + length, crlf ? 2 : 1);
            if (turn == Turn.NEXT)
                folded = depth;
            return turn;
        }
    }

    public Turn enterCounted(Slot length, long less, long max) {
        Turn turn = measure(length, less, max);
        if (turn != Turn.NEXT)
            return turn;
        if (ends[depth] != UNKNOWN && measured > ends[depth] - at)
            return fail(Reason.BEYOND);
        return enter(at + measured, 0);
    }

    public Turn leave() {
        if (depth == 0)
            return fail(Reason.NO_CASE);
        if (ends[depth] != at)
            return fail(Reason.LEFT_OVER);
        if (left < tails[depth])
            return Turn.WAIT;
        if (inFolded())
            folded = 0;
        depth--;
        advance(tails[depth + 1]);
        return Turn.NEXT;
    }

    public Turn beginCheck(Check by) {
        long end = UNKNOWN;
        if (ends[depth] != UNKNOWN) {
            if (ends[depth] - at < by.octets)
                return fail(Reason.BEYOND);
            end = ends[depth] - by.octets;
        }
        Turn turn = enter(end, 0);
        checking = turn == Turn.NEXT;
        check = by;
        sum = by.begin;
        return turn;
    }

    public Turn endCheck(Check by) {
        if (depth == 0 || !checking)
            return fail(Reason.NO_CASE);
        byte[] wanted = by.wire(sum);
        long outer = ends[depth - 1];
        if (outer != UNKNOWN && wanted.length > outer - at)
            return fail(Reason.BEYOND);
        if (left < wanted.length)
            return Turn.WAIT;
        checking = false;
        if (!new Text(in, from, wanted.length).same(Text.of(wanted)))
            return fail(Reason.WRONG_CHECK);
        depth--;
        advance(wanted.length);
        return Turn.NEXT;
    }

    public boolean atEnd() {
        return window() == 0 && whole;
    }

    /** GO if the octets came next and are used; NEXT if they do not come. */
    public Turn peek(Text wanted) {
        Text here = new Text(in, from, near(wanted.length));
        if (here.length == wanted.length) {
            if (!here.same(wanted))
                return Turn.NEXT;
            advance(wanted.length);
            return Turn.GO;
        }
        return !whole && wanted.begins(here) ? Turn.WAIT : Turn.NEXT;
    }

    public Turn count(int counter, long max) {
        if (counter >= COUNTERS_MAX)
            return fail(Reason.NO_CASE);
        if (counts == null)
            counts = new int[COUNTERS_MAX];
        counts[counter]++;
        return counts[counter] > max ? fail(Reason.TOO_LONG) : Turn.NEXT;
    }

    public Turn copy(Slot other, Slot into) {
        if (!other.set)
            return settle(into);
        if (!into.field.bounds().allow(other.number, other.length))
            return fail(Reason.OUT_OF_BOUNDS);
        into.copy(other);
        return Turn.NEXT;
    }

    public Turn given(Slot slot) {
        return slot.set ? Turn.NEXT : fail(Reason.MISSING);
    }

    private Turn append(Slot list, Cell... row) {
        Bounds[] columns = list.field.columns();
        for (int of = 0; of < columns.length; of++)
            if (!columns[of].allow(row[of].number(), row[of].octets().length))
                return fail(Reason.OUT_OF_BOUNDS);
        if (list.length >= list.field.bounds().max())
            return fail(Reason.TOO_LONG);
        list.addRow(row);
        return Turn.NEXT;
    }

    /** Files a table's value: as it is, or converted; `trim` takes blanks off both ends. */
    public Turn file(Slot value, Convert convert, boolean trim, Slot into) {
        if (!value.set)
            return fail(Reason.MISSING);
        Text text = trim ? value.text().withoutBlanks() : value.text();
        boolean length = convert == Convert.AS_LENGTH;
        boolean numeric = length || convert == Convert.AS_DECIMAL || convert == Convert.AS_UINT;
        long number = numeric ? converted(text, convert) : 0;
        // RFC 9110 §8.6: "a recipient MUST anticipate potentially large decimal numerals".
        if (number < 0)
            return fail(length && Numbers.onlyDigits(text) ? Reason.TOO_LARGE : Reason.NO_NUMBER);
        byte[] octets = text.copy();
        Fold fold = convert == Convert.AS_LOWER ? Fold.LOWER
            : convert == Convert.AS_UPPER ? Fold.UPPER : Fold.KEEP;
        fold.apply(octets, octets.length);
        boolean list = into.kind() == Kind.LIST;
        Bounds bounds = list ? into.field.columns()[0] : into.field.bounds();
        boolean fits = bounds.allow(number, octets.length);
        if (!list && into.set)
            return fail(Reason.TWICE);
        if (!fits && !numeric)
            return fail(Reason.TOO_LONG);
        if (!fits && length && number > bounds.high())
            return fail(Reason.TOO_LARGE);
        if (list)
            return append(into, new Cell(number, octets));
        if (!fits)
            return fail(Reason.OUT_OF_BOUNDS);
        // What is filed is not settled: a second one may come.
        boolean settled = into.settled;
        if (numeric)
            into.setNumber(number);
        else
            into.setOctets(Text.of(octets));
        into.settled = settled;
        return Turn.NEXT;
    }

    /** A table's value as a number; -1 if it is none. */
    private static long converted(Text text, Convert convert) {
        if (convert == Convert.AS_DECIMAL || convert == Convert.AS_LENGTH)
            return Numbers.inDigits(text.in, text.from, text.length, 10);
        return text.length < 8 ? Numbers.inOrder(text.in, text.from, text.length, Order.BIG) : -1;
    }

    public Turn append(Slot list, Slot... columns) {
        Cell[] row = new Cell[columns.length];
        for (int of = 0; of < columns.length; of++) {
            if (!columns[of].set)
                return fail(Reason.MISSING);
            boolean number = columns[of].kind() == Kind.INT;
            row[of] = number ? Cell.of(columns[of].number) : Cell.of(columns[of].text());
        }
        return append(list, row);
    }

    public Turn settle(Slot slot) {
        if (!slot.set && slot.field.mandatory())
            return fail(Reason.MISSING);
        slot.settled = true;
        return Turn.NEXT;
    }

    public Turn accept() {
        return datagram && !atEnd() ? fail(Reason.LEFT_OVER) : Turn.DONE;
    }

    /* ---- Streams: one begins under a framing, `stream` passes its octets on. ---- */

    private Turn begin(StreamReader reader, Slot into) {
        into.setPassing();
        stream = reader;
        streaming = true;
        return Turn.NEXT;
    }

    public Turn streamLines(Text terminator, Text stuffing, Slot into) {
        return begin(new StreamReader(Framing.LINES, 0, terminator, stuffing), into);
    }

    public Turn streamChunked(Slot into) {
        return begin(new StreamReader(Framing.CHUNKED, 0, Text.NONE, Text.NONE), into);
    }

    public Turn streamCounted(Slot length, Slot into) {
        if (!length.set)
            return fail(Reason.MISSING);
        if (length.number < 0)
            return fail(Reason.OUT_OF_BOUNDS);
        return begin(new StreamReader(Framing.COUNTED, length.number, Text.NONE, Text.NONE), into);
    }

    public Turn streamUntilClose(Slot into) {
        return begin(new StreamReader(Framing.UNTIL_CLOSE, 0, Text.NONE, Text.NONE), into);
    }

    public Turn streamNothing(Slot into) {
        return begin(new StreamReader(Framing.NOTHING, 0, Text.NONE, Text.NONE), into);
    }

    /** A maximum for the stream that has begun. */
    public Turn streamAtMost(long max) {
        return stream.atMost(max) ? Turn.NEXT : fail(Reason.TOO_LONG);
    }

    public boolean streaming() {
        return streaming;
    }

    public Turn stream() {
        if (hold)
            return Turn.REACHED;
        int here = window();
        boolean end = whole || ends[depth] == UNKNOWN && last;
        Reason wrong = stream.read(new Text(in, from, here), end, streamInto);
        if (wrong != Reason.SOUND)
            return fail(wrong);
        boolean reachedEnd = whole;
        advance(stream.used());
        if (stream.done()) {
            streaming = false;
            return Turn.NEXT;
        }
        return reachedEnd ? fail(Reason.BEYOND) : Turn.WAIT;
    }
}
