/* Rows as they are stored, with the optimizer's state if that is asked for: LOOKUP with MR_LOOKUP_STORED. */
#include "ps/ops/ops.h"

struct stored_rows {
    struct ps_key_list list;
    struct ps_table_read read;
    bool is_begun;
};

static struct mr_tensor reply_of(const struct stored_rows *call)
{
    const struct ps_feature *f = call->list.table;
    const uint32_t state_floats = call->read.has_state ? ps_table_state_floats(f->table) : 0;
    return mr_tensor_2d(MR_F32, call->list.in.key_count, f->feature.dims[0] + state_floats + 1, NULL);
}

static enum ps_check ops_stored_rows_begin(const struct ps_op *op, struct stored_rows *call,
                                           uint64_t *budget_bytes)
{
    struct mr_tensor reply = reply_of(call);
    const enum ps_check check = ps_check_key_list(op, &call->list, budget_bytes);
    if (check != PS_CHECK_GOOD)
        return check;
    if (!ps_reply_begin(op->ep, op->request, &reply, 1))
        return PS_CHECK_REFUSED;
    call->read.keys = call->list.in.keys;
    call->read.key_count = call->list.in.key_count;
    call->read.out = reply.data;
    call->is_begun = true;
    return check;
}

static bool ops_stored_rows_step(const struct ps_op *op, void *state, uint64_t budget_bytes)
{
    struct stored_rows *call = state;
    if (!call->is_begun) {
        const enum ps_check check = ops_stored_rows_begin(op, call, &budget_bytes);
        if (check != PS_CHECK_GOOD)
            return check == PS_CHECK_REFUSED;
    }
    const enum dp_phase before = dp_phase_enter(op->core->phases, DP_PHASE_gather);
    const bool is_done = ps_table_read_step(call->list.table->table, &call->read, &budget_bytes);
    dp_phase_leave(op->core->phases, before);
    if (!is_done) {
        ps_reply_advance(op, call->read.out + (size_t)call->read.keys_done * reply_of(call).dims[1]);
        return false;
    }
    mr_reply_end(op->ep, op->request->ref);
    return true;
}

static const struct ps_coop_task job = {.step = ops_stored_rows_step,
                                        .state_bytes = sizeof(struct stored_rows)};

void ps_op_lookup_stored(const struct ps_op *op)
{
    const struct mr_preamble *preamble = &op->request->message->preamble;
    struct stored_rows call = {.read.has_state = (preamble->flags & MR_LOOKUP_STATE) != 0,
                               .read.step = preamble->step};
    struct mr_tensor reply;
    if ((call.list.table = ps_check_table(op, preamble->table)) == NULL ||
        !ps_check_flags(op, preamble->flags, MR_FEED_READ_ONLY | MR_LOOKUP_STORED | MR_LOOKUP_STATE) ||
        !ps_check_key_tensors(op, 0, 0, &call.list) || !ps_check_tensor_count(op, 1))
        return;
    reply = reply_of(&call);
    if (ps_check_reply_bytes(op, &reply, 1) &&
        !ps_defer(op, ps_table_read_cost_bytes(call.list.table->table, call.list.in.key_count)))
        ps_run(op, &job, &call);
}
