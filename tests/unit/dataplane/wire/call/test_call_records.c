#include <math.h>
#include <string.h>
#include "dataplane/wire/call/call_records.h"
#include "dataplane/wire/endpoint_internal.h"
#include "pair_fixture.h"
#include "tests/test.h"

/* ---- the rings ---- */

static struct mr_call_records r;

static int made(void **state)
{
    memset(&r, 0, sizeof(r));
    assert_true(mr_call_records_init(&r));
    return 0;
}

static int unmade(void **state)
{
    mr_call_records_destroy(&r);
    return 0;
}

static void call_records_add(float total_ns, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        *mr_call_record_next(&r) = (struct mr_call_record){.total_ns = total_ns};
        mr_call_record_add(&r);
    }
}

static void assert_selected(const uint64_t *numbers, uint32_t count)
{
    assert_int_equal(r.selected.count, count);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(mr_call_ring_at(&r.selected, i)->number, numbers[i]);
}

TEST(the_last_calls_stay, made, unmade)
{
    call_records_add(10, MR_CALL_RECORDS + 100);
    assert_int_equal(r.last.count, MR_CALL_RECORDS + 100);
    assert_int_equal(mr_call_ring_oldest(&r.last), 100);
    for (uint64_t i = 100; i < r.last.count; i++)
        assert_int_equal(mr_call_ring_at(&r.last, i)->number, i + 1);
    assert_int_equal(r.selected.count, 0); /* nobody has asked for slow ones */
}

TEST(a_slow_call_is_selected_with_its_neighbours, made, unmade)
{
    mr_call_records_watch(&r, 1000, 0);
    call_records_add(10, 100);
    call_records_add(1000, 1); /* 101 */
    call_records_add(999, 100);
    static const uint64_t numbers[] = {93, 94, 95, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105};
    static_assert(MR_RECORD_BEFORE == 8 && MR_RECORD_AFTER == 4, "as many as there are in the list");
    assert_selected(numbers, 13);
    assert_int_equal(r.slow_count, 1);
}

TEST(the_first_call_has_none_before_it, made, unmade)
{
    static const uint64_t numbers[] = {1, 2, 3, 4, 5};
    mr_call_records_watch(&r, 1000, 0);
    call_records_add(5000, 1);
    call_records_add(10, 20);
    assert_selected(numbers, 5);
}

TEST(no_call_is_selected_twice, made, unmade)
{
    mr_call_records_watch(&r, 1000, 0);
    call_records_add(10, 20);
    call_records_add(2000, 3); /* 21 to 23 */
    call_records_add(10, 2);
    call_records_add(2000, 1); /* 26 */
    call_records_add(10, 8);   /* 27 to 34, of which 31 to 34 are before the next */
    call_records_add(2000, 1); /* 35 */
    uint64_t numbers[23];
    for (uint32_t i = 0; i < 23; i++)
        numbers[i] = 13 + i;
    assert_selected(numbers, 23);
    assert_int_equal(r.slow_count, 5);
}

/* What is selected lasts while the other ring is written over and over. */
TEST(selected_calls_outlast_the_others, made, unmade)
{
    mr_call_records_watch(&r, 1000, 0);
    call_records_add(10, 50);
    call_records_add(3000, 1);
    call_records_add(10, 100 * MR_CALL_RECORDS);
    assert_int_equal(r.selected.count, MR_RECORD_BEFORE + 1 + MR_RECORD_AFTER);
    assert_true(mr_call_ring_at(&r.selected, MR_RECORD_BEFORE)->total_ns == 3000);
}

TEST(the_smallest_span_that_is_asked_for_counts, made, unmade)
{
    mr_call_records_watch(&r, 1000, 0);
    mr_call_records_watch(&r, 5000, 1);
    assert_true(r.slow_ns == 1000);
    mr_call_records_watch(&r, 500, 2);
    assert_true(r.slow_ns == 500);
    mr_call_records_watch(&r, 5000, 1 + MR_RECORD_WATCH_US);
    assert_true(r.slow_ns == 500);
    mr_call_records_watch(&r, 5000, 2 + MR_RECORD_WATCH_US); /* that reader has gone */
    assert_true(r.slow_ns == 5000);
}

/* ---- calls of an endpoint ---- */

static const struct mr_call_record *record(uint64_t number)
{
    const struct mr_call_ring *ring = &mr_endpoint_call_records(server())->last;
    assert_true(number > 0 && number <= ring->count);
    return mr_call_ring_at(ring, number - 1);
}

static uint64_t recorded(void)
{
    return mr_endpoint_call_records(server())->last.count;
}

TEST(a_call_is_recorded_with_all_that_is_known, pair_timed, pair_ended)
{
    struct pair_call call = {0};
    p.reply_bytes = 100;
    pair_call_once(&call, MR_OP_LOOKUP);
    assert_int_equal(recorded(), 1);
    const struct mr_call_record *c = record(1);
    assert_int_equal(c->number, 1);
    assert_int_equal(c->op, MR_OP_LOOKUP);
    assert_int_equal(c->status, MR_OK);
    assert_int_equal(c->request_bytes, sizeof(struct mr_preamble));
    assert_true(c->reply_bytes >= 100 + sizeof(struct mr_preamble));
    assert_memory_equal(c->ip, p.ends[PAIR_CLIENT].address.ip, sizeof(c->ip));
    assert_int_equal(c->port, p.ends[PAIR_CLIENT].address.port);
    assert_true(c->wait_ns == 1000 && c->work_ns == 1000 && c->total_ns == 3000);
    assert_int_equal(c->arrived_ns, pair_clock_ns - 3000);
}

