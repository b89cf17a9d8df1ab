/* What marks of changed rows cost, and what a cut of them costs beside a cut of every row, in process. JSON,
 * as bench_table:
 *   {"name": "delta_push_marks_1000k", "value": 21.3, "unit": "Mkeys/s", "limit": 21.7, "ratio": 0.98, ...}
 *   limit: without marks
 *   {"name": "delta_cut_time_1000k", "value": 4.1, "unit": "ms", "limit": 230, "ratio": 0.018, ...}
 *   limit: every row
 *   {"name": "delta_cut_rows_1000k", ...}
 *   rows, not ms
 * Pushes (Adagrad) and lookups that stamp rows (LRU): calls take turns with and without marks, and each
 * call's best turn counts. "_first" is with marks taken away before each turn, so that most keys are marked
 * again. Cuts: 1 % of the rows, at random, were pushed to; rows are copied into a buffer of 1 MiB as a
 * writer's, in steps as a core takes them.
 *
 * bench_delta [THOUSANDS_OF_ROWS ...]   default: 1000
 */
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/bench/common/bench_keys.h"
#include "tests/bench/common/bench_print.h"
#include "ps/save/save.h"
#include "ps/table/table.h"
#include "tests/unit/ps/table_calls.h"

static const struct ps_key_secret bench_key_secret = {{0x2545f4914f6cdd1d, 0xd6e8feb86659fd93}};

#define DIM       16u
#define CALL_KEYS 4096u
#define CALLS     64u
#define KEYS      ((size_t)CALLS * CALL_KEYS)
#define TURNS     9u
#define SHARE     100u /* one row in so many is touched between two cuts */

struct bench {
    uint64_t row_count;
    struct ps_arena *arena;
    struct ps_table *table;
    uint64_t *keys;         /* [CALLS, CALL_KEYS] */
    float *out, *gradients; /* [CALL_KEYS, DIM] */
    uint8_t *buffer;        /* of a writer */
    size_t buffer_at;
    uint64_t rows_out;
};

static void report(const struct bench *b, const char *name, double value, const char *unit, double limit,
                   const char *better, double target)
{
    char full[80];
    (void)snprintf(full, sizeof(full), "delta_%s_%" PRIu64 "k", name, b->row_count / 1000);
    bench_print_ratio(full, value, unit, limit, better, target);
}

static void bench_open(struct bench *b, enum mr_eviction eviction, bool keeps_marks)
{
    struct mr_feature feature = mr_feature_table("bench", DIM);
    feature.optimizer = MR_OPT_ADAGRAD;
    feature.optimizer_args[0] = 0.1f;
    feature.optimizer_args[1] = 1e-10f;
    feature.eviction = eviction;
    const char *what = "";
    b->arena = ps_arena_create((size_t)b->row_count * 200 + ((size_t)64 << 20));
    if (b->arena == NULL ||
        ps_table_create(&feature, b->arena, &bench_key_secret, &b->table, &what) != MR_OK) {
        fprintf(stderr, "bench_delta: cannot make a table %s\n", what);
        exit(1);
    }
    if (keeps_marks)
        ps_table_keep_marks(b->table, b->arena);
    b->keys = bench_allocate(KEYS * sizeof(uint64_t));
    b->out = bench_allocate(CALL_KEYS * DIM * sizeof(float));
    b->gradients = bench_allocate(CALL_KEYS * DIM * sizeof(float));
    b->buffer = bench_allocate(2 * PS_BLOCK_BYTES);
    bench_keys_uniform(b->keys, KEYS, b->row_count, 42);
    for (uint32_t i = 0; i < CALL_KEYS * DIM; i++)
        b->gradients[i] = 1e-3f * (float)(i % 17);
    uint64_t keys[CALL_KEYS];
    for (uint64_t i = 0; i < b->row_count; i += CALL_KEYS) {
        uint32_t n = b->row_count - i < CALL_KEYS ? (uint32_t)(b->row_count - i) : CALL_KEYS;
        for (uint32_t j = 0; j < n; j++)
            keys[j] = bench_key_at(i + j);
        table_lookup(b->table, keys, n, true, b->out);
    }
}

static void bench_close(struct bench *b)
{
    ps_table_destroy(b->table);
    ps_arena_destroy(b->arena);
    free(b->keys);
    free(b->out);
    free(b->gradients);
    free(b->buffer);
}

/* ---- cuts ---- */

