/* The millrace program against a running node: what it says in text and in JSON is what the node says through
 * the library. */
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "millrace_admin.h"
#include "tests/integration/node_fixture.h"
#include "tests/integration/program.h"
#include "tests/test.h"

enum { CORES = 2, KEYS = 300, DIM = 8, WAIT_TRIES = 20 };

static const char *millrace;

struct fixture {
    struct node_fixture node;
    struct mr_client *client;
    struct program_result result;
};

static int set_up(void **state)
{
    static struct fixture x;
    node_fixture_start(&x.node, CORES, NULL);
    x.client = node_fixture_connect(&x.node);
    *state = &x;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *x = *state;
    mr_client_destroy(x->client);
    node_fixture_stop(&x->node);
    return 0;
}

static void tools_run(struct fixture *x, const char *arguments)
{
    program_run(&x->node.net, NETNS_CLIENT, &x->result, "%s %s --server %s", millrace, arguments,
                x->node.address);
}

/* It ends well and prints one JSON value, alone on one line. */
static json_t *run_json(struct fixture *x, const char *arguments)
{
    char with_json[256];
    json_error_t error;
    snprintf(with_json, sizeof(with_json), "%s --json", arguments);
    tools_run(x, with_json);
    program_expect(&x->result, 0, "");

    json_t *value = json_loads(x->result.out, 0, &error);

    if (value == NULL)
        fail_msg("%s: %s", error.text, x->result.out);
    return value;
}

static void expect_text(struct fixture *x, const char *arguments, const char *says)
{
    tools_run(x, arguments);
    program_expect(&x->result, 0, "");
    if (strstr(x->result.out, says) == NULL)
        fail_msg("\"%s\" is not in:\n%s", says, x->result.out);
}

static void expect_refused(struct fixture *x, const char *arguments, int code, const char *says)
{
    tools_run(x, arguments);
    program_expect(&x->result, code, says);
    assert_ptr_equal(strchr(x->result.err, '\n'), x->result.err + strlen(x->result.err) - 1); /* one line */
}

static uint64_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value))
        fail_msg("no number \"%s\"", key);
    return (uint64_t)json_integer_value(value);
}

static const char *text(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value))
        fail_msg("no text \"%s\"", key);
    return json_string_value(value);
}

static uint32_t only_feature(struct fixture *x, struct mr_feature *feature)
{
    struct mr_feature_info *infos;
    uint32_t count, id;
    assert_int_equal(mr_list(x->client, NULL, &infos, &count), MR_OK);
    assert_int_equal(count, 1);
    *feature = infos[0].feature;
    id = infos[0].id;
    free(infos);
    return id;
}

/* ---- ctl create, list ---- */

#define CREATE                                                                                               \
    "ctl create table user --dim 8 --optimizer adagrad --learning-rate 0.125 --optimizer-args 0.5,0.25 "     \
    "--init uniform --init-a -0.5 --init-b 0.5 --seed 9 --weight-decay 0.0625"

#define CREATE_ADAM                                                                                          \
    "ctl create table user --dim 8 --optimizer adam --learning-rate 0.125 --init uniform --init-a -0.5 "     \
    "--init-b 0.5 --seed 9 --weight-decay 0.0625"
/* As ctl list has them */
#define OPTIONS                                                                                              \
    "--init uniform --init-a -0.5 --init-b 0.5 --seed 9 --optimizer adagrad --optimizer-args 0.5,0.25 "      \
    "--learning-rate 0.125 --weight-decay 0.0625"

