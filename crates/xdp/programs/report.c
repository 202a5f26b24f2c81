/* Sends reports of devices on as requests to a CSE, in the driver: whole reports of one object, by the
 * plan that was compiled for their device. The forwarding program jumps here with what is for this
 * host. What is no such report goes up as it came. */
#include "bpf.h"
#include "tables.h"
#include "look_up.h"
#include "report.h"

VALUE(const struct report_constants, report_constants);
VALUE(struct reports, reports);
MAP(report_devices);
MAP(report_counts);
MAP(report_scratch);

static u32 (*const draw)(void) = (void *)7;
static s64 (*const checksum_diff)(const void *from, u32 from_len, const void *to, u32 to_len,
                                  u32 seed) = (void *)28;
static long (*const adjust_head)(struct xdp_md *context, int delta) = (void *)44;
static long (*const load_octets)(struct xdp_md *context, u32 at, void *to, u32 length) = (void *)189;
static long (*const store_octets)(struct xdp_md *context, u32 at, const void *from,
                                  u32 length) = (void *)190;

struct udp {
    u16 source;
    u16 destination;
    u16 length;
    u16 checksum;
} __attribute__((packed));

/* Where a report has its number, and where what it measured begins. */
#define NUMBER_AT 24
#define MEASURED_AT 26

#include "request.h"

/* Whether a report is as its plan has it, to the octet, with values that are written here. */
INLINE int matches(volatile struct scratch *scratch, struct report_device *device, u32 length)
{
    if (length != device->length)
        return 0;
    u64 differ = 0;
    u32 masks_at = ((volatile struct report_device *)device)->masks_at & 0x78;
    const u64 *masks = (const u64 *)&device->plan[masks_at];
    const u64 *report = (const u64 *)&scratch->datagram[sizeof(struct udp)];
    for (u32 i = 0; i < REPORT_KEPT / 8; i++) {
        if (8 * i >= length)
            break;
        differ |= (report[i] ^ masks[2 * i]) & masks[2 * i + 1];
    }
    if (differ)
        return 0;
    for (u32 i = 0; i < PLAN_PIECES; i++) {
        u32 piece = ((volatile u32 *)device->plan)[i];
        u32 kind = PIECE_KIND(piece), at = PIECE_AT(piece);
        if (kind == PIECE_END)
            break;
        if (kind == PIECE_SFLOAT && !sfloat(scratch, at).is_number)
            return 0;
        if (kind == PIECE_FLOAT && !floating(scratch, at).is_number)
            return 0;
        if (kind == PIECE_TIME && !is_date(scratch, at))
            return 0;
    }
    return 1;
}

/* The number of a report that grows, behind the last one's (`ReportNumbers`). */
INLINE u64 extended(struct report_device *device, u32 number)
{
    if (!(device->flags & HAS_NUMBER))
        return number;
    u64 last = device->last, same = (last & ~0xffffull) + number;
    if (same > last)
        return same;
    return same + 0x10000 < same ? ~0ull : same + 0x10000;
}

/* What names a report: its time and a digest of what it measured (FNV-1a), or the association's epoch and
 * its number. */
INLINE void identify(volatile struct scratch *scratch, struct report_device *device)
{
    u64 time = 0;
    u32 has_time = 0;
    if (device->time_at && is_date(scratch, device->time_at))
        has_time = since_1970(scratch, device->time_at, &time);
    scratch->time = time;
    scratch->has_time = has_time;
    scratch->is_timed = 0;
    if (scratch->has_time && (!(device->flags & HAS_TIME) || device->time != scratch->time))
        scratch->is_timed = 1;
    u64 epoch = ((volatile struct report_device *)device)->epoch, number = scratch->number;
    if (scratch->is_timed) {
        u32 length = scratch->report;
        epoch = scratch->time;
        number = 0xcbf29ce484222325ull;
        /* The plan of longer ones has no time. */
        for (u32 i = MEASURED_AT; i < REPORT_KEPT; i++) {
            if (i >= length)
                break;
            number = (number ^ octet(scratch, i)) * 0x100000001b3ull;
        }
        scratch->digest = number;
        number = scratch->digest;
    }
    scratch->at = TEXT_END;
    prepend_number(scratch, IDENTITY, number);
    prepend(scratch, IDENTITY, '-');
    prepend_number(scratch, IDENTITY, epoch);
    scratch->identity_at = scratch->at;
    scratch->identity_length = TEXT_END - scratch->at;
}

