package gatewright.runtime;

/** A slot of a request, and the one of its response, that must be equal; also a session's key. */
public record Key(Message view, int request, int response) {
    /** A key of requests only. */
    public Key(Message view, int request) {
        this(view, request, 0);
    }
}
