/* A client with `replay` and a server that is killed at any moment, with checkpoints in between: what the
 * server holds in the end is what an undisturbed run makes, to the last bit. What needs no process of its own
 * is tested in tests/unit/trainer_client/replay/. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "millrace_admin.h"
#include "tests/checkpoint_calls.h"
#include "tests/integration/node_fixture.h"
#include "tests/test.h"

enum { DIM = 8, KEYS = 500, KEYS_PER_PUSH = 60, ELEMENTS = 32, RANGE_VALUES = 5, KILLS = 4, THREADS = 3 };

#define CALL_DEADLINE_MS 60000

static uint32_t cores; /* of this run */

/* The one that is disturbed, and the same again. */
struct model {
    uint32_t table, variable;
};

struct fixture {
    struct node_fixture node;
    struct mr_client *client;
    struct model disturbed, calm;
    atomic_bool over; /* nobody is killed any more */
    uint32_t pushes;  /* that the trainer made by then */
};

static uint64_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return *state >> 33;
}

static struct mr_client *connect_replaying(const struct node_fixture *node, uint32_t replay_bytes)
{
    struct mr_client_options options = {.server = node->address,
                                        .connect_ms = NODE_READY_MS,
                                        .deadline_ms = CALL_DEADLINE_MS,
                                        .replay = true,
                                        .replay_bytes = replay_bytes};
    struct mr_client *client;
    char error[512];
    if (mr_client_create(&options, &client, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    return client;
}

static void expect_ok(enum mr_status status)
{
    if (status != MR_OK)
        fail_msg("%s", mr_last_error());
}

/* Both features begin alike whatever they are called and however they are split, and have a state beside the
 * values. */
static struct model create_model(struct mr_client *client, const char *table, const char *variable,
                                 uint32_t range_values)
{
    uint32_t dims[1] = {ELEMENTS}, ids[2];
    struct mr_feature features[2] = {mr_feature_table(table, DIM), mr_feature_variable(variable, 1, dims)};
    features[0].initializer = MR_INIT_NORMAL;
    features[0].init_b = 0.1f;
    features[0].seed = 7;
    for (uint32_t i = 0; i < 2; i++) {
        features[i].optimizer = MR_OPT_ADAGRAD;
        features[i].learning_rate = 0.1f;
        features[i].optimizer_args[0] = 0.1f;
        features[i].optimizer_args[1] = 1e-8f;
    }
    features[1].range_values = range_values;
    expect_ok(mr_create(client, NULL, features, 2, ids));
    return (struct model){.table = ids[0], .variable = ids[1]};
}

static void replay_start(struct fixture *x, uint32_t core_count, uint32_t replay_bytes)
{
    memset(x, 0, sizeof(*x));
    node_fixture_start(&x->node, core_count, NULL);
    x->client = connect_replaying(&x->node, replay_bytes);
    x->disturbed = create_model(x->client, "disturbed", "disturbed.v", RANGE_VALUES);
    x->calm = create_model(x->client, "calm", "calm.v", MR_VARIABLE_WHOLE);
    node_fixture_save(x->client);
}

static void fixture_stop(struct fixture *x)
{
    mr_client_destroy(x->client);
    node_fixture_stop(&x->node);
}

static void crash(struct fixture *x, uint32_t core_count)
{
    node_fixture_kill(&x->node);
    node_fixture_restart_with(&x->node, core_count);
}

/* ---- a run: one push after the other, of rows, of bags, of a variable ---- */

static void push_rows(struct mr_client *client, const struct mr_options *options, uint32_t table,
                      uint64_t *random)
{
    uint64_t keys[KEYS_PER_PUSH];
    float gradients[KEYS_PER_PUSH * DIM];
    for (uint32_t i = 0; i < KEYS_PER_PUSH; i++)
        keys[i] = next_random(random) % KEYS;
    for (uint32_t i = 0; i < KEYS_PER_PUSH * DIM; i++)
        gradients[i] = (float)(next_random(random) % 2001) * 1e-3f - 1;
    expect_ok(mr_push_gradients(client, options, table, keys, KEYS_PER_PUSH, DIM, gradients));
}

static void push_bags(struct mr_client *client, const struct mr_options *options, uint32_t table,
                      uint64_t *random)
{
    enum { BAGS = 5, BAG_KEYS = 6 };
    uint64_t keys[BAGS * BAG_KEYS];
    uint32_t offsets[BAGS + 1];
    float gradients[BAGS * DIM];

    for (uint32_t b = 0; b <= BAGS; b++)
        offsets[b] = b * BAG_KEYS;
    for (uint32_t i = 0; i < BAGS * BAG_KEYS; i++)
        keys[i] = next_random(random) % KEYS;
    for (uint32_t i = 0; i < BAGS * DIM; i++)
        gradients[i] = (float)(next_random(random) % 2001) * 1e-3f - 1;
    expect_ok(mr_push_gradients_bags(client, options, table, keys, NULL, offsets, BAGS, DIM, gradients));
}

static void push_variable(struct mr_client *client, const struct mr_options *options, uint32_t variable,
                          uint64_t *random)
{
    float gradient[ELEMENTS];
    for (uint32_t i = 0; i < ELEMENTS; i++)
        gradient[i] = (float)(next_random(random) % 2001) * 1e-3f - 1;
    expect_ok(mr_variable_push_gradient(client, options, variable, ELEMENTS, gradient));
}

static void train(struct mr_client *client, const struct model *model, uint32_t from, uint32_t to)
{
    for (uint32_t step = from; step < to; step++) {
        struct mr_options options = {.step = step + 1};
        uint64_t random = step * 1000 + 17;
        if (step % 3 == 0)
            push_variable(client, &options, model->variable, &random);
        else if (step % 3 == 1)
            push_bags(client, &options, model->table, &random);
        else
            push_rows(client, &options, model->table, &random);
    }
}

static void *train_disturbed(void *arg)
{
    struct fixture *x = arg;
    for (; !atomic_load(&x->over); x->pushes++)
        train(x->client, &x->disturbed, x->pushes, x->pushes + 1);
    return NULL;
}

static void compare(struct fixture *x)
{
    uint64_t keys[KEYS];
    struct mr_reply *a, *b;
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = i;
    expect_ok(mr_lookup(x->client, NULL, x->disturbed.table, keys, KEYS, &a));
    expect_ok(mr_lookup(x->client, NULL, x->calm.table, keys, KEYS, &b));
    assert_memory_equal(mr_reply_tensor(a, 0)->data, mr_reply_tensor(b, 0)->data, KEYS * DIM * sizeof(float));
    mr_reply_free(a);
    mr_reply_free(b);
    expect_ok(mr_variable_pull(x->client, NULL, x->disturbed.variable, 0, 0, &a));
    expect_ok(mr_variable_pull(x->client, NULL, x->calm.variable, 0, 0, &b));
    assert_memory_equal(mr_reply_tensor(a, 0)->data, mr_reply_tensor(b, 0)->data, ELEMENTS * sizeof(float));
    mr_reply_free(a);
    mr_reply_free(b);
}

static void pause_us(uint64_t us)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)us * 1000}, NULL);
}

