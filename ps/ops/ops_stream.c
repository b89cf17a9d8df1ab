/* Streams of batches: whose they are, what this core has applied of them, and how they are forgotten. */
#include <inttypes.h>
#include <string.h>
#include "ps/core/push_log.h"
#include "ps/move/copy_source.h"
#include "ps/ops/ops.h"

/* The stream's number in tensor 0; false: refused. */
static bool check_number(const struct ps_op *op, uint32_t at, uint32_t *stream)
{
    uint64_t number = ps_tensor_u64(&op->tensors[0], at);
    if (number >= PS_STREAMS_MAX) {
        return ps_refuse(op, MR_INVALID_ARGUMENT, "stream %" PRIu64 ": a stream's number has 16 bits",
                         number);
    }
    *stream = (uint32_t)number;
    return true;
}

bool ps_check_plan(const struct ps_op *op, const char *what, struct mr_plan *plan)
{
    *plan = (struct mr_plan){{0, 0}, 0};
    if (op->tensor_count == 0 || op->tensors[0].dims[0] != 1 + MR_PLAN_WORDS)
        return ps_check_vector(op, 0, MR_U64, 1, what);
    if (!ps_check_vector(op, 0, MR_U64, 1 + MR_PLAN_WORDS, what))
        return false;
    *plan = (struct mr_plan){{ps_tensor_u64(&op->tensors[0], 1), ps_tensor_u64(&op->tensors[0], 2)},
                             ps_tensor_u64(&op->tensors[0], 3)};
    return true;
}

void ps_begin_stream(struct ps_core *core, uint32_t stream)
{
    if (core->partials.count > 0 && ps_applied_batches_plan(core->applied, stream) == NULL)
        ps_partials_forget(&core->partials, stream);
}

bool ps_claim_stream(const struct ps_op *op, uint32_t stream, const struct mr_plan *plan)
{
    const struct ps_stream_user user = {op->request->client_uuid,
                                        mr_call_ref_network(op->ep, op->request->ref)};
    ps_begin_stream(op->core, stream);
    const struct mr_plan *before = ps_applied_batches_plan(op->core->applied, stream);
    const bool is_new = before == NULL || !mr_plan_same(before, plan);
    if (is_new && !ps_push_log_has_room(op->core, PS_LOG_PLAN_BYTES)) {
        ps_hold_back(op, &op->core->log_counters.pushes_held_back);
        return false;
    }
    enum mr_status status = ps_applied_batches_claim(op->core->applied, stream, plan, &user);
    if (status == MR_ALREADY_STARTED) {
        return ps_refuse(
            op, status,
            "stream %u has the batches of another plan, which this core would take for applied: take "
            "another stream, or see millrace ctl streams",
            stream);
    }
    if (status == MR_BUSY) {
        ps_hold_back(op, &op->core->counters.pushes_waiting);
        return false;
    }
    if (status != MR_OK) {
        return ps_refuse(op, status, "no memory for the record of stream %u: see millrace ctl forget-stream",
                         stream);
    }
    if (op->core->copies != NULL)
        ps_copies_note_batches(op->core, stream);
    if (is_new)
        ps_push_log_plan(op->core, stream, plan);
    return true;
}

void ps_op_batch_state(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_op op = ps_op_of(core_app, ep, request);
    const struct ps_applied_batches *applied = op.core->applied;
    struct ps_node *node = op.core->node;
    struct mr_plan plan;
    uint32_t stream = 0;
    if (!ps_check_open(&op) || !ps_check_loaded(&op) || !ps_check_plan(&op, "stream", &plan) ||
        !check_number(&op, 0, &stream) || (op.tensors[0].dims[0] > 1 && !ps_claim_stream(&op, stream, &plan)))
        return;
    /* A restore by call takes applied batches back as a restart does; the upper half tells such times
     * apart. */
    uint64_t incarnation =
        (uint64_t)atomic_load_explicit(&node->restores, memory_order_relaxed) << 32 | node->incarnation;
    const uint64_t state[MR_BATCH_STATE_WORDS] = {[MR_BATCH_STATE_WATERMARK] =
                                                      ps_applied_batches_watermark(applied, stream),
                                                  [MR_BATCH_STATE_INCARNATION] = incarnation};
    struct mr_tensor tensors[2] = {
        mr_body_tensor(MR_BODY_BATCH_STATE, state),
        mr_tensor_1d(MR_U64, ps_applied_batches_bitmap_words(applied, stream), NULL)};
    if (!ps_reply_begin(ep, request, tensors, 2))
        return;
    ps_applied_batches_bitmap(applied, stream, tensors[1].data);
    mr_reply_end(ep, request->ref);
}

