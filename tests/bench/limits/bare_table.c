#include "tests/bench/limits/bare_table.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define BUCKET_KEYS 5u
#define GROUP       16u
#define LOAD        0.8

struct bucket {
    uint64_t keys[BUCKET_KEYS];
    uint32_t rows[BUCKET_KEYS];
    uint32_t count;
};
static_assert(sizeof(struct bucket) == 64, "a bucket is a cache line");

struct bare_table {
    struct bucket *buckets;
    uint64_t bucket_count;
    float *rows;
    uint32_t row_floats; /* values, Adagrad's state */
    uint64_t row_count, row_capacity;
    float learning_rate;
};

static size_t buckets_bytes(const struct bare_table *t)
{
    return t->bucket_count * sizeof(struct bucket);
}

static size_t rows_bytes(const struct bare_table *t)
{
    return t->row_capacity * t->row_floats * sizeof(float);
}

static void *map(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        perror("bare_table: mmap");
        exit(1);
    }
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 0, bytes);
    return p;
}

struct bare_table *bare_table_create(uint64_t row_count, bool with_state, float learning_rate)
{
    struct bare_table *t = calloc(1, sizeof(*t));
    if (t == NULL)
        exit(1);
    t->bucket_count = (uint64_t)((double)row_count / BUCKET_KEYS / LOAD) + 16;
    t->row_capacity = row_count;
    t->row_floats = with_state ? 2 * BARE_DIM : BARE_DIM;
    t->learning_rate = learning_rate;
    t->buckets = map(buckets_bytes(t));
    t->rows = map(rows_bytes(t));
    return t;
}

void bare_table_destroy(struct bare_table *t)
{
    munmap(t->buckets, buckets_bytes(t));
    munmap(t->rows, rows_bytes(t));
    free(t);
}

static inline struct bucket *home(const struct bare_table *t, uint64_t key)
{
    uint64_t hash = XXH3_64bits_withSeed(&key, sizeof(key), 0);
    return t->buckets + (uint64_t)((unsigned __int128)hash * (t->bucket_count - 8) >> 64);
}

static inline struct bucket *bare_table_next(const struct bare_table *t, struct bucket *b)
{
    return b + 1 == t->buckets + t->bucket_count ? t->buckets : b + 1;
}

void bare_table_insert(struct bare_table *t, const uint64_t *keys, uint32_t key_count)
{
    for (uint32_t i = 0; i < key_count; i++) {
        struct bucket *b = home(t, keys[i]);
        while (b->count == BUCKET_KEYS)
            b = bare_table_next(t, b);
        b->keys[b->count] = keys[i];
        b->rows[b->count++] = (uint32_t)t->row_count;
        for (uint32_t j = BARE_DIM; j < t->row_floats; j++)
            t->rows[t->row_count * t->row_floats + j] = 0.1f;
        t->row_count++;
    }
}

static inline uint32_t match(const struct bucket *b, uint64_t key)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < BUCKET_KEYS; i++)
        bits |= (uint32_t)(b->keys[i] == key) << i;
    return bits;
}

/* A group of keys goes through the stages of struct ps_group (ps/table/table_internal.h), too. */
struct group {
    struct bucket *buckets[GROUP];
    float *rows[GROUP];
    uint8_t late[GROUP];
    uint32_t late_count;
};

static inline __attribute__((always_inline)) void bare_table_take(const struct bare_table *t, struct group *g,
                                                                  uint32_t i, const struct bucket *b,
                                                                  uint32_t bits, uint32_t row_floats,
                                                                  uint32_t row_lines)
{
    g->rows[i] = t->rows + (size_t)b->rows[__builtin_ctz(bits)] * row_floats;
    for (uint32_t line = 0; line < row_lines; line++)
        __builtin_prefetch(g->rows[i] + line * 16);
}

static inline __attribute__((always_inline)) void bare_table_find(const struct bare_table *t, struct group *g,
                                                                  const uint64_t *keys, uint32_t count,
                                                                  uint32_t row_floats, uint32_t row_lines)
{
    for (uint32_t i = 0; i < count; i++) {
        struct bucket *b = g->buckets[i];
        uint32_t bits = match(b, keys[i]);
        if (__builtin_expect(bits != 0, 1)) {
            bare_table_take(t, g, i, b, bits, row_floats, row_lines);
            continue;
        }
        g->buckets[i] = bare_table_next(t, b);
        __builtin_prefetch(g->buckets[i]);
        __builtin_prefetch(g->buckets[i] + 1);
        g->late[g->late_count++] = (uint8_t)i;
    }
}

