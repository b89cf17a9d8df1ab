#include "dataplane/loop/phases.h"

#include <assert.h>
#include <string.h>
#include "dataplane/wire/format/op.h"

#define WINDOWS_PER_SECOND 10u /* few: a window must hold many measured turns, or its proportions are off */

static const struct mr_counter phase_counters[] = {DP_PHASE_COUNTER_LIST(MR_COUNTER_DESCRIPTION)};
const struct mr_counter_set dp_phase_counter_set = {
    .name = "phase", .help = "where a core's cycles go, by phase of its loop", MR_COUNTERS(phase_counters)};

static const struct mr_counter op_counters[] = {DP_OP_CLASS_LIST(MR_COUNTER_DESCRIPTION)};
const struct mr_counter_set dp_op_calls_counter_set = {
    .name = "op_calls", .help = "calls by class of operation", MR_COUNTERS(op_counters)};
const struct mr_counter_set dp_op_cycles_counter_set = {
    .name = "op_cycles",
    .help = "cycles of calls by class of operation, as `phase` counts them",
    MR_COUNTERS(op_counters)};
const struct mr_counter_set dp_op_instructions_counter_set = {
    .name = "op_instructions",
    .help = "instructions of calls by class of operation, where the core can count them",
    MR_COUNTERS(op_counters)};
const struct mr_counter_set dp_op_cache_misses_counter_set = {
    .name = "op_cache_misses",
    .help = "misses of the last level of cache by class of operation, where the core can count them",
    MR_COUNTERS(op_counters)};

enum dp_op_class dp_op_class(uint32_t op)
{
    static_assert(DP_OP_CLASS_other == 0, "what is not named here");
    static const uint8_t classes[MR_OP_COUNT] = {
        [MR_OP_LOOKUP] = DP_OP_CLASS_lookup,          [MR_OP_LOOKUP_BATCH] = DP_OP_CLASS_lookup,
        [MR_OP_PUSH_GRAD] = DP_OP_CLASS_push,         [MR_OP_PUSH_GRAD_BATCH] = DP_OP_CLASS_push,
        [MR_OP_FEED_SAMPLE] = DP_OP_CLASS_feed,       [MR_OP_VARIABLE_PULL] = DP_OP_CLASS_variable,
        [MR_OP_VARIABLE_PUSH] = DP_OP_CLASS_variable, [MR_OP_RPC_JOIN... MR_OP_RPC_CANCEL] = DP_OP_CLASS_rpc,
        [MR_OP_RPC_PART] = DP_OP_CLASS_rpc,           [MR_OP_ECHO] = DP_OP_CLASS_echo,
        [MR_OP_LOOKUP_TABLES] = DP_OP_CLASS_lookup,
    };
    return op < MR_OP_COUNT ? (enum dp_op_class)classes[op] : DP_OP_CLASS_other;
}

/* 1 to 2 * every - 1, each as likely as the others (xorshift64*). */
static uint32_t draw_gap(struct dp_phases *p)
{
    p->random ^= p->random >> 12;
    p->random ^= p->random << 25;
    p->random ^= p->random >> 27;
    uint64_t drawn = (p->random * UINT64_C(0x2545f4914f6cdd1d)) >> 32;
    return 1 + (uint32_t)((drawn * (2 * (uint64_t)p->every - 1)) >> 32);
}

void dp_phases_init(struct dp_phases *p, uint64_t (*clock)(void), uint64_t hz, uint32_t every, uint64_t seed)
{
    *p = (struct dp_phases){.clock = clock,
                            .every = every,
                            .random = seed | 1,
                            .window_cycles = hz / WINDOWS_PER_SECOND,
                            .window_since = clock(),
                            .counters.tsc_hz = hz};
    if (every != 0)
        p->turns_left = draw_gap(p);
}

void dp_phases_read_events(struct dp_phases *p, dp_read_op_events *read, void *arg)
{
    p->events_arg = arg;
    p->read_events = read;
}

