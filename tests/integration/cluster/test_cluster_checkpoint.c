/* Checkpoints of three nodes with a real ZooKeeper server: one file commits them, and all nodes go on from it
 * after they were killed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "dataplane/wire/format/op.h"
#include "tests/command.h"
#include "tests/integration/cluster/cluster_nodes.h"
#include "tests/integration/cluster/zookeeper_server.h"
#include "tests/integration/wire_client.h"
#include "tests/unit/ps/store/remote_fixture.h"
#include "tests/unit/temporary_directory.h"
#include "tests/wait.h"

#define NODES        3u
#define SESSION_MS   1500u
#define KEYS         48u /* some for each core of each node */
#define RANGE_VALUES 2u  /* of "scale" */
#define DIM          4u
#define HEIRS        2u
#define CALL_MS      60000u
#define METRICS_PORT 7990u /* of the first node */

static const char *millraced, *millrace;
static struct zookeeper_server server;
static struct cluster_node nodes[NODES], single, heirs[HEIRS];
static char *local;           /* a directory of this machine */
static const char *directory; /* of the checkpoints: that, or the URL of a store */
static struct remote_fixture store;
static bool is_remote;

static bool is_owned_by(const struct cluster_shown *s, uint32_t node_count)
{
    return s->node_count == node_count && s->owner[0] != MR_CLUSTER_NO_NODE &&
           s->words[MR_CLUSTER_LEASE_LEFT_US] > 0;
}

static bool all_is_owned(const struct cluster_shown *s)
{
    return is_owned_by(s, NODES);
}

/* Calls the core of a node that owns the partition, by the map that the request's epoch is set from. */
static enum mr_status ask_core(const struct cluster_node *n, uint32_t partition,
                               const struct cluster_shown *s, struct wire_client_request *request, char *text)
{
    const uint16_t core = (uint16_t)(partition * CLUSTER_NODE_CORES / MR_PARTITION_COUNT);
    request->epoch = (uint16_t)s->words[MR_CLUSTER_EPOCH];
    struct wire_client *client = wire_client_create("127.0.0.1", (uint16_t)(n->port + core), core);
    const enum mr_status status = wire_client_ask(client, request, CALL_MS, text);
    wire_client_destroy(client);
    return status;
}

/* Calls the owner of a partition; tries again while it is not ready, or has another map. */
static void ask_owner(uint32_t partition, struct wire_client_request *request)
{
    static struct cluster_shown s;
    char text[WIRE_CLIENT_TEXT_BYTES] = "";
    enum mr_status status = MR_BUSY;
    for (const uint64_t began_us = wait_clock_us(); status != MR_OK;) {
        assert_true(wait_clock_us() - began_us < UINT64_C(1000000) * WAIT_LIMIT_S);
        cluster_node_wait(&nodes[0], &s, all_is_owned, "all partitions are owned");
        uint32_t n = 0;
        while (strcmp(nodes[n].name, s.nodes[s.owner[partition]].name) != 0)
            n++;
        status = ask_core(&nodes[n], partition, &s, request, text);
        if (status != MR_OK && status != MR_BUSY && status != MR_WRONG_OWNER)
            fail_msg("%s: %s", mr_status_text(status), text);
    }
}

static enum mr_status ask_once(const struct cluster_node *n, const struct wire_client_request *request,
                               char *text)
{
    struct wire_client *client = wire_client_create("127.0.0.1", n->port, 0);
    const enum mr_status status = wire_client_ask(client, request, CALL_MS, text);
    wire_client_destroy(client);
    return status;
}

/* Asks again while the node loads its part. */
static void ask_node(const struct cluster_node *n, const struct wire_client_request *request)
{
    char text[WIRE_CLIENT_TEXT_BYTES] = "";
    enum mr_status status = MR_CHECKPOINT_RUNNING;
    WAIT_UNTIL(status = ask_once(n, request, text), status != MR_CHECKPOINT_RUNNING);
    if (status != MR_OK)
        fail_msg("%s: %s", mr_status_text(status), text);
}

