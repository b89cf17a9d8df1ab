/* Entries: what is in them, which buckets they may be in, and cursors over them. */
#include "ps/index/index_internal.h"

#define STEPS_PER_DOUBLING 16u
#define NODES_FEW          16u /* the same, when such searches have been in vain too often */

struct ps_bucket ps_empty_bucket;

/* 1, 2, 3, .. 32, 34, 36, .. 64, 68, ..: in buckets, sizes of pieces (ps/memory/size_classes.h), so that
 * nothing is lost to rounding. */
static uint32_t bucket_step(uint32_t count)
{
    return count < STEPS_PER_DOUBLING ? 1
                                      : (1u << (31 - (uint32_t)__builtin_clz(count))) / STEPS_PER_DOUBLING;
}

uint32_t ps_next_bucket_count(uint32_t count)
{
    return count + bucket_step(count);
}

/* ---- entries ---- */

/* What it holds of the hash. `limit` is a power of two, which the compiler does not know. */
static inline uint64_t low_hash(uint64_t entry, uint32_t limit)
{
    return entry >> 1 >> __builtin_ctz(limit);
}

static bool is_in_other(uint64_t entry, uint32_t limit)
{
    return (entry & limit) != 0;
}

static uint32_t before(uint32_t number, uint32_t distance, uint32_t bucket_count)
{
    return number >= distance ? number - distance : number + bucket_count - distance;
}

uint64_t ps_entry_hash(uint32_t partition, uint32_t number, uint32_t bucket_count, uint64_t entry)
{
    uint32_t limit = ps_entry_limit(bucket_count);
    uint64_t low = low_hash(entry, limit);
    uint32_t home = is_in_other(entry, limit)
                        ? before(number, ps_other_distance(low, bucket_count), bucket_count)
                        : number;
    /* The home's hashes begin here, and are no more than the entry's bits distinguish: the lowest 32 - q of
     * below_partition. */
    uint64_t first = (((uint64_t)home << 32) + bucket_count - 1) / bucket_count;
    uint64_t mask = (UINT64_C(1) << 43 >> __builtin_ctz(limit)) - 1;
    uint64_t below_partition = first + (((low >> 20) - first) & mask);
    return (uint64_t)partition << 52 | below_partition << 20 | (low & 0xfffff);
}

/* PS_BUCKET_KEYS when it is full. */
static uint32_t free_slot(const struct ps_bucket *b)
{
    return (uint32_t)__builtin_ctz(~ps_bucket_taken(b));
}

/* A bucket that would have a free place if an entry of it moved. */
struct node {
    uint32_t bucket;
    uint16_t parent; /* whose entry at parent_slot would come here; itself: none */
    uint16_t parent_slot;
};

static bool is_on_path(const struct node *nodes, uint32_t node, uint32_t bucket)
{
    for (; nodes[node].bucket != bucket; node = nodes[node].parent)
        if (nodes[node].parent == node)
            return false;
    return true;
}

/* The bucket besides `number` where this entry of its may be. */
static uint32_t other_of(uint64_t entry, uint32_t limit, uint32_t number, uint32_t bucket_count)
{
    uint32_t distance = ps_other_distance(low_hash(entry, limit), bucket_count);
    if (is_in_other(entry, limit))
        return before(number, distance, bucket_count);
    return number + distance >= bucket_count ? number + distance - bucket_count : number + distance;
}

static void entry_move(struct ps_index *ix, uint32_t partition, struct ps_bucket_array in, uint32_t from,
                       uint32_t from_slot, uint32_t to, uint32_t to_slot)
{
    uint64_t entry = in.buckets[from].entries[from_slot];
    in.buckets[to].entries[to_slot] = entry ^ ps_entry_limit(in.bucket_count);
    in.buckets[from].entries[from_slot] = 0;
    const bool is_left =
        ix->pending_codes != 0 ? ps_entry_is_pending(ix, entry) : ps_entry_state(entry) == ix->mark;
    if (partition == ix->watched_partition && is_left)
        ix->watched_moves++;
}

/* Looks, nearest first, for a bucket with a free place that entries of the node's bucket can give way to;
 * false when there is none among those looked at. How many these are is limited once it has been in vain too
 * often. */
static bool give_way(struct ps_index *ix, uint32_t partition, struct ps_bucket_array in, struct node *nodes,
                     uint32_t *root, uint32_t *root_slot)
{
    const uint32_t nodes_max = ix->spare_buckets >= PS_SEARCH_BUCKETS_MAX ? PS_SEARCH_BUCKETS_MAX : NODES_FEW;
    uint32_t count = 2, limit = ps_entry_limit(in.bucket_count);
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t slot = 0; slot < PS_BUCKET_KEYS; slot++) {
            uint32_t from = nodes[i].bucket;
            uint32_t to = other_of(in.buckets[from].entries[slot], limit, from, in.bucket_count);
            uint32_t to_slot = free_slot(&in.buckets[to]);
            if (to_slot == PS_BUCKET_KEYS) {
                if (count < nodes_max && !is_on_path(nodes, i, to))
                    nodes[count++] = (struct node){to, (uint16_t)i, (uint16_t)slot};
                continue;
            }
            uint32_t node = i, from_slot = slot;
            for (;;) {
                entry_move(ix, partition, in, nodes[node].bucket, from_slot, to, to_slot);
                if (nodes[node].parent == node)
                    break;
                to = nodes[node].bucket;
                to_slot = from_slot;
                from_slot = nodes[node].parent_slot;
                node = nodes[node].parent;
            }
            *root = node;
            *root_slot = from_slot;
            return true;
        }
    }
    return false;
}

