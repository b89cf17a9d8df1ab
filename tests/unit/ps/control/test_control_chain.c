/* Full or delta, through a node: what it was configured for, what it is asked for, and what is possible. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include "node_fixture.h"
#include "checkpoint_fixture.h"
#include "ps/checkpoint/checkpoint.h"
#include "tests/command.h"
#include "tests/test.h"
#include "tests/wait.h"

enum { AS_CONFIGURED, FULL, DELTA };

struct saved {
    uint64_t number, state, id, kind, parent;
};

static const struct node_reply *control_chain_ask(struct node_fixture *n, const char *directory,
                                                  uint64_t kind)
{
    uint64_t words[MR_SAVE_ASK_WORDS] = {[MR_SAVE_ASK_KIND] = kind};
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U8, (uint32_t)strlen(directory), directory),
                                   mr_body_tensor(MR_BODY_SAVE_ASK, words)};
    return node_call(n, 0, MR_OP_SAVE, 0, tensors, 2);
}

static void read_row(struct node_fixture *n, const struct mr_tensor *number, uint64_t row[MR_SAVE_ROW_WORDS])
{
    const struct node_reply *reply = node_call(n, 0, MR_OP_CHECKPOINT_STATUS, 0, number, 1);
    node_check(reply, MR_OK, NULL);
    mr_body_read_row(MR_BODY_SAVE_ROW, &reply->tensors[3], 0, row);
}

static struct saved wait_saved(struct node_fixture *n, uint64_t number)
{
    uint64_t row[MR_SAVE_ROW_WORDS];
    struct mr_tensor t = mr_tensor_1d(MR_U64, 1, &number);
    WAIT_UNTIL(read_row(n, &t, row), row[MR_SAVE_ROW_STATE] == 0);
    assert_int_equal(row[MR_SAVE_ROW_STATUS], MR_OK);
    return (struct saved){.number = row[MR_SAVE_ROW_NUMBER],
                          .state = row[MR_SAVE_ROW_STATE],
                          .id = row[MR_SAVE_ROW_ID],
                          .kind = row[MR_SAVE_ROW_KIND],
                          .parent = row[MR_SAVE_ROW_PARENT_ID]};
}

static struct saved save_to(struct node_fixture *n, const char *directory, uint64_t kind)
{
    const struct node_reply *reply = control_chain_ask(n, directory, kind);
    node_check(reply, MR_OK, NULL);
    return wait_saved(n, *(const uint64_t *)reply->tensors[1].data);
}

static void expect(struct node_fixture *n, uint64_t asked, uint64_t id, uint64_t kind, uint64_t parent)
{
    struct saved saved = save_to(n, "", asked);
    assert_int_equal(saved.id, id);
    assert_int_equal(saved.kind, kind);
    assert_int_equal(saved.parent, parent);
}

static void control_chain_push(struct node_fixture *n, uint32_t table, uint64_t key)
{
    static const float ones[NODE_DIM] = {1, 1, 1, 1};
    uint32_t head[4] = {table, 0};
    struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, 1, &key),
                                   mr_tensor_1d(MR_U32, 0, NULL), mr_tensor_2d(MR_F32, 1, NODE_DIM, ones)};
    node_check(node_call(n, node_core_of_key(n, key, 0), MR_OP_PUSH_GRAD, 0, tensors, 4), MR_OK, NULL);
}

/* Deltas need more of their parent than a few bytes: tables of some rows. */
static uint32_t start_with(struct node_fixture *n, uint64_t deltas, uint64_t share_percent)
{
    struct mr_feature f = node_table("emb", 0);
    node_stop(n);
    n->config.checkpoint_deltas = deltas;
    n->config.checkpoint_delta_share_percent = share_percent;
    n->config.checkpoint_keep = 100;
    node_start(n, n->core_count);
    uint32_t table = node_create(n, &f);
    for (uint64_t key = 0; key < 100; key++) {
        struct mr_tensor t = mr_tensor_1d(MR_U64, 1, &key);
        node_check(node_call(n, node_core_of_key(n, key, 0), MR_OP_LOOKUP, (uint16_t)table, &t, 1), MR_OK,
                   NULL);
    }
    return table;
}

