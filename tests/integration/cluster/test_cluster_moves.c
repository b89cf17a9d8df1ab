/* Partitions move between real nodes while a trainer pushes: every push counts once, whatever moves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "dataplane/wire/format/move.h"
#include "dataplane/wire/format/op.h"
#include "dataplane/wire/format/push_number.h"
#include "tests/command.h"
#include "tests/integration/cluster/cluster_nodes.h"
#include "tests/integration/cluster/zookeeper_server.h"
#include "tests/integration/wire_client.h"
#include "tests/unit/temporary_directory.h"
#include "tests/wait.h"

#define NODES     3u
#define KEYS      768u
#define DIM       4u
#define HAMMERS   2u
#define CALL_MS   60000u
#define VARIABLES 4u
#define ELEMENTS  6u
#define LARGE_DIM 64u
#define LARGE     40000u /* rows, some 10 MiB */
#define FILL_KEYS 2000u
#define WIDE_DIM  1024u
#define WIDE      72000u /* rows, some 300 MiB: more than two nodes have room for */
#define WIDE_KEYS 200u

static const char *millraced, *millrace;
static char *directory;
static struct zookeeper_server server;
static struct cluster_node nodes[NODES];

static bool all_is_owned(const struct cluster_shown *s)
{
    return s->node_count == NODES && s->owner[0] != MR_CLUSTER_NO_NODE &&
           s->words[MR_CLUSTER_LEASE_LEFT_US] > 0;
}

/* ---- pushes ---- A thread asks the owner of one key after the other, by the newest map that it knows. Each
 * push is about one key, so one that was refused for its owner was not applied, and is made again by a newer
 * map. A row is the number of its pushes. */

struct hammer {
    uint32_t first_key; /* its keys: every HAMMERS-th from this one on */
    struct wire_client *clients[NODES][CLUSTER_NODE_CORES];
    struct cluster_shown map;
    uint32_t place[MR_CLUSTER_NODES_MAX]; /* in `nodes`, of the map's nodes */
    uint32_t counts[KEYS];
    uint64_t refused;
    _Atomic uint64_t pushes;
    _Atomic bool stop;
    enum mr_status status; /* why it ended early */
    char text[WIRE_CLIENT_TEXT_BYTES];
    pthread_t thread;
};

static uint64_t key_of(uint32_t i)
{
    return i * UINT64_C(2654435761) + 1;
}

static void read_map(struct hammer *h)
{
    const struct cluster_node *n = &nodes[h->refused % NODES];
    if (cluster_node_show(n, &h->map) != MR_OK)
        return;
    for (uint32_t i = 0; i < h->map.node_count; i++)
        for (uint32_t k = 0; k < NODES; k++)
            if (strcmp(h->map.nodes[i].name, nodes[k].name) == 0)
                h->place[i] = k;
}

static struct wire_client *client_of(struct hammer *h, uint32_t node, uint32_t core)
{
    struct wire_client **client = &h->clients[node][core];
    if (*client == NULL)
        *client = wire_client_create("127.0.0.1", (uint16_t)(nodes[node].port + core), (uint16_t)core);
    return *client;
}

/* Asks the owner of the partition. */
static enum mr_status ask_owner(struct hammer *h, uint32_t partition, struct wire_client_request *request)
{
    const uint32_t node = h->place[h->map.owner[partition]];
    request->epoch = (uint16_t)h->map.words[MR_CLUSTER_EPOCH];
    return wire_client_ask(client_of(h, node, partition * CLUSTER_NODE_CORES / MR_PARTITION_COUNT), request,
                           CALL_MS, h->text);
}

static enum mr_status ask_until_owned(struct hammer *h, uint32_t partition,
                                      struct wire_client_request *request)
{
    const time_t end = time(NULL) + 60;
    enum mr_status status = ask_owner(h, partition, request);
    while (status == MR_WRONG_OWNER && time(NULL) < end) {
        h->refused++;
        read_map(h);
        status = ask_owner(h, partition, request);
    }
    return status;
}

static enum mr_status push(struct hammer *h, uint32_t i)
{
    uint64_t key = key_of(i);
    const float gradient[DIM] = {-1, -1, -1, -1};
    const uint32_t head[MR_PUSH_HEAD_WORDS] = {1};
    const struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, MR_PUSH_HEAD_WORDS, head),
                                         mr_tensor_1d(MR_U64, 1, &key), mr_tensor_1d(MR_U32, 0, NULL),
                                         mr_tensor_2d(MR_F32, 1, DIM, gradient)};
    struct wire_client_request request = {.op = MR_OP_PUSH_GRAD, .tensors = tensors, .tensor_count = 4};
    return ask_until_owned(h, mr_partition_of(mr_key_hash(key, 0)), &request);
}

