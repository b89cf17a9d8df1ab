/* Every call of the public API against a node, with one core and with three: what comes out must not
 * depend on it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "dataplane/optimizer/rule.h"
#include "dataplane/wire/format/capability.h"
#include "tests/checkpoint_calls.h"
#include "tests/unit/trainer_client/api/calls_fixture.h"
#include "tests/unit/trainer_client/canned_answers.h"
#include "trainer_client/millrace_admin.h"
#include "trainer_client/millrace_observe.h"

/* ---- batches ---- */

static void check_batches(uint32_t core_count)
{
    enum { SAMPLES = 5, SLOTS = 5 };
    struct fixture x;
    struct mr_reply *reply = NULL;
    float gradients[BAGS * DIM], bias = 2.5f, sum;
    uint64_t batch = (UINT64_C(3) << 48) | 2, watermark, *bitmap;
    uint32_t words;
    bool applied = false;
    uint32_t one = 1, id;
    struct mr_feature feature = mr_feature_variable("bias", 1, &one);

    feature.learning_rate = 1;
    set_up(&x, core_count);
    assert_int_equal(mr_create(x.client, NULL, &feature, 1, &id), MR_OK);
    struct mr_batch_keys keys = {x.tables[0], SAMPLES, SLOTS, x.keys, x.offsets, NULL};

    assert_int_equal(mr_lookup_batch(x.client, NULL, batch, x.tables[0], &reply), MR_UNKNOWN_BATCH);
    assert_int_equal(mr_feed_sample(x.client, NULL, batch, &keys, 1, false), MR_OK);
    assert_int_equal(mr_lookup_batch(x.client, NULL, batch, x.tables[0], &reply), MR_OK);
    assert_int_equal(mr_reply_tensor(reply, 0)->rank, 3);
    for (uint32_t b = 0; b < BAGS; b++) {
        sum = 0;
        for (uint32_t i = x.offsets[b]; i < x.offsets[b + 1]; i++)
            sum += live_value(x.keys[i], 1);
        assert_close(floats(reply)[b * DIM + 1], sum);
    }
    mr_reply_free(reply);
    for (uint32_t i = 0; i < BAGS * DIM; i++)
        gradients[i] = 1;
    struct mr_batch_gradient both[2] = {{x.tables[0], mr_tensor_3d(MR_F32, SAMPLES, SLOTS, DIM, gradients)},
                                        {id, mr_tensor_1d(MR_F32, 1, &bias)}};

    assert_int_equal(mr_push_gradients_batch(x.client, NULL, batch, both, 2, &applied), MR_OK);
    assert_true(applied);
    assert_int_equal(mr_push_gradients_batch(x.client, NULL, batch, both, 2, &applied), MR_OK);
    assert_false(applied);
    assert_int_equal(mr_lookup_bags(x.client, NULL, x.tables[0], x.keys, NULL, x.offsets, 2, &reply), MR_OK);
    sum = 0;
    for (uint32_t i = 0; i < x.offsets[2]; i++) {
        uint32_t times = 0;
        for (uint32_t j = 0; j < x.offsets[BAGS]; j++)
            times += x.keys[j] == x.keys[i];
        sum += live_value(x.keys[i], 0) - (float)times;
    }
    assert_close(floats(reply)[DIM], sum);
    mr_reply_free(reply);
    assert_int_equal(mr_variable_pull(x.client, NULL, id, 0, 0, &reply), MR_OK);
    assert_true(floats(reply)[0] == -2.5f);
    mr_reply_free(reply);
    assert_int_equal(mr_batch_state(x.client, NULL, 3, &watermark, &bitmap, &words), MR_OK);
    assert_int_equal(watermark, 0);
    assert_int_equal(words, 1);
    assert_int_equal(bitmap[0], 4);
    free(bitmap);
    const uint64_t plan[3] = {1, 2, 3}, other[3] = {1, 2, 4};
    const struct mr_options mine = {.plan = plan}, theirs = {.plan = other};
    struct mr_stream *streams = NULL;
    uint32_t stream_count = 0, forgotten = 3;

    assert_int_equal(mr_batch_state(x.client, &mine, 8, &watermark, &bitmap, &words), MR_OK);
    free(bitmap);
    assert_int_equal(mr_batch_state(x.client, &theirs, 8, &watermark, &bitmap, &words), MR_ALREADY_STARTED);
    assert_non_null(strstr(mr_last_error(), "another plan"));
    assert_int_equal(mr_streams(x.client, NULL, &streams, &stream_count), MR_OK);
    assert_int_equal(stream_count, 2);
    assert_int_equal(streams[0].stream, 3);
    assert_int_equal(streams[0].applied, 1);
    assert_int_equal(streams[1].stream, 8);
    assert_memory_equal(streams[1].plan, plan, sizeof(plan));
    assert_false(streams[1].differs);
    free(streams);
    assert_int_equal(mr_forget_streams(x.client, NULL, &forgotten, 1), MR_OK);
    assert_int_equal(mr_streams(x.client, NULL, &streams, &stream_count), MR_OK);
    assert_int_equal(stream_count, 1);
    free(streams);
    assert_int_equal(mr_forget_batches(x.client, NULL, &batch, 1), MR_OK);
    assert_int_equal(mr_lookup_batch(x.client, NULL, batch, x.tables[0], &reply), MR_UNKNOWN_BATCH);
    tear_down(&x);
}

