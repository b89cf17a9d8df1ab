/* Operations: every call there is, declared once. The enum, the names and the dispatch tables follow from
 * this list.
 *
 * A call is (op, table, step, tensors in) -> (status, tensors out). In the list below, `u64[n]` is a 1-D
 * tensor of n u64. A reply whose status is not OK has at most one tensor, u8[n]: a line of text that says
 * what is wrong and where.
 */
#ifndef MR_OP_H
#define MR_OP_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_feature.h"

/* What the holder of a key may do. Each role may do all that the roles after it may do. */
enum mr_role {
    MR_ROLE_OPERATOR,  /* everything; of a key without a role, and of everybody where there is no key */
    MR_ROLE_TRAINER,   /* train: make features, feed, look up, push, save */
    MR_ROLE_READ_ONLY, /* look: rows that are there, variables, state; its lookups make no rows */
    MR_ROLE_COUNT
};

/* X(name, value, text, repeatable, role)
 * repeatable: a second application changes nothing, so the client may send the call again in a new session
 * by itself. role: the lowest enum mr_role that may call it.
 *
 * Each operation with its request -> its reply. "Rows" are a tensor of f32, f16 or bf16, or one of i8
 * followed by f32[n], a scale for each row (convert.h). "(table)": the preamble names the table or variable.
 * docs/protocol.md explains the words of the replies.
 *
 * NODE_INFO          nothing -> u32[4] {core count, map version, base port, message bytes max}, u16[4096]
 *                    core of each partition; from a member of a cluster, also u64[8], u8[n, 160], u8[4096]
 *                    (cluster.h)
 * ECHO               any -> the same tensors
 * CREATE             u8[n, sizeof(mr_feature)] -> u32[n] feature ids, u32[n] their range_values on the node.
 *                    To core 0, which creates them on every core
 * FREEZE             u32[1] enum mr_freeze -> nothing. To core 0
 * DROP               u8[n, MR_NAME_BYTES] names -> u32[n] feature ids, which are never used again. To core 0
 * ALTER              u8[2, sizeof(mr_feature)] a feature as it was seen, and as it shall be ->
 *                    u8[sizeof(mr_feature)] as it is now. To core 0
 * LIST               nothing -> u8[n, sizeof(mr_feature)], u32[n] ids, u64[n, 5] enum mr_list_word summed
 *                    over cores, u32[2 + n] {restores, the last of everything, and of each feature}, u64[k,
 *                    2] enum mr_list_start, the newest first. To core 0
 * FEED_SAMPLE        u64[1] batch id, or u64[4] with the plan of its stream; then for each table: u32[4]
 *                    {table, samples, slots, flags}, u64[k] keys, u32[samples*slots+1] offsets (CSR; bag =
 *                    sample*slots+slot), what the flags say -> nothing. To every core, with the keys that it
 *                    owns
 * LOOKUP_BATCH       u64[1] batch id (table) -> rows [samples, slots, dim], this core's share of each bag
 * LOOKUP             u64[k] keys (table) -> rows [k, dim]
 *                    u64[k] keys, u32[bags+1] offsets, what the flags say (table) -> rows [bags, dim], pooled
 *                    as the table says
 *                    u64[k] keys, with MR_LOOKUP_STORED (table) -> f32[k, dim + state + 1] rows as they are
 *                    stored
 * LOOKUP_TABLES      for each table, MR_LOOKUP_TABLES_MAX at most: struct mr_table_head, u64[k] keys,
 *                    u32[bags+1] offsets (empty: a row for each key), what the flags say -> for each table:
 *                    rows [bags or k, dim]. One table may be there several times
 * PUSH_GRAD_BATCH    u64[1] batch id, then for each feature: struct mr_push_head, rows [samples, slots, dim]
 *                    or a variable's gradient as in PUSH_GRAD -> u32[1] 1 if applied, 0 if applied before
 *                    (MR_ALREADY_LEARNT);
 *                    counts, if asked for
 * PUSH_GRAD          for each feature: struct mr_push_head, then of a table: u64[k] keys, u32[bags+1] offsets
 *                    (empty: one gradient for each key), rows [bags or k, dim], what the flags say; or with
 *                    MR_PUSH_SET u64[k] keys, u32[0], f32[k, dim or dim + state] rows to be set; of a
 *                    variable: f32[dims], or with MR_PUSH_PIECES u64[2n] whole ranges, f32[k] -> counts, if
 *                    asked for (MR_PUSH_COUNTS): u32[MR_PUSHED_WORDS].
 *                    With a number also nothing: marks the number; or u64[1] first: marks all from there up
 *                    to the number
 * VARIABLE_PUSH      u64[1] first element, or u64[2n] pieces (ranges.h), f32[k] (table) -> nothing
 * VARIABLE_PULL      u64[2n] pieces (of one, count 0: all) (table) -> f32[k]
 * SAVE               u8[n] directory ("" = the configured one), and possibly u64[4] {kind, step, trainers,
 *                    queue} -> u64[1] checkpoint id, u64[1] number. To core 0; returns when the cut has
 *                    begun, or, with id 0, when the save waits
 *                    to save some features only, also: u8[k, MR_NAME_BYTES] names
 *                    u8[0], u64[5] {0, 0, 0, 0, number} -> u64[1] 0, u64[1] number. Cancels that save
 * RESTORE            u8[n] directory, u64[1] id (0 = the newest) -> u64[6] {checkpoint id, step, 1 if taken
 *                    at it, tables, variables, parameters}. To core 0; returns when done
 *                    to restore some features only, also: u8[n, sizeof(mr_restore_pair)], u32[1] 0 or
 *                    MR_RESTORE_REPLACE
 * CHECKPOINT_STATUS  nothing or u64[1] number of a save -> u64[8] {state, id, bytes done, bytes total,
 *                    duration us, last good id, enum mr_status of the last, errno}, u8[n] text of the last
 *                    error, u64[10] details, u64[n, 15] saves, u8[m] a line for each. To core 0
 * HEARTBEAT          nothing -> u64[12] enum mr_heartbeat_word, of this core
 * STATS              nothing -> u8[n] counter names, newline separated, u64[m] values, of this core
 * MEMORY             nothing -> u64[12] {limit, mapped, allocated, ready ahead, units for which there was no
 *                    memory, limit and mapped of batches and records, batches, variables, working memory,
 *                    checkpoint buffers, 0}, u64[n, 8] for each table {id, rows, index, values, state, slack,
 *                    filter, limit}, of this core
 * BATCH_STATE        u64[1] stream, or u64[4] with a plan -> u64[2] {watermark, incarnation}, u64[w] bitmap:
 *                    the batches applied on this core are all sequence numbers below the watermark, and
 *                    watermark + i where bit i is set
 * FORGET_BATCH       u64[n] batch ids -> nothing. The server drops what it cached for them
 * STREAMS            nothing -> u64[n, 8] {stream, watermark, batches applied, times a batch was applied,
 *                    plan (3 words), when it was used last}, of this core
 * FORGET_STREAM      u64[n] streams -> nothing. The server drops what it knows of them
 * START_SAMPLE       u8[n] path, u8[m] format, u64[8] {batch size, epochs, shuffle seed, split ppm held out,
 *                    part (0 train, 1 held out), strict, run, 0}, u8[t] table name -> u64[8] {samples, slots,
 *                    dense, stream, batches, keys, broken lines, 0}. To the hub
 * READ_SAMPLE        u64[n] batch ids that this trainer is done with -> u64[4] {batch id, samples, epoch,
 *                    first sample}, f32[samples, dense], f32[samples] labels. To the hub
 * HUB_STATUS         nothing -> u64[12] {samples read, batches handed out, applied, handed out again,
 *                    expired, broken lines, trainers, fed, waiting, epoch, state, 0}
 * RPC_STATUS         nothing -> u64[24] words, u8[n, 128] members, u8[m] a line for each function. To core 0
 * MOVE_READ          u64[3] -> u64[8], u8[n]: a block of a move. To each core of the source (move.h)
 * MOVE               u64[8], u8[2, 64] names -> u64[1]: what is to move. To core 0 (move.h)
 * MOVES              nothing -> u64[8], u64[n, 16], u8[k, 64]: what moves. To core 0 (move.h)
 * LATENCY            nothing -> u32[h, 2] {op, enum mr_latency_phase}, u64[h, 2] {sum, longest, in ns}, u32
 *                    [h + 1] where the buckets of each begin, u16[b] buckets, u64[b] their counts
 *                    (mr_histogram.h), of this core
 * CAPTURE            u64[16], to start also u8[n] who -> u64[8], u8[n]: packets that the core receives and
 *                    sends (capture.h)
 * MARK               u64[1] number of a mark, u8[n] text of a new one or nothing -> u64[2] {number of the
 *                    newest, how many after that are forgotten}, u8[k, 256] the node's marks after that
 *                    number, without the new one (mr_mark.h). To any core
 * RECENT_CALLS       u64[4] enum mr_recent_ask_word -> u64[8] enum mr_recent_word, u64[n, 16] calls: the last
 *                    of this core, or those around slow ones (recent_calls.h)
 * CLOCK              nothing -> u64[2] {name of the clock (clock_name.h), ns that it shows}, of this core or
 *                    the hub: mr_clock_offset() places it within the time of the exchange
 * FACTS              nothing -> u8[n] lines "name = value": what the node runs on, and its configuration
 * RPC_JOIN to RPC_CANCEL and RPC_PART are between workers: see dataplane/rpc/ and docs/protocol.md.
 */
