package gatewright.runtime;

/** What came of a reader's step, or of reading. */
public enum Turn {
    /** The step is complete. */
    NEXT,
    /** The reader goes on at another step. */
    GO,
    /** More octets are needed. */
    WAIT,
    /** The message is malformed. */
    FAIL,
    /** The message is complete. */
    DONE,
    /** It is read as far as somebody waits for. */
    REACHED
}
