/* Restores that fail: of damaged checkpoints, and for want of memory. What the node holds then. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "ps/checkpoint/checkpoint.h"
#include "checkpoint_fixture.h"
#include "restore_fixture.h"
#include "tests/test.h"

/* Changes a byte of the first core's file. */
static void damage_at(const struct node_fixture *n, uint64_t id, off_t at)
{
    fixture_flip(fixture_path(n->config.checkpoint_directory, id, "core-000.mrc"), at, 0x40);
}

static void damage(const struct node_fixture *n, uint64_t id)
{
    damage_at(n, id, 1000);
}

TEST(a_damaged_one_is_refused_and_changes_nothing, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n);
    learn(n, table, BATCH(0));
    uint64_t good = node_save(n);
    learn(n, table, BATCH(1));
    uint64_t bad = node_save(n);
    learn(n, table, BATCH(2));
    damage(n, bad);
    node_check(node_restore(n, bad), MR_CHECKPOINT_CORRUPT, "core-000");
    check_values(n, table, 97);
    const struct node_reply *reply = node_restore(n, 0); /* the newest that verifies */
    node_check(reply, MR_OK, NULL);
    assert_int_equal(*(const uint64_t *)reply->tensors[0].data, good);
    check_values(n, table, 99);
}

TEST(a_start_with_a_damaged_one_fails_when_it_was_asked_for, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    char error[DP_ERROR_BYTES];
    struct ps_server *server;
    learn(n, make_table(n), BATCH(0));
    uint64_t id = node_save(n);
    node_stop(n);
    damage(n, id);
    snprintf(n->config.checkpoint_restore, sizeof(n->config.checkpoint_restore), "%llu",
             (unsigned long long)id);
    assert_int_equal(ps_server_start(&n->config, &server, error), MR_CHECKPOINT_CORRUPT);
    assert_non_null(strstr(error, "--restore"));
    snprintf(n->config.checkpoint_restore, sizeof(n->config.checkpoint_restore), "none");
    node_start(n, 1);
    assert_int_equal(node_counter(n, 0, "ps.features"), 0);
}

/* Says that a later format version wrote it. */
static void make_newer(const struct node_fixture *n, uint64_t id)
{
    static const char version[] = "\"version\": ";
    char path[400], text[1 << 14];
    snprintf(path, sizeof(path), "%s/ckpt-%llu/MANIFEST", n->config.checkpoint_directory,
             (unsigned long long)id);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    const char *at = strstr(text, version);
    assert_non_null(at);
    assert_int_equal(fseek(f, at - text + (long)strlen(version), SEEK_SET), 0);
    assert_int_equal(fputc('9', f), '9');
    assert_int_equal(fclose(f), 0);
}

/* Older training does not come up by itself in place of what a later version saved, and goes on only when it
 * is named. */
TEST(one_of_a_newer_format_stops_a_start, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    char error[DP_ERROR_BYTES];
    struct ps_server *server;
    uint32_t table = make_table(n);
    learn(n, table, BATCH(0));
    uint64_t old = node_save(n);
    learn(n, table, BATCH(1));
    uint64_t newer = node_save(n);
    make_newer(n, newer);
    node_check(node_restore(n, 0), MR_CHECKPOINT_NEWER, "it is of format 9, this version (");
    check_values(n, table, 98);
    node_stop(n);
    assert_int_equal(ps_server_start(&n->config, &server, error), MR_CHECKPOINT_NEWER);
    assert_non_null(strstr(error, "it is of format 9"));
    assert_non_null(strstr(error, "--restore ID"));
    snprintf(n->config.checkpoint_restore, sizeof(n->config.checkpoint_restore), "%llu",
             (unsigned long long)old);
    node_start(n, 1);
    check_values(n, make_table(n), 99);
    n->config.checkpoint_keep = 1;
    assert_int_equal(node_save(n), newer + 1);
    node_check(node_restore(n, newer), MR_CHECKPOINT_NEWER, NULL);
    node_check(node_restore(n, old), MR_OK, NULL);
}

/* Another table, of several blocks: the last of them is found bad when the others are loaded. */
static uint64_t save_damaged_at_its_end(struct node_fixture *n)
{
    static uint64_t many[3000];
    struct mr_feature f = node_table("wide", 0);
    f.dims[0] = 512;
    uint32_t table = node_create(n, &f), offsets[2] = {0, 3000};
    for (uint32_t i = 0; i < 3000; i++)
        many[i] = i;
    struct mr_tensor lookup[2] = {mr_tensor_1d(MR_U64, 3000, many), mr_tensor_1d(MR_U32, 2, offsets)};
    node_check(node_call(n, 0, MR_OP_LOOKUP, (uint16_t)table, lookup, 2), MR_OK, NULL);
    uint64_t id = node_save(n);
    damage_at(n, id, 5 * (off_t)PS_BLOCK_BYTES + 1000);
    return id;
}

