/* What an agent tells of itself. */
#include "dataplane/rpc/agent_internal.h"

const struct mr_agent_counters *mr_agent_counters(const struct mr_rpc *agent)
{
    return &agent->counters;
}

void mr_agent_count(struct mr_rpc *agent)
{
    struct mr_agent_counters *counters = &agent->counters;

    counters->functions_running = mr_executor_load(agent->executor);
    counters->members_joined = counters->members_dead = 0;
    for (uint32_t i = 0; i < agent->config.world_size; i++) {
        const struct mr_member *m = &agent->members[i];

        counters->members_joined += m->present;
        counters->members_dead += m->present && (atomic_load(&m->dead) || m->leave_phase == MR_LEAVE_GONE);
    }
}
