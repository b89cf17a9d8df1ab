/* A checkpoint is written over a store that fails at its Nth call, for every N. Whatever happens, the newest
 * checkpoint that verifies afterwards is the old one or the new one, whole, and the next save succeeds. Power
 * failures: test_checkpoint_power.c. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint_fixture.h"
#include "fault_store.h"
#include "tests/test.h"

#define OLD_ROWS  500u
#define NEW_ROWS  60000u /* two blocks and more on each core */
#define CALLS_MAX 400u   /* more than a save makes: the loops below must end before */

/* Opens the newest that verifies: it must be `a` or `b`, with all its content. */
static uint64_t newest(const char *directory, uint64_t a, uint64_t b)
{
    struct ps_reader *r = NULL;
    char text[PS_TEXT_BYTES];
    assert_int_equal(ps_reader_open(NULL, directory, 0, &r, text), MR_OK);
    uint64_t id = ps_reader_manifest(r)->id;
    assert_true(id == a || id == b);
    fixture_check(r, id, id == 1 ? OLD_ROWS : NEW_ROWS);
    ps_reader_close(r);
    return id;
}

static void save_old(const char *directory)
{
    assert_int_equal(fixture_save(ps_store_local(), directory, 1, OLD_ROWS).status, MR_OK);
}

/* What a save asks of its store when a directory is there. */
#define SAVE_CALLS                                                                                           \
    (FAULT_MAKE_DIRECTORY | FAULT_CREATE | FAULT_WRITE | FAULT_SYNC | FAULT_CLOSE | FAULT_RENAME |           \
     FAULT_SYNC_DIRECTORY | FAULT_LIST | FAULT_CLAIM | FAULT_SET_LENGTH)

/* One failing call, for every call. */
static void fail_each_call_once(const char *directory, int error, bool descriptors)
{
    save_old(directory);
    struct fault_store f;
    uint32_t failed = 0;
    for (uint32_t n = 1;; n++) {
        assert_true(n < CALLS_MAX);
        fault_store_init(&f);
        f.fail_at = n;
        f.error = error;
        f.descriptors = descriptors;
        struct ps_writer_status status = fixture_save(&f.store, directory, n + 1, NEW_ROWS);
        if (status.status == MR_OK) {
            /* Not reached, or the error was of no consequence. */
            assert_int_equal(newest(directory, n + 1, n + 1), n + 1);
            assert_int_equal(ps_store_remove_tree(ps_store_local(), fixture_path(directory, n + 1, ""), NULL),
                             0);
        } else {
            assert_true(f.triggered);
            assert_int_equal(newest(directory, 1, 1), 1);
            assert_non_null(strstr(status.text, strerror(error)));
            assert_non_null(strchr(status.text, '/'));
            if (strstr(status.text, "write of block") != NULL) /* by the writer's thread */
                assert_non_null(strstr(status.text, "/.tmp-"));
            failed |= f.failed;
        }
        assert_int_equal(fixture_count(directory, ".tmp-"), 0);
        if (!f.triggered)
            break;
    }
    const uint32_t by_io_uring = descriptors ? FAULT_WRITE : 0; /* but for the MANIFEST's */
    assert_int_equal(failed | by_io_uring, SAVE_CALLS | by_io_uring);
}

/* From one call on all of them fail, and so does tidying up; then the disk works again. */
TEST(test_a_disk_that_goes_and_comes_back, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    save_old(directory);
    struct fault_store f;
    for (uint32_t n = 1;; n++) {
        assert_true(n < CALLS_MAX);
        fault_store_init(&f);
        f.fail_at = n;
        f.mode = FAULT_FOR_EVER;
        struct ps_writer_status status = fixture_save(&f.store, directory, 2, NEW_ROWS);
        newest(directory, 1, 2);
        if (status.status == MR_OK)
            break;
        assert_true(f.triggered);
        /* A server takes the id behind the newest that it sees. */
        uint64_t id = 1;
        (void)ps_checkpoint_list(NULL, directory, &id, 1);
        assert_int_equal(fixture_save(ps_store_local(), directory, id + 1, NEW_ROWS).status, MR_OK);
        ps_checkpoint_retain(NULL, directory, &(struct ps_retention){.keep = 1});
        assert_int_equal(newest(directory, id + 1, id + 1), id + 1);
        assert_int_equal(fixture_count(directory, ""), 1);
        assert_int_equal(ps_store_remove_tree(ps_store_local(), fixture_path(directory, id + 1, ""), NULL),
                         0);
        save_old(directory);
    }
}

/* Some file systems take O_DIRECT at open and refuse each write: those go through the page cache then. */
TEST(test_writes_past_the_cache_are_refused, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    struct fault_store f;
    fault_store_init(&f);
    f.refuses_direct = true;
    assert_int_equal(fixture_save(&f.store, directory, 1, OLD_ROWS).status, MR_OK);
    assert_int_equal(newest(directory, 1, 1), 1);
}

TEST(test_io_error_at_each_call, temporary_directory_setup, temporary_directory_teardown)
{
    fail_each_call_once(*state, EIO, false);
}

TEST(test_full_disk_at_each_call, temporary_directory_setup, temporary_directory_teardown)
{
    fail_each_call_once(*state, ENOSPC, false);
}

TEST(test_io_error_at_each_call_beside_io_uring, temporary_directory_setup, temporary_directory_teardown)
{
    fail_each_call_once(*state, EIO, true);
}

TEST(test_short_writes_are_completed, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    struct fault_store f;
    uint32_t short_writes = 0;
    for (uint32_t n = 1;; n++) {
        assert_true(n < CALLS_MAX);
        const uint64_t id = n + 1;
        fault_store_init(&f);
        f.fail_at = n;
        f.mode = FAULT_SHORT_ONCE;
        assert_int_equal(fixture_save(&f.store, directory, id, NEW_ROWS).status, MR_OK);
        newest(directory, id, id);
        assert_int_equal(ps_store_remove_tree(ps_store_local(), fixture_path(directory, id, ""), NULL), 0);
        if (!f.triggered)
            break;
        short_writes += f.shortened;
    }
    assert_int_equal(short_writes, 2 * FIXTURE_CORES + 1); /* every block, and the manifest */
}

/* Reading through faults: an error or the right content, never a wrong one. */
TEST(test_reading_with_an_error_at_each_call, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    save_old(directory);
    assert_int_equal(fixture_save(ps_store_local(), directory, 2, NEW_ROWS).status, MR_OK);
    struct fault_store f;
    for (uint32_t n = 1;; n++) {
        assert_true(n < CALLS_MAX);
        fault_store_init(&f);
        f.fail_at = n;
        struct ps_reader *r = NULL;
        char text[PS_TEXT_BYTES];
        enum mr_status status = ps_reader_open(&f.store, directory, 0, &r, text);
        if (status == MR_OK) {
            f.fail_at = 0;
            uint64_t id = ps_reader_manifest(r)->id;
            assert_true(id == 2 || (id == 1 && f.triggered && text[0] != '\0'));
            fixture_check(r, id, id == 1 ? OLD_ROWS : NEW_ROWS);
            ps_reader_close(r);
        } else {
            assert_true(f.triggered && text[0] != '\0');
        }
        if (!f.triggered)
            break;
    }
}
