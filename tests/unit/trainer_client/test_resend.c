/* A client with `replay` against a node that goes back to its last checkpoint: what comes out is what an undisturbed run
 * would have made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/unit/trainer_client/fake_node.h"
#include "trainer_client/future.h"
#include "trainer_client/millrace.h"

enum { DIM = 2, KEYS = 40, FUTURES = 64 };

struct fixture {
    struct fake_node *node;
    struct mr_client *client;
    uint32_t table;
    uint64_t keys[KEYS];
    float expected[KEYS]; /* subtracted from each row so far */
};

static struct mr_client *connect_to(const struct fake_node *node, uint32_t replay_bytes)
{
    struct mr_client_options options = {.server = fake_node_address(node),
                                        .deadline_ms = 20000,
                                        .replay = true,
                                        .replay_bytes = replay_bytes};
    struct mr_client *client = NULL;
    char error[512] = "";

    if (mr_client_create(&options, &client, error, sizeof error) != MR_OK)
        fail_msg("%s", error);
    return client;
}

static void start(struct fixture *x, uint32_t cores, uint32_t replay_bytes)
{
    struct mr_feature feature = mr_feature_table("t", DIM);

    memset(x, 0, sizeof *x);
    x->node = fake_node_start(cores);
    x->node->forgetful = true;
    x->client = connect_to(x->node, replay_bytes);
    for (uint32_t i = 0; i < KEYS; i++)
        x->keys[i] = i * 7919u;
    assert_int_equal(mr_create(x->client, NULL, &feature, 1, &x->table), MR_OK);
    fake_node_save(x->node);
}

static void stop(struct fixture *x)
{
    mr_client_destroy(x->client);
    fake_node_destroy(x->node);
}

/* Every row falls by `amount`. */
static enum mr_status push(struct fixture *x, const struct mr_options *options, float amount)
{
    float gradients[KEYS * DIM];

    for (uint32_t i = 0; i < KEYS * DIM; i++)
        gradients[i] = amount;
    for (uint32_t i = 0; i < KEYS; i++)
        x->expected[i] += amount;
    return mr_push_gradients(x->client, options, x->table, x->keys, KEYS, DIM, gradients);
}

static void push_steps(struct fixture *x, uint64_t from, uint64_t to)
{
    for (uint64_t step = from; step <= to; step++) {
        struct mr_options options = {.step = step};

        if (push(x, &options, 1) != MR_OK)
            fail_msg("%s", mr_last_error());
    }
}

static void crash(struct fixture *x)
{
    fake_node_kill(x->node);
    fake_node_restart(x->node);
}

static void check_rows(struct fixture *x)
{
    struct mr_reply *reply;

    if (mr_lookup(x->client, NULL, x->table, x->keys, KEYS, &reply) != MR_OK)
        fail_msg("%s", mr_last_error());
    const float *rows = mr_reply_tensor(reply, 0)->data;

    for (uint32_t i = 0; i < KEYS; i++) {
        for (uint32_t d = 0; d < DIM; d++)
            assert_true(rows[i * DIM + d] == fake_initial(x->keys[i], d) - x->expected[i]);
    }
    mr_reply_free(reply);
}

static struct mr_replay_info info_of(const struct fixture *x)
{
    struct mr_replay_info info;

    mr_client_replay_info(x->client, &info);
    return info;
}

static void test_off_by_default(void **state)
{
    struct fake_node *node = fake_node_start(1);
    struct mr_client_options options = {.server = fake_node_address(node)};
    struct mr_client *client = NULL;
    struct mr_replay_info info;

    (void)state;
    assert_int_equal(mr_client_create(&options, &client, NULL, 0), MR_OK);
    mr_client_replay_info(client, &info);
    assert_false(info.on);
    mr_client_destroy(client);
    setenv("MILLRACE_REPLAY", "on", 1);
    assert_int_equal(mr_client_create(&options, &client, NULL, 0), MR_OK);
    mr_client_replay_info(client, &info);
    assert_true(info.on);
    mr_client_destroy(client);
    setenv("MILLRACE_REPLAY", "off", 1);
    options.replay = true;
    assert_int_equal(mr_client_create(&options, &client, NULL, 0), MR_OK);
    mr_client_replay_info(client, &info);
    assert_false(info.on);
    mr_client_destroy(client);
    setenv("MILLRACE_REPLAY", "perhaps", 1);
    assert_int_equal(mr_client_create(&options, &client, NULL, 0), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(mr_last_error(), "MILLRACE_REPLAY"));
    unsetenv("MILLRACE_REPLAY");
    fake_node_destroy(node);
}

