/* Retention: chains go as a whole, and at whatever call it stops, each checkpoint that is left has its
 * parents. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "chain_fixture.h"
#include "fault_store.h"
#include "tests/test.h"

/* A full and its deltas: first, first + 1, .. last. */
static void save_chain(const char *directory, uint64_t first, uint64_t last)
{
    chain_save_key(directory, first, 0, 1, (uint8_t)first);
    for (uint64_t id = first + 1; id <= last; id++)
        chain_save_key(directory, id, id - 1, (uint32_t)id % CHAIN_KEYS, (uint8_t)(id % 100 + 1));
}

static void check_ids(const char *directory, const uint64_t *expected, uint32_t count)
{
    uint64_t ids[16];
    assert_int_equal(ps_checkpoint_list(NULL, directory, ids, 16), count);
    assert_memory_equal(ids, expected, count * sizeof(*ids));
    assert_int_equal(fixture_count(directory, ".tmp-"), 0);
}

TEST(test_the_newest_chains_stay_whole, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    save_chain(directory, 1, 3);
    save_chain(directory, 4, 4);
    save_chain(directory, 5, 6);
    ps_checkpoint_retain(NULL, directory, &(struct ps_retention){.keep = 3});
    check_ids(directory, (const uint64_t[]){6, 5, 4, 3, 2, 1}, 6);
    ps_checkpoint_retain(NULL, directory, &(struct ps_retention){.keep = 2});
    check_ids(directory, (const uint64_t[]){6, 5, 4}, 3);
    ps_checkpoint_retain(NULL, directory, &(struct ps_retention){.keep = 0}); /* never all of them */
    check_ids(directory, (const uint64_t[]){6, 5}, 2);
}

/* As new as its newest link, not as its full. */
TEST(test_a_chain_that_goes_on_is_new, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    save_chain(directory, 1, 2);
    save_chain(directory, 3, 3);
    chain_save_key(directory, 4, 2, 1, 9);
    ps_checkpoint_retain(NULL, directory, &(struct ps_retention){.keep = 1});
    check_ids(directory, (const uint64_t[]){4, 2, 1}, 3);
}

TEST(test_a_branch_belongs_to_its_chain, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    save_chain(directory, 1, 3);
    chain_save_key(directory, 4, 2, 1, 9);
    save_chain(directory, 5, 5);
    ps_checkpoint_retain(NULL, directory, &(struct ps_retention){.keep = 2});
    check_ids(directory, (const uint64_t[]){5, 4, 3, 2, 1}, 5);
    ps_checkpoint_retain(NULL, directory, &(struct ps_retention){.keep = 1});
    check_ids(directory, (const uint64_t[]){5}, 1);
}

/* Nothing broken takes the place of something whole. */
TEST(test_what_is_broken_does_not_count, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    save_chain(directory, 1, 2);
    save_chain(directory, 3, 4);
    save_chain(directory, 5, 6);
    assert_int_equal(unlink(fixture_path(directory, 3, PS_MANIFEST_NAME)), 0); /* 4 is lost with it */
    ps_checkpoint_retain(NULL, directory, &(struct ps_retention){.keep = 2});
    check_ids(directory, (const uint64_t[]){6, 5, 4, 3, 2, 1}, 6);
    save_chain(directory, 7, 7);
    ps_checkpoint_retain(NULL, directory,
                         &(struct ps_retention){.keep = 2}); /* older than all that stays: it goes */
    check_ids(directory, (const uint64_t[]){7, 6, 5}, 3);
}

TEST(test_nothing_goes_when_nothing_is_whole, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    save_chain(directory, 1, 2);
    assert_int_equal(unlink(fixture_path(directory, 1, PS_MANIFEST_NAME)), 0);
    ps_checkpoint_retain(NULL, directory, &(struct ps_retention){.keep = 1});
    check_ids(directory, (const uint64_t[]){2, 1}, 2);
}

/* A server of an older version runs on the directory for a while: what it cannot read, and what that may be
 * based on, stays. */
TEST(test_a_newer_format_stays_with_all_before_it, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    save_chain(directory, 1, 2);
    save_chain(directory, 3, 4);
    fixture_make_newer(directory, 4);
    save_chain(directory, 5, 5);
    save_chain(directory, 6, 7);
    ps_checkpoint_retain(NULL, directory, &(struct ps_retention){.keep = 1});
    check_ids(directory, (const uint64_t[]){7, 6, 4, 3, 2, 1}, 6);
    fixture_make_newer(directory, 7);
    ps_checkpoint_retain(NULL, directory, &(struct ps_retention){.keep = 1});
    check_ids(directory, (const uint64_t[]){7, 6, 4, 3, 2, 1}, 6);
}

