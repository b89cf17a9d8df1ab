#include "dataplane/dpdk/port_queues.h"
#include <errno.h>
#include <stdio.h>
#include <rte_ethdev.h>
#include <rte_mbuf_pool_ops.h>
#include <rte_mempool.h>

#define POOL_BUFFERS       8192u /* per queue; net_af_xdp alone may hold 4 x 2048 of them */
#define POOL_CACHE_BUFFERS 256u

uint32_t dp_port_af_packet_frame_bytes(uint32_t mtu)
{
    uint32_t bytes = 2048;

    while (bytes < mtu + 256)
        bytes *= 2;
    return bytes;
}

static struct rte_mempool *make_pool(const struct dp_port *port, const struct dp_net *net, uint16_t queue)
{
    uint32_t room = RTE_PKTMBUF_HEADROOM + DP_XDP_HEADROOM_BYTES + net->mtu + DP_ETHER_EXTRA_BYTES;
    struct rte_pktmbuf_pool_private private = {0};
    char name[RTE_MEMPOOL_NAMESIZE];
    /* net_af_xdp takes the pool for one piece without gaps, so buffers may lie across page boundaries. */
    unsigned flags =
        port->driver == DP_DRIVER_PCI ? 0 : RTE_MEMPOOL_F_NO_IOVA_CONTIG | RTE_MEMPOOL_F_NO_SPREAD;

    if (port->driver == DP_DRIVER_AF_PACKET)
        room = RTE_PKTMBUF_HEADROOM + dp_port_af_packet_frame_bytes(net->mtu);
    if (room < RTE_MBUF_DEFAULT_BUF_SIZE)
        room = RTE_MBUF_DEFAULT_BUF_SIZE;
    room = RTE_ALIGN_CEIL(room, RTE_MBUF_PRIV_ALIGN);
    private.mbuf_data_room_size = (uint16_t)room;
    snprintf(name, sizeof(name), "packets_%u_%u", port->id, queue);
    struct rte_mempool *pool =
        rte_mempool_create_empty(name, POOL_BUFFERS, (unsigned)sizeof(struct rte_mbuf) + room,
                                 POOL_CACHE_BUFFERS, sizeof(private), SOCKET_ID_ANY, flags);
    if (pool == NULL)
        return NULL;
    if (rte_mempool_set_ops_byname(pool, rte_mbuf_best_mempool_ops(), NULL) != 0)
        goto fail;
    rte_pktmbuf_pool_init(pool, &private);
    if (rte_mempool_populate_default(pool) < 0)
        goto fail;
    if (port->driver == DP_DRIVER_AF_XDP && pool->nb_mem_chunks != 1)
        goto fail;
    rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
    return pool;
fail:
    rte_mempool_free(pool);
    return NULL;
}

int dp_port_setup_queues(struct dp_port *port, const struct dp_config *config, const struct dp_net *net)
{
    uint16_t rx = config->rx_descriptors, tx = config->tx_descriptors;
    unsigned socket = (unsigned)rte_eth_dev_socket_id(port->id);
    int result = rte_eth_dev_adjust_nb_rx_tx_desc(port->id, &rx, &tx);

    for (uint16_t queue = 0; result == 0 && queue < port->queue_count; queue++) {
        port->pools[queue] = make_pool(port, net, queue);
        if (port->pools[queue] == NULL)
            return -ENOMEM;
        result = rte_eth_rx_queue_setup(port->id, queue, rx, socket, NULL, port->pools[queue]);
        if (result == 0)
            result = rte_eth_tx_queue_setup(port->id, queue, tx, socket, NULL);
    }
    return result;
}
