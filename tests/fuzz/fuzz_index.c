/* Any bytes as operations on an index: keys that come, go, are looked for and marked, cuts of all and of the
 * marked, upkeep; beside a plain list of what is there. The keys lie in two partitions, so that these grow,
 * in steps or at once, make keys give way, and shrink again.
 *
 * An input is one byte that is left out, then pairs: what to do, and with which key. */
#include <stdbool.h>
#include <string.h>
#include "fuzz_assert.h"
#include "ps/base/key_hash.h"
#include "ps/index/index.h"

#define KEYS        256u
#define SEED        7u
#define LIMIT_BYTES ((size_t)64 << 20)

static struct ps_key_hasher hasher;

struct entry {
    uint64_t key, hash;
    bool there, pending, marked;
    uint32_t row;
};

struct list {
    struct entry entries[KEYS];
    uint32_t count;
};

/* 4 keys of any partition, the others in two neighbouring ones. */
static void choose_keys(struct list *list)
{
    static uint64_t keys[KEYS] = {0, UINT64_MAX, 1, UINT64_C(1) << 63};
    if (keys[KEYS - 1] == 0) {
        uint64_t candidate = 0;
        for (uint32_t i = 4; i < KEYS; i++) {
            do
                candidate++;
            while (mr_partition_of(ps_placed_hash(&hasher, candidate)) / 2 != 1000);
            keys[i] = candidate;
        }
    }
    memset(list, 0, sizeof(*list));
    for (uint32_t i = 0; i < KEYS; i++)
        list->entries[i] = (struct entry){.key = keys[i], .hash = ps_placed_hash(&hasher, keys[i])};
}

static struct ps_place index_find(const struct ps_index *ix, const struct entry *e)
{
    struct ps_place place = ps_index_find(ix, e->hash);
    FUZZ_ASSERT((place.bucket != NULL) == e->there);
    if (place.bucket != NULL) {
        FUZZ_ASSERT(ps_index_hash_at(ix, place) == e->hash && place.row == e->row);
        FUZZ_ASSERT(ps_key_of_placed(&hasher, e->hash) == e->key);
        FUZZ_ASSERT(ps_entry_is_pending(ix, *ps_place_entry(place)) == e->pending);
        FUZZ_ASSERT(ps_index_is_marked(ix, place) == e->marked);
    }
    return place;
}

static void insert(struct ps_index *ix, struct list *list, struct entry *e, uint32_t row)
{
    if (e->there)
        return;
    FUZZ_ASSERT(ps_index_insert(ix, e->hash, row, row % 2 != 0));
    e->there = true;
    e->pending = false;
    e->marked = row % 2 != 0;
    e->row = row;
    list->count++;
}

static void remove_key(struct ps_index *ix, struct list *list, struct entry *e)
{
    struct ps_place place = index_find(ix, e);
    if (place.bucket == NULL)
        return;
    ps_index_remove(ix, place);
    e->there = e->pending = e->marked = false;
    list->count--;
}

static struct entry *entry_of(struct list *list, uint64_t hash)
{
    uint32_t i = 0;
    while (list->entries[i].hash != hash)
        i++;
    return &list->entries[i];
}

/* What a change during a cut does: the keys of a bucket that are pending are emitted. */
static void emit_bucket(struct ps_index *ix, struct list *list, const struct entry *e)
{
    struct ps_bucket *b = index_find(ix, e).bucket;
    if (b == NULL)
        return;
    uint32_t pending = ps_bucket_pending(ix, b);
    for (uint32_t slot = 0; slot < PS_BUCKET_KEYS; slot++) {
        if ((pending >> slot & 1) == 0)
            continue;
        entry_of(list, ps_index_hash_at(ix, ps_index_place_at(ix, mr_partition_of(e->hash), b, slot)))
            ->pending = false;
        ps_index_emitted(ix, b, slot);
    }
}

static void mark(struct ps_index *ix, struct list *list, const struct entry *e)
{
    struct ps_place place = index_find(ix, e);
    if (place.bucket == NULL)
        return;
    ps_index_mark(ix, place);
    if (!e->pending)
        entry_of(list, e->hash)->marked = true;
}

static uint32_t count_pending(const struct list *list)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < KEYS; i++)
        count += list->entries[i].pending;
    return count;
}

/* Of the marked, if the last cut is through. */
static void cut_begin(struct ps_index *ix, struct list *list, bool marked_only)
{
    ps_index_cut_end(ix, count_pending(list) == 0);
    if (ix->is_unswept)
        marked_only = false;
    uint64_t keys = ps_index_cut_begin(ix, marked_only);
    for (uint32_t i = 0; i < KEYS; i++) {
        struct entry *e = &list->entries[i];
        e->pending = e->there && (!marked_only || e->marked);
        e->marked = false;
    }
    FUZZ_ASSERT(keys == count_pending(list));
}

