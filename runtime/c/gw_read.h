/*
 * Steps of readers that most layouts of octets consist of, and what they share: inline, so that a
 * field is no call. `gw_message.h` includes this.
 */
#ifndef GW_READ_H
#define GW_READ_H

static inline struct gw_slot *gw_view_slot(struct gw_view *view, unsigned index)
{
    return (struct gw_slot *)(void *)((char *)view + sizeof *view) + index;
}

static inline const struct gw_slot *gw_view_look(const struct gw_view *view, unsigned index)
{
    return (const struct gw_slot *)(const void *)((const char *)view + sizeof *view) + index;
}

static inline void gw_clear(struct gw_slot *slot)
{
    slot->set = slot->settled = slot->passing = false;
    slot->length = 0;
}

/* Memory that lives as long as the view; NULL if there is none. */
static inline void *gw_view_take(struct gw_view *view, size_t size)
{
    size = (size + 7) & ~(size_t)7;
    if (view->left < size)
        return gw_view_more(view, size);
    void *at = view->free;
    view->free += size;
    view->left -= size;
    return at;
}

static inline void gw_set_number(struct gw_slot *slot, int64_t value)
{
    slot->number = value;
    slot->set = slot->settled = true;
}

/* The end of the innermost region. */
static inline struct gw_region *gw_reader_innermost(struct gw_reader *r)
{
    return &r->regions[r->depth];
}

/* What of the input belongs to the innermost region, and whether that is all up to its end. */
static inline struct gw_text gw_reader_window(const struct gw_reader *r, bool *whole)
{
    const struct gw_region *region = &r->regions[r->depth];
    struct gw_text window = r->input;
    *whole = false;
    if (region->known && region->end - r->at <= window.length) {
        window.length = (size_t)(region->end - r->at);
        *whole = true;
    }
    return window;
}

static inline struct gw_text gw_reader_up_to(struct gw_text text, size_t length)
{
    return (struct gw_text){text.at, text.length < length ? text.length : length};
}

static inline void gw_reader_advance(struct gw_reader *r, size_t length)
{
    if (r->checking)
        r->sum = gw_check_add(r->check, r->sum, gw_reader_up_to(r->input, length));
    r->at += length;
    if (length)
        r->input.at += length;
    r->input.length -= length;
}

static inline enum gw_turn gw_reader_number(struct gw_reader *r, int64_t value,
                                            struct gw_slot *into)
{
    if (value < into->field->bounds.low || value > into->field->bounds.high)
        return gw_fail(r, GW_OUT_OF_BOUNDS);
    gw_set_number(into, value);
    return GW_NEXT;
}

/* Whether so many octets are here; if not, whether they may still come. */
static inline enum gw_turn gw_reader_take(struct gw_reader *r, uint64_t octets)
{
    bool whole;
    struct gw_text here = gw_reader_window(r, &whole);
    if (octets <= here.length)
        return GW_NEXT;
    const struct gw_region *region = gw_reader_innermost(r);
    bool beyond = region->known && octets > region->end - r->at;
    return whole || beyond ? gw_fail(r, GW_BEYOND) : GW_WAIT;
}

static inline uint64_t gw_reader_in_order(struct gw_text text, enum gw_order order)
{
    uint64_t value = 0;
    for (size_t at = 0; at < text.length; at++)
        value = value << 8 | text.at[order == GW_BIG ? at : text.length - 1 - at];
    return value;
}

static inline enum gw_turn gw_word(struct gw_reader *r, unsigned octets, enum gw_order order)
{
    enum gw_turn turn = gw_reader_take(r, octets);
    if (turn == GW_NEXT)
        r->word = gw_reader_in_order(gw_reader_up_to(r->input, octets), order);
    return turn;
}

static inline bool gw_reader_bits(const struct gw_reader *r, unsigned shift, unsigned width,
                                  int64_t *value)
{
    uint64_t mask = width ? UINT64_MAX >> (64 - width) : 0;
    uint64_t field = r->word >> shift & mask;
    *value = (int64_t)(field & INT64_MAX);
    return field <= INT64_MAX;
}

