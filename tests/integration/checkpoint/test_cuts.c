/* Checkpoints taken while several clients push to rows on all cores, each one restored into fresh servers
 * afterwards.
 *
 * A client adds 1 to all rows of one of its groups per push, and waits for the answer. A group has two rows,
 * mostly on different cores, so they are equal whenever no push is in flight. A checkpoint is one instant: of
 * each client it holds all pushes up to one of them, nothing after it, and of that one, if it was in flight,
 * the share of some cores. The client would bring the rest to a server restored from it (docs/replay.md). */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "millrace_admin.h"
#include "millrace_observe.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/checkpoint/checkpoint_chain.h"
#include "tests/checkpoint_calls.h"
#include "tests/integration/node_fixture.h"
#include "tests/test.h"
#include "tests/wait.h"

enum { DIM = 4, CLIENTS = 3, GROUPS = 200, GROUP_KEYS = 2, KEYS = GROUPS * GROUP_KEYS };

#define CLIENTS_TEXT  "3" /* the same */
#define SAVES_DEFAULT 12u
#define MEMORY        "memory.limit_mib=640" /* for five cores */

static uint32_t cores; /* of this run */

struct pusher {
    struct mr_client *client;
    pthread_t thread;
    uint64_t keys[KEYS]; /* group after group */
    uint32_t table;
    uint64_t pushes;
    atomic_bool *over;
};

struct fixture {
    struct node_fixture node;
    struct mr_client *watcher;
    struct pusher pushers[CLIENTS];
    atomic_bool over;
};

static void expect_ok(enum mr_status status)
{
    if (status != MR_OK)
        fail_msg("%s: %s", mr_status_name(status), mr_last_error());
}