static void check_keys(const struct ps_index *ix, const struct list *list)
{
    for (uint32_t i = 0; i < KEYS; i++)
        (void)index_find(ix, &list->entries[i]);
    uint32_t marks = 0;
    for (uint32_t i = 0; i < KEYS; i++)
        marks += list->entries[i].marked;
    FUZZ_ASSERT(ix->rows == list->count && ix->marks == marks);
}

static void check_all(const struct ps_index *ix, const struct list *list)
{
    uint64_t rows = 0, bytes = 0, taken = 0;
    check_keys(ix, list);
    for (uint32_t i = 0; i < MR_PARTITION_COUNT; i++) {
        uint32_t count = ps_index_bucket_count(ix, i);
        rows += ix->partition_rows[i];
        bytes += count * sizeof(struct ps_bucket);
        for (uint32_t b = 0; b < count; b++)
            taken += (uint32_t)__builtin_popcount(ps_bucket_taken(ps_index_bucket(ix, i, b)));
    }
    FUZZ_ASSERT(rows == list->count && taken == list->count);
    FUZZ_ASSERT(ix->bytes == bytes && ix->bytes == ps_arena_allocated_bytes(ix->arena));
}

static void maintain(struct ps_index *ix, const struct list *list, uint64_t budget_bytes)
{
    static uint32_t row_ends[PS_ROW_GROUPS];
    memset(row_ends, 0, sizeof(row_ends));
    for (uint32_t i = 0; i < KEYS; i++) {
        const struct entry *e = &list->entries[i];
        uint32_t *end = &row_ends[mr_partition_of(e->hash) / PS_GROUP_PARTITIONS];
        if (e->there && e->row >= *end)
            *end = e->row + 1;
    }
    bool more = ps_index_maintain(ix, row_ends, &budget_bytes);
    FUZZ_ASSERT(!more || budget_bytes == 0);
}

/* Its row is another one, if there are bits for it. */
static void set_row(struct ps_index *ix, struct entry *e, uint32_t row)
{
    struct ps_place place = index_find(ix, e);
    if (place.bucket != NULL && ps_index_set_row(ix, place, row))
        e->row = row;
    (void)index_find(ix, e);
}

static void operation(struct ps_index *ix, struct list *list, uint8_t what, uint8_t which)
{
    struct entry *e = &list->entries[which];
    switch (what % 16) {
    case 0: /* as many as `what` says */
        for (uint32_t i = 0; i <= what / 16u * 4; i++)
            insert(ix, list, &list->entries[(which + i) % KEYS], which + i);
        break;
    case 1:
        for (uint32_t i = 0; i <= what / 16u * 4; i++)
            remove_key(ix, list, &list->entries[(which + i) % KEYS]);
        break;
    case 2:
        cut_begin(ix, list, which % 2 != 0);
        break;
    case 3:
    case 4:
        emit_bucket(ix, list, e);
        if (what % 16 == 4)
            mark(ix, list, e);
        break;
    case 5:
    case 6:
        maintain(ix, list, (uint64_t)which * 64);
        break;
    case 7:
        set_row(ix, e, what);
        break;
    case 8:
        ps_index_tidy_group(ix, which);
        break;
    case 9:
        mark(ix, list, e);
        break;
    case 10:
        check_keys(ix, list);
        break;
    case 11:
    case 12:
        remove_key(ix, list, e);
        break;
    default:
        insert(ix, list, e, what / 16u * 256 + which);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct ps_index ix;
    struct list list;
    static struct ps_arena *arena; /* for all inputs: each gives back what it took */
    if (arena == NULL)
        arena = ps_arena_create(LIMIT_BYTES);
    FUZZ_ASSERT(arena != NULL);
    hasher = ps_key_hasher_of(
        SEED, &(struct ps_key_secret){{UINT64_C(0x9e3779b97f4a7c15), UINT64_C(0xc2b2ae3d27d4eb4f)}});
    choose_keys(&list);
    ps_index_init(&ix, arena, &hasher);
    for (size_t i = 1; i + 1 < bytes; i += 2)
        operation(&ix, &list, data[i], data[i + 1]);
    check_all(&ix, &list);
    for (uint32_t i = 0; i < KEYS; i++)
        remove_key(&ix, &list, &list.entries[i]);
    maintain(&ix, &list, UINT64_MAX);
    FUZZ_ASSERT(ix.bytes == 0);
    ps_index_clear(&ix);
    FUZZ_ASSERT(ps_arena_allocated_bytes(arena) == 0);
    return 0;
}
