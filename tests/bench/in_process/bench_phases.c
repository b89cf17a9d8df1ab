/* What the measuring of phases costs a core's loop: turns of the loop with calls in them that do nothing
 * else, without any phases, with phases switched off, and on, in alternating rounds; the medians, one JSON
 * object per line. The cost of one call is that beyond the turn's own.
 *   {"name": "phases_per_call", "bare_ns": 0.4, "off_ns": 1.2, "on_ns": 1.9, "unit": "ns"}
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include "dataplane/loop/phases.h"
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/format/op.h"

#define ROUNDS 201u
#define TURNS  20000u
#define CALLS  32u
#define EVERY  64u

#if defined(__x86_64__)
#include <x86intrin.h>
static uint64_t look(void)
{
    return __rdtsc();
}
#else
static uint64_t look(void)
{
    return mr_clock_ns();
}
#endif

/* As a node's loop and its handlers have them: ps/server/poll.c, dataplane/loop/. */
__attribute__((noinline)) static void turn(struct dp_phases *p, uint32_t calls)
{
    dp_turn_begin(p);
    enum dp_phase at = dp_phase_enter(p, DP_PHASE_receive);
    (void)dp_phase_enter(p, DP_PHASE_check);
    for (uint32_t i = 0; i < calls; i++) {
        enum dp_phase before = dp_op_enter(p);
        p->op_calls[dp_op_class(MR_OP_LOOKUP)]++;
        enum dp_phase outer = dp_phase_enter(p, DP_PHASE_gather);
        __asm__ volatile("" ::: "memory");
        dp_phase_leave(p, outer);
        dp_op_leave(p, MR_OP_LOOKUP, before);
    }
    dp_phase_leave(p, at);
    at = dp_phase_enter(p, DP_PHASE_transmit);
    dp_phase_leave(p, at);
    at = dp_phase_enter(p, DP_PHASE_upkeep);
    (void)dp_phase_enter(p, DP_PHASE_transmit);
    dp_phase_leave(p, at);
    dp_turn_end(p, calls > 0);
}

/* The same without phases. */
__attribute__((noinline)) static void bare_turn(uint32_t calls)
{
    for (uint32_t i = 0; i < calls; i++)
        __asm__ volatile("" ::: "memory");
}

enum { BARE, OFF, ON, KINDS };

static double turn_ns(struct dp_phases *p, uint32_t calls)
{
    const uint64_t begin_ns = mr_clock_ns();
    for (uint32_t i = 0; i < TURNS; i++)
        if (p == NULL)
            bare_turn(calls);
        else
            turn(p, calls);
    return (double)(mr_clock_ns() - begin_ns) / TURNS;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof(*values), ascending);
    return values[ROUNDS / 2];
}

static void measure(uint32_t calls, double out[KINDS])
{
    static double times[KINDS][ROUNDS];
    static struct dp_phases phases[KINDS];
    dp_phases_init(&phases[OFF], look, UINT64_C(2000000000), 0, 1);
    dp_phases_init(&phases[ON], look, UINT64_C(2000000000), EVERY, 1);
    for (uint32_t round = 0; round < ROUNDS; round++)
        for (uint32_t kind = BARE; kind < KINDS; kind++)
            times[kind][round] = turn_ns(kind == BARE ? NULL : &phases[kind], calls);
    for (uint32_t kind = BARE; kind < KINDS; kind++)
        out[kind] = median(times[kind]);
}

static void print(const char *name, const double ns[KINDS])
{
    printf("{\"name\": \"%s\", \"bare_ns\": %.2f, \"off_ns\": %.2f, \"on_ns\": %.2f, \"unit\": \"ns\"}\n",
           name, ns[BARE], ns[OFF], ns[ON]);
}

int main(void)
{
    double idle[KINDS], busy[KINDS];
    measure(0, idle);
    measure(CALLS, busy);
    for (uint32_t kind = BARE; kind < KINDS; kind++)
        busy[kind] = (busy[kind] - idle[kind]) / CALLS;
    print("phases_per_turn", idle);
    print("phases_per_call", busy);
    return 0;
}