#define MR_OP_LIST(X)                                                                                        \
    X(NODE_INFO, 1, "node_info", true, READ_ONLY)                                                            \
    X(ECHO, 2, "echo", true, READ_ONLY)                                                                      \
    X(CREATE, 3, "create", true, TRAINER)                                                                    \
    X(FREEZE, 4, "freeze", true, OPERATOR)                                                                   \
    X(LIST, 5, "list", true, READ_ONLY)                                                                      \
    X(FEED_SAMPLE, 6, "feed_sample", true, TRAINER)                                                          \
    X(LOOKUP_BATCH, 7, "lookup_batch", true, TRAINER)                                                        \
    X(LOOKUP, 8, "lookup", true, READ_ONLY)                                                                  \
    X(PUSH_GRAD_BATCH, 9, "push_grad_batch", true, TRAINER)                                                  \
    X(PUSH_GRAD, 10, "push_grad", false, TRAINER)                                                            \
    X(VARIABLE_PUSH, 11, "variable_push", true, TRAINER)                                                     \
    X(VARIABLE_PULL, 12, "variable_pull", true, READ_ONLY)                                                   \
    X(SAVE, 13, "save", false, TRAINER)                                                                      \
    X(RESTORE, 14, "restore", false, OPERATOR)                                                               \
    X(CHECKPOINT_STATUS, 15, "checkpoint_status", true, READ_ONLY)                                           \
    X(HEARTBEAT, 16, "heartbeat", true, READ_ONLY)                                                           \
    X(STATS, 17, "stats", true, READ_ONLY)                                                                   \
    X(BATCH_STATE, 18, "batch_state", true, READ_ONLY)                                                       \
    X(FORGET_BATCH, 19, "forget_batch", true, TRAINER)                                                       \
    X(START_SAMPLE, 20, "start_sample", true, TRAINER)                                                       \
    X(READ_SAMPLE, 21, "read_sample", true, TRAINER)                                                         \
    X(HUB_STATUS, 22, "hub_status", true, READ_ONLY)                                                         \
    X(MEMORY, 23, "memory", true, READ_ONLY)                                                                 \
    X(RPC_JOIN, 24, "rpc_join", true, TRAINER)                                                               \
    X(RPC_CALL, 25, "rpc_call", false, TRAINER)                                                              \
    X(RPC_REFERENCE, 26, "rpc_reference", true, TRAINER)                                                     \
    X(RPC_BACKWARD, 27, "rpc_backward", false, TRAINER)                                                      \
    X(RPC_CONTEXT_END, 28, "rpc_context_end", true, TRAINER)                                                 \
    X(RPC_LEAVE, 29, "rpc_leave", true, TRAINER)                                                             \
    X(RPC_FETCH, 30, "rpc_fetch", true, TRAINER)                                                             \
    X(RPC_ALIVE, 31, "rpc_alive", true, TRAINER)                                                             \
    X(RPC_CANCEL, 32, "rpc_cancel", true, TRAINER)                                                           \
    X(RPC_STATUS, 33, "rpc_status", true, READ_ONLY)                                                         \
    X(STREAMS, 34, "streams", true, READ_ONLY)                                                               \
    X(FORGET_STREAM, 35, "forget_stream", true, OPERATOR)                                                    \
    X(RPC_PART, 36, "rpc_part", true, TRAINER)                                                               \
    X(DROP, 37, "drop", false, OPERATOR)                                                                     \
    X(ALTER, 38, "alter", true, OPERATOR)                                                                    \
    X(MOVE_READ, 39, "move_read", true, OPERATOR)                                                            \
    X(MOVE, 40, "move", true, OPERATOR)                                                                      \
    X(MOVES, 41, "moves", true, READ_ONLY)                                                                   \
    X(LATENCY, 42, "latency", true, READ_ONLY)                                                               \
    X(CAPTURE, 43, "capture", true, OPERATOR)                                                                \
    X(MARK, 44, "mark", true, TRAINER)                                                                       \
    X(RECENT_CALLS, 45, "recent_calls", true, OPERATOR)                                                      \
    X(CLOCK, 46, "clock", true, READ_ONLY)                                                                   \
    X(FACTS, 47, "facts", true, OPERATOR)                                                                    \
    X(LOOKUP_TABLES, 48, "lookup_tables", true, READ_ONLY)

