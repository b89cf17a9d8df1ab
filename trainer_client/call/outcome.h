/* What the answers of all cores come to: one outcome, the line of text that goes with it, and the tensors
 * that the caller gets. */
#ifndef MRC_OUTCOME_H
#define MRC_OUTCOME_H

#include "dataplane/wire/format/message.h"
#include "trainer_client/call/future.h"

/* Returns the outcome of an ended call, for the thread that waits for it; not under the lock. MR_OK when
 * every core says so (or that it had applied the batch before). Otherwise it is the status of the first core
 * that says something else, and mrc_error() reports it. MR_UNKNOWN_OUTCOME takes precedence; it is also the
 * outcome of a call that must not be repeated and that only some cores applied. */
enum mr_status mrc_outcome(struct mr_future *f);
/* Returns the status that decides that outcome, without reporting it. */
enum mr_status mrc_outcome_status(const struct mr_future *f);
/* Returns whether all of a push that failed was applied or will be, as what nobody answered is kept to be
 * sent again. */
bool mrc_outcome_is_kept(const struct mr_future *f);
/* Sums over the cores what became of a push that succeeded and asked for it. MR_BAD_MESSAGE, reported by
 * mrc_error(). */
enum mr_status mrc_pushed(const struct mr_future *f, struct mr_pushed *out);

/* Returns request 0's tensors, and takes over its call: they are views into its receive buffer. NULL when
 * memory is short (reported by mrc_error()). */
struct mr_reply *mrc_reply_view(struct mr_future *f);
/* Hands out request 0's tensors where `reply` is not NULL. MR_NO_MEMORY: *reply is left alone. */
enum mr_status mrc_reply_give(struct mr_future *f, struct mr_reply **reply);
/* Reports that a reply's tensors are not what `op` returns, with the versions of both sides: of the client's
 * first server where the reply was joined from several. Not under the lock. Returns MR_BAD_MESSAGE. */
enum mr_status mrc_reply_garbled(const struct mr_client *client, const struct mr_reply *reply, enum mr_op op);
/* Returns how much room a tensor of this length takes in a reply's memory. */
static inline size_t mrc_reply_room(uint64_t bytes)
{
    return (bytes + MR_TENSOR_ALIGN - 1) / MR_TENSOR_ALIGN * MR_TENSOR_ALIGN;
}
/* Returns a reply with one tensor over `memory`, which comes from malloc or aligned_alloc and is taken over;
 * on failure it is freed. For answers of several cores that were joined. */
struct mr_reply *mrc_reply_own(struct mr_tensor tensor, void *memory);
/* The same with several tensors, whose data lies in `memory`. */
struct mr_reply *mrc_reply_own_all(const struct mr_tensor *tensors, uint32_t count, void *memory);

#endif
