/* Remote calls between workers: what torch.distributed.rpc and torch.distributed.autograd give, for C.
 *
 * A world is world_size workers: programs that joined it under a name and a rank, and nodes (millraced) that
 * are members by their configuration. Any worker calls functions of any other by name. Functions are
 * registered in the worker's own program, or in modules that a node loads. Semantics follow PyTorch
 * (https://pytorch.org/docs/stable/rpc.html, "Remote Reference Protocol" and "Distributed Autograd Design"
 * there) unless a comment here says otherwise.
 *
 * Conventions
 *   - As in millrace.h: functions return enum mr_status, outputs come last and are untouched on failure,
 *     mr_rpc_last_error() says what happened and where, whatever is created has a function that destroys it,
 *     and there is no global state.
 *   - Every function may be called from any thread, including from registered functions, unless its comment
 *     says otherwise. A future, result or context may be used by one thread at a time.
 *   - Arguments are copied before a call returns.
 *   - The child of a fork() is not a worker. There, calls, waits, reads of references and backward passes
 *     fail at once with MR_FORKED, futures count as done, and closing, destroying or releasing what the
 *     parent created does nothing. Nothing else of the parent's worker may be used in the child.
 *   - Gradients are f32, and of f64 tensors f64.
 */
#ifndef MILLRACE_RPC_H
#define MILLRACE_RPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "mr_api.h"
#include "mr_status.h"
#include "mr_tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MR_RPC_NAME_BYTES    64u /* of workers and functions, with the NUL */
#define MR_RPC_WORLD_MAX     1024u
#define MR_RPC_ARGUMENTS_MAX 96u /* and results */

struct mr_rpc;        /* this process's worker */
struct mr_rpc_future; /* the outcome of a call in flight */
struct mr_rpc_result; /* the values that a call returned */
struct mr_rpc_call;   /* a call that a function of this worker is executing */
struct mr_rref;       /* a handle to a value that lives on its owner */
struct mr_autograd;   /* a distributed autograd context */

/* ---- values ---- */

enum mr_value_kind {
    MR_VALUE_NONE = 0,
    MR_VALUE_TENSOR = 1,
    MR_VALUE_I64 = 2,
    MR_VALUE_F64 = 3,
    MR_VALUE_STRING = 4, /* bytes, followed by a NUL that is not counted */
    MR_VALUE_RREF = 5,
    MR_VALUE_OBJECT = 6, /* a pointer on its owner; only references to it travel */
};

/* An argument or a result. Whoever fills it in owns what it points to. What the library fills in points to
 * the library's memory: valid until the result is freed, or until the function returns. */
