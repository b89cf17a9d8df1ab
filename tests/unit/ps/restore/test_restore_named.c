/* Restores of single features: under their names and others, beside what the node holds and in its place, and
 * what is left of one that fails. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "fake_dp.h"
#include "ps/checkpoint/checkpoint.h"
#include "checkpoint_fixture.h"
#include "restore_fixture.h"
#include "tests/test.h"

#define LIMIT_US 60000000 /* nothing waits for it in a good run */

struct names {
    struct mr_restore_pair pairs[4];
    uint32_t count, flags;
};

static void name(struct names *names, const char *old, const char *new_name)
{
    struct mr_restore_pair *p = &names->pairs[names->count++];
    snprintf(p->name, sizeof(p->name), "%s", old);
    snprintf(p->new_name, sizeof(p->new_name), "%s", new_name);
}

struct restore_call {
    uint64_t id;
    struct mr_tensor tensors[4];
};

static void set_call(struct restore_call *call, const struct names *names, uint64_t id)
{
    call->id = id;
    call->tensors[0] = mr_tensor_1d(MR_U8, 0, NULL);
    call->tensors[1] = mr_tensor_1d(MR_U64, 1, &call->id);
    call->tensors[2] = mr_tensor_2d(MR_U8, names->count, sizeof(names->pairs[0]), names->pairs);
    call->tensors[3] = mr_tensor_1d(MR_U32, 1, &names->flags);
}

static const struct node_reply *restore(struct node_fixture *n, const struct names *names, uint64_t id)
{
    struct restore_call call;
    set_call(&call, names, id);
    return node_call(n, 0, MR_OP_RESTORE, 0, call.tensors, 4);
}

/* The number of a feature, and how many rows it has; 0 when there is none. */
static uint32_t restore_named_find(struct node_fixture *n, const char *wanted, uint64_t *rows)
{
    const struct node_reply *reply = node_call(n, 0, MR_OP_LIST, 0, NULL, 0);
    node_check(reply, MR_OK, NULL);
    const struct mr_feature *features = reply->tensors[0].data;
    for (uint32_t i = 0; i < reply->tensors[0].dims[0]; i++) {
        if (strcmp(features[i].name, wanted) == 0) {
            *rows = ((const uint64_t *)reply->tensors[2].data)[MR_LIST_WORDS * i];
            return ((const uint32_t *)reply->tensors[1].data)[i];
        }
    }
    return 0;
}

static uint32_t number_of(struct node_fixture *n, const char *wanted)
{
    uint64_t rows;
    uint32_t id = restore_named_find(n, wanted, &rows);
    assert_int_not_equal(id, 0);
    return id;
}

static float variable_value(struct node_fixture *n, const char *wanted)
{
    uint64_t range[2] = {0, 0};
    struct mr_tensor t = mr_tensor_1d(MR_U64, 2, range);
    const struct node_reply *reply = node_call(n, node_core_of_variable(n, wanted), MR_OP_VARIABLE_PULL,
                                               (uint16_t)number_of(n, wanted), &t, 1);
    node_check(reply, MR_OK, NULL);
    return *(const float *)reply->tensors[0].data;
}

static void set_variable(struct node_fixture *n, const char *wanted, float value)
{
    uint64_t first = 0;
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U64, 1, &first), mr_tensor_1d(MR_F32, 1, &value)};
    node_check(node_call_step(n, node_core_of_variable(n, wanted), MR_OP_VARIABLE_PUSH,
                              (uint16_t)number_of(n, wanted), 7, 0, tensors, 2),
               MR_OK, NULL);
}

/* A checkpoint of emb (all 99), side (all 50) and bias (3); then emb learns on to 97. */
static uint64_t save_and_go_on(struct node_fixture *n)
{
    struct mr_feature side = node_table("side", 50), bias = node_variable("bias", 1);
    uint32_t table = make_table(n), other = node_create(n, &side);
    node_create(n, &bias);
    set_variable(n, "bias", 3);
    learn(n, table, BATCH(0));
    node_feed(n, BATCH(9), other, keys, KEYS); /* makes its rows */
    uint64_t id = node_save(n);
    learn(n, table, BATCH(1));
    learn(n, table, BATCH(2));
    set_variable(n, "bias", 4);
    return id;
}

