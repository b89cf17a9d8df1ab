/* The schedule of an open loop, and whom a stall is charged to: with a clock and a server of the test's
 * own. */
#include <math.h>

#include "tools/bench/flight.h"
#include "tests/test.h"

#define MS        UINT64_C(1000000)
#define S         (UINT64_C(1000) * MS)
#define CALLS_MAX 2048u

/* ---- schedules ---- */

TEST(test_even_schedules_interleave)
{
    struct tool_schedule s[4];
    for (uint32_t client = 0; client < 4; client++)
        tool_schedule_init(&s[client], 1000, true, 1, client, 4);
    for (uint64_t call = 0; call < 100000; call++) {
        struct tool_schedule *one = &s[call % 4];
        const double off = (double)tool_schedule_next_ns(one) - (double)(call * MS);
        assert_true(fabs(off) <= 1); /* no drift */
        tool_schedule_advance(one);
    }
}

/* Gaps of all clients together: exponentially distributed, with the mean that the rate makes. */
TEST(test_poisson_schedules)
{
    enum { CLIENTS = 3, CALLS = 60000, BINS = 20 };
    struct tool_schedule s[CLIENTS];
    uint64_t before = 0, bins[BINS] = {0};
    const double wanted = (double)CALLS / BINS;
    double chi_square = 0;
    for (uint32_t client = 0; client < CLIENTS; client++)
        tool_schedule_init(&s[client], 500, false, 7, client, CLIENTS);
    for (uint32_t call = 0; call < CALLS; call++) {
        uint32_t first = 0;
        for (uint32_t client = 1; client < CLIENTS; client++)
            if (s[client].next_ns < s[first].next_ns)
                first = client;
        const double gap_s = (double)(tool_schedule_next_ns(&s[first]) - before) / (double)S;
        before = tool_schedule_next_ns(&s[first]);
        /* bins of equal probability, by the exponential distribution's own function */
        const double share = 1 - exp(-gap_s * 500);
        bins[share >= 1 ? BINS - 1 : (uint32_t)(share * BINS)]++;
        tool_schedule_advance(&s[first]);
    }
    for (uint32_t i = 0; i < BINS; i++)
        chi_square += pow((double)bins[i] - wanted, 2) / wanted;
    assert_true(chi_square < 43.8); /* 19 degrees: exceeded once in a thousand times */
    assert_true(fabs((double)before / (double)S - CALLS / 500.0) < 5 * sqrt(CALLS) / 500.0);
}

TEST(test_schedules_are_fixed_by_their_seed)
{
    struct tool_schedule a, b, other;
    tool_schedule_init(&a, 100, false, 3, 0, 2);
    tool_schedule_init(&b, 100, false, 3, 0, 2);
    tool_schedule_init(&other, 100, false, 4, 0, 2);
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(tool_schedule_next_ns(&a), tool_schedule_next_ns(&b));
        assert_int_not_equal(tool_schedule_next_ns(&a), tool_schedule_next_ns(&other));
        tool_schedule_advance(&a);
        tool_schedule_advance(&b);
        tool_schedule_advance(&other);
    }
}

/* ---- a server that answers one call after the other, and nothing during a stall ---- */

struct server {
    uint64_t service_ns, stall_ns, stall_end_ns, free_ns;
};

static uint64_t serve(struct server *s, uint64_t arrived_ns)
{
    uint64_t begins = arrived_ns > s->free_ns ? arrived_ns : s->free_ns;
    if (begins + s->service_ns > s->stall_ns && begins < s->stall_end_ns)
        begins = s->stall_end_ns;
    return s->free_ns = begins + s->service_ns;
}

struct outcome {
    uint64_t calls, late, unsent, latency_max_ns;
    uint64_t waited_ns; /* sum of what was above LATE_NS */
};
#define LATE_NS (2 * MS)