TEST(test_create, set_up, tear_down)
{
    struct fixture *x = *state;
    struct mr_feature expected = mr_feature_table("user", DIM), found;
    json_t *created = run_json(x, CREATE);
    uint32_t id = only_feature(x, &found);
    expected.optimizer = MR_OPT_ADAGRAD;
    expected.learning_rate = 0.125f;
    expected.optimizer_args[0] = 0.5f;
    expected.optimizer_args[1] = 0.25f;
    expected.initializer = MR_INIT_UNIFORM;
    expected.init_a = -0.5f;
    expected.init_b = 0.5f;
    expected.seed = 9;
    expected.weight_decay = 0.0625f;
    assert_null(mr_feature_diff(&expected, &found));
    assert_int_equal(number(created, "id"), id);
    assert_string_equal(text(created, "name"), "user");
    json_decref(created);
    expect_text(x, CREATE, "user is table"); /* the same again */
    expect_refused(x, CREATE " --clip-norm 1", 1, "clip_norm");
    expect_refused(x, "ctl create variable other --shape 8 --dtype f16", 1, "dtype");
    expect_refused(x, "ctl create table other --dim 8 --optimizer ftrl --optimizer-args 0,0", 2, "of ftrl");
    expect_refused(x, "ctl create table other", 2, "--dim");
    assert_int_equal(only_feature(x, &found), id);
}

TEST(test_list, set_up, tear_down)
{
    struct fixture *x = *state;
    struct mr_feature found;
    uint64_t keys[KEYS];
    tools_run(x, CREATE);
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = i;
    assert_int_equal(mr_lookup(x->client, NULL, only_feature(x, &found), keys, KEYS, NULL), MR_OK);

    json_t *list = run_json(x, "ctl list");
    const json_t *user = json_array_get(list, 0);

    assert_int_equal(json_array_size(list), 1);
    assert_string_equal(text(user, "name"), "user");
    assert_string_equal(text(user, "kind"), "table");
    assert_string_equal(text(user, "optimizer"), "adagrad");
    assert_string_equal(text(user, "init"), "uniform");
    assert_int_equal(number(user, "rows"), KEYS);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(user, "dims"), 0)), DIM);
    assert_true(json_real_value(json_array_get(json_object_get(user, "optimizer_args"), 1)) == 0.25);
    assert_true(json_real_value(json_object_get(user, "weight_decay")) == 0.0625);
    assert_string_equal(text(user, "schedule"), "constant");
    assert_string_equal(text(user, "eviction"), "never");
    assert_string_equal(text(user, "options"), OPTIONS);
    json_decref(list);
    expect_text(x, "ctl list", "user ");
    expect_text(x, "ctl list", "  " OPTIONS "\n");
}

/* ---- ctl freeze, drop ---- */

TEST(test_freeze_and_drop, set_up, tear_down)
{
    struct fixture *x = *state;
    struct mr_feature found;
    float gradient[DIM] = {1};
    uint64_t key = 1;
    tools_run(x, CREATE);

    uint32_t id = only_feature(x, &found);
    json_t *frozen = run_json(x, "ctl freeze all");

    assert_string_equal(text(frozen, "level"), "all");
    json_decref(frozen);
    assert_int_equal(mr_push_gradients(x->client, NULL, id, &key, 1, DIM, gradient), MR_FROZEN);
    expect_text(x, "ctl freeze off", "off");
    assert_int_equal(mr_push_gradients(x->client, NULL, id, &key, 1, DIM, gradient), MR_OK);
    expect_refused(x, "ctl freeze some", 2, "off, admit or all");
    expect_text(x, "ctl annotate 'epoch 3'", "annotated: epoch 3");
    expect_refused(x, "ctl annotate ''", 1, "text is empty");
    expect_text(x, "ctl alter user --learning-rate 0.5 --capacity-rows 100", "--learning-rate 0.5");
    assert_int_equal(only_feature(x, &found), id);
    assert_true(found.learning_rate == 0.5f && found.capacity_rows == 100 && found.seed == 9);
    expect_text(x, CREATE, "user is table"); /* as it was made */
    expect_refused(x, "ctl alter user --dim 5", 1, "dim cannot be altered");
    expect_refused(x, "ctl alter user --optimizer adam", 1, "optimizer cannot be altered");
    expect_refused(x, "ctl alter user --clip-norm -1", 2, "--clip-norm must be");
    expect_refused(x, "ctl alter nobody --clip-norm 1", 1, "no table or variable named nobody");
    expect_refused(x, "ctl drop nobody", 1, "no table, variable or parameter named nobody");
    expect_text(x, "ctl drop user", "dropped: 1");
    expect_refused(x, "ctl drop user", 1, "no table, variable or parameter named user");
}