TEST(a_start_drops_what_it_has_of_a_damaged_one, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n);
    learn(n, table, BATCH(0));
    uint64_t good = node_save(n);
    learn(n, table, BATCH(1));
    save_damaged_at_its_end(n);
    node_restart(n, 1);
    assert_int_equal(node_counter(n, 0, "ps.features"), 1);
    check_values(n, table, 99);
    assert_int_equal(learn(n, table, BATCH(0)), 0);
    assert_int_equal(learn(n, table, BATCH(1)), 1);
    const uint64_t *view = node_call(n, 0, MR_OP_CHECKPOINT_STATUS, 0, NULL, 0)->tensors[0].data;
    assert_int_equal(view[MR_PROGRESS_ID], good);
}

/* Nothing was there, and nothing is there afterwards; the node goes on. */
TEST(an_empty_node_stays_empty_after_a_damaged_one, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    learn(n, make_table(n), BATCH(0));
    uint64_t bad = save_damaged_at_its_end(n);
    snprintf(n->config.checkpoint_restore, sizeof(n->config.checkpoint_restore), "none");
    node_restart(n, 1);
    node_check(node_restore(n, bad), MR_CHECKPOINT_CORRUPT, "core-000.mrc: block 5");
    assert_int_equal(node_counter(n, 0, "ps.features"), 0);
    uint32_t table = make_table(n);
    check_values(n, table, 100);
    assert_int_equal(learn(n, table, BATCH(0)), 1);
    check_values(n, table, 99);
    node_check(node_restore(n, 0), MR_CHECKPOINT_CORRUPT,
               "core-000.mrc: block 5"); /* there is something to lose now */
    check_values(n, table, 99);
}

/* A checkpoint of 120 MB, and a node that may not have that much. */
static void start_too_small(struct node_fixture *n)
{
    static uint64_t many[60000];
    struct mr_feature f = node_table("wide", 0);
    f.dims[0] = 512;
    uint32_t table = node_create(n, &f);
    for (uint32_t i = 0; i < 60000; i++)
        many[i] = i;
    uint32_t offsets[2] = {0, 30000};
    struct mr_tensor lookup[2] = {mr_tensor_1d(MR_U64, 30000, many), mr_tensor_1d(MR_U32, 2, offsets)};
    node_check(node_call(n, 0, MR_OP_LOOKUP, (uint16_t)table, lookup, 2), MR_OK, NULL);
    lookup[0] = mr_tensor_1d(MR_U64, 30000, many + 30000);
    node_check(node_call(n, 0, MR_OP_LOOKUP, (uint16_t)table, lookup, 2), MR_OK, NULL);
    node_save(n);
    node_stop(n);
    n->config.memory_limit_mib = 100;
    n->config.batches_memory_mib = 10;
    snprintf(n->config.checkpoint_restore, sizeof(n->config.checkpoint_restore), "none");
    node_start(n, 1);
}

TEST(too_little_memory_leaves_an_empty_node_as_it_was, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    start_too_small(n);
    node_check(node_restore(n, 0), MR_OUT_OF_MEMORY, "raise memory.limit_mib");
    assert_int_equal(node_counter(n, 0, "ps.features"), 0);
    uint32_t table = make_table(n);
    assert_int_equal(learn(n, table, BATCH(0)), 1);
    check_values(n, table, 99);
}

/* A node that gave up what it had for a checkpoint, and has not the memory for that; a call that wants
 * data. */
static const struct node_reply *load_half(struct node_fixture *n)
{
    static uint64_t key = 1;
    struct mr_tensor lookup = mr_tensor_1d(MR_U64, 1, &key);
    start_too_small(n);
    uint32_t table = make_table(n);
    assert_int_equal(learn(n, table, BATCH(0)), 1);
    node_check(node_restore(n, 0), MR_OUT_OF_MEMORY, "serves no data");
    return node_call(n, 0, MR_OP_LOOKUP, (uint16_t)table, &lookup, 1);
}

