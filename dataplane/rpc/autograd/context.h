/* Autograd contexts of one worker: which there are, and what each has recorded here.
 *
 * The worker that begins a context makes its id (see agent.h), and the id travels in the heads of calls: a
 * worker that a call in a context reaches has it from then on. Whoever called others in a context notifies
 * them of its end (RPC_CONTEXT_END), so that the end takes the ways that the calls took; when a worker
 * dies, which may have been on the way, the others ask the creators to notify them. A context of which the
 * end was heard does not come back, whatever arrives late: see struct mr_context_creator. One whose creator
 * died is over.
 *
 * Threads and locks. Executor threads, users' threads and the thread inside all come here. `contexts->lock`
 * guards the table; each context's own `lock` guards what it has recorded, its pass and its gradients.
 * Neither is ever held while a user's function runs, while anything is waited for, or during sums over
 * tensors (mr_autograd_gradients(), which is asked for when all is quiet, copies under the lock);
 * contexts->lock may be held when a context's is taken, not the other way round. A context is there while it
 * is held, also after its end: whoever has a pointer holds it, the table holds it until its end.
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

/* Kinds of nodes on a tape, and what they are `of`. */
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

/* With what the user saved. NULL is fine. Not inside. */
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

/* Others number them: one must not be another worker's. */
static inline bool mr_invocation_is_one(uint64_t invocation)
{
    return invocation >> MR_RPC_ID_SHIFT == 0;
}

struct mr_context_end; /* context.c: notifies one worker */

/* A sum that was looked at, and replaced since, by a backward that a program began too early: it stays until
 * the context's end. */
struct mr_lent_sum {
    struct mr_lent_sum *next;
    float *sum;
};

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

/* What backwards have added up for a parameter of this worker, in one context. */
struct mr_parameter_gradient {
    struct mr_id_node id;      /* its reference's */
    struct mr_rref *parameter; /* held */
    struct mr_tensor shape;
    float *sum;                         /* NULL while it is being added to */
    bool is_lent;                       /* somebody looks at the sum, see struct mr_lent_sum */
    struct mr_parameter_gradient *next; /* in the order in which they came */
};

/* A program that ends none of its contexts gets an error, instead of growing for ever. */
#define MR_CONTEXTS_BEGUN_MAX 4096u  /* by one worker, and not ended */
#define MR_CONTEXTS_MAX       65536u /* that one worker knows, whoever has begun them */

struct mr_autograd {
    struct mr_id_node id; /* in contexts->map, while it is not over */
    struct mr_contexts *contexts;
    struct mr_link own; /* in contexts->own, of those begun here */
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
    struct mr_context_end *ends; /* for each worker that calls of ours reached */
};

/* Of which contexts of one worker the end was heard: all below a number, and some above. Its contexts that
 * live are few, so what lies between its oldest and its latest is, too. */
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
    uint32_t begun;                      /* of these */
    struct mr_context_creator *creators; /* [world_size] */
};

/* MR_NO_MEMORY. */
enum mr_status mr_contexts_create(struct mr_rpc *agent, struct mr_contexts **out);
/* Nobody is inside, and no function runs: all are over. Those that were begun here stay until
 * mr_autograd_end(). NULL is fine. */
void mr_contexts_end(struct mr_contexts *contexts);
/* None is left. NULL is fine. */
void mr_contexts_free(struct mr_contexts *contexts);

/* Contexts that are not over. */
struct mr_contexts_use {
    uint32_t begun;     /* here, */
    uint32_t known;     /* and by anybody */
    uint64_t oldest_us; /* how long the one that was begun here first has been there; 0: there is none */
};
void mr_contexts_use(struct mr_contexts *contexts, struct mr_contexts_use *out);
/* Inside: all of that worker's are over. */
void mr_contexts_died(struct mr_rpc *agent, uint32_t rank);

/* Held for the caller. MR_INVALID_ARGUMENT: it is over; MR_WORKER_DIED: its creator died, or `by`;
 * MR_NO_MEMORY. It may be new here, by a call of worker `by`, which will notify us of its end;
 * MR_RPC_NO_RANK: an unknown one is MR_INVALID_ARGUMENT, too. */
enum mr_status mr_context_get(struct mr_contexts *contexts, uint64_t id, uint32_t by,
                              struct mr_autograd **out);
void mr_context_hold(struct mr_autograd *context);
/* `inside`: the caller is, or may be: what is to be freed is left to an executor's thread. */
void mr_context_put(struct mr_autograd *context, bool inside);
/* The error of a program that gives no context. */
#define MR_CONTEXT_IS_NULL "the context is NULL, as of a function that was called in none"
/* "context 3 of worker \"a\" (rank 0)" */
#define MR_CONTEXT_TEXT_BYTES 128u
void mr_context_text(struct mr_contexts *contexts, uint64_t id, char text[MR_CONTEXT_TEXT_BYTES]);

/* Under the lock: fails the context's pass; the first error counts. */
void mr_pass_fail(struct mr_pass *pass, enum mr_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- its end ---- */

/* Under the context's lock: that worker will be notified. MR_NO_MEMORY. */
enum mr_status mr_context_end_prepare(struct mr_autograd *context, uint32_t rank);
/* The op RPC_CONTEXT_END. To the creator, it asks for that notice. */
void mr_context_end_serve(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request);

/* Inside: the context is over, and so are all of its creator's below that counter. */
void mr_contexts_heard(struct mr_contexts *contexts, uint64_t id, uint64_t over_below);

/* ---- gradients of parameters, see autograd_gradients.c ---- */

/* In a function that runs in the context: the sum for that parameter of this worker. False: nothing was
 * added, or a backward is adding. The view is valid while the context is held, and has nothing of what is
 * added later: optimizers step after the backward. */
bool mr_context_gradient(struct mr_autograd *context, uint64_t reference, struct mr_tensor *gradient);
/* The library's function by which other workers get them. MR_NO_MEMORY. */
enum mr_status mr_gradients_register(struct mr_functions *functions);

#endif
