/* Keys that someone chose for where they would lie, as if the node's secret was known. */
#include "index_fixture.h"
#include "ps/index/index_internal.h"
#include "tests/test.h"

#define CHOSEN_PARTITION 0x123u

static uint64_t placements; /* entries put into a bucket, or tried to be */

bool __real_ps_entry_place(struct ps_index *ix, struct ps_bucket_array to, uint64_t hash, uint32_t row,
                           uint32_t state);
bool __wrap_ps_entry_place(struct ps_index *ix, struct ps_bucket_array to, uint64_t hash, uint32_t row,
                           uint32_t state);
bool __wrap_ps_entry_place(struct ps_index *ix, struct ps_bucket_array to, uint64_t hash, uint32_t row,
                           uint32_t state)
{
    placements++;
    return __real_ps_entry_place(ix, to, hash, row, state);
}

static uint64_t hash_in_chosen(uint64_t *rng)
{
    return random_next(rng) >> 12 | (uint64_t)CHOSEN_PARTITION << 52;
}

static bool share_both_buckets(uint64_t a, uint64_t b, uint32_t bucket_count)
{
    uint32_t home = ps_home_number(a, bucket_count), other = ps_other_number(a, home, bucket_count);
    uint32_t home_b = ps_home_number(b, bucket_count), other_b = ps_other_number(b, home_b, bucket_count);
    return (home == home_b && other == other_b) || (home == other_b && other == home_b);
}

/* Hashes that have the same two buckets of so many. */
static void index_chosen_choose(uint64_t *rng, uint32_t bucket_count, uint64_t *hashes, uint32_t count)
{
    uint64_t first = hash_in_chosen(rng);
    uint32_t home = ps_home_number(first, bucket_count), other = ps_other_number(first, home, bucket_count);
    for (uint32_t i = 0; i < count;) {
        uint64_t hash = hash_in_chosen(rng);
        if (ps_home_number(hash, bucket_count) == home && ps_other_number(hash, home, bucket_count) == other)
            hashes[i++] = hash;
    }
}

static void check_found(struct fixture *f, const uint64_t *hashes, uint32_t count, uint32_t first_row)
{
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(find_hash(&f->ix, hashes[i]), first_row + i);
}

/* The partition has 64 buckets at least, and no key. */
static void make_large(struct fixture *f, uint64_t *rng)
{
    const struct ps_partition *p = &f->ix.partitions[CHOSEN_PARTITION];
    uint64_t filling = *rng;
    uint32_t rows = 0;
    while (p->bucket_count < 64 || f->ix.move.partition != PS_PARTITION_NONE)
        assert_true(ps_index_insert(&f->ix, hash_in_chosen(&filling), rows++, false));
    for (uint32_t i = 0; i < rows; i++)
        ps_index_remove(&f->ix, ps_index_find(&f->ix, hash_in_chosen(rng)));
}

/* Places there are, and yet not for these: most are refused, for no memory, whatever their row's number
 * is, and others come as before. */
TEST(test_keys_chosen_to_collide_are_refused, set_up, tear_down)
{
    enum { CHOSEN = 40, OTHERS = 200 };
    struct fixture *f = *state;
    uint64_t rng = fixture_seed("chosen"), chosen[CHOSEN], others[OTHERS];
    const struct ps_partition *p = &f->ix.partitions[CHOSEN_PARTITION];
    make_large(f, &rng);
    size_t bytes = f->ix.bytes;
    index_chosen_choose(&rng, p->bucket_count, chosen, CHOSEN);
    for (uint32_t i = 0; i < CHOSEN; i++) {
        uint32_t row = i == CHOSEN - 1 ? ps_row_max(p->bucket_count) : i;
        assert_true(ps_index_insert(&f->ix, chosen[i], row, false) == (i < 2 * PS_BUCKET_KEYS));
    }
    for (uint32_t i = 0; i < OTHERS; i++) {
        do
            others[i] = hash_in_chosen(&rng);
        while (share_both_buckets(others[i], chosen[0], p->bucket_count));
        assert_true(ps_index_insert(&f->ix, others[i], CHOSEN + i, false));
    }
    assert_int_equal(f->ix.bytes, bytes);
    check_found(f, chosen, 2 * PS_BUCKET_KEYS, 0);
    check_found(f, others, OTHERS, CHOSEN);
    for (uint32_t i = 2 * PS_BUCKET_KEYS; i < CHOSEN; i++)
        assert_int_equal(find_hash(&f->ix, chosen[i]), UINT32_MAX);
}

/* Of more keys than two buckets hold, chosen for having the same two once their partition gets to a size: it
 * passes that one over, and neither they nor others are refused. */
