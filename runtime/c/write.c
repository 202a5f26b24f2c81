/* The parts of writers: slots of a view, or the holes of a template, to octets. */
#include "gw_message.h"

#include <string.h>

static bool within(const struct gw_bounds *bounds, int64_t number, uint32_t length)
{
    return bounds->kind == GW_INT ? bounds->low <= number && number <= bounds->high
                                  : bounds->kind == GW_STREAM || length <= bounds->max;
}

/* Whether a slot holds what its type allows. */
static bool is_sound(const struct gw_slot *slot)
{
    const struct gw_field *field = slot->field;
    int64_t number = field->bounds.kind == GW_INT ? slot->number : 0;
    if (!within(&field->bounds, number, slot->length))
        return false;
    if (field->bounds.kind != GW_LIST)
        return true;
    for (uint32_t at = 0; at < slot->length * field->columns; at++) {
        const struct gw_cell *cell = &slot->cells[at];
        if (!within(&field->column[at % field->columns], cell->number, cell->length))
            return false;
    }
    return true;
}

bool gw_write(struct gw_writer *w, const struct gw_view *view, struct gw_octets *out)
{
    size_t before = out->end - out->begin;
    *w = (struct gw_writer){.out = out};
    for (unsigned index = 0; index < view->message->count; index++) {
        const struct gw_slot *slot = gw_view_look(view, index);
        if (slot->set && !is_sound(slot))
            gw_refuse(w, GW_BAD_SLOT);
    }
    if (w->reason == GW_SOUND)
        view->message->write(w, view);
    if (w->reason == GW_SOUND)
        return true;
    out->end = out->begin + before;
    return false;
}

void gw_refuse(struct gw_writer *w, enum gw_reason reason)
{
    if (w->reason == GW_SOUND)
        w->reason = reason;
}

void gw_put(struct gw_writer *w, struct gw_text text)
{
    if (w->reason == GW_SOUND && !gw_octets_add(w->out, text))
        gw_refuse(w, GW_NO_MEMORY);
}

void gw_field(struct gw_writer *w, struct gw_text text, uint32_t min, uint32_t max)
{
    w->field = text;
    if (text.length < min || text.length > max)
        gw_refuse(w, GW_BAD_LENGTH);
}

static bool of_class(enum gw_class class, uint8_t octet)
{
    switch (class) {
    case GW_SPACE:
        return octet == ' ';
    case GW_BLANK:
        return octet == ' ' || octet == '\t';
    case GW_TOKEN:
        return octet > 0x20 && octet != 0x7f;
    case GW_WORD:
        return (octet >= '0' && octet <= '9') || (octet >= 'A' && octet <= 'Z') ||
               (octet >= '^' && octet <= 'z') || (octet && strchr("!#$%&'*+-.|~", octet));
    case GW_DIGIT:
        break;
    }
    return octet >= '0' && octet <= '9';
}

void gw_field_is(struct gw_writer *w, enum gw_class class)
{
    for (size_t at = 0; at < w->field.length; at++)
        if (!of_class(class, w->field.at[at]))
            gw_refuse(w, GW_BAD_OCTETS);
}

void gw_field_one_of(struct gw_writer *w, struct gw_text set)
{
    for (size_t at = 0; at < w->field.length; at++)
        if (!set.length || !memchr(set.at, w->field.at[at], set.length))
            gw_refuse(w, GW_BAD_OCTETS);
}

void gw_field_without(struct gw_writer *w, struct gw_text text)
{
    struct gw_text field = w->field;
    if (!text.length)
        gw_refuse(w, GW_BAD_OCTETS);
    for (size_t at = 0; at < field.length; at++) {
        size_t left = field.length - at;
        size_t here = left < text.length ? left : text.length;
        /* The text itself follows: it must not begin with the field's end. */
        if (!memcmp(field.at + at, text.at, here) &&
            !memcmp(text.at + here, text.at, text.length - here))
            gw_refuse(w, GW_BAD_OCTETS);
    }
}

void gw_field_begins_not(struct gw_writer *w, enum gw_class class)
{
    if (w->field.length && of_class(class, w->field.at[0]))
        gw_refuse(w, GW_BAD_OCTETS);
}

void gw_field_one_line(struct gw_writer *w)
{
    for (size_t at = 0; at < w->field.length; at++)
        if (w->field.at[at] == '\r' || w->field.at[at] == '\n')
            gw_refuse(w, GW_BAD_OCTETS);
}

void gw_field_end(struct gw_writer *w) { gw_put(w, w->field); }

/* A number in digits at the end of `digits`, at least `width` of them. */
static struct gw_text in_digits(uint64_t value, unsigned radix, size_t width, uint8_t digits[24])
{
    size_t at = 24;
    do {
        digits[--at] = (uint8_t)"0123456789abcdef"[value % radix];
        value /= radix;
    } while (value || (24 - at < width && at > 0));
    return (struct gw_text){digits + at, 24 - at};
}

void gw_put_digits(struct gw_writer *w, int64_t value, unsigned radix, unsigned width,
                   uint32_t max)
{
    uint8_t digits[24];
    struct gw_text text = in_digits(value < 0 ? 0 : (uint64_t)value, radix, width, digits);
    if (value < 0 || text.length > max)
        gw_refuse(w, GW_BAD_NUMBER);
    gw_put(w, text);
}

void gw_put_bits(struct gw_writer *w, int64_t value, unsigned shift, unsigned width)
{
    if (value < 0 || (width < 64 && (uint64_t)value >> width))
        gw_refuse(w, GW_BAD_NUMBER);
    else
        w->word |= (uint64_t)value << shift;
}

