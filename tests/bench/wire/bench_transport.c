/* What the transport does with large messages, with small ones beside them, and with losses, against a
 * running node. One JSON object per line:
 *   pull_8mb, push_8mb     MB/s of one variable of 8 MiB, one call at a time
 *   bulk                   MB/s of answers, BULK_IN_FLIGHT lookups of 13312 rows in flight
 *   small_idle             us, empty calls one after the other; p99 beside the median
 *   small_under_bulk       the same while the lookups of `bulk` go on
 *
 * usage: bench_transport --server ADDRESS:PORT [--seconds S] [--only NAME] */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "millrace.h"
#include "millrace_observe.h"
#include "tests/bench/common/bench_keys.h"
#include "tests/bench/common/bench_util.h"

#define VARIABLE_ELEMENTS (2u << 20)
#define BULK_ROWS         13312u
#define BULK_IN_FLIGHT    4u
#define TABLE_KEYS        163840u
#define DIM               16u
#define LATENCIES_MAX     1000000u
#define BULK_BYTES        ((double)BULK_ROWS * DIM * sizeof(float))

struct bench {
    struct mr_client *client;
    double seconds;
    uint32_t table, variable;
    uint64_t keys[BULK_ROWS];
    double *us; /* [LATENCIES_MAX] */
};

/* ---- 8 MiB each way ---- */

static void pull_8mb(struct bench *b)
{
    uint32_t runs = 0;
    double start = bench_now_us(), took;
    do {
        struct mr_reply *reply = NULL;
        bench_check(mr_variable_pull(b->client, NULL, b->variable, 0, 0, &reply), "pull");
        mr_reply_free(reply);
        runs++;
        took = bench_now_us() - start;
    } while (took < b->seconds * 1e6);
    bench_print_rate("pull_8mb", (double)runs * VARIABLE_ELEMENTS * sizeof(float) / took, "MB/s", runs);
}

static void push_8mb(struct bench *b)
{
    float *values = calloc(VARIABLE_ELEMENTS, sizeof(*values));
    uint32_t runs = 0;
    double start = bench_now_us(), took;
    do {
        bench_check(mr_variable_push(b->client, NULL, b->variable, 0, VARIABLE_ELEMENTS, values), "push");
        runs++;
        took = bench_now_us() - start;
    } while (took < b->seconds * 1e6);
    bench_print_rate("push_8mb", (double)runs * VARIABLE_ELEMENTS * sizeof(float) / took, "MB/s", runs);
    free(values);
}

/* ---- bulk, and small calls beside it ---- */

static struct mr_future *begin_bulk(struct bench *b)
{
    struct mr_future *future = NULL;
    struct mr_options options = {.future = &future};
    bench_check(mr_lookup(b->client, &options, b->table, b->keys, BULK_ROWS, NULL), "lookup");
    return future;
}

static void end_bulk(struct mr_future *future)
{
    struct mr_reply *reply = NULL;
    bench_check(mr_future_wait(future, &reply), "lookup");
    mr_reply_free(reply);
    mr_future_destroy(future);
}

static void bulk(struct bench *b)
{
    struct mr_future *futures[BULK_IN_FLIGHT];
    uint32_t runs = 0;
    double start = bench_now_us(), took;
    for (uint32_t i = 0; i < BULK_IN_FLIGHT; i++)
        futures[i] = begin_bulk(b);
    do {
        end_bulk(futures[runs % BULK_IN_FLIGHT]);
        futures[runs % BULK_IN_FLIGHT] = begin_bulk(b);
        runs++;
        took = bench_now_us() - start;
    } while (took < b->seconds * 1e6);
    for (uint32_t i = 0; i < BULK_IN_FLIGHT; i++)
        end_bulk(futures[i]);
    bench_print_rate("bulk", runs * BULK_BYTES / took, "MB/s", runs);
}

static double empty_call_us(struct bench *b)
{
    const struct mr_options options = {.priority = 7};
    double start = bench_now_us();
    bench_check(mr_echo(b->client, &options, 0, NULL, 0, NULL), "echo");
    return bench_now_us() - start;
}

static void small_idle(struct bench *b)
{
    uint32_t runs = 0;
    for (double end = bench_now_us() + b->seconds * 1e6; bench_now_us() < end && runs < LATENCIES_MAX; runs++)
        b->us[runs] = empty_call_us(b);
    bench_print_latency("small_idle", b->us, runs);
}

static void small_under_bulk(struct bench *b)
{
    struct mr_future *futures[BULK_IN_FLIGHT];
    uint32_t runs = 0;
    for (uint32_t i = 0; i < BULK_IN_FLIGHT; i++)
        futures[i] = begin_bulk(b);
    for (double end = bench_now_us() + b->seconds * 1e6; bench_now_us() < end && runs < LATENCIES_MAX;
         runs++) {
        b->us[runs] = empty_call_us(b);
        for (uint32_t i = 0; i < BULK_IN_FLIGHT; i++) {
            if (!mr_future_done(futures[i]))
                continue;
            end_bulk(futures[i]);
            futures[i] = begin_bulk(b);
        }
    }
    for (uint32_t i = 0; i < BULK_IN_FLIGHT; i++)
        end_bulk(futures[i]);
    bench_print_latency("small_under_bulk", b->us, runs);
}

/* ---- set-up ---- */

static void make_features(struct bench *b)
{
    struct mr_feature features[2] = {
        mr_feature_table("bench_transport", DIM),
        mr_feature_variable("bench_transport_v", 1, (uint32_t[]){VARIABLE_ELEMENTS})};
    uint32_t ids[2];
    bench_check(mr_create(b->client, NULL, features, 2, ids), "create");
    b->table = ids[0];
    b->variable = ids[1];
    bench_keys_dense(b->keys, BULK_ROWS, TABLE_KEYS);
    end_bulk(begin_bulk(b));
}

static const struct row {
    const char *name;
    void (*run)(struct bench *b);
} rows[] = {{"pull_8mb", pull_8mb},
            {"push_8mb", push_8mb},
            {"bulk", bulk},
            {"small_idle", small_idle},
            {"small_under_bulk", small_under_bulk}};

int main(int argc, char **argv)
{
    static const struct option long_options[] = {{"server", required_argument, NULL, 's'},
                                                 {"seconds", required_argument, NULL, 't'},
                                                 {"only", required_argument, NULL, 'o'},
                                                 {NULL, 0, NULL, 0}};
    struct mr_client_options options = {0};
    struct bench bench = {.seconds = 2.0};
    const char *only = NULL;
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;)
        if (c == 's')
            options.server = optarg;
        else if (c == 't')
            bench.seconds = strtod(optarg, NULL);
        else if (c == 'o')
            only = optarg;
        else
            options.server = NULL;
    if (options.server == NULL || !(bench.seconds > 0)) {
        fprintf(stderr, "usage: bench_transport --server ADDRESS:PORT [--seconds S] [--only NAME]\n");
        return 2;
    }
    bench.client = bench_connect(&options);
    bench.us = calloc(LATENCIES_MAX, sizeof(*bench.us));
    if (bench.us == NULL)
        return 1;
    make_features(&bench);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (only == NULL || strcmp(only, rows[i].name) == 0)
            rows[i].run(&bench);
    free(bench.us);
    mr_client_destroy(bench.client);
    return 0;
}
