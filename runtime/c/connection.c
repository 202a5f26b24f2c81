/* TCP connections: what their owner tells about them, and how they end. */
#include "inside.h"

struct conn *conn_new(struct gw_machine *m, unsigned role, enum conn_state state)
{
    struct conn *conn = take_zeroed(sizeof *conn);
    gw_id id = conn ? thing_add(m, &m->conns, conn) : 0;
    if (!id) {
        give(conn, sizeof *conn);
        count(m, GW_COUNT_NO_MEMORY);
        return NULL;
    }
    conn->id = id;
    conn->role = role;
    conn->about = &m->program->roles[role];
    conn->state = state;
    conn->moved = m->now;
    m->roles[role].connections++;
    return conn;
}

bool conn_is_clean(const struct conn *conn)
{
    return !conn->current && !conn->exchanges.count && !conn->streaming && !conn->behind &&
           !conn->opening && !conn->receiver;
}

gw_id gw_accepted(struct gw_machine *m, gw_time now, unsigned role)
{
    m->now = now;
    count(m, GW_COUNT_ACCEPTED);
    const struct gw_role *about = &m->program->roles[role];
    struct conn *conn = conn_new(m, role, OPEN);
    if (!conn)
        return 0;
    gw_id id = conn->id;
    conn_arm(m, conn);
    if (m->roles[role].connections > about->connections_max) {
        count(m, GW_COUNT_FULL);
        answer_conn(m, id, NULL, about->full);
        close_after_sending(m, id);
    } else if (about->greeting) {
        answer_conn(m, id, NULL, about->greeting);
    }
    settle(m);
    return id;
}

void gw_connected(struct gw_machine *m, gw_time now, gw_id id)
{
    m->now = now;
    struct conn *conn = conn_of(m, id);
    if (conn && conn->state == CONNECTING) {
        conn->state = OPEN;
        conn->moved = now;
        count(m, GW_COUNT_CONNECTED);
        conn_arm(m, conn);
        begin_opening(m, id);
    }
    settle(m);
}

void gw_connect_failed(struct gw_machine *m, gw_time now, gw_id id)
{
    m->now = now;
    const struct conn *conn = conn_of(m, id);
    if (conn && conn->state == CONNECTING) {
        count(m, GW_COUNT_CONNECT_FAILED);
        server_is_lost(m, id, GW_LOST_UNREACHABLE);
        conn_lose(m, id);
    }
    settle(m);
}

void gw_received(struct gw_machine *m, gw_time now, gw_id id, struct gw_text octets)
{
    m->now = now;
    struct conn *conn = conn_of(m, id);
    if (conn && conn->state == OPEN) {
        conn->kept = false;
        if (!gw_octets_add(&conn->unread, octets)) {
            count(m, GW_COUNT_NO_MEMORY);
            conn_lose(m, id);
        }
        work_add(m, WORK_READ, id);
    }
    settle(m);
}

void gw_ended(struct gw_machine *m, gw_time now, gw_id id)
{
    m->now = now;
    struct conn *conn = conn_of(m, id);
    if (conn) {
        conn->ended = true;
        if (conn->state == LINGERING)
            conn_drop(m, id, false);
        else
            work_add(m, WORK_READ, id);
    }
    settle(m);
}

void gw_broken(struct gw_machine *m, gw_time now, gw_id id)
{
    m->now = now;
    if (conn_of(m, id)) {
        count(m, GW_COUNT_BROKEN);
        server_ends(m, id);
        conn_lose(m, id);
    }
    settle(m);
}

void gw_sent(struct gw_machine *m, gw_time now, gw_id id, size_t octets)
{
    m->now = now;
    struct conn *conn = conn_of(m, id);
    if (conn) {
        size_t there = gw_octets_text(&conn->unsent).length;
        gw_octets_use(&conn->unsent, octets < there ? octets : there);
        conn->moved = now;
        if (there - octets < BUFFER_OCTETS) {
            if (conn->streaming) {
                const struct gw_incoming *source = incoming_of(m, conn->streaming->from);
                work_add(m, WORK_READ, source ? source->conn : 0);
            }
            /* A request may have waited for its predecessor's answer to leave. */
            work_add(m, WORK_READ, id);
            if (conn->about->shared)
                serve_waiters(m, id);
        }
        check_closing(m, id);
    }
    settle(m);
}

