/* The machine as a whole: what is done in which order, and what comes out. */
#include "inside.h"

#include <string.h>

static uint16_t port_of(struct gw_text text)
{
    uint32_t port = 0;
    if (!text.length || text.length > 5)
        return 0;
    for (size_t at = 0; at < text.length; at++) {
        if (text.at[at] < '0' || text.at[at] > '9')
            return 0;
        port = port * 10 + (uint32_t)(text.at[at] - '0');
    }
    return port <= 65535 ? (uint16_t)port : 0;
}

/* Four decimal numbers with dots; false if it is something else. */
static bool read_four(struct gw_text text, uint8_t octets[16])
{
    unsigned parts = 0, digits = 0, value = 0;
    for (size_t at = 0; at <= text.length; at++) {
        uint8_t c = at < text.length ? text.at[at] : '.';
        if (c == '.' && digits && parts < 4) {
            octets[parts++] = (uint8_t)value;
            digits = value = 0;
        } else if (c >= '0' && c <= '9' && digits < 3) {
            value = value * 10 + (unsigned)(c - '0');
            digits++;
            if (value > 255 || (digits > 1 && value < 10))
                return false;
        } else {
            return false;
        }
    }
    return parts == 4 && text.length && text.at[text.length - 1] != '.';
}

static int hex(uint8_t octet)
{
    if (octet >= '0' && octet <= '9')
        return octet - '0';
    octet |= 0x20;
    return octet >= 'a' && octet <= 'f' ? octet - 'a' + 10 : -1;
}

/* RFC 4291 §2.2, without the form that ends like IPv4. */
static bool read_six(struct gw_text text, uint8_t octets[16])
{
    uint16_t groups[8] = {0};
    unsigned count = 0, gap = 8, digits = 0, value = 0;
    for (size_t at = 0; at <= text.length; at++) {
        bool end = at == text.length;
        if (!end && hex(text.at[at]) >= 0 && digits < 4) {
            value = value << 4 | (unsigned)hex(text.at[at]);
            digits++;
            continue;
        }
        if (!end && text.at[at] != ':')
            return false;
        if (digits) {
            if (count == 8)
                return false;
            groups[count++] = (uint16_t)value;
            digits = value = 0;
            if (!end && at + 1 == text.length)
                return false;
        } else if (!end) {
            bool first = at == 0 && text.length > 1 && text.at[1] == ':';
            if (first)
                continue;
            if (gap < 8)
                return false;
            gap = count;
        }
    }
    if (gap == 8 ? count != 8 : count > 7)
        return false;
    for (unsigned index = 0; index < 8; index++) {
        unsigned skipped = 8 - count;
        unsigned group = index < gap ? index : index < gap + skipped ? 8 : index - skipped;
        octets[2 * index] = group < 8 ? (uint8_t)(groups[group] >> 8) : 0;
        octets[2 * index + 1] = group < 8 ? (uint8_t)groups[group] : 0;
    }
    return true;
}

static bool is_name(struct gw_text text)
{
    for (size_t at = 0; at < text.length; at++) {
        uint8_t c = text.at[at] | 0x20;
        bool fits = (c >= 'a' && c <= 'z') || (text.at[at] >= '0' && text.at[at] <= '9') ||
                    text.at[at] == '-' || text.at[at] == '.' || text.at[at] == '_';
        if (!fits)
            return false;
    }
    return text.length && text.length <= GW_NAME_MAX;
}

bool gw_target_read(struct gw_target *target, struct gw_text text)
{
    *target = (struct gw_target){0};
    size_t colon = text.length;
    while (colon && text.at[colon - 1] != ':')
        colon--;
    if (!colon)
        return false;
    struct gw_text host = {text.at, colon - 1};
    target->address.port = port_of((struct gw_text){text.at + colon, text.length - colon});
    if (!target->address.port || !host.length)
        return false;
    if (host.at[0] == '[' && host.at[host.length - 1] == ']') {
        target->address.six = true;
        return read_six((struct gw_text){host.at + 1, host.length - 2}, target->address.octets);
    }
    if (read_four(host, target->address.octets))
        return true;
    memset(target->address.octets, 0, sizeof target->address.octets);
    if (!is_name(host))
        return false;
    memcpy(target->name, host.at, host.length);
    return true;
}

static struct gw_text text_of(const char *string)
{
    return (struct gw_text){(const uint8_t *)string, strlen(string)};
}

static void widen(struct gw_machine *m, const struct gw_message *message)
{
    if (!message || message->datagram)
        return;
    if (message->window_max > m->window)
        m->window = message->window_max;
}

/* Room for the longest stretch that some reader must see at once, and no less than two pages. */
static void find_window(struct gw_machine *m)
{
    m->window = BUFFER_OCTETS;
    for (unsigned role = 0; role < m->program->roles_count; role++) {
        const struct gw_role *about = &m->program->roles[role];
        widen(m, about->response);
        for (unsigned kind = 0; kind < about->requests_count; kind++)
            widen(m, about->requests[kind].view);
    }
}

