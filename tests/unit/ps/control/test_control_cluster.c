/* A node as a member of a cluster, with a coordinator that the test plays: what the catalogue says, the
 * node has, and commands are answered once everybody has made them. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "fake_dp.h"
#include "node_fixture.h"
#include "ps/control/control_internal.h"
#include "ps/core/core.h"
#include "tests/test.h"
#include "tests/wait.h"

/* What the node has asked of the coordinator; its thread writes it. */
static struct coordinator {
    pthread_mutex_t lock;
    struct ps_control *control;
    struct ps_cluster_catalog catalog, proposal;
    bool has_proposal, serves, loses_answers;
    struct ps_cluster_features_report own, other;
} k = {.lock = PTHREAD_MUTEX_INITIALIZER};
static _Atomic uint64_t in_use; /* capabilities, by the map */

static void write_catalog(void *context, const struct ps_cluster_catalog *next)
{
    (void)context;
    pthread_mutex_lock(&k.lock);
    assert(!k.has_proposal);
    ps_cluster_catalog_copy(&k.proposal, next);
    k.has_proposal = true;
    pthread_mutex_unlock(&k.lock);
}

static void catalog_report(void *context, const struct ps_cluster_features_report *report)
{
    (void)context;
    pthread_mutex_lock(&k.lock);
    k.own = *report;
    pthread_mutex_unlock(&k.lock);
}

static void control_cluster_wake(void *context)
{
    (void)context;
}

static void serve(void *context, uint64_t session)
{
    (void)context;
    ps_control_gate(k.control, session != 0 ? PS_GATE_OPEN : PS_GATE_BUSY);
    pthread_mutex_lock(&k.lock);
    k.serves = session != 0;
    pthread_mutex_unlock(&k.lock);
}

/* A round: takes what was proposed, and shows what there is. Another node follows, unless it is told not
 * to. */
static void go_round(bool other_follows)
{
    static struct ps_cluster_catalog shown;
    struct ps_cluster_report reports[2] = {0};
    pthread_mutex_lock(&k.lock);
    const bool takes = k.has_proposal && k.proposal.version == k.catalog.version + 1;
    const bool tells = k.has_proposal;
    if (takes)
        ps_cluster_catalog_copy(&k.catalog, &k.proposal);
    k.has_proposal = false;
    if (other_follows)
        k.other = (struct ps_cluster_features_report){.has_catalog = true, .catalog = k.catalog.version};
    reports[0].features = k.other;
    reports[1].features = k.own;
    ps_cluster_catalog_copy(&shown, &k.catalog);
    pthread_mutex_unlock(&k.lock);
    if (tells)
        ps_control_cluster_written(k.control, &shown,
                                   k.loses_answers ? PS_PERHAPS_WRITTEN
                                   : takes         ? PS_WRITTEN
                                                   : PS_NOT_WRITTEN);
    const struct ps_catalog_view view = {.session = 5,
                                         .catalog = &shown,
                                         .in_use = atomic_load(&in_use),
                                         .reports = reports,
                                         .report_count = 2,
                                         .own = 1};
    ps_control_cluster_viewed(k.control, &view);
}

/* All nodes have everything, and it is in use with the next round. */
/* NOLINTNEXTLINE(readability-non-const-parameter): the type of the callback */
static enum mr_status use(void *context, uint64_t needs, char *text)
{
    (void)context;
    (void)text;
    atomic_fetch_or(&in_use, needs);
    return MR_OK;
}

static bool serves(void)
{
    pthread_mutex_lock(&k.lock);
    const bool is_so = k.serves;
    pthread_mutex_unlock(&k.lock);
    return is_so;
}

static uint64_t own_version(void)
{
    pthread_mutex_lock(&k.lock);
    const uint64_t version = k.own.catalog;
    pthread_mutex_unlock(&k.lock);
    return version;
}

static void rounds_until_serving(void)
{
    WAIT_UNTIL(go_round(true), serves());
}

static void poll_nothing(void *context)
{
    (void)context;
}

