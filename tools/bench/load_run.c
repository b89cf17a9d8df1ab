#include "tools/bench/load_run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "dataplane/wire/base/cli.h"
#include "dataplane/wire/base/clock.h"

#define SECOND_NS   1e9
#define START_NS    10000000u /* until all threads are there */
#define LOOK_US_MAX 20000u    /* whether all clients have ended */

/* What the library asks the server before the first call that names something. */
static enum mr_status meet(struct mr_client *client, const struct tool_bench_plan *plan)
{
    const struct mr_options options = {.read_only = true};
    const uint64_t key = 0;
    const uint32_t *w = plan->mix.weights;
    enum mr_status status = MR_OK;
    if (tool_mix_has_keys(&plan->mix))
        status = mr_lookup(client, &options, plan->table, &key, 1, NULL);
    if (status == MR_OK && (w[TOOL_VARIABLE] > 0 || w[TOOL_VARIABLE_PUSH] > 0))
        status = mr_variable_pull(client, NULL, plan->variable, 0, 1, NULL);
    return status;
}

static int connect_one(struct tool_load_run *r, const char *command, const struct tool_connection *c)
{
    struct mr_client *client;
    const uint32_t number = r->connected;
    const int exit_code = tool_connect(command, c, &client);
    if (exit_code != 0)
        return exit_code;
    r->connected++;
    if (!tool_worker_init(&r->workers[number], r->plan, r->stop, client, number))
        return cli_fail(command, "no memory for client %" PRIu32, number + 1);
    const enum mr_status status = meet(client, r->plan);
    return status == MR_OK ? 0 : tool_call_failed(command, status);
}

int tool_load_run_init(struct tool_load_run *r, const char *command, const struct tool_connection *c,
                       const struct tool_bench_plan *plan, const atomic_bool *stop)
{
    int exit_code = 0;
    memset(r, 0, sizeof(*r));
    r->plan = plan;
    r->stop = stop;
    r->workers = calloc(plan->clients, sizeof(*r->workers));
    if (r->workers == NULL)
        return cli_fail(command, "no memory for %" PRIu32 " clients", plan->clients);
    while (exit_code == 0 && r->connected < plan->clients && !atomic_load(stop))
        exit_code = connect_one(r, command, c);
    return exit_code;
}

static struct tool_bench_times times_of(const struct tool_bench_plan *plan)
{
    const uint64_t start_ns = mr_clock_ns() + START_NS;
    const uint64_t measured_ns = start_ns + (uint64_t)(plan->warm_up_s * SECOND_NS);
    const uint64_t length_ns = (uint64_t)(plan->seconds * SECOND_NS);
    return (struct tool_bench_times){start_ns, measured_ns,
                                     length_ns > 0 ? measured_ns + length_ns : UINT64_MAX};
}

int tool_load_run_start(struct tool_load_run *r, const char *command)
{
    r->times = times_of(r->plan);
    r->block_ns = r->times.measured_ns;
    for (; r->started < r->connected; r->started++)
        if (!tool_worker_start(&r->workers[r->started], &r->times))
            return cli_fail(command, "no thread for client %" PRIu32, r->started + 1);
    return 0;
}

/* ---- blocks ---- */

static bool all_are_over(const struct tool_load_run *r)
{
    bool all = true;
    for (uint32_t i = 0; i < r->started; i++)
        all &= atomic_load(&r->workers[i].is_over);
    return all;
}

/* Returns whether the time came before all clients were over. */
static bool wait_until(const struct tool_load_run *r, uint64_t until_ns)
{
    for (;;) {
        if (all_are_over(r))
            return false;
        const uint64_t now_ns = mr_clock_ns();
        if (now_ns >= until_ns)
            return true;
        const uint64_t left_us = (until_ns - now_ns) / 1000 + 1;
        const struct timespec pause = mr_span_us(left_us < LOOK_US_MAX ? left_us : LOOK_US_MAX);
        (void)nanosleep(&pause, NULL);
    }
}

/* What all clients have counted so far; returns how late the latest of them is. */
static uint64_t read_all(const struct tool_load_run *r, struct tool_load_stats *out)
{
    static struct tool_load_stats one;
    uint64_t behind_ns = 0;
    memset(out, 0, sizeof(*out));
    for (uint32_t i = 0; i < r->started; i++) {
        const uint64_t own_ns = atomic_load_explicit(&r->workers[i].behind_ns, memory_order_relaxed);
        tool_load_stats_read(&r->workers[i].stats, &one);
        tool_load_stats_merge(out, &one);
        behind_ns = own_ns > behind_ns ? own_ns : behind_ns;
    }
    return behind_ns;
}

/* The run ends at the end that was planned, or when it was stopped. */
static uint64_t end_ns(const struct tool_load_run *r)
{
    uint64_t end = r->times.end_ns;
    for (uint32_t i = 0; i < r->started; i++)
        end = r->workers[i].flight.end_ns < end ? r->workers[i].flight.end_ns : end;
    return end;
}

static double seconds_between(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) / SECOND_NS : 0;
}

static void take_block(struct tool_load_run *r, uint64_t to_ns, struct tool_load_block *block)
{
    static struct tool_load_stats now;
    block->behind_ns = read_all(r, &now);
    block->stats = now;
    tool_load_stats_subtract(&block->stats, &r->before);
    r->before = now;
    block->seconds = seconds_between(r->block_ns, to_ns);
    block->end_s = seconds_between(r->times.measured_ns, to_ns);
    r->block_ns = to_ns;
    r->total = (struct tool_load_block){
        .end_s = block->end_s, .seconds = block->end_s, .behind_ns = block->behind_ns};
    r->total.stats = now;
}

static void join_all(struct tool_load_run *r)
{
    for (uint32_t i = 0; i < r->started && !r->is_over; i++)
        tool_worker_join(&r->workers[i]);
    r->is_over = true;
}

bool tool_load_run_next(struct tool_load_run *r, struct tool_load_block *block)
{
    const uint64_t next_ns = r->block_ns + (uint64_t)(r->plan->interval_s * SECOND_NS);
    if (r->is_over)
        return false;
    /* also where it was woken so late that all are over: each interval has its block */
    if (wait_until(r, next_ns < r->times.end_ns ? next_ns : UINT64_MAX) || next_ns < end_ns(r)) {
        take_block(r, next_ns, block);
        return true;
    }
    join_all(r);
    take_block(r, end_ns(r), block);
    return true;
}

const char *tool_load_run_first_error(const struct tool_load_run *r)
{
    const char *text = "";
    for (uint32_t i = r->started; i > 0; i--)
        if (r->workers[i - 1].first_error[0] != '\0')
            text = r->workers[i - 1].first_error;
    return text;
}

void tool_load_run_fini(struct tool_load_run *r)
{
    join_all(r);
    for (uint32_t i = 0; i < r->connected; i++)
        tool_worker_fini(&r->workers[i]);
    free(r->workers);
}
