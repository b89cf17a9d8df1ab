/* Checkpoints of older format versions, as they were written then: 1, from before pushes were numbered, 2,
 * from before there were deltas, 3, from before the node's clock was kept, and 4 by Millrace 0.1, from before
 * a manifest said which starts its content comes from. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "ps/checkpoint/checkpoint_chain.h"
#include "ps/row/row_layout.h"
#include "restore_fixture.h"
#include "tests/test.h"
#include "tests/unit/ps/reader_each.h"

#define BLOCK_BYTES (1 << 20)

/* The files are kept without the zeros at their end. */
static void copy_old(const char *old, const char *to_directory, const char *name, bool is_blocks)
{
    static char bytes[BLOCK_BYTES];
    char path[400];
    snprintf(path, sizeof(path), "%s/%s", old, name);
    FILE *from = fopen(path, "rb");
    assert_non_null(from);
    memset(bytes, 0, sizeof(bytes));
    size_t count = fread(bytes, 1, sizeof(bytes), from);
    fclose(from);
    snprintf(path, sizeof(path), "%s/%s", to_directory, name);
    FILE *to = fopen(path, "wb");
    assert_non_null(to);
    assert_int_equal(fwrite(bytes, 1, is_blocks ? sizeof(bytes) : count, to),
                     is_blocks ? sizeof(bytes) : count);
    fclose(to);
}

/* Two cores wrote it. */
static void put_old(const struct node_fixture *n, const char *old, uint32_t id)
{
    char path[300];
    snprintf(path, sizeof(path), "%s/ckpt-%u", n->config.checkpoint_directory, id);
    assert_int_equal(mkdir(path, 0700), 0);
    copy_old(old, path, "MANIFEST", false);
    copy_old(old, path, "core-000.mrc", true);
    copy_old(old, path, "core-001.mrc", true);
}

static void restore_old(struct node_fixture *n, const char *old, uint32_t cores)
{
    node_stop(n);
    put_old(n, old, 1);
    node_start(n, cores);
}

static void check_bias(struct node_fixture *n, uint16_t variable)
{
    uint64_t range[2] = {0, 0};
    struct mr_tensor t = mr_tensor_1d(MR_U64, 2, range);
    const float bias[3] = {1, 2, 3};
    const struct node_reply *reply =
        node_call(n, node_core_of_variable(n, "bias"), MR_OP_VARIABLE_PULL, variable, &t, 1);
    node_check(reply, MR_OK, NULL);
    assert_memory_equal(reply->tensors[0].data, bias, sizeof(bias));
}

/* Keys 1000..1007 of table emb from 100, batches 0 on both cores and 1 on core 0 only, bias 1, 2, 3. */
static void check_old(struct node_fixture *n, uint32_t cores)
{
    restore_old(n, CHECKPOINT_V1, cores);
    uint32_t table = make_table(n);
    for (uint64_t key = 1000; key < 1008; key++)
        assert_float_equal(node_value(n, table, key), core_of(2, key) == 0 ? 98 : 99, 0);
    check_bias(n, 2);
    node_feed(n, BATCH(0), table, keys, 8);
    for (uint32_t core = 0; core < cores; core++)
        assert_int_equal(node_push_batch(n, core, BATCH(0), table, 8, 1), 0);
    struct mr_client_session_info info;
    mr_client_session_info(n->sessions[0], &info);
    assert_true(info.last_push_step > 0);
    push_all(n, table, cores, 1);
    assert_float_equal(node_value(n, table, 1004), 97, 0);
    assert_int_equal(node_save(n), 2);
}

TEST(an_older_checkpoint_is_read_on_as_many_cores, node_setup, node_teardown)
{
    check_old(*state, 2);
}

TEST(an_older_checkpoint_is_read_on_3_cores, node_setup, node_teardown)
{
    check_old(*state, 3);
}

/* As version 1, and: table half of bf16 with Adagrad and LRU, whose rows learnt batch 2 once; both cores
 * applied push 1 to emb, and core 0 push 2. */
static void check_version_2(struct node_fixture *n, uint32_t cores)
{
    restore_old(n, CHECKPOINT_V2, cores);
    uint32_t table = make_table(n);
    struct mr_feature half = node_table("half", 1.5f);
    half.dtype = MR_BF16;
    half.optimizer = MR_OPT_ADAGRAD;
    half.learning_rate = 0.25f;
    half.eviction = MR_EVICT_LRU;
    half.capacity_rows = 1000;
    assert_int_equal(node_create(n, &half), 2);
    for (uint64_t key = 1000; key < 1008; key++) {
        assert_float_equal(node_value(n, table, key), core_of(2, key) == 0 ? 96 : 98, 0);
        assert_float_equal(node_value(n, 2, key), 1.25f, 0);
    }
    check_bias(n, 3);
    /* What was applied is not applied again; push 2 was, to the keys of the old core 0. */
    push_all(n, table, 2, 1);
    push_all(n, table, 2, 2);
    for (uint64_t key = 1000; key < 1008; key++)
        assert_float_equal(node_value(n, table, key), core_of(2, key) == 0 ? 96 : 97, 0);
    assert_int_equal(node_save(n), 2);
}