enum mr_op {
#define MR_OP_ENUM(name, value, text, repeatable, role) MR_OP_##name = (value),
    MR_OP_LIST(MR_OP_ENUM)
#undef MR_OP_ENUM
        MR_OP_COUNT
};

#define MR_OP_RPC_LAST MR_OP_RPC_CANCEL

#define MR_MEMORY_CORE_WORDS  12u
#define MR_MEMORY_TABLE_WORDS 8u

enum mr_freeze { MR_FREEZE_OFF = 0, MR_FREEZE_ADMIT = 1, MR_FREEZE_ALL = 2 };
enum mr_feed_flag { MR_FEED_READ_ONLY = 1u << 0 /* no new rows; dropped after its lookup (evaluation) */ };
/* What else is sent with bags (see bag.h), in this order. The flags are in the preamble of LOOKUP, in the
 * head of a push's part, and in a table's head in LOOKUP_TABLES and FEED_SAMPLE. */
enum mr_bag_flag {
    MR_BAG_WEIGHTS = 1u << 1, /* f32[k], of the keys */
    MR_BAG_DIVISORS =
        1u << 2, /* f32[bags]: of bags of which other cores have keys, too; tables that average alone */
};
/* In the head of a push's part: the push has its own learning rate, which may be 0. Without this flag
 * learning_rate is 0, and the feature's schedule gives the rate. */
