/*
 * Steps of the pass over a message that has arrived whole: without the means to wait, and inline, so that
 * a field is no call. `gw_message.h` includes this.
 *
 * A pass is an attempt for the whole message. If anything is missing or wrong, its steps say so (false),
 * and the message is read from its beginning by the steps of `gw_read.h`, which wait or find what is
 * wrong. So a message is read alike however it was cut.
 */
#ifndef GW_WHOLE_H
#define GW_WHOLE_H

#include <string.h>

/* The deepest nesting of regions that a pass reads: MQTT has two, Modbus one. */
#define GW_WHOLE_DEPTH 4

/* Where the pass is. The end is that of the innermost region, or of what has arrived. */
struct gw_pass {
    const uint8_t *at, *end;
    const uint8_t *outer[GW_WHOLE_DEPTH]; /* the ends around it */
    uint64_t word;
    uint32_t counts[GW_COUNTERS_MAX];
};

static inline size_t gw_whole_left(const struct gw_pass *p) { return (size_t)(p->end - p->at); }

static inline bool gw_whole_set(struct gw_slot *into, int64_t value, int64_t low, int64_t high)
{
    if (value < low || value > high)
        return false;
    into->number = value;
    into->set = true;
    return true;
}

static inline bool gw_whole_word(struct gw_pass *p, unsigned octets, enum gw_order order)
{
    if (gw_whole_left(p) < octets)
        return false;
    p->word = gw_reader_in_order((struct gw_text){p->at, octets}, order);
    p->at += octets;
    return true;
}

static inline bool gw_whole_bits(struct gw_pass *p, unsigned shift, unsigned width, int64_t low,
                                 int64_t high, struct gw_slot *into)
{
    uint64_t field = p->word >> shift & UINT64_MAX >> (64 - width);
    return field <= INT64_MAX && gw_whole_set(into, (int64_t)field, low, high);
}

static inline bool gw_whole_bits_are(struct gw_pass *p, unsigned shift, unsigned width,
                                     int64_t expected)
{
    uint64_t field = p->word >> shift & UINT64_MAX >> (64 - width);
    return field <= INT64_MAX && (int64_t)field == expected;
}

static inline bool gw_whole_signed_bits(struct gw_pass *p, unsigned shift, unsigned width,
                                        int64_t low, int64_t high, struct gw_slot *into)
{
    return gw_whole_set(into, gw_reader_signed(p->word, shift, width), low, high);
}

static inline bool gw_whole_signed_bits_are(struct gw_pass *p, unsigned shift, unsigned width,
                                            int64_t expected)
{
    return gw_reader_signed(p->word, shift, width) == expected;
}

static inline bool gw_whole_literal(struct gw_pass *p, struct gw_text wanted)
{
    if (gw_whole_left(p) < wanted.length || memcmp(p->at, wanted.at, wanted.length))
        return false;
    p->at += wanted.length;
    return true;
}

/* Whether the octets come next; then they are used. */
static inline bool gw_whole_peek(struct gw_pass *p, struct gw_text wanted)
{
    return gw_whole_literal(p, wanted);
}

static inline bool gw_whole_varint(struct gw_pass *p, unsigned max, int64_t low, int64_t high,
                                   struct gw_slot *into)
{
    int64_t value = 0;
    for (unsigned at = 0; at < max && p->at < p->end; at++) {
        uint8_t octet = *p->at++;
        value |= (int64_t)(octet & 0x7f) << 7 * at;
        if (!(octet & 0x80))
            return gw_whole_set(into, value, low, high);
    }
    return false;
}

static inline bool gw_whole_extend(struct gw_pass *p, int64_t low, int64_t high,
                                   struct gw_slot *slot, unsigned count,
                                   const struct gw_escape *escapes)
{
    if (!slot->set)
        return false;
    /* They are in ascending order, and most numbers are below. */
    if (count && slot->number < escapes[0].value)
        return true;
    for (unsigned at = 0; at < count; at++) {
        if (slot->number != escapes[at].value)
            continue;
        /* The escapes of so many octets, and what is added to them, are far from the largest number. */
        if (escapes[at].octets > 7 || escapes[at].add > INT64_MAX >> 8 ||
            escapes[at].add < INT64_MIN >> 8 || !gw_whole_word(p, escapes[at].octets, GW_BIG))
            return false;
        return gw_whole_set(slot, (int64_t)p->word + escapes[at].add, low, high);
    }
    return !count || slot->number <= escapes[count - 1].value;
}

static inline bool gw_whole_sum(int64_t low, int64_t high, struct gw_slot *into,
                                const struct gw_slot *add)
{
    int64_t one = into->set ? into->number : 0, other = add->set ? add->number : 0;
    /* What would saturate is left to the reader. */
    if (one > INT64_MAX >> 1 || other > INT64_MAX >> 1 || one < INT64_MIN >> 1 ||
        other < INT64_MIN >> 1)
        return false;
    return gw_whole_set(into, one + other, low, high);
}

static inline bool gw_whole_count(struct gw_pass *p, unsigned counter, uint32_t max)
{
    return ++p->counts[counter] <= max;
}

