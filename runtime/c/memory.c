/* Blocks from a pool: sizes are powers of two, each with a list of free ones. */
#include "gw_message.h"

#include <stdlib.h>
#include <string.h>

enum { CLASS_MIN = 6, CLASS_MAX = 24 };

struct gw_free {
    struct gw_free *next;
};

static struct {
    struct gw_free *free[CLASS_MAX + 1];
    size_t limit, held, lent;
} pool = {.limit = (size_t)1 << 30};

/* Under the address sanitizer every block is the system's own, so that it sees a late use. */
#ifdef __SANITIZE_ADDRESS__
enum { KEEP = 0 };
#else
enum { KEEP = 1 };
#endif

static unsigned class_of(size_t size)
{
    unsigned class = CLASS_MIN;
#ifdef __GNUC__
    if (size > (size_t)1 << CLASS_MIN)
        class = (unsigned)(sizeof(unsigned long long) * 8) -
                (unsigned)__builtin_clzll((unsigned long long)size - 1);
#else
    while (((size_t)1 << class) < size)
        class++;
#endif
    return class;
}

void *gw_pool_take(size_t size, size_t *room)
{
    *room = 0;
    if (size > (size_t)1 << CLASS_MAX)
        return NULL;
    unsigned class = class_of(size);
    size_t octets = (size_t)1 << class;
    struct gw_free *block = pool.free[class];
    if (block) {
        pool.free[class] = block->next;
    } else {
        if (octets > pool.limit - pool.held && (gw_pool_trim(), octets > pool.limit - pool.held))
            return NULL;
        block = malloc(octets);
        if (!block)
            return NULL;
        pool.held += octets;
    }
    pool.lent += octets;
    *room = octets;
    return block;
}

void gw_pool_give(void *block, size_t room)
{
    if (!block)
        return;
    pool.lent -= room;
    if (!KEEP) {
        pool.held -= room;
        free(block);
        return;
    }
    unsigned class = class_of(room);
    struct gw_free *freed = block;
    freed->next = pool.free[class];
    pool.free[class] = freed;
}

void gw_pool_limit(size_t octets) { pool.limit = octets < pool.held ? pool.held : octets; }

size_t gw_pool_held(void) { return pool.held; }

size_t gw_pool_lent(void) { return pool.lent; }

void gw_pool_trim(void)
{
    for (unsigned class = CLASS_MIN; class <= CLASS_MAX; class ++) {
        while (pool.free[class]) {
            struct gw_free *block = pool.free[class];
            pool.free[class] = block->next;
            pool.held -= (size_t)1 << class;
            free(block);
        }
    }
}

uint8_t *gw_octets_grow(struct gw_octets *octets, size_t length)
{
    if (octets->room - octets->end < length) {
        size_t there = octets->end - octets->begin;
        if (octets->begin && octets->room - there >= length) {
            memmove(octets->block, octets->block + octets->begin, there);
        } else {
            size_t room;
            uint8_t *block = gw_pool_take(there + length, &room);
            if (!block) {
                octets->lost = true;
                return NULL;
            }
            if (there)
                memcpy(block, octets->block + octets->begin, there);
            gw_pool_give(octets->block, octets->room);
            octets->block = block;
            octets->room = room;
        }
        octets->begin = 0;
        octets->end = there;
    }
    uint8_t *at = octets->block + octets->end;
    octets->end += length;
    return at;
}

bool gw_octets_add(struct gw_octets *octets, struct gw_text text)
{
    if (!text.length)
        return true;
    uint8_t *at = gw_octets_grow(octets, text.length);
    if (at)
        memcpy(at, text.at, text.length);
    return at != NULL;
}

void gw_octets_use(struct gw_octets *octets, size_t length)
{
    octets->begin += length;
    if (octets->begin == octets->end)
        gw_octets_free(octets);
}

struct gw_text gw_octets_text(const struct gw_octets *octets)
{
    if (octets->begin == octets->end)
        return (struct gw_text){NULL, 0};
    return (struct gw_text){octets->block + octets->begin, octets->end - octets->begin};
}

void gw_octets_free(struct gw_octets *octets)
{
    gw_pool_give(octets->block, octets->room);
    *octets = (struct gw_octets){0};
}
