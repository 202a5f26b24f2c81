/* Octets of a TCP connection become messages, and messages wake handlers. */
#include "inside.h"

#include <string.h>

struct gw_incoming *incoming_new(struct gw_machine *m, const struct gw_message *message)
{
    struct gw_incoming *incoming = take_zeroed(sizeof *incoming);
    struct gw_view *view = incoming ? gw_view_new(message) : NULL;
    gw_id id = view ? slab_add(&m->incomings, incoming) : 0;
    if (!id) {
        gw_view_free(view);
        give(incoming, sizeof *incoming);
        count(m, GW_COUNT_NO_MEMORY);
        return NULL;
    }
    incoming->id = id;
    incoming->view = incoming->reader.view = view;
    return incoming;
}

void incoming_free(struct gw_machine *m, struct gw_incoming *incoming)
{
    slab_take(&m->incomings, incoming->id);
    gw_view_free(incoming->view);
    gw_octets_free(&incoming->repeat);
    letter_free(incoming->reply);
    give(incoming, sizeof *incoming);
}

void forget_if_unused(struct gw_machine *m, gw_id id)
{
    struct gw_incoming *incoming = incoming_of(m, id);
    if (incoming && !incoming->conn && !incoming->task && !incoming->reply && !incoming->answered)
        incoming_free(m, incoming);
}

/* Throws away what is before the end of the line, and the line's end. */
static void skip_line(struct conn *conn)
{
    struct gw_text unread = gw_octets_text(&conn->unread);
    const uint8_t *end = unread.length ? memchr(unread.at, '\n', unread.length) : NULL;
    gw_octets_use(&conn->unread, end ? (size_t)(end - unread.at) + 1 : unread.length);
    conn->skipping = !end;
}

static struct gw_incoming *begin(struct gw_machine *m, struct conn *conn,
                                 const struct gw_message *message, enum purpose purpose)
{
    struct gw_incoming *incoming = incoming_new(m, message);
    if (!incoming) {
        conn_lose(m, conn->id);
        return NULL;
    }
    conn->moved = m->now;
    conn->begun++;
    incoming->conn = conn->id;
    incoming->role = conn->role;
    incoming->purpose = purpose;
    incoming->reader.goal = GW_TO_BEGIN;
    if (purpose == REQUEST) {
        conn->requests += conn->about->client ? 0 : 1;
        incoming->requester = BY_CONN;
        incoming->answer_to = conn->id;
    }
    conn->current = incoming->id;
    return incoming;
}

static void until_settled(struct gw_incoming *incoming, const uint16_t *slots, uint16_t of)
{
    incoming->reader.goal = GW_TO_SETTLED;
    incoming->reader.goal_slots = slots;
    incoming->reader.goal_count = of;
}

static uint32_t pipelined(const struct gw_machine *m, const struct conn *conn)
{
    const struct gw_session_kind *session = m->program->session;
    bool one = session && session->role == conn->role && !session->keys && !session->by_value;
    return !conn->about->async || one ? 1 : PIPELINED_MAX;
}

static struct gw_incoming *begin_request(struct gw_machine *m, struct conn *conn)
{
    if (!conn->about->requests_count || conn->requests >= pipelined(m, conn) ||
        gw_octets_text(&conn->unsent).length >= BUFFER_OCTETS)
        return NULL;
    const struct gw_request *kind = &conn->about->requests[0];
    struct gw_incoming *incoming = begin(m, conn, kind->view, REQUEST);
    if (incoming)
        until_settled(incoming, kind->waits, kind->waits_count);
    return incoming;
}

static struct gw_incoming *begin_response(struct gw_machine *m, struct conn *conn)
{
    if (conn->opening && !conn->exchanges.count)
        return NULL;
    if (conn->about->async) {
        struct gw_incoming *incoming = begin(m, conn, conn->about->response, UNMATCHED);
        if (incoming)
            until_settled(incoming, conn->about->flow_waits, conn->about->flow_waits_count);
        return incoming;
    }
    if (!conn->exchanges.count) {
        count(m, GW_COUNT_UNSOLICITED);
        conn_lose(m, conn->id);
        return NULL;
    }
    gw_id exchange = conn->exchanges.at[0];
    struct gw_incoming *incoming = begin(m, conn, conn->about->response, RESPONSE);
    if (incoming)
        incoming->exchange = exchange;
    return incoming;
}

/* Whether a connection has begun as many messages as it may in a turn; it then waits for its next
   one behind the others. Without the memory to wait it goes on. */
static bool is_turn_over(struct gw_machine *m, struct conn *conn)
{
    if (conn->begun < TURN_MESSAGES || conn->waiting)
        return conn->waiting;
    conn->waiting = queue_add(&m->turns, &conn->id);
    return conn->waiting;
}

void take_turn(struct gw_machine *m, gw_id id)
{
    struct conn *conn = conn_of(m, id);
    if (!conn)
        return;
    conn->waiting = false;
    conn->begun = 0;
    read_on(m, id);
}

/* Begins the next message if there is an octet of it and somebody to read it. */
static struct gw_incoming *begin_message(struct gw_machine *m, struct conn *conn)
{
    if (!gw_octets_text(&conn->unread).length || conn->skipping || is_turn_over(m, conn))
        return NULL;
    if (conn->receiver) {
        const struct running *task = task_of(m, conn->receiver);
        struct gw_incoming *incoming =
            task ? begin(m, conn, task->task.receives, RECEIVED) : NULL;
        if (incoming)
            incoming->task = conn->receiver;
        return incoming;
    }
    return conn->about->client ? begin_response(m, conn) : begin_request(m, conn);
}

