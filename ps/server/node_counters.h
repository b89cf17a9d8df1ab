/* The counters of a node: each set that ps/ adds to a core, and a page of all that there are. */
#ifndef PS_NODE_COUNTERS_H
#define PS_NODE_COUNTERS_H

#include "dataplane/wire/base/counter_set.h"

extern const struct mr_counter_set ps_core_counter_set, ps_table_counter_set,
    ps_log_counter_set; /* of each core */
extern const struct mr_counter_set ps_checkpoint_counter_set, ps_cluster_counter_set, ps_uring_counter_set,
    ps_scrubber_counter_set, ps_copier_counter_set, ps_rpc_counter_set; /* of the node, added to core 0 */

#endif
