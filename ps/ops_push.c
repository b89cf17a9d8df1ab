/* Gradients: by keys, and by batch id. Both read their parts first, check them all, and only then change anything. */
#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>
#include "ps/ops.h"

#define PARTS_MAX (MR_TENSORS_MAX / 2)

/* One feature's gradient in a push. */
struct push_part {
    struct ps_feature *feature;
    const float *gradient;
    struct ps_key_list list; /* of tables */
};

struct push {
    uint32_t part_count;
    bool is_begun; /* from then on it has its whole effect */
    bool partly;   /* some partitions have it already, under its number */
    uint32_t at;   /* the part whose keys are checked or applied */
    bool in_part;  /* `rows` is about it */
    struct ps_table_push rows;
    struct ps_batch *batch;            /* pinned; NULL: by keys */
    struct push_part parts[PARTS_MAX]; /* last: only as many as there are are set */
};

static void push_init(struct push *push)
{
    memset(push, 0, offsetof(struct push, parts));
}

static bool check_named_once(const struct ps_op *op, const struct push *push, const struct ps_feature *f)
{
    for (uint32_t i = 0; i < push->part_count; i++) {
        if (push->parts[i].feature == f) {
            return ps_refuse(op, MR_INVALID_ARGUMENT, "%s is named twice", f->feature.name);
        }
    }
    return true;
}

/* Tensor `at` names a feature of this core that is not in the push yet. */
static struct ps_feature *check_head(const struct ps_op *op, const struct push *push, uint32_t at)
{
    struct ps_feature *f;
    if (!ps_check_vector(op, at, MR_U32, 2, "feature") ||
        (f = ps_check_feature(op, ps_tensor_u32(&op->tensors[at], 0))) == NULL ||
        !check_named_once(op, push, f)) {
        return NULL;
    }
    return f;
}

static bool check_variable_gradient(const struct ps_op *op, const struct ps_feature *f, uint32_t at)
{
    if (!ps_check_tensor(op, at, MR_F32, f->feature.rank, f->feature.name)) {
        return false;
    }
    for (uint32_t i = 0; i < f->feature.rank; i++) {
        if (op->tensors[at].dims[i] != f->feature.dims[i]) {
            return ps_refuse(op, MR_WRONG_SHAPE, "variable %s: dimension %u of the gradient is %u, not %u",
                             f->feature.name, i, op->tensors[at].dims[i], f->feature.dims[i]);
        }
    }
    return true;
}

/* Keys, offsets and gradient at tensors `at`, `at` + 1, `at` + 2. */
static bool check_table_gradient(const struct ps_op *op, struct push_part *part, uint32_t at)
{
    const struct mr_feature *table = &part->feature->feature;
    if (!ps_check_tensor(op, at, MR_U64, 1, "keys") || !ps_check_tensor(op, at + 1, MR_U32, 1, "offsets") ||
        !ps_check_tensor(op, at + 2, MR_F32, 2, "gradient")) {
        return false;
    }
    const struct mr_tensor *gradient = &op->tensors[at + 2];
    bool has_bags = op->tensors[at + 1].dims[0] > 0;
    part->list.table = part->feature;
    part->gradient = gradient->data;
    if (!ps_check_key_tensors(op, at, has_bags ? at + 1 : 0, &part->list)) {
        return false;
    }
    uint32_t rows = has_bags ? part->list.bag_count : part->list.key_count;
    if (gradient->dims[1] != table->dims[0]) {
        return ps_refuse(op, MR_WRONG_DIM, "table %s has dim %u; the gradient's rows have %u", table->name,
                         table->dims[0], gradient->dims[1]);
    }
    if (gradient->dims[0] != rows) {
        return ps_refuse(op, MR_WRONG_SHAPE, "table %s: %u gradients for %u %s", table->name,
                         gradient->dims[0], rows, has_bags ? "bags" : "keys");
    }
    return true;
}

static uint64_t cost_bytes(const struct push *push)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < push->part_count; i++) {
        const struct push_part *part = &push->parts[i];
        bytes += part->feature->table != NULL
                     ? ps_table_push_cost_bytes(part->feature->table, part->list.key_count)
                     : ps_variable_stored_bytes(part->feature->variable);
    }
    return bytes;
}

static bool is_in_slices(const struct ps_op *op)
{
    return op->core->long_calls.running == op->request;
}

