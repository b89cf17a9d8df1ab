/* Lookups: rows by key, sums of bags, and the rows that lookups make. */
#include <string.h>
#include "dataplane/wire/format/convert.h"
#include "ps/table/table_internal.h"

static size_t row_bytes(const struct ps_table *t)
{
    return t->dim * sizeof(float);
}

/* Takes the rows of keys [first, first + count), in order. */
typedef void (*row_sink)(struct ps_table *t, struct ps_table_lookup *l, uint32_t first,
                         const void *const *rows, uint32_t count);

/* What is in flight: see struct ps_group. */
struct lookup {
    const uint64_t *keys;
    uint32_t key_count;
    bool insert;
    bool stamps; /* rows that are there are used */
    uint32_t row_lines, turn_rows;
    struct ps_group groups[PS_GROUPS];
};

static __attribute__((cold, noinline)) void *row_of_absent_key(struct ps_table *t, bool insert, uint64_t key,
                                                               uint64_t hash, float *initial_row)
{
    t->counters.keys_missing++;
    t->may_emit = true;
    void *row = insert && ps_table_admits_lookup(t, hash) ? ps_table_row_create(t, key, hash) : NULL;
    t->may_emit = false;
    if (row != NULL)
        return row;
    ps_table_initial_values(t, key, initial_row);
    return initial_row;
}

static __attribute__((cold, noinline)) void *row_of_absent_in_group(struct ps_table *t, struct lookup *l,
                                                                    uint32_t group, uint32_t i)
{
    uint64_t rewrites = t->index.rewrites;
    uint32_t initial_row = group % 3 * PS_GROUP_KEYS + i;
    void *row = row_of_absent_key(t, l->insert, l->keys[group * PS_GROUP_KEYS + i],
                                  l->groups[group % PS_GROUPS].hashes[i],
                                  t->initial_rows + (size_t)initial_row * t->dim);
    if (t->index.rewrites != rewrites)
        ps_groups_refresh(t, l->groups);
    return row;
}

static inline void group_seek(const struct ps_table *t, struct lookup *l, uint32_t group)
{
    uint32_t first = group * PS_GROUP_KEYS, count = ps_group_size(l->key_count, first);
    struct ps_group *g = &l->groups[group % PS_GROUPS];
    ps_group_hash(t, g->hashes, l->keys + first, count);
    ps_group_seek(t, g, count);
}

/* Of each row. */
static inline uint32_t bytes_read(const struct ps_table *t)
{
    return t->dense != NULL ? t->layout.bytes : t->layout.values_bytes;
}

/* Takes note that a row that was there is used. */
static inline void row_use(struct ps_table *t, struct ps_place place, uint64_t hash, void *row)
{
    ps_table_mark_used(t, place, hash);
    ps_row_used(&t->use, row);
}

static inline void group_find(struct ps_table *t, struct lookup *l, uint32_t group)
{
    uint32_t count = ps_group_size(l->key_count, group * PS_GROUP_KEYS);
    struct ps_group *g = &l->groups[group % PS_GROUPS];
    ps_group_find(t, g, count, PS_FIRST_LINE);
    if (!l->stamps)
        return;
    ps_row_use_advance(&t->use, count);
    for (uint32_t found = ps_group_found(g, count); found != 0; found &= found - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(found);
        row_use(t, ps_group_place(g, i), g->hashes[i], g->rows[i]);
    }
}

static inline void group_find_late(struct ps_table *t, struct lookup *l, uint32_t group)
{
    struct ps_group *g = &l->groups[group % PS_GROUPS];
    for (uint32_t late = g->late; late != 0; late &= late - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(late);
        struct ps_place place = ps_group_find_late(t, g, i);
        if (__builtin_expect(place.bucket == NULL, 0)) {
            g->rows[i] = row_of_absent_in_group(t, l, group, i);
        } else {
            g->rows[i] = ps_table_row(t, place);
            if (l->stamps)
                row_use(t, place, g->hashes[i], g->rows[i]);
        }
        ps_row_prefetch(t, g->rows[i], PS_FIRST_LINE);
    }
}

/* The rows as the call sees them. */
static inline const void *const *rows_of_call(struct ps_table *t, const struct ps_table_lookup *call,
                                              const void *const *rows, uint32_t count)
{
    return __builtin_expect(t->dense != NULL, 0) ? ps_table_rows_before(t, call->step, rows, count) : rows;
}

static inline uint32_t group_size(const struct lookup *l, uint32_t group)
{
    return group < ps_group_count(l->key_count) ? ps_group_size(l->key_count, group * PS_GROUP_KEYS) : 0;
}

