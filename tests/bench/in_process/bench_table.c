/* Measures tables in process, of rows of 16 floats (bench_table) or 64 (bench_table_wide), each next to a
 * bare loop over the same keys and rows: hash, probe, prefetched gather, and nothing else
 * (tests/bench/limits/bare_table.h). One JSON object per line:
 *   {"name": "table_sgd_lookup_1000k", "value": 70.1, "unit": "Mkeys/s", "limit": 80.2, "ratio": 0.87,
 *    "better": "higher", "target": 0.85}
 * Table and bare loop take turns, and each call's best turn counts: the machine's noise only ever slows
 * down.
 *
 * bench_table [--optimizer sgd|adagrad] [--only NAME] [--vectors avx512|avx2|baseline]
 *             [THOUSANDS_OF_ROWS ...]
 *   default: adagrad, all, the widest, 160 1000
 */
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/bench/limits/bare_table.h"
#include "tests/bench/common/bench_keys.h"
#include "tests/bench/common/bench_print.h"
#include "dataplane/optimizer/kernels.h"
#include "ps/table/table.h"
#include "tests/unit/ps/table_calls.h"

static const struct ps_key_secret bench_key_secret = {{0x2545f4914f6cdd1d, 0xd6e8feb86659fd93}};

#define DIM        BARE_DIM
#define CALL_KEYS  13312u /* 512 samples x 26 slots */
#define BAG_KEYS   26u
#define BAGS       (CALL_KEYS / BAG_KEYS)
#define CALLS      64u
#define KEYS       ((size_t)CALLS * CALL_KEYS)
#define TURNS      9u
#define ZIPF_SHAPE 1.05

struct bench {
    uint64_t row_count;
    bool adagrad;
    const char *only; /* of the comparisons below, by name; NULL: all */
    struct ps_arena *arena;
    struct ps_table *table;
    struct bare_table *bare;
    uint64_t *uniform, *zipf; /* [CALLS, CALL_KEYS] */
    uint32_t *offsets;
    float *out, *gradients; /* [CALL_KEYS, DIM] */
};

/* One side of a comparison. */
struct side {
    void (*call)(struct bench *b, const uint64_t *keys);
    const uint64_t *keys; /* [CALLS, CALL_KEYS] */
};

static void report(const struct bench *b, const char *name, double value, const char *unit, double limit,
                   const char *better, double target)
{
    char full[80];
    (void)snprintf(full, sizeof(full), "table_%s%s_%s_%" PRIu64 "k", DIM > 16 ? "wide_" : "",
                   b->adagrad ? "adagrad" : "sgd", name, b->row_count / 1000);
    bench_print_ratio(full, value, unit, limit, better, target);
}

/* Lowers best_us[call] to this turn's time of each call. */
static void turn_of(struct bench *b, const struct side *side, double *best_us)
{
    for (uint32_t i = 0; i < CALLS; i++) {
        double t0 = bench_now_us();
        side->call(b, side->keys + (size_t)i * CALL_KEYS);
        best_us[i] = fmin(best_us[i], bench_now_us() - t0);
    }
}

static double mean(const double *us)
{
    double sum = 0;
    for (uint32_t i = 0; i < CALLS; i++)
        sum += us[i];
    return sum / CALLS;
}

static void compare(struct bench *b, const char *name, struct side side, struct side limit, double target)
{
    double side_us[CALLS], limit_us[CALLS];
    if (b->only != NULL && strcmp(b->only, name) != 0)
        return;
    for (uint32_t i = 0; i < CALLS; i++)
        side_us[i] = limit_us[i] = INFINITY;
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        turn_of(b, &side, side_us);
        turn_of(b, &limit, limit_us);
    }
    report(b, name, CALL_KEYS / mean(side_us), "Mkeys/s", CALL_KEYS / mean(limit_us), "higher", target);
}

static void one_lookup(struct bench *b, const uint64_t *keys)
{
    table_lookup(b->table, keys, CALL_KEYS, false, b->out);
}
static void bare_lookup(struct bench *b, const uint64_t *keys)
{
    bare_table_lookup(b->bare, keys, CALL_KEYS, b->out);
}
static void table_sum(struct bench *b, const uint64_t *keys)
{
    table_lookup_bags(b->table, keys, b->offsets, BAGS, false, b->out);
}
static void bare_sum(struct bench *b, const uint64_t *keys)
{
    bare_table_sum(b->bare, keys, BAGS, BAG_KEYS, b->out);
}
static void one_push(struct bench *b, const uint64_t *keys)
{
    table_push(b->table, keys, CALL_KEYS, b->gradients);
}
static void bare_push(struct bench *b, const uint64_t *keys)
{
    bare_table_push(b->bare, keys, CALL_KEYS, b->gradients);
}

static void table_fill(struct bench *b)
{
    uint64_t keys[CALL_KEYS];
    for (uint64_t i = 0; i < b->row_count; i += CALL_KEYS) {
        uint32_t n = b->row_count - i < CALL_KEYS ? (uint32_t)(b->row_count - i) : CALL_KEYS;
        for (uint32_t j = 0; j < n; j++)
            keys[j] = bench_key_at(i + j);
        table_lookup(b->table, keys, n, true, b->out);
        bare_table_insert(b->bare, keys, n);
    }
    if (ps_table_rows(b->table) != b->row_count) {
        fprintf(stderr, "bench_table: only %" PRIu64 " rows were made\n", ps_table_rows(b->table));
        exit(1);
    }
}