static void keep_row(void *context, const struct mr_message *answer)
{
    memcpy(context, answer->tensors[0].data, DIM * sizeof(float));
}

static enum mr_status look_up(struct hammer *h, uint32_t i, float row[DIM])
{
    uint64_t key = key_of(i);
    const struct mr_tensor tensor = mr_tensor_1d(MR_U64, 1, &key);
    struct wire_client_request request = {
        .op = MR_OP_LOOKUP, .table = 1, .tensors = &tensor, .tensor_count = 1, .show = keep_row};
    request.context = row;
    return ask_until_owned(h, mr_partition_of(mr_key_hash(key, 0)), &request);
}

static void leave(struct hammer *h);

static void *run_hammer(void *arg)
{
    struct hammer *h = arg;
    float row[DIM];
    for (uint32_t i = h->first_key; !atomic_load(&h->stop) && h->status == MR_OK;
         i = i + HAMMERS < KEYS ? i + HAMMERS : h->first_key) {
        h->status = look_up(h, i, row);
        if (h->status == MR_OK && row[0] != (float)h->counts[i]) {
            (void)snprintf(h->text, sizeof(h->text), "key %u: %g after %u pushes", i, (double)row[0],
                           h->counts[i]);
            h->status = MR_INTERNAL;
        }
        if (h->status == MR_OK)
            h->status = push(h, i);
        if (h->status == MR_OK) {
            h->counts[i]++;
            atomic_fetch_add(&h->pushes, 1);
        }
    }
    return NULL;
}

static struct hammer hammers[HAMMERS];

static void start_hammers(void)
{
    for (uint32_t i = 0; i < HAMMERS; i++) {
        struct hammer *h = &hammers[i];
        memset(h, 0, sizeof(*h));
        h->first_key = i;
        read_map(h);
        for (uint32_t k = i; k < KEYS; k += HAMMERS) {
            float row[DIM];
            assert_int_equal(look_up(h, k, row), MR_OK);
            h->counts[k] = (uint32_t)row[0];
        }
        assert_int_equal(pthread_create(&h->thread, NULL, run_hammer, h), 0);
    }
}

/* Waits until each has made some more pushes. */
static void let_them(uint64_t pushes)
{
    for (uint32_t i = 0; i < HAMMERS; i++) {
        const uint64_t from = atomic_load(&hammers[i].pushes);
        WAIT_UNTIL(atomic_load(&hammers[i].pushes) >= from + pushes || hammers[i].status != MR_OK);
    }
}

/* Every row is the number of its pushes. Returns how often others owned a key than was thought. */
static uint64_t end_hammers(void)
{
    uint64_t refused = 0;
    for (uint32_t i = 0; i < HAMMERS; i++)
        atomic_store(&hammers[i].stop, true);
    for (uint32_t i = 0; i < HAMMERS; i++) {
        struct hammer *h = &hammers[i];
        assert_int_equal(pthread_join(h->thread, NULL), 0);
        if (h->status != MR_OK)
            fail_msg("%s: %s", mr_status_text(h->status), h->text);
        for (uint32_t k = i; k < KEYS; k += HAMMERS) {
            float row[DIM];
            if (look_up(h, k, row) != MR_OK)
                fail_msg("%s", h->text);
            if (row[0] != (float)h->counts[k] || row[DIM - 1] != row[0])
                fail_msg("key %u: %g after %u pushes", k, (double)row[0], h->counts[k]);
        }
        leave(h);
        refused += h->refused;
    }
    return refused;
}

/* ---- features ---- Table 1 is what is pushed to, table 2 what takes a while to be copied. */

static void name_variable(uint32_t i, char name[8])
{
    (void)snprintf(name, 8, "v%u", i);
}

static void create(const struct mr_feature *f, uint32_t count)
{
    char text[WIRE_CLIENT_TEXT_BYTES];
    const struct mr_tensor tensor = mr_tensor_2d(MR_U8, count, sizeof(*f), f);
    const struct wire_client_request request = {.op = MR_OP_CREATE, .tensors = &tensor, .tensor_count = 1};
    struct wire_client *client = wire_client_create("127.0.0.1", nodes[0].port, 0);
    if (wire_client_ask(client, &request, 60000, text) != MR_OK)
        fail_msg("%s", text);
    wire_client_destroy(client);
}