static void create_all(void)
{
    struct mr_feature features[3] = {mr_feature_table("t", DIM)};
    const uint32_t dims[1] = {5};
    features[1] = mr_feature_variable("bias", 1, dims);
    features[2] = mr_feature_variable("scale", 1, dims);
    features[2].range_values = RANGE_VALUES;
    const struct mr_tensor tensor = mr_tensor_2d(MR_U8, 3, sizeof(features[0]), features);
    const struct wire_client_request request = {.op = MR_OP_CREATE, .tensors = &tensor, .tensor_count = 1};
    ask_node(&nodes[0], &request);
}

/* A gradient of `value` for each key and each variable, at their owners. */
static void learn(float value)
{
    for (uint64_t key = 0; key < KEYS; key++) {
        const uint32_t head[4] = {1, 0, 0, 0};
        const float gradient[DIM] = {value, 2 * value, 3 * value, (float)key};
        const struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, 1, &key),
                                             mr_tensor_1d(MR_U32, 0, NULL),
                                             mr_tensor_2d(MR_F32, 1, DIM, gradient)};
        struct wire_client_request lookup = {
            .op = MR_OP_LOOKUP, .table = 1, .tensors = &tensors[1], .tensor_count = 1};
        struct wire_client_request push = {.op = MR_OP_PUSH_GRAD, .tensors = tensors, .tensor_count = 4};
        ask_owner(mr_partition_of(mr_key_hash(key, 0)), &lookup);
        ask_owner(mr_partition_of(mr_key_hash(key, 0)), &push);
    }
    const float values[5] = {value, 1, 2, 3, 4};
    const uint64_t first = 0;
    const struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U64, 1, &first), mr_tensor_1d(MR_F32, 5, values)};
    struct wire_client_request push = {
        .op = MR_OP_VARIABLE_PUSH, .table = 2, .tensors = tensors, .tensor_count = 2};
    ask_owner(mr_variable_partition("bias"), &push);
    push.table = 3;
    for (uint32_t r = 0; r * RANGE_VALUES < 5; r++) {
        const uint64_t at = r * RANGE_VALUES, count = 5 - at < RANGE_VALUES ? 5 - at : RANGE_VALUES;
        const struct mr_tensor range[2] = {mr_tensor_1d(MR_U64, 1, &at),
                                           mr_tensor_1d(MR_F32, (uint32_t)count, values + at)};
        push.tensors = range;
        ask_owner(mr_range_partition("scale", r), &push);
    }
}

/* ---- saves ---- */

struct saved {
    uint64_t number, state, id, status;
};

static void note_number(void *context, const struct mr_message *answer)
{
    ((struct saved *)context)->number = *(const uint64_t *)answer->tensors[1].data;
}

static void note_state(void *context, const struct mr_message *answer)
{
    struct saved *saved = context;
    uint64_t row[MR_SAVE_ROW_WORDS];
    mr_body_read_row(MR_BODY_SAVE_ROW, &answer->tensors[3], 0, row);
    saved->state = row[MR_SAVE_ROW_STATE];
    saved->id = row[MR_SAVE_ROW_ID];
    saved->status = row[MR_SAVE_ROW_STATUS];
}

static struct saved begin_save(const struct cluster_node *n)
{
    struct saved saved = {.state = 1};
    const struct mr_tensor none = mr_tensor_1d(MR_U8, 0, NULL);
    const struct wire_client_request request = {
        .op = MR_OP_SAVE, .tensors = &none, .tensor_count = 1, .show = note_number, .context = &saved};
    ask_node(n, &request);
    return saved;
}

static void wait_saved(const struct cluster_node *n, struct saved *saved)
{
    const struct mr_tensor number = mr_tensor_1d(MR_U64, 1, &saved->number);
    const struct wire_client_request ask = {.op = MR_OP_CHECKPOINT_STATUS,
                                            .tensors = &number,
                                            .tensor_count = 1,
                                            .show = note_state,
                                            .context = saved};
    WAIT_UNTIL(ask_node(n, &ask), saved->state == 0);
}

