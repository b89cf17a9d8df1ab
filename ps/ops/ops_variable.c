/* Variables: pull, and set. */
#include <inttypes.h>
#include <math.h>
#include "dataplane/optimizer/kernels.h"
#include "ps/core/push_log.h"
#include "ps/ops/ops.h"

/* What is set stays: so no NaN and no Inf, which no gradient would take away again. */
static bool check_finite(const struct ps_op *op, const struct ps_pieces *pieces, const float *values)
{
    const struct ps_feature *f = pieces->variable;
    struct ps_piece_walk walk = {0};
    struct mr_run run;
    if (mr_kernels_best()->all_finite(values, pieces->elements))
        return true;
    while (ps_pieces_next(pieces, &walk, &run)) {
        for (uint64_t i = 0; i < run.count; i++) {
            if (!isfinite(values[walk.before + i]))
                return ps_refuse(op, MR_INVALID_ARGUMENT, "variable %s: element %" PRIu64 " would be %g",
                                 f->feature.name, run.range * mr_range_elements(&f->feature) + run.at + i,
                                 (double)values[walk.before + i]);
        }
    }
    return true;
}

/* Tensor 0 says where, tensor 1 has the values. */
static bool check_places(const struct ps_op *op, struct ps_feature *f, struct ps_pieces *pieces)
{
    if (!ps_check_tensor(op, 0, MR_U64, 1, "pieces") || !ps_check_tensor(op, 1, MR_F32, 1, "values"))
        return false;
    const uint32_t count = op->tensors[1].dims[0];
    if (op->tensors[0].dims[0] == 1)
        return ps_check_pieces(op, f, NULL, 1, ps_tensor_u64(&op->tensors[0], 0), count, pieces);
    return ps_check_piece_tensor(op, 0, f, pieces) &&
           (pieces->elements == count ||
            ps_refuse(op, MR_WRONG_SHAPE, "variable %s: %u values for pieces of %" PRIu64, f->feature.name,
                      count, pieces->elements));
}

static void ops_variable_set(const struct ps_op *op, const struct ps_pieces *pieces, bool partly)
{
    const float *values = op->tensors[1].data;
    struct ps_piece_walk walk = {0};
    struct mr_run run;
    while (ps_pieces_next(pieces, &walk, &run)) {
        const struct ps_range *r = &pieces->variable->ranges[run.range];
        if (!partly || !ps_push_has(op, r->partition))
            ps_variable_set(r->variable, run.at, values + walk.before, run.count);
    }
}

void ps_op_variable_push(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_op op = ps_op_of(core_app, ep, request);
    struct ps_feature *f;
    struct ps_pieces pieces;
    bool partly;
    if (!ps_check_open(&op) || !ps_check_push(&op, &partly) || !ps_check_step(&op, true) ||
        !ps_check_not_frozen(&op) || (f = ps_check_variable(&op, request->message->preamble.table)) == NULL ||
        !check_places(&op, f, &pieces))
        return;
    /* Of a large range also a small part waits its turn: a pull in slices is to see it whole or not at
     * all. */
    if (ps_push_log_defers(&op) || ps_defer(&op, ps_pieces_cost_bytes(&pieces)) ||
        !check_finite(&op, &pieces, op.tensors[1].data) || !ps_check_pieces_ready(&op, &pieces) ||
        !ps_push_touch(&op, &pieces) || !ps_push_log_promise(&op, NULL, 0) ||
        !ps_push_answer_begin(&op, NULL, 0))
        return;
    ps_push_begin(&op);
    ops_variable_set(&op, &pieces, partly);
    ps_note_push(&op);
    ps_push_end(&op);
    if (op.core->copies != NULL) {
        ps_push_copy_pieces(&op, &pieces);
        ps_push_copy(&op);
    }
    ps_push_log_push(&op, NULL, 1);
    ps_push_answer_end(&op);
}

struct pull {
    struct ps_pieces pieces;
    struct ps_piece_walk walk;
    struct ps_copy copy; /* of the run that was given last */
};

static bool copy_run(const struct ps_op *op, struct ps_copy *copy, uint64_t *budget_bytes)
{
    const enum dp_phase before = dp_phase_enter(op->core->phases, DP_PHASE_gather);
    const bool is_done = ps_copy_step(copy, budget_bytes);
    dp_phase_leave(op->core->phases, before);
    return is_done;
}

static bool step_pull(const struct ps_op *op, void *state, uint64_t budget_bytes)
{
    struct pull *pull = state;
    struct mr_run run;
    while (copy_run(op, &pull->copy, &budget_bytes)) {
        if (!ps_pieces_next(&pull->pieces, &pull->walk, &run)) {
            mr_reply_end(op->ep, op->request->ref);
            return true;
        }
        const struct ps_range *r = &pull->pieces.variable->ranges[run.range];
        pull->copy.from = (const uint8_t *)(ps_variable_values(r->variable) + run.at);
        pull->copy.bytes = run.count * sizeof(float);
    }
    ps_reply_advance(op, pull->copy.to);
    return false;
}

static const struct ps_coop_task pull_job = {.step = step_pull, .state_bytes = sizeof(struct pull)};

/* Of one piece, a count of 0 means all from its first element on. */
static bool check_range(const struct ps_op *op, struct ps_feature *f, struct ps_pieces *pieces)
{
    if (!ps_check_tensor(op, 0, MR_U64, 1, "range"))
        return false;
    const struct mr_tensor *t = &op->tensors[0];
    if (t->dims[0] != MR_PIECE_WORDS)
        return ps_check_piece_tensor(op, 0, f, pieces);
    const uint64_t first = ps_tensor_u64(t, 0), count = ps_tensor_u64(t, 1);
    const uint64_t total = mr_variable_elements(&f->feature);
    return ps_check_pieces(op, f, NULL, 1, first, count == 0 && first <= total ? total - first : count,
                           pieces);
}

void ps_op_variable_pull(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_op op = ps_op_of(core_app, ep, request);
    struct ps_feature *f;
    struct pull pull = {0};
    if (!ps_check_open(&op) || !ps_check_step(&op, false) ||
        (f = ps_check_variable(&op, request->message->preamble.table)) == NULL ||
        !check_range(&op, f, &pull.pieces))
        return;
    if (pull.pieces.elements > UINT32_MAX) {
        ps_refuse(&op, MR_TOO_LARGE, "%" PRIu64 " elements are more than fit a message: pull ranges",
                  pull.pieces.elements);
        return;
    }
    struct mr_tensor reply = mr_tensor_1d(MR_F32, (uint32_t)pull.pieces.elements, NULL);
    if (!ps_check_reply_bytes(&op, &reply, 1) || ps_defer(&op, reply.bytes) ||
        !ps_reply_begin(ep, request, &reply, 1))
        return;
    pull.copy.to = reply.data;
    ps_run(&op, &pull_job, &pull);
}