static void create_features(void)
{
    char name[8];
    struct mr_feature f[2 + VARIABLES] = {mr_feature_table("t", DIM), mr_feature_table("large", LARGE_DIM)};
    const uint32_t elements = ELEMENTS;
    f[0].optimizer = MR_OPT_SGD;
    f[0].learning_rate = 1;
    for (uint32_t i = 0; i < VARIABLES; i++) {
        name_variable(i, name);
        f[2 + i] = mr_feature_variable(name, 1, &elements);
    }
    create(f, 2 + VARIABLES);
}

static struct hammer visitor; /* of this thread */

static void visit(void)
{
    memset(&visitor, 0, sizeof(visitor));
    read_map(&visitor);
}

static void leave(struct hammer *h)
{
    for (uint32_t n = 0; n < NODES; n++)
        for (uint32_t c = 0; c < CLUSTER_NODE_CORES; c++)
            if (h->clients[n][c] != NULL)
                wire_client_destroy(h->clients[n][c]);
    memset(h->clients, 0, sizeof(h->clients));
}

/* Looks up so many keys of a table, `step` of them at a time, which makes their rows. */
static void fill(uint16_t table, uint32_t count, uint32_t step)
{
    static uint64_t keys[NODES * CLUSTER_NODE_CORES][FILL_KEYS];
    visit();
    for (uint64_t first = 0; first < count; first += step) {
        uint32_t counts[NODES * CLUSTER_NODE_CORES] = {0};
        uint32_t partition[NODES * CLUSTER_NODE_CORES];
        for (uint64_t key = first; key < first + step; key++) {
            const uint32_t p = mr_partition_of(mr_key_hash(key, 0));
            const uint32_t to =
                visitor.map.owner[p] * CLUSTER_NODE_CORES + p * CLUSTER_NODE_CORES / MR_PARTITION_COUNT;
            partition[to] = p;
            keys[to][counts[to]++] = key;
        }
        for (uint32_t to = 0; to < NODES * CLUSTER_NODE_CORES; to++) {
            const struct mr_tensor tensor = mr_tensor_1d(MR_U64, counts[to], keys[to]);
            struct wire_client_request request = {
                .op = MR_OP_LOOKUP, .table = table, .tensors = &tensor, .tensor_count = 1};
            if (counts[to] > 0 && ask_owner(&visitor, partition[to], &request) != MR_OK)
                fail_msg("%s", visitor.text);
        }
    }
    leave(&visitor);
}

static enum mr_status ask_variable(uint32_t i, struct wire_client_request *request)
{
    char name[8];
    name_variable(i, name);
    request->table = (uint16_t)(3 + i);
    return ask_until_owned(&visitor, mr_variable_partition(name), request);
}

static void set_variables(void)
{
    visit();
    for (uint32_t i = 0; i < VARIABLES; i++) {
        uint64_t first = 0;
        float values[ELEMENTS];
        for (uint32_t k = 0; k < ELEMENTS; k++)
            values[k] = (float)(100 * i + k);
        const struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U64, 1, &first),
                                             mr_tensor_1d(MR_F32, ELEMENTS, values)};
        struct wire_client_request request = {
            .op = MR_OP_VARIABLE_PUSH, .tensors = tensors, .tensor_count = 2};
        if (ask_variable(i, &request) != MR_OK)
            fail_msg("%s", visitor.text);
    }
    leave(&visitor);
}

static void keep_values(void *context, const struct mr_message *answer)
{
    assert_int_equal(answer->tensors[0].bytes, ELEMENTS * sizeof(float));
    memcpy(context, answer->tensors[0].data, ELEMENTS * sizeof(float));
}

static void check_variables(void)
{
    visit();
    for (uint32_t i = 0; i < VARIABLES; i++) {
        const uint64_t all[2] = {0, 0};
        float values[ELEMENTS];
        const struct mr_tensor tensor = mr_tensor_1d(MR_U64, 2, all);
        struct wire_client_request request = {.op = MR_OP_VARIABLE_PULL,
                                              .tensors = &tensor,
                                              .tensor_count = 1,
                                              .show = keep_values,
                                              .context = values};
        if (ask_variable(i, &request) != MR_OK)
            fail_msg("%s", visitor.text);
        for (uint32_t k = 0; k < ELEMENTS; k++)
            assert_true(values[k] == (float)(100 * i + k));
    }
    leave(&visitor);
}

