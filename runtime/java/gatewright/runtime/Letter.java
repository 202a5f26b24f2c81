package gatewright.runtime;

/** A message that is to be written, with the stream that it ends with. */
final class Letter {
    /** Who is told that it was written. */
    enum Told { NOBODY, ANSWER, SENT }

    final Octets octets;
    boolean streams;
    StreamWriter writer;
    /** The message that the stream comes from. */
    long from;
    Told told = Told.NOBODY;
    long task;

    Letter(Pool pool) {
        octets = new Octets(pool);
    }

    static void free(Letter letter) {
        if (letter != null)
            letter.octets.free();
    }
}
