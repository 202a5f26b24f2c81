/* Streams: bodies that pass by, in the framings of RFC 5321 §4.5.2 and RFC 9112 §7.1. */
#include "gw_message.h"

#include <string.h>

/* The most digits of a chunk's size: what a 64-bit number has. */
enum { CHUNK_DIGITS_MAX = 16 };

/* What came of one look at a stream. */
struct look {
    struct gw_text rest; /* what was not used */
    uint64_t room; /* octets that the stream may still have */
    bool done;
    enum gw_reason reason;
};

static const struct gw_text CRLF = {(const uint8_t *)"\r\n", 2};

static bool begins(struct gw_text text, struct gw_text with)
{
    return text.length >= with.length && (!with.length || !memcmp(text.at, with.at, with.length));
}

static struct gw_text behind(struct gw_text text, size_t length)
{
    return (struct gw_text){length ? text.at + length : text.at, text.length - length};
}

/* Where the next CRLF is; the length if nowhere. */
static size_t line_end(struct gw_text text)
{
    size_t at = 0;
    while (at < text.length) {
        const uint8_t *newline = memchr(text.at + at, '\n', text.length - at);
        if (!newline)
            break;
        size_t found = (size_t)(newline - text.at);
        if (found && text.at[found - 1] == '\r')
            return found - 1;
        at = found + 1;
    }
    return text.length;
}

static bool pass(struct gw_octets *into, struct look *look, size_t length)
{
    struct gw_text text = {look->rest.at, length < look->room ? length : (size_t)look->room};
    look->room -= text.length;
    if (into && !gw_octets_add(into, text))
        look->reason = GW_NO_MEMORY;
    else if (text.length < length)
        look->reason = GW_TOO_LONG;
    look->rest = behind(look->rest, length);
    return look->reason == GW_SOUND;
}

static void read_counted(struct gw_stream_reader *s, struct look *look, struct gw_octets *into)
{
    size_t length = s->left < look->rest.length ? (size_t)s->left : look->rest.length;
    pass(into, look, length);
    s->left -= length;
    look->done = s->left == 0;
}

/* The beginning of a line: its end or its stuffing; false if more octets are needed to tell. */
static bool read_line_begin(struct gw_stream_reader *s, struct look *look)
{
    struct gw_text rest = look->rest;
    /* Behind a lone LF no line is the last one: who smuggles a message behind it would end this one
       for the next server only. */
    if (!s->torn && begins(rest, s->terminator)) {
        struct gw_text end = behind(rest, s->terminator.length);
        if (begins(end, CRLF)) {
            look->rest = behind(end, CRLF.length);
            look->done = true;
            return false;
        }
        if (begins(CRLF, end))
            return false;
    } else if (!s->torn && begins(s->terminator, rest)) {
        return false;
    }
    if (begins(rest, s->stuffing))
        look->rest = behind(rest, s->stuffing.length);
    else if (begins(s->stuffing, rest))
        return false;
    s->state = GW_WITHIN;
    return true;
}

static void read_lines(struct gw_stream_reader *s, struct look *look, struct gw_octets *into)
{
    for (;;) {
        if (s->state == GW_AT_START && !read_line_begin(s, look))
            return;
        struct gw_text rest = look->rest;
        const uint8_t *newline = rest.length ? memchr(rest.at, '\n', rest.length) : NULL;
        size_t length = newline ? (size_t)(newline - rest.at) + 1 : rest.length;
        uint8_t before = length > 1 ? rest.at[length - 2] : s->before;
        if (length)
            s->before = rest.at[length - 1];
        if (!pass(into, look, length) || !newline)
            return;
        s->torn = before != '\r';
        s->state = GW_AT_START;
    }
}

/* The next line of at most `max` octets; false if it is not whole, or too long. */
static bool read_line(struct look *look, size_t max, struct gw_text *line)
{
    struct gw_text near = look->rest;
    if (near.length > max + CRLF.length)
        near.length = max + CRLF.length;
    size_t end = line_end(near);
    if (end == near.length) {
        if (near.length == max + CRLF.length)
            look->reason = GW_CHUNK_EXTRA;
        return false;
    }
    *line = (struct gw_text){near.at, end};
    look->rest = behind(look->rest, end + CRLF.length);
    return true;
}

