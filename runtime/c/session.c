/* Sessions: what is remembered between requests, and the connections that belong to it. */
#include "inside.h"

static const struct gw_message nothing = {.name = "session", .size = sizeof(struct gw_view)};

static struct session *session_new(struct gw_machine *m)
{
    const struct gw_session_kind *kind = m->program->session;
    struct session *session = take_zeroed(sizeof *session);
    struct gw_view *variables = session ? gw_view_new(kind ? kind->variables : &nothing) : NULL;
    gw_id id = variables && peers_new(m, session) ? thing_add(m, &m->sessions, session) : 0;
    if (!id) {
        if (session)
            peers_free(m, session);
        gw_view_free(variables);
        give(session, sizeof *session);
        count(m, GW_COUNT_NO_MEMORY);
        return NULL;
    }
    session->id = id;
    session->variables = variables;
    session->used = m->now;
    return session;
}

/* Where the session of a handler is told, if it is no keyed one. */
static gw_id *place_of(struct gw_machine *m, struct running *task)
{
    struct conn *conn = task->origin == BY_REQUEST ? conn_of(m, task->conn) : NULL;
    /* What all share is no session's, whatever its server asks over it. */
    if (conn && !conn->about->shared)
        return &conn->session;
    return task->origin == BY_CLOCK ? &m->clocks[task->clock].session : &task->own;
}

struct session *session_of(struct gw_machine *m, struct running *task)
{
    struct session *session = session_at(m, task->keyed);
    if (session)
        return session;
    gw_id *place = place_of(m, task);
    session = session_at(m, *place);
    if (!session && (session = session_new(m)))
        *place = session->id;
    return session;
}

/* The session whose variables a handler sees now, if it began. */
static struct session *seen(struct gw_machine *m, struct running *task)
{
    const struct gw_session_kind *kind = m->program->session;
    if (!kind)
        return NULL;
    if (kind->keys || kind->by_value)
        return session_at(m, task->keyed);
    const struct conn *conn = conn_of(m, task->conn);
    return conn ? session_at(m, conn->session) : NULL;
}

static struct session *changed(struct gw_machine *m, struct running *task)
{
    const struct gw_session_kind *kind = m->program->session;
    return kind && !kind->keys && !kind->by_value ? session_of(m, task) : seen(m, task);
}

static struct running *inside(struct gw_task *t) { return (struct running *)t; }

static const struct gw_field absent_field = {.name = ""};
static const struct gw_slot absent = {.field = &absent_field};

const struct gw_slot *gw_variable(struct gw_task *t, unsigned index)
{
    const struct session *session = seen(t->build.machine, inside(t));
    return session ? gw_view_look(session->variables, index) : &absent;
}

/* There is no memory for a variable's value: it is absent, and the handler fails where it stops
   next. */
static void fail(struct gw_task *t, struct gw_slot *slot)
{
    gw_clear(slot);
    count(t->build.machine, GW_COUNT_NO_MEMORY);
    inside(t)->fails = true;
}

void gw_assign(struct gw_task *t, unsigned index, const struct gw_slot *value)
{
    struct session *session = changed(t->build.machine, inside(t));
    if (!session)
        return;
    struct gw_slot *slot = gw_view_slot(session->variables, index);
    if (slot == value)
        return;
    gw_clear(slot);
    if (!gw_set_copy(session->variables, slot, value))
        fail(t, slot);
}

void gw_assign_number(struct gw_task *t, unsigned index, int64_t value)
{
    struct session *session = changed(t->build.machine, inside(t));
    if (session)
        gw_set_number(gw_view_slot(session->variables, index), value);
}

void gw_assign_text(struct gw_task *t, unsigned index, struct gw_text value)
{
    struct session *session = changed(t->build.machine, inside(t));
    struct gw_slot *slot = session ? gw_view_slot(session->variables, index) : NULL;
    if (slot && !gw_set_octets(session->variables, slot, value))
        fail(t, slot);
}

void gw_forget(struct gw_task *t, unsigned index)
{
    struct session *session = changed(t->build.machine, inside(t));
    if (session)
        gw_clear(gw_view_slot(session->variables, index));
}

static bool add_cell(struct gw_task *t, unsigned index, struct gw_cell cell)
{
    struct session *session = changed(t->build.machine, inside(t));
    struct gw_slot *list = session ? gw_view_slot(session->variables, index) : NULL;
    if (!list || list->length >= list->field->bounds.max)
        return false;
    return gw_add_row(session->variables, list, &cell);
}

bool gw_add_to(struct gw_task *t, unsigned index, const struct gw_slot *value)
{
    if (!value->set)
        return false;
    if (value->field->bounds.kind == GW_INT)
        return gw_add_number_to(t, index, value->number);
    return gw_add_text_to(t, index, gw_text_of(value));
}

bool gw_add_number_to(struct gw_task *t, unsigned index, int64_t value)
{
    return add_cell(t, index, (struct gw_cell){.number = value});
}

bool gw_add_text_to(struct gw_task *t, unsigned index, struct gw_text value)
{
    return add_cell(t, index, gw_cell_of(value));
}

/* ---- Sessions that are found by fields ---- */

static void arm(struct gw_machine *m, struct session *session)
{
    timer_set(m, &session->timer, session->used + m->program->session->idle, TIMER_SESSION,
              session->id);
}