TEST(test_keys_chosen_against_growth_do_not_keep_a_partition_small, set_up, tear_down)
{
    enum { SIZES = 5, CHOSEN = 24, OTHERS = 1500 };
    static const uint32_t sizes[SIZES] = {9, 20, 34, 36, 72};
    struct fixture *f = *state;
    uint64_t rng = fixture_seed("against growth"), chosen[SIZES * CHOSEN], others[OTHERS];
    const struct ps_partition *p = &f->ix.partitions[CHOSEN_PARTITION];
    for (uint32_t i = 0; i < SIZES; i++)
        index_chosen_choose(&rng, sizes[i], chosen + (size_t)i * CHOSEN, CHOSEN);
    for (uint32_t i = 0; i < SIZES * CHOSEN; i++)
        assert_true(ps_index_insert(&f->ix, chosen[i], i, false));
    for (uint32_t i = 0; i < OTHERS; i++) {
        others[i] = hash_in_chosen(&rng);
        assert_true(ps_index_insert(&f->ix, others[i], SIZES * CHOSEN + i, false));
        for (uint32_t j = 0; j < SIZES; j++)
            assert_false(p->bucket_count == sizes[j] && f->ix.move.partition == PS_PARTITION_NONE);
    }
    check_found(f, chosen, SIZES * CHOSEN, 0);
    check_found(f, others, OTHERS, SIZES * CHOSEN);
    assert_true(p->bucket_count > 72);
    f->row_ends[CHOSEN_PARTITION / PS_GROUP_PARTITIONS] = SIZES * CHOSEN + OTHERS;
    maintain_to_the_end(f);
    check_found(f, chosen, SIZES * CHOSEN, 0);
    assert_true(f->ix.bytes <= 300 * sizeof(struct ps_bucket));
}

/* Chosen against more sizes than are tried: what is there stays, and is found, through all refusals. */
TEST(test_keys_chosen_against_many_sizes_stay_where_they_are, set_up, tear_down)
{
    enum { SIZES = 12, CHOSEN = 18, OTHERS = 1000 };
    struct fixture *f = *state;
    uint64_t rng = fixture_seed("against many"), chosen[SIZES * CHOSEN], others[OTHERS];
    uint32_t rows[OTHERS], held = 0;
    for (uint32_t i = 0; i < SIZES; i++)
        index_chosen_choose(&rng, 34 + 2 * i, chosen + (size_t)i * CHOSEN, CHOSEN);
    for (uint32_t i = 0; i < SIZES * CHOSEN; i++)
        assert_true(ps_index_insert(&f->ix, chosen[i], i, false));
    for (uint32_t i = 0; i < OTHERS; i++) {
        others[i] = hash_in_chosen(&rng);
        bool is_in = ps_index_insert(&f->ix, others[i], SIZES * CHOSEN + i, false);
        rows[i] = is_in ? SIZES * CHOSEN + i : UINT32_MAX;
        held += is_in;
    }
    check_found(f, chosen, SIZES * CHOSEN, 0);
    for (uint32_t i = 0; i < OTHERS; i++)
        assert_int_equal(find_hash(&f->ix, others[i]), rows[i]);
    assert_int_equal(f->ix.rows, SIZES * CHOSEN + held);
    for (uint32_t i = 0; i < SIZES * CHOSEN; i++)
        ps_index_remove(&f->ix, ps_index_find(&f->ix, chosen[i]));
    for (uint32_t i = 0; i < OTHERS; i++)
        assert_int_equal(find_hash(&f->ix, others[i]), rows[i]);
}

/* Of so many buckets, from `first` on, each number holds too few of these keys; none is in the way of the
 * rest. */
static void choose_against(uint64_t *rng, uint32_t first, uint32_t sizes, uint64_t *hashes, uint32_t count)
{
    hashes[0] = hash_in_chosen(rng);
    for (uint32_t i = 1; i < count;) {
        bool is_chosen = true;
        hashes[i] = hash_in_chosen(rng);
        for (uint32_t size = first; size < first + sizes && is_chosen; size++)
            is_chosen = share_both_buckets(hashes[i], hashes[0], size);
        i += is_chosen;
    }
}

/* Four sizes are tried for what a partition has; then it stays as it is. */
TEST(test_growing_gives_up_after_a_few_sizes, set_up, tear_down)
{
    enum { CHOSEN = 2 * PS_BUCKET_KEYS + 1, BUCKETS = 3, TRIED = 4 };
    struct fixture *f = *state;
    const struct ps_partition *p = &f->ix.partitions[CHOSEN_PARTITION];
    uint64_t rng = fixture_seed("gives up"), hashes[CHOSEN];
    choose_against(&rng, BUCKETS + 1, TRIED, hashes, CHOSEN);
    ps_index_reserve(&f->ix, CHOSEN_PARTITION, CHOSEN);
    assert_int_equal(p->bucket_count, BUCKETS);
    for (uint32_t i = 0; i < CHOSEN; i++)
        assert_true(ps_index_insert(&f->ix, hashes[i], i, false));
    assert_false(ps_partition_grow(&f->ix, CHOSEN_PARTITION, 0));
    assert_int_equal(p->bucket_count, BUCKETS);
    assert_int_equal(f->ix.bytes, BUCKETS * sizeof(struct ps_bucket));
    check_found(f, hashes, CHOSEN, 0);
    assert_true(ps_move_at_once(&f->ix, CHOSEN_PARTITION, BUCKETS + TRIED + 1)); /* a fifth would do */
    check_found(f, hashes, CHOSEN, 0);
}

