/* A push of gradients on its way: its parts are read first, checked all, and only then is anything changed.
 * Shared by ps/ops/ops_push.c (by keys) and ps/ops/ops_push_batch.c (by batch id). A core's thread.
 */
#ifndef PS_OPS_PUSH_H
#define PS_OPS_PUSH_H

#include <stdbool.h>
#include <stdint.h>
#include "ps/ops/ops.h"

#define PS_PUSH_PARTS_MAX (MR_TENSORS_MAX / 2)

/* One feature's gradient in a push. */
struct ps_push_part {
    struct ps_feature *feature;
    struct ps_rows gradient;
    bool has_learning_rate; /* of this push alone */
    float learning_rate;
    struct ps_key_list list; /* of tables */
};

struct ps_push {
    uint32_t part_count;
    bool is_begun;       /* from then on it has its whole effect */
    bool partly;         /* some partitions have it already, under its number */
    uint32_t at;         /* the part whose keys are checked or applied */
    bool in_part;        /* `rows` is about it */
    uint64_t room_bytes; /* of a checkpoint's buffers */
    struct ps_table_push rows;
    struct ps_batch *batch; /* pinned; NULL: by keys */
    bool leaves_out;        /* partitions that have it already */
    uint32_t *reported;     /* enum mr_pushed_word, in the reply; NULL: nobody asks, or it cannot be known */
    struct ps_push_counts counts;                 /* of the parts before `at` */
    struct ps_push_part parts[PS_PUSH_PARTS_MAX]; /* only as many as there are are set */
    uint64_t left_out[MR_PARTITION_COUNT / 64];   /* set if leaves_out */
};

void ps_push_init(struct ps_push *push);
/* Tensor *at is the head of a part: it names a feature of this core that is not in the push yet, and its
 * flags are among `known_flags` (of variables: none). Leaves *at behind it. False: it was refused. */
bool ps_push_check_head(const struct ps_op *op, const struct ps_push *push, uint32_t *at,
                        uint32_t known_flags, struct ps_push_part *out, uint32_t *flags);
/* Tensor *at has the variable's shape. It is f32: variables are few. */
bool ps_push_check_variable(const struct ps_op *op, struct ps_push_part *part, uint32_t *at);
/* Leaves out variables that live in these partitions, and notes them for the keys. */
void ps_push_leave_out(struct ps_push *push, const uint64_t partitions[MR_PARTITION_COUNT / 64]);
/* Of all parts, as ps/core/coop_task.h counts. */
uint64_t ps_push_cost_bytes(const struct ps_push *push);
/* A checkpoint under way has room for the rows that this push will make it write. */
bool ps_push_check_room(const struct ps_op *op, struct ps_push *push);
/* Begins the answer: this tensor, and what became of the push if that is asked for and will be known. `first`
 * NULL: none. False: the call was answered BUSY. */
bool ps_push_begin_answer(const struct ps_op *op, struct ps_push *push, const struct mr_tensor *first);
/* Nothing can stand against the push any more: it keeps that room, and is under way until ps_push_apply() is
 * through. */
void ps_push_start(const struct ps_op *op, struct ps_push *push);
/* Applies part after part; true when all are, the push is marked, and its answer is complete. Between
 * ps_push_begin() and then nothing refuses it. */
bool ps_push_apply(const struct ps_op *op, struct ps_push *push, uint64_t *budget_bytes);
/* The push under way learns a batch of this stream. */
bool ps_push_learns_stream(const struct ps_core *core, uint32_t stream);
/* ps_coop_task.drop: what was begun is brought to its end, whether somebody waits for the answer or not. */
bool ps_push_drop(const struct ps_op *op, void *state);

#endif
