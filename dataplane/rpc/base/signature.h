/* Signatures of functions: what kinds and shapes of values one takes and returns.
 *
 * "f32[32,?], i64, ...": a list of
 *   f32[32,?]   a tensor of that dtype and those dims, ? any; f32[] is a scalar
 *   f32[...]    a tensor of that dtype, of any dims
 *   tensor      any tensor
 *   i64 f64 string ref object
 *   ...         last: any values more
 * Pure.
 */
#ifndef MR_RPC_SIGNATURE_H
#define MR_RPC_SIGNATURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/rpc/millrace_rpc.h"

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

#endif
