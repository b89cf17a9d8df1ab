#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint_fixture.h"

static void save(const char *directory, uint64_t id)
{
    assert_int_equal(fixture_save(ps_store_local(), directory, id, 20).status, MR_OK);
}

static void make_directory(const char *directory, const char *name)
{
    char path[PS_PATH_BYTES];
    assert_true(ps_path_join(directory, name, path));
    assert_int_equal(mkdir(path, 0755), 0);
}

static void test_newest_first(void **state)
{
    static const uint64_t order[] = {5, 100, 9, 1, 11};
    uint64_t ids[8];
    for (size_t i = 0; i < 5; i++)
        save(*state, order[i]);
    make_directory(*state, "ckpt-007");
    make_directory(*state, "ckpt-x");
    make_directory(*state, "other");
    make_directory(*state, ".tmp-ckpt-200");
    static const uint64_t sorted[] = {100, 11, 9, 5, 1};
    assert_int_equal(ps_checkpoint_list(*state, ids, 8), 5);
    assert_memory_equal(ids, sorted, sizeof sorted);
    /* Little room: the newest ones, and how many there are. */
    memset(ids, 0, sizeof ids);
    assert_int_equal(ps_checkpoint_list(*state, ids, 2), 5);
    assert_memory_equal(ids, sorted, 2 * sizeof *sorted);
    assert_int_equal(ids[2], 0);
    assert_int_equal(ps_checkpoint_list(*state, NULL, 0), 5);
    assert_int_equal(ps_checkpoint_list("/nowhere/at/all", ids, 8), 0);
}

static void test_retain_keeps_the_newest(void **state)
{
    uint64_t ids[8];
    for (uint64_t id = 1; id <= 5; id++)
        save(*state, id);
    make_directory(*state, "other");
    ps_checkpoint_retain(*state, 2);
    assert_int_equal(ps_checkpoint_list(*state, ids, 8), 2);
    assert_int_equal(ids[0], 5);
    assert_int_equal(ids[1], 4);
    assert_int_equal(fixture_count(*state, ""), 3);
    ps_checkpoint_retain(*state, 0); /* never all of them */
    assert_int_equal(ps_checkpoint_list(*state, ids, 8), 1);
    struct ps_reader *r;
    char text[PS_TEXT_BYTES];
    assert_int_equal(ps_reader_open(*state, 0, &r, text), MR_OK);
    assert_int_equal(ps_reader_id(r), 5);
    ps_reader_close(r);
}

static void test_retain_removes_what_dead_writers_left(void **state)
{
    save(*state, 1);
    make_directory(*state, ".tmp-ckpt-2");
    struct ps_writer *live;
    char text[PS_TEXT_BYTES];
    assert_int_equal(fixture_start(ps_store_local(), *state, 3, &live, text), MR_OK);
    ps_checkpoint_retain(*state, 5);
    assert_int_equal(fixture_count(*state, ".tmp-ckpt-2"), 0);
    assert_int_equal(fixture_count(*state, ".tmp-ckpt-3"), 1);
    for (uint32_t core = 0; core < FIXTURE_CORES; core++)
        ps_writer_core_done(live, core);
    assert_int_equal(fixture_finish(live).status, MR_OK);
    assert_int_equal(fixture_count(*state, "ckpt-"), 2);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_newest_first),
        CASE(test_retain_keeps_the_newest),
        CASE(test_retain_removes_what_dead_writers_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
