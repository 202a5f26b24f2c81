/* Forwards IPv4 and IPv6 from link to link in the driver. What is not plainly to be forwarded goes
 * up as it came: to the link's own program, and so to the graph or to the kernel. */
#include "bpf.h"
#include "tables.h"

#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd

struct ethernet {
    u16 macs[6];
    u16 type;
} __attribute__((packed));

struct ipv4 {
    u8 version_length;
    u8 service;
    u16 total_length;
    u16 identification;
    u16 fragment;
    u8 ttl;
    u8 protocol;
    u16 checksum;
    u32 source;
    u32 destination;
} __attribute__((packed));

struct ipv6 {
    u32 version_class_label;
    u16 payload_length;
    u8 next_header;
    u8 hop_limit;
    u32 source[4];
    u32 destination[4];
} __attribute__((packed));

VALUE(const struct constants, constants);
VALUE(struct link, links)[LINKS_MAX];
VALUE(u64, own)[OWN_BITS / 64];
/* By link and family. */
VALUE(struct rules, rules)[2 * LINKS_MAX];
VALUE(u16, direct)[DIRECT_ENTRIES];
/* As large as the loader makes them; `constants` tells how large. */
VALUE(u16, groups)[];
VALUE(u32, routes4)[];
VALUE(u32, routes6)[];
VALUE(u32, members)[];
MAP(hops);
MAP(neighbours);
MAP(ports);
MAP(counts);
MAP(hop_counts);
MAP(rule_counts);

/* The link's own programs, which the loader puts behind this one: whether the driver has taken a
 * VLAN tag out of the frame, and what happens to frames that go up. */
extern int tag_taken(struct xdp_md *context);
extern int up(struct xdp_md *context);

/* An address as 128 bits, IPv4 in the first 32. */
struct key {
    u64 high;
    u64 low;
};

INLINE void count(void *map, u32 index, u32 octets)
{
    struct count *count = map_lookup(map, &index);
    if (LIKELY(count)) {
        count->packets += 1;
        count->octets += octets;
    }
}

INLINE u32 ones(u64 x)
{
    x = x - ((x >> 1) & 0x5555555555555555ull);
    x = (x & 0x3333333333333333ull) + ((x >> 2) & 0x3333333333333333ull);
    x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0full;
    return (x * 0x0101010101010101ull) >> 56;
}

/* Keeps the compiler from knowing a value. Else it makes a branch of a mask, and the kernel's checker
 * follows each branch of each step of a walk; or it computes with the end of a frame, which the
 * checker refuses. */
#define OPAQUE(value) __asm__ volatile("" : "+r"(value))

/* All ones if the lowest bit is 1, else 0. */
INLINE u64 mask(u64 bit)
{
    u64 all = 0 - (bit & 1);
    OPAQUE(all);
    return all;
}

/* 1 if any bit is 1, else 0. */
INLINE u64 any(u64 bits)
{
    return (bits | (0 - bits)) >> 63;
}

/* `count` (1 to 31) bits behind the first `from`, which is below 128; zeroes beyond the end. */
INLINE u32 bits(struct key key, u32 from, u32 count)
{
    u64 upper = mask(from >> 6), shift = from & 63;
    u64 first = (key.high & ~upper) | (key.low & upper), second = key.low & ~upper;
    return (first << shift | second >> 1 >> (63 - shift)) >> (64 - count);
}

/* Bits in which the first `length` (0 to 128) differ. */
INLINE u64 differ(struct key key, struct key other, u32 length)
{
    u64 upper = mask(length >> 6 | length >> 7), all = mask(length >> 7);
    u64 part = ~(~0ull >> (length & 63));
    u64 high = upper | part, low = (part & upper) | all;
    return ((key.high ^ other.high) & high) | ((key.low ^ other.low) & low);
}

INLINE u32 word(volatile u32 *area, u32 words, u32 at)
{
    return at < words ? area[at] : 0;
}

