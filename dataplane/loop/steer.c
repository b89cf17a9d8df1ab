/* Packets, answers and tasks on their way between cores. */
#include <stdio.h>
#include <rte_errno.h>
#include <rte_mbuf.h>
#include "dataplane/loop/core.h"
#include "dataplane/loop/rx_checksums.h"

void dp_steer(struct dp_core *from, uint32_t index, struct rte_mbuf *packet)
{
    struct dp_core *to = &from->dp->cores[index];
    dp_rx_set_checked(packet);
    packet->hash.usr = from->index;
    if (rte_ring_enqueue(to->steered, packet) != 0) {
        from->counters.steer_full++;
        rte_pktmbuf_free(packet);
        return;
    }
    from->counters.steered_out++;
    dp_waiter_ring(&to->waiter);
}

bool dp_post(struct dp *dp, uint32_t index, struct dp_task *task)
{
    struct dp_core *core = &dp->cores[index];
    if (rte_ring_enqueue(core->tasks, task) != 0)
        return false;
    dp_waiter_ring(&core->waiter);
    return true;
}

void dp_wake(struct dp *dp, uint32_t index)
{
    struct dp_core *core = &dp->cores[index];
    atomic_store(&core->woken, true);
    dp_waiter_ring(&core->waiter);
}

static struct rte_ring *make_ring(const char *what, uint32_t core, uint32_t count)
{
    char name[RTE_RING_NAMESIZE];
    /* Several threads put; one takes. RTS: a producer that is switched out in the middle holds up nobody. */
    snprintf(name, sizeof(name), "%s_%u", what, core);
    return rte_ring_create(name, count, SOCKET_ID_ANY, RING_F_MP_RTS_ENQ | RING_F_SC_DEQ);
}

bool dp_rings_create(struct dp *dp, char error[DP_ERROR_BYTES])
{
    for (uint32_t i = 0; i < dp->config.core_count; i++) {
        struct dp_core *core = &dp->cores[i];
        core->steered = make_ring("steered", i, DP_RING_PACKETS);
        core->tx_handed = make_ring("handed", i, DP_RING_PACKETS);
        core->tasks = make_ring("tasks", i, DP_RING_TASKS);
        if (core->steered == NULL || core->tx_handed == NULL || core->tasks == NULL) {
            snprintf(error, DP_ERROR_BYTES, "memory: no room for the rings of core %u (%s); raise memory_mib",
                     i, rte_strerror(rte_errno));
            return false;
        }
    }
    return true;
}

static void drop_packets(struct rte_ring *ring)
{
    void *packet;
    while (ring != NULL && rte_ring_dequeue(ring, &packet) == 0)
        rte_pktmbuf_free(packet);
}

void dp_rings_destroy(struct dp *dp)
{
    for (uint32_t i = 0; i < dp->config.core_count; i++) {
        struct dp_core *core = &dp->cores[i];
        drop_packets(core->steered);
        drop_packets(core->tx_handed);
        rte_ring_free(core->steered);
        rte_ring_free(core->tx_handed);
        rte_ring_free(core->tasks);
        core->steered = core->tx_handed = core->tasks = NULL;
    }
}