struct gw_text gw_unsent(struct gw_machine *m, gw_id id)
{
    const struct conn *conn = conn_of(m, id);
    return conn ? gw_octets_text(&conn->unsent) : (struct gw_text){NULL, 0};
}

bool gw_has_more(struct gw_machine *m, gw_id id)
{
    const struct conn *conn = conn_of(m, id);
    const struct letter *letter = conn ? conn->streaming : NULL;
    const struct gw_incoming *from = letter ? incoming_of(m, letter->from) : NULL;
    const struct conn *source = from ? conn_of(m, from->conn) : NULL;
    return source && gw_octets_text(&source->unread).length > 0;
}

size_t gw_room(struct gw_machine *m, gw_id id)
{
    const struct conn *conn = conn_of(m, id);
    if (!conn || conn->state == RESOLVING || conn->state == CONNECTING)
        return 0;
    if (conn->state != OPEN)
        return BUFFER_OCTETS;
    /* What it has sent already is read first. */
    if (conn->waiting)
        return 0;
    size_t unread = gw_octets_text(&conn->unread).length;
    return m->window > unread ? m->window - unread : 0;
}

void conn_arm(struct gw_machine *m, struct conn *conn)
{
    gw_time idle = conn->state == LINGERING ? LINGER : conn->about->idle;
    timer_cancel(m, &conn->timer);
    if (idle)
        timer_set(m, &conn->timer, conn->moved + idle, TIMER_CONN, conn->id);
}

/* Whether a connection is silent because of us: we owe the answer, or wait with our own time. */
static bool is_ours(struct gw_machine *m, const struct conn *conn)
{
    const struct gw_incoming *current = incoming_of(m, conn->current);
    if (current && current->passing == HELD && current->reader.streaming)
        return true;
    if (!conn->about->client)
        return !current && conn->requests && !gw_octets_text(&conn->unsent).length;
    return (!current && conn->exchanges.count) || conn->opening || conn->state != OPEN;
}

void conn_is_silent(struct gw_machine *m, gw_id id)
{
    struct conn *conn = conn_of(m, id);
    if (!conn)
        return;
    bool kept = conn->about->client && !conn->session && conn_is_clean(conn);
    gw_time idle = conn->state == LINGERING            ? LINGER
                   : kept && conn->about->reuse ? conn->about->reuse_idle
                                                : conn->about->idle;
    if (!idle)
        return;
    if (conn->state != LINGERING && conn->state != CLOSING && is_ours(m, conn)) {
        conn->moved = m->now;
        conn_arm(m, conn);
        return;
    }
    if (conn->moved + idle > m->now) {
        timer_set(m, &conn->timer, conn->moved + idle, TIMER_CONN, id);
        return;
    }
    if (conn->state == LINGERING) {
        conn_drop(m, id, false);
        return;
    }
    count(m, GW_COUNT_IDLE);
    conn_drop(m, id, gw_octets_text(&conn->unsent).length > 0);
}

/* ---- The end ---- */

/* A stream cannot be written any more: the rest of it is thrown away. */
static void sink_lost(struct gw_machine *m, const struct letter *letter)
{
    struct gw_incoming *from = letter->streams ? incoming_of(m, letter->from) : NULL;
    if (from) {
        from->passing = DISCARDED;
        work_add(m, WORK_READ, from->conn);
    }
    if (letter->told == TOLD_SENT)
        send_failed(m, letter->task);
}