/* ---- features and variables ---- */

static void check_features(uint32_t core_count)
{
    struct fixture x;
    struct mr_feature other = mr_feature_table("mean", DIM + 1);
    struct mr_feature_info *infos = NULL;
    struct mr_reply *reply = NULL;
    uint32_t id = 99, count = 0;
    uint64_t values_first = 4;
    float values[2] = {5, 6}, gradient[6] = {1, 1, 1, 1, 1, 1};
    set_up(&x, core_count);
    assert_int_equal(mr_create(x.client, NULL, &other, 1, &id), MR_FEATURE_MISMATCH);
    assert_non_null(strstr(mr_last_error(), "mean exists with "));
    assert_int_equal(id, 99);
    assert_int_equal(mr_list(x.client, NULL, &infos, &count), MR_OK);
    assert_int_equal(count, 4);
    assert_string_equal(infos[3].feature.name, "weights");
    assert_int_equal(infos[2].id, x.tables[2]);
    assert_int_equal(infos[2].rows, DISTINCT);
    assert_true(infos[2].bytes > DISTINCT * DIM * sizeof(float));
    free(infos);
    assert_int_equal(mr_variable_push(x.client, NULL, x.variable, values_first, 2, values), MR_OK);
    assert_int_equal(mr_variable_push_gradient(x.client, NULL, x.variable, 6, gradient), MR_OK);
    assert_int_equal(mr_variable_pull(x.client, NULL, x.variable, 3, 0, &reply), MR_OK);
    assert_int_equal(mr_reply_tensor(reply, 0)->dims[0], 3);
    assert_true(floats(reply)[0] == -1 && floats(reply)[1] == 4 && floats(reply)[2] == 5);
    mr_reply_free(reply);
    assert_int_equal(mr_variable_pull(x.client, NULL, x.variable, 3, 4, &reply), MR_WRONG_SHAPE);
    assert_int_equal(mr_variable_push_gradient(x.client, NULL, x.variable, 5, gradient), MR_WRONG_SHAPE);
    assert_int_equal(mr_variable_pull(x.client, NULL, x.tables[0], 0, 0, &reply), MR_UNKNOWN_VARIABLE);
    assert_int_equal(mr_variable_pull(x.client, NULL, 7, 0, 0, &reply), MR_UNKNOWN_VARIABLE);
    assert_int_equal(mr_lookup(x.client, NULL, 8, x.keys, KEYS, &reply), MR_UNKNOWN_TABLE);
    assert_int_equal(mr_lookup(x.client, NULL, 70000, x.keys, KEYS, &reply), MR_UNKNOWN_TABLE);
    assert_int_equal(mr_push_gradients(x.client, NULL, x.tables[0], x.keys, 2, 2, gradient), MR_WRONG_DIM);
    /* Another client finds out what the numbers mean. */
    struct mr_client *second = connect_to(x.node);

    assert_int_equal(mr_lookup(second, NULL, x.tables[0], x.keys, KEYS, &reply), MR_OK);
    assert_true(floats(reply)[0] == live_value(x.keys[0], 0));
    mr_reply_free(reply);
    mr_client_destroy(second);
    tear_down(&x);
}

/* ---- the node and the hub ---- */

static void count_counters(void *arg, const char *name, uint64_t value)
{
    uint32_t *seen = arg;
    *seen += strcmp(name, "wire.requests") == 0 && value > 0;
    *seen += strcmp(name, "core.index") == 0 ? 10 + (uint32_t)value : 0;
}

static void add_table(void *arg, const struct mr_table_memory *table)
{
    struct mr_table_memory **at = arg;
    *(*at)++ = *table;
}

