/* Requests that are sent, the connections for them, and what becomes of them in the air. */
#include "inside.h"

#include <string.h>

static bool same_target(const struct gw_target *one, const struct gw_target *other)
{
    return !strcmp(one->name, other->name) && one->address.port == other->address.port &&
           one->address.six == other->address.six &&
           !memcmp(one->address.octets, other->address.octets, sizeof one->address.octets);
}

bool ask_name(struct gw_machine *m, const struct gw_target *target, gw_id conn, gw_id task,
              gw_id *query)
{
    struct query *asked = m->queries.used < QUERIES_MAX ? take_zeroed(sizeof *asked) : NULL;
    if (!asked || !(asked->id = slab_add(&m->queries, asked))) {
        give(asked, sizeof *asked);
        count(m, GW_COUNT_UNRESOLVED);
        return false;
    }
    asked->conn = conn;
    asked->task = task;
    memcpy(asked->name, target->name, sizeof asked->name);
    *query = asked->id;
    if (output_add(m, &(struct gw_output){.kind = GW_RESOLVE,
                                          .id = asked->id,
                                          .address = target->address,
                                          .name = asked->name}))
        return true;
    give(slab_take(&m->queries, asked->id), sizeof *asked);
    *query = 0;
    return false;
}

void query_end(struct gw_machine *m, gw_id id)
{
    struct query *query = slab_get(&m->queries, id);
    if (query)
        query->conn = query->task = 0; /* the answer still has to come for the name's sake */
}

void gw_resolved(struct gw_machine *m, gw_time now, gw_id id, const struct gw_address *address)
{
    m->now = now;
    struct query *query = slab_take(&m->queries, id);
    if (!query)
        return;
    struct conn *conn = conn_of(m, query->conn);
    if (!address && (conn || query->task))
        count(m, GW_COUNT_UNRESOLVED);
    if (conn && address) {
        conn->state = CONNECTING;
        conn->query = 0;
        if (!output_add(m, &(struct gw_output){
                               .kind = GW_CONNECT, .id = conn->id, .role = conn->role,
                               .address = *address}))
            conn_lose(m, query->conn);
    } else if (conn) {
        server_is_lost(m, query->conn, GW_LOST_UNRESOLVED);
        conn_lose(m, query->conn);
    } else if (query->task && address) {
        send_datagram_to(m, query->task, address);
    } else if (query->task) {
        asked_server_is_lost(m, query->task, GW_LOST_UNRESOLVED);
        send_failed(m, query->task);
    }
    give(query, sizeof *query);
    settle(m);
}

/* The last connection that was kept for a server. */
static struct conn *take_kept(struct gw_machine *m, unsigned role, const struct gw_target *target)
{
    struct ids *kept = &m->roles[role].kept;
    for (uint32_t at = kept->count; at-- > 0;) {
        struct conn *conn = conn_of(m, kept->at[at]);
        if (!conn || !same_target(conn->target, target))
            continue;
        ids_remove(kept, conn->id);
        conn->kept = true;
        conn->moved = m->now;
        conn_arm(m, conn);
        count(m, GW_COUNT_REUSED);
        return conn;
    }
    return NULL;
}

static struct conn *connect_to(struct gw_machine *m, unsigned role, const struct gw_target *target)
{
    struct role_state *state = &m->roles[role];
    if (state->connections >= m->program->roles[role].connections_max) {
        /* A connection that is kept for another server makes room. */
        gw_id oldest = ids_first(&state->kept);
        if (!oldest) {
            count(m, GW_COUNT_NO_ROOM);
            return NULL;
        }
        conn_drop(m, oldest, false);
    }
    struct conn *conn = conn_new(m, role, CONNECTING);
    if (!conn)
        return NULL;
    conn->target = take_zeroed(sizeof *conn->target);
    if (!conn->target) {
        conn_drop(m, conn->id, false);
        return NULL;
    }
    *conn->target = *target;
    bool under_way;
    if (!target->name[0]) {
        struct gw_output output = {.kind = GW_CONNECT, .id = conn->id, .role = role};
        output.address = target->address;
        under_way = output_add(m, &output);
    } else {
        conn->state = RESOLVING;
        under_way = ask_name(m, target, conn->id, 0, &conn->query);
    }
    if (under_way)
        return conn;
    conn_drop(m, conn->id, false);
    return NULL;
}

/* Sends over a connection as soon as it is free. */
static void wait_for(struct gw_machine *m, struct running *task, struct conn *conn)
{
    gw_id id = conn->id;
    task->waits_for = id;
    ids_add(&conn->waiters, task->id);
    conn->releasing = false;
    /* The rest of the last response is in the way, and whoever sends again does not want it. */
    const struct gw_incoming *current = incoming_of(m, conn->current);
    /* Its own it does not even have to have read up to the stream; whoever else reads one over a
       connection that all share goes on reading it. */
    if (current && current->passing == HELD &&
        ((current->reader.streaming && !conn->about->shared) || current->task == task->id))
        discard(m, current->id);
    serve_waiters(m, id);
}