static int hex(uint8_t octet)
{
    if (octet >= '0' && octet <= '9')
        return octet - '0';
    if (octet >= 'a' && octet <= 'f')
        return octet - 'a' + 10;
    return octet >= 'A' && octet <= 'F' ? octet - 'A' + 10 : -1;
}

static void read_chunk_size(struct gw_stream_reader *s, struct look *look)
{
    struct gw_text line;
    if (!read_line(look, GW_CHUNK_EXTRA_MAX - s->extra + CHUNK_DIGITS_MAX, &line))
        return;
    size_t digits = 0;
    uint64_t size = 0;
    for (; digits < line.length && hex(line.at[digits]) >= 0; digits++)
        size = size << 4 | (uint64_t)hex(line.at[digits]);
    uint8_t next = digits < line.length ? line.at[digits] : ' ';
    bool sound = next == ';' || next == ' ' || next == '\t';
    if (!digits || digits > CHUNK_DIGITS_MAX || !sound) {
        look->reason = GW_CHUNK_SIZE;
        return;
    }
    s->extra += (uint32_t)(line.length - digits);
    if (s->extra > GW_CHUNK_EXTRA_MAX) {
        look->reason = GW_CHUNK_EXTRA;
        return;
    }
    s->left = size;
    s->state = size ? GW_IN_CHUNK : GW_IN_TRAILER;
}

static void read_chunk(struct gw_stream_reader *s, struct look *look, struct gw_octets *into)
{
    if (s->left) {
        read_counted(s, look, into);
        look->done = false;
        return;
    }
    if (!begins(look->rest, CRLF)) {
        bool strange = look->rest.length >= CRLF.length || !begins(CRLF, look->rest);
        look->reason = strange ? GW_CHUNK_END : GW_SOUND;
        return;
    }
    look->rest = behind(look->rest, CRLF.length);
    s->state = GW_AT_SIZE;
}

static void read_trailer(struct gw_stream_reader *s, struct look *look)
{
    struct gw_text line;
    if (!read_line(look, GW_CHUNK_EXTRA_MAX - s->extra, &line))
        return;
    s->extra += (uint32_t)line.length;
    look->done = !line.length;
}

static void read_chunks(struct gw_stream_reader *s, struct look *look, struct gw_octets *into)
{
    size_t before;
    bool moved = true;
    while (moved && !look->done && look->reason == GW_SOUND) {
        int state = s->state;
        uint64_t left = s->left;
        before = look->rest.length;
        if (state == GW_AT_SIZE)
            read_chunk_size(s, look);
        else if (state == GW_IN_CHUNK)
            read_chunk(s, look, into);
        else
            read_trailer(s, look);
        moved = before != look->rest.length || left != s->left || state != (int)s->state;
    }
}

static void read_any(struct gw_stream_reader *s, struct look *look, bool last,
                     struct gw_octets *into)
{
    switch (s->framing) {
    case GW_NOTHING:
        look->done = true;
        break;
    case GW_UNTIL_CLOSE:
        pass(into, look, look->rest.length);
        look->done = last;
        break;
    case GW_COUNTED:
        read_counted(s, look, into);
        break;
    case GW_LINES:
        read_lines(s, look, into);
        break;
    case GW_CHUNKED:
        read_chunks(s, look, into);
        break;
    }
}

static enum gw_turn begin(struct gw_reader *r, struct gw_stream_reader reader,
                          struct gw_slot *into)
{
    gw_set_passing(into);
    r->stream = reader;
    r->stream.room = UINT64_MAX;
    r->streaming = true;
    return GW_NEXT;
}

enum gw_turn gw_stream_lines(struct gw_reader *r, struct gw_text terminator,
                             struct gw_text stuffing, struct gw_slot *into)
{
    struct gw_stream_reader reader = {
        .framing = GW_LINES, .state = GW_AT_START, .terminator = terminator, .stuffing = stuffing};
    return begin(r, reader, into);
}

