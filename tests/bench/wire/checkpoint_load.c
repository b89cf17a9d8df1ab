/* Lookups and pushes of random keys by turns, a few in flight, for some time without a save and then for as
 * long as one runs, or is being copied to the store. */
#include "tests/bench/wire/checkpoint_load.h"
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "millrace_admin.h"
#include "millrace_observe.h"
#include "tests/bench/common/bench_keys.h"
#include "tests/bench/common/bench_util.h"

#define LOAD_KEYS     512u /* in a call */
#define IN_FLIGHT     4u   /* calls */
#define LOOK_EACH_US  20000.0
#define LATENCIES_MAX 2000000u
#define SAVES_MAX     32u
#define WARM_UP_US    500000.0
#define UNTIL_OVER_US 600e6 /* longer than any save or copy takes */
#define COPY_IDLE     1u    /* remote.state */
#define COPY_FAILED   3u

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

static void checkpoint_load_look(struct load *l, struct stretch *s)
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

/* ---- how long ---- */

static bool is_saved(struct checkpoint_bench *b)
{
    struct mr_checkpoint_info status = {.bytes = sizeof(status)};
    return checkpoint_is_over(b, &status);
}

struct copies {
    uint64_t state, last_id;
};

static void take_counter(void *arg, const char *name, uint64_t value)
{
    struct copies *c = arg;
    if (strcmp(name, "remote.state") == 0)
        c->state = value;
    else if (strcmp(name, "remote.last_id") == 0)
        c->last_id = value;
}

bool checkpoint_is_copied(struct checkpoint_bench *b)
{
    struct mr_checkpoint_info info = {.bytes = sizeof(info)};
    struct copies copies = {0};
    bench_check(mr_checkpoint_info(b->client, NULL, 0, &info, NULL, NULL), "checkpoint info");
    bench_check(mr_stats(b->client, NULL, 0, take_counter, &copies), "stats");
    if (copies.state == COPY_FAILED)
        bench_give_up("the copy to the store failed; the node's log says why");
    uint64_t newest = info.last_good_id > info.restored_id ? info.last_good_id : info.restored_id;
    return copies.state == COPY_IDLE && copies.last_id >= newest;
}

static void save_and_wait(struct checkpoint_bench *b)
{
    checkpoint_begin(b, MR_SAVE_FULL);
    while (!is_saved(b))
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

/* ---- stretches ---- */

/* For `limit_us`, or until `is_over`. */
static struct stretch checkpoint_load_run(struct load *l, double limit_us,
                                          bool (*is_over)(struct checkpoint_bench *b))
{
    struct stretch s = {0};
    double start = bench_now_us(), now = start, next_look = start;
    for (l->ended = 0; now - start < limit_us; now = bench_now_us()) {
        struct in_flight *call = &l->calls[l->begun % IN_FLIGHT];
        if (call->future != NULL)
            end_one(l, call);
        begin_one(l);
        if (now < next_look)
            continue;
        next_look = now + LOOK_EACH_US;
        checkpoint_load_look(l, &s); /* the same calls with and without a save */
        if (is_over(l->bench) && limit_us == UNTIL_OVER_US)
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
static void checkpoint_load_print(const char *name, const char *unit, double *with, const double *without,
                                  uint32_t count)
{
    double ratios[SAVES_MAX] = {0};
    for (uint32_t i = 0; i < count; i++)
        ratios[i] = with[i] / without[i];
    double value = median(with, count), ratio = median(ratios, count);
    printf("{\"name\": \"%s\", \"value\": %.6g, \"limit\": %.6g, \"unit\": \"%s\", \"runs\": %u}\n", name,
           value, value / ratio, unit, count);
    fflush(stdout);
}

/* What calls notice of something that is begun, and over after a while; `name` is part of the output's. */
static void compare_with(struct checkpoint_bench *b, const char *name,
                         void (*begin)(struct checkpoint_bench *b),
                         bool (*is_over)(struct checkpoint_bench *b))
{
    struct load l = {.bench = b, .random = 7, .us = calloc(LATENCIES_MAX, sizeof(double))};
    double with[3][SAVES_MAX], without[3][SAVES_MAX];
    uint32_t saves = b->saves < SAVES_MAX ? b->saves : SAVES_MAX;
    char row[64];
    if (l.us == NULL)
        exit(1);
    (void)checkpoint_load_run(&l, WARM_UP_US, is_over);
    for (uint32_t i = 0; i < saves; i++) {
        struct stretch before = checkpoint_load_run(&l, b->seconds * 1e6, is_over);
        begin(b);
        double start = bench_now_us();
        struct stretch during = checkpoint_load_run(&l, UNTIL_OVER_US, is_over);
        with[2][i] = (bench_now_us() - start) / 1e6;
        struct stretch after = checkpoint_load_run(&l, b->seconds * 1e6, is_over);
        without[0][i] = (before.keys_per_s + after.keys_per_s) / 2;
        without[1][i] = (before.p99_us + after.p99_us) / 2;
        without[2][i] = 1;
        with[0][i] = during.keys_per_s;
        with[1][i] = during.p99_us;
        double extra = during.resident_bytes - before.resident_bytes;
        printf("{\"name\": \"%s_memory_%u\", \"value\": %.3f, \"limit\": %.3f, \"unit\": \"MiB\"}\n", name, i,
               extra / 0x1p20, during.own_bytes / 0x1p20);
    }
    const char *const kinds[] = {"keys", "p99", "under_load"}, *const units[] = {"keys/s", "us", "s"};
    for (uint32_t i = 0; i < 3; i++) {
        (void)snprintf(row, sizeof(row), "%s_%s", name, kinds[i]);
        checkpoint_load_print(row, units[i], with[i], without[i], saves);
    }
    free(l.us);
}

static void begin_save(struct checkpoint_bench *b)
{
    checkpoint_begin(b, MR_SAVE_FULL);
}

void checkpoint_load(struct checkpoint_bench *b)
{
    compare_with(b, "checkpoint", begin_save, is_saved);
}

void checkpoint_copy_load(struct checkpoint_bench *b)
{
    compare_with(b, "copy", save_and_wait, checkpoint_is_copied);
}

/* As a copy follows a save, so that the page cache has the same to do. */
static void save_and_start(struct checkpoint_bench *b)
{
    save_and_wait(b);
    char *const arguments[] = {"sh", "-c", (char *)(uintptr_t)b->command, NULL};
    if (posix_spawnp(&b->command_pid, "sh", NULL, NULL, arguments, environ) != 0)
        bench_give_up("the command cannot be started");
}

static bool is_command_over(struct checkpoint_bench *b)
{
    int status;
    if (b->command_pid != 0 && waitpid(b->command_pid, &status, WNOHANG) == b->command_pid) {
        if (status != 0)
            bench_give_up("the command failed");
        b->command_pid = 0;
    }
    return b->command_pid == 0;
}

void checkpoint_command_load(struct checkpoint_bench *b)
{
    if (b->command == NULL)
        bench_give_up("--command is missing");
    compare_with(b, "command", save_and_start, is_command_over);
}
