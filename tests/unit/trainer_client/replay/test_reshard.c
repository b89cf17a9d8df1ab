/* A node that comes back with another number of cores, and what was kept for it, or in flight, then. */
#include <stdlib.h>
#include <string.h>
#include "tests/test.h"
#include "tests/unit/trainer_client/future_notice.h"
#include "tests/unit/trainer_client/replay_fixture.h"
#include "tests/wait.h"
#include "trainer_client/call/client.h"
#include "trainer_client/call/retry.h"
#include "trainer_client/replay/reshard.h"
#include "trainer_client/replay/reshard_trim.h"

enum { LOOKUPS = 3 };

static void crash_onto(struct replay_fixture *x, uint32_t cores)
{
    live_node_kill(x->node);
    live_node_restart_with(x->node, cores);
}

/* Rows, bags and a variable, kept for cores that are no more: they go to those who own the keys now. */
TEST(test_other_number_of_cores)
{
    static const uint32_t cores[] = {3, 1, 2, 4, 3};
    uint32_t offsets[3] = {0, REPLAY_KEYS / 4, REPLAY_KEYS}, dims[1] = {4}, variable, table;
    struct mr_feature features[2] = {mr_feature_variable("v", 1, dims), replay_table("mean")};
    float ones[4] = {1, 1, 1, 1}, bags[2 * REPLAY_DIM] = {8, 8, 16, 16};
    struct replay_fixture x;
    struct mr_reply *reply;
    features[0].learning_rate = 1;
    features[1].pooling = MR_POOL_SUM;
    replay_start(&x, cores[0], 0);
    assert_int_equal(mr_create(x.client, NULL, features, 2, (uint32_t[2]){0}), MR_OK);
    assert_int_equal(mr_create(x.client, NULL, &features[0], 1, &variable), MR_OK);
    assert_int_equal(mr_create(x.client, NULL, &features[1], 1, &table), MR_OK);
    live_node_fill(x.node, table, REPLAY_DIM, x.keys, REPLAY_KEYS);
    live_node_save(x.node);
    for (uint32_t i = 1; i < 5; i++) {
        replay_push_steps(&x, 10 * i, 10 * i + 5);
        assert_int_equal(mr_variable_push_gradient(x.client, NULL, variable, 4, ones), MR_OK);
        if (mr_push_gradients_bags(x.client, NULL, table, x.keys, NULL, offsets, 2, REPLAY_DIM, bags) !=
            MR_OK)
            fail_msg("%s", mr_last_error());
        crash_onto(&x, cores[i]);
        replay_check_rows(&x);
        assert_int_equal(mr_client_core_count(x.client), cores[i]);
        assert_int_equal(mr_variable_pull(x.client, NULL, variable, 0, 0, &reply), MR_OK);
        assert_true(((const float *)mr_reply_tensor(reply, 0)->data)[2] == -(float)i);
        mr_reply_free(reply);
        assert_int_equal(mr_lookup(x.client, NULL, table, x.keys, REPLAY_KEYS, &reply), MR_OK);
        for (uint32_t k = 0; k < REPLAY_KEYS; k++)
            assert_true(((const float *)mr_reply_tensor(reply, 0)->data)[k * REPLAY_DIM] ==
                        live_value(x.keys[k], 0) - (float)i * (k < REPLAY_KEYS / 4 ? 8 : 16));
        mr_reply_free(reply);
    }
    assert_int_equal(replay_info_of(&x).dropped, 0);
    replay_stop(&x);
}

/* Nothing is pushed between two changes: what was dealt out by the first is dealt out again by the second. */
TEST(test_cores_change_twice)
{
    struct replay_fixture x;
    replay_start(&x, 2, 0);
    replay_push_steps(&x, 1, 5);
    crash_onto(&x, 4);
    replay_check_rows(&x);
    crash_onto(&x, 2);
    replay_check_rows(&x);
    crash_onto(&x, 3);
    replay_check_rows(&x);
    assert_int_equal(replay_info_of(&x).dropped, 0);
    replay_stop(&x);
}

