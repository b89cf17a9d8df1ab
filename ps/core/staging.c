#include "ps/core/staging.h"

#include <assert.h>
#include <stdlib.h>
#include "ps/core/core.h"

struct ps_staging {
    bool whole;
    uint32_t clock_s;  /* of the staged checkpoint */
    uint64_t clock_us; /* whole: the same, or that of what served, when it was exchanged */
    uint32_t id_max;
    struct ps_feature *features[MR_FEATURE_ID_MAX + 1]; /* by their number in the checkpoint, from 1 */
    uint64_t feature_count, batches_applied;            /* as the core counts them */
    /* of a whole restore */
    struct ps_applied_batches *applied;
    struct ps_clients *clients;
    struct ps_pushes *pushes;
    struct ps_partials partials;
};

enum mr_status ps_staging_begin(struct ps_core *core, bool whole, uint32_t clock_s)
{
    assert(core->staging == NULL);
    struct ps_staging *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return MR_OUT_OF_MEMORY;
    core->staging = s;
    s->whole = whole;
    s->clock_s = clock_s;
    s->clock_us = clock_s * UINT64_C(1000000);
    if (!whole)
        return MR_OK;
    const struct ps_push_guard guard = ps_core_push_guard(core);
    s->applied = ps_applied_batches_create(core->batch_arena, &guard);
    s->clients = ps_clients_create(core->batch_arena, core->node->key_secret.bits[1]);
    s->pushes = ps_pushes_create(core->batch_arena, &guard);
    if (s->applied == NULL || s->clients == NULL || s->pushes == NULL) {
        ps_staging_end(core);
        return MR_OUT_OF_MEMORY;
    }
    ps_pushes_succeed(s->pushes, core->pushes);
    return MR_OK;
}

/* The core's time once the staged state serves. */
static uint32_t now_s(const struct ps_core *core)
{
    return core->staging->whole ? core->staging->clock_s : core->now_s;
}

enum mr_status ps_staging_add(struct ps_core *core, uint32_t checkpoint_id, uint32_t id,
                              const struct mr_feature *feature, char *text)
{
    struct ps_staging *s = core->staging;
    assert(checkpoint_id >= 1 && checkpoint_id <= MR_FEATURE_ID_MAX && s->features[checkpoint_id] == NULL);
    enum mr_status status = ps_feature_create(core, id, feature, &s->features[checkpoint_id], text);
    if (status == MR_OK && feature->kind == MR_TABLE)
        ps_table_load_from(s->features[checkpoint_id]->table, s->clock_s, now_s(core));
    if (status == MR_OK) {
        s->id_max = checkpoint_id > s->id_max ? checkpoint_id : s->id_max;
        s->feature_count++;
    }
    return status;
}

void ps_staging_load_from(struct ps_core *core, uint32_t clock_s)
{
    const struct ps_staging *s = core->staging;
    for (uint32_t id = 1; id <= s->id_max; id++)
        if (s->features[id] != NULL && s->features[id]->table != NULL)
            ps_table_load_from(s->features[id]->table, clock_s, now_s(core));
}

struct ps_feature *ps_staging_feature(const struct ps_core *core, uint32_t checkpoint_id)
{
    return checkpoint_id <= core->staging->id_max ? core->staging->features[checkpoint_id] : NULL;
}

uint32_t ps_staging_id_max(const struct ps_core *core)
{
    return core->staging->id_max;
}

#define EXCHANGE(a, b)                                                                                       \
    do {                                                                                                     \
        __typeof__(a) exchanged = (a);                                                                       \
        (a) = (b);                                                                                           \
        (b) = exchanged;                                                                                     \
    } while (0)

void ps_staging_swap(struct ps_core *core)
{
    struct ps_staging *s = core->staging;
    assert(s->whole && core->coop_tasks.running == NULL);
    uint32_t id_max = s->id_max > core->feature_id_max ? s->id_max : core->feature_id_max;
    for (uint32_t id = 1; id <= id_max; id++)
        EXCHANGE(s->features[id], core->features[id]);
    uint64_t clock_us = ps_core_clock_us(core);
    ps_core_set_clock_us(core, s->clock_us);
    s->clock_us = clock_us;
    EXCHANGE(s->id_max, core->feature_id_max);
    EXCHANGE(s->feature_count, core->counters.features);
    EXCHANGE(s->batches_applied, core->counters.batches_applied);
    EXCHANGE(s->applied, core->applied);
    EXCHANGE(s->clients, core->clients);
    EXCHANGE(s->pushes, core->pushes);
    EXCHANGE(s->partials, core->partials);
    ps_save_marks_lost(core); /* until it is known what was loaded */
}

void ps_staging_move(struct ps_core *core, uint32_t checkpoint_id)
{
    struct ps_staging *s = core->staging;
    struct ps_feature *f = s->features[checkpoint_id];
    s->features[checkpoint_id] = NULL;
    s->feature_count--;
    ps_core_put_feature(core, f);
    ps_save_marks_lost(core);
}

void ps_staging_end(struct ps_core *core)
{
    struct ps_staging *s = core->staging;
    if (s == NULL)
        return;
    for (uint32_t id = 1; id <= s->id_max; id++)
        if (s->features[id] != NULL)
            ps_pending_free_add(core, s->features[id]);
    ps_partials_clear(&s->partials);
    ps_pushes_destroy(s->pushes);
    ps_clients_destroy(s->clients);
    ps_applied_batches_destroy(s->applied);
    free(s);
    core->staging = NULL;
}