/* A checkpoint under way has room for the rows that this push will make it write, and keeps it for them. */
static bool reserve_room(const struct ps_op *op, struct push *push)
{
    uint64_t need_bytes = 0;
    for (uint32_t i = 0; i < push->part_count; i++) {
        if (push->parts[i].feature->table != NULL) {
            need_bytes += ps_save_need_bytes(op->core, push->parts[i].feature, push->parts[i].list.key_count);
        }
    }
    if (!ps_check_save_room(op, need_bytes)) {
        return false;
    }
    op->core->save.reserved_bytes = is_in_slices(op) ? need_bytes : op->core->save.reserved_bytes;
    return true;
}

/* A variable's gradient is applied in one go: it is one row, and its norm may matter. */
static void apply_variable(const struct ps_op *op, const struct push_part *part, uint64_t *budget_bytes)
{
    uint64_t bytes = ps_variable_stored_bytes(part->feature->variable);
    bool applied = ps_variable_push(part->feature->variable, part->gradient);
    op->core->counters.variable_gradients_skipped += applied ? 0 : 1;
    *budget_bytes -= bytes < *budget_bytes ? bytes : *budget_bytes;
}

/* Of a numbered push by keys: rows that were looked up before a restart, and are in no checkpoint, are as they were then, since
 * a row's first values follow from its key. */
static bool makes_rows(const struct ps_op *op)
{
    const struct mr_preamble *preamble = &op->request->message->preamble;
    return preamble->sequence != 0 && preamble->op == MR_OP_PUSH_GRAD && op->core->freeze == MR_FREEZE_OFF;
}

static bool apply_table(const struct ps_op *op, struct push *push, uint64_t *budget_bytes)
{
    const struct push_part *part = &push->parts[push->at];
    if (!push->in_part) {
        push->rows = (struct ps_table_push){.keys = part->list.keys,
                                            .key_count = part->list.key_count,
                                            .offsets = part->list.offsets,
                                            .bag_count = part->list.bag_count,
                                            .gradients = part->gradient,
                                            .at_once = !is_in_slices(op),
                                            .insert = makes_rows(op)};
    }
    push->in_part = !ps_table_push_step(part->feature->table, &push->rows, budget_bytes);
    return !push->in_part;
}

/* Applies part after part; true when all are. */
static bool apply(const struct ps_op *op, struct push *push, uint64_t *budget_bytes)
{
    for (; push->at < push->part_count; push->at++) {
        const struct push_part *part = &push->parts[push->at];
        if (*budget_bytes == 0) {
            return false;
        }
        if (part->feature->variable != NULL) {
            apply_variable(op, part, budget_bytes);
        } else if (!apply_table(op, push, budget_bytes)) {
            return false;
        }
    }
    if (is_in_slices(op)) {
        op->core->save.reserved_bytes = 0;
    }
    ps_note_push(op);
    ps_push_end(op);
    return true;
}

/* What was begun is brought to its end, whether somebody waits for the answer or not. */
static bool drop_push(const struct ps_op *op, void *state)
{
    const struct push *push = state;
    (void)op;
    return !push->is_begun;
}

/* ---- by keys ---- */

static bool check_push(const struct ps_op *op, struct push *push)
{
    for (uint32_t at = 0; at < op->tensor_count;) {
        struct push_part part = {.feature = check_head(op, push, at)};
        if (part.feature == NULL) {
            return false;
        }
        if (part.feature->variable != NULL) {
            if (!check_variable_gradient(op, part.feature, at + 1)) {
                return false;
            }
            part.gradient = op->tensors[at + 1].data;
            at += 2;
        } else {
            if (!check_table_gradient(op, &part, at + 1)) {
                return false;
            }
            at += 4;
        }
        push->parts[push->part_count++] = part;
    }
    return true;
}

/* Leaves out what was applied under this number before. The request's own arrays are rewritten. */
static void leave_out_applied(const struct ps_op *op, struct push *push)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < push->part_count; i++) {
        struct push_part part = push->parts[i];
        const struct mr_feature *f = &part.feature->feature;
        if (part.feature->variable != NULL && ps_push_has(op, mr_variable_partition(f->name))) {
            continue;
        }
        if (part.feature->table != NULL) {
            ps_push_filter(op, &part.list, (float *)part.gradient);
        }
        push->parts[kept++] = part;
    }
    push->part_count = kept;
}