/* ---- ctl save, restore, status ---- */

static void note_newest(void *arg, const struct mr_save_info *save)
{
    uint64_t *number = arg;
    *number = save->number > *number ? save->number : *number;
}

static uint64_t newest_save(struct fixture *x)
{
    uint64_t number = 0;
    assert_int_equal(mr_checkpoint_info(x->client, NULL, 0, NULL, note_newest, &number), MR_OK);
    return number;
}

/* Waits for a save that continues beyond its deadline, as no trainer comes, and returns its number; again if
 * the node was silent when it was looked at. */
static uint64_t wait_in_vain(struct fixture *x, const char *arguments)
{
    uint64_t before = newest_save(x);
    for (uint32_t tries = 1;; tries++) {
        tools_run(x, arguments);
        uint64_t number = newest_save(x);

        if (x->result.code != 1 || tries == WAIT_TRIES)
            return number;
        if (number != before)
            assert_int_equal(mr_checkpoint_cancel(x->client, NULL, number), MR_OK);
        before = number;
    }
}

static void take_state(void *arg, const struct mr_save_info *save)
{
    if (save->state == MR_SAVE_WAITS_FOR_STEP)
        *(bool *)arg = true;
}

/* Stops the server once a save waits for its step. */
static void *stop_server(void *arg)
{
    struct fixture *x = arg;
    struct mr_checkpoint_info info = {.bytes = sizeof(info)};
    for (bool waits = false; !waits;)
        assert_int_equal(mr_checkpoint_info(x->client, NULL, 0, &info, take_state, &waits), MR_OK);
    netns_suspend(x->node.server.pid);
    return NULL;
}

/* A server that is silent when the deadline comes: the save may go on, which the exit code says. */
static void check_silence(struct fixture *x)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, stop_server, x), 0);
    tools_run(x, "ctl save --step 9 --trainers 2 --wait --deadline-ms 1500");
    assert_int_equal(pthread_join(thread, NULL), 0);
    netns_resume(x->node.server.pid);
    program_expect(&x->result, 3, "the deadline has passed");
    char cancel[64];
    snprintf(cancel, sizeof(cancel), "ctl save --cancel %llu", (unsigned long long)newest_save(x));
    expect_text(x, cancel, "was cancelled");
}

static void check_waits_end(struct fixture *x)
{
    char says[256], cancel[2][64];
    uint64_t number = wait_in_vain(x, "ctl save --step 7 --trainers 2 --wait --deadline-ms 1500");
    snprintf(
        says, sizeof(says),
        "save %llu is still running: it waits for step 7, where 0 of 2 trainers are; training is at step 0; "
        "millrace ctl checkpoints shows it, millrace ctl save --cancel %llu cancels it",
        (unsigned long long)number, (unsigned long long)number);
    program_expect(&x->result, 3, says);
    snprintf(cancel[0], sizeof(cancel[0]), "ctl save --cancel %llu", (unsigned long long)number);
    number = wait_in_vain(x, "ctl save --step 8 --trainers 2 --queue --wait --deadline-ms 1500 --json");
    snprintf(says, sizeof(says), "save %llu is still running: it waits for another save",
             (unsigned long long)number);
    program_expect(&x->result, 3, says);
    assert_non_null(strstr(x->result.out, "\"state\": \"queued\""));
    snprintf(cancel[1], sizeof(cancel[1]), "ctl save --cancel %llu", (unsigned long long)number);
    for (uint32_t i = 0; i < 2; i++)
        expect_text(x, cancel[i], "was cancelled");
}