static void test_what_was_lost_comes_back(void **state)
{
    for (uint32_t cores = 1; cores <= 3; cores += 2) {
        struct fixture x;

        (void)state;
        start(&x, cores, 0);
        push_steps(&x, 1, 20);
        assert_int_equal(info_of(&x).kept, 20 * cores);
        assert_int_equal(info_of(&x).oldest_step, 1);
        crash(&x);
        check_rows(&x);
        assert_int_equal(info_of(&x).replayed, 20 * cores);
        assert_false(info_of(&x).replaying);
        push_steps(&x, 21, 30);
        check_rows(&x);
        stop(&x);
    }
}

static void test_saved_pushes_are_let_go(void **state)
{
    struct fixture x;

    (void)state;
    start(&x, 2, 0);
    push_steps(&x, 1, 10);
    fake_node_save(x.node);
    push_steps(&x, 11, 12);
    assert_int_equal(info_of(&x).kept, 2 * 2);
    assert_int_equal(info_of(&x).oldest_step, 11);
    uint64_t applied = atomic_load(&x.node->applied);

    crash(&x);
    check_rows(&x);
    assert_int_equal(atomic_load(&x.node->applied) - applied, 2 * 2);
    stop(&x);
}

/* Twice in a row, the second time before the first is done with, if it comes to that. */
static void test_crash_upon_crash(void **state)
{
    struct fixture x;

    (void)state;
    start(&x, 2, 0);
    push_steps(&x, 1, 200);
    crash(&x);
    mr_client_progress(x.client);
    crash(&x);
    push_steps(&x, 201, 210);
    crash(&x);
    check_rows(&x);
    stop(&x);
}

/* The server applies a push and dies before it answers, with or without a checkpoint that holds it. */
static void test_answer_lost(void **state)
{
    for (uint32_t saved = 0; saved < 2; saved++) {
        struct fixture x;
        struct mr_future *future = NULL;
        struct mr_options options = {.step = 6, .future = &future};

        (void)state;
        start(&x, 1, 0);
        push_steps(&x, 1, 5);
        uint64_t applied = atomic_load(&x.node->applied);

        atomic_store(&x.node->dumb, true);
        assert_int_equal(push(&x, &options, 1), MR_OK);
        while (atomic_load(&x.node->applied) == applied)
            mr_client_progress(x.client);
        if (saved)
            fake_node_save(x.node);
        fake_node_kill(x.node);
        atomic_store(&x.node->dumb, false);
        fake_node_restart(x.node);
        assert_int_equal(mr_future_wait(future, NULL), MR_OK);
        mr_future_destroy(future);
        /* The oldest that was kept asks what the checkpoint held; then there is the one that was not answered. */
        assert_int_equal(atomic_load(&x.node->known), saved * 2);
        check_rows(&x);
        stop(&x);
    }
}

/* The deadline passes while the server is away: the caller hears so, with the step, and the push is applied all the same. */
static void test_deadline_while_away(void **state)
{
    struct fixture x;
    struct mr_options options = {.step = 77, .deadline_ms = 50};

    (void)state;
    start(&x, 1, 0);
    push_steps(&x, 1, 5);
    fake_node_kill(x.node);
    assert_int_equal(push(&x, &options, 1), MR_UNKNOWN_OUTCOME);
    assert_non_null(strstr(mr_last_error(), "step 77"));
    assert_non_null(strstr(mr_last_error(), "must not be pushed again"));
    fake_node_restart(x.node);
    push_steps(&x, 78, 80);
    while (info_of(&x).replaying)
        mr_client_progress(x.client);
    check_rows(&x);
    stop(&x);
}