TEST(version_2_is_read_on_as_many_cores, node_setup, node_teardown)
{
    check_version_2(*state, 2);
}

TEST(version_2_is_read_on_3_cores, node_setup, node_teardown)
{
    check_version_2(*state, 3);
}

struct stamps {
    uint32_t feature, seen_offset, clock_s, rows;
};

static enum mr_status check_stamps(void *arg, const struct ps_record *record, const uint8_t *bytes)
{
    struct stamps *s = arg;
    for (uint32_t i = 0; record->kind == PS_RECORD_ROWS && record->feature == s->feature && i < record->count;
         i++) {
        uint32_t seen;
        memcpy(&seen, bytes + record->count * 8ull + (size_t)i * record->row_bytes + s->seen_offset,
               sizeof(seen));
        assert_int_in_range(seen, 0, s->clock_s);
        s->rows++;
    }
    return MR_OK;
}

/* Stamps of the wall clock have become stamps of the node's, which began with the restore: no row is older
 * than that. */
static void check_ages(struct node_fixture *n, uint64_t id, uint32_t feature_id)
{
    struct ps_reader *r;
    char text[256];
    assert_int_equal(ps_reader_open(NULL, n->config.checkpoint_directory, id, &r, text), MR_OK);
    struct stamps stamps = {.feature = feature_id, .clock_s = ps_reader_chain(r)->links[0]->manifest.clock_s};
    const struct ps_manifest *m = ps_reader_manifest(r);
    for (uint32_t i = 0; i < m->feature_count; i++)
        if (m->feature_ids[i] == feature_id)
            stamps.seen_offset = ps_row_layout_of(&m->features[i], 0).seen_offset;
    assert_int_in_range(stamps.clock_s, 0, 1000); /* so long the test has run, at most */
    assert_int_equal(reader_each(r, check_stamps, &stamps, text), MR_OK);
    assert_int_equal(stamps.rows, KEYS);
    ps_reader_close(r);
}

/* A full and a delta on it. Tables emb and aged (rows go after 1000 s), variable bias, each of two cores;
 * batches 0 and 1 are applied, batch 2 by core 0 only, and pushes 1 and 2 (of core 0) were applied. */
static void check_version_3(struct node_fixture *n, uint32_t cores)
{
    node_stop(n);
    put_old(n, CHECKPOINT_V3 "/ckpt-1", 1);
    put_old(n, CHECKPOINT_V3 "/ckpt-2", 2);
    node_start(n, cores);
    uint32_t table = make_table(n);
    struct mr_feature aged = node_table("aged", 7);
    aged.eviction = MR_EVICT_AGE;
    aged.eviction_arg = 1000;
    assert_int_equal(node_create(n, &aged), 2);
    push_all(n, table, 2, 1); /* is known already */
    for (uint32_t i = 0; i < KEYS; i++) {
        bool is_of_core_0 = core_of(2, keys[i]) == 0;
        assert_float_equal(node_value(n, table, keys[i]), is_of_core_0 ? 97 : 98, 0);
        assert_float_equal(node_value(n, 2, keys[i]), is_of_core_0 ? 5 : 6, 0);
    }
    node_feed(n, BATCH(0), table, keys, KEYS);
    for (uint32_t core = 0; core < cores; core++)
        assert_int_equal(node_push_batch(n, core, BATCH(0), table, KEYS, 1), 0);
    assert_int_equal(node_save(n), 3);
    check_ages(n, 3, 2);
}

TEST(version_3_is_read_on_as_many_cores, node_setup, node_teardown)
{
    check_version_3(*state, 2);
}

TEST(version_3_is_read_on_3_cores, node_setup, node_teardown)
{
    check_version_3(*state, 3);
}

/* A table with initial values 100 and 8 keys, each pushed to once. */
static void check_version_4(struct node_fixture *n, uint32_t cores)
{
    restore_old(n, CHECKPOINT_V4, cores);
    for (uint64_t key = 1000; key < 1008; key++)
        assert_float_equal(node_value(n, 1, key), 99, 0);
    assert_float_equal(node_value(n, 1, 1008), 100, 0);
    assert_int_equal(node_save(n), 2);
}

TEST(version_4_of_0_1_is_read_on_as_many_cores, node_setup, node_teardown)
{
    check_version_4(*state, 2);
}

TEST(version_4_of_0_1_is_read_on_3_cores, node_setup, node_teardown)
{
    check_version_4(*state, 3);
}
