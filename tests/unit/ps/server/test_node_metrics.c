/* The metrics of a node on the fake data plane. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/wire_counters.h"
#include "fake_dp.h"
#include "node_fixture.h"
#include "ps/control/control.h"
#include "ps/core/core.h"
#include "ps/server/metric_sets.h"
#include "ps/server/node_counters.h"
#include "ps/server/node_metrics.h"
#include "tests/test.h"

#define TABLES 70u /* more than a core is first asked for */

static struct ps_node_metrics *metrics;
static struct mr_metrics_text text;

static struct ps_node *node_of(void)
{
    return ((const struct ps_core *)fake_dp_app(0))->node;
}

static int set_up(void **state)
{
    char error[DP_ERROR_BYTES] = "";
    node_setup_3_cores(state);
    struct node_fixture *n = *state;
    snprintf(n->config.metrics_listen, sizeof(n->config.metrics_listen), "127.0.0.1:0");
    node_pass_config_on(n);
    if (ps_node_metrics_start(node_of(), &metrics, error) != MR_OK)
        fail_msg("%s", error);
    return 0;
}

static int tear_down(void **state)
{
    ps_node_metrics_stop(metrics);
    node_teardown(state);
    ps_node_metrics_destroy(metrics);
    free(text.data);
    text = (struct mr_metrics_text){.data = NULL};
    metrics = NULL;
    return 0;
}

static void write_text(void)
{
    free(text.data);
    text = (struct mr_metrics_text){.open_metrics = true};
    ps_node_metrics_write(metrics, &text);
    assert_true(mr_metrics_end(&text));
}

static bool core_responds(uint32_t core)
{
    char line[96];
    snprintf(line, sizeof(line), "\nmillrace_core_responding{node=\"millrace\",core=\"%u\"} 1\n", core);
    return strstr(text.data, line) != NULL;
}

/* Once all cores have answered in time, on a machine that may have something else to do. */
static void write_whole_text(void)
{
    do {
        write_text();
    } while (!core_responds(0) || !core_responds(1) || !core_responds(2));
}

static void expect(const char *line)
{
    char with_ends[256];
    snprintf(with_ends, sizeof(with_ends), "\n%s\n", line);
    if (strstr(text.data, with_ends) == NULL)
        fail_msg("there is no line %s in\n%s", line, text.data);
}

static bool has_family(const char *name)
{
    char line[MR_METRIC_NAME_BYTES + 16];
    snprintf(line, sizeof(line), "\n# TYPE %s ", name);
    return strstr(text.data, line) != NULL;
}

static void expect_set(const struct mr_counter_set *set)
{
    for (uint32_t i = 0; i < set->count; i++) {
        char name[MR_METRIC_NAME_BYTES];
        mr_metric_name(set, &set->counters[i], name);
        if (!has_family(name))
            fail_msg("%s.%s is not there, as %s", set->name, set->counters[i].name, name);
    }
}

TEST(every_counter_is_there, set_up, tear_down)
{
    struct node_fixture *n = *state;
    struct mr_feature table = node_table("emb", 0), variable = node_variable("bias", 8);
    node_create(n, &table);
    node_create(n, &variable);
    write_whole_text();
    const struct mr_counter_set *const sets[] = {
        &ps_core_counter_set,   &ps_table_counter_set,  &ps_checkpoint_counter_set, &ps_scrubber_counter_set,
        &ps_copier_counter_set, &ps_node_metric_set,    &ps_core_metric_set,        &ps_core_memory_set,
        &ps_table_memory_set,   &ps_variable_metric_set};
    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++)
        expect_set(sets[i]);
    assert_false(has_family("millrace_cluster_lease_seconds")); /* it is no member */
    assert_non_null(
        strstr(text.data, "\nmillrace_build_info{node=\"millrace\",version=\"" MR_VERSION "\"} 1\n"));
    assert_string_equal(text.data + text.bytes - 6, "# EOF\n");
}

TEST(cores_and_tables_have_their_values, set_up, tear_down)
{
    struct node_fixture *n = *state;
    struct mr_feature f = node_table("ads/emb", 0);
    uint32_t table = node_create(n, &f);
    const uint64_t keys[6] = {1, 2, 3, 4, 5, 6};
    char line[128];
    node_feed(n, 41, table, keys, 6);
    for (uint32_t core = 0; core < 3; core++)
        node_push_batch(n, core, 41, table, 6, 1);
    write_whole_text();
    expect("millrace_table_rows{node=\"millrace\",table=\"ads/emb\"} 6");
    expect("millrace_table_updates_total{node=\"millrace\",table=\"ads/emb\"} 6");
    snprintf(line, sizeof(line), "millrace_table_values_bytes{node=\"millrace\",table=\"ads/emb\"} %zu",
             6 * NODE_DIM * sizeof(float));
    expect(line);
    for (uint32_t core = 0; core < 3; core++) {
        snprintf(line, sizeof(line), "millrace_ps_last_step{node=\"millrace\",core=\"%u\"} 42", core);
        expect(line);
        snprintf(line, sizeof(line), "millrace_core_responding{node=\"millrace\",core=\"%u\"} 1", core);
        expect(line);
        snprintf(line, sizeof(line), "millrace_core_memory_limit_bytes{node=\"millrace\",core=\"%u\"} %zu",
                 core, ps_arena_limit_bytes(((const struct ps_core *)fake_dp_app(core))->arena));
        expect(line);
    }
    expect("millrace_node_state{node=\"millrace\",state=\"serving\"} 1");
    expect("millrace_node_state{node=\"millrace\",state=\"saving\"} 0");
    expect("millrace_checkpoint_last_good_timestamp_seconds{node=\"millrace\"} 0");
    node_save(n);
    write_whole_text();
    const char *saved =
        strstr(text.data, "\nmillrace_checkpoint_last_good_timestamp_seconds{node=\"millrace\"} ");
    assert_non_null(saved);
    assert_true(strtoull(strchr(saved, ' ') + 1, NULL, 10) > 1600000000);
}