TEST(test_checkpoints, set_up, tear_down)
{
    struct fixture *x = *state;
    struct mr_feature found;
    uint64_t keys[KEYS];
    json_t *status;
    tools_run(x, CREATE);
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = i;

    uint32_t id = only_feature(x, &found);

    assert_int_equal(mr_lookup(x->client, NULL, id, keys, KEYS / 2, NULL), MR_OK);
    status = run_json(x, "ctl save --wait --full");
    assert_int_equal(number(status, "id"), 1);
    assert_int_equal(number(status, "number"), 1);
    assert_string_equal(text(status, "kind"), "full");
    assert_string_equal(text(status, "state"), "ended");
    assert_true(number(status, "bytes") > 0);
    json_decref(status);
    assert_int_equal(mr_lookup(x->client, NULL, id, keys, KEYS, NULL), MR_OK);
    expect_text(x, "ctl save --wait", "saved checkpoint 2");
    assert_int_equal(node_fixture_sum(x->client, "table.rows"), KEYS);
    status = run_json(x, "ctl restore --id 1");
    assert_int_equal(number(status, "id"), 1);
    assert_int_equal(number(status, "tables"), 1);
    assert_int_equal(number(status, "variables"), 0);
    assert_int_equal(number(status, "step"), 0);
    json_decref(status);
    assert_int_equal(node_fixture_sum(x->client, "table.rows"), KEYS / 2);
    /* A restored table is what the checkpoint says, its optimizer included. */
    expect_text(x, CREATE, "user is table");
    expect_refused(x, CREATE_ADAM, 1, "user exists with optimizer adagrad, not adam");
    expect_text(x, "ctl restore", "restored checkpoint 2: 1 table, 0 variables");
    assert_int_equal(node_fixture_sum(x->client, "table.rows"), KEYS);
    status = run_json(x, "ctl status");
    assert_string_equal(text(status, "state"), "idle");
    assert_int_equal(number(status, "last_good_id"), 2);
    json_decref(status);
    expect_text(x, "ctl restore --id 1 --table user:user_old",
                "restored 1 table, 0 variables out of checkpoint 1");
    expect_text(x, "ctl list", "user_old");
    assert_int_equal(node_fixture_sum(x->client, "table.rows"), KEYS + KEYS / 2);
    expect_refused(x, "ctl restore --id 1 --table user", 1, "user is there already");
    expect_text(x, "ctl restore --id 1 --table user --replace", "restored 1 table, 0 variables out of");
    assert_int_equal(node_fixture_sum(x->client, "table.rows"), KEYS / 2 + KEYS / 2);
    expect_refused(x, "ctl restore --table nothing", 1, "no table, variable or parameter named nothing");
    expect_refused(x, "ctl restore --table user:", 2, "expected NAME or NAME:NEW");
    expect_refused(x, "ctl restore --replace", 2, "--replace is for --table");
    expect_refused(x, "ctl save --delta", 1, "no delta is possible now: checkpoint.deltas is 0");
    expect_refused(x, "ctl save --delta --full", 2, "not both");
    expect_refused(x, "ctl save --step 5", 1, "how many trainers");
    expect_text(x, "ctl save --step 5 --trainers 2", "save 4 waits for step 5");
    expect_refused(x, "ctl save --step 5 --trainers 2", 1, "waits for a step already");
    expect_text(x, "ctl save --step 6 --trainers 2 --queue", "save 5 waits for another one");
    expect_text(x, "ctl checkpoints", "a cut waits for step 5: 0 of 2 trainers are there");
    status = run_json(x, "ctl checkpoints");
    assert_int_equal(number(status, "restored_id"), 2);
    assert_int_equal(number(status, "queued"), 1);
    assert_int_equal(number(status, "waiting_step"), 5);
    assert_int_equal(json_array_size(json_object_get(status, "saves")), 5);
    assert_string_equal(text(json_array_get(json_object_get(status, "saves"), 3), "state"), "waits for step");
    json_decref(status);
    expect_text(x, "ctl status", "queued     1\na cut waits for step 5: 0 of 2 trainers are there");
    expect_text(x, "top --count 1 --interval 0.05",
                "1 save queued; a cut waits for step 5, where 0 of 2 trainers are");
    status = run_json(x, "top --count 1 --interval 0.05");
    assert_int_equal(number(json_object_get(json_array_get(status, 0), "checkpoint"), "queued"), 1);
    json_decref(status);
    expect_text(x, "ctl save --cancel 5", "save 5 was cancelled");
    status = run_json(x, "ctl save --cancel 4");
    assert_int_equal(number(status, "number"), 4);
    assert_string_equal(text(status, "state"), "cancelled");
    json_decref(status);
    expect_text(x, "ctl checkpoints", "cancelled: it was cancelled by a call");
    expect_refused(x, "ctl save --cancel 4", 1, "save 4 has ended already, without a checkpoint");
    expect_refused(x, "ctl save --cancel 1", 1, "save 1 has ended already: it is checkpoint 1");
    expect_refused(x, "ctl save --cancel 9", 1, "save 9 is not known");
    expect_refused(x, "ctl save --cancel 4 --wait", 2, "--cancel cancels a save, and starts none");
    check_waits_end(x);
    check_silence(x);
    expect_text(x, "ctl save --table user_old --wait", "saved checkpoint 1: partial, ");
    expect_text(x, "ctl checkpoints", "partial");
    expect_refused(x, "ctl save --wait-remote", 1,
                   "is on the server's disk, but is not copied: set checkpoint.remote");
    expect_refused(x, "ctl save --table nobody", 1, "no table, variable or parameter named nobody");
    expect_refused(x, "ctl save --table user --delta", 1, "never a delta");
    expect_refused(x, "ctl restore --id 99", 1, "99");
    expect_refused(x, "ctl save --directory /proc/nowhere", 1, "/proc/nowhere");
    expect_refused(x, "ctl restore --id many", 2, "--id");
}

