/* A node that serves a checkpoint read only: what it answers, what it refuses, and that it writes nothing. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "ps/server/serve.h"
#include "restore_fixture.h"
#include "tests/test.h"

/* What is in the directory, in one number. */
static uint32_t count_files(const char *path)
{
    uint32_t count = 0;
    DIR *directory = opendir(path);
    assert_non_null(directory);
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

/* Two checkpoints, all of 99 and all of 98; the node serves `what` of them from then on. Returns the files
 * there are. */
static uint32_t serve(struct node_fixture *n, const char *what)
{
    uint32_t table = make_table(n);
    struct mr_feature v = node_variable("bias", 2);
    node_create(n, &v);
    learn(n, table, BATCH(0));
    node_save(n);
    learn(n, table, BATCH(1));
    node_save(n);
    n->config.checkpoint_save_on_stop = true; /* means nothing to a node that serves */
    node_restart(n, n->core_count);
    n->config.checkpoint_save_on_stop = false;
    uint32_t count = count_files(n->config.checkpoint_directory);
    node_stop(n);
    n->config.checkpoint_save_on_stop = true;
    snprintf(n->config.checkpoint_serve, sizeof(n->config.checkpoint_serve), "%.200s%s",
             n->config.checkpoint_directory, what);
    node_start(n, 2);
    return count;
}

TEST(answers_lookups_and_tells_what_it_is, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    serve(n, "/ckpt-1");
    struct mr_feature emb = node_table("emb", 100);
    check_values(n, node_create(n, &emb), 99);
    uint64_t key = 1; /* not there: its first values, and no row */
    struct mr_tensor t = mr_tensor_1d(MR_U64, 1, &key);
    const struct node_reply *reply = node_call(n, node_core_of_key(n, key, 0), MR_OP_LOOKUP, 1, &t, 1);
    node_check(reply, MR_OK, NULL);
    assert_true(*(const float *)reply->tensors[0].data == 100);
    reply = node_call(n, 0, MR_OP_HEARTBEAT, 0, NULL, 0);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(*(const uint64_t *)reply->tensors[0].data, MR_NODE_READ_ONLY);
    assert_int_equal(node_counter(n, 0, "ps.read_only"), 1);
    assert_int_equal(node_counter(n, 0, "table.rows") + node_counter(n, 1, "table.rows"), KEYS);
    uint64_t range[2] = {0, 0};
    t = mr_tensor_1d(MR_U64, 2, range);
    node_check(node_call(n, node_core_of_variable(n, "bias"), MR_OP_VARIABLE_PULL, 2, &t, 1), MR_OK, NULL);
}

TEST(takes_the_newest_of_a_directory, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    serve(n, "/");
    check_values(n, 1, 98);
}

static void check_refused(const struct node_reply *reply)
{
    node_check(reply, MR_FROZEN, "read only");
}

TEST(refuses_all_that_changes_it, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t files = serve(n, "");
    uint64_t key = keys[0], id = 0, batch = BATCH(5);
    uint32_t core = node_core_of_key(n, key, 0), head[4] = {1, 0}, part[4] = {1, 1, 1, 0},
             level = MR_FREEZE_OFF;
    uint32_t offsets[2] = {0, 1};
    float gradient[NODE_DIM] = {1}, values[2] = {1, 2};
    struct mr_tensor push[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, 1, &key),
                                mr_tensor_1d(MR_U32, 0, NULL), mr_tensor_2d(MR_F32, 1, NODE_DIM, gradient)};
    check_refused(node_call(n, core, MR_OP_PUSH_GRAD, 0, push, 4));
    struct mr_tensor feed[4] = {mr_tensor_1d(MR_U64, 1, &batch), mr_tensor_1d(MR_U32, 4, part),
                                mr_tensor_1d(MR_U64, 1, &key), mr_tensor_1d(MR_U32, 2, offsets)};
    check_refused(node_call(n, core, MR_OP_FEED_SAMPLE, 0, feed, 4));
    part[3] = MR_FEED_READ_ONLY;
    node_check(node_call(n, core, MR_OP_FEED_SAMPLE, 0, feed, 4), MR_OK, NULL);
    struct mr_tensor variable[2] = {mr_tensor_1d(MR_U64, 1, &id), mr_tensor_1d(MR_F32, 2, values)};
    check_refused(node_call(n, node_core_of_variable(n, "bias"), MR_OP_VARIABLE_PUSH, 2, variable, 2));
    struct mr_feature other = node_table("other", 1);
    struct mr_tensor create = mr_tensor_2d(MR_U8, 1, sizeof(other), &other);
    check_refused(node_call(n, 0, MR_OP_CREATE, 0, &create, 1));
    struct mr_tensor freeze = mr_tensor_1d(MR_U32, 1, &level);
    check_refused(node_call(n, 0, MR_OP_FREEZE, 0, &freeze, 1));
    level = MR_FREEZE_ALL;
    node_check(node_call(n, 0, MR_OP_FREEZE, 0, &freeze, 1), MR_OK, NULL);
    struct mr_tensor restore[2] = {
        mr_tensor_1d(MR_U8, (uint32_t)strlen(n->config.checkpoint_directory), n->config.checkpoint_directory),
        mr_tensor_1d(MR_U64, 1, &id)};
    check_refused(node_call(n, 0, MR_OP_SAVE, 0, restore, 1));
    check_refused(node_call(n, 0, MR_OP_RESTORE, 0, restore, 2));
    check_values(n, 1, 98);
    assert_int_equal(node_counter(n, 0, "ps.features"), 2);
    node_stop(n);
    assert_int_equal(count_files(n->config.checkpoint_directory), files);
}

TEST(a_start_without_the_checkpoint_fails, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    const struct {
        const char *what;
        enum mr_status status;
        const char *says;
    } wrong[] = {{"/ckpt-9", MR_CHECKPOINT_NOT_FOUND, "ckpt-9: there is no such checkpoint"},
                 {"/nothing", MR_CHECKPOINT_NOT_FOUND, "nothing: there is no such directory"}};
    struct ps_server *server;
    char error[DP_ERROR_BYTES];
    serve(n, "/ckpt-2");
    node_stop(n);
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(n->config.checkpoint_serve, sizeof(n->config.checkpoint_serve), "%.200s%s",
                 n->config.checkpoint_directory, wrong[i].what);
        assert_int_equal(ps_server_start(&n->config, &server, error), wrong[i].status);
        if (strncmp(error, "checkpoint.serve = ", 19) != 0 || strstr(error, wrong[i].says) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", error, wrong[i].says);
    }
    n->config.checkpoint_serve[0] = '\0';
    node_start(n, 1);
}