static void flight_count(struct outcome *o, uint64_t latency_ns)
{
    o->calls++;
    o->late += latency_ns > LATE_NS;
    o->waited_ns += latency_ns > LATE_NS ? latency_ns - LATE_NS : 0;
    o->latency_max_ns = latency_ns > o->latency_max_ns ? latency_ns : o->latency_max_ns;
}

/* Ends calls that are answered and begins those that are due, in steps of a tenth of a millisecond. */
static struct outcome play(const struct tool_schedule *schedule, uint32_t max, uint64_t end_ns,
                           struct server server)
{
    static struct tool_flight_call calls[CALLS_MAX];
    static uint64_t answers[CALLS_MAX];
    struct tool_flight f;
    struct outcome o = {0};
    uint64_t due_ns;
    tool_flight_init(&f, calls, max, 0, end_ns, schedule);
    for (uint64_t now = 0; now < end_ns || f.count > 0; now += MS / 10) {
        struct mr_link *next;
        for (struct mr_link *at = f.calls.next; at != &f.calls; at = next) {
            struct tool_flight_call *call = MR_CONTAINER(at, struct tool_flight_call, link);
            next = at->next;
            if (answers[call - calls] <= now)
                flight_count(&o, tool_flight_end(&f, call, now));
        }
        for (struct tool_flight_call *call; (call = tool_flight_begin(&f, now)) != NULL;)
            answers[call - calls] = serve(&server, now);
        assert_true(f.count <= max);
    }
    while (tool_flight_skip(&f, &due_ns)) {
        assert_true(due_ns < end_ns);
        o.unsent++;
    }
    return o;
}

static struct tool_schedule every_ms(void)
{
    struct tool_schedule s;
    tool_schedule_init(&s, 1000, true, 1, 0, 1);
    return s;
}

static const struct server stalling = {MS / 10, 500 * MS, 600 * MS, 0};

/* The calls due at 500, 501, .. ms wait for the end of the stall at 600 ms, and then for those before them, a
 * tenth of a millisecond each: call k of them is answered at 600 + (k + 1) / 10 ms, which is more than 2 ms
 * after it was due for k < 109. */
TEST(test_a_stall_is_charged_to_all_calls_that_waited)
{
    const struct tool_schedule s = every_ms();
    const struct outcome o = play(&s, CALLS_MAX, S, stalling);
    uint64_t late = 0, waited = 0;
    for (uint64_t k = 0; k < 200; k++) {
        const uint64_t due = (500 + k) * MS, answered = 600 * MS + (k + 1) * MS / 10;
        const uint64_t latency = answered > due ? answered - due : 0;
        late += latency > LATE_NS;
        waited += latency > LATE_NS ? latency - LATE_NS : 0;
    }
    assert_int_equal(o.calls, 1000);
    assert_int_equal(o.late, late);
    assert_int_equal(late, 109);
    assert_true(fabs((double)o.waited_ns - (double)waited) <= (double)late * (double)MS / 10);
    assert_int_in_range(o.latency_max_ns, 100 * MS, 101 * MS);
    assert_int_equal(o.unsent, 0);
}

/* With one call in flight all but the first cannot be sent before the stall is over, and are charged alike:
 * the backlog is worked off at most as fast. */
TEST(test_calls_that_could_not_be_sent_are_charged)
{
    const struct tool_schedule s = every_ms();
    const struct outcome many = play(&s, CALLS_MAX, S, stalling), one = play(&s, 1, S, stalling);
    assert_int_equal(one.calls, 1000);
    assert_int_equal(one.late, many.late);
    assert_int_equal(one.latency_max_ns, many.latency_max_ns);
}

/* The same stall, seen by a closed loop: one late call, which is the omission. */
TEST(test_a_closed_loop_sees_one_late_call)
{
    const struct outcome o = play(NULL, 1, S, stalling);
    assert_int_equal(o.late, 1);
    assert_int_in_range(o.calls, 8000, 10000);
    assert_int_in_range(o.latency_max_ns, 99 * MS, 101 * MS);
    assert_int_equal(o.unsent, 0);
}

