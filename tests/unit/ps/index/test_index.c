#include <stdlib.h>
#include <string.h>
#include "index_fixture.h"
#include "ps/index/index_internal.h"
#include "ps/memory/size_classes.h"
#include "tests/test.h"

static uint32_t index_find(const struct fixture *f, uint64_t key)
{
    return find_hash(&f->ix, hash_of(f, key));
}

static uint64_t key_in_partitions(const struct fixture *f, uint64_t *rng, uint32_t first, uint32_t end)
{
    for (;;) {
        uint64_t key = random_next(rng);
        uint32_t partition = mr_partition_of(hash_of(f, key));
        if (partition >= first && partition < end)
            return key;
    }
}

/* What the index counts is what is there. */
static void check_counts(const struct ps_index *ix)
{
    uint64_t rows = 0, places = 0, used = 0, buckets = 0, untidy = 0;
    for (uint32_t i = 0; i < MR_PARTITION_COUNT; i++) {
        const struct ps_partition *p = &ix->partitions[i];
        bool is_used = !ps_partition_is_empty(p);
        rows += ix->partition_rows[i];
        used += is_used;
        places += is_used ? p->bucket_count * PS_BUCKET_KEYS : 0;
        buckets += ps_index_bucket_count(ix, i);
        untidy += ix->untidy[i / 64] >> (i % 64) & 1;
    }
    assert_int_equal(ix->rows, rows);
    assert_int_equal(ix->places, places);
    assert_int_equal(ix->partitions_used, used);
    assert_int_equal(ix->bytes, buckets * sizeof(struct ps_bucket));
    assert_int_equal(ix->untidy_count, untidy);
}

TEST(test_hash_is_the_one_of_the_wire_and_has_an_inverse)
{
    uint64_t rng = fixture_seed("hash");
    assert_int_equal(ps_key_hash(0, 0), mr_key_hash(0, 0));
    assert_int_equal(ps_key_hash(UINT64_MAX, UINT64_MAX), mr_key_hash(UINT64_MAX, UINT64_MAX));
    assert_int_equal(ps_key_of_hash(ps_key_hash(0, 0), 0), 0);
    assert_int_equal(ps_key_of_hash(ps_key_hash(UINT64_MAX, UINT64_MAX), UINT64_MAX), UINT64_MAX);
    for (uint32_t i = 0; i < 10000; i++) {
        uint64_t key = random_next(&rng), seed = random_next(&rng);
        assert_int_equal(ps_key_hash(key, seed), mr_key_hash(key, seed));
        assert_int_equal(ps_key_of_hash(ps_key_hash(key, seed), seed), key);
    }
}

TEST(test_placed_hash_keeps_the_partition_and_has_an_inverse)
{
    uint64_t rng = fixture_seed("placed hash");
    for (uint32_t i = 0; i < 10000; i++) {
        const struct ps_key_secret secret = {{random_next(&rng), i % 100 == 0 ? 0 : random_next(&rng)}};
        const uint64_t seed = random_next(&rng), key = i == 0 ? 0 : i == 1 ? UINT64_MAX : random_next(&rng);
        const struct ps_key_hasher hasher = ps_key_hasher_of(seed, &secret);
        const uint64_t placed = ps_placed_hash(&hasher, key);
        assert_int_equal(mr_partition_of(placed), mr_partition_of(mr_key_hash(key, seed)));
        assert_int_equal(ps_key_of_placed(&hasher, placed), key);
        assert_int_equal(ps_hash_of_placed(&hasher, placed), mr_key_hash(key, seed));
    }
}

TEST(test_an_empty_index_holds_no_memory_and_no_key, set_up, tear_down)
{
    struct fixture *f = *state;
    assert_int_equal(f->ix.bytes, 0);
    assert_int_equal(index_find(f, 0), UINT32_MAX);
    assert_int_equal(index_find(f, UINT64_MAX), UINT32_MAX);
    assert_int_equal(find_hash(&f->ix, 0), UINT32_MAX); /* free entries are 0 */
}