/* ---- ctl heartbeat, stats; top ---- */

TEST(test_heartbeat, set_up, tear_down)
{
    struct fixture *x = *state;
    json_t *cores = run_json(x, "ctl heartbeat");
    assert_int_equal(json_array_size(cores), CORES);
    for (uint32_t i = 0; i < CORES; i++) {
        const json_t *core = json_array_get(cores, i);
        assert_int_equal(number(core, "core"), i);
        assert_string_equal(text(core, "state"), "serving");
        assert_int_equal(number(core, "incarnation"), mr_client_incarnation(x->client));
        assert_int_equal(number(core, "rows"), 0);
    }
    json_decref(cores);
    expect_text(x, "ctl heartbeat", "serving");
}

TEST(test_stats, set_up, tear_down)
{
    struct fixture *x = *state;
    uint64_t features, keys[KEYS];
    struct mr_feature found;
    tools_run(x, CREATE);
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = i;
    assert_int_equal(mr_lookup(x->client, NULL, only_feature(x, &found), keys, KEYS, NULL), MR_OK);

    json_t *cores = run_json(x, "ctl stats");
    uint64_t looked_up = 0;

    assert_int_equal(json_array_size(cores), CORES);
    for (uint32_t i = 0; i < CORES; i++) {
        const json_t *counters = json_object_get(json_array_get(cores, i), "counters");
        looked_up += number(counters, "table.keys_looked_up");
        features = number(counters, "ps.features");
        assert_int_equal(features, 1);
        assert_true(number(counters, "port.rx_frames") + number(counters, "port.steered_in") > 0);
        assert_true(number(counters, "wire.calls_served") > 0);
    }
    assert_int_equal(looked_up, KEYS);
    json_decref(cores);
    json_t *memory = run_json(x, "ctl memory");
    const json_t *table = json_array_get(json_object_get(memory, "tables"), 0);

    assert_int_equal(number(table, "rows"), KEYS);
    assert_int_equal(number(table, "bytes"), number(table, "index_bytes") + number(table, "values_bytes") +
                                                 number(table, "state_bytes") + number(table, "slack_bytes"));
    assert_true(number(memory, "mapped_bytes") <= number(memory, "limit_bytes"));
    json_decref(memory);
    expect_text(x, "ctl memory --core 1", "of tables and variables");

    const uint64_t plan[3] = {1, 2, 3};
    const struct mr_options planned = {.plan = plan};
    uint64_t watermark, *bitmap;
    uint32_t words;

    assert_int_equal(mr_batch_state(x->client, &planned, 77, &watermark, &bitmap, &words), MR_OK);
    free(bitmap);
    json_t *streams = run_json(x, "ctl streams");

    assert_int_equal(json_array_size(streams), 1);
    assert_int_equal(number(json_array_get(streams, 0), "stream"), 77);
    assert_string_equal(text(json_array_get(streams, 0), "plan"),
                        "000000000000000100000000000000020000000000000003");
    json_decref(streams);
    expect_text(x, "ctl forget-stream 77 78", "forgotten: 2");
    streams = run_json(x, "ctl streams");
    assert_int_equal(json_array_size(streams), 0);
    json_decref(streams);
    cores = run_json(x, "ctl stats --core 1");
    assert_int_equal(json_array_size(cores), 1);
    assert_int_equal(number(json_array_get(cores, 0), "core"), 1);
    json_decref(cores);
    expect_text(x, "ctl stats", "wire.calls_served");
    expect_refused(x, "ctl stats --core 2", 1, "2 cores");
}

