/* A training whose trainer reads another clock than hub and server: joined, the server's work on each push
 * lies within the trainer's, give or take what `millrace timeline` says that clocks may differ. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/integration/hub_fixture.h"
#include "tests/integration/program.h"
#include "tests/test.h"

#define AHEAD "unshare --time --fork --monotonic 5000 "

static const char *fm, *data, *millrace;

struct fixture {
    struct node_fixture node;
    struct hub_fixture hub;
    char samples[NODE_PATH_BYTES], server[NODE_PATH_BYTES], of_hub[NODE_PATH_BYTES], trainer[NODE_PATH_BYTES];
    char joined[NODE_PATH_BYTES];
    struct program_result result;
};

static int set_up(void **state)
{
    static struct fixture x;
    static char setting[NODE_PATH_BYTES + 20], hub_option[NODE_PATH_BYTES + 20];
    const char *settings[] = {setting, NULL};
    static char directory[] = "/tmp/test_timeline.XXXXXX";
    assert_non_null(mkdtemp(directory));
    snprintf(x.server, sizeof(x.server), "%s/server.json", directory);
    snprintf(x.of_hub, sizeof(x.of_hub), "%s/hub.json", directory);
    snprintf(x.trainer, sizeof(x.trainer), "%s/trainer.json", directory);
    snprintf(x.joined, sizeof(x.joined), "%s/run.json", directory);
    snprintf(setting, sizeof(setting), "node.trace=%s", x.server);
    snprintf(hub_option, sizeof(hub_option), "--trace %s", x.of_hub);
    node_fixture_start(&x.node, 1, settings);
    hub_fixture_start(&x.hub, &x.node, hub_option);
    snprintf(x.samples, sizeof(x.samples), "%.40s/a9a.libsvm", x.node.directory);
    assert_int_equal(netns_run(&x.node.net, NETNS_CLIENT, "xz -dc %s >%s", data, x.samples), 0);
    *state = &x;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *x = *state;
    remove(x->server);
    remove(x->of_hub);
    remove(x->trainer);
    remove(x->joined);
    *strrchr(x->server, '/') = '\0';
    return remove(x->server);
}

static double number(const json_t *event, const char *key)
{
    return json_number_value(json_object_get(event, key));
}

static bool is_of(const json_t *event, const char *name, const char *batch)
{
    const char *its = json_string_value(json_object_get(json_object_get(event, "args"), "batch"));
    return strcmp(json_string_value(json_object_get(event, "ph")), "X") == 0 &&
           strcmp(json_string_value(json_object_get(event, "name")), name) == 0 && its != NULL &&
           (batch == NULL || strcmp(its, batch) == 0);
}

static const json_t *timeline_find(const json_t *events, const char *name, const char *batch)
{
    size_t i;
    json_t *event;
    json_array_foreach(events, i, event)
    {
        if (is_of(event, name, batch))
            return event;
    }
    return NULL;
}

/* Of every batch that the server has pushed: sent before the work begins, answered after it ends. */
static uint32_t check_causality(const json_t *events, double error_us)
{
    size_t i;
    json_t *event;
    uint32_t checked = 0;
    json_array_foreach(events, i, event)
    {
        if (!is_of(event, "push_grad_batch", NULL))
            continue;
        const char *batch = json_string_value(json_object_get(json_object_get(event, "args"), "batch"));
        const json_t *sent = timeline_find(events, "send push", batch),
                     *wait = timeline_find(events, "wait for push", batch);
        const json_t *handed = timeline_find(events, "hand out", batch);
        if (sent == NULL || wait == NULL || handed == NULL)
            continue;
        const double begin = number(event, "ts"), end = begin + number(event, "dur");
        assert_true(number(sent, "ts") <= begin + error_us);
        assert_true(end <= number(wait, "ts") + number(wait, "dur") + error_us);
        assert_true(number(handed, "ts") <= number(sent, "ts") + error_us);
        checked++;
    }
    return checked;
}

/* The namespaces are gone with the node. */
static json_t *timeline_join(const struct fixture *x)
{
    char line[5 * NODE_PATH_BYTES];
    json_error_t problem;
    snprintf(line, sizeof(line), "%s timeline --json --output %s %s %s %s", millrace, x->joined, x->server,
             x->of_hub, x->trainer);
    FILE *output = popen(line, "re"); /* NOLINT(cert-env33-c): the paths are the test's own */
    assert_non_null(output);
    json_t *summary = json_loadf(output, 0, &problem);
    assert_int_equal(pclose(output), 0);
    return summary;
}

TEST(calls_hold_the_work_on_them, set_up, tear_down)
{
    struct fixture *x = *state;
    json_error_t problem;
    if (netns_run(&x->node.net, NETNS_CLIENT, AHEAD "true") != 0) {
        fprintf(stderr, "skipped: this kernel or its unshare has no time namespaces\n");
        hub_fixture_stop(&x->hub);
        node_fixture_stop(&x->node);
        skip();
    }
    program_run(&x->node.net, NETNS_CLIENT, &x->result,
                AHEAD "%s train --hub " HUB_ADDRESS
                      " --server %s --data %s --format libsvm --quiet --model fm "
                      "--factors 4 --batch 512 --epochs 1 --trace %s",
                fm, x->node.address, x->samples, x->trainer);
    program_expect(&x->result, 0, "");
    hub_fixture_stop(&x->hub);
    node_fixture_stop(&x->node);
    json_t *summary = timeline_join(x), *joined = json_load_file(x->joined, 0, &problem);
    assert_non_null(summary);
    assert_non_null(joined);
    assert_true(number(json_array_get(json_object_get(summary, "trainers"), 0), "batches") > 10);
    assert_true(number(summary, "clock_error_s") > 0);
    assert_true(
        check_causality(json_object_get(joined, "traceEvents"), number(summary, "clock_error_s") * 1e6) > 5);
    json_decref(summary);
    json_decref(joined);
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "usage: test_timeline MILLRACED MILLRACE_HUB FM MILLRACE A9A.libsvm.xz\n");
        return 2;
    }
    netns_require_root();
    node_fixture_server = argv[1];
    hub_fixture_program = argv[2];
    fm = argv[3];
    millrace = argv[4];
    data = argv[5];
    return tests_run(NULL, NULL);
}
