#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "dataplane/net/steering.h"

static const struct dp_rss_types udp = {.udp_ipv4 = 1u << 5, .udp_ipv6 = 1u << 12};

static void expect(struct dp_steering_facts facts, enum dp_steering steering, const char *why)
{
    struct dp_steering_choice choice;
    dp_steering_choose(&facts, &choice);
    assert_int_equal(choice.steering, steering);
    if (strstr(choice.why, why) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", choice.why, why);
}

static void one_core_needs_no_steering(void **state)
{
    expect((struct dp_steering_facts){.core_count = 1, .queue_count = 8, .flow_rules = true, .rss = true},
           DP_STEERING_ONE_CORE, "nothing");
}

static void sockets_need_none(void **state)
{
    expect((struct dp_steering_facts){.core_count = 2, .queue_count = 2, .sockets = true},
           DP_STEERING_SOCKETS, "the kernel finds each core's socket");
}

static void flow_rules_come_first(void **state)
{
    expect((struct dp_steering_facts){.core_count = 2, .queue_count = 2, .flow_rules = true, .rss = true},
           DP_STEERING_FLOW_RULES, "rule for each core");
}

static void rss_comes_next_and_says_why_not_flow_rules(void **state)
{
    expect(
        (struct dp_steering_facts){.core_count = 2, .queue_count = 2, .rss = true, .flow_error = "too old"},
        DP_STEERING_RSS, "2 queues, no flow rules: too old");
    expect((struct dp_steering_facts){.core_count = 2, .queue_count = 4, .rss = true}, DP_STEERING_RSS,
           "4 queues, no flow rules: none");
}

/* A core without a queue of its own could never be reached directly. */
static void rss_needs_a_queue_for_each_core(void **state)
{
    expect((struct dp_steering_facts){.core_count = 4, .queue_count = 2, .rss = true}, DP_STEERING_RINGS,
           "2 queues for 4 cores");
}

static void rings_serve_all_others(void **state)
{
    expect((struct dp_steering_facts){.core_count = 2, .queue_count = 1}, DP_STEERING_RINGS,
           "1 queue for 2 cores");
    expect((struct dp_steering_facts){.core_count = 2, .queue_count = 2, .flow_error = "not supported"},
           DP_STEERING_RINGS, "no flow rules: not supported");
}

static void rss_hashes_the_ports_of_udp_only(void **state)
{
    assert_int_equal(dp_steering_rss_types(&udp, UINT64_MAX), udp.udp_ipv4 | udp.udp_ipv6);
    assert_int_equal(dp_steering_rss_types(&udp, udp.udp_ipv4 | 1), udp.udp_ipv4);
    assert_int_equal(dp_steering_rss_types(&udp, udp.udp_ipv6), 0);
    assert_int_equal(dp_steering_rss_types(&udp, 0), 0);
}

static void every_way_has_a_name(void **state)
{
    assert_string_equal(dp_steering_text(DP_STEERING_ONE_CORE), "one core");
    assert_string_equal(dp_steering_text(DP_STEERING_FLOW_RULES), "flow rules");
    assert_string_equal(dp_steering_text(DP_STEERING_RSS), "rss");
    assert_string_equal(dp_steering_text(DP_STEERING_RINGS), "rings");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_core_needs_no_steering),
        cmocka_unit_test(sockets_need_none),
        cmocka_unit_test(flow_rules_come_first),
        cmocka_unit_test(rss_comes_next_and_says_why_not_flow_rules),
        cmocka_unit_test(rss_needs_a_queue_for_each_core),
        cmocka_unit_test(rings_serve_all_others),
        cmocka_unit_test(rss_hashes_the_ports_of_udp_only),
        cmocka_unit_test(every_way_has_a_name),
    };
    return cmocka_run_group_tests_name("steering", tests, NULL, NULL);
}
