/* millrace ctl move, drain, rebalance, forget, take-over, moves. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dataplane/wire/base/cli.h"
#include "dataplane/wire/base/plural.h"
#include "millrace_admin.h"
#include "millrace_observe.h"
#include "tools/ctl/ctl.h"

#define MIB            1048576.0
#define LOOK_MS        500 /* between two looks with --wait */
#define PARTITION_LAST 4095u

static const char *const states[] = {
    [MR_MOVING_WAITS] = "waits", [MR_MOVING_COPIES] = "copies", [MR_MOVING_ENDS] = "ends"};

/* ---- showing ---- */

static const char *state_of(const struct mr_moving *m)
{
    return m->state <= MR_MOVING_ENDS ? states[m->state] : "?";
}

static double rate_of(const struct mr_moving *m)
{
    return m->us == 0 ? 0 : (double)m->bytes / MIB / ((double)m->us / 1e6);
}

/* Seconds, about; below 0: it cannot be said yet. */
static double left_of(const struct mr_moving *m)
{
    return rate_of(m) > 0 ? (double)m->left_bytes / MIB / rate_of(m) : -1;
}

static void add_move(void *arg, const struct mr_moving *m)
{
    json_array_append_new(
        arg, json_pack("{s:I, s:s, s:s, s:I, s:I, s:s, s:I, s:I, s:I, s:f, s:f, s:I}", "id",
                       (json_int_t)m->id, "from", m->from, "to", m->to, "first", (json_int_t)m->first,
                       "partitions", (json_int_t)m->count, "state", state_of(m), "rows", (json_int_t)m->rows,
                       "bytes", (json_int_t)m->bytes, "left_bytes", (json_int_t)m->left_bytes, "mib_s",
                       rate_of(m), "left_s", left_of(m), "limit_mib_s", (json_int_t)m->mib_s));
}

static json_t *moves_json(const struct mr_moves_state *s, json_t *moves)
{
    return json_pack("{s:I, s:b, s:I, s:O}", "epoch", (json_int_t)s->epoch, "balances", s->balances,
                     "drained", (json_int_t)s->drained, "moves", moves);
}

static void print_move(const json_t *m)
{
    const double left_s = json_real_value(json_object_get(m, "left_s"));
    char left[32] = "-";
    if (left_s >= 0)
        (void)snprintf(left, sizeof(left), "%.0f s", left_s);
    (void)printf(
        "%6" JSON_INTEGER_FORMAT "  %-16s  %-16s  %10" JSON_INTEGER_FORMAT "  %-6s  %12" JSON_INTEGER_FORMAT
        "  %9.1f  %7.1f  %s\n",
        json_integer_value(json_object_get(m, "id")), json_string_value(json_object_get(m, "from")),
        json_string_value(json_object_get(m, "to")), json_integer_value(json_object_get(m, "partitions")),
        json_string_value(json_object_get(m, "state")), json_integer_value(json_object_get(m, "rows")),
        (double)json_integer_value(json_object_get(m, "bytes")) / MIB,
        json_real_value(json_object_get(m, "mib_s")), left);
}

static void print_moves(const struct mr_moves_state *s, const json_t *moves)
{
    if (s->count == 0)
        (void)printf("nothing moves%s\n", s->balances ? "; the leader begins more" : "");
    else
        (void)printf("%6s  %-16s  %-16s  %10s  %-6s  %12s  %9s  %7s  %s\n", "move", "from", "to",
                     "partitions", "state", "rows", "MiB", "MiB/s", "left");
    for (size_t i = 0; i < json_array_size(moves); i++)
        print_move(json_array_get(moves, i));
    if (s->drained > 0)
        (void)printf("%" PRIu32 " node%s drained: \"millrace ctl rebalance\" gives those that are there "
                     "partitions again\n",
                     s->drained, s->drained == 1 ? " is" : "s are");
}

int tool_ctl_moves(const struct tool_query *q)
{
    struct mr_moves_state state = {.epoch = 0};
    json_t *moves = json_array();
    int exit_code = 0;
    const enum mr_status status = mr_moves(q->client, NULL, &state, add_move, moves);
    if (status != MR_OK)
        exit_code = tool_call_failed(q->command, status);
    else if (q->json)
        exit_code = tool_print_json(q->command, moves_json(&state, moves));
    else
        print_moves(&state, moves);
    json_decref(moves);
    return exit_code;
}