/* Calls in flight when the cores change: pushes and lookups end well, and a push made before is not lost. */
TEST(test_cores_change_under_calls)
{
    struct replay_fixture x;
    struct mr_future *futures[8];
    replay_start(&x, 2, 0);
    replay_push_steps(&x, 1, 5);
    live_node_kill(x.node);
    for (uint32_t i = 0; i < 8; i++) {
        struct mr_options options = {.step = 10 + i, .future = &futures[i]};
        if (replay_push(&x, &options, 1) != MR_OK)
            fail_msg("%s", mr_last_error());
    }
    live_node_restart_with(x.node, 3);
    /* A lookup split by the old map is split again. */
    assert_int_equal(mr_lookup(x.client, NULL, x.table, x.keys, REPLAY_KEYS, NULL), MR_OK);
    for (uint32_t i = 0; i < 8; i++) {
        if (mr_future_wait(futures[i], NULL) != MR_OK)
            fail_msg("%s", mr_last_error());
        mr_future_destroy(futures[i]);
    }
    replay_check_rows(&x);
    replay_stop(&x);
}

/* A future of a push that was split again is done when the new owners have it. */
TEST(test_done_means_settled)
{
    struct replay_fixture x;
    struct mr_future *future = NULL;
    struct mr_options options = {.step = 10, .future = &future};
    replay_start(&x, 2, 0);
    live_node_kill(x.node);
    assert_int_equal(replay_push(&x, &options, 1), MR_OK);
    live_node_restart_with(x.node, 3);
    while (!mr_future_done(future)) {
    }
    assert_false(replay_info_of(&x).replaying);
    assert_int_equal(mr_future_wait(future, NULL), MR_OK);
    live_node_refuse(x.node, MR_OP_PUSH_GRAD, MR_BUSY,
                     LIVE_ALL_CORES); /* what is sent again stays in flight */
    crash_onto(&x, 4);
    while (!replay_info_of(&x).replaying)
        (void)mr_client_progress(x.client);
    assert_true(mr_future_done(future)); /* it was, and stays so */
    mr_future_destroy(future);
    live_node_refuse(x.node, MR_OP_PUSH_GRAD, MR_OK, 0);
    replay_check_rows(&x);
    replay_stop(&x);
}

/* Lookups with futures on their way when the node comes back with another number of cores; the second in bags
 * of two, the third of both. */
static void lookups_while_cores_change(struct replay_fixture *x, uint32_t cores,
                                       struct mr_future *futures[LOOKUPS])
{
    struct mr_options options = {.future = &futures[0]};
    uint32_t offsets[REPLAY_KEYS / 2 + 1];
    uint64_t keys[REPLAY_KEYS];
    for (uint32_t b = 0; b <= REPLAY_KEYS / 2; b++)
        offsets[b] = 2 * b;
    memcpy(keys, x->keys, sizeof(keys));
    live_node_kill(x->node);
    assert_int_equal(mr_lookup(x->client, &options, x->table, keys, REPLAY_KEYS, NULL), MR_OK);
    options.future = &futures[1];
    assert_int_equal(
        mr_lookup_bags(x->client, &options, x->table, keys, NULL, offsets, REPLAY_KEYS / 2, NULL), MR_OK);
    struct mr_table_keys both[2] = {
        {.table = x->table, .keys = keys, .key_count = REPLAY_KEYS},
        {.table = x->table, .keys = keys, .offsets = offsets, .bag_count = REPLAY_KEYS / 2}};

    options.future = &futures[2];
    assert_int_equal(mr_lookup_tables(x->client, &options, both, 2, NULL), MR_OK);
    memset(keys, 0xff, sizeof(keys)); /* the caller's again */
    memset(offsets, 0xff, sizeof(offsets));
    memset(both, 0xff, sizeof(both));
    live_node_restart_with(x->node, cores);
}