void gw_put_signed_bits(struct gw_writer *w, int64_t value, unsigned shift, unsigned width)
{
    int64_t high = (int64_t)(UINT64_MAX >> (65 - width));
    if (value > high || value < -high - 1)
        gw_refuse(w, GW_BAD_NUMBER);
    else
        w->word |= ((uint64_t)value & UINT64_MAX >> (64 - width)) << shift;
}

static void put_number(struct gw_writer *w, uint64_t value, unsigned octets, enum gw_order order)
{
    uint8_t all[8];
    for (unsigned at = 0; at < octets; at++)
        all[order == GW_BIG ? octets - 1 - at : at] = (uint8_t)(value >> 8 * at);
    gw_put(w, (struct gw_text){all, octets});
}

void gw_put_word(struct gw_writer *w, unsigned octets, enum gw_order order)
{
    put_number(w, w->word, octets, order);
    w->word = 0;
}

/* A varint's octets; 0 if there are more than `max`. */
static unsigned varint(uint64_t value, unsigned max, uint8_t octets[10])
{
    for (unsigned at = 0; at < max && at < 10; at++) {
        octets[at] = value & 0x7f;
        value >>= 7;
        if (!value)
            return at + 1;
        octets[at] |= 0x80;
    }
    return 0;
}

void gw_put_varint(struct gw_writer *w, int64_t value, unsigned max)
{
    uint8_t octets[10];
    unsigned length = value < 0 ? 0 : varint((uint64_t)value, max, octets);
    if (!length)
        gw_refuse(w, GW_BAD_NUMBER);
    gw_put(w, (struct gw_text){octets, length});
}

/* The escape that a value needs, if any. */
static const struct gw_escape *escape(struct gw_writer *w, int64_t value, unsigned count,
                                      const struct gw_escape *escapes)
{
    if (!count || value < escapes[0].value)
        return NULL;
    for (unsigned at = 0; at < count; at++) {
        uint64_t more = (uint64_t)value - (uint64_t)escapes[at].add;
        if (value >= escapes[at].add && !(more >> 8 * escapes[at].octets))
            return &escapes[at];
    }
    gw_refuse(w, GW_BAD_NUMBER);
    return NULL;
}

void gw_put_extension(struct gw_writer *w, int64_t value, unsigned count,
                      const struct gw_escape *escapes)
{
    const struct gw_escape *needed = escape(w, value, count, escapes);
    if (needed)
        put_number(w, (uint64_t)(value - needed->add), needed->octets, GW_BIG);
}

int64_t gw_escape(struct gw_writer *w, int64_t value, unsigned count,
                  const struct gw_escape *escapes)
{
    const struct gw_escape *needed = escape(w, value, count, escapes);
    return needed ? needed->value : value;
}

size_t gw_mark(const struct gw_writer *w) { return w->out->end - w->out->begin; }

/* Octets before what was written since the mark. */
static void insert(struct gw_writer *w, size_t mark, struct gw_text text)
{
    size_t length = gw_mark(w) - mark;
    if (w->reason != GW_SOUND)
        return;
    if (!gw_octets_grow(w->out, text.length)) {
        gw_refuse(w, GW_NO_MEMORY);
        return;
    }
    uint8_t *at = w->out->block + w->out->begin + mark;
    memmove(at + text.length, at, length);
    memcpy(at, text.at, text.length);
}

void gw_put_bound(struct gw_writer *w, size_t mark, uint32_t max)
{
    if (w->reason == GW_SOUND && gw_mark(w) - mark > max)
        gw_refuse(w, GW_BAD_LENGTH);
}

void gw_put_length(struct gw_writer *w, size_t mark, unsigned octets, enum gw_order order,
                   uint32_t more, uint32_t max)
{
    if (w->reason != GW_SOUND)
        return;
    uint64_t length = gw_mark(w) - mark;
    uint8_t head[10];
    if (length > max) {
        gw_refuse(w, GW_BAD_LENGTH);
        return;
    }
    length += more;
    unsigned count = octets ? octets : varint(length, 4, head);
    if (!count || (octets && octets < 8 && length >> 8 * octets)) {
        gw_refuse(w, GW_BAD_NUMBER);
        return;
    }
    for (unsigned at = 0; at < octets; at++)
        head[order == GW_BIG ? octets - 1 - at : at] = (uint8_t)(length >> 8 * at);
    insert(w, mark, (struct gw_text){head, count});
}

void gw_put_check(struct gw_writer *w, size_t mark, enum gw_check check)
{
    if (w->reason != GW_SOUND)
        return;
    uint8_t octets[4];
    struct gw_text body = {w->out->block + w->out->begin + mark, gw_mark(w) - mark};
    if (!body.length)
        body.at = NULL;
    uint32_t sum = gw_check_add(check, gw_check_begin(check), body);
    gw_put(w, (struct gw_text){octets, gw_check_octets(check, sum, octets)});
}

int64_t gw_difference(struct gw_writer *w, int64_t one, int64_t other)
{
    if (one < other) {
        gw_refuse(w, GW_BAD_NUMBER);
        return 0;
    }
    return other < 0 && one > INT64_MAX + other ? INT64_MAX : one - other;
}

struct gw_text gw_decimal(struct gw_writer *w, int64_t value)
{
    uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    struct gw_text text = in_digits(size, 10, 1, w->digits);
    if (value < 0) {
        size_t at = (size_t)(text.at - w->digits) - 1;
        w->digits[at] = '-';
        text = (struct gw_text){w->digits + at, text.length + 1};
    }
    return text;
}

struct gw_text gw_uint(struct gw_writer *w, int64_t value)
{
    unsigned length = 0;
    while (length < 8 && (uint64_t)value >> 8 * length)
        length++;
    for (unsigned at = 0; at < length; at++)
        w->digits[length - 1 - at] = (uint8_t)((uint64_t)value >> 8 * at);
    return (struct gw_text){w->digits, length};
}
