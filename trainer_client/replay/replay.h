/* The replay buffer of one push stream: the pushes that must be sent again to a server that lost its memory.
 *
 * A push stream is what one client pushes to one core, while its partitions stay the same; its pushes are
 * numbered 1, 2, 3, ... (mr_preamble.sequence). The server applies each number once. Its replies say up to
 * which number all pushes are in a checkpoint on disk; until then they are kept here. After a restart every
 * kept push is due again, in an order that the caller cannot tell from the first one: a push follows all
 * pushes that had been answered when it was first added, and may overtake the others.
 *
 * The buffer is bounded: when it is full, the oldest answered pushes are given up. If the server turns out to
 * need one of them, that is a loss, and it is reported once. A push that nobody answered is never given up.
 *
 * Pure: no socket, no clock, no lock. One thread at a time.
 */
#ifndef MRC_REPLAY_H
#define MRC_REPLAY_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/base/list.h"
#include "trainer_client/replay/trim.h"
#include "trainer_client/replay/push.h"

#define MRC_REPLAY_PAUSE_US  100000u /* before a push that has to wait is tried again */
#define MRC_FLOOR_UNKNOWN    UINT64_MAX
#define MRC_REPLAY_TRIES_MAX 100u /* for a batch that is not fed again */

struct mrc_link;

struct mrc_replay {
    uint32_t stream_id;
    uint64_t next;        /* number of the next push */
    uint64_t floor;       /* all pushes up to this number are known to be on disk */
    uint64_t answered_to; /* the highest number answered; lower ones may still be in flight */
    uint64_t bytes, bytes_max;
    struct mr_link kept, asked, due, again, later;
    uint64_t count;          /* in `kept` */
    struct mrc_trim trimmed; /* what was answered and is no longer kept */
    /* the floor of the stream of now, as of the last mrc_replay_ask(); the owner's business */
    uint64_t asked_at;
    uint32_t whole; /* of the last mrc_replay_restored() */
    /* its pushes go to an owner that has only some of their keys, or had them from others: what the server
     * says to be on disk says nothing of a push that it has not answered */
    bool is_former;
    /* of one that was taken from its link: that, and the server's start then; the owner's business */
    struct mrc_link *home;
    uint64_t home_start;
    bool restarted; /* the server was restarted, and the floor is not known yet */
    uint64_t pause_until_us;
    struct mrc_loss loss; /* not reported yet */
    uint64_t replayed, given_up, dropped;
};

void mrc_replay_init(struct mrc_replay *r, uint32_t stream_id, uint64_t bytes_max);
/* Frees what is kept. */
void mrc_replay_fini(struct mrc_replay *r);

/* Adds a push and numbers it, giving up others to make room. Returns false when the caller has to wait until
 * a push is answered. A buffer that is empty, but for pushes of the same call, takes any push. */
bool mrc_replay_add(struct mrc_replay *r, struct mrc_push *push);
/* Adds a push that already has a number of this stream, in rising order. `is_done`: this server has answered
 * it; otherwise it is due now. */
void mrc_replay_adopt(struct mrc_replay *r, struct mrc_push *push, uint64_t number, uint64_t after,
                      bool is_done);
/* All numbers up to `last` that are not due here will not come: marks them. */
void mrc_replay_mark_gaps(struct mrc_replay *r, uint64_t last);
/* Adds a push under a number below all others; it is made of pushes that were here. */
void mrc_replay_put_back(struct mrc_replay *r, struct mrc_push *push, uint64_t number, uint64_t after);
/* Removes a push that was not sent, as if it had never been added; the caller owns it. If others were added
 * since, its number is sent to the server without a push. */
void mrc_replay_undo(struct mrc_replay *r, struct mrc_push *push);
/* Removes any push; the caller owns it. Its number is not used again. */
void mrc_replay_withdraw(struct mrc_replay *r, struct mrc_push *push);
/* Moves everything from one buffer to another; `from` is then empty and has no stream. */
void mrc_replay_move(struct mrc_replay *to, struct mrc_replay *from);
/* Frees what is kept; `heir` takes over the unreported loss and the counters. */
void mrc_replay_retire(struct mrc_replay *r, struct mrc_replay *heir);
/* Judges each push that is not in flight. One that a restore on the server took back is removed silently; one
 * for a feature that no longer exists is a loss. The numbers of removed pushes are marked. */
enum mrc_verdict { MRC_KEEP, MRC_TAKEN_BACK, MRC_VOID };
void mrc_replay_review(struct mrc_replay *r, enum mrc_verdict (*judge)(void *arg, struct mrc_push *push),
                       void *arg);
/* The server was restored as a whole, for the `whole`-th time, so its record is older: what had gone before
 * that is no loss, and numbers that it may lack are marked. Does nothing if this is known. */
void mrc_replay_restored(struct mrc_replay *r, uint32_t whole);
/* Removes a push that will not be sent again; it is a loss when `refused` is not MR_OK. */
void mrc_replay_drop(struct mrc_replay *r, struct mrc_push *push, enum mr_status refused);
/* Whether a push of this number still waits for an answer. */
bool mrc_replay_has_open(const struct mrc_replay *r, uint64_t number);
/* Whether any push does. */
bool mrc_replay_is_open(const struct mrc_replay *r);
/* mr_preamble.sequence of a push. */
uint64_t mrc_replay_sequence(const struct mrc_replay *r, const struct mrc_push *push);

/* A call with this push ended, the caller's own (ASKED) or a repetition (AGAIN), with an answer. `durable` is
 * the reply's floor, or MRC_FLOOR_UNKNOWN. The push may be freed. */
void mrc_replay_answered(struct mrc_replay *r, struct mrc_push *push, enum mr_status status, uint64_t durable,
                         uint64_t now_us);
/* The same without an answer: the push is due until there is one. */
void mrc_replay_unanswered(struct mrc_replay *r, struct mrc_push *push);

/* The server has lost its memory: all answered pushes are due. No repetition may be in flight. */
void mrc_replay_restart(struct mrc_replay *r);
/* For a stream that gets no more pushes: asks up to which number all is on disk, by a mark under the newest
 * number, which the server has. A restart takes the question back. */
void mrc_replay_ask(struct mrc_replay *r);
/* The push to send next, now AGAIN; NULL if there is none now. Undo it with mrc_replay_unanswered(). */
struct mrc_push *mrc_replay_next(struct mrc_replay *r, uint64_t now_us);
/* The lowest era of the pushes that are due or sent again, without marks; UINT32_MAX if there are none. */
uint32_t mrc_replay_first_era(const struct mrc_replay *r);
/* When mrc_replay_next() may have another push without an answer in between; UINT64_MAX: never. */
uint64_t mrc_replay_next_us(const struct mrc_replay *r);
/* Nothing is due or being repeated, except what waits for its batch. */
bool mrc_replay_caught_up(const struct mrc_replay *r);

/* Notes a loss of `pushes` pushes. `refused`: why the server refused them; MR_OK: they were given up. */
void mrc_replay_add_loss(struct mrc_replay *r, uint64_t pushes, uint64_t from_step, uint64_t to_step,
                         enum mr_status refused);
/* What was lost since the last call, which is made before each push. */
struct mrc_loss mrc_replay_take_loss(struct mrc_replay *r);

#endif
