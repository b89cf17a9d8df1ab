/* Several calls in place of one that is larger than a message: one outcome, one reply, and one future for the
 * caller. Each of them is a call of its own, with its own number, and is repeated by itself.
 *
 * The thread that makes the call makes them one after the other, and waits for the first while
 * MRC_JOINED_IN_FLIGHT of them are in flight; so only the last ones are in flight when the future is handed
 * out. All have the call's deadline. A future, and what is here, is one thread's at a time; not under the
 * lock. */
#ifndef MRC_JOINED_H
#define MRC_JOINED_H

#include <stdbool.h>
#include <stdint.h>
#include "trainer_client/call/future.h"

#define MRC_JOINED_IN_FLIGHT 4u

struct mrc_joined;

/* A tensor of the reply: f32 [rows, dim]. */
struct mrc_joined_tensor {
    uint32_t rows;
    uint32_t dim; /* 0: as the first answer has it; the reply has only one tensor then */
};

/* Which rows of the reply's tensor the next tensor of a call's answer has. */
struct mrc_joined_place {
    uint32_t tensor;
    uint32_t row, rows;
    uint32_t call; /* which of the calls; they rise from 0 without gaps */
};

/* What a call is joined from. */
struct mrc_joined_plan {
    uint64_t deadline_us; /* of all calls */
    uint32_t call_count, tensor_count, place_count;
    const struct mrc_joined_tensor *tensors; /* [tensor_count]; copied. 0: there is no reply */
    const struct mrc_joined_place *places;   /* [place_count]; copied */
};

/* Makes what joins the calls of `plan`. They get these options of the caller's, but for their futures and
 * deadlines. MR_NO_MEMORY, reported by mrc_error(). */
enum mr_status mrc_joined_new(struct mr_client *client, const struct mr_options *options, enum mr_op op,
                              const struct mrc_joined_plan *plan, struct mrc_joined **out);
/* Waits until the next call may be made, and returns the options to make it with; they stay until
 * mrc_joined_made(). NULL: none is to be made any more, as one has failed. */
const struct mr_options *mrc_joined_next(struct mrc_joined *j);
/* The call has been made with those options, or failed to be. */
void mrc_joined_made(struct mrc_joined *j, enum mr_status status);
/* All have been made, or one has failed. As the caller's options say, hands a future out, or waits, writes
 * `*reply` (NULL: not wanted) and frees `j`. Frees it on failure, too. With a future, only the failure of the
 * first call to be made is returned; the future has others. */
enum mr_status mrc_joined_run(struct mrc_joined *j, struct mr_reply **reply);

/* For the future that was handed out (future.c). The outcome of all calls; may be called once. */
enum mr_status mrc_joined_wait(struct mrc_joined *j, struct mr_reply **reply);
/* Returns whether all have ended, for which it waits until then at most. */
bool mrc_joined_poll(struct mrc_joined *j, uint64_t until_us);
/* Each of them adds 1 to the eventfd. */
void mrc_joined_notify(struct mrc_joined *j, int event_fd);
/* Frees it; calls in flight continue. */
void mrc_joined_free(struct mrc_joined *j);

#endif