/* The connection to a server that all sessions share; NULL if there is none and none can be made. */
static struct conn *shared_conn(struct gw_machine *m, unsigned role,
                                const struct gw_target *target)
{
    struct ids *shared = &m->roles[role].shared;
    for (uint32_t at = 0; at < shared->count; at++) {
        struct conn *conn = conn_of(m, shared->at[at]);
        if (conn && same_target(conn->target, target) && conn->state != CLOSING &&
            conn->state != LINGERING)
            return conn;
    }
    struct conn *conn = connect_to(m, role, target);
    if (!conn || ids_add(shared, conn->id))
        return conn;
    conn_drop(m, conn->id, false);
    return NULL;
}

/* Has a request wait for the connection that all sessions share. */
static void acquire_shared(struct gw_machine *m, struct running *task)
{
    unsigned role = task->task.role;
    struct conn *conn = shared_conn(m, role, &task->target);
    bool room = conn && conn->waiters.count < m->program->roles[role].shared_waiting;
    if (conn && !room)
        count(m, GW_COUNT_NO_ROOM);
    if (room)
        wait_for(m, task, conn);
    else
        send_failed(m, task->id);
}

/* Finds a connection for a request: the one that all share, the session's, a kept one, or a new
   one. */
static void acquire(struct gw_machine *m, struct running *task)
{
    unsigned role = task->task.role;
    if (m->program->roles[role].shared) {
        acquire_shared(m, task);
        return;
    }
    struct session *session = session_of(m, task);
    if (!session) {
        send_failed(m, task->id);
        return;
    }
    gw_id id = task->id, session_id = session->id;
    uint64_t bit = (uint64_t)1 << (role & 63);
    if (session->lost & bit) {
        session->lost &= ~bit;
        send_failed(m, task->id);
        return;
    }
    for (uint32_t at = 0; at < session->conns.count; at++) {
        struct conn *own = conn_of(m, session->conns.at[at]);
        if (!own || own->role != role)
            continue;
        if (same_target(own->target, &task->target)) {
            wait_for(m, task, own);
            return;
        }
        let_go(m, own->id);
        break;
    }
    /* Letting go of one may have ended whoever used it. */
    task = task_of(m, id);
    if (!task)
        return;
    struct conn *conn = task->new_only ? NULL : take_kept(m, role, &task->target);
    if (!conn)
        conn = connect_to(m, role, &task->target);
    if (!conn) {
        send_failed(m, task->id);
        return;
    }
    session = session_at(m, session_id);
    if (session) {
        conn->session = session_id;
        ids_add(&session->conns, conn->id);
    }
    wait_for(m, task, conn);
}

void begin_send(struct gw_machine *m, struct running *task)
{
    unsigned role = task->task.role;
    task->wait = WAIT_CONNECTION;
    task->waits_for = 0;
    timer_set(m, &task->timer, task->deadline, TIMER_TASK, task->id);
    if (m->program->roles[role].udp)
        begin_datagram(m, task);
    else if (task->origin == BY_OPENING && task->role == role)
        conn_is_ready(m, task->id, task->conn);
    else
        acquire(m, task);
}

/* Whether another request in the air could not be told apart. */
static bool is_taken(struct gw_machine *m, const struct conn *conn, const struct gw_octets *flow)
{
    for (uint32_t at = 0; at < conn->exchanges.count; at++) {
        const struct exchange *other = exchange_of(m, conn->exchanges.at[at]);
        if (other && gw_same(gw_octets_text(&other->flow), gw_octets_text(flow)))
            return true;
    }
    return false;
}

/* Whether those who wait for a shared connection go on waiting: until it has taken what was sent
   before, and until the first of them can be told apart from who is in the air. */
static bool is_choked(struct gw_machine *m, const struct conn *conn)
{
    if (!conn->about->shared || !conn->waiters.count)
        return false;
    const struct running *first = task_of(m, conn->waiters.at[0]);
    return gw_octets_text(&conn->unsent).length >= BUFFER_OCTETS ||
           (first && first->wait == WAIT_CONNECTION && first->task.respond && conn->about->async &&
            is_taken(m, conn, &first->flow));
}

void serve_waiters(struct gw_machine *m, gw_id id)
{
    struct conn *conn;
    while ((conn = conn_of(m, id))) {
        bool busy = (!conn->about->async && (conn->exchanges.count || conn->streaming)) ||
                    is_choked(m, conn);
        if (conn->state != OPEN || conn->opening || busy)
            return;
        gw_id waiter = ids_first(&conn->waiters);
        if (!waiter)
            return;
        conn_is_ready(m, waiter, id);
    }
}