/* The rows that came, by turns with asking for the rest of those that are next. */
static inline __attribute__((always_inline)) void group_use(struct ps_table *t, struct ps_table_lookup *call,
                                                            const struct lookup *l, uint32_t step,
                                                            row_sink sink)
{
    const uint32_t used = step - 3, count = group_size(l, used), next_count = group_size(l, step - 2);
    const void *const *rows = (const void *const *)l->groups[used % PS_GROUPS].rows;
    const void *const *next = (const void *const *)l->groups[(step - 2) % PS_GROUPS].rows;
    if (l->row_lines == 1) {
        if (count > 0)
            sink(t, call, call->keys_done + used * PS_GROUP_KEYS, rows_of_call(t, call, rows, count), count);
        return;
    }
    for (uint32_t first = 0; first < PS_GROUP_KEYS; first += l->turn_rows) {
        ps_rows_ask(next, next_count, first, l->turn_rows, l->row_lines);
        if (first >= count)
            continue;
        const uint32_t size = count - first < l->turn_rows ? count - first : l->turn_rows;
        sink(t, call, call->keys_done + used * PS_GROUP_KEYS + first,
             rows_of_call(t, call, rows + first, size), size);
    }
}

/* The next `count` keys. */
static inline __attribute__((always_inline)) void each_row(struct ps_table *t, struct ps_table_lookup *call,
                                                           uint32_t count, row_sink sink)
{
    struct lookup l = {.keys = call->in.keys + call->keys_done,
                       .key_count = count,
                       .insert = call->insert,
                       .stamps = call->insert && ps_table_stamps(t)};
    uint32_t group_count = ps_group_count(count);
    l.row_lines = ps_row_prefetch_lines(t, bytes_read(t));
    l.turn_rows = PS_TURN_LINES / l.row_lines;
    for (uint32_t step = 0; step < group_count + 3; step++) {
        if (step < group_count)
            group_seek(t, &l, step);
        if (step >= 1 && step - 1 < group_count)
            group_find(t, &l, step - 1);
        if (step >= 2 && step - 2 < group_count)
            group_find_late(t, &l, step - 2);
        group_use(t, call, &l, step, sink);
    }
    t->counters.keys_looked_up += count;
}

static inline void copy_sink(struct ps_table *t, struct ps_table_lookup *l, uint32_t first,
                             const void *const *rows, uint32_t count)
{
    t->copy_rows((float *)l->out + (size_t)first * t->dim, rows, count, t->dim);
}

/* Bags of one key: a sum that begins with 0, as of other bags, which makes -0 a 0. */
static inline void single_sink(struct ps_table *t, struct ps_table_lookup *l, uint32_t first,
                               const void *const *rows, uint32_t count)
{
    float *out = (float *)l->out + (size_t)first * t->dim;
    if (t->half == NULL) {
        t->kernels->copy_sums(out, rows, count, t->dim);
        return;
    }
    t->copy_rows(out, rows, count, t->dim);
    for (size_t i = 0; i < (size_t)count * t->dim; i++)
        out[i] += 0.0f;
}

static inline void add_run(struct ps_table *t, const struct ps_table_lookup *l, float *sum, uint32_t first,
                           const void *const *rows, uint32_t count)
{
    if (__builtin_expect(l->in.weights != NULL, 0))
        t->add_weighted_rows(sum, rows, l->in.weights + first, count, t->dim);
    else
        t->add_rows(sum, rows, count, t->dim);
}

static inline void divide_bag(const struct ps_table *t, const struct ps_table_lookup *l, uint32_t bag,
                              float *sum)
{
    if (mr_pooling_averages(t->feature.pooling))
        t->kernels->divide(sum, sum, ps_bag_divisor(t, l->in.offsets, l->in.weights, l->in.divisors, bag),
                           t->dim);
}

static inline void bag_sink(struct ps_table *t, struct ps_table_lookup *l, uint32_t first,
                            const void *const *rows, uint32_t count)
{
    uint32_t end = first + count;
    for (uint32_t key = first; key < end;) {
        while (l->in.offsets[l->bag + 1] <= key)
            l->bag++;
        uint32_t bag_end = l->in.offsets[l->bag + 1];
        uint32_t run_end = bag_end < end ? bag_end : end;
        add_run(t, l, (float *)l->out + (size_t)l->bag * t->dim, key, rows + (key - first), run_end - key);
        key = run_end;
    }
}

/* ---- answers of other types than f32 ---- */

static bool is_narrow(const struct ps_table_lookup *l)
{
    return l->out_dtype != MR_F32 && l->out_dtype != MR_DTYPE_NONE;
}

static size_t out_row_bytes(const struct ps_table *t, const struct ps_table_lookup *l)
{
    return (size_t)t->dim * (is_narrow(l) ? mr_dtype_bytes(l->out_dtype) : sizeof(float));
}

