/* What handlers call: values, tests, and the waits that they end a stretch with. */
#include "inside.h"

static struct running *inside(struct gw_task *t) { return (struct running *)t; }

void gw_set(struct gw_task *t, struct gw_slot *into, const struct gw_slot *value)
{
    struct gw_machine *m = t->build.machine;
    if (into == value)
        return;
    if (value->field->bounds.kind == GW_MESSAGE) {
        struct gw_incoming *message = value->set ? incoming_of(m, value->from) : NULL;
        if (message)
            set_message(m, into, message);
        return;
    }
    gw_clear(into);
    if (!gw_set_copy(t->values, into, value))
        inside(t)->fails = true;
}

void gw_set_text(struct gw_task *t, struct gw_slot *into, struct gw_text value)
{
    /* Nothing is not what the program says: the handler fails where it stops next. */
    if (!gw_set_octets(t->values, into, value))
        inside(t)->fails = true;
}

void gw_compute(struct gw_slot *into, int64_t value)
{
    const struct gw_bounds *bounds = &into->field->bounds;
    int64_t high = bounds->high > bounds->low ? bounds->high : bounds->low;
    gw_set_number(into, value < bounds->low ? bounds->low : value > high ? high : value);
}

int64_t gw_add(int64_t one, int64_t other)
{
    if (other > 0 && one > INT64_MAX - other)
        return INT64_MAX;
    return other < 0 && one < INT64_MIN - other ? INT64_MIN : one + other;
}

int64_t gw_subtract(int64_t one, int64_t other)
{
    if (other < 0 && one > INT64_MAX + other)
        return INT64_MAX;
    return other > 0 && one < INT64_MIN + other ? INT64_MIN : one - other;
}

int64_t gw_multiply(int64_t one, int64_t other)
{
    if (!one || !other)
        return 0;
    bool negative = (one < 0) != (other < 0);
    uint64_t left = one < 0 ? 0 - (uint64_t)one : (uint64_t)one;
    uint64_t right = other < 0 ? 0 - (uint64_t)other : (uint64_t)other;
    uint64_t most = negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX;
    if (left > most / right)
        return negative ? INT64_MIN : INT64_MAX;
    uint64_t product = left * right;
    if (!negative)
        return (int64_t)product;
    return product == (uint64_t)INT64_MAX + 1 ? INT64_MIN : -(int64_t)product;
}

int64_t gw_divide(int64_t one, int64_t other)
{
    bool over = !other || (one == INT64_MIN && other == -1);
    return over ? INT64_MAX : one / other;
}

int64_t gw_modulo(int64_t one, int64_t other)
{
    return !other || other == -1 ? 0 : one % other;
}

void gw_piece(struct gw_task *t, struct gw_text text)
{
    if (!gw_octets_add(&t->text, text))
        count(t->build.machine, GW_COUNT_NO_MEMORY);
}

void gw_piece_number(struct gw_task *t, int64_t value)
{
    struct gw_writer writer;
    gw_piece(t, gw_decimal(&writer, value));
}

void gw_formatted(struct gw_task *t, struct gw_slot *into)
{
    /* A part of a text is not what the program says: the handler fails where it stops next. */
    if (t->text.lost)
        inside(t)->fails = true;
    gw_set_text(t, into, gw_octets_text(&t->text));
    gw_octets_free(&t->text);
}

void gw_hex(struct gw_task *t, struct gw_slot *into, struct gw_text of)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t at = 0; at < of.length; at++) {
        const char *high = digits + (of.at[at] >> 4), *low = digits + (of.at[at] & 15);
        gw_piece(t, (struct gw_text){(const uint8_t *)high, 1});
        gw_piece(t, (struct gw_text){(const uint8_t *)low, 1});
    }
    gw_formatted(t, into);
}

void gw_folded(struct gw_task *t, struct gw_slot *into, struct gw_text of, enum gw_fold how)
{
    gw_set_text(t, into, of);
    gw_fold(into->octets, into->length, how);
}

struct gw_text gw_first(struct gw_text text, uint32_t octets)
{
    return (struct gw_text){text.at, text.length < octets ? text.length : octets};
}

bool gw_try(struct gw_task *t, struct gw_slot *into, const struct gw_slot *value)
{
    if (value->set)
        gw_set(t, into, value);
    return value->set;
}

static bool is_blank(uint8_t octet) { return octet == ' ' || octet == '\t'; }

/* What follows the first octets, without the blanks at both ends. */
static void set_behind(struct gw_task *t, struct gw_slot *into, struct gw_text of, size_t octets)
{
    struct gw_text rest = {of.at ? of.at + octets : NULL, of.length - octets};
    while (rest.length && is_blank(rest.at[0])) {
        rest.at++;
        rest.length--;
    }
    while (rest.length && is_blank(rest.at[rest.length - 1]))
        rest.length--;
    gw_set_text(t, into, rest);
}