TEST(so_many_deltas_follow_a_full_one, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = start_with(n, 2, 1000);
    expect(n, AS_CONFIGURED, 1, FULL, 0);
    control_chain_push(n, table, 1);
    expect(n, AS_CONFIGURED, 2, DELTA, 1);
    control_chain_push(n, table, 2);
    expect(n, AS_CONFIGURED, 3, DELTA, 2);
    control_chain_push(n, table, 3);
    expect(n, AS_CONFIGURED, 4, FULL, 0);
    expect(n, AS_CONFIGURED, 5, DELTA, 4);
    expect(n, FULL, 6, FULL, 0);
    assert_int_equal(node_counter(n, 0, "checkpoint.deltas_good"), 3);
    node_check(node_restore(n, 3), MR_OK, NULL);
    assert_float_equal(node_value(n, table, 1), -1, 0);
    assert_float_equal(node_value(n, table, 2), -1, 0);
    assert_float_equal(node_value(n, table, 3), 0, 0);
}

/* A block is 1 MiB at least, so small deltas are as large as their full one. */
TEST(deltas_that_have_grown_end_a_chain, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = start_with(n, 100, 150);
    expect(n, AS_CONFIGURED, 1, FULL, 0);
    control_chain_push(n, table, 1);
    expect(n, AS_CONFIGURED, 2, DELTA, 1);
    control_chain_push(n, table, 1);
    expect(n, AS_CONFIGURED, 3, DELTA, 2);
    control_chain_push(n, table, 1);
    expect(n, AS_CONFIGURED, 4, FULL, 0);
    expect(n, AS_CONFIGURED, 5, DELTA, 4);
}

/* Blocks count, whether the node wrote them or was restored from them. */
TEST(so_it_does_after_a_restart, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = start_with(n, 100, 150);
    expect(n, AS_CONFIGURED, 1, FULL, 0);
    control_chain_push(n, table, 1);
    expect(n, AS_CONFIGURED, 2, DELTA, 1);
    node_restart(n, n->core_count);
    control_chain_push(n, table, 1);
    expect(n, AS_CONFIGURED, 3, DELTA, 2);
    node_restart(n, n->core_count);
    control_chain_push(n, table, 1);
    expect(n, AS_CONFIGURED, 4, FULL, 0);
}

static const struct node_reply *restore_table(struct node_fixture *n, uint64_t id)
{
    struct mr_restore_pair pair = {.name = "emb", .new_name = "emb_old"};
    uint32_t flags = 0;
    struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U8, 0, NULL), mr_tensor_1d(MR_U64, 1, &id),
                                   mr_tensor_2d(MR_U8, 1, sizeof(pair), &pair),
                                   mr_tensor_1d(MR_U32, 1, &flags)};
    return node_call(n, 0, MR_OP_RESTORE, 0, tensors, 4);
}

TEST(the_real_reason_is_told, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = start_with(n, 5, 1000);
    expect(n, AS_CONFIGURED, 1, FULL, 0);
    control_chain_push(n, table, 1);
    expect(n, AS_CONFIGURED, 2, DELTA, 1);
    node_check(node_restore(n, 1), MR_OK, NULL);
    node_check(control_chain_ask(n, "", DELTA), MR_INVALID_ARGUMENT, "not the newest checkpoint");
    expect(n, AS_CONFIGURED, 3, FULL, 0);
    node_check(restore_table(n, 2), MR_OK, NULL);
    node_check(control_chain_ask(n, "", DELTA), MR_INVALID_ARGUMENT, "single tables were restored");
    expect(n, AS_CONFIGURED, 4, FULL, 0);
}

static void make_rows(struct node_fixture *n, uint32_t table)
{
    for (uint64_t key = 0; key < 100; key++) {
        const struct mr_tensor t = mr_tensor_1d(MR_U64, 1, &key);
        node_check(node_call(n, node_core_of_key(n, key, 0), MR_OP_LOOKUP, (uint16_t)table, &t, 1), MR_OK,
                   NULL);
    }
}

static uint64_t rows_of_all(struct node_fixture *n)
{
    uint64_t rows = 0;
    for (uint32_t core = 0; core < n->core_count; core++)
        rows += node_counter(n, core, "table.rows");
    return rows;
}

/* The rows of what was dropped are in earlier links, and nobody takes them for those of a later table of that
 * name, nor for damage. */