/* Hashes, too, may be 0 and all ones. */
TEST(test_zero_and_all_ones_are_like_others, set_up, tear_down)
{
    struct fixture *f = *state;
    uint32_t zero = insert(f, 0);
    assert_int_equal(index_find(f, 0), zero);
    assert_int_equal(index_find(f, UINT64_MAX), UINT32_MAX);
    uint32_t ones = insert(f, UINT64_MAX);
    assert_int_equal(index_find(f, UINT64_MAX), ones);
    assert_true(ps_index_insert(&f->ix, 1, 100, false));
    assert_int_equal(find_hash(&f->ix, 0), UINT32_MAX);
    assert_true(ps_index_insert(&f->ix, 0, 101, false));
    assert_true(ps_index_insert(&f->ix, UINT64_MAX, 102, false));
    assert_int_equal(find_hash(&f->ix, 0), 101);
    assert_int_equal(find_hash(&f->ix, 1), 100);
    assert_int_equal(find_hash(&f->ix, UINT64_MAX), 102);
    assert_int_equal(f->ix.rows, 5);
}

TEST(test_random_keys_are_found_and_others_not, set_up, tear_down)
{
    enum { COUNT = 600000 };
    struct fixture *f = *state;
    uint64_t seed = fixture_seed("index"), rng = seed, moves = 0;
    uint32_t *rows = calloc(COUNT, sizeof(*rows));
    assert_non_null(rows);
    for (uint32_t i = 0; i < COUNT; i++) {
        struct ps_index_move before = f->ix.move;
        rows[i] = insert(f, random_next(&rng));
        if (before.partition == f->ix.move.partition && before.partition != PS_PARTITION_NONE) {
            assert_true(f->ix.move.done - before.done <= 4); /* a little at a time */
            moves++;
        }
    }
    assert_true(moves > 1000);
    assert_int_equal(f->ix.rows, COUNT);
    rng = seed;
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(index_find(f, random_next(&rng)), rows[i]);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(index_find(f, random_next(&rng)), UINT32_MAX);
    assert_true(f->ix.bytes < COUNT * 9);
    assert_int_equal(ps_arena_allocated_bytes(f->arena), f->ix.bytes);
    free(rows);
}

/* Partitions do not grow in the order of their buckets in memory, and units that are left almost empty go
 * back all the same: where one grows, others' buckets move, at most three at a time. */
TEST(test_a_growing_index_leaves_little_memory_unused, set_up, tear_down)
{
    enum { COUNT = 1600000, STEP = 200000, ARRAYS_AT_A_TIME = 3 };
    struct fixture *f = *state;
    uint64_t most = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        uint64_t places = f->ix.places, rewrites = f->ix.rewrites;
        insert(f, i);
        uint64_t grown = f->ix.places != places, rewritten = f->ix.rewrites - rewrites;
        assert_true(grown || rewritten == 0);
        most = rewritten > most ? rewritten : most;
        size_t mapped = i % STEP == 0 ? ps_arena_mapped_bytes(f->arena) : 0;
        assert_true(mapped <= f->ix.bytes + f->ix.bytes / 8 + 4 * PS_HUGE_PAGE_BYTES);
    }
    assert_int_equal(most, 1 + ARRAYS_AT_A_TIME);
    check_counts(&f->ix);
}

/* Where memory is to be left, those that lie there move, and no others. */
TEST(test_only_what_lies_in_the_way_is_moved, set_up, tear_down)
{
    enum { COUNT = 400000, ROUNDS = 3000 };
    static struct ps_bucket *before[MR_PARTITION_COUNT];
    static bool leaves[MR_PARTITION_COUNT];
    struct fixture *f = *state;
    uint32_t count, moved = 0;
    for (uint32_t i = 0; i < COUNT; i++)
        insert(f, i);
    for (uint32_t i = 0; i < COUNT; i += 2)
        remove_key(f, i);
    maintain_to_the_end(f);
    for (uint32_t round = 0; round < ROUNDS && ps_arena_clear_begin(f->arena, &count); round++) {
        for (uint32_t i = 0; i < MR_PARTITION_COUNT; i++) {
            before[i] = f->ix.partitions[i].buckets;
            leaves[i] = ps_arena_piece_is_leaving(f->arena, before[i]);
        }
        ps_index_gather(&f->ix);
        for (uint32_t i = 0; i < MR_PARTITION_COUNT; i++) {
            bool has_moved = f->ix.partitions[i].buckets != before[i];
            assert_true(leaves[i] || !has_moved);
            moved += has_moved;
        }
    }
    assert_true(moved > 100);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_true((index_find(f, i) != UINT32_MAX) == (i % 2 != 0));
    check_counts(&f->ix);
}