/* Both do not fit, but the checkpoint does once the old tables have gone. */
TEST(a_node_without_room_for_both_makes_room, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    static uint64_t many[30000];
    struct mr_feature f = node_table("wide", 7);
    f.dims[0] = 512;
    uint32_t table = node_create(n, &f), offsets[2] = {0, 30000};
    for (uint32_t i = 0; i < 30000; i++)
        many[i] = i;
    struct mr_tensor lookup[2] = {mr_tensor_1d(MR_U64, 30000, many), mr_tensor_1d(MR_U32, 2, offsets)};
    node_check(node_call(n, 0, MR_OP_LOOKUP, (uint16_t)table, lookup, 2), MR_OK, NULL);
    uint64_t good = node_save(n);
    uint64_t bad = node_save(n);
    n->config.memory_limit_mib = 120;
    n->config.batches_memory_mib = 10;
    node_restart(n, 1); /* 61 MB, of 94 MiB for tables */
    uint32_t learnt = make_table(n);
    assert_int_equal(learn(n, learnt, BATCH(0)), 1);
    damage_at(n, bad, 20 * (off_t)PS_BLOCK_BYTES + 1000);
    node_check(node_restore(n, bad), MR_CHECKPOINT_CORRUPT, "core-000.mrc: block 20");
    check_values(n, learnt, 99); /* it was verified before they went */
    node_check(node_restore(n, good), MR_OK, NULL);
    assert_int_equal(node_counter(n, 0, "ps.features"), 1);
    assert_true(node_value(n, table, 29999) == 7);
}

/* Makes rows of a table until there is no memory for any of many more; how many there are. */
static uint64_t restore_damaged_fill(struct node_fixture *n, uint32_t table)
{
    static uint64_t some[30000];
    uint32_t offsets[2] = {0, 30000};
    uint64_t made = 0, before = UINT64_MAX;
    while (node_counter(n, 0, "table.rows") != before) {
        before = node_counter(n, 0, "table.rows");
        for (uint32_t i = 0; i < 30000; i++)
            some[i] = made++;
        struct mr_tensor lookup[2] = {mr_tensor_1d(MR_U64, 30000, some), mr_tensor_1d(MR_U32, 2, offsets)};
        node_check(node_call(n, 0, MR_OP_LOOKUP, (uint16_t)table, lookup, 2), MR_OK, NULL);
    }
    return before;
}

/* What fills the memory to the last place has to fit again, though tables that are loaded fast take a little
 * more. */
TEST(a_full_node_fits_again, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    n->config.memory_limit_mib = 56;
    n->config.batches_memory_mib = 8;
    node_restart(n, 1);
    struct mr_feature f = node_table("narrow", 7);
    f.optimizer = MR_OPT_ADAGRAD;
    uint64_t rows = restore_damaged_fill(n, node_create(n, &f));
    node_save(n);
    node_restart(n, 1);
    assert_int_equal(node_counter(n, 0, "table.rows"), rows);
}

TEST(too_little_memory_leaves_a_node_that_refuses_data, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    node_check(load_half(n), MR_OUT_OF_MEMORY, "half way");
    struct mr_tensor t = mr_tensor_1d(MR_U8, 0, NULL);
    node_check(node_restore(n, 0), MR_OUT_OF_MEMORY, "raise memory.limit_mib"); /* and it still refuses */
    node_check(node_call(n, 0, MR_OP_LOOKUP, 1, NULL, 0), MR_OUT_OF_MEMORY, "half way");
    node_check(node_call(n, 0, MR_OP_SAVE, 0, &t, 1), MR_OUT_OF_MEMORY, "serves nothing: restore of");
    node_check(node_call(n, 0, MR_OP_LIST, 0, NULL, 0), MR_OUT_OF_MEMORY, "serves nothing: restore of");
    const struct node_reply *heartbeat = node_call(n, 0, MR_OP_HEARTBEAT, 0, NULL, 0);
    assert_int_equal(*(const uint64_t *)heartbeat->tensors[0].data, MR_NODE_FAILED);
    assert_memory_equal(heartbeat->tensors[1].data, "restore of checkpoint ", 22);
    node_check(node_call(n, 0, MR_OP_ECHO, 0, &t, 1), MR_OK, NULL);
}

TEST(half_a_checkpoint_is_not_saved_on_stop, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint64_t newest;
    node_check(load_half(n), MR_OUT_OF_MEMORY, "half way");
    assert_int_equal(ps_checkpoint_list(NULL, n->config.checkpoint_directory, &newest, 1), 1);
    n->config.checkpoint_save_on_stop = true;
    node_pass_config_on(n);
    mr_endpoint_destroy(n->client);
    n->client = NULL;
    assert_int_equal(ps_server_stop(n->server), MR_OUT_OF_MEMORY);
    n->server = NULL;
    assert_int_equal(ps_checkpoint_list(NULL, n->config.checkpoint_directory, &newest, 1), 1);
}