static uint64_t waits_for_nothing(void *context)
{
    (void)context;
    return UINT64_MAX;
}

/* The node's own part alone. */
static enum mr_status control_cluster_save(void *context, const struct ps_command *command, uint64_t *number,
                                           char *text)
{
    struct ps_save_request request = command->save;
    uint64_t id;
    (void)context;
    const enum mr_status status = ps_control_save(k.control, &request, &id, text);
    *number = request.number;
    return status;
}

/* Without moves. */
static const struct ps_control_cluster_ops cluster_ops = {.write_catalog = write_catalog,
                                                          .report = catalog_report,
                                                          .use = use,
                                                          .wake = control_cluster_wake,
                                                          .serve = serve,
                                                          .poll = poll_nothing,
                                                          .pause_us = waits_for_nothing,
                                                          .save = control_cluster_save};

/* The node joins; nothing of the test runs on its control thread meanwhile. */
static void control_cluster_join(void)
{
    const struct ps_core *core = fake_dp_app(0);
    k.control = core->node->control;
    k.own = (struct ps_cluster_features_report){.has_catalog = false};
    k.has_proposal = k.serves = false;
    ps_control_stop(k.control, false);
    assert_int_equal(ps_control_join(k.control, "n1", &cluster_ops, NULL), MR_OK);
    ps_control_gate(k.control, PS_GATE_BUSY);
    assert_true(ps_control_start(k.control));
}

static int join_empty(void **state)
{
    if (node_setup_3_cores(state) != 0)
        return -1;
    memset(&k.catalog, 0, sizeof(k.catalog));
    k.loses_answers = false;
    control_cluster_join();
    return 0;
}

/* A command, with rounds until it is answered. */
static const struct node_reply *control_cluster_ask(struct node_fixture *n, uint8_t op,
                                                    const struct mr_tensor *tensor)
{
    static struct node_call call;
    const struct mr_call_options options = {.op = op, .deadline_us = UINT64_MAX};
    node_call_end(&call);
    memset(&call, 0, sizeof(call));
    node_post(n, 0, &call, &options, tensor, tensor == NULL ? 0 : 1);
    WAIT_UNTIL(go_round(true), node_look(n), call.is_answered);
    return &call.reply;
}

static const struct node_reply *control_cluster_create(struct node_fixture *n,
                                                       const struct mr_feature *feature)
{
    const struct mr_tensor t = mr_tensor_2d(MR_U8, 1, sizeof(*feature), feature);
    return control_cluster_ask(n, MR_OP_CREATE, &t);
}

/* The number of a feature by name, as the node lists it; 0: it has none. */
static uint32_t listed(struct node_fixture *n, const char *name, struct mr_feature *out)
{
    const struct node_reply *reply = node_call(n, 0, MR_OP_LIST, 0, NULL, 0);
    const struct mr_feature *features = reply->tensors[0].data;
    const uint32_t *ids = reply->tensors[1].data;
    node_check(reply, MR_OK, NULL);
    for (uint32_t i = 0; i < reply->tensors[1].dims[0]; i++) {
        if (strcmp(features[i].name, name) != 0)
            continue;
        if (out != NULL)
            *out = features[i];
        return ids[i];
    }
    return 0;
}