/* Keys of one partition only: what an adversary, or bad luck, would send. All the time they are where they
 * should be, also while they move. */
TEST(test_one_partition_takes_them_all, set_up, tear_down)
{
    enum { COUNT = 20000 };
    struct fixture *f = *state;
    static uint64_t keys[COUNT];
    uint64_t rng = fixture_seed("one partition");
    uint32_t moving = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        keys[i] = key_in_partitions(f, &rng, 17, 18);
        assert_int_equal(index_find(f, keys[i]), UINT32_MAX);
        assert_int_equal(insert(f, keys[i]), i);
        moving += f->ix.move.partition == 17;
        for (uint32_t j = 0; j < 4; j++) {
            uint32_t which = random_below(&rng, i + 1);
            assert_int_equal(index_find(f, keys[which]), which);
        }
    }
    assert_true(moving > COUNT / 10);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(index_find(f, keys[i]), i);
    assert_int_equal(f->ix.partition_rows[17], COUNT);
    maintain_to_the_end(f);
    assert_true(f->ix.bytes < COUNT * 10);
}

/* From one bucket on, full or not; keys lie in both of their buckets. */
TEST(test_small_partitions_at_every_size, set_up, tear_down)
{
    enum { COUNT = 500 };
    struct fixture *f = *state;
    uint64_t keys[COUNT], rng = fixture_seed("small");
    uint32_t rows[COUNT], away = 0;
    for (uint32_t count = 0; count < COUNT; count++) {
        keys[count] = key_in_partitions(f, &rng, 0, 3);
        assert_int_equal(index_find(f, keys[count]), UINT32_MAX);
        rows[count] = insert(f, keys[count]);
        for (uint32_t i = 0; i <= count; i++) {
            uint64_t hash = hash_of(f, keys[i]);
            assert_int_equal(index_find(f, keys[i]), rows[i]);
            away += ps_index_find(&f->ix, hash).bucket != ps_index_home(&f->ix, hash);
        }
    }
    assert_true(away > COUNT);
}

/* A row number that a small partition has no bits for makes it larger; with a lower one it gets small
 * again. */
TEST(test_a_small_partition_among_large_ones, set_up, tear_down)
{
    enum { COUNT = 20000 };
    struct fixture *f = *state;
    uint64_t rng = fixture_seed("among large ones");
    for (uint32_t i = 0; i < COUNT; i++)
        insert(f, key_in_partitions(f, &rng, 32, 33));
    uint64_t key = key_in_partitions(f, &rng, 33, 34);
    assert_int_equal(insert(f, key), COUNT);
    assert_int_equal(index_find(f, key), COUNT);
    assert_true(f->ix.partitions[33].bucket_count > 1);
    assert_true(ps_index_set_row(&f->ix, ps_index_find(&f->ix, hash_of(f, key)), 7));
    assert_int_equal(index_find(f, key), 7);
    uint64_t next = key_in_partitions(f, &rng, 48, 49); /* as large, and of the next group */
    assert_true(ps_index_insert(&f->ix, hash_of(f, next), COUNT, false));
    assert_true(ps_partition_is_too_large(&f->ix, 48));
    maintain_to_the_end(f);
    f->row_ends[2] = ps_row_max(1) + 1; /* the highest number that one bucket can hold is the last */
    ps_index_tidy_group(&f->ix, 2);
    assert_int_equal(f->ix.untidy_count, 1);
    maintain_to_the_end(f);
    assert_int_equal(f->ix.partitions[33].bucket_count, 1);
    assert_int_equal(index_find(f, key), 7);
    assert_false(ps_index_set_row(&f->ix, ps_index_find(&f->ix, hash_of(f, key)), COUNT));
    assert_int_equal(index_find(f, key), 7);
}

