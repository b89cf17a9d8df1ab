/* Gradients: what pushes by keys and by batch id have in common, and those by keys. */
#include <assert.h>
#include <float.h>
#include <stddef.h>
#include <string.h>
#include "ps/ops/ops_push.h"
#include "dataplane/wire/base/plural.h"

void ps_push_init(struct ps_push *push)
{
    memset(push, 0, offsetof(struct ps_push, parts));
}

static bool check_named_once(const struct ps_op *op, const struct ps_push *push, const struct ps_feature *f)
{
    for (uint32_t i = 0; i < push->part_count; i++) {
        if (push->parts[i].feature == f) {
            return ps_refuse(op, MR_INVALID_ARGUMENT, "%s is named twice", f->feature.name);
        }
    }
    return true;
}

static bool check_head_words(const struct ps_op *op, const struct ps_feature *f,
                             const struct mr_push_head *head, uint32_t known_flags)
{
    const char *name = f->feature.name;
    uint32_t unknown = head->flags & ~(MR_PUSH_LEARNING_RATE | (f->table != NULL ? known_flags : 0));
    if (unknown != 0 || head->zero != 0) {
        return ps_refuse(op, MR_INVALID_ARGUMENT,
                         "%s: flags 0x%x or last word 0x%x of the push's head have no meaning here", name,
                         unknown, head->zero);
    }
    bool has_rate = (head->flags & MR_PUSH_LEARNING_RATE) != 0;
    if (!(head->learning_rate >= 0 && head->learning_rate <= FLT_MAX) ||
        (!has_rate && head->learning_rate > 0)) {
        return ps_refuse(
            op, MR_INVALID_ARGUMENT,
            "%s: learning rate %g of the push %s flag 0x%x: with it, it is from 0 to %g; without it, 0", name,
            (double)head->learning_rate, has_rate ? "with" : "without", MR_PUSH_LEARNING_RATE,
            (double)FLT_MAX);
    }
    return true;
}

bool ps_push_check_head(const struct ps_op *op, const struct ps_push *push, uint32_t *at,
                        uint32_t known_flags, struct ps_push_part *out, uint32_t *flags)
{
    struct mr_push_head head;
    struct ps_feature *f;
    if (!ps_check_vector(op, *at, MR_U32, MR_PUSH_HEAD_WORDS, "head of the push")) {
        return false;
    }
    memcpy(&head, op->tensors[(*at)++].data, sizeof(head));
    f = ps_check_feature(op, head.feature);
    if (f == NULL || !check_head_words(op, f, &head, known_flags) || !check_named_once(op, push, f)) {
        return false;
    }
    *out = (struct ps_push_part){.feature = f,
                                 .has_learning_rate = (head.flags & MR_PUSH_LEARNING_RATE) != 0,
                                 .learning_rate = head.learning_rate};
    *flags = head.flags & ~MR_PUSH_LEARNING_RATE;
    return true;
}

bool ps_push_check_variable(const struct ps_op *op, struct ps_push_part *part, uint32_t *at)
{
    const struct mr_feature *f = &part->feature->feature;
    if (!ps_check_tensor(op, *at, MR_F32, f->rank, f->name)) {
        return false;
    }
    const struct mr_tensor *gradient = &op->tensors[(*at)++];
    for (uint32_t i = 0; i < f->rank; i++) {
        if (gradient->dims[i] != f->dims[i]) {
            return ps_refuse(op, MR_WRONG_SHAPE, "variable %s: dimension %u of the gradient is %u, not %u",
                             f->name, i, gradient->dims[i], f->dims[i]);
        }
    }
    part->gradient = (struct ps_rows){.dtype = MR_F32, .values = gradient->data};
    return true;
}

