/* Requests that arrive: their dispatch and their answers. */
#include "inside.h"

void dispatch(struct gw_machine *m, gw_id id)
{
    struct gw_incoming *incoming = incoming_of(m, id);
    if (!incoming || incoming->requester == NO_ONE)
        return;
    incoming->purpose = HANDLED;
    const struct gw_role *about = &m->program->roles[incoming->role];
    for (unsigned kind = 0; kind < about->requests_count; kind++) {
        if (about->requests[kind].view == incoming->view->message) {
            about->requests[kind].dispatch(m, incoming, incoming->view);
            return;
        }
    }
    answer_request(m, incoming, &(struct gw_answer){NULL, false});
}

void gw_handle(struct gw_machine *m, struct gw_incoming *request, const struct gw_handler *handler)
{
    if (!task_start(m, handler, BY_REQUEST, request->id, 0))
        answer_request(m, request, m->program->roles[request->role].failed);
}

void gw_reply(struct gw_machine *m, struct gw_incoming *request, const struct gw_answer *answer)
{
    answer_request(m, request, answer);
}

/* The octets of an answer that the protocol gives by itself; none if it cannot be built. */
bool build_answer(struct gw_machine *m, const struct gw_answer *answer, struct gw_incoming *request,
                  unsigned role, struct gw_octets *octets)
{
    if (!answer->build)
        return true;
    struct gw_build build = {.machine = m, .role = role, .request = request};
    struct letter letter = {0};
    bool sound = answer->build(&build) && finish_build(&build, &letter);
    if (!sound)
        count(m, GW_COUNT_UNBUILDABLE);
    *octets = letter.octets;
    return sound;
}

/* There is no memory for an answer: whoever waits for one on a connection is told by its end. */
static void leave_unanswered(struct gw_machine *m, struct gw_incoming *request)
{
    gw_id id = request->id;
    count(m, GW_COUNT_NO_MEMORY);
    if (request->requester == BY_CONN)
        conn_lose(m, request->answer_to);
    request = incoming_of(m, id);
    if (request)
        request->requester = NO_ONE;
    forget_if_unused(m, id);
}

void answer_request(struct gw_machine *m, struct gw_incoming *request,
                    const struct gw_answer *answer)
{
    struct letter *letter = letter_new();
    if (letter) {
        build_answer(m, answer, request, request->role, &letter->octets);
        reply(m, request->id, letter, answer->close);
    } else {
        leave_unanswered(m, request);
    }
}

void answer_conn(struct gw_machine *m, gw_id conn_id, struct gw_incoming *request,
                 const struct gw_answer *answer)
{
    const struct conn *conn = conn_of(m, conn_id);
    struct letter *letter = conn ? letter_new() : NULL;
    if (!letter) {
        conn_lose(m, conn_id);
        return;
    }
    build_answer(m, answer, request, conn->role, &letter->octets);
    put(m, conn_id, letter);
}

static void reply_now(struct gw_machine *m, struct gw_incoming *incoming, struct letter *letter,
                      bool close)
{
    gw_id id = incoming->id, to = incoming->answer_to;
    enum requester requester = incoming->requester;
    incoming->task = 0;
    incoming->answered = false;
    incoming->requester = NO_ONE;
    incoming->reader.goal = GW_TO_END;
    if (requester == BY_CONN) {
        letter->told = TOLD_ANSWER;
        put(m, to, letter);
        if (close)
            close_after_sending(m, to);
    } else if (requester == BY_PEER) {
        answer_peer(m, incoming, letter);
    } else {
        letter_free(letter);
    }
    forget_if_unused(m, id);
}

/* The message behind a request that is not read to its end. */
static gw_id received_behind(struct gw_machine *m, const struct gw_incoming *request)
{
    const struct conn *conn =
        request->requester == BY_CONN ? conn_of(m, request->answer_to) : NULL;
    const struct gw_incoming *current = conn ? incoming_of(m, conn->current) : NULL;
    return current && current->purpose == RECEIVED ? current->id : 0;
}

