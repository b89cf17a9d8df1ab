/* Log lines about what calls asked for and features did not do, and about NaN and Inf in a checkpoint. Cores
 * report when there is more of the former; then the control thread asks them for details, at most once a
 * second. */
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/log.h"
#include "dataplane/wire/base/plural.h"
#include "ps/control/control_internal.h"

#define LOOK_INTERVAL_US     1000000u
#define PUSH_STREAMS_LINE_US 60000000u /* between two lines */

static uint64_t sum_on_cores(const struct ps_control *c)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < c->node->core_count; i++)
        sum += atomic_load_explicit(&c->node->drop_stats[i], memory_order_relaxed);
    return sum;
}

struct drop_stats_of_cores {
    const struct ps_catalog *catalog;
    struct ps_drop_stats *of_core[DP_CORES_MAX]; /* [features] */
};

static void drop_stats_read(struct ps_core *core, void *arg)
{
    const struct drop_stats_of_cores *s = arg;
    for (uint32_t i = 0; i < s->catalog->count; i++) {
        const struct ps_feature *f = ps_core_feature(core, s->catalog->ids[i]);
        if (f != NULL)
            s->of_core[core->index][i] = ps_feature_drop_stats(f);
    }
}

static void control_drop_stats_add(struct ps_drop_stats *sum, const struct ps_drop_stats *more)
{
    sum->rows_refused += more->rows_refused;
    sum->gradients_without_row += more->gradients_without_row;
    sum->gradients_skipped += more->gradients_skipped;
    sum->limit = more->limit != PS_LIMIT_NONE ? more->limit : sum->limit;
}

static void log_feature(struct ps_control *c, uint32_t i, const struct ps_drop_stats *now, uint64_t now_us)
{
    struct ps_drop_stats_log *log = &c->drop_stats.logs[c->catalog.ids[i]];
    struct ps_drop_stats since;
    char line[PS_DROP_STATS_LINE_BYTES_MAX];
    if (ps_drop_stats_due(log, now, now_us, &since)) {
        ps_drop_stats_line(&c->catalog.features[i], &since, c->node->config->memory_limit_mib, line);
        mr_log_with(MR_LOG_WARNING, MR_LOG_FIELDS({"feature", .text = c->catalog.features[i].name}),
                    "drop_stats", "%s", line);
    }
    if (ps_drop_stats_pends(log, now) && log->next_us < c->drop_stats.pending_us)
        c->drop_stats.pending_us = log->next_us;
}

static void control_drop_stats_look(struct ps_control *c, uint64_t now_us)
{
    uint32_t count = c->catalog.count, cores = c->node->core_count;
    struct drop_stats_of_cores s = {.catalog = &c->catalog};
    struct ps_drop_stats *all = calloc((size_t)count * cores + 1, sizeof(*all));
    if (c->drop_stats.logs == NULL) /* pages that nobody writes take no memory */
        c->drop_stats.logs = calloc(MR_FEATURE_ID_MAX + 1, sizeof(*c->drop_stats.logs));
    if (all == NULL || c->drop_stats.logs == NULL) {
        free(all);
        return;
    }
    for (uint32_t i = 0; i < cores; i++)
        s.of_core[i] = all + (size_t)i * count;
    ps_node_each_core(c->node, drop_stats_read, &s);
    c->drop_stats.pending_us = UINT64_MAX;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t core = 1; core < cores; core++)
            control_drop_stats_add(&s.of_core[0][i], &s.of_core[core][i]);
        log_feature(c, i, &s.of_core[0][i], now_us);
    }
    free(all);
}

static uint64_t push_streams_on_cores(const struct ps_control *c)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < c->node->core_count; i++)
        sum += atomic_load_explicit(&c->node->push_streams_lost[i], memory_order_relaxed);
    return sum;
}