/* Returns the number of the checkpoint, once it is committed. */
static uint64_t save(const struct cluster_node *n)
{
    struct saved saved = begin_save(n);
    wait_saved(n, &saved);
    assert_int_equal(saved.status, MR_OK);
    return saved.id;
}

/* Writes where CLUSTER-<id> or ckpt-<id> is. */
static void place(const char *name, uint64_t id, char out[400])
{
    const size_t bytes = strcspn(directory, "?");
    (void)snprintf(out, 400, "'%.*s/%s-%llu%s'", (int)bytes, directory, name, (unsigned long long)id,
                   directory + bytes);
}

#define run_ckpt(format, ...) command_run("%s ckpt " format " >&2", millrace, __VA_ARGS__)

static int ckpt(const char *command, uint64_t a, uint64_t b)
{
    char first[400], second[400] = "";
    place("CLUSTER", a, first);
    if (b != 0)
        place("CLUSTER", b, second);
    return run_ckpt("%s %s %s", command, first, second);
}

static int verify_all(void)
{
    return run_ckpt("verify '%s'", directory);
}

/* ---- tests, in this order ---- */

static int start_all(void **state)
{
    char settings[700];
    (void)state;
    local = temporary_directory_make();
    directory = local;
    if (is_remote) {
        remote_fixture_start(&store, store.kind, 3);
        directory = store.url;
    }
    zookeeper_server_create(&server);
    for (uint32_t i = 0; i < NODES; i++) {
        (void)snprintf(settings, sizeof(settings),
                       "zookeeper = 127.0.0.1:%u\nnodes = %u\nsession_ms = %u\n[checkpoint]\ndirectory = %s\n"
                       "deltas = 3\nkeep = 3\n[metrics]\nlisten = 127.0.0.1:%u\n",
                       server.port, NODES, SESSION_MS, directory, METRICS_PORT + i);
        cluster_node_create(&nodes[i], millraced, i, settings);
    }
    return 0;
}

static int end_all(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_destroy(&nodes[i]);
    cluster_node_destroy(&single);
    for (uint32_t i = 0; i < HEIRS; i++)
        cluster_node_destroy(&heirs[i]);
    zookeeper_server_destroy(&server);
    if (is_remote)
        (void)remote_fixture_stop(&store);
    return temporary_directory_remove(local);
}

static uint64_t first, second, last, of_single;

static void any_node_saves_all(void **state)
{
    static struct cluster_shown s;
    (void)state;
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_wait(&nodes[i], &s, all_is_owned, "all partitions are owned");
    create_all();
    learn(1);
    first = save(&nodes[1]);
    assert_int_equal(ckpt("verify", first, 0), 0);
    learn(2);
    second = save(&nodes[2]);
    assert_true(second > first);
    assert_int_equal(ckpt("verify", second, 0), 0);
    assert_int_equal(ckpt("diff", first, second), 3);
    cluster_node_wait_says(&nodes[0], ", a delta on ");
}

/* What was learnt since is gone; the rest is there, bit by bit. */
static void all_go_on_from_it(void **state)
{
    static struct cluster_shown s;
    (void)state;
    learn(3);
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_kill(&nodes[i]);
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_start(&nodes[i], millraced);
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_wait(&nodes[i], &s, all_is_owned, "all partitions are owned");
    const uint64_t third = save(&nodes[0]);
    assert_int_equal(ckpt("diff", second, third), 0);
    learn(4);
    const uint64_t fourth = save(&nodes[0]);
    assert_int_equal(ckpt("diff", third, fourth), 3);
    assert_int_equal(ckpt("verify", fourth, 0), 0);
}

/* Whatever a node is doing for a checkpoint when it is killed, the leader too: it is committed with all of
 * its parts, or it is no checkpoint, and the next one is. */
