/* StartSample and ReadSample: trainers, the hub process and a node, from a sample file to applied batches. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "millrace_admin.h"
#include "millrace_observe.h"
#include "tests/integration/hub_fixture.h"
#include "tests/test.h"
#include "tests/wait.h"

enum { SAMPLES = 500, BATCH = 32, BATCHES = (SAMPLES + BATCH - 1) / BATCH, DIM = 4, TRAINERS = 2 };

#define INITIAL  0.25f
#define NO_BATCH UINT64_MAX

static uint32_t cores; /* of this run */

struct fixture {
    struct node_fixture node;
    struct hub_fixture hub;
    struct mr_client *server;
    struct mr_client *trainers[TRAINERS]; /* at the hub */
    uint32_t table;
    uint8_t times[SAMPLES]; /* each sample was handed out */
};

static int set_up(void **state)
{
    static struct fixture x;
    struct mr_feature table = mr_feature_table("clicks", DIM);
    memset(&x, 0, sizeof(x));
    table.init_a = INITIAL;
    table.learning_rate = 1;
    node_fixture_start(&x.node, cores, NULL);
    hub_fixture_start(&x.hub, &x.node, "--trainer-timeout 600");
    hub_fixture_write_samples(&x.hub, SAMPLES, 123);
    x.server = node_fixture_connect(&x.node);
    assert_int_equal(mr_create(x.server, NULL, &table, 1, &x.table), MR_OK);
    for (uint32_t i = 0; i < TRAINERS; i++)
        x.trainers[i] = hub_fixture_connect();
    *state = &x;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *x = *state;
    for (uint32_t i = 0; i < TRAINERS; i++)
        mr_client_destroy(x->trainers[i]);
    mr_client_destroy(x->server);
    hub_fixture_stop(&x->hub);
    node_fixture_stop(&x->node);
    return 0;
}

/* Bags hold one key each, and no row has been changed: every value is the first one. */
static void look_up(struct fixture *x, const struct mr_batch *batch)
{
    struct mr_reply *reply;
    assert_int_equal(mr_lookup_batch(x->server, NULL, batch->id, x->table, &reply), MR_OK);

    const struct mr_tensor *t = mr_reply_tensor(reply, 0);

    assert_int_equal(t->dims[0], batch->samples);
    assert_int_equal(t->dims[1], HUB_SLOTS);
    for (uint32_t i = 0; i < batch->samples * HUB_SLOTS * DIM; i++)
        assert_true(((const float *)t->data)[i] == INITIAL);
    mr_reply_free(reply);
}

static void hub_push(struct fixture *x, const struct mr_batch *batch, float value)
{
    static float gradients[BATCH * HUB_SLOTS * DIM];
    struct mr_batch_gradient gradient = {x->table,
                                         mr_tensor_3d(MR_F32, batch->samples, HUB_SLOTS, DIM, gradients)};
    bool applied = false;
    for (uint32_t i = 0; i < BATCH * HUB_SLOTS * DIM; i++)
        gradients[i] = value;
    assert_int_equal(mr_push_gradients_batch(x->server, NULL, batch->id, &gradient, 1, &applied), MR_OK);
    assert_true(applied);
}

static void hub_note(struct fixture *x, const struct mr_batch *batch)
{
    for (uint32_t i = 0; i < batch->samples; i++) {
        uint32_t sample = hub_fixture_sample(batch, i);
        assert_true(sample < SAMPLES);
        x->times[sample]++;
    }
}

/* Asks for the next batch, naming the one that the trainer is through with. */
static enum mr_status read_next(struct fixture *x, uint32_t trainer, uint64_t *done, struct mr_batch *batch)
{
    enum mr_status status = mr_read_sample(x->trainers[trainer], NULL, done, *done != NO_BATCH, batch);
    if (status != MR_OK && status != MR_END_OF_DATA && status != MR_NOT_READY)
        fail_msg("%s", mr_last_error());
    if (status == MR_NOT_READY)
        wait_pause();
    *done = NO_BATCH;
    return status;
}

/* The trainers take turns until the hub says that there is no more. */
static uint32_t read_all(struct fixture *x, bool train)
{
    uint64_t done[TRAINERS] = {NO_BATCH, NO_BATCH};
    struct mr_batch batch;
    uint32_t batches = 0;
    for (uint32_t turn = 0;; turn++) {
        enum mr_status status = read_next(x, turn % TRAINERS, &done[turn % TRAINERS], &batch);
        if (status == MR_END_OF_DATA)
            return batches;
        if (status != MR_OK)
            continue;
        assert_int_in_range(batch.samples, 1, BATCH);
        hub_note(x, &batch);
        look_up(x, &batch);
        if (train)
            hub_push(x, &batch, 0);
        done[turn % TRAINERS] = batch.id;
        mr_reply_free(batch.reply);
        batches++;
    }
}

