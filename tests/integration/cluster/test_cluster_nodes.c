/* Three nodes of one cluster with a real ZooKeeper server: who owns what, and who answers when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "dataplane/wire/format/op.h"
#include "tests/command.h"
#include "tests/integration/cluster/cluster_nodes.h"
#include "tests/integration/cluster/zookeeper_server.h"
#include "tests/integration/netns.h"
#include "tests/integration/wire_client.h"
#include "tests/wait.h"

#define NODES      3u
#define SESSION_MS 1500u
#define KEYS       64u
#define TRY_MS     300u /* long enough for a node that serves */

static const char *millraced, *millrace;
static struct zookeeper_server server;
static struct cluster_node nodes[NODES];

static bool all_is_owned(const struct cluster_shown *s)
{
    return s->node_count >= NODES && s->owner[0] != MR_CLUSTER_NO_NODE &&
           s->words[MR_CLUSTER_LEASE_LEFT_US] > 0;
}

/* ---- one table, and its keys ---- */

static uint32_t node_of(const struct cluster_shown *s, uint64_t key)
{
    return s->owner[mr_partition_of(mr_key_hash(key, 0))];
}

/* Asks the owner of a key, by the map of an epoch; another node if `beside` is 1 or 2. */
static enum mr_status look_up(const struct cluster_shown *s, uint64_t key, uint64_t epoch, uint32_t beside,
                              uint32_t timeout_ms)
{
    char text[WIRE_CLIENT_TEXT_BYTES];
    const uint32_t partition = mr_partition_of(mr_key_hash(key, 0));
    const uint32_t index = (s->owner[partition] + beside) % NODES;
    const uint16_t core = (uint16_t)(partition * CLUSTER_NODE_CORES / MR_PARTITION_COUNT);
    const struct mr_tensor tensor = mr_tensor_1d(MR_U64, 1, &key);
    const struct wire_client_request request = {
        .op = MR_OP_LOOKUP, .table = 1, .tensors = &tensor, .tensor_count = 1, .epoch = (uint16_t)epoch};
    uint32_t n = 0; /* the map has nodes in the order in which they came */
    while (strcmp(nodes[n].name, s->nodes[index].name) != 0)
        n++;
    struct wire_client *client = wire_client_create("127.0.0.1", (uint16_t)(nodes[n].port + core), core);
    const enum mr_status status = wire_client_ask(client, &request, timeout_ms, text);
    wire_client_destroy(client);
    return status;
}

static bool is_not_answered(enum mr_status status)
{
    return status == MR_BUSY || status == MR_UNREACHABLE || status == MR_DEADLINE_EXCEEDED;
}

static void wait_served(const struct cluster_shown *s, uint64_t key)
{
    WAIT_UNTIL(look_up(s, key, s->words[MR_CLUSTER_EPOCH], 0, TRY_MS) == MR_OK);
}

static void wait_not_served(const struct cluster_shown *s, uint64_t key)
{
    WAIT_UNTIL(is_not_answered(look_up(s, key, s->words[MR_CLUSTER_EPOCH], 0, TRY_MS)));
}

/* A key of this node of the map. */
static uint64_t key_of(const struct cluster_shown *s, uint32_t index)
{
    uint64_t key = 0;
    while (node_of(s, key) != index)
        key++;
    return key;
}

static uint32_t index_of(const struct cluster_shown *s, const struct cluster_node *n)
{
    uint32_t i = 0;
    while (strcmp(s->nodes[i].name, n->name) != 0)
        i++;
    return i;
}

static void create_table(const struct cluster_node *n)
{
    char text[WIRE_CLIENT_TEXT_BYTES];
    struct mr_feature f = mr_feature_table("t", 4);
    const struct mr_tensor tensor = mr_tensor_2d(MR_U8, 1, sizeof(f), &f);
    const struct wire_client_request request = {.op = MR_OP_CREATE, .tensors = &tensor, .tensor_count = 1};
    struct wire_client *client = wire_client_create("127.0.0.1", n->port, 0);
    assert_int_equal(wire_client_ask(client, &request, 60000, text), MR_OK);
    wire_client_destroy(client);
}

