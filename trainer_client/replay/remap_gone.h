/* What went from the lanes of former maps because it was on disk, or for want of room: a node that comes back
 * from an older checkpoint may lack it. Then the cores that own keys of such a lane are asked what they hold
 * of it, by a push without tensors under its highest number that is gone; what they lack is a loss. All under
 * the client's lock.
 */
#ifndef MRC_REMAP_GONE_H
#define MRC_REMAP_GONE_H

#include <stdbool.h>
#include <stdint.h>

struct mr_client;
struct mrc_replay;

/* A lane of a former map is about to leave its link: what is gone of it is noted. */
void mrc_remap_note_gone(struct mr_client *client, struct mrc_replay *lane);
/* Everything was restored by call, for the `whole`-th time: what was gone before that is no loss. */
void mrc_remap_restored(struct mr_client *client, uint32_t whole);
/* The node was started again: where it may lack something of a lane, the links of the map of now are to ask
 * for it. False for want of memory: once more later. */
bool mrc_remap_ask(struct mr_client *client);

#endif
