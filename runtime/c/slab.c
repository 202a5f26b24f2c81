/* Things with ids, timers, maps and queues: all in blocks of the pool. */
#include "inside.h"

#include <string.h>

void *take_zeroed(size_t size)
{
    size_t room;
    void *block = gw_pool_take(size, &room);
    return block ? memset(block, 0, size) : NULL;
}

/* The room of a block follows from its size: the next power of two. */
static size_t room_of(size_t size)
{
    size_t room = 64;
    while (room < size)
        room <<= 1;
    return room;
}

void give(void *thing, size_t size)
{
    if (thing)
        gw_pool_give(thing, room_of(size));
}

/* A block of more elements, with the old ones in it; NULL if there is no memory. */
static void *larger(void *old, size_t each, size_t count, size_t least)
{
    size_t room = count ? count * 2 : least, octets;
    void *block = gw_pool_take(room * each, &octets);
    if (!block)
        return NULL;
    memset(block, 0, room * each);
    if (count) {
        memcpy(block, old, count * each);
        give(old, count * each);
    }
    return block;
}

static bool slab_grow(struct slab *slab)
{
    uint32_t before = slab->room, room = before ? before * 2 : 16;
    struct slab grown = *slab;
    grown.room = room;
    grown.at = take_zeroed(room * sizeof *grown.at);
    grown.generations = take_zeroed(room * sizeof *grown.generations);
    grown.unused = take_zeroed(room * sizeof *grown.unused);
    if (!grown.at || !grown.generations || !grown.unused) {
        slab_free(&grown);
        return false;
    }
    if (before) {
        memcpy(grown.at, slab->at, before * sizeof *grown.at);
        memcpy(grown.generations, slab->generations, before * sizeof *grown.generations);
    }
    slab_free(slab);
    *slab = grown;
    for (uint32_t index = room; index-- > before;)
        slab->unused[slab->unused_count++] = index;
    return true;
}

gw_id slab_add(struct slab *slab, void *thing)
{
    if (!slab->unused_count && !slab_grow(slab))
        return 0;
    uint32_t index = slab->unused[--slab->unused_count];
    uint32_t generation = ++slab->generations[index];
    slab->at[index] = thing;
    slab->used++;
    return (gw_id)generation << 32 | index;
}

void *slab_get(const struct slab *slab, gw_id id)
{
    uint32_t index = (uint32_t)id;
    if (!id || index >= slab->room || slab->generations[index] != id >> 32)
        return NULL;
    return slab->at[index];
}

void *slab_take(struct slab *slab, gw_id id)
{
    void *thing = slab_get(slab, id);
    if (thing) {
        slab->at[(uint32_t)id] = NULL;
        slab->generations[(uint32_t)id]++;
        slab->unused[slab->unused_count++] = (uint32_t)id;
        slab->used--;
    }
    return thing;
}

void slab_free(struct slab *slab)
{
    give(slab->at, slab->room * sizeof *slab->at);
    give(slab->generations, slab->room * sizeof *slab->generations);
    give(slab->unused, slab->room * sizeof *slab->unused);
}

/* ---- Timers: a heap; of two that are due at once the one that was set first comes first. ---- */

static bool sooner(const struct timer *one, const struct timer *other)
{
    return one->at != other->at ? one->at < other->at : one->order < other->order;
}

static void heap_put(struct timers *timers, uint32_t place, struct timer *timer)
{
    timers->heap[place] = timer;
    timer->place = place;
}

static void heap_up(struct timers *timers, uint32_t place)
{
    struct timer *timer = timers->heap[place];
    for (; place > 1 && sooner(timer, timers->heap[place / 2]); place /= 2)
        heap_put(timers, place, timers->heap[place / 2]);
    heap_put(timers, place, timer);
}

static void heap_down(struct timers *timers, uint32_t place)
{
    struct timer *timer = timers->heap[place];
    for (uint32_t child; (child = place * 2) <= timers->count; place = child) {
        if (child < timers->count && sooner(timers->heap[child + 1], timers->heap[child]))
            child++;
        if (!sooner(timers->heap[child], timer))
            break;
        heap_put(timers, place, timers->heap[child]);
    }
    heap_put(timers, place, timer);
}

bool timers_fit(struct timers *timers, size_t count)
{
    while (timers->room <= count) {
        struct timer **heap = larger(timers->heap, sizeof *heap, timers->room, 64);
        if (!heap)
            return false;
        timers->heap = heap;
        timers->room = timers->room ? timers->room * 2 : 64;
    }
    return true;
}

void timer_set(struct gw_machine *m, struct timer *timer, gw_time at, enum timer_kind kind,
               gw_id of)
{
    struct timers *timers = &m->timers;
    timer_cancel(m, timer);
    timer->at = at;
    timer->order = ++timers->order;
    timer->kind = kind;
    timer->of = of;
    timers->heap[++timers->count] = timer;
    heap_up(timers, timers->count);
}

void timer_cancel(struct gw_machine *m, struct timer *timer)
{
    struct timers *timers = &m->timers;
    uint32_t place = timer->place;
    if (!place)
        return;
    timer->place = 0;
    struct timer *last = timers->heap[timers->count--];
    if (last == timer)
        return;
    heap_put(timers, place, last);
    heap_up(timers, place);
    heap_down(timers, last->place);
}

