/* Rows as they are stored, whatever the optimizer: set with their state, read with it, and loaded from
 * checkpoints. */
#include <string.h>
#include "ps/table/table_internal.h"

uint32_t ps_table_state_floats(const struct ps_table *t)
{
    return (t->layout.bytes - t->layout.state_offset) / (uint32_t)sizeof(float);
}

/* ---- set ---- */

static void set_row(struct ps_table *t, float *row, float *state, const float *from, bool has_state)
{
    if (t->half != NULL)
        ps_table_half_set(t, row, from);
    else
        memcpy(row, from, t->dim * sizeof(*from));
    if (has_state)
        memcpy(state, from + t->dim, ps_table_state_floats(t) * sizeof(*from));
    else
        mr_rule_state_init(&t->optimizer, ps_table_row_values(t, row), state, t->dim);
}

uint32_t ps_table_set_rows(struct ps_table *t, const struct ps_row_turn *r, bool has_state, uint64_t step)
{
    const uint32_t floats = t->dim + (has_state ? ps_table_state_floats(t) : 0);
    uint32_t set = 0;
    for (uint32_t i = 0; i < r->count; i++) {
        if (!t->kernels->all_finite(r->gradients[i], floats))
            continue;
        set_row(t, r->values[i], r->states[i], r->gradients[i], has_state);
        if (t->dense != NULL && !has_state && step > 0)
            mr_rule_went_through(&t->optimizer, step - 1, r->states[i], t->dim);
        set++;
    }
    return set;
}

/* ---- read ---- */

static size_t record_floats(const struct ps_table *t, bool has_state)
{
    return t->dim + (has_state ? ps_table_state_floats(t) : 0) + 1;
}

static uint64_t read_cost_bytes(const struct ps_table *t)
{
    return PS_KEY_COST_BYTES + t->layout.bytes + record_floats(t, true) * sizeof(float) +
           ps_table_missed_cost_bytes(t);
}

uint64_t ps_table_read_cost_bytes(const struct ps_table *t, uint32_t key_count)
{
    return key_count * read_cost_bytes(t);
}

/* row NULL: what a new one would be. */
static void read_row(struct ps_table *t, const struct ps_table_read *r, void *row, uint64_t key, float *out)
{
    const bool is_stored = row != NULL;
    const uint32_t state_floats = r->has_state ? ps_table_state_floats(t) : 0;
    if (!is_stored) {
        row = t->initial_rows;
        ps_table_initial_values(t, key, row);
        t->counters.keys_missing++;
    }
    if (t->dense != NULL) {
        const void *const stored = row;
        memcpy(out, ps_table_rows_before(t, r->step, &stored, 1)[0], (t->dim + state_floats) * sizeof(*out));
        out[t->dim + state_floats] = is_stored ? 1.0f : 0.0f;
        return;
    }
    memcpy(out, ps_table_row_values(t, row), t->dim * sizeof(*out));
    if (state_floats > 0 && is_stored)
        memcpy(out + t->dim, ps_table_row_state(t, row), state_floats * sizeof(*out));
    else if (state_floats > 0)
        mr_rule_state_init(&t->optimizer, out, out + t->dim, t->dim);
    out[t->dim + state_floats] = is_stored ? 1.0f : 0.0f;
}

static void read_group(struct ps_table *t, const struct ps_table_read *r, uint32_t count)
{
    const uint64_t *keys = r->keys + r->keys_done;
    const size_t floats = record_floats(t, r->has_state);
    float *out = r->out + r->keys_done * floats;
    struct ps_group g;
    ps_group_hash(t, g.hashes, keys, count);
    ps_group_seek(t, &g, count);
    ps_group_find(t, &g, count, t->layout.bytes);
    for (uint32_t late = g.late; late != 0; late &= late - 1) {
        const uint32_t i = (uint32_t)__builtin_ctz(late);
        const struct ps_place place = ps_group_find_late(t, &g, i);
        g.rows[i] = place.bucket == NULL ? NULL : ps_table_row(t, place);
    }
    for (uint32_t i = 0; i < count; i++)
        read_row(t, r, g.rows[i], keys[i], out + i * floats);
    t->counters.keys_looked_up += count;
}

bool ps_table_read_step(struct ps_table *t, struct ps_table_read *r, uint64_t *budget_bytes)
{
    do {
        const uint32_t left = r->key_count - r->keys_done,
                       end = r->keys_done + ps_budget_take_rows(t, budget_bytes, read_cost_bytes(t), left);
        while (r->keys_done < end) {
            const uint32_t count = ps_group_size(end, r->keys_done);
            read_group(t, r, count);
            r->keys_done += count;
        }
    } while (r->keys_done < r->key_count && ps_budget_goes_on(t, *budget_bytes, read_cost_bytes(t)));
    return r->keys_done == r->key_count;
}