static struct session *begin(struct gw_machine *m, struct gw_octets *key)
{
    if (m->keyed.count >= m->program->session->sessions_max) {
        count(m, GW_COUNT_SESSIONS_FULL);
        return NULL;
    }
    struct session *session = session_new(m);
    if (!session)
        return NULL;
    if (!map_put(&m->keyed, gw_octets_text(key), session->id)) {
        count(m, GW_COUNT_NO_MEMORY);
        session_end(m, session->id);
        return NULL;
    }
    session->keyed = true;
    session->key = *key;
    *key = (struct gw_octets){0};
    arm(m, session);
    return session;
}

/* Goes into the session of a key; the key is used up. A part of one is no key. */
static bool enter(struct gw_task *t, struct gw_octets *key, bool may_begin)
{
    struct gw_machine *m = t->build.machine;
    struct running *task = inside(t);
    if (key->lost) {
        count(m, GW_COUNT_NO_MEMORY);
        gw_octets_free(key);
        return false;
    }
    struct session *session = session_at(m, map_get(&m->keyed, gw_octets_text(key)));
    if (!session && may_begin)
        session = begin(m, key);
    gw_octets_free(key);
    if (!session)
        return false;
    if (task->keyed != session->id) {
        leave_session(m, task->keyed);
        task->keyed = session->id;
        session->users++;
        session->used = m->now;
    }
    return true;
}

/* Goes into the session of the request's fields. */
static bool enter_by_fields(struct gw_task *t, bool may_begin)
{
    const struct gw_session_kind *kind = t->build.machine->program->session;
    const struct gw_incoming *request = incoming_of(t->build.machine, inside(t)->request);
    struct gw_octets key = {0};
    if (!kind || !kind->keys || !request)
        return false;
    key_of(&key, request->view, kind->keys, kind->keys_count);
    return enter(t, &key, may_begin);
}

/* Goes into the session of a value. */
static bool enter_by_value(struct gw_task *t, struct gw_text value, bool may_begin)
{
    struct gw_octets key = {0};
    gw_octets_add(&key, value);
    return enter(t, &key, may_begin);
}

bool gw_start_session(struct gw_task *t) { return enter_by_fields(t, true); }

bool gw_resume_session(struct gw_task *t) { return enter_by_fields(t, false); }

bool gw_start_session_as(struct gw_task *t, struct gw_text value)
{
    return enter_by_value(t, value, true);
}

bool gw_resume_session_as(struct gw_task *t, struct gw_text value)
{
    return enter_by_value(t, value, false);
}

void gw_end_session(struct gw_task *t)
{
    gw_id keyed = inside(t)->keyed;
    inside(t)->keyed = 0;
    session_end(t->build.machine, keyed);
}

void leave_session(struct gw_machine *m, gw_id id)
{
    struct session *session = session_at(m, id);
    if (session) {
        session->users -= session->users ? 1 : 0;
        session->used = m->now;
    }
}

void session_is_unused(struct gw_machine *m, gw_id id)
{
    struct session *session = session_at(m, id);
    if (!session)
        return;
    /* Who is connected and stored wants to be told, however long there is nothing to tell. */
    if (session->users || stores_connections(m, session))
        session->used = m->now;
    if (session->used + m->program->session->idle > m->now)
        arm(m, session);
    else
        session_end(m, id);
}

/* A session's connection when the session ends. */
static void release_conn(struct gw_machine *m, gw_id id)
{
    struct conn *conn = conn_of(m, id);
    if (!conn)
        return;
    conn->session = 0;
    const struct gw_incoming *current = incoming_of(m, conn->current);
    bool releasing =
        conn->releasing || (conn->about->reuse && conn->about->reuse_each_response);
    if (current && releasing)
        let_go_when_free(m, id);
    else if (releasing && conn_is_clean(conn))
        let_go(m, id);
    else
        hang_up(m, id);
}

void session_end(struct gw_machine *m, gw_id id)
{
    struct session *session = slab_take(&m->sessions, id);
    if (!session)
        return;
    timer_cancel(m, &session->timer);
    if (session->keyed)
        map_remove(&m->keyed, gw_octets_text(&session->key));
    peers_free(m, session);
    gw_id conn;
    while ((conn = ids_first(&session->conns)))
        release_conn(m, conn);
    gw_octets_free(&session->key);
    gw_view_free(session->variables);
    give(session, sizeof *session);
}

void part(struct gw_machine *m, struct conn *conn)
{
    gw_id session = conn->session;
    conn->session = 0;
    struct session *of = session_at(m, session);
    /* A session began with a server's connection and ends with it; it goes on without a client's. */
    if (!conn->about->client)
        session_end(m, session);
    else if (of)
        ids_remove(&of->conns, conn->id);
}

void leave(struct gw_machine *m, gw_id id)
{
    struct conn *conn = conn_of(m, id);
    if (conn)
        part(m, conn);
}

void mark_lost(struct gw_machine *m, const struct conn *conn)
{
    struct session *session = session_at(m, conn->session);
    if (!session || !conn->about->client || conn->kept || !conn_is_clean(conn) ||
        conn->waiters.count)
        return;
    bool each = conn->about->reuse && conn->about->reuse_each_response;
    /* What its server was told on it is lost; a new one must not be taken for the old one. */
    if (!each && !conn->releasing && !conn->about->async)
        session->lost |= (uint64_t)1 << (conn->role & 63);
}
