/* What an agent reports of itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/agent.h"
#include "dataplane/rpc/autograd/context.h"
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/rref/rref.h"

const struct mr_agent_counters *mr_agent_counters(const struct mr_rpc *agent)
{
    return &agent->counters;
}

static bool has_gone(const struct mr_member *m)
{
    return atomic_load(&m->dead) || m->leave_phase == MR_LEAVE_GONE;
}

/* Updates the counters; what executor and contexts said goes to the caller, too. */
static void status_count(struct mr_rpc *agent, struct mr_executor_use *use, struct mr_contexts_use *contexts)
{
    struct mr_agent_counters *counters = &agent->counters;
    mr_executor_use(agent->executor, use);
    counters->calls_under_way = atomic_load(&agent->in_flight);
    counters->functions_running = use->running + use->waiting;
    counters->threads = use->threads;
    counters->threads_waiting = use->blocked;
    mr_rrefs_count(agent->rrefs, &counters->values_owned, &counters->values_held);
    counters->long_bytes = atomic_load(&agent->longs.bytes);
    mr_contexts_use(agent->contexts, contexts);
    counters->contexts_begun = contexts->begun;
    counters->contexts_known = contexts->known;
    counters->members_joined = counters->members_dead = 0;
    MR_MEMBER_EACH(m, agent) {
        counters->members_joined += m->present;
        counters->members_dead += m->present && has_gone(m);
    }
}

void mr_agent_count(struct mr_rpc *agent)
{
    status_count(agent, &(struct mr_executor_use){0}, &(struct mr_contexts_use){0});
}

enum mr_agent_end mr_agent_end(const struct mr_rpc *agent, char *why, size_t why_bytes)
{
    bool kept = false, alive = false;
    if (agent->join_status != MR_OK) {
        snprintf(why, why_bytes, "%s",
                 agent->join_error[0] == 0 ? mr_status_text(agent->join_status) : agent->join_error);
        return MR_AGENT_REFUSED;
    }
    if (!atomic_load(&agent->complete))
        return MR_AGENT_GOES_ON;
    if (atomic_load(&agent->fenced))
        return MR_AGENT_FENCED;
    for (uint32_t i = 0; i < agent->config.world_size && !alive; i++) {
        bool keeps = mr_world_is_kept_by(agent, &agent->members[i]);
        kept |= keeps;
        alive = keeps && !has_gone(&agent->members[i]);
    }
    return kept && !alive ? MR_AGENT_OVER : MR_AGENT_GOES_ON;
}

/* ---- RPC_STATUS ---- */

static void write_words(struct mr_rpc *agent, uint64_t *words)
{
    const struct mr_agent_config *config = &agent->config;
    const struct mr_agent_counters *counters = &agent->counters;
    struct mr_contexts_use contexts;
    struct mr_executor_use use;
    status_count(agent, &use, &contexts);
    memset(words, 0, MR_WORLD_WORDS * sizeof(*words));
    words[MR_WORLD_FLAGS] = (config->rank != MR_RPC_NO_RANK ? 1u : 0u) | (config->is_rendezvous ? 2u : 0u) |
                            (atomic_load(&agent->complete) ? 4u : 0u);
    words[MR_WORLD_RANK] = config->rank;
    words[MR_WORLD_SIZE] = config->world_size;
    words[MR_WORLD_JOINED] = counters->members_joined;
    words[MR_WORLD_THREADS_MAX] = config->executor_threads;
    words[MR_WORLD_THREADS] = use.threads;
    words[MR_WORLD_RUNNING] = use.running;
    words[MR_WORLD_WAITING] = use.waiting;
    words[MR_WORLD_BLOCKED] = use.blocked;
    words[MR_WORLD_CALLS_SERVED] = counters->calls_served;
    words[MR_WORLD_CALLS_FAILED] = counters->calls_failed;
    words[MR_WORLD_CALLS_REFUSED] = counters->calls_refused;
    words[MR_WORLD_CALLS_MADE] = counters->calls_made;
    words[MR_WORLD_CALLS_MADE_FAILED] = counters->calls_made_failed;
    words[MR_WORLD_CALLS_UNDER_WAY] = counters->calls_under_way;
    words[MR_WORLD_VALUES_OWNED] = counters->values_owned;
    words[MR_WORLD_VALUES_HELD] = counters->values_held;
    words[MR_WORLD_DEAD_AFTER_MS] = config->dead_after_ms;
    words[MR_WORLD_CONTEXTS_BEGUN] = contexts.begun;
    words[MR_WORLD_CONTEXTS_KNOWN] = contexts.known;
    words[MR_WORLD_CONTEXT_OLDEST_S] = contexts.oldest_us / 1000000u;
}

static void write_members(const struct mr_rpc *agent, struct mr_member_wire *lines)
{
    MR_MEMBER_EACH(m, agent) {
        struct mr_member_wire line = {.rank = m->rank};
        if (m->present) {
            mr_world_write_member(m, &line);
            memset(line.uuid, 0, sizeof(line.uuid)); /* by it others might end a member's sessions */
            line.flags |= MR_MEMBER_JOINED;
            line.flags |= atomic_load(&m->dead) ? MR_MEMBER_DEAD : 0;
            line.flags |= m->leave_phase == MR_LEAVE_GONE ? MR_MEMBER_LEFT : 0;
        }
        memcpy(&lines[m->rank], &line, sizeof(line));
    }
}

/* A line for each function: the first round measures them, the second writes them. */
struct lines {
    char *text; /* NULL: not written */
    size_t bytes, bytes_max;
};

static void add_line(void *arg, const struct mr_function *f)
{
    struct lines *lines = arg;
    size_t bytes =
        strlen(f->name) + strlen(f->arguments_text) + strlen(f->results_text) + sizeof "() -> \n" - 1;
    if (lines->text != NULL && lines->bytes + bytes > lines->bytes_max)
        return; /* it was registered in the meantime */
    if (lines->text != NULL)
        (void)snprintf(lines->text + lines->bytes, lines->bytes_max - lines->bytes + 1, "%s(%s) -> %s\n",
                       f->name, f->arguments_text, f->results_text);
    lines->bytes += bytes;
}

static bool write_lines(struct mr_rpc *agent, struct lines *lines)
{
    *lines = (struct lines){.text = NULL};
    mr_functions_each(&agent->functions, add_line, lines);
    lines->bytes_max = lines->bytes;
    lines->bytes = 0;
    lines->text = malloc(lines->bytes_max + 1);
    if (lines->text != NULL)
        mr_functions_each(&agent->functions, add_line, lines);
    return lines->text != NULL;
}

void mr_agent_serve_status(struct mr_rpc *agent, const struct mr_request *request)
{
    struct mr_endpoint *ep = agent->config.endpoint;
    struct lines lines;
    if (!write_lines(agent, &lines)) {
        mr_reply_status(ep, request->ref, MR_OUT_OF_MEMORY);
        return;
    }
    struct mr_tensor tensors[3] = {
        mr_body_tensor(MR_BODY_WORLD, NULL),
        mr_tensor_2d(MR_U8, agent->config.world_size, sizeof(struct mr_member_wire), NULL),
        mr_tensor_1d(MR_U8, (uint32_t)lines.bytes, lines.text)};

    if (!mr_reply_begin(ep, request->ref, MR_OK, tensors, 3)) {
        mr_reply_busy(ep, request->ref);
    } else {
        write_words(agent, tensors[0].data);
        write_members(agent, tensors[1].data);
        mr_reply_end(ep, request->ref);
    }
    free(lines.text);
}