static void hub_start(struct fixture *x, const struct mr_sample_plan *plan, struct mr_sample_info *info)
{
    struct mr_sample_info other;
    assert_int_equal(mr_start_sample(x->trainers[0], NULL, plan, info), MR_OK);
    assert_int_equal(mr_start_sample(x->trainers[1], NULL, plan, &other), MR_OK); /* joins */
    assert_int_equal(other.stream, info->stream);
    assert_int_equal(other.batches, info->batches);
}

static void check_applied(struct fixture *x, const struct mr_sample_info *info)
{
    struct mr_hub_status status;
    uint64_t watermark, *bitmap;
    uint32_t words;
    assert_int_equal(mr_batch_state(x->server, NULL, info->stream, &watermark, &bitmap, &words), MR_OK);
    free(bitmap);
    assert_int_equal(watermark, info->batches);
    assert_int_equal(mr_hub_status(x->trainers[0], NULL, &status), MR_OK);
    assert_int_equal(status.batches_applied, info->batches);
    assert_true(status.at_end);
    assert_int_equal(node_fixture_sum(x->server, "ps.batches_applied"), info->batches * cores);
    assert_int_equal(node_fixture_sum(x->server, "ps.pushes_refused_applied"), 0);
}

TEST(test_one_pass, set_up, tear_down)
{
    struct fixture *x = *state;
    struct mr_sample_plan plan = hub_fixture_plan(&x->hub, BATCH);
    struct mr_sample_info info;
    struct mr_hub_status status;
    plan.epochs = 2;
    plan.shuffle_seed = 5;
    plan.run = 1;
    hub_start(x, &plan, &info);
    assert_int_equal(info.samples, SAMPLES);
    assert_int_equal(info.slots, HUB_SLOTS);
    assert_int_equal(info.dense, HUB_DENSE);
    assert_int_equal(info.batches, 2 * BATCHES);
    assert_int_equal(info.broken_lines, 1);
    assert_true(hub_fixture_logged(&x->hub, "samples.tsv:125: ")); /* sample 123 is on line 124 */
    assert_int_equal(read_all(x, true), 2 * BATCHES);
    for (uint32_t i = 0; i < SAMPLES; i++)
        assert_int_equal(x->times[i], 2);
    check_applied(x, &info);
    assert_int_equal(mr_hub_status(x->trainers[0], NULL, &status), MR_OK);
    assert_int_equal(status.samples_read, 2 * SAMPLES);
    assert_int_equal(status.batches_handed_out, 2 * BATCHES);
    assert_int_equal(status.batches_handed_again, 0);
    assert_int_equal(status.broken_lines, 1);
}

/* The keys are the samples': each row has learnt as often as its key is in the file. */
TEST(test_keys, set_up, tear_down)
{
    struct fixture *x = *state;
    struct mr_sample_plan plan = hub_fixture_plan(&x->hub, BATCH);
    struct mr_sample_info info;
    struct mr_batch batch;
    struct mr_reply *reply;
    uint64_t done = NO_BATCH, keys[SAMPLES];
    enum mr_status status;
    assert_int_equal(mr_start_sample(x->trainers[0], NULL, &plan, &info), MR_OK);
    while ((status = read_next(x, 0, &done, &batch)) != MR_END_OF_DATA) {
        if (status != MR_OK)
            continue;
        hub_push(x, &batch, 1);
        done = batch.id;
        mr_reply_free(batch.reply);
    }
    for (uint32_t slot = 0; slot < HUB_SLOTS; slot += 5) {
        for (uint32_t i = 0; i < SAMPLES; i++)
            keys[i] = hub_fixture_key(i, slot);
        assert_int_equal(mr_lookup(x->server, NULL, x->table, keys, SAMPLES, &reply), MR_OK);
        for (uint32_t i = 0; i < SAMPLES; i++) {
            uint32_t times = 0;
            for (uint32_t j = 0; j < SAMPLES; j++)
                times += keys[j] == keys[i];
            assert_true(((const float *)mr_reply_tensor(reply, 0)->data)[i * DIM] == INITIAL - (float)times);
        }
        mr_reply_free(reply);
    }
    check_applied(x, &info);
}

/* Both parts together are the whole, and the held-out one neither makes rows nor waits to be applied. */
TEST(test_held_out, set_up, tear_down)
{
    struct fixture *x = *state;
    struct mr_sample_plan plan = hub_fixture_plan(&x->hub, BATCH);
    struct mr_sample_info train, held_out;
    plan.held_out_share = 0.25;
    plan.shuffle_seed = 11;
    hub_start(x, &plan, &train);
    read_all(x, true);
    check_applied(x, &train);
    plan.part = MR_PART_HELD_OUT;
    hub_start(x, &plan, &held_out);
    assert_int_equal(train.samples + held_out.samples, SAMPLES);
    assert_true(held_out.samples > SAMPLES / 8 && held_out.samples < SAMPLES / 2);
    assert_int_equal(mr_freeze(x->server, NULL, 2), MR_OK);
    read_all(x, false);
    for (uint32_t i = 0; i < SAMPLES; i++)
        assert_int_equal(x->times[i], 1);
}

