/* The step that a call carries: moves the core's clock on, and waits where a checkpoint is to be cut at a
 * step before. */
#include "ps/control/control.h"
#include "ps/ops/ops.h"

static void hold(const struct ps_op *op)
{
    struct ps_core *core = op->core;
    if (ps_step_gate_note(core->step_gate, op->request->client_uuid, op->now_us)) {
        atomic_store_explicit(&core->clients_held, core->step_gate->count, memory_order_release);
        ps_control_wake(core->node->control);
    }
    ps_hold_back(op, &core->counters.calls_held_at_step);
}

bool ps_check_step(const struct ps_op *op, bool changes)
{
    struct ps_core *core = op->core;
    uint64_t step = op->request->message->preamble.step;
    if (changes && core->step_gate != NULL && ps_step_gate_holds(core->step_gate, step)) {
        hold(op);
        return false;
    }
    if (core->step_gate != NULL && core->step_gate->count > 0) {
        ps_step_clock_hold(&core->step_clock, core->step_gate->step);
    }
    ps_step_clock_see(&core->step_clock, step, op->request->ref.session_id, op->request->ref.call_id);
    if (core->step_clock.step != atomic_load_explicit(&core->step, memory_order_relaxed)) {
        atomic_store_explicit(&core->step, core->step_clock.step, memory_order_relaxed);
        core->counters.step = core->step_clock.step;
    }
    return true;
}
