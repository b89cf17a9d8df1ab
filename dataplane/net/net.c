#include "dataplane/net/net.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Splits "address/prefix". Without a prefix it is 0. */
static bool parse_address(int family, const char *text, unsigned prefix_max, uint8_t *out,
                          uint8_t *prefix_out)
{
    char address[64];
    const char *slash = strchr(text, '/');
    size_t bytes = slash != NULL ? (size_t)(slash - text) : strlen(text);
    if (bytes >= sizeof(address))
        return false;
    memcpy(address, text, bytes);
    address[bytes] = '\0';
    if (slash != NULL) {
        char *end;
        unsigned long prefix = strtoul(slash + 1, &end, 10);
        if (end == slash + 1 || *end != '\0' || prefix > prefix_max)
            return false;
        *prefix_out = (uint8_t)prefix;
    }
    return inet_pton(family, address, out) == 1;
}

/* A router on the link. Where the prefix is the whole address there is only the router there. */
static bool read_gateway(struct dp_net *net, bool is_ipv4, const char *text, const char *own,
                         char error[DP_ERROR_BYTES])
{
    const char *key = is_ipv4 ? "ipv4" : "ipv6";
    uint8_t *gateway = is_ipv4 ? net->ipv4_gateway : net->ipv6_gateway;
    bool has_own = is_ipv4 ? net->has_ipv4 : net->has_ipv6;
    unsigned prefix = is_ipv4 ? net->ipv4_prefix : net->ipv6_prefix;
    if (inet_pton(is_ipv4 ? AF_INET : AF_INET6, text, gateway) != 1) {
        snprintf(error, DP_ERROR_BYTES, "port: %s_gateway = \"%s\" is not an address such as %s", key, text,
                 is_ipv4 ? "10.0.0.254" : "fd00::ff");
        return false;
    }
    if (!has_own) {
        snprintf(error, DP_ERROR_BYTES, "port: %s_gateway needs %s, the server's own address", key, key);
        return false;
    }
    if (memcmp(gateway, is_ipv4 ? net->ipv4 : net->ipv6, is_ipv4 ? 4 : 16) == 0) {
        snprintf(error, DP_ERROR_BYTES, "port: %s_gateway = %s is the server itself; name the router", key,
                 text);
        return false;
    }
    if (prefix == (is_ipv4 ? 32u : 128u) || (!is_ipv4 && dp_net_is_link_local(gateway)) ||
        dp_net_is_on_link(net, is_ipv4, gateway))
        return true;
    snprintf(error, DP_ERROR_BYTES,
             "port: %s_gateway = %s is not on the link of %s = %s; name the router's address there", key,
             text, key, own);
    return false;
}

static bool parse_mac(const char *text, uint8_t mac[6])
{
    unsigned value[6];
    char rest;
    if (sscanf(text, "%2x:%2x:%2x:%2x:%2x:%2x%c", &value[0], &value[1], &value[2], &value[3], &value[4],
               &value[5], &rest) != 6)
        return false;
    for (int i = 0; i < 6; i++)
        mac[i] = (uint8_t)value[i];
    return (mac[0] & 1) == 0;
}

bool dp_net_from_config(struct dp_net *net, const struct dp_config *config, char error[DP_ERROR_BYTES])
{
    struct dp_net made = {.vlan = config->vlan,
                          .mtu = config->mtu,
                          .udp_port = config->udp_port,
                          .core_count = (uint16_t)config->core_count};
    uint8_t mac[6];
    if (config->ipv4[0] != '\0') {
        made.has_ipv4 = true;
        if (!parse_address(AF_INET, config->ipv4, 32, made.ipv4, &made.ipv4_prefix)) {
            snprintf(error, DP_ERROR_BYTES, "port: ipv4 = \"%s\" is not an address such as 10.0.0.1/24",
                     config->ipv4);
            return false;
        }
    }
    if (config->ipv6[0] != '\0') {
        made.has_ipv6 = true;
        if (!parse_address(AF_INET6, config->ipv6, 128, made.ipv6, &made.ipv6_prefix)) {
            snprintf(error, DP_ERROR_BYTES, "port: ipv6 = \"%s\" is not an address such as fd00::1/64",
                     config->ipv6);
            return false;
        }
    }
    if (config->ipv4_gateway[0] != '\0') {
        if (!read_gateway(&made, true, config->ipv4_gateway, config->ipv4, error))
            return false;
        made.has_ipv4_gateway = true;
    }
    if (config->ipv6_gateway[0] != '\0') {
        if (!read_gateway(&made, false, config->ipv6_gateway, config->ipv6, error))
            return false;
        made.has_ipv6_gateway = true;
    }
    if (config->mac[0] != '\0') {
        if (!parse_mac(config->mac, mac)) {
            snprintf(error, DP_ERROR_BYTES,
                     "port: mac = \"%s\" is not a unicast address such as 02:00:00:00:00:01", config->mac);
            return false;
        }
        dp_net_set_mac(&made, mac);
    }
    *net = made;
    return true;
}

void dp_net_set_mac(struct dp_net *net, const uint8_t mac[6])
{
    memcpy(net->mac, mac, 6);
    memset(net->link_local, 0, sizeof(net->link_local));
    net->link_local[0] = 0xfe;
    net->link_local[1] = 0x80;
    net->link_local[8] = mac[0] ^ 0x02;
    net->link_local[9] = mac[1];
    net->link_local[10] = mac[2];
    net->link_local[11] = 0xff;
    net->link_local[12] = 0xfe;
    net->link_local[13] = mac[3];
    net->link_local[14] = mac[4];
    net->link_local[15] = mac[5];
}

bool dp_net_is_link_local(const uint8_t ipv6[16])
{
    return ipv6[0] == 0xfe && (ipv6[1] & 0xc0) == 0x80;
}

bool dp_net_is_on_link(const struct dp_net *net, bool is_ipv4, const uint8_t *ip)
{
    const uint8_t *own = is_ipv4 ? net->ipv4 : net->ipv6;
    uint32_t prefix = is_ipv4 ? net->ipv4_prefix : net->ipv6_prefix, bytes = prefix / 8;
    uint8_t mask = (uint8_t)(0xff00u >> prefix % 8);
    return memcmp(own, ip, bytes) == 0 && (mask == 0 || ((own[bytes] ^ ip[bytes]) & mask) == 0);
}

uint32_t dp_net_udp_bytes_max(const struct dp_net *net)
{
    uint32_t bytes = (net->mtu - DP_IPV6_BYTES - DP_UDP_BYTES) / 8 * 8;
    return bytes < MR_UDP_BYTES_MAX ? bytes : MR_UDP_BYTES_MAX;
}

const uint8_t *dp_net_address(const struct dp_net *net, enum dp_local local)
{
    switch (local) {
    case DP_LOCAL_IPV4:
        return net->ipv4;
    case DP_LOCAL_IPV6:
        return net->ipv6;
    case DP_LOCAL_LINK:
        break;
    }
    return net->link_local;
}
