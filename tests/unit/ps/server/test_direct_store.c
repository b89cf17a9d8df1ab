/* A node that saves straight to a store, and restores from there: one without a disk, and one whose clients
 * name the store. */
#include <stdio.h>
#include <string.h>
#include "ps/control/control_internal.h"
#include "tests/test.h"
#include "tests/unit/ps/restore_fixture.h"
#include "tests/unit/ps/store/remote_fixture.h"
#include "tests/wait.h"

struct fixture {
    struct remote_fixture remote;
    struct node_fixture *node;
    char disk[256]; /* the directory that the node had on the disk */
};

static int set_up(void **state)
{
    static struct fixture x;
    void *node;
    remote_fixture_start(&x.remote, *(const enum ps_store_kind *)*state, 1);
    if (node_setup(&node) != 0)
        return -1;
    x.node = node;
    node_stop(x.node);
    (void)snprintf(x.disk, sizeof(x.disk), "%s", x.node->config.checkpoint_directory);
    x.node->config.checkpoint_save_on_stop = false;
    x.node->config.checkpoint_store_pause_ms = 1;
    *state = &x;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *x = *state;
    void *node = x->node;
    http_server_fail(x->remote.server, HTTP_FAULT_503, 0, 0);
    const int result = node_teardown(&node);
    return result + remote_fixture_stop(&x->remote);
}

/* The node has no disk from now on. */
static struct node_fixture *without_a_disk(struct fixture *x, uint32_t cores)
{
    struct node_fixture *n = x->node;
    assert_true(snprintf(n->config.checkpoint_directory, sizeof(n->config.checkpoint_directory), "%s",
                         x->remote.url) < (int)sizeof(n->config.checkpoint_directory));
    node_start(n, cores);
    return n;
}

static const char *names_there(struct fixture *x)
{
    return remote_fixture_names(&x->remote.remote->store, x->remote.remote->directory);
}

/* Deltas, other cores, numbers that go on, and old chains that go. */
TEST(a_node_without_a_disk_goes_on, set_up, tear_down, &remote_hdfs)
{
    struct fixture *x = *state;
    x->node->config.checkpoint_deltas = 1;
    x->node->config.checkpoint_delta_share_percent = 1000;
    x->node->config.checkpoint_keep = 1;
    struct node_fixture *n = without_a_disk(x, 2);
    const uint32_t table = make_table(n);
    assert_int_equal(learn(n, table, BATCH(0)), 2);
    assert_int_equal(node_save(n), 1);
    assert_int_equal(learn(n, table, BATCH(1)), 2);
    assert_int_equal(node_save(n), 2);
    assert_string_equal(names_there(x), "ckpt-1 ckpt-2 history incarnation ");
    assert_int_equal(node_counter(n, 0, "checkpoint.deltas_good"), 1);
    node_restart(n, 3);
    assert_int_equal(make_table(n), table);
    check_values(n, table, 98);
    assert_int_equal(learn(n, table, BATCH(0)), 0); /* it knows what was applied */
    assert_int_equal(learn(n, table, BATCH(2)), 3);
    assert_int_equal(node_save(n), 3);
    node_restart(n, 1);
    check_values(n, table, 97);
    assert_string_equal(names_there(x), "ckpt-3 history incarnation ");
}
TEST_AGAIN(a_node_without_a_disk_goes_on, set_up, tear_down, &remote_s3)

/* What lies beside the checkpoints is there, too. */
TEST(it_knows_what_was_dropped_and_restored, set_up, tear_down, &remote_s3)
{
    struct fixture *x = *state;
    struct node_fixture *n = without_a_disk(x, 1);
    const uint32_t table = make_table(n);
    assert_int_equal(learn(n, table, BATCH(0)), 1);
    assert_int_equal(node_save(n), 1);
    assert_int_equal(learn(n, table, BATCH(1)), 1);
    assert_int_equal(node_save(n), 2);
    node_check(node_restore(n, 1), MR_OK, NULL);
    node_restart(n, 2);
    check_values(n, table, 99);
    node_drop(n, "emb");
    node_restart(n, 1);
    assert_int_equal(make_table(n), table + 1);
    assert_int_equal(node_save(n), 3);
}

