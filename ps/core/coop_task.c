#include "ps/core/coop_task.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/trace.h"
#include "ps/core/core.h"

bool ps_coop_tasks_init(struct ps_coop_tasks *l, uint32_t waiting_max)
{
    l->waiting = calloc(waiting_max, sizeof(void *));
    l->waiting_max = waiting_max;
    return l->waiting != NULL;
}

void ps_coop_tasks_free(struct ps_coop_tasks *l)
{
    free(l->waiting);
}

/* ---- for handlers ---- */

bool ps_is_deferred(const struct ps_core *core, const struct mr_request *request)
{
    return core->coop_tasks.starting == request || core->coop_tasks.running == request;
}

void ps_hold_back(const struct ps_op *op, uint64_t *counter)
{
    ++*counter;
    mr_reply_busy(op->ep, op->request->ref);
}

struct ps_op ps_op_of(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_core *core = core_app;
    return (struct ps_op){.core = core,
                          .ep = ep,
                          .request = request,
                          .tensors = request->message->tensors,
                          .tensor_count = request->message->preamble.tensor_count,
                          .now_us =
                              ps_is_deferred(core, request) ? core->coop_tasks.now_us : request->now_us};
}

bool ps_defer(const struct ps_op *op, uint64_t cost_bytes)
{
    struct ps_coop_tasks *l = &op->core->coop_tasks;
    if (cost_bytes <= PS_SLICE_BYTES || l->starting == op->request || op->core->replay != NULL)
        return false;
    l->calls_long++;
    const struct mr_request *request = l->count < l->waiting_max ? mr_reply_later(op->ep, op->request) : NULL;
    if (request == NULL) {
        mr_reply_busy(op->ep, op->request->ref);
        return true;
    }
    l->waiting[(l->first + l->count++) % l->waiting_max] = request;
    return true;
}

void ps_run(const struct ps_op *op, const struct ps_coop_task *job, void *state)
{
    struct ps_coop_tasks *l = &op->core->coop_tasks;
    if (l->starting != op->request) {
        op->core->counters.calls_between_slices += l->running != NULL;
        while (!job->step(op, state, UINT64_MAX)) {
        }
        return;
    }
    assert(l->running == NULL && job->state_bytes <= PS_COOP_STATE_BYTES);
    memcpy(l->state, state, job->state_bytes);
    l->running = op->request;
    l->job = job;
}

void ps_reply_advance(const struct ps_op *op, const void *end)
{
    if (op->core->coop_tasks.running == op->request)
        mr_reply_advance(op->ep, op->request->ref, end);
}

/* ---- slices ---- */

/* The first that waits and that somebody waits for. */
static const struct mr_request *take_next(struct ps_core *core)
{
    struct ps_coop_tasks *l = &core->coop_tasks;
    while (l->count > 0) {
        const struct mr_request *request = l->waiting[l->first];
        l->first = (l->first + 1) % l->waiting_max;
        l->count--;
        if (!mr_call_ref_alive(core->ep, request->ref))
            mr_reply_busy(core->ep, request->ref); /* gives back what the call held */
        else if (request->deadline_us <= l->now_us)
            mr_reply_status(core->ep, request->ref, MR_DEADLINE_EXCEEDED);
        else
            return request;
    }
    return NULL;
}

/* The batch that a call names; tensor 0 of other calls is something else. */
static uint64_t batch_of(const struct mr_message *m)
{
    switch (m->preamble.op) {
    case MR_OP_FEED_SAMPLE:
    case MR_OP_LOOKUP_BATCH:
    case MR_OP_PUSH_GRAD_BATCH:
        return *(const uint64_t *)m->tensors[0].data; /* its handler has checked that it is there */
    default:
        return MR_TRACE_NO_BATCH;
    }
}

static void coop_task_begin(struct ps_core *core, const struct mr_request *request)
{
    struct ps_coop_tasks *l = &core->coop_tasks;
    core->counters.calls_in_slices++;
    l->starting = request;
    mr_call_turn(core->ep, request->ref);
    uint64_t begin_ns = mr_trace_begin(core->node->trace);
    const uint32_t op = request->message->preamble.op; /* the request may end here */
    const enum dp_phase before = dp_op_enter(core->phases);
    core->node->dispatch[op](core, core->ep, request);
    dp_op_leave(core->phases, op, before);
    l->starting = NULL;
    if (core->node->trace != NULL && l->running != NULL) {
        l->span.name = mr_op_name(request->message->preamble.op);
        l->span.begin_ns = begin_ns;
        l->span.batch = batch_of(request->message);
    }
}

/* Whether the running call is done: answered by its step, or nobody waits for it any more. */
static bool is_through(struct ps_core *core, uint64_t budget_bytes)
{
    struct ps_coop_tasks *l = &core->coop_tasks;
    struct ps_op op = ps_op_of(core, core->ep, l->running);
    if (!mr_call_ref_alive(core->ep, l->running->ref) &&
        (l->job->drop == NULL || l->job->drop(&op, l->state))) {
        mr_reply_end(core->ep, l->running->ref); /* gives back what the call held */
        return true;
    }
    return l->job->step(&op, l->state, budget_bytes);
}

static void coop_task_run(struct ps_core *core, uint64_t budget_bytes)
{
    struct ps_coop_tasks *l = &core->coop_tasks;
    const uint32_t op = l->running->message->preamble.op;
    const enum dp_phase before = dp_op_enter(core->phases);
    const bool is_done = is_through(core, budget_bytes);
    dp_op_leave(core->phases, op, before);
    if (!is_done)
        return;
    l->running = NULL;
    mr_trace_span(core->node->trace, core->index, l->span.name, l->span.begin_ns, l->span.batch);
}

/* Of the next slice. Counted in slices and not by the clock, so that the course of a call is the same each
 * time. */
static uint64_t slice_bytes(struct ps_core *core)
{
    struct ps_coop_tasks *l = &core->coop_tasks;
    uint64_t calls_small = mr_endpoint_counters(core->ep)->calls_served - l->calls_long;
    if (l->calls_small != calls_small) {
        l->calls_small = calls_small;
        l->slices_alone = 0;
    }
    if (l->slices_alone == PS_SLICES_ALONE)
        return PS_SLICE_ALONE_BYTES;
    l->slices_alone++;
    return PS_SLICE_BYTES;
}

bool ps_coop_tasks_step(struct ps_core *core, uint64_t now_us)
{
    struct ps_coop_tasks *l = &core->coop_tasks;
    l->now_us = now_us;
    if (l->running == NULL) {
        const struct mr_request *next = take_next(core);
        if (next != NULL)
            coop_task_begin(core, next);
    }
    if (l->running != NULL) {
        core->counters.slices++;
        coop_task_run(core, slice_bytes(core));
    }
    return l->running != NULL || l->count > 0;
}

void ps_coop_tasks_settle(struct ps_core *core)
{
    while (core->coop_tasks.running != NULL)
        coop_task_run(core, UINT64_MAX);
}
