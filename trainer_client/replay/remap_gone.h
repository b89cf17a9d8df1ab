/* The pushes that are gone from the lanes of former maps, because they were on disk or because there was no
 * room: a node that comes back from an older checkpoint may lack them. The cores that own keys of such a lane
 * are then asked what they have of it, by a push without tensors under the highest number that is gone; what
 * they lack is a loss. Everything is under the client's lock.
 */
#ifndef MRC_REMAP_GONE_H
#define MRC_REMAP_GONE_H

#include <stdbool.h>
#include <stdint.h>

struct mrc_node;
struct mrc_replay;

/* Notes what is gone of a lane of a former map that is about to leave its link. */
void mrc_remap_note_gone(struct mrc_node *node, struct mrc_replay *lane);
/* Notes that everything was restored by call, for the `whole`-th time: what was gone before that is no
 * loss. */
void mrc_remap_restored(struct mrc_node *node, uint32_t whole);
/* Handles a restart of the node: if it may lack something of a lane, the links of the current map ask for it.
 * False when memory is short: to be repeated later. */
bool mrc_remap_ask(struct mrc_node *node);

#endif
