/* Datagrams: requests, responses, repetitions. */
#include "inside.h"

#include <string.h>

static void send_octets(struct gw_machine *m, unsigned role, const struct gw_address *to,
                        struct gw_text octets)
{
    struct gw_output output = {.kind = GW_DATAGRAM, .role = role, .address = *to};
    if (!octets.length)
        return;
    if (!gw_octets_add(&output.octets, octets))
        count(m, GW_COUNT_NO_MEMORY);
    else if (!output_add(m, &output))
        gw_octets_free(&output.octets);
}

/* Reads a datagram as a message; whether it is one is `sound`. */
static struct gw_incoming *read_datagram(struct gw_machine *m, unsigned role,
                                         const struct gw_message *view, struct gw_text octets,
                                         bool *sound)
{
    struct gw_incoming *incoming = incoming_new(m, view);
    if (!incoming)
        return NULL;
    size_t used;
    incoming->role = role;
    incoming->passing = DISCARDED;
    *sound = gw_read(&incoming->reader, incoming->view, octets, true, NULL, &used) == GW_DONE;
    return incoming;
}

static void answer_by_datagram(struct gw_machine *m, const struct gw_answer *answer,
                               struct gw_incoming *request, const struct gw_address *to)
{
    struct gw_octets octets = {0};
    build_answer(m, answer, request, request->role, &octets);
    send_octets(m, request->role, to, gw_octets_text(&octets));
    gw_octets_free(&octets);
}

bool add_address(struct gw_octets *key, const struct gw_address *address)
{
    uint8_t octets[19] = {address->six, (uint8_t)(address->port >> 8), (uint8_t)address->port};
    memcpy(octets + 3, address->octets, 16);
    gw_octets_add(key, (struct gw_text){octets, sizeof octets});
    return !key->lost;
}

static struct repeat *repeat_of(struct gw_machine *m, unsigned role, struct gw_text key)
{
    return slab_get(&m->repeats, map_get(&m->roles[role].repeats, key));
}

static void forget_oldest(struct gw_machine *m, struct role_state *state)
{
    struct repeat *repeat = slab_take(&m->repeats, ids_first(&state->forget));
    if (!repeat)
        return;
    map_remove(&state->repeats, gw_octets_text(&repeat->key));
    gw_octets_free(&repeat->key);
    gw_octets_free(&repeat->octets);
    give(repeat, sizeof *repeat);
}

/* Remembers a request that may come again. */
static void remember(struct gw_machine *m, struct gw_incoming *incoming)
{
    struct role_state *state = &m->roles[incoming->role];
    const struct gw_role *about = &m->program->roles[incoming->role];
    gw_time until = m->now + about->duplicates_keep;
    /* Whoever asked longest ago is the least likely to ask again. */
    while (state->forget.count && state->repeats.count >= about->connections_max)
        forget_oldest(m, state);
    struct repeat *repeat = take_zeroed(sizeof *repeat);
    gw_id id = repeat ? slab_add(&m->repeats, repeat) : 0;
    if (!id || !gw_octets_add(&repeat->key, gw_octets_text(&incoming->repeat)) ||
        !ids_add(&state->forget, id)) {
        slab_take(&m->repeats, id);
        if (repeat)
            gw_octets_free(&repeat->key);
        give(repeat, sizeof *repeat);
        count(m, GW_COUNT_NO_MEMORY);
        return;
    }
    repeat->id = id;
    repeat->until = until;
    if (!map_put(&state->repeats, gw_octets_text(&repeat->key), id))
        count(m, GW_COUNT_NO_MEMORY);
    if (state->forget.count == 1)
        timer_set(m, &state->forgetting, until, TIMER_REPEATS, incoming->role);
}

void forget_repeats(struct gw_machine *m, unsigned role)
{
    struct role_state *state = &m->roles[role];
    while (state->forget.count) {
        struct repeat *repeat = slab_get(&m->repeats, state->forget.at[0]);
        if (repeat && repeat->until > m->now) {
            timer_set(m, &state->forgetting, repeat->until, TIMER_REPEATS, role);
            return;
        }
        forget_oldest(m, state);
    }
}