/* More batches ahead than the node has room for: the hub waits, nothing is lost. */
TEST(test_backpressure, set_up, tear_down)
{
    struct fixture *x = *state;
    struct mr_sample_plan plan = hub_fixture_plan(&x->hub, 5);
    struct mr_sample_info info;
    struct mr_hub_status status;
    for (uint32_t i = 0; i < TRAINERS; i++)
        mr_client_destroy(x->trainers[i]);
    hub_fixture_kill(&x->hub);
    x->hub.options = "--prefetch 64 --trainer-timeout 600";
    hub_fixture_restart(&x->hub);
    for (uint32_t i = 0; i < TRAINERS; i++)
        x->trainers[i] = hub_fixture_connect();
    hub_start(x, &plan, &info);
    WAIT_UNTIL(node_fixture_sum(x->server, "ps.feeds_refused_full") > 0);
    assert_int_equal(read_all(x, true), SAMPLES / 5);
    for (uint32_t i = 0; i < SAMPLES; i++)
        assert_int_equal(x->times[i], 1);
    check_applied(x, &info);
    assert_int_equal(mr_hub_status(x->trainers[0], NULL, &status), MR_OK);
    assert_int_equal(status.batches_handed_again, 0);
    assert_int_equal(status.batches_expired, 0);
}

TEST(test_refusals, set_up, tear_down)
{
    struct fixture *x = *state;
    struct mr_sample_plan good = hub_fixture_plan(&x->hub, BATCH), plan = good;
    struct mr_sample_info info;
    struct mr_batch batch = {.id = 77};
    node_fixture_refused(mr_read_sample(x->trainers[0], NULL, NULL, 0, &batch), MR_NOT_STARTED, "");
    assert_int_equal(batch.id, 77);
    plan.path = "/nowhere/samples.tsv";
    node_fixture_refused(mr_start_sample(x->trainers[0], NULL, &plan, &info), MR_INVALID_ARGUMENT,
                         "/nowhere/samples.tsv");
    plan = good;
    plan.format = "parquet";
    node_fixture_refused(mr_start_sample(x->trainers[0], NULL, &plan, &info), MR_INVALID_ARGUMENT,
                         "libsvm, criteo, flights");
    plan = good;
    plan.batch_samples = 0;
    node_fixture_refused(mr_start_sample(x->trainers[0], NULL, &plan, &info), MR_INVALID_ARGUMENT,
                         "batch_samples");
    plan = good;
    plan.strict = true;
    node_fixture_refused(mr_start_sample(x->trainers[0], NULL, &plan, &info), MR_BAD_MESSAGE,
                         "samples.tsv:125");
    assert_int_equal(mr_start_sample(x->trainers[0], NULL, &good, &info), MR_OK);
    plan = good;
    plan.run = 2;
    node_fixture_refused(mr_start_sample(x->trainers[1], NULL, &plan, &info), MR_ALREADY_STARTED,
                         "run 0, not 2");
    node_fixture_refused(mr_lookup(x->trainers[0], NULL, 1, (uint64_t[]){1}, 1, NULL), MR_UNKNOWN_OP, "");
}

/* A hub that cannot do its work says why in one line and ends with an error. */
TEST(test_command_line, set_up, tear_down)
{
    static const struct {
        const char *arguments, *says;
    } cases[] = {
        {"", "--server is missing"},
        {"--server 10.99.0.1 --prefetch 0", "--prefetch must be a whole number from 1 to 64"},
        {"--server 10.99.0.1 --listen 10.1.2.3:7800 --without-key", "10.1.2.3:7800"},
        {"--server 10.99.0.1 --listen " HUB_ADDRESS, "needs a key"},
        {"--server 10.99.0.1 --allow /nowhere", "--allow /nowhere: No such file or directory"},
        {"--server 10.99.0.1 --listen 127.0.0.1:7801 --key-file /nowhere/key", "/nowhere/key"},
        {"--server 10.99.0.1 --frobnicate", "--help"},
    };
    struct fixture *x = *state;

    for (uint32_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        int code = netns_run(&x->node.net, NETNS_CLIENT, "timeout 60 %s %s >%s/out 2>&1 </dev/null",
                             hub_fixture_program, cases[i].arguments, x->node.directory);
        assert_int_in_range(code, 1, 2);
        if (netns_run(&x->node.net, NETNS_CLIENT, "grep -qF -e '%s' %s/out", cases[i].says,
                      x->node.directory) != 0)
            fail_msg("%s: no word of \"%s\"", cases[i].arguments, cases[i].says);
    }
}

int main(int argc, char **argv)
{
    if (argc != 4 || (cores = (uint32_t)strtoul(argv[3], NULL, 10)) == 0) {
        fprintf(stderr, "usage: test_hub MILLRACED MILLRACE_HUB CORES\n");
        return 2;
    }
    node_fixture_server = argv[1];
    hub_fixture_program = argv[2];
    netns_require_root();
    return tests_run(NULL, NULL);
}
