/* Rows and bags in requests: of which type rows come and go, and what else comes with bags. */
#include "dataplane/wire/format/bag.h"
#include "dataplane/wire/format/rows.h"
#include "ps/ops/ops.h"

bool ps_check_bag_tensors(const struct ps_op *op, uint32_t flags, uint32_t *at, struct ps_key_list *list)
{
    const char *name = list->table->feature.name;
    if (list->offsets != NULL && list->table->feature.pooling == MR_POOL_NONE) {
        return ps_refuse(op, MR_INVALID_ARGUMENT,
                         "table %s has no pooling: ask for its rows by key, without offsets", name);
    }
    if (flags != 0 && list->offsets == NULL) {
        return ps_refuse(op, MR_INVALID_ARGUMENT, "table %s: weights and divisors are of bags: give offsets",
                         name);
    }
    if ((flags & MR_BAG_WEIGHTS) != 0) {
        if (!ps_check_vector(op, *at, MR_F32, list->key_count, "weights")) {
            return false;
        }
        list->weights = op->tensors[(*at)++].data;
    }
    if ((flags & MR_BAG_DIVISORS) != 0) {
        if (!mr_pooling_averages(list->table->feature.pooling)) {
            return ps_refuse(op, MR_INVALID_ARGUMENT, "table %s pools by sum: it takes no divisors", name);
        }
        if (!ps_check_vector(op, *at, MR_F32, list->bag_count, "divisors")) {
            return false;
        }
        list->divisors = op->tensors[(*at)++].data;
    }
    return true;
}

bool ps_check_rows(const struct ps_op *op, uint32_t *at, uint32_t rank, const char *name, struct ps_rows *out)
{
    enum mr_dtype dtype = *at < op->tensor_count ? op->tensors[*at].dtype : MR_F32;
    if (!mr_convert_knows(dtype)) {
        return ps_refuse(op, MR_WRONG_DTYPE, "%s is %s, not f32, f16, bf16 or i8", name,
                         mr_dtype_name(dtype));
    }
    if (!ps_check_tensor(op, *at, dtype, rank, name)) {
        return false;
    }
    const struct mr_tensor *rows = &op->tensors[*at];
    *out = (struct ps_rows){.dtype = dtype, .at = (*at)++, .values = rows->data};
    if (dtype != MR_I8) {
        return true;
    }
    uint64_t count = 1;
    for (uint32_t i = 0; i + 1 < rank; i++) {
        count *= rows->dims[i];
    }
    if (!ps_check_vector(op, *at, MR_F32, (uint32_t)count, "scales")) {
        return false;
    }
    out->scales = op->tensors[(*at)++].data;
    return true;
}

bool ps_check_reply_dtype(const struct ps_op *op, enum mr_dtype *out)
{
    uint32_t wanted = op->request->message->preamble.flags >> MR_LOOKUP_DTYPE_SHIFT;
    *out = wanted == MR_DTYPE_NONE ? MR_F32 : (enum mr_dtype)wanted;
    return mr_convert_knows(*out) ||
           ps_refuse(op, MR_WRONG_DTYPE, "rows as %s (%u): they come as f32, f16, bf16 or i8",
                     mr_dtype_name(*out), wanted);
}

bool ps_check_flags(const struct ps_op *op, uint32_t flags, uint32_t known)
{
    return (flags & ~known) == 0 ||
           ps_refuse(op, MR_INVALID_ARGUMENT, "flags 0x%x: this server does not know 0x%x", flags,
                     flags & ~known);
}