/* ---- moves ---- */

static uint32_t index_of(const struct cluster_shown *s, const char *name)
{
    uint32_t i = 0;
    while (i < s->node_count && strcmp(s->nodes[i].name, name) != 0)
        i++;
    assert_true(i < s->node_count);
    return i;
}

static uint32_t owned_by(const struct cluster_shown *s, uint32_t index)
{
    uint32_t count = 0;
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        count += s->owner[p] == index;
    return count;
}

static enum mr_status ask(const struct cluster_node *asked, enum mr_move_kind kind, const char *from,
                          const char *to, uint64_t count, uint64_t mib_s, char *text)
{
    char names[2][MR_CLUSTER_NAME_BYTES] = {"", ""};
    (void)snprintf(names[0], sizeof(names[0]), "%s", from);
    (void)snprintf(names[1], sizeof(names[1]), "%s", to);
    const uint64_t words[MR_MOVE_REQUEST_WORDS] = {[MR_MOVE_REQUEST_KIND] = kind,
                                                   [MR_MOVE_REQUEST_FIRST] = MR_MOVE_ANY,
                                                   [MR_MOVE_REQUEST_COUNT] = count,
                                                   [MR_MOVE_REQUEST_MIB_S] = mib_s};
    const struct mr_tensor tensors[2] = {mr_body_tensor(MR_BODY_MOVE_REQUEST, words),
                                         mr_tensor_2d(MR_U8, 2, MR_CLUSTER_NAME_BYTES, names)};
    const struct wire_client_request request = {.op = MR_OP_MOVE, .tensors = tensors, .tensor_count = 2};
    struct wire_client *client = wire_client_create("127.0.0.1", asked->port, 0);
    const enum mr_status status = wire_client_ask(client, &request, 60000, text);
    wire_client_destroy(client);
    return status;
}

static void ask_well(const struct cluster_node *asked, enum mr_move_kind kind, const char *from,
                     const char *to, uint64_t count, uint64_t mib_s)
{
    char text[WIRE_CLIENT_TEXT_BYTES] = "";
    if (ask(asked, kind, from, to, count, mib_s, text) != MR_OK)
        fail_msg("%s", text);
}

struct in_motion {
    uint64_t moves, balances;
    uint64_t rows[16][MR_MOVES_ROW_WORDS];
};

static void keep_moves(void *context, const struct mr_message *answer)
{
    struct in_motion *out = context;
    assert_int_equal(answer->preamble.tensor_count, 3);
    out->balances = ((const uint64_t *)answer->tensors[0].data)[MR_MOVES_BALANCES];
    out->moves = answer->tensors[1].dims[0];
    assert_int_in_range(out->moves, 0, 16);
    memcpy(out->rows, answer->tensors[1].data, answer->tensors[1].bytes);
}

static struct in_motion moves_of(const struct cluster_node *n)
{
    struct in_motion out = {0};
    char text[WIRE_CLIENT_TEXT_BYTES];
    const struct wire_client_request request = {.op = MR_OP_MOVES, .show = keep_moves, .context = &out};
    struct wire_client *client = wire_client_create("127.0.0.1", n->port, 0);
    assert_int_equal(wire_client_ask(client, &request, 60000, text), MR_OK);
    wire_client_destroy(client);
    return out;
}

/* Waits until nothing moves any more, as this node has it. */
static void wait_still(const struct cluster_node *n)
{
    struct in_motion m;
    WAIT_UNTIL(m = moves_of(n), m.moves == 0 && m.balances == 0);
}

/* Waits until the node owns as many partitions, as it has it itself. */
static void wait_owns(const struct cluster_node *n, uint32_t least, uint32_t most)
{
    static struct cluster_shown s;
    WAIT_UNTIL(cluster_node_show(n, &s) == MR_OK && s.node_count >= NODES &&
               owned_by(&s, index_of(&s, n->name)) >= least && owned_by(&s, index_of(&s, n->name)) <= most);
}

/* ---- tests, in this order ---- */

static int start_all(void **state)
{
    static struct cluster_shown shown;
    char settings[512];
    (void)state;
    directory = temporary_directory_make();
    zookeeper_server_create(&server);
    (void)snprintf(settings, sizeof(settings),
                   "zookeeper = 127.0.0.1:%u\nnodes = %u\nsession_ms = 3000\nrebalance = by_hand\n"
                   "[checkpoint]\ndirectory = %s\ndeltas = 3\n",
                   server.port, NODES, directory);
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_create(&nodes[i], millraced, i, settings);
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_wait(&nodes[i], &shown, all_is_owned, "all partitions are owned");
    return 0;
}