bool gw_after(struct gw_task *t, struct gw_slot *into, struct gw_text of, struct gw_text prefix)
{
    if (of.length < prefix.length)
        return false;
    for (size_t at = 0; at < prefix.length; at++) {
        uint8_t one = of.at[at], other = prefix.at[at];
        bool letter = (one | 0x20) >= 'a' && (one | 0x20) <= 'z';
        if (one != other && !(letter && (one | 0x20) == (other | 0x20)))
            return false;
    }
    set_behind(t, into, of, prefix.length);
    return true;
}

bool gw_joined(struct gw_task *t, struct gw_slot *into, const struct gw_slot *list,
               struct gw_text separator, uint32_t max)
{
    struct gw_octets whole = {0};
    bool sound = true;
    for (int64_t row = 0; sound && row < gw_rows(list); row++) {
        const struct gw_cell *cell = &list->cells[row];
        if (row)
            sound = gw_octets_add(&whole, separator);
        sound = sound && gw_octets_add(&whole, (struct gw_text){cell->at, cell->length});
    }
    struct gw_text text = gw_octets_text(&whole);
    sound = sound && text.length <= max;
    if (sound)
        gw_set_text(t, into, text);
    gw_octets_free(&whole);
    return sound;
}

bool gw_next_part(struct gw_task *t, struct gw_text of, struct gw_text separator,
                  struct gw_slot *cursor, struct gw_slot *into)
{
    size_t at = cursor->set ? (size_t)cursor->number : 0;
    if (at > of.length)
        return false;
    size_t end = at;
    while (end + separator.length <= of.length &&
           !gw_same((struct gw_text){of.at + end, separator.length}, separator))
        end++;
    if (end + separator.length > of.length)
        end = of.length;
    gw_set_text(t, into, (struct gw_text){of.at ? of.at + at : NULL, end - at});
    gw_set_number(cursor, (int64_t)(end + separator.length));
    return true;
}

bool gw_past(struct gw_task *t, struct gw_slot *into, struct gw_text of, struct gw_text delimiter)
{
    for (size_t at = 0; at + delimiter.length <= of.length; at++) {
        if (gw_same((struct gw_text){of.at + at, delimiter.length}, delimiter)) {
            set_behind(t, into, of, at + delimiter.length);
            return true;
        }
    }
    return false;
}

bool gw_before(struct gw_task *t, struct gw_slot *into, struct gw_text of,
               struct gw_text delimiter)
{
    for (size_t at = 0; at + delimiter.length <= of.length; at++) {
        if (gw_same((struct gw_text){of.at + at, delimiter.length}, delimiter)) {
            gw_set_text(t, into, (struct gw_text){of.at, at});
            return true;
        }
    }
    return false;
}

static void set_cell(struct gw_task *t, struct gw_slot *into, const struct gw_slot *list,
                     int64_t row, unsigned column)
{
    if (list->field->column[column].kind == GW_INT)
        gw_set_number(into, gw_cell_number(list, row, column));
    else
        gw_set_text(t, into, gw_cell_text(list, row, column));
}

bool gw_item(struct gw_task *t, struct gw_slot *into, const struct gw_slot *list, int64_t index,
             unsigned column)
{
    if (index < 1 || index > gw_rows(list) || column >= list->field->columns)
        return false;
    set_cell(t, into, list, index - 1, column);
    return true;
}

bool gw_decimal_of(struct gw_slot *into, struct gw_text of, int64_t high)
{
    int64_t value = 0;
    for (size_t at = 0; at < of.length; at++) {
        if (of.at[at] < '0' || of.at[at] > '9' || value > (INT64_MAX - 9) / 10)
            return false;
        value = value * 10 + (of.at[at] - '0');
    }
    if (!of.length || value > high)
        return false;
    gw_set_number(into, value);
    return true;
}

static bool push_cell(struct gw_task *t, struct gw_slot *list, struct gw_cell cell)
{
    return list->length < list->field->bounds.max && gw_add_row(t->values, list, &cell);
}

bool gw_push(struct gw_task *t, struct gw_slot *list, const struct gw_slot *value)
{
    if (!value->set)
        return false;
    if (value->field->bounds.kind == GW_INT)
        return gw_push_number(t, list, value->number);
    return gw_push_text(t, list, gw_text_of(value));
}

bool gw_push_number(struct gw_task *t, struct gw_slot *list, int64_t value)
{
    return push_cell(t, list, (struct gw_cell){.number = value});
}

bool gw_push_text(struct gw_task *t, struct gw_slot *list, struct gw_text value)
{
    return push_cell(t, list, gw_cell_of(value));
}

bool gw_next(struct gw_task *t, const struct gw_slot *list, struct gw_slot *cursor, unsigned of,
             struct gw_slot *const *into)
{
    int64_t taken = gw_number(cursor);
    if (taken < 0 || taken >= gw_rows(list))
        return false;
    for (unsigned column = 0; column < of && column < list->field->columns; column++)
        set_cell(t, into[column], list, taken, column);
    gw_set_number(cursor, taken + 1);
    return true;
}

/* ---- Connections of the session ---- */

static gw_id conn_to(struct gw_machine *m, struct running *task, unsigned role)
{
    const struct session *session = session_of(m, task);
    for (uint32_t at = 0; session && at < session->conns.count; at++) {
        const struct conn *conn = conn_of(m, session->conns.at[at]);
        if (conn && conn->role == role)
            return conn->id;
    }
    return 0;
}

