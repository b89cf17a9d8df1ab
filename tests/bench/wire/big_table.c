/* Fills a table of 16 floats a row with Adagrad's state through the wire, looks all rows up, pushes to all,
 * and lets the half that is not used for some steps be evicted; tells how fast that went and what the
 * server's process held before and after. Values are checked on the way. One JSON object per line, as
 * bench_calls.
 *
 *   big_table --server ADDRESS:PORT --pid PID [--key-file FILE] [--rows 50000000]
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "millrace.h"
#include "tests/bench/common/bench_keys.h"
#include "tests/bench/common/bench_util.h"

#define DIM           16u
#define CALL_KEYS     13312u
#define IN_FLIGHT     4u
#define LEARNING_RATE 0.1f
#define INITIAL_STATE 0.1f
#define STEP_FILL     1u
#define STEP_USE      80u /* of the half that stays */
/* from here on, until the other half is gone; that is long before STEP_USE is old */
#define STEP_EVICT    100u
#define EVICT_STEPS   100.0f
#define STEP_LAST     (STEP_EVICT + 40u) /* so late may an eviction be */
#define EVICT_SECONDS 600.0

struct big {
    struct mr_client *client;
    uint32_t table;
    uint64_t rows;
    unsigned long pid;
    float gradients[CALL_KEYS * DIM];
};

static uint64_t rows_held(const struct big *b)
{
    struct mr_feature_info *infos = NULL;
    uint32_t count = 0;
    uint64_t rows = 0;
    bench_check(mr_list(b->client, NULL, &infos, &count), "list");
    for (uint32_t i = 0; i < count; i++)
        rows += infos[i].id == b->table ? infos[i].rows : 0;
    free(infos);
    return rows;
}

static void make_table(struct big *b)
{
    struct mr_feature feature = mr_feature_table("big", DIM);
    feature.optimizer = MR_OPT_ADAGRAD;
    feature.optimizer_args[0] = INITIAL_STATE;
    feature.learning_rate = LEARNING_RATE;
    feature.initializer = MR_INIT_CONSTANT;
    feature.init_a = 1.0f;
    feature.eviction = MR_EVICT_STEPS;
    feature.eviction_arg = EVICT_STEPS;
    bench_check(mr_create(b->client, NULL, &feature, 1, &b->table), "create");
}

enum work { WORK_LOOKUP, WORK_PUSH };

static struct mr_future *big_table_begin(struct big *b, enum work work, uint64_t first, uint32_t count,
                                         uint64_t step)
{
    uint64_t keys[CALL_KEYS];
    struct mr_future *future = NULL;
    struct mr_options options = {.step = step, .future = &future};
    for (uint32_t i = 0; i < count; i++)
        keys[i] = bench_key_at(first + i);
    if (work == WORK_PUSH)
        bench_check(mr_push_gradients(b->client, &options, b->table, keys, count, DIM, b->gradients), "push");
    else
        bench_check(mr_lookup(b->client, &options, b->table, keys, count, NULL), "lookup");
    return future;
}

static void big_table_finish(struct mr_future *future, float expected)
{
    struct mr_reply *reply = NULL;
    bench_check(mr_future_wait(future, &reply), "call");
    if (!isnan(expected)) {
        const struct mr_tensor *rows = mr_reply_tensor(reply, 0);
        const float *value = rows->data;
        for (uint64_t i = 0; i < (uint64_t)rows->dims[0] * DIM; i++)
            if (fabsf(value[i] - expected) > 1e-6f)
                bench_give_up("a row is not what it should be");
    }
    mr_reply_free(reply);
    mr_future_destroy(future);
}

/* All keys from `first` on, in calls of which a few are in flight; every value looked up is `expected` (NAN:
 * no matter). */
