/* Rows of checkpoints into a table, many at a time. */
#include "ps/table/table_internal.h"

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
struct order {
    const struct ps_stored_row *rows;
    uint32_t count, stride, next, fetched;
};

/* Steps of this many rows, round and round, come by each of `count` rows once, and by neighbours far
 * apart. */
static uint32_t stride_of(uint32_t count)
{
    uint32_t stride = (uint32_t)((uint64_t)count * 618 / 1000) + 1;
    while (common_divisor(stride, count) != 1)
        stride++;
    return stride;
}

/* The partition of a key, whose neighbour below is whole already, comes to about as many rows as that. One
 * that has rows and no such neighbour grows by a quarter at least: more may come with the next rows. */
static void reserve(struct ps_table *t, uint32_t partition, uint32_t new_rows)
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
static void reserve_all(struct ps_table *t, const struct ps_stored_row *rows, uint32_t count)
{
    for (uint32_t i = 0, first = 0, partition = 0; i < count; i++) {
        uint32_t own = mr_partition_of(ps_index_hash(&t->index, rows[i].key));
        if (i > first && own != partition) {
            reserve(t, partition, i - first);
            first = i;
        }
        partition = own;
        if (i + 1 == count)
            reserve(t, partition, count - first);
    }
}

/* The next rows, on their way to the cache while those before are loaded. Returns how many. */
static uint32_t fetch(const struct ps_table *t, struct order *order, const struct ps_stored_row **taken)
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
    struct order order = {.rows = rows, .count = count, .stride = count == 0 ? 0 : stride_of(count)};
    const struct ps_stored_row *taken[2][PS_GROUP_KEYS];
    uint32_t n = fetch(t, &order, taken[0]);
    for (uint32_t turn = 0; n > 0; turn++) {
        uint32_t next = fetch(t, &order, taken[(turn + 1) % 2]);
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
        reserve_all(t, rows, count);
    t->index.is_tight = !makes_room;
    enum mr_status status = load_all(t, rows, count);
    (void)ps_arena_keep(t->arena, kept_bytes);
    t->index.is_tight = false;
    return status;
}
