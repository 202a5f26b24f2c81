/* Messages that are written: holes to octets. */
#include "inside.h"

bool gw_begin(struct gw_build *b, unsigned role, const struct gw_message *message)
{
    b->role = role;
    gw_view_free(b->view);
    b->view = gw_view_new(message);
    b->stream = 0;
    b->lost = b->numbered = false;
    return b->view != NULL;
}

void gw_fill(struct gw_build *b, struct gw_slot *hole, const struct gw_slot *value)
{
    if (value->field->bounds.kind == GW_LIST)
        hole->set = hole->settled = true;
    if (!gw_set_copy(b->view, hole, value))
        b->lost = true;
}

void gw_fill_number(struct gw_build *b, struct gw_slot *hole, int64_t value)
{
    (void)b;
    gw_set_number(hole, value);
}

void gw_fill_text(struct gw_build *b, struct gw_slot *hole, struct gw_text value)
{
    if (!gw_set_octets(b->view, hole, value))
        b->lost = true;
}

void gw_fill_fresh(struct gw_build *b, struct gw_slot *hole)
{
    if (!b->numbered)
        b->number = ++b->machine->roles[b->role].fresh;
    b->numbered = true;
    uint32_t number = b->number;
    const struct gw_bounds *bounds = &hole->field->bounds;
    if (bounds->kind == GW_INT) {
        uint64_t range = (uint64_t)bounds->high - (uint64_t)bounds->low;
        range = range >= INT64_MAX ? INT64_MAX : range + 1;
        int64_t above = ((int64_t)number - bounds->low) % (int64_t)range;
        gw_set_number(hole, bounds->low + (above < 0 ? above + (int64_t)range : above));
        return;
    }
    uint8_t octets[4] = {(uint8_t)(number >> 24), (uint8_t)(number >> 16), (uint8_t)(number >> 8),
                         (uint8_t)number};
    gw_fill_text(b, hole, (struct gw_text){octets, sizeof octets});
}

void gw_fill_stream(struct gw_build *b, struct gw_slot *hole, const struct gw_slot *message)
{
    gw_set_passing(hole);
    b->stream = message->from;
}

static const struct gw_field absent_field = {.name = ""};
static const struct gw_slot absent = {.field = &absent_field};

const struct gw_slot *gw_asked(struct gw_build *b, unsigned index)
{
    const struct gw_view *view = b->request ? b->request->view : NULL;
    return view && index < view->message->count ? gw_view_look(view, index) : &absent;
}

bool finish_build(struct gw_build *b, struct letter *letter)
{
    struct gw_writer writer;
    struct gw_incoming *from = incoming_of(b->machine, b->stream);
    bool there = from && from->passing == HELD && from->reader.streaming;
    /* A stream whose octets went by already cannot be passed on. */
    bool sound = !b->lost && (!b->stream || there) && gw_write(&writer, b->view, &letter->octets);
    if (sound && writer.streaming) {
        letter->streams = true;
        letter->writer = writer.stream;
        letter->from = b->stream;
    }
    gw_view_free(b->view);
    b->view = NULL;
    return sound;
}

static void add_number(struct gw_octets *key, uint64_t number, unsigned octets)
{
    uint8_t *at = gw_octets_grow(key, octets);
    for (unsigned index = 0; at && index < octets; index++)
        at[octets - 1 - index] = (uint8_t)(number >> 8 * index);
}

void add_value(struct gw_octets *key, const struct gw_slot *slot)
{
    enum gw_kind kind = slot->field->bounds.kind;
    if (!slot->set || (kind != GW_INT && kind != GW_OCTETS)) {
        gw_octets_add(key, GW_TEXT("-"));
    } else if (kind == GW_INT) {
        gw_octets_add(key, GW_TEXT("i"));
        add_number(key, (uint64_t)slot->number, 8);
    } else {
        gw_octets_add(key, GW_TEXT("o"));
        add_number(key, slot->length, 4);
        gw_octets_add(key, gw_text_of(slot));
    }
}

bool key_of(struct gw_octets *key, const struct gw_view *view, const struct gw_key *keys,
            unsigned of)
{
    for (unsigned index = 0; index < of; index++)
        if (keys[index].view == view->message)
            add_value(key, gw_view_look(view, keys[index].request));
    return !key->lost;
}

bool flow_of(struct gw_octets *flow, const struct gw_role *about, const struct gw_message *request,
             const struct gw_view *view, bool response)
{
    bool first = true;
    for (unsigned index = 0; index < about->flow_count; index++) {
        const struct gw_key *key = &about->flow[index];
        if (key->view != request)
            continue;
        if (first)
            add_number(flow, index, 1);
        first = false;
        add_value(flow, gw_view_look(view, response ? key->response : key->request));
    }
    return !flow->lost;
}
