/* The node as the client knows it: its cores, where they listen, and which core owns which partition. The
 * client asks for this after the first core accepts it, and again after each restart of the node. Everything
 * is under the client's lock. */
#ifndef MRC_NODE_H
#define MRC_NODE_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/endpoint.h"
#include "dataplane/wire/format/mr_feature.h"

struct mr_client;
struct mrc_link;
struct mr_future;

struct mrc_node {
    uint32_t core_count;  /* 0 = not known yet */
    uint32_t incarnation; /* the last one seen, for people */
    uint64_t start_id;    /* of the start that was seen last */
    uint32_t map_version;
    uint32_t changes; /* of the map, since the client was made */
    bool asking;      /* NODE_INFO is in flight */
    bool stale;       /* the node must be asked (again) ... */
    uint64_t ask_us;  /* ... but not before */
    uint32_t asked_in_vain;
    bool garbled; /* the node's answer was no partition map */
    uint8_t partition_core[MR_PARTITION_COUNT];
};

/* Notes that a core has accepted the client, for the first time or again. */
void mrc_node_session_up(struct mr_client *client, struct mrc_link *link,
                         const struct mr_client_session_info *info);
/* Asks when that is due. By the driving thread (see progress.h), because the set of links may change. */
void mrc_node_look_after(struct mr_client *client);
/* Returns when mrc_node_look_after() is due. */
uint64_t mrc_node_next_us(const struct mr_client *client);
/* Waits until the node's cores are known and each of them has accepted the client. */
enum mr_status mrc_node_connect(struct mr_client *client, uint64_t deadline_us, char *error,
                                size_t error_bytes);

#endif
