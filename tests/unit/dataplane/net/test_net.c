#include <stdio.h>
#include <string.h>
#include "dataplane/net/net.h"
#include "tests/test.h"

static struct dp_config config_make(void)
{
    struct dp_config config = {.udp_port = 7700, .core_count = 2, .vlan = 9, .mtu = 1500};
    snprintf(config.ipv4, sizeof(config.ipv4), "%s", "10.1.2.3/24");
    snprintf(config.ipv6, sizeof(config.ipv6), "%s", "fd00::1/64");
    snprintf(config.mac, sizeof(config.mac), "%s", "02:11:22:33:44:55");
    return config;
}

TEST(addresses_are_read)
{
    struct dp_config config = config_make();
    char error[DP_ERROR_BYTES];
    struct dp_net net;
    assert_true(dp_net_from_config(&net, &config, error));
    assert_memory_equal(net.ipv4, ((const uint8_t[4]){10, 1, 2, 3}), 4);
    assert_memory_equal(net.ipv6, ((const uint8_t[16]){0xfd, [15] = 1}), 16);
    assert_memory_equal(net.mac, ((const uint8_t[6]){2, 0x11, 0x22, 0x33, 0x44, 0x55}), 6);
    assert_int_equal(net.ipv4_prefix, 24);
    assert_int_equal(net.ipv6_prefix, 64);
    assert_false(net.has_ipv4_gateway || net.has_ipv6_gateway);
    assert_int_equal(net.vlan, 9);
    assert_int_equal(net.core_count, 2);
}

/* RFC 4291, appendix A: the universal bit is inverted. */
TEST(the_link_local_address_follows_from_the_mac)
{
    static const uint8_t expected[16] = {0xfe, 0x80, 0,    0,    0,    0,    0,    0,
                                         0x00, 0x11, 0x22, 0xff, 0xfe, 0x33, 0x44, 0x55};
    struct dp_config config = config_make();
    char error[DP_ERROR_BYTES];
    struct dp_net net;
    assert_true(dp_net_from_config(&net, &config, error));
    assert_memory_equal(net.link_local, expected, 16);
    assert_ptr_equal(dp_net_address(&net, DP_LOCAL_LINK), net.link_local);
}

TEST(empty_addresses_are_none)
{
    struct dp_config config = config_make();
    char error[DP_ERROR_BYTES];
    struct dp_net net;
    config.ipv4[0] = config.ipv6[0] = config.mac[0] = '\0';
    assert_true(dp_net_from_config(&net, &config, error));
    assert_false(net.has_ipv4);
    assert_false(net.has_ipv6);
}

TEST(a_wrong_address_is_named_in_the_error)
{
    static const char *const wrong[][3] = {
        {"10.0.0/24", "", ""},        {"10.0.0.1/33", "", ""},    {"10.0.0.1/", "", ""},
        {"10.0.0.1/2x", "", ""},      {"", "fd00:::1", ""},       {"", "fd00::1/129", ""},
        {"", "10.0.0.1", ""},         {"", "", "02:00:00:00:00"}, {"", "", "03:00:00:00:00:01"},
        {"", "", "02:00:00:00:0:1x"},
    };
    char error[DP_ERROR_BYTES];
    struct dp_net net, untouched;
    memset(&untouched, 0xaa, sizeof(untouched));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct dp_config config = config_make();
        const char *bad = wrong[i][0][0] != '\0'   ? wrong[i][0]
                          : wrong[i][1][0] != '\0' ? wrong[i][1]
                                                   : wrong[i][2];
        snprintf(config.ipv4, sizeof(config.ipv4), "%s", wrong[i][0]);
        snprintf(config.ipv6, sizeof(config.ipv6), "%s", wrong[i][1]);
        snprintf(config.mac, sizeof(config.mac), "%s", wrong[i][2]);
        net = untouched;
        assert_false(dp_net_from_config(&net, &config, error));
        assert_non_null(strstr(error, bad));
        assert_null(strchr(error, '\n'));
        assert_memory_equal(&net, &untouched, sizeof(net));
    }
}

static void read_gateways(struct dp_net *net, const char *ipv4, const char *ipv6, const char *says)
{
    struct dp_config config = config_make();
    char error[DP_ERROR_BYTES] = "";
    snprintf(config.ipv4_gateway, sizeof(config.ipv4_gateway), "%s", ipv4);
    snprintf(config.ipv6_gateway, sizeof(config.ipv6_gateway), "%s", ipv6);
    assert_int_equal(dp_net_from_config(net, &config, error), says == NULL);
    assert_true(says == NULL || strstr(error, says) != NULL);
}

TEST(gateways_are_on_the_link)
{
    struct dp_net net;
    read_gateways(&net, "10.1.2.254", "fd00::ff", NULL);
    assert_true(net.has_ipv4_gateway && net.has_ipv6_gateway);
    assert_memory_equal(net.ipv4_gateway, ((const uint8_t[4]){10, 1, 2, 254}), 4);
    assert_memory_equal(net.ipv6_gateway, ((const uint8_t[16]){0xfd, [15] = 0xff}), 16);
    read_gateways(&net, "", "fe80::1", NULL);
    assert_true(net.has_ipv6_gateway && !net.has_ipv4_gateway);
    read_gateways(&net, "10.1.3.1", "", "ipv4_gateway = 10.1.3.1 is not on the link of ipv4 = 10.1.2.3/24");
    read_gateways(&net, "", "fd01::1", "ipv6_gateway = fd01::1 is not on the link of ipv6 = fd00::1/64");
    read_gateways(&net, "10.1.2", "", "ipv4_gateway = \"10.1.2\" is not an address");
    read_gateways(&net, "10.1.2.3", "", "is the server itself");
}

/* As clouds have it: the address alone is on the link, and the router. */
TEST(a_prefix_of_the_whole_address_has_only_the_gateway)
{
    struct dp_config config = config_make();
    char error[DP_ERROR_BYTES];
    struct dp_net net;
    snprintf(config.ipv4, sizeof(config.ipv4), "10.1.2.3/32");
    snprintf(config.ipv4_gateway, sizeof(config.ipv4_gateway), "169.254.1.1");
    assert_true(dp_net_from_config(&net, &config, error));
    config.ipv4[0] = '\0';
    assert_false(dp_net_from_config(&net, &config, error));
    assert_non_null(strstr(error, "ipv4_gateway needs ipv4"));
}

TEST(payloads_fit_the_mtu_over_either_ip)
{
    struct dp_net net = {.mtu = 1280};
    assert_int_equal(dp_net_udp_bytes_max(&net), MR_UDP_BYTES_MIN);
    for (unsigned mtu = DP_MTU_MIN; mtu <= DP_MTU_MAX; mtu++) {
        net.mtu = (uint16_t)mtu;
        uint32_t bytes = dp_net_udp_bytes_max(&net);
        assert_true(bytes % 8 == 0 && bytes + DP_IPV6_BYTES + DP_UDP_BYTES <= mtu);
        assert_true(bytes <= MR_UDP_BYTES_MAX && bytes + DP_IPV6_BYTES + DP_UDP_BYTES + 8 > mtu);
    }
    assert_int_equal(dp_net_udp_bytes_max(&net), MR_UDP_BYTES_MAX);
}