TEST(deltas_carry_drops, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    const struct mr_feature other = node_table("other", 7), bias = node_variable("bias", 3);
    const uint32_t table = start_with(n, 10, 1000), gone = node_create(n, &other), cores = n->core_count;
    (void)node_create(n, &bias);
    n->config.checkpoint_save_on_stop = false;
    make_rows(n, gone);
    control_chain_push(n, gone, 1);
    expect(n, AS_CONFIGURED, 1, FULL, 0);
    control_chain_push(n, table, 1);
    node_drop(n, "other");
    node_drop(n, "bias");
    control_chain_push(n, table, 2);
    expect(n, DELTA, 2, DELTA, 1);
    const uint32_t made = node_create(n, &other);
    assert_true(made > gone);
    control_chain_push(n, made, 1); /* there is no row yet, and so it changes nothing */
    make_rows(n, made);
    expect(n, DELTA, 3, DELTA, 2);
    node_drop(n, "other");
    node_restart(n, 2); /* which leaves it out, and may go on with a delta */
    assert_int_equal(rows_of_all(n), 100);
    assert_float_equal(node_value(n, table, 1), -1, 0);
    assert_float_equal(node_value(n, table, 2), -1, 0);
    control_chain_push(n, table, 3);
    expect(n, DELTA, 4, DELTA, 3);
    node_restart(n, cores);
    assert_int_equal(rows_of_all(n), 100);
    assert_float_equal(node_value(n, table, 3), -1, 0);
    node_check(node_restore(n, 3), MR_OK, NULL);
    assert_int_equal(rows_of_all(n), 200);
    assert_float_equal(node_value(n, made, 1), 7, 0);
    node_check(node_restore(n, 1), MR_OK, NULL);
    assert_int_equal(rows_of_all(n), 200);
    assert_float_equal(node_value(n, gone, 1), 6, 0);
}

/* What a restore came to is in its answer. */
TEST(a_restore_tells_its_step_and_features, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    start_with(n, 0, 0);
    struct mr_feature v = node_variable("bias", 3);
    node_create(n, &v);
    uint64_t key = 1;
    struct mr_tensor t = mr_tensor_1d(MR_U64, 1, &key);
    node_check(node_call_step(n, node_core_of_key(n, key, 0), MR_OP_LOOKUP, 1, 30, 0, &t, 1), MR_OK, NULL);
    expect(n, AS_CONFIGURED, 1, FULL, 0);
    const struct node_reply *reply = node_restore(n, 1);
    const uint64_t whole[6] = {1, 30, 0, 1, 1, 0}, one[6] = {1, 30, 0, 1, 0, 0};
    node_check(reply, MR_OK, NULL);
    assert_int_equal(reply->tensors[0].bytes, sizeof(whole));
    assert_memory_equal(reply->tensors[0].data, whole, sizeof(whole));
    reply = restore_table(n, 0);
    node_check(reply, MR_OK, NULL);
    assert_memory_equal(reply->tensors[0].data, one, sizeof(one));
}

TEST(a_delta_may_be_asked_for, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    start_with(n, 1, 1000);
    node_check(control_chain_ask(n, "", DELTA), MR_INVALID_ARGUMENT,
               "no delta is possible now: there is no checkpoint yet");
    expect(n, AS_CONFIGURED, 1, FULL, 0);
    expect(n, DELTA, 2, DELTA, 1);
    expect(n, DELTA, 3, DELTA, 2); /* one more than configured */
    node_stop(n);
    n->config.checkpoint_deltas = 0;
    node_start(n, n->core_count);
    node_check(control_chain_ask(n, "", DELTA), MR_INVALID_ARGUMENT, "checkpoint.deltas is 0");
    expect(n, AS_CONFIGURED, 4, FULL, 0);
}

TEST(another_directory_gets_a_full_one, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    char elsewhere[128];
    start_with(n, 5, 1000);
    expect(n, AS_CONFIGURED, 1, FULL, 0);
    snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", n->directory);
    struct saved saved = save_to(n, elsewhere, AS_CONFIGURED);
    assert_int_equal(saved.kind, FULL);
    expect(n, AS_CONFIGURED, 2, FULL, 0); /* the marks are of what is elsewhere */
    expect(n, AS_CONFIGURED, 3, DELTA, 2);
}

static void remove_checkpoint(const struct node_fixture *n, uint64_t id)
{
    assert_int_equal(
        command_run("rm -r %s/ckpt-%llu", n->config.checkpoint_directory, (unsigned long long)id), 0);
}