TEST(comes_beside_under_another_name, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    struct names names = {0};
    uint64_t rows, id = save_and_go_on(n);
    name(&names, "emb", "emb_old");
    name(&names, "bias", "bias/old");
    const struct node_reply *reply = restore(n, &names, 0);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(*(const uint64_t *)reply->tensors[0].data, id);
    assert_int_equal(restore_named_find(n, "emb_old", &rows), 4);
    assert_int_equal(rows, KEYS);
    check_values(n, 4, 99);
    check_values(n, number_of(n, "emb"), 97);
    assert_true(variable_value(n, "bias/old") == 3);
    assert_true(variable_value(n, "bias") == 4);
    /* What the node has applied stays applied, and it goes on. */
    assert_int_equal(learn(n, number_of(n, "emb"), BATCH(2)), 0);
    assert_int_equal(learn(n, 4, BATCH(3)), n->core_count);
    check_values(n, 4, 98);
    for (uint32_t core = 0; core < n->core_count; core++)
        assert_int_equal(node_counter(n, core, "ps.features"), 5);
}

TEST(comes_into_an_empty_node, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    struct names names = {0};
    uint64_t rows;
    save_and_go_on(n);
    uint32_t last = number_of(n, "bias");
    snprintf(n->config.checkpoint_restore, sizeof(n->config.checkpoint_restore), "none");
    node_restart(n, 2);
    name(&names, "side", "");
    node_check(restore(n, &names, 1), MR_OK, NULL);
    uint32_t side = restore_named_find(n, "side", &rows);
    assert_int_equal(side, last + 1); /* numbers that were given never return */
    assert_int_equal(rows, KEYS);
    check_values(n, side, 50);
    assert_int_equal(restore_named_find(n, "emb", &rows), 0);
    assert_int_equal(learn(n, make_table(n), BATCH(0)), 2); /* no record of batches came along */
}

/* A save after it holds both, also where saves are deltas: what came is in no checkpoint before. */
static void check_saved(struct node_fixture *n, uint64_t deltas)
{
    struct names names = {0};
    uint64_t rows;
    n->config.checkpoint_deltas = deltas;
    node_restart(n, n->core_count);
    save_and_go_on(n);
    name(&names, "emb", "emb_old");
    node_check(restore(n, &names, 1), MR_OK, NULL);
    node_save(n);
    node_restart(n, 2);
    assert_int_equal(restore_named_find(n, "emb_old", &rows), 4);
    assert_int_equal(rows, KEYS);
    check_values(n, 4, 99);
    check_values(n, number_of(n, "emb"), 97);
}

TEST(is_saved_like_any_other, node_setup_3_cores, node_teardown)
{
    check_saved(*state, 0);
}

TEST(is_saved_where_saves_are_deltas, node_setup_3_cores, node_teardown)
{
    check_saved(*state, 8);
}

/* What a delta on a checkpoint from before would take for unchanged. */
TEST(a_replaced_one_is_saved_whole, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    struct names names = {.flags = MR_RESTORE_REPLACE};
    n->config.checkpoint_deltas = 8;
    node_restart(n, 3);
    save_and_go_on(n);
    node_save(n); /* 97 */
    name(&names, "emb", "");
    node_check(restore(n, &names, 1), MR_OK, NULL);
    node_save(n);
    node_restart(n, 2);
    check_values(n, number_of(n, "emb"), 99);
}

/* The same for all of an older one. */
TEST(an_older_whole_is_saved_whole, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    n->config.checkpoint_deltas = 8;
    node_restart(n, 3);
    save_and_go_on(n);
    node_save(n);
    node_check(node_restore(n, 1), MR_OK, NULL);
    node_save(n);
    node_restart(n, 2);
    check_values(n, number_of(n, "emb"), 99);
}

