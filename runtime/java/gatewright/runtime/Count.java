package gatewright.runtime;

/** What is counted. */
public enum Count {
    ACCEPTED("accepted"),
    FULL("full"),
    MALFORMED("malformed"),
    UNBUILDABLE("unbuildable"),
    IDLE("idle_closed"),
    BROKEN("broken"),
    CONNECTED("connected"),
    CONNECT_FAILED("connect_failed"),
    REUSED("reused"),
    REPLACED("replaced"),
    NO_ROOM("no_room"),
    LATE("late"),
    RETRANSMITTED("retransmitted"),
    DUPLICATES("duplicates"),
    UNSOLICITED("unsolicited"),
    STRANGERS("strangers"),
    SESSIONS_FULL("sessions_full"),
    UNRESOLVED("unresolved"),
    SKIPPED("every_skipped"),
    UNTOLD("untold"),
    NO_MEMORY("no_memory");

    private final String word;

    Count(String word) {
        this.word = word;
    }

    /** Its name. */
    public String word() {
        return word;
    }
}
