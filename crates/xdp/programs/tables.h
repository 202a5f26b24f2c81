/* What the forwarding program shares with user space: `src/forward/layout.rs` has the same. */

/* Reasons of what happens to a frame; `counts` has room for REASON_ROOM of each link. */
#define REASON_ROOM 32
enum reason {
    FORWARDED,
    NOT_IP,       /* another EtherType, or shorter than its header */
    NOT_OURS,     /* the destination's link address is not this link's */
    LOOKED_AT,    /* somebody looks at this link's packets */
    MALFORMED,    /* lengths or checksum that the graph is to judge */
    OPTIONS,      /* IPv4 options, hop-by-hop options */
    EXPIRED,      /* TTL or hop limit of 0 or 1 */
    SCOPE,        /* an address that is not forwarded, or may be ours as source */
    NO_ROUTE,     /* no next hop, or the packet is for this host */
    UNSETTLED,    /* routes or next hop changed during the look-up */
    NO_NEIGHBOUR, /* the neighbour's link address is not known */
    TOO_BIG,      /* larger than the egress link's MTU */
    SAME_LINK,    /* leaves by the link it came from: a redirect is due */
    NO_PORT,      /* the egress link has just gone: the frame is dropped */
    ELSEWHERE,    /* the egress link takes no frames from a driver */
    PARTIAL,      /* a transport checksum that is left to the device: the graph completes it */
    DROPPED,      /* none: a handler that drops or limits them runs here */
    BAD_STATION,  /* the source's link address is a group's (IEEE 802.3 §3.2.3) */
};

/* A link's constants: one program is loaded for each link. */
struct constants {
    u32 link;          /* this link's index */
    u32 words4;        /* words of the area `routes4`, 0 if `direct` is used */
    u32 words6;        /* words of the area `routes6` */
    u32 groups;        /* groups of 256 entries in `groups` */
    u32 hops;          /* entries of `hops` */
    u32 fence;         /* whether loads may be reordered on this machine */
    u32 partial;       /* whether frames may have partial transport checksums */
    u32 members;       /* words of `members` */
};

/* What may change at any time, by link. */
#define LINKS_MAX 64
#define RECEIVED_4 1 /* IPv4 that arrives here goes up */
#define RECEIVED_6 2
#define SENT_4 4 /* IPv4 that would leave here goes up */
#define SENT_6 8
struct link {
    u32 up;
    u8 mac[6]; /* the link's own address */
    u16 unused;
    u32 unused_too;
};

/* Handlers that run here, of the packets of a family that a link receives, in their order; an odd
 * `version` says that they are being written. A packet that goes up meets its handlers there. */
#define RULES_MAX 8
#define RULE_DROPS 1    /* what matches; else the rule counts */
#define RULE_PROTOCOL 2 /* only what has `protocol` */
#define RULE_PORT 4     /* only what has the destination port `port` */
#define RULE_LIMITS 8   /* all packets to what a bucket of `limits` has tokens for */
struct rule {
    u32 flags;
    u32 place;    /* of its numbers in `rule_counts` */
    u16 octets;   /* that it counts before the IP header */
    u16 limit;    /* its bucket */
    u16 protocol;
    u16 port;     /* as in a header */
    u32 source[4], source_mask[4], destination[4], destination_mask[4]; /* as in a header */
};
struct rules {
    u32 version;
    u32 number;
    struct rule rules[RULES_MAX];
};

/* A bucket of tokens (`Bucket` in `crates/stack/src/bucket.rs`). The programs of all links, on all
 * processors, and the workers of the graph take tokens from the same one: buckets of their own would let
 * pass a multiple of the rate. */
#define LIMITS_MAX 256
struct limit {
    u64 full_at; /* when it would be full if nothing more were taken, on the monotonic clock */
    u64 refill;  /* nanoseconds for one token */
    u64 depth;   /* nanoseconds for all of them */
    u64 unused;
};

/* Bits of addresses that are ours or a subnet's broadcast: a set bit says *perhaps*. */
#define OWN_BITS 8192

/* A next hop; an odd `version` says that it is being written. */
#define HOP_NEIGHBOUR 1 /* the neighbour is the destination itself */
#define HOP_ELSEWHERE 2 /* the egress link takes no frames from a driver */
#define HOP_GROUP 4     /* one of several, by the flow: `port` is the group's index in `members` */
struct hop {
    u32 version;
    u32 flags;
    u32 port; /* index of the egress link in `ports` and its number */
    u32 mtu;
    u8 macs[12]; /* destination, source */
    u32 use;     /* as of a neighbour; outside the version */
};

/* Groups of next hops: for each bucket of flows one more than the next hop's index, 0 for none
 * (`gatewright-tables`, `hop_groups.rs`). */
#define BUCKET_BITS 10

/* A neighbour on a link; IPv4 addresses are in the first word. */
struct neighbour_key {
    u32 port;
    u32 address[4];
};
struct neighbour {
    u8 mac[6];
    u16 use;
};

/* Whether user space wants to know that a neighbour is used. It sets NOTE_USE for one that is stale,
 * and the first packet says so with USED: so the graph asks the neighbour, and no packet is kept. */
#define NOTE_USE 1
#define USED 2

struct count {
    u64 packets;
    u64 octets;
};

/* Routes as `gatewright-tables` lays them out (`routes/mod.rs`, `routes/cell.rs`). */
#define AREA_GENERATION 0
#define AREA_ROOT 1
#define ROOT_BITS 0x1f
#define CELL_WORDS 8
#define CELL_KIND 0xc0000000u
#define CELL_TAIL 0x80000000u
#define CELL_SKIP 0xc0000000u

/* DIR-24-8 (Gupta, Lin and McKeown 1998): entries of 16 bits, 0 for none. */
#define DIRECT_ENTRIES (1u << 24)
#define DIRECT_GROUP 0x8000u /* the rest is the number of a group of 256 entries */
#define DIRECT_DEEP 0x7ffeu  /* this and above do not fit here: the graph knows */
