/* How long a client's own calls take, from the call to its last answer, and for a thread that waits for that
 * until it goes on, as histograms by operation. Calls without an answer are not counted; those that were made
 * again, for a change of owners, count from their first try. Everything is under the client's lock. */
#ifndef MRC_OWN_LATENCY_H
#define MRC_OWN_LATENCY_H

#include "trainer_client/call/future.h"

/* A future with answers to all of its requests has ended. */
void mrc_own_latency_ended(const struct mr_future *f);
void mrc_own_latency_destroy(struct mr_client *client);

#endif
