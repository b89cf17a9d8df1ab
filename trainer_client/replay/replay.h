/* The replay buffer of one lane: the pushes that a server which lost its memory would have to be given again.
 *
 * A lane is one core of one partition map, as this client numbers its pushes to it: 1, 2, 3, ...
 * (mr_preamble.sequence). The server applies a number once. Its replies say up to which number all is in a
 * checkpoint on disk, and until then the push is kept here. After a restart every kept push is due again, in
 * an order that the caller cannot tell from the first one: a push comes after all that had been answered when
 * it was first handed over, and may pass the others.
 *
 * Bounded: when the buffer is full, the oldest pushes that were answered are given up. Should the server turn
 * out to have needed one of them, that is a loss, told once. A push that nobody answered is never given up.
 *
 * Pure: no socket, no clock, no lock. One thread at a time.
 */
#ifndef MRC_REPLAY_H
#define MRC_REPLAY_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/base/list.h"
#include "trainer_client/replay/gone.h"
#include "trainer_client/replay/push.h"

#define MRC_REPLAY_PAUSE_US  100000u /* before a push that has to wait for something is tried again */
#define MRC_REPLAY_TRIES_MAX 100u    /* for a batch that is not fed again */

struct mrc_replay {
    uint16_t lane;
    uint64_t next;        /* number of the next push */
    uint64_t floor;       /* all up to here are on disk, as far as is known */
    uint64_t answered_to; /* the highest that was answered; lower ones may still be under way */
    uint64_t bytes, bytes_max;
    struct mr_link kept, asked, due, again, later;
    uint64_t count;       /* in `kept` */
    struct mrc_gone gone; /* what was answered and is not here any more */
    /* the floor of the lane of now, as of the last mrc_replay_ask(); the owner's business */
    uint64_t asked_at;
    uint32_t whole; /* as of the last mrc_replay_restored() */
    bool restarted; /* the floor is not known again yet */
    uint64_t pause_until_us;
    struct mrc_loss loss; /* not told yet */
    uint64_t replayed, given_up, dropped;
};

void mrc_replay_init(struct mrc_replay *r, uint16_t lane, uint64_t bytes_max);
/* Frees what is kept. */
void mrc_replay_fini(struct mrc_replay *r);

/* Takes the push in and numbers it, giving others up where that makes the room. False: the caller has to wait
 * until a push has been answered. Alone, it always fits. */
bool mrc_replay_add(struct mrc_replay *r, struct mrc_push *push);
/* The same under a number that another lane of old gave it: answered once, due now. In rising order. */
void mrc_replay_adopt(struct mrc_replay *r, struct mrc_push *push, uint64_t number, uint64_t after);
/* Under a number below all that are here: made of others that were. */
void mrc_replay_put_back(struct mrc_replay *r, struct mrc_push *push, uint64_t number, uint64_t after);
/* Takes a push that was not sent out again, as if it had never been there; it belongs to the caller. Where
 * others were added since, its number goes to the server without a push. */
void mrc_replay_undo(struct mrc_replay *r, struct mrc_push *push);
/* Takes any push out; it belongs to the caller. Its number is not used again. */
void mrc_replay_withdraw(struct mrc_replay *r, struct mrc_push *push);
/* `to` becomes what `from` was; `from` becomes empty, without a lane. */
void mrc_replay_move(struct mrc_replay *to, struct mrc_replay *from);
/* Frees what is kept; `heir` tells what was lost, and counts on. */
void mrc_replay_retire(struct mrc_replay *r, struct mrc_replay *heir);
/* What is not under way, one by one: what was taken back by a restore on the server goes without a word, what
 * is for a feature that is something else now is a loss. Numbers that go are marked. */
enum mrc_verdict { MRC_KEEP, MRC_TAKEN_BACK, MRC_VOID };
void mrc_replay_review(struct mrc_replay *r, enum mrc_verdict (*judge)(void *arg, struct mrc_push *push),
                       void *arg);
/* The server was restored as a whole, for the `whole`-th time, and its record is an older one: what was gone
 * before that is no loss, and numbers that it may lack are marked. Nothing if this is known. */
void mrc_replay_restored(struct mrc_replay *r, uint32_t whole);
/* A push that will not be sent again; a loss when `refused` is not MR_OK. */
void mrc_replay_drop(struct mrc_replay *r, struct mrc_push *push, enum mr_status refused);
/* Whether this number is still to be answered here. */
bool mrc_replay_has_open(const struct mrc_replay *r, uint64_t number);
/* Whether any is. */
bool mrc_replay_is_open(const struct mrc_replay *r);
/* mr_preamble.sequence of a push. */
uint64_t mrc_replay_sequence(const struct mrc_replay *r, const struct mrc_push *push);

/* A call with this push ended: the caller's own (ASKED) or a repetition (AGAIN). The push may be gone
 * afterwards. */
/* ... with an answer. `durable`: the reply's floor. */
void mrc_replay_answered(struct mrc_replay *r, struct mrc_push *push, enum mr_status status, uint64_t durable,
                         uint64_t now_us);
/* ... without any: it is due, again if need be, until there is one. */
void mrc_replay_unanswered(struct mrc_replay *r, struct mrc_push *push);

/* The server has lost its memory: all that was answered is due. Repetitions under way must have ended. */
void mrc_replay_restart(struct mrc_replay *r);
/* Nothing more is pushed in this lane: a mark under its newest number, which the server has, asks up to where
 * all is on disk. A restart takes the question back. */
void mrc_replay_ask(struct mrc_replay *r);
/* The push to be sent next, now AGAIN; NULL: none now. Undo it by mrc_replay_unanswered(). */
struct mrc_push *mrc_replay_next(struct mrc_replay *r, uint64_t now_us);
/* The lowest of those that are due or sent again, marks left out; UINT32_MAX: there are none. */
uint32_t mrc_replay_first_era(const struct mrc_replay *r);
/* When mrc_replay_next() may have one that it has not now, other than by an answer; UINT64_MAX = never. */
uint64_t mrc_replay_next_us(const struct mrc_replay *r);
/* Nothing is due or under way again, but what waits for its batch. */
bool mrc_replay_caught_up(const struct mrc_replay *r);

/* What was lost since this was last asked; it is asked before each push. */
struct mrc_loss mrc_replay_take_loss(struct mrc_replay *r);

#endif