static uint32_t lines_with(const char *all, const char *says)
{
    uint32_t lines = 0;
    for (const char *at = all; (at = strstr(at, says)) != NULL; at++)
        lines++;
    return lines;
}

/* A server that is started again is found again, also by who reads a pipe. */
TEST(test_top_waits, set_up, tear_down)
{
    struct fixture *x = *state;
    struct netns_process top;
    char command[256];
    char *argv[] = {"/bin/sh", "-c", command, NULL};
    snprintf(command, sizeof(command), "exec %s top --interval 0.05 --deadline-ms 5000 --server %s 2>&1",
             millrace, x->node.address);
    netns_spawn(&x->node.net, NETNS_CLIENT, argv, &top);
    assert_true(netns_wait_line(&top, "calls", NODE_READY_MS));
    node_fixture_kill(&x->node);
    assert_true(netns_wait_line(&top, "waiting for it to come back", NODE_READY_MS));
    netns_leave(&x->node.net);
    node_fixture_restart(&x->node);
    netns_enter(&x->node.net, NETNS_CLIENT);
    assert_true(netns_wait_line(&top, "the server is back", NODE_READY_MS));
    assert_true(netns_wait_line(&top, "calls", NODE_READY_MS));
    assert_int_equal(netns_end(&top, SIGTERM), 0);
}

TEST(test_top, set_up, tear_down)
{
    struct fixture *x = *state;
    json_t *cores = run_json(x, "top --count 1 --interval 0.05");
    assert_int_equal(json_array_size(cores), CORES);
    for (uint32_t i = 0; i < CORES; i++) {
        const json_t *core = json_array_get(cores, i);
        double busy_share = json_number_value(json_object_get(core, "busy_share"));
        assert_int_equal(number(core, "core"), i);
        assert_string_equal(text(core, "state"), "serving");
        assert_true(busy_share >= 0 && busy_share <= 1);
        assert_true(json_number_value(json_object_get(core, "calls_per_s")) > 0); /* its own */
    }
    json_decref(cores);
    /* No terminal: no escape sequences, a block per interval. */
    expect_text(x, "top --count 3 --interval 0.05", "calls");
    assert_int_equal(lines_with(x->result.out, "serving"), 3 * CORES);
    assert_null(strchr(x->result.out, '\033'));
}

