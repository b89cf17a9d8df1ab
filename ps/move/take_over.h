/* Loads partitions from a checkpoint of the cluster beside what the node serves: a node has died, and these
 * are this node's from now on. A thread of its own reads the blocks, and has the cores load what is of these
 * partitions, a little at a time (ps/move/load.h), into the tables and variables that serve. Once everything
 * is here, it counts as applied what the checkpoint says was applied to them.
 *
 * The node has nothing of these partitions when it begins, and does not serve them before it has ended. */
#ifndef PS_TAKE_OVER_H
#define PS_TAKE_OVER_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "ps/base/partition_set.h"
#include "ps/core/node.h"
#include "ps/move/load.h"
#include "ps/store/stores.h"

struct ps_take_over;

struct ps_take_over_options {
    struct ps_node *node; /* whose control thread is woken at the end */
    /* The checkpoint's number in that directory, a cluster's or a single node's; 0: there is none, and the
     * partitions begin empty. */
    struct ps_place place;
    uint64_t checkpoint;
    bool is_cluster; /* it is to be a cluster's */
    struct ps_partition_set partitions;
};

enum ps_take_over_state { PS_TAKE_OVER_LOADING, PS_TAKE_OVER_LOADED, PS_TAKE_OVER_FAILED };

struct ps_take_over_progress {
    enum ps_take_over_state state;
    enum mr_status status;         /* of one that has failed */
    uint64_t rows, bytes;          /* read so far, those of other partitions included */
    uint64_t bytes_total;          /* about; 0: not known yet */
    uint64_t started_us;           /* mr_clock_us() */
    char text[PS_MOVE_TEXT_BYTES]; /* of one that has failed: why */
};

/* MR_NO_MEMORY; `text` (PS_MOVE_TEXT_BYTES). */
enum mr_status ps_take_over_start(const struct ps_take_over_options *options, struct ps_take_over **out,
                                  char *text);
/* Any thread. */
void ps_take_over_progress(struct ps_take_over *t, struct ps_take_over_progress *out);
/* It need not go on: it will have failed soon. Any thread. */
void ps_take_over_cancel(struct ps_take_over *t);
/* Ends the thread, waiting for a store that hangs, unless that is told to stop (struct ps_place). NULL is
 * fine. Not on a core's thread. */
void ps_take_over_stop(struct ps_take_over *t);

#endif