/* Keys, offsets, gradient and what else there is, from tensor *at on. */
static bool check_table_gradient(const struct ps_op *op, struct ps_push_part *part, uint32_t flags,
                                 uint32_t *at)
{
    const struct mr_feature *table = &part->feature->feature;
    uint32_t keys_at = *at, gradient_at = *at + 2;
    *at = gradient_at;
    if (!ps_check_tensor(op, keys_at, MR_U64, 1, "keys") ||
        !ps_check_tensor(op, keys_at + 1, MR_U32, 1, "offsets") ||
        !ps_check_rows(op, at, 2, "gradient", &part->gradient)) {
        return false;
    }
    const struct mr_tensor *gradient = &op->tensors[gradient_at];
    bool has_bags = op->tensors[keys_at + 1].dims[0] > 0;
    part->list.table = part->feature;
    if (!ps_check_key_tensors(op, keys_at, has_bags ? keys_at + 1 : 0, &part->list) ||
        !ps_check_bag_tensors(op, flags, at, &part->list)) {
        return false;
    }
    uint32_t rows = has_bags ? part->list.in.bag_count : part->list.in.key_count;
    if (gradient->dims[1] != table->dims[0]) {
        return ps_refuse(op, MR_WRONG_DIM, "table %s has dim %u; the gradient's rows have %u", table->name,
                         table->dims[0], gradient->dims[1]);
    }
    if (gradient->dims[0] != rows) {
        return ps_refuse(op, MR_WRONG_SHAPE, "table %s: %u gradient%s for %u %s%s", table->name,
                         gradient->dims[0], mr_plural(gradient->dims[0]), rows, has_bags ? "bag" : "key",
                         mr_plural(rows));
    }
    return true;
}

uint64_t ps_push_cost_bytes(const struct ps_push *push)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < push->part_count; i++) {
        const struct ps_push_part *part = &push->parts[i];
        bytes += part->feature->table != NULL
                     ? ps_table_push_cost_bytes(part->feature->table, part->list.in.key_count) +
                           (uint64_t)part->list.in.bag_count * PS_OFFSET_COST_BYTES
                     : ps_variable_stored_bytes(part->feature->variable);
    }
    return bytes;
}

static bool is_in_slices(const struct ps_op *op)
{
    return op->core->coop_tasks.running == op->request;
}

bool ps_push_check_room(const struct ps_op *op, struct ps_push *push)
{
    push->room_bytes = 0;
    for (uint32_t i = 0; i < push->part_count; i++) {
        struct ps_feature *f = push->parts[i].feature;
        if (f->table != NULL) {
            push->room_bytes += ps_save_need_bytes(op->core, f, push->parts[i].list.in.key_count);
        } else if (!ps_check_variable_ready(op, f)) {
            return false;
        }
    }
    return ps_check_save_room(op, push->room_bytes);
}

/* What was applied before was counted then, for whoever asked, and nobody can say any more what became of the
 * whole. */
static bool reports_counts(const struct ps_op *op, const struct ps_push *push)
{
    return (op->request->message->preamble.flags & MR_PUSH_COUNTS) != 0 && !push->leaves_out;
}

bool ps_push_begin_answer(const struct ps_op *op, struct ps_push *push, const struct mr_tensor *first)
{
    struct mr_tensor tensors[2];
    uint32_t count = 0;
    bool tells = reports_counts(op, push);
    if (first != NULL) {
        tensors[count++] = *first;
    }
    if (tells) {
        tensors[count++] = mr_tensor_1d(MR_U32, MR_PUSHED_WORDS, NULL);
    }
    if (!mr_reply_begin(op->ep, op->request->ref, MR_OK, count > 0 ? tensors : NULL, count)) {
        mr_reply_busy(op->ep, op->request->ref);
        return false;
    }
    push->reported = tells ? tensors[count - 1].data : NULL;
    return true;
}

static void report_counts(const struct ps_op *op, const struct ps_push *push)
{
    const struct ps_push_counts *c = &push->counts;
    const uint32_t words[MR_PUSHED_WORDS] = {[MR_PUSHED_SENT] =
                                                 c->applied + c->refused + c->without_row + c->not_finite,
                                             [MR_PUSHED_APPLIED] = c->applied,
                                             [MR_PUSHED_REFUSED] = c->refused,
                                             [MR_PUSHED_WITHOUT_ROW] = c->without_row,
                                             [MR_PUSHED_NOT_FINITE] = c->not_finite};
    if (push->reported != NULL && mr_call_ref_alive(op->ep, op->request->ref)) {
        memcpy(push->reported, words, sizeof(words));
    }
}

