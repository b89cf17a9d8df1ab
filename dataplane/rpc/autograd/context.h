/* The autograd contexts that one worker knows, and what each has recorded on this worker.
 *
 * The worker that begins a context makes its id (see agent.h), and the id travels in the heads of calls: a
 * worker that a call in the context reaches knows the context from then on. A worker that called others in a
 * context notifies them of its end (RPC_CONTEXT_END), so the end travels the same ways as the calls. If a
 * worker dies, which may have stood between, the others ask the creators to notify them. A context whose end
 * was reported does not come back, whatever arrives late: see struct mr_context_creator. A context ends when
 * its creator dies.
 *
 * Threads and locks: executor threads, users' threads and the thread inside all call these functions.
 * `contexts->lock` guards the table; each context's `lock` guards what it has recorded, its pass and its
 * gradients. Neither is held while a user's function runs, during a wait, or during sums over tensors
 * (mr_autograd_gradients(), which is called when no pass runs, copies under the lock). A context's lock may
 * be taken while contexts->lock is held, not the other way round. A context exists while it is held, even
 * after its end: whoever has a pointer holds it, and the table holds it until its end.
 */
#ifndef MR_RPC_CONTEXT_H
#define MR_RPC_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>
#include "dataplane/rpc/autograd/tape.h"
#include "dataplane/rpc/base/executor.h"
#include "dataplane/rpc/base/functions.h"
#include "dataplane/rpc/base/id_map.h"
#include "dataplane/rpc/base/work.h"
#include "dataplane/rpc/world/member.h"
#include "dataplane/wire/base/list.h"

/* The kinds of nodes on a tape, and what `of` points to. */
enum mr_recorded_kind {
    MR_RECORDED_LEAF, /* NULL */
    MR_RECORDED_RUN,  /* struct mr_recorded_run: a differentiable function */
    /* struct mr_recorded_call, of ours: */
    MR_RECORDED_SEND, /* its arguments left; entered by their gradients */
    MR_RECORDED_CALL, /* its results came */
    /* struct mr_recorded_call, of another worker's: */
    MR_RECORDED_ARGUMENTS, /* they came */
    MR_RECORDED_RETURN     /* its results left; entered by their gradients */
};

struct mr_recorded_run {
    struct mr_function *function;
    uint32_t caller; /* of the forward run */
    void *saved;
    void (*saved_destroy)(void *saved);
};

/* Not inside: frees the run, and what the user saved. NULL is allowed. */
void mr_recorded_run_free(struct mr_recorded_run *run);

/* A call between workers that was recorded: one of ours, or one of another worker's that a function of ours
 * executed. */
struct mr_recorded_call {
    struct mr_id_node id; /* of ours: the invocation; of others': (peer << MR_RPC_ID_SHIFT) | invocation */
    uint32_t peer;        /* the rank at the other end */
    uint64_t invocation;  /* the caller's number */
    uint32_t arguments, results; /* nodes, or MR_TAPE_NONE */
    char function[MR_RPC_NAME_BYTES];
};

/* Returns whether a number from another worker is one: its upper bits must be free for a rank. */
static inline bool mr_invocation_is_one(uint64_t invocation)
{
    return invocation >> MR_RPC_ID_SHIFT == 0;
}

struct mr_context_end; /* context.c: notifies one worker */

/* A sum that somebody may still read, although a backward that a program began too early has replaced it. It
 * stays until the context's end. */
struct mr_lent_sum {
    struct mr_lent_sum *next;
    void *sum;
};

/* The state of a context's pass on this worker. Under the context's lock. */
struct mr_pass {
    uint64_t id; /* (root's rank << MR_RPC_ID_SHIFT) | the root's counter, rising; 0: none */
    bool retain;
    bool is_root;
    bool engaged;      /* by `parent`, unless root */
    bool flows;        /* gradients have arrived: nothing more can be reached */
    bool broken;       /* a pass timed out: other workers may not be at rest */
    uint32_t parent;   /* rank */
    uint32_t working;  /* threads that work for it */
    uint32_t deficit;  /* messages that were sent and are not done */
    uint32_t *awaited; /* [world_size] these by receiver */
    enum mr_status status;
    char error[MR_RPC_ERROR_BYTES];
    _Atomic uint32_t done; /* the root waits for it */
};

/* The sum of a parameter's gradients in one context, on its owner. */
struct mr_parameter_gradient {
    struct mr_id_node id;      /* its reference's */
    struct mr_rref *parameter; /* held */
    struct mr_tensor shape;
    void *sum;                          /* NULL while it is being added to */
    bool is_lent;                       /* somebody may read the sum: see struct mr_lent_sum */
    struct mr_parameter_gradient *next; /* in the order of their first gradients */
};

/* A program that does not end its contexts gets an error instead of growing for ever. */
#define MR_CONTEXTS_BEGUN_MAX 4096u  /* begun by one worker and not ended */
#define MR_CONTEXTS_MAX       65536u /* known to one worker, whoever has begun them */

