/* A client pulls and pushes in bulk while it makes small calls: these are answered between the parts of the
 * large ones. Counted, not timed: a node that did each call in one go would never count one. */
#include <stdlib.h>
#include <string.h>
#include "tests/integration/node_fixture.h"
#include "tests/test.h"

enum { DIM = 16, KEYS = 40000, OUTSTANDING = 8, BETWEEN = 50 };

struct fixture {
    struct node_fixture node;
    struct mr_client *client;
    uint32_t table;
    uint64_t keys[KEYS];
    float gradients[KEYS * DIM];
};

static int set_up(void **state)
{
    struct fixture *x = calloc(1, sizeof(*x));
    struct mr_feature f = mr_feature_table("rows", DIM);
    assert_non_null(x);
    node_fixture_start(&x->node, 1, NULL);
    x->client = node_fixture_connect(&x->node);
    f.init_a = 1;
    f.learning_rate = 1;
    assert_int_equal(mr_create(x->client, NULL, &f, 1, &x->table), MR_OK);
    for (uint32_t i = 0; i < KEYS; i++)
        x->keys[i] = i;
    *state = x;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *x = *state;
    mr_client_destroy(x->client);
    node_fixture_stop(&x->node);
    free(x);
    return 0;
}

static void bulk_begin(struct fixture *x, bool pushes, struct mr_future **future)
{
    struct mr_options options = {.future = future};
    if (pushes)
        assert_int_equal(mr_push_gradients(x->client, &options, x->table, x->keys, KEYS, DIM, x->gradients),
                         MR_OK);
    else
        assert_int_equal(mr_lookup(x->client, &options, x->table, x->keys, KEYS, NULL), MR_OK);
}

static void bulk_end(bool pushes, struct mr_future *future)
{
    struct mr_reply *reply = NULL;
    assert_int_equal(mr_future_wait(future, &reply), MR_OK);
    if (!pushes) {
        const struct mr_tensor *rows = mr_reply_tensor(reply, 0);
        assert_int_equal(rows->dims[0], KEYS);
        for (uint32_t i = 0; i < KEYS * DIM; i++)
            assert_float_equal(((const float *)rows->data)[i], 1, 0);
    }
    mr_reply_free(reply);
    mr_future_destroy(future);
}

/* One key of a table: a call that takes no slice. */
static void small_call(struct fixture *x)
{
    struct mr_reply *reply = NULL;
    assert_int_equal(mr_lookup(x->client, NULL, x->table, x->keys, 1, &reply), MR_OK);
    mr_reply_free(reply);
}

static void check_bulk(struct fixture *x, bool pushes)
{
    struct mr_future *futures[OUTSTANDING];
    uint64_t before = node_fixture_sum(x->client, "ps.calls_between_slices");
    for (uint32_t i = 0; i < OUTSTANDING; i++)
        bulk_begin(x, pushes, &futures[i]);
    for (uint32_t i = 0; node_fixture_sum(x->client, "ps.calls_between_slices") < before + BETWEEN;
         i = (i + 1) % OUTSTANDING) {
        for (uint32_t call = 0; call < 10; call++)
            small_call(x);
        if (mr_future_done(futures[i])) {
            bulk_end(pushes, futures[i]);
            bulk_begin(x, pushes, &futures[i]);
        }
    }
    for (uint32_t i = 0; i < OUTSTANDING; i++)
        bulk_end(pushes, futures[i]);
}

TEST(small_calls_are_answered_between_the_parts_of_large_ones, set_up, tear_down)
{
    struct fixture *x = *state;
    check_bulk(x, false);
    check_bulk(x, true); /* of zeros: the rows stay as they are */
    check_bulk(x, false);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    node_fixture_server = argv[1];
    return tests_run(NULL, NULL);
}