/* The parts' keys, and then that the push can be done and answered. */
static enum ps_check begin_push(const struct ps_op *op, struct push *push, uint64_t *budget_bytes)
{
    for (; push->at < push->part_count; push->at++) {
        struct push_part *part = &push->parts[push->at];
        enum ps_check check =
            part->feature->table != NULL ? ps_check_key_list(op, &part->list, budget_bytes) : PS_CHECK_GOOD;
        if (check != PS_CHECK_GOOD) {
            return check;
        }
    }
    /* Small calls may have come in between. */
    if ((is_in_slices(op) && !ps_check_push(op, &push->partly)) || !reserve_room(op, push)) {
        return PS_CHECK_REFUSED;
    }
    if (!mr_reply_begin(op->ep, op->request->ref, MR_OK, NULL, 0)) {
        mr_reply_busy(op->ep, op->request->ref);
        return PS_CHECK_REFUSED;
    }
    if (push->partly) {
        leave_out_applied(op, push);
    }
    ps_push_begin(op);
    push->at = 0;
    push->is_begun = true;
    return PS_CHECK_GOOD;
}

static bool step_push(const struct ps_op *op, void *state, uint64_t budget_bytes)
{
    struct push *push = state;
    if (!push->is_begun) {
        enum ps_check check = begin_push(op, push, &budget_bytes);
        if (check != PS_CHECK_GOOD) {
            return check == PS_CHECK_REFUSED;
        }
    }
    if (!apply(op, push, &budget_bytes)) {
        return false;
    }
    mr_reply_end(op->ep, op->request->ref);
    return true;
}

static const struct ps_job push_job = {
    .step = step_push, .drop = drop_push, .state_bytes = sizeof(struct push)};
static_assert(sizeof(struct push) <= PS_LONG_STATE_BYTES, "a push waits in place");

void ps_op_push_grad(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_op op = ps_op_of(core_app, ep, request);
    struct push push;
    push_init(&push);
    if (ps_check_open(&op) && ps_check_push(&op, &push.partly) && ps_check_not_frozen(&op) &&
        check_push(&op, &push) && !ps_defer(&op, cost_bytes(&push))) {
        ps_run(&op, &push_job, &push);
    }
}

/* ---- by batch ---- */

/* Leaves out what this core has learnt of the batch already. The batch's own arrays are rewritten: it is about to go. */
static void leave_out_learnt(const struct ps_partial *partial, struct push *push, struct ps_batch *batch)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < push->part_count; i++) {
        struct push_part part = push->parts[i];
        const struct mr_feature *f = &part.feature->feature;
        if (part.feature->variable != NULL && ps_partial_has(partial, mr_variable_partition(f->name))) {
            continue;
        }
        if (part.feature->table != NULL) {
            struct ps_batch_part *fed = ps_batch_part_of(batch, part.feature->id);
            part.list.key_count =
                ps_partial_filter(partial, f->seed, fed->keys, fed->offsets, part.list.bag_count);
        }
        push->parts[kept++] = part;
    }
    push->part_count = kept;
}

/* Features and shapes that do not depend on the batch's being here. */
static bool check_batch_heads(const struct ps_op *op, struct push *push)
{
    if (!ps_check_vector(op, 0, MR_U64, 1, "batch id")) {
        return false;
    }
    if (op->tensor_count % 2 == 0) {
        return ps_refuse(op, MR_WRONG_SHAPE,
                         "a push has a batch id and two tensors per feature, not %u tensors",
                         op->tensor_count);
    }
    for (uint32_t at = 1; at < op->tensor_count; at += 2) {
        struct ps_feature *f = check_head(op, push, at);
        if (f == NULL) {
            return false;
        }
        if (f->variable != NULL ? !check_variable_gradient(op, f, at + 1)
                                : !ps_check_tensor(op, at + 1, MR_F32, 3, f->feature.name)) {
            return false;
        }
        if (f->table != NULL && op->tensors[at + 1].dims[2] != f->feature.dims[0]) {
            return ps_refuse(op, MR_WRONG_DIM, "table %s has dim %u; the gradient's rows have %u",
                             f->feature.name, f->feature.dims[0], op->tensors[at + 1].dims[2]);
        }
        push->parts[push->part_count++] =
            (struct push_part){.feature = f, .gradient = op->tensors[at + 1].data};
    }
    return true;
}

