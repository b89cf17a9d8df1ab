/* millrace top: what each core does, now. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataplane/wire/base/clock.h"
#include "millrace_observe.h"
#include "tools/commands.h"
#include "tools/connection.h"
#include "tools/core_rates.h"
#include "tools/live.h"
#include "dataplane/wire/base/cli.h"

#define ANSWER_MS      1000u /* that a node of a cluster has to answer */
#define NODE_WIDTH_MIN 4
#define NODE_WIDTH_MAX 20

static const char command[] = "millrace top";
/* The samples of all cores at one time, and which of them have answered. */
struct round {
    struct tool_core_sample samples[MR_CLIENT_CORES_MAX];
    uint32_t count, answered;
};

/* A server that was started again may have another number of cores. Of a cluster, nodes that are away
 * leave the others' samples as they are; their own have the state 0. MR_OK: some core has answered. */
static enum mr_status take_samples(struct mr_client *client, struct round *r)
{
    static struct mr_core_state states[MR_CLIENT_CORES_MAX];
    struct mr_core_place place;
    const bool is_cluster = mr_client_core_place(client, 0, &place) && place.node[0] != '\0';
    const struct mr_options options = {.deadline_ms = is_cluster ? ANSWER_MS : 0};
    enum mr_status status = mr_heartbeat(client, &options, states);
    r->count = mr_client_core_count(client);
    r->answered = 0;
    for (uint32_t core = 0; core < r->count; core++) {
        struct tool_core_sample *sample = &r->samples[core];
        *sample = (struct tool_core_sample){.state = states[core]};
        if (status != MR_OK && (!is_cluster || states[core].state == 0))
            continue;
        const enum mr_status counted = mr_stats(client, &options, core, tool_core_sample_counter, sample);
        if (counted != MR_OK) {
            *sample = (struct tool_core_sample){.state.core = core};
            status = counted;
            continue;
        }
        sample->time_us = mr_clock_us();
        r->answered++;
    }
    return r->answered == r->count || (is_cluster && r->answered > 0) ? MR_OK : status;
}

/* The name of the node that a core is of; "" if it is in no cluster. */
static const char *node_of(const struct mr_client *client, uint32_t core, struct mr_core_place *place)
{
    return mr_client_core_place(client, core, place) ? place->node : "";
}

/* The width of the column with the nodes' names; 0: there is no cluster. */
static int node_width(const struct mr_client *client, uint32_t count)
{
    struct mr_core_place place;
    int width = 0;
    for (uint32_t core = 0; core < count; core++) {
        const int bytes = (int)strlen(node_of(client, core, &place));
        width = bytes > width ? bytes : width;
    }
    return width > NODE_WIDTH_MAX                ? NODE_WIDTH_MAX
           : width > 0 && width < NODE_WIDTH_MIN ? NODE_WIDTH_MIN
                                                 : width;
}

/* What the node's core 0 knows of its checkpoints. */
static void add_node_json(json_t *core, const struct tool_core_sample *before,
                          const struct tool_core_sample *now)
{
    json_object_set_new(core, "checkpoint", tool_checkpoint_json(before, now));
    json_object_set_new(core, "remote", tool_remote_json(before, now));
    json_object_set_new(core, "scrub", tool_scrub_json(now));
    json_object_set_new(core, "copies", tool_copies_json(now));
}

static void print_node_lines(FILE *out, const char *node, const struct tool_core_sample *before,
                             const struct tool_core_sample *now)
{
    const char *between = node[0] != '\0' ? ": " : "";
    char about[512];
    if (now->state.why[0] != '\0')
        (void)fprintf(out, "%s%sserves nothing: %s\n", node, between, now->state.why);
    if (tool_checkpoint_line(before, now, about, sizeof(about)))
        (void)fprintf(out, "%s%s%s\n", node, between, about);
    if (tool_remote_line(before, now, about, sizeof(about)))
        (void)fprintf(out, "%s%s%s\n", node, between, about);
    if (tool_copies_line(now, about, sizeof(about)))
        (void)fprintf(out, "%s%s%s\n", node, between, about);
    if (tool_scrub_line(now, about, sizeof(about)))
        (void)fprintf(out, "%s%s%s\n", node, between, about);
}

/* Whether the core is core 0 of its node. */
static bool is_first(const struct mr_client *client, uint32_t core)
{
    struct mr_core_place place;
    return core == 0 || (mr_client_core_place(client, core, &place) && place.core == 0);
}