/* A server at half the rate: half of the calls are never sent, and sending is half the time behind. */
TEST(test_a_server_that_cannot_keep_up)
{
    const struct tool_schedule s = every_ms();
    const struct outcome o = play(&s, 4, S, (struct server){.service_ns = 2 * MS});
    assert_int_equal(o.calls + o.unsent, 1000);
    assert_int_in_range(o.calls, 500, 505);
    assert_int_in_range(o.latency_max_ns, 490 * MS, 510 * MS);
}

TEST(test_what_is_due_when)
{
    static struct tool_flight_call calls[2];
    struct tool_flight f;
    const struct tool_schedule s = every_ms();
    tool_flight_init(&f, calls, 2, 10 * S, 11 * S, &s);
    assert_null(tool_flight_begin(&f, 10 * S - 1));
    assert_int_equal(tool_flight_next_ns(&f, 0), 10 * S);
    struct tool_flight_call *first = tool_flight_begin(&f, 10 * S + 5);
    assert_non_null(first);
    assert_int_equal(first->due_ns, 10 * S);
    assert_null(tool_flight_begin(&f, 10 * S + 5));
    assert_int_equal(tool_flight_behind_ns(&f, 10 * S + 5), 0);
    assert_int_equal(tool_flight_behind_ns(&f, 10 * S + 4 * MS), 3 * MS);
    assert_non_null(tool_flight_begin(&f, 10 * S + 4 * MS));
    assert_null(tool_flight_begin(&f, 10 * S + 4 * MS)); /* two in flight */
    assert_int_equal(tool_flight_end(&f, first, 10 * S + 9), 9);
    assert_non_null(tool_flight_begin(&f, 10 * S + 4 * MS));
    assert_null(tool_flight_begin(&f, 11 * S)); /* over */
    f.end_ns = 10 * S + 3 * MS;                 /* ended early: nothing was due after that */
    assert_int_equal(tool_flight_next_ns(&f, 10 * S + 4 * MS), UINT64_MAX);
}

/* What could not be sent before is not made up for, and what is due then is not left out. */
TEST(test_a_warm_ups_backlog_is_passed_over)
{
    static struct tool_flight_call calls[1];
    struct tool_flight f;
    const struct tool_schedule s = every_ms();
    tool_flight_init(&f, calls, 1, 10 * S, 12 * S, &s);
    tool_flight_pass(&f, 11 * S);
    assert_int_equal(tool_flight_next_ns(&f, 11 * S), 11 * S);
    assert_int_equal(tool_flight_begin(&f, 11 * S + 5)->due_ns, 11 * S);
    tool_flight_pass(&f, 11 * S); /* nothing more */
    assert_int_equal(tool_flight_next_ns(&f, 11 * S), 11 * S + MS);
    tool_flight_init(&f, calls, 1, 10 * S, 12 * S, NULL);
    tool_flight_pass(&f, 11 * S);
    assert_int_equal(tool_flight_begin(&f, 10 * S)->due_ns, 10 * S);
}

TEST(test_a_closed_loop_ends)
{
    static struct tool_flight_call calls[1];
    struct tool_flight f;
    uint64_t due_ns;
    tool_flight_init(&f, calls, 1, S, 2 * S, NULL);
    assert_null(tool_flight_begin(&f, S - 1));
    struct tool_flight_call *call = tool_flight_begin(&f, S + 7);
    assert_non_null(call);
    assert_int_equal(call->due_ns, S + 7);
    assert_int_equal(tool_flight_end(&f, call, 2 * S), S - 7);
    assert_null(tool_flight_begin(&f, 2 * S));
    assert_int_equal(tool_flight_behind_ns(&f, 2 * S), 0);
    assert_false(tool_flight_skip(&f, &due_ns));
}