INLINE enum report_reason find_way(struct xdp_md *context, struct scratch *scratch)
{
    u32 *cse = (u32 *)reports.cse, hop, flags = reports.flags;
    enum reason reason;
    struct neighbour_key neighbour = {0, {cse[0], 0, 0, 0}};
    if (flags & CSE_6) {
        struct key key = {
            (u64)BE32(cse[0]) << 32 | BE32(cse[1]),
            (u64)BE32(cse[2]) << 32 | BE32(cse[3]),
        };
        neighbour.address[1] = cse[1];
        neighbour.address[2] = cse[2];
        neighbour.address[3] = cse[3];
        hop = look_up(routes6, constants.words6, key, 48, &reason);
    } else if (constants.words4) {
        struct key key = {(u64)BE32(cse[0]) << 32, 0};
        hop = look_up(routes4, constants.words4, key, 12, &reason);
    } else {
        hop = look_up_direct(BE32(cse[0]), &reason);
    }
    if (hop == 0)
        return REPORT_NO_WAY;
    hop -= 1;
    scratch->way.hop = hop;
    struct found found;
    struct matched packet = {.is_hidden = 1};
    struct hop *record;
    u32 hop_flags;
    reason = read_hop(hop, &record, &hop_flags, &found);
    /* The worker knows which one of several the request's flow has. */
    if (reason != FORWARDED || hop_flags & HOP_GROUP)
        return REPORT_NO_WAY;
    u32 sent = flags & CSE_6 ? SENT_6 : SENT_4;
    reason = resolve(context, &packet, &hop, &neighbour, sent, &found);
    if (reason == LOOKED_AT)
        return REPORT_LOOKED_AT;
    if (reason != FORWARDED || found.port != reports.source_link)
        return REPORT_NO_WAY;
    scratch->way.found = found;
    return REPORT_SENT;
}

INLINE u32 frame_length(struct xdp_md *context)
{
    u32 length = context->data_end - context->data;
    OPAQUE(length);
    return length;
}

/* Makes a frame `grow` octets longer, at either end, or shorter: all of it is written anew. */
INLINE int resize(struct xdp_md *context, s32 grow)
{
    if (grow == 0 || adjust_tail(context, grow) == 0)
        return 1;
    if (grow < 0)
        return 0;
    s32 head = grow < HEAD_ROOM ? grow : HEAD_ROOM;
    if (adjust_head(context, -head))
        return 0;
    if (grow == head || adjust_tail(context, grow - head) == 0)
        return 1;
    adjust_head(context, head);
    return 0;
}

/* Gives a request its numbers: the source port, and message ID and token in its header. */
INLINE void number_request(volatile struct scratch *scratch, u32 place)
{
    u64 number = __sync_fetch_and_add((u64 *)&reports.next, 1);
    u32 port = number >> 16 & (REPORT_PORTS - 1), slot = number & (AWAITED_MAX - 1);
    if ((number & 0xffff) == 0) {
        u64 begun = reports.begun[port], now = scratch->received;
        reports.early[port] = begun && now - begun < NON_LIFETIME;
        reports.begun[port] = now;
    }
    if (reports.early[port])
        count_report(REPORT_ID_REUSED, scratch->octets);
    u32 token = (draw() & ~(AWAITED_MAX - 1)) | slot;
    reports.awaited[slot] = (u64)(place + 1) << 32 | token;
    scratch->message[0] = 0x54;
    scratch->message[1] = 0x02;
    scratch->message[2] = number >> 8;
    scratch->message[3] = number;
    scratch->message[4] = token >> 24;
    scratch->message[5] = token >> 16;
    scratch->message[6] = token >> 8;
    scratch->message[7] = token;
    scratch->port = reports.ports[port];
}

/* The sum of octets that are in memory, with room for three more behind them. */
INLINE s64 sum_of(u8 *octets, u32 length)
{
    s64 sum = 0;
    for (u32 done = 0; done < SUMMED_MAX; done += CHECKED_AT_ONCE) {
        if (done >= length)
            break;
        u32 part = (length - done + 3) & ~3u;
        if (part > CHECKED_AT_ONCE)
            part = CHECKED_AT_ONCE;
        sum = checksum_diff(0, 0, &octets[done], part, sum);
        if (sum < 0)
            return -1;
    }
    return sum;
}