static int print_json(const struct mr_client *client, const struct round *before, const struct round *now)
{
    struct mr_core_place place;
    json_t *list = json_array();
    const bool is_cluster = node_width(client, now->count) > 0;
    for (uint32_t core = 0; core < now->count; core++) {
        const struct tool_core_sample *was = &before->samples[core], *is = &now->samples[core];
        const struct tool_core_rates rates = tool_core_rates(was, is);
        json_t *object = tool_core_json(is, &rates);
        if (is_cluster)
            (void)json_object_set_new(object, "node", json_string(node_of(client, core, &place)));
        if (is_first(client, core))
            add_node_json(object, was, is);
        json_array_append_new(list, object);
    }
    return tool_print_json(command, list);
}

static void print_text(FILE *out, const struct mr_client *client, const struct round *before,
                       const struct round *now)
{
    struct mr_core_place place;
    const int width = node_width(client, now->count), gap = width > 0;
    char about[512];
    (void)fprintf(out, "%-*s%*s%s\n", width, width > 0 ? "node" : "", gap, "", tool_core_heading);
    for (uint32_t core = 0; core < now->count; core++) {
        const struct tool_core_rates rates = tool_core_rates(&before->samples[core], &now->samples[core]);
        char line[256];
        tool_core_line(&now->samples[core], &rates, line, sizeof(line));
        (void)fprintf(out, "%-*.*s%*s%s\n", width, width, node_of(client, core, &place), gap, "", line);
    }
    for (uint32_t core = 0; core < now->count; core++)
        if (is_first(client, core))
            print_node_lines(out, node_of(client, core, &place), &before->samples[core], &now->samples[core]);
    if (tool_drop_stats_line(now->samples, now->count, about, sizeof(about)))
        (void)fprintf(out, "%s\n", about);
}

static int print_block(const struct mr_client *client, bool json, bool terminal, const struct round *before,
                       const struct round *now)
{
    char *text = NULL;
    size_t bytes;
    if (json)
        return print_json(client, before, now);
    FILE *out = terminal ? open_memstream(&text, &bytes) : stdout;
    if (out == NULL)
        return cli_fail(command, "no memory left");
    print_text(out, client, before, now);
    if (terminal && fclose(out) == 0)
        tool_live_draw(text);
    else
        (void)putchar('\n');
    free(text);
    return fflush(stdout) == 0 ? 0 : cli_fail(command, "the output could not be written");
}

/* Blocks until a signal, or until there were as many as were asked for. A server that ends, and may be
 * started again, is waited for. */
static int top_show(struct mr_client *client, const struct tool_connection *c, float interval_s,
                    uint32_t blocks)
{
    static struct round rounds[2];
    const bool terminal = isatty(STDOUT_FILENO) == 1;
    const uint64_t interval_us = (uint64_t)((double)interval_s * 1e6);
    uint64_t next_us = mr_clock_us();
    uint32_t which = 0, shown = 0, count_before = 0;
    bool is_away = false;
    int exit_code = 0;
    while (!tool_live_ended() && exit_code == 0 && (blocks == 0 || shown < blocks)) {
        if (take_samples(client, &rounds[which]) != MR_OK) {
            tool_live_away(command, terminal, &is_away);
            count_before = 0;
        } else {
            tool_live_back(command, &is_away);
            if (rounds[which].count == count_before) {
                exit_code = print_block(client, c->json, terminal, &rounds[1 - which], &rounds[which]);
                shown++;
            }
            count_before = rounds[which].count;
            which = 1 - which;
        }
        next_us += interval_us;
        if (exit_code == 0 && (blocks == 0 || shown < blocks))
            tool_live_wait_until(next_us);
    }
    return exit_code;
}

static int top_run(const struct tool_connection *c, float interval_s, uint32_t blocks)
{
    struct mr_client *client;
    int exit_code = tool_connect(command, c, &client);
    if (exit_code != 0)
        return exit_code;
    exit_code = top_show(client, c, interval_s, blocks);
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
            "are, how far the backups of a node's partitions are behind (cluster.replication), which\n"
            "checkpoints were found to be damaged when they were read again (in JSON, all of these are\n"
            "with core 0 of each node), and what was left out since the server's\n"
            "start: rows that were refused at a limit, gradients for keys without a row or with NaN\n"
            "or Inf, and calls whose step was too far from that of other calls to count. \"millrace ctl "
            "list\" shows for each table what was left out.\n"
            "On a terminal the display is refreshed; in a pipe, one block is printed per interval.\n"
            "If the server ends, top waits for it to return, also in a pipe. Of a cluster it shows the\n"
            "cores of all nodes; a node that does not answer within a second is shown as away.\n"
            "\n"
            "  millrace top --interval 5 --server 10.0.0.1:7700",
        CLI_OPTIONS(options),
    };
    (void)cli_parse(&usage, argc, argv, NULL);
    if (interval_s < TOOL_INTERVAL_S_MIN || interval_s > TOOL_INTERVAL_S_MAX)
        cli_refuse(command, "--interval must be 0.05 to 86400 seconds");
    tool_live_begin();
    c.any_node = true;
    return top_run(&c, interval_s, count);
}
