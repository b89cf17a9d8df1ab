/* Backward through a context, over all workers.
 *
 * The worker that asks for it is the root of the pass. There are two phases, with a barrier between them:
 *   reach       walks from the losses to all that they depend on, on all workers, so that each node knows how
 *               many contributions it will get. What no loss depends on is not waited for (torch calls this
 *               SMART mode). If an earlier pass used a node, the pass ends here, before anything has changed.
 *   gradients   flow back; a node runs when it has all its contributions. The gradients of a call's results
 *               go to the callee in one message, and those of its arguments to the caller in another: the
 *               callee may also depend on what it computed for an earlier call, and kept.
 *
 * The end of a phase is detected with the algorithm of Dijkstra and Scholten ("Termination detection for
 * diffusing computations", 1980): the first message that a worker at rest gets engages the worker. This
 * message is done when the worker and everything it sent are at rest again; any other message is done as soon
 * as it has been handled. In either case it is answered at once (MR_NOT_READY: engaged, and DONE follows), so
 * that it does not hold up the session.
 *
 * A death, an error of a function, or the root's time-out ends the pass with the first error. What the pass
 * has added to gradients stays. Another pass may follow, through nodes that have not run or that the pass
 * retained; but not after a time-out, since other workers may not be at rest: then the context can only be
 * ended.
 */
#ifndef MR_RPC_BACKWARD_H
#define MR_RPC_BACKWARD_H

#include "dataplane/rpc/autograd/context.h"
#include "dataplane/rpc/base/rpc.h"

/* Inside: serves the op RPC_BACKWARD. */
void mr_backward_serve(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request);
/* Inside: passes that wait for that worker fail. */
void mr_backward_died(struct mr_rpc *agent, uint32_t rank);

/* ---- messages (backward_messages.c) ---- */

enum mr_backward_kind {
    MR_BACKWARD_REACH_RESULTS = 1,   /* reach what the receiver returned to the sender's invocation */
    MR_BACKWARD_REACH_ARGUMENTS = 2, /* reach what the receiver passed in its own invocation */
    MR_BACKWARD_RESULTS = 3,         /* gradients of what the receiver returned */
    MR_BACKWARD_ARGUMENTS = 4,       /* gradients of what it passed */
    MR_BACKWARD_DONE = 5             /* the message that engaged the sender is done: status and text */
};

/* The first tensor, u8, has this; in RESULTS and ARGUMENTS a byte for each value follows, which is 1 if a
 * tensor with its gradient follows. DONE with an error has its text, u8[n], as a second tensor. */
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
    struct mr_tensor tensors[]; /* gradients of values; data is malloc()ed and the message's, NULL: none */
};

/* Messages of a pass that have been counted, but not sent yet. */
struct mr_pass_outbox {
    struct mr_backward_message *first;
};

/* Makes a message about that call, to the worker at its other end. NULL: no memory. */
struct mr_backward_message *mr_backward_message_new(struct mr_autograd *context,
                                                    const struct mr_recorded_call *call,
                                                    enum mr_backward_kind kind, uint32_t count);
/* Puts this text in the place of the message's one value, if there is any text, and memory for it. */
void mr_backward_message_text(struct mr_backward_message *message, const char *text);
/* Any thread: hands the message in for sending, and its outcome to mr_pass_settle(). */
void mr_backward_post(struct mr_backward_message *message);
void mr_backward_post_all(struct mr_pass_outbox *outbox);

/* A received message. gradients[i].data NULL: value i has none. */
struct mr_backward_in {
    struct mr_backward_wire head;
    uint32_t count;
    struct mr_tensor gradients[MR_RPC_ARGUMENTS_MAX];
    const char *text;
    uint32_t text_bytes;
};
/* False: malformed. */
bool mr_backward_read(const struct mr_message *message, struct mr_backward_in *in);

/* ---- the pass (backward.c); under the context's lock ---- */

/* Begins a new pass. MR_NO_MEMORY. */
enum mr_status mr_pass_begin(struct mr_autograd *context, uint64_t id, bool retain);
bool mr_pass_at_rest(const struct mr_pass *pass);
/* Counts one more message, and adds it to those to be posted. */
void mr_pass_count(struct mr_autograd *context, struct mr_backward_message *message,
                   struct mr_pass_outbox *outbox);
/* A message that was sent to `to` is done. */
void mr_pass_settle(struct mr_autograd *context, uint64_t id, uint32_t to, enum mr_status status,
                    const char *error);
/* If the pass is at rest on this worker, notifies the worker that engaged it. */
void mr_pass_rest(struct mr_autograd *context);
/* Reaches `node`, and adds the messages to other workers to the outbox. */
enum mr_status mr_pass_reach(struct mr_autograd *context, uint32_t node, struct mr_pass_outbox *outbox);

/* ---- gradients (backward.c); not under the lock ---- */

/* Adds one contribution to a value, and takes `sum`; NULL: it is none. */
void mr_backward_give(struct mr_autograd *context, uint64_t pass, uint32_t value, void *sum);
/* Runs nodes as long as any are ready. */
void mr_backward_drain(struct mr_autograd *context, uint64_t pass);

#endif
