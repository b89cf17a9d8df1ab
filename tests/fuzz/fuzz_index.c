/* Any bytes as operations on an index: keys that come, go, are looked for and marked, cuts of all and of the marked, upkeep; beside a plain list of what is
 * there. The keys lie in two partitions, so that these grow, overflow, wrap and shrink again.
 *
 * An input is one byte of settings, then pairs: what to do, and with which key. */
#include <stdbool.h>
#include <string.h>
#include "fuzz_assert.h"
#include "ps/index.h"
#include "ps/key_hash.h"

#define KEYS        256u
#define SEED        7u
#define LIMIT_BYTES ((size_t)64 << 20)

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
            while (mr_partition_of(ps_key_hash(candidate, SEED)) / 2 != 1000);
            keys[i] = candidate;
        }
    }
    memset(list, 0, sizeof(*list));
    for (uint32_t i = 0; i < KEYS; i++)
        list->entries[i] = (struct entry){.key = keys[i], .hash = ps_key_hash(keys[i], SEED)};
}

static struct ps_place find(const struct ps_index *ix, const struct entry *e)
{
    struct ps_place place = ps_index_find(ix, e->key, e->hash);
    FUZZ_ASSERT((place.bucket != NULL) == e->there);
    if (place.bucket != NULL) {
        FUZZ_ASSERT(place.bucket->keys[place.slot] == e->key && place.bucket->rows[place.slot] == e->row);
        FUZZ_ASSERT((ps_bucket_pending(ix, place.bucket) >> place.slot & 1) == e->pending);
        FUZZ_ASSERT((ps_bucket_marks(ix, place.bucket) >> place.slot & 1) == e->marked);
    }
    return place;
}

static void insert(struct ps_index *ix, struct list *list, struct entry *e, uint32_t row)
{
    if (e->there)
        return;
    FUZZ_ASSERT(ps_index_insert(ix, e->key, e->hash, row, row % 2 != 0));
    e->there = true;
    e->pending = false;
    e->marked = row % 2 != 0;
    e->row = row;
    list->count++;
}

static void remove_key(struct ps_index *ix, struct list *list, struct entry *e)
{
    struct ps_place place = find(ix, e);
    if (place.bucket == NULL)
        return;
    ps_index_remove(ix, place, e->hash);
    e->there = e->pending = e->marked = false;
    list->count--;
}

static struct entry *entry_of(struct list *list, uint64_t key)
{
    uint32_t i = 0;
    while (list->entries[i].key != key)
        i++;
    return &list->entries[i];
}

/* What a change during a cut does: all of the bucket's keys are emitted. */
static void emit_bucket(struct ps_index *ix, struct list *list, const struct entry *e)
{
    struct ps_bucket *b = find(ix, e).bucket;
    if (b == NULL)
        return;
    for (uint32_t slot = 0; slot < PS_BUCKET_KEYS; slot++)
        if ((b->flags >> slot & 1) != 0)
            entry_of(list, b->keys[slot])->pending = false;
    ps_bucket_set_pending(ix, b, 0);
}

static void mark(struct ps_index *ix, struct list *list, const struct entry *e)
{
    struct ps_place place = find(ix, e);
    if (place.bucket == NULL)
        return;
    ps_index_mark(ix, place);
    entry_of(list, e->key)->marked = true;
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
    if (count_pending(list) == 0)
        ps_index_cut_is_whole(ix);
    else
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
        (void)find(ix, &list->entries[i]);
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
        const struct ps_partition *p = &ix->partitions[i];
        rows += p->rows;
        for (uint32_t b = 0; b < p->bucket_count; b++)
            taken += (uint32_t)__builtin_popcount(p->buckets[b].flags & PS_BUCKET_ALL);
        if (p->rows > 0) {
            bytes += p->bucket_count * sizeof(struct ps_bucket);
            FUZZ_ASSERT(p->bucket_count == 1 || p->rows < p->bucket_count * PS_BUCKET_KEYS); /* probes end */
        }
    }
    FUZZ_ASSERT(rows == list->count && taken == list->count);
    FUZZ_ASSERT(ix->bytes >= bytes && ix->bytes == ps_arena_allocated_bytes(ix->arena));
}

static void operation(struct ps_index *ix, struct list *list, uint8_t what, uint8_t which)
{
    struct entry *e = &list->entries[which];
    uint64_t budget_bytes = (uint64_t)which * 64;
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
        (void)ps_index_maintain(ix, &budget_bytes);
        break;
    case 7:
    case 8:
        (void)find(ix, e);
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
        insert(ix, list, e, what * 256u + which);
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
    choose_keys(&list);
    ps_index_init(&ix, arena, SEED);
    if (bytes > 0 && data[0] % 2 != 0) /* the cut's generations run out soon */
        ix.generation = ix.generations_old = PS_GENERATION_MAX - data[0] / 2u % 8;
    if (bytes > 0 && data[0] % 4 == 2) /* or go round */
        ix.generation = PS_GENERATION_MAX - data[0] / 4u % 8;
    for (size_t i = 1; i + 1 < bytes; i += 2)
        operation(&ix, &list, data[i], data[i + 1]);
    check_all(&ix, &list);
    for (uint32_t i = 0; i < KEYS; i++)
        remove_key(&ix, &list, &list.entries[i]);
    uint64_t budget_bytes = UINT64_MAX;
    FUZZ_ASSERT(!ps_index_maintain(&ix, &budget_bytes) && ix.bytes == 0);
    ps_index_clear(&ix);
    FUZZ_ASSERT(ps_arena_allocated_bytes(arena) == 0);
    return 0;
}
