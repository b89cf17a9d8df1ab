/* A node that comes back with another number of cores: what was kept for the old ones goes to the new owners
 * of its keys.
 *
 * A push keeps the lane and the number that it had: the server knows lanes of all maps. The parts of a push
 * that was split anew share them. Pushes of batches are dropped, for the hub hands those batches out again.
 * All under the client's lock, but for mrc_remap_settle().
 */
#ifndef MRC_REMAP_H
#define MRC_REMAP_H

#include <stdbool.h>
#include <stdint.h>
#include "trainer_client/replay/replay.h"

struct mr_client;
struct mr_future;
struct mrc_link;
struct mrc_part;

/* A lane that this client has used, of the map of now or another one. */
struct mrc_lane_mark {
    uint16_t lane;
    uint64_t next; /* where its numbers go on when its map comes back */
    /* of it, from all links that are not asked for it (remap_gone.h) */
    struct mrc_gone gone;
};

struct mrc_remap {
    struct mrc_replay **lanes; /* to be split, from the oldest map on */
    uint32_t lane_count;
    struct mrc_lane_mark *marks;
    uint32_t mark_count;
    /* the node was started anew, and not asked yet what it holds of former maps' lanes (remap_gone.h) */
    bool asks;
    uint64_t ask_us;
    uint32_t era;          /* rises with each change of the map: maps come back, and their lanes with them */
    struct mr_link movers; /* struct mrc_part.mover: their callers wait until their pushes have settled */
};

/* When the map has changed: ends what is under way by the old one, and takes what is kept from the links. By
 * the driving thread, before links are closed. */
void mrc_remap_begin(struct mr_client *client);
/* ... and gives it to the links of the new map, once the survey (survey.h) is over. */
void mrc_remap_go_on(struct mr_client *client);
/* When mrc_remap_go_on() has something to do by itself. */
uint64_t mrc_remap_next_us(const struct mr_client *client);
/* Nothing else may go to this link before it has what was kept for others. */
bool mrc_remap_is_over(const struct mrc_link *link);
/* What is remembered of a lane; NULL: this client has not used it. */
struct mrc_lane_mark *mrc_remap_mark(struct mrc_remap *remap, uint16_t lane);
/* Finds the first number of a lane that this client begins to use. False: no memory to remember it by. */
bool mrc_remap_start_lane(struct mr_client *client, struct mrc_replay *own, uint16_t lane);

/* Pushes of an ended call that were split anew have been answered. Under the lock. */
bool mrc_remap_has_settled(const struct mr_future *f);
/* Waits for pushes of an ended call that were split anew, until its deadline; their parts have ended well
 * then. Takes the lock. */
void mrc_remap_settle(struct mr_future *f);

/* A piece of a push will not be applied: whoever waits for it hears why. */
void mrc_remap_failed(struct mr_client *client, uint64_t sequence, enum mr_status status);
/* Nobody waits for the part's push any more. */
void mrc_remap_leave(struct mrc_part *part);

void mrc_remap_init(struct mr_client *client);
void mrc_remap_fini(struct mr_client *client);

#endif