/* ---- waiting ---- */

struct sum {
    uint32_t partitions;
    uint64_t bytes, left_bytes;
    double mib_s;
};

static void add_to_sum(void *arg, const struct mr_moving *m)
{
    struct sum *sum = arg;
    sum->partitions += m->count;
    sum->bytes += m->bytes;
    sum->left_bytes += m->left_bytes;
    sum->mib_s += m->state == MR_MOVING_WAITS ? 0 : rate_of(m);
}

/* One line that is written over, on a terminal. */
static void show_progress(const struct mr_moves_state *state, const struct sum *sum, bool is_over)
{
    if (isatty(STDERR_FILENO) == 0)
        return;
    if (is_over)
        (void)fprintf(stderr, "\r\033[K");
    else
        (void)fprintf(stderr,
                      "\r\033[K%" PRIu32 " move%s, %" PRIu32 " partition%s: %.1f MiB at %.1f MiB/s, "
                      "about %.1f MiB left",
                      state->count, mr_plural(state->count), sum->partitions, mr_plural(sum->partitions),
                      (double)sum->bytes / MIB, sum->mib_s, (double)sum->left_bytes / MIB);
}

/* Until nothing moves any more. */
static enum mr_status wait_for_moves(struct mr_client *client)
{
    for (;;) {
        struct mr_moves_state state;
        struct sum sum = {0};
        const enum mr_status status = mr_moves(client, NULL, &state, add_to_sum, &sum);
        const bool is_over = status != MR_OK || (state.count == 0 && !state.balances);
        show_progress(&state, &sum, is_over);
        if (is_over)
            return status;
        (void)nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
    }
}

/* ---- asking ---- */

struct ask {
    struct tool_connection c;
    const char *from, *to, *partitions;
    uint32_t mib_s;
    uint64_t id;
    bool cancels, waits;
};

/* "N" or "A-B". */
static bool parse_partitions(const char *text, struct mr_move_request *r)
{
    char first[16];
    uint64_t a;
    uint64_t b;
    const char *dash = strchr(text, '-');
    if (dash == NULL) {
        const bool is_good = cli_u64(text, PARTITION_LAST + 1, &a) && a > 0;
        r->count = is_good ? (uint32_t)a : 0;
        return is_good;
    }
    if ((size_t)(dash - text) >= sizeof(first))
        return false;
    (void)snprintf(first, sizeof(first), "%.*s", (int)(dash - text), text);
    if (!cli_u64(first, PARTITION_LAST, &a) || !cli_u64(dash + 1, PARTITION_LAST, &b) || b < a)
        return false;
    r->has_first = true;
    r->first = (uint32_t)a;
    r->count = (uint32_t)(b - a + 1);
    return true;
}

/* What moves have left: partitions of nodes that are away, and those of the node that was to have none. */
struct leftover {
    const char *emptied; /* NULL: no node was to be */
    uint32_t kept;       /* by it */
    json_t *absent;
};

static void add_leftover(void *arg, const struct mr_cluster_member *node)
{
    struct leftover *left = arg;
    if (left->emptied != NULL && strcmp(node->name, left->emptied) == 0)
        left->kept = node->partitions;
    if (!node->is_present && node->partitions > 0)
        json_array_append_new(left->absent, json_pack("{s:s, s:I}", "name", node->name, "partitions",
                                                      (json_int_t)node->partitions));
}

static void print_absent(const json_t *absent)
{
    size_t i;
    json_t *node;
    json_array_foreach(absent, i, node)(void)
        printf("%s is away and keeps its %" JSON_INTEGER_FORMAT " partitions\n",
               json_string_value(json_object_get(node, "name")),
               json_integer_value(json_object_get(node, "partitions")));
}

