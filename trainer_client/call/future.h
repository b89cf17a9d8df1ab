/* The future of a call, as its caller has it: waiting, polling, notices. */
#ifndef MRC_FUTURE_H
#define MRC_FUTURE_H

#include "trainer_client/call/call.h"

/* Begins the call unless that has been done, and sends it. Then, as the options say, hands the future out, or
 * waits, writes `*reply` (NULL: not wanted) and frees the future. Frees it on failure, too. May return what
 * mrc_future_begin() does. Not under the lock. */
enum mr_status mrc_future_run(struct mr_future *f, const struct mr_options *options, struct mr_reply **reply);
/* Adds 1 to the eventfd of mr_future_notify(), if there is one. Under the lock. */
void mrc_future_notify(const struct mr_future *f);
/* Notifies callers again that were notified and polled too early, as a retry found no room or no map: when
 * there is either, or the deadline passes. The second function returns when that is. Under the lock. */
void mrc_futures_notify_pending(struct mr_client *client);
uint64_t mrc_futures_next_us(const struct mr_client *client);

#endif
