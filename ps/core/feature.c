/* Tables and variables of one core: made, put into service, taken out of it, and freed. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/optimizer/kernels.h"
#include "dataplane/wire/format/ranges.h"
#include "ps/core/core.h"
#include "ps/core/push_log.h"

static enum mr_status explain(const struct mr_feature *feature, enum mr_status status, const char *what,
                              char *text)
{
    if (status != MR_OK)
        snprintf(text, PS_CORE_TEXT_BYTES, "%s: %s%s%s", feature->name, mr_status_text(status),
                 status == MR_UNSUPPORTED ? ": " : "", status == MR_UNSUPPORTED ? what : "");
    return status;
}

enum mr_status ps_feature_own(struct ps_feature *f, char *text)
{
    enum mr_status status = MR_OK;
    for (uint32_t i = 0; i < f->range_count && status == MR_OK; i++)
        if (ps_since_is_owned(f->core->owns.since[f->ranges[i].partition]))
            status = ps_feature_make_range(f, i, text);
    return status;
}

enum mr_status ps_feature_make_range(struct ps_feature *f, uint32_t range, char *text)
{
    const char *what = "";
    struct ps_range *r = &f->ranges[range];
    if (r->variable != NULL || r->owner_core != f->core->index)
        return MR_OK;
    const enum mr_status status = ps_variable_create(&f->feature, range, f->core->arena, &r->variable, &what);

    return explain(&f->feature, status, what, text);
}

enum mr_status ps_feature_load_range(struct ps_feature *f, uint32_t range, uint64_t offset,
                                     const uint8_t *bytes, uint64_t count, char *text)
{
    struct ps_range *r = &f->ranges[range];
    const uint64_t total = ps_variable_stored_bytes(r->variable);
    if (count > total - r->loaded_bytes || offset > total - count) {
        snprintf(text, PS_CORE_TEXT_BYTES, "variable %s: a piece reaches beyond its end, or comes twice",
                 f->feature.name);
        return MR_BAD_MESSAGE;
    }
    if (r->loading == NULL && (r->loading = calloc(1, total)) == NULL) {
        snprintf(text, PS_CORE_TEXT_BYTES, "variable %s: no memory left", f->feature.name);
        return MR_OUT_OF_MEMORY;
    }
    memcpy(r->loading + offset, bytes, count);
    r->loaded_bytes += count;
    if (r->loaded_bytes < total)
        return MR_OK;
    ps_variable_load(r->variable, r->loading);
    r->is_not_finite =
        !mr_kernels_best()->all_finite(ps_variable_values(r->variable), ps_variable_elements(r->variable));
    free(r->loading);
    r->loading = NULL;
    return MR_OK;
}

void ps_feature_reload_range(struct ps_feature *f, uint32_t range)
{
    struct ps_range *r = &f->ranges[range];
    free(r->loading);
    r->loading = NULL;
    r->loaded_bytes = 0;
}

uint64_t ps_feature_variable_bytes(const struct ps_feature *f)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < f->range_count; i++)
        if (f->ranges[i].variable != NULL)
            bytes += ps_variable_stored_bytes(f->ranges[i].variable);
    return bytes;
}

enum mr_status ps_feature_create(struct ps_core *core, uint32_t id, const struct mr_feature *feature,
                                 struct ps_feature **out, char *text)
{
    const char *what = "";
    const uint32_t range_count = feature->kind == MR_VARIABLE ? mr_variable_ranges(feature) : 0;
    struct ps_feature *f = calloc(1, sizeof(*f) + range_count * sizeof(f->ranges[0]));
    if (f == NULL) {
        snprintf(text, PS_CORE_TEXT_BYTES, "%s: no memory left", feature->name);
        return MR_OUT_OF_MEMORY;
    }
    f->core = core;
    f->id = id;
    f->feature = *feature;
    enum mr_status status = MR_OK;
    if (feature->kind == MR_TABLE) {
        status = ps_table_create(feature, core->arena, &core->node->key_secret, &f->table, &what);
        (void)explain(feature, status, what, text);
        if (status == MR_OK) {
            ps_table_set_share(f->table, core->index, core->node->core_count);
            ps_table_set_now(f->table, core->now_s, 0);
            ps_push_log_watch(f);
        }
        if (status == MR_OK && core->tombstone_arena != NULL)
            ps_table_keep_marks(f->table, core->tombstone_arena);
    }
    f->range_count = range_count;
    for (uint32_t i = 0; i < range_count; i++) {
        f->ranges[i].partition = mr_range_partition(feature->name, i);
        f->ranges[i].owner_core = core->node->partition_core[f->ranges[i].partition];
    }
    if (status == MR_OK)
        status = ps_feature_own(f, text);
    if (status != MR_OK) {
        ps_feature_destroy(f);
        return status;
    }
    *out = f;
    return MR_OK;
}

void ps_feature_alter(struct ps_feature *f, const struct mr_feature *feature)
{
    f->feature = *feature;
    if (f->table != NULL)
        ps_table_alter(f->table, feature, f->core->index, f->core->node->core_count);
    for (uint32_t i = 0; i < f->range_count; i++)
        if (f->ranges[i].variable != NULL)
            ps_variable_alter(f->ranges[i].variable, feature);
}

void ps_feature_destroy(struct ps_feature *f)
{
    assert(!f->in_cut);
    if (f->table != NULL)
        ps_table_destroy(f->table);
    for (uint32_t i = 0; i < f->range_count; i++) {
        assert(!f->ranges[i].in_cut);
        ps_variable_destroy(f->ranges[i].variable);
        free(f->ranges[i].loading);
    }
    free(f);
}

struct ps_drop_stats ps_feature_drop_stats(const struct ps_feature *f)
{
    if (f->table == NULL)
        return (struct ps_drop_stats){.gradients_skipped = f->gradients_skipped};
    const struct ps_table_counters *c = ps_table_counters(f->table);
    return (struct ps_drop_stats){.rows_refused = c->rows_refused,
                                  .gradients_without_row = c->gradients_without_row,
                                  .gradients_skipped = c->gradients_skipped,
                                  .limit = ps_table_refused_by(f->table)};
}

void ps_core_put_feature(struct ps_core *core, struct ps_feature *f)
{
    assert(f->id >= 1 && f->id <= MR_FEATURE_ID_MAX && core->features[f->id] == NULL);
    core->features[f->id] = f;
    if (f->table != NULL && core->changes != NULL)
        ps_table_collect(f->table, &core->changes[f->id]);
    if (f->table != NULL && core->has_followed)
        ps_table_follow(f->table, &core->followed);
    core->feature_id_max = f->id > core->feature_id_max ? f->id : core->feature_id_max;
    core->counters.features++;
}

void ps_core_follow(struct ps_core *core, const struct ps_partition_set *partitions, bool follows)
{
    core->followed = (follows ? ps_partitions_or : ps_partitions_without)(&core->followed, partitions);
    core->has_followed = !ps_partitions_empty(&core->followed);
    for (uint32_t id = 1; id <= core->feature_id_max; id++)
        if (core->features[id] != NULL && core->features[id]->table != NULL)
            ps_table_follow(core->features[id]->table, core->has_followed ? &core->followed : NULL);
}

enum mr_status ps_core_add_feature(struct ps_core *core, uint32_t id, const struct mr_feature *feature,
                                   char *text)
{
    struct ps_feature *f;
    enum mr_status status = ps_feature_create(core, id, feature, &f, text);
    if (status == MR_OK)
        ps_core_put_feature(core, f);
    return status;
}

/* ---- out of service ----
 * Freeing takes 45 ms for each GiB, so it is done in slices, between calls: by the core itself as part of its
 * upkeep, and by whoever waits for the memory. */

