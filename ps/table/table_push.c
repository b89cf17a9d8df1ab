/* Pushes, stage by stage: bring repeated keys together, then find the distinct keys' rows and run the
 * optimizer over them.
 *
 * The working memory is the arena's scratch, which grows with the largest push. A push can not fail: if the
 * heap has no more for it, the keys are split by a bit of their hash and each half is done by itself, as
 * often as needed.
 */
#include <assert.h>
#include <string.h>
#include "ps/table/table_push_internal.h"

#define SLOTS_MIN 16u
#define SLOTS_PER_KEY                                                                                        \
    4u /* at least, and less than twice that: a probe that meets another key costs a mispredicted branch */

/* A push goes through its keys once, or, class by class, several times: those whose hash has class_value in
 * the lowest class_bits bits are brought together, then applied. */
enum push_stage { PUSH_NEW, PUSH_SEE, PUSH_CLEAR, PUSH_COLLECT, PUSH_APPLY, PUSH_DONE };

static uint32_t slots_for(size_t keys)
{
    uint32_t slots = SLOTS_MIN;
    while (slots < SLOTS_PER_KEY * keys)
        slots *= 2;
    return slots;
}

/* Lay the arrays out in scratch memory. A sum is needed per key that is there twice, or per key when
 * gradients are derived from what was pushed. */
static void push_layout(struct ps_table_push *p, const struct ps_table *t)
{
    size_t row_bytes = t->dim * sizeof(float);
    size_t keys_per_sum = p->cursor.derives ? 1 : 2;
    /* a key's share: its entry, its slots, its part of a sum; and for rounding one more sum and the least
     * slots */
    size_t key_bytes =
        sizeof(struct ps_distinct) + 2 * SLOTS_PER_KEY * sizeof(uint32_t) + row_bytes / keys_per_sum;
    size_t fixed_bytes = row_bytes + SLOTS_MIN * sizeof(uint32_t);
    size_t wanted = p->in.key_count * key_bytes + fixed_bytes, bytes;
    uint8_t *scratch =
        ps_arena_scratch(t->arena, p->at_once ? PS_SCRATCH_ONCE : PS_SCRATCH_STEPS, wanted, &bytes);
    size_t keys = bytes >= wanted ? p->in.key_count : (bytes - fixed_bytes) / key_bytes;
    p->scratch.distinct_max = (uint32_t)keys;
    p->scratch.sum_max = (uint32_t)(keys / keys_per_sum + 1);
    p->scratch.slot_mask = slots_for(keys) - 1;
    p->scratch.distinct = (struct ps_distinct *)(void *)scratch;
    p->scratch.sums = (float *)(void *)(p->scratch.distinct + keys);
    p->scratch.slots = (uint32_t *)(void *)(p->scratch.sums + (size_t)p->scratch.sum_max * t->dim);
}

/* ---- steps ---- */

static uint64_t collect_cost_bytes(const struct ps_table *t)
{
    return (PS_KEY_COST_BYTES + t->dim * sizeof(float)) / 2;
}

static uint64_t apply_cost_bytes(const struct ps_table *t)
{
    return PS_KEY_COST_BYTES + t->dim * sizeof(float) + t->layout.bytes;
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
    } else if (ps_table_stamps(t)) { /* or it might go for one of the rows that are made */
        ps_table_mark(t, place);
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
            uint64_t key = p->in.keys[p->cursor.position], hash = ps_key_hash(key, t->index.seed);
            if (!ps_push_leaves_out(p, hash))
                see(t, key, hash);
        }
    }
    if (p->cursor.position == p->in.key_count)
        stage_begin(p, PUSH_CLEAR);
}

/* Of filling with zeros, per slot: it goes at many times the speed of what costs are counted by. */
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
    if (!ps_table_push_collect(p, t, p->cursor.position, end)) {
        assert(p->cursor.class_bits < PS_PUSH_SPLIT_BITS_MAX);
        p->cursor.class_bits++;
        stage_begin(p, PUSH_CLEAR);
        return;
    }
    p->cursor.position = end;
    if (p->cursor.position == p->in.key_count)
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
    uint32_t count =
        ps_budget_take(budget_bytes, apply_cost_bytes(t), p->scratch.distinct_count - p->cursor.position);
    ps_table_push_apply(p, t, p->cursor.position, count);
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
        p->cursor.learning_rate = mr_rule_learning_rate(&t->optimizer, p->step, p->learning_rate);
        p->cursor.derives = ps_push_is_narrow(p) || p->in.weights != NULL ||
                            (p->in.offsets != NULL && mr_pooling_averages(t->feature.pooling));
        push_layout(p, t);
        stage_begin(p, p->insert && p->sees && t->feature.admission == MR_ADMIT_SIGHTINGS ? PUSH_SEE
                                                                                          : PUSH_CLEAR);
    }
    while (*budget_bytes > 0 && p->cursor.stage != PUSH_DONE) {
        if (p->cursor.stage == PUSH_SEE)
            see_step(p, t, budget_bytes);
        else if (p->cursor.stage == PUSH_CLEAR)
            clear_step(p, budget_bytes);
        else if (p->cursor.stage == PUSH_COLLECT)
            collect_step(p, t, budget_bytes);
        else
            apply_step(p, t, budget_bytes);
    }
    if (p->cursor.stage == PUSH_DONE)
        t->counters.keys_pushed += p->in.key_count;
    return p->cursor.stage == PUSH_DONE;
}