static int ask_moves(const char *command, struct ask *ask, const struct mr_move_request *request)
{
    struct mr_client *client;
    struct mr_moves_state state = {0};
    struct mr_cluster_state cluster;
    const bool empties = request->kind == MR_REQUEST_DRAIN ||
                         (request->kind == MR_REQUEST_MOVE && request->count == 0 && !request->has_first);
    struct leftover left = {.emptied = ask->waits && empties ? request->from : NULL};
    ask->c.any_node = true;
    int exit_code = tool_connect(command, &ask->c, &client);
    if (exit_code != 0)
        return exit_code;
    enum mr_status status = mr_move(client, NULL, request);
    if (status == MR_OK && ask->waits)
        status = wait_for_moves(client);
    json_t *moves = json_array();
    left.absent = json_array();
    if (status == MR_OK)
        status = mr_moves(client, NULL, &state, add_move, moves);
    if (status == MR_OK)
        status = mr_cluster(client, NULL, &cluster, add_leftover, &left);
    json_t *json = moves_json(&state, moves);
    (void)json_object_set(json, "absent", left.absent);
    json_decref(moves);
    exit_code =
        tool_ctl_end(command, &ask->c, client, status, json, "%" PRIu32 " move%s in progress%s\n",
                     state.count, mr_plural(state.count), state.balances ? ", more are to follow" : "");
    if (exit_code == 0 && !ask->c.json &&
        (request->kind == MR_REQUEST_DRAIN || request->kind == MR_REQUEST_REBALANCE))
        print_absent(left.absent);
    json_decref(left.absent);
    if (exit_code != 0 || left.kept == 0)
        return exit_code;
    return cli_fail(command,
                    "%s still owns %" PRIu32 " partition%s: a node went away, the moves were cancelled, or "
                    "they were too many for one time: the nodes' logs say which; ask again",
                    left.emptied, left.kept, mr_plural(left.kept));
}

#define COMMON_OPTIONS(a)                                                                                    \
    {"rate-mib-s", CLI_U32, &(a)->mib_s, "N", "at most so many MiB a second; default: cluster.move_mib_s"},  \
        {"wait", CLI_FLAG, &(a)->waits, NULL, "wait until nothing moves any more"},                          \
        {"cancel", CLI_FLAG, &(a)->cancels, NULL,                                                            \
         "end moves in progress: their partitions stay where they are"},                                     \
        TOOL_CONNECTION_OPTIONS(&(a)->c)

int tool_ctl_move(int argc, char **argv)
{
    static const char command[] = "millrace ctl move";
    struct ask ask = {0};
    const struct cli_option options[] = {
        {"from", CLI_STRING, &ask.from, "NODE", "the node that has the partitions"},
        {"to", CLI_STRING, &ask.to, "NODE", "the node that is to have them"},
        {"partitions", CLI_STRING, &ask.partitions, "N|A-B",
         "how many, or which places of the map; default: all of the node's"},
        {"id", CLI_U64, &ask.id, "N", "with --cancel: this move only"},
        COMMON_OPTIONS(&ask),
    };
    const struct cli_usage usage = {
        .program = command,
        .synopsis = "--from NODE --to NODE [options] | --cancel [--id N]",
        .summary = "Moves partitions from one node of a cluster to another while both serve. Calls for them\n"
                   "wait for about ten milliseconds at the end.\n\n"
                   "  millrace ctl move --from ads-1 --to ads-2 --partitions 512 --wait",
        CLI_OPTIONS(options),
    };
    (void)cli_parse(&usage, argc, argv, NULL);
    struct mr_move_request request = {.kind = ask.cancels ? MR_REQUEST_CANCEL_MOVES : MR_REQUEST_MOVE,
                                      .from = ask.from,
                                      .to = ask.to,
                                      .mib_s = ask.mib_s,
                                      .id = ask.id};
    if (!ask.cancels && (ask.from == NULL || ask.to == NULL))
        return cli_fail(command, "name both nodes: --from NODE --to NODE");
    if (!ask.cancels && ask.id != 0)
        return cli_fail(command, "--id goes with --cancel");
    if (ask.partitions != NULL && !parse_partitions(ask.partitions, &request))
        return cli_fail(command, "--partitions %s: a number up to %u, or A-B, places from 0 to %u",
                        ask.partitions, PARTITION_LAST + 1, PARTITION_LAST);
    return ask_moves(command, &ask, &request);
}

