/* millrace bench: calls to a server as trainers make them, counted and timed. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/plural.h"
#include "millrace_observe.h"
#include "tools/bench/bench_options.h"
#include "tools/bench/load_report.h"
#include "tools/bench/load_run.h"
#include "tools/bench/load_table.h"
#include "tools/commands.h"
#include "tools/connection.h"

#define BEHIND_LEAST_NS 10000000u /* what is shown on a terminal while it runs */
#define REAL_DIGITS     7

static const char command[] = TOOL_BENCH_COMMAND;
static atomic_bool stop_requested;

/* A second signal ends the program at once. */
static void on_signal(int number)
{
    atomic_store(&stop_requested, true);
}

static void heed_signals(void)
{
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

struct bench {
    struct tool_bench_options options;
    struct mr_client *client; /* for all that is no load */
    struct tool_load_table table;
    struct tool_load_run run;
    struct tool_load_server server;
    FILE *out;    /* of --out; NULL: none */
    bool is_live; /* blocks are shown while it runs */
};

/* ---- what the server counts ---- */

static void read_server(const struct bench *b, struct tool_load_server *out)
{
    const uint32_t cores = mr_client_core_count(b->client);
    *out = (struct tool_load_server){.is_known = true};
    for (uint32_t core = 0; core < cores && out->is_known; core++)
        out->is_known = mr_stats(b->client, NULL, core, tool_load_server_counter, out) == MR_OK;
}

/* What has come since it was read before; unknown after a restart, which begins from 0 again. */
static void finish_server(struct bench *b)
{
    struct tool_load_server before = b->server, now;
    read_server(b, &now);
    now.is_known = now.is_known && before.is_known && now.segments_resent >= before.segments_resent &&
                   now.segments_repeated >= before.segments_repeated &&
                   now.calls_expired >= before.calls_expired && now.busy_sent >= before.busy_sent;
    now.segments_resent -= before.segments_resent;
    now.segments_repeated -= before.segments_repeated;
    now.calls_expired -= before.calls_expired;
    now.busy_sent -= before.busy_sent;
    b->server = now;
}

/* ---- the file ---- */

/* A line; takes the value. */
static void write_line(const struct bench *b, const char *type, json_t *value)
{
    (void)json_object_set_new(value, "type", json_string(type));
    (void)json_dumpf(value, b->out, JSON_REAL_PRECISION(REAL_DIGITS));
    (void)fputc('\n', b->out);
    json_decref(value);
}

static void write_start(const struct bench *b)
{
    const struct tool_bench_plan *plan = &b->options.plan;
    write_line(b, "start",
               json_pack("{s:s, s:s, s:I, s:I, s:o}", "millrace", MR_VERSION, "server",
                         tool_server_name(&b->options.connection), "cores",
                         (json_int_t)mr_client_core_count(b->client), "time_ms",
                         (json_int_t)mr_clock_unix_ms(), "options", tool_load_plan_json(plan)));
}

static int open_out(struct bench *b)
{
    const char *path = b->options.out;
    b->out = path != NULL ? fopen(path, "we") : NULL;
    if (path == NULL || b->out != NULL)
        return 0;
    return cli_fail(command, "--out %s: %s", path, strerror(errno));
}

static int close_out(struct bench *b)
{
    if (b->out == NULL)
        return 0;
    const bool failed = ferror(b->out) != 0;
    if (fclose(b->out) == 0 && !failed)
        return 0;
    return cli_fail(command, "--out %s: it could not be written", b->options.out);
}

/* ---- while it runs ---- */

static void show_start(const struct bench *b)
{
    const struct tool_bench_plan *p = &b->options.plan;
    const uint32_t cores = mr_client_core_count(b->client);
    if (!b->is_live)
        return;
    (void)printf("%s, %" PRIu32 " core%s; %" PRIu32 " client%s with up to %" PRIu32
                 " call%s in flight each; ",
                 tool_server_name(&b->options.connection), cores, mr_plural(cores), p->clients,
                 mr_plural(p->clients), p->in_flight, mr_plural(p->in_flight));
    if (p->rate > 0)
        (void)printf("%g calls/s are due\n", p->rate);
    else
        (void)printf("closed loop\n");
    if (p->warm_up_s > 0)
        (void)printf("warming up for %g s\n", p->warm_up_s);
    tool_load_heading(stdout);
    (void)fflush(stdout);
}

static void show_block(const struct bench *b, const struct tool_load_block *block)
{
    char label[16], behind[32];
    if (!b->is_live)
        return;
    (void)snprintf(label, sizeof(label), "%.3g s", block->end_s);
    tool_load_lines(stdout, label, &b->options.plan, block);
    if (tool_load_behind(block, BEHIND_LEAST_NS, behind, sizeof(behind)))
        (void)printf("%8s sending is %s behind --rate\n", "", behind);
    (void)fflush(stdout);
}

static void follow(struct bench *b)
{
    static struct tool_load_block block;
    while (tool_load_run_next(&b->run, &block)) {
        if (b->out != NULL)
            write_line(b, "block", tool_load_block_json(&b->options.plan, &block, true));
        show_block(b, &block);
    }
}

/* ---- at the end ---- */

static json_t *drop_stats_json(const struct tool_drop_stats *left)
{
    return json_pack("{s:I, s:I, s:I}", "rows_refused", (json_int_t)left->rows_refused,
                     "gradients_without_row", (json_int_t)left->gradients_without_row, "gradients_skipped",
                     (json_int_t)left->gradients_skipped);
}

static void print_drop_stats(const struct tool_drop_stats *left)
{
    if (left->rows_refused > 0)
        (void)printf("%" PRIu64 " row%s refused: memory or the table's capacity was used up\n",
                     left->rows_refused, left->rows_refused == 1 ? " was" : "s were");
    if (left->gradients_without_row > 0)
        (void)printf("%" PRIu64
                     " gradient%s without a row were left out, which is less work: --preload makes "
                     "rows first\n",
                     left->gradients_without_row, mr_plural(left->gradients_without_row));
}

static void print_server(const struct tool_load_server *s)
{
    if (!s->is_known || s->segments_resent + s->segments_repeated + s->calls_expired + s->busy_sent == 0)
        return;
    (void)printf("the server, for all its clients: %" PRIu64 " segment%s sent again, %" PRIu64
                 " received again, %" PRIu64 " call%s expired, %" PRIu64 " refused for the moment\n",
                 s->segments_resent, mr_plural(s->segments_resent), s->segments_repeated, s->calls_expired,
                 mr_plural(s->calls_expired), s->busy_sent);
}

static void print_end(const struct bench *b, const struct tool_drop_stats *left)
{
    char label[32];
    if (b->is_live)
        (void)putchar('\n');
    (void)snprintf(label, sizeof(label), "%.3g s", b->run.total.seconds);
    tool_load_heading(stdout);
    tool_load_lines(stdout, label, &b->options.plan, &b->run.total);
    tool_load_failures(stdout, &b->run.total, tool_load_run_first_error(&b->run));
    print_drop_stats(left);
    print_server(&b->server);
}

static json_t *end_json(const struct bench *b, const struct tool_drop_stats *left)
{
    const struct tool_bench_plan *plan = &b->options.plan;
    json_t *out = tool_load_block_json(plan, &b->run.total, false);
    json_t *more =
        json_pack("{s:s, s:s, s:I, s:s, s:b, s:o, s:s, s:o, s:o, s:o}", "millrace", MR_VERSION, "server",
                  tool_server_name(&b->options.connection), "cores",
                  (json_int_t)mr_client_core_count(b->client), "table", b->table.name, "stopped",
                  (int)atomic_load(&stop_requested), "failures", tool_load_failures_json(&b->run.total.stats),
                  "first_failure", tool_load_run_first_error(&b->run), "drop_stats", drop_stats_json(left),
                  "server_counters", tool_load_server_json(&b->server), "options", tool_load_plan_json(plan));
    (void)json_object_update(out, more);
    json_decref(more);
    return out;
}

/* 0, or an exit code: no call has succeeded. */
static int judge(const struct bench *b)
{
    struct tool_op_stats sum;
    tool_load_stats_sum(&b->run.total.stats, &sum);
    if (b->run.total.seconds <= 0)
        return cli_fail(command, "it was ended before the measurement began: there are no results");
    return sum.counts[TOOL_ENDED] > sum.counts[TOOL_FAILED] ? 0 : cli_fail(command, "no call succeeded");
}

static int report(const struct bench *b)
{
    struct tool_drop_stats left = {0};
    int exit_code = 0;
    (void)tool_load_table_drop_stats(&b->table, &left);
    if (b->out != NULL)
        write_line(b, "end", end_json(b, &left));
    if (b->options.connection.json)
        exit_code = tool_print_json(command, end_json(b, &left));
    else if (b->run.total.seconds > 0)
        print_end(b, &left);
    return exit_code != 0 ? exit_code : judge(b);
}

static int measure(struct bench *b)
{
    const struct tool_bench_plan *plan = &b->options.plan;
    int exit_code = tool_load_run_init(&b->run, command, &b->options.connection, plan, &stop_requested);
    if (exit_code == 0) {
        read_server(b, &b->server);
        if (b->out != NULL)
            write_start(b);
        show_start(b);
        exit_code = tool_load_run_start(&b->run, command);
    }
    if (exit_code == 0) {
        follow(b);
        finish_server(b);
        exit_code = report(b);
    }
    atomic_store(&stop_requested, true);
    tool_load_run_fini(&b->run);
    return exit_code;
}

static int bench_run(struct bench *b)
{
    struct tool_bench_options *o = &b->options;
    b->table = (struct tool_load_table){.command = command, .client = b->client};
    int exit_code = tool_load_table_make(&b->table, &o->plan, o->table, o->write_existing);
    if (exit_code == 0)
        exit_code = tool_load_table_preload(&b->table, &o->plan, &stop_requested);
    if (exit_code == 0)
        exit_code = measure(b);
    const int dropped = tool_load_table_drop(&b->table);
    return exit_code != 0 ? exit_code : dropped;
}

int tool_bench(int argc, char **argv)
{
    static struct bench b;
    tool_bench_options_read(&b.options, argc, argv);
    b.is_live = isatty(STDOUT_FILENO) == 1 && !b.options.connection.json;
    heed_signals();
    int exit_code = open_out(&b);
    if (exit_code == 0)
        exit_code = tool_connect(command, &b.options.connection, &b.client);
    if (exit_code == 0)
        exit_code = bench_run(&b);
    mr_client_destroy(b.client);
    const int closed = close_out(&b);
    return exit_code != 0 ? exit_code : closed;
}
