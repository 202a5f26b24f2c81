/* Label tables and what the programs that read them have in common. `crates/tables/src/labels.rs`
 * writes the tables, `src/label.rs` makes the maps. */

#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd
#define ETHERTYPE_VLAN 0x8100
#define ETHERTYPE_MPLS 0x8847

/* linux/pkt_cls.h, linux/bpf.h. */
#define TC_NEXT (-1)
#define TC_DROP 2
#define REDIRECT_INGRESS 1

#define LABELS_MAX 4096
#define PATHS_MAX 1024
#define LINKS_MAX 64
#define PROBES 8
#define LABEL_PROBES 4
#define LABEL_STRIDE 741
/* Labels below have a meaning of their own (RFC 3032 §2.1). */
#define LABEL_FIRST 16
#define LABEL_PRESENT (1u << 31)
#define LABEL_POP 0xffffffffu
/* The TTL of a label stack entry that is pushed: the longest path. */
#define LABEL_TTL 64
#define BOTTOM_OF_STACK (1u << 8)

/* `select` of an entry. */
#define IS_SECOND (1u << 0)
#define HAS_PRIMARY (1u << 1)
#define HAS_BACKUP (1u << 2)
#define SPREADS (1u << 3)

struct label_hop {
    u32 link;
    u32 label;
    u16 address[3];
    u16 unused;
};

struct label_entry {
    u32 key[2];
    u32 select;
    u32 unused;
    struct label_hop hops[2];
    u32 rest[4];
};

#define NO_SUPER_FRAMES 1
#define BRIDGE_PORT 2
struct label_link {
    u32 up;
    u32 interface;
    u16 address[3];
    u16 flags;
};

struct label_constants {
    u32 link;  /* this link's number */
    u32 fence; /* whether loads may be reordered on this machine */
};

/* Outcomes of a frame (`LabelReason`); `label_counts` has room for REASON_ROOM of each link. */
#define REASON_ROOM 16
enum label_reason {
    PUSHED,
    SWAPPED,
    POPPED,
    OTHER_TYPE,  /* not what the program is for, or of a VLAN */
    NOT_OURS,    /* the destination's link-layer address is not this link's, or is a group's */
    TRUNCATED,   /* shorter than its headers */
    RESERVED,    /* a label below 16, or one on top of another that ends here */
    UNKNOWN,     /* no such label or path */
    EXPIRED,     /* TTL of 0 or 1 */
    LINK_DOWN,   /* the links of all next hops are down */
    UNSETTLED,   /* the entry changed during the look-up */
    NOT_IP,      /* the payload is neither IPv4 nor IPv6 */
    NO_ROOM,     /* the kernel has no room for the label: the frame is dropped */
    UNCUT,       /* a frame above the MTU for a link that takes none: the frame is dropped */
};

struct label_count {
    u64 packets;
    u64 octets;
};

struct ethernet {
    u16 macs[6];
    u16 type;
} __attribute__((packed));

struct labelled {
    u16 macs[6];
    u16 type;
    u32 entry;
    u8 payload;
} __attribute__((packed));

/* `struct __sk_buff` of linux/bpf.h. */
struct sk_buff {
    u32 len;
    u32 pkt_type;
    u32 mark;
    u32 queue_mapping;
    u32 protocol;
    u32 vlan_present;
    u32 vlan_tci;
    u32 vlan_proto;
    u32 priority;
    u32 ingress_ifindex;
    u32 ifindex;
    u32 tc_index;
    u32 cb[5];
    u32 hash;
    u32 tc_classid;
    u32 data;
    u32 data_end;
    u32 napi_id;
    u32 family;
    u32 addresses[10];
    u32 ports[2];
    u32 data_meta;
    u64 flow_keys;
    u64 tstamp;
    u32 wire_len;
    u32 gso_segs;
    u64 sk;
    u32 gso_size;
};

static long (*const vlan_push)(struct sk_buff *skb, u16 protocol, u16 tci) = (void *)18;
static long (*const vlan_pop)(struct sk_buff *skb) = (void *)19;
static int (*const redirect)(u32 interface, u64 flags) = (void *)23;
static u32 (*const flow_hash)(struct sk_buff *skb) = (void *)34;
static long (*const pull_data)(struct sk_buff *skb, u32 octets) = (void *)39;
static long (*const change_head)(struct sk_buff *skb, u32 octets, u64 flags) = (void *)43;

