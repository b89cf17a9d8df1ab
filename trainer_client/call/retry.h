/* Retry contexts: calls that are split by the shard map are made again when the map changes under them.
 *
 * A call embeds a struct mrc_retry as the first member of its arguments, and says how one try is made.
 * mrc_retry_run() makes tries until the outcome stands or the deadline has come: all tries have the same
 * deadline, and count as one call in the client's latencies.
 *
 * A call with a future returns before its outcome is known, and the caller may reuse its memory at once. It
 * says how its arguments are copied; the copy belongs to the future, and the thread that waits for the future
 * or polls it makes the retries (mrc_retry_next()).
 *
 * A context is one thread's at a time. No function here may be called under the client's lock, unless it says
 * so. */
#ifndef MRC_RETRY_H
#define MRC_RETRY_H

#include "trainer_client/call/future.h"

enum mrc_retry_due {
    MRC_RETRY_NO,    /* the outcome stands */
    MRC_RETRY_NOW,   /* the call must be made again */
    MRC_RETRY_LATER, /* the same, but it was not possible until wait_until_us */
};

struct mrc_retry {
    struct mr_client *client;
    const struct mr_options *options; /* of the try that is being made; NULL: the defaults */
    enum mr_op op;
    /* Makes one try with `options`: splits the arguments by the shard map of now, calls mrc_retry_future(),
     * and runs the future. */
    enum mr_status (*make)(struct mrc_retry *r, struct mr_reply **reply);
    /* Returns whether a try that ended with this status must be made again. May wait, until wait_until_us or
     * the deadline. */
    enum mrc_retry_due (*is_due)(struct mrc_retry *r, enum mr_status status);
    /* Returns a copy of the context and the arguments, to be freed with free(); NULL: no memory, and the call
     * is not made again. As a member NULL: never made again once its future was handed out. */
    struct mrc_retry *(*copy)(const struct mrc_retry *r);

    /* the functions' own; zero to begin with */
    uint64_t deadline_us;     /* of all tries, by mr_clock_us() */
    uint64_t wait_until_us;   /* how long the thread that makes a try may wait, if less than the deadline */
    uint64_t began_ns;        /* of the first try, by mr_tick_ns(); 0: there was none */
    uint32_t map_generation;  /* by which the try is split; UINT32_MAX: by none */
    bool is_over;             /* a copy: no more tries */
    struct mr_future *latest; /* a copy: the future of the last try; NULL: the one that was handed out */
    struct mr_options copied; /* a copy: the caller's */
};

/* Makes the call: tries until the outcome stands. Then as mrc_future_run(). */
enum mr_status mrc_retry_run(struct mrc_retry *r, struct mr_reply **reply);
/* Gives the future of a try the context's deadline, map and start, before it is begun. */
void mrc_retry_future(struct mrc_retry *r, struct mr_future *f);

/* is_due() of calls that were not executed: split by an older map than the client has at the time of sending,
 * or refused by a node that has a newer one. For a refusal it waits for that map. */
enum mrc_retry_due mrc_retry_unexecuted(struct mrc_retry *r, enum mr_status status);
/* is_due() of calls that may be executed twice (mr_op_repeatable()): also any failure after which the client
 * has another map. Others as above. */
enum mrc_retry_due mrc_retry_by_map(struct mrc_retry *r, enum mr_status status);

/* is_due() of calls that show the cluster's map: MR_BUSY, which mrc_check_epoch() gives for a map that is
 * older than this client's last change of it; after a pause. A call with a future is not made again. */
enum mrc_retry_due mrc_retry_shown(struct mrc_retry *r, enum mr_status status);

/* Returns the client's shard map, by which the try is split, to be released. NULL: another process made the
 * client, and the call itself reports that. Takes the lock. */
struct mrc_shard_map *mrc_retry_hold_map(struct mrc_retry *r);
/* The future `f` was handed out, and its latest try has ended: makes another if it must be made again. Waits
 * until then at most. MRC_RETRY_NOW: it has been made, as the latest. */
enum mrc_retry_due mrc_retry_next(struct mr_future *f, uint64_t until_us);
/* Returns the future of the latest try; `f` itself if there was only one. With or without the lock. */
struct mr_future *mrc_retry_latest(struct mr_future *f);

/* Returns how many milliseconds are left, rounded up; 0: none. */
uint32_t mrc_left_ms(uint64_t deadline_us, uint64_t now_us);

/* Returned by mrc_future_begin() and mrc_future_run(): the call was split by a shard map that the client no
 * longer has, or its number was cancelled with that. Nothing was sent, and the call must be made again. */
#define MRC_STALE_MAP ((enum mr_status)MR_STATUS_COUNT)
/* Returned by them to a retry: there was no room for the request until wait_until_us. Not an error: it is
 * made when the future is polled again. */
#define MRC_NO_ROOM_YET ((enum mr_status)(MR_STATUS_COUNT + 1))

#endif
