/* Limits packets to what buckets have tokens for. The program that forwards jumps here with a packet
 * that has a next hop, or that a rule drops, if a rule before that limits packets. */
#include "bpf.h"
#include "tables.h"
#include "look_up.h"
#include "limit.h"

/* Looks at a bucket before it is given up: after each, another processor had taken a token meanwhile. */
#define TAKE_TRIES 16

/* Takes a token from a bucket, if it has one (`SharedBucket::take`). Who is not alone with it so many
 * times in a row gets none: the bucket is asked for more than it has. */
INLINE int take_token(u64 refill, u64 depth, u32 bucket)
{
    volatile struct limit *limit = &limits[bucket];
    u64 now = clock_monotonic(), before = limit->full_at;
    for (u32 i = 0; i < TAKE_TRIES; i++) {
        u64 full_at = (before > now ? before : now) + refill;
        full_at = full_at < refill ? ~0ull : full_at;
        if (full_at - now > depth)
            return 0;
        u64 seen = __sync_val_compare_and_swap(&limit->full_at, before, full_at);
        if (seen == before)
            return 1;
        before = seen;
    }
    return 0;
}

/* Whether a rule lets a packet pass: one that limits by its bucket, another counts it. */
INLINE int passes(volatile struct rules *all, volatile struct rule *rule, struct limited *packet)
{
    u32 flags = rule->flags, place = rule->place, octets = packet->octets + rule->octets;
    if (flags & RULE_LIMITS) {
        u32 bucket = rule->limit & (LIMITS_MAX - 1);
        u64 refill = limits[bucket].refill, depth = limits[bucket].depth;
        fence();
        /* Of another rule by now: no packet is lost by the change. */
        if (all->version != packet->version || take_token(refill, depth, bucket))
            return 1;
        count(&rule_counts, place, octets);
        return 0;
    }
    if (!(flags & RULE_DROPS))
        count(&rule_counts, place, octets);
    return 1;
}

SECTION("xdp") int limit(void)
{
    u32 none = 0, link = constants.link & (LINKS_MAX - 1), passing = 1;
    struct limited *packet = map_lookup(&limited_packets, &none);
    if (!packet)
        return XDP_DROP;
    volatile struct rules *all = &rules[2 * link + (packet->family & 1)];
    for (u32 i = 0; i < RULES_MAX && passing; i++) {
        if (i >= packet->until || i >= all->number)
            break;
        if (i >= packet->from)
            passing = passes(all, &all->rules[i], packet);
    }
    if (passing && packet->until == RULES_MAX)
        return leave(packet->hop, packet->port, packet->length);
    if (passing)
        count(&rule_counts, packet->place, packet->octets + packet->more);
    count(&counts, link * REASON_ROOM + DROPPED, packet->octets);
    return XDP_DROP;
}
