/* Pushes, stage by stage: bring repeated keys together, then find the distinct keys' rows and run the
 * optimizer over them.
 *
 * The working memory is the arena's scratch, which grows with the largest push. A push cannot fail: if the
 * heap has no more for it, the keys are split by a bit of their hash and each half is done by itself, as
 * often as needed.
 */
#include <assert.h>
#include <math.h>
#include <string.h>
#include "dataplane/wire/format/convert.h"
#include "ps/table/table_internal.h"

/* A push goes through its keys once, or, class by class, several times: those whose hash has class_value in
 * the lowest class_bits bits are brought together, then applied. Of a push whose keys were numbered as they
 * arrived, the rest are numbered (PUSH_NUMBER), and then the gradients of repeated keys are summed
 * (PUSH_SUM). */
enum push_stage {
    PUSH_NEW,
    PUSH_SEE,
    PUSH_CLEAR,
    PUSH_COLLECT,
    PUSH_NUMBER,
    PUSH_SUM,
    PUSH_APPLY,
    PUSH_DONE
};

#define SPLIT_BITS_MAX 32u /* halvings of a push; none has more keys than that distinguishes */

static inline bool leaves_out(const struct ps_table_push *p, uint64_t hash)
{
    uint32_t partition = mr_partition_of(hash);
    return __builtin_expect(p->excluded != NULL, 0) &&
           (p->excluded[partition / 64] >> partition % 64 & 1) != 0;
}

static inline bool is_narrow(const struct ps_table_push *p)
{
    return p->gradients_dtype != MR_F32 && p->gradients_dtype != MR_DTYPE_NONE;
}

/* Lay the arrays out in scratch memory. A sum is needed per key that is there twice, or per key when
 * gradients are derived from what was pushed. */
static void push_layout(struct ps_table_push *p, const struct ps_table *t)
{
    size_t row_bytes = t->dim * sizeof(float);
    size_t keys_per_sum = p->cursor.derives ? 1 : 2;
    size_t expanded_bytes = p->cursor.expands ? row_bytes : 0;
    /* a key's share: its entry, its slots, its part of a sum, and its gradient as f32; and for rounding one
     * more sum and the least slots */
    size_t key_bytes = sizeof(struct ps_distinct) + 2 * PS_PUSH_SLOTS_PER_KEY * sizeof(uint32_t) +
                       row_bytes / keys_per_sum + expanded_bytes;
    size_t fixed_bytes = row_bytes + PS_PUSH_SLOTS_MIN * sizeof(uint32_t);
    size_t wanted = p->in.key_count * key_bytes + fixed_bytes, bytes;
    uint8_t *scratch =
        ps_arena_scratch(t->arena, p->at_once ? PS_SCRATCH_ONCE : PS_SCRATCH_STEPS, wanted, &bytes);
    if (bytes < wanted && p->cursor.expands) { /* one by one they need less */
        p->cursor.expands = false;
        p->cursor.derives = true;
        push_layout(p, t);
        return;
    }
    size_t keys = bytes >= wanted ? p->in.key_count : (bytes - fixed_bytes) / key_bytes;
    p->scratch.distinct_max = (uint32_t)keys;
    p->scratch.sum_max = (uint32_t)(keys / keys_per_sum + 1);
    p->scratch.slot_mask = ps_push_slots(keys) - 1;
    p->scratch.distinct = (struct ps_distinct *)(void *)scratch;
    p->scratch.sums = (float *)(void *)(p->scratch.distinct + keys);
    p->scratch.expanded = p->scratch.sums + (size_t)p->scratch.sum_max * t->dim;
    p->scratch.gradients = p->cursor.expands ? p->scratch.expanded : p->gradients;
    p->scratch.slots = (uint32_t *)(void *)(p->scratch.expanded + (p->cursor.expands ? keys * t->dim : 0));
}

/* ---- repeated keys ----
 * Keys are distinguished by their hash alone, which is a bijection of the key (ps/base/key_hash.h). */

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

/* Pushed gradients [first, first + count), of a narrow type, as f32. */
static void to_f32(const struct ps_table_push *p, const struct ps_table *t, size_t first, uint32_t count,
                   float *out)
{
    size_t row_bytes = t->dim * mr_dtype_bytes(p->gradients_dtype);
    mr_convert_to_f32(p->gradients_dtype, out, (const uint8_t *)p->gradients + first * row_bytes,
                      p->gradient_scales == NULL ? NULL : p->gradient_scales + first, count, t->dim);
}