static void test_given_up_is_told_once(void **state)
{
    struct fixture x;
    struct mr_options options = {.step = 101};
    char expected[64];

    (void)state;
    start(&x, 1, 8192);
    push_steps(&x, 1, 50);
    struct mr_replay_info info = info_of(&x);

    assert_true(info.given_up > 0 && info.kept_bytes <= 8192);
    crash(&x);
    push_steps(
        &x, 51,
        51); /* finds no room before the restart is noticed; its answer shows what the server was restored from */
    info = info_of(&x);
    snprintf(expected, sizeof expected, "steps 1..%llu", (unsigned long long)info.given_up);
    assert_int_equal(push(&x, &options, 1), MR_UNKNOWN_OUTCOME);
    assert_non_null(strstr(mr_last_error(), expected));
    assert_non_null(strstr(mr_last_error(), "raise replay_bytes, or save more often"));
    assert_non_null(strstr(mr_last_error(), "step 101 was not sent"));
    for (uint32_t i = 0; i < KEYS; i++)
        x.expected[i] -= (float)(1 + info.given_up);
    push_steps(&x, 101, 102);
    check_rows(&x);
    stop(&x);
}

static void test_given_up_but_saved_is_not_told(void **state)
{
    struct fixture x;

    (void)state;
    start(&x, 1, 8192);
    push_steps(&x, 1, 50);
    fake_node_save(x.node);
    crash(&x);
    push_steps(&x, 51, 53);
    check_rows(&x);
    stop(&x);
}

/* Many at once, from before the crash to behind it. */
static void test_many_under_way(void **state)
{
    struct fixture x;
    struct mr_future *futures[FUTURES];

    (void)state;
    start(&x, 3, 0);
    for (uint32_t i = 0; i < FUTURES; i++) {
        struct mr_options options = {.step = i, .future = &futures[i]};

        if (i == FUTURES / 2) {
            fake_node_save(x.node);
            fake_node_kill(x.node);
        }
        if (i == FUTURES * 3 / 4)
            fake_node_restart(x.node);
        if (push(&x, &options, 1) != MR_OK)
            fail_msg("%s", mr_last_error());
        mr_client_progress(x.client);
    }
    for (uint32_t i = 0; i < FUTURES; i++) {
        if (mr_future_wait(futures[i], NULL) != MR_OK)
            fail_msg("%s", mr_last_error());
        mr_future_destroy(futures[i]);
    }
    check_rows(&x);
    stop(&x);
}

/* Bags, variables and batches are pushes, too. */
static void test_other_pushes(void **state)
{
    struct fixture x;
    uint32_t offsets[2] = {0, KEYS}, dims[1] = {4}, variable;
    struct mr_feature feature = mr_feature_variable("v", 1, dims);
    float gradient[4] = {1, 2, 3, 4};
    struct mr_reply *reply;

    (void)state;
    start(&x, 2, 0);
    assert_int_equal(mr_create(x.client, NULL, &feature, 1, &variable), MR_OK);
    fake_node_save(x.node);
    assert_int_equal(
        mr_push_gradients_bags(x.client, NULL, x.table, x.keys, offsets, 1, DIM, (float[]){2, 2}), MR_OK);
    for (uint32_t i = 0; i < KEYS; i++)
        x.expected[i] += 2;
    assert_int_equal(mr_variable_push(x.client, NULL, variable, 1, 2, (float[]){50, 60}), MR_OK);
    assert_int_equal(mr_variable_push_gradient(x.client, NULL, variable, 4, gradient), MR_OK);
    crash(&x);
    check_rows(&x);
    assert_int_equal(mr_variable_pull(x.client, NULL, variable, 0, 0, &reply), MR_OK);
    for (uint32_t i = 0; i < 4; i++)
        assert_true(((const float *)mr_reply_tensor(reply, 0)->data)[i] == (i == 1   ? 50
                                                                            : i == 2 ? 60
                                                                                     : 0) -
                                                                               gradient[i]);
    mr_reply_free(reply);
    stop(&x);
}

