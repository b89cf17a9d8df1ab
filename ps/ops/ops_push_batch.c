/* Gradients by batch id: of keys that were fed before. The batch's record tells whether it was applied. */
#include <inttypes.h>
#include "dataplane/wire/base/plural.h"
#include "ps/ops/ops_push.h"

/* Features and shapes that do not depend on the batch's being here. */
static bool check_batch_heads(const struct ps_op *op, struct ps_push *push)
{
    if (!ps_check_vector(op, 0, MR_U64, 1, "batch id")) {
        return false;
    }
    for (uint32_t at = 1; at < op->tensor_count;) {
        struct ps_push_part part;
        uint32_t flags;
        if (!ps_push_check_head(op, push, &at, 0, &part, &flags)) {
            return false;
        }
        const struct mr_feature *f = &part.feature->feature;
        const struct mr_tensor *gradient = &op->tensors[at];
        if (part.feature->variable != NULL ? !ps_push_check_variable(op, &part, &at)
                                           : !ps_check_rows(op, &at, 3, f->name, &part.gradient)) {
            return false;
        }
        if (part.feature->table != NULL && gradient->dims[2] != f->dims[0]) {
            return ps_refuse(op, MR_WRONG_DIM, "table %s has dim %u; the gradient's rows have %u", f->name,
                             f->dims[0], gradient->dims[2]);
        }
        push->parts[push->part_count++] = part;
    }
    return true;
}

/* The batch was fed with these tables, and their gradients have its shape. Takes its keys. */
static bool check_batch_parts(const struct ps_op *op, struct ps_push *push, const struct ps_batch *batch)
{
    if (batch->read_only) {
        return ps_refuse(op, MR_INVALID_ARGUMENT,
                         "batch %" PRIu64 " was fed read only: it takes no gradients", batch->id);
    }
    for (uint32_t i = 0; i < push->part_count; i++) {
        struct ps_push_part *part = &push->parts[i];
        const struct mr_tensor *gradient = &op->tensors[part->gradient.at];
        if (part->feature->table == NULL) {
            continue;
        }
        const struct ps_batch_part *fed = ps_batch_part_of(batch, part->feature->id);
        if (fed == NULL) {
            return ps_refuse(op, MR_UNKNOWN_TABLE, "batch %" PRIu64 " was fed without keys of table %s",
                             batch->id, part->feature->feature.name);
        }
        if (gradient->dims[0] != fed->samples || gradient->dims[1] != fed->slots) {
            return ps_refuse(op, MR_WRONG_SHAPE,
                             "table %s: the gradient is of %u sample%s and %u slot%s, the batch of %u and %u",
                             part->feature->feature.name, gradient->dims[0], mr_plural(gradient->dims[0]),
                             gradient->dims[1], mr_plural(gradient->dims[1]), fed->samples, fed->slots);
        }
        part->list.in = (struct ps_bags){.keys = fed->keys,
                                         .key_count = fed->key_count,
                                         .offsets = fed->offsets,
                                         .bag_count = fed->samples * fed->slots,
                                         .weights = fed->weights,
                                         .divisors = fed->divisors};
    }
    return true;
}

static bool check_record(const struct ps_op *op, uint64_t batch_id)
{
    enum mr_status status = ps_applied_batches_reserve(op->core->applied, batch_id);
    if (status == MR_OUT_OF_MEMORY) {
        return ps_refuse(op, status, "no memory for the record of applied batches: raise batches.memory_mib");
    }
    if (status != MR_OK) {
        return ps_refuse(op, status,
                         "batch number %" PRIu64 " of stream %u is more than %u ahead of %" PRIu64
                         ", the oldest not applied: number batches from 0 on",
                         mr_batch_sequence(batch_id), mr_batch_stream(batch_id), PS_APPLIED_BATCHES_WINDOW,
                         ps_applied_batches_watermark(op->core->applied, mr_batch_stream(batch_id)));
    }
    return true;
}

