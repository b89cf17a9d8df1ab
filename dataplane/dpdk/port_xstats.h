/* The counters that a port's driver keeps, under the driver's own names: those of a NIC tell of packets that
 * it dropped, of errors on the wire and of pauses. Refreshed by one thread, not by the data cores. */
#ifndef DP_PORT_XSTATS_H
#define DP_PORT_XSTATS_H

#include <stdint.h>
#include "dataplane/wire/base/counter_set.h"

struct rte_eth_xstat;
struct rte_eth_xstat_name;

struct dp_port_xstats {
    struct mr_counter_set set; /* empty: the driver keeps none */
    struct rte_eth_xstat_name *texts;
    struct rte_eth_xstat *read;
    struct mr_counter *counters;
    uint64_t *values; /* for everybody */
};

/* Finds out which the open port has. Without memory for them there are none. */
void dp_port_xstats_open(struct dp_port_xstats *stats, uint16_t port);
void dp_port_xstats_refresh(struct dp_port_xstats *stats, uint16_t port);
void dp_port_xstats_close(struct dp_port_xstats *stats);

#endif