/* The search for a place has an end: nearly all are taken then, and the entries are those of before. */
TEST(test_a_full_array_keeps_what_it_has, set_up, tear_down)
{
    enum { BUCKETS = 512, PLACES = BUCKETS * PS_BUCKET_KEYS, REFUSED = 100 };
    static struct ps_bucket buckets[BUCKETS];
    static uint64_t hashes[PLACES];
    struct fixture *f = *state;
    const struct ps_bucket_array array = {buckets, BUCKETS};
    uint64_t rng = fixture_seed("full array");
    uint32_t count = 0, found = 0;
    memset(buckets, 0, sizeof(buckets));
    for (uint32_t refused = 0; refused < REFUSED;) {
        uint64_t hash = UINT64_C(7) << 52 | random_next(&rng) >> 12;
        if (!ps_entry_place(&f->ix, array, hash, count, f->ix.base))
            refused++;
        else
            hashes[count++] = hash;
    }
    assert_int_in_range(count, PLACES - PLACES / 25, PLACES);
    for (uint32_t i = 0; i < PLACES; i++) {
        const uint64_t entry = buckets[i / PS_BUCKET_KEYS].entries[i % PS_BUCKET_KEYS];
        if (entry == 0)
            continue;
        const uint32_t row = ps_entry_row(entry, ps_entry_limit(BUCKETS));
        assert_true(row < count);
        assert_int_equal(ps_entry_hash(7, i / PS_BUCKET_KEYS, BUCKETS, entry), hashes[row]);
        found++;
    }
    assert_int_equal(found, count);
}

/* Row numbers up to the highest that a bucket can hold. */
TEST(test_the_highest_row_number_of_a_size, set_up, tear_down)
{
    struct fixture *f = *state;
    const struct ps_partition *p = &f->ix.partitions[33];
    uint64_t rng = fixture_seed("highest row"), first = key_in_partitions(f, &rng, 33, 34),
             second = key_in_partitions(f, &rng, 33, 34);
    uint32_t highest = ps_row_max(1);
    assert_true(ps_index_insert(&f->ix, hash_of(f, first), highest, false));
    assert_int_equal(p->bucket_count, 1);
    assert_true(ps_index_insert(&f->ix, hash_of(f, second), 0, false));
    assert_true(ps_index_set_row(&f->ix, ps_index_find(&f->ix, hash_of(f, second)), highest));
    assert_false(ps_index_set_row(&f->ix, ps_index_find(&f->ix, hash_of(f, second)), highest + 1));
    assert_int_equal(index_find(f, first), highest);
    assert_int_equal(index_find(f, second), highest);
    remove_key(f, first);
    assert_true(ps_index_insert(&f->ix, hash_of(f, first), highest + 1, false));
    assert_int_equal(p->bucket_count, 2);
    assert_int_equal(index_find(f, first), highest + 1);
    assert_int_equal(index_find(f, second), highest);
}

/* Partitions without keys get a bucket once there are many, so that a key finds one without memory, and give
 * it back when there are few; but not those of a group that has no keys at all. */
TEST(test_partitions_get_their_first_bucket_ahead, set_up, tear_down)
{
    enum {
        COUNT = 3 * MR_PARTITION_COUNT,
        PARTITIONS = MR_PARTITION_COUNT / 2,
        FEW = MR_PARTITION_COUNT - 1
    };
    struct fixture *f = *state;
    static uint64_t keys[COUNT];
    uint64_t rng = fixture_seed("first bucket");
    for (uint32_t i = 0; i < COUNT; i++) /* of every second partition, in half of the groups */
        do
            keys[i] = key_in_partitions(f, &rng, 0, PARTITIONS);
        while (mr_partition_of(hash_of(f, keys[i])) % 2 != 0);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < COUNT; i++)
            (void)insert(f, keys[i]);
        assert_int_equal(f->ix.partitions_used, PARTITIONS);
        for (uint32_t i = FEW + 1; i < COUNT; i++)
            remove_key(f, keys[i]);
        maintain_to_the_end(f);
        assert_int_equal(f->ix.partitions_used, PARTITIONS);
        remove_key(f, keys[FEW]);
        maintain_to_the_end(f);
        uint32_t with_rows = 0;
        for (uint32_t i = 0; i < MR_PARTITION_COUNT; i++)
            with_rows += f->ix.partition_rows[i] > 0;
        assert_int_equal(f->ix.partitions_used, with_rows);
        check_counts(&f->ix);
        for (uint32_t i = 0; i < FEW; i++)
            remove_key(f, keys[i]);
        maintain_to_the_end(f);
        assert_int_equal(f->ix.bytes, 0);
    }
}