static void request_from(struct gw_machine *m, struct gw_incoming *incoming,
                         const struct gw_address *from)
{
    unsigned role = incoming->role;
    gw_id id = incoming->id;
    const struct gw_role *about = &m->program->roles[role];
    struct role_state *state = &m->roles[role];
    incoming->repeats = about->duplicates_count > 0;
    if (incoming->repeats) {
        if (!key_of(&incoming->repeat, incoming->view, about->duplicates,
                    about->duplicates_count) ||
            !add_address(&incoming->repeat, from)) {
            count(m, GW_COUNT_NO_MEMORY);
            incoming_free(m, incoming);
            return;
        }
        const struct repeat *before = repeat_of(m, role, gw_octets_text(&incoming->repeat));
        if (before) {
            count(m, GW_COUNT_DUPLICATES);
            incoming_free(m, incoming);
            send_octets(m, role, from, gw_octets_text(&before->octets));
            return;
        }
    }
    if (state->connections >= about->connections_max) {
        count(m, GW_COUNT_FULL);
        answer_by_datagram(m, about->full, incoming, from);
        incoming_free(m, incoming);
        return;
    }
    if (incoming->repeats)
        remember(m, incoming);
    state->connections++;
    incoming->requester = BY_PEER;
    incoming->peer = *from;
    incoming->purpose = REQUEST;
    dispatch(m, id);
    /* Where no handler runs, it is over already. */
    const struct gw_incoming *after = incoming_of(m, id);
    if (!after || !after->task)
        peer_is_served(m, role);
}

static void request_datagram(struct gw_machine *m, unsigned role, struct gw_address from,
                             struct gw_text octets)
{
    const struct gw_role *about = &m->program->roles[role];
    struct gw_incoming *wrong = NULL;
    for (unsigned kind = 0; kind < about->requests_count; kind++) {
        bool sound = false;
        struct gw_incoming *incoming =
            read_datagram(m, role, about->requests[kind].view, octets, &sound);
        if (sound) {
            if (wrong)
                incoming_free(m, wrong);
            request_from(m, incoming, &from);
            return;
        }
        if (incoming && wrong)
            incoming_free(m, incoming);
        else if (incoming)
            wrong = incoming;
    }
    if (wrong) {
        count(m, GW_COUNT_MALFORMED);
        answer_by_datagram(m, malformed_answer(about, wrong), wrong, &from);
        incoming_free(m, wrong);
    }
}

/* The exchange in the air that a datagram answers. */
static struct exchange *in_the_air(struct gw_machine *m, const struct gw_role *about,
                                   unsigned role, const struct gw_view *view,
                                   const struct gw_address *from)
{
    struct exchange *found = NULL;
    for (unsigned index = 0; !found && index < (about->async ? about->flow_count : 1); index++) {
        struct gw_octets flow = {0};
        bool whole = about->async ? flow_of(&flow, about, about->flow[index].view, view, true)
                                  : add_address(&flow, from);
        if (whole)
            found = exchange_of(m, map_get(&m->roles[role].air, gw_octets_text(&flow)));
        gw_octets_free(&flow);
    }
    return found;
}

static bool same_address(const struct gw_address *one, const struct gw_address *other)
{
    return one->port == other->port && one->six == other->six &&
           !memcmp(one->octets, other->octets, one->six ? 16 : 4);
}

static void response_datagram(struct gw_machine *m, unsigned role, struct gw_address from,
                              struct gw_text octets)
{
    const struct gw_role *about = &m->program->roles[role];
    bool sound = false;
    struct gw_incoming *incoming = read_datagram(m, role, about->response, octets, &sound);
    if (!incoming || !sound) {
        if (incoming)
            incoming_free(m, incoming);
        count(m, GW_COUNT_MALFORMED);
        return;
    }
    struct exchange *exchange = in_the_air(m, about, role, incoming->view, &from);
    if (exchange && (about->multicast || same_address(&exchange->to, &from))) {
        gw_id id = exchange->id;
        bool gather = exchange->gather;
        incoming->purpose = RESPONSE;
        incoming->exchange = id;
        response_begun(m, id, incoming->id);
        if (!gather)
            exchange_end(m, id);
        return;
    }
    for (unsigned kind = 0; kind < about->requests_count; kind++) {
        if (about->requests[kind].view == about->response) {
            request_from(m, incoming, &from);
            return;
        }
    }
    count(m, exchange ? GW_COUNT_STRANGERS : GW_COUNT_UNSOLICITED);
    incoming_free(m, incoming);
}