static void a_killed_node_leaves_all_or_nothing(void **state)
{
    static struct cluster_shown s;
    (void)state;
    for (uint32_t victim = 0; victim < NODES; victim++) {
        const struct cluster_node *asked = &nodes[(victim + 1) % NODES];
        struct saved saved = begin_save(asked);
        (void)nanosleep(&(struct timespec){.tv_nsec = 15000000L * victim},
                        NULL); /* another moment each time */
        cluster_node_kill(&nodes[victim]);
        cluster_node_start(&nodes[victim], millraced);
        wait_saved(asked, &saved);
        for (uint32_t i = 0; i < NODES; i++)
            cluster_node_wait(&nodes[i], &s, all_is_owned, "all partitions are owned");
        learn(5);
        const uint64_t id = save(&nodes[victim]);
        assert_int_equal(ckpt("verify", id, 0), 0);
        assert_true(saved.status != MR_OK || saved.id < id);
        last = id;
    }
    assert_int_equal(verify_all(), 0);
}

/* A node dies and stays dead: the others have all of it, bit by bit, beside what they serve. It comes back
 * and gets its share again. */
static void the_others_take_over_from_it(void **state)
{
    static struct cluster_shown s;
    (void)state;
    const uint64_t before = save(&nodes[0]);
    cluster_node_kill(&nodes[2]);
    WAIT_UNTIL(command_run("%s ctl take-over %s --server 127.0.0.1:%u >&2", millrace, nodes[2].name,
                           nodes[0].port) == 0); /* not before its session has ended */
    const uint64_t after = save(&nodes[1]);
    assert_int_equal(ckpt("diff", before, after), 0);
    learn(6);
    const uint64_t live = save(&nodes[0]);
    assert_int_equal(ckpt("diff", after, live), 3);
    assert_int_equal(ckpt("verify", live, 0), 0);
    cluster_node_start(&nodes[2], millraced);
    cluster_node_wait(&nodes[2], &s, all_is_owned, "all partitions are owned");
    assert_int_equal(
        command_run("%s ctl rebalance --wait --server 127.0.0.1:%u >&2", millrace, nodes[2].port), 0);
    last = save(&nodes[2]);
    assert_int_equal(ckpt("diff", live, last), 0);
}

/* The number of the cut that the node has last seen given up, by its log. */
static uint64_t given_up(const struct cluster_node *n)
{
    char path[96], line[1024];
    unsigned long long id = 0;
    (void)snprintf(path, sizeof(path), "%s/log", n->directory);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f) != NULL) {
        const char *found = strstr(line, "checkpoint ");
        if (strstr(line, " of the cluster was given up") != NULL && found != NULL)
            (void)sscanf(found, "checkpoint %llu", &id);
    }
    (void)fclose(f);
    assert_true(id != 0);
    return id;
}

/* The leader that was writing its file lost its session, and the store completes the file afterwards. Nodes
 * that start do not take it for the checkpoint of another cluster. */
static void a_file_that_comes_after_its_cut_was_given_up_is_ignored(void **state)
{
    static struct cluster_shown s;
    char late[128];
    (void)state;
    if (is_remote)
        skip();
    cluster_node_kill(&nodes[2]);
    struct saved saved = begin_save(&nodes[0]);
    wait_saved(&nodes[0], &saved);
    assert_int_not_equal(saved.status, MR_OK);
    const uint64_t id = given_up(&nodes[0]);
    assert_true(id > last);
    (void)snprintf(late, sizeof(late), "%s/CLUSTER-%llu", directory, (unsigned long long)id);
    assert_int_equal(command_run("cp %s/CLUSTER-%llu %s", directory, (unsigned long long)last, late), 0);
    cluster_node_kill(&nodes[0]);
    for (uint32_t i = 0; i < NODES; i += 2)
        cluster_node_start(&nodes[i], millraced);
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_wait(&nodes[i], &s, all_is_owned, "all partitions are owned");
    learn(6);
    assert_int_equal(unlink(late), 0);
    last = save(&nodes[0]);
    assert_true(last > id);
}

