/* How a packet that rules limit goes from the program that forwards to the one that limits: the kernel's
 * checker would follow the whole of the first one again for each token. */

/* By link, behind those that send on reports: the programs that limit. */
#define LIMITING LINKS_MAX

/* What the first program has found out of a packet. */
struct limited {
    u32 from;    /* the first rule that limits */
    u32 until;   /* the rule that drops it, RULES_MAX if none does */
    u32 family;
    u32 octets;  /* as of `struct matched` */
    u32 version; /* of the rules */
    u32 place;   /* of the numbers of the rule that drops it */
    u32 more;    /* octets before the IP header that this one counts */
    u32 hop;
    u32 port;    /* by which it leaves */
    u32 length;  /* of what leaves */
};

/* One for each processor. */
MAP(limited_packets);

/* Hands a frame, all of it written, to the program that limits. */
INLINE void limit_packet(struct xdp_md *context, struct limited *limited)
{
    u32 none = 0;
    struct limited *place = map_lookup(&limited_packets, &none);
    if (UNLIKELY(!place))
        return;
    *place = *limited;
    jump(context, &stages, LIMITING + (constants.link & (LINKS_MAX - 1)));
}

/* Sends a frame, all of it written. */
INLINE int leave(u32 hop, u32 port, u32 length)
{
    u32 at = (constants.link & (LINKS_MAX - 1)) * REASON_ROOM;
    int verdict = redirect_map(&ports, port, XDP_DROP);
    if (UNLIKELY(verdict == XDP_DROP)) {
        count(&counts, at + NO_PORT, length);
        return XDP_DROP;
    }
    count(&counts, at + FORWARDED, length);
    count(&hop_counts, hop, length);
    return verdict;
}
