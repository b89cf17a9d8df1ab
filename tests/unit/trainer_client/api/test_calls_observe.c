/* What is asked about a core's last calls, and what is made of the answer. */
#include <string.h>
#include "millrace_observe.h"
#include "tests/test.h"
#include "tests/unit/trainer_client/client_fixture.h"

struct seen {
    uint32_t count;
    struct mr_recent_call calls[4];
};

static void see(void *arg, const struct mr_recent_call *call)
{
    struct seen *seen = arg;
    assert_true(seen->count < 4);
    seen->calls[seen->count++] = *call;
}

TEST(calls_come_with_all_that_is_known, client_set_up, client_tear_down)
{
    struct client_fixture *x = *state;
    struct seen seen = {0};
    struct mr_recent_calls_state s;
    assert_int_equal(mr_recent_calls(x->client, NULL, 1, 5000, 77, &s, see, &seen), MR_OK);
    assert_int_equal(s.next, 12);
    assert_int_equal(s.lost, 7);
    assert_int_equal(s.left, 3);
    assert_int_equal(s.now_ns, 5000000);
    assert_int_equal(s.calls, 900);
    assert_int_equal(s.slow, 2);
    assert_int_equal(seen.count, 2);
    const struct mr_recent_call *c = &seen.calls[0];
    assert_int_equal(c->number, 41);
    assert_int_equal(c->arrived_ns, 77);
    assert_int_equal(c->total_ns, 5000);
    assert_true(c->is_timed);
    assert_int_equal(c->wait_ns, 100);
    assert_int_equal(c->work_ns, 20);
    assert_int_equal(c->send_ns, 4880);
    assert_string_equal(c->op, "lookup");
    assert_int_equal(c->status, MR_NO_MEMORY);
    assert_int_equal(c->table, 6);
    assert_int_equal(c->keys, 4000);
    assert_int_equal(c->request_bytes, 32100);
    assert_int_equal(c->reply_bytes, 64);
    assert_string_equal(c->client, "10.0.0.1:41000");
}

TEST(a_call_that_is_not_timed_has_no_phases, client_set_up, client_tear_down)
{
    struct client_fixture *x = *state;
    struct seen seen = {0};
    assert_int_equal(mr_recent_calls(x->client, NULL, 0, 0, 0, NULL, see, &seen), MR_OK);
    const struct mr_recent_call *c = &seen.calls[1];
    assert_false(c->is_timed);
    assert_int_equal(c->total_ns, 900000);
    assert_int_equal(c->wait_ns + c->work_ns + c->send_ns, 0);
    assert_string_equal(c->op, "?"); /* of a later version */
}

TEST(mistakes_are_named, client_set_up, client_tear_down)
{
    struct client_fixture *x = *state;
    assert_int_equal(mr_recent_calls(x->client, NULL, 2, 0, 0, NULL, see, NULL), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(mr_last_error(), "core is 2; the node has 2"));
    assert_int_equal(mr_recent_calls(x->client, NULL, 0, 0, 0, NULL, NULL, NULL), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(mr_last_error(), "visit is NULL"));
}