/* From here on nobody finds the batch any more. */
static bool begin_batch(const struct ps_op *op, struct ps_push *push)
{
    struct ps_core *core = op->core;
    uint64_t batch_id = push->batch->id;
    const uint32_t applied = 1;
    const struct mr_tensor answer = mr_tensor_1d(MR_U32, 1, &applied);
    if (!check_record(op, batch_id) || !ps_push_check_room(op, push)) {
        return false;
    }
    const struct ps_partial *partial = ps_partials_find(&core->partials, batch_id);
    if (partial != NULL) {
        ps_push_leave_out(push, partial->partitions);
    }
    if (!ps_push_begin_answer(op, push, &answer)) {
        return false;
    }
    if (partial != NULL) {
        ps_partials_remove(&core->partials, batch_id);
    }
    ps_batch_pin(push->batch);
    ps_batch_remove(core->batches, push->batch);
    ps_push_start(op, push);
    return true;
}

static bool step_batch(const struct ps_op *op, void *state, uint64_t budget_bytes)
{
    struct ps_push *push = state;
    struct ps_core *core = op->core;
    if (!push->is_begun && !begin_batch(op, push)) {
        return true;
    }
    if (!ps_push_apply(op, push, &budget_bytes)) {
        return false;
    }
    ps_applied_batches_add(core->applied, push->batch->id);
    core->counters.batches_learnt++;
    ps_batch_unpin(core->batches, push->batch);
    mr_reply_end(op->ep, op->request->ref);
    return true;
}

static const struct ps_coop_task batch_job = {
    .step = step_batch, .drop = ps_push_drop, .state_bytes = sizeof(struct ps_push)};

/* The push under way learns this batch. */
static bool is_being_applied(const struct ps_core *core, uint64_t batch_id)
{
    const struct ps_coop_tasks *l = &core->coop_tasks;
    return l->running != NULL && l->job == &batch_job &&
           ps_tensor_u64(l->running->message->tensors, 0) == batch_id;
}

bool ps_push_learns_stream(const struct ps_core *core, uint32_t stream)
{
    const struct ps_coop_tasks *l = &core->coop_tasks;
    return l->running != NULL && l->job == &batch_job &&
           mr_batch_stream(ps_tensor_u64(l->running->message->tensors, 0)) == stream;
}

static void answer_applied(const struct ps_op *op, uint64_t batch_id)
{
    const uint32_t applied = 0;
    struct mr_tensor answer = mr_tensor_1d(MR_U32, 1, &applied);
    if (!mr_reply_begin(op->ep, op->request->ref, MR_OK, &answer, 1)) {
        mr_reply_busy(op->ep, op->request->ref);
        return;
    }
    op->core->counters.pushes_refused_learnt++;
    struct ps_batch *again = ps_batch_find(op->core->batches, batch_id);
    if (again != NULL) {
        ps_batch_remove(op->core->batches, again);
    }
    ps_push_begin(op);
    ps_push_end(op);
    mr_reply_end(op->ep, op->request->ref);
}

void ps_op_push_grad_batch(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_op op = ps_op_of(core_app, ep, request);
    struct ps_core *core = op.core;
    struct ps_push push;
    ps_push_init(&push);
    if (!ps_check_open(&op) || !ps_check_push_of_batch(&op) || !check_batch_heads(&op, &push)) {
        return;
    }
    uint64_t batch_id = ps_tensor_u64(&op.tensors[0], 0);
    if (is_being_applied(core, batch_id)) {
        (void)ps_defer(&op, UINT64_MAX); /* it will have been applied then */
        return;
    }
    if (ps_applied_batches_has(core->applied, batch_id)) {
        answer_applied(&op, batch_id);
        return;
    }
    if (ps_check_step(&op, true) && ps_check_not_frozen(&op) &&
        (push.batch = ps_check_batch(&op, batch_id)) != NULL && check_batch_parts(&op, &push, push.batch) &&
        !ps_defer(&op, ps_push_cost_bytes(&push))) {
        ps_run(&op, &batch_job, &push);
    }
}