/* The place of the longest prefix of six bits among a branch's results; `found` is 1 if there is one. */
INLINE u64 longest(u64 shorter, u64 exact, u32 slot, u64 *found)
{
    u64 bit = 1ull << slot, matching = 0;
#pragma unroll
    for (u32 length = 1; length < 6; length++)
        matching |= 1ull << ((1 << length) + (slot >> (6 - length)) - 2);
    matching &= shorter;
    u64 own = exact >> slot & 1, all = mask(own);
    *found = own | any(matching);
    /* All bits below the highest. */
    matching >>= 1;
    matching |= matching >> 1;
    matching |= matching >> 2;
    matching |= matching >> 4;
    matching |= matching >> 8;
    matching |= matching >> 16;
    matching |= matching >> 32;
    return ones(shorter & (matching | all)) + ones(exact & (bit - 1) & all);
}

INLINE u64 choose(u64 mask, u64 yes, u64 no)
{
    return (yes & mask) | (no & ~mask);
}

/* The best value after one walk; 0 for none. A step has no branch, whatever the cell is: so the
 * checker follows one path, not one for each sequence of kinds. */
INLINE u32 walk(volatile u32 *area, u32 words, struct key key, u32 cells)
{
    u32 root = word(area, words, AREA_ROOT);
    u64 depth = root & ROOT_BITS;
    if (depth == 0 || words < CELL_WORDS)
        return 0;
    u32 entry = (root & ~ROOT_BITS) + 2 * bits(key, 0, depth);
    u64 at = word(area, words, entry), best = entry + 1;
    for (u32 i = 0; i < cells; i++) {
        if (at == 0 || at > words - CELL_WORDS)
            break;
        volatile u32 *cell = area + at;
        u64 c0 = cell[0], c1 = cell[1], c2 = cell[2], c3 = cell[3];
        u64 c4 = cell[4], c5 = cell[5], c6 = cell[6], c7 = cell[7];
        /* As a tail or a skip. */
        u64 leaf = mask(c0 >> 31), skip = mask(c0 >> 30);
        struct key other = {c4 << 32 | c5, c6 << 32 | c7};
        u64 length = c0 & 0xff, alike = mask(1 - any(differ(key, other, length)));
        /* As a branch. */
        u64 external = c4 << 32 | c5, found;
        u32 slot = bits(key, depth & 127, 6);
        u64 result = longest(c0 << 32 | c1, c2 << 32 | c3, slot, &found);
        u64 child = c6 + CELL_WORDS * ones(external & ((1ull << slot) - 1));
        u64 below = mask(external >> slot), better = mask(found);

        best = choose(leaf, choose(alike & ~skip, at + 1, best), choose(better, c7 + result, best));
        at = choose(leaf, c1 & alike & skip, child & below);
        depth = choose(leaf, length, depth + 6);
    }
    return word(area, words, best);
}

/* Keeps the loads before it before the loads behind it. BPF has no such instruction; an atomic
 * operation is a fence on every machine. */
INLINE void fence(void)
{
    u64 place = 0;
    if (constants.fence)
        __sync_fetch_and_add(&place, 1);
}

/* One more than the next hop's index, 0 for none; a writer that reuses cells meanwhile is seen. */
INLINE u32 look_up(volatile u32 *area, u32 words, struct key key, u32 cells, enum reason *reason)
{
    u32 before = word(area, words, AREA_GENERATION);
    u32 hop = walk(area, words, key, cells);
    fence();
    if (before != word(area, words, AREA_GENERATION)) {
        *reason = UNSETTLED;
        return 0;
    }
    *reason = NO_ROUTE;
    return hop;
}

