/* Cuts and marks: what an entry's state means, whatever becomes of the entry. */
#include <stdlib.h>
#include <string.h>
#include "index_fixture.h"
#include "tests/test.h"

static uint64_t count_pending(const struct ps_index *ix)
{
    uint64_t pending = 0;
    for (uint32_t i = 0; i < MR_PARTITION_COUNT; i++)
        for (uint32_t j = 0; j < ps_index_bucket_count(ix, i); j++)
            pending += (uint64_t)__builtin_popcount(ps_bucket_pending(ix, ps_index_bucket(ix, i, j)));
    return pending;
}

static struct ps_place place_of(struct fixture *f, uint64_t key)
{
    struct ps_place place = ps_index_find(&f->ix, hash_of(f, key));
    assert_non_null(place.bucket);
    return place;
}

static bool is_pending(struct fixture *f, uint64_t key)
{
    return ps_entry_is_pending(&f->ix, *ps_place_entry(place_of(f, key)));
}

static bool is_marked(struct fixture *f, uint64_t key)
{
    return ps_index_is_marked(&f->ix, place_of(f, key));
}

static void emit(struct fixture *f, uint64_t key)
{
    struct ps_place place = place_of(f, key);
    assert_non_null(place.bucket);
    if (place.bucket != NULL) /* clang-tidy does not know that it fails else */
        ps_index_emitted(&f->ix, place.bucket, place.slot);
}

/* All that there is to emit is. */
static void emit_all(struct fixture *f)
{
    struct ps_index *ix = &f->ix;
    for (uint32_t i = 0; i < MR_PARTITION_COUNT; i++)
        for (uint32_t j = 0; j < ps_index_bucket_count(ix, i); j++) {
            struct ps_bucket *b = ps_index_bucket(ix, i, j);
            for (uint32_t pending = ps_bucket_pending(ix, b); pending != 0; pending &= pending - 1)
                ps_index_emitted(ix, b, (uint32_t)__builtin_ctz(pending));
        }
    ps_index_cut_end(ix, true);
}

/* What was there when the cut began is pending until it is emitted, however often entries move; what comes is
 * not. */
TEST(test_a_cut_goes_on_through_growth_removals_and_upkeep, set_up, tear_down)
{
    enum { COUNT = 60000, MORE = 300000 };
    struct fixture *f = *state;
    for (uint32_t i = 0; i < COUNT; i++)
        insert(f, i);
    assert_int_equal(ps_index_cut_begin(&f->ix, false), COUNT);
    assert_int_equal(count_pending(&f->ix), COUNT);
    for (uint32_t i = COUNT; i < MORE; i++)
        insert(f, i);
    assert_int_equal(count_pending(&f->ix), COUNT);
    for (uint32_t i = 0; i < MORE; i += 2)
        remove_key(f, i);
    maintain_to_the_end(f);
    assert_int_equal(count_pending(&f->ix), COUNT / 2);
    for (uint32_t i = 1; i < MORE; i += 2)
        assert_int_equal(is_pending(f, i), i < COUNT);
    emit_all(f);
    assert_int_equal(count_pending(&f->ix), 0);
    assert_int_equal(ps_index_cut_begin(&f->ix, false), MORE / 2);
    assert_int_equal(count_pending(&f->ix), MORE / 2);
}

/* Rows that change while a cut of marks runs are of the next one; marks and what is pending go with keys that
 * move. */
TEST(test_marks_go_through_cuts_growth_and_removals, set_up, tear_down)
{
    enum { COUNT = 20000, MORE = 300000 };
    struct fixture *f = *state;
    struct ps_index *ix = &f->ix;
    for (uint32_t i = 0; i < COUNT; i++)
        assert_true(ps_index_insert(ix, hash_of(f, i), row_for(f, hash_of(f, i)), i % 2 == 0));
    assert_int_equal(ix->marks, COUNT / 2);
    ps_index_mark(ix, place_of(f, 1));
    ps_index_mark(ix, place_of(f, 1));
    assert_int_equal(ix->marks, COUNT / 2 + 1);
    remove_key(f, 1);
    assert_int_equal(ps_index_cut_begin(ix, true), COUNT / 2);
    assert_int_equal(ix->marks, 0);
    for (uint32_t i = 7; i < COUNT; i += 14) { /* these are not pending */
        assert_false(is_pending(f, i));
        ps_index_mark(ix, place_of(f, i));
    }
    for (uint32_t i = COUNT; i < MORE; i++) /* partitions grow */
        assert_true(ps_index_insert(ix, hash_of(f, i), row_for(f, hash_of(f, i)), true));
    for (uint32_t i = 0; i < COUNT; i += 3)
        remove_key(f, i);
    maintain_to_the_end(f);
    uint64_t marks = 0, left = 0;
    for (uint32_t i = 2; i < MORE; i++) {
        if (i < COUNT && i % 3 == 0)
            continue;
        bool marked = i >= COUNT || i % 14 == 7;
        assert_int_equal(is_pending(f, i), i < COUNT && i % 2 == 0);
        assert_int_equal(is_marked(f, i), marked);
        marks += marked;
        left += i < COUNT && i % 2 == 0;
    }
    assert_int_equal(count_pending(ix), left);
    assert_int_equal(ix->marks, marks);
    emit_all(f);
    for (uint32_t i = 2; i < 1000; i++)
        assert_int_equal(i % 3 != 0 && is_marked(f, i), i % 3 != 0 && i % 14 == 7);
    assert_int_equal(ps_index_cut_begin(ix, true), marks);
    assert_int_equal(count_pending(ix), marks);
}

