/* The steps of readers: octets, in whatever pieces they arrive, to the slots of a view. */
#include "gw_message.h"

#include <string.h>

const char *gw_reason_name(enum gw_reason reason)
{
    static const char *const names[] = {
        "sound",       "cut",         "beyond",     "unexpected",  "too-long",   "too-short",
        "too-large",   "bounds",      "missing",    "twice",       "no-number",  "check",
        "left-over",   "no-case",     "chunk-size", "chunk-end",   "chunk-extra", "slot",
        "length",      "octets",      "number",     "no-framing",  "stream-length", "no-length",
        "no-memory",
    };
    return names[reason];
}

enum gw_turn gw_fail(struct gw_reader *r, enum gw_reason reason)
{
    r->reason = reason;
    return GW_FAIL;
}

/* Reads the message in one pass, if it is here whole. Otherwise no slot is set. */
static bool read_whole(struct gw_reader *r, struct gw_view *view)
{
    r->begun = true;
    size_t length = view->message->whole(view, r->input);
    if (length == GW_NOT_WHOLE) {
        for (unsigned index = 0; index < view->message->count; index++)
            gw_clear(gw_view_slot(view, index));
        return false;
    }
    r->at += length;
    return true;
}

enum gw_turn gw_read(struct gw_reader *r, struct gw_view *view, struct gw_text input, bool last,
                     struct gw_octets *stream, size_t *used)
{
    uint64_t from = r->at;
    *used = 0;
    if (view->message->datagram) {
        if (!last)
            return GW_WAIT;
        r->datagram = true;
        r->regions[0] = (struct gw_region){.end = from + input.length, .known = true};
    }
    r->view = view;
    r->input = input;
    r->last = last;
    r->stream_into = stream;
    if (input.length && !r->begun && view->message->whole && read_whole(r, view)) {
        *used = (size_t)(r->at - from);
        return GW_DONE;
    }
    enum gw_turn turn = view->message->read(r, view);
    if (turn == GW_WAIT && last)
        turn = gw_fail(r, GW_CUT);
    if (turn == GW_DONE)
        for (unsigned index = 0; index < view->message->count; index++)
            gw_view_slot(view, index)->settled = true;
    *used = (size_t)(r->at - from);
    return turn;
}

enum gw_too_long gw_too_long(const struct gw_reader *r)
{
    const struct gw_message *message = r->view->message;
    if (r->reason == GW_TOO_LARGE)
        return GW_LONG_CONTENT;
    if (r->reason == GW_TOO_LONG && message->too_long)
        return (enum gw_too_long)message->too_long[r->step];
    return GW_NOTHING_LONG;
}