struct header4 {
    struct ethernet ethernet;
    struct ipv4 ip;
    struct udp udp;
} __attribute__((packed));
struct header6 {
    struct ethernet ethernet;
    struct ipv6 ip;
    struct udp udp;
} __attribute__((packed));

INLINE void write_macs(struct ethernet *ethernet, struct scratch *scratch)
{
#pragma unroll
    for (int i = 0; i < 6; i++)
        ethernet->macs[i] = scratch->way.found.macs[i];
}

/* Writes the headers before the message, which has the sum `sum`. */
INLINE void write_headers(struct scratch *scratch, u64 sum)
{
    u32 length = scratch->out;
    u16 udp_length = length + sizeof(struct udp);
    struct udp udp = {scratch->port, reports.cse_port, BE16(udp_length), 0};
    sum += (u64)udp.source + udp.destination + udp.length + udp.length + BE16(UDP);
    if (reports.flags & CSE_6) {
        struct header6 *all = (void *)&scratch->header[HEADER_ROOM - sizeof(*all)];
        write_macs(&all->ethernet, scratch);
        all->ethernet.type = BE16(ETHERTYPE_IPV6);
        all->ip.version_class_label = BE32(6u << 28);
        all->ip.payload_length = udp.length;
        all->ip.next_header = UDP;
        all->ip.hop_limit = HOPS;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 source = reports.source[i], cse = reports.cse[i];
            all->ip.source[i] = source;
            all->ip.destination[i] = cse;
            sum += (u64)source + cse;
        }
        udp.checksum = ~fold(sum);
        udp.checksum = udp.checksum ? udp.checksum : 0xffff;
        all->udp = udp;
        return;
    }
    struct header4 *all = (void *)&scratch->header[HEADER_ROOM - sizeof(*all)];
    u32 source = reports.source[0], cse = reports.cse[0];
    write_macs(&all->ethernet, scratch);
    all->ethernet.type = BE16(ETHERTYPE_IPV4);
    all->ip.version_length = 0x45;
    all->ip.service = 0;
    all->ip.total_length = BE16((u16)(udp_length + sizeof(struct ipv4)));
    all->ip.identification = *(u16 *)&scratch->message[2];
    all->ip.fragment = 0;
    all->ip.ttl = HOPS;
    all->ip.protocol = UDP;
    all->ip.checksum = 0;
    all->ip.source = source;
    all->ip.destination = cse;
    u64 header = (u64)BE16(0x4500) + all->ip.total_length + all->ip.identification +
                 BE16(HOPS << 8 | UDP) + source + cse;
    all->ip.checksum = ~fold(header);
    sum += (u64)source + cse;
    udp.checksum = ~fold(sum);
    udp.checksum = udp.checksum ? udp.checksum : 0xffff;
    all->udp = udp;
}

/* Notes that a report was sent on. */
INLINE void note(volatile struct scratch *scratch, struct report_device *device)
{
    u32 length = scratch->report, flags = device->flags | HAS_NUMBER;
    device->reports += 1;
    device->last = scratch->number;
    device->received = scratch->received;
    if (scratch->has_time) {
        device->time = scratch->time;
        flags |= HAS_TIME;
    }
    device->flags = flags;
    device->latest = (length <= REPORT_KEPT ? length : 0) |
                     (scratch->is_timed ? LATEST_IS_TIMED : 0);
    u64 *latest = (u64 *)device->octets;
    const volatile u64 *report = (const volatile u64 *)&scratch->datagram[sizeof(struct udp)];
    for (u32 i = 0; i < REPORT_KEPT / 8; i++) {
        if (8 * i >= length)
            break;
        latest[i] = report[i];
    }
}

/* Prepares the request of a report that is whole, whose device is locked, and the frame for it. */
INLINE enum report_reason prepare(struct xdp_md *context, struct scratch *scratch,
                                  struct report_device *device)
{
    if (!matches(scratch, device, scratch->report))
        return REPORT_DIFFERS;
    u32 version = reports.version;
    fence();
    enum report_reason reason = find_way(context, scratch);
    if (reason != REPORT_SENT)
        return reason;
    u32 headers = sizeof(struct header4);
    if (reports.flags & CSE_6)
        headers = sizeof(struct header6);
    scratch->headers = headers;
    scratch->received = clock_monotonic() / 1000 + reports.clock;
    u32 number = octet(scratch, NUMBER_AT) << 8 | octet(scratch, NUMBER_AT + 1);
    scratch->number = extended(device, number);
    fence();
    if (version & 1 || version != reports.version)
        return REPORT_BUSY;
    scratch->version = version;
    identify(scratch, device);
    scratch->out = COAP_HEADER;
    for (u32 i = 0; i < PLAN_PIECES; i++)
        if (!write_piece(scratch, device, i))
            break;
    u32 octets = scratch->headers + scratch->out;
    if (scratch->out > MESSAGE_MAX || octets - sizeof(struct ethernet) > scratch->way.found.mtu)
        return REPORT_NO_ROOM;
    s32 grow = (s32)octets - (s32)frame_length(context);
    return resize(context, grow) ? REPORT_SENT : REPORT_NO_ROOM;
}

