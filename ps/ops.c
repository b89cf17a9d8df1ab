#include "ps/ops.h"

const dp_handler ps_dispatch[MR_OP_COUNT] = {
    [MR_OP_NODE_INFO] = ps_op_node_info,
    [MR_OP_ECHO] = ps_op_echo,
    [MR_OP_CREATE] = ps_op_control,
    [MR_OP_FREEZE] = ps_op_control,
    [MR_OP_LIST] = ps_op_control,
    [MR_OP_FEED_SAMPLE] = ps_op_feed_sample,
    [MR_OP_LOOKUP_BATCH] = ps_op_lookup_batch,
    [MR_OP_LOOKUP] = ps_op_lookup,
    [MR_OP_PUSH_GRAD_BATCH] = ps_op_push_grad_batch,
    [MR_OP_PUSH_GRAD] = ps_op_push_grad,
    [MR_OP_VARIABLE_PUSH] = ps_op_variable_push,
    [MR_OP_VARIABLE_PULL] = ps_op_variable_pull,
    [MR_OP_SAVE] = ps_op_control,
    [MR_OP_RESTORE] = ps_op_control,
    [MR_OP_CHECKPOINT_STATUS] = ps_op_checkpoint_status,
    [MR_OP_HEARTBEAT] = ps_op_heartbeat,
    [MR_OP_STATS] = ps_op_stats,
    [MR_OP_MEMORY] = ps_op_memory,
    [MR_OP_BATCH_STATE] = ps_op_batch_state,
    [MR_OP_FORGET_BATCH] = ps_op_forget_batch,
};
