/* Pushes: find each key's row, bring repeated keys together, then run the optimizer over the distinct rows.
 *
 * The working memory is the arena's scratch, which grows with the largest push. A push can not fail: if the heap has no
 * more for it, the keys are split by a bit of their hash and each half is done by itself, as often as needed.
 */
#include <assert.h>
#include <string.h>
#include "ps/table_internal.h"

#define SPLIT_BITS_MAX 32u /* that many halvings leave one key of any push */

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
    /* distinct rows found so far, and the gradient of each: the caller's, or a sum in `sums` */
    uint32_t *slots; /* hash table over the rows: number of a row + 1, or 0 */
    uint32_t slot_mask;
    uint32_t row_count, row_capacity;
    float **rows;
    const float **row_gradients;
    uint32_t sum_count, sum_capacity;
    float *sums;
    uint32_t skipped, without_row;
};

static uint32_t slots_for(uint32_t rows)
{
    uint32_t slots = 16;
    while (slots < 2 * rows)
        slots *= 2;
    return slots;
}

/* Lay the arrays out in scratch memory. A sum is needed per key that is there twice, or per key when gradients are
 * divided on the way. */
static void push_layout(struct push *p, const struct ps_table *t)
{
    size_t row_bytes = t->dim * sizeof(float);
    size_t sum_share = p->averages ? 1 : 2; /* rows per sum */
    /* per row: its two pointers, at most four slots, its share of a sum; one more sum and 16 slots for rounding */
    size_t bytes_per_row = 2 * sizeof(void *) + 4 * sizeof(uint32_t) + row_bytes / sum_share;
    size_t wanted = p->key_count * bytes_per_row + row_bytes + 16 * sizeof(uint32_t), bytes;
    uint8_t *scratch = ps_arena_scratch(t->arena, wanted, &bytes);
    size_t rows = p->key_count;
    if (bytes < wanted)
        rows = (bytes - row_bytes - 16 * sizeof(uint32_t)) / bytes_per_row;
    p->row_capacity = (uint32_t)rows;
    p->sum_capacity = (uint32_t)(rows / sum_share + 1);
    p->slot_mask = slots_for(p->row_capacity) - 1;
    p->rows = (float **)(void *)scratch;
    p->row_gradients = (const float **)(void *)(scratch + rows * sizeof(void *));
    p->sums = (float *)(void *)(scratch + 2 * rows * sizeof(void *));
    p->slots = (uint32_t *)(void *)(scratch + 2 * rows * sizeof(void *) + p->sum_capacity * row_bytes);
}

static bool is_sum(const struct push *p, const float *gradient)
{
    return gradient >= p->sums && gradient < (const float *)p->slots;
}

/* A new sum that starts as gradient / divisor; NULL when there is no room. */
static float *sum_start(struct push *p, const struct ps_table *t, const float *gradient, float divisor)
{
    if (p->sum_count == p->sum_capacity)
        return NULL;
    float *sum = p->sums + (size_t)p->sum_count++ * t->dim;
    t->kernels->divide(sum, gradient, divisor, t->dim);
    return sum;
}

/* The row has been met before in this push. A gradient with NaN or Inf is left out of the sum. */
static __attribute__((noinline)) bool add_repeated(struct push *p, const struct ps_table *t, uint32_t number,
                                                   const float *gradient, float divisor)
{
    const struct ps_kernels *k = t->kernels;
    if (!k->all_finite(gradient, t->dim)) {
        p->skipped++;
        return true;
    }
    const float *first = p->row_gradients[number];
    if (!is_sum(p, first)) {
        if (!k->all_finite(first, t->dim)) {
            p->skipped++;
            p->row_gradients[number] = gradient;
            return true;
        }
        first = sum_start(p, t, first, 1.0f);
        if (first == NULL)
            return false;
        p->row_gradients[number] = first;
    }
    float *sum = p->sums + (first - p->sums);
    if (!p->averages) {
        k->add_rows(sum, &gradient, 1, t->dim);
        return true;
    }
    const float *part = sum_start(p, t, gradient, divisor);
    if (part == NULL)
        return false;
    k->add_rows(sum, &part, 1, t->dim);
    p->sum_count--;
    return true;
}

