/* Views: the typed slots of one message. */
#include "gw_message.h"

#include <string.h>

/* Memory of slots comes in blocks of this size, or larger ones for larger values. */
enum { BLOCK = 256 };

/* Rows of a list that has one. */
enum { LEAST = 4 };

/* A block of a view's memory; the octets follow. */
struct gw_block {
    struct gw_block *next;
    size_t room;
};

/* Octets before those of a block. */
enum { HEAD = (sizeof(struct gw_block) + 7) & ~(size_t)7 };

struct gw_view *gw_view_new(const struct gw_message *message)
{
    size_t room;
    struct gw_view *view = gw_pool_take(message->size, &room);
    if (!view)
        return NULL;
    if (message->blank) {
        memcpy(view, message->blank, message->size);
    } else {
        memset(view, 0, message->size);
        for (unsigned index = 0; index < message->count; index++)
            gw_view_slot(view, index)->field = &message->fields[index];
    }
    view->message = message;
    /* The pool's blocks are powers of two: what is left of this one has the slots of most messages. */
    size_t size = (message->size + 7) & ~(size_t)7;
    view->room = room;
    view->free = (uint8_t *)view + size;
    view->left = room > size ? room - size : 0;
    view->holders = 1;
    return view;
}

void gw_view_free(struct gw_view *view)
{
    if (!view || --view->holders)
        return;
    for (struct gw_block *block = view->blocks; block;) {
        struct gw_block *next = block->next;
        gw_pool_give(block, block->room);
        block = next;
    }
    gw_pool_give(view, view->room);
}

void *gw_view_more(struct gw_view *view, size_t size)
{
    size_t least = HEAD + size, room;
    struct gw_block *block = gw_pool_take(least < BLOCK ? BLOCK : least, &room);
    if (!block)
        return NULL;
    block->next = view->blocks;
    block->room = room;
    view->blocks = block;
    view->free = (uint8_t *)block + HEAD;
    view->left = room - HEAD;
    return gw_view_take(view, size);
}

/* What a slot had before is used again if it is large enough, else left to the view's end. */
static bool slot_room(struct gw_view *view, struct gw_slot *slot, uint32_t count, size_t each)
{
    if (slot->room >= count)
        return true;
    uint32_t room = slot->room * 2 > count ? slot->room * 2 : count;
    void *at = gw_view_take(view, room * each);
    if (!at)
        return false;
    if (slot->room && slot->length)
        memcpy(at, slot->octets, slot->length * each);
    slot->octets = at;
    slot->room = room;
    return true;
}

bool gw_set_octets(struct gw_view *view, struct gw_slot *slot, struct gw_text text)
{
    if (text.length > UINT32_MAX / 2)
        return false;
    slot->length = 0;
    if (!slot_room(view, slot, (uint32_t)text.length, 1))
        return false;
    if (text.length)
        memmove(slot->octets, text.at, text.length);
    slot->length = (uint32_t)text.length;
    slot->set = slot->settled = true;
    slot->passing = false;
    return true;
}

void gw_set_passing(struct gw_slot *slot)
{
    slot->set = slot->settled = slot->passing = true;
    slot->length = 0;
}

/* What a cell had before the list was cleared is used again if it is large enough. */
static bool set_cell(struct gw_view *view, struct gw_cell *cell, enum gw_kind kind,
                     const struct gw_cell *value)
{
    cell->number = value->number;
    if (kind != GW_OCTETS)
        return true;
    if (value->length > cell->room) {
        uint32_t room = cell->room * 2 > value->length ? cell->room * 2 : value->length;
        cell->at = gw_view_take(view, room);
        cell->room = cell->at ? room : 0;
        if (!cell->at)
            return false;
    }
    cell->length = value->length;
    if (value->length)
        memmove(cell->at, value->at, value->length);
    return true;
}

bool gw_list_grow(struct gw_view *view, struct gw_slot *list, uint32_t cells)
{
    uint32_t columns = list->field->columns, rows = list->length, before = list->room;
    if (before >= cells)
        return true;
    list->length = rows * columns;
    bool room = slot_room(view, list, before ? cells : LEAST * columns, sizeof *list->cells);
    list->length = rows;
    if (room)
        memset(&list->cells[rows * columns], 0,
               (list->room - rows * columns) * sizeof *list->cells);
    return room;
}

bool gw_add_row(struct gw_view *view, struct gw_slot *list, const struct gw_cell *row)
{
    uint32_t columns = list->field->columns, cells = list->length * columns;
    if (!gw_list_grow(view, list, cells + columns))
        return false;
    for (uint32_t of = 0; of < columns; of++)
        if (!set_cell(view, &list->cells[cells + of], list->field->column[of].kind, &row[of]))
            return false;
    list->length++;
    list->set = true;
    return true;
}

bool gw_set_copy(struct gw_view *view, struct gw_slot *slot, const struct gw_slot *from)
{
    if (!from->set)
        return true;
    switch (from->field->bounds.kind) {
    case GW_INT:
        gw_set_number(slot, from->number);
        return true;
    case GW_OCTETS:
        return gw_set_octets(view, slot, gw_text_of(from));
    case GW_STREAM:
        if (from->passing)
            gw_set_passing(slot);
        return from->passing || gw_set_octets(view, slot, gw_text_of(from));
    case GW_MESSAGE:
        return false;
    case GW_LIST:
        break;
    }
    slot->length = 0;
    for (uint32_t row = 0; row < from->length; row++)
        if (!gw_add_row(view, slot, gw_cell_at(from, row, 0)))
            return false;
    slot->set = slot->settled = true;
    return true;
}

bool gw_same(struct gw_text one, struct gw_text other)
{
    return one.length == other.length && (!one.length || !memcmp(one.at, other.at, one.length));
}

bool gw_is(const struct gw_slot *slot, struct gw_text text)
{
    return slot->set && !slot->passing && gw_same(gw_text_of(slot), text);
}

static uint8_t small(uint8_t octet)
{
    return octet >= 'A' && octet <= 'Z' ? (uint8_t)(octet + ('a' - 'A')) : octet;
}

bool gw_is_key(const struct gw_slot *slot, struct gw_text text)
{
    if (!slot->set || slot->length != text.length)
        return false;
    for (size_t at = 0; at < text.length; at++)
        if (small(slot->octets[at]) != small(text.at[at]))
            return false;
    return true;
}