/* A row that is pending and is used is given out as it is then: it needs no mark. One that was given out gets
 * one. */
TEST(test_marks_of_rows_that_a_cut_has_still_to_have, set_up, tear_down)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < 1000; i++)
        assert_true(ps_index_insert(&f->ix, hash_of(f, i), row_for(f, hash_of(f, i)), true));
    assert_int_equal(ps_index_cut_begin(&f->ix, false), 1000);
    for (uint32_t i = 0; i < 1000; i++)
        assert_true(is_pending(f, i) && !is_marked(f, i));
    ps_index_mark(&f->ix, place_of(f, 5));
    assert_true(is_pending(f, 5) && !is_marked(f, 5));
    emit(f, 6);
    ps_index_mark(&f->ix, place_of(f, 6));
    assert_true(!is_pending(f, 6) && is_marked(f, 6));
    emit_all(f);
    assert_int_equal(ps_index_cut_begin(&f->ix, true), 1);
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(is_pending(f, i), i == 6);
}

/* Cuts of all keys and of marks in any order, as many as there are: the codes go round. */
TEST(test_many_cuts, set_up, tear_down)
{
    struct fixture *f = *state;
    uint64_t rng = fixture_seed("many cuts");
    for (uint32_t i = 0; i < 1000; i++)
        insert(f, i);
    (void)ps_index_cut_begin(&f->ix, false);
    emit_all(f);
    for (uint32_t cut = 0; cut < 200; cut++) {
        bool all = random_below(&rng, 3) == 0;
        uint32_t key = random_below(&rng, 500);
        ps_index_mark(&f->ix, place_of(f, key));
        assert_int_equal(ps_index_cut_begin(&f->ix, !all), all ? 1000 : 1);
        for (uint32_t i = 0; i < 1000; i++)
            assert_int_equal(is_pending(f, i), all || i == key);
        emit_all(f);
        assert_int_equal(f->ix.marks, 0);
    }
}

/* What a cut that was not brought to its end has left is swept, before the next one or by it. */
TEST(test_cuts_that_are_not_whole, set_up, tear_down)
{
    struct fixture *f = *state;
    uint64_t rng = fixture_seed("not whole");
    for (uint32_t i = 0; i < 3000; i++)
        insert(f, i);
    for (uint32_t cut = 0; cut < 60; cut++) {
        for (uint32_t i = 0; i < 10; i++)
            ps_index_mark(&f->ix, place_of(f, random_below(&rng, 3000)));
        bool all = cut % 2 == 0;
        uint64_t keys = ps_index_cut_begin(&f->ix, !all);
        assert_int_equal(count_pending(&f->ix), keys);
        for (uint32_t i = 0; i < 1000; i++)
            if (is_pending(f, i))
                emit(f, i);
        ps_index_mark(&f->ix, place_of(f, 2500 + cut));
        if (cut % 2 == 0) {
            ps_index_cut_end(&f->ix, false);
            assert_int_equal(count_pending(&f->ix), 0);
            uint64_t budget = random_below(&rng, 100000);
            ps_index_maintain(&f->ix, f->row_ends, &budget);
            assert_int_equal(ps_index_cut_begin(&f->ix, false), 3000);
            assert_int_equal(count_pending(&f->ix), 3000);
        }
        emit_all(f);
        uint64_t marks = 0;
        for (uint32_t i = 0; i < 3000; i++)
            marks += is_marked(f, i);
        assert_int_equal(marks, f->ix.marks);
    }
}
