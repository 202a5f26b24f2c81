package gatewright.runtime;

import java.net.InetSocketAddress;

/** Something that is to be done by whoever has the sockets. */
public record Output(Kind kind, long id, int role, InetSocketAddress address, byte[] octets,
        String name, boolean reset) {
    /** What is to be done. */
    public enum Kind {
        /** Connect over TCP to the address; then `connected` or `connectFailed`. */
        CONNECT,
        /** Write: `unsent` was empty and is not any more. */
        WRITE,
        /** Read: `room` was 0 and is not any more. */
        READ,
        /** Everything is sent; end the sending side and read on. */
        SHUTDOWN,
        /** The id is over; reset the connection or close it. */
        CLOSE,
        /** Send a datagram from the role's socket to the address. */
        DATAGRAM,
        /** Resolve the name, with the port in the address; then `resolved`. */
        RESOLVE
    }

    static Output of(Kind kind, long id) {
        return new Output(kind, id, 0, null, null, null, false);
    }

    static Output connect(long id, int role, InetSocketAddress to) {
        return new Output(Kind.CONNECT, id, role, to, null, null, false);
    }

    static Output close(long id, boolean reset) {
        return new Output(Kind.CLOSE, id, 0, null, null, null, reset);
    }

    static Output datagram(int role, InetSocketAddress to, byte[] octets) {
        return new Output(Kind.DATAGRAM, 0, role, to, octets, null, false);
    }

    static Output resolve(long id, Target target) {
        return new Output(Kind.RESOLVE, id, 0, target.address(), null, target.name(), false);
    }
}
