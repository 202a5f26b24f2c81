package gatewright.runtime;

import java.util.ArrayList;
import java.util.List;

/** What is remembered between requests, and the connections that belong to it. */
final class Session {
    final long id;
    final View variables;
    final Ids conns = new Ids();
    final Timer timer;
    /** Roles whose connection was lost, a bit each. */
    long lost;
    /** Null for one that no fields find. */
    Common key;
    /** By variable. */
    final List<List<Peers.Peer>> peers = new ArrayList<>();
    int users;
    long used;

    Session(long id, View variables, long now) {
        this.id = id;
        this.variables = variables;
        timer = new Timer(Timer.Kind.SESSION, id);
        used = now;
    }
}