int tool_ctl_drain(int argc, char **argv)
{
    static const char command[] = "millrace ctl drain";
    struct ask ask = {0};
    const struct cli_option options[] = {COMMON_OPTIONS(&ask)};
    const struct cli_usage usage = {
        .program = command,
        .synopsis = "NODE [options] | --cancel",
        .summary = "Moves all partitions of a node to the others, so that it can be stopped. It gets none\n"
                   "until \"millrace ctl rebalance\".\n\n"
                   "  millrace ctl drain ads-3 --wait",
        CLI_OPTIONS(options),
        .words_max = 1,
    };
    const char *node = NULL;
    const uint32_t count = cli_parse(&usage, argc, argv, &node);
    if (count == 0 && !ask.cancels)
        return cli_fail(command, "name the node that is to have no partitions");
    const struct mr_move_request request = {
        .kind = ask.cancels ? MR_REQUEST_CANCEL_MOVES : MR_REQUEST_DRAIN, .from = node, .mib_s = ask.mib_s};
    return ask_moves(command, &ask, &request);
}

int tool_ctl_rebalance(int argc, char **argv)
{
    static const char command[] = "millrace ctl rebalance";
    struct ask ask = {0};
    const struct cli_option options[] = {COMMON_OPTIONS(&ask)};
    const struct cli_usage usage = {
        .program = command,
        .synopsis = "[options]",
        .summary = "Moves partitions until each node has as many as its cores are: after nodes have come,\n"
                   "also those that were drained.\n\n"
                   "  millrace ctl rebalance --rate-mib-s 200 --wait",
        CLI_OPTIONS(options),
    };
    (void)cli_parse(&usage, argc, argv, NULL);
    const struct mr_move_request request = {
        .kind = ask.cancels ? MR_REQUEST_CANCEL_MOVES : MR_REQUEST_REBALANCE, .mib_s = ask.mib_s};
    return ask_moves(command, &ask, &request);
}

int tool_ctl_forget(int argc, char **argv)
{
    static const char command[] = "millrace ctl forget";
    struct tool_connection c = {.any_node = true};
    const struct cli_option options[] = {TOOL_CONNECTION_OPTIONS(&c)};
    const struct cli_usage usage = {
        .program = command,
        .synopsis = "NODE [options]",
        .summary = "Takes a node out of the cluster's map that is stopped and owns nothing (\"millrace ctl\n"
                   "drain\"). By itself it leaves after a day.\n\n"
                   "  millrace ctl forget ads-3",
        CLI_OPTIONS(options),
        .words_max = 1,
    };
    const char *node = NULL;
    struct mr_client *client;
    if (cli_parse(&usage, argc, argv, &node) == 0)
        return cli_fail(command, "name the node that has left the cluster");
    const int exit_code = tool_connect(command, &c, &client);
    if (exit_code != 0)
        return exit_code;
    const struct mr_move_request request = {.kind = MR_REQUEST_FORGET_NODE, .from = node};
    return tool_ctl_end(command, &c, client, mr_move(client, NULL, &request),
                        json_pack("{s:s}", "forgotten", node), "%s is forgotten\n", node);
}

int tool_ctl_take_over(int argc, char **argv)
{
    static const char command[] = "millrace ctl take-over";
    struct tool_connection c = {.any_node = true};
    const struct cli_option options[] = {TOOL_CONNECTION_OPTIONS(&c)};
    const struct cli_usage usage = {
        .program = command,
        .synopsis = "NODE [options]",
        .summary = "Lets the other nodes have what a node owns that is away: they load it from the newest\n"
                   "checkpoint of the cluster, and trainers send again what is newer. What nobody keeps\n"
                   "any more, and no checkpoint has, is lost.\n\n"
                   "  millrace ctl take-over ads-3",
        CLI_OPTIONS(options),
        .words_max = 1,
    };
    const char *node = NULL;
    struct mr_client *client;
    if (cli_parse(&usage, argc, argv, &node) == 0)
        return cli_fail(command, "name the node that is away");
    const int exit_code = tool_connect(command, &c, &client);
    if (exit_code != 0)
        return exit_code;
    const struct mr_move_request request = {.kind = MR_REQUEST_TAKE_OVER, .from = node};
    return tool_ctl_end(command, &c, client, mr_move(client, NULL, &request),
                        json_pack("{s:s}", "taken_over", node), "the others take over what %s had\n", node);
}