void ps_push_start(const struct ps_op *op, struct ps_push *push)
{
    if (is_in_slices(op)) {
        op->core->save.reserved_bytes = push->room_bytes;
    }
    ps_push_begin(op);
    push->is_begun = true;
}

/* NULL: as the feature's schedule has it. */
static const float *rate_of(const struct ps_push_part *part)
{
    return part->has_learning_rate ? &part->learning_rate : NULL;
}

/* A variable's gradient is applied in one go: it is one row, and its norm may matter. */
static void apply_variable(const struct ps_op *op, struct ps_push *push, uint64_t *budget_bytes)
{
    const struct ps_push_part *part = &push->parts[push->at];
    uint64_t bytes = ps_variable_stored_bytes(part->feature->variable);
    bool applied = ps_variable_push(part->feature->variable, op->request->message->preamble.step,
                                    rate_of(part), part->gradient.values);
    push->counts.applied += applied;
    push->counts.not_finite += !applied;
    part->feature->gradients_skipped += !applied;
    op->core->counters.variable_gradients_skipped += !applied;
    *budget_bytes -= bytes < *budget_bytes ? bytes : *budget_bytes;
}

/* Of a numbered push by keys: rows that were looked up before a restart, and are in no checkpoint, are as
 * they were then, since a row's first values follow from its key. */
static bool is_numbered(const struct ps_op *op)
{
    const struct mr_preamble *preamble = &op->request->message->preamble;
    return preamble->sequence != 0 && preamble->op == MR_OP_PUSH_GRAD;
}

/* And of any push of rows that are set: nobody has to look them up first. */
static bool makes_rows(const struct ps_op *op, const struct ps_feature *f)
{
    return (is_numbered(op) || f->feature.optimizer == MR_OPT_ASSIGN) && op->core->freeze == MR_FREEZE_OFF;
}

/* The lookup that came before such a push was answered by another start of the server. */
static bool is_unseen(const struct ps_op *op)
{
    return is_numbered(op) && (op->request->message->preamble.flags & MR_PUSH_UNSEEN) != 0;
}

static bool apply_table(const struct ps_op *op, struct ps_push *push, uint64_t *budget_bytes)
{
    const struct ps_push_part *part = &push->parts[push->at];
    if (!push->in_part) {
        ps_set_now(op, part->feature->table);
        push->rows = (struct ps_table_push){.in = part->list.in,
                                            .gradients_dtype = part->gradient.dtype,
                                            .gradients = part->gradient.values,
                                            .gradient_scales = part->gradient.scales,
                                            .left_out = push->leaves_out ? push->left_out : NULL,
                                            .at_once = !is_in_slices(op),
                                            .insert = makes_rows(op, part->feature),
                                            .sees = is_unseen(op),
                                            .step = op->request->message->preamble.step,
                                            .learning_rate = rate_of(part)};
    }
    push->in_part = !ps_table_push_step(part->feature->table, &push->rows, budget_bytes);
    if (push->in_part) {
        return false;
    }
    const struct ps_push_counts *c = &push->rows.counts;
    push->counts.applied += c->applied;
    push->counts.refused += c->refused;
    push->counts.without_row += c->without_row;
    push->counts.not_finite += c->not_finite;
    return true;
}

bool ps_push_apply(const struct ps_op *op, struct ps_push *push, uint64_t *budget_bytes)
{
    for (; push->at < push->part_count; push->at++) {
        const struct ps_push_part *part = &push->parts[push->at];
        if (*budget_bytes == 0) {
            return false;
        }
        if (part->feature->variable != NULL) {
            apply_variable(op, push, budget_bytes);
        } else if (!apply_table(op, push, budget_bytes)) {
            return false;
        }
    }
    if (is_in_slices(op)) {
        op->core->save.reserved_bytes = 0;
    }
    ps_note_push(op);
    ps_push_end(op);
    report_counts(op, push);
    return true;
}

