/* Remote calls between workers: what torch.distributed.rpc and torch.distributed.autograd give, for C.
 *
 * A world is world_size workers: programs that joined it under a name and a rank, and nodes (millraced) that
 * are members by their configuration. Any worker calls functions of any other by name; functions are
 * registered in the worker's own program, or in modules that a node loads. Semantics follow PyTorch
 * (https://pytorch.org/docs/stable/rpc.html, "Remote Reference Protocol" and "Distributed Autograd Design"
 * there) unless a comment here says otherwise.
 *
 * Conventions
 *   - As in millrace.h: enum mr_status is returned, outputs come last and are untouched on failure,
 *     mr_rpc_last_error() says what happened where, handles come in pairs, there is no global state.
 *   - Every function here may be called from any thread, also from within registered functions, unless its
 *     comment says otherwise; one future, result or context by one thread at a time.
 *   - Arguments are copied before a call returns.
 *   - The child of a fork() is no worker: calls, waits, references' values and backwards end with MR_FORKED
 *     there, at once; futures count as done; closing, destroying and releasing what the parent had does
 *     nothing. All else of the parent's worker must be left alone there.
 *   - Floats of gradients are f32.
 */
#ifndef MILLRACE_RPC_H
#define MILLRACE_RPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "mr_status.h"
#include "mr_tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef MR_API
#define MR_API __attribute__((visibility("default")))
#endif

#define MR_RPC_NAME_BYTES    64u /* of workers and functions, with the NUL */
#define MR_RPC_WORLD_MAX     1024u
#define MR_RPC_ARGUMENTS_MAX 96u /* and results */

struct mr_rpc;        /* this process's worker */
struct mr_rpc_future; /* outcome of a call under way */
struct mr_rpc_result; /* values that came back */
struct mr_rpc_call;   /* a call that a function of ours is executing */
struct mr_rref;       /* a handle of a value that lives on its owner */
struct mr_autograd;   /* a distributed autograd context */

/* ---- values ---- */

enum mr_value_kind {
    MR_VALUE_NONE = 0,
    MR_VALUE_TENSOR = 1,
    MR_VALUE_I64 = 2,
    MR_VALUE_F64 = 3,
    MR_VALUE_STRING = 4, /* bytes; a NUL follows them that is not counted */
    MR_VALUE_RREF = 5,
    MR_VALUE_OBJECT = 6, /* a pointer of the owner's; stays where it is: only references to it travel */
};

/* An argument or a result. Whoever fills it in owns what it points to; views given out by this library are
 * valid until the result is freed, or the function returns. */
struct mr_value {
    enum mr_value_kind kind;
    /* its number on the context's tape on this worker; 0, or of another context: a constant. Keep it when
     * passing a value on */
    uint32_t gradient;
    union {
        struct mr_tensor tensor;
        int64_t i64;
        double f64;
        struct {
            const char *text;
            uint32_t bytes;
        } string;
        struct mr_rref *rref;
        void *object;
    };
};

/* A result where there is none, as a gradient of what has none. */
MR_API struct mr_value mr_value_none(void);
MR_API struct mr_value mr_value_tensor(struct mr_tensor tensor);
MR_API struct mr_value mr_value_i64(int64_t i64);
MR_API struct mr_value mr_value_f64(double f64);
MR_API struct mr_value mr_value_string(const char *text);
MR_API struct mr_value mr_value_rref(struct mr_rref *rref);

/* ---- functions ---- */

/* Runs on an executor thread; it may block and may call other workers. Results go through mr_rpc_return*().
 * Anything but MR_OK is an error, which the caller gets with the text given to mr_rpc_fail(). */
typedef enum mr_status (*mr_rpc_run)(struct mr_rpc_call *call, const struct mr_value *arguments,
                                     uint32_t argument_count);
/* `gradients`: one for each result, of its shape; NULL data where nothing depends on that result. Gives back
 * with mr_rpc_return*() one gradient for each argument: an f32 tensor of its shape, or mr_value_none() where
 * there is none. For a reference to a value of this worker's that was computed in the same context, that is
 * the value's gradient. `saved` is what the forward run gave to mr_rpc_save(). Runs on an executor thread, or
 * on the one that calls mr_autograd_backward(). */
typedef enum mr_status (*mr_rpc_backward)(struct mr_rpc_call *call, void *saved,
                                          const struct mr_tensor *gradients, uint32_t gradient_count);

