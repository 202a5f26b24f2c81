/* What the programs need of the kernel's interface (linux/bpf.h, RFC 9669), and nothing else: no
 * header of the system is read, so the same compiler makes the same octets on every machine. */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;

#define INLINE static inline __attribute__((always_inline))
#define SECTION(name) __attribute__((section(name), used))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

#define XDP_DROP 1
#define XDP_PASS 2

struct xdp_md {
    u32 data;
    u32 data_end;
    u32 data_meta;
    u32 ingress_ifindex;
    u32 rx_queue_index;
    u32 egress_ifindex;
};

/* Maps and the memory of maps with one value are names without a definition: the loader puts a
 * map's descriptor or an address where the name is used. */
struct map;
#define MAP(name) extern struct map name
#define VALUE(type, name) extern volatile type name

static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static u64 (*const clock_monotonic)(void) = (void *)5;
static long (*const jump)(struct xdp_md *context, void *programs, u32 index) = (void *)12;
static long (*const redirect_map)(void *map, u64 key, u64 flags) = (void *)51;
static long (*const adjust_tail)(struct xdp_md *context, int delta) = (void *)65;
static long (*const xdp_load_bytes)(struct xdp_md *context, u32 offset, void *to,
                                    u32 len) = (void *)189;

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define BE16(x) ((u16)__builtin_bswap16(x))
#define BE32(x) ((u32)__builtin_bswap32(x))
#else
#define BE16(x) ((u16)(x))
#define BE32(x) ((u32)(x))
#endif
