#include <string.h>
#include "dataplane/net/steering.h"
#include "tests/test.h"

static const struct dp_rss_types udp = {.udp_ipv4 = 1u << 5, .udp_ipv6 = 1u << 12};

static void expect(struct dp_steering_facts facts, enum dp_steering steering, const char *why)
{
    struct dp_steering_choice choice;
    dp_steering_choose(&facts, &choice);
    assert_int_equal(choice.steering, steering);
    assert_says(choice.why, why);
}

TEST(one_core_needs_no_steering)
{
    expect((struct dp_steering_facts){.core_count = 1, .queue_count = 8, .flow_rules = true, .rss = true},
           DP_STEERING_ONE_CORE, "nothing");
}

TEST(sockets_need_none)
{
    expect((struct dp_steering_facts){.core_count = 2, .queue_count = 2, .sockets = true},
           DP_STEERING_SOCKETS, "the kernel finds each core's socket");
}

TEST(flow_rules_come_first)
{
    expect((struct dp_steering_facts){.core_count = 2, .queue_count = 2, .flow_rules = true, .rss = true},
           DP_STEERING_FLOW_RULES, "rule for each core");
}

TEST(rss_comes_next_and_says_why_not_flow_rules)
{
    expect(
        (struct dp_steering_facts){.core_count = 2, .queue_count = 2, .rss = true, .flow_error = "too old"},
        DP_STEERING_RSS, "2 queues, no flow rules: too old");
    expect((struct dp_steering_facts){.core_count = 2, .queue_count = 4, .rss = true}, DP_STEERING_RSS,
           "4 queues, no flow rules: none");
}

/* A core without a queue of its own could never be reached directly. */
TEST(rss_needs_a_queue_for_each_core)
{
    expect((struct dp_steering_facts){.core_count = 4, .queue_count = 2, .rss = true}, DP_STEERING_RINGS,
           "2 queues for 4 cores");
}

TEST(rings_serve_all_others)
{
    expect((struct dp_steering_facts){.core_count = 2, .queue_count = 1}, DP_STEERING_RINGS,
           "1 queue for 2 cores");
    expect((struct dp_steering_facts){.core_count = 2, .queue_count = 2, .flow_error = "not supported"},
           DP_STEERING_RINGS, "no flow rules: not supported");
}

TEST(rss_hashes_the_ports_of_udp_only)
{
    assert_int_equal(dp_steering_rss_types(&udp, UINT64_MAX), udp.udp_ipv4 | udp.udp_ipv6);
    assert_int_equal(dp_steering_rss_types(&udp, udp.udp_ipv4 | 1), udp.udp_ipv4);
    assert_int_equal(dp_steering_rss_types(&udp, udp.udp_ipv6), 0);
    assert_int_equal(dp_steering_rss_types(&udp, 0), 0);
}

TEST(every_way_has_a_name)
{
    assert_string_equal(dp_steering_text(DP_STEERING_ONE_CORE), "one core");
    assert_string_equal(dp_steering_text(DP_STEERING_FLOW_RULES), "flow rules");
    assert_string_equal(dp_steering_text(DP_STEERING_RSS), "rss");
    assert_string_equal(dp_steering_text(DP_STEERING_RINGS), "rings");
}