enum mr_rpc_function_flag {
    MR_RPC_INLINE =
        1u << 0, /* runs on the thread that received it; must end within microseconds and must not block */
};

/* Signatures are lists of: f32[32,?] (a dtype and dims, ? any), f32[...] (any dims), tensor (any), i64, f64,
 * string, ref, object; a last "..." allows any more. "" takes none. A call that does not match is refused
 * with MR_WRONG_SIGNATURE and both texts. */
struct mr_rpc_function {
    const char *name;
    const char *arguments;
    const char *results;
    mr_rpc_run run;
    /* A function without one that is called in a context is differentiated through what it records on the
     * tape itself. */
    mr_rpc_backward backward;
    void *user; /* for mr_rpc_user() */
    uint32_t flags;
};

MR_API void *mr_rpc_user(const struct mr_rpc_call *call);
MR_API struct mr_rpc *mr_rpc_of(const struct mr_rpc_call *call);
/* Rank of the worker that called. */
MR_API uint32_t mr_rpc_caller(const struct mr_rpc_call *call);
/* Microseconds until the caller gives up; UINT64_MAX: never. */
MR_API uint64_t mr_rpc_time_left_us(const struct mr_rpc_call *call);
/* The next result, copied. MR_NO_MEMORY, MR_INVALID_ARGUMENT (too many). */
MR_API enum mr_status mr_rpc_return(struct mr_rpc_call *call, struct mr_value value);
/* The next results; for languages that cannot pass a struct with a union. */
MR_API enum mr_status mr_rpc_return_values(struct mr_rpc_call *call, const struct mr_value *values,
                                           uint32_t count);
/* The next result, to be written to *data (64-byte aligned) before the function returns. */
MR_API enum mr_status mr_rpc_return_tensor(struct mr_rpc_call *call, enum mr_dtype dtype, uint32_t rank,
                                           const uint32_t *dims, void **data);
/* The next result: an object that this worker owns; destroy(object) when the last reference is gone. The
 * caller must have asked with mr_remote(), else the call fails and the object is destroyed. */
MR_API enum mr_status mr_rpc_return_object(struct mr_rpc_call *call, void *object, void (*destroy)(void *));
/* Says why the function fails (printf style, cut at 400 bytes); returns MR_FUNCTION_FAILED, for `return
 * mr_rpc_fail(...)`. */
