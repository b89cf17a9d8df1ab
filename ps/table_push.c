/* Pushes: bring repeated keys together, then find the distinct keys' rows and run the optimizer over them.
 *
 * Keys are told apart by their hash alone, which is a bijection of the key (ps/key_hash.h).
 *
 * The working memory is the arena's scratch, which grows with the largest push. A push can not fail: if the heap has no
 * more for it, the keys are split by a bit of their hash and each half is done by itself, as often as needed.
 */
#include <assert.h>
#include <string.h>
#include "ps/table_internal.h"

#define SPLIT_BITS_MAX 32u /* halvings; no push has more keys than that tells apart */
#define SLOTS_MIN      16u
#define SLOTS_PER_KEY                                                                                        \
    4u /* at least, and less than twice that: a probe that meets another key costs a mispredicted branch */

/* Which keys: those whose hash has `value` in the lowest `bits` bits. */
struct hash_class {
    uint32_t bits;
    uint64_t value;
};

struct push {
    /* what to do */
    const uint64_t *keys;
    uint32_t key_count;
    const uint32_t *offsets; /* NULL: a gradient per key */
    const float *gradients;
    bool averages; /* gradients of bags are divided by the bag's divisor */
    /* the distinct keys, and the gradient of each: the caller's, or a sum in `sums` */
    uint32_t *slots; /* hash table: number of a distinct key + 1, or 0 */
    uint32_t slot_mask;
    uint32_t distinct_count, distinct_max;
    struct distinct *distinct;
    uint32_t sum_count, sum_max;
    float *sums;
    uint32_t skipped;
};

struct distinct {
    uint64_t hash;
    uint64_t key;
    const float *gradient;
};

static uint32_t slots_for(size_t keys)
{
    uint32_t slots = SLOTS_MIN;
    while (slots < SLOTS_PER_KEY * keys)
        slots *= 2;
    return slots;
}

/* Lay the arrays out in scratch memory. A sum is needed per key that is there twice, or per key when gradients are
 * divided on the way. */
static void push_layout(struct push *p, const struct ps_table *t)
{
    size_t row_bytes = t->dim * sizeof(float);
    size_t keys_per_sum = p->averages ? 1 : 2;
    /* a key's share: its entry, its slots, its part of a sum; and for rounding one more sum and the least slots */
    size_t key_bytes =
        sizeof(struct distinct) + 2 * SLOTS_PER_KEY * sizeof(uint32_t) + row_bytes / keys_per_sum;
    size_t fixed_bytes = row_bytes + SLOTS_MIN * sizeof(uint32_t);
    size_t wanted = p->key_count * key_bytes + fixed_bytes, bytes;
    uint8_t *scratch = ps_arena_scratch(t->arena, wanted, &bytes);
    size_t keys = bytes >= wanted ? p->key_count : (bytes - fixed_bytes) / key_bytes;
    p->distinct_max = (uint32_t)keys;
    p->sum_max = (uint32_t)(keys / keys_per_sum + 1);
    p->slot_mask = slots_for(keys) - 1;
    p->distinct = (struct distinct *)(void *)scratch;
    p->sums = (float *)(void *)(p->distinct + keys);
    p->slots = (uint32_t *)(void *)(p->sums + (size_t)p->sum_max * t->dim);
}

static bool is_sum(const struct push *p, const struct ps_table *t, const float *gradient)
{
    return gradient >= p->sums && gradient < p->sums + (size_t)p->sum_max * t->dim;
}

/* A new sum that starts as gradient / divisor; NULL when there is no room. */
static float *sum_start(struct push *p, const struct ps_table *t, const float *gradient, float divisor)
{
    if (p->sum_count == p->sum_max)
        return NULL;
    float *sum = p->sums + (size_t)p->sum_count++ * t->dim;
    t->kernels->divide(sum, gradient, divisor, t->dim);
    return sum;
}