static int end_all(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_destroy(&nodes[i]);
    zookeeper_server_destroy(&server);
    (void)temporary_directory_remove(directory);
    return 0;
}

/* Runs `millrace ctl ARGUMENTS` and returns its exit code; what it prints is in tool_output. */
static char tool_output[4096];
static int run_tool(const char *arguments)
{
    return command_output(tool_output, sizeof(tool_output),
                          "%s ctl %s --server 127.0.0.1:%u,127.0.0.1:%u --deadline-ms 60000 2>&1", millrace,
                          arguments, nodes[1].port, nodes[0].port);
}

static void test_pushes_count_once_while_partitions_move(void **state)
{
    (void)state;
    create_features();
    set_variables();
    start_hammers();
    for (uint32_t round = 0; round < 3; round++) {
        ask_well(&nodes[round], MR_MOVE_PARTITIONS, nodes[0].name, nodes[1].name, 0, 0);
        wait_still(&nodes[0]);
        wait_owns(&nodes[0], 0, 0);
        let_them(20);
        check_variables();
        ask_well(&nodes[round], MR_MOVE_PARTITIONS, nodes[1].name, nodes[0].name, 1365, 0);
        wait_still(&nodes[1]);
        wait_owns(&nodes[0], 1365, 1365);
        let_them(20);
    }
    assert_true(end_hammers() > 0);
    check_variables();
}

static void test_what_cannot_be_moved_is_refused(void **state)
{
    char text[WIRE_CLIENT_TEXT_BYTES] = "";
    (void)state;
    assert_int_equal(ask(&nodes[0], MR_MOVE_PARTITIONS, "nobody", nodes[1].name, 1, 0, text),
                     MR_INVALID_ARGUMENT);
    assert_non_null(strstr(text, "no node of this cluster is called nobody"));
    assert_int_equal(ask(&nodes[0], MR_MOVE_PARTITIONS, nodes[1].name, nodes[1].name, 1, 0, text),
                     MR_INVALID_ARGUMENT);
    assert_non_null(strstr(text, "are there already"));
}

static uint64_t bytes_moved(const struct cluster_node *from)
{
    const struct in_motion m = moves_of(from);
    uint64_t bytes = 0;
    assert_true(m.moves > 0); /* several, if what it has is in several runs */
    for (uint64_t i = 0; i < m.moves; i++)
        bytes += m.rows[i][MR_MOVES_ROW_BYTES];
    return bytes;
}

/* At 1 MiB/s the large table takes seconds. */
static void begin_slow_move(const struct cluster_node *from, const struct cluster_node *to)
{
    ask_well(from, MR_MOVE_PARTITIONS, from->name, to->name, 0, 1);
    WAIT_UNTIL(bytes_moved(from) > 0);
}

static void test_a_cancelled_move_leaves_all_where_it_was(void **state)
{
    static struct cluster_shown before, after;
    (void)state;
    fill(2, LARGE, FILL_KEYS);
    start_hammers();
    assert_int_equal(cluster_node_show(&nodes[0], &before), MR_OK);
    begin_slow_move(&nodes[0], &nodes[1]);
    let_them(20);
    ask_well(&nodes[2], MR_MOVE_CANCEL, "", "", 0, 0);
    wait_still(&nodes[1]);
    assert_int_equal(cluster_node_show(&nodes[0], &after), MR_OK);
    assert_memory_equal(before.owner, after.owner, sizeof(before.owner));
    cluster_node_wait_says(&nodes[1], "from node n0: cancelled");
    let_them(20);
    ask_well(&nodes[2], MR_MOVE_PARTITIONS, nodes[0].name, nodes[1].name, 0, 0); /* from the beginning */
    wait_owns(&nodes[0], 0, 0);
    let_them(20);
    (void)end_hammers();
    check_variables();
}

