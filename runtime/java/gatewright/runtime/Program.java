package gatewright.runtime;

/** A program, with what is said when it is started; without sessions the session is null. */
public record Program(String name, Role[] roles, Handler[] handlers, SessionKind session,
        Slot[] parameters) {
    /**
     * Whether one loop runs the whole program: what its handlers share by a key is in one place,
     * and what only the clock starts is started once.
     */
    boolean isOfOneLoop() {
        boolean served = false;
        for (Role role : roles)
            served |= !role.client;
        return session != null && !session.byConnection() || !served;
    }
}