/* The key has been met before in this push. A gradient with NaN or Inf is left out of the sum. */
static __attribute__((noinline)) bool add_repeated(struct push *p, const struct ps_table *t,
                                                   struct distinct *d, const float *gradient, float divisor)
{
    const struct ps_kernels *k = t->kernels;
    if (!is_sum(p, t, d->gradient)) {
        if (!k->all_finite(d->gradient, t->dim)) {
            p->skipped++;
            d->gradient = gradient;
            return true;
        }
        const float *sum = sum_start(p, t, d->gradient, 1.0f);
        if (sum == NULL)
            return false;
        d->gradient = sum;
    }
    float *sum = p->sums + (d->gradient - p->sums);
    if (p->averages) {
        gradient = sum_start(p, t, gradient, divisor);
        if (gradient == NULL)
            return false;
        p->sum_count--; /* only its quotient was wanted, and only until it is added */
    }
    if (!k->add_finite(sum, gradient, t->dim))
        p->skipped++;
    return true;
}

static inline uint32_t slot_of(const struct push *p, uint64_t hash)
{
    return (uint32_t)(hash >> SPLIT_BITS_MAX) & p->slot_mask;
}

static inline bool add_first(struct push *p, const struct ps_table *t, uint32_t *slot, uint64_t key,
                             uint64_t hash, const float *gradient, float divisor)
{
    if (p->averages) {
        if (!t->kernels->all_finite(gradient, t->dim)) {
            p->skipped++;
            return true;
        }
        gradient = sum_start(p, t, gradient, divisor);
        if (gradient == NULL)
            return false;
    }
    if (p->distinct_count == p->distinct_max)
        return false;
    p->distinct[p->distinct_count] = (struct distinct){hash, key, gradient};
    *slot = ++p->distinct_count;
    return true;
}

/* False when there is no room. */
static inline bool add_gradient(struct push *p, const struct ps_table *t, uint64_t key, uint64_t hash,
                                const float *gradient, float divisor)
{
    uint32_t at = slot_of(p, hash);
    for (;; at = (at + 1) & p->slot_mask) { /* most slots are free */
        uint32_t number = p->slots[at];
        if (number == 0)
            return add_first(p, t, &p->slots[at], key, hash, gradient, divisor);
        if (p->distinct[number - 1].hash == hash)
            return add_repeated(p, t, &p->distinct[number - 1], gradient, divisor);
    }
}

/* The bag that the keys have come to. */
struct bag_cursor {
    uint32_t bag;
    uint32_t end; /* first key behind it */
    float divisor;
};

static inline void bag_advance(const struct push *p, const struct ps_table *t, uint32_t key,
                               struct bag_cursor *c)
{
    while (p->offsets[c->bag + 1] <= key)
        c->bag++;
    c->end = p->offsets[c->bag + 1];
    c->divisor = ps_bag_divisor(t, c->end - p->offsets[c->bag]);
}

/* Keys [first, first + count): false when there is no room. */
static inline bool group_collect(struct push *p, const struct ps_table *t, struct hash_class class,
                                 struct bag_cursor *c, uint32_t first, uint32_t count)
{
    uint64_t class_mask = ((uint64_t)1 << class.bits) - 1;
    uint64_t hashes[PS_GROUP_KEYS];
    for (uint32_t i = 0; i < count; i++) {
        hashes[i] = ps_key_hash(p->keys[first + i], t->index.seed);
        __builtin_prefetch(&p->slots[slot_of(p, hashes[i])], 1, 3);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t key = first + i;
        size_t gradient = key;
        if (p->offsets != NULL) {
            if (key >= c->end)
                bag_advance(p, t, key, c);
            gradient = c->bag;
        }
        if ((hashes[i] & class_mask) != class.value)
            continue;
        if (!add_gradient(p, t, p->keys[key], hashes[i], p->gradients + gradient * t->dim, c->divisor))
            return false;
    }
    return true;
}

