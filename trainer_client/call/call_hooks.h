/* What the replay of pushes adds to calls, and to the client that makes them: call does not know it
 * otherwise.
 *
 * There is one table, which is linked with the library (replay/replay_hooks.c). What it keeps hangs on the
 * client, its nodes and its links, and on the parts of calls. Everything is under the client's lock, unless
 * it says otherwise. */
#ifndef MRC_CALL_HOOKS_H
#define MRC_CALL_HOOKS_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/endpoint.h"
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/mr_status.h"

struct mr_client;
struct mr_future;
struct mr_replay_info;
struct mrc_link;
struct mrc_node;
struct mrc_shard_request;

struct mrc_call_hooks {
    /* ---- memory for client->reshard, node->replay and link->replay; false: none. `fini` also then ---- */
    bool (*client_init)(struct mr_client *client);
    void (*client_fini)(struct mr_client *client);
    bool (*node_init)(struct mrc_node *node);
    void (*node_fini)(struct mrc_node *node);
    bool (*link_init)(struct mrc_link *link);
    void (*link_fini)(struct mrc_link *link);

    /* ---- a call ---- */
    /* Returns whether calls of this op are numbered, and copies of their requests kept. Without the lock. */
    bool (*numbers)(const struct mr_client *client, uint32_t op);
    /* Allocates those copies, before anything is begun; nothing for other calls. MR_NO_MEMORY. Without the
     * lock. */
    enum mr_status (*prepare)(struct mr_future *f);
    /* MR_UNKNOWN_TABLE, reported by mrc_error(): the call names a number that is another feature's now. */
    enum mr_status (*check)(const struct mr_future *f);
    /* Returns whether the link has had what was kept for others; nothing else may be sent to it before. */
    bool (*is_open)(const struct mrc_link *link);
    /* Numbers a request, which is begun next. MR_NO_MEMORY: it has to wait until others are answered;
     * MR_UNKNOWN_OUTCOME: earlier ones are lost, reported by mrc_error(). */
    enum mr_status (*begin)(struct mr_future *f, struct mrc_shard_request *request, struct mrc_link *link);
    /* The request was begun, and will not be sent. */
    void (*undo)(struct mrc_shard_request *request);
    /* Copies the requests, once they are filled in. With or without the lock. */
    void (*copy)(struct mr_future *f);
    /* The request's call ended: its status is set, and changed where the outcome is not known. reply NULL:
     * there is none. */
    void (*ended)(struct mrc_shard_request *request, const struct mr_message *reply);
    /* All requests of the call have. */
    void (*all_ended)(struct mr_future *f);
    /* Returns whether the pushes of an ended call that were split again have been answered. */
    bool (*has_settled)(const struct mr_future *f);
    /* Waits for that until the call's deadline, and sets the status of its requests. Takes the lock. */
    void (*settle)(struct mr_future *f);
    /* Nobody waits for the request's push any more. */
    void (*leave)(struct mrc_shard_request *request);
    /* Frees copies that were never numbered. With or without the lock. */
    void (*free)(struct mr_future *f);
    /* Returns whether a push of the client waits for an answer. */
    bool (*is_pending)(const struct mr_client *client);
    /* The caller knows the feature by this number from now on, as that start of the node reported it. */
    void (*met)(struct mrc_node *node, uint32_t id, const struct mr_feature *feature, uint64_t start_id);

    /* ---- sessions and the shard map; by the driving thread ---- */
    /* A core has accepted the client, `again`: as a server that had lost its session; `started`: as another
     * start of the node than the one that was known. */
    void (*node_up)(struct mrc_node *node, const struct mr_client_session_info *info, bool started);
    void (*core_up)(struct mrc_link *link, const struct mr_client_session_info *info, bool again);
    /* The owners have changed, and links may be closed next: takes what is kept for cores that have got or
     * lost partitions. Repeated in each round. */
    void (*take_regrouped)(struct mr_client *client);
    /* Links are open: gives it to the new owners, if it is known what they have. Repeated in each round. */
    void (*give_regrouped)(struct mr_client *client);
    /* Other nodes have taken the place of those that were known, and have restored what was theirs. */
    void (*replaced)(struct mr_client *client);
    /* By the newest map, these partitions (a bit for each) were taken over from a checkpoint. Their links are
     * marked as regrouped. */
    void (*restored)(struct mr_client *client, const uint64_t partitions[MR_PARTITION_COUNT / 64]);

    /* ---- rounds of the driving thread, and when they are due: UINT64_MAX: not by themselves ---- */
    void (*poll_node)(struct mrc_node *node);
    uint64_t (*node_next_us)(const struct mrc_node *node);
    void (*poll)(struct mr_client *client);
    uint64_t (*next_us)(const struct mr_client *client);

    /* For mr_client_replay_info(). */
    void (*info)(const struct mr_client *client, struct mr_replay_info *info);
};

extern const struct mrc_call_hooks mrc_call_hooks;

#endif