static void start_clocks(struct gw_machine *m)
{
    unsigned clock = 0;
    for (unsigned index = 0; index < m->program->handlers_count; index++) {
        const struct gw_handler *handler = m->program->handlers[index];
        if (!handler->period)
            continue;
        m->clocks[clock].handler = handler;
        timer_set(m, &m->clocks[clock].timer, m->now + handler->period, TIMER_EVERY, clock);
        clock++;
    }
    m->clocks_count = clock;
}

/* As many timers as may be set at once: a connection, a handler and a session has one, an exchange
   two. */
static size_t timers_max(const struct gw_machine *m)
{
    return m->program->handlers_count + m->program->roles_count + m->conns.used + m->tasks.used +
           m->sessions.used + 2 * (size_t)m->exchanges.used;
}

gw_id thing_add(struct gw_machine *m, struct slab *slab, void *thing)
{
    gw_id id = slab_add(slab, thing);
    if (id && timers_fit(&m->timers, timers_max(m)))
        return id;
    slab_take(slab, id);
    return 0;
}

struct gw_machine *gw_machine_new(gw_time now, const struct gw_program *program, uint32_t seed)
{
    struct gw_machine *m = take_zeroed(sizeof *m);
    if (!m)
        return NULL;
    m->now = now;
    m->program = program;
    m->work.each = sizeof(struct work);
    m->turns.each = sizeof(gw_id);
    m->outputs.each = sizeof(struct gw_output);
    m->roles = take_zeroed(program->roles_count * sizeof *m->roles);
    m->clocks = take_zeroed(program->handlers_count * sizeof *m->clocks);
    m->handled = take_zeroed(program->handlers_count * sizeof *m->handled);
    if (!m->roles || !m->clocks || !m->handled || !timers_fit(&m->timers, timers_max(m)))
        return NULL;
    for (unsigned role = 0; role < program->roles_count; role++) {
        m->roles[role].fresh = seed;
        if (!gw_target_read(&m->roles[role].address, text_of(program->roles[role].address)))
            return NULL;
    }
    find_window(m);
    start_clocks(m);
    return m;
}

bool gw_machine_address(struct gw_machine *m, unsigned role, const char *address)
{
    return gw_target_read(&m->roles[role].address, text_of(address));
}

const struct gw_target *gw_machine_target(const struct gw_machine *m, unsigned role)
{
    return &m->roles[role].address;
}

void gw_machine_free(struct gw_machine *m)
{
    for (uint32_t index = 0; index < m->conns.room; index++)
        if (m->conns.at[index])
            conn_drop(m, ((struct conn *)m->conns.at[index])->id, true);
    settle(m);
    for (uint32_t index = 0; index < m->tasks.room; index++)
        if (m->tasks.at[index])
            task_end(m, ((struct running *)m->tasks.at[index])->id);
    settle(m);
    for (uint32_t index = 0; index < m->sessions.room; index++)
        if (m->sessions.at[index])
            session_end(m, ((struct session *)m->sessions.at[index])->id);
    struct gw_output output;
    while (gw_poll(m, &output))
        gw_octets_free(&output.octets);
    for (uint32_t index = 0; index < m->queries.room; index++)
        if (m->queries.at[index])
            give(m->queries.at[index], sizeof(struct query));
    m->now = UINT64_MAX;
    for (unsigned role = 0; role < m->program->roles_count; role++) {
        struct role_state *state = &m->roles[role];
        forget_repeats(m, role);
        map_free(&state->air);
        map_free(&state->repeats);
        ids_free(&state->kept);
        ids_free(&state->shared);
        ids_free(&state->forget);
    }
    struct slab *slabs[] = {&m->conns,     &m->incomings, &m->tasks,  &m->sessions,
                            &m->exchanges, &m->queries,   &m->repeats,
                            &m->holders};
    for (unsigned index = 0; index < sizeof slabs / sizeof *slabs; index++)
        slab_free(slabs[index]);
    map_free(&m->keyed);
    map_free(&m->stored);
    give(m->timers.heap, m->timers.room * sizeof *m->timers.heap);
    give(m->work.at, m->work.room * m->work.each);
    give(m->outputs.at, m->outputs.room * m->outputs.each);
    give(m->turns.at, m->turns.room * m->turns.each);
    give(m->clocks, m->program->handlers_count * sizeof *m->clocks);
    give(m->handled, m->program->handlers_count * sizeof *m->handled);
    give(m->roles, m->program->roles_count * sizeof *m->roles);
    give(m, sizeof *m);
}

void work_add(struct gw_machine *m, int kind, gw_id of)
{
    struct work work = {.of = of};
    work.kind = kind == WORK_RUN ? WORK_RUN : WORK_READ;
    if (of && !queue_add(&m->work, &work)) {
        count(m, GW_COUNT_NO_MEMORY);
        m->missed = true;
    }
}