/* The URL with this in place of its path "/ads", and with its query if `with_query`. */
static const char *with_path(const struct fixture *x, const char *path, bool with_query)
{
    static char url[600];
    const char *at = strstr(x->remote.url, "/ads"), *query = strchr(x->remote.url, '?');
    (void)snprintf(url, sizeof(url), "%.*s%s%s", (int)(at - x->remote.url), x->remote.url, path,
                   with_query ? query : "");
    return url;
}

/* Read only, one checkpoint of several. */
TEST(a_checkpoint_there_is_served, set_up, tear_down, &remote_hdfs)
{
    struct fixture *x = *state;
    struct node_fixture *n = without_a_disk(x, 2);
    const uint32_t table = make_table(n);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(learn(n, table, BATCH(i)), 2);
        assert_int_equal(node_save(n), i + 1);
    }
    node_stop(n);
    assert_true(snprintf(n->config.checkpoint_serve, sizeof(n->config.checkpoint_serve), "%s",
                         with_path(x, "/ads/ckpt-1", true)) < (int)sizeof(n->config.checkpoint_serve));
    node_start(n, 1);
    check_values(n, table, 99);
    const struct mr_tensor t = mr_tensor_1d(MR_U8, 0, NULL);
    node_check(node_call(n, 0, MR_OP_SAVE, 0, &t, 1), MR_FROZEN, "read only");
    n->config.checkpoint_serve[0] = '\0';
}
TEST_AGAIN(a_checkpoint_there_is_served, set_up, tear_down, &remote_s3)

/* The status and the text of the last save. */
static enum mr_status last_save(struct node_fixture *n, char text[256])
{
    const struct node_reply *reply = node_call(n, 0, MR_OP_CHECKPOINT_STATUS, 0, NULL, 0);
    node_check(reply, MR_OK, NULL);
    (void)snprintf(text, 256, "%.*s", (int)reply->tensors[1].bytes, (const char *)reply->tensors[1].data);
    return (enum mr_status)((const uint64_t *)reply->tensors[0].data)[MR_PROGRESS_STATUS];
}

/* Whichever request fails: that save says so, nothing of it can be restored, training goes on, and the next
 * one is good. */
TEST(a_save_that_fails_leaves_nothing, set_up, tear_down, &remote_hdfs)
{
    char text[256];
    struct fixture *x = *state;
    struct node_fixture *n = without_a_disk(x, 2);
    const uint32_t table = make_table(n);
    uint32_t failed = 0, batch = 0;
    const uint32_t stride = x->remote.kind == PS_STORE_S3 ? 1 : 4; /* requests of HDFS are many */
    for (uint32_t first = 1; failed == batch; first += stride) {
        assert_int_equal(learn(n, table, BATCH(batch)), 2);
        batch++;
        const struct mr_tensor t = mr_tensor_1d(MR_U8, 0, NULL);
        http_server_fail(x->remote.server, HTTP_FAULT_CUT_BEFORE, first, first + 5);
        node_check(node_call(n, 0, MR_OP_SAVE, 0, &t, 1), MR_OK, NULL);
        (void)node_wait_saved(n);
        http_server_fail(x->remote.server, HTTP_FAULT_503, 0, 0);
        if (last_save(n, text) == MR_OK)
            break;
        assert_true(strlen(text) > 20 && !strchr(text, '\n'));
        failed++;
    }
    assert_true(failed >= 3);
    assert_int_equal(learn(n, table, BATCH(batch)), 2);
    const uint64_t id = node_save(n);
    assert_true(id > failed); /* no number comes again */
    node_restart(n, 1);
    check_values(n, table, 100.0f - (float)(batch + 1));
}
TEST_AGAIN(a_save_that_fails_leaves_nothing, set_up, tear_down, &remote_s3)