/* A series of a table that is gone is gone, too: sums over what there is would fall. */
TEST(a_dropped_table_has_no_metrics, set_up, tear_down)
{
    struct node_fixture *n = *state;
    struct mr_feature f = node_table("emb", 0);
    node_create(n, &f);
    write_whole_text();
    assert_true(has_family("millrace_table_rows"));
    node_drop(n, "emb");
    write_whole_text();
    assert_false(has_family("millrace_table_rows"));
}

TEST(many_tables_are_all_there, set_up, tear_down)
{
    struct node_fixture *n = *state;
    char name[16], line[96];
    for (uint32_t i = 0; i < TABLES; i++) {
        snprintf(name, sizeof(name), "t%u", i);
        struct mr_feature f = node_table(name, 0);
        node_create(n, &f);
    }
    write_whole_text();
    for (uint32_t i = 0; i < TABLES; i++) {
        snprintf(line, sizeof(line), "millrace_table_rows{node=\"millrace\",table=\"t%u\"} 0", i);
        expect(line);
    }
}

/* The others are shown, and what it says later is not taken for an answer to a new question. */
TEST(a_core_that_hangs_holds_nothing_up, set_up, tear_down)
{
    struct node_fixture *n = *state;
    struct mr_feature f = node_table("emb", 0);
    node_create(n, &f);
    fake_dp_hold(1);
    fake_dp_wait_held(1);
    for (uint32_t i = 0; i < 2; i++) {
        do {
            write_text();
        } while (!core_responds(0) || !core_responds(2));
        expect("millrace_core_responding{node=\"millrace\",core=\"1\"} 0");
        assert_false(has_family("millrace_table_rows"));
        assert_true(has_family("millrace_ps_pushes_applied"));
        assert_non_null(strstr(text.data, "\nmillrace_core_scratch_bytes{node=\"millrace\",core=\"2\"} "));
        assert_null(strstr(text.data, "\nmillrace_core_scratch_bytes{node=\"millrace\",core=\"1\"} "));
    }
    fake_dp_release(1);
    do {
        write_text();
    } while (!has_family("millrace_table_rows"));
    expect("millrace_core_responding{node=\"millrace\",core=\"1\"} 1");
}

/* NULL: all is well. */
static void expect_ailment(const char *expected)
{
    char why[512] = "";
    assert_int_equal(ps_node_metrics_ailment(metrics, why, sizeof(why)), expected != NULL);
    assert_string_equal(why, expected != NULL ? expected : "");
}

TEST(an_ailing_node_says_why, set_up, tear_down)
{
    struct ps_node *node = node_of();
    expect_ailment(NULL);
    atomic_store(&node->state, MR_NODE_RESTORING);
    expect_ailment("restoring");
    atomic_store(&node->state, MR_NODE_SAVING);
    expect_ailment(NULL);
    node->is_member = true;
    expect_ailment("without a lease");
    write_text();
    expect("millrace_cluster_lease_seconds{node=\"millrace\"} 0.000000");
    expect("millrace_cluster_lease_max_seconds{node=\"millrace\"} 5.000000");
    node->is_member = false;
    ps_node_fail(node, "its part is missing: put it back");
    expect_ailment("failed: its part is missing: put it back");
    write_text();
    expect("millrace_node_state{node=\"millrace\",state=\"failed\",reason=\"its part is missing: put it "
           "back\"} 1");
    atomic_store(&node->state, MR_NODE_SERVING);
    write_text();
    expect("millrace_node_state{node=\"millrace\",state=\"failed\"} 0");
}

/* A save that runs while the node stops does not hide that it stops. */
TEST(a_node_that_stops_says_so_to_the_end, set_up, tear_down)
{
    struct node_fixture *n = *state;
    struct mr_feature f = node_table("emb", 0);
    node_create(n, &f);
    ps_node_set_state(node_of(), MR_NODE_STOPPING);
    node_save(n);
    assert_int_equal(atomic_load(&node_of()->state), MR_NODE_STOPPING);
    expect_ailment("stopping");
}

#define RELOADS 20u

/* The control thread changes the configuration in use while metrics are written. */
TEST(a_reloaded_interval_is_shown, set_up, tear_down)
{
    const struct node_fixture *n = *state;
    struct ps_node *node = node_of();
    struct ps_config fresh = n->config;
    bool takes[PS_CONFIG_KEY_COUNT] = {false};
    takes[PS_CONFIG_KEY_checkpoint_every_s] = true;
    for (uint32_t i = 1; i <= RELOADS; i++) {
        fresh.checkpoint_every_s = 3600 * i;
        assert_true(ps_control_reload(node->control, (struct ps_config *)node->config, &fresh, takes));
        write_text();
    }
    const char last[] = "\nmillrace_node_checkpoint_every_seconds{node=\"millrace\"} 72000\n";
    do {
        write_text();
    } while (strstr(text.data, last) == NULL);
}
