/* Writes down when probe packets pass a hook, by their sequence numbers. Every packet goes on as it
 * came, with a label in front or without. A probe's payload has its identity at a known place:
 * sequence number, then the tag of the run. */
#include "bpf.h"

#define PLACES 65536
#define NEXT (-1)
#define UDP 17
#define TCP 6

/* The part of `struct __sk_buff` that is read. */
struct sk_buff {
    u32 before[19];
    u32 data;
    u32 data_end;
};

struct place {
    u64 after; /* the sequence number and 1; 0 is an empty place */
    u64 time;
};

struct stamps {
    struct place places[PLACES];
};

struct probe {
    u32 tag[2];
    u32 at; /* octets of payload before the identity */
};

VALUE(struct probe, probe);
VALUE(struct stamps, stamps);

static u64 (*const now)(void) = (void *)5;
static long (*const load_bytes)(const void *skb, u32 offset, void *to, u32 len) = (void *)26;

SECTION("xdp") int stamp(struct sk_buff *context)
{
    u64 time = now();
    u8 *data = (void *)(u64)context->data, *end = (void *)(u64)context->data_end;
    u32 identity[3], at = 42;
    if (data + 58 > end)
        return NEXT;
    u16 type = *(u16 *)(data + 12);
    if (type == BE16(0x8847) && data[16] & 1) { /* RFC 3032: the bottom of the stack */
        data += 4;
        at += 4;
        type = BE16(0x0800);
    }
    if (type != BE16(0x0800) || data[14] != 0x45)
        return NEXT;
    if (data[23] == TCP)
        at += (data[46] >> 4) * 4 - 8;
    else if (data[23] != UDP)
        return NEXT;
    if (load_bytes(context, at + probe.at, identity, sizeof identity))
        return NEXT;
    if (identity[1] != probe.tag[0] || identity[2] != probe.tag[1])
        return NEXT;
    u32 sequence = BE32(identity[0]);
    volatile struct place *place = &stamps.places[sequence & (PLACES - 1)];
    place->time = time;
    place->after = (u64)sequence + 1;
    return NEXT;
}
