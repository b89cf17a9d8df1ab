#include "tests/command.h"
#include "tests/test.h"
#include "tests/unit/trainer_client/replay_fixture.h"

#include <string.h>

struct mr_client *replay_connect(const struct live_node *node, uint32_t replay_bytes)
{
    struct mr_client_options options = {.server = live_node_address(node),
                                        .deadline_ms = 60000,
                                        .replay = true,
                                        .replay_bytes = replay_bytes};
    struct mr_client *client = NULL;
    char error[512] = "";
    if (mr_client_create(&options, &client, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    return client;
}

struct mr_feature replay_table(const char *name)
{
    struct mr_feature feature = mr_feature_table(name, REPLAY_DIM);
    feature.learning_rate = 1;
    return feature;
}

void replay_start(struct replay_fixture *x, uint32_t cores, uint32_t replay_bytes)
{
    struct mr_feature feature = replay_table("t");
    memset(x, 0, sizeof(*x));
    x->node = live_node_start_new(cores);
    x->client = replay_connect(x->node, replay_bytes);
    for (uint32_t i = 0; i < REPLAY_KEYS; i++)
        x->keys[i] = i * 7919u;
    assert_int_equal(mr_create(x->client, NULL, &feature, 1, &x->table), MR_OK);
    live_node_fill(x->node, x->table, REPLAY_DIM, x->keys, REPLAY_KEYS);
    live_node_save(x->node);
}

void replay_stop(struct replay_fixture *x)
{
    mr_client_destroy(x->client);
    live_node_destroy(x->node);
}

enum mr_status replay_push(struct replay_fixture *x, const struct mr_options *options, float amount)
{
    float gradients[REPLAY_KEYS * REPLAY_DIM];
    for (uint32_t i = 0; i < REPLAY_KEYS * REPLAY_DIM; i++)
        gradients[i] = amount;
    for (uint32_t i = 0; i < REPLAY_KEYS; i++)
        x->expected[i] += amount;
    return mr_push_gradients(x->client, options, x->table, x->keys, REPLAY_KEYS, REPLAY_DIM, gradients);
}

void replay_push_steps(struct replay_fixture *x, uint64_t from, uint64_t to)
{
    for (uint64_t step = from; step <= to; step++) {
        struct mr_options options = {.step = step};
        if (replay_push(x, &options, 1) != MR_OK)
            fail_msg("%s", mr_last_error());
    }
}

void replay_crash(struct replay_fixture *x)
{
    live_node_kill(x->node);
    live_node_restart(x->node);
}

void replay_copy_directory(const struct replay_fixture *x, const char *name)
{
    const char *directory = x->node->directory;
    assert_int_equal(command_run("cp -a %s/ckpt %s/%s", directory, directory, name), 0);
}

void replay_put_back(const struct replay_fixture *x, const char *name)
{
    const char *directory = x->node->directory;
    assert_int_equal(
        command_run("rm -rf %s/ckpt && cp -a %s/%s %s/ckpt", directory, directory, name, directory), 0);
}

void replay_check_rows(struct replay_fixture *x)
{
    struct mr_reply *reply;
    if (mr_lookup(x->client, NULL, x->table, x->keys, REPLAY_KEYS, &reply) != MR_OK)
        fail_msg("%s", mr_last_error());
    const float *rows = mr_reply_tensor(reply, 0)->data;

    for (uint32_t i = 0; i < REPLAY_KEYS; i++)
        for (uint32_t d = 0; d < REPLAY_DIM; d++)
            assert_true(rows[i * REPLAY_DIM + d] == live_value(x->keys[i], d) - x->expected[i]);
    mr_reply_free(reply);
}

struct mr_replay_info replay_info_of(const struct replay_fixture *x)
{
    struct mr_replay_info info;
    mr_client_replay_info(x->client, &info);
    return info;
}
