/* Work that is hard on a parameter server, each next to the same work without that, against a running
 * node. One JSON object per line, as tests/bench/worst.py wants them.
 *
 * keys     worst_many_clients, _p99     lookups of one key by 64 clients, beside one client with 64 in flight
 *          worst_hot_key_lookup, _push  one key for all, beside random keys
 * rows     worst_long_rows_pull, _push  as many bytes in rows of 1024 values as in rows of 16
 * chosen   worst_chosen_keys            400,000 new keys of a partition whose hashes have equal upper bits,
 *                                       beside random ones of it
 * beside   pull, small                  a pull of 13312 rows, and an empty call, for what runs beside them
 * slow     pulls, four at a time, until its standard input closes; says "pulling" after the first
 *
 * usage: bench_worst --server ADDRESS:PORT [--key FILE] WHAT... */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "millrace.h"
#include "millrace_observe.h"
#include "ps/base/key_hash.h"
#include "tests/bench/common/bench_keys.h"
#include "tests/bench/common/bench_util.h"

#define KEYS           163840u
#define ROWS           13312u
#define DIM            16u
#define LONG_ROWS      208u
#define LONG_DIM       1024u
#define CLIENTS        64u
#define CALLS          60000u /* of all clients together */
#define BULK_RUNS      100u
#define SMALL_RUNS     20000u
#define SLOW_IN_FLIGHT 4u
#define WARM_UP        10u
#define NEW_KEYS       400000u
#define NEW_KEYS_CALL  8192u

_Static_assert(ROWS *DIM == LONG_ROWS * LONG_DIM, "as many bytes");

struct bench {
    const char *server;
    struct mr_client *client;
    uint32_t table, long_table;
    uint64_t keys[ROWS], hot[ROWS];
    float gradients[ROWS * DIM];
    double us[CALLS];
};

static void print_beside(const char *name, double value, double limit)
{
    printf("{\"name\": \"%s\", \"value\": %.2f, \"limit\": %.2f}\n", name, value, limit);
    fflush(stdout);
}

/* ---- many clients, one key each ---- */

struct flight {
    struct mr_client *client;
    struct mr_future *future;
    uint64_t key;
    double begun_us;
};

static void begin_lookup(const struct bench *b, struct flight *flight)
{
    const struct mr_options options = {.future = &flight->future};
    flight->begun_us = bench_now_us();
    bench_check(mr_lookup(flight->client, &options, b->table, &flight->key, 1, NULL), "lookup");
}

static void end_lookup(struct flight *flight)
{
    struct mr_reply *reply = NULL;
    bench_check(mr_future_wait(flight->future, &reply), "lookup");
    mr_reply_free(reply);
    mr_future_destroy(flight->future);
    flight->future = NULL;
}

/* Calls per second of all flights, each with one lookup at a time; b->us gets each one's time. */
static double lookups_per_s(struct bench *b, struct flight *flights)
{
    uint32_t begun = 0, done = 0;
    double start = bench_now_us();
    for (; begun < CLIENTS; begun++)
        begin_lookup(b, &flights[begun]);
    while (done < CALLS)
        for (uint32_t i = 0; i < CLIENTS; i++) {
            if (flights[i].future == NULL || !mr_future_done(flights[i].future))
                continue;
            b->us[done++] = bench_now_us() - flights[i].begun_us;
            end_lookup(&flights[i]);
            if (begun++ < CALLS)
                begin_lookup(b, &flights[i]);
        }
    return CALLS / (bench_now_us() - start) * 1e6;
}

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double p99(double *us, uint32_t count)
{
    qsort(us, count, sizeof(*us), compare_double);
    return us[(uint64_t)count * 99 / 100];
}