/* A partition waits for upkeep from the removal on that leaves it too large. */
TEST(test_what_removals_leave_too_large_is_noted, set_up, tear_down)
{
    enum { COUNT = 100000 };
    struct fixture *f = *state;
    for (uint32_t i = 0; i < COUNT; i++)
        insert(f, i);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t partition = mr_partition_of(hash_of(f, i));
        remove_key(f, i);
        bool is_noted = f->ix.untidy[partition / 64] >> (partition % 64) & 1;
        assert_int_equal(is_noted, ps_partition_is_too_large(&f->ix, partition));
    }
    check_counts(&f->ix);
    maintain_to_the_end(f);
    assert_int_equal(f->ix.bytes, 0);
}

TEST(test_clear_gives_all_back, set_up, tear_down)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < 50000; i++)
        insert(f, i);
    ps_index_clear(&f->ix);
    assert_int_equal(f->ix.rows, 0);
    assert_int_equal(f->ix.bytes, 0);
    assert_int_equal(index_find(f, 1), UINT32_MAX);
    assert_int_equal(index_find(f, 1), UINT32_MAX);
    uint32_t row = insert(f, 1);
    assert_int_equal(index_find(f, 1), row);
}

/* The same number of keys in each of a few partitions: all that grow do so in their turn. */
#define EVEN_PARTITIONS (4 * PS_GROUP_PARTITIONS)

static uint64_t even_hash(uint64_t *rng, uint32_t i)
{
    return (uint64_t)(i % EVEN_PARTITIONS) << 52 | random_next(rng) >> 12;
}

/* What it had grown to before does not matter. */
TEST(test_a_cleared_index_grows_like_a_new_one, set_up, tear_down)
{
    enum { FEW = EVEN_PARTITIONS * 30, MANY = EVEN_PARTITIONS * 300 };
    static const uint32_t rounds[] = {FEW, MANY, FEW};
    static uint32_t sizes[3][EVEN_PARTITIONS];
    struct fixture *f = *state;
    const uint64_t seed = fixture_seed("cleared");
    for (uint32_t round = 0; round < 3; round++) {
        uint64_t rng = seed;
        for (uint32_t i = 0; i < rounds[round]; i++)
            assert_true(ps_index_insert(&f->ix, even_hash(&rng, i), i / EVEN_PARTITIONS, false));
        for (uint32_t i = 0; i < EVEN_PARTITIONS; i++)
            sizes[round][i] = f->ix.partitions[i].bucket_count;
        ps_index_clear(&f->ix);
    }
    assert_memory_equal(sizes[2], sizes[0], sizeof(sizes[0]));
}

/* A partition's first bucket, nothing while it has places, and the next size when it has none. */
TEST(test_the_bytes_of_an_insert_are_known_before, set_up, tear_down)
{
    struct fixture *f = *state;
    const size_t bucket_bytes = sizeof(struct ps_bucket);
    uint64_t rng = fixture_seed("bytes of an insert"), key;
    f->ix.is_tight = true; /* no partition grows in its turn */
    for (uint32_t rows = 0; rows <= 2 * PS_BUCKET_KEYS; rows++) {
        key = key_in_partitions(f, &rng, 77, 78);
        size_t told = rows % PS_BUCKET_KEYS == 0 ? (rows / PS_BUCKET_KEYS + 1) * bucket_bytes : 0;
        assert_int_equal(ps_index_insert_bytes(&f->ix, hash_of(f, key)), told);
        insert(f, key);
        assert_int_equal(f->ix.bytes, (rows / PS_BUCKET_KEYS + 1) * bucket_bytes);
    }
}

/* The largest array that is a piece of a unit takes no unit of its own. */
TEST(test_the_largest_piece_is_accounted_as_one, set_up, tear_down)
{
    struct fixture *f = *state;
    const uint32_t most = (uint32_t)(PS_PIECE_BYTES_MAX / sizeof(struct ps_bucket));
    assert_true(ps_move_at_once(&f->ix, 77, most));
    assert_int_equal(f->ix.bytes, PS_PIECE_BYTES_MAX);
    assert_true(ps_move_at_once(&f->ix, 77, ps_next_bucket_count(most)));
    assert_int_equal(f->ix.bytes % PS_ARENA_HUGE_PAGE_BYTES, 0);
}

