/* Tensors on their way to the caller: views into the receive buffer of one part, or memory of their own where
 * the answers of several cores had to be put together. */
#ifndef MRC_REPLY_H
#define MRC_REPLY_H

#include "trainer_client/call/future.h"
#include "trainer_client/millrace.h"

/* Part i's tensors; takes over its call. NULL when memory is short (and mrc_error() said so). */
struct mr_reply *mrc_reply_view(struct mr_future *f, uint32_t i);
/* Hands out part 0's tensors where `reply` is not NULL. MR_NO_MEMORY: *reply is left alone. */
enum mr_status mrc_reply_give(struct mr_future *f, struct mr_reply **reply);
/* One tensor over `memory`, which was allocated by malloc or aligned_alloc and is taken over; on failure it
 * is freed. */
struct mr_reply *mrc_reply_own(struct mr_tensor tensor, void *memory);

#endif
