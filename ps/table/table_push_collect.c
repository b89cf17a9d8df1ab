/* Brings the repeated keys of a push together. Keys are told apart by their hash alone, which is a bijection
 * of the key (ps/base/key_hash.h). */
#include <string.h>
#include "dataplane/wire/format/convert.h"
#include "ps/table/table_push_internal.h"

static bool is_sum(const struct ps_table_push *p, const struct ps_table *t, const float *gradient)
{
    return gradient >= p->scratch.sums && gradient < p->scratch.sums + (size_t)p->scratch.sum_max * t->dim;
}

/* Where a pushed gradient is, and what becomes of it for its key. */
struct pushed {
    size_t row;   /* of the gradients */
    float weight; /* of the key */
};

/* Room for a sum; NULL when there is none. */
static float *sum_take(struct ps_table_push *p, const struct ps_table *t)
{
    return p->scratch.sum_count < p->scratch.sum_max
               ? p->scratch.sums + (size_t)p->scratch.sum_count++ * t->dim
               : NULL;
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
    if (p->cursor.divisor != 1.0f) {
        t->kernels->divide(out, in, p->cursor.divisor, t->dim);
        in = out;
    }
    if (p->in.weights != NULL)
        t->kernels->scale(out, in, from.weight, t->dim);
    else if (in != out)
        memcpy(out, in, t->dim * sizeof(*out));
}

/* As add_repeated(), of rows that are set: the last one that is finite counts. */
static bool set_repeated(struct ps_table_push *p, const struct ps_table *t, struct ps_distinct *d,
                         struct pushed from)
{
    const struct mr_kernels *k = t->kernels;
    if (!p->cursor.derives) {
        const float *row = gradient_at(p, t, from.row);
        bool is_finite = k->all_finite(row, t->dim), was_finite = k->all_finite(d->gradient, t->dim);
        p->cursor.skipped += !(is_finite && was_finite); /* of two bad ones, one */
        if (is_finite || !was_finite)
            d->gradient = row;
        return true;
    }
    float *derived = sum_take(p, t);
    if (derived == NULL)
        return false;
    derive(p, t, from, derived);
    if (k->all_finite(derived, t->dim))
        memcpy(p->scratch.sums + (d->gradient - p->scratch.sums), derived, t->dim * sizeof(*derived));
    else
        p->cursor.skipped++;
    p->scratch.sum_count--; /* it is wanted only until it is copied */
    return true;
}

/* The key has been met before in this push. A gradient with NaN or Inf is left out of the sum. */
static __attribute__((noinline)) bool add_repeated(struct ps_table_push *p, const struct ps_table *t,
                                                   struct ps_distinct *d, struct pushed from)
{
    const struct mr_kernels *k = t->kernels;
    const float *gradient = p->cursor.derives ? NULL : gradient_at(p, t, from.row);
    if (mr_rule_sets(&t->optimizer))
        return set_repeated(p, t, d, from);
    if (!is_sum(p, t, d->gradient)) {
        if (!k->all_finite(d->gradient, t->dim)) {
            p->cursor.skipped++;
            d->gradient = gradient;
            return true;
        }
        float *sum = sum_take(p, t);
        if (sum == NULL)
            return false;
        memcpy(sum, d->gradient, t->dim * sizeof(*sum));
        d->gradient = sum;
    }
    float *sum = p->scratch.sums + (d->gradient - p->scratch.sums);
    if (p->cursor.derives) {
        float *derived = sum_take(p, t);
        if (derived == NULL)
            return false;
        p->scratch.sum_count--; /* it is wanted only until it is added */
        derive(p, t, from, derived);
        gradient = derived;
    }
    if (!k->add_finite(sum, gradient, t->dim))
        p->cursor.skipped++;
    return true;
}

static inline uint32_t slot_of(const struct ps_table_push *p, uint64_t hash)
{
    return (uint32_t)(hash >> PS_PUSH_SPLIT_BITS_MAX) & p->scratch.slot_mask;
}