/* After most keys have gone, partitions grow by small steps again, from the sizes that they have now. */
TEST(test_growth_begins_again_after_keys_have_gone, set_up, tear_down)
{
    enum { MANY = EVEN_PARTITIONS * 400, FEW = EVEN_PARTITIONS * 60, MORE = EVEN_PARTITIONS * 80 };
    static uint64_t hashes[MANY];
    struct fixture *f = *state;
    uint64_t rng = fixture_seed("growth begins again");
    for (uint32_t i = 0; i < MANY; i++) {
        hashes[i] = even_hash(&rng, i);
        assert_true(ps_index_insert(&f->ix, hashes[i], 0, false)); /* no row's number holds a size up */
    }
    for (uint32_t i = FEW; i < MANY; i++)
        ps_index_remove(&f->ix, ps_index_find(&f->ix, hashes[i]));
    maintain_to_the_end(f);
    for (uint32_t i = FEW; i < MORE; i++)
        assert_true(ps_index_insert(&f->ix, hashes[i], 0, false));
    uint32_t least = UINT32_MAX, most = 0;
    for (uint32_t i = 0; i < EVEN_PARTITIONS; i++) {
        const uint32_t count = f->ix.partitions[i].bucket_count;
        least = count < least ? count : least;
        most = count > most ? count : most;
    }
    assert_true(most <= ps_next_bucket_count(ps_next_bucket_count(least)));
}

/* What waited for upkeep waits for it no more, and what is put in and removed afterwards does. */
TEST(test_clear_leaves_nothing_to_tidy, set_up, tear_down)
{
    enum { COUNT = 50000 };
    struct fixture *f = *state;
    for (uint32_t round = 0; round < 2; round++) {
        uint16_t version = f->ix.versions[7];
        for (uint32_t i = 0; i < COUNT; i++)
            insert(f, i);
        for (uint32_t i = 0; i < COUNT; i++)
            remove_key(f, i);
        assert_true(f->ix.untidy_count > 0);
        if (round == 0)
            ps_index_clear(&f->ix);
        assert_int_not_equal(f->ix.versions[7], version);
        check_counts(&f->ix);
        maintain_to_the_end(f);
        assert_int_equal(f->ix.bytes, 0);
    }
    uint16_t version = f->ix.versions[7];
    ps_index_clear(&f->ix);
    assert_int_not_equal(f->ix.versions[7], version); /* cursors of before look again */
}

/* The arena's memory, or what the owner allows. */
static void check_no_memory(size_t bytes_max)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    f->arena = ps_arena_create(PS_ARENA_LIMIT_BYTES_MIN);
    assert_non_null(f->arena);
    const struct ps_key_secret secret = fixture_key_secret();
    const struct ps_key_hasher hasher = ps_key_hasher_of(1, &secret);
    ps_index_init(&f->ix, f->arena, &hasher);
    f->ix.bytes_max = bytes_max;
    uint64_t key = 0;
    while (ps_index_insert(&f->ix, hash_of(f, key), row_for(f, hash_of(f, key)), false)) {
        assert_true(f->ix.bytes <= bytes_max);
        key++;
    }
    assert_int_equal(f->ix.rows, key);
    assert_int_equal(index_find(f, key), UINT32_MAX);
    memset(f->row_ends, 0, sizeof(f->row_ends));
    for (uint64_t i = 0; i < key; i++)
        assert_int_equal(index_find(f, i), row_for(f, hash_of(f, i)));
    ps_index_clear(&f->ix);
    ps_arena_destroy(f->arena);
    free(f);
}

TEST(test_no_memory_changes_nothing)
{
    check_no_memory(SIZE_MAX);
    check_no_memory(1000000);
}

