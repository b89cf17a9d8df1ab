/* Numbers the keys of a push while its gradients still arrive. */
#include "ps/table/table_internal.h"

#include <string.h>

#define SLOTS_CLEARED_PER_KEY 32u /* in the time that a key takes */

bool ps_early_keys_begin(struct ps_early_keys *e, const struct ps_table *t, const uint64_t *keys,
                         uint32_t key_count, const float *gradients)
{
    uint32_t slots = ps_push_slots(key_count);
    size_t distinct_bytes = key_count * sizeof(struct ps_distinct),
           repeats_bytes = key_count * sizeof(struct ps_repeat),
           wanted = distinct_bytes + repeats_bytes + slots * sizeof(uint32_t), bytes;
    uint8_t *scratch = ps_arena_scratch(t->arena, PS_SCRATCH_EARLY, wanted, &bytes);
    if (bytes < wanted)
        return false;
    *e = (struct ps_early_keys){.keys = keys,
                                .gradients = gradients,
                                .key_count = key_count,
                                .dim = t->dim,
                                .hasher = t->index.hasher,
                                .repeats = (struct ps_repeat *)(void *)(scratch + distinct_bytes)};
    e->scratch.distinct = (struct ps_distinct *)(void *)scratch;
    e->scratch.distinct_max = key_count;
    e->scratch.slots = (uint32_t *)(void *)(scratch + distinct_bytes + repeats_bytes);
    e->scratch.slot_mask = slots - 1;
    return true;
}

bool ps_early_keys_are_of(const struct ps_early_keys *e, const struct ps_table *t)
{
    return memcmp(&e->hasher, &t->index.hasher, sizeof(e->hasher)) == 0 && e->dim == t->dim;
}

static inline void number_key(struct ps_early_keys *e, uint64_t hash, uint32_t row)
{
    struct ps_distinct *distinct = e->scratch.distinct;
    uint32_t at = ps_push_slot(hash, e->scratch.slot_mask), number;
    while ((number = e->scratch.slots[at]) != 0) {
        if (distinct[number - 1].hash == hash) {
            e->repeats[e->repeat_count++] = (struct ps_repeat){number - 1, row};
            return;
        }
        at = (at + 1) & e->scratch.slot_mask;
    }
    distinct[e->scratch.distinct_count] = (struct ps_distinct){hash, e->gradients + (size_t)row * e->dim};
    e->scratch.slots[at] = ++e->scratch.distinct_count;
}

static void number_keys(struct ps_early_keys *e, const struct ps_table *t, uint32_t end)
{
    uint64_t hashes[PS_GROUP_KEYS];
    for (uint32_t count; e->numbered < end; e->numbered += count) {
        count = ps_group_size(end, e->numbered);
        ps_group_hash(t, hashes, e->keys + e->numbered, count);
        for (uint32_t i = 0; i < count; i++)
            __builtin_prefetch(&e->scratch.slots[ps_push_slot(hashes[i], e->scratch.slot_mask)], 1, 3);
        for (uint32_t i = 0; i < count; i++)
            number_key(e, hashes[i], e->numbered + i);
    }
}

bool ps_early_keys_step(struct ps_early_keys *e, const struct ps_table *t, uint32_t arrived, uint32_t count)
{
    uint32_t slots = e->scratch.slot_mask + 1, slots_left = slots - e->slots_cleared;
    if (slots_left > 0) {
        uint64_t most = (uint64_t)count * SLOTS_CLEARED_PER_KEY;
        uint32_t now = most < slots_left ? (uint32_t)most : slots_left;
        memset(e->scratch.slots + e->slots_cleared, 0, now * sizeof(*e->scratch.slots));
        e->slots_cleared += now;
        if (now < slots_left)
            return false;
        count -= now / SLOTS_CLEARED_PER_KEY;
    }
    if (arrived < e->key_count)
        arrived -= arrived % PS_GROUP_KEYS; /* only the last group may be short */
    if (e->numbered < arrived)
        number_keys(e, t, arrived - e->numbered < count ? arrived : e->numbered + count);
    return e->numbered == e->key_count;
}