TEST(test_commands_go_through_the_catalogue, join_empty, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature user = node_table("user", 1), is;
    k.catalog.version = 1;
    k.catalog.last_feature = 6;
    rounds_until_serving();
    const struct node_reply *reply = control_cluster_create(n, &user);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(*(const uint32_t *)reply->tensors[0].data, 7);
    assert_int_equal(listed(n, "user", NULL), 7);
    assert_true(k.catalog.features[0].is_final);
    node_check(control_cluster_create(n, &user), MR_OK, NULL);
    user.dims[0]++;
    node_check(control_cluster_create(n, &user), MR_FEATURE_MISMATCH, "user exists with dim");

    struct mr_feature both[2] = {node_table("user", 1), node_table("user", 1)};
    both[1].learning_rate = 0.25f;
    struct mr_tensor t = mr_tensor_2d(MR_U8, 2, sizeof(both[0]), both);
    node_check(control_cluster_ask(n, MR_OP_ALTER, &t), MR_OK, NULL);
    assert_int_equal(listed(n, "user", &is), 7);
    assert_true(is.learning_rate == 0.25f);

    const uint32_t level = MR_FREEZE_ALL, off = MR_FREEZE_OFF;
    t = mr_tensor_1d(MR_U32, 1, &level);
    node_check(control_cluster_ask(n, MR_OP_FREEZE, &t), MR_OK, NULL);
    assert_int_equal(node_counter(n, 2, "ps.freeze"), MR_FREEZE_ALL);
    t = mr_tensor_1d(MR_U32, 1, &off);
    node_check(control_cluster_ask(n, MR_OP_FREEZE, &t), MR_OK, NULL);

    static const char name[MR_NAME_BYTES] = "user", who[MR_NAME_BYTES] = "who";
    t = mr_tensor_2d(MR_U8, 1, MR_NAME_BYTES, who);
    node_check(control_cluster_ask(n, MR_OP_DROP, &t), MR_UNKNOWN_TABLE, "who");
    t = mr_tensor_2d(MR_U8, 1, MR_NAME_BYTES, name);
    k.loses_answers = true;
    node_check(control_cluster_ask(n, MR_OP_DROP, &t), MR_OK, NULL);
    assert_int_equal(listed(n, "user", NULL), 0);
    assert_int_equal(k.catalog.count, 0);
    assert_int_equal(k.catalog.last_feature, 7);
}

/* What others create, alter and drop. */
TEST(test_the_node_follows, join_empty, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature is;
    k.catalog.version = 4;
    k.catalog.last_feature = 9;
    k.catalog.count = 2;
    k.catalog.features[0] =
        (struct ps_cluster_feature){.id = 3, .is_final = true, .since = 1, .feature = node_table("a", 1)};
    k.catalog.features[1] =
        (struct ps_cluster_feature){.id = 9, .is_final = true, .since = 4, .feature = node_variable("v", 5)};
    rounds_until_serving();
    assert_int_equal(listed(n, "a", NULL), 3);
    assert_int_equal(listed(n, "v", NULL), 9);
    k.catalog.version = 5;
    k.catalog.features[1].feature.learning_rate = 0.5f;
    memmove(&k.catalog.features[0], &k.catalog.features[1], sizeof(k.catalog.features[0]));
    k.catalog.count = 1;
    WAIT_UNTIL(go_round(true), own_version() >= 5);
    assert_int_equal(listed(n, "a", NULL), 0);
    assert_int_equal(listed(n, "v", &is), 9);
    assert_true(is.learning_rate == 0.5f);

    /* a new session: it serves again when it has what there is by then */
    ps_control_cluster_expired(k.control);
    WAIT_UNTIL(!serves());
    k.catalog.version = 6;
    k.catalog.last_feature = 10;
    k.catalog.features[k.catalog.count++] =
        (struct ps_cluster_feature){.id = 10, .is_final = true, .since = 6, .feature = node_table("b", 1)};
    rounds_until_serving();
    assert_int_equal(listed(n, "b", NULL), 10);
}

TEST(test_a_create_that_another_node_cannot_make, join_empty, node_teardown)
{
    struct node_fixture *n = *state;
    struct node_call call = {.is_answered = false};
    const struct mr_feature user = node_table("user", 1);
    const struct mr_tensor t = mr_tensor_2d(MR_U8, 1, sizeof(user), &user);
    const struct mr_call_options options = {.op = MR_OP_CREATE, .deadline_us = UINT64_MAX};
    rounds_until_serving();
    node_post(n, 0, &call, &options, &t, 1);
    WAIT_UNTIL(go_round(false), node_look(n), own_version() >= 1);
    assert_int_equal(listed(n, "user", NULL), 0); /* the node has it, and it is not final */
    const struct ps_cluster_features_report full = {.has_catalog = true,
                                                    .failed = 1,
                                                    .failed_status = MR_OUT_OF_MEMORY,
                                                    .failed_text = "node n2: user: no room"};
    WAIT_UNTIL(k.other = full, go_round(false), node_look(n), call.is_answered);
    node_check(&call.reply, MR_OUT_OF_MEMORY, "node n2: user: no room; no feature was created");
    node_call_end(&call);
    assert_int_equal(k.catalog.count, 0);
    assert_int_equal(k.catalog.last_feature, 1);
    assert_int_equal(listed(n, "user", NULL), 0);
}

