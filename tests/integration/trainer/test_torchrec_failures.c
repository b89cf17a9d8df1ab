/* TorchRec's plug-in when something is wrong: with its configuration, with what is pushed, with the
 * server. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "millrace_admin.h"
#include "tests/checkpoint_calls.h"
#include "tests/integration/trainer/torchrec_fixture.h"
#include "tests/test.h"
#include "tests/wait.h"

static const int64_t ids[] = {1, -2, 3};
static const struct rows rows = {.table = "t", .id_count = 3, .states = 2, .floats = 4, .ids = ids};

/* What was written to stderr since stderr_begin() says so, in one line. */
static void expect_line(const char *says)
{
    const char *text = stderr_end(), *end = strchr(text, '\n');
    if (strstr(text, says) == NULL || end == NULL || end[1] != '\0')
        fail_msg("\"%s\" is not one line that says \"%s\"", text, says);
}

static void torchrec_failures_save(void)
{
    struct mr_client *client = node_fixture_connect(&node);
    enum mr_status saved;
    uint64_t id;
    while ((saved = save_into(client, NULL, NULL, &id)) == MR_CHECKPOINT_RUNNING)
        node_fixture_wait_saved(client); /* the plug-in's own, of tables that it has made */
    assert_int_equal(saved, MR_OK);
    assert_true(node_fixture_wait_saved(client).last_good_id >= id);
    mr_client_destroy(client);
}

/* By the plug-in, when it has made a table. */
static void wait_until_saved(void)
{
    struct mr_client *client = node_fixture_connect(&node);
    struct mr_checkpoint_info status = {.bytes = sizeof(status)};
    WAIT_UNTIL(mr_checkpoint_info(client, NULL, 0, &status, NULL, NULL) != MR_OK ||
               (status.last_good_id != 0 && status.state == MR_CHECKPOINT_IDLE));
    assert_int_not_equal(status.last_good_id, 0);
    mr_client_destroy(client);
}

/* ---- configurations ---- */

