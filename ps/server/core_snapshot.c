#include "ps/server/core_snapshot.h"

#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif
#include "dataplane/wire/base/list.h"

#define FEATURES_FIRST 64u
#define ROUNDS         2u /* a core may have more features than there was room for */

/* Between core_snapshot_ask() and the semaphore the core's thread writes; otherwise who asks reads. */
struct request {
    struct dp_task task;
    sem_t done;
    bool is_asked, is_answered;
    struct ps_core_snapshot snapshot;
    struct ps_feature_sight *features;
    uint32_t capacity, wanted; /* entries of features */
};

struct ps_core_snapshots {
    struct ps_node *node; /* while its cores run */
    uint32_t core_count;
    struct request requests[DP_CORES_MAX];
};

/* ---- on the core's thread ---- */

static void look_at_memory(const struct ps_core *core, struct ps_core_memory *out)
{
    *out = (struct ps_core_memory){
        .memory_limit_bytes = ps_arena_limit_bytes(core->arena),
        .memory_mapped_bytes = ps_arena_mapped_bytes(core->arena),
        .memory_used_bytes = ps_arena_allocated_bytes(core->arena),
        .batch_memory_limit_bytes = ps_arena_limit_bytes(core->batch_arena),
        .batch_memory_mapped_bytes = ps_arena_mapped_bytes(core->batch_arena),
        .scratch_bytes = ps_arena_scratch_bytes(core->arena) + ps_arena_scratch_bytes(core->batch_arena),
        .checkpoint_buffer_bytes =
            core->save.capacity_bytes + core->save.copy_bytes + core->save.variable_copy_bytes};
}

static void look_at_feature(const struct ps_feature *f, struct ps_feature_sight *out)
{
    *out = (struct ps_feature_sight){.id = f->id, .is_table = f->table != NULL};
    memcpy(out->name, f->feature.name, sizeof(out->name));
    if (f->table == NULL) {
        out->variable_bytes = ps_feature_variable_bytes(f);
        out->gradients_skipped = f->gradients_skipped;
        return;
    }
    out->counters = *ps_table_counters(f->table);
    ps_table_memory(f->table, &out->memory);
    out->limit_bytes = f->feature.memory_bytes;
}

static void core_snapshot_look(struct dp_task *task, void *core_app, struct dp_core *dp_core)
{
    struct request *r = MR_CONTAINER(task, struct request, task);
    struct ps_core *core = core_app;
    ps_core_refresh_gauges(core);
    look_at_memory(core, &r->snapshot.memory);
    r->wanted = 0;
    for (uint32_t id = 1; id <= core->feature_id_max; id++) {
        if (core->features[id] == NULL)
            continue;
        if (r->wanted < r->capacity)
            look_at_feature(core->features[id], &r->features[r->wanted]);
        r->wanted++;
    }
    sem_post(&r->done);
}

/* ---- who asks ---- */

struct ps_core_snapshots *ps_core_snapshots_create(struct ps_node *node)
{
    struct ps_core_snapshots *snapshots = calloc(1, sizeof(*snapshots));
    if (snapshots == NULL)
        return NULL;
    snapshots->node = node;
    snapshots->core_count = node->core_count;
    for (uint32_t i = 0; i < node->core_count; i++) {
        snapshots->requests[i].task.run = core_snapshot_look;
        sem_init(&snapshots->requests[i].done, 0, 0);
    }
    return snapshots;
}

void ps_core_snapshots_destroy(struct ps_core_snapshots *snapshots)
{
    if (snapshots == NULL)
        return;
    for (uint32_t i = 0; i < snapshots->core_count; i++) {
        sem_destroy(&snapshots->requests[i].done);
        free(snapshots->requests[i].features);
    }
    free(snapshots);
}

/* Without memory the core says what there is room for, which is then not shown. */
static void make_room(struct request *r)
{
    uint32_t capacity = r->capacity == 0 ? FEATURES_FIRST : r->capacity;
    while (capacity < r->wanted)
        capacity *= 2;
    if (capacity == r->capacity)
        return;
    struct ps_feature_sight *features = realloc(r->features, capacity * sizeof(*features));
    if (features == NULL)
        return;
    r->features = features;
    r->capacity = capacity;
}

static void core_snapshot_ask(const struct ps_core_snapshots *snapshots, struct request *r, uint32_t core)
{
    if (r->is_asked)
        return;
    r->is_answered = false;
    make_room(r);
    r->is_asked = dp_post(snapshots->node->dp, core, &r->task);
}

static bool wait_until(sem_t *done, const struct timespec *end)
{
    while (sem_clockwait(done, CLOCK_MONOTONIC, end) != 0)
        if (errno != EINTR)
            return false;
#ifdef __SANITIZE_THREAD__
    __tsan_acquire(done); /* it does not know sem_clockwait() */
#endif
    return true;
}

static void take_answer(struct request *r, const struct timespec *end)
{
    if (!r->is_asked || !wait_until(&r->done, end))
        return;
    r->is_asked = false;
    r->is_answered = r->wanted <= r->capacity;
    r->snapshot.features = r->features;
    r->snapshot.feature_count = r->wanted;
}

static struct timespec after_ms(uint32_t ms)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += (long)(ms % 1000) * 1000000;
    end.tv_sec += ms / 1000 + end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    return end;
}

void ps_core_snapshots_ask(struct ps_core_snapshots *snapshots, uint32_t wait_ms)
{
    const struct timespec end = after_ms(wait_ms);
    const uint32_t cores = snapshots->core_count;
    for (uint32_t i = 0; i < cores; i++) /* what a core says now is also what it was late with */
        snapshots->requests[i].is_answered = false;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < cores; i++)
            if (!snapshots->requests[i].is_answered)
                core_snapshot_ask(snapshots, &snapshots->requests[i], i);
        for (uint32_t i = 0; i < cores; i++)
            if (!snapshots->requests[i].is_answered)
                take_answer(&snapshots->requests[i], &end);
    }
}

const struct ps_core_snapshot *ps_core_snapshots_of(const struct ps_core_snapshots *snapshots, uint32_t index)
{
    const struct request *r = &snapshots->requests[index];
    return r->is_answered ? &r->snapshot : NULL;
}
