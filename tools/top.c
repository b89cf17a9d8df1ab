/* millrace top: what each core does, now. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "dataplane/wire/base/clock.h"
#include "tools/commands.h"
#include "tools/connection.h"
#include "tools/core_rates.h"
#include "dataplane/wire/base/cli.h"

#define INTERVAL_S_MIN  0.05f
#define CLEAR_SCREEN    "\033[H\033[J"
#define AWAY_LINE_BYTES 256u

static const char command[] = "millrace top";
static volatile sig_atomic_t stop;

static void on_signal(int number)
{
    stop = 1;
}

/* Returns early when a signal comes. */
static void wait_until(uint64_t time_us)
{
    for (uint64_t now = mr_clock_us(); now < time_us && !stop; now = mr_clock_us()) {
        const struct timespec pause = mr_span_us(time_us - now);
        (void)nanosleep(&pause, NULL);
    }
}

/* One sample of every core. A server that was started again may have another number of them. */
static enum mr_status take_samples(struct mr_client *client, struct tool_core_sample *samples,
                                   uint32_t *count)
{
    static struct mr_core_state states[MR_CLIENT_CORES_MAX];
    enum mr_status status = mr_heartbeat(client, NULL, states);
    *count = mr_client_core_count(client);
    for (uint32_t core = 0; core < *count && status == MR_OK; core++) {
        samples[core] = (struct tool_core_sample){.state = states[core]};
        status = mr_stats(client, NULL, core, tool_core_sample_counter, &samples[core]);
        samples[core].time_us = mr_clock_us();
    }
    return status;
}

/* The name of the node that a core is of; "" if it is in no cluster. */
static const char *node_of(const struct mr_client *client, uint32_t core, struct mr_core_place *place)
{
    return mr_client_core_place(client, core, place) ? place->node : "";
}

static int print_block(const struct mr_client *client, bool json, bool terminal,
                       const struct tool_core_sample *before, const struct tool_core_sample *now,
                       uint32_t count)
{
    struct mr_core_place place;
    json_t *list = json ? json_array() : NULL;
    const bool is_cluster = node_of(client, 0, &place)[0] != '\0';
    if (!json)
        (void)printf("%s%s%s\n", terminal ? CLEAR_SCREEN : "", is_cluster ? "node         " : "",
                     tool_core_heading);
    for (uint32_t core = 0; core < count; core++) {
        const struct tool_core_rates rates = tool_core_rates(&before[core], &now[core]);
        char line[256];
        tool_core_line(&now[core], &rates, line, sizeof(line));
        if (json) {
            json_t *object = tool_core_json(&now[core], &rates);
            if (is_cluster)
                (void)json_object_set_new(object, "node", json_string(node_of(client, core, &place)));
            json_array_append_new(list, object);
        } else if (is_cluster) {
            (void)printf("%-12s %s\n", node_of(client, core, &place), line);
        } else {
            (void)printf("%s\n", line);
        }
    }
    if (json && count > 0) {
        json_object_set_new(json_array_get(list, 0), "checkpoint", tool_checkpoint_json(&before[0], &now[0]));
        json_object_set_new(json_array_get(list, 0), "remote", tool_remote_json(&before[0], &now[0]));
        json_object_set_new(json_array_get(list, 0), "scrub", tool_scrub_json(&now[0]));
    }
    if (json)
        return tool_print_json(command, list);
    char about[512];
    if (count > 0 && tool_checkpoint_line(&before[0], &now[0], about, sizeof(about)))
        (void)printf("%s\n", about);
    if (count > 0 && tool_remote_line(&before[0], &now[0], about, sizeof(about)))
        (void)printf("%s\n", about);
    if (count > 0 && tool_scrub_line(&now[0], about, sizeof(about)))
        (void)printf("%s\n", about);
    if (tool_left_out_line(now, count, about, sizeof(about)))
        (void)printf("%s\n", about);
    if (!terminal)
        (void)putchar('\n');
    return fflush(stdout) == 0 ? 0 : cli_fail(command, "the output could not be written");
}

