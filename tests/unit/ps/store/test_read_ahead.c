/* A file that is read ahead comes out as it is, whatever its length and however many buffers there are. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ps/store/read_ahead.h"
#include "remote_fixture.h"
#include "tests/unit/ps/fault_store.h"
#include "tests/unit/temporary_directory.h"

enum { RANGE = 4096, BYTES_MAX = 40 * RANGE };

struct fixture {
    char *directory;
    char path[512];
    struct fault_store fault;
    struct ps_store_file *file;
    struct ps_read_ahead *ahead;
    uint8_t data[BYTES_MAX];
};

static int set_up(void **state)
{
    static struct fixture x;
    memset(&x, 0, sizeof(x));
    x.directory = temporary_directory_make();
    (void)snprintf(x.path, sizeof(x.path), "%s/file", x.directory);
    for (uint32_t i = 0; i < BYTES_MAX; i++)
        x.data[i] = (uint8_t)(i / RANGE + i);
    fault_store_init(&x.fault);
    *state = &x;
    return 0;
}

static void close_both(struct fixture *x)
{
    ps_read_ahead_close(x->ahead);
    x->ahead = NULL;
    if (x->file != NULL)
        (void)x->fault.store.close(x->file);
    x->file = NULL;
}

static int tear_down(void **state)
{
    struct fixture *x = *state;
    close_both(x);
    return temporary_directory_remove(x->directory);
}

static void open_both(struct fixture *x, uint64_t bytes, uint32_t buffers)
{
    uint64_t file_bytes;
    (void)ps_store_local()->remove(NULL, x->path);
    assert_int_equal(remote_fixture_write(ps_store_local(), x->path, x->data, bytes), 0);
    assert_int_equal(x->fault.store.open(x->fault.store.self, x->path, &x->file, &file_bytes), 0);
    const struct ps_read_ahead_options options = {.store = &x->fault.store,
                                                  .file = x->file,
                                                  .file_bytes = file_bytes,
                                                  .range_bytes = RANGE,
                                                  .buffer_count = buffers};
    assert_int_equal(ps_read_ahead_open(&options, &x->ahead), 0);
}

static void check(struct fixture *x, uint64_t bytes, uint32_t buffers)
{
    uint64_t at = 0;
    size_t taken = 1;
    open_both(x, bytes, buffers);
    while (taken > 0) {
        uint8_t *data = NULL;
        assert_int_equal(ps_read_ahead_next(x->ahead, &data, &taken), 0);
        assert_int_equal(taken, bytes - at < RANGE ? bytes - at : RANGE);
        if (taken > 0)
            assert_memory_equal(data, x->data + at, taken);
        at += taken;
    }
    assert_int_equal(at, bytes);
    close_both(x);
}

static void it_comes_out_as_it_is(void **state)
{
    static const uint64_t lengths[] = {0, 1, RANGE, RANGE + 1, 3 * RANGE, BYTES_MAX};
    static const uint32_t buffers[] = {2, 3, 6, PS_READ_AHEAD_BUFFERS_MAX};
    for (uint32_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
        for (uint32_t b = 0; b < sizeof(buffers) / sizeof(buffers[0]); b++)
            check(*state, lengths[i], buffers[b]);
}

static void an_error_comes_in_its_place(void **state)
{
    struct fixture *x = *state;
    uint8_t *data;
    size_t bytes;
    open_both(x, 0, 2);
    close_both(x);
    x->fault.mode = FAULT_ONCE;
    x->fault.error = ENOSPC;
    x->fault.fail_at = atomic_load(&x->fault.calls) + 1 + 5; /* an open, then four reads */
    open_both(x, BYTES_MAX, 2);                              /* one thread: reads are in their order */
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(ps_read_ahead_next(x->ahead, &data, &bytes), 0);
        assert_memory_equal(data, x->data + (size_t)i * RANGE, RANGE);
    }
    assert_int_equal(ps_read_ahead_next(x->ahead, &data, &bytes), -ENOSPC);
    assert_true(x->fault.failed == FAULT_READ);
}

static int64_t read_that_says_why(struct ps_store_file *file, void *data, size_t bytes, uint64_t offset)
{
    (void)file;
    (void)data;
    (void)bytes;
    (void)offset;
    ps_store_explain(EACCES, "the token has expired");
    return -EACCES;
}

static void what_the_store_says_of_an_error_is_kept(void **state)
{
    struct fixture *x = *state;
    uint8_t *data;
    size_t bytes;
    x->fault.store.read = read_that_says_why;
    open_both(x, BYTES_MAX, 6);
    assert_int_equal(ps_read_ahead_next(x->ahead, &data, &bytes), -EACCES);
    assert_string_equal(ps_store_explanation(EACCES), "the token has expired");
}

static void it_may_be_closed_at_any_time(void **state)
{
    struct fixture *x = *state;
    uint8_t *data;
    size_t bytes;
    for (uint32_t taken = 0; taken < 12; taken++) {
        open_both(x, BYTES_MAX, 4);
        for (uint32_t i = 0; i < taken; i++)
            assert_int_equal(ps_read_ahead_next(x->ahead, &data, &bytes), 0);
        close_both(x);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(it_comes_out_as_it_is),
        TEST(an_error_comes_in_its_place),
        TEST(what_the_store_says_of_an_error_is_kept),
        TEST(it_may_be_closed_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
