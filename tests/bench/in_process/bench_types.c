/* Measures tables in f16 and bf16, in process, each next to an f32 table with the same keys; and lookups of
 * the f32 table that answer in other types. One JSON object per line, as bench_table gives them.
 *
 * bench_types [THOUSANDS_OF_ROWS ...]   default: 1000
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "tests/bench/common/bench_keys.h"
#include "tests/bench/common/bench_print.h"
#include "ps/table/table.h"
#include "tests/unit/ps/table_calls.h"

static const struct ps_key_secret bench_key_secret = {{0x2545f4914f6cdd1d, 0xd6e8feb86659fd93}};

#define DIM       16u
#define CALL_KEYS 13312u /* 512 samples x 26 slots */
#define BAG_KEYS  26u
#define BAGS      (CALL_KEYS / BAG_KEYS)
#define CALLS     64u
#define TURNS     9u

struct bench {
    uint64_t row_count;
    struct ps_arena *arena;
    uint64_t *keys; /* [CALLS, CALL_KEYS] */
    uint32_t *offsets;
    float *out, *gradients, *scales;
};

/* What is timed: a call on a table. */
struct side {
    void (*call)(struct bench *b, struct ps_table *t, enum mr_dtype out_dtype, const uint64_t *keys);
    struct ps_table *table;
    enum mr_dtype out_dtype;
};

static void look_up(struct bench *b, struct ps_table *t, enum mr_dtype out_dtype, const uint64_t *keys)
{
    uint64_t budget = UINT64_MAX;
    struct ps_table_lookup l = {.in.keys = keys,
                                .in.key_count = CALL_KEYS,
                                .out_dtype = out_dtype,
                                .out = b->out,
                                .scales = b->scales};
    (void)ps_table_lookup_step(t, &l, &budget);
}

static void look_up_bags(struct bench *b, struct ps_table *t, enum mr_dtype out_dtype, const uint64_t *keys)
{
    uint64_t budget = UINT64_MAX;
    float sum[DIM];
    struct ps_table_lookup l = {.in.keys = keys,
                                .in.key_count = CALL_KEYS,
                                .in.offsets = b->offsets,
                                .in.bag_count = BAGS,
                                .out_dtype = out_dtype,
                                .out = b->out,
                                .scales = b->scales,
                                .sum = sum};
    (void)ps_table_lookup_step(t, &l, &budget);
}

static void types_push(struct bench *b, struct ps_table *t, enum mr_dtype out_dtype, const uint64_t *keys)
{
    (void)out_dtype;
    table_push(t, keys, CALL_KEYS, b->gradients);
}

/* Lowers best_us[call] to this turn's time of each call. */
static void turn_of(struct bench *b, const struct side *side, double *best_us)
{
    for (uint32_t i = 0; i < CALLS; i++) {
        double t0 = bench_now_us();
        side->call(b, side->table, side->out_dtype, b->keys + (size_t)i * CALL_KEYS);
        best_us[i] = fmin(best_us[i], bench_now_us() - t0);
    }
}

static double keys_per_us(const double *us)
{
    double sum = 0;
    for (uint32_t i = 0; i < CALLS; i++)
        sum += us[i];
    return (double)CALLS * CALL_KEYS / sum;
}

static void compare(struct bench *b, const char *name, struct side side, struct side limit, double target)
{
    double side_us[CALLS], limit_us[CALLS];
    for (uint32_t i = 0; i < CALLS; i++)
        side_us[i] = limit_us[i] = INFINITY;
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        turn_of(b, &side, side_us);
        turn_of(b, &limit, limit_us);
    }
    char full[80];
    (void)snprintf(full, sizeof(full), "types_%s_%" PRIu64 "k", name, b->row_count / 1000);
    bench_print_ratio(full, keys_per_us(side_us), "Mkeys/s", keys_per_us(limit_us), "higher", target);
}

