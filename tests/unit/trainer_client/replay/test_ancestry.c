#include "trainer_client/replay/ancestry.h"
#include "tests/test.h"

typedef uint64_t start[MR_LIST_START_WORDS];

static bool lacks_of(struct mrc_ancestry *a, uint64_t start_id, const struct mrc_origin *origin)
{
    mrc_ancestry_judge(a, start_id, origin);
    assert_true(mrc_ancestry_knows(a, start_id));
    return mrc_ancestry_lacks(a, start_id);
}

static bool lacks(struct mrc_ancestry *a, uint64_t start_id, const start *starts, uint32_t count)
{
    const struct mrc_origin origin = {.starts = starts, .count = count, .same_lineage = true};
    return lacks_of(a, start_id, &origin);
}

static struct mrc_ancestry met(uint64_t start_id, uint64_t checkpoint)
{
    struct mrc_ancestry a = {.start_id = 0};
    mrc_ancestry_meet(&a, start_id);
    mrc_ancestry_saved(&a, 0, checkpoint);
    return a;
}

TEST(test_the_newest_checkpoint_has_all)
{
    struct mrc_ancestry a = met(10, 5);
    assert_false(lacks(&a, 11, (start[]){{11, 5}, {10, 0}}, 2));
    mrc_ancestry_saved(&a, 0, 5); /* what it loaded */
    assert_false(lacks(&a, 12, (start[]){{12, 5}, {10, 0}}, 2));
    mrc_ancestry_saved(&a, 0, 6);
    assert_false(lacks(&a, 13, (start[]){{13, 7}, {12, 5}, {10, 0}}, 3));
}

TEST(test_an_older_checkpoint_lacks)
{
    struct mrc_ancestry a = met(10, 5);
    mrc_ancestry_saved(&a, 0, 4); /* an answer that came late */
    assert_true(lacks(&a, 11, (start[]){{11, 4}, {10, 0}}, 2));
    assert_true(lacks(&a, 11, (start[]){{11, 4}, {10, 0}}, 2)); /* as was found */
    assert_false(mrc_ancestry_lacks(&a, 10));
    /* From there on it is what counts. */
    assert_false(lacks(&a, 12, (start[]){{12, 4}, {10, 0}}, 2));
    assert_true(lacks(&a, 13, (start[]){{13, 3}, {10, 0}}, 2));
}

/* Starts that came and went, saved, and this client never met or never judged. */
TEST(test_starts_in_between)
{
    struct mrc_ancestry a = met(10, 5);
    assert_false(lacks(&a, 13, (start[]){{13, 9}, {12, 7}, {11, 5}, {10, 0}}, 4));
    assert_false(lacks(&a, 14, (start[]){{14, 9}, {12, 7}, {11, 5}, {10, 0}}, 4));
    assert_true(lacks(&a, 15, (start[]){{15, 8}, {12, 7}, {11, 5}, {10, 0}}, 4));
    a = met(10, 5);
    assert_true(lacks(&a, 13, (start[]){{13, 9}, {12, 7}, {11, 4}, {10, 0}}, 4));
}

TEST(test_nothing_on_disk_is_nothing_to_lack)
{
    struct mrc_ancestry a = met(10, 0);
    assert_false(lacks(&a, 11, (start[]){{11, 0}}, 1));
    assert_false(lacks(&a, 12, NULL, 0));
}

/* An older copy went on elsewhere, and has the same numbers. */
TEST(test_an_older_copy_that_went_on)
{
    struct mrc_ancestry a = met(10, 5);
    assert_true(lacks(&a, 21, (start[]){{21, 8}, {20, 3}, {10, 0}}, 3));
    a = met(10, 5);
    assert_true(lacks(&a, 21, (start[]){{21, 8}, {20, 3}}, 2)); /* whose starts are all unknown */
}

TEST(test_another_directory)
{
    const start starts[] = {{11, 5}, {10, 0}};
    const struct mrc_origin other = {.starts = starts, .count = 2};
    struct mrc_ancestry a = met(10, 5);
    assert_true(lacks_of(&a, 11, &other));
}

/* Somebody went back from everything by call: nobody wants it back; checkpoints of before count no more. */
TEST(test_restores_by_call)
{
    const start starts[] = {{11, 3}, {9, 0}};
    struct mrc_origin origin = {
        .starts = starts, .count = 2, .same_lineage = true, .restores = 2, .whole = 2};
    struct mrc_ancestry a = met(10, 5);
    assert_false(lacks_of(&a, 11, &origin));
    mrc_ancestry_saved(&a, 1, 6); /* of before */
    assert_int_equal(a.checkpoint, 3);
    mrc_ancestry_saved(&a, 3, 0); /* says nothing */
    assert_int_equal(a.restores, 2);
    mrc_ancestry_saved(&a, 3, 3); /* single features were restored */
    assert_int_equal(a.writer, 9);
    assert_int_equal(a.restores, 3);
    /* The copy does not know of the third. */
    origin.starts = (const start[]){{12, 3}, {9, 0}};
    assert_true(lacks_of(&a, 12, &origin));
    /* Of single features only: everything else is as it was. */
    origin.whole = 0;
    a = met(10, 5);
    assert_true(lacks_of(&a, 11, &origin));
}

TEST(test_answers_of_others_are_not_relied_on)
{
    struct mrc_ancestry a = met(10, 5);
    assert_true(mrc_ancestry_knows(&a, 10));
    assert_false(mrc_ancestry_knows(&a, 11));
    assert_false(lacks(&a, 11, (start[]){{11, 5}, {10, 0}}, 2));
    assert_false(mrc_ancestry_knows(&a, 10));
}
