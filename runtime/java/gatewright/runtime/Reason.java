package gatewright.runtime;

/** What is wrong with a message, by whoever sent it; or why one cannot be built. */
public enum Reason {
    SOUND("sound"),
    CUT("cut"),
    BEYOND("beyond"),
    UNEXPECTED("unexpected"),
    TOO_LONG("too-long"),
    TOO_SHORT("too-short"),
    TOO_LARGE("too-large"),
    OUT_OF_BOUNDS("bounds"),
    MISSING("missing"),
    TWICE("twice"),
    NO_NUMBER("no-number"),
    WRONG_CHECK("check"),
    LEFT_OVER("left-over"),
    NO_CASE("no-case"),
    CHUNK_SIZE("chunk-size"),
    CHUNK_END("chunk-end"),
    CHUNK_EXTRA("chunk-extra"),
    BAD_SLOT("slot"),
    BAD_LENGTH("length"),
    BAD_OCTETS("octets"),
    BAD_NUMBER("number"),
    NO_FRAMING("no-framing"),
    STREAM_LENGTH("stream-length"),
    NO_LENGTH("no-length"),
    NO_MEMORY("no-memory");

    private final String word;

    Reason(String word) {
        this.word = word;
    }

    /** The reason in a word. */
    public String word() {
        return word;
    }
}