MR_API enum mr_status mr_rpc_fail(struct mr_rpc_call *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- workers ---- */

struct mr_rpc_options {
    /* "10.0.0.1:7700": a node, or where rank 0 is: rank 0 listens there itself unless a node does.
     * Required. */
    const char *rendezvous;
    bool rendezvous_is_node; /* rank 0: a node is there, do not listen there */
    /* own address; NULL: any free port on the address from which the rendezvous is reached */
    const char *listen;
    const char *key_file;      /* as in mr_client_options */
    uint32_t init_timeout_ms;  /* for everybody to join; 0 = 60000 */
    uint32_t timeout_ms;       /* default of every call; 0 = 60000 */
    uint32_t dead_after_ms;    /* a worker not heard of for so long is dead; 0 = 10000 */
    uint32_t executor_threads; /* for functions of ours; 0 = 16 */
    uint32_t busy_poll_us;     /* as in mr_client_options; 0 = 50 */
    size_t memory_bytes;       /* for messages; 0 = 256 MiB */
    size_t message_bytes;      /* longest arguments, results or gradients of a call; 0 = 1 GiB */
    /* Beside memory_bytes, for messages of more than 7 MiB, which go in parts: those that come, while their
     * functions run or until their results are freed, and copies of arguments on their way. 0 = twice
     * message_bytes */
    size_t long_memory_bytes;
    const struct mr_rpc_function *functions; /* callable as soon as anybody joined */
    uint32_t function_count;
};

struct mr_rpc_worker {
    char name[MR_RPC_NAME_BYTES];
    uint32_t rank;
    bool is_node, is_dead;
};

/* Joins the world and returns once all world_size workers have: then every worker can be called by name and
 * rank. MR_DEADLINE_EXCEEDED (`error` names how many are missing, and which ranks), MR_UNREACHABLE (nobody
 * answers at the rendezvous; `error` says whether nothing listens there or the keys probably differ, or names
 * both where that cannot be told), MR_VERSION_MISMATCH (the rendezvous speaks another version of the
 * protocol; `error` has both), MR_INVALID_ARGUMENT (name or rank taken, another world_size than the others').
 * `error` gets one line. */
MR_API enum mr_status mr_rpc_init(const char *name, uint32_t rank, uint32_t world_size,
                                  const struct mr_rpc_options *options, struct mr_rpc **rpc, char *error,
                                  size_t error_bytes);
/* Registers one more function. MR_INVALID_ARGUMENT: the name is taken, or a signature cannot be read. */
MR_API enum mr_status mr_rpc_register(struct mr_rpc *rpc, const struct mr_rpc_function *function);
/* Graceful: waits until every living worker has called it, and no call is under way and no reference is held
 * by another, then leaves. MR_DEADLINE_EXCEEDED: the last error names who is missing or what is still held;
 * the worker stays a member until all may leave, which may be before it is called again; the next call then
 * returns at once what became of it. A call after that is MR_INVALID_ARGUMENT. timeout_ms 0: the default of
 * calls. */
MR_API enum mr_status mr_rpc_shutdown(struct mr_rpc *rpc, uint32_t timeout_ms);
/* How many living workers have not called mr_rpc_shutdown() yet, as far as is known here: when there are
 * none, nobody begins anything new, and a program may let go of references that it only kept. */
MR_API uint32_t mr_rpc_staying(struct mr_rpc *rpc);
/* Ends its threads and closes its sockets, once the functions that run have ended; what waits or is called
 * from then on ends with MR_SHUTTING_DOWN. Results that are held stay as they are until they are freed. Only
 * mr_rpc_destroy() and what frees or releases are left to be called. Again does nothing. */
MR_API void mr_rpc_close(struct mr_rpc *rpc);
/* Frees it; without a shutdown before, the others see a worker that died. Nobody else calls anything of it
 * meanwhile or afterwards, but for what frees or releases: futures, results, references, contexts, versions
 * and optimizers that are still out may be let go before, meanwhile and after, in any order, by any thread.
 * Results and versions stay as they are until then; references can only be released (MR_SHUTTING_DOWN), and
 * the values of this worker's own are gone with it. The worker's memory is given back with the last of them.
 * NULL is fine. */
MR_API void mr_rpc_destroy(struct mr_rpc *rpc);
/* One line about this thread's last failed call, "" if none. */
MR_API const char *mr_rpc_last_error(void);

MR_API uint32_t mr_rpc_rank(const struct mr_rpc *rpc);
MR_API uint32_t mr_rpc_world_size(const struct mr_rpc *rpc);
/* MR_UNKNOWN_WORKER. */
MR_API enum mr_status mr_worker_info(struct mr_rpc *rpc, uint32_t rank, struct mr_rpc_worker *info);
MR_API enum mr_status mr_worker_by_name(struct mr_rpc *rpc, const char *name, struct mr_rpc_worker *info);

/* ---- calls ---- */

struct mr_rpc_call_options {
    uint32_t timeout_ms;         /* 0: the worker's default; UINT32_MAX: none */
    struct mr_autograd *context; /* record the call there; arguments and results keep their `gradient` */
};

/* Calls a function of worker `to` (also of our own) and waits. *result (may be NULL) is to be freed.
 * MR_UNKNOWN_WORKER, MR_UNKNOWN_FUNCTION, MR_WRONG_SIGNATURE, MR_FUNCTION_FAILED (the function's text is the
 * last error), MR_DEADLINE_EXCEEDED, MR_WORKER_DIED, MR_TOO_LARGE, MR_NO_MEMORY, MR_SHUTTING_DOWN, MR_BUSY
 * (called from a function that is called by another, ..., seven deep, where all threads wait). A function
 * whose caller gave up is run to its end, if it had begun; it is run at most once. options NULL: the
 * defaults. */
MR_API enum mr_status mr_rpc_sync(struct mr_rpc *rpc, uint32_t to, const char *function,
                                  const struct mr_value *arguments, uint32_t argument_count,
                                  const struct mr_rpc_call_options *options, struct mr_rpc_result **result);
/* The same without waiting. Errors that are known at once come at once. */
MR_API enum mr_status mr_rpc_async(struct mr_rpc *rpc, uint32_t to, const char *function,
                                   const struct mr_value *arguments, uint32_t argument_count,
                                   const struct mr_rpc_call_options *options, struct mr_rpc_future **future);
/* Ends by the call's time-out. May be called once; then only destroy is left. */
MR_API enum mr_status mr_rpc_wait(struct mr_rpc_future *future, struct mr_rpc_result **result);
MR_API bool mr_rpc_done(struct mr_rpc_future *future);
/* `then` runs once when the call ends (at once if it has), on an executor thread of this worker, also when
 * functions that run have all of them. `result` is its to free. The future is gone with this call. */
typedef void (*mr_rpc_then_run)(void *user, enum mr_status status, const char *error,
                                struct mr_rpc_result *result);
MR_API enum mr_status mr_rpc_then(struct mr_rpc_future *future, mr_rpc_then_run then, void *user);
/* The call ends with MR_CANCELLED unless it has ended; one not begun over there is not run. */
MR_API void mr_rpc_cancel(struct mr_rpc_future *future);
MR_API void mr_rpc_future_destroy(struct mr_rpc_future *future); /* its outcome is dropped; NULL is fine */

MR_API uint32_t mr_rpc_result_count(const struct mr_rpc_result *result);
MR_API const struct mr_value *mr_rpc_result_value(const struct mr_rpc_result *result,
                                                  uint32_t i); /* a view */
MR_API void mr_rpc_result_free(struct mr_rpc_result *result);  /* references in it, too, unless retained */

/* ---- references ---- */

/* A reference is used through handles, struct mr_rref: one for each value that was made or received here. A
 * released handle that is used again is MR_INVALID_ARGUMENT (mr_rref_retain, mr_rref_release: the last error
 * says so), as long as it is among the last 1024 that were released. None of what waits may be called from an
 * MR_RPC_INLINE function.
 *
 * Runs the function on `to`, where its result stays; returns at once with a reference to it, whose first use
 * tells how it went, also when the function failed, or could not be called. Of several results, the first is
 * the value, and mr_rref_to_here() brings all. timeout_ms is for the function to begin. */
MR_API enum mr_status mr_remote(struct mr_rpc *rpc, uint32_t to, const char *function,
                                const struct mr_value *arguments, uint32_t argument_count,
                                const struct mr_rpc_call_options *options, struct mr_rref **rref);
/* A reference to a value of our own; copied, or, for an object, destroy(object) on a thread of the library
 * when the last reference is gone, also when this fails. MR_INVALID_ARGUMENT, MR_NO_MEMORY. */
MR_API enum mr_status mr_rref_create(struct mr_rpc *rpc, struct mr_value value, void (*destroy)(void *),
                                     struct mr_rref **rref);
/* The same; for languages that cannot pass a struct with a union. */
MR_API enum mr_status mr_rref_create_from(struct mr_rpc *rpc, const struct mr_value *value,
                                          void (*destroy)(void *), struct mr_rref **rref);
MR_API uint32_t mr_rref_owner(const struct mr_rref *rref);
MR_API bool mr_rref_is_owner(const struct mr_rref *rref);
/* A copy of the value, from its owner, without a number on a tape; waits until it is there.
 * MR_INVALID_ARGUMENT: it is an object. MR_WORKER_DIED, MR_DEADLINE_EXCEEDED, MR_NO_MEMORY, MR_SHUTTING_DOWN,
 * or what the function that was to make it ended with. */
MR_API enum mr_status mr_rref_to_here(struct mr_rref *rref, uint32_t timeout_ms,
                                      struct mr_rpc_result **result);
/* The owner's own: a view, valid while the handle is held; waits until it is there. MR_INVALID_ARGUMENT: not
 * the owner. Others as above. */
MR_API enum mr_status mr_rref_local_value(struct mr_rref *rref, uint32_t timeout_ms,
                                          const struct mr_value **value);
/* Waits until the owner has said that it knows of this handle. MR_WORKER_DIED, MR_DEADLINE_EXCEEDED,
 * MR_SHUTTING_DOWN. */
MR_API enum mr_status mr_rref_confirm(struct mr_rref *rref, uint32_t timeout_ms);
/* One more holder of the handle on this worker; each calls release. A released handle must not be used; one
 * that is passed to a call may be released as soon as the call returned. */
MR_API void mr_rref_retain(struct mr_rref *rref);
MR_API void mr_rref_release(struct mr_rref *rref); /* NULL is fine */

/* ---- autograd ---- */

/* A context is known to all workers that calls in it reached, by a number. MR_NO_MEMORY, also when this
 * worker has begun 4096 that it has not ended. */
MR_API enum mr_status mr_autograd_begin(struct mr_rpc *rpc, struct mr_autograd **context);
/* Everywhere, and on the worker that began it alone: elsewhere this does nothing. Calls in it that come later
 * are refused, a backward that goes on in it fails. A worker's death ends its contexts. NULL is fine. */
MR_API void mr_autograd_end(struct mr_autograd *context);
MR_API uint64_t mr_autograd_id(const struct mr_autograd *context);
/* The context of the call that a function executes: NULL when it is in none. Of the call's, not to be
 * ended. */
MR_API struct mr_autograd *mr_rpc_context(const struct mr_rpc_call *call);
/* An input whose gradient is wanted: a tensor value with a number on the tape. */
MR_API enum mr_status mr_autograd_leaf(struct mr_autograd *context, struct mr_tensor tensor,
                                       struct mr_value *value);
/* Within a differentiable function's forward run: kept for its backward, or freed with the context. At most
 * once. Outside of a context it is freed when the function returns. */
MR_API enum mr_status mr_rpc_save(struct mr_rpc_call *call, void *saved, void (*destroy)(void *));
/* Runs a function of our own here and now, recorded on the tape. MR_UNKNOWN_FUNCTION, MR_WRONG_SIGNATURE,
 * MR_NO_MEMORY, or what the function returned, with its text. `result` may be NULL. */
MR_API enum mr_status mr_autograd_apply(struct mr_autograd *context, const char *function,
                                        const struct mr_value *arguments, uint32_t argument_count,
                                        struct mr_rpc_result **result);
/* Puts a run of a differentiable function of ours on the tape that somebody computed already: from `inputs`,
 * by their `gradient`, came `outputs`, of which f32 tensors get theirs here; only their shapes are looked at.
 * The function's backward gets `saved`, which is destroyed as in mr_rpc_save(), also when this fails.
 * MR_UNKNOWN_FUNCTION, MR_INVALID_ARGUMENT (it has no backward, too many values, the context has ended),
 * MR_NO_MEMORY. */
MR_API enum mr_status mr_autograd_record(struct mr_autograd *context, const char *function,
                                         const struct mr_value *inputs, uint32_t input_count,
                                         struct mr_value *outputs, uint32_t output_count, void *saved,
                                         void (*destroy)(void *));
/* Within a backward, or any call in a context: adds to the gradient of a parameter of this worker, in the
 * call's context. MR_INVALID_ARGUMENT (no context, another's parameter, no f32), MR_WRONG_SHAPE,
 * MR_NO_MEMORY. */
MR_API enum mr_status mr_autograd_add_gradient(struct mr_rpc_call *call, struct mr_rref *parameter,
                                               const struct mr_tensor *gradient);
/* From scalar losses (f32 of one element) back through all workers; gradients add up in the context. Each
 * recorded run is gone through once: a second backward over it is MR_INVALID_ARGUMENT unless the one before
 * was told to `retain`. One at a time in a context. Within the worker's time-out: MR_DEADLINE_EXCEEDED.
 * MR_WORKER_DIED, or what a function's backward returned, with its text; MR_WRONG_SHAPE when that gave back a
 * gradient of another shape than the argument. If gradients had begun to flow then, the context can only be
 * ended. */
MR_API enum mr_status mr_autograd_backward(struct mr_autograd *context, const struct mr_value *losses,
                                           uint32_t loss_count, bool retain);
/* Of a leaf; a view, valid until the context's next backward, or its end. NULL data: nothing depended on it.
 * MR_INVALID_ARGUMENT: no leaf of this context on this worker. */
MR_API enum mr_status mr_autograd_gradient(struct mr_autograd *context, const struct mr_value *leaf,
                                           struct mr_tensor *gradient);
/* Of the parameters that worker `of` owns (also our own), by pairs: a reference, and a tensor. While no
 * backward goes on. Errors as of calls. */
MR_API enum mr_status mr_autograd_gradients(struct mr_autograd *context, uint32_t of,
                                            struct mr_rpc_result **pairs);

/* ---- parameters and the distributed optimizer ---- */

/* A parameter is a reference whose value is an f32 tensor that optimizers change. Readers hold a version of
 * it: it stays as it is until they let go, while optimizers go on to later ones. mr_rref_to_here() of it is a
 * copy of the newest; for mr_rref_local_value() it is an object that says nothing. */
struct mr_parameter_version;
/* `initial`: f32, at least one element, with data; copied. MR_INVALID_ARGUMENT, MR_NO_MEMORY. */
MR_API enum mr_status mr_parameter_create(struct mr_rpc *rpc, const struct mr_tensor *initial,
                                          struct mr_rref **parameter);
/* On the owner: the newest version, until mr_parameter_done(). Waits for a step that changes it in place to
 * end. It outlives its parameter. MR_INVALID_ARGUMENT: it is no parameter, or another worker's. */
MR_API enum mr_status mr_parameter_read(struct mr_rref *parameter, struct mr_parameter_version **version);
/* A view, 64-byte aligned, valid until the version is done with. */
MR_API const struct mr_tensor *mr_parameter_tensor(const struct mr_parameter_version *version);
MR_API uint64_t mr_parameter_number(const struct mr_parameter_version *version); /* rises with each step */
MR_API void mr_parameter_done(struct mr_parameter_version *version);             /* NULL is fine */

enum mr_dist_optimizer_kind { MR_DIST_SGD = 1, MR_DIST_ADAGRAD = 2, MR_DIST_ADAM = 3 };
/* The formulas are torch.optim's, see docs/optimizers.md. Zero means torch's default of that optimizer, but
 * for a learning rate of 0 with has_learning_rate, at which values stay; SGD has no default for it. What an
 * optimizer does not have must be 0. */
struct mr_dist_optimizer_options {
    enum mr_dist_optimizer_kind kind;
    float learning_rate, momentum, beta1, beta2, epsilon, weight_decay, initial_accumulator;
    bool nesterov;
    bool has_learning_rate; /* learning_rate counts, also if it is 0 */
};
struct mr_dist_optimizer;
/* Its state lies with each parameter's owner, and is the optimizer's own: several over one parameter have
 * each theirs. Any workers may own the parameters; each comes once. MR_INVALID_ARGUMENT (an option or a
 * parameter that makes no sense), MR_WORKER_DIED, MR_NO_MEMORY, and what calls end with. */
MR_API enum mr_status mr_dist_optimizer_create(struct mr_rpc *rpc,
                                               const struct mr_dist_optimizer_options *options,
                                               struct mr_rref *const *parameters, uint32_t parameter_count,
                                               struct mr_dist_optimizer **optimizer);
/* Every owner makes the next version of each parameter that has a gradient in the context; returns when all
 * have. Steps of several trainers come one after the other at each owner. A step is applied at most once;
 * after MR_DEADLINE_EXCEEDED nobody knows whether. When an owner is dead or fails, the others are updated,
 * and the last error names those that were not. A parameter whose gradient holds NaN or Inf stays as it is:
 * MR_INVALID_ARGUMENT. May be called from several threads, with different contexts. */
MR_API enum mr_status mr_dist_optimizer_step(struct mr_dist_optimizer *optimizer, struct mr_autograd *context,
                                             uint32_t timeout_ms);
MR_API void mr_dist_optimizer_destroy(struct mr_dist_optimizer *optimizer); /* NULL is fine */

/* ---- modules ---- */

/* A shared object that a node loads exports this; it registers functions. `arguments` is the rest of its line
 * in the configuration. A status other than MR_OK, with a line in `error`, keeps the node from starting. */
typedef enum mr_status (*mr_module_init)(struct mr_rpc *rpc, const char *arguments, char *error,
                                         size_t error_bytes);
#define MR_MODULE_INIT_SYMBOL "millrace_module_init"
/* And this, if there is something to end: called when the node stops, and when all others have left or died,
 * unless the init failed. No function runs then and none begins, but the node still is a worker and can call.
 * When it returns, threads that the module made have ended their last call, and it gives back what it holds
 * of the worker (results, futures, contexts, references) before or after: there is no such worker any more
 * afterwards, and what is kept for longer keeps the memory of messages until the node stops. After the end of
 * a world init is called again, with the worker of the next. */
typedef void (*mr_module_exit)(struct mr_rpc *rpc);
#define MR_MODULE_EXIT_SYMBOL "millrace_module_exit"

#ifdef __cplusplus
}
#endif
#endif