static void emit(void *self, struct ps_table *t, const uint64_t *keys, const uint8_t *const *rows,
                 uint32_t count)
{
    struct bench *b = self;
    uint32_t row_bytes = ps_table_stored_row_bytes(t);
    for (uint32_t i = 0; i < count; i++) {
        memcpy(b->buffer + b->buffer_at, &keys[i], sizeof(keys[i]));
        memcpy(b->buffer + b->buffer_at + sizeof(keys[i]), rows[i], row_bytes);
        b->buffer_at = (b->buffer_at + sizeof(keys[i]) + row_bytes) % PS_BLOCK_BYTES;
    }
    b->rows_out += count;
}

static double cut_us(struct bench *b, enum ps_save_kind kind)
{
    struct ps_cut cut = {.self = b, .emit = emit};
    b->rows_out = 0;
    double t0 = bench_now_us();
    ps_table_cut_begin(b->table, &cut, kind);
    while (!ps_table_cut_step(b->table, PS_SAVE_STEP_BUCKETS)) {
    }
    return bench_now_us() - t0;
}

static void touch_some(struct bench *b, uint64_t *seed)
{
    uint64_t keys[CALL_KEYS], left = b->row_count / SHARE;
    while (left > 0) {
        uint32_t n = left < CALL_KEYS ? (uint32_t)left : CALL_KEYS;
        for (uint32_t i = 0; i < n; i++)
            keys[i] = bench_key_at(bench_random_next(seed) % b->row_count);
        table_push(b->table, keys, n, b->gradients);
        left -= n;
    }
}

static void cuts(uint64_t row_count)
{
    struct bench b = {.row_count = row_count};
    uint64_t seed = 7, changed_rows = 0;
    double full_us = INFINITY, delta_us = INFINITY;
    bench_open(&b, MR_EVICT_NEVER, true);
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        full_us = fmin(full_us, cut_us(&b, PS_SAVE_FULL));
        touch_some(&b, &seed);
        delta_us = fmin(delta_us, cut_us(&b, PS_SAVE_DELTA));
        changed_rows = b.rows_out;
    }
    report(&b, "cut_time", delta_us / 1e3, "ms", full_us / 1e3, "lower", 0.03);
    report(&b, "cut_rows", (double)changed_rows, "rows", (double)row_count, "lower", 0.03);
    bench_close(&b);
}

/* ---- marks ---- */

static void delta_push(struct bench *b, const uint64_t *keys)
{
    table_push(b->table, keys, CALL_KEYS, b->gradients);
}

static void lookup(struct bench *b, const uint64_t *keys)
{
    table_lookup(b->table, keys, CALL_KEYS, true, b->out);
}

static void turn_of(struct bench *b, void (*call)(struct bench *b, const uint64_t *keys), double *best_us)
{
    for (uint32_t i = 0; i < CALLS; i++) {
        double t0 = bench_now_us();
        call(b, b->keys + (size_t)i * CALL_KEYS);
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

static void compare(const char *name, struct bench *marks, struct bench *none, bool again,
                    void (*call)(struct bench *b, const uint64_t *keys))
{
    double marks_us[CALLS], none_us[CALLS];
    for (uint32_t i = 0; i < CALLS; i++)
        marks_us[i] = none_us[i] = INFINITY;
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        if (again) { /* in both, for what a cut does to the caches */
            (void)cut_us(marks, PS_SAVE_FULL);
            (void)cut_us(none, PS_SAVE_FULL);
        }
        turn_of(marks, call, marks_us);
        turn_of(none, call, none_us);
    }
    report(marks, name, CALL_KEYS / mean(marks_us), "Mkeys/s", CALL_KEYS / mean(none_us), "higher", 0.98);
}

static void marking(uint64_t row_count)
{
    struct bench marks = {.row_count = row_count}, none = {.row_count = row_count};
    bench_open(&marks, MR_EVICT_NEVER, true);
    bench_open(&none, MR_EVICT_NEVER, false);
    compare("push_marks", &marks, &none, false, delta_push);
    compare("push_marks_first", &marks, &none, true, delta_push);
    compare("lookup_marks_none", &marks, &none, false, lookup);
    bench_close(&marks);
    bench_close(&none);
    bench_open(&marks, MR_EVICT_LRU, true);
    bench_open(&none, MR_EVICT_LRU, false);
    compare("lookup_marks", &marks, &none, false, lookup);
    compare("lookup_marks_first", &marks, &none, true, lookup);
    bench_close(&marks);
    bench_close(&none);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc || i == 1; i++) {
        char *end = NULL;
        uint64_t thousands = argc > 1 ? strtoull(argv[i], &end, 10) : 1000;
        if (thousands == 0 || (end != NULL && *end != '\0')) {
            fprintf(stderr, "usage: bench_delta [THOUSANDS_OF_ROWS ...]\n");
            return 2;
        }
        marking(thousands * 1000);
        cuts(thousands * 1000);
    }
    return 0;
}
