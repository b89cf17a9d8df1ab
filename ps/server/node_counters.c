#include "ps/server/node_counters.h"

#include "dataplane/rpc/base/driver.h"
#include "ps/checkpoint/scrubber.h"
#include "ps/io/write_pool.h"
#include "ps/core/core.h"
#include "ps/save/save_policy.h"
#include "ps/store/copier.h"
#include "ps/table/table.h"

static const struct mr_counter core_counters[] = {PS_CORE_COUNTER_LIST(MR_COUNTER_DESCRIPTION)};
const struct mr_counter_set ps_core_counter_set = {
    .name = "ps", .help = "what a core serves and keeps", MR_COUNTERS(core_counters)};

static const struct mr_counter table_counters[] = {PS_TABLE_COUNTER_LIST(MR_COUNTER_DESCRIPTION)};
const struct mr_counter_set ps_table_counter_set = {
    .name = "table", .help = "a core's share of all tables", MR_COUNTERS(table_counters)};

static const struct mr_counter log_counters[] = {PS_LOG_COUNTER_LIST(MR_COUNTER_DESCRIPTION)};
const struct mr_counter_set ps_log_counter_set = {
    .name = "log", .help = "a core's log of pushes (checkpoint.durability = log)", MR_COUNTERS(log_counters)};

static const struct mr_counter checkpoint_counters[] = {PS_CHECKPOINT_COUNTER_LIST(MR_COUNTER_DESCRIPTION)};
const struct mr_counter_set ps_checkpoint_counter_set = {
    .name = "checkpoint", .help = "saves and restores", MR_COUNTERS(checkpoint_counters), .of_process = true};

static const struct mr_counter cluster_counters[] = {PS_CLUSTER_COUNTER_LIST(MR_COUNTER_DESCRIPTION)};
const struct mr_counter_set ps_cluster_counter_set = {
    .name = "cluster", .help = "a member of a cluster", MR_COUNTERS(cluster_counters), .of_process = true};

static const struct mr_counter uring_counters[] = {PS_URING_COUNTER_LIST(MR_COUNTER_DESCRIPTION)};
const struct mr_counter_set ps_uring_counter_set = {.name = "uring",
                                                    .help = "blocks of checkpoints on their way to the disk",
                                                    MR_COUNTERS(uring_counters),
                                                    .of_process = true};

static const struct mr_counter scrubber_counters[] = {PS_SCRUBBER_COUNTER_LIST(MR_COUNTER_DESCRIPTION)};
const struct mr_counter_set ps_scrubber_counter_set = {.name = "scrub",
                                                       .help = "checkpoints read again, to find damage",
                                                       MR_COUNTERS(scrubber_counters),
                                                       .of_process = true};

static const struct mr_counter copier_counters[] = {PS_COPIER_COUNTER_LIST(MR_COUNTER_DESCRIPTION)};
const struct mr_counter_set ps_copier_counter_set = {.name = "remote",
                                                     .help = "copies of checkpoints to a store",
                                                     MR_COUNTERS(copier_counters),
                                                     .of_process = true};

static const struct mr_counter rpc_counters[] = {MR_AGENT_COUNTER_LIST(MR_COUNTER_DESCRIPTION)};
const struct mr_counter_set ps_rpc_counter_set = {.name = "rpc",
                                                  .help = "the node's worker of remote calls, if it has one",
                                                  MR_COUNTERS(rpc_counters),
                                                  .of_process = true};
