/* The rules that a port is given, as a driver sees them. */
#include <string.h>
#include <rte_byteorder.h>
#include <rte_errno.h>
#include <rte_flow.h>
#include "dataplane/dpdk/port.h"
#include "tests/test.h"

enum { RULES_MAX = 16, PORT = 7, UDP_PORT = 7700 };

struct rule {
    enum rte_flow_item_type ip;
    uint16_t udp_port, udp_mask, queue;
};

/* What stands in for a driver. */
static struct {
    struct rule rules[RULES_MAX];
    uint32_t count, refused_from; /* the rules from this one on are refused */
    const char *refusal;          /* what the driver says; NULL = only an error number */
    uint32_t flushes;
} driver;

RTE_DEFINE_PER_LCORE(int, _rte_errno);

const char *rte_strerror(int errnum)
{
    return errnum == ENOTSUP ? "not supported" : "?";
}

struct rte_flow *rte_flow_create(uint16_t port, const struct rte_flow_attr *attributes,
                                 const struct rte_flow_item pattern[], const struct rte_flow_action actions[],
                                 struct rte_flow_error *error)
{
    struct rule *rule = &driver.rules[driver.count];
    const struct rte_flow_item_udp *spec = pattern[2].spec, *mask = pattern[2].mask;
    const struct rte_flow_action_queue *queue = actions[0].conf;
    assert_int_equal(port, PORT);
    assert_true(attributes->ingress && !attributes->egress && !attributes->transfer);
    assert_int_equal(pattern[0].type, RTE_FLOW_ITEM_TYPE_ETH);
    assert_null(pattern[0].spec);
    assert_null(pattern[1].spec);
    assert_int_equal(pattern[2].type, RTE_FLOW_ITEM_TYPE_UDP);
    assert_int_equal(pattern[3].type, RTE_FLOW_ITEM_TYPE_END);
    assert_int_equal(actions[0].type, RTE_FLOW_ACTION_TYPE_QUEUE);
    assert_int_equal(actions[1].type, RTE_FLOW_ACTION_TYPE_END);
    assert_int_equal(mask->hdr.src_port, 0);
    if (driver.count == driver.refused_from) {
        error->message = driver.refusal;
        rte_errno = ENOTSUP;
        return NULL;
    }
    assert_true(driver.count < RULES_MAX);
    *rule = (struct rule){pattern[1].type, rte_be_to_cpu_16(spec->hdr.dst_port), mask->hdr.dst_port,
                          queue->index};
    driver.count++;
    return (struct rte_flow *)rule;
}

int rte_flow_flush(uint16_t port, struct rte_flow_error *error)
{
    (void)error;
    assert_int_equal(port, PORT);
    driver.flushes++;
    driver.count = 0;
    return 0;
}

static int set_up(void **state)
{
    memset(&driver, 0, sizeof(driver));
    driver.refused_from = RULES_MAX;
    return 0;
}

static const struct dp_port port = {.id = PORT, .queue_count = 3};

TEST(each_core_gets_a_rule_per_ip_version, set_up)
{
    struct dp_net net = {.core_count = 3, .udp_port = UDP_PORT, .has_ipv4 = true};
    assert_null(dp_port_add_flow_rules(&port, &net));
    assert_int_equal(driver.count, 6);
    for (uint32_t i = 0; i < driver.count; i++) {
        assert_int_equal(driver.rules[i].ip, i % 2 == 0 ? RTE_FLOW_ITEM_TYPE_IPV4 : RTE_FLOW_ITEM_TYPE_IPV6);
        assert_int_equal(driver.rules[i].queue, i / 2);
        assert_int_equal(driver.rules[i].udp_port, UDP_PORT + i / 2);
        assert_int_equal(driver.rules[i].udp_mask, UINT16_MAX);
    }
}

TEST(without_ipv4_there_are_rules_for_ipv6_alone, set_up)
{
    struct dp_net net = {.core_count = 2, .udp_port = UDP_PORT};
    assert_null(dp_port_add_flow_rules(&port, &net));
    assert_int_equal(driver.count, 2);
    assert_int_equal(driver.rules[1].ip, RTE_FLOW_ITEM_TYPE_IPV6);
}

/* Half of the rules would steer some cores and not others: it is all or none. */
TEST(a_refused_rule_takes_the_others_along, set_up)
{
    struct dp_net net = {.core_count = 3, .udp_port = UDP_PORT, .has_ipv4 = true};
    driver.refused_from = 3;
    driver.refusal = "table full";
    assert_string_equal(dp_port_add_flow_rules(&port, &net), "table full");
    assert_int_equal(driver.flushes, 1);
    assert_int_equal(driver.count, 0);
}

TEST(a_silent_refusal_is_named_by_its_number, set_up)
{
    struct dp_net net = {.core_count = 2, .udp_port = UDP_PORT};
    driver.refused_from = 0;
    assert_string_equal(dp_port_add_flow_rules(&port, &net), "not supported");
}