TEST(replaces_when_asked_to, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    struct names names = {0};
    save_and_go_on(n);
    uint32_t table = number_of(n, "emb");
    node_feed(n, BATCH(3), table, keys, KEYS); /* looked up in the table that goes */
    name(&names, "emb", "");
    name(&names, "bias", "");
    node_check(restore(n, &names, 1), MR_INVALID_ARGUMENT, "emb is there already");
    check_values(n, table, 97);
    names.flags = MR_RESTORE_REPLACE;
    node_check(restore(n, &names, 1), MR_OK, NULL);
    assert_int_equal(number_of(n, "emb"), table);
    check_values(n, table, 99);
    assert_true(variable_value(n, "bias") == 3);
    check_values(n, number_of(n, "side"), 50);
    assert_int_equal(node_counter(n, 0, "ps.batches_cached"), 0);
    assert_int_equal(learn(n, table, BATCH(2)), 0);
    assert_int_equal(learn(n, table, BATCH(3)), n->core_count);
    check_values(n, table, 98);
}

static const struct node_reply *restore_named_drop(struct node_fixture *n, const char *first,
                                                   const char *second)
{
    char names[2][MR_NAME_BYTES] = {{0}};
    snprintf(names[0], MR_NAME_BYTES, "%s", first);
    snprintf(names[1], MR_NAME_BYTES, "%s", second);
    const struct mr_tensor t = mr_tensor_2d(MR_U8, 2, MR_NAME_BYTES, names);
    return node_call(n, 0, MR_OP_DROP, 0, &t, 1);
}

static void check_gone(struct node_fixture *n, uint32_t table)
{
    uint64_t rows;
    assert_int_equal(restore_named_find(n, "emb", &rows), 0);
    assert_int_equal(restore_named_find(n, "bias", &rows), 0);
    assert_int_not_equal(restore_named_find(n, "side", &rows), 0);
    assert_int_equal(rows, KEYS);
    const struct mr_tensor t = mr_tensor_1d(MR_U64, 1, keys);
    node_check(node_call(n, 0, MR_OP_LOOKUP, (uint16_t)table, &t, 1), MR_UNKNOWN_TABLE,
               "no table has number");
}

/* Dropped features stay away, though the checkpoints that there are have them: after a start onto another
 * number of cores, after a save, and after a start from that. What the node has applied, it remembers. */
TEST(what_is_dropped_stays_away, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    const uint32_t cores = n->core_count;
    n->config.checkpoint_save_on_stop = false;
    (void)save_and_go_on(n);
    const uint32_t table = number_of(n, "emb"), last = number_of(n, "bias"), side = number_of(n, "side");
    node_check(restore_named_drop(n, "emb", "nobody"), MR_UNKNOWN_TABLE,
               "no table, variable or parameter named nobody");
    check_values(n, table, 97);
    const struct node_reply *reply = restore_named_drop(n, "emb", "bias");
    node_check(reply, MR_OK, NULL);
    assert_int_equal(reply->tensors[0].dims[0], 2);
    assert_int_equal(((const uint32_t *)reply->tensors[0].data)[0], table);
    assert_int_equal(((const uint32_t *)reply->tensors[0].data)[1], last);
    check_gone(n, table);
    node_restart(n, 2);
    check_gone(n, table);
    assert_int_equal(learn(n, side, BATCH(0)), 0); /* it was applied, to the table that is gone */
    assert_int_equal(node_save(n), 2);
    node_restart(n, cores);
    check_gone(n, table);
    assert_int_equal(make_table(n), last + 1); /* a new table under that name has its own number */
    check_values(n, last + 1, 100);
}
TEST_AGAIN(what_is_dropped_stays_away, node_setup_3_cores, node_teardown)

/* A restore by call says what the node shall have, and the starts after it agree. */
TEST(a_restore_brings_back_what_was_dropped, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    n->config.checkpoint_save_on_stop = false;
    const uint64_t id = save_and_go_on(n);
    const uint32_t table = number_of(n, "emb");
    node_check(restore_named_drop(n, "emb", "bias"), MR_OK, NULL);
    assert_int_equal(node_save(n), id + 1);
    node_check(node_restore(n, id), MR_OK, NULL);
    check_values(n, table, 99);
    node_restart(n, n->core_count);
    check_values(n, number_of(n, "emb"), 99);
    node_check(restore_named_drop(n, "emb", "bias"), MR_OK, NULL);
    node_restart(n, n->core_count); /* goes on from that restore */
    check_gone(n, table);
}

