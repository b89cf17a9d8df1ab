/* A table that admits keys with their third observation, a synchronous trainer with `replay`, and a server
 * that is killed at any moment: rows, their bits and the counts of observations end up as an undisturbed run
 * makes them. */
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
#include "tests/wait.h"

enum { DIM = 8, KEYS = 3000, KEYS_PER_STEP = 50, OBSERVATIONS = 3, KILLS = 4, STEPS_EACH = 20 };

#define CALL_DEADLINE_MS 60000

static uint32_t cores; /* of this run */

struct fixture {
    struct node_fixture node;
    struct mr_client *client;
    uint32_t disturbed, calm; /* tables */
    atomic_bool over;         /* nobody is killed any more */
    atomic_uint steps;        /* that the trainer has made */
};

static uint64_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return *state >> 33;
}

static void expect_ok(enum mr_status status)
{
    if (status != MR_OK)
        fail_msg("%s", mr_last_error());
}

static uint32_t create_table(struct mr_client *client, const char *name)
{
    struct mr_feature feature = mr_feature_table(name, DIM);
    uint32_t id;
    feature.initializer = MR_INIT_NORMAL;
    feature.init_b = 0.1f;
    feature.seed = 7;
    feature.optimizer = MR_OPT_ADAGRAD;
    feature.learning_rate = 0.1f;
    feature.optimizer_args[0] = 0.1f;
    feature.admission = MR_ADMIT_OBSERVATIONS;
    feature.admission_arg = OBSERVATIONS;
    feature.filter_bytes = 1u << 20;
    expect_ok(mr_create(client, NULL, &feature, 1, &id));
    return id;
}

