package gatewright.runtime;

import java.util.function.Supplier;

/** A message of a program: what it holds, and how a view of it is made. */
public final class Message {
    final String name;
    final Field[] fields;
    final Supplier<View> maker;
    boolean datagram;
    boolean lines;
    long windowMax;
    /** Of each step of its reader; empty if nobody asks. */
    String tooLong = "";

    /** A message of a stream with these fields. */
    public Message(String name, Supplier<View> maker, Field... fields) {
        this.name = name;
        this.maker = maker;
        this.fields = fields;
    }

    /** Fields that are neither read nor written. */
    Message(String name, Field... fields) {
        this.name = name;
        this.fields = fields;
        maker = () -> new Plain(this);
    }

    private static final class Plain extends View {
        Plain(Message about) {
            super(about);
        }
    }

    /** It is a whole datagram. */
    public Message datagram() {
        datagram = true;
        return this;
    }

    /** It is lines: behind a malformed one the next begins at a line's end. */
    public Message lines() {
        lines = true;
        return this;
    }

    /** The longest stretch that its reader must see at once. */
    public Message window(long octets) {
        windowMax = octets;
        return this;
    }

    /** What is too long if a step finds more than it may: a digit each, a {@link TooLong}. */
    public Message tooLong(String ofSteps) {
        tooLong = ofSteps;
        return this;
    }

    /** Its name in the program. */
    public String name() {
        return name;
    }

    /** A view with no slot set. */
    public View view() {
        return maker.get();
    }
}
