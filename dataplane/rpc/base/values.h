/* Values in messages: the arguments of a call, or its results.
 *
 * The first tensor of such a message, u8[n], holds the head, a struct mr_value_wire per value, the words of
 * references, the function's name (in requests) and the strings, each followed by a NUL. The tensors that
 * follow are the tensor values, in order. So an empty call is one small tensor, and tensors are read where
 * they arrived.
 *
 * Pure, except for the hooks. All integers are little endian.
 */
#ifndef MR_RPC_VALUES_H
#define MR_RPC_VALUES_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/rpc/millrace_rpc.h"
#include "dataplane/wire/format/message.h"

struct mr_rpc_head {
    uint64_t context;    /* id of the autograd context; 0: none, and then values have no numbers */
    uint64_t invocation; /* counts the caller's calls in that context, from 1; in replies 0 */
    uint64_t reference;  /* MR_RPC_REMOTE: the id under which the callee keeps the result */
    uint64_t fork;       /* MR_RPC_REMOTE: the caller's hold of it */
    uint64_t number;     /* counts the caller's calls, for MR_OP_RPC_CANCEL; in replies 0 */
    /* Until the caller gives up; UINT64_MAX: never; in replies 0. The message itself has no deadline. */
    uint64_t time_left_us;
    uint16_t flags; /* enum mr_rpc_head_flag; in replies 0 */
    uint16_t depth; /* nested functions that wait for the call; in replies 0 */
    uint16_t value_count;
    uint16_t name_bytes; /* of the function, without its NUL; in replies 0 */
};
static_assert(sizeof(struct mr_rpc_head) == 56, "head size");

enum mr_rpc_head_flag {
    /* The result stays on the callee. The answer has no result: it is MR_OK once the callee keeps the result,
     * or the reason why there is none. */
    MR_RPC_REMOTE = 1u << 0,
};

struct mr_value_wire {
    uint32_t kind; /* enum mr_value_kind, never MR_VALUE_OBJECT */
    uint32_t gradient;
    uint64_t word; /* i64: two's complement; f64: its bits; string: bytes without the NUL; else 0 */
};
static_assert(sizeof(struct mr_value_wire) == 16, "value size");

/* A reference in a message: {owner's rank, its id, id of the receiver's fork}. */
#define MR_RREF_WORDS 3u

/* What happens to references among values; inside. rref/rref.c implements it, and so do tests. */
struct mr_value_hooks {
    void *self;
    /* Sends a handle to worker `to`. */
    enum mr_status (*pass_out)(void *self, struct mr_rref *rref, uint32_t to, uint64_t words[MR_RREF_WORDS]);
    /* Takes back what pass_out() gave: it has not left, and never will. */
    void (*unpass)(void *self, const uint64_t words[MR_RREF_WORDS]);
    /* Receives a handle from worker `from`; it belongs to the owner of the values. */
    enum mr_status (*take_in)(void *self, uint32_t from, const uint64_t words[MR_RREF_WORDS],
                              struct mr_rref **rref);
};

/* Returns the bytes of the first tensor. 0: a value cannot travel (an object, an unknown kind, a NULL
 * reference, a NULL string with bytes), or there are more than MR_RPC_ARGUMENTS_MAX. */
size_t mr_values_head_bytes(const char *name, const struct mr_value *values, uint32_t count);
/* Returns about how many bytes the message takes, of values that can travel; UINT64_MAX: too many to
 * count. */
uint64_t mr_values_bytes(const char *name, const struct mr_value *values, uint32_t count);
/* Passes the references among the values to worker `to`, and writes each to the next MR_RREF_WORDS of
 * `words`, which has room for `count` of them. If one cannot be passed, none is. */
enum mr_status mr_values_pass(const struct mr_value *values, uint32_t count,
                              const struct mr_value_hooks *hooks, uint32_t to, uint64_t *words);
/* Takes them back: they have not left, and never will. */
void mr_values_unpass(const uint64_t *words, uint32_t references, const struct mr_value_hooks *hooks);
uint32_t mr_values_references(const struct mr_value *values, uint32_t count);
/* Writes the first tensor to `out`, which has mr_values_head_bytes() and is 8-byte aligned, with the words of
 * mr_values_pass(). Sets head->value_count and name_bytes from the other arguments. name NULL: a reply. */
void mr_values_write(uint8_t *out, const struct mr_rpc_head *head, const char *name,
                     const struct mr_value *values, uint32_t count, const uint64_t *words);
/* Lists the message's tensors: `head` of `head_bytes`, and all tensor values. Returns their number; `tensors`
 * has room for 1 + MR_RPC_ARGUMENTS_MAX. */
uint32_t mr_values_tensors(const void *head, size_t head_bytes, const struct mr_value *values, uint32_t count,
                           struct mr_tensor *tensors);

/* Reads a message: *head, *name (NUL-terminated, "" in replies) and up to MR_RPC_ARGUMENTS_MAX values, all
 * views into the message. False: it is malformed, or a reference could not be taken in; then *count is set,
 * those taken in before are in `values`, and the rest is MR_VALUE_NONE. hooks NULL: a message with references
 * is malformed. */
bool mr_values_decode(const struct mr_message *message, struct mr_rpc_head *head, const char **name,
                      struct mr_value *values, uint32_t *count, const struct mr_value_hooks *hooks,
                      uint32_t from);
/* Reads only the head and the name, to find the function before there is room for the values. */
bool mr_values_peek(const struct mr_message *message, struct mr_rpc_head *head, const char **name);

/* Return the bytes of a copy of these values in one block, and make it: `out` is 64-byte aligned, and
 * `copies` point into it. References and objects are copied as they are. */
size_t mr_values_copy_bytes(const struct mr_value *values, uint32_t count);
void mr_values_copy(const struct mr_value *values, uint32_t count, struct mr_value *copies, uint8_t *out);

#endif
