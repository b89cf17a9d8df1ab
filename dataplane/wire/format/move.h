/* Calls about partitions that move from one node of a cluster to another.
 *
 * MOVE_READ is how the target reads a move from each of the source's cores, block after block. A block holds
 * records (ps/checkpoint/checkpoint.h), each with its bytes, padded to 8. A block that is asked for once more
 * is the same one.
 *
 * Likewise a backup reads what it follows (ps/move/copy_source.h): the move is then the number of its
 * assignment, the position that of a byte, before which it has applied everything, and the answer has what
 * follows, or nothing yet. */
#ifndef MR_MOVE_H
#define MR_MOVE_H

#include "dataplane/wire/format/bodies.h"

#define MR_MOVE_BLOCK_BYTES (120u << 10) /* in an answer at most */

enum mr_move_flag {
    MR_MOVE_FENCE = 1u << 0, /* little is left: calls for the partitions are to wait */
    MR_MOVE_INSTALLED =
        1u << 1, /* the target has everything, of all cores; position 0: no block is asked for */
};

enum mr_move_state {
    MR_MOVE_NOT_READY, /* the core does not send this move, or not yet: ask again */
    MR_MOVE_MORE,      /* there is more, or will be: the partitions are served */
    MR_MOVE_ALL,       /* calls for the partitions wait, and this block is the last */
    MR_MOVE_LOST,      /* the move cannot be completed */
};

/* MOVE asks for a change of the cluster's map: MR_BODY_MOVE_REQUEST, u8[2, MR_CLUSTER_NAME_BYTES]
 * names of nodes, NUL-padded. It is answered once the map says so, with that map's epoch: u64[1] (older
 * versions: nothing). The moves themselves go on; a node with an older map does not show them yet. */
enum mr_move_kind {
    MR_MOVE_PARTITIONS = 1, /* from the first node to the second */
    MR_MOVE_DRAIN,          /* all from the first node to the others, and none to it until MR_MOVE_BALANCE */
    MR_MOVE_BALANCE,        /* until each node has as many as its cores are, drained ones included */
    MR_MOVE_CANCEL,         /* moves in progress, and what follows from a drain or a balance */
    MR_MOVE_FORGET,         /* takes the first node out of the map: it is away, and owns nothing */
    MR_MOVE_TAKE_OVER       /* the others load what the first node owns, which is away, from a checkpoint */
};
#define MR_MOVE_ANY UINT64_MAX

/* In the rows of the answer to MOVES. */
enum mr_moves_row_state { MR_MOVES_WAITS, MR_MOVES_COPIES, MR_MOVES_ENDS };

#endif