/* What a delta would be based on is looked at to its full: what is reported as saved comes back. */
TEST(a_full_one_follows_when_the_base_has_gone, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = start_with(n, 100, 1000);
    expect(n, AS_CONFIGURED, 1, FULL, 0);
    control_chain_push(n, table, 1);
    expect(n, AS_CONFIGURED, 2, DELTA, 1);
    control_chain_push(n, table, 1);
    expect(n, AS_CONFIGURED, 3, DELTA, 2);
    control_chain_push(n, table, 1);
    remove_checkpoint(n, 1);
    node_check(control_chain_ask(n, "", DELTA), MR_CHECKPOINT_CORRUPT,
               "checkpoint 2 is a delta on 1, which is missing");
    expect(n, AS_CONFIGURED, 4, FULL, 0);
    node_restart(n, n->core_count);
    assert_float_equal(node_value(n, table, 1), -3, 0);
}

TEST(a_parent_that_is_gone_or_broken_has_no_delta, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    start_with(n, 5, 1000);
    expect(n, AS_CONFIGURED, 1, FULL, 0);
    expect(n, AS_CONFIGURED, 2, DELTA, 1);
    remove_checkpoint(n, 2);
    node_check(control_chain_ask(n, "", DELTA), MR_INVALID_ARGUMENT, "no longer in the directory");
    expect(n, AS_CONFIGURED, 2, FULL, 0);
    assert_int_equal(command_run("echo x >> %s/ckpt-2/MANIFEST", n->config.checkpoint_directory), 0);
    expect(n, AS_CONFIGURED, 3, FULL, 0);
    expect(n, AS_CONFIGURED, 4, DELTA, 3);
}

/* Another node's, or an older one put back: it verifies, and is not what the marks are about. */
TEST(a_parent_that_is_another_one_has_no_delta, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = start_with(n, 5, 1000);
    expect(n, AS_CONFIGURED, 1, FULL, 0);
    assert_int_equal(command_run("cd %s && mv ckpt-1 kept", n->config.checkpoint_directory), 0);
    control_chain_push(n, table, 12345);
    expect(n, AS_CONFIGURED, 1, FULL, 0);
    assert_int_equal(
        command_run("cd %s && mv ckpt-1 saved && mv kept ckpt-1", n->config.checkpoint_directory), 0);
    node_check(control_chain_ask(n, "", DELTA), MR_CHECKPOINT_CORRUPT,
               "another checkpoint has come in the place");
    expect(n, AS_CONFIGURED, 2, FULL, 0);
    expect(n, AS_CONFIGURED, 3, DELTA, 2);
}

TEST(after_a_restart_a_delta_follows_what_was_restored, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = start_with(n, 2, 1000);
    control_chain_push(n, table, 1);
    expect(n, AS_CONFIGURED, 1, FULL, 0);
    control_chain_push(n, table, 2);
    expect(n, AS_CONFIGURED, 2, DELTA, 1);
    node_restart(n, n->core_count == 1 ? 3 : 1);
    control_chain_push(n, table, 3);
    expect(n, AS_CONFIGURED, 3, DELTA, 2);
    expect(n, AS_CONFIGURED, 4, FULL, 0);
    node_check(node_restore(n, 3), MR_OK, NULL); /* not the newest */
    for (uint64_t key = 1; key <= 3; key++)
        assert_float_equal(node_value(n, table, key), -1, 0);
    expect(n, AS_CONFIGURED, 5, FULL, 0);
}
TEST_AGAIN(after_a_restart_a_delta_follows_what_was_restored, node_setup_3_cores, node_teardown)

/* ---- saves of single tables ---- */

struct names {
    char all[3][MR_NAME_BYTES];
    uint32_t count;
};

static const struct node_reply *ask_partial(struct node_fixture *n, const struct names *names, uint64_t kind,
                                            uint64_t queue)
{
    uint64_t words[MR_SAVE_ASK_WORDS] = {[MR_SAVE_ASK_KIND] = kind, [MR_SAVE_ASK_QUEUE] = queue};
    const struct mr_tensor tensors[3] = {mr_tensor_1d(MR_U8, 0, NULL),
                                         mr_body_tensor(MR_BODY_SAVE_ASK, words),
                                         mr_tensor_2d(MR_U8, names->count, MR_NAME_BYTES, names->all)};
    return node_call(n, 0, MR_OP_SAVE, 0, tensors, 3);
}

