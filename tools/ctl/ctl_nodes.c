/* millrace ctl nodes. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "dataplane/wire/base/cli.h"
#include "dataplane/wire/base/plural.h"
#include "dataplane/wire/format/cluster.h"
#include "millrace_admin.h"
#include "millrace_observe.h"
#include "tools/cluster_tolerance.h"
#include "tools/core_rates.h"
#include "tools/ctl/ctl.h"
#include "tools/ctl/save_text.h"

#define ANSWER_MS 1000u /* that a node has to say whether it serves */

/* Gathered first: the cluster's own line comes before its nodes'. */
static void add_node(void *arg, const struct mr_cluster_member *node)
{
    json_array_append_new(arg,
                          json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I}", "name", node->name,
                                    "state", node->is_present ? "there" : "away", "why", "", "role",
                                    node->is_spare ? "spare" : "member", "address", node->address, "version",
                                    node->version, "partitions", (json_int_t)node->partitions, "backups",
                                    (json_int_t)node->backups, "uncopied", (json_int_t)node->uncopied,
                                    "cores", (json_int_t)node->core_count));
}

static json_t *find_node(const json_t *nodes, const char *name)
{
    size_t i;
    json_t *node;
    json_array_foreach(nodes, i, node) if (strcmp(json_string_value(json_object_get(node, "name")), name) ==
                                           0) return node;
    return NULL;
}

/* Nodes that have a session and serve nothing: ZooKeeper does not know of them, so each is asked. */
static void add_failed(struct mr_client *client, json_t *nodes)
{
    static struct mr_core_state states[MR_CLIENT_CORES_MAX];
    const struct mr_options options = {.deadline_ms = ANSWER_MS};
    (void)mr_heartbeat(client, &options, states); /* of cores that do not answer the state is 0 */
    for (uint32_t core = 0; core < mr_client_core_count(client); core++) {
        struct mr_core_place place;
        json_t *node = NULL;
        if (states[core].why[0] != '\0' && mr_client_core_place(client, core, &place))
            node = find_node(nodes, place.node);
        if (node == NULL)
            continue;
        (void)json_object_set_new(node, "state", json_string(tool_node_state_name(states[core].state)));
        (void)json_object_set_new(node, "why", json_string(states[core].why));
    }
}

/* How far the backups of what each node owns are behind: the node alone knows. One that does not answer in
 * time has none of these. */
static void add_lags(struct mr_client *client, json_t *nodes)
{
    const struct mr_options options = {.deadline_ms = ANSWER_MS};
    for (uint32_t core = 0; core < mr_client_core_count(client); core++) {
        struct mr_core_place place;
        struct tool_core_sample sample = {.time_us = 0};
        json_t *node = NULL;
        if (mr_client_core_place(client, core, &place) && place.core == 0)
            node = find_node(nodes, place.node);
        if (node == NULL || strcmp(json_string_value(json_object_get(node, "state")), "away") == 0 ||
            mr_stats(client, &options, core, tool_core_sample_counter, &sample) != MR_OK)
            continue;
        (void)json_object_set_new(node, "lag_bytes", json_integer((json_int_t)sample.copies_lag_bytes));
        (void)json_object_set_new(node, "lag_s", json_real((double)sample.copies_lag_us / 1e6));
    }
}

/* What moves now, in the map's order. */
static void add_moving(void *arg, const struct mr_moving *m)
{
    json_array_append_new(arg, json_pack("{s:I, s:s, s:s, s:I}", "id", (json_int_t)m->id, "from", m->from,
                                         "to", m->to, "partitions", (json_int_t)m->count));
}

static const char *text_of(const json_t *node, const char *key)
{
    return json_string_value(json_object_get(node, key));
}

/* The line about one more node that dies. */
static bool nodes_tolerate(const struct mr_cluster_state *s, const json_t *nodes,
                           char text[TOOL_TOLERANCE_BYTES])
{
    const json_t *about = s->tolerance_node == UINT16_MAX ? NULL : json_array_get(nodes, s->tolerance_node);
    return tool_tolerance_text(s, about == NULL ? "" : text_of(about, "name"), text);
}

static json_t *cluster_json(const struct mr_cluster_state *s, json_t *nodes, json_t *moves)
{
    char tolerance[TOOL_TOLERANCE_BYTES];
    json_t *self = s->self == UINT32_MAX ? NULL : json_array_get(nodes, s->self);
    const bool tolerates = nodes_tolerate(s, nodes, tolerance);
    return json_pack("{s:b, s:s, s:b, s:b, s:b, s:I, s:I, s:O?, s:I, s:I, s:I, s:O, s:O}", "tolerates_one",
                     tolerates, "tolerance", tolerance, "copies", s->has_copies, "answers_wait",
                     s->answers_wait, "member", s->is_member, "epoch", (json_int_t)s->epoch, "outside",
                     (json_int_t)s->outside, "asked", self == NULL ? NULL : json_object_get(self, "name"),
                     "lease_ms", (json_int_t)(s->lease_us / 1000), "lease_left_ms",
                     (json_int_t)(s->lease_left_us / 1000), "without_owner", (json_int_t)s->without_owner,
                     "nodes", nodes, "moves", moves);
}

/* Nodes that the leader does not admit. */
static void print_outside(const struct mr_cluster_state *s)
{
    if (s->outside == 0)
        return;
    (void)printf("%" PRIu32 " more node%s registered and not in the map: %s\n", s->outside,
                 s->outside == 1 ? " is" : "s are",
                 s->node_count == MR_CLUSTER_NODES_MAX
                     ? "it has all that it can have; take out those that have left (millrace ctl forget)"
                     : "unless they have just come, the leader's log says why");
}

