/* Backward through a context, over all workers.
 *
 * The worker that asks for it is the pass's root. Two phases, with a barrier between them:
 *   reach       from the losses to all they depend on, on all workers: each node learns how many contributions
 *               it will get. What no loss depends on is not waited for (torch calls this SMART mode). A node
 *               that an earlier pass went through ends the pass here, when nothing has been changed yet.
 *   gradients   flow back; a node that has all its contributions runs. A call's results go back as one message
 *               to the callee, its arguments as one to the caller: what the callee computed for an earlier
 *               call, and kept, may come into play as well.
 *
 * When a phase has ended is found as by Dijkstra and Scholten ("Termination detection for diffusing
 * computations", 1980): the first message that a worker at rest gets engages it; that one is done when the
 * worker and all it sent are at rest again, any other one as soon as it is taken. Answers come at once in any
 * case (MR_NOT_READY: engaged, DONE follows), so that nothing holds up the session.
 *
 * A death, an error of a function, or the root's time-out ends the pass with the first error; the context's
 * gradients are then incomplete, and it can only be ended.
 */
#ifndef MR_RPC_BACKWARD_H
#define MR_RPC_BACKWARD_H

#include "dataplane/rpc/base/work.h"
#include "dataplane/rpc/world/member.h"

struct mr_autograd;

/* What a context's pass is at on this worker. Under the context's lock. */
struct mr_pass {
    uint64_t id; /* (root's rank << MR_RPC_ID_SHIFT) | the root's counter, rising; 0: none */
    bool retain;
    bool is_root;
    bool engaged;      /* by `parent`, unless root */
    bool flows;        /* gradients came here: nothing is reached any more */
    bool broken;       /* one failed when gradients had begun to flow */
    uint32_t parent;   /* rank */
    uint32_t working;  /* threads at work for it */
    uint32_t deficit;  /* messages sent and not done, */
    uint32_t *awaited; /* [world_size] and to whom */
    enum mr_status status;
    char error[MR_RPC_ERROR_BYTES];
    _Atomic uint32_t done; /* the root waits for it */
};

/* The op RPC_BACKWARD; inside. */
void mr_backward_serve(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request);
/* Inside. */
void mr_backward_died(struct mr_rpc *agent, uint32_t rank);
/* Under the lock: the context is over, and so is its pass. */
void mr_pass_abort(struct mr_autograd *context);

#endif