#define MR_PUSH_LEARNING_RATE (1u << 3)
/* There, too, of a variable: pieces come before the gradient, which is of these ranges only. */
#define MR_PUSH_PIECES (1u << 4)
/* There, too, of a table: rows are set, whatever its optimizer is. f32 rows take the gradients' place, one
 * for each key, and missing rows are made. The optimizer's state becomes that of a new row, or, with
 * MR_PUSH_STATE, follows the values of each row: as many floats as the optimizer keeps. */
#define MR_PUSH_SET   (1u << 5)
#define MR_PUSH_STATE (1u << 6)

/* In the preamble of PUSH_GRAD; the second one also in that of PUSH_GRAD_BATCH. */
enum mr_push_flag {
    /* Of a numbered push: this start of the server has not seen the lookup of these keys, so each counts as
     * looked up now. */
    MR_PUSH_UNSEEN = 1u << 0,
    /* The answer ends with u32[MR_PUSHED_WORDS]: what became of the push on this core. The words are missing
     * where that is not known, because the push, or some of it, was applied before under its number or its
     * batch's. */
    MR_PUSH_COUNTS = 1u << 1,
    /* Of a numbered push that its client sends again after a restart. The flags from MR_PUSH_RESTORES_SHIFT
     * on hold the low bits of the restore count that the client knows from LIST, so that it has dropped what
     * those restores took back. If there were others since, the answer is BUSY, and the client asks. */
    MR_PUSH_AGAIN = 1u << 2,
};
#define MR_PUSH_RESTORES_SHIFT 8u /* in the same flags: 8 bits */
/* The words count keys, each once, and ranges of variables. If a key occurs several times, each of its
 * gradients that holds NaN or Inf counts by itself. SENT is the sum of the others. */
