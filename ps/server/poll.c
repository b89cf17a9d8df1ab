#include "ps/server/poll.h"

#include <stdio.h>
#include <stdlib.h>
#include "dataplane/wire/base/bytes.h"
#include "dataplane/wire/base/log.h"
#include "dataplane/wire/base/number.h"
#include "ps/move/cleanup.h"
#include "ps/move/copy_source.h"
#include "ps/move/migration_source.h"
#include "ps/core/push_log.h"
#include "ps/ops/ops.h"
#include "ps/server/node_counters.h"
#include "ps/server/rpc_node.h"

#define TOMBSTONE_SHARE      64u         /* of the memory for tables: keys of removed rows, for deltas */
#define GAUGE_INTERVAL_US    100000u     /* between two looks at values that are not counted as they change */
#define EXPIRE_PER_POLL_MAX  4u          /* batches dropped in one poll, so that it stays short */
#define UPKEEP_BUDGET_BYTES  (16u << 10) /* memory touched by the upkeep of tables in one poll: about 3 us */
#define UPKEEP_TABLES_MAX    8u          /* looked at in one poll */
#define UPKEEP_POLLS_BETWEEN 32u         /* polls with other work between two with upkeep */

struct ps_core *ps_core_create(struct ps_node *node, uint32_t index)
{
    const struct ps_config *config = node->config;
    struct ps_core *core = calloc(1, sizeof(*core));
    if (core == NULL)
        return NULL;
    core->node = node;
    core->index = index;
    ps_ownership_init(core);
    ps_core_set_clock_us(core, 0); /* until a checkpoint says how long its tables were served */
    uint64_t batch_bytes = config->batches_memory_mib * MR_MIB / node->core_count;
    uint64_t record_bytes = PS_RECORD_MIB * MR_MIB;
    core->batch_arena = ps_arena_create(batch_bytes + record_bytes);
    uint64_t table_bytes = config->memory_limit_mib * MR_MIB / node->core_count - batch_bytes - record_bytes;
    if (config->checkpoint_deltas > 0) {
        uint64_t tombstone_bytes = table_bytes / TOMBSTONE_SHARE;
        tombstone_bytes =
            tombstone_bytes > PS_ARENA_LIMIT_BYTES_MIN ? tombstone_bytes : PS_ARENA_LIMIT_BYTES_MIN;
        core->tombstone_arena = ps_arena_create(tombstone_bytes);
        table_bytes -= tombstone_bytes < table_bytes ? tombstone_bytes : table_bytes;
    }
    core->arena = ps_arena_create(table_bytes);
    if (core->arena == NULL || core->batch_arena == NULL ||
        (config->checkpoint_deltas > 0 && core->tombstone_arena == NULL))
        goto fail;
    (void)ps_arena_keep(core->arena, ps_arena_restore_bytes(ps_arena_limit_bytes(core->arena)));
    if (node->prefault != NULL)
        ps_arena_prefault(core->arena, node->prefault);
    core->batches = ps_batch_cache_create(core->batch_arena, (uint32_t)config->batches_count_max, batch_bytes,
                                          config->batches_ttl_ms * 1000, node->key_secret.bits[0]);
    const struct ps_push_guard guard = ps_core_push_guard(core);
    core->applied = ps_applied_batches_create(core->batch_arena, &guard);
    core->clients = ps_clients_create(core->batch_arena, node->key_secret.bits[1]);
    core->pushes = ps_pushes_create(core->batch_arena, &guard);
    uint32_t calls_max = (uint32_t)config->transport_sessions_max * MR_WINDOW_MAX;
    if (core->batches == NULL || core->applied == NULL || core->clients == NULL || core->pushes == NULL ||
        !ps_coop_tasks_init(&core->coop_tasks, calls_max))
        goto fail;
    return core;
fail:
    ps_core_destroy(core);
    return NULL;
}

void ps_core_destroy(struct ps_core *core)
{
    if (core == NULL)
        return;
    if (core->save.writer != NULL)
        ps_save_end(core);
    ps_push_log_end(core);
    for (uint32_t id = 1; id <= core->feature_id_max; id++)
        ps_core_remove_feature(core, id);
    ps_staging_end(core);
    ps_pending_free_end(core);
    ps_drop_answers(core);
    ps_migration_source_end(core, 0);
    ps_copy_source_end(core, 0);
    ps_push_answers_free(core);
    ps_coop_tasks_free(&core->coop_tasks);
    ps_partials_clear(&core->partials);
    ps_pushes_destroy(core->pushes);
    ps_clients_destroy(core->clients);
    ps_applied_batches_destroy(core->applied);
    ps_batch_cache_destroy(core->batches);
    if (core->batch_arena != NULL)
        ps_arena_destroy(core->batch_arena);
    if (core->arena != NULL)
        ps_arena_destroy(core->arena);
    ps_arena_destroy(core->tombstone_arena);
    free(core);
}

static void add_counters(struct ps_core *core)
{
    const struct ps_node *node = core->node;
    dp_core_add_counters(core->dp_core, &ps_core_counter_set, (const uint64_t *)&core->counters);
    dp_core_add_counters(core->dp_core, &ps_table_counter_set, (const uint64_t *)&core->table_counters);
    dp_core_add_counters(core->dp_core, &ps_log_counter_set, (const uint64_t *)&core->log_counters);
    if (core->index != 0)
        return;
    dp_core_add_counters(core->dp_core, &ps_checkpoint_counter_set,
                         (const uint64_t *)&node->checkpoint_counters);
    dp_core_add_counters(core->dp_core, &ps_cluster_counter_set, (const uint64_t *)&node->cluster_counters);
    dp_core_add_counters(core->dp_core, &ps_uring_counter_set, (const uint64_t *)&node->uring_counters);
    dp_core_add_counters(core->dp_core, &ps_scrubber_counter_set, (const uint64_t *)&node->scrubber_counters);
    dp_core_add_counters(core->dp_core, &ps_copier_counter_set, (const uint64_t *)&node->copier_counters);
}

