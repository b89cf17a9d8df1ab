/* Census data through hub, trainer and server: logistic regression by FTRL is as good as scikit-learn's on
 * the same split, and a factorization machine is no worse than it is told to be. The reference figures come
 * from tests/quality/reference_a9a.py. Server, hub and trainer each write a timeline. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/integration/hub_fixture.h"
#include "tests/integration/program.h"
#include "tests/test.h"

#define REFERENCE_AUC      0.9014
#define REFERENCE_LOG_LOSS 0.3278
#define REFERENCE_SAMPLES  6476 /* held out */
#define TOLERANCE          0.005
#define AUC_NEEDED         0.90
#define LOG_LOSS_NEEDED    0.33

#define LR_OPTIONS "--model lr --optimizer ftrl --learning-rate 0.1 --weight-decay 0 --batch 128 --epochs 5"
#define FM_OPTIONS "--model fm --optimizer adagrad --factors 4 --batch 128 --epochs 5 --wire-dtype f16"

static const char *fm, *data;

struct fixture {
    struct node_fixture node;
    struct hub_fixture hub;
    char samples[NODE_PATH_BYTES];
    char traces[3][NODE_PATH_BYTES]; /* of server, hub and trainer */
    struct program_result result;
};

static int set_up(void **state)
{
    static struct fixture x;
    static char setting[NODE_PATH_BYTES + 20], hub_option[NODE_PATH_BYTES + 20];
    const char *settings[] = {setting, NULL};
    memset(&x, 0, sizeof(x));
    for (uint32_t i = 0; i < 3; i++) {
        snprintf(x.traces[i], sizeof(x.traces[i]), "/tmp/test_a9a.XXXXXX");

        int file = mkstemp(x.traces[i]);

        assert_true(file >= 0);
        close(file);
    }
    snprintf(setting, sizeof(setting), "node.trace=%s", x.traces[0]);
    snprintf(hub_option, sizeof(hub_option), "--trace %s", x.traces[1]);
    node_fixture_start(&x.node, 1, settings);
    hub_fixture_start(&x.hub, &x.node, hub_option);
    snprintf(x.samples, sizeof(x.samples), "%.40s/a9a.libsvm", x.node.directory);
    assert_int_equal(netns_run(&x.node.net, NETNS_CLIENT, "xz -dc %s >%s", data, x.samples), 0);
    *state = &x;
    return 0;
}

/* The timeline at `path` has spans of this name, with the ids of batches. */
static void check_trace(const char *path, const char *name)
{
    json_error_t error;
    json_t *events = json_load_file(path, 0, &error), *event;
    size_t index, found = 0;
    if (events == NULL)
        fail_msg("%s: %s", path, error.text);
    json_array_foreach(events, index, event)
    {
        if (strcmp(json_string_value(json_object_get(event, "name")), name) == 0) {
            assert_true(json_number_value(json_object_get(event, "dur")) >= 0);
            assert_true(json_is_string(json_object_get(json_object_get(event, "args"), "batch")));
            found++;
        }
    }
    assert_true(found > 1);
    json_decref(events);
    unlink(path);
}

static int tear_down(void **state)
{
    struct fixture *x = *state;
    hub_fixture_stop(&x->hub);
    node_fixture_stop(&x->node);
    check_trace(x->traces[0], "push_grad_batch");
    check_trace(x->traces[1], "hand out");
    check_trace(x->traces[2], "wait for push");
    return 0;
}

/* Runs a subcommand of fm; its JSON. */
static json_t *a9a_run(struct fixture *x, const char *subcommand, const char *options)
{
    json_error_t error;
    program_run(&x->node.net, NETNS_CLIENT, &x->result,
                "%s %s --hub " HUB_ADDRESS " --server %s --data %s --format libsvm --quiet %s", fm,
                subcommand, x->node.address, x->samples, options);
    program_expect(&x->result, 0, "");

    json_t *value = json_loads(x->result.out, 0, &error);

    if (value == NULL)
        fail_msg("no JSON: %s in %s", error.text, x->result.out);
    return value;
}

/* Trains with the options, and what it then reaches on the samples held out. */
static void reach(struct fixture *x, const char *options, double *auc, double *log_loss)
{
    char training[512];
    snprintf(training, sizeof(training), "%s --trace %s", options, x->traces[2]);

    json_t *trained = a9a_run(x, "train", training), *scored = a9a_run(x, "evaluate", options);

    assert_int_equal(json_integer_value(json_object_get(trained, "keys")), 123);
    assert_int_equal(json_integer_value(json_object_get(trained, "broken_lines")), 0);
    assert_int_equal(json_integer_value(json_object_get(scored, "samples")), REFERENCE_SAMPLES);
    *auc = json_number_value(json_object_get(scored, "auc"));
    *log_loss = json_number_value(json_object_get(scored, "logloss"));
    printf("%s: AUC %.4f, log loss %.4f\n", options, *auc, *log_loss);
    json_decref(trained);
    json_decref(scored);
}

TEST(test_logistic_regression, set_up, tear_down)
{
    double auc, log_loss;
    reach(*state, LR_OPTIONS, &auc, &log_loss);
    assert_true(auc >= AUC_NEEDED && fabs(auc - REFERENCE_AUC) <= TOLERANCE);
    assert_true(log_loss <= LOG_LOSS_NEEDED && fabs(log_loss - REFERENCE_LOG_LOSS) <= TOLERANCE);
}

TEST(test_factorization_machine, set_up, tear_down)
{
    double auc, log_loss;
    reach(*state, FM_OPTIONS, &auc, &log_loss);
    assert_true(auc >= AUC_NEEDED && auc >= REFERENCE_AUC - TOLERANCE);
    assert_true(log_loss <= LOG_LOSS_NEEDED && log_loss <= REFERENCE_LOG_LOSS + TOLERANCE);
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        (void)fputs("usage: test_a9a MILLRACED MILLRACE-HUB FM A9A.LIBSVM.XZ\n", stderr);
        return 2;
    }
    netns_require_root();
    node_fixture_server = argv[1];
    hub_fixture_program = argv[2];
    fm = argv[3];
    data = argv[4];
    return tests_run(NULL, NULL);
}
