/* The public functions about workers. */
#include <stdio.h>
#include <string.h>
#include "dataplane/wire/base/plural.h"
#include "dataplane/rpc/base/rpc.h"

uint32_t mr_rpc_rank(const struct mr_rpc *agent)
{
    return agent->config.rank;
}

uint32_t mr_rpc_world_size(const struct mr_rpc *agent)
{
    return agent->config.world_size;
}

enum mr_status mr_worker_info(struct mr_rpc *agent, uint32_t rank, struct mr_rpc_worker *info)
{
    if (rank >= agent->config.world_size)
        return mr_rpc_error(MR_UNKNOWN_WORKER,
                            "mr_worker_info: there is no rank %u in this world of %u worker%s", rank,
                            agent->config.world_size, mr_plural(agent->config.world_size));
    if (!atomic_load(&agent->complete))
        return mr_rpc_error(MR_NOT_READY, "mr_worker_info: not all workers have joined yet");
    const struct mr_member *m = &agent->members[rank];

    if (!atomic_load(&m->present))
        return mr_rpc_error(MR_UNKNOWN_WORKER, "mr_worker_info: no worker has joined this world as rank %u",
                            rank);
    memcpy(info->name, m->name, sizeof(info->name));
    info->rank = rank;
    info->is_node = m->is_node;
    info->is_dead = atomic_load(&m->dead);
    return MR_OK;
}

enum mr_status mr_worker_by_name(struct mr_rpc *agent, const char *name, struct mr_rpc_worker *info)
{
    if (name == NULL)
        return mr_rpc_error(MR_INVALID_ARGUMENT, "mr_worker_by_name: name is NULL");
    if (!atomic_load(&agent->complete))
        return mr_rpc_error(MR_NOT_READY, "mr_worker_by_name: not all workers have joined yet");
    const struct mr_member *found = NULL;
    MR_MEMBER_EACH(m, agent) /* in an open world one that has left may have had the name before */
        if (atomic_load(&m->present) && strcmp(m->name, name) == 0 &&
            (found == NULL || atomic_load(&found->dead)))
            found = m;
    if (found != NULL)
        return mr_worker_info(agent, found->rank, info);
    return mr_rpc_error(MR_UNKNOWN_WORKER, "mr_worker_by_name: no worker of this world is called \"%s\"",
                        name);
}

/* ---- what is asked inside ---- */

#define PART_US 1000000u /* how long a worker that leaves alone waits until the others know */

/* What mr_rpc_shutdown(), mr_rpc_staying(), mr_agent_part() and errors of joining and leaving need from
 * inside. */
struct leave_work {
    struct mr_work work;
    _Atomic uint32_t done;
    char *missing;
    size_t missing_bytes;
    uint32_t *staying;
    bool joins;         /* ask who has not joined */
    bool parts;         /* say goodbye */
    bool any;           /* answer: somebody is known to have joined */
    bool other_version; /* answer: the rendezvous speaks another version, as `missing` says */
};

static bool speaks_otherwise(const struct mr_member *member, char *text, size_t bytes)
{
    for (uint32_t i = 0; i < MR_MEMBER_SESSIONS; i++)
        if (member->sessions[i] != NULL &&
            mr_client_session_version_text(member->sessions[i], "rendezvous", text, bytes))
            return true;
    return false;
}

static void find_missing(struct mr_rpc *agent, struct leave_work *leave)
{
    leave->any = mr_world_missing(agent, leave->missing, leave->missing_bytes);
    leave->other_version =
        !leave->any && speaks_otherwise(&agent->rendezvous, leave->missing, leave->missing_bytes);
}

static void leave_run(struct mr_rpc *agent, struct mr_work *work)
{
    struct leave_work *leave = MR_CONTAINER(work, struct leave_work, work);
    if (leave->joins)
        find_missing(agent, leave);
    else if (leave->parts)
        agent->leaving.parts = true;
    else if (leave->staying != NULL)
        *leave->staying = mr_leave_staying(agent);
    else if (leave->missing == NULL)
        mr_leave_begin(agent);
    else
        mr_leave_missing(agent, leave->missing, leave->missing_bytes);
    (void)mr_agent_done(&leave->done);
}

