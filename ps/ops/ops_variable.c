#include <inttypes.h>
#include <math.h>
#include "dataplane/wire/base/plural.h"
#include "dataplane/optimizer/kernels.h"
#include "ps/ops/ops.h"

/* What is set stays: so no NaN and no Inf, which no gradient would take away again. */
static bool check_finite(const struct ps_op *op, const struct ps_feature *f, uint64_t first,
                         const float *values, uint32_t count)
{
    if (mr_kernels_best()->all_finite(values, count))
        return true;
    for (uint32_t i = 0; i < count; i++) {
        if (!isfinite(values[i])) {
            return ps_refuse(op, MR_INVALID_ARGUMENT, "variable %s: element %" PRIu64 " would be %g",
                             f->feature.name, first + i, (double)values[i]);
        }
    }
    return true;
}

void ps_op_variable_push(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_op op = ps_op_of(core_app, ep, request);
    struct ps_feature *f;
    bool partly;
    if (!ps_check_open(&op) || !ps_check_push(&op, &partly) || !ps_check_step(&op, true) ||
        !ps_check_not_frozen(&op) || (f = ps_check_variable(&op, request->message->preamble.table)) == NULL ||
        !ps_check_vector(&op, 0, MR_U64, 1, "first element") || !ps_check_tensor(&op, 1, MR_F32, 1, "values"))
        return;
    uint64_t first = ps_tensor_u64(&op.tensors[0], 0);
    uint64_t total = ps_variable_elements(f->variable);
    uint32_t count = op.tensors[1].dims[0];
    if (first > total || count > total - first) {
        ps_refuse(&op, MR_WRONG_SHAPE,
                  "variable %s has %" PRIu64 " element%s; %u from %" PRIu64 " on would go beyond its end",
                  f->feature.name, total, mr_plural(total), count, first);
        return;
    }
    /* Of a large one also a small part waits its turn: a pull in slices is to see it whole or not at all. */
    if (ps_defer(&op, ps_variable_stored_bytes(f->variable)) ||
        !check_finite(&op, f, first, op.tensors[1].data, count) || !ps_check_variable_ready(&op, f) ||
        !ps_push_touch(&op, mr_variable_partition(f->feature.name)) || !ps_reply_begin(ep, request, NULL, 0))
        return;
    ps_push_begin(&op);
    if (!partly || !ps_push_has(&op, mr_variable_partition(f->feature.name)))
        ps_variable_set(f->variable, first, op.tensors[1].data, count);
    ps_note_push(&op);
    ps_push_end(&op);
    mr_reply_end(ep, request->ref);
}

static bool step_pull(const struct ps_op *op, void *state, uint64_t budget_bytes)
{
    struct ps_copy *copy = state;
    if (!ps_copy_step(copy, &budget_bytes)) {
        ps_reply_advance(op, copy->to);
        return false;
    }
    mr_reply_end(op->ep, op->request->ref);
    return true;
}

static const struct ps_coop_task pull_job = {.step = step_pull, .state_bytes = sizeof(struct ps_copy)};

void ps_op_variable_pull(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_op op = ps_op_of(core_app, ep, request);
    struct ps_feature *f;
    if (!ps_check_open(&op) || !ps_check_step(&op, false) ||
        (f = ps_check_variable(&op, request->message->preamble.table)) == NULL ||
        !ps_check_vector(&op, 0, MR_U64, 2, "range"))
        return;
    uint64_t first = ps_tensor_u64(&op.tensors[0], 0);
    uint64_t count = ps_tensor_u64(&op.tensors[0], 1);
    uint64_t total = ps_variable_elements(f->variable);
    if (first > total || count > total - first) {
        ps_refuse(&op, MR_WRONG_SHAPE,
                  "variable %s has %" PRIu64 " element%s; %" PRIu64 " from %" PRIu64
                  " on would go beyond its end",
                  f->feature.name, total, mr_plural(total), count, first);
        return;
    }
    count = count == 0 ? total - first : count;
    if (count > UINT32_MAX) {
        ps_refuse(&op, MR_TOO_LARGE, "%" PRIu64 " elements are more than fit a message: pull ranges", count);
        return;
    }
    struct mr_tensor reply = mr_tensor_1d(MR_F32, (uint32_t)count, NULL);
    if (!ps_check_reply_bytes(&op, &reply, 1) || ps_defer(&op, reply.bytes) ||
        !ps_reply_begin(ep, request, &reply, 1))
        return;
    struct ps_copy copy = {(const uint8_t *)(ps_variable_values(f->variable) + first), reply.data,
                           reply.bytes};
    ps_run(&op, &pull_job, &copy);
}