static void crash_onto(struct fixture *x, uint32_t cores)
{
    fake_node_kill(x->node);
    fake_node_restart_with(x->node, cores);
}

/* Rows, bags and a variable, kept for cores that are no more: they go to those who own the keys now. */
static void test_other_number_of_cores(void **state)
{
    static const uint32_t cores[] = {3, 1, 2, 4, 3};
    uint32_t offsets[3] = {0, KEYS / 4, KEYS}, dims[1] = {4}, variable, table;
    struct mr_feature features[2] = {mr_feature_variable("v", 1, dims), mr_feature_table("mean", DIM)};
    float ones[4] = {1, 1, 1, 1}, bags[2 * DIM] = {8, 8, 16, 16};
    struct fixture x;
    struct mr_reply *reply;

    (void)state;
    features[1].pooling = MR_POOL_SUM;
    start(&x, cores[0], 0);
    assert_int_equal(mr_create(x.client, NULL, features, 2, (uint32_t[2]){0}), MR_OK);
    assert_int_equal(mr_create(x.client, NULL, &features[0], 1, &variable), MR_OK);
    assert_int_equal(mr_create(x.client, NULL, &features[1], 1, &table), MR_OK);
    fake_node_save(x.node);
    for (uint32_t i = 1; i < 5; i++) {
        push_steps(&x, 10 * i, 10 * i + 5);
        assert_int_equal(mr_variable_push_gradient(x.client, NULL, variable, 4, ones), MR_OK);
        if (mr_push_gradients_bags(x.client, NULL, table, x.keys, offsets, 2, DIM, bags) != MR_OK)
            fail_msg("%s", mr_last_error());
        crash_onto(&x, cores[i]);
        check_rows(&x);
        assert_int_equal(mr_client_core_count(x.client), cores[i]);
        assert_int_equal(mr_variable_pull(x.client, NULL, variable, 0, 0, &reply), MR_OK);
        assert_true(((const float *)mr_reply_tensor(reply, 0)->data)[2] == -(float)i);
        mr_reply_free(reply);
        assert_int_equal(mr_lookup(x.client, NULL, table, x.keys, KEYS, &reply), MR_OK);
        for (uint32_t k = 0; k < KEYS; k++)
            assert_true(((const float *)mr_reply_tensor(reply, 0)->data)[k * DIM] ==
                        fake_initial(x.keys[k], 0) - (float)i * (k < KEYS / 4 ? 8 : 16));
        mr_reply_free(reply);
    }
    assert_int_equal(info_of(&x).dropped, 0);
    stop(&x);
}

/* Nothing is pushed between two changes: what was dealt out by the first is dealt out anew by the second. */
static void test_cores_change_twice(void **state)
{
    struct fixture x;

    (void)state;
    start(&x, 2, 0);
    push_steps(&x, 1, 5);
    crash_onto(&x, 4);
    check_rows(&x);
    crash_onto(&x, 2);
    check_rows(&x);
    crash_onto(&x, 3);
    check_rows(&x);
    assert_int_equal(info_of(&x).dropped, 0);
    stop(&x);
}

/* Calls under way when the cores change: pushes and lookups end well, and a push made before is not lost. */
static void test_cores_change_under_calls(void **state)
{
    struct fixture x;
    struct mr_future *futures[8];

    (void)state;
    start(&x, 2, 0);
    push_steps(&x, 1, 5);
    fake_node_kill(x.node);
    for (uint32_t i = 0; i < 8; i++) {
        struct mr_options options = {.step = 10 + i, .future = &futures[i]};

        if (push(&x, &options, 1) != MR_OK)
            fail_msg("%s", mr_last_error());
    }
    fake_node_restart_with(x.node, 3);
    /* A lookup split by the old map is split anew. */
    assert_int_equal(mr_lookup(x.client, NULL, x.table, x.keys, KEYS, NULL), MR_OK);
    for (uint32_t i = 0; i < 8; i++) {
        if (mr_future_wait(futures[i], NULL) != MR_OK)
            fail_msg("%s", mr_last_error());
        mr_future_destroy(futures[i]);
    }
    check_rows(&x);
    stop(&x);
}