/* The server does not answer: says so once, on standard error, so that a pipe holds blocks alone. */
static void say_away(bool terminal, bool *is_away)
{
    if (terminal)
        (void)printf(CLEAR_SCREEN);
    (void)fflush(stdout);
    if (!*is_away)
        (void)cli_fail(command, "%s; waiting for it to come back", mr_last_error());
    *is_away = true;
}

static void say_back(bool *is_away)
{
    if (*is_away)
        (void)cli_fail(command, "the server is back");
    *is_away = false;
}

/* Blocks until a signal, or until there were as many as were asked for. A server that ends, and may be
 * started again, is waited for. */
static int show(struct mr_client *client, const struct tool_connection *c, float interval_s, uint32_t blocks)
{
    static struct tool_core_sample samples[2][MR_CLIENT_CORES_MAX];
    const bool terminal = isatty(STDOUT_FILENO) == 1;
    const uint64_t interval_us = (uint64_t)((double)interval_s * 1e6);
    uint64_t next_us = mr_clock_us();
    uint32_t which = 0, shown = 0, count_before = 0, count;
    bool is_away = false;
    int exit_code = 0;
    while (!stop && exit_code == 0 && (blocks == 0 || shown < blocks)) {
        if (take_samples(client, samples[which], &count) != MR_OK) {
            say_away(terminal, &is_away);
            count_before = 0;
        } else {
            say_back(&is_away);
            if (count == count_before) {
                exit_code = print_block(client, c->json, terminal, samples[1 - which], samples[which], count);
                shown++;
            }
            count_before = count;
            which = 1 - which;
        }
        next_us += interval_us;
        if (exit_code == 0 && (blocks == 0 || shown < blocks))
            wait_until(next_us);
    }
    return exit_code;
}

static int run(const struct tool_connection *c, float interval_s, uint32_t blocks)
{
    struct mr_client *client;
    int exit_code = tool_connect(command, c, &client);
    if (exit_code != 0)
        return exit_code;
    exit_code = show(client, c, interval_s, blocks);
    mr_client_destroy(client);
    return exit_code;
}

int tool_top(int argc, char **argv)
{
    struct tool_connection c = {0};
    float interval_s = 1.0f;
    uint32_t count = 0;
    const struct cli_option options[] = {
        {"interval", CLI_FLOAT, &interval_s, "SECONDS", "seconds between two updates; default 1"},
        {"count", CLI_U32, &count, "N", "exit after this many updates; default: never"},
        TOOL_CONNECTION_OPTIONS(&c),
    };
    const struct cli_usage usage = {
        .program = command,
        .synopsis = "[options]",
        .summary =
            "Shows what each core does: calls, keys and packets per second, share of time that it is\n"
            "busy, rows, memory, and cached batches. Below that it shows the checkpoint that is being\n"
            "written and the saves that are waiting, how far the copies in checkpoint.remote\n"
            "are, which checkpoints were found to be damaged when they were read again (in JSON, all\n"
            "of these are with core 0), and what was left out since the server's\n"
            "start: rows that were refused at a limit, gradients for keys without a row or with NaN\n"
            "or Inf, and calls whose step was too far from that of other calls to count. \"millrace ctl "
            "list\" shows for each table what was left out.\n"
            "On a terminal the display is refreshed; in a pipe, one block is printed per interval.\n"
            "If the server ends, top waits for it to return, also in a pipe.\n"
            "\n"
            "  millrace top --interval 5 --server 10.0.0.1:7700",
        CLI_OPTIONS(options),
    };
    (void)cli_parse(&usage, argc, argv, NULL);
    if (interval_s < INTERVAL_S_MIN || interval_s > 86400.0f)
        cli_refuse(command, "--interval must be 0.05 to 86400 seconds");
    const struct sigaction action = {.sa_handler = on_signal};
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    return run(&c, interval_s, count);
}