/* A message will never be read to its end. */
static void source_lost(struct gw_machine *m, gw_id id)
{
    struct gw_incoming *incoming = incoming_of(m, id);
    if (!incoming)
        return;
    const struct conn *sink = incoming->passing == PASSED ? conn_of(m, incoming->sink) : NULL;
    enum purpose purpose = incoming->purpose;
    gw_id task = incoming->task, to = incoming->sink;
    struct gw_incoming *request = incoming->reply ? incoming_of(m, incoming->reply_to) : NULL;
    slab_take(&m->incomings, id);
    if (request && request != incoming)
        incoming_free(m, request);
    if (sink && streams_from(sink, id))
        conn_lose(m, to);
    if (purpose == REQUEST || purpose == HANDLED)
        task_end(m, task);
    else if (purpose == RESPONSE || purpose == RECEIVED)
        message_lost(m, task, id);
    incoming_free(m, incoming);
}

static void unravel_letters(struct gw_machine *m, struct conn *conn)
{
    struct letter *letter = conn->streaming, *behind = conn->behind;
    if (letter)
        sink_lost(m, letter);
    letter_free(letter);
    while (behind) {
        struct letter *next = behind->next;
        sink_lost(m, behind);
        letter_free(behind);
        behind = next;
    }
}

/* Frees what hangs on a connection that is over. It is no connection any more from the start, so
   whatever this sets off cannot end it again. */
static void unravel(struct gw_machine *m, struct conn *conn)
{
    gw_id id = conn->id, other;
    slab_take(&m->conns, id);
    peer_is_gone(m, id);
    timer_cancel(m, &conn->timer);
    query_end(m, conn->query);
    m->roles[conn->role].connections--;
    ids_remove(&m->roles[conn->role].kept, id);
    ids_remove(&m->roles[conn->role].shared, id);
    /* Its handlers first: what is freed for them must not make them begin anew. */
    while ((other = ids_first(&conn->tasks)))
        task_end(m, other);
    mark_lost(m, conn);
    part(m, conn);
    unravel_letters(m, conn);
    if (conn->opening)
        task_end(m, conn->opening);
    if (conn->current)
        source_lost(m, conn->current);
    while ((other = ids_first(&conn->exchanges)))
        exchange_lost(m, other, conn->kept);
    while ((other = ids_first(&conn->waiters)))
        send_failed(m, other);
    if (conn->receiver)
        receive_failed(m, conn->receiver);
    gw_octets_free(&conn->unread);
    gw_octets_free(&conn->unsent);
    if (conn->target)
        give(conn->target, sizeof *conn->target);
    if (!conn->untold)
        give(conn, sizeof *conn);
}

/* An end that nobody is told of keeps a descriptor: if there is no memory, the connection itself
   waits to tell it, and nothing that comes behind it is told before. */
static void tell_end(struct gw_machine *m, struct conn *conn, bool reset)
{
    if (output_add(m, &(struct gw_output){.kind = GW_CLOSE, .id = conn->id, .reset = reset}))
        return;
    conn->untold = true;
    conn->reset = reset;
    *(m->unclosed ? &m->unclosed_last->next : &m->unclosed) = conn;
    m->unclosed_last = conn;
}

void conn_drop(struct gw_machine *m, gw_id id, bool reset)
{
    struct conn *conn = conn_of(m, id);
    if (conn) {
        tell_end(m, conn, reset);
        unravel(m, conn);
    }
}

void conn_lose(struct gw_machine *m, gw_id id)
{
    const struct conn *conn = conn_of(m, id);
    /* Whoever got a part of a stream must not take it for the whole. */
    if (conn)
        conn_drop(m, id, conn->streaming != NULL);
}

/* Ends shared connections that nobody will use any more: those without a request, while no handler
   runs. */
void drop_resting(struct gw_machine *m)
{
    for (unsigned role = 0; role < m->program->roles_count && !m->tasks.used; role++) {
        struct ids *shared = &m->roles[role].shared;
        for (uint32_t at = shared->count; at-- > 0;) {
            const struct conn *conn = conn_of(m, shared->at[at]);
            if (conn && conn_is_clean(conn) && !gw_octets_text(&conn->unsent).length)
                conn_drop(m, conn->id, false);
        }
    }
}