enum { WIDE = 1024, WIDE_ROWS = 1024, WIDE_AT_ONCE = 64 };

/* Makes rows of 4 MiB in all, or pushes to each of them. */
static void call_wide(struct node_fixture *n, uint32_t table, uint8_t op)
{
    static float gradients[WIDE_AT_ONCE * WIDE];
    const bool is_push = op == MR_OP_PUSH_GRAD;
    uint32_t head[4] = {table, 0};
    uint64_t ids[WIDE_AT_ONCE];
    for (uint64_t first = 1; first <= WIDE_ROWS; first += WIDE_AT_ONCE) {
        for (uint64_t i = 0; i < WIDE_AT_ONCE; i++)
            ids[i] = first + i;
        const struct mr_tensor tensors[4] = {
            mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, WIDE_AT_ONCE, ids),
            mr_tensor_1d(MR_U32, 0, NULL), mr_tensor_2d(MR_F32, WIDE_AT_ONCE, WIDE, gradients)};
        node_check(node_call(n, 0, op, is_push ? 0 : (uint16_t)table, is_push ? tensors : tensors + 1,
                             is_push ? 4 : 1),
                   MR_OK, NULL);
    }
}

/* Pushes wait for room, as with a slow disk, but not for a store that takes nothing. */
TEST(training_does_not_wait_for_a_store_that_stalls, set_up, tear_down, &remote_hdfs)
{
    char text[256];
    struct fixture *x = *state;
    x->node->config.checkpoint_buffers_per_core = 2;
    x->node->config.checkpoint_store_wait_ms = 2000; /* in which the pushes below fill the buffers */
    struct node_fixture *n = without_a_disk(x, 1);
    struct mr_feature wide = node_table("wide", 1);
    wide.dims[0] = WIDE;
    const uint32_t table = node_create(n, &wide);
    const struct mr_tensor t = mr_tensor_1d(MR_U8, 0, NULL);
    call_wide(n, table, MR_OP_LOOKUP);
    http_server_fail(x->remote.server, HTTP_FAULT_STALL, 1, UINT32_MAX);
    node_check(node_call(n, 0, MR_OP_SAVE, 0, &t, 1), MR_OK, NULL);
    call_wide(n, table, MR_OP_PUSH_GRAD);
    assert_true(node_counter(n, 0, "ps.pushes_held_back") > 0);
    http_server_fail(x->remote.server, HTTP_FAULT_503, 0, 0);
    (void)node_wait_saved(n);
    assert_int_equal(last_save(n, text), MR_IO_ERROR);
    assert_non_null(strstr(text, "checkpoint.store_wait_ms"));
    n->config.checkpoint_store_wait_ms = 600000; /* that is no stall, however busy this machine is */
    (void)node_save(n);
    node_restart(n, 2);
}
TEST_AGAIN(training_does_not_wait_for_a_store_that_stalls, set_up, tear_down, &remote_s3)

TEST(a_store_that_is_away_ends_the_start, set_up, tear_down, &remote_hdfs)
{
    char error[DP_ERROR_BYTES];
    struct fixture *x = *state;
    struct node_fixture *n = without_a_disk(x, 1);
    node_stop(n);
    http_server_fail(x->remote.server, HTTP_FAULT_CUT_BEFORE, 1, UINT32_MAX);
    n->config.cores_count = 1;
    assert_int_equal(ps_server_start(&n->config, &n->server, error), MR_IO_ERROR);
    assert_true(strlen(error) > 20 && !strchr(error, '\n'));
    http_server_fail(x->remote.server, HTTP_FAULT_503, 0, 0);
    node_start(n, 1);
}