static void many_clients(struct bench *b)
{
    struct flight one[CLIENTS] = {0}, many[CLIENTS] = {0}, hot[CLIENTS];
    for (uint32_t i = 0; i < CLIENTS; i++) {
        struct mr_client_options options = {.server = b->server};
        one[i] = (struct flight){.client = b->client, .key = b->keys[i]};
        many[i] = (struct flight){.client = bench_connect(&options), .key = b->keys[i]};
        hot[i] = (struct flight){.client = many[i].client, .key = b->keys[0]};
    }
    (void)lookups_per_s(b, many); /* warm-up: every client knows the table */
    double one_rate = lookups_per_s(b, one), one_p99 = p99(b->us, CALLS);
    double many_rate = lookups_per_s(b, many), many_p99 = p99(b->us, CALLS);
    double hot_rate = lookups_per_s(b, hot);
    print_beside("worst_many_clients", many_rate, one_rate);
    print_beside("worst_many_clients_p99", many_p99, one_p99);
    print_beside("worst_hot_key_lookup", hot_rate, many_rate);
    for (uint32_t i = 0; i < CLIENTS; i++)
        mr_client_destroy(many[i].client);
}

/* ---- bulk ---- */

static double pull_us(struct bench *b, uint32_t table, uint32_t rows)
{
    for (uint32_t i = 0; i < BULK_RUNS + WARM_UP; i++) {
        struct mr_reply *reply = NULL;
        double start = bench_now_us();
        bench_check(mr_lookup(b->client, NULL, table, b->keys, rows, &reply), "lookup");
        if (i >= WARM_UP)
            b->us[i - WARM_UP] = bench_now_us() - start;
        mr_reply_free(reply);
    }
    qsort(b->us, BULK_RUNS, sizeof(*b->us), compare_double);
    return b->us[BULK_RUNS / 2];
}

static double push_us(struct bench *b, uint32_t table, const uint64_t *keys, uint32_t rows, uint32_t dim)
{
    for (uint32_t i = 0; i < BULK_RUNS + WARM_UP; i++) {
        double start = bench_now_us();
        bench_check(mr_push_gradients(b->client, NULL, table, keys, rows, dim, b->gradients), "push");
        if (i >= WARM_UP)
            b->us[i - WARM_UP] = bench_now_us() - start;
    }
    qsort(b->us, BULK_RUNS, sizeof(*b->us), compare_double);
    return b->us[BULK_RUNS / 2];
}

static void run_keys(struct bench *b)
{
    many_clients(b);
    double spread = push_us(b, b->table, b->keys, ROWS, DIM), hot = push_us(b, b->table, b->hot, ROWS, DIM);
    print_beside("worst_hot_key_push", hot, spread);
}

static void run_rows(struct bench *b)
{
    double pull = pull_us(b, b->table, ROWS), long_pull = pull_us(b, b->long_table, LONG_ROWS);
    double push = push_us(b, b->table, b->keys, ROWS, DIM);
    double long_push = push_us(b, b->long_table, b->keys, LONG_ROWS, LONG_DIM);
    print_beside("worst_long_rows_pull", long_pull, pull);
    print_beside("worst_long_rows_push", long_push, push);
}

/* Time for NEW_KEYS rows of partition 5 that are not there yet; `spread`: by which the hashes of two keys
 * in a row differ. */
static double insert_us(struct bench *b, const char *name, uint64_t spread)
{
    struct mr_feature feature = mr_feature_table(name, 4);
    uint32_t table;
    static uint64_t keys[NEW_KEYS_CALL];
    double took_us = 0;
    feature.seed = 0;
    bench_check(mr_create(b->client, NULL, &feature, 1, &table), "create");
    for (uint64_t at = 0; at < NEW_KEYS; at += NEW_KEYS_CALL) {
        for (uint64_t i = 0; i < NEW_KEYS_CALL; i++)
            keys[i] = ps_key_of_hash(UINT64_C(5) << 52 | ((at + i) * spread & PS_PLACED_MASK), feature.seed);
        const double start = bench_now_us();
        struct mr_reply *reply = NULL;
        bench_check(mr_lookup(b->client, NULL, table, keys, NEW_KEYS_CALL, &reply), "lookup");
        took_us += bench_now_us() - start;
        mr_reply_free(reply);
    }
    return took_us;
}

