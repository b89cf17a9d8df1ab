#include "ps/core/core.h"

#include "ps/server/rpc_node.h"

void ps_core_set_step(struct ps_core *core, uint64_t step)
{
    ps_step_clock_set(&core->step_clock, step);
    core->counters.step = step;
    atomic_store_explicit(&core->step, step, memory_order_relaxed);
}

/* ---- the record of pushes ---- */

static bool has_session(void *self, const uint8_t *uuid)
{
    const struct ps_core *core = self;
    return core->dp_core != NULL && mr_endpoint_has_client(dp_core_endpoint(core->dp_core), uuid);
}

static uint32_t network_share(void *self, uint32_t places)
{
    const struct ps_core *core = self;
    return core->dp_core != NULL ? mr_endpoint_network_share(dp_core_endpoint(core->dp_core), places)
                                 : places;
}

static uint32_t monotonic_s(void *self)
{
    return (uint32_t)(dp_now_us() / 1000000);
}

struct ps_push_guard ps_core_push_guard(struct ps_core *core)
{
    return (struct ps_push_guard){.secret = core->node->key_secret.bits[0] ^ core->node->key_secret.bits[1],
                                  .has_session = has_session,
                                  .network_share = network_share,
                                  .now_s = monotonic_s,
                                  .arg = core};
}

/* ---- gauges ---- */

static uint64_t memory_bytes(const struct ps_core *core)
{
    uint64_t tombstone_bytes =
        core->tombstone_arena != NULL ? ps_arena_mapped_bytes(core->tombstone_arena) : 0;
    return ps_arena_mapped_bytes(core->arena) + ps_arena_mapped_bytes(core->batch_arena) + tombstone_bytes;
}

/* The control thread logs it. */
static void notify_push_streams_lost(struct ps_core *core)
{
    _Atomic uint64_t *reported = &core->node->push_streams_lost[core->index];
    if (core->counters.push_streams_lost == atomic_load_explicit(reported, memory_order_relaxed))
        return;
    atomic_store_explicit(reported, core->counters.push_streams_lost, memory_order_relaxed);
    ps_node_wake_control(core->node);
}

/* The control thread logs what is new. */
static void notify_drop_stats(struct ps_core *core)
{
    const struct ps_table_counters *c = &core->table_counters;
    uint64_t sum = c->rows_refused + c->gradients_without_row + c->gradients_skipped +
                   core->counters.variable_gradients_skipped;
    _Atomic uint64_t *reported = &core->node->drop_stats[core->index];
    if (sum == atomic_load_explicit(reported, memory_order_relaxed))
        return;
    atomic_store_explicit(reported, sum, memory_order_relaxed);
    ps_node_wake_control(core->node);
}

/* The control thread logs it. */
static void notify_other_version(struct ps_core *core)
{
    struct ps_heard_version *heard = &core->node->heard_versions[core->index];
    const struct mr_other_version *now = mr_endpoint_other_version(core->ep);
    if (atomic_load_explicit(&heard->is_new, memory_order_acquire) || now->count == heard->last.count)
        return;
    heard->last = *now;
    atomic_store_explicit(&heard->is_new, true, memory_order_release);
    ps_node_wake_control(core->node);
}

void ps_core_refresh_gauges(struct ps_core *core)
{
    struct ps_table_counters sum = {0};
    for (uint32_t id = 1; id <= core->feature_id_max; id++) {
        if (core->features[id] == NULL || core->features[id]->table == NULL)
            continue;
        const struct ps_table_counters *c = ps_table_counters(core->features[id]->table);
#define ADD_TABLE_COUNTER(name, kind, unit, help) sum.name += c->name;
        PS_TABLE_COUNTER_LIST(ADD_TABLE_COUNTER)
#undef ADD_TABLE_COUNTER
    }
    core->table_counters = sum;
    notify_drop_stats(core);
    if (core->ep != NULL)
        notify_other_version(core);
    core->counters.batches_cached = ps_batch_cache_count(core->batches);
    core->counters.batch_bytes = ps_batch_cache_bytes(core->batches);
    core->counters.streams = ps_applied_batches_streams(core->applied);
    core->counters.streams_dropped = ps_applied_batches_dropped(core->applied);
    core->counters.push_streams_forgotten = ps_pushes_forgotten(core->pushes);
    core->counters.push_streams_lost = ps_pushes_lost(core->pushes);
    notify_push_streams_lost(core);
    core->counters.memory_bytes = memory_bytes(core);
    core->counters.steps_ignored = core->step_clock.ignored;
    if (core->rpc != NULL)
        ps_rpc_count(core->rpc);
}

/* ---- time ---- */

void ps_core_see_time(struct ps_core *core, uint64_t now_us)
{
    core->now_s = (uint32_t)((now_us + core->clock_offset_us) / 1000000);
}

uint64_t ps_core_clock_us(const struct ps_core *core)
{
    return dp_now_us() + core->clock_offset_us;
}

void ps_core_set_clock_us(struct ps_core *core, uint64_t clock_us)
{
    uint64_t now_us = dp_now_us();
    core->clock_offset_us = clock_us - now_us;
    ps_core_see_time(core, now_us);
}