/* Rows [first, first + count) of the answer, from f32 values. */
static void narrow_out(const struct ps_table *t, struct ps_table_lookup *l, uint32_t first, uint32_t count,
                       const float *values)
{
    mr_convert_from_f32(l->out_dtype, (uint8_t *)l->out + first * out_row_bytes(t, l),
                        l->scales == NULL ? NULL : l->scales + first, values, count, t->dim);
}

/* The same from rows of the table, through as many f32 values as fit a small buffer. */
static __attribute__((noinline)) void narrow_sink(struct ps_table *t, struct ps_table_lookup *l,
                                                  uint32_t first, const void *const *rows, uint32_t count)
{
    float values[MR_DIM_MAX];
    uint32_t rows_max = MR_DIM_MAX / t->dim;
    for (uint32_t done = 0; done < count;) {
        uint32_t part = count - done < rows_max ? count - done : rows_max;
        t->copy_rows(values, rows + done, part, t->dim);
        narrow_out(t, l, first + done, part, values);
        done += part;
    }
}

/* Rows of the table's own type. */
static __attribute__((noinline)) void same_sink(struct ps_table *t, struct ps_table_lookup *l, uint32_t first,
                                                const void *const *rows, uint32_t count)
{
    uint8_t *out = (uint8_t *)l->out + (size_t)first * t->layout.values_bytes;
    for (uint32_t r = 0; r < count; r++, out += t->layout.values_bytes)
        memcpy(out, rows[r], t->layout.values_bytes);
}

/* A bag is summed in f32 beside the answer, and written when its last row is in. */
static void narrow_bag_run(struct ps_table *t, struct ps_table_lookup *l, uint32_t first,
                           const void *const *rows, uint32_t count)
{
    uint32_t bag_start = l->in.offsets[l->bag], bag_end = l->in.offsets[l->bag + 1];
    if (first == bag_start)
        memset(l->sum, 0, row_bytes(t));
    add_run(t, l, l->sum, first, rows, count);
    if (first + count < bag_end)
        return;
    divide_bag(t, l, l->bag, l->sum);
    narrow_out(t, l, l->bag, 1, l->sum);
}

static __attribute__((noinline)) void narrow_bag_sink(struct ps_table *t, struct ps_table_lookup *l,
                                                      uint32_t first, const void *const *rows, uint32_t count)
{
    uint32_t end = first + count;
    for (uint32_t key = first; key < end;) {
        while (l->in.offsets[l->bag + 1] <= key)
            l->bag++;
        uint32_t bag_end = l->in.offsets[l->bag + 1];
        uint32_t run_end = bag_end < end ? bag_end : end;
        narrow_bag_run(t, l, key, rows + (key - first), run_end - key);
        key = run_end;
    }
}

/* ---- steps ---- */

static uint64_t key_cost_bytes(const struct ps_table *t)
{
    return PS_KEY_COST_BYTES + row_bytes(t) + ps_table_missed_cost_bytes(t);
}

uint64_t ps_table_lookup_cost_bytes(const struct ps_table *t, uint32_t key_count, uint32_t bag_count)
{
    return key_count * key_cost_bytes(t) + bag_count * row_bytes(t);
}

/* The buckets of the next groups come while others use the processor. */
static void prefetch_next(const struct ps_table *t, const struct ps_table_lookup *l)
{
    uint32_t left = l->in.key_count - l->keys_done;
    uint32_t count = left < 2 * PS_GROUP_KEYS ? left : 2 * PS_GROUP_KEYS;
    for (uint32_t i = 0; i < count; i++)
        __builtin_prefetch(ps_index_home(&t->index, ps_index_hash(&t->index, l->in.keys[l->keys_done + i])),
                           0, 3);
}

/* One key: there is nothing to overlap. */
static void one_row(struct ps_table *t, struct ps_table_lookup *l, row_sink sink)
{
    uint64_t key = l->in.keys[l->keys_done];
    uint64_t hash = ps_index_hash(&t->index, key);
    struct ps_place place = ps_index_find(&t->index, hash);
    if (l->insert && ps_table_stamps(t)) {
        ps_row_use_advance(&t->use, 1);
        if (place.bucket != NULL) {
            ps_table_mark_used(t, place, hash);
            ps_row_used(&t->use, ps_table_row(t, place));
        }
    }
    const void *row = __builtin_expect(place.bucket != NULL, 1)
                          ? ps_table_row(t, place)
                          : row_of_absent_key(t, l->insert, key, hash, t->initial_rows);
    sink(t, l, l->keys_done, rows_of_call(t, l, &row, 1), 1);
    t->counters.keys_looked_up++;
}