static void run_chosen(struct bench *b)
{
    const double random = insert_us(b, "bench_random", UINT64_C(0x9e3779b97f4a7c15));
    print_beside("worst_chosen_keys", insert_us(b, "bench_chosen", 1), random);
}

static void run_beside(struct bench *b)
{
    printf("{\"name\": \"pull\", \"value\": %.2f}\n", pull_us(b, b->table, ROWS));
    for (uint32_t i = 0; i < SMALL_RUNS; i++) {
        double start = bench_now_us();
        bench_check(mr_echo(b->client, NULL, 0, NULL, 0, NULL), "echo");
        b->us[i] = bench_now_us() - start;
    }
    bench_print_latency("small", b->us, SMALL_RUNS);
}

static bool input_is_open(void)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&input, 1, 0) == 0;
}

static void run_slow(struct bench *b)
{
    struct mr_future *futures[SLOW_IN_FLIGHT] = {0};
    bool said = false;
    for (uint32_t i = 0; input_is_open(); i = (i + 1) % SLOW_IN_FLIGHT) {
        const struct mr_options options = {.future = &futures[i], .deadline_ms = 60000};
        if (futures[i] != NULL) {
            struct mr_reply *reply = NULL;
            bench_check(mr_future_wait(futures[i], &reply), "lookup");
            mr_reply_free(reply);
            mr_future_destroy(futures[i]);
            if (!said)
                (void)puts("pulling");
            said = true;
            (void)fflush(stdout);
        }
        bench_check(mr_lookup(b->client, &options, b->table, b->keys, ROWS, NULL), "lookup");
    }
    for (uint32_t i = 0; i < SLOW_IN_FLIGHT; i++)
        mr_future_destroy(futures[i]);
}

/* ---- set-up ---- */

static void make_tables(struct bench *b)
{
    struct mr_feature features[2] = {mr_feature_table("bench_worst", DIM),
                                     mr_feature_table("bench_worst_long", LONG_DIM)};
    uint32_t ids[2];
    for (uint32_t i = 0; i < 2; i++) {
        features[i].optimizer = MR_OPT_ADAGRAD;
        features[i].learning_rate = 0.1f;
    }
    bench_check(mr_create(b->client, NULL, features, 2, ids), "create");
    b->table = ids[0];
    b->long_table = ids[1];
    for (uint32_t i = 0; i < ROWS; i++) {
        b->keys[i] = bench_key_at(i) % KEYS;
        b->hot[i] = b->keys[0];
    }
    for (uint32_t i = 0; i < ROWS * DIM; i++)
        b->gradients[i] = 1e-3f * (float)((int)(i % 7) - 3);
}

int main(int argc, char **argv)
{
    static const struct work {
        const char *name;
        void (*run)(struct bench *b);
    } works[] = {{"keys", run_keys},
                 {"rows", run_rows},
                 {"chosen", run_chosen},
                 {"beside", run_beside},
                 {"slow", run_slow}};
    const size_t count = sizeof(works) / sizeof(works[0]);
    struct bench *b = bench_allocate(sizeof(*b));
    const bool has_key = argc >= 6 && strcmp(argv[3], "--key") == 0;
    const int first = has_key ? 5 : 3;
    if (argc < 4 || strcmp(argv[1], "--server") != 0) {
        fprintf(stderr,
                "usage: bench_worst --server ADDRESS:PORT [--key FILE] keys|rows|chosen|beside|slow...\n");
        return 2;
    }
    /* It must not take the processor from what is measured: 1 us, and then it sleeps. */
    const bool is_slow = strcmp(argv[first], "slow") == 0;
    struct mr_client_options options = {.server = argv[2],
                                        .key_file = has_key ? argv[4] : NULL,
                                        .busy_poll_us = is_slow ? 1 : 0,
                                        .connect_ms = 30000};
    b->server = argv[2];
    b->client = bench_connect(&options);
    make_tables(b);
    for (int i = first; i < argc; i++)
        for (size_t w = 0; w < count; w++)
            if (strcmp(argv[i], works[w].name) == 0)
                works[w].run(b);
    mr_client_destroy(b->client);
    free(b);
    return 0;
}