void *ps_core_start(void *self, struct dp_core *dp_core, char error[DP_ERROR_BYTES])
{
    struct ps_node *node = self;
    struct ps_core *core = ps_core_create(node, dp_core_index(dp_core));
    mr_log_never_wait();
    if (core == NULL) {
        snprintf(error, DP_ERROR_BYTES,
                 "core %u: no memory for %llu MiB of tables and batches: lower memory.limit_mib or "
                 "batches.count_max",
                 dp_core_index(dp_core),
                 (unsigned long long)(node->config->memory_limit_mib / node->core_count));
        return NULL;
    }
    core->dp_core = dp_core;
    core->ep = dp_core_endpoint(dp_core);
    core->phases = dp_core_phases(dp_core);
    if (core->index == 0 && node->rpc != NULL) {
        if (ps_rpc_start(node->rpc, node->dp, dp_core, node->incarnation, error) != MR_OK) {
            ps_core_destroy(core);
            return NULL;
        }
        core->rpc = node->rpc;
    }
    core->gate = PS_GATE_BUSY; /* until main has restored what there is */
    add_counters(core);
    node->cores[core->index] = core;
    return core;
}

void ps_core_stop(void *self)
{
    struct ps_core *core = self;
    core->node->cores[core->index] = NULL;
    if (core->capture != NULL)
        ps_capture_end(core);
    if (core->rpc != NULL)
        ps_rpc_stop(core->rpc);
    ps_core_destroy(core);
}

/* Evicts rows that are due, unless the node is frozen or not open. */
static bool evict_step(const struct ps_core *core, struct ps_table *t)
{
    ps_table_set_now(t, core->now_s, 0);
    return core->freeze == MR_FREEZE_OFF && core->gate == PS_GATE_OPEN &&
           ps_table_evict(t, UPKEEP_BUDGET_BYTES);
}

static bool table_step(const struct ps_core *core, struct ps_table *t)
{
    bool more = evict_step(core, t);
    return ps_table_maintain(t, UPKEEP_BUDGET_BYTES) || more;
}

/* A little of the tables' background work, table by table; true when there is more of it. */
static bool upkeep_step(struct ps_core *core)
{
    for (uint32_t i = 0; i < UPKEEP_TABLES_MAX && i < core->feature_id_max; i++) {
        core->upkeep_id = core->upkeep_id >= core->feature_id_max ? 1 : core->upkeep_id + 1;
        const struct ps_feature *f = core->features[core->upkeep_id];
        if (f != NULL && f->table != NULL && table_step(core, f->table))
            return true;
    }
    return false;
}

/* Returns when it is due again. */
static uint64_t poll_rpc(struct ps_core *core, uint64_t now_us)
{
    const enum dp_phase before = dp_phase_enter(core->phases, DP_PHASE_rpc);
    const uint64_t due_us = ps_rpc_poll(core->rpc, now_us);
    dp_phase_leave(core->phases, before);
    return due_us;
}

static bool poll_save(struct ps_core *core, uint64_t now_us)
{
    const enum dp_phase before = dp_phase_enter(core->phases, DP_PHASE_save);
    const bool more = ps_save_poll(core, now_us);
    dp_phase_leave(core->phases, before);
    return more;
}

bool ps_core_poll(void *self, uint64_t now_us)
{
    struct ps_core *core = self;
    uint32_t expired = ps_batch_expire(core->batches, now_us, EXPIRE_PER_POLL_MAX);
    core->counters.batches_expired += expired;
    if (now_us >= core->next_gauge_us) {
        core->next_gauge_us = now_us + GAUGE_INTERVAL_US;
        ps_core_refresh_gauges(core);
        ps_core_see_time(core, now_us);
    }
    bool more = expired == EXPIRE_PER_POLL_MAX;
    if (core->answers != NULL)
        ps_answer_commands(core);
    uint64_t due_us = core->rpc != NULL ? poll_rpc(core, now_us) : UINT64_MAX;
    more |= ps_coop_tasks_step(core, now_us) || ps_early_push_step(core);
    if (core->save.writer != NULL)
        more |= poll_save(core, now_us);
    if (core->log != NULL)
        due_us = mr_min_u64(due_us, ps_push_log_poll(core, now_us));
    if (core->copies != NULL)
        due_us = mr_min_u64(due_us, ps_move_reads_poll(core, now_us));
    dp_core_due(core->dp_core, due_us);
    if (core->capture != NULL)
        ps_capture_poll(core, now_us);
    if (!more || ++core->upkeep_polls >= UPKEEP_POLLS_BETWEEN) {
        core->upkeep_polls = 0;
        more |= ps_pending_free_step(core);
        more |= ps_cleanup_step(core);
        more |= upkeep_step(core);
    }
    return more;
}

uint64_t ps_core_last_push_step(void *self, const uint8_t *client_uuid)
{
    struct ps_core *core = self;
    return ps_clients_last_step(core->clients, client_uuid);
}