void dp_phases_measure_turn(struct dp_phases *p)
{
    if (p->every == 0)
        return; /* the turns' number has wrapped */
    p->turns_left = draw_gap(p);
    memset(p->turn, 0, sizeof(p->turn));
    p->at = DP_PHASE_poll;
    p->since = p->clock();
    p->is_measured = true;
}

/* What falls to the running phase until `now`. */
static void count_until(struct dp_phases *p, uint64_t now)
{
    p->turn[p->at] += now - p->since;
    p->since = now;
}

enum dp_phase dp_phases_switch(struct dp_phases *p, enum dp_phase to)
{
    enum dp_phase before = (enum dp_phase)p->at;
    count_until(p, p->clock());
    p->at = (uint8_t)to;
    return before;
}

enum dp_phase dp_phases_begin_op(struct dp_phases *p)
{
    p->op_has_events = p->read_events != NULL && p->read_events(p->events_arg, &p->op_events_since);
    enum dp_phase before = dp_phases_switch(p, DP_PHASE_dispatch);
    p->op_since = p->since;
    return before;
}

static void add_events(struct dp_phases *p, enum dp_op_class op)
{
    struct dp_op_events now;
    if (!p->read_events(p->events_arg, &now))
        return;
    for (uint32_t i = 0; i < DP_OP_EVENTS; i++)
        p->event_sample[i][op] += now.counts[i] - p->op_events_since.counts[i];
}

void dp_phases_end_op(struct dp_phases *p, enum dp_op_class op, enum dp_phase before)
{
    (void)dp_phases_switch(p, before);
    p->op_sample[op] += p->since - p->op_since;
    if (p->op_has_events)
        add_events(p, op);
}

void dp_sleep_enter(struct dp_phases *p)
{
    if (p->every == 0)
        return;
    p->sleep_since = p->clock();
    if (p->is_measured)
        count_until(p, p->sleep_since);
}

void dp_sleep_leave(struct dp_phases *p)
{
    if (p->every == 0)
        return;
    p->since = p->clock();
    p->window_slept += p->since - p->sleep_since;
}

static uint64_t share(uint64_t total, uint64_t part, uint64_t sum)
{
    return (uint64_t)((unsigned __int128)total * part / sum);
}

/* Shares out the cycles since window_since. What rounding leaves goes to the loop itself. */
static void settle(struct dp_phases *p)
{
    uint64_t *cycles = (uint64_t *)&p->counters;
    uint64_t total = p->since - p->window_since - p->window_slept, rest = total;
    static_assert(offsetof(struct dp_phase_counters, tsc_hz) == DP_PHASE_COUNT * sizeof(uint64_t),
                  "the phases come first");
    for (uint32_t i = 0; i < DP_PHASE_COUNT; i++) {
        uint64_t part = share(total, p->sample[i], p->sample_sum);
        cycles[i] += part;
        rest -= part;
        p->sample[i] = 0;
    }
    for (uint32_t i = 0; i < DP_OP_CLASS_COUNT; i++) {
        p->op_cycles[i] += share(total, p->op_sample[i], p->sample_sum);
        p->op_sample[i] = 0;
        for (uint32_t j = 0; j < DP_OP_EVENTS; j++) {
            p->op_events[j][i] += share(total, p->event_sample[j][i], p->sample_sum);
            p->event_sample[j][i] = 0;
        }
    }
    p->counters.poll += rest;
    p->counters.sleep += p->window_slept;
    p->sample_sum = p->window_slept = 0;
    p->window_since = p->since;
}

void dp_phases_end_turn(struct dp_phases *p, bool is_busy)
{
    count_until(p, p->clock());
    p->is_measured = false;
    p->counters.turns_measured++;
    for (uint32_t i = 0; i < DP_PHASE_COUNT; i++) {
        p->sample[is_busy ? i : DP_PHASE_idle] += p->turn[i];
        p->sample_sum += p->turn[i];
    }
    if (p->since - p->window_since >= p->window_cycles && p->sample_sum > 0)
        settle(p);
}
