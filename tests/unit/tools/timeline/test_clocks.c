/* Clocks that are shifted, drift and are measured with unequal delays: what is moved is right within the
 * error. */
#include <stdlib.h>
#include "dataplane/wire/base/clock_offset.h"
#include "tools/timeline/clocks.h"
#include "tests/test.h"

#define S INT64_C(1000000000)

/* What a clock shows at a true time. */
struct clock {
    int64_t ahead_ns;
    int64_t drift_ppm;
};

static int64_t shown(const struct clock *c, int64_t true_ns)
{
    return true_ns + c->ahead_ns + true_ns / 1000000 * c->drift_ppm;
}

/* An exchange that begins at true_ns. */
static void measure(struct tool_clocks *c, uint64_t own_name, const struct clock *own, uint64_t peer_name,
                    const struct clock *peer, int64_t true_ns, int64_t there_ns, int64_t back_ns)
{
    const int64_t begin_ns = shown(own, true_ns), end_ns = shown(own, true_ns + there_ns + back_ns);
    int64_t offset_ns;
    uint64_t error_ns;
    mr_clock_exchange((uint64_t)begin_ns, (uint64_t)shown(peer, true_ns + there_ns), (uint64_t)end_ns,
                      &offset_ns, &error_ns);
    assert_true(tool_clocks_measured(c, own_name, peer_name, begin_ns + (end_ns - begin_ns) / 2, offset_ns,
                                     error_ns));
}

static void moves_to(const struct tool_clocks *c, uint64_t name, const struct clock *from,
                     const struct clock *reference, int64_t true_ns)
{
    int64_t ns = shown(from, true_ns);
    uint64_t error_ns;
    assert_true(tool_clocks_move(c, name, &ns, &error_ns));
    assert_true((uint64_t)llabs(ns - shown(reference, true_ns)) <= error_ns);
}

/* A trainer (2) asks a server (1) and a hub (3); the server is the reference. */
TEST(drift_and_unequal_delays_stay_within_the_error)
{
    const struct clock server = {5 * S, 0}, trainer = {1000 * S, 12}, hub = {-3 * S + 4000 * S, -8};
    struct tool_clocks *c = tool_clocks_new();
    assert_non_null(c);
    for (int64_t at = 10; at <= 100; at += 10) {
        measure(c, 2, &trainer, 1, &server, at * S, 20000 + at * 1000, 900000);
        measure(c, 2, &trainer, 3, &hub, at * S + 5000, 300000, 1000);
    }
    assert_true(tool_clocks_join(c, 1));
    for (int64_t at = 5; at <= 110; at++) {
        moves_to(c, 1, &server, &server, at * S);
        moves_to(c, 2, &trainer, &server, at * S);
        moves_to(c, 3, &hub, &server,
                 at * S); /* over the trainer, against the direction of its measurements */
    }
    tool_clocks_free(c);
}

TEST(the_way_with_the_smaller_error_is_taken)
{
    struct tool_clocks *c = tool_clocks_new();
    int64_t ns = 10 * S;
    uint64_t error_ns;
    assert_true(tool_clocks_measured(c, 2, 1, 10 * S, 70, 5000));
    assert_true(tool_clocks_measured(c, 2, 3, 10 * S, 1000, 20));
    assert_true(tool_clocks_measured(c, 3, 1, 10 * S + 1000, -990, 10));
    assert_true(tool_clocks_join(c, 1));
    assert_true(tool_clocks_move(c, 2, &ns, &error_ns));
    assert_int_equal(ns, 10 * S + 10);
    assert_int_equal(error_ns, 30);
    tool_clocks_free(c);
}

TEST(a_clock_that_nobody_measured_is_refused)
{
    struct tool_clocks *c = tool_clocks_new();
    int64_t ns = 0;
    uint64_t error_ns;
    assert_true(tool_clocks_measured(c, 2, 3, 0, 0, 0));
    assert_true(tool_clocks_join(c, 1));
    assert_false(tool_clocks_move(c, 2, &ns, &error_ns));
    assert_true(tool_clocks_move(c, 1, &ns, &error_ns));
    tool_clocks_free(c);
}