/* A future of a push that was split anew is done when the new owners have it. */
static void test_done_means_settled(void **state)
{
    struct fixture x;
    struct mr_future *future = NULL;
    struct mr_options options = {.step = 10, .future = &future};

    (void)state;
    start(&x, 2, 0);
    fake_node_kill(x.node);
    assert_int_equal(push(&x, &options, 1), MR_OK);
    fake_node_restart_with(x.node, 3);
    while (!mr_future_done(future)) {
    }
    assert_false(info_of(&x).replaying);
    assert_int_equal(mr_future_wait(future, NULL), MR_OK);
    mr_future_destroy(future);
    check_rows(&x);
    stop(&x);
}

/* Two lookups with futures on their way when the node comes back with another number of cores; the second in bags of two. */
static void lookups_while_cores_change(struct fixture *x, uint32_t cores, struct mr_future *futures[2])
{
    struct mr_options options = {.future = &futures[0]};
    uint32_t offsets[KEYS / 2 + 1];
    uint64_t keys[KEYS];

    for (uint32_t b = 0; b <= KEYS / 2; b++)
        offsets[b] = 2 * b;
    memcpy(keys, x->keys, sizeof keys);
    fake_node_kill(x->node);
    assert_int_equal(mr_lookup(x->client, &options, x->table, keys, KEYS, NULL), MR_OK);
    options.future = &futures[1];
    assert_int_equal(mr_lookup_bags(x->client, &options, x->table, keys, offsets, KEYS / 2, NULL), MR_OK);
    memset(keys, 0xff, sizeof keys); /* the caller's again */
    memset(offsets, 0xff, sizeof offsets);
    fake_node_restart_with(x->node, cores);
}

static void check_lookups(struct fixture *x, struct mr_future *futures[2])
{
    struct mr_reply *expected, *rows, *sums;

    if (mr_future_wait(futures[0], &rows) != MR_OK || mr_future_wait(futures[1], &sums) != MR_OK)
        fail_msg("%s", mr_last_error());
    assert_int_equal(mr_lookup(x->client, NULL, x->table, x->keys, KEYS, &expected), MR_OK);
    const float *all = mr_reply_tensor(expected, 0)->data, *in_pairs = mr_reply_tensor(sums, 0)->data;

    assert_int_equal(mr_reply_tensor(rows, 0)->dims[0], KEYS);
    assert_memory_equal(mr_reply_tensor(rows, 0)->data, all, KEYS * DIM * sizeof(float));
    assert_int_equal(mr_reply_tensor(sums, 0)->dims[0], KEYS / 2);
    for (uint32_t b = 0; b < KEYS / 2; b++) {
        for (uint32_t i = 0; i < DIM; i++)
            assert_true(in_pairs[b * DIM + i] == all[2 * b * DIM + i] + all[(2 * b + 1) * DIM + i]);
    }
    mr_reply_free(expected);
    mr_reply_free(rows);
    mr_reply_free(sums);
    assert_int_equal(mr_future_wait(futures[0], NULL), MR_INVALID_ARGUMENT); /* once is enough */
    mr_future_destroy(futures[0]);
    mr_future_destroy(futures[1]);
}

/* A lookup with a future that was split by the old map is made again by the new one. */
static void test_cores_change_under_future_lookup(void **state)
{
    static const uint32_t maps[][2] = {{2, 3}, {1, 3}, {3, 1}};

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        struct fixture x;
        struct mr_future *futures[2];

        start(&x, maps[i][0], 0);
        push_steps(&x, 1, 5);
        lookups_while_cores_change(&x, maps[i][1], futures);
        if (i == 0) {
            while (!mr_future_done(futures[0])) {
            }
        }
        check_lookups(&x, futures);
        check_rows(&x);
        stop(&x);
    }
}