/* ---- load: rows of checkpoints, many at a time ---- */

/* Of the table's own limit: once more is in use nothing is made larger ahead. No row shall be evicted for
 * what is reserved beyond need. */
#define RESERVE_SHARE 4u

static uint32_t common_divisor(uint32_t a, uint32_t b)
{
    while (b != 0) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* In which rows are loaded. */
struct load_order {
    const struct ps_stored_row *rows;
    uint32_t count, stride, next, fetched;
};

/* Steps of this many rows, round and round, come by each of `count` rows once, and by neighbours far
 * apart. */
static uint32_t load_stride(uint32_t count)
{
    uint32_t stride = (uint32_t)((uint64_t)count * 618 / 1000) + 1;
    while (common_divisor(stride, count) != 1)
        stride++;
    return stride;
}

/* The partition of a key, whose neighbour below is whole already, comes to about as many rows as that. One
 * that has rows and no such neighbour grows by a quarter at least: more may come with the next rows. */
static void load_reserve(struct ps_table *t, uint32_t partition, uint32_t new_rows)
{
    const uint32_t *held = t->index.partition_rows;
    if (t->memory_max != 0 && ps_table_memory_bytes(t) > t->memory_max / RESERVE_SHARE)
        return;
    uint32_t before = partition == 0 ? 0 : held[partition - 1];
    uint32_t wanted = held[partition] + new_rows, grown = held[partition] + held[partition] / 4;
    wanted = wanted < before ? before : wanted;
    ps_index_reserve(&t->index, partition, wanted < grown ? grown : wanted);
}

/* For neighbours of one partition at a time, as they come from a cut. */
static void load_reserve_all(struct ps_table *t, const struct ps_stored_row *rows, uint32_t count)
{
    for (uint32_t i = 0, first = 0, partition = 0; i < count; i++) {
        uint32_t own = mr_partition_of(ps_index_hash(&t->index, rows[i].key));
        if (i > first && own != partition) {
            load_reserve(t, partition, i - first);
            first = i;
        }
        partition = own;
        if (i + 1 == count)
            load_reserve(t, partition, count - first);
    }
}

/* The next rows, on their way to the cache while those before are loaded. Returns how many. */
static uint32_t load_fetch(const struct ps_table *t, struct load_order *order,
                           const struct ps_stored_row **taken)
{
    struct ps_group group;
    uint32_t n =
        order->count - order->fetched < PS_GROUP_KEYS ? order->count - order->fetched : PS_GROUP_KEYS;
    for (uint32_t i = 0; i < n; i++) {
        const struct ps_stored_row *row = &order->rows[order->next];
        for (uint32_t at = 0; at < t->layout.bytes; at += 64)
            __builtin_prefetch(row->bytes + at, 0, 3);
        group.hashes[i] = ps_index_hash(&t->index, row->key);
        taken[i] = row;
        order->next = (uint32_t)(((uint64_t)order->next + order->stride) % order->count);
    }
    ps_group_seek(t, &group, n);
    order->fetched += n;
    return n;
}

static enum mr_status load_all(struct ps_table *t, const struct ps_stored_row *rows, uint32_t count)
{
    struct load_order order = {.rows = rows, .count = count, .stride = count == 0 ? 0 : load_stride(count)};
    const struct ps_stored_row *taken[2][PS_GROUP_KEYS];
    uint32_t n = load_fetch(t, &order, taken[0]);
    for (uint32_t turn = 0; n > 0; turn++) {
        uint32_t next = load_fetch(t, &order, taken[(turn + 1) % 2]);
        for (uint32_t i = 0; i < n; i++) {
            const struct ps_stored_row *row = taken[turn % 2][i];
            enum mr_status status = ps_table_load(t, row->key, row->bytes);
            if (status != MR_OK)
                return status;
        }
        n = next;
    }
    return MR_OK;
}

/* Without room made ahead the index takes no more than it had when the table filled the same memory: then
 * partitions grew, early and late, as long as there was some, and were filled to the last place when there
 * was none. What the node keeps of its limit is for here. */
enum mr_status ps_table_load_rows(struct ps_table *t, const struct ps_stored_row *rows, uint32_t count,
                                  bool makes_room)
{
    size_t kept_bytes = ps_arena_keep(t->arena, 0);
    if (makes_room)
        load_reserve_all(t, rows, count);
    t->index.is_tight = !makes_room;
    enum mr_status status = load_all(t, rows, count);
    (void)ps_arena_keep(t->arena, kept_bytes);
    t->index.is_tight = false;
    return status;
}
