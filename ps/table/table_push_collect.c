/* Brings the repeated keys of a push together. Keys are told apart by their hash alone, which is a bijection
 * of the key (ps/base/key_hash.h). */
#include <string.h>
#include "dataplane/wire/format/convert.h"
#include "ps/table/table_push_internal.h"

static bool is_sum(const struct ps_table_push *p, const struct ps_table *t, const float *gradient)
{
    return gradient >= p->sums && gradient < p->sums + (size_t)p->sum_max * t->dim;
}

/* Where a pushed gradient is, and what becomes of it for its key. */
struct pushed {
    size_t row;   /* of the gradients */
    float weight; /* of the key */
};

/* Room for a sum; NULL when there is none. */
static float *sum_take(struct ps_table_push *p, const struct ps_table *t)
{
    return p->sum_count < p->sum_max ? p->sums + (size_t)p->sum_count++ * t->dim : NULL;
}

static inline const float *gradient_at(const struct ps_table_push *p, const struct ps_table *t, size_t row)
{
    return (const float *)p->gradients + row * t->dim;
}

/* As the key's row gets it. */
static __attribute__((noinline)) void derive(const struct ps_table_push *p, const struct ps_table *t,
                                             struct pushed from, float *out)
{
    const float *in = gradient_at(p, t, from.row);
    if (ps_push_is_narrow(p)) {
        size_t row_bytes = t->dim * mr_dtype_bytes(p->gradients_dtype);
        mr_convert_to_f32(p->gradients_dtype, out, (const uint8_t *)p->gradients + from.row * row_bytes,
                          p->gradient_scales == NULL ? NULL : p->gradient_scales + from.row, 1, t->dim);
        in = out;
    }
    if (p->divisor != 1.0f) {
        t->kernels->divide(out, in, p->divisor, t->dim);
        in = out;
    }
    if (p->weights != NULL)
        t->kernels->scale(out, in, from.weight, t->dim);
    else if (in != out)
        memcpy(out, in, t->dim * sizeof(*out));
}

/* As add_repeated(), of rows that are set: the last one that is finite counts. */
static bool set_repeated(struct ps_table_push *p, const struct ps_table *t, struct ps_distinct *d,
                         struct pushed from)
{
    const struct mr_kernels *k = t->kernels;
    if (!p->derives) {
        const float *row = gradient_at(p, t, from.row);
        bool is_finite = k->all_finite(row, t->dim), was_finite = k->all_finite(d->gradient, t->dim);
        p->skipped += !(is_finite && was_finite); /* of two bad ones, one */
        if (is_finite || !was_finite)
            d->gradient = row;
        return true;
    }
    float *derived = sum_take(p, t);
    if (derived == NULL)
        return false;
    derive(p, t, from, derived);
    if (k->all_finite(derived, t->dim))
        memcpy(p->sums + (d->gradient - p->sums), derived, t->dim * sizeof(*derived));
    else
        p->skipped++;
    p->sum_count--; /* it is wanted only until it is copied */
    return true;
}

/* The key has been met before in this push. A gradient with NaN or Inf is left out of the sum. */
static __attribute__((noinline)) bool add_repeated(struct ps_table_push *p, const struct ps_table *t,
                                                   struct ps_distinct *d, struct pushed from)
{
    const struct mr_kernels *k = t->kernels;
    const float *gradient = p->derives ? NULL : gradient_at(p, t, from.row);
    if (mr_rule_sets(&t->optimizer))
        return set_repeated(p, t, d, from);
    if (!is_sum(p, t, d->gradient)) {
        if (!k->all_finite(d->gradient, t->dim)) {
            p->skipped++;
            d->gradient = gradient;
            return true;
        }
        float *sum = sum_take(p, t);
        if (sum == NULL)
            return false;
        memcpy(sum, d->gradient, t->dim * sizeof(*sum));
        d->gradient = sum;
    }
    float *sum = p->sums + (d->gradient - p->sums);
    if (p->derives) {
        float *derived = sum_take(p, t);
        if (derived == NULL)
            return false;
        p->sum_count--; /* it is wanted only until it is added */
        derive(p, t, from, derived);
        gradient = derived;
    }
    if (!k->add_finite(sum, gradient, t->dim))
        p->skipped++;
    return true;
}

static inline uint32_t slot_of(const struct ps_table_push *p, uint64_t hash)
{
    return (uint32_t)(hash >> PS_PUSH_SPLIT_BITS_MAX) & p->slot_mask;
}