static void test_a_node_is_drained_and_taken_in_again(void **state)
{
    char text[WIRE_CLIENT_TEXT_BYTES] = "";
    (void)state;
    start_hammers();
    ask_well(&nodes[0], MR_MOVE_DRAIN, nodes[2].name, "", 0, 0);
    wait_owns(&nodes[2], 0, 0);
    wait_still(&nodes[2]);
    let_them(20);
    assert_int_equal(ask(&nodes[0], MR_MOVE_PARTITIONS, nodes[1].name, nodes[2].name, 1, 0, text),
                     MR_INVALID_ARGUMENT);
    assert_non_null(strstr(text, "is drained"));
    ask_well(&nodes[1], MR_MOVE_BALANCE, "", "", 0, 0);
    for (uint32_t i = 0; i < NODES; i++)
        wait_owns(&nodes[i], MR_PARTITION_COUNT / NODES, MR_PARTITION_COUNT / NODES + 1);
    wait_still(&nodes[1]);
    let_them(20);
    assert_true(end_hammers() > 0);
    check_variables();
}

static const char *gone; /* the name of a node that was killed */
static bool is_seen_away(const struct cluster_shown *s)
{
    for (uint32_t i = 0; i < s->node_count; i++)
        if (strcmp(s->nodes[i].name, gone) == 0)
            return (s->nodes[i].flags & MR_CLUSTER_NODE_PRESENT) == 0;
    return true;
}

/* Until all others know it. */
static void wait_away(const struct cluster_node *n)
{
    static struct cluster_shown shown;
    gone = n->name;
    for (uint32_t i = 0; i < NODES; i++)
        if (&nodes[i] != n)
            cluster_node_wait(&nodes[i], &shown, is_seen_away, "the others see that it is away");
}

static void expect_tool(bool works, const char *arguments, const char *says)
{
    if ((run_tool(arguments) == 0) != works || strstr(tool_output, says) == NULL)
        fail_msg("ctl %s: %s", arguments, tool_output);
}

/* The target dies in the middle: the source has never stopped to serve. */
static void test_the_target_is_killed(void **state)
{
    static struct cluster_shown shown;
    (void)state;
    ask_well(&nodes[0], MR_MOVE_DRAIN, nodes[2].name, "", 0, 0); /* what it has would be lost with it */
    wait_owns(&nodes[2], 0, 0);
    ask_well(&nodes[0], MR_MOVE_CANCEL, "", "", 0, 0); /* it may have partitions again */
    wait_still(&nodes[0]);
    start_hammers();
    begin_slow_move(&nodes[0], &nodes[2]);
    let_them(5);
    cluster_node_kill(&nodes[2]);
    wait_still(&nodes[0]);
    wait_away(&nodes[2]);
    expect_tool(false, "move --from n0 --to n2", "node n2 is away");
    expect_tool(false, "forget n0", "node n0 is there");
    expect_tool(true, "forget n2", "n2 is forgotten");
    expect_tool(false, "forget n2", "no node of this cluster is called n2");
    let_them(50);
    cluster_node_start(&nodes[2], millraced);
    cluster_node_wait(&nodes[2], &shown, all_is_owned, "it is back");
    ask_well(&nodes[2], MR_MOVE_PARTITIONS, nodes[0].name, nodes[2].name, 300, 0);
    wait_owns(&nodes[2], 300, 300);
    let_them(20);
    (void)end_hammers();
}

/* The source dies in the middle: its partitions stay its own, and are served when it is back. What it held
 * is lost, as there is no checkpoint. */
static void test_the_source_is_killed(void **state)
{
    static struct cluster_shown shown;
    (void)state;
    fill(2, LARGE, FILL_KEYS);
    begin_slow_move(&nodes[1], &nodes[2]);
    cluster_node_kill(&nodes[1]);
    wait_still(&nodes[2]);
    wait_owns(&nodes[2], 300, 300);
    wait_away(&nodes[1]); /* which decides nothing for those that are there */
    expect_tool(true, "list", "without the rows of n1, which is away");
    expect_tool(true, "create table late --dim 4", "");
    expect_tool(true, "drop late", "");
    expect_tool(false, "save", "node n1 is away, and a checkpoint of the cluster needs its");
    expect_tool(false, "move --from n1 --to n0", "node n1 is away, and owns");
    expect_tool(false, "drain n1", "node n1 is away, and owns");
    expect_tool(false, "forget n1", "which nobody else has");
    expect_tool(true, "rebalance --wait", "n1 is away and keeps its");
    cluster_node_start(&nodes[1], millraced);
    cluster_node_wait(&nodes[1], &shown, all_is_owned, "it is back");
    start_hammers();
    let_them(KEYS / HAMMERS);
    (void)end_hammers();
}