/* Brings the keys of a class together; false when there is no room. The table is not touched. */
static bool class_collect(struct push *p, const struct ps_table *t, struct hash_class class)
{
    struct bag_cursor c = {.divisor = 1.0f};
    p->distinct_count = p->sum_count = p->skipped = 0;
    memset(p->slots, 0, ((size_t)p->slot_mask + 1) * sizeof(*p->slots));
    for (uint32_t first = 0; first < p->key_count; first += PS_GROUP_KEYS)
        if (!group_collect(p, t, class, &c, first, ps_group_size(p->key_count, first)))
            return false;
    return true;
}

/* Rows of a group, and their gradients, on the way. Keys without a row are left out. */
struct row_group {
    uint32_t count;
    float *rows[PS_GROUP_KEYS];
    const float *gradients[PS_GROUP_KEYS];
};

static inline void group_find(const struct push *p, struct ps_table *t, const struct ps_group *g,
                              uint32_t first, uint32_t count, struct row_group *out)
{
    out->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct distinct *d = &p->distinct[first + i];
        struct ps_place place = ps_index_find_from(&t->index, g->homes[i], d->key, d->hash);
        if (__builtin_expect(place.bucket == NULL, 0))
            continue;
        if (__builtin_expect(t->cut_running, 0))
            ps_table_cut_before_change(t, place);
        float *row = ps_table_row(t, place);
        ps_row_prefetch(row, t->stored_row_bytes);
        out->rows[out->count] = row;
        out->gradients[out->count++] = d->gradient;
    }
}

/* Runs the optimizer over the keys collected, in three stages of groups like a lookup. */
static void class_apply(struct push *p, struct ps_table *t)
{
    struct ps_group groups[2];
    struct row_group rows[2];
    uint32_t found = 0, changed = 0, group_count = ps_group_count(p->distinct_count);
    for (uint32_t step = 0; step < group_count + 2; step++) {
        if (step < group_count) {
            uint32_t first = step * PS_GROUP_KEYS, count = ps_group_size(p->distinct_count, first);
            for (uint32_t i = 0; i < count; i++)
                ps_group_seek(t, &groups[step % 2], i, p->distinct[first + i].hash);
        }
        if (step >= 1 && step - 1 < group_count) {
            uint32_t first = (step - 1) * PS_GROUP_KEYS;
            group_find(p, t, &groups[(step - 1) % 2], first, ps_group_size(p->distinct_count, first),
                       &rows[(step - 1) % 2]);
        }
        if (step >= 2) {
            const struct row_group *g = &rows[step % 2];
            found += g->count;
            changed += ps_optimizer_apply(&t->optimizer, g->rows, g->gradients, g->count, t->dim);
        }
    }
    t->counters.updates += changed;
    t->counters.gradients_skipped += p->skipped + (found - changed);
    t->counters.gradients_without_row += p->distinct_count - found;
}

static void push_class(struct push *p, struct ps_table *t, struct hash_class class)
{
    if (class_collect(p, t, class)) {
        class_apply(p, t);
        return;
    }
    assert(class.bits < SPLIT_BITS_MAX);
    push_class(p, t, (struct hash_class){class.bits + 1, class.value});
    push_class(p, t, (struct hash_class){class.bits + 1, class.value | (uint64_t)1 << class.bits});
}

void ps_table_push(struct ps_table *t, const uint64_t *keys, uint32_t key_count, const float *gradients)
{
    if (key_count == 0)
        return;
    struct push p = {.keys = keys, .key_count = key_count, .gradients = gradients};
    push_layout(&p, t);
    push_class(&p, t, (struct hash_class){0, 0});
    t->counters.keys_pushed += key_count;
}

void ps_table_push_bags(struct ps_table *t, const uint64_t *keys, const uint32_t *offsets, uint32_t bag_count,
                        const float *gradients)
{
    if (bag_count == 0 || offsets[bag_count] == 0)
        return;
    struct push p = {.keys = keys,
                     .key_count = offsets[bag_count],
                     .offsets = offsets,
                     .gradients = gradients,
                     .averages = t->feature.pooling != MR_POOL_SUM};
    push_layout(&p, t);
    push_class(&p, t, (struct hash_class){0, 0});
    t->counters.keys_pushed += p.key_count;
}
