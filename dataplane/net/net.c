#include "dataplane/net/net.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Splits "address/prefix" (the prefix is checked and not needed: answers are sent to where the request came
 * from). */
static bool parse_address(int family, const char *text, unsigned prefix_max, uint8_t *out)
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
    }
    return inet_pton(family, address, out) == 1;
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
        if (!parse_address(AF_INET, config->ipv4, 32, made.ipv4)) {
            snprintf(error, DP_ERROR_BYTES, "port: ipv4 = \"%s\" is not an address such as 10.0.0.1/24",
                     config->ipv4);
            return false;
        }
    }
    if (config->ipv6[0] != '\0') {
        made.has_ipv6 = true;
        if (!parse_address(AF_INET6, config->ipv6, 128, made.ipv6)) {
            snprintf(error, DP_ERROR_BYTES, "port: ipv6 = \"%s\" is not an address such as fd00::1/64",
                     config->ipv6);
            return false;
        }
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
