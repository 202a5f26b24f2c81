package gatewright.runtime;

import java.util.HashMap;

/** What a machine knows of a role. */
final class RoleState {
    final Timer forgetting;
    final Ids kept = new Ids();
    /** Connections that carry the requests of all sessions. */
    final Ids shared = new Ids();
    /** Exchanges over UDP by what their response has. */
    final HashMap<Common, Long> air = new HashMap<>();
    /** What became of requests that may come again, and their ids by age. */
    final HashMap<Common, Long> repeats = new HashMap<>();
    final Queue forget = new Queue();
    Target address;
    int connections;
    int fresh;

    RoleState(int role) {
        forgetting = new Timer(Timer.Kind.REPEATS, role);
    }
}