enum mr_pushed_word {
    MR_PUSHED_SENT,
    MR_PUSHED_APPLIED,
    MR_PUSHED_REFUSED, /* a row was due, but memory or the table's capacity was used up */
    MR_PUSHED_WITHOUT_ROW,
    MR_PUSHED_NOT_FINITE, /* NaN or Inf, in the gradient or in the updated row */
    MR_PUSHED_WORDS
};
/* In the preamble of LOOKUP: rows as they are stored, without bags. It makes no rows and leaves no trace. The
 * answer is f32, of each key: the row's values, with MR_LOOKUP_STATE the optimizer's state, and 1, or 0 if
 * the key has no row: then the rest is what a new row would have. */
enum mr_lookup_flag { MR_LOOKUP_STORED = 1u << 3, MR_LOOKUP_STATE = 1u << 4 };
/* The upper half of the flags in the preamble of LOOKUP, LOOKUP_TABLES and LOOKUP_BATCH: enum mr_dtype of the
 * rows in the answer; 0 = f32. */
#define MR_LOOKUP_DTYPE_SHIFT 8

/* A feature that RESTORE is to take: its name in the checkpoint and the one it gets on the node,
 * NUL-padded. */
struct mr_restore_pair {
    char name[MR_NAME_BYTES];
    char new_name[MR_NAME_BYTES]; /* "": the same */
};
/* A feature of that name on the node is replaced; without this flag the call is then refused. */
#define MR_RESTORE_REPLACE 1u

/* u32[4] before each feature's gradient in a push. Bits without a meaning are zero. */
struct mr_push_head {
    uint32_t feature;
    uint32_t flags;      /* enum mr_bag_flag, MR_PUSH_LEARNING_RATE, MR_PUSH_SET and what follows it */
    float learning_rate; /* of this push, with that flag */
    uint32_t zero;
};
#define MR_PUSH_HEAD_WORDS 4u /* of u32 */

/* u32[4] before each table's keys in LOOKUP_TABLES. */
struct mr_table_head {
    uint32_t table;
    uint32_t flags; /* enum mr_bag_flag */
    uint32_t zero[2];
};
#define MR_TABLE_HEAD_WORDS  4u /* of u32 */
#define MR_LOOKUP_TABLES_MAX 32u

enum mr_node_state {
    MR_NODE_SERVING = 1,
    MR_NODE_SAVING = 2,
    MR_NODE_RESTORING = 3,
    MR_NODE_STOPPING = 4,
    MR_NODE_READ_ONLY = 5, /* serves a checkpoint, and takes no updates */
    MR_NODE_FAILED = 6,    /* serves nothing until somebody puts something right */
    MR_NODE_STATES
};

/* HEARTBEAT's answer; in the state FAILED, a text follows that says why: u8[n]. Those from REFUSED on count
 * since the server's start. */
