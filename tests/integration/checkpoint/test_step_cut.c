/* Two trainers train in step; checkpoints are cut by themselves at steps. The server is killed at some moment
 * and restored, the trainers go on behind the step of its checkpoint: what it holds in the end is what an
 * undisturbed run makes, to the last bit. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "millrace_admin.h"
#include "millrace_observe.h"
#include "tests/checkpoint_calls.h"
#include "tests/integration/node_fixture.h"
#include "tests/test.h"
#include "tests/wait.h"

enum { DIM = 8, KEYS = 400, KEYS_PER_STEP = 60, STEPS = 300, EVERY = 10, TRAINERS = 2, HELD_AT = 35 };

#define CALL_DEADLINE_MS 60000

static uint32_t cores; /* of this run */

struct run {
    struct node_fixture *node;
    uint32_t table;
    uint64_t first_step;
    pthread_barrier_t barrier;
    atomic_ullong limit; /* the last step that may be begun */
    atomic_ullong step;  /* that was begun last */
    atomic_bool is_lost; /* a trainer has noticed that the server was restarted */
};

struct trainer {
    struct run *run;
    struct mr_client *client;
    uint32_t number;
    pthread_t thread;
};

static uint64_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return *state >> 33;
}

static struct mr_client *connect_patient(const struct node_fixture *node)
{
    struct mr_client_options options = {
        .server = node->address, .connect_ms = NODE_READY_MS, .deadline_ms = CALL_DEADLINE_MS};
    struct mr_client *client;
    char error[512];
    if (mr_client_create(&options, &client, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    return client;
}

static uint32_t create_table(struct mr_client *client)
{
    struct mr_feature table = mr_feature_table("rows", DIM);
    uint32_t id;
    table.initializer = MR_INIT_NORMAL;
    table.init_b = 0.1f;
    table.optimizer = MR_OPT_ADAGRAD;
    table.learning_rate = 0.1f;
    table.optimizer_args[0] = 0.1f;
    table.optimizer_args[1] = 1e-8f;
    assert_int_equal(mr_create(client, NULL, &table, 1, &id), MR_OK);
    return id;
}

/* ---- a trainer: every step begins with a lookup of both, and then one pushes after the other ---- */

static void note_loss(const struct trainer *t, enum mr_status status, uint32_t incarnation)
{
    if (status != MR_OK || mr_client_incarnation(t->client) != incarnation)
        atomic_store(&t->run->is_lost, true);
}

/* What is pushed follows from what was looked up: a bit that differs once differs for ever. */
static void train_step(const struct trainer *t, uint64_t step, uint32_t incarnation)
{
    struct mr_options options = {.step = step};
    uint64_t keys[KEYS_PER_STEP], random = step * TRAINERS + t->number;
    float gradients[KEYS_PER_STEP * DIM] = {0};
    struct mr_reply *rows = NULL;
    for (uint32_t i = 0; i < KEYS_PER_STEP; i++)
        keys[i] = next_random(&random) % KEYS;
    enum mr_status status = mr_lookup(t->client, &options, t->run->table, keys, KEYS_PER_STEP, &rows);

    for (uint32_t i = 0; i < KEYS_PER_STEP * DIM && status == MR_OK; i++)
        gradients[i] = ((const float *)mr_reply_tensor(rows, 0)->data)[i] * 0.3f +
                       (float)(next_random(&random) % 2001) * 1e-3f - 1;
    mr_reply_free(rows);
    note_loss(t, status, incarnation);
    for (uint32_t turn = 0; turn < TRAINERS; turn++) {
        pthread_barrier_wait(&t->run->barrier);
        if (turn == t->number && !atomic_load(&t->run->is_lost))
            note_loss(
                t, mr_push_gradients(t->client, &options, t->run->table, keys, KEYS_PER_STEP, DIM, gradients),
                incarnation);
    }
    pthread_barrier_wait(&t->run->barrier);
}

static void *train(void *arg)
{
    struct trainer *t = arg;
    uint32_t incarnation = mr_client_incarnation(t->client);
    for (uint64_t step = t->run->first_step; step <= STEPS; step++) {
        while (step > atomic_load(&t->run->limit))
            wait_pause();
        atomic_store(&t->run->step, step);
        train_step(t, step, incarnation);
        /* Between barriers nobody changes it: both see the same. */
        bool is_lost = atomic_load(&t->run->is_lost);

        pthread_barrier_wait(&t->run->barrier);
        if (is_lost)
            break;
    }
    return NULL;
}

static void start_training(struct run *run, struct trainer trainers[TRAINERS], uint64_t first_step,
                           uint64_t limit)
{
    run->first_step = first_step;
    atomic_store(&run->limit, limit);
    atomic_store(&run->step, 0);
    atomic_store(&run->is_lost, false);
    assert_int_equal(pthread_barrier_init(&run->barrier, NULL, TRAINERS), 0);
    for (uint32_t i = 0; i < TRAINERS; i++) {
        trainers[i] = (struct trainer){.run = run, .client = connect_patient(run->node), .number = i};
        assert_int_equal(pthread_create(&trainers[i].thread, NULL, train, &trainers[i]), 0);
    }
}

static void join_training(struct run *run, struct trainer trainers[TRAINERS])
{
    for (uint32_t i = 0; i < TRAINERS; i++) {
        assert_int_equal(pthread_join(trainers[i].thread, NULL), 0);
        mr_client_destroy(trainers[i].client);
    }
    pthread_barrier_destroy(&run->barrier);
}

static void read_rows(const struct run *run, struct mr_client *client, float rows[KEYS * DIM])
{
    uint64_t keys[KEYS];
    struct mr_reply *reply;
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = i;
    assert_int_equal(mr_lookup(client, NULL, run->table, keys, KEYS, &reply), MR_OK);
    memcpy(rows, mr_reply_tensor(reply, 0)->data, KEYS * DIM * sizeof(float));
    mr_reply_free(reply);
}

static struct mr_checkpoint_info info_of(struct mr_client *client)
{
    struct mr_checkpoint_info info = {.bytes = sizeof(info)};
    assert_int_equal(mr_checkpoint_info(client, NULL, 0, &info, NULL, NULL), MR_OK);
    return info;
}

static void train_calmly(float rows[KEYS * DIM])
{
    static struct node_fixture node;
    static struct run run;
    struct trainer trainers[TRAINERS];
    node_fixture_start(&node, cores, NULL);
    struct mr_client *client = connect_patient(&node);

    run.node = &node;
    run.table = create_table(client);
    start_training(&run, trainers, 1, STEPS);
    join_training(&run, trainers);
    assert_false(atomic_load(&run.is_lost));
    assert_int_equal(info_of(client).last_good_id, 0);
    read_rows(&run, client, rows);
    mr_client_destroy(client);
    node_fixture_stop(&node);
}

/* Steps that are passed while a checkpoint is written get none: then on to the next. */
static void train_until_saved(struct run *run, struct mr_client *client)
{
    while (info_of(client).last_good_step < HELD_AT / EVERY * EVERY) {
        uint64_t limit = atomic_load(&run->limit);
        if (atomic_load(&run->step) == limit && node_fixture_counter(client, 0, "checkpoint.running_id") == 0)
            atomic_store(&run->limit, limit + EVERY);
    }
}

/* What both did to the restarted server before they noticed is taken back. */
static uint64_t go_back(struct mr_client *client)
{
    struct mr_core_state states[64];
    assert_int_equal(mr_heartbeat(client, NULL, states), MR_OK); /* this client knows of the restart, too */
    assert_int_equal(restore_from(client, NULL, NULL, 0, NULL), MR_OK);
    struct mr_checkpoint_info info = info_of(client);

    assert_true(info.restored_is_at_step);
    assert_int_equal(info.restored_step % EVERY, 0);
    assert_true(info.restored_step >= HELD_AT / EVERY * EVERY);
    assert_int_equal(info.step, info.restored_step);
    return info.restored_step;
}

TEST(test_killed_and_restored)
{
    static const char *const settings[] = {"checkpoint.every_steps=10", "checkpoint.trainers=2",
                                           "checkpoint.step_wait_ms=60000", "checkpoint.deltas=3", NULL};
    static struct node_fixture node;
    static struct run run;
    static float calm[KEYS * DIM], disturbed[KEYS * DIM];
    struct trainer trainers[TRAINERS];
    train_calmly(calm);
    node_fixture_start(&node, cores, settings);
    struct mr_client *client = connect_patient(&node);

    run.node = &node;
    run.table = create_table(client);
    start_training(&run, trainers, 1, HELD_AT);
    train_until_saved(&run, client);
    /* Not as far as the next checkpoint: the restarted server would take it of what is to be taken back. */
    uint64_t last = atomic_load(&run.step) / EVERY * EVERY + EVERY - 1;

    atomic_store(&run.limit, last);
    while (atomic_load(&run.step) < last) {
    }
    node_fixture_kill(&node);
    node_fixture_restart(&node);
    atomic_store(&run.limit, STEPS);
    join_training(&run, trainers);
    assert_true(atomic_load(&run.is_lost));
    uint64_t restored = go_back(client);

    while (node_fixture_counter(client, 0, "checkpoint.waiting_step") != restored + EVERY) {
    } /* else training might pass it before the server looks */
    start_training(&run, trainers, restored + 1, STEPS);
    join_training(&run, trainers);
    assert_false(atomic_load(&run.is_lost));
    read_rows(&run, client, disturbed);
    assert_memory_equal(disturbed, calm, sizeof(calm));
    assert_int_equal(node_fixture_counter(client, 0, "checkpoint.saves_late"), 0);
    assert_int_equal(node_fixture_counter(client, 0, "checkpoint.saves_failed"), 0);
    while (node_fixture_counter(client, 0, "checkpoint.saves_at_step") == 0) {
    } /* the one that training passed is on its way to the disk */
    mr_client_destroy(client);
    node_fixture_stop(&node);
}

int main(int argc, char **argv)
{
    if (!node_fixture_arguments(argc, argv, &cores))
        return 2;
    return tests_run(NULL, NULL);
}
