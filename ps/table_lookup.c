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

/* A partition was written anew: its buckets are elsewhere. */
static void homes_refresh(const struct ps_table *t, struct lookup *l)
{
    for (uint32_t g = 0; g < 2; g++)
        for (uint32_t i = 0; i < PS_GROUP_KEYS; i++)
            l->groups[g].homes[i] = ps_index_home(&t->index, l->groups[g].hashes[i]);
}

static __attribute__((cold, noinline)) const float *
row_of_absent_key(struct ps_table *t, bool insert, uint64_t key, uint64_t hash, float *initial_row)
{
    t->counters.keys_missing++;
    const float *row = insert ? ps_table_row_create(t, key, hash) : NULL;
    if (row != NULL)
        return row;
    ps_initializer_fill(&t->initializer, key, initial_row, t->dim);
    return initial_row;
}

static __attribute__((cold, noinline)) const float *
row_of_absent_in_group(struct ps_table *t, struct lookup *l, uint64_t key, uint64_t hash, float *initial_row)
{
    uint64_t rewrites = t->index.rewrites;
    const float *row = row_of_absent_key(t, l->insert, key, hash, initial_row);
    if (t->index.rewrites != rewrites)
        homes_refresh(t, l);
    return row;
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
            rows[i] = row_of_absent_in_group(t, l, key, g->hashes[i], initial_rows + i * t->dim);
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

static inline void bag_sink(struct ps_table *t, void *self, uint32_t first, const float *const *rows,
                            uint32_t count)
{
    struct ps_table_lookup *l = self;
    first += l->keys_done;
    uint32_t end = first + count;
    for (uint32_t key = first; key < end;) {
        while (l->offsets[l->bag + 1] <= key)
            l->bag++;
        uint32_t bag_end = l->offsets[l->bag + 1];
        uint32_t run_end = bag_end < end ? bag_end : end;
        t->kernels->add_rows(l->out + (size_t)l->bag * t->dim, rows + (key - first), run_end - key, t->dim);
        key = run_end;
    }
}

/* ---- steps ---- */

static size_t row_bytes(const struct ps_table *t)
{
    return t->dim * sizeof(float);
}

uint64_t ps_table_lookup_cost_bytes(const struct ps_table *t, uint32_t key_count, uint32_t bag_count)
{
    return key_count * (PS_KEY_COST_BYTES + row_bytes(t)) + bag_count * row_bytes(t);
}

/* The buckets of the next groups come while others use the processor. */
static void prefetch_next(const struct ps_table *t, const struct ps_table_lookup *l)
{
    uint32_t left = l->key_count - l->keys_done;
    uint32_t count = left < 2 * PS_GROUP_KEYS ? left : 2 * PS_GROUP_KEYS;
    for (uint32_t i = 0; i < count; i++)
        __builtin_prefetch(ps_index_home(&t->index, ps_key_hash(l->keys[l->keys_done + i], t->index.seed)), 0,
                           3);
}

/* One key: there is nothing to overlap. */
static void one_row(struct ps_table *t, uint64_t key, bool insert, float *out)
{
    uint64_t hash = ps_key_hash(key, t->index.seed);
    struct ps_place place = ps_index_find(&t->index, key, hash);
    const float *row = __builtin_expect(place.bucket != NULL, 1)
                           ? ps_table_row(t, place)
                           : row_of_absent_key(t, insert, key, hash, t->initial_rows);
    t->kernels->copy_rows(out, &row, 1, t->dim);
    t->counters.keys_looked_up++;
}

static void rows_step(struct ps_table *t, struct ps_table_lookup *l, uint32_t count)
{
    float *out = l->out + (size_t)l->keys_done * t->dim;
    if (count == 1)
        one_row(t, l->keys[l->keys_done], l->insert, out);
    else
        each_row(t, l->keys + l->keys_done, count, l->insert, copy_sink, out);
    l->keys_done += count;
    l->rows_done = l->keys_done;
}

/* Begins the bags that keys before `keys_end` belong to, and the empty ones between them, `bags_max` at most; returns up to
 * where that lets the keys go. */
static uint32_t bags_begin(const struct ps_table *t, struct ps_table_lookup *l, uint32_t keys_end,
                           uint32_t bags_max)
{
    uint32_t first = l->bags_begun, bag = first;
    while (bag - first < bags_max && (l->offsets[bag] < keys_end || keys_end == l->key_count))
        bag++;
    memset(l->out + (size_t)first * t->dim, 0, (bag - first) * row_bytes(t));
    l->bags_begun = bag;
    return bag < l->bag_count && l->offsets[bag] < keys_end ? l->offsets[bag] : keys_end;
}

static void bags_step(struct ps_table *t, struct ps_table_lookup *l, uint32_t count, uint32_t bags_max)
{
    uint32_t keys_end = bags_begin(t, l, l->keys_done + count, bags_max);
    each_row(t, l->keys + l->keys_done, keys_end - l->keys_done, l->insert, bag_sink, l);
    l->keys_done = keys_end;
    for (; l->rows_done < l->bags_begun && l->offsets[l->rows_done + 1] <= keys_end; l->rows_done++) {
        if (t->feature.pooling == MR_POOL_SUM)
            continue;
        float *bag = l->out + (size_t)l->rows_done * t->dim;
        uint32_t keys = l->offsets[l->rows_done + 1] - l->offsets[l->rows_done];
        t->kernels->divide(bag, bag, ps_bag_divisor(t, keys), t->dim);
    }
}

bool ps_table_lookup_step(struct ps_table *t, struct ps_table_lookup *l, uint64_t *budget_bytes)
{
    uint64_t for_bags_bytes = *budget_bytes;
    uint32_t count =
        ps_budget_take(budget_bytes, PS_KEY_COST_BYTES + row_bytes(t), l->key_count - l->keys_done);
    if (l->offsets == NULL) {
        rows_step(t, l, count);
    } else {
        uint32_t bags_before = l->bags_begun;
        bags_step(t, l, count, ps_budget_take(&for_bags_bytes, row_bytes(t), l->bag_count - bags_before));
        uint64_t cost_bytes = (l->bags_begun - bags_before) * row_bytes(t);
        *budget_bytes -= cost_bytes < *budget_bytes ? cost_bytes : *budget_bytes;
    }
    bool whole = l->keys_done == l->key_count && (l->offsets == NULL || l->bags_begun == l->bag_count);
    if (!whole)
        prefetch_next(t, l);
    return whole;
}

/* ---- at once ---- */

void ps_table_lookup(struct ps_table *t, const uint64_t *keys, uint32_t key_count, bool insert, float *out)
{
    struct ps_table_lookup l = {.keys = keys, .key_count = key_count, .insert = insert};
    l.out = out;
    rows_step(t, &l, key_count);
}

void ps_table_lookup_bags(struct ps_table *t, const uint64_t *keys, const uint32_t *offsets,
                          uint32_t bag_count, bool insert, float *out)
{
    if (bag_count == 0)
        return;
    struct ps_table_lookup l = {.keys = keys,
                                .key_count = offsets[bag_count],
                                .offsets = offsets,
                                .bag_count = bag_count,
                                .insert = insert};
    l.out = out;
    bags_step(t, &l, l.key_count, bag_count);
}

void ps_table_prefetch(const struct ps_hint *hints, uint32_t count)
{
    uint64_t hashes[PS_HINT_KEYS_MAX];
    struct ps_bucket *homes[PS_HINT_KEYS_MAX];
    assert(count <= PS_HINT_KEYS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        const struct ps_index *ix = &hints[i].table->index;
        hashes[i] = ps_key_hash(hints[i].key, ix->seed);
        homes[i] = ps_index_home(ix, hashes[i]);
        __builtin_prefetch(homes[i], 0, 3);
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct ps_table *t = hints[i].table;
        struct ps_place place = ps_index_find_from(&t->index, homes[i], hints[i].key, hashes[i]);
        if (place.bucket != NULL)
            ps_row_prefetch(ps_table_row(t, place), hints[i].row_bytes);
    }
}
