#include "ps/server/metrics_tables.h"

#include <assert.h>
#include <stdlib.h>
#include "ps/server/node_counters.h"

struct sums {
    struct ps_feature_sight *features; /* by rising id */
    uint32_t count;
};

static void add_counters(struct ps_table_counters *sum, const struct ps_table_counters *more)
{
#define ADD(name, kind, unit, help) sum->name += more->name;
    PS_TABLE_COUNTER_LIST(ADD)
#undef ADD
}

static void add_feature(struct ps_feature_sight *sum, const struct ps_feature_sight *more)
{
    add_counters(&sum->counters, &more->counters);
    sum->memory.index_bytes += more->memory.index_bytes;
    sum->memory.values_bytes += more->memory.values_bytes;
    sum->memory.state_bytes += more->memory.state_bytes;
    sum->memory.slack_bytes += more->memory.slack_bytes;
    sum->memory.filter_bytes += more->memory.filter_bytes;
    sum->variable_bytes += more->variable_bytes;
    sum->gradients_skipped += more->gradients_skipped;
}

static int by_id(const void *a, const void *b)
{
    const struct ps_feature_sight *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* False: a core has not answered, or there is no memory. */
static bool sum_up(const struct ps_core_snapshots *snapshots, uint32_t core_count, struct sums *out)
{
    size_t all = 0;
    for (uint32_t i = 0; i < core_count; i++) {
        const struct ps_core_snapshot *snapshot = ps_core_snapshots_of(snapshots, i);
        if (snapshot == NULL)
            return false;
        all += snapshot->feature_count;
    }
    *out = (struct sums){.features = calloc(all + 1, sizeof(*out->features))};
    if (out->features == NULL)
        return false;
    for (uint32_t i = 0; i < core_count; i++) {
        const struct ps_core_snapshot *snapshot = ps_core_snapshots_of(snapshots, i);
        for (uint32_t j = 0; j < snapshot->feature_count; j++)
            out->features[out->count++] = snapshot->features[j];
    }
    qsort(out->features, out->count, sizeof(*out->features), by_id);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < out->count; i++)
        if (kept > 0 && out->features[kept - 1].id == out->features[i].id)
            add_feature(&out->features[kept - 1], &out->features[i]);
        else
            out->features[kept++] = out->features[i];
    out->count = kept;
    return true;
}

/* ---- values of one feature, in the order of its sets ---- */

static uint64_t table_counter(const struct ps_feature_sight *f, uint32_t index)
{
    return ((const uint64_t *)&f->counters)[index];
}

static uint64_t table_memory(const struct ps_feature_sight *f, uint32_t index)
{
    const uint64_t values[] = {f->memory.index_bytes, f->memory.values_bytes, f->memory.state_bytes,
                               f->memory.slack_bytes, f->memory.filter_bytes, f->limit_bytes};
    assert(ps_table_memory_set.count == sizeof(values) / sizeof(values[0]));
    return values[index];
}

static uint64_t variable_value(const struct ps_feature_sight *f, uint32_t index)
{
    const uint64_t values[] = {f->variable_bytes, f->gradients_skipped};
    assert(ps_variable_metric_set.count == sizeof(values) / sizeof(values[0]));
    return values[index];
}

static void write_set(struct mr_metrics_text *text, const struct mr_labels *labels, const struct sums *sums,
                      const struct mr_counter_set *set, bool of_tables,
                      uint64_t (*value)(const struct ps_feature_sight *f, uint32_t index))
{
    for (uint32_t i = 0; i < set->count; i++) {
        bool has_begun = false;
        for (uint32_t j = 0; j < sums->count; j++) {
            const struct ps_feature_sight *f = &sums->features[j];
            struct mr_labels own = *labels;
            if (f->is_table != of_tables)
                continue;
            if (!has_begun)
                mr_metrics_family(text, set, &set->counters[i]);
            has_begun = true;
            mr_labels_add(&own, of_tables ? "table" : "variable", f->name);
            mr_metrics_sample(text, &own, value(f, i));
        }
    }
}

void ps_metrics_tables(struct mr_metrics_text *text, const struct mr_labels *labels,
                       const struct ps_core_snapshots *snapshots, uint32_t core_count)
{
    struct sums sums;
    if (!sum_up(snapshots, core_count, &sums))
        return;
    write_set(text, labels, &sums, &ps_table_counter_set, true, table_counter);
    write_set(text, labels, &sums, &ps_table_memory_set, true, table_memory);
    write_set(text, labels, &sums, &ps_variable_metric_set, false, variable_value);
    free(sums.features);
}