/* ---- tests, in this order ---- */

static int start_all(void **state)
{
    char settings[96];
    (void)state;
    zookeeper_server_create(&server);
    (void)snprintf(settings, sizeof(settings), "zookeeper = 127.0.0.1:%u\nnodes = %u\nsession_ms = %u\n",
                   server.port, NODES, SESSION_MS);
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_create(&nodes[i], millraced, i, settings);
    return 0;
}

static int end_all(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_destroy(&nodes[i]);
    zookeeper_server_destroy(&server);
    return 0;
}

static void test_partitions_are_spread(void **state)
{
    static struct cluster_shown shown[NODES];
    (void)state;
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_wait(&nodes[i], &shown[i], all_is_owned, "all partitions are owned");
    for (uint32_t i = 0; i < NODES; i++) {
        uint32_t owned[NODES][CLUSTER_NODE_CORES] = {{0}};
        assert_memory_equal(shown[i].owner, shown[0].owner, sizeof(shown[0].owner));
        assert_int_equal(shown[i].core_count, CLUSTER_NODE_CORES);
        assert_int_equal(shown[i].words[MR_CLUSTER_LEASE_US], SESSION_MS * 1000 / 2);
        assert_string_equal(shown[i].nodes[shown[i].words[MR_CLUSTER_SELF]].name, nodes[i].name);
        for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
            owned[shown[i].owner[p]][p * CLUSTER_NODE_CORES / MR_PARTITION_COUNT]++;
        for (uint32_t n = 0; n < NODES; n++) {
            assert_int_in_range(owned[n][0] + owned[n][1], MR_PARTITION_COUNT / NODES,
                                MR_PARTITION_COUNT / NODES + 1);
            assert_int_in_range(owned[n][0] + 4, owned[n][1], owned[n][1] + 8);
            assert_int_equal(shown[i].nodes[n].flags, MR_CLUSTER_NODE_PRESENT);
        }
        create_table(&nodes[i]);
    }
}

static void test_each_node_serves_its_own(void **state)
{
    struct cluster_shown s;
    (void)state;
    cluster_node_wait(&nodes[0], &s, all_is_owned, "all partitions are owned");
    const uint64_t epoch = s.words[MR_CLUSTER_EPOCH];
    for (uint64_t key = 0; key < KEYS; key++)
        assert_int_equal(look_up(&s, key, epoch, 0, 60000), MR_OK);
    assert_int_equal(look_up(&s, 1, epoch, 1, 60000), MR_WRONG_OWNER);
    assert_int_equal(look_up(&s, 1, epoch, 2, 60000), MR_WRONG_OWNER);
    assert_int_equal(look_up(&s, 1, 0, 0, 60000), MR_WRONG_OWNER); /* before it was given out */
}

static void test_a_paused_node_waits_until_it_is_confirmed(void **state)
{
    struct cluster_shown s;
    (void)state;
    cluster_node_wait(&nodes[0], &s, all_is_owned, "all partitions are owned");
    const uint64_t key = key_of(&s, index_of(&s, &nodes[1]));
    /* ZooKeeper away too: nobody can confirm the node when it goes on */
    zookeeper_server_kill(&server);
    netns_suspend(nodes[1].pid);
    const uint64_t suspended_us = wait_clock_us();
    WAIT_UNTIL(wait_clock_us() - suspended_us >= SESSION_MS / 2 * 1000); /* the lease, whole */
    netns_resume(nodes[1].pid);
    assert_true(is_not_answered(look_up(&s, key, s.words[MR_CLUSTER_EPOCH], 0, TRY_MS)));
    zookeeper_server_start(&server);
    cluster_node_wait(&nodes[1], &s, all_is_owned, "the lease is back");
    wait_served(&s, key);
}