static const struct node_reply *save_to(struct node_fixture *n, const char *directory)
{
    const struct mr_tensor t = mr_tensor_1d(MR_U8, (uint32_t)strlen(directory), directory);
    return node_call(n, 0, MR_OP_SAVE, 0, &t, 1);
}

static const struct node_reply *restore_from(struct node_fixture *n, const char *directory)
{
    uint64_t id = 0;
    const struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U8, (uint32_t)strlen(directory), directory),
                                         mr_tensor_1d(MR_U64, 1, &id)};
    return node_call(n, 0, MR_OP_RESTORE, 0, tensors, 2);
}

static void refuse(struct node_fixture *n, const char *url)
{
    node_check(save_to(n, url), MR_INVALID_ARGUMENT, "checkpoint.allow");
    node_check(restore_from(n, url), MR_INVALID_ARGUMENT, "checkpoint.allow");
}

static void check_saved_to(struct fixture *x, const char *url)
{
    struct node_fixture *n = x->node;
    uint32_t table = make_table(n);
    node_check(save_to(n, url), MR_OK, NULL);
    assert_int_equal(node_wait_saved(n)[MR_PROGRESS_STATUS], MR_OK);
    node_drop(n, "emb");
    node_check(restore_from(n, url), MR_OK, NULL);
    check_values(n, table, 100);
}

/* Clients of a node with a disk may name the URLs that are listed, and what is below, and nothing else. */
TEST(urls_that_are_listed_may_be_named, set_up, tear_down, &remote_hdfs)
{
    struct fixture *x = *state;
    struct node_fixture *n = x->node;
    struct ps_config_list *allow = &n->config.checkpoint_allow;
    (void)snprintf(allow->values[allow->count++], sizeof(allow->values[0]), "%s", x->remote.url);
    node_start(n, 2);
    check_saved_to(x, x->remote.url);
    check_saved_to(x, with_path(x, "/ads/team/", false));
    check_saved_to(x, with_path(x, "/ads/team", true));
    assert_string_equal(names_there(x), x->remote.kind == PS_STORE_S3 ? "ckpt-1 " : "ckpt-1 team ");
    refuse(n, with_path(x, "/other", true));
    refuse(n, with_path(x, "/adsx", true));
    refuse(n, with_path(x, "", true));
    refuse(n, with_path(x, "/ads/../other", true));
    refuse(n, with_path(x, "/ads/%2e%2e/other", true));
    refuse(n, with_path(x, "/ads//x", true));
    refuse(n, "s3://elsewhere/ads");
    refuse(n, "hdfs://127.0.0.1:1/ads");
    char url[700];
    (void)snprintf(url, sizeof(url), "%s%s", with_path(x, "/ads", false),
                   x->remote.kind == PS_STORE_S3 ? "?endpoint=http://127.0.0.1:1" : "?user.name=root");
    refuse(n, url);
    allow->count = 0;
    node_restart(n, 1);
    refuse(n, x->remote.url);
}
TEST_AGAIN(urls_that_are_listed_may_be_named, set_up, tear_down, &remote_s3)

/* However many directories clients name. */
TEST(its_own_numbers_stay_known, set_up, tear_down, &remote_hdfs)
{
    char path[32];
    struct fixture *x = *state;
    struct node_fixture *n = without_a_disk(x, 1);
    (void)make_table(n);
    assert_int_equal(node_save(n), 1);
    for (uint32_t i = 0; i < 2 * PS_LAST_IDS; i++) {
        (void)snprintf(path, sizeof(path), "/ads/team-%u", i);
        node_check(save_to(n, with_path(x, path, true)), MR_OK, NULL);
        assert_int_equal(node_wait_saved(n)[MR_PROGRESS_STATUS], MR_OK);
    }
    assert_int_equal(node_save(n), 2);
}

