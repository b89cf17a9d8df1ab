/* Steering in the network card: one rule per core and IP version, UDP destination port -> queue. */
#include <stdio.h>
#include <rte_byteorder.h>
#include <rte_errno.h>
#include <rte_flow.h>
#include "dataplane/dpdk/port.h"

static bool add_rule(uint16_t port_id, enum rte_flow_item_type ip, uint16_t udp_port, uint16_t queue,
                     struct rte_flow_error *error)
{
    struct rte_flow_attr attributes = {.ingress = 1};
    struct rte_flow_item_udp udp = {.hdr.dst_port = rte_cpu_to_be_16(udp_port)};
    struct rte_flow_item_udp udp_mask = {.hdr.dst_port = UINT16_MAX};
    struct rte_flow_action_queue to_queue = {.index = queue};
    struct rte_flow_item pattern[] = {
        {.type = RTE_FLOW_ITEM_TYPE_ETH},
        {.type = ip},
        {.type = RTE_FLOW_ITEM_TYPE_UDP, .spec = &udp, .mask = &udp_mask},
        {.type = RTE_FLOW_ITEM_TYPE_END},
    };
    struct rte_flow_action actions[] = {
        {.type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &to_queue},
        {.type = RTE_FLOW_ACTION_TYPE_END},
    };
    return rte_flow_create(port_id, &attributes, pattern, actions, error) != NULL;
}

static const char *text_of(const struct rte_flow_error *error)
{
    return error->message != NULL ? error->message : rte_strerror(rte_errno);
}

const char *dp_port_add_flow_rules(const struct dp_port *port, const struct dp_net *net)
{
    static char why[DP_STEERING_WHY_BYTES];
    for (uint16_t core = 0; core < net->core_count; core++) {
        uint16_t udp_port = (uint16_t)(net->udp_port + core);
        struct rte_flow_error error = {0};
        if ((net->has_ipv4 && !add_rule(port->id, RTE_FLOW_ITEM_TYPE_IPV4, udp_port, core, &error)) ||
            !add_rule(port->id, RTE_FLOW_ITEM_TYPE_IPV6, udp_port, core, &error)) {
            snprintf(why, sizeof(why), "%s", text_of(&error));
            (void)rte_flow_flush(port->id, &error);
            return why;
        }
    }
    return NULL;
}
