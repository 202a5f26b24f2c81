package gatewright.runtime;

/** What a client role has seen of its server. */
public record PeerSeen(int role, String address, Seen seen) {
    /** A connection that is ready for requests, the beginning of an answer, or why it is lost. */
    public enum Seen {
        CONNECTED("connected"),
        ANSWERED("answered"),
        /** Its name has no address. */
        UNRESOLVED("unresolved"),
        /** No connection can be made. */
        UNREACHABLE("unreachable"),
        /** It ended a connection in use. */
        CLOSED("closed"),
        /** It did not answer in the time of the program. */
        SILENT("silent"),
        /** The role's `opening` failed. */
        REFUSED("refused");

        private final String word;

        Seen(String word) {
            this.word = word;
        }

        /** Its name. */
        public String word() {
            return word;
        }

        /** Whether the server is regarded as lost. */
        public boolean isLoss() {
            return this != CONNECTED && this != ANSWERED;
        }
    }
}