/* The last request of a start but one: it asks for numbers, and uploads are asked for after it. */
static uint32_t last_of_start(struct fixture *x)
{
    http_server_fail(x->remote.server, HTTP_FAULT_503, 0, 0);
    node_start(x->node, 1);
    const uint32_t requests = http_server_count(x->remote.server);
    node_stop(x->node);
    return requests - 1;
}

/* Starts a node whose store fails from request `last` on, the last one of a start, which asks for numbers.
 * Waits until it was asked in the background, too. */
static void start_without_numbers(struct fixture *x, uint32_t last)
{
    http_server_fail(x->remote.server, HTTP_FAULT_503, last, UINT32_MAX);
    node_start(x->node, 1);
    WAIT_UNTIL(http_server_count(x->remote.server) >= last - 1 + PS_HTTP_TRIES_MAX + PS_STORES_SAVE_TRIES);
}

TEST(numbers_that_are_not_known_are_asked_for, set_up, tear_down, &remote_s3)
{
    struct fixture *x = *state;
    struct node_fixture *n = without_a_disk(x, 1);
    (void)make_table(n);
    assert_int_equal(node_save(n), 1);
    node_stop(n);
    start_without_numbers(x, last_of_start(x));
    node_check(save_to(n, ""), MR_INVALID_ARGUMENT, "save again");
    http_server_fail(x->remote.server, HTTP_FAULT_503, 0, 0);
    WAIT_UNTIL(save_to(n, "")->status == MR_OK);
    assert_int_equal(node_wait_saved(n)[MR_PROGRESS_STATUS], MR_OK);
    assert_string_equal(names_there(x), "ckpt-1 ckpt-2 history incarnation ");
    node_stop(n);
    const uint32_t last = last_of_start(x); /* a listing has more pages now */
    n->config.checkpoint_save_on_stop = true;
    start_without_numbers(x, last);
    http_server_fail(x->remote.server, HTTP_FAULT_503, 0, 0);
    assert_int_equal(learn(n, make_table(n), BATCH(0)), 1);
    node_stop(n); /* which may wait for the answer */
    assert_string_equal(names_there(x), "ckpt-1 ckpt-2 ckpt-3 history incarnation ");
    node_start(n, 1);
}

static void wait_for_requests(struct fixture *x)
{
    WAIT_UNTIL(http_server_count(x->remote.server) > 0);
}

static void list(struct node_fixture *n, uint32_t features)
{
    const struct node_reply *reply = node_call(n, 0, MR_OP_LIST, 0, NULL, 0);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(reply->tensors[1].dims[0], features);
}

/* A save to a store that stalls waits; all that does not need that store goes on. A stop cuts it off. */
TEST(a_store_that_stalls_holds_up_no_other_call, set_up, tear_down, &remote_s3)
{
    struct fixture *x = *state;
    struct node_fixture *n = x->node;
    struct ps_config_list *allow = &n->config.checkpoint_allow;
    struct node_call save = {0};
    const struct mr_call_options options = {.op = MR_OP_SAVE, .deadline_us = UINT64_MAX};
    const struct mr_tensor t = mr_tensor_1d(MR_U8, (uint32_t)strlen(x->remote.url), x->remote.url);
    const struct mr_feature other = node_table("other", 1);
    (void)snprintf(allow->values[allow->count++], sizeof(allow->values[0]), "%s", x->remote.url);
    n->config.checkpoint_remote_stop_s = 0;
    node_start(n, 2);
    const uint32_t table = make_table(n);
    http_server_fail(x->remote.server, HTTP_FAULT_STALL, 1, UINT32_MAX);
    node_post(n, 0, &save, &options, &t, 1);
    wait_for_requests(x);
    assert_int_equal(node_create(n, &other), table + 1);
    list(n, 2);
    assert_int_equal(learn(n, table, BATCH(0)), 2);
    assert_int_equal(node_save(n), 1);
    node_check(node_restore(n, 1), MR_OK, NULL);
    node_drop(n, "emb");
    node_look(n);
    assert_false(save.is_answered);
    node_stop(n);
    node_call_end(&save);
}

