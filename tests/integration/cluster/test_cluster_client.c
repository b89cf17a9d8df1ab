/* A client of three real nodes of one cluster: tables over all of them, a node that is killed and comes back,
 * ZooKeeper away under load, partitions that move under load, and nodes that are killed meanwhile.
 * MILLRACE_AWAY_S: for how long, two sessions unless set. MILLRACE_MOVES: how often a node is drained, twice
 * unless set. MILLRACE_KILLS: how many moves at random, most with a kill; MILLRACE_SEED: which. By hand, as
 * each takes some seconds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "tests/command.h"
#include "tests/integration/cluster/cluster_nodes.h"
#include "tests/integration/cluster/zookeeper_server.h"
#include "tests/integration/trainer/torchrec_fixture.h"
#include "trainer_client/millrace.h"
#include "trainer_client/millrace_admin.h"
#include "trainer_client/millrace_observe.h"

#define NODES 3u
#define KEYS  600u
#define DIM   4u
#define STEPS 60u

#define SESSION_MS 3000u
#define IN_FLIGHT  8u     /* pushes, and as many lookups */
#define PAUSE_MS   10u    /* between two pairs */
#define CALL_MS    180000 /* longer than ZooKeeper is ever away */

static const char *millraced, *millrace, *torchrec_plugin, *python, *script;
static struct zookeeper_server server;
static struct cluster_node nodes[NODES];

struct trainer {
    struct mr_client *client;
    uint32_t table;
    uint64_t keys[KEYS];
    float rows[KEYS][DIM]; /* what SGD makes of them, one push after the other */
};

