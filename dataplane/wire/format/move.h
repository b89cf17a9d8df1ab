/* Calls about partitions that move from one node of a cluster to another.
 *
 * MOVE_READ is how the target reads a move from each of the source's cores, block after block. A block holds
 * records (ps/checkpoint/checkpoint.h), each with its bytes, padded to 8. A block that is asked for once more
 * is the same one. */
#ifndef MR_MOVE_H
#define MR_MOVE_H

#define MR_MOVE_BLOCK_BYTES (120u << 10) /* in an answer at most */

/* The request: u64[MR_MOVE_ASK_WORDS]. */
enum mr_move_ask_word {
    MR_MOVE_ASK_ID,       /* of the move in the cluster's map */
    MR_MOVE_ASK_POSITION, /* of the block, from 1; the next one, or the last one once more */
    MR_MOVE_ASK_FLAGS,    /* enum mr_move_flag */
    MR_MOVE_ASK_WORDS
};
enum mr_move_flag {
    MR_MOVE_FENCE = 1u << 0, /* little is left: calls for the partitions are to wait */
    MR_MOVE_INSTALLED =
        1u << 1, /* the target has everything, of all cores; position 0: no block is asked for */
};

/* The answer: u64[MR_MOVE_WORDS], u8[n] the block. */
enum mr_move_word {
    MR_MOVE_STATE,      /* enum mr_move_state */
    MR_MOVE_LEFT_BYTES, /* about, after this block */
    MR_MOVE_IS_FIRST,   /* 1: the block's rows have not been sent before */
    MR_MOVE_CLOCK_S,    /* of the source, which its rows are stamped by */
    MR_MOVE_WORDS = 8   /* the rest is 0 */
};
enum mr_move_state {
    MR_MOVE_NOT_READY, /* the core does not send this move, or not yet: ask again */
    MR_MOVE_MORE,      /* there is more, or will be: the partitions are served */
    MR_MOVE_ALL,       /* calls for the partitions wait, and this block is the last */
    MR_MOVE_LOST,      /* the move cannot be completed */
};

/* MOVE asks for a change of the cluster's map: u64[MR_MOVE_REQUEST_WORDS], u8[2, MR_CLUSTER_NAME_BYTES]
 * names of nodes, NUL-padded. It is answered once the map says so, with that map's epoch: u64[1] (older
 * versions: nothing). The moves themselves go on; a node with an older map does not show them yet. */
enum mr_move_kind {
    MR_MOVE_PARTITIONS = 1, /* from the first node to the second */
    MR_MOVE_DRAIN,          /* all from the first node to the others, and none to it until MR_MOVE_BALANCE */
    MR_MOVE_BALANCE,        /* until each node has as many as its cores are, drained ones included */
    MR_MOVE_CANCEL,         /* moves in progress, and what follows from a drain or a balance */
    MR_MOVE_FORGET          /* takes the first node out of the map: it is away, and owns nothing */
};
enum mr_move_request_word {
    MR_MOVE_REQUEST_KIND,
    MR_MOVE_REQUEST_FIRST, /* slot; MR_MOVE_ANY: the longest runs there are */
    MR_MOVE_REQUEST_COUNT, /* 0: all */
    MR_MOVE_REQUEST_MIB_S, /* at most; 0: as the targets are configured */
    MR_MOVE_REQUEST_ID,    /* to cancel: of one move; 0: all */
    MR_MOVE_REQUEST_WORDS = 8
};
#define MR_MOVE_ANY UINT64_MAX

/* The answer to MOVES: u64[MR_MOVES_WORDS], u64[n, MR_MOVES_ROW_WORDS], a row for each move of the map, and
 * u8[k, MR_CLUSTER_NAME_BYTES], the names of the map's nodes, NUL-padded. */
enum mr_moves_word {
    MR_MOVES_EPOCH,
    MR_MOVES_BALANCES, /* 1: the leader begins more of them */
    MR_MOVES_DRAINED,  /* a bit for each node of the map: 64 in this word, and in the three that follow */
    MR_MOVES_WORDS = 8
};
enum mr_moves_row_word {
    MR_MOVES_ID,
    MR_MOVES_FIRST,
    MR_MOVES_COUNT,
    MR_MOVES_FROM, /* index of the map's nodes */
    MR_MOVES_TO,
    MR_MOVES_MIB_S,
    MR_MOVES_STATE, /* enum mr_moves_row_state; this and what follows is as of a second ago */
    MR_MOVES_ROWS,  /* copied; those that changed meanwhile count again */
    MR_MOVES_BYTES,
    MR_MOVES_LEFT_BYTES, /* about */
    MR_MOVES_US,         /* since it began */
    MR_MOVES_ROW_WORDS = 16
};
enum mr_moves_row_state { MR_MOVES_WAITS, MR_MOVES_COPIES, MR_MOVES_ENDS };

#endif