void begin_opening(struct gw_machine *m, gw_id id)
{
    const struct conn *conn = conn_of(m, id);
    if (!conn || !conn->about->opening) {
        server_is_connected(m, id);
        serve_waiters(m, id);
    } else if (!task_start(m, conn->about->opening, BY_OPENING, id, 0)) {
        conn_lose(m, id);
    }
}

struct exchange *exchange_new(struct gw_machine *m, struct running *task)
{
    struct exchange *exchange = take_zeroed(sizeof *exchange);
    gw_id id = exchange ? thing_add(m, &m->exchanges, exchange) : 0;
    if (!id) {
        give(exchange, sizeof *exchange);
        count(m, GW_COUNT_NO_MEMORY);
        return NULL;
    }
    exchange->id = id;
    exchange->role = task->task.role;
    exchange->task = task->id;
    exchange->gather = task->task.gather_max > 0;
    exchange->deadline = task->deadline;
    exchange->flow = task->flow;
    task->flow = (struct gw_octets){0};
    timer_set(m, &exchange->timer, exchange->deadline, TIMER_EXCHANGE, id);
    timer_cancel(m, &task->timer);
    task->wait = exchange->gather ? WAIT_GATHER : WAIT_RESPONSE;
    task->waits_for = id;
    if (exchange->gather) {
        task->gathering = true;
        task->gather_exchange = id;
        task->gather_left = task->task.gather_max;
    }
    return exchange;
}

void conn_is_ready(struct gw_machine *m, gw_id id, gw_id conn_id)
{
    struct running *task = task_of(m, id);
    struct conn *conn = conn_of(m, conn_id);
    if (!task || task->wait != WAIT_CONNECTION)
        return;
    struct letter *letter = task->letter;
    const struct gw_incoming *from = letter->streams ? incoming_of(m, letter->from) : NULL;
    bool gone = letter->streams && !(from && from->passing == HELD);
    bool respond = task->task.respond;
    if (conn && respond && conn->about->async && is_taken(m, conn, &task->flow)) {
        count(m, GW_COUNT_NO_ROOM);
        conn = NULL;
    }
    if (!conn || gone) {
        send_failed(m, id);
        return;
    }
    if (respond) {
        struct exchange *exchange = exchange_new(m, task);
        if (!exchange) {
            send_failed(m, id);
            return;
        }
        exchange->conn = conn_id;
        if (conn->kept && !letter->streams) {
            gw_octets_add(&exchange->octets, gw_octets_text(&letter->octets));
            exchange->target = take_zeroed(sizeof *exchange->target);
            if (exchange->target)
                *exchange->target = task->target;
        }
        ids_add(&conn->exchanges, exchange->id);
    } else {
        letter->told = TOLD_SENT;
        letter->task = id;
        task->wait = WAIT_WRITTEN;
        task->waits_for = conn_id;
        if (!letter->streams)
            timer_cancel(m, &task->timer);
        gw_octets_free(&task->flow);
    }
    task->letter = NULL;
    put(m, conn_id, letter);
}

void sent_whole(struct gw_machine *m, gw_id id)
{
    struct running *task = task_of(m, id);
    if (task && task->wait == WAIT_WRITTEN)
        go_on(m, task, true);
}

/* ---- In the air ---- */

void response_begun(struct gw_machine *m, gw_id id, gw_id incoming)
{
    struct exchange *exchange = exchange_of(m, id);
    struct gw_incoming *message = incoming_of(m, incoming);
    if (!message)
        return;
    if (!exchange) {
        message->passing = DISCARDED;
        return;
    }
    exchange->begun = true;
    timer_cancel(m, &exchange->repetition);
    gw_octets_free(&exchange->octets);
    server_answers(m, exchange);
    message->task = exchange->task;
    if (exchange->gather)
        gathered(m, exchange->task, incoming);
    else
        responded(m, exchange->task, incoming);
}

/* The exchange of a connection that a message answers; 0 if there is none. */
static gw_id answered(struct gw_machine *m, const struct conn *conn, const struct gw_view *view)
{
    for (uint32_t at = 0; at < conn->exchanges.count; at++) {
        const struct exchange *exchange = exchange_of(m, conn->exchanges.at[at]);
        struct gw_text wanted = exchange ? gw_octets_text(&exchange->flow) : GW_TEXT("");
        if (!wanted.length)
            continue;
        struct gw_octets flow = {0};
        bool same = flow_of(&flow, conn->about, conn->about->flow[wanted.at[0]].view, view, true) &&
                    gw_same(gw_octets_text(&flow), wanted);
        gw_octets_free(&flow);
        if (same)
            return exchange->id;
    }
    return 0;
}