/* The whole of it goes from a store to a disk and back, and is what it was. */
static void all_parts_are_copied(void **state)
{
    char cluster[400];
    (void)state;
    if (!is_remote)
        skip();
    place("CLUSTER", last, cluster);
    assert_int_equal(run_ckpt("list '%s' --verify", directory), 0);
    assert_int_equal(run_ckpt("pull %s %s", cluster, local), 0);
    assert_int_equal(run_ckpt("verify %s", local), 0);
    assert_int_equal(run_ckpt("info %s/CLUSTER-%llu", local, (unsigned long long)last), 0);
    assert_int_equal(run_ckpt("diff %s %s/CLUSTER-%llu", cluster, local, (unsigned long long)last), 0);
    assert_int_equal(run_ckpt("push %s '%s'", local, directory), 0); /* which is there */
    assert_int_equal(verify_all(), 0);
}

/* One node by itself holds what the three did. */
static void a_single_node_takes_all(void **state)
{
    single = (struct cluster_node){.port = 7800, .name = "single", .directory = "/tmp/millrace-test-XXXXXX"};
    char path[96], cluster[400], alone[400];
    (void)state;
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_stop(&nodes[i]);
    assert_non_null(mkdtemp(single.directory));
    (void)snprintf(path, sizeof(path), "%s/conf", single.directory);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    (void)fprintf(
        f,
        "[port]\ndriver = socket\nipv4 = 127.0.0.1/8\nudp_port = %u\n[cores]\ncount = 1\npoll_mode = "
        "adaptive\n"
        "[memory]\nlimit_mib = 256\npackets_mib = 64\nmessages_mib = 64\n[batches]\nmemory_mib = 16\n"
        "[checkpoint]\ndirectory = %s\n",
        single.port, directory);
    assert_int_equal(fclose(f), 0);
    cluster_node_start(&single, millraced);
    cluster_node_wait_says(&single, "restored checkpoint");
    const uint64_t id = save(&single);
    assert_true(id > last);
    place("CLUSTER", last, cluster);
    place("ckpt", id, alone);
    assert_int_equal(run_ckpt("diff %s %s", cluster, alone), 0);
    cluster_node_stop(&single);
    of_single = id;
}

static bool heirs_own_all(const struct cluster_shown *s)
{
    return is_owned_by(s, HEIRS);
}

static void start_heirs(const char *cluster, const char *from, const char *to)
{
    char settings[1000], name[16];
    (void)snprintf(settings, sizeof(settings),
                   "zookeeper = 127.0.0.1:%u\nnodes = %u\nsession_ms = %u\ninit_from = %.*s\n[checkpoint]\n"
                   "directory = %s\n",
                   server.port, HEIRS, SESSION_MS, (int)strlen(from) - 2, from + 1, to); /* without quotes */
    for (uint32_t i = 0; i < HEIRS; i++) {
        (void)snprintf(name, sizeof(name), "heir%u", i);
        cluster_node_create_as(&heirs[i], millraced, NODES + i, cluster, name, settings);
    }
}

/* Two nodes of a cluster of their own begin with the checkpoint `from`: they have what it has, bit by bit,
 * also if one of them is killed before they have a checkpoint. */