/*
 * Answers a request as soon as it, and what its handler received behind it, is read to its end; at
 * once if its connection is closed behind the answer, or if the answer's stream is the request's.
 */
void reply(struct gw_machine *m, gw_id id, struct letter *letter, bool close)
{
    struct gw_incoming *request = incoming_of(m, id);
    if (!request) {
        letter_free(letter);
        return;
    }
    gw_id before = request->conn ? id : received_behind(m, request);
    bool own = letter->streams && letter->from == before;
    if (!before || close || own) {
        reply_now(m, request, letter, close);
        return;
    }
    struct gw_incoming *incoming = incoming_of(m, before);
    letter_free(incoming->reply);
    incoming->reply = letter;
    incoming->reply_to = id;
    incoming->reader.goal = GW_TO_END;
    request->answered = true;
    /* What is passed on is passed on to its end. */
    if (incoming->passing == HELD)
        discard(m, before);
}

void settle_request(struct gw_machine *m, gw_id id)
{
    struct gw_incoming *incoming = incoming_of(m, id);
    if (incoming && incoming->reply) {
        struct letter *letter = incoming->reply;
        struct gw_incoming *request = incoming_of(m, incoming->reply_to);
        incoming->reply = NULL;
        if (request)
            reply_now(m, request, letter, false);
        else
            letter_free(letter);
    }
}

void finish_request(struct gw_machine *m, gw_id id)
{
    struct conn *conn = conn_of(m, id);
    if (conn) {
        if (!conn->about->client && conn->requests)
            conn->requests--;
        conn->moved = m->now;
        work_add(m, WORK_READ, id);
    }
}

const struct gw_answer *malformed_answer(const struct gw_role *role,
                                         const struct gw_incoming *incoming)
{
    const struct gw_answer *own = role->too_long[gw_too_long(&incoming->reader)];
    return own ? own : role->malformed;
}

/* Says that a message is malformed, and reads on behind it where its end can be found. */
static void refuse(struct gw_machine *m, gw_id conn_id, struct gw_incoming *incoming, bool in_line)
{
    struct conn *conn = conn_of(m, conn_id);
    bool lines = incoming->view->message->lines;
    if (conn) {
        const struct gw_answer *answer = malformed_answer(conn->about, incoming);
        conn->current = 0;
        conn->skipping = in_line && lines;
        answer_conn(m, conn_id, incoming, answer);
        incoming_free(m, incoming);
        if (answer->close || !lines)
            close_after_sending(m, conn_id);
    }
}

void refuse_request(struct gw_machine *m, gw_id conn, gw_id id, bool in_line)
{
    const struct gw_incoming *request = incoming_of(m, id);
    if (request && request->task)
        task_end(m, request->task);
    struct gw_incoming *incoming = incoming_of(m, id);
    if (!incoming || incoming->requester == NO_ONE) {
        conn_lose(m, conn);
        return;
    }
    refuse(m, conn, incoming, in_line);
    finish_request(m, conn);
}

void refuse_received(struct gw_machine *m, gw_id conn_id, gw_id id, bool in_line)
{
    struct conn *conn = conn_of(m, conn_id);
    struct gw_incoming *incoming = incoming_of(m, id);
    if (!conn || !incoming || !incoming->task) {
        conn_lose(m, conn_id);
        return;
    }
    gw_id task = incoming->task;
    bool lines = incoming->view->message->lines;
    if (!conn->receiver) {
        const struct running *running = task_of(m, task);
        gw_id request = running && running->origin == BY_REQUEST ? running->request : 0;
        task_end(m, task);
        incoming = incoming_of(m, id);
        if (incoming)
            refuse(m, conn_id, incoming, in_line);
        struct gw_incoming *answered = incoming_of(m, request);
        if (answered)
            incoming_free(m, answered);
        finish_request(m, conn_id);
        return;
    }
    /* It has not begun for the handler yet, which can still say what happens. */
    conn->current = 0;
    conn->receiver = 0;
    conn->skipping = in_line && lines;
    incoming_free(m, incoming);
    receive_failed(m, task);
    if (!lines)
        close_after_sending(m, conn_id);
}
