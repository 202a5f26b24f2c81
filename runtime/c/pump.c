/* Writing to connections, and streams that pass from one to another. */
#include "inside.h"

struct letter *letter_new(void) { return take_zeroed(sizeof(struct letter)); }

void letter_free(struct letter *letter)
{
    if (letter) {
        gw_octets_free(&letter->octets);
        give(letter, sizeof *letter);
    }
}

bool streams_from(const struct conn *conn, gw_id incoming)
{
    if (conn->streaming && conn->streaming->from == incoming)
        return true;
    for (const struct letter *letter = conn->behind; letter; letter = letter->next)
        if (letter->streams && letter->from == incoming)
            return true;
    return false;
}

static size_t unsent_octets(const struct conn *conn) { return gw_octets_text(&conn->unsent).length; }

/* False if there is no memory; what is unsent is then as it was. */
static bool append(struct gw_machine *m, struct conn *conn, struct gw_octets *octets)
{
    struct gw_text text = gw_octets_text(octets);
    if (!text.length)
        return true;
    if (unsent_octets(conn)) {
        bool room = gw_octets_add(&conn->unsent, text);
        if (!room)
            count(m, GW_COUNT_NO_MEMORY);
        return room;
    }
    if (!output_add(m, &(struct gw_output){.kind = GW_WRITE, .id = conn->id}))
        return false;
    gw_octets_free(&conn->unsent);
    conn->unsent = *octets;
    *octets = (struct gw_octets){0};
    return true;
}

/* A message was written whole. */
static void written(struct gw_machine *m, gw_id conn, enum told told, gw_id task)
{
    if (told == TOLD_ANSWER)
        finish_request(m, conn);
    if (told == TOLD_SENT)
        sent_whole(m, task);
    check_closing(m, conn);
    let_go_if_free(m, conn);
}

void put(struct gw_machine *m, gw_id id, struct letter *letter)
{
    struct conn *conn = conn_of(m, id);
    if (!conn || !letter) {
        letter_free(letter);
        return;
    }
    if (conn->state == CLOSING || conn->state == LINGERING) {
        /* What comes behind the end is for nobody. */
        if (letter->streams)
            discard(m, letter->from);
        letter_free(letter);
        return;
    }
    if (conn->streaming) {
        letter->next = NULL;
        *(conn->behind ? &conn->behind_last->next : &conn->behind) = letter;
        conn->behind_last = letter;
        return;
    }
    if (!append(m, conn, &letter->octets)) {
        /* A part of it must not be taken for the whole: whoever waits for it is told with the end. */
        conn->streaming = letter;
        conn_lose(m, id);
        return;
    }
    gw_octets_free(&letter->octets);
    if (!letter->streams) {
        enum told told = letter->told;
        gw_id task = letter->task;
        letter_free(letter);
        written(m, id, told, task);
        return;
    }
    conn->streaming = letter;
    struct gw_incoming *from = incoming_of(m, letter->from);
    if (from) {
        from->passing = PASSED;
        from->sink = id;
        work_add(m, WORK_READ, from->conn);
    }
}

static void put_next(struct gw_machine *m, gw_id id)
{
    struct conn *conn;
    while ((conn = conn_of(m, id)) && !conn->streaming && conn->behind) {
        struct letter *next = conn->behind;
        conn->behind = next->next;
        next->next = NULL;
        put(m, id, next);
    }
}

/* Writes octets of a stream, and its end. */
static void pass(struct gw_machine *m, gw_id sink, struct gw_octets *octets, bool complete)
{
    struct conn *conn = conn_of(m, sink);
    struct letter *letter = conn ? conn->streaming : NULL;
    if (!letter)
        return;
    bool quiet = !unsent_octets(conn);
    enum gw_reason reason =
        gw_stream_write(&letter->writer, gw_octets_text(octets), &conn->unsent);
    if (reason == GW_SOUND && complete)
        reason = gw_stream_finish(&letter->writer, &conn->unsent);
    if (reason != GW_SOUND)
        count(m, reason == GW_NO_MEMORY ? GW_COUNT_NO_MEMORY : GW_COUNT_UNBUILDABLE);
    bool told = !quiet || !unsent_octets(conn) ||
                output_add(m, &(struct gw_output){.kind = GW_WRITE, .id = sink});
    if (reason != GW_SOUND || !told) {
        conn_lose(m, sink);
        return;
    }
    if (complete) {
        enum told told = letter->told;
        gw_id task = letter->task;
        conn->streaming = NULL;
        letter_free(letter);
        written(m, sink, told, task);
        put_next(m, sink);
    }
}

enum gw_turn pump(struct gw_machine *m, struct conn *conn, struct gw_incoming *incoming)
{
    gw_id conn_id = conn->id, id = incoming->id;
    for (;;) {
        conn = conn_of(m, conn_id);
        incoming = incoming_of(m, id);
        const struct conn *sink = incoming ? conn_of(m, incoming->sink) : NULL;
        if (!conn || !sink || incoming->passing != PASSED || unsent_octets(sink) >= BUFFER_OCTETS)
            return GW_WAIT;
        struct gw_octets passed = {0};
        struct gw_text all = gw_octets_text(&conn->unread), near = all;
        size_t room = BUFFER_OCTETS - unsent_octets(sink), used;
        if (near.length > room)
            near.length = room;
        incoming->reader.hold = false;
        enum gw_turn turn = gw_read(&incoming->reader, incoming->view, near,
                                    conn->ended && near.length == all.length, &passed, &used);
        /* What frames the stream may be longer than the room for what it frames. */
        if (turn == GW_WAIT && !used && near.length < all.length)
            turn = gw_read(&incoming->reader, incoming->view, all, conn->ended, &passed, &used);
        if (turn == GW_FAIL) {
            gw_octets_free(&passed);
            return turn;
        }
        gw_octets_use(&conn->unread, used);
        if (used)
            conn->moved = m->now;
        bool left = gw_octets_text(&conn->unread).length > 0;
        pass(m, incoming->sink, &passed, turn == GW_DONE);
        gw_octets_free(&passed);
        if (turn == GW_DONE || !used || !left)
            return turn;
    }
}

void discard(struct gw_machine *m, gw_id id)
{
    struct gw_incoming *incoming = incoming_of(m, id);
    if (!incoming)
        return;
    bool passed = incoming->passing == PASSED;
    gw_id sink = incoming->sink;
    incoming->passing = DISCARDED;
    work_add(m, WORK_READ, incoming->conn);
    const struct conn *conn = passed ? conn_of(m, sink) : NULL;
    if (conn && streams_from(conn, id))
        conn_lose(m, sink);
}