void ps_pending_free_add(struct ps_core *core, struct ps_feature *f)
{
    assert(!f->in_cut);
    f->pending_free_next = core->pending_free;
    core->pending_free = f;
}

void ps_core_remove_feature(struct ps_core *core, uint32_t id)
{
    struct ps_feature *f = ps_core_feature(core, id);
    if (f != NULL) {
        ps_pending_free_add(core, f);
        core->features[id] = NULL;
        core->counters.features--;
    }
}

void ps_core_clear(struct ps_core *core)
{
    assert(core->coop_tasks.running == NULL);
    ps_batch_cache_clear(core->batches);
    ps_applied_batches_clear(core->applied);
    ps_clients_clear(core->clients);
    ps_pushes_clear(core->pushes);
    ps_partials_clear(&core->partials);
    for (uint32_t id = 1; id <= core->feature_id_max; id++)
        ps_core_remove_feature(core, id);
    core->feature_id_max = 0;
    core->counters.batches_applied = 0;
    ps_core_set_step(core, 0);
    ps_save_marks_lost(core);
}

static void end_first(struct ps_core *core)
{
    struct ps_feature *f = core->pending_free;
    core->pending_free = f->pending_free_next;
    ps_feature_destroy(f);
}

/* Frees a huge page of a range, or the rest of one. True when there is more. */
static bool destroy_some_range(struct ps_feature *f)
{
    while (f->range_count > 0 && f->ranges[f->range_count - 1].variable == NULL)
        free(f->ranges[--f->range_count].loading);
    if (f->range_count == 0)
        return false;
    struct ps_range *last = &f->ranges[f->range_count - 1];
    if (!ps_variable_destroy_some(last->variable)) {
        ps_variable_destroy(last->variable);
        last->variable = NULL;
    }
    return true;
}

bool ps_pending_free_step(struct ps_core *core)
{
    struct ps_feature *f = core->pending_free;
    if (f == NULL)
        return false;
    if (!(f->table != NULL ? ps_table_destroy_some(f->table) : destroy_some_range(f)))
        end_first(core);
    return core->pending_free != NULL;
}

void ps_pending_free_end(struct ps_core *core)
{
    while (core->pending_free != NULL)
        end_first(core);
}

struct left {
    bool more[DP_CORES_MAX];
};

static void step_on_core(struct ps_core *core, void *arg)
{
    struct left *left = arg;
    left->more[core->index] = ps_pending_free_step(core);
}

void ps_pending_free_wait(struct ps_node *node)
{
    bool more = true;
    while (more) {
        struct left left = {.more = {false}};
        ps_node_each_core(node, step_on_core, &left);
        more = false;
        for (uint32_t i = 0; i < node->core_count; i++)
            more |= left.more[i];
    }
}
