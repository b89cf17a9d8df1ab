/* Operations, which ops.def declares: their numbers, names and roles; and what their messages have besides
 * words (bodies.h): flags, structs, levels. */
#ifndef MR_OP_H
#define MR_OP_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/bodies.h"
#include "dataplane/wire/format/mr_feature.h"

/* What the holder of a key may do. Each role may do all that the roles after it may do. */
enum mr_role {
    MR_ROLE_OPERATOR,  /* everything; of a key without a role, and of everybody where there is no key */
    MR_ROLE_TRAINER,   /* train: make features, feed, look up, push, save */
    MR_ROLE_READ_ONLY, /* look: rows that are there, variables, state; its lookups make no rows */
    MR_ROLE_COUNT
};

enum mr_op {
#define MR_OP(NAME, name, value, repeatable, role, served, request, reply) MR_OP_##NAME = (value),
#include "dataplane/wire/format/ops.def"
    MR_OP_COUNT
};

#define MR_OP_RPC_LAST MR_OP_RPC_CANCEL

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
    /* The answer ends with MR_BODY_PUSHED: what became of the push on this core. The words are missing
     * where that is not known, because the push, or some of it, was applied before under its number or its
     * batch's. */
    MR_PUSH_COUNTS = 1u << 1,
    /* Of a numbered push that its client sends again after a restart. The flags from MR_PUSH_RESTORES_SHIFT
     * on hold the low bits of the restore count that the client knows from LIST, so that it has dropped what
     * those restores took back. If there were others since, the answer is BUSY, and the client asks. */
    MR_PUSH_AGAIN = 1u << 2,
};
#define MR_PUSH_RESTORES_SHIFT 8u /* in the same flags: 8 bits */
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

#define MR_STREAMS_MAX 65536u

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
