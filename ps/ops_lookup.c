/* Rows by key: raw ones, or bags. */
#include "ps/ops.h"

struct lookup {
    struct ps_key_list list;
    struct ps_table_lookup rows;
    bool is_begun;
};

static struct mr_tensor reply_of(const struct lookup *call)
{
    const struct ps_key_list *list = &call->list;
    uint32_t count = list->offsets != NULL ? list->bag_count : list->key_count;
    return mr_tensor_2d(MR_F32, count, list->table->feature.dims[0], NULL);
}

static enum ps_check begin(const struct ps_op *op, struct lookup *call, uint64_t *budget_bytes)
{
    struct ps_key_list *list = &call->list;
    enum ps_check check = ps_check_key_list(op, list, budget_bytes);
    if (check != PS_CHECK_GOOD) {
        return check;
    }
    struct mr_tensor reply = reply_of(call);
    if (!mr_reply_begin(op->ep, op->request->ref, MR_OK, &reply, 1)) {
        mr_reply_busy(op->ep, op->request->ref);
        return PS_CHECK_REFUSED;
    }
    bool read_only = (op->request->message->preamble.flags & MR_FEED_READ_ONLY) != 0;
    call->rows = (struct ps_table_lookup){.keys = list->keys,
                                          .key_count = list->key_count,
                                          .offsets = list->offsets,
                                          .bag_count = list->bag_count,
                                          .insert = op->core->freeze == MR_FREEZE_OFF && !read_only,
                                          .out = reply.data};
    call->is_begun = true;
    return check;
}

static bool step(const struct ps_op *op, void *state, uint64_t budget_bytes)
{
    struct lookup *call = state;
    struct ps_table *table = call->list.table->table;
    if (!call->is_begun) {
        enum ps_check check = begin(op, call, &budget_bytes);
        if (check != PS_CHECK_GOOD) {
            return check == PS_CHECK_REFUSED;
        }
    }
    if (!ps_table_lookup_step(table, &call->rows, &budget_bytes)) {
        ps_reply_advance(op, (float *)call->rows.out +
                                 (size_t)call->rows.rows_done * call->list.table->feature.dims[0]);
        return false;
    }
    mr_reply_end(op->ep, op->request->ref);
    return true;
}

static const struct ps_job job = {.step = step, .state_bytes = sizeof(struct lookup)};

/* Keys given with offsets are bags. */
void ps_op_lookup(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_op op = ps_op_of(core_app, ep, request);
    struct lookup call = {0};
    if (!ps_check_open(&op) ||
        (call.list.table = ps_check_table(&op, request->message->preamble.table)) == NULL ||
        !ps_check_key_tensors(&op, 0, op.tensor_count > 1 ? 1 : 0, &call.list)) {
        return;
    }
    struct mr_tensor reply = reply_of(&call);
    if (!ps_check_reply_bytes(&op, &reply, 1) ||
        ps_defer(&op, ps_table_lookup_cost_bytes(call.list.table->table, call.list.key_count,
                                                 call.list.bag_count))) {
        return;
    }
    ps_run(&op, &job, &call);
}