TEST(refuses_what_is_wrong, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct names names = {0};
    struct restore_call call;
    save_and_go_on(n);
    set_call(&call, &names, 1);
    node_check(node_call(n, 0, MR_OP_RESTORE, 0, call.tensors, 4), MR_WRONG_SHAPE, "names are u8[0, 128]");
    name(&names, "nothing", "");
    node_check(restore(n, &names, 1), MR_UNKNOWN_TABLE, "no table, variable or parameter named nothing");
    node_check(restore(n, &names, 0), MR_UNKNOWN_TABLE, "no table, variable or parameter named nothing");
    node_check(restore(n, &names, 8), MR_CHECKPOINT_NOT_FOUND, "ckpt-8");
    names.flags = 2;
    node_check(restore(n, &names, 1), MR_INVALID_ARGUMENT, "flags 0x2");
    set_call(&call, &names, 1);
    node_check(node_call(n, 0, MR_OP_RESTORE, 0, call.tensors, 3), MR_WRONG_SHAPE, "flags is missing");
    call.tensors[2].dims[1] = 64;
    call.tensors[2].bytes = 64;
    node_check(node_call(n, 0, MR_OP_RESTORE, 0, call.tensors, 4), MR_WRONG_SHAPE, "names are u8[1, 64]");
    check_values(n, number_of(n, "emb"), 97);
}

/* ---- damage: nothing of it is seen, on a node with state and on an empty one ---- */

static void damage(const struct node_fixture *n, uint64_t id, const char *file, off_t at)
{
    fixture_flip(fixture_path(n->config.checkpoint_directory, id, file), at, 0x40);
}

static void remove_file(const struct node_fixture *n, uint64_t id, const char *file)
{
    assert_int_equal(unlink(fixture_path(n->config.checkpoint_directory, id, file)), 0);
}

/* Checkpoint 1, and 2 to 5: the same with a table of several blocks, each damaged in its own way. */
static void save_damaged_ones(struct node_fixture *n)
{
    static uint64_t many[3000];
    struct mr_feature f = node_table("wide", 0);
    n->config.checkpoint_keep = 10;
    node_restart(n, 1);
    save_and_go_on(n);
    f.dims[0] = 512;
    uint32_t table = node_create(n, &f);
    for (uint32_t i = 0; i < 3000; i++)
        many[i] = i;
    struct mr_tensor lookup = mr_tensor_1d(MR_U64, 3000, many);
    node_check(node_call(n, 0, MR_OP_LOOKUP, (uint16_t)table, &lookup, 1), MR_OK, NULL);
    for (uint64_t id = 2; id <= 5; id++)
        assert_int_equal(node_save(n), id);
    damage(n, 2, "core-000.mrc", 5 * (off_t)PS_BLOCK_BYTES + 1000);
    remove_file(n, 3, "core-000.mrc");
    damage(n, 4, "MANIFEST", 200);
    remove_file(n, 5, "MANIFEST");
}

static const struct {
    uint64_t id;
    const char *says;
} damages[] = {{2, "core-000.mrc: block 5"}, {3, "core-000.mrc"}, {4, "MANIFEST"}, {5, "MANIFEST"}};

static void check_all_refused(struct node_fixture *n, const struct names *names, uint64_t features)
{
    for (uint32_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
        const struct node_reply *reply =
            names != NULL ? restore(n, names, damages[i].id) : node_restore(n, damages[i].id);
        assert_true(reply->status == MR_CHECKPOINT_CORRUPT || reply->status == MR_CHECKPOINT_NOT_FOUND ||
                    reply->status == MR_IO_ERROR);
        node_check(reply, reply->status, damages[i].says);
        assert_int_equal(node_counter(n, 0, "ps.features"), features);
    }
}

