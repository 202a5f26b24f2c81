/* Headers of frames, the tables that programs share, and the way to a destination in them. */

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
VALUE(struct limit, limits)[LIMITS_MAX];
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
/* By link: what sends on reports of devices, and behind all of these what limits packets. */
MAP(stages);

/* The link's own program, which the loader puts behind this one: what happens to frames that go up. */
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

INLINE u32 halves(u32 word)
{
    return (word & 0xffff) + (word >> 16);
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

/* Compared in the register that the place is computed from: the checkers of older kernels (Linux 6.1) do
 * not know that a copy of half a register has its bounds. */
INLINE u32 word(volatile u32 *area, u32 words, u64 at)
{
    OPAQUE(at);
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
        /* None is the greatest of all; as in word(). */
        u64 place = at - 1;
        OPAQUE(place);
        if (place >= words - CELL_WORDS)
            break;
        volatile u32 *cell = area + 1 + place;
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
        u64 at = (u64)(entry & (DIRECT_GROUP - 1)) << 8 | (address & 0xff);
        OPAQUE(at); /* As in word(). */
        entry = at < (u64)constants.groups << 8 ? groups[at] : 0;
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

/* 1 if any bit is 1, else 0; the compiler makes no branch of it. */
INLINE u64 is_any(u64 bits)
{
    u64 negative = 0 - bits;
    OPAQUE(negative);
    return (bits | negative) >> 63;
}

/* 1 if two numbers are alike, else 0; as above. */
INLINE u64 is_alike(u64 one, u64 other)
{
    return 1 - is_any(one ^ other);
}

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
    u32 transport_at; /* of the transport header in the frame */
    u32 version;      /* of the rules by which it is judged */
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

/* The bucket of a packet's flow (`Flow::bucket` of `gatewright-tables`, `group_flow` of the graph). It
 * has no branch and learns nothing of the packet's end, so that the kernel's checker goes on with one
 * state from here, and not once more through all that follows. */
INLINE u32 bucket_of(struct xdp_md *context, struct matched *packet)
{
    u32 ports = 0;
    /* Beyond the frame's end there are none, and then the packet is too short for them, too. */
    xdp_load_bytes(context, packet->transport_at, &ports, sizeof(ports));
    u64 protocol = packet->protocol, length = packet->length, hidden = packet->is_hidden;
    OPAQUE(protocol);
    OPAQUE(length);
    OPAQUE(hidden);
    u64 shown = is_alike(protocol, TCP) | is_alike(protocol, UDP) | is_alike(protocol, UDP_LITE) |
                is_alike(protocol, SCTP);
    shown &= (1 - is_any(hidden)) & ~((length - 4) >> 63);
    u64 rest = choose(mask(shown), ports, packet->label), hash = 0;
    hash = stir(hash, packet->source[0] | (u64)packet->source[1] << 32);
    hash = stir(hash, packet->source[2] | (u64)packet->source[3] << 32);
    hash = stir(hash, packet->destination[0] | (u64)packet->destination[1] << 32);
    hash = stir(hash, packet->destination[2] | (u64)packet->destination[3] << 32);
    hash = stir(hash, rest | protocol << 32);
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
        /* Through memory of this processor's own, in which a group counts nothing: of a number that
         * is computed here and then is a place in memory, the checker keeps all that it was computed
         * from, and so follows each protocol by itself from the first look at it. */
        struct count *own = map_lookup(&hop_counts, index);
        if (UNLIKELY(!own))
            return NO_ROUTE;
        volatile u64 *bucket = &own->octets;
        *bucket = bucket_of(context, packet);
        u32 place = found->port << BUCKET_BITS | (u32)*bucket;
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
    /* Linux 6.1's checker forgets a bound of what is loaded again. */
    u32 port = found->port;
    if (UNLIKELY(port >= LINKS_MAX))
        return LOOKED_AT;
    OPAQUE(port);
    if (UNLIKELY(links[port & (LINKS_MAX - 1)].up & sent))
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