/* Writes the request into the frame, which has its length. */
INLINE int write_request(struct xdp_md *context, struct scratch *scratch,
                         struct report_device *device)
{
    number_request(scratch, device->place);
    u32 length = scratch->out;
    /* A checksum is of whole words. */
    for (u32 i = 0; i < 4; i++)
        scratch->message[(length + i) & (MESSAGE_ROOM - 1)] = 0;
    s64 sum = sum_of(scratch->message, length);
    if (sum < 0)
        return XDP_DROP;
    write_headers(scratch, sum);
    volatile struct scratch *shared = scratch;
    /* Settings that have just changed may be of two routes. */
    fence();
    if (shared->version != reports.version)
        return XDP_DROP;
    u32 from = (HEADER_ROOM - shared->headers) & (HEADER_ROOM - 1);
    length = (shared->headers + shared->out) & (MESSAGE_ROOM - 1);
    if (length == 0 || store_octets(context, 0, &scratch->header[from], length))
        return XDP_DROP;
    return redirect_map(&ports, scratch->way.found.port, XDP_DROP);
}

/* Whether a device sends from there, and has a plan. */
INLINE int is_from(volatile struct report_device *device, struct datagram *datagram)
{
    u32 differ = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        differ |= device->address[i] ^ datagram->source[i];
    return !differ && device->port == datagram->port && device->family == datagram->family &&
           device->serial != 0;
}

/* The device that sends from there, if it has a plan. */
INLINE struct report_device *find_device(struct datagram *datagram)
{
    u32 hash = report_constants.seed[0];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        hash = (hash ^ datagram->source[i]) * 0x9e3779b1u;
        hash ^= hash >> 15;
    }
    hash = (hash ^ ((u32)datagram->port << 16 | datagram->family)) * 0x85ebca6bu;
    hash ^= hash >> 13;
    hash = (hash ^ report_constants.seed[1]) * 0xc2b2ae35u;
    hash ^= hash >> 16;
    for (u32 probe = 0; probe < SENDER_PROBES; probe++) {
        u32 place = (hash + probe) & report_constants.mask;
        struct report_device *device = map_lookup(&report_devices, &place);
        if (!device)
            return 0;
        if (is_from(device, datagram))
            return device;
    }
    return 0;
}

/* Whether a datagram is for the devices' port; fills in what is known of it. */
INLINE int is_report(struct xdp_md *context, struct datagram *datagram, u32 *is_fragment)
{
    void *data = (void *)(u64)context->data, *end = (void *)(u64)context->data_end;
    struct ethernet *ethernet = data;
    if ((void *)(ethernet + 1) > end)
        return 0;
    u32 flags = reports.flags;
    if (!(flags & REPORTS_ON) || !reports.ports[0])
        return 0;
    struct udp *udp;
    if (ethernet->type == BE16(ETHERTYPE_IPV4)) {
        struct ipv4 *ip = (void *)(ethernet + 1);
        if ((void *)(ip + 1) > end || flags & LISTEN_6 || ip->protocol != UDP ||
            ip->destination != reports.listen[0])
            return 0;
        *is_fragment = (ip->fragment & BE16(0x3fff)) != 0;
        datagram->source[0] = ip->source;
        datagram->family = 4;
        datagram->at = sizeof(*ethernet) + sizeof(*ip);
        datagram->length = BE16(ip->total_length) - sizeof(*ip);
        datagram->octets = BE16(ip->total_length);
        datagram->sum = halves(ip->source) + halves(ip->destination);
        udp = (void *)(ip + 1);
    } else {
        struct ipv6 *ip = (void *)(ethernet + 1);
        if ((void *)(ip + 1) > end || !(flags & LISTEN_6) || ip->next_header != UDP)
            return 0;
        u32 differ = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            differ |= ip->destination[i] ^ reports.listen[i];
            datagram->source[i] = ip->source[i];
            datagram->sum += halves(ip->source[i]) + halves(ip->destination[i]);
        }
        if (differ)
            return 0;
        datagram->family = 6;
        datagram->at = sizeof(*ethernet) + sizeof(*ip);
        datagram->length = BE16(ip->payload_length);
        datagram->octets = datagram->length + sizeof(*ip);
        udp = (void *)(ip + 1);
    }
    if ((void *)(udp + 1) > end)
        return 0;
    datagram->port = udp->source;
    return *is_fragment || udp->destination == reports.listen_port;
}

