/* A client whose kernel cuts up large sends late, and a server that sees them uncut: an AF_PACKET port on a
 * veth pair loses all of them. The client has to find that out by itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/integration/node_fixture.h"

enum { COUNT = 30000, DIM = 16 };

static void check_large_push(const char *driver, bool keep_offloads)
{
    const char *settings[] = {driver, NULL};
    struct netns_options cable = {.keep_offloads = keep_offloads};
    struct node_fixture node;
    struct mr_feature table = mr_feature_table("rows", DIM);
    struct mr_reply *reply = NULL;
    uint64_t *keys = calloc(COUNT, sizeof(*keys));
    float *gradients = calloc((size_t)COUNT * DIM, sizeof(*gradients));
    uint32_t id;
    assert_non_null(keys);
    assert_non_null(gradients);
    node_fixture_start_over(&node, &cable, 1, settings);

    struct mr_client *client = node_fixture_connect(&node);

    table.learning_rate = 1;
    assert_int_equal(mr_create(client, NULL, &table, 1, &id), MR_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        keys[i] = i;
        gradients[i * DIM] = (float)i;
    }
    assert_int_equal(mr_lookup(client, NULL, id, keys, COUNT, NULL), MR_OK);
    for (uint32_t n = 0; n < 3; n++)
        assert_int_equal(mr_push_gradients(client, NULL, id, keys, COUNT, DIM, gradients), MR_OK);
    assert_int_equal(mr_lookup(client, NULL, id, keys, COUNT, &reply), MR_OK);

    const float *rows = mr_reply_tensor(reply, 0)->data;

    for (uint32_t i = 0; i < COUNT; i++)
        assert_true(rows[i * DIM] == -3.0f * (float)i);
    mr_reply_free(reply);
    free(keys);
    free(gradients);
    mr_client_destroy(client);
    node_fixture_stop(&node);
}

static void test_af_packet(void **state)
{
    check_large_push("port.driver=af_packet", true);
}

static void test_af_packet_without_offload(void **state)
{
    check_large_push("port.driver=af_packet", false);
}

static void test_af_xdp(void **state)
{
    check_large_push("port.driver=af_xdp", true);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_af_packet),
        cmocka_unit_test(test_af_packet_without_offload),
        cmocka_unit_test(test_af_xdp),
    };
    if (argc != 2) {
        fprintf(stderr, "usage: test_offload MILLRACED\n");
        return 2;
    }
    node_fixture_server = argv[1];
    netns_require_root();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