INLINE u32 look_up_direct(u32 address, enum reason *reason)
{
    u32 entry = direct[address >> 8];
    if (entry & DIRECT_GROUP) {
        u32 group = entry & (DIRECT_GROUP - 1);
        if (group >= constants.groups)
            entry = 0;
        else
            entry = groups[group << 8 | (address & 0xff)];
    }
    *reason = NO_ROUTE;
    return entry >= DIRECT_DEEP ? 0 : entry;
}

/* Whether an address is perhaps ours: the bit that it leads to is set. */
INLINE int perhaps_own(u32 a, u32 b, u32 c, u32 d)
{
    u32 hash = (a ^ b * 0x85ebca6bu ^ c * 0xc2b2ae35u ^ d * 0x27d4eb2fu) * 0x9e3779b1u;
    hash >>= 19;
    return own[hash >> 6] >> (hash & 63) & 1;
}

/* Protocols with a transport checksum, and what may be in front of them (RFC 8200 §4). */
#define TCP 6
#define UDP 17
#define SCTP 132
#define UDP_LITE 136
#define ICMPV6 58
#define ROUTING 43
#define DESTINATION_OPTIONS 60

struct found {
    u32 port;
    u32 mtu;
    u16 macs[6];
};

#define FAMILY_4 0
#define FAMILY_6 1

/* A packet as rules match it. */
struct matched {
    u32 family;
    u32 octets; /* of the frame, from the IP header on */
    u32 source[4], destination[4];
    u16 protocol;
    u16 is_hidden; /* the upper layer is behind other headers, or in the first fragment */
    void *transport;
    u32 length; /* of the packet behind its IP header */
    u32 label;  /* the flow label of IPv6 */
};

/* Mixes a word into a hash. */
INLINE u64 stir(u64 hash, u64 word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
    return hash ^ hash >> 32;
}

INLINE int has_ports(struct matched *packet)
{
    return packet->protocol == TCP || packet->protocol == UDP || packet->protocol == UDP_LITE ||
           packet->protocol == SCTP;
}

/* The bucket of a packet's flow (`Flow::bucket` of `gatewright-tables`, `group_flow` of the graph). */
INLINE u32 bucket_of(struct xdp_md *context, struct matched *packet)
{
    u32 *ports = packet->transport;
    u64 rest = packet->label, hash = 0;
    if (has_ports(packet) && !packet->is_hidden && packet->length >= 4 &&
        (void *)(ports + 1) <= (void *)(u64)context->data_end)
        rest = *ports;
    hash = stir(hash, packet->source[0] | (u64)packet->source[1] << 32);
    hash = stir(hash, packet->source[2] | (u64)packet->source[3] << 32);
    hash = stir(hash, packet->destination[0] | (u64)packet->destination[1] << 32);
    hash = stir(hash, packet->destination[2] | (u64)packet->destination[3] << 32);
    hash = stir(hash, rest | (u64)packet->protocol << 32);
    return stir(hash, 0) >> (64 - BUCKET_BITS);
}

/* Reads a next hop; `found` has the group's index in place of a port if it is a group. */
INLINE enum reason read_hop(u32 index, struct hop **at, u32 *flags, struct found *found)
{
    struct hop *hop = map_lookup(&hops, &index);
    if (UNLIKELY(!hop))
        return NO_ROUTE;
    *at = hop;
    volatile struct hop *shared = hop;
    u32 version = shared->version;
    fence();
    *flags = shared->flags;
    found->port = shared->port;
    found->mtu = shared->mtu;
    volatile u16 *macs = (volatile u16 *)shared->macs;
#pragma unroll
    for (int i = 0; i < 6; i++)
        found->macs[i] = macs[i];
    fence();
    if (UNLIKELY(version & 1 || version != shared->version))
        return UNSETTLED;
    return FORWARDED;
}

/* The next hop and the neighbour behind it. Of a group the flow's own one is put into `index`. `sent`
 * is the bit of the family in `struct link`. */
