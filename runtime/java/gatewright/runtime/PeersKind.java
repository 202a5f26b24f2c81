package gatewright.runtime;

/**
 * A variable of sessions that stores peers: in a `list`, or else another one takes the place of the
 * first. What is kept of a request is where its `keys` say. By its `mark`, if there is one, a
 * request is about what was sent.
 */
public record PeersKind(String name, int role, int max, boolean list, Message kept, Key[] keys,
        Key mark) {
    /** What is kept is described by its fields. */
    public PeersKind(String name, int role, int max, boolean list, Field[] kept, Key[] keys,
            Key mark) {
        this(name, role, max, list, new Message(name, kept), keys, mark);
    }
}
