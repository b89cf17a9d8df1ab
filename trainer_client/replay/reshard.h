/* Moves kept pushes to the new owners of their keys: when a node comes back with another number of cores,
 * when partitions have gone to another node, and when other nodes have taken the place of a cluster.
 *
 * A push stream belongs to one owner, as long as its partitions stay the same. When they change, the stream
 * is closed: what is kept of it is split, each share goes to its owner as a former stream, under its stream
 * and number, and new pushes get a new stream. A share that stays where it is, and was answered there, is
 * not sent again. What was recorded of a stream goes with its partitions, so an owner takes each push once
 * (docs/protocol.md, section 9). Pushes of batches are dropped, because the hub hands those batches out
 * again.
 *
 * Partitions of a node that has died come to their new owners from a checkpoint. For the streams that have
 * keys of them this is a restart: all that is kept is sent again, also where another part of it was answered,
 * and what was given up is compared with what the new owners have. Everything is under the client's lock,
 * except mrc_reshard_settle().
 */
#ifndef MRC_RESHARD_H
#define MRC_RESHARD_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_feature.h"
#include "trainer_client/replay/replay.h"

struct mr_client;
struct mrc_node;
struct mr_future;
struct mrc_link;
struct mrc_shard_request;

#define MRC_STREAM_MARKS_MAX 1024u

/* A stream that this client has used. */
struct mrc_stream_mark {
    uint32_t stream_id;
    uint64_t partitions[MR_PARTITION_COUNT / 64]; /* that its owner had */
    /* what was trimmed of it, from all links that are not asked for it (reshard_trim.h) */
    struct mrc_trim trimmed;
    /* of its partitions, those that were taken over, whose owners have not been asked for that yet */
    bool is_restored;
    uint64_t restored[MR_PARTITION_COUNT / 64];
};

struct mrc_reshard {
    struct mrc_replay **streams; /* to be split, from the oldest on */
    uint32_t stream_count;
    struct mrc_stream_mark *marks; /* the newest MRC_STREAM_MARKS_MAX, from the oldest on */
    uint32_t mark_count;
    uint32_t next_stream;
    uint64_t ask_us;        /* when mrc_reshard_poll() may try again */
    uint32_t era;           /* rises with each change of the owners */
    struct mr_link waiting; /* struct mrc_resharded: their callers wait until their pushes have settled */
};

/* Ends the calls in flight to owners whose partitions have changed, and takes what is kept from their links.
 * By the driving thread, before links are closed. */
void mrc_reshard_begin(struct mr_client *client);
/* Gives what was taken to the links of the new owners, after the state probes (state_probe.h). */
void mrc_reshard_poll(struct mr_client *client);
/* Returns when mrc_reshard_poll() is due. */
uint64_t mrc_reshard_next_us(const struct mr_client *client);
/* Returns whether this link has what was kept for others; nothing else may be sent to it before. */
bool mrc_reshard_is_over(const struct mrc_link *link);
/* Returns what is remembered of a stream; NULL: nothing. */
struct mrc_stream_mark *mrc_reshard_mark(struct mrc_reshard *reshard, uint32_t stream_id);
/* Begins a stream for the pushes to a link's core. False: no memory to remember the stream. */
bool mrc_reshard_start_stream(struct mrc_link *link);
/* The nodes that the client knows are gone, and others have restored what was theirs: what these lack of all
 * that is kept is not known. */
void mrc_reshard_replaced(struct mr_client *client);
/* These partitions were taken over from a checkpoint: their owners lack what is not in it. */
void mrc_reshard_taken_over(struct mr_client *client, const uint64_t partitions[MR_PARTITION_COUNT / 64]);

/* Notes that the request's caller waits until its push, which is kept and sent again, is answered. */
void mrc_reshard_follow(struct mrc_shard_request *request, uint64_t sequence);
/* Returns whether the pushes of an ended call that were split again have been answered. Under the lock. */
bool mrc_reshard_has_settled(const struct mr_future *f);
/* Waits until its deadline for the pushes of an ended call that were split again, and sets the status of
 * their requests. Takes the lock. */
void mrc_reshard_settle(struct mr_future *f);

/* Notes that a share of a push will not be applied: the call that waits for it ends with `status`. */
void mrc_reshard_failed(struct mr_client *client, uint64_t sequence, enum mr_status status);
/* Notes that nobody waits for the request's push any more. */
void mrc_reshard_leave(struct mrc_shard_request *request);

void mrc_reshard_init(struct mrc_reshard *reshard);
void mrc_reshard_fini(struct mrc_reshard *reshard);

#endif