enum gw_turn gw_stream_chunked(struct gw_reader *r, struct gw_slot *into)
{
    return begin(r, (struct gw_stream_reader){.framing = GW_CHUNKED, .state = GW_AT_SIZE}, into);
}

enum gw_turn gw_stream_counted(struct gw_reader *r, const struct gw_slot *length,
                               struct gw_slot *into)
{
    if (!length->set)
        return gw_fail(r, GW_MISSING);
    if (length->number < 0)
        return gw_fail(r, GW_OUT_OF_BOUNDS);
    struct gw_stream_reader reader = {.framing = GW_COUNTED, .left = (uint64_t)length->number};
    return begin(r, reader, into);
}

enum gw_turn gw_stream_until_close(struct gw_reader *r, struct gw_slot *into)
{
    return begin(r, (struct gw_stream_reader){.framing = GW_UNTIL_CLOSE}, into);
}

enum gw_turn gw_stream_nothing(struct gw_reader *r, struct gw_slot *into)
{
    return begin(r, (struct gw_stream_reader){.framing = GW_NOTHING}, into);
}

/* A maximum for the stream that has begun. */
enum gw_turn gw_stream_at_most(struct gw_reader *r, int64_t max)
{
    r->stream.room = (uint64_t)max;
    bool over = r->stream.framing == GW_COUNTED && r->stream.left > r->stream.room;
    return over ? gw_fail(r, GW_TOO_LONG) : GW_NEXT;
}

enum gw_turn gw_stream(struct gw_reader *r)
{
    if (r->hold)
        return GW_REACHED;
    const struct gw_region *region = &r->regions[r->depth];
    struct gw_text input = r->input;
    bool whole = region->known && region->end - r->at <= input.length;
    if (whole)
        input.length = (size_t)(region->end - r->at);
    struct look look = {.rest = input, .room = r->stream.room};
    read_any(&r->stream, &look, whole || (!region->known && r->last), r->stream_into);
    r->stream.room = look.room;
    if (look.reason != GW_SOUND)
        return gw_fail(r, look.reason);
    size_t used = input.length - look.rest.length;
    if (r->checking)
        r->sum = gw_check_add(r->check, r->sum, (struct gw_text){input.at, used});
    r->at += used;
    r->input = behind(r->input, used);
    if (look.done) {
        r->streaming = false;
        return GW_NEXT;
    }
    return whole ? gw_fail(r, GW_BEYOND) : GW_WAIT;
}

/* ---- Writing ---- */

/* What was held back of a line's beginning. */
static bool flush(struct gw_stream_writer *s, struct gw_octets *out)
{
    struct gw_text held = {s->stuffing.at, s->known ? 0 : s->matched};
    s->known = true;
    s->matched = 0;
    return gw_octets_add(out, held);
}

/* One octet of a line's beginning: stuffed as soon as it is known to need it, or not to. */
static bool write_begin(struct gw_stream_writer *s, uint8_t octet, struct gw_octets *out)
{
    struct gw_text one = {&octet, 1};
    if (s->matched < s->stuffing.length && octet == s->stuffing.at[s->matched]) {
        if (++s->matched < s->stuffing.length)
            return true;
        return gw_octets_add(out, s->stuffing) && flush(s, out);
    }
    return flush(s, out) && gw_octets_add(out, one);
}

static bool write_lines(struct gw_stream_writer *s, struct gw_text text, struct gw_octets *out)
{
    bool sound = true;
    while (text.length && sound) {
        size_t length = 1;
        if (s->known) {
            const uint8_t *newline = memchr(text.at, '\n', text.length);
            length = newline ? (size_t)(newline - text.at) + 1 : text.length;
            sound = gw_octets_add(out, (struct gw_text){text.at, length});
        } else {
            sound = write_begin(s, text.at[0], out);
        }
        s->tail[0] = length > 1 ? text.at[length - 2] : s->tail[1];
        s->tail[1] = text.at[length - 1];
        if (s->tail[1] == '\n') {
            sound = sound && flush(s, out);
            s->known = false;
        }
        text = behind(text, length);
    }
    return sound;
}

