/* A cut at a step, over all cores. ps/core/step_barrier.h explains why it contains exactly the pushes up to
 * that step. */
#include <stdlib.h>
#include <string.h>
#include "ps/control/control_internal.h"

#define LOOK_US 100000u /* between two checks while too few trainers are held */

uint64_t ps_control_step(const struct ps_control *c)
{
    uint64_t step = 0;
    for (uint32_t i = 0; i < c->node->core_count; i++) {
        uint64_t on_core = atomic_load_explicit(&c->node->cores[i]->step, memory_order_relaxed);
        step = on_core > step ? on_core : step;
    }
    return step;
}

/* ---- on the cores ---- */

struct arm_order {
    const struct ps_step_cut *cut;
    uint64_t step[DP_CORES_MAX]; /* that each has reached */
};

static void arm_on_core(struct ps_core *core, void *arg)
{
    struct arm_order *order = arg;
    core->step_barrier = &order->cut->gates[core->index];
    atomic_store_explicit(&core->clients_held, 0, memory_order_relaxed);
    order->step[core->index] = core->step_clock.step;
}

static void disarm_on_core(struct ps_core *core, void *arg)
{
    core->step_barrier = NULL;
    atomic_store_explicit(&core->clients_held, 0, memory_order_relaxed);
}

static void look_on_core(struct ps_core *core, void *arg)
{
    const struct ps_step_cut *cut = arg;
    memcpy(&cut->seen[core->index], core->step_barrier, sizeof(*core->step_barrier));
}

/* ---- the control thread's side ---- */

static bool make_gates(struct ps_control *c)
{
    struct ps_step_cut *cut = &c->saves.cut;
    uint32_t cores = c->node->core_count;
    if (cut->gates == NULL) {
        cut->gates = calloc(2 * (size_t)cores + 1, sizeof(*cut->gates));
        cut->seen = cut->gates == NULL ? NULL : cut->gates + cores;
    }
    return cut->gates != NULL;
}

/* Calls from this step on are let through: no trainer steps further than from the present step to the cut, or
 * than an interval. */
static uint64_t stray_step(const struct ps_control *c, uint64_t step)
{
    uint64_t present = ps_control_step(c), span = PS_STEP_NEAR;
    span = step > present && step - present > span ? step - present : span;
    span = c->saves.schedule.every_steps > span ? c->saves.schedule.every_steps : span;
    return step > UINT64_MAX - span - 1 ? UINT64_MAX : step + span + 1;
}

static void count_cut(const struct ps_control *c)
{
    const struct ps_step_cut *cut = &c->saves.cut;
    struct ps_checkpoint_counters *counters = &c->node->checkpoint_counters;
    ps_counter_set(&counters->waiting_step, cut->is_armed ? cut->step : 0);
    ps_counter_set(&counters->trainers_held, cut->is_armed ? cut->arrived : 0);
    ps_counter_set(&counters->trainers_awaited, cut->is_armed ? cut->trainers : 0);
}

bool ps_cut_arm(struct ps_control *c, uint64_t step, uint32_t trainers, bool is_automatic)
{
    struct ps_step_cut *cut = &c->saves.cut;
    struct arm_order order = {.cut = cut};
    if (!make_gates(c))
        return false;
    uint64_t stray = stray_step(c, step);
    for (uint32_t i = 0; i < c->node->core_count; i++)
        ps_step_barrier_init(&cut->gates[i], step, stray);
    cut->is_armed = true;
    cut->is_automatic = is_automatic;
    cut->step = step;
    cut->trainers = trainers;
    cut->arrived = 0;
    cut->held_since_us = cut->looked_us = 0;
    ps_node_each_core(c->node, arm_on_core, &order);
    for (uint32_t i = 0; i < c->node->core_count; i++) {
        if (order.step[i] > step) {
            ps_cut_disarm(c);
            return false;
        }
    }
    count_cut(c);
    return true;
}

void ps_cut_disarm(struct ps_control *c)
{
    if (c->saves.cut.is_armed) {
        ps_node_each_core(c->node, disarm_on_core, NULL);
        c->saves.cut.is_armed = false;
        count_cut(c);
    }
}

/* An upper bound: a client that several cores hold counts for each. */
static uint32_t held_at_most(const struct ps_control *c)
{
    uint32_t held = 0;
    for (uint32_t i = 0; i < c->node->core_count; i++)
        held += atomic_load_explicit(&c->node->cores[i]->clients_held, memory_order_acquire);
    return held;
}

static uint32_t count_held(struct ps_control *c, uint64_t now_us)
{
    struct ps_step_cut *cut = &c->saves.cut;
    struct ps_step_barrier *all = &cut->seen[c->node->core_count];
    ps_node_each_core(c->node, look_on_core, cut);
    ps_step_barrier_init(all, cut->step, 0);
    for (uint32_t i = 0; i < c->node->core_count; i++)
        ps_step_barrier_merge(all, &cut->seen[i], now_us);
    return all->count;
}

enum ps_cut_state ps_cut_look(struct ps_control *c)
{
    struct ps_step_cut *cut = &c->saves.cut;
    uint32_t held = held_at_most(c);
    uint64_t now_us = dp_now_us();
    if (held == 0)
        return PS_CUT_WAITS;
    if (held >= cut->trainers || now_us - cut->looked_us >= LOOK_US) {
        cut->looked_us = now_us;
        cut->arrived = count_held(c, now_us);
        count_cut(c);
    }
    if (cut->arrived == 0) { /* they have died, or given up */
        cut->held_since_us = 0;
        return PS_CUT_WAITS;
    }
    cut->held_since_us = cut->held_since_us == 0 ? now_us : cut->held_since_us;
    return cut->arrived >= cut->trainers ? PS_CUT_READY : PS_CUT_WAITS;
}

bool ps_cut_is_late(const struct ps_control *c)
{
    uint64_t since_us = c->saves.cut.held_since_us;
    return since_us != 0 && dp_now_us() - since_us >= c->node->config->checkpoint_step_wait_ms * 1000;
}