static void observations_start(struct fixture *x)
{
    struct mr_client_options options = {
        .connect_ms = NODE_READY_MS, .deadline_ms = CALL_DEADLINE_MS, .replay = true};
    char error[512];
    memset(x, 0, sizeof(*x));
    node_fixture_start(&x->node, cores, NULL);
    options.server = x->node.address;
    if (mr_client_create(&options, &x->client, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    x->disturbed = create_table(x->client, "disturbed");
    x->calm = create_table(x->client, "calm");
    node_fixture_save(x->client);
}

static void fixture_stop(struct fixture *x)
{
    mr_client_destroy(x->client);
    node_fixture_stop(&x->node);
}

static void crash(struct fixture *x)
{
    node_fixture_kill(&x->node);
    node_fixture_restart_with(&x->node, cores);
}

/* Looks keys up, some of them twice, and pushes to the same: gradients follow from the values, as in
 * training. A lookup for evaluation in between is no observation, nor taken for one that was. */
static void train_step(struct mr_client *client, uint32_t table, uint32_t step)
{
    struct mr_options options = {.step = step + 1}, evaluation = {.read_only = true};
    struct mr_reply *rows;
    uint64_t random = step * 1000 + 17, keys[KEYS_PER_STEP] = {0};
    float gradients[KEYS_PER_STEP * DIM];
    for (uint32_t i = 0; i < KEYS_PER_STEP; i++)
        keys[i] = i % 10 == 9 ? keys[i - 3] : next_random(&random) % KEYS;
    expect_ok(mr_lookup(client, &options, table, keys, KEYS_PER_STEP, &rows));
    const float *values = mr_reply_tensor(rows, 0)->data;

    for (uint32_t i = 0; i < KEYS_PER_STEP * DIM; i++)
        gradients[i] = values[i] + (float)(next_random(&random) % 2001) * 1e-3f - 1;
    mr_reply_free(rows);
    expect_ok(mr_lookup(client, &evaluation, table, keys, KEYS_PER_STEP, NULL));
    expect_ok(mr_push_gradients(client, &options, table, keys, KEYS_PER_STEP, DIM, gradients));
}

/* Saves between its steps, whether that works or not. It waits for the answer, or the server's end: a cut
 * that came later, between a lookup and its push, would count the keys twice (docs/replay.md). */
static void *train_disturbed(void *arg)
{
    struct fixture *x = arg;
    struct mr_options options = {.deadline_ms = CALL_DEADLINE_MS};
    uint64_t random = (uint64_t)time(NULL) + 1, id;
    for (; !atomic_load(&x->over); x->steps++) {
        train_step(x->client, x->disturbed, x->steps);
        if (next_random(&random) % 16 == 0)
            (void)save_into(x->client, &options, NULL, &id);
    }
    return NULL;
}

static uint64_t rows_of(struct mr_client *client, uint32_t table)
{
    struct mr_feature_info *infos;
    uint64_t rows = 0;
    uint32_t count;
    expect_ok(mr_list(client, NULL, &infos, &count));
    for (uint32_t i = 0; i < count; i++)
        rows += infos[i].id == table ? infos[i].rows : 0;
    free(infos);
    return rows;
}

static void compare_values(struct fixture *x)
{
    static uint64_t keys[KEYS];
    struct mr_reply *a, *b;
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = i;
    expect_ok(mr_lookup(x->client, NULL, x->disturbed, keys, KEYS, &a));
    expect_ok(mr_lookup(x->client, NULL, x->calm, keys, KEYS, &b));
    assert_memory_equal(mr_reply_tensor(a, 0)->data, mr_reply_tensor(b, 0)->data, KEYS * DIM * sizeof(float));
    mr_reply_free(a);
    mr_reply_free(b);
}

/* Each look is an observation of every key, so keys that were seen once or twice show themselves in turn. */
static void compare(struct fixture *x)
{
    for (uint32_t i = 0; i < OBSERVATIONS; i++) {
        uint64_t rows = rows_of(x->client, x->disturbed);
        assert_int_equal(rows, rows_of(x->client, x->calm));
        print_message("%llu rows\n", (unsigned long long)rows);
        compare_values(x);
    }
    assert_int_equal(rows_of(x->client, x->disturbed), KEYS);
}

static void train_calm(struct fixture *x)
{
    for (uint32_t step = 0; step < x->steps; step++)
        train_step(x->client, x->calm, step);
}

/* All since the first save has to come again: rows that are in no checkpoint, and counts. */
TEST(test_killed_while_idle)
{
    struct fixture x;
    struct mr_replay_info info;
    uint64_t id;
    observations_start(&x);
    for (; x.steps < 40; x.steps++)
        train_step(x.client, x.disturbed, x.steps);
    crash(&x);
    for (; x.steps < 80; x.steps++)
        train_step(x.client, x.disturbed, x.steps);
    expect_ok(save_into(x.client, NULL, NULL, &id));
    node_fixture_wait_saved(x.client);
    for (; x.steps < 120; x.steps++)
        train_step(x.client, x.disturbed, x.steps);
    crash(&x);
    train_step(x.client, x.disturbed, x.steps++);
    mr_client_replay_info(x.client, &info);
    assert_true(info.replayed >= 80 && info.given_up == 0 && info.dropped == 0);
    train_calm(&x);
    assert_int_in_range(rows_of(x.client, x.calm), 100, KEYS - 100);
    compare(&x);
    fixture_stop(&x);
}

/* The moments come from the clock, and the outcome must not depend on them: kills fall between a lookup and
 * its push, too. */
TEST(test_killed_at_any_moment)
{
    struct fixture x;
    pthread_t trainer;
    uint64_t random = (uint64_t)time(NULL);
    observations_start(&x);
    assert_int_equal(pthread_create(&trainer, NULL, train_disturbed, &x), 0);
    for (uint32_t i = 0; i < KILLS; i++) {
        WAIT_UNTIL(atomic_load(&x.steps) >= (i + 1) * STEPS_EACH);
        nanosleep(&(struct timespec){.tv_nsec = (long)(next_random(&random) % 20000) * 1000}, NULL);
        crash(&x);
    }
    atomic_store(&x.over, true);
    pthread_join(trainer, NULL);
    print_message("%u steps\n", atomic_load(&x.steps));
    train_calm(&x);
    compare(&x);
    fixture_stop(&x);
}

int main(int argc, char **argv)
{
    if (!node_fixture_arguments(argc, argv, &cores))
        return 2;
    return tests_run(NULL, NULL);
}