static inline bool add_first(struct ps_table_push *p, const struct ps_table *t, uint32_t *slot, uint64_t key,
                             uint64_t hash, struct pushed from)
{
    const float *gradient;
    if (p->cursor.derives) {
        float *derived = sum_take(p, t);
        if (derived == NULL)
            return false;
        derive(p, t, from, derived);
        if (!t->kernels->all_finite(derived, t->dim)) {
            p->scratch.sum_count--;
            p->cursor.skipped++;
            return true;
        }
        gradient = derived;
    } else {
        gradient = gradient_at(p, t, from.row);
    }
    if (p->scratch.distinct_count == p->scratch.distinct_max)
        return false;
    p->scratch.distinct[p->scratch.distinct_count] = (struct ps_distinct){hash, key, gradient};
    *slot = ++p->scratch.distinct_count;
    return true;
}

/* False when there is no room. */
static inline bool add_gradient(struct ps_table_push *p, const struct ps_table *t, uint64_t key,
                                uint64_t hash, struct pushed from)
{
    uint32_t at = slot_of(p, hash);
    for (;; at = (at + 1) & p->scratch.slot_mask) { /* most slots are free */
        uint32_t number = p->scratch.slots[at];
        if (number == 0)
            return add_first(p, t, &p->scratch.slots[at], key, hash, from);
        if (p->scratch.distinct[number - 1].hash == hash)
            return add_repeated(p, t, &p->scratch.distinct[number - 1], from);
    }
}

/* On to the bag that this key belongs to. */
static inline void bag_advance(struct ps_table_push *p, const struct ps_table *t, uint32_t key)
{
    while (p->in.offsets[p->cursor.bag + 1] <= key)
        p->cursor.bag++;
    p->cursor.bag_end = p->in.offsets[p->cursor.bag + 1];
    if (p->cursor.derives)
        p->cursor.divisor = ps_bag_divisor(t, p->in.offsets, p->in.weights, p->in.divisors, p->cursor.bag);
}

/* A gradient per key, as it is, for all keys at once: what nearly every push is. State is kept out of memory
 * that stores might change. */
static inline bool is_plain(const struct ps_table_push *p)
{
    return p->in.offsets == NULL && p->left_out == NULL && p->cursor.class_bits == 0 && !p->cursor.derives;
}

static inline bool group_collect_plain(struct ps_table_push *p, const struct ps_table *t, uint32_t first,
                                       uint32_t count)
{
    const uint64_t *keys = p->in.keys + first, seed = t->index.seed;
    uint32_t *slots = p->scratch.slots, mask = p->scratch.slot_mask,
             distinct_count = p->scratch.distinct_count;
    struct ps_distinct *distinct = p->scratch.distinct;
    const float *gradient = gradient_at(p, t, first);
    uint32_t dim = t->dim, distinct_max = p->scratch.distinct_max;
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
        p->scratch.distinct_count = distinct_count;
        if (!add_gradient(p, t, keys[i], hashes[i], (struct pushed){.row = first + i, .weight = 1.0f}))
            return false;
        distinct_count = p->scratch.distinct_count;
    }
    p->scratch.distinct_count = distinct_count;
    return true;
}

/* Keys [first, first + count): false when there is no room. */
static inline bool group_collect(struct ps_table_push *p, const struct ps_table *t, uint32_t first,
                                 uint32_t count)
{
    uint64_t class_mask = ((uint64_t)1 << p->cursor.class_bits) - 1;
    uint64_t hashes[PS_GROUP_KEYS];
    for (uint32_t i = 0; i < count; i++) {
        hashes[i] = ps_key_hash(p->in.keys[first + i], t->index.seed);
        __builtin_prefetch(&p->scratch.slots[slot_of(p, hashes[i])], 1, 3);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t key = first + i;
        struct pushed from = {.row = key};
        if (p->in.offsets != NULL) {
            if (key >= p->cursor.bag_end)
                bag_advance(p, t, key);
            from.row = p->cursor.bag;
        }
        if ((hashes[i] & class_mask) != p->cursor.class_value || ps_push_leaves_out(p, hashes[i]))
            continue;
        from.weight = p->in.weights != NULL ? p->in.weights[key] : 1.0f;
        if (!add_gradient(p, t, p->in.keys[key], hashes[i], from))
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