static bool write_chunk(struct gw_text octets, struct gw_octets *out)
{
    uint8_t digits[CHUNK_DIGITS_MAX];
    size_t count = 0;
    for (uint64_t left = octets.length; left; left >>= 4)
        digits[sizeof digits - ++count] = (uint8_t)"0123456789abcdef"[left & 15];
    if (!count)
        return true;
    return gw_octets_add(out, (struct gw_text){digits + sizeof digits - count, count}) &&
           gw_octets_add(out, CRLF) && gw_octets_add(out, octets) && gw_octets_add(out, CRLF);
}

enum gw_reason gw_stream_write(struct gw_stream_writer *s, struct gw_text octets,
                               struct gw_octets *out)
{
    bool bounded = s->framing == GW_COUNTED || s->framing == GW_NOTHING;
    if (bounded && octets.length > s->announced - s->written)
        return GW_STREAM_LENGTH;
    s->written += octets.length;
    bool sound = s->framing == GW_LINES     ? write_lines(s, octets, out)
                 : s->framing == GW_CHUNKED ? write_chunk(octets, out)
                                            : gw_octets_add(out, octets);
    return sound ? GW_SOUND : GW_NO_MEMORY;
}

enum gw_reason gw_stream_finish(struct gw_stream_writer *s, struct gw_octets *out)
{
    bool sound = true;
    switch (s->framing) {
    case GW_LINES:
        sound = flush(s, out);
        if (s->written && !(s->tail[0] == '\r' && s->tail[1] == '\n'))
            sound = sound && gw_octets_add(out, CRLF);
        sound = sound && gw_octets_add(out, s->terminator) && gw_octets_add(out, CRLF);
        break;
    case GW_CHUNKED:
        sound = gw_octets_add(out, GW_TEXT("0\r\n\r\n"));
        break;
    case GW_COUNTED:
        if (s->written < s->announced)
            return GW_STREAM_LENGTH;
        break;
    case GW_UNTIL_CLOSE:
    case GW_NOTHING:
        break;
    }
    return sound ? GW_SOUND : GW_NO_MEMORY;
}

static void put_stream(struct gw_writer *w, const struct gw_slot *slot,
                       struct gw_stream_writer stream)
{
    if (w->reason != GW_SOUND)
        return;
    w->stream = stream;
    w->streaming = slot->set && slot->passing;
    if (w->streaming)
        return;
    gw_refuse(w, gw_stream_write(&w->stream, gw_text_of(slot), w->out));
    if (w->reason == GW_SOUND)
        gw_refuse(w, gw_stream_finish(&w->stream, w->out));
}

void gw_put_lines(struct gw_writer *w, const struct gw_slot *slot, struct gw_text terminator,
                  struct gw_text stuffing)
{
    struct gw_stream_writer stream = {
        .framing = GW_LINES, .terminator = terminator, .stuffing = stuffing};
    put_stream(w, slot, stream);
}

void gw_put_chunked(struct gw_writer *w, const struct gw_slot *slot)
{
    put_stream(w, slot, (struct gw_stream_writer){.framing = GW_CHUNKED});
}

void gw_put_counted(struct gw_writer *w, const struct gw_slot *slot, const struct gw_slot *length)
{
    if (!length->set || length->number < 0) {
        gw_refuse(w, GW_NO_LENGTH);
        return;
    }
    struct gw_stream_writer stream = {
        .framing = GW_COUNTED, .announced = (uint64_t)length->number};
    put_stream(w, slot, stream);
}

void gw_put_until_close(struct gw_writer *w, const struct gw_slot *slot)
{
    put_stream(w, slot, (struct gw_stream_writer){.framing = GW_UNTIL_CLOSE});
}

void gw_put_nothing(struct gw_writer *w, const struct gw_slot *slot)
{
    put_stream(w, slot, (struct gw_stream_writer){.framing = GW_NOTHING});
}