static void check_lookups(struct replay_fixture *x, struct mr_future *futures[LOOKUPS])
{
    struct mr_reply *expected = NULL, *rows = NULL, *sums = NULL, *both = NULL;
    if (mr_future_wait(futures[0], &rows) != MR_OK || mr_future_wait(futures[1], &sums) != MR_OK ||
        mr_future_wait(futures[2], &both) != MR_OK)
        fail_msg("%s", mr_last_error());
    assert_int_equal(mr_lookup(x->client, NULL, x->table, x->keys, REPLAY_KEYS, &expected), MR_OK);
    const float *all = mr_reply_tensor(expected, 0)->data, *in_pairs = mr_reply_tensor(sums, 0)->data;

    assert_int_equal(mr_reply_tensor(rows, 0)->dims[0], REPLAY_KEYS);
    assert_memory_equal(mr_reply_tensor(rows, 0)->data, all, REPLAY_KEYS * REPLAY_DIM * sizeof(float));
    assert_int_equal(mr_reply_tensor(sums, 0)->dims[0], REPLAY_KEYS / 2);
    for (uint32_t b = 0; b < REPLAY_KEYS / 2; b++) {
        for (uint32_t i = 0; i < REPLAY_DIM; i++)
            assert_true(in_pairs[b * REPLAY_DIM + i] ==
                        all[2 * b * REPLAY_DIM + i] + all[(2 * b + 1) * REPLAY_DIM + i]);
    }
    const struct mr_tensor *separate[2] = {mr_reply_tensor(rows, 0), mr_reply_tensor(sums, 0)};

    assert_int_equal(mr_reply_tensor_count(both), 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(mr_reply_tensor(both, i)->bytes, separate[i]->bytes);
        assert_memory_equal(mr_reply_tensor(both, i)->data, separate[i]->data, separate[i]->bytes);
    }
    mr_reply_free(expected);
    mr_reply_free(rows);
    mr_reply_free(sums);
    mr_reply_free(both);
    assert_int_equal(mr_future_wait(futures[0], NULL), MR_INVALID_ARGUMENT); /* once is enough */
    for (uint32_t i = 0; i < LOOKUPS; i++)
        mr_future_destroy(futures[i]);
}

/* A lookup with a future that was split by the old map is made again by the new one. */
TEST(test_cores_change_under_future_lookup)
{
    static const uint32_t maps[][2] = {{2, 3}, {1, 3}, {3, 1}};
    for (uint32_t i = 0; i < 3; i++) {
        struct replay_fixture x;
        struct mr_future *futures[LOOKUPS];
        replay_start(&x, maps[i][0], 0);
        replay_push_steps(&x, 1, 5);
        lookups_while_cores_change(&x, maps[i][1], futures);
        if (i == 0) {
            while (!mr_future_done(futures[0])) {
            }
        } else {
            future_wait_by_notice(x.client, futures[0]);
        }
        check_lookups(&x, futures);
        replay_check_rows(&x);
        replay_stop(&x);
    }
}

/* It may be given up meanwhile, whether it has been made again or not. */
TEST(test_cores_change_under_abandoned_lookup)
{
    struct replay_fixture x;
    struct mr_future *futures[LOOKUPS];
    replay_start(&x, 2, 0);
    lookups_while_cores_change(&x, 3, futures);
    (void)mr_future_done(futures[0]);
    mr_future_destroy(futures[0]);
    for (uint32_t i = 1; i < LOOKUPS; i++) {
        while (!mr_future_done(futures[i])) {
        }
        mr_future_destroy(futures[i]);
    }
    replay_check_rows(&x);
    replay_stop(&x);
}

/* The cores change between the numbering of a push and its sending: it is not sent, and the call is to be
 * made again. */