/* What needs the store waits for it; a look at what there is does not, nor does training. */
TEST(a_store_that_stalls_holds_up_what_needs_it, set_up, tear_down, &remote_s3)
{
    struct fixture *x = *state;
    x->node->config.checkpoint_remote_stop_s = 0;
    struct node_fixture *n = without_a_disk(x, 2);
    struct node_call create = {0}, freeze = {0};
    struct mr_feature other = node_table("other", 1);
    uint32_t level = MR_FREEZE_OFF;
    const struct mr_call_options make = {.op = MR_OP_CREATE, .deadline_us = UINT64_MAX},
                                 lift = {.op = MR_OP_FREEZE, .deadline_us = UINT64_MAX};
    const struct mr_tensor feature = mr_tensor_2d(MR_U8, 1, sizeof(other), &other),
                           off = mr_tensor_1d(MR_U32, 1, &level);
    const uint32_t table = make_table(n);
    http_server_fail(x->remote.server, HTTP_FAULT_STALL, 1, UINT32_MAX);
    node_post(n, 0, &create, &make, &feature, 1);
    wait_for_requests(x);
    node_post(n, 0, &freeze, &lift, &off, 1);
    list(n, 1);
    assert_int_equal(learn(n, table, BATCH(0)), 2);
    node_check(node_call(n, 0, MR_OP_HEARTBEAT, 0, NULL, 0), MR_OK, NULL);
    assert_false(create.is_answered);
    assert_false(freeze.is_answered); /* it came later, and its turn is later */
    node_stop(n);
    node_call_end(&create);
    node_call_end(&freeze);
}

/* A scrub reads for hours, and a store that stalls is asked again for minutes: a stop waits for neither. */
TEST(a_stop_does_not_wait_for_a_scrub_of_a_store_that_stalls, set_up, tear_down, &remote_s3)
{
    struct fixture *x = *state;
    x->node->config.checkpoint_scrub_every_s = 1;
    struct node_fixture *n = without_a_disk(x, 1);
    const uint32_t table = make_table(n);
    assert_int_equal(learn(n, table, BATCH(0)), 1);
    assert_int_equal(node_save(n), 1);
    node_restart(n, 1); /* nothing but the scrub asks the store from then on */
    http_server_fail(x->remote.server, HTTP_FAULT_STALL, 1, UINT32_MAX);
    wait_for_requests(x);
    node_stop(n);
    assert_int_equal(http_server_count(x->remote.server), 1);
    http_server_fail(x->remote.server, HTTP_FAULT_STALL, 0, 0);
    node_start(n, 1);
    check_values(n, table, 99);
}

/* A node with a disk, and a checkpoint in the store that a list allows. Returns the table, and how many
 * requests a restore of it makes, of which the last ones read blocks. */
static uint32_t saved_there(struct fixture *x, uint32_t *requests)
{
    struct node_fixture *n = x->node;
    struct ps_config_list *allow = &n->config.checkpoint_allow;
    (void)snprintf(allow->values[allow->count++], sizeof(allow->values[0]), "%s", x->remote.url);
    n->config.checkpoint_remote_stop_s = 0;
    node_start(n, 2);
    const uint32_t table = make_table(n);
    assert_int_equal(learn(n, table, BATCH(0)), 2);
    node_check(save_to(n, x->remote.url), MR_OK, NULL);
    assert_int_equal(node_wait_saved(n)[MR_PROGRESS_STATUS], MR_OK);
    http_server_fail(x->remote.server, HTTP_FAULT_STALL, 0, 0);
    node_check(restore_from(n, x->remote.url), MR_OK, NULL);
    *requests = http_server_count(x->remote.server);
    assert_int_equal(learn(n, table, BATCH(1)), 2);
    return table;
}

