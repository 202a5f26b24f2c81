/* Makes frames to many destinations out of one: run on live frames, which it sends by an interface.
 * Pages come back as their receivers left them, so everything is written anew. */
#include "bpf.h"

/* `src/generate.rs` has the same. */
#define TEMPLATE_OCTETS 64
#define PLACES (1u << 20)

struct constants {
    u64 template[TEMPLATE_OCTETS / 8];
    u32 interface;
    u32 places; /* a power of two */
    u32 is_6;
    u32 unused;
};

/* A destination: the address, and for IPv4 the header's checksum with it. */
struct place {
    u16 address[8];
    u16 checksum;
    u16 unused[3];
};

VALUE(const struct constants, constants);
VALUE(const struct place, places)[PLACES];
VALUE(u32, sequence);

static long (*const redirect)(u32 interface, u64 flags) = (void *)23;

SECTION("xdp") int generate(struct xdp_md *context)
{
    void *data = (void *)(u64)context->data, *end = (void *)(u64)context->data_end;
    u64 *words = data;
    u16 *halves = data;
    if (data + TEMPLATE_OCTETS > end)
        return XDP_DROP;
#pragma unroll
    for (int i = 0; i < TEMPLATE_OCTETS / 8; i++)
        words[i] = constants.template[i];
    u32 number = sequence++;
    volatile const struct place *place = &places[number & (constants.places - 1) & (PLACES - 1)];
    if (constants.is_6) {
#pragma unroll
        for (int i = 0; i < 8; i++)
            halves[19 + i] = place->address[i];
    } else {
        halves[12] = place->checksum;
        halves[15] = place->address[0];
        halves[16] = place->address[1];
    }
    return redirect(constants.interface, 0);
}