bool output_add(struct gw_machine *m, const struct gw_output *output)
{
    /* Nothing comes before the end of a connection that was over before it. */
    bool room = !m->unclosed && queue_add(&m->outputs, output);
    if (!room)
        count(m, GW_COUNT_NO_MEMORY);
    return room;
}

bool gw_poll(struct gw_machine *m, struct gw_output *output)
{
    if (queue_take(&m->outputs, output))
        return true;
    struct conn *over = m->unclosed;
    if (!over)
        return false;
    *output = (struct gw_output){.kind = GW_CLOSE, .id = over->id, .reset = over->reset};
    m->unclosed = over->next;
    give(over, sizeof *over);
    return true;
}

bool gw_poll_timeout(const struct gw_machine *m, gw_time *at)
{
    if (!m->turns.count && !m->timers.count)
        return false;
    *at = m->turns.count ? m->now : m->timers.heap[1]->at;
    return true;
}

static void work_off(struct gw_machine *m)
{
    struct work work;
    while (queue_take(&m->work, &work)) {
        if (work.kind == WORK_RUN)
            task_run(m, work.of);
        else
            read_on(m, work.of);
    }
}

/* Does what whoever there is may have to do. */
static void look_at_all(struct gw_machine *m)
{
    for (uint32_t index = 0; index < m->tasks.room; index++)
        if (m->tasks.at[index])
            task_run(m, ((struct running *)m->tasks.at[index])->id);
    for (uint32_t index = 0; index < m->conns.room; index++)
        if (m->conns.at[index])
            read_on(m, ((struct conn *)m->conns.at[index])->id);
}

void settle(struct gw_machine *m)
{
    work_off(m);
    while (m->missed) {
        m->missed = false;
        look_at_all(m);
        work_off(m);
    }
    if (m->draining)
        drop_resting(m);
}

static void strike(struct gw_machine *m, unsigned at)
{
    struct clock *clock = &m->clocks[at];
    if (m->draining)
        return;
    timer_set(m, &clock->timer, m->now + clock->handler->period, TIMER_EVERY, at);
    if (clock->running) {
        count(m, GW_COUNT_SKIPPED);
        return;
    }
    struct running *task = task_start(m, clock->handler, BY_CLOCK, 0, at);
    clock->running = task ? task->id : 0;
}

void turn_is_over(struct gw_machine *m, unsigned clock)
{
    m->clocks[clock].running = 0;
    if (m->draining)
        session_end(m, m->clocks[clock].session);
}

void gw_drain(struct gw_machine *m, gw_time now)
{
    gw_id kept;
    m->now = now;
    m->draining = true;
    for (unsigned role = 0; role < m->program->roles_count; role++)
        while ((kept = ids_first(&m->roles[role].kept)))
            conn_drop(m, kept, false);
    for (unsigned clock = 0; clock < m->clocks_count; clock++)
        if (!m->clocks[clock].running)
            turn_is_over(m, clock);
    settle(m);
}

bool gw_is_idle(const struct gw_machine *m)
{
    return !m->conns.used && !m->tasks.used && !m->exchanges.used;
}

const struct gw_handled *gw_handled(const struct gw_machine *m, unsigned handler)
{
    return &m->handled[handler];
}

void gw_handle_timeout(struct gw_machine *m, gw_time now)
{
    m->now = now;
    while (m->timers.count && m->timers.heap[1]->at <= now) {
        struct timer *timer = m->timers.heap[1];
        enum timer_kind kind = timer->kind;
        gw_id of = timer->of;
        timer_cancel(m, timer);
        switch (kind) {
        case TIMER_TASK:
            wait_is_over(m, of);
            break;
        case TIMER_CONN:
            conn_is_silent(m, of);
            break;
        case TIMER_RETRANSMIT:
            retransmit(m, of);
            break;
        case TIMER_EXCHANGE:
            exchange_is_late(m, of);
            break;
        case TIMER_SESSION:
            session_is_unused(m, of);
            break;
        case TIMER_EVERY:
            strike(m, (unsigned)of);
            break;
        case TIMER_REPEATS:
            forget_repeats(m, (unsigned)of);
            break;
        }
        settle(m);
    }
    gw_id next;
    if (queue_take(&m->turns, &next)) {
        take_turn(m, next);
        settle(m);
    }
}

uint64_t gw_counted(const struct gw_machine *m, enum gw_count what) { return m->counts[what]; }

const char *gw_count_name(enum gw_count what)
{
    static const char *const names[GW_COUNTS] = {
        "accepted",  "full",        "malformed",     "unbuildable",   "idle_closed",
        "broken",    "connected",   "connect_failed", "reused",       "replaced",
        "no_room",   "late",        "retransmitted", "duplicates",    "unsolicited",
        "strangers", "sessions_full", "unresolved", "every_skipped", "untold",
        "no_memory",
    };
    return names[what];
}