static void check_heirs(const char *cluster, const char *from)
{
    static struct cluster_shown s;
    char *to = temporary_directory_make();
    start_heirs(cluster, from, to);
    for (uint32_t i = 0; i < HEIRS; i++)
        cluster_node_wait(&heirs[i], &s, heirs_own_all, "all partitions are owned");
    cluster_node_wait_says(&heirs[1], "restored checkpoint");
    cluster_node_kill(&heirs[1]);
    cluster_node_start(&heirs[1], millraced);
    cluster_node_wait(&heirs[1], &s, heirs_own_all, "it is back");
    const uint64_t id = save(&heirs[0]);
    assert_int_equal(run_ckpt("diff %s %s/CLUSTER-%llu", from, to, (unsigned long long)id), 0);
    cluster_node_stop(&heirs[1]); /* from now on its own checkpoint counts */
    cluster_node_start(&heirs[1], millraced);
    cluster_node_wait(&heirs[1], &s, heirs_own_all, "it is back");
    const uint64_t again = save(&heirs[0]);
    assert_int_equal(run_ckpt("diff %s %s/CLUSTER-%llu", from, to, (unsigned long long)again), 0);
    for (uint32_t i = 0; i < HEIRS; i++) {
        cluster_node_stop(&heirs[i]);
        cluster_node_destroy(&heirs[i]);
    }
    (void)temporary_directory_remove(to);
}

static void another_cluster_begins_with_it(void **state)
{
    char from[400];
    (void)state;
    place("CLUSTER", last, from);
    check_heirs("heirs", from);
    if (is_remote)
        return; /* the rest is the same */
    place("ckpt", of_single, from);
    check_heirs("heirs-of-one", from);
    char *to = temporary_directory_make();
    place("CLUSTER", last + 100, from);
    start_heirs("heirs-of-none", from, to);
    for (uint32_t i = 0; i < HEIRS; i++) {
        cluster_node_wait_says(&heirs[i], "this node serves nothing: cluster.init_from = ");
        cluster_node_destroy(&heirs[i]);
    }
    (void)temporary_directory_remove(to);
}

/* A command that asks about a node which has failed ends with this exit code, and says `why`: at last, as
 * nodes learn of each other's states through ZooKeeper. */