TEST(test_a_create_that_this_node_cannot_make, join_empty, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature big[2] = {node_table("small", 1), node_variable("big", 1u << 30)};
    const struct mr_tensor t = mr_tensor_2d(MR_U8, 2, sizeof(big[0]), big);
    rounds_until_serving();
    node_check(control_cluster_ask(n, MR_OP_CREATE, &t), MR_OUT_OF_MEMORY, "node n1: big");
    assert_int_equal(listed(n, "small", NULL), 0);
    assert_int_equal(k.catalog.count, 0);
}

/* The catalogue stands above a checkpoint, and what was created since is there. */
TEST(test_a_restore, join_empty, node_teardown)
{
    struct node_fixture *n = *state;
    static const char name[MR_NAME_BYTES] = "old";
    const struct mr_feature old = node_table("old", 1), kept = node_table("kept", 2),
                            new = node_table("new", 3);
    rounds_until_serving();
    node_check(control_cluster_create(n, &old), MR_OK, NULL);
    node_check(control_cluster_create(n, &kept), MR_OK, NULL);
    const struct mr_tensor whole = mr_tensor_1d(MR_U8, 0, NULL);
    node_check(node_call(n, 0, MR_OP_SAVE, 0, &whole, 1), MR_OK, NULL);
    const struct ps_restore_request request = {.directory = "",
                                               .id = node_wait_saved(n)[MR_PROGRESS_LAST_GOOD_ID]};
    struct ps_restored restored;
    char text[PS_CONTROL_TEXT_BYTES];
    const struct mr_tensor t = mr_tensor_2d(MR_U8, 1, MR_NAME_BYTES, name);
    node_check(control_cluster_ask(n, MR_OP_DROP, &t), MR_OK, NULL);
    node_check(control_cluster_create(n, &new), MR_OK, NULL);
    ps_control_stop(k.control, false);
    if (ps_control_restore(k.control, &request, &restored, text) != MR_OK)
        fail_msg("%s", text);
    ps_control_gate(k.control, PS_GATE_OPEN); /* as a member does that has loaded what it owns */
    assert_true(ps_control_start(k.control));
    assert_int_equal(listed(n, "old", NULL), 0);
    assert_int_equal(listed(n, "kept", NULL), 2);
    assert_int_equal(listed(n, "new", NULL), 3);
}

static bool is_proposed(void)
{
    pthread_mutex_lock(&k.lock);
    const bool is = k.has_proposal;
    pthread_mutex_unlock(&k.lock);
    return is;
}

/* Nobody answers a command that waits for a coordinator when the node stops: it is refused. */
TEST(test_the_node_stops, join_empty, node_teardown)
{
    struct node_fixture *n = *state;
    struct node_call call = {.is_answered = false};
    const struct mr_feature user = node_table("user", 1);
    const struct mr_tensor t = mr_tensor_2d(MR_U8, 1, sizeof(user), &user);
    const struct mr_call_options options = {.op = MR_OP_CREATE, .deadline_us = UINT64_MAX};
    rounds_until_serving();
    node_post(n, 0, &call, &options, &t, 1);
    WAIT_UNTIL(node_look(n), is_proposed());
    ps_control_stop(k.control, false);
    node_check(node_wait(n, &call), MR_SHUTTING_DOWN, "stopping");
    node_call_end(&call);
}
