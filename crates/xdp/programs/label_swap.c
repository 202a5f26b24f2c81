/* Swaps the label of each labelled frame that a link receives, in its driver. Every other frame is
 * passed to the programs behind, unchanged and uncounted: `label_switch.c` stands there. */
#include "bpf.h"
#include "label.h"

MAP(ports);

SECTION("xdp") int label_swap(struct xdp_md *context)
{
    void *data = (void *)(u64)context->data, *end = (void *)(u64)context->data_end;
    struct labelled *frame = data;
    u32 octets = context->data_end - context->data;
    if ((void *)(frame + 1) > end || frame->type != BE16(ETHERTYPE_MPLS) || !is_ours(frame->macs))
        return XDP_PASS;
    u32 entry = BE32(frame->entry), label = entry >> 12, place = label_place(label);
    struct found found;
    if (place >= LABELS_MAX || (entry & 0xff) <= 1 ||
        choose(&labels[place], label | LABEL_PRESENT, 0, 0, &found) != SWAPPED ||
        found.label == LABEL_POP)
        return XDP_PASS;
    int verdict = redirect_map(&ports, found.link, XDP_PASS);
    if (UNLIKELY(verdict == XDP_PASS))
        return XDP_PASS;
    address(frame->macs, &found);
    frame->entry = BE32(found.label << 12 | ((entry & 0xfff) - 1));
    count_reason(SWAPPED, octets);
    count(&label_counts, place, octets);
    return verdict;
}
