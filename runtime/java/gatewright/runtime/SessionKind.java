package gatewright.runtime;

/**
 * A program's sessions. Their key is fields of the request, or a value that the program gives, or,
 * where there are no `keys` either, the connection of the role.
 */
public record SessionKind(int role, Key[] keys, boolean byValue, PeersKind[] peers,
        Message variables, int sessionsMax, long idle) {
    /** Whether the connection is the key. */
    boolean byConnection() {
        return keys == null && !byValue;
    }
}