/* `millrace doctor` asks the server. */
static void check_doctor(const char *says)
{
    char out[16384];
    /* it may find other problems of this machine */
    (void)command_output(out, sizeof(out), "%s doctor --zookeeper 127.0.0.1:%u 2>&1", millrace, server.port);
    if (strstr(out, says) == NULL)
        fail_msg("\"%s\" does not contain \"%s\"", out, says);
}

/* Runs `millrace ctl nodes`, asks all nodes for it, and checks that it says so. */
static void check_tool(const char *options, const char *says)
{
    char out[4096];
    const int code = command_output(out, sizeof(out),
                                    "%s ctl nodes --server 127.0.0.1:%u,127.0.0.1:%u,127.0.0.1:%u %s 2>&1",
                                    millrace, nodes[0].port, nodes[1].port, nodes[2].port, options);
    if (code != 0 || strstr(out, says) == NULL)
        fail_msg("\"%s\" does not contain \"%s\"", out, says);
}

static bool n2_is_away(const struct cluster_shown *s)
{
    uint32_t i = 0;
    while (strcmp(s->nodes[i].name, "n2") != 0)
        i++;
    return s->nodes[i].flags == 0;
}

static uint64_t epoch_before;

/* The lease may be there a moment before the map that brings it is shown. */
static bool all_is_owned_anew(const struct cluster_shown *s)
{
    return all_is_owned(s) && s->words[MR_CLUSTER_EPOCH] > epoch_before;
}

static void test_a_killed_node_comes_back_to_its_own(void **state)
{
    static struct cluster_shown before, after;
    (void)state;
    cluster_node_wait(&nodes[0], &before, all_is_owned, "all partitions are owned");
    const uint32_t index = index_of(&before, &nodes[2]);
    const uint64_t key = key_of(&before, index);
    check_tool("", ": it may serve, lease");
    cluster_node_kill(&nodes[2]);
    cluster_node_wait(&nodes[0], &after, n2_is_away, "n2 is away");
    check_tool("", "n2                    away");
    check_tool("", " partitions of n2: start it; else the others take them over");
    check_tool("--json", "\"without_owner\": 0");
    cluster_node_start(&nodes[2], millraced);
    epoch_before = before.words[MR_CLUSTER_EPOCH];
    cluster_node_wait(&nodes[2], &after, all_is_owned_anew, "all partitions are owned, by a newer map");
    assert_memory_equal(after.owner, before.owner, sizeof(before.owner));
    assert_true(after.nodes[index].start_id != before.nodes[index].start_id);
    create_table(&nodes[2]);
    /* calls by the map from before its start are refused; the others have not noticed */
    assert_int_equal(look_up(&before, key, before.words[MR_CLUSTER_EPOCH], 0, 60000), MR_WRONG_OWNER);
    assert_int_equal(look_up(&after, key, after.words[MR_CLUSTER_EPOCH], 0, 60000), MR_OK);
    const uint64_t other = key_of(&before, (index + 1) % NODES);
    assert_int_equal(look_up(&before, other, before.words[MR_CLUSTER_EPOCH], 0, 60000), MR_OK);
}

static void test_zookeeper_goes_and_comes(void **state)
{
    struct cluster_shown s;
    (void)state;
    cluster_node_wait(&nodes[0], &s, all_is_owned, "all partitions are owned");
    const uint64_t key = key_of(&s, index_of(&s, &nodes[0]));
    check_doctor("1 of 1 server serves, version 3.");
    zookeeper_server_kill(&server);
    wait_not_served(&s, key);
    check_doctor(": Connection refused");
    cluster_node_wait_says(&nodes[0], "answers: are they running, more than half of them");
    zookeeper_server_start(&server);
    wait_served(&s, key);
    /* The server keeps sessions, and ends this one if the node does not come in time. */
    assert_true(cluster_node_says(&nodes[0], "the lease goes on") ||
                cluster_node_says(&nodes[0], "has ended this node's session"));
}