static bool add_first(struct push *p, const struct ps_table *t, uint32_t *slot, float *row,
                      const float *gradient, float divisor)
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
    if (p->row_count == p->row_capacity)
        return false;
    p->rows[p->row_count] = row;
    p->row_gradients[p->row_count] = gradient;
    *slot = ++p->row_count;
    return true;
}

/* False when there is no room. */
static inline bool add_gradient(struct push *p, const struct ps_table *t, uint64_t hash, float *row,
                                const float *gradient, float divisor)
{
    uint32_t at = (uint32_t)(hash >> SPLIT_BITS_MAX) & p->slot_mask;
    for (;; at = (at + 1) & p->slot_mask) { /* at most half of the slots are taken */
        uint32_t number = p->slots[at];
        if (number == 0)
            return add_first(p, t, &p->slots[at], row, gradient, divisor);
        if (p->rows[number - 1] == row)
            return add_repeated(p, t, number - 1, gradient, divisor);
    }
}

/* The bag that a run of keys has come to. */
struct bag_cursor {
    uint32_t bag;
    uint32_t end; /* first key behind it */
    float divisor;
};

static void bag_advance(const struct push *p, const struct ps_table *t, uint32_t key, struct bag_cursor *c)
{
    while (p->offsets[c->bag + 1] <= key)
        c->bag++;
    c->end = p->offsets[c->bag + 1];
    c->divisor = ps_bag_divisor(t, c->end - p->offsets[c->bag]);
}

static bool group_add(struct push *p, struct ps_table *t, uint32_t first, uint32_t count,
                      const uint64_t *hashes, struct hash_class class, struct bag_cursor *c)
{
    uint64_t class_mask = ((uint64_t)1 << class.bits) - 1;
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
        struct ps_place place = ps_index_find(&t->index, p->keys[key], hashes[i]);
        if (place.bucket == NULL) {
            p->without_row++;
            continue;
        }
        if (t->cut_running)
            ps_table_cut_before_change(t, place);
        float *row = ps_table_row(t, place);
        if (!add_gradient(p, t, hashes[i], row, p->gradients + gradient * t->dim, c->divisor))
            return false;
    }
    return true;
}

/* Finds the distinct rows of a class and their gradients; false when there is no room. Nothing is changed yet. */
static bool class_collect(struct push *p, struct ps_table *t, struct hash_class class)
{
    uint64_t hashes[2][PS_GROUP_KEYS];
    struct bag_cursor cursor = {.divisor = 1.0f};
    p->row_count = p->sum_count = p->skipped = p->without_row = 0;
    memset(p->slots, 0, ((size_t)p->slot_mask + 1) * sizeof(*p->slots));
    uint32_t group_count = p->key_count / PS_GROUP_KEYS + (p->key_count % PS_GROUP_KEYS != 0);
    for (uint32_t step = 0; step <= group_count; step++) {
        if (step < group_count) {
            uint32_t first = step * PS_GROUP_KEYS, left = p->key_count - first;
            ps_group_hash(t, p->keys + first, left < PS_GROUP_KEYS ? left : PS_GROUP_KEYS, hashes[step % 2]);
        }
        if (step == 0)
            continue;
        uint32_t first = (step - 1) * PS_GROUP_KEYS, left = p->key_count - first;
        if (!group_add(p, t, first, left < PS_GROUP_KEYS ? left : PS_GROUP_KEYS, hashes[(step - 1) % 2],
                       class, &cursor))
            return false;
    }
    return true;
}

/* Runs the optimizer over the rows collected. */
static void class_apply(struct push *p, struct ps_table *t)
{
    uint32_t changed = 0;
    for (uint32_t ahead = 0, at = 0; at < p->row_count;) {
        for (; ahead < p->row_count && ahead < at + 2 * PS_GROUP_KEYS; ahead++)
            ps_row_prefetch(p->rows[ahead], t->stored_row_bytes);
        uint32_t left = p->row_count - at, count = left < PS_GROUP_KEYS ? left : PS_GROUP_KEYS;
        changed += ps_optimizer_apply(&t->optimizer, p->rows + at, p->row_gradients + at, count, t->dim);
        at += count;
    }
    t->counters.updates += changed;
    t->counters.gradients_skipped += p->skipped + (p->row_count - changed);
    t->counters.gradients_without_row += p->without_row;
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
