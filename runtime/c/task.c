/* Handlers that run: what they wait for, how they go on, how they end. */
#include "inside.h"

/* What is counted of a handler. */
static struct gw_handled *handled_of(struct gw_machine *m, const struct gw_handler *handler)
{
    unsigned at = 0;
    while (at + 1 < m->program->handlers_count && m->program->handlers[at] != handler)
        at++;
    return &m->handled[at];
}

static void count_end(struct gw_machine *m, const struct running *task)
{
    struct gw_handled *handled = handled_of(m, task->handler);
    gw_time took = m->now - task->started;
    unsigned step = 0;
    while (step + 1 < GW_LATENCY_STEPS && took >> step)
        step++;
    handled->latency[step]++;
    if (task->finished)
        handled->finished++;
    else
        handled->failed++;
}

struct running *task_start(struct gw_machine *m, const struct gw_handler *handler,
                           enum origin origin, gw_id of, unsigned clock)
{
    struct running *task = take_zeroed(sizeof *task);
    struct gw_view *values = task ? gw_view_new(handler->values) : NULL;
    gw_id id = values ? thing_add(m, &m->tasks, task) : 0;
    if (!id) {
        gw_view_free(values);
        give(task, sizeof *task);
        count(m, GW_COUNT_NO_MEMORY);
        return NULL;
    }
    task->id = id;
    task->handler = handler;
    task->origin = origin;
    task->clock = clock;
    task->task.values = values;
    task->task.build.machine = m;
    task->started = m->now;
    handled_of(m, handler)->started++;
    struct gw_incoming *request = origin == BY_REQUEST ? incoming_of(m, of) : NULL;
    struct conn *conn = origin == BY_OPENING ? conn_of(m, of) : NULL;
    if (request) {
        task->request = of;
        task->role = request->role;
        request->task = id;
        set_message(m, gw_view_slot(values, 0), request);
        if (request->requester == BY_CONN && (task->conn = request->answer_to)) {
            struct conn *from = conn_of(m, task->conn);
            if (from)
                ids_add(&from->tasks, id);
        }
    } else if (conn) {
        task->conn = of;
        task->role = conn->role;
        conn->opening = id;
    }
    work_add(m, WORK_RUN, id);
    return task;
}

static void finish(struct gw_machine *m, struct running *task, bool answers, bool close)
{
    gw_id id = task->id, request = task->request;
    struct letter *letter = task->letter;
    struct conn *conn = conn_of(m, task->conn);
    task->letter = NULL;
    task->finished = true;
    if (conn && task->origin == BY_REQUEST)
        ids_remove(&conn->tasks, id);
    if (task->origin == BY_REQUEST) {
        if (!letter && !answers)
            letter = letter_new();
        if (letter)
            reply(m, request, letter, close);
        else if (!answers)
            conn_lose(m, task->conn);
    } else {
        letter_free(letter);
    }
    task_end(m, id);
}

static void opening_done(struct gw_machine *m, struct running *task)
{
    gw_id conn = task->origin == BY_OPENING ? task->conn : 0;
    task->finished = true;
    task_end(m, task->id);
    server_is_connected(m, conn);
    serve_waiters(m, conn);
    let_go_if_free(m, conn);
}

static void begin_receive(struct gw_machine *m, struct running *task)
{
    struct conn *conn = conn_of(m, task->conn);
    if (!conn) {
        /* A datagram has nothing that follows it. */
        go_on(m, task, false);
        return;
    }
    task->wait = WAIT_RECEIVE;
    task->waits_for = conn->id;
    timer_set(m, &task->timer, m->now + task->task.within, TIMER_TASK, task->id);
    conn->receiver = task->id;
    work_add(m, WORK_READ, conn->id);
}

/* Goes on with the next response that was collected, or waits for it, or behind it. */
static void next_gathered(struct gw_machine *m, struct running *task)
{
    task->wait = WAIT_GATHER;
    task->task.block = task->gather_body;
    task->task.otherwise = task->gather_done;
    if (!task->gathering) {
        go_on(m, task, false);
        return;
    }
    struct gw_incoming *next = incoming_of(m, ids_first(&task->gathered));
    if (next) {
        set_message(m, task->gather_into, next);
        go_on(m, task, true);
    } else if (!exchange_of(m, task->gather_exchange)) {
        go_on(m, task, false);
    }
}

