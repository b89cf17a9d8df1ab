/* Measures calls against a running node through the public header, one JSON object per line:
 *   {"name": "empty_call_1", "value": 24.1, "unit": "us", "p99": 31.0, "runs": 20000}
 * value is the median of a latency, or calls per second. Sizes are those of the targets in
 * docs/performance.md.
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "millrace.h"
#include "millrace_observe.h"
#include "tests/bench/common/bench_keys.h"
#include "tests/bench/common/bench_util.h"

#define ROWS        13312u /* 512 samples x 26 slots */
#define DIM         16u
#define SAMPLES     512u
#define SLOTS       26u
#define OUTSTANDING 64u
#define STREAM      77u /* of the batches fed here */

static void bench_empty_one(struct mr_client *client, uint32_t runs)
{
    double *us = calloc(runs, sizeof(*us));
    for (uint32_t i = 0; i < runs + 1000; i++) {
        double t0 = bench_now_us();
        bench_check(mr_echo(client, NULL, 0, NULL, 0, NULL), "echo");
        if (i >= 1000)
            us[i - 1000] = bench_now_us() - t0;
    }
    bench_print_latency("empty_call_1", us, runs);
    free(us);
}

static void bench_empty_many(struct mr_client *client, double seconds)
{
    struct mr_future *futures[OUTSTANDING] = {0};
    struct mr_options options = {.more = true}; /* calls made one after the other share packets */
    uint64_t calls = 0;
    double t0 = bench_now_us();
    for (uint32_t i = 0;; i = (i + 1) % OUTSTANDING) {
        if (futures[i] != NULL) {
            bench_check(mr_future_wait(futures[i], NULL), "echo");
            mr_future_destroy(futures[i]);
            calls++;
        }
        if (i == 0 && bench_now_us() - t0 > seconds * 1e6) {
            futures[i] = NULL;
            break;
        }
        options.future = &futures[i];
        bench_check(mr_echo(client, &options, 0, NULL, 0, NULL), "echo");
    }
    double rate = (double)calls / (bench_now_us() - t0) * 1e6;
    for (uint32_t i = 0; i < OUTSTANDING; i++) {
        if (futures[i] != NULL) {
            bench_check(mr_future_wait(futures[i], NULL), "echo");
            mr_future_destroy(futures[i]);
        }
    }
    bench_print_rate("empty_call_64", rate, "calls/s", calls);
}

struct workload {
    uint32_t table, set_table; /* Adagrad's, and one whose rows are replaced */
    uint64_t keys[ROWS];
    float gradients[ROWS * DIM];
};

static struct workload *make_workload(struct mr_client *client, uint64_t key_count)
{
    struct workload *w = calloc(1, sizeof(*w));
    struct mr_feature feature = mr_feature_table("bench", DIM);
    feature.optimizer = MR_OPT_ADAGRAD;
    feature.learning_rate = 0.1f;
    feature.initializer = MR_INIT_UNIFORM;
    feature.init_a = -0.01f;
    feature.init_b = 0.01f;
    bench_check(mr_create(client, NULL, &feature, 1, &w->table), "create");
    struct mr_feature set = mr_feature_table("bench_set", DIM);
    mr_feature_set_optimizer(&set, MR_OPT_ASSIGN);
    bench_check(mr_create(client, NULL, &set, 1, &w->set_table), "create");
    bench_keys_dense(w->keys, ROWS, key_count);
    for (uint32_t i = 0; i < ROWS * DIM; i++)
        w->gradients[i] = 1e-3f * (float)((int)(i % 7) - 3);
    /* Rows exist before anything is measured. */
    for (uint64_t first = 0; first < key_count; first += ROWS) {
        uint64_t keys[ROWS];
        for (uint32_t i = 0; i < ROWS; i++)
            keys[i] = (first + i) % key_count;
        struct mr_reply *reply = NULL;
        bench_check(mr_lookup(client, NULL, w->table, keys, ROWS, &reply), "lookup");
        mr_reply_free(reply);
    }
    return w;
}

/* Bulk calls, one at a time. */
static void bench_bulk(struct mr_client *client, const struct workload *w, const struct mr_options *options,
                       const char *name, uint32_t runs,
                       void (*call)(struct mr_client *client, const struct workload *w,
                                    const struct mr_options *options))
{
    double *us = calloc(runs, sizeof(*us));
    for (uint32_t i = 0; i < runs + 20; i++) {
        double t0 = bench_now_us();
        call(client, w, options);
        if (i >= 20)
            us[i - 20] = bench_now_us() - t0;
    }
    bench_print_latency(name, us, runs);
    free(us);
}