/* Memory of the whole table beside its rows' bytes alone. */
static void report_memory(const struct bench *b)
{
    double rows = (double)b->row_count, index_bytes = (double)ps_table_index_bytes(b->table),
           row_bytes = (double)ps_table_row_bytes_total(b->table),
           raw_bytes = ps_table_stored_row_bytes(b->table);
    report(b, "memory", (double)ps_arena_mapped_bytes(b->arena) / rows, "bytes/row", raw_bytes, "lower",
           1.15);
    fprintf(stderr, "  bytes a row: index %.1f, rows %.1f, in use %.1f, mapped %.1f; raw %.0f\n",
            index_bytes / rows, row_bytes / rows, (double)ps_arena_allocated_bytes(b->arena) / rows,
            (double)ps_arena_mapped_bytes(b->arena) / rows, raw_bytes);
}

static void bench_open(struct bench *b)
{
    struct mr_feature feature = mr_feature_table("bench", DIM);
    feature.optimizer = b->adagrad ? MR_OPT_ADAGRAD : MR_OPT_SGD;
    if (b->adagrad) {
        feature.optimizer_args[0] = 0.1f;
        feature.optimizer_args[1] = 1e-10f;
    }
    feature.initializer = MR_INIT_UNIFORM;
    feature.init_a = -0.05f;
    feature.init_b = 0.05f;
    const char *what = "";
    b->arena = ps_arena_create((size_t)b->row_count * 320 + ((size_t)64 << 20));
    if (b->arena == NULL ||
        ps_table_create(&feature, b->arena, &bench_key_secret, &b->table, &what) != MR_OK) {
        fprintf(stderr, "bench_table: cannot make a table %s\n", what);
        exit(1);
    }
    b->bare = bare_table_create(b->row_count, b->adagrad, feature.learning_rate);
    b->uniform = bench_allocate(KEYS * sizeof(uint64_t));
    b->zipf = bench_allocate(KEYS * sizeof(uint64_t));
    b->offsets = bench_allocate((BAGS + 1) * sizeof(uint32_t));
    b->out = bench_allocate(CALL_KEYS * DIM * sizeof(float));
    b->gradients = bench_allocate(CALL_KEYS * DIM * sizeof(float));
    bench_keys_uniform(b->uniform, KEYS, b->row_count, 42);
    bench_keys_zipf(b->zipf, KEYS, b->row_count, ZIPF_SHAPE, 43);
    for (uint32_t i = 0; i <= BAGS; i++)
        b->offsets[i] = i * BAG_KEYS;
    for (uint32_t i = 0; i < CALL_KEYS * DIM; i++)
        b->gradients[i] = 1e-3f * (float)(i % 17);
}

static void bench_close(struct bench *b)
{
    ps_table_destroy(b->table);
    ps_arena_destroy(b->arena);
    bare_table_destroy(b->bare);
    free(b->uniform);
    free(b->zipf);
    free(b->offsets);
    free(b->out);
    free(b->gradients);
}

static void table_run(uint64_t row_count, bool adagrad, const char *only)
{
    struct bench b = {.row_count = row_count, .adagrad = adagrad, .only = only};
    bench_open(&b);
    table_fill(&b);
    report_memory(&b);
    compare(&b, "lookup", (struct side){one_lookup, b.uniform}, (struct side){bare_lookup, b.uniform}, 0.85);
    compare(&b, "lookup_summed", (struct side){table_sum, b.uniform}, (struct side){bare_sum, b.uniform},
            0.85);
    compare(&b, "lookup_zipf", (struct side){one_lookup, b.zipf}, (struct side){bare_lookup, b.zipf}, 0.85);
    compare(&b, "zipf_to_uniform", (struct side){one_lookup, b.zipf}, (struct side){one_lookup, b.uniform},
            1.0);
    if (adagrad) {
        compare(&b, "push", (struct side){one_push, b.uniform}, (struct side){bare_push, b.uniform}, 0.80);
        compare(&b, "push_zipf", (struct side){one_push, b.zipf}, (struct side){bare_push, b.zipf}, 0.80);
        compare(&b, "push_zipf_to_uniform", (struct side){one_push, b.zipf},
                (struct side){one_push, b.uniform}, 1.0);
    }
    bench_close(&b);
}

static int usage(void)
{
    fprintf(stderr, "usage: bench_table [--optimizer sgd|adagrad] [--only NAME] "
                    "[--vectors avx512|avx2|baseline] [THOUSANDS_OF_ROWS ...]\n");
    return 2;
}

/* False when this processor does not run the set of this name. */
static bool force_vectors(const char *name)
{
    const struct mr_kernels *k = NULL;
    for (uint32_t i = 0; (k = mr_kernels_at(i)) != NULL && strcmp(k->name, name) != 0;)
        i++;
    mr_kernels_force(k);
    return k != NULL;
}

int main(int argc, char **argv)
{
    bool adagrad = true;
    const char *only = NULL;
    int first = 1;
    for (; first + 1 < argc && argv[first][0] == '-'; first += 2) {
        const char *value = argv[first + 1];
        if (strcmp(argv[first], "--only") == 0)
            only = value;
        else if (strcmp(argv[first], "--vectors") == 0 && force_vectors(value))
            continue;
        else if (strcmp(argv[first], "--optimizer") == 0 &&
                 (strcmp(value, "sgd") == 0 || strcmp(value, "adagrad") == 0))
            adagrad = strcmp(value, "adagrad") == 0;
        else
            return usage();
    }
    if (argc == first) {
        table_run(160000, adagrad, only);
        table_run(1000000, adagrad, only);
    }
    for (int i = first; i < argc; i++) {
        uint64_t thousands = strtoull(argv[i], NULL, 10);
        if (thousands < 1 || thousands > 1000000)
            return usage();
        table_run(thousands * 1000, adagrad, only);
    }
    return 0;
}
