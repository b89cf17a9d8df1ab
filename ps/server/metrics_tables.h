/* The part of a node's metrics about its tables and variables: what its cores have said, summed by name. */
#ifndef PS_METRICS_TABLES_H
#define PS_METRICS_TABLES_H

#include "dataplane/metrics/metrics_text.h"
#include "ps/server/core_snapshot.h"

/* Nothing if a core has not answered: a sum without it would be wrong. `labels`: of each sample, before the
 * name. */
void ps_metrics_tables(struct mr_metrics_text *text, const struct mr_labels *labels,
                       const struct ps_core_snapshots *snapshots, uint32_t core_count);

#endif