static void expect_why(int code, const char *why, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void expect_why(int code, const char *why, const char *format, ...)
{
    static char out[1 << 16];
    char line[900];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    int got = 0;
    if (!WAIT_WITHIN(WAIT_LIMIT_S, got = command_output(out, sizeof(out), "{ %s; } 2>&1", line),
                     got == code && strstr(out, why) != NULL))
        fail_msg("%s: exit code %d, and no \"%s\" in: %.2000s", line, got, why, out);
}

/* Among the lines with this pattern, of what a node says over HTTP. */
static void expect_http(const struct cluster_node *n, const char *path, const char *pattern, const char *says)
{
    const uint32_t port = METRICS_PORT + (uint32_t)(n - nodes);
    expect_why(0, says,
               "bash -c \"exec 3<>/dev/tcp/127.0.0.1/%u; printf 'GET /%s HTTP/1.0\\r\\n\\r\\n' >&3; "
               "grep -a '%s' <&3\"",
               port, path, pattern);
}

/* A lookup of a key of node `n`, by the map that it shows; again while it changes its map. */
static enum mr_status look_up_at(const struct cluster_node *n, char *text)
{
    static struct cluster_shown s;
    enum mr_status status = MR_WRONG_OWNER;
    const uint64_t began_us = wait_clock_us();
    while ((status == MR_WRONG_OWNER || status == MR_BUSY) &&
           wait_clock_us() - began_us < UINT64_C(1000000) * WAIT_LIMIT_S) {
        uint64_t key = 0;
        cluster_node_wait(n, &s, all_is_owned, "all partitions are owned");
        while (strcmp(s.nodes[s.owner[mr_partition_of(mr_key_hash(key, 0))]].name, n->name) != 0)
            key++;
        const struct mr_tensor tensor = mr_tensor_1d(MR_U64, 1, &key);
        struct wire_client_request request = {
            .op = MR_OP_LOOKUP, .table = 1, .tensors = &tensor, .tensor_count = 1};
        status = ask_core(n, mr_partition_of(mr_key_hash(key, 0)), &s, &request, text);
    }
    return status;
}

/* One that serves nothing beside others that do: a checkpoint would lack its part, and ends at once. */
static void one_that_serves_nothing_ends_checkpoints(void)
{
    char part[400], aside[420], why[200];
    (void)snprintf(part, sizeof(part), "%s/%s/ckpt-%llu", directory, nodes[1].name, (unsigned long long)last);
    (void)snprintf(aside, sizeof(aside), "%s.aside", part);
    (void)snprintf(why, sizeof(why), "its part of checkpoint %llu of the cluster cannot be loaded (",
                   (unsigned long long)last);
    cluster_node_kill(&nodes[1]);
    assert_int_equal(rename(part, aside), 0);
    cluster_node_start(&nodes[1], millraced);
    cluster_node_wait_says(&nodes[1], why);
    struct saved saved = begin_save(&nodes[0]);
    wait_saved(&nodes[0], &saved);
    assert_int_not_equal(saved.status, MR_OK);
    cluster_node_wait_says(&nodes[0], "was given up: node n1: the node serves nothing: its part of");
    assert_int_equal(rename(aside, part), 0);
}

/* Where a part of the cluster's checkpoint is missing, nodes serve nothing, and all that shows their state
 * says so, and why; once the part is back, they serve. */
static void nodes_that_serve_nothing_say_so(void **state)
{
    static struct cluster_shown s;
    char part[400], aside[420], why[200], text[WIRE_CLIENT_TEXT_BYTES] = "";
    (void)state;
    if (is_remote)
        skip();
    (void)snprintf(part, sizeof(part), "%s/%s/ckpt-%llu", directory, nodes[1].name, (unsigned long long)last);
    (void)snprintf(aside, sizeof(aside), "%s.aside", part);
    assert_int_equal(rename(part, aside), 0);
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_start(&nodes[i], millraced);
    (void)snprintf(why, sizeof(why), "its part of checkpoint %llu of the cluster cannot be loaded (",
                   (unsigned long long)last);
    for (uint32_t i = 0; i < NODES; i++) { /* each looks at all parts */
        cluster_node_wait(&nodes[i], &s, all_is_owned, "all partitions are owned");
        cluster_node_wait_says(&nodes[i], why);
    }

    const uint32_t port = nodes[1].port;
    expect_http(&nodes[1], "healthz", "", "503");
    expect_http(&nodes[1], "healthz", "", "failed: its part of checkpoint");
    expect_http(&nodes[1], "metrics", "node_state.*failed",
                "state=\"failed\",reason=\"its part of checkpoint");

    expect_why(0, why, "%s ctl heartbeat --server 127.0.0.1:%u", millrace, port);
    expect_why(0, why, "%s ctl heartbeat --json --server 127.0.0.1:%u", millrace, port);
    expect_why(0, "n1 serves nothing: its part of", "%s ctl nodes --server 127.0.0.1:%u", millrace, port);
    expect_why(0, "n1 serves nothing: its part of", "%s ctl nodes --server 127.0.0.1:%u", millrace,
               nodes[0].port);
    expect_why(0, "n1 was asked: it serves nothing", "%s ctl nodes --server 127.0.0.1:%u", millrace, port);
    expect_why(0, "n1: serves nothing: its part of", "%s top --count 1 --server 127.0.0.1:%u", millrace,
               port);
    char one[100]; /* of the map, in which nodes stand as they came */
    (void)snprintf(one, sizeof(one), "%.63s serves nothing, and ", s.nodes[0].name);
    expect_why(1, one, "%s doctor --server 127.0.0.1:%u", millrace, port);
    expect_why(1, why, "%s ctl list --server 127.0.0.1:%u", millrace, port);
    expect_why(1, why, "%s ctl list --server 127.0.0.1:%u", millrace, nodes[0].port);
    expect_why(1, why, "%s ctl save --wait --server 127.0.0.1:%u", millrace, port);

    for (uint32_t i = 0; i < NODES; i++) {
        assert_int_equal(look_up_at(&nodes[i], text), MR_CHECKPOINT_CORRUPT);
        if (strstr(text, "the node serves nothing: its part of checkpoint") == NULL)
            fail_msg("a lookup at %s: %s", nodes[i].name, text);
    }

    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_stop(&nodes[i]);
    assert_int_equal(rename(aside, part), 0);
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_start(&nodes[i], millraced);
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_wait(&nodes[i], &s, all_is_owned, "all partitions are owned");
    assert_int_equal(look_up_at(&nodes[1], text), MR_OK);
    expect_why(0, "there", "%s ctl nodes --server 127.0.0.1:%u", millrace, port);
    expect_why(0, " of the cluster", "%s ctl save --wait --server 127.0.0.1:%u", millrace, port);
    expect_why(0, "1 of 1 server serves", "%s doctor --zookeeper 127.0.0.1:%u | grep zookeeper", millrace,
               server.port);
    last = save(&nodes[1]);
    one_that_serves_nothing_ends_checkpoints();
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_stop(&nodes[i]);
}

static bool is_given_out(const struct cluster_shown *s)
{
    return s->node_count == NODES && s->owner[0] != MR_CLUSTER_NO_NODE;
}

/* A new cluster does not begin among the checkpoints of a former one. */
static void what_zookeeper_has_lost_is_not_replaced(void **state)
{
    static struct cluster_shown s;
    char text[WIRE_CLIENT_TEXT_BYTES] = "", path[128];
    const float bias[5] = {1};
    (void)state;
    zookeeper_server_kill(&server);
    zookeeper_server_forget(&server);
    zookeeper_server_start(&server);
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_start(&nodes[i], millraced);
    for (uint32_t i = 0; i < NODES; i++) {
        (void)snprintf(path, sizeof(path), "has CLUSTER-%llu, and ZooKeeper knows of none after 0",
                       (unsigned long long)last);
        cluster_node_wait_says(&nodes[i], path);
        cluster_node_wait(&nodes[i], &s, is_given_out, "partitions are given out");
        const struct mr_tensor tensor = mr_tensor_1d(MR_F32, 5, bias);
        const struct wire_client_request request = {.op = MR_OP_VARIABLE_PUSH,
                                                    .table = 1,
                                                    .tensors = &tensor,
                                                    .tensor_count = 1,
                                                    .epoch = (uint16_t)s.words[MR_CLUSTER_EPOCH]};
        struct wire_client *client = wire_client_create("127.0.0.1", nodes[i].port, 0);
        const enum mr_status status = wire_client_ask(client, &request, CALL_MS, text);
        wire_client_destroy(client);
        assert_int_equal(status, MR_CHECKPOINT_NOT_FOUND);
        assert_non_null(strstr(text, path)); /* the same as the log's */
    }
    assert_int_equal(verify_all(), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_node_saves_all),
        cmocka_unit_test(all_go_on_from_it),
        cmocka_unit_test(a_killed_node_leaves_all_or_nothing),
        cmocka_unit_test(the_others_take_over_from_it),
        cmocka_unit_test(a_file_that_comes_after_its_cut_was_given_up_is_ignored),
        cmocka_unit_test(all_parts_are_copied),
        cmocka_unit_test(a_single_node_takes_all),
        cmocka_unit_test(another_cluster_begins_with_it),
        cmocka_unit_test(nodes_that_serve_nothing_say_so),
        cmocka_unit_test(what_zookeeper_has_lost_is_not_replaced),
    };
    if (argc != 4) {
        (void)fprintf(stderr, "usage: %s MILLRACED MILLRACE disk|s3|hdfs\n", argv[0]);
        return 2;
    }
    is_remote = strcmp(argv[3], "disk") != 0;
    store.kind = strcmp(argv[3], "s3") == 0 ? PS_STORE_S3 : PS_STORE_HDFS;
    millraced = argv[1];
    millrace = argv[2];
    zookeeper_server_require();
    cluster_nodes_isolate();
    return cluster_nodes_end(cmocka_run_group_tests(tests, start_all, end_all));
}
