/* Rows of checkpoints into a table, many at a time. */
#include "ps/table_internal.h"

#include "ps/arena.h"

/* Of the memory: once more is in use nothing is made larger ahead. What is reserved beyond need must not be missing at the end: what
 * was there when it was saved has to fit again. */
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

/* Steps of this many rows, round and round, come by each of `count` rows once, and by neighbours far apart. */
static uint32_t stride_of(uint32_t count)
{
    uint32_t stride = (uint32_t)((uint64_t)count * 618 / 1000) + 1;
    while (common_divisor(stride, count) != 1)
        stride++;
    return stride;
}

/* The partition of a key, whose neighbour below is whole already, comes to about as many rows as that. One that has rows and no
 * such neighbour grows by a quarter at least: more may come with the next rows. */
static void reserve(struct ps_table *t, uint32_t partition, uint32_t new_rows)
{
    const uint32_t *held = t->index.partition_rows;
    if (ps_arena_mapped_bytes(t->index.arena) > ps_arena_limit_bytes(t->index.arena) / RESERVE_SHARE)
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
        uint32_t own = mr_partition_of(ps_key_hash(rows[i].key, t->index.seed));
        if (i > first && own != partition) {
            reserve(t, partition, i - first);
            first = i;
        }
        partition = own;
        if (i + 1 == count)
            reserve(t, partition, count - first);
    }
}

enum mr_status ps_table_load_rows(struct ps_table *t, const struct ps_stored_row *rows, uint32_t count,
                                  bool are_new)
{
    struct ps_group group;
    uint32_t stride = count == 0 ? 0 : stride_of(count), next = 0;
    if (are_new)
        reserve_all(t, rows, count);
    for (uint32_t done = 0; done < count;) {
        const struct ps_stored_row *taken[PS_GROUP_KEYS];
        uint32_t n = count - done < PS_GROUP_KEYS ? count - done : PS_GROUP_KEYS;
        for (uint32_t i = 0; i < n; i++) {
            taken[i] = &rows[next];
            ps_group_seek(t, &group, i, ps_key_hash(taken[i]->key, t->index.seed));
            next = (uint32_t)(((uint64_t)next + stride) % count);
        }
        for (uint32_t i = 0; i < n; i++) {
            enum mr_status status = ps_table_load(t, taken[i]->key, taken[i]->bytes);
            if (status != MR_OK)
                return status;
        }
        done += n;
    }
    return MR_OK;
}
