/* Measures tables in process, each next to a bare loop over the same keys and rows (tests/bench/bare_table.h): hash, probe,
 * prefetched gather, and nothing else. One JSON object per line:
 *   {"name": "table_lookup_1000k", "value": 70.1, "unit": "Mkeys/s", "limit": 80.2, "ratio": 0.87, "better": "higher",
 *    "target": 0.85, "met": true}
 * Table and bare loop take turns, and each call's best turn counts: the machine's noise only ever slows down.
 *
 * bench_table [THOUSANDS_OF_ROWS ...]   default: 160 1000
 */
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "bare_table.h"
#include "ps/table.h"

#define DIM        16u
#define CALL_KEYS  13312u /* 512 samples x 26 slots */
#define BAG_KEYS   26u
#define BAGS       (CALL_KEYS / BAG_KEYS)
#define CALLS      64u
#define TURNS      9u
#define ZIPF_SHAPE 1.05

struct bench {
    uint64_t row_count;
    struct ps_arena *arena;
    struct ps_table *table;
    struct bare_table *bare;
    uint64_t *keys; /* [CALLS, CALL_KEYS] */
    uint32_t *offsets;
    float *out, *gradients; /* [CALL_KEYS, DIM] */
};

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* The i-th key: any u64, without a pattern. */
static uint64_t key_at(uint64_t i)
{
    uint64_t state = i;
    return random_next(&state);
}

static void *allocate(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (p == NULL) {
        fprintf(stderr, "bench_table: out of memory\n");
        exit(1);
    }
    memset(p, 0, bytes);
    return p;
}

static void report(const char *name, uint64_t row_count, double value, const char *unit, double limit,
                   double target)
{
    double ratio = value / limit;
    printf("{\"name\": \"%s_%" PRIu64
           "k\", \"value\": %.2f, \"unit\": \"%s\", \"limit\": %.2f, \"ratio\": %.3f, "
           "\"better\": \"higher\", \"target\": %.2f, \"met\": %s}\n",
           name, row_count / 1000, value, unit, limit, ratio, target, ratio >= target ? "true" : "false");
    fflush(stdout);
}

/* Lowers best_us[call] to this turn's time of each call. */
static void turn_of(struct bench *b, void (*call)(struct bench *b, const uint64_t *keys), double *best_us)
{
    for (uint32_t i = 0; i < CALLS; i++) {
        double t0 = now_us();
        call(b, b->keys + (size_t)i * CALL_KEYS);
        best_us[i] = fmin(best_us[i], now_us() - t0);
    }
}

static double mean(const double *us)
{
    double sum = 0;
    for (uint32_t i = 0; i < CALLS; i++)
        sum += us[i];
    return sum / CALLS;
}

static void compare(struct bench *b, const char *name, void (*table)(struct bench *b, const uint64_t *keys),
                    void (*bare)(struct bench *b, const uint64_t *keys), double target)
{
    double table_us[CALLS], bare_us[CALLS];
    for (uint32_t i = 0; i < CALLS; i++)
        table_us[i] = bare_us[i] = INFINITY;
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        turn_of(b, table, table_us);
        turn_of(b, bare, bare_us);
    }
    report(name, b->row_count, CALL_KEYS / mean(table_us), "Mkeys/s", CALL_KEYS / mean(bare_us), target);
    fprintf(stderr, "  %s: %.1f us a call of %u keys, bare loop %.1f us\n", name, mean(table_us), CALL_KEYS,
            mean(bare_us));
}

static void table_lookup(struct bench *b, const uint64_t *keys)
{
    ps_table_lookup(b->table, keys, CALL_KEYS, false, b->out);
}
static void bare_lookup(struct bench *b, const uint64_t *keys)
{
    bare_table_lookup(b->bare, keys, CALL_KEYS, b->out);
}
static void table_sum(struct bench *b, const uint64_t *keys)
{
    ps_table_lookup_bags(b->table, keys, b->offsets, BAGS, false, b->out);
}
static void bare_sum(struct bench *b, const uint64_t *keys)
{
    bare_table_sum(b->bare, keys, BAGS, BAG_KEYS, b->out);
}
static void table_push(struct bench *b, const uint64_t *keys)
{
    ps_table_push(b->table, keys, CALL_KEYS, b->gradients);
}
static void bare_push(struct bench *b, const uint64_t *keys)
{
    bare_table_push(b->bare, keys, CALL_KEYS, b->gradients);
}

