#include <string.h>
#include "ps/table_internal.h"

/* Takes the rows of keys [first, first + count), in order. */
typedef void (*row_sink)(struct ps_table *t, void *self, uint32_t first, const float *const *rows,
                         uint32_t count);

static __attribute__((cold, noinline)) const float *
row_of_absent_key(struct ps_table *t, uint64_t key, uint64_t hash, bool insert, float *initial_row)
{
    t->counters.keys_missing++;
    const float *row = insert ? ps_table_row_create(t, key, hash) : NULL;
    if (row != NULL)
        return row;
    ps_initializer_fill(&t->initializer, key, initial_row, t->dim);
    return initial_row;
}

/* Second stage of a group: where its rows are, and the rows on the way. */
static inline void group_find(struct ps_table *t, const uint64_t *keys, const uint64_t *hashes,
                              uint32_t count, bool insert, float *initial_rows, const float **rows)
{
    for (uint32_t i = 0; i < count; i++) {
        struct ps_place place = ps_index_find(&t->index, keys[i], hashes[i]);
        if (__builtin_expect(place.bucket != NULL, 1))
            rows[i] = ps_table_row(t, place);
        else
            rows[i] = row_of_absent_key(t, keys[i], hashes[i], insert, initial_rows + i * t->dim);
        ps_row_prefetch(rows[i], t->dim * (uint32_t)sizeof(float));
    }
}

static inline uint32_t group_size(uint32_t key_count, uint32_t first)
{
    return key_count - first < PS_GROUP_KEYS ? key_count - first : PS_GROUP_KEYS;
}

/* Three groups are under way: buckets of the first are on the way, rows of the second, and the third is read. */
static inline __attribute__((always_inline)) void
each_row(struct ps_table *t, const uint64_t *keys, uint32_t key_count, bool insert, row_sink sink, void *self)
{
    uint64_t hashes[2][PS_GROUP_KEYS];
    const float *rows[2][PS_GROUP_KEYS];
    uint32_t group_count = key_count / PS_GROUP_KEYS + (key_count % PS_GROUP_KEYS != 0);
    for (uint32_t step = 0; step < group_count + 2; step++) {
        if (step < group_count) {
            uint32_t first = step * PS_GROUP_KEYS;
            ps_group_hash(t, keys + first, group_size(key_count, first), hashes[step % 2]);
        }
        if (step >= 1 && step - 1 < group_count) {
            uint32_t group = step - 1, first = group * PS_GROUP_KEYS;
            float *initial_rows = t->initial_rows + (size_t)(group % 2) * PS_GROUP_KEYS * t->dim;
            group_find(t, keys + first, hashes[group % 2], group_size(key_count, first), insert, initial_rows,
                       rows[group % 2]);
        }
        if (step >= 2) {
            uint32_t group = step - 2, first = group * PS_GROUP_KEYS;
            sink(t, self, first, rows[group % 2], group_size(key_count, first));
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