/* One key many times stands for keys that share two buckets of any number: a few sizes are tried for them,
 * and not all that there are, up to buckets of tens of MiB. */
TEST(test_few_sizes_are_tried_for_keys_that_fit_none, set_up, tear_down)
{
    enum { TWO_BUCKETS = 2 * PS_BUCKET_KEYS, FILLING = 4 };
    struct fixture *f = *state;
    uint64_t rng = fixture_seed("fit none"), hash, filling[FILLING];
    const struct ps_partition *p = &f->ix.partitions[CHOSEN_PARTITION];
    make_large(f, &rng);
    const uint32_t count = p->bucket_count;
    do
        hash = hash_in_chosen(&rng);
    while (ps_home_number(hash, count) < 8 || ps_other_number(hash, ps_home_number(hash, count), count) < 8);
    for (uint32_t i = 0; i < TWO_BUCKETS; i++)
        assert_true(ps_index_insert(&f->ix, hash, i, false));
    assert_true(ps_move_begin(&f->ix, CHOSEN_PARTITION, ps_next_bucket_count(count)));
    assert_true(ps_index_insert(&f->ix, hash, TWO_BUCKETS, false)); /* the others are not on their way yet */
    const uint64_t huge_pages_given = ps_arena_huge_pages_given(f->arena);
    ps_move_step(&f->ix, UINT32_MAX);
    assert_int_equal(f->ix.move.partition, CHOSEN_PARTITION);
    assert_int_equal(ps_arena_huge_pages_given(f->arena), huge_pages_given);
    /* With what was in the way gone it waits for more rows all the same, and then goes on. */
    const uint32_t done = f->ix.move.done;
    ps_index_remove(&f->ix, ps_index_find(&f->ix, hash));
    for (uint32_t i = 0; i < FILLING; i++) {
        filling[i] = hash_in_chosen(&rng);
        assert_true(ps_index_insert(&f->ix, filling[i], 0, false));
        assert_true(i > 0 || f->ix.move.done == done);
    }
    assert_true(f->ix.move.partition == PS_PARTITION_NONE || f->ix.move.done > done);
    for (uint32_t i = 0; i < TWO_BUCKETS; i++)
        ps_index_remove(&f->ix, ps_index_find(&f->ix, hash));
    for (uint32_t i = 0; i < FILLING; i++)
        ps_index_remove(&f->ix, ps_index_find(&f->ix, filling[i]));
    assert_int_equal(f->ix.rows, 0);
}

/* Whether or not they are refused, all of them together cost no more than a few moves each. */
TEST(test_keys_alike_cost_little_each, set_up, tear_down)
{
    enum { CHOSEN = 60000, SAME_BITS = 12, PLACEMENTS_EACH = 8 };
    struct fixture *f = *state;
    uint64_t rng = fixture_seed("alike");
    const uint64_t first = hash_in_chosen(&rng), same = ~(UINT64_MAX >> (12 + SAME_BITS));
    uint32_t held = 0;
    placements = 0;
    for (uint32_t i = 0; i < CHOSEN; i++)
        held += ps_index_insert(&f->ix, (first & same) | (random_next(&rng) & ~same), held, false);
    assert_int_equal(f->ix.rows, held);
    assert_int_in_range(placements, held, (uint64_t)CHOSEN * PLACEMENTS_EACH);
}

/* Partitions of any sizes, as keys that were chosen by their partition alone make them: no insert moves more
 * than a small partition as a whole, and what there is to move is moved in time. */
TEST(test_no_insert_moves_a_large_partition_as_a_whole, set_up, tear_down)
{
    enum { LARGE = 3, ROWS = 600000, SMALL = 1000 };
    static const uint32_t shares[LARGE] = {70, 25, 5}; /* of 100 keys */
    struct fixture *f = *state;
    uint64_t rng = fixture_seed("large partitions"), most = 0;
    uint32_t rows[LARGE + 1] = {0};
    for (uint32_t i = 0; i < ROWS; i++) {
        uint32_t draw = random_below(&rng, 100), which = 0;
        while (draw >= shares[which])
            draw -= shares[which++];
        uint64_t partition = which * PS_GROUP_PARTITIONS;
        if (i % 16 == 0) {
            which = LARGE;
            partition = (LARGE + random_below(&rng, SMALL) % 16) * PS_GROUP_PARTITIONS;
        }
        const uint64_t hash = random_next(&rng) >> 12 | partition << 52;
        placements = 0;
        assert_true(ps_index_insert(&f->ix, hash, which == LARGE ? i / 16 : rows[which]++, false));
        most = placements > most ? placements : most;
    }
    assert_true(f->ix.partitions[0].bucket_count > 8 * PS_BESIDE_BUCKETS_MAX);
    assert_int_in_range(most, 1, (PS_BESIDE_BUCKETS_MAX + 1) * PS_BUCKET_KEYS);
}
