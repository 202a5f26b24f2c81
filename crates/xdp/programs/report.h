/* Reports of devices as a driver sends them on: `crates/tables/src/driver_reports.rs` has the same
 * layout, and `crates/interwork/src/coap_plan/driver.rs` writes the plans. */

/* Why a report was sent on or went up (`DriverReason`); `report_counts` has room for
 * REPORT_ROOM of each link. */
#define REPORT_ROOM 16
enum report_reason {
    REPORT_SENT,
    REPORT_STRANGER,  /* its sender has no plan here */
    REPORT_DIFFERS,   /* not as its plan has it, or a value that is not written here */
    REPORT_CHECKSUM,  /* wrong, or missing with IPv6: the graph judges it */
    REPORT_FRAGMENT,
    REPORT_BUSY,      /* settings or plan are being changed, or the worker has a report of it */
    REPORT_LOOKED_AT, /* a handler counts or drops packets here or where requests leave */
    REPORT_NO_WAY,    /* no route, neighbour or source address towards the CSE */
    REPORT_NO_ROOM,   /* the frame cannot grow, or the egress link's MTU is too small */
    REPORT_LOST,      /* the egress link has just gone: dropped */
    REPORT_ID_REUSED, /* besides: sent on with a message ID that may be remembered still */
};

#define REPORT_MAX 1400    /* octets of a report */
#define REPORT_KEPT 192    /* of those that are compared, and of the longest that is kept */
#define PLAN_TEXT 1024     /* octets of a plan's texts */
#define PLAN_PIECES 24
#define PLAN_OCTETS (PLAN_PIECES * 4 + 2 * REPORT_KEPT + PLAN_TEXT)
#define MESSAGE_MAX 1200
#define PIECE_OCTETS_MAX 255

/* Kinds of pieces; places are in the report, but for texts. */
enum piece_kind {
    PIECE_END,
    PIECE_TEXT,       /* `length` octets of the plan from `at` on */
    PIECE_IDENTITY,
    PIECE_REPORT,     /* the report's number */
    PIECE_HEAD,       /* the head of a CBOR text of `length` octets and the identity's */
    PIECE_OPTION,     /* the head of the option with a name of `length` octets and the identity's */
    PIECE_RECEIVED,
    PIECE_SFLOAT,
    PIECE_FLOAT,
    PIECE_TIME,
    PIECE_CODE,       /* `length` is its partition */
    PIECE_BITS,       /* `length` is the number of their octets */
    PIECE_KINDS,
};

#define PLAN_CBOR 1    /* numbers and texts have heads */

/* A piece is a word: its kind, whether it is a text by itself, with the head or the quotes of one, and
 * `at` and `length`. */
#define PIECE_KIND(piece) ((piece) & 15)
#define PIECE_IS_TEXT(piece) ((piece) >> 4 & 1)
#define PIECE_AT(piece) ((piece) >> 5 & 2047)
#define PIECE_LENGTH(piece) ((piece) >> 16)

#define HAS_NUMBER 1
#define HAS_TIME 2
#define LATEST_IS_TIMED (1u << 31)

/* A device whose reports are sent on. Who has swapped 0 for 1 in `lock` may read and write all
 * behind it but the sender's address, which a writer changes while `serial` is 0.
 *
 * What a report needs lies side by side, from the beginning of a cache line on: its parts are as long
 * as the plan has them, not as long as a plan may be. */
struct report_device {
    u32 lock;
    u32 serial; /* of its plan; 0 for none */
    u32 address[4];
    u16 port;   /* as in a header */
    u16 family;
    u32 place;  /* of its plan in the AE table */
    u64 reports;
    u64 last;     /* the last report's number, which grows */
    u64 received; /* when that arrived: microseconds since 1970 */
    u64 time;     /* the device's own time of it */
    u32 flags;
    u32 latest;   /* octets of that report, 0 if it is not kept; whether its time names it */
    /* The plan. */
    u64 epoch;
    u16 length;    /* of a report */
    u16 form;      /* PLAN_CBOR */
    u16 time_at;   /* where the report has its time; 0 for none */
    u16 masks_at;  /* in `plan`, a multiple of 8 */
    /* Pieces; then for each eight octets of a report what they are, and ones where that is fixed; then
     * texts. */
    u8 plan[PLAN_OCTETS];
    u64 unused;
    /* The last report. */
    u8 octets[REPORT_KEPT];
    /* So that reading the longest piece at the last place of `plan` stays inside, for the checker. */
    u8 end[64];
};

/* What all reports have in common; an odd `version` says that it is being written, up to `next`. */
#define REPORT_PORTS 64
#define AWAITED_MAX (1 << 14)
#define REPORTS_ON 1
#define LISTEN_6 2
#define CSE_6 4
/* RFC 7252 §4.8.2, in microseconds. */
#define NON_LIFETIME 145000000ull

struct reports {
    u32 version;
    u32 flags;
    u32 source_link; /* by which the CSE is reached from `source` */
    u32 unused;
    u32 listen[4], cse[4], source[4]; /* as in a header */
    u16 listen_port, cse_port;
    u32 unused_too;
    u64 clock; /* microseconds since 1970 when the monotonic clock was 0 */
    u16 ports[REPORT_PORTS];
    u64 next;  /* number of the next request */
    u64 begun[REPORT_PORTS]; /* when a port's message IDs began anew */
    u32 early[REPORT_PORTS]; /* whether those may be remembered still */
    u64 awaited[AWAITED_MAX]; /* token, and in the upper half one more than the plan's place */
};

struct report_constants {
    u32 mask;    /* number of entries in `report_devices` less one */
    u32 seed[2]; /* of the senders' hash */
};

/* Places in which a sender is looked for. */
#define SENDER_PROBES 8