bool ps_entry_place(struct ps_index *ix, struct ps_bucket_array to, uint64_t hash, uint32_t row,
                    uint32_t state)
{
    uint32_t limit = ps_entry_limit(to.bucket_count), home = ps_home_number(hash, to.bucket_count);
    uint32_t slot = free_slot(&to.buckets[home]), number = home;
    if (slot == PS_BUCKET_KEYS && to.bucket_count > 1) {
        uint32_t other = ps_other_number(hash, home, to.bucket_count);
        number = other;
        slot = free_slot(&to.buckets[other]);
        if (slot == PS_BUCKET_KEYS) {
            struct node nodes[PS_SEARCH_BUCKETS_MAX] = {{home, 0, 0}, {other, 1, 0}};
            uint32_t root;
            if (!give_way(ix, mr_partition_of(hash), to, nodes, &root, &slot))
                return false;
            number = nodes[root].bucket;
        }
    }
    if (slot == PS_BUCKET_KEYS)
        return false;
    to.buckets[number].entries[slot] =
        ps_entry_of_hash(hash, limit) | (number != home ? limit : 0) | (row + 1) * PS_ENTRY_STATES | state;
    return true;
}

/* ---- places ---- */

/* The array that the bucket is in, and its number there. */
static uint32_t number_of(const struct ps_index *ix, uint32_t partition, const struct ps_bucket *b,
                          uint32_t *bucket_count)
{
    const struct ps_partition *p = &ix->partitions[partition];
    if (b >= p->buckets && b < p->buckets + p->bucket_count) {
        *bucket_count = p->bucket_count;
        return (uint32_t)(b - p->buckets);
    }
    assert(partition == ix->move.partition && b < ix->move.buckets + ix->move.bucket_count);
    *bucket_count = ix->move.bucket_count;
    return (uint32_t)(b - ix->move.buckets);
}

uint64_t ps_index_hash_at(const struct ps_index *ix, struct ps_place place)
{
    uint32_t bucket_count, number = number_of(ix, place.partition, place.bucket, &bucket_count);
    return ps_entry_hash(place.partition, number, bucket_count, *ps_place_entry(place));
}

bool ps_index_set_row(struct ps_index *ix, struct ps_place place, uint32_t row)
{
    uint32_t bucket_count;
    (void)number_of(ix, place.partition, place.bucket, &bucket_count);
    if (row > ps_row_max(bucket_count))
        return false;
    uint64_t *entry = ps_place_entry(place), row_bits = ps_entry_limit(bucket_count) - PS_ENTRY_STATES;
    *entry = (*entry & ~row_bits) | (uint64_t)(row + 1) * PS_ENTRY_STATES;
    return true;
}

/* ---- cursors ---- */

static uint32_t old_bucket_count(const struct ps_index *ix, uint32_t partition)
{
    return partition == ix->move.partition ? ix->move.bucket_count : 0;
}

uint32_t ps_index_bucket_count(const struct ps_index *ix, uint32_t partition)
{
    const struct ps_partition *p = &ix->partitions[partition];
    return ps_partition_is_empty(p) ? 0 : old_bucket_count(ix, partition) + p->bucket_count;
}

struct ps_bucket *ps_index_bucket(const struct ps_index *ix, uint32_t partition, uint32_t number)
{
    uint32_t old_count = old_bucket_count(ix, partition);
    return number < old_count ? &ix->move.buckets[number]
                              : &ix->partitions[partition].buckets[number - old_count];
}

struct ps_bucket_run ps_index_run(const struct ps_index *ix, uint32_t partition, uint32_t number)
{
    const struct ps_partition *p = &ix->partitions[partition];
    uint32_t old_count = old_bucket_count(ix, partition);
    if (number < old_count)
        return (struct ps_bucket_run){&ix->move.buckets[number], old_count - number, number, old_count};
    number -= old_count;
    return (struct ps_bucket_run){&p->buckets[number], p->bucket_count - number, number, p->bucket_count};
}

struct ps_place ps_index_place_at(const struct ps_index *ix, uint32_t partition, struct ps_bucket *b,
                                  uint32_t slot)
{
    uint32_t bucket_count;
    (void)number_of(ix, partition, b, &bucket_count);
    return (struct ps_place){b, ps_entry_row(b->entries[slot], ps_entry_limit(bucket_count)),
                             (uint16_t)partition, (uint16_t)slot};
}
