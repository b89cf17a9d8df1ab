/* The first hop of packets to hosts that no packet came from: the host itself if it is on the link, or the
 * gateway of its family. (Packets that answer another one go back the way that one came.) Pure, any
 * thread. */
#ifndef DP_ROUTE_H
#define DP_ROUTE_H

#include "dataplane/net/frame.h"

enum dp_route {
    DP_ROUTE_FOUND,
    DP_ROUTE_NO_ADDRESS, /* we have no address of that family to send from */
    DP_ROUTE_NO_GATEWAY, /* the host is not on the link, and there is no gateway */
};

/* On success fills in the path to `to`, but for the MAC address, which is that of `hop`: an address in the
 * form of mr_address.ip. The packet leaves from UDP port `local_port`. */
enum dp_route dp_route_find(const struct dp_net *net, const struct mr_address *to, uint16_t local_port,
                            struct dp_path *path, uint8_t hop[16]);
/* Writes one line that says why there is none, and how to fix it; `route` is not DP_ROUTE_FOUND. */
void dp_route_explain(const struct dp_net *net, const struct mr_address *to, enum dp_route route,
                      char why[DP_ERROR_BYTES]);

#endif
