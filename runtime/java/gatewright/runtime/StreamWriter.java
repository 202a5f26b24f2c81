package gatewright.runtime;

/** A stream that is being written. */
public final class StreamWriter {
    private static final Text LAST_CHUNK = Text.of("0\r\n\r\n");

    private final Framing framing;
    private final long announced;
    private final Text terminator;
    private final Text stuffing;
    private long written;
    /** The last two octets. */
    private int before;
    private int latest;
    /** Octets of a line that begin like the stuffing and are held back. */
    private int matched;
    /** Whether the line is stuffed is known. */
    private boolean known;

    StreamWriter(Framing framing, long announced, Text terminator, Text stuffing) {
        this.framing = framing;
        this.announced = announced;
        this.terminator = terminator;
        this.stuffing = stuffing;
    }

    /** Writes octets, framed; SOUND, or why not. */
    public Reason write(Text octets, Octets out) {
        boolean bounded = framing == Framing.COUNTED || framing == Framing.NOTHING;
        if (bounded && octets.length > announced - written)
            return Reason.STREAM_LENGTH;
        written += octets.length;
        boolean sound = framing == Framing.LINES ? writeLines(octets, out)
            : framing == Framing.CHUNKED ? writeChunk(octets, out) : out.add(octets);
        return sound ? Reason.SOUND : Reason.NO_MEMORY;
    }

    /** Writes the end; SOUND, or why not. */
    public Reason finish(Octets out) {
        boolean sound = true;
        switch (framing) {
        case LINES:
            sound = flush(out);
            if (written > 0 && !(before == '\r' && latest == '\n'))
                sound = sound && out.add(StreamReader.CRLF);
            sound = sound && out.add(terminator) && out.add(StreamReader.CRLF);
            break;
        case CHUNKED:
            sound = out.add(LAST_CHUNK);
            break;
        case COUNTED:
            if (written < announced)
                return Reason.STREAM_LENGTH;
            break;
        case UNTIL_CLOSE:
        case NOTHING:
            break;
        }
        return sound ? Reason.SOUND : Reason.NO_MEMORY;
    }

    /** What was held back of a line's beginning. */
    private boolean flush(Octets out) {
        Text held = stuffing.first(known ? 0 : matched);
        known = true;
        matched = 0;
        return out.add(held);
    }

    /** One octet of a line's beginning: stuffed as soon as it is known to need it, or not to. */
    private boolean writeBegin(int octet, Octets out) {
        if (matched < stuffing.length && octet == stuffing.at(matched)) {
            matched++;
            if (matched < stuffing.length)
                return true;
            return out.add(stuffing) && flush(out);
        }
        return flush(out) && out.add(octet);
    }

    private boolean writeLines(Text octets, Octets out) {
        Text text = octets;
        boolean sound = true;
        while (text.length > 0 && sound) {
            int length = 1;
            if (known) {
                int newline = text.find('\n');
                length = newline < 0 ? text.length : newline + 1;
                sound = out.add(text.first(length));
            } else {
                sound = writeBegin(text.at(0), out);
            }
            before = length > 1 ? text.at(length - 2) : latest;
            latest = text.at(length - 1);
            if (latest == '\n') {
                sound = sound && flush(out);
                known = false;
            }
            text = text.behind(length);
        }
        return sound;
    }

    private static boolean writeChunk(Text octets, Octets out) {
        if (octets.length == 0)
            return true;
        return out.add(Text.of(Integer.toHexString(octets.length))) && out.add(StreamReader.CRLF)
            && out.add(octets) && out.add(StreamReader.CRLF);
    }
}
