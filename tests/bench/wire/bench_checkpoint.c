/* One thing at a time with a table of 16 floats a row and Adagrad's state, on a running node;
 * tests/bench/checkpoint.py puts them together. One JSON object per line, as bench_calls.
 *
 *   bench_checkpoint --server ADDRESS:PORT --pid PID --rows N DO...
 *
 *   fill     makes the table and all of its rows, with values of their own
 *   save     a save, waited for; bytes, and seconds from the call until it is published
 *   touch    pushes to 1 % of the rows
 *   load     lookups and pushes without and with a save by turns; --seconds of each, --saves times
 *   copied   waits until the newest checkpoint is in the store (checkpoint.remote)
 *   copies   as `load`, while such a copy is made instead of a save
 *   beside   as `copies`, while --command runs instead of a copy
 *   restore  the newest checkpoint
 *   check    as many rows as `fill` made */
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "millrace_admin.h"
#include "tests/bench/common/bench_keys.h"
#include "tests/bench/common/bench_util.h"
#include "tests/bench/wire/checkpoint_load.h"
#include "tests/checkpoint_calls.h"

#define IN_FLIGHT     4u
#define TOUCHED_EACH  100u /* one of so many rows */
#define LEARNING_RATE 0.1f
#define LOOK_EACH_NS  2000000
#define WAIT_MS       600000u
#define CALL_MS       60000u
#define WAIT_SPIN_US  50u /* then a client that waits for seconds leaves its processor to the node */

bool checkpoint_is_over(struct checkpoint_bench *b, struct mr_checkpoint_info *status)
{
    bench_check(mr_checkpoint_info(b->client, NULL, 0, status, NULL, NULL), "status");
    if (status->state != MR_CHECKPOINT_IDLE)
        return false;
    if (status->last_status != MR_OK)
        bench_give_up(status->last_error);
    return true;
}

void checkpoint_begin(struct checkpoint_bench *b, enum mr_save_kind kind)
{
    const struct mr_save_options save = {.bytes = sizeof(save), .kind = kind};
    bench_check(mr_save(b->client, NULL, &save, NULL, NULL), "save");
}

/* ---- rows ---- */

static struct mr_feature table_of_bench(void)
{
    struct mr_feature feature = mr_feature_table("checkpoint", CHECKPOINT_DIM);
    feature.optimizer = MR_OPT_ADAGRAD;
    feature.learning_rate = LEARNING_RATE;
    feature.initializer = MR_INIT_UNIFORM;
    feature.init_a = -0.01f;
    feature.init_b = 0.01f;
    return feature;
}

static void find_table(struct checkpoint_bench *b)
{
    struct mr_feature feature = table_of_bench();
    bench_check(mr_create(b->client, NULL, &feature, 1, &b->table), "create");
}

static uint64_t rows_held(const struct checkpoint_bench *b)
{
    struct mr_feature_info *infos = NULL;
    uint32_t count = 0;
    uint64_t rows = 0;
    bench_check(mr_list(b->client, NULL, &infos, &count), "list");
    for (uint32_t i = 0; i < count; i++)
        rows += infos[i].id == b->table ? infos[i].rows : 0;
    free(infos);
    return rows;
}

static void checkpoint_finish(struct mr_future **slot)
{
    struct mr_reply *reply = NULL;
    if (*slot == NULL)
        return;
    bench_check(mr_future_wait(*slot, &reply), "call");
    mr_reply_free(reply);
    mr_future_destroy(*slot);
    *slot = NULL;
}

/* Of every `each`-th key: looks it up, or pushes to it. */
static void each_key(struct checkpoint_bench *b, bool push, uint64_t each)
{
    struct mr_future *futures[IN_FLIGHT] = {NULL};
    uint64_t keys[CHECKPOINT_CALL_KEYS], calls = 0, count = (b->rows + each - 1) / each;
    for (uint64_t at = 0; at < count; at += CHECKPOINT_CALL_KEYS, calls++) {
        struct mr_future **slot = &futures[calls % IN_FLIGHT];
        struct mr_options options = {.future = slot};
        uint32_t n = (uint32_t)(count - at < CHECKPOINT_CALL_KEYS ? count - at : CHECKPOINT_CALL_KEYS);
        checkpoint_finish(slot);
        for (uint32_t i = 0; i < n; i++)
            keys[i] = bench_key_at((at + i) * each);
        if (push)
            bench_check(
                mr_push_gradients(b->client, &options, b->table, keys, n, CHECKPOINT_DIM, b->gradients),
                "push");
        else
            bench_check(mr_lookup(b->client, &options, b->table, keys, n, NULL), "lookup");
    }
    for (uint32_t i = 0; i < IN_FLIGHT; i++)
        checkpoint_finish(&futures[i]);
}

static void checkpoint_fill(struct checkpoint_bench *b)
{
    each_key(b, false, 1);
    if (rows_held(b) != b->rows)
        bench_give_up("not all rows were made");
}