INLINE enum reason resolve(struct xdp_md *context, struct matched *packet, u32 *index,
                           struct neighbour_key *neighbour, u32 sent, struct found *found)
{
    struct hop *hop;
    u32 flags;
    enum reason reason = read_hop(*index, &hop, &flags, found);
    if (reason != FORWARDED)
        return reason;
    if (flags & HOP_GROUP) {
        u32 place = found->port << BUCKET_BITS | bucket_of(context, packet);
        u32 member = word(members, constants.members, place);
        if (UNLIKELY(!member))
            return NO_ROUTE;
        *index = member - 1;
        reason = read_hop(*index, &hop, &flags, found);
        if (reason != FORWARDED)
            return reason;
        if (UNLIKELY(flags & HOP_GROUP))
            return NO_ROUTE;
    }
    if (UNLIKELY(found->mtu == 0))
        return NO_ROUTE;
    if (UNLIKELY(flags & HOP_ELSEWHERE))
        return ELSEWHERE;
    if (found->port == constants.link)
        return SAME_LINK;
    if (UNLIKELY(found->port >= LINKS_MAX || links[found->port].up & sent))
        return LOOKED_AT;
    if (flags & HOP_NEIGHBOUR) {
        neighbour->port = found->port;
        struct neighbour *known = map_lookup(&neighbours, neighbour);
        if (!known)
            return NO_NEIGHBOUR;
        volatile u16 *mac = (volatile u16 *)known->mac;
        found->macs[0] = mac[0];
        found->macs[1] = mac[1];
        found->macs[2] = mac[2];
        volatile u16 *use = &known->use;
        if (UNLIKELY(*use == NOTE_USE))
            *use = USED;
        return FORWARDED;
    }
    if (UNLIKELY(!(found->macs[0] | found->macs[1] | found->macs[2])))
        return NO_NEIGHBOUR;
    volatile u32 *use = &hop->use;
    if (UNLIKELY(*use == NOTE_USE))
        *use = USED;
    return FORWARDED;
}

INLINE u32 halves(u32 word)
{
    return (word & 0xffff) + (word >> 16);
}

/* Octets of a packet behind its IP header over which a checksum is computed: those of a page. */
#define CHECKED_MAX 4096

/* Whether a checksum over `length` octets and what `sum` has already is right; not, if that cannot be
 * found out (RFC 1071). */
INLINE int is_right(struct xdp_md *context, u8 *at, u32 length, u64 sum)
{
    u8 *end = (u8 *)(u64)context->data_end;
    for (u32 i = 0; i < CHECKED_MAX / 8 && length >= 8; i++) {
        u8 *next = at + 8;
        OPAQUE(next);
        if (next > end)
            return 0;
        sum += (u64)((u32 *)at)[0] + ((u32 *)at)[1];
        at = next;
        length -= 8;
    }
    if (length >= 8)
        return 0;
    for (u32 i = 0; i < 7 && i < length; i++) {
        u8 *next = at + 1;
        OPAQUE(next);
        if (next > end)
            return 0;
        sum += i & 1 ? (u32)*at << 8 : *at;
        at = next;
    }
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffffffff) + (sum >> 32);
    return (u16)halves(halves(sum)) == 0xffff;
}

/* Whether the transport checksum is left to the device that sends (`wire`'s `partial.rs`): a kernel
 * writes the folded sum of the pseudo-header, of which `sum` is the part of the addresses. One in
 * 65,536 checksums that are complete has this value, too; it is right as it stands. */
INLINE int is_partial(struct xdp_md *context, u16 *transport, u32 protocol, u32 length, u32 sum)
{
    u16 *end = (u16 *)(u64)context->data_end;
    u16 *field = transport + (protocol == TCP ? 8 : 3);
    if (protocol != TCP && protocol != UDP)
        return protocol == SCTP || protocol == ROUTING || protocol == DESTINATION_OPTIONS;
    if (field + 1 > end)
        return 1;
    sum += BE16(protocol) + BE16(length);
    return *field == (u16)halves(halves(sum)) &&
           !is_right(context, (u8 *)transport, length, sum);
}