TEST(test_cores_change_before_sending)
{
    uint32_t dims[1] = {4};
    float values[4] = {1, 2, 3, 4};
    uint64_t range[2] = {0, 0};
    struct mr_feature feature = mr_feature_variable("v", 1, dims);
    struct replay_fixture x;
    struct mr_future *f;
    struct mr_reply *reply;
    uint32_t variable;
    replay_start(&x, 1, 0);
    assert_int_equal(mr_create(x.client, NULL, &feature, 1, &variable), MR_OK);
    live_node_save(x.node);
    assert_int_equal(mrc_future_new(x.client, NULL, MR_OP_VARIABLE_PUSH, variable, 1, 2, 0, &f), MR_OK);
    mrc_request_add(f, 0, mr_tensor_1d(MR_U64, 1, range));
    mrc_request_add(f, 0, mr_tensor_1d(MR_F32, 4, values));
    assert_int_equal(mrc_future_begin(f), MR_OK);
    crash_onto(&x, 2);
    replay_check_rows(&x);
    assert_int_equal(mrc_future_run(f, NULL, NULL), MRC_STALE_MAP);
    assert_int_equal(mr_variable_push(x.client, NULL, variable, 0, 4, values), MR_OK);
    assert_int_equal(mr_variable_pull(x.client, NULL, variable, 0, 0, &reply), MR_OK);
    assert_true(((const float *)mr_reply_tensor(reply, 0)->data)[3] == 4);
    mr_reply_free(reply);
    assert_int_equal(replay_info_of(&x).kept, 1);
    replay_stop(&x);
}

/* What had been given up before the cores changed is reported after it, though the stream is no core's any
 * more; once. */
TEST(test_given_up_and_other_cores)
{
    static const uint32_t cores[][2] = {{2, 3}, {1, 2}, {3, 1}, {2, 1}};
    for (uint32_t i = 0; i < 4; i++) {
        struct replay_fixture x;
        struct mr_options options = {.step = 101};
        replay_start(&x, cores[i][0], 8192);
        replay_push_steps(&x, 1, 100);
        assert_true(replay_info_of(&x).given_up > 0);
        crash_onto(&x, cores[i][1]);
        assert_int_equal(mr_lookup(x.client, NULL, x.table, x.keys, REPLAY_KEYS, NULL), MR_OK);
        assert_int_equal(replay_push(&x, &options, 1), MR_UNKNOWN_OUTCOME);
        assert_non_null(strstr(mr_last_error(), "may lack up to"));
        assert_int_equal(replay_push(&x, &options, 1), MR_OK);
        replay_stop(&x);
    }
}

/* Sums that are rounded tell in which order they were made: pushes of a map that came back are newer than
 * those of the map between. */
TEST(test_a_map_that_comes_back_is_in_its_turn)
{
    static const uint32_t cores[][4] = {{2, 3, 2, 1}, {1, 2, 1, 3}, {3, 1, 3, 3}, {2, 1, 2, 3}};
    static const float amounts[3] = {-1073741824, 1073741824, 5};
    for (uint32_t i = 0; i < 4; i++) {
        struct replay_fixture x;
        float rows[REPLAY_KEYS];
        struct mr_reply *reply;
        replay_start(&x, cores[i][0], 0);
        for (uint32_t k = 0; k < REPLAY_KEYS; k++)
            rows[k] = live_value(x.keys[k], 0);
        for (uint32_t p = 0; p < 3; p++) {
            struct mr_options options = {.step = p + 1};
            assert_int_equal(replay_push(&x, &options, amounts[p]), MR_OK);
            for (uint32_t k = 0; k < REPLAY_KEYS; k++)
                rows[k] -= amounts[p];
            crash_onto(&x, cores[i][p + 1]);
            assert_int_equal(mr_lookup(x.client, NULL, x.table, x.keys, REPLAY_KEYS, &reply), MR_OK);
            const float *got = mr_reply_tensor(reply, 0)->data;

            for (uint32_t k = 0; k < REPLAY_KEYS; k++)
                assert_float_equal(got[k * REPLAY_DIM], rows[k], 0);
            mr_reply_free(reply);
        }
        replay_stop(&x);
    }
}

/* The node comes back as an older copy of its directory has it: somebody put that in its place. */
static void put_back(struct replay_fixture *x, const char *name, uint32_t cores)
{
    live_node_kill(x->node);
    replay_put_back(x, name);
    live_node_restart_with(x->node, cores);
    assert_int_equal(mr_lookup(x->client, NULL, x->table, x->keys, REPLAY_KEYS, NULL), MR_OK);
}