/* A numbered push to the owner of key `i`, once, by the map as node 0 has it. */
static enum mr_status try_numbered(uint32_t i, uint64_t number, char *text)
{
    static const uint8_t uuid[MR_UUID_BYTES] = "sent once more!";
    uint64_t key = key_of(i);
    const float gradient[DIM] = {-1, -1, -1, -1};
    const uint32_t head[MR_PUSH_HEAD_WORDS] = {1};
    const struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, MR_PUSH_HEAD_WORDS, head),
                                         mr_tensor_1d(MR_U64, 1, &key), mr_tensor_1d(MR_U32, 0, NULL),
                                         mr_tensor_2d(MR_F32, 1, DIM, gradient)};
    const uint32_t partition = mr_partition_of(mr_key_hash(key, 0));
    const uint32_t core = partition * CLUSTER_NODE_CORES / MR_PARTITION_COUNT;
    visit();
    const struct wire_client_request request = {.op = MR_OP_PUSH_GRAD,
                                                .tensors = tensors,
                                                .tensor_count = 4,
                                                .sequence =
                                                    mr_push_sequence(mr_push_stream_chosen(1), number),
                                                .epoch = (uint16_t)visitor.map.words[MR_CLUSTER_EPOCH]};
    const uint32_t node = visitor.place[visitor.map.owner[partition]];
    struct wire_client *client =
        wire_client_create_as("127.0.0.1", (uint16_t)(nodes[node].port + core), (uint16_t)core, uuid);
    const enum mr_status status = wire_client_ask(client, &request, CALL_MS, text);
    wire_client_destroy(client);
    return status;
}

/* Until its owner has the same map. */
static void push_numbered(uint32_t i, uint64_t number)
{
    char text[WIRE_CLIENT_TEXT_BYTES] = "";
    enum mr_status status;
    WAIT_UNTIL((status = try_numbered(i, number, text)) != MR_WRONG_OWNER);
    if (status != MR_OK)
        fail_msg("%s", text);
}

static float value_of(uint32_t i)
{
    float row[DIM];
    visit();
    if (look_up(&visitor, i, row) != MR_OK)
        fail_msg("%s", visitor.text);
    leave(&visitor);
    return row[0];
}

/* Its first answer may have been lost: the new owner knows that it was applied. */
static void test_a_push_sent_again_to_the_new_owner_counts_once(void **state)
{
    static struct cluster_shown s;
    uint32_t key = 0;
    (void)state;
    assert_int_equal(cluster_node_show(&nodes[0], &s), MR_OK);
    while (s.owner[mr_partition_of(mr_key_hash(key_of(key), 0))] != index_of(&s, nodes[0].name))
        key++;
    const float before = value_of(key);
    push_numbered(key, 1);
    push_numbered(key, 3);
    ask_well(&nodes[0], MR_MOVE_PARTITIONS, nodes[0].name, nodes[1].name, 0, 0);
    wait_still(&nodes[0]);
    wait_owns(&nodes[0], 0, 0);
    push_numbered(key, 3);
    push_numbered(key, 1);
    assert_true(value_of(key) == before + 2);
    push_numbered(key, 2); /* this one was never applied */
    assert_true(value_of(key) == before + 3);
    ask_well(&nodes[0], MR_MOVE_PARTITIONS, nodes[1].name, nodes[0].name, 1365, 0);
    wait_owns(&nodes[0], 1365, 1365);
}

/* What moved is in the checkpoint of the node that has it since, and nowhere else. */
static void test_a_checkpoint_after_moves_holds_all(void **state)
{
    static struct cluster_shown shown;
    (void)state;
    set_variables();
    start_hammers();
    ask_well(&nodes[0], MR_MOVE_PARTITIONS, nodes[0].name, nodes[2].name, 200, 0);
    let_them(KEYS / HAMMERS);
    wait_still(&nodes[0]);
    (void)end_hammers();
    if (run_tool("save --wait") != 0)
        fail_msg("%s", tool_output);
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_kill(&nodes[i]);
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_start(&nodes[i], millraced);
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_wait(&nodes[i], &shown, all_is_owned, "they are back");
    visit();
    for (uint32_t k = 0; k < KEYS; k++) {
        float row[DIM];
        if (look_up(&visitor, k, row) != MR_OK)
            fail_msg("%s", visitor.text);
        assert_true(row[0] == (float)hammers[k % HAMMERS].counts[k]);
    }
    leave(&visitor);
    check_variables();
}

