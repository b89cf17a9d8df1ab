#include <assert.h>
#include "dataplane/loop/core.h"

static const char *const port_names[] = {
#define NAME(name, help) #name,
    DP_COUNTER_LIST(NAME)
#undef NAME
};

static const char *const wire_names[] = {
#define NAME(name, help) #name,
    MR_WIRE_COUNTER_LIST(NAME)
#undef NAME
};

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof((array)[0])))
static_assert(sizeof(struct dp_counters) == sizeof(port_names) / sizeof(port_names[0]) * sizeof(uint64_t),
              "one field per name");
static_assert(sizeof(struct mr_wire_counters) ==
                  sizeof(wire_names) / sizeof(wire_names[0]) * sizeof(uint64_t),
              "one field per name");

void dp_core_add_counters(struct dp_core *core, const char *set, const char *const *names,
                          const uint64_t *values, uint32_t count)
{
    uint32_t index = atomic_load_explicit(&core->set_count, memory_order_relaxed);
    assert(index < DP_COUNTER_SETS_MAX);
    core->sets[index] = (struct dp_counter_set){set, names, values, count};
    atomic_store_explicit(&core->set_count, index + 1, memory_order_release);
}

void dp_core_add_own_counters(struct dp_core *core)
{
    dp_core_add_counters(core, "port", port_names, (const uint64_t *)&core->counters, COUNT(port_names));
    dp_core_add_counters(core, "wire", wire_names, (const uint64_t *)mr_endpoint_counters(core->endpoint),
                         COUNT(wire_names));
}

void dp_core_each_counter(const struct dp_core *core,
                          void (*visit)(void *arg, const char *set, const char *name, uint64_t value),
                          void *arg)
{
    uint32_t sets = atomic_load_explicit(&core->set_count, memory_order_acquire);
    for (uint32_t i = 0; i < sets; i++) {
        const struct dp_counter_set *set = &core->sets[i];
        for (uint32_t j = 0; j < set->count; j++)
            visit(arg, set->name, set->names[j], __atomic_load_n(&set->values[j], __ATOMIC_RELAXED));
    }
}

uint32_t dp_core_busy_ppm(const struct dp_core *core)
{
    return atomic_load_explicit(&core->busy_ppm, memory_order_relaxed);
}

const struct mr_histogram *dp_core_latency(const struct dp_core *core, uint32_t op,
                                           enum mr_latency_phase phase)
{
    return mr_endpoint_latency(core->endpoint, op, phase);
}
