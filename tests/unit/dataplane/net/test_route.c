#include <arpa/inet.h>
#include <string.h>
#include "dataplane/net/route.h"
#include "tests/test.h"
#include "tests/unit/dataplane/hosts.h"

static struct dp_net net_make(void)
{
    struct dp_net net = server_make(); /* 10.0.0.1, fd00::101 */
    net.vlan = 7;
    net.ipv4_prefix = 24;
    net.ipv6_prefix = 64;
    return net;
}

static struct mr_address address(const char *text)
{
    struct mr_address out = {.port = 9000};
    if (inet_pton(AF_INET6, text, out.ip) == 1)
        return out;
    out.ip[10] = out.ip[11] = 0xff;
    assert_int_equal(inet_pton(AF_INET, text, out.ip + 12), 1);
    return out;
}

static void expect_hop(const struct dp_net *net, const char *to, const char *hop, enum dp_local local)
{
    struct mr_address target = address(to), expected = address(hop);
    struct dp_path path;
    uint8_t found[16];
    assert_int_equal(dp_route_find(net, &target, 7700, &path, found), DP_ROUTE_FOUND);
    assert_memory_equal(found, expected.ip, 16);
    assert_int_equal(path.local, local);
    assert_int_equal(path.local_port, 7700);
    assert_int_equal(path.tci, 7);
}

static void expect_none(const struct dp_net *net, const char *to, enum dp_route why, const char *says)
{
    struct mr_address target = address(to);
    char text[DP_ERROR_BYTES];
    struct dp_path path;
    uint8_t hop[16];
    assert_int_equal(dp_route_find(net, &target, 7700, &path, hop), why);
    dp_route_explain(net, &target, why, text);
    assert_non_null(strstr(text, says));
}

TEST(hosts_on_the_link_are_reached_directly)
{
    struct dp_net net = net_make();
    expect_hop(&net, "10.0.0.200", "10.0.0.200", DP_LOCAL_IPV4);
    expect_hop(&net, "fd00::7:8", "fd00::7:8", DP_LOCAL_IPV6);
    expect_hop(&net, "fe80::7", "fe80::7", DP_LOCAL_LINK);
}

TEST(other_hosts_are_reached_through_the_gateway)
{
    struct dp_net net = net_make();
    struct mr_address v4 = address("10.0.0.254"), v6 = address("fe80::1");
    net.has_ipv4_gateway = net.has_ipv6_gateway = true;
    memcpy(net.ipv4_gateway, v4.ip + 12, 4);
    memcpy(net.ipv6_gateway, v6.ip, 16);
    expect_hop(&net, "10.0.1.1", "10.0.0.254", DP_LOCAL_IPV4);
    expect_hop(&net, "192.0.2.1", "10.0.0.254", DP_LOCAL_IPV4);
    expect_hop(&net, "10.0.0.2", "10.0.0.2", DP_LOCAL_IPV4);
    /* The gateway is in the link's scope, and the packet is still from our address of the target's. */
    expect_hop(&net, "fd00:0:0:1::1", "fe80::1", DP_LOCAL_IPV6);
    expect_hop(&net, "fd00::2", "fd00::2", DP_LOCAL_IPV6);
}

TEST(without_one_the_line_says_what_to_set)
{
    struct dp_net net = net_make();
    expect_none(&net, "10.0.1.1", DP_ROUTE_NO_GATEWAY, "10.0.0.1/24: set port.ipv4_gateway");
    expect_none(&net, "fd01::1", DP_ROUTE_NO_GATEWAY, "fd00::101/64: set port.ipv6_gateway");
    net.has_ipv4 = net.has_ipv6 = false;
    expect_none(&net, "10.0.0.2", DP_ROUTE_NO_ADDRESS, "no IPv4 address: set port.ipv4");
    expect_none(&net, "fd00::2", DP_ROUTE_NO_ADDRESS, "no IPv6 address: set port.ipv6");
    expect_hop(&net, "fe80::2", "fe80::2", DP_LOCAL_LINK);
}

TEST(prefixes_end_at_any_bit)
{
    struct dp_net net = net_make();
    net.ipv4_prefix = 29;
    net.ipv6_prefix = 121;
    expect_hop(&net, "10.0.0.7", "10.0.0.7", DP_LOCAL_IPV4);
    expect_none(&net, "10.0.0.8", DP_ROUTE_NO_GATEWAY, "/29");
    expect_hop(&net, "fd00::17f", "fd00::17f", DP_LOCAL_IPV6);
    expect_none(&net, "fd00::180", DP_ROUTE_NO_GATEWAY, "/121");
    net.ipv4_prefix = 32;
    net.ipv6_prefix = 128;
    expect_none(&net, "10.0.0.2", DP_ROUTE_NO_GATEWAY, "/32");
    expect_none(&net, "fd00::100", DP_ROUTE_NO_GATEWAY, "/128");
    net.ipv4_prefix = net.ipv6_prefix = 0; /* every host is on the link */
    expect_hop(&net, "192.0.2.1", "192.0.2.1", DP_LOCAL_IPV4);
    expect_hop(&net, "2001:db8::1", "2001:db8::1", DP_LOCAL_IPV6);
}
