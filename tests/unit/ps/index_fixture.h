/* What the tests of the index share: an index in an arena of its own, and keys with row numbers in order. */
#ifndef INDEX_FIXTURE_H
#define INDEX_FIXTURE_H

#include <stdlib.h>
#include "ps/index/index.h"
#include "table_fixture.h"

struct fixture {
    struct ps_arena *arena;
    struct ps_index ix;
    uint32_t row_ends[PS_ROW_GROUPS]; /* row numbers given out, by group */
};

static inline int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    f->arena = ps_arena_create(FIXTURE_LIMIT_BYTES);
    assert_non_null(f->arena);
    const struct ps_key_secret secret = {
        {UINT64_C(0x2545f4914f6cdd1d),
         UINT64_C(0xd6e8feb86659fd93)}}; /* always the same: tests count what moves */
    const struct ps_key_hasher hasher = ps_key_hasher_of(99, &secret);
    ps_index_init(&f->ix, f->arena, &hasher);
    *state = f;
    return 0;
}

static inline int tear_down(void **state)
{
    struct fixture *f = *state;
    ps_index_clear(&f->ix);
    assert_int_equal(ps_arena_allocated_bytes(f->arena), 0);
    ps_arena_destroy(f->arena);
    free(f);
    return 0;
}

/* A row number for a key of this hash: the group's next. */
static inline uint32_t row_for(struct fixture *f, uint64_t hash)
{
    return f->row_ends[mr_partition_of(hash) / PS_GROUP_PARTITIONS]++;
}

static inline uint64_t hash_of(const struct fixture *f, uint64_t key)
{
    return ps_index_hash(&f->ix, key);
}

/* UINT32_MAX when it is not there. */
static inline uint32_t find_hash(const struct ps_index *ix, uint64_t hash)
{
    struct ps_place place = ps_index_find(ix, hash);
    if (place.bucket == NULL)
        return UINT32_MAX;
    assert_int_equal(ps_index_hash_at(ix, place), hash);
    return place.row;
}

/* The key's row number from now on. */
static inline uint32_t insert(struct fixture *f, uint64_t key)
{
    uint32_t row = row_for(f, hash_of(f, key));
    assert_true(ps_index_insert(&f->ix, hash_of(f, key), row, false));
    return row;
}

static inline void remove_key(struct fixture *f, uint64_t key)
{
    struct ps_place place = ps_index_find(&f->ix, hash_of(f, key));
    assert_non_null(place.bucket);
    ps_index_remove(&f->ix, place);
}

static inline void maintain_to_the_end(struct fixture *f)
{
    for (uint64_t budget = 1; ps_index_maintain(&f->ix, f->row_ends, &budget); budget = 1)
        ;
    assert_int_equal(f->ix.untidy_count, 0);
    assert_int_equal(f->ix.move.partition, PS_PARTITION_NONE);
}

#endif
