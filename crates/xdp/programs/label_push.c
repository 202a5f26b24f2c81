/* Pushes a label on each packet to a destination with a path: at the ingress of the mesh interface's
 * peer, for what the host sends, and at that of a bridge port, for what its stations send. Every other
 * frame stays there as it came, where sockets for its type receive it; frames of VLANs are dropped. */
#include "bpf.h"
#include "label.h"

/* The class of each IP precedence, four bits each: 0 network control (6, 7), 1 bounded delay (4, 5),
 * 2 bulk (0, 2, 3), 3 background (1: RFC 3662). */
#define CLASSES 0x00112232u

/* The path's place, PATHS_MAX if there is none (`path_places` in labels.rs). */
INLINE u32 path_place(u32 key0, u32 key1)
{
    u32 start = ((key0 * 0x9e3779b1u ^ key1 * 0x85ebca6bu) * 0xc2b2ae35u) >> 16;
    for (u32 probe = 0; probe < PROBES; probe++) {
        u32 place = (start + probe) & (PATHS_MAX - 1);
        if (paths[place].key[0] == key0 && paths[place].key[1] == key1)
            return place;
    }
    return PATHS_MAX;
}

INLINE int push(struct sk_buff *skb, u32 place, u32 class, struct found *found, u32 octets)
{
    /* Not adjust_room: it marks super-frames as of doubtful origin, and no device takes them. */
    if (UNLIKELY(change_head(skb, 4, 0))) {
        count_reason(NO_ROOM, octets);
        return TC_DROP;
    }
    struct labelled *frame = (void *)(u64)skb->data;
    if (UNLIKELY((void *)(frame + 1) > (void *)(u64)skb->data_end))
        return TC_DROP;
    address(frame->macs, found);
    frame->type = BE16(ETHERTYPE_MPLS);
    frame->entry = BE32(found->label << 12 | class << 9 | BOTTOM_OF_STACK | LABEL_TTL);
    count_reason(PUSHED, octets);
    count(&path_counts, place, octets);
    return redirect(links[found->link & (LINKS_MAX - 1)].interface, 0);
}

SECTION("tc") int label_push(struct sk_buff *skb)
{
    enum label_reason reason = OTHER_TYPE;
    u32 octets = skb->len, type = skb->protocol;
    volatile struct label_link *own = &links[constants.link & (LINKS_MAX - 1)];
    u32 is_port = own->flags & BRIDGE_PORT;
    /* A tag of VLAN 0 tells a priority only (IEEE 802.1Q §9.6). */
    if (UNLIKELY(skb->vlan_present) && (skb->vlan_tci & 0xfff || vlan_pop(skb)))
        goto drop;
    if (type != BE16(ETHERTYPE_IPV4) && type != BE16(ETHERTYPE_IPV6))
        goto up;
    reason = TRUNCATED;
    struct labelled *frame = (void *)(u64)skb->data;
    if (UNLIKELY((void *)(frame + 1) > (void *)(u64)skb->data_end)) {
        if (pull_data(skb, sizeof(*frame)))
            goto up;
        frame = (void *)(u64)skb->data;
        if ((void *)(frame + 1) > (void *)(u64)skb->data_end)
            goto up;
    }
    reason = LINK_DOWN;
    if (is_port && !own->up)
        goto up;
    reason = NOT_OURS;
    if (BE16(frame->macs[0]) >> 8 & 1)
        goto up;
    /* The three upper bits of the traffic class: of IPv4's second octet, of IPv6's first two. */
    u32 head = BE32(frame->entry);
    u32 precedence = type == BE16(ETHERTYPE_IPV4) ? head >> 21 & 7 : head >> 25 & 7;
    u32 class = CLASSES >> (precedence * 4) & 3;
    u32 key0 = frame->macs[0] | (u32)frame->macs[1] << 16;
    u32 key1 = frame->macs[2] | (class + 1) << 16;
    u32 place = path_place(key0, key1);
    reason = UNKNOWN;
    if (place >= PATHS_MAX)
        goto up;
    /* The kernel's hash of the flow: its socket's, or that of its addresses and ports. */
    u32 flow = paths[place].select & SPREADS ? flow_hash(skb) : 0;
    struct found found;
    reason = choose(&paths[place], key0, key1, flow, &found);
    if (UNLIKELY(reason != SWAPPED))
        goto up;
    return push(skb, place, class, &found, octets);
up:
    /* Sockets for all types have seen a frame before this program. The host's stack must not: it would
     * answer ARP for the addresses of its mesh interface. */
    if (is_port && reason == OTHER_TYPE)
        goto drop;
    count_reason(reason, octets);
    return TC_NEXT;
drop:
    count_reason(reason, octets);
    return TC_DROP;
}