static void fill(struct bench *b)
{
    double worst_us = 0, t0 = now_us();
    for (uint64_t i = 0; i < b->row_count; i += CALL_KEYS) {
        uint32_t n = b->row_count - i < CALL_KEYS ? (uint32_t)(b->row_count - i) : CALL_KEYS;
        for (uint32_t j = 0; j < n; j++)
            b->keys[j] = key_at(i + j);
        double t1 = now_us();
        ps_table_lookup(b->table, b->keys, n, true, b->out);
        double us = now_us() - t1;
        worst_us = us > worst_us ? us : worst_us;
        bare_table_insert(b->bare, b->keys, n);
    }
    double rows = (double)ps_table_rows(b->table);
    fprintf(stderr,
            "%.0f rows of %u floats and their state: filled in %.2f s, slowest call of %u new rows %.0f us; "
            "index %.1f "
            "bytes a row, rows %.1f, mapped %.1f\n",
            rows, DIM, (now_us() - t0) / 1e6, CALL_KEYS, worst_us,
            (double)ps_table_index_bytes(b->table) / rows, (double)ps_table_row_bytes_total(b->table) / rows,
            (double)ps_arena_mapped_bytes(b->arena) / rows);
}

static double thread_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Slowest single insert of a new key, in processor time: what growing and fresh memory cost at worst. */
static void insert_one_by_one(struct bench *b)
{
    double worst_us = 0;
    for (uint64_t i = 0; i < b->row_count / 4; i++) {
        uint64_t key = key_at(b->row_count + i);
        double t0 = thread_us();
        ps_table_lookup(b->table, &key, 1, true, b->out);
        double us = thread_us() - t0;
        worst_us = us > worst_us ? us : worst_us;
    }
    fprintf(stderr, "  slowest of %" PRIu64 " single inserts: %.0f us\n", b->row_count / 4, worst_us);
}

static void keys_uniform(struct bench *b)
{
    uint64_t seed = 42;
    for (uint32_t i = 0; i < CALLS * CALL_KEYS; i++)
        b->keys[i] = key_at(random_next(&seed) % b->row_count);
}

/* Zipf by inversion of the continuous distribution: close enough in shape, and quick. */
static void keys_zipf(struct bench *b)
{
    uint64_t seed = 43;
    double span = pow((double)b->row_count, 1 - ZIPF_SHAPE) - 1;
    for (uint32_t i = 0; i < CALLS * CALL_KEYS; i++) {
        double u = (double)(random_next(&seed) >> 11) * 0x1p-53;
        uint64_t rank = (uint64_t)pow(1 + u * span, 1 / (1 - ZIPF_SHAPE)) - 1;
        b->keys[i] = key_at(rank < b->row_count ? rank : b->row_count - 1);
    }
}

static void run(uint64_t row_count)
{
    struct bench b = {.row_count = row_count};
    struct mr_feature feature = mr_feature_table("bench", DIM);
    feature.optimizer = MR_OPT_ADAGRAD;
    feature.optimizer_args[0] = 0.1f;
    feature.optimizer_args[1] = 1e-10f;
    feature.initializer = MR_INIT_UNIFORM;
    feature.init_a = -0.05f;
    feature.init_b = 0.05f;
    const char *what = "";
    b.arena = ps_arena_create((size_t)row_count * 320 + ((size_t)64 << 20));
    if (b.arena == NULL || ps_table_create(&feature, b.arena, &b.table, &what) != MR_OK) {
        fprintf(stderr, "bench_table: cannot make a table %s\n", what);
        exit(1);
    }
    b.bare = bare_table_create(row_count, DIM, feature.learning_rate);
    b.keys = allocate(CALLS * CALL_KEYS * sizeof(uint64_t));
    b.offsets = allocate((BAGS + 1) * sizeof(uint32_t));
    b.out = allocate(CALL_KEYS * DIM * sizeof(float));
    b.gradients = allocate(CALL_KEYS * DIM * sizeof(float));
    for (uint32_t i = 0; i <= BAGS; i++)
        b.offsets[i] = i * BAG_KEYS;
    for (uint32_t i = 0; i < CALL_KEYS * DIM; i++)
        b.gradients[i] = 1e-3f * (float)(i % 17);
    fill(&b);
    keys_uniform(&b);
    compare(&b, "table_lookup", table_lookup, bare_lookup, 0.85);
    compare(&b, "table_lookup_summed", table_sum, bare_sum, 0.85);
    compare(&b, "table_push_adagrad", table_push, bare_push, 0.80);
    keys_zipf(&b);
    compare(&b, "table_lookup_zipf", table_lookup, bare_lookup, 0.85);
    compare(&b, "table_push_adagrad_zipf", table_push, bare_push, 0.80);
    insert_one_by_one(&b);
    ps_table_destroy(b.table);
    ps_arena_destroy(b.arena);
    bare_table_destroy(b.bare);
    free(b.keys);
    free(b.offsets);
    free(b.out);
    free(b.gradients);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        run(160000);
        run(1000000);
    }
    for (int i = 1; i < argc; i++) {
        uint64_t thousands = strtoull(argv[i], NULL, 10);
        if (thousands < 1 || thousands > 1000000) {
            fprintf(stderr, "bench_table: \"%s\": give thousands of rows, 1..1000000\n", argv[i]);
            return 2;
        }
        run(thousands * 1000);
    }
    return 0;
}