static void call_pull(struct mr_client *client, const struct workload *w, const struct mr_options *options)
{
    struct mr_reply *reply = NULL;
    bench_check(mr_lookup(client, options, w->table, w->keys, ROWS, &reply), "lookup");
    mr_reply_free(reply);
}

static void call_push(struct mr_client *client, const struct workload *w, const struct mr_options *options)
{
    bench_check(mr_push_gradients(client, options, w->table, w->keys, ROWS, DIM, w->gradients), "push");
}

static void call_set(struct mr_client *client, const struct workload *w, const struct mr_options *options)
{
    bench_check(mr_push_gradients(client, options, w->set_table, w->keys, ROWS, DIM, w->gradients), "set");
}

static void call_bags(struct mr_client *client, const struct workload *w, const struct mr_options *options)
{
    uint32_t offsets[SAMPLES + 1];
    struct mr_reply *reply = NULL;
    for (uint32_t i = 0; i <= SAMPLES; i++)
        offsets[i] = i * SLOTS;
    bench_check(mr_lookup_bags(client, options, w->table, w->keys, NULL, offsets, SAMPLES, &reply), "bags");
    mr_reply_free(reply);
}

/* Small lookups: what a call from Python is compared with. */
static void bench_lookup(struct mr_client *client, const struct workload *w, uint32_t key_count,
                         const char *name, uint32_t runs)
{
    double *us = calloc(runs, sizeof(*us));
    for (uint32_t i = 0; i < runs + 1000; i++) {
        struct mr_reply *reply = NULL;
        double t0 = bench_now_us();
        bench_check(mr_lookup(client, NULL, w->table, w->keys, key_count, &reply), "lookup");
        if (i >= 1000)
            us[i - 1000] = bench_now_us() - t0;
        mr_reply_free(reply);
    }
    bench_print_latency(name, us, runs);
    free(us);
}

static void read_lookups(void *arg, const char *op, const struct mr_histogram *histogram)
{
    if (strcmp(op, "lookup") == 0)
        *(struct mr_histogram *)arg = *histogram;
}

/* What the client says of its own lookups' p99, beside that of the same calls timed here. */
static void bench_own_p99(struct mr_client *client, const struct workload *w, uint32_t runs)
{
    double *us = calloc(runs, sizeof(*us));
    struct mr_histogram before = {0}, now = {0};
    bench_check(mr_client_latencies(client, read_lookups, &before), "latencies");
    for (uint32_t i = 0; i < runs; i++) {
        struct mr_reply *reply = NULL;
        double t0 = bench_now_us();
        bench_check(mr_lookup(client, NULL, w->table, w->keys, 64, &reply), "lookup");
        us[i] = bench_now_us() - t0;
        mr_reply_free(reply);
    }
    bench_check(mr_client_latencies(client, read_lookups, &now), "latencies");
    mr_histogram_subtract(&now, &before);
    if (now.count != runs)
        bench_give_up("the client did not count each of its lookups");
    bench_print_latency("lookup_64_timed", us, runs);
    printf(
        "{\"name\": \"lookup_64_counted\", \"value\": %.2f, \"unit\": \"us\", \"p99\": %.2f, \"runs\": %u}\n",
        (double)mr_histogram_percentile_ns(&now, 0.5) / 1e3,
        (double)mr_histogram_percentile_ns(&now, 0.99) / 1e3, runs);
    fflush(stdout);
    free(us);
}

/* Of 64 keys: of one segment. */
static void bench_push_small(struct mr_client *client, const struct workload *w, uint32_t runs)
{
    double *us = calloc(runs, sizeof(*us));
    for (uint32_t i = 0; i < runs + 1000; i++) {
        double t0 = bench_now_us();
        bench_check(mr_push_gradients(client, NULL, w->table, w->keys, 64, DIM, w->gradients), "push");
        if (i >= 1000)
            us[i - 1000] = bench_now_us() - t0;
    }
    bench_print_latency("push_64", us, runs);
    free(us);
}

/* A batch of SAMPLES, with a bag for each of so many slots, whose SLOTS / slots keys the server sums. */
static void bench_lookup_batch(const char *name, struct mr_client *client, const struct workload *w,
                               uint32_t slots, const struct mr_options *options, uint32_t runs)
{
    uint32_t offsets[SAMPLES * SLOTS + 1];
    for (uint32_t i = 0; i <= SAMPLES * slots; i++)
        offsets[i] = i * (SLOTS / slots);
    double *us = calloc(runs, sizeof(*us));
    uint64_t base = ((uint64_t)STREAM << 48) + ((uint64_t)bench_now_us() & 0xffffffffu) * 16;
    for (uint32_t i = 0; i < runs + 20; i++) {
        uint64_t batch = base + i;
        struct mr_batch_keys keys = {w->table, SAMPLES, slots, w->keys, offsets, NULL};
        bench_check(mr_feed_sample(client, NULL, batch, &keys, 1, false), "feed_sample");
        struct mr_reply *reply = NULL;
        double t0 = bench_now_us();
        bench_check(mr_lookup_batch(client, options, batch, w->table, &reply), "lookup_batch");
        if (i >= 20)
            us[i - 20] = bench_now_us() - t0;
        mr_reply_free(reply);
        bench_check(mr_forget_batches(client, NULL, &batch, 1), "forget_batches");
    }
    bench_print_latency(name, us, runs);
    free(us);
}

