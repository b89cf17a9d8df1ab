/* Blocks that go to the files of a store on several threads: each file has its own, in their order, and
 * after an error nothing more is written. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ps/io/write_pool.h"
#include "tests/test.h"

enum { FILES = 6, BUFFERS = 16, BLOCK = 512, SHORT = 300, BLOCKS = 200, ALL_OF_A_FILE = BLOCKS * BLOCK };

/* A store that takes blocks in their order only, and may fail or wait. */
struct ps_store_file {
    uint8_t bytes[ALL_OF_A_FILE];
    uint64_t length;
};

static struct ps_store_file content[FILES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static uint32_t writing, together_max, failing_file;
static bool waits_for_company;

static int64_t write_pool_remote_take(struct ps_store_file *file, const void *data, size_t bytes,
                                      uint64_t offset)
{
    if (file == &content[failing_file]) {
        ps_store_explain(EDQUOT, "the quota is used up");
        return -EDQUOT;
    }
    if (offset != file->length)
        return -ESPIPE;
    pthread_mutex_lock(&lock);
    writing++;
    together_max = writing > together_max ? writing : together_max;
    pthread_cond_broadcast(&changed);
    while (waits_for_company && together_max < PS_WRITE_THREADS)
        pthread_cond_wait(&changed, &lock);
    writing--;
    pthread_mutex_unlock(&lock);
    const size_t taken = bytes < SHORT ? bytes : SHORT;
    memcpy(file->bytes + offset, data, taken);
    file->length += taken;
    return (int64_t)taken;
}

static const struct ps_store store = {.write = write_pool_remote_take};

struct fixture {
    struct ps_store_file *files[FILES];
    uint8_t *buffers;
    struct ps_write_pool *pool;
    uint32_t free[BUFFERS], free_count;
};

static int set_up(void **state)
{
    static struct fixture x;
    memset(&x, 0, sizeof(x));
    memset(content, 0, sizeof(content));
    writing = together_max = 0;
    failing_file = FILES;
    waits_for_company = false;
    x.buffers = malloc((size_t)BUFFERS * BLOCK);
    for (uint32_t i = 0; i < FILES; i++)
        x.files[i] = &content[i];
    for (uint32_t i = 0; i < BUFFERS; i++)
        x.free[x.free_count++] = i;
    const struct ps_write_pool_options options = {.store = &store,
                                                  .files = x.files,
                                                  .file_count = FILES,
                                                  .buffers = x.buffers,
                                                  .buffer_count = BUFFERS,
                                                  .buffer_bytes = BLOCK,
                                                  .is_remote = true};
    const char *note;
    *state = &x;
    return x.buffers ? ps_write_pool_create(&options, &x.pool, &note) : -1;
}

static int tear_down(void **state)
{
    struct fixture *x = *state;
    ps_write_pool_destroy(x->pool);
    free(x->buffers);
    return 0;
}

/* Returns the error of a write that is over. The test's own time limit ends it otherwise. */
static int take_back(struct fixture *x)
{
    struct ps_write_done done;
    while (!ps_write_pool_take(x->pool, 10000, &done)) {
    }
    x->free[x->free_count++] = done.buffer;
    return done.error;
}

static void write_pool_remote_put(struct fixture *x, uint32_t file, uint32_t block)
{
    const uint32_t buffer = x->free[--x->free_count];
    memset(x->buffers + (size_t)buffer * BLOCK, (int)(file + block), BLOCK);
    ps_write_pool_put(x->pool, file, buffer, (uint64_t)block * BLOCK);
}

TEST(each_file_has_its_blocks_in_their_order, set_up, tear_down)
{
    struct fixture *x = *state;
    struct ps_write_done done;
    assert_false(ps_write_pool_take(x->pool, 1000000000, &done)); /* there is none to wait for */
    waits_for_company = true;
    for (uint32_t i = 0; i < FILES * BLOCKS; i++) {
        if (x->free_count == 0)
            assert_int_equal(take_back(x), 0);
        write_pool_remote_put(x, i % FILES, i / FILES);
    }
    while (ps_write_pool_pending(x->pool) > 0)
        assert_int_equal(take_back(x), 0);
    assert_int_equal(together_max, PS_WRITE_THREADS);
    for (uint32_t file = 0; file < FILES; file++) {
        assert_int_equal(content[file].length, ALL_OF_A_FILE);
        for (uint32_t i = 0; i < ALL_OF_A_FILE; i++)
            assert_int_equal(content[file].bytes[i], (uint8_t)(file + i / BLOCK));
    }
}

TEST(nothing_more_is_written_after_an_error, set_up, tear_down)
{
    struct fixture *x = *state;
    int first = 0;
    failing_file = 2;
    write_pool_remote_put(x, 2, 0);
    while (first == 0)
        first = take_back(x);
    assert_int_equal(first, -EDQUOT);
    assert_string_equal(ps_store_explanation(EDQUOT), "the quota is used up");
    write_pool_remote_put(x, 3, 0);
    write_pool_remote_put(x, 2, 1);
    assert_int_equal(take_back(x), -ECANCELED);
    assert_int_equal(take_back(x), -ECANCELED);
    assert_int_equal(content[3].length, 0);
}

TEST(what_is_cancelled_comes_back_unwritten, set_up, tear_down)
{
    struct fixture *x = *state;
    ps_write_pool_cancel(x->pool);
    write_pool_remote_put(x, 0, 0);
    assert_int_equal(take_back(x), -ECANCELED);
    assert_int_equal(ps_write_pool_pending(x->pool), 0);
    assert_int_equal(content[0].length, 0);
}