static inline const float *gradient_at(const struct ps_table_push *p, size_t row)
{
    return p->scratch.gradients + row * p->cursor.row_floats;
}

/* As the key's row gets it. */
static __attribute__((noinline)) void derive(const struct ps_table_push *p, const struct ps_table *t,
                                             struct pushed from, float *out)
{
    const float *in = out;
    if (is_narrow(p))
        to_f32(p, t, from.row, 1, out);
    else
        in = gradient_at(p, from.row);
    if (p->cursor.divisor != 1.0f) {
        t->kernels->divide(out, in, p->cursor.divisor, t->dim);
        in = out;
    }
    if (p->in.weights != NULL)
        t->kernels->scale(out, in, from.weight, t->dim);
    else if (in != out)
        memcpy(out, in, t->dim * sizeof(*out));
}

static inline bool sets_rows(const struct ps_table_push *p, const struct ps_table *t)
{
    return p->sets || mr_rule_sets(&t->optimizer);
}

/* Of a key whose derived gradients so far hold NaN or Inf. */
static const float not_finite[MR_DIM_MAX] = {NAN};

/* The gradient that a key has in this push until it is met again; NULL when there is no room. */
static inline const float *first_gradient(struct ps_table_push *p, const struct ps_table *t,
                                          struct pushed from)
{
    if (!p->cursor.derives)
        return gradient_at(p, from.row);
    float *derived = sum_take(p, t);
    if (derived == NULL)
        return NULL;
    derive(p, t, from, derived);
    if (t->kernels->all_finite(derived, t->dim))
        return derived;
    p->scratch.sum_count--;
    return not_finite;
}

/* As add_repeated(), of rows that are set: the last one that is finite counts. */
static bool set_repeated(struct ps_table_push *p, const struct ps_table *t, struct ps_distinct *d,
                         struct pushed from)
{
    const struct mr_kernels *k = t->kernels;
    const uint32_t floats = p->cursor.row_floats;
    const float *row = first_gradient(p, t, from);
    if (row == NULL)
        return false;
    bool is_finite = k->all_finite(row, floats), was_finite = k->all_finite(d->gradient, floats);
    p->cursor.skipped += !(is_finite && was_finite); /* of two bad ones, one */
    if (p->cursor.derives && is_finite && is_sum(p, t, d->gradient)) {
        memcpy(p->scratch.sums + (d->gradient - p->scratch.sums), row, floats * sizeof(*row));
        p->scratch.sum_count--; /* it was wanted only until it was copied */
    } else if (is_finite || !was_finite) {
        d->gradient = row;
    }
    return true;
}