/* A message from a server that answers nothing in the air: it asks, or nobody wants it. */
static void ask(struct gw_machine *m, struct conn *conn, struct gw_incoming *incoming)
{
    for (unsigned kind = 0; kind < conn->about->requests_count; kind++) {
        const struct gw_request *request = &conn->about->requests[kind];
        if (request->view != incoming->view->message)
            continue;
        incoming->purpose = REQUEST;
        incoming->requester = BY_CONN;
        incoming->answer_to = conn->id;
        if (!incoming->conn) {
            dispatch(m, incoming->id);
            return;
        }
        incoming->reader.goal = GW_TO_SETTLED;
        incoming->reader.goal_slots = request->waits;
        incoming->reader.goal_count = request->waits_count;
        return;
    }
    count(m, GW_COUNT_UNSOLICITED);
    incoming->purpose = IGNORED;
    incoming->passing = DISCARDED;
}

void match_response(struct gw_machine *m, gw_id conn_id, gw_id id)
{
    struct conn *conn = conn_of(m, conn_id);
    struct gw_incoming *incoming = incoming_of(m, id);
    if (!conn || !incoming)
        return;
    gw_id exchange = answered(m, conn, incoming->view);
    if (!exchange) {
        ask(m, conn, incoming);
        return;
    }
    incoming->purpose = RESPONSE;
    incoming->exchange = exchange;
    response_begun(m, exchange, id);
}

void exchange_end(struct gw_machine *m, gw_id id)
{
    struct exchange *exchange = slab_take(&m->exchanges, id);
    if (!exchange)
        return;
    timer_cancel(m, &exchange->timer);
    timer_cancel(m, &exchange->repetition);
    if (exchange->by_datagram)
        map_remove(&m->roles[exchange->role].air, gw_octets_text(&exchange->flow));
    struct conn *conn = conn_of(m, exchange->conn);
    if (conn)
        ids_remove(&conn->exchanges, id);
    gw_octets_free(&exchange->flow);
    gw_octets_free(&exchange->octets);
    if (exchange->target)
        give(exchange->target, sizeof *exchange->target);
    give(exchange, sizeof *exchange);
}

/* A request whose kept connection had gone is sent over a new one. */
static bool send_again(struct gw_machine *m, struct exchange *exchange)
{
    struct running *task = task_of(m, exchange->task);
    struct letter *letter = task && exchange->target ? letter_new() : NULL;
    if (!letter)
        return false;
    letter->octets = exchange->octets;
    exchange->octets = (struct gw_octets){0};
    gw_octets_free(&task->flow);
    task->flow = exchange->flow;
    exchange->flow = (struct gw_octets){0};
    task->letter = letter;
    task->target = *exchange->target;
    task->new_only = true;
    count(m, GW_COUNT_REPLACED);
    exchange_end(m, exchange->id);
    begin_send(m, task);
    return true;
}

void exchange_lost(struct gw_machine *m, gw_id id, bool kept)
{
    struct exchange *exchange = exchange_of(m, id);
    if (!exchange)
        return;
    gw_id task = exchange->task;
    bool begun = exchange->begun, gather = exchange->gather;
    /* It was closed before it gave an octet: a new one takes its place, once. */
    bool again = kept && !begun && !gather && gw_octets_text(&exchange->octets).length;
    if (again && send_again(m, exchange))
        return;
    exchange_end(m, id);
    if (gather)
        gather_is_over(m, task);
    else if (!begun)
        send_failed(m, task);
}

void exchange_abandon(struct gw_machine *m, gw_id id)
{
    const struct exchange *exchange = exchange_of(m, id);
    if (!exchange)
        return;
    bool sync = !m->program->roles[exchange->role].async && !exchange->begun;
    bool shared = m->program->roles[exchange->role].shared;
    gw_id conn = exchange->conn;
    exchange_end(m, id);
    /* Its response would be taken for the next one's. */
    if (sync)
        conn_lose(m, conn);
    else if (shared)
        serve_waiters(m, conn);
}

void exchange_is_late(struct gw_machine *m, gw_id id)
{
    const struct exchange *exchange = exchange_of(m, id);
    if (!exchange)
        return;
    gw_id task = exchange->task, conn = exchange->conn;
    bool gather = exchange->gather, begun = exchange->begun;
    if (!gather && !begun)
        exchange_was_silent(m, exchange);
    exchange_end(m, id);
    if (gather) {
        gather_is_over(m, task);
        return;
    }
    count(m, GW_COUNT_LATE);
    if (!begun)
        send_failed(m, task);
    conn_lose(m, conn);
}