static struct mr_client *connect_to(const char *servers)
{
    const struct mr_client_options options = {
        .server = servers, .deadline_ms = CALL_MS, .connect_ms = 60000, .replay = true};
    struct mr_client *client = NULL;
    char error[512] = "";
    if (mr_client_create(&options, &client, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    return client;
}

/* Two of the nodes, as a list of servers. */
static const char *some_servers(void)
{
    static char servers[64];
    (void)snprintf(servers, sizeof(servers), "127.0.0.1:%u,127.0.0.1:%u", nodes[0].port, nodes[2].port);
    return servers;
}

static void begin(struct trainer *t, const char *name)
{
    struct mr_feature feature = mr_feature_table(name, DIM);
    feature.optimizer = MR_OPT_SGD;
    feature.learning_rate = 1;
    memset(t, 0, sizeof(*t));
    t->client = connect_to(some_servers());
    for (uint32_t i = 0; i < KEYS; i++)
        t->keys[i] = i * UINT64_C(2654435761) + 1;
    if (mr_create(t->client, NULL, &feature, 1, &t->table) != MR_OK)
        fail_msg("%s", mr_last_error());
}

/* Each push has other gradients. Those of a push that is waited for are fractions, so that the order of
 * pushes shows in the bits; pushes that are in flight together may overtake each other. */
static enum mr_status push(struct trainer *t, uint64_t step, struct mr_future **future)
{
    static float gradients[KEYS][DIM];
    const struct mr_options options = {.step = step, .future = future};
    for (uint32_t i = 0; i < KEYS; i++) {
        for (uint32_t d = 0; d < DIM; d++) {
            gradients[i][d] =
                future == NULL ? 1.0f / (float)(step + i + d + 1) : (float)(step * step + i + d);
            t->rows[i][d] -= gradients[i][d];
        }
    }
    return mr_push_gradients(t->client, &options, t->table, t->keys, KEYS, DIM, gradients[0]);
}

static void check_rows(const struct trainer *t)
{
    struct mr_reply *reply;
    if (mr_lookup(t->client, NULL, t->table, t->keys, KEYS, &reply) != MR_OK)
        fail_msg("%s", mr_last_error());
    const float *found = mr_reply_tensor(reply, 0)->data;

    for (uint32_t i = 0; i < KEYS * DIM; i++)
        if (found[i] != t->rows[i / DIM][i % DIM])
            fail_msg("key %u, value %u: %.9g, not %.9g", i / DIM, i % DIM, (double)found[i],
                     (double)t->rows[i / DIM][i % DIM]);
    mr_reply_free(reply);
}

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

static void test_a_table_over_all_nodes(void **state)
{
    static struct trainer t;
    struct mr_core_state states[NODES * CLUSTER_NODE_CORES];
    struct mr_feature_info *infos;
    uint32_t count;
    (void)state;
    begin(&t, "spread");
    assert_int_equal(mr_client_core_count(t.client), NODES * CLUSTER_NODE_CORES);
    for (uint64_t step = 1; step <= 5; step++)
        assert_int_equal(push(&t, step, NULL), MR_OK);
    check_rows(&t);
    assert_int_equal(mr_heartbeat(t.client, NULL, states), MR_OK);
    for (uint32_t i = 0; i < NODES * CLUSTER_NODE_CORES; i++)
        assert_int_in_range(states[i].rows, 1, KEYS / 2);
    assert_int_equal(mr_list(t.client, NULL, &infos, &count), MR_OK);
    assert_int_equal(count, 1);
    assert_int_equal(infos[0].rows, KEYS);
    free(infos);
    mr_client_destroy(t.client);
}

/* A push is applied once, in order, also by the node that was killed and has lost everything. */
static void test_a_node_is_killed_amid_pushes(void **state)
{
    static struct trainer t;
    static struct mr_future *futures[STEPS];
    (void)state;
    begin(&t, "killed");
    for (uint64_t step = 0; step < STEPS; step++) {
        assert_int_equal(push(&t, step + 1, &futures[step]), MR_OK);
        if (step == STEPS / 3)
            cluster_node_kill(&nodes[1]);
        if (step == STEPS / 2)
            cluster_node_start(&nodes[1], millraced);
        if (step < STEPS / 3)
            assert_int_equal(mr_future_wait(futures[step], NULL), MR_OK);
    }
    for (uint32_t step = 0; step < STEPS; step++) {
        if (step >= STEPS / 3 && mr_future_wait(futures[step], NULL) != MR_OK)
            fail_msg("step %u: %s", step + 1, mr_last_error());
        mr_future_destroy(futures[step]);
    }
    struct mr_replay_info info;

    mr_client_replay_info(t.client, &info);
    assert_true(info.replayed > 0);
    assert_int_equal(info.dropped, 0);
    check_rows(&t);
    mr_client_destroy(t.client);
}

/* ---- without ZooKeeper ---- */

static bool has_lease(const struct cluster_shown *s)
{
    return s->words[MR_CLUSTER_LEASE_LEFT_US] > 0;
}

static bool has_no_lease(const struct cluster_shown *s)
{
    return !has_lease(s);
}

/* Pairs of a push and a lookup in flight, one pair after the other. */
struct load {
    struct trainer *trainer;
    struct mr_future *futures[IN_FLIGHT][2];
    uint64_t begun, ended;
};

static void begin_pair(struct load *l)
{
    struct trainer *t = l->trainer;
    struct mr_future **pair = l->futures[l->begun++ % IN_FLIGHT];
    const struct mr_options options = {.future = &pair[1]};
    if (push(t, l->begun % STEPS, &pair[0]) != MR_OK)
        fail_msg("pair %u: %s", (unsigned)l->begun, mr_last_error());
    assert_int_equal(mr_lookup(t->client, &options, t->table, t->keys, KEYS, NULL), MR_OK);
}

/* Ends the oldest pair if it is done within so long. No call may fail. */
static bool end_pair(struct load *l, uint32_t wait_ms)
{
    struct mr_future **pair = l->futures[l->ended % IN_FLIGHT];
    for (uint32_t i = 0; i < 2; i++)
        if (!mr_future_wait_for(pair[i], wait_ms))
            return false;
    for (uint32_t i = 0; i < 2; i++) {
        if (mr_future_wait(pair[i], NULL) != MR_OK)
            fail_msg("pair %u: %s", (unsigned)l->ended, mr_last_error());
        mr_future_destroy(pair[i]);
    }
    l->ended++;
    return true;
}

static uint64_t now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void load_for(struct load *l, uint64_t ms)
{
    const uint64_t end_ms = now_ms() + ms;
    while (now_ms() < end_ms) {
        if (l->begun - l->ended < IN_FLIGHT)
            begin_pair(l);
        if (!end_pair(l, PAUSE_MS))
            continue;
        (void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
    }
}

static bool any_session_ended(void)
{
    bool any = false;
    for (uint32_t i = 0; i < NODES; i++)
        any |= cluster_node_says(&nodes[i], "has ended this node's session");
    return any;
}

/* ZooKeeper goes, until no node has a lease, and comes back; all calls go on. Returns how many pairs of calls
 * ended while it was away. */
static uint64_t take_zookeeper_away(struct load *l, uint64_t away_ms)
{
    struct cluster_shown shown;
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_wait(&nodes[i], &shown, has_lease, "it has a lease");
    load_for(l, PAUSE_MS);
    zookeeper_server_kill(&server);
    const uint64_t ended = l->ended;
    load_for(l, away_ms);
    const uint64_t ended_without = l->ended - ended;
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_wait(&nodes[i], &shown, has_no_lease, "its lease has ended");
    zookeeper_server_start(&server);
    const uint64_t back_ms = now_ms();
    while (l->ended < l->begun)
        (void)end_pair(l, CALL_MS);
    (void)printf("%u pairs ended without ZooKeeper; all went on %u ms after it was back\n",
                 (unsigned)ended_without, (unsigned)(now_ms() - back_ms));
    return ended_without;
}

/* Calls go on for as long as leases reach, then wait, and go on by themselves; the map is as before. */
static void test_zookeeper_is_away_under_load(void **state)
{
    static struct trainer t;
    static struct cluster_shown before[NODES], after;
    struct load load = {.trainer = &t};
    const char *away_s = getenv("MILLRACE_AWAY_S");
    const uint64_t away_ms = away_s == NULL ? (uint64_t)2 * SESSION_MS : strtoul(away_s, NULL, 10) * 1000;
    uint64_t ended_without = 0;
    (void)state;
    begin(&t, "away");
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_wait(&nodes[i], &before[i], has_lease, "it has a lease");
    /* on a machine that stands still for as long as the leases, nothing ends while they reach */
    for (uint32_t attempt = 0; attempt < 10 && ended_without == 0; attempt++)
        ended_without = take_zookeeper_away(&load, away_ms);
    assert_true(ended_without > 0);
    for (uint32_t i = 0; i < NODES; i++) {
        cluster_node_wait(&nodes[i], &after, has_lease, "it has a lease");
        assert_memory_equal(after.owner, before[i].owner, sizeof(after.owner));
        if (!any_session_ended()) /* a node that does not run for so long gets another one, which is noted */
            assert_int_equal(after.words[MR_CLUSTER_EPOCH], before[i].words[MR_CLUSTER_EPOCH]);
    }
    check_rows(&t);
    mr_client_destroy(t.client);
}

/* Returns what a command of millrace writes, in a static buffer; *exit_code as it ended. */
static const char *run_tool(const char *arguments, int *exit_code)
{
    static char output[16384];
    *exit_code =
        command_output(output, sizeof(output), "%s %s --server %s 2>&1", millrace, arguments, some_servers());
    return output;
}

/* ---- partitions that move under load ---- */

/* A client that keeps no copies of its pushes makes one call at a time, of one key. */
struct bare_client {
    struct mr_client *client;
    uint32_t table;
    uint64_t pushes;
};

static void begin_bare(struct bare_client *b)
{
    const struct mr_client_options options = {
        .server = some_servers(), .deadline_ms = CALL_MS, .connect_ms = 60000};
    struct mr_feature feature = mr_feature_table("bare", DIM);
    char error[512] = "";
    feature.optimizer = MR_OPT_SGD;
    feature.learning_rate = 1;
    *b = (struct bare_client){.pushes = 0};
    if (mr_client_create(&options, &b->client, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    assert_int_equal(mr_create(b->client, NULL, &feature, 1, &b->table), MR_OK);
    for (uint64_t key = 0; key < KEYS; key++) /* makes its row */
        assert_int_equal(mr_lookup(b->client, NULL, b->table, &key, 1, NULL), MR_OK);
}

static void call_bare(struct bare_client *b)
{
    const float gradient[DIM] = {-1, -1, -1, -1};
    const uint64_t key = b->pushes % KEYS;
    struct mr_reply *reply;
    const enum mr_status status = mr_push_gradients(b->client, NULL, b->table, &key, 1, DIM, gradient);
    /* an answer that is later than the lease is not believed: the row shows what became of the push */
    if (status != MR_OK && status != MR_UNKNOWN_OUTCOME)
        fail_msg("push %u: %s", (unsigned)b->pushes, mr_last_error());
    b->pushes++;
    if (mr_lookup(b->client, NULL, b->table, &key, 1, &reply) != MR_OK)
        fail_msg("lookup %u: %s", (unsigned)b->pushes, mr_last_error());
    const float row = *(const float *)mr_reply_tensor(reply, 0)->data;
    const uint64_t before = (b->pushes - 1) / KEYS; /* to this key */

    if (status != MR_OK && row == (float)before)
        b->pushes--;
    else if (row != (float)(before + 1))
        fail_msg("push %u: the row is %f", (unsigned)b->pushes, (double)row);
    mr_reply_free(reply);
}

static void move_and_load(struct load *l, struct bare_client *b, struct mr_client *control,
                          const struct mr_move_request *request)
{
    struct mr_moves_state moves = {.balances = true};
    if (mr_move(control, NULL, request) != MR_OK)
        fail_msg("%s", mr_last_error());
    while (moves.balances || moves.count > 0) {
        load_for(l, PAUSE_MS);
        call_bare(b);
        if (mr_moves(control, NULL, &moves, NULL, NULL) != MR_OK)
            fail_msg("%s", mr_last_error());
    }
}

static void note_second(void *arg, const struct mr_cluster_member *member)
{
    uint32_t *partitions = arg;
    if (strcmp(member->name, nodes[1].name) == 0)
        *partitions = member->partitions;
}

/* Returns how many partitions the node has that is drained. */
static uint32_t owned_by_second(struct mr_client *control)
{
    uint32_t partitions = UINT32_MAX;
    struct mr_cluster_state cluster;
    assert_int_equal(mr_cluster(control, NULL, &cluster, note_second, &partitions), MR_OK);
    assert_true(partitions != UINT32_MAX);
    return partitions;
}

/* A node is drained and gets its share again, while a client that replays has calls in flight and one that
 * does not makes one call after the other: each call ends well, and each push is applied once. */
static void test_partitions_move_under_load(void **state)
{
    static struct trainer t;
    struct load load = {.trainer = &t};
    struct bare_client bare;
    const char *wanted = getenv("MILLRACE_MOVES");
    const uint32_t rounds = wanted == NULL ? 2 : (uint32_t)strtoul(wanted, NULL, 10);
    (void)state;
    begin(&t, "moved");
    begin_bare(&bare);
    struct mr_client *control = connect_to(some_servers());
    for (uint32_t r = 0; r < rounds; r++) {
        const struct mr_move_request drain = {.kind = MR_REQUEST_DRAIN, .from = nodes[1].name},
                                     back = {.kind = MR_REQUEST_REBALANCE};
        move_and_load(&load, &bare, control, &drain);
        assert_int_equal(owned_by_second(control), 0);
        move_and_load(&load, &bare, control, &back);
        assert_true(owned_by_second(control) > 0);
    }
    while (load.ended < load.begun)
        (void)end_pair(&load, CALL_MS);
    (void)printf("%u pairs and %u calls one by one during %u drains and as many rebalances\n",
                 (unsigned)load.ended, (unsigned)bare.pushes, rounds);
    struct mr_replay_info info;

    mr_client_replay_info(t.client, &info);
    assert_int_equal(info.dropped, 0);
    assert_int_equal(info.given_up, 0);
    check_rows(&t);
    mr_client_destroy(control);
    mr_client_destroy(bare.client);
    mr_client_destroy(t.client);
}

/* ---- moves at random, and nodes that are killed meanwhile ---- */

static uint32_t drawn(uint64_t *seed, uint32_t below)
{
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % below;
}

static bool is_whole(const struct cluster_shown *s)
{
    bool whole = s->node_count == NODES && s->owner[0] != MR_CLUSTER_NO_NODE && has_lease(s);
    for (uint32_t i = 0; i < s->node_count; i++)
        whole &= (s->nodes[i].flags & MR_CLUSTER_NODE_PRESENT) != 0;
    return whole;
}

/* What cannot be moved, for want of a node that has partitions, is not. */
static void begin_moves(struct mr_client *control, uint64_t *seed, uint32_t *from)
{
    static const enum mr_move_request_kind kinds[] = {MR_REQUEST_MOVE, MR_REQUEST_MOVE, MR_REQUEST_DRAIN,
                                                      MR_REQUEST_REBALANCE};
    struct mr_move_request request = {.kind = kinds[drawn(seed, 4)]};
    *from = drawn(seed, NODES);
    const uint32_t to = (*from + 1 + drawn(seed, NODES - 1)) % NODES;
    request.count = 1 + drawn(seed, 1500);
    if (request.kind != MR_REQUEST_REBALANCE)
        request.from = nodes[*from].name;
    if (request.kind == MR_REQUEST_MOVE)
        request.to = nodes[to].name;
    else
        request.count = 0;
    const enum mr_status status = mr_move(control, NULL, &request);
    if (status != MR_OK && status != MR_INVALID_ARGUMENT)
        fail_msg("%s", mr_last_error());
}

static void wait_until_still(struct load *l, struct mr_client *control)
{
    struct mr_moves_state moves = {.balances = true};
    while (moves.balances || moves.count > 0) {
        load_for(l, PAUSE_MS);
        if (mr_moves(control, NULL, &moves, NULL, NULL) != MR_OK)
            moves.balances = true; /* whoever was asked has died */
    }
}

/* The node that gives, one that takes, or the leader, whichever it is, dies while partitions move, and comes
 * back empty: what it had is pushed again. Each call ends well, and each push is applied once. */
static void test_nodes_are_killed_while_partitions_move(void **state)
{
    static struct trainer t;
    static struct cluster_shown shown;
    struct load load = {.trainer = &t};
    const char *wanted = getenv("MILLRACE_KILLS"), *chosen = getenv("MILLRACE_SEED");
    const uint32_t rounds = wanted == NULL ? 0 : (uint32_t)strtoul(wanted, NULL, 10);
    uint64_t seed = chosen == NULL ? 1 : strtoul(chosen, NULL, 10);
    (void)state;
    if (rounds == 0)
        skip();
    begin(&t, "killed-and-moved");
    struct mr_client *control = connect_to(some_servers());
    for (uint32_t r = 0; r < rounds; r++) {
        uint32_t from;
        for (uint32_t i = 0; i < NODES; i++)
            cluster_node_wait(&nodes[i], &shown, is_whole, "all nodes are there");
        begin_moves(control, &seed, &from);
        load_for(&load, drawn(&seed, 150));
        if (drawn(&seed, 3) > 0) {
            struct cluster_node *victim = &nodes[drawn(&seed, 2) == 0 ? from : drawn(&seed, NODES)];
            cluster_node_kill(victim);
            cluster_node_start(victim, millraced);
            load_for(&load, PAUSE_MS); /* calls may have to wait for the node that is away */
        }
        wait_until_still(&load, control);
    }
    while (load.ended < load.begun)
        (void)end_pair(&load, CALL_MS);
    struct mr_replay_info info;

    mr_client_replay_info(t.client, &info);
    (void)printf("%u pairs during %u rounds, %u pushes replayed\n", (unsigned)load.ended, rounds,
                 (unsigned)info.replayed);
    assert_int_equal(info.dropped, 0);
    assert_int_equal(info.given_up, 0);
    check_rows(&t);
    mr_client_destroy(control);
    mr_client_destroy(t.client);
}

/* ---- a variable in ranges over all nodes ---- */

#define ELEMENTS     500u
#define RANGE_VALUES 7u

static void gradient_of(uint32_t step, float out[ELEMENTS])
{
    for (uint32_t i = 0; i < ELEMENTS; i++)
        out[i] = (float)((i * 31 + step * 17) % 97) / 13.0f - 3.0f;
}

static void compare_variables(struct mr_client *client, const uint32_t ids[2])
{
    struct mr_reply *a, *b;
    assert_int_equal(mr_variable_pull(client, NULL, ids[0], 0, 0, &a), MR_OK);
    assert_int_equal(mr_variable_pull(client, NULL, ids[1], 0, 0, &b), MR_OK);
    assert_int_equal(mr_reply_tensor(a, 0)->dims[0], ELEMENTS);
    assert_memory_equal(mr_reply_tensor(a, 0)->data, mr_reply_tensor(b, 0)->data, ELEMENTS * sizeof(float));
    mr_reply_free(a);
    mr_reply_free(b);
    assert_int_equal(mr_variable_pull(client, NULL, ids[0], 5, 300, &a), MR_OK);
    assert_int_equal(mr_variable_pull(client, NULL, ids[1], 5, 300, &b), MR_OK);
    assert_memory_equal(mr_reply_tensor(a, 0)->data, mr_reply_tensor(b, 0)->data, 300 * sizeof(float));
    mr_reply_free(a);
    mr_reply_free(b);
}

/* All of one node's move to the others, and back, with pushes in between that Adam's state decides about. */
static void move_ranges(struct mr_client *client, const uint32_t ids[2])
{
    static const char *const commands[] = {"ctl drain n1 --wait", "ctl rebalance --wait"};
    for (uint32_t c = 0; c < 2; c++) {
        int exit_code;
        const char *said = run_tool(commands[c], &exit_code);
        if (exit_code != 0)
            fail_msg("%s: %s", commands[c], said);
        for (uint32_t step = 0; step < 3; step++) {
            float gradient[ELEMENTS];
            const struct mr_options options = {.step = 20 + 3 * c + step};
            gradient_of(20 + 3 * c + step, gradient);
            for (uint32_t v = 0; v < 2; v++)
                if (mr_variable_push_gradient(client, &options, ids[v], ELEMENTS, gradient) != MR_OK)
                    fail_msg("%s", mr_last_error());
            compare_variables(client, ids);
        }
    }
}

/* Beside one that is whole: in ranges it is the same to the bit, by single pushes and by batches, and
 * while a node is killed that has some of them. */
static void test_a_variable_in_ranges_over_all_nodes(void **state)
{
    const uint32_t dims[1] = {ELEMENTS};
    const uint64_t keys[3] = {1, 2, 3};
    const uint32_t offsets[4] = {0, 1, 2, 3};
    const float rows[3 * DIM] = {0};
    struct mr_feature features[3] = {mr_feature_variable("in-ranges", 1, dims),
                                     mr_feature_variable("in-one", 1, dims), mr_feature_table("fed", DIM)};
    uint32_t ids[3], on_nodes[NODES] = {0};
    struct mr_feature_info *infos;
    uint32_t count;
    (void)state;
    struct mr_client *client = connect_to(some_servers());
    for (uint32_t i = 0; i < 2; i++) {
        mr_feature_set_optimizer(&features[i], MR_OPT_ADAM);
        features[i].initializer = MR_INIT_UNIFORM;
        features[i].init_b = 1;
    }
    features[0].range_values = RANGE_VALUES;
    assert_int_equal(mr_create(client, NULL, features, 3, ids), MR_OK);
    for (uint32_t step = 0; step < 12; step++) {
        float gradient[ELEMENTS];
        gradient_of(step, gradient);
        const struct mr_options options = {.step = step + 1};
        if (step == 4) {
            cluster_node_kill(&nodes[1]);
            cluster_node_start(&nodes[1], millraced);
        }
        for (uint32_t v = 0; v < 2 && step % 3 != 0; v++)
            if (mr_variable_push_gradient(client, &options, ids[v], ELEMENTS, gradient) != MR_OK)
                fail_msg("%s", mr_last_error());
        for (uint32_t v = 0; v < 2 && step == 9; v++)
            assert_int_equal(mr_variable_push(client, &options, ids[v], 20, 400, gradient), MR_OK);
        if (step % 3 == 0 && step > 6) { /* what is fed is lost with a node, and a hub feeds it again */
            const struct mr_batch_keys fed = {
                .table = ids[2], .samples = 3, .slots = 1, .keys = keys, .offsets = offsets};
            const struct mr_batch_gradient gradients[3] = {
                {ids[0], mr_tensor_1d(MR_F32, ELEMENTS, gradient)},
                {ids[2], mr_tensor_3d(MR_F32, 3, 1, DIM, rows)},
                {ids[1], mr_tensor_1d(MR_F32, ELEMENTS, gradient)}};
            bool applied = false;
            assert_int_equal(mr_feed_sample(client, NULL, step, &fed, 1, false), MR_OK);
            if (mr_push_gradients_batch(client, NULL, step, gradients, 3, &applied) != MR_OK)
                fail_msg("%s", mr_last_error());
            assert_true(applied);
        }
        if (step < 4 || step > 6)
            compare_variables(client, ids);
    }
    assert_int_equal(mr_list(client, NULL, &infos, &count), MR_OK);
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(infos[i].feature.name, "in-ranges") ==
            0) /* values, both moments, and a count for each range */
            assert_int_equal(infos[i].bytes, (3 * ELEMENTS + ELEMENTS / RANGE_VALUES + 1) * sizeof(float));
    free(infos);
    for (uint32_t r = 0; r * RANGE_VALUES < ELEMENTS; r++)
        on_nodes[mr_range_partition("in-ranges", r) * NODES / MR_PARTITION_COUNT]++;
    for (uint32_t n = 0; n < NODES; n++) /* by the first map, of nodes with as many cores */
        assert_true(on_nodes[n] > 0);
    move_ranges(client, ids);
    mr_client_destroy(client);
}

/* ---- other places that take a list of servers ---- */

/* Tables come in the order of their ids: what stays is the newest one's. */
static void keep_rows(void *arg, const struct mr_table_memory *table)
{
    *(uint64_t *)arg = table->rows;
}

static void test_torchrec_over_all_nodes(void **state)
{
    static int64_t ids[300];
    char configuration[160];
    struct mr_core_memory memory;
    (void)state;
    struct mr_client *client = connect_to(some_servers());
    for (uint32_t i = 0; i < 300; i++)
        ids[i] = (int64_t)i * 7 - 40;
    (void)snprintf(configuration, sizeof(configuration), "%s/?connect_ms=60000&replay=off", some_servers());
    plugin_load(&plugin, torchrec_plugin);
    void *instance = plugin.initialize(configuration);
    assert_non_null(instance);
    const struct rows rows = {.table = "t", .id_count = 300, .states = 2, .floats = 4, .ids = ids};

    expect_absent(&plugin, instance, &rows);
    push_version(&plugin, instance, &rows, 1);
    expect_version(&plugin, instance, &rows, 1);
    push_version(&plugin, instance, &rows, 2);
    expect_version(&plugin, instance, &rows, 2);
    plugin.finalize(instance);
    for (uint32_t i = 0; i < NODES * CLUSTER_NODE_CORES; i++) {
        uint64_t rows_of_core = 0;
        assert_int_equal(mr_memory(client, NULL, i, &memory, keep_rows, &rows_of_core), MR_OK);
        assert_true(rows_of_core > 0);
    }
    mr_client_destroy(client);
}

static void test_python_over_all_nodes(void **state)
{
    (void)state;
    if (python[0] == '\0')
        skip();
    assert_int_equal(command_run("%s %s %s %u >&2", python, script, some_servers(), NODES), 0);
}

static uint32_t count_of(const char *text, const char *word)
{
    uint32_t count = 0;
    for (; (text = strstr(text, word)) != NULL; text += strlen(word))
        count++;
    return count;
}

/* A node that is away is shown so, and the others as they are. */
static void test_top_shows_all_nodes(void **state)
{
    int exit_code;
    (void)state;
    const char *shown = run_tool("top --count 1 --interval 0.1", &exit_code);
    assert_int_equal(exit_code, 0);
    assert_non_null(strstr(shown, "node core state"));
    for (uint32_t i = 0; i < NODES; i++)
        assert_int_equal(count_of(shown, nodes[i].name), CLUSTER_NODE_CORES);
    assert_int_equal(count_of(shown, "serving"), NODES * CLUSTER_NODE_CORES);
    cluster_node_kill(&nodes[1]);
    shown = run_tool("top --count 1 --interval 0.1", &exit_code);
    if (exit_code != 0 || count_of(shown, "away") != CLUSTER_NODE_CORES)
        fail_msg("%s", shown);
    assert_int_equal(count_of(shown, "serving"), (NODES - 1) * CLUSTER_NODE_CORES);
    assert_int_equal(count_of(shown, "away"), CLUSTER_NODE_CORES);
    shown = run_tool("top --count 1 --interval 0.1 --json", &exit_code);
    assert_int_equal(count_of(shown, "\"state\": \"away\"") + count_of(shown, "\"state\":\"away\""),
                     CLUSTER_NODE_CORES);
    assert_int_equal(count_of(shown, "\"scrub\""), NODES);
    cluster_node_start(&nodes[1], millraced);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_table_over_all_nodes),
        cmocka_unit_test(test_a_node_is_killed_amid_pushes),
        cmocka_unit_test(test_zookeeper_is_away_under_load),
        cmocka_unit_test(test_partitions_move_under_load),
        cmocka_unit_test(test_nodes_are_killed_while_partitions_move),
        cmocka_unit_test(test_a_variable_in_ranges_over_all_nodes),
        cmocka_unit_test(test_torchrec_over_all_nodes),
        cmocka_unit_test(test_python_over_all_nodes),
        cmocka_unit_test(test_top_shows_all_nodes),
    };
    if (argc != 6) {
        (void)fprintf(stderr, "usage: %s MILLRACED MILLRACE TORCHREC_PLUGIN PYTHON SCRIPT\n", argv[0]);
        return 2;
    }
    millraced = argv[1];
    millrace = argv[2];
    torchrec_plugin = argv[3];
    python = argv[4];
    script = argv[5];
    zookeeper_server_require();
    cluster_nodes_isolate();
    return cluster_nodes_end(cmocka_run_group_tests(tests, start_all, end_all));
}
