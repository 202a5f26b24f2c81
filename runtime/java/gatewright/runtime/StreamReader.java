package gatewright.runtime;

/** A stream that is being read, in the framings of RFC 5321 §4.5.2 and RFC 9112 §7.1. */
final class StreamReader {
    /** Octets of chunk extensions and trailers of one stream. */
    static final int CHUNK_EXTRA_MAX = 8192;
    /** The most digits of a chunk's size: what a 64-bit number has. */
    private static final int CHUNK_DIGITS_MAX = 16;

    static final Text CRLF = Text.of("\r\n");

    private enum State { AT_START, WITHIN, AT_SIZE, IN_CHUNK, IN_TRAILER }

    private final Framing framing;
    private final Text terminator;
    private final Text stuffing;
    private State state;
    /** Octets that are missing, an unsigned number. */
    private long missing;
    /** Octets that the stream may still have. */
    private long room = Long.MAX_VALUE;
    /** Octets of extensions and trailers so far. */
    private int extra;
    /** The last octet of a line, and whether the line before ended with a lone LF. */
    private int before;
    private boolean torn;

    private Text rest = Text.NONE;
    private int used;
    private boolean done;
    private Reason reason = Reason.SOUND;

    StreamReader(Framing framing, long missing, Text terminator, Text stuffing) {
        this.framing = framing;
        this.missing = missing;
        this.terminator = terminator;
        this.stuffing = stuffing;
        state = framing == Framing.CHUNKED ? State.AT_SIZE : State.AT_START;
    }

    /** Sets the maximum of its octets; false if it is known to have more. */
    boolean atMost(long max) {
        room = max;
        return framing != Framing.COUNTED || missing <= max;
    }

    int used() {
        return used;
    }

    boolean done() {
        return done;
    }

    /** Passes octets on; what is wrong, if anything is. */
    Reason read(Text input, boolean last, Octets into) {
        rest = input;
        done = false;
        reason = Reason.SOUND;
        switch (framing) {
        case NOTHING:
            done = true;
            break;
        case UNTIL_CLOSE:
            pass(into, rest.length);
            done = last;
            break;
        case COUNTED:
            readCounted(into);
            done = missing == 0;
            break;
        case LINES:
            readLines(into);
            break;
        case CHUNKED:
            readChunks(into);
            break;
        }
        used = input.length - rest.length;
        rest = Text.NONE;
        return reason;
    }

    private boolean pass(Octets into, int length) {
        int fits = (int) Math.min(length, room);
        room -= fits;
        if (into != null && !into.add(rest.in, rest.from, fits))
            reason = Reason.NO_MEMORY;
        else if (fits < length)
            reason = Reason.TOO_LONG;
        rest = rest.behind(length);
        return reason == Reason.SOUND;
    }

    private void readCounted(Octets into) {
        boolean fewer = Long.compareUnsigned(missing, rest.length) < 0;
        int length = fewer ? (int) missing : rest.length;
        pass(into, length);
        missing -= length;
    }

    /** The beginning of a line: its end or its stuffing; false if more octets are needed to tell. */
    private boolean readLineBegin() {
        // Behind a lone LF no line is the last one: who smuggles a message behind it would end this
        // one for the next server only.
        if (!torn && rest.begins(terminator)) {
            Text end = rest.behind(terminator.length);
            if (end.begins(CRLF)) {
                rest = end.behind(CRLF.length);
                done = true;
                return false;
            }
            if (CRLF.begins(end))
                return false;
        } else if (!torn && terminator.begins(rest)) {
            return false;
        }
        if (rest.begins(stuffing))
            rest = rest.behind(stuffing.length);
        else if (stuffing.begins(rest))
            return false;
        state = State.WITHIN;
        return true;
    }

    private void readLines(Octets into) {
        for (;;) {
            if (state == State.AT_START && !readLineBegin())
                return;
            int newline = rest.find('\n');
            int length = newline < 0 ? rest.length : newline + 1;
            int last = length > 1 ? rest.at(length - 2) : before;
            if (length > 0)
                before = rest.at(length - 1);
            if (!pass(into, length) || newline < 0)
                return;
            torn = last != '\r';
            state = State.AT_START;
        }
    }

    /** The next line of at most `max` octets; null if it is not whole, or too long. */
    private Text readLine(int max) {
        Text near = rest.first(max + CRLF.length);
        int end = near.find(CRLF);
        if (end < 0) {
            if (near.length == max + CRLF.length)
                reason = Reason.CHUNK_EXTRA;
            return null;
        }
        rest = rest.behind(end + CRLF.length);
        return near.part(0, end);
    }

    private void readChunkSize() {
        Text line = readLine(CHUNK_EXTRA_MAX - extra + CHUNK_DIGITS_MAX);
        if (line == null)
            return;
        int digits = 0;
        long size = 0;
        for (; digits < line.length && Numbers.digit(line.at(digits), 16) >= 0; digits++)
            size = size << 4 | Numbers.digit(line.at(digits), 16);
        int next = digits < line.length ? line.at(digits) : ' ';
        boolean sound = next == ';' || next == ' ' || next == '\t';
        if (digits == 0 || digits > CHUNK_DIGITS_MAX || !sound) {
            reason = Reason.CHUNK_SIZE;
            return;
        }
        extra += line.length - digits;
        if (extra > CHUNK_EXTRA_MAX) {
            reason = Reason.CHUNK_EXTRA;
            return;
        }
        missing = size;
        state = size != 0 ? State.IN_CHUNK : State.IN_TRAILER;
    }

    private void readChunk(Octets into) {
        if (missing != 0) {
            readCounted(into);
            return;
        }
        if (!rest.begins(CRLF)) {
            boolean strange = rest.length >= CRLF.length || !CRLF.begins(rest);
            reason = strange ? Reason.CHUNK_END : Reason.SOUND;
            return;
        }
        rest = rest.behind(CRLF.length);
        state = State.AT_SIZE;
    }

    private void readTrailer() {
        Text line = readLine(CHUNK_EXTRA_MAX - extra);
        if (line != null) {
            extra += line.length;
            done = line.length == 0;
        }
    }

    private void readChunks(Octets into) {
        boolean moved = true;
        while (moved && !done && reason == Reason.SOUND) {
            State at = state;
            long left = missing;
            int length = rest.length;
            if (at == State.AT_SIZE)
                readChunkSize();
            else if (at == State.IN_CHUNK)
                readChunk(into);
            else
                readTrailer();
            moved = length != rest.length || left != missing || at != state;
        }
    }
}
