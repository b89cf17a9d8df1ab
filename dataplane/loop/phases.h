/* Where a core's cycles go, by phase of its loop and by class of operation.
 *
 * Reading the clock at every edge of every packet would cost more than some of the phases. So only one turn
 * of the loop in so many is measured, from its first to its last edge, and what those turns were made of is
 * taken for all: every tenth of a second the cycles that have really passed are shared out in these
 * proportions. The phases of a core therefore add up to the time that it ran. Which turns are measured is
 * drawn, as work that comes in every n-th turn would be seen always or never. Sleeps are measured all: they
 * are long, and few.
 *
 * A turn without work counts as `idle`, whatever it looked at. Pure: the owner gives the clock. Belongs to
 * the core's thread; others may read the counters.
 */
#ifndef DP_PHASES_H
#define DP_PHASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/base/counter_set.h"

/* X(name, kind, unit, help) */
#define DP_PHASE_LIST(X)                                                                                     \
    X(poll, COUNTER, NONE, "cycles of turns with work that belong to no other phase: the loop itself")       \
    X(idle, COUNTER, NONE, "cycles of turns that found no work")                                             \
    X(sleep, COUNTER, NONE, "cycles asleep, in the adaptive mode")                                           \
    X(receive, COUNTER, NONE, "cycles in which bursts were taken from the port, the socket or a ring")       \
    X(check, COUNTER, NONE, "cycles in which packets were checked and put together: headers, tags, slots")   \
    X(dispatch, COUNTER, NONE, "cycles of operations, without what they did in tables and variables")        \
    X(gather, COUNTER, NONE, "cycles in which rows were looked up, and variables copied out")                \
    X(optimizer, COUNTER, NONE, "cycles in which gradients were added up and applied")                       \
    X(transmit, COUNTER, NONE, "cycles in which answers were made into packets and sent")                    \
    X(tasks, COUNTER, NONE, "cycles of the control thread's tasks")                                          \
    X(save, COUNTER, NONE, "cycles in which rows were written out for a checkpoint")                         \
    X(rpc, COUNTER, NONE, "cycles of the node's worker for remote calls")                                    \
    X(upkeep, COUNTER, NONE, "cycles of background work: evictions, memory, batches that expire")

/* What readers need beside these. */
#define DP_PHASE_COUNTER_LIST(X)                                                                             \
    DP_PHASE_LIST(X)                                                                                         \
    X(tsc_hz, GAUGE, NONE, "cycles in a second, of the counter that phases are measured with")               \
    X(turns_measured, COUNTER, NONE, "turns of the poll loop that were measured")

enum dp_phase {
#define DP_PHASE_ENUM(name, kind, unit, help) DP_PHASE_##name,
    DP_PHASE_LIST(DP_PHASE_ENUM)
#undef DP_PHASE_ENUM
        DP_PHASE_COUNT
};

struct dp_phase_counters {
    DP_PHASE_COUNTER_LIST(MR_COUNTER_FIELD)
};
extern const struct mr_counter_set dp_phase_counter_set;

/* Operations that cost alike. The transport's operations belong to these by dp_op_class(). */
#define DP_OP_CLASS_LIST(X)                                                                                  \
    X(other, COUNTER, NONE, "all operations but those below")                                                \
    X(lookup, COUNTER, NONE, "lookups of rows, by keys or by batch")                                         \
    X(push, COUNTER, NONE, "pushes of gradients, by keys or by batch")                                       \
    X(feed, COUNTER, NONE, "batches fed")                                                                    \
    X(variable, COUNTER, NONE, "pulls and pushes of variables")                                              \
    X(rpc, COUNTER, NONE, "remote calls between workers")                                                    \
    X(echo, COUNTER, NONE, "calls that only come back")

enum dp_op_class {
#define DP_OP_CLASS_ENUM(name, kind, unit, help) DP_OP_CLASS_##name,
    DP_OP_CLASS_LIST(DP_OP_CLASS_ENUM)
#undef DP_OP_CLASS_ENUM
        DP_OP_CLASS_COUNT
};
enum dp_op_class dp_op_class(uint32_t op); /* enum mr_op */
extern const struct mr_counter_set dp_op_calls_counter_set, dp_op_cycles_counter_set,
    dp_op_instructions_counter_set, dp_op_cache_misses_counter_set;