/* It has nothing to write, so nobody waits for it. */
static void test_a_checkpoint_does_without_a_drained_node(void **state)
{
    static struct cluster_shown shown;
    (void)state;
    ask_well(&nodes[0], MR_MOVE_DRAIN, nodes[2].name, "", 0, 0);
    wait_owns(&nodes[2], 0, 0);
    wait_still(&nodes[0]);
    cluster_node_stop(&nodes[2]);
    if (run_tool("save --wait") != 0)
        fail_msg("%s", tool_output);
    cluster_node_start(&nodes[2], millraced);
    cluster_node_wait(&nodes[2], &shown, all_is_owned, "it is back");
    ask_well(&nodes[2], MR_MOVE_BALANCE, "", "", 0, 0);
    wait_owns(&nodes[2], MR_PARTITION_COUNT / NODES, MR_PARTITION_COUNT / NODES + 1);
    wait_still(&nodes[2]);
}

/* What the target has loaded of the move goes again, and the source keeps it. */
static void test_a_target_without_room_gets_nothing(void **state)
{
    static struct cluster_shown shown;
    const struct mr_feature wide = mr_feature_table("wide", WIDE_DIM);
    (void)state;
    create(&wide, 1);
    fill(2 + VARIABLES + 2, WIDE, WIDE_KEYS); /* after "late" */
    start_hammers();
    ask_well(&nodes[2], MR_MOVE_PARTITIONS, nodes[1].name, nodes[0].name, 0, 0);
    cluster_node_wait_says(&nodes[0], "cannot be copied: wide: the node's memory limit is reached: raise "
                                      "memory.limit_mib");
    wait_still(&nodes[1]);
    assert_int_equal(cluster_node_show(&nodes[1], &shown), MR_OK);
    const uint32_t kept = owned_by(&shown, index_of(&shown, nodes[1].name));
    assert_true(kept > 200);
    let_them(20);
    ask_well(&nodes[0], MR_MOVE_PARTITIONS, nodes[1].name, nodes[2].name, 200, 0); /* which has room */
    wait_owns(&nodes[1], kept - 200, kept - 200);
    let_them(20);
    (void)end_hammers();
    check_variables();
}

static void test_the_tool_moves_and_shows(void **state)
{
    (void)state;
    start_hammers();
    if (run_tool("rebalance --wait") != 0 || strstr(tool_output, "0 moves in progress") == NULL)
        fail_msg("%s", tool_output);
    wait_owns(&nodes[0], MR_PARTITION_COUNT / NODES, MR_PARTITION_COUNT / NODES + 1);
    if (run_tool("move --from n0 --to n1 --partitions 100 --wait --rate-mib-s 500") != 0)
        fail_msg("%s", tool_output);
    wait_owns(&nodes[0], MR_PARTITION_COUNT / NODES - 100, MR_PARTITION_COUNT / NODES - 99);
    if (run_tool("drain n0 --wait") != 0)
        fail_msg("%s", tool_output);
    wait_owns(&nodes[0], 0, 0);
    if (run_tool("moves") != 0 || strstr(tool_output, "nothing moves") == NULL ||
        strstr(tool_output, "1 node is drained") == NULL)
        fail_msg("%s", tool_output);
    if (run_tool("moves --json") != 0 || strstr(tool_output, "\"moves\": []") == NULL)
        fail_msg("%s", tool_output);
    if (run_tool("rebalance --wait") != 0)
        fail_msg("%s", tool_output);
    assert_int_not_equal(run_tool("move --from n0 --to nobody"), 0);
    assert_non_null(strstr(tool_output, "no node of this cluster is called nobody"));
    assert_int_not_equal(run_tool("move --from n0"), 0);
    assert_non_null(strstr(tool_output, "name both nodes"));
    assert_int_not_equal(run_tool("move --from n0 --to n1 --partitions 9-3"), 0);
    assert_non_null(strstr(tool_output, "--partitions 9-3"));
    (void)end_hammers();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pushes_count_once_while_partitions_move),
        cmocka_unit_test(test_a_push_sent_again_to_the_new_owner_counts_once),
        cmocka_unit_test(test_what_cannot_be_moved_is_refused),
        cmocka_unit_test(test_a_cancelled_move_leaves_all_where_it_was),
        cmocka_unit_test(test_a_node_is_drained_and_taken_in_again),
        cmocka_unit_test(test_the_tool_moves_and_shows),
        cmocka_unit_test(test_the_target_is_killed),
        cmocka_unit_test(test_the_source_is_killed),
        cmocka_unit_test(test_a_checkpoint_after_moves_holds_all),
        cmocka_unit_test(test_a_checkpoint_does_without_a_drained_node),
        cmocka_unit_test(test_a_target_without_room_gets_nothing),
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
