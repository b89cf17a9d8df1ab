#include "ps/ops.h"

/* Keys given with offsets are bags. */
static bool check_lookup(const struct ps_op *op, const struct ps_feature *f, struct mr_tensor *reply)
{
    if (!ps_check_tensor(op, 0, MR_U64, 1, "keys")) {
        return false;
    }
    uint32_t key_count = op->tensors[0].dims[0];
    uint32_t dim = f->feature.dims[0];
    *reply = mr_tensor_2d(MR_F32, key_count, dim, NULL);
    if (op->tensor_count > 1) {
        if (!ps_check_tensor(op, 1, MR_U32, 1, "offsets")) {
            return false;
        }
        if (op->tensors[1].dims[0] == 0) {
            return ps_refuse(op, MR_WRONG_SHAPE, "offsets are empty: one more than there are bags");
        }
        uint32_t bag_count = op->tensors[1].dims[0] - 1;
        *reply = mr_tensor_2d(MR_F32, bag_count, dim, NULL);
        if (!ps_check_offsets(op, op->tensors[1].data, bag_count, key_count)) {
            return false;
        }
    }
    return ps_check_reply_bytes(op, reply, 1) && ps_check_keys(op, f, op->tensors[0].data, key_count);
}

void ps_op_lookup(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_op op = ps_op_of(core_app, ep, request);
    const struct mr_preamble *preamble = &request->message->preamble;
    struct mr_tensor reply;
    struct ps_feature *f;
    if (!ps_check_open(&op) || (f = ps_check_table(&op, preamble->table)) == NULL ||
        !check_lookup(&op, f, &reply)) {
        return;
    }
    bool insert = op.core->freeze == MR_FREEZE_OFF && (preamble->flags & MR_FEED_READ_ONLY) == 0;
    if (!mr_reply_begin(ep, request->ref, MR_OK, &reply, 1)) {
        mr_reply_busy(ep, request->ref);
        return;
    }
    if (op.tensor_count > 1) {
        ps_table_lookup_bags(f->table, op.tensors[0].data, op.tensors[1].data, reply.dims[0], insert,
                             reply.data);
    } else {
        ps_table_lookup(f->table, op.tensors[0].data, op.tensors[0].dims[0], insert, reply.data);
    }
    mr_reply_end(ep, request->ref);
}
