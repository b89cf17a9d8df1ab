#include "ps/table/table.h"

#include <assert.h>
#include <string.h>
#include "ps/table/table_copy.h"
#include "ps/table/table_group.h"
#include "ps/table/table_internal.h"

#define TABLE_ALIGN 64u
#define ROW_ALIGN   4u

#define FILTER_MEMORY_SHARE 4u /* of the table's memory, at most */

/* Descriptors carry everything that is planned; what this version cannot do is refused by name. */
static const char *unsupported_option(const struct mr_feature *f)
{
    if (f->dtype != MR_F32 && f->dtype != MR_F16 && f->dtype != MR_BF16)
        return "dtype other than f32, f16 and bf16";
    return NULL;
}

/* Of initial_rows and what lies after them. */
static size_t initial_rows_bytes(const struct ps_table *t)
{
    uint32_t rows = PS_INITIAL_ROWS_COUNT + (t->half != NULL ? PS_GROUP_KEYS : 0);
    return rows * t->dim * sizeof(float);
}

/* 0: the optimizer is not dense. */
static size_t dense_bytes(const struct ps_table *t)
{
    return t->optimizer.dense
               ? sizeof(struct ps_dense) + PS_GROUP_KEYS * (t->dim + ps_table_state_floats(t)) * sizeof(float)
               : 0;
}

static void buffers_free(struct ps_table *t)
{
    if (t->initial_rows != NULL)
        ps_arena_free(t->arena, t->initial_rows, initial_rows_bytes(t), TABLE_ALIGN);
    if (t->dense != NULL)
        ps_arena_free(t->arena, t->dense, dense_bytes(t), TABLE_ALIGN);
}

