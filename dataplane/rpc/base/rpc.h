/* What an agent is made of. For the files of this folder that implement agent.h, and for nobody else. */
#ifndef MR_RPC_AGENT_INTERNAL_H
#define MR_RPC_AGENT_INTERNAL_H

#include <pthread.h>
#include "dataplane/rpc/agent.h"
#include "dataplane/rpc/call/executing.h"
#include "dataplane/rpc/base/executor.h"
#include "dataplane/rpc/call/future.h"
#include "dataplane/rpc/world/long_message.h"
#include "dataplane/rpc/base/pool.h"
#include "dataplane/rpc/rref/result.h"
#include "dataplane/rpc/rref/rref.h"
#include "dataplane/rpc/world/member.h"
#include "dataplane/rpc/world/world.h"
#include "dataplane/wire/base/list.h"

struct mr_served_op {
    mr_agent_serve serve;
    void *self;
};

struct mr_rpc {
    /* Set at creation. */
    struct mr_agent_config config;
    char name[MR_RPC_NAME_BYTES];
    struct mr_member *members; /* [world_size]; our own, too */
    struct mr_functions functions;
    struct mr_executor *executor;
    struct mr_pool futures, results, executing;
    struct mr_agent_references references;
    struct mr_rrefs *rrefs; /* whose hooks these are */
    struct mr_agent_autograd autograd;
    struct mr_served_op served[MR_OP_COUNT];

    /* Any thread. */
    _Atomic uint32_t holds;       /* mr_agent_destroy()'s, and one for each handle that is out */
    struct mr_work *_Atomic work; /* the newest first */
    pthread_mutex_t late;        /* once it is over: of being inside. Only tried, but by mr_agent_destroy() */
    _Atomic bool over;           /* destroyed, but for what is held */
    void (*freed)(void *driver); /* mr_agent_destroy()'s */
    _Atomic uint64_t activity;   /* calls begun and executions begun */
    _Atomic uint64_t numbers;    /* of calls */
    _Atomic uint32_t under_way;  /* calls of functions that have not ended */
    _Atomic uint32_t joined;     /* MR_DONE once joining has ended, with */
    enum mr_status join_status;
    _Atomic uint32_t gone; /* MR_DONE once leaving has ended */
    enum mr_status leave_status;
    pthread_mutex_t stepping; /* by optimizers of the library's, see dist_optimizer_owner.c */
    _Atomic bool gone_told;   /* mr_rpc_shutdown() has returned that */
    _Atomic bool complete;    /* all have joined: `members` may be read */
    _Atomic bool left;        /* no calls any more */
    _Atomic bool fenced;      /* the others take us for dead */
    _Atomic bool held;        /* not released yet */
    char join_error[MR_RPC_ERROR_BYTES];

    /* Inside. */
    struct mr_member rendezvous; /* how it is reached; not a member as such */
    struct mr_agent_call join;
    uint64_t join_next_us, join_wait_us, alive_next_us, turned_us;
    uint8_t *joined_ranks; /* [world_size] as last told */
    struct mr_leaving leaving;
    struct mr_timer_wheel deadlines; /* of calls */
    uint64_t deadlines_next_us;      /* no call ends before; perhaps none does then */
    struct mr_rpc_call *unanswered;  /* executed, and there was no memory for the answer */
    struct mr_job *jobs_first, *jobs_last;
    struct mr_longs longs;
    uint64_t hurry_us;  /* jobs were given: see then whether they go on; 0: not */
    uint32_t job_count; /* of this burst, not yet given to the executor */
    struct mr_agent_counters counters;
    bool join_under_way;
    bool retiring; /* no function begins any more */
    bool closing;
};

static inline uint64_t mr_agent_now(const struct mr_rpc *agent)
{
    return agent->config.driver.now_us(agent->config.driver.self);
}

/* Inside: for the executor, with the next mr_agent_give_jobs(). */
void mr_agent_add_job(struct mr_rpc *agent, struct mr_job *job);
void mr_agent_give_jobs(struct mr_rpc *agent);

/* Inside: a request of a living member, other than JOIN; one that came in parts, too. */
void mr_agent_dispatch(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request);

/* serving.c: a request for one of our functions; that call was executed; answers that found no memory. */
void mr_serving_request(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request);
void mr_serving_cancel(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request);
void mr_serving_retry(struct mr_rpc *agent);
void mr_serving_drop_all(struct mr_rpc *agent);
/* Inside: the answer is these values, of a call in `context` (0: none), for worker `to`, or says why they
 * cannot travel. */
enum mr_answered {
    MR_ANSWER_LATER, /* there is no memory for it now */
    MR_ANSWER_SAID,
    MR_ANSWER_HELD, /* it goes in parts: the values must stay until let_go(of) */
};
struct mr_answer_hold {
    void (*let_go)(void *of);
    void *of;
};
enum mr_answered mr_serving_reply(struct mr_rpc *agent, struct mr_call_ref ref, uint32_t to, uint64_t context,
                                  const struct mr_value *values, uint32_t count, struct mr_answer_hold hold);
/* serving_long.c: an answer in parts. The head's tensor is the first, and has no data yet. */
struct mr_answer_long {
    struct mr_call_ref ref;
    uint32_t to;
    const struct mr_rpc_head *head;
    const struct mr_value *values;
    uint32_t count;
    const uint64_t *words; /* of the references, passed out */
    struct mr_tensor *tensors;
    uint32_t tensor_count;
    struct mr_answer_hold hold;
};
enum mr_answered mr_serving_reply_long(struct mr_rpc *agent, const struct mr_answer_long *answer);
/* Of serving: the result stays here, the references' from now on; its caller's time is up, or no thread can
 * be had, which is said; what the executor gets. */
void mr_serving_keep(struct mr_rpc_call *call);
bool mr_serving_too_late(struct mr_rpc_call *call);
bool mr_serving_refused(struct mr_rpc_call *call);
struct mr_job mr_serving_job(struct mr_rpc_call *call, void (*run)(struct mr_job *job));
/* serving_local.c. Any thread: a local call shall run on the executor; it has run on this thread, and nobody
 * knows of its future. */
void mr_serving_run_local(struct mr_rpc_call *call);
void mr_serving_end_inline(struct mr_rpc_call *call);
/* If it has not begun it will not. */
void mr_serving_cancel_local(struct mr_rpc *agent, const struct mr_rpc_future *future);

#endif
