/* A checkpoint of format version 1, from before pushes were numbered, as it was written then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>
#include "restore_fixture.h"

#define BLOCK_BYTES (1 << 20)

/* The files are kept without the zeros at their end. */
static void copy_old(const struct node_fixture *n, const char *name, bool is_blocks)
{
    static char bytes[BLOCK_BYTES];
    char path[400];
    snprintf(path, sizeof(path), CHECKPOINT_V1 "/%s", name);
    FILE *from = fopen(path, "rb");
    assert_non_null(from);
    memset(bytes, 0, sizeof(bytes));
    size_t count = fread(bytes, 1, sizeof(bytes), from);
    fclose(from);
    snprintf(path, sizeof(path), "%s/ckpt-1/%s", n->config.checkpoint_directory, name);
    FILE *to = fopen(path, "wb");
    assert_non_null(to);
    assert_int_equal(fwrite(bytes, 1, is_blocks ? sizeof(bytes) : count, to),
                     is_blocks ? sizeof(bytes) : count);
    fclose(to);
}

/* Two cores wrote it: keys 1000..1007 of table emb from 100, batches 0 on both and 1 on core 0 only, bias 1, 2, 3. */
static void restore_old(struct node_fixture *n, uint32_t cores)
{
    char path[300];
    node_stop(n);
    snprintf(path, sizeof(path), "%s/ckpt-1", n->config.checkpoint_directory);
    assert_int_equal(mkdir(path, 0700), 0);
    copy_old(n, "MANIFEST", false);
    copy_old(n, "core-000.mrc", true);
    copy_old(n, "core-001.mrc", true);
    node_start(n, cores);
}

static void check_old(struct node_fixture *n, uint32_t cores)
{
    uint64_t range[2] = {0, 0};
    struct mr_tensor t = mr_tensor_1d(MR_U64, 2, range);
    const float bias[3] = {1, 2, 3};
    restore_old(n, cores);
    uint32_t table = make_table(n);
    for (uint64_t key = 1000; key < 1008; key++) {
        assert_float_equal(node_value(n, table, key), core_of(2, key) == 0 ? 98 : 99, 0);
    }
    const struct node_reply *reply =
        node_call(n, node_core_of_variable(n, "bias"), MR_OP_VARIABLE_PULL, 2, &t, 1);
    node_check(reply, MR_OK, NULL);
    assert_memory_equal(reply->tensors[0].data, bias, sizeof(bias));
    node_feed(n, BATCH(0), table, keys, 8);
    for (uint32_t core = 0; core < cores; core++) {
        assert_int_equal(node_push_batch(n, core, BATCH(0), table, 8, 1), 0);
    }
    struct mr_session_info info;
    mr_session_info(n->sessions[0], &info);
    assert_true(info.last_push_step > 0);
    push_all(n, table, cores, 1);
    assert_float_equal(node_value(n, table, 1004), 97, 0);
    assert_int_equal(node_save(n), 2);
}

static void an_older_checkpoint_is_read_on_as_many_cores(void **state)
{
    check_old(*state, 2);
}

static void an_older_checkpoint_is_read_on_3_cores(void **state)
{
    check_old(*state, 3);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, node_setup, node_teardown)
    const struct CMUnitTest tests[] = {
        TEST(an_older_checkpoint_is_read_on_as_many_cores),
        TEST(an_older_checkpoint_is_read_on_3_cores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
