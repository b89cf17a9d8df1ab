/* A call that a function of this worker executes: from its request to its answer. */
#ifndef MR_RPC_EXECUTING_H
#define MR_RPC_EXECUTING_H

#include "dataplane/rpc/base/executor.h"
#include "dataplane/rpc/base/functions.h"
#include "dataplane/rpc/base/values.h"
#include "dataplane/rpc/base/work.h"
#include "dataplane/wire/endpoint.h"

#define MR_EXECUTING_VALUES_INLINE 4u
#define MR_EXECUTING_BYTES_INLINE  256u
#define MR_EXECUTING_ERROR_BYTES   401u

struct mr_rpc_future;
struct mr_long_in;

struct mr_executing_block {
    struct mr_executing_block *next;
    _Alignas(64) uint8_t bytes[];
};

struct mr_rpc_call {
    struct mr_rpc *agent;
    struct mr_function *function;
    struct mr_job job;
    struct mr_work work;
    struct mr_rpc_call *next; /* in mr_rpc.unanswered */
    uint32_t caller;
    uint32_t argument_count;
    uint64_t deadline_us;
    struct mr_rpc_head head;
    struct mr_call_ref ref;       /* of the request */
    struct mr_rpc_future *future; /* of a local call, which has no request */
    void *copied;                 /* the arguments of a local call, malloc()ed, or NULL */
    struct mr_long_in *in;        /* the arguments of a request that came in parts, or NULL */
    struct mr_value *arguments;

    /* The outcome. */
    struct mr_value *results;
    uint32_t result_count;
    enum mr_status status;
    void (*destroy)(void *object); /* for a result that is an object */
    uint64_t pass;                 /* of which it is a part; else 0 */
    void *saved;                   /* mr_rpc_save() */
    void (*saved_destroy)(void *saved);
    struct mr_autograd *context; /* both are autograd's */
    void *autograd;

    /* When the function has ended: at once, or by mr_rpc_finish(). */
    void (*end)(struct mr_rpc_call *call); /* NULL: it cannot be postponed */
    enum mr_status finish_status;
    _Atomic uint32_t halves; /* of a postponed call that are over: the run, and what it waited for */

    struct mr_executing_block *blocks;
    uint32_t bytes_used; /* of bytes_inline */
    bool is_backward;    /* runs the function's backward */
    bool postponed;
    struct mr_value arguments_inline[MR_EXECUTING_VALUES_INLINE];
    struct mr_value results_inline[MR_EXECUTING_VALUES_INLINE];
    char error[MR_EXECUTING_ERROR_BYTES];
    _Alignas(64) uint8_t bytes_inline[MR_EXECUTING_BYTES_INLINE];
};

/* Any thread: makes a call with room for that many arguments. NULL: no memory. */
struct mr_rpc_call *mr_executing_new(struct mr_rpc *agent, struct mr_function *function,
                                     uint32_t argument_count);
/* Any thread: makes a call of this worker's own function `name`. Checks the arguments, but does not copy
 * them. MR_UNKNOWN_FUNCTION, MR_INVALID_ARGUMENT, MR_WRONG_SIGNATURE, MR_NO_MEMORY; the error line names
 * `caller`. */
enum mr_status mr_executing_own(struct mr_rpc *agent, const char *caller, const char *name,
                                const struct mr_value *arguments, uint32_t count, struct mr_rpc_call **out);
/* Releases the references among arguments and results, too. */
void mr_executing_free(struct mr_rpc_call *call);
/* Drops the results. Not inside, because destroying an object may block. */
void mr_executing_drop_results(struct mr_rpc_call *call);

#endif