/* Keys come and go at random, in few and in many partitions, with upkeep now and then or never. */
static void keys_come_and_go(struct fixture *f, uint64_t *rng, uint32_t partitions, bool maintain)
{
    enum { KEYS = 4000, STEPS = 150000 };
    static uint64_t keys[KEYS];
    static uint32_t rows[KEYS];
    static bool there[KEYS];
    uint32_t count = 0;
    memset(f->row_ends, 0, sizeof(f->row_ends));
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = key_in_partitions(f, rng, 0, partitions);
        rows[i] = row_for(f, hash_of(f, keys[i]));
        there[i] = false;
    }
    for (uint32_t i = 0; i < STEPS; i++) {
        uint32_t which = random_below(rng, KEYS / (1 + i / 10000 % 3));
        assert_int_equal(index_find(f, keys[which]), there[which] ? rows[which] : UINT32_MAX);
        if (there[which])
            remove_key(f, keys[which]);
        else
            assert_true(ps_index_insert(&f->ix, hash_of(f, keys[which]), rows[which], false));
        there[which] = !there[which];
        count += there[which] ? 1 : UINT32_MAX;
        assert_int_equal(f->ix.rows, count);
        uint64_t budget = random_below(rng, 2000);
        if (maintain && i % 100 == 0)
            ps_index_maintain(&f->ix, f->row_ends, &budget);
    }
    for (uint32_t i = 0; i < KEYS; i++)
        assert_int_equal(index_find(f, keys[i]), there[i] ? rows[i] : UINT32_MAX);
    check_counts(&f->ix);
    ps_index_clear(&f->ix);
}

TEST(test_keys_come_and_go, set_up, tear_down)
{
    struct fixture *f = *state;
    uint64_t rng = fixture_seed("keys come and go");
    for (uint32_t i = 0; i < 6; i++)
        keys_come_and_go(f, &rng, (uint32_t[]){1, 7, 400}[i / 2], i % 2 == 0);
}

TEST(test_removing_most_keys_gives_the_memory_back, set_up, tear_down)
{
    enum { COUNT = 400000, LEFT = 40000 };
    struct fixture *f = *state;
    static uint32_t rows[COUNT];
    for (uint32_t i = 0; i < LEFT; i++)
        rows[i] = insert(f, i);
    size_t small_bytes = f->ix.bytes;
    uint32_t ends[PS_ROW_GROUPS];
    memcpy(ends, f->row_ends, sizeof(ends));
    for (uint32_t i = LEFT; i < COUNT; i++)
        rows[i] = insert(f, i);
    for (uint32_t i = LEFT; i < COUNT; i++)
        remove_key(f, i);
    maintain_to_the_end(f); /* as far as row numbers allow: the same rows are still there */
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(index_find(f, i), i < LEFT ? rows[i] : UINT32_MAX);
    memcpy(f->row_ends, ends, sizeof(ends)); /* as it is: no row has a higher number */
    for (uint32_t i = 0; i < PS_ROW_GROUPS; i++)
        ps_index_tidy_group(&f->ix, i);
    maintain_to_the_end(f);
    assert_true(f->ix.bytes <= small_bytes + small_bytes / 4);
    assert_int_equal(ps_arena_allocated_bytes(f->arena), f->ix.bytes);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(index_find(f, i), i < LEFT ? rows[i] : UINT32_MAX);
    for (uint32_t i = 0; i < LEFT; i++)
        remove_key(f, i);
    maintain_to_the_end(f);
    assert_int_equal(f->ix.bytes, 0);
}

/* Made large enough ahead it is not made larger again; in few parts or many, it is no larger than it need
 * be. */
TEST(test_room_is_reserved, set_up, tear_down)
{
    enum { PARTITION = 77, COUNT = 5000 };
    static uint32_t rows[COUNT];
    static uint64_t keys[COUNT];
    static const uint32_t parts[] = {COUNT, COUNT / 2, 100};
    struct fixture *f = *state;
    uint64_t rng = fixture_seed("reserve");
    for (uint32_t i = 0; i < COUNT; i++)
        keys[i] = key_in_partitions(f, &rng, PARTITION, PARTITION + 1);
    for (size_t p = 0; p < sizeof(parts) / sizeof(*parts); p++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            if (i % parts[p] == 0) {
                ps_index_reserve(&f->ix, PARTITION, i + parts[p]);
                uint64_t rewrites = f->ix.rewrites;
                ps_index_reserve(&f->ix, PARTITION, i);
                ps_index_reserve(&f->ix, PARTITION, ps_partition_rows_max(&f->ix.partitions[PARTITION]));
                assert_int_equal(f->ix.rewrites, rewrites);
            }
            uint32_t bucket_count = f->ix.partitions[PARTITION].bucket_count;
            rows[i] = insert(f, keys[i]);
            assert_true(parts[p] < COUNT || f->ix.partitions[PARTITION].bucket_count == bucket_count);
        }
        for (uint32_t i = 0; i < COUNT; i++)
            assert_int_equal(index_find(f, keys[i]), rows[i]);
        assert_true(f->ix.bytes < COUNT * sizeof(uint64_t) * 4 / 3);
        ps_index_clear(&f->ix);
        memset(f->row_ends, 0, sizeof(f->row_ends));
    }
}