static inline bool gw_whole_enter(struct gw_pass *p, unsigned depth, const struct gw_slot *length,
                                  uint32_t less, uint32_t max)
{
    int64_t count = length->set ? length->number - (int64_t)less : 0;
    if (count < 0 || count > (int64_t)max || (size_t)count > gw_whole_left(p))
        return false;
    p->outer[depth] = p->end;
    p->end = p->at + count;
    return true;
}

static inline bool gw_whole_leave(struct gw_pass *p, unsigned depth)
{
    if (p->at != p->end)
        return false;
    p->end = p->outer[depth];
    return true;
}

static inline bool gw_whole_at_end(const struct gw_pass *p) { return p->at == p->end; }

/* A copy of octets in memory that lives as long as the view. */
static inline bool gw_whole_copy(struct gw_view *view, uint8_t **into, uint32_t *room,
                                 struct gw_text text)
{
    if (*room < text.length) {
        uint8_t *block = gw_view_take(view, text.length);
        if (!block)
            return false;
        *into = block;
        *room = (uint32_t)text.length;
    }
    if (text.length)
        memcpy(*into, text.at, text.length);
    return true;
}

/* So many octets, or false if they are not there or too many. */
static inline bool gw_whole_octets(struct gw_pass *p, int64_t octets, uint32_t max,
                                   struct gw_text *text)
{
    if (octets < 0 || octets > (int64_t)max || (size_t)octets > gw_whole_left(p))
        return false;
    *text = (struct gw_text){p->at, (size_t)octets};
    p->at += octets;
    return true;
}

/* Octets into a slot; where none leave it absent, one that must be there fails. */
static inline bool gw_whole_keep(struct gw_view *view, struct gw_text text, uint32_t max,
                                 bool empty_is_absent, bool mandatory, struct gw_slot *into)
{
    if (empty_is_absent && !text.length)
        return into->set || !mandatory;
    if (text.length > max || !gw_whole_copy(view, &into->octets, &into->room, text))
        return false;
    into->length = (uint32_t)text.length;
    into->set = true;
    return true;
}

/* Octets in a slot that only the pass uses, as they lie in what has arrived. */
static inline bool gw_whole_see(struct gw_text text, uint32_t max, bool empty_is_absent,
                                struct gw_slot *into)
{
    if (empty_is_absent && !text.length)
        return true;
    if (text.length > max)
        return false;
    into->octets = (uint8_t *)(uintptr_t)text.at;
    into->room = 0;
    into->length = (uint32_t)text.length;
    into->set = true;
    return true;
}

static inline void gw_whole_settle(struct gw_slot *slot) { slot->settled = true; }

/* Behind the pass such a slot holds nothing. */
static inline void gw_whole_forget(struct gw_slot *slot)
{
    slot->octets = NULL;
    slot->length = 0;
}

static inline bool gw_whole_take(struct gw_pass *p, struct gw_view *view, int64_t octets,
                                 uint32_t max, uint32_t held, bool empty_is_absent, bool mandatory,
                                 struct gw_slot *into)
{
    struct gw_text text;
    return gw_whole_octets(p, octets, max, &text) &&
           gw_whole_keep(view, text, held, empty_is_absent, mandatory, into);
}

static inline bool gw_whole_look(struct gw_pass *p, int64_t octets, uint32_t max, uint32_t held,
                                 bool empty_is_absent, struct gw_slot *into)
{
    struct gw_text text;
    return gw_whole_octets(p, octets, max, &text) &&
           gw_whole_see(text, held, empty_is_absent, into);
}

static inline bool gw_whole_skip(struct gw_pass *p, int64_t octets, uint32_t max)
{
    struct gw_text text;
    return gw_whole_octets(p, octets, max, &text);
}

static inline int64_t gw_whole_rest(const struct gw_pass *p) { return (int64_t)gw_whole_left(p); }

/* A table's value as a number of octets, at most seven of them. */
static inline bool gw_whole_file_uint(const struct gw_slot *value, int64_t low, int64_t high,
                                      struct gw_slot *into)
{
    struct gw_text text = gw_text_of(value);
    if (!value->set || text.length > 7 || into->set)
        return false;
    return gw_whole_set(into, (int64_t)gw_reader_in_order(text, GW_BIG), low, high);
}

static inline bool gw_whole_file(struct gw_view *view, const struct gw_slot *value, uint32_t max,
                                 struct gw_slot *into)
{
    if (!value->set || into->set)
        return false;
    return gw_whole_keep(view, gw_text_of(value), max, false, false, into);
}

/* A table's value behind the others of its list, which holds octets. */
static inline bool gw_whole_file_row(struct gw_view *view, const struct gw_slot *value, uint32_t rows,
                                     uint32_t max, struct gw_slot *into)
{
    struct gw_text text = gw_text_of(value);
    if (!value->set || text.length > max || into->length >= rows)
        return false;
    if (into->room <= into->length && !gw_list_grow(view, into, into->length + 1))
        return false;
    struct gw_cell *cell = &into->cells[into->length];
    if (!gw_whole_copy(view, &cell->at, &cell->room, text))
        return false;
    cell->length = (uint32_t)text.length;
    into->length++;
    into->set = true;
    return true;
}

#endif