static void save_and_let_go(struct replay_fixture *x, uint64_t from, uint64_t to)
{
    replay_push_steps(x, from, to - 1);
    live_node_save(x->node);
    replay_push_steps(x, to, to); /* its answers tell */
}

static void check_reported(struct replay_fixture *x, const char *steps)
{
    struct mr_options options = {.step = 101};
    assert_int_equal(replay_push(x, &options, 0), MR_UNKNOWN_OUTCOME);
    if (strstr(mr_last_error(), "may lack up to") == NULL || strstr(mr_last_error(), steps) == NULL)
        fail_msg("%s", mr_last_error());
    assert_int_equal(replay_push(x, &options, 0), MR_OK);
}

/* What had been on disk is kept no longer, and is gone with the newer directory: told whatever the cores are
 * now, and were since. */
TEST(test_an_older_directory_and_other_cores)
{
    static const uint32_t cores[][3] = {{2, 2, 2}, {2, 2, 3}, {2, 3, 3}, {2, 3, 2},
                                        {2, 1, 3}, {1, 3, 1}, {3, 1, 1}};
    for (uint32_t i = 0; i < sizeof(cores) / sizeof(cores[0]); i++) {
        struct replay_fixture x;
        replay_start(&x, cores[i][0], 0);
        replay_copy_directory(&x, "copy");
        save_and_let_go(&x, 1, 10);
        crash_onto(&x, cores[i][1]);
        replay_check_rows(&x);
        save_and_let_go(&x, 11, 12);
        WAIT_UNTIL(mr_client_progress(x.client), replay_info_of(&x).oldest_step >= 12);
        put_back(&x, "copy", cores[i][2]);
        check_reported(&x, "of steps 1..");
        crash_onto(&x, cores[i][2]);
        assert_int_equal(mr_lookup(x.client, NULL, x.table, x.keys, REPLAY_KEYS, NULL), MR_OK);
        replay_stop(&x);
    }
}

static void wait_until_kept_from(struct replay_fixture *x, uint64_t step)
{
    WAIT_UNTIL(mr_client_progress(x->client), replay_info_of(x).oldest_step >= step);
    assert_int_equal(replay_info_of(x).oldest_step, step);
}

/* What came to disk only after it was sent again to other cores. */
TEST(test_an_older_directory_lacks_what_was_replayed)
{
    struct replay_fixture x;
    replay_start(&x, 2, 0);
    replay_copy_directory(&x, "copy");
    replay_push_steps(&x, 1, 5);
    crash_onto(&x, 3);
    replay_check_rows(&x);
    replay_push_steps(&x, 6, 6);
    live_node_save(x.node);
    replay_push_steps(&x, 7, 7);
    wait_until_kept_from(&x, 7);
    put_back(&x, "copy", 3);
    check_reported(&x, "of steps 1..6,");
    replay_stop(&x);
}

/* What a restore by call took back is no loss, whatever the cores. */
TEST(test_what_was_taken_back_is_not_lost)
{
    struct replay_fixture x;
    struct mr_options options = {.step = 101};
    replay_start(&x, 2, 0);
    save_and_let_go(&x, 1, 10);
    crash_onto(&x, 3);
    replay_check_rows(&x);
    live_node_take_back(x.node, 1);
    assert_int_equal(replay_push(&x, &options, 0), MR_OK);
    crash_onto(&x, 2);
    assert_int_equal(mr_lookup(x.client, NULL, x.table, x.keys, REPLAY_KEYS, NULL), MR_OK);
    assert_int_equal(replay_push(&x, &options, 0), MR_OK);
    replay_stop(&x);
}