static inline enum gw_turn gw_bits(struct gw_reader *r, unsigned shift, unsigned width,
                                   struct gw_slot *into)
{
    int64_t value;
    if (!gw_reader_bits(r, shift, width, &value))
        return gw_fail(r, GW_OUT_OF_BOUNDS);
    return gw_reader_number(r, value, into);
}

static inline enum gw_turn gw_bits_are(struct gw_reader *r, unsigned shift, unsigned width,
                                       int64_t expected)
{
    int64_t value;
    if (!gw_reader_bits(r, shift, width, &value))
        return gw_fail(r, GW_OUT_OF_BOUNDS);
    return value == expected ? GW_NEXT : gw_fail(r, GW_UNEXPECTED);
}

/* The number of a field in two's complement: the bit of its sign counts negative. */
static inline int64_t gw_reader_signed(uint64_t word, unsigned shift, unsigned width)
{
    uint64_t sign = UINT64_C(1) << (width - 1);
    uint64_t field = word >> shift & UINT64_MAX >> (64 - width);
    return (int64_t)((field ^ sign) - sign);
}

static inline enum gw_turn gw_signed_bits(struct gw_reader *r, unsigned shift, unsigned width,
                                          struct gw_slot *into)
{
    return gw_reader_number(r, gw_reader_signed(r->word, shift, width), into);
}

static inline enum gw_turn gw_signed_bits_are(struct gw_reader *r, unsigned shift, unsigned width,
                                              int64_t expected)
{
    bool is = gw_reader_signed(r->word, shift, width) == expected;
    return is ? GW_NEXT : gw_fail(r, GW_UNEXPECTED);
}

static inline enum gw_turn gw_word_end(struct gw_reader *r, unsigned octets)
{
    gw_reader_advance(r, octets);
    return GW_NEXT;
}

/* A length that another field gives, less what it counts before; one that is absent is 0. */
static inline enum gw_turn gw_reader_measure(struct gw_reader *r, const struct gw_slot *length,
                                             uint32_t less, uint32_t max, uint32_t *octets)
{
    int64_t count = length->set ? length->number - (int64_t)less : 0;
    if (count < 0)
        return gw_fail(r, GW_OUT_OF_BOUNDS);
    *octets = (uint32_t)count;
    return count > (int64_t)max ? gw_fail(r, GW_TOO_LONG) : GW_NEXT;
}

static inline enum gw_turn gw_reader_enter(struct gw_reader *r, struct gw_region region)
{
    if (r->depth + 1 >= GW_REGIONS_MAX)
        return gw_fail(r, GW_NO_CASE);
    r->regions[++r->depth] = region;
    return GW_NEXT;
}

static inline enum gw_turn gw_enter_counted(struct gw_reader *r, const struct gw_slot *length,
                                            uint32_t less, uint32_t max)
{
    uint32_t octets = 0;
    enum gw_turn turn = gw_reader_measure(r, length, less, max, &octets);
    if (turn != GW_NEXT)
        return turn;
    const struct gw_region *outer = gw_reader_innermost(r);
    if (outer->known && octets > outer->end - r->at)
        return gw_fail(r, GW_BEYOND);
    uint64_t end = r->at + octets;
    return gw_reader_enter(r, (struct gw_region){.end = end, .known = true});
}

static inline enum gw_turn gw_leave(struct gw_reader *r)
{
    const struct gw_region *region = gw_reader_innermost(r);
    if (!r->depth)
        return gw_fail(r, GW_NO_CASE);
    if (!region->known || region->end != r->at)
        return gw_fail(r, GW_LEFT_OVER);
    if (r->input.length < region->tail)
        return GW_WAIT;
    r->depth--;
    gw_reader_advance(r, region->tail);
    return GW_NEXT;
}

static inline bool gw_at_end(const struct gw_reader *r)
{
    bool whole;
    struct gw_text here = gw_reader_window(r, &whole);
    return whole && !here.length;
}

static inline enum gw_turn gw_settle(struct gw_reader *r, struct gw_slot *slot)
{
    if (!slot->set && slot->field->mandatory)
        return gw_fail(r, GW_MISSING);
    slot->settled = true;
    return GW_NEXT;
}

#endif
