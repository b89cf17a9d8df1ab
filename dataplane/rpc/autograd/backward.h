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

#include "dataplane/rpc/autograd/context.h"
#include "dataplane/rpc/base/rpc.h"

/* The op RPC_BACKWARD; inside. */
void mr_backward_serve(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request);
/* Inside. */
void mr_backward_died(struct mr_rpc *agent, uint32_t rank);

/* ---- messages (backward_messages.c) ---- */

enum mr_backward_kind {
    MR_BACKWARD_REACH_RESULTS = 1,   /* of the receiver's answer to the sender's invocation */
    MR_BACKWARD_REACH_ARGUMENTS = 2, /* of the receiver's own invocation */
    MR_BACKWARD_RESULTS = 3,         /* gradients of what the receiver returned, */
    MR_BACKWARD_ARGUMENTS = 4,       /* of what it passed */
    MR_BACKWARD_DONE = 5             /* what engaged the sender is done; its status, and a text */
};

/* The first tensor, u8: this, and for RESULTS and ARGUMENTS a byte for each value, 1: a gradient of it
 * follows as a tensor. After DONE with an error follows the text, u8[n]. */
struct mr_backward_wire {
    uint64_t context, pass, invocation;
    uint32_t kind;
    uint16_t retain, status; /* REACH; DONE */
};
static_assert(sizeof(struct mr_backward_wire) == 32, "backward head size");

struct mr_backward_message {
    struct mr_backward_message *next; /* in an outbox */
    struct mr_work work;
    struct mr_agent_call call;
    struct mr_autograd *context; /* held */
    char function[MR_RPC_NAME_BYTES];
    uint32_t count; /* of values */
    struct mr_backward_wire *first;
    struct mr_tensor tensors[]; /* of values: NULL data where there is none; malloc()ed, the message's */
};

/* Messages of a pass that were counted and not sent yet. */
struct mr_pass_outbox {
    struct mr_backward_message *first;
};

/* A message about that call, to the worker at its other end. NULL: no memory. */
struct mr_backward_message *mr_backward_message_new(struct mr_autograd *context,
                                                    const struct mr_recorded_call *call,
                                                    enum mr_backward_kind kind, uint32_t count);
/* Of a message of one value: this text instead, if there is any, and memory for it. */
void mr_backward_message_text(struct mr_backward_message *message, const char *text);
/* Any thread: hands it in for sending; the outcome is settled. */
void mr_backward_post(struct mr_backward_message *message);
void mr_backward_post_all(struct mr_pass_outbox *outbox);

/* A received one. gradients[i].data NULL: none. False: malformed. */
struct mr_backward_in {
    struct mr_backward_wire head;
    uint32_t count;
    struct mr_tensor gradients[MR_RPC_ARGUMENTS_MAX];
    const char *text;
    uint32_t text_bytes;
};
bool mr_backward_read(const struct mr_message *message, struct mr_backward_in *in);

/* ---- the pass (backward.c); under the context's lock ---- */

/* A new one. MR_NO_MEMORY. */
enum mr_status mr_pass_begin(struct mr_autograd *context, uint64_t id, bool retain);
bool mr_pass_at_rest(const struct mr_pass *pass);
/* One more message, to be posted. */
void mr_pass_count(struct mr_autograd *context, struct mr_backward_message *message,
                   struct mr_pass_outbox *outbox);
/* One that was sent to `to` is done. */
void mr_pass_settle(struct mr_autograd *context, uint64_t id, uint32_t to, enum mr_status status,
                    const char *error);
/* If it came to rest here, notifies whoever engaged it. */
void mr_pass_rest(struct mr_autograd *context);
/* Reaches `node`; messages to others are put into the outbox. */
enum mr_status mr_pass_reach(struct mr_autograd *context, uint32_t node, struct mr_pass_outbox *outbox);

/* ---- gradients (backward.c); not under the lock ---- */

/* One contribution to a value; `sum` is taken, NULL: none. */
void mr_backward_give(struct mr_autograd *context, uint64_t pass, uint32_t value, float *sum);
/* Runs nodes as long as any are ready. */
void mr_backward_drain(struct mr_autograd *context, uint64_t pass);

#endif
