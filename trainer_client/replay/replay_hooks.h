/* What replay keeps about a link and a node, on which it hangs. Under the client's lock. */
#ifndef MRC_REPLAY_HOOKS_H
#define MRC_REPLAY_HOOKS_H

#include "trainer_client/replay/ancestry.h"
#include "trainer_client/replay/replay.h"
#include "trainer_client/replay/state_probe.h"

struct mrc_link_replay {
    struct mrc_replay own; /* its pushes */
    /* closed streams, from the oldest on, of whose pushes this core has some */
    struct mrc_replay **former;
    uint32_t former_count;
    struct mr_link resends; /* those that are in flight once more */
    uint64_t resend_us;     /* when there is something to be sent again */
    uint64_t looked_up_in;  /* the start of the server that answered the last lookup of rows here; 0: none */
};

struct mrc_node_replay {
    struct mrc_state_probe probe;
    struct mrc_ancestry ancestry;
    uint64_t looked_up_in; /* the start that answered the last lookup of rows; 0: none */
    bool has_pushed;       /* this client, in some stream */
    /* it was restarted, and has not been asked what it holds of closed streams (reshard_trim.h) */
    bool asks;
};

#endif