TEST(test_bad_configurations, torchrec_setup, torchrec_teardown)
{
    static const struct {
        const char *configuration, *says;
    } cases[] = {
        {"", "millrace://: it must begin with the server"},
        {"10.99.0.1:7700/?servr=1", "\"servr=1\" is no option; there are key_file"},
        {"10.99.0.1:7700/?deadline_ms=0", "deadline_ms=0: must be a whole number from 1"},
        {"10.99.0.1:port", "millrace://10.99.0.1:port: "},
        {"10.99.0.1:7700/?key_file=/nowhere/at/all", "/nowhere/at/all"},
        {"10.99.0.77:7700/?connect_ms=300", "10.99.0.77:7700"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        stderr_begin();
        assert_null(plugin.initialize(cases[i].configuration));
        expect_line(cases[i].says);
    }
    plugin.finalize(NULL);
}

/* ---- what ends the process, by default ---- */

static void quiet_callback(void *context)
{
    (void)context;
}

/* A child that pushes `push` ends by SIGABRT; its stderr says why. */
static void expect_abort(const char *options, bool has_instance, struct tde_push push, const char *says)
{
    stderr_begin();
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        (void)signal(SIGABRT, SIG_DFL);
        void *instance = has_instance ? plugin_instance(&plugin, &node, options) : NULL;
        push.on_pushed = quiet_callback;
        plugin.push(instance, push);
        plugin.finalize(instance);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    expect_line(says);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

TEST(test_errors_end_the_process, torchrec_setup, torchrec_teardown)
{
    static const uint32_t states[] = {0};
    static const uint64_t offsets[] = {0, 3};
    static const float data[] = {1};
    const struct tde_push push = {.table = "t",
                                  .id_count = 1,
                                  .ids = ids,
                                  .state_count = 1,
                                  .states = states,
                                  .offset_count = 2,
                                  .offsets = offsets,
                                  .data = data};
    expect_abort(
        "", true, push,
        "push of table t failed: its blocks are not of f32. Ending the process, as going on would be with");
    expect_abort("", false, push, "push of table t without an instance: IO_Initialize() failed");
}

/* ---- the same, and the program goes on ---- */

struct wrong {
    const char *table;
    uint64_t offsets[5];
    const char *says;
    uint32_t states[2];
    uint32_t offset_count;
};

#define LONG (UINT64_C(1) << 40)

static void on_pushed(void *context)
{
    *(volatile bool *)context = true;
}

TEST(test_pushes_that_are_wrong, torchrec_setup, torchrec_teardown)
{
    static const int64_t two[] = {1, 2};
    static const float data[2048];
    const struct rows good = {.table = "t", .id_count = 2, .states = 2, .floats = 2, .ids = two};
    const struct wrong cases[] = {
        {"t", {0, 8, 16, 24, 32}, "states must be pushed all together", {0, 0}, 5},
        {"t", {0, 8, 16, 24, 32}, "states must be pushed all together", {0, 2}, 5},
        {"t", {0, 8, 16, 24, 32}, "the number of offsets is not", {0, 1}, 4},
        {"t", {0, 8, 16, 24, 28}, "blocks are not all of the same length", {0, 1}, 5},
        {"t", {0, 8, 16, 12, 20}, "blocks are not all of the same length", {0, 1}, 5},
        {"t", {8, 0, 0, 0, 0}, "blocks are not all of the same length", {0, 1}, 5},
        {"t", {0, 6, 12, 18, 24}, "blocks are not of f32", {0, 1}, 5},
        {"t", {0, 0, 0, 0, 0}, "blocks are not of f32", {0, 1}, 5},
        {"t",
         {0, 2048, 4096, 6144, 8192},
         "2 states of 512 floats and 1 beside them are more than the 1024",
         {0, 1},
         5},
        {"t", {0, LONG, 2 * LONG, 3 * LONG, 4 * LONG}, "more than the 1024", {0, 1}, 5},
        {"t", {0, 12, 24, 36, 48}, "its rows have 5 floats, and what is pushed makes rows of 7", {0, 1}, 5},
        {"taken:c0", {0, 8, 16, 24, 32}, "was not made by this plug-in", {0, 1}, 5},
    };
    struct mr_client *client = node_fixture_connect(&node);
    struct mr_feature taken = mr_feature_table("taken:c0", 5);
    uint32_t id;
    void *instance = plugin_instance(&plugin, &node, "on_error=continue");
    assert_int_equal(mr_create(client, NULL, &taken, 1, &id), MR_OK);
    mr_client_destroy(client);
    push_version(&plugin, instance, &good, 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        volatile bool is_over = false;
        void *other = plugin_instance(&plugin, &node, "on_error=continue");
        const struct tde_push push = {.table = cases[i].table,
                                      .id_count = 2,
                                      .ids = two,
                                      .state_count = 2,
                                      .states = cases[i].states,
                                      .offset_count = cases[i].offset_count,
                                      .offsets = cases[i].offsets,
                                      .data = data,
                                      .context = (void *)&is_over,
                                      .on_pushed = on_pushed};
        stderr_begin();
        plugin.push(other, push);
        plugin.finalize(other); /* waits; says how many failed, in a line of its own */
        const char *text = stderr_end();
        if (strstr(text, cases[i].says) == NULL || strstr(text, "1 of 1 pushes failed\n") == NULL)
            fail_msg("\"%s\" does not say \"%s\"", text, cases[i].says);
        assert_true(is_over);
        expect_version(&plugin, instance, &good, 0);
    }
    plugin.finalize(instance);
}

TEST(test_fetches_that_are_wrong, torchrec_setup, torchrec_teardown)
{
    void *instance = plugin_instance(&plugin, &node, "on_error=continue");
    struct rows more = rows;
    more.states = 3;
    push_version(&plugin, instance, &rows, 0);
    stderr_begin();
    expect_absent(&plugin, instance, &more);
    expect_line("fetch of table t failed: id 1 has 2 states, and the fetch asks for 3");
    stderr_begin();
    plugin.finalize(instance);
    expect_line("1 of 1 fetches and 0 of 1 pushes failed");
}

TEST(test_rows_that_are_not_finite, torchrec_setup, torchrec_teardown)
{
    void *instance = plugin_instance(&plugin, &node, "");
    float values[3 * 2 * 4] = {1, 2, 3, 4, 5, 6, 7, 8};
    const struct rows good = {.table = "t", .id_count = 1, .states = 2, .floats = 4, .ids = ids},
                      bad = {.table = "t", .id_count = 1, .states = 2, .floats = 4, .ids = ids + 2};
    struct outcome o;
    values[23] = 0.0f / (float)(values[0] - 1); /* NaN */
    stderr_begin();
    begin_push(&plugin, instance, &rows, values, false, &o);
    outcome_wait(&o);
    outcome_end(&o);
    expect_line("the node left out 1 of the rows pushed to table t, for NaN, Inf or values that their type "
                "cannot hold");
    expect_absent(&plugin, instance, &bad);
    begin_fetch(&plugin, instance, &good, &o);
    outcome_wait(&o);
    assert_memory_equal(o.values, values, 8 * sizeof(*values));
    outcome_end(&o);
    plugin.finalize(instance);
}

/* ---- the node is full ---- */

static int set_up_full(void **state)
{
    static char limit[32];
    static const char *const settings[] = {limit, "batches.memory_mib=16", NULL};
    (void)snprintf(limit, sizeof(limit), "memory.limit_mib=%u", 16 + 64 * cores);
    return torchrec_setup_with(settings);
}

/* Pushes are answered then as ever; a line tells that rows are lost. */
TEST(test_a_node_without_memory, set_up_full, torchrec_teardown)
{
    enum { IDS = 2000, PUSHES = 10 };
    static int64_t many[IDS];
    struct rows r = {.table = "t", .id_count = IDS, .states = 1, .floats = 1023, .ids = many};
    void *instance = plugin_instance(&plugin, &node, "replay=off");

    stderr_begin();
    for (uint32_t turn = 0; turn < PUSHES * cores; turn++) {
        for (uint32_t i = 0; i < IDS; i++)
            many[i] = (int64_t)turn * IDS + i;
        push_version(&plugin, instance, &r, 0);
    }
    struct outcome o;
    begin_fetch(&plugin, instance, &r, &o);
    outcome_wait(&o);
    assert_true(o.absent > 0);
    outcome_end(&o);
    plugin.finalize(instance);
    const char *text = stderr_end(); /* a line, and another if it takes minutes */
    assert_non_null(strstr(text, "of the rows pushed: its memory or a table's limit is used up, or it is "
                                 "frozen. These rows are lost"));
}

/* ---- the server is killed ---- */

/* What was acknowledged is there after a restart: from the checkpoint, or pushed again by the library. */
TEST(test_pushes_survive_the_server, torchrec_setup, torchrec_teardown)
{
    void *instance = plugin_instance(&plugin, &node, "");
    const struct rows other = {.table = "u", .id_count = 3, .states = 1, .floats = 9, .ids = ids};
    push_version(&plugin, instance, &rows, 0);
    push_version(&plugin, instance, &other, 0);
    wait_until_saved();
    torchrec_failures_save();
    push_version(&plugin, instance, &rows, 1);
    node_fixture_kill(&node);
    struct outcome o;
    begin_fetch(&plugin, instance, &rows, &o); /* waits until the server is back */
    node_fixture_restart(&node);
    outcome_wait(&o);
    assert_int_equal(o.absent, 0);
    assert_true(o.values[0] == value_of(ids[0], -1, 0, 0, 1));
    outcome_end(&o);
    expect_version(&plugin, instance, &rows, 1);
    expect_version(&plugin, instance, &other, 0);
    node_fixture_kill(&node);
    float values[3 * 2 * 4] = {0};
    begin_push(&plugin, instance, &rows, values, false, &o);
    node_fixture_restart(&node);
    outcome_wait(&o);
    outcome_end(&o);
    begin_fetch(&plugin, instance, &rows, &o);
    outcome_wait(&o);
    assert_memory_equal(o.values, values, sizeof(values));
    outcome_end(&o);
    plugin.finalize(instance);
}

/* It comes back with nothing: a line says so, tables are made again, and none is taken for another. */
TEST(test_a_server_that_forgot_all, torchrec_setup, torchrec_teardown)
{
    static const int64_t both[] = {0, 1};
    struct rows first = rows, second = {.table = "u", .id_count = 3, .states = 2, .floats = 4, .ids = ids};
    void *instance = plugin_instance(&plugin, &node, "replay=off");
    first.column_count = 2;
    first.columns = both;
    push_version(&plugin, instance, &first, 0);
    push_version(&plugin, instance, &second, 1);
    node_fixture_kill(&node);
    node_fixture_restart(&node);
    stderr_begin();
    expect_absent(&plugin, instance, &second);
    expect_line("the server has lost table u: it restarted");
    push_version(&plugin, instance, &second, 2);
    expect_version(&plugin, instance, &second, 2);
    stderr_begin();
    push_version(&plugin, instance, &first, 3);
    const char *text = stderr_end();
    assert_non_null(strstr(text, "the server has lost table t:c0"));
    assert_non_null(strstr(text, "the server has lost table t:c1"));
    expect_version(&plugin, instance, &first, 3);
    expect_version(&plugin, instance, &second, 2);
    plugin.finalize(instance);
}

/* The same instance pushes and fetches again. Its deadlines are short: it may take some calls of both. */
static void expect_comes_back(void *instance)
{
    struct rows again = rows;
    struct outcome o;
    uint32_t absent = 1;
    again.table = "again";
    for (uint32_t i = 0; i < 60 && absent > 0; i++) {
        push_version(&plugin, instance, &again, 1);
        begin_fetch(&plugin, instance, &again, &o);
        outcome_wait(&o);
        absent = o.absent;
        if (absent == 0)
            assert_true(o.values[0] == value_of(ids[0], -1, 0, 0, 1));
        outcome_end(&o);
    }
    assert_int_equal(absent, 0);
}

/* By its deadline every call is over, and with it those that waited after it. */
TEST(test_a_server_that_stays_away, torchrec_setup, torchrec_teardown)
{
    void *instance = plugin_instance(&plugin, &node, "deadline_ms=700&on_error=continue");
    static const float values[3 * 2 * 4];
    struct outcome o[4];
    push_version(&plugin, instance, &rows, 0);
    node_fixture_kill(&node);
    stderr_begin();
    for (uint32_t i = 0; i < 4; i++)
        if (i % 2 == 0)
            begin_fetch(&plugin, instance, &rows, &o[i]);
        else
            begin_push(&plugin, instance, &rows, values, false, &o[i]);
    for (uint32_t i = 0; i < 4; i++) {
        outcome_wait(&o[i]);
        assert_int_equal(o[i].absent, i % 2 == 0 ? 6 : 0);
        outcome_end(&o[i]);
    }
    const char *text = stderr_end();
    assert_non_null(strstr(text, "fetch of table t failed: "));
    assert_non_null(strstr(text, "push of table t failed: "));
    assert_non_null(strstr(text, "Going on, as on_error=continue says"));
    node_fixture_restart(&node);
    expect_comes_back(instance);
    plugin.finalize(instance);
}

int main(int argc, char **argv)
{
    if (!torchrec_arguments(argc, argv))
        return 2;
    return tests_run(NULL, NULL);
}