static enum mr_dtype dtype_of(const char *name)
{
    static const enum mr_dtype dtypes[] = {MR_F32, MR_F16, MR_BF16, MR_I8};
    static const char *const names[] = {"f32", "f16", "bf16", "i8"};
    for (uint32_t i = 0; i < 4; i++)
        if (strcmp(name, names[i]) == 0)
            return dtypes[i];
    return MR_DTYPE_NONE;
}

static void usage(FILE *out)
{
    fprintf(
        out,
        "usage: bench_calls --server ADDRESS:PORT [--key-file FILE] [--runs N] [--rows N] [--only NAME]\n"
        "                   [--wire-dtype f32|f16|bf16|i8] [--sleep]\n"
        "Times the calls of docs/performance.md against a running node; prints one JSON object per line.\n"
        "--sleep: does not spin while it waits.\n");
}

int main(int argc, char **argv)
{
    static const struct option long_options[] = {{"server", required_argument, NULL, 's'},
                                                 {"key-file", required_argument, NULL, 'k'},
                                                 {"wire-dtype", required_argument, NULL, 'w'},
                                                 {"rows", required_argument, NULL, 't'},
                                                 {"runs", required_argument, NULL, 'r'},
                                                 {"only", required_argument, NULL, 'o'},
                                                 {"sleep", no_argument, NULL, 'z'},
                                                 {"help", no_argument, NULL, 'h'},
                                                 {NULL, 0, NULL, 0}};
    struct mr_client_options options = {0};
    uint32_t runs = 500, rows = 163840; /* about the demo's table */
    const char *only = NULL;
    struct mr_options call = {0};
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        switch (c) {
        case 's':
            options.server = optarg;
            break;
        case 'k':
            options.key_file = optarg;
            break;
        case 'r':
            runs = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 't':
            rows = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'o':
            only = optarg;
            break;
        case 'z':
            options.busy_poll_us = 1;
            break;
        case 'w':
            call.wire_dtype = dtype_of(optarg);
            if (call.wire_dtype == MR_DTYPE_NONE) {
                usage(stderr);
                return 2;
            }
            break;
        case 'h':
            usage(stdout);
            return 0;
        default:
            usage(stderr);
            return 2;
        }
    }
    if (options.server == NULL || runs == 0 || rows == 0) {
        usage(stderr);
        return 2;
    }
    struct mr_client *client = bench_connect(&options);
    if (only == NULL || strcmp(only, "empty_call_1") == 0)
        bench_empty_one(client, runs * 40);
    if (only == NULL || strcmp(only, "empty_call_64") == 0)
        bench_empty_many(client, 2.0);
    struct workload *w = make_workload(client, rows);
    if (only == NULL || strcmp(only, "lookup_1") == 0)
        bench_lookup(client, w, 1, "lookup_1", runs * 20);
    if (only == NULL || strcmp(only, "lookup_64") == 0)
        bench_lookup(client, w, 64, "lookup_64", runs * 20);
    if (only != NULL && strcmp(only, "push_64") == 0)
        bench_push_small(client, w, runs * 20);
    if (only != NULL && strcmp(only, "own_p99") == 0)
        bench_own_p99(client, w, runs * 40);
    static const struct {
        const char *name;
        void (*call)(struct mr_client *client, const struct workload *w, const struct mr_options *options);
    } bulk[] = {{"pull_13312x16", call_pull},
                {"push_13312x16", call_push},
                {"set_13312x16", call_set},
                {"bags_512x26", call_bags}};
    for (uint32_t i = 0; i < sizeof(bulk) / sizeof(bulk[0]); i++)
        if (only == NULL || strcmp(only, bulk[i].name) == 0)
            bench_bulk(client, w, &call, bulk[i].name, runs, bulk[i].call);
    static const struct {
        const char *name;
        uint32_t slots;
    } batches[] = {{"lookup_512x26_by_batch", SLOTS}, {"lookup_512x26_summed_by_batch", 1}};
    for (uint32_t i = 0; i < 2; i++)
        if (only == NULL || strcmp(only, batches[i].name) == 0)
            bench_lookup_batch(batches[i].name, client, w, batches[i].slots, &call, runs);
    free(w);
    mr_client_destroy(client);
    return 0;
}