void ps_push_leave_out(struct ps_push *push, const uint64_t partitions[MR_PARTITION_COUNT / 64])
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < push->part_count; i++) {
        const struct ps_feature *f = push->parts[i].feature;
        uint32_t partition = f->variable != NULL ? mr_variable_partition(f->feature.name) : 0;
        if (f->variable == NULL || (partitions[partition / 64] >> (partition % 64) & 1) == 0) {
            push->parts[kept++] = push->parts[i];
        }
    }
    push->part_count = kept;
    push->leaves_out = true;
    memcpy(push->left_out, partitions, sizeof(push->left_out));
}

bool ps_push_drop(const struct ps_op *op, void *state)
{
    const struct ps_push *push = state;
    (void)op;
    return !push->is_begun;
}

/* ---- by keys ---- */

static bool check_push(const struct ps_op *op, struct ps_push *push)
{
    for (uint32_t at = 0; at < op->tensor_count;) {
        struct ps_push_part part;
        uint32_t flags;
        if (!ps_push_check_head(op, push, &at, MR_BAG_WEIGHTS | MR_BAG_DIVISORS, &part, &flags) ||
            !(part.feature->variable != NULL ? ps_push_check_variable(op, &part, &at)
                                             : check_table_gradient(op, &part, flags, &at))) {
            return false;
        }
        push->parts[push->part_count++] = part;
    }
    return true;
}

/* The parts' keys, and then that the push can be done and answered. */
static enum ps_check begin_push(const struct ps_op *op, struct ps_push *push, uint64_t *budget_bytes)
{
    for (; push->at < push->part_count; push->at++) {
        struct ps_push_part *part = &push->parts[push->at];
        enum ps_check check =
            part->feature->table != NULL ? ps_check_key_list(op, &part->list, budget_bytes) : PS_CHECK_GOOD;
        if (check != PS_CHECK_GOOD) {
            return check;
        }
    }
    /* Small calls may have come in between. */
    if ((is_in_slices(op) && !ps_check_push(op, &push->partly)) || !ps_push_check_room(op, push)) {
        return PS_CHECK_REFUSED;
    }
    if (push->partly) {
        uint64_t partitions[MR_PARTITION_COUNT / 64];
        ps_push_partitions(op, partitions);
        ps_push_leave_out(push, partitions);
    }
    if (!ps_push_begin_answer(op, push, NULL)) {
        return PS_CHECK_REFUSED;
    }
    ps_push_start(op, push);
    push->at = 0;
    return PS_CHECK_GOOD;
}

static bool step_push(const struct ps_op *op, void *state, uint64_t budget_bytes)
{
    struct ps_push *push = state;
    if (!push->is_begun) {
        enum ps_check check = begin_push(op, push, &budget_bytes);
        if (check != PS_CHECK_GOOD) {
            return check == PS_CHECK_REFUSED;
        }
    }
    if (!ps_push_apply(op, push, &budget_bytes)) {
        return false;
    }
    mr_reply_end(op->ep, op->request->ref);
    return true;
}

static const struct ps_coop_task push_job = {
    .step = step_push, .drop = ps_push_drop, .state_bytes = sizeof(struct ps_push)};
static_assert(sizeof(struct ps_push) <= PS_COOP_STATE_BYTES, "a push waits in place");

void ps_op_push_grad(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_op op = ps_op_of(core_app, ep, request);
    struct ps_push push;
    ps_push_init(&push);
    if (ps_check_open(&op) && ps_check_push(&op, &push.partly) && ps_check_step(&op, true) &&
        ps_check_not_frozen(&op) && check_push(&op, &push) && !ps_defer(&op, ps_push_cost_bytes(&push))) {
        ps_run(&op, &push_job, &push);
    }
}
