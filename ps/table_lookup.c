#include <string.h>
#include "ps/table_internal.h"

/* Takes the rows of keys [first, first + count), in order. */
typedef void (*row_sink)(struct ps_table *t, void *self, uint32_t first, const float *const *rows,
                         uint32_t count);

/* What is under way: while the rows of one group are read, those of the next and the buckets of the one behind it are on
 * their way from memory. */
struct lookup {
    const uint64_t *keys;
    uint32_t key_count;
    bool insert;
    struct ps_group groups[2];
    const float *rows[2][PS_GROUP_KEYS];
};

/* A partition grew: its buckets are elsewhere. */
static void homes_refresh(const struct ps_table *t, struct lookup *l)
{
    for (uint32_t g = 0; g < 2; g++)
        for (uint32_t i = 0; i < PS_GROUP_KEYS; i++)
            l->groups[g].homes[i] = ps_index_home(&t->index, l->groups[g].hashes[i]);
}

static __attribute__((cold, noinline)) const float *
row_of_absent_key(struct ps_table *t, struct lookup *l, uint64_t key, uint64_t hash, float *initial_row)
{
    t->counters.keys_missing++;
    if (l->insert) {
        size_t index_bytes = t->index.bytes;
        const float *row = ps_table_row_create(t, key, hash);
        if (t->index.bytes != index_bytes)
            homes_refresh(t, l);
        if (row != NULL)
            return row;
    }
    ps_initializer_fill(&t->initializer, key, initial_row, t->dim);
    return initial_row;
}

static inline void group_seek(const struct ps_table *t, struct lookup *l, uint32_t group)
{
    uint32_t first = group * PS_GROUP_KEYS, count = ps_group_size(l->key_count, first);
    for (uint32_t i = 0; i < count; i++)
        ps_group_seek(t, &l->groups[group % 2], i, ps_key_hash(l->keys[first + i], t->index.seed));
}

static inline void group_find(struct ps_table *t, struct lookup *l, uint32_t group)
{
    uint32_t first = group * PS_GROUP_KEYS, count = ps_group_size(l->key_count, first);
    const struct ps_group *g = &l->groups[group % 2];
    const float **rows = l->rows[group % 2];
    float *initial_rows = t->initial_rows + (size_t)(group % 2) * PS_GROUP_KEYS * t->dim;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t key = l->keys[first + i];
        struct ps_place place = ps_index_find_from(&t->index, g->homes[i], key, g->hashes[i]);
        if (__builtin_expect(place.bucket != NULL, 1))
            rows[i] = ps_table_row(t, place);
        else
            rows[i] = row_of_absent_key(t, l, key, g->hashes[i], initial_rows + i * t->dim);
        ps_row_prefetch(rows[i], t->dim * (uint32_t)sizeof(float));
    }
}

static inline __attribute__((always_inline)) void
each_row(struct ps_table *t, const uint64_t *keys, uint32_t key_count, bool insert, row_sink sink, void *self)
{
    struct lookup l = {.keys = keys, .key_count = key_count, .insert = insert};
    uint32_t group_count = ps_group_count(key_count);
    for (uint32_t step = 0; step < group_count + 2; step++) {
        if (step < group_count)
            group_seek(t, &l, step);
        if (step >= 1 && step - 1 < group_count)
            group_find(t, &l, step - 1);
        if (step >= 2) {
            uint32_t group = step - 2, first = group * PS_GROUP_KEYS;
            sink(t, self, first, l.rows[group % 2], ps_group_size(key_count, first));
        }
    }
    t->counters.keys_looked_up += key_count;
}

static inline void copy_sink(struct ps_table *t, void *self, uint32_t first, const float *const *rows,
                             uint32_t count)
{
    t->kernels->copy_rows((float *)self + (size_t)first * t->dim, rows, count, t->dim);
}

void ps_table_lookup(struct ps_table *t, const uint64_t *keys, uint32_t key_count, bool insert, float *out)
{
    each_row(t, keys, key_count, insert, copy_sink, out);
}

struct bags {
    const uint32_t *offsets;
    float *out;
    uint32_t bag; /* the one that the next key belongs to, or an earlier one */
};

static inline void bag_sink(struct ps_table *t, void *self, uint32_t first, const float *const *rows,
                            uint32_t count)
{
    struct bags *bags = self;
    uint32_t end = first + count;
    for (uint32_t key = first; key < end;) {
        while (bags->offsets[bags->bag + 1] <= key)
            bags->bag++;
        uint32_t bag_end = bags->offsets[bags->bag + 1];
        uint32_t run_end = bag_end < end ? bag_end : end;
        t->kernels->add_rows(bags->out + (size_t)bags->bag * t->dim, rows + (key - first), run_end - key,
                             t->dim);
        key = run_end;
    }
}

void ps_table_lookup_bags(struct ps_table *t, const uint64_t *keys, const uint32_t *offsets,
                          uint32_t bag_count, bool insert, float *out)
{
    if (bag_count == 0)
        return;
    memset(out, 0, (size_t)bag_count * t->dim * sizeof(float));
    struct bags bags = {.offsets = offsets, .out = out};
    each_row(t, keys, offsets[bag_count], insert, bag_sink, &bags);
    if (t->feature.pooling == MR_POOL_SUM)
        return;
    for (uint32_t b = 0; b < bag_count; b++) {
        float *bag = out + (size_t)b * t->dim;
        t->kernels->divide(bag, bag, ps_bag_divisor(t, offsets[b + 1] - offsets[b]), t->dim);
    }
}