VALUE(const struct label_constants, constants);
VALUE(struct label_entry, labels)[LABELS_MAX];
VALUE(struct label_entry, paths)[PATHS_MAX];
VALUE(struct label_link, links)[LINKS_MAX];
MAP(link_counts);
MAP(label_counts);
MAP(path_counts);

INLINE void count(void *map, u32 index, u32 octets)
{
    struct label_count *count = map_lookup(map, &index);
    if (LIKELY(count)) {
        count->packets += 1;
        count->octets += octets;
    }
}

INLINE void count_reason(enum label_reason reason, u32 octets)
{
    count(&link_counts, constants.link * REASON_ROOM + reason, octets);
}

/* Keeps the loads before it before the loads behind it: an atomic operation is a fence on every
 * machine, and x86-64 needs none. */
INLINE void fence(void)
{
    u64 place = 0;
    if (constants.fence)
        __sync_fetch_and_add(&place, 1);
}

struct found {
    u32 link;
    u32 label;
    u16 address[3];
};

/* The next hop in force: the primary, or the backup if the primary's link is down. Of a spread entry, a
 * flow has the backup as its primary if its hash is odd. A writer changes only what `select` does not
 * name; `select` tells whether it has changed since. */
INLINE enum label_reason choose_once(volatile struct label_entry *entry, u32 key0, u32 key1, u32 flow,
                                     struct found *found)
{
    u32 select = entry->select;
    fence();
    if (entry->key[0] != key0 || entry->key[1] != key1)
        return UNKNOWN;
    u32 number = (select ^ (select / SPREADS & flow)) & IS_SECOND;
    volatile struct label_hop *hop = &entry->hops[number];
    found->link = hop->link & (LINKS_MAX - 1);
    if (UNLIKELY(!(select & HAS_PRIMARY) || !links[found->link].up)) {
        hop = &entry->hops[number ^ 1];
        found->link = hop->link & (LINKS_MAX - 1);
        if (!(select & HAS_BACKUP) || !links[found->link].up)
            return entry->select == select ? LINK_DOWN : UNSETTLED;
    }
    found->label = hop->label;
    found->address[0] = hop->address[0];
    found->address[1] = hop->address[1];
    found->address[2] = hop->address[2];
    fence();
    return LIKELY(entry->select == select) ? SWAPPED : UNSETTLED;
}

INLINE enum label_reason choose(volatile struct label_entry *entry, u32 key0, u32 key1, u32 flow,
                                struct found *found)
{
    enum label_reason reason = choose_once(entry, key0, key1, flow, found);
    if (UNLIKELY(reason == UNSETTLED))
        reason = choose_once(entry, key0, key1, flow, found);
    return reason;
}

/* The label's place, LABELS_MAX if there is none (`label_places` in labels.rs). */
INLINE u32 label_place(u32 label)
{
#pragma unroll
    for (u32 probe = 0; probe < LABEL_PROBES; probe++) {
        u32 place = (label + probe * LABEL_STRIDE) & (LABELS_MAX - 1);
        if (labels[place].key[0] == (label | LABEL_PRESENT))
            return place;
    }
    return LABELS_MAX;
}

/* Writes the addresses of a frame that leaves by the link found. */
INLINE void address(u16 *macs, struct found *found)
{
    volatile struct label_link *link = &links[found->link & (LINKS_MAX - 1)];
    macs[0] = found->address[0];
    macs[1] = found->address[1];
    macs[2] = found->address[2];
    macs[3] = link->address[0];
    macs[4] = link->address[1];
    macs[5] = link->address[2];
}

/* Whether a frame is addressed to this link. */
INLINE int is_ours(u16 *macs)
{
    volatile struct label_link *own = &links[constants.link & (LINKS_MAX - 1)];
    return macs[0] == own->address[0] && macs[1] == own->address[1] && macs[2] == own->address[2];
}
