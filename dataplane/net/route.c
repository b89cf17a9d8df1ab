#include "dataplane/net/route.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

static const uint8_t ipv4_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

static bool is_ipv4(const struct mr_address *to)
{
    return memcmp(to->ip, ipv4_prefix, sizeof(ipv4_prefix)) == 0;
}

static enum dp_route find_ipv4(const struct dp_net *net, const struct mr_address *to, struct dp_path *path,
                               uint8_t hop[16])
{
    bool is_near = dp_net_is_on_link(net, true, to->ip + 12);
    if (!net->has_ipv4)
        return DP_ROUTE_NO_ADDRESS;
    if (!is_near && !net->has_ipv4_gateway)
        return DP_ROUTE_NO_GATEWAY;
    path->local = DP_LOCAL_IPV4;
    memcpy(hop, to->ip, 16);
    if (!is_near)
        memcpy(hop + 12, net->ipv4_gateway, 4);
    return DP_ROUTE_FOUND;
}

static enum dp_route find_ipv6(const struct dp_net *net, const struct mr_address *to, struct dp_path *path,
                               uint8_t hop[16])
{
    bool is_near = dp_net_is_link_local(to->ip);
    path->local = is_near ? DP_LOCAL_LINK : DP_LOCAL_IPV6;
    if (!is_near && !net->has_ipv6)
        return DP_ROUTE_NO_ADDRESS;
    is_near = is_near || dp_net_is_on_link(net, false, to->ip);
    if (!is_near && !net->has_ipv6_gateway)
        return DP_ROUTE_NO_GATEWAY;
    memcpy(hop, is_near ? to->ip : net->ipv6_gateway, 16);
    return DP_ROUTE_FOUND;
}

enum dp_route dp_route_find(const struct dp_net *net, const struct mr_address *to, uint16_t local_port,
                            struct dp_path *path, uint8_t hop[16])
{
    *path = (struct dp_path){.tci = net->vlan, .local_port = local_port};
    return is_ipv4(to) ? find_ipv4(net, to, path, hop) : find_ipv6(net, to, path, hop);
}

void dp_route_explain(const struct dp_net *net, const struct mr_address *to, enum dp_route route,
                      char why[DP_ERROR_BYTES])
{
    bool v4 = is_ipv4(to);
    const char *key = v4 ? "ipv4" : "ipv6";
    char own[INET6_ADDRSTRLEN] = "";
    if (route == DP_ROUTE_NO_ADDRESS) {
        snprintf(why, DP_ERROR_BYTES, "this node has no %s address: set port.%s", v4 ? "IPv4" : "IPv6", key);
        return;
    }
    (void)inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? net->ipv4 : net->ipv6, own, sizeof(own));
    snprintf(why, DP_ERROR_BYTES,
             "it is not on the link of this node, %s/%u: set port.%s_gateway to the router there", own,
             (unsigned)(v4 ? net->ipv4_prefix : net->ipv6_prefix), key);
}
