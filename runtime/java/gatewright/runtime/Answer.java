package gatewright.runtime;

import java.util.function.Predicate;

/**
 * An answer without a handler: nothing, a message, the end of the connection, or both. What builds
 * the message is null where there is none.
 */
public record Answer(Predicate<Build> build, boolean close) {
    static final Answer NOTHING = new Answer(null, false);
}
