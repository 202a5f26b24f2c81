/* Swaps or pops the label of each labelled frame that a link receives. Every other frame, and a
 * labelled one that goes nowhere, is passed up as it came: sockets for its type receive it. */
#include "bpf.h"
#include "label.h"

/* The frame where it is now; 0 if it is shorter than its headers. It is read anew each time: the compiler
 * would keep the 32 bits that the field has, of what is a pointer for the kernel's checker. */
INLINE struct labelled *frame_of(struct sk_buff *skb)
{
    volatile struct sk_buff *now = skb;
    struct labelled *frame = (void *)(u64)now->data;
    return (void *)(frame + 1) > (void *)(u64)now->data_end ? 0 : frame;
}

/* Makes a labelled frame an IP frame, without its label. The kernel's type of a frame changes only
 * with a tag: one is pushed twice, the second time into the frame; with the place of the label it makes
 * two tags, which are popped. */
INLINE long unlabel(struct sk_buff *skb, u32 version)
{
    if (vlan_push(skb, BE16(ETHERTYPE_VLAN), 1) || vlan_push(skb, BE16(ETHERTYPE_VLAN), 1))
        return -1;
    if (pull_data(skb, sizeof(struct labelled) + 4))
        return -1;
    struct labelled *frame = (void *)(u64)skb->data;
    if ((void *)(frame + 1) + 4 > (void *)(u64)skb->data_end)
        return -1;
    u16 *inner = (void *)frame + 16;
    inner[0] = BE16(ETHERTYPE_VLAN);
    inner[1] = 0;
    inner[2] = version == 4 ? BE16(ETHERTYPE_IPV4) : BE16(ETHERTYPE_IPV6);
    return vlan_pop(skb) || vlan_pop(skb) || vlan_pop(skb) ? -1 : 0;
}

/* Pops the label of a packet for a station at a bridge port: it leaves as it was before it got one. */
INLINE int pop_to_port(struct sk_buff *skb, u32 version, u32 place, struct found *found, u32 octets)
{
    if (unlabel(skb, version))
        goto drop;
    struct labelled *frame = frame_of(skb);
    if (!frame)
        goto drop;
    address(frame->macs, found);
    count_reason(POPPED, octets);
    count(&label_counts, place, octets);
    return redirect(links[found->link & (LINKS_MAX - 1)].interface, 0);
drop:
    count_reason(UNCUT, octets);
    return TC_DROP;
}

/* Pops the label in place: an 802.1Q tag of no VLAN, four octets too, stands where it stood, and
 * the host's stack strips it. So the frame keeps its offloads, and nothing moves. */
INLINE int pop(struct sk_buff *skb, u32 entry, u32 version, u32 place, struct found *found,
               u32 octets)
{
    u16 type = version == 4 ? BE16(ETHERTYPE_IPV4) : BE16(ETHERTYPE_IPV6);
    enum label_reason reason = RESERVED;
    if (!(entry & BOTTOM_OF_STACK))
        goto up;
    reason = NOT_IP;
    if (version != 4 && version != 6)
        goto up;
    if (links[found->link & (LINKS_MAX - 1)].flags & BRIDGE_PORT)
        return pop_to_port(skb, version, place, found, octets);
    reason = TRUNCATED;
    struct labelled *frame = frame_of(skb);
    if (UNLIKELY(!frame))
        goto up;
    address(frame->macs, found);
    frame->type = BE16(ETHERTYPE_VLAN);
    frame->entry = (u32)type << 16;
    count_reason(POPPED, octets);
    count(&label_counts, place, octets);
    return redirect(links[found->link & (LINKS_MAX - 1)].interface, REDIRECT_INGRESS);
up:
    count_reason(reason, octets);
    return TC_NEXT;
}

/* Makes a labelled super-frame an IP super-frame and makes room to label it again: a device without
 * segmentation then has it cut by the kernel, which cannot cut what it holds for MPLS. */
INLINE long retype(struct sk_buff *skb, u32 version)
{
    return unlabel(skb, version) ? -1 : change_head(skb, 4, 0);
}

SECTION("tc") int label_switch(struct sk_buff *skb)
{
    if (skb->protocol != BE16(ETHERTYPE_MPLS))
        return TC_NEXT;
    u32 octets = skb->len;
    enum label_reason reason = TRUNCATED;
    struct labelled *frame = frame_of(skb);
    if (UNLIKELY(!frame)) {
        if (pull_data(skb, sizeof(*frame)))
            goto up;
        frame = frame_of(skb);
        if (!frame)
            goto up;
    }
    reason = NOT_OURS;
    if (!is_ours(frame->macs))
        goto up;
    u32 entry = BE32(frame->entry), label = entry >> 12, version = frame->payload >> 4;
    reason = RESERVED;
    if (label < LABEL_FIRST)
        goto up;
    reason = UNKNOWN;
    u32 place = label_place(label);
    if (place >= LABELS_MAX)
        goto up;
    struct found found;
    reason = choose(&labels[place], label | LABEL_PRESENT, 0, 0, &found);
    if (UNLIKELY(reason != SWAPPED))
        goto up;
    /* RFC 3032 §2.4.2: a packet whose outgoing TTL would be 0 is not forwarded. */
    reason = EXPIRED;
    if ((entry & 0xff) <= 1)
        goto up;
    if (found.label == LABEL_POP)
        return pop(skb, entry, version, place, &found, octets);
    if (UNLIKELY(skb->gso_size && links[found.link].flags & NO_SUPER_FRAMES)) {
        reason = RESERVED;
        if (!(entry & BOTTOM_OF_STACK))
            goto drop;
        reason = UNCUT;
        if (retype(skb, version))
            goto drop;
        frame = frame_of(skb);
        if (!frame)
            goto drop;
        frame->type = BE16(ETHERTYPE_MPLS);
    }
    reason = TRUNCATED;
    frame = frame_of(skb);
    if (UNLIKELY(!frame))
        goto up;
    address(frame->macs, &found);
    frame->entry = BE32(found.label << 12 | ((entry & 0xfff) - 1));
    count_reason(SWAPPED, octets);
    count(&label_counts, place, octets);
    return redirect(links[found.link].interface, 0);
drop:
    count_reason(reason, octets);
    return TC_DROP;
up:
    count_reason(reason, octets);
    return TC_NEXT;
}
