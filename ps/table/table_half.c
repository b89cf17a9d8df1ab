/* Tables of f16 and bf16 rows: a row's first values, its values as f32 and back, and answers in other types
 * than f32.
 *
 * A lookup reads the rows as f32 where it gathers them. A push reads a group's rows into scratch memory, runs
 * the optimizer there, and writes them back rounded stochastically (dataplane/optimizer/rounding.h); the
 * optimizer's state is f32 like any other table's. Rows that are set are rounded to nearest, like first
 * values: there are no small steps to add up, and the same row is the same bits.
 */
#include <math.h>
#include <string.h>
#include "dataplane/optimizer/rounding.h"
#include "ps/table/table_internal.h"

/* To nearest, but never to Inf. True when a value was beyond the type's largest. */
static bool round_to_nearest(const struct ps_table *t, uint16_t *row, float *values)
{
    bool is_f16 = t->feature.dtype == MR_F16, saturates = false;
    float largest = is_f16 ? mr_f32_from_f16(MR_F16_LARGEST_BITS) : mr_f32_from_bf16(MR_BF16_LARGEST_BITS);
    for (uint32_t i = 0; i < t->dim; i++) {
        saturates |= fabsf(values[i]) > largest;
        values[i] = values[i] > largest ? largest : values[i] < -largest ? -largest : values[i];
    }
    mr_convert_from_f32((enum mr_dtype)t->feature.dtype, row, NULL, values, 1, t->dim);
    return saturates;
}

void ps_table_initial_values(struct ps_table *t, uint64_t key, void *row)
{
    if (t->half == NULL) {
        ps_initializer_fill(&t->initializer, key, row, t->dim);
        return;
    }
    ps_initializer_fill(&t->initializer, key, t->expanded, t->dim);
    (void)round_to_nearest(t, row, t->expanded);
}

const float *ps_table_row_values(struct ps_table *t, const void *row)
{
    if (t->half == NULL)
        return row;
    t->half->copy_rows(t->expanded, &row, 1, t->dim);
    return t->expanded;
}

static uint32_t *updates_of(const struct ps_table *t, void *row)
{
    return (uint32_t *)(void *)((uint8_t *)row + t->layout.updates_offset);
}

static void round_back(struct ps_table *t, void *const *rows, float *values, const uint64_t *seeds,
                       uint32_t count)
{
    if (!mr_rule_sets(&t->optimizer)) {
        t->half->round_rows(rows, values, seeds, count, t->dim);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        t->counters.rows_saturated += round_to_nearest(t, rows[i], values + (size_t)i * t->dim);
}

/* The rows that were changed, which count it, are rounded; others are as they were, to the bit. */
static void table_half_finish(struct ps_table *t, void *const *rows, const uint64_t *seeds, uint32_t count,
                              uint32_t changed)
{
    bool all = (uint32_t)__builtin_popcount(changed) == count;
    if (all)
        round_back(t, rows, t->expanded, seeds, count);
    for (uint32_t i = 0; i < count; i++) {
        if ((changed >> i & 1) == 0)
            continue;
        if (!all)
            round_back(t, rows + i, t->expanded + (size_t)i * t->dim, seeds + i, 1);
        ++*updates_of(t, rows[i]);
    }
}

void ps_table_half_set(struct ps_table *t, void *row, const float *values)
{
    memcpy(t->expanded, values, t->dim * sizeof(*values));
    t->counters.rows_saturated += round_to_nearest(t, row, t->expanded);
    ++*updates_of(t, row);
}

/* Rows whose gradient holds NaN or Inf are left out here already: they are not changed, and not counted as
 * such. */
uint32_t ps_table_half_apply(struct ps_table *t, const struct mr_rule_push *push, const struct ps_row_turn *r)
{
    void *rows[PS_GROUP_KEYS];
    float *values[PS_GROUP_KEYS], *states[PS_GROUP_KEYS];
    const float *gradients[PS_GROUP_KEYS];
    uint64_t seeds[PS_GROUP_KEYS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < r->count; i++) {
        if (!t->kernels->all_finite(r->gradients[i], t->dim))
            continue;
        seeds[count] =
            mr_rounding_seed(ps_hash_of_placed(&t->index.hasher, r->hashes[i]), *updates_of(t, r->values[i]));
        rows[count] = r->values[i];
        values[count] = t->expanded + (size_t)count * t->dim;
        states[count] = r->states[i];
        gradients[count++] = r->gradients[i];
    }
    if (count == 0)
        return 0;
    t->half->copy_rows(t->expanded, (const void *const *)rows, count, t->dim);
    uint32_t changed = mr_rule_apply(&t->optimizer, push, values, states, gradients, count, t->dim);
    table_half_finish(t, rows, seeds, count, changed);
    return (uint32_t)__builtin_popcount(changed);
}
