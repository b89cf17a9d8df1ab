/* A client whose kernel cuts up large sends late, and a server that sees them uncut: an AF_PACKET port on a
 * veth pair loses all of them. The client has to find that out by itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "millrace_observe.h"
#include "tests/integration/node_fixture.h"
#include "tests/test.h"
#include "tests/wait.h"

enum { COUNT = 30000, DIM = 16 };

#define LINE_S 120 /* for the log's line about dropped packets, one a minute for each counter */

static const char *millrace;

static void look_at_annotation(void *arg, const struct mr_annotation *annotation)
{
    if (strcmp(annotation->event, "packets_dropped") == 0 &&
        strncmp(annotation->text, "port.rx_malformed ", 18) == 0)
        *(bool *)arg = true;
}

/* Log lines are annotations, too. */
static bool is_logged(struct mr_client *client)
{
    bool found = false;
    uint64_t last, missed;
    assert_int_equal(mr_annotations(client, NULL, 0, 0, &last, &missed, look_at_annotation, &found), MR_OK);
    return found;
}

/* The log, and doctor, name what is lost, and the cure. */
static void check_is_named(struct mr_client *client, const struct node_fixture *node)
{
    assert_true(WAIT_WITHIN(LINE_S, is_logged(client)));
    assert_int_equal(netns_run(&node->net, NETNS_CLIENT,
                               "%s doctor --server %s > %s/doctor; grep -q 'port.rx_malformed is ' "
                               "%s/doctor && grep -q 'fix: .*ethtool -K INTERFACE .*gso off' %s/doctor",
                               millrace, node->address, node->directory, node->directory, node->directory),
                     0);
}

/* A client sends runs of packets, which are lost. One that gets no processor may find out before that its
 * packets come late, and send none: then others do. */
static void lose_runs(struct mr_client *client, const struct node_fixture *node, uint32_t id,
                      const uint64_t *keys, const float *gradients)
{
    for (uint32_t n = 0; n < 20 && node_fixture_sum(client, "port.rx_malformed") == 0; n++) {
        struct mr_client *other = node_fixture_connect(node);
        assert_int_equal(mr_push_gradients(other, NULL, id, keys, COUNT, DIM, gradients), MR_OK);
        mr_client_destroy(other);
    }
    assert_true(node_fixture_sum(client, "port.rx_malformed") > 0);
}

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
    if (keep_offloads && strstr(driver, "af_packet") != NULL) {
        lose_runs(client, &node, id, keys, gradients);
        check_is_named(client, &node);
    }
    free(keys);
    free(gradients);
    mr_client_destroy(client);
    node_fixture_stop(&node);
}

TEST(test_af_packet)
{
    check_large_push("port.driver=af_packet", true);
}

TEST(test_af_packet_without_offload)
{
    check_large_push("port.driver=af_packet", false);
}

TEST(test_af_xdp)
{
    check_large_push("port.driver=af_xdp", true);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: test_offload MILLRACED MILLRACE\n");
        return 2;
    }
    node_fixture_server = argv[1];
    millrace = argv[2];
    netns_require_root();
    return tests_run(NULL, NULL);
}