/* What was trimmed of a stream of a former map is noted for that stream, and for no other. */
TEST(test_former_streams_are_told_apart)
{
    static struct mr_client client;
    struct mrc_stream_mark marks[3] = {{.stream_id = 0x0200}, {.stream_id = 0x0201}, {.stream_id = 0x0300}};
    struct mrc_reshard reshard = {.marks = marks, .mark_count = 3};
    struct mrc_replay streams[2];
    client.reshard = &reshard;
    for (uint32_t i = 0; i < 2; i++) {
        mrc_replay_init(&streams[i], marks[i].stream_id, 4096);
        mrc_trim_add(&streams[i].trimmed, 5 + i, 50 + i, 0);
        mrc_reshard_note_trim(&client, &streams[i]);
    }
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(marks[i].trimmed.to, 5 + i);
        assert_int_equal(marks[i].trimmed.to_step, 50 + i);
    }
    assert_int_equal(marks[2].trimmed.to, 0);
}

/* What a core holds of a push stream: nothing. */
static bool answer_as_if_it_knew_none(struct mr_endpoint *ep, uint32_t core, const struct mr_request *request)
{
    if (request->message->preamble.op != MR_OP_PUSH_GRAD || request->message->preamble.tensor_count > 1)
        return false;
    mr_reply_status(ep, request->ref, MR_OK);
    return true;
}

/* Where cores were asked what they hold of old streams they might tell less than the node has: a cut amid a
 * replay has not all marks. The newest checkpoint has everything, so nobody asks. */
TEST(test_the_newest_checkpoint_lacks_nothing)
{
    struct replay_fixture x;
    struct mr_options options = {.step = 101};
    replay_start(&x, 2, 0);
    save_and_let_go(&x, 1, 10);
    replay_copy_directory(&x, "copy");
    atomic_store(&x.node->answer, answer_as_if_it_knew_none);
    put_back(&x, "copy", 3);
    assert_int_equal(replay_push(&x, &options, 0), MR_OK);
    put_back(&x, "copy", 3);
    assert_int_equal(replay_push(&x, &options, 0), MR_OK);
    put_back(&x, "copy", 1);
    assert_int_equal(replay_push(&x, &options, 0), MR_OK);
    replay_stop(&x);
}

/* A copy older still: what the first one had is reported then. */
TEST(test_an_older_directory_twice)
{
    struct replay_fixture x;
    replay_start(&x, 2, 0);
    replay_copy_directory(&x, "first");
    save_and_let_go(&x, 1, 10);
    replay_copy_directory(&x, "second"); /* has steps 1..9 */
    save_and_let_go(&x, 11, 20);
    put_back(&x, "second", 2);
    check_reported(&x, "of steps 10..");
    put_back(&x, "first", 2);
    check_reported(&x, "of steps 1..9,");
    replay_stop(&x);
}

/* Of the cores that were, one has nothing left that could be sent again. */
TEST(test_all_given_up_and_other_cores)
{
    struct replay_fixture x;
    struct mr_options options = {.step = 101};
    replay_start(&x, 1, 1);
    replay_push_steps(&x, 1, 10);
    live_node_kill(x.node);
    options.deadline_ms = 1;
    (void)mr_push_gradients(x.client, &options, 999, x.keys, 1, REPLAY_DIM, (float[REPLAY_DIM]){0});
    options.deadline_ms = 0;
    live_node_restart_with(x.node, 2);
    assert_int_equal(mr_lookup(x.client, NULL, x.table, x.keys, REPLAY_KEYS, NULL), MR_OK);
    assert_int_equal(replay_push(&x, &options, 1), MR_UNKNOWN_OUTCOME);
    replay_stop(&x);
}

/* Nothing is pushed in the streams of a former map any more: they are asked about when there is a
 * checkpoint. */
TEST(test_former_streams_are_let_go)
{
    struct replay_fixture x;
    replay_start(&x, 2, 0);
    replay_push_steps(&x, 1, 5);
    crash_onto(&x, 3);
    replay_check_rows(&x);
    replay_push_steps(&x, 6, 7);
    live_node_save(x.node);
    replay_push_steps(&x, 8, 8);
    WAIT_UNTIL(mr_client_progress(x.client), replay_info_of(&x).kept <= 3);
    assert_int_equal(replay_info_of(&x).kept, 3);
    assert_int_equal(replay_info_of(&x).oldest_step, 8);
    crash_onto(&x, 2);
    replay_check_rows(&x);
    replay_stop(&x);
}