/* ---- Maps ---- */

static uint32_t hash(struct gw_text key)
{
    uint32_t sum = 2166136261u; /* FNV-1a */
    for (size_t at = 0; at < key.length; at++)
        sum = (sum ^ key.at[at]) * 16777619u;
    return sum;
}

static struct map_entry **map_find(const struct map *map, struct gw_text key)
{
    uint32_t wanted = hash(key);
    struct map_entry **at = &map->buckets[wanted & (map->room - 1)];
    for (; *at; at = &(*at)->next)
        if ((*at)->hash == wanted &&
            gw_same((struct gw_text){(const uint8_t *)(*at + 1), (*at)->length}, key))
            break;
    return at;
}

gw_id map_get(const struct map *map, struct gw_text key)
{
    struct map_entry *entry = map->room ? *map_find(map, key) : NULL;
    return entry ? entry->value : 0;
}

static bool map_grow(struct map *map)
{
    struct map grown = {.room = map->room ? map->room * 2 : 16, .count = map->count};
    grown.buckets = take_zeroed(grown.room * sizeof *grown.buckets);
    if (!grown.buckets)
        return false;
    for (uint32_t index = 0; index < map->room; index++) {
        for (struct map_entry *entry = map->buckets[index]; entry;) {
            struct map_entry *next = entry->next;
            struct map_entry **head = &grown.buckets[entry->hash & (grown.room - 1)];
            entry->next = *head;
            *head = entry;
            entry = next;
        }
    }
    give(map->buckets, map->room * sizeof *map->buckets);
    *map = grown;
    return true;
}

bool map_put(struct map *map, struct gw_text key, gw_id value)
{
    if (map->count >= map->room && !map_grow(map))
        return false;
    struct map_entry **at = map_find(map, key);
    if (*at) {
        (*at)->value = value;
        return true;
    }
    size_t room;
    struct map_entry *entry = gw_pool_take(sizeof *entry + key.length, &room);
    if (!entry)
        return false;
    *entry = (struct map_entry){
        .room = room, .value = value, .hash = hash(key), .length = (uint32_t)key.length};
    if (key.length)
        memcpy(entry + 1, key.at, key.length);
    *at = entry;
    map->count++;
    return true;
}

void map_remove(struct map *map, struct gw_text key)
{
    if (!map->room)
        return;
    struct map_entry **at = map_find(map, key), *entry = *at;
    if (entry) {
        *at = entry->next;
        gw_pool_give(entry, entry->room);
        map->count--;
    }
}

void map_free(struct map *map)
{
    for (uint32_t index = 0; index < map->room; index++) {
        for (struct map_entry *entry = map->buckets[index]; entry;) {
            struct map_entry *next = entry->next;
            gw_pool_give(entry, entry->room);
            entry = next;
        }
    }
    give(map->buckets, map->room * sizeof *map->buckets);
}

/* ---- Lists and queues ---- */

bool ids_add(struct ids *ids, gw_id id)
{
    if (ids->count == ids->room) {
        gw_id *at = larger(ids->at, sizeof *at, ids->room, 8);
        if (!at)
            return false;
        ids->at = at;
        ids->room = ids->room ? ids->room * 2 : 8;
    }
    ids->at[ids->count++] = id;
    return true;
}

static void ids_cut(struct ids *ids, uint32_t at)
{
    ids->count--;
    memmove(ids->at + at, ids->at + at + 1, (ids->count - at) * sizeof *ids->at);
    if (!ids->count)
        ids_free(ids);
}

bool ids_remove(struct ids *ids, gw_id id)
{
    for (uint32_t at = 0; at < ids->count; at++) {
        if (ids->at[at] == id) {
            ids_cut(ids, at);
            return true;
        }
    }
    return false;
}

gw_id ids_first(struct ids *ids)
{
    if (!ids->count)
        return 0;
    gw_id first = ids->at[0];
    ids_cut(ids, 0);
    return first;
}

void ids_free(struct ids *ids)
{
    give(ids->at, ids->room * sizeof *ids->at);
    *ids = (struct ids){0};
}

bool queue_add(struct queue *queue, const void *thing)
{
    if (queue->first + queue->count == queue->room) {
        size_t each = queue->each;
        if (queue->first && queue->first >= queue->room / 2) {
            memmove(queue->at, queue->at + queue->first * each, queue->count * each);
        } else {
            uint8_t *at = larger(queue->at, each, queue->room, 32);
            if (!at)
                return false;
            queue->at = at;
            queue->room = queue->room ? queue->room * 2 : 32;
            memmove(at, at + queue->first * each, queue->count * each);
        }
        queue->first = 0;
    }
    memcpy(queue->at + (queue->first + queue->count++) * queue->each, thing, queue->each);
    return true;
}

bool queue_take(struct queue *queue, void *thing)
{
    if (!queue->count) {
        queue->first = 0;
        return false;
    }
    memcpy(thing, queue->at + queue->first++ * queue->each, queue->each);
    queue->count--;
    return true;
}