static void each_key(struct big *b, const char *name, enum work work, uint64_t first, uint64_t step,
                     float expected)
{
    struct mr_future *futures[IN_FLIGHT] = {NULL};
    uint64_t calls = 0;
    double t0 = bench_now_us();
    for (uint64_t at = first; at < b->rows; at += CALL_KEYS, calls++) {
        struct mr_future **slot = &futures[calls % IN_FLIGHT];
        if (*slot != NULL)
            big_table_finish(*slot, expected);
        *slot = big_table_begin(b, work, at, b->rows - at < CALL_KEYS ? (uint32_t)(b->rows - at) : CALL_KEYS,
                                step);
    }
    for (uint32_t i = 0; i < IN_FLIGHT; i++)
        if (futures[(calls + i) % IN_FLIGHT] != NULL)
            big_table_finish(futures[(calls + i) % IN_FLIGHT], expected);
    bench_print_rate(name, (double)(b->rows - first) / (bench_now_us() - t0) * 1e6, "keys/s", calls);
}

/* The half that stays is used at a later step; the rest goes while the server does little else. */
static void wait_for_eviction(struct big *b, uint64_t kept)
{
    double t0 = bench_now_us(), before = bench_resident_bytes(b->pid), after = before, last = 0;
    uint64_t step = STEP_EVICT;
    while (rows_held(b) > kept) {
        if (bench_now_us() - t0 > EVICT_SECONDS * 1e6)
            bench_give_up("the unused rows are still there");
        big_table_finish(big_table_begin(b, WORK_LOOKUP, b->rows - 1, 1, step), NAN);
        step += step < STEP_LAST ? 1 : 0;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    double evicted_us = bench_now_us() - t0;
    while (after != last && bench_now_us() - t0 < EVICT_SECONDS * 1e6) { /* until no more is given back */
        last = after;
        for (uint32_t i = 0; i < 200; i++)
            big_table_finish(big_table_begin(b, WORK_LOOKUP, b->rows - 1, 1, STEP_LAST), NAN);
        nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
        after = bench_resident_bytes(b->pid);
    }
    bench_print_rate("big_evict", (double)(b->rows - kept) / evicted_us * 1e6, "keys/s", 1);
    printf("{\"name\": \"big_memory_after_eviction\", \"value\": %.0f, \"unit\": \"MB\", \"limit\": %.0f, "
           "\"ratio\": %.3f, \"better\": \"lower\", \"target\": 0.6}\n",
           after / 1e6, before / 1e6, after / before);
}

static void big_table_run(struct big *b)
{
    uint64_t half = b->rows / 2;
    float pushed = 1.0f - LEARNING_RATE / sqrtf(INITIAL_STATE + 1.0f);
    make_table(b);
    each_key(b, "big_fill", WORK_LOOKUP, 0, STEP_FILL, 1.0f);
    if (rows_held(b) != b->rows)
        bench_give_up("not all rows were made");
    each_key(b, "big_push", WORK_PUSH, 0, STEP_FILL, NAN);
    each_key(b, "big_lookup", WORK_LOOKUP, 0, STEP_FILL, pushed);
    each_key(b, "big_lookup_half", WORK_LOOKUP, half, STEP_USE, pushed);
    wait_for_eviction(b, b->rows - half);
    if (rows_held(b) != b->rows - half)
        bench_give_up("rows were evicted that were in use");
    each_key(b, "big_lookup_after_eviction", WORK_LOOKUP, half, STEP_LAST, pushed);
}

int main(int argc, char **argv)
{
    static const struct option long_options[] = {{"server", required_argument, NULL, 's'},
                                                 {"pid", required_argument, NULL, 'p'},
                                                 {"key-file", required_argument, NULL, 'k'},
                                                 {"rows", required_argument, NULL, 'r'},
                                                 {NULL, 0, NULL, 0}};
    static struct big b = {.rows = 50000000};
    struct mr_client_options options = {0};
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;)
        if (c == 's')
            options.server = optarg;
        else if (c == 'p')
            b.pid = strtoul(optarg, NULL, 10);
        else if (c == 'k')
            options.key_file = optarg;
        else if (c == 'r')
            b.rows = strtoull(optarg, NULL, 10);
    if (options.server == NULL || b.pid == 0 || b.rows < 2) {
        fprintf(stderr, "usage: big_table --server ADDRESS:PORT --pid PID [--key-file FILE] [--rows N]\n");
        return 2;
    }
    for (uint32_t i = 0; i < CALL_KEYS * DIM; i++)
        b.gradients[i] = 1.0f;
    b.client = bench_connect(&options);
    big_table_run(&b);
    mr_client_destroy(b.client);
    return 0;
}