/* The moments come from the clock, and the outcome must not depend on them. */
TEST(test_killed_at_any_moment)
{
    struct fixture x;
    pthread_t trainer;
    uint64_t random = (uint64_t)time(NULL), id;
    replay_start(&x, cores, 0);
    assert_int_equal(pthread_create(&trainer, NULL, train_disturbed, &x), 0);
    for (uint32_t i = 0; i < KILLS; i++) {
        pause_us(next_random(&random) % 60000);
        if (next_random(&random) % 2 == 0 && save_into(x.client, NULL, NULL, &id) == MR_OK &&
            next_random(&random) % 2 == 0)
            node_fixture_wait_saved(x.client);
        pause_us(next_random(&random) % 10000);
        crash(&x, cores);
    }
    atomic_store(&x.over, true);
    pthread_join(trainer, NULL);
    train(x.client, &x.calm, 0, x.pushes);
    print_message("%u pushes\n", x.pushes);
    compare(&x);
    fixture_stop(&x);
}

/* In the middle of nothing: all that was pushed since the save has to come again. */
TEST(test_killed_while_idle)
{
    struct fixture x;
    struct mr_replay_info info;
    replay_start(&x, cores, 0);
    train(x.client, &x.disturbed, 0, 50);
    node_fixture_save(x.client);
    train(x.client, &x.disturbed, 50, 90);
    crash(&x, cores);
    train(x.client, &x.disturbed, 90, 100);
    mr_client_replay_info(x.client, &info);
    assert_true(info.replayed > 0 && info.given_up == 0 && info.dropped == 0);
    train(x.client, &x.calm, 0, 100);
    compare(&x);
    fixture_stop(&x);
}