/* Counts a packet by the rules that count, before the one with the number `until`. */
INLINE void count_by_rules(struct matched *packet, u32 until)
{
    volatile struct rules *all = &rules[2 * (constants.link & (LINKS_MAX - 1)) + packet->family];
    for (u32 i = 0; i < RULES_MAX; i++) {
        if (i >= until || i >= all->number)
            break;
        volatile struct rule *rule = &all->rules[i];
        if (!(rule->flags & RULE_DROPS))
            count(&rule_counts, rule->place, packet->octets + rule->octets);
    }
}

/* Whether a packet goes on, is dropped, or goes up because a rule needs what it does not show here. */
INLINE enum reason judge(struct xdp_md *context, struct matched *packet, int *verdict)
{
    volatile struct rules *all = &rules[2 * (constants.link & (LINKS_MAX - 1)) + packet->family];
    u32 version = all->version, number = all->number;
    if (LIKELY(number == 0))
        return version & 1 ? UNSETTLED : FORWARDED;
    fence();
    u16 *ports = packet->transport, port = 0;
    int no_ports_here = packet->length < 4 || (void *)(ports + 2) > (void *)(u64)context->data_end;
    if (!no_ports_here)
        port = ports[1];
    u32 drops = RULES_MAX, place = 0, more = 0;
    for (u32 i = 0; i < RULES_MAX; i++) {
        if (i >= number)
            break;
        volatile struct rule *rule = &all->rules[i];
        u32 flags = rule->flags, differ = 0;
        if (!(flags & RULE_DROPS))
            continue;
#pragma unroll
        for (int word = 0; word < 4; word++) {
            differ |= (packet->source[word] ^ rule->source[word]) & rule->source_mask[word];
            differ |= (packet->destination[word] ^ rule->destination[word]) &
                      rule->destination_mask[word];
        }
        if (differ)
            continue;
        if (flags & (RULE_PROTOCOL | RULE_PORT) && packet->is_hidden)
            return LOOKED_AT;
        if (flags & RULE_PROTOCOL && rule->protocol != packet->protocol)
            continue;
        if (flags & RULE_PORT) {
            if (!has_ports(packet))
                continue;
            if (no_ports_here)
                return LOOKED_AT;
            if (rule->port != port)
                continue;
        }
        drops = i;
        place = rule->place;
        more = rule->octets;
        break;
    }
    fence();
    if (UNLIKELY(version & 1 || version != all->version))
        return UNSETTLED;
    if (drops == RULES_MAX)
        return FORWARDED;
    count_by_rules(packet, drops);
    count(&rule_counts, place, packet->octets + more);
    count(&counts, constants.link * REASON_ROOM + DROPPED, packet->octets);
    *verdict = XDP_DROP;
    return DROPPED;
}

/* Sends a frame whose IP header is changed already. */
INLINE int send(struct xdp_md *context, u32 hop, struct found *found, u32 length,
                struct matched *packet)
{
    count_by_rules(packet, RULES_MAX);
    void *data = (void *)(u64)context->data, *end = (void *)(u64)context->data_end;
    struct ethernet *ethernet = data;
    if ((void *)(ethernet + 1) > end)
        return XDP_DROP;
#pragma unroll
    for (int i = 0; i < 6; i++)
        ethernet->macs[i] = found->macs[i];
    int verdict = redirect_map(&ports, found->port, XDP_DROP);
    if (UNLIKELY(verdict == XDP_DROP)) {
        count(&counts, constants.link * REASON_ROOM + NO_PORT, length);
        return XDP_DROP;
    }
    count(&counts, constants.link * REASON_ROOM + FORWARDED, length);
    count(&hop_counts, hop, length);
    return verdict;
}