/* Nobody needs a connection any more; what was sent without waiting for an answer still goes. */
static void end_when_sent(struct gw_machine *m, const struct conn *conn)
{
    bool last_words = conn->state == OPEN && gw_octets_text(&conn->unsent).length &&
                      conn_is_clean(conn) && !conn->waiters.count;
    if (last_words)
        close_after_sending(m, conn->id);
    else
        conn_lose(m, conn->id);
}

void let_go(struct gw_machine *m, gw_id id)
{
    leave(m, id);
    struct conn *conn = conn_of(m, id);
    if (!conn)
        return;
    if (!conn->about->reuse) {
        end_when_sent(m, conn);
        return;
    }
    bool fit = conn_is_clean(conn) && !conn->waiters.count && conn->state == OPEN &&
               !conn->ended && !gw_octets_text(&conn->unread).length && !m->draining;
    if (!fit) {
        conn_lose(m, id);
        return;
    }
    conn->releasing = false;
    conn->moved = m->now;
    timer_set(m, &conn->timer, m->now + conn->about->reuse_idle, TIMER_CONN, id);
    struct ids *kept = &m->roles[conn->role].kept;
    ids_add(kept, id);
    if (kept->count > conn->about->reuse_max)
        conn_drop(m, ids_first(kept), false);
}

void let_go_when_free(struct gw_machine *m, gw_id id)
{
    struct conn *conn = conn_of(m, id);
    if (!conn)
        return;
    conn->releasing = true;
    const struct gw_incoming *current = incoming_of(m, conn->current);
    if (current && !current->task)
        discard(m, current->id);
    let_go_if_free(m, id);
}

void let_go_if_free(struct gw_machine *m, gw_id id)
{
    const struct conn *conn = conn_of(m, id);
    if (conn && conn->about->client && conn->releasing && conn_is_clean(conn) &&
        !conn->waiters.count)
        let_go(m, id);
}

void finish_response(struct gw_machine *m, gw_id conn_id, gw_id id)
{
    const struct gw_incoming *incoming = incoming_of(m, id);
    if (!incoming || incoming->purpose != RESPONSE)
        return;
    gw_id exchange = incoming->exchange;
    const struct exchange *of = exchange_of(m, exchange);
    if (of && of->gather)
        return;
    exchange_end(m, exchange);
    struct conn *conn = conn_of(m, conn_id);
    if (!conn)
        return;
    ids_remove(&conn->exchanges, exchange);
    if (conn->hanging)
        conn_drop(m, conn_id, false);
    else if (conn->waiters.count)
        serve_waiters(m, conn_id);
    else if ((conn->about->reuse && conn->about->reuse_each_response) || conn->releasing)
        let_go_when_free(m, conn_id);
}

/* Ends a connection; a response that somebody uses is read to its end first. Nobody answers any
   more what its server asked, however much of that has arrived. */
void hang_up(struct gw_machine *m, gw_id id)
{
    leave(m, id);
    struct conn *conn = conn_of(m, id);
    const struct gw_incoming *current = conn ? incoming_of(m, conn->current) : NULL;
    if (current && current->purpose == RESPONSE && (current->task || current->passing == PASSED))
        conn->hanging = true;
    else if (conn)
        end_when_sent(m, conn);
}

void close_after_sending(struct gw_machine *m, gw_id id)
{
    struct conn *conn = conn_of(m, id);
    if (conn && conn->state == OPEN) {
        conn->state = CLOSING;
        conn->moved = m->now;
        conn_arm(m, conn);
        work_add(m, WORK_READ, id);
    }
    check_closing(m, id);
}

void check_closing(struct gw_machine *m, gw_id id)
{
    struct conn *conn = conn_of(m, id);
    if (!conn || conn->state != CLOSING || gw_octets_text(&conn->unsent).length ||
        conn->streaming || conn->behind)
        return;
    if (conn->ended) {
        conn_drop(m, id, false);
        return;
    }
    conn->state = LINGERING;
    conn->moved = m->now;
    output_add(m, &(struct gw_output){.kind = GW_SHUTDOWN, .id = id});
    conn_arm(m, conn);
    gw_id task;
    while ((conn = conn_of(m, id)) && (task = ids_first(&conn->tasks)))
        task_end(m, task);
    leave(m, id);
}