static void rows_step(struct ps_table *t, struct ps_table_lookup *l, uint32_t count)
{
    row_sink narrow = (uint32_t)l->out_dtype == t->feature.dtype ? same_sink : narrow_sink;
    if (count == 1)
        one_row(t, l, is_narrow(l) ? narrow : copy_sink);
    else if (is_narrow(l))
        each_row(t, l, count, narrow);
    else
        each_row(t, l, count, copy_sink);
    l->keys_done += count;
    l->rows_done = l->keys_done;
}

/* Begins the bags that keys before `keys_end` belong to, and the empty ones between them, `bags_max` at most;
 * returns how far the keys may advance then. */
static uint32_t bags_begin(const struct ps_table *t, struct ps_table_lookup *l, uint32_t keys_end,
                           uint32_t bags_max)
{
    uint32_t first = l->bags_begun, bag = first;
    while (bag - first < bags_max && (l->in.offsets[bag] < keys_end || keys_end == l->in.key_count))
        bag++;
    memset((uint8_t *)l->out + first * out_row_bytes(t, l), 0, (bag - first) * out_row_bytes(t, l));
    if (l->out_dtype == MR_I8)
        memset(l->scales + first, 0, (bag - first) * sizeof(*l->scales));
    l->bags_begun = bag;
    return bag < l->in.bag_count && l->in.offsets[bag] < keys_end ? l->in.offsets[bag] : keys_end;
}

/* Rows as they are, but for a sum's sign of 0. */
static inline bool has_single_sums(const struct ps_table *t, const struct ps_table_lookup *l)
{
    return l->in.is_single && l->in.weights == NULL && !mr_pooling_averages(t->feature.pooling) &&
           !is_narrow(l);
}

static void singles_step(struct ps_table *t, struct ps_table_lookup *l, uint32_t count)
{
    each_row(t, l, count, single_sink);
    l->keys_done += count;
    l->rows_done = l->bags_begun = l->keys_done;
}

static void bags_step(struct ps_table *t, struct ps_table_lookup *l, uint32_t count, uint32_t bags_max)
{
    uint32_t keys_end = bags_begin(t, l, l->keys_done + count, bags_max);
    if (is_narrow(l))
        each_row(t, l, keys_end - l->keys_done, narrow_bag_sink);
    else
        each_row(t, l, keys_end - l->keys_done, bag_sink);
    l->keys_done = keys_end;
    for (; l->rows_done < l->bags_begun && l->in.offsets[l->rows_done + 1] <= keys_end; l->rows_done++)
        if (!is_narrow(l))
            divide_bag(t, l, l->rows_done, (float *)l->out + (size_t)l->rows_done * t->dim);
}

static bool lookup_some(struct ps_table *t, struct ps_table_lookup *l, uint64_t *budget_bytes)
{
    uint64_t for_bags_bytes = *budget_bytes;
    uint32_t count = ps_budget_take_rows(t, budget_bytes, key_cost_bytes(t), l->in.key_count - l->keys_done);
    if (l->in.offsets == NULL) {
        rows_step(t, l, count);
    } else if (has_single_sums(t, l)) {
        singles_step(t, l, count);
    } else {
        uint32_t bags_before = l->bags_begun;
        bags_step(t, l, count, ps_budget_take(&for_bags_bytes, row_bytes(t), l->in.bag_count - bags_before));
        uint64_t cost_bytes = (l->bags_begun - bags_before) * row_bytes(t);
        *budget_bytes -= cost_bytes < *budget_bytes ? cost_bytes : *budget_bytes;
    }
    bool whole =
        l->keys_done == l->in.key_count && (l->in.offsets == NULL || l->bags_begun == l->in.bag_count);
    if (!whole)
        prefetch_next(t, l);
    return whole;
}

bool ps_table_lookup_step(struct ps_table *t, struct ps_table_lookup *l, uint64_t *budget_bytes)
{
    bool whole = lookup_some(t, l, budget_bytes);
    while (!whole && ps_budget_goes_on(t, *budget_bytes, key_cost_bytes(t)))
        whole = lookup_some(t, l, budget_bytes);
    return whole;
}

/* ---- hints ---- */

void ps_table_prefetch(const struct ps_hint *hints, uint32_t count)
{
    uint64_t hashes[PS_HINT_KEYS_MAX];
    assert(count <= PS_HINT_KEYS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        const struct ps_index *ix = &hints[i].table->index;
        hashes[i] = ps_index_hash(ix, hints[i].key);
        __builtin_prefetch(ps_index_home(ix, hashes[i]), 0, 3);
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct ps_table *t = hints[i].table;
        struct ps_place place = ps_index_find(&t->index, hashes[i]);
        if (place.bucket != NULL)
            ps_row_prefetch(t, ps_table_row(t, place), hints[i].row_bytes);
    }
}