static void describe(const struct ps_applied_batches *applied, uint32_t stream, uint64_t *words)
{
    const struct mr_plan *plan = ps_applied_batches_plan(applied, stream);
    words[MR_STREAM_ID] = stream;
    words[MR_STREAM_WATERMARK] = ps_applied_batches_watermark(applied, stream);
    words[MR_STREAM_APPLIED] = ps_applied_batches_count(applied, stream);
    words[MR_STREAM_ADDED] = ps_applied_batches_added(applied, stream);
    memcpy(&words[MR_STREAM_PLAN], plan, sizeof(*plan));
    words[MR_STREAM_USED] = ps_applied_batches_used(applied, stream);
}

void ps_op_streams(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_op op = ps_op_of(core_app, ep, request);
    const struct ps_applied_batches *applied = op.core->applied;
    if (!ps_check_open(&op) || !ps_check_tensor_count(&op, 0))
        return;
    struct mr_tensor t = mr_body_rows(MR_BODY_STREAM, ps_applied_batches_streams(applied), NULL);
    if (!ps_check_reply_bytes(&op, &t, 1) || !ps_reply_begin(ep, request, &t, 1))
        return;
    uint64_t *words = t.data;
    for (uint32_t s = ps_applied_batches_next_stream(applied, 0); s < PS_STREAMS_MAX;
         s = ps_applied_batches_next_stream(applied, s + 1)) {
        describe(applied, s, words);
        words += MR_STREAM_WORDS;
    }
    mr_reply_end(ep, request->ref);
}

/* Whoever forgets a stream that is trained on would have its batches applied again. */
static bool check_idle(const struct ps_op *op, uint32_t stream)
{
    uint32_t kept = ps_batch_cache_of_stream(op->core->batches, stream);
    return kept == 0 ||
           ps_refuse(
               op, MR_ALREADY_STARTED,
               "stream %u is in use: %u of the batches kept are its own; end its plan, or its hub, first",
               stream, kept);
}

void ps_op_forget_stream(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_op op = ps_op_of(core_app, ep, request);
    uint32_t stream = 0;
    if (!ps_check_open(&op) || !ps_check_tensor(&op, 0, MR_U64, 1, "streams"))
        return;
    uint32_t count = op.tensors[0].dims[0];
    for (uint32_t i = 0; i < count; i++) {
        if (!check_number(&op, i, &stream) || !check_idle(&op, stream))
            return;
        if (ps_push_applies_stream(op.core, stream)) {
            (void)ps_defer(&op, UINT64_MAX); /* until it has */
            return;
        }
    }
    if (!ps_push_log_keep(&op, count * sizeof(uint64_t)))
        return;
    for (uint32_t i = 0; i < count; i++) {
        stream = (uint32_t)ps_tensor_u64(&op.tensors[0], i);
        ps_applied_batches_forget(op.core->applied, stream);
        ps_partials_forget(&op.core->partials, stream);
        if (op.core->copies != NULL)
            ps_copies_note_batches(op.core, stream);
    }
    if (op.core->copies != NULL)
        ps_copies_record(op.core);
    ps_push_log_forget(op.core, op.tensors[0].data, count);
    if (ps_push_answer_begin(&op, NULL, 0))
        ps_push_answer_end(&op);
}
