/* Moves the kept pushes of a node that comes back with another number of cores to the new owners of their
 * keys.
 *
 * A push keeps its lane and its number: the server knows the lanes of all maps. When a push is split again,
 * its parts share them. Pushes of batches are dropped, because the hub hands those batches out again.
 * Everything is per node, and under the client's lock, except mrc_remap_settle().
 */
#ifndef MRC_REMAP_H
#define MRC_REMAP_H

#include <stdbool.h>
#include <stdint.h>
#include "trainer_client/replay/replay.h"

struct mrc_node;
struct mr_future;
struct mrc_link;
struct mrc_part;

/* A lane that this client has used, of the current map or a former one. */
struct mrc_lane_mark {
    uint32_t lane;
    uint64_t next; /* where its numbers continue when its map comes back */
    /* what is gone of it, from all links that are not asked for it (remap_gone.h) */
    struct mrc_gone gone;
};

struct mrc_remap {
    struct mrc_replay **lanes; /* to be split, from the oldest map on */
    uint32_t lane_count;
    struct mrc_lane_mark *marks;
    uint32_t mark_count;
    /* the node was restarted, and has not been asked what it holds of lanes of former maps (remap_gone.h) */
    bool asks;
    uint64_t ask_us;
    uint32_t era;          /* rises with each change of the map: maps come back, and their lanes with them */
    struct mr_link movers; /* struct mrc_part.mover: their callers wait until their pushes have settled */
};

/* If the map has changed, ends the calls in flight of the old map, and takes what is kept from the links. By
 * the driving thread, before links are closed. */
void mrc_remap_begin(struct mrc_node *node);
/* Gives what was taken to the links of the new map, after the survey (survey.h). */
void mrc_remap_go_on(struct mrc_node *node);
/* Returns when mrc_remap_go_on() is due. */
uint64_t mrc_remap_next_us(const struct mrc_node *node);
/* Returns whether this link has what was kept for others; nothing else may be sent to it before. */
bool mrc_remap_is_over(const struct mrc_link *link);
/* Returns what is remembered of a lane; NULL: this client has not used it. */
struct mrc_lane_mark *mrc_remap_mark(struct mrc_remap *remap, uint32_t lane);
/* Finds the first number of a lane that this client begins to use. False: no memory to remember the lane. */
bool mrc_remap_start_lane(struct mrc_node *node, struct mrc_replay *own, uint32_t lane);

/* Notes that the part's caller waits until its push, which is kept and sent again, is answered. */
void mrc_remap_follow(struct mrc_part *part, uint64_t sequence);
/* Returns whether the pushes of an ended call that were split again have been answered. Under the lock. */
bool mrc_remap_has_settled(const struct mr_future *f);
/* Waits until its deadline for the pushes of an ended call that were split again, and sets the status of
 * their parts. Takes the lock. */
void mrc_remap_settle(struct mr_future *f);

/* Notes that a piece of a push will not be applied: the call that waits for it ends with `status`. */
void mrc_remap_failed(struct mrc_node *node, uint64_t sequence, enum mr_status status);
/* Notes that nobody waits for the part's push any more. */
void mrc_remap_leave(struct mrc_part *part);

void mrc_remap_init(struct mrc_node *node);
void mrc_remap_fini(struct mrc_node *node);

#endif
