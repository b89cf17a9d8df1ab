/* What went from the lanes of former maps because it was on disk, or for want of room: a node that comes back
 * from an older checkpoint lacks it. So after each start of the node the cores that own keys of such a lane
 * are asked what they hold of it, by a push without tensors under its highest number that is gone; what they
 * lack is a loss. All under the client's lock.
 */
#ifndef MRC_REMAP_GONE_H
#define MRC_REMAP_GONE_H

#include <stdint.h>
#include "trainer_client/replay/replay.h"

struct mr_client;
struct mrc_lane_mark;
struct mrc_link;

/* The lane leaves its link, because the map has changed: what is gone of it is noted. `own`: it was of the
 * map that went. */
void mrc_gone_note(struct mrc_lane_mark *mark, const struct mrc_replay *lane, bool own);
/* The same of lanes of maps before that: as far as it is gone from all links that have a piece of them.
 * Before they leave. */
void mrc_gone_note_former(struct mr_client *client);
/* All that was kept of the lane at this link is on disk; it is about to leave. */
void mrc_gone_all(const struct mrc_link *link, const struct mrc_replay *lane);
/* The node was found started anew by this link: it will be asked. Before the link's lanes are
 * (mrc_replay_restart()). */
void mrc_gone_restarted(struct mrc_link *link);
/* Everything was restored by call, for the `whole`-th time: what was gone before that is no loss. */
void mrc_gone_restored(struct mr_client *client, uint32_t whole);
/* Puts the questions to the links of the map of now. False for want of memory: once more later. */
bool mrc_gone_ask(struct mr_client *client);

#endif
