/* The fault port: bursts on their way between the port and the core pass through here when [fault] says
 * so. */
#include <stdio.h>
#include <stdlib.h>
#include <rte_branch_prediction.h>
#include <rte_mbuf.h>
#include "dataplane/loop/core.h"
#include "dataplane/loop/rx_checksums.h"
#include "dataplane/wire/base/clock.h"

/* Packets that are passed on, written over those that came in. */
struct line {
    struct rte_mbuf **packets;
    uint32_t count, room;
};

static void damage(struct dp_core *core, struct dp_fault *fault, struct rte_mbuf *packet)
{
    dp_rx_set_unchecked(packet);
    dp_fault_damage(fault, rte_pktmbuf_mtod(packet, uint8_t *), packet->data_len, DP_ETHER_BYTES);
    core->counters.fault_corrupted++;
}

static struct rte_mbuf *second_of(struct dp_core *core, struct rte_mbuf *packet)
{
    struct rte_mbuf *copy = rte_pktmbuf_copy(packet, core->pool, 0, UINT32_MAX);
    if (copy == NULL)
        core->counters.no_buffer++;
    return copy;
}

/* A packet that has been decided on, and what follows it: its duplicate. */
static void decide(struct dp_core *core, struct dp_fault *fault, struct rte_mbuf *packet, uint64_t now_us,
                   struct line *line)
{
    struct dp_fault_choice choice = dp_fault_choose(fault);
    struct rte_mbuf *second;
    if (choice.kind == DP_FAULT_LOSE) {
        core->counters.fault_lost++;
        rte_pktmbuf_free(packet);
        return;
    }
    if (choice.kind == DP_FAULT_DUPLICATE && (second = second_of(core, packet)) != NULL) {
        core->counters.fault_duplicated++;
        if (!dp_fault_hold(fault, DP_FAULT_REORDER, second, now_us))
            rte_pktmbuf_free(second);
    }
    if (choice.corrupt)
        damage(core, fault, packet);
    if ((choice.kind == DP_FAULT_REORDER || choice.kind == DP_FAULT_DELAY) &&
        dp_fault_hold(fault, choice.kind, packet, now_us)) {
        core->counters.fault_late++;
        return;
    }
    line->packets[line->count++] = packet;
}

/* The first `from` packets stay as they are, the others are decided on. */
static uint32_t fault_port_apply(struct dp_core *core, struct dp_fault *fault, struct line line,
                                 uint32_t from, uint64_t now_us)
{
    uint32_t count = line.count;
    struct rte_mbuf *released;
    line.count = from;
    for (uint32_t i = from; i < count; i++)
        decide(core, fault, line.packets[i], now_us, &line);
    while (line.count < line.room && (released = dp_fault_release(fault, now_us)) != NULL)
        line.packets[line.count++] = released;
    return line.count;
}

uint32_t dp_fault_port_receive(struct dp_core *core, struct rte_mbuf **packets, uint32_t count,
                               uint64_t now_us)
{
    struct line line = {packets, count, DP_BURST + DP_FAULT_EXTRA};
    return fault_port_apply(core, core->rx_fault, line, 0, now_us);
}

void dp_fault_port_transmit(struct dp_core *core)
{
    struct line line = {core->tx, core->tx_count, DP_TX_BATCH + DP_FAULT_EXTRA};
    core->tx_count = fault_port_apply(core, core->tx_fault, line, core->tx_decided, mr_clock_us());
    core->tx_decided = core->tx_count;
}

uint64_t dp_fault_port_due_us(const struct dp_core *core)
{
    const struct dp_fault *const faults[] = {core->rx_fault, core->tx_fault};
    uint64_t due_us = UINT64_MAX;
    for (int i = 0; i < 2; i++) {
        for (uint32_t j = 0; faults[i] != NULL && j < faults[i]->held_count; j++)
            if (faults[i]->held[j].due_us < due_us)
                due_us = faults[i]->held[j].due_us;
    }
    return due_us;
}

static struct dp_fault *fault_port_make(const struct dp_fault_config *config, uint64_t seed)
{
    struct dp_fault *made = calloc(1, sizeof(*made));
    if (made != NULL)
        dp_fault_init(made, &config->rates, seed);
    return made;
}

bool dp_fault_port_create(struct dp_core *core, char error[DP_ERROR_BYTES])
{
    const struct dp_fault_config *config = &core->dp->config.fault;
    bool receives =
        (config->direction & DP_FAULT_RECEIVE) != 0 && core->rx_queue_first < core->dp->port.queue_count;
    /* Cores without a queue hand their packets to one that has. */
    bool transmits = (config->direction & DP_FAULT_TRANSMIT) != 0 && core->tx_owner == core;

    if (receives)
        core->rx_fault = fault_port_make(config, config->seed + 2ul * core->index);
    if (transmits)
        core->tx_fault = fault_port_make(config, config->seed + 2ul * core->index + 1);
    if ((receives && core->rx_fault == NULL) || (transmits && core->tx_fault == NULL)) {
        snprintf(error, DP_ERROR_BYTES, "memory: none left for the fault port of core %u", core->index);
        return false;
    }
    return true;
}

static void fault_port_destroy(struct dp_fault **fault)
{
    void *packet;
    while (*fault != NULL && (packet = dp_fault_release(*fault, UINT64_MAX)) != NULL)
        rte_pktmbuf_free(packet);
    free(*fault);
    *fault = NULL;
}

void dp_fault_port_destroy(struct dp_core *core)
{
    fault_port_destroy(&core->rx_fault);
    fault_port_destroy(&core->tx_fault);
}