/* Whether the datagram that was read has a right checksum, or one that is left to the device that
 * sends it, or none, as IPv4 allows (RFC 768). */
INLINE int is_sound(struct scratch *scratch, struct datagram *datagram)
{
    struct udp *udp = (void *)scratch->datagram;
    u32 length = datagram->length;
    if (udp->length != BE16((u16)length))
        return 0;
    if (udp->checksum == 0)
        return datagram->family == 4;
    u64 pseudo = (u64)datagram->sum + BE16(UDP) + udp->length;
    if (constants.partial && udp->checksum == fold(pseudo))
        return 1;
    s64 sum = sum_of(scratch->datagram, length);
    return sum >= 0 && fold(pseudo + sum) == 0xffff;
}

/* Cache lines of a device's record that a report of a common plan needs. */
#define CACHE_LINE 64
#define LINES_NEEDED 10

/* Has the processor fetch them while the report is read and summed. */
INLINE void fetch(volatile struct report_device *device)
{
#pragma unroll
    for (u32 line = 1; line < LINES_NEEDED; line++)
        (void)((volatile u8 *)device)[line * CACHE_LINE];
}

INLINE enum report_reason handle(struct xdp_md *context, struct datagram *datagram, int *verdict)
{
    volatile struct rules *all =
        &rules[2 * (constants.link & (LINKS_MAX - 1)) + (datagram->family == 6)];
    u32 none = 0, length = datagram->length;
    struct report_device *device = find_device(datagram);
    if (!device)
        return REPORT_STRANGER;
    fetch(device);
    struct scratch *scratch = map_lookup(&report_scratch, &none);
    if (!scratch)
        return REPORT_BUSY;
    if (all->number || all->version & 1)
        return REPORT_LOOKED_AT;
    if (length <= sizeof(struct udp) + MEASURED_AT || length > sizeof(struct udp) + REPORT_MAX)
        return REPORT_DIFFERS;
    if (load_octets(context, datagram->at, scratch->datagram, length))
        return REPORT_DIFFERS;
    /* A checksum is of whole words. */
    for (u32 i = 0; i < 4; i++)
        scratch->datagram[(length + i) & (DATAGRAM_ROOM - 1)] = 0;
    if (!is_sound(scratch, datagram))
        return REPORT_CHECKSUM;
    if (__sync_val_compare_and_swap(&device->lock, 0, 1))
        return REPORT_BUSY;
    scratch->report = length - sizeof(struct udp);
    scratch->octets = datagram->octets;
    enum report_reason reason = REPORT_STRANGER;
    if (is_from(device, datagram))
        reason = prepare(context, scratch, device);
    if (reason == REPORT_SENT) {
        *verdict = write_request(context, scratch, device);
        if (*verdict == XDP_DROP) {
            reason = REPORT_LOST;
        } else {
            note(scratch, device);
            u32 octets = scratch->headers + scratch->out - sizeof(struct ethernet);
            count(&hop_counts, scratch->way.hop, octets);
        }
    }
    __sync_lock_test_and_set(&device->lock, 0);
    return reason;
}

SECTION("xdp") int report(struct xdp_md *context)
{
    struct datagram datagram = {};
    int verdict = XDP_PASS;
    u32 is_fragment = 0;
    u32 octets = frame_length(context) - sizeof(struct ethernet);
    if (is_report(context, &datagram, &is_fragment)) {
        enum report_reason reason = REPORT_FRAGMENT;
        if (!is_fragment)
            reason = handle(context, &datagram, &verdict);
        count_report(reason, datagram.octets);
        if (reason == REPORT_SENT || reason == REPORT_LOST)
            return verdict;
    }
    count(&counts, (constants.link & (LINKS_MAX - 1)) * REASON_ROOM + NO_ROUTE, octets);
    return up(context);
}
