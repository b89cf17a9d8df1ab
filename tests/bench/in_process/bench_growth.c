/* Inserts rows one small call after the other while a table grows, and tells how long the slowest call took.
 *
 * The same inserts in the same order grow the table at the same calls. So the whole is done several times,
 * and the least time of each call counts: what growing costs comes again each time, what the machine's
 * scheduler costs does not. Lookups of as many keys that are there are timed in between in the same way:
 * their slowest shows how much noise is left. The thread's own processor time is measured as well: time
 * beyond it is spent waiting, for another thread or for the processor. JSON, as bench_table:
 *   {"name": "table_insert_growing", "value": 90, "unit": "us", "limit": 200, ..., "own_us": 88}
 * where `value` is the slowest call's time, and `own_us` the most processor time of any.
 *
 * bench_growth [THOUSANDS_FIRST THOUSANDS_LAST [KEYS_PER_CALL]]   default: 1000 50000 16
 */
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "tests/bench/common/bench_keys.h"
#include "tests/bench/common/bench_print.h"
#include "ps/memory/prefault.h"
#include "ps/table/table.h"
#include "tests/unit/ps/table_calls.h"

static const struct ps_key_secret bench_key_secret = {{0x2545f4914f6cdd1d, 0xd6e8feb86659fd93}};

#define DIM            16u
#define TIMES          3u
#define CALL_KEYS_MAX  1024u
#define FILL_KEYS      4096u
#define LIMIT_US       200.0
#define ROW_BYTES_MOST 160u /* index and all */

static const double bounds_us[] = {10, 20, 50, 100, LIMIT_US};
#define BOUNDS (sizeof(bounds_us) / sizeof(bounds_us[0]))

static struct ps_prefault *helper; /* as in the server */

struct growth {
    struct ps_arena *arena;
    struct ps_table *table;
    uint32_t call_keys, calls;
    float *insert_us, *lookup_us; /* [calls]: the least time of each */
    float *own_us;                /* [calls]: of each insert, the least processor time */
    float out[FILL_KEYS * DIM];
};

static void table_open(struct growth *g, uint64_t rows_last)
{
    struct mr_feature feature = mr_feature_table("bench", DIM);
    feature.optimizer = MR_OPT_SGD;
    feature.initializer = MR_INIT_UNIFORM;
    feature.init_a = -0.05f;
    feature.init_b = 0.05f;
    const char *what = "";
    g->arena = ps_arena_create((size_t)rows_last * ROW_BYTES_MOST + ((size_t)64 << 20));
    if (g->arena == NULL ||
        ps_table_create(&feature, g->arena, &bench_key_secret, &g->table, &what) != MR_OK) {
        fprintf(stderr, "bench_growth: cannot make a table %s\n", what);
        exit(1);
    }
    ps_arena_prefault(g->arena, helper);
}

static double own_now_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* Looks up keys [first, first + count), which makes those that are not there; the time it takes. */
static double lookup_us(struct growth *g, uint64_t first, uint32_t count)
{
    uint64_t keys[FILL_KEYS];
    for (uint32_t i = 0; i < count; i++)
        keys[i] = bench_key_at(first + i);
    double t0 = bench_now_us();
    table_lookup(g->table, keys, count, true, g->out);
    return bench_now_us() - t0;
}