static void run_inside(struct mr_rpc *agent, struct leave_work *leave)
{
    leave->work.run = leave_run;
    mr_agent_submit(agent, &leave->work);
    (void)mr_agent_wait(agent, &leave->done, UINT64_MAX);
}

/* ---- joining ---- */

enum mr_status mr_workers_wait_joined(struct mr_rpc *agent, uint64_t deadline_us, char *error,
                                      size_t error_bytes)
{
    char missing[448];
    struct leave_work who = {.joins = true, .missing = missing, .missing_bytes = sizeof(missing)};
    if (mr_agent_wait(agent, &agent->joined, deadline_us)) {
        if (agent->join_status != MR_OK)
            snprintf(error, error_bytes, "worker \"%s\" (rank %u): %s", agent->name, agent->config.rank,
                     agent->join_error[0] == 0 ? mr_status_text(agent->join_status) : agent->join_error);
        return agent->join_status;
    }
    if (atomic_load(&agent->complete)) /* not all of the others have said that they know it */
        return MR_OK;
    run_inside(agent, &who);
    if (!who.any && !who.other_version && !agent->config.is_rendezvous) {
        snprintf(error, error_bytes, "worker \"%s\" (rank %u): nobody answers at the rendezvous", agent->name,
                 agent->config.rank);
        return MR_UNREACHABLE;
    }
    snprintf(error, error_bytes, "worker \"%s\" (rank %u): %s", agent->name, agent->config.rank, missing);
    return who.other_version ? MR_VERSION_MISMATCH : MR_DEADLINE_EXCEEDED;
}

/* ---- leaving ---- */

uint32_t mr_rpc_staying(struct mr_rpc *agent)
{
    uint32_t staying = 0;
    struct leave_work leave = {.staying = &staying};
    if (!atomic_load(&agent->left))
        run_inside(agent, &leave);
    return staying;
}

enum mr_status mr_rpc_shutdown(struct mr_rpc *agent, uint32_t timeout_ms)
{
    uint64_t deadline_us = mr_agent_deadline_us(agent, mr_agent_now(agent), timeout_ms);
    char missing[448];
    struct leave_work begin = {.missing = NULL}, say = {.missing = missing, .missing_bytes = sizeof(missing)};
    if (mr_agent_is_inherited(agent))
        return mr_agent_check_process(agent, "mr_rpc_shutdown");
    if (agent->config.is_node)
        return mr_rpc_error(MR_INVALID_ARGUMENT,
                            "mr_rpc_shutdown: a node is a worker until it is stopped (SIGTERM)");
    if (!atomic_load(&agent->complete))
        return mr_rpc_error(MR_NOT_READY, "mr_rpc_shutdown: not all workers have joined yet");
    if (atomic_load(&agent->leave_reported))
        return mr_rpc_error(MR_INVALID_ARGUMENT, "mr_rpc_shutdown: this worker has left already");
    run_inside(agent, &begin);
    if (!mr_agent_wait(agent, &agent->left_world, deadline_us)) {
        run_inside(agent, &say);
        return mr_rpc_error(MR_DEADLINE_EXCEEDED, "mr_rpc_shutdown: %s",
                            missing[0] == 0 ? "the rendezvous has not said yet that all may go" : missing);
    }
    atomic_store(&agent->leave_reported, true);
    if (agent->leave_status != MR_OK)
        return mr_rpc_error(
            agent->leave_status,
            "mr_rpc_shutdown: the rendezvous died, or took this worker for dead: left without the others");
    return MR_OK;
}

void mr_agent_part(struct mr_rpc *agent)
{
    struct leave_work part = {.parts = true};
    if (atomic_load(&agent->left) || !atomic_load(&agent->complete))
        return;
    run_inside(agent, &part);
    (void)mr_agent_wait(agent, &agent->leaving.parted, mr_agent_now(agent) + PART_US);
}
