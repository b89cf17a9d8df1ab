#include "ps/node_cluster/copies_pace.h"

#include <stdbool.h>
#include "dataplane/wire/base/number.h"

void ps_copies_lag_measure(struct ps_copies_lag *l, const struct ps_copy_status *status, uint32_t core_count,
                           uint64_t now_us)
{
    const uint64_t since_us = l->mark_us == 0 ? 0 : now_us - l->mark_us;
    bool is_reached = true;
    l->bytes = 0;
    for (uint32_t i = 0; i < core_count; i++) {
        const uint64_t applied = atomic_load_explicit(&status[i].applied, memory_order_relaxed),
                       end = atomic_load_explicit(&status[i].end, memory_order_relaxed);
        l->bytes += end > applied ? end - applied : 0;
        is_reached &= applied >= l->end[i];
    }
    if (!is_reached) {
        l->us = mr_max_u64(l->us, since_us);
        l->looks++;
        return;
    }
    l->us = l->bytes == 0 || l->looks == 0 ? 0 : since_us;
    l->mark_us = now_us;
    l->looks = 0;
    for (uint32_t i = 0; i < core_count; i++)
        l->end[i] = atomic_load_explicit(&status[i].end, memory_order_relaxed);
}

void ps_copies_retry_failed(struct ps_copies_retry *r, uint64_t now_us)
{
    if (r->since_us != 0 && now_us - r->since_us > PS_COPIES_CALM_US)
        r->failures = 0;
    const uint64_t pause_us = PS_COPIES_RETRY_US << (r->failures < 6 ? r->failures : 6);
    r->at_us = now_us + mr_min_u64(pause_us, PS_COPIES_RETRY_US_MAX);
    r->since_us = 0;
    r->failures++;
}

void ps_copies_retry_well(struct ps_copies_retry *r, uint64_t now_us)
{
    if (r->since_us == 0)
        r->since_us = now_us;
}