TEST(test_what_has_unknown_content_stays_with_all_before_it, temporary_directory_setup,
     temporary_directory_teardown)
{
    const char *directory = *state;
    save_chain(directory, 1, 2);
    save_chain(directory, 3, 4);
    fixture_rewrite(fixture_path(directory, 4, PS_MANIFEST_NAME), "features", "optimizer", json_integer(17));
    save_chain(directory, 5, 5);
    save_chain(directory, 6, 7);
    ps_checkpoint_retain(NULL, directory, &(struct ps_retention){.keep = 1});
    check_ids(directory, (const uint64_t[]){7, 6, 4, 3, 2, 1}, 6);
}

TEST(test_what_is_being_read_stays, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    struct ps_reader *r;
    char text[PS_TEXT_BYTES];
    uint8_t values[CHAIN_KEYS];
    save_chain(directory, 1, 3);
    save_chain(directory, 4, 5);
    save_chain(directory, 6, 6);
    assert_int_equal(ps_reader_open_unread(NULL, directory, 3, &r, text), MR_OK);
    ps_checkpoint_retain(NULL, directory, &(struct ps_retention){.keep = 1});
    check_ids(directory, (const uint64_t[]){6, 3, 2, 1}, 4);
    chain_read(r, 3, values);
    assert_int_equal(values[3], 4);
    ps_reader_close(r);
    ps_checkpoint_retain(NULL, directory, &(struct ps_retention){.keep = 1});
    check_ids(directory, (const uint64_t[]){6}, 1);
}

/* All that is left can be restored. */
static uint32_t check_all_whole(const char *directory)
{
    uint64_t ids[16];
    uint32_t count = ps_checkpoint_list(NULL, directory, ids, 16);
    for (uint32_t i = 0; i < count; i++) {
        struct ps_reader *r;
        char text[PS_TEXT_BYTES];
        if (ps_reader_open_unread(NULL, directory, ids[i], &r, text) != MR_OK)
            fail_msg("%s", text);
        ps_reader_close(r);
    }
    return count;
}

/* The process dies in the middle of retention, at each of its calls; then it is done again. */
TEST(test_no_delta_lacks_its_parent_wherever_it_stops, temporary_directory_setup,
     temporary_directory_teardown)
{
    const char *directory = *state;
    struct fault_store f;
    bool reached = true;
    for (uint32_t n = 1; reached; n++) {
        const uint64_t first = 10ull * n;
        save_chain(directory, first, first + 2);
        save_chain(directory, first + 3, first + 3);
        fault_store_init(&f);
        f.mode = FAULT_FOR_EVER;
        f.fail_at = n;
        ps_checkpoint_retain(&f.store, directory, &(struct ps_retention){.keep = 1});
        reached = f.triggered;
        assert_int_in_range(check_all_whole(directory), 1, 5);
        fault_store_init(&f);
        ps_checkpoint_retain(&f.store, directory, &(struct ps_retention){.keep = 1});
        check_ids(directory, (const uint64_t[]){first + 3}, 1);
        assert_true(n < 1000);
    }
}

/* A single call fails: no chain that should stay goes for it. */
TEST(test_a_failing_disk_loses_nothing_that_should_stay, temporary_directory_setup,
     temporary_directory_teardown)
{
    const char *directory = *state;
    static const int errors[] = {EIO, EMFILE};
    struct fault_store f;
    for (size_t i = 0; i < 2; i++) {
        bool reached = true;
        for (uint32_t n = 1; reached; n++) {
            const uint64_t first = 100000ull * (i + 1) + 10ull * n;
            save_chain(directory, first, first + 1);
            save_chain(directory, first + 2, first + 2);
            fault_store_init(&f);
            f.mode = FAULT_ONCE;
            f.error = errors[i];
            f.fail_at = n;
            ps_checkpoint_retain(&f.store, directory, &(struct ps_retention){.keep = 1});
            reached = f.triggered;
            check_all_whole(directory);
            struct ps_reader *r;
            char text[PS_TEXT_BYTES];
            assert_int_equal(ps_reader_open_unread(NULL, directory, first + 2, &r, text), MR_OK);
            assert_int_equal(ps_reader_manifest(r)->id, first + 2);
            ps_reader_close(r);
            ps_checkpoint_retain(NULL, directory, &(struct ps_retention){.keep = 1});
        }
    }
}

