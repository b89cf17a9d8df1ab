/* Room for a call's requests: one message to each core concerned, all of them or none. */
#ifndef MRC_REQUEST_H
#define MRC_REQUEST_H

#include <stdint.h>
#include "trainer_client/call/future.h"

/* Under the client's lock. MR_NO_MEMORY: there is no room now (mrc_error() was not called). */
enum mr_status mrc_request_begin(struct mr_future *f);
/* The same, giving the lock up to wait for room while calls are in flight, until the call's deadline. */
enum mr_status mrc_request_begin_waiting(struct mr_future *f);
/* Give back what was begun and not sent. Under the lock. */
void mrc_request_undo(struct mr_future *f);
/* A part is no longer in flight: its request makes room. Under the lock. */
void mrc_request_ended(struct mrc_part *part);

/* Bytes of all tensors; and copying those that have a source into the requests, once begun. With or without
 * the lock. */
uint64_t mrc_request_bytes(const struct mr_future *f);
void mrc_request_copy(struct mr_future *f);

#endif