/* Calls wait for a restore, but not for a store that has stopped sending. */
TEST(calls_do_not_wait_for_a_restore_that_stalls, set_up, tear_down, &remote_hdfs)
{
    uint32_t requests;
    struct fixture *x = *state;
    const uint32_t table = saved_there(x, &requests);
    x->node->config.checkpoint_store_wait_ms = 200;
    http_server_fail(x->remote.server, HTTP_FAULT_STALL, requests, UINT32_MAX);
    node_check(restore_from(x->node, x->remote.url), MR_IO_ERROR, "checkpoint.store_wait_ms");
    check_values(x->node, table, 98);
    http_server_fail(x->remote.server, HTTP_FAULT_STALL, 0, 0);
    x->node->config.checkpoint_store_wait_ms = 600000; /* that is no stall, however busy this machine is */
    node_check(restore_from(x->node, x->remote.url), MR_OK, NULL);
    check_values(x->node, table, 99);
}
TEST_AGAIN(calls_do_not_wait_for_a_restore_that_stalls, set_up, tear_down, &remote_s3)

/* Asks for a restore of the newest checkpoint there; the store says nothing from its request `first` on. */
static void begin_a_restore_that_stalls(struct fixture *x, uint32_t first, struct node_call *restore)
{
    static uint64_t id;
    const struct mr_call_options options = {.op = MR_OP_RESTORE, .deadline_us = UINT64_MAX};
    const struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U8, (uint32_t)strlen(x->remote.url), x->remote.url),
                                         mr_tensor_1d(MR_U64, 1, &id)};
    http_server_fail(x->remote.server, HTTP_FAULT_STALL, first, UINT32_MAX);
    node_post(x->node, 0, restore, &options, tensors, 2);
    WAIT_UNTIL(node_look(x->node), http_server_count(x->remote.server) >= first);
}

/* Neither while it looks for what there is, nor while it loads; and no request is made again. */
TEST(a_stop_does_not_wait_for_a_restore_that_stalls, set_up, tear_down, &remote_s3)
{
    uint32_t requests;
    struct fixture *x = *state;
    x->node->config.checkpoint_store_wait_ms = 600000;
    (void)saved_there(x, &requests);
    for (uint32_t first = 1; first <= requests; first += requests - 1) {
        struct node_call restore = {0};
        begin_a_restore_that_stalls(x, first, &restore);
        if (first == 1)
            list(x->node, 1); /* nor do others wait for a look */
        assert_false(restore.is_answered);
        node_stop(x->node);
        node_call_end(&restore);
        assert_int_equal(http_server_count(x->remote.server), first);
        http_server_fail(x->remote.server, HTTP_FAULT_STALL, 0, 0);
        node_start(x->node, 2);
    }
}

/* Single tables, in a folder of their own. */
TEST(a_partial_save_goes_there, set_up, tear_down, &remote_s3)
{
    struct fixture *x = *state;
    struct node_fixture *n = without_a_disk(x, 1);
    uint64_t words[MR_SAVE_ASK_WORDS] = {0};
    const char name[MR_NAME_BYTES] = "emb";
    const struct mr_tensor partial[3] = {mr_tensor_1d(MR_U8, 0, NULL),
                                         mr_body_tensor(MR_BODY_SAVE_ASK, words),
                                         mr_tensor_2d(MR_U8, 1, MR_NAME_BYTES, name)};
    char directory[PS_STORE_URL_BYTES + 16];
    (void)make_table(n);
    node_check(node_call(n, 0, MR_OP_SAVE, 0, partial, 3), MR_OK, NULL);
    assert_int_equal(node_wait_saved(n)[MR_PROGRESS_STATUS], MR_OK);
    (void)snprintf(directory, sizeof(directory), "%s/" PS_PARTIAL_NAME, x->remote.remote->directory);
    assert_string_equal(remote_fixture_names(&x->remote.remote->store, directory), "ckpt-1 ");
}