static void grow_once(struct growth *g, uint64_t rows_first)
{
    uint64_t rows_last = rows_first + (uint64_t)g->calls * g->call_keys, seed = 44;
    table_open(g, rows_last);
    for (uint64_t i = 0; i < rows_first; i += FILL_KEYS)
        (void)lookup_us(g, i, rows_first - i < FILL_KEYS ? (uint32_t)(rows_first - i) : FILL_KEYS);
    for (uint32_t i = 0; i < g->calls; i++) {
        double own_us = own_now_us();
        double us = lookup_us(g, rows_first + (uint64_t)i * g->call_keys, g->call_keys);
        g->own_us[i] = fminf(g->own_us[i], (float)(own_now_us() - own_us));
        g->insert_us[i] = fminf(g->insert_us[i], (float)us);
        us = lookup_us(g, bench_random_next(&seed) % (rows_first - g->call_keys), g->call_keys);
        g->lookup_us[i] = fminf(g->lookup_us[i], (float)us);
    }
    if (ps_table_rows(g->table) != rows_last) {
        fprintf(stderr, "bench_growth: %" PRIu64 " rows instead of %" PRIu64 "\n", ps_table_rows(g->table),
                rows_last);
        exit(1);
    }
    ps_table_destroy(g->table);
    ps_arena_destroy(g->arena);
}

/* This thread stays on the processor it is on, and the helper keeps off it: as in the server. */
static void helper_start(void)
{
    int cpu = sched_getcpu();
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET((size_t)cpu, &own);
    helper = ps_prefault_create(&cpu, 1);
    if (helper == NULL || sched_setaffinity(0, sizeof(own), &own) != 0) {
        fprintf(stderr, "bench_growth: cannot start the helper\n");
        exit(1);
    }
}

static double slowest_of(const float *us, uint32_t count, const char *name)
{
    uint32_t calls[BOUNDS + 1] = {0};
    double slowest = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bound = 0;
        while (bound < BOUNDS && (double)us[i] > bounds_us[bound])
            bound++;
        calls[bound]++;
        slowest = fmax(slowest, (double)us[i]);
    }
    fprintf(stderr, "  %s: %u calls, slowest %.1f us;", name, count, slowest);
    for (uint32_t i = 0; i < BOUNDS; i++)
        fprintf(stderr, " up to %.0f us: %u,", bounds_us[i], calls[i]);
    fprintf(stderr, " more: %u\n", calls[BOUNDS]);
    return slowest;
}

static float *times_create(uint32_t count)
{
    float *us = malloc(count * sizeof(*us));
    if (us == NULL)
        exit(1);
    for (uint32_t i = 0; i < count; i++)
        us[i] = INFINITY;
    return us;
}

int main(int argc, char **argv)
{
    helper_start();
    static struct growth g;
    uint64_t first = argc > 2 ? strtoull(argv[1], NULL, 10) * 1000 : 1000000;
    uint64_t last = argc > 2 ? strtoull(argv[2], NULL, 10) * 1000 : 50000000;
    g.call_keys = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 16;
    if (argc == 2 || g.call_keys < 1 || g.call_keys > CALL_KEYS_MAX || first <= CALL_KEYS_MAX ||
        last <= first || (last - first) / g.call_keys > UINT32_MAX) {
        fprintf(stderr, "usage: bench_growth [THOUSANDS_FIRST THOUSANDS_LAST [KEYS_PER_CALL]]\n");
        return 2;
    }
    g.calls = (uint32_t)((last - first) / g.call_keys);
    g.insert_us = times_create(g.calls);
    g.lookup_us = times_create(g.calls);
    g.own_us = times_create(g.calls);
    for (uint32_t i = 0; i < TIMES; i++)
        grow_once(&g, first);
    double slowest_us = slowest_of(g.insert_us, g.calls, "inserts while growing");
    double own_us = slowest_of(g.own_us, g.calls, "their own processor time");
    double noise_us = slowest_of(g.lookup_us, g.calls, "lookups in between");
    printf(
        "{\"name\": \"table_insert_growing\", \"value\": %.1f, \"unit\": \"us\", \"limit\": %.0f, \"ratio\": "
        "%.2f, \"better\": \"lower\", \"target\": 1.0, \"noise_us\": %.1f, \"own_us\": %.1f}\n",
        slowest_us, LIMIT_US, slowest_us / LIMIT_US, noise_us, own_us);
    free(g.insert_us);
    free(g.lookup_us);
    free(g.own_us);
    return 0;
}