static void check_no_cluster(struct mr_client *client)
{
    struct mr_cluster_state state;
    assert_int_equal(mr_cluster(client, NULL, &state, NULL, NULL), MR_OK);
    assert_false(state.is_member);
    assert_int_equal(state.node_count, 0);
}

static void check_memory(struct mr_client *client, uint32_t core)
{
    struct mr_core_memory memory;
    struct mr_table_memory tables[2], *at = tables;
    assert_int_equal(mr_memory(client, NULL, core, &memory, add_table, &at), MR_OK);
    assert_int_equal(memory.limit_bytes, 100);
    assert_int_equal(memory.units_failed, 60);
    assert_int_equal(memory.checkpoint_bytes, 5);
    assert_ptr_equal(at, tables + 2);
    assert_int_equal(tables[0].slack_bytes, 6);
    assert_int_equal(tables[0].limit_bytes, 8);
    assert_int_equal(tables[1].id, 9);
    assert_int_equal(tables[1].rows, 10 + core);
    assert_int_equal(mr_memory(client, NULL, core, &memory, NULL, NULL), MR_OK);
}

static void check_node(uint32_t core_count)
{
    struct fixture x;
    struct mr_checkpoint_info status = {.bytes = sizeof(status)};
    uint64_t id = 0;
    uint32_t seen = 0;
    set_up(&x, core_count);
    check_no_cluster(x.client);
    live_node_save(x.node);
    assert_int_equal(save_into(x.client, NULL, "/other", &id), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(mr_last_error(), "save: INVALID_ARGUMENT: "));
    assert_int_equal(id, 0);
    assert_int_equal(restore_from(x.client, NULL, NULL, 0, &id), MR_OK);
    assert_int_equal(id, 1);
    assert_int_equal(save_into(x.client, NULL, NULL, &id), MR_OK);
    assert_int_equal(id, 2);
    assert_int_equal(mr_freeze(x.client, NULL, 1), MR_OK);

    atomic_store(&x.node->answer, canned_answer);
    assert_int_equal(mr_stats(x.client, NULL, core_count - 1, count_counters, &seen), MR_OK);
    assert_int_equal(seen, 11 + core_count - 1);
    check_memory(x.client, core_count - 1);
    assert_int_equal(mr_checkpoint_info(x.client, NULL, 0, &status, NULL, NULL), MR_OK);
    assert_int_equal(status.id, 1);
    assert_int_equal(status.bytes_total, 10);
    assert_int_equal(status.last_status, MR_IO_ERROR);
    assert_string_equal(status.last_error, "disk full");
    tear_down(&x);
}

static void check_save_refused(struct fixture *x, const struct mr_save_options *what, enum mr_status status,
                               const char *text)
{
    assert_int_equal(mr_save(x->client, NULL, what, NULL, NULL), status);
    assert_non_null(strstr(mr_last_error(), text));
}

/* Names go as 64 bytes each; the options of programs built before there were names are shorter. */
static void check_save_named(uint32_t core_count)
{
    struct fixture x;
    char long_name[MR_NAME_BYTES + 1] = "";
    const char *names[2] = {"user", "item"};
    struct mr_save_options what = {
        .bytes = sizeof(what), .directory = "/dir", .names = names, .name_count = 2};
    set_up(&x, core_count);
    atomic_store(&x.node->answer, canned_answer);
    check_save_refused(&x, &what, MR_UNKNOWN_TABLE, "2 names of 64, the last is item");
    names[1] = "";
    check_save_refused(&x, &what, MR_INVALID_ARGUMENT, "names[1] must have 1 to 63 bytes");
    memset(long_name, 'n', MR_NAME_BYTES);
    names[1] = long_name;
    check_save_refused(&x, &what, MR_INVALID_ARGUMENT, "names[1] must have 1 to 63 bytes");
    what.name_count = 0;
    check_save_refused(&x, &what, MR_INVALID_ARGUMENT, "do not fit together");
    what.bytes = offsetof(struct mr_save_options, names);
    what.name_count = 2;
    assert_int_equal(mr_save(x.client, NULL, &what, NULL, NULL), MR_OK);
    what.bytes--;
    check_save_refused(&x, &what, MR_INVALID_ARGUMENT, "set it to sizeof");
    tear_down(&x);
}

