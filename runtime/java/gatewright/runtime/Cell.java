package gatewright.runtime;

/** One value of a list's row: a number, or octets that nobody changes. */
record Cell(long number, byte[] octets) {
    private static final byte[] NOTHING = {};

    static Cell of(long number) {
        return new Cell(number, NOTHING);
    }

    static Cell of(Text text) {
        return new Cell(0, text.copy());
    }
}