/* It may be given up meanwhile, whether it has been made again or not. */
static void test_cores_change_under_abandoned_lookup(void **state)
{
    struct fixture x;
    struct mr_future *futures[2];

    (void)state;
    start(&x, 2, 0);
    lookups_while_cores_change(&x, 3, futures);
    (void)mr_future_done(futures[0]);
    mr_future_destroy(futures[0]);
    while (!mr_future_done(futures[1])) {
    }
    mr_future_destroy(futures[1]);
    check_rows(&x);
    stop(&x);
}

/* The cores change between the numbering of a push and its sending: it is not sent, and its caller is told. */
static void test_cores_change_before_sending(void **state)
{
    uint32_t dims[1] = {4};
    float values[4] = {1, 2, 3, 4};
    uint64_t range[2] = {0, 0};
    struct mr_feature feature = mr_feature_variable("v", 1, dims);
    struct fixture x;
    struct mr_future *f;
    struct mr_reply *reply;
    uint32_t variable;

    (void)state;
    start(&x, 1, 0);
    assert_int_equal(mr_create(x.client, NULL, &feature, 1, &variable), MR_OK);
    fake_node_save(x.node);
    assert_int_equal(mrc_future_new(x.client, NULL, MR_OP_VARIABLE_PUSH, variable, 1, 2, 0, &f), MR_OK);
    mrc_part_add(f, 0, mr_tensor_1d(MR_U64, 1, range));
    mrc_part_add(f, 0, mr_tensor_1d(MR_F32, 4, values));
    assert_int_equal(mrc_future_begin(f), MR_OK);
    crash_onto(&x, 2);
    check_rows(&x);
    assert_int_equal(mrc_future_run(f, NULL, NULL), MR_CANCELLED);
    assert_non_null(strstr(mr_last_error(), "before it was sent: make the call again"));
    assert_int_equal(mr_variable_push(x.client, NULL, variable, 0, 4, values), MR_OK);
    assert_int_equal(mr_variable_pull(x.client, NULL, variable, 0, 0, &reply), MR_OK);
    assert_true(((const float *)mr_reply_tensor(reply, 0)->data)[3] == 4);
    mr_reply_free(reply);
    assert_int_equal(info_of(&x).kept, 1);
    stop(&x);
}

/* The table was made after the last checkpoint: what was pushed to it is lost, and that is said. */
static void test_refused_when_sent_again(void **state)
{
    struct fixture x;
    struct mr_feature feature = mr_feature_table("later", DIM);
    uint64_t key = 5;
    float gradient[DIM] = {1, 1};
    struct mr_options options = {.step = 9};
    uint32_t later;

    (void)state;
    start(&x, 1, 0);
    assert_int_equal(mr_create(x.client, NULL, &feature, 1, &later), MR_OK);
    assert_int_equal(mr_push_gradients(x.client, &options, later, &key, 1, DIM, gradient), MR_OK);
    crash(&x);
    check_rows(&x);
    options.step = 10;
    assert_int_equal(push(&x, &options, 1), MR_UNKNOWN_OUTCOME);
    assert_non_null(strstr(mr_last_error(), "refused 1 pushes of steps 9..9"));
    assert_int_equal(info_of(&x).dropped, 1);
    stop(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_off_by_default),
        cmocka_unit_test(test_what_was_lost_comes_back),
        cmocka_unit_test(test_saved_pushes_are_let_go),
        cmocka_unit_test(test_crash_upon_crash),
        cmocka_unit_test(test_answer_lost),
        cmocka_unit_test(test_deadline_while_away),
        cmocka_unit_test(test_given_up_is_told_once),
        cmocka_unit_test(test_given_up_but_saved_is_not_told),
        cmocka_unit_test(test_many_under_way),
        cmocka_unit_test(test_other_pushes),
        cmocka_unit_test(test_other_number_of_cores),
        cmocka_unit_test(test_cores_change_twice),
        cmocka_unit_test(test_cores_change_under_calls),
        cmocka_unit_test(test_done_means_settled),
        cmocka_unit_test(test_cores_change_under_future_lookup),
        cmocka_unit_test(test_cores_change_under_abandoned_lookup),
        cmocka_unit_test(test_cores_change_before_sending),
        cmocka_unit_test(test_refused_when_sent_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