struct mr_autograd {
    struct mr_id_node id; /* in contexts->map, while it is not over */
    struct mr_contexts *contexts;
    struct mr_link own; /* in contexts->own, if it was begun here */
    uint64_t made_us;
    _Atomic uint32_t holds;
    struct mr_job freeing;
    pthread_mutex_t lock;

    /* Under `lock`. */
    bool over;
    struct mr_tape tape;
    struct mr_id_map calls, served;
    uint64_t invocations; /* the last of ours */
    struct mr_pass pass;
    struct mr_id_map gradients; /* of parameters, by their reference's id, */
    struct mr_parameter_gradient *gradients_first, *gradients_last; /* and in order */
    struct mr_lent_sum *lent;
    uint8_t notified[MR_RPC_WORLD_MAX / 8];
    struct mr_context_end *ends; /* one for each worker that this worker's calls reached */
};

/* The contexts of one worker that are known to be over: all below a number, and some above. A worker has few
 * live contexts, so there are few between its oldest and its latest. */
struct mr_context_creator {
    uint64_t over_below;
    struct mr_id_map over;
};

struct mr_contexts {
    struct mr_rpc *agent;
    _Atomic uint32_t numbers; /* of values, see tape.h */
    pthread_mutex_t lock;
    /* Under `lock`. */
    struct mr_id_map map;
    uint64_t last;                       /* counter of the latest begun here */
    struct mr_link own;                  /* the oldest first */
    uint32_t begun;                      /* contexts in `own` */
    struct mr_context_creator *creators; /* [world_size] */
};

/* MR_NO_MEMORY. */
enum mr_status mr_contexts_create(struct mr_rpc *agent, struct mr_contexts **out);
/* Ends all contexts, when nobody is inside and no function runs. Those that were begun here stay until
 * mr_autograd_end(). NULL is allowed. */
void mr_contexts_end(struct mr_contexts *contexts);
/* Frees the table, once no context is left. NULL is allowed. */
void mr_contexts_free(struct mr_contexts *contexts);

/* Contexts that are not over. */
struct mr_contexts_use {
    uint32_t begun;     /* begun here */
    uint32_t known;     /* begun by any worker */
    uint64_t oldest_us; /* age of the oldest of those begun here; 0: there is none */
};
void mr_contexts_use(struct mr_contexts *contexts, struct mr_contexts_use *out);
/* Inside: a worker died, so its contexts are over. */
void mr_contexts_died(struct mr_rpc *agent, uint32_t rank);

/* Finds a context, and holds it for the caller. If it is unknown here, makes it known by a call of worker
 * `by`, which will notify this worker of its end. MR_INVALID_ARGUMENT: it is over, or it is unknown and `by`
 * is MR_RPC_NO_RANK; MR_WORKER_DIED: its creator or `by` died; MR_NO_MEMORY. */
enum mr_status mr_context_get(struct mr_contexts *contexts, uint64_t id, uint32_t by,
                              struct mr_autograd **out);
void mr_context_hold(struct mr_autograd *context);
/* Releases a hold. `inside`: the caller is inside, or may be, so an executor's thread frees what is to be
 * freed. */
void mr_context_put(struct mr_autograd *context, bool inside);
/* The error text for a program that passes no context. */
#define MR_CONTEXT_IS_NULL "the context is NULL, as of a function that was called in none"
/* Writes "context 3 of worker \"a\" (rank 0)". */
#define MR_CONTEXT_TEXT_BYTES 128u
void mr_context_text(struct mr_contexts *contexts, uint64_t id, char text[MR_CONTEXT_TEXT_BYTES]);

/* Under the lock: fails the context's pass; the first error counts. */
void mr_pass_fail(struct mr_pass *pass, enum mr_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- its end ---- */

/* Under the context's lock: makes sure that a worker will be notified. MR_NO_MEMORY. */
enum mr_status mr_context_end_prepare(struct mr_autograd *context, uint32_t rank);
/* Inside: serves the op RPC_CONTEXT_END. Sent to the creator, it asks to be notified. */
void mr_context_end_serve(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request);

/* Inside: the context is over, and so are all of its creator's below that counter. */
void mr_contexts_heard(struct mr_contexts *contexts, uint64_t id, uint64_t over_below);

/* ---- gradients of parameters, see autograd_gradients.c ---- */

/* In a function that runs in the context: returns the sum of the gradients of that parameter of this worker.
 * False: nothing was added, or a backward is adding. The view is valid while the context is held. It does not
 * change when more is added later: optimizers step after the backward. */
bool mr_context_gradient(struct mr_autograd *context, uint64_t reference, struct mr_tensor *gradient);
/* Registers the library's function with which other workers fetch them. MR_NO_MEMORY. */
enum mr_status mr_gradients_register(struct mr_functions *functions);

#endif