/* One that is being moved in steps is through with that first. */
TEST(test_room_is_reserved_for_a_partition_on_its_way, set_up, tear_down)
{
    enum { COUNT = 200000 };
    struct fixture *f = *state;
    static uint32_t rows[COUNT];
    uint32_t reserved = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        rows[i] = insert(f, i);
        uint32_t partition = f->ix.move.partition;
        if (partition == PS_PARTITION_NONE || reserved++ % 8 != 0)
            continue;
        ps_index_reserve(&f->ix, partition, 4 * f->ix.partition_rows[partition]);
        assert_int_equal(f->ix.move.partition, PS_PARTITION_NONE);
    }
    assert_true(reserved > 8);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(index_find(f, i), rows[i]);
}

/* A partition's old buckets may lie right behind its new ones: each belongs to its own array. */
TEST(test_arrays_that_touch_are_told_apart, set_up, tear_down)
{
    enum { NEW = 3, OLD = 5 };
    static struct ps_bucket buckets[NEW + OLD];
    struct fixture *f = *state;
    const struct ps_bucket_array old = {buckets + NEW, OLD};
    uint64_t rng = fixture_seed("touching"), hash;
    do
        hash = hash_of(f, key_in_partitions(f, &rng, 33, 34));
    while (ps_home_number(hash, OLD) != 0);
    f->ix.partitions[33] = (struct ps_partition){buckets, NEW, ps_entry_limit(NEW)};
    f->ix.move = (struct ps_index_move){.partition = 33, .bucket_count = OLD, .buckets = old.buckets};
    assert_true(ps_entry_place(&f->ix, old, hash, 7, f->ix.base));
    struct ps_place place = ps_index_find(&f->ix, hash);
    assert_ptr_equal(place.bucket, old.buckets);
    assert_int_equal(ps_index_hash_at(&f->ix, place), hash);
    f->ix.partitions[33] = ps_partition_without_buckets();
    f->ix.move.partition = PS_PARTITION_NONE;
}

/* Near its load, an index takes others for keys that go, again and again, and gets no larger. */
TEST(test_keys_are_exchanged_in_place, set_up, tear_down)
{
    enum { COUNT = 100000, ROUNDS = 10 };
    struct fixture *f = *state;
    static uint32_t rows[COUNT];
    for (uint32_t i = 0; i < COUNT; i++)
        rows[i] = insert(f, i);
    size_t bytes = f->ix.bytes;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            remove_key(f, (uint64_t)(round - 1) * COUNT + i);
            (void)insert(f, (uint64_t)round * COUNT + i);
        }
        memset(f->row_ends, 0, sizeof(f->row_ends)); /* numbers need not be distinct for the index */
        maintain_to_the_end(f);
    }
    assert_true(f->ix.bytes < bytes + bytes / 3);
    assert_true(rows[0] != UINT32_MAX);
}

/* Where a core owns a few of them, the others' turn to grow is passed over. */
TEST(test_partitions_without_keys_do_not_grow, set_up, tear_down)
{
    enum { OWN = 4 * PS_GROUP_PARTITIONS, ROWS = OWN * 200 };
    struct fixture *f = *state;
    uint64_t rng = fixture_seed("a few partitions");
    for (uint32_t i = 0; i < ROWS; i++) {
        uint64_t hash = (uint64_t)(i % OWN) << 52 | random_next(&rng) >> 12;
        assert_true(ps_index_insert(&f->ix, hash, row_for(f, hash), false));
    }
    assert_int_equal(f->ix.partitions_used, OWN);
    check_counts(&f->ix);
}