static void log_push_streams_lost(struct ps_control *c, uint64_t now_us)
{
    const uint64_t lost = push_streams_on_cores(c), more = lost - c->drop_stats.push_streams_logged;
    if (lost <= c->drop_stats.push_streams_logged || now_us < c->drop_stats.push_streams_us)
        return;
    c->drop_stats.push_streams_logged = lost;
    c->drop_stats.push_streams_us = now_us + PUSH_STREAMS_LINE_US;
    mr_log_with(MR_LOG_WARNING, MR_LOG_FIELDS({"count", .number = more}), "pushes_forgotten",
                "no room for the records of %llu push stream%s of clients that may send their pushes again: "
                "these may be applied twice. More clients push than the cores have room for, or moves or a "
                "restore have brought more: use more cores or nodes, and move rarely",
                (unsigned long long)more, mr_plural(more));
}

static uint64_t features_next_us(const struct ps_control *c)
{
    uint64_t look_us = sum_on_cores(c) != c->drop_stats.seen ? c->drop_stats.look_us : UINT64_MAX;
    return look_us < c->drop_stats.pending_us ? look_us : c->drop_stats.pending_us;
}

void ps_control_drop_stats_poll(struct ps_control *c)
{
    uint64_t now_us = dp_now_us(), sum = sum_on_cores(c);
    log_push_streams_lost(c, now_us);
    if (now_us < features_next_us(c))
        return;
    c->drop_stats.seen = sum;
    c->drop_stats.look_us = now_us + LOOK_INTERVAL_US;
    control_drop_stats_look(c, now_us);
}

uint64_t ps_control_drop_stats_next_us(const struct ps_control *c)
{
    const uint64_t features_us = features_next_us(c);
    const uint64_t push_streams_us = push_streams_on_cores(c) > c->drop_stats.push_streams_logged
                                         ? c->drop_stats.push_streams_us
                                         : UINT64_MAX;
    return push_streams_us < features_us ? push_streams_us : features_us;
}

/* ---- NaN and Inf in a checkpoint ---- */

struct not_finite {
    const struct ps_restore_plan *plan;
    _Atomic uint64_t *counts; /* of rows, or ranges of variables, of each entry */
};

static uint64_t count_ranges(const struct ps_feature *f)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < f->range_count; i++)
        count += f->ranges[i].is_not_finite;
    return count;
}

static void count_not_finite(struct ps_core *core, void *arg)
{
    const struct not_finite *n = arg;
    for (uint32_t i = 0; i < n->plan->count; i++) {
        const struct ps_feature *f = ps_core_feature(core, n->plan->entries[i].id);
        uint64_t count = f == NULL          ? 0
                         : f->table != NULL ? ps_table_counters(f->table)->rows_not_finite
                                            : count_ranges(f);
        atomic_fetch_add_explicit(&n->counts[i], count, memory_order_relaxed);
    }
}

void ps_control_log_not_finite(struct ps_control *c, const struct ps_restore_plan *plan, uint64_t id)
{
    struct not_finite n = {.plan = plan, .counts = calloc(plan->count + 1, sizeof(*n.counts))};
    if (n.counts == NULL)
        return;
    ps_node_each_core(c->node, count_not_finite, &n);
    for (uint32_t i = 0; i < plan->count; i++) {
        const struct mr_feature *f = &plan->entries[i].feature;
        uint64_t count = atomic_load_explicit(&n.counts[i], memory_order_relaxed);
        if (count > 0) {
            mr_log_with(MR_LOG_WARNING, MR_LOG_FIELDS({"feature", .text = f->name}), "not_finite",
                        "restore: %s %.63s has %llu %s with NaN or Inf in checkpoint %llu, which never learn "
                        "again: an older checkpoint may have what was there before",
                        f->kind == MR_TABLE ? "table" : "variable", f->name, (unsigned long long)count,
                        f->kind != MR_TABLE ? (count == 1 ? "range" : "ranges")
                        : count == 1        ? "row"
                                            : "rows",
                        (unsigned long long)id);
        }
    }
    free(n.counts);
}
