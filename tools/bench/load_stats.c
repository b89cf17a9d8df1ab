#include "tools/bench/load_stats.h"

#include <string.h>

static uint64_t read_number(const uint64_t *written)
{
    return __atomic_load_n(written, __ATOMIC_RELAXED);
}

/* There is one writer. */
static void load_stats_add(uint64_t *written,
                           uint64_t more) /* NOLINT(readability-non-const-parameter): stored to */
{
    __atomic_store_n(written, *written + more, __ATOMIC_RELAXED);
}

void tool_load_stats_warm_up(struct tool_load_stats *s)
{
    load_stats_add(&s->warm_up, 1);
}

void tool_load_stats_ended(struct tool_load_stats *s, enum tool_op op, enum mr_status status,
                           uint64_t latency_ns, uint64_t keys, uint64_t bytes)
{
    struct tool_op_stats *o = &s->ops[op];
    load_stats_add(&o->counts[TOOL_ENDED], 1);
    load_stats_add(&s->statuses[status < MR_STATUS_COUNT ? status : MR_INTERNAL], 1);
    mr_histogram_add(&o->latency, latency_ns, 1);
    if (status != MR_OK) {
        load_stats_add(&o->counts[TOOL_FAILED], 1);
        load_stats_add(&o->counts[TOOL_TIMEOUTS], status == MR_DEADLINE_EXCEEDED ? 1 : 0);
        return;
    }
    load_stats_add(&o->counts[TOOL_KEYS], keys);
    load_stats_add(&o->counts[TOOL_BYTES], bytes);
}

void tool_load_stats_unsent(struct tool_load_stats *s, enum tool_op op, uint64_t waited_ns)
{
    load_stats_add(&s->ops[op].counts[TOOL_UNSENT], 1);
    mr_histogram_add(&s->ops[op].latency, waited_ns, 1);
}

void tool_load_stats_read(const struct tool_load_stats *written, struct tool_load_stats *out)
{
    out->warm_up = read_number(&written->warm_up);
    for (uint32_t i = 0; i < MR_STATUS_COUNT; i++)
        out->statuses[i] = read_number(&written->statuses[i]);
    for (uint32_t op = 0; op < TOOL_OPS; op++) {
        for (uint32_t i = 0; i < TOOL_COUNTS; i++)
            out->ops[op].counts[i] = read_number(&written->ops[op].counts[i]);
        mr_histogram_read(&written->ops[op].latency, &out->ops[op].latency);
    }
}

static void merge_op(struct tool_op_stats *to, const struct tool_op_stats *other)
{
    for (uint32_t i = 0; i < TOOL_COUNTS; i++)
        to->counts[i] += other->counts[i];
    mr_histogram_merge(&to->latency, &other->latency);
}

void tool_load_stats_merge(struct tool_load_stats *to, const struct tool_load_stats *other)
{
    to->warm_up += other->warm_up;
    for (uint32_t i = 0; i < MR_STATUS_COUNT; i++)
        to->statuses[i] += other->statuses[i];
    for (uint32_t op = 0; op < TOOL_OPS; op++)
        merge_op(&to->ops[op], &other->ops[op]);
}

void tool_load_stats_subtract(struct tool_load_stats *now, const struct tool_load_stats *before)
{
    now->warm_up -= before->warm_up;
    for (uint32_t i = 0; i < MR_STATUS_COUNT; i++)
        now->statuses[i] -= before->statuses[i];
    for (uint32_t op = 0; op < TOOL_OPS; op++) {
        for (uint32_t i = 0; i < TOOL_COUNTS; i++)
            now->ops[op].counts[i] -= before->ops[op].counts[i];
        mr_histogram_subtract(&now->ops[op].latency, &before->ops[op].latency);
    }
}

void tool_load_stats_sum(const struct tool_load_stats *s, struct tool_op_stats *out)
{
    memset(out, 0, sizeof(*out));
    for (uint32_t op = 0; op < TOOL_OPS; op++)
        merge_op(out, &s->ops[op]);
}