/* The key has been met before in this push. A gradient with NaN or Inf is left out of the sum. */
static __attribute__((noinline)) bool add_repeated(struct ps_table_push *p, const struct ps_table *t,
                                                   struct ps_distinct *d, struct pushed from)
{
    const struct mr_kernels *k = t->kernels;
    const float *gradient = p->cursor.derives ? NULL : gradient_at(p, from.row);
    if (sets_rows(p, t))
        return set_repeated(p, t, d, from);
    if (!is_sum(p, t, d->gradient)) {
        if (!k->all_finite(d->gradient, t->dim)) {
            const float *first = first_gradient(p, t, from);
            if (first == NULL)
                return false;
            p->cursor.skipped++;
            d->gradient = first;
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

static inline bool add_first(struct ps_table_push *p, const struct ps_table *t, uint32_t *slot, uint64_t hash,
                             struct pushed from)
{
    const float *gradient = first_gradient(p, t, from);
    if (gradient == NULL)
        return false;
    if (p->scratch.distinct_count == p->scratch.distinct_max)
        return false;
    p->scratch.distinct[p->scratch.distinct_count] = (struct ps_distinct){hash, gradient};
    *slot = ++p->scratch.distinct_count;
    return true;
}

/* False when there is no room. */
static inline bool add_gradient(struct ps_table_push *p, const struct ps_table *t, uint64_t hash,
                                struct pushed from)
{
    uint32_t at = ps_push_slot(hash, p->scratch.slot_mask);
    for (;; at = (at + 1) & p->scratch.slot_mask) { /* most slots are free */
        uint32_t number = p->scratch.slots[at];
        if (number == 0)
            return add_first(p, t, &p->scratch.slots[at], hash, from);
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
    return !p->cursor.in_bags && p->excluded == NULL && p->cursor.class_bits == 0 && !p->cursor.derives;
}

/* Keys that have been met before in this push, in its order, of a group or fewer. */
struct repeats {
    uint32_t count;
    struct ps_distinct *distinct[PS_GROUP_KEYS];
    const float *added[PS_GROUP_KEYS]; /* the gradient */
};

/* Repeats from `first` on, one of which has NaN or Inf in its sum: nothing of them has been added. */
static __attribute__((cold, noinline)) void
repeats_add_slowly(struct ps_table_push *p, const struct ps_table *t, const struct repeats *r, uint32_t first)
{
    for (uint32_t i = first; i < r->count; i++) {
        size_t row = (size_t)(r->added[i] - p->scratch.gradients) / p->cursor.row_floats;
        bool has_room = add_repeated(p, t, r->distinct[i], (struct pushed){.row = row, .weight = 1.0f});
        assert(has_room);
        (void)has_room;
    }
}

/* Adds gradients as they are to the sums of their keys, all of which there is room for. */
static inline void repeats_add(struct ps_table_push *p, const struct ps_table *t, const struct repeats *r)
{
    float *sums[PS_GROUP_KEYS];
    const float *before[PS_GROUP_KEYS]; /* the sum so far, or the one gradient that was there */
    const size_t sums_bytes = (size_t)p->scratch.sum_max * t->dim * sizeof(float);
    if (r->count == 0)
        return;
    if (sets_rows(p, t)) {
        repeats_add_slowly(p, t, r, 0);
        return;
    }
    for (uint32_t i = 0; i < r->count; i++) {
        float *fresh = p->scratch.sums + (size_t)p->scratch.sum_count * t->dim;
        before[i] = r->distinct[i]->gradient;
        size_t offset = (size_t)((uintptr_t)before[i] - (uintptr_t)p->scratch.sums);
        bool has_sum = offset < sums_bytes;
        sums[i] = has_sum ? p->scratch.sums + offset / sizeof(float) : fresh;
        p->scratch.sum_count += !has_sum;
        r->distinct[i]->gradient = sums[i];
    }
    uint32_t done = t->kernels->add_pairs(sums, before, r->added, r->count, t->dim);
    if (__builtin_expect(done == r->count, 1))
        return;
    for (uint32_t i = r->count; i-- > done;) {
        p->scratch.sum_count -= before[i] != sums[i];
        r->distinct[i]->gradient = before[i];
    }
    repeats_add_slowly(p, t, r, done);
}

/* Numbers the keys without a branch by whether they are new, which nothing predicts: only with one by whether
 * their slots hold other keys. */
static inline void group_collect_plain(struct ps_table_push *p, const struct ps_table *t, uint32_t first,
                                       uint32_t count)
{
    const float *gradient = gradient_at(p, first);
    uint32_t *slots = p->scratch.slots, mask = p->scratch.slot_mask,
             distinct_count = p->scratch.distinct_count, row_floats = p->cursor.row_floats;
    struct ps_distinct *distinct = p->scratch.distinct;
    struct repeats r;
    uint32_t repeated = 0;
    uint64_t hashes[PS_GROUP_KEYS];
    ps_group_hash(t, hashes, p->in.keys + first, count);
    for (uint32_t i = 0; i < count; i++)
        __builtin_prefetch(&slots[ps_push_slot(hashes[i], mask)], 1, 3);
    for (uint32_t i = 0; i < count; i++, gradient += row_floats) {
        uint32_t at = ps_push_slot(hashes[i], mask), number, is_new;
        /* If it is new, this is its place, and it is compared with itself. */
        distinct[distinct_count] = (struct ps_distinct){hashes[i], gradient};
        for (;; at = (at + 1) & mask) {
            number = slots[at];
            is_new = number == 0;
            number |= (0 - is_new) & (distinct_count + 1);
            if (__builtin_expect(distinct[number - 1].hash == hashes[i], 1))
                break;
        }
        slots[at] = number;
        r.distinct[repeated] = &distinct[number - 1];
        r.added[repeated] = gradient;
        repeated += 1 - is_new;
        distinct_count += is_new;
    }
    p->scratch.distinct_count = distinct_count;
    r.count = repeated;
    repeats_add(p, t, &r);
}

/* Keys [first, first + count): false when there is no room. */
static inline bool group_collect(struct ps_table_push *p, const struct ps_table *t, uint32_t first,
                                 uint32_t count)
{
    uint64_t class_mask = ((uint64_t)1 << p->cursor.class_bits) - 1;
    uint64_t hashes[PS_GROUP_KEYS];
    ps_group_hash(t, hashes, p->in.keys + first, count);
    for (uint32_t i = 0; i < count; i++)
        __builtin_prefetch(&p->scratch.slots[ps_push_slot(hashes[i], p->scratch.slot_mask)], 1, 3);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t key = first + i;
        struct pushed from = {.row = key};
        if (p->cursor.in_bags) {
            if (key >= p->cursor.bag_end)
                bag_advance(p, t, key);
            from.row = p->cursor.bag;
        }
        if ((hashes[i] & class_mask) != p->cursor.class_value || leaves_out(p, hashes[i]))
            continue;
        from.weight = p->in.weights != NULL ? p->in.weights[key] : 1.0f;
        if (!add_gradient(p, t, hashes[i], from))
            return false;
    }
    return true;
}

/* Brings keys [first, end) together with those before; the table is not touched. False when there is no room:
 * then the keys are to be halved. */
static bool keys_collect(struct ps_table_push *p, const struct ps_table *t, uint32_t first, uint32_t end)
{
    bool plain = is_plain(p) && p->scratch.distinct_max >= p->in.key_count;
    for (uint32_t count; first < end; first += count) {
        count = ps_group_size(end, first);
        if (p->cursor.expands)
            to_f32(p, t, first, count, p->scratch.expanded + (size_t)first * t->dim);
        if (plain)
            group_collect_plain(p, t, first, count);
        else if (!group_collect(p, t, first, count))
            return false;
    }
    return true;
}

/* ---- the rows of distinct keys, and the optimizer over them ---- */

/* What is in flight: see struct ps_group. */
struct apply {
    struct ps_group groups[PS_GROUPS];
    struct ps_row_group rows[PS_GROUPS];
    const struct ps_distinct *distinct;
    uint32_t count;
    uint32_t row_lines, turn_rows;
    uint32_t found, changed, refused; /* rows; at a limit */
};

/* Whether the key gets a row: as the log says, or admission. */
static bool push_admits(const struct ps_table_push *p, const struct ps_table *t, uint64_t hash)
{
    if (p->replay == NULL)
        return p->sets || ps_table_admits_push(t, hash);
    const uint64_t key = ps_index_key(&t->index, hash), *keys = p->replay->left_out;
    uint32_t from = 0, end = p->replay->left_out_count;
    while (from < end) {
        const uint32_t middle = from + (end - from) / 2;
        if (keys[middle] == key)
            return false;
        if (keys[middle] < key)
            from = middle + 1;
        else
            end = middle;
    }
    return true;
}

static __attribute__((cold, noinline)) struct ps_place place_of_new_row(const struct ps_table_push *p,
                                                                        struct ps_table *t, struct apply *a,
                                                                        const struct ps_distinct *d)
{
    uint64_t rewrites = t->index.rewrites;
    if (!push_admits(p, t, d->hash))
        return (struct ps_place){.bucket = NULL};
    if (ps_table_row_create(t, ps_index_key(&t->index, d->hash), d->hash) == NULL) {
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
        g->hashes[i] = a->distinct[first + i].hash;
    ps_group_seek(t, g, count);
}

/* Takes note that row n of the group is going to change. */
static inline void row_note(struct ps_table *t, struct ps_row_group *out, uint32_t n, struct ps_place place,
                            uint64_t hash, void *row, bool is_new)
{
    if (__builtin_expect(t->cut_running, 0))
        out->taken_by_cut |= (uint32_t)ps_table_cut_take(t, place) << n;
    ps_table_mark(t, place, hash);
    if (!is_new && ps_table_stamps(t)) /* a new row was stamped when it was made */
        ps_row_used(&t->use, row);
}

/* Makes it row n, which the caller counts. */
static inline void row_put(struct ps_row_group *out, uint32_t n, void *row, const struct ps_distinct *d)
{
    out->values[n] = row;
    out->hashes[n] = d->hash;
    out->gradients[n] = d->gradient;
}

static inline void row_take(struct ps_table *t, struct ps_row_group *out, struct ps_place place,
                            const struct ps_distinct *d, bool is_new)
{
    void *row = ps_table_row(t, place);
    ps_row_prefetch(t, row, PS_FIRST_LINE);
    row_note(t, out, out->count, place, d->hash, row, is_new);
    row_put(out, out->count++, row, d);
}

static inline bool row_take_new(const struct ps_table_push *p, struct ps_table *t, struct apply *a,
                                struct ps_row_group *out, const struct ps_distinct *d)
{
    struct ps_place place = place_of_new_row(p, t, a, d);
    if (place.bucket != NULL)
        row_take(t, out, place, d, true);
    return place.bucket != NULL;
}

/* Finds a group's rows; of each, only the first line is asked for yet. */
static inline void group_find(struct ps_table *t, struct apply *a, uint32_t group)
{
    uint32_t first = group * PS_GROUP_KEYS, count = ps_group_size(a->count, first), n = 0;
    struct ps_group *g = &a->groups[group % PS_GROUPS];
    struct ps_row_group *out = &a->rows[group % PS_GROUPS];
    bool is_noted = t->cut_running || t->keeps_marks || t->notes || ps_table_stamps(t);
    out->taken_by_cut = 0;
    if (ps_table_stamps(t))
        ps_row_use_advance(&t->use, count);
    ps_group_find(t, g, count, PS_FIRST_LINE);
    /* Without a branch by what is late: the next row takes its place. */
    for (uint32_t i = 0; i < count; i++) {
        uint32_t is_found = ~g->late >> i & 1;
        row_put(out, n, g->rows[i], &a->distinct[first + i]);
        if (is_noted && is_found)
            row_note(t, out, n, ps_group_place(g, i), g->hashes[i], g->rows[i], false);
        n += is_found;
    }
    out->count = n;
}

static inline void group_find_late(struct ps_table_push *p, struct ps_table *t, struct apply *a,
                                   uint32_t group)
{
    const struct ps_group *g = &a->groups[group % PS_GROUPS];
    struct ps_row_group *out = &a->rows[group % PS_GROUPS];
    for (uint32_t late = g->late; late != 0; late &= late - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(late);
        const struct ps_distinct *d = &a->distinct[group * PS_GROUP_KEYS + i];
        struct ps_place place = ps_group_find_late(t, g, i);
        if (place.bucket != NULL)
            row_take(t, out, place, d, false);
        else if (!(p->insert && row_take_new(p, t, a, out, d)) && p->left_out != NULL)
            p->left_out[p->left_out_count++] = ps_index_key(&t->index, d->hash);
    }
}

/* How many were changed. */
static inline uint32_t rows_apply(const struct ps_table_push *p, struct ps_table *t,
                                  const struct mr_rule_push *push, const struct ps_row_turn *r)
{
    if (__builtin_expect(p->sets, 0))
        return ps_table_set_rows(t, r, p->has_state, push->step);
    if (t->half != NULL)
        return ps_table_half_apply(t, push, r);
    if (__builtin_expect(t->dense != NULL, 0))
        return ps_table_dense_apply(t, push, r);
    const uint32_t changed =
        mr_rule_apply(&t->optimizer, push, r->values, r->states, r->gradients, r->count, t->dim);
    if (__builtin_expect(changed == ((uint32_t)1 << r->count) - 1, 1)) /* a popcount is a call */
        return r->count;
    return (uint32_t)__builtin_popcount(changed);
}

/* Rows [first, first + most) of the group, as far as it has so many. */
static inline struct ps_row_turn turn_of(const struct ps_row_group *g, uint32_t first, uint32_t most)
{
    const uint32_t left = g->count > first ? g->count - first : 0;
    return (struct ps_row_turn){.count = left < most ? left : most,
                                .values = g->values + first,
                                .states = g->states + first,
                                .gradients = g->gradients + first,
                                .hashes = g->hashes + first};
}

static inline void states_find(const struct ps_table *t, struct ps_row_group *g)
{
    for (uint32_t i = 0; i < g->count; i++)
        g->states[i] = ps_table_row_state(t, g->values[i]);
}

/* The rows that came, by turns with asking for the rest of those that are next. */
static inline void group_use(const struct ps_table_push *p, struct ps_table *t,
                             const struct mr_rule_push *push, struct apply *a, uint32_t step)
{
    struct ps_row_group *next = &a->rows[(step - 2) % PS_GROUPS], *g = &a->rows[(step - 3) % PS_GROUPS];
    if (__builtin_expect(g->taken_by_cut != 0, 0))
        ps_table_cut_group_before_change(t, g);
    states_find(t, g);
    for (uint32_t first = 0; first < PS_GROUP_KEYS; first += a->turn_rows) {
        ps_rows_ask((const void *const *)next->values, next->count, first, a->turn_rows, a->row_lines);
        const struct ps_row_turn rows = turn_of(g, first, a->turn_rows);
        if (rows.count > 0)
            a->changed += rows_apply(p, t, push, &rows);
    }
    a->found += g->count;
    g->count = g->taken_by_cut = 0;
}

/* Distinct keys [first, first + count). */
static void keys_apply(struct ps_table_push *p, struct ps_table *t, uint32_t first, uint32_t count)
{
    struct apply a = {.distinct = p->scratch.distinct + first, .count = count};
    const struct mr_rule_push push = {.learning_rate = p->cursor.learning_rate, .step = p->step};
    if (t->dense != NULL && p->step > 0 && !p->sets)
        mr_step_rates_note(&t->dense->rates, &t->optimizer.schedule, p->step, push.learning_rate);
    const uint32_t group_count = ps_group_count(count);
    a.row_lines = ps_row_prefetch_lines(t, t->layout.bytes);
    a.turn_rows = PS_TURN_LINES / a.row_lines;
    for (uint32_t step = 0; step < group_count + 3; step++) {
        if (step < group_count)
            group_seek(t, &a, step);
        if (step >= 2 && step - 2 < group_count)
            group_find_late(p, t, &a, step - 2);
        group_use(p, t, &push, &a, step);
        if (step >= 1 && step - 1 < group_count)
            group_find(t, &a, step - 1);
    }
    p->counts.applied += a.changed;
    p->counts.not_finite += a.found - a.changed;
    p->counts.refused += a.refused;
    p->counts.without_row += count - a.found - a.refused;
    t->counters.updates += a.changed;
    t->counters.gradients_skipped += a.found - a.changed;
    t->counters.gradients_without_row += count - a.found;
}

/* ---- steps ---- */

static uint64_t collect_cost_bytes(const struct ps_table *t)
{
    return (PS_KEY_COST_BYTES + t->dim * sizeof(float)) / 2;
}

static uint64_t apply_cost_bytes(const struct ps_table *t)
{
    return PS_KEY_COST_BYTES + t->dim * sizeof(float) + t->layout.bytes + ps_table_missed_cost_bytes(t);
}

uint64_t ps_table_push_cost_bytes(const struct ps_table *t, uint32_t key_count)
{
    return key_count * (collect_cost_bytes(t) + apply_cost_bytes(t));
}

static void stage_begin(struct ps_table_push *p, enum push_stage stage)
{
    p->cursor.stage = stage;
    p->cursor.position = p->cursor.bag = p->cursor.bag_end = 0;
    p->cursor.divisor = 1.0f;
}

static inline void see(struct ps_table *t, uint64_t key, uint64_t hash)
{
    struct ps_place place = ps_index_find(&t->index, hash);
    if (place.bucket == NULL) {
        if (ps_table_admits_lookup(t, hash))
            (void)ps_table_row_create(t, key, hash);
    } else if (ps_table_stamps(t)) { /* or it might be evicted for one of the rows that are made */
        ps_table_mark_used(t, place, hash);
        ps_row_used(&t->use, (uint8_t *)ps_table_row(t, place));
    }
}

/* Key by key in the order of the push, as the lookup that was lost would have: it counts repeated keys, and
 * by it the row may be made with any of them. Rare, so without a pipeline. */
static void see_step(struct ps_table_push *p, struct ps_table *t, uint64_t *budget_bytes)
{
    uint32_t end = p->cursor.position +
                   ps_budget_take(budget_bytes, PS_KEY_COST_BYTES, p->in.key_count - p->cursor.position);
    while (p->cursor.position < end) {
        uint32_t count = ps_group_size(end, p->cursor.position);
        if (ps_table_stamps(t))
            ps_row_use_advance(&t->use, count);
        for (; count > 0; count--, p->cursor.position++) {
            uint64_t key = p->in.keys[p->cursor.position], hash = ps_index_hash(&t->index, key);
            if (!leaves_out(p, hash))
                see(t, key, hash);
        }
    }
    if (p->cursor.position == p->in.key_count)
        stage_begin(p, PUSH_CLEAR);
}

/* Of filling with zeros, per slot: it is many times faster than what costs are counted by. */
#define CLEAR_COST_BYTES 1u

static void clear_step(struct ps_table_push *p, uint64_t *budget_bytes)
{
    uint32_t count =
        ps_budget_take(budget_bytes, CLEAR_COST_BYTES, p->scratch.slot_mask + 1 - p->cursor.position);
    memset(p->scratch.slots + p->cursor.position, 0, count * sizeof(*p->scratch.slots));
    p->cursor.position += count;
    if (p->cursor.position == p->scratch.slot_mask + 1) {
        p->scratch.distinct_count = p->scratch.sum_count = p->cursor.skipped = 0;
        stage_begin(p, PUSH_COLLECT);
    }
}

/* Brings keys together; the table is not touched. Without room, half the class first. */
static void collect_step(struct ps_table_push *p, const struct ps_table *t, uint64_t *budget_bytes)
{
    uint32_t end = p->cursor.position +
                   ps_budget_take(budget_bytes, collect_cost_bytes(t), p->in.key_count - p->cursor.position);
    if (!keys_collect(p, t, p->cursor.position, end)) {
        assert(p->cursor.class_bits < SPLIT_BITS_MAX);
        p->cursor.class_bits++;
        stage_begin(p, PUSH_CLEAR);
        return;
    }
    p->cursor.position = end;
    if (p->cursor.position == p->in.key_count)
        stage_begin(p, PUSH_APPLY);
}

/* ---- a push whose keys were numbered early ---- */

/* Takes over what was done early, if it fits this push; it did not depend on the table. False: there is
 * none, or no memory for the sums. */
static bool early_take(struct ps_table_push *p, const struct ps_table *t)
{
    const struct ps_early_keys *e = p->early;
    if (e == NULL || !is_plain(p) || p->cursor.expands || !ps_early_keys_are_of(e, t) ||
        e->keys != p->in.keys || e->key_count != p->in.key_count || e->gradients != p->gradients)
        return false;
    /* Each sum is of a key that is repeated; one more, as add_repeated() takes it before it knows. */
    size_t row_bytes = t->dim * sizeof(float), wanted = (e->key_count / 2 + 1) * row_bytes, bytes;
    uint8_t *sums =
        ps_arena_scratch(t->arena, p->at_once ? PS_SCRATCH_ONCE : PS_SCRATCH_STEPS, wanted, &bytes);
    if (bytes < wanted)
        return false;
    p->scratch = e->scratch;
    p->scratch.gradients = p->gradients;
    p->scratch.sums = (float *)(void *)sums;
    p->scratch.sum_max = e->key_count / 2 + 1;
    return true;
}

static void number_step(struct ps_table_push *p, const struct ps_table *t, uint64_t *budget_bytes)
{
    struct ps_early_keys *e = p->early;
    uint32_t left = e->key_count - e->numbered;
    if (ps_early_keys_step(e, t, e->key_count, ps_budget_take(budget_bytes, collect_cost_bytes(t), left))) {
        p->scratch.distinct_count = e->scratch.distinct_count;
        stage_begin(p, PUSH_SUM);
    }
}

/* Repeats whose gradients are asked for before they are summed. */
#define REPEATS_AHEAD PS_GROUP_KEYS

static void sum_step(struct ps_table_push *p, const struct ps_table *t, uint64_t *budget_bytes)
{
    const struct ps_early_keys *e = p->early;
    uint32_t end = p->cursor.position +
                   ps_budget_take(budget_bytes, apply_cost_bytes(t), e->repeat_count - p->cursor.position);
    while (p->cursor.position < end) {
        const struct ps_repeat *from = &e->repeats[p->cursor.position];
        struct repeats r = {.count = ps_group_size(end, p->cursor.position)};
        for (uint32_t i = 0; i < r.count; i++) {
            r.distinct[i] = &p->scratch.distinct[from[i].distinct];
            r.added[i] = gradient_at(p, from[i].row);
            if (p->cursor.position + i + REPEATS_AHEAD < e->repeat_count)
                __builtin_prefetch(p->scratch.distinct[from[i + REPEATS_AHEAD].distinct].gradient, 0, 3);
        }
        repeats_add(p, t, &r);
        p->cursor.position += r.count;
    }
    if (p->cursor.position == e->repeat_count)
        stage_begin(p, PUSH_APPLY);
}

/* The class is through: to the other half of what it is half of, or of what that is half of, ... */
static void class_advance(struct ps_table_push *p)
{
    while (p->cursor.class_bits > 0) {
        uint64_t top = (uint64_t)1 << (p->cursor.class_bits - 1);
        p->cursor.class_value ^= top;
        if ((p->cursor.class_value & top) != 0) {
            stage_begin(p, PUSH_CLEAR);
            return;
        }
        p->cursor.class_bits--;
    }
    stage_begin(p, PUSH_DONE);
}

static void apply_step(struct ps_table_push *p, struct ps_table *t, uint64_t *budget_bytes)
{
    uint32_t count = ps_budget_take_rows(t, budget_bytes, apply_cost_bytes(t),
                                         p->scratch.distinct_count - p->cursor.position);
    keys_apply(p, t, p->cursor.position, count);
    p->cursor.position += count;
    if (p->cursor.position == p->scratch.distinct_count) {
        t->counters.gradients_skipped += p->cursor.skipped;
        p->counts.not_finite += p->cursor.skipped;
        class_advance(p);
    }
}

bool ps_table_push_step(struct ps_table *t, struct ps_table_push *p, uint64_t *budget_bytes)
{
    if (p->cursor.stage == PUSH_NEW) {
        if (p->in.key_count == 0)
            return true;
        if (p->left_out != NULL)
            ps_row_use_hold(&t->use);
        p->cursor.learning_rate = mr_rule_learning_rate(&t->optimizer, p->step, p->learning_rate);
        bool averages = p->in.offsets != NULL && mr_pooling_averages(t->feature.pooling);
        p->cursor.row_floats = t->dim + (p->has_state ? ps_table_state_floats(t) : 0);
        p->cursor.in_bags = p->in.offsets != NULL && (!p->in.is_single || averages);
        p->cursor.expands =
            is_narrow(p) && p->in.weights == NULL && !p->cursor.in_bags && p->excluded == NULL;
        p->cursor.derives = (is_narrow(p) && !p->cursor.expands) || p->in.weights != NULL || averages;
        assert(!p->sets || (!p->cursor.derives && !p->cursor.in_bags));
        bool sees = p->insert && p->sees && !p->sets && t->feature.admission == MR_ADMIT_OBSERVATIONS;
        if (!sees && early_take(p, t)) {
            stage_begin(p, PUSH_NUMBER);
        } else {
            push_layout(p, t);
            stage_begin(p, sees ? PUSH_SEE : PUSH_CLEAR);
        }
    }
    t->replays = p->replay != NULL;
    while (*budget_bytes > 0 && p->cursor.stage != PUSH_DONE)
        if (p->cursor.stage == PUSH_SEE)
            see_step(p, t, budget_bytes);
        else if (p->cursor.stage == PUSH_CLEAR)
            clear_step(p, budget_bytes);
        else if (p->cursor.stage == PUSH_COLLECT)
            collect_step(p, t, budget_bytes);
        else if (p->cursor.stage == PUSH_NUMBER)
            number_step(p, t, budget_bytes);
        else if (p->cursor.stage == PUSH_SUM)
            sum_step(p, t, budget_bytes);
        else
            apply_step(p, t, budget_bytes);
    t->replays = false;
    if (p->cursor.stage != PUSH_DONE)
        return false;
    t->counters.keys_pushed += p->in.key_count;
    if (p->left_out != NULL)
        ps_row_use_release(&t->use);
    return true;
}
