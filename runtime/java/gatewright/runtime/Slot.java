package gatewright.runtime;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** A typed place for one recognised field. */
public final class Slot {
    private static final byte[] NOTHING = {};
    private static final Cell[] NO_CELLS = {};
    /** What is asked for where nothing is. */
    static final Slot ABSENT = new Slot(Field.number("", 0, 0));

    final Field field;
    boolean set;
    /** Whether it is set is known: a handler that waits may go on. */
    boolean settled;
    /** A stream whose octets pass by and are not here. */
    boolean passing;
    /** Octets or rows. */
    int length;
    long number;
    byte[] octets = NOTHING;
    Cell[] cells = NO_CELLS;
    /** A message held by a handler, and which one it is. */
    View message;
    long from;

    Slot(Field field) {
        this.field = field;
    }

    /** A parameter of a program, without a value. */
    public static Slot parameter(Field field) {
        Slot parameter = new Slot(field);
        parameter.settled = true;
        return parameter;
    }

    /** The same with a value. */
    public Slot to(long value) {
        setNumber(value);
        return this;
    }

    /** The same with a value. */
    public Slot to(Text value) {
        setOctets(value);
        return this;
    }

    /**
     * Sets a parameter; what is wrong if the value is not within its bounds, without the value, which
     * may be a secret, or null.
     */
    String sets(byte[] value) {
        Bounds bounds = field.bounds();
        if (kind() != Kind.INT) {
            if (value.length > bounds.max())
                return "`" + field.name() + "` has at most " + bounds.max() + " octets, and this has "
                    + value.length;
            setOctets(new Text(value, 0, value.length));
            return null;
        }
        try {
            // Other scripts' digits are taken by the parser, and by no other back end.
            long number = Long.parseLong(new String(value, StandardCharsets.US_ASCII));
            if (number >= bounds.low() && number <= bounds.high()) {
                setNumber(number);
                return null;
            }
        } catch (NumberFormatException none) {
            // It is told below.
        }
        return "`" + field.name() + "` is a number in " + bounds.low() + ".." + bounds.high()
            + ", and this is none";
    }

    Kind kind() {
        return field.bounds().kind();
    }

    /* ---- What it holds; 0 or no octets if it is absent. ---- */

    public boolean isSet() {
        return set;
    }

    public long number() {
        return set && kind() == Kind.INT ? number : 0;
    }

    public long numberOr(long otherwise) {
        return set ? number : otherwise;
    }

    public Text text() {
        return set && !passing ? new Text(octets, 0, length) : Text.NONE;
    }

    public long rows() {
        return set ? length : 0;
    }

    public Text cellText(long row, int column) {
        return Text.of(cell(row, column).octets());
    }

    public long cellNumber(long row, int column) {
        return cell(row, column).number();
    }

    Cell cell(long row, int column) {
        return cells[(int) row * field.columns().length + column];
    }

    /** The message that a handler holds here. */
    public View message() {
        return message;
    }

    /* ---- Patterns; an absent slot is none of them. ---- */

    public boolean isWithin(long low, long high) {
        return set && low <= number && number <= high;
    }

    public boolean isEmpty() {
        return set && !passing && length == 0;
    }

    public boolean hasNone() {
        return rows() == 0;
    }

    public boolean is(Text text) {
        return set && !passing && text().same(text);
    }

    /** The same without regard to ASCII case. */
    public boolean isKey(Text text) {
        return set && new Text(octets, 0, length).sameKey(text);
    }

    /* ---- Filling it. Bounds are not looked at. ---- */

    public void setNumber(long value) {
        number = value;
        set = settled = true;
    }

    /** A number as the slot's bounds allow it: the nearest one. */
    public void compute(long value) {
        long low = field.bounds().low();
        long high = Math.max(field.bounds().high(), low);
        setNumber(Math.max(low, Math.min(value, high)));
    }

    /** Reads digits; false if they are none, or the number is above `high`. */
    public boolean decimalOf(Text of, long high) {
        long value = 0;
        for (int index = 0; index < of.length; index++) {
            int octet = of.at(index);
            if (octet < '0' || octet > '9' || value > (Long.MAX_VALUE - 9) / 10)
                return false;
            value = value * 10 + (octet - '0');
        }
        if (of.length == 0 || value > high)
            return false;
        setNumber(value);
        return true;
    }

    void setOctets(Text text) {
        if (octets.length < text.length)
            octets = new byte[text.length];
        System.arraycopy(text.in, text.from, octets, 0, text.length);
        length = text.length;
        set = settled = true;
        passing = false;
    }

    void setPassing() {
        set = settled = passing = true;
        length = 0;
    }

    void addRow(Cell... row) {
        int columns = field.columns().length;
        int used = length * columns;
        if (cells.length < used + columns)
            cells = Arrays.copyOf(cells, Math.max(used * 2, used + columns));
        System.arraycopy(row, 0, cells, used, columns);
        length++;
        set = true;
    }

    /** Becomes what another one is, if that is set. */
    void copy(Slot other) {
        if (!other.set)
            return;
        switch (other.kind()) {
        case INT:
            setNumber(other.number);
            break;
        case OCTETS:
            setOctets(other.text());
            break;
        case STREAM:
            if (other.passing)
                setPassing();
            else
                setOctets(other.text());
            break;
        case LIST:
            cells = Arrays.copyOf(other.cells, other.length * other.field.columns().length);
            length = other.length;
            set = settled = true;
            break;
        case MESSAGE:
            break;
        }
    }

    public void clear() {
        set = settled = passing = false;
        length = 0;
    }

    /** Whether it holds what its type allows. */
    boolean isSound() {
        if (!field.bounds().allow(kind() == Kind.INT ? number : 0, length))
            return false;
        Bounds[] columns = field.columns();
        for (int at = 0; kind() == Kind.LIST && at < length * columns.length; at++)
            if (!columns[at % columns.length].allow(cells[at].number(), cells[at].octets().length))
                return false;
        return true;
    }
}
