/* Measures what it costs the clients of a cluster that partitions move: all of them, from one node to the
 * other and back, while one thread looks rows up and another pushes. One JSON object per line:
 *   moves_bulk_pull       how fast one client reads all rows from one node while nothing moves
 *   moves_lookup_still    a call for 64 rows while nothing moves
 *   moves_lookup_moving   the same while partitions move
 *   moves_wait            the longest of these calls in each move: the value is the median of the moves
 *
 *   bench_moves --server ADDRESS:PORT,ADDRESS:PORT --from NAME --to NAME [--rows N] [--moves N]
 *
 * The nodes' logs say how long the moves took, and how long calls had to wait there. */
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "millrace_admin.h"
#include "tests/bench/common/bench_keys.h"
#include "tests/bench/common/bench_util.h"

#define DIM         64u
#define BULK_KEYS   8192u
#define CALL_KEYS   64u
#define IN_FLIGHT   4u
#define PASSES      3u /* over all rows; the median counts */
#define STILL_CALLS 4000u
#define CALLS_MAX   1000000u
#define MOVES_MAX   64u
#define MOVE_LIMIT  (60 * 1e6)
#define DEADLINE_MS 60000u
#define PAUSE_NS    1000000 /* between two calls: the nodes are to have something else to do as well */
#define PUSH_NS     5000000

struct moves {
    struct mr_client_options options;
    const char *names[2];
    uint32_t table;
    uint64_t rows;
    uint32_t move_count;
    _Atomic bool stop;
    double us[CALLS_MAX];
    uint64_t calls; /* so far, for other keys in each */
};

/* ---- calls ---- */

/* Keys of one call after the other, all over the table. */
static void draw(const struct moves *m, uint64_t call, uint64_t *keys, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        keys[i] = bench_key_at(bench_key_at(call * count + i) % m->rows);
}

static void moves_end(struct mr_future **future)
{
    if (*future == NULL)
        return;
    struct mr_reply *reply = NULL;
    bench_check(mr_future_wait(*future, &reply), "lookup");
    mr_reply_free(reply);
    mr_future_destroy(*future);
    *future = NULL;
}

/* Looks all rows up, which makes them the first time; MiB/s of values. */
static double pull_all(const struct moves *m, struct mr_client *client)
{
    struct mr_future *futures[IN_FLIGHT] = {NULL};
    uint64_t keys[BULK_KEYS];
    const double t0 = bench_now_us();
    uint32_t calls = 0;
    for (uint64_t at = 0; at < m->rows; at += BULK_KEYS, calls++) {
        const uint32_t count = m->rows - at < BULK_KEYS ? (uint32_t)(m->rows - at) : BULK_KEYS;
        struct mr_future **slot = &futures[calls % IN_FLIGHT];
        const struct mr_options options = {.future = slot};
        moves_end(slot);
        for (uint32_t i = 0; i < count; i++)
            keys[i] = bench_key_at(at + i);
        bench_check(mr_lookup(client, &options, m->table, keys, count, NULL), "lookup");
    }
    for (uint32_t i = 0; i < IN_FLIGHT; i++)
        moves_end(&futures[i]);
    return (double)(m->rows * DIM * sizeof(float)) / (bench_now_us() - t0) * 1e6 / (1 << 20);
}