static void touch(struct checkpoint_bench *b)
{
    each_key(b, true, TOUCHED_EACH);
}

static void checkpoint_check(struct checkpoint_bench *b)
{
    if (rows_held(b) != b->rows)
        bench_give_up("other rows than were saved");
}

/* ---- checkpoints ---- */

static void print_save(const char *name, const struct mr_checkpoint_info *status, double us)
{
    printf("{\"name\": \"%s\", \"value\": %.6f, \"unit\": \"s\", \"bytes\": %" PRIu64 ", \"own_us\": %" PRIu64
           "}\n",
           name, us / 1e6, status->bytes_done, status->duration_us);
    fflush(stdout);
}

static void save_as(struct checkpoint_bench *b, const char *name, enum mr_save_kind kind)
{
    struct mr_checkpoint_info status = {.bytes = sizeof(status)};
    double start = bench_now_us();
    checkpoint_begin(b, kind);
    while (!checkpoint_is_over(b, &status))
        nanosleep(&(struct timespec){.tv_nsec = LOOK_EACH_NS}, NULL);
    print_save(name, &status, bench_now_us() - start);
}

static void checkpoint_save(struct checkpoint_bench *b)
{
    save_as(b, "save", MR_SAVE_FULL);
}

static void delta(struct checkpoint_bench *b)
{
    save_as(b, "delta", MR_SAVE_DELTA);
}

static void restore(struct checkpoint_bench *b)
{
    struct mr_options options = {.deadline_ms = WAIT_MS};
    struct mr_checkpoint_info status = {.bytes = sizeof(status)};
    double start = bench_now_us();
    bench_check(restore_from(b->client, &options, NULL, 0, NULL), "restore");
    double took = bench_now_us() - start;
    (void)checkpoint_is_over(b, &status);
    print_save("restore", &status, took);
}

static void wait_copied(struct checkpoint_bench *b)
{
    while (!checkpoint_is_copied(b))
        nanosleep(&(struct timespec){.tv_nsec = LOOK_EACH_NS}, NULL);
}

static const struct work {
    const char *name;
    void (*run)(struct checkpoint_bench *b);
} works[] = {{"fill", checkpoint_fill},
             {"save", checkpoint_save},
             {"delta", delta},
             {"touch", touch},
             {"load", checkpoint_load},
             {"restore", restore},
             {"check", checkpoint_check},
             {"copied", wait_copied},
             {"copies", checkpoint_copy_load},
             {"beside", checkpoint_command_load}};

static void checkpoint_run(struct checkpoint_bench *b, const char *name)
{
    for (size_t i = 0; i < sizeof(works) / sizeof(works[0]); i++) {
        if (strcmp(works[i].name, name) == 0) {
            if (works[i].run != restore)
                find_table(b);
            works[i].run(b);
            return;
        }
    }
    bench_give_up("no such thing to do");
}

int main(int argc, char **argv)
{
    static const struct option long_options[] = {{"server", required_argument, NULL, 's'},
                                                 {"pid", required_argument, NULL, 'p'},
                                                 {"rows", required_argument, NULL, 'r'},
                                                 {"seconds", required_argument, NULL, 't'},
                                                 {"saves", required_argument, NULL, 'n'},
                                                 {"command", required_argument, NULL, 'c'},
                                                 {NULL, 0, NULL, 0}};
    static struct checkpoint_bench b = {.seconds = 3, .saves = 3};
    struct mr_client_options options = {.deadline_ms = CALL_MS};
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;)
        if (c == 's')
            options.server = optarg;
        else if (c == 'p')
            b.pid = strtoul(optarg, NULL, 10);
        else if (c == 'r')
            b.rows = strtoull(optarg, NULL, 10);
        else if (c == 't')
            b.seconds = strtod(optarg, NULL);
        else if (c == 'c')
            b.command = optarg;
        else if (c == 'n')
            b.saves = (uint32_t)strtoul(optarg, NULL, 10);
    if (options.server == NULL || b.pid == 0 || b.rows == 0 || b.saves == 0 || optind == argc) {
        fprintf(stderr,
                "usage: bench_checkpoint --server ADDRESS:PORT --pid PID --rows N [--seconds S] [--saves N] "
                "[--command COMMAND] fill|save|delta|touch|load|copied|copies|beside|restore|check...\n");
        return 2;
    }
    for (uint32_t i = 0; i < CHECKPOINT_CALL_KEYS * CHECKPOINT_DIM; i++)
        b.gradients[i] = 1.0f;
    if (strcmp(argv[optind], "restore") == 0)
        options.busy_poll_us = WAIT_SPIN_US;
    b.client = bench_connect(&options);
    for (; optind < argc; optind++)
        checkpoint_run(&b, argv[optind]);
    mr_client_destroy(b.client);
    return 0;
}
