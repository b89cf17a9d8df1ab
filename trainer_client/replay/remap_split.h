/* Splits the pushes of old lanes among the cores of the current map (remap.h). Under the client's lock. */
#ifndef MRC_REMAP_SPLIT_H
#define MRC_REMAP_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

struct mrc_node;
struct mrc_link;
struct mrc_replay;

/* Appends a lane to a list. False: no memory, and nothing has changed. */
bool mrc_lanes_append(struct mrc_replay ***lanes, uint32_t *count, struct mrc_replay *lane);
/* Returns the lane `number` of former maps at the link to a core; makes it if needed, as of `whole` restores
 * of everything (struct mrc_replay). NULL: no memory. */
struct mrc_replay *mrc_remap_former_lane(struct mrc_link *link, uint32_t number, uint32_t whole);
/* Moves all lanes of node->remap to the links of the cores that own their keys now, as former lanes, and
 * frees them. What cannot be moved, for want of memory or of its table, is reported as a loss. */
void mrc_remap_split(struct mrc_node *node);

#endif
