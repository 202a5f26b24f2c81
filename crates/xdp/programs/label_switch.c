/* Swaps or pops the label of each labelled frame that a link receives. Every other frame, and a
 * labelled one that goes nowhere, is passed up as it came: sockets for its type receive it. */
#include "bpf.h"
#include "label.h"

/* Pops the label in place: an 802.1Q tag of no VLAN, four octets too, stands where it stood, and
 * the host's stack strips it. So the frame keeps its offloads, and nothing moves. */
INLINE int pop(struct labelled *frame, u32 place, struct found *found, u32 octets)
{
    u32 version = frame->payload >> 4;
    u16 type = version == 4 ? BE16(ETHERTYPE_IPV4) : BE16(ETHERTYPE_IPV6);
    enum label_reason reason = RESERVED;
    if (!(BE32(frame->entry) & BOTTOM_OF_STACK))
        goto up;
    reason = NOT_IP;
    if (version != 4 && version != 6)
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

/* Makes a labelled super-frame an IP super-frame and labels it again: a device without segmentation
 * then has it cut by the kernel, which cannot cut what it holds for MPLS. The kernel's type of a
 * frame changes only with a tag: one is pushed twice, the second time into the frame; with the place
 * of the label it makes two tags, which are popped. */
INLINE long retype(struct sk_buff *skb, u32 version)
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
    if (vlan_pop(skb) || vlan_pop(skb) || vlan_pop(skb))
        return -1;
    return change_head(skb, 4, 0);
}

SECTION("tc") int label_switch(struct sk_buff *skb)
{
    if (skb->protocol != BE16(ETHERTYPE_MPLS))
        return TC_NEXT;
    u32 octets = skb->len;
    enum label_reason reason = TRUNCATED;
    struct labelled *frame = (void *)(u64)skb->data;
    if (UNLIKELY((void *)(frame + 1) > (void *)(u64)skb->data_end)) {
        if (pull_data(skb, sizeof(*frame)))
            goto up;
        frame = (void *)(u64)skb->data;
        if ((void *)(frame + 1) > (void *)(u64)skb->data_end)
            goto up;
    }
    reason = NOT_OURS;
    if (!is_ours(frame->macs))
        goto up;
    u32 entry = BE32(frame->entry), label = entry >> 12;
    reason = RESERVED;
    if (label < LABEL_FIRST)
        goto up;
    reason = UNKNOWN;
    u32 place = label_place(label);
    if (place >= LABELS_MAX)
        goto up;
    struct found found;
    reason = choose(&labels[place], label | LABEL_PRESENT, 0, &found);
    if (UNLIKELY(reason != SWAPPED))
        goto up;
    /* RFC 3032 §2.4.2: a packet whose outgoing TTL would be 0 is not forwarded. */
    reason = EXPIRED;
    if ((entry & 0xff) <= 1)
        goto up;
    if (found.label == LABEL_POP)
        return pop(frame, place, &found, octets);
    if (UNLIKELY(skb->gso_size && links[found.link].flags & NO_SUPER_FRAMES)) {
        reason = RESERVED;
        if (!(entry & BOTTOM_OF_STACK))
            goto drop;
        reason = UNCUT;
        if (retype(skb, frame->payload >> 4))
            goto drop;
        frame = (void *)(u64)skb->data;
        if ((void *)(frame + 1) > (void *)(u64)skb->data_end)
            goto drop;
        frame->type = BE16(ETHERTYPE_MPLS);
    }
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