void gw_release(struct gw_task *t, unsigned role)
{
    struct gw_machine *m = t->build.machine;
    let_go_when_free(m, conn_to(m, inside(t), role));
}

void gw_hang_up(struct gw_task *t, unsigned role)
{
    struct gw_machine *m = t->build.machine;
    hang_up(m, conn_to(m, inside(t), role));
}

/* ---- Sending, waiting, ending ---- */

/* What a handler built as a letter; NULL if it cannot be. */
static struct letter *written(struct gw_task *t, unsigned role, struct gw_octets *flow)
{
    struct gw_machine *m = t->build.machine;
    const struct gw_role *about = &m->program->roles[role];
    struct letter *letter = letter_new();
    bool sound = letter && (!flow || flow_of(flow, about, t->build.view->message, t->build.view, false));
    if (sound && finish_build(&t->build, letter))
        return letter;
    letter_free(letter);
    count(m, GW_COUNT_UNBUILDABLE);
    return NULL;
}

bool gw_provisional(struct gw_task *t)
{
    struct gw_machine *m = t->build.machine;
    struct running *task = inside(t);
    struct gw_incoming *request = incoming_of(m, task->request);
    struct letter *letter = request ? written(t, task->role, NULL) : NULL;
    if (!letter)
        return false;
    if (request->requester == BY_CONN) {
        put(m, request->answer_to, letter);
        return true;
    }
    if (request->requester == BY_PEER)
        answer_peer(m, request, letter);
    else
        letter_free(letter);
    return true;
}

bool gw_settled(struct gw_task *t, const struct gw_slot *message, unsigned of,
                const uint16_t *slots)
{
    struct gw_machine *m = t->build.machine;
    struct gw_incoming *incoming = message->set ? incoming_of(m, message->from) : NULL;
    bool settled = message->set;
    for (unsigned index = 0; settled && index < of; index++)
        settled = gw_view_look(message->message, slots[index])->settled;
    if (settled)
        return true;
    if (!incoming || !incoming->conn) {
        inside(t)->fails = true;
        return false;
    }
    incoming->reader.goal = GW_TO_SETTLED;
    incoming->reader.goal_slots = slots;
    incoming->reader.goal_count = (uint16_t)of;
    inside(t)->wait = WAIT_SLOTS;
    work_add(m, WORK_READ, incoming->conn);
    return false;
}

void gw_address(struct gw_task *t, struct gw_text address)
{
    t->addressed = true;
    t->address = address;
}

static enum gw_stop send_to(struct gw_task *t, unsigned role, gw_time within, unsigned then,
                            unsigned otherwise)
{
    struct gw_machine *m = t->build.machine;
    struct running *task = inside(t);
    t->role = role;
    t->block = then;
    t->otherwise = otherwise;
    gw_octets_free(&task->flow);
    letter_free(task->letter);
    task->letter = written(t, role, &task->flow);
    if (!task->letter)
        return GW_FAILS;
    task->target = m->roles[role].address;
    bool sound = !t->addressed || gw_target_read(&task->target, t->address);
    t->addressed = false;
    if (!sound) {
        letter_free(task->letter);
        task->letter = NULL;
        go_on(m, task, false);
        return GW_WAITS;
    }
    task->new_only = false;
    task->deadline = m->now + within;
    return GW_SENDS;
}

enum gw_stop gw_send(struct gw_task *t, unsigned role, gw_time within, struct gw_slot *into,
                     unsigned then, unsigned otherwise)
{
    t->into = into;
    t->respond = into != NULL;
    t->gather_max = 0;
    return send_to(t, role, within, then, otherwise);
}

enum gw_stop gw_gather(struct gw_task *t, unsigned role, gw_time within, uint32_t max,
                       struct gw_slot *into, unsigned body, unsigned done)
{
    struct running *task = inside(t);
    t->into = into;
    t->respond = true;
    t->gather_max = max;
    task->gather_into = into;
    task->gather_body = body;
    task->gather_done = done;
    return send_to(t, role, within, body, done);
}

enum gw_stop gw_next_response(struct gw_task *t)
{
    (void)t;
    return GW_GATHERS;
}

enum gw_stop gw_receive(struct gw_task *t, const struct gw_message *view, gw_time within,
                        struct gw_slot *into, unsigned then, unsigned otherwise)
{
    t->receives = view;
    t->within = within;
    t->into = into;
    t->block = then;
    t->otherwise = otherwise;
    return GW_RECEIVES;
}

enum gw_stop gw_sleep(struct gw_task *t, gw_time period, unsigned then)
{
    t->within = period;
    t->block = t->otherwise = then;
    return GW_SLEEPS;
}

enum gw_stop gw_return(struct gw_task *t, bool answers, bool close)
{
    struct running *task = inside(t);
    t->answers = answers;
    t->close = close;
    if (!answers)
        return GW_RETURNS;
    letter_free(task->letter);
    task->letter = written(t, task->role, NULL);
    return task->letter ? GW_RETURNS : GW_FAILS;
}