INLINE enum reason forward4(struct xdp_md *context, struct ipv4 *ip, u32 octets, int *verdict)
{
    if (ip->version_length != 0x45)
        return ip->version_length >> 4 == 4 && ip->version_length > 0x45 ? OPTIONS : MALFORMED;
    u32 length = BE16(ip->total_length);
    if (length < sizeof(*ip) || length > octets)
        return MALFORMED;
    u16 *words = (u16 *)ip;
    u32 sum = 0;
#pragma unroll
    for (int i = 0; i < 10; i++)
        sum += words[i];
    sum = (sum & 0xffff) + (sum >> 16);
    if ((u16)(sum + (sum >> 16)) != 0xffff)
        return MALFORMED;
    if (ip->ttl <= 1)
        return EXPIRED;
    u32 source = BE32(ip->source), destination = BE32(ip->destination);
    /* 0/8, 127/8, 169.254/16 and what begins with 224. */
    u32 s = source >> 24, d = destination >> 24;
    if (s == 0 || d == 0 || s == 127 || d == 127 || s >= 224 || d >= 224 ||
        source >> 16 == 0xa9fe || destination >> 16 == 0xa9fe || perhaps_own(source, 0, 0, 0))
        return SCOPE;
    struct matched packet = {
        .family = FAMILY_4,
        .octets = octets,
        .source = {ip->source},
        .destination = {ip->destination},
        .protocol = ip->protocol,
        .is_hidden = (ip->fragment & BE16(0x3fff)) != 0,
        .transport = ip + 1,
        .length = length - sizeof(*ip),
    };
    enum reason reason = judge(context, &packet, verdict);
    if (reason != FORWARDED)
        return reason;
    u32 hop;
    if (constants.words4) {
        struct key key = {(u64)destination << 32, 0};
        hop = look_up(routes4, constants.words4, key, 12, &reason);
    } else {
        hop = look_up_direct(destination, &reason);
    }
    if (hop == 0)
        return reason;
    hop -= 1;
    struct neighbour_key neighbour = {0, {ip->destination, 0, 0, 0}};
    struct found found;
    reason = resolve(context, &packet, &hop, &neighbour, SENT_4, &found);
    if (reason != FORWARDED)
        return reason;
    if (length > found.mtu)
        return TOO_BIG;
    if (constants.partial && !(ip->fragment & BE16(0x3fff))) {
        u32 sum = halves(ip->source) + halves(ip->destination);
        if (is_partial(context, (u16 *)(ip + 1), ip->protocol, length - sizeof(*ip), sum))
            return PARTIAL;
    }
    ip->ttl -= 1;
    /* RFC 1624: the checksum grows by what the TTL's word loses, one in its upper octet. */
    u32 checksum = ip->checksum + (u32)BE16(0x0100);
    ip->checksum = checksum + (checksum >= 0xffff);
    if (octets != length)
        adjust_tail(context, (int)length - (int)octets);
    *verdict = send(context, hop, &found, length, &packet);
    return FORWARDED;
}

