/* DPDK's calls that a binding cannot have as they are: bursts, which its headers define inline, and
 * those whose structures only its headers know. A call is about a whole burst, never a packet.
 *
 * `binding.rs` declares the structures below a second time. */

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>

/* Frames of a burst, as BURST_MAX in binding.rs. */
#define BURST_MAX 32

/* A received frame: it stays with DPDK until it is released. */
struct gw_dpdk_received {
    struct rte_mbuf *mbuf;
    const uint8_t *octets;
    uint32_t len;
    /* The tag that the device took out of the frame, if is_tagged. */
    uint16_t tag;
    uint16_t is_tagged;
};

/* A frame to be sent. */
struct gw_dpdk_frame {
    const uint8_t *octets;
    uint32_t len;
};

/* What a port counts beside frames that it exchanged. */
struct gw_dpdk_missed {
    uint64_t overrun;
    uint64_t receive_errors;
    uint64_t no_buffer;
    uint64_t transmit_errors;
};

int gw_dpdk_errno(void)
{
    return rte_errno;
}

/* Makes a port ready with one queue each way, and starts it. Returns a negated errno, or 0. */
int gw_dpdk_start(uint16_t port, struct rte_mempool *pool, uint16_t slots, uint32_t mtu)
{
    struct rte_eth_conf conf;
    uint16_t receive = slots, transmit = slots;
    int result;

    memset(&conf, 0, sizeof conf);
    conf.rxmode.mtu = mtu;
    result = rte_eth_dev_configure(port, 1, 1, &conf);
    if (result < 0)
        return result;
    result = rte_eth_dev_adjust_nb_rx_tx_desc(port, &receive, &transmit);
    if (result < 0)
        return result;
    result = rte_eth_rx_queue_setup(port, 0, receive, SOCKET_ID_ANY, NULL, pool);
    if (result < 0)
        return result;
    result = rte_eth_tx_queue_setup(port, 0, transmit, SOCKET_ID_ANY, NULL);
    if (result < 0)
        return result;
    return rte_eth_dev_start(port);
}

/* Stops a port, closes it and takes its device off DPDK's buses. */
void gw_dpdk_close(uint16_t port)
{
    struct rte_eth_dev_info info;
    int known = rte_eth_dev_info_get(port, &info);

    (void)rte_eth_dev_stop(port);
    (void)rte_eth_dev_close(port);
    if (known == 0 && info.device != NULL)
        (void)rte_dev_remove(info.device);
}

/* The port's address and driver. Returns a negated errno, or 0. */
int gw_dpdk_describe(uint16_t port, uint8_t address[6], char *driver, size_t driver_len)
{
    struct rte_eth_dev_info info;
    struct rte_ether_addr own;
    int result = rte_eth_dev_info_get(port, &info);

    if (result < 0)
        return result;
    result = rte_eth_macaddr_get(port, &own);
    if (result < 0)
        return result;
    memcpy(address, own.addr_bytes, sizeof own.addr_bytes);
    if (info.driver_name != NULL && driver_len > 0) {
        strncpy(driver, info.driver_name, driver_len - 1);
        driver[driver_len - 1] = '\0';
    }
    return 0;
}

/* Whether the port has a carrier. */
int gw_dpdk_is_up(uint16_t port)
{
    struct rte_eth_link link;

    memset(&link, 0, sizeof link);
    return rte_eth_link_get_nowait(port, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

/* Fills in what the port has counted. Returns a negated errno, or 0. */
int gw_dpdk_missed(uint16_t port, struct gw_dpdk_missed *missed)
{
    struct rte_eth_stats stats;
    int result = rte_eth_stats_get(port, &stats);

    if (result < 0)
        return result;
    missed->overrun = stats.imissed;
    missed->receive_errors = stats.ierrors;
    missed->no_buffer = stats.rx_nombuf;
    missed->transmit_errors = stats.oerrors;
    return 0;
}

/* Receives up to `room` frames, at most BURST_MAX. One that cannot be made contiguous has no octets. */
uint16_t gw_dpdk_receive(uint16_t port, struct gw_dpdk_received *frames, uint16_t room)
{
    struct rte_mbuf *mbufs[BURST_MAX];
    uint16_t count, at;

    if (room > BURST_MAX)
        room = BURST_MAX;
    count = rte_eth_rx_burst(port, 0, mbufs, room);
    for (at = 0; at < count; at++) {
        struct rte_mbuf *mbuf = mbufs[at];
        struct gw_dpdk_received *frame = &frames[at];
        int is_whole = mbuf->nb_segs == 1 || rte_pktmbuf_linearize(mbuf) == 0;

        frame->mbuf = mbuf;
        frame->octets = rte_pktmbuf_mtod(mbuf, const uint8_t *);
        frame->len = is_whole ? rte_pktmbuf_data_len(mbuf) : 0;
        frame->is_tagged = (mbuf->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) != 0;
        frame->tag = mbuf->vlan_tci;
    }
    return count;
}

/* Releases received frames, at most BURST_MAX. */
void gw_dpdk_release(const struct gw_dpdk_received *frames, uint16_t count)
{
    struct rte_mbuf *mbufs[BURST_MAX];
    uint16_t at;

    if (count > BURST_MAX)
        count = BURST_MAX;
    for (at = 0; at < count; at++)
        mbufs[at] = frames[at].mbuf;
    rte_pktmbuf_free_bulk(mbufs, count);
}

/* Sends copies of frames, at most BURST_MAX. Returns how many the device took, from the first. */
uint16_t gw_dpdk_transmit(uint16_t port, struct rte_mempool *pool,
                          const struct gw_dpdk_frame *frames, uint16_t count)
{
    struct rte_mbuf *mbufs[BURST_MAX];
    uint16_t at, sent;

    if (count > BURST_MAX)
        count = BURST_MAX;
    if (count == 0 || rte_pktmbuf_alloc_bulk(pool, mbufs, count) != 0)
        return 0;
    for (at = 0; at < count; at++) {
        char *to = NULL;

        if (frames[at].len <= UINT16_MAX)
            to = rte_pktmbuf_append(mbufs[at], (uint16_t)frames[at].len);
        if (to == NULL)
            break;
        memcpy(to, frames[at].octets, frames[at].len);
    }
    sent = rte_eth_tx_burst(port, 0, mbufs, at);
    rte_pktmbuf_free_bulk(mbufs + sent, count - sent);
    return sent;
}