static inline bool add_first(struct ps_table_push *p, const struct ps_table *t, uint32_t *slot, uint64_t key,
                             uint64_t hash, struct pushed from)
{
    const float *gradient;
    if (p->derives) {
        float *derived = sum_take(p, t);
        if (derived == NULL)
            return false;
        derive(p, t, from, derived);
        if (!t->kernels->all_finite(derived, t->dim)) {
            p->sum_count--;
            p->skipped++;
            return true;
        }
        gradient = derived;
    } else {
        gradient = gradient_at(p, t, from.row);
    }
    if (p->distinct_count == p->distinct_max)
        return false;
    p->distinct[p->distinct_count] = (struct ps_distinct){hash, key, gradient};
    *slot = ++p->distinct_count;
    return true;
}

/* False when there is no room. */
static inline bool add_gradient(struct ps_table_push *p, const struct ps_table *t, uint64_t key,
                                uint64_t hash, struct pushed from)
{
    uint32_t at = slot_of(p, hash);
    for (;; at = (at + 1) & p->slot_mask) { /* most slots are free */
        uint32_t number = p->slots[at];
        if (number == 0)
            return add_first(p, t, &p->slots[at], key, hash, from);
        if (p->distinct[number - 1].hash == hash)
            return add_repeated(p, t, &p->distinct[number - 1], from);
    }
}

/* On to the bag that this key belongs to. */
static inline void bag_advance(struct ps_table_push *p, const struct ps_table *t, uint32_t key)
{
    while (p->offsets[p->bag + 1] <= key)
        p->bag++;
    p->bag_end = p->offsets[p->bag + 1];
    if (p->derives)
        p->divisor = ps_bag_divisor(t, p->offsets, p->weights, p->divisors, p->bag);
}

/* A gradient per key, as it is, for all keys at once: what nearly every push is. State is kept out of memory
 * that stores might change. */
static inline bool is_plain(const struct ps_table_push *p)
{
    return p->offsets == NULL && p->left_out == NULL && p->class_bits == 0 && !p->derives;
}

static inline bool group_collect_plain(struct ps_table_push *p, const struct ps_table *t, uint32_t first,
                                       uint32_t count)
{
    const uint64_t *keys = p->keys + first, seed = t->index.seed;
    uint32_t *slots = p->slots, mask = p->slot_mask, distinct_count = p->distinct_count;
    struct ps_distinct *distinct = p->distinct;
    const float *gradient = gradient_at(p, t, first);
    uint32_t dim = t->dim, distinct_max = p->distinct_max;
    uint64_t hashes[PS_GROUP_KEYS];
    for (uint32_t i = 0; i < count; i++) {
        hashes[i] = ps_key_hash(keys[i], seed);
        __builtin_prefetch(&slots[(uint32_t)(hashes[i] >> PS_PUSH_SPLIT_BITS_MAX) & mask], 1, 3);
    }
    for (uint32_t i = 0; i < count; i++, gradient += dim) {
        uint32_t *slot = &slots[(uint32_t)(hashes[i] >> PS_PUSH_SPLIT_BITS_MAX) & mask];
        if (__builtin_expect(*slot == 0 && distinct_count < distinct_max, 1)) {
            distinct[distinct_count] = (struct ps_distinct){hashes[i], keys[i], gradient};
            *slot = ++distinct_count;
            continue;
        }
        p->distinct_count = distinct_count;
        if (!add_gradient(p, t, keys[i], hashes[i], (struct pushed){.row = first + i, .weight = 1.0f}))
            return false;
        distinct_count = p->distinct_count;
    }
    p->distinct_count = distinct_count;
    return true;
}

/* Keys [first, first + count): false when there is no room. */
static inline bool group_collect(struct ps_table_push *p, const struct ps_table *t, uint32_t first,
                                 uint32_t count)
{
    uint64_t class_mask = ((uint64_t)1 << p->class_bits) - 1;
    uint64_t hashes[PS_GROUP_KEYS];
    for (uint32_t i = 0; i < count; i++) {
        hashes[i] = ps_key_hash(p->keys[first + i], t->index.seed);
        __builtin_prefetch(&p->slots[slot_of(p, hashes[i])], 1, 3);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t key = first + i;
        struct pushed from = {.row = key};
        if (p->offsets != NULL) {
            if (key >= p->bag_end)
                bag_advance(p, t, key);
            from.row = p->bag;
        }
        if ((hashes[i] & class_mask) != p->class_value || ps_push_leaves_out(p, hashes[i]))
            continue;
        from.weight = p->weights != NULL ? p->weights[key] : 1.0f;
        if (!add_gradient(p, t, p->keys[key], hashes[i], from))
            return false;
    }
    return true;
}

bool ps_table_push_collect(struct ps_table_push *p, const struct ps_table *t, uint32_t first, uint32_t end)
{
    bool plain = is_plain(p);
    for (uint32_t count; first < end; first += count) {
        count = ps_group_size(end, first);
        if (!(plain ? group_collect_plain(p, t, first, count) : group_collect(p, t, first, count)))
            return false;
    }
    return true;
}