static struct mr_client *connect_replaying(const struct node_fixture *node)
{
    struct mr_client_options options = {
        .server = node->address, .connect_ms = NODE_READY_MS, .deadline_ms = NODE_READY_MS, .replay = true};
    struct mr_client *client;
    char error[512];
    if (mr_client_create(&options, &client, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    return client;
}

static void cuts_push(struct pusher *p, uint64_t number)
{
    static const float gradients[GROUP_KEYS * DIM] = {[0 ... GROUP_KEYS * DIM - 1] = -1};
    struct mr_options options = {.step = number};
    if (mr_push_gradients(p->client, &options, p->table, p->keys + number % GROUPS * GROUP_KEYS, GROUP_KEYS,
                          DIM, gradients) != MR_OK) {
        fprintf(stderr, "push %llu: %s\n", (unsigned long long)number, mr_last_error());
        abort();
    }
}

static void *push_on(void *arg)
{
    struct pusher *p = arg;
    while (!atomic_load(p->over))
        cuts_push(p, ++p->pushes);
    return NULL;
}

static void cuts_start(struct fixture *x, const char *const *settings)
{
    struct mr_feature feature = mr_feature_table("groups", DIM);
    uint32_t table;
    memset(x, 0, sizeof(*x));
    node_fixture_start(&x->node, cores, settings);
    x->watcher = node_fixture_connect(&x->node);
    feature.learning_rate = 1;
    expect_ok(mr_create(x->watcher, NULL, &feature, 1, &table));
    for (uint32_t c = 0; c < CLIENTS; c++) {
        struct pusher *p = &x->pushers[c];
        for (uint32_t i = 0; i < KEYS; i++)
            p->keys[i] = (c * KEYS + i + 1) * UINT64_C(0x9e3779b97f4a7c15);
        p->table = table;
        p->over = &x->over;
        p->client = connect_replaying(&x->node);
        expect_ok(mr_lookup(p->client, NULL, table, p->keys, KEYS, NULL));
    }
}

static void push_meanwhile(struct fixture *x)
{
    atomic_store(&x->over, false);
    for (uint32_t c = 0; c < CLIENTS; c++)
        assert_int_equal(pthread_create(&x->pushers[c].thread, NULL, push_on, &x->pushers[c]), 0);
}

static void push_no_more(struct fixture *x)
{
    atomic_store(&x->over, true);
    for (uint32_t c = 0; c < CLIENTS; c++)
        assert_int_equal(pthread_join(x->pushers[c].thread, NULL), 0);
}

static void fixture_stop(struct fixture *x)
{
    for (uint32_t c = 0; c < CLIENTS; c++)
        mr_client_destroy(x->pushers[c].client);
    mr_client_destroy(x->watcher);
    node_fixture_stop(&x->node);
}

/* How often pushes 1..count changed a group. */
static uint64_t changes(uint64_t count, uint32_t group)
{
    return (count + GROUPS - group) / GROUPS - (group == 0);
}

/* The rows of one client, as the first floats of them. */
static void read_rows(struct mr_client *client, const struct pusher *p, uint64_t values[KEYS])
{
    struct mr_reply *reply;
    expect_ok(mr_lookup(client, NULL, p->table, p->keys, KEYS, &reply));
    const float *rows = mr_reply_tensor(reply, 0)->data;
    for (uint32_t i = 0; i < KEYS; i++) {
        for (uint32_t d = 1; d < DIM; d++)
            assert_true(rows[i * DIM + d] == rows[i * DIM]);
        values[i] = (uint64_t)rows[i * DIM];
        assert_true((float)values[i] == rows[i * DIM]);
    }
    mr_reply_free(reply);
}

/* Whether these rows are pushes 1..n and a share of push n + 1. */
static bool is_instant(const uint64_t values[KEYS], uint64_t n, uint64_t *share)
{
    *share = 0;
    for (uint32_t i = 0; i < KEYS; i++) {
        const uint32_t group = i / GROUP_KEYS;
        const uint64_t more = values[i] - changes(n, group);
        if (more > (group == (n + 1) % GROUPS))
            return false;
        *share += more;
    }
    return true;
}

/* Returns the pushes that the rows hold whole; fails when they are no instant of this client's. */
static uint64_t check_instant(const uint64_t values[KEYS], uint64_t *share)
{
    uint64_t sum = 0, n;
    for (uint32_t i = 0; i < KEYS; i++)
        sum += values[i];
    n = sum / GROUP_KEYS;
    if (!is_instant(values, n, share)) {
        for (uint32_t i = 0; i < KEYS; i++)
            print_error("%s%llu", i % GROUP_KEYS == 0 ? "\n" : " ", (unsigned long long)values[i]);
        fail_msg("\nthese rows are no instant: %llu pushes and %llu rows", (unsigned long long)n,
                 (unsigned long long)(sum % GROUP_KEYS));
    }
    return n;
}

static uint64_t newest_checkpoint(const struct fixture *x)
{
    uint64_t id = 0;
    ps_checkpoint_list(NULL, x->node.checkpoints, &id, 1);
    return id;
}

/* That the checkpoint was cut at; 0: at none. */
static uint64_t step_of(const struct fixture *x, uint64_t id)
{
    struct ps_reader *reader;
    char text[256];
    if (ps_reader_open(NULL, x->node.checkpoints, id, &reader, text) != MR_OK)
        fail_msg("%s", text);
    const struct ps_manifest *m = ps_reader_manifest(reader);
    uint64_t step = m->is_at_step ? m->step : 0;

    ps_reader_close(reader);
    return step;
}

static bool is_delta(const struct fixture *x, uint64_t id)
{
    struct ps_reader *reader;
    char text[256];
    if (ps_reader_open(NULL, x->node.checkpoints, id, &reader, text) != MR_OK)
        fail_msg("%s", text);
    bool delta = ps_reader_chain(reader)->count > 1;

    ps_reader_close(reader);
    return delta;
}

/* Every checkpoint, by call, into a server that has just been started with another number of cores. */
static void check_restores(struct fixture *x, uint32_t core_count, const uint64_t *ids, uint32_t count)
{
    uint64_t restored, values[KEYS], share, shares = 0, before[CLIENTS] = {0};
    node_fixture_kill(&x->node);
    node_fixture_restart_with(&x->node, core_count);
    struct mr_client *client = node_fixture_connect(&x->node);
    for (uint32_t i = 0; i < count; i++) {
        expect_ok(restore_from(client, NULL, NULL, ids[i], &restored));
        assert_int_equal(restored, ids[i]);
        for (uint32_t c = 0; c < CLIENTS; c++) {
            read_rows(client, &x->pushers[c], values);
            uint64_t n = check_instant(values, &share);

            assert_true(n >= before[c] && n <= x->pushers[c].pushes);
            before[c] = n;
            shares += share > 0;
        }
    }
    print_message("%u checkpoints on %u cores: %llu pushes in flight\n", (unsigned)count,
                  (unsigned)core_count, (unsigned long long)shares);
    mr_client_destroy(client);
}

static uint32_t save_count(void)
{
    const char *given = getenv("MILLRACE_CUTS");
    return given ? (uint32_t)strtoul(given, NULL, 10) : SAVES_DEFAULT;
}

static void save_often(struct fixture *x, uint64_t *ids, uint32_t count)
{
    push_meanwhile(x);
    for (uint32_t i = 0; i < count; i++)
        ids[i] = node_fixture_save(x->watcher);
    push_no_more(x);
}

/* Returns how many of them were deltas. */
static uint32_t check_cuts(const char *const *settings)
{
    struct fixture x;
    const uint32_t count = save_count();
    uint64_t *ids = calloc(count, sizeof(*ids));
    assert_non_null(ids);
    cuts_start(&x, settings);
    save_often(&x, ids, count);
    uint32_t deltas = 0;

    for (uint32_t i = 0; i < count; i++)
        deltas += is_delta(&x, ids[i]);
    print_message("%u deltas\n", (unsigned)deltas);
    check_restores(&x, cores, ids, count);
    check_restores(&x, cores == 1 ? 3 : cores - 1, ids, count);
    free(ids);
    fixture_stop(&x);
    return deltas;
}

TEST(test_each_checkpoint_is_an_instant)
{
    static const char *const settings[] = {MEMORY, "checkpoint.keep=1000", NULL};
    (void)check_cuts(settings);
}

/* Most hold only what changed since the one before. */
TEST(test_each_delta_is_an_instant)
{
    static const char *const settings[] = {MEMORY, "checkpoint.keep=1000", "checkpoint.deltas=4", NULL};
    assert_true(check_cuts(settings) > 0);
}

/* Killed while pushes and saves go on: the clients bring what the restored checkpoint lacks. */
TEST(test_replay_makes_it_whole)
{
    static const char *const settings[] = {MEMORY, NULL};
    struct mr_core_state states[64];
    struct fixture x;
    uint64_t values[KEYS], share;
    cuts_start(&x, settings);
    node_fixture_save(x.watcher); /* with the table */
    push_meanwhile(&x);
    for (uint32_t i = 0; i < 2; i++) {
        node_fixture_save(x.watcher);
        node_fixture_kill(&x.node);
        node_fixture_restart_with(&x.node, i == 0 ? cores : cores + 1);
        expect_ok(mr_heartbeat(x.watcher, NULL, states)); /* a Save sent to the old one would end unknown */
    }
    push_no_more(&x);
    for (uint32_t c = 0; c < CLIENTS; c++) {
        read_rows(x.pushers[c].client, &x.pushers[c], values);
        assert_int_equal(check_instant(values, &share), x.pushers[c].pushes);
        assert_int_equal(share, 0);
    }
    fixture_stop(&x);
}

/* Saves by themselves at steps: all clients' pushes up to the step are in, and nothing after it. */
TEST(test_checkpoints_at_steps_are_whole)
{
    static const char *const settings[] = {MEMORY,
                                           "checkpoint.keep=1000",
                                           "checkpoint.every_steps=200",
                                           ("checkpoint.trainers=" CLIENTS_TEXT),
                                           "checkpoint.step_wait_ms=60000",
                                           NULL};
    struct fixture x;
    uint64_t values[KEYS], share, id, restored, saves = save_count() / 2;
    uint32_t at_steps = 0;
    cuts_start(&x, settings);
    push_meanwhile(&x);
    for (id = 1; id <= saves; id++)
        WAIT_UNTIL(newest_checkpoint(&x) >= id);
    push_no_more(&x);
    node_fixture_kill(&x.node);
    node_fixture_restart_with(&x.node, cores + 1);
    struct mr_client *client = node_fixture_connect(&x.node);
    for (id = 1; id <= saves; id++) {
        uint64_t step = step_of(&x, id);
        if (step == 0)
            continue; /* cut at once: a client was away for too long */
        expect_ok(restore_from(client, NULL, NULL, id, &restored));
        for (uint32_t c = 0; c < CLIENTS; c++) {
            read_rows(client, &x.pushers[c], values);
            assert_int_equal(check_instant(values, &share), step);
            assert_int_equal(share, 0);
        }
        at_steps++;
    }
    print_message("%u of %llu checkpoints at steps\n", (unsigned)at_steps, (unsigned long long)saves);
    assert_true(at_steps > 0);
    mr_client_destroy(client);
    fixture_stop(&x);
}

int main(int argc, char **argv)
{
    if (!node_fixture_arguments(argc, argv, &cores))
        return 2;
    return tests_run(NULL, NULL);
}