bool gw_reached_goal(const struct gw_reader *r)
{
    const struct gw_view *view = r->view;
    unsigned index;
    switch (r->goal) {
    case GW_TO_END:
        return false;
    case GW_TO_BEGIN:
        for (index = 0; index < view->message->count; index++)
            if (gw_view_look(view, index)->settled && !view->message->fields[index].scratch)
                return true;
        return false;
    case GW_TO_SETTLED:
        break;
    }
    for (index = 0; index < r->goal_count; index++)
        if (!gw_view_look(view, r->goal_slots[index])->settled)
            return false;
    return true;
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

void gw_fold(uint8_t *octets, size_t length, enum gw_fold fold)
{
    for (size_t at = 0; fold != GW_KEEP && at < length; at++) {
        uint8_t octet = octets[at];
        if (fold == GW_UPPER && octet >= 'a' && octet <= 'z')
            octets[at] = (uint8_t)(octet - ('a' - 'A'));
        if (fold == GW_LOWER && octet >= 'A' && octet <= 'Z')
            octets[at] = (uint8_t)(octet + ('a' - 'A'));
    }
}

static bool is_blank(uint8_t octet) { return octet == ' ' || octet == '\t'; }

/* One space for each line's end and the blanks around it (RFC 3261 7.3.1): how many are left. */
static uint32_t unfold(uint8_t *octets, uint32_t length)
{
    uint32_t plain = 0, at = 0;
    while (at < length) {
        uint8_t octet = octets[at++];
        if (octet != '\n') {
            octets[plain++] = octet;
            continue;
        }
        if (plain && octets[plain - 1] == '\r')
            plain--;
        while (plain && is_blank(octets[plain - 1]))
            plain--;
        octets[plain++] = ' ';
        while (at < length && is_blank(octets[at]))
            at++;
    }
    return plain;
}

/* Octets that a step found: into their slot, and used up with `more` behind them. */
static enum gw_turn found(struct gw_reader *r, struct gw_text text, size_t more,
                          enum gw_fold folded, struct gw_slot *into)
{
    if (into) {
        if (text.length > into->field->bounds.max)
            return gw_fail(r, GW_OUT_OF_BOUNDS);
        if (!gw_set_octets(r->view, into, text))
            return gw_fail(r, GW_NO_MEMORY);
        if (r->regions[r->depth].folded)
            into->length = unfold(into->octets, into->length);
        gw_fold(into->octets, into->length, folded);
    }
    gw_reader_advance(r, text.length + more);
    return GW_NEXT;
}

static enum gw_turn found_or_absent(struct gw_reader *r, struct gw_text text, enum gw_fold folded,
                                    bool empty_is_absent, struct gw_slot *into)
{
    if (into && empty_is_absent && !text.length)
        return gw_settle(r, into);
    return found(r, text, 0, folded, into);
}

static uint8_t small(uint8_t octet)
{
    return octet >= 'A' && octet <= 'Z' ? (uint8_t)(octet + ('a' - 'A')) : octet;
}

static enum gw_turn literal(struct gw_reader *r, struct gw_text wanted, bool folded)
{
    bool whole;
    struct gw_text here = gw_reader_window(r, &whole);
    for (size_t at = 0; at < here.length && at < wanted.length; at++) {
        bool same = here.at[at] == wanted.at[at];
        if (!same && !(folded && small(here.at[at]) == small(wanted.at[at])))
            return gw_fail(r, GW_UNEXPECTED);
    }
    enum gw_turn turn = gw_reader_take(r, wanted.length);
    if (turn == GW_NEXT)
        gw_reader_advance(r, wanted.length);
    return turn;
}

enum gw_turn gw_literal(struct gw_reader *r, struct gw_text wanted)
{
    return literal(r, wanted, false);
}

enum gw_turn gw_literal_folded(struct gw_reader *r, struct gw_text wanted)
{
    return literal(r, wanted, true);
}

/* Where a sequence of octets first occurs; the length if nowhere. */
static size_t find(struct gw_text text, struct gw_text wanted)
{
    if (!wanted.length)
        return 0;
    for (size_t at = 0; at + wanted.length <= text.length; at++) {
        size_t left = text.length - at - wanted.length + 1;
        const uint8_t *begin = memchr(text.at + at, wanted.at[0], left);
        if (!begin)
            break;
        at = (size_t)(begin - text.at);
        if (!memcmp(begin, wanted.at, wanted.length))
            return at;
    }
    return text.length;
}

enum gw_turn gw_until(struct gw_reader *r, struct gw_text delimiter, uint32_t max,
                      enum gw_fold folded, struct gw_slot *into)
{
    bool whole;
    struct gw_text here = gw_reader_window(r, &whole);
    size_t longest = max + delimiter.length;
    struct gw_text near = gw_reader_up_to(here, longest);
    size_t at = find(near, delimiter);
    if (at == near.length && delimiter.length) {
        if (near.length == longest)
            return gw_fail(r, GW_TOO_LONG);
        return whole ? gw_fail(r, GW_BEYOND) : GW_WAIT;
    }
    return found(r, gw_reader_up_to(near, at), delimiter.length, folded, into);
}

enum gw_turn gw_run(struct gw_reader *r, enum gw_class class, uint32_t min, uint32_t max,
                    enum gw_fold folded, bool empty_is_absent, struct gw_slot *into)
{
    bool whole;
    struct gw_text near = gw_reader_up_to(gw_reader_window(r, &whole), (size_t)max + 1);
    size_t length = 0;
    bool folds = class == GW_BLANK && gw_reader_innermost(r)->folded;
    while (length < near.length &&
           (of_class(class, near.at[length]) ||
            (folds && (near.at[length] == '\r' || near.at[length] == '\n'))))
        length++;
    if (length > max)
        return gw_fail(r, GW_TOO_LONG);
    if (length == near.length && !whole)
        return GW_WAIT;
    if (length < min)
        return gw_fail(r, GW_TOO_SHORT);
    return found_or_absent(r, gw_reader_up_to(near, length), folded, empty_is_absent, into);
}

enum gw_turn gw_take(struct gw_reader *r, uint32_t length, uint32_t max, enum gw_fold folded,
                     bool empty_is_absent, struct gw_slot *into)
{
    if (length > max)
        return gw_fail(r, GW_TOO_LONG);
    enum gw_turn turn = gw_reader_take(r, length);
    if (turn != GW_NEXT)
        return turn;
    return found_or_absent(r, gw_reader_up_to(r->input, length), folded, empty_is_absent, into);
}

enum gw_turn gw_take_counted(struct gw_reader *r, const struct gw_slot *length, uint32_t max,
                             enum gw_fold folded, bool empty_is_absent, struct gw_slot *into)
{
    uint32_t octets;
    enum gw_turn turn = gw_reader_measure(r, length, 0, max, &octets);
    if (turn != GW_NEXT)
        return turn;
    return gw_take(r, octets, max, folded, empty_is_absent, into);
}

enum gw_turn gw_take_rest(struct gw_reader *r, uint32_t max, enum gw_fold folded,
                          bool empty_is_absent, struct gw_slot *into)
{
    const struct gw_region *region = gw_reader_innermost(r);
    if (!region->known)
        return r->input.length > max ? gw_fail(r, GW_TOO_LONG) : GW_WAIT;
    if (region->end - r->at > max)
        return gw_fail(r, GW_TOO_LONG);
    return gw_take(r, (uint32_t)(region->end - r->at), max, folded, empty_is_absent, into);
}

/* The value of a digit; 16 for no digit. */
static unsigned digit(uint8_t octet, unsigned radix)
{
    unsigned value = 16;
    if (octet >= '0' && octet <= '9')
        value = octet - (unsigned)'0';
    else if (small(octet) >= 'a' && small(octet) <= 'f')
        value = small(octet) - (unsigned)'a' + 10;
    return value < radix ? value : 16;
}

/* Digits as a number; false above 63 bits or without a digit. */
static bool in_digits(struct gw_text text, unsigned radix, int64_t *value)
{
    *value = 0;
    for (size_t at = 0; at < text.length; at++) {
        unsigned next = digit(text.at[at], radix);
        if (next == 16 || *value > (INT64_MAX - (int64_t)next) / (int64_t)radix)
            return false;
        *value = *value * (int64_t)radix + (int64_t)next;
    }
    return text.length > 0;
}

enum gw_turn gw_digits(struct gw_reader *r, unsigned radix, uint32_t min, uint32_t max,
                       struct gw_slot *into)
{
    bool whole;
    struct gw_text near = gw_reader_up_to(gw_reader_window(r, &whole), max);
    size_t count = 0;
    while (count < near.length && digit(near.at[count], radix) < 16)
        count++;
    if (count == near.length && near.length < max && !whole)
        return GW_WAIT;
    if (count < min)
        return gw_fail(r, GW_TOO_SHORT);
    int64_t value = 0;
    if (count && !in_digits(gw_reader_up_to(near, count), radix, &value))
        return gw_fail(r, GW_NO_NUMBER);
    enum gw_turn turn = count ? gw_reader_number(r, value, into) : gw_settle(r, into);
    if (turn == GW_NEXT)
        gw_reader_advance(r, count);
    return turn;
}

enum gw_turn gw_one_of(struct gw_reader *r, struct gw_text set, bool optional,
                       struct gw_slot *into)
{
    bool whole;
    struct gw_text here = gw_reader_window(r, &whole);
    if (!here.length && !whole)
        return GW_WAIT;
    if (here.length && set.length && memchr(set.at, here.at[0], set.length))
        return found(r, gw_reader_up_to(here, 1), 0, GW_KEEP, into);
    return optional ? gw_settle(r, into) : gw_fail(r, GW_UNEXPECTED);
}

enum gw_turn gw_varint(struct gw_reader *r, unsigned max, struct gw_slot *into)
{
    bool whole;
    struct gw_text near = gw_reader_up_to(gw_reader_window(r, &whole), max);
    int64_t value = 0;
    for (unsigned at = 0; at < near.length; at++) {
        value |= (int64_t)(near.at[at] & 0x7f) << 7 * at;
        if (near.at[at] & 0x80)
            continue;
        enum gw_turn turn = gw_reader_number(r, value, into);
        if (turn == GW_NEXT)
            gw_reader_advance(r, at + 1);
        return turn;
    }
    if (near.length == max)
        return gw_fail(r, GW_TOO_LONG);
    return whole ? gw_fail(r, GW_BEYOND) : GW_WAIT;
}

/* A sum that stops at the largest number, as all arithmetic of the language does. */
static int64_t saturated(int64_t one, int64_t other)
{
    if (other > 0 && one > INT64_MAX - other)
        return INT64_MAX;
    if (other < 0 && one < INT64_MIN - other)
        return INT64_MIN;
    return one + other;
}

enum gw_turn gw_extend(struct gw_reader *r, struct gw_slot *slot, unsigned count,
                       const struct gw_escape *escapes)
{
    if (!slot->set)
        return gw_fail(r, GW_MISSING);
    for (unsigned at = 0; at < count; at++) {
        if (slot->number != escapes[at].value)
            continue;
        enum gw_turn turn = gw_reader_take(r, escapes[at].octets);
        if (turn != GW_NEXT)
            return turn;
        struct gw_text text = gw_reader_up_to(r->input, escapes[at].octets);
        int64_t more = (int64_t)gw_reader_in_order(text, GW_BIG);
        turn = gw_reader_number(r, saturated(more, escapes[at].add), slot);
        if (turn == GW_NEXT)
            gw_reader_advance(r, escapes[at].octets);
        return turn;
    }
    bool reserved = count && slot->number > escapes[count - 1].value;
    return reserved ? gw_fail(r, GW_OUT_OF_BOUNDS) : GW_NEXT;
}

enum gw_turn gw_sum(struct gw_reader *r, struct gw_slot *into, const struct gw_slot *add)
{
    return gw_reader_number(r, saturated(gw_number(into), gw_number(add)), into);
}

enum gw_turn gw_enter_line(struct gw_reader *r, uint32_t max)
{
    bool whole;
    struct gw_text near = gw_reader_up_to(gw_reader_window(r, &whole), max);
    r->entering = true;
    const uint8_t *newline = near.length ? memchr(near.at, '\n', near.length) : NULL;
    if (!newline) {
        if (near.length == max)
            return gw_fail(r, GW_TOO_LONG);
        return whole ? gw_fail(r, GW_BEYOND) : GW_WAIT;
    }
    r->entering = false;
    size_t length = (size_t)(newline - near.at);
    bool crlf = length && near.at[length - 1] == '\r';
    uint64_t end = r->at + length - (crlf ? 1 : 0);
    return gw_reader_enter(r, (struct gw_region){.end = end, .known = true, .tail = crlf ? 2 : 1});
}

enum gw_turn gw_enter_folded_line(struct gw_reader *r, uint32_t max)
{
    bool whole;
    struct gw_text here = gw_reader_window(r, &whole), near = gw_reader_up_to(here, max);
    size_t from = 0;
    r->entering = true;
    for (;;) {
        size_t left = near.length - from;
        const uint8_t *newline = left ? memchr(near.at + from, '\n', left) : NULL;
        if (!newline) {
            if (near.length == max)
                return gw_fail(r, GW_TOO_LONG);
            return whole ? gw_fail(r, GW_BEYOND) : GW_WAIT;
        }
        from = (size_t)(newline - near.at) + 1;
        bool crlf = from > 1 && near.at[from - 2] == '\r';
        size_t length = from - (crlf ? 2 : 1);
        if (length && from == here.length && !whole && !r->last)
            return GW_WAIT;
        if (length && from < here.length && is_blank(here.at[from]))
            continue;
        r->entering = false;
        return gw_reader_enter(r, (struct gw_region){.end = r->at + length,
                                           .known = true,
                                           .folded = true,
                                           .tail = crlf ? 2 : 1});
    }
}

enum gw_turn gw_begin_check(struct gw_reader *r, enum gw_check check)
{
    uint8_t ignored[4];
    unsigned octets = gw_check_octets(check, 0, ignored);
    struct gw_region region = {0};
    const struct gw_region *outer = gw_reader_innermost(r);
    if (outer->known) {
        if (outer->end - r->at < octets)
            return gw_fail(r, GW_BEYOND);
        region = (struct gw_region){.end = outer->end - octets, .known = true};
    }
    enum gw_turn turn = gw_reader_enter(r, region);
    r->checking = turn == GW_NEXT;
    r->check = check;
    r->sum = gw_check_begin(check);
    return turn;
}

enum gw_turn gw_end_check(struct gw_reader *r, enum gw_check check)
{
    uint8_t wanted[4];
    unsigned octets = gw_check_octets(check, r->sum, wanted);
    if (!r->depth || !r->checking)
        return gw_fail(r, GW_NO_CASE);
    const struct gw_region *outer = &r->regions[r->depth - 1];
    if (outer->known && octets > outer->end - r->at)
        return gw_fail(r, GW_BEYOND);
    if (r->input.length < octets)
        return GW_WAIT;
    r->checking = false;
    if (memcmp(r->input.at, wanted, octets))
        return gw_fail(r, GW_WRONG_CHECK);
    r->depth--;
    gw_reader_advance(r, octets);
    return GW_NEXT;
}

enum gw_turn gw_peek(struct gw_reader *r, struct gw_text wanted)
{
    bool whole;
    struct gw_text here = gw_reader_window(r, &whole);
    if (here.length >= wanted.length) {
        if (!gw_same(gw_reader_up_to(here, wanted.length), wanted))
            return GW_NEXT;
        gw_reader_advance(r, wanted.length);
        return GW_GO;
    }
    return !whole && gw_same(here, gw_reader_up_to(wanted, here.length)) ? GW_WAIT : GW_NEXT;
}

enum gw_turn gw_count(struct gw_reader *r, unsigned counter, uint32_t max)
{
    if (counter >= GW_COUNTERS_MAX)
        return gw_fail(r, GW_NO_CASE);
    return ++r->counts[counter] > max ? gw_fail(r, GW_TOO_LONG) : GW_NEXT;
}

/* Whether a value of another slot is within this one's bounds. */
static bool within(const struct gw_slot *slot, const struct gw_slot *value)
{
    const struct gw_bounds *bounds = &slot->field->bounds;
    if (bounds->kind == GW_INT)
        return bounds->low <= value->number && value->number <= bounds->high;
    return bounds->kind == GW_STREAM || value->length <= bounds->max;
}

enum gw_turn gw_copy(struct gw_reader *r, const struct gw_slot *from, struct gw_slot *into)
{
    if (!from->set)
        return gw_settle(r, into);
    if (!within(into, from))
        return gw_fail(r, GW_OUT_OF_BOUNDS);
    return gw_set_copy(r->view, into, from) ? GW_NEXT : gw_fail(r, GW_NO_MEMORY);
}

enum gw_turn gw_given(struct gw_reader *r, const struct gw_slot *slot)
{
    return slot->set ? GW_NEXT : gw_fail(r, GW_MISSING);
}

static struct gw_text without_blanks(struct gw_text text)
{
    while (text.length && of_class(GW_BLANK, text.at[0])) {
        text.at++;
        text.length--;
    }
    while (text.length && of_class(GW_BLANK, text.at[text.length - 1]))
        text.length--;
    return text;
}

/* A table's value as a number. */
static bool converted(struct gw_text text, enum gw_convert convert, int64_t *number)
{
    if (convert == GW_AS_DECIMAL || convert == GW_AS_LENGTH)
        return in_digits(text, 10, number);
    *number = (int64_t)gw_reader_in_order(gw_reader_up_to(text, 7), GW_BIG);
    return text.length < 8;
}

static bool only_digits(struct gw_text text)
{
    for (size_t at = 0; at < text.length; at++)
        if (digit(text.at[at], 10) == 16)
            return false;
    return text.length > 0;
}

/* Whether a row's cells are within the bounds of its list's columns. */
static bool row_fits(const struct gw_slot *list, const struct gw_cell *row)
{
    for (unsigned of = 0; of < list->field->columns; of++) {
        const struct gw_bounds *bounds = &list->field->column[of];
        bool fits = bounds->kind == GW_INT
                        ? bounds->low <= row[of].number && row[of].number <= bounds->high
                        : row[of].length <= bounds->max;
        if (!fits)
            return false;
    }
    return true;
}

static enum gw_turn append(struct gw_reader *r, struct gw_slot *list, const struct gw_cell *row)
{
    if (!row_fits(list, row))
        return gw_fail(r, GW_OUT_OF_BOUNDS);
    if (list->length >= list->field->bounds.max)
        return gw_fail(r, GW_TOO_LONG);
    return gw_add_row(r->view, list, row) ? GW_NEXT : gw_fail(r, GW_NO_MEMORY);
}

enum gw_turn gw_file(struct gw_reader *r, const struct gw_slot *value, enum gw_convert convert,
                     bool trim, struct gw_slot *into)
{
    if (!value->set)
        return gw_fail(r, GW_MISSING);
    enum gw_fold folded = convert == GW_AS_LOWER   ? GW_LOWER
                          : convert == GW_AS_UPPER ? GW_UPPER
                                                   : GW_KEEP;
    struct gw_text text = trim ? without_blanks(gw_text_of(value)) : gw_text_of(value);
    int64_t number = 0;
    bool length = convert == GW_AS_LENGTH;
    bool numeric = length || convert == GW_AS_DECIMAL || convert == GW_AS_UINT;
    /* RFC 9110 §8.6: "a recipient MUST anticipate potentially large decimal numerals". */
    if (numeric && !converted(text, convert, &number))
        return gw_fail(r, length && only_digits(text) ? GW_TOO_LARGE : GW_NO_NUMBER);
    if (into->field->bounds.kind == GW_LIST) {
        if (!numeric && text.length > into->field->column[0].max)
            return gw_fail(r, GW_TOO_LONG);
        struct gw_cell cell = gw_cell_of(text);
        cell.number = number;
        enum gw_turn turn = append(r, into, &cell);
        if (turn == GW_NEXT && text.length && !numeric)
            gw_fold(into->cells[into->length - 1].at, text.length, folded);
        return turn;
    }
    if (into->set)
        return gw_fail(r, GW_TWICE);
    /* What is filed is not settled: a second one may come. */
    bool settled = into->settled;
    if (numeric) {
        const struct gw_bounds *bounds = &into->field->bounds;
        if (number < bounds->low || number > bounds->high)
            return gw_fail(r, length && number > bounds->high ? GW_TOO_LARGE : GW_OUT_OF_BOUNDS);
        gw_set_number(into, number);
    } else {
        if (text.length > into->field->bounds.max)
            return gw_fail(r, GW_TOO_LONG);
        if (!gw_set_octets(r->view, into, text))
            return gw_fail(r, GW_NO_MEMORY);
        gw_fold(into->octets, into->length, folded);
    }
    into->settled = settled;
    return GW_NEXT;
}

/* The slots of a row as its cells; false if one is not set. */
static bool row_of(unsigned count, const struct gw_slot *const *columns, struct gw_cell *row)
{
    for (unsigned of = 0; of < count; of++) {
        const struct gw_slot *slot = columns[of];
        if (!slot->set)
            return false;
        row[of] = gw_cell_of(gw_text_of(slot));
        if (slot->field->bounds.kind == GW_INT)
            row[of] = (struct gw_cell){.number = slot->number};
    }
    return true;
}

enum gw_turn gw_append(struct gw_reader *r, struct gw_slot *list, unsigned count,
                       const struct gw_slot *const *columns)
{
    struct gw_cell row[GW_COLUMNS_MAX] = {0};
    if (count > GW_COLUMNS_MAX)
        return gw_fail(r, GW_NO_CASE);
    return row_of(count, columns, row) ? append(r, list, row) : gw_fail(r, GW_MISSING);
}

bool gw_whole_append(struct gw_view *view, struct gw_slot *list, unsigned count,
                     const struct gw_slot *const *columns)
{
    struct gw_cell row[GW_COLUMNS_MAX] = {0};
    return count <= GW_COLUMNS_MAX && row_of(count, columns, row) && row_fits(list, row) &&
           list->length < list->field->bounds.max && gw_add_row(view, list, row);
}

enum gw_turn gw_accept(struct gw_reader *r)
{
    if (r->datagram && !gw_at_end(r))
        return gw_fail(r, GW_LEFT_OVER);
    return GW_DONE;
}
