/* A node with three tables, pooled by sum, mean and sqrtn, and a variable; a client of it, and keys
 * of bags. */
#ifndef TESTS_CALLS_FIXTURE_H
#define TESTS_CALLS_FIXTURE_H

#include <math.h>
#include <string.h>
#include "tests/test.h"
#include "tests/unit/trainer_client/live_node.h"
#include "trainer_client/call/client.h"
#include "trainer_client/millrace.h"

enum { KEYS = 60, DISTINCT = 41, BAGS = 25, DIM = 3 };

struct fixture {
    struct live_node *node;
    struct mr_client *client;
    uint32_t tables[3]; /* pooled by sum, mean, sqrtn */
    uint32_t variable;
    uint64_t keys[KEYS];
    uint32_t offsets[BAGS + 1];
};

static inline struct mr_client *connect_to(const struct live_node *node)
{
    struct mr_client_options options = {.server = live_node_address(node)};
    struct mr_client *client = NULL;
    char error[512] = "";
    if (mr_client_create(&options, &client, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    return client;
}

static inline void set_up(struct fixture *x, uint32_t core_count)
{
    static const char *const names[3] = {"sum", "mean", "sqrtn"};
    uint32_t dims[2] = {2, 3}, ids[4];
    struct mr_feature features[4];
    memset(x, 0, sizeof(*x));
    x->node = live_node_start_new(core_count);
    x->client = connect_to(x->node);
    for (uint32_t i = 0; i < 3; i++) {
        features[i] = mr_feature_table(names[i], DIM);
        features[i].pooling = i;
        features[i].seed = 1000 + i;
    }
    features[3] = mr_feature_variable("weights", 2, dims);
    for (uint32_t i = 0; i < 4; i++)
        features[i].learning_rate = 1;
    assert_int_equal(mr_create(x->client, NULL, features, 4, ids), MR_OK);
    for (uint32_t i = 0; i < DISTINCT; i++)
        x->keys[i] = i;
    for (uint32_t i = 0; i < 3; i++)
        live_node_fill(x->node, ids[i], DIM, x->keys, DISTINCT);
    memcpy(x->tables, ids, sizeof(x->tables));
    x->variable = ids[3];
    for (uint32_t i = 0; i < KEYS; i++)
        x->keys[i] = (i * 37u) % DISTINCT; /* repeats */
    for (uint32_t b = 0; b < BAGS; b++)
        x->offsets[b + 1] = b % 5 == 0 ? x->offsets[b] : x->offsets[b] + 1 + b % 4;
    assert_true(x->offsets[BAGS] <= KEYS);
}

static inline void tear_down(struct fixture *x)
{
    mr_client_destroy(x->client);
    live_node_destroy(x->node);
}

static inline const float *floats(const struct mr_reply *reply)
{
    return mr_reply_tensor(reply, 0)->data;
}

static inline float factor(uint32_t pooling, uint32_t keys)
{
    if (pooling == MR_POOL_MEAN)
        return 1.0f / (float)keys;
    return pooling == MR_POOL_SQRTN ? 1.0f / sqrtf((float)keys) : 1.0f;
}

static inline void assert_close(float got, float expected)
{
    if (fabsf(got - expected) > 1e-4f * (1.0f + fabsf(expected)))
        fail_msg("%f is not %f", (double)got, (double)expected);
}

#endif