/* The batch was fed with these tables, and their gradients have its shape. Takes its keys. */
static bool check_batch_parts(const struct ps_op *op, struct push *push, const struct ps_batch *batch)
{
    if (batch->read_only) {
        return ps_refuse(op, MR_INVALID_ARGUMENT,
                         "batch %" PRIu64 " was fed read only: it takes no gradients", batch->id);
    }
    for (uint32_t i = 0; i < push->part_count; i++) {
        struct push_part *part = &push->parts[i];
        const struct mr_tensor *gradient = &op->tensors[2 + 2 * i];
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
                             "table %s: the gradient is of %u samples and %u slots, the batch of %u and %u",
                             part->feature->feature.name, gradient->dims[0], gradient->dims[1], fed->samples,
                             fed->slots);
        }
        part->list.keys = fed->keys;
        part->list.key_count = fed->key_count;
        part->list.offsets = fed->offsets;
        part->list.bag_count = fed->samples * fed->slots;
    }
    return true;
}

static bool check_record(const struct ps_op *op, uint64_t batch_id)
{
    enum mr_status status = ps_learnt_reserve(op->core->learnt, batch_id);
    if (status == MR_OUT_OF_MEMORY) {
        return ps_refuse(op, status, "no memory for the record of learnt batches: raise batches.memory_mib");
    }
    if (status != MR_OK) {
        return ps_refuse(op, status,
                         "batch number %" PRIu64 " of stream %u is more than %u ahead of %" PRIu64
                         ", the oldest not learnt: number batches from 0 on",
                         mr_batch_sequence(batch_id), mr_batch_stream(batch_id), PS_LEARNT_WINDOW,
                         ps_learnt_watermark(op->core->learnt, mr_batch_stream(batch_id)));
    }
    return true;
}

static bool begin_answer(const struct ps_op *op, uint32_t applied)
{
    struct mr_tensor reply = mr_tensor_1d(MR_U32, 1, &applied);
    if (!mr_reply_begin(op->ep, op->request->ref, MR_OK, &reply, 1)) {
        mr_reply_busy(op->ep, op->request->ref);
        return false;
    }
    return true;
}

/* From here on nobody finds the batch any more. */
static bool begin_batch(const struct ps_op *op, struct push *push)
{
    struct ps_core *core = op->core;
    uint64_t batch_id = push->batch->id;
    if (!check_record(op, batch_id) || !reserve_room(op, push) || !begin_answer(op, 1)) {
        return false;
    }
    const struct ps_partial *partial = ps_partials_find(&core->partials, batch_id);
    if (partial != NULL) {
        leave_out_learnt(partial, push, push->batch);
        ps_partials_remove(&core->partials, batch_id);
    }
    ps_batch_pin(push->batch);
    ps_batch_remove(core->batches, push->batch);
    ps_push_begin(op);
    push->is_begun = true;
    return true;
}

static bool step_batch(const struct ps_op *op, void *state, uint64_t budget_bytes)
{
    struct push *push = state;
    struct ps_core *core = op->core;
    if (!push->is_begun && !begin_batch(op, push)) {
        return true;
    }
    if (!apply(op, push, &budget_bytes)) {
        return false;
    }
    ps_learnt_add(core->learnt, push->batch->id);
    core->counters.batches_learnt++;
    ps_batch_unpin(core->batches, push->batch);
    mr_reply_end(op->ep, op->request->ref);
    return true;
}

static const struct ps_job batch_job = {
    .step = step_batch, .drop = drop_push, .state_bytes = sizeof(struct push)};

/* The push under way learns this batch. */
static bool is_being_learnt(const struct ps_core *core, uint64_t batch_id)
{
    const struct ps_long_calls *l = &core->long_calls;
    return l->running != NULL && l->job == &batch_job &&
           ps_tensor_u64(l->running->message->tensors, 0) == batch_id;
}

static void answer_learnt(const struct ps_op *op, uint64_t batch_id)
{
    if (!begin_answer(op, 0)) {
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
    struct push push;
    push_init(&push);
    if (!ps_check_open(&op) || !ps_check_push_of_batch(&op) || !check_batch_heads(&op, &push)) {
        return;
    }
    uint64_t batch_id = ps_tensor_u64(&op.tensors[0], 0);
    if (is_being_learnt(core, batch_id)) {
        (void)ps_defer(&op, UINT64_MAX); /* it will have been learnt then */
        return;
    }
    if (ps_learnt_has(core->learnt, batch_id)) {
        answer_learnt(&op, batch_id);
        return;
    }
    if (ps_check_not_frozen(&op) && (push.batch = ps_check_batch(&op, batch_id)) != NULL &&
        check_batch_parts(&op, &push, push.batch) && !ps_defer(&op, cost_bytes(&push))) {
        ps_run(&op, &batch_job, &push);
    }
}