/* What the processor counts of operations, where the core's thread can read it by itself. */
enum dp_op_event { DP_OP_INSTRUCTIONS, DP_OP_CACHE_MISSES, DP_OP_EVENTS };
struct dp_op_events {
    uint64_t counts[DP_OP_EVENTS];
};
/* Reads them; false: not now. */
typedef bool dp_read_op_events(void *arg, struct dp_op_events *out);

struct dp_phases {
    bool is_measured; /* the turn that runs */
    uint8_t at;       /* enum dp_phase: since `since` */
    uint32_t turns_left;
    uint32_t every; /* one turn in so many is measured; 0: none */
    uint64_t random;
    uint64_t (*clock)(void);
    uint64_t since, op_since, sleep_since;
    dp_read_op_events *read_events; /* NULL: there are none */
    void *events_arg;
    bool op_has_events; /* in op_events_since */
    struct dp_op_events op_events_since;
    uint64_t turn[DP_PHASE_COUNT]; /* of the turn that is measured */
    /* since window_since, of all measured turns: what the window's cycles are shared out by */
    uint64_t sample[DP_PHASE_COUNT], op_sample[DP_OP_CLASS_COUNT], sample_sum;
    uint64_t event_sample[DP_OP_EVENTS][DP_OP_CLASS_COUNT];
    uint64_t window_cycles, window_since, window_slept;
    struct dp_phase_counters counters;
    uint64_t op_calls[DP_OP_CLASS_COUNT], op_cycles[DP_OP_CLASS_COUNT];
    uint64_t op_events[DP_OP_EVENTS][DP_OP_CLASS_COUNT];
};

/* Measures one turn in `every` on average (0: none) by `clock`, of `hz` cycles a second. */
void dp_phases_init(struct dp_phases *phases, uint64_t (*clock)(void), uint64_t hz, uint32_t every,
                    uint64_t seed);

/* From now on operations are also measured in events; `arg` is passed to `read`. */
void dp_phases_read_events(struct dp_phases *phases, dp_read_op_events *read, void *arg);

/* ---- edges; each costs a branch in turns that are not measured ---- */

/* For the functions below. */
void dp_phases_measure_turn(struct dp_phases *phases);
void dp_phases_end_turn(struct dp_phases *phases, bool is_busy);
enum dp_phase dp_phases_switch(struct dp_phases *phases, enum dp_phase to);
enum dp_phase dp_phases_begin_op(struct dp_phases *phases);
void dp_phases_end_op(struct dp_phases *phases, enum dp_op_class op, enum dp_phase before);

/* A turn begins and ends where it begins. */
static inline void dp_turn_begin(struct dp_phases *phases)
{
    if (__builtin_expect(--phases->turns_left == 0, 0))
        dp_phases_measure_turn(phases);
}

static inline void dp_turn_end(struct dp_phases *phases, bool is_busy)
{
    if (__builtin_expect(phases->is_measured, 0))
        dp_phases_end_turn(phases, is_busy);
}

/* From now on it is this phase. Returns the one before, for dp_phase_leave(). NULL: nothing is measured. */
static inline enum dp_phase dp_phase_enter(struct dp_phases *phases, enum dp_phase to)
{
    if (phases == NULL || __builtin_expect(!phases->is_measured, 1))
        return to;
    return dp_phases_switch(phases, to);
}

static inline void dp_phase_leave(struct dp_phases *phases, enum dp_phase before)
{
    if (phases != NULL && __builtin_expect(phases->is_measured, 0))
        (void)dp_phases_switch(phases, before);
}

/* The same for the work of an operation (enum mr_op), or a part of it; operations are not nested. */
static inline enum dp_phase dp_op_enter(struct dp_phases *phases)
{
    if (phases == NULL || __builtin_expect(!phases->is_measured, 1))
        return DP_PHASE_dispatch;
    return dp_phases_begin_op(phases);
}

static inline void dp_op_leave(struct dp_phases *phases, uint32_t op, enum dp_phase before)
{
    if (phases != NULL && __builtin_expect(phases->is_measured, 0))
        dp_phases_end_op(phases, dp_op_class(op), before);
}

/* Around a sleep, in any turn. */
void dp_sleep_enter(struct dp_phases *phases);
void dp_sleep_leave(struct dp_phases *phases);

#endif