enum mr_heartbeat_word {
    MR_HEARTBEAT_STATE, /* enum mr_node_state */
    MR_HEARTBEAT_INCARNATION,
    MR_HEARTBEAT_UPTIME_US,
    MR_HEARTBEAT_BUSY_PPM, /* of the last second */
    MR_HEARTBEAT_LAST_STEP,
    MR_HEARTBEAT_BATCHES, /* cached */
    MR_HEARTBEAT_ROWS,
    MR_HEARTBEAT_MEMORY_BYTES,
    MR_HEARTBEAT_REFUSED,       /* rows that were not made at a limit */
    MR_HEARTBEAT_WITHOUT_ROW,   /* gradients left out: their keys have no row */
    MR_HEARTBEAT_SKIPPED,       /* gradients left out because of NaN or Inf */
    MR_HEARTBEAT_STEPS_IGNORED, /* calls whose step was too far from all others' to count */
    MR_HEARTBEAT_WORDS
};

/* Of each feature in LIST's answer. The last three count since the feature was made or restored. */
enum mr_list_word {
    MR_LIST_ROWS,
    MR_LIST_BYTES,
    MR_LIST_REFUSED, /* as of HEARTBEAT */
    MR_LIST_WITHOUT_ROW,
    MR_LIST_SKIPPED,
    MR_LIST_WORDS
};

/* The first words of the last tensor of LIST's answer; after them, each feature has one word. */
enum mr_list_history { MR_LIST_RESTORES, MR_LIST_WHOLE, MR_LIST_HISTORY_WORDS };

/* The starts of the node that its state comes from, this one first, at most 8: the start's id (start_id of
 * ACCEPT), and the checkpoint in its own directory that it continued from, 0 for none. */
enum mr_list_start { MR_LIST_START_ID, MR_LIST_START_FROM, MR_LIST_START_WORDS };

/* batch id = stream (high 16 bits) | sequence number (low 48 bits, from 0). A stream is one pass plan of one
 * hub. */
#define MR_BATCH_SEQUENCE_BITS 48
static inline uint64_t mr_batch_sequence(uint64_t batch_id)
{
    return batch_id & ((UINT64_C(1) << MR_BATCH_SEQUENCE_BITS) - 1);
}
static inline uint32_t mr_batch_stream(uint64_t batch_id)
{
    return (uint32_t)(batch_id >> MR_BATCH_SEQUENCE_BITS);
}

#define MR_STREAMS_MAX  65536u
#define MR_STREAM_WORDS 8u /* of each stream in the answer to STREAMS */

/* Identifies the plan that a stream's batches come from. The 16 bits of a stream number cannot tell plans
 * apart, so a core compares these words before it feeds a batch or reports what it has applied. All zero: no
 * plan, the caller chose the number. MR_PLAN_UNKNOWN: the stream comes from a checkpoint of a version that
 * kept no plans, and belongs to the first plan that claims it. */
struct mr_plan {
    uint64_t request[2]; /* of what the trainer asked for */
    uint64_t data;       /* of the samples */
};
#define MR_PLAN_WORDS   3u
#define MR_PLAN_UNKNOWN ((struct mr_plan){{UINT64_MAX, UINT64_MAX}, UINT64_MAX})
static inline bool mr_plan_same(const struct mr_plan *a, const struct mr_plan *b)
{
    return a->request[0] == b->request[0] && a->request[1] == b->request[1] && a->data == b->data;
}

const char *mr_op_name(uint32_t op); /* "?" when unknown */
bool mr_op_repeatable(uint32_t op);
/* Returns the lowest role that may call it; MR_ROLE_READ_ONLY for an unknown operation, which is refused as
 * unknown. */
enum mr_role mr_op_role(uint32_t op);
const char *mr_role_name(enum mr_role role); /* "operator", "trainer", "read_only" */
/* False when there is no role of that name. */
bool mr_role_parse(const char *name, enum mr_role *role);

#endif
