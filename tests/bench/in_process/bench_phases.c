/* What measuring costs a core's loop. Phases: turns of the loop with calls in them that do nothing else,
 * without any phases, with phases switched off, and on, in alternating rounds; the medians, one JSON object
 * per line. The cost of one call is that beyond the turn's own.
 *   {"name": "phases_per_call", "bare_ns": 0.4, "off_ns": 1.2, "on_ns": 1.9, "unit": "ns"}
 * Records of calls: a record written for each call that is not timed, with nobody who asks for slow calls,
 * and with every call slow ("on"); "bare" is a call that is only counted.
 *   {"name": "record_per_call", "bare_ns": 0.3, "off_ns": 3.1, "on_ns": 5.9, "unit": "ns"}
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/loop/phases.h"
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/call/call_records.h"
#include "dataplane/wire/format/op.h"

#define ROUNDS 201u
#define TURNS  20000u
#define CALLS  32u
#define EVERY  64u

#if defined(__x86_64__)
#include <x86intrin.h>
static uint64_t phases_look(void)
{
    return __rdtsc();
}
#else
static uint64_t phases_look(void)
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
    dp_phases_init(&phases[OFF], phases_look, UINT64_C(2000000000), 0, 1);
    dp_phases_init(&phases[ON], phases_look, UINT64_C(2000000000), EVERY, 1);
    for (uint32_t round = 0; round < ROUNDS; round++)
        for (uint32_t kind = BARE; kind < KINDS; kind++)
            times[kind][round] = turn_ns(kind == BARE ? NULL : &phases[kind], calls);
    for (uint32_t kind = BARE; kind < KINDS; kind++)
        out[kind] = median(times[kind]);
}

static void phases_print(const char *name, const double ns[KINDS])
{
    printf("{\"name\": \"%s\", \"bare_ns\": %.2f, \"off_ns\": %.2f, \"on_ns\": %.2f, \"unit\": \"ns\"}\n",
           name, ns[BARE], ns[OFF], ns[ON]);
}

/* ---- records of calls ---- */

/* As server_reply.c writes one; what it reads is in a slot and a session. */
struct ended_call {
    uint64_t stamp;
    float wait_ns, work_ns;
    uint32_t table, keys, request_bytes, reply_bytes;
    uint8_t ip[16];
    uint16_t port;
    uint8_t op, status;
};

__attribute__((noinline)) static void record(struct mr_call_records *r, const struct ended_call *c,
                                             uint64_t now_ns)
{
    struct mr_call_record *to = mr_call_record_next(r);
    to->arrived_ns = c->stamp;
    to->total_ns = (float)(now_ns - c->stamp);
    to->wait_ns = c->wait_ns;
    to->work_ns = c->work_ns;
    to->table = c->table;
    to->keys = c->keys;
    to->request_bytes = c->request_bytes;
    to->reply_bytes = c->reply_bytes;
    memcpy(to->ip, c->ip, sizeof(to->ip));
    to->port = c->port;
    to->op = c->op;
    to->status = c->status;
    mr_call_record_add(r);
}

__attribute__((noinline)) static void count(uint64_t *calls)
{
    ++*calls;
}

static double record_ns(struct mr_call_records *r)
{
    struct ended_call call = {.wait_ns = -1, .request_bytes = 100, .reply_bytes = 200, .op = MR_OP_LOOKUP};
    uint64_t calls = 0;
    const uint64_t begin_ns = mr_clock_ns();
    for (uint64_t i = 0; i < TURNS; i++) {
        __asm__ volatile("" : "+m"(call), "+m"(calls)::);
        if (r == NULL)
            count(&calls);
        else
            record(r, &call, i);
    }
    return (double)(mr_clock_ns() - begin_ns) / TURNS;
}

static bool measure_records(double out[KINDS])
{
    static double times[KINDS][ROUNDS];
    static struct mr_call_records records[KINDS];
    for (uint32_t kind = OFF; kind < KINDS; kind++)
        if (!mr_call_records_init(&records[kind]))
            return false;
    mr_call_records_watch(&records[ON], 0, 0);
    for (uint32_t round = 0; round < ROUNDS; round++)
        for (uint32_t kind = BARE; kind < KINDS; kind++)
            times[kind][round] = record_ns(kind == BARE ? NULL : &records[kind]);
    for (uint32_t kind = BARE; kind < KINDS; kind++)
        out[kind] = median(times[kind]);
    for (uint32_t kind = OFF; kind < KINDS; kind++)
        mr_call_records_destroy(&records[kind]);
    return true;
}

int main(void)
{
    double idle[KINDS], busy[KINDS], recorded[KINDS];
    measure(0, idle);
    measure(CALLS, busy);
    for (uint32_t kind = BARE; kind < KINDS; kind++)
        busy[kind] = (busy[kind] - idle[kind]) / CALLS;
    phases_print("phases_per_turn", idle);
    phases_print("phases_per_call", busy);
    if (!measure_records(recorded))
        return 1;
    phases_print("record_per_call", recorded);
    return 0;
}
