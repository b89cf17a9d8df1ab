/* The counters of a core: its own sets and those that the application adds, and its busy share. */
#include <assert.h>
#include "dataplane/loop/core.h"

static const struct mr_counter port_counters[] = {DP_COUNTER_LIST(MR_COUNTER_DESCRIPTION)};
const struct mr_counter_set dp_port_counter_set = {
    .name = "port", .help = "the network port, and a core's loop", MR_COUNTERS(port_counters)};

void dp_core_add_counters(struct dp_core *core, const struct mr_counter_set *set, const uint64_t *values)
{
    uint32_t index = atomic_load_explicit(&core->set_count, memory_order_relaxed);
    assert(index < DP_COUNTER_SETS_MAX);
    core->sets[index] = (struct dp_counter_set){set, values};
    atomic_store_explicit(&core->set_count, index + 1, memory_order_release);
}

void dp_core_add_own_counters(struct dp_core *core)
{
    const struct dp_port_xstats *nic = &core->dp->port_xstats;
    const struct dp_phases *phases = &core->phases;
    dp_core_add_counters(core, &dp_port_counter_set, (const uint64_t *)&core->counters);
    dp_core_add_counters(core, &mr_wire_counter_set, (const uint64_t *)mr_endpoint_counters(core->endpoint));
    dp_core_add_counters(core, &dp_phase_counter_set, (const uint64_t *)&phases->counters);
    dp_core_add_counters(core, &dp_op_calls_counter_set, phases->op_calls);
    dp_core_add_counters(core, &dp_op_cycles_counter_set, phases->op_cycles);
    dp_core_add_counters(core, &dp_op_instructions_counter_set, phases->op_events[DP_OP_INSTRUCTIONS]);
    dp_core_add_counters(core, &dp_op_cache_misses_counter_set, phases->op_events[DP_OP_CACHE_MISSES]);
    dp_core_add_counters(core, &dp_cpu_counter_set, (const uint64_t *)&core->cpu.counters);
    if (core->socket != NULL)
        dp_core_add_counters(core, &dp_socket_counter_set,
                             (const uint64_t *)dp_socket_port_counters(core->socket));
    if (core->index == 0 && nic->set.count > 0)
        dp_core_add_counters(core, &nic->set, nic->values);
}

void dp_cpus_open(struct dp *dp)
{
    for (uint32_t i = 0; i < dp->config.core_count; i++)
        dp_cpu_open(&dp->cores[i].cpu, &dp_perf_kernel, dp->cores[i].tid, dp->config.cpu_events);
    dp_refresh_counters(dp);
}

void dp_cpus_close(struct dp *dp)
{
    for (uint32_t i = 0; i < dp->config.core_count; i++)
        dp_cpu_close(&dp->cores[i].cpu);
}

void dp_refresh_counters(struct dp *dp)
{
    for (uint32_t i = 0; i < dp->config.core_count; i++) {
        struct dp_core *core = &dp->cores[i];
        dp_cpu_refresh(&core->cpu);
        if (core->socket != NULL)
            dp_socket_port_refresh(core->socket);
    }
    dp_port_xstats_refresh(&dp->port_xstats, dp->port.id);
}

bool dp_cpu_events_missing(const struct dp *dp, char why[DP_ERROR_BYTES])
{
    return dp_cpu_explain(&dp->cores[0].cpu, dp_cpu_paranoid("/proc"), why, DP_ERROR_BYTES);
}

struct dp_phases *dp_core_phases(struct dp_core *core)
{
    return &core->phases;
}

void dp_core_each_counter(const struct dp_core *core, dp_visit_counter *visit, void *arg)
{
    uint32_t sets = atomic_load_explicit(&core->set_count, memory_order_acquire);
    for (uint32_t i = 0; i < sets; i++) {
        const struct mr_counter_set *set = core->sets[i].set;
        for (uint32_t j = 0; j < set->count; j++)
            visit(arg, set, &set->counters[j], mr_counter_read(&core->sets[i].values[j]));
    }
}

uint64_t dp_core_turns(const struct dp_core *core)
{
    return mr_counter_read(&core->counters.loops);
}

uint32_t dp_core_busy_ppm(const struct dp_core *core)
{
    return atomic_load_explicit(&core->busy_ppm, memory_order_relaxed);
}