INLINE enum reason forward6(struct xdp_md *context, struct ipv6 *ip, u32 octets, int *verdict)
{
    if ((BE32(ip->version_class_label) >> 28) != 6)
        return MALFORMED;
    u32 length = BE16(ip->payload_length) + sizeof(*ip);
    if (length > octets)
        return MALFORMED;
    if (ip->next_header == 0)
        return OPTIONS;
    if (ip->hop_limit <= 1)
        return EXPIRED;
    u32 s = BE32(ip->source[0]), d = BE32(ip->destination[0]);
    /* Multicast, link-local, and all that begins with sixteen zero bits, as `::` and `::1` do. */
    if (s >> 24 == 0xff || d >> 24 == 0xff || s >> 22 == 0x3fa || d >> 22 == 0x3fa ||
        s >> 16 == 0 || d >> 16 == 0 ||
        perhaps_own(s, BE32(ip->source[1]), BE32(ip->source[2]), BE32(ip->source[3])))
        return SCOPE;
    struct key key = {
        (u64)d << 32 | BE32(ip->destination[1]),
        (u64)BE32(ip->destination[2]) << 32 | BE32(ip->destination[3]),
    };
    u8 next = ip->next_header;
    struct matched packet = {
        .family = FAMILY_6,
        .octets = octets,
        .source = {ip->source[0], ip->source[1], ip->source[2], ip->source[3]},
        .destination = {ip->destination[0], ip->destination[1], ip->destination[2],
                        ip->destination[3]},
        .protocol = next,
        /* All else may be an extension header. */
        .is_hidden = next != TCP && next != UDP && next != ICMPV6 && next != SCTP &&
                     next != UDP_LITE,
        .transport = ip + 1,
        .length = length - sizeof(*ip),
        .label = BE32(ip->version_class_label) & 0xfffff,
    };
    enum reason reason = judge(context, &packet, verdict);
    if (reason != FORWARDED)
        return reason;
    u32 hop = look_up(routes6, constants.words6, key, 48, &reason);
    if (hop == 0)
        return reason;
    hop -= 1;
    struct neighbour_key neighbour = {
        0, {ip->destination[0], ip->destination[1], ip->destination[2], ip->destination[3]}};
    struct found found;
    reason = resolve(context, &packet, &hop, &neighbour, SENT_6, &found);
    if (reason != FORWARDED)
        return reason;
    if (length > found.mtu)
        return TOO_BIG;
    if (constants.partial) {
        u32 sum = 0;
#pragma unroll
        for (int i = 0; i < 4; i++)
            sum += halves(ip->source[i]) + halves(ip->destination[i]);
        if (is_partial(context, (u16 *)(ip + 1), ip->next_header, length - sizeof(*ip), sum))
            return PARTIAL;
    }
    ip->hop_limit -= 1;
    if (octets != length)
        adjust_tail(context, (int)length - (int)octets);
    *verdict = send(context, hop, &found, length, &packet);
    return FORWARDED;
}

SECTION("xdp") int forward(struct xdp_md *context)
{
    int tagged = tag_taken(context);
    void *data = (void *)(u64)context->data, *end = (void *)(u64)context->data_end;
    struct ethernet *ethernet = data;
    u32 octets = context->data_end - context->data;
    enum reason reason = NOT_IP;
    int verdict = XDP_PASS;
    if (tagged || (void *)(ethernet + 1) > end)
        goto up;
    octets -= sizeof(*ethernet);
    u32 link = constants.link;
    if (link >= LINKS_MAX)
        goto up;
    reason = NOT_OURS;
    volatile u16 *mac = (volatile u16 *)links[link].mac;
    if (ethernet->macs[0] != mac[0] || ethernet->macs[1] != mac[1] || ethernet->macs[2] != mac[2])
        goto up;
    u32 looked_at = links[link].up;
    reason = BAD_STATION;
    if (((u8 *)ethernet->macs)[6] & 1)
        goto up;
    reason = LOOKED_AT;
    if (ethernet->type == BE16(ETHERTYPE_IPV4)) {
        struct ipv4 *ip = (void *)(ethernet + 1);
        if (looked_at & RECEIVED_4)
            goto up;
        reason = MALFORMED;
        if ((void *)(ip + 1) <= end)
            reason = forward4(context, ip, octets, &verdict);
    } else if (ethernet->type == BE16(ETHERTYPE_IPV6)) {
        struct ipv6 *ip = (void *)(ethernet + 1);
        if (looked_at & RECEIVED_6)
            goto up;
        reason = MALFORMED;
        if ((void *)(ip + 1) <= end)
            reason = forward6(context, ip, octets, &verdict);
    } else {
        reason = NOT_IP;
    }
    if (reason == FORWARDED || reason == DROPPED)
        return verdict;
up:
    count(&counts, constants.link * REASON_ROOM + reason, octets);
    return up(context);
}