static struct ps_table *make_table(struct bench *b, enum mr_dtype dtype)
{
    struct mr_feature feature = mr_feature_table("bench", DIM);
    struct ps_table *t = NULL;
    const char *what = "";
    feature.dtype = (uint32_t)dtype;
    feature.optimizer = MR_OPT_ADAGRAD;
    feature.optimizer_args[0] = 0.1f;
    feature.optimizer_args[1] = 1e-10f;
    feature.initializer = MR_INIT_UNIFORM;
    feature.init_a = -0.05f;
    feature.init_b = 0.05f;
    if (ps_table_create(&feature, b->arena, &bench_key_secret, &t, &what) != MR_OK) {
        fprintf(stderr, "bench_types: cannot make a table %s\n", what);
        exit(1);
    }
    uint64_t keys[1024];
    for (uint64_t i = 0; i < b->row_count; i += 1024) {
        uint32_t n = b->row_count - i < 1024 ? (uint32_t)(b->row_count - i) : 1024;
        for (uint32_t j = 0; j < n; j++)
            keys[j] = bench_key_at(i + j);
        table_lookup(t, keys, n, true, b->out);
    }
    return t;
}

static void compare_all(struct bench *b)
{
    struct ps_table *f32 = make_table(b, MR_F32), *f16 = make_table(b, MR_F16),
                    *bf16 = make_table(b, MR_BF16);
    struct side row = {look_up, f32, MR_F32}, bag = {look_up_bags, f32, MR_F32},
                step = {types_push, f32, MR_F32};
    compare(b, "f16_lookup", (struct side){look_up, f16, MR_F32}, row, 1.0);
    compare(b, "bf16_lookup", (struct side){look_up, bf16, MR_F32}, row, 1.0);
    compare(b, "f16_lookup_summed", (struct side){look_up_bags, f16, MR_F32}, bag, 1.0);
    compare(b, "bf16_lookup_summed", (struct side){look_up_bags, bf16, MR_F32}, bag, 1.0);
    compare(b, "f16_push_adagrad", (struct side){types_push, f16, MR_F32}, step, 0.6);
    compare(b, "bf16_push_adagrad", (struct side){types_push, bf16, MR_F32}, step, 0.6);
    compare(b, "f16_lookup_as_f16", (struct side){look_up, f16, MR_F16}, row, 1.0);
    compare(b, "f32_lookup_as_f16", (struct side){look_up, f32, MR_F16}, row, 0.9);
    compare(b, "f32_lookup_as_i8", (struct side){look_up, f32, MR_I8}, row, 0.85);
    compare(b, "f32_lookup_summed_as_bf16", (struct side){look_up_bags, f32, MR_BF16}, bag, 0.9);
    ps_table_destroy(f32);
    ps_table_destroy(f16);
    ps_table_destroy(bf16);
}

static void types_run(uint64_t row_count)
{
    struct bench b = {.row_count = row_count};
    b.arena = ps_arena_create((size_t)row_count * 640 + ((size_t)64 << 20));
    if (b.arena == NULL)
        bench_give_up("out of memory");
    b.keys = bench_allocate((size_t)CALLS * CALL_KEYS * sizeof(uint64_t));
    b.offsets = bench_allocate((BAGS + 1) * sizeof(uint32_t));
    b.out = bench_allocate(CALL_KEYS * DIM * sizeof(float));
    b.gradients = bench_allocate(CALL_KEYS * DIM * sizeof(float));
    b.scales = bench_allocate(CALL_KEYS * sizeof(float));
    bench_keys_uniform(b.keys, (size_t)CALLS * CALL_KEYS, row_count, 42);
    for (uint32_t i = 0; i <= BAGS; i++)
        b.offsets[i] = i * BAG_KEYS;
    for (uint32_t i = 0; i < CALL_KEYS * DIM; i++)
        b.gradients[i] = 1e-3f * (float)(i % 17);
    compare_all(&b);
    ps_arena_destroy(b.arena);
    free(b.keys);
    free(b.offsets);
    free(b.out);
    free(b.gradients);
    free(b.scales);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        types_run(1000000);
    for (int i = 1; i < argc; i++) {
        uint64_t thousands = strtoull(argv[i], NULL, 10);
        if (thousands < 1 || thousands > 1000000) {
            fprintf(stderr, "usage: bench_types [THOUSANDS_OF_ROWS ...]\n");
            return 2;
        }
        types_run(thousands * 1000);
    }
    return 0;
}