static struct saved save_partial(struct node_fixture *n, const struct names *names)
{
    const struct node_reply *reply = ask_partial(n, names, AS_CONFIGURED, 0);
    node_check(reply, MR_OK, NULL);
    return wait_saved(n, *(const uint64_t *)reply->tensors[1].data);
}

/* Restores from the folder of partial checkpoints: `name`, or, if that is NULL, everything. */
static const struct node_reply *restore_partial(struct node_fixture *n, uint64_t id, const char *name,
                                                const char *new_name)
{
    char directory[PATH_MAX];
    struct mr_restore_pair pair = {.name = ""};
    uint32_t flags = 0;
    snprintf(directory, sizeof(directory), "%s/partial", n->config.checkpoint_directory);
    snprintf(pair.name, sizeof(pair.name), "%s", name != NULL ? name : "");
    snprintf(pair.new_name, sizeof(pair.new_name), "%s", name != NULL ? new_name : "");
    const struct mr_tensor tensors[4] = {
        mr_tensor_1d(MR_U8, (uint32_t)strlen(directory), directory), mr_tensor_1d(MR_U64, 1, &id),
        mr_tensor_2d(MR_U8, 1, sizeof(pair), &pair), mr_tensor_1d(MR_U32, 1, &flags)};
    return node_call(n, 0, MR_OP_RESTORE, 0, tensors, name != NULL ? 4 : 2);
}

static uint32_t number_of(struct node_fixture *n, const char *name)
{
    const struct node_reply *reply = node_call(n, 0, MR_OP_LIST, 0, NULL, 0);
    node_check(reply, MR_OK, NULL);
    const struct mr_feature *features = reply->tensors[0].data;
    for (uint32_t i = 0; i < reply->tensors[0].dims[0]; i++)
        if (strcmp(features[i].name, name) == 0)
            return ((const uint32_t *)reply->tensors[1].data)[i];
    fail_msg("there is no %s", name);
    return 0;
}

static void push_at(struct node_fixture *n, uint32_t table, uint64_t key)
{
    struct mr_tensor t = mr_tensor_1d(MR_U64, 1, &key);
    node_check(node_call(n, node_core_of_key(n, key, 0), MR_OP_LOOKUP, (uint16_t)table, &t, 1), MR_OK, NULL);
    control_chain_push(n, table, key);
}

/* It has what it names and nothing else; it is no parent, and no state that a start or a whole restore
 * takes. */
TEST(single_tables_are_saved_aside, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature side = node_table("side", 0), bias = node_variable("bias", 3);
    uint32_t table = start_with(n, 4, 1000), other = node_create(n, &side);
    const struct names names = {{"bias", "emb", "bias"}, 3};
    node_create(n, &bias);
    expect(n, AS_CONFIGURED, 1, FULL, 0);
    control_chain_push(n, table, 1);
    push_at(n, other, 1);
    struct saved partial = save_partial(n, &names);
    assert_int_equal(partial.id, 1); /* of its own */
    assert_int_equal(partial.kind, 3);
    assert_int_equal(node_counter(n, 0, "checkpoint.last_good_id"), 1);
    control_chain_push(n, table, 1);
    expect(n, AS_CONFIGURED, 2, FULL, 0);
    control_chain_push(n, table, 1);
    expect(n, AS_CONFIGURED, 3, DELTA, 2);
    assert_int_equal(save_partial(n, &names).id, 2);
    node_restart(n, 2);
    assert_float_equal(node_value(n, table, 1), -3, 0);
    assert_float_equal(node_value(n, other, 1), -1, 0);
    node_check(restore_partial(n, 1, NULL, NULL), MR_INVALID_ARGUMENT, "is partial: it has 2 tables");
    node_check(restore_partial(n, 0, NULL, NULL), MR_INVALID_ARGUMENT, "the first is emb");
    assert_float_equal(node_value(n, table, 1), -3, 0);
    node_check(restore_partial(n, 1, "side", ""), MR_UNKNOWN_TABLE,
               "holds no table, variable or parameter named side");
    node_check(restore_partial(n, 1, "emb", "emb_old"), MR_OK, NULL);
    assert_float_equal(node_value(n, number_of(n, "emb_old"), 1), -1, 0);
}
TEST_AGAIN(single_tables_are_saved_aside, node_setup_3_cores, node_teardown)