TEST(a_call_whose_answer_comes_later_is_recorded_then, pair_timed, pair_ended)
{
    struct pair_call call = {0};
    pair_call(&p, &call, MR_OP_SAVE, NULL, 0, UINT64_MAX);
    pair_run(&p, 1000);
    assert_int_equal(recorded(), 0);
    mr_call_add_keys(server(), p.later[0], 3);
    mr_call_add_keys(server(), p.later[0], 4);
    pair_clock_ns += 500000;
    mr_reply_status(server(), p.later[0], MR_OK);
    mr_call_add_keys(server(), p.later[0], 5); /* too late */
    pair_run(&p, 1000);
    assert_int_equal(recorded(), 1);
    assert_true(record(1)->work_ns == 501000 && record(1)->total_ns == 503000);
    assert_int_equal(record(1)->keys, 7);
}

/* In its record it has waited for its turn; the histogram's phases stay as they are. */
TEST(a_call_that_has_had_its_turn_late_has_waited, pair_timed, pair_ended)
{
    struct pair_call call = {0};
    pair_call(&p, &call, MR_OP_SAVE, NULL, 0, UINT64_MAX);
    pair_run(&p, 1000);
    pair_clock_ns += 500000;
    mr_call_turn(server(), p.later[0]);
    pair_clock_ns += 20000;
    mr_reply_status(server(), p.later[0], MR_OK);
    mr_call_turn(server(), p.later[0]); /* too late */
    pair_run(&p, 1000);
    assert_true(record(1)->wait_ns == 502000 && record(1)->work_ns == 21000 && record(1)->total_ns == 524000);
    struct mr_histogram work;
    mr_histogram_read(mr_endpoint_latency(server(), MR_OP_SAVE, MR_LATENCY_WORK), &work);
    assert_int_equal(work.sum_ns, 522000);
}

/* Of every call of a burst the whole time is known, also of those that are not timed by phase. */
TEST(no_call_of_a_burst_is_missed, pair_timed, pair_ended)
{
    enum { CALLS = 32 };
    static struct pair_call calls[CALLS];
    uint32_t timed_calls = 0;
    memset(calls, 0, sizeof(calls));
    for (uint32_t i = 0; i < CALLS; i++)
        pair_call(&p, &calls[i], MR_OP_ECHO, NULL, 0, UINT64_MAX);
    const uint64_t before_ns = pair_clock_ns;
    pair_run(&p, 1000);
    assert_int_equal(recorded(), CALLS);
    for (uint32_t i = 1; i <= CALLS; i++) {
        const struct mr_call_record *c = record(i);
        timed_calls += c->wait_ns >= 0;
        assert_true(c->arrived_ns > before_ns);
        assert_true(c->total_ns > 0 && (uint64_t)c->total_ns <= pair_clock_ns - before_ns);
    }
    assert_int_equal(timed_calls, MR_LATENCY_FIRST + (CALLS - MR_LATENCY_FIRST) / MR_LATENCY_STRIDE);
}

TEST(a_repeated_answer_is_no_other_call, pair_timed, pair_ended)
{
    struct pair_call call = {0};
    p.filter = drop_replies;
    pair_call(&p, &call, MR_OP_ECHO, NULL, 0, UINT64_MAX);
    pair_run(&p, 20000);
    p.filter = NULL;
    pair_run(&p, 2000000);
    assert_int_equal(call.ended, 1);
    assert_true(served()->calls_replayed > 0);
    assert_int_equal(recorded(), 1);
}

/* RESTORE is answered with BUSY the first time. */
TEST(a_call_refused_for_now_is_recorded_once, pair_timed, pair_ended)
{
    struct pair_call busy = {0};
    pair_call_once(&busy, MR_OP_RESTORE);
    assert_int_equal(recorded(), 1);
}

/* The calls for which clients did not wait are the slow ones. */
TEST(a_call_that_its_client_gave_up_is_recorded, pair_timed, pair_ended)
{
    struct pair_call call = {0};
    p.reply_bytes = 300000;
    pair_call(&p, &call, MR_OP_LOOKUP, NULL, 0, p.now_us + 100000);
    pair_run(&p, 30); /* the first of it is on its way */
    assert_int_equal(recorded(), 0);
    p.filter = drop_replies;
    pair_run(&p, 200000);
    assert_int_equal(call.ended, 1);
    assert_int_equal(call.status, MR_DEADLINE_EXCEEDED);
    p.filter = NULL;
    pair_run(&p, 2000000);
    assert_int_equal(recorded(), 1);
    assert_int_equal(record(1)->op, MR_OP_LOOKUP);
}

TEST(without_a_clock_nothing_is_recorded, pair_opened, pair_ended)
{
    struct pair_call call = {0};
    pair_call_once(&call, MR_OP_ECHO);
    assert_int_equal(recorded(), 0);
}
