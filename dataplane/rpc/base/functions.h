/* The functions that a worker offers, by name, and their signatures: the kinds and shapes of values that one
 * takes and returns. Functions are added, and never removed: one that was found stays.
 *
 * Lookups need no lock, and may run beside mr_functions_add() on any thread.
 */
#ifndef MR_RPC_FUNCTIONS_H
#define MR_RPC_FUNCTIONS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/rpc/millrace_rpc.h"

/* ---- signatures; pure ---- */

/* A signature is a list, as in "f32[32,?], i64, ...":
 *   f32[32,?]   a tensor of that dtype and those dims; ? is any dim, and f32[] is a scalar
 *   f32[...]    a tensor of that dtype, of any dims
 *   tensor      any tensor
 *   i64 f64 string ref object
 *   ...         at the end: any further values
 */
struct mr_signature_part {
    enum mr_value_kind kind;
    enum mr_dtype dtype; /* MR_DTYPE_NONE: any tensor */
    bool any_dims;
    uint32_t rank;
    uint64_t dims[MR_RANK_MAX]; /* UINT64_MAX: any */
};

struct mr_signature {
    uint32_t count;
    bool more;
    struct mr_signature_part *parts; /* owned */
};

/* MR_INVALID_ARGUMENT, with one line in `error` that says what cannot be read; MR_NO_MEMORY. text NULL is
 * "". */
enum mr_status mr_signature_read(const char *text, struct mr_signature *out, char *error, size_t error_bytes);
void mr_signature_free(struct mr_signature *signature);

/* A reference matches "ref" and "object" alike: what it refers to is its owner's business. */
bool mr_signature_matches(const struct mr_signature *signature, const struct mr_value *values,
                          uint32_t count);
/* "f32[2,3], i64": what the values are, cut at `bytes`. */
void mr_signature_describe(const struct mr_value *values, uint32_t count, char *out, size_t bytes);

/* ---- functions ---- */

#define MR_FUNCTIONS_MAX 4096u /* of one worker */
/* Names that begin so are the library's own. */
#define MR_FUNCTION_OWN_PREFIX "mr."

struct mr_function {
    char name[MR_RPC_NAME_BYTES];
    char *arguments_text, *results_text; /* as registered */
    struct mr_signature arguments, results;
    mr_rpc_run run;
    mr_rpc_backward backward;
    void *user;
    uint32_t flags;
    _Atomic uint32_t run_ns; /* how long it took lately; see serving.c */
};

#define MR_FUNCTION_SLOTS (2u * MR_FUNCTIONS_MAX)

struct mr_functions {
    pthread_mutex_t adding;
    uint32_t count;
    struct mr_function *_Atomic slots[MR_FUNCTION_SLOTS]; /* open addressing by hash of the name */
};

void mr_functions_init(struct mr_functions *functions);
void mr_functions_fini(struct mr_functions *functions);

/* Copies all of it. `own`: the library's, whose name begins with "mr."; a user's must not.
 * MR_INVALID_ARGUMENT (no name or run, a name too long or taken, a signature that cannot be read, unknown
 * flags), MR_NO_MEMORY, with one line in `error`. */
enum mr_status mr_functions_add(struct mr_functions *functions, const struct mr_rpc_function *function,
                                bool own, char *error, size_t error_bytes);
/* Of all that were added when this began; in no order. */
void mr_functions_each(struct mr_functions *functions,
                       void (*visit)(void *arg, const struct mr_function *function), void *arg);
/* NULL: there is none. */
struct mr_function *mr_functions_find(struct mr_functions *functions, const char *name);

#endif
