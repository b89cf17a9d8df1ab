#include "dataplane/dpdk/port_xstats.h"

#include <stdlib.h>
#include <rte_ethdev.h>

/* DPDK gives all or nothing: room for fewer is answered with the number that there are. */
static bool allocate(struct dp_port_xstats *stats, uint32_t count)
{
    stats->texts = calloc(count, sizeof(*stats->texts));
    stats->read = calloc(count, sizeof(*stats->read));
    stats->counters = calloc(count, sizeof(*stats->counters));
    stats->values = calloc(count, sizeof(*stats->values));
    return stats->texts != NULL && stats->read != NULL && stats->counters != NULL && stats->values != NULL;
}

void dp_port_xstats_open(struct dp_port_xstats *stats, uint16_t port)
{
    const int count = rte_eth_xstats_get_names(port, NULL, 0);
    *stats = (struct dp_port_xstats){.texts = NULL};
    if (count <= 0)
        return;
    if (!allocate(stats, (uint32_t)count) ||
        rte_eth_xstats_get_names(port, stats->texts, (unsigned)count) != count) {
        dp_port_xstats_close(stats);
        return;
    }
    for (int i = 0; i < count; i++)
        stats->counters[i] = (struct mr_counter){stats->texts[i].name, MR_COUNTER, MR_UNIT_NONE,
                                                 "what the port's driver counts under this name"};
    stats->set = (struct mr_counter_set){.name = "nic",
                                         .help = "what the port's driver counts",
                                         .counters = stats->counters,
                                         .count = (uint32_t)count,
                                         .of_process = true};
}

void dp_port_xstats_refresh(struct dp_port_xstats *stats, uint16_t port)
{
    if (stats->set.count == 0)
        return;
    const int got = rte_eth_xstats_get(port, stats->read, stats->set.count);
    for (int i = 0; i < got && (uint32_t)got <= stats->set.count; i++)
        if (stats->read[i].id < stats->set.count)
            __atomic_store_n(&stats->values[stats->read[i].id], stats->read[i].value, __ATOMIC_RELAXED);
}

void dp_port_xstats_close(struct dp_port_xstats *stats)
{
    free(stats->texts);
    free(stats->read);
    free(stats->counters);
    free(stats->values);
    *stats = (struct dp_port_xstats){.texts = NULL};
}
