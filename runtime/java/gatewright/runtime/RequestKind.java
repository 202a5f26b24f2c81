package gatewright.runtime;

/** A kind of request, the slots that its dispatch waits for, and the dispatch. */
public record RequestKind(Message view, int[] waits, Dispatch dispatch) {
    /** Finds what becomes of a request. */
    @FunctionalInterface
    public interface Dispatch {
        void dispatch(Machine m, Incoming request, View view);
    }
}
