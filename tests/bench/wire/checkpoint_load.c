/* Lookups and pushes of random keys by turns, a few in flight, for some time without a save and then for as
 * long as one runs. */
#include "tests/bench/wire/checkpoint_load.h"
#include <stdio.h>
#include <stdlib.h>
#include "tests/bench/common/bench_keys.h"
#include "tests/bench/common/bench_util.h"

#define LOAD_KEYS      512u /* in a call */
#define IN_FLIGHT      4u   /* calls */
#define LOOK_EACH_US   20000.0
#define LATENCIES_MAX  2000000u
#define SAVES_MAX      32u
#define WARM_UP_US     500000.0
#define SAVES_TIMED_US 600e6 /* longer than any save takes */

/* What a stretch of calls came to. */
struct stretch {
    double keys_per_s, p99_us;
    double resident_bytes, own_bytes; /* at most; the second as the server counts its buffers */
};

struct in_flight {
    struct mr_future *future;
    double begun_us;
};

struct load {
    struct checkpoint_bench *bench;
    uint64_t random;
    struct in_flight calls[IN_FLIGHT];
    uint64_t begun;
    uint32_t ended;
    double *us; /* [LATENCIES_MAX] */
};

static void begin_one(struct load *l)
{
    struct checkpoint_bench *b = l->bench;
    struct in_flight *call = &l->calls[l->begun % IN_FLIGHT];
    struct mr_options options = {.future = &call->future};
    uint64_t keys[LOAD_KEYS];
    bench_keys_uniform(keys, LOAD_KEYS, b->rows, bench_random_next(&l->random));
    call->begun_us = bench_now_us();
    if (l->begun++ % 2 == 0)
        bench_check(mr_lookup(b->client, &options, b->table, keys, LOAD_KEYS, NULL), "lookup");
    else
        bench_check(
            mr_push_gradients(b->client, &options, b->table, keys, LOAD_KEYS, CHECKPOINT_DIM, b->gradients),
            "push");
}

static void end_one(struct load *l, struct in_flight *call)
{
    struct mr_reply *reply = NULL;
    bench_check(mr_future_wait(call->future, &reply), "call");
    if (l->ended < LATENCIES_MAX)
        l->us[l->ended] = bench_now_us() - call->begun_us;
    l->ended++;
    mr_reply_free(reply);
    mr_future_destroy(call->future);
    call->future = NULL;
}

static void end_all(struct load *l)
{
    for (uint32_t i = 0; i < IN_FLIGHT; i++) {
        struct in_flight *call = &l->calls[(l->begun + i) % IN_FLIGHT];
        if (call->future != NULL)
            end_one(l, call);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void look(struct load *l, struct stretch *s)
{
    struct mr_core_memory memory;
    double resident = bench_resident_bytes(l->bench->pid), own = 0;
    for (uint32_t core = 0; core < mr_client_core_count(l->bench->client); core++) {
        bench_check(mr_memory(l->bench->client, NULL, core, &memory, NULL, NULL), "memory");
        own += (double)memory.checkpoint_bytes;
    }
    s->resident_bytes = resident > s->resident_bytes ? resident : s->resident_bytes;
    s->own_bytes = own > s->own_bytes ? own : s->own_bytes;
}

/* For `limit_us`, or until the save is over. */
static struct stretch run(struct load *l, double limit_us, bool until_saved)
{
    struct stretch s = {0};
    struct mr_checkpoint_status status;
    double start = bench_now_us(), now = start, next_look = start;
    for (l->ended = 0; now - start < limit_us; now = bench_now_us()) {
        struct in_flight *call = &l->calls[l->begun % IN_FLIGHT];
        if (call->future != NULL)
            end_one(l, call);
        begin_one(l);
        if (now < next_look)
            continue;
        next_look = now + LOOK_EACH_US;
        look(l, &s); /* the same calls with and without a save */
        if (checkpoint_is_over(l->bench, &status) && until_saved)
            break;
    }
    end_all(l);
    double took = bench_now_us() - start;
    uint32_t kept = l->ended < LATENCIES_MAX ? l->ended : LATENCIES_MAX;
    qsort(l->us, kept, sizeof(*l->us), compare);
    s.p99_us = l->us[(uint64_t)kept * 99 / 100];
    s.keys_per_s = (double)l->ended * LOAD_KEYS / took * 1e6;
    return s;
}

static double median(double *values, uint32_t count)
{
    qsort(values, count, sizeof(*values), compare);
    return count % 2 != 0 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* The median of values and that of the ratios of neighbours in time, from which the limit follows. */
static void print(const char *name, const char *unit, double *with, const double *without, uint32_t count)
{
    double ratios[SAVES_MAX] = {0};
    for (uint32_t i = 0; i < count; i++)
        ratios[i] = with[i] / without[i];
    double value = median(with, count), ratio = median(ratios, count);
    printf("{\"name\": \"%s\", \"value\": %.6g, \"limit\": %.6g, \"unit\": \"%s\", \"runs\": %u}\n", name,
           value, value / ratio, unit, count);
    fflush(stdout);
}

void checkpoint_load(struct checkpoint_bench *b)
{
    struct load l = {.bench = b, .random = 7, .us = calloc(LATENCIES_MAX, sizeof(double))};
    double with[3][SAVES_MAX], without[3][SAVES_MAX], own = 0;
    uint32_t saves = b->saves < SAVES_MAX ? b->saves : SAVES_MAX;
    if (l.us == NULL)
        exit(1);
    (void)run(&l, WARM_UP_US, false);
    for (uint32_t i = 0; i < saves; i++) {
        struct stretch before = run(&l, b->seconds * 1e6, false);
        double start = bench_now_us();
        checkpoint_begin(b, MR_SAVE_FULL);
        struct stretch during = run(&l, SAVES_TIMED_US, true);
        with[2][i] = (bench_now_us() - start) / 1e6;
        struct stretch after = run(&l, b->seconds * 1e6, false);
        without[0][i] = (before.keys_per_s + after.keys_per_s) / 2;
        without[1][i] = (before.p99_us + after.p99_us) / 2;
        without[2][i] = 1;
        with[0][i] = during.keys_per_s;
        with[1][i] = during.p99_us;
        double extra = during.resident_bytes - before.resident_bytes;
        own = during.own_bytes > own ? during.own_bytes : own;
        printf("{\"name\": \"checkpoint_memory_%u\", \"value\": %.3f, \"limit\": %.3f, \"unit\": \"MiB\"}\n",
               i, extra / 0x1p20, during.own_bytes / 0x1p20);
    }
    print("checkpoint_keys", "keys/s", with[0], without[0], saves);
    print("checkpoint_p99", "us", with[1], without[1], saves);
    print("checkpoint_under_load", "s", with[2], without[2], saves);
    free(l.us);
}
