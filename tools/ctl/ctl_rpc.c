/* millrace ctl rpc. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "millrace_observe.h"
#include "tools/ctl/ctl.h"
#include "dataplane/wire/base/cli.h"

/* Gathered first: the world's own lines come before its members'. */
struct gathered {
    struct mr_world world;
    json_t *members, *functions;
};

static const char *state_name(const struct mr_world_member *m)
{
    if (!m->has_joined)
        return "missing";
    return m->has_left ? "left" : m->is_dead ? "dead" : "alive";
}

static void add_member(void *arg, const struct mr_world_member *m)
{
    json_array_append_new(((struct gathered *)arg)->members,
                          json_pack("{s:I, s:s, s:s, s:b, s:b, s:s}", "rank", (json_int_t)m->rank, "name",
                                    m->name, "address", m->address, "node", m->is_node, "rendezvous",
                                    m->is_rendezvous, "state", state_name(m)));
}

static void add_function(void *arg, const char *line)
{
    json_array_append_new(((struct gathered *)arg)->functions, json_string(line));
}

static void add_number(json_t *all, const char *name, uint64_t number)
{
    if (all != NULL)
        (void)json_object_set_new(all, name, json_integer((json_int_t)number));
}

static json_t *world_json(struct gathered *g)
{
    const struct mr_world *w = &g->world;
    json_t *all = json_pack(
        "{s:b, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:O, "
        "s:O}",
        "worker", w->is_worker, "rendezvous", w->is_rendezvous, "complete", w->is_complete, "world_size",
        (json_int_t)w->world_size, "joined", (json_int_t)w->joined, "threads_max", (json_int_t)w->threads_max,
        "threads", (json_int_t)w->threads, "functions_running", (json_int_t)w->functions_running,
        "functions_blocked", (json_int_t)w->functions_blocked, "functions_waiting",
        (json_int_t)w->functions_waiting, "calls_served", (json_int_t)w->calls_served, "calls_failed",
        (json_int_t)w->calls_failed, "calls_refused", (json_int_t)w->calls_refused, "calls_made",
        (json_int_t)w->calls_made, "calls_made_failed", (json_int_t)w->calls_made_failed, "calls_under_way",
        (json_int_t)w->calls_under_way, "values_owned", (json_int_t)w->values_owned, "values_held",
        (json_int_t)w->values_held, "members", g->members, "functions", g->functions);
    if (all != NULL && w->is_worker)
        (void)json_object_set_new(all, "rank", json_integer((json_int_t)w->rank));
    if (all != NULL)
        (void)json_object_set_new(all, "dead_after_ms", json_integer((json_int_t)w->dead_after_ms));
    add_number(all, "contexts_begun", w->contexts_begun);
    add_number(all, "contexts_known", w->contexts_known);
    add_number(all, "context_oldest_s", w->context_oldest_s);
    return all;
}

static const char *member_text(const json_t *member, const char *key)
{
    return json_string_value(json_object_get(member, key));
}

static void print_members(const json_t *members)
{
    size_t i;
    const json_t *m;
    (void)printf("\n%4s  %-24s %-24s %-7s %s\n", "rank", "name", "address", "state", "");
    json_array_foreach(members, i, m)
    {
        bool is_rendezvous = json_is_true(json_object_get(m, "rendezvous"));
        const char *address = member_text(m, "address");
        (void)printf("%4" PRId64 "  %-24s %-24s %-7s %s%s\n",
                     (int64_t)json_integer_value(json_object_get(m, "rank")), member_text(m, "name"),
                     address[0] != '\0' ? address
                     : is_rendezvous    ? "(this node)"
                                        : "",
                     member_text(m, "state"), json_is_true(json_object_get(m, "node")) ? "node" : "",
                     is_rendezvous ? ", rendezvous" : "");
    }
}

static void print_world(const struct gathered *g)
{
    const struct mr_world *w = &g->world;
    size_t i;
    const json_t *line;
    (void)printf("%" PRIu32 " of %" PRIu32 " workers have joined%s\n", w->joined, w->world_size,
                 w->is_worker ? "" : "; this node is none of them");
    (void)printf("threads    %" PRIu32 " of %" PRIu32 " run functions, %" PRIu32
                 " of them wait for other workers; %" PRIu32 " functions wait for a thread\n",
                 w->functions_running, w->threads > w->threads_max ? w->threads : w->threads_max,
                 w->functions_blocked, w->functions_waiting);
    (void)printf("served     %" PRIu64 " calls, %" PRIu64 " failed, %" PRIu64 " of these not run\n",
                 w->calls_served, w->calls_failed, w->calls_refused);
    (void)printf("made       %" PRIu64 " calls, %" PRIu64 " failed, %" PRIu64 " in flight\n", w->calls_made,
                 w->calls_made_failed, w->calls_under_way);
    (void)printf("references %" PRIu64 " values here are held, %" PRIu64 " of others are held here\n",
                 w->values_owned, w->values_held);
    (void)printf("contexts   %" PRIu64 " of autograd are open here", w->contexts_known);
    if (w->contexts_begun > 0)
        (void)printf("; the node has begun %" PRIu64 " of them, the oldest %" PRIu64 " s ago",
                     w->contexts_begun, w->context_oldest_s);
    (void)printf("\n");
    print_members(g->members);
    (void)printf("\nfunctions\n");
    json_array_foreach(g->functions, i, line)(void) printf("  %s\n", json_string_value(line));
}

int tool_ctl_rpc(const struct tool_query *q)
{
    struct gathered g = {.members = json_array(), .functions = json_array()};
    const struct mr_world_visitor visitor = {.member = add_member, .function = add_function, .arg = &g};
    enum mr_status status = mr_world(q->client, NULL, &g.world, &visitor);
    int exit_code = 0;
    if (status != MR_OK)
        exit_code = tool_call_failed(q->command, status);
    else if (q->json)
        exit_code = tool_print_json(q->command, world_json(&g));
    else
        print_world(&g);
    json_decref(g.members);
    json_decref(g.functions);
    return exit_code;
}
