/* Which batch of a plan goes where next: the hub's book-keeping, without sockets, clocks or samples.
 *
 *   EMPTY --next_feed--> FEEDING --fed--> READY --hand_out--> HANDED --done--> CLAIMED --record--> APPLIED
 *
 * What is applied is what the server's own record says, and nothing else: every record replaces what was
 * known before, so a server that was restored to an earlier state takes the plan back with it, and gets the
 * batches that it lost again. A batch claimed by its trainer that the record, asked for after the claim, does
 * not hold returns to EMPTY; so does one whose trainer keeps it beyond the lease. Handing a batch out again
 * is always safe: the server applies it once. A batch without samples is pushed by the hub, and goes from
 * FEEDING to CLAIMED. Read-only plans have no record: their batches are over when the trainer says so.
 *
 * All times are microseconds of one clock. One thread at a time.
 */
#ifndef HUB_PLAN_H
#define HUB_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#define HUB_WINDOW 1024u /* batches from the oldest one not applied; the server's record reaches further */

/* Of a plan whose end is not known yet; more than a stream can have. */
#define HUB_BATCHES_UNKNOWN (UINT64_C(1) << 48)

enum hub_batch_state {
    HUB_BATCH_EMPTY = 0,
    HUB_BATCH_FEEDING,
    HUB_BATCH_READY,
    HUB_BATCH_HANDED,
    HUB_BATCH_CLAIMED,
    HUB_BATCH_APPLIED
};

struct hub_plan_batch {
    uint8_t state; /* enum hub_batch_state */
    bool handed_before;
    uint64_t lease_until_us;
    uint64_t claim_record; /* number of the newest record asked for when it was claimed */
};

struct hub_plan {
    uint64_t batches;
    uint32_t prefetch;
    uint64_t lease_us;
    bool read_only;

    uint64_t oldest; /* every batch below is applied */
    struct hub_plan_batch window[HUB_WINDOW];
    uint64_t handed_end;      /* one past the highest batch ever handed out */
    uint64_t again_below;     /* those below it were handed out before the server fell behind */
    uint32_t ahead;           /* batches FEEDING or READY: at most `prefetch` */
    uint32_t handed, claimed; /* batches HANDED, and CLAIMED */
    uint32_t generation;      /* rises when feeds in flight became void */
    uint64_t records_asked;
    bool record_known; /* one was received: before, nothing is fed */

    uint64_t fed, handed_out, handed_again, expired, applied;
};

/* prefetch 1..HUB_WINDOW; batches may be 0. */
void hub_plan_init(struct hub_plan *p, uint64_t batches, uint32_t prefetch, uint64_t lease_us,
                   bool read_only);

/* A plan of HUB_BATCHES_UNKNOWN has come to its end: it has so many. */
void hub_plan_end(struct hub_plan *p, uint64_t batches);

/* ---- towards the server ---- */

/* The next batch to feed becomes FEEDING. False: none now. */
bool hub_plan_next_feed(struct hub_plan *p, uint64_t *sequence);
/* How a feed ended; ignored when `generation` is not the one it began in. */
void hub_plan_fed(struct hub_plan *p, uint64_t sequence, uint32_t generation, bool ok);
/* A batch that is FEEDING was pushed by the hub itself: it becomes CLAIMED, and is applied at once where
 * nothing is pushed (read_only). Ignored as hub_plan_fed() is. */
void hub_plan_pushed(struct hub_plan *p, uint64_t sequence, uint32_t generation);
/* A record is about to be asked for. One at a time. */
void hub_plan_record_asked(struct hub_plan *p);
/* The record came: all below `watermark` are applied, and watermark + i where bit i of bitmap[0..words) is
 * set. Returns true when the server has fallen behind what it had applied before. */
bool hub_plan_record(struct hub_plan *p, uint64_t watermark, const uint64_t *bitmap, uint32_t words);
/* The server lost what was fed to it. */
void hub_plan_server_restarted(struct hub_plan *p);

/* ---- towards the trainers ---- */

/* The oldest READY batch becomes HANDED. False: none now. */
bool hub_plan_hand_out(struct hub_plan *p, uint64_t now_us, uint64_t *sequence);
/* The hand-out of `sequence`, just made, could not be delivered: READY again. */
void hub_plan_give_back(struct hub_plan *p, uint64_t sequence);
/* A trainer is through with it: it pushed it, or gave up on it. */
void hub_plan_done(struct hub_plan *p, uint64_t sequence);
/* Take back batches whose lease is over. */
void hub_plan_expire(struct hub_plan *p, uint64_t now_us);

/* No batch is on its way: none is FEEDING, READY, HANDED or CLAIMED. */
bool hub_plan_is_idle(const struct hub_plan *p);
bool hub_plan_at_end(const struct hub_plan *p);
enum hub_batch_state hub_plan_state(const struct hub_plan *p, uint64_t sequence);

#endif