/* Restored onto other cores: what was kept is split for those. */
TEST(test_other_number_of_cores)
{
    static const uint32_t counts[] = {2, 1, 3, 2};
    struct fixture x;
    struct mr_replay_info info;
    replay_start(&x, counts[0], 0);
    for (uint32_t i = 1; i < 4; i++) {
        uint32_t begin = 60 * (i - 1);
        train(x.client, &x.disturbed, begin, begin + 30);
        node_fixture_save(x.client);
        train(x.client, &x.disturbed, begin + 30, begin + 60);
        crash(&x, counts[i]);
    }
    train(x.client, &x.disturbed, 180, 200);
    mr_client_replay_info(x.client, &info);
    assert_int_equal(info.dropped, 0);
    assert_int_equal(mr_client_core_count(x.client), 2);
    train(x.client, &x.calm, 0, 200);
    compare(&x);
    fixture_stop(&x);
}

/* A table is gone with the node that made it. Its number is nobody's after that, whoever makes the next
 * one. */
TEST(test_numbers_do_not_return)
{
    struct mr_feature lost = mr_feature_table("lost", DIM), found = mr_feature_table("found", DIM);
    uint64_t key = 7;
    float ones[DIM] = {1, 1, 1, 1, 1, 1, 1, 1};
    struct mr_client *other;
    struct mr_reply *reply;
    uint32_t lost_id, found_id;
    struct fixture x;
    replay_start(&x, cores, 0);
    expect_ok(mr_create(x.client, NULL, &lost, 1, &lost_id));
    expect_ok(mr_push_gradients(x.client, NULL, lost_id, &key, 1, DIM, ones));
    crash(&x, cores);
    other = node_fixture_connect(&x.node);
    expect_ok(mr_create(other, NULL, &found, 1, &found_id));
    assert_true(found_id > lost_id);
    node_fixture_refused(mr_lookup(x.client, NULL, lost_id, &key, 1, &reply), MR_UNKNOWN_TABLE,
                         "restarted or restored");
    expect_ok(mr_lookup(other, NULL, found_id, &key, 1, &reply));
    assert_true(((const float *)mr_reply_tensor(reply, 0)->data)[0] == 0);
    mr_reply_free(reply);
    mr_client_destroy(other);
    fixture_stop(&x);
}

/* ---- many at once: whole numbers, whose sums do not depend on the order ---- */

enum { ASYNC_PUSHES = 300, IN_FLIGHT = 20 };

struct sender {
    pthread_t thread;
    struct mr_client *client;
    uint32_t table;
};

static void *send_many(void *arg)
{
    struct sender *s = arg;
    struct mr_future *futures[IN_FLIGHT] = {NULL};
    uint64_t keys[KEYS];
    static const float ones[KEYS * DIM] = {[0 ... KEYS * DIM - 1] = 1};
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = i;
    for (uint32_t i = 0; i < ASYNC_PUSHES + IN_FLIGHT; i++) {
        struct mr_future **future = &futures[i % IN_FLIGHT];
        struct mr_options options = {.step = i + 1, .future = future};
        if (*future != NULL)
            expect_ok(mr_future_wait(*future, NULL));
        mr_future_destroy(*future);
        *future = NULL;
        if (i < ASYNC_PUSHES)
            expect_ok(mr_push_gradients(s->client, &options, s->table, keys, KEYS, DIM, ones));
    }
    return NULL;
}

TEST(test_many_under_way)
{
    struct fixture x;
    struct mr_feature feature = mr_feature_table("sum", DIM);
    struct sender senders[THREADS];
    struct mr_reply *reply;
    uint64_t key = 77;
    uint32_t table;
    replay_start(&x, cores, 0);
    feature.learning_rate = 1;
    expect_ok(mr_create(x.client, NULL, &feature, 1, &table));
    node_fixture_save(x.client);
    for (uint32_t t = 0; t < THREADS; t++) {
        senders[t] = (struct sender){.client = x.client, .table = table};
        assert_int_equal(pthread_create(&senders[t].thread, NULL, send_many, &senders[t]), 0);
    }
    for (uint32_t i = 0; i < 2; i++) {
        pause_us(20000);
        crash(&x, cores);
    }
    for (uint32_t t = 0; t < THREADS; t++)
        pthread_join(senders[t].thread, NULL);
    expect_ok(mr_lookup(x.client, NULL, table, &key, 1, &reply));
    assert_true(((const float *)mr_reply_tensor(reply, 0)->data)[0] == -(float)(THREADS * ASYNC_PUSHES));
    mr_reply_free(reply);
    fixture_stop(&x);
}

int main(int argc, char **argv)
{
    if (!node_fixture_arguments(argc, argv, &cores))
        return 2;
    return tests_run(NULL, NULL);
}
