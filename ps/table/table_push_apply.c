/* The rows of distinct keys, and the optimizer over them. */
#include "ps/table/table_push_internal.h"

/* What is under way: see struct ps_group. */
struct apply {
    const struct ps_distinct *distinct;
    uint32_t count;
    uint32_t refused; /* rows, at a limit */
    struct ps_group groups[PS_GROUPS];
    struct ps_row_group rows[PS_GROUPS];
};

static __attribute__((cold, noinline)) struct ps_place place_of_new_row(struct ps_table *t, struct apply *a,
                                                                        const struct ps_distinct *d)
{
    uint64_t rewrites = t->index.rewrites;
    if (!ps_table_admits_push(t, d->hash))
        return (struct ps_place){.bucket = NULL};
    if (ps_table_row_create(t, d->key, d->hash) == NULL) {
        a->refused++;
        return (struct ps_place){.bucket = NULL};
    }
    if (t->index.rewrites != rewrites)
        ps_groups_refresh(t, a->groups);
    return ps_index_find(&t->index, d->hash);
}

static inline void group_seek(const struct ps_table *t, struct apply *a, uint32_t group)
{
    uint32_t first = group * PS_GROUP_KEYS, count = ps_group_size(a->count, first);
    struct ps_group *g = &a->groups[group % PS_GROUPS];
    for (uint32_t i = 0; i < count; i++)
        ps_group_seek(t, g, i, a->distinct[first + i].hash);
}

static inline void row_take(struct ps_table *t, struct ps_row_group *out, struct ps_place place,
                            const struct ps_distinct *d, bool is_new)
{
    if (__builtin_expect(t->cut_running, 0))
        out->taken_by_cut |= (uint32_t)ps_table_cut_take(t, place) << out->count;
    ps_table_mark(t, place);
    float *row = ps_table_row(t, place);
    ps_row_prefetch(t, row, t->layout.bytes);
    if (!is_new && ps_table_stamps(t)) /* a new row was stamped when it was made */
        ps_row_used(&t->use, (uint8_t *)row);
    out->values[out->count] = row;
    out->states[out->count] = ps_table_row_state(t, row);
    out->hashes[out->count] = d->hash;
    out->gradients[out->count++] = d->gradient;
}

static inline void row_take_new(struct ps_table *t, struct apply *a, struct ps_row_group *out,
                                const struct ps_distinct *d)
{
    struct ps_place place = place_of_new_row(t, a, d);
    if (place.bucket != NULL)
        row_take(t, out, place, d, true);
}

static inline void group_find(const struct ps_table_push *p, struct ps_table *t, struct apply *a,
                              uint32_t group)
{
    uint32_t first = group * PS_GROUP_KEYS, count = ps_group_size(a->count, first);
    struct ps_group *g = &a->groups[group % PS_GROUPS];
    struct ps_row_group *out = &a->rows[group % PS_GROUPS];
    out->count = out->taken_by_cut = 0;
    g->late_count = 0;
    if (ps_table_stamps(t))
        ps_row_use_advance(&t->use, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct ps_distinct *d = &a->distinct[first + i];
        struct ps_place place;
        if (__builtin_expect(ps_group_find(t, g, i, &place), 1))
            row_take(t, out, place, d, false);
    }
}

static inline void group_find_late(const struct ps_table_push *p, struct ps_table *t, struct apply *a,
                                   uint32_t group)
{
    const struct ps_group *g = &a->groups[group % PS_GROUPS];
    struct ps_row_group *out = &a->rows[group % PS_GROUPS];
    for (uint32_t i = 0; i < g->late_count; i++) {
        uint32_t late = g->late[i];
        const struct ps_distinct *d = &a->distinct[group * PS_GROUP_KEYS + late];
        struct ps_place place = ps_index_find(&t->index, d->hash);
        if (place.bucket != NULL)
            row_take(t, out, place, d, false);
        else if (p->insert)
            row_take_new(t, a, out, d);
    }
}

static inline uint32_t rows_apply(const struct ps_table *t, float learning_rate, const struct ps_row_group *g)
{
    return (uint32_t)__builtin_popcount(
        mr_rule_apply(&t->optimizer, learning_rate, g->values, g->states, g->gradients, g->count, t->dim));
}

void ps_table_push_apply(struct ps_table_push *p, struct ps_table *t, uint32_t first, uint32_t count)
{
    struct apply a = {.distinct = p->scratch.distinct + first, .count = count};
    uint32_t found = 0, changed = 0, group_count = ps_group_count(count);
    for (uint32_t step = 0; step < group_count + 3; step++) {
        if (step < group_count)
            group_seek(t, &a, step);
        if (step >= 1 && step - 1 < group_count)
            group_find(p, t, &a, step - 1);
        if (step >= 2 && step - 2 < group_count)
            group_find_late(p, t, &a, step - 2);
        if (step >= 3) {
            const struct ps_row_group *g = &a.rows[(step - 3) % PS_GROUPS];
            if (__builtin_expect(g->taken_by_cut != 0, 0))
                ps_table_cut_group_before_change(t, g);
            found += g->count;
            changed += t->half == NULL ? rows_apply(t, p->cursor.learning_rate, g)
                                       : ps_table_half_apply(t, p->cursor.learning_rate, g);
        }
    }
    p->counts.applied += changed;
    p->counts.not_finite += found - changed;
    p->counts.refused += a.refused;
    p->counts.without_row += count - found - a.refused;
    t->counters.updates += changed;
    t->counters.gradients_skipped += found - changed;
    t->counters.gradients_without_row += count - found;
}
