/* A state probe asks a node for its features, with LIST, after it was restarted or took something back by a
 * restore by call, and before anything is sent again or any call continues.
 *
 * The client knows a number by the name that it had in mr_create() or mr_list(). If the node has another
 * feature under it now, or none, calls with that number are refused here until the client gets the number
 * again: numbers are never used again in one checkpoint directory, but the directory may have changed. What
 * the node has taken back is no longer kept for a replay. Everything is under the client's lock.
 */
#ifndef MRC_STATE_PROBE_H
#define MRC_STATE_PROBE_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/endpoint.h"
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/mr_status.h"

struct mr_client;
struct mrc_node;
struct mr_future;
struct mrc_shard_request;

struct mrc_state_probe {
    bool due;        /* LIST must be sent (again) ... */
    bool asking;     /* it is in flight */
    uint64_t ask_us; /* ... but not before */
    bool has_met;    /* a lineage: */
    uint32_t lineage,
        restores; /* as in struct mr_accept; of what is kept, `restores` as of the last state probe */
    uint32_t lineage_now;
};

/* Notes that a core has accepted the client; `started`: the node was restarted. */
void mrc_state_probe_session_up(struct mrc_node *node, const struct mr_client_session_info *info,
                                bool started);
/* Handles the restore count of an answer. If it is lower than the known one, the call was executed before a
 * restore, and may have been in flight during the last state probe. */
void mrc_state_probe_answered(struct mrc_node *node, uint32_t restores);
/* Makes a state probe due, unless one is. */
void mrc_state_probe_want(struct mrc_node *node);
/* Returns whether there is no state probe to wait for. */
bool mrc_state_probe_is_over(const struct mrc_node *node);
/* Asks when that is due. By the driving thread. */
void mrc_state_probe_poll(struct mrc_node *node);
/* Returns when mrc_state_probe_poll() is due. */
uint64_t mrc_state_probe_next_us(const struct mrc_node *node);

/* Notes that the caller knows the feature by this number from now on. `start_id`: of the node's start that
 * reported it. */
void mrc_state_probe_meet(struct mrc_node *node, uint32_t id, const struct mr_feature *feature,
                          uint64_t start_id);
/* Returns MR_UNKNOWN_TABLE, reported by mrc_error(), if the call names a number that belongs to another
 * feature now. */
enum mr_status mrc_state_probe_check(const struct mr_future *f);

#endif
