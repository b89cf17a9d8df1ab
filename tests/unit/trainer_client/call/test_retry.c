/* Retry contexts by themselves: which outcomes lead to another try, and what the tries share. */
#include "dataplane/wire/base/clock.h"
#include "trainer_client/call/client.h"
#include "trainer_client/call/forks.h"
#include "trainer_client/call/retry.h"
#include "tests/test.h"

enum { TRIES_MAX = 8 };

/* A call whose tries end as the list says. */
struct scripted_call {
    struct mrc_retry retry;
    const enum mr_status *outcomes;
    uint32_t tries;
    uint64_t deadlines_us[TRIES_MAX], began_ns[TRIES_MAX];
};

static enum mr_status scripted_make(struct mrc_retry *r, struct mr_reply **reply)
{
    struct scripted_call *c = MR_CONTAINER(r, struct scripted_call, retry);
    struct mr_future f = {.options = {.deadline_us = 1}, .began_ns = 100 + c->tries};
    (void)reply;
    assert_true(c->tries < TRIES_MAX);
    assert_true(r->map_generation == UINT32_MAX); /* each try says by which map it is split */
    r->map_generation = 0;
    mrc_retry_future(r, &f);
    c->deadlines_us[c->tries] = f.options.deadline_us;
    c->began_ns[c->tries] = f.began_ns;
    return c->outcomes[c->tries++];
}

static struct scripted_call scripted_call(struct mr_client *client, const enum mr_status *outcomes)
{
    client->forks = mrc_forks();
    client->deadline_ms = 60000;
    return (struct scripted_call){
        .retry = {.client = client, .op = MR_OP_PUSH_GRAD, .make = scripted_make, .is_due = mrc_retry_by_map},
        .outcomes = outcomes};
}

/* A call that was split by a stale map is made again until it is sent, whatever the operation; all tries have
 * the deadline and the start of the first. */
TEST(test_stale_maps)
{
    static const enum mr_status outcomes[] = {MRC_STALE_MAP, MRC_STALE_MAP, MR_OK};
    static struct mr_client client;
    struct scripted_call c = scripted_call(&client, outcomes);
    const uint64_t least_us = mr_clock_us() + 60000 * UINT64_C(1000);
    assert_int_equal(mrc_retry_run(&c.retry, NULL), MR_OK);
    assert_int_equal(c.tries, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(c.deadlines_us[i] >= least_us);
        assert_true(c.deadlines_us[i] == c.deadlines_us[0]);
        assert_true(c.began_ns[i] == 100);
    }
}

/* Another failure of a call that must not be executed twice stands. */
TEST(test_a_failure_stands)
{
    static const enum mr_status outcomes[] = {MRC_STALE_MAP, MR_BUSY};
    static struct mr_client client;
    struct scripted_call c = scripted_call(&client, outcomes);
    assert_int_equal(mrc_retry_run(&c.retry, NULL), MR_BUSY);
    assert_int_equal(c.tries, 2);
}

/* A refusal is no reason for another try once the deadline has passed. */
TEST(test_refused_at_the_deadline)
{
    static const enum mr_status outcomes[] = {MR_WRONG_OWNER};
    static struct mr_client client;
    struct scripted_call c = scripted_call(&client, outcomes);
    pthread_mutex_init(&client.lock, NULL); /* no node has refused a call: there is nothing to wait for */
    c.retry.wait_until_us = UINT64_MAX;
    c.retry.deadline_us = mr_clock_us() - 1;
    assert_int_equal(mrc_retry_unexecuted(&c.retry, MR_WRONG_OWNER), MRC_RETRY_NO);
    c.retry.deadline_us = mr_clock_us() + 60000 * UINT64_C(1000);
    assert_int_equal(mrc_retry_unexecuted(&c.retry, MR_WRONG_OWNER), MRC_RETRY_NOW);
    assert_int_equal(mrc_retry_unexecuted(&c.retry, MR_CANCELLED), MRC_RETRY_NO);
    pthread_mutex_destroy(&client.lock);
}

/* A retry that found no room is not made at once, but when its future is polled again. */
TEST(test_no_room_is_no_reason)
{
    static struct mr_client client;
    static const enum mr_status outcomes[] = {MR_OK};
    struct scripted_call c = scripted_call(&client, outcomes);
    c.retry.op = MR_OP_LOOKUP;
    c.retry.deadline_us = UINT64_MAX;
    assert_int_equal(mrc_retry_by_map(&c.retry, MRC_NO_ROOM_YET), MRC_RETRY_NO);
}

TEST(test_left_ms)
{
    assert_int_equal(mrc_left_ms(10000, 10000), 0);
    assert_int_equal(mrc_left_ms(10000, 20000), 0);
    assert_int_equal(mrc_left_ms(10001, 10000), 1); /* rounded up: 0 is the default of options */
    assert_int_equal(mrc_left_ms(12000, 10000), 2);
    assert_true(mrc_left_ms(UINT64_MAX, 0) == UINT32_MAX);
}