void gw_datagram(struct gw_machine *m, gw_time now, unsigned role, struct gw_address from,
                 struct gw_text octets)
{
    m->now = now;
    if (m->program->roles[role].client)
        response_datagram(m, role, from, octets);
    else
        request_datagram(m, role, from, octets);
    settle(m);
}

void answer_peer(struct gw_machine *m, struct gw_incoming *request, struct letter *letter)
{
    struct gw_text octets = gw_octets_text(&letter->octets);
    struct repeat *repeat =
        request->repeats ? repeat_of(m, request->role, gw_octets_text(&request->repeat)) : NULL;
    /* Where there is no answer, the last one for now stands. */
    if (repeat && octets.length) {
        gw_octets_free(&repeat->octets);
        gw_octets_add(&repeat->octets, octets);
    }
    send_octets(m, request->role, &request->peer, octets);
    letter_free(letter);
}

void peer_is_served(struct gw_machine *m, unsigned role)
{
    if (m->roles[role].connections)
        m->roles[role].connections--;
}

/* ---- Requests of ours ---- */

void begin_datagram(struct gw_machine *m, struct running *task)
{
    if (!task->target.name[0])
        send_datagram_to(m, task->id, &task->target.address);
    else if (!ask_name(m, &task->target, 0, task->id, &task->query))
        send_failed(m, task->id);
}

void send_datagram_to(struct gw_machine *m, gw_id id, const struct gw_address *to)
{
    struct running *task = task_of(m, id);
    if (!task || task->wait != WAIT_CONNECTION)
        return;
    unsigned role = task->task.role;
    const struct gw_role *about = &m->program->roles[role];
    struct role_state *state = &m->roles[role];
    struct letter *letter = task->letter;
    task->query = 0;
    if (!task->task.respond) {
        send_octets(m, role, to, gw_octets_text(&letter->octets));
        go_on(m, task, true);
        return;
    }
    if (!about->async) {
        gw_octets_free(&task->flow);
        if (!add_address(&task->flow, to)) {
            count(m, GW_COUNT_NO_MEMORY);
            send_failed(m, id);
            return;
        }
    }
    struct gw_text flow = gw_octets_text(&task->flow);
    if (state->air.count >= about->connections_max || map_get(&state->air, flow)) {
        count(m, GW_COUNT_NO_ROOM);
        send_failed(m, id);
        return;
    }
    struct exchange *exchange = exchange_new(m, task);
    if (!exchange || !map_put(&state->air, gw_octets_text(&exchange->flow), exchange->id)) {
        if (exchange) {
            count(m, GW_COUNT_NO_MEMORY);
            exchange_end(m, exchange->id);
        }
        send_failed(m, id);
        return;
    }
    exchange->by_datagram = true;
    exchange->to = *to;
    if (task->target.name[0] && (exchange->target = take_zeroed(sizeof *exchange->target)))
        *exchange->target = task->target;
    exchange->octets = letter->octets;
    letter->octets = (struct gw_octets){0};
    task->letter = NULL;
    letter_free(letter);
    if (about->retransmit_times) {
        exchange->left = about->retransmit_times;
        exchange->pause = about->retransmit_after;
        timer_set(m, &exchange->repetition, m->now + exchange->pause, TIMER_RETRANSMIT,
                  exchange->id);
    }
    send_octets(m, role, to, gw_octets_text(&exchange->octets));
}

void retransmit(struct gw_machine *m, gw_id id)
{
    struct exchange *exchange = exchange_of(m, id);
    if (!exchange || !exchange->left)
        return;
    const struct gw_role *about = &m->program->roles[exchange->role];
    exchange->left--;
    if (about->retransmit_doubling)
        exchange->pause *= 2;
    if (exchange->pause > about->retransmit_pause_max)
        exchange->pause = about->retransmit_pause_max;
    if (exchange->left)
        timer_set(m, &exchange->repetition, m->now + exchange->pause, TIMER_RETRANSMIT, id);
    count(m, GW_COUNT_RETRANSMITTED);
    send_octets(m, exchange->role, &exchange->to, gw_octets_text(&exchange->octets));
}