/* False when the arena has no room. */
static bool buffers_make(struct ps_table *t)
{
    t->initial_rows = ps_arena_alloc(t->arena, initial_rows_bytes(t), TABLE_ALIGN);
    t->dense = t->optimizer.dense ? ps_arena_alloc(t->arena, dense_bytes(t), TABLE_ALIGN) : NULL;
    return t->initial_rows != NULL && (t->dense != NULL || !t->optimizer.dense);
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

uint64_t ps_table_filter_size(const struct mr_feature *f)
{
    if (f->admission != MR_ADMIT_OBSERVATIONS)
        return 0;
    const uint64_t bytes = f->filter_bytes != 0 ? f->filter_bytes : PS_OCCURRENCE_BYTES_DEFAULT;
    /* A filter that fills the table's memory would leave none for rows, ever. */
    const uint64_t bytes_max = f->memory_bytes / FILTER_MEMORY_SHARE;
    return f->memory_bytes != 0 && bytes > bytes_max ? bytes_max : bytes;
}

static void admission_set(struct ps_table *t)
{
    const struct mr_feature *f = &t->feature;
    if (f->admission == MR_ADMIT_PROBABILITY)
        t->admit_below = f->admission_arg < 1.0f ? (uint64_t)((double)f->admission_arg * 0x1p64) : UINT64_MAX;
}

/* False when the arena has no room. */
static bool admission_init(struct ps_table *t)
{
    const struct mr_feature *f = &t->feature;
    admission_set(t);
    return f->admission != MR_ADMIT_OBSERVATIONS ||
           ps_occurrence_init(&t->filter, t->arena, ps_table_filter_size(f), (uint32_t)f->admission_arg);
}

enum mr_status ps_table_create(const struct mr_feature *feature, struct ps_arena *arena,
                               const struct ps_key_secret *secret, struct ps_table **out, const char **what)
{
    const char *unsupported = unsupported_option(feature);
    if (unsupported != NULL) {
        *what = unsupported;
        return MR_UNSUPPORTED;
    }
    struct ps_initializer initializer;
    struct mr_rule optimizer;
    enum mr_status status = ps_initializer_init(feature, &initializer, what);
    if (status == MR_OK)
        status = mr_rule_init(feature, &optimizer, what);
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
    t->group_stages = ps_group_stages_of(t->kernels->vectors);
    t->dim = feature->dims[0];
    t->layout = ps_row_layout_of(feature, mr_rule_state_floats(&optimizer, t->dim));
    rows_type_init(t);
    if (!buffers_make(t) || !admission_init(t)) {
        buffers_free(t);
        ps_arena_free(arena, t, sizeof(*t), TABLE_ALIGN);
        return MR_OUT_OF_MEMORY;
    }
    t->expanded = t->half != NULL ? t->initial_rows + PS_INITIAL_ROWS_COUNT * t->dim : NULL;
    ps_slabs_init(&t->slabs, arena, t->layout.bytes);
    t->straddle_bytes = t->slabs.stride_bytes % 64 != 0 ? 64 - ROW_ALIGN : 0;
    const struct ps_key_hasher hasher = ps_key_hasher_of(feature->seed, secret);
    ps_index_init(&t->index, arena, &hasher);
    ps_table_set_share(t, 0, 1);
    *out = t;
    return MR_OK;
}

/* How many rows the table may come to have, whatever it is that limits them. */
static uint64_t rows_possible(const struct ps_table *t)
{
    uint64_t bytes = t->memory_max != 0 ? t->memory_max : ps_arena_limit_bytes(t->arena);
    uint64_t rows = bytes / t->slabs.stride_bytes;
    return rows < t->rows_max ? rows : t->rows_max;
}

static void limits_set(struct ps_table *t, uint32_t core, uint32_t core_count)
{
    const struct mr_feature *f = &t->feature;
    uint64_t share = f->capacity_rows / core_count + (core < f->capacity_rows % core_count);
    assert(core < core_count);
    t->rows_max = f->capacity_rows == 0 ? UINT64_MAX : share > 0 ? share : 1;
    t->partitions = MR_PARTITION_COUNT / core_count;
    t->memory_max = f->memory_bytes == 0 ? 0 : f->memory_bytes / core_count;
    if (f->memory_bytes != 0 && t->memory_max < MR_MEMORY_BYTES_MIN)
        t->memory_max = MR_MEMORY_BYTES_MIN;
}

void ps_table_set_share(struct ps_table *t, uint32_t core, uint32_t core_count)
{
    assert(t->index.rows == 0);
    limits_set(t, core, core_count);
    ps_row_use_init(&t->use, &t->feature, &t->layout, rows_possible(t));
}

void ps_table_alter(struct ps_table *t, const struct mr_feature *feature, uint32_t core, uint32_t core_count)
{
    const char *what;
    const enum mr_status status = mr_rule_init(feature, &t->optimizer, &what);
    assert(status == MR_OK); /* of the kind that it has */
    (void)status;
    t->feature = *feature;
    t->filter.wanted = feature->admission == MR_ADMIT_OBSERVATIONS ? (uint32_t)feature->admission_arg : 0;
    admission_set(t);
    limits_set(t, core, core_count);
    ps_row_use_alter(&t->use, feature, rows_possible(t));
}

void ps_table_destroy(struct ps_table *t)
{
    if (t == NULL)
        return;
    t->cut_running = false;
    ps_table_clear(t);
    ps_occurrence_fini(&t->filter);
    buffers_free(t);
    ps_arena_free(t->arena, t, sizeof(*t), TABLE_ALIGN);
}

bool ps_table_destroy_some(struct ps_table *t)
{
    struct ps_arena_slice slice = ps_arena_slice_begin(t->arena, PS_TABLE_SLICE_PIECES);
    t->cut_running = false;
    ps_table_copy_end(t);
    return ps_index_clear_some(&t->index, &slice) || ps_slabs_clear_some(&t->slabs, &slice) ||
           ps_occurrence_clear_some(&t->filter, &slice) ||
           ps_tombstones_clear_some(&t->tombstones, PS_TABLE_SLICE_PIECES) ||
           ps_tombstones_clear_some(&t->leaving, PS_TABLE_SLICE_PIECES);
}

void ps_table_clear(struct ps_table *t)
{
    assert(!t->cut_running);
    ps_table_copy_end(t);
    ps_index_clear(&t->index);
    ps_slabs_clear(&t->slabs);
    ps_occurrence_clear(&t->filter);
    t->evictor = (struct ps_evictor){0};
    t->counters.rows = t->counters.rows_copied = 0;
    t->marks_hold = false;
    ps_tombstones_clear(&t->tombstones);
    ps_tombstones_clear(&t->leaving);
}

const struct ps_table_counters *ps_table_counters(const struct ps_table *t)
{
    return &t->counters;
}

enum ps_limit ps_table_refused_by(const struct ps_table *t)
{
    return t->refused_by;
}

uint64_t ps_table_rows(const struct ps_table *t)
{
    return t->index.rows;
}

uint64_t ps_table_rows_owned(const struct ps_table *t)
{
    return t->index.rows - t->counters.rows_copied;
}

size_t ps_table_index_bytes(const struct ps_table *t)
{
    return t->index.bytes + sizeof(t->index.partitions);
}

size_t ps_table_row_bytes_total(const struct ps_table *t)
{
    return t->slabs.bytes;
}

size_t ps_table_filter_bytes(const struct ps_table *t)
{
    return t->filter.bytes;
}

size_t ps_table_memory_bytes(const struct ps_table *t)
{
    return sizeof(*t) + initial_rows_bytes(t) + dense_bytes(t) + t->index.bytes + t->slabs.bytes +
           t->filter.bytes;
}

void ps_table_memory(const struct ps_table *t, struct ps_table_memory *out)
{
    uint64_t rows = t->index.rows, state_bytes = t->layout.bytes - t->layout.state_offset;
    *out = (struct ps_table_memory){
        .rows = rows, .values_bytes = rows * t->layout.values_bytes, .state_bytes = rows * state_bytes};
    out->filter_bytes = t->filter.bytes;
    out->slack_bytes = t->slabs.bytes - out->values_bytes - out->state_bytes;
    out->index_bytes = ps_table_memory_bytes(t) - t->slabs.bytes - t->filter.bytes;
}

uint32_t ps_table_stored_row_bytes(const struct ps_table *t)
{
    return t->layout.bytes;
}
