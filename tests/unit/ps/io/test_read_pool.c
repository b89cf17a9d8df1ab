/* A file that is read ahead comes out as it is, whatever its length and however many buffers and threads
 * there are, up to an error or what a check finds wrong. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ps/io/read_pool.h"
#include "tests/test.h"
#include "tests/unit/ps/fault_store.h"
#include "tests/unit/temporary_directory.h"

enum { RANGE = 4096, BYTES_MAX = 40 * RANGE };

struct fixture {
    char *directory;
    char path[512];
    struct fault_store fault;
    struct ps_store_file *file;
    struct ps_read_pool *pool;
    uint64_t file_bytes, asked;
    bool is_checked;
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
    ps_read_pool_close(x->pool);
    x->pool = NULL;
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

static bool next_range(void *arg, struct ps_read *read)
{
    struct fixture *x = arg;
    const uint64_t left = x->file_bytes - x->asked;
    read->file = x->file;
    read->offset = x->asked;
    read->bytes = left < RANGE ? left : RANGE;
    read->tag = x->asked / RANGE;
    x->asked += read->bytes;
    return left > 0;
}

static const char *check_range(void *arg, const struct ps_read *read)
{
    const struct fixture *x = arg;
    return x->is_checked && read->data[0] != x->data[read->offset] ? "it is damaged" : NULL;
}

/* Reads by one thread less than there are buffers. */
static void open_pool(struct fixture *x, uint32_t buffers)
{
    x->asked = 0;
    const struct ps_read_pool_options options = {.store = &x->fault.store,
                                                 .thread_name = "mr-test",
                                                 .thread_count = buffers - 1,
                                                 .buffer_count = buffers,
                                                 .buffer_bytes = RANGE,
                                                 .next = next_range,
                                                 .check = check_range,
                                                 .arg = x};
    assert_int_equal(ps_read_pool_open(&options, &x->pool), 0);
}

static void open_both(struct fixture *x, uint64_t bytes, uint32_t buffers)
{
    (void)ps_store_local()->remove(NULL, x->path);
    assert_int_equal(ps_store_write_new(ps_store_local(), x->path, x->data, bytes), 0);
    assert_int_equal(x->fault.store.open(x->fault.store.self, x->path, &x->file, &x->file_bytes), 0);
    open_pool(x, buffers);
}

static void pool_reads_all(struct fixture *x, uint64_t bytes, uint32_t buffers)
{
    uint64_t at = 0;
    const struct ps_read *read;
    open_both(x, bytes, buffers);
    for (;;) {
        assert_int_equal(ps_read_pool_take(x->pool, &read), 0);
        if (read == NULL)
            break;
        assert_int_equal(read->tag, at / RANGE);
        assert_int_equal(read->bytes, bytes - at < RANGE ? bytes - at : RANGE);
        assert_memory_equal(read->data, x->data + at, read->bytes);
        at += read->bytes;
        ps_read_pool_release(x->pool, 1);
    }
    assert_int_equal(at, bytes);
    close_both(x);
}

TEST(it_comes_out_as_it_is, set_up, tear_down)
{
    static const uint64_t lengths[] = {0, 1, RANGE, RANGE + 1, 3 * RANGE, BYTES_MAX};
    static const uint32_t buffers[] = {1, 2, 3, 6, PS_IO_THREADS_MAX};
    for (uint32_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
        for (uint32_t b = 0; b < sizeof(buffers) / sizeof(buffers[0]); b++)
            pool_reads_all(*state, lengths[i], buffers[b]);
}

TEST(an_error_comes_in_its_place, set_up, tear_down)
{
    struct fixture *x = *state;
    const struct ps_read *read;
    open_both(x, 0, 2);
    close_both(x);
    x->fault.mode = FAULT_ONCE;
    x->fault.error = ENOSPC;
    x->fault.fail_at = atomic_load(&x->fault.calls) + 1 + 5; /* an open, then four reads */
    open_both(x, BYTES_MAX, 2);                              /* one thread: reads are in their order */
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(ps_read_pool_take(x->pool, &read), 0);
        assert_memory_equal(read->data, x->data + (size_t)i * RANGE, RANGE);
        ps_read_pool_release(x->pool, 1);
    }
    assert_int_equal(ps_read_pool_take(x->pool, &read), -ENOSPC);
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

TEST(what_the_store_says_of_an_error_is_kept, set_up, tear_down)
{
    struct fixture *x = *state;
    const struct ps_read *read;
    x->fault.store.read = read_that_says_why;
    open_both(x, BYTES_MAX, 6);
    assert_int_equal(ps_read_pool_take(x->pool, &read), -EACCES);
    assert_string_equal(ps_store_explanation(EACCES), "the token has expired");
}

/* What is held is not read into, and what is damaged comes in its place, too. */
TEST(what_is_wrong_comes_in_its_place, set_up, tear_down)
{
    struct fixture *x = *state;
    const struct ps_read *read[3];
    static const uint32_t buffers[] = {1, 2, 4};
    for (uint32_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++) {
        open_both(x, BYTES_MAX, buffers[i]);
        close_both(x);
        x->data[2 * RANGE]++; /* unlike the file */
        x->is_checked = true;
        assert_int_equal(x->fault.store.open(x->fault.store.self, x->path, &x->file, &x->file_bytes), 0);
        open_pool(x, buffers[i]);
        for (uint32_t n = 0; n < 2; n++) {
            assert_int_equal(ps_read_pool_take(x->pool, &read[n]), 0);
            assert_null(read[n]->wrong);
            if (buffers[i] == 1)
                ps_read_pool_release(x->pool, 1);
        }
        for (uint32_t n = 0; n < 2 && buffers[i] > 1; n++)
            assert_memory_equal(read[n]->data, x->data + (size_t)n * RANGE, RANGE);
        if (buffers[i] == 2)
            ps_read_pool_release(x->pool, 1);
        assert_int_equal(ps_read_pool_take(x->pool, &read[2]), -EBADMSG);
        assert_string_equal(read[2]->wrong, "it is damaged");
        close_both(x);
        x->data[2 * RANGE]--;
        x->is_checked = false;
    }
}

TEST(it_may_be_closed_at_any_time, set_up, tear_down)
{
    struct fixture *x = *state;
    const struct ps_read *read;
    for (uint32_t taken = 0; taken < 12; taken++) {
        open_both(x, BYTES_MAX, 4);
        for (uint32_t i = 0; i < taken; i++) {
            assert_int_equal(ps_read_pool_take(x->pool, &read), 0);
            ps_read_pool_release(x->pool, 1);
        }
        close_both(x);
    }
}
