/* Forwards IPv4 and IPv6 from link to link in the driver. What is not plainly to be forwarded goes
 * up as it came: to the link's own program, and so to the graph or to the kernel. */
#include "bpf.h"
#include "tables.h"
#include "look_up.h"
#include "limit.h"

/* Another of these: whether the driver has taken a VLAN tag out of the frame. */
extern int tag_taken(struct xdp_md *context);

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

/* Counts a packet by the rules that count, before the one with the number `until`. If one limits packets,
 * the program that limits goes on from there, and does not come back. Returns 0 where there is none: it is
 * gone with the last process that had the maps, and no token is to be had any more. */
INLINE int count_by_rules(struct xdp_md *context, struct matched *packet, u32 until,
                          struct limited *limited)
{
    volatile struct rules *all = &rules[2 * (constants.link & (LINKS_MAX - 1)) + packet->family];
    for (u32 i = 0; i < RULES_MAX; i++) {
        if (i >= until || i >= all->number)
            break;
        volatile struct rule *rule = &all->rules[i];
        u32 flags = rule->flags;
        if (UNLIKELY(flags & RULE_LIMITS)) {
            limited->from = i;
            limited->until = until;
            limited->family = packet->family;
            limited->octets = packet->octets;
            limited->version = packet->version;
            limit_packet(context, limited);
            count(&rule_counts, rule->place, packet->octets + rule->octets);
            return 0;
        }
        if (!(flags & RULE_DROPS))
            count(&rule_counts, rule->place, packet->octets + rule->octets);
    }
    return 1;
}

/* Whether a packet goes on, is dropped, or goes up because a rule needs what it does not show here. */
INLINE enum reason judge(struct xdp_md *context, struct matched *packet, int *verdict)
{
    volatile struct rules *all = &rules[2 * (constants.link & (LINKS_MAX - 1)) + packet->family];
    u32 version = all->version, number = all->number;
    packet->version = version;
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
    struct limited limited = {.place = place, .more = more};
    if (count_by_rules(context, packet, drops, &limited))
        count(&rule_counts, place, packet->octets + more);
    count(&counts, constants.link * REASON_ROOM + DROPPED, packet->octets);
    *verdict = XDP_DROP;
    return DROPPED;
}

/* Sends a frame whose IP header is changed already. */
INLINE int send(struct xdp_md *context, u32 hop, struct found *found, u32 length,
                struct matched *packet)
{
    void *data = (void *)(u64)context->data, *end = (void *)(u64)context->data_end;
    struct ethernet *ethernet = data;
    if ((void *)(ethernet + 1) > end)
        return XDP_DROP;
#pragma unroll
    for (int i = 0; i < 6; i++)
        ethernet->macs[i] = found->macs[i];
    struct limited limited = {.hop = hop, .port = found->port, .length = length};
    if (UNLIKELY(!count_by_rules(context, packet, RULES_MAX, &limited))) {
        count(&counts, constants.link * REASON_ROOM + DROPPED, packet->octets);
        return XDP_DROP;
    }
    return leave(hop, found->port, length);
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
        .is_hidden = is_any(ip->fragment & BE16(0x3fff)),
        .transport = ip + 1,
        .transport_at = sizeof(struct ethernet) + sizeof(*ip),
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
        .is_hidden = 1 - (is_alike(next, TCP) | is_alike(next, UDP) | is_alike(next, ICMPV6) |
                          is_alike(next, SCTP) | is_alike(next, UDP_LITE)),
        .transport = ip + 1,
        .transport_at = sizeof(struct ethernet) + sizeof(*ip),
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
    if (reason == NO_ROUTE)
        jump(context, &stages, constants.link);
    count(&counts, constants.link * REASON_ROOM + reason, octets);
    return up(context);
}