/* Whole and by name, also where the damage is in a table that was not asked for. */
TEST(damage_is_named_and_changes_nothing, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct names whole_table = {0}, small = {0};
    uint64_t rows;
    save_damaged_ones(n);
    name(&whole_table, "wide", "wide_old");
    name(&small, "side", "side_old");
    uint32_t table = number_of(n, "emb");
    node_feed(n, BATCH(3), table, keys, KEYS);
    check_all_refused(n, NULL, 4);
    check_all_refused(n, &whole_table, 4);
    check_all_refused(n, &small, 4);
    check_values(n, table, 97);
    assert_int_equal(node_push_batch(n, 0, BATCH(3), table, KEYS, 1), 1); /* what was fed is still there */
    check_values(n, table, 96);
    assert_int_equal(restore_named_find(n, "wide_old", &rows), 0);
    /* The newest that is whole. */
    const struct node_reply *reply = restore(n, &small, 0);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(*(const uint64_t *)reply->tensors[0].data, 1);
    check_values(n, number_of(n, "side_old"), 50);
}

/* What core 0 has mapped, but for units that are only made ready ahead, of which there are more or fewer by
 * need. */
static uint64_t mapped_bytes(struct node_fixture *n)
{
    const struct node_reply *reply = node_call(n, 0, MR_OP_MEMORY, 0, NULL, 0);
    node_check(reply, MR_OK, NULL);
    const uint64_t *words = reply->tensors[0].data;
    return words[1] - words[3];
}

TEST(damage_leaves_an_empty_node_empty, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct names names = {0};
    save_damaged_ones(n);
    name(&names, "wide", "");
    name(&names, "side", "");
    snprintf(n->config.checkpoint_restore, sizeof(n->config.checkpoint_restore), "none");
    node_restart(n, 1);
    check_all_refused(n, NULL, 0);
    check_all_refused(n, &names, 0);
    uint64_t bytes = mapped_bytes(n);
    for (uint32_t i = 0; i < 5; i++) {
        check_all_refused(n, NULL, 0);
        check_all_refused(n, &names, 0);
    }
    while (mapped_bytes(n) > bytes) { /* nothing of them stays, once all has been given back */
    }
    uint32_t table = make_table(n);
    assert_int_equal(learn(n, table, BATCH(0)), 1);
    check_values(n, table, 99);
}

/* ---- training meanwhile ---- */

/* While a core stands still in the middle of the restore, the others serve, and save nothing. */
TEST(calls_go_on_meanwhile, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    struct names names = {0};
    struct restore_call call;
    save_and_go_on(n);
    uint32_t table = number_of(n, "emb");
    name(&names, "side", "side_old");
    set_call(&call, &names, 1);
    fake_dp_hold(2);
    fake_dp_wait_held(2);
    node_begin(n, 0, MR_OP_RESTORE, 0, call.tensors, 4);
    fake_dp_wait_posted(2, 1);
    uint32_t done = 0;
    for (uint32_t i = 0; i < KEYS; i++) {
        if (node_core_of_key(n, keys[i], 0) == 2)
            continue;
        uint32_t head[4] = {table, 0};
        float gradient[NODE_DIM] = {1};
        struct mr_tensor push[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, 1, &keys[i]),
                                    mr_tensor_1d(MR_U32, 0, NULL),
                                    mr_tensor_2d(MR_F32, 1, NODE_DIM, gradient)};
        struct node_call pushed = {0};
        struct mr_call_options options = {.op = MR_OP_PUSH_GRAD, .deadline_us = dp_now_us() + LIMIT_US};
        node_post(n, node_core_of_key(n, keys[i], 0), &pushed, &options, push, 4);
        node_check(node_wait(n, &pushed), MR_OK, NULL);
        node_call_end(&pushed);
        done++;
    }
    assert_true(done > 0);
    fake_dp_release(2);
    node_check(node_end(n), MR_OK, NULL);
    check_values(n, number_of(n, "side_old"), 50);
    for (uint32_t i = 0; i < KEYS; i++) {
        float expected = node_core_of_key(n, keys[i], 0) == 2 ? 97 : 96;
        assert_true(node_value(n, table, keys[i]) == expected);
    }
}
