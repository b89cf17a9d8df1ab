/* Splits the pushes of closed streams among the owners of now (reshard.h). Under the client's lock. */
#ifndef MRC_RESHARD_SPLIT_H
#define MRC_RESHARD_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

struct mr_client;
struct mrc_link;
struct mrc_replay;

/* Appends a stream to a list. False: no memory, and nothing has changed. */
bool mrc_streams_append(struct mrc_replay ***streams, uint32_t *count, struct mrc_replay *stream);
/* Returns the closed stream `number` at the link to a core; makes it if needed. NULL: no memory. */
struct mrc_replay *mrc_reshard_former_stream(struct mrc_link *link, uint32_t number);
/* Moves all streams of client->reshard to the links of the owners of their keys, as former streams, and frees
 * them. What cannot be moved, for want of memory or of its table, is reported as a loss. */
void mrc_reshard_split(struct mr_client *client);

#endif
