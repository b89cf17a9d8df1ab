/* Partitions on their way to another node: a block for it. */
#include "dataplane/wire/format/move.h"
#include "ps/node_cluster/node_cluster.h"
#include "ps/move/copy_source.h"
#include "ps/move/migration_source.h"
#include "ps/ops/ops.h"

struct read {
    uint64_t move, position;
};

static void ops_move_answer(const struct ps_op *op, const struct ps_migration_block *block)
{
    const uint64_t words[MR_MOVE_WORDS] = {[MR_MOVE_STATE] = block->state,
                                           [MR_MOVE_LEFT_BYTES] = block->left_bytes,
                                           [MR_MOVE_IS_FIRST] = block->is_first,
                                           [MR_MOVE_CLOCK_S] = op->core->now_s};
    struct mr_tensor tensors[2] = {mr_body_tensor(MR_BODY_MOVE, words),
                                   mr_tensor_1d(MR_U8, block->byte_count, block->bytes)};
    ps_reply(op->ep, op->request, tensors, 2);
}

static bool read_step(const struct ps_op *op, void *state, uint64_t budget_bytes)
{
    const struct read *read = state;
    struct ps_migration_block block = {.state = MR_MOVE_NOT_READY};
    const bool is_copy = ps_copy_source_is(op->core, read->move);
    if (!(is_copy ? ps_copy_source_read : ps_migration_source_read)(op->core, read->move, read->position,
                                                                    budget_bytes, &block))
        return false;
    if (!is_copy || block.state != MR_MOVE_MORE || block.byte_count > 0 ||
        !ps_copy_source_park(op->core, read->move, op->request, op->now_us))
        ops_move_answer(op, &block);
    return true;
}

uint64_t ps_move_reads_poll(struct ps_core *core, uint64_t now_us)
{
    const struct mr_request *request;
    struct ps_migration_block block = {.state = MR_MOVE_NOT_READY};
    uint64_t words[MR_MOVE_ASK_WORDS], id;
    while ((request = ps_copies_unpark(core, now_us, &id)) != NULL) {
        const struct ps_op op = ps_op_of(core, core->ep, request);
        (void)mr_body_read(MR_BODY_MOVE_ASK, &request->message->tensors[0], words);
        (void)ps_copy_source_read(core, id, words[MR_MOVE_ASK_POSITION], UINT64_MAX, &block);
        ops_move_answer(&op, &block);
    }
    return ps_copies_due_us(core);
}

void ps_op_move_read(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    static const struct ps_coop_task job = {.step = read_step, .state_bytes = sizeof(struct read)};
    static const struct ps_migration_block nothing = {.bytes = (const uint8_t *)"",
                                                      .state = MR_MOVE_NOT_READY};
    const struct ps_op op = ps_op_of(core_app, ep, request);
    uint64_t words[MR_MOVE_ASK_WORDS];
    if (!ps_check_body(&op, 0, MR_BODY_MOVE_ASK, words))
        return;
    if (!op.core->node->is_member) {
        ps_refuse(&op, MR_INVALID_ARGUMENT, "this node is in no cluster");
        return;
    }
    struct read read = {.move = words[MR_MOVE_ASK_ID], .position = words[MR_MOVE_ASK_POSITION]};
    const uint64_t flags = words[MR_MOVE_ASK_FLAGS];
    if (flags != 0)
        ps_node_cluster_heard_target(op.core->node->cluster, read.move, flags);
    if (read.position == 0) {
        ops_move_answer(&op, &nothing);
        return;
    }
    ps_copy_source_applied(op.core, read.move, read.position);
    if (!ps_defer(&op, MR_MOVE_BLOCK_BYTES))
        ps_run(&op, &job, &read);
}