/* A state that is only in partial checkpoints is not on disk as far as clients with replay know. */
TEST(single_tables_do_not_make_pushes_durable, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = start_with(n, 0, 50);
    const struct names names = {{"emb"}, 1};
    control_chain_push(n, table, 1);
    for (uint64_t id = 1; id <= 3; id++)
        assert_int_equal(save_partial(n, &names).id, id);
    assert_int_equal(node_durable_in(n, 1), 0);
    expect(n, AS_CONFIGURED, 1, FULL, 0);
    assert_int_equal(save_partial(n, &names).id, 4);
    assert_int_equal(node_durable_in(n, 2), 1);
}

/* As many stay as whole ones do. */
TEST(old_saves_of_single_tables_go, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    const struct names names = {{"emb"}, 1};
    char directory[PATH_MAX];
    uint64_t ids[8];
    start_with(n, 0, 50);
    expect(n, AS_CONFIGURED, 1, FULL, 0);
    n->config.checkpoint_keep = 2;
    for (uint64_t id = 1; id <= 4; id++)
        assert_int_equal(save_partial(n, &names).id, id);
    snprintf(directory, sizeof(directory), "%s/partial", n->config.checkpoint_directory);
    assert_int_equal(ps_checkpoint_list(NULL, directory, ids, 8), 2);
    assert_int_equal(ids[1], 3);
    assert_int_equal(ps_checkpoint_list(NULL, n->config.checkpoint_directory, ids, 8), 1);
}

TEST(what_names_cannot_be_saved_is_told, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    start_with(n, 4, 1000);
    const struct names good = {{"emb"}, 1}, unknown = {{"emb", "nothing"}, 2}, none = {.count = 0};
    struct names endless = good;
    memset(endless.all[0], 'x', MR_NAME_BYTES);
    node_check(ask_partial(n, &unknown, 0, 0), MR_UNKNOWN_TABLE,
               "no table, variable or parameter named nothing");
    node_check(ask_partial(n, &good, DELTA, 0), MR_INVALID_ARGUMENT, "never a delta");
    node_check(ask_partial(n, &none, 0, 0), MR_WRONG_SHAPE, "expected 1 to");
    node_check(ask_partial(n, &endless, 0, 0), MR_INVALID_ARGUMENT, "name 0 is longer than 63 bytes");
    expect(n, AS_CONFIGURED, 1, FULL, 0); /* nothing was begun */
}

/* Not that it is empty: training would begin from nothing, and its checkpoints would mix with those that are
 * there. */
TEST(a_directory_that_cannot_be_read_ends_the_start, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    char error[DP_ERROR_BYTES];
    const char *path = n->config.checkpoint_directory;
    node_stop(n);
    assert_int_equal(command_run("rm -rf %s && touch %s", path, path), 0);
    assert_int_equal(ps_server_start(&n->config, &n->server, error), MR_IO_ERROR);
    assert_non_null(strstr(error, "Not a directory"));
    n->server = NULL;
    assert_int_equal(command_run("rm %s", path), 0);
    node_start(n, n->core_count);
}

/* Its newest checkpoint was damaged on the disk, and the node has read it again. */
TEST(a_full_one_follows_one_that_was_damaged, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    n->config.checkpoint_scrub_every_s = 1;
    n->config.checkpoint_scrub_rate_mib_s = 0;
    uint32_t table = start_with(n, 100, 1000);
    expect(n, AS_CONFIGURED, 1, FULL, 0);
    control_chain_push(n, table, 1);
    expect(n, AS_CONFIGURED, 2, DELTA, 1);
    fixture_flip(fixture_path(n->config.checkpoint_directory, 1, "core-000.mrc"), 5000, 1);
    WAIT_UNTIL(node_counter(n, 0, "scrub.damaged_id") == 2);
    node_check(control_chain_ask(n, "", DELTA), MR_INVALID_ARGUMENT,
               "the last checkpoint was damaged on the disk");
    control_chain_push(n, table, 2);
    expect(n, AS_CONFIGURED, 3, FULL, 0);
    control_chain_push(n, table, 3);
    expect(n, AS_CONFIGURED, 4, DELTA, 3);
    WAIT_UNTIL(node_counter(n, 0, "scrub.damaged_id") == 0);
    expect(n, AS_CONFIGURED, 5, DELTA, 4);
}