static inline __attribute__((always_inline)) void find_late(const struct bare_table *t, struct group *g,
                                                            const uint64_t *keys, uint32_t row_floats,
                                                            uint32_t row_lines)
{
    for (uint32_t j = 0; j < g->late_count; j++) {
        uint32_t i = g->late[j], bits;
        struct bucket *b = g->buckets[i];
        while ((bits = match(b, keys[i])) == 0)
            b = bare_table_next(t, b);
        bare_table_take(t, g, i, b, bits, row_floats, row_lines);
    }
}

static inline uint32_t size_of_group(uint32_t key_count, uint32_t group)
{
    uint32_t left = key_count - group * GROUP;
    return left < GROUP ? left : GROUP;
}

/* Walks the keys in groups whose misses overlap, and gives each row, in order, to `sink`. */
static inline __attribute__((always_inline)) void
each_row(const struct bare_table *t, const uint64_t *keys, uint32_t key_count, uint32_t row_floats,
         uint32_t row_lines, void (*sink)(const struct bare_table *t, void *arg, uint32_t i, float *row),
         void *arg)
{
    struct group groups[4];
    uint32_t group_count = (key_count + GROUP - 1) / GROUP;
    for (uint32_t step = 0; step < group_count + 3; step++) {
        if (step < group_count) {
            struct group *g = &groups[step % 4];
            g->late_count = 0;
            for (uint32_t i = 0; i < size_of_group(key_count, step); i++) {
                g->buckets[i] = home(t, keys[step * GROUP + i]);
                __builtin_prefetch(g->buckets[i]);
            }
        }
        uint32_t found = step - 1, late = step - 2, used = step - 3;
        if (step >= 1 && found < group_count)
            bare_table_find(t, &groups[found % 4], keys + found * GROUP, size_of_group(key_count, found),
                            row_floats, row_lines);
        if (step >= 2 && late < group_count)
            find_late(t, &groups[late % 4], keys + late * GROUP, row_floats, row_lines);
        for (uint32_t i = 0; step >= 3 && i < size_of_group(key_count, used); i++)
            sink(t, arg, used * GROUP + i, groups[used % 4].rows[i]);
    }
}

static inline void copy_row(const struct bare_table *t, void *arg, uint32_t i, float *row)
{
    memcpy((float *)arg + (size_t)i * BARE_DIM, row, BARE_DIM * sizeof(float));
}

void bare_table_lookup(const struct bare_table *t, const uint64_t *keys, uint32_t key_count, float *out)
{
    if (t->row_floats == BARE_DIM) /* constants, so that the compiler shifts instead of multiplying */
        each_row(t, keys, key_count, BARE_DIM, 1, copy_row, out);
    else
        each_row(t, keys, key_count, 2 * BARE_DIM, 1, copy_row, out);
}

struct sums {
    float *out;
    uint32_t bag_keys;
};

/* NOLINTNEXTLINE(readability-non-const-parameter): the type of a sink */
static inline void add_row(const struct bare_table *t, void *arg, uint32_t i, float *row)
{
    struct sums *s = arg;
    float *out = s->out + (size_t)(i / s->bag_keys) * BARE_DIM;
    for (uint32_t j = 0; j < BARE_DIM; j++)
        out[j] += row[j];
}

void bare_table_sum(const struct bare_table *t, const uint64_t *keys, uint32_t bag_count, uint32_t bag_keys,
                    float *out)
{
    memset(out, 0, (size_t)bag_count * BARE_DIM * sizeof(float));
    struct sums s = {out, bag_keys};
    if (t->row_floats == BARE_DIM)
        each_row(t, keys, bag_count * bag_keys, BARE_DIM, 1, add_row, &s);
    else
        each_row(t, keys, bag_count * bag_keys, 2 * BARE_DIM, 1, add_row, &s);
}

static inline void update_row(const struct bare_table *t, void *arg, uint32_t i, float *row)
{
    const float *g = (const float *)arg + (size_t)i * BARE_DIM;
    for (uint32_t j = 0; j < BARE_DIM; j++) {
        row[BARE_DIM + j] += g[j] * g[j];
        row[j] -= t->learning_rate * g[j] / (sqrtf(row[BARE_DIM + j]) + 1e-10f);
    }
}

static inline void set_row(const struct bare_table *t, void *arg, uint32_t i, float *row)
{
    memcpy(row, (const float *)arg + (size_t)i * BARE_DIM, BARE_DIM * sizeof(float));
}

/* A sink's argument, of sinks that only read there. */
static void *sink_input(const float *in)
{
    union {
        const float *in;
        void *arg;
    } g = {.in = in};
    return g.arg;
}

void bare_table_push(struct bare_table *t, const uint64_t *keys, uint32_t key_count, const float *gradients)
{
    each_row(t, keys, key_count, 2 * BARE_DIM, 2, update_row, sink_input(gradients));
}

void bare_table_set(struct bare_table *t, const uint64_t *keys, uint32_t key_count, const float *rows)
{
    each_row(t, keys, key_count, t->row_floats, 1, set_row, sink_input(rows));
}
