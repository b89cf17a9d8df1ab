/* What an agent is made of: the state of all its parts. For the files of dataplane/rpc/, and for nobody
 * else. */
#ifndef MR_RPC_RPC_H
#define MR_RPC_RPC_H

#include <pthread.h>
#include "dataplane/rpc/base/driver.h"
#include "dataplane/rpc/base/executor.h"
#include "dataplane/rpc/base/functions.h"
#include "dataplane/rpc/base/pool.h"
#include "dataplane/rpc/base/values.h"
#include "dataplane/rpc/base/work.h"
#include "dataplane/rpc/world/long_message.h"
#include "dataplane/rpc/world/member.h"
#include "dataplane/rpc/world/world.h"
#include "dataplane/wire/base/list.h"
#include "dataplane/wire/base/timer_wheel.h"

#define MR_RPC_RENDEZVOUS_BYTES 256u /* longer texts are cut in error lines */

struct mr_rrefs;
struct mr_contexts;
struct mr_fetch;
struct mr_rpc_call;

/* Serves an op: inside, a request of a living member; one that came in parts, too. The rules of mr_on_request
 * hold. */
typedef void (*mr_agent_serve)(struct mr_rpc *agent, struct mr_member *from,
                               const struct mr_request *request);
/* Hears of a member's death: inside, once for each. */
typedef void (*mr_agent_died)(struct mr_rpc *agent, uint32_t rank);

struct mr_rpc {
    /* Set at creation. */
    struct mr_agent_config config;
    char name[MR_RPC_NAME_BYTES];
    char rendezvous_text[MR_RPC_RENDEZVOUS_BYTES];
    const mr_agent_serve *served; /* [MR_OP_COUNT] */
    const mr_agent_died *died;    /* up to NULL */
    struct mr_member *members;    /* [world_size]; our own, too */
    struct mr_functions functions;
    struct mr_executor *executor;
    struct mr_pool futures, results, executing;
    struct mr_rrefs *rrefs;      /* NULL: this is no worker, see config.name */
    struct mr_value_hooks hooks; /* of these, for values that travel */
    struct mr_contexts *contexts;
    struct mr_named_parameters *parameters; /* the config's, or our own */
    pthread_mutex_t *stepping;              /* their lock: held by an optimizer's step */

    /* Any thread. */
    _Atomic uint32_t holds;       /* mr_agent_destroy()'s, and one for each handle that is out */
    struct mr_work *_Atomic work; /* the newest first */
    pthread_mutex_t late; /* taken to be inside once it is over; only mr_agent_destroy() waits for it */
    _Atomic bool over;    /* mr_agent_destroy() was called */
    void (*free)(struct mr_rpc *agent); /* the last put's */
    void (*freed)(void *driver);        /* mr_agent_destroy()'s */
    _Atomic uint64_t activity;          /* calls begun and executions begun */
    _Atomic uint64_t numbers;           /* of calls */
    _Atomic uint32_t in_flight;         /* calls of functions that have not ended */
    _Atomic uint32_t joined;            /* MR_DONE once joining has ended, with */
    enum mr_status join_status;
    _Atomic uint32_t left_world; /* MR_DONE once leaving has ended, with */
    enum mr_status leave_status;
    _Atomic bool leave_reported; /* mr_rpc_shutdown() has returned that */
    _Atomic bool complete;       /* all have joined: `members` may be read */
    _Atomic bool left;           /* no call begins any more */
    _Atomic bool fenced;         /* this worker counts as dead for the others, or they have another world */
    _Atomic bool held;           /* not released yet */
    char join_error[MR_RPC_ERROR_BYTES];
    char refusal[MR_RPC_ERROR_BYTES]; /* inside, at the rendezvous: why this world cannot come together */
    uint64_t refusal_us;              /* since then */

    /* Inside. */
    struct mr_member rendezvous; /* where it is; not a member as such */
    struct mr_agent_call join;
    uint64_t join_next_us, join_wait_us, alive_next_us;
    uint32_t join_at;        /* of config.rendezvous: where `rendezvous` is looked for now */
    uint32_t join_elsewhere; /* so many in a row have answered that it is not there */
    uint8_t *joined_ranks;   /* [world_size] as last reported */
    uint32_t arriving;       /* at the rendezvous of an open world: who is being announced; or NO_RANK */
    struct mr_leaving leaving;
    struct mr_timer_wheel deadlines; /* of calls */
    uint64_t deadlines_next_us;      /* no call ends before; perhaps none does then */
    /* Answers that are sent again later: there was no memory for them, or the value was being changed. */
    struct mr_rpc_call *unanswered;
    struct mr_fetch *unanswered_fetches;
    struct mr_job *jobs_first, *jobs_last;
    struct mr_longs longs;
    uint64_t nudge_us;  /* when to see whether the jobs that were given have begun; 0: none were given */
    uint32_t job_count; /* of this burst, not given to the executor yet */
    struct mr_agent_counters counters;
    bool join_in_flight;
    bool refused_version; /* at the rendezvous: somebody of another version has asked to join */
    bool has_programs;    /* once complete: other members that are no nodes */
    bool retiring;        /* no function begins any more */
    bool closing;
};

/* Goes through all members, this worker among them, by rank. */
// NOLINTBEGIN(bugprone-macro-parentheses): a name to declare cannot stand in any
#define MR_MEMBER_EACH(m, agent)                                                                             \
    for (struct mr_member *m = (agent)->members; m != (agent)->members + (agent)->config.world_size; m++)
// NOLINTEND(bugprone-macro-parentheses)

static inline uint64_t mr_agent_now(const struct mr_rpc *agent)
{
    return agent->config.driver.now_us(agent->config.driver.self);
}

#endif