/* A node whose partitions nobody serves now. */
static void print_absent(const json_t *node)
{
    const json_int_t partitions = json_integer_value(json_object_get(node, "partitions"));
    if (strcmp(text_of(node, "state"), "away") == 0 && partitions > 0)
        (void)printf(
            "nobody serves the %" JSON_INTEGER_FORMAT
            " partition%s of %s: start it; else the others take them over after cluster.take_over_s, "
            "or by millrace ctl take-over %s (the leader's log says why if they do not)\n",
            partitions, mr_plural((uint64_t)partitions), text_of(node, "name"), text_of(node, "name"));
}

static void print_node(const struct mr_cluster_state *s, const json_t *node)
{
    char copies[80] = "", behind[32] = "-";
    const json_t *lag = json_object_get(node, "lag_bytes");
    if (lag != NULL)
        (void)snprintf(behind, sizeof(behind), "%.1f MiB %.1f s", tool_mib((uint64_t)json_integer_value(lag)),
                       json_real_value(json_object_get(node, "lag_s")));
    if (s->has_copies)
        (void)snprintf(copies, sizeof(copies),
                       "%7" JSON_INTEGER_FORMAT "  %8" JSON_INTEGER_FORMAT "  %-14s  ",
                       json_integer_value(json_object_get(node, "backups")),
                       json_integer_value(json_object_get(node, "uncopied")), behind);
    (void)printf("%-20s  %-6s  %-6s  %10" JSON_INTEGER_FORMAT "  %s%5" JSON_INTEGER_FORMAT "  %-15s  %s\n",
                 text_of(node, "name"), text_of(node, "state"), text_of(node, "role"),
                 json_integer_value(json_object_get(node, "partitions")), copies,
                 json_integer_value(json_object_get(node, "cores")), text_of(node, "version"),
                 text_of(node, "address"));
}

static void print_moves(const json_t *moves)
{
    size_t i;
    json_t *m;
    json_array_foreach(moves, i, m)(void) printf(
        "move %" JSON_INTEGER_FORMAT ": %" JSON_INTEGER_FORMAT
        " partition%s of %s to %s (millrace ctl moves says how far)\n",
        json_integer_value(json_object_get(m, "id")), json_integer_value(json_object_get(m, "partitions")),
        mr_plural((uint64_t)json_integer_value(json_object_get(m, "partitions"))), text_of(m, "from"),
        text_of(m, "to"));
}

static void print_nodes(const struct mr_cluster_state *s, const json_t *nodes, const json_t *moves)
{
    size_t i;
    json_t *node;
    char tolerance[TOOL_TOLERANCE_BYTES];
    if (s->epoch == 0) {
        (void)printf("the node waits for its cluster's map: its log says why\n");
        return;
    }
    (void)printf("map epoch %" PRIu64 ", %" PRIu32 " node%s", s->epoch, s->node_count,
                 mr_plural(s->node_count));
    if (s->has_copies)
        (void)printf(", copies %s", s->answers_wait ? "sync" : "async");
    if (s->without_owner > 0)
        (void)printf(", %" PRIu32 " partitions not given out", s->without_owner);
    (void)printf("\n%-20s  %-6s  %-6s  %10s  %s%5s  %-15s  %s\n", "node", "state", "role", "partitions",
                 s->has_copies ? "backups  uncopied  behind          " : "", "cores", "version", "address");
    json_array_foreach(nodes, i, node)
    {
        print_node(s, node);
    }
    json_array_foreach(nodes, i, node) if (text_of(node, "why")[0] != '\0')(void)
        printf("%s serves nothing: %s\n", text_of(node, "name"), text_of(node, "why"));
    json_array_foreach(nodes, i, node)
    {
        print_absent(node);
    }
    print_moves(moves);
    print_outside(s);
    (void)nodes_tolerate(s, nodes, tolerance);
    if (tolerance[0] != '\0')
        (void)printf("%s\n", tolerance);
    if (s->self == UINT32_MAX) {
        (void)printf("the node that was asked is not in the map\n");
        return;
    }
    node = json_array_get(nodes, s->self);
    (void)printf("%s was asked: %s, lease %.1f of %.1f s\n", text_of(node, "name"),
                 text_of(node, "why")[0] != '\0' ? "it serves nothing"
                 : s->lease_left_us > 0          ? "it may serve"
                                                 : "it may not serve now",
                 (double)s->lease_left_us / 1e6, (double)s->lease_us / 1e6);
}

int tool_ctl_nodes(const struct tool_query *q)
{
    struct mr_cluster_state state;
    struct mr_moves_state moving = {.epoch = 0};
    json_t *nodes = json_array(), *moves = json_array();
    int exit_code = 0;
    const enum mr_status status = mr_cluster(q->client, NULL, &state, add_node, nodes);
    if (status == MR_OK && state.is_member) {
        const struct mr_options options = {.deadline_ms = ANSWER_MS};
        add_failed(q->client, nodes);
        if (state.has_copies)
            add_lags(q->client, nodes);
        (void)mr_moves(q->client, &options, &moving, add_moving, moves); /* a node may wait for its map */
    }
    if (status != MR_OK)
        exit_code = tool_call_failed(q->command, status);
    else if (q->json)
        exit_code = tool_print_json(q->command, cluster_json(&state, nodes, moves));
    else if (!state.is_member)
        (void)printf("the server is in no cluster\n");
    else
        print_nodes(&state, nodes, moves);
    json_decref(nodes);
    json_decref(moves);
    return exit_code;
}