static double look_up(struct moves *m, struct mr_client *client)
{
    uint64_t keys[CALL_KEYS];
    struct mr_reply *reply = NULL;
    draw(m, m->calls++, keys, CALL_KEYS);
    const double t0 = bench_now_us();
    bench_check(mr_lookup(client, NULL, m->table, keys, CALL_KEYS, &reply), "lookup");
    const double us = bench_now_us() - t0;
    mr_reply_free(reply);
    (void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    return us;
}

/* A trainer that pushes to some ten thousand rows a second. */
static void *run_pushes(void *arg)
{
    struct moves *m = arg;
    struct mr_client *client = bench_connect(&m->options);
    uint64_t keys[CALL_KEYS];
    static float gradients[CALL_KEYS * DIM];
    for (uint64_t call = 0; !atomic_load(&m->stop); call++) {
        draw(m, call, keys, CALL_KEYS);
        bench_check(mr_push_gradients(client, NULL, m->table, keys, CALL_KEYS, DIM, gradients), "push");
        (void)nanosleep(&(struct timespec){.tv_nsec = PUSH_NS}, NULL);
    }
    mr_client_destroy(client);
    return NULL;
}

/* ---- moves ---- */

static void *run_move(void *arg)
{
    struct moves *m = arg;
    struct mr_client *client = bench_connect(&m->options);
    struct mr_moves_state state = {.count = 1};
    const struct mr_move_request request = {
        .kind = MR_REQUEST_MOVE, .from = m->names[0], .to = m->names[1], .count = 0};
    const double t0 = bench_now_us();
    bench_check(mr_move(client, NULL, &request), "move");
    while (state.count > 0) {
        if (bench_now_us() - t0 > MOVE_LIMIT)
            bench_give_up("a move does not end");
        (void)nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        bench_check(mr_moves(client, NULL, &state, NULL, NULL), "moves");
    }
    mr_client_destroy(client);
    atomic_store(&m->stop, true);
    return NULL;
}

/* The next move goes back. */
static void turn(struct moves *m)
{
    const char *from = m->names[0];
    m->names[0] = m->names[1];
    m->names[1] = from;
}

/* One move, and as many calls as it takes; the longest. */
static double call_through_a_move(struct moves *m, struct mr_client *client, uint32_t *count)
{
    pthread_t thread;
    double longest = 0;
    atomic_store(&m->stop, false);
    if (pthread_create(&thread, NULL, run_move, m) != 0)
        bench_give_up("no thread");
    while (!atomic_load(&m->stop)) {
        const double us = look_up(m, client);
        longest = us > longest ? us : longest;
        if (*count < CALLS_MAX)
            m->us[(*count)++] = us;
    }
    (void)pthread_join(thread, NULL);
    turn(m);
    return longest;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void moves_run(struct moves *m)
{
    static struct moves pusher;
    pthread_t thread;
    double rates[PASSES];
    double longest[MOVES_MAX];
    struct mr_client *client = bench_connect(&m->options);
    struct mr_feature feature = mr_feature_table("moves", DIM);
    feature.optimizer = MR_OPT_SGD;
    feature.learning_rate = 0.1f;
    bench_check(mr_create(client, NULL, &feature, 1, &m->table), "create");
    (void)pull_all(m, client);
    turn(m);
    (void)run_move(m); /* now one node has them all */
    turn(m);
    (void)pull_all(m, client);
    for (uint32_t i = 0; i < PASSES; i++)
        rates[i] = pull_all(m, client);
    qsort(rates, PASSES, sizeof(*rates), by_value);
    bench_print_rate("moves_bulk_pull", rates[PASSES / 2], "MiB/s", PASSES);
    pusher.options = m->options;
    pusher.options.replay = true; /* what was being pushed when an owner changed is pushed again, once */
    pusher.table = m->table;
    pusher.rows = m->rows;
    if (pthread_create(&thread, NULL, run_pushes, &pusher) != 0)
        bench_give_up("no thread");
    for (uint32_t i = 0; i < STILL_CALLS; i++)
        m->us[i] = look_up(m, client);
    bench_print_latency("moves_lookup_still", m->us, STILL_CALLS);
    uint32_t count = 0;
    for (uint32_t i = 0; i < m->move_count; i++)
        longest[i] = call_through_a_move(m, client, &count);
    bench_print_latency("moves_lookup_moving", m->us, count);
    bench_print_latency("moves_wait", longest, m->move_count);
    atomic_store(&pusher.stop, true);
    (void)pthread_join(thread, NULL);
    mr_client_destroy(client);
}

int main(int argc, char **argv)
{
    static const struct option long_options[] = {
        {"server", required_argument, NULL, 's'}, {"from", required_argument, NULL, 'f'},
        {"to", required_argument, NULL, 't'},     {"rows", required_argument, NULL, 'r'},
        {"moves", required_argument, NULL, 'm'},  {NULL, 0, NULL, 0}};
    static struct moves m = {
        .options = {.deadline_ms = DEADLINE_MS, .busy_poll_us = 1}, .rows = 400000, .move_count = 6};
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;)
        if (c == 's')
            m.options.server = optarg;
        else if (c == 'f')
            m.names[0] = optarg;
        else if (c == 't')
            m.names[1] = optarg;
        else if (c == 'r')
            m.rows = strtoull(optarg, NULL, 10);
        else if (c == 'm')
            m.move_count = (uint32_t)strtoul(optarg, NULL, 10);
    if (m.options.server == NULL || m.names[0] == NULL || m.names[1] == NULL || m.rows == 0 ||
        m.move_count == 0 || m.move_count > MOVES_MAX) {
        (void)fprintf(stderr, "usage: bench_moves --server ADDRESS:PORT,ADDRESS:PORT --from NAME --to NAME "
                              "[--rows N] [--moves N, at most 64]\n");
        return 2;
    }
    moves_run(&m);
    return 0;
}
