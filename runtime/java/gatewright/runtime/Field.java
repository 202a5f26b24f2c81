package gatewright.runtime;

/** A slot's description. A well-formed message has a mandatory one; a scratch one is the parser's. */
public record Field(String name, Bounds bounds, boolean mandatory, boolean scratch,
        Bounds[] columns) {
    private static final Bounds[] NO_COLUMNS = {};

    private static Field of(String name, Bounds bounds) {
        return new Field(name, bounds, false, false, NO_COLUMNS);
    }

    /** A number. */
    public static Field number(String name, long low, long high) {
        return of(name, Bounds.number(low, high));
    }

    /** At most so many octets. */
    public static Field octets(String name, long max) {
        return of(name, Bounds.octets(max));
    }

    /** A stream, which passes by. */
    public static Field stream(String name) {
        return of(name, new Bounds(Kind.STREAM, 0, 0, 0));
    }

    /** A list of at most so many rows. */
    public static Field list(String name, long max, Bounds... columns) {
        return new Field(name, new Bounds(Kind.LIST, 0, 0, max), false, false, columns);
    }

    /** A message, held by a handler. */
    public static Field message(String name) {
        return of(name, new Bounds(Kind.MESSAGE, 0, 0, 0));
    }

    /** The same, but no well-formed message is without it. */
    public Field always() {
        return new Field(name, bounds, true, scratch, columns);
    }

    /** The same, but only for the parser. */
    public Field unseen() {
        return new Field(name, bounds, mandatory, true, columns);
    }
}
