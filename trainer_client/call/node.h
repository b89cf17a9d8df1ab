/* The node as the client sees it: which cores it has, where they listen, and which core owns which partition.
 * Asked once after the first core accepts the client, and again whenever the node is found restarted. All
 * under the client's lock. */
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
    uint32_t incarnation; /* the last seen, for people */
    uint64_t start_id;    /* of the start that was seen last */
    uint32_t map_version;
    uint32_t changes; /* of the map, since the client was made */
    bool asking;      /* NODE_INFO is in flight */
    bool stale;       /* it must be asked (again) ... */
    uint64_t ask_us;  /* ... but not before */
    uint32_t asked_in_vain;
    bool garbled; /* the node answered with something that is no partition map */
    uint8_t partition_core[MR_PARTITION_COUNT];
};

/* A core has accepted the client, for the first time or again. */
void mrc_node_session_up(struct mr_client *client, struct mrc_link *link,
                         const struct mr_client_session_info *info);
/* Ask when that is due. By the driving thread (see progress.h), since the set of links may change. */
void mrc_node_look_after(struct mr_client *client);
/* When mrc_node_look_after() has something to do by itself. */
uint64_t mrc_node_next_us(const struct mr_client *client);
/* Wait until the node's cores are known and every one of them has accepted the client. */
enum mr_status mrc_node_connect(struct mr_client *client, uint64_t deadline_us, char *error,
                                size_t error_bytes);

#endif
