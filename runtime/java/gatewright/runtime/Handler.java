package gatewright.runtime;

import java.util.function.Function;

/** A handler: its values, what runs it up to its next wait, and the period of one by the clock. */
public record Handler(String name, Message values, Function<Task, Stop> run, long period) {
    /** One that runs when a message asks for it. */
    public Handler(String name, Message values, Function<Task, Stop> run) {
        this(name, values, run, 0);
    }
}