void task_run(struct gw_machine *m, gw_id id)
{
    struct running *task = task_of(m, id);
    if (!task || task->wait != WAIT_READY || task->runs)
        return;
    task->task.build.request = incoming_of(m, task->request);
    task->runs = true;
    enum gw_stop stop = task->handler->run(&task->task);
    task->runs = false;
    if (task->ends) {
        task_end(m, id);
        return;
    }
    if (task->fails)
        stop = GW_FAILS;
    switch (stop) {
    case GW_WAITS:
        break;
    case GW_SENDS:
        begin_send(m, task);
        break;
    case GW_RECEIVES:
        begin_receive(m, task);
        break;
    case GW_SLEEPS:
        task->wait = WAIT_SLEEP;
        timer_set(m, &task->timer, m->now + task->task.within, TIMER_TASK, id);
        break;
    case GW_GATHERS:
        next_gathered(m, task);
        break;
    case GW_RETURNS:
        finish(m, task, task->task.answers, task->task.close);
        break;
    case GW_CLOSES:
        finish(m, task, false, true);
        break;
    case GW_OPENED:
        opening_done(m, task);
        break;
    case GW_FAILS:
        task_fail(m, id);
        break;
    }
}

/* ---- Going on ---- */

void go_on(struct gw_machine *m, struct running *task, bool well)
{
    if (!well) {
        task->task.block = task->task.otherwise;
        if (task->gathering && task->wait == WAIT_GATHER) {
            task->gathering = false;
            exchange_end(m, task->gather_exchange);
        }
    }
    struct conn *conn = task->wait == WAIT_CONNECTION ? conn_of(m, task->waits_for) : NULL;
    if (conn)
        ids_remove(&conn->waiters, task->id);
    if (task->wait == WAIT_CONNECTION) {
        query_end(m, task->query);
        letter_free(task->letter);
        task->letter = NULL;
        gw_octets_free(&task->flow);
    }
    task->wait = WAIT_READY;
    task->query = 0;
    timer_cancel(m, &task->timer);
    work_add(m, WORK_RUN, task->id);
}

void set_message(struct gw_machine *m, struct gw_slot *slot, struct gw_incoming *incoming)
{
    gw_id before = slot->set ? slot->from : 0;
    struct gw_view *held = slot->set ? slot->message : NULL;
    incoming->view->holders++;
    slot->message = incoming->view;
    slot->from = incoming->id;
    slot->set = slot->settled = true;
    gw_view_free(held);
    if (before && before != incoming->id)
        let_message_go(m, before);
}

void let_message_go(struct gw_machine *m, gw_id id)
{
    struct gw_incoming *incoming = incoming_of(m, id);
    if (!incoming)
        return;
    incoming->task = 0;
    if (!incoming->conn) {
        forget_if_unused(m, id);
        return;
    }
    gw_id conn_id = incoming->conn;
    incoming->reader.goal = GW_TO_END;
    if (incoming->passing == HELD) {
        const struct conn *conn = conn_of(m, conn_id);
        incoming->passing = DISCARDED;
        if (conn && conn->hanging) {
            conn_lose(m, conn_id);
            return;
        }
    }
    work_add(m, WORK_READ, conn_id);
}

void message_moved(struct gw_machine *m, gw_id id, gw_id incoming)
{
    struct running *task = task_of(m, id);
    struct gw_incoming *message = incoming_of(m, incoming);
    if (!task || !message)
        return;
    if (task->wait == WAIT_SLOTS) {
        go_on(m, task, true);
    } else if (task->wait == WAIT_RECEIVE) {
        struct conn *conn = conn_of(m, task->waits_for);
        if (conn)
            conn->receiver = 0;
        set_message(m, task->task.into, message);
        go_on(m, task, true);
    }
}

void message_lost(struct gw_machine *m, gw_id id, gw_id incoming)
{
    const struct running *task = task_of(m, id);
    /* One that hung up by itself has what it read, and goes on. */
    if (!task || task->runs)
        return;
    for (unsigned index = 0; index < task->handler->values->count; index++) {
        const struct gw_slot *slot = gw_view_look(task->task.values, index);
        if (slot->set && slot->field->bounds.kind == GW_MESSAGE && slot->from == incoming) {
            task_fail(m, id);
            return;
        }
    }
}

void responded(struct gw_machine *m, gw_id id, gw_id incoming)
{
    struct running *task = task_of(m, id);
    struct gw_incoming *message = incoming_of(m, incoming);
    if (!task || task->wait != WAIT_RESPONSE || !message) {
        let_message_go(m, incoming);
        return;
    }
    set_message(m, task->task.into, message);
    go_on(m, task, true);
}

void gathered(struct gw_machine *m, gw_id id, gw_id incoming)
{
    struct running *task = task_of(m, id);
    if (!task || !task->gathering || !ids_add(&task->gathered, incoming)) {
        let_message_go(m, incoming);
        return;
    }
    if (task->gather_left && !--task->gather_left) {
        gw_id last = task->gather_exchange;
        task->gather_exchange = 0;
        exchange_end(m, last);
    }
    if (task->wait == WAIT_GATHER)
        next_gathered(m, task);
}

void gather_is_over(struct gw_machine *m, gw_id id)
{
    struct running *task = task_of(m, id);
    if (!task)
        return;
    task->gather_exchange = 0;
    if (task->wait == WAIT_GATHER)
        next_gathered(m, task);
}

