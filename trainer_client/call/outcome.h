/* One outcome out of what each core said, and the line of text that goes with it. */
#ifndef MRC_OUTCOME_H
#define MRC_OUTCOME_H

#include "trainer_client/call/future.h"

/* Of an ended call, for the thread that waits for it; not under the lock. MR_OK when every core says so (or
 * that it had applied the batch before). Else the first core's that does not, reported by mrc_error(); but
 * MR_UNKNOWN_OUTCOME comes before all others, and stands, too, for a call that must not be repeated and was
 * applied by some cores only. */
enum mr_status mrc_outcome(struct mr_future *f);
/* The node's cores changed under it, and it may be made again: mrc_outcome() would be MR_CANCELLED. */
bool mrc_outcome_is_overtaken(const struct mr_future *f);
/* What became of a push that went well and asked for it, summed over the cores. MR_BAD_MESSAGE, told by
 * mrc_error(). */
enum mr_status mrc_pushed(const struct mr_future *f, struct mr_pushed *out);

#endif
