/* A series of calls in place of one that is larger than a message: one outcome, and one future for the
 * caller. Each of them is a call of its own, with its own number, and is repeated by itself.
 *
 * The thread that makes the call makes them one after the other, and waits for the first while
 * MRC_SERIES_IN_FLIGHT of them are in flight; so only the last ones are in flight when the future is handed
 * out. All have the call's deadline. A future, and what is here, is one thread's at a time; not under the
 * lock. */
#ifndef MRC_SERIES_H
#define MRC_SERIES_H

#include <stdbool.h>
#include <stdint.h>
#include "trainer_client/call/future.h"
#include "trainer_client/call/last_error.h"

#define MRC_SERIES_IN_FLIGHT 4u

/* A call in flight. */
struct mrc_series_call {
    struct mr_future *future;
    struct mr_pushed pushed;
};

/* Part of what its owner allocates, and fills in up to `free`. */
struct mrc_series {
    struct mr_client *client;
    enum mr_op op;
    struct mr_options options; /* the caller's; all calls get them, but for their futures and deadlines */
    uint64_t deadline_us;      /* of all calls */
    uint32_t call_count;
    /* Takes the answer of a call; they come in the order of the calls, from 0. NULL: none is wanted. */
    enum mr_status (*take)(struct mrc_series *s, uint32_t call, const struct mr_reply *reply);
    /* Sets *reply from what was taken. */
    enum mr_status (*give)(struct mrc_series *s, struct mr_reply **reply);
    void (*free)(struct mrc_series *s);

    /* the functions' own; zero to begin with */
    struct mr_future *future; /* to be handed out; NULL: none is wanted, or it has been */
    struct mr_options next;   /* of the call that is being made */
    uint32_t made, taken;
    struct mrc_series_call
        calls[MRC_SERIES_IN_FLIGHT]; /* call i is in i % MRC_SERIES_IN_FLIGHT, taken to made */
    uint32_t succeeded, kept;        /* kept: nobody answered the push, and it will be sent again */
    bool has_failed;                 /* otherwise than that: no more calls are made */
    enum mr_status failure;          /* which the caller gets, with its line; MR_OK: none */
    char line[MRC_ERROR_BYTES];
    struct mr_pushed pushed;
};

/* Begins a series; it makes the future if the options have one. MR_NO_MEMORY, reported by mrc_error(). */
enum mr_status mrc_series_begin(struct mrc_series *s);
/* Waits until the next call may be made, and returns the options to make it with; they stay until
 * mrc_series_made(). NULL: none is to be made any more, as one has failed. */
const struct mr_options *mrc_series_next(struct mrc_series *s);
/* The call has been made with those options, or failed to be. */
void mrc_series_made(struct mrc_series *s, enum mr_status status);
/* All have been made, or one has failed. As the caller's options say, hands a future out, or waits, writes
 * `*reply` (NULL: not wanted) and frees `s`. Frees it on failure, too. With a future, only the failure of the
 * first call to be made is returned; the future has others. */
enum mr_status mrc_series_run(struct mrc_series *s, struct mr_reply **reply);

/* For the future that was handed out (future.c). The outcome of all calls; may be called once. */
enum mr_status mrc_series_wait(struct mrc_series *s, struct mr_reply **reply);
/* Returns whether all have ended, for which it waits until then at most. */
bool mrc_series_poll(struct mrc_series *s, uint64_t until_us);
/* Each of them adds 1 to the eventfd. */
void mrc_series_notify(struct mrc_series *s, int event_fd);
/* Frees it; calls in flight continue. */
void mrc_series_free(struct mrc_series *s);

#endif