/* The first of the keys that one number of cores gives to this core, and another number to that one. */
static uint32_t key_of(const struct replay_fixture *x, const uint32_t cores[2], const uint16_t owners[2])
{
    for (uint32_t i = 0; i < REPLAY_KEYS; i++) {
        const uint32_t partition = mr_partition_of(mr_key_hash(x->keys[i], 0));
        if (live_owner(cores[0], partition) == owners[0] && live_owner(cores[1], partition) == owners[1])
            return i;
    }
    fail();
    return 0;
}

/* A push whose keys all go to one of the new cores is marked at the others, or nothing that they have after
 * it could ever be let go. */
TEST(test_cores_without_a_key_of_a_push_hear_of_it)
{
    const float ones[REPLAY_DIM] = {1, 1};
    struct replay_fixture x;
    replay_start(&x, 2, 0);
    for (uint64_t step = 1; step <= 6; step++) {
        const struct mr_options options = {.step = step};
        const uint32_t i = key_of(&x, (uint32_t[2]){2, 3}, (uint16_t[2]){0, (uint16_t)(step % 2)});
        assert_int_equal(mr_push_gradients(x.client, &options, x.table, &x.keys[i], 1, REPLAY_DIM, ones),
                         MR_OK);
        x.expected[i] += 1;
    }
    crash_onto(&x, 3);
    replay_check_rows(&x);
    replay_push_steps(&x, 7, 7);
    live_node_save(x.node);
    replay_push_steps(&x, 8, 8);
    wait_until_kept_from(&x, 8);
    crash_onto(&x, 1);
    replay_check_rows(&x);
    replay_stop(&x);
}

/* A loss that was not reported yet, when the cores change: of the stream that moves, and of one that had
 * moved before. */
TEST(test_a_loss_and_other_cores)
{
    struct replay_fixture x;
    struct mr_feature feature = replay_table("later");
    struct mr_options options = {.step = 9};
    float ones[REPLAY_KEYS * REPLAY_DIM] = {0};
    uint32_t later;
    replay_start(&x, 2, 0);
    assert_int_equal(mr_create(x.client, NULL, &feature, 1, &later), MR_OK);
    assert_int_equal(mr_push_gradients(x.client, &options, later, x.keys, REPLAY_KEYS, REPLAY_DIM, ones),
                     MR_OK);
    replay_crash(&x);
    replay_check_rows(&x);
    assert_int_equal(replay_info_of(&x).dropped, 2);
    crash_onto(&x, 3);
    replay_check_rows(&x);
    crash_onto(&x, 1);
    replay_check_rows(&x);
    assert_int_equal(replay_push(&x, &options, 1), MR_UNKNOWN_OUTCOME);
    assert_non_null(strstr(mr_last_error(), "refused 2 pushes of step 9"));
    assert_int_equal(replay_push(&x, &options, 1), MR_OK);
    replay_stop(&x);
}

/* A push in flight to a table that the node comes back without. */
TEST(test_refused_on_the_way_to_another_core)
{
    static const uint32_t cores[][2] = {{2, 3}, {2, 1}, {1, 2}};
    for (uint32_t i = 0; i < 3; i++) {
        struct replay_fixture x;
        struct mr_feature feature = replay_table("later");
        float ones[REPLAY_KEYS * REPLAY_DIM] = {0};
        struct mr_future *future = NULL;
        struct mr_options options = {.step = 9, .future = &future};
        uint32_t later;
        replay_start(&x, cores[i][0], 0);
        assert_int_equal(mr_create(x.client, NULL, &feature, 1, &later), MR_OK);
        live_node_kill(x.node);
        assert_int_equal(mr_push_gradients(x.client, &options, later, x.keys, REPLAY_KEYS, REPLAY_DIM, ones),
                         MR_OK);
        live_node_restart_with(x.node, cores[i][1]);
        assert_int_equal(mr_future_wait(future, NULL), MR_UNKNOWN_TABLE);
        mr_future_destroy(future);
        replay_stop(&x);
    }
}