/* ---- doctor ---- */

TEST(test_doctor, set_up, tear_down)
{
    static const char *const checks[] = {"hugepages", "numa",        "cores",   "nic",
                                         "io_uring",  "memory lock", "rmem_max"};
    struct fixture *x = *state;
    json_error_t error;
    program_run(&x->node.net, NETNS_CLIENT, &x->result, "%s doctor --json", millrace);

    json_t *findings = json_loads(x->result.out, 0, &error);
    size_t i, problems = 0;
    json_t *finding;

    assert_non_null(findings);
    for (size_t c = 0; c < sizeof(checks) / sizeof(*checks); c++) {
        bool found = false;
        json_array_foreach(findings, i, finding) found |= strcmp(text(finding, "check"), checks[c]) == 0;
        if (!found)
            fail_msg("doctor does not look at %s:\n%s", checks[c], x->result.out);
    }
    json_array_foreach(findings, i, finding)
    {
        bool good = strcmp(text(finding, "level"), "ok") == 0;

        problems += strcmp(text(finding, "level"), "problem") == 0;
        assert_true(strlen(text(finding, "what")) > 0);
        assert_true(good || strlen(text(finding, "mend")) > 0);
    }
    json_decref(findings);
    assert_int_equal(x->result.code, problems > 0);
    program_run(&x->node.net, NETNS_CLIENT, &x->result, "%s doctor --server %s", millrace, x->node.address);
    assert_int_equal(x->result.code, problems > 0);
    assert_non_null(strstr(x->result.out, CORES > 1 ? ": rings; " : ": one core; "));
    program_run(&x->node.net, NETNS_CLIENT, &x->result, "%s doctor --server " NETNS_SERVER_IPV4 ":9",
                millrace);
    assert_int_equal(x->result.code, 1);
    program_run(&x->node.net, NETNS_CLIENT, &x->result, "%s doctor --log %s", millrace, x->node.checkpoints);
    assert_non_null(strstr(x->result.out, "a flush takes "));
    program_run(&x->node.net, NETNS_CLIENT, &x->result, "%s doctor --log /no/such/directory", millrace);
    assert_int_equal(x->result.code, 1);
    assert_non_null(
        strstr(x->result.out, "/no/such/directory: cannot be written: No such file or directory"));
    program_run(&x->node.net, NETNS_CLIENT, &x->result, "%s doctor", millrace);
    assert_int_equal(x->result.code, problems > 0);
    assert_non_null(strstr(x->result.out, problems == 1 ? " problem\n" : " problems\n"));
}

/* ---- mistakes ---- */

TEST(test_mistakes, set_up, tear_down)
{
    struct fixture *x = *state;
    expect_refused(x, "ctl frobnicate", 2, "no command frobnicate; see millrace ctl --help");
    expect_refused(x, "ctl list --jsno", 2, "unknown option --jsno");
    expect_refused(x, "ctl list more", 2, "unexpected argument");
    program_run(&x->node.net, NETNS_CLIENT, &x->result,
                "%s ctl list --server " NETNS_SERVER_IPV4 ":7799 --deadline-ms 300", millrace);
    program_expect(&x->result, 1, NETNS_SERVER_IPV4 ":7799");
    program_run(&x->node.net, NETNS_CLIENT, &x->result,
                "%s ctl list --server " NETNS_SERVER_IPV4 " --key-file /nowhere/key", millrace);
    program_expect(&x->result, 1, "/nowhere/key");
    program_run(&x->node.net, NETNS_CLIENT, &x->result, "sh -c '%s ctl stats --server %s >/dev/full'",
                millrace, x->node.address);
    assert_int_not_equal(x->result.code, 0); /* what cannot be written is no success */
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: test_tools MILLRACED MILLRACE\n");
        return 2;
    }
    node_fixture_server = argv[1];
    millrace = argv[2];
    netns_require_root();
    return tests_run(NULL, NULL);
}