static void test_a_name_is_one_process_s(void **state)
{
    static struct cluster_node other;
    static struct cluster_shown s;
    char settings[96];
    (void)state;
    (void)snprintf(settings, sizeof(settings), "zookeeper = 127.0.0.1:%u\nsession_ms = %u\n", server.port,
                   SESSION_MS);
    cluster_node_create_as(&other, millraced, NODES, "ads", nodes[0].name, settings);
    cluster_node_wait_says(&other, "another process is node n0 of cluster ads, at 127.0.0.1:7700");
    assert_int_equal(cluster_node_show(&other, &s), MR_OK);
    assert_int_equal(s.words[MR_CLUSTER_LEASE_LEFT_US], 0);
    cluster_node_stop(&other);
    cluster_node_destroy(&other);
    cluster_node_wait(&nodes[0], &s, all_is_owned, "the first one goes on");
}

static uint32_t owned_by_n3(const struct cluster_shown *s)
{
    uint32_t owned = 0;
    for (uint32_t i = 0; i < s->node_count; i++)
        for (uint32_t p = 0; p < MR_PARTITION_COUNT && strcmp(s->nodes[i].name, "n3") == 0; p++)
            owned += s->owner[p] == i;
    return owned;
}

static bool n3_is_a_spare(const struct cluster_shown *s)
{
    return s->node_count == NODES + 1 &&
           s->nodes[NODES].flags == (MR_CLUSTER_NODE_PRESENT | MR_CLUSTER_NODE_SPARE);
}

static bool n3_has_its_share(const struct cluster_shown *s)
{
    return owned_by_n3(s) == MR_PARTITION_COUNT / (NODES + 1);
}

/* A spare gets nothing; as soon as it is none, its share, with nobody asking for it. */
static void test_who_comes_later_gets_its_share_but_for_spares(void **state)
{
    static struct cluster_node late;
    static struct cluster_shown s;
    char settings[128];
    (void)state;
    (void)snprintf(settings, sizeof(settings), "zookeeper = 127.0.0.1:%u\nsession_ms = %u\nrole = spare\n",
                   server.port, SESSION_MS);
    cluster_node_create(&late, millraced, NODES, settings);
    cluster_node_wait(&nodes[0], &s, n3_is_a_spare, "n3 is in the map, as a spare");
    check_tool("", "n3                    there   spare            0");
    cluster_node_stop(&late);
    cluster_node_destroy(&late);
    assert_int_equal(owned_by_n3(&s), 0);
    (void)snprintf(settings, sizeof(settings), "zookeeper = 127.0.0.1:%u\nsession_ms = %u\n", server.port,
                   SESSION_MS);
    cluster_node_create(&late, millraced, NODES, settings);
    cluster_node_wait(&nodes[0], &s, n3_has_its_share, "n3 has a quarter of the partitions");
    cluster_node_stop(&late);
    cluster_node_destroy(&late);
}

static void test_all_stop_well(void **state)
{
    static struct cluster_shown s;
    (void)state;
    cluster_node_wait(&nodes[0], &s, all_is_owned, "all partitions are owned");
    cluster_node_stop(&nodes[1]);
    cluster_node_stop(&nodes[2]);
    cluster_node_stop(&nodes[0]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_partitions_are_spread),
        cmocka_unit_test(test_each_node_serves_its_own),
        cmocka_unit_test(test_a_paused_node_waits_until_it_is_confirmed),
        cmocka_unit_test(test_a_killed_node_comes_back_to_its_own),
        cmocka_unit_test(test_zookeeper_goes_and_comes),
        cmocka_unit_test(test_a_name_is_one_process_s),
        cmocka_unit_test(test_who_comes_later_gets_its_share_but_for_spares),
        cmocka_unit_test(test_all_stop_well),
    };
    if (argc != 3) {
        (void)fprintf(stderr, "usage: %s MILLRACED MILLRACE\n", argv[0]);
        return 2;
    }
    millraced = argv[1];
    millrace = argv[2];
    zookeeper_server_require();
    cluster_nodes_isolate();
    return cluster_nodes_end(cmocka_run_group_tests(tests, start_all, end_all));
}
