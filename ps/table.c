#include "ps/table.h"

#include <assert.h>
#include <string.h>
#include "ps/table_internal.h"

#define TABLE_ALIGN 64u

/* Descriptors carry everything that is planned; what this version cannot do is refused by name. */
static const char *unsupported_option(const struct mr_feature *f)
{
    if (f->dtype != MR_F32 && f->dtype != MR_F16 && f->dtype != MR_BF16)
        return "dtype other than f32, f16 and bf16";
    if (f->admission != MR_ADMIT_ALWAYS)
        return f->admission == MR_ADMIT_PROBABILITY ? "admission probability" : "admission sightings";
    if (f->memory_bytes != 0)
        return "memory_bytes";
    switch (f->eviction) {
    case MR_EVICT_NEVER:
        return NULL;
    case MR_EVICT_AGE:
        return "eviction age";
    case MR_EVICT_LRU:
        return "eviction lru";
    case MR_EVICT_LFU:
        return "eviction lfu";
    case MR_EVICT_NORM:
        return "eviction norm";
    default:
        return "eviction steps";
    }
}

/* Of initial_rows and what lies behind them. */
static size_t initial_rows_bytes(const struct ps_table *t)
{
    uint32_t rows = PS_INITIAL_ROWS_COUNT + (t->half != NULL ? PS_GROUP_KEYS : 0);
    return rows * t->dim * sizeof(float);
}

static void rows_type_init(struct ps_table *t)
{
    t->half = t->feature.dtype == MR_F16    ? t->kernels->f16
              : t->feature.dtype == MR_BF16 ? t->kernels->bf16
                                            : NULL;
    t->copy_rows = t->half != NULL ? t->half->copy_rows : t->kernels->copy_rows;
    t->add_rows = t->half != NULL ? t->half->add_rows : t->kernels->add_rows;
    t->add_weighted_rows = t->half != NULL ? t->half->add_weighted_rows : t->kernels->add_weighted_rows;
}

enum mr_status ps_table_create(const struct mr_feature *feature, struct ps_arena *arena,
                               struct ps_table **out, const char **what)
{
    const char *unsupported = unsupported_option(feature);
    if (unsupported != NULL) {
        *what = unsupported;
        return MR_UNSUPPORTED;
    }
    struct ps_initializer initializer;
    struct ps_optimizer optimizer;
    enum mr_status status = ps_initializer_init(feature, &initializer, what);
    if (status == MR_OK)
        status = ps_optimizer_init(feature, &optimizer, what);
    if (status != MR_OK)
        return status;
    struct ps_table *t = ps_arena_alloc(arena, sizeof(*t), TABLE_ALIGN);
    if (t == NULL)
        return MR_OUT_OF_MEMORY;
    t->feature = *feature;
    t->arena = arena;
    t->initializer = initializer;
    t->optimizer = optimizer;
    t->kernels = optimizer.kernels;
    t->dim = feature->dims[0];
    t->layout = ps_row_layout_of(feature, ps_optimizer_state_floats(&optimizer, t->dim));
    t->rows_max = feature->capacity_rows != 0 ? feature->capacity_rows : UINT64_MAX;
    rows_type_init(t);
    t->initial_rows = ps_arena_alloc(arena, initial_rows_bytes(t), TABLE_ALIGN);
    if (t->initial_rows == NULL) {
        ps_arena_free(arena, t, sizeof(*t), TABLE_ALIGN);
        return MR_OUT_OF_MEMORY;
    }
    t->expanded = t->half != NULL ? t->initial_rows + PS_INITIAL_ROWS_COUNT * t->dim : NULL;
    ps_slabs_init(&t->slabs, arena, t->layout.bytes);
    ps_index_init(&t->index, arena, feature->seed);
    *out = t;
    return MR_OK;
}

void ps_table_destroy(struct ps_table *t)
{
    if (t == NULL)
        return;
    t->cut_running = false;
    ps_table_clear(t);
    ps_arena_free(t->arena, t->initial_rows, initial_rows_bytes(t), TABLE_ALIGN);
    ps_arena_free(t->arena, t, sizeof(*t), TABLE_ALIGN);
}

void ps_table_clear(struct ps_table *t)
{
    assert(!t->cut_running);
    ps_index_clear(&t->index);
    ps_slabs_clear(&t->slabs);
    t->counters.rows = 0;
}

/* A row for a key that has none, its values still to be written. */
static void *row_add(struct ps_table *t, uint64_t key, uint64_t hash)
{
    uint32_t row;
    if (t->index.rows >= t->rows_max || !ps_slabs_take(&t->slabs, &row))
        goto refused;
    if (!ps_index_insert(&t->index, key, hash, row)) {
        ps_slabs_give(&t->slabs, row);
        goto refused;
    }
    t->counters.rows = t->index.rows;
    t->counters.rows_created++;
    return ps_slabs_row(&t->slabs, row);

refused:
    t->counters.rows_refused++;
    return NULL;
}

__attribute__((cold, noinline)) void *ps_table_row_create(struct ps_table *t, uint64_t key, uint64_t hash)
{
    void *row = row_add(t, key, hash);
    if (row != NULL) {
        memset(row, 0, t->layout.state_offset);
        ps_table_initial_values(t, key, row);
        ps_optimizer_state_init(&t->optimizer, ps_table_row_values(t, row), ps_table_row_state(t, row),
                                t->dim);
    }
    return row;
}

enum mr_status ps_table_load(struct ps_table *t, uint64_t key, const uint8_t *stored_row)
{
    uint64_t hash = ps_key_hash(key, t->index.seed);
    struct ps_place place = ps_index_find(&t->index, key, hash);
    void *row;
    if (place.bucket != NULL) {
        ps_table_cut_before_change(t, place);
        row = ps_table_row(t, place);
    } else {
        row = row_add(t, key, hash);
        if (row == NULL)
            return MR_OUT_OF_MEMORY;
    }
    memcpy(row, stored_row, t->layout.bytes);
    return MR_OK;
}

const struct mr_feature *ps_table_feature(const struct ps_table *t)
{
    return &t->feature;
}

const struct ps_table_counters *ps_table_counters(const struct ps_table *t)
{
    return &t->counters;
}

uint64_t ps_table_rows(const struct ps_table *t)
{
    return t->index.rows;
}

size_t ps_table_index_bytes(const struct ps_table *t)
{
    return t->index.bytes + sizeof(t->index.partitions);
}

size_t ps_table_row_bytes_total(const struct ps_table *t)
{
    return t->slabs.bytes;
}

uint32_t ps_table_stored_row_bytes(const struct ps_table *t)
{
    return t->layout.bytes;
}