/* A message is read as far as somebody waited for. */
static void reached(struct gw_machine *m, gw_id conn, gw_id id)
{
    const struct gw_incoming *incoming = incoming_of(m, id);
    if (!incoming)
        return;
    if (incoming->purpose == REQUEST)
        dispatch(m, id);
    else if (incoming->purpose == UNMATCHED)
        match_response(m, conn, id);
    else if (incoming->purpose == RESPONSE && !incoming->task)
        response_begun(m, incoming->exchange, id);
    else if (incoming->task)
        message_moved(m, incoming->task, id);
}

/* A message is complete. Whether the next one may begin. */
static bool complete(struct gw_machine *m, gw_id conn_id, gw_id id)
{
    struct conn *conn = conn_of(m, conn_id);
    if (conn) {
        conn->current = 0;
        conn->moved = m->now;
    }
    struct gw_incoming *incoming = incoming_of(m, id);
    if (!incoming)
        return true;
    bool told = incoming->reader.goal == GW_TO_END;
    incoming->reader.goal = GW_TO_END;
    incoming->conn = 0;
    if (!told)
        reached(m, conn_id, id);
    settle_request(m, id);
    finish_response(m, conn_id, id);
    /* Whoever was told may not want it: an answer that comes late, read at once. */
    forget_if_unused(m, id);
    if (!told)
        work_add(m, WORK_READ, conn_id);
    return told;
}

static void malformed(struct gw_machine *m, struct conn *conn, struct gw_incoming *incoming)
{
    bool cut = incoming->reader.reason == GW_CUT;
    bool in_line = incoming->reader.depth || incoming->reader.entering;
    enum purpose purpose = incoming->purpose;
    count(m, cut ? GW_COUNT_BROKEN : GW_COUNT_MALFORMED);
    if (!conn->about->client && !cut && (purpose == REQUEST || purpose == HANDLED))
        refuse_request(m, conn->id, incoming->id, in_line);
    else if (!conn->about->client && !cut && purpose == RECEIVED)
        refuse_received(m, conn->id, incoming->id, in_line);
    else
        conn_lose(m, conn->id);
}

static enum gw_turn read_some(struct gw_machine *m, struct conn *conn,
                              struct gw_incoming *incoming)
{
    struct gw_reader *reader = &incoming->reader;
    if (incoming->passing == PASSED && reader->streaming)
        return pump(m, conn, incoming);
    bool in_stream = reader->streaming;
    size_t used;
    reader->hold = incoming->passing == HELD;
    enum gw_turn turn = gw_read(reader, incoming->view, gw_octets_text(&conn->unread),
                                conn->ended, NULL, &used);
    gw_octets_use(&conn->unread, used);
    /* A head that dribbles is no sign of life: it has the idle time for the whole. */
    if (in_stream && used)
        conn->moved = m->now;
    return turn;
}

/* Reads on in a message. Whether the next one may begin. */
static bool look(struct gw_machine *m, struct conn *conn, struct gw_incoming *incoming)
{
    gw_id conn_id = conn->id, id = incoming->id;
    enum gw_turn turn = read_some(m, conn, incoming);
    conn = conn_of(m, conn_id);
    incoming = incoming_of(m, id);
    if (!conn || !incoming)
        return false;
    if (turn == GW_FAIL)
        malformed(m, conn, incoming);
    if (turn == GW_DONE)
        return complete(m, conn_id, id);
    if (turn != GW_FAIL && gw_reached(&incoming->reader)) {
        /* Whoever waited is told; reading goes on behind them. */
        incoming->reader.goal = GW_TO_END;
        reached(m, conn_id, id);
        work_add(m, WORK_READ, conn_id);
    }
    return false;
}

/* Looks whether room was made, whether the connection is at its end. */
static void after_reading(struct gw_machine *m, gw_id id)
{
    struct conn *conn = conn_of(m, id);
    if (!conn)
        return;
    if (!gw_octets_text(&conn->unread).length)
        conn->begun = 0;
    bool room = gw_room(m, id) > 0;
    if (conn->blocked && room && !output_add(m, &(struct gw_output){.kind = GW_READ, .id = id})) {
        conn_lose(m, id);
        return;
    }
    conn->blocked = !room;
    if (!conn->ended || gw_octets_text(&conn->unread).length || conn->current ||
        conn->state != OPEN)
        return;
    /* Nothing more will come, and nothing is unread or half read. */
    server_ends(m, id);
    if (conn->about->client || conn->receiver)
        conn_lose(m, id);
    else if (!conn->requests)
        close_after_sending(m, id);
}

void read_on(struct gw_machine *m, gw_id id)
{
    struct conn *conn;
    while ((conn = conn_of(m, id))) {
        if (conn->state == CLOSING || conn->state == LINGERING)
            gw_octets_free(&conn->unread);
        if (conn->state != OPEN)
            break;
        if (conn->skipping)
            skip_line(conn);
        struct gw_incoming *incoming = incoming_of(m, conn->current);
        if (!incoming)
            incoming = begin_message(m, conn);
        conn = conn_of(m, id);
        if (!incoming || !conn || !look(m, conn, incoming))
            break;
    }
    after_reading(m, id);
}
