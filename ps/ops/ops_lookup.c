/* Rows by key: raw ones, or bags. */
#include <string.h>
#include "dataplane/wire/format/rows.h"
#include "ps/ops/ops.h"

struct lookup {
    struct ps_key_list list;
    enum mr_dtype dtype; /* of the answer */
    struct ps_table_lookup rows;
    bool is_begun;
    float sum[MR_DIM_MAX]; /* last: used for bags of other types than f32 only */
};

/* By its flag, or because the caller may change nothing. */
static bool is_read_only(const struct mr_request *request)
{
    return (request->message->preamble.flags & MR_FEED_READ_ONLY) != 0 || request->role == MR_ROLE_READ_ONLY;
}

static uint32_t reply_of(const struct lookup *call, struct mr_tensor out[MR_ROWS_TENSORS_MAX])
{
    const struct ps_key_list *list = &call->list;
    uint32_t count = list->in.offsets != NULL ? list->in.bag_count : list->in.key_count;
    return mr_rows_tensors(mr_tensor_2d(MR_F32, count, list->table->feature.dims[0], NULL), call->dtype, out);
}

static enum ps_check begin(const struct ps_op *op, struct lookup *call, uint64_t *budget_bytes)
{
    struct ps_key_list *list = &call->list;
    struct mr_tensor reply[MR_ROWS_TENSORS_MAX];
    enum ps_check check = ps_check_key_list(op, list, budget_bytes);
    if (check != PS_CHECK_GOOD)
        return check;
    if (!ps_reply_begin(op->ep, op->request, reply, reply_of(call, reply)))
        return PS_CHECK_REFUSED;
    call->rows =
        (struct ps_table_lookup){.in = list->in,
                                 .insert = op->core->freeze == MR_FREEZE_OFF && !is_read_only(op->request),
                                 .out_dtype = call->dtype,
                                 .out = reply[0].data,
                                 .scales = call->dtype == MR_I8 ? reply[1].data : NULL,
                                 .sum = call->sum};
    ps_set_now(op, list->table->table);
    call->is_begun = true;
    return check;
}

static bool step(const struct ps_op *op, void *state, uint64_t budget_bytes)
{
    struct lookup *call = state;
    struct ps_table *table = call->list.table->table;
    if (!call->is_begun) {
        enum ps_check check = begin(op, call, &budget_bytes);
        if (check != PS_CHECK_GOOD)
            return check == PS_CHECK_REFUSED;
    }
    const enum dp_phase before = dp_phase_enter(op->core->phases, DP_PHASE_gather);
    const bool is_done = ps_table_lookup_step(table, &call->rows, &budget_bytes);
    dp_phase_leave(op->core->phases, before);
    if (!is_done) {
        size_t row_bytes = (size_t)call->list.table->feature.dims[0] * mr_dtype_bytes(call->dtype);
        ps_reply_advance(op, (uint8_t *)call->rows.out + call->rows.rows_done * row_bytes);
        return false;
    }
    mr_reply_end(op->ep, op->request->ref);
    return true;
}

static const struct ps_coop_task job = {.step = step, .state_bytes = offsetof(struct lookup, sum)};
static const struct ps_coop_task narrow_bags_job = {.step = step, .state_bytes = sizeof(struct lookup)};

static bool check_lookup(const struct ps_op *op, struct lookup *call)
{
    const struct mr_preamble *preamble = &op->request->message->preamble;
    uint32_t flags = preamble->flags & ((1u << MR_LOOKUP_DTYPE_SHIFT) - 1);
    bool has_bags = op->tensor_count > 1;
    uint32_t at = has_bags ? 2 : 1;
    return (call->list.table = ps_check_table(op, preamble->table)) != NULL &&
           ps_check_flags(op, flags, MR_FEED_READ_ONLY | MR_BAG_WEIGHTS | MR_BAG_DIVISORS) &&
           ps_check_reply_dtype(op, &call->dtype) &&
           ps_check_key_tensors(op, 0, has_bags ? 1 : 0, &call->list) &&
           ps_check_bag_tensors(op, flags & ~(uint32_t)MR_FEED_READ_ONLY, &at, &call->list) &&
           ps_check_tensor_count(op, at);
}

/* Keys given with offsets are bags. */
void ps_op_lookup(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_op op = ps_op_of(core_app, ep, request);
    struct lookup call;
    struct mr_tensor reply[MR_ROWS_TENSORS_MAX];
    memset(&call, 0, offsetof(struct lookup, sum));
    if (!ps_check_open(&op) || !ps_check_step(&op, !is_read_only(request)) || !check_lookup(&op, &call) ||
        !ps_check_reply_bytes(&op, reply, reply_of(&call, reply)) ||
        ps_defer(&op, ps_table_lookup_cost_bytes(call.list.table->table, call.list.in.key_count,
                                                 call.list.in.bag_count)))
        return;
    ps_run(&op, call.list.in.offsets != NULL && call.dtype != MR_F32 ? &narrow_bags_job : &job, &call);
}