static void check_restored(struct fixture *x, const struct mr_restore_options *what)
{
    struct mr_restored restored = {.bytes = 0};
    assert_int_equal(mr_restore(x->client, NULL, what, &restored), MR_INVALID_ARGUMENT);
    restored.bytes = sizeof(restored);
    assert_int_equal(mr_restore(x->client, NULL, what, &restored), MR_OK);
    assert_int_equal(restored.id, 7);
    assert_int_equal(restored.step, 40);
    assert_true(restored.is_at_step);
    assert_int_equal(restored.tables, 2);
    assert_int_equal(restored.variables, 1);
}

static void check_restore_named(uint32_t core_count)
{
    struct fixture x;
    char long_name[MR_NAME_BYTES + 1];
    struct mr_restore_name names[2] = {{"user", NULL}, {"item", "item_old"}};
    struct mr_restore_options what = {.bytes = sizeof(what), .directory = "/dir", .id = 7, .names = names};
    set_up(&x, core_count);
    atomic_store(&x.node->answer, canned_answer);
    what.name_count = 2;
    what.replace = true;
    assert_int_equal(mr_restore(x.client, NULL, &what, NULL), MR_UNKNOWN_TABLE);
    assert_non_null(strstr(mr_last_error(), "user> item>item_old id=7 flags=1"));
    what.id = 0;
    what.name_count = 1;
    what.replace = false;
    assert_int_equal(mr_restore(x.client, NULL, &what, NULL), MR_UNKNOWN_TABLE);
    assert_non_null(strstr(mr_last_error(), "user> id=0 flags=0"));
    what.name_count = 0;
    assert_int_equal(mr_restore(x.client, NULL, &what, NULL), MR_INVALID_ARGUMENT);
    what.names = NULL;
    what.replace = true;
    assert_int_equal(mr_restore(x.client, NULL, &what, NULL), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(mr_last_error(), "replace is for names"));
    what.replace = false;
    check_restored(&x, &what);
    what.names = names;
    what.name_count = 2;
    memset(long_name, 'x', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    names[1].new_name = long_name;
    assert_int_equal(mr_restore(x.client, NULL, &what, NULL), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(mr_last_error(), "names[1] must have names of 1 to 63 bytes"));
    tear_down(&x);
}

/* Applied by some cores and refused by others: not to be sent again as it is, and not to be taken for
 * undone. */
TEST(test_partly_applied)
{
    struct fixture x;
    float gradients[KEYS * DIM] = {0};
    set_up(&x, 3);
    live_node_refuse(x.node, MR_OP_PUSH_GRAD, MR_FROZEN, LIVE_ALL_CORES - 1);
    assert_int_equal(mr_push_gradients(x.client, NULL, x.tables[0], x.keys, KEYS, DIM, gradients),
                     MR_UNKNOWN_OUTCOME);
    assert_non_null(strstr(mr_last_error(), "FROZEN"));
    assert_non_null(strstr(mr_last_error(), "1 of the call's 3 messages to cores has been applied"));
    tear_down(&x);
}

TEST(test_hub)
{
    struct fixture x;
    struct mr_sample_plan plan = {.path = "/data",
                                  .format = "libsvm",
                                  .batch_samples = 512,
                                  .epochs = 2,
                                  .shuffle_seed = 9,
                                  .held_out_share = 0.2,
                                  .part = MR_PART_HELD_OUT,
                                  .strict = true,
                                  .run = 3,
                                  .table = "t"};
    struct mr_sample_info info;
    struct mr_hub_status status;
    struct mr_batch batch;
    uint64_t done = 7;
    set_up(&x, 1);
    atomic_store(&x.node->answer, canned_answer);
    assert_int_equal(mr_start_sample(x.client, NULL, &plan, &info), MR_OK);
    assert_int_equal(info.samples, 512);
    assert_int_equal(info.slots, 2);
    assert_int_equal(info.stream, 200000);
    assert_int_equal(info.broken_lines, 3);
    assert_int_equal(mr_read_sample(x.client, NULL, NULL, 0, &batch), MR_OK);
    assert_int_equal(batch.id, 7);
    assert_int_equal(batch.samples, 2);
    assert_true(batch.dense[5] == 5 && batch.labels[1] == 1);
    mr_reply_free(batch.reply);
    assert_int_equal(mr_read_sample(x.client, NULL, &done, 1, &batch), MR_END_OF_DATA);
    assert_int_equal(mr_hub_status(x.client, NULL, &status), MR_OK);
    assert_int_equal(status.batches_waiting, 9);
    assert_true(status.at_end);
    plan.table = NULL;
    assert_int_equal(mr_start_sample(x.client, NULL, &plan, &info), MR_INVALID_ARGUMENT);
    tear_down(&x);
}

/* ---- arguments: refused before anything is sent, and told by name ---- */

static void assert_refused(enum mr_status status, const char *says)
{
    assert_int_equal(status, MR_INVALID_ARGUMENT);
    assert_says(mr_last_error(), says);
}

TEST(test_arguments)
{
    struct fixture x;
    struct mr_client *c;
    struct mr_reply *reply = NULL;
    uint32_t falling[3] = {0, 2, 1}, shifted[2] = {1, 2}, id;
    struct mr_feature nameless = mr_feature_table("", 4), wide = mr_feature_table("x", MR_DIM_MAX + 1);
    struct mr_options urgent = {.priority = 8}, downhill = {.learning_rate = -1},
                      nowhere = {.learning_rate = NAN}, unsaid = {.learning_rate = 0.5f},
                      rated = {.learning_rate = 0.5f, .has_learning_rate = true},
                      narrow = {.wire_dtype = MR_F16};
    struct mr_batch_keys none = {1, 0, 3, NULL, shifted, NULL};
    float g[4] = {0};
    struct mr_batch_gradient gradient = {1, mr_tensor_1d(MR_F64, 1, g)};
    set_up(&x, 3);
    c = x.client;
    unsigned long long before = atomic_load(&x.node->cores[0].requests);

    assert_refused(mr_lookup(NULL, NULL, 1, x.keys, 1, &reply), "client is NULL");
    assert_refused(mr_lookup(c, NULL, 1, NULL, 1, &reply), "mr_lookup: keys is NULL");
    assert_refused(mr_lookup(c, &urgent, 1, x.keys, 1, &reply), "priority is 8");
    assert_refused(mr_push_gradients(c, &downhill, 1, x.keys, 1, 4, g), "learning_rate is -1");
    assert_refused(mr_push_gradients(c, &nowhere, 1, x.keys, 1, 4, g), "learning_rate is");
    assert_refused(mr_push_gradients(c, &unsaid, 1, x.keys, 1, 4, g), "options.has_learning_rate");
    assert_refused(mr_lookup_bags(c, NULL, 1, x.keys, NULL, NULL, 1, &reply), "offsets is NULL");
    assert_refused(mr_lookup_bags(c, NULL, 1, x.keys, NULL, falling, 2, &reply), "offsets[2] = 1 is below");
    assert_refused(mr_lookup_bags(c, NULL, 1, x.keys, NULL, shifted, 1, &reply), "offsets[0] is 1");
    assert_refused(mr_push_gradients(c, NULL, 1, x.keys, 1, 0, g), "dim is 0");
    assert_refused(mr_push_gradients(c, NULL, 1, x.keys, 1, 4, NULL), "gradients is NULL");
    assert_refused(mr_set_rows(c, NULL, 1, x.keys, 1, 4, false, NULL), "rows is NULL");
    assert_refused(mr_set_rows(c, NULL, 1, x.keys, 1, 0, false, g), "row_floats is 0");
    assert_refused(mr_set_rows(c, NULL, 1, x.keys, 1, MR_DIM_MAX + MR_RULE_STATE_FLOATS_MAX + 1, true, g),
                   "row_floats is 3075; it goes from 1 to 3074");
    assert_refused(mr_set_rows(c, &rated, 1, x.keys, 1, 4, false, g), "learning_rate is set");
    assert_refused(mr_get_rows(c, &narrow, 1, x.keys, 1, false, &reply), "wire_dtype is set");
    assert_refused(mr_create(c, NULL, &nameless, 1, &id), "name");
    assert_refused(mr_create(c, NULL, &wide, 1, &id), "\"x\"");
    assert_refused(mr_create(c, NULL, &wide, 0, &id), "count is 0");
    assert_refused(mr_freeze(c, NULL, 3), "level is 3");
    assert_refused(mr_alter(c, NULL, NULL, &wide), "before is NULL");
    assert_refused(mr_alter(c, NULL, &wide, NULL), "after is NULL");
    assert_refused(mr_feed_sample(c, NULL, 1, &none, 1, false), "0 samples of 3 slots");
    assert_refused(mr_feed_sample(c, NULL, 1, &none, 0, false), "table_count is 0");
    assert_int_equal(mr_push_gradients_batch(c, NULL, 1, &gradient, 1, NULL), MR_WRONG_DTYPE);
    gradient.gradient = mr_tensor_1d(MR_F32, 3, g);
    gradient.gradient.bytes = 4;
    assert_int_equal(mr_push_gradients_batch(c, NULL, 1, &gradient, 1, NULL), MR_WRONG_SHAPE);
    assert_refused(mr_push_gradients_batch(c, NULL, 1, &gradient, 0, NULL), "count is 0");
    assert_refused(mr_variable_push(c, NULL, x.variable, 0, 1, NULL), "values is NULL");
    assert_refused(mr_heartbeat(c, NULL, NULL), "states is NULL");
    assert_refused(mr_stats(c, NULL, 0, NULL, NULL), "visit is NULL");
    assert_refused(mr_memory(c, NULL, 0, NULL, NULL, NULL), "memory is NULL");
    assert_refused(mr_batch_state(c, NULL, 0, NULL, NULL, NULL), "must all be given");
    assert_refused(mr_future_wait(NULL, NULL), "future is NULL");
    assert_null(reply);
    assert_int_equal(atomic_load(&x.node->cores[0].requests), before);
    tear_down(&x);
}

/* Outputs of an asynchronous call are there once it has been waited for. */
TEST(test_async)
{
    struct fixture x;
    struct mr_future *future = NULL;
    struct mr_options options = {.future = &future};
    struct mr_reply *reply = NULL;
    struct mr_feature_info *infos = NULL;
    uint64_t key = 6, keys[2] = {1, 2};
    uint32_t count = 0;
    set_up(&x, 3);
    assert_int_equal(mr_lookup(x.client, &options, x.tables[0], keys, 2, NULL), MR_OK);
    keys[0] = key; /* copied before the call returned */
    while (!mr_future_done(future)) {
    }
    assert_int_equal(mr_future_wait(future, &reply), MR_OK);
    assert_true(floats(reply)[0] == live_value(1, 0));
    assert_int_equal(mr_future_wait(future, &reply), MR_INVALID_ARGUMENT);
    mr_reply_free(reply);
    mr_future_destroy(future);
    assert_int_equal(mr_list(x.client, &options, &infos, &count), MR_OK);
    assert_int_equal(mr_future_wait(future, NULL), MR_OK);
    assert_int_equal(count, 4);
    free(infos);
    mr_future_destroy(future);
    /* Nothing comes back: no tensors then. */
    assert_int_equal(mr_freeze(x.client, &options, 0), MR_OK);
    assert_int_equal(mr_future_wait(future, &reply), MR_OK);
    assert_int_equal(mr_reply_tensor_count(reply), 0);
    mr_reply_free(reply);
    mr_future_destroy(future);
    tear_down(&x);
}

TEST(test_batches)
{
    check_batches(1);
    check_batches(3);
}

TEST(test_features)
{
    check_features(1);
    check_features(3);
}

TEST(test_node)
{
    check_node(1);
    check_node(3);
    check_restore_named(2);
    check_save_named(2);
}

static bool holds(const char *path, const char *line)
{
    static char text[65536];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    return strstr(text, line) != NULL;
}

TEST(test_metrics_in_a_file)
{
    struct fixture x;
    char path[] = "/tmp/millrace-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    set_up(&x, 3);
    assert_int_equal(mr_client_write_metrics(x.client, path, "trainer \"0\""), MR_OK);
    assert_true(holds(path, "\nmillrace_client_links{client=\"trainer \\\"0\\\"\"} 3\n"));
    assert_true(holds(path, "# TYPE millrace_client_wire_calls_made_total counter\n"));
    assert_false(holds(path, "\nmillrace_client_wire_calls_made_total{client=\"trainer \\\"0\\\"\"} 0\n"));
    assert_true(
        holds(path, "\nmillrace_client_call_seconds_count{client=\"trainer \\\"0\\\"\",op=\"create\"} 1\n"));
    assert_false(holds(path, "# EOF"));
    assert_int_equal(mr_client_write_metrics(x.client, path, NULL), MR_OK);
    assert_true(holds(path, "\nmillrace_client_replay_kept{client=\""));
    assert_int_equal(mr_client_write_metrics(x.client, "/nowhere/a.prom", NULL), MR_IO_ERROR);
    assert_non_null(strstr(mr_last_error(), "/nowhere/a.prom: No such file or directory"));
    assert_int_equal(mr_client_write_metrics(x.client, NULL, NULL), MR_INVALID_ARGUMENT);
    tear_down(&x);
    assert_int_equal(unlink(path), 0);
}

/* Calls whose answer all goes into other outputs have no tensors to give, and say so. */
TEST(test_async_without_tensors)
{
    struct fixture x;
    struct mr_core_state states[3];
    struct mr_future *future;
    struct mr_options options = {.future = &future};
    set_up(&x, 3);
    struct mr_reply *reply = (struct mr_reply *)&x; /* as a caller leaves it who trusts in MR_OK */

    assert_int_equal(mr_heartbeat(x.client, &options, states), MR_OK);
    assert_int_equal(mr_future_wait(future, &reply), MR_OK);
    assert_null(reply);
    mr_future_destroy(future);
    tear_down(&x);
}

/* The other clock is CANNED_CLOCK_AHEAD_NS ahead; how long the ways take is unknown, and within the error. */
TEST(test_clock_offset)
{
    struct fixture x;
    struct mr_clock_offset offset;
    set_up(&x, 2);
    atomic_store(&x.node->answer, canned_answer);

    assert_int_equal(mr_clock_offset(x.client, NULL, 1, &offset), MR_OK);
    assert_int_equal(offset.peer_clock, CANNED_CLOCK_NAME);
    assert_int_not_equal(offset.own_clock, CANNED_CLOCK_NAME);
    assert_true(offset.error_ns > 0);
    assert_int_in_range((uint64_t)offset.offset_ns, CANNED_CLOCK_AHEAD_NS - offset.error_ns,
                        CANNED_CLOCK_AHEAD_NS + offset.error_ns);
    assert_refused(mr_clock_offset(x.client, NULL, 0, NULL), "out is NULL");
    assert_refused(mr_clock_offset(x.client, NULL, 2, &offset), "core is 2; the node has 2");
    tear_down(&x);
}

/* What the restored node has under a number may be something else. */
TEST(test_features_are_asked_again_after_a_restore)
{
    struct mr_feature feature = mr_feature_table("t", 2);
    struct live_node *node = live_node_start_new(1);
    struct mr_client_options options = {.server = live_node_address(node)};
    struct mr_client *client;
    uint32_t id;
    assert_int_equal(mr_client_create(&options, &client, NULL, 0), MR_OK);
    assert_int_equal(mr_create(client, NULL, &feature, 1, &id), MR_OK);
    assert_int_equal(client->features.count, 1);
    live_node_save(node);
    assert_int_equal(restore_from(client, NULL, NULL, 0, NULL), MR_OK);
    assert_int_equal(client->features.count, 0);
    mr_client_destroy(client);
    live_node_destroy(node);
}

static void expect_mismatch(struct live_node *node, uint64_t requests, enum mr_status status,
                            const char *what)
{
    char says[300];
    assert_int_equal(status, MR_VERSION_MISMATCH);
    (void)snprintf(
        says, sizeof(says),
        "%s, which the server's version (before 0.3.0) lacks and this library's (%s) has: upgrade the "
        "server",
        what, mr_version_text());
    assert_says(mr_last_error(), says);
    assert_int_equal(atomic_load(&node->cores[0].requests), requests);
}

/* What it would take for something else is not sent; what it knows works. */
TEST(test_a_server_of_an_older_version)
{
    struct live_node *node = live_node_new(1);
    node->is_old = true;
    live_node_start(node);
    const struct mr_client_options options = {.server = live_node_address(node)};
    struct mr_client *client;
    struct mr_reply *reply;
    char error[512] = "";
    const uint64_t key = 7;
    const float row[2] = {1, 2};
    uint32_t id;
    if (mr_client_create(&options, &client, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    struct mr_feature f = mr_feature_table("t", 2), dense = f;
    assert_int_equal(mr_create(client, NULL, &f, 1, &id), MR_OK);
    const uint64_t requests = atomic_load(&node->cores[0].requests);
    dense.optimizer_args[MR_OPTIMIZER_ARG_DENSE] = 1;
    struct mr_feature both[2] = {f, dense};
    (void)snprintf(both[1].name, sizeof(both[1].name), "u");
    expect_mismatch(node, requests, mr_create(client, NULL, both, 2, &id), "mr_create: this needs dense");
    expect_mismatch(node, requests, mr_alter(client, NULL, &f, &dense), "mr_alter: this needs dense");
    expect_mismatch(node, requests, mr_set_rows(client, NULL, id, &key, 1, 2, false, row),
                    "mr_set_rows: this needs set_rows");
    expect_mismatch(node, requests, mr_get_rows(client, NULL, id, &key, 1, false, &reply),
                    "mr_get_rows: this needs set_rows");
    assert_int_equal(mr_lookup(client, NULL, id, &key, 1, &reply), MR_OK);
    mr_reply_free(reply);
    mr_client_destroy(client);
    live_node_destroy(node);
}

/* ---- what servers say, for people ---- */

static const char said[] = "\\x1b]0;x\\x07\\x9b";
static uint32_t said_count;

static void check_fact(void *arg, const char *name, const char *value)
{
    assert_string_equal(name, said);
    assert_string_equal(value, said);
    said_count++;
}

static void check_member(void *arg, const struct mr_world_member *member)
{
    assert_string_equal(member->name, said);
    said_count++;
}

static void check_function(void *arg, const char *line)
{
    char both[64];
    snprintf(both, sizeof(both), "%s = %s", said, said);
    assert_string_equal(line, both);
    said_count++;
}

static void check_annotation(void *arg, const struct mr_annotation *annotation)
{
    assert_string_equal(annotation->event, said);
    assert_string_equal(annotation->client, said);
    assert_string_equal(annotation->text, said);
    said_count++;
}

static void check_counter(void *arg, const char *name, uint64_t value)
{
    assert_string_equal(name, said);
    said_count++;
}

static void check_save(void *arg, const struct mr_save_info *save)
{
    assert_string_equal(save->error, said);
    said_count++;
}

static void check_cluster_member(void *arg, const struct mr_cluster_member *node)
{
    assert_string_equal(node->name, said);
    assert_string_equal(node->address, said);
    assert_null(strchr(node->version, '\033'));
    said_count++;
}

static void check_move(void *arg, const struct mr_moving *move)
{
    assert_string_equal(move->from, said);
    assert_string_equal(move->to, said);
    said_count++;
}

TEST(test_what_a_server_says_gives_a_terminal_no_commands)
{
    struct fixture x;
    struct mr_world world;
    struct mr_moves_state moves;
    struct mr_cluster_state cluster;
    struct mr_checkpoint_info status = {.bytes = sizeof(status)};
    struct mr_core_state core;
    struct mr_core_memory memory;
    struct mr_capture_state capture;
    const struct mr_capture_request start = {.kind = MR_REQUEST_CAPTURE_START, .id = 1};
    char versions[128];
    struct mr_feature_info *infos = NULL;
    uint32_t count = 0;
    const struct mr_world_visitor visitor = {.member = check_member, .function = check_function};
    set_up(&x, 1);
    atomic_store(&x.node->answer, hostile_answer);
    said_count = 0;
    assert_int_equal(mr_facts(x.client, NULL, 0, check_fact, NULL), MR_OK);
    assert_int_equal(mr_world(x.client, NULL, &world, &visitor), MR_OK);
    assert_int_equal(mr_annotations(x.client, NULL, 0, 0, NULL, NULL, check_annotation, NULL), MR_OK);
    assert_int_equal(mr_stats(x.client, NULL, 0, check_counter, NULL), MR_OK);
    assert_int_equal(mr_checkpoint_info(x.client, NULL, 0, NULL, check_save, NULL), MR_OK);
    assert_int_equal(mr_cluster(x.client, NULL, &cluster, check_cluster_member, NULL), MR_OK);
    assert_int_equal(mr_moves(x.client, NULL, &moves, check_move, NULL), MR_OK);
    assert_int_equal(said_count, 8);
    assert_int_equal(mr_checkpoint_info(x.client, NULL, 0, &status, NULL, NULL), MR_OK);
    assert_string_equal(status.last_error, said);
    assert_int_equal(mr_capture(x.client, NULL, 0, &start, &capture, NULL, NULL), MR_OK);
    assert_string_equal(capture.machine, said);
    assert_int_equal(mr_heartbeat(x.client, NULL, &core), MR_OK);
    assert_string_equal(core.why, said);
    assert_int_equal(mr_list(x.client, NULL, &infos, &count), MR_OK);
    assert_int_equal(count, 1);
    assert_string_equal(infos[0].feature.name, said);
    free(infos);
    assert_int_equal(mr_memory(x.client, NULL, 0, &memory, NULL, NULL), MR_BAD_MESSAGE);
    snprintf(versions, sizeof(versions), "the server's version is %s, and this library's %s",
             mr_version_text(), mr_version_text());
    if (strstr(mr_last_error(), versions) == NULL)
        fail_msg("%s", mr_last_error());
    assert_int_equal(mr_drop(x.client, NULL, (const char *const[]){"t"}, 1), MR_INVALID_ARGUMENT);
    if (strstr(mr_last_error(), said) == NULL)
        fail_msg("%s", mr_last_error());
    assert_null(strchr(mr_last_error(), '\033'));
    tear_down(&x);
}