void receive_failed(struct gw_machine *m, gw_id id)
{
    struct running *task = task_of(m, id);
    if (task && task->wait == WAIT_RECEIVE) {
        struct conn *conn = conn_of(m, task->waits_for);
        if (conn)
            conn->receiver = 0;
        go_on(m, task, false);
    }
}

void send_failed(struct gw_machine *m, gw_id id)
{
    struct running *task = task_of(m, id);
    if (task && task->wait != WAIT_SLOTS && task->wait != WAIT_RECEIVE &&
        task->wait != WAIT_SLEEP && task->wait != WAIT_READY)
        go_on(m, task, false);
}

static void connection_is_late(struct gw_machine *m, struct running *task)
{
    gw_id id = task->waits_for;
    count(m, GW_COUNT_LATE);
    go_on(m, task, false);
    const struct conn *conn = conn_of(m, id);
    /* Nobody knows whether it will ever be there. */
    if (conn && !conn->waiters.count && (conn->state != OPEN || conn->opening)) {
        server_is_lost(m, id, GW_LOST_SILENT);
        leave(m, id);
        conn_lose(m, id);
    }
}

void wait_is_over(struct gw_machine *m, gw_id id)
{
    struct running *task = task_of(m, id);
    if (!task)
        return;
    switch (task->wait) {
    case WAIT_SLEEP:
        go_on(m, task, true);
        break;
    case WAIT_RECEIVE:
        count(m, GW_COUNT_LATE);
        receive_failed(m, id);
        break;
    case WAIT_CONNECTION:
        connection_is_late(m, task);
        break;
    case WAIT_WRITTEN:
        count(m, GW_COUNT_LATE);
        server_is_lost(m, task->waits_for, GW_LOST_SILENT);
        conn_lose(m, task->waits_for);
        send_failed(m, id);
        break;
    case WAIT_READY:
    case WAIT_SLOTS:
    case WAIT_RESPONSE:
    case WAIT_GATHER:
        break;
    }
}

/* ---- The end ---- */

static void free_values(struct gw_machine *m, struct gw_view *values)
{
    for (unsigned index = 0; index < values->message->count; index++) {
        struct gw_slot *slot = gw_view_slot(values, index);
        if (!slot->set || slot->field->bounds.kind != GW_MESSAGE)
            continue;
        slot->set = false;
        let_message_go(m, slot->from);
        gw_view_free(slot->message);
    }
    gw_view_free(values);
}

static void stop_waiting(struct gw_machine *m, struct running *task)
{
    struct conn *conn;
    switch (task->wait) {
    case WAIT_CONNECTION:
        if ((conn = conn_of(m, task->waits_for)))
            ids_remove(&conn->waiters, task->id);
        query_end(m, task->query);
        break;
    case WAIT_RESPONSE:
        exchange_abandon(m, task->waits_for);
        break;
    case WAIT_RECEIVE:
        if ((conn = conn_of(m, task->waits_for)))
            conn->receiver = 0;
        break;
    case WAIT_READY:
    case WAIT_SLOTS:
    case WAIT_WRITTEN:
    case WAIT_GATHER:
    case WAIT_SLEEP:
        break;
    }
}

void task_end(struct gw_machine *m, gw_id id)
{
    struct running *task = task_of(m, id);
    if (!task)
        return;
    if (task->runs) {
        task->ends = true;
        return;
    }
    slab_take(&m->tasks, id);
    count_end(m, task);
    timer_cancel(m, &task->timer);
    struct conn *conn = conn_of(m, task->conn);
    if (conn)
        ids_remove(&conn->tasks, id);
    stop_waiting(m, task);
    if (task->gathering) {
        gw_id incoming;
        exchange_end(m, task->gather_exchange);
        while ((incoming = ids_first(&task->gathered)))
            let_message_go(m, incoming);
    }
    ids_free(&task->gathered);
    gw_view_free(task->task.build.view);
    free_values(m, task->task.values);
    leave_session(m, task->keyed);
    session_end(m, task->own);
    letter_free(task->letter);
    gw_octets_free(&task->flow);
    gw_octets_free(&task->mark);
    gw_octets_free(&task->task.text);
    if (task->origin == BY_REQUEST && !task->conn)
        peer_is_served(m, task->role);
    if (task->origin == BY_OPENING && (conn = conn_of(m, task->conn)))
        conn->opening = 0;
    if (task->origin == BY_CLOCK)
        turn_is_over(m, task->clock);
    give(task, sizeof *task);
}

void task_fail(struct gw_machine *m, gw_id id)
{
    struct running *task = task_of(m, id);
    if (!task)
        return;
    gw_id conn = task->origin == BY_OPENING ? task->conn : 0;
    struct gw_incoming *request = task->origin == BY_REQUEST ? incoming_of(m, task->request) : NULL;
    if (request)
        answer_request(m, request, m->program->roles[task->role].failed);
    task_end(m, id);
    server_is_lost(m, conn, GW_LOST_REFUSED);
    conn_lose(m, conn);
}
