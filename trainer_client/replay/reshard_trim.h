/* The pushes that were trimmed from closed streams, because they were on disk or because there was no room: a
 * node that comes back from an older checkpoint may lack them. The cores that own keys of such a stream are
 * then asked what they have of it, by a push without tensors under the highest trimmed number; what they lack
 * is a loss. Everything is under the client's lock. */
#ifndef MRC_RESHARD_TRIM_H
#define MRC_RESHARD_TRIM_H

#include <stdbool.h>
#include <stdint.h>

struct mr_client;
struct mrc_node;
struct mrc_replay;

/* Notes what was trimmed of a closed stream that is about to leave its link. */
void mrc_reshard_note_trim(struct mr_client *client, struct mrc_replay *stream);
/* Notes that everything was restored by call, for the `whole`-th time: what was trimmed before is no
 * loss. */
void mrc_reshard_restored(struct mr_client *client, uint32_t whole);
/* Handles a restart of the node: if it may lack something of a stream, the links to those of its cores that
 * own partitions of the stream ask for it. False when memory is short: to be repeated later. */
bool mrc_reshard_ask(struct mrc_node *node);

/* Does the same of streams of which partitions were taken over, with the owners of those. */
bool mrc_reshard_ask_restored(struct mr_client *client);

#endif