/* ---- who asked for them ---- */

static void save_chain_by_trainer(const char *directory, uint64_t first, uint64_t last)
{
    save_chain(directory, first, last);
    for (uint64_t id = first; id <= last; id++) {
        FILE *file = fopen(fixture_path(directory, id, PS_BY_TRAINER_NAME), "w");
        assert_non_null(file);
        assert_int_equal(fclose(file), 0);
    }
}

static void set_age(const char *directory, uint64_t id, int64_t age_s)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = time(NULL) - age_s}};
    assert_int_equal(utimensat(AT_FDCWD, fixture_path(directory, id, PS_MANIFEST_NAME), times, 0), 0);
}

TEST(test_what_trainers_ask_for_displaces_nothing_else, temporary_directory_setup,
     temporary_directory_teardown)
{
    const char *directory = *state;
    const struct ps_retention retention = {.keep = 2, .keep_trainers = 3};
    save_chain(directory, 1, 1);
    save_chain(directory, 2, 3);
    save_chain(directory, 4, 4);
    for (uint64_t id = 5; id <= 10; id++) {
        save_chain_by_trainer(directory, id, id);
        ps_checkpoint_retain(NULL, directory, &retention);
    }
    check_ids(directory, (const uint64_t[]){10, 9, 8, 4, 3, 2}, 6);
    save_chain(directory, 11, 11);
    ps_checkpoint_retain(NULL, directory, &retention);
    check_ids(directory, (const uint64_t[]){11, 10, 9, 8, 4}, 5);
}

/* What builds on a trainer's is the node's, and needs it. */
TEST(test_a_chain_of_both_is_not_the_trainers, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    save_chain_by_trainer(directory, 1, 1);
    chain_save_key(directory, 2, 1, 1, 9);
    for (uint64_t id = 3; id <= 6; id++)
        save_chain_by_trainer(directory, id, id);
    ps_checkpoint_retain(NULL, directory, &(struct ps_retention){.keep = 1, .keep_trainers = 1});
    check_ids(directory, (const uint64_t[]){6, 2, 1}, 3);
    save_chain(directory, 7, 7);
    ps_checkpoint_retain(NULL, directory, &(struct ps_retention){.keep = 1, .keep_trainers = 1});
    check_ids(directory, (const uint64_t[]){7, 6}, 2);
}

TEST(test_elsewhere_only_trainers_checkpoints_go, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    const struct ps_retention retention = {.keep = 1, .keep_trainers = 1, .trainers_only = true};
    save_chain(directory, 1, 2);
    assert_int_equal(unlink(fixture_path(directory, 1, PS_MANIFEST_NAME)), 0);
    save_chain(directory, 3, 3);
    save_chain(directory, 4, 4);
    save_chain_by_trainer(directory, 5, 5);
    save_chain_by_trainer(directory, 6, 6);
    ps_checkpoint_retain(NULL, directory, &retention);
    check_ids(directory, (const uint64_t[]){6, 4, 3, 2, 1}, 5);
}

/* A burst of saves leaves what was there before it until that has its age. */
TEST(test_a_burst_does_not_displace_what_was_before_it, temporary_directory_setup,
     temporary_directory_teardown)
{
    const char *directory = *state;
    const struct ps_retention retention = {.keep = 3, .keep_trainers = 2, .least_age_s = 3600};
    for (uint64_t id = 1; id <= 9; id++) {
        save_chain(directory, id, id);
        ps_checkpoint_retain(NULL, directory, &retention);
    }
    check_ids(directory, (const uint64_t[]){9, 2, 1}, 3);
    set_age(directory, 1, 3700);
    set_age(directory, 2, -3700); /* the clock was wrong: that says nothing */
    save_chain(directory, 10, 10);
    ps_checkpoint_retain(NULL, directory, &retention);
    check_ids(directory, (const uint64_t[]){10, 9, 2}, 3);
    save_chain(directory, 11, 11);
    ps_checkpoint_retain(NULL, directory, &retention);
    check_ids(directory, (const uint64_t[]){11, 10, 9}, 3);
    for (uint64_t id = 12; id <= 15; id++) {
        save_chain_by_trainer(directory, id, id);
        ps_checkpoint_retain(NULL, directory, &retention);
    }
    check_ids(directory, (const uint64_t[]){15, 12, 11, 10, 9}, 5);
}