struct mr_value {
    enum mr_value_kind kind;
    /* The value's number on the context's tape on this worker. 0, or a number of another context, means a
     * constant. Keep it when you pass a value on. */
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

/* Returns no value: an empty result, or the gradient of an argument that has none. */
MR_API struct mr_value mr_value_none(void);
MR_API struct mr_value mr_value_tensor(struct mr_tensor tensor);
MR_API struct mr_value mr_value_i64(int64_t i64);
MR_API struct mr_value mr_value_f64(double f64);
MR_API struct mr_value mr_value_string(const char *text);
MR_API struct mr_value mr_value_rref(struct mr_rref *rref);

/* ---- functions ---- */

/* A function that workers call. Runs on an executor thread, and may block and call other workers. Gives its
 * results with mr_rpc_return*(). A status other than MR_OK reaches the caller with the text that was given to
 * mr_rpc_fail(). */
typedef enum mr_status (*mr_rpc_run)(struct mr_rpc_call *call, const struct mr_value *arguments,
                                     uint32_t argument_count);
/* The backward of a function. `gradients` has one gradient for each result, of the result's shape; its data
 * is NULL where nothing depends on that result. Gives with mr_rpc_return*() one gradient for each argument:
 * an f32 tensor of the argument's shape, or mr_value_none(). For a reference to a value of this worker that
 * was computed in the same context, that is the gradient of the value. `saved` is what the forward run gave
 * to mr_rpc_save(). Runs on an executor thread, or on the thread that calls mr_autograd_backward(). */
typedef enum mr_status (*mr_rpc_backward)(struct mr_rpc_call *call, void *saved,
                                          const struct mr_tensor *gradients, uint32_t gradient_count);

enum mr_rpc_function_flag {
    /* The function runs on the thread that received the call. It must return within microseconds and must not
     * block. */
    MR_RPC_INLINE = 1u << 0,
    /* Its runs exclude each other while they compute, as those of functions in Python do: a call waits for
     * the one before rather than get a thread of its own, unless that takes long. */
    MR_RPC_SERIAL = 1u << 1,
    /* A recorded run of it takes part in any number of backward passes, also without `retain`; what it has
     * saved is destroyed with the context. */
    MR_RPC_RETAINED = 1u << 2,
};

/* A function to register. A signature is a list of: f32[32,?] (a dtype and dimensions; ? stands for any),
 * f32[...] (any dimensions), tensor (any), i64, f64, string, ref, object. "..." at the end allows any number
 * of further values; "" stands for none. A call that does not match fails with MR_WRONG_SIGNATURE, and the
 * error has both signatures. */
struct mr_rpc_function {
    const char *name;
    const char *arguments;
    const char *results;
    mr_rpc_run run;
    /* NULL: in a context, gradients flow through what the function itself records on the tape. */
    mr_rpc_backward backward;
    void *user; /* what mr_rpc_user() returns */
    uint32_t flags;
};

/* Returns mr_rpc_function.user of the function that the call executes. */
MR_API void *mr_rpc_user(const struct mr_rpc_call *call);
/* Returns the worker that executes the call. */
MR_API struct mr_rpc *mr_rpc_of(const struct mr_rpc_call *call);
/* Returns the rank of the caller. */
MR_API uint32_t mr_rpc_caller(const struct mr_rpc_call *call);
/* In a function's backward: returns the number of the pass, one for all workers, which no other pass of the
 * context has; 0: no backward runs. A pass that failed may have come to some functions only. */
MR_API uint64_t mr_rpc_pass(const struct mr_rpc_call *call);
/* Returns the microseconds until the caller gives up; UINT64_MAX: never. */
MR_API uint64_t mr_rpc_time_left_us(const struct mr_rpc_call *call);
/* Adds the next result, a copy of the value. MR_NO_MEMORY, MR_INVALID_ARGUMENT (too many). */
MR_API enum mr_status mr_rpc_return(struct mr_rpc_call *call, struct mr_value value);
/* Adds the next results. Languages that cannot pass a struct with a union use this. */
MR_API enum mr_status mr_rpc_return_values(struct mr_rpc_call *call, const struct mr_value *values,
                                           uint32_t count);
/* Adds a tensor as the next result. Write it to *data, which is 64-byte aligned, before the function
 * returns. */
MR_API enum mr_status mr_rpc_return_tensor(struct mr_rpc_call *call, enum mr_dtype dtype, uint32_t rank,
                                           const uint32_t *dims, void **data);
/* Adds the next result: an object, which stays on this worker. destroy(object) is called when the last
 * reference to it is released. Only functions that were called by mr_remote() may return an object; others
 * fail, and the object is destroyed. */
MR_API enum mr_status mr_rpc_return_object(struct mr_rpc_call *call, void *object, void (*destroy)(void *));
/* Has the call answered later: the function returns MR_OK, with no results or only some, and no thread waits.
 * Whoever has what it waits for adds results with mr_rpc_return*(), or an error with mr_rpc_fail(), and ends
 * it with mr_rpc_finish(). Until then its arguments stay valid, and the worker's memory is held, also after
 * mr_rpc_destroy(). MR_INVALID_ARGUMENT: the function runs inline or in mr_autograd_apply(), or has done this
 * before. */
MR_API enum mr_status mr_rpc_postpone(struct mr_rpc_call *call);
/* Any thread, once: ends a postponed call as if its function returned `status` now; it may not have returned
 * yet. The call must not be used after this. */
MR_API void mr_rpc_finish(struct mr_rpc_call *call, enum mr_status status);
/* Sets the error text of the call (as printf does; at most 400 bytes). Returns MR_FUNCTION_FAILED, so that a
 * function can end with `return mr_rpc_fail(...)`. */
MR_API enum mr_status mr_rpc_fail(struct mr_rpc_call *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- workers ---- */

struct mr_rpc_options {
    /* Where workers meet, as "10.0.0.1:7700": the address of a node, or the one on which rank 0 listens. Of a
     * cluster any of its nodes may be named, as "a:7700,b:7700": they are asked in turn which of them it is.
     * Required. */
    const char *rendezvous;
    bool rendezvous_is_node; /* for rank 0: a node listens at the rendezvous, rank 0 must not */
    /* The worker's own address; port 0: any free one. NULL: any free port on the address from which the
     * rendezvous is reached. Where some workers have IPv4 and some have IPv6, an address of each, as
     * "10.0.0.3:0,[fd00::3]:0": then the worker listens on all addresses of its machine, and each of the
     * others uses the one that it can reach. */
    const char *listen;
    const char *key_file;      /* as in mr_client_options */
    uint32_t init_timeout_ms;  /* time for all workers to join; 0 = 60000 */
    uint32_t timeout_ms;       /* default time-out of calls; 0 = 60000 */
    uint32_t dead_after_ms;    /* a worker that is silent for this long counts as dead; 0 = 10000 */
    uint32_t executor_threads; /* threads for functions of this worker; 0 = 16 */
    uint32_t busy_poll_us;     /* as in mr_client_options; 0 = 50 */
    size_t memory_bytes;       /* for messages; 0 = 256 MiB */
    size_t message_bytes;      /* limit for the arguments, results or gradients of one call; 0 = 1 GiB */
    /* Memory for messages of more than 7 MiB, which travel in parts, in addition to memory_bytes: received
     * ones until the function returns or the result is freed, and copies of arguments until they are sent.
     * 0 = twice message_bytes. */
    size_t long_memory_bytes;
    const struct mr_rpc_function *functions; /* registered before anybody can call them */
    uint32_t function_count;
    /* An open world: workers join and leave one by one. All of its workers say so. world_size is how many may
     * ever join, as ranks are not used again; the worker of rank 0 is the rendezvous, and comes first. */
    bool is_open;
};

struct mr_rpc_worker {
    char name[MR_RPC_NAME_BYTES];
    uint32_t rank;
    bool is_node, is_dead;
};

/* Joins the world, and returns once all world_size workers have joined; in an open world, once all of its
 * workers know this one. From then on every worker can be
 * called by name and rank. `error` gets one line. MR_DEADLINE_EXCEEDED: the line says how many workers are
 * missing, and their ranks. MR_UNKNOWN_OP: the workers meet elsewhere; the line says where. MR_UNREACHABLE:
 * nobody answers at the rendezvous; the line says whether nothing listens there or the keys probably differ,
 * or names both when that cannot be decided. MR_VERSION_MISMATCH: the rendezvous speaks another version of
 * the protocol; the line has both versions. MR_INVALID_ARGUMENT: the name or rank is taken, or other workers
 * have another world_size or none. */
MR_API enum mr_status mr_rpc_init(const char *name, uint32_t rank, uint32_t world_size,
                                  const struct mr_rpc_options *options, struct mr_rpc **rpc, char *error,
                                  size_t error_bytes);
/* Registers one more function. MR_INVALID_ARGUMENT: the name is taken, or a signature cannot be read. */
MR_API enum mr_status mr_rpc_register(struct mr_rpc *rpc, const struct mr_rpc_function *function);
/* Leaves the world gracefully: waits until every living worker has called this, no call is in flight, and no
 * worker holds a reference to a value of another; in an open world until this worker's own calls and
 * functions have ended. MR_DEADLINE_EXCEEDED: the last error names who is missing
 * or what is still held. The worker stays a member then until all may leave, which can happen before this is
 * called again; that call returns the outcome at once. A call after that fails with MR_INVALID_ARGUMENT.
 * timeout_ms 0: the default of calls. */
MR_API enum mr_status mr_rpc_shutdown(struct mr_rpc *rpc, uint32_t timeout_ms);
/* Returns how many living workers have not called mr_rpc_shutdown() yet, as far as this worker knows. When
 * there are none, nobody begins anything new, and a program may release references that it kept for
 * others. */
MR_API uint32_t mr_rpc_staying(struct mr_rpc *rpc);
/* Waits for the functions that run, then ends the worker's threads and closes its sockets. A worker that has
 * not left by mr_rpc_shutdown() notifies the others before, for a second at most, and is dead for them at
 * once. Whatever waits, or is called from now on, ends with MR_SHUTTING_DOWN. Results stay valid until they
 * are freed. After this only mr_rpc_destroy() and functions that free or release may be called. Calling it
 * again does nothing. */
MR_API void mr_rpc_close(struct mr_rpc *rpc);
/* Destroys the worker. Without mr_rpc_shutdown() before, the others see a worker that died. Other threads may
 * only call functions that free or release, from the moment this is called: futures, results, references,
 * contexts, versions and optimizers may be freed before, during and after it, in any order, by any thread.
 * Results and versions stay valid until they are freed. References can only be released (all else is
 * MR_SHUTTING_DOWN), and the values that this worker owned are gone. The worker's memory is given back with
 * the last of these handles. NULL is allowed. */
MR_API void mr_rpc_destroy(struct mr_rpc *rpc);
/* Returns one line about the last call that failed on this thread; "" if none has. */
MR_API const char *mr_rpc_last_error(void);

MR_API uint32_t mr_rpc_rank(const struct mr_rpc *rpc);
MR_API uint32_t mr_rpc_world_size(const struct mr_rpc *rpc);
/* Describes a worker, by rank or by name. MR_UNKNOWN_WORKER (in an open world, also a rank that nobody has
 * taken yet), MR_NOT_READY (not all have joined). */
MR_API enum mr_status mr_worker_info(struct mr_rpc *rpc, uint32_t rank, struct mr_rpc_worker *info);
MR_API enum mr_status mr_worker_by_name(struct mr_rpc *rpc, const char *name, struct mr_rpc_worker *info);

/* ---- calls ---- */

struct mr_rpc_call_options {
    uint32_t timeout_ms;         /* 0: the worker's default; UINT32_MAX: none */
    struct mr_autograd *context; /* the call is recorded there; NULL: it is not */
};

/* Calls a function of worker `to`, which may be this one, and waits. Free *result, which is NULL if the
 * function returns nothing; `result` may be NULL. options NULL: the defaults. A function runs at most
 * once; one whose caller gave up after it had begun runs to its end. MR_UNKNOWN_WORKER,
 * MR_UNKNOWN_FUNCTION, MR_WRONG_SIGNATURE, MR_FUNCTION_FAILED (the last error has the function's text),
 * MR_DEADLINE_EXCEEDED, MR_WORKER_DIED, MR_TOO_LARGE, MR_NO_MEMORY, MR_SHUTTING_DOWN, MR_BUSY (all threads
 * wait, and the call comes from a function that was called from a function, seven levels deep). */
MR_API enum mr_status mr_rpc_sync(struct mr_rpc *rpc, uint32_t to, const char *function,
                                  const struct mr_value *arguments, uint32_t argument_count,
                                  const struct mr_rpc_call_options *options, struct mr_rpc_result **result);
/* Begins such a call without waiting for it. Errors that are known at once are returned at once. */
MR_API enum mr_status mr_rpc_async(struct mr_rpc *rpc, uint32_t to, const char *function,
                                   const struct mr_value *arguments, uint32_t argument_count,
                                   const struct mr_rpc_call_options *options, struct mr_rpc_future **future);
/* Waits for the call to end, at the latest at its time-out. Call it once; then only mr_rpc_future_destroy()
 * may follow. */
MR_API enum mr_status mr_rpc_wait(struct mr_rpc_future *future, struct mr_rpc_result **result);
/* Returns whether the call has ended, so that mr_rpc_wait() would return at once. */
MR_API bool mr_rpc_done(struct mr_rpc_future *future);
/* A function that runs when a call has ended. It frees `result`. */
typedef void (*mr_rpc_then_run)(void *user, enum mr_status status, const char *error,
                                struct mr_rpc_result *result);
/* Has `then` run once when the call ends, or now if it has ended: on an executor thread of this worker, even
 * when running functions occupy all of them. Until that runs mr_rpc_cancel() may follow; the future must not
 * be used otherwise. */
MR_API enum mr_status mr_rpc_then(struct mr_rpc_future *future, mr_rpc_then_run then, void *user);
/* Ends the call with MR_CANCELLED, unless it has ended. If the function has not begun, it does not run. */
MR_API void mr_rpc_cancel(struct mr_rpc_future *future);
/* Destroys the future, and drops its outcome. NULL is allowed. */
MR_API void mr_rpc_future_destroy(struct mr_rpc_future *future);
/* The same of many, for programs to which each call of a function is dear. */
MR_API void mr_rpc_futures_destroy(struct mr_rpc_future *const *futures, uint32_t count);

/* Returns the number of values; 0 for NULL. */
MR_API uint32_t mr_rpc_result_count(const struct mr_rpc_result *result);
/* Returns value `i`, valid until the result is freed. NULL: there are fewer. */
MR_API const struct mr_value *mr_rpc_result_value(const struct mr_rpc_result *result, uint32_t i);
/* Frees the result, and releases the references in it; mr_rref_retain() keeps one. NULL is allowed. */
MR_API void mr_rpc_result_free(struct mr_rpc_result *result);

/* ---- references ---- */

/* A reference is used through handles, struct mr_rref: there is one for each value that was created or
 * received on this worker. Using a handle after its release fails with MR_INVALID_ARGUMENT (mr_rref_retain()
 * and mr_rref_release(): with an error line) as long as it is among the last 1024 that were released.
 * Functions that wait must not be called from an MR_RPC_INLINE function. */

/* Runs a function on worker `to`, where its result stays, and returns at once with a reference to it. The
 * first use of the reference reports a failure, including that the function could not be called. If there are
 * several results, the first is the value; mr_rref_to_here() returns all. timeout_ms limits how long the
 * function may take to begin. */
MR_API enum mr_status mr_remote(struct mr_rpc *rpc, uint32_t to, const char *function,
                                const struct mr_value *arguments, uint32_t argument_count,
                                const struct mr_rpc_call_options *options, struct mr_rref **rref);
/* Creates a reference to a value of this worker. The value is copied. If it is an object, destroy(object) is
 * called on a thread of the library when the last reference is released, and also when this fails.
 * MR_INVALID_ARGUMENT, MR_NO_MEMORY. */
MR_API enum mr_status mr_rref_create(struct mr_rpc *rpc, struct mr_value value, void (*destroy)(void *),
                                     struct mr_rref **rref);
/* The same, for languages that cannot pass a struct with a union. */
MR_API enum mr_status mr_rref_create_from(struct mr_rpc *rpc, const struct mr_value *value,
                                          void (*destroy)(void *), struct mr_rref **rref);
MR_API uint32_t mr_rref_owner(const struct mr_rref *rref);
MR_API bool mr_rref_is_owner(const struct mr_rref *rref);
/* Copies the value from its owner, and waits until it exists. The copy is a constant for autograd.
 * MR_INVALID_ARGUMENT (the value is an object), MR_WORKER_DIED, MR_DEADLINE_EXCEEDED, MR_NO_MEMORY,
 * MR_SHUTTING_DOWN, or the status of the function that was to compute it. */
MR_API enum mr_status mr_rref_to_here(struct mr_rref *rref, uint32_t timeout_ms,
                                      struct mr_rpc_result **result);
/* On the owner: waits until the value exists, and returns it in place, valid while the handle is held.
 * MR_INVALID_ARGUMENT: this worker is not the owner. Other errors as above. */
MR_API enum mr_status mr_rref_local_value(struct mr_rref *rref, uint32_t timeout_ms,
                                          const struct mr_value **value);
/* Waits until the owner has confirmed that it knows this handle. MR_WORKER_DIED, MR_DEADLINE_EXCEEDED,
 * MR_SHUTTING_DOWN. */
MR_API enum mr_status mr_rref_confirm(struct mr_rref *rref, uint32_t timeout_ms);
/* Adds a holder to the handle on this worker; each holder releases it once. */
MR_API void mr_rref_retain(struct mr_rref *rref);
/* Releases the handle, which must not be used after that. A handle that was passed to a call may be released
 * as soon as the call has returned. NULL is allowed. */
MR_API void mr_rref_release(struct mr_rref *rref);

/* ---- autograd ---- */

/* Begins a context. A call in the context makes it known to the worker that is called. MR_NO_MEMORY, also
 * when this worker has 4096 contexts that it has not ended. */
MR_API enum mr_status mr_autograd_begin(struct mr_rpc *rpc, struct mr_autograd **context);
/* Ends the context on all workers. Only the worker that began it can end it; elsewhere this does nothing.
 * Calls in it that arrive later are refused, and a backward pass in it fails. The death of a worker ends the
 * contexts that it began. NULL is allowed. */
MR_API void mr_autograd_end(struct mr_autograd *context);
/* Returns the context's number, which is the same on all workers. */
MR_API uint64_t mr_autograd_id(const struct mr_autograd *context);
/* Returns the context of the call that a function executes; NULL: it has none. The call owns it: do not end
 * it. */
MR_API struct mr_autograd *mr_rpc_context(const struct mr_rpc_call *call);
/* Makes a value of a tensor whose gradient is wanted, with a number on the tape. */
MR_API enum mr_status mr_autograd_leaf(struct mr_autograd *context, struct mr_tensor tensor,
                                       struct mr_value *value);
/* In the forward run of a differentiable function: saves something for its backward. It is destroyed after
 * the backward, or with the context; outside of a context, when the function returns. At most once in a
 * call. */
MR_API enum mr_status mr_rpc_save(struct mr_rpc_call *call, void *saved, void (*destroy)(void *));
/* Runs a function of this worker on the calling thread, and records it on the tape. MR_UNKNOWN_FUNCTION,
 * MR_WRONG_SIGNATURE, MR_NO_MEMORY, or the status of the function, with its text. `result` may be NULL. */
MR_API enum mr_status mr_autograd_apply(struct mr_autograd *context, const char *function,
                                        const struct mr_value *arguments, uint32_t argument_count,
                                        struct mr_rpc_result **result);
/* Records a run of a differentiable function of this worker that the program has done by itself: `outputs`
 * were computed from `inputs`, which are recognised by their `gradient`. Only the shapes of outputs are
 * looked at, and those that are f32 or f64 tensors get their number here. The function's backward gets
 * `saved`, which is destroyed as in mr_rpc_save(), also when this fails. MR_UNKNOWN_FUNCTION,
 * MR_INVALID_ARGUMENT (the function has no backward, there are too many values, the context has ended),
 * MR_NO_MEMORY. */
MR_API enum mr_status mr_autograd_record(struct mr_autograd *context, const char *function,
                                         const struct mr_value *inputs, uint32_t input_count,
                                         struct mr_value *outputs, uint32_t output_count, void *saved,
                                         void (*destroy)(void *));
/* In a backward, or in any call in a context: adds to the gradient of a parameter of this worker, in the
 * call's context. MR_INVALID_ARGUMENT (no context, a parameter of another worker, not f32 or f64),
 * MR_WRONG_SHAPE, MR_NO_MEMORY. */
MR_API enum mr_status mr_autograd_add_gradient(struct mr_rpc_call *call, struct mr_rref *parameter,
                                               const struct mr_tensor *gradient);
/* Runs a backward pass from scalar losses (f32 or f64, one element) through all workers, and adds the
 * gradients up in the context. Only one pass at a time may run in a context, and it has the worker's time-out
 * (MR_DEADLINE_EXCEEDED). A recorded run takes part in one pass: a second pass over it fails with
 * MR_INVALID_ARGUMENT unless the first had `retain` set. MR_WORKER_DIED, MR_WRONG_SHAPE (a function's
 * backward gave a gradient of another shape than the argument's), or the status of a function's backward,
 * with its text. If gradients had begun to flow, nothing can be done with the context after that but to end
 * it. */
MR_API enum mr_status mr_autograd_backward(struct mr_autograd *context, const struct mr_value *losses,
                                           uint32_t loss_count, bool retain);
/* Returns the gradient of a leaf, valid until the next pass in the context, or its end. Its data is NULL
 * if no loss depended on the leaf. MR_INVALID_ARGUMENT: the value is not a leaf of this context on this
 * worker. */
MR_API enum mr_status mr_autograd_gradient(struct mr_autograd *context, const struct mr_value *leaf,
                                           struct mr_tensor *gradient);
/* Returns the gradients of the parameters that worker `of` owns, which may be this one, as pairs of a
 * reference and a tensor. Call it while no pass runs in the context. Fails as calls do. */
MR_API enum mr_status mr_autograd_gradients(struct mr_autograd *context, uint32_t of,
                                            struct mr_rpc_result **pairs);

/* ---- parameters and the distributed optimizer ---- */

/* A parameter is a reference whose value is an f32 tensor that optimizers change. A reader holds one
 * version, which does not change until the reader is done with it, while optimizers make later ones.
 * mr_rref_to_here() copies the newest version; mr_rref_local_value() of a parameter is an object without
 * meaning to programs. */
struct mr_parameter_version;
/* Creates a parameter with a copy of `initial`, an f32 tensor of at least one element. MR_INVALID_ARGUMENT,
 * MR_NO_MEMORY. */
MR_API enum mr_status mr_parameter_create(struct mr_rpc *rpc, const struct mr_tensor *initial,
                                          struct mr_rref **parameter);
/* Returns the parameter of this worker that has this name, or creates it with a copy of `initial`. Of a
 * node's worker, a parameter with a name is part of the node's checkpoints, and outlives its references and
 * the world: a node that was started again returns it with the values that were saved. Names have 1 to 63 of
 * the characters A-Z a-z 0-9 _ . / : - ; a model's name and a path, such as "mnist/conv1.weight", keep them
 * apart. MR_WRONG_SHAPE: the parameter is there with another shape, which the last error names;
 * MR_INVALID_ARGUMENT, MR_NO_MEMORY. */
MR_API enum mr_status mr_parameter_open(struct mr_rpc *rpc, const char *name, const struct mr_tensor *initial,
                                        struct mr_rref **parameter);
/* On the owner: returns the newest version, to be held until mr_parameter_done(). Waits while a step changes
 * it in place. A version outlives its parameter. MR_INVALID_ARGUMENT: the reference is not a parameter, or
 * another worker owns it. */
MR_API enum mr_status mr_parameter_read(struct mr_rref *parameter, struct mr_parameter_version **version);
/* Returns the version's tensor, 64-byte aligned, valid until mr_parameter_done(). */
MR_API const struct mr_tensor *mr_parameter_tensor(const struct mr_parameter_version *version);
/* Returns the version's number, which rises with each step. */
MR_API uint64_t mr_parameter_number(const struct mr_parameter_version *version);
/* Ends the use of a version. NULL is allowed. */
MR_API void mr_parameter_done(struct mr_parameter_version *version);

enum mr_dist_optimizer_kind { MR_DIST_SGD = 1, MR_DIST_ADAGRAD = 2, MR_DIST_ADAM = 3 };
/* The formulas are those of torch.optim, see docs/optimizers.md. 0 stands for torch's default of that
 * optimizer, except that a learning rate of 0 counts if has_learning_rate is set: then values do not change.
 * SGD has no default learning rate. Options that an optimizer does not have must be 0. */
struct mr_dist_optimizer_options {
    enum mr_dist_optimizer_kind kind;
    float learning_rate, momentum, beta1, beta2, epsilon, weight_decay, initial_accumulator;
    bool nesterov;
    bool has_learning_rate; /* learning_rate counts, even if it is 0 */
    /* With a name, the owners keep the state under it beside their parameters, which must have names, too:
     * nodes save it, and an optimizer of the same name, kind and momentum goes on with it. Give each
     * trainer's optimizer a name of its own; two that share a name share their state. NULL: the state ends
     * with the optimizer. */
    const char *name;
};
struct mr_dist_optimizer;
/* Creates an optimizer of parameters that any workers own; each may be listed once. Its state lies with the
 * owner of each parameter. Two optimizers of one parameter have separate states. MR_INVALID_ARGUMENT (an
 * option or a parameter is invalid), MR_WORKER_DIED, MR_NO_MEMORY, and the errors of calls. */
MR_API enum mr_status mr_dist_optimizer_create(struct mr_rpc *rpc,
                                               const struct mr_dist_optimizer_options *options,
                                               struct mr_rref *const *parameters, uint32_t parameter_count,
                                               struct mr_dist_optimizer **optimizer);
/* Makes each owner compute the next version of every parameter that has a gradient in the context, and
 * returns when all have. Steps of several trainers are applied one after the other at each owner. A step is
 * applied at most once; after MR_DEADLINE_EXCEEDED it is not known whether it was. If an owner is dead or
 * fails, the others are updated, and the last error names the parameters that were not. A parameter whose
 * gradient has NaN or Inf keeps its value: MR_INVALID_ARGUMENT. May be called from several threads, with
 * different contexts. */
MR_API enum mr_status mr_dist_optimizer_step(struct mr_dist_optimizer *optimizer, struct mr_autograd *context,
                                             uint32_t timeout_ms);
/* Returns how many steps the optimizer of this name has made, over all that had its name, as far as the
 * owners have kept them: after a node was restored, those that its checkpoint has. So a trainer that joins
 * again knows with which batch to go on. Of several owners it is the lowest number. MR_INVALID_ARGUMENT: the
 * optimizer has no name; and the errors of calls. */
MR_API enum mr_status mr_dist_optimizer_steps(struct mr_dist_optimizer *optimizer, uint64_t *steps);
/* Destroys the optimizer; its parameters stay. NULL is allowed. */
MR_API void mr_dist_optimizer_destroy(struct mr_dist_optimizer *optimizer);

/* ---- modules ---- */

/* A shared object that a node loads exports this function, which registers functions. `arguments` is the rest
 * of the module's line in the configuration. A status other than MR_OK, with a line in `error`, keeps the
 * node from starting. */
typedef enum mr_status (*mr_module_init)(struct mr_rpc *rpc, const char *arguments, char *error,
                                         size_t error_bytes);
#define MR_MODULE_INIT_SYMBOL "millrace_module_init"
/* It may export this function, too. The node calls it when the node stops and when all other workers have
 * left or died, unless init failed. No function runs then and none begins, but the node is still a worker and
 * can make calls. When it returns, threads of the module must have ended their last call. What the module
 * holds of the worker (results, futures, contexts, references) may be released before or after, but the
 * worker itself must not be used again; what is held for longer keeps the memory of messages until the node
 * stops. After the end of a world init is called again, with the worker of the next one. */
typedef void (*mr_module_exit)(struct mr_rpc *rpc);
#define MR_MODULE_EXIT_SYMBOL "millrace_module_exit"

#ifdef __cplusplus
}
#endif
#endif
